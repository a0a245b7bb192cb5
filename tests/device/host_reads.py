"""Which lines of the package read a tensor's values on the host, or need its values for a shape.

On a GPU each of them waits for the device. `.cpu()` and `.tolist()` are not seen on the host. What
`ops` does is not looked at: its kernels have no such lines, and their twins need not do without.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import horovod_sylvie

PACKAGE = Path(horovod_sylvie.__file__).parent
READS = {"_local_scalar_dense", "nonzero", "masked_select", "repeat_interleave", "bincount"}


class HostReads(TorchDispatchMode):
    """Notes module and function of each such line while it is entered.

    Attributes:
        found: "gradient.clipping.clip_factor", for instance.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func._schema.name.partition("::")[2]
        by_mask = name in {"index", "index_put_"} and any(
            isinstance(each, Tensor) and each.dtype == torch.bool for each in args[1]
        )
        if name in READS or by_mask:
            self._note(sys._getframe())
        return func(*args, **(kwargs or {}))

    def _note(self, frame: FrameType | None) -> None:
        while frame is not None:
            path, function = Path(frame.f_code.co_filename), frame.f_code.co_name
            # Comprehensions have frames of their own; a step of torch's own optimizers is theirs
            if path.is_relative_to(PACKAGE) and not function.startswith("<"):
                parts = path.relative_to(PACKAGE).with_suffix("").parts
                if parts[0] != "ops":
                    self.found.add(".".join((*parts, function)))
                return
            if path.is_relative_to(Path(torch.__file__).parent / "optim"):
                return
            frame = frame.f_back
