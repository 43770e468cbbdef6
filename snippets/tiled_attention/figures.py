"""The figures of the tiled_attention page: each draws the result of the same name."""

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import (
    TIME,
    ceiling,
    derived,
    field,
    gpus_then_compiled,
    only,
    pick,
    rate,
    values,
)
from snippets._lab.draw.scene import scene as drawn_scene
from snippets._lab.draw.tables import cell, listed
from snippets._lab.draw.units import between, decimals, flops, many, number, ratio, thousands, time

OURS, BASIC, SDPA = "tiled_attention", "basic_attention", "torch:sdpa"
BLOCKS, COMPOSED = "vectorized_attention:exercise", "composed_attention"
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


def scene(rows):
    tiles = [r for r in rows if r["example"] == "every key" and "scores" in r]
    one, two, three, four = ({k: v[0] for k, v in t.items() if isinstance(v, list)} for t in tiles)

    parts = [round(x, 3) for x in (one["l"] * two["alpha"], sum(two["p"]), two["l"])]

    def together(found):
        return ", ".join(decimals(x) for x in found if x is not None)

    return Figure(
        finding="In 4 tiles query 0 finds a larger score twice after the first; each time the "
        "sum and the accumulator are multiplied by α, and at the end they are right.",
        caption="Four queries, 14 keys in tiles of four, four columns, small inputs: the first "
        "program of the page's kernel with smaller tiles, recorded in the interpreter by Python's "
        "own tracing. The last accumulator divided by the sum is, bit for bit, what the launcher "
        "returned.",
        **drawn_scene(
            "tiled_attention",
            rows,
            "tiles",
            "registers",
            "The kernel at work: a block of queries, the tile of keys that it is at, and what it "
            "has collected so far.",
        ),
        numbers={
            "first": together(one["scores"]),
            "second": together(two["scores"]),
            "m": decimals(one["m"]),
            "m2": decimals(two["m"]),
            "l1": decimals(one["l"]),
            "alpha": decimals(two["alpha"]),
            "corrected": decimals(parts[0], 3),
            "added": decimals(parts[1], 3),
            "sum": decimals(parts[2], 3),
        },
        claims={
            "title of tiled_attention/scene: twice after the first": [
                t["alpha"] != 1 for t in (two, three, four)
            ]
            == [True, False, True],
            f"{PAGE}: which makes": round(parts[0] + parts[1], 3) == parts[2],
        },
    )


def traffic(rows):
    at = {(r["implementation"], r["causal"]): r for r in rows}
    ours, before = at[OURS, False], at[BLOCKS, False]
    return Figure(
        finding=f"With {ours['BLOCK_M']} queries per program a head loads "
        f"{thousands(ours['key_bytes'])} bytes of K; one query per program loads "
        f"{thousands(before['key_bytes'])}, {ratio(before['key_bytes'] / ours['key_bytes'])} as "
        "much.",
        numbers={
            "programs": ours["programs"],
            "programs_before": before["programs"],
            "loads": ours["loads"],
            "loads_before": before["loads"],
            "bytes": thousands(ours["bytes_loaded"]),
            "bytes_before": thousands(before["bytes_loaded"]),
        },
    )


def forward(results, rows):
    heads, widths, lengths = values(rows, "heads"), values(rows, "D"), values(rows, "N")
    compared = Comparison(rows, OURS, [BASIC, BLOCKS, COMPOSED, SDPA], by=("heads", "D", "N"))
    _, blocks, composed, sdpa = (compared[name] for name in compared.others)
    full = compared.case(heads[-1], widths[0], lengths[-1])
    reached = rate(compared.row(OURS, full))
    peak = ceiling(results[0], "fma_float32")
    panels = [View(many(h, "head"), {"heads": h, "D": widths[0]}) for h in heads]
    return Figure(
        finding="With 16 heads of 4096 queries and keys, D 64, a block of queries per program is "
        f"{ratio(blocks[full])} faster than one query per program with 32 keys at a time, and "
        f"{ratio(1 / sdpa[full])} slower than PyTorch.",
        caption=f"D {widths[0]}, float32, time of one call, both axes logarithmic: down is faster. "
        f"One head with few queries leaves most of the GPU idle. {TURNS}",
        plot=charts.lines(
            results, [BASIC, BLOCKS, COMPOSED, OURS, SDPA], "N", TIME, panels, columns=2
        ),
        numbers={
            "ours": time(compared.ms(OURS, full)),
            "first": time(compared.ms(BASIC, full)),
            "blocks": between(blocks.values(), ratio),
            "chain": ratio(1 / composed[full]),
            "rate": flops(reached),
            "peak": flops(peak),
        },
        claims={
            f"{PAGE}: Much less. Against 32 keys at a time it is faster by": 1
            < min(blocks.values())
            <= max(blocks.values())
            < 5,
            f"{PAGE}: It loses to the previous post's kernels nearly everywhere": max(
                list(composed.values())
            )
            < 1.02,
        },
    )


def causal(rows):
    compared = Comparison(rows, "causal", [OURS, "causal, no tile skipped"])
    full, unskipped = (compared[name] for name in compared.others)
    far = compared.case(4096)
    return Figure(
        finding=f"At N 4096 the causal kernel is {ratio(full[far])} faster than the full one, "
        "because it leaves the hidden tiles out.",
        numbers={
            "masking": ratio(unskipped[far] / full[far]),
            "skipping": ratio(unskipped[far]),
            "both": ratio(full[far]),
        },
    )


def axes(rows):
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
        numbers={
            "first": first[D]["shuffles"],
            "last": last[D]["shuffles"],
            "instructions_first": thousands(first[D]["instructions"]),
            "instructions_last": thousands(last[D]["instructions"]),
            "gain": between(gains, ratio),
        },
        claims={
            f"{PAGE}: with a tile that spills in neither order": not any(
                row["stack_bytes"] for row in rows
            ),
            f"{PAGE}: The multiply-adds and the loads stay nearly the same": abs(
                first[D]["multiply_adds"] / last[D]["multiply_adds"] - 1
            )
            < 0.05
            and first[D]["global_loads"] == last[D]["global_loads"],
        },
    )


def tiles(results, rows):
    widths = values(rows, "D")
    swept = {D: _swept(rows, D=D) for D in widths}
    best = {D: min(swept[D], key=TIME) for D in widths}
    used = {D: _own(rows, D) for D in widths}
    clean = {D: min((r for r in swept[D] if not r["stack_bytes"]), key=TIME) for D in widths}
    drawn = [(r["implementation"], r["D"]) for r in _near(rows)]
    beyond = [r for D in widths for r in swept[D] if (r["implementation"], D) not in drawn]
    return Figure(
        finding=f"At D {listed(widths)} the fastest tile spills, by "
        f"{listed(best[D]['stack_bytes'] for D in widths)} bytes per thread. The one that the "
        f"kernel uses (ringed) spills {listed(used[D]['stack_bytes'] for D in widths)}, and is "
        "less than 1 % slower.",
        caption="16 heads of 1024 queries and keys, float32. A mark is a tile of so many "
        "queries; point at it for its keys and warps. Open marks spill to the stack; "
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
                Series(
                    "ceiling", "used by the kernel", {"kind": "own"}, symbol="circle-open", size=20
                ),
            ],
            field("stack_bytes", "stack per thread, bytes", number),
            views=charts.views("D {}", "D", widths),
            log="",
        ),
        numbers={
            "clean": between([TIME(clean[D]) / TIME(best[D]) for D in widths], ratio),
            "stack": max(used[D]["stack_bytes"] for D in widths),
        },
        claims={
            f"{PAGE}: ## The fastest tiles spill": all(
                0 < best[D]["stack_bytes"] < 256 for D in widths
            ),
            "title of tiled_attention/tiles: is less than 1 % slower": all(
                TIME(used[D]) < 1.01 * TIME(best[D]) for D in widths
            ),
            f"{PAGE}: So the kernel uses tiles that spill": all(
                used[D]["stack_bytes"] for D in widths
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
        numbers={"multiply_adds": units.percent(first["multiply_adds"] / first["instructions"])},
    )
