"""Train a GNN on a whole graph that is partitioned over Horovod ranks.

    horovodrun --gloo -np 4 python examples/full_graph.py --data cora.npz --model sage --codec 1

The model is plain PyTorch Geometric. What makes it distributed are the five lines marked (hvs).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import horovod.torch as hvd
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

import horovod_sylvie as hvs


class GNN(nn.Module):
    """A stack of convolutions with normalisation, ReLU and dropout between them.

    Dropout comes after the first convolution, so the features' halo rows are fetched once.
    """

    def __init__(self, args: argparse.Namespace, num_features: int, num_classes: int) -> None:
        super().__init__()
        widths = [num_features] + [args.hidden] * (args.layers - 1) + [num_classes]
        self.convs = nn.ModuleList(
            make_convolution(args, widths[i], widths[i + 1], last=i == args.layers - 1)
            for i in range(args.layers)
        )
        norms = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": nn.BatchNorm1d}
        self.norms = nn.ModuleList(norms[args.norm](width) for width in widths[1:-1])
        self.dropout = args.dropout
        self.weighted = args.model == "gcn"

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        """Return class scores. [I, F] to [I, C]."""
        extra = (edge_weight,) if self.weighted else ()
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = functional.relu(norm(conv(x, edge_index, *extra)))
            x = functional.dropout(x, self.dropout, self.training)
        return self.convs[-1](x, edge_index, *extra)


def make_convolution(
    args: argparse.Namespace, width_in: int, width_out: int, *, last: bool
) -> nn.Module:
    """Make one layer of the chosen kind."""
    if args.model == "sage":
        return SAGEConv(width_in, width_out)
    if args.model == "gcn":
        return GCNConv(width_in, width_out)
    if args.model == "gat":
        heads = 1 if last else args.heads
        return GATConv(width_in, width_out // heads, heads=heads)
    hidden = nn.Linear(width_in, args.hidden)
    mlp = nn.Sequential(hidden, nn.BatchNorm1d(args.hidden), nn.ReLU())
    return GINConv(mlp.append(nn.Linear(args.hidden, width_out)), train_eps=True)


def make_codec(args: argparse.Namespace) -> hvs.Codec:
    """Return how halo rows travel in training."""
    if args.codec == "full":
        return hvs.FullPrecision()
    if args.codec == "half":
        return hvs.Half()
    return hvs.OneBit(args.code) if args.codec == "1" else hvs.Bits(int(args.codec))


@contextlib.contextmanager
def partition_directory(args: argparse.Namespace, comm: hvs.HorovodCommunicator) -> Iterator[Path]:
    """Yield a partition for this number of ranks; make one from other input, on rank 0."""
    if hvs.is_partition(args.data):
        yield Path(args.data)
        return
    with contextlib.ExitStack() as stack:
        chosen = ""
        if comm.rank == 0:
            kept = args.parts_dir or stack.enter_context(tempfile.TemporaryDirectory())
            chosen = str(Path(kept).resolve() / f"{comm.size}-parts")
        directory = Path(hvs.gather_bytes(comm, chosen.encode(), name="parts")[0].decode())
        with hvs.together(comm, "partitioning"):
            if comm.rank == 0:
                report = hvs.partition_graph(
                    args.data,
                    directory,
                    comm.size,
                    root=args.root,
                    method=args.method,
                    overwrite=True,
                    progress=sys.stderr.isatty(),
                )
                print(report, flush=True)
        yield directory
        with hvs.together(comm, "leaving the partition"):
            pass  # nobody reads any more when rank 0 removes it


@dataclasses.dataclass
class History:
    """What training leaves behind."""

    loss: list[float] = dataclasses.field(default_factory=list)
    epoch_s: list[float] = dataclasses.field(default_factory=list)
    best: hvs.Evaluation | None = None


def train(
    args: argparse.Namespace, comm: hvs.HorovodCommunicator, part: hvs.Partition
) -> tuple[History, hvs.HaloExchange]:
    """Train and print one line every few epochs."""
    torch.manual_seed(args.seed)
    halo = hvs.HaloExchange(part, make_codec(args), comm=comm, seed=args.seed)  # (hvs)
    model = GNN(args, part.num_features, part.num_classes)
    model = hvs.convert_model(model, halo)  # (hvs)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.Adam(model.parameters(), args.lr, weight_decay=args.weight_decay)
    optimizer = hvs.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), op=hvd.Sum
    )
    torch.manual_seed(args.seed + 1000 * (1 + comm.rank))  # each rank drops out on its own
    history = History()
    for epoch in range(1, args.epochs + 1):
        start_s = time.perf_counter()
        model.train()
        optimizer.zero_grad()
        logits = model(part.x, part.edge_index, part.edge_weight)
        loss = hvs.loss_share(logits, part)  # (hvs)
        loss.backward()
        optimizer.step()
        history.loss.append(comm.allreduce(loss.detach().reshape(1), name="loss").wait().item())
        history.epoch_s.append(time.perf_counter() - start_s)
        if epoch % args.eval_every == 0 or epoch == args.epochs:
            model.eval()
            with torch.no_grad():
                logits = model(part.x, part.edge_index, part.edge_weight)
            evaluation = hvs.evaluate(logits, part, comm=comm)  # (hvs)
            if history.best is None or not evaluation.val <= history.best.val:
                history.best = evaluation
            if comm.rank == 0:
                print(epoch_line(args, epoch, history, evaluation, halo), flush=True)
    return history, halo


def epoch_line(
    args: argparse.Namespace,
    epoch: int,
    history: History,
    evaluation: hvs.Evaluation,
    halo: hvs.HaloExchange,
) -> str:
    """Say how training stands, in one line."""
    traffic = halo.traffic.total("forward", "backward")
    sent = "nothing to send"
    if traffic.bytes_sent:
        ratio = traffic.bytes_full_precision / traffic.bytes_sent
        sent = f"rank 0 sent {traffic.bytes_sent / epoch / 2**20:.3f} MiB/epoch "
        sent += f"({ratio:.1f}x less than full precision)"
    recent = sorted(history.epoch_s[-args.eval_every :])
    return (
        f"epoch {epoch:4d}/{args.epochs}  loss {history.loss[-1]:.4f}  "
        f"val {100 * evaluation.val:5.2f} %  {recent[len(recent) // 2]:.3f} s/epoch  {sent}"
    )


def summary(
    args: argparse.Namespace,
    comm: hvs.HorovodCommunicator,
    history: History,
    halo: hvs.HaloExchange,
) -> dict[str, object]:
    """Gather the figures of all ranks."""
    total = halo.traffic.total
    traffic = [total("forward", "backward"), total("features"), total("evaluation")]
    counts = torch.tensor([[t.bytes_sent, t.bytes_full_precision] for t in traffic])
    counts = comm.allreduce(counts, name="bytes").wait()
    assert history.best is not None
    num_evaluations = -(-args.epochs // args.eval_every)
    return vars(args) | {
        "loss": history.loss,
        "metric": history.best.metric,
        "test_accuracy": none_if_nan(history.best.test),
        "val_accuracy": none_if_nan(history.best.val),
        "epoch_s": history.epoch_s,
        "bytes_sent_per_epoch": counts[0, 0].item() / args.epochs,
        "bytes_full_precision_per_epoch": counts[0, 1].item() / args.epochs,
        "bytes_sent_for_features": counts[1, 0].item(),
        "bytes_sent_per_evaluation": counts[2, 0].item() / num_evaluations,
        "ranks": comm.size,
    }


def none_if_nan(value: float) -> float | None:
    """JSON has no NaN, which stands for a metric without nodes."""
    return None if math.isnan(value) else value


def write_json(path: Path, figures: dict[str, object]) -> None:
    """Write the file whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(figures, indent=1, allow_nan=False) + "\n")
    partial.replace(path)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
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
    add("--model", choices=["sage", "gcn", "gat", "gin"], default="sage")
    add("--layers", type=int, default=2)
    add("--hidden", type=int, default=64)
    add("--heads", type=int, default=4, help="attention heads of gat")
    add("--norm", choices=["none", "layer", "batch"], default="none")
    add("--epochs", type=int, default=100)
    add("--codec", choices=["full", "half", "1", "2", "4", "8"], default="1", help="halo rows")
    add("--code", choices=["minmax", "centroid"], default="minmax", help="of one-bit features")
    add("--lr", type=float, default=0.01)
    add("--weight-decay", type=float, default=0.0)
    add("--dropout", type=float, default=0.5)
    add("--seed", type=int, default=0)
    add("--eval-every", type=int, default=10, help="epochs; the best on validation is reported")
    add("--json", help="write losses, accuracies, times, bytes and options to this file")
    args = parser.parse_args()
    for name in ("layers", "hidden", "heads", "epochs", "eval_every"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: expected at least 1")
    if args.model == "gat" and args.hidden % args.heads:
        parser.error(f"--hidden ({args.hidden}) must be a multiple of --heads ({args.heads})")
    if args.code != "minmax" and args.codec != "1":
        parser.error("--code centroid: only for --codec 1")
    if hvs.is_partition(args.data):
        for name in ("root", "parts_dir", "method"):
            if getattr(args, name) != parser.get_default(name):
                option = f"--{name.replace('_', '-')}"
                parser.error(f"{option}: --data {args.data} is a partition already")
    if args.json and not Path(args.json).resolve().parent.is_dir():
        parser.error(f"--json {args.json}: its directory does not exist")
    return args


def main() -> None:
    """Partition if need be, train, and report."""
    args = parse_arguments()
    logging.basicConfig(level=os.environ.get("HVS_LOG", "warning").upper())
    hvd.init()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // hvd.local_size()))
    comm = hvs.HorovodCommunicator()
    with partition_directory(args, comm) as directory, hvs.together(comm, "loading the partition"):
        part = hvs.load_partition(directory, comm.rank, comm.size, split=args.split)  # (hvs)
    if args.feature_norm == "l2":
        part = dataclasses.replace(part, x=functional.normalize(part.x))
    history, halo = train(args, comm, part)
    figures = summary(args, comm, history, halo)
    if comm.rank == 0:
        print(
            f"test {figures['metric']} {100 * history.best.test:.2f} % at the best validation "
            f"{100 * history.best.val:.2f} %; all {comm.size} ranks sent "
            f"{figures['bytes_sent_per_epoch'] / 2**20:.3f} MiB per epoch, full precision sends "
            f"{figures['bytes_full_precision_per_epoch'] / 2**20:.3f} MiB"
        )
        if args.json:
            write_json(Path(args.json), figures)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        rank = os.environ.get("HOROVOD_RANK", "?")
        print(f"rank {rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        logging.getLogger(__name__).debug("traceback", exc_info=True)
        # Not sys.exit: Horovod's shutdown waits for ranks that may never answer.
        os._exit(1)
