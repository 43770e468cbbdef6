"""The same in one kernel: the program that finishes a row last combines its splits."""

import torch
import triton
import triton.language as tl

from . import kernel
from .kernel import COMBINED, LOG2_E, UPCAST, Cache, Pages, _attend, _chunk, _merge


@triton.jit(do_not_specialize=["splits", "capacity", "num_pages"])
def _last_arriver_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    lens_ptr,
    table_ptr,
    part_ptr,
    part_lse_ptr,  # float32 [B, H, M, splits, D] and [B, H, M, splits]
    arrived_ptr,  # int32 [B · Hkv · num_blocks], zeros before and after
    out_ptr,
    lse_ptr,  # [B, H, M, D] and, or None, [B, H, M]
    stride_qb,
    stride_qh,
    stride_qm,
    stride_qd,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_kd,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_vd,
    stride_lens,
    stride_tb,
    stride_tn,
    Hkv,
    G,
    M,
    capacity,
    num_pages,
    splits,
    scale_log2,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_S: tl.constexpr,
    EARLY: tl.constexpr,  # this kernel may start before the one in front of it has ended
):
    """As _decode_attention_kernel, and then the last of the programs of some rows combines them.

    Each program counts itself after its part is written. Whoever counts to `splits` knows that all
    parts are there, and sets the counter back to 0 for the next call.
    """
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()  # its results may be our inputs, and its counters are ours
    num_blocks = tl.cdiv(M * G, BLOCK_M)
    pid = tl.program_id(0)
    block_idx, split = pid % num_blocks, pid // num_blocks % splits
    hk = pid // num_blocks // splits % Hkv
    b = pid // num_blocks // splits // Hkv
    offs_r = block_idx * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_r = offs_r < M * G
    m, h = offs_r // G, hk * G + offs_r % G
    known = capacity
    if lens_ptr is not None:
        known = tl.load(lens_ptr + b.to(tl.int64) * stride_lens)
    length = tl.minimum(tl.maximum(known, 0), capacity)
    last_token = tl.minimum((block_idx + 1) * BLOCK_M - 1, M * G - 1) // G
    end = tl.minimum(length, known - M + last_token + 1)
    chunk = _chunk(length, splits, 0, BLOCK_N=BLOCK_N)
    offs_d = tl.arange(0, BLOCK_D)
    mask = mask_r[:, None] & (offs_d < D)[None, :]
    q_row = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + m.to(tl.int64) * stride_qm
    q = tl.load(q_ptr + q_row[:, None] + offs_d[None, :] * stride_qd, mask=mask, other=0.0)
    q = q.to(tl.float32) if UPCAST and q.dtype == tl.bfloat16 else q
    k = Cache(k_ptr + hk.to(tl.int64) * stride_kh, stride_kb, stride_kn, stride_kd)
    v = Cache(v_ptr + hk.to(tl.int64) * stride_vh, stride_vb, stride_vn, stride_vd)
    pages = Pages(table_ptr, b, stride_tb, stride_tn, num_pages)
    first, stop = split * chunk, tl.minimum(split * chunk + chunk, end)
    m_i, l_i, acc = _attend(
        q, k, v, pages, first, stop, known - M + m, scale_log2, D=D, PAGE=PAGE, BLOCK_N=BLOCK_N
    )
    some = tl.where(l_i == 0.0, 1.0, l_i)
    lse = m_i + tl.log2(some)
    row = (b.to(tl.int64) * Hkv * G + h) * M + m  # [BLOCK_M]
    part_row = row * splits + split
    tl.store(part_lse_ptr + part_row, lse, mask=mask_r)
    mask = mask & (lse != float("-inf"))[:, None]
    tl.store(part_ptr + part_row[:, None] * D + offs_d[None, :], acc / some[:, None], mask=mask)

    # --8<-- [start:arrive]
    tl.debug_barrier()  # all threads of this program have stored before one of them counts
    counter = arrived_ptr + (b * Hkv + hk) * num_blocks + block_idx
    before = tl.atomic_add(counter, 1, sem="acq_rel")  # what others stored is seen from here on
    if before == splits - 1:
        tl.store(counter, 0)
        for r in range(0, tl.minimum(M * G - block_idx * BLOCK_M, BLOCK_M)):
            of = block_idx * BLOCK_M + r
            at = (b.to(tl.int64) * Hkv * G + hk * G + of % G) * M + of // G
            out, lse_row = _merge(
                part_ptr, part_lse_ptr, at, splits, D=D, BLOCK_S=BLOCK_S, BLOCK_D=BLOCK_D
            )
            tl.store(out_ptr + at * D + offs_d, out.to(out_ptr.dtype.element_ty), mask=offs_d < D)
            if lse_ptr is not None:
                tl.store(lse_ptr + at, lse_row / LOG2_E)
    # --8<-- [end:arrive]


def last_arriver(
    q,
    k_cache,
    v_cache,
    *,
    cache_seqlens=None,
    page_table=None,
    num_splits,
    arrived=None,
    early=False,
):
    """decode_attention of so many splits, without a second kernel to combine them.

    `arrived` are its counters, int32 zeros, one for each program of a split; it leaves zeros. No
    call on another stream may use them meanwhile. Without them it makes its own: a launch, too.
    """
    for error in kernel._refusals({"q": q}, k_cache, v_cache, cache_seqlens, page_table):
        raise error
    B, H, M, D = q.shape
    Hkv = k_cache.shape[1]
    page = 0 if page_table is None else k_cache.shape[2]
    facts = kernel._device_facts(q.device)
    plan = kernel._plan(facts, q.dtype, B * Hkv, M * H // Hkv, D, page, False)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    part, part_lse = (
        torch.empty((*q.shape[:-1], num_splits, *last), dtype=torch.float32, device=q.device)
        for last in ((D,), ())
    )
    if arrived is None:
        arrived = torch.zeros(plan.programs, dtype=torch.int32, device=q.device)
    if arrived.numel() < plan.programs:
        raise ValueError(f"arrived has {arrived.numel()} counters; {plan.programs} are needed")
    with torch.cuda.device_of(q):
        _last_arriver_kernel[(plan.programs * num_splits,)](
            q,
            k_cache,
            v_cache,
            cache_seqlens,
            page_table,
            part,
            part_lse,
            arrived,
            out,
            None,
            *q.stride(),
            *k_cache.stride(),
            *v_cache.stride(),
            *kernel._steps(cache_seqlens, page_table),
            Hkv,
            H // Hkv,
            M,
            kernel._room(k_cache, page_table)[1],
            k_cache.shape[0],
            num_splits,
            D**-0.5 * LOG2_E.value,
            D=D,
            PAGE=page,
            BLOCK_M=plan.BLOCK_M,
            BLOCK_N=plan.tile.BLOCK_N,
            BLOCK_D=plan.BLOCK_D,
            BLOCK_S=COMBINED,
            EARLY=early,
            launch_pdl=early,
            num_warps=plan.tile.num_warps,
            num_stages=plan.tile.num_stages,
        )
    return out
