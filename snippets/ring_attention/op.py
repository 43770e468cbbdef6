"""The ring on Hopper: its step is hopper_attention's loop, and DMA engines move keys and values.

How a consumer attends to keys is imported. Here it gets another end: the sums that earlier steps
have left are added, and all is left for the next step.
"""

from typing import Any, NamedTuple

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from snippets.hopper_attention import kernel as hopper
from snippets.hopper_attention.kernel import (
    CONSUMER_M,
    LOG2_E,
    Q_BUFFERS,
    SCORES_LAYOUT,
    VARIANTS,
    Channels,
    Keys,
    Problem,
    Running,
    Variant,
    _acc_layout,
    _attend,
    _channel,
    _count_key_tiles,
    _describe,
    _first_work,
    _head_and_tile,
    _multiprocessors,
    _next_work,
    _plan,
    _producer,
    _q_stage,
    _tma_store,
)
from snippets.hopper_attention.sass import loops
from snippets.hopper_backward.kernel import hopper_backward
from snippets.hopper_backward.op import assert_gradients
from snippets.hopper_backward.op import attention as on_one_gpu

from . import kernel
from .copies import copied_blocks, reached
from .ring import TRITON, Local, blocks

__all__ = ["assert_gradients", "loops", "on_one_gpu"]
HOPPER_KERNEL = hopper.__file__


@gluon.jit(
    do_not_specialize=[
        *("H", "G", "M", "N", "tiles", "total", "paired", "causal_offset"),
        *("L", "first_row", "done"),
    ]
)
def _hopper_step_kernel(
    q_desc, k_desc, v_desc, out_desc,  # [B, H, M, D], [B, Hkv, N, D] twice, [B, H, done, D]
    acc_ptr, m_ptr, l_ptr, lse_ptr,  # what Carried says
    H, G, M, N, tiles, total, paired, causal_offset, scale_log2,  # as hopper_attention's
    L, first_row, done, FIRST: gl.constexpr,  # FIRST: nothing is carried yet
    CAUSAL: gl.constexpr, MASKED: gl.constexpr,
    CONSUMERS: gl.constexpr, STAGES: gl.constexpr, OVERLAP: gl.constexpr,
    Q_IN_REGISTERS: gl.constexpr, LAZY: gl.constexpr, EXACT: gl.constexpr,
    CONSUMER_REGS: gl.constexpr, PRODUCER_REGS: gl.constexpr,
):  # fmt: skip
    """A step of the ring: programs take tiles of queries until none is left.

    Reads q, k and v by TMA and, unless FIRST, acc, m and l of the same rows; writes those again or,
    of the first `done` rows of each head, out by TMA, and lse.
    """
    V: gl.constexpr = Variant(CONSUMERS, STAGES, OVERLAP, Q_IN_REGISTERS, LAZY, EXACT)
    prob = Problem(H, G, M, N, tiles, total, paired, causal_offset, scale_log2)
    carried = Carried(acc_ptr, m_ptr, l_ptr, lse_ptr, L, first_row, done)
    q = _channel(q_desc, Q_BUFFERS * V.CONSUMERS, 1)
    k = _channel(k_desc, V.STAGES, V.CONSUMERS)
    v = _channel(v_desc, V.STAGES, V.CONSUMERS)
    out_shape: gl.constexpr = [V.CONSUMERS] + out_desc.block_shape  # noqa: RUF005
    out = gl.allocate_shared_memory(out_desc.dtype, out_shape, out_desc.layout)
    channels = Channels(q, k, v)
    results = (out_desc, out)
    gl.warp_specialize(
        [
            (_consumer, (part, results, carried, prob, channels, CAUSAL, FIRST, MASKED, V))
            if part < V.CONSUMERS
            else (_producer, (q_desc, k_desc, v_desc, prob, channels, CAUSAL, V))
            for part in (0, 1, 2)
        ],
        [4] * (V.CONSUMERS - 1) + [1],
        [CONSUMER_REGS] * (V.CONSUMERS - 1) + [PRODUCER_REGS],
    )


class Carried(NamedTuple):
    """What one step leaves for the next, and where the rows of this step lie in it."""

    acc_ptr: Any  # [B, H, L, D], float32, contiguous
    m_ptr: Any  # [B, H, L], float32, contiguous; l and lse alike
    l_ptr: Any
    lse_ptr: Any
    L: Any  # rows of this rank
    first_row: Any  # where the queries of this step begin among them
    done: Any  # the first so many of these queries see no key after it


@gluon.jit
def _consumer(
    warpgroup: gl.constexpr, results, carried, prob, channels,
    CAUSAL: gl.constexpr, FIRST: gl.constexpr, MASKED: gl.constexpr, V: gl.constexpr,
):  # fmt: skip
    """Four warps: 64 queries of each tile, through the keys of this step, to what is carried on."""
    out_desc, out_buffers = results
    D: gl.constexpr = out_desc.block_shape[3]
    across: gl.constexpr = gl.SliceLayout(1, _acc_layout(D))
    q_count = 0  # tiles of queries so far
    kv_count = 0  # tiles of keys so far
    work_idx = _first_work(prob)
    while work_idx < prob.total:
        head, tile = _head_and_tile(work_idx, prob, CAUSAL)
        n, masked = _count_key_tiles(tile, prob, CAUSAL, V)
        first = (tile * V.CONSUMERS + warpgroup) * CONSUMER_M
        offs_m = first + gl.arange(0, CONSUMER_M, gl.SliceLayout(1, SCORES_LAYOUT))
        q_stage = _q_stage(warpgroup, q_count, V)
        keys = Keys(n, masked, kv_count)
        state = _attend(offs_m, q_stage, keys, channels, prob, CAUSAL, MASKED, V)
        row = head.to(gl.int64) * carried.L + carried.first_row + offs_m
        if not FIRST:
            state = _merge(state, carried, row, offs_m < prob.M, prob, V)
        if first < carried.done:  # rows that are done: TMA drops the others of the tile
            # All scores are -inf: acc is zero, and so is the row.
            l_i = gl.where(state.l_i == 0.0, 1.0, state.l_i)
            out = state.acc * gl.convert_layout(1.0 / l_i, across)[:, None]
            # The previous tile's rows must have left the buffer, and TMA must see the new ones.
            tma.store_wait(0)
            out_tile = out_buffers.index(warpgroup)
            out_tile.reshape([CONSUMER_M, D]).store(out.to(out_desc.dtype))
            fence_async_shared()
            _tma_store(out_desc, [head // prob.H, head % prob.H, first, 0], out_tile)
            m_i = state.m_i * prob.scale_log2 if V.EXACT else state.m_i
            lse = (m_i + gl.log2(l_i)) / LOG2_E
            gl.store(carried.lse_ptr + row, lse, mask=offs_m < carried.done)
        if first + CONSUMER_M > carried.done:  # rows that will see more keys
            more = (offs_m >= carried.done) & (offs_m < prob.M)
            gl.store(carried.m_ptr + row, state.m_i, mask=more)
            gl.store(carried.l_ptr + row, state.l_i, mask=more)
            more = gl.convert_layout(more, across)[:, None]
            gl.store(carried.acc_ptr + _places(row, D), state.acc, mask=more)
        q_count += 1
        kv_count += n
        work_idx = _next_work(work_idx, prob, CAUSAL)
    tma.store_wait(0)  # shared memory goes with the program


@gluon.jit
def _merge(state, carried, row, mask, prob, V: gl.constexpr):
    """The sums of earlier steps and of this one, under one maximum."""
    D: gl.constexpr = state.acc.shape[1]
    across: gl.constexpr = gl.SliceLayout(1, _acc_layout(D))
    m_old = gl.load(carried.m_ptr + row, mask=mask, other=0.0)
    l_old = gl.load(carried.l_ptr + row, mask=mask, other=0.0)
    there = gl.convert_layout(mask, across)[:, None]
    old = gl.load(carried.acc_ptr + _places(row, D), mask=there, other=0.0)
    m_new = gl.maximum(state.m_i, m_old)
    m_sub = gl.where(m_new == float("-inf"), 0.0, m_new)  # -inf - (-inf) would be NaN
    after = prob.scale_log2 if V.EXACT else 1.0
    alpha = gl.exp2((state.m_i - m_sub) * after)  # [CONSUMER_M]: what this step's sums are worth
    beta = gl.exp2((m_old - m_sub) * after)
    acc = state.acc * gl.convert_layout(alpha, across)[:, None]
    acc += old * gl.convert_layout(beta, across)[:, None]
    return Running(m_new, state.l_i * alpha + l_old * beta, acc)


@gluon.jit
def _places(row, D: gl.constexpr):
    """[CONSUMER_M, D]: where the values of rows lie in acc, as a product's result is held."""
    layout: gl.constexpr = _acc_layout(D)
    row = gl.convert_layout(row, gl.SliceLayout(1, layout))
    return row[:, None] * D + gl.arange(0, D, gl.SliceLayout(0, layout))[None, :]


def hopper_step(q, k, v, state, step, scale, *, first, programs=None):
    """As kernel.py's _launch_step, for an H100 or H200, with so many programs at once."""
    queries = q[:, :, step.first_row : step.first_row + step.M]
    keys, values = (x[:, :, step.first_key : step.first_key + step.N] for x in (k, v))
    *sums, out, lse = state
    finished = out[:, :, step.first_row : step.first_row + max(step.done, 1)]
    # Two consumers that overlap, at every width.
    variant, programs = VARIANTS[q.shape[-1]][0], programs or _multiprocessors(q.device)
    how = q.dtype, variant, programs, step.causal, "top_left", scale
    plan = _plan(queries.shape, keys.shape, *how)
    rows, block, _, _ = plan.blocks  # what a copy by TMA moves
    descriptors = _describe(queries, rows), _describe(keys, block), _describe(values, block)
    where = q.shape[2], step.first_row, step.done
    with torch.cuda.device_of(q):
        _hopper_step_kernel[(plan.programs,)](
            *descriptors, _describe(finished, rows), *sums, lse,
            *plan.sizes, *where, first, *plan.constants,
        )  # fmt: skip


def hopper_gradients(q, k, v, out, lse, grad_out, scale):
    """As kernel.py's _prepare_backward: each step is a call of hopper_backward.

    It adds to tensors without gaps; where a step is for some rows or keys only, it gets such ones.
    """
    if not kernel._can_use_tma("sm_90", grad_out):
        grad_out = grad_out.clone(memory_format=torch.contiguous_format)

    def compute(k, v, sums, step):
        rows = slice(step.first_row, step.first_row + step.M)
        keys = slice(step.first_key, step.first_key + step.N)
        total, *found = sums[0][:, :, rows], *(x[:, :, keys] for x in sums[1:])
        into = [total if total.is_contiguous() else torch.zeros_like(total)]
        into += [x.zero_() if x.is_contiguous() else x.new_zeros(x.shape) for x in found]
        hopper_backward(
            q[:, :, rows],
            k[:, :, keys],
            v[:, :, keys],
            out[:, :, rows],
            lse[:, :, rows].contiguous(),
            grad_out[:, :, rows],
            scale=scale,
            causal=step.causal,
            into=into,
        )
        if into[0] is not total:
            total += into[0]
        for x, more in zip(found, into[1:], strict=True):
            if more is not x:
                x.copy_(more)

    return compute


def _local(q, k, v):
    """HOPPER for 16 bits and D 64 or 128 on an H100 or H200, and ring.py's TRITON elsewhere."""
    if q.device.type != "cuda" or kernel._architecture(q.device) != "sm_90":
        return TRITON
    if q.dtype == torch.float32 or q.shape[-1] not in VARIANTS:
        return TRITON
    return HOPPER if kernel._can_use_tma("sm_90", q, k, v) else TRITON


def _forward(q, k, v, *further, first):
    _local(q, k, v).forward(q, k, v, *further, first=first)


def _backward(q, k, v, *further):
    return _local(q, k, v).backward(q, k, v, *further)


def _blocks(ring, k, v):
    """Copied by DMA engines where all GPUs reach each other, else sent by torch.distributed."""
    return (copied_blocks if reached(ring, k.device) else blocks)(ring, k, v)


HOPPER = Local(hopper_step, hopper_gradients, _blocks)
# For ring.py's ring_attention(…, local=LOCAL).
LOCAL = Local(_forward, _backward, _blocks)
