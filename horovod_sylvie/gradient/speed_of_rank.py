"""How fast this rank selects, decodes and copies: measured once, on a layer of typical size.

Shapes: D elements of the layer that is measured, K selected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median
from typing import Final

import torch

from ..device.clock import clock_of, settle
from ..ops.top_k import add_selected, section_bytes, select_top_k
from ..planning.layers import BESIDE_ELEMENTS, ComputeModel

_NUM_ELEMENTS: Final = 1 << 20
_FEW: Final = _NUM_ELEMENTS // 1000
_MANY: Final = _NUM_ELEMENTS // 50
_ROUNDS: Final = 5
_CPU: Final = torch.device("cpu")


def measure_speed(device: torch.device = _CPU, *, forward_s: float = 0.0) -> ComputeModel:
    """Measure the costs that a plan needs; about 0.1 s.

    Args:
        device: Where gradients are.
        forward_s: Forward and the optimizer's step, which only the caller knows.
    """
    few_s, few_decode_s = _selection_s(_FEW, device)
    many_s, many_decode_s = _selection_s(_MANY, device)
    per_selected = max(0.0, (many_s - few_s) / (_MANY - _FEW))
    per_decoded = max(0.0, (many_decode_s - few_decode_s) / (_MANY - _FEW))
    source = torch.ones(_NUM_ELEMENTS, device=device)
    target = torch.empty_like(source)
    return ComputeModel(
        forward_s=forward_s,
        select_s_per_element=max(0.0, few_s - _FEW * per_selected) / _NUM_ELEMENTS,
        select_s_per_selected=per_selected,
        decode_s_per_element=max(0.0, few_decode_s - _FEW * per_decoded) / _NUM_ELEMENTS,
        decode_s_per_selected=per_decoded,
        copy_s_per_element=_median_s(lambda: target.copy_(source), device) / _NUM_ELEMENTS,
        beside_elements=BESIDE_ELEMENTS if device.type == "cpu" else math.inf,
    )


def _selection_s(k: int, device: torch.device) -> tuple[float, float]:
    """Return the seconds of selecting K elements of D, and of decoding them."""
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(_NUM_ELEMENTS, generator=generator).to(device)
    residual = torch.zeros(_NUM_ELEMENTS, device=device)
    nbytes = section_bytes(_NUM_ELEMENTS, k, torch.bfloat16)
    section = torch.zeros(nbytes, dtype=torch.uint8, device=device)
    hint = 0

    def select() -> None:
        nonlocal hint
        report = select_top_k(
            gradient,
            residual,
            k=k,
            value_dtype=torch.bfloat16,
            hint=hint,
            accumulated=residual,
            section=section,
        )
        hint = report.hint

    out = torch.empty(_NUM_ELEMENTS, device=device)
    select_s = _median_s(select, device)
    decode_s = _median_s(
        lambda: add_selected(
            section[None],
            offset=0,
            num_elements=_NUM_ELEMENTS,
            k=k,
            value_dtype=torch.bfloat16,
            scale=1.0,
            out=out,
        ),
        device,
    )
    return select_s, decode_s


def _median_s(work: Callable[[], object], device: torch.device) -> float:
    clock = clock_of([device])
    times = []
    for _ in range(_ROUNDS + 1):
        started = clock.mark()
        work()
        ended = clock.mark()
        settle(ended)
        times.append(ended.seconds_after(started))
    return median(times[1:])
