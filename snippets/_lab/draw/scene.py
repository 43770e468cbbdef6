"""The kernel at work (scene.js): what a figure gives it, its picture without a script, its table.

The picture is the one that the stage draws, at the moment when a tile has been added: where things
stand is said here and in layout.js, and a test in a browser lays one over the other.
"""

import html
from collections.abc import Iterator, Mapping, Sequence
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
        more = _without(whole, *SHARED, "launch")
        examples.append({"name": name, "through": through, **more, inner: parts})
    source = f"snippets/{room}/kernel.py"
    data = {"source": source, "listing": rows[-1]["listing"], "examples": examples}
    launches = {row["example"]: row["launch"] for row in rows if "launch" in row}
    summary = list(_summary(examples))
    first = [_without(r, "example", "query") for r in summary if _is_first(r, summary[0])]
    poster = _poster(examples[0], about)
    link = f"[The recorded steps](/figures/{room}/{FILE}){{ .am-source }}"
    told = f"{link} (of one query), and [their launch](/figures/{room}/{LAUNCHES}):"
    return {
        "widget": _widget(poster, "", told, "", *table(first)),
        "extra_files": {FILE: data, LAUNCHES: launches},
        "table": summary,
        "pieces": {"hero": _widget(poster, "", link, css=" am-scene-hero")} if hero else {},
    }


def _widget(*inside: str, css: str = "") -> str:
    head = f'<div class="am-scene{css}" data-widget="scene" markdown>'
    return "\n".join([head, *inside, "", "</div>"])


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
    link = f"[The recorded steps](/figures/{room}/{FILE}){{ .am-source }}"
    widget = _widget(f'<div class="am-scene-poster">{svg}</div>', "", link)
    table_ = [
        {"who": span["part"], "what": span["kind"], "tile": span["tile"]}
        | {"from": span["start"], "to": span["end"]}
        for span in found["spans"]
    ]
    return {"widget": widget, "extra_files": {FILE: data}, "table": table_}


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


def _look(look: Mapping[str, object]) -> str:
    return "".join(f' {name.replace("_", "-")}="{value}"' for name, value in look.items())


def _box(x: float, y: float, wide: float, tall: float, fill: str = "none", **look: object) -> str:
    """A box whose place is in cells."""
    x, y, wide, tall = (CELL * value for value in (x, y, wide, tall))
    place = f'x="{x:.4g}" y="{y:.4g}" width="{wide:.4g}" height="{tall:.4g}"'
    return f'<rect {place} rx="3" style="fill:{fill}"{_look(look)}/>'


def _words(x: float, y: float, said: str, color: str = INK, **look: object) -> str:
    """Words whose place is in cells, around it unless `look` says where they are held."""
    look = {"text_anchor": "middle", **look}
    return (
        f'<text x="{CELL * x:.4g}" y="{CELL * y:.4g}" dominant-baseline="central" '
        f'style="fill:{color}"{_look(look)}>{html.escape(said, quote=False)}</text>'
    )


def _numbers(x: float, y: float, rows: Grid, color: str) -> str:
    """A matrix: a square for each number, hollow where it is negative; as in canvas.js."""
    most = max((abs(number) for numbers in rows for number in numbers), default=1.0) or 1.0
    squares: dict[bool, str] = {True: "", False: ""}
    for r, numbers in enumerate(rows):
        for d, number in enumerate(numbers):
            side = 0.9 * (abs(number) / most) ** 0.5
            if side >= 0.06:
                left, top = (CELL * (value + 0.5 - side / 2) for value in (x + d, y + r))
                long = f"{CELL * side:.4g}"
                squares[number > 0] += f"M{left:.4g} {top:.4g}h{long}v{long}h-{long}z"
    looks = {True: f'fill="{color}"', False: f'fill="none" stroke="{color}"'}
    return "".join(
        f'<path {looks[filled]} stroke-width="1.4" d="{path}"/>'
        for filled, path in squares.items()
        if path
    )


class _Places:
    """Where things stand, in cells: as layout.js says."""

    def __init__(self, example: Mapping[str, Any]) -> None:
        self.M, self.N, self.D = example["all_queries"], len(example["k"]), len(example["k"][0])
        self.first = example.get("query", 0)
        self.qx, self.ky = EDGE + 0.6, 1.7
        self.sx, self.sy = self.qx + self.D + 1.7, self.ky + self.D + 1.5
        self.mx, self.vy = self.sx + self.N + 0.8, self.sy + self.M + 1.6
        self.ax = self.mx + 2 * (COLLECTED + 0.15) + 0.35
        self.my = self.vy + self.D + 1.1
        self.top = self.sy + self.first
        self.wide, self.tall = self.ax + self.D + EDGE, self.my + STRIP + 0.3


def _poster(example: Mapping[str, Any], about: str) -> str:
    """The stage when half of the keys, or the second tile, have been added: SVG in one line."""
    at = _Places(example)
    q = [example["q"]] if "query" in example else example["q"]
    drawn = [
        *_in_memory(at, q, example["k"], example["v"]),
        *_on_chip(at, example, len(q)),
        *_memories(at, example["through"]),
    ]
    about = html.escape(about, quote=True)
    return (
        f'<svg class="am-scene-poster" viewBox="0 0 {at.wide * CELL:g} {at.tall * CELL:g}" '
        f'role="img" aria-label="{about}" style="--am-ratio:{at.wide / at.tall:.4f}">'
        f"{''.join(drawn)}</svg>"
    )


def _in_memory(at: _Places, q: Grid, k: Grid, v: Grid) -> Iterator[str]:
    """The matrices at the edge, and the one that is never stored."""
    for x, y, across, down, name, said in (
        (at.qx, at.sy, at.D, at.M, "q", "Q"),
        (at.sx, at.ky, at.N, at.D, "k", "Kᵀ"),
        (at.sx, at.vy, at.N, at.D, "v", "Vᵀ"),
        (at.ax, at.sy, at.D, at.M, "output", "out"),
    ):
        yield _box(x - 0.25, y - 0.25, across + 0.5, down + 0.5, TENSORS[name], opacity=0.1)
        large = {"text_anchor": "start", "font_size": 14, "font_weight": 700}
        yield _words(x - 0.1, y - 0.75, said, TENSORS[name], **large)
    yield _numbers(at.sx, at.ky, _transposed(k), TENSORS["k"])
    yield _numbers(at.sx, at.vy, _transposed(v), TENSORS["v"])
    yield _numbers(at.qx, at.top, q, TENSORS["q"])
    yield _box(at.sx, at.sy, at.N, at.M, stroke="var(--am-axis)", stroke_dasharray="2 4")
    if at.first + len(q) < at.M:
        yield _words(at.sx + at.N / 2, at.sy + at.M - 0.5, "scores: M × N, never stored", MUTED)


def _on_chip(at: _Places, example: Mapping[str, Any], rows: int) -> Iterator[str]:
    """The lane of the program: its queries, the tile, what is collected."""
    collected: Sequence[Any] = ()
    if "query" in example:
        start, width = len(example["keys"]) // 2, 1
        weights = [[key["weight"] for key in example["keys"]]]
        acc = [example["keys"][start]["acc"]]
    else:
        tile = example["tiles"][1]
        start, width, collected = tile["start"], example["tile"], (tile["m"], tile["l"])
        totals = zip(tile["share"], tile["l"], strict=True)
        weights = [[share * total for share in shares] for shares, total in totals]
        acc = tile["acc"]
    left, top = at.sx - 1.25, at.top
    chip = MEMORIES["registers"]
    lane = (left, top - 0.12, at.wide - 0.2 - left, rows + 0.24)
    yield _box(*lane, "var(--am-paper)")
    yield _box(*lane, f"color-mix(in srgb,{chip} 10%,transparent)", stroke=chip, stroke_width=1.2)
    yield _numbers(at.sx, top, weights, TENSORS["weights"])
    x = at.sx + start
    yield _box(x - 0.06, top - 0.06, width + 0.12, rows + 0.12, stroke=INK, stroke_width=1.5)
    for name, left, over, wide, tall in (
        ("q", at.sx - 1.05, top, BAND, rows),
        ("k", x, top - BAND - 0.16, width, BAND),
        ("v", x, top + rows + 0.16, width, BAND),
    ):
        yield _box(left, over, wide, tall, TENSORS[name])
        if rows > 1:
            light = {"font_size": 11, "font_weight": 700}
            yield _words(left + wide / 2, over + tall / 2, name, "var(--am-paper)", **light)
    for i, name in enumerate("ml"):
        x = at.mx + i * (COLLECTED + 0.15)
        yield _words(x + COLLECTED / 2, top - 0.75, name, MUTED, font_weight=700)
        for r in range(rows):
            yield _box(x, top + r + 0.08, COLLECTED, 0.84, "var(--am-raised)")
            if collected:
                said = decimals(collected[i][r], 2)
                yield _words(x + COLLECTED / 2, top + r + 0.52, said, font_size=11)
    for r in range(rows):
        yield _box(at.ax - 0.08, top + r + 0.02, at.D + 0.16, 0.96, "var(--am-raised)")
    yield _numbers(at.ax, top, acc, TENSORS["v"])


def _memories(at: _Places, through: str) -> Iterator[str]:
    inner = at.wide - 2 * EDGE
    places = {"HBM": (0, 0.27), "shared memory": (0.38, 0.24), "registers": (0.73, 0.27)}
    for name, (left, share) in places.items():
        passed = name == "shared memory" and through != name
        look = {"stroke_dasharray": "3 3"} if passed else {}
        fill = f"color-mix(in srgb,{MEMORIES[name]} {4 if passed else 13}%,transparent)"
        x, across = EDGE + inner * left, inner * share
        yield _box(x, at.my, across, STRIP, fill, stroke=MEMORIES[name], **look)
        yield _words(x + across / 2, at.my + 0.65, name, font_weight=600)


def _transposed(rows: Grid) -> Grid:
    return [list(column) for column in zip(*rows, strict=True)]
