"""Every check of the optimizer on real ranks, in one job, since starting one takes seconds.

Run by tests/launched/test_optimizer.py under horovodrun. Each check prints its name.
"""

from __future__ import annotations

import inspect
import os
import time
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import horovod.torch as hvd
import torch

from tests.programs import (
    optimizer_contract,
    optimizer_identities,
    optimizer_ranks,
    optimizer_two_phase,
)


def checks_of(module: ModuleType) -> tuple[Callable[..., None], ...]:
    """Return the checks that a module lists: one that is written and not listed is a mistake."""
    listed: tuple[Callable[..., None], ...] = module.CHECKS
    written = {name for name in vars(module) if name.startswith("check_")}
    assert written == {check.__name__ for check in listed}
    return listed


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error", UserWarning)
    size = int(os.environ["HOROVOD_SIZE"])
    even, odd = hvd.ProcessSet(range(0, size, 2)), hvd.ProcessSet(range(1, size, 2))
    hvd.init(process_sets=[even, odd] if size > 1 else [])
    sets: dict[str, Any] = {"even": even, "own_set": even if hvd.rank() % 2 == 0 else odd}
    if size == 1:
        sets = dict.fromkeys(sets, hvd.global_process_set)
    modules = (optimizer_identities, optimizer_contract, optimizer_ranks, optimizer_two_phase)
    checks = [check for module in modules for check in checks_of(module)]
    for check in checks:
        start = time.perf_counter()
        check(**{name: sets[name] for name in inspect.signature(check).parameters})
        print(f"passed: {check.__name__} ({time.perf_counter() - start:.2f} s)", flush=True)
    print(f"all {len(checks)} passed", flush=True)


if __name__ == "__main__":
    main()
