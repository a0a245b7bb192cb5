"""Checkpoints are the examples', whose programs import each other from their own folder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
