"""`python -m horovod_sylvie plan`: what a model's gradients should travel like, before training.

Here: the arguments and the printed tables. Not here: the measurement (`gradient.measured_model`)
and the planner (`planning`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from horovod_sylvie.planning.forecast import Forecast

_UNITS: Final = MappingProxyType({"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9})
_SECONDS: Final = MappingProxyType({"s": 1.0, "ms": 1e-3, "us": 1e-6})
_EPILOG: Final = """\
FACTORY is module:function. The function takes no argument and returns a model and a function
without arguments that computes a loss on a batch of the size that a rank will train with:

  def make():
      model = torchvision.models.resnet50()
      x, y = torch.randn(32, 3, 224, 224), torch.randint(0, 1000, (32,))
      return model, lambda: F.cross_entropy(model(x), y)

Its forward and backward are measured here, on this machine. The link is the one you name: a model
of rings, t = start + hops * latency + bytes / rate.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments.

    Args:
        parser: The command's own parser.
    """
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("factory", metavar="FACTORY", help="module:function, see below")
    parser.add_argument(
        "--ranks", default="4", metavar="P[,P...]", help="numbers of ranks; default: 4"
    )
    parser.add_argument("--rate", required=True, help="of each rank's link: 10gbit, 100mbit")
    parser.add_argument("--latency", default="50us", help="one way; default: 50us")
    parser.add_argument(
        "--start", default="1ms", help="what each collective costs beside; default: 1ms"
    )
    parser.add_argument("--min-density", type=float, default=0.001)
    parser.add_argument("--max-density", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=7, help="steps to measure; default: 7")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Measure, plan, and print.

    Args:
        arguments: What `add_arguments` asked for.

    Returns:
        0.

    Raises:
        ValueError: An argument that cannot be read, or a factory that returns something else.
    """
    from horovod_sylvie.gradient.measured_model import measure_layers
    from horovod_sylvie.gradient.speed_of_rank import measure_speed
    from horovod_sylvie.planning.forecast import forecast
    from horovod_sylvie.planning.link_model import model_of_link

    ranks = parse_ranks(arguments.ranks)
    rate = parse_rate(arguments.rate)
    latency, start = parse_seconds(arguments.latency), parse_seconds(arguments.start)
    if not 0 < arguments.min_density <= arguments.max_density <= 1 or arguments.steps < 1:
        raise ValueError(
            "expected 0 < --min-density <= --max-density <= 1 and --steps of at least 1."
        )
    model, loss_of = load_factory(arguments.factory)
    layers, forward_s = measure_layers(model, loss_of, steps=arguments.steps)
    compute = measure_speed(forward_s=forward_s)
    forecasts = [
        forecast(
            layers,
            compute,
            model_of_link(num_ranks, rate, latency, start_s=start),
            min_density=arguments.min_density,
            max_density=arguments.max_density,
        )
        for num_ranks in ranks
    ]
    if arguments.json:
        print(json.dumps([asdict(each) for each in forecasts], indent=1))
        return 0
    print(groups_table(forecasts[0]))
    print()
    print(steps_table(forecasts))
    return 0


def load_factory(place: str) -> tuple[Any, Any]:
    """Import a factory and call it.

    Args:
        place: module:function; the module is looked for in the current directory too.

    Returns:
        A model, and a function that computes a loss.

    Raises:
        ValueError: Another form, no such function, or something else returned.
    """
    module_name, _, function_name = place.partition(":")
    if not (module_name and function_name):
        raise ValueError(f"expected module:function for FACTORY, got {place!r}.")
    sys.path.insert(0, str(Path.cwd()))
    factory = getattr(importlib.import_module(module_name), function_name, None)
    made = factory() if callable(factory) else None
    if isinstance(made, tuple) and len(made) == 2:
        model, loss_of = made
        if hasattr(model, "named_parameters") and callable(loss_of):
            return model, loss_of
    raise ValueError(
        f"expected {place} to return a model and a function that computes a loss, got "
        f"{type(made).__name__}. See --help."
    )


def parse_ranks(text: str) -> list[int]:
    """Return numbers of ranks, each at least 2: "4,16" is [4, 16]."""
    if not re.fullmatch(r"\d+(,\d+)*", text) or any(int(each) < 2 for each in text.split(",")):
        raise ValueError(f"expected numbers from 2, with commas, for --ranks, got {text!r}.")
    return [int(each) for each in text.split(",")]


def parse_rate(text: str) -> float:
    """Return bits per second: "10gbit" is 1e10."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", text.lower())
    if match is None or not float(match[1]) > 0:
        raise ValueError(f"expected a rate such as 10gbit or 100mbit for --rate, got {text!r}.")
    return float(match[1]) * _UNITS[match[2]]


def parse_seconds(text: str) -> float:
    """Return seconds: "50us" is 5e-5."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|ms|us)", text.lower())
    if match is None:
        raise ValueError(f"expected a time such as 50us or 1ms, got {text!r}.")
    return float(match[1]) * _SECONDS[match[2]]


def groups_table(found: Forecast) -> str:
    """Lay out the groups of a plan."""
    lines = [
        f"the plan for {found.num_ranks} ranks, in the order of backward (times in ms)",
        f"{'group':<40}{'elements':>12}{'backward':>10}{'dense':>10}{'sparse':>10}"
        f"{'chosen':>12}{'density':>10}",
    ]
    for each in found.groups:
        names = each.group.names
        label = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        label = label if len(label) < 40 else f"{label[:37]}.."
        times = (each.backward_s, each.dense_s, each.sparse_s)
        lines.append(
            f"{label:<40}{each.num_elements:>12,}"
            + "".join(f"{1e3 * seconds:>10.2f}" for seconds in times)
            + f"{each.group.kind:>12}{each.group.density:>10.4g}"
        )
    return "\n".join(lines)


def steps_table(forecasts: list[Forecast]) -> str:
    """Lay out the predicted steps, a line for each number of ranks, and say what pays."""
    ways = list(forecasts[0].steps_s)
    lines = [
        f"predicted step in ms; forward and backward alone: {1e3 * forecasts[0].compute_s:.1f}",
        f"{'ranks':>6}" + "".join(f"{way:>15}" for way in ways) + f"{'gain':>8}{'S_max':>8}",
    ]
    for each in forecasts:
        gain = each.best_dense_s / each.steps_s["planned"]
        lines.append(
            f"{each.num_ranks:>6}"
            + "".join(f"{1e3 * each.steps_s[way]:>15.1f}" for way in ways)
            + f"{gain:>7.2f}x{each.bound:>8.2f}"
        )
    lines.append(
        "gain: of the plan over the better dense way. S_max: what overlap alone can gain, dense."
    )
    useless = [str(each.num_ranks) for each in forecasts if not each.pays]
    if useless:
        lines.append(
            f"compression does not pay here with {', '.join(useless)} ranks: use "
            "hvs.Compression.none or .bf16."
        )
    return "\n".join(lines)
