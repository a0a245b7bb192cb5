# Native kernels of horovod_sylvie. Called from horovod_sylvie.ops only, which checks tensors.
#
# Arrays are passed as addresses (0: none) with their sizes in elements or bytes. They must be
# alive, must not overlap, and are trusted; sizes, index values, packed bytes and sections are not.
# "dtype" is "float32", "float16" or "bfloat16". "instruction_set" forces one of those up to the
# best ("baseline" < "avx2" < "avx512"): the results are the same. The GIL is released while a
# kernel runs.

INTERFACE_VERSION: int

def instruction_set() -> str: ...
def cuda_runtime() -> dict[str, object] | None: ...

# Says why kernels cannot run on a GPU, or returns None.
def cuda_problem(device_index: int) -> str | None: ...

# The row kernels run on the CPU, or in a stream of the current GPU, for which they do not wait;
# then all arrays are the GPU's. What they meet they note in "report", four int64 of the same device
# that hold -1 (ops/row_reports.py). Rows that are corrupt leave `out` as it was; nothing is written
# if a number of the index is outside the rows. A RuntimeError has CUDA's reason.
def pack_rows(
    *,
    rows: int,
    dtype: str,
    num_rows: int,
    num_features: int,
    row_stride: int,
    index: int,
    num_packed: int,
    bits: int,
    code: str,
    key: int,
    out: int,
    out_bytes: int,
    report: int,
    num_threads: int,
    stream: int | None = None,
    instruction_set: str | None = None,
) -> None: ...
def unpack_rows(
    *,
    payload: int,
    payload_bytes: int,
    num_packed: int,
    num_features: int,
    bits: int,
    index: int,
    num_unpacked: int,
    out: int,
    dtype: str,
    report: int,
    num_threads: int,
    stream: int | None = None,
    instruction_set: str | None = None,
) -> None: ...

# Adds rows (packed with so many bits; with 0, plain ones of "dtype") to those of `out` that
# `targets` names: to row targets[t] those at positions order[starts[t]], ...,
# order[starts[t + 1] - 1] of `index`, or of the rows where that is 0.
def add_rows(
    *,
    rows: int,
    rows_bytes: int,
    num_rows: int,
    num_features: int,
    bits: int,
    index: int,
    order: int,
    num_added: int,
    targets: int,
    starts: int,
    num_targets: int,
    out: int,
    num_out: int,
    dtype: str,
    report: int,
    num_threads: int,
    stream: int | None = None,
    instruction_set: str | None = None,
) -> None: ...

# What is selected from an array of `num_elements`: from all of it, or, with more than one of `ks`,
# from each of as many shares. Their sections start at byte `offset` of as many rows; an empty share
# has a k of 0 and no section. `grad` may be 0, `accumulated` may be `residual`, "value_dtype" is
# "float32" or "bfloat16" and `hints` are in [0, 2**32). On a GPU rows, their length and the offset
# are multiples of 8.
class Selection:
    def __init__(
        self,
        *,
        grad: int,
        dtype: str,
        residual: int,
        num_elements: int,
        ks: list[int],
        scale: float,
        value_dtype: str,
        hints: list[int],
        accumulated: int,
        rows: int,
        rows_bytes: int,
        offset: int,
    ) -> None: ...

# The sections of a parameter of `num_elements`, one at byte `offset` of each row, and an array of
# its elements. With a `num_shares` of 1 every section is of the whole, with the same k; else it is
# the number of rows, and each is of a share. Rows in `skip` are not read.
class Sections:
    def __init__(
        self,
        *,
        rows: int,
        rows_bytes: int,
        offset: int,
        num_elements: int,
        ks: list[int],
        num_shares: int,
        value_dtype: str,
        skip: list[int],
        array: int,
        dtype: str,
    ) -> None: ...

# The calls below run on the CPU, or in a stream of the current GPU, for which they do not wait;
# then all arrays are the GPU's, and they need a workspace there, of so many bytes at a multiple of
# 16. What they meet they note in "report", [n, 2] int64 of the same device. A RuntimeError has
# CUDA's reason.
def select_workspace_bytes(selections: list[Selection]) -> int: ...
def sections_workspace_bytes(sections: list[Sections]) -> int: ...

# Reports of each share that is not empty the bits of the smallest selected magnitude, the next
# call's hint, and how many sums were not finite.
def select_top_k(
    selections: list[Selection],
    *,
    report: int,
    report_bytes: int,
    num_threads: int,
    stream: int | None = None,
    workspace: int = 0,
    workspace_bytes: int = 0,
    instruction_set: str | None = None,
) -> None: ...

# Report of each parameter the first row, none of those in `skip`, whose section is corrupt, or -1,
# and what is wrong with it: 0 nothing, 1 the counts, 2 the indices, 3 a value. Where anything is,
# nothing is written.
def add_selected(
    sections: list[Sections],
    *,
    scale: float,
    report: int,
    report_bytes: int,
    num_threads: int,
    stream: int | None = None,
    workspace: int = 0,
    workspace_bytes: int = 0,
    instruction_set: str | None = None,
) -> None: ...
def clear_selected(
    sections: list[Sections],
    *,
    report: int,
    report_bytes: int,
    stream: int | None = None,
    workspace: int = 0,
    workspace_bytes: int = 0,
) -> None: ...
def restore_selected(
    sections: list[Sections],
    *,
    report: int,
    report_bytes: int,
    stream: int | None = None,
    workspace: int = 0,
    workspace_bytes: int = 0,
) -> None: ...

# Writes the sum of each row, modulo 2**64, into "sums", [num_rows] uint64.
def checksum(
    *,
    rows: int,
    rows_bytes: int,
    num_rows: int,
    sums: int,
    num_threads: int,
    stream: int | None = None,
    instruction_set: str | None = None,
) -> None: ...
