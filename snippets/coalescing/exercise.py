"""The exercise's answer: the sums of columns, read along the rows."""

import torch
import triton
import triton.language as tl

from .kernel import _refusals

BLOCK_M, BLOCK_N = 128, 32  # a tile: rows, and as many columns as one line of L1 holds in float32


@triton.jit(do_not_specialize_on_alignment=("x_ptr", "out_ptr"))
def _column_sums_kernel(
    x_ptr,
    out_ptr,
    stride_m,  # step to the next row
    stride_n,  # step to the next column
    M,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program adds up BLOCK_N neighboring columns: it walks down them tile by tile.

    Reads its columns once, a piece of a row at a time; writes BLOCK_N sums.
    """
    offs_n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # columns, [BLOCK_N]
    mask_n = offs_n < N
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, M, BLOCK_M):
        offs_m = start + tl.arange(0, BLOCK_M).to(tl.int64)  # rows, [BLOCK_M]
        offs = offs_m[:, None] * stride_m + offs_n[None, :] * stride_n
        mask = (offs_m < M)[:, None] & mask_n[None, :]
        # [BLOCK_M, BLOCK_N]: neighboring lanes have neighboring columns of one row
        acc += tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    sums = tl.sum(acc, axis=0)  # [BLOCK_N]: the rows are added on chip
    tl.store(out_ptr + offs_n, sums.to(out_ptr.dtype.element_ty), mask=mask_n)


def column_sums(x):
    """The sums of the columns of x [M, N], as line_sums(x, dim=0); contract as there."""
    for error in _refusals(x, rank=2):
        raise error
    M, N = x.shape
    out = torch.empty(N, dtype=x.dtype, device=x.device)
    with torch.cuda.device_of(x):
        _column_sums_kernel[(triton.cdiv(N, BLOCK_N),)](
            x, out, *x.stride(), M=M, N=N, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N
        )
    return out
