"""The figures of the scoreboard: each draws the result of the same name."""

from itertools import pairwise

import plotly.graph_objects as go

from snippets._lab.draw import charts
from snippets._lab.draw.figure import (
    DASHES,
    NAMES,
    Figure,
    cell,
    colour,
    device_name,
    from_all,
    hover,
    name_of,
    only,
    pick,
    ratio,
    time,
)
from snippets._lab.rooms import source_file

from .differences import lines_of_code, steps_html

EFFECT = "#808a94"  # a model of one effect, beside what really runs
ROOFS = {
    "matmul_float16": "float16 products, measured",
    "fma_float32": "float32 units, measured",
}


def _megabytes(count):
    return f"{count / 1e6:,.3g} MB" if count < 1e9 else f"{count / 1e6:,.0f} MB"


def _rate(row):
    """FLOP/s of a timed row."""
    return row["flops"] / row["ms_p50"] * 1e3


def _best(result, N):
    """Milliseconds of the fastest at one length."""
    return min(r["ms_p50"] for r in pick(result.rows, N=N))


def _lines(name):
    return None if name.startswith("torch:") else lines_of_code(source_file(name))


def _named(implementation):
    """What a chart calls it: "PyTorch eager", or with what is special, "PyTorch eager, TF32"."""
    name, comma, special = implementation.partition(",")
    return NAMES.get(name, name) + comma + special


def _called(row):
    """What a chart calls a row's effect or implementation."""
    return row["label"] or _named(row["implementation"])


def kernels(results):
    rows = results[0].rows
    names = list(dict.fromkeys(r["implementation"] for r in pick(rows)))
    lengths = sorted({r["N"] for r in rows})
    figure = go.Figure()
    for device, result in enumerate(results):
        read = result.ceilings["read"]["per_s_p50"]
        for unit, label in ROOFS.items():
            top = result.ceilings[unit]["per_s_p50"]
            figure.add_scatter(
                x=[1, top / read, 10_000],
                y=[read / 1e12, top / 1e12, top / 1e12],
                name=name_of(label, result, results),
                mode="lines",
                line={"color": colour("ceiling"), "dash": "dash" if "fma" in unit else "solid"},
                hovertemplate="%{x:.3g} FLOP a byte: %{y:.3g} TFLOP/s at most",
            )
        for name in names:
            chosen = pick(result.rows, implementation=name)
            figure.add_scatter(
                x=[r["flops"] / r["bytes_compulsory"] for r in chosen],
                y=[_rate(r) / 1e12 for r in chosen],
                name=name_of(name, result, results),
                mode="lines+markers",
                line={"color": colour(name), "dash": DASHES[device], "width": 2},
                marker={"size": 9, "symbol": "diamond" if name.startswith("torch:") else "circle"},
                text=[f"N {r['N']}: {hover(r)}" for r in chosen],
                hovertemplate="%{text}<br>%{y:.3g} TFLOP/s",
            )
    figure.update_xaxes(
        type="log", title="FLOP for each byte that must move", tickvals=[1, 10, 100, 1000, 10_000]
    )
    figure.update_yaxes(type="log", title="TFLOP/s", tickvals=[0.01, 0.1, 1, 10, 100, 1000])
    figure.update_layout(legend=charts.LEGEND, margin={"t": 10, "r": 10, "l": 60, "b": 170})
    ours = [r for r in pick(rows, N=lengths[-1]) if not r["implementation"].startswith("torch:")]
    slow, fast = max(ours, key=lambda r: r["ms_p50"]), min(ours, key=lambda r: r["ms_p50"])
    winner = min(pick(rows, N=lengths[-1]), key=lambda r: r["ms_p50"])
    worst = max(pick(rows), key=lambda r: r["error_largest"])
    hungry = max(pick(rows, N=lengths[-1]), key=lambda r: r["bytes_peak"])
    roof = results[0].ceilings["matmul_float16"]["per_s_p50"]
    return Figure(
        finding=f"From {time(slow['ms_p50'])} to {time(fast['ms_p50'])}: at N {lengths[-1]:,} "
        f"{fast['implementation']} is {ratio(slow['ms_p50'] / fast['ms_p50'])} as fast as "
        f"{slow['implementation']} on the same work.",
        caption=f"{rows[0]['heads']} heads, D {rows[0]['D']}, float16, all in turn in one run. The grey lines are "
        "what the GPU reached at best in the same run: memory's bandwidth on the slope, its units on the flat "
        "part. Every implementation has the same FLOPs and the same bytes that must move, so it stands at the "
        "same place from left to right; only the height is its own.",
        table=[
            {
                **({"device": result.label} if len(results) > 1 else {}),
                "kernel": _named(r["implementation"]),
                "N": r["N"],
                "time": time(r["ms_p50"]) if not r.get("error") else r["error"],
                "TFLOP/s": None if r.get("error") else float(f"{_rate(r) / 1e12:.3g}"),
                "times the best": None if r.get("error") else ratio(r["ms_p50"] / _best(result, N)),
                "largest error": None if r.get("error") else f"{r['error_largest']:.1e}",
                "peak memory": None if r.get("error") else _megabytes(r["bytes_peak"]),
                "lines of code": _lines(r["implementation"]),
            }
            for result in results
            for N in lengths
            for r in sorted(
                (r for r in result.rows if r["N"] == N),
                key=lambda r: -r.get("ms_p50", float("inf")),
            )
        ],
        plot=figure,
        height=560,
        narrow={"height": 760, "legend": {"y": -0.12}},
        open_table=True,
        sentences={
            "best": f"At N {lengths[-1]:,} the fastest is {_named(winner['implementation'])} with "
            f"{_rate(winner) / 1e12:.0f} TFLOP/s, {_rate(winner) / roof * 100:.0f} % of what this GPU's tensor "
            f"cores do at best; {fast['implementation']} takes "
            f"{ratio(fast['ms_p50'] / winner['ms_p50'])} its time.",
            "order": f"At N {lengths[-1]:,}, {_changes(ours)}.",
            "last": _last(rows, lengths),
            "error": f"The largest error of all is {worst['error_largest']:.1e}, of "
            f"{_named(worst['implementation'])}.",
            "memory": f"Most memory takes {_named(hungry['implementation'])}: "
            f"{_megabytes(hungry['bytes_peak'])} beside its inputs, where the result itself has "
            f"{_megabytes(hungry['bytes_result'])}.",
        },
    )


@from_all
def road(results):
    results = [r for r in results if (r.post, r.result) == ("scoreboard", "kernels")]
    rows = results[0].rows
    N = max(r["N"] for r in rows)
    ms = {r["implementation"]: r["ms_p50"] for r in pick(rows, N=N)}
    shown = {r["implementation"]: r["label"] for r in pick(rows, N=N) if r["label"]}
    first, *_, last = [name for name in shown if not name.startswith("torch:")]
    fewer = ms[first] / ms[last]
    best = ms["torch:sdpa"]
    return Figure(
        finding=f"From {time(ms[first])} to {time(ms[last])} for the same attention: "
        f"{ratio(fewer)} as fast, and PyTorch's own takes {time(best)}.",
        caption=f"{rows[0]['heads']} heads of {cell(N)} queries and keys, D {rows[0]['D']}, float16; time of "
        "one call, logarithmic: left is faster. All in one run.",
        table=[
            {
                **({"device": result.label} if len(results) > 1 else {}),
                "kernel": _named(r["implementation"]),
                "time": time(r["ms_p50"]),
                "TFLOP/s": float(f"{_rate(r) / 1e12:.3g}"),
            }
            for result in results
            for r in pick(result.rows, N=N)
            if r["implementation"] in shown
        ],
        plot=charts.times(results, shown, [N]),
        height=360,
        narrow={"xaxis": {"tickvals": [0.1, 10], "ticktext": ["100 µs", "10 ms"]}},
        sources=results,
    )


def _changes(rows):
    """How much faster or slower each kernel is than the one before it."""
    steps = []
    for before, after in pairwise(rows):
        faster = before["ms_p50"] / after["ms_p50"]
        said = "the same within the spread"
        if not _within_spread(before, after):
            said = f"{ratio(max(faster, 1 / faster))} {'faster' if faster > 1 else 'slower'}"
        steps.append(f"{after['implementation']} is {said}")
    return f"after {rows[0]['implementation']}, {', '.join(steps)}"


def _within_spread(a, b):
    return a["ms_p20"] <= b["ms_p80"] and b["ms_p20"] <= a["ms_p80"]


def _last(rows, lengths):
    """What the last kernel, for one architecture, adds to the one before it."""
    step = max(r["step"] for r in rows if r["step"])
    name = next(r["implementation"] for r in rows if r["step"] == step)
    found = []
    for N in lengths:
        for last in pick(rows, N=N, step=step):
            before = only(rows, N=N, step=step - 1)
            more = ratio(before["ms_p50"] / last["ms_p50"])
            spread = " (within the spread)" * _within_spread(before, last)
            found.append(f"{more} at N {N:,}{spread}")
    if not found:
        reason = next(r["error"] for r in rows if r["step"] == step)
        return f"{name} does not run on this GPU: {reason}."
    return f"The speed of {name} over that of {before['implementation']}: {', '.join(found)}."


def ladder(results):
    rows = pick(results[0].rows)
    names = [r["implementation"] for r in rows]
    unrecorded = {r["implementation"]: r["error"] for r in results[0].rows if r.get("error")}
    paths = {name: source_file(name) for name in [*names, *unrecorded]}
    lines = {name: lines_of_code(path) for name, path in paths.items()}
    each = {r["implementation"]: r["loads"] / r["programs"] for r in rows}
    first, last = only(rows, implementation=names[0]), only(rows, implementation=names[-1])
    facts = {
        r["implementation"]: f"{lines[r['implementation']]} lines of code, "
        f"{r['launches']} launch{'es' * (r['launches'] > 1)}; a program loads "
        f"{each[r['implementation']]:.3g} times, all of them {r['bytes_loaded']:,} bytes."
        for r in rows
    } | {name: f"{lines[name]} lines of code. {reason}." for name, reason in unrecorded.items()}
    table = [
        {
            "kernel": r["implementation"],
            "lines of code": lines[r["implementation"]],
            "launches": r["launches"],
            "programs": r["programs"],
            "loads a program": round(each[r["implementation"]], 1),
            "bytes loaded": r["bytes_loaded"],
            "of the compulsory": ratio(r["bytes_loaded"] / r["bytes_compulsory"]),
        }
        for r in rows
    ]
    table += [
        dict.fromkeys(table[0]) | {"kernel": name, "lines of code": lines[name]}
        for name in unrecorded
    ]
    more = [f"{name} has {lines[name]}" for name in unrecorded]
    return Figure(
        finding=f"From {names[0]} to {names[-1]} the programs of one small head load "
        f"{first['bytes_loaded']:,} and {last['bytes_loaded']:,} bytes, and the kernel has "
        f"{lines[names[0]]} and {lines[names[-1]]} lines; {', '.join(more)}.",
        caption=f"M {first['M']}, N {first['N']}, D {first['D']}, {first['dtype']}: recorded while the "
        "interpreter ran the kernels. Lines without comments and docstrings, of the kernels alone. A load is one "
        "load of the text; with tiles it brings many rows. "
        + "".join(f"{name}: {reason}." for name, reason in unrecorded.items()),
        table=table,
        open_table=True,
        widget=steps_html(paths, facts),
    )


def budget(results):
    shown = [r for r in results if r.place == "gpu"] or results[:1]
    result = shown[0]
    rows = pick(result.rows)
    dtypes = list(dict.fromkeys(r["dtype"] for r in rows))
    N = min(r["N"] for r in rows)  # all kernels take it

    def at(name, dtype):
        return only(rows, implementation=name, dtype=dtype, N=N)["error_largest"]

    figure = go.Figure()
    symbols = {"float16": "circle", "bfloat16": "square", "float32": "diamond"}
    names = [n for kind in ("effect", "kernel", "PyTorch") for n in dict.fromkeys(
        r["implementation"] for r in rows if r["kind"] == kind)]  # fmt: skip
    called = {r["implementation"]: _called(r) for r in rows}
    for device, dtype in ((d, t) for d in range(len(shown)) for t in dtypes):
        measured = pick(shown[device].rows, dtype=dtype, N=N)
        chosen = [r for name in names for r in pick(measured, implementation=name)]
        figure.add_scatter(
            y=[_called(r) for r in chosen],
            x=[max(r["error_largest"], 1e-12) for r in chosen],
            name=f"{dtype}, {device_name(shown[device])}",
            mode="markers",
            marker={
                "size": 10,
                "opacity": 0.6**device,
                "symbol": symbols[dtype],
                "color": [
                    EFFECT if r["kind"] == "effect" else colour(r["implementation"].split(",")[0])
                    for r in chosen
                ],
            },
            hovertemplate="%{y}: %{x:.2g}",
        )
    figure.update_xaxes(type="log", title="largest distance from float64", exponentformat="power")
    figure.update_yaxes(
        automargin=True, categoryorder="array", categoryarray=[called[n] for n in names][::-1]
    )
    figure.update_layout(legend=charts.LEGEND, margin={"t": 10, "r": 10, "l": 10, "b": 90})
    half = "float16"
    stored, weights = at("stored", half), at("weights", half)
    exp, exp2 = at("exp", half), at("exp2", half)
    tf32 = at("tf32", "float32")
    real = pick(rows, implementation="torch:eager, TF32", N=N)
    plain = at("torch:eager", "float32")
    said = "as much as" if exp2 == exp else "less than" if exp2 < exp else "more than"
    return Figure(
        finding=f"In float16 storing the result costs {stored:.1e} and weights of 16 bits cost {weights:.1e}; "
        f"taking exp2 in the place of exp costs {exp2:.1e}, {said} exp itself ({exp:.1e}).",
        caption=f"N {N}, D {rows[0]['D']}; largest difference from float64 attention of the same rounded inputs. "
        "Grey: PyTorch models with all in float64 except the one effect. Coloured: what really runs, with all "
        "its effects together.",
        table=[
            {
                **({"device": x.label} if len(shown) > 1 else {}),
                "what": r["kind"],
                "of": _called(r),
                "dtype": r["dtype"],
                "M": r.get("M", r["N"]),
                "N": r["N"],
                "largest": f"{r['error_largest']:.1e}",
                "mean": f"{r['error_mean']:.1e}",
            }
            for x in shown
            for r in pick(x.rows)
        ],
        plot=figure,
        height=520,
        sentences={
            "tf32": f"TF32 in both products costs {tf32:.1e} by the model"
            + (
                f", and eager PyTorch with TF32 allowed is off by {real[0]['error_largest']:.1e} on "
                f"{cell(result.label)}"
                if real
                else ""
            )
            + f"; without it eager PyTorch in float32 is off by {plain:.1e}, "
            f"{ratio((real[0]['error_largest'] if real else tf32) / plain)} less.",
            "weights": f"Weights of 16 bits cost {ratio(weights / stored)} what storing the result costs anyway.",
            "exp": f"exp2 costs {exp2:.1e} and exp {exp:.1e} in float32: "
            + (
                "beside the rounding of a 16-bit result neither is seen."
                if max(exp, exp2) < stored / 10
                else "not small beside the rounding of the result."
            ),
        },
    )
