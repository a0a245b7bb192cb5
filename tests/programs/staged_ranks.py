"""Staged operations over real Horovod, in another order on every rank. Usage: staged_ranks.py.

The device is a fake one, whose copies end at random: submissions drift apart, and names pair them.
"""

from __future__ import annotations

import random

import horovod.torch as hvd
import torch
from torch import Tensor

from horovod_sylvie.comm.checked import CheckedCommunicator
from horovod_sylvie.comm.horovod_operations import HorovodOperations
from horovod_sylvie.comm.staged import StagedCommunicator
from tests.comm.test_staged import KINDS, all_rounds
from tests.device.fake_streams import FakeStreams
from tests.gradient.training import top_k, trained

ROUNDS, OPERATIONS = 5, 12


def main() -> None:
    hvd.init()
    torch.set_num_threads(1)
    plain = HorovodOperations(timeout_s=60)
    generator = random.Random(hvd.rank())
    orders = [generator.sample(range(OPERATIONS), OPERATIONS) for _ in range(ROUNDS)]
    expected = all_rounds(plain, orders, len(KINDS))
    streams = FakeStreams(seed=hvd.rank(), chance=0.1)
    staged = StagedCommunicator(plain, streams, timeout_s=60)
    with CheckedCommunicator(staged) as checked:
        check(all_rounds(checked, orders, len(KINDS)), expected)
        weights = trained(checked, compression=top_k())  # type: ignore[arg-type]
    check([weights], [trained(plain, compression=top_k())])  # type: ignore[arg-type]
    streams.complete_all()
    assert streams.faults == [], streams.faults
    print(f"rank {hvd.rank()}: staged as well", flush=True)


def check(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


if __name__ == "__main__":
    main()
