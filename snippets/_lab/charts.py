"""What charts of several rooms share: an axis of times, words for quotients, a phone's layout."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from plotly.subplots import make_subplots

from .figures import DASHES, colour, hover, name_of, pick, ratio
from .store import Result

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
