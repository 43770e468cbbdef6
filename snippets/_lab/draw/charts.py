"""What charts of several rooms share: axes, words for quotients, whole charts, a phone's layout."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from plotly.subplots import make_subplots

from snippets._lab.draw.figure import DASHES, colour, device_name, hover, name_of, pick, ratio, time
from snippets._lab.results.store import Result

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
    table = []
    for r in pick(rows, implementation=ours):
        case = {axis: r[axis] for axis in ("dtype", "D", "causal", "N")}
        there = {x["implementation"]: x for x in pick(rows, **case)}
        found = {label: there.get(name) for label, name in others.items()}
        table.append(
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
    return table


def times(results: Sequence[Result], labels: Mapping[str, str], lengths: Sequence[int]) -> Any:
    """A figure of times, a panel a length: a dot for each implementation, named by `labels`."""
    figure = make_subplots(
        1, len(lengths), subplot_titles=[f"N {N}" for N in lengths], shared_yaxes=True
    )
    for device, result in enumerate(results):
        for column, N in enumerate(lengths, start=1):
            chosen = {r["implementation"]: r for r in pick(result.rows, N=N)}
            there = [name for name in list(labels)[::-1] if name in chosen]
            figure.add_scatter(
                y=[labels[name] for name in there],
                x=[chosen[name]["ms_p50"] for name in there],
                mode="markers+text",
                name=device_name(result),
                showlegend=column == 1 and len(results) > 1,
                marker={
                    "size": 12,
                    "color": [colour(name) for name in there],
                    "opacity": 0.75**device,
                },
                text=[time(chosen[name]["ms_p50"]) for name in there],
                textposition="middle right",
                cliponaxis=False,
                hovertext=[hover(chosen[name]) for name in there],
                hovertemplate="%{y}: %{hovertext}",
                row=1,
                col=column,
            )
    shown = [r for r in pick(results[0].rows) if r["implementation"] in labels]
    every = [math.log10(r["ms_p50"]) for r in shown if r["N"] in lengths]
    low, high = min(every), max(every)
    figure.update_xaxes(
        type="log",
        tickvals=[0.01, 0.1, 1, 10, 100],
        ticktext=["10 µs", "100 µs", "1 ms", "10 ms", "100 ms"],
        range=[low - 0.2, high + 0.35 * len(lengths) * (high - low) + 0.1],  # and the numbers
    )
    figure.update_yaxes(
        automargin=True, categoryorder="array", categoryarray=list(labels.values())[::-1]
    )
    figure.update_layout(margin={"t": 40, "r": 20, "l": 10, "b": 50})
    return figure


def ceilings(result: Result) -> tuple[float, float]:
    """Bytes/s of memory, the fastest way, and FLOP/s of a bfloat16 product, of the same run."""
    memory = max(result.ceilings[way]["per_s_p50"] for way in ("read", "write", "copy"))
    return memory, result.ceilings["matmul_bfloat16"]["per_s_p50"]


def intensity(row: Row) -> float:
    """FLOP for each compulsory byte."""
    return float(row["flops"] / row["bytes_compulsory"])


def roofline(results: Sequence[Result], names: Sequence[str]) -> Any:
    """A figure of rates against intensity below the ceilings of the same run."""
    figure = make_subplots(1, 1)
    for device, result in enumerate(results):
        memory, peak = ceilings(result)
        intensities = [intensity(r) for r in pick(result.rows)]
        ends = sorted([min(intensities) / 1.5, peak / memory, max(intensities) * 1.5])
        figure.add_scatter(
            x=ends,
            y=[min(x * memory, peak) / 1e12 for x in ends],
            mode="lines",
            name="ceilings" if len(results) == 1 else f"ceilings, {device_name(result)}",
            line={"color": colour("ceiling"), "width": 2},
            hovertemplate="%{x:.3g} FLOP a byte: %{y:.3g} TFLOP/s",
        )
        for name in names:
            chosen = sorted(pick(result.rows, implementation=name), key=intensity)
            figure.add_scatter(
                x=[intensity(r) for r in chosen],
                y=[tflops(r) for r in chosen],
                mode="lines+markers",
                name=name_of(name, result, results),
                line={"color": colour(name), "width": 2},
                marker={"size": 8, "opacity": 0.75**device},
                text=[f"N {r['N']}, M {r.get('M', r['N'])}: {hover(r)}" for r in chosen],
                hovertemplate="%{text}<br>%{y:.3g} TFLOP/s",
            )
    figure.update_xaxes(type="log", title="FLOP a compulsory byte")
    figure.update_yaxes(type="log", title="TFLOP/s")
    figure.update_layout(legend=LEGEND | {"y": -0.22}, margin={"t": 10, "r": 20, "l": 70, "b": 100})
    return figure


def errors(results: Sequence[Result]) -> Any:
    """A figure of each implementation's differences from float64: a panel a dtype, a dot a cell."""
    first = results[0]
    devices = [first, *(r for r in results[1:] if r.place == "gpu")]
    dtypes = list(dict.fromkeys(r["dtype"] for r in first.rows))
    names = list(dict.fromkeys(r["implementation"] for r in first.rows))
    labels = {name: name_of(name, first, results[:1]) for name in names}
    figure = make_subplots(1, len(dtypes), subplot_titles=dtypes, shared_yaxes=True)
    for column, dtype in enumerate(dtypes, start=1):
        for device, result in enumerate(devices):
            for name in names:
                chosen = pick(result.rows, implementation=name, dtype=dtype)
                figure.add_scatter(
                    y=[labels[name]] * len(chosen),
                    x=[r["largest"] for r in chosen],
                    mode="markers",
                    name=device_name(result),
                    legendgroup=device_name(result),
                    showlegend=device > 0 and column == 1 and name == names[0],
                    marker={
                        "size": 9,
                        "symbol": "diamond-open" if device else "circle",
                        "color": colour(name),
                    },
                    text=[f"D {r['D']}, N {r['N']}" for r in chosen],
                    hovertemplate="%{y}, %{text}: %{x:.1e}",
                    row=1,
                    col=column,
                )
        largest = [r["largest"] for r in pick(first.rows, dtype=dtype)]
        ticks = [(m, e) for e in range(-9, 1) for m in (1, 2, 5)]
        figure.update_xaxes(
            type="log",
            tickvals=[m * 10.0**e for m, e in ticks],
            ticktext=[f"{m}e{str(e).replace('-', '−')}" for m, e in ticks],
            range=[math.log10(min(largest)) - 0.2, math.log10(max(largest)) + 0.2],
            col=column,
        )
    figure.update_yaxes(
        automargin=True, categoryorder="array", categoryarray=list(labels.values())[::-1]
    )
    figure.update_layout(margin={"t": 40, "r": 20, "l": 10, "b": 50})
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
