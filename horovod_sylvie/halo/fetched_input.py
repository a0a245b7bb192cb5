"""Inputs that need no gradient: kept with their halo rows, for as long as they do not change.

Not here: fetching the rows (`exchange.py`).

Shapes: I inner rows, H halo rows, F features.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from torch import Tensor

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FetchedInput:
    """An input that needs no gradient, with its halo rows.

    Holding the input keeps its storage from being reused, so that the same storage means the same
    tensor, on a rank without rows too; the versions tell whether either was modified in place.

    Attributes:
        x: The input. [I, F]
        x_version: Its version when it was fetched.
        extended: The input and its halo rows. [I + H, F]
        extended_version: Its version when it was fetched.
    """

    x: Tensor
    x_version: int
    extended: Tensor
    extended_version: int

    def is_of(self, x: Tensor) -> bool:
        """Return whether `x` is the input, and nothing was modified since it was fetched."""
        # in this order, since tensors made under inference_mode have no versions
        return (
            not x.requires_grad
            and self.x.dtype == x.dtype
            and self.x.is_set_to(x)
            and self.x_version == x._version
            and self.extended_version == self.extended._version
        )


class FetchedInputs:
    """The last input that needed no gradient of each layer."""

    def __init__(self, rank: int) -> None:
        """Start with none; `rank` is this rank's."""
        self._rank = rank
        self._inputs: dict[str, FetchedInput] = {}
        self._warned: set[str] = set()

    def find(self, x: Tensor, layer: str) -> Tensor | None:
        """Return the rows that were fetched for a layer, or None where `x` is another input.

        Args:
            x: Inner rows. [I, F]
            layer: The layer's name.

        Returns:
            [I + H, F], or None.
        """
        fetched = self._inputs.get(layer)
        return fetched.extended if fetched is not None and fetched.is_of(x) else None

    def check(self, x: Tensor, layer: str) -> None:
        """Check an input that is about to be fetched; warn, once, where a layer's input changes.

        Args:
            x: Inner rows. [I, F]
            layer: The layer's name.

        Raises:
            ValueError: `x` was made under `torch.inference_mode`. Whether it was modified in place
                cannot be known, and autograd would refuse it in the layer.
        """
        if x.is_inference():
            raise ValueError(
                f"HaloExchange.start: expected an ordinary tensor for 'x' of '{layer}' in "
                "training, got one made under torch.inference_mode(). Clone it outside of "
                "inference_mode: "
                "x = x.clone()."
            )
        if layer not in self._inputs or layer in self._warned:
            return
        self._warned.add(layer)
        if self._rank != 0:  # the ranks run the same program: one line is enough
            return
        logger.warning(
            "the input of '%s' needs no gradient but changes from step to step, so its halo rows "
            "are fetched each time, in full precision. Where it is dropped out or augmented, do "
            "that after the first convolution. Where frozen layers make it, compute their output "
            "once, before training, and give that.",
            layer,
        )

    def keep(self, x: Tensor, layer: str, extended: Tensor) -> None:
        """Keep what was fetched, instead of what was kept for the layer before.

        Args:
            x: Inner rows. [I, F]
            layer: The layer's name.
            extended: `x` and its halo rows. [I + H, F]
        """
        self._inputs[layer] = FetchedInput(x, x._version, extended, extended._version)

    def clear(self) -> None:
        """Forget all."""
        self._inputs.clear()
