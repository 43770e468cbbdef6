"""The figures of the attention_memory page: each draws the result of the same name."""

from math import log10

from plotly.subplots import make_subplots

from snippets._lab.draw.charts import listed
from snippets._lab.draw.figure import (
    DASHES,
    NAMES,
    Figure,
    cell,
    colour,
    hover,
    name_of,
    only,
    pick,
    ratio,
    table,
    time,
)

CARD = 80 * 10**9  # the card that the page begins with
LEGEND = {"orientation": "h", "y": -0.2, "x": 0}
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
HALF = 0.5  # from this share of a ceiling on we say that the ceiling is what limits
UNITS = ["bytes", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"]


def _size(value):
    """Bytes as read aloud: "16.8 MB", "140.7 GB"; 1 kB is 1000 bytes."""
    power = 0
    while value >= 999.95 and power < len(UNITS) - 1:
        value, power = value / 1000, power + 1
    digits = f"{value:.0f}" if power == 0 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return f"{digits} {UNITS[power]}"


def _binary(value):
    """A size of hardware, which comes in powers of two: "228 KiB", "60 MiB"."""
    power = 0
    while value >= 1024 and power < 3:
        value, power = value / 1024, power + 1
    return f"{value:.4g} {['bytes', 'KiB', 'MiB', 'GiB'][power]}"


def _rate(per_second):
    """Bytes a second: "4.50 TB/s"."""
    return f"{per_second / 1e12:.3g} TB/s" if per_second >= 1e12 else f"{per_second / 1e9:.3g} GB/s"


def _percent(share):
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.0f} %"


def _layer(row):
    return f"B {row['B']}, H {row['H']}, N {row['N']}, D {row['D']}"


def tensors(results):
    rows = results[0].rows
    full = only(rows, dtype="float32")
    half = only(rows, dtype="float16")
    named = sum(full[name] for name in NAMED)
    return Figure(
        finding=f"q, k, v and the result take {_size(full['q'])} each, the scores "
        f"{_size(full['scores'])}.",
        caption=f"{_layer(full)}: bytes by formula. GB is 1e9 bytes. The logsumexp is what a fused "
        "kernel keeps in the place of scores and weights.",
        table=[
            {
                "tensor": name,
                "elements": elements,
                "bytes in float32": full[name],
                "float32": _size(full[name]),
                "float16, bfloat16": _size(half[name]),
            }
            for name, elements in TENSORS.items()
        ],
        open_table=True,
        sentences={
            "scores": f"The scores take {full['scores'] // full['q']} times what q takes, because "
            f"each query has a row of {full['N']} of them where q has {full['D']} numbers. "
            f"N / D is that factor, and it is all there is to the quadratic wall.",
            "named": f"Together q, k, v, the scores and the result are {_size(named)}. "
            + (
                "On a card of 80 GB this layer seems to fit."
                if named <= CARD
                else "A card of 80 GB cannot hold them."
            ),
        },
    )


def counted(results):
    rows = results[0].rows
    first = only(rows, dtype="float32", backward=False, causal=False)
    causal = only(rows, dtype="float32", backward=False, causal=True)
    training = only(rows, dtype="float32", backward=True, causal=False)
    exact = all(r[f"{x}_formula"] == r[f"{x}_counted"] for r in rows for x in ("eager", "fused"))
    fits = "fits" if first["eager_formula"] <= CARD else "does not fit"
    some = [
        {
            "run, in float32": ("training" if r["backward"] else "forward")
            + (", causal mask" if r["causal"] else ""),
            "eager, formula": r["eager_formula"],
            "eager, counted": r["eager_counted"],
            "eager, seen from outside": r["eager_seen"],
            "eager": _size(r["eager_counted"]),
            "fused, counted": r["fused_counted"],
            "fused": _size(r["fused_counted"]),
        }
        for r in pick(rows, dtype="float32")
    ]
    return Figure(
        finding=f"At its peak eager attention holds {_size(first['eager_counted'])}, a fused "
        f"operation {_size(first['fused_counted'])}"
        + ("; the formulas say the same, to the byte." if exact else "; the formulas are off."),
        caption=f"{_layer(first)}. Most bytes held at once, q, k and v included, counted on tensors "
        "that have a shape and no memory. “Training” is a forward and a backward. Counted is what is "
        "seen from outside operations, and what the softmax's backward makes inside itself on a GPU. "
        "Fused: the "
        "operation in which PyTorch fuses attention on a CPU; a kernel's own workspace is not seen.",
        table=[
            {
                "dtype": r["dtype"],
                "run": "training" if r["backward"] else "forward",
                "mask": "causal" if r["causal"] else "none",
                "eager, formula": r["eager_formula"],
                "eager, counted": r["eager_counted"],
                "eager, seen from outside": r["eager_seen"],
                "fused, formula": r["fused_formula"],
                "fused, counted": r["fused_counted"],
            }
            for r in rows
        ],
        widget="\n".join(["<div markdown>", "", *table(some), "", "</div>"]),
        sentences={
            "peak": f"The count says {_size(first['eager_counted'])}: the softmax writes its weights "
            f"while the scores are still there, so there are two tensors of "
            f"{_size(first['square'])}. On a card of 80 GB this layer **{fits}**.",
            "training": f"A training step takes {_size(training['eager_counted'])}. What waits "
            "between forward and backward is one N × N tensor, the weights: the backward of the "
            "softmax needs its result and not its input, so the scores are gone by then. But in the "
            "backward the weights meet their gradient and the gradient of the scores, and those are "
            f"three{_of_inside(training)}.",
            "causal": "A causal mask adds "
            f"{_size(causal['eager_counted'] - first['eager_counted'])} and takes nothing away. Eager "
            "attention computes and stores the hidden half of the scores too, and then hides it.",
            "fused": f"The fused operation holds {_size(first['fused_counted'])}, "
            f"{ratio(first['eager_counted'] / first['fused_counted'])} less: q, k, v, the result "
            "and one float32 for each query, the logsumexp, from which a backward can compute the "
            "weights again. In training it is "
            f"{_size(training['fused_counted'])}, "
            f"{ratio(training['eager_counted'] / training['fused_counted'])} less.",
        },
    )  # fmt: skip


def _of_inside(row):
    """The rest of a training step's count: what an operation makes that nobody outside sees."""
    inside = row["eager_counted"] - row["eager_seen"]
    if inside == 0:
        return ""
    return (
        f": from outside {_size(row['eager_seen'])} are seen. The other {_size(inside)}"
        + (", a fourth N × N tensor," if inside == row["square"] else "")
        + " the backward of the softmax makes inside itself: a GPU multiplies the weights with "
        "their gradient first, and stores the product until the operation returns"
    )


def calculator(results):
    rows = results[0].rows
    cards = {r["card"]: r["memory_bytes"] for r in pick(rows, kind="card")}
    cases = pick(rows, kind="case")
    first = next(r for r in cases if not (r["causal"] or r["backward"]))
    sizes = ("q", "k", "v", "scores", "weights", "mask", "output", "logsumexp", "eager", "fused")
    some = [
        {
            "card": card,
            "memory": f"{memory // 10**9} GB",
            **{
                f"{name}: {_size(first[name])}": "fits" if first[name] <= memory else "does not fit"
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
        "optimiser, other layers, driver and allocator come on top. A card's memory is the number "
        "of its data sheet times 1e9 bytes. The formulas are those of module.py, written once more "
        "in JavaScript; a test holds both against the same cases.",
        table=some,
        widget="\n".join(
            [
                '<div class="am-memory" markdown>',
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
                "cards": [{"name": name, "bytes": str(size)} for name, size in cards.items()],
                "dtypes": [{"name": r["dtype"], "size": r["size"]} for r in pick(rows, kind="dtype")],
                # As text: JSON's numbers are doubles in a browser, and these are exact.
                "cases": [
                    {key: r[key] for key in ("dtype", "causal", "backward")}
                    | {key: str(r[key]) for key in ("B", "H", "N", "D", *sizes)}
                    | {"largest": {key: str(n) for key, n in r["largest"].items()}}
                    for r in cases
                ],
            }
        },
    )  # fmt: skip


PEAKS = [
    "torch:eager", "torch:math", "composed_attention", "attention_memory:exercise",
    "basic_attention", "vectorized_attention", "tiled_attention", "flash_attention",
    "torch:flash", "torch:cudnn", "torch:efficient",
]  # fmt: skip
SYMBOLS = ["circle", "square", "diamond", "cross", "x", "triangle-up", "triangle-down", "star"]


def _growth(rows, implementation, **case):
    """By what the peak grows when N doubles from the longest but one to the longest; or None."""
    found = sorted((r["N"], r["bytes_peak"]) for r in _peaks(rows, implementation, **case))
    if len(found) < 2 or found[-1][0] != 2 * found[-2][0]:
        return None
    return found[-1][1] / found[-2][1]


def _peaks(rows, implementation, **case):
    return pick(rows, implementation=implementation, **case)


def peak_memory(results):
    rows = results[0].rows
    present = [name for name in PEAKS if pick(rows, implementation=name)]
    titles = {False: "forward", True: "forward and backward"}
    figure = make_subplots(1, 2, subplot_titles=list(titles.values()), shared_yaxes=True)
    for device, result in enumerate(results):
        for column, backward in enumerate(titles, start=1):
            for formula in ("eager", "fused"):
                at = {
                    r["N"]: r[f"bytes_{formula}"] for r in result.rows if r["backward"] is backward
                }
                figure.add_scatter(
                    x=sorted(at), y=[at[N] for N in sorted(at)], mode="lines",
                    name=f"formula, {formula}", legendgroup=f"formula, {formula}",
                    showlegend=column == 1 and device == 0, row=1, col=column,
                    line={"color": colour("ceiling"), "width": 6 if formula == "eager" else 3},
                    opacity=0.5, hovertemplate=f"formula, {formula}<br>N %{{x}}: %{{y:.4s}}B",
                )  # fmt: skip
            for place, name in enumerate(present):
                chosen = _peaks(result.rows, name, backward=backward)
                label = name_of(name, result, results)
                figure.add_scatter(
                    x=[r["N"] for r in chosen], y=[r["bytes_peak"] for r in chosen],
                    name=label, legendgroup=label, showlegend=column == 1, mode="lines+markers",
                    line={"color": colour(name), "dash": DASHES[device], "width": 1.5},
                    marker={"size": 8, "symbol": SYMBOLS[place % len(SYMBOLS)]},
                    text=[_size(r["bytes_peak"]) for r in chosen],
                    hovertemplate=f"{label}<br>N %{{x}}: %{{text}}<extra></extra>",
                    row=1, col=column,
                )  # fmt: skip
    lengths = sorted({r["N"] for r in rows})
    figure.update_xaxes(type="log", title="N", tickvals=lengths[::2], tickformat="d")
    figure.update_yaxes(
        type="log", tickvals=[10**k for k in range(5, 12)],
        ticktext=["100 kB", "1 MB", "10 MB", "100 MB", "1 GB", "10 GB", "100 GB"],
    )  # fmt: skip
    figure.update_layout(legend=LEGEND, margin={"t": 40, "r": 10, "l": 60, "b": 150})
    growth = {name: _growth(rows, name, backward=False) for name in present}
    growth = {name: x for name, x in growth.items() if x}
    eager = _peaks(rows, "torch:eager", backward=False)
    longest = max(eager, key=lambda r: r["N"])
    off = max(abs(r["bytes_requested"] / r["bytes_eager"] - 1) for r in eager)
    refused = sorted(
        {f"{cell(r['implementation'])}: {cell(r['error'])}" for r in rows if r.get("error")}
    )
    fused = [
        r
        for n, x in growth.items()
        if x <= SQUARE and n != IN_BLOCKS
        for r in _peaks(rows, n, backward=False, N=longest["N"])
    ]
    least = min(fused, key=lambda r: r["bytes_peak"]) if fused else None
    math = _peaks(rows, "torch:math", backward=False, N=longest["N"])
    return Figure(
        finding=f"At N {longest['N']} eager attention holds {_size(longest['bytes_peak'])} beside "
        "its inputs"
        + (
            f", {_named(least['implementation'])} {_size(least['bytes_peak'])}."
            if least
            else "; nothing that was measured holds less than a square."
        ),
        caption=f"Most memory of one call beside q, k and v: {rows[0]['heads']} heads of D {rows[0]['D']}, {rows[0]['dtype']}, "
        "by `torch.cuda.max_memory_allocated`; both axes logarithmic. Grey: the formulas. PyTorch "
        "hands out memory in pieces, so a little more may be held than was asked for."
        + (f" Without a value: {'; '.join(refused)}." if refused else ""),
        table=[
            {
                "run": titles[r["backward"]],
                "N": r["N"],
                "implementation": r["implementation"],
                "peak, bytes": r.get("bytes_peak"),
                "asked for, bytes": r.get("bytes_requested"),
                "eager formula, bytes": r["bytes_eager"],
                "fused formula, bytes": r["bytes_fused"],
                "no value because": r.get("error"),
            }
            for r in rows
        ],
        plot=figure,
        height=560,
        narrow={"height": 900, **_below(2, 900, 0)},
        sentences={
            "growth": "When N doubles at the long end, the peak grows "
            + "; ".join(
                f"{said} for {listed([_named(n) for n in names])}"
                for said, names in _by_growth(growth).items()
            )
            + "."
            + (
                " The last one has a fixed budget for its scores, and what grows is the result."
                if list(_by_growth(growth).values())[-1] == [IN_BLOCKS]
                else ""
            ),
            "formula": "In a forward eager attention asked for "
            + (
                "what the formula says, to the byte, at every N."
                if off == 0
                else f"something else than the formula says, by at most {_percent(off)}."
            ),
            "training": _of_training(rows, longest["N"]),
            "fused": _of_fused(fused),
            "bump": _bump(rows, [r["implementation"] for r in fused]),
            "math": _of_math(math, longest),
        },
    )  # fmt: skip


SQUARE = 3  # a peak that grows by more than this when N doubles holds something of N × N
SEEN = 3  # N × N tensors that the operations of a training step hand to each other
IN_BLOCKS = "attention_memory:exercise"


def _named(name):
    """An implementation in a sentence: our functions as code, a backend as PyTorch's."""
    return NAMES.get(name, _quoted(name)).replace("PyTorch, ", "PyTorch's ")


def _by_growth(growth):
    """ "4.0×" → the implementations whose peak grows so, the steepest first."""
    found = {}
    for name, x in sorted(growth.items(), key=lambda item: -round(item[1], 1)):
        found.setdefault(f"{x:.1f}×", []).append(name)
    return found


def _of_training(rows, N):
    """What forward and backward ask for beside the formula, at one N and, for eager, at all."""
    both = _peaks(rows, "torch:eager", backward=True)
    if not both:
        return "Forward and backward have no value for eager attention."
    last = only(both, N=N)
    # The N × N tensor of a row, by the formula for a forward: scores and weights, two of them.
    square = {r["N"]: r["bytes_eager"] / 2 for r in _peaks(rows, "torch:eager", backward=False)}
    each = {(r["bytes_requested"] - r["bytes_eager"]) / square[r["N"]] for r in both}
    text = (
        f"Forward and backward together ask for {_size(last['bytes_requested'])} at N {N}, where the "
        f"formula says {_size(last['bytes_eager'])}: "
    )
    squares = last["bytes_eager"] // square[N]
    if each == {0}:
        text += (
            f"the same, to the byte, at every N, and {squares:.0f} N × N tensors at the longest."
        )
        if squares > SEEN:
            text += (
                " The device's account includes what operations make inside themselves, and what the "
                "backward of the softmax makes is all that has to be added."
            )
    elif len(each) == 1:
        (more,) = each
        count = "one N × N tensor" if abs(more) == 1 else f"{abs(more):.3g} N × N tensors"
        text += f"at every N exactly {count} {'more' if more > 0 else 'less'}."
    else:
        off = max(abs(r["bytes_requested"] / r["bytes_eager"] - 1) for r in both)
        text += f"the difference is at most {_percent(off)}."
    fused = [
        r
        for r in pick(rows, backward=True, N=N)
        if r["implementation"] not in ("torch:eager", "torch:math")
    ]
    if fused:
        some = [f"{_size(r['bytes_requested'])} for {_named(r['implementation'])}" for r in fused]
        text += (
            f" The fused backends ask for {listed(some)}, where the formula says "
            f"{_size(last['bytes_fused'])}"
            + (
                ": more is workspace of their own, which no formula here knows."
                if any(r["bytes_requested"] > r["bytes_fused"] for r in fused)
                else "."
            )
        )
    return text


def _bump(rows, names):
    """A fused kernel that holds far more than its formula at one N, and why if the sum says it."""
    found = [
        r
        for name in names
        if name != IN_BLOCKS
        for r in _peaks(rows, name, backward=False)
        if r["bytes_requested"] > 1.5 * r["bytes_fused"]
    ]
    if len(found) != 1:
        return ""
    (row,) = found
    text = (
        f"One point stands out: {_named(row['implementation'])} at N {row['N']}, with "
        f"{_size(row['bytes_requested'])} instead of {_size(row['bytes_fused'])}."
    )
    # A part of the keys has a result and a logsumexp of its own, in float32.
    parts, rest = divmod(
        row["bytes_requested"] - row["bytes_fused"], 4 * row["heads"] * row["N"] * (row["D"] + 1)
    )
    if parts > 1 and rest < 1024:
        text += (
            f" The difference is {parts} results with their logsumexps in float32: for this number of "
            f"queries it splits the keys in {parts}, so that more of the GPU has work, and adds up the "
            "parts at the end."
        )
    return text


def _quoted(name):
    return f"`{name}`"


def _of_math(math, eager):
    if not math:
        return "The backend *math* has no value at the longest N."
    share = math[0]["bytes_peak"] / eager["bytes_peak"]
    text = (
        "SDPA's backend for everything else, *math*, is no fused kernel: at N "
        f"{eager['N']} it holds {_size(math[0]['bytes_peak'])}, {ratio(share)} what eager holds."
    )
    return text + (
        " In float16 it computes in float32, so its N × N tensors are twice as large"
        + (
            ", and beside them it looks for rows that see no key, with a byte for each score."
            if share > 2.1
            else "."
        )
        if share > 1.5
        else ""
    )


def _of_fused(fused):
    if not fused:
        return "No fused kernel was measured at the longest N."
    beside = {r["implementation"]: r["bytes_requested"] - r["bytes_fused"] for r in fused}
    logsumexp = 4 * fused[0]["heads"] * fused[0]["N"]
    parts = []
    slack = 4096  # bytes: a seed, an offset, a few words of workspace
    for said, names in (
        ("the formula's bytes", [n for n, x in beside.items() if 0 <= x <= slack]),
        (
            f"the logsumexp, {_size(logsumexp)}, less",
            [n for n, x in beside.items() if 0 <= x + logsumexp <= slack],
        ),
    ):
        if names:
            parts.append(f"{said} for {listed([_named(n) for n in names])}")
    for name, x in beside.items():
        if not (0 <= x <= slack or 0 <= x + logsumexp <= slack):
            parts.append(f"{_size(abs(x))} {'more' if x > 0 else 'less'} for {_named(name)}")
    small = max(0 < x % logsumexp <= slack for x in beside.values())
    return (
        f"Asked for at N {fused[0]['N']}, beside the fused formula"
        + (f" and within {_size(slack)}" if small else "")
        + f": {'; '.join(parts)}. A kernel that serves no backward can leave the logsumexp out."
    )


def _below(panels, height, legend):
    """Layout on a phone: the panels one below the other, `legend` pixels for the legend."""
    foot = legend / height
    step = (1 - foot) / panels
    layout = {
        "grid": {"rows": panels, "columns": 1},
        "legend": {"y": 0, "yanchor": "bottom", "yref": "container"},
        "margin": {"t": 40, "r": 10, "l": 60, "b": 10},
        "annotations": [
            {"text": text, "x": 0.5, "y": 1 - i * step, "xref": "paper", "yref": "paper",
             "showarrow": False, "yanchor": "bottom"}
            for i, text in enumerate(("forward", "forward and backward")[:panels])
        ],
    }  # fmt: skip
    for i in range(panels):
        name = "" if i == 0 else str(i + 1)
        top = 1 - i * step
        layout[f"xaxis{name}"] = {"domain": [0, 1], "anchor": f"y{name}"}
        layout[f"yaxis{name}"] = {
            "domain": [top - step + 110 / height, top], "anchor": f"x{name}", "showticklabels": True,
        }  # fmt: skip
    return layout


def _levels(result):
    """Levels of the hierarchy: name → (bytes in all, bytes of a multiprocessor, bytes/s, how)."""
    sizes = only(result.rows, kind="sizes")
    walks = pick(result.rows, kind="walk")
    many = sizes["multiprocessors"]

    def largest(limit):
        """Bytes a second of the largest working set of at most so many bytes."""
        within = [r for r in walks if r["set_bytes"] <= limit]
        row = max(within, key=lambda r: r["set_bytes"])
        return row["bytes_loaded"] / row["ms_p50"] * 1e3

    turn = only(result.rows, kind="turn")
    fma = result.ceilings["fma_float32"]["per_s_p50"]
    return {
        "registers": (
            many * sizes["registers_bytes"], sizes["registers_bytes"], 4 * fma,
            "at least: the float32 ceiling, one register read and one written for two FLOPs",
        ),
        "shared memory": (
            many * sizes["shared_bytes"], sizes["shared_bytes"],
            turn["bytes_shared"] / turn["ms_p50"] * 1e3,
            "at least: tiles turned on chip, each word written and read once a trip",
        ),
        "L1": (
            None, None, largest(sizes["shared_bytes"] // 2),
            "read again and again, the largest working set of at most half a multiprocessor's "
            "memory; the same memory as shared memory",
        ),
        "L2": (
            sizes["l2_bytes"], None,
            largest(sizes["l2_bytes"] // 2),
            "the same kernel, the largest working set of at most half of L2: in smaller ones several "
            "programs are at the same place at once, and can share what comes",
        ),
        "HBM": (
            sizes["memory_bytes"], None, result.ceilings["read"]["per_s_p50"],
            "reading once what is many times L2: the ceiling of this run",
        ),
    }  # fmt: skip


def hierarchy(results):
    figure = make_subplots(1, 1)
    for device, result in enumerate(results):
        walks = pick(result.rows, kind="walk")
        figure.add_scatter(
            x=[r["set_bytes"] for r in walks],
            y=[r["bytes_loaded"] / r["ms_p50"] / 1e9 for r in walks],
            name=name_of("reading a working set again and again", result, results),
            mode="lines+markers",
            line={"color": colour("coalescing"), "dash": DASHES[device], "width": 2},
            text=[f"{_binary(r['set_bytes'])}: {hover(r)}" for r in walks],
            hovertemplate="%{text}<br>%{y:.2f} TB/s",
        )
        ends = [walks[0]["set_bytes"], walks[-1]["set_bytes"]]
        for name, ceiling in (("read", "HBM, the ceiling of this run"),):
            figure.add_scatter(
                x=ends, y=[result.ceilings[name]["per_s_p50"] / 1e12] * 2, mode="lines",
                name=name_of(ceiling, result, results),
                line={"color": colour("ceiling"), "dash": "dot", "width": 2},
                hovertemplate="HBM: %{y:.2f} TB/s",
            )  # fmt: skip
        sizes = only(result.rows, kind="sizes")
        for key, text in (("shared_bytes", "L1 and shared memory"), ("l2_bytes", "L2")):
            figure.add_vline(
                x=sizes[key], line={"color": colour("ceiling"), "dash": DASHES[device], "width": 1}
            )
            if device == 0:  # an annotation's place on a logarithmic axis is the logarithm
                figure.add_annotation(
                    x=log10(sizes[key]), y=1, yref="paper", text=text, showarrow=False,
                    yanchor="bottom",
                )  # fmt: skip
    figure.update_xaxes(
        type="log", title="working set", tickvals=[2**15, 2**18, 2**21, 2**24, 2**27, 2**30],
        ticktext=["32 KiB", "256 KiB", "2 MiB", "16 MiB", "128 MiB", "1 GiB"],
    )  # fmt: skip
    figure.update_yaxes(
        type="log", title="TB/s", tickvals=[0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
    )
    figure.update_layout(legend=LEGEND, margin={"t": 30, "r": 10, "l": 60, "b": 90})
    levels = _levels(results[0])
    sizes = only(results[0].rows, kind="sizes")
    hbm = levels["HBM"][2]
    times = {n: x[2] / hbm for n, x in levels.items() if x[2] and n != "HBM"}
    return Figure(
        finding="What each level of memory delivers, measured: "
        + ", ".join(
            f"{n} {'at least ' * x[3].startswith('at least')}{_rate(x[2])}"
            for n, x in levels.items()
            if x[2]
        )
        + ".",
        caption="Sizes as the device tells them. The curve: every program reads a working set of "
        "float32 again and again, each from another place on; bytes loaded over time, medians. "
        "Lines: the memory of one multiprocessor, the L2, and the HBM ceiling of the same run.",
        table=[
            {
                "level": name,
                "in all": _binary(total) if total else "–",
                "of a multiprocessor": _binary(one) if one else "–",
                "bandwidth": _rate(rate) if rate else "–",
                "beside HBM": ratio(rate / hbm) if rate else "–",
                "how": how,
            }
            for name, (total, one, rate, how) in levels.items()
        ],
        plot=figure,
        height=400,
        narrow={
            "height": 460,
            "legend": {"y": -0.3},
            "xaxis": {
                "tickvals": [2**15, 2**21, 2**27],
                "ticktext": ["32 KiB", "2 MiB", "128 MiB"],
            },
        },
        sentences={
            "sizes": f"This GPU has {sizes['multiprocessors']} multiprocessors. Each has "
            f"{_binary(sizes['registers_bytes'])} of registers and {_binary(sizes['shared_bytes'])} "
            f"of memory that serves as L1 cache and as shared memory, of which one program can "
            f"have {_binary(sizes['shared_bytes_program'])}. All share {_binary(sizes['l2_bytes'])} "
            f"of L2 and {sizes['memory_bytes'] / 1e9:.1f} GB of HBM.",
            "times": "Measured beside HBM: "
            + ", ".join(f"{name} {ratio(x)}" for name, x in times.items())
            + ".",
            "one_head": _one_head(sizes),
            "card": f"The device says {sizes['memory_bytes'] / 1e9:.1f} GB. That is what PyTorch "
            "can see, in units of 1e9 bytes; the number in a card's name may count differently, and "
            "the driver and PyTorch itself take some of it.",
        },
    )


def _one_head(sizes):
    """How long a head's scores may be, in float16, to stay within a level."""
    names = {
        "registers": sizes["registers_bytes"],
        "shared memory": sizes["shared_bytes"],
        "L2": sizes["l2_bytes"],
    }
    most = {name: int((size // 2) ** 0.5) for name, size in names.items()}
    return (
        "The N × N scores of one head in float16 fit into "
        + ", into ".join(
            f"{'the ' if name == 'L2' else 'the ' + name + ' of a multiprocessor'}"
            f"{'L2' if name == 'L2' else ''} up to N {n}"
            for name, n in most.items()
        )
        + ". A head of D 64 needs 128 bytes for each further key or value."
    )


STEPS = ["q · kᵀ", "softmax", "weights · v"]
WORK = {step: f"eager: {step}" for step in STEPS}
EAGER, SDPA, DECODE = "eager, all", "SDPA", "decode"


def _kind(row):
    """What a row of `intensity` is: a step of eager attention, a fused call or decoding."""
    return row["work"]


def _memory(ceilings):
    return ceilings["read"]["per_s_p50"]


def _shares(row, ceilings):
    """Shares that a row reaches of memory's and of arithmetic's ceiling."""
    seconds = row["ms_p50"] / 1e3
    unit = "matmul_float16" if row["product"] else "fma_float32"
    memory = row["bytes_moved"] / seconds / _memory(ceilings)
    return memory, row["flops"] / seconds / ceilings[unit]["per_s_p50"]


def _verdict(row, ceilings):
    """ "memory", "arithmetic" or "neither": the ceiling of which a row reaches at least half."""
    memory, arithmetic = _shares(row, ceilings)
    if max(memory, arithmetic) < HALF:
        return "neither"
    return "memory" if memory >= arithmetic else "arithmetic"


def _case(row):
    where = f"{row['N']} keys" if row["M"] == 1 else f"N {row['N']}"
    return f"{where}, D {row['D']}"


def intensity(results):
    paints = {
        "memory": colour("basic_attention"),
        "arithmetic": colour("torch:sdpa"),
        "neither": colour("ceiling"),
    }
    kinds = [*WORK.values(), EAGER, SDPA, DECODE]
    figure = make_subplots(1, 1)
    for device, result in enumerate(results):
        top = result.ceilings["matmul_float16"]["per_s_p50"]
        bandwidth = _memory(result.ceilings)
        figure.add_scatter(
            x=[0.3, top / bandwidth, 30_000],
            y=[0.3 * bandwidth / 1e12, top / 1e12, top / 1e12],
            name=name_of("the most this GPU does, measured", result, results),
            mode="lines",
            line={"color": colour("ceiling"), "dash": DASHES[device], "width": 2},
            hovertemplate="%{x:.3g} FLOP a byte: %{y:.3g} TFLOP/s at most",
        )
        for kind, symbol in zip(kinds, SYMBOLS, strict=False):
            chosen = [r for r in pick(result.rows) if _kind(r) == kind]
            figure.add_scatter(
                x=[r["flops"] / r["bytes_moved"] for r in chosen],
                y=[r["flops"] / r["ms_p50"] / 1e9 for r in chosen],
                name=name_of(kind, result, results),
                mode="markers",
                marker={
                    "color": [paints[_verdict(r, result.ceilings)] for r in chosen],
                    "symbol": symbol,
                    "size": 10,
                },
                text=[
                    f"{kind}, {_case(r)}: {hover(r)}<br>limited by {_verdict(r, result.ceilings)}"
                    for r in chosen
                ],
                hovertemplate="%{text}<br>%{x:.3g} FLOP a byte, %{y:.3g} TFLOP/s<extra></extra>",
            )
    figure.update_xaxes(
        type="log", title="FLOP for each byte that moves", tickvals=[1, 10, 100, 1000, 10_000]
    )
    figure.update_yaxes(type="log", title="TFLOP/s", tickvals=[0.1, 1, 10, 100, 1000])
    figure.update_layout(legend=LEGEND, margin={"t": 10, "r": 10, "l": 60, "b": 130})
    ceilings, rows = results[0].ceilings, pick(results[0].rows)
    ridge = ceilings["matmul_float16"]["per_s_p50"] / _memory(ceilings)
    by_kind = {kind: [r for r in rows if _kind(r) == kind] for kind in kinds}
    sdpa = by_kind["SDPA"]
    return Figure(
        finding="What limits attention: "
        + "; ".join(
            f"{title}, {_words(by_kind[kind], ceilings)}"
            for title, kind in (
                ("eager", "eager, all"),
                ("fused", "SDPA"),
                ("one query against a cache", "decode"),
            )
        )
        + ".",
        caption=f"float16; {sdpa[0]['heads']} heads, decoding {by_kind['decode'][0]['heads']}. FLOPs and bytes by formula, every tensor that an "
        "operation reads or writes moved once; both axes logarithmic. Colour: the ceiling of which "
        "at least half is reached (blue memory, orange arithmetic, grey neither). Ceilings measured "
        "in the same run, memory's by reading: a share can be a little over 100 %.",
        table=[
            {
                "work": _kind(r),
                "queries": r["M"],
                "keys": r["N"],
                "D": r["D"],
                "FLOP a byte": round(r["flops"] / r["bytes_moved"], 2),
                "time": time(r["ms_p50"]),
                "TFLOP/s": round(r["flops"] / r["ms_p50"] / 1e9, 1),
                "GB/s": round(r["bytes_moved"] / r["ms_p50"] / 1e6),
                "of memory's ceiling": _percent(_shares(r, ceilings)[0]),
                "of arithmetic's ceiling": _percent(_shares(r, ceilings)[1]),
                "limited by": _verdict(r, ceilings),
            }
            for r in rows
        ],
        plot=figure,
        height=480,
        narrow={"height": 620, "legend": {"y": -0.14}},
        sentences={
            "ridge": f"In the time of one byte this GPU does {ridge:.0f} FLOPs in float16: that is "
            "its *ridge*. Work with fewer FLOPs for each byte can at best be as fast as memory.",
            "steps": "Of the steps of eager attention "
            + "; ".join(
                f"{step} has {_range(by_kind[WORK[step]])} FLOP a byte and "
                f"{_limited(by_kind[WORK[step]], ceilings)}"
                for step in STEPS
            )
            + ".",
            "softmax": _of_softmax(by_kind, ceilings),
            "fused": f"A fused call does the same FLOPs and moves q, k, v and the result only: "
            f"{_range(sdpa)} FLOP a byte, more with every further key. "
            + _against_ridge(sdpa, ridge)
            + f" Measured, it {_limited(sdpa, ceilings)}.",
            "decode": "A model that writes text asks one query at a time, against all keys so far. "
            f"Nothing is used twice, so there is {_range(by_kind['decode'])} FLOP a byte, fused or "
            f"not. Measured, it {_limited(by_kind['decode'], ceilings)}.",
            "claim_bound": "**“Attention is memory-bound.”** It depends on which. "
            + " ".join(
                f"{title} {_found(by_kind[kind], ceilings)}."
                for kind, title in (
                    ("eager, all", "Eager attention, in separate operations,"),
                    ("SDPA", "Fused, with many queries, it"),
                    ("decode", "One query against a cache"),
                )
            ),
        },
    )  # fmt: skip


def _of_softmax(by_kind, ceilings):
    """What is left of eager attention's time beside its two products, and what it does with it."""
    at = {kind: {(r["N"], r["D"]): r for r in rows} for kind, rows in by_kind.items()}
    left, speed = [], []
    for case, row in at["eager, all"].items():
        products = sum(at[WORK[step]][case]["ms_p50"] for step in ("q · kᵀ", "weights · v"))
        rest = row["ms_p50"] - products
        left.append(rest / row["ms_p50"])
        speed.append(at[WORK["softmax"]][case]["bytes_moved"] / rest * 1e3 / _memory(ceilings))
    text = (
        f"The two products take {_ends([1 - x for x in left])} of eager attention's time. The rest, "
        f"{_ends(left)}, is the softmax (and a scale), which moves its bytes at {_ends(speed)} of "
        "memory's ceiling"
    )
    if max(speed) < HALF:
        text += ": what eager attention waits for is first of all a kernel that does not keep memory busy"
    return f"{text}. And its bytes are squares, which a fused kernel never writes."


def _ends(shares):
    """ "38 to 44 %"."""
    low, high = _percent(min(shares)), _percent(max(shares))
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def _range(rows):
    """The FLOPs for each byte of some rows: "42" or "31 to 62"."""
    found = [r["flops"] / r["bytes_moved"] for r in rows]
    ends = [f"{x:.0f}" if x >= 10 else f"{x:.3g}" for x in (min(found), max(found))]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _words(rows, ceilings):
    """The verdicts of some rows: "memory", or "memory or neither"."""
    found = {_verdict(r, ceilings) for r in rows}
    return " or ".join(word for word in ("memory", "arithmetic", "neither") if word in found)


def _limited(rows, ceilings):
    """What limits some rows: "is limited by memory", or by regime where they differ."""
    found = {}
    for row in rows:
        found.setdefault(_verdict(row, ceilings), []).append(row)
    words = {
        kind: f"is limited by {kind}" for kind in ("memory", "arithmetic") if kind in found
    } | ({"neither": "reaches half of neither ceiling"} if "neither" in found else {})
    if len(found) == 1:
        return next(iter(words.values()))
    return " and ".join(f"{said} with {_regime(found[kind], rows)}" for kind, said in words.items())


def _regime(some, rows):
    """Some of the rows, named by what varies among all of them."""
    cache = {r["M"] for r in rows} == {1}
    lengths = sorted({r["N"] for r in some})
    if any(r["N"] in lengths and r not in some for r in rows):  # then D decides as well
        return listed([_case(r) for r in some])
    named = listed([str(length) for length in lengths])
    return f"{named} keys" if cache else f"N {named}"


def _found(rows, ceilings):
    """Verdict and the shares reached, over some rows."""
    memory, arithmetic = zip(*(_shares(r, ceilings) for r in rows), strict=True)
    return (
        f"{_limited(rows, ceilings)} (up to {_percent(max(memory))} of memory's, "
        f"{_percent(max(arithmetic))} of arithmetic's)"
    )


def _against_ridge(rows, ridge):
    above = [r for r in rows if r["flops"] / r["bytes_moved"] > ridge]
    if len(above) == len(rows):
        return "All of these lie beyond the ridge."
    if not above:
        return "None of these reaches the ridge."
    return f"Beyond the ridge are {'; '.join(_case(r) for r in above)}."


MASKS = {"none": "no mask", "causal": "is_causal", "bool": "bool mask", "float": "float mask"}


def backends(results):
    rows = results[0].rows
    chosen = pick(rows, kind="chosen")
    forced = pick(rows, kind="forced")
    about = chosen[0]
    shapes = list(dict.fromkeys(r["shape"] for r in chosen))
    dtypes = list(dict.fromkeys(r["dtype"] for r in chosen))
    masks = [m for m in MASKS if any(r["mask"] == m for r in chosen)]
    taken = {
        (r["dtype"], r["shape"], r["mask"]): r["backend"].replace("cudnn", "cuDNN") for r in chosen
    }
    # dtypes that get the same answer everywhere share a row
    groups = {}
    for dtype in dtypes:
        answers = tuple(taken[dtype, s, m] for s in shapes for m in masks)
        groups.setdefault(answers, []).append(dtype)
    open_rows = []
    for group in groups.values():
        alike = {}  # and so do shapes
        for shape in shapes:
            alike.setdefault(tuple(taken[group[0], shape, m] for m in masks), []).append(shape)
        open_rows += [
            {"dtype": ", ".join(group), "shape": "; ".join(some)}
            | {MASKS[m]: backend for m, backend in zip(masks, answers, strict=True)}
            for answers, some in alike.items()
        ]
    counts = {}
    for backend in taken.values():
        counts[backend] = counts.get(backend, 0) + 1
    order = sorted(counts, key=lambda b: (-counts[b], b))
    widget = ['<div class="am-backends" markdown>', "", *table(open_rows), "", "</div>"]
    return Figure(
        finding=f"Of {len(taken)} kinds of call SDPA takes "
        + ", ".join(f"{b} for {counts[b]}" for b in order)
        + ".",
        caption=f"The backend that `F.scaled_dot_product_attention` took by itself on "
        f"{cell(results[0].label)} with torch {cell(results[0].versions['torch'])}, as the profiler "
        f"saw it: {about['batch']} × {about['heads']} heads, {about['N']} keys, as many queries unless one is said. The kernel that ran "
        "longest, and the fused backends that say they could, are in the table.",
        table=[
            {
                "dtype": r["dtype"],
                "shape": r["shape"],
                "mask": MASKS[r["mask"]],
                "taken": r["backend"],
                "possible, fused": ", ".join(r["possible"]) or "none",
                "longest kernel": r["kernel"],
            }
            for r in chosen
        ],
        widget="\n".join(widget),
        sentences={
            "rule": " ".join(
                f"In {' and '.join(group)} "
                + "; ".join(
                    f"{said}{where}" for said, where in _by_mask(taken, group[0], shapes, masks)
                )
                + "."
                for group in groups.values()
            ),
            "math": _at_math(chosen),
            "forced": _of_forced(forced),
        },
    )


def _by_mask(taken, dtype, shapes, masks):
    """(backends, masks) at one dtype: masks with the same answers together, as words."""
    found = {}
    for mask in masks:
        found.setdefault(_by_backend(taken, dtype, shapes, mask), []).append(mask)
    if len(found) == 1:
        return [(next(iter(found)), ", whatever the mask")]
    return [(said, f" with {listed([MASKS[m] for m in same])}") for said, same in found.items()]


def _by_backend(taken, dtype, shapes, mask):
    """Which backend for which shapes, at one dtype and mask: "flash", or by shape."""
    found = {}
    for shape in shapes:
        found.setdefault(taken[dtype, shape, mask], []).append(shape)
    if len(found) == 1:
        return f"it takes *{next(iter(found))}* for every shape"
    most = max(found, key=lambda b: len(found[b]))
    others = ", ".join(f"*{b}* for {', '.join(found[b])}" for b in found if b != most)
    return f"it takes *{most}*, but {others}"


def _at_math(chosen):
    slow = [r for r in chosen if r["backend"] == "math"]
    if not slow:
        return "None of these calls fell back to *math*, which stores the scores."
    found = {}
    for r in slow:
        found.setdefault((r["dtype"], r["shape"]), []).append(r["mask"])
    every = len({r["mask"] for r in chosen})
    cases = "; ".join(
        f"{dtype}, {shape}, "
        + ("any mask" if len(masks) == every else listed([MASKS[m] for m in masks]))
        for (dtype, shape), masks in found.items()
    )
    return f"These fell back to *math*, which stores the scores: {cases}."


def _of_forced(forced):
    refused = [r for r in forced if r["refused"]]
    if not refused:
        return "Every backend took every dtype here."
    by_dtype = {}
    for r in refused:
        by_dtype.setdefault(r["dtype"], []).append(_quoted(r["forced"]))
    which = "; ".join(f"{dtype} by {listed(names)}" for dtype, names in by_dtype.items())
    said = refused[0]["refused"].replace("`", "")
    return f"Refused was {which}. What PyTorch raises then: `{said}`"
