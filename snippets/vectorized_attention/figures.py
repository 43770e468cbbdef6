"""The figures of the vectorized_attention page: each draws the result of the same name."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from snippets._lab.draw.charts import LEGEND, faster, stacked
from snippets._lab.draw.figure import (
    DASHES,
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

OURS, BASIC, SDPA = "vectorized_attention", "basic_attention", "torch:sdpa"
BLOCKS = "vectorized_attention:exercise"
WIDTHS = [64, 128, 256]
MARKERS = {64: "circle", 128: "square", 256: "diamond"}
WARPS = {OURS: "4 warps", "8 warps": "8 warps", "16 warps": "16 warps", "32 warps": "32 warps"}
MILLISECONDS = {
    "type": "log",
    "tickvals": [0.01, 0.1, 1, 10, 100],
    "ticktext": ["10 µs", "100 µs", "1 ms", "10 ms", "100 ms"],
}
FINE = {
    "tickvals": [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10],
    "ticktext": ["20 µs", "50 µs", "100 µs", "200 µs", "500 µs", "1 ms", "2 ms", "5 ms", "10 ms"],
}


def _times(rows, implementation):
    """(N, D) → ms of the cells that were timed."""
    return {(r["N"], r["D"]): r["ms_p50"] for r in pick(rows, implementation=implementation)}


def _cliff(speedups, D):
    """Up to where the kernel is ahead of basic_attention at one D, and from where it is behind."""
    at = {N: x for (N, d), x in sorted(speedups.items()) if d == D}
    behind = [N for N in at if at[N] < 1]
    ahead = [N for N in at if at[N] >= 1 and (not behind or behind[0] > N)]
    words = []
    if ahead:
        words.append(f"ahead up to N {ahead[-1]}, where it is {faster(at[ahead[-1]])}")
    if behind:
        words.append(f"behind from N {behind[0]} on, where it is {faster(at[behind[0]])}")
    return f"D {D}: {', and '.join(words)}"


def forward(results):
    rows = results[0].rows
    ours, basic, blocks, sdpa = (_times(rows, i) for i in (OURS, BASIC, BLOCKS, SDPA))
    speedups = {cell: basic[cell] / ms for cell, ms in ours.items()}
    best, worst = max(speedups, key=speedups.get), min(speedups, key=speedups.get)
    missing = {(r["N"], r["D"]): r["error"] for r in rows if r.get("error")}
    lengths = sorted({N for N, _ in basic})
    figure = make_subplots(1, 3, subplot_titles=[f"D {D}" for D in WIDTHS], shared_yaxes=True)
    for device, result in enumerate(results):
        for column, D in enumerate(WIDTHS, start=1):
            for implementation in (BASIC, OURS, BLOCKS, SDPA):
                chosen = pick(result.rows, implementation=implementation, D=D)
                name = name_of(implementation, result, results)
                figure.add_scatter(
                    x=[r["N"] for r in chosen],
                    y=[r["ms_p50"] for r in chosen],
                    name=name,
                    legendgroup=name,
                    showlegend=column == 1,
                    mode="lines+markers",
                    line={"color": colour(implementation), "dash": DASHES[device], "width": 2},
                    marker={"size": 6},
                    text=[hover(r) for r in chosen],
                    hovertemplate="N %{x}: %{text}",
                    row=1,
                    col=column,
                )
    for column, D in enumerate(WIDTHS, start=1):
        if stopped := [N for N, d in missing if d == D]:
            figure.add_vrect(
                x0=min(stopped) / 2**0.5,
                x1=max(lengths) * 2**0.5,
                fillcolor=colour(OURS),
                opacity=0.14,
                line_width=0,
                row=1,
                col=column,
            )
    figure.update_xaxes(
        type="log", tickvals=[16, 64, 256, 1024], title="N, queries and keys",
        range=[1.1, 3.4],
    )  # fmt: skip
    figure.update_yaxes(MILLISECONDS)
    figure.update_layout(legend=LEGEND, margin={"t": 40, "r": 10, "l": 60, "b": 110})
    largest = [cell for cell in ours if cell[0] * cell[1] == max(n * d for n, d in ours)][-1]
    level = {cell: sdpa[cell] / ms for cell, ms in ours.items()}
    beats = sorted((cell for cell in level if level[cell] >= 1), key=lambda c: (c[0] * c[1], c))
    behind = sum(x < 1 for x in speedups.values())
    inside = sum(3 <= x <= 5 for x in speedups.values())
    slower = f", and {faster(speedups[worst])} at N {worst[0]}, D {worst[1]}" if behind else ""
    return Figure(
        finding=f"One load for all keys is {faster(speedups[best])} than one key at a time at "
        f"N {best[0]}, D {best[1]}{slower}.",
        caption="One head, float32, time of one call, both axes logarithmic: down is faster. "
        "Medians; L2 flushed before every call; all take turns."
        + (" Shaded: compiling was stopped after 20 s, so there is no time." if missing else ""),
        table=[
            {
                "N": N,
                "D": D,
                "one key at a time": time(basic[N, D]),
                "one load": time(ours[N, D]) if (N, D) in ours else missing[N, D],
                "32 keys at a time": time(blocks[N, D]),
                "PyTorch SDPA": time(sdpa[N, D]),
                "one load faster than one key by": ratio(speedups[N, D])
                if (N, D) in ours
                else None,
            }
            for D in WIDTHS
            for N in lengths
        ],
        plot=figure,
        height=440,
        narrow=stacked([f"D {D}" for D in WIDTHS], 1000, 50),
        sentences={
            "best": f"At N {best[0]}, D {best[1]} it takes {time(ours[best])} where one key at a "
            f"time takes {time(basic[best])}: {faster(speedups[best])}. PyTorch takes "
            f"{time(sdpa[best])} there.",
            "cliff": f"{'; '.join(_cliff(speedups, D) for D in WIDTHS)}. "
            + (
                f"In {behind} of the {len(speedups)} cells that compile in time, the kernel with "
                "three loads is the slower one."
                if behind
                else f"It is ahead in all {len(speedups)} cells that compile in time."
            ),
            "edge": f"The largest tile that compiles within 20 s, N {largest[0]}, D {largest[1]}, "
            f"runs {faster(speedups[largest])} than one key at a time and "
            f"{faster(level[largest])} than PyTorch. "
            f"{len(missing)} of {len(basic)} cells do not compile in that time.",
            "pytorch": (
                f"PyTorch is matched or beaten in {len(beats)} of {len(level)} cells, the largest of "
                f"them N {beats[-1][0]}, D {beats[-1][1]}; "
                if beats
                else "PyTorch is ahead in every cell; "
            )
            + f"the factor against it runs from {ratio(min(level.values()))} to "
            f"{ratio(max(level.values()))}.",
            "claim_speed": "**“Vectorising is 3–5× faster.”** Over our grid the factor against one "
            f"key at a time runs from {ratio(min(speedups.values()))} to "
            f"{ratio(max(speedups.values()))}; {inside} of {len(speedups)} cells lie between 3 and 5. "
            "No single factor describes it: it depends on whether the tile fits the registers.",
            "blocks": f"With 32 keys at a time N {worst[0]}, D {worst[1]} takes "
            f"{time(blocks[worst])}, where all keys at once take {time(ours[worst])} and one at a "
            f"time {time(basic[worst])}. At N {best[0]}, D {best[1]} it takes {time(blocks[best])} "
            f"against {time(ours[best])} with all keys at once. Every cell of the grid compiles, "
            f"N {max(lengths)}, D {max(WIDTHS)} included: {time(blocks[max(lengths), max(WIDTHS)])}, "
            f"PyTorch {time(sdpa[max(lengths), max(WIDTHS)])}.",
        },
    )


def _for_each_thread(row):
    """Elements of the tile of keys that one thread has to hold."""
    return row["N"] * row["D"] // (32 * row["num_warps"])


def _first_spill(rows):
    """The row with the smallest tile that spills; None if none does."""
    spilled = [r for r in pick(rows) if r["stack_bytes"]]
    return min(spilled, key=lambda r: (_for_each_thread(r), r["D"])) if spilled else None


def registers(results):
    on_gpu = [r for r in results if r.place == "gpu"]
    ahead = sorted(
        (r for r in results if r.place == "compiler"),
        key=lambda r: int(r.folder.rsplit("_", 1)[1]),
    )
    titles = ["registers a thread", "stack, bytes a thread", "seconds to compile"]
    figure = make_subplots(1, 3, subplot_titles=titles, horizontal_spacing=0.09)
    shown = on_gpu + ahead
    for index, result in reversed([*enumerate(shown)]):  # the reference last, so on top
        cells = sorted(
            (r for r in result.rows if not r["error"] or r["error"].startswith(">")),
            key=lambda r: (_for_each_thread(r), r["D"]),
        )
        for column, field in enumerate(("registers", "stack_bytes", "compile_seconds"), start=1):
            chosen = [r for r in cells if column == 3 or not r["error"]]
            figure.add_scatter(
                x=[_for_each_thread(r) for r in chosen],
                # On a logarithmic axis a stack of 0 bytes has no place; 1 stands for it.
                y=[20 if r["error"] else max(r[field], 1) if column == 2 else r[field]
                   for r in chosen],
                name=device_name(result),
                legendgroup=device_name(result),
                showlegend=column == 1,
                mode="markers",
                marker={
                    "color": colour(OURS if index == 0 else "ceiling"),
                    "symbol": ["triangle-up-open" if r["error"] else MARKERS[r["D"]] for r in chosen],
                    "size": 9 if index == 0 else 5,
                    "opacity": 1 if index == 0 else 0.7,
                },
                text=[
                    f"N {r['N']}, D {r['D']}: {r['error'] or format(r[field], '.3g')}"
                    for r in chosen
                ],
                hovertemplate="%{text}",
                row=1,
                col=column,
            )  # fmt: skip
    figure.update_xaxes(
        type="log", tickvals=[8, 32, 128, 512, 2048], title="elements of K a thread"
    )
    figure.update_yaxes(range=[0, 270], col=1)
    figure.update_yaxes(
        type="log", tickvals=[1, 100, 1000, 10_000], ticktext=["0", "100", "1000", "10,000"], col=2
    )
    figure.update_yaxes(
        type="log", tickvals=[0.1, 1, 10, 20], ticktext=["0.1", "1", "10", "20"], col=3
    )
    figure.update_layout(
        legend=LEGEND | {"traceorder": "reversed"}, margin={"t": 40, "r": 10, "l": 40, "b": 110}
    )
    rows = shown[0].rows
    good = pick(rows)
    stopped = [r for r in rows if r["error"] and r["error"].startswith(">")]
    first, most = _first_spill(rows), max(good, key=lambda r: r["stack_bytes"])
    whole = max((r for r in good if not r["stack_bytes"]), key=_for_each_thread)
    slowest = max(good, key=lambda r: r["compile_seconds"])
    few = min((r for r in good if r["stack_bytes"]), key=lambda r: r["registers"], default=most)
    elsewhere = {cell(r.label): _first_spill(r.rows) for r in shown[1:]}
    return Figure(
        finding=f"The tile fills the registers: N {whole['N']}, D {whole['D']} fits in "
        f"{whole['registers']} a thread; N {first['N']}, D {first['D']} spills, and "
        f"N {most['N']}, D {most['D']} keeps {most['stack_bytes']:,} bytes a thread in memory."
        if first
        else f"No tile spills; the largest takes {whole['registers']} registers a thread.",
        caption="The compiler's own account, float32, over elements of the tile of keys divided by "
        "the program's 128 threads; circles D 64, squares 128, diamonds 256. 255 is the most "
        "registers a thread may have; the stack is where spilled values live. A triangle: stopped "
        "after 20 s. Grey: other GPUs, compiled ahead of time, while other cores compiled too.",
        table=[
            {"device": r.label, "N": x["N"], "D": x["D"], "registers": x["registers"],
             "spill stores, bytes": x["spill_store_bytes"], "stack, bytes": x["stack_bytes"],
             "seconds to compile":
                 None if x["compile_seconds"] is None else f"{x['compile_seconds']:.2f}",
             "remark": x["error"]}
            for r in shown for x in r.rows
        ],
        plot=figure,
        height=420,
        narrow=stacked(titles, 1040, 90),
        sentences={
            "fit": f"Up to {_for_each_thread(whole)} elements a thread some tile still fits "
            f"(N {whole['N']}, D {whole['D']}: {whole['registers']} registers, no stack)."
            + (
                f" At {_for_each_thread(first)} the first one spills: N {first['N']}, "
                f"D {first['D']}, {first['stack_bytes']:,} bytes of stack a thread."
                if first
                else ""
            ),
            "dodge": "No kernel spills."
            if not first
            else f"Beware of the register count alone: for N {few['N']}, D {few['D']} it is "
            f"{few['registers']}, with a stack of {few['stack_bytes']:,} bytes a thread. A tile that "
            "lives in memory needs few registers."
            if few["registers"] < 128
            else f"Kernels that spill stand at {few['registers']} registers or more; the most that "
            "a thread may have is 255.",
            "seconds": f"Compiling takes {min(r['compile_seconds'] for r in good):.1f} s for the "
            f"smallest tiles and {slowest['compile_seconds']:.1f} s for N {slowest['N']}, "
            f"D {slowest['D']}. "
            + (
                f"It was stopped after 20 s for {_cells(stopped)}"
                + "; tiles with more rows were not tried."
                if stopped
                else "Every tile of the grid compiles within 20 s."
            ),
            "elsewhere": "The first tile that spills, by target: "
            + "; ".join(
                f"{label.split(',')[0]} N {r['N']}, D {r['D']}" if r else f"{label}: none"
                for label, r in elsewhere.items()
            )
            + "."
            if elsewhere
            else "Only one target was compiled for.",
        },
    )  # fmt: skip


def _cells(rows):
    return " and ".join(f"N {r['N']}, D {r['D']}" for r in rows)


def remedies(results):
    rows = results[0].rows
    figure = make_subplots(1, 2, subplot_titles=["D 64", "D 128"], shared_yaxes=True)
    symbols = dict(zip([*WARPS, SDPA], ["circle", "square", "diamond", "x", "circle"], strict=True))
    for device, result in enumerate(results):
        for column, D in enumerate((64, 128), start=1):
            for index, implementation in enumerate([*WARPS, SDPA]):
                chosen = pick(result.rows, implementation=implementation, D=D)
                name = name_of(WARPS.get(implementation, implementation), result, results)
                figure.add_scatter(
                    x=[r["N"] for r in chosen],
                    y=[r["ms_p50"] for r in chosen],
                    name=name,
                    legendgroup=name,
                    showlegend=column == 1,
                    mode="lines+markers",
                    line={
                        "color": colour(SDPA if implementation == SDPA else OURS),
                        "dash": DASHES[device],
                        "width": 2 if implementation == SDPA else 4 - index,
                    },
                    marker={"symbol": symbols[implementation], "size": 9},
                    text=[
                        hover(r)
                        + (f"<br>{r['stack_bytes']} bytes of stack" if "stack_bytes" in r else "")
                        for r in chosen
                    ],
                    hovertemplate="N %{x}: %{text}",
                    row=1,
                    col=column,
                )
    figure.update_xaxes(
        type="log", tickvals=[512, 1024, 2048], range=[2.65, 3.37], title="N, queries and keys"
    )
    figure.update_yaxes(MILLISECONDS | FINE)
    figure.update_layout(legend=LEGEND, margin={"t": 40, "r": 10, "l": 60, "b": 100})
    times = {i: _times(rows, i) for i in [*WARPS, SDPA]}
    asked = sorted({(r["N"], r["D"]) for r in rows if r["implementation"] == OURS})
    fastest = {
        cell: min((i for i in WARPS if cell in times[i]), key=lambda i: times[i][cell])
        for cell in asked
        if any(cell in times[i] for i in WARPS)
    }
    saved = {c: times[OURS][c] / times[fastest[c]][c] for c in fastest if c in times[OURS]}
    gain = max(saved, key=saved.get)
    unspilled = {
        i: max(
            (r["N"] * r["D"] for r in pick(rows, implementation=i) if not r["stack_bytes"]),
            default=None,
        )
        for i in WARPS
    }
    last = max(fastest, key=lambda cell: (cell[0] * cell[1], cell[1]))
    behind = times[fastest[last]][last] / times[SDPA][last]
    return Figure(
        finding=f"N {gain[0]}, D {gain[1]} takes {time(times[OURS][gain])} on 4 warps and "
        f"{time(times[fastest[gain]][gain])} on {WARPS[fastest[gain]].split()[0]}: "
        f"{ratio(saved[gain])} between them, and only the number of threads that share a tile "
        "differs.",
        caption="The page's kernel with `num_warps` set; one head, float32. A missing point did "
        "not compile within 20 s. Medians; L2 flushed before every call; all take turns.",
        table=[
            {"N": N, "D": D, "warps": int(label.split()[0]),
             "time": time(times[i][N, D]) if (N, D) in times[i] else r["error"],
             "registers": r["registers"], "stack, bytes": r["stack_bytes"],
             "seconds to compile":
                 None if r["compile_seconds"] is None else f"{r['compile_seconds']:.2f}",
             "PyTorch SDPA": time(times[SDPA][N, D])}
            for N, D in asked for i, label in WARPS.items()
            for r in rows if (r["implementation"], r["N"], r["D"]) == (i, N, D)
        ],
        plot=figure,
        height=400,
        narrow=stacked(["D 64", "D 128"], 760, 60),
        sentences={
            "moved": "The largest of these tiles without a stack: "
            + ", ".join(
                f"{label} {f'{unspilled[i]:,} elements' if unspilled[i] else 'none'}"
                for i, label in WARPS.items()
            )
            + ".",
            "still": f"At N {last[0]}, D {last[1]}, the largest tile here that compiles, the best "
            f"choice ({WARPS[fastest[last]]}) takes {time(times[fastest[last]][last])}, "
            + (
                f"{ratio(behind)} PyTorch's {time(times[SDPA][last])}."
                if behind >= 1
                else f"PyTorch {time(times[SDPA][last])}."
            ),
        },
    )  # fmt: skip


def latency(results):
    result, rows = results[0], results[0].rows
    labels = {
        BASIC: "one key at a time",
        "the same row each iteration": "the same, one row again and again",
        "each load waits": "1024 loads, each waits for the last",
        OURS: "all keys in one load",
    }
    figure = go.Figure()
    for device, shown in enumerate(results):
        chosen = {r["implementation"]: r for r in pick(shown.rows, M=1, N=1024)}
        figure.add_bar(
            y=list(labels.values())[::-1],
            x=[chosen[i]["ms_p50"] * 1e3 for i in labels][::-1],
            orientation="h",
            name=shown.label,
            marker={"color": colour(OURS), "opacity": 0.75**device},
            text=[time(chosen[i]["ms_p50"]) for i in labels][::-1],
            hovertext=[hover(chosen[i]) for i in labels][::-1],
            hovertemplate="%{y}: %{hovertext}",
            textposition="auto",
        )
    figure.update_xaxes(title="µs")
    figure.update_yaxes(automargin=True)
    figure.update_layout(
        showlegend=len(results) > 1, margin={"t": 10, "r": 10, "l": 10, "b": 50}, bargap=0.35
    )

    def ms(implementation, M, N):
        return only(rows, implementation=implementation, M=M, N=N)["ms_p50"]

    # Differences between two lengths leave out what a launch costs.
    trip = (ms(BASIC, 1, 1024) - ms(BASIC, 1, 256)) / (2 * 768) * 1e6
    step = (ms("each load waits", 1, 1024) - ms("each load waits", 1, 256)) / 768 * 1e6
    one, waits = ms(BASIC, 1, 1024), ms("each load waits", 1, 1024)
    overlap = step > trip
    full, cached = ms(BASIC, 1024, 1024), ms("the same row each iteration", 1024, 1024)
    left = cached / full
    work = only(rows, implementation=BASIC, M=1024, N=1024)
    rates = {
        i: work["flops"] / only(rows, implementation=i, M=1024, N=1024)["ms_p50"] * 1e3
        for i in (BASIC, OURS)
    }
    peak = result.ceilings["fma_float32"]["per_s_p50"]
    return Figure(
        finding=f"One program needs {time(one)} for 1024 keys one at a time and "
        f"{time(ms(OURS, 1, 1024))} with all of them in one load.",
        caption="One query and 1024 keys of 64 columns in float32, so one program on the whole GPU; "
        "L2 flushed, so that every row comes from memory. The second bar is wrong on purpose: its "
        "loop stays at the first row. The third is a chain: each load brings the address of the "
        "next row, and computes nothing.",
        table=[
            {"M": M, "keys": N, **{
                label.replace("1024 loads, each", "as many loads, each"):
                    time(found[0]["ms_p50"]) if found else None
                for i, label in labels.items()
                for found in [pick(rows, implementation=i, M=M, N=N)]}}
            for M in (1, 1024) for N in (256, 512, 1024)
        ],
        plot=figure,
        height=280,
        sentences={
            "claim_trip": "**“100 ns a trip, so 1024 trips take 102 µs.”** That holds only if each "
            f"load waits for the one before. In such a chain a load takes {step:.0f} ns on this GPU "
            f"and 1024 of them {time(waits)}. "
            + (
                f"The loop over the keys does not wait like that: a trip takes {trip:.0f} ns, "
                "because the address of the next key does not depend on the last one, so loads "
                "overlap."
                if overlap
                else f"A trip around the loop over the keys takes {trip:.0f} ns, no less than such "
                "a load: the loads hardly overlap, and the arithmetic of a trip comes on top."
            )
            + f" And 1024 programs wait at the same time: the whole head takes {time(full)}, "
            f"{ratio(full / one)} the time of one program and not 1024×.",
            "claim_stall": "**“A memory stall of 97.3 %.”** The number is a profiler's. Reading the "
            "stall reasons needs the GPU's performance counters, which the machine of these "
            "measurements does not open to us, so it is not repeated here. What can be done is to "
            "take the memory away: with the same row again and again, always in the nearest cache, "
            f"one key at a time takes {left * 100:.0f} % of its time (M 1024, D 64). "
            + (
                "Were 97 % of it waiting for memory, about 3 % would be left."
                + (
                    f" Rows that come from further away cost {(1 - left) * 100:.0f} %; the rest of "
                    "the time is spent otherwise."
                    if left < 0.98
                    else " Memory is not what it waits for."
                )
                if left > 0.1
                else "That agrees with the claim."
            ),
            "claim_calculator": "**“A GPU of 83 TFLOP/s at the speed of a 2005 calculator.”** The "
            f"float32 units of this GPU do {peak / 1e12:.0f} TFLOP/s at best, measured in the same "
            f"run. At M 1024, D 64 one key at a time does {rates[BASIC] / 1e12:.2f} TFLOP/s, "
            f"{rates[BASIC] / peak * 100:.1f} % of that; all keys in one load "
            f"{rates[OURS] / 1e12:.2f}, {rates[OURS] / peak * 100:.1f} %. Little indeed, but no "
            "calculator: the comparison is a figure of speech.",
        },
    )  # fmt: skip


def traffic(results):
    rows = results[0].rows
    names = [BASIC, OURS, BLOCKS]
    labels = ["one key at a time", "one load", "32 keys at a time"]
    one = {i: only(rows, case="one program", implementation=i) for i in names}
    head = {i: only(rows, case="whole head", implementation=i) for i in names}
    figure = make_subplots(1, 2, subplot_titles=["load instructions", "bytes"], shared_yaxes=True)
    for column, field in enumerate(("loads", "bytes_loaded"), start=1):
        figure.add_bar(
            y=labels[::-1],
            x=[one[i][field] for i in names][::-1],
            orientation="h",
            marker={"color": [colour(i) for i in names][::-1]},
            text=[f"{one[i][field]:,}" for i in names][::-1],
            textposition="auto",
            hovertemplate="%{y}: %{x:,}",
            row=1,
            col=column,
        )
    figure.update_yaxes(automargin=True)
    figure.update_layout(showlegend=False, margin={"t": 40, "r": 20, "l": 10, "b": 40}, bargap=0.35)
    a, b, c = (one[i] for i in names)
    same = a["bytes_loaded"] == b["bytes_loaded"] == c["bytes_loaded"]
    shared = head[OURS]
    times = shared["key_elements"] // (shared["N"] * shared["D"])
    return Figure(
        finding=f"A program's loads fall from {a['loads']:,} to {b['loads']}; its bytes "
        + (f"stay at {b['bytes_loaded']:,}." if same else f"become {b['bytes_loaded']:,}."),
        caption=f"One program, {a['N']} keys, D {a['D']}, float32: recorded while the interpreter "
        "ran the kernels. An instruction is one `tl.load` of the text; the hardware splits each "
        "into many.",
        table=[
            {"case": r["case"], "kernel": labels[names.index(r["implementation"])], "M": r["M"],
             "N": r["N"], "D": r["D"], "loads": r["loads"], "elements": r["elements"],
             "bytes loaded": r["bytes_loaded"], "compulsory bytes": r["bytes_compulsory"],
             "32-byte sectors": r["sectors"], "slots written by where": r["selected_elements"]}
            for r in rows
        ],
        plot=figure,
        height=240,
        narrow=stacked(["load instructions", "bytes"], 460, 0) | {"margin": {"t": 40, "r": 20, "l": 10, "b": 10}},
        sentences={
            "count": f"With {b['N']} keys of {b['D']} columns a program issues {b['loads']} loads "
            f"where one key at a time takes {a['loads']:,} (2 · {a['N']} + 1). It reads "
            f"{b['elements']:,} elements, "
            + ("exactly as many as before." if same else f"before: {a['elements']:,}."),
            "slots": f"`tl.where` writes {b['selected_elements']:,} elements instead of "
            f"{a['selected_elements']:,}: there is no slot to aim at any more.",
            "claim_trips": "**“1024 trips become 2, 512× fewer memory operations.”** The loops go "
            f"from 2 · {a['N']} trips to none, and load instructions from {a['loads']:,} to "
            f"{b['loads']}, {ratio(a['loads'] / b['loads'])} fewer. "
            + (
                f"Bytes do not change: {a['bytes_loaded']:,} before and after, in "
                f"{b['sectors']:,} sectors of 32 bytes."
                if same
                else f"Bytes go from {a['bytes_loaded']:,} to {b['bytes_loaded']:,}."
            ),
            "claim_once": "**“Each key is loaded exactly once.”** Once in each program. A head of "
            f"{shared['M']} queries and {shared['N']} keys has {shared['programs']} programs, so "
            f"each key is loaded {times} times: {shared['bytes_loaded']:,} bytes where "
            f"{shared['bytes_compulsory']:,} would do, "
            + (
                "just as with one key at a time."
                if shared["bytes_loaded"] == head[BASIC]["bytes_loaded"]
                else f"with one key at a time {head[BASIC]['bytes_loaded']:,}."
            ),
            "blocks": f"32 keys at a time issue {c['loads']} loads for {c['N']} keys, of "
            + ("the same bytes." if same else f"{c['bytes_loaded']:,} bytes."),
        },
    )  # fmt: skip


def broadcasting(results):
    rows = results[0].rows
    printed = {}
    for row in rows:
        printed.setdefault(row["expression"], []).append(row["line"])
    largest = {row["expression"]: row["largest"] for row in rows}
    blocks = {
        expression: "\n".join(["```text", expression, "", *lines, "```"])
        for expression, lines in printed.items()
    }
    sums, addresses, kernel = printed
    return Figure(
        finding=f"Two aranges of 4 add up to a tile that ends at {largest[sums]}; row times 4 plus "
        f"column ends at {largest[addresses]}.",
        caption="Printed by the code on this page, in the interpreter.",
        table=[{"expression": r["expression"], "line": r["line"]} for r in rows],
        sentences={
            "sums": blocks[sums],
            "addresses": blocks[addresses],
            "kernel": blocks[kernel],
            "claim_sum": "**“The sum of two aranges of four counts from 0 to 15.”** It ends at "
            f"{largest[sums]}, as printed above. To count up to {largest[addresses]} the row has to "
            "be multiplied by the length of a row, and that product is what makes it an address.",
        },
    )
