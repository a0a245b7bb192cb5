"""What one wrapped optimizer exchanges, and how: checked, resolved, the same on every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .compression import Lags, TopK
from .grouping import Groups
from .momentum import MomentumOptions
from .reduction import Reduction


@dataclass(frozen=True)
class ExchangeOptions:
    """The choices of a `DistributedOptimizer`, except the parameters.

    Attributes:
        compression: As `check_compression` accepts it.
        reduction: Sum or mean.
        groups: As `make_groups` takes it.
        sparse_as_dense: Whether sparse gradients travel dense.
        clip_norm: Largest norm of a step's reduced gradient before it meets a residual; None for
            no clipping.
        uneven_batches: Whether ranks may run out of batches at different steps.
        momentum: By parameter id: what momentum correction took from the optimizer; empty without.
        scaler: The GradScaler that scales the loss, or None.
        telemetry_every: Steps between two samples of compression error; 0 for none.
        yields: Whether other traffic goes first: exchanges start at the end of backward, and
            without compression all parameters travel in one message.
    """

    compression: Any
    reduction: Reduction
    groups: Groups = None
    sparse_as_dense: bool = False
    clip_norm: float | None = None
    uneven_batches: bool = False
    momentum: Mapping[int, MomentumOptions] = field(default_factory=lambda: MappingProxyType({}))
    scaler: Any = None
    telemetry_every: int = 0
    yields: bool = False

    @property
    def sparse(self) -> TopK | Lags | None:
        """The policy, where gradients are sparsified."""
        return self.compression if isinstance(self.compression, (TopK, Lags)) else None

    @property
    def lags(self) -> Lags | None:
        """The policy, where densities adapt."""
        return self.compression if isinstance(self.compression, Lags) else None

    @property
    def starts_late(self) -> bool:
        """Whether every exchange starts at the end of backward."""
        return self.clip_norm is not None or self.yields

    @property
    def scales_loss(self) -> bool:
        """Whether a GradScaler scales the loss; one that is disabled does nothing."""
        return self.scaler is not None and bool(self.scaler.is_enabled())

    def loss_scale(self) -> float:
        """Return what the loss is multiplied by at present."""
        return float(self.scaler.get_scale()) if self.scales_loss else 1.0

    def clip_limit(self, num_ranks: int) -> float | None:
        """Return the largest norm of one rank's gradient, so that the reduced one keeps to its."""
        if self.clip_norm is None or self.reduction.op == "Average":
            return self.clip_norm
        return self.clip_norm / num_ranks

    def describe(self) -> str:
        """Return what must be the same on every rank, in one line."""
        compression = self.compression
        if not isinstance(compression, (TopK, Lags)) and isinstance(compression, type):
            compression = compression.__qualname__
        elif hasattr(compression, "compress"):
            compression = type(compression).__qualname__  # its repr may hold an address
        return (
            f"compression={compression}, {self.reduction}, groups={self.groups}, "
            f"sparse_as_dense={self.sparse_as_dense}, clip_norm={self.clip_norm}, "
            f"uneven_batches={self.uneven_batches}, momentum={'dgc' if self.momentum else 'post'}, "
            f"scaler={self.scaler is not None}, telemetry_every={self.telemetry_every}, "
            f"yields={self.yields}"
        )
