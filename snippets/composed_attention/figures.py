"""The figures of the composed_attention page: each draws the result of the same name."""

import html

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Reference, Series, View, at_ceiling
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import identity, named
from snippets._lab.draw.rows import (
    BANDWIDTH,
    RATE,
    TIME,
    Quantity,
    ceiling,
    derived,
    field,
    gpus_then_compiled,
    moved,
    only,
    pick,
    rate,
    values,
)
from snippets._lab.draw.tables import cell, columns
from snippets._lab.draw.units import bandwidth, change, decimals, flops, ratio, share, size

OURS, EXERCISE, BASIC = "composed_attention", "composed_attention:exercise", "basic_attention"
EAGER, SDPA = "torch:eager", "torch:sdpa"
# What the steps of a call make, and so how they look.
MAKES = {"transpose": "k", "scores": "scores", "softmax": "weights", "values": "output"}
BOTH = ["float32", "float16"]
PANELS = {dtype: {"dtype": dtype} for dtype in BOTH}
SQUARE, LONG = 4096, 8192  # sides of matrices that the page names
PIECE = 512  # bytes: PyTorch's allocator rounds up to a multiple
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
    return Figure(
        finding=f"At 1024 queries of 64 columns the four launches are {ratio(basic[single])} "
        f"faster than one query per program in float32 and {ratio(1 / sdpa[half])} slower than "
        "PyTorch's fused kernel in float16.",
        caption="One head, D 64, time of one call, both axes logarithmic: down is faster. "
        "Medians; L2 flushed before every call; all take turns. Eager PyTorch runs its own "
        "scaling, matmul, softmax and matmul one after the other.",
        plot=charts.lines(results, names, "N", TIME, PANELS),
        numbers={
            "basic_least": ratio(1 / min(basic.values())),
            "basic_most": ratio(max(basic.values())),
            "eager_single": ratio(1 / eager[single]),
            "eager_half": ratio(1 / eager[half]),
            "eager_single_long": ratio(1 / eager[single_long]),
            "eager_half_long": ratio(eager[half_long]),
            "fused_single": ratio(sdpa[single_long]),
            "fused_half": ratio(1 / sdpa[half_long]),
        },
        claims={
            f"{PAGE}: and in float16 they are": eager[half_long] > 1,
            f"{PAGE}: faster than PyTorch's fused kernel in float32": sdpa[single_long] > 1,
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
        caption="Transposed copy of an N × N matrix, one read and one write counted; up is "
        "faster. Medians; L2 flushed before every call; the three take turns.",
        plot=charts.lines(
            results,
            [Series(ours, "tiled transpose"), torch, copy],
            "N",
            BANDWIDTH,
            PANELS,
            log="x",
        ),
        numbers={
            "single": ratio(compared[torch][single]),
            "half": ratio(compared[torch][half]),
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
        caption="Every configuration of the tables, as compiled. Registers and spills are for "
        "one thread, shared memory for one program.",
        table=columns(
            [{**r, "device": result.label} for result in order for r in result.rows],
            {
                "device": "device",
                "kernel": lambda r: r["kernel"].strip("_").removesuffix("_kernel"),
                "dtype": "dtype",
                "tile": "size",
                "warps": "num_warps",
                "registers": "registers",
                "spilled, bytes": "spill_store_bytes",
                "shared memory, bytes": "shared_bytes",
                "tensor core": "tensor_core",
                "remark": "error",
            },
        ),
        claims={
            "title of composed_attention/resources: none of": not any(
                r["spill_store_bytes"] for r in rows
            )
        },
    )


def softmax(results):
    rows = results[0].rows
    ours, torch, copy = "composed_attention:softmax", "torch:softmax", "torch:clone"
    compared = Comparison(rows, ours, [torch], by=("columns",))
    at = compared.case(SQUARE)
    chosen = compared.row(ours, at)
    return Figure(
        finding=f"{chosen['rows']} rows of {SQUARE} numbers take {TIME.text(chosen)}: "
        f"{BANDWIDTH.text(chosen)}, {decimals(moved(chosen) / ceiling(results[0], 'copy'))} of "
        f"the copy ceiling and {ratio(compared[torch][at])} faster than PyTorch's softmax.",
        caption=f"Softmax of {chosen['rows']} rows, float32, one read and one write counted; up "
        "is faster. Medians; L2 flushed before every call; the three take turns. The copy is "
        "`x.clone()` of the same tensor; the ceiling is the best copy of this GPU, of 2 GiB.",
        plot=charts.lines(
            results,
            [Series(ours, "row softmax"), torch, copy],
            "columns",
            BANDWIDTH,
            log="x",
            references=[at_ceiling("copy", "copy ceiling")],
            ticks={"x": [1, 16, 128, 1024, 8192]},  # every length would crowd a phone
        ),
    )


def alignment(results):
    rows = results[0].rows
    at = {(_wide(r), _mostly_masked(r)): r for r in rows}
    narrow, wide, narrow_full, wide_full = (
        at[key] for key in ((False, True), (True, True), (False, False), (True, False))
    )

    def gain(slower, faster):
        return change(moved(faster) / moved(slower))

    return Figure(
        finding=f"Rows of {narrow['columns']} numbers are read and written at "
        f"{BANDWIDTH.text(narrow)}, rows of {wide['columns']} at {BANDWIDTH.text(wide)}.",
        caption=f"Softmax of {narrow['rows']} rows, float32, one read and one write counted. Four "
        "row lengths: for two of them the compiler knows that rows are aligned and loads four "
        "numbers at once; for two the row fills its tile. Medians; L2 flushed before every call.",
        plot=charts.bars(
            results,
            [
                Series(OURS, f"{share(_masked(narrow))} of the slots masked", _mostly_masked),
                Series(OURS, "(nearly) none masked", lambda r: not _mostly_masked(r)),
            ],
            BANDWIDTH,
            groups=[
                Series("context", "one number per load", {"numbers_a_load": 1}),
                Series(OURS, f"{wide['numbers_a_load']} numbers per load", _wide),
            ],
        ),
        numbers={
            "slots": units.count(narrow["slots"]),
            "masked": share(_masked(narrow)),
            "wide": gain(narrow, wide),
            "wide_full": gain(narrow_full, wide_full),
            "full": gain(narrow, narrow_full),
            "full_wide": gain(wide, wide_full),
        },
    )


def _masked(row):
    """The part of a program's slots that hold no number of the row."""
    return 1 - row["columns"] / row["slots"]


def _mostly_masked(row):
    return _masked(row) > 0.1


def _wide(row):
    return row["numbers_a_load"] > 1


DOES = {  # part of a kernel's name → what it does
    "transpose": "Kᵀ",
    "softmax": "softmax",
    "fmha": "all of attention",
    "sdpa": "all of attention",
    "flash": "all of attention",
    "Mul": "scale",
    "matmul": "product",
    "gemm": "product",
    "nvjet": "product",
}


def launches(results):
    rows = results[0].rows
    names = values(rows, "implementation")
    count = {name: only(rows, implementation=name, dtype="float16") for name in names}
    ours = count[OURS]
    return Figure(
        finding=f"One call launches {ours['launches']} kernels; PyTorch's separate operations "
        f"{count[EAGER]['launches']}, its fused attention {count[SDPA]['launches']}.",
        caption="Kernels on the GPU's timeline during one call, in their order, by "
        f"torch.profiler; float16, {ours['heads']} heads, N {ours['N']}, D {ours['D']}. Copies "
        "and fills by the driver are not counted.",
        table=columns(
            rows,
            {
                "dtype": "dtype",
                "implementation": lambda r: named(r["implementation"]),
                "launches": "launches",
                "kernels": lambda r: ", ".join(map(_shortened, r["kernels"])),
            },
        ),
        widget=_in_turn(count),
    )


def _in_turn(count):
    """A strip for each implementation, with a box for each kernel that it launches, in order."""
    strips = []
    for name, row in count.items():
        look = identity(name)
        boxes = "".join(
            f'<li title="{html.escape(_shortened(kernel))}">{_does(kernel)}</li>'
            for kernel in row["kernels"]
        )
        strips.append(
            f"<div><p>{look.name} <b>{row['launches']}</b></p>"
            f'<ol style="--ours:{look.color}">{boxes}</ol></div>'
        )
    return f'<div class="am-strips">{"".join(strips)}</div>'


def _does(kernel):
    """What a kernel does, by its name; its name where that does not tell."""
    found = [said for part, said in DOES.items() if part in kernel]
    return found[0] if found else html.escape(_shortened(kernel))


def _shortened(kernel):
    return kernel if len(kernel) < 48 else kernel[:45] + "…"


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
    over_fused = Quantity(
        "bytes over a fused kernel's", lambda r: r["bytes_moved"] / r["bytes_fused"], units.times
    )
    return Figure(
        finding=f"At N {SQUARE} in float16 the four kernels read and write "
        f"{size(half['bytes_moved'])} per head where a fused kernel moves "
        f"{size(half['bytes_fused'])}: {ratio(over_fused(half))} as much.",
        caption="Bytes of one head of D 64 in float16, each tensor that a kernel reads or writes "
        "counted once, over what any kernel must move: q, k and v in, the result out. Counted by "
        "formula; what is stored agrees byte for byte, launch by launch, with what the "
        f"interpreter recorded at N {recorded[0]['N']}. How much of it reaches memory and how "
        "much stays in L2 is not counted here.",
        plot=charts.bars(
            results,
            _lengths(rows),
            over_fused,
            [View("", {"dtype": "float16"})],
            groups=_steps(rows),
            stacked=True,
            upright=True,
            texts=False,
            along="N",
        ),
        numbers={
            "scores": size(written),
            "half": of_scores("float16"),
            "single": of_scores("float32"),
            "all": size(half["bytes_moved"]),
            "less": size(half["bytes_moved"] - written),
        },
        claims={
            "title of composed_attention/memory_traffic: agrees byte for byte": all(
                r["bytes_stored_recorded"] == r["bytes_stored"] for r in recorded
            )
        },
    )


def kernels(results):
    rows = _with_sums(results[0].rows, "ms_p50")
    short, most = 256, SQUARE
    steps = _steps(results[0].rows)

    def at(step, dtype, N=most):
        return only(rows, step=step, dtype=dtype, N=N)

    def part(step, dtype, N=most):
        return share(TIME(at(step, dtype, N)), TIME(at("all", dtype, N)))

    scores = at("scores", "float16")
    return Figure(
        finding=f"At N {most} the most time goes into the scores in float32 "
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
            "softmax_single": part("softmax", "float32"),
            "speed_half": bandwidth(moved(at("softmax", "float16"), "bytes_moved")),
            "speed_single": bandwidth(moved(at("softmax", "float32"), "bytes_moved")),
            "rate": flops(rate(scores)),
            "rate_share": share(rate(scores), ceiling(results[0], "matmul_float16")),
            "transpose_first": part("transpose", "float16", short),
            "transpose_last": part("transpose", "float16"),
        },
        claims={
            "title of composed_attention/kernels: the most time goes into the scores in float32": [
                max(pick(results[0].rows, dtype=dtype, N=most), key=TIME)["step"] for dtype in BOTH
            ]
            == ["scores", "softmax"],
        },
    )


def allocations(results):
    rows = results[0].rows
    names = [OURS, EXERCISE, EAGER, SDPA]
    peak = field("bytes_peak", "peak memory", size)
    extra = [r["bytes_peak"] - _needed(r) for r in pick(rows, implementation=OURS)]
    at = {name: only(rows, implementation=name, dtype="float16", N=SQUARE) for name in names}
    return Figure(
        finding="A call allocates Kᵀ, the scores and the output, and nothing else.",
        caption="Peak memory during one call besides its inputs, by "
        "`torch.cuda.max_memory_allocated`; 16 heads, D 64; both axes logarithmic. PyTorch hands "
        f"out memory in pieces of {PIECE} bytes.",
        plot=charts.lines(results, names, "N", peak, PANELS),
        numbers={
            "ours": peak.text(at[OURS]),
            "eager": peak.text(at[EAGER]),
            "sdpa": peak.text(at[SDPA]),
        },
        claims={
            # of three tensors, each rounded up
            "title of composed_attention/allocations: and nothing else": 0
            <= min(extra)
            <= max(extra)
            <= 3 * PIECE,
        },
    )


def _needed(row):
    return row["bytes_scores"] + row["bytes_transposed_keys"] + row["bytes_result"]


def strides(results):
    over = {(r["dtype"], r["N"]): r["over"] for r in _without(results[0])}
    least, most = min(over, key=over.get), max(over, key=over.get)
    return Figure(
        finding=f"Reading k through swapped strides changes the time by {change(over[least])} "
        f"(float16, N 256) to {change(over[most])} (float32, N 4096).",
        caption="16 heads, D 64, time of one call without the transpose over the time with it: "
        "below 1 it is time saved. Medians; L2 flushed before every call; the two take turns.",
        plot=charts.lines(
            derived(results, _without),
            [Series(EXERCISE, dtype, {"dtype": dtype}, dtype=dtype) for dtype in BOTH],
            "N",
            field("over", "time over that with the transpose", units.fraction),
            log="x",
            references=[Reference("with the transpose", 1)],
            from_zero=False,
        ),
        numbers={
            "half_short": change(over["float16", 256]),
            "half_long": change(over["float16", 4096]),
            "single_short": change(over["float32", 256]),
            "single_long": change(over["float32", 4096]),
        },
        claims={
            "title of composed_attention/strides: (float16, N 256)": least == ("float16", 256),
            "title of composed_attention/strides: (float32, N 4096)": most == ("float32", 4096),
        },
    )


def _without(result):
    """The time without the transpose over the time with it, for each case."""
    compared = Comparison(result.rows, OURS, [EXERCISE], by=("dtype", "N"))
    return [{**c._asdict(), "over": over} for c, over in compared[EXERCISE].items()]
