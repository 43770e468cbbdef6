"""The problems on which a reader's changed kernel is tried on the page."""

import torch

from snippets._lab.judge.problems import draw, launched

EPS = torch.finfo(torch.float32).eps


def problems():
    for name, title, x, stride in (
        ("plain", "40 elements side by side", draw(40), 1),
        ("strided", "every third of 100", draw(100), 3),
        ("ragged", "every second of 2,500: two programs, and an end", draw(2_500), 2),
        ("gaps", "a view of every second element", draw(80)[::2], 3),
        ("half", "float16", draw(60).half(), 2),
    ):
        yield launched("coalescing", name, title, {"x": x}, [x[::stride]], [0.0], stride=stride)
    for name, title, x, dim in (
        ("rows", "the rows of a 3 × 40 matrix", draw(3, 40), 1),
        ("columns", "the columns of a 40 × 3 matrix", draw(40, 3), 0),
        ("ragged", "rows of 1,100: two blocks, and an end", draw(2, 1_100), 1),
        ("transposed", "rows of a transposed matrix", draw(40, 3).T, 1),
        ("half", "float16", draw(3, 40).half(), 1),
        ("digits", "numbers that need all digits of float32", draw(1, 1_030) / 3, 1),
    ):
        yield summed("line_sums", "kernel", name, title, x, dim, dim=dim)
    for name, title, x in (
        ("plain", "the columns of a 40 × 3 matrix", draw(40, 3)),
        ("wide", "40 columns: two programs", draw(5, 40)),
        ("ragged", "150 rows: two tiles, and an end", draw(150, 3)),
        ("transposed", "columns of a transposed matrix", draw(3, 40).T),
    ):
        yield summed("column_sums", "exercise", name, title, x, 0)


def summed(group, file, name, title, x, along, **options):
    """Allowed: the float32 rounding of each addition, and storing the sum."""
    want = x.double().sum(along)
    adding = (
        EPS * float(x.double().abs().sum(along).max()) * 8
    )  # pairwise, log2 of the longest line
    storing = torch.finfo(x.dtype).eps * float(want.abs().max())
    allowed = [adding + storing]
    return launched(group, name, title, {"x": x}, [want], allowed, file, **options)
