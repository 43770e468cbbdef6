"""Attention for sequences longer than one GPU: keys and values travel round a ring of ranks.

What kernel.py beside this file computes, over torch.distributed: NCCL on GPUs, gloo on a CPU with
TRITON_INTERPRET=1. Differentiable. float16, bfloat16 or float32, 16 to 256 columns in steps of 8.
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import contextlib
import functools
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from . import kernel
from .kernel import Step

LAYOUTS = ("zigzag", "contiguous")


@torch.compiler.disable(reason="it talks to other ranks between kernels")
def ring_attention(
    q, k, v, *, group=None, causal=False, scale=None, layout="zigzag", validate=True, local=None
):
    """softmax(q kᵀ · scale) v where each rank holds a shard of the sequence; differentiable once.

    Source: Liu et al. 2023, https://arxiv.org/abs/2310.01889; zigzag: the ring-flash-attention
    repository, https://github.com/zhuzilin/ring-flash-attention

    Args:
        q: [B, H, L, D], this rank's L queries: float16, bfloat16 or float32; D 16 to 256 in steps
            of 8. Any strides, but the D columns of a row lie side by side.
        k, v: [B, Hkv, L, D], H a multiple of Hkv: groups of query heads share a head of keys.
        group: a process group, a DeviceMesh of one dimension, or None for all ranks. Without
            torch.distributed there is one rank, and the shard is all there is.
        causal: a query sees the keys up to its own position in the whole sequence.
        scale: factor on the scores, from 2^-64 to 2^64; 1/√D if None. In 16 bits, with one of at
            most 1, no product of a query and a key times it may pass 2^27: beyond, rounding on a
            GPU may end in NaN or zeros. For gradients at most 2^8: see flash_backward.
        layout: which rows a rank holds: "zigzag", which gives all the same work under a causal
            mask, or "contiguous". `shard` cuts a tensor so; `positions` says where the rows are.
        validate: compare shapes, dtype and options with the other ranks before anything is sent,
            and raise on all of them if they differ. Costs two small messages over gloo.
        local: what computes a step and moves keys and values, a Local; TRITON if None. op.py
            beside this file has one for Hopper.

    Returns:
        [B, H, L, D] in q's dtype: the output of this rank's queries. A row whose scores are all
        -inf is 0.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
        RuntimeError: another rank has ended; or a second derivative is asked for.
    """
    ring, error = _ring(group), next(_refusals(q, k, v, causal, scale, layout), None)
    if validate and ring.size > 1:
        error = _compare(ring, error, q, k, v, causal=causal, scale=scale, layout=layout)
    if error is not None:
        raise error
    steps = _plan(ring, q.shape[2], causal, layout)
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    return _RingAttention.apply(q, k, v, ring, steps, scale, local or TRITON)


class _RingAttention(torch.autograd.Function):
    """Attention of one rank's queries [B, H, L, D] to everybody's keys and values."""

    @staticmethod
    def forward(ctx, q, k, v, ring, steps, scale, local):
        # While a step runs on the block that is held, the next one arrives.
        held = local.blocks(ring, k, v)
        out, lse = kernel.ring_attention(q, held, steps, scale=scale, launch=local.forward)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.options = ring, steps, scale, local
        return out

    @staticmethod
    def backward(ctx, grad_out):
        return *_Gradients.apply(grad_out, *ctx.saved_tensors, *ctx.options), *[None] * 4


class _Gradients(torch.autograd.Function):
    """Gradients for this rank's q, k and v. Those of k and v travel with them, in float32.

    While a step runs, the next keys and values arrive, and so does what the ranks before have
    found for the ones at hand; it is added up afterwards. After the last step the sums are one hop
    from home.
    """

    @staticmethod
    def forward(ctx, grad_out, q, k, v, out, lse, ring, steps, scale, local):
        k, v, grad_out = k.contiguous(), v.contiguous(), grad_out.resolve_neg()
        if grad_out.stride(-1) != 1:  # out.sum().backward() passes one number, expanded
            grad_out = grad_out.contiguous()
        compute = local.backward(q, k, v, out, lse, grad_out, scale)
        grad_q = torch.zeros_like(q, dtype=torch.float32, memory_format=torch.contiguous_format)
        # Two sums take turns to travel; the third is what a step finds. Of its own keys a rank sees
        # all, and nothing was found for them before: that step starts the first sum.
        count = 1 if ring.size == 1 else 3
        sums = [[torch.empty_like(x, dtype=torch.float32) for x in (k, v)] for _ in range(count)]
        for t, (step, held) in enumerate(zip(steps, blocks(ring, k, v), strict=True)):
            arriving, found = sums[t % 2], sums[-1 if t else 0]
            with _travel(ring, sums[(t - 1) % 2], arriving) if t else contextlib.nullcontext():
                if step.M:
                    compute(*held, (grad_q, *found), step)
            if step.M and t:
                keys = slice(step.first_key, step.first_key + step.N)
                for x, more in zip(arriving, found, strict=True):
                    x[:, :, keys] += more[:, :, keys]
        whole = [x.to(k.dtype) for x in sums[(ring.size - 1) % 2]]
        if ring.size > 1:  # one hop further than k and v; nothing is added to them any more
            last, whole = whole, [torch.empty_like(x) for x in whole]
            with _travel(ring, last, whole):
                pass
        return grad_q.to(q.dtype), *whole

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("ring_attention has no second derivative")


class Ring(NamedTuple):
    """Who takes part. Of one rank without a group there is nobody to talk to."""

    rank: int
    size: int
    group: Any = None


def _seen(rank, source, length, causal, layout):
    """The Step of one rank's queries and another's keys: a rectangle, or the triangle of its own.

    In zigzag a rank holds one chunk of the first half of the sequence and the mirrored one of the
    second, both in order. So no rectangle has a mask: of keys from an earlier rank all queries see
    the first chunk and nothing else; of keys from a later rank only the second chunk of queries
    sees anything, and it sees all.
    """
    whole = Step(source, 0, length, 0, length, causal=causal and source == rank)
    if not causal or source == rank:
        return whole
    if layout == "contiguous":
        return whole if source < rank else whole._replace(M=0)
    half = length // 2
    return whole._replace(N=half) if source < rank else whole._replace(first_row=half, M=half)


def _plan(ring, length, causal, layout):
    """The steps of a rank, in the order in which blocks come by: its own, its predecessor's, …"""
    sources = [(ring.rank - t) % ring.size for t in range(ring.size)]
    steps = [_seen(ring.rank, source, length, causal, layout) for source in sources]
    for t, step in enumerate(steps):
        later = [other.first_row for other in steps[t + 1 :] if other.M]
        done = min([step.M, *(max(0, first - step.first_row) for first in later)])
        steps[t] = step._replace(done=done)
    return steps


def blocks(ring, k, v):
    """The keys and values at a rank, one block after the other; the next arrives meanwhile.

    NCCL's stream waits for what was launched before a message is posted, so a buffer that a kernel
    has read may be received into right after; two of them, in turn, are enough.
    """
    held = (k.contiguous(), v.contiguous())
    buffers = [[torch.empty_like(x) for x in held] for _ in range(min(2, ring.size - 1))]
    for t in range(ring.size - 1):
        arriving = buffers[t % 2]
        with _travel(ring, held, arriving):
            yield held
        held = arriving
    yield held


@contextlib.contextmanager
def _travel(ring, sent, received):
    """Tensors go to the next rank, and the previous one's arrive, while the `with` block runs.

    In the end it is waited for: on a GPU its stream waits, on a CPU this process.
    """
    what = "send to the next rank or hear from the previous one"
    with _explained(ring, what):
        posts = [
            dist.P2POp(way, x, group=ring.group, group_peer=(ring.rank + hop) % ring.size)
            for way, tensors, hop in ((dist.isend, sent, 1), (dist.irecv, received, -1))
            for x in tensors
        ]
        works = dist.batch_isend_irecv(posts)
    yield
    with _explained(ring, what):
        for work in works:
            work.wait()


@contextlib.contextmanager
def _explained(ring, what):
    """Where torch.distributed raises, say who could not do what."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            f"rank {ring.rank} of the ring could not {what}; a rank may have ended: {error}"
        ) from error


class Local(NamedTuple):
    """What computes the steps of a rank, and moves keys and values in the forward."""

    forward: Any  # (q, k, v, state, step, scale, *, first): as _launch_step
    backward: Any  # (q, k, v, out, lse, grad_out, scale): as _prepare_backward
    blocks: Any  # (ring, k, v): as blocks


TRITON = Local(kernel._launch_step, kernel._prepare_backward, blocks)


def positions(length, *, group=None, layout="zigzag"):
    """[length], int64: where the rows of this rank's shard stand in the whole sequence.

    What position embeddings, and anything else that depends on the place of a token, must use.
    """
    for error in _layout_refusals(layout, "length", length):
        raise error
    ring = _ring(group)
    chunks = (ring.rank, 2 * ring.size - 1 - ring.rank) if layout == "zigzag" else (ring.rank,)
    size = length // len(chunks)
    return torch.cat([torch.arange(c * size, (c + 1) * size) for c in chunks])


def shard(x, *, group=None, layout="zigzag", dim=-2):
    """This rank's rows of a whole tensor, which all ranks have; `dim` is that of the sequence."""
    N, ranks = x.shape[dim], _ring(group).size
    for error in _layout_refusals(layout, "x", N, ranks):
        raise error
    return x.index_select(dim, positions(N // ranks, group=group, layout=layout).to(x.device))


def _ring(group):
    """The Ring of a process group, a DeviceMesh of one dimension, or None."""
    if isinstance(group, Ring):
        return group
    group = group.get_group() if hasattr(group, "get_group") else group  # of a DeviceMesh
    ready = dist.is_available() and dist.is_initialized()
    if group is not None and not (ready and isinstance(group, dist.ProcessGroup)):
        what = "None or, once torch.distributed is initialized, this rank's ProcessGroup or a mesh"
        raise TypeError(f"group is {group!r:.40}; allowed: {what}")
    group = dist.group.WORLD if ready and group is None else group
    return Ring(dist.get_rank(group), dist.get_world_size(group), group) if ready else Ring(0, 1)


def _compare(ring, error, q, k, v, *, scale, **options):
    """The error that this rank must raise: its own, or that another rank calls otherwise.

    A rank that refuses its own arguments says so to the others, which would wait for it otherwise.
    """
    mine, calls = f"what it refuses: {error}", [None] * ring.size
    if error is None:
        options |= {"scale": float(scale or q.shape[-1] ** -0.5)}
        options["gradients"] = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
        mine = f"q {(*q.shape,)}, k {(*k.shape,)}, {q.dtype}, {options}"
    with _explained(ring, "compare its call with the others'"):
        side = ring.group if dist.get_backend(ring.group) == "gloo" else _side_group(ring.group)
        dist.all_gather_object(calls, mine, group=side)
    for rank, call in enumerate(calls):
        if error is None and call != mine:
            error = ValueError(f"rank {rank} calls with {call}; allowed: as here, {mine}")
    return error


@functools.cache
def _side_group(group):
    """A gloo group of the same ranks: what is compared must not wait for what runs on a GPU."""
    options = {"use_local_synchronization": True, "timeout": timedelta(seconds=60)}
    return dist.new_group(dist.get_process_group_ranks(group), backend="gloo", **options)


def _layout_refusals(layout, name, rows, ranks=1):
    """How rows cannot be cut, in order: which argument, what came, what is allowed."""
    if not isinstance(layout, str) or layout not in LAYOUTS:
        yield ValueError(f"layout is {layout!r}; allowed: 'zigzag', 'contiguous'")
    if not isinstance(rows, int) or rows < 1:
        yield TypeError(f"{name} is {rows!r}; allowed: a whole number from 1 on")
    pieces = ranks * (2 if layout == "zigzag" else 1)
    if rows % pieces:
        yield ValueError(f"{name} has {rows} rows; allowed in {layout}: a multiple of {pieces}")


def _refusals(q, k, v, causal, scale, layout):
    """What a rank cannot do, in order: what its kernels cannot, and rows that cannot be cut."""
    yield from kernel._refusals(q, k, v, causal, scale)
    yield from _layout_refusals(layout, "q", q.shape[2])
    gradient = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    if gradient and scale is not None and scale > 2.0**8:  # weights might be off by 2 %
        yield ValueError(f"scale is {scale!r:.40}; allowed for gradients: at most 2^8")
