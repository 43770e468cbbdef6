"""The figures of the vectorized_attention page: each draws the result of the same name."""

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import ORDER, named
from snippets._lab.draw.rows import (
    TIME,
    Quantity,
    ceiling,
    compiled,
    field,
    gpus,
    gpus_then_compiled,
    only,
    pick,
    values,
)
from snippets._lab.draw.tables import case
from snippets._lab.draw.units import flops, ratio, seconds, thousands, time
from snippets._lab.results.store import DataError

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
PAGE = "docs/posts/vectorized_attention.md"


def broadcasting(rows):
    expressions = dict(zip(("sums", "addresses"), values(rows, "expression"), strict=False))
    sums, addresses = (pick(rows, expression=expressions[e])[0] for e in ("sums", "addresses"))
    return Figure(
        finding=f"Two aranges of 4 add up to a tile that ends at {sums['largest']}; row times 4 "
        f"plus column ends at {addresses['largest']}.",
        numbers={"sums": sums["largest"]},
        pieces={
            name: "\n".join(
                ["```text", e, "", *(r["line"] for r in pick(rows, expression=e)), "```"]
            )
            for name, e in expressions.items()
        },
    )


def forward(results, rows):
    widths, lengths = values(rows, "D"), values(rows, "N")
    compared = Comparison(rows, OURS, [BASIC, SDPA], by=("N", "D"))
    basic, sdpa = (compared[name] for name in compared.others)
    best, worst = compared.case(256, 64), compared.case(512, 256)
    last = compared.case(2048, 256)
    wins, loses = compared.case(1024, 64), compared.case(2048, 64)
    missing = {(r["N"], r["D"]): r["error"] for r in rows if r.get("error")}

    def told(name, at):
        return time(compared.ms(name, at))

    def grows(N, more):
        return ratio(compared.ms(OURS, (more, 64)) / compared.ms(OURS, (N, 64)))

    def faster(N, D):
        return ratio(basic[N, D])

    def slower(N, D):
        return ratio(1 / basic[N, D])

    return Figure(
        finding=f"One load for all keys is {faster(*best)} faster than one key at a time at N "
        f"256, D 64, and {slower(*worst)} slower at N 512, D 256.",
        caption="One head, float32, time of one call, both axes logarithmic: down is faster. "
        "Medians; L2 flushed before every call; all take turns. Shaded: compiling was stopped "
        "after 20 s, so there is no time.",
        plot=charts.lines(
            results,
            [Series(name, label) for name, label in LABELS.items()],
            views=[_with_band(D, [N for N, d in missing if d == D], lengths) for D in widths],
        ),
        numbers={
            "ours": told(OURS, best),
            "basic": told(BASIC, best),
            "faster": faster(*best),
            "cases": len(basic),
            "edge": slower(*worst),
            "wins": faster(*wins),
            "first_grows": grows(256, 512),
            "cliff_grows": grows(512, 1024),
            "loses": slower(*loses),
            "least": ratio(1 / min(sdpa.values())),
            "most": ratio(max(sdpa.values())),
            "claim_least": ratio(basic[worst]),
            "claim_inside": sum(3 <= gain <= 5 for gain in basic.values()),
            "worst_blocks": told(BLOCKS, worst),
            "worst_ours": told(OURS, worst),
            "last_blocks": told(BLOCKS, last),
            "last_sdpa": told(SDPA, last),
        },
        claims={
            "title of vectorized_attention/forward: at N 256, D 64": basic.best == best,
            "title of vectorized_attention/forward: at N 512, D 256": basic.worst == worst,
            f"{PAGE}: Some larger tiles don't compile within 20 s": bool(missing),
            f"{PAGE}: The big load loses from 2048 keys on with 64 columns, from 512 with 128, "
            "from 256 with 256": all(
                (gain < 0.98) == (first <= N) and (gain > 1.02) == (first > N)
                for D, first in ((64, 2048), (128, 512), (256, 256))
                for N, gain in ((N, gain) for (N, d), gain in basic.items() if d == D)
            ),
            f"{PAGE}: slower (N 1024, D 128)": min(sdpa, key=sdpa.get) == compared.case(1024, 128),
            f"{PAGE}: Every size compiles": last in compared.rows[BLOCKS],
        },
    )


def _with_band(D, stopped, lengths):
    """The panel of one D; what did not compile in time is shaded."""
    step = (lengths[-1] / lengths[-2]) ** 0.5  # half of the way from one length to the next
    bands = [(min(stopped) / step, lengths[-1] * step, OURS)] if stopped else []
    return View(f"D {D}", {"D": D}, bands=bands)


def traffic(rows):
    names = (BASIC, OURS, BLOCKS)
    before, one, blocks = (only(rows, case="one program", implementation=i) for i in names)
    head = only(rows, case="whole head", implementation=OURS)
    # What the recorder counted at other lengths follows from N and D, so 256 keys do too.
    for row in rows:
        programs, name, counted = row["programs"], row["implementation"], row["bytes_loaded"]
        if name != BLOCKS and (row["loads"], counted) != (
            programs * _loads(name, row["N"]),
            programs * _bytes_loaded(row["N"], row["D"]),
        ):
            raise DataError(f"{name}, N {row['N']}: its loads don't follow from N and D")
    N, D = 256, one["D"]
    loads = {name: _loads(name, N) for name in (BASIC, OURS)}
    # Instructions of a warp: a row takes one; of a tile, four numbers of each thread of four warps.
    wide = 1 + 2 * N * D // (4 * 4 * THREADS)
    return Figure(
        finding=f"A program's loads fall from {thousands(before['loads'])} to {one['loads']}; its "
        f"bytes stay at {thousands(one['bytes_loaded'])}.",
        numbers={
            "loads": loads[OURS],
            "before": loads[BASIC],
            "fewer": ratio(loads[BASIC] / loads[OURS]),
            "instructions": ratio(loads[BASIC] / wide),
            "bytes": thousands(_bytes_loaded(N, D)),
            "times": head["key_elements"] // (head["N"] * head["D"]),
        },
        claims={
            f"{PAGE}: The bytes don't change": before["bytes_loaded"]
            == one["bytes_loaded"]
            == blocks["bytes_loaded"],
        },
    )


def _loads(implementation, N):
    """`tl.load`s of one program: its query, and each key and value or all of them."""
    return 3 if implementation == OURS else 2 * N + 1


def _bytes_loaded(N, D):
    """Bytes that one program asks for in float32."""
    return 4 * D * (2 * N + 1)


def latency(results):
    result, rows = results[0], results[0].rows
    labels = {
        BASIC: "one key at a time",
        SAME_ROW: "the same, one row again and again",
        CHAIN: "as many loads, each waits for the last",
        OURS: "all keys in one load",
    }
    looks = {SAME_ROW: BASIC, CHAIN: "context"}
    short, N, long = values(rows, "N")[0], 256, values(rows, "N")[-1]  # 256: no tile spills
    D = rows[0]["D"]

    def ms(implementation, M, keys):
        return TIME(only(rows, implementation=implementation, M=M, N=keys))

    def each(implementation, loops):
        """Time of an iteration; the difference of two lengths leaves out what a launch costs."""
        more = ms(implementation, 1, long) - ms(implementation, 1, short)
        return more / (loops * (long - short))

    step = each(CHAIN, 2)
    one = ms(BASIC, 1, N)
    return Figure(
        finding=f"One program takes {time(one)} for {N} keys one at a time and "
        f"{time(ms(OURS, 1, N))} with all of them in one load.",
        caption=f"One query and {N} keys of {D} columns in float32, so one program on the whole "
        "GPU; L2 flushed, so that every row comes from memory. The second bar is the same "
        "machine code, given tensors whose rows are all one row of memory. The third is a chain: "
        "each load returns the address of the next row, and nothing is computed.",
        plot=charts.bars(
            results,
            [Series(name, label, like=looks.get(name, name)) for name, label in labels.items()],
            views=[View("", {"M": 1, "N": N})],
        ),
        numbers={
            "step": time(step),
            "one": time(one),
            "waits": time(ms(CHAIN, 1, N)),
            "cached": time(ms(SAME_ROW, 1, N)),
            "peak": flops(ceiling(result, "fma_float32")),
        },
        claims={
            f"{PAGE}: A good part of each iteration is not the wait for memory": ms(SAME_ROW, 1, N)
            > 0.4 * one,
        },
    )


def registers(results):
    shown = gpus_then_compiled(results)
    rows = shown[0].rows
    good = pick(rows)
    first, most = _first_spill(rows), max(good, key=lambda r: r["stack_bytes"])
    whole = max((r for r in good if not r["stack_bytes"]), key=_for_each_thread)
    quickest, slowest = (f(good, key=lambda r: r["compile_seconds"]) for f in (min, max))
    few = min((r for r in good if r["stack_bytes"]), key=lambda r: r["registers"])
    elsewhere = {_for_each_thread(_first_spill(r.rows)) for r in compiled(results)}
    return Figure(
        finding=f"The tile fills the registers: {_tile(whole)} fits in {whole['registers']} per "
        f"thread; {_tile(first)} spills, and {_tile(most)} keeps {thousands(most['stack_bytes'])} "
        "bytes per thread in memory.",
        caption="The compiler's own account, float32, over elements of the tile of keys divided by "
        "the program's 128 threads. A thread may have at most 255 registers; the stack is where "
        "spilled values live.",
        plot=charts.lines(
            gpus(results) or shown[:1],
            [
                Series(OURS, f"D {D}", {"D": D}, shade=i, symbol=symbol)
                for i, (D, symbol) in enumerate(zip(values(rows, "D"), ORDER, strict=False))
            ],
            Quantity("elements of K per thread", _for_each_thread, units.whole),
            views=[
                View("registers per thread", y=field("registers", unit=units.whole)),
                View("stack per thread", y=field("stack_bytes", "bytes", units.whole)),
            ],
            log="x",
        ),
        numbers={
            "whole": whole["registers"],
            "few": few["registers"],
            "few_bytes": thousands(few["stack_bytes"]),
            "first_bytes": first["stack_bytes"],
            "least": seconds(quickest["compile_seconds"]),
            "most": seconds(slowest["compile_seconds"]),
        },
        claims={
            f"{PAGE}: N 256, D 64 still fits": _tile(whole) == "N 256, D 64",
            f"{PAGE}: N 512, D 64 is the first to spill": _tile(first) == "N 512, D 64",
            f"{PAGE}: The cliff comes at N 1024, D 64": _tile(few) == "N 1024, D 64",
            f"{PAGE}: tiles of 128 elements per thread always fit and tiles of 256 never do": all(
                bool(r["stack_bytes"]) == (_for_each_thread(r) > 128) for r in good
            ),
            f"{PAGE}: (N 32 to N 2048, D 64)": (_tile(quickest), _tile(slowest))
            == ("N 32, D 64", "N 2048, D 64"),
            f"{PAGE}: the kernel spills at the same tile": elsewhere == {_for_each_thread(first)},
        },
    )


def _for_each_thread(row):
    """Elements of the tile of keys that one thread has to hold."""
    return row["N"] * row["D"] // (THREADS * row["num_warps"])


def _first_spill(rows):
    """The row with the smallest tile that spills; None if none does."""
    spilled = [r for r in pick(rows) if r["stack_bytes"]]
    return min(spilled, key=lambda r: (_for_each_thread(r), r["D"])) if spilled else None


def _tile(row):
    return case(row, "N", "D")


def remedies(results, rows):
    ours = [r for r in rows if "num_warps" in r]
    usual, *more = values(ours, "num_warps")
    by_warps = Comparison(ours, usual, more, by=("N", "D"), name="num_warps")
    tile, last = by_warps.case(512, 128), by_warps.case(2048, 128)
    sdpa = {(r["N"], r["D"]): r for r in pick(rows, implementation=SDPA)}
    stacks = {
        w: {(N * D, D): r["stack_bytes"] for (N, D), r in by_warps.rows[w].items()}
        for w in (usual, *more)
    }
    held = [{tile for tile, stack in stacks[w].items() if not stack} for w in stacks]
    small, large = 512 * 64, 512 * 128  # elements

    def fastest(at):
        return min(by_warps.ms(w, at) or INFINITE for w in (usual, *more))

    return Figure(
        finding=f"N 512, D 128 takes {time(by_warps.ms(4, tile))} on 4 warps and "
        f"{time(by_warps.ms(32, tile))} on 32: a factor of "
        f"{ratio(by_warps.ms(4, tile) / by_warps.ms(32, tile))}, from nothing but the number of "
        "threads that share a tile.",
        caption="The page's kernel with `num_warps` set; one head, float32. A missing point did "
        "not compile in time. Medians; L2 flushed before every call; all take turns.",
        plot=charts.lines(
            results,
            [
                *(
                    Series(OURS if i else "context", f"{w} warps", {"num_warps": w}, shade=i)
                    for i, w in enumerate((usual, *more))
                ),
                SDPA,
            ],
            views=charts.views("D {}", "D", values(rows, "D")),
        ),
        numbers={
            "eight": thousands(small),
            "sixteen": thousands(large),
            "stack": stacks[16][large, 128],
            "ours": time(by_warps.ms(32, last)),
            "sdpa": TIME.text(sdpa[last]),
        },
        claims={
            f"{PAGE}: with 64 columns it fits, with 128 it spills": held
            == [
                set(),
                {(small, 64)},
                {(small, 64), (large, 64)},
                {(small, 64), (large, 64), (large, 128)},
            ],
            f"{PAGE}: At N 2048, D 128 the best choice takes": all(
                by_warps.ms(32, at) == fastest(at) for at in (tile, last)
            ),
        },
    )
