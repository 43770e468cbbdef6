"""The inputs that a launcher is asked: few and small, and no two mistakes look alike on all."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from snippets._lab.diagnose.forms import Form
from snippets._lab.judge.models import Probe
from snippets._lab.judge.oracle import beside, make_qkv, transposed, with_gaps

MANY_KEYS = 300  # the last tile of each size holds another number of keys
# What tells tiles apart, and takes most time.
LONG = (
    "many keys",
    "257 keys",
    "many queries",
    "many of both",
    "first key ahead",
    "last key ahead",
)
ONE_MORE = 257  # than a multiple of every tile: a loop to N - 1 in steps of a tile misses one


def probes(form: Form, options: set[str]) -> Iterator[Probe]:
    """Probes of a form; `options` is what the launcher offers.

    The options are "scale", "causal" and "align". What is not offered is not asked.
    """
    dtype = getattr(torch, form.dtype)
    B, H = ((1, 1), (1, 4), (2, 2))[form.leading]
    for p in _probes(form, dtype, B, H, options):
        yield form.laid(replace(p, causal=True, align=form.always) if form.always else p)


def _probes(form: Form, dtype: torch.dtype, B: int, H: int, options: set[str]) -> Iterator[Probe]:
    def make(
        name: str, M: int, N: int, D: int = 16, heads: tuple[int, int] = (1, 1), **rest: Any
    ) -> Probe:
        M, N, D = form.sizes(M, N, D)
        q, k, v = make_qkv(*heads, M=M, N=N, D=D, seed=M + N + D, spread=1.5)
        return Probe(name, *(x.to(dtype) for x in (q, k, v)), **rest)

    yield make("plain", 3, 9, 32, (B, H))
    p = make("every tensor laid out differently", 3, 5)
    yield Probe(p.name, transposed(p.q), with_gaps(p.k), transposed(p.v))
    p = make("K transposed, V in slices", 2, 6)
    yield Probe(p.name, p.q, transposed(p.k), with_gaps(p.v))
    if form.leading:
        p = make("heads side by side", 2, 5, 16, (2, 3) if form.leading == 2 else (1, 3))
        yield Probe(p.name, beside(p.q), beside(p.k), beside(p.v))
    yield make("head dimension 40", 2, 7, 40)
    if dtype == torch.float16:  # other tiles than above, and a model knows one tile
        wide = make("wide heads, low scores", 1, 150, 128)  # a slot of zeros has the highest score
        yield Probe(wide.name, wide.q.abs(), -wide.k.abs(), wide.v)
    large = make("scores of 120", 3, 17, 32)
    top = (large.q.float() @ large.k.float().mT).amax(-1, keepdim=True) * large.factor
    yield Probe(large.name, (large.q.float() * 120 / top).to(dtype), large.k, large.v)
    if dtype == torch.float32:
        yield low_scores(make("scores of -120", 2, 9))
    if "scale" in options:
        yield make("a scale of 0.3", 3, 7, scale=0.3)
    if "causal" in options and not form.always:
        for name, M, N in (
            ("as many queries as keys", 7, 7),
            ("fewer queries than keys", 5, 9),
            ("more queries than keys", 9, 5),
            ("two tiles", 19, 21),
        ):
            yield make(f"causal, {name}", M, N, causal=True)
            if "align" in options and M < 19:
                yield make(f"top-left, {name}", M, N, causal=True, align="top_left")
    if form.always:
        yield make("more queries than keys", 9, 5)
    yield make("17 queries, 17 keys", 17, 17)
    long = make("many keys", 1, MANY_KEYS)
    order = (long.q @ long.k.mT)[0, 0, -1].argsort()  # rising scores: every tile moves the maximum
    yield Probe(long.name, long.q, long.k[:, :, order].contiguous(), long.v)
    yield make("257 keys", 1, ONE_MORE)
    yield make("many queries", 70, 3)
    yield make("many of both", 130, 140, causal="causal" in options)
    yield ahead(make("first key ahead", 1, MANY_KEYS), 0)
    yield ahead(make("last key ahead", 1, 70), -1)
    if form.leading == 2:
        wide = make("", 2, 5, 16, (2, 6))
        k, v = (x[:, :2].contiguous() for x in (wide.k, wide.v))
        yield Probe("grouped heads", wide.q, k, v, promised=False)


def ahead(p: Probe, key: int) -> Probe:
    """One key's score is about 120 above all others: no exponential spans the two."""
    q = p.q[..., -1:, :].float()
    k = p.k.clone()
    k[..., key, :] = (q * 120 / p.factor / q.square().sum(-1, keepdim=True))[..., 0, :].to(k.dtype)
    return replace(p, k=k)


def low_scores(p: Probe) -> Probe:
    """All scores about -120, and a few units apart."""
    ahead = torch.nn.functional.normalize(p.q[..., :1, :], dim=-1)  # one direction for all
    size = p.q.shape[-1] ** 0.5
    q = (ahead * 12 + 0.1 * p.q).to(p.q.dtype)
    k = (p.k - (p.k @ ahead.mT) * ahead - ahead * 10 * size).to(p.k.dtype)
    k = k + 0.1 * torch.arange(k.shape[-2], dtype=k.dtype)[:, None] * ahead * size
    return Probe(p.name, q.contiguous(), k.contiguous(), p.v)
