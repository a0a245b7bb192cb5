"""How much memory this process holds, and held at most.

Here: two readings of the operating system. Not here: who asks (partitioner.py).
"""

from __future__ import annotations

import re
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
    # Not getrusage where it can be helped: Linux lets a program that another one started begin with
    # the peak of its parent.
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        status = ""
    found = re.search(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE)
    if found:
        return int(found[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Kibibytes on Linux, bytes on macOS.
    return peak if sys.platform == "darwin" else peak * 1024
