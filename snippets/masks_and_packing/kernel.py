"""FlashAttention with what models add to it: windows, sinks, packed sequences, soft cap and bias.

Each option is off until it is asked for; off, it leaves no trace in the compiled kernel.
float16, bfloat16 or float32 (on CUDA cores), 16 to 256 columns in steps of 8, the columns of a row
side by side; NVIDIA GPUs from capability 7.5 on, AMD's gfx942. The gradients are in backward.py.
Run it alone: `python kernel.py` checks it against PyTorch, on a CPU too.
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import contextvars
import functools
import numbers
import os
from collections import namedtuple

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

INTERPRETED = triton.knobs.runtime.interpret
UPCAST = tl.constexpr(INTERPRETED)  # the interpreter cannot compute with bfloat16
WRAP = tl.constexpr(2**30)  # no sequence has more rows
LOG2_E = tl.constexpr(1.4426950408889634)  # exp(x) = 2^(x · log2(e)), and a GPU has only exp2

# Queries of a program, keys of an iteration, warps, iterations whose loads are in flight at once;
# and whether one warp loads while the others compute.
Tile = namedtuple("Tile", "BLOCK_M BLOCK_N num_warps num_stages warp_specialize", defaults=[False])
# Architecture → largest D that a tile is for → the tile; or two: for a loop without a branch, and
# for one with. Those of flash_attention: for D 64 and 128 on sm_90 the fastest that we timed on an
# H200, elsewhere they fit.
HOPPER_128 = Tile(128, 128, 4, 2, warp_specialize=True), Tile(64, 64, 4, 3)
TILE_CONFIGS = {
    "sm_75": {64: Tile(64, 32, 8, 1), 128: Tile(32, 32, 8, 1)},  # float16, on no tensor core
    "sm_80": {64: Tile(128, 64, 8, 3), 128: Tile(128, 64, 8, 3), 256: Tile(64, 64, 8, 2)},
    # Also 8.6 and 12.0: less shared memory.
    "sm_89": {64: Tile(128, 32, 4, 3), 128: Tile(128, 32, 8, 2), 256: Tile(64, 32, 8, 2)},
    "sm_90": {64: Tile(64, 128, 4, 2), 128: HOPPER_128, 256: Tile(128, 64, 8, 2)},
    "sm_100": {64: Tile(128, 64, 4, 3), 128: Tile(128, 128, 8, 2), 256: Tile(64, 64, 4, 2)},
    "gfx942": {64: Tile(128, 64, 4, 1), 128: Tile(128, 64, 8, 1), 256: Tile(64, 32, 8, 1)},
    # On every architecture: no tensor core keeps float32's precision.
    "float32": {64: Tile(64, 32, 8, 2), 128: Tile(32, 16, 4, 2), 256: Tile(32, 16, 8, 2)},
}
# Instead, with a bias and up to 128 columns; elsewhere that for 256, as its tile needs room too.
BIASED = {"sm_90": Tile(128, 64, 8, 3)}
CONFIGURATIONS = {"_tile_config": TILE_CONFIGS}  # what a test may choose instead: all of it


@triton.jit(do_not_specialize=["N"])  # N = 1 as a constant crashes the assembler of Triton 3.6.0
def _masks_and_packing_kernel(
    q_ptr, k, v,  # k and v: descriptors of [B, Hkv, N, D], or pointers to the first element
    out_ptr, lse_ptr,  # [B, H, M, D] and, or None, [B, H, M]: contiguous
    sinks_ptr,  # [H], or None
    bias_ptr,  # [B, H, M, N] of any strides, its columns contiguous; or None
    cu_q_ptr, cu_k_ptr,  # [sequences + 1]: where each begins among all rows; or None
    stride_qb, stride_qh, stride_qm,  # step to the next batch, head, row; columns are contiguous
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_bb, stride_bh, stride_bm,
    columns,  # of the bias: as N, but it is known whether 16 divides them; or None
    H, G,  # heads of queries, and how many of them share a head of keys
    M, N,  # queries, keys; packed: of all sequences together
    sequences,  # how many are packed, or None
    together,  # packed and causal: heads whose programs start together; or None
    causal_offset,  # with a causal mask query m sees the keys up to m + causal_offset
    left_offset,  # with a window it sees the keys from m + left_offset on; or None
    scale_log2,  # scale · log2(e)
    softcap,  # scores become softcap · tanh(score / softcap); or None
    D: tl.constexpr,
    CAUSAL: tl.constexpr,  # or another limit on the right
    BOTTOM_RIGHT: tl.constexpr,  # packed: offsets count from the last query of a sequence
    MASKED: tl.constexpr,  # causal, a window, packed, or N is no multiple of BLOCK_N
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,  # a power of two, at least D
    USE_TMA: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr,
    EXACT: tl.constexpr,  # for huge scores: they are scaled after the largest is subtracted
):  # fmt: skip
    """One program computes BLOCK_M rows of the output of one head.

    Reads its queries once and the keys and values its queries may see, BLOCK_N at a time; writes
    its rows of the output and, where asked, their logsumexp. Scores never leave the chip: acc
    [BLOCK_M, BLOCK_D], l_i and m_i stay in registers, the tiles of k and v in shared memory.
    """
    PACKED: tl.constexpr = cu_q_ptr is not None
    LEFT: tl.constexpr = left_offset is not None  # a window that ends on the left
    SCALED: tl.constexpr = softcap is not None or bias_ptr is not None
    if PACKED:  # at least as many tiles as the sequences have, and some without a row
        num_tiles = M // BLOCK_M + sequences + 1
    else:
        num_tiles = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)  # 0 … B · H · num_tiles - 1: neighbors share a head, so its k and v
    head, tile_idx = pid // num_tiles, pid % num_tiles
    if together is not None:  # or a few heads, tile by tile: the last to start are short ones
        size = num_tiles * together
        head, tile_idx = pid // size * together + pid % together, pid % size // together
    if CAUSAL:  # the last rows see most keys: start the longest work first
        tile_idx = num_tiles - 1 - tile_idx
    b, h = head // H, head % H
    hk = h // G  # the head of keys and values

    all_rows = M
    if PACKED:  # from here on M and N are those of one sequence
        tile_idx, first_q, M, first_k, N = _sequence(
            tile_idx, cu_q_ptr, cu_k_ptr, sequences, M, N, BLOCK_M
        )
        corner = N - M if BOTTOM_RIGHT else 0
        if CAUSAL:
            causal_offset += corner
            N = tl.minimum(N, tl.maximum(M + causal_offset, 0))
        if LEFT:  # the keys before the window of the first query are not read either
            skipped = tl.minimum(tl.maximum(left_offset + corner, 0), N)
            causal_offset, left_offset = causal_offset - skipped, left_offset + corner - skipped
            first_k, N = first_k + skipped, N - skipped
    offs_m = tile_idx * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]

    last_key = tl.full([BLOCK_M], N - 1, tl.int32)  # [BLOCK_M]: the last key that a query sees
    # Every query of the block sees the keys below unmasked_end; none sees a key from end on.
    unmasked_end, end = N, N
    if CAUSAL:
        last_key = tl.minimum(last_key, offs_m + causal_offset)
        unmasked_end = tl.minimum(N, tl.maximum(tile_idx * BLOCK_M + causal_offset + 1, 0))
        end = tl.minimum(N, tl.maximum((tile_idx + 1) * BLOCK_M + causal_offset, 0))
    unmasked_end = unmasked_end // BLOCK_N * BLOCK_N  # whole tiles that need no mask
    begin = 0
    if LEFT:  # none sees a key before begin; every query sees the keys from unmasked_begin on
        begin = tl.maximum(tile_idx * BLOCK_M + left_offset, 0) // BLOCK_N * BLOCK_N
        unmasked_begin = (tile_idx + 1) * BLOCK_M - 1 + left_offset

    q_ptr += b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh
    if not USE_TMA:  # from here on pointers to the head, as q
        k += b.to(tl.int64) * stride_kb + hk.to(tl.int64) * stride_kh
        v += b.to(tl.int64) * stride_vb + hk.to(tl.int64) * stride_vh
    if PACKED:  # … and to the sequence
        q_ptr += first_q.to(tl.int64) * stride_qm
        k_end = first_k + N  # what a descriptor needs instead
        if not USE_TMA:
            k += first_k.to(tl.int64) * stride_kn
            v += first_k.to(tl.int64) * stride_vn
    if WARP_SPECIALIZE:  # a descriptor made here can be divided between the computing warps
        q = tl.make_tensor_descriptor(q_ptr, [M, D], [stride_qm, 1], [BLOCK_M, BLOCK_D])
        # A distinct expression: the compiler moves it, and offs_m must keep tile_idx * BLOCK_M.
        q_tile = q.load([(tile_idx + 1) * BLOCK_M - BLOCK_M, 0])
        q_tile = q_tile.to(tl.float32) if UPCAST and q_tile.dtype == tl.bfloat16 else q_tile
    else:
        first_row = tile_idx * BLOCK_M
        q_tile = _load_rows(
            q_ptr, b, h, first_row, M, stride_qm, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=False
        )

    # Usually scores are scaled first: one multiply-add then scales and subtracts. But it subtracts
    # a maximum that was rounded, and where scores are huge that is far off. EXACT scales last.
    unit = LOG2_E if SCALED else scale_log2  # with a soft cap or a bias scores are scaled already
    before, after = (1.0, unit) if EXACT else (unit, 1.0)
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)  # the largest score so far, times before
    l_i = tl.zeros([BLOCK_M], tl.float32)  # sum of the weights so far
    if sinks_ptr is not None:  # as if a key with this score came first, whose value is zeros
        m_i = tl.zeros([BLOCK_M], tl.float32) + tl.load(sinks_ptr + h) * LOG2_E / after
        l_i += 1.0
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)  # the same sum, of values
    tail_bias = tl.where(tl.arange(0, BLOCK_N) < N - unmasked_end, 0.0, float("-inf"))  # [BLOCK_N]
    for start in tl.range(begin, end, BLOCK_N, warp_specialize=WARP_SPECIALIZE):
        k_tile = _load_rows(
            k, k_end if PACKED else b, hk, start, N, stride_kn, D=D, BLOCK=BLOCK_N, BLOCK_D=BLOCK_D,
            USE_TMA=USE_TMA, PACKED=PACKED,
        )  # fmt: skip
        s = tl.dot(q_tile, k_tile.T, input_precision="ieee")  # Q Kᵀ: [BLOCK_M, BLOCK_N], float32
        if softcap is not None:
            s = _tanh(s * (scale_log2 / LOG2_E / softcap)) * softcap
        elif SCALED:
            s = s * (scale_log2 / LOG2_E)
        if bias_ptr is not None:
            bias = bias_ptr + b.to(tl.int64) * stride_bb + h.to(tl.int64) * stride_bh
            s += _load_bias(bias, offs_m, start, M, columns, stride_bm, BLOCK_N)
        if MASKED and WARP_SPECIALIZE:  # no branch here: add 0, and in the last tile the bias
            bias = tl.maximum(tail_bias, tl.where(start < unmasked_end, 0.0, float("-inf")))
            s += bias[None, :]
        elif LEFT:
            if start >= unmasked_end or start < unmasked_begin:
                offs_n = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
                seen = offs_n[None, :] <= last_key[:, None]
                seen = seen & (offs_n[None, :] >= offs_m[:, None] + left_offset)
                s = tl.where(seen, s, float("-inf"))
        elif MASKED and start >= unmasked_end:  # the same answer for all threads
            offs_n = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
            s = tl.where(offs_n[None, :] <= last_key[:, None], s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, axis=1) * before)  # [BLOCK_M]
        # A row that has seen no key yet subtracts 0: -inf - (-inf) would be NaN.
        m_sub = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp2((m_i - m_sub) * after)  # what the old maximum was worth
        p = tl.exp2((s * before - m_sub[:, None]) * after)  # a multiply-add and an exp2 a score
        row_sum = tl.sum(p, axis=1)
        rounded = p.to(q_tile.dtype)  # here, and l_i last: the fastest order, as measured
        acc = acc * alpha[:, None]
        v_tile = _load_rows(
            v, k_end if PACKED else b, hk, start, N, stride_vn, D=D, BLOCK=BLOCK_N, BLOCK_D=BLOCK_D,
            USE_TMA=USE_TMA, PACKED=PACKED,
        )  # fmt: skip
        acc = tl.dot(rounded, v_tile, acc, input_precision="ieee")  # acc + P V
        l_i = l_i * alpha + row_sum
        m_i = m_new

    l_i = tl.where(l_i == 0.0, 1.0, l_i)  # no visible key: acc is zero, and so is the row
    out = acc * (1.0 / l_i)[:, None]  # one division a row
    offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
    row = (b.to(tl.int64) * H + h) * all_rows + offs_m  # [BLOCK_M]
    out_row = row
    if PACKED:  # [all_rows, H, D], and the logsumexp [H, all_rows]
        row += first_q
        out_row = (first_q.to(tl.int64) + offs_m) * H + h
    out_tile = out_ptr + out_row[:, None] * D + offs_d[None, :]
    mask_m = offs_m < M  # [BLOCK_M]
    mask = mask_m[:, None] & (offs_d < D)[None, :]  # [BLOCK_M, BLOCK_D]
    tl.store(out_tile, out.to(out_ptr.dtype.element_ty), mask=mask)
    if lse_ptr is not None:
        tl.store(lse_ptr + row, (m_i * after + tl.log2(l_i)) / LOG2_E, mask=mask_m)


PROBES = tl.constexpr(32)  # places that a search asks about at once: one for each thread of a warp


@triton.jit
def _sequence(tile, cu_q_ptr, cu_k_ptr, sequences, all_q, all_k, BLOCK: tl.constexpr):
    """The tile's number within its sequence; the sequence's first query and how many; its keys.

    Sequence i has the tiles from cu_q[i] // BLOCK + i on: enough for all its rows, wherever it
    begins. After the last comes one more, of the rows that belong to none: it has no keys.
    Whatever cu_q and cu_k hold, nothing outside the tensors is read or written.
    """
    low, high = tile * 0, tile * 0 + sequences + 1
    while high - low > 1:  # the last sequence, from low on, whose tiles begin at this one or before
        step = tl.cdiv(high - low, PROBES)
        at = low + step * tl.arange(0, PROBES)  # [PROBES]: one wait for memory answers for all
        begun = tl.load(cu_q_ptr + at, mask=at < high, other=0) // BLOCK + at <= tile
        found = tl.sum((begun & (at < high)).to(tl.int32), axis=0)
        low += step * tl.maximum(found - 1, 0)
        high = tl.minimum(low + step, high)
    ours = low < sequences
    first_q = tl.maximum(tl.load(cu_q_ptr + low), 0)
    first_k = tl.maximum(tl.load(cu_k_ptr + low), 0)
    end_q = tl.maximum(tl.load(cu_q_ptr + low + 1, mask=ours, other=all_q), 0)
    end_k = tl.maximum(tl.load(cu_k_ptr + low + 1, mask=ours, other=0), 0)
    end_q, end_k = tl.minimum(end_q, all_q), tl.minimum(end_k, all_k)
    tile -= first_q // BLOCK + low
    M = tl.where(tile < 0, 0, end_q - first_q)  # below 0: of rows before the first sequence
    tile = tl.maximum(tile, 0)
    N = tl.where(tile * BLOCK < M, tl.maximum(end_k - first_k, 0), 0)  # no row: no key is read
    return tile, first_q, M, first_k, N


@triton.jit
def _load_rows(
    x,  # TMA: descriptor of [B, H, rows, D]; otherwise pointer to the head's first element
    b,  # packed: the row where the sequence ends
    h,
    first_row,
    num_rows,
    stride_row,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    USE_TMA: tl.constexpr,
    PACKED: tl.constexpr = False,
):
    """Rows first_row … first_row + BLOCK - 1 of a head, zeros beyond num_rows and D."""
    if USE_TMA and PACKED:
        tile = x.load([WRAP, b, h, WRAP - num_rows + first_row, 0]).reshape([BLOCK, BLOCK_D])
    elif USE_TMA:  # the hardware finds the addresses, and knows where the tensor ends
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
def _load_bias(bias_ptr, offs_m, start, M, columns, stride_bm, BLOCK_N: tl.constexpr):
    """What is added to the scores of the queries offs_m and the keys from start on, in float32."""
    offs_n = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    mask = (offs_m < M)[:, None] & (offs_n < columns)[None, :]  # [BLOCK_M, BLOCK_N]
    place = offs_m.to(tl.int64)[:, None] * stride_bm + offs_n[None, :]
    return tl.load(bias_ptr + place, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _tanh(x):
    """tanh from one exp2: at most a few 2^-24 off."""
    return 1.0 - 2.0 / (1.0 + tl.exp2(x * (2.0 * LOG2_E)))


def masks_and_packing(
    q, k, v, *, scale=None, causal=False, align="bottom_right", window=(None, None), sinks=None,
    softcap=None, bias=None, cu_seqlens_q=None, cu_seqlens_k=None, return_lse=False,
):  # fmt: skip
    """Attention as flash_attention computes it, with the masks and terms that models add.

    A score is q · k · scale; then softcap · tanh(score / softcap), if asked for; then the bias is
    added; then keys are hidden. No key that no query of its sequence sees is ever read.

    Source: Dao 2023, https://arxiv.org/abs/2307.08691; Beltagy et al. 2020,
    https://arxiv.org/abs/2004.05150 (windows); OpenAI 2025, https://arxiv.org/abs/2508.10925
    (sinks); Gemma Team 2024, https://arxiv.org/abs/2408.00118 (soft cap)

    Args:
        q: [..., H, M, D], float16, bfloat16 or float32 (on CUDA cores); D 16 to 256 in steps of 8;
            H and a batch may be left out. Any strides, but the D columns of a row lie side by side.
            Packed: [total, H, D], the rows of all sequences one after the other.
        k, v: [..., Hkv, N, D], H a multiple of Hkv; packed: [total, Hkv, D].
        scale: factor on the scores, from 2^-64 to 2^64; 1/√D if None. In 16 bits, with one of at
            most 1, no product of a query and a key times it may pass 2^27.
        causal: query m sees the keys up to m + N - M: no further than its own.
        align: what "its own" key is if M ≠ N: "bottom_right", m + N - M; "top_left", m.
        window: how many keys a query sees to the left and to the right of its own; None: all.
        sinks: [H], float32: the score, after scale, of a key that each query of the head also sees
            and whose value is zeros; -inf for none.
        softcap: from 2^-20 to 2^10. A score may be off by softcap · 2^-22.
        bias: [B or 1, H or 1, M or 1, N], of q's dtype or float32; its N columns lie side by side.
        cu_seqlens_q, cu_seqlens_k: [sequences + 1], int32, from 0 and never falling: the first row
            of each sequence, and the end of the last. Rows beyond get zeros. What they hold is on
            the GPU and not checked: if it is anything else, the result is undefined, but nothing
            outside the tensors is read or written.
        return_lse: also return the natural logarithm of the sum of exp(score), the sink included.

    Returns:
        q's shape and dtype; with return_lse also [..., H, M], packed [H, total], in float32. A row
        without a visible key is 0, and its logsumexp that of the sink, or -inf.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
    """
    for error in _refusals(q, k, v, scale, causal, align, window, sinks, softcap, bias,
                           cu_seqlens_q, cu_seqlens_k, return_lse):  # fmt: skip
        raise error
    packed = cu_seqlens_q is not None
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    rows = q.shape[1::-1] if packed else q.shape[:-1]
    lse = torch.empty(rows, dtype=torch.float32, device=q.device) if return_lse else None
    q, k, v, bias, limits = _visible(q, k, v, bias, causal, align, window, packed)
    plain = sinks is softcap is bias is limits[1] is None and not packed
    programs, tile, arguments = _problem(
        q, k, v, bias, limits, cu_seqlens_q, align, scale, softcap, plain
    )
    if arguments["USE_TMA"]:
        block = [1, 1, tile.BLOCK_N, arguments["BLOCK_D"]]
        k, v = (_descriptor(x, block, packed) for x in (k, v))
    pointers = q, k, v, out, lse, sinks, bias, cu_seqlens_q, cu_seqlens_k
    # A kernel that makes a descriptor needs memory for it; the caller's own allocator stays.
    context = contextvars.copy_context()
    context.run(triton.set_allocator, lambda size, *_: q.new_empty(size, dtype=torch.int8))
    with torch.cuda.device_of(q):  # launch where the tensors are; does nothing for a CPU tensor
        context.run(_masks_and_packing_kernel[(programs,)], *pointers, **arguments)
    return (out, lse) if return_lse else out


def _visible(q, k, v, bias, causal, align, window, packed):
    """All with four dimensions, without the keys that no query sees; and the limits of what is.

    Query m sees the keys up to m + limits[0] and from m + limits[1] on; None: no limit. Packed,
    they count from a sequence's own corner, and the kernel leaves its keys out.
    """
    q, k, v = (_four_dimensions(x, packed) for x in (q, k, v))
    (*_, M, _), N = q.shape, k.shape[2]
    left, right = (window[0], 0) if causal else window
    corner = N - M if align == "bottom_right" and not packed else 0
    limits = [None if right is None else corner + right, None if left is None else corner - left]
    if packed:
        return q, k, v, None, limits
    begin = 0 if left is None else max(limits[1], 0)
    end = N if right is None else min(N, M + limits[0])
    bias = bias if bias is None else bias.expand(*q.shape[:3], N)[..., begin:end]
    limits = [x if x is None else x - begin for x in limits]
    return q, k[:, :, begin:end], v[:, :, begin:end], bias, limits


def _four_dimensions(x, packed):
    """[..., heads, rows, D], or packed [rows, heads, D], as [B, heads, rows, D]."""
    return x.transpose(0, 1)[None] if packed else x[(None,) * (4 - x.dim())]


def _problem(q, k, v, bias, limits, cu_seqlens_q, align, scale, softcap, plain):
    """How many programs there are, their tile, and all that the kernel takes besides tensors."""
    (B, H, M, D), (_, Hkv, N, _), packed = q.shape, k.shape, cu_seqlens_q is not None
    branches = not plain or limits[0] is not None
    tile = _tile_config(_architecture(q.device), q.dtype, D, branches, bias is not None)
    use_tma = _can_use_tma(q, k, v) and not (packed and N > WRAP.value)
    sequences, together, tiles = None, None, triton.cdiv(M, tile.BLOCK_M)
    if packed:
        sequences = len(cu_seqlens_q) - 1
        tiles = M // tile.BLOCK_M + sequences + 1
        together = _together(H, tiles // sequences) if limits[0] is not None else None
    arguments = {
        **_strides("q", q), **_strides("k", k), **_strides("v", v), **_strides("b", bias),
        "columns": None if bias is None else N,
        "H": H, "G": H // Hkv, "M": M, "N": N,
        "sequences": sequences, "together": together,
        "causal_offset": limits[0] or 0, "left_offset": limits[1],
        "scale_log2": (D**-0.5 if scale is None else float(scale)) * LOG2_E.value,
        "softcap": None if softcap is None else float(softcap),
        "D": D, "CAUSAL": limits[0] is not None,
        "BOTTOM_RIGHT": align == "bottom_right",
        "MASKED": packed or limits != [None, None] or N % tile.BLOCK_N != 0,
        "BLOCK_M": tile.BLOCK_M, "BLOCK_N": tile.BLOCK_N, "BLOCK_D": triton.next_power_of_2(D),
        "USE_TMA": use_tma,
        "WARP_SPECIALIZE": use_tma and plain and tile.warp_specialize and limits[0] is None,
        "EXACT": q.dtype == torch.float32 or (scale or 0) > 1,
        "num_warps": tile.num_warps, "num_stages": tile.num_stages,
    }  # fmt: skip
    return tiles * H * B, tile, arguments


AT_ONCE = 400  # programs that start at one time, about


def _together(heads, tiles):
    """How many heads start together: as many as fill a GPU; a divisor of `heads`.

    Each has so many tiles of a sequence, on average. Then the last programs to start are short
    ones, of several heads.
    """
    return next((n for n in range(1, heads) if heads % n == 0 and n * tiles >= AT_ONCE), heads)


def _descriptor(x, block, packed):
    """How TMA loads a block of x [B, heads, rows, D], with zeros beyond the last row.

    Packed, beyond that of a sequence: there are two steps more, in front, and addresses have 64
    bits. WRAP of the first lead back by WRAP rows, and so many of the second to where the sequence
    ends; the rows between are counted up to WRAP.

    Source: triton.tools.ragged_tma
    """
    shape, strides = x.shape, x.stride()
    if packed:
        _, head, row, _ = strides
        shape = [2**31 - 2**16, 2**31 - 2**16, shape[1], WRAP.value, shape[3]]
        block, strides = [1, *block], [2**34 - row, row, head, row, 1]
    return TensorDescriptor(x, shape, strides, block)


def _strides(name, x):
    """The kernel's arguments of that name: the steps of [B, heads, rows], or None."""
    steps = (None,) * 3 if x is None else x.stride()[:3]
    names = (f"stride_{name}{of}" for of in ("b", "h", "n" if name in "kv" else "m"))
    return dict(zip(names, steps, strict=True))


def _can_use_tma(*tensors):
    """Whether TMA can load all tensors: 16-byte aligned rows, on Hopper or later."""
    # Without tensor cores the tiles end in registers: pointers bring them there directly.
    hopper = _architecture(tensors[0].device) in ("sm_90", "sm_100")
    return (
        hopper
        and tensors[0].dtype != torch.float32
        and all(
            x.data_ptr() % 16 == 0
            and all(step and step * x.itemsize % 16 == 0 for step in x.stride()[:3])
            for x in tensors
        )
    )


@functools.cache
def _architecture(device):
    """The part of TILE_CONFIGS for a device; the interpreter plays a Hopper GPU."""
    if device.type == "cpu" or torch.version.hip:
        return "sm_90" if device.type == "cpu" else "gfx942"
    found = torch.cuda.get_device_capability(device)
    known = {(7, 5): "sm_75", (8, 0): "sm_80", (8, 7): "sm_80", (9, 0): "sm_90", (10, 0): "sm_100"}
    return known.get(found, "sm_89" if found > (7, 5) else f"sm_{found[0]}{found[1]}")


def _tile_config(architecture, dtype, D, branches, bias=False):
    """The narrowest tile that D columns fit in, or the widest."""
    kind = "float32" if dtype == torch.float32 else architecture
    if bias and kind in BIASED and D <= 128:
        return BIASED[kind]
    rows, D = TILE_CONFIGS[kind], 256 if bias else D
    found = rows[min((width for width in rows if D <= width), default=max(rows))]
    return found if isinstance(found, Tile) else found[branches]


DTYPES = (torch.float16, torch.bfloat16, torch.float32)
ROWS = ("q", "k", "v")  # tensors of rows of D columns


def _refusals(
    q, k, v, scale, causal, align, window, sinks, softcap, bias, cu_q, cu_k, return_lse
):  # fmt: skip
    """What the kernel cannot do, in order: which argument, what came, what is allowed."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    packed = cu_q is not None or cu_k is not None
    ranks, layout = ((3,), "[total, heads, D]") if packed else ((2, 3, 4), "2 to 4 dimensions")
    own, single, whole = (getattr(q, "dtype", None),), (torch.float32,), (torch.int32,)
    table = [("q", q, DTYPES), ("k", k, own), ("v", v, own)]
    maybe = [("sinks", sinks, single), ("bias", bias, own + single)]
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
            yield ValueError(f"{name} has strides {x.stride()}; allowed: the last 1, others any")
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
    for name, x, _ in table:
        if x.shape != shapes.get(name, x.shape):
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed with q: {(*shapes[name],)}")
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
    for name, x in (("causal", causal), ("return_lse", return_lse)):
        if not isinstance(x, bool):
            yield TypeError(f"{name} is {x!r}; allowed: True, False")
    if not isinstance(align, str) or align not in ("bottom_right", "top_left"):
        yield ValueError(f"align is {align!r}; allowed: 'bottom_right', 'top_left'")
    sides = window if isinstance(window, (tuple, list)) else ()
    if len(sides) != 2 or not all(x is None or (type(x) is int and 0 <= x < 2**30) for x in sides):
        yield ValueError(f"window is {window!r:.60}; allowed: two of None and whole numbers from 0")
    for name, x, low, high in (("scale", scale, -64, 64), ("softcap", softcap, -20, 10)):
        if x is not None and (isinstance(x, bool) or not isinstance(x, numbers.Real)):
            yield TypeError(f"{name} is {x!r:.40}; allowed: a number or None")
        if x is not None and not (x >= 2.0**low and 1 / x >= 2.0**-high):  # float16 has no 2^64
            yield ValueError(f"{name} is {x!r:.40}; allowed: 2^{low} to 2^{high}")
    if q.device.type != "cuda" and not (q.is_cpu and INTERPRETED):
        yield ValueError(f"q is on {q.device}; allowed: a GPU, or a CPU with TRITON_INTERPRET=1")
    gpu = _architecture(q.device)
    if D > max(TILE_CONFIGS.get(gpu, [0])) or (gpu, q.dtype) == ("sm_75", torch.bfloat16):
        needs = "sm_75 for 128 columns of float16 or float32, or a newer GPU"
        yield ValueError(f"q is {q.dtype} with {D} columns on {gpu}; allowed: {needs}")


def main():
    """Check the kernel against PyTorch in float64; time both where there is a GPU."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k, v = (torch.randn(2, *x, 64, device=device).half() for x in ((4, 200), (2, 333), (2, 333)))
    sinks = torch.randn(4, device=device)
    options = {"causal": True, "window": (100, 0), "sinks": sinks, "softcap": 20.0}
    own = torch.arange(200, device=device)[:, None] + 133  # the key that belongs to a query
    hidden = (torch.arange(333, device=device) > own) | (
        torch.arange(333, device=device) < own - 100
    )

    def eager(q, k, v):
        k, v = (x.repeat_interleave(2, 1) for x in (k, v))
        scores = (q @ k.mT / 8 / 20).tanh() * 20
        sink = sinks.to(q.dtype)[None, :, None, None].expand(2, 4, 200, 1)
        scores = torch.cat([scores.masked_fill(hidden, float("-inf")), sink], -1)
        return scores.softmax(-1)[..., :-1] @ v

    want = eager(q.double(), k.double(), v.double())
    ours, theirs = masks_and_packing(q, k, v, **options), eager(q, k, v)
    ours, theirs = ((x - want).abs() for x in (ours, theirs))
    allowed = 2 * theirs.max() + torch.finfo(q.dtype).eps * want.abs().max()  # both round alike
    print(f"q {(*q.shape,)}, k and v {(*k.shape,)}, {q.dtype} on {device}")
    print(f"difference from float64: {ours.max():.1e} at most, {ours.mean():.1e} on average")
    if device == "cuda":
        for name, f in (("ours", lambda *x: masks_and_packing(*x, **options)), ("eager", eager)):
            print(f"{name}: {triton.testing.do_bench(lambda f=f: f(q, k, v)) * 1000:.1f} µs")
    print("OK" if ours.max() <= allowed else f"WRONG: more than {allowed:.1e} is not rounding")
    return int(ours.max() > allowed)


if __name__ == "__main__":
    raise SystemExit(main())
