"""The figures of the coalescing page: each draws the result of the same name."""

import plotly.graph_objects as go

from snippets._lab.draw.figure import (
    DASHES,
    Figure,
    colour,
    hover,
    name_of,
    only,
    pick,
    ratio,
    table,
    time,
)

LEGEND = {"orientation": "h", "y": -0.22, "x": 0}
MARKERS = {"float32": "circle", "float16": "diamond"}
HALF = 0.5  # from this share of a ceiling on we say that the ceiling is what limits


def _percent(share):
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.0f} %"


def _exact(share):
    """A share of counted bytes: 12.5 % is no rounding error."""
    return f"{share * 100:.3g} %"


def _useful(row):
    """GB/s of what the result is made of: each element read once and written once."""
    return row["bytes_useful"] / row["ms_p50"] / 1e6


def _allowed(row, ceiling):
    """The useful GB/s that are left if every touched sector moves whole, at the ceiling's speed."""
    return ceiling / 1e9 * row["bytes_useful"] / row["bytes_compulsory"]


def strides(results):
    figure = go.Figure()
    for device, result in enumerate(results):
        ceiling = result.ceilings["copy"]["per_s_p50"]
        for implementation in ("coalescing", "torch:clone"):
            for dtype, marker in MARKERS.items():
                chosen = pick(result.rows, implementation=implementation, dtype=dtype)
                name = name_of(implementation, result, results)
                figure.add_scatter(
                    x=[r["stride"] for r in chosen],
                    y=[_useful(r) for r in chosen],
                    name=f"{name}, {dtype}",
                    mode="lines+markers",
                    line={"color": colour(implementation), "dash": DASHES[device], "width": 2},
                    marker={"symbol": marker, "size": 8},
                    text=[hover(r) for r in chosen],
                    hovertemplate="stride %{x}: %{y:.0f} GB/s useful, %{text}",
                )
        for dtype, marker in MARKERS.items():
            chosen = pick(result.rows, implementation="coalescing", dtype=dtype)
            figure.add_scatter(
                x=[r["stride"] for r in chosen],
                y=[_allowed(r, ceiling) for r in chosen],
                name=name_of(f"whole sectors, {dtype}", result, results),
                mode="markers",
                marker={"color": colour("ceiling"), "symbol": f"{marker}-open", "size": 13},
                hovertemplate="stride %{x}: %{y:.0f} GB/s if sectors move whole",
            )
        ends = [min(r["stride"] for r in result.rows), max(r["stride"] for r in result.rows)]
        figure.add_scatter(
            x=ends,
            y=[ceiling / 1e9] * 2,
            name=name_of("a plain copy, measured", result, results),
            mode="lines",
            line={"color": colour("ceiling"), "dash": DASHES[device], "width": 2},
            hovertemplate="%{y:.0f} GB/s, the copy ceiling",
        )
    figure.update_xaxes(
        type="log",
        title="stride, elements",
        tickvals=sorted({r["stride"] for r in results[0].rows}),
    )
    figure.update_yaxes(
        type="log", title="useful GB/s", tickvals=[50, 100, 200, 500, 1000, 2000, 5000]
    )
    figure.update_layout(legend=LEGEND, margin={"t": 10, "r": 10, "l": 60, "b": 120})
    result, rows = results[0], results[0].rows
    ceiling, l2 = result.ceilings["copy"]["per_s_p50"], result.device["l2_bytes"]
    ours = {
        dtype: {r["stride"]: r for r in pick(rows, implementation="coalescing", dtype=dtype)}
        for dtype in MARKERS
    }
    single, half = ours["float32"], ours["float16"]
    last = max(single)
    sector, size = single[1]["sector_bytes"], single[1]["element_bytes"]
    alone = sector // size  # from this stride on each element has its own sector
    slower = single[last]["ms_p50"] / single[1]["ms_p50"]
    beyond = single[last]["ms_p50"] / single[alone]["ms_p50"]
    fetched = {
        s: (r["ms_p50"] / 1e3 * ceiling - r["bytes_useful"] / 2) / r["elements"]
        for s, r in single.items()
    }
    torchs = only(rows, implementation="torch:clone", dtype="float32", stride=last)
    if beyond > 1.15:
        after = (
            f"Beyond it no more sectors are touched, and yet the time grows once more, by "
            f"{ratio(beyond)} up to stride {last}: sectors are not all that counts. At the speed of "
            f"a plain copy these times are enough for {fetched[alone]:.0f} bytes an element at stride "
            f"{alone} and for {fetched[last]:.0f} at stride {last}."
        )
    else:
        after = (
            f"Beyond it no more sectors are touched, and up to stride {last} the time changes by a "
            f"factor of {beyond:.2f} only, although the addresses spread over {last // alone} times "
            "the memory."
        )
    return Figure(
        finding=f"The same elements arrive {ratio(slower)} slower at stride {last} than at stride 1: "
        f"{_useful(single[1]):.0f} useful GB/s become {_useful(single[last]):.0f}.",
        caption=f"Copies of {single[1]['elements']:,} elements, both axes logarithmic. Useful bytes: "
        "each element read once and written once, whatever else comes along. The grey line is what "
        "this GPU copies at best, measured in the same run; open grey marks are what is left of it "
        "if whole 32-byte sectors move. The result alone is "
        f"{half[1]['bytes_useful'] / 2 / l2:.1f} (float16) and "
        f"{single[1]['bytes_useful'] / 2 / l2:.1f} (float32) times the size of L2, which is flushed "
        "before each call. Medians.",
        table=[
            {
                "dtype": dtype,
                "stride": s,
                "time": time(r["ms_p50"]),
                "useful GB/s": round(_useful(r)),
                "of the copy ceiling": _percent(_useful(r) * 1e9 / ceiling),
                "if whole sectors move, GB/s": round(_allowed(r, ceiling)),
                "PyTorch": time(
                    only(rows, implementation="torch:clone", dtype=dtype, stride=s)["ms_p50"]
                ),
            }
            for dtype in MARKERS
            for s, r in ours[dtype].items()
        ],
        plot=figure,
        height=460,
        narrow={"height": 560, "legend": {"y": -0.16}},
        sentences={
            "first": f"At stride 1 the kernel moves {_useful(single[1]):.0f} GB/s, "
            f"{_percent(_useful(single[1]) * 1e9 / ceiling)} of what this GPU copies at best.",
            "sectors": f"At stride {alone} each float32 has a sector of its own: "
            f"{sector} bytes are fetched for {size}. If whole sectors move, "
            f"{_allowed(single[alone], ceiling):.0f} useful GB/s are left of the ceiling; measured "
            f"are {_useful(single[alone]):.0f}.",
            "beyond": after,
            "half": f"From stride 1 to stride {last} the copy becomes {ratio(slower)} slower in "
            f"float32 and {ratio(half[last]['ms_p50'] / half[1]['ms_p50'])} in float16, of which a "
            "sector holds twice as many.",
            "torch": f"PyTorch's own copy of the same view, `x[::{last}].clone()`, takes "
            f"{time(torchs['ms_p50'])} where ours takes {time(single[last]['ms_p50'])}.",
        },
    )


def transposed(results):
    side = max(r["side"] for r in results[0].rows)
    SUMS = {r["implementation"]: r["read"] for r in results[0].rows}
    figure = go.Figure()
    for device, result in enumerate(results):
        for dtype in reversed(MARKERS):  # bars are drawn from below
            chosen = [only(result.rows, implementation=i, dtype=dtype, side=side) for i in SUMS]
            figure.add_bar(
                y=[f"{title}, {dtype}" for title in SUMS.values()][::-1],
                x=[r["bytes_compulsory"] / r["ms_p50"] / 1e6 for r in chosen][::-1],
                orientation="h",
                name=name_of(dtype, result, results),
                marker={
                    "color": [
                        colour("torch:sum" if i.startswith("torch") else i) for i in SUMS
                    ][::-1],
                    "opacity": 0.75**device,
                },
                text=[time(r["ms_p50"]) for r in chosen][::-1],
                hovertext=[hover(r) for r in chosen][::-1],
                hovertemplate="%{y}: %{x:.0f} GB/s, %{hovertext}",
                textposition="auto",
            )  # fmt: skip
        figure.add_vline(
            x=result.ceilings["read"]["per_s_p50"] / 1e9,
            line={"color": colour("ceiling"), "dash": DASHES[device], "width": 2},
        )
    figure.update_xaxes(title="GB/s")
    figure.update_yaxes(automargin=True)
    figure.update_layout(showlegend=False, margin={"t": 10, "r": 10, "l": 10, "b": 50}, bargap=0.3)
    rows, ceiling = results[0].rows, results[0].ceilings["read"]["per_s_p50"]
    sides = sorted({r["side"] for r in rows}, reverse=True)

    def ms(implementation, dtype="float32", side=side):
        return only(rows, implementation=implementation, dtype=dtype, side=side)["ms_p50"]

    def slower(dtype, side=side):
        return ms("line_sums:columns", dtype, side) / ms("line_sums:rows", dtype, side)

    best = only(rows, implementation="line_sums:rows", dtype="float32", side=side)
    more = {r["dtype"]: r["sector_bytes"] // r["element_bytes"] for r in rows}
    if all(slower(dtype) < 0.9 * more[dtype] for dtype in MARKERS):
        sharing = (
            "The time grows less than the sectors do: programs of neighbouring columns ask for the "
            "same sectors at about the same time, and the caches serve them again."
        )
    else:
        sharing = "The caches save little of it, although neighbouring columns share sectors."
    return Figure(
        finding=f"Down the columns the same additions take {ratio(slower('float32'))} the time of "
        f"those along the rows in float32, and {ratio(slower('float16'))} in float16.",
        caption=f"Sums of a matrix of {side:,} × {side:,}, stored row by row, each element counted "
        "once; one program for each line, except “by tiles” (the exercise) and PyTorch. The grey line is what this GPU reads "
        "at best, measured in the same run. L2 flushed before every call.",
        table=[
            {
                "dtype": dtype,
                "side": s,
                "read": title,
                "time": time(ms(i, dtype, s)),
                "GB/s": round(
                    only(rows, implementation=i, dtype=dtype, side=s)["bytes_compulsory"]
                    / ms(i, dtype, s) / 1e6
                ),
                "against rows": ratio(ms(i, dtype, s) / ms("line_sums:rows", dtype, s)),
            }
            for dtype in MARKERS
            for s in sides
            for i, title in SUMS.items()
        ],
        plot=figure,
        height=420,
        sentences={
            "rows": "Along the rows the matrix arrives at "
            f"{_percent(best['bytes_compulsory'] / best['ms_p50'] * 1e3 / ceiling)} of the speed at "
            "which this GPU reads at best.",
            "factor": f"A request down a column asks for {more['float32']} times the sectors in "
            f"float32 and {more['float16']} times in float16; the time grows by "
            f"{ratio(slower('float32'))} and {ratio(slower('float16'))}. {sharing}",
            "pitch": " ".join(
                f"With {s:,} columns the factors are {ratio(slower('float32', s))} and "
                f"{ratio(slower('float16', s))}." for s in sides[1:]
            ),
            "exercise": f"By tiles the columns take {time(ms('line_sums:exercise'))} in float32, "
            f"{ratio(ms('line_sums:exercise') / ms('line_sums:rows'))} the time of the rows, and "
            f"{time(ms('line_sums:exercise', 'float16'))} in float16, "
            f"{ratio(ms('line_sums:exercise', 'float16') / ms('line_sums:rows', 'float16'))}.",
            "torch": "PyTorch's `x.sum(0)`, which adds up columns, takes "
            f"{ratio(ms('torch:sum_columns') / ms('torch:sum_rows'))} the time of its `x.sum(1)`.",
        },
    )  # fmt: skip


def lanes(results):
    rows = results[0].rows
    at = {(r["dtype"], r["stride"]): r for r in rows}
    strides = sorted({r["stride"] for r in rows})

    def used(dtype, stride):
        row = at[dtype, stride]
        asked = len(row["lane_bytes"]) * row["element_bytes"]
        return asked / (row["sectors"] * row["sector_bytes"])

    numbers = [
        {"stride": s} | {
            f"{dtype}: {what}": value
            for dtype in MARKERS
            for what, value in (
                ("sectors", at[dtype, s]["sectors"]), ("bytes used", _exact(used(dtype, s))),
            )
        }
        for s in strides
    ]  # fmt: skip
    some = [x for x in numbers if x["stride"] in (1, 2, 3, 4, 8, 16, 32)]
    count = len(rows[0]["lane_bytes"])
    alone = {t: min(s for s in strides if at[t, s]["sectors"] == count) for t in MARKERS}
    one, far = at["float32", 1]["sectors"], at["float32", alone["float32"]]["sectors"]
    return Figure(
        finding=f"A warp's 32 float32 lie in {one} sectors at stride 1 and in {far} from stride "
        f"{alone['float32']} on.",
        caption="Which sectors of 32 bytes the 32 lanes of one request touch: addresses recorded "
        "while the interpreter ran the kernel. What a lane does not ask for is fetched all the "
        "same.",
        table=numbers,
        widget="\n".join(
            [
                '<div class="am-lanes" markdown>',
                "[The recorded addresses](/figures/coalescing/lanes_addresses.json){ .am-source }",
                "",
                *table(some),
                "",
                "</div>",
            ]
        ),
        extra_files={
            "lanes_addresses.json": {
                "sectorBytes": rows[0]["sector_bytes"],
                "requests": [
                    {
                        "dtype": r["dtype"],
                        "stride": r["stride"],
                        "elementBytes": r["element_bytes"],
                        "bytes": r["lane_bytes"],
                    }
                    for r in rows
                ],
            }
        },
        sentences={
            "grow": f"At stride 1 the {count} lanes of a request touch {one} sectors in float32 and "
            f"{at['float16', 1]['sectors']} in float16, and use every byte of them. With each step "
            f"of the stride the request spreads, until at stride {alone['float32']} (float32) or "
            f"{alone['float16']} (float16) every lane has a sector of its own and uses "
            f"{_exact(used('float32', alone['float32']))} or "
            f"{_exact(used('float16', alone['float16']))} of it.",
        },
    )


def sectors(results):
    rows = results[0].rows

    def per_request(dtype, read):
        row = only(rows, dtype=dtype, key=read)
        return row["sectors"] / row["requests"]

    def share(dtype, read):
        row = only(rows, dtype=dtype, key=read)
        return row["bytes_used"] / (row["sectors"] * row["sector_bytes"])

    reads = {r["key"]: r["read"] for r in rows}
    late, turned = "copy:late", "attention:transposed"
    ours = [r for r in reads if r.startswith("attention") and r != turned]
    whole = sum(share(t, r) == 1 for t in MARKERS for r in ours)
    D = only(rows, dtype="float32", key=ours[0])["D"]
    return Figure(
        finding=f"Attention's row loads use every byte of the sectors they touch in {whole} of "
        f"{len(ours) * len(MARKERS)} cases.",
        caption="32-byte sectors for each request of 32 neighbouring elements, from the addresses "
        f"that the interpreter recorded. Attention: the first kernel of the series, D {D}.",
        table=[
            {"read": label} | {
                f"{t}: {what}": value
                for t in MARKERS
                for what, value in (
                    ("sectors a request", per_request(t, r)), ("bytes used", _exact(share(t, r))),
                )
            }
            for r, label in reads.items()
        ],
        open_table=True,
        sentences={
            "late": "Where the first element is not the first of a sector, one more is touched: "
            f"{per_request('float32', late):.0f} sectors a request and not "
            f"{per_request('float32', 'copy:1'):.0f} in float32, "
            f"{per_request('float16', late):.0f} and not "
            f"{per_request('float16', 'copy:1'):.0f} in float16.",
            "attention": "A request for a row of queries, keys or values touches "
            f"{per_request('float32', ours[0]):.0f} sectors in float32 and "
            f"{per_request('float16', ours[0]):.0f} in float16, the fewest that can hold its bytes. "
            f"With k stored transposed it is {per_request('float32', turned):.0f} and "
            f"{per_request('float16', turned):.0f}.",
            "columns": "Down the columns a request touches "
            f"{per_request('float32', 'sums:columns'):.0f} sectors, along the rows "
            f"{per_request('float32', 'sums:rows'):.0f} (float32).",
            "tiles": "By tiles a request touches "
            f"{per_request('float32', 'sums:exercise'):.0f} sectors in float32, where "
            f"the walk down one column touches {per_request('float32', 'sums:columns'):.0f}.",
        },
    )  # fmt: skip


def bound(results):
    rows = results[0].rows
    kinds = {
        "memory": colour("line_sums:rows"),
        "arithmetic": colour("torch:sum"),
        "neither": colour("ceiling"),
    }
    symbols = ["circle", "square", "diamond", "triangle-up", "cross", "star"]
    tokens = sorted({r["tokens"] for r in rows})
    figure = go.Figure()
    for device, result in enumerate(results):
        top = result.ceilings["matmul_float16"]["per_s_p50"]
        bandwidth = result.ceilings["read"]["per_s_p50"]
        figure.add_scatter(
            x=[0.1, top / bandwidth, 10_000],
            y=[0.1 * bandwidth / 1e12, top / 1e12, top / 1e12],
            name=name_of("the most this GPU does, measured", result, results),
            mode="lines",
            line={"color": colour("ceiling"), "dash": DASHES[device], "width": 2},
            hovertemplate="%{x:.3g} FLOP a byte: %{y:.3g} TFLOP/s at most",
        )
        for kind, paint in kinds.items():
            for symbol, t in zip(symbols, tokens, strict=False):
                chosen = [
                    r for r in pick(result.rows, tokens=t) if _limit(r, result.ceilings)[0] == kind
                ]
                if chosen:
                    label = {"neither": "limited by neither"}.get(kind, f"limited by {kind}")
                    figure.add_scatter(
                        x=[r["flops"] / r["bytes_compulsory"] for r in chosen],
                        y=[r["flops"] / r["ms_p50"] / 1e9 for r in chosen],
                        name=name_of(f"{label}, {_count(t)}", result, results),
                        mode="markers",
                        marker={"color": paint, "symbol": symbol, "size": 9},
                        text=[f"{r['operation']}: {hover(r)}" for r in chosen],
                        hovertemplate="%{text}<br>%{x:.3g} FLOP a byte, %{y:.3g} TFLOP/s",
                    )
    figure.update_xaxes(
        type="log", title="FLOP for each byte that must move", tickvals=[0.1, 1, 10, 100, 1000]
    )
    figure.update_yaxes(type="log", title="TFLOP/s", tickvals=[0.001, 0.01, 0.1, 1, 10, 100, 1000])
    figure.update_layout(legend=LEGEND, margin={"t": 10, "r": 10, "l": 60, "b": 150})
    ceilings = results[0].ceilings
    counts = {t: _shares(pick(rows, tokens=t), ceilings) for t in tokens}
    most = [t for t in tokens if counts[t]["memory"][0] > counts[t]["calls"] / 2]
    most_time = [t for t in tokens if counts[t]["memory"][1] > HALF]
    few, many = tokens[0], tokens[-1]
    up = [only(rows, tokens=t, operation="matmul, up") for t in (few, many)]
    ridge = ceilings["matmul_float16"]["per_s_p50"] / ceilings["read"]["per_s_p50"]
    return Figure(
        finding=f"Of the {counts[few]['calls']} operations of a transformer layer, memory limits "
        f"{counts[few]['memory'][0]} with {_count(few)} and {counts[many]['memory'][0]} with "
        f"{_count(many)}; in time that is {_percent(counts[few]['memory'][1])} and "
        f"{_percent(counts[many]['memory'][1])} of the layer.",
        caption=f"PyTorch's operations of a layer {rows[0]['width']} wide, float16, one call each with L2 flushed "
        "before; both axes logarithmic. FLOPs and bytes are counted from the formulas: every "
        "operand and result moves once. “Limited by” the ceiling of which an operation reaches the "
        "larger share, if that is at least half; else by neither. Ceilings measured in the same run.",
        table=[
            {
                "new tokens": r["tokens"],
                "operation": r["operation"],
                "calls a layer": r["calls"],
                "FLOP a byte": round(r["flops"] / r["bytes_compulsory"], 2),
                "time": time(r["ms_p50"]),
                "of memory's ceiling": _percent(_limit(r, ceilings)[1]),
                "of arithmetic's ceiling": _percent(_limit(r, ceilings)[2]),
                "limited by": _limit(r, ceilings)[0],
            }
            for r in pick(rows)
        ],
        plot=figure,
        height=520,
        narrow={"height": 680, "legend": {"y": -0.14}},
        sentences={
            "ridge": f"In the time of one byte this GPU does {ridge:.0f} FLOPs in float16. An "
            "operation with fewer for each byte that must move cannot keep the arithmetic busy.",
            "up": f"The same product (“matmul, up”) with {_count(few)} reaches "
            f"{_percent(_limit(up[0], ceilings)[1])} of the memory's ceiling and "
            f"{_percent(_limit(up[0], ceilings)[2])} of the arithmetic's; with {_count(many)} "
            f"{_percent(_limit(up[1], ceilings)[1])} and {_percent(_limit(up[1], ceilings)[2])}.",
            "claim_bound": "**“Most GPU operations are memory-bound.”** It depends on the work and "
            "on how one counts. Counted one by one, more than half of the layer's operations are "
            f"limited by memory with {_list(most)}; counted by time, more than half of it with "
            f"{_list(most_time)}. " + " ".join(_verdict(t, counts[t]) for t in tokens),
        },
    )  # fmt: skip


def _count(tokens):
    return "1 token" if tokens == 1 else f"{tokens:,} tokens"


def _list(tokens):
    return " and with ".join(_count(t) for t in tokens) or "none of the numbers of tokens we tried"


def _limit(row, ceilings):
    """What limits an operation, and the shares it reaches of memory's and arithmetic's ceiling."""
    seconds = row["ms_p50"] / 1e3
    unit = "matmul_float16" if row["product"] else "fma_float32"
    memory = row["bytes_compulsory"] / seconds / ceilings["read"]["per_s_p50"]
    arithmetic = row["flops"] / seconds / ceilings[unit]["per_s_p50"]
    if max(memory, arithmetic) < HALF:
        return "neither", memory, arithmetic
    return ("memory" if memory >= arithmetic else "arithmetic"), memory, arithmetic


def _shares(rows, ceilings):
    """For one number of tokens: operations of the layer, and (count, share of time) by limit."""
    total = sum(r["calls"] * r["ms_p50"] for r in rows)
    found = {"calls": sum(r["calls"] for r in rows)}
    for kind in ("memory", "arithmetic", "neither"):
        chosen = [r for r in rows if _limit(r, ceilings)[0] == kind]
        time_share = sum(r["calls"] * r["ms_p50"] for r in chosen) / total
        found[kind] = sum(r["calls"] for r in chosen), time_share
    return found


def _verdict(tokens, shares):
    parts = (
        f"{shares[kind][0]} by {kind} ({_percent(shares[kind][1])} of the time)"
        for kind in ("memory", "arithmetic", "neither")
        if shares[kind][0]
    )
    return f"With {_count(tokens)}: {', '.join(parts)}."
