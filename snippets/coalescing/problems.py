"""The problems on which a reader's changed kernel is tried on the page."""

import torch

from snippets._lab.judge.problems import Problem
from snippets._lab.probe.launches import on_the_lattice

EPS = torch.finfo(torch.float32).eps


def problems():
    for name, title, L, stride in (
        ("plain", "40 elements side by side", 40, 1),
        ("strided", "every third of 100", 100, 3),
        ("ragged", "every second of 2,500: two programs, and an end", 2_500, 2),
    ):
        yield copied(name, title, draw(L), stride)
    yield copied("gaps", "a view of every second element", draw(80)[::2], 3)
    yield copied("half", "float16", draw(60).half(), 2)
    for name, title, x, dim in (
        ("rows", "the rows of a 3 × 40 matrix", draw(3, 40), 1),
        ("columns", "the columns of a 40 × 3 matrix", draw(40, 3), 0),
        ("ragged", "rows of 1,100: two blocks, and an end", draw(2, 1_100), 1),
        ("transposed", "rows of a transposed matrix", draw(40, 3).T, 1),
        ("half", "float16", draw(3, 40).half(), 1),
        ("digits", "numbers that need all digits of float32", draw(1, 1_030) / 3, 1),
    ):
        yield summed("line_sums", "kernel", name, title, x, dim)
    for name, title, x in (
        ("plain", "the columns of a 40 × 3 matrix", draw(40, 3)),
        ("wide", "40 columns: two programs", draw(5, 40)),
        ("ragged", "150 rows: two tiles, and an end", draw(150, 3)),
        ("transposed", "columns of a transposed matrix", draw(3, 40).T),
    ):
        yield summed("column_sums", "exercise", name, title, x, 0)


def copied(name, title, x, stride):
    return Problem(
        name,
        title,
        {"x": x},
        lambda module, given: module.coalescing(given["x"], stride=stride),
        [x[::stride].double()],
        [0.0],
        group="coalescing",
    )


def summed(group, file, name, title, x, dim):
    """Allowed: the float32 rounding of each addition, and storing the sum."""
    want = x.double().sum(dim)
    adding = EPS * float(x.double().abs().sum(dim).max()) * 8  # pairwise, log2 of the longest line
    storing = torch.finfo(x.dtype).eps * float(want.abs().max())
    options = {"dim": dim} if group == "line_sums" else {}
    return Problem(
        name,
        title,
        {"x": x},
        lambda module, given: getattr(module, group)(given["x"], **options),
        [want],
        [adding + storing],
        file,
        group,
    )


def draw(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return on_the_lattice(torch.randn(*shape, generator=generator))
