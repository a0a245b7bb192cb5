"""Graphs in, one directory per rank out, and a rank's piece read back."""
