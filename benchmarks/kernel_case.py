"""One op of the kernels on one set of tensors: what is run, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """An op, the tensors that it works on, and other ways to do the same.

    Attributes:
        op: Its name.
        shape: On what, in words.
        num_elements: Elements that are coded, decoded, selected from or summed.
        num_bytes: Bytes that must be read or written, each once.
        kernel: Runs the kernel; returns its report.
        twin: Runs the plain-PyTorch twin; returns the same.
        torch_way: Does it as a program without kernels would.
        written: What kernel and twin write.
        plain_name: What a program does that does not compress; "" if there is nothing.
        plain: Does that.
    """

    op: str
    shape: str
    num_elements: int
    num_bytes: int
    kernel: Callable[[], object]
    twin: Callable[[], object]
    torch_way: Callable[[], object]
    written: Sequence[Tensor]
    plain_name: str = ""
    plain: Callable[[], object] | None = None

    def check(self) -> None:
        """Raise unless kernel and twin write the same bits, and report the same.

        Raises:
            RuntimeError: They do not.
        """
        before = [tensor.clone() for tensor in self.written]
        report = self.kernel()
        found = [tensor.clone() for tensor in self.written]
        for tensor, initial in zip(self.written, before, strict=True):
            tensor.copy_(initial)
        expected_report = self.twin()
        same = all(map(same_bits, found, self.written))
        if isinstance(report, Tensor) and isinstance(expected_report, Tensor):
            same = same and torch.equal(report, expected_report)
        if not same:
            msg = f"check: expected the twin's bits of {self.op}, {self.shape}, got others."
            raise RuntimeError(msg)


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Compare bit for bit, NaN and -0 included."""
    return torch.equal(left.view(torch.uint8), right.view(torch.uint8))
