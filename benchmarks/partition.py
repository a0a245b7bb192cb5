"""What cutting a graph costs, and what the pieces look like, for graphs of growing size.

    python benchmarks/partition.py --json benchmarks/results/partition.json [--plot FILE.png]
    python benchmarks/partition.py --json FILE --sizes 200000x20 --parts 2 4 8 --epochs 3

Each graph is synthetic, drawn once and kept as a .npz file; each job is one process, the command
`python -m horovod_sylvie partition`, so its time and its peak memory are those of a user's run:
reading, METIS, writing. "random" is METIS left out: what everything else costs, and what METIS is
worth. With --epochs, the pieces are then trained on, full graph, by `examples/full_graph.py` under
horovodrun: GraphSAGE of two layers at one bit, every rank on this machine; an epoch's time is the
median of those after the first.

Jobs that are in the file already are not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from launched_jobs import end, measure, run_or_raise
from launchers import RANKS_HOROVODRUN

from horovod_sylvie.partition.synthetic import make_graph
from horovod_sylvie.partition.synthetic_spec import SyntheticSpec

_EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "full_graph.py"
_HIDDEN: Final = 32
_GIB: Final = 1 << 30
_METHODS: Final = ("metis", "random")


@dataclass(frozen=True)
class PartitionJob:
    """One cut of one graph.

    Attributes:
        num_nodes: Of the graph.
        degree: Its mean degree.
        num_parts: Pieces.
        method: How owners are chosen.
    """

    num_nodes: int
    degree: int
    num_parts: int
    method: str

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.num_nodes}x{self.degree}|{self.num_parts}|{self.method}"


class Partitioning:
    """Runs jobs, on graphs that are drawn once.

    Args:
        args: The command line.
        folder: Where graphs and pieces are kept.
    """

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args = args
        self._folder = folder

    def __call__(self, job: PartitionJob) -> dict[str, Any]:
        """Cut, and train if that is asked for.

        Args:
            job: Which.

        Returns:
            The report's figures, and those of the training.

        Raises:
            RuntimeError: A process failed; the text has the end of its output.
        """
        graph = self._graph_of(job)
        pieces = self._folder / "pieces"
        command = [sys.executable, "-m", "horovod_sylvie", "partition", str(graph), str(pieces)]
        command += ["--parts", str(job.num_parts), "--method", job.method]
        self._run([*command, "--overwrite"], job.key)
        report = json.loads((pieces / "partition.json").read_text())["report"]
        ranks = report["ranks"]
        figures = {
            "num_nodes": report["num_nodes"],
            "num_messages": report["num_edges"],
            "num_parts": job.num_parts,
            "method": job.method,
            "seconds": round(report["seconds"], 2),
            "input_bytes": report["input_bytes"],
            "peak_bytes": report["peak_bytes"],
            "edge_share": report["edge_share"],
            "cut_share": report["cut_share"],
            "halo_per_inner": sum(each["num_halo"] for each in ranks) / report["num_nodes"],
            "edge_balance": report["edge_balance"],
            "node_balance": report["node_balance"],
        }
        return figures | (self._train(job, pieces) if self._args.epochs else {})

    def _graph_of(self, job: PartitionJob) -> Path:
        """Return the file of a graph; the last one is kept, as large ones fill disks."""
        file = self._folder / f"{job.num_nodes}x{job.degree}.npz"
        if not file.exists():
            for other in self._folder.glob("*.npz"):
                other.unlink()
            write_graph(job, self._args.features, file)
        return file

    def _train(self, job: PartitionJob, pieces: Path) -> dict[str, Any]:
        file = self._folder / "training.json"
        launcher = shlex.split(self._args.launcher.format(ranks=job.num_parts))
        command = [*launcher, sys.executable, str(_EXAMPLE), "--data", str(pieces)]
        command += ["--layers", "2", "--hidden", str(_HIDDEN), "--codec", "1"]
        command += ["--epochs", str(self._args.epochs), "--eval-every", str(self._args.epochs)]
        self._run([*command, "--json", str(file)], f"{job.key}, training")
        figures = json.loads(file.read_text())
        return {
            "epoch_s": statistics.median(figures["epoch_s"][1:]),
            "bytes_sent_per_epoch": figures["bytes_sent_per_epoch"],
        }

    def _run(self, command: Sequence[str], what: str) -> None:
        run_or_raise(command, self._folder / "output.txt", f"{what}:", self._args.timeout)


def write_graph(job: PartitionJob, num_features: int, file: Path) -> None:
    """Draw a graph, and keep it as users keep theirs.

    Args:
        job: Which.
        num_features: Columns of its features.
        file: File to write.
    """
    graph = make_graph(SyntheticSpec(nodes=job.num_nodes, degree=job.degree, features=num_features))
    np.savez(
        file,
        num_nodes=np.int64(graph.num_nodes),
        edge_index=graph.edge_index,
        x=graph.x,
        y=graph.y,
        train_mask=graph.train_mask,
        val_mask=graph.val_mask,
        test_mask=graph.test_mask,
    )


def wanted_jobs(args: argparse.Namespace) -> Iterator[PartitionJob]:
    """Yield what the command line asks for, all of a graph together."""
    for size in args.sizes:
        nodes, degree = (int(each) for each in size.split("x"))
        for num_parts in args.parts:
            for method in args.methods:
                yield PartitionJob(nodes, degree, num_parts, method)


def summary_of(figures: Mapping[str, Any]) -> str:
    """Say in a line what a job took."""
    return (
        f"{figures['seconds']:.1f} s, {figures['peak_bytes'] / _GIB:.2f} GiB, "
        f"cut {figures['cut_share']:.1%}"
    )


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return all results as a Markdown table."""
    lines = [
        "| nodes | messages | parts | method | seconds | input, GiB | peak, GiB | METIS saw | cut "
        "| halo / inner | balance: edges, nodes | epoch, s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in results.values():
        saw = f"{each['edge_share']:.0%}" if each["method"] == "metis" else "-"
        epoch = f"{each['epoch_s']:.1f}" if "epoch_s" in each else "-"
        lines.append(
            f"| {each['num_nodes']:,} | {each['num_messages']:,} | {each['num_parts']} "
            f"| {each['method']} | {each['seconds']:.1f} | {each['input_bytes'] / _GIB:.2f} "
            f"| {each['peak_bytes'] / _GIB:.2f} | {saw} | {each['cut_share']:.1%} "
            f"| {each['halo_per_inner']:.2f} "
            f"| {each['edge_balance']:.3f}, {each['node_balance']:.3f} | {epoch} |"
        )
    return "\n".join(lines)


def draw(results: Mapping[str, Mapping[str, Any]], picture: Path) -> None:
    """Draw time, memory and halo over the size of the graph.

    Args:
        results: What was measured.
        picture: File to write.
    """
    from matplotlib import pyplot

    panels_of = {
        "seconds": lambda each: each["seconds"],
        "peak memory / input": lambda each: each["peak_bytes"] / each["input_bytes"],
        "halo nodes / inner nodes": lambda each: each["halo_per_inner"],
    }
    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    kinds = sorted({(each["method"], each["num_parts"]) for each in results.values()})
    for panel, (label, value_of) in zip(panels, panels_of.items(), strict=True):
        for method, num_parts in kinds:
            points = sorted(
                (each["num_messages"], value_of(each))
                for each in results.values()
                if (each["method"], each["num_parts"]) == (method, num_parts)
            )
            style = "-o" if method == "metis" else "--o"
            panel.plot(
                *zip(*points, strict=True), style, markersize=3, label=f"{method}, {num_parts}"
            )
        panel.set_xscale("log")
        panel.set_xlabel("messages")
        panel.set_title(label, fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yscale("log")
    panels[0].legend(frameon=False, fontsize=8, title="method, parts")
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    sizes = ["20000x15", "200000x20", "1000000x30", "2000000x30"]
    add("--json", type=Path, required=True, help="kept and added to")
    add("--sizes", nargs="+", default=sizes, metavar="NODESxDEGREE")
    add("--features", type=int, default=32)
    add("--parts", type=int, nargs="+", default=[4])
    add("--methods", nargs="+", choices=_METHODS, default=_METHODS)
    add("--epochs", type=int, default=0, help="train so many on each; at least 2")
    add("--launcher", default=RANKS_HOROVODRUN, help="starts a command on {ranks} ranks")
    add("--timeout", type=float, default=1800.0, metavar="S", help="for a process")
    add("--folder", type=Path, help="for graphs and pieces, some GB; default: a temporary one")
    add("--again", action="store_true", help="run jobs that are in the file too")
    add("--plot", type=Path, help="draw the figures to this file")
    args = parser.parse_args(arguments)
    for size in args.sizes:
        if not all(each.isdigit() for each in size.split("x")) or size.count("x") != 1:
            parser.error(f"--sizes: expected NODESxDEGREE, such as 20000x15, got {size!r}")
    if args.epochs == 1:
        parser.error("--epochs: expected 0, or at least 2: the first is not counted")
    return args


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the table."""
    args = parse_arguments(arguments)
    with contextlib.ExitStack() as stack:
        folder = args.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        results, failures = measure(
            wanted_jobs(args),
            Partitioning(args, folder),
            args.json,
            again=args.again,
            summary_of=summary_of,
        )
    print(table(results))
    if args.plot and results:
        draw(results, args.plot)
    end(failures)


if __name__ == "__main__":
    main()
