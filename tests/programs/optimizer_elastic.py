"""Training under Horovod Elastic while ranks go and come.

Run by tests/launched/test_optimizer_elastic.py: optimizer_elastic.py FAULT HOSTS. HOSTS is the file
that the job's hosts are read from; the file of that name with ".killed" says that the fault was.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from torch import Tensor

import horovod_sylvie as hvs
from tests.programs import optimizer_training as training
from tests.programs.optimizer_identities import assert_equal_on_all_ranks

ALONE, BOTH = "localhost:1\n", "localhost:1\n127.0.0.1:1\n"
STEPS, FAULT_STEP, COMMIT_EVERY = 40, 14, 4


def residuals_of(optimizer: Any) -> dict[str, Tensor]:
    tensors = optimizer.state_dict()["horovod_sylvie"]["tensors"]
    return {name: each.clone() for name, each in tensors.items() if name.startswith("residual.")}


def say(text: str) -> None:
    print(f"rank {hvd.rank()} of {hvd.size()}: {text}", flush=True)


class Training:
    """A training that remembers what it had when it was last committed."""

    def __init__(self, fault: str, hosts: Path) -> None:
        self.fault, self.hosts = fault, hosts
        self.model = training.make_model()
        options: dict[str, Any] = {"momentum": "dgc"} if fault == "killed with dgc" else {}
        self.optimizer = hvs.DistributedOptimizer(
            training.sgd(self.model),
            self.model.named_parameters(),
            compression=training.top_k(0.05),
            **options,
        )
        self.state = hvd.elastic.TorchState(model=self.model, optimizer=self.optimizer, step=0)
        self.committed = residuals_of(self.optimizer)
        self.size = hvd.size()

    def run(self, state: Any) -> None:
        """Train to the end; Horovod calls this again after every change of ranks."""
        say(f"goes on at step {state.step}, {self._what_is_pending()}")
        self.size = hvd.size()
        while state.step < STEPS:
            self._change_ranks(state.step)
            self.optimizer.zero_grad()
            loss = training.loss_of(self.model, state.step, hvd.rank())
            loss.backward()
            self.optimizer.step()
            state.step += 1
            if state.step % COMMIT_EVERY == 0:
                assert_equal_on_all_ranks(training.parameters_of(self.model), "committed")
                self._commit()
        say(f"ends, held-out loss {self._held_out_loss():.4f}")

    def _what_is_pending(self) -> str:
        """Compare with the last commit: a mean over fewer ranks counts each of them more."""
        if self.size == hvd.size():
            return "as before"
        now = residuals_of(self.optimizer)
        if not any(bool(each.any()) for each in now.values()):
            return f"nothing pending from {self.size} ranks"
        ratio = hvd.size() / self.size
        # Where Horovod skips the sync, for ranks have only gone, the first step rescales
        for what, factor in (("rescaled", ratio), ("to be rescaled", 1.0)):
            if all(torch.allclose(now[name], factor * old) for name, old in self.committed.items()):
                return f"residuals {what} from {self.size} ranks"
        return "residuals lost"

    def _change_ranks(self, step: int) -> None:
        killed = Path(f"{self.hosts}.killed")
        if self.fault.startswith("killed"):
            if step == FAULT_STEP and hvd.rank() == 1 and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return
        wanted = BOTH if FAULT_STEP <= step < 2 * FAULT_STEP else ALONE
        if hvd.rank() == 0 and self.hosts.read_text() != wanted:
            self.hosts.write_text(wanted)
        while hvd.size() != wanted.count("\n"):
            time.sleep(0.1)  # the launcher looks once a second
            self._commit()  # raises when the launcher has told this rank

    def _commit(self) -> None:
        self.committed = residuals_of(self.optimizer)
        self.state.commit()

    @torch.no_grad()
    def _held_out_loss(self) -> float:
        return sum(float(training.loss_of(self.model, 1000 + n, 0)) for n in range(8)) / 8


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    job = Training(sys.argv[1], Path(sys.argv[2]))
    hvd.elastic.run(job.run)(job.state)


if __name__ == "__main__":
    main()
