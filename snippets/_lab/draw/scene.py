"""The kernel at work (scene.js): what a figure gives it, and its table.

Without a script a reader has the table, and what the picture shows in words.
"""

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from snippets._lab.draw.tables import table

FILE = "scene_steps.json"
LAUNCHES = "scene_launches.json"  # for a reader's own text of the kernel
SHARED = ("listing",)  # of all examples of a kernel
PLAY_MS = 40_000  # of the first example where parts work side by side; others keep its pace

Rows = Sequence[Mapping[str, Any]]


def scene(room: str, rows: Rows, inner: str, through: str, about: str) -> dict[str, Any]:
    """`widget`, `extra_files` and `table` of a Figure.

    Args:
        room: the kernel's.
        rows: each names its `example`; the last of an example is of the whole program.
        inner: what the rows before it are: "tiles" or "keys".
        through: where a tile goes from HBM: "registers", or "shared memory" on the way there.
        about: the picture in words.
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
    poster = f'<p class="am-scene-poster">{html.escape(about, quote=False)}</p>'
    link = f"[The recorded steps](/figures/{room}/{FILE}){{ .am-source }}"
    told = f"{link} (of one query), and [their launch](/figures/{room}/{LAUNCHES}):"
    return {
        "widget": _widget(poster, "", told, "", *table(first)),
        "extra_files": {FILE: data, LAUNCHES: launches},
        "table": summary,
    }


def _widget(*inside: str) -> str:
    return "\n".join(['<div class="am-scene" data-widget="scene" markdown>', *inside, "", "</div>"])


def roles_scene(room: str, rows: Rows, svg: str) -> dict[str, Any]:
    """The same of a kernel whose parts work side by side; each row names its `example`.

    `svg` is the picture of the first example over time, above the scene.
    """
    kinds = {"spans": "part", "stays": "stays", "sends": "sent_to", "fetches": "fetched"}
    examples = []
    for name in dict.fromkeys(row["example"] for row in rows):
        *events, whole = (_without(row, "example") for row in rows if row["example"] == name)
        found = {kind: [r for r in events if field in r] for kind, field in kinds.items()}
        examples.append({"name": name, **_without(whole, *SHARED), **found})
    pace = PLAY_MS / max(span["end"] for span in examples[0]["spans"])
    examples = [{**example, "pace": pace} for example in examples]
    source = f"snippets/{room}/kernel.py"
    data = {"source": source, "listing": rows[-1]["listing"], "examples": examples}
    link = f"[The recorded steps](/figures/{room}/{FILE}){{ .am-source }}"
    widget = "\n\n".join([f'<div class="am-scene-over-time">{svg}</div>', _widget(link)])
    table_ = [
        {"who": span["part"], "what": span["kind"], "tile": span["tile"]}
        | {"from": span["start"], "to": span["end"]}
        for span in examples[0]["spans"]
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
