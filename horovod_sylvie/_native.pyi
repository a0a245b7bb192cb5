# Native kernels of horovod_sylvie. Called from horovod_sylvie.ops only, which checks tensors.
#
# Arrays are passed as addresses (0: none) with their sizes in elements or bytes. They must be
# alive, must not overlap, and are trusted; sizes, index values and packed bytes are not. "dtype"
# is "float32", "float16" or "bfloat16". "instruction_set" forces one of those up to the best
# ("baseline" < "avx2" < "avx512"): the results are the same. The GIL is released while a kernel
# runs.

INTERFACE_VERSION: int

def instruction_set() -> str: ...
def cuda_runtime() -> dict[str, object] | None: ...

# Returns the first position of the index outside the rows or -1 (nothing is written then), the
# number of non-finite rows, and the first of them, a row number of the rows, or -1.
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
    num_threads: int,
    instruction_set: str | None = None,
) -> tuple[int, int, int]: ...

# Returns the first position of the index outside the payload or -1 (nothing is written then), the
# first corrupt row or -1, the number of non-finite rows, and the first of them or -1. Rows are row
# numbers of the payload; corrupt ones leave `out` as it was.
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
    num_threads: int,
    instruction_set: str | None = None,
) -> tuple[int, int, int, int]: ...
