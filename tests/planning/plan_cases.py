"""Models and links to plan for, and every plan that there is for a model of few layers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from horovod_sylvie.planning.layers import ComputeModel, LayerProfile
from horovod_sylvie.planning.link_model import LinkModel, model_of_link
from horovod_sylvie.planning.plan import ExchangeKind, Plan, PlannedGroup
from horovod_sylvie.planning.timeline import simulate


def layers_of(
    name: str, max_elements: int, min_size: int, max_size: int, *, can_be_sparse: bool = True
) -> st.SearchStrategy[list[LayerProfile]]:
    """Return a strategy of lists of layers."""
    figures = st.tuples(st.integers(100, max_elements), st.floats(1e-5, 2e-2))
    return st.lists(figures, min_size=min_size, max_size=max_size).map(
        lambda found: [
            LayerProfile(f"{name}{number}", size, seconds, can_be_sparse)
            for number, (size, seconds) in enumerate(found)
        ]
    )


layer_lists = layers_of("l", 3_000_000, 1, 5)
short_layer_lists = layers_of("l", 3_000_000, 1, 3)
fused_layer_lists = layers_of("b", 200_000, 0, 3, can_be_sparse=False)
links = st.builds(
    model_of_link,
    st.sampled_from([2, 4, 16, 64]),
    st.floats(1e7, 1e11),
    st.floats(0.0, 1e-3),
    start_s=st.floats(0.0, 2e-3),
)


def partitions(names: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    """Yield every way to cut a sequence into contiguous groups."""
    for cuts in itertools.product([False, True], repeat=len(names) - 1):
        groups: list[list[str]] = [[names[0]]]
        for name, cut in zip(names[1:], cuts, strict=True):
            if cut:
                groups.append([name])
            else:
                groups[-1].append(name)
        yield [tuple(group) for group in groups]


def best_step_s(
    layers: Sequence[LayerProfile],
    compute: ComputeModel,
    link: LinkModel,
    *,
    kinds: Sequence[ExchangeKind],
    density: float,
    fused: Sequence[PlannedGroup] = (),
) -> float:
    """Try every plan, and return the seconds of the shortest step."""
    names = [layer.name for layer in layers if layer.can_be_sparse]
    return min(
        simulate(layers, Plan((*groups, *fused)), compute, link).step_s
        for cut in partitions(names)
        for groups in itertools.product(
            *(
                [PlannedGroup(each, kind, 1.0 if kind == "dense" else density) for kind in kinds]
                for each in cut
            )
        )
    )
