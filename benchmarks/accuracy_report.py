"""Tables and curves of what `accuracy.py` has measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from accuracy_recipes import FULL, NAMES, Run, Setting
from matplotlib import pyplot

LIMIT: Final = 0.3  # points of accuracy that a mode may lose

_Figures = Mapping[str, Any]
_Groups = dict[Setting, dict[str, dict[int, _Figures]]]


def grouped(results: Mapping[str, _Figures]) -> _Groups:
    """Return figures by setting, mode and seed; modes in the order of their table."""
    groups: _Groups = {}
    for key, figures in results.items():
        run = Run.from_key(key)
        groups.setdefault(run.setting, {}).setdefault(run.mode, {})[run.seed] = figures
    return {
        setting: {mode: modes[mode] for mode in NAMES if mode in modes}
        for setting, modes in groups.items()
    }


def differences(modes: Mapping[str, Mapping[int, _Figures]], mode: str) -> list[float]:
    """Return by how many points a mode's accuracy differs from full precision, seed by seed."""
    base, runs = modes.get(FULL, {}), modes[mode]
    return [
        100 * (runs[seed]["test_accuracy"] - base[seed]["test_accuracy"])
        for seed in sorted(runs.keys() & base.keys())
    ]


def spread(values: list[float]) -> str:
    """Return mean and standard deviation."""
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Return the mean and its standard error, which is infinite for one value."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return statistics.mean(values), error


def difference(values: list[float]) -> str:
    """Return the mean difference and its standard error."""
    if not values:
        return "-"
    mean, error = mean_and_error(values)
    return f"{mean:+.2f}" if math.isinf(error) else f"{mean:+.2f} ± {error:.2f}"


def verdict(values: list[float]) -> str:
    """Say whether a mode is within the limit; "?" where twice the error reaches beyond it."""
    if not values:
        return "-"
    mean, error = mean_and_error(values)
    doubt = "" if abs(mean + LIMIT) > 2 * error else "?"
    return f"{'yes' if mean >= -LIMIT else 'no'}{doubt}"


def ratio(figures: _Figures) -> float:
    """Return full precision's bytes by those that were sent."""
    sent: float = figures["bytes_sent_per_epoch"]
    return figures["bytes_full_precision_per_epoch"] / sent if sent else 1.0


def table(results: Mapping[str, _Figures]) -> str:
    """Return a table in Markdown: a row for each setting and mode."""
    lines = [
        "| graph | model | ranks | halo rows | seeds | test, % | difference, points | "
        f"within {LIMIT} | halo bytes | bits | stale, % | s/epoch |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for setting, modes in grouped(results).items():
        for mode, runs in modes.items():
            each = list(runs.values())
            compared = [] if mode == FULL else differences(modes, mode)
            columns = [
                setting.graph,
                setting.model,
                str(setting.num_ranks),
                NAMES[mode],
                str(len(each)),
                spread([100 * run["test_accuracy"] for run in each]),
                "" if mode == FULL else difference(compared),
                "" if mode == FULL else verdict(compared),
                f"1/{statistics.mean(ratio(run) for run in each):.1f}",
                f"{statistics.mean(run['bits'] for run in each):.2f}",
                f"{100 * statistics.mean(run['stale_share'] for run in each):.0f}",
                f"{statistics.median(run['epoch_s'] for run in each):.3f}",
            ]
            lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)


def overview(results: Mapping[str, _Figures]) -> str:
    """Return a table in Markdown: a row for each mode, over all settings."""
    lines = [
        f"| halo rows | settings | within {LIMIT} | mean difference, points | worst | where |",
        "|---|---|---|---|---|---|",
    ]
    groups = grouped(results)
    for mode in NAMES:
        means = {
            setting: statistics.mean(values)
            for setting, modes in groups.items()
            if mode != FULL and mode in modes and (values := differences(modes, mode))
        }
        if not means:
            continue
        worst = min(means, key=lambda setting: means[setting])
        num_within = sum(mean >= -LIMIT for mean in means.values())
        lines.append(
            f"| {NAMES[mode]} | {len(means)} | {num_within} | "
            f"{statistics.mean(means.values()):+.2f} | {means[worst]:+.2f} | "
            f"{worst.graph}, {worst.model}, {worst.num_ranks} ranks |"
        )
    return "\n".join(lines)


def plot(results: Mapping[str, _Figures], path: Path) -> None:
    """Draw the loss curves, a panel for each setting, a line for each mode: the mean of seeds."""
    groups = grouped(results)
    num_columns = min(4, len(groups))
    num_rows = -(-len(groups) // num_columns)
    figure, panels = pyplot.subplots(
        num_rows,
        num_columns,
        figsize=(4 * num_columns, 3.2 * num_rows),
        constrained_layout=True,
        squeeze=False,
    )
    colours = {mode: "black" if mode == FULL else f"C{number}" for number, mode in enumerate(NAMES)}
    for panel, (setting, modes) in zip(panels.flat, groups.items(), strict=False):
        for mode, runs in modes.items():
            curves = [
                [math.nan if each is None else each for each in run["loss"]]
                for run in runs.values()
            ]
            mean = [statistics.mean(values) for values in zip(*curves, strict=True)]
            epochs = next(iter(runs.values()))["loss_epochs"]
            panel.plot(epochs, mean, color=colours[mode], linewidth=1, label=NAMES[mode])
        title = f"{setting.graph}, {setting.model}, {setting.num_ranks} ranks"
        panel.set(title=title, xlabel="epoch", yscale="log")
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels.flat[len(groups) :]:
        panel.set_visible(False)
    panels[0, 0].set_ylabel("training loss")
    lines, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=110)
