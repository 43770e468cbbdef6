"""What rooms used before the vocabulary: gone when the last figures.py is written in it."""
# ruff: noqa: F401

import html
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plotly.subplots import make_subplots

from snippets._lab.draw.identity import identity
from snippets._lab.draw.rows import device_name, only, pick
from snippets._lab.draw.rows import spread as hover
from snippets._lab.draw.tables import table
from snippets._lab.draw.units import ratio, time
from snippets._lab.draw.words import cell
from snippets._lab.results.store import DataError, Result

if TYPE_CHECKING:
    from snippets._lab.draw.figure import Figure

DASHES = ["solid", "dash", "dot", "dashdot", "longdash"] * 20  # one for each device; then again
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


def colour(implementation: str) -> str:
    try:
        return identity(implementation).colour
    except DataError:
        if implementation not in COLOURS:
            raise
        return COLOURS[implementation]


def name_of(implementation: str, result: Result, results: Sequence[Result]) -> str:
    """What a legend calls an implementation; with its device where there are several."""
    name = html.escape(NAMES.get(implementation, implementation))
    return name if len(results) == 1 else f"{name}, {device_name(result)}"


MILLISECONDS = {
    "type": "log",
    "tickvals": [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300],
    "ticktext": [
        "10 µs", "30 µs", "100 µs", "300 µs", "1 ms", "3 ms", "10 ms", "30 ms", "100 ms", "300 ms",
    ],
}  # fmt: skip
LEGEND = {"orientation": "h", "y": -0.2, "x": 0}
Row = Mapping[str, Any]


def ms_of(rows: Iterable[Row], *axes: str) -> dict[tuple[Any, ...], float]:
    """(implementation, value of each axis, …) → ms of the cells that were timed."""
    return {(r["implementation"], *(r[a] for a in axes)): r["ms_p50"] for r in pick(rows)}


def tflops(row: Row) -> float:
    """TFLOP/s of a timed row."""
    return float(row["flops"] / row["ms_p50"] * 1e3 / 1e12)


def faster(value: float) -> str:
    """A quotient of times in words: "3.1× faster", "2.5× slower"."""
    return f"{ratio(value)} faster" if value >= 1 else f"{ratio(1 / value)} slower"


def span(values: Iterable[float]) -> str:
    """The range of some quotients of times in words."""
    low, high = min(values := list(values)), max(values)
    if low >= 1:
        return f"{ratio(low)} to {ratio(high)} faster"
    if high < 1:
        return f"{ratio(1 / high)} to {ratio(1 / low)} slower"
    return f"from {faster(low)} to {faster(high)}"


def between(values: Iterable[float]) -> str:
    """The range of some numbers: "0.77 to 0.92"."""
    low, high = f"{min(values := list(values)):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def percent(gain: float) -> str:
    """A quotient of times as a change: 1.12 is "+12 %"."""
    return f"{(gain - 1) * 100:+.0f} %".replace("-", "−").replace("+0 ", "0 ").replace("−0 ", "0 ")


def verdict(gains: Iterable[float], nothing: float) -> str:
    """Whether a step pays, from its gains; one smaller than `nothing` is none."""
    gains = list(gains)
    many = len(gains)
    paid = sum(x > 1 + nothing for x in gains)
    lost = sum(x < 1 - nothing for x in gains)
    if paid == many:
        return "it pays everywhere" if many > 2 else "it pays"
    if lost == many:
        return "it does not pay: it costs time everywhere"
    if not paid and not lost:
        return "it changes nothing that can be measured here"
    if not lost:
        return f"it pays in {paid} of {many} cases and does no harm in the others"
    if not paid:
        return f"it does not pay: it costs time in {lost} of {many} cases and gains in none"
    return f"it pays in {paid} of {many} cases and costs time in {lost}"


def useless(gains: Mapping[str, Iterable[float]], nothing: float) -> str:
    """Which of some steps never pay, and which pay here and cost there."""
    of = {step: list(values) for step, values in gains.items()}
    paying = {step for step, values in of.items() if max(values) > 1 + nothing}
    never = [step for step in of if step not in paying]
    mixed = [step for step in of if step in paying and min(of[step]) < 1 - nothing]
    told = f"Of no use in any case: {listed(never)}." if never else "Every step pays somewhere."
    return told + (f" A gain in one case and a loss in another: {listed(mixed)}." if mixed else "")


def listed(words: Sequence[str]) -> str:
    """Words as a sentence lists them: "a", "a and b", "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def curves(
    results: Sequence[Result],
    panels: Sequence[tuple[str, Row]],
    names: Sequence[str],
    of: Callable[[Row], float] = lambda row: row["ms_p50"],
    along: str = "N",
) -> Any:
    """A figure with a panel for each (title, wanted), and in it a line for each implementation."""
    figure = make_subplots(
        1, len(panels), subplot_titles=[title for title, _ in panels], shared_yaxes=True
    )
    for device, result in enumerate(results):
        for column, (_, wanted) in enumerate(panels, start=1):
            for implementation in names:
                chosen = pick(result.rows, implementation=implementation, **wanted)
                name = name_of(implementation, result, results)
                figure.add_scatter(
                    x=[r[along] for r in chosen],
                    y=[of(r) for r in chosen],
                    name=name,
                    legendgroup=name,
                    showlegend=column == 1,
                    mode="lines+markers",
                    line={"color": colour(implementation), "dash": DASHES[device], "width": 2},
                    marker={"size": 6},
                    text=[hover(r) if "ms_p50" in r else "" for r in chosen],
                    hovertemplate=f"{along} %{{x}}: %{{y:.3g}}<br>%{{text}}",
                    row=1,
                    col=column,
                )
    figure.update_layout(legend=LEGEND, margin={"t": 40, "r": 10, "l": 60, "b": 100})
    return figure


def rates_beside(rows: Sequence[Row], ours: str, others: Mapping[str, str]) -> list[dict[str, Any]]:
    """A table: time and rate of one implementation, and of others, label → name, beside it."""
    lines = []
    for r in pick(rows, implementation=ours):
        case = {axis: r[axis] for axis in ("dtype", "D", "causal", "N")}
        there = {x["implementation"]: x for x in pick(rows, **case)}
        found = {label: there.get(name) for label, name in others.items()}
        lines.append(
            {
                "dtype": r["dtype"],
                "D": r["D"],
                "causal": "yes" if r["causal"] else "no",
                "N": r["N"],
                "time": time(r["ms_p50"]),
                "TFLOP/s": f"{tflops(r):.0f}",
                **{f"{label}, TFLOP/s": x and f"{tflops(x):.0f}" for label, x in found.items()},
                **{
                    f"of {label}": x and f"{x['ms_p50'] / r['ms_p50']:.2f}"
                    for label, x in found.items()
                },
            }
        )
    return lines


def ceilings(result: Result) -> tuple[float, float]:
    """Bytes/s of memory, the fastest way, and FLOP/s of a bfloat16 product, of the same run."""
    memory = max(result.ceilings[way]["per_s_p50"] for way in ("read", "write", "copy"))
    return memory, result.ceilings["matmul_bfloat16"]["per_s_p50"]


def intensity(row: Row) -> float:
    """FLOP for each compulsory byte."""
    return float(row["flops"] / row["bytes_compulsory"])


def stacked(titles: Sequence[str], height: int, legend: int, left: int = 60) -> dict[str, Any]:
    """Layout on a phone: the panels one below the other, `legend` pixels for the legend."""
    foot = legend / height
    step = (1 - foot) / len(titles)
    layout: dict[str, Any] = {
        "height": height,
        "grid": {"rows": len(titles), "columns": 1},
        "legend": {"x": 0, "xref": "container", "y": 0, "yanchor": "bottom", "yref": "container"},
        "margin": {"t": 40, "r": 10, "l": left, "b": 10},
        "annotations": [
            {"text": title, "x": 0.5, "y": 1 - i * step, "xref": "paper", "yref": "paper",
             "showarrow": False, "yanchor": "bottom"}
            for i, title in enumerate(titles)
        ],
    }  # fmt: skip
    for i in range(len(titles)):
        name = "" if i == 0 else str(i + 1)
        top = 1 - i * step
        layout[f"xaxis{name}"] = {"domain": [0, 1], "anchor": f"y{name}"}
        layout[f"yaxis{name}"] = {
            "domain": [top - step + 90 / height, top], "anchor": f"x{name}", "showticklabels": True,
        }  # fmt: skip
    return layout


def drawn(figure: "Figure") -> tuple[str, str]:
    spec = json.loads(figure.plot.to_json())
    for trace in spec["data"]:
        if "name" in trace:  # a device's or an implementation's: text, whoever wrote the figure
            trace["name"] = html.escape(html.unescape(trace["name"]))
    layout = spec["layout"]
    layout.pop("template", None)
    layout["height"] = figure.height
    if figure.narrow:
        layout["meta"] = {"narrow": figure.narrow}
    from snippets._lab.draw.fragment import dumps

    text = dumps({"data": spec["data"], "layout": layout})
    return text, preview(json.loads(text))


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
    inner = f'<div class="am-panels">{"".join(drawn)}</div>'
    return f'<div class="am-preview" aria-hidden="true" style="{sides}">{inner}</div>'


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
