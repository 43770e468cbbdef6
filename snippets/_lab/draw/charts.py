"""Charts from results: lines, points, bars, dots, a roofline, a heatmap.

Each takes the results of all devices, the reference first, and says by names what is drawn: which
series (implementations, or parts of the rows), which views (panels), which quantities. The loops
over devices, colors, units, ticks, legends and the phone's layout are here; a room has none.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from snippets._lab.draw import units
from snippets._lab.draw.chart import (
    Axis,
    Band,
    Chart,
    Mark,
    Panel,
    Rule,
    linear,
    logarithmic,
    powers_of_two,
    round_powers,
    round_steps,
)
from snippets._lab.draw.identity import ORDER, OTHERS, Identity, identity, strength
from snippets._lab.draw.rows import (
    INTENSITY,
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

Where = Mapping[str, Any] | Callable[[Row], bool]
SMALL = 5  # pixels of a gray point: what lies below it, in color, shows around it
MOST_TICKS = 12  # values of an axis that are each a tick
ERROR = Quantity("largest difference from float64", "largest", units.difference)


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
    dtype: str = ""  # seen in the dash
    symbol: str = ""
    dash: str = ""
    joined: bool = True
    width: float = 2
    size: float = 0
    spread: tuple[str, str] | None = None  # the fields of the ends of a bar of spread
    told: Callable[[Row], str] | None = None  # what pointing at a mark says

    @property
    def look(self) -> Identity:
        """Its color, symbol and dash, and the name that it has, with markup escaped."""
        found = identity(self.like or self.key, self.shade, self.dtype)
        return replace(found, name=html.escape(self.name or found.name, quote=False))


@dataclass(frozen=True)
class View:
    """A panel: its title, its rows, and what it draws if not what the chart draws."""

    title: str = ""
    where: Where = field(default_factory=dict)
    x: Quantity | str | None = None
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
    return [View(label.format(units.count(c) if _is_number(c) else c), {axis: c}) for c in cases]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
    by_device: bool = False,
    from_zero: bool = True,
    ticks: Mapping[str, Sequence[float]] | None = None,
    ends: Mapping[str, tuple[float, float]] | None = None,
) -> Chart:
    """A line for each series and device, in each view.

    `log` names the logarithmic axes, "xy", "x", "y" or ""; `ticks` and `ends` are for what the rows
    do not tell, by axis and in the unit of the raw data. `by_device` is for one series that is
    compared between devices and targets: the first has its color, the others are gray.
    """
    panels = _panels(views)
    chosen = [s if isinstance(s, Series) else Series(s) for s in series]
    raw = [_points(results, chosen, view, quantity(x), quantity(y), by_device) for view in panels]
    quantities = [(quantity(v.x or x), quantity(v.y or y), _log(v, log)) for v in panels]
    made = []
    for i, view in enumerate(panels):
        across, up, logs = quantities[i]
        same_x = [j for j, (other, _, _) in enumerate(quantities) if other == across]
        same_y = [j for j, (_, *other) in enumerate(quantities) if other == [up, logs]]
        xs = [v for j in same_x for point in raw[j] for v in point.x]
        ys = [v for j in same_y for point in raw[j] for v in point.ends() if v is not None]
        if not xs or not ys:
            raise DataError(f"nothing to draw of {up.name} in {view.title or 'the chart'}")
        rules = _references(references, results)
        ys += [value for value, r, _ in rules if r.across == "y"]
        x_scale, x_axis = _axis(across, xs, "x" in logs, False, ticks, ends, "x")
        y_scale, y_axis = _axis(up, ys, "y" in logs, from_zero, ticks, ends, "y")
        made.append(
            Panel(
                view.title,
                x_axis,
                y_axis,
                # The line that a chart is about is drawn last. A point lies below smaller ones.
                tuple(
                    p.mark(x_scale, y_scale, across)
                    for p in (raw[i][::-1] if by_device and chosen[0].joined else raw[i])
                    if p.x
                ),
                tuple(_rule(r, v, n, x_scale, y_scale) for v, r, n in rules),
                tuple(
                    Band(low / x_scale.per, high / x_scale.per, identity(key).color)
                    for low, high, key in view.bands
                ),
            )
        )
    same = all((up, logs) == quantities[0][1:] for _, up, logs in quantities)
    cards = {r.folder for r in results if r.place == "gpu"}  # each can be hidden in a legend
    return Chart(tuple(made), columns, same and len(made) > 1, height, direct=len(cards) < 2)


def points(
    results: Sequence[Result],
    series: Sequence[str | Series],
    x: Quantity | str,
    y: Quantity | str = TIME,
    views: Views = ALL,
    **further: Any,
) -> Chart:
    """The same as `lines`, with nothing between the points."""
    chosen = [replace(s if isinstance(s, Series) else Series(s), joined=False) for s in series]
    return lines(results, chosen, x, y, views, **further)


@dataclass
class _Points:
    """A series of one device in one view, in the units of the raw data."""

    look: Identity
    series: Series
    name: str
    opacity: float
    x: list[float]
    y: list[float | None]
    rows: list[Row]
    told: list[str]
    device: int

    def ends(self) -> list[float | None]:
        if not self.series.spread:
            return self.y
        return [*self.y, *(r[end] for r in self.rows for end in self.series.spread)]

    def mark(self, x: Scale, y: Scale, across: Quantity) -> Mark:
        symbol = self.series.symbol or self.look.symbol
        low, high = self.series.spread or ("", "")
        return Mark(
            kind="line" if self.series.joined else "dots",
            name=self.name,
            x=tuple(v / x.per for v in self.x),
            y=tuple(None if v is None else v / y.per for v in self.y),
            colors=(self.look.color,),
            symbols=(symbol,),
            dash=self.series.dash or self.look.dash,
            width=self.series.width,
            size=self.series.size or (6 if self.series.joined else 9),
            opacity=self.opacity,
            hover=tuple(
                f"{self.name}<br>{across.name} {x.text(at)}: "
                f"{told or ('–' if v is None else y.text(v))}"
                for at, v, told in zip(self.x, self.y, self.told, strict=True)
            ),
            low=tuple(r[low] / y.per for r in self.rows) if low else (),
            high=tuple(r[high] / y.per for r in self.rows) if high else (),
        )


def _points(
    results: Sequence[Result],
    series: Sequence[Series],
    view: View,
    x: Quantity,
    y: Quantity,
    by_device: bool,
) -> list[_Points]:
    found = []
    across = quantity(view.x or x)
    for device, result in enumerate(results):
        for one in series:
            up = quantity(one.value or view.y or y)
            rows = [
                (at, r)
                for r in _chosen(result.rows, _where(one), view.where)
                if (at := across(r)) is not None
            ]
            rows.sort(key=lambda item: item[0])
            look = one.look
            name = look.name
            opacity = strength(device)
            if by_device:
                name, opacity = device_name(result), 1.0
                if device:
                    gray = OTHERS["context"]
                    look = replace(gray, symbol=ORDER[device % len(ORDER)])
                    if not one.joined:
                        one = replace(one, size=one.size or SMALL)
            elif len(results) > 1:
                name = f"{name}, {device_name(result)}"
            told = [one.told(r) if one.told else spread(r) if up == TIME else "" for _, r in rows]
            found.append(
                _Points(
                    look,
                    one,
                    name,
                    opacity,
                    [at for at, _ in rows],
                    [up(r) for _, r in rows],
                    [r for _, r in rows],
                    told,
                    device,
                )
            )
    return found


def bars(
    results: Sequence[Result],
    places: Sequence[str | Series],
    value: Quantity | str = TIME,
    views: Views = ALL,
    *,
    groups: Sequence[Series] = (),
    stacked: bool = False,
    as_share: bool = False,
    upright: bool = False,
    log: bool = False,
    references: Sequence[Reference] = (),
    texts: bool = True,
    columns: int = 0,
    ends: tuple[float, float] | None = None,
    along: str = "",
) -> Chart:
    """A bar for each place, lying unless `upright`, in each view; of each device.

    `groups` put several bars at a place, each with the look of its series; `stacked` puts them on
    top of each other, and `as_share` counts them as parts of their sum; a group without a key
    leaves each place its look, and its symbol alone tells. `along` is what all the places are,
    where their names alone do not tell.
    """
    return _on_names(
        "bars",
        results,
        places,
        value,
        views,
        groups=groups,
        stacked=stacked,
        as_share=as_share,
        upright=upright,
        log=log,
        references=references,
        texts=texts,
        columns=columns,
        ends=ends,
        along=along,
    )


def dots(
    results: Sequence[Result],
    places: Sequence[str | Series],
    value: Quantity | str = TIME,
    views: Views = ALL,
    *,
    groups: Sequence[Series] = (),
    log: bool = True,
    references: Sequence[Reference] = (),
    texts: bool = False,
    columns: int = 0,
    ends: tuple[float, float] | None = None,
    several: bool = False,
) -> Chart:
    """A dot for each place in each view and device; with `several`, one for each of its rows."""
    return _on_names(
        "dots",
        results,
        places,
        value,
        views,
        groups=groups,
        log=log,
        references=references,
        texts=texts,
        columns=columns,
        ends=ends,
        several=several,
    )


def _on_names(
    kind: str,
    results: Sequence[Result],
    places: Sequence[str | Series],
    value: Quantity | str,
    views: Views,
    *,
    groups: Sequence[Series],
    log: bool,
    references: Sequence[Reference],
    texts: bool,
    columns: int,
    ends: tuple[float, float] | None,
    stacked: bool = False,
    as_share: bool = False,
    upright: bool = False,
    several: bool = False,
    along: str = "",
) -> Chart:
    """Bars or dots at places that have names."""
    panels = _panels(views)
    at = [s if isinstance(s, Series) else Series(s) for s in places]
    names = tuple(s.look.name for s in at)
    beside = len(results) * (1 if stacked or not groups else len(groups)) if kind == "bars" else 1
    thick = 0.8 / beside
    made, shown = [], []
    for view in panels:
        counted = quantity(view.y or view.x or value)
        cells = []
        for device, result in enumerate(results):
            for g, group in enumerate(groups or (None,)):
                found = [_found(result, s, group, view, several) for s in at]
                numbers = [[counted(r) for r in rows] for rows in found]
                cells.append((device, result, g, group, found, numbers))
        if as_share:
            for device in range(len(results)):
                mine = [c[5] for c in cells if c[0] == device]
                sums = [sum(n[i][0] or 0 for n in mine if n[i]) for i in range(len(at))]
                for numbers in mine:
                    numbers[:] = [[(x or 0) / sums[i] for x in n] for i, n in enumerate(numbers)]
            counted = replace(counted, name="share", unit=units.percent)
        shown.append((counted, cells))
    for view, (counted, cells) in zip(panels, shown, strict=True):
        alike = [c for other, c in shown if other == counted]
        logged = _log(view, "v" if log else "") != ""
        every = [x for cs in alike for c in cs for n in c[5] for x in n if x is not None]
        if not every:
            raise DataError(f"nothing to draw of {counted.name} in {view.title or 'the chart'}")
        if stacked:
            every += _sums(cells, len(results), len(at))
        rules = _references(references, results)
        scale, axis = _axis(
            counted,
            [*every, *(v for v, _, _ in rules)],
            logged,
            kind == "bars",
            None,
            {"v": ends} if ends else None,
            "v",
        )
        axis = replace(axis, room=texts and not upright)
        stack: dict[tuple[int, int], float] = {}
        marks = []
        for device, result, g, group, found, numbers in cells:
            slot = device if stacked or not groups else device * len(groups) + g
            shift = (slot - (beside - 1) / 2) * thick if kind == "bars" else 0
            marks.append(
                _bar(
                    kind,
                    result,
                    results,
                    at,
                    group,
                    found,
                    numbers,
                    scale,
                    shift,
                    thick,
                    device,
                    texts,
                    upright,
                    stack if stacked else None,
                    counted,
                )
            )
        naming = Axis(along, low=-0.6, high=len(at) - 0.4, names=names)
        if not upright:
            naming = replace(naming, low=naming.high, high=naming.low)  # the first is on top
        sides = (naming, axis) if upright else (axis, naming)
        lines_across = "y" if upright else "x"
        made.append(
            Panel(
                view.title,
                *sides,
                tuple(marks),
                tuple(
                    replace(_rule(r, v, n, scale, scale), across=lines_across) for v, r, n in rules
                ),
            )
        )
    same = all(counted == shown[0][0] for counted, _ in shown)
    return Chart(tuple(made), columns, shared_y=same or not upright, direct=False)


def _sums(cells: list[Any], devices: int, places: int) -> list[float]:
    return [
        sum(c[5][i][0] or 0 for c in cells if c[0] == device and c[5][i])
        for device in range(devices)
        for i in range(places)
    ]


def _found(
    result: Result, place: Series, group: Series | None, view: View, several: bool
) -> list[Row]:
    own: Where = _where(place) if not group or place.where is not None or not group.where else {}
    rows = _chosen(result.rows, own, view.where, *([_where(group)] if group else []))
    if len(rows) > 1 and not several:
        raise DataError(f"{len(rows)} rows for {place.name or place.key} in {view.title!r}")
    return rows


def _bar(
    kind: str,
    result: Result,
    results: Sequence[Result],
    places: Sequence[Series],
    group: Series | None,
    found: Sequence[Sequence[Row]],
    numbers: Sequence[Sequence[float | None]],
    scale: Scale,
    shift: float,
    thick: float,
    device: int,
    texts: bool,
    upright: bool,
    stack: dict[tuple[int, int], float] | None,
    counted: Quantity,
) -> Mark:
    look = group.look if group and (group.key or group.like) else None  # else that of each place
    looks = [look or s.look for s in places]
    name = look.name if look else group.name if group else ""
    if len(results) > 1:
        name = f"{name}, {device_name(result)}" if name else device_name(result)
    at, values_, hover, said, colors, base, symbols, low, high = ([] for _ in range(9))
    for i, (place, rows, mine) in enumerate(zip(places, found, numbers, strict=True)):
        for row, number in zip(rows, mine, strict=True):
            if number is None:
                continue
            shown = number / scale.per
            at.append(i + shift)
            values_.append(shown)
            told = place.told or (group.told if group else None)
            label = place.look.name
            head = f"{label}, {name}" if name else label
            more = told(row) if told else spread(row) if counted == TIME else scale.text(number)
            hover.append(f"{head}<br>{more}")
            said.append(scale.text(number) if texts else "")
            colors.append(looks[i].color)
            symbols.append((group.symbol if group else "") or place.symbol or looks[i].symbol)
            ends = (group.spread if group else None) or place.spread
            low.append(row[ends[0]] / scale.per if ends else shown)
            high.append(row[ends[1]] / scale.per if ends else shown)
            if stack is not None:
                base.append(stack.get((device, i), 0.0))
                stack[device, i] = base[-1] + shown
    across, up = (at, values_) if upright else (values_, at)
    return Mark(
        kind=kind,
        name=name,
        x=tuple(across),
        y=tuple(up),
        colors=tuple(colors),
        symbols=tuple(symbols),
        size=11 if texts else 9,
        opacity=strength(device),
        hover=tuple(hover),
        texts=tuple(said) if texts else (),
        low=tuple(low) if low != values_ else (),
        high=tuple(high) if high != values_ else (),
        base=tuple(base),
        thickness=thick,
        upright=upright,
        listed=bool(name),
    )


def times(results: Sequence[Result], labels: Mapping[str, str], lengths: Sequence[int]) -> Chart:
    """Times, a panel a length: a dot for each implementation, named by `labels`, and its number."""
    places = [Series(key, name) for key, name in labels.items()]
    shown = [View(f"N {units.count(N)}", {"N": N}) for N in lengths]
    return dots(results, places, TIME, shown, texts=True)


def errors(results: Sequence[Result]) -> Chart:
    """Each implementation's differences from float64: a panel a dtype, a dot a cell."""
    first = results[0]
    devices = [first, *(r for r in results[1:] if r.place == "gpu")]

    def told(row: Row) -> str:
        return f"D {row['D']}, N {units.count(row['N'])}: {units.error(row['largest'])}"

    places = [Series(name, told=told) for name in values(first.rows, "implementation")]
    shown = [View(dtype, {"dtype": dtype}) for dtype in values(first.rows, "dtype")]
    return dots(devices, places, ERROR, shown, several=True)


def closeness(
    results: Sequence[Result], ours: str, theirs: str, where: Mapping[str, Any] | None = None
) -> Chart:
    """Our largest difference from float64 over theirs in the same row: a line a dtype, by its dash.

    The rows hold `error_largest` and `pytorch_error_largest`; below 1 ours is closer.
    """

    def told(row: Row) -> str:
        mine, other = (units.error(row[f"{who}error_largest"]) for who in ("", "pytorch_"))
        return f"{units.ratio(quotient(row) or 0)}<br>{mine}, {identity(theirs).name} {other}"

    quotient = Quantity(
        f"error over that of {identity(theirs).name}",
        lambda r: (
            r["error_largest"] / r["pytorch_error_largest"] if r["pytorch_error_largest"] else None
        ),
        units.times,
    )
    at = dict(where or {})
    series = [
        Series(ours, dtype, at | {"dtype": dtype}, dtype=dtype, symbol=symbol, told=told)
        for dtype, symbol in zip(values(results[0].rows, "dtype"), ORDER, strict=False)
    ]
    level = Reference(identity(theirs).name, 1.0, key=theirs)
    return lines(results, series, "N", quotient, log="x", references=[level])


def roofline(
    results: Sequence[Result],
    series: Sequence[str | Series],
    x: Quantity = INTENSITY,
    y: Quantity = RATE,
    *,
    roofs: Mapping[str, str] | None = None,
    memory: str = "memory",
    views: Views = ALL,
    columns: int = 0,
    height: int = 400,
) -> Chart:
    """Rates against intensity below the ceilings of the same run, which are in every view.

    `roofs`: a unit's ceiling → what it is called. The slope is a way to move bytes: "read", or the
    fastest of all ("memory").
    """
    chosen = [s if isinstance(s, Series) else Series(s) for s in series]
    rows = [r for result in results for r in result.rows if not r.get("error")]
    at = [v for r in rows if (v := x(r))]
    made = []
    for result in results:
        slope = ceiling(result, memory)
        ridges = [ceiling(result, unit) / slope for unit in roofs or {"matmul_bfloat16": ""}]
        low, high = min(*at, *ridges) / 1.5, max(*at, *ridges) * 1.5
        lifted = []
        for dash, (unit, name) in zip(
            ("solid", "dash", "dot"),
            (roofs or {"matmul_bfloat16": "ceilings"}).items(),
            strict=False,
        ):
            top = ceiling(result, unit)
            lifted += [
                {"roof": name, "dash": dash, "x": place, "y": min(place * slope, top)}
                for place in (low, top / slope, high)
            ]
        made.append(replace(result, rows=[*result.rows, *lifted]))
    names = {r["roof"]: r["dash"] for r in made[0].rows if "roof" in r}
    across = Quantity(x.name, lambda r: r["x"] if "roof" in r else x(r), x.unit)
    up = Quantity(y.name, lambda r: r["y"] if "roof" in r else y(r), y.unit)
    tops = [
        Series("ceiling", name, {"roof": name}, dash=dash, size=0.1) for name, dash in names.items()
    ]
    told = [_below_the_roof(s, y) for s in chosen]
    below = [replace(view, where=_or_roof(view.where)) for view in _panels(views)]
    return lines(made, [*tops, *told], across, up, below, log="xy", columns=columns, height=height)


def _or_roof(where: Where) -> Where:
    """What a view takes, and the roofs."""
    return lambda row: "roof" in row or _takes(where, row)


def _below_the_roof(one: Series, y: Quantity) -> Series:
    """A series that leaves the rows of the roofs alone, and tells its time beside its rate."""
    own = _where(one)
    return replace(
        one,
        where=lambda row: "roof" not in row and _takes(own, row),
        told=one.told or (lambda row: f"{y.text(row)}<br>{spread(row)}"),
        size=one.size or 8,
    )


def heatmap(
    results: Sequence[Result],
    x: str,
    y: str,
    value: Quantity,
    told: Callable[[Row], str] | None = None,
) -> Chart:
    """A cell for each pair of two fields, the stronger the larger its value; a panel a device."""
    panels = []
    for result in results:
        columns, lines_ = values(result.rows, x), values(result.rows, y)
        at = {(r[y], r[x]): r for r in result.rows}
        grid = tuple(tuple(float(value(at[b, a]) or 0) for a in columns) for b in lines_)
        cells = tuple(
            tuple(
                f"{y} {b}, {x} {a}: {value.text(at[b, a])}"
                + (f"<br>{told(at[b, a])}" if told else "")
                for a in columns
            )
            for b in lines_
        )
        panels.append(
            Panel(
                device_name(result) if len(results) > 1 else "",
                Axis(x, low=-0.5, high=len(columns) - 0.5, ticks=_each(columns)),
                Axis(y, low=len(lines_) - 0.5, high=-0.5, ticks=_each(lines_)),
                (),
                grid=grid,
                cells=cells,
                measure=value.name,
            )
        )
    return Chart(tuple(panels), 1, height=26 * len(panels[0].grid) + 20)


def _each(found: Sequence[Any]) -> tuple[tuple[float, str], ...]:
    return tuple((float(i), str(v)) for i, v in enumerate(found))


def _panels(given: Views) -> list[View]:
    if isinstance(given, Mapping):
        return [View(title, where) for title, where in given.items()]
    return list(given)


def _log(view: View, log: str) -> str:
    return log if view.log is None else view.log


def _where(one: Series) -> Where:
    return {"implementation": one.key} if one.where is None else one.where


def _chosen(rows: Sequence[Row], *wheres: Where) -> list[Row]:
    """The measured rows that all of some conditions take."""
    return [r for r in rows if not r.get("error") and all(_takes(w, r) for w in wheres)]


def _takes(where: Where, row: Row) -> bool:
    if callable(where):
        return where(row)
    return all(row.get(name) == value for name, value in where.items())


def _references(
    references: Sequence[Reference], results: Sequence[Result]
) -> list[tuple[float, Reference, str]]:
    """(value, reference, name) of each, once or for each device."""
    found = []
    for reference in references:
        if not callable(reference.of):
            found.append((reference.of, reference, reference.name))
            continue
        for result in results:
            name = reference.name
            if len(results) > 1:
                name = f"{name}, {device_name(result)}"
            found.append((reference.of(result), reference, name))
    return found


def _rule(reference: Reference, value: float, name: str, x: Scale, y: Scale) -> Rule:
    per = x.per if reference.across == "x" else y.per
    look = identity(reference.key)
    dash = "dash" if reference.key == "ceiling" else "solid"
    return Rule(value / per, name, reference.across, look.color, dash)


def _axis(
    of: Quantity,
    found: Sequence[float],
    log: bool,
    from_zero: bool,
    ticks: Mapping[str, Sequence[float]] | None,
    ends: Mapping[str, tuple[float, float]] | None,
    which: str,
) -> tuple[Scale, Axis]:
    """The one unit of an axis, its range and its ticks."""
    scale = of.unit.scale(found, small=log)
    shown = [v / scale.per for v in found]
    if ends and which in ends:
        low, high = (v / scale.per for v in ends[which])
    else:
        low, high = logarithmic(shown) if log else linear(shown, from_zero)
    own = sorted(set(shown))
    if ticks and which in ticks:
        at = [v / scale.per for v in ticks[which]]
        at = [v for v in at if low <= v <= high]
    elif of.unit is units.whole and len(own) <= MOST_TICKS and which == "x":
        at = own
    else:
        at = round_powers(low, high) if log else round_steps(low, high)
    digits = units.power_of_ten if scale.digits is units.error else scale.digits
    if digits not in (units.power_of_ten, units.count):
        digits = units.significant
    if of.unit is units.binary:  # powers of two: each with its own unit
        at = [v / scale.per for v in powers_of_two(low * scale.per, high * scale.per)]
        told = tuple((v, units.binary(v * scale.per)) for v in at)
        return scale, Axis(of.name, log, low, high, told)
    title = f"{of.name}, {scale.name}" if scale.name else of.name
    return scale, Axis(title, log, low, high, tuple((v, digits(v)) for v in at))
