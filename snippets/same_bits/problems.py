"""The problems on which a reader's changed kernel is tried on the page."""

import torch

from snippets._lab.judge.oracle import make_qkv
from snippets._lab.judge.problems import Problem, launched
from snippets._lab.probe.launches import on_the_lattice

from .bench import eager


def problem(name, title, M, N, group=1, **options):
    """Two heads of float32; allowed are a few roundings of the scores, as float32 makes them."""
    q, k, v = (on_the_lattice(x) for x in make_qkv(1, 2, M=M, N=N, D=16, seed=M + N))
    k, v = k[:, : 2 // group], v[:, : 2 // group]
    want = eager(*(x.double() for x in (q, k, v)))
    inputs = {"q": q, "k_cache": k, "v_cache": v}

    def call(module, given):
        return module.same_bits(*given.values(), **options)

    return Problem(name, title, inputs, call, [want], [1e-5], group="same_bits")


def problems():
    yield problem("plain", "5 queries, 9 keys", 5, 9)
    yield problem("tiles", "two tiles of keys", 3, 70, split=False)
    yield problem("grouped", "two heads that share keys", 3, 9, 2)
    yield problem("chunks", "two chunks in one pass", 2, 530, split=False)
    yield problem("split", "two chunks, each its own program's", 2, 530)
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
