"""Draws docs/figures from docs/data: the same bytes every time, and without torch or triton.

For each result of a room, `figures.py` of the room has a function of the same name. It gets the
results of every device that has data, the reference device first, and returns a Figure. This
module writes what a page includes: the Plotly specification, a Markdown fragment with the finding,
the table and the provenance, and the sentences that hold numbers.
"""

import functools
import html
import inspect
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snippets._lab.draw.still import preview
from snippets._lab.results import store
from snippets._lab.results.staleness import is_stale
from snippets._lab.results.store import DataError, Result
from snippets._lab.rooms import DATA, FIGURES, ROOT, load, room_file, rooms, source_file, waiting

# One colour for one implementation on the whole site: after Okabe and Ito's palette for readers
# with a colour-vision deficiency, each at least 3:1 on the light and on the dark page.
COLOURS = {
    "basic_attention": "#2b84c6",
    "basic_attention:exercise": "#1d9a78",
    "torch:sdpa": "#d4602a",
    "torch:eager": "#b8860b",
    "attention_weights": "#9b6dc4",
    "attention_weights, causal": "#1d9a78",
    "vectorized_attention": "#a45fb0",
    "vectorized_attention:exercise": "#1d9a78",
    "composed_attention": "#c4569a",
    "composed_attention:exercise": "#1d9a78",
    "composed_attention:transpose": "#1d9a78",
    "composed_attention:matmul": "#2b84c6",
    "composed_attention:softmax": "#a45fb0",
    "torch:math": "#8f7150",
    "torch:flash": "#4178d4",
    "torch:flex": "#9b6dc4",
    "torch:cudnn": "#5c8f2e",
    "torch:efficient": "#2f8fa3",
    "tiled_attention": "#6b74d6",
    "flash_attention": "#d6336c",
    "hopper_attention": "#0b9488",
    "attention_memory:exercise": "#1d9a78",
    "torch:matmul": "#8a5a2b",
    "torch:softmax": "#b8860b",
    "torch:transpose": "#b8860b",
    "coalescing": "#5f7fd0",
    "multi_head_attention:loop": "#c4569a",
    "multi_head_attention:vectorized": "#2b84c6",
    "multi_head_attention:exercise": "#1d9a78",
    "multi_head_attention:SDPA": "#d4602a",
    "multi_head_attention:torch": "#b8860b",
    "line_sums:rows": "#2b84c6",
    "line_sums:columns": "#c4569a",
    "line_sums:exercise": "#1d9a78",
    "torch:clone": "#d4602a",
    "torch:sum": "#d4602a",
    "ceiling": "#808a94",
}
NAMES = {
    "torch:sdpa": "PyTorch SDPA",
    "torch:eager": "eager PyTorch",
    "basic_attention:exercise": "two queries a program",
    "vectorized_attention:exercise": "32 keys at a time",
    "composed_attention:exercise": "k by strides, no transpose",
    "composed_attention:transpose": "tiled transpose",
    "composed_attention:matmul": "tiled matmul",
    "composed_attention:softmax": "row softmax",
    "multi_head_attention:loop": "loop over heads",
    "multi_head_attention:vectorized": "vectorised",
    "multi_head_attention:exercise": "one projection for q, k, v",
    "multi_head_attention:SDPA": "vectorised, with SDPA",
    "multi_head_attention:torch": "torch.nn.MultiheadAttention",
    "torch:math": "PyTorch, math",
    "torch:flash": "PyTorch, flash",
    "torch:cudnn": "PyTorch, cuDNN",
    "torch:efficient": "PyTorch, efficient",
    "torch:flex": "PyTorch, FlexAttention",
    "attention_memory:exercise": "eager, in blocks",
    "torch:matmul": "PyTorch, matmul",
    "torch:softmax": "PyTorch, softmax",
    "torch:transpose": "PyTorch, mT.contiguous()",
    "torch:clone": "PyTorch, clone",
}
DASHES = ["solid", "dash", "dot", "dashdot", "longdash"] * 20  # one for each device; then again
DIGITS = 6  # significant digits in a figure's specification
# Markdown's own characters as HTML entities: { } would give a table's cell attributes, [ ] a link.
MARKDOWN = {ord(c): f"&#{ord(c)};" for c in "|*_[]{}`\\$~\n"}
MARKUP = re.compile(r"<[a-z/!?]|\]\(\s*\w*script:", re.IGNORECASE)
INCLUDE = re.compile("--8<--")
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
TARGET = re.compile(r"\]\([^)]*\)(?:\{[^}]*\})?|<[^>]+>")
# What site.css makes of a figure's text: characters a line, and its pixels, of title and caption;
# and the pixels of the rule, the gaps and the folded lines.
WIDE = ((84, 26), (127, 21.4), 80)
NARROW = ((42, 23.5), (56, 21.4), 116)


@dataclass(frozen=True)
class Figure:
    """What a figure function returns. Finding, caption and sentences are Markdown."""

    finding: str  # the title: one sentence that the chart shows
    caption: str  # what is drawn, and under which conditions
    table: list[dict[str, Any]]  # the numbers, one row a dict, for the folded table
    plot: Any = None  # plotly.graph_objects.Figure; None where a table says it better
    height: int = 380  # pixels on a wide screen
    narrow: dict[str, Any] = field(default_factory=dict)  # layout changes on a phone
    open_table: bool = False  # show the table unfolded: it is the figure
    table_class: str = ""  # CSS class of an open table
    sentences: Mapping[str, str] = field(default_factory=dict)  # section → text for the prose
    widget: str = ""  # HTML in the place of the chart, for what Plotly does not draw
    extra_files: Mapping[str, Any] = field(default_factory=dict)  # file name → JSON for a widget
    sources: Sequence[Result] = ()  # of a from_all figure: the results that it used


def from_all(function: Callable[[list[Result]], Figure]) -> Callable[[list[Result]], Figure]:
    """Mark a figure that is drawn from the results of all posts, and has none of its own."""
    function.from_all = True  # type: ignore[attr-defined]
    return function


def name_of(implementation: str, result: Result, results: Sequence[Result]) -> str:
    """What a legend calls an implementation; with its device where there are several."""
    name = html.escape(NAMES.get(implementation, implementation))
    return name if len(results) == 1 else f"{name}, {device_name(result)}"


def device_name(result: Result) -> str:
    """What a chart calls a device, with markup escaped."""
    return html.escape(result.label)


def colour(implementation: str) -> str:
    """The colour of an implementation. Raises DataError for one that has none yet."""
    if implementation not in COLOURS:
        raise DataError(f"{implementation!r} has no colour in snippets/_lab/draw/figure.py")
    return COLOURS[implementation]


def time(ms: float) -> str:
    """A time as read aloud: "12.7 µs", "0.874 ms"."""
    return f"{ms * 1e3:.3g} µs" if ms < 0.1 else f"{ms:.3g} ms"


def ratio(value: float) -> str:
    """A factor: "0.78×", "7.6×", "514×"."""
    return f"{value:.2f}×" if value < 2 else f"{value:.1f}×" if value < 10 else f"{value:.0f}×"


def hover(row: Mapping[str, Any]) -> str:
    """Median and spread of a timed row."""
    return f"{time(row['ms_p50'])}<br>p20–p80: {time(row['ms_p20'])} – {time(row['ms_p80'])}"


def pick(rows: Iterable[Mapping[str, Any]], **wanted: Any) -> list[Mapping[str, Any]]:
    """Rows with these values that have a measurement."""
    return [r for r in rows if not r.get("error") and all(r[k] == v for k, v in wanted.items())]


def only(rows: Iterable[Mapping[str, Any]], **wanted: Any) -> Mapping[str, Any]:
    """The one row with these values. Raises DataError if there is none, or more than one."""
    found = pick(rows, **wanted)
    if len(found) != 1:
        raise DataError(f"{len(found)} rows have {wanted}; one was expected")
    return found[0]


def draw_all(data: Path = DATA, out: Path = FIGURES, write: bool = True) -> list[Path]:
    """Draw every figure; return the files that are not (or, with write, were not) as drawn.

    Raises DataError that names a missing, truncated or tampered data file.
    """
    by_name: dict[tuple[str, str], list[Result]] = {}
    # What a browser measured of the site becomes a table when the site is built.
    everything = [r for r in store.scan(data) if r.place != "browser"]
    for result in everything:
        by_name.setdefault((result.post, result.result), []).append(result)
    files: dict[Path, str] = {}
    for room in rooms():
        for name, function in figure_functions(room).items():
            results = by_name.pop((room, name), [])
            if hasattr(function, "from_all"):
                results = everything
            if not results and room in waiting():
                continue
            if not results:
                raise DataError(f"no device has {data}/*/{room}/{name}.json; run `make bench`")
            for file, text in fragment(room, name, function, _reference_first(results)).items():
                files[out / room / file] = text
    if by_name:
        left = ", ".join(f"{post}/{result}" for post, result in sorted(by_name))
        raise DataError(f"no figures.py draws these results: {left}")
    changed = [p for p, text in files.items() if not p.exists() or p.read_bytes() != text.encode()]
    gone = [p for p in out.rglob("*") if p.is_file() and p not in files]
    if strange := [p for p in gone if p.suffix not in (".md", ".json", ".part")]:
        raise DataError(f"{strange[0]} is no figure, and {out} is for nothing else: move it away")
    if write:
        for path in changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            store.write_whole(path, files[path])
        for path in gone:
            path.unlink()
    return sorted(changed + gone)


def figure_functions(room: str) -> dict[str, Callable[[list[Result]], Figure]]:
    """The figures of a room by name, those every room has included."""
    if not room_file(room, "figures.py").exists():
        return {}
    module = load(room, "figures")
    functions: dict[str, Callable[[list[Result]], Figure]] = {
        name: f
        for name, f in inspect.getmembers(module, inspect.isfunction)
        if not name.startswith("_") and f.__module__ == module.__name__
    }
    if room_file(room, "mutants.py").exists():
        functions["mutants"] = mutants
    if source_file(room).exists():
        functions["report"] = report
    return functions


@functools.cache
def _reference() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return str(project["tool"]["attention-measured"]["reference-device"])


def _reference_first(results: list[Result]) -> list[Result]:
    return sorted(results, key=lambda r: (r.folder != _reference(), r.place != "gpu", r.folder))


def fragment(
    room: str, name: str, function: Callable[[list[Result]], Figure], results: list[Result]
) -> dict[str, str]:
    """The files of one figure: name → text."""
    try:
        figure = function(results)
        own = not figure.sources  # else the finding is of all devices
        results = results if own else list(figure.sources)
        others = [(r, function([r]).finding) for r in results[1:] if own and r.place == "gpu"]
    except Exception as error:
        read = ", ".join(f"{r.folder}/{room}/{name}.json" for r in results if r.post == room)
        read = read or "the results of all posts"
        text = f"{type(error).__name__}: {error}"
        raise DataError(f"figure {name} of {room} cannot be drawn from {read}: {text}") from error
    for text in (figure.finding, figure.caption, *figure.sentences.values()):
        if found := MARKUP.search(CODE.sub("", text)) or INCLUDE.search(text):
            raise DataError(f"figure {name} of {room} has markup in a sentence: {found.group()}")
    files = {}
    also = "".join(f" On {cell(r.label)}: {finding}" for r, finding in others)
    raw = ", ".join(
        f"[{f'{cell(r.label)}, {r.date}' if own else f'{cell(r.post)}/{cell(r.result)}'}]"
        f"(/data/{r.folder}/{r.post}/{r.result}.json){{ .am-raw }}"
        + (' <span class="am-badge am-stale">code changed since</span>' if is_stale(r) else "")
        for r in results
    )
    caption = f"{figure.caption}{also} {'Measured on' if own else 'Raw results:'} {raw}."
    # A browser reads a block element's Markdown only if no line of it looks like indented code.
    # What is folded is no part of the <figure>, where a caption comes first or last.
    chart = figure.plot is not None and not figure.widget and not figure.open_table
    kind = f'am-figure am-chart" style="{_room(figure, caption)}' if chart else "am-figure"
    lines = [f'<div class="{kind}" id="figure-{room}-{name}" markdown>']
    lines += ["<figure markdown>", '<p class="am-finding" markdown>', figure.finding, "</p>"]
    if figure.plot is not None:
        files[f"{name}.json"] = specification(figure)
        summary = html.escape(f"Chart. {_plain(figure.finding)}", quote=True)
        tall = figure.narrow.get("height", figure.height)
        lines += [
            f'<div class="am-plot" style="--am-height: {figure.height}px; --am-height-narrow: '
            f'{tall}px" role="group" aria-label="{summary}" markdown>',
            f"[The chart's data](/figures/{room}/{name}.json){{ .am-source }}",
            preview(json.loads(files[f"{name}.json"])),
            "</div>",
        ]
    if figure.widget:
        lines += ["", figure.widget, ""]
    for file, value in figure.extra_files.items():
        files[file] = json.dumps(_rounded(value), ensure_ascii=False, separators=(",", ":")) + "\n"
    if figure.open_table:
        css = f' class="{figure.table_class}"' if figure.table_class else ""
        lines += [f"<div{css} markdown>", "", *table(figure.table), "", "</div>"]
    lines += ["<figcaption markdown>", caption, "</figcaption>", "</figure>"]
    if not figure.open_table:
        lines += _folded("am-data", "The numbers as a table", table(figure.table))
    lines += _folded(
        "am-data am-provenance", "Where these numbers come from", provenance_table(results)
    )
    lines.append("</div>")
    files[f"{name}.md"] = "\n".join(lines) + "\n"
    if figure.sentences:
        files[f"{name}_sentences.md"] = (
            "\n".join(
                f"<!-- --8<-- [start:{section}] -->\n{text}\n<!-- --8<-- [end:{section}] -->"
                for section, text in figure.sentences.items()
            )
            + "\n"
        )
    return files


def _room(figure: Figure, caption: str) -> str:
    """About how high a chart is with its text, on a wide screen and on a phone, as CSS.

    A browser reserves this for a figure that it leaves aside until it comes near.
    """
    title, caption = (TARGET.sub("]", _plain(text)) for text in (figure.finding, caption))
    heights = []
    for plot, (title_line, caption_line, around) in (
        (figure.height, WIDE),
        (figure.narrow.get("height", figure.height), NARROW),
    ):
        lines = [(title, title_line), (caption, caption_line)]
        text = sum(math.ceil(len(words) / line) * px for words, (line, px) in lines)
        heights.append(round(plot + text + around))
    return f"--am-room: {heights[0]}px; --am-room-narrow: {heights[1]}px"


def _folded(css: str, title: str, lines: list[str]) -> list[str]:
    return [
        f'<details class="{css}" markdown>',
        f"<summary>{title}</summary>",
        "",
        *lines,
        "",
        "</details>",
    ]


def _plain(text: str) -> str:
    return text.replace("`", "").replace("*", "")


def specification(figure: Figure) -> str:
    """Plotly JSON without theme colours (the page adds them) and with lists for arrays."""
    spec = json.loads(figure.plot.to_json())
    for trace in spec["data"]:
        if "name" in trace:  # a device's or an implementation's: text, whoever wrote the figure
            trace["name"] = html.escape(html.unescape(trace["name"]))
    layout = spec["layout"]
    layout.pop("template", None)
    layout["height"] = figure.height
    if figure.narrow:
        layout["meta"] = {"narrow": figure.narrow}
    return json.dumps(_rounded({"data": spec["data"], "layout": layout}), ensure_ascii=False) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        short = float(f"{value:.{DIGITS}g}")
        return int(short) if short.is_integer() and abs(short) < 1e15 else short
    if isinstance(value, dict):
        if "bdata" in value:
            raise DataError("a figure holds a NumPy array; give Plotly lists")
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list) else value


def cell(value: Any) -> str:
    """A value in a table, with markup escaped."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return html.escape(str(value)).translate(MARKDOWN)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of a Markdown table; numbers are set to the right."""
    if not rows:
        raise DataError("a figure has an empty table")
    heads = list(rows[0])
    numeric = [all(isinstance(r[h], int | float | None) for r in rows) for h in heads]
    return [
        f"| {' | '.join(cell(h) for h in heads)} |",
        f"| {' | '.join('---:' if n else '---' for n in numeric)} |",
        *(f"| {' | '.join(cell(r[h]) for h in heads)} |" for r in rows),
    ]


def provenance_table(results: list[Result]) -> list[str]:
    """One row a device: what it is, what ran on it, which code."""
    rows = []
    several = len({(r.post, r.result) for r in results}) > 1
    for r in results:
        d, v = r.device, r.versions
        clock = d.get("sm_clock_mhz")
        rows.append(
            {
                **({"result": f"{r.post}/{r.result}"} if several else {}),
                "device": r.label,
                "driver": d.get("driver"),
                "power limit": f"{d['power_limit_w']:.0f} W" if d.get("power_limit_w") else None,
                "SM clock while measuring": f"{clock[0]:.0f}–{clock[2]:.0f} MHz" if clock else None,
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
    return table(rows)


def mutants(results: list[Result]) -> Figure:
    """The wrong kernels of a room and the test that rejected each."""
    rows = results[0].rows
    what = source_file(results[0].post).stem  # kernel or module
    named = sum(bool(r.get("derived")) for r in rows)
    how = (
        f" The wrong numbers alone name {named} of the {len(rows)} mistakes: they are those of a "
        "PyTorch model of that mistake."
    )
    return Figure(
        finding=f"{len(rows)} wrong {what}s, and the tests reject every one.",
        caption=f"Each line is the page's {what} with one mistake, the first test that saw it, and "
        f"the largest difference from float64 beside what is allowed. The unchanged {what} passes "
        "the same tests." + how * bool(named),
        table=[
            {
                "mistake": r["mutant"],
                "rejected by": r["killed_by"],
                **_error_and_bound(r["message"]),
                "diagnosis": r["diagnosis"] + _said_by_output(r) * bool(named),
            }
            for r in rows
        ],
        open_table=True,
        table_class="am-kills",
    )


def _said_by_output(row: Mapping[str, Any]) -> str:
    """What to add where the output alone gives no name, or the name of a mistake next to it."""
    derived = row.get("derived")
    if derived == row["mutant"]:
        return ""
    return f" (By its output: {derived or 'no known mistake'}.)"


def _error_and_bound(message: str) -> dict[str, str]:
    found = re.search(r"difference (\S+) .*?allowed (\S+)", message)
    return {"error": found[1] if found else message, "allowed": found[2] if found else ""}


def report(results: list[Result]) -> Figure:
    """What `python kernel.py` printed, word for word, in one section for each device."""
    command = f"python {source_file(results[0].post).name}"
    sentences = {
        r.folder: "\n".join(["```console", f"$ {command}", *(x["line"] for x in r.rows), "```"])
        for r in results
    }
    return Figure(
        finding="The file checks itself.",
        caption=f"What `{command}` prints, the file lying alone in an empty folder.",
        table=[{"device": r.label, "line": x["line"]} for r in results for x in r.rows],
        sentences=sentences,
    )
