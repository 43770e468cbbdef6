"""What a chart shows, and where it goes: the one description that is drawn twice.

`charts.py` makes a Chart from results; `place` gives it ranges, ticks and room, once for a wide
screen and once for a phone; `specification.py` writes it for Plotly and `still.py` as SVG. Nothing
is left to either of them to choose, so the still is the chart before any script has come.

Values here are numbers in the unit of their axis; names on an axis are at 0, 1, 2, …
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

CHARACTER = 7  # pixels of a character of a tick or a label
LINE = 17  # pixels from one line of text to the next
LABELS = 19  # pixels from one name at a line's end to the next
SCALE = 86  # pixels of a heatmap's scale
EDGE = 12  # pixels that are free at a side with nothing on it
# A symbol as a letter that every font has: it keeps its shape however far a panel is stretched.
GLYPHS = {
    "circle": "●",
    "square": "■",
    "diamond": "◆",
    "triangle-up": "▲",
    "triangle-down": "▼",
    "cross": "✚",
    "x": "✕",
    "star": "★",
    "hexagon": "⬢",
    "line-ew": "–",
}
OPEN = {"circle": "○", "square": "□", "diamond": "◇", "triangle-up": "△", "triangle-down": "▽"}
GLYPHS |= {f"{name}-open": OPEN.get(name, glyph) for name, glyph in GLYPHS.items()}
WIDE, PHONE = 780, 350  # pixels of a chart
TITLE = 24  # pixels of a panel's or an axis' title
WRAP = {False: 34, True: 17}  # characters of a name on an axis, in one line
TOUCHING = 6  # pixels: lines that end no farther from each other end at the same place
MOST_LABELS = 9  # written at the lines' ends; more than these are a legend


@dataclass(frozen=True)
class Axis:
    """One direction of a panel."""

    title: str = ""
    log: bool = False
    low: float = 0.0
    high: float = 1.0
    ticks: tuple[tuple[float, str], ...] = ()
    names: tuple[str, ...] = ()  # instead of numbers
    room: bool = False  # numbers are written behind the marks

    def at(self, value: float) -> float:
        """A value as the axis counts: its logarithm, or itself."""
        return math.log10(value) if self.log else value

    def back(self, at: float) -> float:
        """The value at a place."""
        return float(10**at) if self.log else at


@dataclass(frozen=True)
class Mark:
    """A line, dots or bars: everything that is one entry of a legend in one panel."""

    kind: str  # line, dots, bars
    name: str
    x: tuple[float | None, ...]
    y: tuple[float | None, ...]
    colors: tuple[str, ...]  # one, or one for each mark
    symbols: tuple[str, ...] = ("circle",)
    dash: str = "solid"
    width: float = 2
    size: float = 7
    opacity: float = 1
    hover: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()  # written behind each mark
    low: tuple[float, ...] = ()  # the ends of a spread, along the value axis
    high: tuple[float, ...] = ()
    base: tuple[float, ...] = ()  # where bars begin
    thickness: float = 0.7  # of bars, in places of the axis
    upright: bool = False
    listed: bool = True  # in the legend


@dataclass(frozen=True)
class Rule:
    """A line across a panel: a ceiling, a size of the device."""

    value: float
    name: str
    across: str = "y"  # the axis on which its value lies
    color: str = "#808a94"
    dash: str = "dash"
    opacity: float = 1


@dataclass(frozen=True)
class Band:
    """A shaded range of the x axis."""

    low: float
    high: float
    color: str


@dataclass(frozen=True)
class Panel:
    """One coordinate system."""

    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    rules: tuple[Rule, ...] = ()
    bands: tuple[Band, ...] = ()
    grid: tuple[tuple[float, ...], ...] = ()  # a heatmap's values, row by row
    cells: tuple[tuple[str, ...], ...] = ()  # and what is said of each
    measure: str = ""  # what they are


@dataclass(frozen=True)
class Chart:
    """Panels in rows of `columns`; what they share is asked for once."""

    panels: tuple[Panel, ...]
    columns: int = 0  # 0: all panels side by side
    shared_y: bool = True  # one axis for the panels of a row
    height: int = 0  # pixels of a panel; 0: as many as its marks need
    direct: bool = True  # names at the ends of lines where there is room, not in a legend


@dataclass(frozen=True)
class Label:
    """A name at the end of a line: a swatch of its color and ink."""

    text: str
    color: str
    swatch: str
    at: float  # where on the panel's height, from 0 (below) to 1


@dataclass(frozen=True)
class Spot:
    """Where a panel lies, as parts of the plot's width and height, and its axes there."""

    left: float
    right: float
    bottom: float
    top: float
    x: Axis
    y: Axis
    show_x_title: bool
    show_y: bool
    labels: tuple[Label, ...] = ()
    anchors: tuple[str, ...] = ()  # how the names of upright rules are held: start, middle, end


@dataclass(frozen=True)
class Placement:
    """A chart on one kind of screen, in pixels."""

    height: int
    margin: dict[str, int]  # t, r, b, l
    spots: tuple[Spot, ...]
    legend: tuple[Mark | Rule, ...] = field(default=())
    legend_rows: int = 0


def entries(chart: Chart) -> list[Mark | Rule]:
    """What a legend lists, each name once."""
    found: dict[str, Mark | Rule] = {}
    for panel in chart.panels:
        for item in _listed(panel):
            found.setdefault(item.name, item)
    return list(found.values())


def _listed(panel: Panel) -> list[Mark | Rule]:
    """What a panel has to name: its marks, and the rules that lie along with them."""
    marks = [mark for mark in panel.marks if mark.name and mark.listed]
    return [*marks, *(rule for rule in panel.rules if rule.name and rule.across == "y")]


def place(chart: Chart, phone: bool) -> Placement:
    """Everything about a chart that depends on the screen."""
    across = 1 if phone else chart.columns or len(chart.panels)
    down = math.ceil(len(chart.panels) / across)
    listed = entries(chart)
    lines = all(isinstance(item, Rule) or item.kind == "line" for item in listed)
    last = chart.panels[-1]
    ends = {item.name for item in _listed(last)}
    direct = (
        chart.direct
        and not phone
        and lines
        and 1 < len(listed) <= MOST_LABELS
        and ends >= {item.name for item in listed}
    )
    legend = () if direct or len(listed) < 2 else tuple(listed)
    longest = max((len(item.name) for item in listed), default=0)
    tall = max(_tall(p, phone, chart.height) for p in chart.panels)
    labels = _labels(last, _named(last.y, phone), tall) if direct else ()
    widest = max((len(label.text) for label in labels), default=0)
    screen = PHONE if phone else WIDE
    beside = max(1, int(screen // (longest * CHARACTER * 1.1 + 56)))
    rows_of_legend = math.ceil(len(legend) / beside)

    ys = [_named(p.y, phone) for p in chart.panels]
    shared = chart.shared_y and not phone
    names = [max((_width(text) for _, text in y.ticks), default=0) for y in ys]
    titled = [TITLE * bool(p.y.title) for p in chart.panels]
    first = [i for i in range(len(ys)) if i % across == 0]
    left = round(max(names[i] + titled[i] for i in first)) + 14
    gap = 22 if shared else round(max(names) + max(titled)) + 26
    gap = max(gap, round(_overhang(chart.panels)) + 10)
    right = round(widest * CHARACTER) + 26 if direct else EDGE
    right = max(right, SCALE) if any(p.grid for p in chart.panels) else right
    right = max(right, round(_overhang(chart.panels) / 2) + 4)
    plot = max(screen - left - right, 120)
    wide = (plot - gap * (across - 1)) / across

    over = TITLE * any(p.title for p in chart.panels)
    over += LINE * any(r.across == "x" and r.name for p in chart.panels for r in p.rules)
    under = LINE + 6 + TITLE * any(p.x.title for p in chart.panels)
    foot = 22 * rows_of_legend + 6 * bool(legend)
    top = max(over, EDGE)
    inner = down * tall + (down - 1) * (over + under)
    height = top + inner + under + foot
    spots = []
    for i, panel in enumerate(chart.panels):
        row, column = divmod(i, across)
        x0 = column * (wide + gap) / plot
        y1 = 1 - row * (tall + over + under) / inner
        x = _with_room(panel, _thinned(_named(panel.x, phone), wide), wide)
        y = ys[i]
        spot = Spot(
            left=x0,
            right=x0 + wide / plot,
            bottom=y1 - tall / inner,
            top=y1,
            x=x,
            y=y,
            show_x_title=1.15 * _width(panel.x.title) < wide + gap or column == (across - 1) // 2,
            show_y=not shared or column == 0,
            labels=labels if panel is last else (),
            anchors=_anchors(panel, x, wide),
        )
        spots.append(spot)
    margin = {"t": top, "r": right, "b": under + foot, "l": left}
    return Placement(height, margin, tuple(spots), legend, rows_of_legend)


def named_uprights(panel: Panel) -> list[Rule]:
    """The rules that have a name above the panel."""
    return [rule for rule in panel.rules if rule.across == "x" and rule.name]


def _anchors(panel: Panel, x: Axis, wide: float) -> tuple[str, ...]:
    """How to hold the names of two upright rules so that they do not touch, `wide` in pixels."""
    rules = named_uprights(panel)
    held = ["middle"] * len(rules)
    span = x.at(x.high) - x.at(x.low) or 1
    order = sorted(range(len(rules)), key=lambda i: rules[i].value)
    for left, right in itertools.pairwise(order):
        free = (x.at(rules[right].value) - x.at(rules[left].value)) / span * wide
        if free < (_width(rules[left].name) + _width(rules[right].name)) / 2 + 8:
            held[left], held[right] = "end", "start"
    return tuple(held)


def wrapped(text: str, characters: int) -> list[str]:
    """Lines of a name on an axis."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if len(longer) <= characters or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _named(axis: Axis, phone: bool) -> Axis:
    if not axis.names:
        return axis
    ticks = [(float(i), "<br>".join(wrapped(n, WRAP[phone]))) for i, n in enumerate(axis.names)]
    return replace(axis, ticks=tuple(ticks))


def _overhang(panels: Sequence[Panel]) -> float:
    """Pixels by which the last tick of a panel and the first of the next may stand out."""
    ends = [(_width(p.x.ticks[0][1]), _width(p.x.ticks[-1][1])) for p in panels if p.x.ticks]
    return max((max(a, b) for a, b in ends), default=0)


def _width(text: str) -> float:
    return max(len(line) for line in text.split("<br>")) * CHARACTER


def _tall(panel: Panel, phone: bool, asked: int) -> int:
    """Pixels of a panel: so many for each name on its axis, else as for a chart of lines."""
    if panel.y.names and not panel.grid:
        lines = [len(wrapped(name, WRAP[phone])) for name in panel.y.names]
        slots = max(_slots(panel), 1)
        return max(sum(max(13 + 15 * n, 20 * slots + 10) for n in lines), 60)
    if phone:
        return min(asked or 240, 280)
    return asked or 300


def _slots(panel: Panel) -> int:
    """How many bars or dots of different names stand at one place of an axis of names."""
    bars = [m for m in panel.marks if m.kind == "bars" and not m.upright]
    return round(0.8 / min(m.thickness for m in bars)) if bars else 1


def _thinned(axis: Axis, wide: float) -> Axis:
    """An axis with as many of its ticks as have room beside each other."""
    ticks = list(axis.ticks)
    if len(ticks) < 3 or axis.names:
        return axis
    low, high = axis.at(axis.low), axis.at(axis.high)

    def crowded(shown: Sequence[tuple[float, str]]) -> bool:
        for (a, left), (b, right) in itertools.pairwise(shown):
            free = abs(axis.at(b) - axis.at(a)) / (abs(high - low) or 1) * wide
            if free < (_width(left) + _width(right)) / 2 + 6:
                return True
        return False

    for step in (1, 2, 3):
        shown = ticks[::-1][::step][::-1]  # the last one stays
        if not crowded(shown):
            return replace(axis, ticks=tuple(shown))
    shown = ticks[-1:]
    for tick in ticks[-2::-1]:
        if not crowded([tick, *shown]):
            shown.insert(0, tick)
    return replace(axis, ticks=tuple(shown))


def _with_room(panel: Panel, axis: Axis, wide: float) -> Axis:
    """An axis of values that is long enough for the numbers behind the marks."""
    if not axis.room:
        return axis
    low, high = axis.at(axis.low), axis.at(axis.high)
    top, bottom = high, low
    for mark in panel.marks:
        for value, text in zip(mark.high or mark.x, mark.texts, strict=False):
            if value is None or not text or (axis.log and value <= 0):
                continue
            part = min((len(text) * CHARACTER + 14) / wide, 0.6)
            if value < 0:  # written before a bar that goes to the left
                bottom = min(bottom, (axis.at(value) - part * high) / (1 - part))
            else:
                top = max(top, (axis.at(value) - part * low) / (1 - part))
    return replace(axis, low=axis.back(bottom), high=axis.back(top))


def _labels(panel: Panel, y: Axis, tall: float) -> tuple[Label, ...]:
    """Names at the right of a panel, each as near to its line's end as the others let it."""
    low, high = y.at(y.low), y.at(y.high)
    found = []
    for item in _listed(panel):
        if isinstance(item, Rule):
            end, color, swatch = item.value, item.color, "┄"
        else:
            there = [v for v in item.y if v is not None]
            if not there:
                continue
            end, color = there[-1], item.colors[0]
            swatch = GLYPHS[item.symbols[0]]
        found.append(((y.at(end) - low) / (high - low) * tall, item.name, color, swatch))
    found = _joined(sorted(found, key=lambda entry: entry[0]))
    places = _apart([entry[0] for entry in found], LABELS, tall)
    return tuple(
        Label(text, color, swatch, at / tall)
        for at, (_, text, color, swatch) in zip(places, found, strict=True)
    )


def _joined(found: Sequence[tuple[float, str, str, str]]) -> list[tuple[float, str, str, str]]:
    """Lines of one color that end at the same place have one label: "sm_80, sm_90"."""
    joined: list[tuple[float, str, str, str]] = []
    for at, name, color, swatch in found:
        below = joined[-1] if joined else None
        if below and below[2] == color and at - below[0] < TOUCHING:
            joined[-1] = (below[0], f"{below[1]}, {name}", color, swatch)
        else:
            joined.append((at, name, color, swatch))
    return joined


def _apart(wanted: Sequence[float], least: float, tall: float) -> list[float]:
    """Places in order, at least so far from each other and near to where they were wanted."""
    groups: list[tuple[float, int]] = []  # middle and number of those that touch
    for place_ in wanted:
        groups.append((min(max(place_, 0), tall), 1))
        while len(groups) > 1:
            (a, n), (b, m) = groups[-2:]
            if b - a >= least * (n + m) / 2:
                break
            middle = (a * n + b * m) / (n + m)
            half = least * (n + m - 1) / 2
            groups[-2:] = [(min(max(middle, half), max(tall - half, half)), n + m)]
    return [
        middle + least * (i - (number - 1) / 2) for middle, number in groups for i in range(number)
    ]


def linear(
    values: Sequence[float], from_zero: bool = True, pad: float = 0.06
) -> tuple[float, float]:
    """The ends of a linear axis."""
    low, high = min(values), max(values)
    if from_zero:
        low, high = min(low, 0), max(high, 0)
    room = pad * ((high - low) or abs(high) or 1)
    bottom = low - room if low < 0 or not from_zero else low
    return bottom, (high + room if high > 0 or high == low else high)


def logarithmic(values: Sequence[float], pad: float = 0.05) -> tuple[float, float]:
    """The ends of a logarithmic axis."""
    positive = [v for v in values if v > 0] or [1.0]
    low, high = math.log10(min(positive)), math.log10(max(positive))
    room = pad * (high - low) or 0.15
    return 10 ** (low - room), 10 ** (high + room)


def round_steps(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers for the ticks of a linear axis."""
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= least * 0.999)
    start = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(start, math.floor(high / step + 1e-9) + 1)]


def powers_of_two(low: float, high: float, most: int = 7) -> list[float]:
    """Powers of two for the ticks of an axis of sizes."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = max(1, math.ceil((last - first + 1) / most))
    return [2.0**power for power in range(first, last + 1) if power % step == 0]


def round_powers(low: float, high: float, most: int = 8) -> list[float]:
    """Round numbers for the ticks of a logarithmic axis: 1, 2, 5 or 1, 3 or powers of ten."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for parts in ((1, 2, 5), (1, 3), (1,)):
        found = [float(f"{m}e{e}") for e in range(first, last + 1) for m in parts]
        found = [v for v in found if low <= v <= high]
        if len(found) <= most and len(found) >= 2:
            return found
    found = [10.0**e for e in range(first, last + 1) if low <= 10.0**e <= high]
    return found[:: math.ceil(len(found) / most)] if len(found) > 1 else [low, high]
