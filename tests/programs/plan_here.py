"""Plan a small model over the link between the ranks of this job.

Run by tests/launched/test_plan.py under horovodrun.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

from horovod_sylvie.__main__ import main


def make() -> tuple[nn.Module, Callable[[], Tensor]]:
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 400))
    inputs = torch.randn(8, 64)
    return model, lambda: model(inputs).square().mean()


if __name__ == "__main__":
    sys.exit(main(["plan", "tests.programs.plan_here:make", "--measure", *sys.argv[1:]]))
