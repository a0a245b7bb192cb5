"""Gradients that selecting has to get right, and the calls that the tests of the ops compare."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from horovod_sylvie.ops import top_k_kernels, top_k_reference
from horovod_sylvie.ops.native import native_or_none
from horovod_sylvie.ops.selection import Selection
from horovod_sylvie.ops.top_k import section_bytes

SIZES = (1, 2, 7, 65535, 65536, 65537, 200_000)
GRAD_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
VALUE_DTYPES = (torch.float32, torch.bfloat16)
DISTRIBUTIONS = (
    "normal",
    "constant",
    "zero",
    "one huge",
    "lognormal",
    "cauchy",
    "ascending",
    "descending",
    "sparse",
    "denormal",
    "few values",
    "largest",
    "nonfinite",
)


class Outcome(NamedTuple):
    """Everything that a selection writes and returns."""

    report: tuple[int, int]
    section: Tensor
    accumulated: Tensor


def gradient(distribution: str, num_elements: int) -> Tensor:
    """Make a gradient. [D], float32."""
    normal = torch.randn(num_elements)
    place = torch.arange(num_elements)
    if distribution == "one huge":
        normal[num_elements // 2] = 1e30
    if distribution == "nonfinite":
        normal[place % 97 == 5] = float("nan")
        normal[place % 89 == 0] = float("-inf")
    return {
        "constant": torch.full((num_elements,), -1.25),
        "zero": torch.zeros(num_elements),
        "lognormal": normal.sign() * (3.0 * torch.randn(num_elements)).exp(),
        "cauchy": normal / torch.randn(num_elements),
        "ascending": place.float(),
        "descending": -place.flip(0).float(),
        "sparse": normal * (place % 1000 == 1),
        "denormal": normal * 1e-42,
        "few values": torch.randint(-3, 4, (num_elements,)).float(),
        "largest": normal.sign() * 3.4028234e38 * torch.rand(num_elements).sqrt(),
    }.get(distribution, normal)


def counts_of(num_elements: int) -> list[int]:
    """Return the k that are worth a test."""
    wanted = {1, 2, num_elements // 100, num_elements // 2, num_elements - 1, num_elements}
    return sorted(k for k in wanted if 1 <= k <= num_elements)


def select_twin(
    grad: Tensor | None,
    residual: Tensor,
    k: int,
    value_dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
) -> Outcome:
    """Select with the plain-PyTorch twin, into memory that is not zero before."""
    accumulated = torch.full_like(residual, 7.0)
    nbytes = section_bytes(residual.numel(), k, value_dtype)
    section = torch.full((nbytes,), 0xA5, dtype=torch.uint8)
    report = top_k_reference.select_top_k(
        grad,
        residual,
        k=k,
        scale=scale,
        value_dtype=value_dtype,
        accumulated=accumulated,
        section=section,
    )
    return Outcome(report, section, accumulated)


def select_kernel(
    grad: Tensor | None,
    residual: Tensor,
    k: int,
    value_dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
    *,
    hint: int = 0,
    in_place: bool = False,
    native: Any = None,
    **options: Any,
) -> Outcome:
    """Select with a kernel, into memory that is not zero before."""
    residual = residual.clone()
    accumulated = residual if in_place else torch.full_like(residual, 9.0)
    nbytes = section_bytes(residual.numel(), k, value_dtype)
    section = torch.full((nbytes,), 0x5A, dtype=torch.uint8)
    selection = Selection(
        grad, residual, (k,), scale, value_dtype, (hint,), accumulated, section[None], 0
    )
    report = top_k_kernels.select(native or native_or_none(), [selection], **options)
    return Outcome(tuple(report[0].tolist()), section, accumulated)


def same(left: Outcome, right: Outcome) -> bool:
    """Compare bit for bit."""
    return (
        left.report == right.report
        and torch.equal(left.section, right.section)
        and torch.equal(left.accumulated.view(torch.int32), right.accumulated.view(torch.int32))
    )
