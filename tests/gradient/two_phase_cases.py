"""A rank of a two-phase exchange without an optimizer around it, for the tests of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from horovod_sylvie.comm.protocol import Communicator
from horovod_sylvie.gradient.compression import TopK
from horovod_sylvie.gradient.exchange import Step
from horovod_sylvie.gradient.feedback import Feedback
from horovod_sylvie.gradient.owner_residual import OwnerResiduals
from horovod_sylvie.gradient.parameter import ExchangedParameter
from horovod_sylvie.gradient.reduction import ReduceOp, Reduction
from horovod_sylvie.gradient.selected_exchange import SelectionOptions
from horovod_sylvie.gradient.two_phase_exchange import TwoPhaseExchange
from horovod_sylvie.ops.shares import add_shares, share_places

CPU = torch.device("cpu")

# Many chunks with a rest, and fewer elements than two chunks: shares of it are empty
SHAPES = {"large": (173, 200), "small": (5, 11)}


class Rank:
    """One rank's parameters and what it keeps of them.

    Args:
        comm: The communicator.
        kept: A rank whose feedback and owner residuals go on, or None to begin with zeros.
        dtype: Of the parameters.
        momentum: Of momentum correction.
        op: What becomes of the gradients.
        rate: Learning rate.
        policy: Fields of the policy.
    """

    def __init__(
        self,
        comm: Communicator,
        kept: Rank | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        momentum: float | None = None,
        op: ReduceOp = "Average",
        rate: float = 0.1,
        **policy: Any,
    ) -> None:
        self.comm = comm
        self.rate = rate
        self.tensors = {
            name: torch.zeros(shape, dtype=dtype, requires_grad=True)
            for name, shape in SHAPES.items()
        }
        parameters = tuple(ExchangedParameter(*each) for each in self.tensors.items())
        self.feedback = (
            {p.name: Feedback(p.num_elements, CPU, momentum=momentum) for p in parameters}
            if kept is None
            else kept.feedback
        )
        self.owners = OwnerResiduals() if kept is None else kept.owners
        self.exchange = TwoPhaseExchange(
            comm,
            "group",
            parameters,
            tuple(self.feedback[parameter.name] for parameter in parameters),
            SelectionOptions(
                policy=TopK(**({"density": 0.05} | policy)),
                reduction=Reduction(op),
                rate_of=lambda parameter: self.rate,
                description="test",
            ),
            owners=tuple(
                self.owners.of(p, self.feedback[p.name], num_shares=comm.size, share=comm.rank)
                for p in parameters
            ),
        )

    def set_gradients(self, seed: int) -> dict[str, Tensor]:
        """Make gradients of this rank and a seed, and return copies, flat."""
        generator = torch.Generator().manual_seed(1000 * seed + self.comm.rank)
        for tensor in self.tensors.values():
            tensor.grad = torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
        return self.gradients()

    def gradients(self) -> dict[str, Tensor]:
        """Return copies of the gradients, flat."""
        found = {}
        for name, tensor in self.tensors.items():
            assert tensor.grad is not None
            found[name] = tensor.grad.flatten().clone()
        return found

    def exchange_all(self, step: Step, num_active: int | None = None) -> list[str]:
        """Take all moves of a step; return the faults, with which nothing is applied."""
        self.exchange.start(step)
        self.exchange.proceed()
        faults = self.exchange.wait()
        if faults:
            self.exchange.revert()
        else:
            self.exchange.decode(self.comm.size if num_active is None else num_active)
            self.exchange.commit()
        return faults

    def owned(self) -> dict[str, Tensor]:
        """Return the owner residual of each parameter's share."""
        return {name: each.residual for name, each in self.owners.all().items()}

    def kept(self) -> dict[str, Tensor]:
        """Return copies of all that outlives a step."""
        found = {f"owner {name}": each.clone() for name, each in self.owned().items()}
        for name, feedback in self.feedback.items():
            found[f"residual {name}"] = feedback.residual.clone()
            if feedback.velocity is not None:
                found[f"velocity {name}"] = feedback.velocity.clone()
        return found

    def sent(self, number: int) -> Tensor:
        """Read from the rows what this rank sent of a parameter in the last step. [D]"""
        return self._read(self.exchange._rows, number)

    def sums_sent(self, number: int) -> Tensor:
        """Read what all owners sent of a parameter in the last step. [D]"""
        return self._read(self.exchange._gathered, number)

    def _read(self, rows: Tensor, number: int) -> Tensor:
        layout = self.exchange.layout
        out = torch.empty(self.exchange.parameters[number].num_elements)
        add_shares(
            rows,
            offset=layout.offsets[number],
            ks=layout.counts[number],
            value_dtype=layout.value_dtype,
            scale=1.0,
            out=out,
        )
        return out

    def places(self, number: int) -> Tensor:
        """Return where this rank's share of a parameter is. [S]"""
        num_elements = self.exchange.parameters[number].num_elements
        return share_places(num_elements, self.comm.size, self.comm.rank, CPU)


def ordered_sum(parts: Sequence[Tensor]) -> Tensor:
    """Sum in float32, in the order of the ranks, from +0."""
    total = torch.zeros_like(parts[0], dtype=torch.float32)
    for part in parts:
        total = total + part.float()
    return total


def assert_same(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    """Compare bit by bit."""
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name
