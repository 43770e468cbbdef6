"""What the playground says of typical mistakes, as a table for each kernel.

The answers lie under docs/data like all that is measured. A page asks for the tables by an element
(`<div class="am-mistakes" data-result="browser/playground/mistakes"></div>`) that a build replaces.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from snippets._lab.draw.tables import CODE
from snippets._lab.results import store
from snippets._lab.results.store import Result

PLACE = re.compile(r'<div class="am-mistakes" data-result="(?P<result>[^"]+)"></div>')
HEADS = ("the mistake", "right", "wrong", "what the page says")

Row = dict[str, Any]


def shown(markdown: str, data: Path) -> str:
    """Markdown with the tables where they are asked for. Raises DataError if there are none."""

    def drawn(match: re.Match[str]) -> str:
        folder, post, result = match["result"].rsplit("/", 2)
        return tables(store.read(store.path_of(folder, post, result, data), data))

    return PLACE.sub(drawn, markdown)


def tables(result: Result) -> str:
    """The Markdown that a page shows: a sentence of numbers, and a folded table for each kernel."""
    rows: list[Row] = result.rows
    wrong = sum(row["right"] < row["of"] for row in rows)
    named = sum(row["named"] is not None for row in rows)
    refused = sum(row["refused"] for row in rows)
    place = f"{result.folder}/{result.post}/{result.result}"
    parts = [
        f"Of {len(rows)} typical mistakes, ten with each kernel, it finds {wrong}: {refused} are "
        f"refused at their line before they run, and {named} are named by what they return. "
        f"[All answers](/data/{place}.json), {result.device['name']}, {result.date}."
        f'<span class="am-stale" data-result="{place}"></span>',
        "",
    ]
    for kernel, group in groupby(rows, key=lambda row: row["kernel"]):
        parts += _of_kernel(kernel, list(group))
    return "\n".join(parts)


def _of_kernel(kernel: str, rows: list[Row]) -> Iterator[str]:
    room, _, name = kernel.partition("/")
    yield f'??? note "`{name.partition(":")[2]}` of {room}"'
    yield ""
    yield f"    | {' | '.join(HEADS)} |"
    yield f"    |{' --- |' * len(HEADS)}"
    for row in rows:
        cells = (
            row["mistake"].replace("|", r"\|"),
            _code(row["old"]),
            _code(row["new"]),
            _said(row),
        )
        yield f"    | {' | '.join(cells)} |"
    yield ""


def _said(row: Row) -> str:
    """The sentences of a row, in the order in which the page has them."""
    parts = [row["says"]]
    parts += [f[0].upper() + f[1:] for f in row["faults"][:1] if f not in row["says"]]
    text = " ".join(_plain(part if part.endswith(".") else f"{part}.") for part in parts)
    if row["named"] is None:
        return text
    alike = f" Or: {'; '.join(row['alike'])}." if row["alike"] else ""
    named = f"**The mistake: {_plain(row['named'])}.** {_plain(row['sentence'] + alike)}"
    return f"{text} {named}"


def _plain(text: str) -> str:
    """Text that Markdown leaves as it is, but for `code`."""
    parts = CODE.split(text)  # text, code, text …
    parts[::2] = [re.sub(r"([\\`*_\[\]<>|])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [_code(part) for part in parts[1::2]]
    return "".join(parts).replace("\n", " ")


def _code(text: str) -> str:
    """Code in a cell, its lines one after the other; a dash for none."""
    short = " ⏎ ".join(line.strip() for line in text.strip("\n").split("\n") if line.strip())
    return f"`{short}`".replace("|", r"\|") if short else "–"
