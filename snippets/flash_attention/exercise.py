"""The answers of the page's exercises: parts of the keys apart, and their results merged."""

import torch
import triton
import triton.language as tl

from .kernel import flash_attention as attend

BLOCK_M = 16  # rows of a program


@triton.jit
def _merge_kernel(
    outs_ptr,  # [parts, rows, D]
    lses_ptr,  # [parts, rows]
    out_ptr,  # [rows, D]
    parts,
    rows,
    D,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One program merges BLOCK_M rows: reads what each part made of them, writes them once.

    A part weighs as much as the sum of its exponentials; only the logarithms of these sums are
    known, and they may be too large for exp. So the maximum is subtracted as in the kernel.
    """
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    mask_m, mask_d = offs_m < rows, offs_d < D
    mask = mask_m[:, None] & mask_d[None, :]
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)  # largest logsumexp so far
    l_i = tl.zeros([BLOCK_M], tl.float32)  # sum of the parts' weights so far
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    row = offs_m  # of the part at hand
    for _ in range(parts):
        lse = tl.load(lses_ptr + row, mask=mask_m, other=float("-inf"))  # [BLOCK_M]
        out = tl.load(outs_ptr + row[:, None] * D + offs_d[None, :], mask=mask, other=0.0)
        m_new = tl.maximum(m_i, lse)
        m_sub = tl.where(m_new == float("-inf"), 0.0, m_new)  # no part had a key for the row
        alpha = tl.exp(m_i - m_sub)
        weight = tl.exp(lse - m_sub)
        l_i = l_i * alpha + weight
        acc = acc * alpha[:, None] + weight[:, None] * out.to(tl.float32)
        m_i = m_new
        row += rows
    out = acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]
    offs = offs_m[:, None] * D + offs_d[None, :]
    tl.store(out_ptr + offs, out.to(out_ptr.dtype.element_ty), mask=mask)


def merge(outs, lses):
    """What attention over all keys gives, from what it gave over each part of them.

    Args:
        outs: [parts, ..., M, D], contiguous: the results.
        lses: [parts, ..., M] of float32, contiguous: their logsumexp, as `return_lse=True` gives
            it; -inf for a row without a key.

    Returns:
        [..., M, D] in the dtype of outs.

    Raises:
        ValueError: other shapes, dtypes or layouts.
    """
    if lses.dtype != torch.float32 or lses.dim() < 2 or lses.shape != outs.shape[:-1]:
        raise ValueError(
            f"lses is {lses.dtype}, {tuple(lses.shape)}; with outs {tuple(outs.shape)} it must be "
            f"float32, {tuple(outs.shape[:-1])}, with at least two dimensions"
        )
    for name, x in (("outs", outs), ("lses", lses)):
        if not x.is_contiguous():
            raise ValueError(f"{name} has strides {x.stride()}; it must be contiguous")
    out = torch.empty(outs.shape[1:], dtype=outs.dtype, device=outs.device)
    rows, D = lses[0].numel(), outs.shape[-1]
    with torch.cuda.device_of(outs):
        _merge_kernel[(triton.cdiv(rows, BLOCK_M),)](
            outs,
            lses,
            out,
            parts=len(outs),
            rows=rows,
            D=D,
            BLOCK_M=BLOCK_M,
            BLOCK_D=triton.next_power_of_2(D),
        )
    return out


def flash_attention(q, k, v, *, scale=None, parts=3):
    """Attention from `parts` pieces of k and v [..., Hkv, N, D], each by a launch of its own.

    A piece's result is its weighted mean of values; exp(logsumexp) is the sum it was divided by.
    So the pieces' shares of the whole are the softmax of their logsumexp.
    """
    pieces = zip(k.chunk(parts, dim=-2), v.chunk(parts, dim=-2), strict=True)
    results = [attend(q, *piece, scale=scale, return_lse=True) for piece in pieces]
    outs, lses = map(torch.stack, zip(*results, strict=True))  # [parts, ..., H, M, D] and [.., M]
    shares = lses.softmax(dim=0)  # [parts, ..., H, M]
    return (shares[..., None] * outs).sum(dim=0).to(q.dtype)  # [..., H, M, D]
