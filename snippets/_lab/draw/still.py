"""The light picture that stands in a figure's box until the real one is drawn.

Lines and bars only, from the same specification, one small SVG for each panel: a page carries its
figures before any script has come, and what is drawn later lies where the picture was. Words, ticks
and colour bars are left to the real figure; beside it stand its finding and its table.
"""

import math
from collections.abc import Iterable
from typing import Any

SIDE = 400  # of a panel's coordinates, which the style sheet stretches
PAD = 0.05  # that an axis adds at each end where the figure gives no range
GROUP = 0.8  # of a category's width for its bars
NAME_PX = 6  # of a character of a category's name
MARGINS = {"t": 100, "r": 80, "b": 80, "l": 80}  # Plotly's own


def preview(spec: dict[str, Any]) -> str:
    """HTML for a specification ({"data": [...], "layout": {...}}), "" if there is no panel."""
    layout = spec["layout"]
    narrow = layout.get("meta", {}).get("narrow", {})
    panels: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for trace in spec["data"]:
        if trace["type"] in ("scatter", "bar", "heatmap") and trace.get("visible", True) is True:
            panels.setdefault((trace.get("xaxis", "x"), trace.get("yaxis", "y")), []).append(trace)
    drawn = []
    for (x, y), traces in panels.items():
        across, up = _axis(layout, x), _axis(layout, y)
        shared = [t for (_, other), ts in panels.items() for t in ts if _same(layout, y, other)]
        marks = "".join(_marks(traces, across, up, shared, layout.get("barmode", "group")))
        place = _place(across, up, "") + _place(
            {**across, **narrow.get(_key(x), {})}, {**up, **narrow.get(_key(y), {})}, "n"
        )
        drawn.append(
            f'<svg viewBox="0 0 {SIDE} {SIDE}" preserveAspectRatio="none" style="{place}">'
            f"{marks}</svg>"
        )
    if not drawn:
        return ""
    margin = {**MARGINS, **layout.get("margin", {})}
    names = [v for t in spec["data"] for v in t.get("y") or [] if isinstance(v, str)]
    if names:  # Plotly makes room for the names at the left
        margin["l"] = max(margin["l"], min(240, NAME_PX * max(map(len, names))))
    slim = {**margin, **narrow.get("margin", {})}
    sides = "".join(f"--{k}:{margin[k]}px;--n{k}:{slim[k]}px;" for k in "trbl")
    return f'<div class="am-preview" aria-hidden="true" style="{sides}">{"".join(drawn)}</div>'


def _key(axis: str) -> str:
    return f"{axis[0]}axis{axis[1:]}"


def _axis(layout: dict[str, Any], axis: str) -> dict[str, Any]:
    return dict(layout.get(_key(axis), {}))


def _same(layout: dict[str, Any], axis: str, other: str) -> bool:
    """Whether two axes have one range."""
    first = {axis, _axis(layout, axis).get("matches")}
    return bool(first & {other, _axis(layout, other).get("matches")} - {None})


def _place(across: dict[str, Any], up: dict[str, Any], mark: str) -> str:
    left, right = across.get("domain", [0, 1])
    low, high = up.get("domain", [0, 1])
    values = {"x": left, "y": low, "w": right - left, "h": high - low}
    return "".join(f"--{mark}{k}:{100 * v:.3g}%;" for k, v in values.items())


def _numbers(values: Iterable[Any]) -> list[float]:
    return [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]


class _Scale:
    """Where on a panel a value of an axis lies, from 0 to SIDE."""

    def __init__(
        self, axis: dict[str, Any], values: list[Any], bars: bool, from_zero: bool
    ) -> None:
        values = [v for v in values if v is not None]
        numbers = _numbers(values)
        self.log = axis.get("type") == "log"
        self.names: list[Any] | None = None
        if axis.get("type") == "category" or len(numbers) < len(values):
            self.names = list(dict.fromkeys(values))
            low, high = -0.5, len(self.names) - 0.5
        else:
            at = [self._at(v) for v in numbers if v > 0 or not self.log] or [0.0, 1.0]
            low, high = min(at), max(at)
            if from_zero and not self.log:
                low, high = min(low, 0), max(high, 0) + PAD * max(high, 0)
            else:
                pad = 0.5 if bars and not self.log else PAD * (high - low) or 0.5
                low, high = low - pad, high + pad
        if "range" in axis:
            low, high = axis["range"]
        elif axis.get("autorange") == "reversed":
            low, high = high, low
        self.low, self.high = low, high

    def _at(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def __call__(self, value: Any, shift: float = 0) -> int | None:
        """None for what an axis cannot show."""
        if self.names is not None:
            if value not in self.names:
                return None
            number = float(self.names.index(value))
        elif not _numbers([value]) or (self.log and value <= 0):
            return None
        else:
            number = self._at(value)
        return round(SIDE * (number + shift - self.low) / (self.high - self.low))


def _marks(
    traces: list[dict[str, Any]],
    across: dict[str, Any],
    up: dict[str, Any],
    shared: list[dict[str, Any]],
    barmode: str,
) -> Iterable[str]:
    bars = [t for t in traces if t["type"] == "bar"]
    lying = any(t.get("orientation") == "h" for t in bars)
    sums: dict[Any, float] = {}
    if barmode == "stack":
        for t in bars:
            for place, value in _pairs(t, lying):
                sums[place] = sums.get(place, 0) + (value or 0)
    xs = [v for t in traces for v in t.get("x") or []] + (list(sums.values()) if lying else [])
    ys = [v for t in shared for v in t.get("y") or []] + ([] if lying else list(sums.values()))
    x = _Scale(across, xs, bool(bars) and not lying, lying)
    y = _Scale(up, ys, lying, bool(bars) and not lying)
    yield f'<path class="am-frame" d="M0 0V{SIDE}H{SIDE}"/>'
    done: dict[Any, float] = {}
    for t in traces:
        colour = _colour(t)
        if t["type"] == "heatmap":
            yield f'<path class="am-area" d="M0 0H{SIDE}V{SIDE}H0Z"/>'
        elif t["type"] == "scatter":
            points = [(x(a), y(b)) for a, b in _pairs(t, False)]
            yield _line(points, colour, "lines" in t.get("mode", "lines"))
        else:
            width = GROUP / (1 if barmode in ("stack", "overlay", "relative") else len(bars))
            offset = (bars.index(t) * width if width < GROUP else 0) - GROUP / 2
            yield _bars(t, x, y, lying, offset, width, done if barmode == "stack" else None, colour)


def _pairs(trace: dict[str, Any], lying: bool) -> Iterable[tuple[Any, Any]]:
    """Where each mark stands along its axis, and its value."""
    across, up = trace.get("x") or [], trace.get("y") or []
    return zip(up, across, strict=False) if lying else zip(across, up, strict=False)


def _colour(trace: dict[str, Any]) -> str:
    for part in ("line", "marker"):
        colour = trace.get(part, {}).get("color")
        if isinstance(colour, str) and '"' not in colour:
            return f' stroke="{colour}"'
    return ""


def _line(points: list[tuple[int | None, int | None]], colour: str, joined: bool) -> str:
    path, pen = [], "M"
    for across, up in points:
        if across is None or up is None:
            pen = "M"
            continue
        path.append(f"{pen}{across} {SIDE - up}" + ("" if joined else "h0"))
        pen = "L" if joined else "M"
    kind = "" if joined else ' class="am-dots"'
    return f'<path{kind}{colour} d="{"".join(path)}"/>' if path else ""


def _bars(
    trace: dict[str, Any],
    x: _Scale,
    y: _Scale,
    lying: bool,
    offset: float,
    width: float,
    below: dict[Any, float] | None,
    colour: str,
) -> str:
    along, length = (y, x) if lying else (x, y)
    path = []
    for place, value in _pairs(trace, lying):
        first, last = along(place, offset), along(place, offset + width)
        start = 0.0 if below is None else below.get(place, 0.0)
        if below is not None:
            below[place] = start + (value or 0)
        foot, head = length(start), length(start + (value or 0))
        foot = 0 if foot is None else foot
        if first is None or last is None or head is None:
            continue
        if lying:
            path.append(f"M{foot} {SIDE - first}H{head}V{SIDE - last}H{foot}Z")
        else:
            path.append(f"M{first} {SIDE - foot}V{SIDE - head}H{last}V{SIDE - foot}Z")
    fill = colour.replace("stroke", "fill")
    return f'<path class="am-bars"{fill} d="{"".join(path)}"/>' if path else ""
