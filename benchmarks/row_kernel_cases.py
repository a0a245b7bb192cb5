"""The row ops, on halo rows in random order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import torch
import torch_ways
from kernel_case import Case

from horovod_sylvie.ops import reference, row_kernels
from horovod_sylvie.ops.pack_rows import RowCode, packed_row_bytes
from horovod_sylvie.ops.row_sums import RowSums

CODES: Final[tuple[tuple[int, RowCode], ...]] = (
    (1, "minmax"),
    (1, "centroid"),
    (2, "minmax"),
    (4, "minmax"),
    (8, "minmax"),
)
_KEY: Final = 0x5EED
_READERS: Final = 2  # ranks that send a gradient for each row
_INDEX_BYTES: Final = 8


def row_cases(
    native: Any, device: torch.device, num_rows: int, num_features: int, dtype: torch.dtype
) -> Iterator[Case]:
    """Yield the cases of one kind of rows.

    Args:
        native: The native library.
        device: Where to run.
        num_rows: Rows that are packed, of three times as many.
        num_features: F.
        dtype: float32, float16 or bfloat16.
    """
    table = torch.randn(3 * num_rows, num_features, dtype=dtype, device=device)
    index = torch.randperm(3 * num_rows, device=device)[:num_rows]
    gathered = table.index_select(0, index)
    target_of = torch.arange(num_rows, device=device) % (num_rows // _READERS)
    sums = RowSums.of(target_of, num_rows)
    shape = f"{num_rows:,} x {num_features} {str(dtype).removeprefix('torch.')}"
    dense_bytes = gathered.nbytes
    for bits, code in CODES:
        width = packed_row_bytes(num_features, bits)
        payload = torch.empty(num_rows, width, dtype=torch.uint8, device=device)
        decoded, total = torch.empty_like(gathered), torch.zeros_like(gathered)
        pack = {"bits": bits, "code": code, "key": _KEY, "out": payload}
        row_kernels.pack_rows(native, table, index, **pack)
        if code == "centroid":
            torch_pack = partial(torch_ways.pack_two_means, table, index)
        else:
            torch_pack = partial(torch_ways.pack, table, index, bits)
        yield Case(
            op=f"pack_rows, {bits} bit" + ("s" if bits > 1 else "") + f", {code}",
            shape=shape,
            num_elements=gathered.numel(),
            num_bytes=dense_bytes + payload.nbytes + _INDEX_BYTES * num_rows,
            kernel=partial(row_kernels.pack_rows, native, table, index, **pack),
            twin=partial(reference.pack_rows, table, index, **pack),
            torch_way=torch_pack,
            written=[payload],
            plain_name="gather",
            plain=partial(torch.index_select, table, 0, index, out=decoded),
        )
        if code == "centroid":
            continue  # is decoded and added as the other code of one bit
        unpack = {"num_features": num_features, "bits": bits, "out": decoded}
        coded = torch_pack()
        torch_unpack = partial(torch_ways.unpack, *coded, bits, num_features)
        yield Case(
            op=f"unpack_rows, {bits} bit" + ("s" if bits > 1 else ""),
            shape=shape,
            num_elements=gathered.numel(),
            num_bytes=payload.nbytes + dense_bytes,
            kernel=partial(row_kernels.unpack_rows, native, payload, None, **unpack),
            twin=partial(reference.unpack_rows, payload, None, **unpack),
            torch_way=torch_unpack,
            written=[decoded],
            plain_name="copy",
            plain=partial(decoded.copy_, gathered),
        )
        if bits == 1:
            places = (sums.order, sums.targets, sums.starts)
            yield Case(
                op="add_packed_rows, 1 bit",
                shape=shape,
                num_elements=gathered.numel(),
                num_bytes=payload.nbytes
                + 2 * dense_bytes // _READERS
                + _INDEX_BYTES * (num_rows + 2 * len(sums.targets)),
                kernel=partial(
                    row_kernels.add_rows, native, payload, None, *places, bits=1, out=total
                ),
                twin=partial(reference.add_rows, payload, None, *places, bits=1, out=total),
                torch_way=lambda total=total, unpack=torch_unpack: total.index_add_(
                    0, target_of, unpack()
                ),
                written=[total],
                plain_name="index_add",
                plain=partial(total.index_add_, 0, target_of, gathered),
            )
