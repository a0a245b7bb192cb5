"""One panel of ratios over the rates of a link, as the reports of steps and of epochs draw it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import ticker


def draw_ratios(
    panel: Any,
    rates: Sequence[str],
    ratios: Mapping[str, Mapping[str, float]],
    colours: Mapping[str, str],
) -> None:
    """Draw a line for each way, on a logarithmic scale, with a dotted one at 1.

    Args:
        panel: Axes of matplotlib.
        rates: In order; an unlimited one has no number, so they stand at equal distances.
        ratios: By way and rate; a way need not have all rates.
        colours: By way; those without a ratio are left out.
    """
    for way, colour in colours.items():
        known = ratios.get(way, {})
        points = [(place, known[rate]) for place, rate in enumerate(rates) if rate in known]
        if points:
            panel.plot(
                *zip(*points, strict=True), color=colour, marker="o", markersize=3, label=way
            )
    panel.axhline(1.0, color="black", linewidth=0.6, linestyle=":")
    panel.set_yscale("log")
    panel.minorticks_off()
    ticks = [1, 1.1, 1.2, 1.3, 1.5, 2, 3, 5, 10, 20, 30, 50]
    low, high = panel.get_ylim()
    if high > 3 * low:  # far apart: the fine ones would overlap
        ticks = [tick for tick in ticks if tick not in (1.1, 1.2, 1.3)]
    panel.yaxis.set_major_locator(ticker.FixedLocator(ticks))
    panel.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    panel.set_xticks(range(len(rates)), rates, fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)


def add_legend(figure: Any, panels: Sequence[Any], *, columns: int) -> None:
    """Put one legend of all panels' lines below them.

    Args:
        figure: Of matplotlib.
        panels: Its axes.
        columns: Entries side by side.
    """
    handles = {
        label: handle
        for panel in panels
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles.keys(), frameon=False, ncols=columns, loc="outside lower center"
    )
