"""The gradients of attention, from its output and the logsumexp of its rows: no M × N matrix.

float16, bfloat16 or float32 (on CUDA cores), 16 to 256 columns in steps of 8, the columns of a row
side by side; NVIDIA GPUs from capability 7.5 on, AMD's gfx942. Each call gives the same bits.
Run it alone: `python kernel.py` checks it against PyTorch, on a CPU too.
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
# causal mask a third in its place. Those of sm_90 for D 64 and 128 are the fastest that we timed on
# an H200; the others fit.
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
    "float32": {  # on every architecture, CUDA cores; one_pass.py is faster and not deterministic
        64: (Tile(32, 32, 8, 1), Tile(32, 32, 8, 1)),
        128: (Tile(16, 32, 8, 1), Tile(16, 16, 8, 1)),
        256: (Tile(16, 16, 8, 1), Tile(16, 16, 8, 1)),
    },
}


# N, M or G = 1 as a constant: the first two crash the assembler of Triton 3.6.0, and with the
# third the loop over heads is gone, whereupon the assembler waits for each product on its own.
@triton.jit(do_not_specialize=["N", "M", "G"])
def _flash_backward_kernel(
    q, k, v, grad_out,  # descriptors of [B, heads, rows, D], or pointers to the first element
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
    ADD: tl.constexpr,  # to what is in grad_k and grad_v already
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
    C: tl.constexpr = Constants(D, BLOCK_M, BLOCK_N, BLOCK_D, CAUSAL, USE_TMA)
    sizes = Sizes(H, M, N, causal_offset, scale_log2)
    head, tile_idx = _place(tl.cdiv(N, BLOCK_N), together, LAST_FIRST=False)
    b, hk = head // (H // G), head % (H // G)
    h_first, h_end = hk * G, hk * G + G  # the query heads that share it
    first_key = tile_idx * BLOCK_N
    first_tile, whole_tile = _first_queries(first_key, sizes, C)

    queries = Queries(
        Rows(q, stride_qb, stride_qh, stride_qm), Rows(grad_out, stride_gb, stride_gh, stride_gm),
        lse_log2, delta, stride_sums,
    )  # fmt: skip
    k_tile = _load_rows(Rows(k, stride_kb, stride_kh, stride_kn), b, hk, first_key, N, BLOCK_N, C)
    v_tile = _load_rows(Rows(v, stride_vb, stride_vh, stride_vn), b, hk, first_key, N, BLOCK_N, C)
    dk = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)

    if CAUSAL:  # the few tiles that need a mask, of all query heads of the group
        count = whole_tile - first_tile
        for i in range(0, (h_end - h_first) * count):
            h, tile = h_first + i // count, first_tile + i % count
            dk, dv, _dst = _keys_step(
                dk, dv, k_tile, v_tile, queries, b, h, tile * BLOCK_M, first_key, sizes, True, C
            )
    for g in range(0, h_end - h_first):
        for tile in range(whole_tile, tl.cdiv(M, BLOCK_M)):
            h = h_first + g
            dk, dv, _dst = _keys_step(
                dk, dv, k_tile, v_tile, queries, b, h, tile * BLOCK_M, first_key, sizes, False, C
            )
    _store_rows(grad_k_ptr, dk * scale, head, first_key, N, BLOCK_N, ADD, C)
    _store_rows(grad_v_ptr, dv, head, first_key, N, BLOCK_N, ADD, C)


class Rows(NamedTuple):
    """A tensor [B, heads, rows, D], and the steps between its parts."""

    x: Any  # a TMA descriptor, or a pointer to the first element
    batch: Any
    head: Any
    row: Any


class Queries(NamedTuple):
    """What a step for dK and dV reads of the queries."""

    q: Any  # Rows
    grad_out: Any  # Rows
    lse_log2: Any  # descriptors of [B · H, M], or pointers
    delta: Any
    step: Any  # from head to head of these two


class Sizes(NamedTuple):
    """What a step needs to know of the whole problem."""

    H: Any  # heads of queries
    M: Any  # queries
    N: Any  # keys
    causal_offset: Any
    scale_log2: Any


class Constants(NamedTuple):
    """What is known when a kernel is compiled."""

    D: Any
    BLOCK_M: Any
    BLOCK_N: Any
    BLOCK_D: Any
    CAUSAL: Any
    USE_TMA: Any


@triton.jit
def _first_queries(first_key, sizes, C: tl.constexpr):
    """The first tile with a query that sees a key from first_key on; the first that sees them all.

    All of the BLOCK_N keys of a program.
    """
    first_tile, whole_tile = 0, 0
    if C.CAUSAL:
        num_tiles = tl.cdiv(sizes.M, C.BLOCK_M)
        first_seen = tl.maximum(first_key - sizes.causal_offset, 0)
        all_seen = tl.maximum(first_key + C.BLOCK_N - 1 - sizes.causal_offset, 0)
        first_tile = tl.minimum(first_seen // C.BLOCK_M, num_tiles)
        whole_tile = tl.minimum(tl.cdiv(all_seen, C.BLOCK_M), num_tiles)
    return first_tile, whole_tile


@triton.jit
def _keys_step(
    dk, dv, k_tile, v_tile,  # [BLOCK_N, BLOCK_D]
    queries, b, h, first, first_key, sizes, MASK: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Add to dK and dV of BLOCK_N keys what BLOCK_M queries give them; return dSᵀ as well."""
    q_tile = _load_rows(queries.q, b, h, first, sizes.M, C.BLOCK_M, C)
    do_tile = _load_rows(queries.grad_out, b, h, first, sizes.M, C.BLOCK_M, C)
    head = b * sizes.H + h
    lse_row = _load_numbers(queries.lse_log2, queries.step, head, first, sizes.M, C)
    st = tl.dot(k_tile, q_tile.T, input_precision="ieee")  # Sᵀ = K Qᵀ: [BLOCK_N, BLOCK_M]
    if MASK:
        offs_m, offs_n = first + tl.arange(0, C.BLOCK_M), first_key + tl.arange(0, C.BLOCK_N)
        st = _hide(st, offs_m[None, :], offs_n[:, None], sizes, C)
    pt = tl.exp2(st * sizes.scale_log2 - lse_row[None, :])  # the forward's weights, again
    dpt = tl.dot(v_tile, do_tile.T, input_precision="ieee")  # dPᵀ = V dOᵀ: the same shape
    delta_row = _load_numbers(queries.delta, queries.step, head, first, sizes.M, C)
    dst = (pt * (dpt - delta_row[None, :])).to(q_tile.dtype)
    dv = tl.dot(pt.to(do_tile.dtype), do_tile, dv, input_precision="ieee")  # dV + Pᵀ dO
    dk = tl.dot(dst, q_tile, dk, input_precision="ieee")  # dK + dSᵀ Q
    return dk, dv, dst


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
    KEEP: tl.constexpr = False,  # as in Tile
):  # fmt: skip
    """One program computes BLOCK_M rows of dQ of one head.

    Reads its queries, O, dO and logsumexp once, and leaves Δ in memory for the kernel above; then,
    BLOCK_N at a time, the keys and values that its queries see. Nobody else adds to its rows.
    """
    C: tl.constexpr = Constants(D, BLOCK_M, BLOCK_N, BLOCK_D, CAUSAL, USE_TMA)
    sizes = Sizes(H, M, N, causal_offset, scale_log2)
    head, tile_idx = _place(tl.cdiv(M, BLOCK_M), together, LAST_FIRST=CAUSAL)
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

    q_tile = _load_rows(Rows(q, stride_qb, stride_qh, stride_qm), b, h, first, M, BLOCK_M, C)
    do_tile = _load_rows(
        Rows(grad_out, stride_gb, stride_gh, stride_gm), b, h, first, M, BLOCK_M, C
    )
    BY_POINTER: tl.constexpr = Constants(D, BLOCK_M, BLOCK_N, BLOCK_D, CAUSAL, False)
    out = _load_rows(
        Rows(out_ptr, stride_ob, stride_oh, stride_om), b, h, first, M, BLOCK_M, BY_POINTER
    )
    lse_log2, delta = _sums_of_rows(
        out, do_tile, lse_ptr, grad_lse_ptr, lse_log2_ptr, delta_ptr, head, offs_m, M, stride_sums
    )
    if KEEP:
        q_tile, do_tile = _in_registers(q_tile, BLOCK_D), _in_registers(do_tile, BLOCK_D)

    k, v = Rows(k, stride_kb, stride_kh, stride_kn), Rows(v, stride_vb, stride_vh, stride_vn)
    dq = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start in range(0, whole_end, BLOCK_N):
        dq = _queries_step(
            dq, q_tile, do_tile, lse_log2, delta, offs_m, k, v, b, hk, start, sizes, False, C
        )
    if MASKED:
        for start in range(whole_end, end, BLOCK_N):
            dq = _queries_step(
                dq, q_tile, do_tile, lse_log2, delta, offs_m, k, v, b, hk, start, sizes, True, C
            )
    _store_rows(grad_q_ptr, dq * scale, head, first, M, BLOCK_M, ADD, C)


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
def _in_registers(tile, BLOCK_D: tl.constexpr):
    """The same tile, as a product with the identity matrix leaves it: not in shared memory."""
    rows, columns = tl.arange(0, BLOCK_D)[:, None], tl.arange(0, BLOCK_D)[None, :]
    identity = (rows == columns).to(tile.dtype)
    return tl.dot(tile, identity, input_precision="ieee").to(tile.dtype)  # exact


@triton.jit
def _queries_step(
    dq, q_tile, do_tile,  # [BLOCK_M, BLOCK_D]
    lse_log2, delta, offs_m,  # [BLOCK_M]
    k, v, b, hk, start, sizes, MASK: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Add to dQ of BLOCK_M queries, before the scale, what BLOCK_N keys give it."""
    k_tile = _load_rows(k, b, hk, start, sizes.N, C.BLOCK_N, C)
    v_tile = _load_rows(v, b, hk, start, sizes.N, C.BLOCK_N, C)
    s = tl.dot(q_tile, k_tile.T, input_precision="ieee")  # S = Q Kᵀ: [BLOCK_M, BLOCK_N]
    if MASK:
        offs_n = start + tl.arange(0, C.BLOCK_N)  # [BLOCK_N]
        s = _hide(s, offs_m[:, None], offs_n[None, :], sizes, C)
    p = tl.exp2(s * sizes.scale_log2 - lse_log2[:, None])
    dp = tl.dot(do_tile, v_tile.T, input_precision="ieee")  # dP = dO Vᵀ: the same shape
    ds = (p * (dp - delta[:, None])).to(k_tile.dtype)
    return tl.dot(ds, k_tile, dq, input_precision="ieee")  # dQ + dS K


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
def _load_rows(rows, b, h, first, num_rows, BLOCK: tl.constexpr, C: tl.constexpr):
    """Rows first … first + BLOCK - 1 of a head, zeros beyond num_rows and D: [BLOCK, BLOCK_D]."""
    if C.USE_TMA:  # the hardware finds the addresses, and knows where the tensor ends
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
def _load_numbers(x, step, head, first, M, C: tl.constexpr):
    """The numbers of rows first … first + BLOCK_M - 1 of a head, zeros beyond M: [BLOCK_M]."""
    if C.USE_TMA:
        numbers = x.load([head, first]).reshape([C.BLOCK_M])
    else:
        offs_m = first + tl.arange(0, C.BLOCK_M)  # [BLOCK_M]
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
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def _store_rows(
    ptr,  # [heads, num_rows, D]: contiguous
    grad,  # [BLOCK, BLOCK_D]
    head, first, num_rows, BLOCK: tl.constexpr, ADD: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write, or add to what is there, the rows first … first + BLOCK - 1 of a head."""
    offs_row, offs_d = first + tl.arange(0, BLOCK), tl.arange(0, C.BLOCK_D)
    place = (head.to(tl.int64) * num_rows + offs_row)[:, None] * C.D + offs_d[None, :]
    mask = (offs_row < num_rows)[:, None] & (offs_d < C.D)[None, :]  # [BLOCK, BLOCK_D]
    if ADD:
        grad += tl.load(ptr + place, mask=mask, other=0.0)
    tl.store(ptr + place, grad.to(ptr.dtype.element_ty), mask=mask)


def flash_backward(
    q, k, v, out, lse, grad_out, *,
    scale=None, causal=False, align="bottom_right", grad_lse=None, into=None,
):  # fmt: skip
    """Gradients of softmax(q kᵀ · scale) v for q, k and v; no matrix of scores ever exists.

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
        grad_lse: [..., H, M], float32: the gradient for lse, where that was used too.
        into: three contiguous float32 tensors of the shapes of q, k and v, to be added to.

    Returns:
        grad_q, grad_k, grad_v in the shapes and dtype of q, k and v, with the same bits in each
        run; with `into` those tensors. A row without keys gets zeros.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.

    Source: Dao et al. 2022, https://arxiv.org/abs/2205.14135, algorithm 4
    """
    for error in _refusals(q, k, v, out, lse, grad_out, grad_lse, scale, causal, align, into):
        raise error
    results = tuple(into or (x.new_empty(x.shape) for x in (q, k, v)))
    tensors = q, k, v, grad_out, out
    tensors, strides, sums, problem = _problem(tensors, scale, causal, align, into is not None)
    (B, H, M, D), (_, Hkv, N, _) = tensors[0].shape, tensors[1].shape
    for_keys, for_queries = _tiles(_architecture(q.device), q.dtype, D, causal)
    with torch.cuda.device_of(q):  # launch where the tensors are; does nothing for a CPU tensor
        tiles = -(-M // for_queries.BLOCK_M)
        _grad_q_kernel[(tiles * B * H,)](  # first: it leaves logsumexp and Δ for the other
            *_loaded(for_queries, problem, *tensors[:4]), tensors[4], lse, grad_lse, *sums,
            results[0], *strides, sums.stride(1), together=_together(B * H, tiles, causal),
            MASKED=causal or N % for_queries.BLOCK_N != 0, **problem, **_options(for_queries),
        )  # fmt: skip
        tiles = -(-N // for_keys.BLOCK_N)
        _flash_backward_kernel[(tiles * B * Hkv,)](
            *_loaded(for_keys, problem, *tensors[:4], *sums), *results[1:],
            *strides[:12], sums.stride(1), together=_together(B * Hkv, tiles, causal),
            **problem, **_options(for_keys),
        )  # fmt: skip
    return results


def _problem(tensors, scale, causal, align, add):
    """q, k, v, grad_out and out with four dimensions, their strides, memory for two numbers of each
    row, and what both kernels are told of sizes, scale and mask.
    """
    if (missing := 4 - tensors[0].dim()) > 0:
        tensors = [x[(None,) * missing] for x in tensors]
    (B, H, M, D), (_, Hkv, N, _) = tensors[0].shape, tensors[1].shape
    strides = [step for x in tensors for step in x.stride()[:3]]
    # The logsumexp times log2(e), and Δ; rows begin at multiples of 16 bytes, as TMA needs.
    sums = tensors[0].new_empty((2, B * H, -(-M // 4) * 4), dtype=torch.float32)[..., :M]
    scale = D**-0.5 if scale is None else float(scale)
    problem = {
        "H": H, "G": H // Hkv, "M": M, "N": N,
        "causal_offset": N - M if align == "bottom_right" else 0,
        "scale": scale, "scale_log2": scale * LOG2_E.value,
        "D": D, "BLOCK_D": 1 << (D - 1).bit_length(),  # the next power of two
        "CAUSAL": causal, "ADD": add, "USE_TMA": _can_use_tma(*tensors[:4]),
    }  # fmt: skip
    return tensors, strides, sums, problem


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


def _loaded(tile, problem, *tensors):
    """q, k, v, grad_out, and the sums of rows if given, as a kernel loads them."""
    if not problem["USE_TMA"]:
        return tensors
    queries, keys = ([1, 1, block, problem["BLOCK_D"]] for block in tile[:2])
    blocks = (queries, keys, keys, queries, [1, tile.BLOCK_M], [1, tile.BLOCK_M])
    return [Descriptor(x, x.shape, x.stride(), blocks[i]) for i, x in enumerate(tensors)]


def _options(tile):
    """What a kernel takes of a Tile: what is set."""
    return {name: value for name, value in tile._asdict().items() if value}


AT_ONCE = 256  # programs that start at one time, about


def _together(heads, tiles, causal):
    """How many heads start together: one, or with a causal mask as many as fill a GPU.

    Then the last programs to start are short ones, of several heads. A divisor of `heads`.
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


def _tiles(architecture, dtype, D, causal):
    """The tile for dK and dV, and that for dQ: of the narrowest row that D columns fit in."""
    rows = TILES["float32" if dtype == torch.float32 else architecture]
    for_keys, *for_queries = rows[min(width for width in rows if D <= width)]
    return for_keys, for_queries[-1 if causal else 0]


DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def _refusals(q, k, v, out, lse, grad_out, grad_lse, scale, causal, align, into):
    """What the kernels cannot do, in order: which argument, what came, what is allowed."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    every = (("q", q), ("k", k), ("v", v), ("out", out), ("grad_out", grad_out))
    for name, x in every:
        if not isinstance(x, torch.Tensor) or x.is_nested or x.layout != torch.strided:
            kind = "nested" if getattr(x, "is_nested", False) else getattr(x, "layout", type(x))
            yield TypeError(f"{name} is {kind}; allowed: a dense torch.Tensor")
        if x.dtype not in DTYPES:
            yield TypeError(f"{name} is {x.dtype}; allowed: {DTYPES}")
        if (x.dtype, x.device) != (q.dtype, q.device):
            yield TypeError(f"{name} is {x.dtype} on {x.device}; allowed: {q.dtype} on {q.device}")
        if not 2 <= x.dim() <= 4 or x.numel() == 0:
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed: 2 to 4 dimensions, none 0")
        if x.requires_grad and torch.is_grad_enabled():
            yield ValueError(f"{name} requires grad, but has no backward; allowed: torch.no_grad()")
        if x.is_neg():  # its memory holds the opposite sign
            yield ValueError(f"{name} is a negated view; allowed: {name}.resolve_neg()")
        if x.stride(-1) != 1:
            yield ValueError(f"{name} has strides {x.stride()}; allowed: the last 1, others any")
    (*heads, _, D), (*heads_k, N, _) = q.shape, k.shape  # [B, H], [H] or []
    if D % 8 or not 16 <= D <= 256:
        yield ValueError(f"q has {D} columns; allowed: 16 to 256 in steps of 8")
    keys = *heads[:-1], *(heads_k[-1:] or [1])[: len(heads)], N, D
    for (name, x), shape in zip(every, (q.shape, keys, keys, q.shape, q.shape), strict=True):
        if x.shape != shape:
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed with q and k: {(*shape,)}")
    if heads and heads[-1] % heads_k[-1]:
        yield ValueError(f"q has {heads[-1]} heads and k {heads_k[-1]}; allowed: a multiple of k's")
    if max(q.numel(), k.numel()) // D >= 2**31:
        yield ValueError(f"q and k have shapes {q.shape} and {k.shape}; allowed: under 2^31 rows")
    yield from _option_refusals(q, keys, lse, grad_lse, scale, causal, align, into)
    if q.device.type != "cuda" and not (q.is_cpu and INTERPRETED):
        yield ValueError(f"q is on {q.device}; allowed: a GPU, or a CPU with TRITON_INTERPRET=1")
    on, half = _architecture(q.device), q.dtype != torch.bfloat16  # which an sm_75 has not
    if D > max(TILES.get(on, ()), default=0) or not (half or on != "sm_75"):
        what = f"{q.dtype} with {D} columns on a GPU of {on}"
        yield ValueError(f"q is {what}; allowed: sm_75, without bfloat16 up to 128, or newer")


def _option_refusals(q, keys, lse, grad_lse, scale, causal, align, into):
    """The same of what is float32, and of what is no tensor."""
    if into is not None and (not isinstance(into, (tuple, list)) or len(into) != 3):
        yield TypeError(f"into is {into!r:.40}; allowed: three tensors, for q, k and v, or None")
    single = [("lse", lse, q.shape[:-1])]
    single += [("grad_lse", grad_lse, q.shape[:-1])] * (grad_lse is not None)
    single += [(f"into[{i}]", x, (q.shape, keys, keys)[i]) for i, x in enumerate(into or ())]
    for name, x, shape in single:
        found = (getattr(x, "dtype", type(x)), getattr(x, "device", None))
        if not isinstance(x, torch.Tensor) or found != (torch.float32, q.device):
            yield TypeError(f"{name} is {found[0]} on {found[1]}; allowed: float32 on {q.device}")
        if x.shape != shape or not x.is_contiguous():
            found = f"shape {(*x.shape,)} and strides {x.stride()}"
            yield ValueError(f"{name} has {found}; allowed: {(*shape,)}, contiguous")
    if not isinstance(causal, bool):
        yield TypeError(f"causal is {causal!r}; allowed: True, False")
    if not isinstance(align, str) or align not in ("bottom_right", "top_left"):
        yield ValueError(f"align is {align!r}; allowed: 'bottom_right', 'top_left'")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, numbers.Real)):
        yield TypeError(f"scale is {scale!r:.40}; allowed: a number or None")
    if scale is not None and not (scale > 0 and 2.0**-64 <= scale <= 2.0**8):
        yield ValueError(f"scale is {scale!r:.40}; allowed for gradients: 2^-64 to 2^8")


def main():
    """Check the gradients against eager PyTorch in float64; time them where there is a GPU."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, grad_out = torch.randn(2, 2, 4, 200, 64, device=device).half()  # [B, H, M, D] each
    k, v = torch.randn(2, 2, 2, 333, 64, device=device).half()  # [B, Hkv, N, D] each
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    scores = leaves[0] @ leaves[1].repeat_interleave(2, dim=1).mT * 64**-0.5  # [B, H, M, N]
    out = scores.softmax(-1) @ leaves[2].repeat_interleave(2, dim=1)
    want = torch.autograd.grad(out, leaves, grad_out.double())
    print(f"q {(*q.shape,)}, k and v {(*k.shape,)}, {q.dtype} on {device}")
    given = q, k, v, out.detach().half(), scores.detach().logsumexp(-1).float(), grad_out
    found = flash_backward(*given)
    errors = [(x.double() - y).norm() / y.norm() for x, y in zip(found, want, strict=True)]
    # Each gradient is rounded once, from sums of weights that were rounded to float16 themselves.
    right = all(error <= 2 * torch.finfo(q.dtype).eps for error in errors)
    print("grad_q, grad_k, grad_v differ from float64 by", *(f"{error:.1e}" for error in errors))
    if device == "cuda":
        ms = triton.testing.do_bench(lambda: flash_backward(*given), return_mode="median")
        print(f"flash_backward: {ms * 1000:.1f} µs")
    print("OK" if right else "WRONG: that is not rounding")
    return int(not right)


if __name__ == "__main__":
    raise SystemExit(main())
