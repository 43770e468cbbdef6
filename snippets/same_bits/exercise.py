"""The answer of the page's exercise: sums of rows whose bits do not depend on the batch."""

import triton
import triton.language as tl


@triton.jit
def _row_sums_kernel(
    x_ptr,  # [rows, N]
    out_ptr,  # [rows]
    rows, N,
    CHUNK: tl.constexpr,  # numbers that are summed before they are added to the total
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One program sums one row, a chunk at a time."""
    row = tl.program_id(0)
    chunk = CHUNK
    total = 0.0
    for begin in range(0, N, chunk):
        end = tl.minimum(begin + chunk, N)
        part = 0.0
        for start in range(begin, end, BLOCK):
            offs = start + tl.arange(0, BLOCK)  # [BLOCK]
            part += tl.sum(tl.load(x_ptr + row * N + offs, mask=offs < end, other=0.0), axis=0)
        total += part
    tl.store(out_ptr + row, total)


def row_sums(x, chunk, block):
    """The sum of each row of x [rows, N], in chunks of so many numbers."""
    rows, N = x.shape
    out = x.new_empty(rows)
    _row_sums_kernel[(rows,)](x, out, rows, N, CHUNK=chunk, BLOCK=block)
    return out
