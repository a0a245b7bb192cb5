"""Train a GNN on a whole graph that is partitioned over Horovod ranks.

    horovodrun --gloo -np 4 python examples/full_graph.py --data cora.npz --model sage --codec 1

The model is plain PyTorch Geometric. What makes it distributed are the lines marked (hvs).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from full_graph_checkpoint import load_checkpoint, newest_checkpoint, save_checkpoint
from full_graph_choices import make_bits, make_codec, make_compression, make_staleness
from full_graph_models import make_model
from full_graph_options import parse_arguments
from full_graph_report import History, epoch_line, last_line, shares_of, summary
from json_file import write_json
from torch import Tensor, nn
from torch.nn import functional

import horovod_sylvie as hvs


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


def make_halo(
    args: argparse.Namespace, comm: hvs.HorovodCommunicator, part: hvs.Partition
) -> hvs.HaloExchange:
    """Make this rank's end of the halo exchange, by the options."""
    return hvs.HaloExchange(
        part,
        make_codec(args),
        staleness=make_staleness(args),
        bits=make_bits(args),
        overlap=not args.no_overlap,
        smaller_side=not args.no_smaller_side,
        comm=comm,
        seed=args.seed,
    )


def train(
    args: argparse.Namespace,
    comm: hvs.HorovodCommunicator,
    part: hvs.Partition,
    page: hvs.RunReport | None,
) -> tuple[History, hvs.HaloExchange]:
    """Train, print one line every few epochs, and keep checkpoints where they are asked for."""
    torch.manual_seed(args.seed)
    halo = make_halo(args, comm, part)  # (hvs)
    model = make_model(args, part.num_features, part.num_classes)
    model = hvs.convert_model(model, halo)  # (hvs)
    optimizer = torch.optim.Adam(model.parameters(), args.lr, weight_decay=args.weight_decay)
    optimizer = hvs.DistributedOptimizer(  # (hvs)
        optimizer,
        named_parameters=model.named_parameters(),
        op=hvd.Sum,
        compression=make_compression(args),
        halo=halo,
    )
    torch.manual_seed(args.seed + 1000 * (1 + comm.rank))  # each rank drops out on its own
    history = resume(args, comm, model, optimizer) if args.resume else History()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for epoch in range(len(history.loss) + 1, args.epochs + 1):
        start_s = time.perf_counter()
        loss = take_step(model, optimizer, part, halo)
        history.add_epoch(comm, loss, halo.last_epoch)
        history.epoch_s.append(time.perf_counter() - start_s)
        evaluation = None
        if epoch % args.eval_every == 0 or epoch == args.epochs:
            evaluation = hvs.evaluate(predict(model, part), part, comm=comm)  # (hvs)
            history.add_evaluation(evaluation)
            if comm.rank == 0:
                print(epoch_line(args, history, evaluation, halo.last_epoch), flush=True)
        if args.checkpoint and (epoch % args.checkpoint_every == 0 or epoch == args.epochs):
            save_checkpoint(Path(args.checkpoint), comm, model, optimizer, history)
        if page:
            page.add_epoch(  # (hvs)
                epoch=epoch,
                loss=history.loss[-1],
                accuracy=shares_of(evaluation),
                seconds=history.epoch_s[-1],
                steps=1,
                optimizer=optimizer,
                halo=halo,
            )
    halo.drain()  # (hvs)
    if page:
        page.write()  # (hvs): all ranks
    return history, halo


def make_report(args: argparse.Namespace, comm: hvs.HorovodCommunicator) -> hvs.RunReport | None:
    """Return what makes a page about the run, where one is asked for. Collective."""
    if not args.report:
        return None
    title = f"{args.model} on {args.data}, codec {args.codec}"
    return hvs.RunReport(args.report, comm=comm, title=title, options=vars(args))  # (hvs)


def take_step(
    model: nn.Module, optimizer: Any, part: hvs.Partition, halo: hvs.HaloExchange
) -> Tensor:
    """Train one epoch, which is one step, and return this rank's share of the loss."""
    model.train()
    optimizer.zero_grad()
    logits = model(part.x, part.edge_index, part.edge_weight)
    loss = hvs.loss_share(logits, part)  # (hvs)
    halo.record_loss(loss)  # (hvs): for bits that adapt by the loss, else nothing
    loss.backward()
    optimizer.step()
    return loss.detach()


@torch.no_grad()
def predict(model: nn.Module, part: hvs.Partition) -> Tensor:
    """Return class scores of the inner nodes. [I, C]; all ranks call it."""
    model.eval()
    return model(part.x, part.edge_index, part.edge_weight)


def resume(
    args: argparse.Namespace, comm: hvs.HorovodCommunicator, model: nn.Module, optimizer: Any
) -> History:
    """Take over the newest checkpoint, and what was noted until then."""
    folder = newest_checkpoint(Path(args.checkpoint))
    assert folder is not None, "the command line was checked"
    history = load_checkpoint(folder, comm, model, optimizer)
    if comm.rank == 0:
        print(f"going on behind epoch {len(history.loss)}, from {folder}", flush=True)
    return history


def run(args: argparse.Namespace, comm: hvs.HorovodCommunicator) -> dict[str, Any]:
    """Partition if need be, train, and return the figures."""
    page = make_report(args, comm)  # first: it may be that it cannot be written
    with partition_directory(args, comm) as directory, hvs.together(comm, "loading the partition"):
        part = hvs.load_partition(directory, comm.rank, comm.size, split=args.split)  # (hvs)
    if args.feature_norm == "l2":
        part = dataclasses.replace(part, x=functional.normalize(part.x))
    history, halo = train(args, comm, part, page)
    if comm.rank == 0:
        print(last_line(args, history))
    return summary(args, comm, history, halo)


def main() -> None:
    """Start Horovod, train, and report."""
    args = parse_arguments(__doc__)
    logging.basicConfig(level=os.environ.get("HVS_LOG", "warning").upper())
    hvd.init()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // hvd.local_size()))
    comm = hvs.HorovodCommunicator()
    figures = run(args, comm)
    if comm.rank == 0 and args.json:
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
