"""The figures of the attention_memory page: each draws the result of the same name."""

from collections import Counter
from typing import NamedTuple

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.gpu import walked
from snippets._lab.draw.limits import limit
from snippets._lab.draw.rows import (
    TIME,
    Quantity,
    ceiling,
    derived,
    field,
    moved,
    only,
    pick,
    ridge,
    spread,
    values,
)
from snippets._lab.draw.tables import case as case_of
from snippets._lab.draw.tables import cell, table, widget
from snippets._lab.draw.units import bandwidth, between, binary, count, percent, ratio
from snippets._lab.draw.units import counted as size

NAMED = ("q", "k", "v", "scores", "output")  # the tensors of the formula softmax(q kᵀ) v
PAGE = "docs/posts/attention_memory.md"
SDPA = "docs/how_to/sdpa_backends.md"


def tensors(rows):
    full = only(rows, dtype="float32")
    together = sum(full[name] for name in NAMED)
    return Figure(
        finding=f"q, k, v and the result take {size(full['q'])} each, the scores "
        f"{size(full['scores'])}: {_layer(full)}, bytes by formula.",
        numbers={
            "q": size(full["q"]),
            "together": size(together),
            "card": size(full["card_bytes"]),
        },
    )


def _layer(row):
    return case_of(row, "B", "H", "N", "D")


def counted(rows):
    first = only(rows, dtype="float32", backward=False, causal=False)
    causal = only(rows, dtype="float32", backward=False, causal=True)
    training = only(rows, dtype="float32", backward=True, causal=False)
    square, inside = first["square"], training["eager_counted"] - training["eager_seen"]
    return Figure(
        finding=f"At its peak eager attention holds {size(first['eager_counted'])}, a fused "
        f"operation {size(first['fused_counted'])}; the formulas say the same, to the byte.",
        numbers={
            "eager": size(first["eager_counted"]),
            "square": size(square),
            "training": size(training["eager_counted"]),
            "mask": size(causal["eager_counted"] - first["eager_counted"]),
            "fused": size(first["fused_counted"]),
            "less": ratio(first["eager_counted"] / first["fused_counted"]),
            "fused_training": size(training["fused_counted"]),
        },
        claims={
            f"{PAGE}: nothing is rounded, so no difference is allowed": all(
                r[f"{x}_formula"] == r[f"{x}_counted"] for r in rows for x in ("eager", "fused")
            ),
            f"{PAGE}: it runs out of memory": first["eager_formula"] > first["card_bytes"],
            f"{PAGE}: The fourth hides inside an operation": inside == square
            and training["eager_counted"] // square == 4,
        },
    )


EAGER, MATH, IN_BLOCKS = "torch:eager", "torch:math", "attention_memory:exercise"
SQUARE = 3  # a peak that grows by more than this when N doubles holds something of N × N
SLACK = 4096  # bytes: a seed, an offset, a few words of workspace
FLASH = "torch:flash"
BACKENDS = (FLASH, "torch:cudnn", "torch:efficient")
BUMP = 512  # where FlashAttention-2 splits the keys
PASSES = {"forward and backward": {"backward": True}, "forward": {"backward": False}}


def peak_memory(results, rows):
    peaks = {name: _peaks(rows, name) for name in values(pick(rows), "implementation")}
    growth = {name: _growth(found) for name, found in peaks.items() if len(found) > 1}
    steep = {name for name, x in growth.items() if x > SQUARE}
    fused = [name for name in growth if name not in steep and name != IN_BLOCKS]
    eager, trained = peaks[EAGER], _peaks(rows, EAGER, backward=True)
    longest = max(eager, key=lambda r: r["N"])
    at_longest = {r["implementation"]: r for n in fused for r in pick(peaks[n], N=longest["N"])}
    math = only(peaks[MATH], N=longest["N"])["bytes_peak"]
    least = min(at_longest, key=lambda name: at_longest[name]["bytes_peak"])
    last = only(trained, N=longest["N"])
    workspace = [only(_peaks(rows, name, True), N=longest["N"]) for name in BACKENDS]
    bump = only(peaks[FLASH], N=BUMP)
    # A part of the keys has a result and a logsumexp of its own, in float32.
    parts, rest = divmod(
        bump["bytes_requested"] - bump["bytes_fused"], 4 * bump["heads"] * BUMP * (bump["D"] + 1)
    )
    return Figure(
        finding=f"At N {count(longest['N'])} eager attention holds {size(longest['bytes_peak'])} "
        f"on top of its inputs, a fused kernel {size(at_longest[least]['bytes_peak'])}.",
        caption=f"Most memory of one call on top of q, k and v: {longest['heads']} heads of D "
        f"{longest['D']}, {longest['dtype']}, by `torch.cuda.max_memory_allocated`; both axes "
        "logarithmic. Broad and gray: the formulas. PyTorch hands out memory in pieces, so a "
        "little more may be held than was asked for.",
        plot=charts.lines(
            derived(results, _with_formulas),
            [
                _formula("eager"),
                _formula("fused"),
                Series(EAGER, told=_told),
                Series(MATH, told=_told),
                *(Series(name, told=_told) for name in BACKENDS[:2]),
            ],
            "N",
            field("bytes_peak", "most memory", units.size),
            PASSES,
        ),
        numbers={
            "n": longest["N"],
            "workspace": between([r["bytes_requested"] for r in workspace], size),
            "formula": size(last["bytes_fused"]),
            "bump_n": BUMP,
            "bump": size(bump["bytes_requested"]),
            "bump_formula": size(bump["bytes_fused"]),
            "parts": int(parts),
            "math": size(math),
            "math_share": ratio(math / longest["bytes_peak"]),
        },
        claims={
            f"{PAGE}: Eager attention allocates what the count says, to the byte, at every N": all(
                r["bytes_requested"] == r["bytes_eager"] for r in (*eager, *trained)
            ),
            f"{PAGE}: training by nearly four; for the fused kernels": round(growth[EAGER]) == 4
            and {round(growth[name]) for name in fused} == {2},
            f"{PAGE}: The rest is workspace": all(
                r["bytes_requested"] > r["bytes_fused"] for r in workspace
            ),
            f"{SDPA}: *Flash* can hold more than its output": [
                (r["implementation"], r["N"])
                for name in fused
                for r in peaks[name]
                if r["bytes_requested"] > 1.5 * r["bytes_fused"]
            ]
            == [(FLASH, BUMP)],
            f"{SDPA}: FlashAttention-2 splits the keys into": parts > 1 and rest < SLACK,
            f"{SDPA}: so its N × N tensors are twice as large": math > 2 * longest["bytes_peak"],
        },
    )


def _formula(kind):
    where = {"implementation": f"bytes_{kind}"}
    return Series("ceiling", f"formula, {kind}", where, width=7, size=0.1, told=_told)


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
    """By what the peak grows when N doubles from the longest but one to the longest."""
    before, last = sorted(rows, key=lambda r: r["N"])[-2:]
    assert last["N"] == 2 * before["N"]
    return last["bytes_peak"] / before["bytes_peak"]


def calculator(rows):
    cards = {r["card"]: r["memory_bytes"] for r in pick(rows, kind="card")}
    cases = pick(rows, kind="case")
    first = next(r for r in cases if not (r["causal"] or r["backward"]))
    sizes = *NAMED, "weights", "logsumexp", "mask", "eager", "fused"
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
        finding="What one attention layer needs, and the longest N that fits.",
        caption="Peak of one layer's attention alone, forward or forward and backward: model, "
        "optimizer, other layers, driver and allocator come on top. A card's memory is the number "
        "of its data sheet times 1e9 bytes, which can be several percent off; for the H200 it is "
        "what the device says. The formulas are those of module.py, written once more in "
        "JavaScript; a test compares both on the same cases.",
        table=some,
        widget=widget(
            "memory",
            "attention_memory",
            "[Cards and cases](/figures/attention_memory/calculator_cases.json)",
            some,
            f"{_layer(first)}, {first['dtype']}, forward:",
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


class _Level(NamedTuple):
    """A level of the hierarchy."""

    total: int | None  # bytes of all
    one: int | None  # bytes of a multiprocessor's
    rate: float  # bytes/s
    how: str  # it was found


def hierarchy(results):
    levels = _levels(results[0])
    sizes = only(results[0].rows, kind="sizes")
    hbm = levels["HBM"].rate
    times = {name: level.rate / hbm for name, level in levels.items() if name != "HBM"}
    shared, l2 = sizes["shared_bytes"], sizes["l2_bytes"]
    return Figure(
        finding="What each level of memory delivers, measured: "
        + ", ".join(
            f"{name} {'at least ' * level.how.startswith('at least')}{bandwidth(level.rate)}"
            for name, level in levels.items()
        )
        + ".",
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
        numbers={
            "registers_times": ratio(times["registers"]),
            "shared_times": ratio(times["shared memory"]),
            "l2_times": ratio(times["L2"]),
            "registers_n": _longest(sizes["registers_bytes"]),
            "shared_n": _longest(shared),
            "l2_n": _longest(l2),
        },
    )


def _levels(result):
    """Levels of the hierarchy by name, from the nearest to the farthest."""
    sizes = only(result.rows, kind="sizes")
    many = sizes["multiprocessors"]
    registers, shared = sizes["registers_bytes"], sizes["shared_bytes"]
    return {
        "registers": _Level(
            many * registers,
            registers,
            4 * ceiling(result, "fma_float32"),
            "at least: the float32 ceiling, one register read and one written for two FLOPs",
        ),
        "shared memory": _Level(
            many * shared,
            shared,
            moved(only(result.rows, kind="turn"), "bytes_shared"),
            "at least: tiles turned on chip, each word written and read once an iteration",
        ),
        "L1": _Level(
            None,
            None,
            walked(result, shared // 2),
            "read again and again, the largest working set of at most half a multiprocessor's "
            "memory; the same memory as shared memory",
        ),
        "L2": _Level(
            sizes["l2_bytes"],
            None,
            walked(result, sizes["l2_bytes"] // 2),
            "the same kernel, the largest working set of at most half of L2: in smaller ones "
            "several programs are at the same place at once, and can share what comes",
        ),
        "HBM": _Level(
            sizes["memory_bytes"],
            None,
            ceiling(result, "read"),
            "reading once what is many times L2: the ceiling of this run",
        ),
    }


def _longest(held):
    """The longest N whose N × N scores of one head in float16 fit into so many bytes."""
    return int((held // 2) ** 0.5)


PRODUCTS, SOFTMAX = ("eager: q · kᵀ", "eager: weights · v"), "eager: softmax"
WORKS = ("eager, all", *PRODUCTS, SOFTMAX, "SDPA", "decode")
SHOWN = {  # operation and N → what is written beside its dot, and where
    ("eager: q · kᵀ", 4096): ("both products, N 4096", "bottom right"),
    ("eager: weights · v", 4096): ("", ""),
    ("eager: softmax", 4096): ("softmax, N 4096", "middle right"),
    ("eager, all", 4096): ("eager, N 4096", "bottom right"),
    ("SDPA", 2048): ("fused, N 2048", "bottom center"),
    ("SDPA", 32_768): ("fused, N 32,768", "top left"),
    ("decode", 16_384): ("one query, 16,384 keys", "middle right"),
}
FLOP_A_BYTE = Quantity("FLOP per byte", lambda r: r["flops"] / r["bytes_moved"])


def intensity(results):
    limited = derived(results, _with_limits)
    rows = limited[0].rows
    of = {work: pick(rows, work=work) for work in WORKS}
    eager, sdpa, decode = (of[work] for work in ("eager, all", "SDPA", "decode"))
    edge = ridge(results[0], "matmul_float16", "read")
    near = {"eager": eager, "fused": sdpa, "decode": decode}
    reached = {name: _reached(some) for name, some in near.items()}
    softmax, speed = _softmax(of, results[0])
    (cache,) = (N for work, N in SHOWN if work == "decode")
    products = [r for work in PRODUCTS for r in of[work]]
    return Figure(
        finding=f"Eager attention reaches {reached['eager']} ceiling, fused attention "
        f"{reached['fused']} ceiling.",
        caption=f"Some of these cases in float16: {sdpa[0]['heads']} heads of 64 columns; one "
        f"query with {decode[0]['heads']} heads of 128. FLOPs and bytes by formula, each tensor "
        "that an operation reads or writes moved once; both axes logarithmic. A dot has the "
        "color of its nearer ceiling. Ceilings measured in the same run, memory's by reading.",
        plot=charts.roofline(
            limited,
            [_dot(of, work, N, *label) for (work, N), label in SHOWN.items()],
            FLOP_A_BYTE.called("FLOP for each byte that moves"),
            {"matmul_float16": "the most this GPU does"},
        ),
        numbers={
            "ridge": count(edge),
            "products_flop": _range(products),
            "softmax_flop": _range(of[SOFTMAX]),
            "softmax": between(softmax, percent),
            "softmax_speed": between(speed, percent),
            "products_speed": between([r["memory"] for r in products], percent),
            "decode": percent(only(decode, N=cache)["memory"]),
            "decode_n": cache,
            "fused_flop": _range(sdpa),
            "decode_flop": _range(decode),
            **{
                name: between([max(r["memory"], r["arithmetic"]) for r in near[name]], percent)
                for name in ("eager", "fused")
            },
        },
        claims={
            f"{PAGE}: The softmax uses least": max(r["memory"] for r in of[SOFTMAX])
            < min(r["memory"] for r in products),
            f"{PAGE}: all below the ridge": max(map(FLOP_A_BYTE, products + of[SOFTMAX])) < edge,
            f"{PAGE}: can at best run at memory's speed, and doesn't reach it": _near(eager)
            == {"memory"}
            and max(r["memory"] for r in eager) < 2 / 3,
            f"{PAGE}: Neither ceiling explains that": max(speed) < 1 / 2,
            f"{PAGE}: **Fused attention with many queries is not memory-bound": _near(sdpa)
            == {"arithmetic"}
            and min(map(FLOP_A_BYTE, sdpa)) > edge,
            f"{PAGE}: **Decoding with a long cache is memory-bound": _near(decode) == {"memory"},
        },
    )


def _dot(of, work, N, label, where):
    """One case, in the color of its nearer ceiling, and what stands beside it."""
    D = 128 if work == "decode" else 64
    (near,) = _near(pick(of[work], N=N, D=D))
    case = {"work": work, "N": N, "D": D}
    return Series(near, "", case, joined=False, told=spread, label=(label, where))


def _with_limits(result):
    """The rows, each with what limits it and the shares of both ceilings."""
    for row in pick(result.rows):
        yield {**row, **limit(row, result, "bytes_moved")._asdict()}


def _softmax(of, result):
    """Each case's share of the time beside the two products, and the share of memory's ceiling."""
    at = {work: {(r["N"], r["D"]): r for r in rows} for work, rows in of.items()}
    left, speed = [], []
    for case, row in at["eager, all"].items():
        products = sum(TIME(at[work][case]) for work in PRODUCTS)
        rest = {**at[SOFTMAX][case], "ms_p50": TIME(row) - products}
        left.append(TIME(rest) / TIME(row))
        speed.append(moved(rest, "bytes_moved") / ceiling(result, "read"))
    return left, speed


def _range(rows):
    """The FLOPs for each byte of some rows: "42" or "31 to 62"."""
    return between(map(FLOP_A_BYTE, rows), units.significant)


def _near(rows):
    """The ceilings that are the nearer one for some rows."""
    return {"memory" if r["memory"] > r["arithmetic"] else "arithmetic" for r in rows}


def _reached(rows):
    """How much of the nearer ceiling some rows reach: "43 to 52 % of memory's"."""
    (near,) = _near(rows)
    return f"{between([r[near] for r in rows], percent)} of {near}'s"


GROUPED = "D 64, 2 heads of k and v"
MASKS = {"none": "no mask", "causal": "is_causal", "bool": "bool mask", "float": "float mask"}


def backends(results, rows):
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
    counts = Counter(taken.values())
    half = {r["backend"] for r in chosen if r["dtype"] != "float32"}
    single = pick(chosen, dtype="float32")
    math = {r["shape"] for r in pick(chosen, backend="math")}
    refused = {(r["dtype"], r["forced"]) for r in forced if r["refused"]}
    about = chosen[0]
    return Figure(
        finding=f"Of {len(taken)} kinds of call SDPA takes "
        + ", ".join(f"{backend} for {number}" for backend, number in counts.most_common())
        + ".",
        caption="The backend that `F.scaled_dot_product_attention` took by itself on "
        f"{cell(results[0].label)} with torch {cell(results[0].versions['torch'])}, as the "
        f"profiler saw it: {about['batch']} × {about['heads']} heads, {about['N']} keys, as many "
        "queries unless one query is stated.",
        widget="\n".join(
            ['<div class="am-backends" markdown>', "", *table(open_rows), "", "</div>"]
        ),
        claims={
            f"{SDPA}: *cuDNN* for every shape and every mask": half == {"cudnn"},
            f"{SDPA}: but *math* where k and v have fewer heads": math == {GROUPED}
            and {r["backend"] for r in single if r["shape"] != GROUPED} == {"efficient"}
            and {r["backend"] for r in single if r["shape"] == GROUPED} == {"math"},
            f"{SDPA}: neither `FLASH_ATTENTION` nor `CUDNN_ATTENTION` takes float32": refused
            == {("float32", "FLASH_ATTENTION"), ("float32", "CUDNN_ATTENTION")},
        },
    )
