"""The commands of `python -m horovod_sylvie`, one module each."""
