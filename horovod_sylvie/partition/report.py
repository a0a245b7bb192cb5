"""What a partitioning looks like: sizes, balance, traffic, cost. For people and as JSON.

Here: `PartitionReport` and its table. Not here: choosing the partitioning (assignment.py), writing
it (writer.py).

Shape letters: P ranks, F features.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .owned_edges import PartCounts

REPORT_WIDTH = 256
_HEADINGS = ("rank", "inner", "halo", "halo/inner", "edges", "rows sent", "train")


@dataclass(frozen=True)
class RankReport:
    """One line of the table.

    Attributes:
        rank: The rank.
        num_inner: Inner nodes.
        num_halo: Halo nodes.
        num_edges: Messages into its inner nodes.
        num_boundary_rows: Rows that it sends per exchange, one per row and receiver.
        num_train: Training nodes in split 0.
    """

    rank: int
    num_inner: int
    num_halo: int
    num_edges: int
    num_boundary_rows: int
    num_train: int

    @property
    def halo_per_inner(self) -> float:
        """Halo nodes per inner node; 0 where there are no inner nodes."""
        return self.num_halo / self.num_inner if self.num_inner else 0.0


@dataclass(frozen=True)
class PartitionReport:
    """The report of `partition_graph`; `str()` of it is the printed table.

    Attributes:
        directory: Where the partitioning is.
        source: What was partitioned.
        digest: Its content hash.
        method: The method asked for.
        objective: What decided: METIS's "cut" or "vol", or the name of the rule.
        predicted_s: Predicted seconds per layer and epoch, by candidate (see `CostModel`).
        edge_share: Share of the edges that METIS saw; below 1 where memory would have run short.
        num_nodes: Nodes of the graph.
        num_edges: Messages of the graph, each undirected edge counted twice.
        num_cut_edges: Messages between ranks.
        num_unlabelled_dropped: Nodes that were in a mask but have no label; no mask holds them now.
        ranks: One entry per rank.
        input_bytes: Bytes of the graph in memory.
        peak_bytes: Growth of the process's peak memory over its size at the start, an upper bound
            if the process was once larger.
        seconds: Wall time.
    """

    directory: str
    source: str
    digest: str
    method: str
    objective: str
    predicted_s: dict[str, float]
    edge_share: float
    num_nodes: int
    num_edges: int
    num_cut_edges: int
    num_unlabelled_dropped: int
    ranks: tuple[RankReport, ...]
    input_bytes: int
    peak_bytes: int
    seconds: float

    @property
    def num_parts(self) -> int:
        """Number of ranks, P."""
        return len(self.ranks)

    @property
    def cut_share(self) -> float:
        """Share of the messages that cross ranks."""
        return self.num_cut_edges / self.num_edges if self.num_edges else 0.0

    @property
    def edge_balance(self) -> float:
        """Most messages on one rank over the mean; 1 is even."""
        return _balance([entry.num_edges for entry in self.ranks])

    @property
    def node_balance(self) -> float:
        """Most inner nodes on one rank over the mean; 1 is even."""
        return _balance([entry.num_inner for entry in self.ranks])

    def bytes_per_layer(self, num_features: int, bits: int) -> int:
        """Return the bytes of rows that all ranks send for one layer in one epoch.

        Forward and backward: 2 * rows * (4 F) at 32 bits, 2 * rows * (4 + ceil(F * bits / 8))
        below.

        Args:
            num_features: Width of the exchanged rows, F.
            bits: 32 for full precision, or 1, 2, 4, 8.

        Returns:
            The bytes, message headers not counted.

        Raises:
            ValueError: `bits` is none of these.
        """
        if bits not in (1, 2, 4, 8, 32):
            raise ValueError(f"bytes_per_layer: expected 1, 2, 4, 8 or 32 for 'bits', got {bits}.")
        row_bytes = 4 * num_features if bits == 32 else 4 + -(-num_features * bits // 8)
        return 2 * row_bytes * sum(entry.num_boundary_rows for entry in self.ranks)

    def to_json(self) -> dict[str, Any]:
        """Return the fields and the derived figures as a JSON object."""
        return {
            **asdict(self),
            "ranks": [
                {**asdict(entry), "halo_per_inner": entry.halo_per_inner} for entry in self.ranks
            ],
            "num_parts": self.num_parts,
            "cut_share": self.cut_share,
            "edge_balance": self.edge_balance,
            "node_balance": self.node_balance,
            "width": REPORT_WIDTH,
            "bytes_per_layer_full_precision": self.bytes_per_layer(REPORT_WIDTH, 32),
            "bytes_per_layer_one_bit": self.bytes_per_layer(REPORT_WIDTH, 1),
        }

    def __str__(self) -> str:
        """Return the table and the lines below it."""
        rows = [_HEADINGS] + [
            (
                str(entry.rank),
                f"{entry.num_inner:,}",
                f"{entry.num_halo:,}",
                f"{entry.halo_per_inner:.2f}",
                f"{entry.num_edges:,}",
                f"{entry.num_boundary_rows:,}",
                f"{entry.num_train:,}",
            )
            for entry in self.ranks
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        table = [
            "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
            for row in rows
        ]
        return "\n".join([*self._head_lines(), "", *table, "", *self._foot_lines()])

    def _head_lines(self) -> list[str]:
        scores = ", ".join(f"{name} {1e3 * s:.3g} ms" for name, s in self.predicted_s.items())
        return [
            f"{self.source}: {self.num_nodes:,} nodes, {self.num_edges:,} messages, "
            f"{self.num_parts} parts in {self.directory}",
            f"method {self.method}, kept {self.objective}; predicted per layer and epoch: {scores}",
        ]

    def _foot_lines(self) -> list[str]:
        full, one_bit = (self.bytes_per_layer(REPORT_WIDTH, bits) for bits in (32, 1))
        ratio = f" ({full / one_bit:.1f}x less)" if one_bit else ""
        lines = [
            f"cut {self.cut_share:.1%} of messages; balance (most/mean): edges "
            f"{self.edge_balance:.3f}, nodes {self.node_balance:.3f}",
            f"sent per layer and epoch at width {REPORT_WIDTH}: {_size(full)} in full precision, "
            f"{_size(one_bit)} at one bit{ratio}",
            f"peak memory {_size(self.peak_bytes)} for {_size(self.input_bytes)} of input; "
            f"{self.seconds:.1f} s; digest {self.digest}",
        ]
        if self.edge_share < 1:
            lines.append(f"METIS saw {self.edge_share:.0%} of the edges, to stay within memory")
        if self.num_unlabelled_dropped:
            lines.append(
                f"{self.num_unlabelled_dropped:,} nodes without label taken out of the masks"
            )
        return lines


def rank_reports(counts: PartCounts, num_train: list[int]) -> tuple[RankReport, ...]:
    """Return one report per rank.

    Args:
        counts: Counts of the partitioning.
        num_train: Training nodes of each rank. P numbers

    Returns:
        The reports, by rank.
    """
    return tuple(
        RankReport(rank, int(inner), int(halo), int(edges), int(rows), train)
        for rank, (inner, halo, edges, rows, train) in enumerate(
            zip(
                counts.num_inner,
                counts.num_halo,
                counts.num_edges,
                counts.num_boundary_rows,
                num_train,
                strict=True,
            )
        )
    )


def _balance(values: list[int]) -> float:
    total = sum(values)
    return max(values) * len(values) / total if total else 1.0


def _size(num_bytes: int) -> str:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if num_bytes >= 1024**power:
            return f"{num_bytes / 1024**power:.1f} {unit}"
    return f"{num_bytes} B"
