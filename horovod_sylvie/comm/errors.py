"""What can go wrong between ranks.

These are errors of the world (a peer ended, a peer disagrees), as against errors of the caller,
which are `ValueError` and `TypeError` and are raised before anything is submitted.
"""

from __future__ import annotations


class CommunicationError(RuntimeError):
    """Say that an operation between ranks cannot be completed."""


class CommunicationTimeout(CommunicationError):
    """Say that an operation was not completed by its deadline."""


class PeerError(CommunicationError):
    """Say that another rank failed in a step that all ranks do together."""
