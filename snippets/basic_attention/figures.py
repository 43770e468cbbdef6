"""The figures of the basic_attention page: each draws the result of the same name."""

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
    moved,
    only,
    over,
    pick,
    target,
    values,
)
from snippets._lab.draw.scene import scene as drawn_scene
from snippets._lab.draw.tables import beside, columns
from snippets._lab.draw.units import (
    bandwidth,
    count,
    decimals,
    percent,
    ratio,
    size,
    thousands,
    time,
)
from snippets._lab.draw.words import Words, case, listed, many, yes

OURS, PAIRS = "basic_attention", "basic_attention:exercise"
SDPA, EAGER = "torch:sdpa", "torch:eager"
SYMBOLS = ("circle", "square", "diamond")
words = Words(__file__)


def forward(results):
    rows = results[0].rows
    widths, dtypes = values(rows, "D"), values(rows, "dtype")
    compared = Comparison(rows, OURS, [SDPA], by=("dtype", "N", "D"))
    slower = {c: 1 / x for c, x in compared[SDPA].items()}
    best, worst = min(slower, key=slower.get), max(slower, key=slower.get)
    narrow, wide = widths[0], widths[-1]
    middle = compared.row(OURS, compared.case("float32", 1024, narrow))

    def ms(N, D=narrow, dtype="float32"):
        return compared.ms(OURS, compared.case(dtype, N, D))

    def behind(N, dtype):
        return ratio(slower[compared.case(dtype, N, narrow)])

    return Figure(
        finding=words(
            "forward",
            N=1024,
            D=narrow,
            single=behind(1024, "float32"),
            half=behind(1024, "float16"),
        ),
        caption=words("forward.caption"),
        table=beside(
            rows,
            ["dtype", "N", "D"],
            {named(OURS): OURS, named(SDPA): SDPA},
            more=lambda c: {"PyTorch faster by": ratio(TIME(c[OURS]) / TIME(c[SDPA]))},
        ),
        plot=charts.lines(
            results,
            [
                Series(name, f"{named(name)}, D {D}", _of(name, D), like=name, symbol=symbol)
                for name in (OURS, SDPA)
                for D, symbol in zip(widths, SYMBOLS, strict=True)
            ],
            "N",
            TIME,
            charts.views("{}", "dtype", dtypes),
        ),
        sentences={
            "claim_small": words(
                "forward.claim_small",
                single=behind(16, "float32"),
                half=behind(16, "float16"),
                programs=16,
                multiprocessors=results[0].device["multiprocessors"],
            ),
            "claim_forty": words(
                "forward.claim_forty",
                least=ratio(slower[best]),
                best=case(best),
                most=ratio(slower[worst]),
                worst=case(worst),
                single=ratio(max(x for c, x in slower.items() if c.dtype == "float32")),
            ),
            "growth": words(
                "forward.growth",
                first=1024,
                second=2048,
                once=decimals(ms(2048) / ms(1024), 1),
                twice=decimals(ms(4096) / ms(2048), 1),
            ),
            "insensitive": words(
                "forward.insensitive",
                narrow=narrow,
                wide=wide,
                time=time(ms(1024)),
                wide_time=time(ms(1024, wide)),
                half_time=time(ms(1024, dtype="float16")),
            ),
            "step": words(
                "forward.step",
                N=middle["N"],
                time=TIME.text(middle),
                step=time(TIME(middle) / (2 * middle["N"])),
            ),
        },
    )


def _of(implementation, D):
    return {"implementation": implementation, "D": D}


def heads(results):
    rows = results[0].rows
    ours, sdpa = (
        {r["heads"]: TIME(r) for r in pick(rows, implementation=name)} for name in (OURS, SDPA)
    )
    N = rows[0]["N"]
    two = ratio(ours[2] / ours[1])
    return Figure(
        finding=words("heads", two=two, eight=ratio(sdpa[8] / sdpa[1])),
        caption=words("heads.caption", N=N, D=rows[0]["D"], dtype=rows[0]["dtype"]),
        table=beside(
            [{**r, "programs": r["heads"] * r["N"]} for r in rows],
            ["heads", "programs"],
            {named(OURS): OURS, named(SDPA): SDPA},
        ),
        plot=charts.lines(results, [OURS, SDPA], "heads", TIME),
        sentences={
            "claim_parallel": words(
                "heads.claim_parallel",
                programs=N,
                multiprocessors=results[0].device["multiprocessors"],
                two=two,
            ),
        },
    )


def reuse(results):
    result, rows = results[0], results[0].rows
    one, two = (only(rows, implementation=name, N=1024) for name in (OURS, PAIRS))
    rate, feed = moved(one, "bytes_loaded"), ceiling(result, "read")
    tensor = one["bytes_compulsory"] / 4  # q, k, v and the result are alike
    beside_one = {r["N"]: r for r in pick(rows, implementation=PAIRS)}
    return Figure(
        finding=words(
            "reuse",
            again=ratio(one["bytes_loaded"] / (3 * tensor)),
            share=percent(rate / feed),
        ),
        caption=words(
            "reuse.caption", heads=one["heads"], D=one["D"], dtype=one["dtype"], N=one["N"]
        ),
        table=columns(
            [
                {
                    **r,
                    "loaded_by_pairs": beside_one[r["N"]]["bytes_loaded"],
                    "ms_of_pairs": TIME(beside_one[r["N"]]),
                }
                for r in pick(rows, implementation=OURS)
            ],
            {
                "N": "N",
                "loaded": field("bytes_loaded", unit=size),
                "compulsory": field("bytes_compulsory", unit=size),
                "smaller than L2": "fits_l2",
                "time": TIME,
                "loaded by pairs": field("loaded_by_pairs", unit=size),
                "time of pairs": field("ms_of_pairs", unit=time),
            },
        ),
        plot=charts.lines(
            results,
            [OURS, PAIRS],
            "N",
            over("bytes_loaded", "bytes loaded over time"),
            references=[charts.at_ceiling("read", "read bandwidth of memory")],
        ),
        sentences={
            "pairs": words(
                "reuse.pairs",
                N=one["N"],
                heads=one["heads"],
                loaded=size(one["bytes_loaded"]),
                loaded_by_pairs=size(two["bytes_loaded"]),
                time=TIME.text(one),
                time_of_pairs=TIME.text(two),
            ),
            "claim_cache": words(
                "reuse.claim_cache",
                ceiling=bandwidth(feed),
                rate=bandwidth(rate),
                shared=size(2 * tensor),
                cache=size(result.device["l2_bytes"]),
            ),
        },
    )


def ablation(results):
    rows = results[0].rows
    names = {n: "the whole kernel" if n == OURS else n for n in values(rows, "implementation")}
    whole, *less = names
    compared = Comparison(rows, whole, less, by=("heads", "N"))

    def share(part, N, heads=1):
        """The time that is left without a part, of the whole kernel's."""
        return compared[part][compared.case(heads, N)]

    def left_of(N, heads=1):
        return listed(f"{part} {percent(share(part, N, heads))}" for part in less)

    def costs_most(N):
        part = min(less, key=lambda part: share(part, N))
        return f"{part.removeprefix('without ')} ({percent(1 - share(part, N))} at N {N})"

    def shares(result):
        wholes = {(r["heads"], r["N"]): TIME(r) for r in pick(result.rows, implementation=OURS)}
        return ({**r, "share": TIME(r) / wholes[r["heads"], r["N"]]} for r in result.rows)

    lengths = values(rows, "N")
    return Figure(
        finding=words("ablation", parts=listed(map(costs_most, lengths))),
        caption=words("ablation.caption", D=rows[0]["D"], dtype=rows[0]["dtype"]),
        table=beside(rows, ["heads", "N"], {label: name for name, label in names.items()}),
        plot=charts.bars(
            derived(results, shares),
            [Series(name, name, like=OURS) for name in less],
            Quantity("time that is left", "share", percent),
            [
                View(f"{many(h, 'head')}, N {N}", {"N": N, "heads": h})
                for h in values(rows, "heads")
                for N in lengths
            ],
            columns=len(lengths),
        ),
        sentences={
            "one_head": words("ablation.one_head", N=1024, shares=left_of(1024)),
            "many_heads": words("ablation.many_heads", N=1024, heads=16, shares=left_of(1024, 16)),
            "slots": words(
                "ablation.slots",
                heads=16,
                N=1024,
                writing=percent(1 - share("without writing slots", 1024, 16)),
                reading=percent(1 - share("without reading slots", 1024, 16)),
            ),
        },
    )


KINDS = ("loads", "shuffles", "barriers", "selects", "shared memory", "arithmetic", "others")


def left(results):
    (result,) = results
    rows = pick(result.rows, heads=1, N=1024)
    whole = {r["loop"]: r for r in pick(rows, without="nothing")}
    return Figure(
        finding=words("left", parts=len(values(rows, "without")) - 1),
        caption=words(
            "left.caption",
            target=target(result),
            triton=result.versions["triton"],
            N=rows[0]["N"],
            D=rows[0]["D"],
            dtype=rows[0]["dtype"],
        ),
        table=columns(
            rows,
            {"without": "without", "loop over": "loop", **{kind: kind for kind in KINDS}},
        ),
        open_table=True,
        sentences={
            "iteration": words(
                "left.iteration",
                shuffles=whole["keys"]["shuffles"],
                barriers=whole["keys"]["barriers"],
                selects=whole["keys"]["selects"],
            ),
        },
    )


def warps(results):
    rows = results[0].rows
    lengths, heads = values(rows, "N"), values(rows, "heads")

    def ms(number, N, heads):
        return TIME(only(rows, num_warps=number, N=N, heads=heads))

    def gain(N, heads):
        return ratio(ms(4, N, heads) / ms(1, N, heads))

    most = max(heads)
    best = {(N, h): min((1, 2, 4, 8), key=lambda n: ms(n, N, h)) for N in lengths for h in heads}
    others = sorted({many(n, "warp") for n in best.values() if n > 1})
    return Figure(
        finding=words(
            "warps",
            heads=most,
            N=1024,
            four=time(ms(4, 1024, most)),
            one=time(ms(1, 1024, most)),
        ),
        caption=words("warps.caption", D=rows[0]["D"], dtype=rows[0]["dtype"]),
        table=beside(
            rows, ["heads", "N"], {many(n, "warp"): n for n in (1, 2, 4, 8)}, name="num_warps"
        ),
        plot=charts.lines(
            results,
            [
                Series(OURS, f"N {thousands(N)}", {"N": N}, shade=i, symbol=symbol)
                for i, (N, symbol) in enumerate(zip(lengths, SYMBOLS, strict=True))
            ],
            field("num_warps", "warps per program", units.whole),
            TIME,
            [View(many(h, "head"), {"heads": h}) for h in heads],
            columns=2,
        ),
        sentences={
            "gains": words(
                "warps.gains",
                gains=listed(f"{gain(N, most)} at N {thousands(N)}" for N in lengths),
                heads=most,
                single=listed(f"{gain(N, 1)} at N {thousands(N)}" for N in lengths),
            ),
            "best": words(
                "warps.best",
                ones=sum(n == 1 for n in best.values()),
                cases=len(best),
                others=listed(others),
            )
            if others
            else words("warps.always", cases=len(best)),
        },
    )


def error(results):
    rows = results[0].rows
    drawn, *others = values(rows, "D")
    largest = field("error_largest", "largest difference from float64", units.difference)
    theirs = field("pytorch_error_largest", unit=units.difference)
    single = [r["error_largest"] for r in pick(rows, dtype="float32")]
    one = only(rows, dtype="float32", D=drawn, N=1024)
    return Figure(
        finding=words(
            "error",
            closer=sum(largest(r) <= theirs(r) for r in rows),
            cases=len(rows),
        ),
        caption=words("error.caption", drawn=drawn, others=listed(others)),
        table=columns(
            rows,
            {
                "dtype": "dtype",
                "N": "N",
                "D": "D",
                "largest": largest,
                "mean": field("error_mean", unit=units.difference),
                f"{named(EAGER)}, largest": theirs,
                "allowed": field("allowed", unit=units.difference),
            },
        ),
        plot=charts.closeness(results, OURS, EAGER, {"D": drawn}),
        sentences={
            "claim_error": words(
                "error.claim_error",
                D=drawn,
                N=one["N"],
                largest=units.error(one["error_largest"]),
                mean=units.error(one["error_mean"]),
                least=units.error(min(single)),
                most=units.error(max(single)),
            ),
        },
    )


def registers(results):
    shown = gpus_then_compiled(results)
    rows = pick(shown[0].rows, D=64)
    allowed = max(r["N"] for r in rows if not r["launcher_refuses"])
    few, many_, beyond = (only(rows, N=N) for N in (1024, allowed, max(values(rows, "N"))))
    return Figure(
        finding=words(
            "registers",
            few=few["registers"],
            few_keys=few["N"],
            many=many_["registers"],
            most_keys=many_["N"],
            spilled=beyond["spill_store_bytes"],
            beyond=beyond["N"],
        ),
        caption=words("registers.caption", D=few["D"], dtype=few["dtype"], most_keys=many_["N"]),
        table=columns(
            [{**x, "device": r.label} for r in shown for x in r.rows],
            {
                "device": "device",
                "keys": "N",
                "D": "D",
                "registers": "registers",
                "spilled, bytes": "spill_store_bytes",
                "stack, bytes": "stack_bytes",
                "shared memory, bytes": "shared_bytes",
                "remark": "error",
            },
        ),
        plot=charts.lines(
            shown,
            [Series(OURS, where={"D": few["D"]})],
            field("N", "keys", units.whole),
            views=[
                View("registers per thread", y=field("registers", unit=units.whole)),
                View(
                    "bytes spilled per thread", y=field("spill_store_bytes", "bytes", units.whole)
                ),
            ],
            log="x",
            by_device=True,
        ),
    )


def traffic(results):
    rows = {r["case"]: r for r in results[0].rows}
    one, head, step = rows["one program"], rows["whole head"], rows["one decoding step"]
    turned, pairs = rows["transposed keys"], rows["two queries"]
    keys = one["N"] * one["D"]
    elements = {
        "slots rewritten by where": ("scores", one["selected_elements"]),
        "elements of V loaded": ("v", keys),
        "elements of K loaded": ("k", one["elements"] - keys - one["D"]),
        "its query": ("q", one["D"]),
    }
    return Figure(
        finding=words(
            "traffic",
            elements=thousands(one["elements"]),
            slots=thousands(one["selected_elements"]),
        ),
        caption=words("traffic.caption", N=one["N"], D=one["D"]),
        table=columns(
            results[0].rows,
            {
                "case": "case",
                "M": "M",
                "N": "N",
                "D": "D",
                "programs": "programs",
                "loads": "loads",
                "elements": "elements",
                "bytes loaded": "bytes_loaded",
                "compulsory bytes": "bytes_compulsory",
                "32-byte sectors": "sectors",
                "slots rewritten": "selected_elements",
            },
        ),
        plot=charts.bars(
            derived(
                results[:1],
                lambda _: [{"part": part, "count": n} for part, (_, n) in elements.items()],
            ),
            [Series(like, part, {"part": part}) for part, (like, _) in elements.items()],
            field("count", "elements", units.whole),
        ),
        sentences={
            "count": words(
                "traffic.count",
                N=one["N"],
                D=one["D"],
                loads=thousands(one["loads"]),
                elements=thousands(one["elements"]),
                times=thousands(one["elements"] // one["D"]),
            ),
            "claim_count": words(
                "traffic.claim_count", N=one["N"], D=one["D"], elements=thousands(one["elements"])
            ),
            "where": words(
                "traffic.where",
                N=one["N"],
                D=one["D"],
                slots=thousands(one["selected_elements"]),
                times=decimals(one["selected_elements"] / one["elements"], 1),
            ),
            "shared": words(
                "traffic.shared",
                M=head["M"],
                N=head["N"],
                loaded=thousands(head["bytes_loaded"]),
                compulsory=thousands(head["bytes_compulsory"]),
                times=decimals(head["bytes_loaded"] / head["bytes_compulsory"], 1),
                by_pairs=thousands(pairs["bytes_loaded"]),
            ),
            "claim_decode": words(
                "traffic.claim_decode",
                step=thousands(step["bytes_loaded"]),
                step_compulsory=thousands(step["bytes_compulsory"]),
                M=head["M"],
                N=step["N"],
                D=step["D"],
                loaded=thousands(head["bytes_loaded"]),
                compulsory=thousands(head["bytes_compulsory"]),
            ),
            "transposed": words(
                "traffic.transposed",
                D=turned["D"],
                sectors=head["key_sectors"] // head["key_loads"],
                transposed=turned["key_sectors"] // turned["key_loads"],
            ),
        },
    )


def addresses(results):
    rows = results[0].rows
    two = only(rows, query=2)
    return Figure(
        finding=words("addresses", query=2, first=two["first_element"], last=two["last_element"]),
        caption=words(
            "addresses.caption",
            M=two["M"],
            D=two["D"],
            bytes=two["bytes_loaded"],
            sectors=two["sectors"],
        ),
        table=columns(
            rows,
            {
                "query": "query",
                "first element": "first_element",
                "last element": "last_element",
                "all neighbors": lambda r: yes(r["neighbours"]),
                "bytes": "bytes_loaded",
                "32-byte sectors": "sectors",
            },
        ),
        open_table=True,
    )


def scene(results):
    rows = results[0].rows
    *keys, whole = rows
    loaded = sum(r["bytes"]["k"] + r["bytes"]["v"] for r in keys) + whole["bytes"]["q"]
    return Figure(
        finding=words(
            "scene",
            N=len(keys),
            loaded=count(loaded),
            once=count(whole["all_queries"] * loaded),
            M=whole["all_queries"],
        ),
        caption=words("scene.caption", query=whole["query"], N=len(keys)),
        **drawn_scene("basic_attention", rows, "keys", "registers", words("scene.about")),
    )
