"""Time every op of the kernels against a copy, PyTorch's operators, its twin, and no compression.

    python benchmarks/kernels.py --json benchmarks/results/kernels.json [--plot FILE.png]
    python benchmarks/kernels.py --device cuda --json benchmarks/results/kernels_cuda.json

Each case is compared with the plain-PyTorch twin first, bit for bit. Then all ways run in turn,
round after round, and a ratio is the median of each round's ratio. Printed are

    ns      of the kernel, for each element that it codes, decodes, selects from or sums
    GB/s    bytes that must be read or written, each once, over the kernel's time
    copy    t(copy_ of as many bytes) / t(kernel), in per cent: the op's share of memory speed
    plain   t(kernel) / t(what a program does that does not compress), which is named
    torch   t(the same with PyTorch's operators, `torch_ways.py`) / t(kernel)
    twin    t(twin) / t(kernel)

All but small cases go through so many sets of tensors that no cache holds them. Nothing is
allocated by the kernels; PyTorch's operators allocate what they return.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

import torch
from kernel_case import Case
from kernel_timing import Timer, median_ratio, time_in_turn, timer_of
from launched_jobs import keep
from row_kernel_cases import row_cases
from top_k_kernel_cases import checksum_case, many_case, top_k_cases
from tqdm import tqdm

from horovod_sylvie.ops.kernel_devices import native_on
from horovod_sylvie.ops.native import load_native

_COLD_BYTES: Final = 1 << 27
_MAX_SETS: Final = 32
_TWIN_ROUNDS: Final = 3
_WARM_UP_ROUNDS: Final = 3
_HEADING: Final = (
    f"{'':34}{'':32}{'ms':>9}{'ns':>8}{'GB/s':>8}{'copy':>7}{'plain':>20}{'torch':>8}{'twin':>8}"
)


@dataclass(frozen=True)
class Measurement:
    """One line of the table; see the top of the file."""

    op: str
    shape: str
    num_elements: int
    num_bytes: int
    kernel_s: float
    share_of_copy: float
    plain_name: str
    over_plain: float | None
    over_torch: float
    over_twin: float


def measure(cases: Sequence[Case], timer: Timer, device: torch.device, rounds: int) -> Measurement:
    """Check a case, warm it up and time it.

    Args:
        cases: The same on different tensors, which take turns.
        timer: Runs a call, and returns its seconds.
        device: Where the tensors are.
        rounds: How often each way runs; the twin a few times only.

    Raises:
        RuntimeError: Kernel and twin differ.
    """
    first = cases[0]
    first.check()
    source = torch.zeros(max(1, first.num_bytes // 2), dtype=torch.uint8, device=device)
    targets = [torch.empty_like(source) for _ in cases]
    calls = [
        [case.kernel for case in cases],
        [lambda target=target: target.copy_(source) for target in targets],
        [case.torch_way for case in cases],
    ]
    if first.plain is not None:
        calls.append([case.plain for case in cases if case.plain is not None])
    time_in_turn(calls, timer, max(_WARM_UP_ROUNDS, len(cases)))  # all memory was touched then
    kernel, copy, with_torch, *plain = time_in_turn(calls, timer, rounds)
    (twin,) = time_in_turn([[first.twin]], timer, _TWIN_ROUNDS)
    return Measurement(
        first.op,
        first.shape,
        first.num_elements,
        first.num_bytes,
        kernel_s=statistics.median(kernel),
        share_of_copy=median_ratio(copy, kernel),
        plain_name=first.plain_name,
        over_plain=median_ratio(kernel, plain[0]) if plain else None,
        over_torch=median_ratio(with_torch, kernel),
        over_twin=statistics.median(twin) / statistics.median(kernel),
    )


def all_cases(args: argparse.Namespace, native: Any) -> Iterator[list[Case]]:
    """Yield each case that the command line asks for, on as many sets of tensors as it needs."""
    device = args.device

    def row_sets(num_features: int, dtype: torch.dtype) -> Iterator[list[Case]]:
        num_sets = sets_of(args.rows * num_features * dtype.itemsize)
        each = [row_cases(native, device, args.rows, num_features, dtype) for _ in range(num_sets)]
        return map(list, zip(*each, strict=True))

    for num_features in args.features:
        yield from row_sets(num_features, torch.float32)
    yield from row_sets(args.features[-1], torch.bfloat16)
    for num_elements in args.elements:
        for density in args.densities:
            num_sets = sets_of(12 * num_elements)
            each = [top_k_cases(native, device, num_elements, density) for _ in range(num_sets)]
            yield from map(list, zip(*each, strict=True))
    yield [many_case(native, device, args.densities[0])]
    yield [checksum_case(native, device, args.elements[-1])]


def sets_of(num_bytes: int) -> int:
    """Return how many sets of so many bytes no cache holds; few, where each is small."""
    return min(_MAX_SETS, max(1, _COLD_BYTES // num_bytes))


def line_of(each: Measurement) -> str:
    """Return a line of the table."""
    plain = "" if each.over_plain is None else f"{each.over_plain:.2f} x {each.plain_name}"
    return (
        f"{each.op:34}{each.shape:32}{1e3 * each.kernel_s:9.3f}"
        f"{1e9 * each.kernel_s / each.num_elements:8.2f}"
        f"{1e-9 * each.num_bytes / each.kernel_s:8.1f}{100 * each.share_of_copy:5.0f} %"
        f"{plain:>20}{each.over_torch:8.1f}{each.over_twin:8.0f}"
    )


def machine_of(args: argparse.Namespace) -> dict[str, Any]:
    """Say where and when this is measured."""
    on_gpu = args.device.type == "cuda"
    return {
        "date": date.today().isoformat(),
        "device": torch.cuda.get_device_name(args.device) if on_gpu else platform.machine(),
        "instruction_set": load_native().instruction_set(),
        "cores": os.cpu_count(),
        "threads": args.threads,
        "torch": torch.__version__,
        "rounds": args.rounds,
    }


def draw(measurements: Sequence[Measurement], title: str, picture: Path) -> None:
    """Draw each op's share of a copy's speed, and how much faster it is than PyTorch's operators.

    Args:
        measurements: What was measured.
        title: Above both panels.
        picture: File to write.
    """
    from matplotlib import pyplot

    height = 0.19 * len(measurements) + 1.2
    figure, panels = pyplot.subplots(1, 2, sharey=True, figsize=(11, height), layout="constrained")
    places = range(len(measurements), 0, -1)
    shares = [100 * each.share_of_copy for each in measurements]
    panels[0].barh(places, shares, color="tab:green")
    panels[0].axvline(100, color="black", linewidth=0.6, linestyle=":")
    panels[0].set_xlabel("speed, % of copy_ of as many bytes")
    panels[0].set_yticks(places, [f"{each.op}  {each.shape}" for each in measurements], fontsize=7)
    panels[1].barh(places, [each.over_torch for each in measurements], color="tab:blue")
    panels[1].set_xscale("log")
    panels[1].set_xticks([0.3, 1, 3, 10, 30], ["0.3", "1", "3", "10", "30"])
    panels[1].minorticks_off()
    panels[1].axvline(1, color="black", linewidth=0.6, linestyle=":")
    panels[1].set_xlabel("times as fast as PyTorch's operators")
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.margins(y=0.01)
    figure.suptitle(title, fontsize=10)
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", type=torch.device, default="cpu", help="cpu, or cuda")
    add("--threads", type=int, default=1, help="of torch and of the kernels on the CPU")
    add("--rows", type=int, help="rows that are packed, of three times as many")
    add("--features", type=int, nargs="+", default=[64, 128, 256, 602])
    add("--elements", type=int, nargs="+", default=[1 << 20, 1 << 24], help="of a gradient")
    add("--densities", type=float, nargs="+", default=[0.01, 0.001])
    add("--rounds", type=int, default=31)
    add("--json", type=Path, required=True, help="where the figures are kept")
    add("--plot", type=Path, help="draw them to this file")
    args = parser.parse_args(arguments)
    if args.rows is None:  # a GPU needs more to be busy
        args.rows = 20_000 if args.device.type == "cpu" else 200_000
    return args


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure everything, print the table, and keep it."""
    args = parse_arguments(arguments)
    native = native_on(args.device, "timing ops on")
    if native is None:
        raise SystemExit(f"kernels: there are none for {args.device}; the log says why.")
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    machine = machine_of(args)
    title = ", ".join(f"{name} {value}" for name, value in machine.items())
    print(f"{title}\n{_HEADING}")
    timer, measurements = timer_of(args.device), []
    for cases in tqdm(all_cases(args, native), unit="case", leave=False, disable=None):
        measurements.append(measure(cases, timer, args.device, args.rounds))
        tqdm.write(line_of(measurements[-1]))
    keep({"machine": machine, "cases": [asdict(each) for each in measurements]}, args.json)
    if args.plot:
        draw(measurements, title, args.plot)


if __name__ == "__main__":
    main()
