"""Train a small model on Horovod ranks that exchange whole or sparse gradients.

    horovodrun --gloo -np 4 python examples/dense.py --model mlp --data digits --compression topk

A usual Horovod program, but for the one statement marked (hvs).
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from dense_data import Dataset, read_dataset
from dense_models import make_model
from dense_options import SPARSE, parse_arguments
from json_file import finite, write_json
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

import horovod_sylvie as hvs


def make_compression(args: argparse.Namespace) -> Any:
    """Return how gradients travel."""
    policy = getattr(hvs.Compression, args.compression)
    if args.compression not in SPARSE:
        return policy
    bounds: dict[str, Any] = {"density": args.density}
    if args.compression == "lags":
        bounds = {"min_density": args.min_density, "max_density": args.density}
    return policy(
        **bounds,
        value_dtype=getattr(torch, args.value_dtype),
        min_elements=args.min_elements,
        warmup=hvs.Warmup(steps=args.warmup_steps) if args.warmup_steps else None,
    )


def make_training(args: argparse.Namespace, data: Dataset) -> tuple[nn.Module, Any]:
    """Make the model and its optimizer, equal on all ranks."""
    torch.manual_seed(args.seed)
    model = make_model(args.model, tuple(data.x_train.shape[1:]), data.num_classes, args.width)
    optimizer = torch.optim.SGD(
        model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay
    )
    optimizer = hvs.DistributedOptimizer(  # (hvs)
        optimizer,
        named_parameters=model.named_parameters(),
        compression=make_compression(args),
        backward_passes_per_step=args.backward_passes,
        momentum=args.momentum_mode,
        telemetry_every=args.telemetry_every,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return model, optimizer


def take_step(
    args: argparse.Namespace, model: nn.Module, optimizer: Any, batches: list[tuple[Tensor, Tensor]]
) -> float:
    """Run backward on each batch, then step once; return the batches' mean loss."""
    optimizer.zero_grad()
    losses = []
    for inputs, targets in batches:
        scores = model(inputs)
        loss = functional.cross_entropy(scores.flatten(0, -2), targets.flatten())
        (loss / len(batches)).backward()
        losses.append(loss.item())
    if args.clip_norm is None:
        optimizer.step()
    else:
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip_norm)
        with optimizer.skip_synchronize():
            optimizer.step()
    return statistics.mean(losses)


@dataclasses.dataclass
class History:
    """What training leaves behind: a number for each epoch, a time for each step."""

    loss: list[float] = dataclasses.field(default_factory=list)
    score: list[float] = dataclasses.field(default_factory=list)
    step_s: list[float] = dataclasses.field(default_factory=list)


def train(args: argparse.Namespace, data: Dataset) -> tuple[History, Any]:
    """Train; rank 0 prints a line for each epoch. Returns the optimizer, for its telemetry."""
    rank, size = hvd.rank(), hvd.size()
    num_steps = data.num_batches(args.batch_size, size) // args.backward_passes
    if num_steps == 0:
        message = f"train: expected examples for a step of {size} ranks in 'data', got "
        raise ValueError(f"{message}{len(data.x_train)}. Lower --batch-size.")
    model, optimizer = make_training(args, data)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: lr_factor(step, args.epochs * num_steps)
    )
    history, writer, page = History(), make_writer(args), make_report(args)
    for epoch in range(1, args.epochs + 1):
        model.train()
        batches = data.train_batches(args.batch_size, epoch, seed=args.seed, rank=rank, size=size)
        losses = []
        hidden = rank != 0 or not sys.stderr.isatty()
        for _ in tqdm(range(num_steps), desc=f"epoch {epoch}", leave=False, disable=hidden):
            start_s = time.perf_counter()
            chosen = [next(batches) for _ in range(args.backward_passes)]
            losses.append(take_step(args, model, optimizer, chosen))
            schedule.step()
            history.step_s.append(time.perf_counter() - start_s)
        mean = torch.tensor([statistics.mean(losses)], dtype=torch.float64)
        history.loss.append(hvd.allreduce(mean, name="loss").item())
        history.score.append(evaluate(args, model, data))
        report(args, history, optimizer, writer)
        if page:
            add_to_report(args, page, history, optimizer, num_steps)
    if writer:
        writer.close()
    if page:
        page.write()  # (hvs): all ranks
    return history, optimizer


def lr_factor(step: int, num_steps: int) -> float:
    """Rise over the first twentieth of all steps, then fall as a cosine."""
    rising_steps = max(1, num_steps // 20)
    falling = max(0, step - rising_steps) / max(1, num_steps - rising_steps)
    return min((step + 1) / rising_steps, 0.5 * (1 + math.cos(math.pi * falling)))


@torch.no_grad()
def evaluate(args: argparse.Namespace, model: nn.Module, data: Dataset) -> float:
    """Return accuracy, or perplexity of text, on the test examples of all ranks."""
    running = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    if running:  # batch normalisation, which has seen other examples on each rank
        means = hvd.grouped_allreduce(running, name="buffers")
        for buffer, mean in zip(running, means, strict=True):
            buffer.copy_(mean)
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64)  # of losses, right answers, answers
    for inputs, targets in data.test_batches(8 * args.batch_size, rank=hvd.rank(), size=hvd.size()):
        scores, wanted = model(inputs).flatten(0, -2), targets.flatten()
        sums[0] += functional.cross_entropy(scores, wanted, reduction="sum")
        sums[1] += (scores.argmax(dim=1) == wanted).sum()
        sums[2] += len(wanted)
    loss, right, answers = hvd.allreduce(sums, name="evaluation", op=hvd.Sum).tolist()
    return math.exp(min(loss / answers, 700)) if data.is_text else right / answers


def make_writer(args: argparse.Namespace) -> Any:
    """Return TensorBoard's writer on rank 0, where one is asked for."""
    if not args.tensorboard or hvd.rank() != 0:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(args.tensorboard)


def make_report(args: argparse.Namespace) -> hvs.RunReport | None:
    """Return what makes a page about the run, where one is asked for. Collective."""
    if not args.report:
        return None
    title = f"{args.model} on {args.data}, compression {args.compression}"
    return hvs.RunReport(args.report, title=title, options=vars(args))  # (hvs)


def add_to_report(
    args: argparse.Namespace,
    page: hvs.RunReport,
    history: History,
    optimizer: Any,
    num_steps: int,
) -> None:
    """Note the newest epoch."""
    score = {score_name(args): history.score[-1]}
    page.add_epoch(  # (hvs)
        loss=history.loss[-1],
        accuracy=None if args.model == "lstm" else score,
        scores=score if args.model == "lstm" else None,
        seconds=sum(history.step_s[-num_steps:]),
        steps=num_steps,
        optimizer=optimizer,
    )


def score_name(args: argparse.Namespace) -> str:
    """Say what is measured on test examples."""
    return "perplexity" if args.model == "lstm" else "accuracy"


def report(args: argparse.Namespace, history: History, optimizer: Any, writer: Any) -> None:
    """Say how training stands, in one line on rank 0."""
    epoch, score = len(history.loss), history.score[-1]
    telemetry = optimizer.telemetry()
    if writer:
        scalars = {"loss": history.loss[-1], score_name(args): score} | telemetry.scalars()
        for name, value in scalars.items():
            writer.add_scalar(name, value, epoch)
    if hvd.rank() == 0:
        shown = f"{score:6.3f}" if args.model == "lstm" else f"{100 * score:5.2f} %"
        step_s = statistics.median(history.step_s[-len(history.step_s) // epoch :])
        print(
            f"epoch {epoch:3d}/{args.epochs}  loss {history.loss[-1]:.4f}  "
            f"test {score_name(args)} {shown}  {1000 * step_s:.1f} ms/step  rank 0 sent "
            f"{telemetry.as_dict()['bytes_sent_per_step'] / 2**10:.1f} KiB/step",
            flush=True,
        )


def figures_of(args: argparse.Namespace, history: History, optimizer: Any) -> dict[str, Any]:
    """Return the options and the figures; None is what no longer is a number."""
    return vars(args) | {
        "loss": [finite(value) for value in history.loss],
        score_name(args): [finite(value) for value in history.score],
        "step_s": statistics.median(history.step_s),
        "bytes_sent_per_step": optimizer.telemetry().as_dict()["bytes_sent_per_step"],
        "ranks": hvd.size(),
    }


def main() -> None:
    """Read the data, train, and report."""
    args = parse_arguments(__doc__)
    logging.basicConfig(level=os.environ.get("HVS_LOG", "warning").upper())
    data = read_dataset(args.data, chunk=args.chunk, as_text=args.model == "lstm")
    hvd.init()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // hvd.local_size()))
    history, optimizer = train(args, data)
    if hvd.rank() == 0:
        print(optimizer.telemetry())
        if args.json:
            write_json(Path(args.json), figures_of(args, history, optimizer))


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        rank = os.environ.get("HOROVOD_RANK", "?")
        print(f"rank {rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        logging.getLogger(__name__).debug("traceback", exc_info=True)
        # Not sys.exit: Horovod's shutdown waits for ranks that may never answer.
        os._exit(1)
