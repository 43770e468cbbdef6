"""The figures of the multi_head_attention page: each draws the result of the same name."""

import itertools
from textwrap import wrap

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import TIME, field, only, pick, values
from snippets._lab.draw.tables import columns
from snippets._lab.draw.units import between, decimals, ratio, time

ROOM = "multi_head_attention"
LOOP, WIDE = "multi_head_attention:loop", "multi_head_attention:vectorized"
FUSED, SDPA = "multi_head_attention:exercise", "multi_head_attention:SDPA"
TORCH = "multi_head_attention:torch"
FORMS = [
    Series(LOOP, "loop over heads"),
    Series(WIDE, "batched", shade=4),
    Series(FUSED, "one projection for q, k, v"),
    Series(SDPA, "batched, with SDPA", like="torch:sdpa"),
    Series(TORCH, "torch.nn.MultiheadAttention", like="torch:efficient"),
]
NAMES = {form.key: form.name for form in FORMS}
DRAWN = [form for form in FORMS if form.key != SDPA]  # whose lines lie with those of nn's layer
FORWARD = "forward"
PAGE = "docs/posts/multi_head_attention.md"
HIDES, ODD = "docs/how_to/masks.md", "docs/how_to/odd_head_dimensions.md"


def _listing(kernels):
    return "\n".join(["```text", *(k if len(k) < 90 else f"{k[:88]}…" for k in kernels), "```"])


def heads(rows):
    layers = [pick(rows, layer=layer) for layer in values(rows, "layer")]
    elsewhere = [sum(r["elsewhere"] for r in found) / len(found) for found in layers]
    return Figure(
        finding=f"Two heads of one layer put {between(elsewhere, decimals)} of their attention on "
        "different tokens, on average.",
        claims={
            f"{PAGE}: a third to a half of their attention on different tokens": min(elsewhere)
            > 0.3
            and max(elsewhere) <= 0.5,
        },
    )


CLOCKS = {"gpu": "on the GPU", "host": "from call to call"}


def layer_time(results, rows):
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
    drift = [at(WIDE, "small", "host", x) for x in values(rows, "heads") if x > 1]
    behind = {
        heads
        for heads in values(rows, "heads")
        if at(SDPA, "large", "gpu", heads) > 1.05 * at(WIDE, "large", "gpu", heads)
    }
    return Figure(
        finding="On the small input a call of the loop takes as long as the batch with one head, "
        f"{loop_by_wide(8)} as long with 8 and {loop_by_wide(most)} as long with {most}.",
        caption=f"Forward pass in {rows[0]['dtype']}. On the GPU: between two events, with the "
        "launches already queued, L2 flushed before. From call to call: the host's clock over "
        f"several calls, what your script waits for; {'; '.join(sizes.values())}. "
        "Medians; all take turns; both axes logarithmic.",
        plot=charts.lines(
            results,
            DRAWN,
            "heads",
            views=[
                View(f"{size} input, {said}", {"size": size, "clock": clock, "passes": FORWARD})
                for size, (clock, said) in itertools.product(sizes, CLOCKS.items())
            ],
            columns=2,
        ),
        numbers={
            "many": loop_by_wide(most),
            "busy": time(busy),
            "call": units.host_time(small[LOOP]),
            "loop": time(large[LOOP]),
            "wide": time(large[WIDE]),
            "loop_called": time(called[LOOP]),
            "wide_called": time(called[WIDE]),
            "torch": time(large[TORCH]),
            "torch_times": ratio(large[WIDE] / large[TORCH]),
            "wide_small": units.host_time(small[WIDE]),
            "drift": between(drift, units.host_time),
        },
        claims={
            f"{PAGE}: and for most of that time the GPU does nothing": busy < small[LOOP] / 2
            and at(WIDE, "small", "gpu") < small[WIDE] / 2,
            f"{PAGE}: The same numbers, five times slower": loop_by_wide(8) == "5×",
            f"{PAGE}: the layer is *launch-bound*": small[LOOP] > 1.2 * busy,
            f"{PAGE}: With one head both take about the same time": loop_by_wide(1) == "1×",
            f"{PAGE}: only the batch keeps the GPU busy": called[LOOP] > 1.2 * large[LOOP]
            and called[WIDE] < 1.05 * large[WIDE],
            f"{PAGE}: With two or four heads": all(
                at(LOOP, "large", "gpu", x) < at(WIDE, "large", "gpu", x)
                and at(LOOP, "large", "host", x) > at(WIDE, "large", "host", x)
                for x in (2, 4)
            ),
            f"{PAGE}: Wide heads lose this advantage": behind == {1},
        },
    )


def launches(results, rows):

    def counts(implementation, passes=FORWARD):
        found = pick(rows, implementation=implementation, passes=passes)
        return {r["heads"]: r["launches"] for r in found}

    loop, wide = counts(LOOP), counts(WIDE)
    few, most = sorted(loop)[1], max(loop)  # one head is a case of its own
    shown = next(r for r in rows if r["implementation"] == WIDE and r["kernels"])
    heads = shown["heads"]
    return Figure(
        finding=f"With {heads} heads the loop launches {loop[heads]} kernels for one forward "
        f"pass, the batched layer {wide[heads]}.",
        caption="Kernels on the GPU's timeline, counted by `torch.profiler` during one call, "
        "memcpy and memset apart (a copy into another layout is a kernel and counts). "
        f"B {shown['B']}, N {shown['N']}, E {shown['E']}, {shown['dtype']}, no mask. "
        "Both axes logarithmic.",
        plot=charts.lines(
            results,
            DRAWN,
            "heads",
            field("launches", "kernels launched", units.whole),
            charts.views("{}", "passes", values(rows, "passes")),
        ),
        numbers={
            "slope": units.significant((loop[most] - loop[few]) / (most - few), 2),
            "loop": loop[heads],
            "wide": wide[heads],
            "copies": _copies(rows, WIDE),
            "torch": counts(TORCH)[heads],
        },
        claims={
            f"{PAGE}: with two heads or with 32": wide[2] == wide[32] == wide[heads],
            f"{PAGE}: this one, and three that turn": _copies(rows, WIDE) == 4,
            f"{PAGE}: The loop copies once, where it": _copies(rows, LOOP) == 1
            and not _copies(rows, TORCH),
            f"{PAGE}: The first half holds": loop[8] >= 48 and wide[8] > 7,
        },
    )


def _copies(rows, implementation):
    """How many of the kernels of a forward pass copy a tensor."""
    wanted = {"implementation": implementation, "passes": FORWARD, "heads": 8}
    kernels = only(rows, **wanted)["kernels"]
    return sum("direct_copy" in kernel or "CatArray" in kernel for kernel in kernels)


def empty_launch(rows):
    host = {r["implementation"]: TIME(r) / r["launches"] for r in pick(rows, clock="host")}
    gpu = between([TIME(r) / r["launches"] for r in pick(rows, clock="gpu")], time)
    all_host = between(host.values(), units.host_time)
    return Figure(
        finding=f"One launch after the other takes the host {all_host} each; the GPU, with a full "
        f"queue, {gpu}: {rows[0]['launches']} in a row, divided by their number.",
        numbers={
            "all_host": all_host,
            "all_gpu": gpu,
            "triton": units.host_time(host["empty Triton kernel"]),
            "number": units.host_time(host["PyTorch, one number"]),
            "product": units.host_time(host["PyTorch, product 16 × 16"]),
        },
        claims={f"{PAGE}: too low for Triton and for a product": min(host.values()) >= 0.009},
    )


def contiguity(rows):
    B, H, N, D = rows[0]["sizes"]
    at = {r["expression"]: r for r in rows}
    before, turned = at["out"], at["out.transpose(1, 2)"]
    copy = at["out.transpose(1, 2).contiguous()"]
    raised = next(r for r in rows if r["raised"])
    return Figure(
        finding=f"After `transpose` a `view` raises; `contiguous()` copies {copy['bytes_copied']} "
        f"bytes, every one there is, and then it works: [{B}, {H}, {N}, {D}] in float32.",
        numbers={"bytes": f"{copy['bytes_copied']} bytes"},
        claims={
            f"{PAGE}: shape (2, 3, 5, 4) and strides (60, 20, 4, 1)": _layout(before)
            == ((2, 3, 5, 4), (60, 20, 4, 1)),
            f"{PAGE}: the shape is (2, 5, 3, 4) and the strides are (60, 4, 20, 1)": _layout(turned)
            == ((2, 5, 3, 4), (60, 4, 20, 1)),
            f"{PAGE}: copies all 120 numbers": copy["bytes_copied"] == 120 * 4,
            f"{PAGE}: `reshape` copies them too, silently": at[
                "out.transpose(1, 2).reshape(B, N, H * D)"
            ]["bytes_copied"]
            == copy["bytes_copied"],
            f"{PAGE}: `out.view(B, N, H * D)`, without the transpose, raises no error": at[
                "out.view(B, N, H * D)"
            ]["right"]
            is False,
        },
        pieces={
            "error": "\n".join(
                ["```pycon", f">>> {raised['expression']}", *wrap(raised["raised"], 78), "```"]
            )
        },
    )


def _layout(row):
    return tuple(row["shape"]), tuple(row["stride"])


RIGHT = 1e-6  # a difference below this is rounding


def masks(results):
    rows = {r["convention"]: r for r in results[0].rows}
    kinds = [r["hidden_row"] for name, r in rows.items() if name.startswith("nn.")]
    wrong, added = (
        [r[given]["difference"] for r in rows.values() if r[given].get("difference", 0) > RIGHT]
        for given in ("given_bool", "given_float")
    )
    exception = "gives NaN, except with `need_weights=False` where its fast path doesn't run"
    return Figure(
        finding=f"A query that sees no key: `nn.MultiheadAttention` {exception}. The others give "
        "zeros.",
        caption="Of four keys the first two are visible. Last two columns: a mask that is True for "
        "a visible key, passed as it is and as floats, and the largest difference from the right "
        "result. The same weights everywhere, in float64 on a CPU, PyTorch "
        f"{results[0].versions['torch'].split('+')[0]}.",
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
        numbers={"wrong": len(wrong), "added": len(added)},
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


TF32 = "torch:matmul, TF32"


BACKENDS = ("cudnn", "flash", "fmha_cutlass", "softmax")  # parts of the names of SDPA's kernels


def head_dim(results):
    rows = [r for r in results[0].rows if r["implementation"] != TF32]
    labels = {r["operation"]: r["label"] for r in rows}

    def at(operation, dtype, D):
        return only(rows, operation=operation, dtype=dtype, D=D)

    def odd(operation, dtype):  # one column more than 64, beside 64
        return ratio(TIME(at(operation, dtype, 65)) / TIME(at(operation, dtype, 64)))

    names = {
        (operation, dtype, D): [
            k for k in at(operation, dtype, D)["kernels"] if not k.startswith("Mem")
        ]
        for operation, dtype in (
            ("scores", "float16"),
            ("attention", "float16"),
            ("attention", "float32"),
        )
        for D in (64, 65)
    }
    took = {(dtype, D): _took(found) for (of, dtype, D), found in names.items() if of != "scores"}
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
            views=[View(where={"around": 64})],
            log="",
            ticks={"x": values(pick(rows, around=64), "D")},
            height=320,
        ),
        numbers={
            "attention_half": odd("attention", "float16"),
            "attention_single": odd("attention", "float32"),
            "padded": ratio(
                TIME(at("attention", "float16", 65)) / TIME(at("attention", "float16", 72))
            ),
            "kernels_odd": len(names["attention", "float16", 65]),
            "kernels_odd_single": len(names["attention", "float32", 65]),
        },
        claims={
            f"{ODD}: `tensorop` in its name": "tensorop" in names["scores", "float16", 65][0],
            f"{ODD}: `align1`": "align1" in names["scores", "float16", 65][0],
            f"{ODD}: from one kernel of cuDNN to": took["float16", 64] == ("cudnn", 1),
            f"{ODD}: of PyTorch's flash backend": took["float16", 65][0] == "flash",
            f"{ODD}: from memory-efficient attention to": took["float32", 64][0] == "fmha_cutlass",
            f"{ODD}: separate products with a softmax between": took["float32", 65][0] == "softmax",
            f"{ODD}: fast at 64 and 72, and slow in between": all(
                TIME(at(op, "float16", D)) > 1.2 * TIME(at(op, "float16", even))
                for op in labels
                for D in range(65, 72)
                for even in (64, 72)
            ),
            f"{ODD}: SDPA is as fast with 68 columns as with 72": 0.98
            < TIME(at("attention", "float32", 68)) / TIME(at("attention", "float32", 72))
            < 1.02,
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
