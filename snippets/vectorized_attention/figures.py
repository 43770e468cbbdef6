"""The figures of the vectorized_attention page: each draws the result of the same name."""

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import named
from snippets._lab.draw.rows import (
    TIME,
    Quantity,
    ceiling,
    field,
    gpus_then_compiled,
    only,
    pick,
    rate,
    values,
)
from snippets._lab.draw.tables import beside, columns
from snippets._lab.draw.units import flops, percent, ratio, seconds, thousands, time
from snippets._lab.draw.words import Words, case, cell, faster, listed

OURS, BASIC, SDPA = "vectorized_attention", "basic_attention", "torch:sdpa"
BLOCKS = "vectorized_attention:exercise"
LABELS = {
    BASIC: "one key at a time",
    OURS: "one load",
    BLOCKS: "32 keys at a time",
    SDPA: named(SDPA),
}
SAME_ROW, CHAIN = "the same row each iteration", "each load waits"
THREADS = 32  # of a warp
INFINITE = float("inf")  # the time of what does not compile
words = Words(__file__)


def forward(results):
    rows = results[0].rows
    widths, lengths = values(rows, "D"), values(rows, "N")
    compared = Comparison(rows, OURS, [BASIC, SDPA], by=("N", "D"))
    basic, sdpa = (compared[name] for name in compared.others)
    best, worst = basic.best, basic.worst
    largest = max(compared.cases, key=lambda c: (_elements(c), c.D))
    last = compared.case(lengths[-1], widths[-1])
    missing = {(r["N"], r["D"]): r["error"] for r in rows if r.get("error")}
    limit = next((found for r in rows if (found := _limit(r))), "")
    behind = sum(gain < 1 for gain in basic.values())

    def told(name, at):
        return time(compared.ms(name, at))

    return Figure(
        finding=words(
            "forward",
            best_by=faster(basic[best]),
            best=case(best),
            slower=f", and {faster(basic[worst])} at {case(worst)}" if behind else "",
        ),
        caption=words(
            "forward.caption",
            stopped=f" Shaded: compiling was stopped after {limit}, so there is no time."
            if limit
            else "",
        ),
        table=beside(
            rows,
            ["N", "D"],
            {LABELS[name]: name for name in (BASIC, OURS, BLOCKS, SDPA)},
            more=lambda at: {
                "one load faster than one key by": ratio(basic[at["N"], at["D"]])
                if at[OURS]
                else None,
                "remark": missing.get((at["N"], at["D"])),
            },
        ),
        plot=charts.lines(
            results,
            [Series(name, label) for name, label in LABELS.items()],
            "N",
            TIME,
            [_with_band(D, [N for N, d in missing if d == D], lengths) for D in widths],
        ),
        sentences={
            "best": words(
                "forward.best",
                best=case(best),
                ours=told(OURS, best),
                basic=told(BASIC, best),
                by=faster(basic[best]),
                sdpa=told(SDPA, best),
            ),
            "cliff": f"{'; '.join(_cliff(basic.where(D=D), D) for D in widths)}. "
            + (
                words("forward.some_behind", behind=behind, cases=len(basic))
                if behind
                else words("forward.none_behind", cases=len(basic))
            ),
            "edge": words(
                "forward.edge",
                largest=case(largest),
                within=f"within {limit}" if limit else "in time",
                basic=faster(basic[largest]),
                sdpa=faster(sdpa[largest]),
                missing=len(missing),
                cases=len(lengths) * len(widths),
            ),
            "pytorch": words(
                "forward.factor", least=ratio(min(sdpa.values())), most=ratio(max(sdpa.values()))
            ),
            "claim_speed": words(
                "forward.claim_speed",
                least=ratio(basic[worst]),
                most=ratio(basic[best]),
                inside=sum(3 <= x <= 5 for x in basic.values()),
                cases=len(basic),
            ),
            "blocks": words(
                "forward.blocks",
                worst=case(worst),
                blocks=told(BLOCKS, worst),
                ours=told(OURS, worst),
                basic=told(BASIC, worst),
                best=case(best),
                best_blocks=told(BLOCKS, best),
                best_ours=told(OURS, best),
                last=case(last),
                last_blocks=told(BLOCKS, last),
                last_sdpa=told(SDPA, last),
            ),
        },
    )


def _elements(tile):
    """Of a tile of keys, a case of a Comparison."""
    return tile.N * tile.D


def _with_band(D, stopped, lengths):
    """The panel of one D; what did not compile in time is shaded."""
    step = (lengths[-1] / lengths[-2]) ** 0.5  # half of the way from one length to the next
    bands = [(min(stopped) / step, lengths[-1] * step, OURS)] if stopped else []
    return View(f"D {D}", {"D": D}, bands=bands)


def _cliff(basic, D):
    """How it does beside basic_attention at one D where that turns: before it, and after."""
    slower = next((case for case in sorted(basic) if basic[case] < 1), None)
    before = [case for case in sorted(basic) if slower is None or case < slower]
    at = [*before[-1:], *([slower] if slower else [])]
    return f"D {D}: {listed(f'{faster(basic[case])} at N {cell(case.N)}' for case in at)}"


def _for_each_thread(row):
    """Elements of the tile of keys that one thread has to hold."""
    return row["N"] * row["D"] // (THREADS * row["num_warps"])


def _first_spill(rows):
    """The row with the smallest tile that spills; None if none does."""
    spilled = [r for r in pick(rows) if r["stack_bytes"]]
    return min(spilled, key=lambda r: (_for_each_thread(r), r["D"])) if spilled else None


def _limit(row):
    """Where compiling was stopped: "20 s"; empty where it was not."""
    error = row.get("error") or ""
    return error.removeprefix("> ") if error.startswith(">") else ""


def _tile(row):
    return case(row, "N", "D")


def registers(results):
    shown = gpus_then_compiled(results)
    rows = shown[0].rows
    good = pick(rows)
    stopped = [r for r in rows if _limit(r)]
    limit = _limit(stopped[0]) if stopped else ""
    first, most = _first_spill(rows), max(good, key=lambda r: r["stack_bytes"])
    whole = max((r for r in good if not r["stack_bytes"]), key=_for_each_thread)
    slowest = max(good, key=lambda r: r["compile_seconds"])
    few = min((r for r in good if r["stack_bytes"]), key=lambda r: r["registers"], default=most)
    elsewhere = {cell(r.label.split(",")[0]): _first_spill(r.rows) for r in shown[1:]}
    return Figure(
        finding=words(
            "registers",
            whole=_tile(whole),
            registers=whole["registers"],
            first=_tile(first),
            most=_tile(most),
            bytes=thousands(most["stack_bytes"]),
        )
        if first
        else words("registers.fits", registers=whole["registers"]),
        caption=words(
            "registers.caption",
            dtype=whole["dtype"],
            threads=THREADS * whole["num_warps"],
            stopped=f" A tile that was stopped after {limit} is in the table." if stopped else "",
        ),
        table=columns(
            [{**x, "device": r.label} for r in shown for x in r.rows],
            {
                "device": "device",
                "N": "N",
                "D": "D",
                "registers": "registers",
                "spill stores, bytes": "spill_store_bytes",
                "stack, bytes": "stack_bytes",
                "time to compile": field("compile_seconds", unit=seconds),
                "remark": "error",
            },
        ),
        plot=charts.points(
            shown,
            [
                Series(OURS, where={"D": D}, symbol=symbol)
                for D, symbol in zip(
                    values(rows, "D"), ("circle", "square", "diamond"), strict=True
                )
            ],
            Quantity("elements of K a thread", _for_each_thread, units.whole),
            views=[
                View("registers per thread", y=field("registers", unit=units.whole)),
                View("stack per thread", y=field("stack_bytes", "bytes", units.whole)),
                View("time to compile", y=field("compile_seconds", "time", seconds), log="xy"),
            ],
            log="x",
            by_device=True,
        ),
        sentences={
            "fit": words(
                "registers.fit",
                elements=_for_each_thread(whole),
                whole=_tile(whole),
                registers=whole["registers"],
            )
            + (
                " "
                + words(
                    "registers.first",
                    elements=_for_each_thread(first),
                    first=_tile(first),
                    bytes=thousands(first["stack_bytes"]),
                )
                if first
                else ""
            ),
            "dodge": words("registers.no_spill")
            if not first
            else words(
                "registers.few",
                tile=_tile(few),
                registers=few["registers"],
                bytes=thousands(few["stack_bytes"]),
            )
            if few["registers"] < 128
            else words("registers.many", registers=few["registers"]),
            "seconds": words(
                "registers.seconds",
                least=seconds(min(r["compile_seconds"] for r in good)),
                most=seconds(slowest["compile_seconds"]),
                slowest=_tile(slowest),
            )
            + " "
            + (
                words("registers.stopped", limit=limit, tiles=listed(map(_tile, stopped)))
                if stopped
                else words("registers.all_compile")
            ),
            "elsewhere": words(
                "registers.elsewhere",
                targets="; ".join(
                    f"{label} {_tile(row)}" if row else f"{label}: none"
                    for label, row in elsewhere.items()
                ),
            )
            if elsewhere
            else words("registers.nowhere_else"),
        },
    )


def remedies(results):
    rows = results[0].rows
    ours = [r for r in rows if "num_warps" in r]
    usual, *more = values(ours, "num_warps")
    by_warps = Comparison(ours, usual, more, by=("N", "D"), name="num_warps")
    compiled = sorted({c for w in (usual, *more) for c in by_warps.rows[w]})
    fastest = {
        c: min((usual, *more), key=lambda w: by_warps.ms(w, c) or INFINITE) for c in compiled
    }
    saved = {c: by_warps.ms(usual, c) / by_warps.ms(fastest[c], c) for c in by_warps.cases}
    gain = max(saved, key=saved.get)
    last = max(compiled, key=lambda c: (_elements(c), c.D))
    sdpa = {(r["N"], r["D"]): r for r in pick(rows, implementation=SDPA)}
    behind = by_warps.ms(fastest[last], last) / TIME(sdpa[last])
    unspilled = {
        w: max(
            (_elements(c) for c, r in by_warps.rows[w].items() if not r["stack_bytes"]), default=0
        )
        for w in (usual, *more)
    }
    return Figure(
        finding=words(
            "remedies",
            tile=case(gain),
            ours=time(by_warps.ms(usual, gain)),
            usual=usual,
            fastest=time(by_warps.ms(fastest[gain], gain)),
            warps=fastest[gain],
            saved=ratio(saved[gain]),
        ),
        caption=words("remedies.caption"),
        table=columns(
            sorted(ours, key=lambda r: (r["N"], r["D"], r["num_warps"])),
            {
                "N": "N",
                "D": "D",
                "warps": "num_warps",
                "time": TIME,
                "registers": "registers",
                "stack, bytes": "stack_bytes",
                "time to compile": field("compile_seconds", unit=seconds),
                named(SDPA): Quantity("time", lambda r: TIME(sdpa[r["N"], r["D"]]), time),
                "remark": lambda r: r.get("error"),
            },
        ),
        plot=charts.lines(
            results,
            [
                *(
                    Series(OURS, f"{w} warps", {"num_warps": w}, shade=i)
                    for i, w in enumerate((usual, *more))
                ),
                SDPA,
            ],
            "N",
            TIME,
            charts.views("D {}", "D", values(rows, "D")),
        ),
        sentences={
            "moved": words(
                "remedies.moved",
                tiles=", ".join(
                    f"{w} warps {thousands(n)} elements" if n else f"{w} warps none"
                    for w, n in unspilled.items()
                ),
            ),
            "still": words(
                "remedies.still",
                tile=case(last),
                warps=fastest[last],
                ours=time(by_warps.ms(fastest[last], last)),
                sdpa=f"{ratio(behind)} PyTorch's {TIME.text(sdpa[last])}"
                if behind >= 1
                else f"PyTorch {TIME.text(sdpa[last])}",
            ),
        },
    )


def latency(results):
    result, rows = results[0], results[0].rows
    labels = {
        BASIC: "one key at a time",
        SAME_ROW: "the same, one row again and again",
        CHAIN: "as many loads, each waits for the last",
        OURS: "all keys in one load",
    }
    short, N = min(values(rows, "N")), max(values(rows, "N"))
    programs, D = max(values(rows, "M")), rows[0]["D"]

    def ms(implementation, M, keys):
        return TIME(only(rows, implementation=implementation, M=M, N=keys))

    def each(implementation, loops):
        """Time of an iteration; the difference of two lengths leaves out what a launch costs."""
        return (ms(implementation, 1, N) - ms(implementation, 1, short)) / (loops * (N - short))

    iteration, step = each(BASIC, 2), each(CHAIN, 2)
    one, full = ms(BASIC, 1, N), ms(BASIC, programs, N)
    left = ms(SAME_ROW, programs, N) / full
    reached = {
        name: rate(only(rows, implementation=name, M=programs, N=N)) for name in (BASIC, OURS)
    }
    peak = ceiling(result, "fma_float32")
    return Figure(
        finding=words("latency", one=time(one), N=N, load=time(ms(OURS, 1, N))),
        caption=words("latency.caption", N=N, D=D),
        table=beside(rows, ["M", "N"], {label: name for name, label in labels.items()}),
        plot=charts.bars(
            results,
            [Series(name, label, like=_drawn_like(name)) for name, label in labels.items()],
            TIME,
            [View("", {"M": 1, "N": N})],
        ),
        sentences={
            "claim_trip": words(
                "latency.claim_trip",
                step=time(step),
                loads=thousands(1 + 2 * N),
                waits=time(ms(CHAIN, 1, N)),
                loop=words(
                    "latency.overlap" if step > iteration else "latency.no_overlap",
                    iteration=time(iteration),
                ),
                programs=programs,
                head=time(full),
                times=ratio(full / one),
            ),
            "claim_stall": words("latency.claim_stall", left=percent(left), M=programs, D=D)
            + " "
            + _of_the_stall(left),
            "claim_calculator": words(
                "latency.claim_calculator",
                peak=flops(peak),
                M=programs,
                D=D,
                basic=flops(reached[BASIC]),
                basic_share=percent(reached[BASIC] / peak),
                ours=flops(reached[OURS]),
                ours_share=percent(reached[OURS] / peak),
            ),
        },
    )


def _drawn_like(name):
    return {SAME_ROW: BASIC, CHAIN: "context"}.get(name, name)


def _of_the_stall(left):
    """What it says about a memory stall that this share of the time is left without memory."""
    if left <= 0.1:
        return words("latency.agrees")
    if left < 0.98:
        return f"{words('latency.more_left')} {words('latency.far_rows', cost=percent(1 - left))}"
    return f"{words('latency.more_left')} {words('latency.not_memory')}"


def traffic(results):
    rows = results[0].rows
    names = (BASIC, OURS, BLOCKS)
    before, one, blocks = (only(rows, case="one program", implementation=i) for i in names)
    head, head_before = (only(rows, case="whole head", implementation=i) for i in (OURS, BASIC))
    same = before["bytes_loaded"] == one["bytes_loaded"] == blocks["bytes_loaded"]
    loaded = thousands(one["bytes_loaded"])
    return Figure(
        finding=words(
            "traffic",
            before=thousands(before["loads"]),
            loads=one["loads"],
            bytes=f"stay at {loaded}" if same else f"become {loaded}",
        ),
        caption=words("traffic.caption", N=one["N"], D=one["D"]),
        table=columns(
            rows,
            {
                "case": "case",
                "kernel": lambda r: LABELS[r["implementation"]],
                "M": "M",
                "N": "N",
                "D": "D",
                "loads": "loads",
                "elements": "elements",
                "bytes loaded": "bytes_loaded",
                "compulsory bytes": "bytes_compulsory",
                "32-byte sectors": "sectors",
                "slots written by where": "selected_elements",
            },
        ),
        plot=charts.bars(
            results[:1],
            [Series(name, LABELS[name]) for name in names],
            views=[
                View(
                    "load instructions",
                    {"case": "one program"},
                    y=field("loads", "instructions", units.whole),
                ),
                View(
                    "bytes loaded",
                    {"case": "one program"},
                    y=field("bytes_loaded", "loaded", units.size),
                ),
            ],
        ),
        sentences={
            "count": words(
                "traffic.count",
                N=one["N"],
                D=one["D"],
                loads=one["loads"],
                before=thousands(before["loads"]),
                elements=thousands(one["elements"]),
                as_before="exactly as many as before"
                if same
                else f"before: {thousands(before['elements'])}",
            ),
            "slots": words(
                "traffic.slots",
                slots=thousands(one["selected_elements"]),
                before=thousands(before["selected_elements"]),
            ),
            "claim_trips": words(
                "traffic.claim_trips",
                N=one["N"],
                before=thousands(before["loads"]),
                loads=one["loads"],
                fewer=ratio(before["loads"] / one["loads"]),
                bytes=words("traffic.same_bytes", bytes=loaded, sectors=thousands(one["sectors"]))
                if same
                else words(
                    "traffic.other_bytes",
                    before=thousands(before["bytes_loaded"]),
                    bytes=loaded,
                ),
            ),
            "claim_once": words(
                "traffic.claim_once",
                M=head["M"],
                N=head["N"],
                programs=head["programs"],
                times=head["key_elements"] // (head["N"] * head["D"]),
                loaded=thousands(head["bytes_loaded"]),
                compulsory=thousands(head["bytes_compulsory"]),
                basic="just as with one key at a time"
                if head["bytes_loaded"] == head_before["bytes_loaded"]
                else f"with one key at a time {thousands(head_before['bytes_loaded'])}",
            ),
            "blocks": words(
                "traffic.blocks",
                loads=blocks["loads"],
                N=blocks["N"],
                bytes="the same bytes" if same else f"{thousands(blocks['bytes_loaded'])} bytes",
            ),
        },
    )


def broadcasting(results):
    rows = results[0].rows
    printed = {e: pick(rows, expression=e) for e in values(rows, "expression")}
    blocks = {
        e: "\n".join(["```text", e, "", *(r["line"] for r in lines), "```"])
        for e, lines in printed.items()
    }
    sums, addresses, kernel = printed
    ends = {"sums": printed[sums][0]["largest"], "addresses": printed[addresses][0]["largest"]}
    return Figure(
        finding=words("broadcasting", **ends),
        caption=words("broadcasting.caption"),
        table=columns(rows, {"expression": "expression", "line": "line"}),
        sentences={
            "sums": blocks[sums],
            "addresses": blocks[addresses],
            "kernel": blocks[kernel],
            "claim_sum": words("broadcasting.claim_sum", **ends),
        },
    )
