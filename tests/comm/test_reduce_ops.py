"""Reductions by Horovod's constants and by name."""

from __future__ import annotations

import pytest

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")
import horovod.torch as hvd

from horovod_sylvie.comm.reduce_ops import reduce_op_name

NAMES = ("Average", "Sum", "Adasum", "Min", "Max", "Product")


@pytest.mark.parametrize("name", NAMES)
def test_reduce_op_by_constant_or_name_is_named(name: str) -> None:
    assert reduce_op_name(getattr(hvd, name)) == name
    assert reduce_op_name(name) == name


@pytest.mark.parametrize("op", ["sum", "", 99, -1, None, 1.0, True, len])
def test_reduce_op_that_is_neither_raises(op: object) -> None:
    with pytest.raises(ValueError, match=r"expected hvd\.Average, hvd\.Sum, 'Average' or 'Sum' fo"):
        reduce_op_name(op)


def test_reduce_op_by_name_needs_no_horovod(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ImportError("Horovod is not installed")

    monkeypatch.setattr("horovod_sylvie.comm.reduce_ops.require_horovod", fail)
    assert reduce_op_name("Sum") == "Sum"
    with pytest.raises(ImportError, match="not installed"):
        reduce_op_name(hvd.Sum)
