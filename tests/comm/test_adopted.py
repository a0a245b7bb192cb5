"""The communicator for a Horovod that moves device tensors itself."""

from __future__ import annotations

import pytest
import torch

from horovod_sylvie.comm.adopted import AdoptedCommunicator
from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from tests.comm.test_staged import KINDS, submit
from tests.device.fake_streams import FakeStreams


@pytest.mark.parametrize("kind", KINDS)
def test_result_is_given_to_the_stream_that_waits(kind: str) -> None:
    def body(comm: LoopbackCommunicator) -> list[float]:
        streams = FakeStreams()
        handle = submit(AdoptedCommunicator(comm, streams), kind, torch.ones(2), "x")
        assert handle.poll() in {True, False} and streams.adopted == []
        result = handle.wait()
        assert [each.data_ptr() for each in streams.adopted] == [result.data_ptr()]
        return [float(each) for each in result]

    plain = run_loopback(2, lambda comm: submit(comm, kind, torch.ones(2), "x").wait().tolist())
    assert run_loopback(2, body) == plain


def test_host_tensors_are_nobody_s_business() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        streams = FakeStreams(is_held=lambda tensor: False)
        assert AdoptedCommunicator(comm, streams).allreduce(torch.ones(1), name="x").wait() == 1
        assert streams.adopted == []

    run_loopback(1, body)
