"""Shares of the loss add up to one process's mean; metrics are those of the whole graph."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from horovod_sylvie.halo.objective import evaluate, loss_share
from horovod_sylvie.partition.graph import Graph
from horovod_sylvie.partition.local_partition import Partition
from tests.halo.on_partitions import run_on_partitions
from tests.reference_training import NUM_CLASSES, make_graph

GRAPH = make_graph(num_nodes=40)
LABELS = (np.random.default_rng(1).random((40, 4)) < 0.3).astype(np.float32)
MULTILABEL = dataclasses.replace(GRAPH, y=LABELS)
SPLITS = ("train", "val", "test")


def make_logits(graph: Graph) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return 3 * torch.randn(graph.num_nodes, graph.num_classes, generator=generator)


def mask_of(graph: Graph, split: str) -> Tensor:
    return torch.from_numpy(getattr(graph, f"{split}_mask")[:, 0])


def whole_loss(graph: Graph, logits: Tensor) -> Tensor:
    """Return the loss of one process, as PyTorch means it."""
    train, y = mask_of(graph, "train"), torch.from_numpy(graph.y)
    if graph.multilabel:
        return functional.binary_cross_entropy_with_logits(logits[train], y[train].float())
    return functional.cross_entropy(logits[train], y[train])


def metric_by_hand(graph: Graph, logits: Tensor, split: str) -> float:
    """Count node by node: accuracy, or micro-F1 = 2 TP / (2 TP + FP + FN)."""
    right = wrong = missed = 0
    for node in mask_of(graph, split).nonzero().flatten().tolist():
        if graph.multilabel:
            for score, label in zip(logits[node].tolist(), graph.y[node], strict=True):
                right += score > 0 and label == 1
                wrong += score > 0 and label == 0
                missed += score <= 0 and label == 1
        else:
            hit = int(logits[node].argmax()) == graph.y[node]
            right += hit
            wrong += not hit
            missed += not hit
    return 2 * right / (2 * right + wrong + missed)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("graph", [GRAPH, MULTILABEL], ids=["classes", "labels"])
def test_loss_shares_and_gradients_add_up_to_one_process(
    tmp_path: Path, graph: Graph, size: int
) -> None:
    whole = make_logits(graph).requires_grad_()
    expected = whole_loss(graph, whole)
    expected.backward()

    def body(comm: LoopbackCommunicator, part: Partition) -> float:
        logits = whole.detach()[part.inner_ids].requires_grad_()
        share = loss_share(logits, part)
        assert share.shape == ()
        share.backward()
        torch.testing.assert_close(logits.grad, whole.grad[part.inner_ids])
        return share.item()

    shares = run_on_partitions(graph, tmp_path, size, body)
    assert math.isclose(sum(shares), expected.item(), rel_tol=1e-5)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("graph", [GRAPH, MULTILABEL], ids=["classes", "labels"])
def test_evaluation_is_that_of_the_whole_graph_on_every_rank(
    tmp_path: Path, graph: Graph, size: int
) -> None:
    whole = make_logits(graph).requires_grad_()

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        result = evaluate(whole[part.inner_ids], part, comm=comm)
        assert result.metric == ("micro-F1" if graph.multilabel else "accuracy")
        assert math.isclose(result.loss, whole_loss(graph, whole).item(), rel_tol=1e-5)
        for split in SPLITS:
            expected = metric_by_hand(graph, whole.detach(), split)
            assert math.isclose(getattr(result, split), expected, rel_tol=1e-12), split

    run_on_partitions(graph, tmp_path, size, body)


@pytest.mark.parametrize("graph", [GRAPH, MULTILABEL], ids=["classes", "labels"])
def test_rank_without_training_nodes_has_a_share_of_zero_with_a_gradient(
    tmp_path: Path, graph: Graph
) -> None:
    first_half = np.arange(40) < 15
    graph = dataclasses.replace(graph, train_mask=first_half, val_mask=~first_half)

    def body(comm: LoopbackCommunicator, part: Partition) -> int:
        logits = make_logits(graph)[part.inner_ids].requires_grad_()
        share = loss_share(logits, part)
        share.backward()
        if not part.train_mask.any():
            assert share.item() == 0
            assert torch.equal(logits.grad, torch.zeros_like(logits))
        return int(part.train_mask.sum())

    counts = run_on_partitions(graph, tmp_path, 3, body, method="contiguous")
    assert sum(counts) == 15
    assert 0 in counts


def test_graph_without_training_nodes_raises_for_the_loss_but_is_evaluated(tmp_path: Path) -> None:
    nobody = np.zeros(40, bool)
    graph = dataclasses.replace(GRAPH, train_mask=nobody, test_mask=nobody, val_mask=~nobody)

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        logits = make_logits(graph)[part.inner_ids]
        with pytest.raises(ValueError, match="loss_share: expected a 'partition' with training n"):
            loss_share(logits, part)
        result = evaluate(logits, part, comm=comm)
        assert math.isnan(result.train)
        assert math.isnan(result.test)
        assert math.isnan(result.loss)
        assert result.val == metric_by_hand(graph, make_logits(graph), "val")

    run_on_partitions(graph, tmp_path, 2, body)


def test_unlabelled_nodes_do_not_count(tmp_path: Path) -> None:
    y = GRAPH.y.copy()
    y[::3] = -1
    labelled = dataclasses.replace(GRAPH, y=y, train_mask=GRAPH.train_mask[:, 0] & (y >= 0))
    graph = dataclasses.replace(GRAPH, y=y)
    whole = make_logits(graph)

    def body(comm: LoopbackCommunicator, part: Partition) -> float:
        return loss_share(whole[part.inner_ids], part).item()

    shares = run_on_partitions(graph, tmp_path, 2, body)
    assert math.isclose(sum(shares), whole_loss(labelled, whole).item(), rel_tol=1e-5)


@pytest.mark.parametrize("function", ["loss_share", "evaluate"])
def test_logits_of_other_rows_raise(tmp_path: Path, function: str) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        rows = part.num_inner
        call = {
            "loss_share": lambda logits: loss_share(logits, part),
            "evaluate": lambda logits: evaluate(logits, part, comm=comm),
        }[function]
        for shape in ((rows + part.num_halo, NUM_CLASSES), (rows,), (rows, NUM_CLASSES, 1)):
            text = f"{function}: expected one row per inner node, [{rows}, C], for 'logits', got"
            with pytest.raises(ValueError, match=re.escape(f"{text} {shape}")):
                call(torch.zeros(shape))

    run_on_partitions(GRAPH, tmp_path, 2, body)


@pytest.mark.parametrize("function", ["loss_share", "evaluate"])
@pytest.mark.parametrize(
    ("graph", "offset", "text"),
    [
        (GRAPH, -1, "expected at least 5 classes for 'logits', got (%d, 4). Give the model 5"),
        (MULTILABEL, -1, "expected 4 label columns for 'logits', got (%d, 3). Give the model 4"),
        (MULTILABEL, 1, "expected 4 label columns for 'logits', got (%d, 5). Give the model 4"),
    ],
    ids=["classes", "labels", "more labels"],
)
def test_logits_of_other_columns_raise_on_every_rank(
    tmp_path: Path, graph: Graph, offset: int, text: str, function: str
) -> None:
    # rank 0 owns no node of the last class
    order = np.argsort(graph.y if graph.y.ndim == 1 else graph.y[:, -1], kind="stable")
    graph = dataclasses.replace(graph, y=graph.y[order])

    def body(comm: LoopbackCommunicator, part: Partition) -> None:
        logits = torch.zeros(part.num_inner, graph.num_classes + offset)
        wanted = f"{function}: {text}" % part.num_inner
        options = {"comm": comm} if function == "evaluate" else {}
        with pytest.raises(ValueError, match=re.escape(wanted)):
            {"loss_share": loss_share, "evaluate": evaluate}[function](logits, part, **options)

    run_on_partitions(graph, tmp_path, 3, body, method="contiguous")


def test_logits_of_more_columns_than_classes_are_allowed(tmp_path: Path) -> None:
    def body(comm: LoopbackCommunicator, part: Partition) -> float:
        wide = torch.zeros(part.num_inner, NUM_CLASSES + 2)
        return loss_share(wide, part).item()

    shares = run_on_partitions(GRAPH, tmp_path, 2, body)
    assert math.isclose(sum(shares), math.log(NUM_CLASSES + 2), rel_tol=1e-5)
