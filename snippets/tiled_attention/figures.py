"""The figures of the tiled_attention page: each draws the result of the same name."""

import itertools

from plotly.subplots import make_subplots

from snippets._lab.draw.charts import (
    LEGEND,
    MILLISECONDS,
    curves,
    faster,
    listed,
    ms_of,
    span,
    stacked,
)
from snippets._lab.draw.figure import (
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
from snippets._lab.draw.players import player

OURS, BASIC, SDPA = "tiled_attention", "basic_attention", "torch:sdpa"
ONE_TILE, BLOCKS = "vectorized_attention", "vectorized_attention:exercise"
WIDTHS = [64, 128]
# The rows of kernel.py's TILES: queries a program, keys a tile, warps.
TILES = {64: (16, 16, 8), 128: (16, 8, 8), 256: (8, 8, 8)}
THREADS = 32  # of a warp
REGISTERS = 65_536  # of a multiprocessor, on every GPU from sm_70 on


def forward(results):
    rows = results[0].rows
    lengths = sorted({r["N"] for r in rows})
    panels = [
        (f"{heads} head{'s' if heads > 1 else ''}, D {D}", {"D": D, "heads": heads})
        for heads in (1, 16)
        for D in WIDTHS
    ]
    figure = curves(results, panels, [BASIC, BLOCKS, OURS, SDPA])
    figure.update_yaxes(MILLISECONDS)
    figure.update_xaxes(type="log", tickvals=lengths, title="N", range=[2.25, 3.8])
    ms = ms_of(rows, "heads", "D", "N")
    cells = [key[1:] for key in ms if key[0] == OURS]

    def against(other):
        return {c: ms[other, *c] / ms[OURS, *c] for c in cells if (other, *c) in ms}

    basic, blocks, sdpa = against(BASIC), against(BLOCKS), against(SDPA)
    many = results[0].device.get("multiprocessors")
    full = 16, 64, max(lengths)
    flops = only(rows, implementation=OURS, heads=16, D=64, N=max(lengths))["flops"]
    peak = results[0].ceilings["fma_float32"]["per_s_p50"]
    rate = flops / ms[OURS, *full] * 1e3
    return Figure(
        finding=f"With 16 heads of {full[2]} queries and keys a block of queries a program is "
        f"{faster(blocks[full])} than one query a program that takes 32 keys at a time, and "
        f"{faster(sdpa[full])} than PyTorch.",
        caption="float32, time of one call, both axes logarithmic: down is faster. One head of "
        "few queries leaves most of the GPU idle. Medians; L2 flushed before every call; all take "
        "turns.",
        table=[
            {
                "heads": heads, "D": D, "N": N,
                **{
                    label: time(ms[name, heads, D, N]) if (name, heads, D, N) in ms else None
                    for label, name in (
                        ("one key at a time", BASIC), ("32 keys at a time", BLOCKS),
                        ("a block of queries", OURS), ("PyTorch SDPA", SDPA),
                    )
                },
                "against 32 keys": ratio(blocks[heads, D, N]),
                "against PyTorch": ratio(sdpa[heads, D, N]),
            }
            for heads, D, N in cells
        ],
        plot=figure,
        height=440,
        narrow=stacked([title for title, _ in panels], 1260, 0),
        sentences={
            "earlier": f"Over the grid it is {span(basic.values())} than one key at a time and "
            f"{span(blocks.values())} than 32 keys at a time." + _behind(blocks, many),
            "pytorch": f"Against PyTorch it is {span(sdpa.values())}.",
            "rate": f"At N {full[2]}, D 64, 16 heads it does {rate / 1e12:.1f} TFLOP/s, "
            f"{rate / peak * 100:.0f} % of what the float32 units of this GPU do at best "
            f"({peak / 1e12:.0f} TFLOP/s, measured in the same run).",
        },
    )  # fmt: skip


def _behind(gains, multiprocessors):
    """Where a block of queries is slower than one query a program, and whether it lacks programs."""
    behind = sorted(case for case in gains if gains[case] < 1)
    if not behind:
        return ""
    lengths = {}  # of each number of heads and D
    for heads, D, N in behind:
        lengths.setdefault((heads, D), []).append(str(N))
    cells = listed(
        [
            f"{heads} head{'s' * (heads > 1)} of D {D} at N {listed(some)}"
            for (heads, D), some in lengths.items()
        ]
    )
    text = f" It is behind with {cells}."
    programs = {(h, D, N): h * -(-N // TILES[D][0]) for h, D, N in gains}
    if multiprocessors and all((programs[c] < multiprocessors) == (c in behind) for c in gains):
        most = max(programs[c] for c in behind)
        text += (
            f" There it has {most} programs or fewer for {multiprocessors} multiprocessors, and "
            "elsewhere more programs than multiprocessors: a block of queries is fewer programs, and "
            "that is its price."
        )
    return text


def one_tile(results):
    rows = results[0].rows
    names = [ONE_TILE, BLOCKS, OURS, SDPA]
    figure = curves(results, [("", {"D": 64})], names)
    figure.update_yaxes(MILLISECONDS)
    figure.update_xaxes(type="log", tickvals=[64, 128, 256, 512], title="N", range=[1.7, 2.8])
    ms = ms_of(rows, "N")
    lengths = sorted({r["N"] for r in rows})
    gain = {N: ms[ONE_TILE, N] / ms[OURS, N] for N in lengths if (ONE_TILE, N) in ms}
    ahead = [N for N in gain if gain[N] >= 1]
    return Figure(
        finding=f"Where all keys still fit one tile, N {lengths[0]} to {lengths[-1]}, the loop over "
        f"tiles is {span(gain.values())} than the single load.",
        caption="One head, D 64, float32, both axes logarithmic. Medians; L2 flushed before every "
        "call; all take turns.",
        table=[
            {"N": N, **{name_of(i, results[0], results[:1]):
                        time(ms[i, N]) if (i, N) in ms else None for i in names}}
            for N in lengths
        ],
        plot=figure,
        height=380,
        narrow={"height": 420, "legend": {"y": -0.32}},
        sentences={
            "short": (
                f"It is ahead from N {ahead[0]} on."
                if ahead and ahead == [N for N in gain if ahead[0] <= N]
                else "It is ahead nowhere in this range: one head is a few blocks of queries, and "
                "most of the GPU has none."
                if not ahead
                else f"It is ahead at N {', '.join(map(str, ahead))}."
            ),
        },
    )  # fmt: skip


def causal(results):
    rows = results[0].rows
    order = {
        OURS: "every key",
        "causal": "causal",
        "causal, no tile skipped": "causal, no tile skipped",
        SDPA: "PyTorch, every key",
        "torch:sdpa, causal": "PyTorch, causal",
    }
    lengths = sorted({r["N"] for r in rows})
    figure = make_subplots(1, len(lengths), subplot_titles=[f"N {N}" for N in lengths])
    for device, result in enumerate(results):
        for column, N in enumerate(lengths, start=1):
            chosen = {r["implementation"]: r for r in pick(result.rows, N=N)}
            figure.add_bar(
                y=list(order.values())[::-1],
                x=[chosen[i]["ms_p50"] for i in order][::-1],
                orientation="h",
                name=device_name(result),
                showlegend=column == 1 and len(results) > 1,
                marker={
                    "color": [colour(SDPA if "torch" in i else OURS) for i in order][::-1],
                    "opacity": 0.75**device,
                },
                text=[time(chosen[i]["ms_p50"]) for i in order][::-1],
                hovertext=[hover(chosen[i]) for i in order][::-1],
                hovertemplate="%{y}: %{hovertext}",
                row=1,
                col=column,
            )
    figure.update_xaxes(title="ms", rangemode="tozero")
    figure.update_yaxes(automargin=True)
    figure.update_yaxes(showticklabels=False, col=2)
    figure.update_layout(margin={"t": 40, "r": 20, "l": 10, "b": 50}, bargap=0.35)
    ms = ms_of(rows, "N")
    far = lengths[-1]
    saved = ms[OURS, far] / ms["causal", far]
    skipping = ms["causal, no tile skipped", far] / ms["causal", far]
    masking = ms["causal, no tile skipped", far] / ms[OURS, far]
    return Figure(
        finding=f"At N {far} the causal kernel is {faster(saved)} than the full one, because it "
        "leaves the hidden tiles out."
        if saved > 1
        else f"At N {far} the causal kernel is {faster(saved)} than the full one.",
        caption="16 heads, D 64, float32; N queries and keys. “No tile skipped” is the same kernel "
        "with the loop up to the last key. Medians; L2 flushed before every call; all take turns.",
        table=[
            {"N": N, **{label: time(ms[i, N]) for i, label in order.items()},
             "full by causal": ratio(ms[OURS, N] / ms["causal", N])}
            for N in lengths
        ],
        plot=figure,
        height=320,
        narrow=stacked([f"N {N}" for N in lengths], 640, 10),
        sentences={
            "mask": f"The mask alone, with every tile still computed, makes the kernel "
            f"{faster(1 / masking)}; leaving tiles out makes it {faster(skipping)} than that.",
        },
    )  # fmt: skip


def resources(results):
    ahead = sorted(
        (r for r in results if r.place == "compiler"),
        key=lambda r: int(r.folder.rsplit("_", 1)[1]),
    )
    gpus = [r for r in results if r.place == "gpu"]
    shown = gpus + ahead
    main = gpus[0] if gpus else next(r for r in ahead if r.folder.endswith("sm_90"))
    D = [64, 128, 256]
    titles = ["shuffles", "multiply-adds"]
    figure = make_subplots(1, 2, subplot_titles=titles, shared_yaxes=True)
    both = (("first", "summed along the first axis"), ("last", "along the last"))
    for device, (order, label) in itertools.product(range(max(1, len(gpus))), both):
        rows = (gpus[device] if gpus else main).rows
        chosen = [only(rows, order=order, D=d, dtype="float32", causal=False) for d in D]
        name = label if not device else f"{label}, {device_name(gpus[device])}"
        for column, field in enumerate(("shuffles", "multiply_adds"), start=1):
            figure.add_bar(
                y=[f"D {d}" for d in D][::-1],
                x=[r[field] for r in chosen][::-1],
                orientation="h",
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                marker={"color": colour(OURS if order == "first" else "ceiling"),
                        "opacity": 0.75**device},
                text=[str(r[field]) for r in chosen][::-1],
                hovertemplate="%{y}: %{x}",
                row=1,
                col=column,
            )  # fmt: skip
    figure.update_yaxes(automargin=True)
    figure.update_layout(
        barmode="group", legend=LEGEND | {"traceorder": "normal"},
        margin={"t": 40, "r": 20, "l": 10, "b": 80},
    )  # fmt: skip
    first, last = (
        only(main.rows, order=order, D=64, dtype="float32", causal=False)
        for order in ("first", "last")
    )
    every = [x for r in shown for x in pick(r.rows, order="first")]
    spilled = [x for x in every if x["spill_store_bytes"] or x["stack_bytes"]]
    failed = [x for r in shown for x in r.rows if x["order"] == "first" and x["error"]]
    here = pick(main.rows, order="first")
    return Figure(
        finding=f"The axis that is summed first costs {first['shuffles']} shuffles at D 64; as the "
        f"last axis it costs {last['shuffles']}, for the same products.",
        caption=f"Machine instructions in the compiled kernel ({cell(main.label.split(',')[0])}), float32, tiles "
        "of the table above: a shuffle hands a number from one thread to another. The loop over "
        "tiles is most of the code, and there is one copy of it.",
        table=[
            {"target": r.label, "summed axis": x["order"], "D": x["D"], "dtype": x["dtype"],
             "causal": "yes" if x["causal"] else "no", "registers": x["registers"],
             "spill stores, bytes": x["spill_store_bytes"], "stack, bytes": x["stack_bytes"],
             "shared, bytes": x["shared_bytes"], "multiply-adds": x["multiply_adds"],
             "shuffles": x["shuffles"], "barriers": x["barriers"], "remark": x["error"]}
            for r in shown for x in r.rows
        ],
        plot=figure,
        height=300,
        narrow=stacked(titles, 540, 0),
        sentences={
            "axis": f"Summed along the last axis the compiled kernel has {last['shuffles']} shuffles "
            f"for {last['multiply_adds']} multiply-adds; along the first it has {first['shuffles']} "
            f"for {first['multiply_adds']}.",
            "spills": (
                f"On none of the {len(shown)} targets does a row of the table spill"
                if not spilled
                else f"{len(spilled)} of {len(every)} compiled kernels spill, at most "
                f"{max(x['spill_store_bytes'] for x in spilled)} bytes a thread"
            )
            + (f", and {len(failed)} cannot run" if failed else "")
            + f"; on {cell(main.label.split(',')[0])} they take {min(x['registers'] for x in here)} to "
            f"{max(x['registers'] for x in here)} registers a thread, of 255.",
            "room": _room(first["registers"]),
        },
    )  # fmt: skip


def _room(registers):
    """How many programs of the D 64 row a multiprocessor's registers hold, in float32."""
    threads = THREADS * TILES[64][2]
    taken = threads * -(-registers // 8) * 8  # handed out to a warp by eights
    programs = REGISTERS // taken
    text = f"A program of {threads} threads takes {taken:,} of a multiprocessor's {REGISTERS:,} registers"
    if programs == 1:
        return f"{text}: no second one fits beside it, so nobody else works there while it waits."
    return f"{text}, so {programs} fit beside each other and one can work while another waits."


def _near(timed):
    """The rows that a chart with room for three times the fastest shows."""
    fastest = min(r["ms_p50"] for r in timed)
    return [r for r in timed if r["ms_p50"] <= 3 * fastest]


def _own(rows, D):
    """The row of the sweep with the tile of kernel.py's table."""
    BLOCK_M, BLOCK_N, num_warps = TILES[D]
    swept = [r for r in rows if "BLOCK_M" in r]
    return only(swept, D=D, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps)


def tiles(results):
    rows = results[0].rows
    figure = make_subplots(1, 2, subplot_titles=[f"D {D}" for D in WIDTHS])
    symbols = {8: "circle", 16: "square", 32: "diamond"}
    for device, result in enumerate(results):
        for column, D in enumerate(WIDTHS, start=1):
            for BLOCK_M, symbol in symbols.items():
                timed = pick([r for r in result.rows if "BLOCK_M" in r], D=D)
                chosen = pick(_near(timed), BLOCK_M=BLOCK_M)
                figure.add_scatter(
                    x=[r["registers"] for r in chosen],
                    y=[r["ms_p50"] for r in chosen],
                    name=f"{BLOCK_M} queries"
                    + ("" if len(results) == 1 else f", {device_name(result)}"),
                    legendgroup=f"{BLOCK_M} {device}",
                    showlegend=column == 1,
                    mode="markers",
                    marker={
                        "symbol": [
                            f"{symbol}-open" if r["stack_bytes"] else symbol for r in chosen
                        ],
                        "size": 10,
                        "color": colour(OURS),
                        "opacity": 0.75**device,
                    },
                    text=[
                        f"{r['implementation']}: {hover(r)}<br>{r['registers']} registers, "
                        f"{r['stack_bytes']} bytes of stack"
                        for r in chosen
                    ],
                    hovertemplate="%{text}",
                    row=1,
                    col=column,
                )
        for column, D in enumerate(WIDTHS, start=1):
            own = _own(result.rows, D)
            figure.add_scatter(
                x=[own["registers"]],
                y=[own["ms_p50"]],
                name="the kernel's table"
                + ("" if len(results) == 1 else f", {device_name(result)}"),
                legendgroup=f"own {device}",
                showlegend=column == 1,
                mode="markers",
                marker={
                    "symbol": "circle-open",
                    "size": 20,
                    "color": colour(SDPA),
                    "line": {"width": 2},
                },
                hoverinfo="skip",
                row=1,
                col=column,
            )
    figure.update_xaxes(title="registers a thread")
    figure.update_yaxes(rangemode="tozero", ticksuffix=" ms")
    figure.update_layout(legend=LEGEND, margin={"t": 40, "r": 10, "l": 60, "b": 100})
    best, worst, used = {}, {}, {}
    for D in WIDTHS:
        timed = pick([r for r in rows if "BLOCK_M" in r], D=D)
        best[D] = min(timed, key=lambda r: r["ms_p50"])
        worst[D] = max(timed, key=lambda r: r["ms_p50"])
        used[D] = _own(rows, D)
    sdpa = {D: only(rows, implementation=SDPA, D=D)["ms_p50"] for D in WIDTHS}
    left = [r for r in rows if r.get("error")]
    beyond = []
    for D in WIDTHS:
        timed = pick([r for r in rows if "BLOCK_M" in r], D=D)
        far = [r for r in timed if r not in _near(timed)]
        beyond += [f"{r['implementation']} at D {D} ({time(r['ms_p50'])})" for r in far]
    behind = {D: used[D]["ms_p50"] / best[D]["ms_p50"] for D in WIDTHS}
    return Figure(
        finding="The tile decides: "
        + "; ".join(
            f"at D {D} from {time(best[D]['ms_p50'])} ({best[D]['implementation']}) to "
            f"{time(worst[D]['ms_p50'])} ({worst[D]['implementation']})"
            for D in WIDTHS
        )
        + ".",
        caption="16 heads of 1024 queries and keys, float32: queries × keys of a tile, and warps of "
        "a program. A ring: the tile of the kernel's table. Open marks spill to the stack"
        + (f"; {len(left)} tiles that do not run or spill more are in the table" if left else "")
        + (f"; beyond the chart: {listed(beyond)}" if beyond else "")
        + ". Medians; L2 flushed before every call; all take turns.",
        table=[
            {"D": r["D"], "tile": r["implementation"], "registers": r["registers"],
             "spill stores, bytes": r["spill_store_bytes"], "stack, bytes": r["stack_bytes"],
             "shared, bytes": r["shared_bytes"],
             "time": None if r.get("error") else time(r["ms_p50"]), "remark": r.get("error")}
            for r in rows if "BLOCK_M" in r
        ],
        plot=figure,
        height=400,
        narrow=stacked([f"D {D}" for D in WIDTHS], 720, 0),
        sentences={
            "chosen": "The table was written before this sweep, by the rule above and without a clock. "
            "Its rows take "
            + " and ".join(
                f"{time(used[D]['ms_p50'])} at D {D}"
                + (
                    ", the fastest of all"
                    if behind[D] == 1
                    else f", {ratio(behind[D])} the time of the fastest"
                )
                for D in WIDTHS
            )
            + f"; PyTorch takes {time(sdpa[64])} and {time(sdpa[128])}.",
            "rule": _of_rule(rows, best, used),
        },
    )  # fmt: skip


def _of_rule(rows, best, used):
    """Whether the table's rule, the largest tile that spills nothing, finds the fastest tile."""
    if all(best[D] is used[D] for D in WIDTHS):
        return "The rule holds here: its tiles are the fastest."
    timed = pick([r for r in rows if "BLOCK_M" in r])
    clean = [time(min(r["ms_p50"] for r in pick(timed, D=D, stack_bytes=0))) for D in WIDTHS]
    kept = f"the fastest that spill nothing take {listed(clean)}"
    keeps = (
        " So it takes a clock to choose. The kernel keeps its table, because every other number on "
        "this page was measured with it."
    )
    spilling = [D for D in WIDTHS if best[D]["stack_bytes"]]
    if not spilling:
        return (
            f"The rule is not the best one: {kept} at D {listed([str(D) for D in WIDTHS])}.{keeps}"
        )
    fastest = listed(
        [
            f"{best[D]['implementation']}, with {best[D]['stack_bytes']} bytes of stack a thread at D {D}"
            for D in spilling
        ]
    )
    text = (
        f"The rule is not the best one. The fastest tiles spill a little ({fastest}); {kept}. A few "
        "numbers on the stack, which the L1 cache serves, cost less than a smaller tile does."
    )
    most = max(timed, key=lambda r: r["stack_bytes"])
    if most["ms_p50"] > 2 * best[most["D"]]["ms_p50"]:
        text += (
            f" Many cost much: with {most['stack_bytes']} bytes {most['implementation']} "
            f"takes {time(most['ms_p50'])} at D {most['D']}."
        )
    return text + keeps


def traffic(results):
    rows = results[0].rows
    labels = {
        (BASIC, False): "one query, one key at a time",
        (BLOCKS, False): "one query, 32 keys at a time",
        (OURS, False): "16 queries, a tile at a time",
        (OURS, True): "the same, causal",
    }
    at = {(r["implementation"], r["causal"]): r for r in rows}
    shown = {key: label for key, label in labels.items() if key in at}
    figure = make_subplots(
        1,
        2,
        subplot_titles=["load instructions a query", "bytes loaded a query"],
        shared_yaxes=True,
    )
    for column, field in enumerate(("loads", "bytes_loaded"), start=1):
        each = [at[key][field] / at[key]["N"] for key in shown]
        figure.add_bar(
            y=list(shown.values())[::-1],
            x=each[::-1],
            orientation="h",
            marker={"color": [colour(implementation) for implementation, _ in shown][::-1]},
            text=[f"{x:,.0f}" if x >= 100 else f"{x:.3g}" for x in each][::-1],
            textposition="auto",
            hovertemplate="%{y}: %{x:,}",
            row=1,
            col=column,
        )
    figure.update_yaxes(automargin=True)
    figure.update_layout(showlegend=False, margin={"t": 40, "r": 20, "l": 10, "b": 40}, bargap=0.35)
    ours, before, masked = at[OURS, False], at[BLOCKS, False], at[OURS, True]
    keys = before["key_bytes"] / ours["key_bytes"]
    return Figure(
        finding=f"With 16 queries a program a head loads {ours['key_bytes']:,} bytes of K, where one "
        f"query a program loads {before['key_bytes']:,}: {ratio(keys)} as much.",
        caption=f"One head, {ours['N']} queries and keys, D {ours['D']}, float32: recorded while the "
        "interpreter ran the kernels. An instruction is one `tl.load` of the text.",
        table=[
            {"kernel": label, "programs": at[key]["programs"], "loads": at[key]["loads"],
             "bytes of K": at[key]["key_bytes"], "bytes of V": at[key]["value_bytes"],
             "bytes loaded": at[key]["bytes_loaded"],
             "compulsory bytes": at[key]["bytes_compulsory"]}
            for key, label in shown.items()
        ],
        plot=figure,
        height=300,
        narrow=stacked(["load instructions a query", "bytes loaded a query"], 560, 10),
        sentences={
            "fall": f"For {ours['N']} queries there are {ours['programs']} programs in the place of "
            f"{before['programs']}, and {ours['loads']} loads in the place of {before['loads']}. "
            f"{ours['bytes_loaded']:,} bytes come in, where one query a program asks for "
            f"{before['bytes_loaded']:,}; each tensor once would be {ours['bytes_compulsory']:,}.",
            "causal": f"The causal kernel loads {masked['key_bytes']:,} bytes of K where the full "
            f"one loads {ours['key_bytes']:,}: {masked['key_bytes'] / ours['key_bytes'] * 100:.3g} %. "
            "Longer sequences come closer to half.",
        },
    )  # fmt: skip


def steps(results):
    rows = results[0].rows
    tiles = [r for r in rows if r["example"] == "every key" and "scores" in r]
    last = only([r for r in rows if "result" in r], example="every key")
    one, two, three, four = ({k: v[0] for k, v in t.items() if isinstance(v, list)} for t in tiles)

    def numbers(values):
        return ", ".join(_two(x).replace("-", "−") for x in values if x is not None)

    terms = [f"e^{{{_two(s)} - {_two(one['m'], True)}}}" for s in one["scores"]]
    corrected = two["l_before"] * two["alpha"]
    moved = sum(t["alpha"] != 1 for t in (two, three, four))
    moves = {0: "never", 1: "once", 2: "twice"}.get(moved, f"{moved} times")
    return Figure(
        finding=f"In {len(tiles)} tiles query 0 finds a larger score {moves} after the first; each "
        f"time the sum and the accumulator are multiplied by α, and at the end they are right.",
        caption="Four queries, 14 keys in tiles of four, four columns, small inputs: the first "
        "program of the page's kernel with smaller tiles. Recorded in the interpreter, where a "
        "kernel is a Python function and Python's own tracing reads its variables between two trips "
        "of the loop; the kernel is not changed. The last accumulator divided by the sum is, bit "
        "for bit, what the launcher returned.",
        **player("tiled_attention", rows),
        sentences={
            "first": f"Its scores with keys 0 to 3 are {numbers(one['scores'])}. The largest is "
            f"$m = {_two(one['m'])}$, and the sum of their exponentials relative to it is\n\n$$\n"
            f"l = {' + '.join(terms)} = {_two(one['l'])}.\n$$",
            "second": f"Keys 4 to 7 give {numbers(two['scores'])}. Now {_two(two['m'])} is the "
            f"largest, and $l = {_two(one['l'])}$ was relative to a smaller number. Multiply it by\n\n"
            f"$$\n\\alpha = e^{{{_two(one['m'])} - {_two(two['m'], True)}}} = {_two(two['alpha'])}\n$$"
            f"\n\nand it is {_two(corrected)}: exactly the sum that would have come out, had "
            f"{_two(two['m'])} been known from the start. The four new exponentials add "
            f"{_two(sum(two['p']))}, which makes {_two(two['l'])}.",
            "third": f"Keys 8 to 11 hold nothing larger than {_two(two['m'])} (their best is "
            f"{_two(max(three['scores']))}), so $\\alpha = e^0 = 1$ and their exponentials are just "
            "added: "
            f"$l = {_two(three['l'])}$.",
            "fourth": f"The last two keys score {numbers(four['scores'])}. The maximum moves once "
            f"more, $\\alpha = {_two(four['alpha'])}$, and $l$ ends at {_two(four['l'])}"
            + (
                ": less than before, though all that was added is positive, because its unit has grown."
                if four["l"] < three["l"]
                else "."
            ),
            "end": f"The accumulator has had the same treatment and ends at "
            f"({numbers(four['acc'])}). Divided by {_two(four['l'])} it is ({numbers(last['result'][0])}), "
            "the row that the kernel stores.",
        },
    )


def _two(value, inside=False):
    """A number with two decimals; a negative one in brackets where a minus stands before it."""
    text = f"{value:.2f}"
    return f"({text})" if inside and value < 0 else text
