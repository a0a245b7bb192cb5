"""The command line of `dense.py`: what is wrong with it is said before any rank waits."""

from __future__ import annotations

import argparse
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path

from dense_data import KINDS
from dense_models import MODELS

WIDTHS = (("mlp", 512), ("resnet20", 16), ("lstm", 128))
RANGES: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("width", lambda value: value >= 2, "at least 2"),
    ("chunk", lambda value: value >= 1, "at least 1"),
    ("epochs", lambda value: value >= 1, "at least 1"),
    ("batch_size", lambda value: value >= 1, "at least 1"),
    ("backward_passes", lambda value: value >= 1, "at least 1"),
    ("lr", lambda value: 0 < value < math.inf, "a number above 0"),
    ("momentum", lambda value: 0 <= value < 1, "a number from 0 to below 1"),
    ("weight_decay", lambda value: 0 <= value < math.inf, "a number from 0"),
    ("clip_norm", lambda value: value > 0, "a number above 0"),
    ("seed", lambda value: value >= 0, "at least 0"),
    ("density", lambda value: 0 < value <= 1, "a number above 0 and at most 1"),
    ("min_density", lambda value: 0 < value <= 1, "a number above 0 and at most 1"),
    ("warmup_steps", lambda value: value >= 0, "at least 0"),
    ("min_elements", lambda value: value >= 0, "at least 0"),
    ("telemetry_every", lambda value: value >= 0, "at least 0"),
)
SPARSE = ("topk", "lags")
SPARSE_ONLY = (
    "density",
    "warmup_steps",
    "momentum_mode",
    "min_elements",
    "value_dtype",
    "telemetry_every",
)


def parse_arguments(description: str) -> argparse.Namespace:
    """Read the command line, and leave with one line where it makes no sense."""
    parser = make_parser(description)
    args = parser.parse_args()
    if args.width is None:
        args.width = dict(WIDTHS)[args.model]
    for name, is_valid, expected in RANGES:
        value = getattr(args, name)
        if value is not None and not is_valid(value):
            parser.error(f"{option(name)}: expected {expected}, got {value}")
    check_compression(parser, args)
    if args.momentum_mode == "dgc" and args.momentum == 0:
        parser.error("--momentum-mode dgc: needs a --momentum above 0")
    if args.json and not Path(args.json).resolve().parent.is_dir():
        parser.error(f"--json {args.json}: its directory does not exist")
    if args.report and Path(args.report).is_file():
        parser.error(f"--report {args.report}: it is a file; name a directory")
    if args.tensorboard and importlib.util.find_spec("tensorboard") is None:
        parser.error("--tensorboard: its package is missing. Run: pip install tensorboard")
    return args


def check_compression(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Leave with one line where an option does not go with the compression."""
    if args.compression not in SPARSE:
        for name in SPARSE_ONLY:
            if getattr(args, name) != parser.get_default(name):
                parser.error(f"{option(name)}: only for --compression topk or lags")
    if args.compression != "lags" and args.min_density != parser.get_default("min_density"):
        parser.error("--min-density: only for --compression lags")
    if args.compression == "lags" and args.min_density > args.density:
        parser.error(f"--min-density: expected at most {args.density} (--density)")


def option(name: str) -> str:
    """Return an argument's name on the command line."""
    return f"--{name.replace('_', '-')}"


def make_parser(description: str) -> argparse.ArgumentParser:
    """Return the parser of all options."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_training(parser.add_argument_group("training").add_argument)
    add_compression(parser.add_argument_group("gradients").add_argument)
    add = parser.add_argument_group("output").add_argument
    add("--telemetry-every", type=int, default=0, help="steps between samples of the error")
    add("--json", help="write losses, test figures, times, bytes and options to this file")
    add("--report", metavar="DIR", help="write a page about the run, report.html, and its figures")
    add("--tensorboard", metavar="DIR", help="write scalars there, for TensorBoard")
    return parser


def add_training(add: Callable[..., argparse.Action]) -> None:
    """Add what is trained, and how."""
    add("--model", choices=MODELS, default="mlp")
    add("--data", default="digits", help=f"{KINDS}; lstm reads text")
    add(
        "--width",
        type=int,
        help="hidden units of mlp (512) and lstm (128), channels of resnet20 (16)",
    )
    add("--chunk", type=int, default=64, help="characters of an example of text")
    add("--epochs", type=int, default=10)
    add("--batch-size", type=int, default=32, help="of each rank and backward pass")
    add("--backward-passes", type=int, default=1, help="passes whose gradients make one step")
    add("--lr", type=float, default=0.05, help="the largest; warms up, then falls as a cosine")
    add("--momentum", type=float, default=0.9)
    add("--weight-decay", type=float, default=0.0)
    add("--clip-norm", type=float, help="largest norm of the averaged gradient")
    add("--seed", type=int, default=0)


def add_compression(add: Callable[..., argparse.Action]) -> None:
    """Add how gradients travel."""
    add("--compression", choices=["none", "fp16", "bf16", *SPARSE], default="none")
    add(
        "--density",
        type=float,
        default=0.01,
        help="share of a gradient that topk sends, and lags at most",
    )
    add("--min-density", type=float, default=0.001, help="share that lags sends at least")
    add("--warmup-steps", type=int, default=0, help="steps in which the density comes down")
    add("--momentum-mode", choices=["post", "dgc"], default="post", help="after or before topk")
    add("--min-elements", type=int, default=1024, help="gradients smaller than this travel whole")
    add(
        "--value-dtype",
        choices=["bfloat16", "float32"],
        default="bfloat16",
        help="of selected values",
    )
