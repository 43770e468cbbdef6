"""The problems on which a reader's changed kernel is tried on the page."""

import torch

from snippets._lab.judge.problems import Problem
from snippets._lab.probe.launches import on_the_lattice
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
        yield Problem(
            name,
            title,
            {"x": x},
            lambda module, given, programs=programs: module.copy_in_flight(
                given["x"], programs=programs
            ),
            [x.double()],
            [0.0],
            group="copy_in_flight",
        )
    for name, title, tiles, programs in (
        ("plain", "a tile a program", 3, None),
        ("persistent", "two programs take turns at five tiles", 5, 2),
    ):
        x = draw(tiles, 32)
        want = x.double() * (2 - 0.5**4)  # y ← y / 2 + x, four times
        yield Problem(
            name,
            title,
            {"x": x},
            lambda module, given, programs=programs: module.work_on_tiles(
                given["x"], steps=4, programs=programs
            ),
            [want],
            [2 * EPS * float(want.abs().max())],
            group="work_on_tiles",
        )
    yield held("waits", "3 walkers that hold 64 numbers", 0)
    yield held("computes", "computes with 32 of them", 32)


def walked(group, file, name, title, walkers, steps, block):
    links = cycle(50 * 4 * LINE, device="cpu")
    starts = torch.arange(walkers, dtype=torch.int32) * LINE
    want = starts
    for _ in range(steps):
        want = links[want.long()]
    return Problem(
        name,
        title,
        {"links": links, "starts": starts},
        lambda module, given: module.latency_hiding(
            given["links"], given["starts"], steps=steps, block=block
        ),
        [want.double()],
        [0.0],
        file,
        group,
    )


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
    sums = total.expand(3)
    return Problem(
        name,
        title,
        {"links": links, "starts": starts, "x": x},
        lambda module, given: module.hold_and_wait(*given.values(), steps=4, work=work),
        [ends.double(), sums],
        [0.0, 8 * EPS * float(x.abs().sum() + 2 * work)],
        group="hold_and_wait",
    )


def draw(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return on_the_lattice(torch.randn(*shape, generator=generator))
