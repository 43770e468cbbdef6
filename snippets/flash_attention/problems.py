"""The problems on which a reader's changed kernel is tried on the page."""

from dataclasses import replace
from unittest.mock import patch

import torch

from snippets._lab.judge.problems import attention, draw, launched, logsumexp, make, rising

from . import smallest
from .exercise import merge

SIDE = 16  # of the smallest kernel's tiles here, instead of 64: less to fetch and to look at
EPS = torch.finfo(torch.float32).eps


def problems():
    yield from attention("flash_attention")
    yield from attention(
        "flash_attention",
        also=logsumexp,
        options={"return_lse": True},
        only=["causal_more"],
        ending="_lse",
    )


def more_problems():
    yield from in_small_tiles()
    yield merged("plain", "three parts, 4 rows, 16 columns", drawn(3, 4, 16))
    yield merged("one", "a single part", drawn(1, 4, 16))
    yield merged("ragged", "17 rows of 24 columns", drawn(2, 17, 24))
    outs, lses = drawn(3, 5, 16)
    yield merged("large", "logarithms beyond what exp can hold", (outs, lses * 64))
    outs, lses = drawn(3, 5, 16)
    lses[0, 1] = lses[:, 3] = float("-inf")
    yield merged("empty", "a part without a key for row 1, and row 3 without any", (outs, lses))
    outs, lses = drawn(2, 6, 16)
    yield merged("half", "float16", (outs.half(), lses))


def in_small_tiles():
    """Of the smallest kernel, in float16 and whole tiles of SIDE."""
    large = make("large", SIDE, SIDE)
    probes = (
        ("one tile of queries, one of keys", make("plain", SIDE, SIDE)),
        ("four tiles of keys", rising(make("tiles", SIDE, 4 * SIDE))),
        ("two programs", make("queries", 2 * SIDE, SIDE)),
        ("scores beyond what exp can hold", replace(large, q=large.q * 64)),
        ("two heads", make("heads", SIDE, SIDE, heads=(1, 2))),
    )
    halves = [(title, replace(p, q=p.q.half(), k=p.k.half(), v=p.v.half())) for title, p in probes]
    group = smallest.smallest_attention.__name__
    with patch.object(smallest, "BLOCK", SIDE):
        found = list(attention("flash_attention", "smallest", group, probes=halves))
    for problem in found:
        yield replace(problem, call=patched(problem.call))


def patched(call):
    def with_small_tiles(module, given):
        with patch.object(module, "BLOCK", SIDE):
            return call(module, given)

    return with_small_tiles


def merged(name, title, given):
    """Allowed: the rounding of a weighted mean, and of storing it."""
    outs, lses = given
    shares = lses.double().softmax(0).nan_to_num(0.0)  # a row without a key stays zero
    size = float(outs.double().abs().max())
    want = (shares[..., None] * outs.double()).sum(0)
    allowed = size * ((len(outs) + 4) * EPS + torch.finfo(outs.dtype).eps)
    inputs = {"outs": outs, "lses": lses}
    return launched(merge.__name__, name, title, inputs, [want], [allowed], "exercise")


def drawn(parts, M, D):
    return draw(parts, M, D), draw(parts, M) * 2
