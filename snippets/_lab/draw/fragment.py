"""What a page includes of a figure: chart, finding, caption; and, on a page of their own, its data.

It depends on data and drawing code only. Whether the code behind a number has changed since is
worked out when the site is built: beside each result that is named stands an empty mark for it.
"""

import html
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from snippets._lab.draw import units
from snippets._lab.draw.chart import specification
from snippets._lab.draw.tables import cell, drawn, listed, stored, table
from snippets._lab.draw.units import count, percent
from snippets._lab.results.store import DataError, Result

if TYPE_CHECKING:
    from snippets._lab.draw.figure import Figure

NUMBERS = "numbers.json"  # of a room: what its figures say of themselves, put together
DIGITS = 6  # significant digits in a figure's specification
MARKUP = re.compile(r"<[a-z/!?]|\]\(\s*\w*script:", re.IGNORECASE)
INCLUDE = re.compile("--8<--")
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
NAME = re.compile(r"[a-z][a-z0-9_]*")
WORD = re.compile(r"[^\W\d_]+")
# The words in a number's text: units, and what stands between the ends of a range.
UNITS = {"to", "under", "e"} | {
    word
    for unit in vars(units).values()
    if isinstance(unit, units.Unit)
    for _, name in unit.steps
    for word in WORD.findall(name)
}


def fragment(
    room: str,
    name: str,
    function: "Callable[[list[Result]], Figure | None]",
    results: list[Result],
) -> dict[str, str]:
    """The files of one figure: name → text. None where the figure waits for a measurement."""
    try:
        figure = function(results)
        if figure is None:
            return {}
        own = not figure.sources  # else the finding is of all devices
        results = results if own else list(figure.sources)
        others = [
            (r, other.finding)
            for r in results[1:]
            if own and r.place == "gpu" and (other := function([r]))
        ]
    except Exception as error:
        own_files = [f"{r.folder}/{room}/{name}.json" for r in results if r.post == room]
        told = ", ".join(own_files) or "the results of all posts"
        text = f"{type(error).__name__}: {error}"
        raise DataError(f"figure {name} of {room} cannot be drawn from {told}: {text}") from error
    check_text(
        f"figure {name} of {room}", (figure.finding, figure.caption, *figure.pieces.values())
    )
    files = {}
    also = "".join(f" On {cell(r.label)}: {finding}" for r, finding in others)
    also += "".join(
        f" While this was measured {cell(r.label)} was slowed by {listed(r.device['slowdowns'])}."
        for r in results
        if r.device.get("slowdowns")
    )
    devices = listed(f"{cell(r.label)}, <time>{r.date}</time>{stale_mark(r)}" for r in results)
    also += f" {whence(results)} {devices}." if own else stale_mark(*results)
    caption = f"{figure.caption}{also}"
    # A browser reads a block element's Markdown only if no line of it looks like indented code.
    kind, plot = "am-figure", {}
    if figure.plot:
        plot = specification(figure.plot)
        wide, narrow = plot["layout"], plot["layout"] | plot["layout"]["meta"]["narrow"]
        kind += " am-chart" * (not figure.widget and not figure.open_table)
        kind += f'" style="--am-height: {wide["height"]}px; --am-narrow: {narrow["height"]}px'
    path = path_of(function)
    source = made_by(path)
    lines = [source, "", f'<div class="{kind}" id="figure-{room}-{name}" markdown>']
    lines += ["<figure markdown>", '<p class="am-finding" markdown>', figure.finding, "</p>"]
    if figure.plot:
        files[f"{name}.json"] = dumps({"made_by": path, **plot})
        summary = html.escape(f"Chart. {_plain(figure.finding)}", quote=True)
        lines += [
            f'<div class="am-plot" role="group" aria-label="{summary}" markdown>',
            f"[The chart's data](/figures/{room}/{name}.json){{ .am-source }}",
            "</div>",
        ]
    if figure.widget:
        lines += ["", figure.widget, ""]
    for piece, text in figure.pieces.items():
        files[f"{name}_{piece}.md"] = f"{source}\n\n{text}\n"
    for file, value in figure.extra_files.items():
        made = _rounded({"made_by": path, **value})
        files[file] = json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n"
    if figure.open_table:
        lines += ["<div markdown>", "", *table(figure.table), "", "</div>"]
    lines += ["<figcaption markdown>", caption, "</figcaption>", "</figure>"]
    lines.append("</div>")
    same, rows = "", figure.table or (drawn(figure.plot) if figure.plot else [])
    if figure.open_table:
        rows = []
    elif not rows:
        same, rows = stored(results)
    said = f"{figure.finding}\n\nIn every row: {same}." if same else figure.finding
    files[f"{name}_data.md"] = data_of(source, said, rows, results)
    if figure.caption:
        files[f"{name}.md"] = "\n".join(lines) + "\n"
    if figure.numbers or figure.claims:
        files[NUMBERS] = numbers_of(name, path, figure.numbers, results, figure.claims)
    return files


def numbers_of(
    figure: str,
    path: str,
    numbers: Mapping[str, str | int],
    results: Sequence[Result],
    claims: Mapping[str, bool] | None = None,
) -> str:
    """A figure's part of the room's numbers.json: name → text, the results it came from, claims.

    Raises DataError for a text that is no number with its unit.
    """
    shown = {name: cell(value) for name, value in numbers.items()}
    for name, text in shown.items():
        number = re.search(r"\d", text) and UNITS.issuperset(WORD.findall(text))
        if not number or not NAME.fullmatch(name):
            raise DataError(f"{name!r}: {text!r} is no number; a page has the words around it")
    read = [f"{r.folder}/{r.post}/{r.result}.json" for r in results]
    return dumps(
        {figure: {"made_by": path, "from": read, "numbers": shown, "claims": claims or {}}}
    )


def check_text(what: str, texts: Iterable[str]) -> None:
    """Raise DataError for a text that holds markup or an include: it is from data."""
    for text in texts:
        if found := MARKUP.search(CODE.sub("", text)) or INCLUDE.search(text):
            raise DataError(f"{what} has markup in its text: {found.group()}")


def whence(results: Sequence[Result]) -> str:
    """How numbers came from devices, which are named next: only a clock measures."""
    places = {r.place for r in results}
    return {"compiler": "For", "interpreter": "Run in"}.get("".join(places), "Measured on")


def raw_link(result: Result, text: str) -> str:
    """A link to the file of a result, and whether its code has changed since."""
    path = f"/data/{result.folder}/{result.post}/{result.result}.json"
    return f"[{text}]({path}){stale_mark(result)}"


def stale_mark(*results: Result) -> str:
    """An empty mark, which the site fills where the code of a result has changed since."""
    names = " ".join(f"{r.folder}/{r.post}/{r.result}" for r in results)
    return f'<span class="am-stale" data-result="{names}"></span>' if names else ""


def path_of(function: Callable[..., Any]) -> str:
    """Where a function stands: "snippets/flash_attention/figures.py:ladder"."""
    return f"{function.__module__.replace('.', '/')}.py:{function.__name__}"


def made_by(path: str) -> str:
    """What made a file, as a comment in it: the build leaves it out."""
    return f"<!-- made by {path}; make figures -->"


def data_of(
    source: str, finding: str, rows: Sequence[Mapping[str, Any]], results: Sequence[Result]
) -> str:
    """What the page of numbers says of a figure: its table, raw results, and how to renew them."""
    lines = [source, "", finding, ""]
    if rows:
        lines += [*table([dict(row) for row in rows]), ""]
    for r in results:
        target = "bench" if r.place == "gpu" else "bench-cpu"
        raw = raw_link(r, f"{r.folder}/{cell(r.post)}/{cell(r.result)}.json")
        lines.append(f"- {raw}, renewed by `make {target} POST={r.post} RESULT={r.result}`")
    if results:
        lines += ["", *provenance_table(results)]
    return "\n".join(lines) + "\n"


def dumps(specification_: dict[str, Any]) -> str:
    """A specification as one line of JSON, its numbers rounded."""
    return json.dumps(_rounded(specification_), ensure_ascii=False) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        short = float(f"{value:.{DIGITS}g}")
        return int(short) if short.is_integer() and abs(short) < 1e15 else short
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(v) for v in value]
    if value is None or isinstance(value, str | int):
        return value
    kind = type(value)
    raise DataError(f"a figure holds a {kind.__module__}.{kind.__name__}; give it plain numbers")


def _plain(text: str) -> str:
    return text.replace("`", "").replace("*", "")


def provenance_table(results: Sequence[Result]) -> list[str]:
    """One row a device: what it is, what ran on it, which code."""
    rows = []
    several = len({(r.post, r.result) for r in results}) > 1
    for r in results:
        d, v = r.device, r.versions
        clock = d.get("sm_clock_mhz")
        regimes = {str(x.get("regime", "queued")): 0 for x in r.rows if "ms_samples" in x}
        slow = [f"{s} ({percent(n)} of the readings)" for s, n in d.get("slowdowns", {}).items()]
        rows.append(
            {
                **({"result": f"{r.post}/{r.result}"} if several else {}),
                "device": r.label,
                **({"timed": ", ".join(regimes)} if regimes else {}),
                **({"GPUs in the machine": d["gpus"]} if d.get("gpus", 1) > 1 else {}),
                "driver": d.get("driver"),
                "power limit": f"{count(d['power_limit_w'])} W" if d.get("power_limit_w") else None,
                "SM clock while measuring": f"{count(clock[0])}–{count(clock[2])} MHz"
                if clock
                else None,
                **({"slowed by": listed(slow)} if slow else {}),
                "versions": f"Python {v['python']}, torch {v['torch']}, Triton {v['triton']}, "
                f"CUDA {v['cuda']}, cuDNN {v['cudnn']}",
                "measured (UTC)": r.measured_at,
                "source hash": r.source_hash,
                "commit": r.commit[:12],
                "seed": r.seed,
            }
        )
    if len(rows) == 1:
        rows = [{"": key, " ": value} for key, value in rows[0].items()]
    else:  # one machine alone had two GPUs, or was slowed: its row has a head more
        heads = dict.fromkeys(h for row in sorted(rows, key=len, reverse=True) for h in row)
        rows = [{head: row.get(head) for head in heads} for row in rows]
    return table(rows)
