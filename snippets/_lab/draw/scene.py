"""The kernel at work (scene.js): what a figure gives it, its picture without a script, its table.

The picture is the one that the stage draws, at the moment when a tile has been added: where things
stand is said here and in layout.js, and a test in a browser lays one over the other.
"""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snippets._lab.draw.drawings import INK, MUTED
from snippets._lab.draw.identity import MEMORIES, TENSORS
from snippets._lab.draw.tables import table
from snippets._lab.draw.units import decimals

FILE = "scene_steps.json"
LAUNCHES = "scene_launches.json"  # for a reader's own text of the kernel
SHARED = ("listing",)  # of all examples of a kernel

EDGE, STRIP, BAND = 0.7, 4.6, 0.8  # of layout.js and stage.js, in cells
COLLECTED = 2.1
CELL = 20  # pixels of a cell in a picture without a script
Rows = Sequence[Mapping[str, Any]]
Grid = Sequence[Sequence[float]]


def scene(
    room: str, rows: Rows, inner: str, through: str, about: str, hero: bool = False
) -> dict[str, Any]:
    """`widget`, `extra_files`, `table` and `pieces` of a Figure.

    Args:
        room: the kernel's.
        rows: each names its `example`; the last of an example is of the whole program.
        inner: what the rows before it are: "tiles" or "keys".
        through: where a tile goes from HBM: "registers", or "shared memory" on the way there.
        about: the picture in words.
        hero: also make the piece that the front page shows.
    """
    examples: list[dict[str, Any]] = []
    for name in dict.fromkeys(row["example"] for row in rows):
        *parts, whole = (_without(row, "example") for row in rows if row["example"] == name)
        told = _without(whole, *SHARED, "launch")
        examples.append({"name": name, "through": through, **told, inner: parts})
    source = f"snippets/{room}/kernel.py"
    data = {"source": source, "listing": rows[-1]["listing"], "examples": examples}
    launches = {row["example"]: row["launch"] for row in rows if "launch" in row}
    summary = list(_summary(examples))
    first = [_without(r, "example", "query") for r in summary if _is_first(r, summary[0])]
    poster = _poster(examples[0], about)
    link = f"[The recorded steps](/figures/{room}/{FILE}){{ .am-source }}"
    widget = [
        '<div class="am-scene" data-widget="scene" markdown>',
        poster,
        "",
        f"{link} (of one query), and [their launch](/figures/{room}/{LAUNCHES}):",
        "",
        *table(first),
        "",
        "</div>",
    ]
    alone = [
        '<div class="am-scene am-scene-hero" data-widget="scene" markdown>',
        poster,
        "",
        link,
        "",
        "</div>",
    ]
    return {
        "widget": "\n".join(widget),
        "extra_files": {FILE: data, LAUNCHES: launches},
        "table": summary,
        "pieces": {"hero": "\n".join(alone)} if hero else {},
    }


def roles_scene(room: str, rows: Rows, svg: str) -> dict[str, Any]:
    """The same of a kernel whose parts work side by side, from rows of its simulation.

    `svg` is the picture that stands there without a script.
    """
    *events, whole = rows
    kinds = {"spans": "part", "stays": "stays", "sends": "sent_to", "fetches": "fetched"}
    found = {kind: [r for r in events if field in r] for kind, field in kinds.items()}
    example = {"name": "full", **_without(whole, *SHARED), **found}
    source = f"snippets/{room}/kernel.py"
    data = {"source": source, "listing": whole["listing"], "examples": [example]}
    widget = [
        '<div class="am-scene" data-widget="scene" markdown>',
        f'<div class="am-scene-poster">{svg}</div>',
        "",
        f"[The recorded steps](/figures/{room}/{FILE}){{ .am-source }}",
        "",
        "</div>",
    ]
    table_ = [
        {"who": span["part"], "what": span["kind"], "tile": span["tile"]}
        | {"from": span["start"], "to": span["end"]}
        for span in found["spans"]
    ]
    return {"widget": "\n".join(widget), "extra_files": {FILE: data}, "table": table_}


def _without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in names}


def _is_first(row: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    return all(row[key] == first[key] for key in ("example", "query"))


def _summary(examples: Rows) -> Iterator[dict[str, Any]]:
    for e in examples:
        for n, key in enumerate(e.get("keys", ()) if "query" in e else ()):
            known = {"key": n, "query": e["query"], "score": key["score"], "weight": key["weight"]}
            yield {"example": e["name"], **known, **_columns(key["acc"])}
        for tile in e.get("tiles", ()):
            end = min(tile["start"] + e["tile"], e["keys"])
            for query in range(e["queries"]):
                yield {
                    "example": e["name"],
                    "keys": _range(tile["start"], end),
                    "query": query,
                    **{said: tile[name][query] for name, said in NAMES.items()},
                    **_columns(tile["acc"][query]),
                }


NAMES = {"m": "m", "alpha": "α", "l": "l"}


def _columns(acc: Sequence[float]) -> dict[str, float]:
    return {f"acc {d}": x for d, x in enumerate(acc)}


def _range(start: int, stop: int) -> str:
    return f"{start} to {stop - 1}" if stop - start > 1 else str(start)


class _Pen:
    """Boxes and words whose places are in cells."""

    def __init__(self) -> None:
        self.drawn: list[str] = []
        self.marks: dict[tuple[str, bool], list[str]] = {}  # color, whether filled → squares

    def box(
        self, x: float, y: float, wide: float, tall: float, fill: str = "none", **look: object
    ) -> None:
        numbers = (f"{CELL * value:.4g}" for value in (x, y, wide, tall))
        place = " ".join(
            f'{name}="{n}"' for name, n in zip(("x", "y", "width", "height"), numbers, strict=True)
        )
        more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in look.items())
        self.drawn.append(f'<rect {place} rx="3" style="fill:{fill}"{more}/>')

    def mark(self, x: float, y: float, share: float, color: str) -> None:
        """A number as a square, hollow where it is negative; as in canvas.js."""
        side = 0.9 * min(1.0, abs(share)) ** 0.5
        if side < 0.06:
            return
        left, top, long = (
            f"{CELL * value:.4g}" for value in (x + 0.5 - side / 2, y + 0.5 - side / 2, side)
        )
        self.marks.setdefault((color, share > 0), []).append(
            f"M{left} {top}h{long}v{long}h-{long}z"
        )

    def grid(self, x: float, y: float, rows: Grid, color: str) -> None:
        """A matrix, its largest number as large as a cell allows."""
        most = _largest(rows)
        for r, numbers in enumerate(rows):
            for d, number in enumerate(numbers):
                self.mark(x + d, y + r, number / most, color)

    def flush(self) -> None:
        """Draw the squares: one path for all of a look."""
        for (color, filled), squares in self.marks.items():
            look = f'fill="{color}"' if filled else f'fill="none" stroke="{color}"'
            self.drawn.append(f'<path {look} stroke-width="1.4" d="{"".join(squares)}"/>')
        self.marks = {}

    def words(self, x: float, y: float, said: str, color: str = INK, **look: object) -> None:
        more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in look.items())
        place = f'x="{CELL * x:.4g}" y="{CELL * y:.4g}"'
        self.drawn.append(
            f'<text {place} dominant-baseline="central" style="fill:{color}"{more}>'
            f"{html.escape(said, quote=False)}</text>"
        )

    def centered(self, x: float, y: float, said: str, color: str = INK, **look: object) -> None:
        self.words(x, y, said, color, text_anchor="middle", **look)


@dataclass(frozen=True)
class _Places:
    """Where things stand, in cells: as layout.js says."""

    M: int
    N: int
    D: int
    first: int  # query of the program
    rows: int  # queries of it

    qx = EDGE + 0.6
    ky = 1.7

    @property
    def sx(self) -> float:
        return self.qx + self.D + 1.7

    @property
    def mx(self) -> float:
        return self.sx + self.N + 0.8

    @property
    def ax(self) -> float:
        return self.mx + 2 * (COLLECTED + 0.15) + 0.35

    @property
    def sy(self) -> float:
        return self.ky + self.D + 1.5

    @property
    def vy(self) -> float:
        return self.sy + self.M + 1.6

    @property
    def my(self) -> float:
        return self.vy + self.D + 1.1

    @property
    def top(self) -> float:
        return self.sy + self.first

    @property
    def wide(self) -> float:
        return self.ax + self.D + EDGE

    @property
    def tall(self) -> float:
        return self.my + STRIP + 0.3


@dataclass(frozen=True)
class _Moment:
    """What a program has when it has added a tile of keys, or a key."""

    start: int
    width: int
    weights: Grid  # [rows][N], those of all keys so far
    acc: Grid
    collected: Sequence[Sequence[float]]  # m and l of each row; none of a kernel without them

    @classmethod
    def of(cls, example: Mapping[str, Any]) -> "_Moment":
        if "query" in example:
            n = len(example["keys"]) // 2
            weights = [[key["weight"] for key in example["keys"]]]
            return cls(n, 1, weights, [example["keys"][n]["acc"]], ())
        tile = example["tiles"][1]
        weights = [
            [share * total for share in shares]
            for shares, total in zip(tile["share"], tile["l"], strict=True)
        ]
        m_and_l = (tile["m"], tile["l"])
        return cls(tile["start"], example["tile"], weights, tile["acc"], m_and_l)


def _poster(example: Mapping[str, Any], about: str) -> str:
    """The stage at that moment, as an SVG in one line."""
    q = [example["q"]] if "query" in example else example["q"]
    size = {"M": example["all_queries"], "N": len(example["k"]), "D": len(example["k"][0])}
    at = _Places(**size, first=example.get("query", 0), rows=len(q))
    pen = _Pen()
    _in_memory(pen, at, q, example["k"], example["v"])
    _on_chip(pen, at, _Moment.of(example))
    _memories(pen, at, example["through"])
    about = html.escape(about, quote=True)
    return (
        f'<svg class="am-scene-poster" viewBox="0 0 {at.wide * CELL:g} {at.tall * CELL:g}" '
        f'role="img" aria-label="{about}" style="--am-ratio:{at.wide / at.tall:.4f}">'
        + "".join(pen.drawn)
        + "</svg>"
    )


def _in_memory(pen: _Pen, at: _Places, q: Grid, k: Grid, v: Grid) -> None:
    """The matrices at the edge, and the one that is never stored."""
    for x, y, across, down, name, said in (
        (at.qx, at.sy, at.D, at.M, "q", "Q"),
        (at.sx, at.ky, at.N, at.D, "k", "Kᵀ"),
        (at.sx, at.vy, at.N, at.D, "v", "Vᵀ"),
        (at.ax, at.sy, at.D, at.M, "output", "out"),
    ):
        pen.box(x - 0.25, y - 0.25, across + 0.5, down + 0.5, TENSORS[name], opacity=0.1)
        pen.words(x - 0.1, y - 0.75, said, TENSORS[name], font_size=14, font_weight=700)
    pen.grid(at.sx, at.ky, _transposed(k), TENSORS["k"])
    pen.grid(at.sx, at.vy, _transposed(v), TENSORS["v"])
    pen.grid(at.qx, at.top, q, TENSORS["q"])
    pen.flush()
    pen.box(at.sx, at.sy, at.N, at.M, stroke="var(--am-axis)", stroke_dasharray="2 4")
    if at.first + at.rows < at.M:
        pen.centered(at.sx + at.N / 2, at.sy + at.M - 0.5, "scores: M × N, never stored", MUTED)


def _on_chip(pen: _Pen, at: _Places, now: _Moment) -> None:
    """The lane of the program: its queries, the tile, what is collected."""
    left, top, rows = at.sx - 1.25, at.top, at.rows
    chip = MEMORIES["registers"]
    lane = (left, top - 0.12, at.wide - 0.2 - left, rows + 0.24)
    pen.box(*lane, "var(--am-paper)")
    pen.box(*lane, f"color-mix(in srgb,{chip} 10%,transparent)", stroke=chip, stroke_width=1.2)
    pen.grid(at.sx, top, now.weights, TENSORS["weights"])
    x = at.sx + now.start
    pen.box(x - 0.06, top - 0.06, now.width + 0.12, rows + 0.12, stroke=INK, stroke_width=1.5)
    for name, left, over, wide, tall in (
        ("q", at.sx - 1.05, top, BAND, rows),
        ("k", x, top - BAND - 0.16, now.width, BAND),
        ("v", x, top + rows + 0.16, now.width, BAND),
    ):
        pen.box(left, over, wide, tall, TENSORS[name])
        if rows > 1:
            light = {"font_size": 11, "font_weight": 700}
            pen.centered(left + wide / 2, over + tall / 2, name, "var(--am-paper)", **light)
    for i, name in enumerate("ml"):
        x = at.mx + i * (COLLECTED + 0.15)
        pen.centered(x + COLLECTED / 2, top - 0.75, name, MUTED, font_weight=700)
        for r in range(rows):
            pen.box(x, top + r + 0.08, COLLECTED, 0.84, "var(--am-raised)")
            if now.collected:
                said = decimals(now.collected[i][r], 2)
                pen.centered(x + COLLECTED / 2, top + r + 0.52, said, font_size=11)
    for r in range(rows):
        pen.box(at.ax - 0.08, top + r + 0.02, at.D + 0.16, 0.96, "var(--am-raised)")
    pen.grid(at.ax, top, now.acc, TENSORS["v"])
    pen.flush()


def _memories(pen: _Pen, at: _Places, through: str) -> None:
    inner = at.wide - 2 * EDGE
    for name, left, share in (
        ("HBM", 0, 0.27),
        ("shared memory", 0.38, 0.24),
        ("registers", 0.73, 0.27),
    ):
        passed = name == "shared memory" and through != name
        look = {"stroke_dasharray": "3 3"} if passed else {}
        fill = f"color-mix(in srgb,{MEMORIES[name]} {4 if passed else 13}%,transparent)"
        x, across = EDGE + inner * left, inner * share
        pen.box(x, at.my, across, STRIP, fill, stroke=MEMORIES[name], **look)
        pen.centered(x + across / 2, at.my + 0.65, name, font_weight=600)


def _transposed(rows: Grid) -> Grid:
    return [list(column) for column in zip(*rows, strict=True)]


def _largest(rows: Grid) -> float:
    return max((abs(x) for row in rows for x in row), default=1.0) or 1.0
