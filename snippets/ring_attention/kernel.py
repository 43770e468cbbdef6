"""Attention for sequences longer than one GPU: keys and values travel round a ring of ranks.

Run it alone: `torchrun --nproc-per-node 2 kernel.py` checks it against PyTorch, on two GPUs with
NCCL or, where there are fewer, on the CPU with gloo and in Triton's interpreter. `python kernel.py`
starts torchrun by itself. Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and
triton >= 3.6.
"""

import contextlib
import contextvars
import functools
import math
import numbers
import os
import subprocess
import sys
from datetime import timedelta
from typing import NamedTuple

import torch

RANKS = int(os.environ.get("LOCAL_WORLD_SIZE", "2"))  # of this machine, where torchrun started them
if __name__ == "__main__" and torch.cuda.device_count() < RANKS:
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import torch.distributed as dist
import triton
import triton.language as tl
from torch.distributed.device_mesh import DeviceMesh
from triton.tools.tensor_descriptor import TensorDescriptor

INTERPRETED = triton.knobs.runtime.interpret
UPCAST = tl.constexpr(INTERPRETED)  # the interpreter cannot compute with bfloat16
LOG2_E = tl.constexpr(math.log2(math.e))  # exp(x) = 2^(x · log2(e)), and a GPU has only exp2
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LAYOUTS = ("zigzag", "contiguous")
NAMES = ("out", "grad_q", "grad_k", "grad_v")  # of what the check below compares
MAX_SCALE = 2.0**64  # and at least 1 / MAX_SCALE: scores of float16 stay within float32's range
MAX_GRADIENT_SCALE = 2.0**8  # there, weights of normal q and k may be off by 2 %, and not by more
TMA_ADDS = not INTERPRETED  # the interpreter loads through descriptors, but does not add


class TileConfig(NamedTuple):
    """How the work of one program is cut, and on how many warps it runs."""

    BLOCK_M: int  # queries: of a program in the forward, of an iteration in the backward
    BLOCK_N: int  # keys: of an iteration in the forward, of a program in the backward
    num_warps: int  # 32 threads each
    num_stages: int  # iterations whose loads are in flight at once
    warp_specialize: bool = False  # one warp loads, the others compute


# Architecture → largest D that a row is for → tiles without a causal mask, and with one.
FORWARD_TILES = {
    "sm_80": {
        64: (TileConfig(128, 64, 8, 3), TileConfig(128, 64, 8, 3)),
        128: (TileConfig(128, 64, 8, 3), TileConfig(128, 64, 8, 3)),
        256: (TileConfig(64, 64, 8, 2), TileConfig(64, 64, 8, 2)),
    },
    "sm_89": {  # also 8.6 and 12.0: less shared memory
        64: (TileConfig(128, 32, 4, 3), TileConfig(128, 32, 4, 3)),
        128: (TileConfig(128, 32, 8, 2), TileConfig(128, 32, 8, 2)),
        256: (TileConfig(64, 32, 8, 2), TileConfig(64, 32, 8, 2)),
    },
    "sm_90": {
        64: (TileConfig(64, 128, 4, 2), TileConfig(64, 128, 4, 2)),
        128: (TileConfig(128, 128, 4, 2, True), TileConfig(64, 64, 4, 3)),
        256: (TileConfig(128, 64, 8, 2), TileConfig(128, 64, 8, 2)),
    },
    "sm_100": {
        64: (TileConfig(128, 64, 4, 3), TileConfig(128, 64, 4, 3)),
        128: (TileConfig(128, 128, 8, 2), TileConfig(128, 128, 8, 2)),
        256: (TileConfig(64, 64, 4, 2), TileConfig(64, 64, 4, 2)),
    },
    "float32": {  # on every architecture: no tensor core keeps float32's precision
        64: (TileConfig(64, 32, 8, 2), TileConfig(64, 32, 8, 2)),
        128: (TileConfig(32, 16, 4, 2), TileConfig(32, 16, 4, 2)),
        256: (TileConfig(32, 16, 8, 2), TileConfig(32, 16, 8, 2)),
    },
}
BACKWARD_TILES = {
    "sm_80": {
        64: (TileConfig(64, 128, 8, 2), TileConfig(64, 128, 8, 2)),
        128: (TileConfig(64, 64, 8, 2), TileConfig(64, 64, 8, 2)),
        256: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
    },
    "sm_89": {
        64: (TileConfig(64, 64, 8, 2), TileConfig(64, 64, 8, 2)),
        128: (TileConfig(32, 64, 8, 1), TileConfig(32, 64, 8, 1)),
        256: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
    },
    "sm_90": {
        64: (TileConfig(64, 128, 8, 2), TileConfig(64, 128, 8, 2)),
        128: (TileConfig(64, 128, 8, 2), TileConfig(64, 128, 8, 2)),
        256: (TileConfig(64, 64, 8, 1), TileConfig(64, 64, 8, 1)),
    },
    "sm_100": {
        64: (TileConfig(64, 128, 8, 2), TileConfig(64, 128, 8, 2)),
        128: (TileConfig(64, 64, 8, 2), TileConfig(64, 64, 8, 2)),
        256: (TileConfig(32, 64, 8, 1), TileConfig(32, 64, 8, 1)),
    },
    "float32": {
        64: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
        128: (TileConfig(16, 32, 8, 1), TileConfig(16, 32, 8, 1)),
        256: (TileConfig(16, 16, 8, 1), TileConfig(16, 16, 8, 1)),
    },
}


@triton.jit
def _load_rows(
    x,  # TMA: descriptor of [B, H, rows, D]; otherwise pointer to the head's first element
    b,
    h,
    first_row,
    num_rows,
    stride_row,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    USE_TMA: tl.constexpr,
):
    """Rows first_row … first_row + BLOCK - 1 of a head, zeros beyond num_rows and D."""
    if USE_TMA:  # the hardware finds the addresses, and knows where the tensor ends
        tile = x.load([b, h, first_row, 0]).reshape([BLOCK, BLOCK_D])
    else:
        # int64: an offset may pass 2^31 elements
        offs_row = first_row + tl.arange(0, BLOCK).to(tl.int64)  # [BLOCK]
        offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
        mask = (offs_row < num_rows)[:, None]  # [BLOCK, 1]
        if D < BLOCK_D:
            mask = mask & (offs_d < D)[None, :]  # [BLOCK, BLOCK_D]
        tile = tl.load(x + offs_row[:, None] * stride_row + offs_d[None, :], mask=mask, other=0.0)
    return tile.to(tl.float32) if UPCAST and tile.dtype == tl.bfloat16 else tile


@triton.jit
def _head(x, b, h, stride_b, stride_h, USE_TMA: tl.constexpr):
    """A pointer to the first element of a head; a descriptor as it is."""
    if not USE_TMA:
        x += b.to(tl.int64) * stride_b + h.to(tl.int64) * stride_h
    return x


@triton.jit(do_not_specialize=["first_row", "M", "N", "done"])  # they change with the step
def _ring_attention_kernel(
    q_ptr,
    k,  # descriptor of [B, Hkv, N, D], or pointer to the first element; v alike
    v,
    acc_ptr,  # [B, H, L, D], float32, contiguous: the running sum of values
    m_ptr,  # [B, H, L], float32, contiguous: the running maximum, times log2(e) unless EXACT
    l_ptr,  # [B, H, L], float32, contiguous: the running sum of weights
    out_ptr,  # [B, H, L, D], contiguous
    lse_ptr,  # [B, H, L], float32, contiguous
    stride_qb,
    stride_qh,
    stride_qm,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    H,  # heads of queries, and how many of them share a head of keys
    G,
    L,  # rows of this rank
    first_row,  # where the queries of this step begin among them; q_ptr points there
    M,  # queries and keys of this step
    N,
    done,  # the first so many queries of this step see no key after it
    scale_log2,  # scale · log2(e)
    D: tl.constexpr,
    CAUSAL: tl.constexpr,  # query m sees the keys up to m: the step of a rank's own keys
    FIRST: tl.constexpr,  # nothing is carried yet
    MASKED: tl.constexpr,  # causal, or N is no multiple of BLOCK_N
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,  # a power of two, at least D
    USE_TMA: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr,
    EXACT: tl.constexpr,  # whether a maximum is subtracted before scores are scaled
):
    """One program takes BLOCK_M queries of one head through the keys that are here now.

    Reads what earlier steps left of its rows (acc, m, l), its queries once and the keys and values
    of this step, BLOCK_N at a time; writes acc, m and l for the next step or, where this one was
    the last for a row, its output and logsumexp. Scores never leave the chip.
    """
    num_tiles = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)  # neighbors share a head, so its k and v
    tile_idx = pid % num_tiles
    if CAUSAL:  # the last rows see most keys: start the longest work first
        tile_idx = num_tiles - 1 - tile_idx
    b, h = pid // num_tiles // H, pid // num_tiles % H
    hk = h // G  # the head of keys and values
    offs_m = tile_idx * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    # Every query of the block sees the keys below unmasked_end; none sees a key from end on.
    last_key = tl.full([BLOCK_M], N - 1, tl.int32)  # [BLOCK_M]: the last key that a query sees
    unmasked_end, end = N, N
    if CAUSAL:
        last_key = tl.minimum(last_key, offs_m)
        unmasked_end = tl.minimum(N, tile_idx * BLOCK_M + 1)
        end = tl.minimum(N, (tile_idx + 1) * BLOCK_M)
    unmasked_end = unmasked_end // BLOCK_N * BLOCK_N  # whole tiles that need no mask

    q_ptr = _head(q_ptr, b, h, stride_qb, stride_qh, USE_TMA=False)
    k = _head(k, b, hk, stride_kb, stride_kh, USE_TMA)
    v = _head(v, b, hk, stride_vb, stride_vh, USE_TMA)
    if WARP_SPECIALIZE:  # a descriptor made here can be divided between the computing warps
        q = tl.make_tensor_descriptor(q_ptr, [M, D], [stride_qm, 1], [BLOCK_M, BLOCK_D])
        # A distinct expression: the compiler moves it, and offs_m must keep tile_idx * BLOCK_M.
        q_tile = q.load([(tile_idx + 1) * BLOCK_M - BLOCK_M, 0])
        q_tile = q_tile.to(tl.float32) if UPCAST and q_tile.dtype == tl.bfloat16 else q_tile
    else:
        first = tile_idx * BLOCK_M
        q_tile = _load_rows(
            q_ptr, b, h, first, M, stride_qm, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=False
        )

    # --8<-- [start:attend]
    before, after = (1.0, scale_log2) if EXACT else (scale_log2, 1.0)  # as in flash_attention
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)  # largest score of this step, times before
    l_i = tl.zeros([BLOCK_M], tl.float32)  # sum of the weights so far
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)  # the same sum, of values
    tail_bias = tl.where(tl.arange(0, BLOCK_N) < N - unmasked_end, 0.0, float("-inf"))  # [BLOCK_N]
    for start in tl.range(0, end, BLOCK_N, warp_specialize=WARP_SPECIALIZE):
        k_tile = _load_rows(
            k, b, hk, start, N, stride_kn, D=D, BLOCK=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
        )
        s = tl.dot(q_tile, k_tile.T, input_precision="ieee")  # [BLOCK_M, BLOCK_N], float32
        if MASKED and WARP_SPECIALIZE:  # no branch here: add 0, and in the last tile the bias
            bias = tl.maximum(tail_bias, tl.where(start < unmasked_end, 0.0, float("-inf")))
            s += bias[None, :]
        elif MASKED and start >= unmasked_end:  # the same answer for all threads
            offs_n = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
            s = tl.where(offs_n[None, :] <= last_key[:, None], s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, axis=1) * before)  # [BLOCK_M]
        m_sub = tl.where(m_new == float("-inf"), 0.0, m_new)  # -inf - (-inf) would be NaN
        alpha = tl.exp2((m_i - m_sub) * after)  # what the old maximum was worth
        p = tl.exp2((s * before - m_sub[:, None]) * after)  # a multiply-add and an exp2 a score
        row_sum = tl.sum(p, axis=1)
        rounded = p.to(q_tile.dtype)
        acc = acc * alpha[:, None]
        v_tile = _load_rows(
            v, b, hk, start, N, stride_vn, D=D, BLOCK=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
        )
        acc = tl.dot(rounded, v_tile, acc, input_precision="ieee")
        l_i = l_i * alpha + row_sum
        m_i = m_new
    # --8<-- [end:attend]

    # --8<-- [start:carry]
    row = (b.to(tl.int64) * H + h) * L + first_row + offs_m  # [BLOCK_M]
    offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
    place = row[:, None] * D + offs_d[None, :]  # [BLOCK_M, BLOCK_D]
    mask_m = offs_m < M  # [BLOCK_M]
    mask_d = (offs_d < D)[None, :]
    if not FIRST:  # the sums of earlier steps and of this one, under one maximum
        m_old = tl.load(m_ptr + row, mask=mask_m, other=0.0)
        l_old = tl.load(l_ptr + row, mask=mask_m, other=0.0)
        old = tl.load(acc_ptr + place, mask=mask_m[:, None] & mask_d, other=0.0)
        m_new = tl.maximum(m_i, m_old)
        m_sub = tl.where(m_new == float("-inf"), 0.0, m_new)
        # `after` is 1, as scores are scaled first; or the scale, where they may be huge.
        beta = tl.exp2((m_old - m_sub) * after)  # [BLOCK_M]: at most 1, as alpha
        alpha = tl.exp2((m_i - m_sub) * after)
        acc = acc * alpha[:, None] + old * beta[:, None]
        l_i = l_i * alpha + l_old * beta
        m_i = m_new
    last = mask_m & (offs_m < done)
    more = mask_m & (offs_m >= done)
    tl.store(acc_ptr + place, acc, mask=more[:, None] & mask_d)
    tl.store(m_ptr + row, m_i, mask=more)
    tl.store(l_ptr + row, l_i, mask=more)
    l_i = tl.where(l_i == 0.0, 1.0, l_i)  # all scores are -inf: acc is zero, and so is the row
    out = acc * (1.0 / l_i)[:, None]  # one division a row, once in the whole ring
    tl.store(out_ptr + place, out.to(out_ptr.dtype.element_ty), mask=last[:, None] & mask_d)
    tl.store(lse_ptr + row, (m_i * after + tl.log2(l_i)) / LOG2_E, mask=last)
    # --8<-- [end:carry]


@triton.jit
def _delta_kernel(
    out_ptr,  # [B, H, L, D] and the gradient for it
    grad_out_ptr,
    delta_ptr,  # written: [B, H, L], float32, contiguous
    stride_ob,
    stride_oh,
    stride_om,
    stride_gb,
    stride_gh,
    stride_gm,
    H,
    L,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One program sums dO · O over the columns of BLOCK_M rows: Δ, once for all steps."""
    num_tiles = tl.cdiv(L, BLOCK_M)
    pid = tl.program_id(0)
    head, first_row = pid // num_tiles, pid % num_tiles * BLOCK_M
    b, h = head // H, head % H
    out_ptr = _head(out_ptr, b, h, stride_ob, stride_oh, USE_TMA=False)
    grad_ptr = _head(grad_out_ptr, b, h, stride_gb, stride_gh, USE_TMA=False)
    out = _load_rows(
        out_ptr, b, h, first_row, L, stride_om, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=False
    )
    grad_out = _load_rows(
        grad_ptr, b, h, first_row, L, stride_gm, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=False
    )
    delta = tl.sum(out.to(tl.float32) * grad_out.to(tl.float32), axis=1)  # [BLOCK_M]
    offs_m = first_row + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    tl.store(delta_ptr + head.to(tl.int64) * L + offs_m, delta, mask=offs_m < L)


@triton.jit(do_not_specialize=["first_row", "first_key", "M", "N"])
def _ring_backward_kernel(
    q,  # descriptors of [B, H, M, D] and [B, Hkv, N, D], or pointers to the first element
    k,
    v,
    grad_out,  # as q
    total,  # the sum of dQ: descriptor of [B, H, M, D], or pointer to the whole [B, H, L, D]
    lse_ptr,  # [B, H, L], float32, contiguous: of all keys, not of those that are here now
    delta_ptr,  # [B, H, L], float32, contiguous
    grad_k_ptr,  # [B, Hkv, L, D], float32, contiguous
    grad_v_ptr,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_gb,
    stride_gh,
    stride_gm,
    H,  # heads of queries, and how many of them share a head of keys
    G,
    L,  # rows of a rank
    first_row,  # where the queries of this step begin among the rank's own
    first_key,  # and the keys among those that are here now
    M,  # queries and keys of this step
    N,
    scale,
    scale_log2,  # scale · log2(e)
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,  # causal, or N is no multiple of BLOCK_N
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    USE_TMA: tl.constexpr,
    ADD_BY_TMA: tl.constexpr,
):
    """One program computes what this step adds to BLOCK_N rows of dK and dV, and its share of dQ.

    Reads its keys and values once; then, BLOCK_M at a time, the queries that see them, with their
    dO, logsumexp and Δ. P and dS [BLOCK_N, BLOCK_M] are transposed: they come out of a product in
    the registers from which the products for dV and dK take them. dQ is added in float32 to what
    other programs and other steps add.
    """
    num_tiles = tl.cdiv(N, BLOCK_N)
    num_tiles_m = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)
    head, tile_idx = pid // num_tiles, pid % num_tiles
    heads = H // G
    b, hk = head // heads, head % heads
    first = tile_idx * BLOCK_N
    offs_n = first + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    first_tile = 0
    if CAUSAL:  # the first tile with a query that sees one of the keys
        first_tile = first // BLOCK_M
    k = _head(k, b, hk, stride_kb, stride_kh, USE_TMA)
    v = _head(v, b, hk, stride_vb, stride_vh, USE_TMA)
    k_tile = _load_rows(
        k, b, hk, first, N, stride_kn, D=D, BLOCK=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
    )
    v_tile = _load_rows(
        v, b, hk, first, N, stride_vn, D=D, BLOCK=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
    )
    dk = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)

    per_head = num_tiles_m - first_tile
    for i in range(0, G * per_head):  # all query heads of the group, one after the other
        h, tile_m = hk * G + i // per_head, first_tile + i % per_head
        first_m = tile_m * BLOCK_M
        offs_m = first_m + tl.arange(0, BLOCK_M)  # [BLOCK_M]
        row = (b.to(tl.int64) * H + h) * L + first_row + offs_m  # [BLOCK_M]
        q_h = _head(q, b, h, stride_qb, stride_qh, USE_TMA)
        q_tile = _load_rows(
            q_h, b, h, first_m, M, stride_qm, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
        )
        lse = tl.load(lse_ptr + row, mask=offs_m < M, other=float("inf"))  # so P is 0
        lse = tl.where(lse == float("-inf"), float("inf"), lse)  # of -inf scores alone, too
        st = tl.dot(k_tile, q_tile.T, input_precision="ieee")  # [BLOCK_N, BLOCK_M]
        if MASKED:
            hidden = first + BLOCK_N > N
            if CAUSAL:
                hidden = hidden | (first_m < first + BLOCK_N - 1)
            if hidden:  # the same answer for all threads
                seen = (offs_n < N)[:, None]
                if CAUSAL:
                    seen = seen & (offs_n[:, None] <= offs_m[None, :])
                st = tl.where(seen, st, float("-inf"))
        pt = tl.exp2(st * scale_log2 - (lse * LOG2_E)[None, :])  # the forward's weights, again
        g_h = _head(grad_out, b, h, stride_gb, stride_gh, USE_TMA)
        do_tile = _load_rows(
            g_h, b, h, first_m, M, stride_gm, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
        )
        dpt = tl.dot(v_tile, do_tile.T, input_precision="ieee")  # [BLOCK_N, BLOCK_M]
        dv = tl.dot(pt.to(do_tile.dtype), do_tile, dv, input_precision="ieee")
        delta = tl.load(delta_ptr + row, mask=offs_m < M, other=0.0)  # [BLOCK_M]
        dst = (pt * (dpt - delta[None, :])).to(q_tile.dtype)
        dk = tl.dot(dst, q_tile, dk, input_precision="ieee")
        dq = tl.dot(dst.T, k_tile, input_precision="ieee") * scale  # [BLOCK_M, BLOCK_D]
        if ADD_BY_TMA:  # a tile goes through shared memory to the units beside L2
            total.atomic_add([b, h, first_m, 0], dq.reshape([1, 1, BLOCK_M, BLOCK_D]))
        else:
            offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
            mask = (offs_m < M)[:, None] & (offs_d < D)[None, :]  # [BLOCK_M, BLOCK_D]
            tl.atomic_add(total + row[:, None] * D + offs_d[None, :], dq, mask=mask, sem="relaxed")

    offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
    place = (head.to(tl.int64) * L + first_key + offs_n)[:, None] * D + offs_d[None, :]
    mask = (offs_n < N)[:, None] & (offs_d < D)[None, :]
    tl.store(grad_k_ptr + place, dk * scale, mask=mask)
    tl.store(grad_v_ptr + place, dv, mask=mask)


# --8<-- [start:plan]
class Ring(NamedTuple):
    """Who takes part. Of one rank without a group there is nobody to talk to."""

    rank: int
    size: int
    group: object = None


class Step(NamedTuple):
    """Which of its queries a rank takes through which keys of the block that is with it."""

    source: int  # the rank whose keys these are
    first_row: int
    M: int  # 0: none of these keys is seen, and nothing is launched
    first_key: int
    N: int
    causal: bool  # query m sees the keys up to m; otherwise all of them
    done: int = 0  # the first so many of these queries see no key after this step


def _seen(rank, source, length, causal, layout):
    """The Step of one rank's queries and another's keys: a rectangle, or the triangle of its own.

    In zigzag a rank holds one chunk of the first half of the sequence and the mirrored one of the
    second, both in order. So no rectangle has a mask: of keys from an earlier rank all queries see
    the first chunk and nothing else; of keys from a later rank only the second chunk of queries
    sees anything, and it sees all.
    """
    whole = Step(source, 0, length, 0, length, causal=False)
    if not causal:
        return whole
    if source == rank:
        return whole._replace(causal=True)
    if layout == "contiguous":
        return whole if source < rank else whole._replace(M=0)
    half = length // 2
    return whole._replace(N=half) if source < rank else whole._replace(first_row=half, M=half)


def _plan(ring, length, causal, layout):
    """The steps of a rank, in the order in which blocks come by: its own, its predecessor's, …"""
    sources = [(ring.rank - t) % ring.size for t in range(ring.size)]
    steps = [_seen(ring.rank, source, length, causal, layout) for source in sources]
    for t, step in enumerate(steps):
        later = [other.first_row for other in steps[t + 1 :] if other.M]
        done = min([step.M, *(max(0, first - step.first_row) for first in later)])
        steps[t] = step._replace(done=done)
    return steps
    # --8<-- [end:plan]


class Travel:
    """Tensors on their way to the next rank while the previous rank's arrive."""

    def __init__(self, ring, *sent_and_received):
        """Post what is to be sent, and where the same from the previous rank shall arrive."""
        self.ring, self.works, posts = ring, [], []
        for sent, received in sent_and_received:
            for out, into in zip(sent, received, strict=True):
                posts.append(dist.P2POp(dist.isend, out, _global_rank(ring, 1), ring.group))
                posts.append(dist.P2POp(dist.irecv, into, _global_rank(ring, -1), ring.group))
        if posts:
            with _explained(ring, "send to the next rank or hear from the previous one"):
                self.works = dist.batch_isend_irecv(posts)

    def arrived(self):
        """Wait: on a GPU its stream does, on a CPU this process."""
        with _explained(self.ring, "send to the next rank or hear from the previous one"):
            for work in self.works:
                work.wait()


def _global_rank(ring, way):
    """The neighbor, as torch.distributed counts ranks."""
    return dist.get_global_rank(ring.group, (ring.rank + way) % ring.size)


@contextlib.contextmanager
def _explained(ring, what):
    """Where torch.distributed raises, say who could not do what."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            f"rank {ring.rank} of the ring could not {what}; a rank may have ended: {error}"
        ) from error


class Blocks:
    """The keys and values at a rank: its own first, then those of the ranks before it.

    NCCL's stream waits for what was launched before a message is posted, so a buffer that a kernel
    has read may be received into right after; two of them, in turn, are enough.
    """

    def __init__(self, ring, k, v):
        self.ring, self.t = ring, 0
        self.held = (k.contiguous(), v.contiguous())
        count = min(2, ring.size - 1)
        self.buffers = [[torch.empty_like(x) for x in self.held] for _ in range(count)]

    def send(self):
        """Post what is held to the next rank, and what the previous one holds to this one."""
        self.arriving = self.buffers[self.t % 2]
        self.travel = Travel(self.ring, (self.held, self.arriving))

    def receive(self):
        """Hold what has been posted to this rank, once it is here."""
        self.travel.arrived()
        self.held, self.t = self.arriving, self.t + 1

    def end(self):
        """Nothing reads what is held again."""


def _forward(q, k, v, ring, causal, scale, layout, local):
    """(out, lse) of this rank's queries [B, H, L, D] and everybody's keys and values."""
    B, H, L, D = q.shape
    acc = q.new_empty((B, H, L, D), dtype=torch.float32)
    m_i, l_i = q.new_empty((2, B, H, L), dtype=torch.float32)
    out, lse = q.new_empty(q.shape), q.new_empty((B, H, L), dtype=torch.float32)
    block = local.blocks(ring, k, v)
    for t, step in enumerate(_plan(ring, L, causal, layout)):
        if t + 1 < ring.size:  # sent before the step is launched: both take place at once
            block.send()
        if step.M:
            state = acc, m_i, l_i, out, lse
            local.forward(q, *block.held, state, step, scale, first=t == 0)
        if t + 1 < ring.size:
            block.receive()
    block.end()
    return out, lse


def _backward(q, k, v, out, lse, grad_out, ring, causal, scale, layout, local):
    """Gradients for this rank's q, k and v. Those of k and v travel with them, in float32.

    While a step runs, the next keys and values arrive, and so does what the ranks before have
    found for the ones at hand; it is added up afterwards. After the last step the sums are one hop
    from home.
    """
    grad_q = torch.zeros_like(q, dtype=torch.float32, memory_format=torch.contiguous_format)
    held = (k.contiguous(), v.contiguous())
    compute = local.backward(q, *held, out, lse, grad_out, scale)
    buffers = [[torch.empty_like(x) for x in held] for _ in range(min(2, ring.size - 1))]
    sums = [[x.new_empty(x.shape, dtype=torch.float32) for x in held] for _ in range(2)]
    found = sums[0] if ring.size == 1 else [torch.empty_like(x) for x in sums[0]]
    for t, step in enumerate(_plan(ring, q.shape[-2], causal, layout)):
        messages = []
        if t + 1 < ring.size:
            arriving = buffers[t % 2]
            messages.append((held, arriving))
        if t > 0:
            messages.append((sums[(t - 1) % 2], sums[t % 2]))
        travel = Travel(ring, *messages)
        if step.M:  # of its own keys a rank sees all: nothing was found for them before
            own = sums[0] if t == 0 else found
            compute(*held, (grad_q, *own), step)
        travel.arrived()
        if step.M and t > 0:
            keys = slice(step.first_key, step.first_key + step.N)
            for x, more in zip(sums[t % 2], found, strict=True):
                x[:, :, keys] += more[:, :, keys]
        if t + 1 < ring.size:
            held = arriving
    whole = [x.to(k.dtype) for x in sums[(ring.size - 1) % 2]]
    if ring.size > 1:  # one hop further than k and v; nothing is added to them any more
        last, whole = whole, [torch.empty_like(x) for x in whole]
        Travel(ring, (last, whole)).arrived()
    return grad_q.to(q.dtype), *whole


class _RingAttention(torch.autograd.Function):
    """Attention of one rank's queries to all keys, as autograd sees it."""

    @staticmethod
    def forward(ctx, q, k, v, ring, causal, scale, layout, local):
        ctx.options = ring, causal, scale, layout, local
        out, lse = _forward(q, k, v, *ctx.options)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        if grad_out.stride(-1) != 1:  # out.sum().backward() passes one number, expanded
            grad_out = grad_out.contiguous()
        gradients = _Gradients.apply(*ctx.saved_tensors, grad_out, *ctx.options)
        return (*gradients, *[None] * 5)


class _Gradients(torch.autograd.Function):
    """The backward, which has none of its own."""

    @staticmethod
    def forward(ctx, *given):
        return _backward(*given)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("ring_attention has no second derivative")


# --8<-- [start:launcher]
@torch.compiler.disable(reason="it talks to other ranks between kernels")
def ring_attention(
    q,
    k,
    v,
    *,
    group=None,
    causal=False,
    scale=None,
    layout="zigzag",
    validate=True,
    local=None,
):
    """softmax(q kᵀ · scale) v where each rank holds a shard of the sequence; differentiable once.

    Source: Liu et al. 2023, https://arxiv.org/abs/2310.01889; zigzag: the ring-flash-attention
    repository, https://github.com/zhuzilin/ring-flash-attention

    Args:
        q: [B, H, L, D], this rank's L queries: float16, bfloat16 or float32; D 16 to 256 in steps
            of 8. Any strides, but the D columns of a row lie side by side.
        k, v: [B, Hkv, L, D], H a multiple of Hkv: groups of query heads share a head of keys.
        group: a process group, a DeviceMesh of one dimension, or None for all ranks. Without
            torch.distributed there is one rank, and the shard is all there is.
        causal: a query sees the keys up to its own position in the whole sequence.
        scale: factor on the scores, from 2^-64 to 2^64; 1/√D if None. In 16 bits, with one of at
            most 1, no product of a query and a key times it may pass 2^27: beyond, rounding on a
            GPU may end in NaN or zeros. For gradients at most 2^8: see flash_backward.
        layout: which rows a rank holds: "zigzag", which gives all the same work under a causal
            mask, or "contiguous". `shard` cuts a tensor so; `positions` says where the rows are.
        validate: compare shapes, dtype and options with the other ranks before anything is sent,
            and raise on all of them if they differ. Costs one small message over gloo.
        local: what computes a step and moves keys and values, a Local; TRITON if None. op.py
            beside this file has one for Hopper.

    Returns:
        [B, H, L, D] in q's dtype: the output of this rank's queries. A row whose scores are all
        -inf is 0.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
        RuntimeError: another rank has ended; or a second derivative is asked for.
    """
    # --8<-- [end:launcher]
    ring = _ring(group)
    with _agreed(ring, validate, "ring_attention") as header:
        scale = _check_inputs(q, k, v, causal, scale, layout)
        header.describe(q, k, v, causal, scale, layout)
    options = ring, causal, scale, layout
    return _RingAttention.apply(q, k, v, *options, local or TRITON)


@torch.compiler.disable(reason="it talks to other ranks between kernels")
def ulysses_attention(
    q, k, v, *, group=None, causal=False, scale=None, layout="zigzag", validate=True, attention=None
):
    """As ring_attention, but heads are exchanged: each rank attends with a few heads to everything.

    Source: Jacobs et al. 2023, https://arxiv.org/abs/2309.14509

    Two all-to-all messages instead of a ring, but the number of ranks must divide H and Hkv, and
    a rank has the whole sequence of its heads in memory. `attention(q, k, v, causal=, scale=)` is
    what computes, ring_attention's own step if None. Arguments, results and refusals are otherwise
    those of ring_attention.
    """
    ring = _ring(group)
    with _agreed(ring, validate, "ulysses_attention") as header:
        scale = _check_inputs(q, k, v, causal, scale, layout)
        for name, x in (("q", q), ("k", k)):
            if x.shape[1] % ring.size:
                raise ValueError(
                    f"{name} has {x.shape[1]} heads; it must be a multiple of the {ring.size} ranks"
                )
        header.describe(q, k, v, causal, scale, layout)
    attend = _alone if attention is None else attention
    order = _order(ring, q.shape[-2], layout, q.device)  # [N]: where each row of a shard belongs
    q, k, v = (_exchange(x, ring, order) for x in (q, k, v))
    return _exchange_back(attend(q, k, v, causal=causal, scale=scale), ring, order)


def _alone(q, k, v, *, causal, scale):
    """Our own step on a sequence that is all here."""
    options = Ring(0, 1), causal, scale, "contiguous"
    return _RingAttention.apply(q, k, v, *options, TRITON)


def _order(ring, length, layout, device):
    """[N]: the position of each row when the shards lie one after the other; None for its own."""
    if layout == "contiguous":
        return None
    shards = [_positions(Ring(r, ring.size), length, layout) for r in range(ring.size)]
    return torch.cat(shards).to(device)


def _exchange(x, ring, order):
    """[B, H, L, D] of all heads and some rows → [B, H / P, N, D] of some heads and all rows."""
    B, H, L, D = x.shape
    parts = x.reshape(B, ring.size, H // ring.size, L, D).movedim(1, 0)  # a part for each rank
    parts = _AllToAll.apply(parts, ring).movedim(0, 2)  # [B, H / P, P, L, D]: of each rank a part
    rows = parts.reshape(B, H // ring.size, ring.size * L, D)
    return rows if order is None else torch.empty_like(rows).index_copy(2, order, rows)


def _exchange_back(x, ring, order):
    """The other way: [B, H / P, N, D] → [B, H, L, D]."""
    B, few, N, D = x.shape
    x = x if order is None else x.index_select(2, order)
    parts = x.reshape(B, few, ring.size, N // ring.size, D).movedim(2, 0)
    parts = _AllToAll.apply(parts, ring).movedim(0, 1)  # [B, P, H / P, L, D]
    return parts.reshape(B, few * ring.size, N // ring.size, D)


class _AllToAll(torch.autograd.Function):
    """Part i of [P, …] goes to rank i, whose part for this rank takes its place."""

    @staticmethod
    def forward(ctx, parts, ring):
        ctx.ring = ring
        return _all_to_all(parts, ring)

    @staticmethod
    def backward(ctx, grad):
        return _all_to_all(grad, ctx.ring), None


def _all_to_all(parts, ring):
    parts = parts.contiguous()
    if ring.size == 1:
        return parts
    arrived = torch.empty_like(parts)
    dist.all_to_all_single(arrived, parts, group=ring.group)
    return arrived


def _positions(ring, length, layout):
    """[length]: where the rows of a rank's shard stand in the whole sequence."""
    chunks = (ring.rank, 2 * ring.size - 1 - ring.rank) if layout == "zigzag" else (ring.rank,)
    size = length // len(chunks)
    return torch.cat([torch.arange(c * size, (c + 1) * size) for c in chunks])


def positions(length, *, group=None, layout="zigzag"):
    """[length], int64: where the rows of this rank's shard stand in the whole sequence.

    What position embeddings, and anything else that depends on the place of a token, must use.
    """
    _check_layout(layout, length, "length")
    return _positions(_ring(group), length, layout)


def shard(x, *, group=None, layout="zigzag", dim=-2):
    """This rank's rows of a whole tensor, which all ranks have; `dim` is that of the sequence."""
    ring = _ring(group)
    N, pieces = x.shape[dim], ring.size * (2 if layout == "zigzag" else 1)
    if N % pieces:
        raise ValueError(
            f"x has {N} rows; with {ring.size} ranks and layout {layout!r} it must be a "
            f"multiple of {pieces}"
        )
    length = N // ring.size
    _check_layout(layout, length, "x")
    return x.index_select(dim, _positions(ring, length, layout).to(x.device))


def unshard(x, *, group=None, layout="zigzag", dim=-2):
    """The whole tensor of which each rank has the shard x; not differentiable."""
    ring = _ring(group)
    _check_layout(layout, x.shape[dim], "x")
    mine = x.detach().movedim(dim, 0).contiguous()
    parts = [torch.empty_like(mine) for _ in range(ring.size)]
    if ring.size > 1:
        dist.all_gather(parts, mine, group=ring.group)
    else:
        parts = [mine]
    whole = torch.cat(parts)
    order = _order(ring, mine.shape[0], layout, x.device)
    if order is not None:
        whole = torch.empty_like(whole).index_copy(0, order, whole)
    return whole.movedim(0, dim).contiguous()


def _ring(group):
    """The Ring of a process group, a DeviceMesh of one dimension, or None."""
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise ValueError(
                f"group is a DeviceMesh of {group.ndim} dimensions; pick one, as mesh['cp'] does"
            )
        group = group.get_group()
    if not (dist.is_available() and dist.is_initialized()):
        if group is not None:
            raise ValueError("group is given but torch.distributed is not initialized")
        return Ring(0, 1)
    if group is None:
        group = dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(
            f"group has type {_type_name(group)}; it must be a ProcessGroup that this rank is in, "
            "a DeviceMesh or None"
        )
    return Ring(dist.get_rank(group), dist.get_world_size(group), group)


FIELDS = ("refused", "launcher", "B", "H", "Hkv", "L", "D", "dtype", "causal", "layout", "scale")
FIELDS += ("gradient",)
_side_groups = {}  # process group → one of gloo with the same ranks, for headers


class Header:
    """What all ranks must call with alike, as numbers of one fixed length."""

    def __init__(self, launcher):
        self.numbers = dict.fromkeys(FIELDS, 0) | {"refused": 1, "launcher": launcher}

    def describe(self, q, k, v, causal, scale, layout):
        """Fill in a call that this rank accepts."""
        B, H, L, D = q.shape
        wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
        values = (B, H, k.shape[1], L, D, DTYPES.index(q.dtype), causal, LAYOUTS.index(layout))
        bits = torch.tensor(scale, dtype=torch.float64).view(torch.int64).item()
        said = dict(zip(FIELDS[2:], (*values, bits, wanted), strict=True))
        self.numbers |= said | {"refused": 0}


@contextlib.contextmanager
def _agreed(ring, validate, launcher):
    """Run what checks and describes a call, then compare; raise on every rank or on none.

    A rank that refuses its own arguments says so to the others, which would wait for it otherwise.
    """
    header = Header(("ring_attention", "ulysses_attention").index(launcher))
    try:
        yield header
    finally:
        if validate and ring.size > 1:
            _compare(ring, header)


def _compare(ring, header):
    """Exchange headers; raise ValueError for the first field in which two ranks differ."""
    mine = torch.tensor([int(header.numbers[name]) for name in FIELDS])
    everybody = [torch.empty_like(mine) for _ in range(ring.size)]
    with _explained(ring, "compare its call with the others'"):
        dist.all_gather(everybody, mine, group=_side_group(ring.group))
    if header.numbers["refused"]:
        return  # this rank has an error of its own to raise
    for at, name in enumerate(FIELDS):
        for rank, other in enumerate(everybody):
            if name == "refused" and other[at]:
                raise ValueError(f"rank {rank} refused its arguments, so this rank stops too")
            if other[at] != mine[at]:
                raise ValueError(
                    f"rank {rank} calls with {_said(name, other[at])}, rank {ring.rank} with "
                    f"{_said(name, mine[at])}; all ranks must call alike"
                )


def _side_group(group):
    """A gloo group of the same ranks: headers must not wait for what runs on a GPU."""
    if dist.get_backend(group) == "gloo":
        return group
    if group not in _side_groups:
        ranks = dist.get_process_group_ranks(group)
        _side_groups[group] = dist.new_group(
            ranks, backend="gloo", use_local_synchronization=True, timeout=timedelta(seconds=60)
        )
    return _side_groups[group]


def _said(name, number):
    """A field of a header in words."""
    value = number.item()
    if name == "dtype":
        return f"dtype {DTYPES[value]}"
    if name == "layout":
        return f"layout {LAYOUTS[value]!r}"
    if name == "scale":
        return f"scale {number.view(torch.float64).item()}"
    if name == "launcher":
        return ("ring_attention", "ulysses_attention")[value]
    return f"{name} {bool(value) if name in ('causal', 'gradient') else value}"


def _launch_step(q, k, v, state, step, scale, *, first):
    """One step of the forward; state is acc, m, l, out and lse, which it updates."""
    queries = q[:, :, step.first_row : step.first_row + step.M]
    keys, values = (x[:, :, step.first_key : step.first_key + step.N] for x in (k, v))
    B, H, L, D = q.shape
    architecture = _architecture(q)
    config = _tile(FORWARD_TILES, architecture, q.dtype, D, step.causal)
    use_tma = _can_use_tma(architecture, queries, keys, values)
    warp_specialize = use_tma and config.warp_specialize and not step.causal
    block_d = 1 << (D - 1).bit_length()  # the next power of two
    strides = [n for x in (queries, keys, values) for n in x.stride()[:3]]
    if use_tma:
        keys, values = (_rows(x, [1, 1, config.BLOCK_N, block_d]) for x in (keys, values))
    launch = functools.partial(
        _ring_attention_kernel[(-(-step.M // config.BLOCK_M) * H * B,)],
        queries,
        keys,
        values,
        *state,
        *strides,
        H=H,
        G=H // k.shape[1],
        L=L,
        first_row=step.first_row,
        M=step.M,
        N=step.N,
        done=step.done,
        scale_log2=scale * LOG2_E.value,
        D=D,
        CAUSAL=step.causal,
        FIRST=first,
        MASKED=step.causal or step.N % config.BLOCK_N != 0,
        BLOCK_M=config.BLOCK_M,
        BLOCK_N=config.BLOCK_N,
        BLOCK_D=block_d,
        USE_TMA=use_tma,
        WARP_SPECIALIZE=warp_specialize,
        EXACT=q.dtype == torch.float32 or scale > 1,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    with _device_of(q):
        if warp_specialize:  # it makes a descriptor
            _with_scratch(launch, q.device)
        else:
            launch()


def _prepare_backward(q, k, v, out, lse, grad_out, scale):
    """What computes the steps of a backward: a function of keys, values, sums and a Step."""
    delta = _launch_delta(out, grad_out)

    def compute(k, v, sums, step):
        _launch_backward(q, k, v, grad_out, lse, delta, sums, step, scale)

    return compute


class Local(NamedTuple):
    """What computes the steps of a rank, and moves keys and values in the forward."""

    forward: object  # (q, k, v, state, step, scale, *, first): as _launch_step
    backward: object  # (q, k, v, out, lse, grad_out, scale): as _prepare_backward
    blocks: object  # (ring, k, v): as Blocks


TRITON = Local(_launch_step, _prepare_backward, Blocks)


def _launch_delta(out, grad_out):
    """[B, H, L]: the sums of dO · O over the columns."""
    B, H, L, D = out.shape
    delta = out.new_empty((B, H, L), dtype=torch.float32)
    strides = (*out.stride()[:3], *grad_out.stride()[:3])
    block_d = 1 << (D - 1).bit_length()
    with _device_of(out):
        _delta_kernel[(-(-L // 64) * H * B,)](
            out, grad_out, delta, *strides, H, L, D=D, BLOCK_M=64, BLOCK_D=block_d
        )
    return delta


def _launch_backward(q, k, v, grad_out, lse, delta, sums, step, scale):
    """One step of the backward: adds to the sum of dQ, writes the step's share of dK and dV."""
    rows = slice(step.first_row, step.first_row + step.M)
    keys = slice(step.first_key, step.first_key + step.N)
    loaded = q[:, :, rows], k[:, :, keys], v[:, :, keys], grad_out[:, :, rows]
    strides = [n for x in loaded for n in x.stride()[:3]]
    total, grad_k, grad_v = sums
    B, H, L, D = q.shape
    architecture = _architecture(q)
    config = _tile(BACKWARD_TILES, architecture, q.dtype, D, step.causal)
    block_d = 1 << (D - 1).bit_length()
    use_tma = _can_use_tma(architecture, *loaded)
    if use_tma:
        queries, block = [1, 1, config.BLOCK_M, block_d], [1, 1, config.BLOCK_N, block_d]
        loaded = map(_rows, loaded, (queries, block, block, queries))
        total = _rows(total[:, :, rows], queries) if TMA_ADDS else total
    with _device_of(q):
        _ring_backward_kernel[(-(-step.N // config.BLOCK_N) * k.shape[1] * B,)](
            *loaded,
            total,
            lse,
            delta,
            grad_k,
            grad_v,
            *strides,
            H=H,
            G=H // k.shape[1],
            L=L,
            first_row=step.first_row,
            first_key=step.first_key,
            M=step.M,
            N=step.N,
            scale=scale,
            scale_log2=scale * LOG2_E.value,
            D=D,
            CAUSAL=step.causal,
            MASKED=step.causal or step.N % config.BLOCK_N != 0,
            BLOCK_M=config.BLOCK_M,
            BLOCK_N=config.BLOCK_N,
            BLOCK_D=block_d,
            USE_TMA=use_tma,
            ADD_BY_TMA=use_tma and TMA_ADDS,
            num_warps=config.num_warps,
            num_stages=config.num_stages,
        )


def _device_of(x):
    """A context in which kernels are launched where x is; mostly they are in any case."""
    if not x.is_cuda or x.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(x.device)


def _with_scratch(launch, device):
    """Launch a kernel that makes a descriptor: Triton asks for memory to put it in."""

    def run():
        triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device=device))
        launch()

    contextvars.copy_context().run(run)  # in the caller's own context his allocator stays


def _architecture(x):
    """The part of a table of tiles for the device of x; the interpreter plays a Hopper GPU."""
    if x.device.type == "cpu":
        return "sm_90"
    found = _capability(x.device)
    known = {(8, 0): "sm_80", (8, 7): "sm_80", (9, 0): "sm_90", (10, 0): "sm_100"}
    return known.get(found, "sm_89")


@functools.cache
def _capability(device):
    return torch.cuda.get_device_capability(device)


def _tile(table, architecture, dtype, D, causal):
    """The TileConfig for a step."""
    rows = table["float32" if dtype == torch.float32 else architecture]
    return rows[min(width for width in rows if D <= width)][causal]


def _rows(x, block):
    """A descriptor of x, a block of which is loaded, or added to, at once."""
    return TensorDescriptor(x, x.shape, x.stride(), block)


def _can_use_tma(architecture, *tensors):
    """Whether TMA can load all tensors: 16-byte aligned rows, on Hopper or later."""
    # Without tensor cores the tiles end in registers: pointers bring them there directly.
    if architecture not in ("sm_90", "sm_100") or tensors[0].dtype == torch.float32:
        return False
    for x in tensors:
        steps = x.stride()[:-1]
        if x.data_ptr() % 16 or math.gcd(*steps) * x.itemsize % 16 or 0 in steps:
            return False
    return True


def _check_inputs(q, k, v, causal, scale, layout):
    """Raise for what a rank cannot do: which argument, what came, what is allowed. The scale."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        raise TypeError(
            "torch.func and forward-mode autograd cannot see into a kernel; instead of vmap use "
            "leading dimensions, and for gradients torch.autograd.grad"
        )
    for name, x in (("q", q), ("k", k), ("v", v)):
        _check_tensor(name, x, q)
    shape, shape_k = tuple(q.shape), tuple(k.shape)
    B, H, L, D = shape
    if D not in range(16, 257, 8):
        raise ValueError(f"q has head dimension {D}; 16 to 256 in steps of 8 are allowed")
    if (shape_k[0], *shape_k[2:]) != (B, L, D):
        raise ValueError(f"k has shape {shape_k}; with q {shape} it must be ({B}, Hkv, {L}, {D})")
    if v.shape != k.shape:
        raise ValueError(f"v has shape {tuple(v.shape)}; it must be k's, {shape_k}")
    if H % shape_k[1]:
        raise ValueError(f"q has {H} heads and k {shape_k[1]}; q's must be a multiple of k's")
    if q.numel() // D >= 2**31:
        raise ValueError(f"q has shape {shape}; fewer than 2^31 rows are allowed")
    if not isinstance(causal, bool):
        raise TypeError(f"causal has type {_type_name(causal)}; it must be a bool, True or False")
    _check_layout(layout, L, "q")
    _check_gpu(q)
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    return _gradient_scale(scale, D) if wanted else _scale_or_default(scale, D)


def _check_tensor(name, x, q):
    """Raise for a tensor that no kernel here takes; it must match q."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} has type {_type_name(x)}; it must be a torch.Tensor")
    if x.is_nested or x.layout != torch.strided:
        layout = "nested" if x.is_nested else x.layout
        raise TypeError(f"{name} is {layout}; it must be dense, torch.strided")
    if x.dtype not in DTYPES:
        raise TypeError(f"{name} is {x.dtype}; {', '.join(map(str, DTYPES))} are allowed")
    if x.dtype != q.dtype:
        raise TypeError(f"{name} is {x.dtype} but q is {q.dtype}; cast them to one dtype")
    if x.device != q.device:
        raise ValueError(f"{name} is on {x.device} but q is on {q.device}; move one of them")
    if x.dim() != 4:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; 4 dimensions are needed: B, H, L, D")
    if x.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; no dimension may be 0")
    if x.stride(-1) != 1:
        raise ValueError(
            f"{name} has strides {x.stride()}; the last must be 1: use {name}.contiguous()"
        )
    if x.is_neg():  # its memory holds the opposite sign
        raise ValueError(f"{name} is a negated view; use {name}.resolve_neg()")


def _check_layout(layout, length, name):
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}; it must be 'zigzag' or 'contiguous'")
    if layout == "zigzag" and length % 2:
        raise ValueError(
            f"{name} has {length} rows on this rank; layout 'zigzag' needs an even number of them"
        )


def _check_gpu(q):
    """Raise unless a kernel can run where q is: on a GPU, or on a CPU in the interpreter."""
    kind = q.device.type
    if kind != "cuda" and not (kind == "cpu" and INTERPRETED):
        hint = ", or TRITON_INTERPRET=1 set before import" if kind == "cpu" else ""
        raise ValueError(f"q is on {q.device}; the kernel needs a CUDA device{hint}")
    if kind == "cuda" and torch.version.hip is None and _capability(q.device) < (8, 0):
        found = _capability(q.device)
        raise ValueError(f"q is on a GPU of capability {found}; (8, 0) or newer is allowed")
    widest = max(FORWARD_TILES[_architecture(q)])
    if q.shape[-1] > widest:
        raise ValueError(f"q has head dimension {q.shape[-1]}; at most {widest} is allowed here")


def _scale_or_default(scale, D):
    """The scale as a float, 1/√D for None; raise for what is no number or out of range."""
    if scale is None:
        return 1.0 / math.sqrt(D)
    if isinstance(scale, bool) or not isinstance(scale, numbers.Real):
        raise TypeError(f"scale has type {_type_name(scale)}; it must be a number or None")
    try:
        number = float(scale)
    except OverflowError:  # an integer beyond all floats
        number = math.inf
    if not 1 / MAX_SCALE <= number <= MAX_SCALE:
        raise ValueError(f"scale is {number}; it must lie between 2^-64 and 2^64")
    return number


def _gradient_scale(scale, D):
    """As above; raise also where a float32 logsumexp would not give the weights back."""
    number = _scale_or_default(scale, D)
    if number > MAX_GRADIENT_SCALE:
        raise ValueError(f"scale is {number}; for gradients it may be at most 2^8")
    return number


def _type_name(x):
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")


def main():
    """Check forward and gradients on all ranks; started without torchrun, start it."""
    if "RANK" not in os.environ:
        run = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        run += ["--local-addr", "127.0.0.1"]  # the machine's name may lead nowhere
        environment = {"OMP_NUM_THREADS": "1"} | os.environ
        ranks = str(max(RANKS, torch.cuda.device_count()))
        command = [*run, "--nproc-per-node", ranks, __file__]
        return subprocess.run(command, env=environment, check=False).returncode
    device = torch.device("cpu" if INTERPRETED else f"cuda:{os.environ['LOCAL_RANK']}")
    options = {"timeout": timedelta(seconds=60)}  # a rank that died is found missing after it
    if device.type == "cuda":
        torch.cuda.set_device(device)
        options["device_id"] = device
    dist.init_process_group("gloo" if INTERPRETED else "nccl", **options)
    right = _check_itself(device)
    if device.type == "cuda":
        _time_itself(device)
    dist.destroy_process_group()
    return 0 if right else 1


def _check_itself(device):
    """Whether every rank's output and gradients are right, told by the first rank."""
    ranks = dist.get_world_size()
    generator = torch.Generator().manual_seed(0)  # the same numbers on all ranks
    q, grad_out = torch.randn(2, 1, 4, 64 * ranks, 64, generator=generator).half().to(device)
    k, v = torch.randn(2, 1, 2, 64 * ranks, 64, generator=generator).half().to(device)
    whole = [x.double().requires_grad_() for x in (q, k, v)]
    keys, values = (x.repeat_interleave(2, dim=1) for x in whole[1:])
    hidden = torch.ones(64 * ranks, 64 * ranks, dtype=torch.bool, device=device).triu(1)
    scores = (whole[0] @ keys.mT / math.sqrt(64)).masked_fill(hidden, float("-inf"))
    attended = scores.softmax(-1) @ values
    want = [attended.detach(), *torch.autograd.grad(attended, whole, grad_out.double())]
    local = [shard(x).requires_grad_() for x in (q, k, v)]
    out = ring_attention(*local, causal=True)
    found = [out.detach(), *torch.autograd.grad(out, local, shard(grad_out))]
    errors = []
    for ours, exact in zip(found, want, strict=True):
        error = (ours.double() - shard(exact)).abs().max()
        dist.all_reduce(error, dist.ReduceOp.MAX)
        errors.append((error.item(), 2 * torch.finfo(q.dtype).eps * exact.abs().max().item()))
    right = all(error <= allowed for error, allowed in errors)
    if dist.get_rank() == 0:
        print(f"q {tuple(local[0].shape)} on each of {ranks} ranks, {q.dtype} on {device.type}")
        for name, (error, allowed) in zip(NAMES, errors, strict=True):
            verdict = "within" if error <= allowed else "above"
            print(f"{name}: largest difference from float64 {error:.1e}: {verdict} {allowed:.1e}")
        print("OK" if right else "WRONG", flush=True)
    return right


def _time_itself(device):
    """The time of a call on all GPUs, and of PyTorch's attention to the same on one."""
    ranks, N = dist.get_world_size(), 32_768
    q, k, v = torch.randn(3, 1, 16, N, 128, device=device, dtype=torch.bfloat16)
    parts = [shard(x) for x in (q, k, v)]
    sdpa = torch.nn.functional.scaled_dot_product_attention
    calls = {
        f"ring_attention on {ranks} GPUs": lambda: ring_attention(*parts, validate=False),
        "PyTorch on one": lambda: sdpa(q, k, v),
    }
    for name, call in calls.items():
        call()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if dist.get_rank() == 0:
            print(f"{name}, N {N}: {start.elapsed_time(end):.2f} ms", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
