"""Predicted times of steps and epochs from 4 to 1024 ranks, for published models and graphs.

    python benchmarks/scale.py --json benchmarks/results/scale.json --plot docs/images/scale.png

Nothing is timed here. The planner's model (`horovod_sylvie.planning`) is given each architecture,
links that are named, and a device that computes, reads and writes at given rates; so every figure
is a prediction, and moves with these assumptions:

    --tflops         multiply-adds and additions that a rank's device sustains, in 1e12 a second
    --memory-gbs     what it reads and writes, in 1e9 bytes a second: selecting reads and writes 17
                     bytes an element, coding a row's element 4, aggregating 8 for each message
    --latency-us     of one hop of a ring; --start-ms, what Horovod adds to each collective

A step's backward takes two thirds of its operations, each layer its share. Links carry --rates both
ways. The halo of a published graph depends on its partition, which is not published: what is
assumed is --halo-share of what owners drawn at random would give it, whose expectation for the mean
degree is an upper bound.

The first panel has steps that were measured, in `results/step.json`, beside what the model says
of them: the only check of it that there is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from launched_jobs import keep
from scale_models import GRAPHS, MODELS, ScaleGraph, ScaleModel
from scale_report import draw, table
from step_models import make_model

from horovod_sylvie.halo.message import header_rows
from horovod_sylvie.ops.pack_rows import packed_row_bytes
from horovod_sylvie.planning.forecast import forecast
from horovod_sylvie.planning.halo_forecast import HaloRows, RowFormat, forecast_epoch
from horovod_sylvie.planning.layers import BESIDE_ELEMENTS, ComputeModel, LayerProfile
from horovod_sylvie.planning.link_model import LinkModel, model_of_link

RESULTS: Final = Path(__file__).with_name("results")
RANKS: Final = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
_UNITS: Final = {"mbit": 1e6, "gbit": 1e9}
_SELECT_BYTES, _DECODE_BYTES, _COPY_BYTES = 17, 4, 8
_MEASURED_RATE: Final = "1gbit"


@dataclass(frozen=True)
class Assumptions:
    """What devices and links are assumed to do.

    Attributes:
        flops: Operations of a device, a second.
        memory_bytes_per_s: What it reads and writes.
        latency_s: Of one hop of a ring.
        start_s: What each collective costs beside.
        halo_share: Of the halo that random owners would give.
    """

    flops: float
    memory_bytes_per_s: float
    latency_s: float
    start_s: float
    halo_share: float

    def link(self, num_ranks: int, rate: str) -> LinkModel:
        """Return what collectives cost between P ranks, at a rate such as "10gbit"."""
        bits_per_s = float(rate[:-4]) * _UNITS[rate[-4:]]
        return model_of_link(num_ranks, bits_per_s, self.latency_s, start_s=self.start_s)

    def seconds_of(self, num_bytes: float) -> float:
        """Return how long a device reads or writes so many bytes."""
        return num_bytes / self.memory_bytes_per_s


def layers_of(model: ScaleModel, assumed: Assumptions) -> tuple[list[LayerProfile], ComputeModel]:
    """Return a model as the planner takes it: in the order of backward, with times."""
    operations = 2 * model.batch / assumed.flops
    layers = [
        LayerProfile(each.name, each.num_elements, 2 * each.macs * operations, not each.is_vector)
        for each in reversed(model.parameters)
    ]
    compute = ComputeModel(
        forward_s=model.macs * operations,
        select_s_per_element=assumed.seconds_of(_SELECT_BYTES),
        select_s_per_selected=0.0,
        decode_s_per_element=assumed.seconds_of(_DECODE_BYTES),
        decode_s_per_selected=0.0,
        copy_s_per_element=assumed.seconds_of(_COPY_BYTES),
    )
    return layers, compute


def steps_of(model: ScaleModel, rate: str, assumed: Assumptions) -> dict[str, Any]:
    """Predict a model's steps for every number of ranks.

    Returns:
        Seconds of compute, and of a step by way and number of ranks.
    """
    layers, compute = layers_of(model, assumed)
    found = [forecast(layers, compute, assumed.link(ranks, rate)) for ranks in RANKS]
    return {
        "compute_s": found[0].compute_s,
        "steps_s": {
            way: {ranks: each.steps_s[way] for ranks, each in zip(RANKS, found, strict=True)}
            for way in found[0].steps_s
        },
    }


def halo_per_node(graph: ScaleGraph, num_ranks: int) -> float:
    """Return how many other ranks read a node of mean degree, if owners are drawn at random."""
    degree = graph.num_messages / graph.num_nodes
    return (num_ranks - 1) * (1 - (1 - 1 / num_ranks) ** degree)


def formats_of(assumed: Assumptions) -> tuple[RowFormat, ...]:
    """Return the ways in which rows travel, with a device's speed."""
    element_s = assumed.seconds_of(4)

    def packed(width: int) -> int:
        return packed_row_bytes(width, 1)

    return (
        RowFormat("full precision", lambda width: 4 * width, header_rows, element_s, element_s),
        RowFormat("half", lambda width: 2 * width, header_rows, element_s, element_s),
        RowFormat("one bit", packed, header_rows, element_s, element_s),
    )


def epochs_of(graph: ScaleGraph, rate: str, assumed: Assumptions) -> dict[str, Any]:
    """Predict a graph's epochs for every number of ranks, the graph cut evenly.

    Returns:
        Seconds of compute by number of ranks, and of an epoch by way and number of ranks.
    """
    epochs: dict[str, dict[int, float]] = {}
    compute: dict[int, float] = {}
    for ranks in RANKS:
        compute[ranks] = epoch_compute_s(graph, assumed) / ranks
        rows = round(assumed.halo_share * halo_per_node(graph, ranks) * graph.num_nodes / ranks)
        halo = HaloRows((rows,) * ranks, (rows,) * ranks)
        for each in formats_of(assumed):
            found = forecast_epoch(halo, graph.widths[1:-1], each, assumed.link(ranks, rate))
            epochs.setdefault(each.name, {})[ranks] = compute[ranks] + found.seconds
        # At best: rows of the last epoch are used while these travel
        pipelined = max(compute[ranks], found.seconds)
        epochs.setdefault("one bit, pipelined", {})[ranks] = pipelined
    return {"compute_s": compute, "epochs_s": epochs}


def epoch_compute_s(graph: ScaleGraph, assumed: Assumptions) -> float:
    """Return the seconds of an epoch on one device: GraphSAGE, forward and backward."""
    seconds = 0.0
    for inputs, outputs in zip(graph.widths, graph.widths[1:], strict=False):
        macs = 2 * graph.num_nodes * inputs * outputs  # its own row's weight, and its neighbours'
        seconds += 3 * 2 * macs / assumed.flops
        seconds += 2 * assumed.seconds_of(8 * graph.num_messages * inputs)
    return seconds


def perceptron_jobs(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the jobs of the perceptron, emulated, at one rate, of what step.py wrote."""
    wanted = ("mlp", "emulated", _MEASURED_RATE)
    jobs = results["jobs"].values()
    return [each for each in jobs if (each["model"], each["compute"], each["rate"]) == wanted]


def measured_steps(results: Mapping[str, Any]) -> dict[str, dict[int, float]]:
    """Return the measured steps of the perceptron, over the step without exchange.

    Args:
        results: What step.py wrote.

    Returns:
        Ratios by way and number of ranks; "predicted" are what the plan said of LAGS.
    """
    found: dict[str, dict[int, float]] = {}
    for job in perceptron_jobs(results):
        base_s = job["ways"]["no exchange"]["step_s"]
        for way in ("dense float32", "dense float16", "top-k 1 %", "top-k 0.1 %", "LAGS"):
            found.setdefault(way, {})[job["hosts"]] = job["ways"][way]["step_s"] / base_s
        predicted_s = job["ways"]["LAGS"]["predicted_step_s"]
        found.setdefault("predicted", {})[job["hosts"]] = predicted_s / base_s
    return found


def predicted_perceptron(results: Mapping[str, Any]) -> dict[str, dict[int, float]]:
    """Predict the perceptron that was measured, over its compute, for every number of ranks.

    Its layers share the backward of the job with most hosts by their elements. Selection and
    messages take what they take on a CPU core, by the planner's defaults.
    """
    job = max(perceptron_jobs(results), key=lambda each: int(each["hosts"]))
    times = job["emulated_s"]
    share = times["backward"] / job["num_parameters"]
    layers = [
        LayerProfile(name, value.numel(), share * value.numel(), value.dim() > 1)
        for name, value in reversed(list(make_model("mlp").named_parameters()))
    ]
    # These were hosts without a GPU
    compute = ComputeModel(forward_s=times["forward"], beside_elements=BESIDE_ELEMENTS)
    found: dict[str, dict[int, float]] = {}
    for ranks in (2, *RANKS):
        link = model_of_link(ranks, 1e9, 50e-6, start_s=1e-3)
        each = forecast(layers, compute, link)
        for way, seconds in each.steps_s.items():
            found.setdefault(way, {})[ranks] = seconds / each.compute_s
    return found


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--json", type=Path, required=True, help="where the predictions are kept")
    add("--plot", type=Path, help="draw them to this file")
    add("--rates", nargs="+", default=["1gbit", "10gbit", "25gbit"])
    add("--tflops", type=float, default=10.0)
    add("--memory-gbs", type=float, default=900.0)
    add("--latency-us", type=float, default=50.0)
    add("--start-ms", type=float, default=1.0)
    add("--halo-share", type=float, default=0.5)
    args = parser.parse_args(arguments)
    for rate in args.rates:
        if rate[-4:] not in _UNITS or not rate[:-4].isdigit():
            parser.error(f"--rates: expected rates such as 10gbit or 100mbit, got {rate!r}")
    return args


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict everything, print the tables, and keep it."""
    args = parse_arguments(arguments)
    assumed = Assumptions(
        1e12 * args.tflops,
        1e9 * args.memory_gbs,
        1e-6 * args.latency_us,
        1e-3 * args.start_ms,
        args.halo_share,
    )
    measured = json.loads((RESULTS / "step.json").read_text())
    document = {
        "assumptions": vars(assumed),
        "models": {
            name: {rate: steps_of(model, rate, assumed) for rate in args.rates}
            for name, model in MODELS.items()
        },
        "graphs": {
            name: {rate: epochs_of(graph, rate, assumed) for rate in args.rates}
            for name, graph in GRAPHS.items()
        },
        "perceptron": predicted_perceptron(measured),
        "measured": measured_steps(measured),
    }
    print(table(document))
    keep(document, args.json)
    if args.plot:
        draw(document, args.plot)


if __name__ == "__main__":
    main()
