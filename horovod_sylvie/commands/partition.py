"""`python -m horovod_sylvie partition`: split a graph into one piece per rank.

Here: the arguments, the printed report and the exit status. Not here: any of the work
(`horovod_sylvie.partition`).
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from types import FrameType

_INPUT_HELP = """\
INPUT is one of
  graph.npz              arrays as described in docs/partition.md
  data.pt                a PyG Data saved with torch.save
  Cora, Planetoid/PubMed, Reddit, ogbn-arxiv
                         a dataset of PyG or OGB, kept at --root
  synthetic:KEY=VALUE,...
                         a degree-corrected block model; keys and defaults: {fields}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments.

    Args:
        parser: The command's own parser.
    """
    from horovod_sylvie.partition.synthetic_spec import describe_fields

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _INPUT_HELP.format(fields=describe_fields())
    parser.add_argument("input", metavar="INPUT", help="the graph, see below")
    parser.add_argument("outdir", metavar="OUTDIR", help="where to write; must not exist yet")
    parser.add_argument("--parts", type=int, required=True, metavar="P", help="how many ranks")
    parser.add_argument(
        "--method", default="metis", help="metis, random or contiguous; default: metis"
    )
    parser.add_argument("--root", metavar="DIR", help="where named datasets are kept")
    parser.add_argument(
        "--target",
        choices=("y", "y_multi"),
        help="labels of a .npz file that holds both (default: y)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="default: 0")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a partitioning that is at OUTDIR"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Partition and print the report.

    Args:
        arguments: What `add_arguments` asked for.

    Returns:
        0 when the partitioning is in place; 2 when it is not, with the reason on stderr.
    """
    try:
        from horovod_sylvie.partition.partitioner import partition_graph
    except ModuleNotFoundError as error:
        return _fail(f"{error}. Run `pip install 'horovod_sylvie[gnn]'`.")
    # A terminated run must leave as an interrupted one does: through the clean-up.
    previous = signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        report = partition_graph(
            arguments.input,
            arguments.outdir,
            arguments.parts,
            root=arguments.root,
            target=arguments.target,
            method=arguments.method,
            seed=arguments.seed,
            overwrite=arguments.overwrite,
            progress=sys.stderr.isatty(),
        )
    except (ImportError, OSError, RuntimeError, TypeError, ValueError, MemoryError) as error:
        return _fail(str(error) or type(error).__name__)
    finally:
        signal.signal(signal.SIGTERM, previous)
    print(json.dumps(report.to_json(), indent=1) if arguments.json else report)
    return 0


def _fail(reason: str) -> int:
    """Print the reason on one line, whatever a library put into it; return the exit status."""
    sys.stderr.write(f"python -m horovod_sylvie partition: {' '.join(reason.split())}\n")
    return 2


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)
