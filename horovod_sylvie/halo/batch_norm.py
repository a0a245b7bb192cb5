"""Batch normalisation over the rows of all ranks.

`torch.nn.SyncBatchNorm` needs a GPU and a torch process group. This one needs a communicator, runs
on any device, and weighs every rank by its true number of rows, none included.

The gradients of `weight` and `bias` are this rank's share only: they are summed with those of all
other parameters by the optimizer, so summing them here would count them P times.

Source: Ioffe and Szegedy, "Batch Normalization" (ICML 2015), algorithm 1; statistics are merged as
in Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm" (1979), equation 2.1.

Shapes: I rows here, F features, P ranks.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..comm.protocol import Communicator
from .not_compiled import not_compiled


class SynchronizedBatchNorm(nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` with the statistics of all ranks.

    In training it makes one allgather forward, of 2 F + 1 float64 per rank, and one allreduce
    backward, of 2 F elements. In evaluation it is `BatchNorm1d`. Options, parameters and buffers
    have the same names and meaning.
    """

    comm: Communicator
    layer: str

    @staticmethod
    def convert(
        module: nn.BatchNorm1d | nn.SyncBatchNorm, comm: Communicator, layer: str
    ) -> nn.Module:
        """Make a synchronised layer that shares a layer's parameters and buffers.

        Args:
            module: The layer to replace. Its parameters are taken over, not copied, so an
                optimizer that was made before stays right.
            comm: The communicator.
            layer: Stable name, the same on every rank.

        Returns:
            The new layer.
        """
        new = SynchronizedBatchNorm(
            module.num_features,
            eps=module.eps,
            momentum=module.momentum,
            affine=False,
            track_running_stats=module.track_running_stats,
        )
        new.comm, new.layer = comm, layer
        new.affine = module.affine
        for name, parameter in module._parameters.items():
            new.register_parameter(name, parameter)
        for name, buffer in module._buffers.items():
            new.register_buffer(name, buffer)
        return new.train(module.training)

    def __deepcopy__(self, memo: dict[int, Any]) -> SynchronizedBatchNorm:
        """Copy parameters and buffers; the copy is of the same ranks."""
        memo[id(self.comm)] = self.comm
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return new

    @not_compiled
    def forward(self, input: Tensor) -> Tensor:
        """Normalise. Collective in training: all ranks call, also those without rows.

        Args:
            input: Rows of this rank. [I, F], floating point

        Returns:
            Normalised rows. [I, F], dtype of `input`

        Raises:
            ValueError: Wrong shape, or one row in all in training.
        """
        self._check_rows(input)
        if not self.training and self.running_mean is not None:
            return super().forward(input)
        mean, variance, count = self._global_statistics(input)
        if self.training and self.track_running_stats:
            self._update_running(mean, variance, count)
        # half precision is normalised in float32 and rounded once, as BatchNorm1d does
        rows = input.to(torch.promote_types(input.dtype, torch.float32))
        normalized: Tensor = _Normalize.apply(  # type: ignore[no-untyped-call]
            rows, mean, variance, count, self.eps, self.comm, self.layer
        )
        if self.weight is not None:
            normalized = normalized * self.weight + self.bias
        return normalized.to(input.dtype)

    def _check_rows(self, input: Tensor) -> None:
        if input.dim() != 2 or input.shape[1] != self.num_features:
            raise ValueError(
                f"SynchronizedBatchNorm: expected rows [I, {self.num_features}] for 'input', got "
                f"{tuple(input.shape)}."
            )

    def _global_statistics(self, input: Tensor) -> tuple[Tensor, Tensor, int]:
        """Return mean [F] and biased variance [F], float64, and the number of rows of all ranks."""
        rows = input.detach().double()
        count = rows.shape[0]
        mean = rows.sum(0) / max(count, 1)  # [F]
        spread = ((rows - mean) ** 2).sum(0)  # [F]
        local = torch.cat([mean, spread, mean.new_full((1,), float(count))]).reshape(1, -1)
        name = f"sylvie.batch_norm.{self.layer}.forward"
        gathered = self.comm.allgather(local, name=name).wait()  # [P, 2 F + 1]
        means, spreads = gathered[:, : len(mean)], gathered[:, len(mean) : -1]
        counts = gathered[:, -1:]
        total = int(counts.sum())  # read once: on a GPU each reading waits for the device
        if total < 2:
            raise ValueError(
                "SynchronizedBatchNorm: expected at least two rows over all ranks in training, "
                f"got {total}."
            )
        global_mean = (means * counts).sum(0) / total
        global_spread = (spreads + counts * (means - global_mean) ** 2).sum(0)
        return global_mean, global_spread / total, total

    def _update_running(self, mean: Tensor, variance: Tensor, count: int) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:  # a cumulative average
            share = 1.0 / float(self.num_batches_tracked)
        unbiased = variance * (count / (count - 1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)


class _Normalize(torch.autograd.Function):
    """`(x - mean) / sqrt(variance + eps)`, differentiated through the global statistics."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mean: Tensor,
        variance: Tensor,
        count: int,
        eps: float,
        comm: Communicator,
        layer: str,
    ) -> Tensor:
        scale = torch.rsqrt(variance + eps).to(x.dtype)
        normalized = (x - mean.to(x.dtype)) * scale
        ctx.save_for_backward(normalized, scale)
        ctx.count, ctx.comm, ctx.layer = count, comm, layer
        return normalized

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None, None]:
        normalized, scale = ctx.saved_tensors
        sums = torch.stack([gradient.sum(0), (gradient * normalized).sum(0)]).double()  # [2, F]
        name = f"sylvie.batch_norm.{ctx.layer}.backward"
        sums = ctx.comm.allreduce(sums, name=name).wait().to(gradient.dtype) / ctx.count
        return (gradient - sums[0] - normalized * sums[1]) * scale, *(None,) * 6
