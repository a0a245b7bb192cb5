"""The Horovod communicator before any rank is started; tests/launched has the rest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("horovod", reason="needs Horovod: python -m horovod_sylvie install-horovod")

from horovod_sylvie.comm.adopted import AdoptedCommunicator
from horovod_sylvie.comm.errors import CommunicationError
from horovod_sylvie.comm.horovod import HorovodCommunicator
from horovod_sylvie.comm.horovod_build import require_horovod
from horovod_sylvie.comm.staged import StagedCommunicator


def test_communicator_before_init_says_to_call_it() -> None:
    with pytest.raises(RuntimeError, match=r"Horovod is not initialised\. Call hvd\.init\(\) fir"):
        HorovodCommunicator()


class ProcessSet:
    """Stands for `hvd.global_process_set` of a job of two ranks."""

    process_set_id = 0

    def __init__(self) -> None:
        self.num_ranks = 2

    def included(self) -> bool:
        return True

    def rank(self) -> int:
        return 1

    def size(self) -> int:
        return self.num_ranks


@pytest.fixture
def horovod(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands for `horovod.torch` in a job whose peer has ended."""
    internal_error = require_horovod().mpi_ops.HorovodInternalError

    def refuse(*_: Any, **__: Any) -> int:
        stand_in.num_submitted += 1
        raise internal_error("Horovod has been shut down.")

    stand_in = SimpleNamespace(
        is_initialized=lambda: True,
        rank=lambda: 1,
        global_process_set=ProcessSet(),
        allgather_async=refuse,
        num_submitted=0,
    )
    monkeypatch.setattr("horovod_sylvie.comm.horovod_operations.require_horovod", lambda: stand_in)
    return stand_in


def test_submission_that_horovod_refuses_is_a_failure_and_the_last(horovod: Any) -> None:
    comm = HorovodCommunicator()
    with pytest.raises(
        CommunicationError, match="rank 1: 'x' .allgather. failed: Horovod has been"
    ):
        comm.allgather(torch.ones(1), name="x")
    with pytest.raises(CommunicationError, match="cannot submit 'y': communication failed before"):
        comm.allgather(torch.ones(1), name="y")
    assert horovod.num_submitted == 1


def test_refused_submission_makes_elastic_start_again(horovod: Any) -> None:
    internal_error = require_horovod().mpi_ops.HorovodInternalError
    with pytest.raises(internal_error):
        HorovodCommunicator().allgather(torch.ones(1), name="x")


def test_ranks_changed_when_the_job_has_another_size(horovod: Any) -> None:
    comm = HorovodCommunicator()
    assert not comm.ranks_changed()
    horovod.global_process_set.num_ranks = 3
    assert comm.ranks_changed()
    assert not HorovodCommunicator().ranks_changed()


def test_gpu_tensors_go_to_nccl_as_they_are_and_by_the_host_without(
    horovod: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {}
    for num_built in (0, 21803):  # as Horovod says it: no NCCL, or its version
        horovod.nccl_built = lambda num_built=num_built: num_built
        monkeypatch.setattr("horovod_sylvie.comm.horovod_build.require_horovod", lambda: horovod)
        chosen[num_built] = type(HorovodCommunicator()._inner)
    assert chosen == {0: StagedCommunicator, 21803: AdoptedCommunicator}
