"""Attention of a few new tokens over a long cache of keys and values, which splits share.

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
from triton.compiler import CompiledKernel

INTERPRETED = triton.knobs.runtime.interpret
UPCAST = tl.constexpr(INTERPRETED)  # the interpreter cannot compute with bfloat16
LOG2_E = tl.constexpr(math.log2(math.e))  # exp(x) = 2^(x · log2(e)), and a GPU has only exp2
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_SCALE = 2.0**64  # and at least 1 / MAX_SCALE: scores of float16 stay within float32's range
MAX_QUERIES = 64  # new tokens of a sequence; more are a prefill
MAX_KEYS = 2**30  # of a sequence, so that no sum of two lengths passes 2^31
MAX_SPLITS = 256
MAX_PROGRAMS = 2**31 - 1  # CUDA's limit for the first grid dimension
SPLIT_KEYS = 1024  # keys of a split in a batch-invariant call
APPENDED = 16  # new tokens that a program of cache_append copies
COMBINED = 16  # splits that the combining kernel reads at once


# --8<-- [start:tiles]
class Tile(NamedTuple):
    """How many keys a program loads at once, and on how many warps it runs."""

    BLOCK_N: int  # keys of an iteration
    num_warps: int  # 32 threads each
    num_stages: int  # iterations whose loads are in flight at once
    at_once: int = 4  # programs of a multiprocessor at most: more of them don't load faster


# Largest D that a row is for → its tile. Large ones suit one program per multiprocessor, which has
# to keep its share of the bandwidth busy alone. In float32, which no tensor core multiplies, tiles
# are smaller.
TILES = {
    "16 bits": {64: Tile(64, 4, 4), 128: Tile(128, 4, 3), 256: Tile(64, 8, 3)},
    "float32": {64: Tile(32, 4, 3), 128: Tile(16, 4, 3), 256: Tile(16, 8, 3)},
}
# Instead, for such a power of two of columns: where sequences and heads alone are more than two
# programs per multiprocessor, and where they are more than eight, of one row each. With pages:
# where a page has fewer keys than the tile above, and where programs are many, of few rows each.
MANY = {"16 bits": {128: Tile(64, 4, 2)}, "float32": {}}
SINGLE = {"16 bits": {128: Tile(64, 4, 3)}, "float32": {}}
PAGED = {"16 bits": {128: Tile(64, 4, 3, at_once=2)}, "float32": {}}
MANY_PAGED = {"16 bits": {128: Tile(64, 2, 2)}, "float32": {}}
ROWS = {"16 bits": 64, "float32": 16}  # rows of q that a program holds at most: heads × tokens
# --8<-- [end:tiles]


# --8<-- [start:look_up]
@triton.jit
def _look_up(table_ptr, b, stride_tb, stride_tn, n, mask, PAGE: tl.constexpr):
    """The page that key n lies on, for one key or for each of several; -1 where the mask is 0."""
    entry = table_ptr + b.to(tl.int64) * stride_tb + (n // PAGE).to(tl.int64) * stride_tn
    return tl.load(entry, mask=mask, other=-1)  # int32


@triton.jit
def _exists(page, num_pages):
    """Whether there is such a page: the host cannot know what the table says."""
    return (page >= 0) & (page < num_pages)
    # --8<-- [end:look_up]


@triton.jit
def _places(page, start, stop, num_pages, PAGE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Where a tile's keys lie: block, first row there, and rows from it on; which keys there are.

    The tile begins at key `start`, a multiple of its size. A block is a page, or a sequence in a
    cache without pages.
    """
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
    return block, first_row, rows, offs_n < stop


@triton.jit
def _load_rows(
    x_ptr, block, first_row, rows, there,  # as _places gives them
    stride_b, stride_n, stride_d,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Rows of a cache, [BLOCK_N, BLOCK_D]; zeros beyond D and for rows that are not there."""
    offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
    mask = there[:, None]
    if D < BLOCK_D:
        mask = mask & (offs_d < D)[None, :]
    # In int64: an offset may pass 2^31 elements.
    begin = block.to(tl.int64) * stride_b + tl.cast(first_row, tl.int64) * stride_n
    row_ptr = x_ptr + rows.to(tl.int64) * stride_n + begin  # [BLOCK_N]
    tile = tl.load(row_ptr[:, None] + offs_d[None, :] * stride_d, mask=mask, other=0.0)
    return tile.to(tl.float32) if UPCAST and tile.dtype == tl.bfloat16 else tile


@triton.jit
def _attend(
    q, k_ptr, v_ptr, table_ptr,  # [BLOCK_M, BLOCK_D]; caches at this head; pages
    stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd,
    stride_tb, stride_tn,
    b, first, stop,  # the sequence, and its keys: first … stop - 1
    last_key,  # [BLOCK_M]: the last key that a row sees
    num_pages,
    scale_log2,  # scale · log2(e)
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Rows of q over some keys: largest score, sum of exp2(score - largest), the same of values."""
    # --8<-- [start:attend]
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    page, n = b, first
    if PAGE > 0:
        if PAGE < BLOCK_N:  # one key of each page: [BLOCK_N // PAGE]
            n += PAGE * tl.arange(0, BLOCK_N // PAGE)
        page = _look_up(table_ptr, b, stride_tb, stride_tn, n, n < stop, PAGE=PAGE)
    for start in tl.range(first, stop, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
        block, first_row, rows, there = _places(
            page, start, stop, num_pages, PAGE=PAGE, BLOCK_N=BLOCK_N
        )
        if PAGE > 0:  # the next tile's pages: the table has answered when they are needed
            n += BLOCK_N
            page = _look_up(table_ptr, b, stride_tb, stride_tn, n, n < stop, PAGE=PAGE)
        k = _load_rows(
            k_ptr,
            block,
            first_row,
            rows,
            there,
            stride_kb,
            stride_kn,
            stride_kd,
            D=D,
            BLOCK_D=BLOCK_D,
        )
        s = tl.dot(q, k.T, input_precision="ieee")  # [BLOCK_M, BLOCK_N], float32
        visible = there[None, :] & (offs_n[None, :] <= last_key[:, None])
        s = tl.where(visible, s * scale_log2, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, axis=1))  # [BLOCK_M]
        # A row that has seen no key yet subtracts 0: -inf - (-inf) would be NaN.
        m_sub = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp2(m_i - m_sub)  # what the old maximum was worth
        p = tl.exp2(s - m_sub[:, None])  # [BLOCK_M, BLOCK_N]
        l_i = l_i * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None]
        # --8<-- [end:attend]
        # --8<-- [start:attend_values]
        v = _load_rows(
            v_ptr,
            block,
            first_row,
            rows,
            there,
            stride_vb,
            stride_vn,
            stride_vd,
            D=D,
            BLOCK_D=BLOCK_D,
        )
        acc = tl.dot(p.to(q.dtype), v, acc, input_precision="ieee")
        m_i = m_new
    # --8<-- [end:attend_values]
    return m_i, l_i, acc


@triton.jit
def _chunk(length, splits, least_chunk, BLOCK_N: tl.constexpr):
    """Keys of a split: an equal share of the sequence in whole tiles, or more if asked."""
    share = tl.cdiv(tl.cdiv(length, BLOCK_N), splits) * BLOCK_N
    return tl.maximum(share, least_chunk)


# Lengths of the caller's choice: a kernel for each that 16 divides would only take time.
@triton.jit(do_not_specialize=["splits", "least_chunk", "capacity", "num_pages"])
def _decode_attention_kernel(
    q_ptr, k_ptr, v_ptr,
    lens_ptr, table_ptr,  # int32 [B], or None: all caches are full; int32 [B, pages], or None
    out_ptr,  # [B, H, M, D]; if PARTIAL, float32 [B, H, M, splits, D] and then [B, H, M, splits]
    lse_ptr,  # [B, H, M] or None; None if PARTIAL: the logsumexps follow the parts
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
    # --8<-- [start:which_rows]
    num_blocks = tl.cdiv(M * G, BLOCK_M)
    pid = tl.program_id(0)  # 0 … B · Hkv · splits · num_blocks - 1: neighbors share keys
    block_idx, split = pid % num_blocks, pid // num_blocks % splits
    hk = pid // num_blocks // splits % Hkv
    b = pid // num_blocks // splits // Hkv
    offs_r = block_idx * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    mask_r = offs_r < M * G
    m, h = offs_r // G, hk * G + offs_r % G  # [BLOCK_M] each: the token, the query head
    # --8<-- [end:which_rows]

    # --8<-- [start:which_keys]
    known = capacity
    if lens_ptr is not None:
        known = tl.load(lens_ptr + b.to(tl.int64) * stride_lens)  # int32, anything
    length = tl.minimum(tl.maximum(known, 0), capacity)  # nothing outside the cache is read
    last_key = known - M + m  # [BLOCK_M]
    last_token = tl.minimum((block_idx + 1) * BLOCK_M - 1, M * G - 1) // G
    end = tl.minimum(length, known - M + last_token + 1)  # no row sees a key from here on
    chunk = _chunk(length, splits, least_chunk, BLOCK_N=BLOCK_N)
    first = split * chunk
    stop = tl.minimum(first + chunk, end)
    # --8<-- [end:which_keys]

    offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
    mask = mask_r[:, None] & (offs_d < D)[None, :]  # [BLOCK_M, BLOCK_D]
    q_row = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + m.to(tl.int64) * stride_qm
    q_tile = q_ptr + q_row[:, None] + offs_d[None, :] * stride_qd
    q = tl.load(q_tile, mask=mask, other=0.0)
    q = q.to(tl.float32) if UPCAST and q.dtype == tl.bfloat16 else q
    m_i, l_i, acc = _attend(
        q,
        k_ptr + hk.to(tl.int64) * stride_kh,
        v_ptr + hk.to(tl.int64) * stride_vh,
        table_ptr,
        stride_kb,
        stride_kn,
        stride_kd,
        stride_vb,
        stride_vn,
        stride_vd,
        stride_tb,
        stride_tn,
        b,
        first,
        stop,
        last_key,
        num_pages,
        scale_log2,
        D=D,
        PAGE=PAGE,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_D=BLOCK_D,
    )

    # --8<-- [start:store]
    out = acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]  # no visible key: zeros
    lse = m_i + tl.log2(tl.where(l_i == 0.0, 1.0, l_i))  # [BLOCK_M]; -inf without a key
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
    # --8<-- [end:store]


@triton.jit
def _merge(
    part_ptr,
    part_lse_ptr,
    row,
    splits,
    D: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One row of the result [BLOCK_D] and its logsumexp in base 2, from those of its splits.

    The order of additions depends on BLOCK_S alone. A split without keys weighs 0 and adds 0, so
    that any number of them changes no bit.
    """
    offs_s, offs_d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    largest, total = float("-inf"), 0.0
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
    out_ptr,
    lse_ptr,  # [rows, D] and, or None, [rows]
    splits,
    D: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
    EARLY: tl.constexpr,  # this kernel may start before the splits are computed
):
    """One program combines the splits of one row: one query head's result for one token."""
    if EARLY:
        tl.extra.cuda.gdc_wait()  # until they are computed, and can be read
    row = tl.program_id(0).to(tl.int64)
    part_lse_ptr = part_ptr + tl.num_programs(0).to(tl.int64) * splits * D
    out, lse = _merge(part_ptr, part_lse_ptr, row, splits, D=D, BLOCK_S=BLOCK_S, BLOCK_D=BLOCK_D)
    offs_d = tl.arange(0, BLOCK_D)
    tl.store(out_ptr + row * D + offs_d, out.to(out_ptr.dtype.element_ty), mask=offs_d < D)
    if lse_ptr is not None:
        tl.store(lse_ptr + row, lse / LOG2_E)


@triton.jit(do_not_specialize=["capacity", "num_pages"])
def _cache_append_kernel(
    new_k_ptr, new_v_ptr, k_ptr, v_ptr, lens_ptr, table_ptr,
    stride_nkb, stride_nkh, stride_nkm, stride_nkd,  # of the new keys and of the new values
    stride_nvb, stride_nvh, stride_nvm, stride_nvd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_lens, stride_tb, stride_tn,
    Hkv, M, capacity, num_pages,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program copies BLOCK_M new tokens of one head to where their sequence ends."""
    num_blocks = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)
    hk, b = pid // num_blocks % Hkv, pid // num_blocks // Hkv
    m = pid % num_blocks * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    known = tl.load(lens_ptr + b.to(tl.int64) * stride_lens)
    offs_n = known - M + m  # [BLOCK_M]: the position of each
    # A length that cannot be writes nothing, neither in front of the cache nor behind it.
    mask = (m < M) & (offs_n >= 0) & (offs_n < capacity) & (known >= 0)
    block, rows, there = b.to(tl.int64), offs_n.to(tl.int64), mask
    if PAGE > 0:
        page = _look_up(table_ptr, b, stride_tb, stride_tn, offs_n, mask, PAGE=PAGE)
        block, rows, there = page.to(tl.int64), rows % PAGE, mask & _exists(page, num_pages)
    offs_d = tl.arange(0, BLOCK_D)[None, :]
    mask = there[:, None] & (offs_d < D)
    b, hk, m = b.to(tl.int64), hk.to(tl.int64), m.to(tl.int64)
    from_k = (b * stride_nkb + hk * stride_nkh + m * stride_nkm)[:, None] + offs_d * stride_nkd
    from_v = (b * stride_nvb + hk * stride_nvh + m * stride_nvm)[:, None] + offs_d * stride_nvd
    to_k = (block * stride_kb + hk * stride_kh + rows * stride_kn)[:, None] + offs_d * stride_kd
    to_v = (block * stride_vb + hk * stride_vh + rows * stride_vn)[:, None] + offs_d * stride_vd
    tl.store(k_ptr + to_k, tl.load(new_k_ptr + from_k, mask=mask), mask=mask)
    tl.store(v_ptr + to_v, tl.load(new_v_ptr + from_v, mask=mask), mask=mask)


# --8<-- [start:launcher]
def decode_attention(
    q,
    k_cache,
    v_cache,
    *,
    cache_seqlens=None,
    page_table=None,
    max_seqlen=None,
    scale=None,
    num_splits=0,
    batch_invariant=False,
    return_lse=False,
):
    """softmax(q kᵀ · scale) v of the M newest tokens over all keys of their sequences.

    Nothing here waits for the GPU, and what is launched depends on shapes and options alone: in a
    CUDA graph the lengths and the pages may change from one replay to the next.

    Sources: Dao et al. 2023, https://pytorch.org/blog/flash-decoding/ (splits of the sequence);
    Kwon et al. 2023, https://arxiv.org/abs/2309.06180 (pages).

    Args:
        q: [B, H, M, D], M of 1 to 64 new tokens, whose keys are the last M of their sequence;
            float16, bfloat16 or float32; D at most 256. Any strides.
        k_cache, v_cache: [B, Hkv, N, D], H a multiple of Hkv; with a page_table [pages, Hkv, page,
            D], a page being a power of two of keys. Any strides.
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

    Returns:
        [B, H, M, D] in q's dtype; with return_lse also [B, H, M] in float32. A token without keys,
        or whose scores are all -inf, gets zeros. Keys beyond the cache, and those of pages that do
        not exist, are not seen and not read; `check_cache` tells of them.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
    """
    # --8<-- [end:launcher]
    # --8<-- [start:choose]
    _check_inputs(q, k_cache, v_cache, cache_seqlens, page_table)
    capacity = _capacity(k_cache, page_table)
    _check_options(capacity, max_seqlen, num_splits, batch_invariant, return_lse)
    scale = _scale_or_default(scale, q.shape[-1])
    B, H, M, D = q.shape
    Hkv = k_cache.shape[1]
    page = 0 if page_table is None else k_cache.shape[2]
    device, longest = _device_facts(q.device), max_seqlen or capacity
    plan, splits, early = _cut(
        device, q.dtype, B * Hkv, M * H // Hkv, D, page, longest, num_splits, batch_invariant
    )
    _check_programs(q, plan.programs * splits)
    # --8<-- [end:choose]
    # --8<-- [start:launch]
    out = part = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device) if return_lse else None
    if splits > 1:  # the parts of all rows, and their logsumexps: one allocation costs less
        part = q.new_empty(B * H * M * splits * (D + 1), dtype=torch.float32)
    sizes = (
        *q.stride(),
        *k_cache.stride(),
        *v_cache.stride(),
        *_steps(cache_seqlens, page_table),
        Hkv,
        H // Hkv,
        M,
        capacity,
        k_cache.shape[0],
        splits,
        SPLIT_KEYS if batch_invariant else 0,
        scale * LOG2_E.value,
    )
    constants = (splits > 1, early, D, page, plan.BLOCK_M, plan.tile.BLOCK_N, plan.BLOCK_D)
    tensors = (q, k_cache, v_cache, cache_seqlens, page_table, part, None if splits > 1 else lse)
    with _device_of(q):
        _launch(
            _decode_attention_kernel,
            plan.programs * splits,
            tensors,
            sizes,
            constants,
            num_warps=plan.tile.num_warps,
            num_stages=plan.tile.num_stages,
        )
        if splits > 1:
            combine = (D, COMBINED, plan.BLOCK_D, early)
            tensors, rows = (part, out, lse), B * H * M
            options = {"num_warps": 1, "launch_pdl": early}  # one warp adds without shared memory
            _launch(_combine_kernel, rows, tensors, (splits,), combine, **options)
    return (out, lse) if return_lse else out
    # --8<-- [end:launch]


def cache_append(k_new, v_new, k_cache, v_cache, cache_seqlens, page_table=None):
    """Write the keys and values of M new tokens where their sequences end, in place.

    Args:
        k_new, v_new: [B, Hkv, M, D], any M of at least 1.
        k_cache, v_cache, page_table: as for `decode_attention`.
        cache_seqlens: int32 [B], the lengths with the new tokens: token m becomes key
            cache_seqlens - M + m. One that lies outside the cache, or on a page that does not
            exist, is not written.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
    """
    _check_appended(k_new, v_new, k_cache, v_cache, cache_seqlens, page_table)
    B, Hkv, M, D = k_new.shape
    sizes = (
        *k_new.stride(),
        *v_new.stride(),
        *k_cache.stride(),
        *v_cache.stride(),
        *_steps(cache_seqlens, page_table),
        Hkv,
        M,
        _capacity(k_cache, page_table),
        k_cache.shape[0],
    )
    page = 0 if page_table is None else k_cache.shape[2]
    tensors = (k_new, v_new, k_cache, v_cache, cache_seqlens, page_table)
    with _device_of(k_new):
        _launch(
            _cache_append_kernel,
            B * Hkv * -(-M // APPENDED),
            tensors,
            sizes,
            (D, page, APPENDED, _power_of_two(D)),
        )


def check_cache(q, k_cache, v_cache, *, cache_seqlens=None, page_table=None):
    """Raise ValueError for the first length and the first page that cannot be, by their places.

    The launchers do not look: that would have to wait for the GPU, as this does. Only the pages
    that a sequence of its length has are looked at.
    """
    _check_inputs(q, k_cache, v_cache, cache_seqlens, page_table)
    capacity = _capacity(k_cache, page_table)
    if cache_seqlens is None:
        lengths = torch.full(q.shape[:1], capacity)
    else:
        lengths = cache_seqlens.cpu().long()
    wrong = ((lengths < 0) | (lengths > capacity)).nonzero().flatten().tolist()
    if wrong:
        raise ValueError(
            f"cache_seqlens[{wrong[0]}] is {lengths[wrong[0]]}; 0 to {capacity} are allowed"
            f"{_and_more(wrong)}"
        )
    if page_table is None:
        return
    pages, size = k_cache.shape[0], k_cache.shape[2]
    table = page_table.cpu().long()
    used = torch.arange(table.shape[1]) < ((lengths + size - 1) // size)[:, None]
    wrong = (used & ((table < 0) | (table >= pages))).nonzero().tolist()
    if wrong:
        b, n = wrong[0]
        raise ValueError(
            f"page_table[{b}, {n}] is {table[b, n]}; 0 to {pages - 1} are allowed{_and_more(wrong)}"
        )


def _and_more(wrong):
    return f" ({len(wrong) - 1} more like it)" if len(wrong) > 1 else ""


# --8<-- [start:rule]
START_TILES = 1  # a program that starts takes the time of so many tiles
COMBINE_TILES = 2  # and combining splits, that of so many


@functools.lru_cache(maxsize=4096)
def split_rule(programs, tiles, slots):
    """Into how many splits to cut every sequence.

    `programs` is how many there are without splits, `tiles` of how many tiles of keys the longest
    sequence consists, and `slots` how many programs the GPU runs at once. A program takes as long
    as its share of tiles, and all of them as many turns as it takes to give each a slot. The rule
    tries every number of splits that leaves none empty and takes the fastest, the smallest first.
    """
    best, least = 1, None
    for splits in range(1, min(tiles, MAX_SPLITS) + 1):
        share = -(-tiles // splits)
        if -(-tiles // share) < splits:
            continue  # the last one would be empty
        turns = -(-programs * splits // slots)
        cost = turns * (share + START_TILES) + COMBINE_TILES * (splits > 1)
        if least is None or cost < least:
            best, least = splits, cost
    return best
    # --8<-- [end:rule]


RESERVED = 1024  # bytes of shared memory that CUDA adds to each program


class Device(NamedTuple):
    """What a plan depends on."""

    processors: int
    shared_block: int  # bytes of shared memory that a program may have
    shared_processor: int  # and that a multiprocessor has
    capability: tuple[int, int]
    early: bool = False  # a kernel can be launched before the one that it follows has ended


class Plan(NamedTuple):
    """How the rows of q are cut, and with which tiles of keys."""

    BLOCK_M: int  # rows of a program
    BLOCK_D: int
    tile: Tile
    programs: int  # without splits
    slots: int  # programs that the GPU runs at once


@functools.lru_cache(maxsize=4096)
def _plan(device, dtype, heads, rows, D, page, invariant):
    """The Plan for so many heads of keys (of all sequences) with so many rows of q each.

    `page` is how many keys a page has, 0 without pages. With `invariant` the tile does not depend
    on how many heads there are: neither does the order of additions.
    """
    kind = "float32" if dtype == torch.float32 else "16 bits"
    BLOCK_M = min(_power_of_two(rows), ROWS[kind])
    BLOCK_D = _power_of_two(D)
    programs = heads * -(-rows // BLOCK_M)
    tile = next(tile for widest, tile in TILES[kind].items() if D <= widest)
    many = programs > 2 * device.processors and not invariant
    if many and not page:
        single = rows == 1 and programs > 8 * device.processors
        tile = (SINGLE if single else MANY)[kind].get(BLOCK_D, tile)
    elif many and BLOCK_M == 16:  # two warps have registers for no more rows
        tile = MANY_PAGED[kind].get(BLOCK_D, tile)
    elif many or 0 < page < tile.BLOCK_N:
        tile = PAGED[kind].get(BLOCK_D, tile)
    # Bytes of a tile of keys and values, and of the rest; where room is short, fewer are in flight.
    size = 2 * tile.BLOCK_N * BLOCK_D * dtype.itemsize
    beside = BLOCK_M * (BLOCK_D + tile.BLOCK_N) * dtype.itemsize
    most = (device.shared_block - beside) // size + 1
    tile = tile._replace(num_stages=max(1, min(tile.num_stages, most)))
    held = max(1, tile.num_stages - 1) * size + beside + RESERVED
    slots = device.processors * max(1, min(tile.at_once, device.shared_processor // held))
    return Plan(BLOCK_M, BLOCK_D, tile, programs, slots)


@functools.lru_cache(maxsize=4096)
def _cut(device, dtype, heads, rows, D, page, longest, num_splits, invariant):
    """The Plan, the number of splits, and whether the kernel that combines them starts early."""
    plan = _plan(device, dtype, heads, rows, D, page, invariant)
    if invariant:
        splits = -(-longest // SPLIT_KEYS)
    else:
        tiles = -(-longest // plan.tile.BLOCK_N)
        splits = num_splits or split_rule(plan.programs, tiles, plan.slots)
    return plan, splits, splits > 1 and device.early


def _power_of_two(size):
    """The next power of two, and at least 16: less is no operand of a tensor core."""
    return max(16, 1 << (size - 1).bit_length())


@functools.cache
def _device_facts(device):
    """The Device of a torch.device; the interpreter plays a Hopper GPU."""
    if device.type == "cpu":
        return Device(132, 232_448, 233_472, (9, 0))
    found = torch.cuda.get_device_properties(device)
    capability = (found.major, found.minor)
    return Device(
        found.multi_processor_count,
        found.shared_memory_per_block_optin,
        found.shared_memory_per_multiprocessor,
        capability,
        early=torch.version.hip is None and capability >= (9, 0),
    )


def _capacity(k_cache, page_table):
    """Keys that a sequence has room for."""
    return k_cache.shape[2] * (1 if page_table is None else page_table.shape[1])


def _steps(cache_seqlens, page_table):
    """Strides of the lengths and of the table."""
    of_lengths = (0,) if cache_seqlens is None else cache_seqlens.stride()
    return (*of_lengths, *((0, 0) if page_table is None else page_table.stride()))


# --8<-- [start:compiled]
_compiled = {}  # all that Triton compiles a kernel for → the kernel


def _launch(kernel, programs, tensors, sizes, constants, **options):
    """Launch a kernel on tensors (or None), sizes and constants: its parameters, in this order.

    Triton asks of each argument of each call whether it is the kernel for it that is compiled
    already. That takes longer than the launch, so here a kernel is found by what matters alone.
    """
    device = tensors[0].device
    addresses = [x if x is None else x.data_ptr() for x in tensors]
    key = (
        kernel,
        device,
        constants,
        *options.values(),
        triton.knobs.runtime.debug,
        triton.knobs.compilation.instrumentation_mode,
        *[x if x is None else x.dtype for x in tensors],
        *[x if x is None else x % 16 for x in addresses],
        _kinds(sizes),
    )
    compiled = _compiled.get(key)
    if compiled is not None:
        stream = triton.runtime.driver.active.get_current_stream(device.index)
        compiled[(programs, 1, 1)](*addresses, *sizes, *constants, stream=stream)
        return
    compiled = kernel[(programs,)](*tensors, *sizes, *constants, **options)
    # The interpreter compiles none; AMD's compiler asks how much memory a tensor lies in, too.
    if isinstance(compiled, CompiledKernel) and torch.version.hip is None:
        _compiled[key] = compiled
    # --8<-- [end:compiled]


@functools.lru_cache(maxsize=4096)
def _kinds(sizes):
    """What Triton compiles for: which sizes are 1, which 16 divides, which need 64 bits."""
    return bytes((x == 1) + 2 * (x % 16 == 0) + 4 * (x < 2**31) for x in sizes)


def _device_of(x):
    """A context in which kernels are launched where x is; mostly they are in any case."""
    if not x.is_cuda or x.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(x.device)


def _check_inputs(q, k_cache, v_cache, cache_seqlens, page_table):
    """Raise for what the kernel cannot do: which argument, what came, what is allowed."""
    _check_tensors(4, q=q, k_cache=k_cache, v_cache=v_cache)
    B, H, M, D = q.shape
    if M > MAX_QUERIES:
        raise ValueError(f"q has {M} queries; 1 to {MAX_QUERIES} are allowed")
    if max(TILES["16 bits"]) < D:
        raise ValueError(f"q has head dimension {D}; at most {max(TILES['16 bits'])} is allowed")
    _check_caches(k_cache, v_cache, cache_seqlens, page_table, B, D)
    if H % k_cache.shape[1]:
        raise ValueError(
            f"q has {H} heads and k_cache {k_cache.shape[1]}; q's must be a multiple of k_cache's"
        )
    _check_device("q", q)
    if q.dtype == torch.bfloat16 and _device_facts(q.device).capability < (8, 0):
        raise TypeError("q is torch.bfloat16; torch.float16, torch.float32 are allowed on this GPU")


def _check_caches(k_cache, v_cache, cache_seqlens, page_table, B, D):
    """Raise for caches, lengths and pages that do not fit B sequences of D columns."""
    shape = tuple(k_cache.shape)
    blocks = B if page_table is None else shape[0]
    if (shape[0], shape[3]) != (blocks, D):
        want = _fit(*((B, "Hkv", "N", D) if page_table is None else ("pages", "Hkv", "page", D)))
        raise ValueError(f"k_cache has shape {shape}; for {B} sequences it must be {want}")
    if v_cache.shape != k_cache.shape:
        raise ValueError(f"v_cache has shape {tuple(v_cache.shape)}; it must be k_cache's, {shape}")
    if cache_seqlens is not None:
        _check_int32("cache_seqlens", cache_seqlens, (B,), k_cache.device)
    if page_table is not None:
        _check_int32("page_table", page_table, (B, "pages of a sequence"), k_cache.device)
        if shape[2] & (shape[2] - 1):
            raise ValueError(f"k_cache has pages of {shape[2]} keys; a power of two is allowed")
    if _capacity(k_cache, page_table) > MAX_KEYS:
        raise ValueError(
            f"a sequence has room for {_capacity(k_cache, page_table)} keys; at most 2^30 "
            "are allowed"
        )


def _check_int32(name, x, shape, device):
    """Raise unless x is an int32 tensor of this shape; a name in it stands for any size."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} has type {_type_name(x)}; it must be a torch.Tensor")
    if x.dtype != torch.int32 or x.layout != torch.strided:
        raise TypeError(f"{name} is {x.dtype}, {x.layout}; it must be torch.int32, dense")
    found = tuple(x.shape)
    if len(found) != len(shape) or 0 in found or found[0] != shape[0]:
        raise ValueError(f"{name} has shape {found}; it must be {_fit(*shape)}")
    if x.device != device:
        raise ValueError(f"{name} is on {x.device} but k_cache is on {device}; move one of them")


def _check_options(capacity, max_seqlen, num_splits, batch_invariant, return_lse):
    """Raise for options that are none."""
    numbers_ = (("max_seqlen", max_seqlen, 1, capacity), ("num_splits", num_splits, 0, MAX_SPLITS))
    for name, number, least, most in numbers_:
        if number is None and name == "max_seqlen":
            continue
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{name} has type {_type_name(number)}; it must be an int")
        if not least <= number <= most:
            raise ValueError(f"{name} is {number}; {least} to {most} is allowed")
    for name, flag in (("batch_invariant", batch_invariant), ("return_lse", return_lse)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} has type {_type_name(flag)}; it must be a bool, True or False")
    if batch_invariant and num_splits:
        raise ValueError(
            f"num_splits is {num_splits} and batch_invariant True, which cuts every {SPLIT_KEYS} "
            "keys; one of them is allowed"
        )


def _check_programs(q, programs):
    if programs > MAX_PROGRAMS:
        shape = tuple(q.shape)
        raise ValueError(
            f"q has shape {shape}: {programs} programs; at most {MAX_PROGRAMS} are allowed"
        )


def _check_appended(k_new, v_new, k_cache, v_cache, cache_seqlens, page_table):
    """Raise for what cannot be appended."""
    _check_tensors(4, k_new=k_new, v_new=v_new, k_cache=k_cache, v_cache=v_cache)
    B, Hkv, _, D = k_new.shape
    if cache_seqlens is None:
        raise TypeError("cache_seqlens has type NoneType; it must be a torch.Tensor")
    _check_caches(k_cache, v_cache, cache_seqlens, page_table, B, D)
    if k_new.shape[1] != k_cache.shape[1]:
        raise ValueError(
            f"k_new has {Hkv} heads and k_cache {k_cache.shape[1]}; as many it must be"
        )
    if v_new.shape != k_new.shape:
        shape = tuple(k_new.shape)
        raise ValueError(f"v_new has shape {tuple(v_new.shape)}; it must be k_new's, {shape}")
    for name, x in (("k_cache", k_cache), ("v_cache", v_cache)):
        if any(n > 1 and step == 0 for n, step in zip(x.shape, x.stride(), strict=True)):
            raise ValueError(f"{name} has strides {x.stride()}; two of its rows share memory")
    _check_device("k_new", k_new)


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
    """Check the kernel against eager PyTorch in float64, and time both where there is a GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    M, page = 2, 16
    q = torch.randn(2, 8, M, 64, device=device).half()  # [B, H, M, D]
    k, v = torch.randn(2, 2, 2, 320, 64, device=device).half()  # [B, Hkv, N, D] each
    lengths = torch.tensor([320, 77], dtype=torch.int32, device=device)
    table = torch.randperm(40, device=device).int().view(2, 20)
    k_pages, v_pages = (torch.empty(40, 2, page, 64, device=device).half() for _ in range(2))
    for pages, x in ((k_pages, k), (v_pages, v)):  # the same keys, in pages of 16
        pages[table.long()] = x.unflatten(2, (20, page)).transpose(1, 2)
    heads = [x.double().repeat_interleave(4, dim=1) for x in (k, v)]
    visible = torch.arange(320, device=device) < lengths[
        :, None, None, None
    ] - M + 1 + torch.arange(M, device=device).view(M, 1)
    scores = (q.double() @ heads[0].mT / math.sqrt(64)).masked_fill(~visible, float("-inf"))
    want = scores.softmax(-1) @ heads[1]
    pytorch = functools.partial(
        torch.nn.functional.scaled_dot_product_attention, enable_gqa=True, attn_mask=visible
    )
    torch_error = (pytorch(q, k, v).double() - want).abs().max()
    allowed = 2 * torch_error + torch.finfo(q.dtype).eps * want.abs().max()  # both round alike
    calls = {
        "contiguous": lambda: decode_attention(q, k, v, cache_seqlens=lengths, num_splits=3),
        "pages of 16": lambda: decode_attention(
            q, k_pages, v_pages, cache_seqlens=lengths, page_table=table, num_splits=3
        ),
    }
    print(f"q {tuple(q.shape)}, caches {tuple(k.shape)}, {q.dtype} on {device}")
    right = True
    for name, call in calls.items():
        error = (call().double() - want).abs()
        print(
            f"{name}: difference from float64: largest {error.max():.1e}, mean {error.mean():.1e}"
        )
        right = right and bool(error.max() <= allowed)
    print(f"PyTorch's own difference: largest {torch_error:.1e}")
    print("OK" if right else f"WRONG: more than {allowed:.1e} is not rounding")
    if device == "cuda":
        for name, call in (*calls.items(), ("PyTorch", lambda: pytorch(q, k, v))):
            ms = triton.testing.do_bench(call, return_mode="median")
            print(f"{name}: {ms * 1000:.1f} µs")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
