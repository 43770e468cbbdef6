"""The figures of the basic_attention page: each draws the result of the same name."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from snippets._lab.draw.figure import (
    DASHES,
    Figure,
    colour,
    device_name,
    hover,
    name_of,
    only,
    pick,
    ratio,
    time,
)

MARKERS = {64: "circle", 128: "square", 256: "diamond"}
LENGTHS = {"tickvals": [16, 64, 256, 1024, 4096], "type": "log", "title": "N, queries and keys"}
MILLISECONDS = {
    "type": "log",
    "tickvals": [0.01, 0.1, 1, 10, 100],
    "ticktext": ["10 µs", "100 µs", "1 ms", "10 ms", "100 ms"],
}
LEGEND = {"orientation": "h", "y": -0.22, "x": 0}


def _slowdowns(rows):
    """(dtype, N, D) → time of basic_attention over PyTorch's."""
    return {
        (r["dtype"], r["N"], r["D"]): r["ms_p50"]
        / only(
            rows, implementation="torch:sdpa", dtype=r["dtype"], N=r["N"], D=r["D"]
        )["ms_p50"]
        for r in pick(rows, implementation="basic_attention")
    }  # fmt: skip


def forward(results):
    rows = results[0].rows
    slower = _slowdowns(rows)
    single = {k: x for k, x in slower.items() if k[0] == "float32"}
    half = {k: x for k, x in slower.items() if k[0] == "float16"}
    worst = max(slower, key=slower.get)
    best = min(slower, key=slower.get)
    figure = make_subplots(1, 2, subplot_titles=["float32", "float16"], shared_yaxes=True)
    for device, result in enumerate(results):
        for column, dtype in enumerate(["float32", "float16"], start=1):
            for implementation in ("basic_attention", "torch:sdpa"):
                for D, marker in MARKERS.items():
                    chosen = pick(result.rows, implementation=implementation, dtype=dtype, D=D)
                    name = name_of(implementation, result, results)
                    figure.add_scatter(
                        x=[r["N"] for r in chosen],
                        y=[r["ms_p50"] for r in chosen],
                        name=f"{name}, D {D}",
                        legendgroup=name,
                        showlegend=column == 1,
                        mode="lines+markers",
                        line={"color": colour(implementation), "dash": DASHES[device], "width": 2},
                        marker={"symbol": marker, "size": 7},
                        text=[hover(r) for r in chosen],
                        hovertemplate="N %{x}, D " + f"{D}: " + "%{text}",
                        row=1,
                        col=column,
                    )
    figure.update_xaxes(LENGTHS)
    figure.update_yaxes(MILLISECONDS)
    figure.update_layout(legend=LEGEND, margin={"t": 40, "r": 10, "l": 60, "b": 110})
    at = {N: single["float32", N, 64] for N in (16, 1024)}
    doubling = [
        only(rows, implementation="basic_attention", dtype="float32", D=64, N=n)["ms_p50"]
        for n in (1024, 2048, 4096)
    ]
    wide = [
        only(rows, implementation="basic_attention", dtype="float32", D=d, N=1024)["ms_p50"]
        for d in (64, 256)
    ]
    narrow_dtype = [
        only(rows, implementation="basic_attention", dtype=t, D=64, N=1024)["ms_p50"]
        for t in ("float32", "float16")
    ]
    step = doubling[0] / 2048
    return Figure(
        finding=f"At 1024 queries of 64 columns PyTorch is {ratio(at[1024])} faster in float32 and "
        f"{ratio(half['float16', 1024, 64])} faster in float16.",
        caption="One head, time of one call, both axes logarithmic: down is faster. Medians; L2 "
        "flushed before every call; the two take turns.",
        table=[
            {
                "dtype": dtype,
                "N": N,
                "D": D,
                "basic_attention": time(a["ms_p50"]),
                "PyTorch SDPA": time(b["ms_p50"]),
                "PyTorch faster by": ratio(a["ms_p50"] / b["ms_p50"]),
            }
            for dtype in ("float32", "float16")
            for D in MARKERS
            for N in sorted({r["N"] for r in rows})
            for a, b in [
                [
                    only(rows, implementation=i, dtype=dtype, N=N, D=D)
                    for i in ("basic_attention", "torch:sdpa")
                ]
            ]
        ],
        plot=figure,
        height=460,
        narrow={
            "height": 860,
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
        },
        sentences={
            "claim_small": "**“6.2× slower at 16 queries of 64 columns.”** At this size the kernel "
            f"takes {ratio(at[16])} PyTorch's time in float32 and "
            f"{ratio(half['float16', 16, 64])} in float16. There are 16 programs then, on a GPU of "
            f"{results[0].device['multiprocessors']} multiprocessors: neither has much to do.",
            "claim_forty": "**“Up to 40× slower.”** The factor has no upper end; it grows with N. "
            f"Over our grid it runs from {ratio(slower[best])} ({best[0]}, N {best[1]}, D {best[2]}) "
            f"to {ratio(slower[worst])} ({worst[0]}, N {worst[1]}, D {worst[2]}). In float32 alone it "
            f"reaches {ratio(max(single.values()))}; in float16 PyTorch has tensor cores and this "
            "kernel cannot use them.",
            "growth": f"Doubling N from 1024 to 2048 multiplies the kernel's time by "
            f"{doubling[1] / doubling[0]:.1f}, the next doubling by "
            f"{doubling[2] / doubling[1]:.1f}. Twice the keys for each of twice the queries "
            "would be 4.",
            "insensitive": f"Four times the columns (D 64 → 256, four times the bytes) change "
            f"the time from {time(wide[0])} to {time(wide[1])}; half the bytes (float16) from "
            f"{time(narrow_dtype[0])} to {time(narrow_dtype[1])}.",
            "step": f"At N 1024 a program takes 2 · 1024 trips around its loops in "
            f"{time(doubling[0])}: {step * 1e6:.0f} ns a trip.",
        },
    )  # fmt: skip


def heads(results):
    rows = results[0].rows
    figure = go.Figure()
    for device, result in enumerate(results):
        for implementation in ("basic_attention", "torch:sdpa"):
            chosen = pick(result.rows, implementation=implementation)
            figure.add_scatter(
                x=[r["heads"] for r in chosen],
                y=[r["ms_p50"] for r in chosen],
                name=name_of(implementation, result, results),
                mode="lines+markers",
                line={"color": colour(implementation), "dash": DASHES[device], "width": 2},
                text=[hover(r) for r in chosen],
                hovertemplate="%{x} heads: %{text}",
            )
    figure.update_xaxes(type="log", title="heads", tickvals=[1, 2, 4, 8, 16, 32, 64])
    figure.update_yaxes(MILLISECONDS)
    figure.update_layout(legend=LEGEND, margin={"t": 10, "r": 10, "l": 60, "b": 80})
    ours, torchs = (
        {r["heads"]: r["ms_p50"] for r in pick(rows, implementation=i)}
        for i in ("basic_attention", "torch:sdpa")
    )
    return Figure(
        finding=f"Two heads take {ratio(ours[2] / ours[1])} the time of one: the GPU is already "
        f"busy. PyTorch does eight heads in {ratio(torchs[8] / torchs[1])} the time of one.",
        caption="N 1024, D 64, float32. A flat line means that there was room to spare.",
        table=[
            {"heads": h, "programs": h * 1024, "basic_attention": time(ours[h]),
             "PyTorch SDPA": time(torchs[h])}
            for h in ours
        ],
        plot=figure,
        sentences={
            "claim_parallel": "**“No parallelism.”** One head already starts "
            f"{results[0].rows[0]['N']} programs on {results[0].device['multiprocessors']} "
            f"multiprocessors, and doubling the heads takes {ratio(ours[2] / ours[1])} the time: "
            "there was little idle to fill. The programs are parallel; each does too much.",
        },
    )  # fmt: skip


def reuse(results):
    rows = results[0].rows
    names = ("basic_attention", "basic_attention:exercise")
    figure = go.Figure()
    for device, result in enumerate(results):
        for implementation in names:
            chosen = pick(result.rows, implementation=implementation)
            figure.add_scatter(
                x=[r["N"] for r in chosen],
                y=[r["bytes_loaded"] / r["ms_p50"] / 1e6 for r in chosen],
                name=name_of(implementation, result, results),
                mode="lines+markers",
                line={"color": colour(implementation), "dash": DASHES[device], "width": 2},
                text=[hover(r) for r in chosen],
                hovertemplate="N %{x}: %{y:.0f} GB/s loaded, %{text}",
            )
        figure.add_scatter(
            x=sorted({r["N"] for r in result.rows}),
            y=[result.ceilings["read"]["per_s_p50"] / 1e9] * len({r["N"] for r in result.rows}),
            name=name_of("read bandwidth of memory", result, results),
            mode="lines",
            line={"color": colour("ceiling"), "dash": DASHES[device], "width": 2},
            hovertemplate="%{y:.0f} GB/s from memory, measured",
        )
    figure.update_xaxes(LENGTHS | {"tickvals": [256, 512, 1024, 2048, 4096]})
    figure.update_yaxes(type="log", title="GB/s", tickvals=[100, 200, 500, 1000, 2000, 5000])
    figure.update_layout(legend=LEGEND, margin={"t": 10, "r": 10, "l": 60, "b": 90})
    one, two = ({r["N"]: r for r in pick(rows, implementation=i)} for i in names)
    middle, ceiling = one[1024], results[0].ceilings["read"]["per_s_p50"]
    rate = middle["bytes_loaded"] / middle["ms_p50"] * 1e3
    return Figure(
        finding=f"The kernel loads {ratio(middle['bytes_loaded'] / middle['bytes_compulsory'])} the "
        f"bytes it needs, at {rate / ceiling * 100:.0f} % of the rate that memory alone could feed.",
        caption="Bytes that programs load (counted) over time (measured); 16 heads, D 64, float32, "
        "N 1024 in the title. Grey: what this GPU reads from memory at best, measured in the same "
        "run. Loaded bytes come mostly from caches; they are no traffic with memory.",
        table=[
            {
                "N": N,
                "loaded": f"{one[N]['bytes_loaded'] / 1e6:.0f} MB",
                "compulsory": f"{one[N]['bytes_compulsory'] / 1e6:.1f} MB",
                "smaller than L2": "yes" if one[N]["fits_l2"] else "no",
                "time": time(one[N]["ms_p50"]),
                "loaded by pairs": f"{two[N]['bytes_loaded'] / 1e6:.0f} MB",
                "time of pairs": time(two[N]["ms_p50"]),
            }
            for N in one
        ],
        plot=figure,
        sentences={
            "pairs": f"Two queries a program halve the loads (N 1024, 16 heads: "
            f"{one[1024]['bytes_loaded'] / 1e9:.1f} GB → {two[1024]['bytes_loaded'] / 1e9:.1f} GB) "
            f"and change the time from {time(one[1024]['ms_p50'])} to {time(two[1024]['ms_p50'])}.",
            "claim_cache": "**“Cache misses make it slow.”** Then its bytes would arrive at the "
            f"speed of memory, {ceiling / 1e12:.1f} TB/s on this GPU. They arrive at "
            f"{rate / 1e12:.1f} TB/s, the {middle['bytes_compulsory'] / 1e6:.0f} MB that the programs "
            f"share fit into {results[0].device['l2_bytes'] / 1e6:.0f} MB of L2, and float16, half "
            "the bytes, is no faster.",
        },
    )


def parts(results):
    rows = results[0].rows
    names = list(dict.fromkeys(r["implementation"] for r in rows))
    shown = [r for r in pick(rows, N=1024, heads=1)]
    whole = only(shown, implementation="basic_attention")["ms_p50"]
    figure = go.Figure()
    for device, result in enumerate(results):
        chosen = {r["implementation"]: r for r in pick(result.rows, N=1024, heads=1)}
        figure.add_bar(
            y=["the whole kernel" if n == "basic_attention" else n for n in names][::-1],
            x=[chosen[n]["ms_p50"] for n in names][::-1],
            orientation="h",
            name=device_name(result),
            marker={"color": colour("basic_attention"), "opacity": 0.75**device},
            text=[time(chosen[n]["ms_p50"]) for n in names][::-1],
            hovertext=[hover(chosen[n]) for n in names][::-1],
            hovertemplate="%{y}: %{hovertext}",
            textposition="auto",
        )
    figure.update_xaxes(title="ms")
    figure.update_yaxes(automargin=True)
    figure.update_layout(
        showlegend=len(results) > 1, margin={"t": 10, "r": 10, "l": 10, "b": 50}, bargap=0.35
    )
    part = {r["implementation"]: r["ms_p50"] / whole for r in shown}
    longest = max(r["N"] for r in rows)
    at_longest = pick(rows, N=longest, heads=1)
    whole_longest = only(at_longest, implementation="basic_attention")["ms_p50"]
    alone = {r["implementation"]: r["ms_p50"] / whole_longest for r in at_longest}
    return Figure(
        finding=f"Without its loads the kernel still takes {part['all slots, no loads'] * 100:.0f} % "
        f"of its time; without the slots {part['all loads, no slots'] * 100:.0f} %.",
        caption="N 1024, D 64, one head, float32. Each bar is the kernel with a part taken out (its "
        "result is then wrong) or run on one warp, where a sum needs no exchange between warps.",
        table=[
            {"heads": h, "N": N, **{
                ("the whole kernel" if n == "basic_attention" else n):
                    time(only(rows, implementation=n, heads=h, N=N)["ms_p50"]) for n in names}}
            for h in sorted({r["heads"] for r in rows}) for N in sorted({r["N"] for r in rows})
        ],
        plot=figure,
        height=280,
        sentences={
            "slots": f"At {longest} keys the slots alone take "
            f"{alone['all slots, no loads'] * 100:.0f} % of the whole kernel's time and the loads alone "
            f"{alone['all loads, no slots'] * 100:.0f} %. (The parts overlap, so they need not add up.)",
            "warp": f"On one warp instead of four the same kernel takes "
            f"{part['one warp, not four'] * 100:.0f} % of the time.",
        },
    )  # fmt: skip


def error(results):
    rows = results[0].rows
    figure = go.Figure()
    for device, result in enumerate(results):
        for dtype, marker in zip(("float16", "bfloat16", "float32"), MARKERS.values(), strict=True):
            for key, implementation in (
                ("error_largest", "basic_attention"), ("pytorch_error_largest", "torch:sdpa"),
            ):  # fmt: skip
                chosen = pick(result.rows, dtype=dtype, D=64)
                label = (
                    "basic_attention" if implementation == "basic_attention" else "eager PyTorch"
                )
                figure.add_scatter(
                    x=[r["N"] for r in chosen],
                    y=[r[key] for r in chosen],
                    name=f"{name_of(label, result, results)}, {dtype}",
                    mode="lines+markers",
                    line={"color": colour(implementation), "dash": DASHES[device]},
                    marker={"symbol": marker, "size": 8},
                    hovertemplate="N %{x}: %{y:.2e}",
                )
    figure.update_xaxes(LENGTHS)
    figure.update_yaxes(
        type="log",
        title="largest difference from float64",
        tickvals=[10.0**-e for e in range(7, 0, -1)],
        ticktext=[f"10<sup>-{e}</sup>" for e in range(7, 0, -1)],
    )
    figure.update_layout(legend=LEGEND, margin={"t": 10, "r": 10, "l": 70, "b": 130})
    closer = sum(r["error_largest"] <= r["pytorch_error_largest"] for r in rows)
    one = only(rows, dtype="float32", D=64, N=1024)
    single = [r["error_largest"] for r in pick(rows, dtype="float32")]
    return Figure(
        finding=f"The kernel is as close to float64 as eager PyTorch or closer in {closer} of "
        f"{len(rows)} cases.",
        caption="Largest difference from float64 attention of the same rounded inputs; D 64 drawn, "
        "D 256 in the table. The kernel keeps float32 inside and rounds once; eager PyTorch rounds "
        "scores and weights to the input's dtype.",
        table=[
            {"dtype": r["dtype"], "N": r["N"], "D": r["D"],
             "largest": f"{r['error_largest']:.1e}", "mean": f"{r['error_mean']:.1e}",
             "eager PyTorch, largest": f"{r['pytorch_error_largest']:.1e}",
             "allowed": f"{r['allowed']:.1e}"}
            for r in rows
        ],
        plot=figure,
        height=440,
        sentences={
            "claim_error": "**“The largest difference is 2e-6.”** In float32 it depends on N: with "
            f"D 64 and N 1024 it is {one['error_largest']:.1e} (mean {one['error_mean']:.1e}), and over "
            f"our sizes the largest runs from {min(single):.1e} to {max(single):.1e}.",
        },
    )  # fmt: skip


def registers(results):
    on_gpu = [r for r in results if r.place == "gpu"]
    ahead = sorted(
        (r for r in results if r.place == "compiler"),
        key=lambda r: int(r.folder.rsplit("_", 1)[1]),
    )
    figure = go.Figure()
    for index, result in enumerate(on_gpu + ahead):
        chosen = pick(result.rows, D=64)
        figure.add_scatter(
            x=[r["N"] for r in chosen],
            y=[r["registers"] for r in chosen],
            name=device_name(result),
            mode="lines+markers",
            line={"color": colour("basic_attention") if result.place == "gpu" else colour("ceiling"),
                  "dash": DASHES[index % len(DASHES)]},
            marker={"symbol": ["x" if r["spill_store_bytes"] else "circle" for r in chosen],
                    "size": [11 if r["spill_store_bytes"] else 7 for r in chosen]},
            text=[f"{r['spill_store_bytes']} bytes spilled" for r in chosen],
            hovertemplate="%{x} keys: %{y} registers, %{text}",
        )  # fmt: skip
    figure.update_xaxes(
        type="log",
        title="keys",
        tickvals=[16, 64, 256, 1024, 4096, 16384],
        ticktext=["16", "64", "256", "1024", "4096", "16,384"],
    )
    figure.update_yaxes(title="registers a thread", range=[0, 270])
    figure.update_layout(legend=LEGEND, margin={"t": 10, "r": 10, "l": 60, "b": 120})
    rows = results[0].rows
    at = {r["N"]: r for r in pick(rows, D=64)}
    return Figure(
        finding=f"The row of scores fills the registers: {at[1024]['registers']} a thread at 1024 "
        f"keys, {at[16384]['registers']} at 16,384, and beyond that they spill "
        f"({at[32768]['spill_store_bytes']} bytes a thread at 32,768).",
        caption="Registers of the compiled kernel, D 64, float32. 255 is the most a thread may have. "
        "A cross marks a kernel that spills: there the count of registers says nothing. The launcher "
        "refuses more than 16,384 keys; the last point lifts that limit.",
        table=[
            {"device": r.label, "keys": x["N"], "D": x["D"], "registers": x["registers"],
             "spilled, bytes": x["spill_store_bytes"], "stack, bytes": x["stack_bytes"],
             "shared memory, bytes": x["shared_bytes"], "remark": x["error"]}
            for r in on_gpu + ahead for x in r.rows
        ],
        plot=figure,
        height=420,
    )  # fmt: skip


def traffic(results):
    rows = {r["case"]: r for r in results[0].rows}
    one, head, step = rows["one program"], rows["whole head"], rows["one decoding step"]
    turned, pairs = rows["transposed keys"], rows["two queries"]
    keys = one["N"] * one["D"]
    names = [
        "slots rewritten by where",
        "elements of V loaded",
        "elements of K loaded",
        "its query",
    ]
    counts = [one["selected_elements"], keys, one["elements"] - keys - one["D"], one["D"]]
    figure = go.Figure(
        go.Bar(
            y=names,
            x=counts,
            orientation="h",
            marker={"color": [colour("torch:sdpa")] + [colour("basic_attention")] * 3},
            text=[f"{c:,}" for c in counts],
            textposition="auto",
            hovertemplate="%{y}: %{x:,}",
        )
    )
    figure.update_xaxes(title="elements")
    figure.update_yaxes(automargin=True)
    figure.update_layout(margin={"t": 10, "r": 10, "l": 10, "b": 50}, bargap=0.35)
    return Figure(
        finding=f"For one row of output a program loads {one['elements']:,} elements and rewrites "
        f"{one['selected_elements']:,} slots.",
        caption=f"One program, {one['N']} keys, D {one['D']}: recorded while the interpreter ran the "
        "kernel.",
        table=[
            {"case": r["case"], "M": r["M"], "N": r["N"], "D": r["D"], "programs": r["programs"],
             "loads": r["loads"], "elements": r["elements"], "bytes loaded": r["bytes_loaded"],
             "compulsory bytes": r["bytes_compulsory"], "32-byte sectors": r["sectors"],
             "slots rewritten": r["selected_elements"]}
            for r in rows.values()
        ],
        plot=figure,
        height=280,
        sentences={
            "count": f"With {one['N']} keys of {one['D']} columns a program issues {one['loads']:,} "
            f"loads (2 · {one['N']} + 1) and reads {one['elements']:,} elements: "
            f"{one['elements'] // one['D']:,} times the {one['D']} of its query.",
            "claim_count": "**“1,048,888 elements for each program.”** 2 · "
            f"{one['N']} · {one['D']} + {one['D']} is {one['elements']:,}, and that is what the "
            "recorder saw.",
            "where": f"`tl.where` rewrote {one['selected_elements']:,} slots, 2 · {one['N']}², "
            f"{one['selected_elements'] / one['elements']:.1f} times as many elements as were loaded.",
            "shared": f"A head of {head['M']} queries and {head['N']} keys loads "
            f"{head['bytes_loaded']:,} bytes where {head['bytes_compulsory']:,} would do, "
            f"{head['bytes_loaded'] / head['bytes_compulsory']:.1f} times as many; with two queries "
            f"a program it is {pairs['bytes_loaded']:,}.",
            "claim_decode": "**“A KV cache will fix the sharing.”** A KV cache saves *computing* "
            "keys and values again while a text grows by one token. That step has one query: it loads "
            f"{step['bytes_loaded']:,} bytes (N {step['N']}, D {step['D']}) and all "
            f"{step['bytes_compulsory']:,} of them are compulsory, so there is nothing to share. Where "
            f"there is, with {head['M']} queries, the cache changes nothing: "
            f"{head['bytes_loaded']:,} bytes loaded for {head['bytes_compulsory']:,}.",
            "transposed": f"With rows of k side by side a load of {turned['D']} float32 columns "
            f"touches {head['key_sectors'] // head['key_loads']} sectors; with k transposed "
            f"{turned['key_sectors'] // turned['key_loads']}, one for each element.",
        },
    )  # fmt: skip


def addresses(results):
    rows = results[0].rows
    two = only(rows, query=2)
    return Figure(
        finding=f"The program of query 2 loads elements {two['first_element']} to "
        f"{two['last_element']}.",
        caption="N 4, D 512, float32, one head: recorded in the interpreter. 512 neighbours are 2048 "
        "bytes, 64 sectors of 32 bytes, none of them half used.",
        table=[
            {"query": r["query"], "first element": r["first_element"],
             "last element": r["last_element"], "all neighbours": "yes" if r["neighbours"] else "no",
             "bytes": r["bytes_loaded"], "32-byte sectors": r["sectors"]}
            for r in rows
        ],
        open_table=True,
    )  # fmt: skip
