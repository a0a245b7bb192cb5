"""Whether the link of an emulated host holds back what is sent faster than its rate.

Run by tests/launched/test_emulated_hosts.py, at 20 Mbit/s. Says what the system counted.
"""

from __future__ import annotations

import re
import subprocess

import horovod.torch as hvd
import torch

hvd.init()
hvd.allreduce(torch.zeros(250_000), name="a megabyte")
counts = subprocess.run(
    ["tc", "-s", "qdisc", "show", "dev", "eth0"], capture_output=True, text=True, check=True
).stdout
assert "rate 20Mbit" in counts, counts
held_back = re.search(r"overlimits (\d+)", counts)
assert held_back is not None, counts
assert int(held_back[1]) > 0, counts
print(f"rank {hvd.rank()} was held back", flush=True)
hvd.shutdown()
