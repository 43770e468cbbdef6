"""The figures of the tiled_attention page: each draws the result of the same name."""

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import named
from snippets._lab.draw.players import player
from snippets._lab.draw.rows import (
    TIME,
    Quantity,
    ceiling,
    derived,
    field,
    gpus,
    gpus_then_compiled,
    only,
    pick,
    rate,
    spread,
    values,
)
from snippets._lab.draw.tables import beside, columns
from snippets._lab.draw.units import flops, number, ratio, share, time
from snippets._lab.draw.words import Words, cell, faster, how_often, listed, many

OURS, BASIC, SDPA = "tiled_attention", "basic_attention", "torch:sdpa"
ONE_TILE, BLOCKS = "vectorized_attention", "vectorized_attention:exercise"
NEAR = 3  # times the fastest: what a chart of tiles has room for
words = Words(__file__)


def forward(results):
    rows = results[0].rows
    heads, widths, lengths = values(rows, "heads"), values(rows, "D"), values(rows, "N")
    compared = Comparison(rows, OURS, [BASIC, BLOCKS, SDPA], by=("heads", "D", "N"))
    basic, blocks, sdpa = (compared[name] for name in compared.others)
    full = compared.case(heads[-1], widths[0], lengths[-1])
    reached = rate(compared.row(OURS, full))
    peak = ceiling(results[0], "fma_float32")
    names = {
        "one key at a time": BASIC,
        "32 keys at a time": BLOCKS,
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
                "against PyTorch": _against(sdpa, compared, case),
            },
        ),
        plot=charts.lines(results, [BASIC, BLOCKS, OURS, SDPA], "N", TIME, panels, columns=2),
        sentences={
            "earlier": words("forward.earlier", basic=basic.span(), blocks=blocks.span())
            + _behind(blocks, results[0].device.get("multiprocessors")),
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


def _against(other, compared, case):
    at = compared.case(case["heads"], case["D"], case["N"])
    return ratio(other[at]) if at in other else None


def _behind(blocks, multiprocessors):
    """Where a block of queries is slower than a query a program, and whether it lacks programs."""
    behind = sorted(blocks.behind)
    if not behind:
        return ""
    lengths = {}  # of each number of heads and D
    for case in behind:
        lengths.setdefault((case.heads, case.D), []).append(case.N)
    cells = [f"{many(h, 'head')} of D {D} at N {listed(some)}" for (h, D), some in lengths.items()]
    text = " " + words("forward.behind", cells=listed(cells))
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
    ahead = [case.N for case in gain.ahead]
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


def resources(results):
    shown = gpus_then_compiled(results)
    main = next(r for r in shown if r.place == "gpu" or r.folder.endswith("sm_90"))
    orders = [
        Series(OURS, "summed along the first axis", {"order": "first"}),
        Series("context", "along the last", {"order": "last"}),
    ]
    plain = {"dtype": "float32", "causal": False}
    first, last = (only(main.rows, order=order, D=64, **plain) for order in ("first", "last"))
    every = [x for r in shown for x in pick(r.rows, order="first")]
    failed = [x for r in shown for x in r.rows if x["order"] == "first" and x["error"]]
    spilled = [x for x in every if x["spill_store_bytes"] or x["stack_bytes"]]
    here = [x["registers"] for x in pick(main.rows, order="first")]
    device = cell(main.label.split(",")[0])
    return Figure(
        finding=words("resources", first=first["shuffles"], last=last["shuffles"]),
        caption=words("resources.caption", device=device),
        table=columns(
            [{**x, "target": r.label} for r in shown for x in r.rows],
            {
                "target": "target",
                "summed axis": "order",
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
        plot=charts.bars(
            gpus(results) or [main],
            [Series(OURS, f"D {D}", {"D": D, **plain}) for D in values(main.rows, "D")],
            views=[
                View("shuffles", y=field("shuffles", "instructions", units.whole)),
                View("multiply-adds", y=field("multiply_adds", "instructions", units.whole)),
            ],
            groups=orders,
        ),
        sentences={
            "axis": words(
                "resources.axis",
                last=last["shuffles"],
                last_adds=last["multiply_adds"],
                first=first["shuffles"],
                first_adds=first["multiply_adds"],
            ),
            "spills": words(
                "resources.spills",
                spill=words("resources.none", targets=len(shown))
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
            "room": _room(first),
        },
    )


def _room(row):
    """How many programs of a kernel a multiprocessor's registers hold."""
    threads, registers = row["threads"], row["multiprocessor_registers"]
    taken = threads * -(-row["registers"] // 8) * 8  # handed out to a warp by eights
    programs = registers // taken
    text = words("resources.room", threads=threads, taken=taken, registers=registers)
    if programs == 1:
        return f"{text}: no second one fits beside it, so nobody else works there while it waits."
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
    behind = {D: TIME(used[D]) / TIME(best[D]) for D in widths}
    taken = [
        f"{TIME.text(used[D])} at D {D}, "
        + (
            "the fastest of all"
            if used[D] is best[D]
            else f"{ratio(behind[D])} the time of the fastest"
        )
        for D in widths
    ]
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
            field("registers", "registers a thread", number),
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
            "rule": _of_rule(best, used, swept),
        },
    )


def _told(row):
    return (
        f"{row['implementation']}, {TIME.text(row)}<br>{row['registers']} registers, "
        f"{row['stack_bytes']} bytes of stack"
    )


def _of_rule(best, used, swept):
    """Whether the table's rule, the largest tile that spills nothing, finds the fastest tile."""
    if all(best[D] is used[D] for D in best):
        return words("tiles.holds")
    clean = [time(min(map(TIME, pick(swept[D], stack_bytes=0)))) for D in best]
    kept = words("tiles.kept", clean=listed(clean))
    keeps = " " + words("tiles.keeps")
    spilling = [D for D in best if best[D]["stack_bytes"]]
    if not spilling:
        return words("tiles.not_best", kept=kept, widths=listed(best)) + keeps
    fastest = [
        f"{best[D]['implementation']}, with {best[D]['stack_bytes']} bytes of stack a thread at "
        f"D {D}"
        for D in spilling
    ]
    text = words("tiles.spill_a_little", fastest=listed(fastest), kept=kept)
    most = max((r for D in best for r in swept[D]), key=lambda r: r["stack_bytes"])
    if TIME(most) > 2 * TIME(best[most["D"]]):
        text += " " + words(
            "tiles.many",
            bytes=most["stack_bytes"],
            tile=most["implementation"],
            time=TIME.text(most),
            D=most["D"],
        )
    return text + keeps


def traffic(results):
    rows = results[0].rows
    at = {(r["implementation"], r["causal"]): r for r in rows}
    ours, before, masked = at[OURS, False], at[BLOCKS, False], at[OURS, True]
    return Figure(
        finding=words(
            "traffic",
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
                View("load instructions a query", y=_each("loads", "load instructions")),
                View("bytes loaded a query", y=_each("bytes_loaded", "loaded", units.size)),
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


def steps(results):
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
        finding=words("steps", tiles=len(tiles), moves=how_often(moved)),
        caption=words("steps.caption"),
        **player("tiled_attention", rows),
        sentences={
            "first": words("steps.first", scores=numbers(one["scores"]), m=_math(one["m"]))
            + f"\n\n$$\nl = {' + '.join(terms)} = {_math(one['l'])}.\n$$",
            "second": words(
                "steps.second", scores=numbers(two["scores"]), m=_two(two["m"]), l=_math(one["l"])
            )
            + f"\n\n$$\n{alpha}\n$$\n\n"
            + words(
                "steps.corrected",
                corrected=_two(one["l"] * two["alpha"]),
                m=_two(two["m"]),
                added=_two(sum(two["p"])),
                l=_two(two["l"]),
            ),
            "third": words(
                "steps.third",
                m=_two(two["m"]),
                best=_two(max(three["scores"])),
                l=_math(three["l"]),
            ),
            "fourth": words(
                "steps.fourth",
                scores=numbers(four["scores"]),
                alpha=_math(four["alpha"]),
                l=_math(four["l"]),
                less=": less than before, though all that was added is positive, because its unit "
                "has grown."
                if four["l"] < three["l"]
                else ".",
            ),
            "end": words(
                "steps.end",
                acc=numbers(four["acc"]),
                l=_two(four["l"]),
                row=numbers(last["result"][0]),
            ),
        },
    )


def _two(value):
    return units.decimals(value, 2)


def _math(value, inside=False):
    """Two decimals within a formula; a negative one in brackets where a minus stands before it."""
    text = _two(value).replace(units.MINUS, "-")
    return f"({text})" if inside and value < 0 else text
