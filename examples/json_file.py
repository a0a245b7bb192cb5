"""The figures of a training, in a JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def finite(value: float) -> float | None:
    """JSON has no NaN and no infinity: where training went astray, or a metric has no nodes."""
    return value if math.isfinite(value) else None


def write_json(path: Path, figures: Mapping[str, Any]) -> None:
    """Write the file whole or not at all.

    Raises:
        OSError: It cannot be written. What was there before is as it was.
    """
    text = json.dumps(figures, indent=1, allow_nan=False) + "\n"
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:  # that of a write does not say where
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, f"--json: cannot write {path}: {error.strerror}") from error
