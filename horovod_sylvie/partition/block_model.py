"""The edges of a seeded degree-corrected stochastic block model.

Here: `draw_edges`. Not here: features and labels (synthetic.py).

The model: Karrer and Newman, "Stochastic blockmodels and community structure in networks", Phys.
Rev. E 83, 016107, 2011; ends are drawn with the expected degrees of their eq. (4), and an edge is
kept if it is new and no loop.

Shape letters: N nodes, E undirected edges, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .graph import Array
from .synthetic_spec import SyntheticSpec

# Edges are drawn in pieces, so that the 8-byte temporaries stay small next to the graph.
_CHUNK_EDGES = 1 << 21
_MAX_ROUNDS = 40


def class_of_position(spec: SyntheticSpec) -> Array:
    """Return the class of each position: equal ranges, in order. [N], int64."""
    return np.arange(spec.nodes, dtype=np.int64) * spec.classes // spec.nodes


def draw_edges(spec: SyntheticSpec, ids: Array, rng: np.random.Generator) -> Array:
    """Draw edges in rounds until enough distinct ones are there.

    Args:
        spec: What the graph shall be like.
        ids: Node id at each position; positions are sorted by class. [N], int32
        rng: Where chance comes from.

    Returns:
        Each undirected edge once, smaller id first, sorted. [2, E], int32

    Raises:
        ValueError: The degree cannot be reached.
    """
    # Pareto weights; the cap keeps a hub's expected degree below the number of nodes.
    weight = rng.random(spec.nodes) ** (-1.0 / (spec.exponent - 1.0))
    np.minimum(weight, weight.mean() * math.sqrt(spec.nodes), out=weight)
    bounds = np.searchsorted(class_of_position(spec), np.arange(spec.classes + 1))
    sampler = _BlockSampler(np.concatenate([[0.0], np.cumsum(weight)]), bounds, spec.mixing)
    keys = np.empty(0, dtype=np.int64)
    for _ in range(_MAX_ROUNDS):
        missing = spec.num_edges - keys.size
        if missing <= 0:
            break
        # A tenth more than missing saves most of the rounds that duplicates would cost.
        counts = _chunks(missing + missing // 10)
        drawn = [_edge_keys(spec, sampler, ids, count, rng) for count in counts]
        keys = _sorted_unique(np.concatenate([keys, *drawn]))
    else:
        raise ValueError(
            f"synthetic: expected a degree that fits the graph for 'degree', got {spec.degree}: "
            f"only {keys.size} of {spec.num_edges} distinct edges found. Lower the degree or the "
            "number of classes, or raise the mixing or the exponent."
        )
    if keys.size > spec.num_edges:
        # Which edges are too many is drawn too: cutting the sorted list would starve the last
        # nodes.
        surplus = rng.choice(keys.size, keys.size - spec.num_edges, replace=False, shuffle=False)
        keys = np.delete(keys, surplus)
    edges = np.empty((2, keys.size), dtype=np.int32)
    np.floor_divide(keys, spec.nodes, out=edges[0], casting="unsafe")
    np.remainder(keys, spec.nodes, out=edges[1], casting="unsafe")
    return edges


def _sorted_unique(keys: Array) -> Array:
    """Sort in place and drop repeats. Ten times faster than numpy's hashing `unique` here."""
    keys.sort()
    is_new = np.ones(keys.size, dtype=np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=is_new[1:])
    distinct: Array = keys[is_new]
    return distinct


@dataclass(frozen=True, eq=False)
class _BlockSampler:
    """Draws the two ends of edges in proportion to the weights, within a class or between two."""

    cumulative: Array  # [N + 1], by position
    bounds: Array  # [C + 1], first position of each class
    mixing: float

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return positions of both ends. [count] each."""
        source = self._search(rng.random(count) * self.cumulative[-1])
        block = np.searchsorted(self.bounds, source, side="right") - 1
        low, high = self.cumulative[self.bounds[block]], self.cumulative[self.bounds[block + 1]]
        crosses = rng.random(count) < self.mixing
        point = rng.random(count)
        # Between classes: a point on the line with the source's own class cut out.
        outside = point * (self.cumulative[-1] - (high - low))
        outside += np.where(outside >= low, high - low, 0.0)
        inside = low + point * (high - low)
        return source, self._search(np.where(crosses, outside, inside))

    def _search(self, points: Array) -> Array:
        found = np.searchsorted(self.cumulative, points, side="right") - 1
        # Rounding may put a point at the very end, one past the last position.
        return np.asarray(np.minimum(found, self.cumulative.size - 2))


def _edge_keys(
    spec: SyntheticSpec, sampler: _BlockSampler, ids: Array, count: int, rng: np.random.Generator
) -> Array:
    """Return one number per drawn edge, smaller id first, loops left out. [<= count], int64."""
    ends = sampler.draw(count, rng)
    a, b = ids[ends[0]], ids[ends[1]]
    keys = np.minimum(a, b).astype(np.int64) * spec.nodes + np.maximum(a, b)
    without_loops: Array = keys[a != b]
    return without_loops


def _chunks(total: int) -> list[int]:
    """Split the edges to draw into pieces."""
    return [min(_CHUNK_EDGES, total - start) for start in range(0, total, _CHUNK_EDGES)]
