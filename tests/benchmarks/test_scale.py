"""Predictions of scale: the published sizes, sane shapes, and what was measured beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the extra [examples]")

import scale
from scale import RANKS, Assumptions, epochs_of, halo_per_node, layers_of, main, steps_of
from scale_models import GRAPHS, MODELS, ScaleGraph

ASSUMED = Assumptions(1e13, 9e11, 5e-5, 1e-3, 0.5)


@pytest.mark.parametrize(
    ("name", "num_elements", "macs"),
    [
        ("resnet50", 25_557_032, 4.09e9),
        ("vgg16", 138_357_544, 15.47e9),
        ("bert", 109_482_240, 128 * 85e6),
    ],
)
def test_models_have_their_published_size(name: str, num_elements: int, macs: float) -> None:
    assert MODELS[name].num_elements == num_elements
    assert MODELS[name].macs == pytest.approx(macs, rel=0.01)


def test_backward_takes_two_thirds_of_a_steps_operations() -> None:
    model = MODELS["vgg16"]
    layers, compute = layers_of(model, ASSUMED)
    backward_s = sum(layer.backward_s for layer in layers)
    assert backward_s == pytest.approx(2 * compute.forward_s)
    assert 3 * compute.forward_s == pytest.approx(6 * model.macs * model.batch / 1e13)
    assert layers[0].name == "head.3.bias"
    assert not layers[0].can_be_sparse
    assert layers[1].can_be_sparse


def test_steps_are_at_least_compute_and_the_plan_is_the_best_way() -> None:
    found = steps_of(MODELS["resnet50"], "10gbit", ASSUMED)
    for ranks in RANKS:
        steps = {way: by_ranks[ranks] for way, by_ranks in found["steps_s"].items()}
        assert min(steps.values()) >= found["compute_s"]
        assert steps["planned"] <= 1.01 * min(steps.values())
    dense = found["steps_s"]["dense float32"]
    assert dense[4] < dense[64] < dense[1024]


def test_halo_of_random_owners_is_that_of_drawing_them() -> None:
    graph = ScaleGraph("", 100, 300, 8, 8, 2, 2)
    assert halo_per_node(graph, 2) == pytest.approx(1 - 0.5**3)
    assert halo_per_node(graph, 1000) == pytest.approx(3, rel=0.01)


def test_epochs_are_compute_and_what_bytes_take() -> None:
    fast = Assumptions(1e13, 9e11, 0.0, 0.0, 0.5)
    found = epochs_of(GRAPHS["products"], "100mbit", fast)
    for ranks in RANKS:
        full, half, bit, pipelined = (each[ranks] for each in found["epochs_s"].values())
        assert found["compute_s"][ranks] <= pipelined < bit < half < full
    exchange_s = [
        found["epochs_s"][way][64] - found["compute_s"][64] for way in ("full precision", "one bit")
    ]
    # 512 bytes a row against 20, and coding takes the same: on this link it is little
    assert exchange_s[0] / exchange_s[1] == pytest.approx(512 / 20, rel=0.05)


def test_measured_points_are_those_of_the_perceptron() -> None:
    results = json.loads((scale.RESULTS / "step.json").read_text())
    measured = scale.measured_steps(results)
    assert set(measured["LAGS"]) == {2, 4}
    predicted = scale.predicted_perceptron(results)
    assert set(predicted["planned"]) == {2, *RANKS}
    assert all(ratio >= 1 for ratios in predicted.values() for ratio in ratios.values())


def test_everything_is_kept_printed_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "RANKS", (4, 16))
    monkeypatch.setattr("scale_report.TABLE_RANKS", (4, 16))
    file, picture = tmp_path / "scale.json", tmp_path / "scale.png"
    main(["--json", str(file), "--plot", str(picture), "--rates", "10gbit", "--tflops", "20"])
    document: dict[str, Any] = json.loads(file.read_text())
    assert document["assumptions"]["flops"] == 2e13
    assert list(document["models"]) == list(MODELS)
    assert list(document["graphs"]) == list(GRAPHS)
    out = capsys.readouterr().out
    assert out.count("| ResNet-50, 10gbit |") == 5
    assert out.count("| ogbn-papers100M, 10gbit |") == 4
    assert picture.stat().st_size > 10_000


def test_rate_without_a_unit_ends_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--json", str(tmp_path / "scale.json"), "--rates", "10"])
    assert "expected rates such as 10gbit or 100mbit, got '10'" in capsys.readouterr().err
