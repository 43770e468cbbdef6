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
    derived,
    gpus_then_compiled,
    moved,
    only,
    pick,
    rate,
)
from snippets._lab.draw.tables import case, cell
from snippets._lab.draw.units import bandwidth, between, change, decimals, flops, ratio, share, size

OURS, EXERCISE, BASIC = "composed_attention", "composed_attention:exercise", "basic_attention"
EAGER, SDPA = "torch:eager", "torch:sdpa"
# What the steps of a call make, and so how they look.
MAKES = {"transpose": "k", "scores": "scores", "softmax": "weights", "values": "output"}
BOTH = ["float32", "float16"]
PANELS = {dtype: {"dtype": dtype} for dtype in BOTH}
SQUARE, LONG = 4096, 8192  # sides of matrices that the page names
PAGE = "docs/posts/composed_attention.md"


def forward(results, rows):
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
            f"{PAGE}: The gain grows with the sequence": all(
                sorted(gains, key=gains.get) == sorted(gains)  # cases of a dtype, by their N
                for gains in (basic.where(dtype=dtype) for dtype in BOTH)
            ),
            f"{PAGE}: Chained together in float16, with 8192 keys": sdpa[half_long]
            < 1
            < sdpa[single_long],
        },
    )


def transpose(rows):
    ours, torch, copy = "composed_attention:transpose", "torch:transpose", "torch:clone"
    compared = Comparison(rows, ours, [torch, copy], by=("dtype", "N"))
    single, half = (compared.case(dtype, LONG) for dtype in BOTH)
    return Figure(
        finding=f"Transposing {LONG} × {LONG} runs at {decimals(compared[copy][single])} of a "
        f"plain copy's speed in float32 and {decimals(compared[copy][half])} in float16.",
        numbers={
            "half": ratio(compared[torch][half]),
            "of_copy": units.percent(compared[copy][half]),
        },
    )


def matmul(results, rows):
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


def softmax(rows):
    ours, torch, copy = "composed_attention:softmax", "torch:softmax", "torch:clone"
    compared = Comparison(rows, ours, [torch, copy], by=("columns",))
    at = compared.case(SQUARE)
    chosen = compared.row(ours, at)
    return Figure(
        finding=f"{chosen['rows']} rows of {SQUARE} numbers take {TIME.text(chosen)}: "
        f"{BANDWIDTH.text(chosen)}, {decimals(compared[copy][at])} of a plain copy's speed and "
        f"{ratio(compared[torch][at])} faster than PyTorch's softmax.",
        numbers={"of_copy": units.percent(compared[copy][at]), "times": ratio(compared[torch][at])},
    )


def alignment(rows):
    narrow, wide, long, longest = (only(rows, columns=n) for n in (5000, 5008, 8184, LONG))
    return Figure(
        finding=f"Rows of {narrow['columns']} numbers are read and written at "
        f"{BANDWIDTH.text(narrow)}, rows of {wide['columns']} at {BANDWIDTH.text(wide)}.",
        numbers={"slower": units.percent(TIME(narrow) / TIME(wide) - 1)},
        claims={
            f"{PAGE}: each load takes one number instead of four": [
                r["numbers_a_load"] for r in (narrow, wide, long, longest)
            ]
            == [1, 4, 1, 4],
            f"{PAGE}: Not every such row is slower": abs(moved(long) / moved(longest) - 1) < 0.01,
        },
    )


def memory_traffic(rows):

    def at(step, dtype):
        return only(rows, step=step, dtype=dtype, N=SQUARE)

    def of_scores(dtype):
        """What only hands the scores and the weights over: written and read, both."""
        passed = at("softmax", dtype)["bytes_moved"]
        kept = at("scores", dtype)["bytes_stored"] + at("softmax", dtype)["bytes_stored"]
        return share(passed + kept, total(dtype))

    def total(dtype):
        return sum(r["bytes_moved"] for r in pick(rows, dtype=dtype, N=SQUARE))

    every, fused = total("float16"), at("scores", "float16")["bytes_fused"]
    written = at("scores", "float16")["bytes_stored"]
    recorded = [r for r in rows if r["bytes_stored_recorded"] is not None]
    return Figure(
        finding=f"At N {SQUARE} in float16 the four kernels read and write "
        f"{size(every)} per head where a fused kernel moves {size(fused)}: "
        f"{ratio(every / fused)} as much.",
        numbers={"scores": size(written), "half": of_scores("float16")},
        claims={
            f"{PAGE}: of all the bytes": all(
                r["bytes_stored_recorded"] == r["bytes_stored"] for r in recorded
            )
        },
    )


def kernels(results):
    copy = ceiling(results[0], "copy")
    half, single = (
        {r["step"]: r for r in pick(results[0].rows, dtype=dtype, N=SQUARE)}
        for dtype in ("float16", "float32")
    )
    all_half, all_single = (
        {key: sum(r[key] for r in steps.values()) for key in ("ms_p50", "bytes_moved")}
        for steps in (half, single)
    )
    speed = moved(half["softmax"], "bytes_moved")
    return Figure(
        finding="The bytes of the four launches, at the speed of a copy, take "
        f"{share(_least(all_half, copy), TIME(all_half))} of the measured time in float16 and "
        f"{share(_least(all_single, copy), TIME(all_single))} in float32.",
        caption=f"The four launches of one call: 16 heads, N {SQUARE}, D 64. Medians; events "
        "between the launches; L2 flushed before the first only, so a step may find in L2 what "
        "the previous one left there.",
        plot=charts.bars(
            derived(results, _beside_bytes),
            [Series(MAKES[step], row["label"], {"step": step}) for step, row in half.items()],
            views=PANELS,
            groups=[
                Series(OURS, "measured", {"bytes_only": False}),
                Series("context", "its bytes at a copy's speed", {"bytes_only": True}),
            ],
        ),
        numbers={
            "transpose_half": share(TIME(half["transpose"]), TIME(all_half)),
            "softmax_half": share(TIME(half["softmax"]), TIME(all_half)),
            "speed_half": bandwidth(speed),
            "speed_share": share(speed, copy),
            "rate_share": share(rate(half["scores"]), ceiling(results[0], "matmul_float16")),
            "bytes_half": size(all_half["bytes_moved"]),
            "least_half": units.time(_least(all_half, copy)),
            "all_half": TIME.text(all_half),
            "least_scores": units.time(_least(half["scores"], copy)),
            "scores_half": TIME.text(half["scores"]),
            "least_values": units.time(_least(half["values"], copy)),
            "values_half": TIME.text(half["values"]),
            "share_single": share(_least(all_single, copy), TIME(all_single)),
        },
        claims={
            f"{PAGE}: the chain takes little longer than its bytes": TIME(all_half)
            < 1.25 * _least(all_half, copy),
            f"{PAGE}: at less than half of a copy's speed": _least(half["transpose"], copy)
            < TIME(half["transpose"]) / 2,
            f"{PAGE}: most of its time is bytes": _least(half["scores"], copy)
            > 0.6 * TIME(half["scores"]),
            f"{PAGE}: and take far longer than their bytes": all(
                TIME(single[step]) > 2 * _least(single[step], copy) for step in ("scores", "values")
            ),
        },
    )


def _beside_bytes(result):
    """The steps at one length, with the time that their bytes take at a copy's speed."""
    for row in pick(result.rows, N=SQUARE):
        yield {**row, "bytes_only": False}
        yield {
            **{key: row[key] for key in ("dtype", "step")},
            "ms_p50": _least(row, ceiling(result, "copy")),
            "bytes_only": True,
        }


def _least(row, copy):
    """Milliseconds that its bytes take at a copy's speed."""
    return row["bytes_moved"] / copy * 1e3


def strides(rows):
    over = Comparison(rows, OURS, [EXERCISE], by=("dtype", "N"))[EXERCISE]
    return Figure(
        finding=f"Reading k through swapped strides changes the time by {change(over[over.worst])} "
        f"({case(over.worst)}) to {change(over[over.best])} ({case(over.best)}).",
        numbers={"single_long": share(over["float32", 4096] - 1)},
        claims={f"{PAGE}: In float32 it even pays for itself": over["float32", 4096] > 1.02},
    )
