"""The ring on Hopper: its step is hopper_attention's loop, and DMA engines move keys and values.

The loop over tiles of keys is imported. Here it gets another beginning, the sums that earlier steps
have left, and another end, which leaves them for the next step.
"""

import functools
from typing import Any, NamedTuple

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
)

from snippets.hopper_attention import kernel as hopper
from snippets.hopper_attention.kernel import (
    CONSUMER_M,
    LOG2_E,
    Q_BUFFERS,
    REGISTERS,
    ROW_SUM_LAYOUT,
    VARIANTS,
    WIDTHS,
    Channels,
    Problem,
    Queries,
    Running,
    Variant,
    _acc_layout,
    _barriers,
    _channel,
    _count_key_tiles,
    _describe,
    _fold_overlapped,
    _head_and_tile,
    _left_operand,
    _multiprocessors,
    _next_work,
    _order,
    _producer,
    _q_stage,
    _scores_layout,
    _tma_store,
    _wait_full,
)
from snippets.hopper_attention.sass import loops
from snippets.hopper_backward.kernel import hopper_backward
from snippets.hopper_backward.op import attention as on_one_gpu

from . import kernel
from .copies import CopiedBlocks, reached

__all__ = ["blocks", "loops", "on_one_gpu", "ring_attention"]
HOPPER_KERNEL = hopper.__file__


class Carried(NamedTuple):
    """What one step leaves for the next, and where the rows of this step lie in it."""

    acc_ptr: Any  # [B, H, L, D], float32, contiguous
    m_ptr: Any  # [B, H, L], float32, contiguous; l and lse alike
    l_ptr: Any
    lse_ptr: Any
    L: Any  # rows of this rank
    first_row: Any  # where the queries of this step begin among them
    done: Any  # the first so many of these queries see no key after this step


@gluon.jit
def _places(row, D: gl.constexpr):
    """[CONSUMER_M, D]: where the values of rows lie in acc, as a product's result is held."""
    layout: gl.constexpr = _acc_layout(D)
    row = gl.convert_layout(row, gl.SliceLayout(1, layout))
    return row[:, None] * D + gl.arange(0, D, gl.SliceLayout(0, layout))[None, :]


@gluon.jit
def _begin(
    carried,
    row,
    mask,
    D: gl.constexpr,
    FIRST: gl.constexpr,
    MASKED: gl.constexpr,
    V: gl.constexpr,
):
    """The online softmax of some rows: nothing yet, or what earlier steps have left."""
    rows: gl.constexpr = gl.SliceLayout(1, _scores_layout(V))
    acc_layout: gl.constexpr = _acc_layout(D)
    if FIRST:
        m_i = gl.full([CONSUMER_M], float("-inf"), gl.float32, rows)
        l_i = gl.zeros([CONSUMER_M], gl.float32, rows)
        acc = gl.zeros([CONSUMER_M, D], gl.float32, acc_layout)
    else:
        m_i = gl.load(carried.m_ptr + row, mask=mask, other=0.0)
        l_i = gl.load(carried.l_ptr + row, mask=mask, other=0.0)
        there = gl.convert_layout(mask, gl.SliceLayout(1, acc_layout))[:, None]
        acc = gl.load(carried.acc_ptr + _places(row, D), mask=there, other=0.0)
    if MASKED:  # each of the four threads of a row keeps a sum of its own: it gets a quarter
        quarter = gl.convert_layout(l_i * 0.25, gl.SliceLayout(1, ROW_SUM_LAYOUT))
        l_i = gl.zeros([CONSUMER_M, 4], gl.float32, ROW_SUM_LAYOUT) + quarter[:, None]
    return Running(m_i, l_i, acc)


@gluon.jit
def _consumer(
    warpgroup: gl.constexpr,
    results,
    carried,
    prob,
    channels,
    CAUSAL: gl.constexpr,
    FIRST: gl.constexpr,
    MASKED: gl.constexpr,
    V: gl.constexpr,
):
    """Four warps: 64 queries of each tile, from what is carried to what is carried on."""
    out_desc, out_buffers = results
    D: gl.constexpr = out_desc.block_shape[3]
    dtype: gl.constexpr = out_desc.dtype
    acc_layout: gl.constexpr = _acc_layout(D)
    rows: gl.constexpr = gl.SliceLayout(1, _scores_layout(V))
    q_count = 0  # tiles of queries so far
    kv_count = 0  # tiles of keys so far
    work_idx = gl.program_id(0) * prob.step
    while work_idx < prob.total:
        head, tile = _head_and_tile(work_idx, prob, CAUSAL)
        n, masked = _count_key_tiles(tile, prob, CAUSAL, CONSUMER_M * V.CONSUMERS, V.BLOCK_N)
        first = (tile * V.CONSUMERS + warpgroup) * CONSUMER_M
        offs_m = first + gl.arange(0, CONSUMER_M, rows)
        last_key = gl.zeros([CONSUMER_M], gl.int32, rows) + (prob.N - 1)
        if CAUSAL:
            last_key = gl.minimum(last_key, offs_m)
        row = head.to(gl.int64) * carried.L + carried.first_row + offs_m
        state = _begin(carried, row, offs_m < prob.M, D, FIRST=FIRST, MASKED=MASKED, V=V)
        q_stage = _q_stage(warpgroup, q_count, V)
        _wait_full(channels.q, q_stage)
        q_tile = channels.q.buffers.index(q_stage.index).reshape([CONSUMER_M, D])
        if V.Q_IN_REGISTERS:
            q_tile = q_tile.load(_left_operand(_scores_layout(V)))
        queries = Queries(warpgroup, q_tile, last_key)
        state = _fold_overlapped(
            state,
            queries,
            q_stage,
            n,
            masked,
            kv_count,
            channels,
            prob,
            CARRIED=not FIRST,
            CAUSAL=CAUSAL,
            MASKED=MASKED,
            V=V,
        )
        # --8<-- [start:hand_on]
        l_i = state.l_i
        if MASKED:
            l_i = gl.convert_layout(gl.sum(l_i, axis=1), rows)
        if first < carried.done:  # rows that are done: TMA drops the others of the tile
            # All scores are -inf: acc is zero, and so is the row.
            l_i = gl.where(l_i == 0.0, 1.0, l_i)
            out = state.acc * gl.convert_layout(1.0 / l_i, gl.SliceLayout(1, acc_layout))[:, None]
            # The previous tile's rows must have left the buffer, and TMA must see the new ones.
            tma.store_wait(0)
            out_tile = out_buffers.index(warpgroup)
            out_tile.reshape([CONSUMER_M, D]).store(out.to(dtype))
            fence_async_shared()
            at = [head // prob.H, head % prob.H, first, 0]
            _tma_store(out_desc, at, out_tile)
            m_i = state.m_i * prob.scale_log2 if V.EXACT else state.m_i
            lse = (m_i + gl.log2(l_i)) / LOG2_E
            gl.store(carried.lse_ptr + row, lse, mask=offs_m < carried.done)
        if first + CONSUMER_M > carried.done:  # rows that will see more keys
            more = (offs_m >= carried.done) & (offs_m < prob.M)
            gl.store(carried.m_ptr + row, state.m_i, mask=more)
            gl.store(carried.l_ptr + row, l_i, mask=more)
            more = gl.convert_layout(more, gl.SliceLayout(1, acc_layout))[:, None]
            gl.store(carried.acc_ptr + _places(row, D), state.acc, mask=more)
        # --8<-- [end:hand_on]
        q_count += 1
        kv_count += n
        work_idx = _next_work(work_idx, prob)
    tma.store_wait(0)  # shared memory goes with the program


@gluon.jit(
    do_not_specialize=[
        *("H", "G", "M", "N", "tiles", "total", "step", "by_length"),
        *("L", "first_row", "done"),
    ]
)
def _hopper_step_kernel(
    q_desc,
    k_desc,
    v_desc,
    out_desc,
    acc_ptr,
    m_ptr,
    l_ptr,
    lse_ptr,
    H,
    G,
    M,
    N,
    tiles,
    total,
    step,
    by_length,
    scale_log2,
    L,
    first_row,
    done,
    CAUSAL: gl.constexpr,
    FIRST: gl.constexpr,
    MASKED: gl.constexpr,
    CONSUMERS: gl.constexpr,
    STAGES: gl.constexpr,
    OVERLAP: gl.constexpr,
    PING_PONG: gl.constexpr,
    Q_IN_REGISTERS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    LAZY: gl.constexpr,
    EXACT: gl.constexpr,
    CONSUMER_REGS: gl.constexpr,
    PRODUCER_REGS: gl.constexpr,
    num_warps: gl.constexpr,
):
    """A step of the ring: programs take tiles of queries until none is left.

    Reads q [B, H, M, D] and k, v [B, Hkv, N, D] by TMA and, unless FIRST, acc, m and l of the same
    rows; writes those again or, of the first `done` rows of each head, out by TMA, and lse.
    """
    V: gl.constexpr = Variant(
        CONSUMERS=CONSUMERS,
        STAGES=STAGES,
        OVERLAP=OVERLAP,
        PING_PONG=PING_PONG,
        Q_IN_REGISTERS=Q_IN_REGISTERS,
        BLOCK_N=BLOCK_N,
        LAZY=LAZY,
        EXACT=EXACT,
    )
    prob = Problem(H, G, M, N, tiles, total, step, by_length, 0, scale_log2)
    carried = Carried(acc_ptr, m_ptr, l_ptr, lse_ptr, L, first_row, done)
    q = _channel(q_desc, Q_BUFFERS * V.CONSUMERS, 1)
    k = _channel(k_desc, V.STAGES, V.CONSUMERS)
    v = _channel(v_desc, V.STAGES, V.CONSUMERS)
    out_shape: gl.constexpr = [V.CONSUMERS] + out_desc.block_shape  # noqa: RUF005
    out = gl.allocate_shared_memory(out_desc.dtype, out_shape, out_desc.layout)
    order_barriers = _barriers(V.CONSUMERS, 1)
    if V.PING_PONG:  # the first turn is the first consumer's
        mbarrier.arrive(order_barriers.index(0), count=1)
    channels = Channels(q, k, v, order_barriers)
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


def hopper_step(q, k, v, state, step, scale, *, first, programs=None):
    """As kernel.py's _launch_step, for an H100 or H200, with so many programs at once."""
    queries = q[:, :, step.first_row : step.first_row + step.M]
    keys, values = (x[:, :, step.first_key : step.first_key + step.N] for x in (k, v))
    acc, m_i, l_i, out, lse = state
    finished = out[:, :, step.first_row : step.first_row + max(step.done, 1)]
    B, H, L, D = q.shape
    # Two consumers that overlap, at every width.
    variant = VARIANTS[D][0]._replace(EXACT=scale > 1)
    programs = programs or _multiprocessors(q.device)
    tiles = -(-step.M // (CONSUMER_M.value * variant.CONSUMERS))
    total = B * H * tiles
    in_a_row, by_length = _order(step.causal, total, B * k.shape[1], programs)
    consumer_regs, producer_regs = REGISTERS[variant.CONSUMERS]
    rows = [1, 1, CONSUMER_M.value, D]  # what a copy by TMA moves of the queries
    with kernel._device_of(q):
        _hopper_step_kernel[(min(programs, -(-total // in_a_row)),)](
            _describe(queries, rows),
            _describe(keys, [1, 1, variant.BLOCK_N, D]),
            _describe(values, [1, 1, variant.BLOCK_N, D]),
            _describe(finished, rows),
            acc,
            m_i,
            l_i,
            lse,
            H=H,
            G=H // k.shape[1],
            M=step.M,
            N=step.N,
            tiles=tiles,
            total=total,
            step=in_a_row,
            by_length=by_length,
            scale_log2=scale * LOG2_E.value,
            L=L,
            first_row=step.first_row,
            done=step.done,
            CAUSAL=step.causal,
            FIRST=first,
            MASKED=step.causal or step.N % variant.BLOCK_N != 0,
            **variant._asdict(),
            CONSUMER_REGS=consumer_regs,
            PRODUCER_REGS=producer_regs,
            num_warps=4,
        )


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


# --8<-- [start:composed]
HOPPER = kernel.Local(hopper_step, hopper_gradients)


def _local(q, k, v):
    """HOPPER for 16 bits and D 64 or 128 on an H100 or H200, and kernel.py's TRITON elsewhere."""
    if q.device.type != "cuda" or kernel._capability(q.device) != (9, 0):
        return kernel.TRITON
    if q.dtype == torch.float32 or q.shape[-1] not in WIDTHS:
        return kernel.TRITON
    return HOPPER if kernel._can_use_tma("sm_90", q, k, v) else kernel.TRITON


def _forward(q, k, v, *further, first):
    _local(q, k, v).forward(q, k, v, *further, first=first)


def _backward(q, k, v, *further):
    return _local(q, k, v).backward(q, k, v, *further)


def blocks(ring, k, v):
    """Copied by DMA engines where all GPUs reach each other, else sent by torch.distributed."""
    return (CopiedBlocks if reached(ring, k.device) else kernel.Blocks)(ring, k, v)


LOCAL = kernel.Local(_forward, _backward)
# kernel.py's ring_attention, with the steps and the copies that are made for Hopper.
ring_attention = functools.partial(kernel.ring_attention, local=LOCAL, blocks=blocks)
# --8<-- [end:composed]
