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

# `grad` may be 0, `accumulated` may be `residual`, "value_dtype" is "float32" or "bfloat16" and
# `hint` in [0, 2**32). Returns the bits of the smallest selected magnitude, the next call's hint,
# and how many sums were not finite.
def select_top_k(
    *,
    grad: int,
    dtype: str,
    residual: int,
    num_elements: int,
    k: int,
    scale: float,
    value_dtype: str,
    hint: int,
    accumulated: int,
    section: int,
    section_bytes: int,
    num_threads: int,
    instruction_set: str | None = None,
) -> tuple[int, int]: ...

# Returns the first rank, none of those in `skip`, whose section is corrupt, or -1, and what is
# wrong with it: 0 nothing, 1 the counts, 2 the indices, 3 a value. Nothing is written then.
def add_selected(
    *,
    payloads: int,
    payload_bytes: int,
    num_ranks: int,
    offset: int,
    num_elements: int,
    k: int,
    value_dtype: str,
    scale: float,
    out: int,
    dtype: str,
    skip: list[int],
    num_threads: int,
    instruction_set: str | None = None,
) -> tuple[int, int]: ...

# Both return what is wrong with the section, as above.
def restore_selected(
    *,
    section: int,
    section_bytes: int,
    num_elements: int,
    k: int,
    value_dtype: str,
    residual: int,
) -> int: ...
def clear_selected(
    *,
    section: int,
    section_bytes: int,
    num_elements: int,
    k: int,
    value_dtype: str,
    tensor: int,
) -> int: ...

# All shares of a parameter of `num_elements`, one for each of `ks`; their sections start at byte
# `offset` of as many rows. An empty share has a k of 0 and no section. Returns the thresholds and
# how many sums were not finite, as select_top_k() does.
def select_shares(
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
    num_threads: int,
    instruction_set: str | None = None,
) -> tuple[list[int], int]: ...

# Both return the first share, none of those in `skip`, whose section is corrupt, or -1, and what
# is wrong with it, as add_selected() does. Nothing is written then.
def add_shares(
    *,
    rows: int,
    rows_bytes: int,
    offset: int,
    num_elements: int,
    ks: list[int],
    value_dtype: str,
    scale: float,
    out: int,
    dtype: str,
    skip: list[int],
    num_threads: int,
    instruction_set: str | None = None,
) -> tuple[int, int]: ...
def clear_shares(
    *,
    rows: int,
    rows_bytes: int,
    offset: int,
    num_elements: int,
    ks: list[int],
    value_dtype: str,
    tensor: int,
) -> tuple[int, int]: ...

# In [0, 2**64).
def checksum(
    *,
    data: int,
    nbytes: int,
    num_threads: int,
    instruction_set: str | None = None,
) -> int: ...
