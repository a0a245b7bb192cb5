"""The ops of gradients on a real GPU. Written without one: nothing of it has run yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

from horovod_sylvie.gradient.feedback import Feedback, commit_all
from horovod_sylvie.gradient.payload import Header, open_payload, receive_payloads, seal_rows
from horovod_sylvie.gradient.payload_layout import make_layout
from horovod_sylvie.ops.checksum import checksum_rows
from horovod_sylvie.ops.top_k import restore_selected
from horovod_sylvie.ops.top_k_many import (
    RankSections,
    Selection,
    ShareSections,
    add_many,
    clear_many,
    select_many,
)

from .row_cases import same_bits
from .shares_cases import OFFSET, blank_rows, ks_of
from .top_k_cases import DISTRIBUTIONS, GRAD_DTYPES, VALUE_DTYPES, gradient

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

GPU = torch.device("cuda", 0)
SIZES = ((1, 1), (70_001, 1), (20_000, 3), (3_000_001, 1), (150_000, 2), (4097, 1))


@contextmanager
def no_waiting() -> Iterator[None]:
    """Make whatever waits for the device an error, as far as torch knows of it."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def selections(distribution: str, density: float) -> list[Selection]:
    found = []
    for number, (size, shares) in enumerate(SIZES):
        ks, dtype = ks_of(size, shares, density), VALUE_DTYPES[number % 2]
        grad = gradient(distribution, size).to(GRAD_DTYPES[number % 3])
        found.append(
            Selection(
                grad,
                torch.randn(size),
                ks,
                0.3,
                dtype,
                [0] * shares,
                torch.empty(size),
                blank_rows(size, ks, dtype, 0xA5),
                OFFSET,
            )
        )
    return found


def on_gpu(each: Any) -> Any:
    """Copy the tensors of a dataclass to the GPU."""
    tensors = {
        name: value.to(GPU) for name, value in vars(each).items() if isinstance(value, torch.Tensor)
    }
    return replace(each, **tensors)


@pytest.mark.parametrize("density", [0.001, 0.01, 1.0])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_selections_write_the_bytes_of_the_cpu(distribution: str, density: float) -> None:
    here = selections(distribution, density)
    there = [on_gpu(each) for each in here]
    expected, report = select_many(here), select_many(there)
    for left, right, met, wanted in zip(there, here, report.each, expected.each, strict=True):
        assert torch.equal(left.rows.cpu(), right.rows)
        assert same_bits(left.accumulated.cpu(), right.accumulated)
        assert met.threshold_bits == wanted.threshold_bits
        assert met.num_nonfinite == wanted.num_nonfinite
    assert int(report.num_nonfinite) == expected.num_nonfinite


def test_sections_are_read_as_on_the_cpu() -> None:
    chosen = selections("cauchy", 0.02)
    select_many(chosen)
    for out_dtype in GRAD_DTYPES:
        here: list[Any] = []
        for each in chosen:
            shape = (OFFSET, each.ks, each.value_dtype)
            array = torch.full(each.residual.shape, 7.0, dtype=out_dtype)
            here.append(ShareSections(each.rows, *shape, array))
            if len(each.ks) == 1:
                rows = each.rows.repeat(70, 1)
                here.append(
                    RankSections(rows, OFFSET, each.ks[0], each.value_dtype, array.clone(), [3])
                )
        there = [on_gpu(each) for each in here]
        add_many(here, scale=0.3)
        add_many(there, scale=0.3)
        assert all(same_bits(a.array.cpu(), b.array) for a, b in zip(there, here, strict=True))
        here = [
            replace(each, array=torch.full(each.array.shape, 7.0))
            for each in here
            if isinstance(each, ShareSections)
        ]
        there = [on_gpu(each) for each in here]
        clear_many(here)
        clear_many(there)
        assert all(same_bits(a.array.cpu(), b.array) for a, b in zip(there, here, strict=True))


def test_restoring_and_checksums_are_as_on_the_cpu() -> None:
    chosen = selections("normal", 0.01)[3]
    select_many([chosen])
    section = chosen.rows[0, OFFSET:-8]
    results = []
    for device in (torch.device("cpu"), GPU):
        restored = chosen.accumulated.to(device)
        restore_selected(
            section.to(device),
            num_elements=len(restored),
            k=chosen.ks[0],
            value_dtype=chosen.value_dtype,
            residual=restored,
        )
        rows = chosen.rows.to(device)[:, : chosen.rows.shape[1] // 8 * 8].contiguous()
        results.append((restored.cpu(), checksum_rows(rows).cpu()))
    assert same_bits(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_what_a_hook_does_waits_for_nothing(momentum: float | None) -> None:
    sizes, value_dtype = (5000, 70_001), torch.bfloat16
    ks = [size // 100 for size in sizes]
    layout = make_layout(sizes, ks, value_dtype, description="")
    headers = []
    for device in (torch.device("cpu"), GPU):
        torch.manual_seed(0)
        payload = torch.zeros(1, layout.nbytes, dtype=torch.uint8, device=device)
        pending = [Feedback(size, device, momentum=momentum) for size in sizes]
        gradients = [gradient("nonfinite", size).to(device) for size in sizes]
        with no_waiting():
            report = select_many(
                [
                    feedback.prepare(
                        grad, ks=(k,), scale=0.5, rows=payload, offset=offset, dtype=value_dtype
                    )
                    for feedback, grad, k, offset in zip(
                        pending, gradients, ks, layout.offsets, strict=True
                    )
                ]
            )
            for feedback, met in zip(pending, report.each, strict=True):
                feedback.remember(met)
            seal_rows(payload, [layout], Header(report.num_nonfinite), step=3, rank=1)
        commit_all(pending)
        headers.append((payload.cpu(), [each.residual.cpu() for each in pending]))
    (expected, residuals), (sent, kept) = headers
    assert torch.equal(sent, expected)
    assert all(same_bits(left, right) for left, right in zip(kept, residuals, strict=True))
    received = receive_payloads(sent)[0]
    assert open_payload(received, layout, step=3, rank=1, group="g").num_nonfinite != 0
