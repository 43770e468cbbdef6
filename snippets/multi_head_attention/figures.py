"""The figures of the multi_head_attention page: each draws the result of the same name."""

import html
import itertools
import re

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from snippets._lab.draw.charts import LEGEND, listed, stacked
from snippets._lab.draw.figure import (
    DASHES,
    NAMES,
    Figure,
    colour,
    device_name,
    hover,
    name_of,
    only,
    pick,
    ratio,
    time,
)

LOOP, WIDE = "multi_head_attention:loop", "multi_head_attention:vectorized"
FUSED, SDPA = "multi_head_attention:exercise", "multi_head_attention:SDPA"
TORCH = "multi_head_attention:torch"
FORMS = [LOOP, WIDE, FUSED, SDPA, TORCH]
PASSES = ["forward", "forward and backward"]
MILLISECONDS = {
    "type": "log",
    "tickvals": [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50],
    "ticktext": ["10 µs", "20 µs", "50 µs", "100 µs", "200 µs", "500 µs",
                 "1 ms", "2 ms", "5 ms", "10 ms", "20 ms", "50 ms"],
}  # fmt: skip
DTYPES = {"float16": "#2b84c6", "bfloat16": "#1d9a78", "float32": "#d4602a"}
LETTER_COLOURS = {
    "B": "#808a94",
    "N": "#2b84c6",
    "E": "#b8860b",
    "H": "#c4569a",
    "D": "#1d9a78",
    "H·D": "#a45fb0",
}
KINDS = {
    "to_first": ("the start token, [CLS]", "#2b84c6"),
    "to_last": ("the end token, [SEP]", "#b8860b"),
    "to_self": ("itself", "#a45fb0"),
    "to_previous": ("the token before", "#c4569a"),
    "to_next": ("the token after", "#1d9a78"),
    "": ("none of these", "#808a94"),
}


def _span(values):
    """ "12" if all are the same, else "12 to 15"."""
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"


def _against(ours, theirs):
    """ "2.1× faster than" or "1.30× slower than", for a time beside another."""
    return f"{ratio(max(ours, theirs) / min(ours, theirs))} " + (
        "faster than" if ours <= theirs else "slower than"
    )


def _lines(figure, results, implementations, y, wanted, text, **at):
    """One line over the heads for each device and implementation."""
    for device, result in enumerate(results):
        for implementation in implementations:
            rows = pick(result.rows, implementation=implementation, **wanted)
            figure.add_scatter(
                x=[r["heads"] for r in rows],
                y=[r[y] for r in rows],
                name=name_of(implementation, result, results),
                legendgroup=f"{implementation}{device}",
                showlegend=at["row"] == at["col"] == 1,
                mode="lines+markers",
                line={"color": colour(implementation), "dash": DASHES[device], "width": 2},
                text=[text(r) for r in rows],
                hovertemplate="%{x} heads: %{text}",
                **at,
            )
    heads = sorted({r["heads"] for r in results[0].rows})
    figure.update_xaxes(type="log", title="heads", tickvals=heads, **at)


def launches(results):
    rows = results[0].rows
    figure = make_subplots(1, 2, subplot_titles=PASSES, shared_yaxes=True)
    for column, passes in enumerate(PASSES, start=1):
        _lines(
            figure, results, FORMS, "launches", {"passes": passes},
            lambda r: f"{r['launches']} kernels", row=1, col=column,
        )  # fmt: skip
    figure.update_yaxes(type="log", tickvals=[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000])
    figure.update_layout(legend=LEGEND, margin={"t": 40, "r": 10, "l": 50, "b": 110})

    def counts(implementation, passes=PASSES[0]):
        found = pick(rows, implementation=implementation, passes=passes)
        return {r["heads"]: r["launches"] for r in found}

    loop, wide, fused, sdpa = (counts(name) for name in (LOOP, WIDE, FUSED, SDPA))
    few, many = min(loop), max(loop)
    slope = (loop[many] - loop[few]) / (many - few)
    with_backward = {name: counts(name, PASSES[1])[8] for name in (LOOP, WIDE)}
    kernels = only(rows, implementation=WIDE, passes=PASSES[0], heads=8)["kernels"]
    shape = rows[0]
    return Figure(
        finding=f"With 8 heads the loop launches {loop[8]} kernels for one forward pass, the "
        f"vectorised layer {wide[8]}.",
        caption=f"Kernels on the GPU's timeline, counted by `torch.profiler` during one call, "
        f"copies and fills of memory apart. B {shape['B']}, N {shape['N']}, E {shape['E']}, "
        f"{shape['dtype']}, no mask. Both axes logarithmic.",
        table=[
            {
                "pass": passes,
                "heads": heads,
                **{NAMES[name]: counts(name, passes)[heads] for name in FORMS},
            }
            for passes in PASSES
            for heads in sorted(loop)
        ],
        plot=figure,
        height=420,
        narrow=stacked(PASSES, 840, 0),
        sentences={
            "slope": f"Each further head costs the loop {slope:.2g} launches more, from {loop[few]} "
            f"with {few} head to {loop[many]} with {many}. The vectorised layer launches "
            + (
                f"{wide[many]}, whatever the number of heads."
                if len(set(wide.values())) == 1
                else f"{_span([n for heads, n in wide.items() if heads > few])} with any number of "
                f"heads but {few}, where there are {wide[few]}: a transpose of a single head leaves "
                "its numbers in order, and products need no copies of it."
                if wide[few] < min(n for heads, n in wide.items() if heads > few)
                else f"{_span(wide.values())}."
            ),
            "backward": f"With the backward pass, 8 heads take {with_backward[LOOP]} launches in "
            f"the loop and {with_backward[WIDE]} at once.",
            "kernels": f"These are the {len(kernels)} of the vectorised layer with 8 heads, in "
            "order:\n\n" + _listing(kernels),
            "fused": f"With 8 heads the answer launches {fused[8]} kernels where the separate "
            f"projections launch {wide[8]}. The layer with SDPA launches {sdpa[8]}.",
            "claim": f"**“48 launches and more for a loop of 8 heads, about 6 when vectorised.”** "
            f"Counted: {loop[8]} and {wide[8]}. The first half "
            f"{'holds' if loop[8] >= 48 else 'does not hold here'}; "
            + (
                "the second does too."
                if loop[8] >= 48 and 5 <= wide[8] <= 7
                else "the second does."
                if 5 <= wide[8] <= 7
                else "the second forgets the scale, the softmax, and the copies that products of "
                "transposed tensors need."
                if wide[8] > 7
                else "the second is too many."
            ),
        },
    )  # fmt: skip


def _listing(kernels):
    return "\n".join(["```text", *(k if len(k) < 90 else f"{k[:88]}…" for k in kernels), "```"])


def layer_time(results):
    rows = results[0].rows
    panels = list(itertools.product(["small", "large"], ["gpu", "host"]))
    sizes = {r["size"]: f"B {r['B']}, N {r['N']}, E {r['E']}" for r in rows}
    clocks = {"gpu": "on the GPU", "host": "from call to call"}
    titles = [f"{size} ({sizes[size]}), {clocks[clock]}" for size, clock in panels]
    figure = make_subplots(2, 2, subplot_titles=titles, vertical_spacing=0.16)
    for place, (size, clock) in enumerate(panels):
        _lines(
            figure, results, FORMS, "ms_p50",
            {"size": size, "clock": clock, "passes": PASSES[0]}, hover,
            row=1 + place // 2, col=1 + place % 2,
        )  # fmt: skip
    figure.update_yaxes(**MILLISECONDS)
    figure.update_layout(legend=LEGEND | {"y": -0.1}, margin={"t": 40, "r": 10, "l": 60, "b": 100})
    figure.update_annotations(font_size=13)

    def at(implementation, size, clock, heads=8, passes=PASSES[0]):
        wanted = {"size": size, "clock": clock, "heads": heads, "passes": passes}
        return only(rows, implementation=implementation, **wanted)["ms_p50"]

    small = {n: at(n, "small", "host") for n in FORMS}
    waits = at(LOOP, "small", "host") / at(LOOP, "small", "gpu")
    large, called = ({n: at(n, "large", clock) for n in FORMS} for clock in ("gpu", "host"))
    most = max(r["heads"] for r in rows)
    many = at(LOOP, "small", "host", most) / at(WIDE, "small", "host", most)
    one = at(LOOP, "small", "host", 1) / at(WIDE, "small", "host", 1)
    both = at(LOOP, "small", "host", 8, PASSES[1]) / at(WIDE, "small", "host", 8, PASSES[1])
    fastest = min(large, key=large.get)
    return Figure(
        finding=f"With 8 heads on the small input a call of the loop takes {time(small[LOOP])} and "
        f"one of the vectorised layer {time(small[WIDE])}.",
        caption="Forward pass in float16. On the GPU: between two events, with the launches already "
        "queued, L2 flushed before. From call to call: the host's clock over several calls, what "
        "your script waits for. Medians; all take turns; both axes logarithmic.",
        table=[
            {
                "size": size,
                "pass": passes,
                "clock": clocks[clock],
                "heads": heads,
                **{NAMES[n]: time(at(n, size, clock, heads, passes)) for n in FORMS},
            }
            for size, clock in panels
            for passes in PASSES
            for heads in sorted({r["heads"] for r in rows})
        ],
        plot=figure,
        height=680,
        narrow=stacked(titles, 1500, 0),
        sentences={
            "small": f"On the small input with 8 heads the loop takes {ratio(small[LOOP] / small[WIDE])} "
            f"the time of the vectorised layer, {ratio(one)} with 1 head and {ratio(many)} with "
            f"{most}. Forward and backward together, with 8 heads: {ratio(both)}.",
            "waits": f"The GPU itself is busy with the loop for {time(at(LOOP, 'small', 'gpu'))} of "
            f"the {time(small[LOOP])}. "
            + (
                "The rest is the host, which cannot hand out kernels as fast as they are done: "
                "the layer is *launch-bound*."
                if waits > 1.2
                else "So here the host keeps up, and launches are not what limits it."
            ),
            "large": f"On the large input with 8 heads the GPU is busy with the loop for "
            f"{time(large[LOOP])} and with the vectorised layer for {time(large[WIDE])}. From call "
            f"to call it is {time(called[LOOP])} against {time(called[WIDE])}: "
            + (
                "the kernels are longer there, and those of the loop still shorter than it takes to "
                "hand them out."
                if called[LOOP] / large[LOOP] > 1.2
                else "the kernels are long enough there to hide their launches."
            )
            + _few(rows),
            "sdpa": f"Fastest on the GPU with 8 heads and the large input: {NAMES[fastest]}, {time(large[fastest])}"
            + (
                "."
                if fastest == WIDE
                else f", {_against(large[fastest], large[WIDE])} the plain vectorised layer."
            )
            + (" The scores never go through memory there." if fastest in (SDPA, TORCH) else "")
            + _wide_heads(rows),
            "fused": f"On the small input one projection for all three takes {time(small[FUSED])} a "
            f"call where three take {time(small[WIDE])}, on the large one {time(large[FUSED])} "
            f"on the GPU where three take {time(large[WIDE])}.",
        },
    )  # fmt: skip


def _large(rows, implementation, passes=PASSES[0]):
    """Heads → time on the GPU, on the large input."""
    wanted = {"size": "large", "clock": "gpu", "passes": passes}
    return {r["heads"]: r["ms_p50"] for r in pick(rows, implementation=implementation, **wanted)}


def _few(rows):
    """Where the loop keeps the GPU busy for less time than the vectorised layer, or nothing."""
    loop, wide = _large(rows, LOOP), _large(rows, WIDE)
    ahead = [heads for heads in sorted(loop) if wide[heads] > 1.05 * loop[heads]]
    if not ahead:
        return ""
    most = max(ahead, key=lambda heads: wide[heads] / loop[heads])
    return (
        f" With {listed([str(heads) for heads in ahead])} heads the GPU is done with the loop sooner, "
        f"in {time(loop[most])} against {time(wide[most])} with {most}: heads that are tensors of "
        "their own need no copies."
    )


def _wide_heads(rows):
    """With which numbers of heads SDPA is behind the plain layer, or nothing."""
    plain, sdpa = _large(rows, WIDE), _large(rows, SDPA)
    behind = [heads for heads in sorted(plain) if sdpa[heads] > 1.05 * plain[heads]]
    if not behind:
        return ""
    width = next(r["E"] for r in rows if r["size"] == "large") // behind[0]
    both = [_large(rows, n, PASSES[1])[behind[0]] for n in (SDPA, WIDE)]
    return (
        f" With {behind[0]} head{'s' * (behind[0] > 1)} of {width} columns it is the other way round: "
        f"{time(sdpa[behind[0]])} with SDPA and {time(plain[behind[0]])} without, forward and backward "
        f"{time(both[0])} and {time(both[1])}. Its fast kernels are not made for heads so wide."
    )


def empty_launch(results):
    rows = results[0].rows
    names = list(dict.fromkeys(r["implementation"] for r in rows))
    clocks = {"host": "from launch to launch, host", "gpu": "on the GPU, queue full"}
    colours = {"host": "#c4569a", "gpu": "#2b84c6"}

    def micro(row, key="ms_p50"):
        return row[key] * 1e3 / row["launches"]

    figure = go.Figure()
    for result in results:
        for clock, name in clocks.items():
            chosen = [only(result.rows, implementation=n, clock=clock) for n in names]
            figure.add_bar(
                y=[n.replace(", ", ",<br>") for n in names],
                x=[micro(r) for r in chosen],
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [micro(r, "ms_p80") - micro(r) for r in chosen],
                    "arrayminus": [micro(r) - micro(r, "ms_p20") for r in chosen],
                    "thickness": 1,
                },
                orientation="h",
                name=name if len(results) == 1 else f"{name}, {device_name(result)}",
                marker={"color": colours[clock]},
                hovertemplate="%{y}: %{x:.2f} µs",
            )
    figure.update_xaxes(title="µs for each launch", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(
        barmode="group", legend=LEGEND | {"y": -0.25}, margin={"t": 10, "r": 10, "l": 10, "b": 90}
    )
    host = {n: micro(only(rows, implementation=n, clock="host")) for n in names}
    gpu = {n: micro(only(rows, implementation=n, clock="gpu")) for n in names}
    low, high = min(host.values()), max(host.values())
    inside = [n for n in names if 5 <= host[n] <= 10]
    sides = {"below" if host[n] < 5 else "above" for n in names if n not in inside}
    verdict = (
        "holds for all four" if len(inside) == len(names)
        else f"holds for {listed(inside)}; the other {len(names) - len(inside)} lie "
        f"{listed(sorted(sides))} it" if inside
        else "is too high" if high < 5 else "is too low" if low > 10 else "holds for none of them"
    )  # fmt: skip
    empty = names[0]
    return Figure(
        finding=f"One launch after the other takes the host {low:.1f} to {high:.1f} µs each; the "
        f"GPU, with a full queue, {min(gpu.values()):.1f} to {max(gpu.values()):.1f} µs.",
        caption=f"{rows[0]['launches']} launches in a row, divided by their number: on the host's "
        "clock until all are done, and between two events on the GPU while the queue is full. "
        "Medians, bars from p20 to p80.",
        table=[
            {
                "launched": n,
                "host, µs": float(f"{host[n]:.3g}"),
                "GPU, µs": float(f"{gpu[n]:.3g}"),
            }
            for n in names
        ],
        plot=figure,
        height=330,
        narrow={"height": 400, "margin": {"t": 10, "r": 10, "l": 10, "b": 120}},
        sentences={
            "empty": f"The empty kernel takes {host[empty]:.1f} µs on the host and {gpu[empty]:.1f} µs "
            "on the GPU, and computes nothing.",
            "claim": "**“A launch costs 5 to 10 µs.”** Measured on the host: "
            + "; ".join(f"{n}: {host[n]:.1f} µs" for n in names)
            + f". The claim {verdict}. It is the host's time; a GPU that has launches waiting "
            f"needs {min(gpu.values()):.1f} to {max(gpu.values()):.1f} µs for one.",
        },
    )


def head_dim(results):
    result = results[0]
    rows, ceilings = result.rows, result.ceilings
    OPERATIONS = {r["operation"]: r["label"] for r in rows}
    NEAR = sorted({r["around"] for r in rows})  # the widths of each column of panels
    titles = list(OPERATIONS.values())
    figure = make_subplots(
        3, 2, row_titles=titles, column_titles=[f"around {D}" for D in NEAR], shared_yaxes=True,
        vertical_spacing=0.07, horizontal_spacing=0.04,
    )  # fmt: skip
    for device, measured in enumerate(results):
        panels = itertools.product(enumerate(OPERATIONS, 1), enumerate(NEAR, 1), DTYPES.items())
        for (row, operation), (column, near), (dtype, shade) in panels:
            chosen = _product(measured.rows, operation, dtype)
            widths = [D for D in sorted(chosen) if chosen[D]["around"] == near]
            figure.add_scatter(
                x=widths,
                y=[chosen[D]["ms_p50"] for D in widths],
                name=dtype if len(results) == 1 else f"{dtype}, {device_name(measured)}",
                legendgroup=f"{dtype}{device}",
                showlegend=row == column == 1,
                mode="lines+markers",
                line={"color": shade, "dash": DASHES[device], "width": 2},
                marker={
                    "size": [10 if D % 8 == 0 else 5 for D in widths],
                    "symbol": ["diamond" if D % 8 == 0 else "circle" for D in widths],
                },
                text=[hover(chosen[D]) for D in widths],
                hovertemplate="D %{x}: %{text}",
                row=row,
                col=column,
            )
    for column, near in enumerate(NEAR, start=1):
        widths = sorted({r["D"] for r in rows if r["around"] == near})
        figure.update_xaxes(tickvals=[D for D in widths if D % 8 == 0], col=column)
        figure.update_xaxes(title="D, width of a head", row=3, col=column)
    figure.update_yaxes(**MILLISECONDS)
    figure.update_layout(legend=LEGEND | {"y": -0.08}, margin={"t": 40, "r": 30, "l": 60, "b": 80})

    def at(operation, dtype, D):
        return _product(rows, operation, dtype)[D]

    def odd(operation, dtype):  # one column more than 64, beside 64
        return at(operation, dtype, 65)["ms_p50"] / at(operation, dtype, 64)["ms_p50"]

    def rate(row):
        return row["flops"] / row["ms_p50"] * 1e3

    fma = ceilings["fma_float32"]["per_s_p50"]

    def surely(D):  # without tensor cores 16 bits are at most twice as fast: two in one instruction
        cases = itertools.product(OPERATIONS, DTYPES)
        rates = {(op, d): rate(at(op, d, D)) for op, d in cases}
        limits = {d: fma if d == "float32" else 2 * fma for d in DTYPES}
        above = {case: r for case, r in rates.items() if r > limits[case[1]]}
        named = [f"{OPERATIONS[op]} in {d} ({r / 1e12:.0f})" for (op, d), r in above.items()]
        return "; ".join(named) or "none"

    tf32 = only(
        rows, operation="scores", dtype="float32", D=64, implementation="torch:matmul, TF32"
    )
    half = ceilings["matmul_float16"]["per_s_p50"] / fma
    plain = ceilings["matmul_float16"]["per_s_p50"] / ceilings["matmul_float32"]["per_s_p50"]
    middle = ceilings["matmul_tf32"]["per_s_p50"] / fma
    whole = at("attention", "float32", 64)["ms_p50"] / at("attention", "float16", 64)["ms_p50"]
    names = {
        (operation, dtype, D): [
            k for k in at(operation, dtype, D)["kernels"] or [] if not k.startswith("Mem")
        ]
        for operation in OPERATIONS
        for dtype in DTYPES
        for D in (64, 65)
    }
    worst = {op: _worst(rows, op, "float16") for op in OPERATIONS}
    return Figure(
        finding=f"In float16 the scores of heads of 65 columns take {ratio(odd('scores', 'float16'))} "
        f"the time of 64, SDPA {ratio(odd('attention', 'float16'))}.",
        caption="Time over the width of a head around 64 and 128; diamonds are multiples of 8. "
        f"{rows[0]['batch'] * rows[0]['heads']} heads of {rows[0]['N']} tokens. Scores and values are products of whole matrices, which go through "
        "memory; SDPA is PyTorch's fused attention. Medians, L2 flushed before each call.",
        table=[
            {
                "operation": OPERATIONS[operation],
                "D": D,
                **{dtype: time(at(operation, dtype, D)["ms_p50"]) for dtype in DTYPES},
                "TFLOP/s in float16": rate(at(operation, "float16", D)) / 1e12,
            }
            for operation in OPERATIONS
            for D in sorted({r["D"] for r in rows})
        ],
        plot=figure,
        height=860,
        narrow={"height": 860},
        sentences={
            "odd": " ".join(
                f"{OPERATIONS[op][0].upper()}{OPERATIONS[op][1:]}: {ratio(odd(op, 'float16'))} in "
                f"float16 and {ratio(odd(op, 'float32'))} in float32."
                for op in OPERATIONS
            ),
            "worst": "The slowest width near 64, against the next multiple of 8 above it, in float16: "
            + "; ".join(f"{OPERATIONS[op]}, D {D}, {ratio(r)}" for op, (D, r) in worst.items())
            + ".",
            "names": "The profiler names the kernels. For the scores in float16, D 64:\n\n"
            + _listing(names["scores", "float16", 64])
            + "\n\nand D 65:\n\n"
            + _listing(names["scores", "float16", 65]),
            "backend": _backend(names),
            "reaches": f"Without them this GPU does {fma / 1e12:.0f} TFLOP/s in float32, and at most "
            "twice that in 16 bits. What does more runs on tensor cores for sure. At D 64 that are: "
            f"{surely(64)}. At D 65: {surely(65)}. Scores in float32 with TF32 allowed do "
            f"{rate(tf32) / 1e12:.0f}, and {rate(at('scores', 'float32', 64)) / 1e12:.0f} without it. "
            "Less does not prove the opposite: a product that waits for memory is slow on any unit."
            + _by_name(names["scores", "float16", 65]),
            "claim": f"**“Tensor cores give 8×.”** For large square matrices float16 does {ratio(half)} "
            f"the operations of this GPU's float32 units and {ratio(plain)} those of PyTorch's float32 "
            f"product; TF32 {ratio(middle)}. For attention itself at D 64, float16 is "
            f"{ratio(whole)} as fast as float32"
            + (
                ": near the claim, but not because of it alone, since float16 also moves half the bytes."
                if 6 <= whole <= 10
                else ". No single factor covers these."
            ),
        },
    )


def _by_name(kernels):
    """What the name of a product's kernel says about tensor cores, or nothing."""
    found = [re.search(r"tensorop.*?align(\d+)", name) for name in kernels]
    if not (found := [match for match in found if match]):
        return ""
    return (
        " The kernel of the scores in float16 at D 65 has `tensorop` in its name, so it uses tensor "
        f"cores, and `align{found[0][1]}`: what it loads at a time is "
        + ("a single element." if found[0][1] == "1" else f"{found[0][1]} elements.")
    )


BACKENDS = {  # part of a kernel's name → who wrote it
    "cudnn": "cuDNN", "flash": "flash", "fmha_cutlass": "memory-efficient attention",
    "softmax": "separate products with a softmax between",
}  # fmt: skip


def _backend(names):
    """What SDPA runs at D 64 and at D 65, by the names of its kernels, in one sentence a dtype."""
    said = []
    for dtype in ("float16", "float32"):
        took, counts = [], []
        for D in (64, 65):
            kernels = names["attention", dtype, D]
            took.append(
                next((w for part, w in BACKENDS.items() if any(part in k for k in kernels)), "")
            )
            counts.append(len(kernels))
        if all(took) and took[0] != took[1]:
            said.append(
                f"in {dtype} {took[0]} at D 64 ({_kernels(counts[0])}) and {took[1]} at D 65 "
                f"({_kernels(counts[1])})"
            )
    if not said:
        return ""
    return (
        f"SDPA does not only slow down, it changes its backend: {', and '.join(said)}. For some "
        "backends it pads q, k and v to a width that they take, and that means copies."
    )


def _kernels(count):
    return f"{count} kernel{'s' * (count > 1)}"


def _product(rows, operation, dtype):
    """D → row of an operation in a dtype, TF32 apart."""
    name = "torch:sdpa" if operation == "attention" else "torch:matmul"
    found = pick(rows, operation=operation, dtype=dtype, implementation=name)
    return {r["D"]: r for r in found}


def _worst(rows, operation, dtype):
    """(D, how much slower than D rounded up to a multiple of 8) of the worst D up to 72."""
    at = {D: r["ms_p50"] for D, r in _product(rows, operation, dtype).items() if D <= 72}
    slower = {D: ms / at[-(-D // 8) * 8] for D, ms in at.items() if D % 8}
    return max(slower.items(), key=lambda item: item[1])


def shapes(results):
    rows = results[0].rows
    letters = dict(pair.split("=") for pair in rows[0]["letters"])
    by_size = {int(size): letter for letter, size in letters.items()}

    def named(shape):
        return [by_size[size] for size in shape]

    wide = pick(rows, form="vectorized")
    loop = pick(rows, form="loop")
    lanes = {
        lane: [(r["operation"], r["shape"]) for r in wide if r["lane"] == lane]
        for lane in ("W_q", "W_k", "W_v")
    }
    same = [steps[1:3] == lanes["W_q"][1:3] for steps in lanes.values()]
    main = [r for r in wide if r["lane"] == "W_q"]
    copied = [r for r in wide if r["operation"] == "contiguous" and not r["same_memory"]]
    views = [r for r in wide if r["same_memory"]]
    return Figure(
        finding=f"From [{', '.join(named(rows[0]['x']))}] and back in {len(main)} steps; "
        f"{len(views)} of the layer's {len(wide)} operations move nothing, they only read the "
        "same memory in another shape or order.",
        caption="The way of the queries through `MultiHeadAttentionVectorized`, recorded while it ran "
        f"with {', '.join(f'{a} = {b}' for a, b in letters.items() if a != 'H·D')}. "
        + (
            "Keys and values take the same first three steps. " if all(same) else ""
        )
        + "A dashed arrow: the result lies in the same memory.",
        table=[
            {
                "form": r["form"],
                "step": r["step"],
                "operation": r["operation"],
                "from": " and ".join(f"[{', '.join(named(s))}]" for s in r["inputs"]),
                "to": f"[{', '.join(named(r['shape']))}]",
                "strides": str(tuple(r["stride"])),
                "same memory": "yes" if r["same_memory"] else "no",
            }
            for r in rows
        ],
        widget=f'<div class="am-journey">{_journey(main, rows[0]["x"], by_size)}</div>',
        sentences={
            "count": f"With {letters['H']} heads the loop makes {len(loop)} tensors on its way and "
            f"the vectorised layer {len(wide)}, of which {len(wide) - len(views)} are new memory.",
            "copies": f"One step copies without computing: `{copied[0]['operation']}()`, before the "
            "heads are merged."
            if len(copied) == 1
            else f"{len(copied)} steps copy without computing.",
        },
    )  # fmt: skip


def _journey(steps, start, by_size):
    """An SVG: one row of boxes for each shape, ribbons from axis to axis, operations between."""
    width, pitch, box, gap, left = 360, 62, 30, 8, 8
    states = [start, *(r["shape"] for r in steps)]
    total = pitch * len(states) - 24
    parts = [
        f'<svg viewBox="0 0 {width} {total}" role="img" '
        'aria-label="The shapes on the way through the layer, one below the other; '
        'the table below holds the same." '
        'style="display:block;max-width:27rem;width:100%;margin:0 auto;font-family:var(--am-mono)">'
    ]
    rows = [_boxes([by_size[size] for size in shape], left, box, gap) for shape in states]
    for i, r in enumerate(steps):
        top, bottom = i * pitch + box + 4, (i + 1) * pitch
        for a, x, w in rows[i]:
            for b, to, v in rows[i + 1]:
                if shared := _carried(a, b, r["operation"]):
                    start_x, start_w = _side(a, x, w, shared)
                    end_x, end_w = _side(b, to, v, shared)
                    shade = LETTER_COLOURS[shared]
                    parts.append(
                        f'<path d="M{start_x} {top}C{start_x} {bottom - 12} {end_x} {top + 12} '
                        f"{end_x} {bottom}H{end_x + end_w}C{end_x + end_w} {top + 12} "
                        f'{start_x + start_w} {bottom - 12} {start_x + start_w} {top}Z" '
                        f'fill="{shade}" fill-opacity="0.22"/>'
                    )
        text = html.escape(_said(r, [by_size[size] for size in r["shape"]]))
        dash = ' stroke-dasharray="3 3"' if r["same_memory"] else ""
        middle = (top + bottom) / 2
        parts.append(
            f'<g fill="none" stroke="var(--am-muted)" stroke-width="1.3">'
            f'<path d="M196 {top}V{bottom - 4}"{dash}/>'
            f'<path d="M192 {bottom - 8}l4 5l4 -5"/></g>'
            f'<text x="206" y="{middle + 4:g}" font-size="11.5" fill="var(--am-ink)">{text}</text>'
        )
    for i, boxes in enumerate(rows):
        for letter, x, w in boxes:
            name = letter.split("'")[0]
            size = next(s for s, known in by_size.items() if known == name)
            shade = LETTER_COLOURS[name]
            parts.append(
                f'<rect x="{x}" y="{i * pitch + 2}" width="{w}" height="{box}" rx="4" '
                f'fill="{shade}" fill-opacity="0.22" stroke="{shade}" stroke-width="1.3"/>'
                f'<text x="{x + w / 2:g}" y="{i * pitch + 16}" text-anchor="middle" '
                f'font-size="12" font-weight="600" fill="var(--am-ink)">{name}</text>'
                f'<text x="{x + w / 2:g}" y="{i * pitch + 28}" text-anchor="middle" '
                f'font-size="9.5" fill="var(--am-muted)">{size}</text>'
            )
    return "".join([*parts, "</svg>"])


def _boxes(letters, left, box, gap):
    """(letter, x, width) of the boxes of a shape; a second N is written N' to tell it apart."""
    found, x = [], left
    for place, letter in enumerate(letters):
        w = 2 * (box + 6) + gap if letter == "H·D" else box + 6
        again = letter in letters[:place]
        found.append((letter + "'" if again else letter, x, w))
        x += w + gap
    return found


def _side(letter, x, width, carried):
    """(x, width) of what a box hands on: of H·D the heads are the left half, D the right."""
    if letter != "H·D" or carried == letter:
        return x, width
    return (x, width / 2) if carried == "H" else (x + width / 2, width / 2)


def _carried(a, b, operation):
    """The letter whose values axis a hands to axis b, or None."""
    if a == b:
        # A product sums over its last axis: D and the second N end there, another begins.
        return a.split("'")[0]
    if a == "H·D" and b in ("H", "D") and operation == "view":
        return b
    if b == "H·D" and a in ("H", "D") and operation == "view":
        return a
    return None


def _said(row, letters):
    """The operation as the reader knows it from the code."""
    operation = row["operation"]
    if operation.startswith("W_"):
        return f"{operation}(…)"
    if operation == "matmul":
        return "· v" if letters[-1] == "D" else "· kᵀ"
    if operation == "mul":
        return "· 1/√D"
    if operation == "view":
        return f"view({', '.join(letters)})"
    return f"{operation}({', '.join(str(a) for a in row['arguments'])})"


def contiguity(results):
    rows = {r["expression"]: r for r in results[0].rows}
    B, H, N, D = results[0].rows[0]["sizes"]
    before, turned = rows["out"], rows["out.transpose(1, 2)"]
    copy = rows["out.transpose(1, 2).contiguous()"]
    raised = next(r for r in rows.values() if r["raised"])
    wrong = [r for r in rows.values() if r.get("right") is False]
    silent = [r for r in rows.values() if r.get("right") and "contiguous" not in r["expression"]]
    return Figure(
        finding="After `transpose` a `view` raises; `contiguous()` copies "
        f"{copy['bytes_copied']} bytes, every one there is, and then it works.",
        caption=f"Ways to merge the heads of `out`, [B, H, N, D] = [{B}, {H}, {N}, {D}] in float32, "
        "and what each gives: run by PyTorch "
        f"{results[0].versions['torch'].split('+')[0]}, not typed.",
        table=[
            {
                "expression": r["expression"],
                "shape": str(tuple(r["shape"])) if not r["raised"] else None,
                "strides": str(tuple(r["stride"])) if not r["raised"] else None,
                "contiguous": ("yes" if r["contiguous"] else "no") if not r["raised"] else None,
                "bytes copied": r["bytes_copied"] if not r["raised"] else None,
                "result": _outcome(r),
            }
            for r in rows.values()
        ],
        open_table=True,
        sentences={
            "error": "\n".join(
                ["```pycon", f">>> {raised['expression']}", *_wrapped(raised["raised"]), "```"]
            ),
            "strides": f"Before: shape {tuple(before['shape'])}, strides {tuple(before['stride'])}. "
            f"After `transpose(1, 2)`: shape {tuple(turned['shape'])}, strides "
            f"{tuple(turned['stride'])}. Nothing has moved in memory.",
            "copies": f"`contiguous()` moves all {copy['bytes_copied']} bytes "
            f"({B} · {H} · {N} · {D} numbers of 4), and the strides are "
            f"{tuple(copy['stride'])} again. "
            + (
                f"`{silent[0]['expression'].removeprefix('out.')}` copies "
                f"{silent[0]['bytes_copied']} bytes too, only without saying so."
                if silent
                else ""
            ),
            "wrong": f"`{wrong[0]['expression']}`, without the transpose, raises nothing: the shape "
            "is right and the numbers belong to other tokens."
            if wrong
            else "",
        },
    )  # fmt: skip


def _wrapped(text, width=78):
    """Lines of an error message that fit a phone's scrolling box."""
    lines = [""]
    for word in text.split():
        lines[-1:] = (
            [f"{lines[-1]} {word}".strip()]
            if len(lines[-1]) + len(word) < width
            else [lines[-1], word]
        )
    return lines


def _outcome(row):
    if row["raised"]:
        return row["raised"].split(":")[0]
    return {True: "right", False: "wrong numbers", None: None}[row["right"]]


def masks(results):
    rows = {r["convention"]: r for r in results[0].rows}
    kinds = {name: r["hidden_row"] for name, r in rows.items()}
    theirs = [name for name in rows if name.startswith("nn.")]
    nan = [name for name, kind in kinds.items() if kind == "NaN"]
    visible = rows["this page"]["visible"]
    wrong = {
        name: r["given_bool"]["difference"]
        for name, r in rows.items()
        if r["given_bool"].get("difference", 0) > 1e-6
    }
    added = {
        name: r["given_float"]["difference"]
        for name, r in rows.items()
        if r["given_float"].get("difference", 0) > 1e-6
    }
    return Figure(
        finding=f"A query that sees no key gets NaN from {len(nan)} of {len(rows)} calls: "
        f"{', '.join(_code(name) for name in nan)}."
        if nan
        else "No call gives NaN to a query that sees no key.",
        caption=f"The same visibility, {visible} with 1 for a visible key, in each convention; then a "
        "query that sees no key; then this page's mask, 0 hides, handed over as it is, as bool and "
        "as float: the largest difference of the result from the right one. The same weights "
        f"everywhere, in float64 on a CPU, PyTorch {results[0].versions['torch'].split('+')[0]}.",
        table=[
            {
                "call": name,
                "the mask": ", ".join(_mark(v) for v in r["mask"]),
                "a query that sees nothing": r["hidden_row"],
                "given this page's bool mask": _handed(r["given_bool"]),
                "given 1.0 and 0.0": _handed(r["given_float"]),
            }
            for name, r in rows.items()
        ],
        open_table=True,
        sentences={
            "hidden": "; ".join(f"{_code(name)} gives {kinds[name]}" for name in theirs) + ".",
            "same": "`need_weights=False` alone does not decide it: in training mode it gives "
            f"{kinds[theirs[1]]}, in evaluation without gradients, where PyTorch takes another "
            f"path, {kinds[theirs[2]]}."
            if kinds[theirs[1]] != kinds[theirs[2]]
            else f"In training and in evaluation `need_weights=False` gives {kinds[theirs[1]]}.",
            "silent": f"Handing a mask of one convention to another raises no error: this page's bool "
            f"mask is silently wrong in {len(wrong)} of the calls (by up to "
            f"{max(wrong.values()):.1f}), and ones and zeros as floats, which are then *added* to the "
            f"scores, in {len(added)}. This page's classes refuse a float mask."
            if wrong and added
            else "",
        },
    )


def _code(name):
    return f"`{name}`"


def _mark(value):
    return {"-inf": "-∞", "0.0": "0"}.get(value, value)


def _handed(found):
    if "raised" in found:
        return found["raised"].split(":")[0]
    if found["result"] == "NaN":
        return "NaN"
    difference = found["difference"]
    return "right" if difference < 1e-6 else f"wrong by {difference:.1f}"


def heads(results):
    rows = results[0].rows
    groups = {kind: [r for r in rows if _kind(r) == kind] for kind in KINDS}
    figure = go.Figure()
    for kind, (name, shade) in KINDS.items():
        chosen = groups[kind]
        if chosen:
            figure.add_scatter(
                x=[r["distance_strongest"] for r in chosen],
                y=[r["entropy_relative"] for r in chosen],
                name=f"{html.escape(name)} ({len(chosen)})",
                mode="markers",
                marker={"color": shade, "size": 10, "opacity": 0.8},
                text=[
                    f"layer {r['layer']} head {r['head']}<br>mean distance "
                    f"{r['distance_mean']:.1f}<br>elsewhere than its neighbours "
                    f"{r['elsewhere']:.2f}"
                    for r in chosen
                ],
                hovertemplate="%{text}<br>strongest key %{x:.1f} tokens away<br>entropy %{y:.2f}",
            )
    figure.update_xaxes(title="distance to the strongest key, tokens", rangemode="tozero")
    figure.update_yaxes(title="entropy, 1 = equal weights", range=[0, 1])
    figure.update_layout(legend=LEGEND, margin={"t": 10, "r": 10, "l": 60, "b": 110})
    near = [r for r in rows if r["distance_strongest"] < 1.5]
    sharp, flat = (f(rows, key=lambda r: r["entropy_relative"]) for f in (min, max))
    layers = sorted({r["layer"] for r in rows})
    elsewhere = {
        layer: sum(r["elsewhere"] for r in pick(rows, layer=layer)) / len(pick(rows, layer=layer))
        for layer in layers
    }
    least, most = min(elsewhere, key=elsewhere.get), max(elsewhere, key=elsewhere.get)
    alone = max(rows, key=lambda r: r["elsewhere"])
    counted = [
        f"{len(found)} "
        + ("give more than half of their attention to " if i == 0 else "to ")
        + KINDS[kind][0].replace("[", "`[").replace("]", "]`")
        for i, (kind, found) in enumerate((k, g) for k, g in groups.items() if g and k)
    ]
    return Figure(
        finding=f"Of {len(rows)} heads {listed(counted)}; the other {len(groups[''])} spread it more.",
        caption="One point a head: how far the key with the largest weight is from the query, and "
        "the entropy of its rows relative to equal weights, averaged over the queries of "
        f"{len(rows[0]['sentences'])} sentences. Coloured by which of five places gets more than "
        "half of the attention, if one does. From the weights published with the attention map.",
        table=[
            {
                "layer": r["layer"],
                "head": r["head"],
                "strongest key, tokens away": f"{r['distance_strongest']:.1f}",
                "mean distance": f"{r['distance_mean']:.1f}",
                "entropy of log N": f"{r['entropy_relative']:.2f}",
                "elsewhere than its layer": f"{r['elsewhere']:.2f}",
                "mostly to": KINDS[_kind(r)][0],
            }
            for r in rows
        ],
        plot=figure,
        height=440,
        narrow={"height": 520},
        sentences={
            "range": f"The sharpest head is layer {sharp['layer']} head {sharp['head']} (entropy "
            f"{sharp['entropy_relative']:.2f} of equal weights), the flattest layer "
            f"{flat['layer']} head {flat['head']} ({flat['entropy_relative']:.2f}). The strongest key "
            f"is less than 1.5 tokens away, on average, in {len(near)} of {len(rows)} heads.",
            "elsewhere": f"Two heads of one layer put between {elsewhere[least]:.2f} (layer {least}) "
            f"and {elsewhere[most]:.2f} (layer {most}) of their attention on different tokens, on "
            f"average. The one that differs most from its neighbours is layer {alone['layer']} "
            f"head {alone['head']}, with {alone['elsewhere']:.2f}.",
        },
    )


def _kind(row):
    """The place that gets more than half of a head's attention, or "" """
    best = max((key for key in KINDS if key), key=lambda key: row[key])
    return best if row[best] > 0.5 else ""
