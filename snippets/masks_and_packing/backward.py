"""The gradients of masks_and_packing, of every option: no M × N matrix but a bias's own.

float16, bfloat16 or float32 (on CUDA cores), 16 to 256 columns in steps of 8, the columns of a row
side by side; NVIDIA GPUs from capability 7.5 on, AMD's gfx942. Each call gives the same bits.
Run it alone: `python backward.py` checks it against PyTorch, on a CPU too.
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import functools
import math
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
WRAP = tl.constexpr(2**30)  # no sequence has more rows
PROBES = tl.constexpr(32)  # places that a search asks about at once: one for each thread of a warp
LOG2_E = tl.constexpr(math.log2(math.e))  # exp(x) = 2^(x · log2(e)), and a GPU has only exp2


class Tile(NamedTuple):
    """How the work of one program is cut, and on how many warps it runs."""

    BLOCK_M: int  # queries: of an iteration for dK and dV, of a program for dQ
    BLOCK_N: int  # keys: of a program for dK and dV, of an iteration for dQ
    num_warps: int  # 32 threads each
    num_stages: int  # iterations whose loads are in flight at once
    maxnreg: int | None = None  # registers of a thread at most: more programs run at one time
    KEEP: bool = False  # for dQ: q and dO wait in registers, not in shared memory


# Architecture → largest D that a row is for → the tile for dK and dV, that for dQ, and with a
# causal mask a third in its place. Those of flash_backward: for D 64 and 128 on sm_90 the fastest
# that we timed on an H200, elsewhere they fit.
TILES = {
    "sm_75": {  # on no tensor core
        64: (Tile(32, 32, 8, 1), Tile(32, 32, 8, 1)),
        128: (Tile(16, 16, 8, 1), Tile(16, 16, 8, 1)),
    },
    "sm_80": {
        64: (Tile(32, 128, 8, 2), Tile(128, 64, 8, 2)),
        128: (Tile(64, 64, 8, 2), Tile(64, 64, 8, 2)),
        256: (Tile(32, 32, 8, 1), Tile(32, 32, 8, 1)),
    },
    "sm_89": {  # also 8.6 and 12.0: less shared memory
        64: (Tile(32, 128, 8, 2), Tile(64, 64, 8, 2)),
        128: (Tile(32, 64, 8, 1), Tile(64, 32, 8, 1)),
        256: (Tile(32, 32, 8, 1), Tile(32, 32, 8, 1)),
    },
    "sm_90": {
        64: (Tile(64, 64, 4, 3, 168), Tile(64, 128, 4, 3, KEEP=True), Tile(128, 64, 8, 3)),
        128: (Tile(64, 64, 4, 2), Tile(64, 64, 4, 3, KEEP=True)),
        256: (Tile(32, 64, 8, 2), Tile(64, 32, 8, 2)),
    },
    "sm_100": {
        64: (Tile(64, 128, 8, 2), Tile(128, 64, 8, 2)),
        128: (Tile(64, 64, 8, 2), Tile(64, 32, 8, 2)),
        256: (Tile(32, 64, 8, 1), Tile(64, 32, 8, 1)),
    },
    "gfx942": {
        64: (Tile(32, 64, 4, 1), Tile(64, 32, 4, 1)),
        128: (Tile(32, 32, 8, 1), Tile(32, 32, 8, 1)),
        256: (Tile(16, 32, 8, 1), Tile(32, 16, 8, 1)),
    },
    "float32": {  # on every architecture, on CUDA cores
        64: (Tile(32, 32, 8, 1), Tile(32, 32, 8, 1)),
        128: (Tile(16, 32, 8, 1), Tile(16, 16, 8, 1)),
        256: (Tile(16, 16, 8, 1), Tile(16, 16, 8, 1)),
    },
}

# Instead, with a bias and up to 128 columns; elsewhere those for 256, as its tile needs room too.
BIASED = {
    "sm_90": {
        64: (Tile(64, 64, 4, 2), Tile(128, 64, 8, 3)),
        128: (Tile(32, 64, 4, 2), Tile(64, 64, 4, 2)),
    },
}


# N, M or G = 1 as a constant: the first two crash the assembler of Triton 3.6.0, and with the
# third the loop over heads is gone, whereupon the assembler waits for each product on its own.
@triton.jit(do_not_specialize=["N", "M", "G"])
def _keys_kernel(
    q, k, v, grad_out,  # descriptors of [B, heads, rows, D], or pointers to the first element
    lse_log2, delta,  # descriptors of [B · H, M], or pointers
    bias_ptr,  # [B, H, M, N], its columns contiguous; or None
    cu_q_ptr, cu_k_ptr,  # [sequences + 1]: where each begins among all rows; or None
    grad_k_ptr, grad_v_ptr,  # [B, Hkv, N, D], packed [N, Hkv, D]: contiguous
    stride_qb, stride_qh, stride_qm,  # step to the next batch, head, row; columns are contiguous
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_gb, stride_gh, stride_gm,
    stride_bb, stride_bh, stride_bm, columns,
    stride_sums,  # step to the next head of lse_log2 and delta
    sums_block,  # packed: those of a sequence begin at a multiple of it; or None
    H, G,  # heads of queries, and how many of them share a head of keys
    together,  # heads of keys whose programs start together
    M, N, sequences,  # queries, keys; packed: of so many sequences together; else None
    causal_offset,  # with a causal mask query m sees the keys up to m + causal_offset
    left_offset,  # with a window it sees the keys from m + left_offset on; or None
    scale, scale_log2,  # factor on the scores, and scale · log2(e)
    softcap,  # or None
    D: tl.constexpr,
    CAUSAL: tl.constexpr,  # or another limit on the right
    BOTTOM_RIGHT: tl.constexpr,  # packed: offsets count from the last query of a sequence
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,  # a power of two, at least D
    USE_TMA: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_N rows of dK and dV of one head.

    Reads its keys and values once; then, BLOCK_M at a time, the queries that see them, with their
    dO, logsumexp and Δ. P and dS [BLOCK_N, BLOCK_M] are transposed: they come out of a product in
    the registers from which the products for dV and dK take them.
    """
    LEFT: tl.constexpr = left_offset is not None
    CAP: tl.constexpr = softcap is not None
    PACKED: tl.constexpr = cu_k_ptr is not None
    C: tl.constexpr = Constants(
        D, BLOCK_M, BLOCK_N, BLOCK_D, CAUSAL, LEFT, CAP, bias_ptr is not None, USE_TMA, PACKED
    )
    left_offset, softcap = left_offset if LEFT else 0, softcap if CAP else 1.0
    first_sum = 0
    if PACKED:
        num_tiles = N // BLOCK_N + sequences + 1
    else:
        num_tiles = tl.cdiv(N, BLOCK_N)
    head, tile_idx = _place(num_tiles, together, LAST_FIRST=False)
    b, hk = head // (H // G), head % (H // G)
    if PACKED:  # from here on M, N and all pointers are those of one sequence
        tile_idx, first_k, rows, first_q, M, sequence = _sequence(
            tile_idx, cu_k_ptr, cu_q_ptr, sequences, N, M, BLOCK_N
        )
        skipped, N, causal_offset, left_offset = _seen_keys(
            M, rows, causal_offset, left_offset, BOTTOM_RIGHT, C
        )
        first_k += skipped
        first_sum = (first_q // sums_block + sequence) * sums_block
        if USE_TMA:  # of one batch: instead, where the sequence ends
            end_q, end_k = first_q + M, first_k + N
            stride_qb, stride_gb, stride_kb, stride_vb = end_q, end_q, end_k, end_k
        else:
            q += first_q.to(tl.int64) * stride_qm
            grad_out += first_q.to(tl.int64) * stride_gm
            k += first_k.to(tl.int64) * stride_kn
            v += first_k.to(tl.int64) * stride_vn
            lse_log2, delta = lse_log2 + first_sum, delta + first_sum
    sizes = Sizes(H, M, N, columns, causal_offset, left_offset, scale_log2, softcap)
    bias = Rows(bias_ptr, stride_bb, stride_bh, stride_bm)
    h_first, h_end = hk * G, hk * G + G  # the query heads that share it
    first_key = tile_idx * BLOCK_N
    first_tile, whole_tile, whole_end, end_tile = _tiles_of_queries(first_key, sizes, C)

    queries = Queries(
        Rows(q, stride_qb, stride_qh, stride_qm), Rows(grad_out, stride_gb, stride_gh, stride_gm),
        lse_log2, delta, stride_sums, first_sum, bias,
    )  # fmt: skip
    k_tile = _load_rows(Rows(k, stride_kb, stride_kh, stride_kn), b, hk, first_key, N, BLOCK_N, C)
    v_tile = _load_rows(Rows(v, stride_vb, stride_vh, stride_vn), b, hk, first_key, N, BLOCK_N, C)
    dk = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)

    if CAUSAL or LEFT:  # the few tiles that need a mask, of all query heads of the group
        before = whole_tile - first_tile
        count = before + end_tile - whole_end if LEFT else before
        for i in range(0, (h_end - h_first) * count):
            h, tile = h_first + i // count, first_tile + i % count
            if LEFT:  # those that see too far back stand after the tiles without a mask
                tile = tl.where(tile < whole_tile, tile, tile - whole_tile + whole_end)
            dk, dv = _keys_step(
                dk, dv, k_tile, v_tile, queries, b, h, tile * BLOCK_M, first_key, sizes, True, C
            )
    for g in range(0, h_end - h_first):
        for tile in range(whole_tile, whole_end if LEFT else tl.cdiv(M, BLOCK_M)):
            h = h_first + g
            dk, dv = _keys_step(
                dk, dv, k_tile, v_tile, queries, b, h, tile * BLOCK_M, first_key, sizes, False, C
            )
    at, heads = first_k if PACKED else None, H // G
    _store_rows(grad_k_ptr, dk * scale, head, heads, at, first_key, N, BLOCK_N, C)
    _store_rows(grad_v_ptr, dv, head, heads, at, first_key, N, BLOCK_N, C)
    if PACKED and first_key + BLOCK_N > N:  # zeros for keys of the sequence that no query sees
        offs_n, offs_d = first_key + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
        row = first_k + offs_n - tl.where(offs_n + skipped < rows, 0, rows)
        place = (row.to(tl.int64) * heads + head)[:, None] * D + offs_d[None, :]
        mask = ((offs_n >= N) & (offs_n < rows))[:, None] & (offs_d < D)[None, :]
        zeros = tl.zeros([BLOCK_N, BLOCK_D], grad_k_ptr.dtype.element_ty)
        tl.store(grad_k_ptr + place, zeros, mask=mask)
        tl.store(grad_v_ptr + place, zeros, mask=mask)


class Rows(NamedTuple):
    """A tensor [B, heads, rows, D], and the steps between its parts."""

    x: Any  # a TMA descriptor, or a pointer to the first element
    batch: Any  # packed, for a descriptor: instead, the row where the sequence ends
    head: Any
    row: Any


class Queries(NamedTuple):
    """What a step for dK and dV reads of the queries."""

    q: Any  # Rows
    grad_out: Any  # Rows
    lse_log2: Any  # descriptors of [B · H, M], or pointers
    delta: Any
    step: Any  # from head to head of these two
    first: Any  # where they begin
    bias: Any  # Rows


class Sizes(NamedTuple):
    """What a step needs to know of the whole problem."""

    H: Any  # heads of queries
    M: Any  # queries
    N: Any  # keys
    columns: Any  # of the bias: as many, but it is known whether 16 divides them; or None
    causal_offset: Any
    left_offset: Any
    scale_log2: Any
    softcap: Any


class Constants(NamedTuple):
    """What is known when a kernel is compiled."""

    D: Any
    BLOCK_M: Any
    BLOCK_N: Any
    BLOCK_D: Any
    CAUSAL: Any
    LEFT: Any
    CAP: Any
    BIAS: Any
    USE_TMA: Any
    PACKED: Any


@triton.jit
def _tiles_of_queries(first_key, sizes, C: tl.constexpr):
    """Tiles of queries: first with one that sees a key of the program's; first that sees them all.

    And, with a window, the ends of these two.
    """
    first_tile, whole_tile, whole_end, end_tile = 0, 0, 0, 0
    if C.CAUSAL:
        num_tiles = tl.cdiv(sizes.M, C.BLOCK_M)
        first_seen = tl.maximum(first_key - sizes.causal_offset, 0)
        all_seen = tl.maximum(first_key + C.BLOCK_N - 1 - sizes.causal_offset, 0)
        first_tile = tl.minimum(first_seen // C.BLOCK_M, num_tiles)
        whole_tile = tl.minimum(tl.cdiv(all_seen, C.BLOCK_M), num_tiles)
    if C.LEFT:
        num_tiles = tl.cdiv(sizes.M, C.BLOCK_M)
        last_seen = tl.maximum(first_key + C.BLOCK_N - sizes.left_offset, 0)
        all_seen = tl.maximum(first_key + 1 - sizes.left_offset, 0)
        end_tile = tl.minimum(tl.cdiv(last_seen, C.BLOCK_M), num_tiles)
        first_tile = tl.minimum(first_tile, end_tile)
        whole_tile = tl.minimum(whole_tile, end_tile)
        whole_end = tl.minimum(tl.maximum(all_seen // C.BLOCK_M, whole_tile), end_tile)
    return first_tile, whole_tile, whole_end, end_tile


@triton.jit
def _keys_step(
    dk, dv, k_tile, v_tile,  # [BLOCK_N, BLOCK_D]
    queries, b, h, first, first_key, sizes, MASK: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Add to dK and dV of BLOCK_N keys what BLOCK_M queries give them."""
    q_tile = _load_rows(queries.q, b, h, first, sizes.M, C.BLOCK_M, C)
    do_tile = _load_rows(queries.grad_out, b, h, first, sizes.M, C.BLOCK_M, C)
    head = b * sizes.H + h
    lse_row = _load_numbers(queries.lse_log2, queries, head, first, sizes.M, C)
    st = tl.dot(k_tile, q_tile.T, input_precision="ieee")  # Sᵀ = K Qᵀ: [BLOCK_N, BLOCK_M]
    offs_m, offs_n = first + tl.arange(0, C.BLOCK_M), first_key + tl.arange(0, C.BLOCK_N)
    pt, slope = _weights(
        st, lse_row[None, :], offs_m, offs_n, queries.bias, b, h, sizes, MASK, C, KEYS_FIRST=True
    )
    dpt = tl.dot(v_tile, do_tile.T, input_precision="ieee")  # dPᵀ = V dOᵀ: the same shape
    delta_row = _load_numbers(queries.delta, queries, head, first, sizes.M, C)
    dst = pt * (dpt - delta_row[None, :])
    dst = (dst * slope if C.CAP else dst).to(q_tile.dtype)
    dv = tl.dot(pt.to(do_tile.dtype), do_tile, dv, input_precision="ieee")  # dV + Pᵀ dO
    dk = tl.dot(dst, q_tile, dk, input_precision="ieee")  # dK + dSᵀ Q
    return dk, dv


@triton.jit
def _weights(
    s, lse_log2, offs_m, offs_n, bias, b, h, sizes, MASK: tl.constexpr, C: tl.constexpr,
    KEYS_FIRST: tl.constexpr,
):  # fmt: skip
    """The forward's weights, again, of products s of queries offs_m and keys offs_n.

    And the slope of the soft cap where these scores are. With KEYS_FIRST they are transposed, and
    lse_log2 is [1, BLOCK_M]; otherwise [BLOCK_M, 1].
    """
    slope = s
    if C.CAP:
        tanh = 1.0 - 2.0 / (1.0 + tl.exp2(s * (2.0 * sizes.scale_log2 / sizes.softcap)))
        s, slope = tanh * (sizes.softcap * LOG2_E), 1.0 - tanh * tanh
    elif C.BIAS:
        s = s * sizes.scale_log2
    if C.BIAS:
        tile = _load_bias(bias, b, h, offs_m, offs_n, sizes)  # as it lies: several numbers at once
        s += (tile.T if KEYS_FIRST else tile).to(tl.float32) * LOG2_E
    if MASK and KEYS_FIRST:
        s = _hide(s, offs_m[None, :], offs_n[:, None], sizes, C)
    elif MASK:
        s = _hide(s, offs_m[:, None], offs_n[None, :], sizes, C)
    if C.CAP or C.BIAS:
        p = tl.exp2(s - lse_log2)
    else:
        p = tl.exp2(s * sizes.scale_log2 - lse_log2)
    return p, slope


@triton.jit
def _load_bias(bias, b, h, offs_m, offs_n, sizes):
    """The bias of queries offs_m and keys offs_n: [BLOCK_M, BLOCK_N]."""
    ptr = bias.x + b.to(tl.int64) * bias.batch + h.to(tl.int64) * bias.head
    place = offs_m.to(tl.int64)[:, None] * bias.row + offs_n[None, :]
    mask = (offs_m < sizes.M)[:, None] & (offs_n < sizes.columns)[None, :]
    return tl.load(ptr + place, mask=mask, other=0.0)


@triton.jit(do_not_specialize=["N", "M"])
def _queries_kernel(
    q, k, v, grad_out,  # descriptors of [B, heads, rows, D], or pointers
    out_ptr,  # [B, H, M, D]
    lse_ptr, grad_lse_ptr,  # [B, H, M], contiguous; the second may be None
    bias_ptr,  # as above
    cu_q_ptr, cu_k_ptr,
    lse_log2_ptr, delta_ptr,  # written: [B, H, M]
    grad_q_ptr,  # [B, H, M, D], packed [M, H, D]: contiguous
    stride_qb, stride_qh, stride_qm,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_gb, stride_gh, stride_gm,
    stride_ob, stride_oh, stride_om,
    stride_bb, stride_bh, stride_bm, columns,
    stride_sums,
    H, G,
    together,  # heads whose programs start together
    M, N, sequences,
    causal_offset, left_offset,
    scale, scale_log2, softcap,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    BOTTOM_RIGHT: tl.constexpr,
    MASKED: tl.constexpr,  # causal, a window, packed, or N is no multiple of BLOCK_N
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    USE_TMA: tl.constexpr,
    KEEP: tl.constexpr = False,  # as in Tile
):  # fmt: skip
    """One program computes BLOCK_M rows of dQ of one head.

    Reads its queries, O, dO and logsumexp once, and leaves Δ in memory for the kernel above; then,
    BLOCK_N at a time, the keys and values that its queries see. Nobody else adds to its rows.
    """
    LEFT: tl.constexpr = left_offset is not None
    CAP: tl.constexpr = softcap is not None
    PACKED: tl.constexpr = cu_q_ptr is not None
    C: tl.constexpr = Constants(
        D, BLOCK_M, BLOCK_N, BLOCK_D, CAUSAL, LEFT, CAP, bias_ptr is not None, USE_TMA, PACKED
    )
    left_offset, softcap = left_offset if LEFT else 0, softcap if CAP else 1.0
    if PACKED:
        num_tiles = M // BLOCK_M + sequences + 1
    else:
        num_tiles = tl.cdiv(M, BLOCK_M)
    head, tile_idx = _place(num_tiles, together, LAST_FIRST=CAUSAL)
    b, h = head // H, head % H
    hk = h // G  # the head of keys and values
    all_rows, place_of_sums = M, tile_idx
    if PACKED:  # from here on M, N and all pointers are those of one sequence
        tile_idx, first_q, M, first_k, N, _number = _sequence(
            tile_idx, cu_q_ptr, cu_k_ptr, sequences, M, N, BLOCK_M
        )
        skipped, N, causal_offset, left_offset = _seen_keys(
            M, N, causal_offset, left_offset, BOTTOM_RIGHT, C
        )
        first_k += skipped
        if USE_TMA:  # of one batch: instead, where the sequence ends
            end_q, end_k = first_q + M, first_k + N
            stride_qb, stride_gb, stride_kb, stride_vb = end_q, end_q, end_k, end_k
        else:
            q += first_q.to(tl.int64) * stride_qm
            grad_out += first_q.to(tl.int64) * stride_gm
            k += first_k.to(tl.int64) * stride_kn
            v += first_k.to(tl.int64) * stride_vn
        out_ptr += first_q.to(tl.int64) * stride_om
        lse_ptr += first_q
        if grad_lse_ptr is not None:
            grad_lse_ptr += first_q
    sizes = Sizes(H, M, N, columns, causal_offset, left_offset, scale_log2, softcap)
    bias = Rows(bias_ptr, stride_bb, stride_bh, stride_bm)
    first = tile_idx * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    # Every query of the tile sees the keys below whole_end; none sees a key from end on.
    whole_end, end = N, N
    if CAUSAL:
        whole_end = tl.minimum(N, tl.maximum(first + causal_offset + 1, 0))
        end = tl.minimum(N, tl.maximum(first + BLOCK_M + causal_offset, 0))
    whole_end = whole_end // BLOCK_N * BLOCK_N  # whole tiles, which need no mask
    whole_begin = 0
    if LEFT:  # none sees a key before begin; every query sees the keys from whole_begin on
        begin = tl.maximum(first + left_offset, 0) // BLOCK_N * BLOCK_N
        whole_begin = tl.maximum(first + BLOCK_M - 1 + left_offset, 0)
        whole_begin = tl.cdiv(whole_begin, BLOCK_N) * BLOCK_N
        whole_end = tl.maximum(whole_end, whole_begin)

    q_tile = _load_rows(Rows(q, stride_qb, stride_qh, stride_qm), b, h, first, M, BLOCK_M, C)
    rows = M
    if PACKED:  # those without a key, padding too, have a Δ of 0, whatever grad_out holds there
        rows = tl.where(N > 0, M, 0)
    do_tile = _load_rows(
        Rows(grad_out, stride_gb, stride_gh, stride_gm), b, h, first, rows, BLOCK_M, C
    )
    out = _load_rows(
        Rows(out_ptr, stride_ob, stride_oh, stride_om), b, h, first, M, BLOCK_M, C, BY_POINTER=True
    )
    lse_log2, delta = _sums_of_rows(
        out, do_tile, lse_ptr, grad_lse_ptr, lse_log2_ptr, delta_ptr, head, offs_m, M, all_rows,
        stride_sums, place_of_sums * BLOCK_M if PACKED else None,
    )  # fmt: skip
    if KEEP:
        q_tile, do_tile = _in_registers(q_tile, BLOCK_D), _in_registers(do_tile, BLOCK_D)

    k, v = Rows(k, stride_kb, stride_kh, stride_kn), Rows(v, stride_vb, stride_vh, stride_vn)
    dq = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    if LEFT:
        for start in range(begin, tl.minimum(whole_begin, end), BLOCK_N):
            dq = _queries_step(
                dq, q_tile, do_tile, lse_log2, delta, offs_m, k, v, bias, b, h, hk, start, sizes,
                True, C,
            )  # fmt: skip
    for start in range(whole_begin, whole_end, BLOCK_N):
        dq = _queries_step(
            dq, q_tile, do_tile, lse_log2, delta, offs_m, k, v, bias, b, h, hk, start, sizes,
            False, C,
        )  # fmt: skip
    if MASKED:
        for start in range(whole_end, end, BLOCK_N):
            dq = _queries_step(
                dq, q_tile, do_tile, lse_log2, delta, offs_m, k, v, bias, b, h, hk, start, sizes,
                True, C,
            )  # fmt: skip
    at = first_q if PACKED else None
    _store_rows(grad_q_ptr, dq * scale, head, H, at, first, M, BLOCK_M, C)


@triton.jit
def _sums_of_rows(
    out, grad_out,  # [BLOCK_M, BLOCK_D]
    lse_ptr, grad_lse_ptr,  # [B, H, M], contiguous; the second may be None
    lse_log2_ptr, delta_ptr,  # written: [B, H, M]
    head, offs_m, M, all_rows, stride_sums,
    first_sum,  # where the sums of the tile begin, all of which are written; or None
):  # fmt: skip
    """Write and return what turns scores into weights, and Δ, of the rows offs_m of a head."""
    delta = tl.sum(out.to(tl.float32) * grad_out.to(tl.float32), axis=1)  # [BLOCK_M]
    mask_m = offs_m < M
    row = head.to(tl.int64) * all_rows + offs_m  # [BLOCK_M]
    if grad_lse_ptr is not None:  # the logsumexp has P as its gradient: P · (dP - Δ + its gradient)
        delta -= tl.load(grad_lse_ptr + row, mask=mask_m, other=0.0)
    lse = tl.load(lse_ptr + row, mask=mask_m, other=0.0)
    # A row without keys subtracts infinity: its P is zero.
    lse_log2 = tl.where(lse == float("-inf"), float("inf"), lse * LOG2_E)
    if first_sum is not None:
        offs_m, mask_m = first_sum + tl.arange(0, offs_m.shape[0]), mask_m | True
    place = head.to(tl.int64) * stride_sums + offs_m  # [BLOCK_M]
    tl.store(lse_log2_ptr + place, lse_log2, mask=mask_m)
    tl.store(delta_ptr + place, delta, mask=mask_m)
    return lse_log2, delta


@triton.jit
def _in_registers(tile, BLOCK_D: tl.constexpr):
    """The same tile, as a product with the identity matrix leaves it: not in shared memory."""
    rows, columns = tl.arange(0, BLOCK_D)[:, None], tl.arange(0, BLOCK_D)[None, :]
    identity = (rows == columns).to(tile.dtype)
    return tl.dot(tile, identity, input_precision="ieee").to(tile.dtype)  # exact


@triton.jit
def _queries_step(
    dq, q_tile, do_tile,  # [BLOCK_M, BLOCK_D]
    lse_log2, delta, offs_m,  # [BLOCK_M]
    k, v, bias, b, h, hk, start, sizes, MASK: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Add to dQ of BLOCK_M queries, before the scale, what BLOCK_N keys give it."""
    k_tile = _load_rows(k, b, hk, start, sizes.N, C.BLOCK_N, C)
    v_tile = _load_rows(v, b, hk, start, sizes.N, C.BLOCK_N, C)
    ds, slope = _scores_gradient(
        q_tile, k_tile, v_tile, do_tile, lse_log2, delta, offs_m, bias, b, h, start, sizes, MASK, C
    )
    ds = (ds * slope if C.CAP else ds).to(k_tile.dtype)
    return tl.dot(ds, k_tile, dq, input_precision="ieee")  # dQ + dS K


@triton.jit
def _scores_gradient(
    q_tile, k_tile, v_tile, do_tile, lse_log2, delta, offs_m, bias, b, h, start, sizes,
    MASK: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """dS [BLOCK_M, BLOCK_N], of scores as softmax gets them, and the slope of the soft cap."""
    s = tl.dot(q_tile, k_tile.T, input_precision="ieee")  # S = Q Kᵀ: [BLOCK_M, BLOCK_N]
    offs_n = start + tl.arange(0, C.BLOCK_N)  # [BLOCK_N]
    p, slope = _weights(
        s, lse_log2[:, None], offs_m, offs_n, bias, b, h, sizes, MASK, C, KEYS_FIRST=False
    )
    dp = tl.dot(do_tile, v_tile.T, input_precision="ieee")  # dP = dO Vᵀ: the same shape
    return p * (dp - delta[:, None]), slope


@triton.jit(do_not_specialize=["N", "M"])
def _bias_kernel(
    q, k, v, grad_out,  # pointers: [B, heads, rows, D]
    lse_log2, delta,  # [B · H, M]
    bias_ptr,  # [B, H, M, N]
    grad_bias_ptr,  # written: float32 [B or 1, H or 1, M or 1, N], contiguous
    stride_qb, stride_qh, stride_qm,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_gb, stride_gh, stride_gm,
    stride_bb, stride_bh, stride_bm, columns,
    stride_sums,
    B, H, G, M, N,
    causal_offset, left_offset,
    scale_log2, softcap,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ONE_BATCH: tl.constexpr,  # the bias has one batch, which all share
    ONE_HEAD: tl.constexpr,
    ONE_ROW: tl.constexpr,
):  # fmt: skip
    """One program computes the bias's gradient of BLOCK_M queries, or of all, and BLOCK_N keys.

    It sums dS over the batches, heads and queries that share the bias, in the same order each
    time, and computes each tile of dS anew.
    """
    LEFT: tl.constexpr = left_offset is not None
    CAP: tl.constexpr = softcap is not None
    C: tl.constexpr = Constants(D, BLOCK_M, BLOCK_N, BLOCK_D, CAUSAL, LEFT, CAP, True, False, False)
    left_offset, softcap = left_offset if LEFT else 0, softcap if CAP else 1.0
    sizes = Sizes(H, M, N, columns, causal_offset, left_offset, scale_log2, softcap)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    start = pid % tiles_n * BLOCK_N
    own = pid // tiles_n  # the batch, head and tile of queries of this part of the bias
    own_tile = 0 if ONE_ROW else own % tiles_m
    own_head = own if ONE_ROW else own // tiles_m
    own_b = own_head * 0 if ONE_BATCH else (own_head if ONE_HEAD else own_head // H)
    own_h = own_head * 0 if ONE_HEAD else own_head % H
    batches, heads, tiles = B if ONE_BATCH else 1, H if ONE_HEAD else 1, tiles_m if ONE_ROW else 1

    q, k = Rows(q, stride_qb, stride_qh, stride_qm), Rows(k, stride_kb, stride_kh, stride_kn)
    v = Rows(v, stride_vb, stride_vh, stride_vn)
    grad_out = Rows(grad_out, stride_gb, stride_gh, stride_gm)
    bias = Rows(bias_ptr, stride_bb, stride_bh, stride_bm)
    queries = Queries(q, grad_out, lse_log2, delta, stride_sums, 0, bias)
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, batches * heads * tiles):
        b, h = own_b + i // tiles // heads, own_h + i // tiles % heads
        first = (own_tile + i % tiles) * BLOCK_M
        offs_m = first + tl.arange(0, BLOCK_M)  # [BLOCK_M]
        head = b * H + h
        lse = _load_numbers(lse_log2, queries, head, first, M, C)
        delta_m = _load_numbers(delta, queries, head, first, M, C)
        q_tile = _load_rows(q, b, h, first, M, BLOCK_M, C)
        do_tile = _load_rows(grad_out, b, h, first, M, BLOCK_M, C)
        k_tile = _load_rows(k, b, h // G, start, N, BLOCK_N, C)
        v_tile = _load_rows(v, b, h // G, start, N, BLOCK_N, C)
        ds, _slope = _scores_gradient(
            q_tile, k_tile, v_tile, do_tile, lse, delta_m, offs_m, bias, b, h, start, sizes,
            True, C,
        )  # fmt: skip
        total += tl.where((offs_m < M)[:, None], ds, 0.0)
    offs_n = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    if ONE_ROW:
        tl.store(grad_bias_ptr + own.to(tl.int64) * N + offs_n, tl.sum(total, axis=0), offs_n < N)
    else:
        offs_m = own_tile * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
        place = (own_head.to(tl.int64) * M + offs_m)[:, None] * N + offs_n[None, :]
        tl.store(grad_bias_ptr + place, total, (offs_m < M)[:, None] & (offs_n < N)[None, :])


@triton.jit
def _sequence(tile, cu_ptr, cu_other_ptr, sequences, total, total_other, BLOCK: tl.constexpr):
    """The tile's number in its sequence; the sequence's rows, those on the other side, its number.

    Sequence i has the tiles from cu[i] // BLOCK + i on: enough for all its rows, wherever it
    begins. After the last comes one more, of the rows that belong to none: nothing sees them.
    Whatever the two arrays hold, nothing outside the tensors is read or written.
    """
    low, high = tile * 0, tile * 0 + sequences + 1
    while high - low > 1:  # the last sequence, from low on, whose tiles begin at this one or before
        step = tl.cdiv(high - low, PROBES)
        at = low + step * tl.arange(0, PROBES)  # [PROBES]: one wait for memory answers for all
        begun = tl.load(cu_ptr + at, mask=at < high, other=0) // BLOCK + at <= tile
        found = tl.sum((begun & (at < high)).to(tl.int32), axis=0)
        low += step * tl.maximum(found - 1, 0)
        high = tl.minimum(low + step, high)
    ours = low < sequences
    first = tl.maximum(tl.load(cu_ptr + low), 0)
    first_other = tl.maximum(tl.load(cu_other_ptr + low), 0)
    end = tl.maximum(tl.load(cu_ptr + low + 1, mask=ours, other=total), 0)
    end_other = tl.maximum(tl.load(cu_other_ptr + low + 1, mask=ours, other=0), 0)
    end, end_other = tl.minimum(end, total), tl.minimum(end_other, total_other)
    tile -= first // BLOCK + low
    rows = tl.where(tile < 0, 0, end - first)  # below 0: of rows before the first sequence
    tile = tl.maximum(tile, 0)
    others = tl.where(tile * BLOCK < rows, tl.maximum(end_other - first_other, 0), 0)
    return tile, first, rows, first_other, others, low


@triton.jit
def _seen_keys(M, N, causal_offset, left_offset, BOTTOM_RIGHT: tl.constexpr, C: tl.constexpr):
    """How many keys come before the first that a query of the sequence sees; how many it sees.

    And the offsets, counted from that key.
    """
    corner = N - M if BOTTOM_RIGHT else 0
    skipped = 0
    if C.CAUSAL:
        causal_offset += corner
        N = tl.minimum(N, tl.maximum(M + causal_offset, 0))
    if C.LEFT:
        skipped = tl.minimum(tl.maximum(left_offset + corner, 0), N)
        causal_offset, left_offset = causal_offset - skipped, left_offset + corner - skipped
        N -= skipped
    return skipped, N, causal_offset, left_offset


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
def _load_rows(
    rows, b, h, first, num_rows, BLOCK: tl.constexpr, C: tl.constexpr,
    BY_POINTER: tl.constexpr = False,
):  # fmt: skip
    """Rows first … first + BLOCK - 1 of a head, zeros beyond num_rows and D: [BLOCK, BLOCK_D]."""
    if C.USE_TMA and C.PACKED and not BY_POINTER:
        place = [WRAP, rows.batch, h, WRAP - num_rows + first, 0]
        tile = rows.x.load(place).reshape([BLOCK, C.BLOCK_D])
    elif C.USE_TMA and not BY_POINTER:  # the hardware finds the addresses, and knows the end
        tile = rows.x.load([b, h, first, 0]).reshape([BLOCK, C.BLOCK_D])
    else:
        x = rows.x + b.to(tl.int64) * rows.batch + h.to(tl.int64) * rows.head
        # int64: an offset may pass 2^31 elements
        offs_row = first + tl.arange(0, BLOCK).to(tl.int64)  # [BLOCK]
        offs_d = tl.arange(0, C.BLOCK_D)  # [BLOCK_D]
        mask = (offs_row < num_rows)[:, None] & (offs_d < C.D)[None, :]  # [BLOCK, BLOCK_D]
        tile = tl.load(x + offs_row[:, None] * rows.row + offs_d[None, :], mask=mask, other=0.0)
    return tile.to(tl.float32) if UPCAST and tile.dtype == tl.bfloat16 else tile


@triton.jit
def _load_numbers(x, queries, head, first, M, C: tl.constexpr):
    """The numbers of rows first … first + BLOCK_M - 1 of a head, zeros beyond M: [BLOCK_M]."""
    if C.USE_TMA:
        numbers = x.load([head, queries.first + first]).reshape([C.BLOCK_M])
    else:
        offs_m = first + tl.arange(0, C.BLOCK_M)  # [BLOCK_M]
        step = queries.step
        numbers = tl.load(x + head.to(tl.int64) * step + offs_m, mask=offs_m < M, other=0.0)
    return numbers


@triton.jit
def _hide(
    scores,  # [BLOCK_N, BLOCK_M], or [BLOCK_M, BLOCK_N]
    offs_m,  # of queries: [1, BLOCK_M], or [BLOCK_M, 1]
    offs_n,  # of keys: [BLOCK_N, 1], or [1, BLOCK_N]
    sizes,
    C: tl.constexpr,
):
    """The scores, with -inf where a query does not see a key."""
    seen = offs_n < sizes.N
    if C.CAUSAL:
        seen = seen & (offs_n <= offs_m + sizes.causal_offset)
    if C.LEFT:
        seen = seen & (offs_n >= offs_m + sizes.left_offset)
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def _store_rows(
    ptr,  # [rows, D]: contiguous
    grad,  # [BLOCK, BLOCK_D]
    head, heads, at, first, num_rows, BLOCK: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write rows first … first + BLOCK - 1 of a head; packed, of the sequence from row `at` on."""
    offs_row, offs_d = first + tl.arange(0, BLOCK), tl.arange(0, C.BLOCK_D)
    if at is None:
        place = (head.to(tl.int64) * num_rows + offs_row)[:, None] * C.D + offs_d[None, :]
    else:
        row = (at.to(tl.int64) + offs_row) * heads + head
        place = row[:, None] * C.D + offs_d[None, :]
    mask = (offs_row < num_rows)[:, None] & (offs_d < C.D)[None, :]  # [BLOCK, BLOCK_D]
    tl.store(ptr + place, grad.to(ptr.dtype.element_ty), mask=mask)


def _sinks_gradient(sinks, lse_log2, delta):
    """What all queries of a head give its sink, whose dP is 0: -Σ exp(sink - lse) Δ, [H]."""
    lse_log2, delta = (x.unflatten(0, (-1, sinks.shape[0])) for x in (lse_log2, delta))
    p = (sinks[:, None] * LOG2_E.value - lse_log2).clamp_(max=0.0).exp2_()  # the sink is in lse
    return -p.mul_(delta).sum((0, 2))  # of a packed batch, rows between sequences have a Δ of 0


def masks_and_packing_backward(
    q, k, v, out, lse, grad_out, *,
    scale=None, causal=False, align="bottom_right", window=(None, None), sinks=None, softcap=None,
    bias=None, cu_seqlens_q=None, cu_seqlens_k=None, grad_lse=None, want_grad_bias=False,
):  # fmt: skip
    """Gradients of masks_and_packing(q, k, v, …); no matrix of scores, but the bias's, if wanted.

    Source: Dao et al. 2022, https://arxiv.org/abs/2205.14135, algorithm 4

    Args:
        q, k, v: as masks_and_packing takes them.
        out: [..., H, M, D] or [total, H, D], what it returned, in q's dtype.
        lse: [..., H, M] or [H, total], float32, what it returned with return_lse.
        grad_out: the gradient for out, in q's dtype and shape.
        scale, causal, align, window, sinks, softcap, bias, cu_seqlens_q, cu_seqlens_k: as it was
            called with; scale at most 2^8. Weights are computed from the difference of scores and
            lse, which float32 rounds: around scores of 2^16 they are off by 1 to 6 %.
        grad_lse: as lse: the gradient for it, where that was used too.
        want_grad_bias: whether the bias's gradient is computed: a third pass over all scores.

    Returns:
        grad_q, grad_k, grad_v in the shapes and dtype of q, k and v; grad_sinks [H] and grad_bias
        in the bias's shape, both float32, or None. The same bits in each run.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
    """
    options = scale, causal, align, window, sinks, softcap, bias, cu_seqlens_q, cu_seqlens_k
    for error in _refusals(q, k, v, out, lse, grad_out, grad_lse, *options, want_grad_bias):
        raise error
    packed, shapes = cu_seqlens_q is not None, [x.shape for x in (q, k, v)]
    q, k, v, grad_out, out, seen, wide_bias, limits = _visible(
        q, k, v, grad_out, out, bias, causal, align, window, packed
    )
    (B, H, M, D), (_, Hkv, N, _) = q.shape, k.shape
    shared = _problem(q, k, wide_bias, limits, align, scale, softcap, cu_seqlens_q)
    strides = {}
    for name, x in (("q", q), ("k", k), ("v", v), ("g", grad_out), ("b", wide_bias)):
        steps = (None,) * 3 if x is None else x.stride()[:3]
        rows = "n" if name in "kv" else "m"
        strides |= dict(zip((f"stride_{name}{of}" for of in ("b", "h", rows)), steps, strict=True))
    use_tma = _can_use_tma(q, k, v, grad_out) and not (packed and max(M, N) > WRAP.value)
    gpu, hides = _architecture(q.device), limits[0] is not None
    for_keys, for_queries = _tiles(gpu, q.dtype, D, hides, bias is not None)
    if packed:  # all registers: a search comes first
        for_keys = for_keys._replace(maxnreg=None)
    masked = packed or limits != [None, None] or N % for_queries.BLOCK_N != 0
    tiles = _tiles_of(M, for_queries.BLOCK_M, cu_seqlens_q)
    # The logsumexp times log2(e), and Δ; rows begin at multiples of 16 bytes, as TMA needs. Packed,
    # a sequence has whole tiles of its own, so that nothing of its neighbor is read.
    size = tiles * for_queries.BLOCK_M if packed else -(-M // 4) * 4
    sums = q.new_empty((2, B * H, size), dtype=torch.float32)[..., : None if packed else M]
    strides["stride_sums"] = sums.stride(1)
    grad_q = q.new_empty(shapes[0])
    grad_k, grad_v = (
        q.new_empty(shape if packed else (*x.shape[:2], N, D))
        for x, shape in ((k, shapes[1]), (v, shapes[2]))
    )
    given = wide_bias, cu_seqlens_q, cu_seqlens_k
    loaded = functools.partial(_loaded, use_tma, packed)
    with torch.cuda.device_of(q):  # launch where the tensors are; does nothing for a CPU tensor
        _queries_kernel[(tiles * B * H,)](  # first: it leaves logsumexp and Δ for the others
            *loaded(for_queries, q, k, v, grad_out), out, lse, grad_lse, *given, *sums,
            grad_q, **strides,
            **dict(zip(("stride_ob", "stride_oh", "stride_om"), out.stride()[:3], strict=True)),
            together=_together(B * H, tiles // (shared["sequences"] or 1), hides), MASKED=masked,
            USE_TMA=use_tma, **shared, **_options(for_queries),
        )  # fmt: skip
        tiles = _tiles_of(N, for_keys.BLOCK_N, cu_seqlens_k)
        _keys_kernel[(tiles * B * Hkv,)](
            *loaded(for_keys, q, k, v, grad_out, *sums), *given, grad_k, grad_v,
            **strides, sums_block=for_queries.BLOCK_M if packed else None,
            together=_together(B * Hkv, tiles // (shared["sequences"] or 1), hides),
            USE_TMA=use_tma, **shared, **_options(for_keys),
        )  # fmt: skip
        grad_bias = None
        if want_grad_bias:
            grad_bias = _bias_gradient(q, k, v, grad_out, sums, bias, wide_bias, strides, shared)
    grad_sinks = None if sinks is None else _sinks_gradient(sinks, *sums)
    if not packed:
        outside = 0, 0, seen.start, shapes[1][-2] - seen.stop
        grad_k, grad_v = (
            x if seen == slice(0, shapes[1][-2]) else torch.nn.functional.pad(x, outside)
            for x in (grad_k, grad_v)
        )
        if grad_bias is not None and outside[2:] != (0, 0):
            grad_bias = torch.nn.functional.pad(grad_bias, outside[2:])
    return grad_q, grad_k.view(shapes[1]), grad_v.view(shapes[2]), grad_sinks, grad_bias


def _bias_gradient(q, k, v, grad_out, sums, bias, wide_bias, strides, shared):
    """[B or 1, H or 1, M or 1, N], float32: dS, summed over what shares the bias."""
    one_batch, one_head, one_row = (
        of == 1 < size for of, size in zip(bias.shape, q.shape[:3], strict=False)
    )
    (*parts, rows, _), N = bias.shape, k.shape[2]
    grad = torch.empty((*parts, rows, N), dtype=torch.float32, device=q.device)
    block_m, block_n = (16, 32) if q.shape[-1] > 128 or q.dtype == torch.float32 else (64, 64)
    programs = -(-N // block_n) * (1 if one_row else -(-rows // block_m)) * math.prod(parts)
    _bias_kernel[(programs,)](
        q, k, v, grad_out, *sums, wide_bias, grad, **strides, B=q.shape[0],
        **{name: shared[name] for name in _bias_kernel.arg_names if name in shared},
        BLOCK_M=block_m, BLOCK_N=block_n,
        ONE_BATCH=one_batch, ONE_HEAD=one_head, ONE_ROW=one_row, num_warps=4, num_stages=1,
    )  # fmt: skip
    return grad


def _visible(q, k, v, grad_out, out, bias, causal, align, window, packed):
    """All with four dimensions, without the keys that no query sees; which these are; the limits.

    Query m sees the keys up to m + limits[0] and from m + limits[1] on; None: no limit. Packed,
    they count from a sequence's own corner, and the kernels leave its keys out.
    """
    tensors = (q, k, v, grad_out, out)
    q, k, v, grad_out, out = (_four_dimensions(x, packed) for x in tensors)
    (*_, M, _), N = q.shape, k.shape[2]
    left, right = (window[0], 0) if causal else window
    corner = N - M if align == "bottom_right" and not packed else 0
    limits = [None if right is None else corner + right, None if left is None else corner - left]
    if packed:
        return q, k, v, grad_out, out, slice(0, N), None, limits
    begin = 0 if left is None else max(limits[1], 0)
    end = N if right is None else min(N, M + limits[0])
    bias = bias if bias is None else bias.expand(*q.shape[:3], N)[..., begin:end]
    limits = [x if x is None else x - begin for x in limits]
    k, v = k[:, :, begin:end], v[:, :, begin:end]
    return q, k, v, grad_out, out, slice(begin, end), bias, limits


def _four_dimensions(x, packed):
    """[..., heads, rows, D], or packed [rows, heads, D], as [B, heads, rows, D]."""
    return x.transpose(0, 1)[None] if packed else x[(None,) * (4 - x.dim())]


def _problem(q, k, bias, limits, align, scale, softcap, cu_seqlens_q):
    """What all kernels are told of sizes, scale and masks."""
    (_, H, M, D), (_, Hkv, N, _) = q.shape, k.shape
    scale = D**-0.5 if scale is None else float(scale)
    return {
        "H": H, "G": H // Hkv, "M": M, "N": N,
        "columns": None if bias is None else N,
        "sequences": None if cu_seqlens_q is None else len(cu_seqlens_q) - 1,
        "causal_offset": limits[0] or 0, "left_offset": limits[1],
        "scale": scale, "scale_log2": scale * LOG2_E.value,
        "softcap": None if softcap is None else float(softcap),
        "D": D, "BLOCK_D": 1 << (D - 1).bit_length(),  # the next power of two
        "CAUSAL": limits[0] is not None, "BOTTOM_RIGHT": align == "bottom_right",
    }  # fmt: skip


def _tiles_of(rows, block, cu_seqlens):
    """How many tiles rows are cut into: packed, enough for each sequence to begin a new one."""
    return -(-rows // block) if cu_seqlens is None else rows // block + len(cu_seqlens)


def _can_use_tma(*tensors):
    """Whether TMA can load all tensors: 16-byte aligned rows, on Hopper or later."""
    # Without tensor cores the tiles end in registers: pointers bring them there directly.
    hopper = _architecture(tensors[0].device) in ("sm_90", "sm_100")
    if not hopper or tensors[0].dtype == torch.float32:
        return False
    for x in tensors:
        steps = x.stride()
        if 0 in steps or x.data_ptr() % 16 or math.gcd(*steps[:-1]) * x.itemsize % 16:
            return False
    return True


class Descriptor(TensorDescriptor):
    """A descriptor of a tensor that was not refused, or that was made here."""

    def __post_init__(self):
        """Triton would check it again here, which takes longer than all else about it."""


def _loaded(use_tma, packed, tile, *tensors):
    """q, k, v, grad_out, and the sums of rows if given, as a kernel loads them.

    Packed, a descriptor gives zeros beyond the end of a sequence: there are two steps more, in
    front, and addresses have 64 bits. WRAP of the first lead back by WRAP rows, and so many of the
    second to where the sequence ends; the rows between are counted up to WRAP.

    Source: triton.tools.ragged_tma
    """
    if not use_tma:
        return tensors
    width = 1 << (tensors[0].shape[-1] - 1).bit_length()
    queries, keys = ([1, 1, block, width] for block in tile[:2])
    blocks = (queries, keys, keys, queries, [1, tile.BLOCK_M], [1, tile.BLOCK_M])
    found = [[x, x.shape, x.stride(), blocks[i]] for i, x in enumerate(tensors)]
    for i, (x, (_, heads, _, D), (_, head, row, _), block) in enumerate(found[: 4 * packed]):
        shape = [2**31 - 2**16, 2**31 - 2**16, heads, WRAP.value, D]
        found[i] = [x, shape, [2**34 - row, row, head, row, 1], [1, *block]]
    return [Descriptor(*x) for x in found]


def _options(tile):
    """What a kernel takes of a Tile: what is set."""
    return {name: value for name, value in tile._asdict().items() if value}


AT_ONCE = 256  # programs that start at one time, about


def _together(heads, tiles, causal):
    """How many heads start together: one, or with a causal mask as many as fill a GPU.

    Each has so many tiles; of a packed batch, those of a sequence on average. Then the last
    programs to start are short ones, of several heads. A divisor of `heads`.
    """
    if not causal:
        return 1
    return next((n for n in range(1, heads) if heads % n == 0 and n * tiles >= AT_ONCE), heads)


@functools.cache
def _architecture(device):
    """The part of TILES for a device; the interpreter plays a Hopper GPU."""
    if device.type == "cpu" or torch.version.hip:
        return "sm_90" if device.type == "cpu" else "gfx942"
    found = torch.cuda.get_device_capability(device)
    known = {(7, 5): "sm_75", (8, 0): "sm_80", (8, 7): "sm_80", (9, 0): "sm_90", (10, 0): "sm_100"}
    return known.get(found, "sm_89" if found > (7, 5) else f"capability {found}")


def _tiles(architecture, dtype, D, causal, bias=False):
    """The tile for dK and dV, and that for dQ: of the narrowest row that D columns fit in."""
    kind = "float32" if dtype == torch.float32 else architecture
    rows = TILES[kind]
    if bias and kind in BIASED and D <= 128:
        rows = BIASED[kind]
    elif bias:
        D = 256
    row = min((width for width in rows if width >= D), default=max(rows))
    for_keys, *for_queries = rows[row]
    return for_keys, for_queries[-1 if causal else 0]


DTYPES = (torch.float16, torch.bfloat16, torch.float32)
ROWS = ("q", "k", "v", "out", "grad_out")  # tensors of rows of D columns


def _refusals(
    q, k, v, out, lse, grad_out, grad_lse,
    scale, causal, align, window, sinks, softcap, bias, cu_q, cu_k, want_grad_bias,
):  # fmt: skip
    """What the kernels cannot do, in order: which argument, what came, what is allowed."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    packed = cu_q is not None or cu_k is not None
    ranks, layout = ((3,), "[total, heads, D]") if packed else ((2, 3, 4), "2 to 4 dimensions")
    own, single, whole = (getattr(q, "dtype", None),), (torch.float32,), (torch.int32,)
    table = [("q", q, DTYPES), ("k", k, own), ("v", v, own)]
    table += [("out", out, own), ("grad_out", grad_out, own), ("lse", lse, single)]
    maybe = [("sinks", sinks, single), ("bias", bias, own + single), ("grad_lse", grad_lse, single)]
    maybe += [("cu_seqlens_q", cu_q, whole), ("cu_seqlens_k", cu_k, whole)]
    table += [row for row in maybe if row[1] is not None]
    for name, x, dtypes in table:
        if not isinstance(x, torch.Tensor) or x.is_nested or x.layout != torch.strided:
            kind = "nested" if getattr(x, "is_nested", False) else getattr(x, "layout", type(x))
            yield TypeError(f"{name} is {kind}; allowed: a dense torch.Tensor")
        if x.dtype not in (dtypes if name not in ROWS else DTYPES):
            yield TypeError(f"{name} is {x.dtype}; allowed: {DTYPES if name in ROWS else dtypes}")
        if x.dtype not in dtypes or x.device != q.device:
            wanted = f"{q.dtype} on {q.device}" if name in ROWS else q.device
            yield TypeError(f"{name} is {x.dtype} on {x.device}; allowed: {wanted}")
        if x.numel() == 0 or x.dim() == 0 or (name in ROWS and x.dim() not in ranks):
            allowed = f"{layout if name in ROWS else 'a dimension at least'}, none 0"
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed: {allowed}")
        if x.requires_grad and torch.is_grad_enabled():
            yield ValueError(f"{name} requires grad, but has no backward; allowed: torch.no_grad()")
        if x.is_neg():  # its memory holds the opposite sign
            yield ValueError(f"{name} is a negated view; allowed: {name}.resolve_neg()")
        if x.stride()[-1:] != (1,):
            allowed = "contiguous" if name.endswith("lse") else "the last 1, others any"
            yield ValueError(f"{name} has strides {x.stride()}; allowed: {allowed}")
    ends = [getattr(x, "shape", None) for x in (cu_q, cu_k)]
    if packed and (ends[0] != ends[1] or len(ends[0]) != 1 or ends[0][0] < 2):
        allowed = "both or none, [sequences + 1] each"
        yield ValueError(f"cu_seqlens_q and cu_seqlens_k have shapes {ends}; allowed: {allowed}")
    (*heads, M, D), (*heads_k, N, _) = q.shape, k.shape  # [B, H], [H] or []
    keys = *heads[:-1], *(heads_k[-1:] or [1])[: len(heads)], N, D
    if packed:
        (M, *heads, D), (N, *heads_k, _) = q.shape, k.shape
        keys = N, *heads_k, D
    (B, H), Hkv = ([1, 1, *heads][-2:] if not packed else (1, heads[-1])), [1, *heads_k][-1]
    shapes = {"k": keys, "v": keys, "sinks": (H,)}
    rows = q.shape[1::-1] if packed else q.shape[:-1]
    shapes |= {"out": q.shape, "grad_out": q.shape, "lse": rows, "grad_lse": rows}
    for name, x, _ in table:
        if x.shape != shapes.get(name, x.shape):
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed with q: {(*shapes[name],)}")
        if name in ("lse", "grad_lse") and not x.is_contiguous():
            yield ValueError(f"{name} has strides {x.stride()}; allowed: contiguous")
    if D % 8 or not 16 <= D <= 256:
        yield ValueError(f"q has {D} columns; allowed: 16 to 256 in steps of 8")
    if H % Hkv:
        yield ValueError(f"q has {H} heads and k {Hkv}; allowed: a multiple of k's")
    if max(q.numel(), k.numel()) // D >= 2**31:
        yield ValueError(f"q and k have shapes {q.shape} and {k.shape}; allowed: under 2^31 rows")
    if bias is not None:
        found, sizes = (*bias.shape,), ((1, B), (1, H), (1, M), (N,))
        fits = len(found) == 4 and all(x in y for x, y in zip(found, sizes, strict=True))
        if packed or not fits:
            allowed = "[B or 1, H or 1, M or 1, N], and no cu_seqlens"
            yield ValueError(f"bias has shape {found}; allowed: {allowed}")
    for name, x in (("causal", causal), ("want_grad_bias", want_grad_bias)):
        if not isinstance(x, bool):
            yield TypeError(f"{name} is {x!r}; allowed: True, False")
    if want_grad_bias and bias is None:
        yield ValueError("want_grad_bias is True, and bias None; allowed: False")
    if not isinstance(align, str) or align not in ("bottom_right", "top_left"):
        yield ValueError(f"align is {align!r}; allowed: 'bottom_right', 'top_left'")
    sides = window if isinstance(window, (tuple, list)) else ()
    if len(sides) != 2 or not all(x is None or (type(x) is int and 0 <= x < 2**30) for x in sides):
        yield ValueError(f"window is {window!r:.60}; allowed: two of None and whole numbers from 0")
    for name, x, low, high in (("scale", scale, -64, 8), ("softcap", softcap, -20, 10)):
        if x is not None and (isinstance(x, bool) or not isinstance(x, numbers.Real)):
            yield TypeError(f"{name} is {x!r:.40}; allowed: a number or None")
        if x is not None and not (x >= 2.0**low and 1 / x >= 2.0**-high):  # float16 has no 2^64
            yield ValueError(f"{name} is {x!r:.40}; allowed: 2^{low} to 2^{high}")
    if q.device.type != "cuda" and not (q.is_cpu and INTERPRETED):
        yield ValueError(f"q is on {q.device}; allowed: a GPU, or a CPU with TRITON_INTERPRET=1")
    gpu = _architecture(q.device)
    if max(TILES.get(gpu, [0])) < D or (gpu, q.dtype) == ("sm_75", torch.bfloat16):
        needs = "sm_75 for 128 columns of float16 or float32, or a newer GPU"
        yield ValueError(f"q is {q.dtype} with {D} columns on {gpu}; allowed: {needs}")


def main():
    """Check the gradients against eager PyTorch in float64; time them where there is a GPU."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, grad_out = torch.randn(2, 1, 4, 200, 64, device=device).half()  # [B, H, M, D] each
    k, v = torch.randn(2, 1, 2, 333, 64, device=device).half()  # [B, Hkv, N, D] each
    sinks = torch.randn(4, device=device)
    leaves = [x.double().requires_grad_() for x in (q, k, v, sinks)]
    wide = [x.repeat_interleave(2, dim=1) for x in leaves[1:3]]
    scores = (leaves[0] @ wide[0].mT / 8 / 20).tanh() * 20  # [B, H, M, N]
    own = torch.arange(200, device=device)[:, None] + 133  # the key that belongs to a query
    keys = torch.arange(333, device=device)
    scores = scores.masked_fill((keys > own) | (keys < own - 100), float("-inf"))
    scores = torch.cat([scores, leaves[3][None, :, None, None].expand(1, 4, 200, 1)], -1)
    out = scores.softmax(-1)[..., :-1] @ wide[1]
    want = torch.autograd.grad(out, leaves, grad_out.double())
    print(f"q {(*q.shape,)}, k and v {(*k.shape,)}, {q.dtype} on {device}")
    given = q, k, v, out.detach().half(), scores.detach().logsumexp(-1).float(), grad_out
    options = {"causal": True, "window": (100, None), "sinks": sinks, "softcap": 20.0}
    found = masks_and_packing_backward(*given, **options)[:4]
    errors = [(x.double() - y).norm() / y.norm() for x, y in zip(found, want, strict=True)]
    # Each gradient is rounded once, from sums of weights that were rounded to float16 themselves.
    right = all(error <= 2 * torch.finfo(q.dtype).eps for error in errors)
    print("of q, k, v and sinks they differ by", *(f"{error:.1e}" for error in errors))
    if device == "cuda":
        run = functools.partial(masks_and_packing_backward, *given, **options)
        ms = triton.testing.do_bench(run, return_mode="median")
        print(f"masks_and_packing_backward: {ms * 1000:.1f} µs")
    print("OK" if right else "WRONG: that is not rounding")
    return int(not right)


if __name__ == "__main__":
    raise SystemExit(main())
