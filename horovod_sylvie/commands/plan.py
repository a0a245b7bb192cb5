"""`python -m horovod_sylvie plan`: what should travel like what, before training.

Here: the arguments, and the printed tables for a model's gradients. Not here: the measurement
(`gradient.measured_model`), the planner (`planning`), and the halo exchanges of a partition
(`plan_halo.py`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from .link_arguments import MeasuredLink, add_link_arguments, link_of, parse_numbers
from .plan_halo import run_halo

if TYPE_CHECKING:
    from horovod_sylvie.planning.forecast import Forecast

# Defaults of what only a model's gradients are asked for, so that they are known to be given
_GRADIENT_DEFAULTS: Final = MappingProxyType(
    {"ranks": None, "min_density": 0.001, "max_density": 0.05, "steps": 7}
)
_DEFAULT_RANKS: Final = 4
_HALO_OPTIONS: Final = ("features", "hidden")
_EPILOG: Final = """\
FACTORY is module:function. The function takes no argument and returns a model and a function
without arguments that computes a loss on a batch of the size that a rank will train with:

  def make():
      model = torchvision.models.resnet50()
      x, y = torch.randn(32, 3, 224, 224), torch.randint(0, 1000, (32,))
      return model, lambda: F.cross_entropy(model(x), y)

Its forward and backward are measured here, on this machine. The link is the one you name, a model
of rings, t = start + hops * latency + bytes / rate; or, under horovodrun, the one that --measure
finds between the ranks.

With --partition instead, the halo exchanges of full-graph training on it are predicted, for as many
ranks as it has parts. How fast rows are encoded and decoded is measured here.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments.

    Args:
        parser: The command's own parser.
    """
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("factory", metavar="FACTORY", nargs="?", help="module:function, see below")
    what.add_argument("--partition", metavar="DIR", help="a partition, for its halo exchanges")
    add_link_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    model = parser.add_argument_group("with FACTORY")
    model.add_argument(
        "--ranks", metavar="P[,P...]", help="numbers of ranks; default: 4, or this job's"
    )
    model.add_argument("--min-density", type=float, metavar="D", help="default: 0.001")
    model.add_argument("--max-density", type=float, metavar="D", help="default: 0.05")
    model.add_argument("--steps", type=int, metavar="N", help="steps to measure; default: 7")
    graph = parser.add_argument_group("with --partition")
    graph.add_argument("--hidden", metavar="F[,F...]", help="what later layers read: 256,256")
    graph.add_argument("--features", metavar="F", help="of a node; default: what the graph has")


def run(arguments: argparse.Namespace) -> int:
    """Measure, plan, and print.

    Args:
        arguments: What `add_arguments` asked for.

    Returns:
        0.

    Raises:
        ValueError: An argument that cannot be read or does not belong to what is planned, a factory
            that returns something else, or no partition.
        RuntimeError: The partition is damaged.
    """
    if arguments.partition is not None:
        _refuse(arguments, _GRADIENT_DEFAULTS, "FACTORY")
        return run_halo(arguments)
    _refuse(arguments, _HALO_OPTIONS, "--partition")
    for name, default in _GRADIENT_DEFAULTS.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, default)
    return _run_gradients(arguments)


def _refuse(arguments: argparse.Namespace, names: Iterable[str], owner: str) -> None:
    for name in names:
        if getattr(arguments, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} goes with {owner}. Leave it out.")


def _run_gradients(arguments: argparse.Namespace) -> int:
    from horovod_sylvie.gradient.measured_model import measure_layers
    from horovod_sylvie.gradient.speed_of_rank import measure_speed
    from horovod_sylvie.planning.forecast import forecast

    ranks = None if arguments.ranks is None else parse_numbers(arguments.ranks, "--ranks", 2)
    if not 0 < arguments.min_density <= arguments.max_density <= 1 or arguments.steps < 1:
        raise ValueError(
            "expected 0 < --min-density <= --max-density <= 1 and --steps of at least 1."
        )
    link = link_of(arguments)
    if link.rank != 0:
        return 0  # of the ranks that have measured the link one plans and prints
    if ranks is None:
        ranks = [link.measured.num_ranks if isinstance(link, MeasuredLink) else _DEFAULT_RANKS]
    model, loss_of = load_factory(arguments.factory)
    layers, forward_s = measure_layers(model, loss_of, steps=arguments.steps)
    compute = measure_speed(next(model.parameters()).device, forward_s=forward_s)
    forecasts = [
        forecast(
            layers,
            compute,
            link.between(num_ranks),
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
