"""Convergence with sparse gradients against whole ones: three models, several seeds.

    python benchmarks/convergence.py --mnist mnist.npz --text tinyshakespeare.txt --results FILE
    python benchmarks/convergence.py ... --link "100 Mbit/s" \
        --launcher "python benchmarks/emulated_hosts.py --hosts {ranks} --rate 100mbit --"

Runs `examples/dense.py` under horovodrun for every model, seed and kind of gradient; the same seed
gives the same initial weights and batches, so only the gradients' exchange differs. Runs that are
in the results file already are not run again. Prints a table in Markdown: mean and standard
deviation over seeds of the last epoch's test score, and the mean difference to whole gradients.

What LAGS chooses depends on the link between the ranks. The launcher gets a rank's command behind
it, and --link says what the results are to call its link.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from launchers import RANKS_HOROVODRUN
from matplotlib import pyplot
from tqdm import tqdm

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "dense.py"
RECIPES: Final = MappingProxyType(
    {
        "mlp": "--model mlp --width 256 --batch-size 32 --epochs 8 --lr 0.1",
        "resnet20": "--model resnet20 --width 16 --batch-size 32 --epochs 6 --lr 0.1 "
        "--weight-decay 0.0001",
        "lstm": "--model lstm --width 128 --chunk 64 --batch-size 8 --epochs 8 --lr 4 "
        "--clip-norm 4",
    }
)
DENSE: Final = "dense"
SPARSE: Final = "top-k 1 %"
LAGS: Final = "LAGS"
TOPK: Final = "--compression topk --density 0.01 --min-elements 1024 --momentum-mode dgc"
ADAPTIVE: Final = (
    "--compression lags --density 0.05 --min-density 0.001 --min-elements 1024 --momentum-mode dgc"
)
# The density comes down during the first epoch
GRADIENTS: Final = MappingProxyType(
    {
        DENSE: MappingProxyType(dict.fromkeys(RECIPES, "--compression none")),
        SPARSE: MappingProxyType(
            {
                "mlp": f"{TOPK} --warmup-steps 156",
                "resnet20": f"{TOPK} --warmup-steps 156",
                "lstm": f"{TOPK} --warmup-steps 490",
            }
        ),
        LAGS: MappingProxyType(
            {
                "mlp": f"{ADAPTIVE} --warmup-steps 156",
                "resnet20": f"{ADAPTIVE} --warmup-steps 156",
                "lstm": f"{ADAPTIVE} --warmup-steps 490",
            }
        ),
    }
)
COLOURS: Final = MappingProxyType({DENSE: "black", SPARSE: "tab:orange", LAGS: "tab:green"})
KEPT: Final = ("loss", "accuracy", "perplexity", "step_s", "bytes_sent_per_step")


def train(args: argparse.Namespace, model: str, kind: str, seed: int) -> dict[str, Any]:
    """Run one training and keep what the table and the pictures need."""
    data = f"text:{args.text}" if model == "lstm" else f"mnist:{args.mnist}"
    with tempfile.TemporaryDirectory() as folder:
        json_file = Path(folder) / "run.json"
        command: list[Any] = shlex.split(args.launcher.format(ranks=args.ranks))
        command += [sys.executable, EXAMPLE, "--data", data, "--seed", seed, "--json", json_file]
        command += f"{RECIPES[model]} {GRADIENTS[kind][model]}".split()
        # With more ranks than cores, a Horovod that wakes up less often leaves the cores to them
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HOROVOD_CYCLE_TIME": "3"}
        subprocess.run(
            [str(part) for part in command], check=True, stdout=subprocess.DEVNULL, env=environment
        )
        figures: dict[str, Any] = json.loads(json_file.read_text())
    return {name: figures[name] for name in KEPT if name in figures}


def runs_of(results: dict[str, dict[str, Any]], model: str, kind: str) -> dict[str, dict[str, Any]]:
    """Return runs by seed."""
    prefix = f"{model}|{kind}|"
    return {key.removeprefix(prefix): run for key, run in results.items() if key.startswith(prefix)}


def scores(run: dict[str, Any]) -> list[float]:
    """Return a run's test score after each epoch: accuracy in %, or perplexity."""
    if "perplexity" in run:
        return list(run["perplexity"])
    return [100 * accuracy for accuracy in run["accuracy"]]


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the Markdown table."""
    lines = [
        "| model | seeds | dense | gradients | score | difference | bytes |",
        "|---|---|---|---|---|---|---|",
    ]
    for model, kind in itertools.product(RECIPES, (SPARSE, LAGS)):
        dense, sparse = runs_of(results, model, DENSE), runs_of(results, model, kind)
        seeds = sorted(dense.keys() & sparse.keys())
        if not seeds:
            continue
        whole = [scores(dense[seed])[-1] for seed in seeds]
        selected = [scores(sparse[seed])[-1] for seed in seeds]
        sent = [dense[seeds[0]], sparse[seeds[0]]]
        ratio = sent[0]["bytes_sent_per_step"] / sent[1]["bytes_sent_per_step"]
        lines.append(
            f"| {model} | {len(seeds)} | {spread(whole)} | {kind} | {spread(selected)} | "
            f"{difference(model, whole, selected)} | 1/{ratio:.1f} |"
        )
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Return mean and standard deviation."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.3f} ± {deviation:.3f}"


def difference(model: str, whole: list[float], selected: list[float]) -> str:
    """Return the difference of means: in points of accuracy, or in per cent of perplexity."""
    change = statistics.mean(selected) - statistics.mean(whole)
    if model == "lstm":
        return f"{100 * change / statistics.mean(whole):+.2f} %"
    return f"{change:+.3f} points"


def plot(results: dict[str, dict[str, Any]], folder: Path) -> None:
    """Draw training loss and test score, a picture per model: mean and range over seeds."""
    for model in RECIPES:
        figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.4), constrained_layout=True)
        for kind, colour in COLOURS.items():
            runs = runs_of(results, model, kind).values()
            curves = ([run["loss"] for run in runs], [scores(run) for run in runs])
            for panel, values in zip(panels, curves, strict=True):
                draw(panel, values, colour, kind)
        score = "test perplexity" if model == "lstm" else "test accuracy, %"
        for panel, name in zip(panels, ("training loss", score), strict=True):
            panel.set(xlabel="epoch", ylabel=name)
            panel.spines[["top", "right"]].set_visible(False)
        if model != "lstm":  # whose loss falls by less than a decade
            panels[0].set_yscale("log")
        panels[1].legend(frameon=False)
        figure.suptitle(f"{model}: mean and range over seeds")
        figure.savefig(folder / f"convergence-{model}.png", dpi=110)
        pyplot.close(figure)


def draw(panel: Any, curves: list[list[float]], colour: str, label: str) -> None:
    """Draw the mean of curves as a line, and their range around it."""
    if not curves:
        return
    columns = list(zip(*curves, strict=True))
    epochs = range(1, len(columns) + 1)
    means = [statistics.mean(column) for column in columns]
    panel.plot(epochs, means, color=colour, linewidth=1.2, marker="o", markersize=3, label=label)
    lowest, highest = [min(column) for column in columns], [max(column) for column in columns]
    panel.fill_between(epochs, lowest, highest, color=colour, alpha=0.2, linewidth=0)


def missing(
    args: argparse.Namespace, results: dict[str, dict[str, Any]]
) -> Iterator[tuple[str, str, int]]:
    """Yield the runs that the results lack."""
    for seed in range(args.seeds):
        for model in args.only:
            for kind in args.gradients:
                if f"{model}|{kind}|{seed}" not in results:
                    yield model, kind, seed


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--mnist", type=Path, required=True, help="for mlp and resnet20: see examples/dense.py")
    add("--text", type=Path, required=True, help="for lstm")
    add("--results", type=Path, required=True, help="kept and added to")
    add("--seeds", type=int, default=3)
    add("--ranks", type=int, default=4)
    add("--only", choices=list(RECIPES), nargs="+", default=list(RECIPES))
    add("--gradients", choices=list(GRADIENTS), nargs="+", default=list(GRADIENTS))
    add(
        "--launcher",
        default=RANKS_HOROVODRUN,
        help="starts {ranks} ranks; default: horovodrun, here",
    )
    add("--link", default="this machine", help="what to call the launcher's link in the results")
    add("--plot", type=Path, help="draw convergence-MODEL.png into this folder")
    return parser.parse_args()


def main() -> None:
    """Run what is missing, then print the table."""
    args = parse_arguments()
    recipes = {
        f"{model}|{kind}": f"{RECIPES[model]} {GRADIENTS[kind][model]}, {args.ranks} ranks"
        + (f", link: {args.link}" if kind == LAGS else "")
        for kind in args.gradients
        for model in RECIPES
    }
    document: dict[str, Any] = {"recipes": recipes, "runs": {}}
    if args.results.exists():
        document = json.loads(args.results.read_text())
    if any(document["recipes"].get(key, recipe) != recipe for key, recipe in recipes.items()):
        sys.exit(f"--results {args.results} was made with other options; name another file")
    document["recipes"] |= recipes
    results = document["runs"]
    for model, kind, seed in tqdm(list(missing(args, results)), unit="run"):
        results[f"{model}|{kind}|{seed}"] = train(args, model, kind, seed)
        args.results.parent.mkdir(parents=True, exist_ok=True)
        partial = args.results.with_suffix(".partial")
        partial.write_text(json.dumps(document, indent=1) + "\n")
        partial.replace(args.results)
    print(table(results))
    if args.plot:
        plot(results, args.plot)


if __name__ == "__main__":
    main()
