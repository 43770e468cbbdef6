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
from snippets._lab.draw.tables import beside, columns
from snippets._lab.draw.units import bandwidth, change, decimals, flops, ratio, share, size
from snippets._lab.draw.words import Words, case, cell, faster

OURS, EXERCISE, BASIC = "composed_attention", "composed_attention:exercise", "basic_attention"
EAGER, SDPA = "torch:eager", "torch:sdpa"
# What the steps of a call make, and so how they look.
MAKES = {"transpose": "k", "scores": "scores", "softmax": "weights", "values": "output"}
BOTH = ["float32", "float16"]
PANELS = {dtype: {"dtype": dtype} for dtype in BOTH}
TYPICAL = 1024  # queries, of the sentences on a call of usual length
SQUARE, LONG = 4096, 8192  # sides of matrices that the sentences name
PIECE = 512  # bytes: PyTorch's allocator rounds up to a multiple
words = Words(__file__)


def forward(results):
    rows = results[0].rows
    names = [OURS, BASIC, EAGER, SDPA]
    compared = Comparison(rows, OURS, [BASIC, EAGER, SDPA], by=("dtype", "N"))
    basic, eager, sdpa = (compared[name] for name in compared.others)
    single, half = (compared.case(dtype, TYPICAL) for dtype in BOTH)
    longest = values(rows, "N")[-1]
    single_long, half_long = (compared.case(dtype, longest) for dtype in BOTH)
    D = rows[0]["D"]
    return Figure(
        finding=words(
            "forward", N=TYPICAL, D=D, basic=faster(basic[single]), sdpa=faster(sdpa[half])
        ),
        caption=words("forward.caption", D=D),
        table=beside(rows, ["dtype", "N"], {named(name): name for name in names}),
        plot=charts.lines(results, names, "N", TIME, PANELS),
        sentences={
            "basic": words("forward.basic", span=basic.span()),
            "eager": words(
                "forward.eager",
                N=TYPICAL,
                single=faster(eager[single]),
                half=faster(eager[half]),
                long=longest,
                single_long=faster(eager[single_long]),
                half_long=faster(eager[half_long]),
            ),
            "fused": words(
                "forward.fused",
                N=longest,
                single=faster(sdpa[single_long]),
                half=faster(sdpa[half_long]),
            ),
        },
    )


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


def kernels(results):
    rows = _with_sums(results[0].rows, "ms_p50")
    lengths = values(rows, "N")
    short, most = lengths[0], lengths[-1]
    steps = _steps(results[0].rows)

    def at(step, dtype, N=most):
        return only(rows, step=step, dtype=dtype, N=N)

    def part(step, dtype, N=most):
        return share(TIME(at(step, dtype, N)), TIME(at("all", dtype, N)))

    largest = {d: max(pick(results[0].rows, dtype=d, N=most), key=TIME) for d in BOTH}
    scores = at("scores", "float16")
    labels = {r["label"]: r["step"] for r in rows}
    return Figure(
        finding=words(
            "kernels",
            N=most,
            single=largest["float32"]["label"],
            single_share=part(largest["float32"]["step"], "float32"),
            half=largest["float16"]["label"],
            half_share=part(largest["float16"]["step"], "float16"),
        ),
        caption=words("kernels.caption", heads=scores["heads"], D=scores["D"]),
        table=beside(rows, ["dtype", "N"], labels, name="step"),
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
        sentences={
            "softmax": words(
                "kernels.softmax",
                N=most,
                half=part("softmax", "float16"),
                single=part("softmax", "float32"),
                half_speed=bandwidth(moved(at("softmax", "float16"), "bytes_moved")),
                single_speed=bandwidth(moved(at("softmax", "float32"), "bytes_moved")),
            ),
            "scores": words(
                "kernels.scores",
                N=most,
                D=scores["D"],
                rate=flops(rate(scores)),
                share=share(rate(scores), ceiling(results[0], "matmul_float16")),
            ),
            "transpose": words(
                "kernels.transpose",
                first=part("transpose", "float16", short),
                short=short,
                last=part("transpose", "float16"),
                long=most,
            ),
        },
    )


def matmul(results):
    rows = results[0].rows
    ours, torch = "composed_attention:matmul", "torch:matmul"
    compared = Comparison(rows, ours, [torch], by=("dtype", "N"))
    single, half = (compared.case(dtype, SQUARE) for dtype in BOTH)
    return Figure(
        finding=words(
            "matmul",
            N=SQUARE,
            half=flops(rate(compared.row(ours, half))),
            half_part=decimals(compared[torch][half]),
            single=flops(rate(compared.row(ours, single))),
            single_part=decimals(compared[torch][single]),
        ),
        caption=words("matmul.caption"),
        table=_speeds(rows, ["dtype", "N"], RATE),
        plot=charts.lines(
            results,
            [Series(ours, "tiled product"), torch],
            "N",
            RATE,
            [View(dtype, {"dtype": dtype}, y=RATE.called(dtype)) for dtype in BOTH],
            log="x",
        ),
    )


def _speeds(rows, axes, speed):
    """A row for each time: the case, what was timed, the time and the speed."""
    return columns(
        rows,
        {
            **{axis: axis for axis in axes},
            "implementation": lambda r: named(r["implementation"]),
            "time": TIME,
            speed.name: speed,
        },
    )


def softmax(results):
    rows = results[0].rows
    ours, torch, copy = "composed_attention:softmax", "torch:softmax", "torch:clone"
    compared = Comparison(rows, ours, [torch], by=("columns",))
    at = compared.case(SQUARE)
    chosen = compared.row(ours, at)
    count = chosen["rows"]
    return Figure(
        finding=words(
            "softmax",
            rows=count,
            columns=SQUARE,
            time=TIME.text(chosen),
            speed=BANDWIDTH.text(chosen),
            part=decimals(moved(chosen) / ceiling(results[0], "copy")),
            faster=faster(compared[torch][at]),
        ),
        caption=words("softmax.caption", rows=count),
        table=_speeds(rows, ["columns"], BANDWIDTH),
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
        finding=words(
            "alignment",
            odd=narrow["columns"],
            odd_speed=BANDWIDTH.text(narrow),
            even=wide["columns"],
            even_speed=BANDWIDTH.text(wide),
        ),
        caption=words("alignment.caption", rows=narrow["rows"]),
        table=columns(
            rows,
            {
                "columns": "columns",
                "numbers per load": "numbers_a_load",
                "slots": "slots",
                "masked": lambda r: share(_masked(r)),
                "time": TIME,
                BANDWIDTH.name: BANDWIDTH,
            },
        ),
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
        sentences={
            "question": words(
                "alignment.question",
                odd=narrow["columns"],
                slots=units.count(narrow["slots"]),
                masked=share(_masked(narrow)),
            ),
            "answer": words(
                "alignment.answer",
                odd=narrow["columns"],
                even=wide["columns"],
                wide=gain(narrow, wide),
                odd_full=narrow_full["columns"],
                even_full=wide_full["columns"],
                wide_full=gain(narrow_full, wide_full),
                full=gain(narrow, narrow_full),
                full_wide=gain(wide, wide_full),
            ),
        },
    )


def _masked(row):
    """The part of a program's slots that hold no number of the row."""
    return 1 - row["columns"] / row["slots"]


def _mostly_masked(row):
    return _masked(row) > 0.1


def _wide(row):
    return row["numbers_a_load"] > 1


def transpose(results):
    rows = results[0].rows
    ours, torch, copy = "composed_attention:transpose", "torch:transpose", "torch:clone"
    compared = Comparison(rows, ours, [torch, copy], by=("dtype", "N"))
    single, half = (compared.case(dtype, LONG) for dtype in BOTH)
    return Figure(
        finding=words(
            "transpose",
            N=LONG,
            single=decimals(compared[copy][single]),
            half=decimals(compared[copy][half]),
        ),
        caption=words("transpose.caption"),
        table=_speeds(rows, ["dtype", "N"], BANDWIDTH),
        plot=charts.lines(
            results,
            [Series(ours, "tiled transpose"), torch, copy],
            "N",
            BANDWIDTH,
            PANELS,
            log="x",
        ),
        sentences={
            "torch": words(
                "transpose.torch",
                N=LONG,
                single=faster(compared[torch][single]),
                half=faster(compared[torch][half]),
            ),
        },
    )


def _without(result):
    """The time without the transpose over the time with it, for each case."""
    compared = Comparison(result.rows, OURS, [EXERCISE], by=("dtype", "N"))
    return [{**c._asdict(), "over": over} for c, over in compared[EXERCISE].items()]


def strides(results):
    rows = results[0].rows
    over = {(r["dtype"], r["N"]): r["over"] for r in _without(results[0])}
    lengths = values(rows, "N")
    least, most = min(over, key=over.get), max(over, key=over.get)
    told = {
        f"{name}_{where}": change(over[dtype, N])
        for name, dtype in (("single", "float32"), ("half", "float16"))
        for where, N in (("short", lengths[0]), ("long", lengths[-1]))
    }
    return Figure(
        finding=words(
            "strides",
            best=change(over[least]),
            best_case=_case(*least),
            worst=change(over[most]),
            worst_case=_case(*most),
        ),
        caption=words("strides.caption", heads=rows[0]["heads"], D=rows[0]["D"]),
        table=beside(
            rows,
            ["dtype", "N"],
            {named(OURS): OURS, named(EXERCISE): EXERCISE},
            more=lambda at: {"change": change(over[at["dtype"], at["N"]])},
        ),
        plot=charts.lines(
            derived(results, _without),
            [Series(EXERCISE, dtype, {"dtype": dtype}, dtype=dtype) for dtype in BOTH],
            "N",
            field("over", "time over that with the transpose", units.fraction),
            log="x",
            references=[Reference("with the transpose", 1)],
            from_zero=False,
        ),
        sentences={"saved": words("strides.saved", short=lengths[0], long=lengths[-1], **told)},
    )


def _case(dtype, N):
    return case({"dtype": dtype, "N": N}, "dtype", "N")


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
    agree = recorded and all(r["bytes_stored_recorded"] == r["bytes_stored"] for r in recorded)
    over_fused = Quantity(
        "bytes over a fused kernel's", lambda r: r["bytes_moved"] / r["bytes_fused"], units.times
    )
    fused = [
        {**r, "step": "fused", "label": "fused", "bytes_moved": r["bytes_fused"]}
        for r in totals.values()
    ]
    every = [*rows, *totals.values(), *fused]
    return Figure(
        finding=words(
            "memory_traffic",
            N=SQUARE,
            all=size(half["bytes_moved"]),
            fused=size(half["bytes_fused"]),
            ratio=ratio(over_fused(half)),
        ),
        caption=words(
            "memory_traffic.caption",
            D=half["D"],
            agreement=words("memory_traffic.agrees", N=recorded[0]["N"])
            if agree
            else words("memory_traffic.disagrees"),
        ),
        table=beside(
            every,
            ["dtype", "N"],
            {r["label"]: r["step"] for r in every},
            field("bytes_moved", "bytes", size),
            more=lambda of: {"ratio": ratio(over_fused(of["all"]))},
            name="step",
        ),
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
        sentences={
            "scores": words(
                "memory_traffic.scores",
                N=SQUARE,
                scores=size(written),
                half=of_scores("float16"),
                single=of_scores("float32"),
            ),
            "half": words(
                "memory_traffic.half",
                less=size(half["bytes_moved"] - written),
                all=size(half["bytes_moved"]),
            ),
        },
    )


def launches(results):
    rows = results[0].rows
    names = values(rows, "implementation")
    count = {name: only(rows, implementation=name, dtype="float16") for name in names}
    ours = count[OURS]
    return Figure(
        finding=words(
            "launches",
            ours=ours["launches"],
            eager=count[EAGER]["launches"],
            sdpa=count[SDPA]["launches"],
        ),
        caption=words("launches.caption", heads=ours["heads"], N=ours["N"], D=ours["D"]),
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


def allocations(results):
    rows = results[0].rows
    names = [OURS, EXERCISE, EAGER, SDPA]
    peak = field("bytes_peak", "peak memory", size)
    ours = pick(rows, implementation=OURS)
    extra = [r["bytes_peak"] - _needed(r) for r in ours]
    most = values(rows, "N")[-1]
    at = {name: only(rows, implementation=name, dtype="float16", N=most) for name in names}
    heads, D = ours[0]["heads"], ours[0]["D"]
    return Figure(
        finding=words("allocations")
        if min(extra) >= 0 and max(extra) <= 3 * PIECE  # of three tensors, each rounded up
        else words("allocations.more", extra=size(max(extra))),
        caption=words("allocations.caption", heads=heads, D=D, piece=PIECE),
        table=columns(
            rows,
            {
                "dtype": "dtype",
                "N": "N",
                "implementation": lambda r: named(r["implementation"]),
                "peak, bytes": "bytes_peak",
                "Kᵀ + scores + result, bytes": lambda r: (
                    _needed(r) if r["implementation"] == OURS else None
                ),
            },
        ),
        plot=charts.lines(results, names, "N", peak, PANELS),
        sentences={
            "peak": words(
                "allocations.peak",
                N=most,
                heads=heads,
                ours=peak.text(at[OURS]),
                eager=peak.text(at[EAGER]),
                sdpa=peak.text(at[SDPA]),
            ),
        },
    )


def _needed(row):
    return row["bytes_scores"] + row["bytes_transposed_keys"] + row["bytes_result"]


def resources(results):
    order = gpus_then_compiled(results)
    main = next(r for r in order if r.place == "gpu" or r.folder.endswith("sm_90"))
    rows = pick(main.rows)
    half = [r for r in rows if "matmul" in r["kernel"] and r["dtype"] == "float16"]
    spilled = sum(bool(r["spill_store_bytes"]) for r in rows)
    return Figure(
        finding=words(
            "resources",
            device=cell(main.label),
            spilled=spilled or "none",
            configurations=len(rows),
            spill="spills" if spilled <= 1 else "spill",
            units=", ".join(dict.fromkeys(f"`{r['tensor_core']}`" for r in half)),
        ),
        caption=words("resources.caption"),
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
    )
