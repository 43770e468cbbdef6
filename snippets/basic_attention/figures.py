"""The figures of the basic_attention page: each draws the result of the same name."""

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import named
from snippets._lab.draw.rows import TIME, ceiling, derived, field, moved, only, pick, target, values
from snippets._lab.draw.scene import scene as drawn_scene
from snippets._lab.draw.units import between, count, many, percent, ratio, size, thousands, time

OURS, PAIRS, SDPA = "basic_attention", "basic_attention:exercise", "torch:sdpa"
SYMBOLS = ("circle", "square", "diamond")
PAGE = "docs/posts/basic_attention.md"


def scene(rows):
    *keys, whole = rows
    loaded = sum(r["bytes"]["k"] + r["bytes"]["v"] for r in keys) + whole["bytes"]["q"]
    return Figure(
        finding=f"One program loads its query and {len(keys)} keys and values, {count(loaded)} "
        f"bytes; {whole['all_queries']} programs load {count(whole['all_queries'] * loaded)}.",
        caption=f"The steps of the program of query {whole['query']} among 8, with {len(keys)} "
        "keys and four columns, float32: `kernel.py` as it is, recorded in the interpreter. The "
        "bytes are those of its loads and stores.",
        **drawn_scene(
            "basic_attention",
            rows,
            "keys",
            "registers",
            "The kernel at work: one query, its row of weights, and the key that it is at.",
        ),
    )


def forward(results, rows):
    widths, dtypes = values(rows, "D"), values(rows, "dtype")
    compared = Comparison(rows, OURS, [SDPA], by=("dtype", "N", "D"))
    slower = {c: 1 / x for c, x in compared[SDPA].items()}
    least, most = min(slower, key=slower.get), max(slower, key=slower.get)

    def ms(N, D=64, dtype="float32"):
        return compared.ms(OURS, compared.case(dtype, N, D))

    def behind(N, dtype):
        return ratio(slower[compared.case(dtype, N, 64)])

    single, half = behind(1024, "float32"), behind(1024, "float16")
    return Figure(
        finding=f"At 1024 queries of 64 columns PyTorch is {single} faster in float32 and {half} "
        "faster in float16.",
        caption="One head, time of one call, both axes logarithmic: down is faster. Medians; L2 "
        "flushed before every call; both take turns.",
        plot=charts.lines(
            results,
            [
                Series(name, f"{named(name)}, D {D}", _of(name, D), like=name, symbol=symbol)
                for name in (OURS, SDPA)
                for D, symbol in zip(widths, SYMBOLS, strict=True)
            ],
            views=charts.views("{}", "dtype", dtypes),
        ),
        numbers={
            "time": time(ms(1024)),
            "sdpa": time(compared.ms(SDPA, compared.case("float32", 1024, 64))),
            "step": time(ms(1024) / (2 * 1024)),
            "behind_single": single,
            "behind_half": half,
            "wide": time(ms(1024, 256)),
            "half": time(ms(1024, dtype="float16")),
            "growth": ratio(ms(4096) / ms(2048)),
            "small_single": behind(16, "float32"),
            "small_half": behind(16, "float16"),
            "multiprocessors": results[0].device["multiprocessors"],
            "least": ratio(slower[least]),
            "most": ratio(slower[most]),
            "most_single": ratio(max(x for c, x in slower.items() if c.dtype == "float32")),
        },
        claims={
            f"{PAGE}: (float32, N 16, D 256)": least == ("float32", 16, 256),
            f"{PAGE}: (float16, N 4096, D 64)": most == ("float16", 4096, 64),
            f"{PAGE}: Far more": slower[compared.case("float32", 1024, 64)]
            <= 10
            < slower[compared.case("float16", 1024, 64)] / 4,
            f"{PAGE}: The time grows faster than the work": ms(4096) > 6 * ms(2048),
            f"{PAGE}: the clock would follow the bytes. It doesn't.": ms(1024, 256) < 2 * ms(1024)
            and ms(1024, dtype="float16") > 0.75 * ms(1024),
        },
    )


def _of(implementation, D):
    return {"implementation": implementation, "D": D}


def traffic(rows):
    one = only(rows, case="one program")
    elements = thousands(one["elements"])
    return Figure(
        finding=f"For one row of output a program loads {elements} elements.",
        numbers={"loads": thousands(one["loads"])},
    )


def reuse(results):
    result, rows = results[0], results[0].rows
    one, two = (only(rows, implementation=name, N=1024) for name in (OURS, PAIRS))
    rate, feed = moved(one, "bytes_loaded"), ceiling(result, "read")
    tensor = one["bytes_compulsory"] / 4  # q, k, v and the result are alike
    return Figure(
        finding=f"The kernel loads {ratio(one['bytes_loaded'] / (3 * tensor))} the bytes of q, k "
        f"and v, at {percent(rate / feed)} of the rate that memory alone could feed.",
        numbers={
            "loaded": size(one["bytes_loaded"]),
            "loaded_by_pairs": size(two["bytes_loaded"]),
            "time": TIME.text(one),
            "time_of_pairs": TIME.text(two),
            "ceiling": units.bandwidth(feed),
            "rate": units.bandwidth(rate),
            "shared": size(2 * tensor),
            "cache": size(result.device["l2_bytes"]),
        },
        claims={f"{PAGE}: Bandwidth was never the limit": rate < feed / 2},
    )


def left(results):
    (result,) = results
    rows = pick(result.rows, heads=1, N=1024)
    return Figure(
        finding="Each of the 4 variants lacks the part that was removed, and nothing else: "
        f"instructions of one iteration in the machine code for {target(result)}, 1024 keys, one "
        "head, D 64, float32, four warps.",
        numbers={
            f"{loop}_{name}": only(rows, without="nothing", loop=loop)[name]
            for loop in ("keys", "values")
            for name in ("shuffles", "barriers")
        },
    )


PARTS = {
    "loads": "without loads",
    "dot": "without the sum of a dot product",
    "writing": "without writing slots",
    "reading": "without reading slots",
}


LOADS, READING = PARTS["loads"], PARTS["reading"]


def ablation(results, rows):
    names = {n: "the whole kernel" if n == OURS else n for n in values(rows, "implementation")}
    whole, *less = names
    compared = Comparison(rows, whole, less, by=("heads", "N"))

    def share(part, N, heads=1):
        """The time that is left without a part, of the whole kernel's."""
        return compared[part][compared.case(heads, N)]

    def saved(part, N, heads=1):
        return percent(1 - share(part, N, heads))

    def shares(result):
        wholes = {(r["heads"], r["N"]): TIME(r) for r in pick(result.rows, implementation=OURS)}
        return ({**r, "share": TIME(r) / wholes[r["heads"], r["N"]]} for r in result.rows)

    lengths = values(rows, "N")
    most = {h: min(less, key=lambda part, h=h: share(part, 1024, h)) for h in (1, 16)}
    return Figure(
        finding=f"At 1024 keys a single head spends most on its loads ({saved(LOADS, 1024)}); 16 "
        f"heads spend most on reading slots ({saved(READING, 1024, 16)}).",
        caption="D 64, float32. Each bar is the time that is left with one part taken out; the "
        "result is then wrong. Parts overlap in time, so their savings need not add up to the "
        "whole.",
        plot=charts.bars(
            derived(results, shares),
            [Series(name, name, like=OURS) for name in less],
            field("share", "time that is left", percent),
            [
                View(f"{many(h, 'head')}, N {N}", {"N": N, "heads": h})
                for h in values(rows, "heads")
                for N in lengths
            ],
            columns=len(lengths),
        ),
        numbers={
            **{f"{name}_costs": saved(part, 1024, 16) for name, part in PARTS.items()},
            "loads_alone": saved(LOADS, 1024),
            "reading_alone": saved(READING, 1024),
            "loads_long": percent(share(LOADS, 2048)),
        },
        claims={
            "title of basic_attention/ablation: a single head spends most on its loads": most[1]
            == LOADS,
            "title of basic_attention/ablation: heads spend most on reading slots": most[16]
            == READING,
            f"{PAGE}: a single head waits for its loads; many heads wait for sums": most
            == {1: LOADS, 16: READING},
            f"{PAGE}: At 2048 keys no part stands out": min(share(x, 2048) for x in less) > 0.8,
            f"{PAGE}: other programs probably fill that wait, and reading slots costs the most": (
                most[16] == READING
            ),
        },
    )


def warps(results, rows):
    lengths, heads = values(rows, "N"), values(rows, "heads")

    def ms(number, N, heads):
        return TIME(only(rows, num_warps=number, N=N, heads=heads))

    def gain(N, heads):
        return ratio(ms(4, N, heads) / ms(1, N, heads))

    best = {min((1, 2, 4, 8), key=lambda n: ms(n, N, h)) for N in lengths for h in heads}
    return Figure(
        finding="With one warp per program instead of four, 16 heads of 1024 keys take "
        f"{time(ms(1, 1024, 16))} instead of {time(ms(4, 1024, 16))}.",
        caption="D 64, float32, the same kernel with `num_warps` of 1, 2, 4 and 8; both axes "
        "logarithmic. Medians; L2 flushed before every call; the four take turns.",
        plot=charts.lines(
            results,
            [
                Series(OURS, f"N {thousands(N)}", {"N": N}, shade=i, symbol=symbol)
                for i, (N, symbol) in enumerate(zip(lengths, SYMBOLS, strict=True))
            ],
            field("num_warps", "warps per program", units.whole),
            views=[View(many(h, "head"), {"heads": h}) for h in heads],
            columns=2,
        ),
        numbers={
            **{f"gain_{N}": gain(N, 16) for N in (256, 2048)},
            "many_by_one": time(ms(1, 256, 16)),
            "single_by_one": time(ms(1, 256, 1)),
            "many_by_four": time(ms(4, 256, 16)),
            "single_by_four": time(ms(4, 256, 1)),
            "gain_alone": between([ms(4, N, 1) / ms(1, N, 1) for N in lengths], ratio),
        },
        claims={
            f"{PAGE}: One warp is the fastest in every case": best == {1},
            f"{PAGE}: At 256 keys it shows": ms(1, 256, 16) < 1.1 * ms(1, 256, 1)
            and ms(4, 256, 16) > 2 * ms(4, 256, 1),
        },
    )


def registers(results):
    rows = pick(results[0].rows, D=64)
    together = -(-1024 // results[0].device["multiprocessors"])  # programs on a multiprocessor
    used = 128 * only(rows, N=1024)["registers"]  # registers of a program of four warps
    allowed = [r["N"] for r in rows if not r["launcher_refuses"]]
    spilled = [r["N"] for r in rows if r["spill_store_bytes"]]
    return Figure(
        finding=f"A row of scores fills the registers: past {thousands(max(allowed))} keys of 64 "
        "columns they spill.",
        claims={
            f"{PAGE}: so it stops at 16,384 keys": max(allowed) == 16_384 and spilled == [32_768],
            f"{PAGE}: programs run at the same time, about eight on each multiprocessor": together
            == 8
            and together * used <= 65_536
            and 4 * together <= 64,  # warps
        },
    )


def heads(rows):
    ours = {r["heads"]: TIME(r) for r in pick(rows, implementation=OURS)}
    return Figure(
        finding=f"Two heads take {ratio(ours[2] / ours[1])} the time of one: N 1024, D 64, "
        "float32.",
        claims={  # twice the heads take twice the time
            f"{PAGE}: With many heads it is full": min(ours[32] / ours[16], ours[64] / ours[32])
            > 1.9
        },
    )


def error(rows):
    closer = [r for r in rows if r["error_largest"] <= r["pytorch_error_largest"]]
    one = only(rows, dtype="float32", D=64, N=1024)
    return Figure(
        finding=f"The kernel is as close to float64 as eager PyTorch or closer in {len(closer)} "
        f"of {len(rows)} cases.",
        numbers={"largest": units.error(one["error_largest"])},
    )
