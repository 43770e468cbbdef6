"""The figures of the composed_attention page: each draws the result of the same name."""

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import (
    BANDWIDTH,
    RATE,
    TIME,
    ceiling,
    gpus_then_compiled,
    moved,
    only,
    pick,
    rate,
    values,
)
from snippets._lab.draw.tables import cell
from snippets._lab.draw.units import bandwidth, between, change, decimals, flops, ratio, share, size

OURS, EXERCISE, BASIC = "composed_attention", "composed_attention:exercise", "basic_attention"
EAGER, SDPA = "torch:eager", "torch:sdpa"
# What the steps of a call make, and so how they look.
MAKES = {"transpose": "k", "scores": "scores", "softmax": "weights", "values": "output"}
BOTH = ["float32", "float16"]
PANELS = {dtype: {"dtype": dtype} for dtype in BOTH}
SQUARE, LONG = 4096, 8192  # sides of matrices that the page names
PAGE = "docs/posts/composed_attention.md"


def _steps(rows):
    """The steps of a call: what a chart calls them, and the look of what they make."""
    labels = {r["step"]: r["label"] for r in rows}
    return [Series(MAKES[step], label, {"step": step}) for step, label in labels.items()]


def _lengths(rows):
    """A place for each length."""
    return [Series(OURS, units.count(N), {"N": N}) for N in values(rows, "N")]


def _with_sums(rows, summed):
    """The rows of each case, and one more of all its steps together."""
    cases = dict.fromkeys((r["dtype"], r["N"]) for r in rows)
    return [
        *rows,
        *(
            {
                **pick(rows, dtype=dtype, N=N)[0],
                "step": "all",
                "label": "together",
                summed: sum(r[summed] for r in pick(rows, dtype=dtype, N=N)),
            }
            for dtype, N in cases
        ),
    ]


def forward(results):
    rows = results[0].rows
    names = [OURS, BASIC, EAGER, SDPA]
    compared = Comparison(rows, OURS, names[1:], by=("dtype", "N"))
    basic, eager, sdpa = (compared[name] for name in compared.others)
    single, half, single_long, half_long = (
        compared.case(dtype, N) for N in (1024, LONG) for dtype in BOTH
    )
    of_eager = {
        dtype: [1 / gain for at, gain in eager.items() if at.dtype == dtype and at.N >= 1024]
        for dtype in BOTH
    }
    return Figure(
        finding=f"At 1024 queries of 64 columns the four launches are {ratio(basic[single])} "
        f"faster than one query per program in float32 and {ratio(1 / sdpa[half])} slower than "
        "PyTorch's fused kernel in float16.",
        caption="One head, D 64, time of one call, both axes logarithmic: down is faster. "
        "Medians; L2 flushed before every call; all take turns. Eager PyTorch runs its own "
        "scaling, matmul, softmax and matmul one after the other.",
        plot=charts.lines(results, names, "N", TIME, PANELS),
        numbers={
            "basic_single": ratio(basic[single]),
            "basic_half": ratio(basic[half]),
            "basic_most": ratio(max(basic.values())),
            "eager_single": between(of_eager["float32"], ratio),
            "eager_half": between(of_eager["float16"], ratio),
            "fused_single": ratio(sdpa[single_long]),
            "fused_half": ratio(1 / sdpa[half_long]),
        },
        claims={
            f"{PAGE}: The gain grows with the sequence": [
                basic[compared.case(dtype, N)] for dtype in BOTH for N in values(rows, "N")
            ]
            == [
                gain
                for dtype in BOTH
                for gain in sorted(basic[compared.case(dtype, N)] for N in values(rows, "N"))
            ],
            f"{PAGE}: Chained together in float16, with 8192 keys": sdpa[half_long]
            < 1
            < sdpa[single_long],
        },
    )


def transpose(results):
    rows = results[0].rows
    ours, torch, copy = "composed_attention:transpose", "torch:transpose", "torch:clone"
    compared = Comparison(rows, ours, [torch, copy], by=("dtype", "N"))
    single, half = (compared.case(dtype, LONG) for dtype in BOTH)
    return Figure(
        finding=f"Transposing {LONG} × {LONG} runs at {decimals(compared[copy][single])} of a "
        f"plain copy's speed in float32 and {decimals(compared[copy][half])} in float16.",
        numbers={
            "single": ratio(compared[torch][single]),
            "of_copy": units.percent(compared[copy][single]),
        },
    )


def matmul(results):
    rows = results[0].rows
    ours, torch = "composed_attention:matmul", "torch:matmul"
    compared = Comparison(rows, ours, [torch], by=("dtype", "N"))
    single, half = (compared.case(dtype, SQUARE) for dtype in BOTH)
    return Figure(
        finding=f"At {SQUARE}³ the tiled product does {flops(rate(compared.row(ours, half)))} in "
        f"float16, {decimals(compared[torch][half])} of PyTorch's, and "
        f"{flops(rate(compared.row(ours, single)))} in float32, "
        f"{decimals(compared[torch][single])} of PyTorch's.",
        caption="Product of two N × N matrices; up is faster, and the two panels have different "
        "scales. Medians; L2 flushed before every call; the two take turns. Neither uses TF32 "
        "for float32.",
        plot=charts.lines(
            results,
            [Series(ours, "tiled product"), torch],
            "N",
            RATE,
            [View(dtype, {"dtype": dtype}, y=RATE.called(dtype)) for dtype in BOTH],
            log="x",
        ),
        numbers={"share_half": units.percent(compared[torch][half])},
    )


def resources(results):
    order = gpus_then_compiled(results)
    main = next(r for r in order if r.place == "gpu" or r.folder.endswith("sm_90"))
    rows = pick(main.rows)
    half = [r for r in rows if "matmul" in r["kernel"] and r["dtype"] == "float16"]
    units_of = ", ".join(dict.fromkeys(f"`{r['tensor_core']}`" for r in half))
    return Figure(
        finding=f"On {cell(main.label)} none of {len(rows)} configurations spills registers, and "
        f"the float16 products run on tensor cores ({units_of}).",
        claims={
            f"{PAGE}: float16 on tensor cores": all(r["tensor_core"] for r in half)
            and not any(r["spill_store_bytes"] for r in rows)
        },
    )


def softmax(results):
    rows = results[0].rows
    ours, torch, copy = "composed_attention:softmax", "torch:softmax", "torch:clone"
    compared = Comparison(rows, ours, [torch, copy], by=("columns",))
    at = compared.case(SQUARE)
    chosen = compared.row(ours, at)
    return Figure(
        finding=f"{chosen['rows']} rows of {SQUARE} numbers take {TIME.text(chosen)}: "
        f"{BANDWIDTH.text(chosen)}, {decimals(compared[copy][at])} of a plain copy's speed and "
        f"{ratio(compared[torch][at])} faster than PyTorch's softmax.",
        numbers={
            "of_copy": units.percent(compared[copy][at]),
            "times": ratio(compared[torch][at]),
        },
    )


def alignment(results):
    rows = results[0].rows
    narrow, wide, long, longest = (only(rows, columns=n) for n in (5000, 5008, 8184, LONG))
    return Figure(
        finding=f"Rows of {narrow['columns']} numbers are read and written at "
        f"{BANDWIDTH.text(narrow)}, rows of {wide['columns']} at {BANDWIDTH.text(wide)}.",
        numbers={"slower": units.percent(TIME(narrow) / TIME(wide) - 1)},
        claims={
            f"{PAGE}: each load take one number instead of four": [
                r["numbers_a_load"] for r in (narrow, wide, long, longest)
            ]
            == [1, 4, 1, 4],
            f"{PAGE}: runs as fast as one of 8192": abs(moved(long) / moved(longest) - 1) < 0.01,
        },
    )


def memory_traffic(results):
    rows = results[0].rows
    totals = {
        (r["dtype"], r["N"]): r for r in _with_sums(rows, "bytes_moved") if r["step"] == "all"
    }

    def at(step, dtype):
        return only(rows, step=step, dtype=dtype, N=SQUARE)

    def of_scores(dtype):
        """What only hands the scores and the weights over: written and read, both."""
        passed = at("softmax", dtype)["bytes_moved"]
        kept = at("scores", dtype)["bytes_stored"] + at("softmax", dtype)["bytes_stored"]
        return share(passed + kept, totals[dtype, SQUARE]["bytes_moved"])

    half = totals["float16", SQUARE]
    written = at("scores", "float16")["bytes_stored"]
    recorded = [r for r in rows if r["bytes_stored_recorded"] is not None]
    return Figure(
        finding=f"At N {SQUARE} in float16 the four kernels read and write "
        f"{size(half['bytes_moved'])} per head where a fused kernel moves "
        f"{size(half['bytes_fused'])}: {ratio(half['bytes_moved'] / half['bytes_fused'])} as much.",
        numbers={
            "scores": size(written),
            "half": of_scores("float16"),
            "all": size(half["bytes_moved"]),
            "less": size(half["bytes_moved"] - written),
        },
        claims={
            f"{PAGE}: of all the bytes": all(
                r["bytes_stored_recorded"] == r["bytes_stored"] for r in recorded
            )
        },
    )


def kernels(results):
    rows = _with_sums(results[0].rows, "ms_p50")
    most = SQUARE
    steps = _steps(results[0].rows)

    def at(step, dtype, N=most):
        return only(rows, step=step, dtype=dtype, N=N)

    def part(step, dtype, N=most):
        return share(TIME(at(step, dtype, N)), TIME(at("all", dtype, N)))

    scores = at("scores", "float16")
    speed = moved(at("softmax", "float16"), "bytes_moved")
    return Figure(
        finding=f"At N {most} the largest share of the time goes into the scores in float32 "
        f"({part('scores', 'float32')}) and into the softmax in float16 "
        f"({part('softmax', 'float16')}).",
        caption="Shares of the four launches in one call: 16 heads, D 64. Medians; events "
        "between the launches; L2 flushed before the first only, so a step may find in L2 what "
        "the previous one left there.",
        plot=charts.bars(
            results,
            _lengths(rows),
            TIME,
            PANELS,
            groups=steps,
            stacked=True,
            as_share=True,
            upright=True,
            texts=False,
            along="N",
        ),
        numbers={
            "softmax_half": part("softmax", "float16"),
            "speed_half": bandwidth(speed),
            "speed_share": share(speed, ceiling(results[0], "copy")),
            "rate_share": share(rate(scores), ceiling(results[0], "matmul_float16")),
        },
        claims={
            "title of composed_attention/kernels: the largest share of the time goes": [
                max(pick(results[0].rows, dtype=dtype, N=most), key=TIME)["step"] for dtype in BOTH
            ]
            == ["scores", "softmax"],
        },
    )


def strides(results):
    over = {(r["dtype"], r["N"]): r["over"] for r in _without(results[0])}
    least, most = min(over, key=over.get), max(over, key=over.get)
    return Figure(
        finding=f"Reading k through swapped strides changes the time by {change(over[least])} "
        f"(float16, N 256) to {change(over[most])} (float32, N 4096).",
        numbers={
            "half_short": change(over["float16", 256]),
            "half_long": change(over["float16", 4096]),
            "single_long": change(over["float32", 4096]),
        },
        claims={
            f"{PAGE}: that changes the time by": over["float16", 256]
            < 0.98
            < 1.02
            < over["float32", 4096],
        },
    )


def _without(result):
    """The time without the transpose over the time with it, for each case."""
    compared = Comparison(result.rows, OURS, [EXERCISE], by=("dtype", "N"))
    return [{**c._asdict(), "over": over} for c, over in compared[EXERCISE].items()]
