"""What may stand for `compression=`: Horovod's two compressors, bfloat16, and top-k.

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
    """

    density: float
    value_dtype: torch.dtype = torch.bfloat16
    min_elements: int = DEFAULT_MIN_ELEMENTS
    warmup: Warmup | None = None
    residual_units: ResidualUnits = "gradient"

    def __post_init__(self) -> None:
        """Check the fields."""
        function = "Compression.topk"
        check_density(function, "density", self.density)
        if self.value_dtype not in {torch.bfloat16, torch.float32}:
            raise ValueError(
                f"{function}: expected torch.bfloat16 or torch.float32 for 'value_dtype', got "
                f"{self.value_dtype!r}."
            )
        is_count = isinstance(self.min_elements, int) and not isinstance(self.min_elements, bool)
        if not is_count or self.min_elements < 0:
            raise ValueError(
                f"{function}: expected a number of elements from 0 for 'min_elements', got "
                f"{self.min_elements!r}."
            )
        if self.warmup is not None and not isinstance(self.warmup, Warmup):
            raise TypeError(
                f"{function}: expected an hvs.Warmup or None for 'warmup', got {self.warmup!r}."
            )
        if self.residual_units not in {"gradient", "learning_rate"}:
            raise ValueError(
                f"{function}: expected 'gradient' or 'learning_rate' for 'residual_units', got "
                f"{self.residual_units!r}."
            )

    def density_at(self, step: int) -> float:
        """Return the density of an optimizer step, counted from 0."""
        return self.density if self.warmup is None else self.warmup.density_at(step, self.density)


class Compression:
    """The choices by name, as in Horovod: `hvs.Compression.none`, `.fp16`, `.bf16`, `.topk()`."""

    none: Final = NoCompression
    fp16: Final = HalfCompression
    bf16: Final = BFloat16()
    topk: Final = TopK


def check_compression(function: str, compression: object) -> None:
    """Raise a TypeError unless the optimizer knows what to do with `compression`."""
    if isinstance(compression, (TopK, BFloat16)):
        return
    if not (
        callable(getattr(compression, "compress", None))
        and callable(getattr(compression, "decompress", None))
    ):
        raise TypeError(
            f"{function}: expected hvs.Compression.none, .fp16, .bf16, .topk(density=...) or an "
            f"object with compress() and decompress() for 'compression', got {compression!r}."
        )


def can_be_sparse(tensor: Tensor, min_elements: int) -> bool:
    """Return whether a parameter's gradient may be sparsified: large, a matrix, and not float64."""
    large = tensor.numel() >= min_elements and tensor.dim() > 1
    return large and tensor.dtype != torch.float64  # residuals are float32
