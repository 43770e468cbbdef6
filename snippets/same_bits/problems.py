"""The problems on which a reader's changed kernel is tried on the page."""

import torch

from snippets._lab.judge.oracle import make_qkv
from snippets._lab.judge.problems import Problem, launched
from snippets._lab.probe.launches import on_the_lattice

from .bench import eager
from .kernel import CHUNK


def problem(name, title, M, N, heads=(2, 2), page=0, apart=False, **options):
    """Heads of float32; allowed are a few roundings of the scores, as float32 makes them.

    `page`: keys are in pages of so many, and the last one is not full. `apart`: scores of the
    second chunk are so far below those of the first that exp2 of the difference overflows.
    """
    H, Hkv = heads
    q, k, v = (on_the_lattice(x) for x in make_qkv(1, H, M=M, N=N, D=16, seed=M + N))
    k, v = k[:, :Hkv], v[:, :Hkv]
    if apart:
        q, k = q * 64, k * (torch.arange(N) < CHUNK.value)[:, None]
    want = eager(*(x.double() for x in (q, k, v)))
    inputs = {"q": q, "k_cache": k, "v_cache": v}
    if page:
        inputs |= _paged(page, k, v)

    def call(module, given):
        return module.same_bits(**given, **options)

    return Problem(name, title, inputs, call, [want], [1e-4 if apart else 1e-5], group="same_bits")


def _paged(page, k, v):
    """The keys and values of one sequence on pages in another order, ones where none belongs."""
    N = k.shape[2]
    order = torch.arange(-(-N // page)).flip(0)
    caches = []
    for x in (k, v):
        room = torch.ones(x.shape[1], len(order) * page, x.shape[3])
        room[:, :N] = x[0]
        caches.append(room.unflatten(1, (len(order), page)).transpose(0, 1)[order].contiguous())
    lengths = torch.tensor([N], dtype=torch.int32)
    return {
        **dict(zip(("k_cache", "v_cache"), caches, strict=True)),
        "cache_seqlens": lengths,
        "page_table": order.int()[None],
    }


def problems():
    yield problem("plain", "5 queries, 9 keys", 5, 9)
    yield problem("tiles", "two tiles of keys", 3, 70, split=False)
    yield problem("grouped", "two pairs of heads that share keys", 3, 9, (4, 2))
    yield problem("chunks", "two chunks in one pass", 2, 530, split=False)
    yield problem("split", "two chunks, each its own program's", 2, 530)
    yield problem("apart", "scores of the second chunk far below", 1, 530, apart=True)
    yield problem("paged", "pages of 4, the last not full", 1, 13, page=4)
    for name, title, rows in (
        ("alone", "one row", 1),
        ("two", "two rows", 2),
        ("many", "eight rows", 8),
    ):
        x = torch.zeros(rows, 16)
        x[:, 0] = 2.0**24  # to which 1 is added in vain, and 2 is not
        x[:, [4, 8, 12]] = 1.0
        want = torch.full((rows,), 2.0**24 + 2)
        yield launched(
            "row_sums", name, title, {"x": x}, [want], [0.0], "exercise", chunk=8, block=4
        )
