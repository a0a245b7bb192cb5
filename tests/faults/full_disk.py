"""A disk that is full: no file of this process can grow beyond a number of bytes.

The system refuses the write that would do so, as it does on a full disk, with another number.
"""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def full_disk(num_bytes: int) -> Iterator[None]:
    """Let no file grow beyond `num_bytes` in this block."""
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # by default it ends the process
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
