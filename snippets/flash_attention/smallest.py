"""FlashAttention in a dozen lines: whole tiles, no mask, one tile size. The post starts here."""

import math

import torch
import triton
import triton.language as tl

BLOCK = 64  # queries of a program and keys of an iteration
WIDTHS = (16, 32, 64, 128)


@triton.jit
def _smallest_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, M, N, scale, D: tl.constexpr, BLOCK: tl.constexpr
):
    """One program computes BLOCK rows of one head: contiguous, M and N multiples of BLOCK."""
    head, offs, offs_d = tl.program_id(1), tl.arange(0, BLOCK), tl.arange(0, D)
    q_rows = (head * M + tl.program_id(0) * BLOCK + offs)[:, None] * D + offs_d[None, :]
    k_rows = (head * N + offs)[:, None] * D + offs_d[None, :]
    q = tl.load(q_ptr + q_rows)
    m_i = tl.full([BLOCK], float("-inf"), tl.float32)  # largest score so far
    l_i = tl.zeros([BLOCK], tl.float32)  # sum of exponentials so far
    acc = tl.zeros([BLOCK, D], tl.float32)  # the same sum, of values
    for start in range(0, N, BLOCK):
        k = tl.load(k_ptr + k_rows + start * D)  # [BLOCK, D]
        v = tl.load(v_ptr + k_rows + start * D)  # [BLOCK, D]
        s = tl.dot(q, k.T) * scale  # [BLOCK, BLOCK]: on tensor cores
        m_new = tl.maximum(m_i, tl.max(s, axis=1))
        alpha = tl.exp(m_i - m_new)
        p = tl.exp(s - m_new[:, None])
        l_i = l_i * alpha + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])  # on tensor cores
        m_i = m_new
    tl.store(out_ptr + q_rows, (acc / l_i[:, None]).to(out_ptr.dtype.element_ty))


def smallest_attention(q, k, v):
    """softmax(q kᵀ / √D) v by the kernel above.

    Args:
        q: [B, H, M, D] of float16, contiguous; M a multiple of 64, D 16, 32, 64 or 128.
        k, v: [B, H, N, D] likewise; N a multiple of 64.

    Returns:
        [B, H, M, D] in float16.

    Raises:
        ValueError: any other shape, dtype or layout.

    Source: Dao 2023, algorithm 1, https://arxiv.org/abs/2307.08691
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        fits = x.dim() == 4 and x.is_contiguous() and x.dtype == torch.float16
        if not fits or x.shape[2] % BLOCK or x.shape[2] == 0 or x.shape[3] not in WIDTHS:
            raise ValueError(
                f"{name} is {x.dtype}, {tuple(x.shape)}; allowed is contiguous float16 "
                f"[B, H, length, D], the length a multiple of {BLOCK}, D one of {WIDTHS}"
            )
    B, H, M, D = q.shape
    if k.shape != (B, H, k.shape[2], D) or v.shape != k.shape:
        raise ValueError(
            f"k and v have shapes {tuple(k.shape)} and {tuple(v.shape)}; "
            f"with q {tuple(q.shape)} both must be ({B}, {H}, N, {D})"
        )
    out = torch.empty_like(q)
    with torch.cuda.device_of(q):
        _smallest_kernel[(M // BLOCK, B * H)](
            q, k, v, out, M, k.shape[2], 1 / math.sqrt(D), D=D, BLOCK=BLOCK
        )
    return out
