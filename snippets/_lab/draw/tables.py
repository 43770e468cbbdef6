"""The numbers below a chart: columns of one unit each, from rows; values as Markdown text."""

import html
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from snippets._lab.draw.rows import TIME, Quantity, Row, pick
from snippets._lab.draw.units import MINUS, count
from snippets._lab.results.store import DataError, Result

if TYPE_CHECKING:
    from snippets._lab.draw.chart import Chart

# Markdown's own characters as HTML entities: { } would give a table's cell attributes, [ ] a link.
MARKDOWN = {ord(c): f"&#{ord(c)};" for c in "|*_[]{}`\\$~\n"}
CODE = re.compile(r"`([^`]+)`")
MANY = 120  # rows that nobody reads
Column = str | Quantity | Callable[[Row], Any]


class Numeral(str):
    """A number that is already text: it is set to the right, as numbers are."""

    __slots__ = ()


def columns(
    rows: Iterable[Row], wanted: Mapping[str, Column] | Sequence[tuple[str, Column]]
) -> list[dict[str, Any]]:
    """A table with a row for each row: head → a field, a quantity, or what makes the value.

    A quantity's column has one unit, which its head names: "time, µs".
    """
    rows = list(rows)
    table: list[dict[str, Any]] = [{} for _ in rows]
    for head, column in dict(wanted).items():
        if isinstance(column, Quantity):
            titled, cells = _in_one_unit(head, column, [column(r) for r in rows])
            head = titled
        elif isinstance(column, str):
            cells = [yes(r[column]) if isinstance(r[column], bool) else r[column] for r in rows]
        else:
            cells = [column(r) for r in rows]
        for line, value in zip(table, cells, strict=True):
            line[head] = value
    return table


def beside(
    rows: Iterable[Row],
    by: Sequence[str],
    names: Mapping[str, Any],
    value: Quantity = TIME,
    more: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    name: str = "implementation",
) -> list[dict[str, Any]]:
    """A table with a row for each case and a column for each implementation, label → name.

    All values have one unit, which the heads name. `more` makes further columns of a case, a dict
    of the fields `by` and of each name's row (None where there is none).
    """
    rows = list(rows)
    cases = list(dict.fromkeys(tuple(r[axis] for axis in by) for r in rows))
    there = {(r[name], *(r[axis] for axis in by)): r for r in pick(rows)}
    found = {(label, c): there.get((key, *c)) for c in cases for label, key in names.items()}
    measured = [value(r) for r in found.values() if r is not None]
    scale = value.unit.scale([v for v in measured if v is not None])
    table = []
    for case in cases:
        at = dict(zip(by, case, strict=True))
        line = {axis: yes(v) if isinstance(v, bool) else v for axis, v in at.items()}
        for label in names:
            row = found[label, case]
            number = None if row is None else value(row)
            text = None if number is None else Numeral(scale.number(number))
            line[f"{label}, {scale.name}" if scale.name else label] = text
        if more:
            mine = {key: found[label, case] for label, key in names.items()}
            line |= more({**at, **mine})
        table.append(line)
    return table


def _in_one_unit(
    head: str, quantity: Quantity, numbers: Sequence[float | None]
) -> tuple[str, list[Any]]:
    scale = quantity.unit.scale([x for x in numbers if x is not None])
    said = f"{head}, {scale.name}" if scale.name and scale.name not in head else head
    return said, [None if x is None else Numeral(scale.number(x)) for x in numbers]


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of a Markdown table; numbers are set to the right."""
    if not rows:
        raise DataError("a figure has an empty table")
    heads = list(rows[0])
    numeric = [all(isinstance(r[h], int | float | Numeral | None) for r in rows) for h in heads]
    return [
        f"| {' | '.join(cell(h) for h in heads)} |",
        f"| {' | '.join('---:' if n else '---' for n in numeric)} |",
        *(f"| {' | '.join(cell(r[h]) for h in heads)} |" for r in rows),
    ]


def widget(
    look: str, name: str, link: str, rows: Sequence[Mapping[str, Any]], told: str = ""
) -> str:
    """A box that becomes a widget; where no script runs it has a link to its data, and a table."""
    opening = f'<div class="am-{look}" data-widget="{name}" markdown>'
    lines = [*([told, ""] if told else []), *table(rows)]
    return "\n".join([opening, f"{link}{{ .am-source }}", "", *lines, "", "</div>"])


def drawn(chart: "Chart") -> list[dict[str, Any]]:
    """The numbers of a chart as it reads them out: a row for each place, a column for each name."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for panel in chart.panels:
        title = re.sub(r",[^,]*$", "", (panel.y if panel.x.names else panel.x).title)
        for trace in panel.traces:
            for said in itertools.chain(*map(_each, trace.hovertext)):
                head, *more = html.unescape(said).split("<br>")
                name = trace.name or title
                if trace.type == "heatmap":
                    place, _, value = head.rpartition(": ")
                elif head == trace.name:  # of a line
                    place, _, value = more[0].rpartition(": ")
                else:  # a bar or a dot: its place, and its group's name
                    place, value = head.removesuffix(f", {trace.name}"), more[0]
                if more[1:]:  # its spread, or what it was made of
                    value += f" ({'; '.join(more[1:])})"
                row = rows.setdefault((panel.title, place), {"panel": panel.title, "point": place})
                row[name] = f"{row[name]}; {value}" if name in row else value
    heads = dict.fromkeys(head for row in rows.values() for head in row)
    if not any(row["panel"] for row in rows.values()):
        del heads["panel"]
    return [{head: row.get(head) for head in heads} for row in rows.values()]


def stored(results: Sequence[Result]) -> tuple[str, list[dict[str, Any]]]:
    """The rows of results as their files have them: what all have in common in words, the rest.

    Samples and other lists are in the files alone, as are all rows where they are many.
    """
    found = [{"device": result.label, **row} for result in results for row in result.rows]
    if len(found) > MANY:
        return "", []
    heads = dict.fromkeys(k for r in found for k, x in r.items() if not isinstance(x, list | dict))
    rows = [{head: row.get(head) for head in heads} for row in found]
    same = [head for head in heads if len({str(row[head]) for row in rows}) == 1]
    common = [f"{cell(head)} {cell(rows[0][head])}" for head in same if head != "device"]
    apart = {head: head for head in heads if head not in same}
    return listed(common) if common else "", columns(rows, apart)


def _each(said: str | Sequence[str]) -> Sequence[str]:
    return [said] if isinstance(said, str) else said


class Prose(str):
    """A sentence of our own, in which `…` is code; in other text a backtick is a backtick."""

    __slots__ = ()


def cell(value: Any) -> str:
    """A value in a table or a sentence, with markup escaped."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", MINUS)
    if isinstance(value, int) and not isinstance(value, bool):
        return count(value)
    parts = CODE.split(value) if isinstance(value, Prose) else [str(value)]  # text, code, text …
    shown = [html.escape(part).translate(MARKDOWN) for part in parts]
    shown[1::2] = [f"<code>{code}</code>" for code in shown[1::2]]
    return "".join(shown)


def listed(words: Iterable[Any]) -> str:
    """Words as a sentence lists them: "a", "a and b", "a, b and c"; "a; b, or c; and d"."""
    words = [word if isinstance(word, str) else cell(word) for word in words]
    if len(words) > 2 and any(", " in word for word in words):
        return "; ".join([*words[:-1], f"and {words[-1]}"])
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def yes(value: Any) -> str:
    """ "yes" or "no"."""
    return "yes" if value else "no"


def case(row: Any, *axes: str) -> str:
    """A case in words: "D 64, causal, N 16,384". Without axes, all of a case of a Comparison.

    What is true is named, what is false left out; a word stands for itself.
    """
    of = row if isinstance(row, Mapping) else row._asdict()
    told = []
    for axis in axes or of:
        value = of[axis]
        if isinstance(value, bool):
            told += [axis] * value
        else:
            told.append(value if isinstance(value, str) else f"{axis} {cell(value)}")
    return ", ".join(told)
