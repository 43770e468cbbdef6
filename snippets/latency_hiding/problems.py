"""The problems on which a reader's changed kernel is tried on the page."""

import torch

from snippets._lab.judge.problems import draw, launched
from snippets.latency_hiding.kernel import LINE, cycle

EPS = torch.finfo(torch.float32).eps


def problems():
    for group, file in (("latency_hiding", "kernel"), ("latency_hiding", "exercise")):
        yield walked(group, file, "plain", "4 walkers, 5 steps", 4, 5, 4)
        yield walked(group, file, "ragged", "7 walkers, 4 to a program", 7, 9, 4)
        yield walked(group, file, "one", "a walker a program", 3, 20, 1)
        yield walked(group, file, "none", "no step at all", 5, 0, 2)
    for name, title, L, programs in (
        ("plain", "one program, one tile", 512, 1),
        ("ragged", "two programs, three tiles and an end", 1_600, 2),
    ):
        x = draw(L)
        given = name, title, {"x": x}
        yield launched("copy_in_flight", *given, [x], [0.0], programs=programs)
    for name, title, tiles, programs in (
        ("plain", "a tile a program", 3, None),
        ("persistent", "two programs take turns at five tiles", 5, 2),
    ):
        x = draw(tiles, 32)
        want = x.double() * (2 - 0.5**4)  # y ← y / 2 + x, four times
        given = name, title, {"x": x}
        allowed = 2 * EPS * float(want.abs().max())
        yield launched("work_on_tiles", *given, [want], [allowed], steps=4, programs=programs)
    yield held("waits", "3 walkers that hold 64 numbers", 0)
    yield held("computes", "computes with 32 of them", 32)


def walked(group, file, name, title, walkers, steps, block):
    links = cycle(50 * 4 * LINE, device="cpu")
    starts = torch.arange(walkers, dtype=torch.int32) * LINE
    want = starts
    for _ in range(steps):
        want = links[want.long()]
    given = {"links": links, "starts": starts}
    options = {"steps": steps, "block": block}
    return launched(group, name, title, given, [want], [0.0], file, **options)


def held(name, title, work):
    links = cycle(20 * 4 * LINE, device="cpu")
    starts = torch.arange(3, dtype=torch.int32) * LINE
    x = draw(64)
    ends, total = starts, x.double().sum()
    if work:
        y = x[:work].double()
        for _ in range(4):
            y = y * 0.5 + 1.0
        total = total + y.sum()
    else:
        for _ in range(4):
            ends = links[ends.long()]
    inputs = {"links": links, "starts": starts, "x": x}
    allowed = [0.0, 8 * EPS * float(x.abs().sum() + 2 * work)]
    expected = [ends, total.expand(3)]
    return launched("hold_and_wait", name, title, inputs, expected, allowed, steps=4, work=work)
