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
    window: tuple[int | None, int | None] | None = None
    sinks: torch.Tensor | None = None  # float32 [H]
    k_scale: torch.Tensor | None = None  # float32 [Hkv]: k and v are float8_e4m3fn
    v_scale: torch.Tensor | None = None

    def options(self):
        """The arguments that go by keyword."""
        more = {name: x for name, x in self._asdict().items() if x is not None}
        names = more.keys() & {"window", "sinks", "k_scale", "v_scale"}
        named = {"cache_seqlens": self.lengths, "page_table": self.table}
        return named | {name: more[name] for name in names}


def with_sinks(cache):
    """The cache, and sinks about as heavy as a sequence of it; those of the first head weigh 0."""
    sinks = torch.linspace(3, 9, cache.q.shape[1], device=cache.q.device)
    sinks[:-1:4] = -math.inf
    return cache._replace(sinks=sinks)


def quantize(x, scale):
    """x [..., Hkv, N, D] over scale [Hkv] in float8: to the nearest, at most ±448."""
    return (x.float() / scale[:, None, None]).clamp(-448, 448).to(torch.float8_e4m3fn)


def quantized(cache):
    """The cache in float8, with scales that differ from head to head.

    They are powers of two, so that the quotients of `dequantized` are exact in 16 bits as well.
    """
    heads = torch.arange(cache.k.shape[1], device=cache.q.device) % 3
    k_scale, v_scale = torch.exp2(heads - 6.0), torch.exp2(-3.0 - heads)
    k, v = quantize(cache.k, k_scale), quantize(cache.v, v_scale)
    return cache._replace(k=k, v=v, k_scale=k_scale, v_scale=v_scale)


def dequantized(cache):
    """The numbers of a float8 cache in q's dtype; any other as it is."""
    if cache.k_scale is None:
        return cache
    pairs = ((cache.k, cache.k_scale), (cache.v, cache.v_scale))
    k, v = ((x.float() * scale[:, None, None]).to(cache.q.dtype) for x, scale in pairs)
    return cache._replace(k=k, v=v, k_scale=None, v_scale=None)


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
    cache = dequantized(cache)
    left = cache.window[0] if cache.window else None
    groups, M = cache.q.shape[1] // cache.k.shape[1], cache.q.shape[2]
    for b, length in enumerate(cache.lengths.tolist()):
        q = cache.q[b]
        first = 0 if left is None else max(0, length - M - left)  # no token sees a key before
        k, v = (
            sequence(x, b, length, cache.table)[:, first:].repeat_interleave(groups, dim=0)
            for x in (cache.k, cache.v)
        )
        mask = causal_mask(M, length, device=q.device)  # the last token sees all keys
        if left is not None:
            mask = mask.triu(length - M - left)[:, first:]
        if length > 0:
            assert_attention(out[b], q, k, v, scale=scale, mask=mask, sinks=cache.sinks)
        elif not bool((out[b] == 0).all()):
            raise NumericalMismatch("a sequence without keys has a result that is not 0")
        if lse is not None:
            _assert_lse(lse[b], q, k, mask, scale, cache.sinks)


def _assert_lse(lse, q, k, mask, scale, sinks):
    """A score of size S carries a few eps · S, and the logsumexp moves by no more."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = (q.double() @ k.double().mT * scale).masked_fill(~mask, -math.inf)
    if sinks is None:
        sinks = torch.full(q.shape[:1], -math.inf, device=q.device)
    more = sinks.double()[:, None, None].expand(*q.shape[:2], 1)
    want = torch.cat([scores, more], -1).logsumexp(-1)
    products = q.double().abs() @ k.double().abs().mT * scale
    size = float(
        torch.cat([products.flatten(), sinks[sinks.isfinite()].abs(), sinks.new_zeros(1)]).max()
    )
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
        if not torch.equal(now.float().nan_to_num(7.5), want.float().nan_to_num(7.5)):
            raise NumericalMismatch("the cache is not the old one with its new tokens")
