"""What programs written for `hvd.DistributedOptimizer` do with an optimizer, on real ranks.

Run by optimizer_checks.py.
"""

from __future__ import annotations

import copy
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from torch import Tensor, nn

import horovod_sylvie as hvs
from tests.programs import optimizer_training as training
from tests.programs.optimizer_identities import assert_equal_on_all_ranks, ours, stock
from tests.programs.optimizer_training import make_model, top_k, train

SPARSE = top_k(0.1)


def mean_rank() -> float:
    return (hvd.size() - 1) / 2


def linear(width: int = 3) -> nn.Linear:
    """A layer whose gradient on rank r is r everywhere, if its input is r."""
    layer = nn.Linear(width, 2, bias=False)
    nn.init.constant_(layer.weight, 0.5)
    return layer


def backward(layer: nn.Module, width: int = 3) -> None:
    layer(torch.full((1, width), float(hvd.rank()))).sum().backward()


def all_optimizers() -> list[type[torch.optim.Optimizer]]:
    # Horovod broadcasts no LBFGS; SparseAdam has a check of its own
    without = {torch.optim.Optimizer, torch.optim.LBFGS, torch.optim.SparseAdam}
    kinds = [each for each in vars(torch.optim).values() if isinstance(each, type)]
    return [
        each for each in kinds if issubclass(each, torch.optim.Optimizer) and each not in without
    ]


def check_state_of_every_optimizer_is_broadcast() -> None:
    kinds = all_optimizers()
    assert len(kinds) >= 11
    for kind in kinds:
        for trained in (False, True):
            model = make_model(bias=False)
            rate = 0.001 * (1 + hvd.rank())
            optimizer = ours(compression=SPARSE)(kind(model.parameters(), lr=rate), model)
            if trained:
                training.loss_of(model, 0, hvd.rank()).backward()
                optimizer.step()
            residuals = {
                name: tensor.clone()
                for name, tensor in hvs_state(optimizer).items()
                if name.startswith("residual.")
            }
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            states = optimizer.state_dict()["state"].values()
            assert len(states) == 2 or kind is torch.optim.SGD, kind
            for number, state in enumerate(states):
                for name, value in state.items():
                    if isinstance(value, Tensor):
                        flat = value.float().reshape(-1)
                        assert_equal_on_all_ranks(flat, f"{kind.__name__}.{number}.{name}")
            # As with Horovod, options come with the state: plain SGD has neither
            if states:
                assert optimizer.param_groups[0]["lr"] == pytest.approx(0.001), kind
            for name, tensor in residuals.items():
                assert torch.equal(tensor, hvs_state(optimizer)[name]), "each rank keeps its own"
            optimizer.zero_grad()
            training.loss_of(model, 1, hvd.rank()).backward()
            optimizer.step()


def hvs_state(optimizer: Any) -> dict[str, Tensor]:
    saved = optimizer.state_dict().get("horovod_sylvie")
    return {} if saved is None else saved["tensors"]


def check_state_trained_on_one_rank_reaches_the_others() -> None:
    model = make_model()
    plain = training.sgd(model)
    if hvd.rank() == 0:
        training.loss_of(model, 0, 0).backward()
        plain.step()
        plain.zero_grad()
    optimizer = ours(compression=SPARSE)(plain, model)
    # In this order: where there is no state yet, Horovod takes a step to make one, and that step
    # decays the weights
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    assert_equal_on_all_ranks(training.parameters_of(model), "restored")
    momentum = [state["momentum_buffer"] for state in optimizer.state.values()]
    assert all(bool(buffer.any()) for buffer in momentum[:1])
    for step in range(1, 4):
        optimizer.zero_grad()
        training.loss_of(model, step, hvd.rank()).backward()
        optimizer.step()
    assert_equal_on_all_ranks(training.parameters_of(model), "restored.trained")


def check_programs_that_horovod_cannot_run() -> None:
    """Each of these raises with `hvd.DistributedOptimizer` of 0.28.1."""
    for compression in (hvs.Compression.none, hvs.Compression.bf16, SPARSE):
        model = make_model().to(torch.bfloat16)
        optimizer = ours(compression=compression)(training.sgd(model), model)
        x, y = training.make_batch(0, hvd.rank())
        nn.functional.cross_entropy(model(x.bfloat16()).float(), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        assert all(parameter.grad is None for parameter in model.parameters())
        assert_equal_on_all_ranks(training.parameters_of(model).float(), "bf16")
    for compression in (hvs.Compression.none, hvs.Compression.fp16, SPARSE):
        images = nn.Conv2d(4, 8, 3)
        hvd.broadcast_parameters(images.state_dict(), root_rank=0)  # it takes no other layout
        images = images.to(memory_format=torch.channels_last)
        reference = copy.deepcopy(images)
        optimizer = ours(compression=compression)(training.sgd(images), images)
        x = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(hvd.rank()))
        images(x).square().mean().backward()
        optimizer.step()
        assert_equal_on_all_ranks(training.parameters_of(images), "channels_last")
        assert not torch.equal(images.weight, reference.weight)


class WithArgument(torch.optim.SGD):
    """A user's optimizer with a required argument, which Horovod cannot construct again."""

    def __init__(self, params: Any, temperature: float) -> None:
        super().__init__(params, lr=0.1)
        self.temperature = temperature


def check_what_the_optimizer_has_stays() -> None:
    layer = linear()
    plain = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    backward(layer)
    plain.step()
    before = plain.state[layer.weight]["momentum_buffer"].clone()
    calls: list[str] = []
    plain.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer = ours()(plain, layer)
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    assert torch.equal(optimizer.state[layer.weight]["momentum_buffer"], before)
    assert optimizer.defaults["lr"] == 0.1
    optimizer.zero_grad()
    backward(layer)
    optimizer.step()
    assert calls == ["pre", "post"]
    with pytest.raises(TypeError, match="cannot be pickled or deep-copied"):
        copy.deepcopy(optimizer)
    user = WithArgument(linear().parameters(), 3.0)
    wrapped = hvs.DistributedOptimizer(user)
    assert isinstance(wrapped, WithArgument)
    assert wrapped.temperature == 3.0


def check_parameters_added_later_are_reduced() -> None:
    first, second = linear(), linear()
    optimizer = ours()(torch.optim.SGD(first.parameters(), lr=0.1), first)
    optimizer.add_param_group({"params": list(second.parameters())})
    assert optimizer.param_groups[1]["lr"] == 0.1
    for _ in range(2):
        optimizer.zero_grad()
        backward(first)
        backward(second)
        optimizer.synchronize()
        assert second.weight.grad.flatten().tolist() == [mean_rank()] * 6
        with optimizer.skip_synchronize():
            optimizer.step()


def check_second_backward_and_accumulation() -> None:
    layer = linear()
    optimizer = ours()(torch.optim.SGD(layer.parameters(), lr=0.1), layer)
    backward(layer)
    if hvd.size() > 1:
        with pytest.raises(AssertionError, match="computed more than backward_passes_per_step"):
            backward(layer)
        with pytest.raises(AssertionError, match="zero_grad.. was called after loss.backward"):
            optimizer.zero_grad()
    optimizer.synchronize()
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(2)
    backward(layer)
    backward(layer)
    optimizer.synchronize()
    assert layer.weight.grad.flatten().tolist() == [2 * mean_rank()] * 6  # a sum, as with Horovod


def check_grad_scaler_recipes() -> None:
    for compression in (hvs.Compression.none, SPARSE):
        ends = []
        for scale in (1.0, 2.0**10):
            model = make_model()
            scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale != 1.0)
            optimizer = ours(compression=compression, scaler=scaler)(training.sgd(model), model)
            for step in range(4):
                optimizer.zero_grad()
                scaler.scale(training.loss_of(model, step, hvd.rank())).backward()
                scaler.step(optimizer)
                scaler.update()
            ends.append(training.parameters_of(model))
        torch.testing.assert_close(ends[0], ends[1], rtol=1e-4, atol=1e-6)
        assert_equal_on_all_ranks(ends[1], "scaled")


def check_overflow_on_one_rank_skips_everywhere() -> None:
    model = make_model()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    optimizer = ours(compression=SPARSE, scaler=scaler)(training.sgd(model), model)
    before = training.parameters_of(model)
    loss = training.loss_of(model, 0, hvd.rank())
    scaler.scale(loss * (float("inf") if hvd.rank() == hvd.size() - 1 else 1.0)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**7
    assert torch.equal(training.parameters_of(model), before)
    optimizer.zero_grad()
    scaler.scale(training.loss_of(model, 1, hvd.rank())).backward()
    scaler.step(optimizer)
    assert not torch.equal(training.parameters_of(model), before)


class Halving:
    """A user's compressor, written against Horovod's interface."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, float]:
        return (tensor / 2).half(), 2.0

    @staticmethod
    def decompress(tensor: Tensor, ctx: float) -> Tensor:
        return tensor.float() * ctx


def check_compressor_of_the_user_equals_horovods() -> None:
    got = train(make_model(), ours(compression=Halving), hvd.rank())
    expected = train(make_model(), stock(compression=Halving), hvd.rank())
    torch.testing.assert_close(got, expected, rtol=5e-3, atol=5e-4)
    assert hvd.size() > 2 or torch.equal(got, expected)


def check_layer_unused_on_some_ranks() -> None:
    for compression in (hvs.Compression.none, SPARSE):
        used, rare = linear(), linear()
        both = nn.ModuleList([used, rare])
        optimizer = ours(compression=compression)(torch.optim.SGD(both.parameters(), lr=1.0), both)
        for step in range(3):
            optimizer.zero_grad()
            x = torch.ones(1, 3)
            (used(x) + (rare(x) if hvd.rank() == step % hvd.size() else 0)).sum().backward()
            optimizer.step()
        assert_equal_on_all_ranks(rare.weight.detach(), "rare")
        if compression is hvs.Compression.none:
            expected = 0.5 - 3 / hvd.size()
            torch.testing.assert_close(rare.weight, torch.full_like(rare.weight, expected))


def check_join_of_horovod_works_where_all_is_allreduced() -> None:
    """Its mean is over all ranks, as with Horovod. What top-k does is in optimizer_faults.py."""
    num_steps = (2, 3, 2, 4)[hvd.rank()]
    got = train(make_model(), ours(), hvd.rank(), num_steps=num_steps)
    hvd.join()
    expected = train(make_model(), stock(), hvd.rank(), num_steps=num_steps)
    hvd.join()
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


CHECKS = (
    check_state_of_every_optimizer_is_broadcast,
    check_state_trained_on_one_rank_reaches_the_others,
    check_programs_that_horovod_cannot_run,
    check_what_the_optimizer_has_stays,
    check_parameters_added_later_are_reduced,
    check_second_backward_and_accumulation,
    check_grad_scaler_recipes,
    check_overflow_on_one_rank_skips_everywhere,
    check_compressor_of_the_user_equals_horovods,
    check_layer_unused_on_some_ranks,
    check_join_of_horovod_works_where_all_is_allreduced,
)
