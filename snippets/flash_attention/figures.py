"""The figures of the flash_attention page: each draws the result of the same name."""

from snippets._lab.draw import charts, shared_figures, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import named
from snippets._lab.draw.rows import (
    INTENSITY,
    RATE,
    TIME,
    Quantity,
    ceiling,
    compiled,
    derived,
    field,
    gains,
    intensity,
    moved,
    only,
    pick,
    rate,
    ridge,
    target,
    values,
)
from snippets._lab.draw.scene import scene as drawn_scene
from snippets._lab.draw.tables import beside, columns
from snippets._lab.draw.units import (
    change,
    count,
    decimals,
    flops,
    measured_ratio,
    percent,
    share,
    size,
)
from snippets._lab.draw.words import (
    Words,
    between,
    case,
    cell,
    faster,
    idle,
    in_cells,
    listed,
    pays,
    useless,
)

OURS, CUDNN, FLASH, FLEX = "flash_attention", "torch:cudnn", "torch:flash", "torch:flex"
EAGER, SDPA, TILED = "torch:eager", "torch:sdpa", "tiled_attention"
UNIT = "matmul_bfloat16"  # the ceiling of the tensor cores
OWN_TILE = "the kernel's table"
words = Words(__file__)


def _views(rows):
    """A panel for each D, without a mask and with one."""
    pairs = sorted({(r["D"], r["causal"]) for r in rows})
    wanted = [{"D": D, "causal": causal} for D, causal in pairs]
    return [View(case(where), where) for where in wanted]


def _tokens(rows):
    return cell(rows[0]["batch"] * rows[0]["N"])


# The whole kernel.


def forward(results):
    rows = results[0].rows
    lengths = values(rows, "N")
    main, half = (
        Comparison(pick(rows, dtype=dtype), OURS, [CUDNN, FLASH, FLEX], ("D", "causal", "N"))
        for dtype in ("bfloat16", "float16")
    )
    cudnn, flash, flex = (main[name] for name in main.others)
    rates = {at: rate(main.row(OURS, at)) for at in main.cases}
    masked = [rates[at] / rates[at._replace(causal=False)] for at in main.cases if at.causal]
    top = max(rates, key=rates.get)
    peak = ceiling(results[0], UNIT)
    return Figure(
        finding=words(
            "forward",
            cudnn=cudnn.between(),
            flash=flash.between(),
            flex=f" and {flex.between()} of FlexAttention's" if flex else "",
        ),
        caption=words(
            "forward.caption",
            tokens=_tokens(rows),
            columns=rows[0]["heads"] * rows[0]["D"],
            medians=words("medians"),
        ),
        table=_rates(rows, {"cuDNN": CUDNN, "FlashAttention-2": FLASH, "Flex": FLEX}),
        plot=charts.lines(
            results,
            [CUDNN, OURS, FLEX, FLASH],
            "N",
            RATE,
            [View(v.title, {**v.where, "dtype": "bfloat16"}) for v in _views(rows)],
            log="x",
        ),
        sentences={
            "cudnn": words(
                "forward.cudnn",
                lengths=listed(lengths),
                rates="; ".join(
                    listed([decimals(x) for x in cudnn.where(**v.where).values()]) + f" ({v.title})"
                    for v in _views(rows)
                ),
                near=_told(cudnn.best),
                standing=cudnn.standing(", and is "),
            ),
            "flash": words(
                "forward.flash",
                flash=flash.span(),
                flex=f", and against FlexAttention, {flex.span()}" if flex else "",
            ),
            "half": words("forward.half", cudnn=half[CUDNN].between(), flash=half[FLASH].between()),
            "peak": words(
                "forward.peak",
                best=_told(top),
                rate=flops(rates[top]),
                share=share(rates[top], peak),
                peak=flops(peak),
            ),
            "masked": words("forward.masked", masked=between(masked)),
        },
    )


def _told(at):
    """A case of the grid in words: "D 64, no mask, N 4096"."""
    return f"D {at.D}, {'causal' if at.causal else 'no mask'}, N {cell(at.N)}"


def _rates(rows, others):
    """A table: time and rate of the kernel, and of others, label → name, beside it."""
    axes = ("dtype", "D", "causal", "N")
    compared = Comparison(rows, OURS, others.values(), axes)

    def at(row):
        return compared.case(*(row[axis] for axis in axes))

    def rate_of(name):
        return Quantity("rate", lambda r: (x := compared.row(name, at(r))) and rate(x), units.flops)

    def part_of(name):
        against = compared[name]
        return lambda r: decimals(against[at(r)]) if at(r) in against else None

    return columns(
        pick(rows, implementation=OURS),
        {
            **{axis: axis for axis in axes},
            "time": TIME,
            "this kernel": RATE,
            **{label: rate_of(name) for label, name in others.items()},
            **{f"of {label}": part_of(name) for label, name in others.items()},
        },
    )


# What each step gives.


# Steps that the data names in other words.
STEPS = {
    "exp2 in place of exp": "exp2 instead of exp",
    "descriptors in place of pointers": "descriptors instead of pointers",
    "one loop, with a branch": "one loop with a branch",
    "more queries a program": "more queries per program",
    "warp specialisation": "warp specialization",
}


def _steps(rows):
    """Rung → its row, its step in words, for all steps but the kernel that they are steps of."""
    return {
        r["implementation"]: {**r, "step": STEPS.get(r["step"], r["step"])}
        for r in rows
        if r.get("kind") in ("back", "further")
    }


def _over_base(rows):
    """The kernel with all steps beside everything else."""
    base = next(r["implementation"] for r in rows if r.get("kind") == "base")
    return Comparison(rows, base, by=("D", "causal"))


def _gains(rows):
    """Rung → case → how many times as fast the kernel is with the step as without it."""
    compared = _over_base(rows)
    steps, pairs = _steps(rows), {}
    for r in pick(rows):
        if r["implementation"] in steps and r["matters"]:
            at = compared.case(r["D"], r["causal"])
            base = compared.row(compared.ours, at)
            pairs[r["implementation"], at] = (r, base) if r["kind"] == "further" else (base, r)
    found = {rung: {} for rung in steps}
    for (rung, at), gain in sorted(gains(pairs).items()):
        found[rung][at] = gain
    return found


def _drawn_gains(result):
    for rung, found in _gains(result.rows).items():
        for at, gain in found.items():
            yield {"rung": rung, **at._asdict(), "gain": gain - 1}


def _worth(faster):
    """A step's gains as a sentence with a verdict."""
    told = in_cells({case(at): [gain] for at, gain in faster.items()})
    return words("ladder.step", gains=told, verdict=pays(faster.values()))


def ladder(results):
    rows = results[0].rows
    compared, found = _over_base(rows), _gains(rows)
    step = {rung: r["step"] for rung, r in _steps(rows).items()}
    best = max(found, key=lambda rung: max(found[rung].values()))
    never = idle({rung: of.values() for rung, of in found.items()})
    whole = Comparison(rows, compared.ours, by=compared.by)[CUDNN]
    N = rows[0]["N"]
    return Figure(
        finding=words(
            "ladder",
            step=step[best],
            gain=change(max(found[best].values())),
            idle=words("ladder.idle", idle=len(never), steps=len(found)) if never else "",
        ),
        caption=words(
            "ladder.caption",
            N=N,
            tokens=_tokens(rows),
            medians=words("medians"),
        ),
        table=_ladder_table(rows, compared, found),
        plot=charts.bars(
            derived(results, _drawn_gains),
            [Series(OURS, step[rung], {"rung": rung}) for rung in found],
            Quantity("faster with the step", "gain", units.gain),
            _views(rows),
            columns=2,
        ),
        sentences={rung.replace(" ", "_"): _worth(of) for rung, of in found.items()}
        | {
            "useless": useless({step[rung]: of.values() for rung, of in found.items()}),
            "whole": words("ladder.whole", whole=whole.between(), N=N),
        },
    )


def _ladder_table(rows, compared, gained):
    """What each step gives and the times behind it, then the kernel's and cuDNN's."""
    lines = [
        {
            "name": rung,
            "step": r["step"],
            "without it": "–" if r["kind"] == "further" else rung,
        }
        for rung, r in _steps(rows).items()
    ]
    ends = {compared.ours: compared.ours, OURS: "the kernel with its table", CUDNN: "cuDNN"}
    lines += [{"name": name, "step": told, "without it": "–"} for name, told in ends.items()]

    def gain(at):
        return lambda line: (
            change(found) if (found := gained.get(line["name"], {}).get(at)) else None
        )

    def time(at):
        return Quantity("time", lambda line: compared.ms(line["name"], at), units.time)

    return columns(
        lines,
        {
            "step": "step",
            "without it": "without it",
            **{case(at): gain(at) for at in sorted(compared.cases)},
            **{f"{case(at)}, time": time(at) for at in sorted(compared.cases)},
        },
    )


# Tiles.


def _swept(rows):
    """The rows that have a tile of their own, and not that of the kernel's table."""
    return [r for r in rows if "BLOCK_M" in r]


def _grid(r):
    return r["D"], r["causal"], r["N"]


def _shares(result):
    """The swept rows, each with its part of the rate of its case's fastest."""
    timed = pick(_swept(result.rows))
    fastest = {at: min(TIME(r) for r in timed if _grid(r) == at) for at in map(_grid, timed)}
    return [{**r, "share": fastest[_grid(r)] / TIME(r)} for r in timed]


def _length(r):
    """N 1024, causal"""
    return case(r, "N", "causal")


def sweep(results):
    rows = results[0].rows
    shares = _shares(results[0])
    tiles = {
        r["implementation"]: f"{r['BLOCK_M']} × {r['BLOCK_N']}, {r['num_warps']}, {r['num_stages']}"
        + " *" * r["warp_specialize"]
        for r in _swept(rows)
    }
    part = {(*_grid(r), r["implementation"]): r["share"] for r in shares}
    winners = {}
    for r in sorted(pick(shares, share=1), key=_grid):
        winners.setdefault((r["D"], r["implementation"]), []).append(_length(r))
    behind = {
        _grid(r): TIME(r) / min(TIME(x) for x in pick(rows) if _grid(x) == _grid(r))
        for r in pick(rows, implementation=OURS)
    }
    worst = max(behind, key=behind.get)
    left = {r["implementation"] for r in rows if r.get("error")}
    groups = [
        Series(OURS, case(where), where, shade=shade, symbol=symbol)
        for (causal, N), shade, symbol in zip(
            [(causal, N) for causal in (False, True) for N in values(rows, "N")],
            [0, 0, 1, 1],
            ["circle-open", "circle", "diamond-open", "diamond"],
            strict=True,
        )
        for where in [{"N": N, "causal": causal}]
    ]
    return Figure(
        finding=words(
            "sweep",
            slowest=percent(min(part.values())),
            winners=len({tile for _, tile in winners}),
            cases=len(behind),
        ),
        caption=words(
            "sweep.caption",
            tokens=_tokens(rows),
            left=words("sweep.left", tiles=len(tiles), left=len(left))
            if left
            else words("sweep.fit"),
            medians=words("medians"),
        ),
        table=columns(
            rows,
            {
                "D": "D",
                "causal": "causal",
                "N": "N",
                "tile": lambda r: _tile(r["implementation"]) if "BLOCK_M" in r else OWN_TILE,
                "time": TIME,
                "of the fastest": Quantity(
                    "", lambda r: part.get((*_grid(r), r["implementation"])), units.fraction
                ),
                "remark": lambda r: r.get("error"),
            },
        ),
        plot=charts.dots(
            derived(results, _shares),
            [Series(OURS, told, {"implementation": tile}) for tile, told in tiles.items()],
            Quantity("rate, of the fastest tile's", "share", units.percent),
            charts.views("D {}", "D", values(rows, "D")),
            groups=groups,
            log=False,
            ends=(0, 1.04),
        ),
        sentences={
            "fastest": words(
                "sweep.fastest",
                winners="; ".join(
                    f"{_tile(tile)} (D {D}: {listed(where)})"
                    for (D, tile), where in winners.items()
                ),
            ),
            "own": words(
                "sweep.own",
                behind=between(behind.values()),
                worst=""
                if behind[worst] == 1
                else words(
                    "sweep.worst",
                    case=case(dict(zip(("D", "causal", "N"), worst, strict=True))),
                ),
            ),
        },
    )


def resources(results):
    shown = compiled(results)
    rows = [r for result in shown for r in result.rows]
    failed = [r for r in rows if r["error"]]
    spilled = [r["spill_store_bytes"] for r in rows if r["spill_store_bytes"]]
    registers = [r["registers"] for r in rows if r["registers"]]
    targets = {}  # of each instruction
    for result in shown:
        for r in pick(result.rows, dtype="float16"):
            targets.setdefault(r["tensor_core"], {})[target(result)] = True
    told = [f"`{unit}` on {listed(found)}" for unit, found in targets.items() if unit != "none"]
    told += [f"none on {listed(targets['none'])}"] if "none" in targets else []
    return Figure(
        finding=words(
            "resources",
            fit=f"{len(failed)} of {len(rows)} kernels do not fit their GPU"
            if failed
            else f"All {len(rows)} kernels fit their GPU",
            spill=f"{len(spilled)} spill, at most {max(spilled)} bytes per thread"
            if spilled
            else "none spills",
        ),
        caption=words("resources.caption"),
        table=[
            {
                "GPU": f"{target(result)} ({result.rows[0]['cards']})",
                "dtype": dtype,
                "tensor cores": listed(values(mine, "tensor_core")),
                **{
                    f"D {D}": _without_and_with([r for r in mine if r["D"] == D])
                    for D in values(rows, "D")
                },
            }
            for result in shown
            for dtype in values(result.rows, "dtype")
            for mine in [[r for r in result.rows if r["dtype"] == dtype]]
        ],
        open_table=True,
        sentences={
            "instructions": words("resources.instructions", instructions="; ".join(told)),
            "registers": words(
                "resources.registers",
                fewest=min(registers),
                most=max(registers),
                spilled=words(
                    "resources.spills", spilled=len(spilled), kernels=len(rows), most=max(spilled)
                )
                if spilled
                else ", and nothing is spilled",
            ),
        },
    )


def _without_and_with(rows):
    """Registers and shared memory without a mask and with one: once where they agree."""
    if not rows:
        return None
    if reasons := [r["error"] for r in rows if r["error"]]:
        return reasons[0]
    pair = sorted(rows, key=lambda r: r["causal"])

    def both(name, text):
        return " | ".join(dict.fromkeys(text(r[name]) for r in pair))

    spills = max(r["spill_store_bytes"] for r in pair)
    told = f"{both('registers', count)} registers, {both('shared_bytes', units.binary)}"
    return told + f", {spills} bytes spilled" * (spills > 0)


def _tile(label):
    """A tile's label as it is shown: the data spells one word otherwise."""
    return label.replace("specialised", "specialized")


# Beside others.


def kernels(results):
    rows = results[0].rows
    labels = {r["implementation"]: r["label"] for r in pick(rows)}
    compared = Comparison(rows, OURS, labels)
    far = compared.cases[-1]
    gain = {name: compared[name][far] for name in labels if far in compared[name]}
    first = next(name for name in gain if not name.startswith("torch"))
    sdpa = f" and {faster(gain[SDPA])} than what SDPA chooses by itself" if SDPA in gain else ""
    ahead = f"{measured_ratio(gain[first])} faster"
    sentences = {"whole": words("kernels.whole", N=far.N, first=ahead, sdpa=sdpa)}
    if TILED in gain:
        sentences["cores"] = words("kernels.cores", N=far.N, faster=faster(gain[TILED]))

    def against(at):
        return lambda line: measured_ratio(x) if (x := compared[line["name"]].get(at)) else None

    def time(at):
        return Quantity("time", lambda line: compared.ms(line["name"], at), units.time)

    return Figure(
        finding=words("kernels", first=labels[first], gain=measured_ratio(gain[first]), N=far.N),
        caption=words(
            "kernels.caption", heads=rows[0]["heads"], D=rows[0]["D"], medians=words("medians")
        ),
        table=columns(
            [{"name": name, "kernel": label} for name, label in labels.items()],
            {
                "kernel": "kernel",
                **{case(at): time(at) for at in compared.cases},
                **{f"{case(at)}, against this kernel": against(at) for at in compared.cases},
            },
        ),
        plot=charts.times(results, labels, values(rows, "N")),
        sentences=sentences,
    )


def roofline(results):
    rows = results[0].rows
    memory, peak = ceiling(results[0], "memory"), ceiling(results[0], UNIT)
    meet = ridge(results[0], UNIT)
    ours = pick(rows, implementation=OURS)
    one = [r for r in ours if r.get("M") == 1]
    many = [r for r in ours if "M" not in r]
    reached = {r["N"]: rate(r) / min(peak, intensity(r) * memory) for r in many}
    shares = [f"{percent(x)} at N {cell(N)}" for N, x in sorted(reached.items())]
    streamed = [f"{share(moved(r), memory)} of the bandwidth at N {cell(r['N'])}" for r in one]
    last, first = max(reached), min(reached)
    return Figure(
        finding=words(
            "roofline",
            last=last,
            peak=percent(reached[last]),
            first=first,
            memory=percent(reached[first]),
        ),
        caption=words(
            "roofline.caption",
            **{name: many[0][name] for name in ("D", "heads", "batch")},
            one=one[0]["batch"],
            medians=words("medians"),
        ),
        table=columns(
            pick(rows),
            {
                "implementation": lambda r: named(r["implementation"]),
                "M": lambda r: r.get("M", r["N"]),
                "N": "N",
                "FLOP per byte": INTENSITY,
                "rate": RATE,
                "bytes moved": Quantity("", moved, units.bandwidth),
                "time": TIME,
            },
        ),
        plot=charts.roofline(
            results,
            [
                *(Series(name, where=_at_all_queries(name)) for name in (OURS, CUDNN, EAGER)),
                Series(OURS, f"{OURS}, one query", {"implementation": OURS, "M": 1}),
                Series(SDPA, f"{named(SDPA)}, one query", {"implementation": SDPA, "M": 1}),
            ],
        ),
        sentences={
            "ridge": words(
                "roofline.ridge",
                ridge=count(meet),
                peak=flops(peak),
                memory=units.bandwidth(memory),
                N=count(2 * meet),
            ),
            "rest": words("roofline.rest", shares=listed(shares)),
            "one": words("roofline.one", shares=listed(streamed)),
        },
    )


def _at_all_queries(name):
    """The rows of an implementation with as many queries as keys."""
    return lambda r: r["implementation"] == name and "M" not in r


def ragged(results):
    rows = results[0].rows
    lengths = values(rows, "N")
    own, shared = max(values(rows, "heads_kv")), min(values(rows, "heads_kv"))
    label = only(rows, heads_kv=shared, causal=False, N=lengths[0])["implementation"]
    rates = {(r["heads_kv"], r["causal"], r["N"]): rate(r) for r in pick(rows)}
    round_of = {N: min(n for n in lengths if n >= N and n % 128 == 0) for N in lengths}
    lost = {
        (causal, N): 1 - x / rates[heads, causal, round_of[N]]
        for (heads, causal, N), x in rates.items()
        if heads == own and round_of[N] != N
    }
    kept = [rates[shared, causal, N] / x for (h, causal, N), x in rates.items() if h == own]

    def told(x):
        return f"lose at most {percent(x)}" if x > 0 else "lose nothing"

    return Figure(
        finding=words("ragged", lost=told(max(lost.values())), kept=told(1 - min(kept))),
        caption=words(
            "ragged.caption",
            **{name: rows[0][name] for name in ("D", "batch", "heads")},
            medians=words("medians"),
        ),
        table=columns(
            sorted(pick(rows), key=lambda r: (-r["heads_kv"], r["causal"], r["N"])),
            {
                "heads of keys": "heads_kv",
                "causal": "causal",
                "N": "N",
                "rate": RATE,
                "of the round length": lambda r: decimals(
                    rate(r) / rates[r["heads_kv"], r["causal"], round_of[r["N"]]]
                ),
                "of heads with their own keys": lambda r: decimals(
                    rate(r) / rates[own, r["causal"], r["N"]]
                ),
            },
        ),
        plot=charts.bars(
            results,
            [Series(OURS, f"N {N}", {"N": N}) for N in lengths],
            RATE,
            {"full": {"causal": False}, "causal": {"causal": True}},
            groups=[
                Series(OURS, "each head its own keys", {"heads_kv": own}),
                Series(OURS, label, {"heads_kv": shared}, shade=1),
            ],
            upright=True,
            texts=False,
        ),
        sentences={
            "cells": words(
                "ragged.cells",
                cells="; ".join(
                    f"{change(1 - x)} at N {N}{', causal' if causal else ''}"
                    for (causal, N), x in lost.items()
                ),
            ),
            "shared": words("ragged.shared", kept=between(kept)),
        },
    )


def error(results):
    result = results[0]
    rows = result.rows

    def beside_ours(r, name):
        return only(rows, implementation=name, dtype=r["dtype"], D=r["D"], N=r["N"])

    cells = [(r, beside_ours(r, EAGER)) for r in pick(rows, implementation=OURS)]
    against = {
        dtype: between(
            [r["largest"] / eager["largest"] for r, eager in cells if r["dtype"] == dtype]
        )
        for dtype in values(rows, "dtype")
    }
    eager = words("error.eager", against="; ".join(f"{x} ({d})" for d, x in against.items()))
    fused = [
        r["largest"] / beside_ours(r, OURS)["largest"]
        for r in rows
        if r["implementation"] not in (OURS, EAGER, "torch:math")
    ]
    if fused:
        eager += " " + words("error.fused", beside=between(fused))
    return Figure(
        finding=words(
            "error",
            closer=sum(r["mean"] <= other["mean"] for r, other in cells),
            cells=len(cells),
        ),
        caption=words(
            "error.caption",
            where="Two heads."
            if result.place == "gpu"
            else "Recorded in the interpreter, where bfloat16 is computed in float32.",
        ),
        table=columns(
            rows,
            {
                "implementation": lambda r: named(r["implementation"]),
                "dtype": "dtype",
                "D": "D",
                "N": "N",
                "largest": field("largest", unit=units.difference),
                "mean": field("mean", unit=units.difference),
            },
        ),
        plot=charts.errors(results),
        sentences={"eager": eager},
    )


def host_time(results):
    host = shared_figures.host(results, [OURS, SDPA])
    one = results[0].rows[0]
    return Figure(
        finding=words("host_time", ours=host.ours, times=host.times),
        caption=words("host_time.caption", heads=one["heads"], N=one["N"]),
        table=host.table,
        plot=host.plot,
        sentences={"kept": words("host_time.kept", kept=host.kept, asked=host.asked)},
    )


def memory(results):
    rows = results[0].rows
    peak = field("peak_bytes", "allocated at the peak", units.size)
    at = {(r["implementation"], r["N"]): r for r in pick(rows)}
    ours = {N: at[OURS, N] for N in values(rows, "N")}
    near, far = ours[min(ours)], ours[max(ours)]
    extra = max(r["peak_bytes"] - r["result_bytes"] for r in ours.values())
    both = max(N for N in ours if (EAGER, N) in at)
    eager = at[EAGER, both]
    return Figure(
        finding=words(
            "memory",
            N=far["N"],
            peak=peak.text(far),
            extra="nothing else" if extra <= 0 else size(extra),
        ),
        caption=words("memory.caption", heads=far["heads"], D=far["D"]),
        table=beside(
            rows,
            ["N"],
            {"this kernel": OURS, "eager PyTorch": EAGER},
            peak,
            more=lambda at: {"the result, bytes": at[OURS]["result_bytes"]},
        ),
        plot=charts.lines(results, [OURS, EAGER], "N", peak),
        sentences={
            "linear": words(
                "memory.linear",
                longer=far["N"] // near["N"],
                more=count(far["peak_bytes"] / near["peak_bytes"]),
                eager=peak.text(eager),
                both=both,
                times=count(eager["peak_bytes"] / ours[both]["peak_bytes"]),
                N=far["N"],
                matrix=size(far["N"] ** 2 * far["heads"] * 2),
            ),
        },
    )


def scene(results):
    rows = results[0].rows
    masked = {
        name: [r["masked"] for r in rows if r["example"] == name and "masked" in r]
        for name in values(rows, "example")
    }
    full, causal = masked["every key"], masked["causal"]
    last = only([r for r in rows if "result" in r], example="causal")
    skipped = -(-last["keys"] // last["tile"]) - len(causal)
    first = next(r for r in rows if "scores" in r)
    return Figure(
        finding=words(
            "scene",
            full=len(full),
            masked=sum(full),
            need="needs" if sum(full) == 1 else "need",
            causal=len(causal),
            causal_masked=sum(causal),
            skipped={0: "none is", 1: "one more is"}.get(skipped, f"{skipped} more are"),
        ),
        caption=words("scene.caption"),
        **drawn_scene("flash_attention", rows, "tiles", "shared memory", words("scene.about")),
        sentences={
            "masked": words(
                "scene.masked",
                full=_keys_of(rows, "every key", masked=False),
                tail=_keys_of(rows, "every key", masked=True),
                visible=_keys_of(rows, "causal", masked=False),
                cut=_keys_of(rows, "causal", masked=True),
                skipped="never loaded" if skipped else "not there",
            ),
            "base": words("scene.base", m=decimals(first["m"][0]), l=decimals(first["l"][0])),
        },
    )


def _keys_of(rows, example, masked):
    """The keys of the tiles with a mask, or of those without: "0 to 11", "12 and 13"."""
    chosen = [r["start"] for r in rows if r["example"] == example and r.get("masked") is masked]
    last = only([r for r in rows if "result" in r], example=example)
    first, end = min(chosen), min(max(chosen) + last["tile"], last["keys"])
    return f"{first} {'and' if end - first == 2 else 'to'} {end - 1}"
