"""The drawings of the page: who waits for whom, the ring of buffers, and two layouts."""

import math

from snippets._lab.draw.drawings import (
    INK,
    LINES,
    MUTED,
    PALE,
    PHONE,
    STRONG,
    arrow,
    box,
    bracket,
    frame,
    labeled,
    line,
    mixed,
    motion,
    straight,
    svg,
    words,
)
from snippets._lab.draw.grids import Grid, cells, numbers
from snippets._lab.draw.identity import (
    CONSUMERS,
    PRODUCER,
    REGISTERS,
    SCORES,
    SHARED,
    K,
    identity,
    oklch,
)
from snippets._lab.draw.pictures import Picture, picture

STAGES = 3  # of the ring, as at D 64
QUAD = [oklch(0.62, 0.12, hue) for hue in (255, 190, 120, 45)]  # the four threads of a row
CHUNK, BANK, BANKS = 16, 4, 32  # bytes that a thread reads at once, bytes of a bank, banks
ROW = 128  # bytes of a swizzled row
GIVEN = {2: (240, 24), 3: (160, 24)}  # kernel.py's REGISTERS; a test compares them
HELD_IN = {64: 160, 128: 240}  # D → registers of a consumer's thread in the widest variant


@picture
def roles():
    """The parts of a program and who waits for whom."""
    wide, left = 150, 0
    right = PHONE - 150
    drawn = [
        labeled(97, 4, wide, 34, PRODUCER, "producer: 1 warp", 11.5),
        labeled(97, 74, wide, 30, SHARED, "TMA copies", 11.5),
        labeled(47, 140, 250, 34, K, "buffers for K and V in shared memory", 11.5),
        straight((172, 40), (172, 71)),
        words(180, 60, "starts a copy, goes on", 10.5, color=MUTED, anchor="start"),
        straight((172, 106), (172, 137)),
        words(180, 126, "bytes, then full", 10.5, color=MUTED, anchor="start"),
    ]
    for i, x in enumerate((left, right)):
        middle = x + wide / 2
        drawn += [
            labeled(x, 222, wide, 34, CONSUMERS[i], f"consumer {i}: 4 warps", 11.5),
            straight((middle, 176), (middle, 219)),
            labeled(x, 276, wide, 26, SCORES, "64 queries", 11),
            line(f"M{middle:g} 257v18", MUTED, 1.2),
        ]
    drawn += [
        words(83, 202, "waits for full", 10.5, anchor="start"),
        words(261, 202, "waits for full", 10.5, color=INK, anchor="end"),
        arrow("M20 220V21H94", (94, 21), "right", PRODUCER, stroke_dasharray="4 3"),
        arrow(f"M{PHONE - 20} 220V21H250", (250, 21), "left", PRODUCER, stroke_dasharray="4 3"),
        words(24, 62, "empty", 10.5, color=MUTED, anchor="start"),
        words(PHONE - 24, 62, "", 10.5, color=MUTED, anchor="end"),
    ]
    about = (
        "A producer warp starts TMA copies into buffers in shared memory. When the bytes are "
        "there, two consumers of four warps pass their wait for full. They signal empty to the "
        "producer."
    )
    return Picture(
        sees="One warp loads, eight compute, and barriers connect them.",
        caption="Solid arrows carry data, dashed ones hand a buffer back. The producer waits only "
        "for *empty*, a consumer only for *full*.",
        svg=svg(PHONE, 306, about, drawn),
    )


def _sector(x, y, inner, outer, start, end, color, percent):
    """A part of a ring, by turns of the whole."""

    def at(radius, turn):
        angle = 2 * math.pi * turn - math.pi / 2
        return f"{x + radius * math.cos(angle):.1f} {y + radius * math.sin(angle):.1f}"

    return (
        f'<path d="M{at(outer, start)}A{outer} {outer} 0 0 1 {at(outer, end)}'
        f'L{at(inner, end)}A{inner} {inner} 0 0 0 {at(inner, start)}Z" '
        f'style="fill:{mixed(color, percent)}"/>'
    )


@picture
def ring():
    """The ring of buffers, and the parities that a tile's number gives."""
    x, y, inner, outer = 92, 104, 42, 80
    tiles = 2 * STAGES  # then all parities are as they were
    first, pad = STAGES, 0.006  # the tile that is filled where nothing moves

    def sector(tile, color, percent):
        return _sector(
            x,
            y,
            inner,
            outer,
            tile % STAGES / STAGES + pad,
            (tile % STAGES + 1) / STAGES - pad,
            color,
            percent,
        )

    def middle(buffer, radius):
        angle = 2 * math.pi * (buffer + 0.5) / STAGES - math.pi / 2
        return x + radius * math.cos(angle), y + radius * math.sin(angle)

    origin = f"transform-origin:{x}px {y}px"
    turns = {
        100 * i / tiles: f"{origin};transform:rotate({360 * i / STAGES:g}deg)" for i in range(tiles)
    }
    now = [sector(first, K, 38), sector(first - 1, K, 85)]
    drawn = [sector(buffer, K, 10) for buffer in range(STAGES)]
    drawn.append(motion("am-ring", turns | {100: turns[0]}, 2 * tiles, now, "step-end"))
    for buffer in range(STAGES):
        at, foot = middle(buffer, (inner + outer) / 2)
        drawn.append(words(at, foot + 4, str(buffer), 13, 600))
    drawn += [
        words(x, y, "buffers", 10.5, color=MUTED),
        words(x, y + 14, "n mod 3" if STAGES == 3 else "", 10.5, color=MUTED),
    ]
    left, top, tall = 206, 30, 22
    drawn += [
        words(left + 12, 14, "tile", 10.5, color=MUTED),
        words(left + 58, 14, "buffer", 10.5, color=MUTED),
        words(left + 110, 14, "parity", 10.5, color=MUTED),
    ]
    for tile in range(tiles):
        foot = top + tile * tall + 15
        drawn += [
            words(left + 12, foot, str(tile), 11.5, 600),
            words(left + 58, foot, str(tile % STAGES), 11.5),
            words(left + 110, foot, str(tile // STAGES & 1), 11.5),
        ]

    def marks(tile, name, color, percent):
        """The row of a tile, moved on with every turn."""
        moves = {
            100 * i / tiles: f"transform:translateY({((tile + i) % tiles - tile) * tall}px)"
            for i in range(tiles)
        }
        mark = [
            f'<rect x="{left - 8}" y="{top + tile * tall}" width="142" height="{tall - 2}" rx="3" '
            f'style="fill:{mixed(color, percent)}"/>'
        ]
        return motion(name, moves | {100: moves[0]}, 2 * tiles, mark, "step-end")

    drawn.insert(0, marks(first, "am-filled", K, 38) + marks(first - 1, "am-read", K, 85))
    foot = top + tiles * tall + 26
    drawn += [
        box(0, foot, 11, 11, K, 38, 1),
        words(16, foot + 9.5, "filled by TMA", 10.5, anchor="start"),
        box(112, foot, 11, 11, K, 85, 1),
        words(128, foot + 9.5, "read by the consumers", 10.5, anchor="start"),
        box(262, foot, 11, 11, K, 10, 1),
        words(278, foot + 9.5, "empty", 10.5, anchor="start"),
    ]
    about = (
        f"A ring of {STAGES} buffers. While tile {first} is filled, tile {first - 1} is read. "
        f"Tile n goes through buffer n mod {STAGES}; its parity is n div {STAGES} mod 2."
    )
    return Picture(
        sees="A tile's number says which buffer it uses and which parity to wait for.",
        caption=f"Tile n goes through buffer n mod {STAGES}, with parity n div {STAGES} mod 2. "
        "Consumers wait for that parity of *full*, the producer for the opposite parity of "
        "*empty*.",
        svg=svg(PHONE, foot + 18, about, drawn),
    )


def holder(row, column):
    """The warp and the lane that hold an element of a wgmma accumulator, as the PTX manual says."""
    return row // 16, row % 8 * 4 + column % 8 // 2


@picture
def fragment():
    """Which thread holds which scores of a 64 × N tile."""
    mine = 5  # the lane whose scores are framed
    warps = Grid(0, 58, 4, 1, 44, 62, 2)
    grid = Grid(76, 58, 16, 8, 25, 15.4)
    rows = Grid(PHONE - 40, 58, 16, 1, 40, 15.4)
    drawn = [
        words(22, 50, "64 rows", 10.5, color=MUTED),
        words(grid.x + grid.across / 2, 14, "the 16 rows of warp 0, first 8 columns:", 11, 600),
        words(grid.x + grid.across / 2, 30, "the lane that holds each score", 10.5, color=MUTED),
        cells(warps, lambda row, column: (SCORES, STRONG if row == 0 else PALE)),
        numbers(warps, lambda row, column: f"warp {row}", 10.5),
        line(f"M46 58L{grid.x - 4} 58M46 119L{grid.x - 4} {grid.y + grid.down:g}", LINES),
        cells(grid, lambda row, column: (QUAD[holder(row, column)[1] % 4], 32)),
        numbers(grid, lambda row, column: str(holder(row, column)[1]), 10),
        *(words(grid.middle(0, c)[0], 50, str(c), 10, color=MUTED) for c in range(8)),
        cells(rows, lambda row, column: (REGISTERS, 40)),
        numbers(rows, lambda row, column: f"row {row}", 10),
        words(PHONE - 20, 50, "Slice", 10.5, 600),
    ]
    for row in range(16):
        for column in range(0, 8, 2):
            if holder(row, column) == (0, mine):
                x, y = grid.corner(row, column)
                drawn.append(frame(x - 1, y - 1, 2 * grid.wide + 1, grid.tall + 1, INK, 2))
    foot = grid.y + grid.down
    drawn += [
        bracket(grid.x, foot + 6, grid.across, "repeats every 8 columns of the tile"),
        words(
            PHONE,
            foot + 42,
            "SliceLayout(1, …): one number a row, held by its four lanes",
            10.5,
            anchor="end",
        ),
    ]
    about = (
        "A warp holds 16 of 64 rows. In its first eight columns, lane 4 r + c holds two "
        f"neighboring scores of row r and of row r + 8: lane {mine} those of rows {mine // 4} and "
        f"{mine // 4 + 8}, columns {mine % 4 * 2} and {mine % 4 * 2 + 1}."
    )
    return Picture(
        sees="Four neighboring lanes share a row.",
        caption=f"Framed: what lane {mine} holds of these eight columns, two pairs of scores in "
        "two rows; the same again in every further eight. So a row's maximum takes each lane's own "
        "scores first, then two exchanges among four lanes. What comes out, one number a row, has "
        "the `SliceLayout` of the scores: the columns are gone and the four lanes hold copies.",
        svg=svg(PHONE, foot + 50, about, drawn),
    )


def chunk_at(row, chunk, swizzled):
    """Where in its row of shared memory a chunk of 16 bytes lies."""
    return chunk ^ row % (ROW // CHUNK) if swizzled else chunk


def conflicts(chunk, swizzled):
    """How many of eight rows' reads of a chunk want the same bank at most: turns they need."""
    wanted = [0] * BANKS
    for row in range(8):
        first = (row * ROW + chunk_at(row, chunk, swizzled) * CHUNK) // BANK
        for bank in range(first, first + CHUNK // BANK):
            wanted[bank % BANKS] += 1
    return max(wanted)


@picture
def swizzle():
    """A tile in shared memory without and with the 128-byte swizzle, and its bank conflicts."""
    wanted, chunks, side = 2, ROW // CHUNK, 18
    drawn = []
    for x, swizzled, name in (
        (0, False, "not swizzled"),
        (PHONE - chunks * side + 1, True, "swizzled"),
    ):
        grid = Grid(x, 40, 8, chunks, side, side)

        def logical(row, place, swizzled=swizzled):
            return chunk_at(row, place, swizzled)  # the swizzle is its own inverse

        drawn += [
            words(x, 14, name, 12, 600, anchor="start"),
            words(x, 32, "banks 0 to 31 →", 10.5, color=MUTED, anchor="start"),
            cells(
                grid,
                lambda row, place, of=logical: (K, 80) if of(row, place) == wanted else (K, 14),
            ),
            numbers(grid, lambda row, place, of=logical: str(of(row, place)), 10),
        ]
        turns = conflicts(wanted, swizzled)
        foot = grid.y + grid.down
        drawn += [
            words(x, foot + 20, f"chunk {wanted} of eight rows:", 10.5, anchor="start"),
            words(x, foot + 36, f"{turns} turn{'s' * (turns > 1)}", 13, 600, anchor="start"),
        ]
    about = (
        f"Eight rows of {ROW} bytes, in chunks of {CHUNK}. Not swizzled, chunk {wanted} of all "
        f"rows lies in the same four banks: {conflicts(wanted, False)} turns. Swizzled it lies in "
        f"different ones: {conflicts(wanted, True)} turn."
    )
    return Picture(
        sees="The swizzle spreads a column over all banks.",
        caption=f"A row is {ROW} bytes wide, as wide as all {BANKS} banks, and each cell is a "
        f"chunk of {CHUNK} bytes with its number. Unswizzled, reading the same chunk of eight "
        "rows hits the same four banks eight times. The swizzle stores chunk c of row r at place "
        "c xor (r mod 8), so the same eight chunks lie in different banks and come at once.",
        svg=svg(PHONE, 40 + 8 * side + 42, about, drawn),
    )


@picture
def registers():
    """The registers of a multiprocessor: who has them, and what a consumer's thread holds."""
    scale = PHONE / 65_536  # of a bar as wide as the picture
    drawn, y = [], 0
    for consumers, (computes, loads) in GIVEN.items():
        shares = {f"consumer {i}": computes for i in range(consumers)} | {"producer": loads}
        drawn.append(words(0, y + 12, f"{consumers} consumers", 12, 600, anchor="start"))
        x = 0.0
        for name, each in shares.items():
            wide = 128 * each * scale  # a warpgroup has 128 threads
            color = PRODUCER if name == "producer" else CONSUMERS[0]
            said = f"{each}" if wide < 60 else f"{name}: {each}"
            drawn.append(labeled(x, y + 20, wide, 28, color, said, 11))
            x += wide
        y += 66
    drawn.append(words(0, y + 12, "a consumer's thread holds", 12, 600, anchor="start"))
    for D, room in HELD_IN.items():
        holds = {"acc": D // 2, "scores": 64, "weights": 32}  # float32 but for the weights
        x, y = 0.0, y + 22
        drawn.append(words(0, y + 17, f"D {D}", 11, anchor="start"))
        for name, each in holds.items():
            wide = (PHONE - 46) * each / 240
            color = identity({"acc": "output"}.get(name, name)).color
            said = str(each) if wide < 60 else f"{name} {each}"
            drawn.append(labeled(46 + x, y, wide, 24, color, said, 10.5))
            x += wide
        edge = 46 + (PHONE - 46) * room / 240
        drawn.append(line(f"M{edge:g} {y - 3:g}v30", INK, 1.6))
        drawn.append(words(edge - 4, y + 16, f"of {room}", 10.5, 600, anchor="end"))
        y += 8
    about = (
        "Two bars of 65,536 registers. Two consumers of 240 per thread and a producer of 24; three "
        "of 160 and a producer of 24. A thread holds D / 2 numbers of the accumulator, 64 scores "
        "and 32 registers of weights: 128 at D 64, 160 at D 128."
    )
    return Picture(
        sees="Three consumers leave each thread 160 registers, which D 128 would fill.",
        caption="Registers per thread; each part of the bar is a warpgroup of 128 threads, and the "
        "producer's warp counts as one. Below, what a thread holds of a tile when the softmax runs "
        "under a product (the next section), before any address or sum, and the registers it has "
        "(the line).",
        svg=svg(PHONE, y + 20, about, drawn),
    )
