"""Synthetic graphs with known structure: features, labels and splits over a block model.

Here: `make_graph`. Not here: the parameters (synthetic_spec.py), the edges (block_model.py), other
sources of graphs (graph_readers.py).

Shape letters: N nodes, E undirected edges, F features, C classes.
"""

from __future__ import annotations

import numpy as np

from .block_model import class_of_position, draw_edges
from .graph import Array, Graph
from .synthetic_spec import SyntheticSpec

# Rows get their class mean in pieces, so that the temporary stays small next to the features.
_CHUNK_ELEMENTS = 1 << 21


def make_graph(spec: SyntheticSpec) -> Graph:
    """Draw a graph.

    Args:
        spec: What it shall be like.

    Returns:
        An undirected graph, each edge stored once, without loops or duplicates. Equal specs give
        equal graphs; edges, features and labels have their own random streams, so that changing the
        noise leaves the edges as they are.

    Raises:
        ValueError: The degree cannot be reached with this mixing, exponent and number of classes.
    """
    streams = np.random.SeedSequence(spec.seed).spawn(4)
    edge_rng, feature_rng, label_rng, split_rng = (np.random.default_rng(s) for s in streams)
    # Positions are sorted by class, which makes drawing within a class one search; ids are
    # shuffled.
    ids = edge_rng.permutation(spec.nodes).astype(np.int32)
    classes = np.empty(spec.nodes, dtype=np.int64)
    classes[ids] = class_of_position(spec)
    edges = draw_edges(spec, ids, edge_rng)
    train_mask, val_mask, test_mask = _draw_splits(spec, split_rng)
    return Graph(
        num_nodes=spec.nodes,
        edge_index=edges,
        x=_draw_features(spec, classes, feature_rng),
        y=_draw_labels(spec, classes, label_rng),
        train_mask=train_mask,
        val_mask=val_mask,
        test_mask=test_mask,
        mirror=True,
        name=f"synthetic graph (seed {spec.seed})",
    )


def _draw_features(spec: SyntheticSpec, classes: Array, rng: np.random.Generator) -> Array:
    means = rng.standard_normal((spec.classes, spec.features), dtype=np.float32)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    x = rng.standard_normal((spec.nodes, spec.features), dtype=np.float32)
    x *= np.float32(spec.noise)
    rows = max(1, _CHUNK_ELEMENTS // spec.features)
    for start in range(0, spec.nodes, rows):
        x[start : start + rows] += means[classes[start : start + rows]]
    return x


def _draw_labels(spec: SyntheticSpec, classes: Array, rng: np.random.Generator) -> Array:
    wrong = rng.random(spec.nodes) < spec.label_noise
    return np.where(wrong, rng.integers(spec.classes, size=spec.nodes), classes)


def _draw_splits(spec: SyntheticSpec, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    order = rng.permutation(spec.nodes)
    num_train, num_val = round(spec.train * spec.nodes), round(spec.val * spec.nodes)
    masks = []
    for part in np.split(order, [num_train, num_train + num_val]):
        mask = np.zeros(spec.nodes, dtype=np.bool_)
        mask[part] = True
        masks.append(mask)
    return masks[0], masks[1], masks[2]
