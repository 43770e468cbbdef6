"""The figures of the multi_head_attention page: each draws the result of the same name."""

import itertools

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import (
    TIME,
    ceiling,
    derived,
    field,
    only,
    pick,
    rate,
    values,
)
from snippets._lab.draw.tables import columns, listed, yes
from snippets._lab.draw.units import between, decimals, flops, ratio, time

from .journey import journey

ROOM = "multi_head_attention"
LOOP, WIDE = "multi_head_attention:loop", "multi_head_attention:vectorized"
FUSED, SDPA = "multi_head_attention:exercise", "multi_head_attention:SDPA"
TORCH = "multi_head_attention:torch"
FORMS = [
    Series(LOOP, "loop over heads"),
    Series(WIDE, "vectorized", shade=4),
    Series(FUSED, "one projection for q, k, v"),
    Series(SDPA, "vectorized, with SDPA", like="torch:sdpa"),
    Series(TORCH, "torch.nn.MultiheadAttention", like="torch:efficient"),
]
NAMES = {form.key: form.name for form in FORMS}
FORWARD, BOTH = "forward", "forward and backward"
PAGE = "docs/posts/multi_head_attention.md"
HIDES, ODD = "docs/how_to/masks.md", "docs/how_to/odd_head_dimensions.md"


def _listing(kernels):
    return "\n".join(["```text", *(k if len(k) < 90 else f"{k[:88]}…" for k in kernels), "```"])


def _torch_version(result):
    return result.versions["torch"].split("+")[0]


KINDS = {  # the field of a row → the place that it is the share of
    "to_first": "the start token, [CLS]",
    "to_last": "the end token, [SEP]",
    "to_self": "itself",
    "to_previous": "the token before",
    "to_next": "the token after",
}
MOST = 0.5  # from this share on a head attends to one place
NONE = "none of these"
STRONGEST = field("distance_strongest", "distance to the strongest key, tokens", units.number)
ENTROPY = field("entropy_relative", "entropy, 1 = equal weights", units.fraction)


def _place(row):
    return row["layer"], row["head"]


def _with_kinds(result):
    """The rows, each with the place that gets more than half of the head's attention."""
    for row in pick(result.rows):
        best = max(KINDS, key=lambda key: row[key])
        yield {**row, "mostly": KINDS[best] if row[best] > MOST else NONE}


def _entry(place, groups):
    return f"{place} ({len(groups[place])})"


def _told(row):
    return (
        f"layer {row['layer']} head {row['head']}<br>strongest key {decimals(STRONGEST(row), 1)} "
        f"tokens away<br>mean distance {decimals(row['distance_mean'], 1)}<br>elsewhere than its "
        f"neighbors {decimals(row['elsewhere'])}<br>entropy {decimals(ENTROPY(row))}"
    )


def heads(results):
    told = derived(results, _with_kinds)
    rows = told[0].rows
    groups = {place: pick(rows, mostly=place) for place in (*KINDS.values(), NONE)}
    near = [r for r in rows if STRONGEST(r) < 1.5]
    sharp, flat = min(rows, key=ENTROPY), max(rows, key=ENTROPY)
    layers = {layer: pick(rows, layer=layer) for layer in values(rows, "layer")}
    elsewhere = {
        layer: sum(r["elsewhere"] for r in found) / len(found) for layer, found in layers.items()
    }
    least, most = min(elsewhere, key=elsewhere.get), max(elsewhere, key=elsewhere.get)
    alone = max(rows, key=lambda r: r["elsewhere"])
    counted = {
        place.replace("[", "`[").replace("]", "]`"): len(found)
        for place, found in groups.items()
        if found and place != NONE
    }
    return Figure(
        finding=f"Of {len(rows)} heads so many give more than half of their attention to one "
        f"place: {listed(f'{number} to {place}' for place, number in counted.items())}; the other "
        f"{len(groups[NONE])} spread it more widely.",
        caption="One point a head: how far the key with the largest weight is from the query, "
        "and the entropy of its rows relative to equal weights, averaged over the queries of "
        f"{len(rows[0]['sentences'])} sentences. Colored by which of five places gets more than "
        "half of the attention, if one does. From the weights published with the attention map.",
        plot=charts.points(
            told,
            [
                *(
                    Series(ROOM, _entry(place, groups), {"mostly": place}, shade=i, told=_told)
                    for i, place in enumerate(KINDS.values())
                ),
                Series("context", _entry(NONE, groups), {"mostly": NONE}, told=_told),
            ],
            STRONGEST,
            ENTROPY,
            log="",
            ends={"y": (0, 1)},
        ),
        numbers={
            "sharp": decimals(ENTROPY(sharp)),
            "flat": decimals(ENTROPY(flat)),
            "near": len(near),
            "heads": len(rows),
            "least": decimals(elsewhere[least]),
            "most": decimals(elsewhere[most]),
            "alone": decimals(alone["elsewhere"]),
        },
        claims={
            f"{PAGE}: The sharpest head is layer 0 head 2": _place(sharp) == (0, 2),
            f"{PAGE}: the flattest its neighbor, head 3": _place(flat) == (0, 3),
            f"{PAGE}: (layer 4)": least == 4,
            f"{PAGE}: (layer 0)": most == 0,
            f"{PAGE}: The one that differs most from its neighbors is the sharpest one": _place(
                alone
            )
            == (0, 2),
        },
    )


CLOCKS = {"gpu": "on the GPU", "host": "from call to call"}


def layer_time(results):
    rows = results[0].rows
    sizes = {r["size"]: f"{r['size']}: B {r['B']}, N {r['N']}, E {r['E']}" for r in rows}

    def at(implementation, size, clock, heads=8, passes=FORWARD):
        wanted = {"size": size, "clock": clock, "heads": heads, "passes": passes}
        return TIME(only(rows, implementation=implementation, **wanted))

    def loop_by_wide(heads, passes=FORWARD):
        return units.rough_ratio(
            at(LOOP, "small", "host", heads, passes) / at(WIDE, "small", "host", heads, passes)
        )

    small = {name: at(name, "small", "host") for name in NAMES}
    large = {name: at(name, "large", "gpu") for name in NAMES}
    called = {name: at(name, "large", "host") for name in NAMES}
    busy, most = at(LOOP, "small", "gpu"), max(values(rows, "heads"))
    each = {name: _large(rows, name) for name in (LOOP, WIDE, SDPA)}
    ahead = {heads for heads, ms in each[LOOP].items() if each[WIDE][heads] > 1.05 * ms}
    behind = {heads for heads, ms in each[SDPA].items() if ms > 1.05 * each[WIDE][heads]}
    return Figure(
        finding="With 8 heads on the small input a call of the loop takes "
        f"{units.host_time(small[LOOP])} and one of the vectorized layer "
        f"{units.host_time(small[WIDE])}.",
        caption=f"Forward pass in {rows[0]['dtype']}. On the GPU: between two events, with the "
        "launches already queued, L2 flushed before. From call to call: the host's clock over "
        f"several calls, what your script waits for. {'; '.join(sizes.values()).capitalize()}. "
        "Medians; all take turns; both axes logarithmic.",
        plot=charts.lines(
            results,
            FORMS,
            "heads",
            TIME,
            [
                View(
                    f"{size} input, {said}",
                    {"size": size, "clock": clock, "passes": FORWARD},
                )
                for size, (clock, said) in itertools.product(sizes, CLOCKS.items())
            ],
            columns=2,
        ),
        numbers={
            "ratio": loop_by_wide(8),
            "one": loop_by_wide(1),
            "many": loop_by_wide(most),
            "both": loop_by_wide(8, BOTH),
            "busy": time(busy),
            "call": units.host_time(small[LOOP]),
            "loop": time(large[LOOP]),
            "wide": time(large[WIDE]),
            "loop_called": units.host_time(called[LOOP]),
            "wide_called": time(called[WIDE]),
            "loop_two": time(each[LOOP][2]),
            "wide_two": time(each[WIDE][2]),
            "torch": time(large[TORCH]),
            "torch_times": ratio(large[WIDE] / large[TORCH]),
            "sdpa_one": time(each[SDPA][1]),
            "wide_one": time(each[WIDE][1]),
            "fused_small": units.host_time(small[FUSED]),
            "wide_small": units.host_time(small[WIDE]),
            "fused": time(large[FUSED]),
        },
        claims={
            f"{PAGE}: the layer is *launch-bound*": small[LOOP] > 1.2 * busy,
            f"{PAGE}: still shorter than their launches": called[LOOP] > 1.2 * large[LOOP],
            f"{PAGE}: With 2 and 4 heads the GPU finishes the loop sooner": ahead == {2, 4},
            f"{PAGE}: With a single head of 1024 columns it is the other way around": behind == {1},
        },
    )


def _large(rows, implementation):
    """Heads → time on the GPU, forward, on the large input."""
    wanted = {"size": "large", "clock": "gpu", "passes": FORWARD}
    return {r["heads"]: TIME(r) for r in pick(rows, implementation=implementation, **wanted)}


def launches(results):
    rows = results[0].rows

    def counts(implementation, passes=FORWARD):
        found = pick(rows, implementation=implementation, passes=passes)
        return {r["heads"]: r["launches"] for r in found}

    loop, wide, fused, sdpa = (counts(name) for name in (LOOP, WIDE, FUSED, SDPA))
    few, most = sorted(loop)[1], max(loop)  # one head is a case of its own
    shown = next(r for r in rows if r["implementation"] == WIDE and r["kernels"])
    heads = shown["heads"]
    return Figure(
        finding=f"With {heads} heads the loop launches {loop[heads]} kernels for one forward "
        f"pass, the vectorized layer {wide[heads]}.",
        caption="Kernels on the GPU's timeline, counted by `torch.profiler` during one call, "
        f"copies and fills of memory apart. B {shown['B']}, N {shown['N']}, E {shown['E']}, "
        f"{shown['dtype']}, no mask. Both axes logarithmic.",
        plot=charts.lines(
            results,
            FORMS,
            "heads",
            field("launches", "kernels launched", units.whole),
            charts.views("{}", "passes", values(rows, "passes")),
        ),
        numbers={
            "slope": units.significant((loop[most] - loop[few]) / (most - few), 2),
            "few": loop[few],
            "loop": loop[heads],
            "most": loop[most],
            "wide": wide[heads],
            "wide_one": wide[1],
            "both_loop": counts(LOOP, BOTH)[heads],
            "both_wide": counts(WIDE, BOTH)[heads],
            "fused": fused[heads],
            "sdpa": sdpa[heads],
        },
        claims={
            f"{PAGE}: From 2 heads on": few == 2 and heads == 8 and most == 32,
            f"{PAGE}: with any number of heads but one": len(set(wide.values()) - {wide[1]}) == 1
            and wide[1] < wide[heads],
            f"{PAGE}: The first half holds": loop[8] >= 48 and wide[8] > 7,
        },
        pieces={"kernels": _listing(shown["kernels"])},
    )


A_LAUNCH = field("launch_p50", "time per launch", units.time)


LAUNCHES = {"host": "from launch to launch, host", "gpu": "on the GPU, queue full"}


def empty_launch(results):
    each = derived(results, _a_launch)
    rows = each[0].rows
    names = values(rows, "implementation")
    host = {r["implementation"]: A_LAUNCH(r) for r in pick(rows, clock="host")}
    gpu = {r["implementation"]: A_LAUNCH(r) for r in pick(rows, clock="gpu")}
    return Figure(
        finding="One launch after the other takes the host "
        f"{between(host.values(), units.host_time)} each; the GPU, with a full queue, "
        f"{between(gpu.values(), time)}.",
        caption=f"{rows[0]['launches']} launches in a row, divided by their number: on the host's "
        "clock until all are done, and between two events on the GPU while the queue is full. "
        "Medians, thin lines from p20 to p80.",
        plot=charts.bars(
            each,
            [Series(ROOM, name, {"implementation": name}) for name in names],
            A_LAUNCH,
            groups=[
                Series(
                    ROOM if clock == "host" else "context",
                    said,
                    {"clock": clock},
                    spread=("launch_p20", "launch_p80"),
                )
                for clock, said in LAUNCHES.items()
            ],
        ),
        numbers={
            "host": units.host_time(host[names[0]]),
            "gpu": time(gpu[names[0]]),
            "all_host": between(host.values(), units.host_time),
            "all_gpu": between(gpu.values(), time),
        },
        claims={f"{PAGE}: too low for Triton and for a product": min(host.values()) >= 0.009},
    )


def _a_launch(result):
    """The rows with the times of one launch among many."""
    for row in pick(result.rows):
        times = {p: row[f"ms_{p}"] / row["launches"] for p in ("p20", "p50", "p80")}
        yield {**row, **{f"launch_{p}": ms for p, ms in times.items()}}


def contiguity(results):
    rows = {r["expression"]: r for r in results[0].rows}
    B, H, N, D = results[0].rows[0]["sizes"]
    before, turned = rows["out"], rows["out.transpose(1, 2)"]
    copy = rows["out.transpose(1, 2).contiguous()"]
    raised = next(r for r in rows.values() if r["raised"])
    return Figure(
        finding=f"After `transpose` a `view` raises; `contiguous()` copies {copy['bytes_copied']} "
        "bytes, every one there is, and then it works.",
        caption=f"Ways to merge the heads of `out`, [B, H, N, D] = [{B}, {H}, {N}, {D}] in "
        f"float32, and what each gives: run by PyTorch {_torch_version(results[0])}, not typed.",
        table=columns(
            rows.values(),
            {
                "expression": "expression",
                "shape": _unless_raised(lambda r: str(tuple(r["shape"]))),
                "strides": _unless_raised(lambda r: str(tuple(r["stride"]))),
                "contiguous": _unless_raised(lambda r: yes(r["contiguous"])),
                "bytes copied": _unless_raised(lambda r: r["bytes_copied"]),
                "result": _outcome,
            },
        ),
        open_table=True,
        numbers={"bytes": f"{copy['bytes_copied']} bytes"},
        claims={
            f"{PAGE}: shape (2, 3, 5, 4), strides (60, 20, 4, 1)": _layout(before)
            == ((2, 3, 5, 4), (60, 20, 4, 1)),
            f"{PAGE}: shape (2, 5, 3, 4), strides (60, 4, 20, 1)": _layout(turned)
            == ((2, 5, 3, 4), (60, 4, 20, 1)),
            f"{PAGE}: the strides are (60, 12, 4, 1) again": tuple(copy["stride"])
            == (60, 12, 4, 1),
            f"{PAGE}: `reshape` copies them too, silently": rows[
                "out.transpose(1, 2).reshape(B, N, H * D)"
            ]["bytes_copied"]
            == copy["bytes_copied"],
            f"{PAGE}: `out.view(B, N, H * D)`, without the transpose, raises no error": rows[
                "out.view(B, N, H * D)"
            ]["right"]
            is False,
        },
        pieces={
            "error": "\n".join(
                ["```pycon", f">>> {raised['expression']}", *_wrapped(raised["raised"]), "```"]
            )
        },
    )


def _layout(row):
    return tuple(row["shape"]), tuple(row["stride"])


def _unless_raised(column):
    return lambda row: None if row["raised"] else column(row)


def _wrapped(text, width=78):
    """Lines of an error message that fit a phone's scrolling box."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if len(lines[-1]) + len(word) < width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _outcome(row):
    if row["raised"]:
        return row["raised"].split(":")[0]
    return {True: "right", False: "wrong numbers", None: None}[row["right"]]


def shapes(results):
    rows = results[0].rows
    letters = dict(pair.split("=") for pair in rows[0]["letters"])
    by_size = {int(size): letter for letter, size in letters.items()}

    def named(shape):
        return f"[{', '.join(by_size[size] for size in shape)}]"

    wide, loop = pick(rows, form="vectorized"), pick(rows, form="loop")
    lanes = {
        lane: [(r["operation"], r["shape"]) for r in pick(wide, lane=lane)]
        for lane in ("W_q", "W_k", "W_v")
    }
    main = pick(wide, lane="W_q")
    copied = [r for r in wide if r["operation"] == "contiguous" and not r["same_memory"]]
    views = pick(wide, same_memory=True)
    return Figure(
        finding=f"From {named(rows[0]['x'])} and back in {len(main)} steps; {len(views)} of the "
        f"layer's {len(wide)} operations move nothing and only view the same memory in another "
        "shape or order.",
        caption="The path of the queries through `MultiHeadAttentionVectorized`, recorded while "
        f"it ran with {', '.join(f'{a} = {b}' for a, b in letters.items() if a != 'H·D')}. Keys "
        "and values take the same first three steps. A dashed arrow: the result lies in the same "
        "memory.",
        table=columns(
            rows,
            {
                "form": "form",
                "step": "step",
                "operation": "operation",
                "from": lambda r: " and ".join(map(named, r["inputs"])),
                "to": lambda r: named(r["shape"]),
                "strides": lambda r: str(tuple(r["stride"])),
                "same memory": "same_memory",
            },
        ),
        widget=f'<div class="am-journey">{journey(main, rows[0]["x"], by_size)}</div>',
        numbers={
            "loop": len(loop),
            "wide": len(wide),
            "new": len(wide) - len(views),
        },
        claims={
            f"{PAGE}: With 3 heads the loop creates": letters["H"] == "3",
            f"{PAGE}: One step copies without computing": len(copied) == 1,
            "title of multi_head_attention/shapes: the same first three steps": all(
                steps[1:3] == lanes["W_q"][1:3] for steps in lanes.values()
            ),
        },
    )


RIGHT = 1e-6  # a difference below this is rounding


def masks(results):
    rows = {r["convention"]: r for r in results[0].rows}
    kinds = [r["hidden_row"] for name, r in rows.items() if name.startswith("nn.")]
    wrong, added = (
        [r[given]["difference"] for r in rows.values() if r[given].get("difference", 0) > RIGHT]
        for given in ("given_bool", "given_float")
    )
    exception = "gives NaN, except with `need_weights=False` in training mode"
    return Figure(
        finding=f"A query that sees no key: `nn.MultiheadAttention` {exception}. The others give "
        "zeros.",
        caption="Of four keys the first two are visible. Last two columns: a mask that is True for "
        "a visible key, passed as it is and as floats, and the largest difference from the right "
        "result. The same weights everywhere, in float64 on a CPU, PyTorch "
        f"{_torch_version(results[0])}.",
        table=columns(
            rows.values(),
            {
                "call": lambda r: r["convention"].replace("this page", "by hand, 0 hides"),
                "its mask": lambda r: ", ".join(map(_mark, r["mask"])),
                "a query that sees nothing": "hidden_row",
                "given True for visible": lambda r: _handed(r["given_bool"]),
                "given 1.0 and 0.0": lambda r: _handed(r["given_float"]),
            },
        ),
        open_table=True,
        numbers={
            "wrong": len(wrong),
            "most": decimals(max(wrong), 1),
            "added": len(added),
        },
        claims={
            f"title of {ROOM}/masks: {exception}": kinds == ["NaN", "zeros", "NaN"],
            f"title of {ROOM}/masks: The others give zeros": {
                r["hidden_row"] for name, r in rows.items() if not name.startswith("nn.")
            }
            == {"zeros"},
            f"{HIDES}: `nn.MultiheadAttention` gives NaN there, except": kinds
            == ["NaN", "zeros", "NaN"],
        },
    )


def _mark(value):
    return {"-inf": "-∞", "0.0": "0"}.get(value, value)


def _handed(found):
    if "raised" in found:
        return found["raised"].split(":")[0]
    if found["result"] == "NaN":
        return "NaN"
    difference = found["difference"]
    return "right" if difference < RIGHT else f"wrong by {decimals(difference, 1)}"


DTYPES = ("float16", "bfloat16", "float32")


TF32 = "torch:matmul, TF32"


BACKENDS = ("cudnn", "flash", "fmha_cutlass", "softmax")  # parts of the names of SDPA's kernels


def head_dim(results):
    result = results[0]
    rows = result.rows
    labels = {r["operation"]: r["label"] for r in rows}

    def at(operation, dtype, D):
        return _product(rows, operation, dtype)[D]

    def odd(operation, dtype):  # one column more than 64, beside 64
        return ratio(TIME(at(operation, dtype, 65)) / TIME(at(operation, dtype, 64)))

    fma, half = ceiling(result, "fma_float32"), ceiling(result, "matmul_float16")
    tf32 = only(rows, operation="scores", dtype="float32", D=64, implementation=TF32)
    whole = TIME(at("attention", "float32", 64)) / TIME(at("attention", "float16", 64))
    names = {
        (operation, dtype, D): [
            k for k in at(operation, dtype, D)["kernels"] or [] if not k.startswith("Mem")
        ]
        for operation in labels
        for dtype in DTYPES
        for D in (64, 65)
    }
    worst = {op: _worst(rows, op, "float16") for op in labels}
    half_types = [(op, dtype) for op in labels for dtype in ("float16", "bfloat16")]
    rates = {D: [rate(at(*case, D)) for case in half_types] for D in (64, 65)}
    return Figure(
        finding=f"In float16 the scores of heads of 65 columns take {odd('scores', 'float16')} "
        f"the time of 64, SDPA {odd('attention', 'float16')}.",
        caption=f"Time over the width of a head in float16. "
        f"{rows[0]['batch'] * rows[0]['heads']} heads of {rows[0]['N']} tokens. Scores and values "
        "are products of whole matrices, which go through memory; SDPA is PyTorch's fused "
        "attention. Medians, L2 flushed before each call.",
        plot=charts.lines(
            results,
            [_operation(*named) for named in labels.items()],
            field("D", "D, the width of a head", units.number),
            TIME,
            [View(where={"around": 64})],
            log="",
            ticks={"x": values(pick(rows, around=64), "D")},
            height=320,
        ),
        numbers={
            **{f"{op}_half": odd(op, "float16") for op in labels},
            **{f"{op}_single": odd(op, "float32") for op in labels},
            "worst": between([slower for _, slower in worst.values()], ratio),
            "fma": flops(fma),
            "even": between(rates[64], flops),
            "tf32": flops(rate(tf32)),
            "single": flops(rate(at("scores", "float32", 64))),
            "padded": ratio(
                TIME(at("attention", "float16", 65)) / TIME(at("attention", "float16", 72))
            ),
            "matmul": ratio(half / fma),
            "matmul_torch": ratio(half / ceiling(result, "matmul_float32")),
            "matmul_tf32": ratio(ceiling(result, "matmul_tf32") / fma),
            "attention": ratio(whole),
            "kernels_odd": len(names["attention", "float16", 65]),
            "kernels_odd_single": len(names["attention", "float32", 65]),
        },
        claims={
            # Without tensor cores 16 bits are at most twice as fast: two in one instruction.
            f"{PAGE}: so all of these run on tensor cores": min(rates[64]) > 2 * fma,
            f"{PAGE}: at D 65 none does": max(rates[65]) <= 2 * fma,
            f"{ODD}: `tensorop` in its name": "tensorop" in names["scores", "float16", 65][0],
            f"{ODD}: `align1`": "align1" in names["scores", "float16", 65][0],
            f"{ODD}: from one kernel of cuDNN to": _took(names["attention", "float16", 64])
            == ("cudnn", 1),
            f"{ODD}: of PyTorch's flash backend": _took(names["attention", "float16", 65])[0]
            == "flash",
            f"{ODD}: from memory-efficient attention to": _took(names["attention", "float32", 64])[
                0
            ]
            == "fmha_cutlass",
            f"{ODD}: separate products with a softmax between": _took(
                names["attention", "float32", 65]
            )[0]
            == "softmax",
            f"{ODD}: fast at 64 and 72, and slow in between": all(
                TIME(at(op, "float16", D)) > 1.2 * TIME(at(op, "float16", even))
                for op in labels
                for D in range(65, 72)
                for even in (64, 72)
            ),
            f"{ODD}: SDPA is as fast with 68 columns as with 72": 0.98
            < TIME(at("attention", "float32", 68)) / TIME(at("attention", "float32", 72))
            < 1.02,
            f"{PAGE}: No single factor covers these": not 6 <= whole <= 10,
        },
        pieces={
            "kernel_64": _listing(names["scores", "float16", 64]),
            "kernel_65": _listing(names["scores", "float16", 65]),
        },
    )


LOOKS = {"scores": "torch:matmul", "values": "torch:efficient", "attention": "torch:sdpa"}


def _operation(operation, label):
    """The time of an operation in float16."""
    where = {"operation": operation, "dtype": "float16"}
    return Series(LOOKS[operation], label, where, symbol="circle", size=6)


def _took(kernels):
    """(the backend that wrote the kernels, how many there are)."""
    who = next((part for part in BACKENDS if any(part in k for k in kernels)), "")
    return who, len(kernels)


def _product(rows, operation, dtype):
    """D → row of an operation in a dtype, TF32 apart."""
    found = pick(rows, operation=operation, dtype=dtype)
    return {r["D"]: r for r in found if r["implementation"] != TF32}


def _worst(rows, operation, dtype):
    """(D, how much slower than D rounded up to a multiple of 8) of the worst D up to 72."""
    at = {D: TIME(r) for D, r in _product(rows, operation, dtype).items() if D <= 72}
    slower = {D: ms / at[-(-D // 8) * 8] for D, ms in at.items() if D % 8}
    return max(slower.items(), key=lambda item: item[1])
