"""The figures of the tiled_attention page: each draws the result of the same name."""

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import (
    TIME,
    Quantity,
    ceiling,
    derived,
    field,
    gpus_then_compiled,
    only,
    pick,
    rate,
    spread,
    values,
)
from snippets._lab.draw.scene import scene as drawn_scene
from snippets._lab.draw.tables import cell, columns
from snippets._lab.draw.units import (
    MINUS,
    between,
    decimals,
    flops,
    many,
    number,
    ratio,
    share,
    thousands,
)

OURS, BASIC, SDPA = "tiled_attention", "basic_attention", "torch:sdpa"
ONE_TILE, BLOCKS = "vectorized_attention", "vectorized_attention:exercise"
COMPOSED = "composed_attention"
NEAR = 3  # times the fastest: what a chart of tiles has room for
PAGE = "docs/posts/tiled_attention.md"
TURNS = "Medians; L2 flushed before every call; all take turns."


def _swept(rows, **wanted):
    """The rows of the sweep, without PyTorch's."""
    return pick([r for r in rows if "BLOCK_M" in r], **wanted)


def _own(rows, D):
    """The row of the sweep with the tile of kernel.py's table."""
    return only(_swept(rows), D=D, in_table=True)


def _near(rows):
    """The swept rows that a chart has room for, each with whether it is the table's own."""
    for D in values(rows, "D"):
        swept = _swept(rows, D=D)
        fastest = min(r["ms_p50"] for r in swept)
        for r in swept:
            if r["ms_p50"] <= NEAR * fastest:
                yield {**r, "kind": "spills" if r["stack_bytes"] else "fits"}
        yield {**_own(rows, D), "kind": "own"}


def _told(row):
    return (
        f"{row['implementation']}, {TIME.text(row)}<br>{row['registers']} registers, "
        f"{row['stack_bytes']} bytes of stack"
    )


def scene(results):
    rows = results[0].rows
    tiles = [r for r in rows if r["example"] == "every key" and "scores" in r]
    last = only([r for r in rows if "result" in r], example="every key")
    one, two, three, four = ({k: v[0] for k, v in t.items() if isinstance(v, list)} for t in tiles)

    parts = [round(x, 3) for x in (one["l"] * two["alpha"], sum(two["p"]), two["l"])]

    def together(found):
        return ", ".join(decimals(x) for x in found if x is not None)

    return Figure(
        finding="In 4 tiles query 0 finds a larger score twice after the first; each time the "
        "sum and the accumulator are multiplied by α, and at the end they are right.",
        caption="Four queries, 14 keys in tiles of four, four columns, small inputs: the first "
        "program of the page's kernel with smaller tiles. Recorded in the interpreter, where a "
        "kernel is a Python function and Python's own tracing reads its variables between two "
        "iterations of the loop; the kernel is not changed. The last accumulator divided by the "
        "sum is, bit for bit, what the launcher returned.",
        **drawn_scene(
            "tiled_attention",
            rows,
            "tiles",
            "registers",
            "The kernel at work: a block of queries, the tile of keys that it is at, and what it "
            "has collected so far.",
            hero=True,
        ),
        numbers={
            **{f"s{i}": decimals(s).replace(MINUS, "-") for i, s in enumerate(one["scores"])},
            "first": together(one["scores"]),
            "second": together(two["scores"]),
            "fourth": together(four["scores"]),
            "m": decimals(one["m"]),
            "m2": decimals(two["m"]),
            "best": decimals(max(three["scores"])),
            "l1": decimals(one["l"]),
            "l3": decimals(three["l"]),
            "l4": decimals(four["l"]),
            "alpha": decimals(two["alpha"]),
            "alpha4": decimals(four["alpha"]),
            "corrected": decimals(parts[0], 3),
            "added": decimals(parts[1], 3),
            "sum": decimals(parts[2], 3),
            "acc": together(four["acc"]),
            "row": together(last["result"][0]),
        },
        claims={
            "title of tiled_attention/scene: twice after the first": [
                t["alpha"] != 1 for t in (two, three, four)
            ]
            == [True, False, True],
            f"{PAGE}: which makes": round(parts[0] + parts[1], 3) == parts[2],
            f"{PAGE}: less than before although every term added is positive": four["l"]
            < three["l"],
        },
    )


def traffic(results):
    rows = results[0].rows
    at = {(r["implementation"], r["causal"]): r for r in rows}
    ours, before, masked = at[OURS, False], at[BLOCKS, False], at[OURS, True]
    return Figure(
        finding=f"With {ours['BLOCK_M']} queries per program a head loads "
        f"{thousands(ours['key_bytes'])} bytes of K; one query per program loads "
        f"{thousands(before['key_bytes'])}, {ratio(before['key_bytes'] / ours['key_bytes'])} as "
        "much.",
        caption=f"One head, {ours['N']} queries and keys, D {ours['D']}, float32: recorded while "
        "the interpreter ran the kernels. An instruction is one `tl.load` of the text.",
        plot=charts.bars(
            results[:1],
            [Series(r["implementation"], r["label"], {"label": r["label"]}) for r in rows],
            views=[
                View("load instructions per query", y=_each("loads", "load instructions")),
                View("bytes loaded per query", y=_each("bytes_loaded", "loaded", units.size)),
            ],
        ),
        numbers={
            "programs": ours["programs"],
            "programs_before": before["programs"],
            "loads": ours["loads"],
            "loads_before": before["loads"],
            "bytes": thousands(ours["bytes_loaded"]),
            "bytes_before": thousands(before["bytes_loaded"]),
            "compulsory": thousands(ours["bytes_compulsory"]),
            "masked": thousands(masked["key_bytes"]),
            "full": thousands(ours["key_bytes"]),
            "masked_share": units.exact(masked["key_bytes"] / ours["key_bytes"]),
        },
    )


def _each(name, called, unit=units.number):
    """A count for each query."""
    return Quantity(called, lambda r: r[name] / r["N"], unit)


def forward(results):
    rows = results[0].rows
    heads, widths, lengths = values(rows, "heads"), values(rows, "D"), values(rows, "N")
    compared = Comparison(rows, OURS, [BASIC, BLOCKS, COMPOSED, SDPA], by=("heads", "D", "N"))
    basic, blocks, composed, sdpa = (compared[name] for name in compared.others)
    full = compared.case(heads[-1], widths[0], lengths[-1])
    reached = rate(compared.row(OURS, full))
    peak = ceiling(results[0], "fma_float32")
    panels = [
        View(f"{many(h, 'head')}, D {D}", {"heads": h, "D": D}) for h in heads for D in widths
    ]
    return Figure(
        finding="With 16 heads of 4096 queries and keys, D 64, a block of queries per program is "
        f"{ratio(blocks[full])} faster than one query per program with 32 keys at a time, and "
        f"{ratio(1 / sdpa[full])} slower than PyTorch.",
        caption="float32, time of one call, both axes logarithmic: down is faster. One head with "
        f"few queries leaves most of the GPU idle. {TURNS}",
        plot=charts.lines(
            results, [BASIC, BLOCKS, COMPOSED, OURS, SDPA], "N", TIME, panels, columns=2
        ),
        numbers={
            "basic": between(basic.values(), ratio),
            "blocks": between(blocks.values(), ratio),
            "chain": between([1 / x for x in composed.values()], ratio),
            "sdpa_slower": ratio(max(1 / x for x in sdpa.values())),
            "sdpa_faster": ratio(max(sdpa.values())),
            "rate": flops(reached),
            "share": share(reached, peak),
            "peak": flops(peak),
        },
        claims={
            f"{PAGE}: Over all measured sizes this kernel is faster than": min(
                *basic.values(), *blocks.values()
            )
            > 1,
            f"{PAGE}: most with 16 heads, N 4096 and D 128": composed.worst == (16, 128, 4096),
        },
    )


def one_tile(results):
    rows = results[0].rows
    names = [ONE_TILE, BLOCKS, OURS, SDPA]
    gain = Comparison(rows, OURS, [ONE_TILE])[ONE_TILE]
    return Figure(
        finding="Where all keys still fit one tile, N 64 to 512, the loop over tiles takes "
        f"{between((1 / x for x in gain.values()), ratio)} the time of the single load.",
        caption=f"One head, D 64, float32, both axes logarithmic. {TURNS}",
        plot=charts.lines(results, names),
    )


def causal(results):
    rows = results[0].rows
    labels = {r["implementation"]: r["label"] for r in rows}
    torch = [key for key in labels if key.startswith("torch:")]
    shown = [
        *(Series(key, labels[key], like=OURS, told=spread) for key in labels if key not in torch),
        *(Series(key, labels[key], told=spread) for key in torch),
    ]
    lengths = values(rows, "N")
    compared = Comparison(rows, "causal", [OURS, "causal, no tile skipped"])
    full, unskipped = (compared[name] for name in compared.others)
    far = compared.case(lengths[-1])
    return Figure(
        finding=f"At N 4096 the causal kernel is {ratio(full[far])} faster than the full one, "
        "because it leaves the hidden tiles out.",
        caption="16 heads, D 64, float32; N queries and keys. “No tile skipped” is the same "
        f"kernel with the loop up to the last key. {TURNS}",
        plot=charts.bars(
            results,
            shown,
            views=[View(f"N {units.count(N)}", {"N": N}, y=_time_at(N)) for N in lengths],
        ),
        numbers={
            "masking": ratio(unskipped[far] / full[far]),
            "skipping": ratio(unskipped[far]),
        },
    )


def _time_at(N):
    """Times with a scale of their own for each length, in the unit of all."""
    return field("ms_p50", f"time at N {units.count(N)}", units.milliseconds)


def axes(results):
    rows = results[0].rows
    widths = values(rows, "D")
    first, last = (
        {D: only(rows, implementation=order, D=D) for D in widths} for order in ("first", "last")
    )
    gains = [TIME(last[D]) / TIME(first[D]) for D in widths]
    D = widths[0]
    return Figure(
        finding=f"Summed along the first axis the kernel is {between(gains, ratio)} faster than "
        f"the same kernel summed along the last: {first[D]['shuffles']} shuffles instead of "
        f"{last[D]['shuffles']} at D 64.",
        caption=f"16 heads of {first[D]['N']} queries and keys, float32, tiles with which neither "
        f"order spills; and instructions of the compiled kernel ({cell(results[0].label)}), "
        "nearly all of them in its one loop. A shuffle hands a number from one thread of a warp "
        "to another. Medians; L2 flushed before every call; the two take turns.",
        plot=charts.bars(
            results,
            [Series(OURS, f"D {D}", {"D": D}) for D in widths],
            views=[
                View("time", y=TIME),
                View("shuffles", y=field("shuffles", "instructions", units.whole)),
                View("multiply-adds", y=field("multiply_adds", "instructions", units.whole)),
            ],
            groups=[
                Series(OURS, "summed along the first axis", {"implementation": "first"}),
                Series("context", "along the last", {"implementation": "last"}),
            ],
        ),
        numbers={
            "tile": first[D]["tile"].partition(",")[0],
            "first_adds": first[D]["multiply_adds"],
            "last_adds": last[D]["multiply_adds"],
            "first_loads": first[D]["global_loads"],
            "last_loads": last[D]["global_loads"],
            "first": first[D]["shuffles"],
            "last": last[D]["shuffles"],
            "first_all": first[D]["instructions"],
            "last_all": last[D]["instructions"],
            "gain": between(gains, ratio),
        },
        claims={f"{PAGE}: neither spills": not any(row["stack_bytes"] for row in rows)},
    )


def tiles(results):
    rows = results[0].rows
    widths = values(rows, "D")
    swept = {D: _swept(rows, D=D) for D in widths}
    best = {D: min(swept[D], key=TIME) for D in widths}
    slowest = {D: ratio(TIME(max(swept[D], key=TIME)) / TIME(best[D])) for D in widths}
    used = {D: _own(rows, D) for D in widths}
    sdpa = {D: only(rows, implementation=SDPA, D=D) for D in widths}
    drawn = [(r["implementation"], r["D"]) for r in _near(rows)]
    beyond = [r for D in widths for r in swept[D] if (r["implementation"], D) not in drawn]
    clean = {D: min(pick(swept[D], stack_bytes=0), key=TIME) for D in widths}
    most = max(swept[128], key=lambda r: r["stack_bytes"])
    return Figure(
        finding=f"The tile decides: the slowest takes {slowest[64]} the time of the fastest at D "
        f"64, {slowest[128]} at D 128 and {slowest[256]} at D 256.",
        caption="16 heads of 1024 queries and keys, float32: queries × keys of a tile, and warps "
        "of a program. A ring: the tile of the kernel's table. Open marks spill to the stack; "
        f"{len(beyond)} tiles lie beyond the chart. {TURNS}",
        plot=charts.points(
            derived(results, lambda result: _near(result.rows)),
            [
                *(
                    Series(
                        OURS,
                        f"{BLOCK_M} queries" + (", spills" if kind == "spills" else ""),
                        {"BLOCK_M": BLOCK_M, "kind": kind},
                        told=_told,
                        symbol=symbol + ("-open" if kind == "spills" else ""),
                    )
                    for BLOCK_M, symbol in ((8, "circle"), (16, "square"), (32, "diamond"))
                    for kind in ("fits", "spills")
                ),
                Series(SDPA, "the kernel's table", {"kind": "own"}, symbol="circle-open", size=20),
            ],
            field("registers", "registers per thread", number),
            TIME,
            charts.views("D {}", "D", widths),
            log="",
        ),
        numbers={
            **{f"own_{D}": TIME.text(used[D]) for D in widths},
            **{f"sdpa_{D}": TIME.text(sdpa[D]) for D in widths},
            **{f"stack_{D}": best[D]["stack_bytes"] for D in widths},
            **{f"clean_{D}": TIME.text(clean[D]) for D in widths},
            "behind": ratio(TIME(used[128]) / TIME(best[128])),
            "most_bytes": most["stack_bytes"],
            "most_time": TIME.text(most),
            **{f"pairs_{D}": used[D]["BLOCK_M"] * used[D]["BLOCK_N"] for D in widths},
            "threads_64": 32 * used[64]["num_warps"],
        },
        claims={
            f"{PAGE}: the fastest of all at D 64 and D 256": used[64] is best[64]
            and used[256] is best[256],
            f"{PAGE}: They spill a little": all(best[D]["stack_bytes"] for D in widths),
            f"{PAGE}: 32 × 8 on 16 warps": most["implementation"] == "32 × 8, 16 warps",
            f"{PAGE}: Two threads then share a score": all(
                32 * used[D]["num_warps"] == 2 * used[D]["BLOCK_M"] * used[D]["BLOCK_N"]
                for D in (128, 256)
            ),
        },
    )


def resources(results):
    shown = gpus_then_compiled(results)
    main = next(r for r in shown if r.place == "gpu" or r.folder.endswith("sm_90"))
    first = pick(main.rows, D=64, dtype="float32", causal=False)[0]
    told = [main, *(r for r in shown if r.place == "compiler")]  # whatever other cards there are
    every = [x for r in told for x in pick(r.rows)]
    spilled = [x for x in every if x["spill_store_bytes"] or x["stack_bytes"]]
    here = between([x["registers"] for x in pick(main.rows)], units.count)
    most = max(x["spill_store_bytes"] for x in spilled)
    return Figure(
        finding=f"{len(spilled)} of {len(every)} compiled kernels spill, at most {most} bytes per "
        f"thread; on {cell(main.label.split(',')[0])} they take {here} registers per thread, of "
        "255.",
        caption="Every row of the kernel's table as compiled, for the GPU and for each target: "
        "registers, spills and stack of a thread, shared memory of a program, and machine "
        "instructions.",
        table=columns(
            [{**x, "target": r.label} for r in shown for x in r.rows],
            {
                "target": "target",
                "D": "D",
                "dtype": "dtype",
                "causal": "causal",
                "registers": "registers",
                "spill stores, bytes": "spill_store_bytes",
                "stack, bytes": "stack_bytes",
                "shared, bytes": "shared_bytes",
                "multiply-adds": "multiply_adds",
                "shuffles": "shuffles",
                "barriers": "barriers",
                "remark": "error",
            },
        ),
        numbers={
            "threads": first["threads"],
            "used": first["registers"],
            "taken": units.count(first["threads"] * (-(-first["registers"] // 8) * 8)),
            "registers": first["multiprocessor_registers"],
        },
        claims={
            f"{PAGE}: so no second one fits beside it": 2 * first["threads"] * first["registers"]
            > first["multiprocessor_registers"],
        },
    )
