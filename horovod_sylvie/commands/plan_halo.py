"""`plan --partition`: what the halo exchanges of a partition would send and take per epoch.

Here: reading the partition's counts, measuring the codecs on this machine, and the printed tables.
Not here: the arithmetic (`planning.halo_forecast`).

Shapes: P ranks, N rows, F features.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from .link_arguments import link_of, parse_numbers

if TYPE_CHECKING:
    from torch import Tensor

    from horovod_sylvie.halo.codec import Codec
    from horovod_sylvie.planning.halo_forecast import (
        ExchangeForecast,
        HaloForecast,
        HaloRows,
        RowFormat,
    )

# What the formats are called in a program; full precision first, one bit last
_CODECS: Final = MappingProxyType(
    {
        "32 bits": "FullPrecision()",
        "16 bits": "Half()",
        "8 bits": "Bits(8)",
        "4 bits": "Bits(4)",
        "2 bits": "Bits(2)",
        "1 bit": "OneBit()",
    }
)
_MEASURED_ROWS: Final = 4096
_ROUNDS: Final = 15


def run_halo(arguments: argparse.Namespace) -> int:
    """Read a partition, measure the codecs, predict, and print.

    Args:
        arguments: What the `plan` command asked for.

    Returns:
        0.

    Raises:
        ValueError: An argument that cannot be read, or no partition of at least two parts.
        RuntimeError: The partition is damaged.
    """
    from horovod_sylvie.planning.halo_forecast import forecast_epoch, forecast_exchange

    if arguments.hidden is None:
        raise ValueError(
            "expected --hidden with --partition: the widths of what each layer after the first "
            "reads, with commas, such as 256,256 for three layers."
        )
    widths = parse_numbers(arguments.hidden, "--hidden", 1)
    header = _header(Path(arguments.partition))
    rows = rows_of(header, arguments.partition)
    named = link_of(arguments)
    if named.rank != 0:
        return 0  # of the ranks that have measured the link one plans and prints
    link = named.between(len(rows.sent))
    num_features = header["graph"]["num_features"]
    if arguments.features is not None:
        num_features, *others = parse_numbers(arguments.features, "--features", 1)
        if others:
            raise ValueError(f"expected one number for --features, got {arguments.features!r}.")
    formats = measured_formats(max(widths))
    features = forecast_exchange(rows, 0, "features", num_features, formats[0], link)
    forecasts = [forecast_epoch(rows, widths, each, link) for each in formats]
    if arguments.json:
        found = {"features": asdict(features), "epochs": [_as_json(each) for each in forecasts]}
        print(json.dumps(found, indent=1))
    else:
        print(halo_tables(len(rows.sent), arguments.partition, features, forecasts))
    return 0


def _as_json(found: HaloForecast) -> dict[str, Any]:
    return {**asdict(found), "nbytes": found.nbytes, "seconds": found.seconds}


def _header(folder: Path) -> dict[str, Any]:
    from horovod_sylvie.partition.header import is_partition, read_header

    if not is_partition(folder):
        raise ValueError(
            f"expected a partition directory for --partition, got {folder}. Run `python -m "
            "horovod_sylvie partition INPUT OUTDIR --parts P`, and give its OUTDIR."
        )
    return read_header(folder, len(list(folder.glob("rank-*"))))


def rows_of(header: dict[str, Any], directory: str) -> HaloRows:
    """Return the rows that travel forward, from the report in a partition's header.

    Args:
        header: What `read_header` returned; its digest does not cover the report.
        directory: Where it is, for messages.

    Raises:
        ValueError: There is one part only, or the report does not say.
    """
    from horovod_sylvie.planning.halo_forecast import HaloRows

    try:
        ranks = header["report"]["ranks"]
        sent = tuple(int(entry["num_boundary_rows"]) for entry in ranks)
        received = tuple(int(entry["num_halo"]) for entry in ranks)
    except (KeyError, TypeError, ValueError):
        sent, received = (), ()
    num_parts = header["num_parts"]
    if len(sent) != num_parts or sum(sent) != sum(received) or min((*sent, *received)) < 0:
        raise ValueError(
            f"expected the rows of {num_parts} ranks in the report of {directory}, got one that "
            "was changed. Partition the graph again."
        )
    if num_parts < 2:
        raise ValueError(
            f"expected a partition of at least 2 parts for --partition, got {directory}, which "
            "has 1: nothing is exchanged."
        )
    return HaloRows(sent, received)


def measured_formats(width: int) -> list[RowFormat]:
    """Return every format of rows, full precision first, with its speed on this machine.

    Formats take turns, so that what else runs on the machine hits all alike; and since it makes a
    time longer, never shorter, the shortest one counts.

    Args:
        width: Elements of the rows that are measured, F.
    """
    import torch

    from horovod_sylvie.halo.codec import FullPrecision, Half
    from horovod_sylvie.halo.message import header_rows
    from horovod_sylvie.halo.packed_codec import Bits, OneBit
    from horovod_sylvie.planning.halo_forecast import RowFormat

    codecs = (FullPrecision(), Half(), Bits(8), Bits(4), Bits(2), OneBit())
    rows = torch.randn(_MEASURED_ROWS, width)
    works = [work for codec in codecs for work in _works(codec, rows)]
    rounds = [[_seconds(work) for work in works] for _ in range(_ROUNDS)]
    per_element = [min(times) / rows.numel() for times in zip(*rounds, strict=True)]
    return [
        RowFormat(name, partial(codec.row_bytes, dtype=rows.dtype), header_rows, encode_s, decode_s)
        for name, codec, encode_s, decode_s in zip(
            _CODECS, codecs, per_element[::2], per_element[1::2], strict=True
        )
    ]


def _works(codec: Codec, rows: Tensor) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return what encodes rows [N, F] into a message to one peer, and what decodes that."""
    import torch

    from horovod_sylvie.halo.message import header_rows
    from horovod_sylvie.halo.plan import MessageLayout, Route

    num_rows, width = rows.shape
    splits = (0, num_rows)
    route = Route(0, None, torch.arange(num_rows), splits, splits)
    layout = MessageLayout.of(route, header_rows(codec.row_bytes(width, rows.dtype)))
    encode = partial(codec.encode, rows, route, layout, 0)
    messages, _ = encode()
    return encode, partial(codec.decode, messages, layout, torch.empty_like(rows))


def _seconds(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


def halo_tables(
    num_ranks: int, directory: str, features: ExchangeForecast, forecasts: Sequence[HaloForecast]
) -> str:
    """Lay out what is fetched once and what each epoch exchanges, and say what pays.

    Args:
        num_ranks: P.
        directory: Of the partition.
        features: The fetch of layer 0's input.
        forecasts: By format; full precision first, one bit last.
    """
    full, one_bit = forecasts[0], forecasts[-1]
    lines = [
        f"halo exchanges of {num_ranks} ranks, {directory}",
        f"once: features, {features.width} wide, {full.name}: {features.nbytes / 1e6:.2f} MB, "
        f"{1e3 * features.seconds:.1f} ms",
        "",
        *_table("MB per epoch, all ranks together", forecasts, lambda each: each.nbytes / 1e6),
        "",
        *_table("ms per epoch: encode, send, decode", forecasts, lambda each: 1e3 * each.seconds),
    ]
    if not one_bit.pays(full):
        fastest = min(forecasts, key=lambda each: each.seconds)
        advised = fastest if fastest.pays(full) else full
        lines.append(
            f"one bit does not pay on this link: its exchanges take {1e3 * one_bit.seconds:.1f} ms "
            f"per epoch, those in full precision {1e3 * full.seconds:.1f}. Use hvs."
            f"{_CODECS[advised.name]}."
        )
    return "\n".join(lines)


def _table(
    title: str,
    forecasts: Sequence[HaloForecast],
    value_of: Callable[[ExchangeForecast | HaloForecast], float],
) -> list[str]:
    """Lay out a line for each exchange and one for their sum, with a column for each format."""
    lines = [f"{title:<36}" + "".join(f"{each.name:>10}" for each in forecasts)]
    for column in zip(*(each.exchanges for each in forecasts), strict=True):
        label = f"layer {column[0].layer} {column[0].direction}, {column[0].width} wide"
        lines.append(f"{label:<36}" + "".join(f"{value_of(each):>10.2f}" for each in column))
    lines.append(f"{'all':<36}" + "".join(f"{value_of(each):>10.2f}" for each in forecasts))
    return lines
