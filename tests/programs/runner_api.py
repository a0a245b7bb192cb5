"""A program that starts its ranks itself, by `horovod.run`."""

from __future__ import annotations

import horovod
import torch
from torch import nn

import horovod_sylvie as hvs


def train() -> list[float]:
    """Train with selected gradients; return the last weights."""
    import horovod.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Linear(16, 4)
    optimizer = hvs.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        model.named_parameters(),
        compression=hvs.Compression.topk(density=0.25, min_elements=4),
    )
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 16, generator=generator)).square().mean().backward()
        optimizer.step()
    weights: list[float] = model.weight.detach().flatten().tolist()
    return weights


def main() -> None:
    """Compare what the ranks return."""
    first, *others = horovod.run(train, np=2, use_gloo=True)
    assert others == [first], "ranks differ"
    print("the ranks agree", flush=True)


if __name__ == "__main__":
    main()
