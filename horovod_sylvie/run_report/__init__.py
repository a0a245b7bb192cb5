"""One page about a run: figures, charts, files."""
