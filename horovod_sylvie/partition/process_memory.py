"""How much memory this process holds, and held at most.

Here: two readings of the operating system. Not here: who asks (partitioner.py).
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def resident_bytes() -> int:
    """Return the memory that this process holds now; 0 where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * resource.getpagesize()
    except OSError:
        return 0


def peak_bytes() -> int:
    """Return the most memory that this process has ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Kibibytes on Linux, bytes on macOS.
    return peak if sys.platform == "darwin" else peak * 1024
