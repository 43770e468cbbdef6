"""The problems on which a reader's changed kernel is tried on the page."""

import torch

from snippets._lab.judge.problems import Problem, attention
from snippets._lab.probe.launches import on_the_lattice

from .exercise import scores

EPS = torch.finfo(torch.float32).eps


def problems():
    # In float16 the weights lie in the memory of float32 scores; on the page memory has one type.
    yield from attention("composed_attention", without=["half"])


def more_problems():
    yield scored("plain", "8 queries, 8 keys, 16 columns", *drawn(1, 1, 8, 8, 16))
    yield scored("ragged", "sizes that fill no tile", *drawn(1, 1, 3, 37, 24))
    yield scored("heads", "two batches of two heads", *drawn(2, 2, 2, 5, 16))
    yield scored("tiles", "two tiles of queries, two of keys", *drawn(1, 1, 18, 33, 8))
    q, k = drawn(1, 1, 6, 10, 16)
    yield scored("gaps", "every second row of a longer k", q, k[:, :, ::2])
    yield scored("transposed", "k stored by columns", q, k.mT.contiguous().mT)
    yield scored("half", "float16", q.half(), k.half())


def scored(name, title, q, k):
    """Allowed: each product's and each sum's rounding to float32, in any order."""
    scale = q.shape[-1] ** -0.5
    sizes = q.double().abs() @ k.double().abs().mT
    return Problem(
        name,
        title,
        {"q": q, "k": k},
        lambda module, given: module.scores(given["q"], given["k"]),
        [q.double() @ k.double().mT * scale],
        [(q.shape[-1] + 2) * EPS * scale * float(sizes.max())],
        "exercise",
        scores.__name__,
    )


def drawn(B, H, M, N, D):
    generator = torch.Generator().manual_seed(B + H + M + N + D)
    q, k = (torch.randn(B, H, rows, D, generator=generator) for rows in (M, N))
    return on_the_lattice(q), on_the_lattice(k)
