"""The rule of the LAGS paper, layer by layer.

Shi et al., Layer-wise Adaptive Gradient Sparsification, ECAI 2020, section on the adaptive ratio:
the smallest compression ratio c = 1 / density whose selection and exchange are over when the next
layer's gradient is there, and never more than the bound c_u.
"""

from __future__ import annotations

from collections.abc import Sequence

from .layers import ComputeModel, LayerProfile
from .link_model import LinkModel
from .plan import SELECTED_BYTES


def lags_densities(
    layers: Sequence[LayerProfile],
    compute: ComputeModel,
    link: LinkModel,
    *,
    min_density: float,
    max_density: float = 1.0,
) -> list[float]:
    """Return each layer's density by the paper's rule.

    Args:
        layers: In the order of backward.
        compute: Costs of this rank.
        link: Costs between ranks.
        min_density: 1 / c_u.
        max_density: Not in the paper: an upper bound.

    Returns:
        In the order of `layers`. The last layer has nothing to hide behind, and gets min_density.
    """
    densities = []
    for number, layer in enumerate(layers):
        following = layers[number + 1].backward_s if number + 1 < len(layers) else 0.0
        budget = (
            following - link.allgather.alpha_s - layer.num_elements * (compute.select_s_per_element)
        )
        per_selected = (
            SELECTED_BYTES * link.allgather.beta_s_per_byte + compute.select_s_per_selected
        )
        density = budget / (per_selected * layer.num_elements) if per_selected > 0 else max_density
        densities.append(min(max_density, max(min_density, density)))
    return densities
