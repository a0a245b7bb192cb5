"""What may stand for `compression=`: Horovod's two compressors, bfloat16, top-k, and LAGS.

Objects of the first kind have Horovod's interface (`compress(tensor)` and `decompress(tensor,
ctx)` around an allreduce); so any `hvd.Compression.*`, and any compressor of a user's own, works
too. The others are policies: frozen descriptions that the exchange acts on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from .density import Warmup, check_density

DEFAULT_MIN_ELEMENTS: Final = 16384

ResidualUnits = Literal["gradient", "learning_rate"]
SparseExchange = Literal["allgather", "two-phase"]


@runtime_checkable
class Compressor(Protocol):
    """Horovod's interface: what is allreduced is the compressed form."""

    def compress(self, tensor: Tensor) -> tuple[Tensor, Any]:
        """Return what is sent, and what `decompress` needs."""
        ...

    def decompress(self, tensor: Tensor, ctx: Any) -> Tensor:
        """Return the tensor again."""
        ...


class NoCompression:
    """Sends gradients as they are."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, None]:
        """Return the tensor."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, ctx: None) -> Tensor:  # noqa: ARG004  # Horovod's interface
        """Return the tensor."""
        return tensor


class HalfCompression:
    """Sends and sums gradients in float16. What exceeds 65504 becomes Inf."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, torch.dtype]:
        """Convert to float16."""
        return tensor.to(torch.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, ctx: torch.dtype) -> Tensor:
        """Convert back."""
        return tensor.to(ctx)


@dataclass(frozen=True)
class BFloat16:
    """Sends gradients in bfloat16 and sums them in float32.

    Horovod cannot sum bfloat16: the bytes go to the ranks that own a share each, which sum them
    and send the result round. Per rank and step that is `4 (P-1)/P` bytes an element, half of
    float32's, without float16's overflow.
    """


@dataclass(frozen=True)
class TopK:
    """Sends the K largest elements of each layer, and keeps the rest for the next step.

    The method is layer-wise top-k sparsification with error feedback (Shi et al., Layer-wise
    Adaptive Gradient Sparsification, ECAI 2020, algorithm 1).

    Attributes:
        density: K / numel of each layer, in (0, 1].
        value_dtype: How a value travels: torch.bfloat16, whose rounding error stays in the
            residual, or torch.float32.
        min_elements: Parameters with fewer elements, and those of one dimension, travel dense.
        warmup: Denser first steps, or None.
        residual_units: "gradient" keeps what was not sent as a gradient, which is applied at the
            learning rate of the step that sends it. "learning_rate" is the paper's: what was not
            sent is applied at the learning rate of the step that computed it.
        exchange: "allgather", or "two-phase" for many ranks: its volume does not grow with P.
    """

    density: float
    value_dtype: torch.dtype = torch.bfloat16
    min_elements: int = DEFAULT_MIN_ELEMENTS
    warmup: Warmup | None = None
    residual_units: ResidualUnits = "gradient"
    exchange: SparseExchange = "allgather"

    def __post_init__(self) -> None:
        """Check the fields."""
        function = "Compression.topk"
        check_density(function, "density", self.density)
        _check_shared(function, self)
        _check_choice(function, "exchange", self.exchange, ("allgather", "two-phase"))

    def density_at(self, step: int) -> float:
        """Return the density of an optimizer step, counted from 0."""
        return self.density if self.warmup is None else self.warmup.density_at(step, self.density)


@dataclass(frozen=True)
class Lags:
    """Sends as much of each layer as its exchange can hide behind the rest of backward.

    The method is LAGS-SGD (Shi et al., Layer-wise Adaptive Gradient Sparsification, ECAI 2020) with
    its adaptive densities, measured and decided on line: which layers travel together, dense or
    sparse, and at which density. `docs/planning.md` says how.

    Attributes:
        min_density: Lowest density of a layer that travels sparse, in (0, 1].
        max_density: Highest, in [min_density, 1]; also that of the first steps.
        value_dtype: As of `TopK`.
        min_elements: As of `TopK`.
        warmup: As of `TopK`; what is denser, warm-up or plan, holds.
        residual_units: As of `TopK`.
        exchange: How sparse layers travel: "auto" takes what costs least; "allgather" and
            "two-phase" force one.
        replan_every: Steps between two measurements, each followed by a decision; up to three times
            as many where a decision takes more than 2 % of the time of so many steps.
        deterministic: Whether the first plan that was made from measurements, or that came with a
            checkpoint, is kept for good.
    """

    min_density: float = 0.001
    max_density: float = 0.05
    value_dtype: torch.dtype = torch.bfloat16
    min_elements: int = DEFAULT_MIN_ELEMENTS
    warmup: Warmup | None = None
    residual_units: ResidualUnits = "gradient"
    exchange: Literal["auto"] | SparseExchange = "auto"
    replan_every: int = 50
    deterministic: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        function = "Compression.lags"
        check_density(function, "min_density", self.min_density)
        check_density(function, "max_density", self.max_density)
        if self.min_density > self.max_density:
            raise ValueError(
                f"{function}: expected 'min_density' of at most 'max_density', got "
                f"{self.min_density!r} and {self.max_density!r}."
            )
        _check_shared(function, self)
        _check_choice(function, "exchange", self.exchange, ("auto", "allgather", "two-phase"))
        is_count = isinstance(self.replan_every, int) and not isinstance(self.replan_every, bool)
        if not is_count or self.replan_every < 1:
            raise ValueError(
                f"{function}: expected a number of steps from 1 for 'replan_every', got "
                f"{self.replan_every!r}."
            )
        if not isinstance(self.deterministic, bool):
            raise TypeError(
                f"{function}: expected True or False for 'deterministic', got "
                f"{self.deterministic!r}."
            )

    def top_k(self, density: float) -> TopK:
        """Return the policy of a group that travels at a density."""
        return TopK(
            density,
            self.value_dtype,
            self.min_elements,
            self.warmup,
            self.residual_units,
            "two-phase" if self.exchange == "two-phase" else "allgather",
        )


def _check_shared(function: str, policy: TopK | Lags) -> None:
    """Check the fields that both policies have."""
    if policy.value_dtype not in {torch.bfloat16, torch.float32}:
        raise ValueError(
            f"{function}: expected torch.bfloat16 or torch.float32 for 'value_dtype', got "
            f"{policy.value_dtype!r}."
        )
    count = policy.min_elements
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ValueError(
            f"{function}: expected a number of elements from 0 for 'min_elements', got {count!r}."
        )
    if policy.warmup is not None and not isinstance(policy.warmup, Warmup):
        raise TypeError(
            f"{function}: expected an hvs.Warmup or None for 'warmup', got {policy.warmup!r}."
        )
    _check_choice(function, "residual_units", policy.residual_units, ("gradient", "learning_rate"))


def _check_choice(function: str, argument: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        listed = " or ".join(repr(choice) for choice in choices)
        raise ValueError(f"{function}: expected {listed} for '{argument}', got {value!r}.")


class Compression:
    """The choices by name, as in Horovod: `hvs.Compression.none`, `.bf16`, `.lags()` and so on."""

    none: Final = NoCompression
    fp16: Final = HalfCompression
    bf16: Final = BFloat16()
    topk: Final = TopK
    lags: Final = Lags


def check_compression(function: str, compression: object) -> None:
    """Raise a TypeError unless the optimizer knows what to do with `compression`."""
    if isinstance(compression, (TopK, Lags, BFloat16)):
        return
    if not (
        callable(getattr(compression, "compress", None))
        and callable(getattr(compression, "decompress", None))
    ):
        raise TypeError(
            f"{function}: expected hvs.Compression.none, .fp16, .bf16, .topk(density=...), .lags() "
            f"or an object with compress() and decompress() for 'compression', got {compression!r}."
        )


def can_be_sparse(tensor: Tensor, min_elements: int) -> bool:
    """Return whether a parameter's gradient may be sparsified: large, a matrix, and not float64."""
    large = tensor.numel() >= min_elements and tensor.dim() > 1
    return large and tensor.dtype != torch.float64  # residuals are float32
