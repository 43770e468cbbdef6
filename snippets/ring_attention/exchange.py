"""Heads exchanged instead of a ring, and shards put together again: what needs whole sequences."""

import torch
import torch.distributed as dist

from .ring import TRITON, Ring, _compare, _layout_refusals, _plan, _ring, _RingAttention, positions
from .ring import _refusals as _refusals_of_a_rank


@torch.compiler.disable(reason="it talks to other ranks between kernels")
def ulysses_attention(
    q, k, v, *, group=None, causal=False, scale=None, layout="zigzag", validate=True, attention=None
):
    """As ring_attention, but heads are exchanged: each rank attends with a few heads to everything.

    Source: Jacobs et al. 2023, https://arxiv.org/abs/2309.14509

    Two all-to-all messages instead of a ring, but the number of ranks must divide H and Hkv, and
    a rank has the whole sequence of its heads in memory. `attention(q, k, v, causal=, scale=)` is
    what computes, ring_attention's own step if None. Arguments, results and refusals are otherwise
    those of ring_attention.
    """
    ring = _ring(group)
    error = next(_refusals(q, k, v, causal, scale, layout, ring.size), None)
    if validate and ring.size > 1:
        options = {"causal": causal, "scale": scale, "layout": layout, "heads": "exchanged"}
        error = _compare(ring, error, q, k, v, **options)
    if error is not None:
        raise error
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    attend = alone if attention is None else attention
    order = _order(ring, q.shape[-2], layout, q.device)  # [N]: where each row of a shard belongs
    q, k, v = (_exchange(x, ring, order) for x in (q, k, v))
    return _exchange_back(attend(q, k, v, causal=causal, scale=scale), ring, order)


def _refusals(q, k, v, causal, scale, layout, ranks):
    yield from _refusals_of_a_rank(q, k, v, causal, scale, layout)
    for name, x in (("q", q), ("k", k)):
        if x.shape[1] % ranks:
            yield ValueError(f"{name} has {x.shape[1]} heads; allowed: a multiple of {ranks} ranks")


def alone(q, k, v, *, causal, scale):
    """Our own step on a sequence that is all here."""
    ring = Ring(0, 1)
    steps = _plan(ring, q.shape[2], causal, "contiguous")
    return _RingAttention.apply(q, k, v, ring, steps, scale, TRITON)


def _order(ring, length, layout, device):
    """[N]: the position of each row when the shards lie one after the other; None for its own."""
    if layout == "contiguous":
        return None
    rings = [Ring(rank, ring.size) for rank in range(ring.size)]
    return torch.cat([positions(length, group=x, layout=layout) for x in rings]).to(device)


def _exchange(x, ring, order):
    """[B, H, L, D] of all heads and some rows → [B, H / P, N, D] of some heads and all rows."""
    B, H, L, D = x.shape
    parts = x.reshape(B, ring.size, H // ring.size, L, D).movedim(1, 0)  # a part for each rank
    parts = _AllToAll.apply(parts, ring).movedim(0, 2)  # [B, H / P, P, L, D]: of each rank a part
    rows = parts.reshape(B, H // ring.size, ring.size * L, D)
    return rows if order is None else torch.empty_like(rows).index_copy(2, order, rows)


def _exchange_back(x, ring, order):
    """The other way: [B, H / P, N, D] → [B, H, L, D]."""
    B, few, N, D = x.shape
    x = x if order is None else x.index_select(2, order)
    parts = x.reshape(B, few, ring.size, N // ring.size, D).movedim(2, 0)
    parts = _AllToAll.apply(parts, ring).movedim(0, 1)  # [B, P, H / P, L, D]
    return parts.reshape(B, few * ring.size, N // ring.size, D)


class _AllToAll(torch.autograd.Function):
    """Part i of [P, …] goes to rank i, whose part for this rank takes its place."""

    @staticmethod
    def forward(ctx, parts, ring):
        ctx.ring = ring
        return _all_to_all(parts, ring)

    @staticmethod
    def backward(ctx, grad):
        return _AllToAll.apply(grad, ctx.ring), None  # differentiable itself


def _all_to_all(parts, ring):
    parts = parts.contiguous()
    if ring.size == 1:
        return parts
    arrived = torch.empty_like(parts)
    dist.all_to_all_single(arrived, parts, group=ring.group)
    return arrived


def unshard(x, *, group=None, layout="zigzag", dim=-2):
    """The whole tensor of which each rank has the shard x; not differentiable."""
    for error in _layout_refusals(layout, "x", x.shape[dim]):
        raise error
    ring = _ring(group)
    mine = x.detach().movedim(dim, 0).contiguous()
    parts = [torch.empty_like(mine) for _ in range(ring.size)]
    if ring.size > 1:
        dist.all_gather(parts, mine, group=ring.group)
    else:
        parts = [mine]
    whole = torch.cat(parts)
    order = _order(ring, mine.shape[0], layout, x.device)
    if order is not None:
        whole = torch.empty_like(whole).index_copy(0, order, whole)
    return whole.movedim(0, dim).contiguous()
