"""One rank of `soak.py`: trains two models, late at random, until the time is over.

After each epoch all ranks tell each other a hash of their parameters, their memory, and how long
their longest step took. Rank 0's clock says when it is enough.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn import GraphSAGE

import horovod_sylvie as hvs
from horovod_sylvie.comm.delayed import DelayedCommunicator
from horovod_sylvie.partition.process_memory import resident_bytes

_NUM_INPUTS, _NUM_CLASSES, _BATCH = 64, 10, 16
_CALL_DELAY_S: Final = 0.002  # the longest before a call that communicates
_LATE_SHARE: Final = 0.05  # of the steps, in which a rank is late
_CHANGES_S: Final = (3.0, 10.0)  # between two changes of the links
_EMULATED_HOSTS: Final = Path(__file__).with_name("emulated_hosts.py")


@dataclass(frozen=True)
class Pace:
    """How long a rank trains, and how late it is.

    Attributes:
        duration_s: Seconds after which no further epoch begins.
        num_steps: Of an epoch.
        longest_delay_s: Of a step.
        seed: Of delays and data.
        rates: That the links get by turns, at random; none if they are left alone.
    """

    duration_s: float
    num_steps: int = 50
    longest_delay_s: float = 0.2
    seed: int = 0
    rates: tuple[str, ...] = ()


class ChangingLinks:
    """Links of emulated hosts, which get another rate every few seconds.

    Args:
        rates: Which; if there are none, links stay as they are.
        seed: Of the choice.
    """

    def __init__(self, rates: Sequence[str], seed: int) -> None:
        self._rates = rates
        self._random = random.Random(seed)
        self._next_s = time.monotonic() + self._random.uniform(*_CHANGES_S)

    def change_when_due(self) -> None:
        """Give all links a rate, if it is time to."""
        if not self._rates or time.monotonic() < self._next_s:
            return
        command = [sys.executable, str(_EMULATED_HOSTS), "--change"]
        rate = self._random.choice(self._rates)
        subprocess.run([*command, rate], check=True)
        print(f"links at {rate}", flush=True)
        self._next_s = time.monotonic() + self._random.uniform(*_CHANGES_S)


class Soak:
    """The two models of a rank.

    Args:
        part: This rank's part of the graph.
        comm: Of all ranks. Collective.
        pace: How long, and how late.
    """

    def __init__(self, part: hvs.Partition, comm: hvs.Communicator, pace: Pace) -> None:
        self.part = part
        self.comm = comm
        self.pace = pace
        self._random = random.Random(f"{pace.seed}|{comm.rank}")
        self._links = ChangingLinks(pace.rates if comm.rank == 0 else (), pace.seed)
        self._data = torch.Generator().manual_seed(1000 * pace.seed + comm.rank)
        late = DelayedCommunicator(comm, seed=pace.seed, longest_s=_CALL_DELAY_S)
        self.mlp = nn.Sequential(
            nn.Linear(_NUM_INPUTS, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()
        ).append(nn.Linear(256, _NUM_CLASSES))
        self.mlp_optimizer = hvs.DistributedOptimizer(
            torch.optim.SGD(self.mlp.parameters(), lr=0.01, momentum=0.9),
            [(f"mlp.{name}", each) for name, each in self.mlp.named_parameters()],
            compression=hvs.Compression.lags(max_density=0.05),
            comm=late,
        )
        staleness = hvs.Pipelined(sync_every=10)
        self.halo = hvs.HaloExchange(part, hvs.OneBit(), staleness=staleness, comm=late)
        gnn = GraphSAGE(part.num_features, 32, num_layers=3, out_channels=part.num_classes)
        self.gnn = hvs.convert_model(gnn, self.halo)
        self._fill_parameters()
        self.gnn_optimizer = hvs.DistributedOptimizer(
            torch.optim.Adam(self.gnn.parameters(), lr=1e-3),
            [(f"gnn.{name}", each) for name, each in self.gnn.named_parameters()],
            op="Sum",
            halo=self.halo,
            comm=late,
        )

    def take_step(self) -> float:
        """Train one step of both models; return how many seconds it took, delays included."""
        start_s = time.perf_counter()
        self._links.change_when_due()
        self._be_late()
        inputs = torch.randn(_BATCH, _NUM_INPUTS, generator=self._data)
        targets = torch.randint(_NUM_CLASSES, (_BATCH,), generator=self._data)
        self.mlp_optimizer.zero_grad()
        functional.cross_entropy(self.mlp(inputs), targets).backward()
        self._be_late()
        self.mlp_optimizer.step()
        self.gnn_optimizer.zero_grad()
        hvs.loss_share(self.gnn(self.part.x, self.part.edge_index), self.part).backward()
        self.gnn_optimizer.step()
        return time.perf_counter() - start_s

    def run(self) -> list[dict[str, Any]]:
        """Train until the time is over. Collective.

        Returns:
            Of each epoch: seconds since the start, number of steps, the parameters' hash, and by
            rank the bytes of memory and the seconds of the longest step.

        Raises:
            RuntimeError: The parameters of two ranks differ after an epoch.
        """
        start_s = time.monotonic()
        epochs: list[dict[str, Any]] = []
        while not epochs or epochs[-1]["s"] < self.pace.duration_s:
            longest_s = max(self.take_step() for _ in range(self.pace.num_steps))
            own = {
                "s": time.monotonic() - start_s,
                "hash": self.hash_of_parameters(),
                "memory_bytes": resident_bytes(),
                "longest_step_s": longest_s,
            }
            texts = hvs.gather_bytes(self.comm, json.dumps(own).encode(), name="soak.epoch")
            ranks = [json.loads(text) for text in texts]
            hashes = [each["hash"] for each in ranks]
            if len(set(hashes)) > 1:
                raise RuntimeError(f"epoch {len(epochs) + 1}: parameters differ by rank: {hashes}")
            epochs.append(
                {"s": ranks[0]["s"], "steps": self.pace.num_steps, "hash": hashes[0]}
                | {key: [each[key] for each in ranks] for key in ("memory_bytes", "longest_step_s")}
            )
            if self.comm.rank == 0:
                print(line_of(epochs), flush=True)
        self.halo.drain()
        return epochs

    def hash_of_parameters(self) -> str:
        """Return a hash of every bit of both models' parameters. Hex."""
        digest = hashlib.blake2b(digest_size=8)
        for parameter in (*self.mlp.parameters(), *self.gnn.parameters()):
            digest.update(parameter.detach().numpy().tobytes())
        return digest.hexdigest()

    def _fill_parameters(self) -> None:
        """Let parameters be the same on all ranks."""
        drawn = torch.Generator().manual_seed(self.pace.seed)
        for parameter in (*self.mlp.parameters(), *self.gnn.parameters()):
            parameter.data.uniform_(-0.1, 0.1, generator=drawn)

    def _be_late(self) -> None:
        """Sleep: a little mostly, sometimes long."""
        late = self._random.random() < _LATE_SHARE
        longest_s = self.pace.longest_delay_s * (1.0 if late else 0.01)
        time.sleep(self._random.uniform(0.0, longest_s))


def line_of(epochs: list[dict[str, Any]]) -> str:
    """Say how the newest epoch went."""
    newest = epochs[-1]
    memory = ", ".join(f"{each / 2**20:.1f}" for each in newest["memory_bytes"])
    return (
        f"epoch {len(epochs):4d}  {newest['s']:7.1f} s  parameters {newest['hash']}  memory "
        f"{memory} MiB  longest step {max(newest['longest_step_s']):.2f} s"
    )


def main() -> None:
    """Be a rank; rank 0 writes what was seen."""
    import horovod.torch as hvd

    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--parts", type=Path, required=True, help="partition directory")
    add("--report", type=Path, required=True, help="where rank 0 writes")
    add("--minutes", type=float, required=True)
    add("--steps", type=int, default=Pace.num_steps, help="of an epoch")
    add("--deadline-s", type=float, required=True, help="of each wait")
    add("--longest-delay-s", type=float, default=Pace.longest_delay_s, help="of a step")
    add("--seed", type=int, default=Pace.seed)
    add("--rates", default="", help="that the links get by turns")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    comm = hvs.HorovodCommunicator(timeout_s=args.deadline_s)
    with hvs.together(comm, "loading the partition"):
        part = hvs.load_partition(args.parts, comm.rank, comm.size)
    rates = tuple(args.rates.split(",")) if args.rates else ()
    pace = Pace(60 * args.minutes, args.steps, args.longest_delay_s, args.seed, rates)
    epochs = Soak(part, comm, pace).run()
    if comm.rank == 0:
        args.report.write_text(json.dumps(epochs))
    hvd.shutdown()


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        rank = os.environ.get("HOROVOD_RANK", "?")
        print(f"rank {rank}: {type(error).__name__}: {error}", flush=True)
        os._exit(1)  # Horovod's shutdown waits for ranks that may never answer
