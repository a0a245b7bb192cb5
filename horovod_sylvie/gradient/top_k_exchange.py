"""Sparse exchange of one group: the K largest elements of each parameter, with error feedback.

Messages: one allgather per step, of one payload of a fixed size (`payload.py`): about 4 K bytes
to each of P-1 ranks with bfloat16 values, whatever D is.

Shapes: P ranks, B bytes of the payload, D elements of a parameter, K selected.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from ..comm.protocol import Communicator
from ..ops.top_k import restore_selected, section_bytes
from ..ops.top_k_many import RankSections, Selection
from ..planning.plan import num_selected
from .exchange import ring_allgather_bytes
from .feedback import Feedback
from .parameter import ExchangedParameter
from .payload import Header, open_payload, receive_payloads, seal
from .payload_layout import PayloadLayout, make_layout
from .riders import Riders
from .selected_exchange import SelectedExchange, SelectionOptions


class TopKExchange(SelectedExchange):
    """Exchanges the selected elements of one group by one allgather.

    Args:
        comm: The communicator.
        name: Stable name of the group.
        selected: The parameters that are selected from, on one device.
        feedback: Of each of them.
        options: How.
        riders: Small parameters that travel whole in the same payload.
    """

    def __init__(
        self,
        comm: Communicator,
        name: str,
        selected: tuple[ExchangedParameter, ...],
        feedback: tuple[Feedback, ...],
        options: SelectionOptions,
        *,
        riders: tuple[ExchangedParameter, ...] = (),
    ) -> None:
        super().__init__(comm, name, selected, feedback, options, riders)
        self._riders = Riders(riders)
        self._follow_density(0)

    @property
    def layout(self) -> PayloadLayout:
        """Where each parameter's selected elements are in the payload."""
        return self._layout

    @property
    def num_selected(self) -> tuple[int, ...]:
        """K of each selected parameter."""
        return self._layout.num_selected

    @property
    def payload_bytes(self) -> int:
        """Bytes that this rank handed over in the newest step."""
        return self._layout.nbytes

    def proceed(self) -> None:
        """Do nothing: there is one phase."""

    def wait(self) -> list[str]:
        """Wait, check every payload, and say whose gradients were not finite."""
        gathered = self._receive(missing="wait comes after start")
        self._gathered = gathered.view(self._comm.size, self._layout.nbytes)  # [P, B]
        self._headers = [
            open_payload(row, self._layout, step=self._step.number, rank=rank, group=self.name)
            for rank, row in enumerate(receive_payloads(self._gathered))
        ]
        faults = self._faults(self._headers, "on rank")
        return faults + self._riders.receive(self._whole(self._gathered))

    def decode(self, num_active: int) -> None:
        """Sum all payloads into the gradients."""
        super().decode(num_active)
        started_s = time.perf_counter()
        # Riders travel in the unit of the gradients
        self._riders.decode(self._reduction.scale(max(1, num_active)))
        self.cost.decoding_s += time.perf_counter() - started_s

    def _use_density(self, density: float) -> None:
        num_elements = [parameter.num_elements for parameter in self.selected]
        self._layout = make_layout(
            num_elements,
            [num_selected(count, density) for count in num_elements],
            self._policy.value_dtype,
            num_whole=self._riders.num_elements,
            description=self._description,
        )
        self._payload = torch.zeros(self._layout.nbytes, dtype=torch.uint8, device=self._device)

    def _selection(
        self, feedback: Feedback, number: int, gradient: Tensor | None, scale: float
    ) -> Selection:
        return feedback.prepare(
            gradient,
            ks=(self._layout.num_selected[number],),
            scale=scale,
            rows=self._payload[None],
            offset=self._layout.offsets[number],
            dtype=self._layout.value_dtype,
        )

    def _seal(self, header: Header) -> None:
        self._riders.fill(self._whole(self._payload), self._step)
        seal(self._payload, self._layout, header, step=self._step.number, rank=self._comm.rank)

    def _submit(self) -> None:
        self._handle = self._comm.allgather(self._payload, name=f"sylvie.grad.{self.name}")
        nbytes = self._layout.nbytes
        self.cost.count(nbytes, ring_allgather_bytes(nbytes, self._comm.size))

    def _sections(
        self, payloads: Tensor, number: int, out: Tensor, skip: Sequence[int]
    ) -> RankSections:
        return RankSections(
            payloads,
            self._layout.offsets[number],
            self._layout.num_selected[number],
            self._layout.value_dtype,
            out,
            skip,
        )

    def _sent(self, number: int) -> Tensor:
        sent = torch.zeros(self._layout.num_elements[number], device=self._device)
        restore_selected(
            self._section(number),
            num_elements=self._layout.num_elements[number],
            k=self._layout.num_selected[number],
            value_dtype=self._layout.value_dtype,
            residual=sent,
        )
        return sent

    def _whole(self, payloads: Tensor) -> Tensor:
        """Return the bytes of what travels whole. payloads: [..., B]."""
        begin = self._layout.whole_begin
        return payloads[..., begin : begin + 4 * self._layout.num_whole]

    def _section(self, number: int) -> Tensor:
        """Return the bytes of one parameter's selected elements in this rank's payload."""
        start = self._layout.offsets[number]
        nbytes = section_bytes(
            self._layout.num_elements[number],
            self._layout.num_selected[number],
            self._layout.value_dtype,
        )
        return self._payload[start : start + nbytes]
