"""The figures of the composed_attention page: each draws the result of the same name."""

import itertools

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from snippets._lab.draw.figure import (
    DASHES,
    NAMES,
    Figure,
    cell,
    colour,
    device_name,
    hover,
    name_of,
    only,
    pick,
    ratio,
    time,
)

LEGEND = {"orientation": "h", "y": -0.22, "x": 0}
MARGIN = {"t": 40, "r": 10, "l": 60, "b": 110}
MILLISECONDS = {
    "type": "log",
    "tickvals": [0.01, 0.1, 1, 10, 100],
    "ticktext": ["10 µs", "100 µs", "1 ms", "10 ms", "100 ms"],
}
DTYPES = ["float32", "float16"]
STEPS = {
    "transpose": "composed_attention:transpose",
    "scores": "composed_attention:matmul",
    "softmax": "composed_attention:softmax",
    "values": "composed_attention",
}
STEP_NAMES = {
    "transpose": "Kᵀ",
    "scores": "scores = q·Kᵀ",
    "softmax": "softmax",
    "values": "weights·V",
}


def _against(ours, theirs):
    """ "2.1× faster than" or "1.30× slower than", for a time beside another."""
    if ours <= theirs:
        return f"{ratio(theirs / ours)} faster than"
    return f"{ratio(ours / theirs)} slower than"


def _share(part, whole):
    return f"{100 * part / whole:.0f} %"


def _bytes(count):
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def _lines(figure, results, implementations, x, y, dtype, **at):
    """One line for each device and implementation; `y` of a row."""
    for device, result in enumerate(results):
        for implementation in implementations:
            rows = pick(result.rows, implementation=implementation, dtype=dtype)
            figure.add_scatter(
                x=[r[x] for r in rows],
                y=[y(r) for r in rows],
                name=name_of(implementation, result, results),
                legendgroup=name_of(implementation, result, results),
                showlegend=at.get("col", 1) == 1,
                mode="lines+markers",
                line={"color": colour(implementation), "dash": DASHES[device], "width": 2},
                text=[hover(r) for r in rows],
                hovertemplate=f"{x} " + "%{x}: %{text}",
                **at,
            )


def _two_panels(results, implementations, y):
    """float32 on the left, float16 on the right, over N; below each other on a phone."""
    figure = make_subplots(1, 2, subplot_titles=DTYPES, shared_yaxes=True)
    for column, dtype in enumerate(DTYPES, start=1):
        _lines(figure, results, implementations, "N", y, dtype, row=1, col=column)
    lengths = sorted({r["N"] for r in results[0].rows})
    shown = lengths if len(lengths) < 7 else lengths[::2]
    figure.update_xaxes(type="log", tickvals=shown, title="N")
    figure.update_layout(legend=LEGEND, margin=MARGIN)
    return figure


NARROW = {
    "height": 820,
    "grid": {"rows": 2, "columns": 1},
    "xaxis": {"domain": [0, 1]},
    "xaxis2": {"domain": [0, 1], "anchor": "y2"},
    "yaxis": {"domain": [0.6, 1]},
    "yaxis2": {"domain": [0.1, 0.45], "anchor": "x2", "showticklabels": True},
    "legend": {"y": -0.06},
    "annotations": [
        {"text": t, "x": 0.5, "y": y, "xref": "paper", "yref": "paper",
         "showarrow": False, "yanchor": "bottom"}
        for t, y in (("float32", 1), ("float16", 0.45))
    ],
}  # fmt: skip


def _times(rows, implementations, **wanted):
    """implementation → median, of the rows with these values."""
    return {
        i: only(rows, implementation=i, **wanted)["ms_p50"]
        for i in implementations
        if pick(rows, implementation=i, **wanted)
    }


def _table(rows, implementations, keys, value):
    """One row for each case, one column for each implementation."""
    cases = list(dict.fromkeys(tuple(r[k] for k in keys) for r in rows))
    table = []
    for case in cases:
        wanted = dict(zip(keys, case, strict=True))
        found = {i: pick(rows, implementation=i, **wanted) for i in implementations}
        table.append(wanted | {i: value(f[0]) if f else None for i, f in found.items()})
    return [{NAMES.get(key, key): value for key, value in row.items()} for row in table]


def forward(results):
    rows = results[0].rows
    names = ["composed_attention", "basic_attention", "torch:eager", "torch:sdpa"]
    figure = _two_panels(results, names, lambda r: r["ms_p50"])
    figure.update_yaxes(MILLISECONDS)
    at = {d: _times(rows, names, dtype=d, N=1024) for d in DTYPES}
    long = {d: _times(rows, names, dtype=d, N=8192) for d in DTYPES}
    ours = {d: at[d]["composed_attention"] for d in DTYPES}
    ours_long = {d: long[d]["composed_attention"] for d in DTYPES}
    beaten = [
        (d, n)
        for d in DTYPES
        for n in sorted({r["N"] for r in rows})
        if (t := _times(rows, names, dtype=d, N=n))["composed_attention"] < t["basic_attention"]
    ]
    return Figure(
        finding="At 1024 queries of 64 columns the four launches are "
        f"{_against(ours['float32'], at['float32']['basic_attention'])} one query a program in "
        f"float32 and {_against(ours['float16'], at['float16']['torch:sdpa'])} PyTorch's fused "
        "kernel in float16.",
        caption="One head, D 64, time of one call, both axes logarithmic: down is faster. Medians; "
        "L2 flushed before every call; all take turns. Separate operations are PyTorch's own scaling, "
        "matmul, softmax, matmul.",
        table=_table(rows, names, ["dtype", "N"], lambda r: time(r["ms_p50"])),
        plot=figure,
        height=460,
        narrow=NARROW,
        sentences={
            "basic": f"It is faster than one query a program in {len(beaten)} of "
            f"{len({(r['dtype'], r['N']) for r in rows})} cases.",
            "eager": "Against the same operations of PyTorch's it is "
            f"{_against(ours['float32'], at['float32']['torch:eager'])} them in float32 and "
            f"{_against(ours['float16'], at['float16']['torch:eager'])} them in float16 at N 1024; at "
            f"N 8192 {_against(ours_long['float32'], long['float32']['torch:eager'])[:-5]} and "
            f"{_against(ours_long['float16'], long['float16']['torch:eager'])[:-5]}.",
            "fused": "Against the fused kernel it is "
            f"{_against(ours_long['float32'], long['float32']['torch:sdpa'])} it in float32 and "
            f"{_against(ours_long['float16'], long['float16']['torch:sdpa'])} it in float16 at N 8192.",
        },
    )  # fmt: skip


def kernels(results):
    rows = results[0].rows
    figure = make_subplots(1, 2, subplot_titles=DTYPES, shared_yaxes=True)
    lengths = sorted({r["N"] for r in rows})
    total = {
        (d, n): sum(r["ms_p50"] for r in pick(rows, dtype=d, N=n)) for d in DTYPES for n in lengths
    }
    panels = itertools.product(enumerate(results), enumerate(DTYPES, start=1), STEPS.items())
    for (device, result), (column, dtype), (step, painted) in panels:
        chosen = [only(result.rows, step=step, dtype=dtype, N=n) for n in lengths]
        whole = [sum(r["ms_p50"] for r in pick(result.rows, dtype=dtype, N=n)) for n in lengths]
        figure.add_bar(
            x=[str(n) for n in lengths],
            y=[100 * r["ms_p50"] / w for r, w in zip(chosen, whole, strict=True)],
            name=STEP_NAMES[step],
            legendgroup=step,
            offsetgroup=str(device),  # a second device stands beside the first
            showlegend=column == 1 and device == 0,
            marker={"color": colour(painted), "opacity": 0.75**device},
            text=[hover(r) for r in chosen],
            textposition="none",
            hovertemplate=f"{device_name(result)}, {STEP_NAMES[step]}, N "
            "%{x}: %{y:.0f} %, %{text}",
            row=1,
            col=column,
        )
    figure.update_xaxes(type="category", title="N")
    figure.update_yaxes(range=[0, 100])
    figure.update_yaxes(title="% of the time", col=1)
    figure.update_layout(barmode="stack", legend=LEGEND | {"traceorder": "normal"}, margin=MARGIN)
    most = lengths[-1]
    worst = {d: max(pick(rows, dtype=d, N=most), key=lambda r: r["ms_p50"]) for d in DTYPES}
    soft = {d: only(rows, step="softmax", dtype=d, N=most) for d in DTYPES}
    speed = {d: r["bytes_moved"] / r["ms_p50"] / 1e6 for d, r in soft.items()}
    scores = only(rows, step="scores", dtype="float16", N=most)
    peak = results[0].ceilings["matmul_float16"]["per_s_p50"]
    return Figure(
        finding=f"At N {most} the most time goes into {STEP_NAMES[worst['float32']['step']]} in "
        f"float32 ({_share(worst['float32']['ms_p50'], total['float32', most])}) and into "
        f"{STEP_NAMES[worst['float16']['step']]} in float16 "
        f"({_share(worst['float16']['ms_p50'], total['float16', most])}).",
        caption="Shares of the four launches in one call: 16 heads, D 64. Medians; events between "
        "the launches; L2 flushed before the first only, so a step may find in L2 what the one "
        "before left there.",
        table=[
            {"dtype": d, "N": n, **{
                STEP_NAMES[s]: time(only(rows, step=s, dtype=d, N=n)["ms_p50"]) for s in STEPS
            }, "together": time(total[d, n])}
            for d in DTYPES for n in lengths
        ],
        plot=figure,
        height=440,
        narrow={**NARROW, "height": 760},
        sentences={
            "softmax": f"The softmax computes next to nothing, and at N {most} it takes "
            f"{_share(soft['float16']['ms_p50'], total['float16', most])} of the time in float16 and "
            f"{_share(soft['float32']['ms_p50'], total['float32', most])} in float32, reading and "
            f"writing {speed['float16']:,.0f} and {speed['float32']:,.0f} GB a second.",
            "scores": f"The product q·Kᵀ does {scores['flops'] / scores['ms_p50'] / 1e9:,.0f} "
            f"TFLOP/s in float16 at N {most}, {_share(scores['flops'] / scores['ms_p50'] * 1e3, peak)} "
            "of what this GPU reaches with large square matrices: it sums only 64 products for each "
            "score that it has to write.",
            "transpose": "The transpose takes "
            f"{_share(only(rows, step='transpose', dtype='float16', N=lengths[0])['ms_p50'], total['float16', lengths[0]])} "
            f"of the time at N {lengths[0]} and "
            f"{_share(only(rows, step='transpose', dtype='float16', N=most)['ms_p50'], total['float16', most])} "
            f"at N {most} in float16.",
        },
    )  # fmt: skip


def matmul(results):
    rows = results[0].rows
    names = ["composed_attention:matmul", "torch:matmul"]
    figure = _two_panels(results, names, lambda r: r["flops"] / r["ms_p50"] / 1e9)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title="TFLOP/s", col=1)
    at = {d: _times(rows, names, dtype=d, N=4096) for d in DTYPES}
    part = {d: t["torch:matmul"] / t["composed_attention:matmul"] for d, t in at.items()}
    done = {d: 2 * 4096**3 / t["composed_attention:matmul"] / 1e9 for d, t in at.items()}
    return Figure(
        finding=f"At 4096³ the tiled product does {done['float16']:,.0f} TFLOP/s in float16, "
        f"{part['float16']:.2f} of PyTorch's, and {done['float32']:,.1f} in float32, "
        f"{part['float32']:.2f} of PyTorch's.",
        caption="Product of two N × N matrices; up is faster. Medians; L2 flushed before every call; "
        "the two take turns. Neither uses TF32 for float32.",
        table=_table(
            rows, names, ["dtype", "N"],
            lambda r: f"{time(r['ms_p50'])}, {r['flops'] / r['ms_p50'] / 1e9:,.1f} TFLOP/s",
        ),
        plot=figure,
        height=440,
        narrow=NARROW,
    )  # fmt: skip


def softmax(results):
    rows = results[0].rows
    names = ["composed_attention:softmax", "torch:softmax", "torch:clone"]
    ceiling = results[0].ceilings["copy"]["per_s_p50"] / 1e9
    figure = go.Figure()
    _lines(figure, results, names, "columns", _gigabytes, "float32")
    lengths = sorted({r["columns"] for r in rows})
    figure.add_scatter(
        x=[lengths[0], lengths[-1]], y=[ceiling] * 2, name="copy ceiling", mode="lines",
        line={"color": colour("ceiling"), "dash": "dot"}, hovertemplate="%{y:,.0f} GB/s",
    )  # fmt: skip
    shown = [1, 16, 128, 1024, 8192]  # every length would crowd a phone
    ticks = [str(n) if n < 10_000 else f"{n:,}" for n in shown]
    figure.update_xaxes(type="log", tickvals=shown, ticktext=ticks, title="columns")
    figure.update_yaxes(rangemode="tozero", title="GB/s, read and written")
    figure.update_layout(legend=LEGEND, margin={**MARGIN, "t": 10})
    at = {i: only(rows, implementation=i, columns=4096) for i in names}
    ours = at["composed_attention:softmax"]
    odd = only(rows, implementation="composed_attention:softmax", columns=5000)
    return Figure(
        finding=f"8192 rows of 4096 numbers take {time(ours['ms_p50'])}: "
        f"{_gigabytes(ours):,.0f} GB/s, {_gigabytes(ours) / ceiling:.2f} of the copy ceiling and "
        f"{_against(ours['ms_p50'], at['torch:softmax']['ms_p50'])} PyTorch's softmax.",
        caption="Softmax of 8192 rows, float32, one read and one write counted; up is faster. "
        "Medians; L2 flushed before every call; the three take turns. The copy is `x.clone()` of the "
        "same tensor; the ceiling is the best copy of this GPU, of 2 GiB.",
        table=_table(
            rows, names, ["columns"], lambda r: f"{time(r['ms_p50'])}, {_gigabytes(r):,.0f} GB/s"
        ),
        plot=figure,
        height=420,
        sentences={
            "odd": f"With 5000 columns it is {_gigabytes(odd):,.0f} GB/s: the rows no longer begin at "
            "multiples of 16 numbers, so the compiler cannot load four at a time."
        },
    )  # fmt: skip


def _gigabytes(row):
    return row["bytes_compulsory"] / row["ms_p50"] / 1e6


def transpose(results):
    rows = results[0].rows
    names = ["composed_attention:transpose", "torch:transpose", "torch:clone"]
    figure = _two_panels(results, names, _gigabytes)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title="GB/s, read and written", col=1)
    at = {d: _times(rows, names, dtype=d, N=8192) for d in DTYPES}
    part = {d: t["torch:clone"] / t["composed_attention:transpose"] for d, t in at.items()}
    ours = {d: t["composed_attention:transpose"] for d, t in at.items()}
    return Figure(
        finding=f"Transposing 8192 × 8192 runs at {part['float32']:.2f} of a plain copy's speed in "
        f"float32 and {part['float16']:.2f} in float16.",
        caption="Transposed copy of an N × N matrix, one read and one write counted; up is faster. "
        "Medians; L2 flushed before every call; the three take turns.",
        table=_table(
            rows, names, ["dtype", "N"],
            lambda r: f"{time(r['ms_p50'])}, {_gigabytes(r):,.0f} GB/s",
        ),
        plot=figure,
        height=440,
        narrow=NARROW,
        sentences={
            "torch": "Against PyTorch's `x.mT.contiguous()` it is "
            f"{_against(ours['float32'], at['float32']['torch:transpose'])} it in float32 and "
            f"{_against(ours['float16'], at['float16']['torch:transpose'])} it in float16 at N 8192."
        },
    )  # fmt: skip


def strides(results):
    rows = results[0].rows
    names = ["composed_attention", "composed_attention:exercise"]
    figure = _two_panels(results, names, lambda r: r["ms_p50"])
    figure.update_yaxes(MILLISECONDS)
    lengths = sorted({r["N"] for r in rows})
    saved = {}
    for d in DTYPES:
        for n in lengths:
            t = _times(rows, names, dtype=d, N=n)
            saved[d, n] = t["composed_attention"] - t["composed_attention:exercise"]
    whole = {k: _times(rows, names, dtype=k[0], N=k[1])["composed_attention"] for k in saved}
    change = {k: f"{-100 * saved[k] / whole[k]:+.0f} %".replace("-", "−") for k in saved}
    most = max(saved, key=lambda k: saved[k] / whole[k])
    least = min(saved, key=lambda k: saved[k] / whole[k])
    return Figure(
        finding=f"Reading k through swapped strides changes the time by {change[most]} "
        f"({most[0]}, N {most[1]}) to {change[least]} ({least[0]}, N {least[1]}).",
        caption="16 heads, D 64, time of one call, both axes logarithmic. Medians; L2 flushed before "
        "every call; the two take turns. A minus is time saved.",
        table=[
            {**row, "change": change[row["dtype"], row["N"]]}
            for row in _table(rows, names, ["dtype", "N"], lambda r: time(r["ms_p50"]))
        ],
        plot=figure,
        height=440,
        narrow=NARROW,
        sentences={
            "saved": f"In float16 the change is {change['float16', lengths[0]]} at N {lengths[0]} and "
            f"{change['float16', lengths[-1]]} at N {lengths[-1]}; in float32 "
            f"{change['float32', lengths[0]]} and {change['float32', lengths[-1]]}.",
        },
    )  # fmt: skip


def memory_traffic(results):
    rows = results[0].rows
    figure = go.Figure()
    half = pick(rows, dtype="float16")
    for step, painted in STEPS.items():
        figure.add_bar(
            x=[str(r["N"]) for r in half],
            y=[r[f"bytes_{step}"] / r["bytes_fused"] for r in half],
            name=STEP_NAMES[step],
            marker={"color": colour(painted)},
            hovertemplate=f"{STEP_NAMES[step]}, N " + "%{x}: %{y:.1f}×",
        )
    figure.update_xaxes(type="category", title="N")
    figure.update_yaxes(title="bytes over a fused kernel's")
    figure.update_layout(
        barmode="stack", legend=LEGEND | {"traceorder": "normal"}, margin={**MARGIN, "t": 10}
    )
    at = only(rows, dtype="float16", N=4096)
    single = only(rows, dtype="float32", N=4096)
    pairs = 4 * at["N"] ** 2
    recorded = [r for r in rows if r["bytes_stored_recorded"] is not None]
    agree = all(r["bytes_stored_recorded"] == r["bytes_stored"] for r in recorded)
    return Figure(
        finding=f"At N 4096 in float16 the four kernels read and write {_bytes(at['bytes_total'])} "
        f"for each head where {_bytes(at['bytes_fused'])} would do, "
        f"{ratio(at['bytes_total'] / at['bytes_fused'])} as many.",
        caption="Bytes of one head of D 64 in float16, each tensor that a kernel reads or writes "
        "counted once, over what any kernel must move: q, k and v in, the result out. Counted by "
        "formula"
        + (
            "; what is stored agrees byte for byte with what the interpreter recorded at "
            f"N {recorded[0]['N']}."
            if agree and recorded
            else "; what is stored does NOT agree with what the interpreter recorded."
        )
        + " How much of it reaches memory and how much stays in L2 is not counted here.",
        table=[
            {"dtype": r["dtype"], "N": r["N"], **{
                f"{STEP_NAMES[s]}, bytes": r[f"bytes_{s}"] for s in STEPS
            }, "all, bytes": r["bytes_total"], "fused, bytes": r["bytes_fused"],
             "ratio": ratio(r["bytes_total"] / r["bytes_fused"])}
            for r in rows
        ],
        plot=figure,
        height=420,
        sentences={
            "scores": f"At N 4096 the scores of one head are {_bytes(pairs)} in float32; writing them, "
            "reading them, writing the weights in their place and reading those makes "
            f"{_share(at['bytes_softmax'] + pairs + pairs // 2, at['bytes_total'])} of all bytes in "
            f"float16 and {_share(single['bytes_softmax'] + 2 * pairs, single['bytes_total'])} in "
            "float32.",
            "half": "float16 scores would make it "
            f"{_bytes(at['bytes_total'] - pairs)} in the place of {_bytes(at['bytes_total'])}, and "
            "round every score to eleven bits before the softmax.",
        },
    )  # fmt: skip


def launches(results):
    rows = results[0].rows
    names = list(dict.fromkeys(r["implementation"] for r in rows))
    count = {(r["implementation"], r["dtype"]): r["launches"] for r in rows}
    figure = go.Figure()
    for device, result in enumerate(results):
        launched = [only(result.rows, implementation=i, dtype="float16")["launches"] for i in names]
        figure.add_bar(
            x=[name_of(i, result, results[:1]) for i in names],
            y=launched,
            name=device_name(result),
            marker={"color": [colour(i) for i in names], "opacity": 0.75**device},
            text=[str(n) for n in launched],
            textposition="auto",
            hovertemplate="%{x}: %{y}",
        )
    figure.update_yaxes(title="kernels launched", rangemode="tozero")
    figure.update_layout(showlegend=False, margin={"t": 10, "r": 10, "l": 60, "b": 80})
    return Figure(
        finding=f"One call launches {count['composed_attention', 'float16']} kernels; PyTorch's "
        f"separate operations {count['torch:eager', 'float16']}, its fused attention "
        f"{count['torch:sdpa', 'float16']}.",
        caption="Kernels on the GPU's timeline during one call, counted by torch.profiler; float16, "
        "16 heads, N 1024, D 64. Copies and fills by the driver are not counted.",
        table=[
            {"dtype": r["dtype"], "implementation": r["implementation"], "launches": r["launches"],
             "kernels": ", ".join(k if len(k) < 48 else k[:45] + "…" for k in r["kernels"])}
            for r in rows
        ],
        plot=figure,
        height=320,
    )  # fmt: skip


def allocations(results):
    rows = results[0].rows
    names = ["composed_attention", "composed_attention:exercise", "torch:eager", "torch:sdpa"]
    figure = make_subplots(1, 2, subplot_titles=DTYPES, shared_yaxes=True)
    for column, dtype in enumerate(DTYPES, start=1):
        for device, result in enumerate(results):
            for i in names:
                chosen = pick(result.rows, implementation=i, dtype=dtype)
                figure.add_scatter(
                    x=[r["N"] for r in chosen], y=[r["bytes_peak"] for r in chosen],
                    name=name_of(i, result, results), legendgroup=name_of(i, result, results),
                    showlegend=column == 1, mode="lines+markers",
                    line={"color": colour(i), "dash": DASHES[device], "width": 2},
                    text=[_bytes(r["bytes_peak"]) for r in chosen],
                    hovertemplate="N %{x}: %{text}", row=1, col=column,
                )  # fmt: skip
    lengths = sorted({r["N"] for r in rows})
    figure.update_xaxes(type="log", tickvals=lengths, title="N")
    figure.update_yaxes(
        type="log", tickvals=[1e6, 1e7, 1e8, 1e9], ticktext=["1 MB", "10 MB", "100 MB", "1 GB"]
    )
    figure.update_layout(legend=LEGEND, margin=MARGIN)
    ours = pick(rows, implementation="composed_attention")
    extra = [r["bytes_peak"] - _needed(r) for r in ours]
    at = {
        i: only(rows, implementation=i, dtype="float16", N=lengths[-1])["bytes_peak"] for i in names
    }
    return Figure(
        finding=(
            "A call holds Kᵀ, the scores and the result, and nothing else."
            if max(extra) <= 3 * 512 and min(extra) >= 0
            else f"A call holds up to {_bytes(max(extra))} beside Kᵀ, the scores and the result."
        ),
        caption="Most memory held during one call beside its inputs, by "
        "`torch.cuda.max_memory_allocated`; 16 heads, D 64. PyTorch hands out memory in pieces of "
        "512 bytes.",
        table=[
            {"dtype": r["dtype"], "N": r["N"], "implementation": r["implementation"],
             "peak, bytes": r["bytes_peak"],
             "Kᵀ + scores + result, bytes":
                 _needed(r) if r["implementation"] == "composed_attention" else None}
            for r in rows
        ],
        plot=figure,
        height=440,
        narrow=NARROW,
        sentences={
            "peak": f"At N {lengths[-1]} in float16, 16 heads, the peak is "
            f"{_bytes(at['composed_attention'])}; eager PyTorch's is {_bytes(at['torch:eager'])}, the "
            f"fused kernel's {_bytes(at['torch:sdpa'])}."
        },
    )  # fmt: skip


def _needed(row):
    return row["bytes_scores"] + row["bytes_transposed_keys"] + row["bytes_result"]


def resources(results):
    order = sorted(
        results,
        key=lambda r: (r.place != "gpu", int(f"0{r.folder.rsplit('_', 1)[1]}") if r.place != "gpu" else 0),
    )  # fmt: skip
    hopper = next(r for r in order if r.place == "gpu" or r.folder.endswith("sm_90"))
    rows = [r for r in hopper.rows if not r["error"]]
    half = [r for r in rows if "matmul" in r["kernel"] and r["dtype"] == "float16"]
    spilled = sum(bool(r["spill_store_bytes"]) for r in rows)
    units = ", ".join(dict.fromkeys(f"`{r['tensor_core']}`" for r in half))
    return Figure(
        finding=f"On {cell(hopper.label)} {spilled or 'none'} of {len(rows)} configurations "
        f"{'spills' if spilled <= 1 else 'spill'} registers, and the float16 products run on tensor "
        f"cores ({units}).",
        caption="Every configuration of the tables, as compiled. Registers and spills are for one "
        "thread, shared memory for one program.",
        table=[
            {"device": result.label, "kernel": r["kernel"].strip("_").removesuffix("_kernel"),
             "dtype": r["dtype"], "tile": r["size"], "warps": r["num_warps"],
             "registers": r["registers"], "spilled, bytes": r["spill_store_bytes"],
             "shared memory, bytes": r["shared_bytes"], "tensor core": r["tensor_core"],
             "remark": r["error"]}
            for result in order for r in result.rows
        ],
    )  # fmt: skip
