"""How many elements of a layer travel: density and its warm-up.

Density is selected / numel, in (0, 1]. The ladder is that of Deep Gradient Compression (Lin et
al., ICLR 2018, section 3.3), counted in steps instead of epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DGC_LADDER: Final = (0.25, 0.0625, 0.015625, 0.004)


@dataclass(frozen=True)
class Warmup:
    """Start dense and become sparser, stage by stage.

    Each stage lasts `steps / len(densities)` steps. Stages that are not denser than the density
    that follows the warm-up are passed at that density instead, so the ladder never goes below.

    Attributes:
        steps: Length of the whole warm-up, in optimizer steps; at least 1.
        densities: Density of each stage, each in (0, 1].
    """

    steps: int
    densities: tuple[float, ...] = DGC_LADDER

    def __post_init__(self) -> None:
        """Check the fields."""
        if not isinstance(self.steps, int) or isinstance(self.steps, bool) or self.steps < 1:
            raise ValueError(
                f"Warmup: expected an int of at least 1 for 'steps', got {self.steps!r}."
            )
        if not self.densities:
            raise ValueError("Warmup: expected at least one density for 'densities', got none.")
        for density in self.densities:
            check_density("Warmup", "densities", density)

    def density_at(self, step: int, target: float) -> float:
        """Return the density of a step.

        Args:
            step: Optimizer step, from 0.
            target: The density after the warm-up.
        """
        stage = step * len(self.densities) // self.steps
        return max(target, self.densities[stage]) if stage < len(self.densities) else target


def check_density(function: str, argument: str, density: object) -> None:
    """Raise a ValueError unless a density is a number in (0, 1]."""
    number = isinstance(density, (int, float)) and not isinstance(density, bool)
    if not (number and 0.0 < density <= 1.0):  # type: ignore[operator]  # number says it can be
        raise ValueError(
            f"{function}: expected a number in (0, 1] for '{argument}', got {density!r}. "
            "A density is selected / total: 0.01 sends one element of a hundred."
        )
