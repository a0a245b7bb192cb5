"""A saved state with something of another kind in it is refused, and changes nothing."""

from __future__ import annotations

import pytest
import torch

from horovod_sylvie.comm.loopback import LoopbackCommunicator
from tests.gradient.training import make_model, on_ranks, residuals_of, top_k, train, wrap

KEY = "horovod_sylvie"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", -1),
        ("step", "7"),
        ("rank", None),
        ("num_ranks", 0),
        ("op", 1),
        ("rates", []),
        ("rates", {"0.weight": "fast"}),
        ("by_row", "0.weight"),
        ("by_row", [0]),
        ("plan", {}),
        ("tensors", [torch.zeros(2)]),
    ],
)
def test_field_of_another_kind_raises_and_changes_nothing(field: str, value: object) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        model = make_model()
        optimizer = wrap(model, comm, compression=top_k())
        train(model, optimizer, comm, [0, 1])
        state = optimizer.state_dict()
        state[KEY] = state[KEY] | {field: value}
        before = residuals_of(optimizer)
        with pytest.raises(ValueError, match=f"expected what .* for '{field}' of .*is damaged"):
            optimizer.load_state_dict(state)
        for name, residual in residuals_of(optimizer).items():
            assert torch.equal(residual, before[name])

    on_ranks(2, body)
