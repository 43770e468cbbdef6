"""A chart for Plotly: panels of traces, arranged for a wide screen and for a phone.

plotly.py places the subplots, knows every property and writes the JSON. What all charts share, and
every color of text and lines, is in the page's template (`theme` in plotly.js), and so in no file.
"""

import itertools
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Plotly itself is imported where it draws: no kernel's test needs it
    import plotly.graph_objects as go

CHARACTER = 7  # pixels of a character of a tick or a label
LINE = 17  # pixels from one line of text to the next
LABELS = 19  # pixels from one name at a line's end to the next
TITLE = 24  # pixels of a panel's or an axis' title
SCALE = 86  # pixels of a heatmap's scale
EDGE = 12  # pixels that are free at a side with nothing on it
WIDE, PHONE = 780, 350  # pixels of a chart
HIGH = 400  # pixels of one that leaves no room for its legend on a phone's screen
WRAP = {False: 34, True: 18}  # characters of a name on an axis, in one line; on a phone
MOST_LABELS = 9  # written at the lines' ends; more than these are a legend
GLYPHS = {  # a symbol, filled and open, in a line of text
    "circle": "●○",
    "square": "■□",
    "diamond": "◆◇",
    "triangle-up": "▲△",
    "triangle-down": "▼▽",
    "cross": "✚✚",
    "x": "✕✕",
    "star": "★★",
    "hexagon": "⬢⬢",
    "line-ew": "––",
}


def glyph(symbol: str) -> str:
    """A symbol of Plotly in a line of text."""
    return GLYPHS[symbol.removesuffix("-open")][symbol.endswith("-open")]


@dataclass(frozen=True)
class Axis:
    """One direction of a panel, in the unit that its title names."""

    title: str = ""
    log: bool = False
    low: float = 0.0
    high: float = 1.0
    ticks: Sequence[tuple[float, str]] = ()  # none: Plotly chooses
    format: str = ""  # of Plotly's own ticks
    names: Sequence[str] = ()  # instead of numbers: at 0, 1, 2, …
    beside: int = 1  # bars at each name
    written: Sequence[tuple[float, int]] = ()  # numbers behind marks: value, characters

    def at(self, value: float) -> float:
        """A value as the axis counts: its logarithm, or itself."""
        return math.log10(value) if self.log else value

    def back(self, at: float) -> float:
        """The value at a place."""
        return float(10**at) if self.log else at

    def part(self, value: float) -> float:
        """Where a value lies, from 0 at the low end to 1 at the high one."""
        low, high = self.at(self.low), self.at(self.high)
        return (self.at(value) - low) / (high - low)

    def with_room(self, long: float) -> "Axis":
        """An axis of so many pixels that is long enough for the numbers behind its marks."""
        low, high = self.at(self.low), self.at(self.high)
        bottom, top = low, high
        for value, characters in self.written:
            part = min((characters * CHARACTER + 14) / long, 0.6)
            if value < 0:  # written before a bar that goes to the left
                bottom = min(bottom, (value - part * high) / (1 - part))
            else:
                top = max(top, (self.at(value) - part * low) / (1 - part))
        return replace(self, low=self.back(bottom), high=self.back(top))


@dataclass(frozen=True)
class Rule:
    """A line across a panel: a ceiling, a size of the device."""

    value: float
    name: str
    across: str = "y"  # the axis on which its value lies
    color: str = "#808a94"
    dash: str = "dash"


@dataclass(frozen=True)
class Panel:
    """One coordinate system."""

    title: str
    x: Axis
    y: Axis
    traces: Sequence[Any]
    rules: Sequence[Rule] = ()
    bands: Sequence[tuple[float, float, str]] = ()  # shaded ranges of x: from, to, color


@dataclass(frozen=True)
class Chart:
    """Panels in rows of `columns`; what they share is asked for once."""

    panels: Sequence[Panel]
    columns: int = 0  # 0: all panels side by side
    shared_y: bool = True  # one axis for the panels of a row
    height: int = 0  # pixels of a panel; 0: as many as its marks need
    direct: bool = True  # names at the ends of lines where there is room, not in a legend


def specification(chart: Chart) -> dict[str, Any]:
    """{"data": [...], "layout": {...}}; layout.meta.narrow is what differs on a phone."""
    wide, phone = (_arranged(chart, phone).to_plotly_json() for phone in (False, True))
    layout, slim = ({k: v for k, v in s["layout"].items() if v != {}} for s in (wide, phone))
    narrow = {key: value for key, value in slim.items() if value != layout.get(key)}
    narrow |= {key: [] for key in layout if key not in slim}  # names at lines' ends
    return {"data": wide["data"], "layout": {**layout, "meta": {"narrow": narrow}}}


def _arranged(chart: Chart, phone: bool) -> "go.Figure":
    """The figure on one kind of screen."""
    from plotly.subplots import make_subplots

    panels = [_cropped(p) for p in chart.panels] if phone else chart.panels
    across = 1 if phone else chart.columns or len(panels)
    down = math.ceil(len(panels) / across)
    talls = [_tall(p, phone, chart.height) for p in panels]  # of each row: on a phone its own
    tall = max(talls)
    talls = talls if phone else [tall] * down
    names = _names(chart)
    labels = [] if phone else _labels(chart, names, tall)
    legend = not labels and len(names) > 1
    longest = max(map(len, names), default=0) * CHARACTER * 1.1 + 56
    rows = math.ceil(len(names) / max(1, (PHONE if phone else WIDE) // longest)) if legend else 0

    left = max(_room(p.y, phone) for p in panels)
    beside = [label["text"].partition("</span>")[2] for label in labels]
    right = max([EDGE, *(len(name) * CHARACTER + 26 for name in beside)])
    right = SCALE if any(t.type == "heatmap" for p in panels for t in p.traces) else right
    gap = 30 if chart.shared_y else left + 14
    plot = (PHONE if phone else WIDE) - left - right
    wide = (plot - gap * (across - 1)) / across
    over = TITLE * any(p.title for p in panels)
    over += LINE * any(r.across == "x" and r.name for p in panels for r in p.rules)
    under = LINE + 6 + TITLE * any(p.x.title for p in panels)
    foot = 22 * rows + 6 * legend
    inner = sum(talls) + (down - 1) * (over + under)

    figure = make_subplots(
        down,
        across,
        horizontal_spacing=gap / plot if across > 1 else None,
        vertical_spacing=(over + under) / inner if down > 1 else None,
        row_heights=talls,
        specs=[
            [{} if r * across + c < len(panels) else None for c in range(across)]
            for r in range(down)
        ],
    )
    top = max(over, EDGE)
    head = foot if phone and inner > HIGH else 0  # below so much nobody would look for it
    figure.update_layout(
        template=None,
        height=top + inner + under + foot,
        margin={"t": top + head, "r": right, "b": under + foot - head, "l": 0, "pad": 2},
        showlegend=legend,
    )
    if head:
        figure.update_layout(legend={"y": 1, "yanchor": "top"})
    listed: set[str] = set()
    for i, panel in enumerate(panels):
        row, column = divmod(i, across)
        at = {"row": row + 1, "col": column + 1}
        if panel.x.written:
            panel = replace(panel, x=panel.x.with_room(wide))
        for trace in (*(_ruled(rule, panel) for rule in panel.rules), *panel.traces):
            figure.add_trace(trace, **at)
            first = trace.name and trace.showlegend is None and trace.name not in listed
            figure.data[-1].update(showlegend=bool(first))
            listed.add(trace.name)
        for low, high, color in panel.bands:
            figure.add_vrect(
                low, high, fillcolor=color, opacity=0.14, line_width=0, layer="below", **at
            )
        fits = 1.15 * len(panel.x.title) * CHARACTER < wide + gap
        title = panel.x.title if fits or column == (across - 1) // 2 else ""
        figure.update_xaxes(_axis(panel.x, phone, wide, title, False), **at)
        own = phone or not chart.shared_y or column == 0
        title = panel.y.title if own else ""
        figure.update_yaxes(_axis(panel.y, phone, talls[row], title, True), **at)
        if not own:
            figure.update_yaxes(showticklabels=False, **at)
        for note in _notes(panel, wide):
            figure.add_annotation(note, **at)
    for label in labels:
        figure.add_annotation(label, **at)
    return figure


def _cropped(panel: Panel) -> Panel:
    """Without the names before the first and after the last that has a mark in this panel."""
    if not panel.y.names:
        return panel
    marked = {y for trace in panel.traces for y in trace.y}
    low = panel.y.low - (len(panel.y.names) - 1 - max(marked))
    return replace(panel, y=replace(panel.y, low=low, high=panel.y.high + min(marked)))


def _names(chart: Chart) -> list[str]:
    """What a legend lists, each name once; an upright rule has its name above it."""
    marks = [t.name for p in chart.panels for t in p.traces if t.name and t.showlegend is None]
    rules = [r.name for p in chart.panels for r in p.rules if r.name and r.across == "y"]
    return list(dict.fromkeys([*marks, *rules]))


def _room(axis: Axis, phone: bool) -> int:
    """Pixels beside a panel for the words of its axis; Plotly takes what it needs of the plot."""
    texts = [_wrapped(name, phone) for name in axis.names] or [text for _, text in axis.ticks]
    longest = max((len(line) for text in texts for line in text.split("<br>")), default=6)
    return longest * CHARACTER + TITLE * bool(axis.title) + 14


def _wrapped(name: str, phone: bool) -> str:
    """A name on an axis, its lines set apart: after a comma, where its parts are short."""
    parts = [p.replace(" ", "\u00a0") if len(p) < WRAP[phone] else p for p in name.split(", ")]
    lines = textwrap.wrap(
        ", ".join(parts), WRAP[phone], break_long_words=False, break_on_hyphens=False
    )
    return "<br>".join(lines)


def _tall(panel: Panel, phone: bool, asked: int) -> int:
    """Pixels of a panel: so many for each name on its axis, else as for a chart of lines."""
    if panel.y.names:
        shown = panel.y.names[math.ceil(panel.y.high) : math.floor(panel.y.low) + 1]
        lines = [1 + _wrapped(name, phone).count("<br>") for name in shown]
        return max(sum(max(13 + 15 * n + 8 * (n > 2), 20 * panel.y.beside + 10) for n in lines), 60)
    return min(asked or 240, 280) if phone else asked or 300


def _axis(axis: Axis, phone: bool, long: float, title: str, upright: bool) -> dict[str, Any]:
    """Properties of an axis that is so many pixels long."""
    found: dict[str, Any] = {"range": [axis.at(axis.low), axis.at(axis.high)]}
    if title:
        found["title"] = {"text": title}
    if axis.log:
        found["type"] = "log"
    if axis.names:
        ticks = [(float(i), _wrapped(name, phone)) for i, name in enumerate(axis.names)]
        found["showgrid"] = False
    else:
        ticks = _thinned(axis, long)
    if ticks:
        found |= {"tickvals": [at for at, _ in ticks], "ticktext": [text for _, text in ticks]}
    elif axis.format:
        found["tickformat"] = axis.format
    if axis.log and not ticks:  # 1, 2, 3, …; or 1, 2, 5, 10; or 1, 10, 100
        decade = long / (found["range"][1] - found["range"][0])
        needs = 24 if upright else 6 * CHARACTER
        steps = {"D1": 0.046, "D2": 0.301, 1: 1.0}
        found["dtick"] = next((d for d, part in steps.items() if part * decade >= needs), 2)
    return found


def _thinned(axis: Axis, long: float) -> list[tuple[float, str]]:
    """As many ticks as have room beside each other; the last one stays."""
    needs = (max((len(text) for _, text in axis.ticks), default=0) * CHARACTER + 6) / long
    shown: list[tuple[float, str]] = []
    for tick in reversed(axis.ticks):
        if not shown or abs(axis.part(shown[0][0]) - axis.part(tick[0])) > needs:
            shown.insert(0, tick)
    return shown


def _ruled(rule: Rule, panel: Panel) -> "go.Scatter":
    """A line from edge to edge, as a trace: it can be switched off like any other."""
    import plotly.graph_objects as go

    xs, ys = [panel.x.low, panel.x.high], [panel.y.low, panel.y.high]
    upright = rule.across == "x"
    return go.Scatter(
        mode="lines",
        name=rule.name,
        legendgroup=rule.name or None,
        showlegend=False if upright else None,
        legendrank=2000,  # behind the marks
        zorder=-1,  # and below them: a number that it crosses is read
        x=[rule.value] * 2 if upright else xs,
        y=ys if upright else [rule.value] * 2,
        line={"color": rule.color, "dash": rule.dash, "width": 1.5},
        hovertext=rule.name,
    )


def _notes(panel: Panel, wide: float) -> list[dict[str, Any]]:
    """The title of a panel, and the names of its upright rules, which do not touch."""
    above = {"y": 1, "yref": "y domain", "yanchor": "bottom"}
    rules = [rule for rule in panel.rules if rule.across == "x" and rule.name]
    rules.sort(key=lambda rule: rule.value)
    anchors = ["center"] * len(rules)
    for i, (one, next_) in enumerate(itertools.pairwise(rules)):
        free = (panel.x.part(next_.value) - panel.x.part(one.value)) * wide
        if free < (len(one.name) + len(next_.name)) * CHARACTER / 2 + 8:
            anchors[i : i + 2] = "right", "left"
    notes: list[dict[str, Any]] = []
    if panel.title:
        side = {"x": 0, "xref": "x domain", "xanchor": "left", "yshift": LINE * bool(rules) + 2}
        notes.append({"text": f"<b>{panel.title}</b>", "font": {"size": 13}, **side, **above})
    for rule, anchor in zip(rules, anchors, strict=True):
        notes.append({"text": rule.name, "x": panel.x.at(rule.value), "xanchor": anchor, **above})
    return notes


def _labels(chart: Chart, names: Sequence[str], tall: int) -> list[dict[str, Any]]:
    """Names at the right of the last panel, each as near to its line's end as the others let it.

    None where there are too many, or where not all names are of lines that end there.
    """
    if not chart.direct or not 1 < len(names) <= MOST_LABELS:
        return []
    last = chart.panels[-1]
    ends: list[tuple[float, str, str, str]] = []
    for trace in last.traces:
        there = [y for y in trace.y if y is not None] if "lines" in trace.mode else []
        if there and trace.name in names:
            end = (trace.name, trace.line.color, glyph(trace.marker.symbol))
            ends.append((last.y.part(there[-1]) * tall, *end))
    rules = [rule for rule in last.rules if rule.across == "y" and rule.name]
    ends += [(last.y.part(rule.value) * tall, rule.name, rule.color, "┄") for rule in rules]
    if {name for _, name, *_ in ends} < {*names}:
        return []
    ends.sort()
    heights = _apart([at for at, *_ in ends], tall)
    return [
        {
            "text": f'<span style="color:{color}">{mark}</span> {name}',
            "x": 1,
            "xref": "x domain",
            "xanchor": "left",
            "xshift": 4,
            "y": at / tall,
            "yref": "y domain",
            "yanchor": "middle",
            "align": "left",
        }
        for at, (_, name, color, mark) in zip(heights, ends, strict=True)
    ]


def _apart(wanted: Sequence[float], tall: float) -> list[float]:
    """Heights in order, LABELS apart and near to where they were wanted."""
    groups: list[tuple[float, int]] = []  # middle and number of those that touch
    for height in wanted:
        groups.append((min(max(height, 0), tall), 1))
        while (
            len(groups) > 1
            and groups[-1][0] - groups[-2][0] < LABELS * (groups[-1][1] + groups[-2][1]) / 2
        ):
            (a, n), (b, m) = groups[-2:]
            half = LABELS * (n + m - 1) / 2
            middle = (a * n + b * m) / (n + m)
            groups[-2:] = [(min(max(middle, half), max(tall - half, half)), n + m)]
    return [middle + LABELS * (i - (n - 1) / 2) for middle, n in groups for i in range(n)]


def linear(values: Sequence[float], from_zero: bool = True) -> tuple[float, float]:
    """The ends of a linear axis."""
    low, high = min(values), max(values)
    if from_zero:
        low, high = min(low, 0), max(high, 0)
    room = 0.06 * ((high - low) or abs(high) or 1)
    return (low - room if low < 0 or not from_zero else low), (high + room if high else high)


def logarithmic(values: Sequence[float]) -> tuple[float, float]:
    """The ends of a logarithmic axis."""
    low, high = (math.log10(end([v for v in values if v > 0])) for end in (min, max))
    room = 0.05 * (high - low) or 0.15
    return 10 ** (low - room), 10 ** (high + room)


def powers_of_two(low: float, high: float, most: int = 7) -> list[float]:
    """Powers of two for the ticks of an axis of sizes."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = max(1, math.ceil((last - first + 1) / most))
    return [2.0**power for power in range(first, last + 1) if power % step == 0]
