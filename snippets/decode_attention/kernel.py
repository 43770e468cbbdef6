"""Attention of a few new tokens over a long cache of keys and values, which splits share.

float16, bfloat16 or float32; at most 64 new tokens and 256 columns; groups of query heads; caches
in one piece or in pages, any strides, in float8_e4m3fn too; sliding windows; attention sinks.
NVIDIA GPUs from capability 8.0 on; tiles chosen on an H200.
Run it alone: `python kernel.py` checks it against PyTorch, on a CPU too.
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

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
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from triton.compiler import CompiledKernel

INTERPRETED = triton.knobs.runtime.interpret
UPCAST = tl.constexpr(INTERPRETED)  # the interpreter cannot compute with bfloat16, nor with float8
LOG2_E = tl.constexpr(math.log2(math.e))  # exp(x) = 2^(x · log2(e)), and a GPU has only exp2


class Tile(NamedTuple):
    """How many keys a program loads at once, and on how many warps it runs."""

    BLOCK_N: int  # keys of an iteration
    num_warps: int  # 32 threads each
    num_stages: int  # iterations whose loads are in flight at once
    at_once: int = 4  # programs of a multiprocessor at most: more of them don't load faster


FEW_ROWS = tl.constexpr(8)  # up to so many rows of q become the columns of a product
# Largest D that a row is for → its tile. Large ones suit one program per multiprocessor, which has
# to keep its share of the bandwidth busy alone. In float32, which no tensor core multiplies, tiles
# are smaller.
TILES = {
    "16 bits": {64: Tile(64, 4, 4), 128: Tile(128, 4, 3), 256: Tile(64, 8, 3)},
    "float32": {64: Tile(32, 4, 3), 128: Tile(16, 4, 3), 256: Tile(16, 8, 3)},
}
# The same with a few rows of q; a float8 cache then has its own.
FEW_TILES = {
    "16 bits": {64: Tile(64, 4, 4), 128: Tile(128, 4, 3), 256: Tile(128, 8, 2)},
    "float8": {64: Tile(128, 2, 3), 128: Tile(128, 4, 3, at_once=2), 256: Tile(64, 4, 3)},
    "float32": {64: Tile(64, 4, 3), 128: Tile(32, 4, 3), 256: Tile(32, 4, 2)},
}
# Instead, with 65 to 128 columns and not in float32: where sequences and heads alone are more than
# two programs per multiprocessor, and where they are more than eight, of one row each. With pages:
# where a page has fewer keys than the tile above, and where programs are many, of 16 rows at most.
MANY, SINGLE = Tile(64, 4, 2), Tile(64, 4, 3)
PAGED, MANY_PAGED = Tile(64, 4, 3, at_once=2), Tile(64, 2, 2)
FLOAT8 = Tile(64, 2, 3)  # with a few rows of q, in all these cases
ROWS = {"16 bits": 64, "float32": 16}  # rows of q that a program holds at most: heads × tokens
SPLIT_KEYS = 1024  # keys of a split in a batch-invariant call
MAX_SPLITS = 256
COMBINED = 16  # splits that the combining kernel reads at once


# Lengths of the caller's choice: a kernel for each that 16 divides would only take time.
@triton.jit(do_not_specialize=["splits", "least_chunk", "capacity", "num_pages"])
def _decode_attention_kernel(
    q_ptr, k_ptr, v_ptr,
    lens_ptr, table_ptr,  # int32 [B], or None: all caches are full; int32 [B, pages], or None
    out_ptr,  # [B, H, M, D]; if PARTIAL, float32 [B, H, M, splits, D] and then [B, H, M, splits]
    lse_ptr,  # [B, H, M] or None; None if PARTIAL: the logsumexps follow the parts
    sink_ptr, k_scale_ptr, v_scale_ptr,  # float32 [H], [Hkv], [Hkv]; each may be None
    stride_qb, stride_qh, stride_qm, stride_qd,  # step to the next batch, head, row, column
    stride_kb, stride_kh, stride_kn, stride_kd,  # of a paged cache: b is the page
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_lens, stride_tb, stride_tn,
    Hkv, G, M,  # heads of keys, query heads that share one, new tokens
    capacity, num_pages,  # keys that a sequence has room for; pages that there are
    splits, least_chunk,  # into how many a sequence is cut, and keys of each at least
    scale_log2,
    PARTIAL: tl.constexpr,  # there are several splits: another kernel combines them
    EARLY: tl.constexpr,  # and that kernel may start while this one runs
    D: tl.constexpr,
    PAGE: tl.constexpr,  # keys of a page, a power of two; 0: the cache is not paged
    LEFT: tl.constexpr,  # how many keys before its own a token sees; None: all of them
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,  # a power of two, at least D
):  # fmt: skip
    """One program computes BLOCK_M rows of one head of keys over one split of its sequence.

    A row is one new token of one of the G query heads that share these keys, so that each key
    which is loaded serves them all. Reads its rows of q and its keys and values once; writes the
    result and its logsumexp: in base 2 where splits are to be combined, otherwise in base e.
    """
    if EARLY:  # once all programs run, the next kernel may start where there is room
        tl.extra.cuda.gdc_launch_dependents()
    num_blocks = tl.cdiv(M * G, BLOCK_M)
    pid = tl.program_id(0)  # 0 … B · Hkv · splits · num_blocks - 1: neighbors share keys
    block_idx, split = pid % num_blocks, pid // num_blocks % splits
    hk = pid // num_blocks // splits % Hkv
    b = pid // num_blocks // splits // Hkv
    offs_r = block_idx * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    mask_r = offs_r < M * G
    m, h = offs_r // G, hk * G + offs_r % G  # [BLOCK_M] each: the token, the query head

    known = capacity
    if lens_ptr is not None:
        known = tl.load(lens_ptr + b.to(tl.int64) * stride_lens)  # int32, anything
    length = tl.minimum(tl.maximum(known, 0), capacity)  # nothing outside the cache is read
    last_key = known - M + m  # [BLOCK_M]
    last_token = tl.minimum((block_idx + 1) * BLOCK_M - 1, M * G - 1) // G
    end = tl.minimum(length, known - M + last_token + 1)  # no row sees a key from here on
    base, low = 0, 0  # where the splits begin, and the first key that any token sees
    if LEFT is not None:  # both from key 0 on, so that a tile has the same keys in every window
        low = tl.minimum(tl.maximum(known - M - LEFT, 0), length)
        share = tl.maximum(least_chunk, BLOCK_N)
        base = low // share * share
    chunk = _chunk(length - base, splits, least_chunk, BLOCK_N=BLOCK_N)
    first = base + split * chunk
    stop = tl.minimum(first + chunk, end)
    if LEFT is not None:
        first = tl.maximum(first, low // BLOCK_N * BLOCK_N)

    offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
    mask = mask_r[:, None] & (offs_d < D)[None, :]  # [BLOCK_M, BLOCK_D]
    q_row = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + m.to(tl.int64) * stride_qm
    q_tile = q_ptr + q_row[:, None] + offs_d[None, :] * stride_qd
    q = tl.load(q_tile, mask=mask, other=0.0)
    q = q.to(tl.float32) if UPCAST and q.dtype == tl.bfloat16 else q
    hk = hk.to(tl.int64)
    k = Cache(k_ptr + hk * stride_kh, stride_kb, stride_kn, stride_kd)
    v = Cache(v_ptr + hk * stride_vh, stride_vb, stride_vn, stride_vd)
    pages = Pages(table_ptr, b, stride_tb, stride_tn, num_pages)
    if k_scale_ptr is not None:
        scale_log2 *= tl.load(k_scale_ptr + hk)
        # Two columns at once: by bytes, values would leave shared memory one at a time.
        v = Cache(v.ptr.to(tl.pointer_type(tl.uint16), bitcast=True), v.block // 2, v.row // 2, 1)
        if q_ptr.dtype.element_ty == tl.bfloat16:  # one instruction makes float16 of float8
            q = q.to(tl.float32)  # which may be too large or too small: over a power of two
            largest = tl.maximum(tl.max(tl.abs(q), axis=1), 2.0**-126)[:, None]
            unit = tl.exp2(tl.floor(tl.log2(largest)))
            q, scale_log2 = (q / unit).to(tl.float16), scale_log2 * unit
    m_i, l_i, acc = _attend(
        q, k, v, pages, first, stop, low, last_key, scale_log2,
        D=D, PAGE=PAGE, LEFT=LEFT, BLOCK_N=BLOCK_N,
    )  # fmt: skip

    out = acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]  # no visible key: zeros
    lse = m_i + tl.log2(tl.where(l_i == 0.0, 1.0, l_i))  # [BLOCK_M]; -inf without a key
    if v_scale_ptr is not None:
        out *= tl.load(v_scale_ptr + hk)
    if sink_ptr is not None and not PARTIAL:  # as _merge does it, to the bit
        sink = tl.load(sink_ptr + h, mask=mask_r, other=float("-inf")) * LOG2_E  # [BLOCK_M]
        m_new = tl.maximum(sink, lse)
        m_sub = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(lse - m_sub)  # what all keys weigh
        l_new = tl.exp2(sink - m_sub) + p
        l_new = tl.where(l_new == 0.0, 1.0, l_new)
        out = p[:, None] * out / l_new[:, None]
        lse = m_new + tl.log2(l_new)
    H = Hkv * G
    row = ((b.to(tl.int64) * H + h) * M + m) * splits + split  # [BLOCK_M]
    if PARTIAL:
        programs = tl.num_programs(0) // splits // num_blocks  # B · Hkv
        lses_ptr = out_ptr + programs.to(tl.int64) * G * M * splits * D  # after all parts
        tl.store(lses_ptr + row, lse, mask=mask_r)
        mask = mask & (lse != float("-inf"))[:, None]  # what has no weight is never read
    elif lse_ptr is not None:
        tl.store(lse_ptr + row, lse / LOG2_E, mask=mask_r)
    out_tile = out_ptr + row[:, None] * D + offs_d[None, :]
    tl.store(out_tile, out.to(out_ptr.dtype.element_ty), mask=mask)


class Cache(NamedTuple):
    """Keys or values of one head: where they begin, and the steps between them, in elements."""

    ptr: tl.tensor
    block: tl.tensor  # from one page to the next; without pages, from one sequence to the next
    row: tl.tensor
    column: tl.tensor


class Pages(NamedTuple):
    """Where a sequence lies in a cache: on the pages that its row of a table names."""

    table_ptr: tl.tensor  # None without pages
    b: tl.tensor  # the sequence, which is its block where there are no pages
    stride_b: tl.tensor
    stride_n: tl.tensor
    count: tl.tensor  # pages that there are


@triton.jit
def _attend(
    q, k, v, pages,  # [BLOCK_M, BLOCK_D]; two of Cache; Pages
    first, stop, low,  # the keys to attend to: first … stop - 1; with a window none before low
    last_key,  # [BLOCK_M]: the last key that a row sees
    scale_log2,  # scale · log2(e)
    D: tl.constexpr, PAGE: tl.constexpr, LEFT: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Rows of q over some keys: largest score, sum of exp2(score - largest), the same of values."""
    BLOCK_D: tl.constexpr = q.shape[1]
    PAIRS: tl.constexpr = v.ptr.dtype.element_ty == tl.uint16  # of columns, in float8
    WIDTH: tl.constexpr = BLOCK_D // 2 if PAIRS else BLOCK_D
    FEW: tl.constexpr = q.shape[0] <= FEW_ROWS
    m_i = tl.full([q.shape[0]], float("-inf"), tl.float32)
    l_i = tl.zeros([q.shape[0]], tl.float32)
    acc = tl.zeros([q.shape[0], WIDTH], tl.float32)
    odd = acc  # of pairs, the second columns
    page, n = pages.b, first
    if PAGE > 0:
        if PAGE < BLOCK_N:  # one key of each page: [BLOCK_N // PAGE]
            n += PAGE * tl.arange(0, BLOCK_N // PAGE)
        page = _look_up(pages, n, n < stop, PAGE=PAGE)
    for start in tl.range(first, stop, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
        places = _places(page, start, stop, pages.count, PAGE=PAGE, BLOCK_N=BLOCK_N)
        if PAGE > 0:  # the next tile's pages: the table has answered when they are needed
            n += BLOCK_N
            page = _look_up(pages, n, n < stop, PAGE=PAGE)
        if LEFT is not None:  # a key that no row sees is not read, whatever lies there
            there = places.there & (offs_n >= low)
            places = Places(places.block, places.first_row, places.rows, there)
        k_tile = _numbers(_load_rows(k, places, D=D, BLOCK_D=BLOCK_D), q.dtype)
        s = _product(q, k_tile, None)  # [BLOCK_M, BLOCK_N]
        visible = places.there[None, :] & (offs_n[None, :] <= last_key[:, None])
        if LEFT is not None:
            visible = visible & (offs_n[None, :] >= last_key[:, None] - LEFT)
        s = tl.where(visible, s * scale_log2, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, axis=1))  # [BLOCK_M]
        # A row that has seen no key yet subtracts 0: -inf - (-inf) would be NaN.
        m_sub = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp2(m_i - m_sub)  # what the old maximum was worth
        p = tl.exp2(s - m_sub[:, None])  # [BLOCK_M, BLOCK_N]
        l_i = l_i * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None]
        p = p.to(q.dtype)
        v_tile = _load_rows(v, places, D=D * WIDTH // BLOCK_D, BLOCK_D=WIDTH, TURNED=FEW)
        numbers = _numbers(v_tile, q.dtype)
        acc = _product(p, numbers if FEW else numbers.T, acc)
        if PAIRS:
            second = _numbers(v_tile >> 8, q.dtype)
            odd = _product(p, second if FEW else second.T, odd * alpha[:, None])
        m_i = m_new
    if PAIRS:
        acc = tl.join(acc, odd).reshape(q.shape)
    return m_i, l_i, acc


@triton.jit
def _product(rows, tile, acc):
    """rows · tileᵀ in float32, plus acc unless it is None.

    One product of tensor cores has 16 rows and 8 columns. Keys, and columns of values, fill 16. A
    few rows of q would leave half of 16 empty, and so they become the columns.
    """
    if rows.shape[0] > FEW_ROWS:
        return tl.dot(rows, tile.T, acc, input_precision="ieee")
    return tl.dot(tile, rows.T, None if acc is None else acc.T, input_precision="ieee").T


@triton.jit
def _look_up(pages, n, mask, PAGE: tl.constexpr):
    """The page that key n lies on, for one key or for each of several; -1 where the mask is 0."""
    entry = pages.table_ptr + pages.b.to(tl.int64) * pages.stride_b
    return tl.load(entry + (n // PAGE).to(tl.int64) * pages.stride_n, mask=mask, other=-1)  # int32


@triton.jit
def _exists(page, num_pages):
    """Whether there is such a page: the host cannot know what the table says."""
    return (page >= 0) & (page < num_pages)


class Places(NamedTuple):
    """Where a tile's keys lie: a block, a first row there, rows from it on; which keys exist."""

    block: tl.tensor  # a page, or a sequence in a cache without pages; [BLOCK_N] if pages are short
    first_row: tl.tensor
    rows: tl.tensor  # [BLOCK_N]
    there: tl.tensor  # [BLOCK_N]


@triton.jit
def _places(page, start, stop, num_pages, PAGE: tl.constexpr, BLOCK_N: tl.constexpr):
    """The Places of the tile that begins at key `start`, a multiple of its size."""
    offs = tl.arange(0, BLOCK_N)
    offs_n = start + offs  # [BLOCK_N]
    block, first_row, rows = page, 0, offs_n
    if PAGE > 0:
        rows = offs % PAGE  # alike for all tiles, so that the compiler takes it out of the loop
        if PAGE < BLOCK_N:  # whole pages, each of which is the block of PAGE keys
            block = tl.broadcast_to(page[:, None], [BLOCK_N // PAGE, PAGE]).reshape([BLOCK_N])
        else:  # a part of one page
            first_row = start % PAGE
        stop = tl.where(_exists(block, num_pages), stop, start)  # no such page holds no key
    return Places(block, first_row, rows, offs_n < stop)


@triton.jit
def _load_rows(cache, places, D: tl.constexpr, BLOCK_D: tl.constexpr, TURNED: tl.constexpr = False):
    """Rows of a cache, [BLOCK_N, BLOCK_D], or turned, [BLOCK_D, BLOCK_N].

    Zeros beyond D and for rows that are not there.
    """
    offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
    mask = places.there[:, None]
    if D < BLOCK_D:
        mask = mask & (offs_d < D)[None, :]
    # In int64: an offset may pass 2^31 elements.
    begin = places.block.to(tl.int64) * cache.block
    begin += tl.cast(places.first_row, tl.int64) * cache.row
    row_ptr = cache.ptr + places.rows.to(tl.int64) * cache.row + begin  # [BLOCK_N]
    cells = row_ptr[:, None] + offs_d[None, :] * cache.column
    if TURNED:  # Triton loads no tile ahead that is turned only after that
        cells, mask = cells.T, tl.broadcast_to(mask, cells.shape).T
    tile = tl.load(cells, mask=mask, other=0.0)
    return tile.to(tl.float32) if UPCAST and tile.dtype == tl.bfloat16 else tile


@triton.jit
def _numbers(tile, dtype: tl.constexpr):
    """A tile in the dtype of q: of float8_e4m3fn, or of pairs of it the lower bytes."""
    if tile.dtype == tl.uint16:
        tile = tile.to(tl.uint8).to(tl.float8e4nv, bitcast=True)
    numbers = tile.to(dtype)
    if UPCAST and tile.dtype.is_fp8():  # the interpreter takes NaN for a number
        numbers = tl.where((tile.to(tl.uint8, bitcast=True) & 127) == 127, float("nan"), numbers)
    return numbers


@triton.jit
def _chunk(length, splits, least_chunk, BLOCK_N: tl.constexpr):
    """Keys of a split: an equal share of the sequence in whole tiles, or more if asked."""
    share = tl.cdiv(tl.cdiv(length, BLOCK_N), splits) * BLOCK_N
    return tl.maximum(share, least_chunk)


@triton.jit
def _merge(
    part_ptr, part_lse_ptr, row, splits,
    sink,  # a logsumexp in base 2 whose values are 0, or None
    D: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One row of the result [BLOCK_D] and its logsumexp in base 2, from those of its splits.

    The order of additions depends on BLOCK_S alone. A split without keys weighs 0 and adds 0, so
    that any number of them changes no bit.
    """
    offs_s, offs_d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    largest, total = float("-inf"), 0.0
    if sink is not None:
        largest, total = sink, 1.0
    acc = tl.zeros([BLOCK_D], tl.float32)
    for start in range(0, splits, BLOCK_S):
        at = row * splits + start + offs_s  # [BLOCK_S]
        mask = start + offs_s < splits
        lse = tl.load(part_lse_ptr + at, mask=mask, other=float("-inf"))
        mask = mask[:, None] & (offs_d < D)[None, :]
        part = tl.load(part_ptr + at[:, None] * D + offs_d[None, :], mask=mask, other=0.0)
        part = tl.where((lse != float("-inf"))[:, None], part, 0.0)  # nothing was written there
        before = largest
        largest = tl.maximum(largest, tl.max(lse, axis=0))
        # No split has a key yet: not -inf + inf.
        offset = tl.where(largest == float("-inf"), 0.0, largest)
        alpha = tl.exp2(before - offset)  # what the old maximum was worth
        weight = tl.exp2(lse - offset)  # [BLOCK_S]
        acc = acc * alpha + tl.sum(weight[:, None] * part, axis=0)
        total = total * alpha + tl.sum(weight, axis=0)
    total = tl.where(total == 0.0, 1.0, total)
    return acc / total, largest + tl.log2(total)


@triton.jit(do_not_specialize=["splits"])
def _combine_kernel(
    part_ptr,  # float32 [rows, splits, D], then [rows, splits]
    out_ptr, lse_ptr,  # [rows, D] and, or None, [rows]
    sink_ptr,  # float32 [H], or None
    splits,
    H: tl.constexpr, M: tl.constexpr,  # query heads and new tokens, if there are sinks
    D: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
    EARLY: tl.constexpr,  # this kernel may start before the splits are computed
):  # fmt: skip
    """One program combines the splits of one row: one query head's result for one token."""
    if EARLY:
        tl.extra.cuda.gdc_wait()  # until they are computed, and can be read
    row = tl.program_id(0).to(tl.int64)
    part_lse_ptr = part_ptr + tl.num_programs(0).to(tl.int64) * splits * D
    sink = None
    if sink_ptr is not None:
        sink = tl.load(sink_ptr + row // M % H) * LOG2_E
    out, lse = _merge(part_ptr, part_lse_ptr, row, splits, sink, D, BLOCK_S, BLOCK_D)
    offs_d = tl.arange(0, BLOCK_D)
    tl.store(out_ptr + row * D + offs_d, out.to(out_ptr.dtype.element_ty), mask=offs_d < D)
    if lse_ptr is not None:
        tl.store(lse_ptr + row, lse / LOG2_E)


@triton.jit(do_not_specialize=["capacity", "num_pages"])
def _cache_append_kernel(
    new_k_ptr, new_v_ptr, k_ptr, v_ptr, lens_ptr, table_ptr,
    k_scale_ptr, v_scale_ptr,  # float32 [Hkv], or None: what a number in a float8 cache is worth
    stride_nkb, stride_nkh, stride_nkm, stride_nkd,  # of the new keys and of the new values
    stride_nvb, stride_nvh, stride_nvm, stride_nvd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_lens, stride_tb, stride_tn,
    Hkv, M, capacity, num_pages,
    D: tl.constexpr, PAGE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program copies BLOCK_M new tokens of one head to where their sequence ends."""
    num_blocks = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)
    hk, b = pid // num_blocks % Hkv, pid // num_blocks // Hkv
    m = pid % num_blocks * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    known = tl.load(lens_ptr + b.to(tl.int64) * stride_lens)
    offs_n = known - M + m  # [BLOCK_M]: the position of each
    # A length that cannot be writes nothing, neither before the cache nor after it.
    mask = (m < M) & (offs_n >= 0) & (offs_n < capacity)
    block, rows, there = b.to(tl.int64), offs_n.to(tl.int64), mask
    if PAGE > 0:
        pages = Pages(table_ptr, b, stride_tb, stride_tn, num_pages)
        page = _look_up(pages, offs_n, mask, PAGE=PAGE)
        block, rows, there = page.to(tl.int64), rows % PAGE, mask & _exists(page, num_pages)
    offs_d = tl.arange(0, BLOCK_D)[None, :]
    mask = there[:, None] & (offs_d < D)
    b, hk, m = b.to(tl.int64), hk.to(tl.int64), m.to(tl.int64)
    from_k = (b * stride_nkb + hk * stride_nkh + m * stride_nkm)[:, None] + offs_d * stride_nkd
    from_v = (b * stride_nvb + hk * stride_nvh + m * stride_nvm)[:, None] + offs_d * stride_nvd
    to_k = (block * stride_kb + hk * stride_kh + rows * stride_kn)[:, None] + offs_d * stride_kd
    to_v = (block * stride_vb + hk * stride_vh + rows * stride_vn)[:, None] + offs_d * stride_vd
    k_tile = k_ptr + to_k
    tl.store(k_tile, _quantize(tl.load(new_k_ptr + from_k, mask=mask), k_scale_ptr, hk), mask=mask)
    v_tile = v_ptr + to_v
    tl.store(v_tile, _quantize(tl.load(new_v_ptr + from_v, mask=mask), v_scale_ptr, hk), mask=mask)


@triton.jit
def _quantize(x, scale_ptr, hk):
    """x, or x over the head's scale in float8_e4m3fn: the nearest that there is, at most ±448.

    Of two that are as near the even one. In integers, as not all that converts rounds once: Triton
    goes by way of float16 on sm_89, and its interpreter rounds otherwise.
    """
    if scale_ptr is not None:
        x = tl.div_rn(x.to(tl.float32), tl.load(scale_ptr + hk))
        x = tl.clamp(x, -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL)
        bits = x.to(tl.int32, bitcast=True)
        sign, bits = (bits >> 24) & 128, bits & 0x7FFFFFFF
        # Four bits of an exponent, whose bias is 7 and not 127, and three of the mantissa.
        normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (127 - 7) * 8
        # Multiples of 2^-9 below 2^-6: a sum with 2^14 has no smaller bits.
        small = (tl.abs(x) + 2.0**14).to(tl.int32, bitcast=True) - (127 + 14) * 2**23
        code = tl.where(x != x, 127, tl.where(tl.abs(x) < 2.0**-6, small, normal)) | sign
        x = code.to(tl.uint8).to(tl.float8e4nv, bitcast=True)
    return x


def decode_attention(
    q, k_cache, v_cache, *, cache_seqlens=None, page_table=None, max_seqlen=None, scale=None,
    num_splits=0, batch_invariant=False, return_lse=False,
    window=None, sinks=None, k_scale=None, v_scale=None,
):  # fmt: skip
    """softmax(q kᵀ · scale) v of the M newest tokens over all keys of their sequences.

    Nothing here waits for the GPU, and what is launched depends on shapes and options alone: in a
    CUDA graph the lengths and the pages may change from one replay to the next.

    Sources: Dao et al. 2023, https://pytorch.org/blog/flash-decoding/ (splits of the sequence);
    Kwon et al. 2023, https://arxiv.org/abs/2309.06180 (pages); Xiao et al. 2023,
    https://arxiv.org/abs/2309.17453 (sinks).

    Args:
        q: [B, H, M, D], M of 1 to 64 new tokens, whose keys are the last M of their sequence;
            float16, bfloat16 or float32; D at most 256. Any strides; but D - 1 steps from column to
            column, here and in the caches, must stay below 2^31, as they are counted in 32 bits.
        k_cache, v_cache: [B, Hkv, N, D], H a multiple of Hkv; with a page_table [pages, Hkv, page,
            D], a page being a power of two of keys. Any strides. In q's dtype, or in
            float8_e4m3fn with scales on a GPU of compute capability 8.9 or later: then an even D,
            whose columns lie side by side, and all other strides even.
        cache_seqlens: int32 [B], keys of each sequence with its M new ones: token m sees the keys
            up to cache_seqlens - M + m. Without it every sequence fills its cache.
        page_table: int32 [B, pages of a sequence]: where the keys of a sequence lie, page by page.
        max_seqlen: the longest sequence that is expected; it helps to choose the splits. Longer
            ones are right too.
        scale: factor on the scores, from 2^-64 to 2^64; 1/√D if None.
        num_splits: programs that share a sequence of one head; 0 chooses by shapes.
        batch_invariant: cut every 1,024 keys, so that a sequence's result has the same bits in
            every batch and in every size of cache.
        return_lse: also return the natural logarithm of the sum of exp(score), -inf for no key.
        window: (left, right), keys that a token sees before its own and after it; None is all. No
            token sees a later one, so right hides nothing more. What no token of a sequence sees is
            not read, whatever lies there. A kernel is compiled for each left.
        sinks: float32 [H], contiguous: one more score for each query head, not times scale, whose
            value is 0. It counts in the logsumexp too; -inf is none.
        k_scale, v_scale: float32 [Hkv], contiguous, for float8 caches: what a number in them is
            times.

    Returns:
        [B, H, M, D] in q's dtype; with return_lse also [B, H, M] in float32. A token without keys,
        or whose scores are all -inf, gets zeros; its logsumexp is that of its sink. Keys beyond the
        cache, and those of pages that do not exist, are not seen and not read; `check_cache` in
        cache.py tells of them.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
    """
    caches = (k_cache, v_cache, cache_seqlens, page_table)
    more = {"sinks": sinks, "k_scale": k_scale, "v_scale": v_scale}
    asked = (max_seqlen, num_splits, batch_invariant, return_lse, scale, window)
    parts, first, second = _decode_plan(q, *caches, more, *asked)
    out = part = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device) if return_lse else None
    if second:  # the parts of all rows, and their logsumexps: one allocation costs less
        part = q.new_empty(parts, dtype=torch.float32)
    with torch.cuda.device_of(q):
        tensors = (q, *caches, part, None if second else lse, *more.values())
        _launch(_decode_attention_kernel, tensors, *first)
        if second:
            _launch(_combine_kernel, (part, out, lse, sinks), *second)
    return (out, lse) if return_lse else out


def cache_append(
    k_new, v_new, k_cache, v_cache, cache_seqlens, page_table=None, *, k_scale=None, v_scale=None
):
    """Write the keys and values of M new tokens where their sequences end, in place.

    Args:
        k_new, v_new: [B, Hkv, M, D], any M of at least 1.
        k_cache, v_cache, page_table: as for `decode_attention`.
        cache_seqlens: int32 [B], the lengths with the new tokens: token m becomes key
            cache_seqlens - M + m. One that lies outside the cache, or on a page that does not
            exist, is not written.
        k_scale, v_scale: as for `decode_attention`. A float8 cache gets what is new divided by
            them and rounded, and ±448 for what is larger.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
    """
    caches = (k_cache, v_cache, cache_seqlens, page_table)
    more = {"k_scale": k_scale, "v_scale": v_scale}
    for error in _refusals({"k_new": k_new, "v_new": v_new}, *caches, more):
        raise error
    B, Hkv, M, D = k_new.shape
    page, capacity, steps = _layout(*caches)
    sizes = (*k_new.stride(), *v_new.stride(), *steps, Hkv, M, capacity, len(k_cache))
    constants = (D, page, 16, max(16, 1 << (D - 1).bit_length()))  # a program copies 16 tokens
    plan = _known(k_new.device, k_new.dtype, k_cache.dtype, sizes, constants)
    tensors, programs = (k_new, v_new, *caches, *more.values()), B * Hkv * -(-M // 16)
    with torch.cuda.device_of(k_new):
        _launch(_cache_append_kernel, tensors, programs, *plan)


_plans = {}  # what a call is like → its plan


def _decode_plan(
    q, k_cache, v_cache, lens, table, more,
    longest, num_splits, batch_invariant, lse, scale, window,
):  # fmt: skip
    """What launches need besides tensors; all that is refused is asked once for calls alike.

    How much the splits leave behind; programs, arguments, options and kind of the kernel that
    computes them, and of the one that combines them, if there are several.
    """
    tensors = q, k_cache, v_cache, lens, table, *more.values()
    asked = (longest, num_splits, batch_invariant, lse, scale, window)
    try:
        key = (
            *[x if x is None else _facts(x) for x in tensors],
            asked, *map(type, (*asked, *(window or ()))),  # 1 equals True
            torch.is_grad_enabled(), peek_interpreter_stack(), forward_ad._current_level,
            _device_facts, INTERPRETED,
        )  # fmt: skip
        return _plans[key]
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as new_or_wrong:
        for error in _refusals({"q": q}, k_cache, v_cache, lens, table, more, asked):
            raise error from None
        if not isinstance(new_or_wrong, KeyError):
            raise
    (B, H, M, D), (blocks, Hkv, *_) = q.shape, k_cache.shape
    page, capacity, steps = _layout(k_cache, v_cache, lens, table)
    fp8 = k_cache.dtype == FP8
    gpu, keys, (left, _) = _device_facts(q.device), longest or capacity, window or (None, None)
    # What can be seen; and as a batch-invariant split begins at a multiple, what lies before it.
    keys = min(keys, keys if left is None else left + M + (SPLIT_KEYS - 1) * batch_invariant)
    work = (q.dtype, B * Hkv, M * H // Hkv, D, page, keys, num_splits, batch_invariant, fp8)
    tile, BLOCK_M, BLOCK_D, programs, _, splits, early = _plan(gpu, *work)
    sizes = (
        *q.stride(), *steps, Hkv, H // Hkv, M, capacity, blocks, splits,
        SPLIT_KEYS if batch_invariant else 0,
        (D**-0.5 if scale is None else float(scale)) * LOG2_E.value,
    )  # fmt: skip
    where = q.device, q.dtype, k_cache.dtype
    constants = (splits > 1, early, D, page, left, BLOCK_M, tile.BLOCK_N, BLOCK_D)
    how = {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
    first, second = (programs * splits, *_known(*where, sizes, constants, **how)), None
    if splits > 1:
        sizes, rows = (None, None) if more["sinks"] is None else (H, M), B * H * M
        constants = (*sizes, D, COMBINED, BLOCK_D, early)
        how = {"num_warps": 1, "launch_pdl": early}  # one warp adds without shared memory
        second = rows, *_known(*where, (splits,), constants, **how)
    if len(_plans) == 4096:
        _plans.clear()
    return _plans.setdefault(key, (B * H * M * splits * (D + 1), first, second))


def _facts(x):
    """All that a refusal or a plan may ask of a tensor: one that is not dense has none of it."""
    memory = x.data_ptr() % 16, x.is_neg(), x.shape, x.stride()
    return type(x), x.dtype, x.device, x.requires_grad, memory


START_TILES = 1  # a program that starts takes the time of so many tiles
COMBINE_TILES = 2  # and combining splits, that of so many


@functools.lru_cache(maxsize=4096)
def split_rule(programs, tiles, slots):
    """Into how many splits to cut every sequence.

    `programs` is how many there are without splits, `tiles` of how many tiles of keys the longest
    sequence consists, and `slots` how many programs the GPU runs at once. A program takes as long
    as its share of tiles, and all of them as many turns as it takes to give each a slot. The
    fewest splits of those that are fastest: none of them is empty, or fewer would be as fast.
    """

    def cost(splits):
        turns = -(-programs * splits // slots)
        return turns * (-(-tiles // splits) + START_TILES) + COMBINE_TILES * (splits > 1)

    return min(range(1, min(tiles, MAX_SPLITS) + 1), key=cost)


class Device(NamedTuple):
    """What a plan depends on."""

    processors: int
    shared: int  # bytes of shared memory that a program may have
    capability: tuple[int, int]
    early: bool = False  # a kernel can be launched before the one that it follows has ended


@functools.cache
def _device_facts(device):
    """The Device of a torch.device; the interpreter plays a Hopper GPU."""
    if device.type == "cpu":
        return Device(132, 232_448, (9, 0))
    found = torch.cuda.get_device_properties(device)
    memory, capability = found.shared_memory_per_block_optin, (found.major, found.minor)
    early = torch.version.hip is None and capability >= (9, 0)
    return Device(found.multi_processor_count, memory, capability, early)


@functools.lru_cache(maxsize=4096)
def _plan(device, dtype, heads, rows, D, page, keys, num_splits=0, invariant=False, fp8=False):
    """How so many heads of keys (of all sequences) with so many rows of q each are shared out.

    `page` is how many keys a page has, 0 without pages, and `keys` how many the longest sequence.
    With `invariant` neither tiles nor splits depend on how many heads there are. Returns the tile,
    BLOCK_M, BLOCK_D, programs without splits, how many the GPU runs at once, splits, and whether
    the kernel that combines them starts early.
    """
    kind = "float32" if dtype == torch.float32 else "16 bits"
    BLOCK_M = max(FEW_ROWS.value, triton.next_power_of_2(min(rows, ROWS[kind])))
    BLOCK_D = max(16, triton.next_power_of_2(D))
    programs = heads * -(-rows // BLOCK_M)
    few = rows <= FEW_ROWS.value
    tiles = FEW_TILES["float8" if fp8 and kind == "16 bits" else kind] if few else TILES[kind]
    tile = next(tile for widest, tile in tiles.items() if D <= widest)
    many = programs > 2 * device.processors and not invariant
    if kind == "16 bits" and BLOCK_D == 128 and (many or 0 < page < tile.BLOCK_N):
        if fp8 and few:
            tile = FLOAT8
        elif page:  # two warps have registers for 16 rows
            tile = MANY_PAGED if many and BLOCK_M <= 16 else PAGED
        elif not fp8:
            tile = SINGLE if rows == 1 and programs > 8 * device.processors else MANY
    # Bytes of a tile of keys and values, and of the rest; where room is short, fewer are in flight.
    size = 2 * tile.BLOCK_N * BLOCK_D * (1 if fp8 else dtype.itemsize)
    beside = BLOCK_M * (BLOCK_D + tile.BLOCK_N) * dtype.itemsize
    stages = max(1, min(tile.num_stages, (device.shared - beside) // size + 1))
    # A multiprocessor has as much as a program may have, and CUDA's 1024 bytes of each program.
    held = max(1, stages - 1) * size + beside + 1024
    slots = device.processors * max(1, min(tile.at_once, (device.shared + 1024) // held))
    splits = num_splits or split_rule(programs, -(-keys // tile.BLOCK_N), slots)
    if invariant:
        splits = -(-keys // SPLIT_KEYS)
    if programs * splits >= 2**31:  # CUDA's limit
        raise ValueError(f"q asks for {programs * splits} programs; allowed: fewer than 2^31")
    early, tile = splits > 1 and device.early, tile._replace(num_stages=stages)
    return tile, BLOCK_M, BLOCK_D, programs, slots, splits, early


def _layout(k_cache, v_cache, lens, table):
    """Keys of a page, 0 without pages; keys that a sequence has room for; what is stepped by."""
    N = k_cache.shape[2]
    steps = (*k_cache.stride(), *v_cache.stride(), *((0,) if lens is None else lens.stride()))
    if table is None:
        return 0, N, (*steps, 0, 0)
    return N, N * table.shape[1], (*steps, *table.stride())


@functools.lru_cache(maxsize=4096)
def _known(device, dtype, dtype_k, sizes, constants, **options):
    """Arguments and options of a launch; and what Triton would compile a kernel for, of these."""
    # Which sizes are 1, which 16 divides, which need 64 bits.
    kinds = [(x == 1, x % 16 == 0, x < 2**31) for x in sizes]
    return (*sizes, *constants), options, str((device, dtype, dtype_k, constants, options, kinds))


_compiled = {}  # all that Triton compiles a kernel for → the kernel


def _launch(kernel, tensors, programs, arguments, options, kind):
    """Launch a kernel on tensors (or None) and arguments: its parameters, in this order.

    Triton asks of each argument of each call whether it is the kernel for it that is compiled
    already. That takes longer than the launch, so here a kernel is found by what matters alone.
    """
    addresses = [x if x is None else x.data_ptr() for x in tensors]
    run, aligned = triton.knobs.runtime, [x and x % 16 for x in addresses]
    key = kernel.__name__, kind, *aligned, run.debug, triton.knobs.compilation.instrumentation_mode
    compiled = _compiled.get(key)
    # A profiler's hooks are Triton's to call: each takes time, even where there is nothing to do.
    hooks = [getattr(x, "calls", True) for x in (run.launch_enter_hook, run.launch_exit_hook)]
    if compiled is None or any(hooks):
        compiled = kernel[(programs,)](*tensors, *arguments, **options)
        # The interpreter compiles none; AMD's compiler asks how much memory a tensor lies in, too.
        if isinstance(compiled, CompiledKernel) and torch.version.hip is None:
            _compiled[key] = compiled
        return
    stream = triton.runtime.driver.active.get_current_stream(tensors[0].device.index)
    about = stream, compiled.function, compiled.packed_metadata, None, None, None
    compiled.run(programs, 1, 1, *about, *addresses, *arguments)


DTYPES, FP8 = (torch.float16, torch.bfloat16, torch.float32), torch.float8_e4m3fn


def _refusals(new, k_cache, v_cache, lens, table, more, asked=(None, 0, False, False, None, None)):
    """What no kernel here takes, in order: which argument, what came, what is allowed.

    `new` names queries, or new keys and values, and `more` sinks and scales, each of which may be
    None; `asked` are decode_attention's options.
    """
    if peek_interpreter_stack() or forward_ad._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    q = next(iter(new.values()))
    small = {name: x for name, x in more.items() if x is not None}
    fp8 = getattr(k_cache, "dtype", None) == FP8
    for name, x in (*new.items(), ("k_cache", k_cache), ("v_cache", v_cache), *small.items()):
        if not isinstance(x, torch.Tensor) or x.is_nested or x.layout != torch.strided:
            kind = "nested" if getattr(x, "is_nested", False) else getattr(x, "layout", type(x))
            yield TypeError(f"{name} is {kind}; allowed: a dense torch.Tensor")
        if x is q and x.dtype not in DTYPES:
            yield TypeError(f"{name} is {x.dtype}; allowed: {DTYPES}")
        want = torch.float32 if name in small else FP8 if fp8 and name not in new else q.dtype
        if (x.dtype, x.device) != (want, q.device):
            yield TypeError(f"{name} is {x.dtype} on {x.device}; allowed: {want} on {q.device}")
        if name not in small and (x.dim() != 4 or x.numel() == 0):
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed: 4 dimensions, none 0")
        if x.requires_grad and torch.is_grad_enabled():
            yield ValueError(f"{name} requires grad, but has no backward; allowed: torch.no_grad()")
        if x.is_neg():  # its memory holds the opposite sign
            yield ValueError(f"{name} is a negated view; allowed: {name}.resolve_neg()")
    if q.device.type != "cuda" and not (q.is_cpu and INTERPRETED):
        yield ValueError(f"q is on {q.device}; allowed: a GPU, or a CPU with TRITON_INTERPRET=1")
    (B, H, M, D), (blocks, Hkv, N, _) = q.shape, k_cache.shape
    want = (B if table is None else blocks, Hkv if "q" in new else H, N, D)
    if q.shape != new.get("v_new", q).shape:
        yield ValueError(f"v_new has shape {(*new['v_new'].shape,)}; allowed: {(*q.shape,)}")
    for name, x in (("k_cache", k_cache), ("v_cache", v_cache)):
        if x.shape != want:
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed: {want}")
        odd = [n for n in (D, x.data_ptr(), *x.stride()[:3]) if n % 2]
        if fp8 and "q" in new and (odd or x.stride(3) != 1):  # columns are loaded two at a time
            yield ValueError(f"{name} has {D} columns, strides {x.stride()}; allowed: even, last 1")
        if "q" not in new and 0 in x.stride() and 0 in x.squeeze().stride():
            yield ValueError(f"{name} has strides {x.stride()}; allowed: none of 0")
    if "q" in new and (M > 64 or D > max(TILES["16 bits"])):  # more new tokens are a prefill
        yield ValueError(f"q has shape {(*q.shape,)}; allowed: at most 64 tokens, 256 columns")
    if H % Hkv:
        yield ValueError(f"q has {H} heads and k {Hkv}; allowed: a multiple of k's")
    for name, x in more.items():
        n = H if name == "sinks" else Hkv
        if x is not None and (x.shape != (n,) or not x.is_contiguous()):
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed: {(n,)}, contiguous")
        if name != "sinks" and (x is None) == fp8:
            yield TypeError(f"{name} is {type(x)}; allowed: a tensor for {FP8}, else None")
    yield from _option_refusals(q, k_cache, lens, table, new, *asked)


def _option_refusals(q, k_cache, lens, table, new, longest, n, invariant, lse, scale, window):
    """The same of lengths, pages and what is asked for beside the tensors."""
    for name, x, rank in (("cache_seqlens", lens, 1), ("page_table", table, 2)):
        if x is None and (rank == 2 or "q" in new):
            continue
        if not isinstance(x, torch.Tensor) or (x.dtype, x.layout) != (torch.int32, torch.strided):
            kind = getattr(x, "dtype", type(x))
            yield TypeError(f"{name} is {kind}; allowed: a dense torch.Tensor of torch.int32")
        if x.device != q.device or x.dim() != rank or x.shape[0] != q.shape[0]:
            what = f"has shape {(*x.shape,)} on {x.device}"
            yield ValueError(f"{name} {what}; allowed: {(len(q), 'pages')[:rank]} on {q.device}")
    N = k_cache.shape[2]
    page, capacity = (0, N) if table is None else (N, N * table.shape[1])
    if page & (page - 1) or not 0 < capacity <= 2**30:  # no sum of two lengths passes 2^31
        what = f"shape {(*k_cache.shape,)}, {capacity} keys for a sequence"
        yield ValueError(f"k_cache has {what}; allowed: 1 to 2^30, in pages of a power of two")
    most, longest = 0 if invariant is True else MAX_SPLITS, capacity if longest is None else longest
    if window is not None and (type(window) is not tuple or len(window) != 2):
        yield TypeError(f"window is {window!r:.40}; allowed: (left, right) or None")
    ints = [("window", x, 0, 2**30) for x in window or () if x is not None]
    ints += [("max_seqlen", longest, 1, capacity), ("num_splits", n, 0, most)]
    for name, x, low, high in ints:
        if type(x) is not int or not low <= x <= high:
            yield ValueError(f"{name} is {x!r}; allowed: an int from {low} to {high}")
    kind, least = (FP8, (8, 9)) if k_cache.dtype == FP8 else (torch.bfloat16, (8, 0))
    if kind in (q.dtype, k_cache.dtype) and (gpu := _device_facts(q.device).capability) < least:
        yield TypeError(f"{kind} has no instructions on a GPU of {gpu}; allowed: from {least} on")
    for name, x in (("batch_invariant", invariant), ("return_lse", lse)):
        if not isinstance(x, bool):
            yield TypeError(f"{name} is {x!r}; allowed: True, False")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, numbers.Real)):
        yield TypeError(f"scale is {scale!r:.40}; allowed: a number or None")
    if scale is not None and not scale >= 2.0**-64 <= 1 / scale:  # float16 cannot hold 2.0**64
        yield ValueError(f"scale is {scale!r:.40}; allowed: 2^-64 to 2^64")


def main():
    """Check the kernel against PyTorch in float64; time both where there is a GPU."""
    torch.manual_seed(0)
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    q, (k_pages, v_pages) = torch.randn(2, 8, 2, 64).half(), torch.randn(2, 40, 2, 16, 64).half()
    table, lengths = torch.randperm(40).int().view(2, 20), torch.tensor([320, 77]).int()
    k, v = (x[table.long()].transpose(1, 2).flatten(2, 3) for x in (k_pages, v_pages))
    seen = torch.arange(320) <= lengths[:, None, None, None] - 2 + torch.arange(2)[:, None]
    options = {"cache_seqlens": lengths, "page_table": table, "num_splits": 3}
    ours = functools.partial(decode_attention, q, k_pages, v_pages, **options)
    sdpa = functools.partial(torch.nn.functional.scaled_dot_product_attention, enable_gqa=True)
    theirs = functools.partial(sdpa, q, k, v, seen)
    want = sdpa(q.double(), k.double(), v.double(), seen)
    error, allowed = ((f() - want).abs().max() for f in (ours, theirs))
    allowed = 2 * allowed + torch.finfo(q.dtype).eps * want.abs().max()  # both round alike
    print(f"q {(*q.shape,)}, pages {(*k_pages.shape,)}, {q.dtype} on {q.device}")
    print(f"difference from float64: {error:.1e} at most")
    for f in (ours, theirs) if q.is_cuda else ():
        print(f"{f.func.__name__}: {triton.testing.do_bench(f) * 1000:.1f} µs")
    print("OK" if error <= allowed else f"WRONG: more than {allowed:.1e} is not rounding")
    return int(error > allowed)


if __name__ == "__main__":
    raise SystemExit(main())
