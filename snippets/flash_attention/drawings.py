"""The drawings of the page: two units, a pipeline of loads, two programs, and a tile's cycles."""

import math
from typing import NamedTuple

from snippets._lab.draw.drawings import INK, MUTED, PALE, PHONE, STRONG, box, line, svg, words
from snippets._lab.draw.gpu import CORES, EXPONENTIAL, TENSOR
from snippets._lab.draw.identity import SCORES, K
from snippets._lab.draw.pictures import Picture, picture, picture_of
from snippets._lab.draw.rows import ceiling, only, rate
from snippets._lab.draw.timelines import Span, Timeline, time_arrow, timeline
from snippets._lab.draw.units import count, decimals, flops, many, percent, ratio

POST = "flash_attention"
# FLOP of 16-bit products, and exponentials, a cycle and multiprocessor, by compute capability:
# NVIDIA H100 Tensor Core GPU Architecture; CUDA C++ Programming Guide, arithmetic instructions.
A_CYCLE = {"9.0": (4096, 16)}
UNIT = "matmul_bfloat16"
TILE = 128, 128  # queries and keys of a tile, where cycles are counted


class Stage(NamedTuple):
    """What a tile needs of one unit, in a drawing."""

    lane: str
    long: float
    color: str


class Costs(NamedTuple):
    """Cycles of a multiprocessor for one tile of TILE."""

    products: float
    exponentials: float


def _costs(result, D):
    """What a tile of scores costs each unit, at the rates of the manuals."""
    queries, keys_ = TILE
    products, exponentials = A_CYCLE[result.device["capability"]]
    return Costs(4 * queries * keys_ * D / products, queries * keys_ / exponentials)


@picture_of("kernels")
def units(result):
    """Float32 cores and tensor cores side by side, as large as what they can do."""
    longest = max(r["N"] for r in result.rows)
    rows = [only(result.rows, implementation=name, N=longest) for name in ("tiled_attention", POST)]
    slow, fast = map(rate, rows)
    cores, tensor = ceiling(result, "fma_float32"), ceiling(result, "matmul_float16")
    wide = 190
    small = wide * math.sqrt(cores / tensor)
    top, left = 40, 8
    right = PHONE - wide - 8
    floor = top + wide

    def unit(x, side, color, can, does):
        """A square whose area is a rate, filled from below as far as a kernel comes."""
        tall = side * does / can
        return [
            box(x, floor - side, side, side, color, PALE, 1),
            box(x, floor - tall, side, tall, color, STRONG),
        ]

    drawn = [
        words(0, 13, "a GPU's arithmetic units, drawn by rates", 12, 600, anchor="start"),
        *unit(left + 24, small, CORES, cores, slow),
        *unit(right, wide, TENSOR, tensor, fast),
        words(left, floor - small - 38, "float32 cores", 11.5, 600, anchor="start"),
        words(left, floor - small - 23, flops(cores), 10.5, color=MUTED, anchor="start"),
        words(right + 8, top + 18, "tensor cores", 11.5, 600, anchor="start"),
        words(right + 8, top + 33, flops(tensor), 10.5, color=MUTED, anchor="start"),
        words(left, floor + 18, "tiled_attention", 10.5, 600, anchor="start"),
        words(left, floor + 33, f"{flops(slow)}, {percent(slow / cores)}", 10.5, anchor="start"),
        words(right + 8, floor + 18, "flash_attention", 10.5, 600, anchor="start"),
        words(
            right + 8, floor + 33, f"{flops(fast)}, {percent(fast / tensor)}", 10.5, anchor="start"
        ),
    ]
    about = (
        f"Two squares whose areas are rates: float32 cores {flops(cores)}, tensor cores "
        f"{flops(tensor)}. tiled_attention fills {percent(slow / cores)} of the small one, "
        f"flash_attention {percent(fast / tensor)} of the large one."
    )
    return Picture(
        sees=f"The tensor cores can do {ratio(tensor / cores)} as much.",
        caption="Each square's area is what the unit reached in our own measurement, of all "
        "multiprocessors together (float16 products on the tensor cores). The strong part is what "
        f"a kernel reaches of it, in {rows[0]['dtype']} with {many(rows[0]['heads'], 'head')}, "
        f"D {rows[0]['D']} and N {count(longest)}.",
        svg=svg(PHONE, floor + 42, about, drawn),
        table=[
            {"unit": unit_, "can do": flops(can), "kernel": kernel, "does": flops(does)}
            for unit_, can, kernel, does in (
                ("float32 cores", cores, "tiled_attention", slow),
                ("tensor cores", tensor, POST, fast),
            )
        ],
    )


@picture_of("forward")
def budget(result):
    """Where the cycles of a tile go: products and exponentials."""
    if result.device["capability"] not in A_CYCLE:
        return None
    costs = {D: _costs(result, D) for D in (64, 128)}
    most = max(map(sum, costs.values()))
    scale, left, top = (PHONE - 52) / most, 52, 34
    drawn = [
        words(0, 13, f"cycles of a {TILE[0]} × {TILE[1]} tile of scores", 12, 600, anchor="start")
    ]
    for i, (D, cost) in enumerate(costs.items()):
        y = top + i * 58
        at = left
        drawn.append(words(0, y + 18, f"D {D}", 12, 600, anchor="start"))
        for color, cycles, said in (
            (TENSOR, cost.products, "products"),
            (EXPONENTIAL, cost.exponentials, "exponentials"),
        ):
            wide = cycles * scale
            drawn += [
                box(at, y, wide - 1, 28, color, 40, 1),
                words(at + wide / 2, y + 18, count(round(cycles)), 11.5, 600),
                words(at + wide / 2, y + 42, said, 10.5, color=MUTED),
            ]
            at += wide
    about = "; ".join(
        f"D {D}: {cost.products:.0f} cycles of products, {cost.exponentials:.0f} of exponentials"
        for D, cost in costs.items()
    )
    narrow, wide = (_as_long(cost.exponentials / cost.products) for cost in costs.values())
    products, exponentials = A_CYCLE[result.device["capability"]]
    clock = 1e6 * max(result.device["sm_clock_mhz"])
    peak = products * result.device["multiprocessors"] * clock
    return Picture(
        sees=f"At D 64 the exponentials take {narrow} as both products, at D 128 {wide}.",
        caption=f"A multiprocessor does {count(products)} FLOP and {exponentials} exponentials a "
        "cycle (NVIDIA's manuals). A large product reaches "
        f"{percent(ceiling(result, UNIT) / peak)} of that rate in our measurement.",
        svg=svg(PHONE, top + 2 * 58 + 2, about, drawn),
        table=[
            {
                "D": D,
                "products, cycles": round(c.products),
                "exponentials, cycles": round(c.exponentials),
            }
            for D, c in costs.items()
        ],
    )


def _as_long(share):
    """A share of a duration, in words."""
    known = {1: "as long", 0.5: "half as long"}
    near = next((said for x, said in known.items() if math.isclose(share, x, rel_tol=0.02)), None)
    return near or f"{decimals(share)} times as long"


@picture
def pipeline():
    """Loads one iteration after the other, and loads that run ahead of the products."""
    load, product, tiles = 3, 2, 5
    first = Timeline(("load", "compute"), tiles * (load + product), y=30, left=64)
    now, spans = 0, []
    for tile in range(tiles):
        spans += [
            Span("load", now, now + load, K, str(tile)),
            Span("compute", now + load, now + load + product, SCORES, str(tile)),
        ]
        now += load + product
    alone = now
    stages = 3
    second = Timeline((*(f"buffer {i}" for i in range(stages)), "compute"), alone, y=126, left=64)
    free, busy, ahead = [0.0] * stages, 0.0, []
    for tile in range(tiles):
        buffer = tile % stages
        start = free[buffer]
        begin = max(busy, start + load)
        busy = free[buffer] = begin + product
        ahead += [
            Span(f"buffer {buffer}", start, start + load, K, str(tile)),
            Span(f"buffer {buffer}", start + load, begin, K, "", PALE),
            Span("compute", begin, busy, SCORES, str(tile)),
        ]
    drawn = [
        words(0, 14, "num_stages=1", 12, 600, anchor="start"),
        timeline(first, spans),
        words(0, 114, f"num_stages={stages}", 12, 600, anchor="start"),
        timeline(second, ahead),
        line(f"M{second.at(busy):g} {second.y - 6:g}v{second.down + 12:g}", INK, 1.2, "3 3"),
        words(second.at(busy) + 5, second.y - 8, "done", 10.5, anchor="start"),
        time_arrow(second),
    ]
    about = (
        f"Above, each of {tiles} tiles is loaded and then computed with. Below, {stages} buffers "
        "are filled while earlier tiles are computed with."
    )
    return Picture(
        sees="With more stages the next tiles load while this one is computed.",
        caption="Numbers are tiles of keys; strong blue is a copy in flight, pale blue a tile "
        "that waits in shared memory. Durations are made up.",
        svg=svg(PHONE, second.y + second.down + 24, about, drawn),
    )
