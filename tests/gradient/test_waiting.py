"""What hooks do asks no device for a number: on a GPU that would stop backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.gradient.exchange import Step
from horovod_sylvie.gradient.selected_exchange import SelectedExchange
from horovod_sylvie.ops.select_report import SelectValues
from tests.gradient.training import exchange_of, loss_of, make_model, on_ranks, top_k, wrap


class NoNumbers(TorchDispatchMode):
    """Refuses what turns an element of a tensor into a Python number, in the ops too."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = str(func)
        assert "_local_scalar_dense" not in name, "a number of a tensor was read"
        assert "nonzero" not in name, "a shape that depends on numbers was asked for"
        return func(*args, **kwargs or {})


def test_mode_finds_what_waits() -> None:
    for read in (int, bool, float):
        with NoNumbers(), pytest.raises(AssertionError, match="was read"):
            read(torch.ones(()))


@pytest.mark.parametrize("exchange", ["allgather", "two-phase"])
@pytest.mark.parametrize("momentum", ["post", "dgc"])
def test_start_of_an_exchange_reads_no_number(
    monkeypatch: pytest.MonkeyPatch, momentum: str, exchange: str
) -> None:
    monkeypatch.setattr(SelectValues, "is_at_hand", False)  # as on a GPU

    def body(comm: LoopbackCommunicator) -> int:
        model: nn.Module = make_model()
        optimizer = wrap(model, comm, compression=top_k(exchange=exchange), momentum=momentum)
        loss_of(model, 0, comm.rank).backward()
        optimizer.step()  # the first step also agrees on the plan
        loss_of(model, 1, comm.rank).backward()
        optimizer.synchronize()
        exchanges = [
            each for each in exchange_of(optimizer).exchanges if isinstance(each, SelectedExchange)
        ]
        for each in exchanges:
            with NoNumbers():
                each.start(Step(1))
            each.revert()
        return len(exchanges)

    assert on_ranks(2, body) == [3, 3]
