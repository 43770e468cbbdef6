"""Caches with known contents, and float64 beside what decode_attention makes of them."""

import math
from typing import NamedTuple

import torch

from snippets._lab.judge.oracle import NumericalMismatch, assert_attention, causal_mask

BAD_PAGE = 1_000_003  # in a table's entries that no key needs


class Cache(NamedTuple):
    """New queries and a cache: the arguments of decode_attention, and of cache_append."""

    q: torch.Tensor  # [B, H, M, D]
    k: torch.Tensor  # [B, Hkv, N, D], or [pages, Hkv, page, D]
    v: torch.Tensor
    lengths: torch.Tensor  # int32 [B]
    table: torch.Tensor | None  # int32 [B, pages of a sequence]

    def options(self):
        """The arguments that go by keyword."""
        return {"cache_seqlens": self.lengths, "page_table": self.table}


def make_cache(
    lengths,
    *,
    M=1,
    heads=(4, 2),
    D=64,
    dtype=torch.float32,
    capacity=None,
    page=0,
    device="cpu",
    seed=0,
):
    """A Cache of sequences of these lengths; heads are those of queries and of keys.

    What belongs to no sequence is NaN, in front of the cache and behind it too. Pages lie in random
    order in a pool twice as large as needed, and entries of the table that a sequence does not need
    name a page that does not exist.
    """
    generator = torch.Generator().manual_seed(seed)
    (H, Hkv), B = heads, len(lengths)
    capacity = max(capacity or 0, *lengths, 1)

    def draw(*shape):
        return torch.randn(*shape, generator=generator).to(dtype)  # the same on every device

    q = (draw(B, H, M, D) * 3).to(
        device
    )  # scores are then far apart, and the softmax far from uniform
    if page:
        width = math.ceil(capacity / page)
        pages = torch.randperm(2 * B * width, generator=generator)[: B * width].int()
        table = pages.view(B, width)
        shape = (2 * B * width, Hkv, page, D)
    else:
        table = None
        shape = (B, Hkv, capacity, D)
    around = (shape[0] + 2, *shape[1:])
    memory = [torch.full(around, math.nan, dtype=dtype, device=device) for _ in "kv"]
    k, v = (x[1:-1] for x in memory)
    for b, length in enumerate(lengths):
        for cache in (k, v):
            _fill(cache, b, draw(Hkv, length, D), table)
        if page:
            table[b, math.ceil(length / page) :] = BAD_PAGE
    lengths = torch.tensor(lengths, dtype=torch.int32)
    return Cache(q, k, v, lengths.to(device), None if table is None else table.to(device))


def _fill(cache, b, rows, table):
    """Rows [Hkv, length, D] into the sequence's place."""
    length = rows.shape[1]
    if table is None:
        cache[b, :, :length] = rows
        return
    page = cache.shape[2]
    for first in range(0, length, page):
        part = rows[:, first : first + page]
        cache[table[b, first // page], :, : part.shape[1]] = part


def sequence(cache, b, length, table):
    """The keys or values of one sequence, side by side: [Hkv, length, D]."""
    if table is None:
        return cache[b, :, :length]
    pages = table[b, : -(-length // cache.shape[2])].long()
    return cache[pages].transpose(0, 1).flatten(1, 2)[:, :length]


def assert_decoded(out, cache, *, scale=None, lse=None):
    """Raise NumericalMismatch unless every sequence's result is attention within rounding."""
    if out.shape != cache.q.shape:
        raise NumericalMismatch(f"result is {tuple(out.shape)}, not {tuple(cache.q.shape)}")
    groups, M = cache.q.shape[1] // cache.k.shape[1], cache.q.shape[2]
    for b, length in enumerate(cache.lengths.tolist()):
        q = cache.q[b]
        if length == 0:
            _assert_nothing(out[b], None if lse is None else lse[b])
            continue
        k, v = (
            sequence(x, b, length, cache.table).repeat_interleave(groups, dim=0)
            for x in (cache.k, cache.v)
        )
        mask = causal_mask(M, length, device=q.device)  # the last token sees all keys
        assert_attention(out[b], q, k, v, scale=scale, mask=mask)
        if lse is not None:
            _assert_lse(lse[b], q, k, mask, scale)


def _assert_nothing(out, lse):
    if not bool((out == 0).all()):
        raise NumericalMismatch("a sequence without keys has a result that is not 0")
    if lse is not None and not bool((lse == -math.inf).all()):
        raise NumericalMismatch("a sequence without keys has a logsumexp that is not -inf")


def _assert_lse(lse, q, k, mask, scale):
    """A score of size S carries a few eps · S, and the logsumexp moves by no more."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q.double() @ k.double().mT * scale
    want = scores.masked_fill(~mask, -math.inf).logsumexp(-1)
    size = float((q.double().abs() @ k.double().abs().mT).max()) * scale
    allowed = 4 * torch.finfo(torch.float32).eps * (size + 1)
    apart = (lse.double() - want).masked_fill(lse == want, 0.0).abs()  # -inf is -inf
    if not float(apart.max()) <= allowed:
        raise NumericalMismatch(f"logsumexp is off by {float(apart.max()):.1e}: {allowed:.1e}")


def assert_appended(cache, before, k_new, v_new):
    """Raise NumericalMismatch unless the new tokens lie at their sequences' ends, alone."""
    M = k_new.shape[2]
    for new, old, now in ((k_new, before.k, cache.k), (v_new, before.v, cache.v)):
        want = old.clone()
        for b, length in enumerate(cache.lengths.tolist()):
            for m in range(M):
                n = length - M + m
                if not 0 <= n < length:
                    continue
                if cache.table is None:
                    block, row = b, n
                else:
                    block, row = int(cache.table[b, n // now.shape[2]]), n % now.shape[2]
                want[block, :, row] = new[b, :, m]
        if not torch.equal(now.nan_to_num(7.5), want.nan_to_num(7.5)):
            raise NumericalMismatch("the cache is not the old one with its new tokens")
