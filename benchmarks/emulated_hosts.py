"""Run ranks on hosts that this machine emulates, behind links of a set rate.

    python benchmarks/emulated_hosts.py --hosts 4 --rate 1gbit -- python train.py ARGS
    python benchmarks/emulated_hosts.py --hosts 4 -- python train.py ARGS
    python benchmarks/emulated_hosts.py --change 100mbit

Each host is a network namespace, whose link to all others is limited to the rate in both directions
and has no added latency. One rank runs on each, or --slots. All share the cores and the files of
this machine. horovodrun starts the ranks, as on hosts of a hosts file; its `ssh` enters a namespace
instead. A rank may change the rate of all links (--change), where they have one.

Everything is in namespaces of the job's own: nothing outside is changed, and nothing is left of it.
Needs Linux, the commands unshare, nsenter, ip and tc, and root or a system on which users may make
namespaces.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from launchers import UNLIMITED, bits_per_second

MARK: Final = "HVS_EMULATED_HOST"  # a variable of the ranks, which they may look for
NAMESPACES: Final = (
    *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    "--map-root-user",
)
TOOLS: Final = ("unshare", "nsenter", "ip", "tc")
_HOROVODRUN: Final = Path(sys.executable).with_name("horovodrun")
_NETWORK: Final = "10.77.1"
_NAMED: Final = Path("/run/netns")  # where `ip netns` keeps the hosts
_FIRST: Final = "/proc/1/ns/net"
MAX_HOSTS: Final = 200
# What passes at full speed after a pause: a millisecond's bytes, and no less than a packet that TCP
# hands down, which would be cut up otherwise. What may wait is deep enough for messages of all.
_BURST_S, _LEAST_BURST, _QUEUE_BYTES = 1e-3, 32_000, 16_000_000
# Horovod gives options before the host and behind it, each with a value. Gloo listens on the
# address that the host's own name has.
_SSH: Final = """#!/bin/sh
host=
while :; do
  case $1 in
    -*) shift 2 ;;
    host[0-9]*) host=$1; shift ;;
    *) break ;;
  esac
done
exec nsenter --net="/run/netns/$host" unshare --uts sh -c "hostname $host && $*"
"""


def known_rate(text: str) -> str:
    """Return a rate of the command line.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    try:
        bits_per_second(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def commands_for(num_hosts: int, rate: str) -> Iterator[str]:
    """Yield the commands that make the hosts.

    Args:
        num_hosts: How many.
        rate: Of each link, in each direction.
    """
    yield "mount -t tmpfs none /run"
    yield f"mkdir {_NAMED}"
    # horovodrun looks for the interface of the hosts on its own host too
    yield "ip link add eth0 type bridge"
    yield f"ip address add {_NETWORK}.254/24 dev eth0"
    yield "ip link set lo up"
    yield "ip link set eth0 up"
    for number in range(1, num_hosts + 1):
        host, port = f"host{number}", f"port{number}"
        yield f"ip netns add {host}"
        yield f"ip link add {port} type veth peer name eth0 netns {host}"
        yield f"ip link set {port} master eth0 up"
        yield f"ip -n {host} link set lo up"
        yield f"ip -n {host} address add {_NETWORK}.{number}/24 dev eth0"
        yield f"ip -n {host} link set eth0 up"
    if rate != UNLIMITED:
        yield from commands_to_limit(num_hosts, rate)


def commands_to_limit(num_hosts: int, rate: str) -> Iterator[str]:
    """Yield the commands that give all links a rate; what a link had before is replaced."""
    burst = burst_of(rate)
    packet = min(burst * 3 // 4, 65_536)
    for number in range(1, num_hosts + 1):
        # Ports are where the first process of the job is
        for network, device in ((f"{_NAMED}/host{number}", "eth0"), (_FIRST, f"port{number}")):
            enter = f"nsenter --net={network}"
            yield (
                f"{enter} tc qdisc replace dev {device} root tbf rate {rate} burst {burst} "
                f"limit {_QUEUE_BYTES}"
            )
            yield f"{enter} ip link set {device} gso_max_size {packet} gro_max_size {packet}"


def burst_of(rate: str) -> int:
    """Return how many bytes may pass at full speed after a pause."""
    return max(int(_BURST_S * bits_per_second(rate) / 8), _LEAST_BURST)


def run_inside(args: argparse.Namespace) -> int:
    """Make the hosts and run the ranks, in namespaces that are this job's own.

    Args:
        args: The command line; `inside` is an empty folder.

    Returns:
        The status of horovodrun.
    """
    folder = args.inside
    addresses, hosts, ssh = folder / "addresses", folder / "hosts", folder / "ssh"
    numbers = range(1, args.hosts + 1)
    lines = [f"{_NETWORK}.{number} host{number}\n" for number in numbers]
    addresses.write_text("".join(["127.0.0.1 localhost\n", *lines]))
    hosts.write_text("".join(f"host{number} slots={args.slots}\n" for number in numbers))
    ssh.write_text(_SSH)
    ssh.chmod(0o755)
    run_all([*commands_for(args.hosts, args.rate), f"mount --bind {addresses} /etc/hosts"])
    command = [str(_HOROVODRUN), "--gloo", "--network-interfaces", "eth0", "--hostfile", str(hosts)]
    command += ["-np", str(args.hosts * args.slots), *args.command]
    path = f"{folder}:{os.environ.get('PATH', os.defpath)}"
    environment = os.environ | {"PATH": path, MARK: "1"}
    return subprocess.run(command, check=False, env=environment).returncode


def run_all(commands: Iterable[str]) -> None:
    """Run commands, or end with what the first said that failed."""
    for command in commands:
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"emulated_hosts: {command}: {done.stderr.strip()}")


def run_outside(words: Sequence[str]) -> int:
    """Run this program again in namespaces of its own; all that it started ends with it.

    Args:
        words: Of its command line.

    Returns:
        Its status.
    """
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        sys.exit(f"emulated_hosts: {missing[0]} is missing. apt-get install -y util-linux iproute2")
    if not _HOROVODRUN.exists():
        sys.exit(
            f"emulated_hosts: {_HOROVODRUN} is missing. python -m horovod_sylvie install-horovod"
        )

    def stop(*_: Any) -> None:
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    with tempfile.TemporaryDirectory() as folder:
        command = [*NAMESPACES, sys.executable, __file__, "--inside", folder, *words]
        # Not in this program's group: a Ctrl-C ends it through `kill`, ranks and all
        process = subprocess.Popen(command, start_new_session=True)
        try:
            return process.wait()
        finally:
            process.kill()
            process.wait()


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--hosts", type=int, default=2)
    add("--slots", type=int, default=1, help="ranks of a host")
    add("--rate", type=known_rate, default=UNLIMITED, help="of each link: 100mbit")
    add("--change", type=known_rate, metavar="RATE", help="of all links, in a rank")
    add("--inside", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    add("command", nargs=argparse.REMAINDER, help="of a rank, behind --")
    args = parser.parse_args(argv)
    args.command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not args.command and args.change is None:
        parser.error("expected the command of a rank behind --, got none")
    if not 1 <= args.hosts <= MAX_HOSTS:
        parser.error(f"--hosts: expected 1 to {MAX_HOSTS}, got {args.hosts}")
    if args.slots < 1:
        parser.error(f"--slots: expected at least 1, got {args.slots}")
    if args.change is not None and MARK not in os.environ:
        parser.error("--change: expected to run in a rank on emulated hosts")
    if args.change == UNLIMITED:
        parser.error("--change: expected a rate such as 100mbit, got none")
    return args


def main(argv: Sequence[str] | None = None) -> None:
    """Run the ranks, and end with the status of horovodrun."""
    args = parse_arguments(argv)
    if args.change is not None:
        run_all(commands_to_limit(len(list(_NAMED.iterdir())), args.change))
        return
    if args.inside is not None:
        sys.exit(run_inside(args))
    sys.exit(run_outside(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    main()
