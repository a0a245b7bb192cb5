"""Test accuracy of the ways in which halo rows travel, several seeds, on real graphs.

    python benchmarks/accuracy.py FOLDER_OF_GRAPHS --results benchmarks/results/accuracy.json

Runs `examples/full_graph.py` under horovodrun for every graph, model, number of ranks, mode and
seed; the same seed gives the same partition, initial weights and dropout, so only the halo rows
differ. Runs that are in the results file already are not run again. Prints tables in Markdown:
mean and standard deviation over seeds, and the mean difference to full precision, seed by seed,
with its standard error.

--only names graphs, models and modes; of a kind that is not named, all. --more changes every
recipe, for instance --more="--dropout 0": to a file of its own.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from accuracy_recipes import (
    BUDGET,
    DEFAULT_GRAPHS,
    GRAPHS,
    MODELS,
    MODES,
    ONE_BIT,
    Run,
    Setting,
)
from accuracy_report import overview, plot, table
from launched_jobs import end, measure, run_to_end

import horovod_sylvie as hvs

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "full_graph.py"
_HOROVODRUN: Final = f"{Path(sys.executable).with_name('horovodrun')} --gloo -np {{ranks}}"
# glibc gives large blocks back to the system at once; faulting them in again takes half the time
_ALLOCATOR: Final = f"env MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_={2**34} MALLOC_TOP_PAD_={2**26}"
_EVERY: Final = 5  # epochs between the losses that are kept


def wanted_runs(only: Sequence[str], ranks: Sequence[int], num_seeds: int) -> list[Run]:
    """Return the runs that are asked for, those of one seed together.

    Args:
        only: Names of graphs, models and modes.
        ranks: Numbers of ranks.
        num_seeds: Seeds from 0.
    """

    def chosen(known: Sequence[str], default: Sequence[str]) -> list[str]:
        return [each for each in known if each in only] or list(default)

    modes = chosen(list(MODES), list(MODES))
    return [
        Run(Setting(graph, model, num_ranks), mode, seed)
        for num_ranks in ranks
        for graph in chosen(list(GRAPHS), DEFAULT_GRAPHS)
        for model in chosen(list(MODELS), list(MODELS))
        for seed in range(num_seeds)
        for mode in modes
    ]


def with_one_bit(runs: Sequence[Run], results: Mapping[str, Any]) -> list[Run]:
    """Return the runs, and before those by budget one of one bit, which says what it sends."""
    ordered: dict[Run, None] = {}
    for run in runs:
        if run.mode == BUDGET and one_bit_bytes(run.setting, results) is None:
            ordered[Run(run.setting, ONE_BIT, 0)] = None
        ordered[run] = None
    return list(ordered)


def one_bit_bytes(setting: Setting, results: Mapping[str, Any]) -> int | None:
    """Return what one bit sends per epoch, over all ranks; None where it was not measured."""
    for key, figures in results.items():
        run = Run.from_key(key)
        if run.setting == setting and run.mode == ONE_BIT:
            return int(figures["bytes_sent_per_epoch"])
    return None


class Trainer:
    """Runs trainings, on partitions that are made once.

    Args:
        args: The command line.
        folder: Where partitions are kept.
    """

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args = args
        self._folder = folder

    def __call__(self, run: Run) -> dict[str, Any]:
        """Train.

        Args:
            run: What.

        Returns:
            What the tables and the picture need.

        Raises:
            RuntimeError: It failed, or took too long; the text has the end of its output.
        """
        output, json_file = self._folder / "output.txt", self._folder / "run.json"
        json_file.unlink(missing_ok=True)
        launcher = self._args.launcher.format(ranks=run.setting.num_ranks)
        parts = self._partition(run.setting)
        command = [*shlex.split(f"{_ALLOCATOR} {launcher}"), sys.executable, str(EXAMPLE)]
        command += ["--data", str(parts), "--seed", str(run.seed), "--json", str(json_file)]
        command += options_of(run, self._args).split()
        if run.mode == BUDGET:
            command += ["--budget", str(self._budget(run))]
        start_s = time.perf_counter()
        with output.open("w") as stream:
            status = run_to_end(command, stream, self._args.timeout)
        wall_s = time.perf_counter() - start_s
        if status != 0 or not json_file.exists():
            ended = "was stopped: it took too long" if status is None else f"ended with {status}"
            lines = output.read_text(errors="replace").splitlines()[-15:]
            raise RuntimeError("\n".join([f"{run.key}: the training {ended}", *lines]))
        figures = json.loads(json_file.read_text())
        return kept(figures) | {
            "options": options_of(run, self._args),
            "wall_s": round(wall_s, 1),
        }

    def _partition(self, setting: Setting) -> Path:
        """Return the partition of a graph, made where it is not there."""
        parts = self._folder / f"{setting.graph}-{setting.num_ranks}"
        if not hvs.is_partition(parts):
            graph = self._args.graphs / setting.graph / f"{setting.graph}.npz"
            hvs.partition_graph(graph, parts, setting.num_ranks)
        return parts

    def _budget(self, run: Run) -> int:
        """Return twice what one bit sends."""
        file = self._args.results
        results = json.loads(file.read_text())["jobs"] if file.exists() else {}
        sent = one_bit_bytes(run.setting, results)
        if sent is None:
            raise RuntimeError(f"{run.key}: no run of one bit says what it sends")
        return 2 * sent


def options_of(run: Run, args: argparse.Namespace) -> str:
    """Return a run's command line with what every recipe is given more."""
    return f"{run.options} {args.more}".strip()


def kept(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a training's own report."""
    names = ["metric", "test_accuracy", "val_accuracy"]
    names += ["bytes_sent_per_epoch", "bytes_full_precision_per_epoch"]
    losses, stale = figures["loss"], [len(each) for each in figures["stale"]]
    num_exchanges = len(losses) * len(figures["exchanges"])
    bits = [each for each in figures["bits"] if each is not None]
    return {name: figures[name] for name in names} | {
        "loss": [None if each is None else float(f"{each:.4g}") for each in losses[::_EVERY]],
        "loss_epochs": list(range(1, len(losses) + 1, _EVERY)),
        "epoch_s": round(statistics.median(figures["epoch_s"]), 4),
        "bits": round(statistics.mean(bits), 3) if bits else 32.0,
        "stale_share": round(sum(stale) / num_exchanges, 4) if num_exchanges else 0.0,
    }


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("graphs", type=Path, help="folder with NAME/NAME.npz for each graph")
    add("--results", type=Path, required=True, help="kept and added to")
    add("--seeds", type=int, default=5)
    add("--ranks", type=int, nargs="+", default=[4])
    add("--only", choices=[*GRAPHS, *MODELS, *MODES], nargs="+", default=[], metavar="NAME")
    add("--more", default="", metavar="OPTIONS", help="of full_graph.py, behind every recipe's")
    add("--launcher", default=_HOROVODRUN, help="starts a command on {ranks} ranks")
    add("--timeout", type=float, default=900.0, metavar="S", help="for a training")
    add("--again", action="store_true", help="run trainings that are in the file too")
    add("--plot", type=Path, help="draw the loss curves to this file")
    args = parser.parse_args(arguments)
    if args.results.exists():
        check_results(parser, args)
    return args


def check_results(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End with a message where the results are not of these recipes."""
    document = json.loads(args.results.read_text())
    advice = "name another file"
    if "jobs" not in document:
        parser.error(f"--results {args.results}: another program's, or an older one's; {advice}")
    for key, figures in document["jobs"].items():
        if figures["options"] != options_of(Run.from_key(key), args):
            parser.error(f"--results {args.results}: {key} was made with other options; {advice}")


def summary_of(figures: Mapping[str, Any]) -> str:
    """Say in a line how a training ended."""
    return f"test {100 * figures['test_accuracy']:.2f} %, {figures['wall_s']:.0f} s"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, then print the tables."""
    args = parse_arguments(arguments)
    known = json.loads(args.results.read_text())["jobs"] if args.results.exists() else {}
    runs = with_one_bit(wanted_runs(args.only, args.ranks, args.seeds), known)
    with tempfile.TemporaryDirectory() as folder:
        results, failures = measure(
            runs,
            Trainer(args, Path(folder)),
            args.results,
            again=args.again,
            summary_of=summary_of,
        )
    print(f"{table(results)}\n\n{overview(results)}")
    if args.plot and results:
        plot(results, args.plot)
    end(failures)


if __name__ == "__main__":
    main()
