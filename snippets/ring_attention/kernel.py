"""Ring attention on one rank: its queries attend to keys and values that come block after block.

float16, bfloat16 or float32, 16 to 256 columns in steps of 8, the columns of a row side by side;
NVIDIA GPUs from capability 8.0 on. ring.py beside this file says who holds what, sends keys, values
and gradients from rank to rank over torch.distributed, and is differentiable.
Run it alone: `python kernel.py` checks the steps of a rank against PyTorch, on a CPU too.
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import contextvars
import functools
import numbers
import os
from typing import Any, NamedTuple

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

INTERPRETED = triton.knobs.runtime.interpret
UPCAST = tl.constexpr(INTERPRETED)  # the interpreter cannot compute with bfloat16
LOG2_E = tl.constexpr(1.4426950408889634)  # exp(x) = 2^(x · log2(e)), and a GPU has only exp2


class Tile(NamedTuple):
    """How the work of one program is cut, and on how many warps it runs."""

    BLOCK_M: int  # queries: of a program in the forward, of an iteration in the backward
    BLOCK_N: int  # keys: of an iteration in the forward, of a program in the backward
    num_warps: int  # 32 threads each
    num_stages: int  # iterations whose loads are in flight at once
    warp_specialize: bool = False  # one warp loads, the others compute


# Architecture → largest D that a tile is for → the tile; or two: without a causal mask, and with.
# Those of sm_90 for D 64 and 128 are the fastest that we timed on an H200; the others fit.
# sm_89 is also 8.6 and 12.0: less shared memory. No tensor core keeps float32's precision.
HOPPER_128 = Tile(128, 128, 4, 2, warp_specialize=True), Tile(64, 64, 4, 3)
FORWARD_TILES = {
    "sm_80": {64: Tile(128, 64, 8, 3), 128: Tile(128, 64, 8, 3), 256: Tile(64, 64, 8, 2)},
    "sm_89": {64: Tile(128, 32, 4, 3), 128: Tile(128, 32, 8, 2), 256: Tile(64, 32, 8, 2)},
    "sm_90": {64: Tile(64, 128, 4, 2), 128: HOPPER_128, 256: Tile(128, 64, 8, 2)},
    "sm_100": {64: Tile(128, 64, 4, 3), 128: Tile(128, 128, 8, 2), 256: Tile(64, 64, 4, 2)},
    "float32": {64: Tile(64, 32, 8, 2), 128: Tile(32, 16, 4, 2), 256: Tile(32, 16, 8, 2)},
}
BACKWARD_TILES = {
    "sm_80": {64: Tile(64, 128, 8, 2), 128: Tile(64, 64, 8, 2), 256: Tile(32, 32, 8, 1)},
    "sm_89": {64: Tile(64, 64, 8, 2), 128: Tile(32, 64, 8, 1), 256: Tile(32, 32, 8, 1)},
    "sm_90": {64: Tile(64, 128, 8, 2), 128: Tile(64, 128, 8, 2), 256: Tile(64, 64, 8, 1)},
    "sm_100": {64: Tile(64, 128, 8, 2), 128: Tile(64, 64, 8, 2), 256: Tile(32, 64, 8, 1)},
    "float32": {64: Tile(32, 32, 8, 1), 128: Tile(16, 32, 8, 1), 256: Tile(16, 16, 8, 1)},
}


@triton.jit(do_not_specialize=["first_row", "M", "N", "done"])  # they change with the step
def _ring_attention_kernel(
    q_ptr, k, v,  # k and v: descriptors of [B, Hkv, N, D], or pointers to the first element
    acc_ptr, m_ptr, l_ptr,  # carried: sum of values [B, H, L, D]; maximum, sum of weights [B, H, L]
    out_ptr, lse_ptr,  # [B, H, L, D], [B, H, L]; as what is carried, lse is float32; all contiguous
    stride_qb, stride_qh, stride_qm,  # step to the next batch, head, row; columns are contiguous
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    H, G, L,  # heads of queries, and how many share a head of keys; rows of this rank
    first_row,  # where the queries of this step begin among them; q_ptr points there
    M, N,  # queries and keys of this step
    done,  # the first so many of these queries see no key after this step
    scale_log2,  # scale · log2(e)
    CAUSAL: tl.constexpr,  # query m sees the keys up to m: the step of a rank's own keys
    MASKED: tl.constexpr,  # causal, or N is no multiple of BLOCK_N
    D: tl.constexpr, BLOCK_D: tl.constexpr,  # BLOCK_D: a power of two, at least D
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    USE_TMA: tl.constexpr, WARP_SPECIALIZE: tl.constexpr,
    FIRST: tl.constexpr,  # nothing is carried yet
    EXACT: tl.constexpr,  # for huge scores: they are scaled after the largest is subtracted
):  # fmt: skip
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
    k_rows = Rows(_head(k, b, hk, stride_kb, stride_kh, USE_TMA), b, hk, stride_kn, N)
    v_rows = Rows(_head(v, b, hk, stride_vb, stride_vh, USE_TMA), b, hk, stride_vn, N)
    if WARP_SPECIALIZE:  # a descriptor made here can be divided between the computing warps
        q = tl.make_tensor_descriptor(q_ptr, [M, D], [stride_qm, 1], [BLOCK_M, BLOCK_D])
        # A distinct expression: the compiler moves it, and offs_m must keep tile_idx * BLOCK_M.
        q_tile = q.load([(tile_idx + 1) * BLOCK_M - BLOCK_M, 0])
        q_tile = q_tile.to(tl.float32) if UPCAST and q_tile.dtype == tl.bfloat16 else q_tile
    else:
        q_rows = Rows(q_ptr, b, h, stride_qm, M)
        q_tile = _load_rows(q_rows, tile_idx * BLOCK_M, D, BLOCK_M, BLOCK_D, USE_TMA=False)

    before, after = (1.0, scale_log2) if EXACT else (scale_log2, 1.0)  # as in flash_attention
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)  # largest score of this step, times before
    l_i = tl.zeros([BLOCK_M], tl.float32)  # sum of the weights so far
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)  # the same sum, of values
    tail_bias = tl.where(tl.arange(0, BLOCK_N) < N - unmasked_end, 0.0, float("-inf"))  # [BLOCK_N]
    for start in tl.range(0, end, BLOCK_N, warp_specialize=WARP_SPECIALIZE):
        k_tile = _load_rows(k_rows, start, D, BLOCK_N, BLOCK_D, USE_TMA)
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
        v_tile = _load_rows(v_rows, start, D, BLOCK_N, BLOCK_D, USE_TMA)
        acc = tl.dot(rounded, v_tile, acc, input_precision="ieee")
        l_i = l_i * alpha + row_sum
        m_i = m_new

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
        # after: 1 if scores were scaled already, else the scale (EXACT)
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


class Rows(NamedTuple):
    """Where the rows of one head lie."""

    x: Any  # TMA's descriptor of the tensor [B, H, rows, D], or a pointer to the head
    b: Any
    h: Any
    stride: Any  # step to the next row; columns are contiguous
    count: Any


@triton.jit
def _head(x, b, h, stride_b, stride_h, USE_TMA: tl.constexpr):
    """A pointer to the first element of a head; a descriptor as it is."""
    if not USE_TMA:
        x += b.to(tl.int64) * stride_b + h.to(tl.int64) * stride_h
    return x


@triton.jit
def _load_rows(
    rows, first,
    D: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr, USE_TMA: tl.constexpr,
):  # fmt: skip
    """Rows first … first + BLOCK - 1 of a head, zeros beyond the last row and column."""
    if USE_TMA:  # the hardware finds the addresses, and knows where the tensor ends
        tile = rows.x.load([rows.b, rows.h, first, 0]).reshape([BLOCK, BLOCK_D])
    else:
        # int64: an offset may pass 2^31 elements
        offs_row = first + tl.arange(0, BLOCK).to(tl.int64)  # [BLOCK]
        offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
        mask = (offs_row < rows.count)[:, None]  # [BLOCK, 1]
        if D < BLOCK_D:
            mask = mask & (offs_d < D)[None, :]  # [BLOCK, BLOCK_D]
        place = rows.x + offs_row[:, None] * rows.stride + offs_d[None, :]
        tile = tl.load(place, mask=mask, other=0.0)
    return tile.to(tl.float32) if UPCAST and tile.dtype == tl.bfloat16 else tile


@triton.jit(do_not_specialize=["first_row", "first_key", "M", "N"])
def _ring_backward_kernel(
    q, k, v, grad_out,  # descriptors of what this step takes, or pointers to the first element
    total,  # the sum of dQ: descriptor of [B, H, M, D], or pointer to the whole [B, H, L, D]
    lse_ptr, delta_ptr,  # [B, H, L], float32, contiguous: of all keys, not of those here now
    grad_k_ptr, grad_v_ptr,  # [B, Hkv, L, D], float32, contiguous
    stride_qb, stride_qh, stride_qm,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_gb, stride_gh, stride_gm,
    H, G, L, first_row,  # as above
    first_key,  # where the keys of this step begin among those that are here now
    M, N, scale, scale_log2,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    USE_TMA: tl.constexpr, ADD_BY_TMA: tl.constexpr,
):  # fmt: skip
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
    k_rows = Rows(_head(k, b, hk, stride_kb, stride_kh, USE_TMA), b, hk, stride_kn, N)
    v_rows = Rows(_head(v, b, hk, stride_vb, stride_vh, USE_TMA), b, hk, stride_vn, N)
    k_tile = _load_rows(k_rows, first, D, BLOCK_N, BLOCK_D, USE_TMA)
    v_tile = _load_rows(v_rows, first, D, BLOCK_N, BLOCK_D, USE_TMA)
    dk = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)

    per_head = num_tiles_m - first_tile
    for i in range(0, G * per_head):  # all query heads of the group, one after the other
        h, tile_m = hk * G + i // per_head, first_tile + i % per_head
        first_m = tile_m * BLOCK_M
        offs_m = first_m + tl.arange(0, BLOCK_M)  # [BLOCK_M]
        row = (b.to(tl.int64) * H + h) * L + first_row + offs_m  # [BLOCK_M]
        q_rows = Rows(_head(q, b, h, stride_qb, stride_qh, USE_TMA), b, h, stride_qm, M)
        q_tile = _load_rows(q_rows, first_m, D, BLOCK_M, BLOCK_D, USE_TMA)
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
        do_rows = Rows(_head(grad_out, b, h, stride_gb, stride_gh, USE_TMA), b, h, stride_gm, M)
        do_tile = _load_rows(do_rows, first_m, D, BLOCK_M, BLOCK_D, USE_TMA)
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


class Step(NamedTuple):
    """Which of its queries a rank takes through which keys of the block that is with it."""

    source: int  # the rank whose keys these are
    first_row: int
    M: int  # 0: none of these keys is seen, and nothing is launched
    first_key: int
    N: int
    causal: bool  # query m sees the keys up to m; otherwise all of them
    done: int = 0  # the first so many of these queries see no key after this step


def ring_attention(q, blocks, steps, *, scale=None, launch=None):
    """softmax(q kᵀ · scale) v for the queries of one rank, whose keys come block after block.

    Source: Liu et al. 2023, https://arxiv.org/abs/2310.01889

    Args:
        q: [B, H, L, D], float16, bfloat16 or float32; D 16 to 256 in steps of 8. Any strides, but
            the D columns of a row lie side by side.
        blocks: k and v for each step, [B, Hkv, L, D], all alike; H a multiple of Hkv. The next
            ones are asked for when a step is launched, so that they can arrive meanwhile.
        steps: a Step for each: which queries attend to which keys.
        scale: factor on the scores, from 2^-64 to 2^64; 1/√D if None.
        launch: what launches a step, as _launch_step, which it is if None.

    Returns:
        [B, H, L, D] in q's dtype; and the natural logarithm of the sum of exp(score), [B, H, L] in
        float32. A row whose scores are all -inf is 0.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
    """
    state = ()
    for step, (k, v) in zip(steps, blocks, strict=True):
        if first := not state:
            for error in _refusals(q, k, v, step.causal, scale):
                raise error
            scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
            m_i, l_i, lse = q.new_empty((3, *q.shape[:-1]), dtype=torch.float32)
            state = q.new_empty(q.shape, dtype=torch.float32), m_i, l_i, q.new_empty(q.shape), lse
        if step.M:
            (launch or _launch_step)(q, k, v, state, step, scale, first=first)
    return state[3:]


def _launch_step(q, k, v, state, step, scale, *, first):
    """One step of the forward; state is acc, m, l, out and lse, which it updates."""
    tensors, strides, tile, constants = _prepare(FORWARD_TILES, step, q, k, v)
    (B, H, L, _), use_tma = q.shape, constants[-1]
    if use_tma:
        tensors[1:] = [_describe(x, tile.BLOCK_N) for x in tensors[1:]]
    warp_specialize = use_tma and tile.warp_specialize and not step.causal  # no loop with a branch
    where = step.first_row, step.M, step.N, step.done
    sizes = *strides, H, H // k.shape[1], L, *where, scale * LOG2_E.value
    constants += warp_specialize, first, q.dtype == torch.float32 or scale > 1
    # A kernel that makes a descriptor needs memory for it; the caller's own allocator stays.
    context = contextvars.copy_context()
    context.run(triton.set_allocator, lambda size, *_: q.new_empty(size, dtype=torch.int8))
    with torch.cuda.device_of(q):
        context.run(
            _ring_attention_kernel[(triton.cdiv(step.M, tile.BLOCK_M) * H * B,)],
            *tensors, *state, *sizes, *constants,
            num_warps=tile.num_warps, num_stages=tile.num_stages,
        )  # fmt: skip


def _prepare_backward(q, k, v, out, lse, grad_out, scale):
    """What computes the steps of a backward: a function of keys, values, sums and a Step."""
    delta = (out * grad_out.float()).sum(-1)  # [B, H, L], once for all steps
    return functools.partial(_launch_backward, q, grad_out, lse, delta, scale)


def _launch_backward(q, grad_out, lse, delta, scale, k, v, sums, step):
    """One step of the backward: adds to the sum of dQ, writes the step's share of dK and dV."""
    tensors, strides, tile, constants = _prepare(BACKWARD_TILES, step, q, k, v, grad_out)
    (total, *found), (B, H, L, _), use_tma = sums, q.shape, constants[-1]
    add_by_tma = use_tma and not INTERPRETED  # the interpreter only loads through descriptors
    if use_tma:
        tensors = map(_describe, tensors, (tile.BLOCK_M, tile.BLOCK_N, tile.BLOCK_N, tile.BLOCK_M))
    if add_by_tma:
        total = _describe(total[:, :, step.first_row : step.first_row + step.M], tile.BLOCK_M)
    where = step.first_row, step.first_key, step.M, step.N
    sizes = *strides, H, H // k.shape[1], L, *where, scale, scale * LOG2_E.value
    with torch.cuda.device_of(q):
        _ring_backward_kernel[(triton.cdiv(step.N, tile.BLOCK_N) * k.shape[1] * B,)](
            *tensors, total, lse, delta, *found, *sizes, *constants, add_by_tma,
            num_warps=tile.num_warps, num_stages=tile.num_stages,
        )  # fmt: skip


def _prepare(table, step, q, k, v, *grad_out):
    """What a step takes of tensors; their strides, a Tile, and constants from CAUSAL to USE_TMA."""
    rows = slice(step.first_row, step.first_row + step.M)
    keys = slice(step.first_key, step.first_key + step.N)
    tensors = [q[:, :, rows], k[:, :, keys], v[:, :, keys], *(x[:, :, rows] for x in grad_out)]
    strides = [n for x in tensors for n in x.stride()[:3]]
    architecture, D = _architecture(q.device), q.shape[-1]
    architecture = "float32" if q.dtype == torch.float32 else architecture
    tile = next(tile for widest, tile in table[architecture].items() if widest >= D)
    tile = tile if isinstance(tile, Tile) else tile[step.causal]
    constants = step.causal, step.causal or step.N % tile.BLOCK_N != 0, D
    block_d, use_tma = triton.next_power_of_2(D), _can_use_tma(architecture, *tensors)
    return tensors, strides, tile, (*constants, block_d, *tile[:2], use_tma)


def _can_use_tma(architecture, *tensors):
    """Whether TMA can load all tensors: 16 bits, 16-byte aligned rows, on Hopper or later."""
    steps = [step * x.itemsize for x in tensors for step in x.stride()[:-1]]
    aligned = all(step and step % 16 == 0 for step in (*steps, *(x.data_ptr() for x in tensors)))
    return aligned and architecture in ("sm_90", "sm_100")


def _describe(x, rows):
    """A descriptor of x, of which so many rows are loaded, or added to, at once."""
    block = [1, 1, rows, triton.next_power_of_2(x.shape[-1])]
    return TensorDescriptor(x, x.shape, x.stride(), block)


@functools.cache
def _architecture(device):
    """The part of a table of tiles for a device; the interpreter plays a Hopper GPU."""
    found = (9, 0) if device.type == "cpu" else torch.cuda.get_device_capability(device)
    known = {(8, 0): "sm_80", (8, 7): "sm_80", (9, 0): "sm_90", (10, 0): "sm_100"}
    return known.get(found, "sm_89" if found > (8, 0) else f"capability {found}")


DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def _refusals(q, k, v, causal, scale):
    """What these kernels cannot do, in order: which argument, what came, what is allowed."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor) or x.is_nested or x.layout != torch.strided:
            kind = "nested" if getattr(x, "is_nested", False) else getattr(x, "layout", type(x))
            yield TypeError(f"{name} is {kind}; allowed: a dense torch.Tensor")
        if x.dtype not in DTYPES:
            yield TypeError(f"{name} is {x.dtype}; allowed: {DTYPES}")
        if (x.dtype, x.device) != (q.dtype, q.device):
            yield TypeError(f"{name} is {x.dtype} on {x.device}; allowed: {q.dtype} on {q.device}")
        if x.dim() != 4 or x.numel() == 0:
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed: 4 dimensions, none 0")
        if x.is_neg():  # its memory holds the opposite sign
            yield ValueError(f"{name} is a negated view; allowed: {name}.resolve_neg()")
        if x.stride(-1) != 1:
            yield ValueError(f"{name} has strides {x.stride()}; allowed: the last 1, others any")
    (B, H, L, D), Hkv = q.shape, k.shape[1]
    if D not in range(16, 257, 8):
        yield ValueError(f"q has {D} columns; allowed: 16 to 256 in steps of 8")
    for name, x in (("k", k), ("v", v)):
        if x.shape != (B, Hkv, L, D):
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed with q: {(B, Hkv, L, D)}")
    if H % Hkv:
        yield ValueError(f"q has {H} heads and k {Hkv}; allowed: a multiple of k's")
    if q.numel() // D >= 2**31:
        yield ValueError(f"q has shape {(*q.shape,)}; allowed: fewer than 2^31 rows")
    if not isinstance(causal, bool):
        yield TypeError(f"causal is {causal!r}; allowed: True, False")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, numbers.Real)):
        yield TypeError(f"scale is {scale!r:.40}; allowed: a number or None")
    if scale is not None and not scale >= 2.0**-64 <= 1 / scale:  # float16 cannot hold 2.0**64
        yield ValueError(f"scale is {scale!r:.40}; allowed: 2^-64 to 2^64")
    if q.device.type != "cuda" and not (q.is_cpu and INTERPRETED):
        yield ValueError(f"q is on {q.device}; allowed: a GPU, or a CPU with TRITON_INTERPRET=1")
    if _architecture(q.device) not in FORWARD_TILES:
        yield ValueError(f"q is on a GPU of {_architecture(q.device)}; allowed: 8.0 or newer")


def main():
    """Check the steps of the last of four ranks against PyTorch in float64."""
    torch.manual_seed(0)
    device, L = "cuda" if torch.cuda.is_available() else "cpu", 64
    shapes = ((4, L), (2, 4 * L), (2, 4 * L), (4, L))  # heads and rows of q, k, v and dO
    q, k, v, grad_out = (torch.randn(1, *shape, 64, device=device).half() for shape in shapes)
    blocks = list(zip(k.split(L, 2), v.split(L, 2), strict=True))
    # The rank's own keys come first, then those of the rank before it; the first rank's end it.
    steps = [Step(rank, 0, L, 0, L, rank == 3, L * (rank == 0)) for rank in (3, 2, 1, 0)]
    out, lse = ring_attention(q, (blocks[step.source] for step in steps), steps)
    grad_q, sums = (torch.zeros(*heads, L, 64, device=device) for heads in ((1, 4), (8, 2)))
    compute = _prepare_backward(q, k, v, out, lse, grad_out, 0.125)
    for step in steps:  # each finds what it adds to the gradients of its keys and values
        compute(*blocks[step.source], (grad_q, *sums[step.source :: 4].split(1)), step)
    grad_k, grad_v = (torch.cat(x.split(1), 2) for x in sums.split(4))
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    seen = torch.ones(L, 4 * L, device=device).tril(3 * L).bool()
    sdpa = torch.nn.functional.scaled_dot_product_attention
    want = sdpa(*leaves, seen, enable_gqa=True)
    want = want, *torch.autograd.grad(want, leaves, grad_out.double())
    pairs = zip((out, grad_q, grad_k, grad_v), want, strict=True)
    errors = [(x - y).abs().max() / y.abs().max() for x, y in pairs]
    print(f"q {(*q.shape,)}, k and v {(*k.shape,)} in four steps, {q.dtype} on {device}")
    print("out, grad_q, grad_k, grad_v: off float64, as shares of the largest value, by")
    print(", ".join(f"{x:.1e}" for x in errors))
    right = max(errors) <= 2 * torch.finfo(q.dtype).eps
    print("OK" if right else "WRONG: that is not rounding")
    return int(not right)


if __name__ == "__main__":
    raise SystemExit(main())
