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
MAX_GRADIENT_SCALE = 2.0**8  # there, weights of normal q and k may be off by 2 %, and not by more
ROWS = 64  # rows of a program that prepares
NUMBERS = 4096  # of a program that finishes
TMA_ADDS = not INTERPRETED  # the interpreter loads through descriptors, but does not add
TMA_WIDTH = 32  # columns of float32 that TMA adds at once: 128 bytes
TMA_ROWS = 256  # and rows at most
AT_ONCE = 256  # programs that start at one time, about
APART = True  # programs of a head begin at different queries


class TileConfig(NamedTuple):
    """How the work of one program is cut, and on how many warps it runs."""

    BLOCK_M: int  # queries: of an iteration for dK and dV, of a program for dQ
    BLOCK_N: int  # keys: of a program for dK and dV, of an iteration for dQ
    num_warps: int  # 32 threads each
    num_stages: int  # iterations whose loads are in flight at once
    ONE_PASS: bool = False  # the kernel for dK and dV adds up dQ as well, and there is no other
    KEEP: bool = False  # in the kernel for dQ: q and dO wait in registers, not in shared memory
    maxnreg: int | None = None  # registers of a thread at most: more programs run at one time


# --8<-- [start:key_table]
# Architecture → largest D that a row is for → tiles without a causal mask, and with one.
KEY_CONFIGS = {  # of the kernel for dK and dV
    "sm_75": {  # no tensor-core instruction from Triton, and no bfloat16
        64: (TileConfig(32, 32, 8, 1, True), TileConfig(32, 32, 8, 1, True)),
        128: (TileConfig(16, 16, 8, 1, True), TileConfig(16, 16, 8, 1, True)),
    },
    "sm_80": {
        64: (TileConfig(32, 128, 8, 2, True), TileConfig(32, 128, 8, 2, True)),
        128: (TileConfig(64, 64, 8, 2, True), TileConfig(64, 64, 8, 2, True)),
        256: (TileConfig(32, 32, 8, 1, True), TileConfig(32, 32, 8, 1, True)),
    },
    "sm_89": {  # also 8.6 and 12.0: less shared memory
        64: (TileConfig(32, 128, 8, 2, True), TileConfig(32, 128, 8, 2, True)),
        128: (TileConfig(32, 64, 8, 1, True), TileConfig(32, 64, 8, 1, True)),
        256: (TileConfig(32, 32, 8, 1, True), TileConfig(32, 32, 8, 1, True)),
    },
    "sm_90": {
        64: (TileConfig(64, 64, 4, 3, maxnreg=168), TileConfig(64, 64, 4, 3, maxnreg=168)),
        128: (TileConfig(64, 64, 4, 2), TileConfig(64, 64, 4, 2)),
        256: (TileConfig(32, 64, 8, 2), TileConfig(32, 64, 8, 2)),
    },
    "sm_100": {
        64: (TileConfig(64, 128, 8, 2, True), TileConfig(64, 128, 8, 2, True)),
        128: (TileConfig(64, 64, 8, 2, True), TileConfig(64, 64, 8, 2, True)),
        256: (TileConfig(32, 64, 8, 2, True), TileConfig(32, 64, 8, 2, True)),
    },
    "gfx942": {
        64: (TileConfig(32, 64, 4, 1, True), TileConfig(32, 64, 4, 1, True)),
        128: (TileConfig(32, 32, 8, 1, True), TileConfig(32, 32, 8, 1, True)),
        256: (TileConfig(16, 32, 8, 1, True), TileConfig(16, 32, 8, 1, True)),
    },
    "float32": {  # on every architecture: no tensor core keeps float32's precision
        64: (TileConfig(32, 32, 8, 1, True), TileConfig(32, 32, 8, 1, True)),
        128: (TileConfig(16, 32, 8, 1, True), TileConfig(16, 32, 8, 1, True)),
        256: (TileConfig(16, 16, 8, 1, True), TileConfig(16, 16, 8, 1, True)),
    },
}
# --8<-- [end:key_table]


# --8<-- [start:query_table]
QUERY_CONFIGS = {  # of the kernel for dQ
    "sm_75": {  # no tensor-core instruction from Triton, and no bfloat16
        64: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
        128: (TileConfig(16, 16, 8, 1), TileConfig(16, 16, 8, 1)),
    },
    "sm_80": {
        64: (TileConfig(128, 64, 8, 2), TileConfig(128, 64, 8, 2)),
        128: (TileConfig(64, 64, 8, 2), TileConfig(64, 64, 8, 2)),
        256: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
    },
    "sm_89": {  # also 8.6 and 12.0: less shared memory
        64: (TileConfig(64, 64, 8, 2), TileConfig(64, 64, 8, 2)),
        128: (TileConfig(64, 32, 8, 1), TileConfig(64, 32, 8, 1)),
        256: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
    },
    "sm_90": {
        64: (TileConfig(64, 128, 4, 3, KEEP=True), TileConfig(128, 64, 8, 3)),
        128: (TileConfig(64, 64, 4, 3, KEEP=True), TileConfig(64, 64, 4, 3, KEEP=True)),
        256: (TileConfig(64, 32, 8, 2), TileConfig(64, 32, 8, 2)),
    },
    "sm_100": {
        64: (TileConfig(128, 64, 8, 2), TileConfig(128, 64, 8, 2)),
        128: (TileConfig(64, 32, 8, 2), TileConfig(64, 32, 8, 2)),
        256: (TileConfig(64, 32, 8, 1), TileConfig(64, 32, 8, 1)),
    },
    "gfx942": {
        64: (TileConfig(64, 32, 4, 1), TileConfig(64, 32, 4, 1)),
        128: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
        256: (TileConfig(32, 16, 8, 1), TileConfig(32, 16, 8, 1)),
    },
    "float32": {  # on every architecture: no tensor core keeps float32's precision
        64: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
        128: (TileConfig(16, 16, 8, 1), TileConfig(16, 16, 8, 1)),
        256: (TileConfig(16, 16, 8, 1), TileConfig(16, 16, 8, 1)),
    },
}
CONFIGURATIONS = {"_key_config": KEY_CONFIGS, "_query_config": QUERY_CONFIGS}  # for tests: all
# --8<-- [end:query_table]


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


@triton.jit
def _load_numbers(
    x,  # TMA: descriptor of [heads, M]; otherwise pointer
    head,
    first_row,
    M,
    stride_head,
    BLOCK_M: tl.constexpr,
    USE_TMA: tl.constexpr,
):
    """The numbers of rows first_row … first_row + BLOCK_M - 1 of a head, zeros beyond M."""
    if USE_TMA:
        numbers = x.load([head, first_row]).reshape([BLOCK_M])
    else:
        offs_m = first_row + tl.arange(0, BLOCK_M)  # [BLOCK_M]
        place = x + head.to(tl.int64) * stride_head + offs_m
        numbers = tl.load(place, mask=offs_m < M, other=0.0)
    return numbers


@triton.jit
def _head(x, b, h, stride_b, stride_h, USE_TMA: tl.constexpr):
    """A pointer to the first element of a head; a descriptor as it is."""
    if not USE_TMA:
        x += b.to(tl.int64) * stride_b + h.to(tl.int64) * stride_h
    return x


@triton.jit
def _sums_of_rows(
    out, grad_out,  # [BLOCK_M, BLOCK_D]
    lse_ptr, grad_lse_ptr,  # [B, H, M], contiguous; the second may be None
    lse_log2_ptr, delta_ptr,  # written: [B, H, M]
    head, offs_m, M, stride_sums,
):  # fmt: skip
    """Write and return what turns scores into weights, and Δ, of the rows offs_m of a head."""
    delta = tl.sum(out.to(tl.float32) * grad_out.to(tl.float32), axis=1)  # [BLOCK_M]
    mask_m = offs_m < M
    row = head.to(tl.int64) * M + offs_m  # [BLOCK_M]
    if grad_lse_ptr is not None:  # the logsumexp has P as its gradient: P · (dP - Δ + its gradient)
        delta -= tl.load(grad_lse_ptr + row, mask=mask_m, other=0.0)
    lse = tl.load(lse_ptr + row, mask=mask_m, other=0.0)
    # A row without keys subtracts infinity: its P is zero.
    lse_log2 = tl.where(lse == float("-inf"), float("inf"), lse * LOG2_E)
    place = head.to(tl.int64) * stride_sums + offs_m  # [BLOCK_M]
    tl.store(lse_log2_ptr + place, lse_log2, mask=mask_m)
    tl.store(delta_ptr + place, delta, mask=mask_m)
    return lse_log2, delta


@triton.jit
def _prepare_kernel(
    out_ptr, grad_out_ptr,  # [B, H, M, D]
    lse_ptr, grad_lse_ptr,  # [B, H, M], contiguous; the second may be None
    lse_log2_ptr, delta_ptr,  # written: [B, H, M]
    sum_ptr,  # written: [B, H, M, D], contiguous
    stride_ob, stride_oh, stride_om,
    stride_gb, stride_gh, stride_gm,
    stride_sums,
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
    offs_m = first_row + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    _sums_of_rows(
        out, grad_out, lse_ptr, grad_lse_ptr, lse_log2_ptr, delta_ptr, head, offs_m, M, stride_sums
    )
    offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
    zeros = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    place = sum_ptr + (head.to(tl.int64) * M + offs_m)[:, None] * D + offs_d[None, :]
    tl.store(place, zeros, mask=(offs_m < M)[:, None] & (offs_d < D)[None, :])


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


@triton.jit
def _hide(
    scores,  # [BLOCK_N, BLOCK_M], or [BLOCK_M, BLOCK_N]
    offs_m,  # of queries: [1, BLOCK_M], or [BLOCK_M, 1]
    offs_n,  # of keys: [BLOCK_N, 1], or [1, BLOCK_N]
    N,
    causal_offset,
    CAUSAL: tl.constexpr,
):
    """The scores, with -inf where a query does not see a key."""
    seen = offs_n < N
    if CAUSAL:
        seen = seen & (offs_n <= offs_m + causal_offset)
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def _in_registers(tile, BLOCK_D: tl.constexpr):
    """The same tile, as a product with the identity matrix leaves it: not in shared memory."""
    rows, columns = tl.arange(0, BLOCK_D)[:, None], tl.arange(0, BLOCK_D)[None, :]
    identity = (rows == columns).to(tile.dtype)
    return tl.dot(tile, identity, input_precision="ieee").to(tile.dtype)  # exact


@triton.jit
def _place(num_tiles, together, LAST_FIRST: tl.constexpr):
    """The head and the tile of this program: tile by tile through `together` heads at a time."""
    pid = tl.program_id(0)
    size = num_tiles * together
    group, turn = pid // size, pid % size
    tile_idx = turn // together
    if LAST_FIRST:
        tile_idx = num_tiles - 1 - tile_idx
    return group * together + turn % together, tile_idx


@triton.jit
def _keys_step(
    dk, dv, k_tile, v_tile,  # [BLOCK_N, BLOCK_D]
    q, grad_out, total, lse_log2, delta,  # as the kernel takes them
    b, h, first, first_key,
    stride_qb, stride_qh, stride_qm,
    stride_gb, stride_gh, stride_gm,
    stride_sums,
    H, M, N,
    causal_offset,
    scale_log2,
    MASK: tl.constexpr,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    ONE_PASS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    USE_TMA: tl.constexpr,
    ADD_WIDTH: tl.constexpr,
):  # fmt: skip
    """Add to dK and dV of BLOCK_N keys what BLOCK_M queries give them."""
    # --8<-- [start:queries]
    q = _head(q, b, h, stride_qb, stride_qh, USE_TMA)
    grad_out = _head(grad_out, b, h, stride_gb, stride_gh, USE_TMA)
    q_tile = _load_rows(
        q, b, h, first, M, stride_qm, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
    )
    do_tile = _load_rows(
        grad_out, b, h, first, M, stride_gm, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
    )
    head = b * H + h
    # --8<-- [end:queries]

    # --8<-- [start:products]
    lse_row = _load_numbers(lse_log2, head, first, M, stride_sums, BLOCK_M, USE_TMA)
    st = tl.dot(k_tile, q_tile.T, input_precision="ieee")  # [BLOCK_N, BLOCK_M]
    if MASK:
        offs_m, offs_n = first + tl.arange(0, BLOCK_M), first_key + tl.arange(0, BLOCK_N)
        st = _hide(st, offs_m[None, :], offs_n[:, None], N, causal_offset, CAUSAL)
    pt = tl.exp2(st * scale_log2 - lse_row[None, :])  # the forward's weights, again
    dpt = tl.dot(v_tile, do_tile.T, input_precision="ieee")  # [BLOCK_N, BLOCK_M]
    delta_row = _load_numbers(delta, head, first, M, stride_sums, BLOCK_M, USE_TMA)
    dst = (pt * (dpt - delta_row[None, :])).to(q_tile.dtype)
    dv = tl.dot(pt.to(do_tile.dtype), do_tile, dv, input_precision="ieee")
    dk = tl.dot(dst, q_tile, dk, input_precision="ieee")
    # --8<-- [end:products]
    # --8<-- [start:add_dq]
    if ONE_PASS:
        dq = tl.dot(dst.T, k_tile, input_precision="ieee")  # [BLOCK_M, BLOCK_D]
        _add_to_sum(
            total, dq, b, h, first, H, M, D=D, BLOCK_M=BLOCK_M, BLOCK_D=BLOCK_D, WIDTH=ADD_WIDTH
        )
    # --8<-- [end:add_dq]
    return dk, dv


# N, M or G = 1 as a constant: the first two crash the assembler of Triton 3.6.0, and with the
# third the loop over heads is gone, whereupon the assembler waits for each product on its own.
@triton.jit(do_not_specialize=["N", "M", "G"])
def _flash_backward_kernel(
    q, k, v, grad_out,  # descriptors of [B, heads, rows, D], or pointers
    total,  # one pass: the sum of dQ, a descriptor or a pointer
    lse_log2, delta,  # descriptors of [B · H, M], or pointers
    grad_k_ptr, grad_v_ptr,  # [B, Hkv, N, D]: contiguous
    stride_qb, stride_qh, stride_qm,  # step to the next batch, head, row; columns are contiguous
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_gb, stride_gh, stride_gm,
    stride_sums,  # step to the next head of lse_log2 and delta
    H, G,  # heads of queries, and how many of them share a head of keys
    together,  # heads of keys whose programs start together
    M, N,  # queries, keys
    causal_offset,  # with a causal mask query m sees the keys up to m + causal_offset
    scale, scale_log2,  # factor on the scores, and scale · log2(e)
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,  # causal, or in one pass N is no multiple of BLOCK_N
    ADD: tl.constexpr,  # to what is in grad_k and grad_v already
    ONE_PASS: tl.constexpr,  # dQ is added up here as well
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,  # a power of two, at least D
    USE_TMA: tl.constexpr,
    ADD_WIDTH: tl.constexpr,  # columns of the descriptor of the sum of dQ; 0: a pointer
    APART: tl.constexpr,  # programs of a head begin at different queries
):  # fmt: skip
    """One program computes BLOCK_N rows of dK and dV of one head, and in one pass its share of dQ.

    Reads its keys and values once; then, BLOCK_M at a time, the queries that see them, with their
    dO, logsumexp and Δ. P and dS [BLOCK_N, BLOCK_M] are transposed: they come out of a product in
    the registers from which the products for dV and dK take them.
    """
    # --8<-- [start:which_keys]
    num_tiles = tl.cdiv(N, BLOCK_N)
    num_tiles_m = tl.cdiv(M, BLOCK_M)
    head, tile_idx = _place(num_tiles, together, LAST_FIRST=False)
    heads = H // G
    b, hk = head // heads, head % heads
    h_first, h_end = hk * G, hk * G + G  # the query heads that share it
    first_key = tile_idx * BLOCK_N
    offs_n = first_key + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    # No query before first_tile sees one of the keys; every query from whole_tile on sees all.
    first_tile, whole_tile = 0, 0
    if CAUSAL:
        first_seen = tl.maximum(first_key - causal_offset, 0)
        all_seen = tl.maximum(first_key + BLOCK_N - 1 - causal_offset, 0)
        first_tile = tl.minimum(first_seen // BLOCK_M, num_tiles_m)
        whole_tile = tl.minimum(tl.cdiv(all_seen, BLOCK_M), num_tiles_m)
    if ONE_PASS and MASKED and first_key + BLOCK_N > N:  # a row beyond N must add nothing to dQ
        whole_tile = num_tiles_m
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

    # --8<-- [start:loop]
    if MASKED:  # the few tiles that need a mask, of all query heads of the group
        count = whole_tile - first_tile
        for i in range(0, (h_end - h_first) * count):
            h, tile = h_first + i // count, first_tile + i % count
            dk, dv = _keys_step(
                dk, dv, k_tile, v_tile, q, grad_out, total, lse_log2, delta,
                b, h, tile * BLOCK_M, first_key, stride_qb, stride_qh, stride_qm,
                stride_gb, stride_gh, stride_gm, stride_sums, H, M, N, causal_offset, scale_log2,
                MASK=True, D=D, CAUSAL=CAUSAL, ONE_PASS=ONE_PASS, BLOCK_M=BLOCK_M,
                BLOCK_N=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA, ADD_WIDTH=ADD_WIDTH,
            )  # fmt: skip
    for g in range(0, h_end - h_first):
        for i in range(whole_tile, num_tiles_m):
            h, tile = h_first + g, i
            if APART:  # so that few programs add to the same rows of dQ at a time
                tile = (i + tile_idx * tl.cdiv(BLOCK_N, BLOCK_M)) % num_tiles_m
            dk, dv = _keys_step(
                dk, dv, k_tile, v_tile, q, grad_out, total, lse_log2, delta,
                b, h, tile * BLOCK_M, first_key, stride_qb, stride_qh, stride_qm,
                stride_gb, stride_gh, stride_gm, stride_sums, H, M, N, causal_offset, scale_log2,
                MASK=False, D=D, CAUSAL=CAUSAL, ONE_PASS=ONE_PASS, BLOCK_M=BLOCK_M,
                BLOCK_N=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA, ADD_WIDTH=ADD_WIDTH,
            )  # fmt: skip
    # --8<-- [end:loop]

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


@triton.jit
def _grad_q_step(
    dq, q_tile, do_tile,  # [BLOCK_M, BLOCK_D]
    lse_log2, delta, offs_m,  # [BLOCK_M]
    k, v,
    b, hk, start,
    stride_kn, stride_vn,
    N,
    causal_offset,
    scale_log2,
    MASK: tl.constexpr,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    USE_TMA: tl.constexpr,
):  # fmt: skip
    """Add to dQ of BLOCK_M queries, before the scale, what BLOCK_N keys give it."""
    # --8<-- [start:dq_products]
    k_tile = _load_rows(
        k, b, hk, start, N, stride_kn, D=D, BLOCK=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
    )
    v_tile = _load_rows(
        v, b, hk, start, N, stride_vn, D=D, BLOCK=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
    )
    s = tl.dot(q_tile, k_tile.T, input_precision="ieee")  # [BLOCK_M, BLOCK_N]
    if MASK:
        offs_n = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
        s = _hide(s, offs_m[:, None], offs_n[None, :], N, causal_offset, CAUSAL)
    p = tl.exp2(s * scale_log2 - lse_log2[:, None])
    dp = tl.dot(do_tile, v_tile.T, input_precision="ieee")  # [BLOCK_M, BLOCK_N]
    ds = (p * (dp - delta[:, None])).to(k_tile.dtype)
    return tl.dot(ds, k_tile, dq, input_precision="ieee")
    # --8<-- [end:dq_products]


@triton.jit(do_not_specialize=["N", "M"])
def _grad_q_kernel(
    q, k, v, grad_out,  # descriptors of [B, heads, rows, D], or pointers
    out_ptr,  # [B, H, M, D]
    lse_ptr, grad_lse_ptr,  # [B, H, M], contiguous; the second may be None
    lse_log2_ptr, delta_ptr,  # written: [B, H, M]
    grad_q_ptr,  # [B, H, M, D]: contiguous
    stride_qb, stride_qh, stride_qm,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_gb, stride_gh, stride_gm,
    stride_ob, stride_oh, stride_om,
    stride_sums,
    H, G,
    together,  # heads whose programs start together
    M, N,
    causal_offset,
    scale, scale_log2,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,  # causal, or N is no multiple of BLOCK_N
    ADD: tl.constexpr,  # to what is in grad_q already
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    USE_TMA: tl.constexpr,
    KEEP: tl.constexpr,  # as in TileConfig
):  # fmt: skip
    """One program computes BLOCK_M rows of dQ of one head.

    Reads its queries, O, dO and logsumexp once, and leaves Δ in memory for the kernel above; then,
    BLOCK_N at a time, the keys and values that its queries see. Nobody else adds to its rows.
    """
    # --8<-- [start:which_queries]
    num_tiles = tl.cdiv(M, BLOCK_M)
    head, tile_idx = _place(num_tiles, together, LAST_FIRST=CAUSAL)
    b, h = head // H, head % H
    hk = h // G  # the head of keys and values
    first = tile_idx * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    # Every query of the tile sees the keys below whole_end; none sees a key from end on.
    whole_end, end = N, N
    if CAUSAL:
        whole_end = tl.minimum(N, tl.maximum(first + causal_offset + 1, 0))
        end = tl.minimum(N, tl.maximum(first + BLOCK_M + causal_offset, 0))
    whole_end = whole_end // BLOCK_N * BLOCK_N  # whole tiles, which need no mask
    # --8<-- [end:which_queries]

    # --8<-- [start:keep_queries]
    q = _head(q, b, h, stride_qb, stride_qh, USE_TMA)
    grad_out = _head(grad_out, b, h, stride_gb, stride_gh, USE_TMA)
    out_ptr = _head(out_ptr, b, h, stride_ob, stride_oh, USE_TMA=False)
    k = _head(k, b, hk, stride_kb, stride_kh, USE_TMA)
    v = _head(v, b, hk, stride_vb, stride_vh, USE_TMA)
    q_tile = _load_rows(
        q, b, h, first, M, stride_qm, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
    )
    do_tile = _load_rows(
        grad_out, b, h, first, M, stride_gm, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
    )
    out = _load_rows(
        out_ptr, b, h, first, M, stride_om, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=False
    )
    lse_log2, delta = _sums_of_rows(
        out, do_tile, lse_ptr, grad_lse_ptr, lse_log2_ptr, delta_ptr, head, offs_m, M, stride_sums
    )
    if KEEP:
        q_tile = _in_registers(q_tile, BLOCK_D)
        do_tile = _in_registers(do_tile, BLOCK_D)
    # --8<-- [end:keep_queries]

    # --8<-- [start:loop_keys]
    dq = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start in range(0, whole_end, BLOCK_N):
        dq = _grad_q_step(
            dq, q_tile, do_tile, lse_log2, delta, offs_m, k, v, b, hk, start,
            stride_kn, stride_vn, N, causal_offset, scale_log2,
            MASK=False, D=D, CAUSAL=CAUSAL, BLOCK_N=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA,
        )  # fmt: skip
    if MASKED:
        for start in range(whole_end, end, BLOCK_N):
            dq = _grad_q_step(
                dq, q_tile, do_tile, lse_log2, delta, offs_m, k, v, b, hk, start,
                stride_kn, stride_vn, N, causal_offset, scale_log2,
                MASK=True, D=D, CAUSAL=CAUSAL, BLOCK_N=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA,
            )  # fmt: skip
    # --8<-- [end:loop_keys]

    # --8<-- [start:store_dq]
    offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
    place = (head.to(tl.int64) * M + offs_m)[:, None] * D + offs_d[None, :]  # [BLOCK_M, BLOCK_D]
    mask = (offs_m < M)[:, None] & (offs_d < D)[None, :]
    dq *= scale
    if ADD:
        dq += tl.load(grad_q_ptr + place, mask=mask, other=0.0)
    tl.store(grad_q_ptr + place, dq.to(grad_q_ptr.dtype.element_ty), mask=mask)
    # --8<-- [end:store_dq]


@triton.jit
def _finish_kernel(sum_ptr, grad_q_ptr, count, scale, ADD: tl.constexpr, BLOCK: tl.constexpr):
    """One program scales BLOCK numbers of the sum of dQ and rounds them once."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < count
    grad_q = tl.load(sum_ptr + offs, mask=mask, other=0.0) * scale
    if ADD:
        grad_q += tl.load(grad_q_ptr + offs, mask=mask, other=0.0)
    tl.store(grad_q_ptr + offs, grad_q.to(grad_q_ptr.dtype.element_ty), mask=mask)


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
        scale, causal, align: as attention was called with; scale from 2^-64 to 2^8. Weights are
            computed from the difference of scores and lse, which float32 rounds: around scores of
            2^16 they are off by 1 to 6 %, most for wide heads, and more for larger scores.
        deterministic: the same bits in each run: always two kernels, and no sum in memory.
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
    scale = _gradient_scale(scale, q.shape[-1])
    architecture = _architecture(q)
    results = tuple(x.new_empty(x.shape) for x in (q, k, v)) if into is None else tuple(into)
    if q.dim() < 4:
        lead = (None,) * (4 - q.dim())
        q, k, v, out, grad_out = (x[lead] for x in (q, k, v, out, grad_out))
    B, H, M, D = q.shape
    _, Hkv, N, _ = k.shape
    row = architecture, q.dtype, D, causal
    keys, queries = _key_config(*row), _query_config(*row)
    if deterministic:
        keys = keys._replace(ONE_PASS=False)
    problem = {
        "H": H,
        "G": H // Hkv,
        "M": M,
        "N": N,
        "causal_offset": N - M if align == "bottom_right" else 0,
        "scale": scale,
        "scale_log2": scale * LOG2_E.value,
        "D": D,
        "CAUSAL": causal,
        "ADD": into is not None,
        "BLOCK_D": 1 << (D - 1).bit_length(),  # the next power of two
        "USE_TMA": _can_use_tma(architecture, q, k, v, grad_out),
    }
    # The logsumexp times log2(e), and Δ; rows begin at multiples of 16 bytes, as TMA needs.
    sums = q.new_empty((2, B * H, -(-M // 4) * 4), dtype=torch.float32)[..., :M]
    inputs, known = (q, k, v, grad_out), (out, lse, grad_lse)
    # --8<-- [end:launch]
    # --8<-- [start:launches]
    with _device_of(q):
        if keys.ONE_PASS:
            total = q.new_empty((B, H, M, D), dtype=torch.float32)  # the sum of dQ
            _launch_prepare(inputs, known, sums, total, problem)
            _launch_keys(keys, inputs, sums, total, results, problem)
            _launch_finish(total, results, problem)
        else:  # dQ first: its programs leave Δ for the others
            _launch_queries(queries, inputs, known, sums, results, problem)
            _launch_keys(keys, inputs, sums, None, results, problem)
    return results
    # --8<-- [end:launches]


def _launch_queries(config, inputs, known, sums, results, problem):
    """Launch the kernel for dQ, which writes Δ on the way."""
    out, lse, grad_lse = known
    B, H, M, _ = out.shape
    tiles, heads = -(-M // config.BLOCK_M), B * H
    options = _options(config, without="ONE_PASS")
    _grad_q_kernel[(tiles * heads,)](
        *_loaded(inputs, config, problem),
        out,
        lse,
        grad_lse,
        *sums,
        results[0],
        *_strides(*inputs, out),
        stride_sums=sums.stride(1),
        together=_together(heads, tiles, problem),
        MASKED=problem["CAUSAL"] or problem["N"] % config.BLOCK_N != 0,
        **problem,
        **options,
    )


def _launch_keys(config, inputs, sums, total, results, problem):
    """Launch the kernel for dK and dV; in one pass it adds dQ to `total`."""
    B, Hkv, N, _ = inputs[1].shape
    tiles, heads, width = -(-N // config.BLOCK_N), B * Hkv, 0
    stride_sums = sums.stride(1)
    if problem["USE_TMA"]:
        sums = [_rows(x, [1, config.BLOCK_M]) for x in sums]
        if config.ONE_PASS and TMA_ADDS:
            total, width = _added(total, config, problem)
    options = _options(config, without="KEEP")
    _flash_backward_kernel[(tiles * heads,)](
        *_loaded(inputs, config, problem),
        total,
        *sums,
        *results[1:],
        *_strides(*inputs),
        stride_sums=stride_sums,
        together=_together(heads, tiles, problem),
        MASKED=problem["CAUSAL"] or (config.ONE_PASS and N % config.BLOCK_N != 0),
        ADD_WIDTH=width,
        APART=APART and config.ONE_PASS and not problem["CAUSAL"],
        **problem,
        **options,
    )


def _launch_prepare(inputs, known, sums, total, problem):
    """Launch what finds Δ and clears the sum of dQ."""
    out, lse, grad_lse = known
    B, H, M, D = total.shape
    _prepare_kernel[(-(-M // ROWS) * H * B,)](
        out,
        inputs[3],
        lse,
        grad_lse,
        *sums,
        total,
        *_strides(out, inputs[3]),
        sums.stride(1),
        H,
        M,
        D=D,
        BLOCK_M=ROWS,
        BLOCK_D=problem["BLOCK_D"],
    )


def _launch_finish(total, results, problem):
    """Launch what scales and rounds the sum of dQ."""
    count, scale, add = total.numel(), problem["scale"], problem["ADD"]
    grid = (-(-count // NUMBERS),)
    _finish_kernel[grid](total, results[0], count, scale, ADD=add, BLOCK=NUMBERS)


def _together(heads, tiles, problem):
    """How many heads start together: one, or with a causal mask as many as fill a GPU.

    Then the last programs to start are short ones, of several heads. A divisor of `heads`.
    """
    if not problem["CAUSAL"]:
        return 1
    return next((n for n in range(1, heads) if heads % n == 0 and n * tiles >= AT_ONCE), heads)


def _options(config, without):
    """What a kernel takes of a TileConfig."""
    return {n: x for n, x in config._asdict().items() if n != without and x is not None}


def _strides(*tensors):
    """Steps to the next batch, head and row of each."""
    return [step for x in tensors for step in x.stride()[:3]]


def _loaded(inputs, config, problem):
    """q, k, v and grad_out as a kernel takes them: descriptors, or pointers."""
    if not problem["USE_TMA"]:
        return inputs
    queries = [1, 1, config.BLOCK_M, problem["BLOCK_D"]]
    keys = [1, 1, config.BLOCK_N, problem["BLOCK_D"]]
    return map(_rows, inputs, (queries, keys, keys, queries))


def _added(total, config, problem):
    """A descriptor through which TMA adds to the sum of dQ, and its width."""
    (B, H, M, D), block_d = total.shape, problem["BLOCK_D"]
    width, rows = block_d, config.BLOCK_M * block_d // TMA_WIDTH
    if D == block_d and D % TMA_WIDTH == 0 and rows <= TMA_ROWS:
        width = TMA_WIDTH
        total = total.view(B, H, M * D // width, width)
    return _rows(total, [1, 1, config.BLOCK_M * block_d // width, width]), width


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


def _key_config(architecture, dtype, D, causal):
    """The TileConfig of the kernel for dK and dV; raise where the architecture has none."""
    return _row(KEY_CONFIGS, architecture, dtype, D)[causal]


def _query_config(architecture, dtype, D, causal):
    """The TileConfig of the kernel for dQ; raise where the architecture has none."""
    return _row(QUERY_CONFIGS, architecture, dtype, D)[causal]


def _row(table, architecture, dtype, D):
    if dtype == torch.bfloat16 and architecture == "sm_75":
        raise TypeError("q is torch.bfloat16; torch.float16, torch.float32 are allowed on this GPU")
    widest = max(table[architecture])
    if D > widest:
        raise ValueError(f"q has head dimension {D}; at most {widest} is allowed on this GPU")
    rows = table["float32" if dtype == torch.float32 else architecture]
    return rows[min(width for width in rows if D <= width)]
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


def _check_tensors(least, **tensors):
    """Raise for tensors that no kernel here takes; all must match the first."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        raise TypeError(
            "torch.func and forward-mode autograd cannot see into a kernel; instead of vmap use "
            "leading dimensions, and for gradients torch.autograd.grad"
        )
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


def _gradient_scale(scale, D):
    """As above; raise also where a float32 logsumexp would not give the weights back."""
    number = _scale_or_default(scale, D)
    if number > MAX_GRADIENT_SCALE:
        raise ValueError(f"scale is {number}; for gradients it may be at most 2^8")
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
