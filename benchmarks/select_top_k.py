"""Time selecting the largest elements against adding the gradient, which error feedback must do.

    python benchmarks/select_top_k.py [--elements 1048576 16777216] [--threads 1] [--json FILE]

Each case is compared with the plain-PyTorch twin first, bit for bit. Then the candidates run in
turn, round after round, so that a slow moment of the machine hits all of them. Printed is the
median over the rounds of the ratio to the baseline of the same round:

    select / add = t(select_top_k(grad, residual)) / t(residual.add_(grad)), in place
    torch / add  = t(add_, abs, topk, gather, index_fill_) / t(residual.add_(grad)), few rounds

all in float32, on the same number of threads. "training" is error feedback in a steady state: the
residual goes from round to round, rows of 64 elements differ in scale, and each call's hint is the
threshold of the one before. "cold" is the same as an optimizer does it: the new residual goes into
a second buffer, and there are so many layers that none is in a cache when its turn comes. So it is
for the addition, which stays in place. The other distributions are added to a residual of zeros;
their hint is the right one, none, or one of a distribution that was 64 times larger.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from horovod_sylvie.ops import top_k_reference
from horovod_sylvie.ops.native import load_native
from horovod_sylvie.ops.top_k import section_bytes, select_top_k

ROW_ELEMENTS = 64
TIMES_64 = 6 << 23  # in the bits of a float32
WARM_UP_ROUNDS = 6
COLD_ELEMENTS = 1 << 24  # of all layers: three arrays of 64 MiB


@dataclass(frozen=True)
class Measurement:
    """One line of a table: ratios to the add, and its median in milliseconds."""

    num_elements: int
    density: float
    distribution: str
    add_ms: float
    ratio: float
    ratio_without_hint: float | None
    ratio_with_wrong_hint: float | None
    torch_ratio: float | None


def seconds(function: Callable[[], object]) -> float:
    """Run once and return how long it took; on one thread, without the time of other programs."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    function()
    return clock() - start


def distributions(num_elements: int) -> dict[str, Tensor]:
    """Make gradients that a selection may find hard. Each [D], float32."""
    normal = torch.randn(num_elements)
    huge = normal.clone()
    huge[num_elements // 2] = 1e30
    return {
        "normal": normal,
        "constant": torch.full((num_elements,), 1.25),
        "zero": torch.zeros(num_elements),
        "one huge": huge,
        "lognormal": normal.sign() * (3.0 * torch.randn(num_elements)).exp(),
        "cauchy": normal / torch.randn(num_elements),
        "ascending": torch.arange(num_elements).float(),
        "descending": torch.arange(num_elements).flip(0).float(),
        "99.9 % zeros": normal * (torch.rand(num_elements) < 0.001),
        "1 % of rows": normal * row_mask(num_elements),
        "bfloat16": normal.bfloat16().float(),
        "denormal": normal * 1e-42,
    }


def row_mask(num_elements: int) -> Tensor:
    """Choose one of a hundred rows. [D], float32."""
    rows = torch.rand(-(-num_elements // ROW_ELEMENTS)) < 0.01
    return rows.repeat_interleave(ROW_ELEMENTS)[:num_elements].float()


def select_with_torch(grad: Tensor, residual: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Do the same with PyTorch's operators, as compressors on GPUs do."""
    residual.add_(grad)
    index = residual.abs().topk(k, sorted=False).indices
    values = residual[index]
    residual.index_fill_(0, index, 0.0)
    return index, values


class Selector:
    """A residual, what is selected from it, and the check that it is right."""

    def __init__(self, num_elements: int, k: int) -> None:
        self.k, self.hint = k, 0
        self.residual = torch.zeros(num_elements)
        self.accumulated = self.residual  # in place, unless it is replaced
        nbytes = section_bytes(num_elements, k, torch.float32)
        self.section = torch.zeros(nbytes, dtype=torch.uint8)

    def select(self, grad: Tensor) -> None:
        report = select_top_k(
            grad,
            self.residual,
            k=self.k,
            value_dtype=torch.float32,
            hint=self.hint,
            accumulated=self.accumulated,
            section=self.section,
        )
        self.residual, self.accumulated = self.accumulated, self.residual
        self.hint = report.threshold_bits

    def validate(self, grad: Tensor) -> None:
        """Raise if kernel and twin differ in one bit."""
        expected, section = self.residual.clone(), torch.zeros_like(self.section)
        top_k_reference.select_top_k(
            grad,
            expected,
            k=self.k,
            scale=1.0,
            value_dtype=torch.float32,
            accumulated=expected,
            section=section,
        )
        self.select(grad)
        if not (torch.equal(expected, self.residual) and torch.equal(section, self.section)):
            msg = f"kernel and twin differ: D = {grad.numel()}, k = {self.k}"
            raise RuntimeError(msg)


def row_scales(num_elements: int) -> Tensor:
    """Scale each row of 64 elements in its own way. [D], float32."""
    scale = (0.8 * torch.randn(-(-num_elements // ROW_ELEMENTS))).exp()
    return scale.repeat_interleave(ROW_ELEMENTS)[:num_elements]


def time_training(num_elements: int, density: float, rounds: int) -> Measurement:
    """Time error feedback in a steady state."""
    k = max(1, round(num_elements * density))
    rows = row_scales(num_elements)
    grads = [torch.randn(num_elements) * rows for _ in range(3)]
    selector, hintless = Selector(num_elements, k), Selector(num_elements, k)
    selector.residual.copy_(3.0 * torch.randn(num_elements) * rows)
    hintless.residual.copy_(selector.residual)
    dense = torch.zeros(num_elements)
    selector.validate(grads[0])
    ratios, hintless_ratios, floors = [], [], []
    for step in range(WARM_UP_ROUNDS + rounds):
        grad = grads[step % 3]
        hintless.hint = 0
        floors.append(seconds(lambda grad=grad: dense.add_(grad)))
        ratios.append(seconds(lambda grad=grad: selector.select(grad)) / floors[-1])
        hintless_ratios.append(seconds(lambda grad=grad: hintless.select(grad)) / floors[-1])
    torch_ratios = [
        seconds(lambda: select_with_torch(grads[0], dense, k)) / floors[-1] for _ in range(3)
    ]
    return Measurement(
        num_elements,
        density,
        "training",
        1e3 * statistics.median(floors[WARM_UP_ROUNDS:]),
        statistics.median(ratios[WARM_UP_ROUNDS:]),
        statistics.median(hintless_ratios[WARM_UP_ROUNDS:]),
        None,
        statistics.median(torch_ratios),
    )


def time_cold(num_elements: int, density: float, rounds: int) -> Measurement:
    """Time error feedback layer after layer, none of which a cache holds, into second buffers."""
    k = max(1, round(num_elements * density))
    rows = row_scales(num_elements)
    layers = []
    for _ in range(max(1, COLD_ELEMENTS // num_elements)):
        selector = Selector(num_elements, k)
        selector.residual.copy_(3.0 * torch.randn(num_elements) * rows)
        selector.accumulated = torch.zeros(num_elements)
        layers.append((torch.randn(num_elements) * rows, selector))
    layers[0][1].validate(layers[0][0])

    def select_all() -> None:
        for grad, selector in layers:
            selector.select(grad)

    def add_all() -> None:
        for grad, selector in layers:
            selector.accumulated.add_(grad)  # which is not read before it is written again

    floors, ratios = [], []
    for _ in range(WARM_UP_ROUNDS + rounds):
        floors.append(seconds(add_all) / len(layers))
        ratios.append(seconds(select_all) / len(layers) / floors[-1])
    return Measurement(
        num_elements,
        density,
        "cold",
        1e3 * statistics.median(floors[WARM_UP_ROUNDS:]),
        statistics.median(ratios[WARM_UP_ROUNDS:]),
        None,
        None,
        None,
    )


def time_distribution(name: str, grad: Tensor, density: float, rounds: int) -> Measurement:
    """Time one gradient that is added to zeros, with three hints."""
    k = max(1, round(grad.numel() * density))
    selector = Selector(grad.numel(), k)
    selector.validate(grad)
    right = selector.hint
    floors: list[float] = []
    ratios: dict[int, list[float]] = {right: [], 0: [], right + TIMES_64: []}
    for _ in range(rounds):
        selector.residual.zero_()
        floors.append(seconds(lambda: selector.residual.add_(grad)))
        for hint, own in ratios.items():
            selector.residual.zero_()
            selector.hint = hint
            own.append(seconds(lambda: selector.select(grad)) / floors[-1])
    residual = torch.zeros_like(grad)
    torch_ratio = seconds(lambda: select_with_torch(grad, residual, k)) / floors[-1]
    return Measurement(
        grad.numel(),
        density,
        name,
        1e3 * statistics.median(floors),
        statistics.median(ratios[right]),
        statistics.median(ratios[0]),
        statistics.median(ratios[right + TIMES_64]),
        torch_ratio,
    )


def print_line(each: Measurement) -> None:
    """Print one line of the table."""
    hints = [each.ratio, each.ratio_without_hint, each.ratio_with_wrong_hint]
    columns = [f"{ratio:8.2f}" if ratio else "       -" for ratio in hints]
    with_torch = f"{each.torch_ratio:9.1f}" if each.torch_ratio else "        -"
    print(
        f"{each.num_elements:9}  {100 * each.density:4.1f} %  "
        f"{each.distribution:13}  {each.add_ms:8.3f} {' '.join(columns)} {with_torch}",
        flush=True,
    )


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, nargs="+", default=[1 << 20, 1 << 24])
    parser.add_argument("--densities", type=float, nargs="+", default=[0.01, 0.001])
    parser.add_argument("--threads", type=int, default=1, help="of torch and of the kernels")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each line, roughly")
    parser.add_argument("--json", type=Path, help="also write the measurements here")
    return parser.parse_args()


def main() -> None:
    """Measure every size, density and distribution and print the table."""
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    print(
        f"fp32, {arguments.threads} thread(s), {load_native().instruction_set()}, torch "
        f"{torch.__version__}; add_ in milliseconds, and ratios to it"
    )
    print(" elements  density  distribution        add   hinted  no hint bad hint     torch")
    measurements = []
    for num_elements in arguments.elements:
        rounds = max(9, min(101, int(arguments.seconds * 2e8 / num_elements)))
        grads = distributions(num_elements)
        for density in arguments.densities:
            lines = []
            for time_it in (time_training, time_cold):
                lines.append(time_it(num_elements, density, rounds))
                print_line(lines[-1])
            for name, grad in grads.items():
                lines.append(time_distribution(name, grad, density, rounds))
                print_line(lines[-1])
            measurements += [asdict(line) for line in lines]
    if arguments.json:
        arguments.json.write_text(json.dumps(measurements, indent=2) + "\n")


if __name__ == "__main__":
    main()
