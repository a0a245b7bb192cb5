"""Ranks and bytes: the communicator protocol and its implementations."""
