"""Tensors in, tensors out: no ranks, no state. Imports nothing, so that it works without torch."""
