"""What collectives take: probes that agree on all ranks, and exchanges that were waited for."""

from __future__ import annotations

import pytest
import torch

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.gradient.link_samples import LinkSamples, Seen, sample_of
from horovod_sylvie.planning.link_model import LinkModel
from tests.gradient.slow_link import LinkClock, SlowCommunicator
from tests.gradient.training import on_ranks

CPU = torch.device("cpu")
START_S, BYTE_S = 2e-3, 1e-7


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LinkClock:
    """The clock that the link and its samples share."""
    clock = LinkClock()
    monkeypatch.setattr("horovod_sylvie.gradient.link_samples.time", clock)
    return clock


@pytest.mark.parametrize("start_s", [START_S, 0.2])  # the latter between distant sites
def test_model_is_that_of_the_link_and_the_same_on_every_rank(
    clock: LinkClock, start_s: float
) -> None:
    def body(comm: LoopbackCommunicator) -> LinkModel:
        link = SlowCommunicator(comm, start_s=start_s, seconds_per_byte=BYTE_S, clock=clock)
        samples = LinkSamples(link, CPU)
        samples.calibrate()
        return samples.model()

    models = on_ranks(3, body)
    assert models[0].num_ranks == 3
    assert models == 3 * [models[0]]
    for cost in (models[0].allreduce, models[0].allgather, models[0].alltoall):
        assert cost.beta_s_per_byte == pytest.approx(BYTE_S, rel=0.01)
        assert cost.alpha_s == pytest.approx(start_s, rel=0.05)


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_change_of_the_link_is_believed_at_once(clock: LinkClock, factor: float) -> None:
    def body(comm: LoopbackCommunicator) -> LinkModel:
        link = SlowCommunicator(comm, start_s=START_S, seconds_per_byte=BYTE_S, clock=clock)
        samples = LinkSamples(link, CPU)
        samples.calibrate()
        samples.probe()
        comm.allreduce(torch.zeros(1), name="all have probed").wait()
        link.seconds_per_byte *= factor
        samples.probe()
        return samples.model()

    for model in on_ranks(2, body):
        assert model.allgather.beta_s_per_byte == pytest.approx(factor * BYTE_S, rel=0.01)


def test_exchange_counts_by_the_rank_that_waited_least_until_the_next_one(
    clock: LinkClock,
) -> None:
    def body(comm: LoopbackCommunicator) -> list[LinkModel]:
        link = SlowCommunicator(comm, start_s=START_S, seconds_per_byte=BYTE_S, clock=clock)
        samples = LinkSamples(link, CPU)
        samples.calibrate()
        models = []
        for seconds in (2.0, 4.0):
            samples.observe([("allgather", 10_000_000, seconds + comm.rank)])
            models.append(samples.model())
        return models

    for first, second in on_ranks(2, body):
        assert first.allgather.beta_s_per_byte == pytest.approx(2e-7, rel=0.1)
        assert second.allgather.beta_s_per_byte == pytest.approx(4e-7, rel=0.1)
        assert second.allreduce.beta_s_per_byte == pytest.approx(BYTE_S, rel=0.3)


def seen(collective: str, nbytes: int, submitted_s: float, completed_s: float | None) -> Seen:
    return Seen(collective, nbytes, submitted_s, completed_s)  # type: ignore[arg-type]


def test_exchanges_that_were_queued_behind_another_kind_are_a_sample_of_their_sum() -> None:
    step = [
        seen("allgather", 5, 0.0, None),
        seen("allgather", 7, 1.0, 3.0),
        seen("allreduce", 100, 1.5, 5.0),
        seen("allreduce", 200, 2.0, 5.1),
    ]
    assert sample_of(step) == ("allreduce", 300, pytest.approx(2.1))


@pytest.mark.parametrize(
    "step",
    [
        [],
        [seen("allgather", 5, 0.0, 1.0)],  # the link may have been busy before
        [seen("allgather", 5, 0.0, 1.0), seen("allgather", 5, 0.0, 1.1)],  # one message
        [seen("allgather", 5, 0.0, None), seen("allreduce", 5, 0.0, 1.1)],
        [seen("allgather", 5, 0.0, 1.0), seen("allreduce", 5, 0.5, None)],
        [seen("allgather", 5, 0.0, 1.0), seen("allreduce", 5, 1.1, 2.0)],  # not there yet
    ],
)
def test_other_exchanges_tell_nothing(step: list[Seen]) -> None:
    assert sample_of(step) is None
