"""The door to `horovod_sylvie._native`, and the log lines where it is not used.

No kernel is called here: the ops' own modules do. Importable without torch.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import json
import logging
import shlex
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

INTERFACE_VERSION: Final = 5

_logger = logging.getLogger(__name__)


def rebuild_command() -> str:
    """Return the command that builds the native library again, for the way it was installed.

    Returns:
        A shell command: of the directory, where the package was installed from one (a clone), and
        of the package index otherwise.
    """
    command = "pip install --force-reinstall --no-deps"
    # A clone may also hold metadata of its own, which says nothing about the installation.
    for distribution in importlib.metadata.distributions(name="horovod_sylvie"):
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        if "dir_info" in origin:
            directory = shlex.quote(url2pathname(urlsplit(origin["url"]).path))
            editable = "-e " if origin["dir_info"].get("editable", False) else ""
            return f"{command} {editable}{directory}"
    return f"{command} --no-cache-dir horovod_sylvie"


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
            f"_native', got {found}. It was built from other sources: {rebuild_command()}"
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
            f"the native library cannot be loaded ({error}); to rebuild it: {rebuild_command()}"
        )
        return None


@functools.cache
def warn_slow(reason: str) -> None:
    """Log that plain-PyTorch code runs instead of a kernel, once a process for each reason."""
    _logger.warning("horovod_sylvie: slower plain-PyTorch code runs, because %s", reason)
