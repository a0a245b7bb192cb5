"""One rank's piece of a partitioned graph, as torch tensors.

Here: class `Partition` and the checks that make it safe to train on.
Not here: reading it from disk (loader.py), who sends what to whom in messages (plan.py).

Shape letters: P ranks, I inner, H halo, B boundary rows (one per row and receiver), E messages into
inner nodes, F features, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Partition:
    """What one rank owns and what it reads from others.

    Invariant after `validate`: every id and index is in range, splits add up, and halo rows are
    ordered by owner and ascending within an owner, which is also the order in which owners send
    them.

    Attributes:
        rank: This rank.
        num_parts: P.
        digest: Content hash of the whole partitioning, hex; the same on every rank.
        num_nodes_global: Nodes of the whole graph.
        num_classes: Classes, or label columns.
        multilabel: Whether `y` has one column per label.
        num_train_global: Training nodes of the whole graph in the chosen split; likewise below.
        num_val_global: Validation nodes.
        num_test_global: Test nodes.
        inner_ids: Global ids of the inner nodes, ascending. [I], int64
        halo_ids: Global ids of the halo nodes, by owner, ascending within an owner. [H], int64
        recv_splits: Halo rows by owner; this rank's own entry is 0. P numbers
        send_index: Inner rows to send, by receiver, in the receiver's halo order. [B], int64
        send_splits: Rows to send by receiver. P numbers
        edge_index: All messages into inner nodes, in the order of the whole graph; sources in
            [0, I + H), targets in [0, I). [2, E], int64
        edge_weight: Weight of each message, or None if the graph has none. [E], float32
        edge_attr: Attributes of each message, or None. [E, ...]
        in_weight: Sum of the weights of the messages into a node, on the whole graph, self-loops
            left out; their number if the graph is unweighted. [I + H], float32
        loop_weight: Weight of a node's last self-loop (1 if unweighted), NaN where it has none.
            [I + H], float32
        loop_weight_total: Sum of the weights of a node's self-loops, 0 where it has none; GCN
            without added loops counts them all. [I + H], float32
        x: Features of the inner nodes. [I, F], float32
        y: Classes, -1 where unlabelled, [I], int64; or label columns, [I, C], float32.
        train_mask: Inner nodes to train on; never an unlabelled one. [I], bool
        val_mask: Inner nodes to validate on. [I], bool
        test_mask: Inner nodes to test on. [I], bool
    """

    rank: int
    num_parts: int
    digest: str
    num_nodes_global: int
    num_classes: int
    multilabel: bool
    num_train_global: int
    num_val_global: int
    num_test_global: int
    inner_ids: Tensor
    halo_ids: Tensor
    recv_splits: tuple[int, ...]
    send_index: Tensor
    send_splits: tuple[int, ...]
    edge_index: Tensor
    edge_weight: Tensor | None
    edge_attr: Tensor | None
    in_weight: Tensor
    loop_weight: Tensor
    loop_weight_total: Tensor
    x: Tensor
    y: Tensor
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor

    @property
    def num_inner(self) -> int:
        """Number of inner nodes, I."""
        return int(self.inner_ids.shape[0])

    @property
    def num_halo(self) -> int:
        """Number of halo nodes, H."""
        return int(self.halo_ids.shape[0])

    @property
    def num_features(self) -> int:
        """Number of feature columns, F."""
        return int(self.x.shape[1])

    def to(self, device: torch.device | str) -> Partition:
        """Return a copy whose tensors are on `device`.

        Args:
            device: Any torch device.

        Returns:
            A new partition; tensors that are already there are shared, not copied.
        """
        moved: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, Tensor):
                moved[entry.name] = value.to(device)
        return replace(self, **moved)

    def validate(self) -> None:
        """Check everything that training relies on.

        Raises:
            ValueError: The first property that does not hold, with the rank and the field.
        """
        self._check_shapes()
        self._check_splits()
        self._check_ids()

    def _check_shapes(self) -> None:
        inner, rows, edges = (
            self.num_inner,
            self.num_inner + self.num_halo,
            self.edge_index.shape[1],
        )
        wanted: dict[str, tuple[int, ...]] = {
            "edge_index": (2, edges),
            "in_weight": (rows,),
            "loop_weight": (rows,),
            "loop_weight_total": (rows,),
            "x": (inner, self.num_features),
            "y": (inner, self.num_classes) if self.multilabel else (inner,),
            "train_mask": (inner,),
            "val_mask": (inner,),
            "test_mask": (inner,),
        }
        if self.edge_weight is not None:
            wanted["edge_weight"] = (edges,)
        if self.edge_attr is not None:
            wanted["edge_attr"] = (edges, *self.edge_attr.shape[1:])
        for name, shape in wanted.items():
            found = tuple(getattr(self, name).shape)
            if found != shape:
                raise self._error(f"shape {shape}", name, str(found))

    def _check_splits(self) -> None:
        if not 0 <= self.rank < self.num_parts:
            raise self._error(f"a rank in [0, {self.num_parts})", "rank", str(self.rank))
        totals = {"recv_splits": self.num_halo, "send_splits": int(self.send_index.shape[0])}
        for name, total in totals.items():
            splits: tuple[int, ...] = getattr(self, name)
            if len(splits) != self.num_parts or min(splits) < 0 or sum(splits) != total:
                wanted = f"{self.num_parts} numbers >= 0 that add up to {total}"
                raise self._error(wanted, name, str(splits))
            if splits[self.rank] != 0:
                raise self._error("0 rows exchanged with itself", name, str(splits[self.rank]))

    def _check_ids(self) -> None:
        nodes, inner = self.num_nodes_global, self.num_inner
        source_limit = inner + self.num_halo
        limits = (
            ("inner_ids", self.inner_ids, nodes),
            ("halo_ids", self.halo_ids, nodes),
            ("send_index", self.send_index, inner),
            ("edge_index", self.edge_index[0], source_limit),
            ("edge_index", self.edge_index[1], inner),
        )
        for name, ids, limit in limits:
            if ids.numel() > 0 and not 0 <= int(ids.min()) <= int(ids.max()) < limit:
                found = f"{int(ids.min())} to {int(ids.max())}"
                raise self._error(f"ids in [0, {limit})", name, found)
        for name, ids, splits in (
            ("inner_ids", self.inner_ids, (inner,)),
            ("halo_ids", self.halo_ids, self.recv_splits),
            ("send_index", self.send_index, self.send_splits),
        ):
            for part in ids.split(list(splits)):
                if bool((part[1:] <= part[:-1]).any()):
                    raise self._error("ascending ids (per rank)", name, "ids out of order")
        if not self.multilabel and inner > 0 and int(self.y.max()) >= self.num_classes:
            raise self._error(f"classes below {self.num_classes}", "y", str(int(self.y.max())))

    def _error(self, wanted: str, name: str, found: str) -> ValueError:
        return ValueError(
            f"Partition: expected {wanted} for '{name}', got {found} on rank {self.rank}."
        )
