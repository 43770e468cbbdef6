"""A chart for Plotly: traces and layout as plain JSON. The page adds the colors of its theme."""

import html
import math
from typing import Any

from snippets._lab.draw.chart import (
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
from snippets._lab.draw.identity import mixed
from snippets._lab.draw.units import percent

# One map for all heatmaps, the attention map's: lightness falls, so gray prints tell the same.
LIGHTNESS = [[i / 8, mixed(i / 8)] for i in range(9)]


def specification(chart: Chart) -> dict[str, Any]:
    """{"data": [...], "layout": {...}}; the phone's layout is under layout.meta.narrow."""
    wide, phone = place(chart, phone=False), place(chart, phone=True)
    listed: set[str] = set()
    data = []
    for i, panel in enumerate(chart.panels):
        for rule in panel.rules:
            first = bool(rule.name) and rule.across == "y" and rule.name not in listed
            listed.add(rule.name)
            data.append(_ruled(rule, panel, i, first))
        for mark in panel.marks:
            first = bool(mark.name) and mark.listed and mark.name not in listed
            listed.add(mark.name)
            data.append(_trace(mark, i, first))
        # Numbers come last: a rule that crosses one lies below it, and the page sets it off.
        data += [_numbers(mark, i) for mark in panel.marks if mark.texts]
        if panel.grid:
            data.append(_heatmap(panel, i))
    layout = _layout(chart, wide)
    narrow = _layout(chart, phone)
    narrow.pop("shapes", None)
    return {"data": data, "layout": {**layout, "meta": {"narrow": narrow}}}


def _number(i: int) -> str:
    return "" if i == 0 else str(i + 1)


def _one_or_all(values: tuple[Any, ...]) -> Any:
    return values[0] if len(set(values)) == 1 else list(values)


def _trace(mark: Mark, i: int, listed: bool) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": "bar" if mark.kind == "bars" else "scatter",
        "name": mark.name,
        "x": list(mark.x),
        "y": list(mark.y),
        "xaxis": f"x{_number(i)}",
        "yaxis": f"y{_number(i)}",
        "showlegend": listed,
        "opacity": mark.opacity,
        "hovertext": list(mark.hover),
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    if mark.name:
        trace["legendgroup"] = mark.name
    color = _one_or_all(mark.colors) if mark.colors else "#808a94"
    if mark.kind == "bars":
        trace["marker"] = {"color": color}
        trace["width"] = mark.thickness
        trace["orientation"] = "v" if mark.upright else "h"
        if mark.base:
            trace["base"] = list(mark.base)
    else:
        trace["mode"] = "lines+markers" if mark.kind == "line" else "markers"
        trace["marker"] = {"color": color, "size": mark.size, "symbol": _one_or_all(mark.symbols)}
        if mark.kind == "line":
            trace["line"] = {"color": mark.colors[0], "dash": mark.dash, "width": mark.width}
    if mark.low:
        lying = mark.kind == "bars" and not mark.upright
        middle = mark.x if lying else mark.y
        trace["error_x" if lying else "error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [h - v for h, v in zip(mark.high, middle, strict=True) if v is not None],
            "arrayminus": [v - w for w, v in zip(mark.low, middle, strict=True) if v is not None],
            "thickness": 1,
        }
    return trace


def _numbers(mark: Mark, i: int) -> dict[str, Any]:
    """The numbers behind dots and the ends of bars, or of their spreads."""
    # A dot is wider than the end of a bar; without a gap the halo of a number would bite into both.
    gap = "\u00a0" if mark.kind == "bars" else "\u2002"
    ends = mark.high or mark.x
    before = [mark.kind == "bars" and (x or 0) < 0 for x in ends]
    trace = {
        "type": "scatter",
        "mode": "text",
        "x": list(ends),
        "y": list(mark.y),
        "xaxis": f"x{_number(i)}",
        "yaxis": f"y{_number(i)}",
        "text": [
            f"{text}{gap}" if b else f"{gap}{text}"
            for text, b in zip(mark.texts, before, strict=True)
        ],
        "textposition": _one_or_all(tuple(f"middle {'left' if b else 'right'}" for b in before)),
        "cliponaxis": False,
        "showlegend": False,
        "hoverinfo": "skip",
        "name": mark.name,
    }
    return trace | ({"legendgroup": mark.name} if mark.name else {})


def _ruled(rule: Rule, panel: Panel, i: int, listed: bool) -> dict[str, Any]:
    """A line from edge to edge, as a trace: it can be switched off like any other."""
    across, up = panel.x, panel.y
    xs = [rule.value] * 2 if rule.across == "x" else [across.low, across.high]
    ys = [rule.value] * 2 if rule.across == "y" else [up.low, up.high]
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines",
        "name": rule.name,
        "x": xs,
        "y": ys,
        "xaxis": f"x{_number(i)}",
        "yaxis": f"y{_number(i)}",
        "showlegend": listed,
        "legendrank": 2000,  # behind the marks
        "opacity": rule.opacity,
        "line": {"color": rule.color, "dash": rule.dash, "width": 1.5},
        "hovertemplate": f"{rule.name}<extra></extra>",
    }
    return trace | ({"legendgroup": rule.name} if rule.name else {})


def _heatmap(panel: Panel, i: int) -> dict[str, Any]:
    return {
        "type": "heatmap",
        "z": [list(line) for line in panel.grid],
        "hovertext": [list(line) for line in panel.cells],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "xaxis": f"x{_number(i)}",
        "yaxis": f"y{_number(i)}",
        "zmin": 0,
        "zmax": 1,
        "colorscale": LIGHTNESS,
        "colorbar": {
            "title": {"text": panel.measure, "side": "right"},
            "thickness": 12,
            "tickvals": [0, 0.5, 1],
            "ticktext": [percent(0.0), percent(0.5), percent(1.0)],
            "x": 1.02,
            "xanchor": "left",
        },
        "xgap": 1,
        "ygap": 1,
    }


def _axis(axis: Axis, shown: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "log" if axis.log else "linear",
        "range": [axis.at(axis.low), axis.at(axis.high)],
        "tickvals": [value for value, _ in axis.ticks],
        "ticktext": [text for _, text in axis.ticks],
        "showticklabels": shown,
        "zeroline": False,
    }
    if axis.names:
        made["showgrid"] = False
    return made


def _layout(chart: Chart, placed: Placement) -> dict[str, Any]:
    layout: dict[str, Any] = {
        "height": placed.height,
        "margin": {**placed.margin, "pad": 2},
        "showlegend": bool(placed.legend),
        "barmode": "overlay",  # each bar's place and base are given
        "hovermode": "closest",
        "legend": {
            "orientation": "h",
            "x": 0,
            "xref": "container",
            "y": 0,
            "yref": "container",
            "yanchor": "bottom",
            "traceorder": "normal",
        },
    }
    notes = []
    for i, (panel, spot) in enumerate(zip(chart.panels, placed.spots, strict=True)):
        n = _number(i)
        layout[f"xaxis{n}"] = {
            **_axis(spot.x, True),
            "domain": [spot.left, spot.right],
            "anchor": f"y{n}",
            "title": {"text": panel.x.title if spot.show_x_title else "", "standoff": 6},
        }
        layout[f"yaxis{n}"] = {
            **_axis(spot.y, spot.show_y),
            "domain": [spot.bottom, spot.top],
            "anchor": f"x{n}",
            "title": {"text": panel.y.title if spot.show_y else "", "standoff": 8},
        }
        notes += _notes(panel, spot, n)
    layout["annotations"] = notes
    shapes = [
        {
            "type": "rect",
            "xref": f"x{_number(i)}",
            "yref": f"y{_number(i)} domain",
            "x0": band.low,
            "x1": band.high,
            "y0": 0,
            "y1": 1,
            "fillcolor": band.color,
            "opacity": 0.14,
            "line": {"width": 0},
        }
        for i, panel in enumerate(chart.panels)
        for band in panel.bands
    ]
    return layout | ({"shapes": shapes} if shapes else {})


def _notes(panel: Panel, spot: Spot, n: str) -> list[dict[str, Any]]:
    """The title of a panel, the names of its upright rules, and those at its lines' ends."""
    plain = {"showarrow": False}
    named = named_uprights(panel)
    notes: list[dict[str, Any]] = []
    if panel.title:
        notes.append(
            {
                **plain,
                "text": f"<b>{html.escape(panel.title)}</b>",
                "x": 0,
                "xref": f"x{n} domain",
                "xanchor": "left",
                "y": 1,
                "yref": f"y{n} domain",
                "yanchor": "bottom",
                "yshift": 16 if named else 2,
            }
        )
    notes += [
        {
            **plain,
            "text": rule.name,
            "x": math.log10(rule.value) if panel.x.log else rule.value,
            "xref": f"x{n}",
            "y": 1,
            "yref": f"y{n} domain",
            "yanchor": "bottom",
            "xanchor": {"start": "left", "middle": "center", "end": "right"}[anchor],
            "font": {"size": 12},
        }
        for rule, anchor in zip(named, spot.anchors, strict=True)
    ]
    low, high = spot.y.at(spot.y.low), spot.y.at(spot.y.high)
    notes += [
        {
            **plain,
            "text": f'<span style="color:{label.color}">{label.swatch}</span> {label.text}',
            "x": 1,
            "xref": f"x{n} domain",
            "xanchor": "left",
            "xshift": 4,
            "y": low + label.at * (high - low),
            "yref": f"y{n}",
            "yanchor": "middle",
            "align": "left",
            "font": {"size": 12},
        }
        for label in spot.labels
    ]
    return notes
