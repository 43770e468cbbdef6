"""The still of a chart: labeled SVG that stands in a figure's box until the real one is drawn.

It is made from the same description, so ticks, names and numbers are those of the chart. Each panel
is an <svg> of its own, placed by CSS variables for both kinds of screen; within it everything is at
a share of its size, and text keeps its size however far it is stretched. Colors of text are the
page's (currentColor).
"""

import html
from collections.abc import Iterable, Sequence

from snippets._lab.draw.chart import (
    CHARACTER,
    GLYPHS,
    Axis,
    Chart,
    Mark,
    Panel,
    Placement,
    Rule,
    Spot,
    named_uprights,
    place,
)
from snippets._lab.draw.specification import LIGHTNESS

SIDE = 400  # of a panel's coordinates
Text = tuple[str, str]  # where it is held (start, middle, end) and its <text>
LETTER = 1.5  # of a symbol's size: the height of its letter
DASH = {"dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3", "longdash": "11 4"}


def still(chart: Chart) -> str:
    """HTML for a chart: one SVG for each panel, and one for each kind of screen's words."""
    wide, phone = place(chart, phone=False), place(chart, phone=True)
    parts = []
    for panel, spot, slim in zip(chart.panels, wide.spots, phone.spots, strict=True):
        drawn = _stretched(panel, spot), _stretched(panel, slim)
        words = _apart(list(_words(panel, spot)), list(_words(panel, slim)))
        if drawn[0] == drawn[1]:  # as a rule: only room for numbers makes an axis longer
            shared, drawn = drawn[0], ("", "")
        else:
            shared = ""
        parts.append(
            f'<svg style="{_variables(spot, "")}{_variables(slim, "n")}">{shared}{words[0]}'
            f'<g class="am-wide">{drawn[0]}{words[1]}</g>'
            f'<g class="am-phone">{drawn[1]}{words[2]}</g></svg>'
        )
    sides = "".join(
        f"--{k}:{wide.margin[k]}px;--n{k}:{phone.margin[k]}px;" for k in ("t", "r", "b", "l")
    )
    keys = _legend(wide, "am-wide") + _legend(phone, "am-phone")
    return (
        f'<div class="am-preview" aria-hidden="true" style="{sides}">'
        f'<div class="am-panels">{"".join(parts)}</div>{keys}</div>'
    )


def _apart(wide: Sequence[Text], phone: Sequence[Text]) -> tuple[str, str, str]:
    """Words of both kinds of screen, those of the wide one alone, and those of the phone alone."""
    both = [text for text in wide if text in phone]
    return (
        _anchored(both),
        _anchored([text for text in wide if text not in both]),
        _anchored([text for text in phone if text not in both]),
    )


def _anchored(words: Sequence[Text]) -> str:
    """Words by the side at which they are held, each side said once."""
    sides: dict[str, list[str]] = {}
    for anchor, text in words:
        sides.setdefault(anchor, []).append(text)
    return "".join(
        f'<g text-anchor="{anchor}">{"".join(texts)}</g>' for anchor, texts in sides.items()
    )


def _stretched(panel: Panel, spot: Spot) -> str:
    """What is drawn of a panel: lines and areas stretch with it, symbols keep their size."""
    lines = "".join(_marks(panel, spot))
    symbols = "".join(_symbols(panel, spot))
    plain = f'<svg viewBox="0 0 {SIDE} {SIDE}" preserveAspectRatio="none">{lines}</svg>'
    return plain + symbols


def _variables(spot: Spot, mark: str) -> str:
    sizes = {
        "x": spot.left,
        "y": spot.bottom,
        "w": spot.right - spot.left,
        "h": spot.top - spot.bottom,
    }
    return "".join(f"--{mark}{k}:{_per_cent(v)};" for k, v in sizes.items())


def _legend(placed: Placement, css: str) -> str:
    """Names beside their colors, where they are not at the ends of the lines."""
    if not placed.legend:
        return ""
    keys = "".join(f"<span>{_key(item)}{item.name}</span>" for item in placed.legend)
    return f'<div class="am-keys {css}">{keys}</div>'


def _key(item: Mark | Rule) -> str:
    """A swatch: a line, or the symbol of dots, or a square for bars."""
    if isinstance(item, Rule):
        return f'<i style="background:{item.color}"></i>'
    color = item.colors[0] if item.colors else "#808a94"
    if item.kind == "line":
        return f'<i style="background:{color}"></i>'
    glyph = "■" if item.kind == "bars" or not item.symbols else GLYPHS[item.symbols[0]]
    return f'<b style="color:{color}">{glyph}</b>'


def _part(axis: Axis, value: float) -> float:
    low, high = axis.at(axis.low), axis.at(axis.high)
    return (axis.at(value) - low) / (high - low)


def _x(axis: Axis, value: float) -> int:
    return round(SIDE * _part(axis, value))


def _y(axis: Axis, value: float) -> int:
    return round(SIDE * (1 - _part(axis, value)))


def _text(words: str, place_: str, anchor: str = "start") -> Text:
    """A <text>; `place_` holds x, y and what moves it by pixels."""
    return anchor, f"<text {place_}>{words}</text>"


def _share(axis: Axis, value: float, upwards: bool = False) -> str:
    part = _part(axis, value)
    return _per_cent(1 - part if upwards else part)


def _per_cent(part: float) -> str:
    return f"{round(100 * part, 2):g}%"


def _words(panel: Panel, spot: Spot) -> Iterable[Text]:
    """Titles, ticks, names: all at shares of the panel, moved by pixels."""
    named = named_uprights(panel)
    if panel.title:
        yield _text(html.escape(panel.title), f'y="-{20 if named else 6}" class="am-title"')
    for value, text in spot.x.ticks:
        for i, line in enumerate(text.split("<br>")):
            at = f'x="{_share(spot.x, value)}" y="100%" dy="{16 + 14 * i}"'
            yield _text(line, at, "middle")
    if panel.x.title and spot.show_x_title:
        yield _text(panel.x.title, 'x="50%" y="100%" dy="36"', "middle")
    if spot.show_y:
        yield from _beside(panel, spot)
    for rule, anchor in zip(named, spot.anchors, strict=True):
        yield _text(rule.name, f'x="{_share(spot.x, rule.value)}" y="-5"', anchor)
    for label in spot.labels:
        name = f'<tspan fill="{label.color}">{label.swatch}</tspan> {label.text}'
        yield _text(name, f'x="100%" y="{_per_cent(1 - label.at)}" dx="6" dy="4"')
    for mark in panel.marks:
        shift = 5 if mark.kind == "bars" else 10
        for x, y, text in zip(mark.high or mark.x, mark.y, mark.texts, strict=False):
            if text and x is not None and y is not None:
                at = f'x="{_share(spot.x, x)}" y="{_share(spot.y, y, True)}" dy="4"'
                if mark.kind == "bars" and x < 0:
                    yield _text(text, f'{at} dx="-{shift}"', "end")
                else:
                    yield _text(text, f'{at} dx="{shift}"')


def _beside(panel: Panel, spot: Spot) -> Iterable[Text]:
    """The ticks of a panel's left side, and its title upright beside them."""
    for value, text in spot.y.ticks:
        lines = text.split("<br>")
        for i, line in enumerate(lines):
            down = 4 + 14 * (i - (len(lines) - 1) / 2)
            yield _text(line, f'x="-6" y="{_share(spot.y, value, True)}" dy="{down:g}"', "end")
    if panel.y.title:
        wide = max((len(text) for _, text in spot.y.ticks), default=0) * CHARACTER + 16
        _, turned = _text(panel.y.title, f'transform="rotate(-90)" y="-{wide:g}"')
        yield "middle", f'<svg y="50%" overflow="visible">{turned}</svg>'


def _marks(panel: Panel, spot: Spot) -> Iterable[str]:
    x, y = spot.x, spot.y
    if panel.grid:
        yield from _grid(panel, x, y)
        return
    lines = [f"M{_x(x, v)} 0V{SIDE}" for v, _ in x.ticks if not x.names]
    lines += [f"M0 {_y(y, v)}H{SIDE}" for v, _ in y.ticks if not y.names]
    yield f'<path class="am-frame" d="{"".join(lines)}"/>'
    for band in panel.bands:
        a, b = (min(max(_x(x, v), 0), SIDE) for v in (band.low, band.high))
        fill = f'fill="{band.color}" fill-opacity=".14"'
        yield f'<path class="am-area" {fill} d="M{a} 0H{b}V{SIDE}H{a}Z"/>'
    for rule in panel.rules:
        upright = rule.across == "x"
        path = f"M{_x(x, rule.value)} 0V{SIDE}" if upright else f"M0 {_y(y, rule.value)}H{SIDE}"
        dash = f' stroke-dasharray="{DASH[rule.dash]}"' if rule.dash in DASH else ""
        yield f'<path stroke="{rule.color}"{dash} d="{path}"/>'
    for mark in panel.marks:
        faint = f' opacity="{mark.opacity:.3g}"' if mark.opacity < 1 else ""
        yield from (f"<path{faint}{path}" for path in _drawn(mark, x, y))


def _drawn(mark: Mark, x: Axis, y: Axis) -> Iterable[str]:
    pairs = enumerate(zip(mark.x, mark.y, strict=True))
    there = [i for i, (a, b) in pairs if a is not None and b is not None]
    at = [(_x(x, mark.x[i] or 0), _y(y, mark.y[i] or 0)) for i in there]
    if mark.kind == "line" and at:
        dash = f' stroke-dasharray="{DASH[mark.dash]}"' if mark.dash in DASH else ""
        path = "L".join(f"{a} {b}" for a, b in at)
        yield f' stroke="{mark.colors[0]}"{dash} d="M{path}"/>'
    if mark.low:
        yield f' class="am-spread" d="{"".join(_spread(mark, i, x, y) for i in there)}"/>'
    for color, some in _by_color(mark, there):
        if mark.kind == "bars":
            path = "".join(_bar(mark, i, x, y) for i in some)
            yield f' class="am-bars" fill="{color}" d="{path}"/>'
        else:
            path = "".join(
                f"M{a} {b}h0"
                for i, (a, b) in zip(there, at, strict=True)
                if i in some and _is_a_disc(mark, i)
            )
            if path:
                wide = "" if mark.kind == "line" else f' style="stroke-width:{mark.size:g}px"'
                yield f' class="am-dots" stroke="{color}"{wide} d="{path}"/>'


def _symbol(mark: Mark, i: int) -> str:
    return mark.symbols[i if len(mark.symbols) > 1 else 0]


def _is_a_disc(mark: Mark, i: int) -> bool:
    """A round end of a line of no length does for it, which takes fewer bytes than a letter."""
    return mark.kind != "bars" and mark.size >= 1 and _symbol(mark, i) == "circle"


def _symbols(panel: Panel, spot: Spot) -> Iterable[str]:
    """The marks that are no discs, as letters."""
    for mark in panel.marks:
        if mark.kind == "bars" or mark.size < 1:
            continue
        letters = []
        for i, (x, y) in enumerate(zip(mark.x, mark.y, strict=True)):
            if x is None or y is None or _is_a_disc(mark, i):
                continue
            color = mark.colors[i if len(mark.colors) > 1 else 0]
            at = f'x="{_share(spot.x, x)}" y="{_share(spot.y, y, True)}"'
            letters.append(f'<text {at} fill="{color}">{GLYPHS[_symbol(mark, i)]}</text>')
        if letters:
            size = f'style="font-size:{LETTER * max(mark.size, 7):g}px"'
            faint = f' opacity="{mark.opacity:.3g}"' if mark.opacity < 1 else ""
            yield f'<g class="am-symbols" {size}{faint}>{"".join(letters)}</g>'


def _by_color(mark: Mark, there: Sequence[int]) -> Iterable[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for i in there:
        found.setdefault(mark.colors[i if len(mark.colors) > 1 else 0], []).append(i)
    return found.items()


def _bar(mark: Mark, i: int, x: Axis, y: Axis) -> str:
    length, along = (y, x) if mark.upright else (x, y)
    place_ = (mark.x if mark.upright else mark.y)[i] or 0
    value = (mark.y if mark.upright else mark.x)[i] or 0
    foot = mark.base[i] if mark.base else (length.low if length.log else 0)
    half = mark.thickness / 2
    if mark.upright:
        a, b = _x(along, place_ - half), _x(along, place_ + half)
        return f"M{a} {_y(length, foot)}V{_y(length, foot + value)}H{b}V{_y(length, foot)}Z"
    a, b = _y(along, place_ - half), _y(along, place_ + half)
    return f"M{_x(length, foot)} {a}H{_x(length, foot + value)}V{b}H{_x(length, foot)}Z"


def _spread(mark: Mark, i: int, x: Axis, y: Axis) -> str:
    lying = mark.kind == "bars" and not mark.upright
    if lying:
        return f"M{_x(x, mark.low[i])} {_y(y, mark.y[i] or 0)}H{_x(x, mark.high[i])}"
    return f"M{_x(x, mark.x[i] or 0)} {_y(y, mark.low[i])}V{_y(y, mark.high[i])}"


def _grid(panel: Panel, x: Axis, y: Axis) -> Iterable[str]:
    for i, line in enumerate(panel.grid):
        for j, value in enumerate(line):
            step = min(max(round(value * (len(LIGHTNESS) - 1)), 0), len(LIGHTNESS) - 1)
            a, b = _x(x, j - 0.5), _x(x, j + 0.5)
            c, d = _y(y, i - 0.5), _y(y, i + 0.5)
            yield f'<path class="am-area" fill="{LIGHTNESS[step][1]}" d="M{a} {c}H{b}V{d}H{a}Z"/>'
