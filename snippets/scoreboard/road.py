"""The front page's road: every kernel on the same work is a stop of one slider (widgets/road.js).

A stop is a drawing of one program, the lines of code that change, and a time. All are HTML that
needs no script: one stop shows, and below it a table. Shapes that all stops share have a place
for each, `data-at`, so that they move from one to the next.
"""

import html
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from snippets._lab.draw.comparison import Against
from snippets._lab.draw.drawings import INK, LINES, MUTED, Key, keys, line, mixed, words
from snippets._lab.draw.identity import MEMORIES, TENSORS, identity
from snippets._lab.draw.rows import TIME, Gain, Quantity, Row
from snippets._lab.draw.tables import case
from snippets._lab.draw.units import between, decimals, measured_ratio, milliseconds, size
from snippets._lab.rooms import source_file

from .differences import colored

MS = Quantity("time", "ms_p50", milliseconds)  # in one unit, for times that differ this much


class Stop(NamedTuple):
    """A kernel's place on the slider."""

    told: str  # what its programs do; {memory} is what its call took at most
    code: str  # how lines begin: + that the kernel before has not, - that it alone has
    lanes: tuple[tuple[int, int], ...]  # rows of the scores that one program is at
    tile: tuple[int, int]  # and keys
    stored: bool = False  # whether memory holds all scores
    weighed: bool = False  # whether all scores are weights before the loop or kernel that is drawn
    ahead: int = 0  # keys by which the scores are ahead of the values

    @property
    def row(self) -> tuple[int, int]:
        """What the chip holds of a row beside the tile: all of it, or nothing."""
        return 0, N if self.weighed and not self.stored else 0

    @property
    def scored(self) -> tuple[int, int]:
        """The keys whose scores it holds."""
        return self.tile[0] + self.ahead, self.tile[1] + self.ahead

    @property
    def query(self) -> tuple[int, int]:
        """What it reads of a query: nothing once all scores are weights."""
        return -1 - D, -1 - D if self.weighed else -1


OPENS = "flash_attention"  # in the language that the page promises, with a way to both sides
STOPS = {
    "basic_attention": Stop(
        "A program takes one query. A loop over keys fills its row of scores; a second, "
        "drawn here, adds up values.",
        """
+q = tl.load(q_row
+for n in range(N)
+    k = tl.load(k_row
+    score = tl.sum(q * k
+    scores = tl.where(slots == n
+for n in range(N)
+    acc += weight * v""",
        ((6, 7),),
        (14, 15),
        weighed=True,
    ),
    "composed_attention": Stop(
        "Three kernels with tensor cores, the last drawn here: all scores go to memory and back, "
        "up to {memory}.",
        """
-score = tl.sum(q * k
-scores = tl.where(slots == n
-acc += weight * v
+scores = q.new_empty(
+_run_matmul(q, k_t
+_run_softmax(
+_run_matmul(weights""",
        ((4, 12),),
        (8, 16),
        stored=True,
        weighed=True,
    ),
    "tiled_attention": Stop(
        "One kernel: a running softmax needs one small tile of scores. "
        "Without tensor cores the time goes back up.",
        """
-_run_matmul(q, k_t
-_run_softmax(
-_run_matmul(weights
+scores = tl.sum(q[:, :, None] * k
+m_new =
+alpha =
+acc = acc * alpha
+acc += tl.sum(weights * values""",
        ((6, 8),),
        (12, 16),
    ),
    "flash_attention": Stop(
        "Tiled's loop with larger tiles; both products run on tensor cores, and exp is now exp2.",
        """
-scores = tl.sum(q[:, :, None] * k
+s = tl.dot(q_tile, k_tile.T
-p = tl.exp(
+p = tl.exp2(
+rounded = p.to(q_tile.dtype
-acc += tl.sum(weights * values
+acc = tl.dot(rounded, v_tile""",
        ((4, 10),),
        (8, 16),
    ),
    "hopper_attention": Stop(
        "In Gluon, one warp loads ahead; groups of four multiply one tile while they take the "
        "softmax of the next.",
        """
+_fill(k_desc
+_fill(v_desc
-s = tl.dot(q_tile, k_tile.T
+scores = _issue_qk(
-acc = tl.dot(rounded, v_tile
+acc = _issue_pv(p, state.acc
+s = warpgroup_mma_wait(1""",
        ((2, 8), (8, 14)),
        (8, 16),
        ahead=8,
    ),
}


# The code.


def lines_of(name: str) -> set[str]:
    """The code of a kernel's file without comments and indentation."""
    text = source_file(name).read_text("utf-8").splitlines()
    return {line.split("  #")[0].strip() for line in text}


def changed(name: str, begins: str, before: str) -> list[tuple[str, str]]:
    """Sign and line of what a kernel has and the one before has not, or the other way around.

    Raises ValueError for a line that is in both, or in neither.
    """
    mine, theirs = lines_of(name), lines_of(before) if before else set()
    found = []
    for sign, begin in ((x[0], x[1:]) for x in begins.strip("\n").splitlines()):
        among = mine - theirs if sign == "+" else theirs - mine
        there = {x for x in among if x.startswith(begin.strip())}
        if len(there) != 1:
            raise ValueError(f"{begin!r} begins {len(there)} lines for {sign} in {name}, not one")
        found.append((sign, begin[: -len(begin.lstrip())] + there.pop()))
    return found


def _code(name: str, before: str) -> str:
    kinds = {"+": ("added", "+"), "-": ("removed", "−")} if before else {"+": ("same", " ")}
    lines = [(*kinds[sign], code) for sign, code in changed(name, STOPS[name].code, before)]
    body = "".join(
        f'<span class="am-road-{kind}"><i>{sign}</i> {colored(code)}</span>'
        for kind, sign, code in lines
    )
    title = f"What changes from {before} to {name}" if before else f"The loop of {name}"
    code = f'<pre class="highlight" aria-label="{title}"><code>{body}</code></pre>'
    return f'<details class="am-change"><summary>In the code</summary>{code}</details>'


# The drawing: Q at the left, Kᵀ above and Vᵀ below the scores, what is computed at the right.

CELL, M, N, D = 11, 16, 24, 4
GAP = CELL  # between two matrices
LEFT, TOP = 4 + (D * CELL + GAP), 4 + (D * CELL + GAP)  # of the scores
RIGHT, BELOW = LEFT + N * CELL + GAP, TOP + M * CELL + GAP
WIDE, TALL = RIGHT + D * CELL + 4, BELOW + D * CELL + 34
PLATES = {  # tensor → x, y, columns, rows
    "q": (4, TOP, D, M),
    "k": (LEFT, 4, N, D),
    "v": (LEFT, BELOW, N, D),
    "output": (RIGHT, TOP, D, M),
}
NAMES = (
    ("Q", "q", 6, TOP - 7),
    ("Kᵀ", "k", LEFT - 26, 32),
    ("Vᵀ", "v", LEFT - 26, BELOW + 28),
    ("out", "output", RIGHT + 2, TOP - 7),
)
LEGEND = (
    Key(MUTED, 12, "in memory"),
    Key(MEMORIES["registers"], 16, "on chip"),
    Key(TENSORS["scores"], 100, "scores"),
    Key(TENSORS["weights"], 100, "weights"),
    Key(TENSORS["weights"], 30, "done"),
)
MARKS = "one program at work; a square is a number"  # where no stop has a lane
ABOUT = (
    "One program of each kernel: its queries at the left, the keys and values that it is at above "
    "and below, the scores or weights that it holds, and what it has collected."
)
Matrix = list[list[float]]
Place = tuple[float, float, float, float]


def _example() -> dict[str, Matrix]:
    """One small attention: its tensors, drawn at random, with the scores and weights of them."""
    draw = random.Random(7)
    q, k, v = ([[draw.gauss(0, 1) for _ in range(D)] for _ in range(rows)] for rows in (M, N, N))
    scores = [[sum(map(math.prod, zip(a, b, strict=True))) / D**0.5 for b in k] for a in q]
    weights = [[math.exp(s) / sum(map(math.exp, row)) for s in row] for row in scores]
    values = [list(column) for column in zip(*v, strict=True)]
    output = [[sum(map(math.prod, zip(w, c, strict=True))) for c in values] for w in weights]
    turned = {"k": [list(c) for c in zip(*k, strict=True)], "v": values}
    return {"q": q, **turned, "scores": scores, "weights": weights, "output": output}


def _marks(tensor: str, matrix: Matrix, x: int, y: int, rows: range, columns: range) -> str:
    """Numbers as squares whose area is their size; those of negative numbers are hollow."""
    most = max(abs(number) for row in matrix for number in row)
    paths: dict[bool, list[str]] = {True: [], False: []}
    last = {True: (0, 0), False: (0, 0)}
    for r in rows:
        for c in columns:
            # Odd, so that all lies on whole pixels; and from mark to mark, which packs well.
            side = 2 * round(math.sqrt(abs(matrix[r][c]) / most) * (CELL - 3) / 2) + 1
            at = x + c * CELL + (CELL - side) // 2, y + r * CELL + (CELL - side) // 2
            positive = matrix[r][c] >= 0
            step = [here - before for here, before in zip(at, last[positive], strict=True)]
            paths[positive].append(f"m{step[0]} {step[1]}h{side}v{side}h-{side}z")
            last[positive] = at
    color = TENSORS[tensor]
    return (
        f'<path fill="{color}" d="{"".join(paths[True])}"/>'
        f'<path fill="none" stroke="{color}" d="{"".join(paths[False])}"/>'
    )


def _moved(cells: Callable[..., Place], color: str, fill: str, which: int = 0) -> str:
    """A box around cells at each stop: rows and columns from the first score, in turn from and to.

    `cells` gets the stop, the rows of its first or last lane, and its keys.
    """
    places = []
    for stop in STOPS.values():
        top, bottom, left, right = cells(stop, *stop.lanes[which], *stop.tile)
        across, down = (right - left) * CELL, (bottom - top) * CELL
        place = LEFT + left * CELL - 1, TOP + top * CELL - 1, across and across + 2, down + 2
        places.append(" ".join(f"{number:g}" for number in place))
    x, y, wide, tall = places[list(STOPS).index(OPENS)].split()
    return (
        f'<rect data-at="{";".join(places)}" x="{x}" y="{y}" width="{wide}" height="{tall}" '
        f'rx="3" style="fill:{fill};stroke:{color};stroke-width:1.5"/>'
    )


def _plate(x: float, y: float, columns: int, rows: int, look: str) -> str:
    return (
        f'<rect x="{x - 2}" y="{y - 2}" width="{columns * CELL + 4}" '
        f'height="{rows * CELL + 4}" rx="4" {look}/>'
    )


def drawing() -> str:
    """One program of each kernel at work, a stop on top of the other; one shows."""
    tensors, chip, hbm = _example(), MEMORIES["registers"], MEMORIES["HBM"]

    def marks(tensor: str, rows: range, columns: range) -> str:
        x, y, *_ = PLATES.get(tensor, (LEFT, TOP))
        return _marks(tensor, tensors[tensor], x, y, rows, columns)

    ground = [_plate(LEFT, TOP, N, M, f'fill="none" stroke="{LINES}" stroke-dasharray="2 4"')]
    for tensor, (x, y, columns, rows) in PLATES.items():
        ground.append(_plate(x, y, columns, rows, f'style="fill:{mixed(TENSORS[tensor], 12)}"'))
        if tensor != "output":
            ground.append(marks(tensor, range(rows), range(columns)))
    for said, tensor, x, y in NAMES:
        ground.append(words(x, y, said, 14, 700, color=TENSORS[tensor], anchor="start"))
    ground.append(words(LEFT + N * CELL / 2, TOP + (M - 0.5) * CELL, MARKS, 13, color=MUTED))
    lanes, tiles, on_chip = [], [], (chip, mixed(chip, 16))
    read = {t: (TENSORS[t], f"color-mix(in srgb,{TENSORS[t]} 30%,transparent)") for t in "qkv"}
    for which in (0, -1):
        lanes += [
            _moved(lambda s, a, b, c, d: (a, b, *s.row), *on_chip, which),
            _moved(lambda s, a, b, c, d: (a, b, N + 1, N + 1 + D), *on_chip, which),
        ]
        tiles += [
            _moved(lambda s, *cells: cells, *on_chip, which),
            _moved(lambda s, a, b, *_: (a, b, *s.scored), *on_chip, which),
        ]
    lanes.append(_moved(lambda s, *_: (s.lanes[0][0], s.lanes[-1][1], *s.query), *read["q"]))
    tiles += [
        _moved(
            lambda s, a, b, c, d: (-1 - D, -1, *((c, c) if s.weighed else s.scored)), *read["k"]
        ),
        _moved(lambda s, a, b, c, d: (M + 1, M + 1 + D, c, d), *read["v"]),
    ]
    stored, kept, held = [], [], []
    for stop in STOPS.values():
        rows = [range(*lane) for lane in stop.lanes]
        before, here = range(stop.tile[0]), range(*stop.tile)
        plate = _plate(LEFT, TOP, N, M, f'stroke="{hbm}" style="fill:{mixed(hbm, 14)}"')
        stored.append(plate + marks("weights", range(M), range(N)) if stop.stored else "")
        there = [before, range(stop.tile[1], N)] if stop.weighed else [before]
        had = [marks("output", r, range(D)) for r in rows]
        if not stop.stored:
            past = "".join(marks("weights", r, some) for r in rows for some in there)
            had.append(past if stop.weighed else f'<g opacity="0.3">{past}</g>')
        legend = LEGEND[3:4] if stop.weighed else (LEGEND[2], *LEGEND[4:] * bool(before))
        legend = (*LEGEND[:2], *(LEGEND[2:] if stop.ahead else legend))
        kept.append("".join(had) + keys(6, TALL - 15, WIDE, legend, 13))
        seen = {"weights" if stop.weighed or stop.ahead else "scores": here}
        if stop.ahead:
            seen["scores"] = range(*stop.scored)
        held.append("".join(marks(what, r, keys_) for what, keys_ in seen.items() for r in rows))
    return (
        f'<svg viewBox="0 0 {WIDE} {TALL}" role="img" aria-label="{ABOUT}">{"".join(ground)}'
        f"{_each(stored)}{''.join(lanes)}{_each(kept)}"
        f'<g data-part="moving" data-first="{LEFT - 1}">{"".join(tiles)}{_each(held)}</g></svg>'
    )


def _each(drawn: Sequence[str]) -> str:
    """What each stop alone shows."""
    return "".join(
        f'<g class="am-at{" am-now" * (name == OPENS)}" data-stop="{index}">{parts}</g>'
        for index, (name, parts) in enumerate(zip(STOPS, drawn, strict=True))
        if parts
    )


# The clock: a dot on powers of ten, and a bar from zero, where the last kernels are a hairline.

FROM_MS = 0.01  # where the powers of ten begin


def _percent(ms: float, longest: float) -> str:
    return f"{100 * math.log(ms / FROM_MS) / math.log(longest / FROM_MS):.4g}%"


def scales(rows: Sequence[Row], others: Sequence[Row], share: str) -> str:
    """A dot and a bar where the page's style says, among the times of each stop and the others.

    `share` is what the bar from zero shows.
    """
    longest = max(map(TIME, rows))
    marks = [
        f'<i style="left:{_percent(ms, longest)}">{ms:g}{" ms" * (ms == 100)}</i>'
        for ms in (FROM_MS, 0.1, 1, 10, 100)
    ]
    told = []
    for row in (*rows, *others):
        look, place = identity(row["implementation"]), f"left:{_percent(TIME(row), longest)}"
        told.append(f"{look.name}, {MS.text(row)}")
        marks.append(
            f'<em style="{place};--am-hue:{look.color}">{told[-1]}</em>'
            if row in others
            else f'<b style="{place}"></b>'
        )
    return (
        '<div class="am-log" role="img" aria-label="Times, on a logarithmic scale: '
        f'{"; ".join(told)}.">{"".join(marks)}</div>'
        '<div class="am-linear">linear scale<i></i>'
        f'<span data-part="share">{share}</span></div>'
    )


def _short(row: Row) -> str:
    """A kernel's name without what all of them end in."""
    return str(row["implementation"]).removesuffix("_attention")


def _share(row: Row, rows: Sequence[Row]) -> str:
    """What a bar from zero shows of the longest time."""
    most = max(rows, key=TIME)
    part = measured_ratio(TIME(most) / TIME(row)).removesuffix("×")
    return ("" if row is most else f"1/{part} of ") + MS.text(most)


ACROSS = 284  # pixels of a drawing


def ratios(beside: Mapping[str, Against]) -> str:
    """How many times as fast ours is as each of some others: a dot for each case that was timed."""
    every = [gain for gains in beside.values() for gain in gains.values()]
    low, high = min([0.9, *every]), max([1.2, *every])

    def across(gain: float) -> float:
        return 14 + (ACROSS - 24) * (gain - low) / (high - low)

    drawings = []
    for said, gains in beside.items():
        verdict = _verdict([*gains.values()])
        drawn = [
            words(2, 14, said, 13, anchor="start"),
            words(ACROSS + 2, 14, verdict, 13, 600, anchor="end"),
            line(f"M2 32H{ACROSS + 2}", "var(--am-rule)"),
            line(f"M{across(1):.1f} 22v20", INK, 1.4),
        ]
        for at, gain in gains.items():
            fill = FOUND.get(gain.word, "var(--am-paper)")
            edge = FOUND.get(gain.word, INK)
            drawn.append(
                f'<circle cx="{across(gain):.1f}" cy="32" r="4.5" '
                f'style="fill:{fill};stroke:{edge}"><title>{case(at)}: {decimals(gain, 2)}×</title>'
                "</circle>"
            )
        for tick in (0.9, 1.0, 1.1, 1.2):
            drawn.append(words(across(tick), 57, f"{decimals(tick, 1)}×", 13, color=MUTED))
        drawings.append(
            f'<svg viewBox="0 0 {ACROSS + 4} 62" role="img" '
            f'aria-label="{html.escape(f"{said}: {verdict}")}.">{"".join(drawn)}</svg>'
        )
    return "".join(drawings)


def _verdict(gains: Sequence[Gain]) -> str:
    """How often ours is ahead and behind; without verdicts, the rates."""
    verdicts = [gain.word for gain in gains]
    if not any(verdicts):
        return f"{between(gains)}×"
    return f"{verdicts.count('ahead')} ahead, {verdicts.count('behind')} behind"


FOUND = {"ahead": "var(--am-good)", "behind": "var(--am-warn)", "": MUTED}  # the rest is hollow


def player(
    rows: Sequence[Row],
    others: Sequence[Row],
    times: Sequence[str],
    beside: Mapping[str, Against],
    verdict: str,
    note: str,
    summary: Sequence[str],
) -> str:
    """All of it: the stops' names, the drawing, the code, the clock, and the table.

    `times` says how much of SDPA's time each one takes, `beside` how the last one compares with
    others, whose names are its keys, `verdict` what that comes to, and `note` how to read it.
    """
    labels, told = [], []
    for before, row, of_sdpa in zip([None, *rows[:-1]], rows, times, strict=True):
        name, now = row["implementation"], " am-now" * (row["implementation"] == OPENS)
        time, first, most = MS.text(row), rows[0], max(map(TIME, rows))
        style = f"--am-length:{_percent(TIME(row), most)};"
        style += f"--am-part:{100 * TIME(row) / most:.3g}%"
        gain = measured_ratio(TIME(first) / TIME(row))
        said = (
            f"{gain} as fast as {_short(first)}, at {of_sdpa} SDPA's time"
            if before
            else "where we begin"
        )
        share = _share(row, rows)
        if now:
            shown = (style, time, said, share)
        labels.append(
            f'<li class="{now.strip()}" data-post="{name}" data-said="{time}" data-gain="{said}" '
            f'data-share="{share}" style="{style}"><b>{_short(row)}</b> {time}</li>'
        )
        words_ = STOPS[name].told.format(memory=size(row["bytes_peak"]))
        code = _code(name, before["implementation"] if before else "")
        told += [
            f'<div class="am-stop{now}" data-kernel="{name}" markdown>',
            "",
            f"**{name}** {html.escape(words_, quote=False)} "
            f'[Read the post](/posts/{name}.md){{ aria-label="Read the post on {name}" }}',
            "",
            code,
            "</div>",
        ]
    style, time, said, share = shown
    return "\n".join(
        [
            f'<div class="am-way" data-widget="road" style="{style}" markdown>',
            f'<ol class="am-stops">{"".join(labels)}</ol>',
            f'<div class="am-program">{drawing()}</div>',
            f'<div class="am-clock"><p><b data-part="time">{time}</b> '
            f'<span data-part="gain">{said}</span></p>'
            f"{scales(rows, others, share)}</div>",
            '<div class="am-told" markdown>',
            *told,
            "</div>",
            '<details class="am-change" markdown><summary>With the GPU full'
            '</summary><div class="am-beside" markdown>',
            "",
            f"**{verdict}**",
            "",
            f"{note} [Every\u00a0case](/posts/hopper_attention.md#clock)",
            "",
            f"<div>{ratios(beside)}</div>\n</div></details>",
            '<div class="am-stops-table" markdown>',
            "",
            *summary,
            "",
            "</div>",
            "</div>",
        ]
    )
