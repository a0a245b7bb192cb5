"""Does a convolution look at no more than a node's own in-edges and their sources?

PyG's convolutions are known, each by a test. Those of users are tried once, at their first call:
rows and edges that no inner node reads are added, and the inner rows of the output must stay.
A convolution that fails uses degrees of neighbours, several hops or statistics over all rows, and
would give wrong results on a partition without any error.

Shapes: I inner rows, H halo rows, E edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

PER_EDGE: Final = ("edge_weight", "edge_attr", "edge_type")  # arguments with a value per edge
_NUM_NEW_ROWS: Final = 3


def is_known(convolution: MessagePassing) -> bool:
    """Return whether a convolution is PyG's own, which `refusals` decides about."""
    return type(convolution).__module__.startswith("torch_geometric.")


@torch.no_grad()
def check_locality(
    convolution: MessagePassing,
    call: Callable[[dict[str, Any]], Any],
    given: dict[str, Any],
    *,
    num_inner: int,
    layer: str,
) -> None:
    """Raise where inner rows depend on more than their own in-edges and the edges' sources.

    Calls the convolution twice, in evaluation mode; its random draws are undone.

    Args:
        convolution: The convolution.
        call: Calls its forward, past its hooks.
        given: Arguments of its forward; `x` has inner rows, then halo rows. [I + H, F]
        num_inner: Number of inner rows, I.
        layer: Its name, for the message.

    Raises:
        TypeError: It does, or it cannot be called with more rows.
    """
    was_training = convolution.training
    convolution.eval()
    try:
        with torch.random.fork_rng(devices=[]):
            widened = _widened(given, num_inner)
            rows = _inner_rows(call(given), num_inner)
            other = _inner_rows(call(widened), num_inner)
            unchanged = torch.allclose(rows, other, rtol=1e-4, atol=1e-5, equal_nan=True)
    except (IndexError, RuntimeError, ValueError) as error:
        raise _refusal(
            convolution, layer, f"it cannot be called with more rows ({error})"
        ) from error
    finally:
        convolution.train(was_training)
    if not unchanged:
        raise _refusal(
            convolution,
            layer,
            "its output for a node depends on more than the node's own in-edges and their sources, "
            "such as degrees of neighbours, several hops or statistics over all rows, of which a "
            "rank sees a part",
        )


def _widened(given: dict[str, Any], num_inner: int) -> dict[str, Any]:
    """Add rows, and edges into halo rows and the new ones; no inner node reads either."""
    x, edge_index = given["x"], given["edge_index"]
    generator = torch.Generator().manual_seed(0)
    new_rows = torch.randn((_NUM_NEW_ROWS, x.shape[1]), generator=generator).to(x)
    scale = x.abs().max().clamp(min=1) if x.numel() else 1.0
    num_rows = x.shape[0] + _NUM_NEW_ROWS
    targets = torch.arange(num_inner, num_rows).repeat(2)
    sources = torch.randint(0, num_rows, targets.shape, generator=generator)
    new_edges = torch.stack([sources, targets]).to(edge_index)
    widened = given | {
        "x": torch.cat([x, new_rows * scale]),
        "edge_index": torch.cat([edge_index, new_edges], dim=1),
    }
    for name in PER_EDGE:
        values = given.get(name)
        if isinstance(values, Tensor):
            extra = values.new_ones((new_edges.shape[1], *values.shape[1:]))
            widened[name] = torch.cat([values, extra])
    return widened


def _inner_rows(output: Any, num_inner: int) -> Tensor:
    rows: Tensor = output[0] if isinstance(output, tuple) else output
    return rows[:num_inner]


def _refusal(convolution: MessagePassing, layer: str, reason: str) -> TypeError:
    return TypeError(
        f"'{layer}' ({type(convolution).__name__}) would give wrong results on a partition: "
        f"{reason}. Pass such weights as edge_weight, from hvs.gcn_norm for instance, and use one "
        "single-hop convolution per hop."
    )
