"""What a communicator still has to do when the program comes to its end."""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable
from typing import Final

# A rank that leaves waits no longer than this for ranks that are slower
LEAVING_S: Final = 30.0


def call_before_exit(method: Callable[[], None]) -> None:
    """Call a bound method when the interpreter exits, unless its object or the program is gone.

    Later registrations are called first: what is registered after `hvd.init()` comes before the
    shutdown of Horovod. A program that an uncaught exception ends calls nothing: its peers should
    learn of it at once.
    """
    atexit.register(_call, weakref.WeakMethod(method))


def _call(reference: weakref.WeakMethod[Callable[[], None]]) -> None:
    method = reference()
    if method is not None and not hasattr(sys, "last_value"):
        method()
