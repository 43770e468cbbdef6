"""The figures of the attention_memory page: each draws the result of the same name."""

from typing import NamedTuple

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Reference, Series, View, at_ceiling
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import named
from snippets._lab.draw.limits import limit
from snippets._lab.draw.rows import (
    RATE,
    TIME,
    Quantity,
    ceiling,
    derived,
    field,
    moved,
    only,
    over,
    pick,
    ridge,
    spread,
    values,
)
from snippets._lab.draw.rows import (
    intensity as intensity_of,
)
from snippets._lab.draw.tables import columns, table
from snippets._lab.draw.units import bandwidth, binary, count, percent, ratio
from snippets._lab.draw.units import counted as size
from snippets._lab.draw.words import Words, between, cell, listed
from snippets._lab.draw.words import case as case_of

TENSORS = {
    "q": "B · H · N · D",
    "k": "B · H · N · D",
    "v": "B · H · N · D",
    "scores": "B · H · N · N",
    "weights": "B · H · N · N",
    "output": "B · H · N · D",
    "logsumexp": "B · H · N, float32",
}
NAMED = ("q", "k", "v", "scores", "output")  # the tensors of the formula softmax(q kᵀ) v
ALIKE = 0.05  # a share by which memory may differ and still be drawn as one line
words = Words(__file__)


def tensors(results):
    rows = results[0].rows
    full, half = only(rows, dtype="float32"), only(rows, dtype="float16")
    together = sum(full[name] for name in NAMED)
    fits = together <= full["card_bytes"]
    return Figure(
        finding=words("tensors", q=size(full["q"]), scores=size(full["scores"])),
        caption=words("tensors.caption", layer=_layer(full)),
        table=[
            {
                "tensor": name,
                "elements": elements,
                "bytes in float32": full[name],
                "float32": size(full[name]),
                "float16, bfloat16": size(half[name]),
            }
            for name, elements in TENSORS.items()
        ],
        open_table=True,
        sentences={
            "scores": words(
                "tensors.scores",
                factor=full["scores"] // full["q"],
                N=full["N"],
                D=full["D"],
            ),
            "named": words(
                "tensors.fits" if fits else "tensors.not",
                named=size(together),
                card=size(full["card_bytes"]),
            ),
        },
    )


def _layer(row):
    return case_of(row, "B", "H", "N", "D")


def counted(results):
    rows = results[0].rows
    first = only(rows, dtype="float32", backward=False, causal=False)
    causal = only(rows, dtype="float32", backward=False, causal=True)
    training = only(rows, dtype="float32", backward=True, causal=False)
    exact = all(r[f"{x}_formula"] == r[f"{x}_counted"] for r in rows for x in ("eager", "fused"))
    fits = first["eager_formula"] <= first["card_bytes"]
    some = columns(
        pick(rows, dtype="float32"),
        {
            "run, in float32": lambda r: _run(r) + ", causal mask" * r["causal"],
            "eager, formula": "eager_formula",
            "eager, counted": "eager_counted",
            "eager, seen from outside": "eager_seen",
            "eager": lambda r: size(r["eager_counted"]),
            "fused, counted": "fused_counted",
            "fused": lambda r: size(r["fused_counted"]),
        },
    )
    return Figure(
        finding=words(
            "counted",
            eager=size(first["eager_counted"]),
            fused=size(first["fused_counted"]),
            exact="the formulas say the same, to the byte" if exact else "the formulas are off",
        ),
        caption=words("counted.caption", layer=_layer(first)),
        table=columns(
            rows,
            {
                "dtype": "dtype",
                "run": _run,
                "mask": lambda r: "causal" if r["causal"] else "none",
                "eager, formula": "eager_formula",
                "eager, counted": "eager_counted",
                "eager, seen from outside": "eager_seen",
                "fused, formula": "fused_formula",
                "fused, counted": "fused_counted",
            },
        ),
        widget="\n".join(["<div markdown>", "", *table(some), "", "</div>"]),
        sentences={
            "peak": words(
                "counted.peak",
                eager=size(first["eager_counted"]),
                square=size(first["square"]),
                card=size(first["card_bytes"]),
                fits="fits" if fits else "does not fit",
            ),
            "training": words(
                "counted.training",
                eager=size(training["eager_counted"]),
                inside=_of_inside(training),
            ),
            "causal": words(
                "counted.causal", more=size(causal["eager_counted"] - first["eager_counted"])
            ),
            "fused": words(
                "counted.fused",
                fused=size(first["fused_counted"]),
                less=ratio(first["eager_counted"] / first["fused_counted"]),
                training=size(training["fused_counted"]),
                training_less=ratio(training["eager_counted"] / training["fused_counted"]),
            ),
        },
    )


def _run(row):
    return "training" if row["backward"] else "forward"


def _of_inside(row):
    """The rest of a training step's count: what an operation makes that nobody outside sees."""
    inside = row["eager_counted"] - row["eager_seen"]
    if inside == 0:
        return ""
    return words(
        "counted.inside",
        seen=size(row["eager_seen"]),
        inside=size(inside),
        fourth=", a fourth N × N tensor," if inside == row["square"] else "",
    )


def calculator(results):
    rows = results[0].rows
    cards = {r["card"]: r["memory_bytes"] for r in pick(rows, kind="card")}
    cases = pick(rows, kind="case")
    first = next(r for r in cases if not (r["causal"] or r["backward"]))
    sizes = (*TENSORS, "mask", "eager", "fused")
    some = [
        {
            "card": card,
            "memory": size(memory),
            **{
                f"{name}: {size(first[name])}": "fits" if first[name] <= memory else "does not fit"
                for name in ("eager", "fused")
            },
            "largest N, eager": first["largest"][f"{card}, eager"],
            "largest N, fused": first["largest"][f"{card}, fused"],
        }
        for card, memory in cards.items()
    ]
    return Figure(
        finding=words("calculator"),
        caption=words("calculator.caption"),
        table=some,
        widget="\n".join(
            [
                '<div class="am-memory" data-widget="attention_memory" markdown>',
                "[Cards and cases](/figures/attention_memory/calculator_cases.json){ .am-source }",
                "",
                f"{_layer(first)}, {first['dtype']}, forward:",
                "",
                *table(some),
                "",
                "</div>",
            ]
        ),
        extra_files={
            "calculator_cases.json": {
                "cards": [{"name": name, "bytes": str(held)} for name, held in cards.items()],
                "dtypes": [
                    {"name": r["dtype"], "size": r["size"]} for r in pick(rows, kind="dtype")
                ],
                # As text: JSON's numbers are doubles in a browser, and these are exact.
                "cases": [
                    {key: r[key] for key in ("dtype", "causal", "backward")}
                    | {key: str(r[key]) for key in ("B", "H", "N", "D", *sizes)}
                    | {"largest": {key: str(n) for key, n in r["largest"].items()}}
                    for r in cases
                ],
            }
        },
    )


EAGER, MATH, IN_BLOCKS = "torch:eager", "torch:math", "attention_memory:exercise"
SQUARE = 3  # a peak that grows by more than this when N doubles holds something of N × N
SEEN = 3  # N × N tensors that the operations of a training step hand to each other
SLACK = 4096  # bytes: a seed, an offset, a few words of workspace
# The last has every line, and so their names at their ends.
PASSES = {"forward and backward": {"backward": True}, "forward": {"backward": False}}


def peak_memory(results):
    rows = results[0].rows
    present = [name for name in values(rows, "implementation") if pick(rows, implementation=name)]
    growth = {name: _growth(_peaks(rows, name)) for name in present}
    growth = {name: x for name, x in growth.items() if x}
    eager = _peaks(rows, EAGER)
    longest = max(eager, key=lambda r: r["N"])
    off = max(abs(r["bytes_requested"] / r["bytes_eager"] - 1) for r in eager)
    refused = sorted(
        {f"{cell(r['implementation'])}: {cell(r['error'])}" for r in rows if r.get("error")}
    )
    fused = [
        r
        for name, x in growth.items()
        if x <= SQUARE and name != IN_BLOCKS
        for r in _peaks(rows, name)
        if r["N"] == longest["N"]
    ]
    least = min(fused, key=lambda r: r["bytes_peak"]) if fused else None
    by_growth = _by_growth(growth)
    alike = _alike(rows, present)
    return Figure(
        finding=words(
            "peak_memory",
            N=longest["N"],
            eager=size(longest["bytes_peak"]),
            least=f", {_named(least['implementation'])} {size(least['bytes_peak'])}"
            if least
            else "; nothing that was measured holds less than a square",
        ),
        caption=words(
            "peak_memory.caption",
            heads=longest["heads"],
            D=longest["D"],
            dtype=longest["dtype"],
            first=min(values(rows, "N")),
            last=longest["N"],
            alike=" ".join(
                words("peak_memory.alike", first=_named(first), others=listed(map(_named, others)))
                for first, *others in alike
                if others
            ),
            refused=f" Without a value: {'; '.join(refused)}." if refused else "",
        ),
        table=columns(
            rows,
            {
                "run": lambda r: "forward and backward" if r["backward"] else "forward",
                "N": "N",
                "implementation": "implementation",
                "peak, bytes": lambda r: r.get("bytes_peak"),
                "asked for, bytes": lambda r: r.get("bytes_requested"),
                "eager formula, bytes": "bytes_eager",
                "fused formula, bytes": "bytes_fused",
                "no value because": lambda r: r.get("error"),
            },
        ),
        plot=charts.lines(
            derived(results, _with_formulas),
            [
                _formula("eager"),
                _formula("fused"),
                *(Series(names[0], _one_of(names), told=_told) for names in alike),
            ],
            "N",
            field("bytes_peak", "most memory", units.size),
            PASSES,
        ),
        sentences={
            "growth": words(
                "peak_memory.growth",
                growth="; ".join(
                    f"{said} for {listed(map(_named, names))}" for said, names in by_growth.items()
                ),
                last=" " + words("peak_memory.budget")
                if list(by_growth.values())[-1] == [IN_BLOCKS]
                else "",
            ),
            "formula": words("peak_memory.off", off=percent(off))
            if off
            else words("peak_memory.exact"),
            "training": _of_training(rows, longest["N"]),
            "fused": _of_fused(fused),
            "bump": _bump(rows, [r["implementation"] for r in fused]),
            "math": _of_math(rows, longest),
        },
    )


def _formula(kind):
    where = {"implementation": f"bytes_{kind}"}
    return Series("ceiling", f"formula, {kind}", where, width=7, size=0.1, told=_told)


def _alike(rows, names):
    """The names in groups whose members hold the same, within a twentieth, wherever both ran."""
    held = {
        name: {(r["backward"], r["N"]): r["bytes_peak"] for r in pick(rows, implementation=name)}
        for name in names
    }
    groups = []
    for name in sorted(names, key=lambda n: -len(held[n])):  # the longest line first
        for group in groups:
            first = held[group[0]]
            both = first.keys() & held[name].keys()
            if both and all(abs(held[name][at] / first[at] - 1) < ALIKE for at in both):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def _one_of(names):
    """What a line is called that stands for several."""
    more = len(names) - 1
    return f"{named(names[0])} and {more} more" if more else named(names[0])


def _with_formulas(result):
    """What was measured, and each formula as if it were an implementation."""
    yield from pick(result.rows)
    shown = {(r["backward"], r["N"]): r for r in result.rows}
    for formula in ("bytes_eager", "bytes_fused"):
        for row in shown.values():
            at = {key: row[key] for key in ("backward", "N", "heads", "D")}
            yield {**at, "implementation": formula, "bytes_peak": row[formula]}


def _told(row):
    return f"N {count(row['N'])}: {units.size(row['bytes_peak'])}"


def _peaks(rows, implementation, backward=False):
    return pick(rows, implementation=implementation, backward=backward)


def _growth(rows):
    """By what the peak grows when N doubles from the longest but one to the longest; or None."""
    found = sorted((r["N"], r["bytes_peak"]) for r in rows)
    if len(found) < 2 or found[-1][0] != 2 * found[-2][0]:
        return None
    return found[-1][1] / found[-2][1]


def _named(name):
    """An implementation in a sentence: our functions as code."""
    said = named(name)
    return f"`{name}`" if said == name else said


def _by_growth(growth):
    """ "4.0×" → the implementations whose peak grows so, the steepest first."""
    found = {}
    for name, x in growth.items():
        found.setdefault(f"{units.decimals(x, 1)}×", []).append(name)
    return dict(sorted(found.items(), key=lambda item: -growth[item[1][0]]))


def _of_training(rows, N):
    """What forward and backward ask for beside the formula, at one N and, for eager, at all."""
    both = _peaks(rows, EAGER, backward=True)
    if not both:
        return words("peak_memory.none")
    last = only(both, N=N)
    text = words(
        "peak_memory.training",
        N=N,
        asked=size(last["bytes_requested"]),
        formula=size(last["bytes_eager"]),
        difference=_difference(rows, both, last),
    )
    fused = [r for r in pick(rows, backward=True, N=N) if r["implementation"] not in (EAGER, MATH)]
    if not fused:
        return text
    more = any(r["bytes_requested"] > r["bytes_fused"] for r in fused)
    some = [f"{size(r['bytes_requested'])} for {_named(r['implementation'])}" for r in fused]
    return (
        text
        + " "
        + words(
            "peak_memory.backends",
            asked=listed(some),
            formula=size(last["bytes_fused"]),
            workspace=": more is workspace of their own, which no formula here knows."
            if more
            else ".",
        )
    )


def _difference(rows, both, last):
    """How far eager training is from the formula at every N, counted in N × N tensors."""
    # The N × N tensor of a row, by the formula for a forward: scores and weights, two of them.
    square = {r["N"]: r["bytes_eager"] / 2 for r in _peaks(rows, EAGER)}
    each = {(r["bytes_requested"] - r["bytes_eager"]) / square[r["N"]] for r in both}
    squares = last["bytes_eager"] // square[last["N"]]
    if each == {0}:
        text = words("peak_memory.same", squares=count(squares))
        return text + " " + words("peak_memory.inside") if squares > SEEN else text
    if len(each) == 1:
        (more,) = each
        tensors = "one N × N tensor" if abs(more) == 1 else f"{cell(abs(more))} N × N tensors"
        return f"at every N exactly {tensors} {'more' if more > 0 else 'less'}."
    off = max(abs(r["bytes_requested"] / r["bytes_eager"] - 1) for r in both)
    return f"the difference is at most {percent(off)}."


def _bump(rows, names):
    """A fused kernel that holds far more than its formula at one N, and why if the sum says it."""
    found = [
        r
        for name in names
        if name != IN_BLOCKS
        for r in _peaks(rows, name)
        if r["bytes_requested"] > 1.5 * r["bytes_fused"]
    ]
    if len(found) != 1:
        return ""
    (row,) = found
    text = words(
        "peak_memory.bump",
        who=_named(row["implementation"]),
        N=row["N"],
        asked=size(row["bytes_requested"]),
        formula=size(row["bytes_fused"]),
    )
    # A part of the keys has a result and a logsumexp of its own, in float32.
    parts, rest = divmod(
        row["bytes_requested"] - row["bytes_fused"], 4 * row["heads"] * row["N"] * (row["D"] + 1)
    )
    if parts > 1 and rest < SLACK:
        text += " " + words("peak_memory.parts", parts=parts)
    return text


def _of_math(rows, eager):
    math = pick(rows, implementation=MATH, backward=False, N=eager["N"])
    if not math:
        return words("peak_memory.no_math")
    share = math[0]["bytes_peak"] / eager["bytes_peak"]
    text = words(
        "peak_memory.math", N=eager["N"], math=size(math[0]["bytes_peak"]), share=ratio(share)
    )
    if share <= 1.5:
        return text
    visible = words("peak_memory.visible") if share > 2.1 else ""
    return text + " " + words("peak_memory.float32", visible=visible)


def _of_fused(fused):
    if not fused:
        return words("peak_memory.no_fused")
    beside = {r["implementation"]: r["bytes_requested"] - r["bytes_fused"] for r in fused}
    logsumexp = 4 * fused[0]["heads"] * fused[0]["N"]
    exact = [name for name, x in beside.items() if 0 <= x <= SLACK]
    without = [name for name, x in beside.items() if 0 <= x + logsumexp <= SLACK]
    parts = [
        f"{said} for {listed(map(_named, names))}"
        for said, names in (
            ("the formula's bytes", exact),
            (f"the logsumexp, {size(logsumexp)}, less", without),
        )
        if names
    ]
    parts += [
        f"{size(abs(x))} {'more' if x > 0 else 'less'} for {_named(name)}"
        for name, x in beside.items()
        if name not in (*exact, *without)
    ]
    small = max(0 < x % logsumexp <= SLACK for x in beside.values())
    return words(
        "peak_memory.fused",
        N=fused[0]["N"],
        within=f" and within {size(SLACK)}" if small else "",
        parts="; ".join(parts),
    )


class _Level(NamedTuple):
    """A level of the hierarchy."""

    total: int | None  # bytes of all
    one: int | None  # bytes of a multiprocessor's
    rate: float  # bytes/s
    how: str  # it was found


LOADED = over("bytes_loaded", "bandwidth")


def hierarchy(results):
    levels = _levels(results[0])
    sizes = only(results[0].rows, kind="sizes")
    sets = values(pick(results[0].rows, kind="walk"), "set_bytes")
    hbm = levels["HBM"].rate
    times = {name: level.rate / hbm for name, level in levels.items() if name != "HBM"}
    shared, l2 = sizes["shared_bytes"], sizes["l2_bytes"]
    bands = [
        (sets[0], shared, "shared memory"),
        (shared, l2, "L2"),
        (l2, sets[-1], "HBM"),
    ]
    return Figure(
        finding=words(
            "hierarchy",
            levels=", ".join(
                f"{name} {'at least ' * level.how.startswith('at least')}{bandwidth(level.rate)}"
                for name, level in levels.items()
            ),
        ),
        caption=words("hierarchy.caption"),
        table=[
            {
                "level": name,
                "in all": binary(level.total) if level.total else "–",
                "of a multiprocessor": binary(level.one) if level.one else "–",
                "bandwidth": bandwidth(level.rate),
                "beside HBM": ratio(level.rate / hbm),
                "how": level.how,
            }
            for name, level in levels.items()
        ],
        plot=charts.lines(
            results,
            [
                Series(
                    "attention_memory",
                    "measured",
                    {"kind": "walk"},
                    told=lambda r: f"{LOADED.text(r)}<br>{spread(r)}",
                )
            ],
            field("set_bytes", "working set", binary),
            LOADED,
            [View(bands=bands)],
            references=[
                Reference("L1, shared memory", _size_of("shared_bytes"), "x"),
                Reference("L2", _size_of("l2_bytes"), "x"),
                at_ceiling("read", "HBM, the ceiling"),
            ],
            ticks={"x": sets[::3]},
        ),
        sentences={
            "sizes": words(
                "hierarchy.sizes",
                many=sizes["multiprocessors"],
                registers=binary(sizes["registers_bytes"]),
                shared=binary(shared),
                program=binary(sizes["shared_bytes_program"]),
                l2=binary(l2),
                memory=size(sizes["memory_bytes"]),
            ),
            "times": words(
                "hierarchy.times",
                times=", ".join(f"{name} {ratio(x)}" for name, x in times.items()),
            ),
            "one_head": words(
                "hierarchy.one_head",
                registers=_longest(sizes["registers_bytes"]),
                shared=_longest(shared),
                l2=_longest(l2),
            ),
            "card": words("hierarchy.card", memory=size(sizes["memory_bytes"])),
        },
    )


def _levels(result):
    """Levels of the hierarchy by name, from the nearest to the farthest."""
    sizes = only(result.rows, kind="sizes")
    walks = pick(result.rows, kind="walk")
    many = sizes["multiprocessors"]

    def largest(most):
        """Bytes a second of the largest working set of at most so many bytes."""
        return LOADED(max((r for r in walks if r["set_bytes"] <= most), key=_set_bytes))

    registers, shared = sizes["registers_bytes"], sizes["shared_bytes"]
    return {
        "registers": _Level(
            many * registers,
            registers,
            4 * ceiling(result, "fma_float32"),
            words("hierarchy.registers"),
        ),
        "shared memory": _Level(
            many * shared,
            shared,
            moved(only(result.rows, kind="turn"), "bytes_shared"),
            words("hierarchy.shared"),
        ),
        "L1": _Level(None, None, largest(shared // 2), words("hierarchy.L1")),
        "L2": _Level(
            sizes["l2_bytes"], None, largest(sizes["l2_bytes"] // 2), words("hierarchy.L2")
        ),
        "HBM": _Level(sizes["memory_bytes"], None, ceiling(result, "read"), words("hierarchy.HBM")),
    }


def _set_bytes(row):
    return row["set_bytes"]


def _size_of(name):
    """A size that a device tells, for a line across the chart."""
    return lambda result: only(result.rows, kind="sizes")[name]


def _longest(held):
    """The longest N whose N × N scores of one head in float16 fit into so many bytes."""
    return int((held // 2) ** 0.5)


WORKS = {
    "eager, all": "eager, all of it",
    "eager: q · kᵀ": "eager, q · kᵀ",
    "eager: softmax": "eager, softmax",
    "eager: weights · v": "eager, weights · v",
    "SDPA": "fused (SDPA)",
    "decode": "one query, a cache",
}
STEPS = {
    "q · kᵀ": "eager: q · kᵀ",
    "softmax": "eager: softmax",
    "weights · v": "eager: weights · v",
}
LIMITS = ("memory", "arithmetic", "neither")
FLOP_A_BYTE = Quantity("FLOP per byte", lambda r: intensity_of(r, "bytes_moved"))


def intensity(results):
    limited = derived(results, _with_limits)
    rows = limited[0].rows
    of = {work: pick(rows, work=work) for work in WORKS}
    eager, sdpa, decode = (of[work] for work in ("eager, all", "SDPA", "decode"))
    edge = ridge(results[0], "matmul_float16", "read")
    return Figure(
        finding=words(
            "intensity", eager=_reached(eager), fused=_reached(sdpa), decode=_reached(decode)
        ),
        caption=words("intensity.caption", heads=sdpa[0]["heads"], decoding=decode[0]["heads"]),
        table=columns(
            rows,
            {
                "work": "work",
                "queries": "M",
                "keys": "N",
                "D": "D",
                "FLOP per byte": FLOP_A_BYTE,
                "time": TIME,
                "rate": RATE,
                "bandwidth": over("bytes_moved"),
                "of memory's ceiling": field("memory", unit=percent),
                "of arithmetic's ceiling": field("arithmetic", unit=percent),
                "at least half of": "limit",
            },
        ),
        plot=charts.roofline(
            limited,
            [
                Series(
                    by, "", {"limit": by}, joined=False, told=lambda r: f"{_case(r)}: {spread(r)}"
                )
                for by in LIMITS
            ],
            FLOP_A_BYTE.called("FLOP for each byte that moves"),
            roofs={"matmul_float16": "the most this GPU does"},
            memory="read",
            views=[View(title, {"work": work}) for work, title in WORKS.items()],
            columns=3,
            height=200,
        ),
        sentences={
            "ridge": words("intensity.ridge", ridge=count(edge)),
            "steps": words(
                "intensity.steps",
                steps="; ".join(
                    f"{step} has {_range(of[work])} FLOP per byte and reaches "
                    f"{_reached(of[work])} ceiling"
                    for step, work in STEPS.items()
                ),
            ),
            "softmax": _of_softmax(of, results[0]),
            "fused": words(
                "intensity.fused",
                range=_range(sdpa),
                ridge=_against_ridge(sdpa, edge),
                reached=_reached(sdpa),
            ),
            "decode": words("intensity.decode", range=_range(decode), reached=_reached(decode)),
            "claim_bound": words(
                "intensity.claim",
                eager=_reached(eager),
                fused=_reached(sdpa),
                decode=_reached(decode),
            ),
        },
    )


def _with_limits(result):
    """The rows, each with what limits it and the shares of both ceilings."""
    for row in pick(result.rows):
        found = limit(row, result, "bytes_moved")
        about = {"limit": found.by, "memory": found.memory, "arithmetic": found.arithmetic}
        yield {**row, **about}


def _case(row):
    where = f"{count(row['N'])} keys" if row["M"] == 1 else f"N {count(row['N'])}"
    return f"{where}, D {row['D']}"


def _of_softmax(of, result):
    """What is left of eager attention's time beside its two products, and what it does with it."""
    at = {work: {(r["N"], r["D"]): r for r in rows} for work, rows in of.items()}
    left, speed = [], []
    for case, row in at["eager, all"].items():
        products = sum(TIME(at[STEPS[step]][case]) for step in ("q · kᵀ", "weights · v"))
        rest = {**at[STEPS["softmax"]][case], "ms_p50": TIME(row) - products}
        left.append(TIME(rest) / TIME(row))
        speed.append(moved(rest, "bytes_moved") / ceiling(result, "read"))
    return words(
        "intensity.softmax",
        products=between([1 - x for x in left], percent),
        rest=between(left, percent),
        speed=between(speed, percent),
    )


def _range(rows):
    """The FLOPs for each byte of some rows: "42" or "31 to 62"."""
    return between(map(FLOP_A_BYTE, rows), units.significant)


def _reached(rows):
    """How much of the nearer ceiling some rows reach: "43 to 52 % of memory's"."""
    near = {
        name: [r[name] for r in rows if r[name] == max(r["memory"], r["arithmetic"])]
        for name in ("memory", "arithmetic")
    }
    return listed(f"{between(x, percent)} of {name}'s" for name, x in near.items() if x)


def _against_ridge(rows, edge):
    above = [r for r in rows if FLOP_A_BYTE(r) > edge]
    if len(above) == len(rows):
        return "All of these lie beyond the ridge."
    if not above:
        return "None of these reaches the ridge."
    return f"Beyond the ridge are {'; '.join(map(_case, above))}."


MASKS = {"none": "no mask", "causal": "is_causal", "bool": "bool mask", "float": "float mask"}


def backends(results):
    rows = results[0].rows
    chosen, forced = pick(rows, kind="chosen"), pick(rows, kind="forced")
    shapes, dtypes = values(chosen, "shape"), values(chosen, "dtype")
    masks = [mask for mask in MASKS if mask in values(chosen, "mask")]
    taken = {
        (r["dtype"], r["shape"], r["mask"]): r["backend"].replace("cudnn", "cuDNN") for r in chosen
    }
    # dtypes that get the same answer everywhere share a row
    groups = {}
    for dtype in dtypes:
        answers = tuple(taken[dtype, shape, mask] for shape in shapes for mask in masks)
        groups.setdefault(answers, []).append(dtype)
    open_rows = []
    for group in groups.values():
        alike = {}  # and so do shapes
        for shape in shapes:
            answers = tuple(taken[group[0], shape, mask] for mask in masks)
            alike.setdefault(answers, []).append(shape)
        open_rows += [
            {"dtype": ", ".join(group), "shape": "; ".join(some)}
            | {MASKS[mask]: backend for mask, backend in zip(masks, answers, strict=True)}
            for answers, some in alike.items()
        ]
    counts = {}
    for backend in taken.values():
        counts[backend] = counts.get(backend, 0) + 1
    order = sorted(counts, key=lambda b: (-counts[b], b))
    about = chosen[0]
    return Figure(
        finding=words(
            "backends",
            calls=len(taken),
            taken=", ".join(f"{backend} for {counts[backend]}" for backend in order),
        ),
        caption=words(
            "backends.caption",
            device=cell(results[0].label),
            torch=cell(results[0].versions["torch"]),
            batch=about["batch"],
            heads=about["heads"],
            keys=about["N"],
        ),
        table=columns(
            chosen,
            {
                "dtype": "dtype",
                "shape": "shape",
                "mask": lambda r: MASKS[r["mask"]],
                "taken": "backend",
                "possible, fused": lambda r: ", ".join(r["possible"]) or "none",
                "longest kernel": "kernel",
            },
        ),
        widget="\n".join(
            ['<div class="am-backends" markdown>', "", *table(open_rows), "", "</div>"]
        ),
        sentences={
            "rule": " ".join(
                f"In {listed(group)} {_by_mask(taken, group[0], shapes, masks)}."
                for group in groups.values()
            ),
            "math": _at_math(chosen),
            "forced": _of_forced(forced),
        },
    )


def _by_mask(taken, dtype, shapes, masks):
    """The backends at one dtype as words: masks with the same answers together."""
    found = {}
    for mask in masks:
        found.setdefault(_by_backend(taken, dtype, shapes, mask), []).append(mask)
    if len(found) == 1:
        return f"{next(iter(found))}, whatever the mask"
    return "; ".join(
        f"{said} with {listed(MASKS[mask] for mask in same)}" for said, same in found.items()
    )


def _by_backend(taken, dtype, shapes, mask):
    """Which backend for which shapes, at one dtype and mask: "flash", or by shape."""
    found = {}
    for shape in shapes:
        found.setdefault(taken[dtype, shape, mask], []).append(shape)
    if len(found) == 1:
        return f"it takes *{next(iter(found))}* for every shape"
    most = max(found, key=lambda backend: len(found[backend]))
    others = ", ".join(
        f"*{backend}* for {', '.join(some)}" for backend, some in found.items() if backend != most
    )
    return f"it takes *{most}*, but {others}"


def _at_math(chosen):
    slow = pick(chosen, backend="math")
    if not slow:
        return words("backends.no_math")
    found = {}
    for r in slow:
        found.setdefault((r["dtype"], r["shape"]), []).append(r["mask"])
    every = len(values(chosen, "mask"))
    cases = (
        f"{dtype}, {shape}, "
        + ("any mask" if len(masks) == every else listed(MASKS[mask] for mask in masks))
        for (dtype, shape), masks in found.items()
    )
    return words("backends.math", cases="; ".join(cases))


def _of_forced(forced):
    refused = [r for r in forced if r["refused"]]
    if not refused:
        return words("backends.all")
    by_dtype = {}
    for r in refused:
        by_dtype.setdefault(r["dtype"], []).append(f"`{r['forced']}`")
    return words(
        "backends.refused",
        which="; ".join(f"{dtype} by {listed(names)}" for dtype, names in by_dtype.items()),
        said=refused[0]["refused"].replace("`", ""),
    )
