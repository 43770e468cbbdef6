"""Attention whose result has the same bits in training, prefill and decoding, in any batch.

float16, bfloat16 or float32; 64 or 128 columns, or fewer that are a power of two; groups of query
heads; keys and values in one piece or in pages. NVIDIA GPUs from capability 8.0 on.
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
from triton.tools.tensor_descriptor import TensorDescriptor

INTERPRETED = triton.knobs.runtime.interpret
UPCAST = tl.constexpr(INTERPRETED)  # the interpreter cannot compute with bfloat16
LOG2_E = tl.constexpr(math.log2(math.e))  # exp(x) = 2^(x · log2(e)), and a GPU has only exp2

# The arithmetic: change one, and every bit may change. No call, batch or device chooses them.
TILE = tl.constexpr(64)  # keys that one product takes, counted from key 0
CHUNK = tl.constexpr(512)  # keys that are summed from zero before they are merged
COLUMNS = tl.constexpr(8)  # of ones, to add up a row: the minimum width of a tensor-core product
# What a launch may choose, because no bit depends on it: rows of a program, warps, loads in flight.
ONE_PASS, SPLIT = (64, 4, 3), (16, 4, 3)


@triton.jit
def _nothing(BLOCK_M: tl.constexpr, D: tl.constexpr):
    """The state of rows before their first key."""
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    return m_i, tl.zeros([BLOCK_M, COLUMNS], tl.float32), tl.zeros([BLOCK_M, D], tl.float32)


@triton.jit
def _one_tile(m_i, l_i, acc, q, k_tile, v_tile, visible, MASKED, scale_log2):
    """Add TILE keys to the state of some rows: largest score, sum of weights, sum of values."""
    s = tl.dot(q, k_tile.T, input_precision="ieee")  # [BLOCK_M, TILE], float32
    if MASKED:
        s = tl.where(visible, s, float("-inf"))
    m_new = tl.maximum(m_i, tl.max(s, axis=1) * scale_log2)  # [BLOCK_M]; a maximum never rounds
    m_sub = tl.where(m_new == float("-inf"), 0.0, m_new)  # a row that has seen no key yet
    alpha = tl.exp2(m_i - m_sub)  # what the old maximum was worth
    p = tl.exp2(tl.fma(s, scale_log2, -m_sub[:, None])).to(v_tile.dtype)
    # The tensor cores add up a row as well: their order depends on no layout.
    l_i = tl.dot(
        p, tl.full([TILE, COLUMNS], 1.0, p.dtype), l_i * alpha[:, None], input_precision="ieee"
    )
    acc = tl.dot(p, v_tile, acc * alpha[:, None], input_precision="ieee")
    return m_new, l_i, acc


@triton.jit
def _merge(m_i, l_i, acc, m_j, l_j, acc_j):
    """Merge the state of the chunk j into that of all chunks before it."""
    m_new = tl.maximum(m_i, m_j)
    m_sub = tl.where(m_new == float("-inf"), 0.0, m_new)
    old, new = tl.exp2(m_i - m_sub), tl.exp2(m_j - m_sub)
    l_i = tl.fma(l_i, old[:, None], l_j * new[:, None])
    acc = tl.fma(acc, old[:, None], acc_j * new[:, None])
    return m_new, l_i, acc


@triton.jit
def _finish(m_i, l_i, acc):
    """The only division. A row without a visible key is zero, and its logsumexp -inf."""
    l_i = tl.where(l_i == 0.0, 1.0, l_i)
    return acc * tl.div_rn(1.0, l_i)[:, None], (m_i + tl.log2(l_i)) / LOG2_E


class Rows(NamedTuple):
    """Keys or values of one head: a pointer or a descriptor, its batch and head, and the steps."""

    x: tl.tensor
    b: tl.tensor
    h: tl.tensor
    stride_b: tl.tensor  # of a paged cache: from one page to the next
    stride_h: tl.tensor
    stride_n: tl.tensor


@triton.jit
def _load(
    rows, page, start, length, dtype, D: tl.constexpr, PAGE: tl.constexpr, USE_TMA: tl.constexpr
):
    """The TILE rows from `start` on, zeros from `length` on. No bit depends on how they arrive."""
    if USE_TMA:  # the hardware finds the addresses, and knows where the tensor ends
        tile = rows.x.load([rows.b.to(tl.int32), rows.h, start, 0]).reshape([TILE, D])
    else:
        offs_n, offs_d = (start + tl.arange(0, TILE)).to(tl.int64), tl.arange(0, D)
        row = offs_n % PAGE if PAGE > 0 else offs_n
        place = page * rows.stride_b + rows.h.to(tl.int64) * rows.stride_h + row * rows.stride_n
        tile = rows.x + place[:, None] + offs_d[None, :]
        tile = tl.load(tile, mask=(offs_n < length)[:, None], other=0.0)
    return tile.to(dtype)


@triton.jit(do_not_specialize=["Hkv", "G", "M", "capacity", "chunks"])
def _same_bits_kernel(
    q_ptr, k_ptr, v_ptr,  # of keys and values instead descriptors, with USE_TMA
    lens_ptr, table_ptr,  # int32 [B], or None: all are full; int32 [B, pages], or None
    out_ptr,  # [B, H, M, D]; if SPLIT, float32 [B, H, M, chunks, D]
    lse_ptr,  # [B, H, M] or None; if SPLIT, [2, B, H, M, chunks]: largest scores, then sums
    stride_qb, stride_qh, stride_qm,  # step to the next batch, head, row; columns are contiguous
    stride_kb, stride_kh, stride_kn,  # of a paged cache: b is the page
    stride_vb, stride_vh, stride_vn,
    stride_tb,
    Hkv, G, M,  # heads of keys, query heads that share one, queries
    capacity, chunks,  # keys that a sequence has room for, and into how many chunks they fall
    scale_log2,
    CAUSAL: tl.constexpr,
    SPLIT: tl.constexpr,  # a program takes one chunk; otherwise it takes all and merges them
    D: tl.constexpr,
    PAGE: tl.constexpr,  # keys of a page; 0: the cache is not paged
    USE_TMA: tl.constexpr,
    BLOCK_M: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M rows of one head of keys, over all chunks or one of them.

    A row is one query of one of the G heads that share these keys, as in decode_attention.
    """
    num_blocks = tl.cdiv(M * G, BLOCK_M)
    pid = tl.program_id(0)
    block = num_blocks - 1 - pid % num_blocks  # the last rows see most keys: they start first
    pid //= num_blocks
    chunk, last_chunk = 0, chunks
    if SPLIT:
        chunk, pid = pid % chunks, pid // chunks
        last_chunk = chunk + 1
    b, hk = (pid // Hkv).to(tl.int64), pid % Hkv
    offs_r = block * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    mask_r = offs_r < M * G
    m, h = offs_r // G, hk * G + offs_r % G  # [BLOCK_M] each: the query, its head
    offs_d = tl.arange(0, D)  # [D]

    length = capacity
    if lens_ptr is not None:  # nothing outside the cache is read, whatever the length
        length = tl.minimum(tl.maximum(tl.load(lens_ptr + b), 0), capacity)
    last_key = tl.full([BLOCK_M], 0, tl.int32) + length - 1
    end, unmasked_end = length, length  # keys that some row sees, keys that all rows see
    if CAUSAL:
        last_key += m - M + 1
        last_query = tl.minimum(block * BLOCK_M + BLOCK_M - 1, M * G - 1) // G
        end = tl.maximum(length - M + last_query + 1, 0)
        unmasked_end = tl.maximum(length - M + block * BLOCK_M // G + 1, 0)

    q_row = b * stride_qb + h.to(tl.int64) * stride_qh + m.to(tl.int64) * stride_qm
    q = tl.load(q_ptr + q_row[:, None] + offs_d[None, :], mask=mask_r[:, None], other=0.0)
    q = q.to(tl.float32) if UPCAST and q.dtype == tl.bfloat16 else q
    keys = Rows(k_ptr, b, hk, stride_kb, stride_kh, stride_kn)
    values = Rows(v_ptr, b, hk, stride_vb, stride_vh, stride_vn)

    # --8<-- [start:chunks]
    m_i, l_i, acc = _nothing(BLOCK_M, D)  # all chunks before the one that is being summed
    m_j, l_j, acc_j = _nothing(BLOCK_M, D)  # and that one
    for start in tl.range(chunk * CHUNK, tl.minimum(last_chunk * CHUNK, end), TILE):
        if start % CHUNK.value == 0:  # a chunk begins
            m_i, l_i, acc = _merge(m_i, l_i, acc, m_j, l_j, acc_j)
            m_j, l_j, acc_j = _nothing(BLOCK_M, D)
        offs_n = start + tl.arange(0, TILE)  # [TILE]
        page = b
        if PAGE > 0:
            entry = table_ptr + b * stride_tb + offs_n // PAGE
            page = tl.load(entry, mask=offs_n < length, other=0).to(tl.int64)  # [TILE]
        k_tile = _load(keys, page, start, length, q.dtype, D, PAGE, USE_TMA)  # [TILE, D]
        v_tile = _load(values, page, start, length, q.dtype, D, PAGE, USE_TMA)
        visible = offs_n[None, :] <= last_key[:, None]  # [BLOCK_M, TILE]
        masked = start + TILE > unmasked_end
        m_j, l_j, acc_j = _one_tile(m_j, l_j, acc_j, q, k_tile, v_tile, visible, masked, scale_log2)
    m_i, l_i, acc = _merge(m_i, l_i, acc, m_j, l_j, acc_j)
    l_i = tl.max(l_i, axis=1)  # [BLOCK_M]; its columns are all alike
    # --8<-- [end:chunks]

    row = (b * Hkv * G + h) * M + m  # [BLOCK_M]
    if SPLIT:
        if chunk * CHUNK < end:
            row = row * chunks + chunk
            rows = (
                (tl.num_programs(0) // num_blocks).to(tl.int64) * G * M
            )  # B · Hkv · chunks · G · M
            tl.store(lse_ptr + row, m_i, mask=mask_r)
            tl.store(lse_ptr + rows + row, l_i, mask=mask_r)
            tl.store(out_ptr + row[:, None] * D + offs_d[None, :], acc, mask=mask_r[:, None])
    else:
        out, lse = _finish(m_i, l_i, acc)
        out_tile = out_ptr + row[:, None] * D + offs_d[None, :]
        tl.store(out_tile, out.to(out_ptr.dtype.element_ty), mask=mask_r[:, None])
        if lse_ptr is not None:
            tl.store(lse_ptr + row, lse, mask=mask_r)


@triton.jit(do_not_specialize=["H", "M", "capacity", "chunks"])
def _merge_kernel(
    part_ptr, stats_ptr, lens_ptr, out_ptr, lse_ptr, H, M, capacity, chunks,
    CAUSAL: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """One program merges the chunks of one row in ascending order, as the one pass does it."""
    row = tl.program_id(0).to(tl.int64)
    offs_d = tl.arange(0, D)[None, :]  # [1, D]
    one = tl.arange(0, 1)
    ones = tl.arange(0, COLUMNS)[None, :] * 0  # [1, COLUMNS]: the sum of a row, as often
    length = capacity
    if lens_ptr is not None:
        length = tl.minimum(tl.maximum(tl.load(lens_ptr + row // M // H), 0), capacity)
    seen = length - M + (row % M).to(tl.int32) + 1 if CAUSAL else length  # keys of this row
    m_i, l_i, acc = _nothing(1, D)
    for j in tl.range(0, tl.cdiv(tl.maximum(seen, 0), CHUNK), num_stages=4):
        m_j = tl.load(stats_ptr + row * chunks + j + one)
        l_j = tl.load(stats_ptr + (tl.num_programs(0) + row) * chunks + j + ones)
        acc_j = tl.load(part_ptr + (row * chunks + j) * D + offs_d)
        m_i, l_i, acc = _merge(m_i, l_i, acc, m_j, l_j, acc_j)
    out, lse = _finish(m_i, tl.max(l_i, axis=1), acc)
    tl.store(out_ptr + row * D + offs_d, out.to(out_ptr.dtype.element_ty))
    if lse_ptr is not None:
        tl.store(lse_ptr + row + one, lse)


def same_bits(
    q, k_cache, v_cache, *, cache_seqlens=None, page_table=None, causal=True, scale=None,
    split=None, return_lse=False,
):  # fmt: skip
    """softmax(q kᵀ · scale) v, each row in one order of additions: training, prefill or decoding.

    Args:
        q: [B, H, M, D], float16, bfloat16 or float32; D is 16, 32, 64 or 128. The D columns of a
            row lie side by side, here and in the caches.
        k_cache, v_cache: [B, Hkv, N, D] in q's dtype, H a multiple of Hkv; with a page_table
            [pages, Hkv, keys of a page, D].
        cache_seqlens: int32 [B], keys of each sequence, the M newest among them; None: all N.
        page_table: int32 [B, pages of a sequence]; what lies past a length is not read. The numbers
            in it are on the GPU and not checked: one that is no page reads outside the cache.
        causal: query m sees the keys up to m + length - M; those without any get zeros.
        scale: factor on the scores; 1/√D if None.
        split: True shares the chunks of a row among programs, False gives them all to one; None
            splits for up to 64 queries. No bit depends on it.
        return_lse: also return the natural logarithm of the sum of exp(score), -inf for no key.

    Returns:
        [B, H, M, D] in q's dtype; with return_lse also [B, H, M] in float32.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
    """
    asked = cache_seqlens, page_table, causal, scale, split, return_lse
    for error in _refusals(q, k_cache, v_cache, *asked):
        raise error
    (B, H, M, D), (_, Hkv, N, _) = q.shape, k_cache.shape
    page = 0 if page_table is None else N
    capacity = N if page_table is None else N * page_table.shape[1]
    chunks, split = triton.cdiv(capacity, CHUNK.value), M <= 64 if split is None else split
    out = torch.empty((B, H, M, D), dtype=q.dtype, device=q.device)
    lse = out.new_empty((B, H, M), dtype=torch.float32) if return_lse else None
    part, stats = out, lse
    if split:
        part = out.new_empty((B, H, M, chunks, D), dtype=torch.float32)
        stats = out.new_empty((2, B, H, M, chunks), dtype=torch.float32)
    BLOCK_M, num_warps, num_stages = SPLIT if split else ONE_PASS
    use_tma = cache_seqlens is None and page_table is None and _can_use_tma(k_cache, v_cache)
    keys, values = k_cache, v_cache
    if use_tma:
        block = [1, 1, TILE.value, D]
        keys, values = (TensorDescriptor(x, x.shape, x.stride(), block) for x in (keys, values))
    programs = triton.cdiv(M * H // Hkv, BLOCK_M) * Hkv * B * (chunks if split else 1)
    with torch.cuda.device_of(q):
        _same_bits_kernel[(programs,)](
            q, keys, values, cache_seqlens, page_table, part, stats,
            *q.stride()[:3], *k_cache.stride()[:3], *v_cache.stride()[:3],
            0 if page_table is None else page_table.stride(0),
            Hkv, H // Hkv, M, capacity, chunks,
            (D**-0.5 if scale is None else float(scale)) * LOG2_E.value,
            CAUSAL=causal, SPLIT=split, D=D, PAGE=page, USE_TMA=use_tma, BLOCK_M=BLOCK_M,
            num_warps=num_warps, num_stages=num_stages, enable_fp_fusion=False,
        )  # fmt: skip
        if split:
            _merge_kernel[(B * H * M,)](
                part, stats, cache_seqlens, out, lse, H, M, capacity, chunks,
                CAUSAL=causal, D=D, num_warps=1, enable_fp_fusion=False,
            )  # fmt: skip
    return (out, lse) if return_lse else out


def _can_use_tma(*tensors):
    """Whether TMA can load all tensors: on Hopper or later, rows of 16 bits at whole 16 bytes."""
    x = tensors[0]
    if x.dtype == torch.float32 or torch.version.hip:
        return False
    if x.is_cuda and torch.cuda.get_device_capability(x.device) < (9, 0):
        return False  # the interpreter plays Hopper
    steps = [step * x.itemsize for x in tensors for step in x.stride()[:3]]
    return all(step and step % 16 == 0 for step in (*steps, *(x.data_ptr() or 16 for x in tensors)))


DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def _refusals(q, k_cache, v_cache, lens, table, causal, scale, split, return_lse):
    """What the kernel cannot do, in order: which argument, what came, what is allowed."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    for name, x in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
        if not isinstance(x, torch.Tensor) or x.is_nested or x.layout != torch.strided:
            kind = "nested" if getattr(x, "is_nested", False) else getattr(x, "layout", type(x))
            yield TypeError(f"{name} is {kind}; allowed: a dense torch.Tensor")
        if x.dtype not in DTYPES:
            yield TypeError(f"{name} is {x.dtype}; allowed: {DTYPES}")
        if (x.dtype, x.device) != (q.dtype, q.device):
            yield TypeError(f"{name} is {x.dtype} on {x.device}; allowed: {q.dtype} on {q.device}")
        if x.dim() != 4 or x.numel() == 0:
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed: 4 dimensions, none 0")
        if x.requires_grad and torch.is_grad_enabled():
            yield ValueError(f"{name} requires grad, but has no backward; allowed: torch.no_grad()")
        if x.is_neg():  # its memory holds the opposite sign
            yield ValueError(f"{name} is a negated view; allowed: {name}.resolve_neg()")
        if x.stride(-1) != 1:
            yield ValueError(f"{name} has strides {x.stride()}; allowed: the last 1, others any")
    (B, H, _, D), (blocks, Hkv, N, _) = q.shape, k_cache.shape
    expected = (B if table is None else blocks, Hkv, N, D)
    for name, x in (("k_cache", k_cache), ("v_cache", v_cache)):
        if x.shape != expected:
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed with q: {expected}")
    if D not in (16, 32, 64, 128):
        yield ValueError(f"q has {D} columns; allowed: 16, 32, 64, 128")
    if H % Hkv:
        yield ValueError(f"q has {H} heads and k {Hkv}; allowed: a multiple of k's")
    yield from _option_refusals(q, N, lens, table, causal, scale, split, return_lse)
    if q.device.type != "cuda" and not (q.is_cpu and INTERPRETED):
        yield ValueError(f"q is on {q.device}; allowed: a GPU, or a CPU with TRITON_INTERPRET=1")


def _option_refusals(q, N, lens, table, causal, scale, split, return_lse):
    """The same of lengths, pages and what is asked for beside the tensors."""
    for name, x, rank in (("cache_seqlens", lens, 1), ("page_table", table, 2)):
        if x is None:
            continue
        if not isinstance(x, torch.Tensor) or (x.dtype, x.layout) != (torch.int32, torch.strided):
            kind = getattr(x, "dtype", type(x))
            yield TypeError(f"{name} is {kind}; allowed: a dense torch.Tensor of torch.int32")
        if x.device != q.device or x.dim() != rank or x.shape[0] != q.shape[0]:
            what = f"has shape {(*x.shape,)} on {x.device}"
            yield ValueError(f"{name} {what}; allowed: {(len(q), 'pages')[:rank]} on {q.device}")
        if x.stride(-1) != 1:
            yield ValueError(f"{name} has strides {x.stride()}; allowed: the last 1, others any")
    rows, capacity = q.numel() // q.shape[-1], N if table is None else N * table.shape[1]
    if not 0 < capacity <= 2**30 or rows > 2**30:  # no sum of two passes 2^31
        what = f"{rows} queries, {capacity} keys for a sequence"
        yield ValueError(f"q and k_cache have {what}; allowed: 1 to 2^30")
    for name, x in (("causal", causal), ("return_lse", return_lse)):
        if not isinstance(x, bool):
            yield TypeError(f"{name} is {x!r}; allowed: True, False")
    if split is not None and not isinstance(split, bool):
        yield TypeError(f"split is {split!r:.40}; allowed: True, False, None")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, numbers.Real)):
        yield TypeError(f"scale is {scale!r:.40}; allowed: a number or None")
    if scale is not None and not 2.0**-64 <= scale <= 1:  # so that no float16 product passes 2^27
        yield ValueError(f"scale is {scale!r:.40}; allowed: 2^-64 to 1")


def main():
    """Check the kernel against PyTorch, and both of its forms against each other."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k, v = (torch.randn(2, *x, 64, device=device).half() for x in ((4, 70), (2, 700), (2, 700)))
    seen = torch.ones(70, 700, dtype=torch.bool, device=device).tril(630)
    sdpa = functools.partial(torch.nn.functional.scaled_dot_product_attention, enable_gqa=True)
    want = sdpa(q.double(), k.double(), v.double(), seen)
    ours, theirs = same_bits(q, k, v), sdpa(q, k, v, seen)
    same = torch.equal(ours, same_bits(q, k, v, split=True))
    last = torch.equal(ours[:, :, -1:], same_bits(q[:, :, -1:], k, v))
    error, allowed = ((x - want).abs().max() for x in (ours, theirs))
    allowed = 2 * allowed + torch.finfo(q.dtype).eps * want.abs().max()  # both round alike
    print(f"q {(*q.shape,)}, k and v {(*k.shape,)}, {q.dtype} on {device}")
    print(f"difference from float64: {error:.1e} at most")
    print(f"one pass and split: same bits {same}; last query alone: same bits {last}")
    if device == "cuda":
        for name, f in (
            ("ours", lambda: same_bits(q, k, v)),
            ("PyTorch's", lambda: sdpa(q, k, v, seen)),
        ):
            print(f"{name}: {triton.testing.do_bench(f) * 1000:.1f} µs")
    right = error <= allowed and (device == "cpu" or (same and last))  # NumPy has its own order
    print("OK" if right else f"WRONG: more than {allowed:.1e} is not rounding")
    return int(not right)


if __name__ == "__main__":
    raise SystemExit(main())
