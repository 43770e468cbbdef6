"""A running softmax over tiles of keys, products as sums; causal on request."""

import math

import torch
import triton
import triton.language as tl

BM, BN = 16, 16


@triton.jit
def _tiles(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    q_b,
    q_h,
    q_m,
    q_d,
    k_b,
    k_h,
    k_n,
    k_d,
    v_b,
    v_h,
    v_n,
    v_d,
    o_b,
    o_h,
    o_m,
    o_d,
    HEADS,
    M,
    N,
    D,
    scale,
    CAUSAL: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BD: tl.constexpr,
):
    block = tl.program_id(0)
    b = tl.program_id(1) // HEADS
    h = tl.program_id(1) % HEADS
    rows = block * BM + tl.arange(0, BM)
    dims = tl.arange(0, BD)
    q_tile = q_ptr + b * q_b + h * q_h + rows[:, None] * q_m + dims[None, :] * q_d
    q_mask = (rows < M)[:, None] & (dims < D)[None, :]
    q = tl.load(q_tile, mask=q_mask, other=0.0).to(tl.float32)
    biggest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, BD), tl.float32)
    for begin in range(0, N, BN):
        cols = begin + tl.arange(0, BN)
        k_tile = k_ptr + b * k_b + h * k_h + cols[:, None] * k_n + dims[None, :] * k_d
        k_mask = (cols < N)[:, None] & (dims < D)[None, :]
        k = tl.load(k_tile, mask=k_mask, other=0.0).to(tl.float32)
        s = tl.sum(q[:, None, :] * k[None, :, :], axis=2) * scale
        s = tl.where((cols < N)[None, :], s, -float("inf"))
        if CAUSAL:
            s = tl.where(cols[None, :] <= rows[:, None] + (N - M), s, -float("inf"))
        higher = tl.maximum(biggest, tl.max(s, axis=1))
        anchor = tl.where(higher == -float("inf"), 0.0, higher)
        decay = tl.exp(biggest - anchor)
        p = tl.exp(s - anchor[:, None])
        total = total * decay + tl.sum(p, axis=1)
        acc = acc * decay[:, None]
        v_tile = v_ptr + b * v_b + h * v_h + cols[:, None] * v_n + dims[None, :] * v_d
        v_mask = (cols < N)[:, None] & (dims < D)[None, :]
        v = tl.load(v_tile, mask=v_mask, other=0.0).to(tl.float32)
        acc += tl.sum(p[:, :, None] * v[None, :, :], axis=1)
        biggest = higher
    acc = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    o_tile = o_ptr + b * o_b + h * o_h + rows[:, None] * o_m + dims[None, :] * o_d
    o_mask = (rows < M)[:, None] & (dims < D)[None, :]
    tl.store(o_tile, acc.to(o_ptr.dtype.element_ty), mask=o_mask)


def tiled(q, k, v, causal=False):
    batch, heads, M, D = q.shape
    N = k.shape[2]
    if k.shape[1] != heads:
        raise ValueError(f"k has {k.shape[1]} heads, q has {heads}")
    out = torch.empty_like(q)
    grid = (triton.cdiv(M, BM), batch * heads)
    _tiles[grid](
        q,
        k,
        v,
        out,
        *q.stride(),
        *k.stride(),
        *v.stride(),
        *out.stride(),
        heads,
        M,
        N,
        D,
        1 / math.sqrt(D),
        CAUSAL=causal,
        BM=BM,
        BN=BN,
        BD=triton.next_power_of_2(D),
    )
    return out
