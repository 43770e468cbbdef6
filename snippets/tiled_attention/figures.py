"""The figures of the tiled_attention page: each draws the result of the same name."""

from decimal import Decimal

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import named
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
from snippets._lab.draw.tables import beside, columns
from snippets._lab.draw.units import flops, number, ratio, share
from snippets._lab.draw.words import Words, between, cell, faster, how_often, listed, many, span

OURS, BASIC, SDPA = "tiled_attention", "basic_attention", "torch:sdpa"
ONE_TILE, BLOCKS = "vectorized_attention", "vectorized_attention:exercise"
COMPOSED = "composed_attention"
NEAR = 3  # times the fastest: what a chart of tiles has room for
words = Words(__file__)


def forward(results):
    rows = results[0].rows
    heads, widths, lengths = values(rows, "heads"), values(rows, "D"), values(rows, "N")
    compared = Comparison(rows, OURS, [BASIC, BLOCKS, COMPOSED, SDPA], by=("heads", "D", "N"))
    basic, blocks, composed, sdpa = (compared[name] for name in compared.others)
    full = compared.case(heads[-1], widths[0], lengths[-1])
    reached = rate(compared.row(OURS, full))
    peak = ceiling(results[0], "fma_float32")
    names = {
        "one key at a time": BASIC,
        "32 keys at a time": BLOCKS,
        "three kernels": COMPOSED,
        "a block of queries": OURS,
        "PyTorch SDPA": SDPA,
    }
    panels = [
        View(f"{many(h, 'head')}, D {D}", {"heads": h, "D": D}) for h in heads for D in widths
    ]
    return Figure(
        finding=words(
            "forward",
            N=full.N,
            heads=full.heads,
            blocks=faster(blocks[full]),
            sdpa=faster(sdpa[full]),
        ),
        caption=words("forward.caption"),
        table=beside(
            rows,
            ["heads", "D", "N"],
            names,
            more=lambda case: {
                "against 32 keys": _against(blocks, compared, case),
                "against three kernels": _against(composed, compared, case),
                "against PyTorch": _against(sdpa, compared, case),
            },
        ),
        plot=charts.lines(
            results, [BASIC, BLOCKS, COMPOSED, OURS, SDPA], "N", TIME, panels, columns=2
        ),
        sentences={
            "earlier": words("forward.earlier", basic=basic.span(), blocks=blocks.span())
            + _behind(blocks, results[0].device.get("multiprocessors")),
            "composed": _beside_composed(composed, full),
            "pytorch": words("forward.pytorch", sdpa=sdpa.span()),
            "rate": words(
                "forward.rate",
                N=full.N,
                D=full.D,
                heads=full.heads,
                rate=flops(reached),
                share=share(reached, peak),
                peak=flops(peak),
            ),
        },
    )


def _beside_composed(composed, full):
    """How it stands beside the kernels that write the scores to memory."""
    if not composed:
        return ""
    text = words("forward.composed", span=composed.span())
    if composed[full] > 1:
        return text
    return (
        text
        + " "
        + words(
            "forward.composed_faster", N=full.N, heads=full.heads, by=faster(1 / composed[full])
        )
    )


def _against(other, compared, case):
    at = compared.case(case["heads"], case["D"], case["N"])
    return ratio(other[at]) if at in other else None


def _behind(blocks, multiprocessors):
    """Where a block of queries is slower than a query a program, and whether it lacks programs."""
    behind = sorted(case for case, gain in blocks.items() if gain < 1)
    if not behind:
        return ""
    lengths = {}  # of each number of heads and D
    for case in behind:
        lengths.setdefault((case.heads, case.D), []).append(case.N)
    cells = [f"{many(h, 'head')} of D {D} at N {listed(some)}" for (h, D), some in lengths.items()]
    text = " " + words(
        "forward.behind",
        cells=listed(cells),
        times=between(1 / blocks[case] for case in behind),
    )
    programs = {case: blocks.ours[case]["programs"] for case in blocks}
    if multiprocessors and all(
        (programs[case] < multiprocessors) == (case in behind) for case in blocks
    ):
        most = max(programs[case] for case in behind)
        text += " " + words("forward.programs", most=most, multiprocessors=multiprocessors)
    return text


def one_tile(results):
    rows = results[0].rows
    names = [ONE_TILE, BLOCKS, OURS, SDPA]
    lengths = values(rows, "N")
    gain = Comparison(rows, OURS, [ONE_TILE])[ONE_TILE]
    ahead = [case.N for case, times in gain.items() if times > 1]
    return Figure(
        finding=words("one_tile", first=lengths[0], last=lengths[-1], span=gain.span()),
        caption=words("one_tile.caption"),
        table=beside(rows, ["N"], {named(name): name for name in names}),
        plot=charts.lines(results, names),
        sentences={
            "short": words("one_tile.nowhere")
            if not ahead
            else words("one_tile.on", N=ahead[0])
            if ahead == [case.N for case in gain if ahead[0] <= case.N]
            else words("one_tile.some", lengths=listed(ahead))
        },
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
        finding=words(
            "causal" if full[far] > 1 else "causal.slower", N=far.N, saved=faster(full[far])
        ),
        caption=words("causal.caption"),
        table=beside(
            rows,
            ["N"],
            {s.name: s.key for s in shown},
            more=lambda case: {"full by causal": ratio(full[compared.case(case["N"])])},
        ),
        plot=charts.bars(
            results,
            shown,
            views=[View(f"N {units.count(N)}", {"N": N}, y=_time_at(N)) for N in lengths],
        ),
        sentences={
            "mask": words(
                "causal.mask",
                masking=faster(full[far] / unskipped[far]),
                skipping=faster(unskipped[far]),
            ),
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
    clean = not any(row["stack_bytes"] for row in rows)
    return Figure(
        finding=words(
            "axes", gain=span(gains), first=first[D]["shuffles"], last=last[D]["shuffles"]
        ),
        caption=words("axes.caption", device=cell(results[0].label), N=first[D]["N"]),
        table=columns(
            [{**r, "target": result.label} for result in results for r in result.rows],
            {
                "target": "target",
                "D": "D",
                "tile": "tile",
                "summed axis": "implementation",
                "time": TIME,
                "registers": "registers",
                "stack, bytes": "stack_bytes",
                "instructions": "instructions",
                "multiply-adds": "multiply_adds",
                "shuffles": "shuffles",
                "barriers": "barriers",
                "loads from memory": "global_loads",
            },
        ),
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
        sentences={
            "same": words(
                "axes.same",
                D=D,
                tile=first[D]["tile"],
                first_adds=first[D]["multiply_adds"],
                last_adds=last[D]["multiply_adds"],
                first_loads=first[D]["global_loads"],
                last_loads=last[D]["global_loads"],
                spills="neither spills" if clean else "some of them spill",
            ),
            "other": words(
                "axes.other",
                first=first[D]["shuffles"],
                last=last[D]["shuffles"],
                first_all=units.count(first[D]["instructions"]),
                last_all=units.count(last[D]["instructions"]),
            ),
            "time": words("axes.time", gain=span(gains)),
        },
    )


def resources(results):
    shown = gpus_then_compiled(results)
    main = next(r for r in shown if r.place == "gpu" or r.folder.endswith("sm_90"))
    first = pick(main.rows, D=64, dtype="float32", causal=False)[0]
    told = [main, *(r for r in shown if r.place == "compiler")]  # whatever other cards there are
    every = [x for r in told for x in pick(r.rows)]
    failed = [x for r in told for x in r.rows if x["error"]]
    spilled = [x for x in every if x["spill_store_bytes"] or x["stack_bytes"]]
    here = [x["registers"] for x in pick(main.rows)]
    device = cell(main.label.split(",")[0])
    return Figure(
        finding=words(
            "resources",
            spill=words("resources.none", targets=len(told))
            if not spilled
            else words(
                "resources.some",
                spilled=len(spilled),
                every=len(every),
                most=max(x["spill_store_bytes"] for x in spilled),
            ),
            failed=f", and {len(failed)} cannot run" if failed else "",
            device=device,
            fewest=min(here),
            most=max(here),
        ),
        caption=words("resources.caption"),
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
        sentences={
            "room": _room(first),
        },
    )


def _room(row):
    """How many programs of a kernel a multiprocessor's registers hold."""
    threads, registers = row["threads"], row["multiprocessor_registers"]
    each = -(-row["registers"] // 8) * 8  # handed out by eights
    programs = registers // (threads * each)
    text = words(
        "resources.room",
        threads=threads,
        used=row["registers"],
        each=each,
        taken=threads * each,
        registers=registers,
    )
    if programs == 1:
        return (
            f"{text}, so no second one fits beside it, and nothing else runs there while it waits."
        )
    return f"{text}, so {programs} fit beside each other and one can work while another waits."


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


def tiles(results):
    rows = results[0].rows
    widths = values(rows, "D")
    swept = {D: _swept(rows, D=D) for D in widths}
    best = {D: min(swept[D], key=TIME) for D in widths}
    worst = {D: max(swept[D], key=TIME) for D in widths}
    used = {D: _own(rows, D) for D in widths}
    sdpa = {D: only(rows, implementation=SDPA, D=D) for D in widths}
    left = [r for r in rows if r.get("error")]
    drawn = [(r["implementation"], r["D"]) for r in _near(rows)]
    beyond = [
        f"{r['implementation']} at D {D} ({TIME.text(r)})"
        for D in widths
        for r in swept[D]
        if (r["implementation"], D) not in drawn
    ]
    taken = [f"{TIME.text(used[D])} at D {D}, {_standing(used[D], best[D])}" for D in widths]
    ends = [
        f"at D {D} from {TIME.text(best[D])} ({best[D]['implementation']}) to "
        f"{TIME.text(worst[D])} ({worst[D]['implementation']})"
        for D in widths
    ]
    return Figure(
        finding=f"The tile decides: {'; '.join(ends)}.",
        caption=words(
            "tiles.caption",
            left=f"; {len(left)} tiles that do not run or spill more are in the table" * bool(left),
            beyond=f"; beyond the chart: {listed(beyond)}" if beyond else "",
        ),
        table=columns(
            [r for r in rows if "BLOCK_M" in r],
            {
                "D": "D",
                "tile": "implementation",
                "registers": "registers",
                "spill stores, bytes": "spill_store_bytes",
                "stack, bytes": "stack_bytes",
                "shared, bytes": "shared_bytes",
                "time": TIME,
                "remark": lambda r: r.get("error"),
            },
        ),
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
        sentences={
            "chosen": words(
                "tiles.chosen",
                taken=listed(taken),
                sdpa=listed([TIME.text(row) for row in sdpa.values()]),
            ),
            "spills": _spilling(best, swept),
            "columns": _columns(used.values()),
        },
    )


def _told(row):
    return (
        f"{row['implementation']}, {TIME.text(row)}<br>{row['registers']} registers, "
        f"{row['stack_bytes']} bytes of stack"
    )


def _standing(used, best):
    """How a tile stands beside the fastest one."""
    if used is best:
        return "the fastest of all"
    return f"{ratio(TIME(used) / TIME(best))} the time of the fastest ({best['implementation']})"


def _columns(rows):
    """Whether a thread sums whole columns: it does if there are pairs enough for all threads."""
    told = []
    for row in rows:
        pairs, threads = row["BLOCK_M"] * row["BLOCK_N"], 32 * row["num_warps"]
        parts = threads // pairs
        told.append(
            words(
                "tiles.whole" if parts <= 1 else "tiles.parts",
                D=row["D"],
                pairs=pairs,
                threads=threads,
                **(
                    {} if parts <= 1 else {"parts": units.count(parts), "length": row["D"] // parts}
                ),
            )
        )
    return " ".join(told)


def _spilling(best, swept):
    """Whether the fastest tiles are the largest that spill nothing, as one might expect."""
    spilling = [D for D in best if best[D]["stack_bytes"]]
    clean = {D: min(pick(swept[D], stack_bytes=0), key=TIME) for D in spilling}
    if not spilling:
        return words("tiles.clean")
    fastest = [f"{best[D]['stack_bytes']} bytes of stack per thread at D {D}" for D in spilling]
    text = words(
        "tiles.spill_a_little",
        fastest=listed(fastest),
        clean=listed([f"{TIME.text(clean[D])} at D {D}" for D in spilling]),
    )
    most = max((r for D in best for r in swept[D]), key=lambda r: r["stack_bytes"])
    if TIME(most) > 2 * TIME(best[most["D"]]):
        text += " " + words(
            "tiles.many",
            bytes=most["stack_bytes"],
            tile=most["implementation"],
            time=TIME.text(most),
            D=most["D"],
        )
    return text


def traffic(results):
    rows = results[0].rows
    at = {(r["implementation"], r["causal"]): r for r in rows}
    ours, before, masked = at[OURS, False], at[BLOCKS, False], at[OURS, True]
    return Figure(
        finding=words(
            "traffic",
            queries=ours["BLOCK_M"],
            ours=units.thousands(ours["key_bytes"]),
            before=units.thousands(before["key_bytes"]),
            keys=ratio(before["key_bytes"] / ours["key_bytes"]),
        ),
        caption=words("traffic.caption", N=ours["N"], D=ours["D"]),
        table=columns(
            rows,
            {
                "kernel": "label",
                "programs": "programs",
                "loads": "loads",
                "bytes of K": "key_bytes",
                "bytes of V": "value_bytes",
                "bytes loaded": "bytes_loaded",
                "compulsory bytes": "bytes_compulsory",
            },
        ),
        plot=charts.bars(
            results[:1],
            [Series(r["implementation"], r["label"], {"label": r["label"]}) for r in rows],
            views=[
                View("load instructions per query", y=_each("loads", "load instructions")),
                View("bytes loaded per query", y=_each("bytes_loaded", "loaded", units.size)),
            ],
        ),
        sentences={
            "fall": words(
                "traffic.fall",
                N=ours["N"],
                programs=ours["programs"],
                programs_before=before["programs"],
                loads=ours["loads"],
                loads_before=before["loads"],
                bytes=units.thousands(ours["bytes_loaded"]),
                bytes_before=units.thousands(before["bytes_loaded"]),
                compulsory=units.thousands(ours["bytes_compulsory"]),
            ),
            "causal": words(
                "traffic.causal",
                masked=units.thousands(masked["key_bytes"]),
                full=units.thousands(ours["key_bytes"]),
                share=units.exact(masked["key_bytes"] / ours["key_bytes"]),
            ),
        },
    )


def _each(name, called, unit=units.number):
    """A count for each query."""
    return Quantity(called, lambda r: r[name] / r["N"], unit)


def scene(results):
    rows = results[0].rows
    tiles = [r for r in rows if r["example"] == "every key" and "scores" in r]
    last = only([r for r in rows if "result" in r], example="every key")
    one, two, three, four = ({k: v[0] for k, v in t.items() if isinstance(v, list)} for t in tiles)

    def numbers(found):
        return ", ".join(_two(x) for x in found if x is not None)

    terms = [f"e^{{{_math(s)} - {_math(one['m'], True)}}}" for s in one["scores"]]
    moved = sum(t["alpha"] != 1 for t in (two, three, four))
    alpha = f"\\alpha = e^{{{_math(one['m'])} - {_math(two['m'], True)}}} = {_math(two['alpha'])}"
    return Figure(
        finding=words("scene", tiles=len(tiles), moves=how_often(moved)),
        caption=words("scene.caption"),
        **drawn_scene(
            "tiled_attention", rows, "tiles", "registers", words("scene.about"), hero=True
        ),
        sentences={
            "first": words("scene.first", scores=numbers(one["scores"]), m=_math(one["m"]))
            + f"\n\n$$\nl = {' + '.join(terms)} = {_math(one['l'])}.\n$$",
            "second": words(
                "scene.second", scores=numbers(two["scores"]), m=_two(two["m"]), l=_math(one["l"])
            )
            + f"\n\n$$\n{alpha}\n$$\n\n"
            + _corrected(one, two),
            "third": words(
                "scene.third",
                m=_two(two["m"]),
                best=_two(max(three["scores"])),
                l=_math(three["l"]),
            ),
            "fourth": words(
                "scene.fourth",
                scores=numbers(four["scores"]),
                alpha=_math(four["alpha"]),
                l=_math(four["l"]),
                less=words("scene.less", alpha=_math(four["alpha"]))
                if four["l"] < three["l"]
                else ".",
            ),
            "end": words(
                "scene.end",
                acc=numbers(four["acc"]),
                l=_two(four["l"]),
                row=numbers(last["result"][0]),
            ),
        },
    )


def _corrected(one, two):
    """The sum after the second tile, with as many decimals as make what is added add up."""
    kept, added = one["l"] * two["alpha"], sum(two["p"])

    def adds_up(n):
        first, second, whole = (Decimal(units.decimals(x, n)) for x in (kept, added, two["l"]))
        return first + second == whole

    digits = next((n for n in range(2, 6) if adds_up(n)), 6)
    told = {"corrected": kept, "added": added, "l": two["l"]}
    return words(
        "scene.corrected",
        m=_two(two["m"]),
        **{name: units.decimals(value, digits) for name, value in told.items()},
    )


def _two(value):
    return units.decimals(value, 2)


def _math(value, inside=False):
    """Two decimals within a formula; a negative one in brackets where a minus stands before it."""
    text = _two(value).replace(units.MINUS, "-")
    return f"({text})" if inside and value < 0 else text
