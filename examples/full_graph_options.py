"""The command line of `full_graph.py`: what is wrong with it is said before any rank waits."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from full_graph_checkpoint import epoch_of, newest_checkpoint
from full_graph_choices import make_bits, make_codec, make_compression, make_staleness
from full_graph_models import LAYERS

import horovod_sylvie as hvs

COUNTS = ("layers", "hidden", "heads", "epochs", "eval_every", "checkpoint_every")
# An option, and what must be chosen for it to mean anything
ONLY_FOR: tuple[tuple[str, str, tuple[object, ...]], ...] = (
    ("jk_mode", "model", ("jknet",)),
    ("jk_conv", "model", ("jknet",)),
    ("code", "codec", ("1", "auto")),
    ("refresh_every", "delta", (True,)),
    ("bits_policy", "codec", ("1",)),
    ("budget", "bits_policy", ("budget",)),
    ("base_bit", "bits_policy", ("degree",)),
    ("adapt_base", "bits_policy", ("degree",)),
    ("sync_every", "staleness", ("pipelined",)),
    ("start", "staleness", ("pipelined",)),
    ("max_drift", "staleness", ("bounded",)),
    ("warmup", "staleness", ("pipelined", "bounded")),
    ("density", "compression", ("topk", "lags")),
    ("min_elements", "compression", ("topk", "lags")),
)


def parse_arguments(description: str, given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line, and leave with one line where it makes no sense."""
    parser = make_parser(description)
    args = parser.parse_args(given)
    if args.layers is None:
        args.layers = dict(LAYERS)[args.model]
    for name in COUNTS:
        if getattr(args, name) < 1:
            parser.error(f"{option(name)}: expected at least 1")
    if args.model == "gat" and args.hidden % args.heads:
        parser.error(f"--hidden ({args.hidden}) must be a multiple of --heads ({args.heads})")
    for name, chooser, choices in ONLY_FOR:
        if is_given(parser, args, name) and getattr(args, chooser) not in choices:
            wanted = "" if choices == (True,) else f" {' or '.join(map(str, choices))}"
            parser.error(f"{shown(args, name)}: only for {option(chooser)}{wanted}")
    check_halo(parser, args)
    check_files(parser, args)
    return args


def check_halo(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Leave with one line where options on what travels do not go together."""
    if args.delta and args.bits_policy != "fixed":
        parser.error(
            f"--delta: changes have the codec's bits; leave out {shown(args, 'bits_policy')}"
        )
    if args.delta and args.codec in {"full", "auto"}:
        parser.error(f"--delta: only for a --codec of few bits, got {args.codec}")
    if args.codec == "auto" and args.staleness == "bounded":
        parser.error("--codec auto: not with --staleness bounded, whose waits change meanwhile")
    if args.bits_policy == "budget" and args.budget is None:
        parser.error("--bits-policy budget: needs --budget")
    if args.start == "zeros" and is_given(parser, args, "warmup"):
        parser.error("--warmup: --start zeros begins without one")
    try:
        for make in (make_codec, make_staleness, make_bits, make_compression):
            make(args)
    except (TypeError, ValueError) as error:
        parser.error(str(error))


def check_files(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Leave with one line where options on files and folders make no sense."""
    if hvs.is_partition(args.data):
        for name in ("root", "parts_dir", "method"):
            if is_given(parser, args, name):
                parser.error(f"{option(name)}: --data {args.data} is a partition already")
    if args.json and not Path(args.json).resolve().parent.is_dir():
        parser.error(f"--json {args.json}: its directory does not exist")
    if args.report and Path(args.report).is_file():
        parser.error(f"--report {args.report}: it is a file; name a directory")
    if args.checkpoint is not None:
        check_checkpoint(parser, args)
        return
    for name in ("resume", "checkpoint_every"):
        if is_given(parser, args, name):
            parser.error(f"{option(name)}: needs --checkpoint")


def check_checkpoint(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Leave with one line where a checkpoint is missing, or would be overwritten."""
    newest = newest_checkpoint(Path(args.checkpoint))
    if args.resume and newest is None:
        parser.error(f"--resume: there is no checkpoint in {args.checkpoint}")
    if newest is not None and not args.resume:
        parser.error(
            f"--checkpoint {args.checkpoint}: it holds {newest.name} already. Give --resume, or "
            "another directory"
        )
    if newest is not None and epoch_of(newest) > args.epochs:
        parser.error(f"--resume: {newest} is beyond --epochs {args.epochs}")


def is_given(parser: argparse.ArgumentParser, args: argparse.Namespace, name: str) -> bool:
    """Return whether an argument is not the default."""
    return bool(getattr(args, name) != parser.get_default(name))


def option(name: str) -> str:
    """Return an argument's name on the command line."""
    return f"--{name.replace('_', '-')}"


def shown(args: argparse.Namespace, name: str) -> str:
    """Return an argument as it was given."""
    value = getattr(args, name)
    return option(name) if value is True else f"{option(name)} {value}"


def make_parser(description: str) -> argparse.ArgumentParser:
    """Return the parser of all options."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_graph(parser.add_argument_group("graph").add_argument)
    add_training(parser.add_argument_group("model and training").add_argument)
    add_halo(parser.add_argument_group("halo rows").add_argument)
    add_staleness(parser.add_argument_group("age of halo rows").add_argument)
    add_gradients(parser.add_argument_group("gradients of weights").add_argument)
    add_output(parser.add_argument_group("output").add_argument)
    return parser


def add_graph(add: Callable[..., argparse.Action]) -> None:
    """Add what is trained on."""
    add(
        "--data",
        required=True,
        help="partition directory, .npz, saved PyG Data, data set name, "
        "or synthetic:nodes=20000,...; all but the first are partitioned here, on rank 0",
    )
    add("--root", help="where the named data set is, or is downloaded to")
    add("--parts-dir", help="keep the partition here (default: a temporary directory)")
    add("--method", choices=["metis", "random", "contiguous"], default="metis")
    add("--split", type=int, default=0, help="column of the masks, where they have several")
    add("--feature-norm", choices=["none", "l2"], default="none", help="scale each feature row")


def add_training(add: Callable[..., argparse.Action]) -> None:
    """Add what is trained, and how."""
    add("--model", choices=[name for name, _ in LAYERS], default="sage")
    add("--layers", type=int, help="default: 8 for jknet, else 2")
    add("--hidden", type=int, default=64)
    add("--heads", type=int, default=4, help="attention heads of gat")
    add("--jk-conv", choices=["sage", "gcn"], default="sage", help="convolutions of jknet")
    add("--jk-mode", choices=["cat", "max"], default="cat", help="how jknet joins its layers")
    add("--norm", choices=["none", "layer", "batch"], default="none")
    add("--epochs", type=int, default=100)
    add("--lr", type=float, default=0.01)
    add("--weight-decay", type=float, default=0.0)
    add("--dropout", type=float, default=0.5)
    add("--seed", type=int, default=0)


def add_halo(add: Callable[..., argparse.Action]) -> None:
    """Add how halo rows are encoded, and where they leave a layer."""
    codecs = ["full", "half", "1", "2", "4", "8", "auto"]
    add("--codec", choices=codecs, default="1", help="auto: 1 or full, whichever is faster here")
    add("--code", choices=["minmax", "centroid"], default="minmax", help="of one-bit features")
    add("--delta", action="store_true", help="send changes of features; not for minmax of 1 or 2")
    add("--refresh-every", type=int, default=50, help="epochs from one exact exchange to the next")
    add(
        "--bits-policy",
        choices=["fixed", "degree", "budget"],
        default="fixed",
        help="bits of each row: the codec's, more for nodes of high degree, or the best for a "
        "budget",
    )
    add("--budget", type=int, metavar="BYTES", help="of an epoch's halo rows, over all ranks")
    add("--base-bit", type=int, choices=[1, 2, 4, 8], default=1, help="fewest bits by degree")
    add("--adapt-base", action="store_true", help="the loss changes the fewest bits")
    add("--no-overlap", action="store_true", help="wait for halo rows before aggregating any row")
    add("--no-smaller-side", action="store_true", help="send the input of each layer, not products")


def add_staleness(add: Callable[..., argparse.Action]) -> None:
    """Add when rows of the epoch before are used."""
    add(
        "--staleness",
        choices=["sync", "pipelined", "bounded"],
        default="sync",
        help="use rows of the epoch before: never, always, or where they change little",
    )
    add("--sync-every", type=int, metavar="EPOCHS", help="from one that waits to the next")
    add("--max-drift", type=float, default=0.1, help="largest relative change that is little")
    add("--warmup", type=int, default=5, metavar="EPOCHS", help="at first, that wait")
    add(
        "--start",
        choices=["synchronous", "zeros"],
        default="synchronous",
        help="zeros: the first epoch computes with zeros and no epoch waits",
    )


def add_gradients(add: Callable[..., argparse.Action]) -> None:
    """Add how gradients of weights travel."""
    add("--compression", choices=["none", "topk", "lags"], default="none")
    add("--density", type=float, default=0.01, help="share that topk sends, and lags at most")
    add("--min-elements", type=int, default=1024, help="gradients smaller than this travel whole")


def add_output(add: Callable[..., argparse.Action]) -> None:
    """Add what is printed and kept."""
    add("--eval-every", type=int, default=10, help="epochs; the best on validation is reported")
    add("--json", help="write losses, accuracies, times, bytes and options to this file")
    add("--report", metavar="DIR", help="write a page about the run, report.html, and its figures")
    add("--checkpoint", metavar="DIR", help="keep the newest checkpoint here, for all ranks to see")
    add("--checkpoint-every", type=int, default=10, metavar="EPOCHS", help="and after the last")
    add("--resume", action="store_true", help="go on from the checkpoint, up to --epochs")
