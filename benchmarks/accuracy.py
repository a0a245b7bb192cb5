"""Test accuracy of halo codecs, several seeds, on real graphs.

    python benchmarks/accuracy.py FOLDER_OF_GRAPHS --results benchmarks/results/accuracy.json

Runs `examples/full_graph.py` under horovodrun for every graph, codec and seed; the same seed gives
the same partition, initial weights and dropout, so only the halo rows' encoding differs. Runs that
are in the results file already are not run again. Prints a table in Markdown: mean and standard
deviation over seeds, and the mean difference to full precision with its standard error.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from matplotlib import pyplot
from tqdm import tqdm

import horovod_sylvie as hvs

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "full_graph.py"
COMMON: Final = "--layers 3 --norm layer --dropout 0.5 --lr 0.005 --eval-every 5"
RECIPES: Final = MappingProxyType(
    {
        "amazon_photo": "--model sage --hidden 256 --epochs 80 --split 1 --feature-norm l2",
        "coauthor_cs": "--model gcn --hidden 64 --epochs 60 --split 1",
        "debian_deps": "--model sage --hidden 64 --epochs 60 --lr 0.01",
    }
)
# glibc gives large blocks back to the system at once; faulting them in again takes half the time.
ALLOCATOR: Final = MappingProxyType(
    {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**34), "MALLOC_TOP_PAD_": str(2**26)}
)
CODECS: Final = MappingProxyType(
    {
        "full precision": "--codec full",
        "one bit, minmax": "--codec 1 --code minmax",
        "one bit, centroid": "--codec 1 --code centroid",
    }
)
COLOURS: Final = ("black", "tab:orange", "tab:blue")


def train(
    parts: Path, options: str, seed: int, num_ranks: int, folder: Path
) -> dict[str, float | list[float]]:
    """Run one training and keep what the table and the picture need."""
    json_file = folder / "run.json"
    command = [Path(sys.executable).with_name("horovodrun"), "--gloo", "-np", num_ranks]
    command += [sys.executable, EXAMPLE, "--data", parts, "--seed", seed, "--json", json_file]
    command += f"{COMMON} {options}".split()
    subprocess.run(
        [str(part) for part in command],
        check=True,
        stdout=subprocess.DEVNULL,
        env=os.environ | ALLOCATOR,
    )
    figures: dict[str, Any] = json.loads(json_file.read_text())
    kept = ("test_accuracy", "val_accuracy", "loss")
    kept += ("bytes_sent_per_epoch", "bytes_full_precision_per_epoch")
    return {name: figures[name] for name in kept} | {
        "epoch_s": statistics.median(figures["epoch_s"])
    }


def table(results: dict[str, dict[str, Any]], num_ranks: int) -> str:
    """Return the Markdown table."""
    lines = [
        f"| graph, {num_ranks} ranks | codec | seeds | test, % | difference | halo bytes |",
        "|---|---|---|---|---|---|",
    ]
    for graph in RECIPES:
        for codec in CODECS:
            prefix = f"{graph}|{codec}|"
            runs = {
                key.removeprefix(prefix): run
                for key, run in results.items()
                if key.startswith(prefix)
            }
            if not runs:
                continue
            accuracy = {seed: 100 * run["test_accuracy"] for seed, run in runs.items()}
            base = {
                seed: 100 * results[f"{graph}|full precision|{seed}"]["test_accuracy"]
                for seed in runs
                if f"{graph}|full precision|{seed}" in results
            }
            run = next(iter(runs.values()))
            ratio = run["bytes_full_precision_per_epoch"] / run["bytes_sent_per_epoch"]
            lines.append(
                f"| {graph} | {codec} | {len(runs)} | {spread(list(accuracy.values()))} | "
                f"{difference(accuracy, base) if codec != 'full precision' else ''} | "
                f"1/{ratio:.1f} |"
            )
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Return mean and standard deviation."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.2f} ± {deviation:.2f}"


def difference(values: dict[str, float], base: dict[str, float]) -> str:
    """Return the mean difference, seed by seed, and its standard error."""
    differences = [values[seed] - base[seed] for seed in values.keys() & base.keys()]
    if len(differences) < 2:
        return "-"
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    return f"{statistics.mean(differences):+.2f} ± {error:.2f}"


def plot(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw the loss curves, a panel per graph, a line per seed, a colour per codec."""
    figure, panels = pyplot.subplots(1, len(RECIPES), figsize=(12, 3.6), constrained_layout=True)
    for panel, graph in zip(panels, RECIPES, strict=True):
        for colour, codec in zip(COLOURS, CODECS, strict=True):
            prefix = f"{graph}|{codec}|"
            runs = [run for key, run in results.items() if key.startswith(prefix)]
            for number, run in enumerate(runs):
                label = codec if number == 0 else None
                epochs = range(1, len(run["loss"]) + 1)
                panel.plot(epochs, run["loss"], color=colour, alpha=0.6, linewidth=1, label=label)
        panel.set(title=graph, xlabel="epoch", yscale="log")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("training loss")
    panels[-1].legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", type=Path, help="folder with NAME/NAME.npz for each graph")
    parser.add_argument("--results", type=Path, required=True, help="kept and added to")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--only", choices=list(RECIPES), nargs="+", default=list(RECIPES))
    parser.add_argument("--plot", type=Path, help="draw the loss curves to this file")
    parser.add_argument("--codecs", choices=list(CODECS), nargs="+", default=list(CODECS))
    args = parser.parse_args()
    recipes = {graph: f"{COMMON} {RECIPES[graph]}, {args.ranks} ranks" for graph in RECIPES}
    document: dict[str, Any] = {"recipes": recipes, "runs": {}}
    if args.results.exists():
        document = json.loads(args.results.read_text())
    if document["recipes"] != recipes:
        parser.error(f"--results {args.results} was made with other options; name another file")
    results = document["runs"]
    runs = [
        (graph, codec, seed)
        for graph in args.only
        for seed in range(args.seeds)
        for codec in args.codecs
        if f"{graph}|{codec}|{seed}" not in results
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for graph, codec, seed in tqdm(runs, unit="run"):
            parts = folder / graph
            if not hvs.is_partition(parts):
                hvs.partition_graph(args.graphs / graph / f"{graph}.npz", parts, args.ranks)
            options = f"{RECIPES[graph]} {CODECS[codec]}"
            results[f"{graph}|{codec}|{seed}"] = train(parts, options, seed, args.ranks, folder)
            args.results.parent.mkdir(parents=True, exist_ok=True)
            partial = args.results.with_suffix(".partial")
            partial.write_text(json.dumps(document, indent=1) + "\n")
            partial.replace(args.results)
    print(table(results, args.ranks))
    if args.plot:
        plot(results, args.plot)


if __name__ == "__main__":
    main()
