"""`Partition`: checks every property that training relies on; moves between devices."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from horovod_sylvie.partition.loader import load_partition
from horovod_sylvie.partition.local_partition import Partition
from horovod_sylvie.partition.partitioner import partition_graph

from .partition_cases import build_graph


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Partition:
    directory: Path = tmp_path_factory.mktemp("parts") / "p"
    graph = build_graph(40, 150, mirror=True, weighted=True, attributed=True)
    partition_graph(graph, directory, 3, method="random")
    return load_partition(directory, 1, 3)


def changed(tensor: torch.Tensor, position: int, value: int) -> torch.Tensor:
    other = tensor.clone()
    other.view(-1)[position] = value
    return other


def test_partition_dtypes_are_those_of_the_contract(partition: Partition) -> None:
    dtypes = {
        torch.int64: "inner_ids halo_ids send_index edge_index y",
        torch.float32: "edge_weight edge_attr in_weight loop_weight loop_weight_total x",
        torch.bool: "train_mask val_mask test_mask",
    }
    for dtype, names in dtypes.items():
        for name in names.split():
            assert getattr(partition, name).dtype == dtype, name
    assert partition.num_inner == len(partition.inner_ids)
    assert partition.num_halo == len(partition.halo_ids)
    assert partition.num_features == partition.x.shape[1]


def test_partition_to_a_device_moves_every_tensor(partition: Partition) -> None:
    moved = partition.to("meta")
    for entry in fields(partition):
        value = getattr(moved, entry.name)
        if isinstance(value, torch.Tensor):
            assert value.device.type == "meta", entry.name
        else:
            assert value == getattr(partition, entry.name)


def test_partition_to_the_same_device_shares_its_tensors(partition: Partition) -> None:
    assert partition.to("cpu").x is partition.x


@pytest.mark.parametrize(
    ("field", "position", "value"),
    [
        ("inner_ids", -1, 40),
        ("inner_ids", 1, 0),
        ("halo_ids", 0, -1),
        ("send_index", 0, -1),
        ("send_index", -1, 10**6),
        ("edge_index", 0, 10**6),
        ("edge_index", -1, -1),
        ("y", 0, 99),
    ],
)
def test_partition_id_out_of_place_is_named(
    partition: Partition, field: str, position: int, value: int
) -> None:
    wrong = replace(partition, **{field: changed(getattr(partition, field), position, value)})
    with pytest.raises(ValueError, match=f"'{field}', got .* on rank 1"):
        wrong.validate()


@pytest.mark.parametrize(
    "field",
    ["edge_index", "edge_weight", "edge_attr", "in_weight", "loop_weight", "x", "y", "test_mask"],
)
def test_partition_wrong_length_is_named(partition: Partition, field: str) -> None:
    tensor = getattr(partition, field)
    with pytest.raises(ValueError, match="expected"):
        replace(partition, **{field: tensor[:-1]}).validate()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"recv_splits": (0, 0, 0)}, "add up to"),
        ({"send_splits": (1, 2)}, "3 numbers >= 0"),
        ({"rank": 3}, "a rank in"),
        ({"rank": 0}, "0 rows exchanged with itself"),
    ],
)
def test_partition_wrong_splits_are_named(
    partition: Partition, changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        replace(partition, **changes).validate()


def test_partition_negative_split_is_named(partition: Partition) -> None:
    first, own, last = partition.recv_splits
    with pytest.raises(ValueError, match="'recv_splits'"):
        replace(partition, recv_splits=(-1, own, first + last + 1)).validate()


def test_partition_halo_out_of_order_is_named(partition: Partition) -> None:
    with pytest.raises(ValueError, match="ascending ids"):
        replace(partition, halo_ids=partition.halo_ids.flip(0)).validate()
