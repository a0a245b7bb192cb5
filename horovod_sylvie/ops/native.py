"""The door to `horovod_sylvie._native`, and the log lines where it is not used.

No kernel is called here: the ops' own modules do. Importable without torch.
"""

from __future__ import annotations

import functools
import importlib
import logging
from typing import Any, Final

INTERFACE_VERSION: Final = 1
REBUILD_COMMAND: Final = "pip install --force-reinstall --no-deps --no-cache-dir horovod_sylvie"

_logger = logging.getLogger(__name__)


@functools.cache
def load_native() -> Any:
    """Import the native library; the second time, return it.

    Returns:
        The module `horovod_sylvie._native`, as declared in its stub.

    Raises:
        ImportError: If it is missing, cannot be loaded, or was built from another version of the
            sources.
    """
    native = importlib.import_module("horovod_sylvie._native")
    found = getattr(native, "INTERFACE_VERSION", None)
    if found != INTERFACE_VERSION:
        msg = (
            f"load_native: expected interface version {INTERFACE_VERSION} of 'horovod_sylvie."
            f"_native', got {found}. It was built from other sources: {REBUILD_COMMAND}"
        )
        raise ImportError(msg)
    return native


@functools.cache
def native_or_none() -> Any | None:
    """Return the native library, or None, logged once, where it cannot be loaded."""
    try:
        return load_native()
    except ImportError as error:
        warn_slow(
            f"the native library cannot be loaded ({error}); to rebuild it: {REBUILD_COMMAND}"
        )
        return None


@functools.cache
def warn_slow(reason: str) -> None:
    """Log that plain-PyTorch code runs instead of a kernel, once a process for each reason."""
    _logger.warning("horovod_sylvie: slower plain-PyTorch code runs, because %s", reason)
