"""Time packing and unpacking rows against what full precision pays: the gather and the copy.

    python benchmarks/pack_rows.py [--rows 20000] [--features 64 128] [--threads 1] [--json FILE]

Each case is compared with the plain-PyTorch twin first, byte for byte. Then all candidates run in
turn, round after round, so that a slow moment of the machine hits all of them. Printed are the
medians, and the median over the rounds of the ratio to the baseline of the same round:

    pack / gather = t(pack_rows(rows, index)) / t(torch.index_select(rows, 0, index, out=...))
    unpack / copy = t(unpack_rows(payload))   / t(out.copy_(gathered rows))

of the same fp32 rows, on the same number of threads, all outputs allocated before. The twin, some
hundred times slower, is timed in three rounds only.
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

from horovod_sylvie.ops import reference
from horovod_sylvie.ops.native import load_native
from horovod_sylvie.ops.pack_rows import RowCode, pack_rows, packed_row_bytes, unpack_rows

KEY = 0x5EED
CODES: tuple[tuple[int, RowCode], ...] = (
    (1, "minmax"),
    (1, "centroid"),
    (2, "minmax"),
    (4, "minmax"),
    (8, "minmax"),
)


@dataclass(frozen=True)
class Measurement:
    """One line of the table; times are medians in milliseconds."""

    num_features: int
    code: str
    bits: int
    gather_ms: float
    pack_ms: float
    pack_over_gather: float
    copy_ms: float
    unpack_ms: float
    unpack_over_copy: float
    twin_pack_ms: float
    twin_unpack_ms: float


class Case:
    """The tensors of one number of features and one code, and the four things that are timed."""

    def __init__(self, table: Tensor, index: Tensor, bits: int, code: RowCode) -> None:
        self.table, self.index, self.bits, self.code = table, index, bits, code
        self.num_features = table.shape[1]
        self.gathered = torch.empty(len(index), self.num_features)
        self.decoded = torch.empty_like(self.gathered)
        width = packed_row_bytes(self.num_features, bits)
        self.payload = torch.empty(len(index), width, dtype=torch.uint8)

    def gather(self) -> None:
        torch.index_select(self.table, 0, self.index, out=self.gathered)

    def pack(self) -> None:
        pack_rows(self.table, self.index, bits=self.bits, code=self.code, key=KEY, out=self.payload)

    def copy(self) -> None:
        self.decoded.copy_(self.gathered)

    def unpack(self) -> None:
        unpack_rows(
            self.payload, None, num_features=self.num_features, bits=self.bits, out=self.decoded
        )

    def twin_pack(self) -> None:
        reference.pack_rows(
            self.table, self.index, bits=self.bits, code=self.code, key=KEY, out=self.payload
        )

    def twin_unpack(self) -> None:
        reference.unpack_rows(
            self.payload, None, num_features=self.num_features, bits=self.bits, out=self.decoded
        )

    def validate(self) -> None:
        """Raise if kernel and twin differ in one byte."""
        self.gather()
        self.twin_pack()
        payload = self.payload.clone()
        self.twin_unpack()
        decoded = self.decoded.clone()
        self.payload.zero_()
        self.pack()
        self.decoded.zero_()
        self.unpack()
        if not (torch.equal(payload, self.payload) and torch.equal(decoded, self.decoded)):
            msg = f"kernel and twin differ: F={self.num_features}, {self.bits} bits, {self.code}"
            raise RuntimeError(msg)


def time_rounds(candidates: list[Callable[[], None]], rounds: int) -> list[list[float]]:
    """Run the candidates in turn; return the milliseconds of each, round by round."""
    times: list[list[float]] = [[] for _ in candidates]
    for _ in range(rounds):
        for candidate, own in zip(candidates, times, strict=True):
            start = time.perf_counter()
            candidate()
            own.append(1e3 * (time.perf_counter() - start))
    return times


def median_ratio(numerators: list[float], denominators: list[float]) -> float:
    """Return the median of the ratios round by round."""
    pairs = zip(numerators, denominators, strict=True)
    return statistics.median(numerator / denominator for numerator, denominator in pairs)


def measure(case: Case, rounds: int) -> Measurement:
    """Validate a case, warm it up and time it."""
    case.validate()
    candidates = [case.gather, case.pack, case.copy, case.unpack]
    time_rounds(candidates, 3)
    gather, pack, copy, unpack = time_rounds(candidates, rounds)
    twin_pack, twin_unpack = time_rounds([case.twin_pack, case.twin_unpack], 3)
    return Measurement(
        case.num_features,
        case.code,
        case.bits,
        statistics.median(gather),
        statistics.median(pack),
        median_ratio(pack, gather),
        statistics.median(copy),
        statistics.median(unpack),
        median_ratio(unpack, copy),
        statistics.median(twin_pack),
        statistics.median(twin_unpack),
    )


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table-rows", type=int, default=60_000, help="rows to choose from")
    parser.add_argument("--rows", type=int, default=20_000, help="rows that are packed")
    parser.add_argument("--features", type=int, nargs="+", default=[64, 128, 256, 602])
    parser.add_argument("--threads", type=int, default=1, help="of torch and of the kernels")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", type=Path, help="also write the measurements here")
    return parser.parse_args()


def main() -> None:
    """Measure every number of features with every code and print the table."""
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    print(
        f"{arguments.rows} of {arguments.table_rows} fp32 rows, {arguments.threads} thread(s), "
        f"{load_native().instruction_set()}, torch {torch.__version__}; milliseconds, medians of "
        f"{arguments.rounds} rounds"
    )
    print(
        "    F  code      bits   gather     pack   ratio     copy   unpack   ratio"
        "  twin pack  twin unpack"
    )
    measurements = []
    for num_features in arguments.features:
        table = torch.randn(arguments.table_rows, num_features)
        index = torch.randperm(arguments.table_rows)[: arguments.rows]
        for bits, code in CODES:
            each = measure(Case(table, index, bits, code), arguments.rounds)
            measurements.append(asdict(each))
            print(
                f"{each.num_features:5}  {each.code:8}  {each.bits:4} {each.gather_ms:8.2f} "
                f"{each.pack_ms:8.2f} {each.pack_over_gather:7.2f} {each.copy_ms:8.2f} "
                f"{each.unpack_ms:8.2f} {each.unpack_over_copy:7.2f} {each.twin_pack_ms:10.0f} "
                f"{each.twin_unpack_ms:12.0f}"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(measurements, indent=2) + "\n")


if __name__ == "__main__":
    main()
