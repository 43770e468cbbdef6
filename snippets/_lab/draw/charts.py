"""Charts from results: lines, points, bars, dots, a roofline, a heatmap.

Each takes the results of all devices, the reference first, and says by names what is drawn: which
series (implementations, or parts of the rows), which views (panels), which quantities. The loops
over devices, colors, units and legends are here; a room has none. chart.py arranges the panels.
"""

import html
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, product
from typing import TYPE_CHECKING, Any, NamedTuple

from snippets._lab.draw import units
from snippets._lab.draw.chart import Axis, Chart, Panel, Rule, linear, logarithmic, powers_of_two
from snippets._lab.draw.identity import HEAT, Identity, identity, strength
from snippets._lab.draw.rows import (
    RATE,
    TIME,
    Quantity,
    Row,
    ceiling,
    device_name,
    quantity,
    spread,
    values,
)
from snippets._lab.draw.units import Scale
from snippets._lab.results.store import DataError, Result

if TYPE_CHECKING:  # Plotly itself is imported where it draws: no kernel's test needs it
    import plotly.graph_objects as go

Where = Mapping[str, Any] | Callable[[Row], bool]
MOST_TICKS = 12  # values of an axis that are each a tick
ERROR = Quantity("largest difference from float64", "largest", units.difference)
LIGHTNESS = [[i / 2, color] for i, color in enumerate(HEAT)]  # falls, so gray tells the same


@dataclass(frozen=True)
class Series:
    """What has one look and one name: a line, or a bar at its place.

    `key` names the identity, and unless there is a `where` the rows with that `implementation`.
    """

    key: str
    name: str = ""  # if not that of the identity
    where: Where | None = None
    value: Quantity | str | None = None  # if not that of the chart
    like: str = ""  # the identity whose look it has, if not that of `key`
    shade: int = 0  # tells parts of one room apart
    symbol: str = ""
    dash: str = ""
    joined: bool = True
    width: float = 2
    size: float = 0
    spread: tuple[str, str] | None = None  # the fields of the ends of a bar of spread
    told: Callable[[Row], str] | None = None  # what pointing at a mark says
    label: tuple[str, str] = ("", "")  # what stands beside its marks, and where: "top left"

    @property
    def look(self) -> Identity:
        """Its color, symbol and dash, and the name that it has, with markup escaped."""
        found = identity(self.like or self.key, self.shade)
        name = html.escape(self.name or found.name, quote=False)
        symbol, dash = self.symbol or found.symbol, self.dash or found.dash
        return replace(found, name=name, symbol=symbol, dash=dash)

    def takes(self, row: Row) -> bool:
        """Whether a row is one of its own."""
        return _takes({"implementation": self.key} if self.where is None else self.where, row)


@dataclass(frozen=True)
class View:
    """A panel: its title, its rows, and what it draws if not what the chart draws."""

    title: str = ""
    where: Where = field(default_factory=dict)
    y: Quantity | str | None = None
    log: str | None = None
    bands: Sequence[tuple[float, float, str]] = ()  # shaded ranges of x: from, to, identity


@dataclass(frozen=True)
class Reference:
    """A line to compare with: a number, or one of each device, in the unit of the raw data."""

    name: str
    of: float | Callable[[Result], float]
    across: str = "y"  # the axis that has its value
    key: str = "ceiling"


def at_ceiling(unit: str, name: str, across: str = "y") -> Reference:
    """A ceiling that was measured in the same run: read, copy, memory, matmul_float16, …"""
    return Reference(name, lambda result: ceiling(result, unit), across)


Views = Mapping[str, Where] | Sequence[View]
ALL = (View(),)


def views(label: str, axis: str, cases: Sequence[Any]) -> list[View]:
    """A panel for each value of a field: views("D {}", "D", [64, 128])."""
    names = [units.count(case) if type(case) in (int, float) else case for case in cases]
    return [View(label.format(n), {axis: case}) for n, case in zip(names, cases, strict=True)]


def by_mask(rows: Sequence[Row], **further: Any) -> list[View]:
    """A view for each D, without a mask and with a causal one."""
    pairs = product(values(rows, "D"), {"no mask": False, "causal": True}.items())
    return [
        View(f"D {D}, {mask}", {"D": D, "causal": causal, **further}) for D, (mask, causal) in pairs
    ]


def lines(
    results: Sequence[Result],
    series: Sequence[str | Series],
    x: Quantity | str = "N",
    y: Quantity | str = TIME,
    views: Views = ALL,
    *,
    log: str = "xy",
    references: Sequence[Reference] = (),
    columns: int = 0,
    height: int = 0,
    joined: bool = True,
    from_zero: bool = True,
    ticks: Mapping[str, Sequence[float]] | None = None,
) -> Chart:
    """A line for each series and device, in each view.

    `log` names the logarithmic axes, "xy", "x", "y" or ""; `ticks` are for what the rows do not
    tell, by axis and in the unit of the raw data.
    """
    rules, ticks = _references(references, results), ticks or {}
    chosen = [replace(one, joined=one.joined and joined) for one in _series(series)]
    found: defaultdict[Any, list[float]] = defaultdict(list)  # of all panels that share an axis
    shown = []
    for view in _panels(views):
        across, up = quantity(x), quantity(view.y or y)
        upright = (up, log if view.log is None else view.log)
        drawn = list(_lines(results, chosen, view, across, up))
        for line in drawn:
            found[across] += line.x
            found[upright] += [v for v in chain(line.y, *line.ends) if v is not None]
        if not any(line.y for line in drawn):
            raise DataError(f"nothing to draw of {up.name} in {view.title or 'the chart'}")
        shown.append((view, across, upright, drawn))
    made = []
    for view, across, upright, drawn in shown:
        up, logs = upright
        told = [*found[upright], *(rule.value for rule in rules if rule.across == "y")]
        x_scale, x_axis = _axis(
            across, found[across], "x" in logs, False, ticks.get("x"), each=True
        )
        y_scale, y_axis = _axis(up, told, "y" in logs, from_zero, ticks.get("y"))
        per = {"x": x_scale.per, "y": y_scale.per}
        made.append(
            Panel(
                html.escape(view.title, quote=False),
                x_axis,
                y_axis,
                [line.trace(across.name, x_scale, y_scale) for line in drawn if line.x],
                [replace(rule, value=rule.value / per[rule.across]) for rule in rules],
                [(a / per["x"], b / per["x"], identity(key).color) for a, b, key in view.bands],
            )
        )
    same = len({upright for _, _, upright, _ in shown}) == 1 < len(made)
    cards = {r.folder for r in results if r.place == "gpu"}  # each can be hidden in a legend
    return Chart(made, columns, same, height, direct=len(cards) < 2)


points = partial(lines, joined=False)  # the same with nothing between the points


class _Line(NamedTuple):
    """A series of one device in one view, in the units of the raw data."""

    series: Series
    look: Identity
    opacity: float
    x: list[float]
    y: list[float | None]
    told: list[str]
    ends: list[list[float]]  # of its spread

    def trace(self, across: str, x: Scale, y: Scale) -> "go.Scatter":
        import plotly.graph_objects as go

        one, look = self.series, self.look
        line = {"color": look.color, "dash": look.dash, "width": one.width}
        size = one.size or (6 if one.joined else 9)
        label, where = one.label
        mode = "lines+markers" if one.joined else "markers"
        return go.Scatter(
            mode=f"{mode}+text" if label else mode,
            text=[label] * len(self.x) if label else None,
            textposition=where or None,
            name=look.name,
            legendgroup=look.name,
            x=[v / x.per for v in self.x],
            y=[None if v is None else v / y.per for v in self.y],
            hovertext=[
                f"{look.name}<br>{across} {x.text(at)}: {said or ('–' if v is None else y.text(v))}"
                for at, v, said in zip(self.x, self.y, self.told, strict=True)
            ],
            opacity=self.opacity,
            marker={"color": look.color, "symbol": look.symbol, "size": size},
            line=line if one.joined else None,
            error_y=_spread(self.y, self.ends, y),
        )


def _spread(
    middle: Sequence[float | None], ends: Sequence[Sequence[float]], scale: Scale
) -> dict[str, Any] | None:
    """Bars from low ends to high ones, as Plotly counts them; None for none."""
    if not any(ends):
        return None
    minus, plus = (
        [abs(end - at) / scale.per for end, at in zip(side, middle, strict=True) if at is not None]
        for side in ends
    )
    return {"type": "data", "symmetric": False, "array": plus, "arrayminus": minus, "thickness": 1}


def _lines(
    results: Sequence[Result],
    series: Sequence[Series],
    view: View,
    across: Quantity,
    up: Quantity,
) -> Iterator[_Line]:
    for (device, result), one in product(enumerate(results), series):
        mine = quantity(one.value or up)
        rows = [
            (at, r) for r in _chosen(result, one.takes, view.where) if (at := across(r)) is not None
        ]
        rows.sort(key=lambda item: item[0])
        look = one.look
        if len(results) > 1:
            look = replace(look, name=f"{look.name}, {device_name(result)}")
        yield _Line(
            one,
            look,
            strength(device),
            [at for at, _ in rows],
            [mine(r) for _, r in rows],
            [one.told(r) if one.told else spread(r) if mine == TIME else "" for _, r in rows],
            [[r[end] for _, r in rows] for end in one.spread or ()],
        )


class _Mark(NamedTuple):
    """A bar or a dot: its device, its group, its place, its row and its number."""

    device: int
    group: int
    at: int
    row: Row
    number: float


def bars(
    results: Sequence[Result],
    places: Sequence[str | Series],
    value: Quantity | str = TIME,
    views: Views = ALL,
    *,
    groups: Sequence[Series] = (),
    log: bool = False,
    references: Sequence[Reference] = (),
    texts: bool = True,
    columns: int = 0,
    ends: tuple[float, float] | None = None,
    dotted: bool = False,
) -> Chart:
    """A lying bar for each place, in each view; of each device.

    `groups` put several bars at a place, each with the look of its series; a group without a key
    leaves each place its look, and its symbol alone tells.
    """
    at = _series(places)
    beside = 1 if dotted else len(results) * (len(groups) or 1)
    names = tuple(place.look.name for place in at)
    naming = Axis("", low=len(at) - 0.4, high=-0.6, names=names, beside=beside)  # the first on top
    rules = [replace(r, across="x") for r in _references(references, results)]
    found: defaultdict[Quantity, list[float]] = defaultdict(list)  # of all panels alike
    shown = []
    for view in _panels(views):
        counted = quantity(view.y or value)
        marks = [
            _Mark(device, g, i, row, number)
            for device, result in enumerate(results)
            for g, group in enumerate(groups or [None])
            for i, place in enumerate(at)
            for row in _rows(result, place, group, view)
            if (number := counted(row)) is not None
        ]
        if not marks:
            raise DataError(f"nothing to draw of {counted.name} in {view.title or 'the chart'}")
        found[counted] += [mark.number for mark in marks]
        shown.append((view, counted, marks))

    def trace(marks: Sequence[_Mark], scale: Scale, timed: bool) -> "go.Bar | go.Scatter":
        """The bars or dots of one group and one device."""
        import plotly.graph_objects as go

        device, group = marks[0].device, groups[marks[0].group] if groups else None
        look = group.look if group and (group.key or group.like) else None  # or of each place
        name = look.name if look else group.name if group else ""
        if len(results) > 1:
            name = ", ".join(filter(None, [name, device_name(results[device])]))
        said = [scale.text(mark.number) for mark in marks]
        hover = []
        for mark, text in zip(marks, said, strict=True):
            told = at[mark.at].told or (group and group.told) or (spread if timed else None)
            head = f"{names[mark.at]}, {name}" if name else names[mark.at]
            hover.append(f"{head}<br>{told(mark.row) if told else text}")
        looks = [look or at[mark.at].look for mark in marks]
        symbols = [group.symbol if group and group.symbol else each.symbol for each in looks]
        shared = {
            "x": [mark.number / scale.per for mark in marks],
            "y": [mark.at for mark in marks],
            "name": name,
            "legendgroup": name or None,
            "showlegend": None if name else False,
            "opacity": strength(device),
            "hovertext": hover,
            "cliponaxis": not texts,
        }
        color = _one_or_all([each.color for each in looks])
        if dotted:
            return go.Scatter(
                mode="markers+text" if texts else "markers",
                marker={"color": color, "symbol": _one_or_all(symbols), "size": 9 + 2 * texts},
                text=[f"\u2002{scale.number(mark.number)}" for mark in marks] if texts else None,
                textposition="middle right" if texts else None,
                **shared,
            )
        fields = (group.spread if group else None) or at[0].spread or ()
        ends = [[mark.row[field] for mark in marks] for field in fields]
        errors = _spread([mark.number for mark in marks], ends, scale)
        return go.Bar(
            orientation="h",
            marker={"color": color},
            text=said if texts else None,
            textposition=("auto" if errors else "outside") if texts else None,
            error_x=errors,
            **shared,
        )

    made = []
    for view, counted, marks in shown:
        logged = log if view.log is None else bool(view.log)
        every = [*found[counted], *(rule.value for rule in rules)]
        scale, axis = _axis(counted, every, logged, not dotted, ends=ends)
        if texts:
            said = scale.number if dotted else scale.text
            axis = replace(axis, written=[(v / scale.per, len(said(v))) for v in every])
        sorts = dict.fromkeys((mark.device, mark.group) for mark in marks)
        made.append(
            Panel(
                html.escape(view.title, quote=False),
                axis,
                naming,
                [
                    trace([m for m in marks if (m.device, m.group) == sort], scale, counted == TIME)
                    for sort in sorts
                ],
                [replace(rule, value=rule.value / scale.per) for rule in rules],
            )
        )
    return Chart(made, columns, direct=False)


# A dot for each place in each view and device.
dots = partial(bars, dotted=True, log=True, texts=False)


def _rows(result: Result, place: Series, group: Series | None, view: View) -> list[Row]:
    wheres = [view.where, *([group.takes] if group else [])]
    if not group or group.where is None or place.where is not None:  # else the group tells the rows
        wheres.append(place.takes)
    rows = _chosen(result, *wheres)
    if len(rows) > 1:
        raise DataError(f"{len(rows)} rows for {place.name or place.key} in {view.title!r}")
    return rows


def _one_or_all(found: list[str]) -> str | list[str]:
    return found[0] if len({*found}) == 1 else found


def roofline(
    results: Sequence[Result],
    series: Sequence[str | Series],
    x: Quantity,
    roofs: Mapping[str, str],
) -> Chart:
    """Rates against intensity below the ceilings of the same run.

    `roofs`: a unit's ceiling → what it is called. The slope is that of reading.
    """
    at = [v for result in results for r in result.rows if not r.get("error") and (v := x(r))]
    made = []
    for result in results:
        slope = ceiling(result, "read")
        tops = {name: ceiling(result, unit) for unit, name in roofs.items()}
        low, high = (end([*at, *(top / slope for top in tops.values())]) for end in (min, max))
        corners = [
            {"roof": name, "x": place, "y": min(place * slope, top)}
            for name, top in tops.items()
            for place in (low / 1.5, top / slope, high * 1.5)
        ]
        made.append(replace(result, rows=[*result.rows, *corners]))
    across = Quantity(x.name, lambda r: r["x"] if "roof" in r else x(r), x.unit)
    up = Quantity(RATE.name, lambda r: r["y"] if "roof" in r else RATE(r), RATE.unit)

    def below(one: Series) -> Series:
        """A series that leaves the roofs alone, and tells its time beside its rate."""
        return replace(
            one,
            where=lambda row: "roof" not in row and one.takes(row),
            told=one.told or (lambda row: f"{RATE.text(row)}<br>{spread(row)}"),
            size=one.size or 8,
        )

    drawn = [
        *(
            Series("ceiling", name, {"roof": name}, dash=dash, size=0.1)
            for name, dash in zip(roofs.values(), ("solid", "dash", "dot"), strict=False)
        ),
        *map(below, _series(series)),
    ]
    return lines(made, drawn, across, up, height=400)


def heatmap(
    results: Sequence[Result],
    x: str,
    y: str,
    value: Quantity,
    told: Callable[[Row], str] | None = None,
) -> Chart:
    """A cell for each pair of two fields, the stronger the larger its value; a panel a device."""
    import plotly.graph_objects as go

    panels = []
    for result in results:
        columns, lines_ = values(result.rows, x), values(result.rows, y)
        at = {(r[y], r[x]): r for r in result.rows}

        def says(row: Row) -> str:
            more = f"<br>{told(row)}" if told else ""
            return f"{y} {row[y]}, {x} {row[x]}: {value.text(row)}{more}"

        trace = go.Heatmap(
            z=[[float(value(at[b, a]) or 0) for a in columns] for b in lines_],
            hovertext=[[says(at[b, a]) for a in columns] for b in lines_],
            zmin=0,
            zmax=1,
            colorscale=LIGHTNESS,
            colorbar={
                "title": {"text": value.name, "side": "right"},
                "thickness": 12,
                "tickvals": [0, 0.5, 1],
                "ticktext": [units.percent(v) for v in (0.0, 0.5, 1.0)],
                "x": 1.02,
                "xanchor": "left",
            },
            xgap=1,
            ygap=1,
        )
        panels.append(
            Panel(
                device_name(result) if len(results) > 1 else "",
                Axis(x, low=-0.5, high=len(columns) - 0.5, ticks=_each(columns)),
                Axis(y, low=len(lines_) - 0.5, high=-0.5, ticks=_each(lines_)),
                [trace],
            )
        )
    return Chart(panels, 1, height=26 * len(lines_) + 20)


def _each(found: Sequence[Any]) -> tuple[tuple[float, str], ...]:
    return tuple((float(i), str(v)) for i, v in enumerate(found))


def _series(given: Sequence[str | Series]) -> list[Series]:
    return [one if isinstance(one, Series) else Series(one) for one in given]


def _panels(given: Views) -> list[View]:
    if isinstance(given, Mapping):
        return [View(title, where) for title, where in given.items()]
    return list(given)


def _chosen(result: Result, *wheres: Where) -> list[Row]:
    """The measured rows that all of some conditions take."""
    return [r for r in result.rows if not r.get("error") and all(_takes(w, r) for w in wheres)]


def _takes(where: Where, row: Row) -> bool:
    if callable(where):
        return where(row)
    return all(row.get(name) == value for name, value in where.items())


def _references(references: Sequence[Reference], results: Sequence[Result]) -> list[Rule]:
    """Each as a rule in the unit of the raw data, once or for each device."""
    found = []
    for one in references:
        color = identity(one.key).color
        dash = "dash" if one.key == "ceiling" else "solid"
        if not callable(one.of):
            found.append(Rule(one.of, one.name, one.across, color, dash))
            continue
        for result in results:
            name = f"{one.name}, {device_name(result)}" if len(results) > 1 else one.name
            found.append(Rule(one.of(result), name, one.across, color, dash))
    return found


def _axis(
    of: Quantity,
    found: Sequence[float],
    log: bool,
    from_zero: bool,
    ticks: Sequence[float] | None = None,
    ends: tuple[float, float] | None = None,
    each: bool = False,
) -> tuple[Scale, Axis]:
    """The one unit of an axis and its range; with `each`, whole numbers are ticks while few."""
    scale = of.unit.scale(found, small=log)
    shown = [v / scale.per for v in found]
    if ends:
        low, high = (v / scale.per for v in ends)
    else:
        low, high = logarithmic(shown) if log else linear(shown, from_zero)
    at = ticks or ()
    text = scale.number
    title = f"{of.name}, {scale.name}" if scale.name else of.name
    if of.unit is units.binary:  # powers of two: each with its own unit
        at, text, title = powers_of_two(low * scale.per, high * scale.per), units.binary, of.name
    elif not ticks and each and of.unit is units.whole and len({*found}) <= MOST_TICKS:
        at = sorted({*found})
    told = tuple((v / scale.per, text(v)) for v in at if low <= v / scale.per <= high)
    format_ = ".0e" if scale.digits is units.error else ",~r" if high >= units.MANY else ""
    return scale, Axis(title, log, low, high, told, format_)
