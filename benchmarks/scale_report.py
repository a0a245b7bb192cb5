"""The tables and the picture of `scale.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from scale_models import GRAPHS, MODELS

TABLE_RANKS: Final = (4, 16, 64, 256, 1024)
_COLOURS: Final = ("dimgray", "darkgray", "tab:orange", "tab:blue", "tab:green")


def draw(document: Mapping[str, Any], picture: Path) -> None:
    """Draw all predictions over the number of ranks, and what was measured.

    Args:
        document: What `main` keeps.
        picture: File to write.
    """
    from matplotlib import pyplot

    rates = list(document["models"]["resnet50"])
    middle = rates[len(rates) // 2]
    figure, panels = pyplot.subplots(2, 4, figsize=(14, 6.6), layout="constrained")
    first = panels[0][0]
    for colour, (way, ratios) in zip(_COLOURS, document["perceptron"].items(), strict=True):
        points = sorted((int(ranks), ratio) for ranks, ratio in ratios.items())
        first.plot(*zip(*points, strict=True), color=colour, label=way)
        measured = document["measured"].get("LAGS" if way == "planned" else way, {})
        first.scatter([int(ranks) for ranks in measured], measured.values(), color=colour, s=25)
    first.set_title("perceptron, 9.5 M, at 1gbit\npoints: measured", fontsize=9)
    for panel, (name, by_rate) in zip(panels[0][1:], document["models"].items(), strict=True):
        found = by_rate[middle]
        for colour, (way, steps) in zip(_COLOURS, found["steps_s"].items(), strict=True):
            ratios = [seconds / found["compute_s"] for seconds in steps.values()]
            panel.plot([int(ranks) for ranks in steps], ratios, color=colour, label=way)
        label = f"{MODELS[name].label}, {MODELS[name].num_elements / 1e6:.0f} M"
        panel.set_title(f"{label}, at {middle}\npredicted", fontsize=9)
    for panel, (name, by_rate) in zip(panels[1][:3], document["graphs"].items(), strict=True):
        found = by_rate[middle]
        for colour, (way, epochs) in zip(_COLOURS, found["epochs_s"].items(), strict=False):
            panel.plot(
                [int(ranks) for ranks in epochs], list(epochs.values()), color=colour, label=way
            )
        compute = found["compute_s"]
        panel.plot(
            [int(ranks) for ranks in compute], list(compute.values()), "k:", label="compute alone"
        )
        panel.set_title(f"{GRAPHS[name].label}, at {middle}\npredicted", fontsize=9)
        panel.set_ylabel("seconds an epoch", fontsize=8)
    for panel in (*panels[0], *panels[1][:3]):
        panel.set_xscale("log", base=2)
        panel.set_xticks([4, 16, 64, 256, 1024], ["4", "16", "64", "256", "1024"])
        panel.minorticks_off()
        panel.set_yscale("log")
        panel.set_xlabel("ranks", fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    for panel in panels[0]:
        panel.set_ylabel("step / step without exchange", fontsize=8)
    panels[0][1].legend(frameon=False, fontsize=8)
    panels[1][0].legend(frameon=False, fontsize=8)
    words = "\n".join(f"{name}: {value:g}" for name, value in document["assumptions"].items())
    panels[1][3].text(0.0, 0.95, f"assumed of the predictions:\n{words}", va="top", fontsize=8)
    panels[1][3].set_axis_off()
    figure.savefig(picture, dpi=110)
    pyplot.close(figure)


def table(document: Mapping[str, Any]) -> str:
    """Return the predictions as Markdown tables."""
    ranks = TABLE_RANKS
    lines = [
        "| model, rate | way | " + " | ".join(map(str, ranks)) + " |",
        "|---" * (2 + len(ranks)) + "|",
    ]
    for name, by_rate in document["models"].items():
        for rate, found in by_rate.items():
            for way, steps in found["steps_s"].items():
                ratios = [steps[each] / found["compute_s"] for each in ranks]
                cells = " | ".join(f"{ratio:.2f}" for ratio in ratios)
                lines.append(f"| {MODELS[name].label}, {rate} | {way} | {cells} |")
    lines += ["", "| graph, rate | way | " + " | ".join(map(str, ranks)) + " |"]
    lines.append("|---" * (2 + len(ranks)) + "|")
    for name, by_rate in document["graphs"].items():
        for rate, found in by_rate.items():
            for way, epochs in found["epochs_s"].items():
                cells = " | ".join(f"{epochs[each]:.3g}" for each in ranks)
                lines.append(f"| {GRAPHS[name].label}, {rate} | {way}, s | {cells} |")
    return "\n".join(lines)
