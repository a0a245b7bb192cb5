"""The training loss and the metrics of a partitioned graph.

A rank's loss is its training nodes' sum divided by the number of training nodes of the whole graph.
Gradients are then summed over ranks (`op=hvd.Sum`), not averaged, and equal those of one process
whatever each rank's share is, none included.

Shapes: I inner rows, C classes or labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from ..comm.protocol import Communicator
from ..partition.local_partition import Partition

Split = Literal["train", "val", "test"]


@dataclass(frozen=True)
class Evaluation:
    """Loss and metrics over the whole graph, equal on every rank.

    Attributes:
        loss: Mean training loss; NaN where the graph has no training nodes.
        train: Metric over the training nodes; NaN where the graph has none. Likewise the others.
        val: Metric over the validation nodes.
        test: Metric over the test nodes.
        metric: "accuracy", or "micro-F1" for multi-label targets.
    """

    loss: float
    train: float
    val: float
    test: float
    metric: str


def loss_share(logits: Tensor, partition: Partition) -> Tensor:
    """Return this rank's share of the mean training loss.

    Cross-entropy, or for multi-label targets binary cross-entropy, mean over labels. The shares of
    all ranks add up to the loss of one process; reduce gradients with Sum.

    Args:
        logits: The model's output for the inner nodes. [I, C], floating point
        partition: This rank's partition.

    Returns:
        A scalar, attached to `logits` also on a rank without training nodes.

    Raises:
        ValueError: `logits` has another number of rows or too few columns (another number where
            targets are multi-label), or the graph has no training node.
    """
    _check_logits("loss_share", logits, partition)
    if partition.num_train_global == 0:
        raise ValueError(
            "loss_share: expected a 'partition' with training nodes, got none in the whole graph. "
            "Check the input's train_mask, or choose another split."
        )
    picked, target = logits[partition.train_mask], partition.y[partition.train_mask]
    if partition.multilabel:
        total = functional.binary_cross_entropy_with_logits(picked, target, reduction="sum")
        return total / (partition.num_train_global * partition.y.shape[1])
    return functional.cross_entropy(picked, target, reduction="sum") / partition.num_train_global


@torch.no_grad()
def evaluate(logits: Tensor, partition: Partition, *, comm: Communicator) -> Evaluation:
    """Return loss and metrics over the whole graph. Collective: one allreduce of 10 float64.

    Args:
        logits: The output, in evaluation mode, for the inner nodes. [I, C], floating point
        partition: This rank's partition.
        comm: The communicator.

    Returns:
        The same on every rank.

    Raises:
        ValueError: `logits` has another number of rows, too few columns, or, where targets are
            multi-label, another number of columns.
    """
    _check_logits("evaluate", logits, partition)
    masks = (partition.train_mask, partition.val_mask, partition.test_mask)
    rows = [_counts(logits[mask], partition.y[mask], partition.multilabel) for mask in masks]
    share = logits.new_full((), float("nan"))
    if partition.num_train_global > 0:
        share = loss_share(logits, partition)
    local = torch.cat([torch.stack(rows).flatten(), share.double().reshape(1)])
    totals = comm.allreduce(local.cpu(), name="sylvie.evaluate").wait()
    train, val, test = (_metric(row) for row in totals[:-1].reshape(3, 3))
    name = "micro-F1" if partition.multilabel else "accuracy"
    return Evaluation(float(totals[-1]), train, val, test, name)


def _check_logits(function: str, logits: Tensor, partition: Partition) -> None:
    if logits.dim() != 2 or logits.shape[0] != partition.num_inner:
        raise ValueError(
            f"{function}: expected one row per inner node, [{partition.num_inner}, C], for "
            f"'logits', got {tuple(logits.shape)}."
        )
    # Every rank says so, not only those that own the labels which do not fit.
    columns, wanted = logits.shape[1], partition.num_classes
    if columns < wanted or (partition.multilabel and columns != wanted):
        what = f"{wanted} label columns" if partition.multilabel else f"at least {wanted} classes"
        raise ValueError(
            f"{function}: expected {what} for 'logits', got {tuple(logits.shape)}. Give the "
            f"model {wanted} output channels."
        )


def _counts(logits: Tensor, target: Tensor, multilabel: bool) -> Tensor:
    """Return true positives, predicted positives and actual positives. [3], float64.

    With one class per node these are right, all and all, whose F1 is the accuracy.
    """
    if multilabel:
        predicted = logits > 0
        actual = target > 0
        counts = [(predicted & actual).sum(), predicted.sum(), actual.sum()]
    else:
        right = (logits.argmax(dim=1) == target).sum()
        counts = [right, right.new_tensor(len(target)), right.new_tensor(len(target))]
    return torch.stack(counts).double()


def _metric(counts: Tensor) -> float:
    true_positives, predicted, actual = counts.tolist()
    return 2 * true_positives / (predicted + actual) if predicted + actual > 0 else float("nan")
