"""The player of a running softmax (steps.js): what a figure gives it, and the table it replaces."""

from collections.abc import Mapping, Sequence
from typing import Any

from snippets._lab.draw.tables import table

FILE = "steps_frames.json"
SHARED = ("base", "queries", "keys", "tile", "columns")  # fields of the row "result"


def player(room: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`widget`, `extra_files` and `table` of a Figure, from rows of `softmax_steps`.

    Each row names its `example`; the last row of an example has `result`, the output
    [queries, columns] that the kernel stored, and the fields of SHARED.
    """
    examples = []
    for name in dict.fromkeys(row["example"] for row in rows):
        mine = [row for row in rows if row["example"] == name]
        last = mine.pop()
        tiles = [{key: value for key, value in row.items() if key != "example"} for row in mine]
        shared = {key: last[key] for key in SHARED}
        examples.append({"name": name, **shared, "tiles": tiles, "result": last["result"]})
    summary = [
        {
            "example": example["name"],
            "keys": _range(tile["start"], min(tile["start"] + example["tile"], example["keys"])),
            "query": query,
            "m": tile["m"][query],
            "α": tile["alpha"][query],
            "l": tile["l"][query],
            **{f"acc {d}": x for d, x in enumerate(tile["acc"][query])},
        }
        for example in examples
        for tile in example["tiles"]
        for query in range(example["queries"])
    ]
    shown = [
        {key: value for key, value in row.items() if key not in ("example", "query")}
        for row in summary
        if (row["example"], row["query"]) == (examples[0]["name"], 0)
    ]
    widget = [
        '<div class="am-steps" data-widget="steps" markdown>',
        f"[The recorded steps](/figures/{room}/{FILE}){{ .am-source }} (one query, tile by tile):",
        "",
        *table(shown),
        "",
        "</div>",
    ]
    return {
        "widget": "\n".join(widget),
        "extra_files": {FILE: {"examples": examples}},
        "table": summary,
    }


def _range(start: int, stop: int) -> str:
    return f"{start} to {stop - 1}" if stop - start > 1 else str(start)
