"""The exercise's answer: the sums of columns, read along the rows."""

import torch
import triton
import triton.language as tl

from .kernel import _refuse

BLOCK_N, BLOCK_M = 128, 32  # a tile: rows, and as many columns as one line of L1 holds in float32


@triton.jit
def _column_sums_kernel(
    x_ptr, out_ptr,
    stride_n, stride_m,  # step to the next row, and to the next column
    N, M,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
):  # fmt: skip
    """One program adds up BLOCK_M neighbouring columns: it walks down them tile by tile.

    Reads its columns once, a piece of a row at a time; writes BLOCK_M sums.
    """
    # --8<-- [start:columns]
    columns = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    rows = tl.arange(0, BLOCK_N).to(tl.int64)  # [BLOCK_N]
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for start in range(0, N, BLOCK_N):
        offs = (start + rows)[:, None] * stride_n + columns[None, :] * stride_m
        mask = (start + rows < N)[:, None] & (columns < M)[None, :]
        # [BLOCK_N, BLOCK_M]: neighbouring lanes have neighbouring columns of one row
        acc += tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    sums = tl.sum(acc, axis=0)  # [BLOCK_M]: the rows are added on chip
    tl.store(out_ptr + columns, sums.to(out_ptr.dtype.element_ty), mask=columns < M)
    # --8<-- [end:columns]


def column_sums(x):
    """The sums of the columns of x [N, M], as line_sums(x, dim=0); contract as there."""
    _refuse(x, rank=2)
    N, M = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device)
    with torch.cuda.device_of(x):
        _column_sums_kernel[(triton.cdiv(M, BLOCK_M),)](
            x, out, *x.stride(), N, M, BLOCK_N=BLOCK_N, BLOCK_M=BLOCK_M
        )
    return out
