"""P ranks in full precision equal one plain PyG process: the identity that everything rests on."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.partition.partitioner import partition_graph
from tests import reference_training as reference


def check_parity(
    tmp_path: Path,
    kind: str,
    *,
    num_ranks: int,
    optimizer: str = "adam",
    method: str = "metis",
    directed: bool = False,
    weighted: bool = False,
    batch_norm: bool = False,
) -> None:
    graph = reference.make_graph(directed=directed, weighted=weighted)
    torch.manual_seed(1)
    model = reference.Network(kind, batch_norm=batch_norm)
    models = [copy.deepcopy(model) for _ in range(num_ranks)]
    expected = reference.train_whole(graph, model, optimizer)
    partition_graph(graph, tmp_path / "parts", num_ranks, method=method)

    def train(comm: LoopbackCommunicator) -> reference.Result:
        return reference.train_partitioned(
            comm,
            tmp_path / "parts",
            models[comm.rank],
            optimizer,
            sum_gradients=reference.gradient_summer(comm),
        )

    for result in run_loopback(num_ranks, train):
        reference.assert_equal_results(result, expected)


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("kind", ["sage", "gcn", "gat", "gin"])
def test_training_on_ranks_equals_one_process(
    tmp_path: Path, kind: str, optimizer: str, num_ranks: int
) -> None:
    check_parity(tmp_path, kind, num_ranks=num_ranks, optimizer=optimizer)


@pytest.mark.parametrize("method", ["random", "contiguous"])
@pytest.mark.parametrize("kind", ["sage", "gcn", "gat", "gin"])
def test_training_on_other_partitions_equals_one_process(
    tmp_path: Path, kind: str, method: str
) -> None:
    check_parity(tmp_path, kind, num_ranks=4, method=method)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["sage", "gcn", "gat", "gin", "graph"])
def test_training_on_directed_graph_equals_one_process(
    tmp_path: Path, kind: str, weighted: bool
) -> None:
    check_parity(tmp_path, kind, num_ranks=3, directed=True, weighted=weighted, method="random")


@pytest.mark.parametrize("kind", ["gcn", "graph"])
def test_training_with_edge_weights_equals_one_process(tmp_path: Path, kind: str) -> None:
    check_parity(tmp_path, kind, num_ranks=4, weighted=True)


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("kind", ["sage", "gcn", "gat", "gin"])
def test_training_with_batch_norm_equals_one_process(
    tmp_path: Path, kind: str, num_ranks: int
) -> None:
    # A bias in front of BatchNorm has no gradient but rounding errors, which Adam would scale up.
    check_parity(
        tmp_path, kind, num_ranks=num_ranks, batch_norm=True, method="random", optimizer="sgd"
    )
