"""Draw what the exchanges of this package gain over usual ones, from what was measured before.

    python benchmarks/speed_up.py docs/images/speed_up.png

Reads `results/step.json` and `results/epoch.json`; `step.py` and `epoch.py`
measured them. Bars are ratios of times of one job; the mark above a bar is the same job without
any exchange, which no exchange can beat.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from epoch_ways import FULL_PRECISION, NO_EXCHANGE, PLAIN
from matplotlib import pyplot

RESULTS: Final = Path(__file__).with_name("results")
NUM_HOSTS: Final = 4
COMPUTE: Final = "emulated"
RATES: Final = ("100mbit", "500mbit", "1gbit", "unlimited")
RATE_LABELS: Final = ("100 Mbit/s", "500 Mbit/s", "1 Gbit/s", "no limit\n(one machine)")
DENSE: Final = "Horovod dense"


class Bars(NamedTuple):
    """Bars of one colour, one for each rate.

    Attributes:
        label: What they show.
        speed_ups: How many times as fast as the usual way.
        limits: The same without any exchange.
    """

    label: str
    speed_ups: tuple[float, ...]
    limits: tuple[float, ...]


def select(results: dict[str, Any], **wanted: Any) -> dict[str, Any]:
    """Return the one job that has these properties, of four hosts with emulated compute.

    Args:
        results: What a benchmark wrote.
        wanted: Further properties by name.

    Raises:
        ValueError: There is none, or there are several.
    """
    wanted |= {"hosts": NUM_HOSTS, "compute": COMPUTE}
    found = [
        job
        for job in results["jobs"].values()
        if all(job[name] == value for name, value in wanted.items())
    ]
    if len(found) != 1:
        raise ValueError(f"select: expected one job with {wanted}, got {len(found)}.")
    job: dict[str, Any] = found[0]
    return job


def bars_of(label: str, jobs: Sequence[dict[str, Any]], way: str, usual: str, time: str) -> Bars:
    """Return the ratios of a usual way's times to another's.

    Args:
        label: What they show.
        jobs: One for each rate.
        way: The other way.
        usual: The usual way.
        time: Name of the time, "step_s" or "epoch_s".
    """

    def ratios(other: str) -> tuple[float, ...]:
        return tuple(job["ways"][usual][time] / job["ways"][other][time] for job in jobs)

    return Bars(label, ratios(way), ratios(NO_EXCHANGE))


def gradient_bars(results: dict[str, Any]) -> Iterator[Bars]:
    """Yield `Compression.lags()` over Horovod's optimizer, for each model."""
    for model, label in (
        ("mlp", "perceptron, 9.5 M"),
        ("lstm", "LSTM, 4.7 M"),
        ("resnet20", "ResNet-20, 0.27 M"),
    ):
        jobs = [select(results, model=model, rate=rate) for rate in RATES]
        yield bars_of(label, jobs, "LAGS", DENSE, "step_s")


def halo_bars(results: dict[str, Any]) -> Iterator[Bars]:
    """Yield ways of halo exchange over the plain one."""
    jobs = [select(results, model="sage", rate=rate) for rate in RATES]
    for way, label in (
        (FULL_PRECISION, "full precision, overlapped"),
        ("one bit", "one bit"),
        ("pipelined with top-k", "one bit, pipelined, gradients top-k 1 %"),
    ):
        yield bars_of(label, jobs, way, PLAIN, "epoch_s")


def draw_panel(panel: Any, groups: Sequence[Bars], colours: Sequence[str], title: str) -> None:
    """Draw bars side by side, a number for each, and a mark for what no exchange can beat.

    Args:
        panel: Axes of matplotlib.
        groups: Bars of one colour each.
        colours: One for each.
        title: Above the panel.
    """
    step = 0.84 / len(groups)
    highest = max(max(bars.limits + bars.speed_ups) for bars in groups)
    for number, (bars, colour) in enumerate(zip(groups, colours, strict=True)):
        shift = (number - (len(groups) - 1) / 2) * step
        places = [rate + shift for rate in range(len(RATES))]
        panel.bar(places, bars.speed_ups, 0.9 * step, color=colour, label=bars.label)
        for place, speed_up, limit in zip(places, bars.speed_ups, bars.limits, strict=True):
            panel.hlines(limit, place - 0.45 * step, place + 0.45 * step, "black", linewidth=1)
            # beneath the mark where there is room for it
            is_near = limit - speed_up < 0.09 * highest
            top = max(speed_up, limit) if is_near else speed_up
            text = {"color": colour, "weight": "bold", "fontsize": 9, "ha": "center"}
            panel.text(place, top + 0.012 * highest, f"{speed_up:.1f}", **text)
    panel.plot([], [], color="black", linewidth=1, label="without any exchange: the limit")
    panel.axhline(1.0, color="black", linewidth=0.6, linestyle=":")
    panel.set_xticks(range(len(RATES)), RATE_LABELS, fontsize=9)
    panel.set_title(title, fontsize=10)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize=9)


def draw(gradients: dict[str, Any], halos: dict[str, Any], picture: Path) -> None:
    """Draw both halves side by side.

    Args:
        gradients: What step.py wrote.
        halos: What epoch.py wrote.
        picture: File to write.
    """
    figure, panels = pyplot.subplots(1, 2, figsize=(11.5, 4.3), constrained_layout=True)
    draw_panel(
        panels[0],
        list(gradient_bars(gradients)),
        ("tab:green", "tab:blue", "dimgray"),
        "data parallel: a step with Compression.lags(),\ntimes as fast as hvd.DistributedOptimizer",
    )
    draw_panel(
        panels[1],
        list(halo_bars(halos)),
        ("dimgray", "tab:orange", "tab:red"),
        "full-graph GraphSAGE, 3 x 256: an epoch,\ntimes as fast as plain full precision",
    )
    figure.supxlabel(
        f"rate of each link; {NUM_HOSTS} hosts, emulated on a machine of two cores: namespaces "
        "with shaped links, layers that sleep for their measured times",
        fontsize=9,
    )
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


def main() -> None:
    """Read the figures, and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("picture", type=Path, help="where to draw it")
    args = parser.parse_args()
    gradients, halos = (
        json.loads((RESULTS / name).read_text()) for name in ("step.json", "epoch.json")
    )
    draw(gradients, halos, args.picture)


if __name__ == "__main__":
    main()
