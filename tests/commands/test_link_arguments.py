"""A link that was measured between some ranks, for other numbers of them."""

from __future__ import annotations

import pytest

from horovod_sylvie.commands.link_arguments import MeasuredLink
from horovod_sylvie.planning.link_model import LinearCost, LinkModel, model_of_link

FREE = LinearCost(0.0, 0.0)


def test_measured_ranks_get_what_was_measured() -> None:
    model = LinkModel(3, LinearCost(0.1, 0.2), LinearCost(0.3, 0.4), LinearCost(0.5, 0.6))
    assert MeasuredLink(0, model, 1e-5).between(3) is model


def test_other_ranks_get_rings_of_the_same_rate_and_start() -> None:
    link = MeasuredLink(0, model_of_link(4, 1e9, 1e-5, start_s=1e-3), 1e-5)
    expected = model_of_link(16, 1e9, 1e-5, start_s=1e-3)
    found = link.between(16)
    for name in ("allreduce", "allgather", "alltoall"):
        cost, wanted = getattr(found, name), getattr(expected, name)
        assert (cost.alpha_s, cost.beta_s_per_byte) == pytest.approx(
            (wanted.alpha_s, wanted.beta_s_per_byte)
        )


def test_link_whose_bytes_cost_nothing_is_very_fast() -> None:
    link = MeasuredLink(0, LinkModel(2, FREE, FREE, FREE), 1e-5)
    assert link.between(4).allgather.beta_s_per_byte == pytest.approx(3e-12)
