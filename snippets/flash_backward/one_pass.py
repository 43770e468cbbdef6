"""The backward in one pass and five products: what a program finds of dQ, it adds to a sum.

Takes what flash_backward takes, and is made of the parts of its file. In 16 bits on an H200 two
passes are faster. The sum has no fixed order: the last bits of dQ differ from call to call.
"""

import torch
import triton
import triton.language as tl

from .kernel import (
    INTERPRETED,
    Constants,
    Descriptor,
    Queries,
    Rows,
    Sizes,
    _architecture,
    _first_queries,
    _keys_step,
    _load_rows,
    _loaded,
    _options,
    _place,
    _problem,
    _refusals,
    _store_rows,
    _sums_of_rows,
    _tiles,
    _together,
)

ROWS = 64  # rows of a program that prepares
NUMBERS = 4096  # of a program that finishes
TMA_ADDS = not INTERPRETED  # the interpreter loads through descriptors, but does not add
TMA_WIDTH = 32  # columns of float32 that TMA adds at once: 128 bytes
TMA_ROWS = 256  # and rows at most
APART = True  # programs of a head begin at different queries


# N, M and G are never constants, as in _flash_backward_kernel.
@triton.jit(do_not_specialize=["N", "M", "G"])
def _one_pass_kernel(
    q, k, v, grad_out,  # descriptors of [B, heads, rows, D], or pointers
    lse_log2, delta,  # descriptors of [B · H, M], or pointers
    total,  # the sum of dQ, a descriptor or a pointer
    grad_k_ptr, grad_v_ptr,  # [B, Hkv, N, D]: contiguous
    stride_qb, stride_qh, stride_qm,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_gb, stride_gh, stride_gm,
    stride_sums,
    H, G, together, M, N, causal_offset, scale, scale_log2,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,  # causal, or N is no multiple of BLOCK_N
    ADD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    USE_TMA: tl.constexpr,
    WIDTH: tl.constexpr,  # columns of the descriptor of the sum of dQ; 0: a pointer
    APART: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_N rows of dK and dV of one head, and their share of dQ."""
    C: tl.constexpr = Constants(D, BLOCK_M, BLOCK_N, BLOCK_D, CAUSAL, USE_TMA)
    sizes = Sizes(H, M, N, causal_offset, scale_log2)
    head, tile_idx = _place(tl.cdiv(N, BLOCK_N), together, LAST_FIRST=False)
    b, hk = head // (H // G), head % (H // G)
    first_key = tile_idx * BLOCK_N
    first_tile, whole_tile = _first_queries(first_key, sizes, C)
    num_tiles = tl.cdiv(M, BLOCK_M)
    if MASKED and first_key + BLOCK_N > N:  # a row beyond N must add nothing to dQ
        whole_tile = num_tiles
    queries = Queries(
        Rows(q, stride_qb, stride_qh, stride_qm), Rows(grad_out, stride_gb, stride_gh, stride_gm),
        lse_log2, delta, stride_sums,
    )  # fmt: skip
    k_tile = _load_rows(Rows(k, stride_kb, stride_kh, stride_kn), b, hk, first_key, N, BLOCK_N, C)
    v_tile = _load_rows(Rows(v, stride_vb, stride_vh, stride_vn), b, hk, first_key, N, BLOCK_N, C)
    dk = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    if MASKED:
        count = whole_tile - first_tile
        for i in range(0, G * count):
            h, tile = hk * G + i // count, first_tile + i % count
            dk, dv = _one_pass_step(
                dk, dv, k_tile, v_tile, queries, total, b, h, tile * BLOCK_M, first_key, sizes,
                True, WIDTH, C,
            )  # fmt: skip
    for g in range(0, G):
        for i in range(whole_tile, num_tiles):
            h, tile = hk * G + g, i
            if APART:  # so that few programs add to the same rows of dQ at a time
                tile = (i + tile_idx * tl.cdiv(BLOCK_N, BLOCK_M)) % num_tiles
            dk, dv = _one_pass_step(
                dk, dv, k_tile, v_tile, queries, total, b, h, tile * BLOCK_M, first_key, sizes,
                False, WIDTH, C,
            )  # fmt: skip
    _store_rows(grad_k_ptr, dk * scale, head, first_key, N, BLOCK_N, ADD, C)
    _store_rows(grad_v_ptr, dv, head, first_key, N, BLOCK_N, ADD, C)


@triton.jit
def _one_pass_step(
    dk, dv, k_tile, v_tile,  # [BLOCK_N, BLOCK_D]
    queries, total, b, h, first, first_key, sizes,
    MASK: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """As _keys_step, and add to dQ of the queries what the keys give it."""
    dk, dv, dst = _keys_step(
        dk, dv, k_tile, v_tile, queries, b, h, first, first_key, sizes, MASK, C
    )
    dq = tl.dot(dst.T, k_tile, input_precision="ieee")  # [BLOCK_M, BLOCK_D]
    _add_to_sum(total, dq, b, h, first, sizes, WIDTH, C)
    return dk, dv


@triton.jit
def _add_to_sum(
    total,  # TMA: descriptor of [B, H, M · D / WIDTH, WIDTH]; otherwise pointer: contiguous
    tile,  # [BLOCK_M, BLOCK_D], float32
    b, h, first, sizes, WIDTH: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Add a tile to rows that other programs add to as well."""
    if WIDTH:  # one instruction: a tile goes through shared memory to the units beside L2
        PARTS: tl.constexpr = C.BLOCK_D // WIDTH  # rows of the descriptor that are one of the tile
        tile = tile.reshape([1, 1, C.BLOCK_M * PARTS, WIDTH])
        total.atomic_add([b, h, first * PARTS, 0], tile)
    else:
        offs_m = first + tl.arange(0, C.BLOCK_M)  # [BLOCK_M]
        offs_d = tl.arange(0, C.BLOCK_D)  # [BLOCK_D]
        row = (b.to(tl.int64) * sizes.H + h) * sizes.M + offs_m  # [BLOCK_M]
        mask = (offs_m < sizes.M)[:, None] & (offs_d < C.D)[None, :]  # [BLOCK_M, BLOCK_D]
        place = total + row[:, None] * C.D + offs_d[None, :]
        tl.atomic_add(place, tile, mask=mask, sem="relaxed")


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
    C: tl.constexpr = Constants(D, BLOCK_M, 0, BLOCK_D, False, False)
    num_tiles = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)
    head, first = pid // num_tiles, pid % num_tiles * BLOCK_M
    b, h = head // H, head % H
    out = _load_rows(Rows(out_ptr, stride_ob, stride_oh, stride_om), b, h, first, M, BLOCK_M, C)
    grad_out = _load_rows(
        Rows(grad_out_ptr, stride_gb, stride_gh, stride_gm), b, h, first, M, BLOCK_M, C
    )
    offs_m = first + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    _sums_of_rows(
        out, grad_out, lse_ptr, grad_lse_ptr, lse_log2_ptr, delta_ptr, head, offs_m, M, stride_sums
    )
    zeros = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    _store_rows(sum_ptr, zeros, head, first, M, BLOCK_M, False, C)


@triton.jit
def _finish_kernel(sum_ptr, grad_q_ptr, count, scale, ADD: tl.constexpr, BLOCK: tl.constexpr):
    """One program scales BLOCK numbers of the sum of dQ and rounds them once."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < count
    grad_q = tl.load(sum_ptr + offs, mask=mask, other=0.0) * scale
    if ADD:
        grad_q += tl.load(grad_q_ptr + offs, mask=mask, other=0.0)
    tl.store(grad_q_ptr + offs, grad_q.to(grad_q_ptr.dtype.element_ty), mask=mask)


def one_pass(
    q, k, v, out, lse, grad_out, *,
    scale=None, causal=False, align="bottom_right", grad_lse=None, into=None, tile=None,
):  # fmt: skip
    """Gradients of softmax(q kᵀ · scale) v for q, k and v: see flash_backward.

    Args:
        tile: a Tile; that of flash_backward for dK and dV if None.

    Raises:
        TypeError, ValueError: what flash_backward refuses.

    Source: Dao 2023, section 3.1.2, https://arxiv.org/abs/2307.08691
    """
    for error in _refusals(q, k, v, out, lse, grad_out, grad_lse, scale, causal, align, into):
        raise error
    results = tuple(into or (x.new_empty(x.shape) for x in (q, k, v)))
    tensors = q, k, v, grad_out, out
    tensors, strides, sums, problem = _problem(tensors, scale, causal, align, into is not None)
    (B, H, M, D), (_, Hkv, N, _) = tensors[0].shape, tensors[1].shape
    tile = tile or _tiles(_architecture(q.device), q.dtype, D, causal)[0]
    total = q.new_empty((B, H, M, D), dtype=torch.float32)  # the sum of dQ
    added, width = _added(total, tile, problem)
    with torch.cuda.device_of(q):
        _prepare_kernel[(-(-M // ROWS) * H * B,)](
            tensors[4], tensors[3], lse, grad_lse, *sums, total, *strides[12:], *strides[9:12],
            sums.stride(1), H, M, D=D, BLOCK_M=ROWS, BLOCK_D=problem["BLOCK_D"],
        )  # fmt: skip
        tiles = -(-N // tile.BLOCK_N)
        _one_pass_kernel[(tiles * B * Hkv,)](
            *_loaded(tile, problem, *tensors[:4], *sums), added, *results[1:],
            *strides[:12], sums.stride(1), together=_together(B * Hkv, tiles, causal),
            MASKED=causal or N % tile.BLOCK_N != 0, WIDTH=width, APART=APART and not causal,
            **problem, **_options(tile),
        )  # fmt: skip
        count = total.numel()
        _finish_kernel[(-(-count // NUMBERS),)](
            total, results[0], count, problem["scale"], ADD=problem["ADD"], BLOCK=NUMBERS
        )
    return results


def _added(total, tile, problem):
    """The sum of dQ as a kernel adds to it: a descriptor and its width, or as it is and 0."""
    if not (problem["USE_TMA"] and TMA_ADDS):
        return total, 0
    (B, H, M, D), width = total.shape, problem["BLOCK_D"]
    rows = tile.BLOCK_M * width // TMA_WIDTH
    if width == D and D % TMA_WIDTH == 0 and rows <= TMA_ROWS:
        total, width = total.view(B, H, M * D // TMA_WIDTH, TMA_WIDTH), TMA_WIDTH
    block = [1, 1, tile.BLOCK_M * problem["BLOCK_D"] // width, width]
    return Descriptor(total, total.shape, total.stride(), block), width
