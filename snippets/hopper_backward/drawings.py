"""The drawings of the page: parts and barriers, whose dQ it is, a model of time, what precedes."""

from typing import NamedTuple

from snippets._lab.draw.drawings import (
    MUTED,
    PALE,
    PHONE,
    STRONG,
    Key,
    arrow,
    box,
    bracket,
    keys,
    labeled,
    straight,
    svg,
    words,
)
from snippets._lab.draw.grids import Grid, cells, numbers
from snippets._lab.draw.identity import CONSUMERS, OUTPUT, PRODUCER, SCORES, K, Q
from snippets._lab.draw.pictures import Picture, picture
from snippets._lab.draw.timelines import Span, Timeline, time_arrow, timeline

LOADS = PRODUCER
TILES = 4  # of keys, and of queries, in the drawing of the shares


@picture
def roles():
    """The parts of a program, what they exchange, and who waits for whom."""
    wide = 150
    right = PHONE - wide
    middle = PHONE / 2
    drawn = [
        labeled(97, 4, wide, 30, LOADS, "loader: 1 warp", 11.5),
        labeled(47, 66, 250, 30, Q, "tiles of Q and dO, two of each", 11.5),
        straight((middle, 36), (middle, 63)),
        words(middle + 8, 54, "TMA, then full", 10.5, color=MUTED, anchor="start"),
    ]
    for i, x in enumerate((0, right)):
        at = x + wide / 2
        drawn += [
            box(x, 134, wide, 50, CONSUMERS[i], PALE, 1),
            words(at, 154, f"consumer {i}: 4 warps", 11.5),
            words(at, 173, "dK, dV of 64 keys", 11),
            straight((at, 98), (at, 131)),
            straight((at, 187), (at, 221)),
            straight((at, 254), (at, 279)),
        ]
    drawn += [
        words(83, 120, "waits for full", 10.5, color=MUTED, anchor="start"),
        arrow("M20 132V19H94", (94, 19), "right", LOADS, stroke_dasharray="4 3"),
        arrow(f"M{PHONE - 20} 132V19H250", (250, 19), "left", LOADS, stroke_dasharray="4 3"),
        words(26, 52, "empty", 10.5, color=MUTED, anchor="start"),
        labeled(47, 224, 250, 28, SCORES, "dS of both consumers", 11.5),
        words(middle, 210, "each reads both", 10.5, color=MUTED),
        labeled(47, 282, 250, 28, OUTPUT, "a tile of dQ, float32", 11.5),
        words(middle, 271, "dQ = dS K", 10.5, color=MUTED),
        labeled(97, 344, wide, 30, LOADS, "writer: 1 warp", 11.5),
        straight((middle, 312), (middle, 341)),
        words(middle + 8, 331, "full", 10.5, color=MUTED, anchor="start"),
        arrow("M95 359H20V188", (20, 188), "up", LOADS, stroke_dasharray="4 3"),
        arrow(f"M249 359H{PHONE - 20}V188", (PHONE - 20, 188), "up", LOADS, stroke_dasharray="4 3"),
        words(26, 330, "empty", 10.5, color=MUTED, anchor="start"),
        labeled(47, 406, 250, 28, OUTPUT, "sum of dQ in memory", 11.5, PALE),
        straight((middle, 376), (middle, 403)),
        words(middle + 8, 394, "TMA adds", 10.5, color=MUTED, anchor="start"),
    ]
    about = (
        "From top to bottom: a loading warp, tiles of queries and output gradients in shared "
        "memory, two consumers of four warps with 64 keys each, their dS in shared memory, a tile "
        "of dQ, a writing warp, and the sum of dQ in memory."
    )
    return Picture(
        sees="Data flows down. Only the signal that a buffer is empty goes up.",
        caption="Solid arrows carry data, dashed ones hand a buffer back. The loader and the "
        "writer wait for barriers and start TMA; the consumers do all the computing.",
        svg=svg(PHONE, 438, about, drawn),
    )


class Job(NamedTuple):
    """What a consumer does in a step: on the tensor cores, or by itself."""

    said: str
    cycles: int
    after: str = ""  # a product of its own that must have ended


# A product of 64 × 64 × 128 takes the tensor cores 256 cycles; the rest is guessed, in round
# numbers.
STEP = (
    Job("S", 256),
    Job("dP", 256),
    Job("exp", 380, after="S"),
    Job("dV", 256),
    Job("dS", 220, after="dP"),
    Job("dQ", 256),  # half of the columns, over the keys of both consumers
    Job("dK", 256),
    Job("out", 100, after="dQ"),
)


def modeled(steps, later):
    """(lane, start, end, what) of two consumers that share the tensor cores; one begins later."""
    spans, free = [], 0  # from when on the tensor cores are
    own = [0, later]  # and each consumer
    ended = [{}, {}]  # of each, what → when, and in which step
    waiting = [[(i, job) for i in range(steps) for job in STEP] for _ in (0, 1)]

    def can_go_on(who):
        """dQ of a step is computed from the dS of both."""
        step, job = waiting[who][0]
        return job.said != "dQ" or ended[1 - who].get("dS", (0, -1))[1] >= step

    while any(waiting):
        who = min((i for i in (0, 1) if waiting[i] and can_go_on(i)), key=lambda i: own[i])
        step, job = waiting[who].pop(0)
        if job.after:
            start = max(own[who], ended[who][job.after][0])
            own[who] = start + job.cycles
            spans.append((f"consumer {who}", start, own[who], job.said))
        else:
            both = max(x["dS"][0] for x in ended) if job.said == "dQ" else 0
            start = max(free, own[who], both)
            free = start + job.cycles
            spans.append(("tensor cores", start, free, f"{job.said} {who}"))
        ended[who][job.said] = (start + job.cycles, step)
        if job.said == "out":
            spans.append(("writer", own[who], own[who] + 300, f"{who}"))
    return spans


@picture
def shares():
    """Which program adds to which tile of dQ in which of its steps."""
    side, left, top = 44, 96, 62
    grid = Grid(left, top, TILES, TILES, side, side, 2)
    drawn = [
        cells(grid, lambda row, column: (OUTPUT, PALE + 16 * row)),
        numbers(grid, lambda row, column: str(row + 1), 13),
        words(left, 14, "tiles of 128 keys: a program each", 11, anchor="start"),
        words(8, top + 14, "tile of dQ", 11, anchor="start"),
    ]
    for j in range(TILES):
        x = grid.middle(0, j)[0]
        drawn.append(box(x - side / 2, 24, side - 2, 20, K, STRONG))
        drawn.append(words(x, 38, str(j), 11))
        drawn.append(words(left - 12, grid.middle(j, 0)[1] + 4, str(j), 10.5, color=MUTED))
    y = top + grid.down
    drawn.append(bracket(left, y + 6, grid.across, "all add to the same rows"))
    about = (
        "A square of tiles, dQ down and keys across. The number in a cell is the step in which the "
        "program of that column adds to the tile of that row: all begin with the first row."
    )
    return Picture(
        sees="Every program adds to every tile of dQ, and no program reads the sum.",
        caption="The number is the step in which a program gets to that tile, without a mask. "
        "Programs that run together add to the same rows at about the same time, in no fixed "
        "order.",
        svg=svg(PHONE, y + 34, about, drawn),
    )


@picture
def time():
    """A model of two steps: who does what when."""
    lanes = ("consumer 0", "consumer 1", "tensor cores", "writer")
    spans = modeled(4, later=300)
    end = 3800
    over = Timeline(lanes, end, left=80, wide=PHONE, tall=22)

    def color(lane, said):
        owner = said if lane == "tensor cores" else lane
        return OUTPUT if lane == "writer" else CONSUMERS[int(owner[-1])]

    drawn = timeline(
        over,
        [
            Span(lane, start, stop, color(lane, said), said.partition(" ")[0])
            for lane, start, stop, said in spans
        ],
    )
    shown = [Key(CONSUMERS[i], STRONG, f"of consumer {i}") for i in (0, 1)]
    shown.append(Key(OUTPUT, STRONG, "TMA adds"))
    about = (
        "Four lanes over time: two consumers with their exponentials and the stores of dQ, the "
        "tensor cores with the products of both in turn, and the writer, which adds a part of dQ "
        "while the next products run."
    )
    return Picture(
        sees="What the schedule allows: while one consumer computes exponentials, the tensor cores "
        "work for the other, and the writer adds under the next products.",
        caption="D 128. A model, not a measurement: products of 256 cycles, one after the other, "
        "and guesses for the rest. It leaves out that products wait for shared memory.",
        svg=svg(
            PHONE,
            over.down + 52,
            about,
            [drawn, time_arrow(over), keys(8, over.down + 30, PHONE - 16, shown)],
        ),
        table=[
            {"lane": lane, "from": start, "to": stop, "what": said}
            for lane, start, stop, said in spans
        ],
    )


HEADS, TILES_OF_HEAD, MULTIPROCESSORS = 3, 6, 9  # in the drawing of the two orders


def started(order):
    """(multiprocessor, start, end, head) of programs: each goes to where one ends first."""
    free = [0] * MULTIPROCESSORS
    spans = []
    for head, tile in order:
        where = min(range(MULTIPROCESSORS), key=lambda i: free[i])
        begins, free[where] = free[where], free[where] + TILES_OF_HEAD - tile
        spans.append((where, begins, free[where], head))
    return spans


@picture
def first():
    """The same programs on a few multiprocessors, started in two orders."""
    by_head = [(head, tile) for head in range(HEADS) for tile in range(TILES_OF_HEAD)]
    orders = {
        "one head after the other": started(by_head),
        "the longest of all heads first": started(sorted(by_head, key=lambda x: x[1])),
    }
    end = max(stop for spans in orders.values() for _, _, stop, _ in spans)
    drawn, table, y = [], [], 4
    for said, spans in orders.items():
        lanes = [str(i) for i in range(MULTIPROCESSORS)]
        over = Timeline(lanes, end, y=y + 22, left=20, wide=PHONE, tall=12, gap=2)
        last = max(stop for _, _, stop, _ in spans)
        drawn += [
            words(over.at(0), y + 14, f"{said}: {last} steps", 11.5, anchor="start"),
            timeline(
                over,
                [
                    Span(str(where), begins, stop, K, str(stop - begins), 25 + 30 * head)
                    for where, begins, stop, head in spans
                ],
                10,
            ),
        ]
        table += [
            {"order": said, "multiprocessor": where, "head": head, "from": begins, "to": stop}
            for where, begins, stop, head in spans
        ]
        y += 22 + over.down + 14
    drawn += [
        time_arrow(over),
        keys(8, y + 14, PHONE - 16, [Key(K, 25 + 30 * i, f"head {i}") for i in range(HEADS)]),
    ]
    about = (
        "Two charts of nine multiprocessors over time. Above, one head after the other, long "
        "programs of the last head start late and leave most multiprocessors idle at the end. "
        "Below, with the longest of all heads first, all end at the same time."
    )
    return Picture(
        sees="The same 18 programs. Started in order of heads, the last long ones leave the rest "
        "of the GPU idle.",
        caption="A model with 9 multiprocessors and 3 heads of 6 tiles. The number is how many "
        "tiles of queries a program goes through, with a causal mask.",
        svg=svg(PHONE, y + 34, about, drawn),
        table=table,
    )


@picture
def before():
    """What comes before what around the buffer of dQ: a consumer's requests and the writer's."""
    wide, tall, step = 150, 26, 40
    left, right = wide / 2, PHONE - wide / 2
    does = {  # lane, row, and whether the buffer is used
        "stores dQ": (left, 0, True),
        "arrives: full": (left, 1, False),
        "waits: full": (right, 1, False),
        "TMA reads dQ": (right, 2, True),
        "waits for TMA": (right, 3, False),
        "arrives: empty": (right, 4, False),
        "waits: empty": (left, 4, False),
        "stores the next dQ": (left, 5, True),
    }
    drawn = [words(x, 14, said, 11) for x, said in ((left, "consumer"), (right, "writer"))]
    for said, (x, row, used) in does.items():
        strength = STRONG if used else PALE
        y = 24 + row * step
        color = CONSUMERS[0] if x == left else LOADS
        drawn.append(labeled(x - wide / 2, y, wide, tall, color, said, 11, strength))
    for x, above, below in (
        (left, 0, 1),
        (left, 1, 4),
        (left, 4, 5),
        (right, 1, 2),
        (right, 2, 3),
        (right, 3, 4),
    ):
        drawn.append(straight((x, 26 + tall + above * step), (x, 22 + below * step)))
    for row, start, end in ((1, wide + 2, PHONE - wide - 3), (4, PHONE - wide - 2, wide + 3)):
        y = 24 + row * step + tall / 2
        drawn.append(straight((start, y), (end, y)))
    about = (
        "Two columns. The consumer stores dQ and arrives at full. From there an arrow leads to the "
        "writer, which waits for full, lets TMA read dQ, waits for TMA and arrives at empty. From "
        "there an arrow leads back to the consumer, which waits for empty and stores the next dQ."
    )
    return Picture(
        sees="Arrows lead from each use of the buffer to the next: in no order do two meet.",
        caption="An arrow says what comes before what in every order. Take out the wait for empty, "
        "and no arrow leads from the writer to the next store.",
        svg=svg(PHONE, 24 + 5 * step + tall + 6, about, drawn),
    )
