"""Test accuracy of the ways in which halo rows travel, several seeds, on real graphs.

    python benchmarks/accuracy.py FOLDER_OF_GRAPHS --results benchmarks/results/accuracy.json

Trains with `examples/full_graph.py` under horovodrun for every graph, model, number of ranks, mode
and seed; the same seed gives the same partition, initial weights and dropout, so only the halo rows
differ. All modes of one seed are one job. Runs that are in the results file already are not run
again. Prints tables in Markdown:
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from launched_jobs import end, keep, kept_in, run_or_raise
from launchers import KEEP_MEMORY, RANKS_HOROVODRUN
from tqdm import tqdm

import horovod_sylvie as hvs

_RANK: Final = Path(__file__).with_name("accuracy_rank.py")
_EVERY: Final = 5  # epochs between the losses that are kept


@dataclass(frozen=True)
class Batch:
    """Trainings of one seed, which one job does one after the other.

    Attributes:
        setting: In which they are compared.
        seed: Of all.
        modes: What differs.
    """

    setting: Setting
    seed: int
    modes: tuple[str, ...]

    @property
    def runs(self) -> list[Run]:
        """The trainings."""
        return [Run(self.setting, mode, self.seed) for mode in self.modes]


def wanted_batches(only: Sequence[str], ranks: Sequence[int], num_seeds: int) -> list[Batch]:
    """Return what is asked for: one seed of everything, then the next.

    Args:
        only: Names of graphs, models and modes.
        ranks: Numbers of ranks.
        num_seeds: Seeds from 0.
    """

    def chosen(known: Sequence[str], default: Sequence[str]) -> list[str]:
        return [each for each in known if each in only] or list(default)

    modes = tuple(chosen(list(MODES), list(MODES)))
    return [
        Batch(Setting(graph, model, num_ranks), seed, modes)
        for seed in range(num_seeds)
        for num_ranks in ranks
        for graph in chosen(list(GRAPHS), DEFAULT_GRAPHS)
        for model in chosen(list(MODELS), list(MODELS))
    ]


def missing_in(batch: Batch, results: Mapping[str, Any]) -> Batch:
    """Return what of a batch is not there; a budget needs the training at one bit before it."""
    modes = [run.mode for run in batch.runs if run.key not in results]
    if BUDGET in modes and ONE_BIT not in modes:
        modes.insert(0, ONE_BIT)
    return replace(batch, modes=tuple(modes))


class Trainer:
    """Runs jobs, on partitions that are made once.

    Args:
        args: The command line.
        folder: Where partitions are kept.
    """

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args = args
        self._folder = folder

    def __call__(self, batch: Batch) -> dict[str, dict[str, Any]]:
        """Train.

        Args:
            batch: What.

        Returns:
            What the tables and the picture need, by the runs' keys. Runs that were not finished are
            missing; the end of the job's output was printed then.
        """
        output, report = self._folder / "output.txt", self._folder / "report.jsonl"
        report.unlink(missing_ok=True)
        launcher = self._args.launcher.format(ranks=batch.setting.num_ranks)
        options = {run.mode: options_of(run, self._args) for run in batch.runs}
        command = [*KEEP_MEMORY, *shlex.split(launcher), sys.executable, str(_RANK)]
        command += ["--report", str(report), "--data", str(self._partition(batch.setting))]
        timeout_s = self._args.timeout * len(batch.modes)
        command.append(json.dumps(options))
        try:
            run_or_raise(command, output, f"{batch.runs[0].key}: the job", timeout_s)
        except RuntimeError as error:
            tqdm.write(str(error))
        lines = report.read_text().splitlines() if report.exists() else []
        done = [json.loads(line) for line in lines]
        return {
            Run(batch.setting, each["mode"], batch.seed).key: kept(each["figures"])
            | {"options": options[each["mode"]]}
            for each in done
        }

    def _partition(self, setting: Setting) -> Path:
        """Return the partition of a graph, made where it is not there."""
        parts = self._folder / f"{setting.graph}-{setting.num_ranks}"
        if not hvs.is_partition(parts):
            graph = self._args.graphs / setting.graph / f"{setting.graph}.npz"
            hvs.partition_graph(graph, parts, setting.num_ranks)
        return parts


def options_of(run: Run, args: argparse.Namespace) -> str:
    """Return a run's command line with what every recipe is given more."""
    return f"{run.options} {args.more}".strip()


def kept(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a training's own report."""
    names = ["metric", "test_accuracy", "val_accuracy", "wall_s"]
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
    add("--launcher", default=RANKS_HOROVODRUN, help="starts a command on {ranks} ranks")
    add("--timeout", type=float, default=900.0, metavar="S", help="for a training, in the mean")
    add("--again", action="store_true", help="run trainings that are in the file too")
    add("--plot", type=Path, help="draw the loss curves to this file")
    args = parser.parse_args(arguments)
    if args.results.exists():
        check_results(parser, args)
    return args


def check_results(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End with a message where the results are not of these recipes."""
    document = kept_in(args.results)
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
    document = kept_in(args.results)
    results: dict[str, dict[str, Any]] = document["jobs"]
    failures: list[str] = []
    batches = wanted_batches(args.only, args.ranks, args.seeds)
    if not args.again:
        batches = [missing_in(batch, results) for batch in batches]
    with tempfile.TemporaryDirectory() as folder:
        train = Trainer(args, Path(folder))
        for batch in tqdm([batch for batch in batches if batch.modes], unit="job"):
            done = train(batch)
            failures += [run.key for run in batch.runs if run.key not in done]
            results |= done
            keep(document, args.results)
            for key, figures in done.items():
                tqdm.write(f"{key}: {summary_of(figures)}")
    print(f"{table(results)}\n\n{overview(results)}")
    if args.plot and results:
        plot(results, args.plot)
    end(failures)


if __name__ == "__main__":
    main()
