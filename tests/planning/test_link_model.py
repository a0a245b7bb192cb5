"""The link model: ring arithmetic by hand, and a fit that stragglers do not bend."""

from __future__ import annotations

import pytest

from horovod_sylvie.planning.link_model import LinearCost, fit_cost, model_of_link


def test_model_of_a_link_follows_ring_arithmetic() -> None:
    model = model_of_link(4, rate_bits_per_s=8e6, latency_s=1e-3, start_s=0.01)  # 1 us per byte
    assert model.allreduce.seconds(0) == pytest.approx(0.01 + 6 * 1e-3)
    assert model.allreduce.beta_s_per_byte == pytest.approx(1.5e-6)
    assert model.allgather.seconds(1000) == pytest.approx(0.01 + 3 * 1e-3 + 3 * 1000 * 1e-6)
    assert model.alltoall.seconds(1000) == pytest.approx(0.01 + 3 * 1e-3 + 750 * 1e-6)


def test_fit_of_exact_lines_returns_them() -> None:
    cost = LinearCost(2e-3, 3e-8)
    fitted = fit_cost([(n, cost.seconds(n)) for n in (0, 1000, 50_000, 1_000_000)])
    assert fitted.alpha_s == pytest.approx(cost.alpha_s)
    assert fitted.beta_s_per_byte == pytest.approx(cost.beta_s_per_byte)


def test_fit_with_stragglers_ignores_them() -> None:
    cost = LinearCost(1e-3, 1e-8)
    samples = [(n, cost.seconds(n)) for n in (1000, 100_000, 1_000_000) for _ in range(6)]
    samples += [(1000, 0.5), (100_000, 0.9), (1_000_000, 0.7)]
    fitted = fit_cost(samples)
    assert fitted.alpha_s == pytest.approx(cost.alpha_s)
    assert fitted.beta_s_per_byte == pytest.approx(cost.beta_s_per_byte)


def test_fit_of_falling_times_has_no_negative_cost() -> None:
    fitted = fit_cost([(0, 2e-3), (1000, 1e-3)])
    assert fitted.beta_s_per_byte == 0.0
    assert fitted.alpha_s > 0.0


def test_fit_of_one_size_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="at least two sizes for 'samples', got 1"):
        fit_cost([(1000, 1e-3), (1000, 2e-3)])
