"""The gradients of attention, from its output and the logsumexp of its rows: no M × N matrix.

Run it alone: `python kernel.py` checks it against PyTorch (on a CPU, in Triton's interpreter).
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import contextlib
import functools
import math
import numbers
import os
from typing import NamedTuple

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

INTERPRETED = triton.knobs.runtime.interpret
UPCAST = tl.constexpr(INTERPRETED)  # the interpreter cannot compute with bfloat16
LOG2_E = tl.constexpr(math.log2(math.e))  # exp(x) = 2^(x · log2(e)), and a GPU has only exp2
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_SCALE = 2.0**64  # and at least 1 / MAX_SCALE: scores of float16 stay within float32's range
ROWS = 64  # rows of a program that prepares
NUMBERS = 4096  # of a program that finishes
TMA_ADDS = not INTERPRETED  # the interpreter loads through descriptors, but does not add
TMA_WIDTH = 32  # columns of float32 that TMA adds at once: 128 bytes
TMA_ROWS = 256  # and rows at most
APART = True  # programs of a head begin at different queries


# --8<-- [start:tiles]
class TileConfig(NamedTuple):
    """How the work of one program is cut, and on how many warps it runs."""

    BLOCK_M: int  # queries of an iteration
    BLOCK_N: int  # keys of a program
    num_warps: int  # 32 threads each
    num_stages: int  # iterations whose loads are in flight at once
    BOTH_FIRST: bool = False  # dO Vᵀ is computed before P and not after it
    AHEAD: bool = False  # logsumexp and Δ of the next iteration wait in registers
    # --8<-- [end:tiles]


# --8<-- [start:table]
# Architecture → largest D that a row is for → tiles without a causal mask, and with one.
TILE_CONFIGS = {
    "sm_75": {  # no tensor-core instruction from Triton, and no bfloat16
        64: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
        128: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
    },
    "sm_80": {
        64: (TileConfig(64, 128, 8, 2), TileConfig(64, 128, 8, 2)),
        128: (TileConfig(64, 64, 8, 2), TileConfig(64, 64, 8, 2)),
        256: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
    },
    "sm_89": {  # also 8.6 and 12.0: less shared memory
        64: (TileConfig(64, 64, 8, 2), TileConfig(64, 64, 8, 2)),
        128: (TileConfig(32, 64, 8, 1), TileConfig(32, 64, 8, 1)),
        256: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
    },
    "sm_90": {
        64: (TileConfig(64, 64, 4, 3, AHEAD=True), TileConfig(64, 64, 4, 3, AHEAD=True)),
        128: (TileConfig(64, 128, 8, 3, BOTH_FIRST=True), TileConfig(64, 128, 8, 2)),
        256: (TileConfig(64, 64, 8, 1), TileConfig(64, 64, 8, 1)),
    },
    "sm_100": {
        64: (TileConfig(64, 128, 8, 2), TileConfig(64, 128, 8, 2)),
        128: (TileConfig(64, 64, 8, 2), TileConfig(64, 64, 8, 2)),
        256: (TileConfig(32, 64, 8, 1), TileConfig(32, 64, 8, 1)),
    },
    "gfx942": {
        64: (TileConfig(32, 64, 4, 1), TileConfig(32, 64, 4, 1)),
        128: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
        256: (TileConfig(16, 32, 8, 1), TileConfig(16, 32, 8, 1)),
    },
    "float32": {  # on every architecture: no tensor core keeps float32's precision
        64: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
        128: (TileConfig(16, 32, 8, 1), TileConfig(16, 32, 8, 1)),
        256: (TileConfig(16, 16, 8, 1), TileConfig(16, 16, 8, 1)),
    },
}
CONFIGURATIONS = {"_tile_config": TILE_CONFIGS}  # what a test may choose instead: all of it
# --8<-- [end:table]


# --8<-- [start:load_rows]
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
        mask = (offs_row < num_rows)[:, None] & (offs_d < D)[None, :]  # [BLOCK, BLOCK_D]
        tile = tl.load(x + offs_row[:, None] * stride_row + offs_d[None, :], mask=mask, other=0.0)
    return tile.to(tl.float32) if UPCAST and tile.dtype == tl.bfloat16 else tile
    # --8<-- [end:load_rows]


@triton.jit
def _load_numbers(x_ptr, b, h, first_row, H, M, beyond, BLOCK_M: tl.constexpr):
    """The number of each row first_row … first_row + BLOCK_M - 1 of [B, H, M]; `beyond` from M."""
    offs_m = first_row + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    row = (b.to(tl.int64) * H + h) * M + offs_m  # [BLOCK_M]
    return tl.load(x_ptr + row, mask=offs_m < M, other=beyond)


@triton.jit
def _head(x, b, h, stride_b, stride_h, USE_TMA: tl.constexpr):
    """A pointer to the first element of a head; a descriptor as it is."""
    if not USE_TMA:
        x += b.to(tl.int64) * stride_b + h.to(tl.int64) * stride_h
    return x


# --8<-- [start:prepare]
@triton.jit
def _prepare_kernel(
    out_ptr, grad_out_ptr,  # [B, H, M, D]
    lse_ptr, grad_lse_ptr,  # [B, H, M], contiguous; the second may be None
    lse_log2_ptr, delta_ptr, sum_ptr,  # written: [B, H, M] twice, and [B, H, M, D]; contiguous
    stride_ob, stride_oh, stride_om,
    stride_gb, stride_gh, stride_gm,
    H, M,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program prepares BLOCK_M rows of one head: Δ, the sums of dO · O, and zeros for dQ."""
    num_tiles = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)
    head, first_row = pid // num_tiles, pid % num_tiles * BLOCK_M
    b, h = head // H, head % H
    out_ptr = _head(out_ptr, b, h, stride_ob, stride_oh, USE_TMA=False)
    grad_ptr = _head(grad_out_ptr, b, h, stride_gb, stride_gh, USE_TMA=False)
    out = _load_rows(
        out_ptr, b, h, first_row, M, stride_om, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=False
    )
    grad_out = _load_rows(
        grad_ptr, b, h, first_row, M, stride_gm, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=False
    )
    delta = tl.sum(out.to(tl.float32) * grad_out.to(tl.float32), axis=1)  # [BLOCK_M]
    offs_m = first_row + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    mask_m = offs_m < M
    row = head.to(tl.int64) * M + offs_m  # [BLOCK_M]
    if grad_lse_ptr is not None:  # the logsumexp has P as its gradient: P · (dP - Δ + its gradient)
        delta -= tl.load(grad_lse_ptr + row, mask=mask_m, other=0.0)
    lse = tl.load(lse_ptr + row, mask=mask_m, other=0.0)
    # A row without keys subtracts infinity: its P is zero.
    lse_log2 = tl.where(lse == float("-inf"), float("inf"), lse * LOG2_E)
    tl.store(lse_log2_ptr + row, lse_log2, mask=mask_m)
    tl.store(delta_ptr + row, delta, mask=mask_m)
    offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
    zeros = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    place = sum_ptr + row[:, None] * D + offs_d[None, :]
    tl.store(place, zeros, mask=mask_m[:, None] & (offs_d < D)[None, :])
    # --8<-- [end:prepare]


# --8<-- [start:add_to_sum]
@triton.jit
def _add_to_sum(
    total,  # TMA: descriptor of [B, H, M · D / WIDTH, WIDTH]; otherwise pointer: contiguous
    tile,  # [BLOCK_M, BLOCK_D], float32
    b,
    h,
    first_row,
    H,
    M,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WIDTH: tl.constexpr,  # columns of the descriptor; 0: there is none
):
    """Add a tile to rows that other programs add to as well."""
    if WIDTH:  # one instruction: a tile goes through shared memory to the units beside L2
        PARTS: tl.constexpr = BLOCK_D // WIDTH  # rows of the descriptor that are one of the tile
        tile = tile.reshape([1, 1, BLOCK_M * PARTS, WIDTH])
        total.atomic_add([b, h, first_row * PARTS, 0], tile)
    else:
        offs_m = first_row + tl.arange(0, BLOCK_M)  # [BLOCK_M]
        offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
        row = (b.to(tl.int64) * H + h) * M + offs_m  # [BLOCK_M]
        mask = (offs_m < M)[:, None] & (offs_d < D)[None, :]  # [BLOCK_M, BLOCK_D]
        place = total + row[:, None] * D + offs_d[None, :]
        tl.atomic_add(place, tile, mask=mask, sem="relaxed")
    # --8<-- [end:add_to_sum]


# --8<-- [start:hide]
@triton.jit
def _hide(
    st,  # [BLOCK_N, BLOCK_M]: scores, transposed
    offs_n,
    offs_m,
    first_key,
    first_query,
    N,
    causal_offset,
    CAUSAL: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The scores with -inf where a query does not see a key; most tiles are as they were."""
    hidden = first_key + BLOCK_N > N  # whether there are keys in the tile that nobody sees
    if CAUSAL:  # or that its first query does not see
        hidden = hidden | (first_query + causal_offset < first_key + BLOCK_N - 1)
    if hidden:  # the same answer for all threads
        seen = (offs_n < N)[:, None]
        if CAUSAL:
            seen = seen & (offs_n[:, None] <= offs_m[None, :] + causal_offset)
        st = tl.where(seen, st, float("-inf"))
    return st
    # --8<-- [end:hide]


@triton.jit(do_not_specialize=["N", "M"])
def _flash_backward_kernel(
    q, k, v, grad_out, total,  # descriptors of [B, heads, rows, D], or pointers; total: sum of dQ
    lse_log2_ptr, delta_ptr,  # [B, H, M], contiguous
    grad_k_ptr, grad_v_ptr,  # [B, Hkv, N, D]: contiguous
    ticket_ptr, turn_ptr,  # deterministic: int32 [1], and [B, H, tiles of queries]: zeros
    stride_qb, stride_qh, stride_qm,  # step to the next batch, head, row; columns are contiguous
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_gb, stride_gh, stride_gm,
    H, G,  # heads of queries, and how many of them share a head of keys
    heads_kv,  # B · Hkv
    M, N,  # queries, keys
    causal_offset,  # with a causal mask query m sees the keys up to m + causal_offset
    scale, scale_log2,  # factor on the scores, and scale · log2(e)
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,  # causal, or N is no multiple of BLOCK_N
    ADD: tl.constexpr,  # to what is in grad_k and grad_v already
    DETERMINISTIC: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,  # a power of two, at least D
    USE_TMA: tl.constexpr,
    ADD_WIDTH: tl.constexpr,  # columns of the descriptor of the sum of dQ; 0: a pointer
    APART: tl.constexpr,
    BOTH_FIRST: tl.constexpr,  # as in TileConfig
    AHEAD: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_N rows of dK and dV of one head, and its share of dQ.

    Reads its keys and values once; then, BLOCK_M at a time, the queries that see them, with their
    dO, logsumexp and Δ. P and dS [BLOCK_N, BLOCK_M] are transposed: they come out of a product in
    the registers from which the products for dV and dK take them. Only dQ needs dS with
    its axes swapped, through shared memory, and is added to what other programs add, in float32.
    """
    # --8<-- [start:which_keys]
    num_tiles = tl.cdiv(N, BLOCK_N)
    num_tiles_m = tl.cdiv(M, BLOCK_M)
    if DETERMINISTIC:  # who starts first takes the last keys: the order in which dQ is added
        ticket = tl.atomic_add(ticket_ptr, 1)
        head, tile_idx = ticket % heads_kv, num_tiles - 1 - ticket // heads_kv
    else:  # neighbors share a head; with a mask the first keys are seen by most queries
        pid = tl.program_id(0)
        head, tile_idx = pid // num_tiles, pid % num_tiles
    heads = H // G
    b, hk = head // heads, head % heads
    first_key = tile_idx * BLOCK_N
    offs_n = first_key + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    first_tile = 0
    if CAUSAL:  # the first tile with a query that sees one of the keys
        first_tile = tl.minimum(tl.maximum(first_key - causal_offset, 0) // BLOCK_M, num_tiles_m)
    # --8<-- [end:which_keys]

    # --8<-- [start:keys]
    k = _head(k, b, hk, stride_kb, stride_kh, USE_TMA)
    v = _head(v, b, hk, stride_vb, stride_vh, USE_TMA)
    k_tile = _load_rows(
        k, b, hk, first_key, N, stride_kn, D=D, BLOCK=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
    )
    v_tile = _load_rows(
        v, b, hk, first_key, N, stride_vn, D=D, BLOCK=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
    )
    dk = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    # --8<-- [end:keys]

    # --8<-- [start:queries]
    per_head = num_tiles_m - first_tile
    steps = G * per_head  # all query heads of the group, one after the other
    turn = 0
    if APART:  # so that few programs add to the same rows of dQ at a time
        turn = tile_idx * tl.cdiv(BLOCK_N, BLOCK_M)
    if AHEAD:
        first = (first_tile + turn % tl.maximum(per_head, 1)) * BLOCK_M
        next_lse = _load_numbers(lse_log2_ptr, b, hk * G, first, H, M, float("inf"), BLOCK_M)
        next_delta = _load_numbers(delta_ptr, b, hk * G, first, H, M, 0.0, BLOCK_M)
    for i in range(0, steps):
        h, tile_m = hk * G + i // per_head, first_tile + (i + turn) % per_head
        first = tile_m * BLOCK_M  # the first query of this tile
        offs_m = first + tl.arange(0, BLOCK_M)  # [BLOCK_M]
        q_h = _head(q, b, h, stride_qb, stride_qh, USE_TMA)
        q_tile = _load_rows(
            q_h, b, h, first, M, stride_qm, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
        )
        g_h = _head(grad_out, b, h, stride_gb, stride_gh, USE_TMA)
        do_tile = _load_rows(
            g_h, b, h, first, M, stride_gm, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
        )
        if AHEAD:
            lse_log2, delta = next_lse, next_delta
            i_next = tl.minimum(i + 1, steps - 1)
            h_next = hk * G + i_next // per_head
            first_next = (first_tile + (i_next + turn) % per_head) * BLOCK_M
            next_lse = _load_numbers(
                lse_log2_ptr, b, h_next, first_next, H, M, float("inf"), BLOCK_M
            )
            next_delta = _load_numbers(delta_ptr, b, h_next, first_next, H, M, 0.0, BLOCK_M)
        else:
            lse_log2 = _load_numbers(lse_log2_ptr, b, h, first, H, M, float("inf"), BLOCK_M)
        # --8<-- [end:queries]

        # --8<-- [start:products]
        st = tl.dot(k_tile, q_tile.T, input_precision="ieee")  # [BLOCK_N, BLOCK_M]
        if BOTH_FIRST:
            dpt = tl.dot(v_tile, do_tile.T, input_precision="ieee")  # [BLOCK_N, BLOCK_M]
        if MASKED:
            st = _hide(st, offs_n, offs_m, first_key, first, N, causal_offset, CAUSAL, BLOCK_N)
        pt = tl.exp2(st * scale_log2 - lse_log2[None, :])  # the forward's weights, again
        if not BOTH_FIRST:
            dpt = tl.dot(v_tile, do_tile.T, input_precision="ieee")
        dv = tl.dot(pt.to(do_tile.dtype), do_tile, dv, input_precision="ieee")
        if not AHEAD:
            delta = _load_numbers(delta_ptr, b, h, first, H, M, 0.0, BLOCK_M)
        dst = (pt * (dpt - delta[None, :])).to(q_tile.dtype)
        dk = tl.dot(dst, q_tile, dk, input_precision="ieee")
        dq = tl.dot(dst.T, k_tile, input_precision="ieee")  # [BLOCK_M, BLOCK_D]
        # --8<-- [end:products]
        # --8<-- [start:add_dq]
        if DETERMINISTIC:  # wait until all have added who began before
            before = num_tiles - 1 - tile_idx  # programs that add to this tile of dQ, and began
            if CAUSAL:
                last_seen = first + BLOCK_M - 1 + causal_offset
                before = tl.minimum(num_tiles - 1, last_seen // BLOCK_N) - tile_idx
            added = turn_ptr + (b * H + h) * num_tiles_m + tile_m
            while tl.atomic_add(added, 0, sem="acquire") < before:
                pass
        _add_to_sum(
            total, dq, b, h, first, H, M, D=D, BLOCK_M=BLOCK_M, BLOCK_D=BLOCK_D, WIDTH=ADD_WIDTH
        )
        if DETERMINISTIC:
            tl.debug_barrier()  # all threads have added
            tl.atomic_add(turn_ptr + (b * H + h) * num_tiles_m + tile_m, 1, sem="release")
        # --8<-- [end:add_dq]

    # --8<-- [start:store]
    offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
    place = (head.to(tl.int64) * N + offs_n)[:, None] * D + offs_d[None, :]  # [BLOCK_N, BLOCK_D]
    mask = (offs_n < N)[:, None] & (offs_d < D)[None, :]
    dk *= scale
    if ADD:
        dk += tl.load(grad_k_ptr + place, mask=mask, other=0.0)
        dv += tl.load(grad_v_ptr + place, mask=mask, other=0.0)
    tl.store(grad_k_ptr + place, dk.to(grad_k_ptr.dtype.element_ty), mask=mask)
    tl.store(grad_v_ptr + place, dv.to(grad_v_ptr.dtype.element_ty), mask=mask)
    # --8<-- [end:store]


# --8<-- [start:finish]
@triton.jit
def _finish_kernel(sum_ptr, grad_q_ptr, count, scale, ADD: tl.constexpr, BLOCK: tl.constexpr):
    """One program scales BLOCK numbers of the sum of dQ and rounds them once."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < count
    grad_q = tl.load(sum_ptr + offs, mask=mask, other=0.0) * scale
    if ADD:
        grad_q += tl.load(grad_q_ptr + offs, mask=mask, other=0.0)
    tl.store(grad_q_ptr + offs, grad_q.to(grad_q_ptr.dtype.element_ty), mask=mask)
    # --8<-- [end:finish]


# --8<-- [start:launcher]
def flash_backward(
    q,
    k,
    v,
    out,
    lse,
    grad_out,
    *,
    scale=None,
    causal=False,
    align="bottom_right",
    deterministic=False,
    grad_lse=None,
    into=None,
):
    """Gradients of softmax(q kᵀ · scale) v for q, k and v; no matrix of scores ever exists.

    Source: Dao et al. 2022, https://arxiv.org/abs/2205.14135, algorithm 4

    Args:
        q: [..., H, M, D], float16, bfloat16 or float32 (on CUDA cores); D 16 to 256 in steps of 8;
            H and a batch may be left out. Any strides, but the D columns of a row lie side by side.
        k, v: [..., Hkv, N, D], H a multiple of Hkv: groups of query heads share a head of keys.
        out: [..., H, M, D], what attention returned, in q's dtype.
        lse: [..., H, M], float32: the natural logarithm of the sum of exp(score), -inf for no key.
        grad_out: [..., H, M, D], the gradient for out, in q's dtype.
        scale, causal, align: as attention was called with.
        deterministic: the same bits in each run; dQ is then added to in a fixed order.
        grad_lse: [..., H, M], float32: the gradient for lse, where that was used too.
        into: three contiguous float32 tensors of the shapes of q, k and v, to be added to.

    Returns:
        grad_q, grad_k, grad_v in the shapes and dtype of q, k and v; with `into` those tensors.
        A row without keys gets zeros.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
    """
    # --8<-- [end:launcher]
    # --8<-- [start:launch]
    _check_inputs(q, k, v, out, lse, grad_out, causal, align, deterministic, grad_lse, into)
    scale = _scale_or_default(scale, q.shape[-1])
    architecture = _architecture(q)
    results = tuple(x.new_empty(x.shape) for x in (q, k, v)) if into is None else tuple(into)
    if q.dim() < 4:
        lead = (None,) * (4 - q.dim())
        q, k, v, out, grad_out = (x[lead] for x in (q, k, v, out, grad_out))
    B, H, M, D = q.shape
    _, Hkv, N, _ = k.shape
    block_d = 1 << (D - 1).bit_length()  # the next power of two
    config = _tile_config(architecture, q.dtype, D, causal)
    lse_log2, delta = q.new_empty((2, B, H, M), dtype=torch.float32)
    total = q.new_empty((B, H, M, D), dtype=torch.float32)  # the sum of dQ
    grid = (-(-N // config.BLOCK_N) * Hkv * B,)
    tensors, flags = _loaded_and_added(
        (q, k, v, grad_out), total, config, block_d, architecture, deterministic
    )
    # --8<-- [end:launch]
    # --8<-- [start:launches]
    with _device_of(q):
        given = (out, grad_out, lse, grad_lse, lse_log2, delta, total)
        strides = (*out.stride()[:3], *grad_out.stride()[:3])
        shape = {"D": D, "BLOCK_M": ROWS, "BLOCK_D": block_d}
        _prepare_kernel[(-(-M // ROWS) * H * B,)](*given, *strides, H, M, **shape)
        strides = [step for x in (q, k, v, grad_out) for step in x.stride()[:3]]
        _flash_backward_kernel[grid](
            *tensors,
            lse_log2,
            delta,
            *results[1:],
            *_turns(deterministic, B * H, M, config, q),
            *strides,
            H=H,
            G=H // Hkv,
            heads_kv=B * Hkv,
            M=M,
            N=N,
            causal_offset=N - M if align == "bottom_right" else 0,
            scale=scale,
            scale_log2=scale * LOG2_E.value,
            D=D,
            CAUSAL=causal,
            MASKED=causal or N % config.BLOCK_N != 0,
            ADD=into is not None,
            DETERMINISTIC=deterministic,
            BLOCK_D=block_d,
            **flags,
            **config._asdict(),
        )
        grid, count = (-(-total.numel() // NUMBERS),), total.numel()
        _finish_kernel[grid](total, results[0], count, scale, ADD=into is not None, BLOCK=NUMBERS)
    return results
    # --8<-- [end:launches]


def _loaded_and_added(tensors, total, config, block_d, architecture, deterministic):
    """What the kernel takes for q, k, v, grad_out and the sum of dQ, and the flags about it."""
    use_tma = _can_use_tma(architecture, *tensors)
    queries, keys = [1, 1, config.BLOCK_M, block_d], [1, 1, config.BLOCK_N, block_d]
    if use_tma:
        tensors = map(_rows, tensors, (queries, keys, keys, queries))
    width = 0
    if use_tma and TMA_ADDS and not deterministic:  # the next in turn could not see its end
        B, H, M, D = total.shape
        width, rows = block_d, config.BLOCK_M * block_d // TMA_WIDTH
        if D == block_d and D % TMA_WIDTH == 0 and rows <= TMA_ROWS:
            width = TMA_WIDTH
            total = total.view(B, H, M * D // width, width)
        total = _rows(total, [1, 1, config.BLOCK_M * block_d // width, width])
    flags = {"USE_TMA": use_tma, "ADD_WIDTH": width, "APART": APART and not deterministic}
    return (*tensors, total), flags


def _turns(deterministic, heads, M, config, q):
    """The ticket, and for each tile of dQ how many programs have added to it: zeros, or nothing."""
    if not deterministic:
        return None, None
    tiles = heads * -(-M // config.BLOCK_M)
    zeros = torch.zeros(1 + tiles, dtype=torch.int32, device=q.device)
    return zeros[:1], zeros[1:]


def _device_of(x):
    """A context in which kernels are launched where x is; mostly they are in any case."""
    if not x.is_cuda or x.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(x.device)


# --8<-- [start:architecture]
def _architecture(x):
    """The part of TILE_CONFIGS for the device of x; the interpreter plays a Hopper GPU."""
    _check_device("q", x)
    if x.device.type == "cpu":
        return "sm_90"
    if torch.version.hip:
        return "gfx942"
    found = _capability(x.device)
    if found < (7, 5):
        raise ValueError(f"q is on a GPU of capability {found}; (7, 5) or newer is allowed")
    known = {(7, 5): "sm_75", (8, 0): "sm_80", (8, 7): "sm_80", (9, 0): "sm_90", (10, 0): "sm_100"}
    return known.get(found, "sm_89")


@functools.cache
def _capability(device):
    return torch.cuda.get_device_capability(device)


def _tile_config(architecture, dtype, D, causal):
    """The TileConfig for a problem; raise where the architecture has none."""
    if dtype == torch.bfloat16 and architecture == "sm_75":
        raise TypeError("q is torch.bfloat16; torch.float16, torch.float32 are allowed on this GPU")
    widest = max(TILE_CONFIGS[architecture])
    if D > widest:
        raise ValueError(f"q has head dimension {D}; at most {widest} is allowed on this GPU")
    rows = TILE_CONFIGS["float32" if dtype == torch.float32 else architecture]
    return rows[min(width for width in rows if D <= width)][causal]
    # --8<-- [end:architecture]


# --8<-- [start:descriptors]
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
    # --8<-- [end:descriptors]


# --8<-- [start:refusals]
def _check_tensors(least, **tensors):
    """Raise for tensors that no kernel here takes; all must match the first."""
    first, like = next(iter(tensors.items()))
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} has type {_type_name(x)}; it must be a torch.Tensor")
        if x.is_nested or x.layout != torch.strided:
            layout = "nested" if x.is_nested else x.layout
            raise TypeError(f"{name} is {layout}; it must be dense, torch.strided")
        if x.dtype not in DTYPES:
            raise TypeError(f"{name} is {x.dtype}; {', '.join(map(str, DTYPES))} are allowed")
        if x.dtype != like.dtype:
            raise TypeError(
                f"{name} is {x.dtype} but {first} is {like.dtype}; cast them to one dtype"
            )
        if x.device != like.device:
            raise ValueError(
                f"{name} is on {x.device} but {first} is on {like.device}; move one of them"
            )
        shape = tuple(x.shape)
        if not least <= x.dim() <= 4:
            raise ValueError(f"{name} has shape {shape}; {least} to 4 dimensions are allowed")
        if x.numel() == 0:
            raise ValueError(f"{name} has shape {shape}; no dimension may be 0")
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} requires grad and there is no backward; use torch.no_grad()")
        if x.is_neg():  # its memory holds the opposite sign
            raise ValueError(f"{name} is a negated view; use {name}.resolve_neg()")
    # --8<-- [end:refusals]


# --8<-- [start:refused_shapes]
def _check_inputs(q, k, v, out, lse, grad_out, causal, align, deterministic, grad_lse, into):
    """Raise for what the kernels cannot do: which argument, what came, what is allowed."""
    _check_tensors(2, q=q, k=k, v=v, out=out, grad_out=grad_out)
    for name, x in (("q", q), ("k", k), ("v", v), ("out", out), ("grad_out", grad_out)):
        if x.stride(-1) != 1:
            raise ValueError(
                f"{name} has strides {x.stride()}; the last must be 1: use {name}.contiguous()"
            )
    shape, shape_k = tuple(q.shape), tuple(k.shape)
    batch, heads, D = shape[:-3], shape[-3:-2], shape[-1]
    if D not in range(16, 257, 8):
        raise ValueError(f"q has head dimension {D}; 16 to 256 in steps of 8 are allowed")
    if len(shape_k) != len(shape) or (*shape_k[:-3], shape_k[-1]) != (*batch, D):
        want = _fit(*batch, *("Hkv" for _ in heads), "N", D)
        raise ValueError(f"k has shape {shape_k}; with q {shape} it must be {want}")
    if heads and shape[-3] % shape_k[-3]:
        raise ValueError(
            f"q has {shape[-3]} heads and k {shape_k[-3]}; q's must be a multiple of k's"
        )
    for name, x, other, want in (
        ("v", v, "k", k),
        ("out", out, "q", q),
        ("grad_out", grad_out, "q", q),
    ):
        if x.shape != want.shape:
            raise ValueError(
                f"{name} has shape {tuple(x.shape)}; it must be {other}'s, {tuple(want.shape)}"
            )
    if max(q.numel() // D, shape_k[-2]) >= 2**31:
        raise ValueError(f"q has shape {shape} and k {shape_k}; fewer than 2^31 rows are allowed")
    # --8<-- [end:refused_shapes]
    _check_float32("lse", lse, q, shape[:-1])
    if grad_lse is not None:
        _check_float32("grad_lse", grad_lse, q, shape[:-1])
    _check_mask(causal, align)
    if not isinstance(deterministic, bool):
        raise TypeError(
            f"deterministic has type {_type_name(deterministic)}; it must be a bool, True or False"
        )
    if into is None:
        return
    if not isinstance(into, (tuple, list)) or len(into) != 3:
        raise TypeError("into must be three tensors, for the gradients of q, k and v")
    for name, x, like in zip(("q", "k", "v"), into, (q, k, v), strict=True):
        _check_float32(f"into's tensor for {name}", x, q, tuple(like.shape))


def _check_float32(name, x, q, shape):
    """Raise unless x is float32, contiguous, where q is, and of this shape."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} has type {_type_name(x)}; it must be a torch.Tensor")
    if x.dtype != torch.float32:
        raise TypeError(f"{name} is {x.dtype}; it must be torch.float32")
    if x.device != q.device:
        raise ValueError(f"{name} is on {x.device} but q is on {q.device}; move one of them")
    if tuple(x.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be {shape}")
    if not x.is_contiguous():
        raise ValueError(f"{name} has strides {x.stride()}; it must be contiguous")


def _check_mask(causal, align="bottom_right"):
    """Raise for a mask that is none of the three."""
    if not isinstance(causal, bool):
        raise TypeError(f"causal has type {_type_name(causal)}; it must be a bool, True or False")
    if not isinstance(align, str) or align not in ("bottom_right", "top_left"):
        raise ValueError(f"align is {align!r}; it must be 'bottom_right' or 'top_left'")


def _check_device(name, x):
    """Raise unless a kernel can run where x is: on a GPU, or on a CPU in the interpreter."""
    kind = x.device.type
    if kind != "cuda" and not (kind == "cpu" and INTERPRETED):
        hint = ", or TRITON_INTERPRET=1 set before import" if kind == "cpu" else ""
        raise ValueError(f"{name} is on {x.device}; the kernel needs a CUDA device{hint}")


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


def _type_name(x):
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")


def _fit(*shape):
    """A shape with names for the sizes that are free, as an error shows it: (2, N, 64)."""
    return str(shape).replace("'", "")


def main():
    """Check the gradients against eager PyTorch in float64, and time them where there is a GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    q = torch.randn(2, 4, 200, 64, device=device).half()  # [B, H, M, D]
    k, v = torch.randn(2, 2, 2, 333, 64, device=device).half()  # [B, Hkv, N, D] each
    grad_out = torch.randn(q.shape, device=device).half()
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    keys, values = (x.repeat_interleave(2, dim=1) for x in leaves[1:])
    scores = leaves[0] @ keys.mT / math.sqrt(64)  # [B, H, M, N]
    attended = scores.softmax(-1) @ values
    want = torch.autograd.grad(attended, leaves, grad_out.double())
    out, lse = attended.detach().half(), scores.detach().logsumexp(-1).float()
    own = [x.detach().requires_grad_() for x in (q, k, v)]
    pytorch = functools.partial(torch.nn.functional.scaled_dot_product_attention, enable_gqa=True)
    theirs = torch.autograd.grad(pytorch(*own), own, grad_out)
    found = flash_backward(q, k, v, out, lse, grad_out)
    print(f"q {tuple(q.shape)}, k and v {tuple(k.shape)}, {q.dtype} on {device}")
    right = True
    for name, ours, other, exact in zip("qkv", found, theirs, want, strict=True):
        error, torch_error = (ours.double() - exact).abs(), (other.double() - exact).abs().max()
        allowed = 2 * torch_error + torch.finfo(q.dtype).eps * exact.abs().max()
        verdict = "within" if error.max() <= allowed else "above"
        largest, mean = f"{error.max():.1e}", f"{error.mean():.1e}"
        print(f"grad_{name}: largest difference {largest}, mean {mean}: {verdict} {allowed:.1e}")
        right &= bool(error.max() <= allowed)
    print("OK" if right else "WRONG")
    if device == "cuda":
        ms = triton.testing.do_bench(
            lambda: flash_backward(q, k, v, out, lse, grad_out), return_mode="median"
        )
        print(f"flash_backward: {ms * 1000:.1f} µs")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
