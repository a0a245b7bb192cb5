"""One parameter as the exchange sees it: a name and a flat gradient.

A gradient is flattened in the order of its parameter's memory, so that a channels_last weight is
sent without a copy. Ranks must agree on that order; the fingerprint holds it.

Shapes: D elements of the parameter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import torch
from torch import Tensor

SUPPORTED_DTYPES: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class ExchangedParameter:
    """A parameter whose gradient is exchanged.

    Args:
        name: Stable name, the same on every rank.
        tensor: The parameter.

    Raises:
        TypeError: A dtype whose gradients cannot be exchanged.
        ValueError: No elements.
    """

    def __init__(self, name: str, tensor: Tensor) -> None:
        if tensor.dtype not in SUPPORTED_DTYPES:
            raise TypeError(
                "DistributedOptimizer: expected float16, bfloat16, float32 or float64 parameters, "
                f"got {tensor.dtype} for '{name}'. Exclude it from the optimizer, or call "
                "requires_grad_(False) on it."
            )
        self.name = name
        self.tensor = tensor
        self.num_elements = tensor.numel()
        strides = tensor.stride()
        self._order = sorted(range(tensor.dim()), key=lambda dim: -strides[dim])

    def describe(self) -> str:
        """Return what must be the same on every rank."""
        dtype = str(self.tensor.dtype).removeprefix("torch.")
        return f"{self.name} {dtype}{list(self.tensor.shape)} order {self._order}"

    def flatten(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the parameter's shape as a vector.

        Args:
            tensor: Dense, of the parameter's shape.

        Returns:
            Its elements; a view where it is laid out as the parameter. [D], contiguous.
        """
        return tensor.detach().permute(self._order).reshape(-1)

    def unflatten(self, flat: Tensor) -> Tensor:
        """Return a vector in the parameter's shape; a view. [D] -> the parameter's shape."""
        shape = [self.tensor.shape[dim] for dim in self._order]
        inverse = sorted(range(len(self._order)), key=self._order.__getitem__)
        return flat.view(shape).permute(inverse)

    def gradient(self) -> Tensor | None:
        """Return the local gradient as a dense vector, or None where there is none.

        Returns:
            A view of `grad` where that is possible. [D], contiguous.
        """
        grad = self.tensor.grad
        if grad is None:
            return None
        return self.flatten(grad.to_dense() if grad.is_sparse else grad)

    def writable_gradient(self) -> Tensor | None:
        """Return `grad` as a vector whose writes reach it, or None where its layout has none.

        Makes a gradient where there is none; its elements are then arbitrary. [D], contiguous.
        """
        if self.tensor.grad is None:
            self.tensor.grad = torch.empty_like(self.tensor, requires_grad=False)
        grad = self.tensor.grad
        if grad.is_sparse or not grad.permute(self._order).is_contiguous():
            return None
        return self.flatten(grad)

    def store(self, flat: Tensor) -> None:
        """Make a vector the gradient; a sparse gradient stays sparse. flat: [D]."""
        grad = self.tensor.grad
        shaped = self.unflatten(flat)
        if grad is None:
            grad = self.tensor.grad = torch.empty_like(self.tensor, requires_grad=False)
        if grad.is_sparse:
            self.tensor.grad = shaped.to(grad.dtype).to_sparse(grad.sparse_dim())
        else:
            grad.detach().copy_(shaped)

    def make_sparse(self) -> None:
        """Make a dense gradient sparse: an optimizer for sparse gradients takes no other."""
        grad = self.tensor.grad
        if grad is not None and not grad.is_sparse:
            self.tensor.grad = grad.to_sparse(1)


def exchanged_parameters(named: Iterable[tuple[str, Tensor]]) -> list[ExchangedParameter]:
    """Return the parameters that have something to exchange."""
    return [
        ExchangedParameter(name, tensor)
        for name, tensor in named
        # What requires no gradient may be of any dtype, and stay as it is
        if tensor.numel() and (tensor.requires_grad or tensor.dtype in SUPPORTED_DTYPES)
    ]
