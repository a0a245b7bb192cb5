"""An accelerator beside the host: streams, events, page-locked memory. No ranks, no algorithm."""
