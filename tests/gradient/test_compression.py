"""What `compression=` may be, and what is refused."""

from __future__ import annotations

import pytest
import torch

import horovod_sylvie as hvs
from horovod_sylvie.gradient.compression import Compressor, check_compression


def test_choices_of_horovods_interface_are_compressors() -> None:
    gradient = torch.tensor([1.0, 1e-9, -3.0])
    for choice in (hvs.Compression.none, hvs.Compression.fp16):
        assert isinstance(choice, Compressor)
        sent, ctx = choice.compress(gradient)
        got = choice.decompress(sent, ctx)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, gradient, rtol=1e-3, atol=1e-7)
    assert hvs.Compression.none.compress(gradient)[0] is gradient
    assert hvs.Compression.fp16.compress(gradient)[0].dtype == torch.float16


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"value_dtype": torch.float16}, ValueError, "for 'value_dtype', got torch.float16."),
        ({"value_dtype": "bf16"}, ValueError, "or torch.float32 for 'value_dtype', got 'bf16'."),
        ({"min_elements": -1}, ValueError, "number of elements from 0 for 'min_elements', got -1."),
        ({"min_elements": True}, ValueError, "for 'min_elements', got True."),
        ({"warmup": 3}, TypeError, "expected an hvs.Warmup or None for 'warmup', got 3."),
        ({"residual_units": "lr"}, ValueError, "'learning_rate' for 'residual_units', got 'lr'."),
    ],
)
def test_option_of_top_k_out_of_range_raises(options, error, text: str) -> None:
    with pytest.raises(error, match=text):
        hvs.Compression.topk(0.1, **options)


@pytest.mark.parametrize("compression", [None, "topk", 0.01, hvs.Compression, hvs.Compression.topk])
def test_anything_else_raises(compression: object) -> None:
    with pytest.raises(TypeError, match=r"DistributedOptimizer: expected hvs.Compression.none, "):
        check_compression("DistributedOptimizer", compression)
