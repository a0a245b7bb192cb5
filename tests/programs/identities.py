"""Everything that is checked on real ranks in one job, since starting one takes seconds.

Run by tests/launched/test_identities.py under horovodrun. Each check prints its name.
"""

from __future__ import annotations

import copy
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import pytest
import torch

from horovod_sylvie.comm.agreement import require_agreement, together
from horovod_sylvie.comm.errors import PeerError
from horovod_sylvie.comm.horovod import HorovodCommunicator
from horovod_sylvie.comm.loopback import LoopbackCommunicator, run_loopback
from horovod_sylvie.comm.protocol import Communicator
from horovod_sylvie.halo.packed_codec import OneBit
from horovod_sylvie.partition.partitioner import partition_graph
from tests import reference_training as reference


def check_results_by_hand(comm: Communicator) -> None:
    rank, size = comm.rank, comm.size
    total = comm.allreduce(torch.tensor([1.5, rank]), name="sum").wait()
    assert total.tolist() == [1.5 * size, size * (size - 1) / 2]
    rows = torch.tensor([[rank, 7]], dtype=torch.uint8)
    assert comm.allgather(rows, name="gather").wait().tolist() == [[p, 7] for p in range(size)]
    # rank r sends (r + p) % 3 rows to rank p
    send = [(rank + peer) % 3 for peer in range(size)]
    rows = torch.tensor([[10 * rank + p] for p in range(size) for _ in range(send[p])])
    received = comm.alltoall(rows.reshape(-1, 1), send, send, name="rows").wait()
    assert received.flatten().tolist() == [
        10 * p + rank for p in range(size) for _ in range((rank + p) % 3)
    ]


def check_order_of_submission_does_not_matter(comm: Communicator) -> None:
    names = [f"op{i}" for i in range(12)]
    order = names if comm.rank % 2 else names[::-1]
    handles = {name: comm.allgather(torch.tensor([int(name[2:])]), name=name) for name in order}
    for name in names:
        assert handles[name].wait().tolist() == [int(name[2:])] * comm.size


def check_mistakes_raise_before_submission(comm: Communicator) -> None:
    if comm.rank == 0:  # on one rank only: the others must not hang
        with pytest.raises(TypeError, match=r"got torch.bfloat16"):
            comm.allreduce(torch.ones(2, dtype=torch.bfloat16), name="x")
        with pytest.raises(ValueError, match="expected a contiguous"):
            comm.allgather(torch.ones(2, 3).T, name="x")
        with pytest.raises(ValueError, match=r"'send_splits\[0\]', got -1"):
            comm.alltoall(torch.ones(2), [-1] * comm.size, [0] * comm.size, name="x")
    handle = comm.allreduce(torch.ones(1), name="twice")
    with pytest.raises(ValueError, match="not in flight for 'name', got 'twice'"):
        comm.allreduce(torch.ones(1), name="twice")
    handle.wait()
    with pytest.raises(RuntimeError, match="'twice' was waited on before"):
        handle.wait()


def check_deadlines_are_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="positive number of seconds for 'timeout_s', got -1"):
        HorovodCommunicator(timeout_s=-1)
    monkeypatch.setenv("HVS_TIMEOUT_S", "soon")
    with pytest.raises(ValueError, match="positive number of seconds for 'HVS_TIMEOUT_S', got 'so"):
        HorovodCommunicator()
    HorovodCommunicator(timeout_s=1)  # an argument goes before the variable


def check_wait_ends_soon_after_the_operation(comm: Communicator) -> None:
    handle = comm.allreduce(torch.ones(1), name="late") if comm.rank else None
    if handle is not None and comm.size > 1:
        assert not handle.poll()
    comm.allreduce(torch.ones(1), name="signal").wait()
    if handle is None:
        handle = comm.allreduce(torch.ones(1), name="late")
    assert handle.wait().item() == comm.size


def check_failures_are_shared(comm: Communicator) -> None:
    require_agreement(comm, "size", str(comm.size), advice="")
    if comm.size == 1:
        return
    with pytest.raises(PeerError, match="the ranks differ in number"):
        require_agreement(comm, "number", str(comm.rank), advice="Count again.")
    expected = OSError if comm.rank == comm.size - 1 else PeerError
    with pytest.raises(expected, match="disk"):
        read_together(comm)


def read_together(comm: Communicator) -> None:
    with together(comm, "reading"):
        if comm.rank == comm.size - 1:
            raise OSError("disk on fire")


def wrap(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> torch.optim.Optimizer:
    return hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), op=hvd.Sum
    )


def check_training_equals_one_process(comm: Communicator, folder: Path, kind: str) -> None:
    graph = reference.make_graph(weighted=kind == "gcn", directed=kind == "gat")
    torch.manual_seed(1)
    model = reference.Network(kind, batch_norm=kind == "gin")
    whole = copy.deepcopy(model)
    if comm.rank == 0:
        partition_graph(graph, folder / kind, comm.size)
    comm.allreduce(torch.ones(1), name="partitioned").wait()
    # A bias in front of BatchNorm has no gradient but rounding errors, which Adam would scale up.
    optimizer = "sgd" if kind == "gin" else "adam"
    expected = reference.train_whole(graph, whole, optimizer)
    got = reference.train_partitioned(comm, folder / kind, model, optimizer, wrap=wrap)
    reference.assert_equal_results(got, expected)


def check_one_bit_equals_loopback(comm: Communicator, folder: Path) -> None:
    torch.manual_seed(1)
    model = reference.Network("sage", batch_norm=False)
    copies = [copy.deepcopy(model) for _ in range(comm.size)]

    def train(threads: LoopbackCommunicator) -> reference.Result:
        return reference.train_partitioned(
            threads,
            folder / "sage",
            copies[threads.rank],
            "adam",
            codec=OneBit(),
            num_epochs=5,
            sum_gradients=reference.gradient_summer(threads),
        )

    got = reference.train_partitioned(
        comm, folder / "sage", model, "adam", codec=OneBit(), num_epochs=5, wrap=wrap
    )
    expected = run_loopback(comm.size, train)[comm.rank]
    reference.assert_equal_results(got, expected, relative=1e-4)


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    hvd.init()
    comm = HorovodCommunicator(timeout_s=60)
    with pytest.MonkeyPatch.context() as monkeypatch:
        check_deadlines_are_validated(monkeypatch)
    checks = {
        "results": lambda: check_results_by_hand(comm),
        "order": lambda: check_order_of_submission_does_not_matter(comm),
        "mistakes": lambda: check_mistakes_raise_before_submission(comm),
        "wait": lambda: check_wait_ends_soon_after_the_operation(comm),
        "failures": lambda: check_failures_are_shared(comm),
    }
    for kind in ("sage", "gcn", "gat", "gin"):
        checks[kind] = lambda kind=kind: check_training_equals_one_process(comm, folder, kind)
    checks["one bit"] = lambda: check_one_bit_equals_loopback(comm, folder)
    for name, check in checks.items():
        start = time.perf_counter()
        check()
        print(f"passed: {name} ({time.perf_counter() - start:.2f} s)", flush=True)
    print(f"all {len(checks)} passed", flush=True)


if __name__ == "__main__":
    main()
