"""The problems on which a reader's changed kernel is tried on the page."""

import torch

from snippets._lab.judge.problems import attention, draw, launched

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
    want, allowed = q.double() @ k.double().mT * scale, (q.shape[-1] + 2) * EPS * sizes.max()
    inputs = {"q": q, "k": k}
    group = scores.__name__
    return launched(group, name, title, inputs, [want], [float(allowed) * scale], "exercise")


def drawn(B, H, M, N, D):
    return draw(B, H, M, D), draw(B, H, N, D, seed=1)
