"""The figures of the hopper_attention page: each draws the result of the same name."""

import itertools

from plotly.subplots import make_subplots

from snippets._lab.draw import charts
from snippets._lab.draw.charts import (
    LEGEND,
    between,
    ceilings,
    curves,
    intensity,
    listed,
    ms_of,
    percent,
    span,
    stacked,
    tflops,
    useless,
    verdict,
)
from snippets._lab.draw.figure import (
    Figure,
    cell,
    colour,
    device_name,
    hover,
    name_of,
    only,
    pick,
    time,
)

from .simulator.diagram import from_rows, protocol_svg, timeline_svg

OURS, TRITON, CUDNN = "hopper_attention", "flash_attention", "torch:cudnn"
FLASH, FLEX, EAGER = "torch:flash", "torch:flex", "torch:eager"
CASES = [(64, False), (64, True), (128, False), (128, True)]  # D, causal
NOTHING = 0.01  # a step that changes the time by less has done nothing
MEDIANS = "Medians; L2 flushed before every call; all take turns."
ALONG = {"type": "log", "title": "N"}


def _case(D, causal):
    return f"D {D}, causal" if causal else f"D {D}"


TITLES = [_case(*case) for case in CASES]


def _lengths(rows):
    return sorted({r["N"] for r in rows})


def _standing(ratios):
    """How often ahead, level and behind: "ahead in 9 of 12 cases, level in 2, behind in 1"."""
    ahead = sum(x > 1 + NOTHING for x in ratios)
    behind = sum(x < 1 - NOTHING for x in ratios)
    counts = {"ahead": ahead, "level": len(ratios) - ahead - behind, "behind": behind}
    told = [f"{word} in {count}" for word, count in counts.items() if count]
    told[0] += f" of {len(ratios)} cases"
    return ", ".join(told)


def forward(results):
    rows = results[0].rows
    lengths = _lengths(rows)
    main = [r for r in rows if r["dtype"] == "bfloat16"]
    panels = [
        (_case(D, causal), {"D": D, "causal": causal, "dtype": "bfloat16"}) for D, causal in CASES
    ]
    figure = curves(results, panels, [CUDNN, OURS, TRITON, FLEX, FLASH], of=tflops)
    figure.update_xaxes(
        ALONG | {"tickvals": lengths, "ticktext": [f"{n // 1024}k" for n in lengths]}
    )
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title="TFLOP/s", col=1)
    ms = ms_of(main, "D", "causal", "N")
    ours = {key[1:]: x for key, x in ms.items() if key[0] == OURS}

    def against(other):
        """(D, causal, N) → how many times as fast as another kernel."""
        return {key: ms[other, *key] / x for key, x in ours.items() if (other, *key) in ms}

    cudnn, triton, flash, flex = (against(other) for other in (CUDNN, TRITON, FLASH, FLEX))
    half = ms_of([r for r in rows if r["dtype"] == "float16"], "D", "causal", "N")
    dtypes = [x / ours[key[1:]] for key, x in half.items() if key[0] == OURS and key[1:] in ours]
    rates = {(r["D"], r["causal"], r["N"]): tflops(r) for r in pick(main, implementation=OURS)}
    top = max(rates, key=rates.get)
    peak = results[0].ceilings["matmul_bfloat16"]["per_s_p50"] / 1e12
    best, worst = max(cudnn, key=cudnn.get), min(cudnn, key=cudnn.get)
    others = {"cuDNN": CUDNN, "flash_attention": TRITON, "flash": FLASH, "Flex": FLEX}

    def where(key):
        D, causal, N = key
        return f"D {D}, {'causal' if causal else 'no mask'}, N {cell(N)}"

    return Figure(
        finding=f"In bfloat16 it does {between(cudnn.values())} of cuDNN's rate: "
        f"{_standing(cudnn.values())}.",
        caption=f"Up is faster. bfloat16; float16 is in the table. {cell(16_384)} tokens and 2048 "
        "columns at every length: batch times N, and heads times D, stay the same. With a mask "
        f"only the visible scores count as work. {MEDIANS}",
        table=charts.rates_beside(rows, OURS, others),
        plot=figure,
        height=400,
        narrow=stacked(TITLES, 1200, 90),
        sentences={
            "cudnn": "Of cuDNN's rate it does, at N "
            + listed([cell(n) for n in lengths])
            + ": "
            + "; ".join(
                listed([f"{cudnn[D, causal, n]:.2f}" for n in lengths if (D, causal, n) in cudnn])
                + f" ({_case(D, causal)})"
                for D, causal in CASES
            )
            + f". It stands best at {where(best)} and worst at {where(worst)}.",
            "others": "Against the Triton kernel of the post before it is "
            f"{span(triton.values())}, against PyTorch's flash backend {span(flash.values())}"
            + (f", against FlexAttention {span(flex.values())}." if flex else "."),
            "half": f"In float16 it takes {between(dtypes)} times the time of bfloat16.",
            "peak": f"Its best case, {where(top)}, does {rates[top]:.0f} TFLOP/s: "
            f"{rates[top] / peak * 100:.0f} % of what one plain matrix product reaches on this GPU "
            f"({peak:.0f} TFLOP/s, same run).",
        },
    )


# Rung of bench.py → the rung it is compared with, which of the two has the step, what the step is
# called, and its sentence.
WITH, WITHOUT = True, False
TURNS, PAIRS = "in turn", "causal tiles in pairs"
STEPS = {
    "no registers moved": ("a warp that loads", WITHOUT, "registers moved", "registers"),
    "softmax under the product": ("a warp that loads", WITH, "softmax under the product", "overlap"),
    "undone by the compiler": (
        "softmax under the product", WITHOUT, "a barrier that holds the wait", "held",
    ),
    TURNS: ("softmax under the product", WITH, "consumers in turn", "turns"),
    "programs that stay": (TURNS, WITH, "programs that stay", "stay"),
    PAIRS: ("programs that stay", WITH, "causal tiles in pairs", "pairs"),
    "queries in registers": (PAIRS, WITH, "queries in registers instead of turns", "queries"),
    "three consumers": (PAIRS, WITH, "three consumers", "three"),
    "sums the other way": (PAIRS, WITHOUT, "sums kept by each thread, under a mask", "sums"),
    "stored by the threads": (PAIRS, WITHOUT, "rows stored by TMA", "engine"),
    "a division for each element": (PAIRS, WITHOUT, "one reciprocal a row", "reciprocal"),
    "weights packed at once": (PAIRS, WITHOUT, "weights packed a step later", "packed"),
    "exp2 by a polynomial": (PAIRS, WITH, "a quarter of exp2 by a polynomial", "polynomial"),
    "tiles of 64 keys": (PAIRS, WITH, "tiles of 64 keys", "keys"),
}  # fmt: skip
FIRST = "a warp that loads"
CLIMB = [FIRST, "softmax under the product", TURNS, "programs that stay", PAIRS]


def _gains(rows):
    """Rung → (D, causal, N) → how many times as fast the kernel is with the step as without it."""
    ms = ms_of(rows, "D", "causal", "N")
    gains = {}
    for rung, (base, has_it, _, _) in STEPS.items():
        gains[rung] = {}
        for D, causal in CASES:
            if rung == PAIRS and not causal:
                continue  # without a mask all tiles are alike, and both rungs the same
            for N in _lengths(rows):
                if (rung, D, causal, N) in ms:
                    gain = ms[base, D, causal, N] / ms[rung, D, causal, N]
                    gains[rung][D, causal, N] = gain if has_it else 1 / gain
    return gains


def _worth(gains):
    """A step's gains as a sentence with a verdict."""
    lengths = sorted({N for _, _, N in gains})
    by_case = {}
    for (D, causal, _), gain in gains.items():
        by_case.setdefault((D, causal), []).append(percent(gain))
    told = listed([f"{listed(found)} ({_case(*case)})" for case, found in by_case.items()])
    at = listed([cell(N) for N in lengths])
    return f"On the clock, at N {at}: {told}; {verdict(gains.values(), NOTHING)}."


def rungs(results):
    rows = results[0].rows
    ms = ms_of(rows, "D", "causal", "N")
    gains = {rung: found for rung, found in _gains(rows).items() if found}
    lengths = _lengths(rows)
    labels = {name: name for name in (FIRST, *STEPS)} | {OURS: "the kernel with its table"}
    shown = [name for name in (FIRST, *STEPS, OURS) if pick(rows, implementation=name)]
    figure = make_subplots(1, len(CASES), subplot_titles=TITLES, shared_yaxes=True)
    for device, result in enumerate(results):
        of = ms_of(result.rows, "D", "causal", "N")
        for column, (D, causal) in enumerate(CASES, start=1):
            for N, symbol in zip(lengths, ("circle-open", "circle"), strict=False):
                there = [name for name in shown if (name, D, causal, N) in of][::-1]
                share = [of[CUDNN, D, causal, N] / of[name, D, causal, N] for name in there]
                label = f"N {N}" + (f", {device_name(result)}" if len(results) > 1 else "")
                figure.add_scatter(
                    y=[labels[name] for name in there],
                    x=share,
                    mode="markers",
                    name=label,
                    legendgroup=label,
                    showlegend=column == 1,
                    marker={
                        "symbol": symbol, "size": 9, "opacity": 0.75**device,
                        "color": [
                            colour(OURS if name in (*CLIMB, OURS) else "ceiling") for name in there
                        ],
                    },
                    hovertemplate="%{y}: %{x:.2f} of cuDNN's rate",
                    row=1,
                    col=column,
                )  # fmt: skip
    figure.add_vline(x=1, line={"color": colour(CUDNN), "width": 1.5})
    figure.update_yaxes(
        automargin=True,
        categoryorder="array",
        categoryarray=[labels[name] for name in shown][::-1],
        range=[-0.7, len(shown) - 0.3],
    )
    figure.update_xaxes(title="of cuDNN's rate")
    figure.update_layout(legend=LEGEND | {"y": -0.2}, margin={"t": 40, "r": 20, "l": 10, "b": 110})
    best = max(gains, key=lambda r: max(gains[r].values()))
    whole = {key[1:]: ms[FIRST, *key[1:]] / x for key, x in ms.items() if key[0] == OURS}
    start = [ms[CUDNN, *key[1:]] / x for key, x in ms.items() if key[0] == FIRST]
    end = [ms[CUDNN, *key[1:]] / x for key, x in ms.items() if key[0] == OURS]
    cases = [(D, causal, N) for D, causal in CASES for N in lengths]
    return Figure(
        finding=f"From the first rung to the last, {percent(min(whole.values()))} to "
        f"{percent(max(whole.values()))}; the largest single step is “{STEPS[best][2]}”, "
        f"{percent(max(gains[best].values()))} at best.",
        caption="Each rung's rate, of cuDNN's in the same run (the line); right is faster. In colour "
        "the way up, each with all before it; in grey a step taken back, or one aside. bfloat16, "
        f"{cell(16_384)} tokens. {MEDIANS}",
        table=[
            {
                "rung": labels.get(name, name),
                **{
                    f"{_case(D, causal)}, N {N}": time(ms[name, D, causal, N])
                    if (name, D, causal, N) in ms
                    else None
                    for D, causal, N in cases
                },
                **{
                    f"step, {_case(*key[:2])}, N {key[2]}": percent(gains[name][key])
                    if key in gains.get(name, {})
                    else None
                    for key in cases
                },
            }
            for name in [*shown, CUDNN]
        ],
        plot=figure,
        height=560,
        narrow=stacked(TITLES, 2000, 70, left=10),
        sentences={STEPS[rung][3]: _worth(g) for rung, g in gains.items()}
        | {
            "first": f"This first rung does {between(start)} of cuDNN's rate.",
            "whole": f"With its table the kernel does {between(end)} of cuDNN's rate here, "
            f"{percent(min(whole.values()))} to {percent(max(whole.values()))} more than the "
            "first rung.",
            "useless": useless({STEPS[r][2]: g.values() for r, g in gains.items()}, NOTHING),
        },
    )


def roofline(results):
    figure = charts.roofline(results, (CUDNN, OURS, TRITON))
    rows = results[0].rows
    memory, peak = ceilings(results[0])
    share = {
        r["N"]: r["flops"] / r["ms_p50"] * 1e3 / min(peak, intensity(r) * memory)
        for r in pick(rows, implementation=OURS)
    }
    last, first = max(share), min(share)
    return Figure(
        finding=f"At N {cell(last)} it does {share[last] * 100:.0f} % of its ceiling, at N {first} "
        f"{share[first] * 100:.0f} %.",
        caption="bfloat16, D 128, 16 heads, no mask, batch 4. Bytes: each tensor once. The slope is "
        "the fastest measured traffic with memory, the flat part a plain bfloat16 matrix product, "
        f"both of the same run. {MEDIANS}",
        table=[
            {
                "implementation": name_of(r["implementation"], results[0], results[:1]),
                "N": r["N"],
                "FLOP a byte": intensity(r),
                "TFLOP/s": tflops(r),
                "time": time(r["ms_p50"]),
            }
            for r in pick(rows)
        ],
        plot=figure,
        height=440,
        sentences={
            "share": "Of the ceiling above it the kernel reaches "
            + listed([f"{x * 100:.0f} % at N {cell(N)}" for N, x in sorted(share.items())])
            + ".",
        },
    )


def ragged(results):
    rows = results[0].rows
    lengths = _lengths(rows)
    shared = next(n for n in dict.fromkeys(r["implementation"] for r in rows) if n != OURS)
    figure = make_subplots(1, len(CASES), subplot_titles=TITLES, shared_yaxes=True)
    for device, result in enumerate(results):
        for column, (D, causal) in enumerate(CASES, start=1):
            for name, label in ((OURS, "each head its own keys"), (shared, shared)):
                chosen = pick(result.rows, implementation=name, D=D, causal=causal)
                label += "" if len(results) == 1 else f", {device_name(result)}"
                figure.add_bar(
                    x=[str(r["N"]) for r in chosen],
                    y=[tflops(r) for r in chosen],
                    name=label,
                    legendgroup=label,
                    showlegend=column == 1,
                    marker={"color": colour(OURS if name == OURS else "ceiling"),
                            "opacity": 0.75**device},
                    hovertext=[hover(r) for r in chosen],
                    hovertemplate="N %{x}: %{y:.0f} TFLOP/s<br>%{hovertext}",
                    row=1,
                    col=column,
                )  # fmt: skip
    figure.update_xaxes(type="category", title="N", tickangle=0)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title="TFLOP/s", col=1)
    figure.update_layout(
        barmode="group", legend=LEGEND | {"y": -0.3}, margin={"t": 40, "r": 10, "l": 60, "b": 100}
    )
    rate = {(r["implementation"], r["D"], r["causal"], r["N"]): tflops(r) for r in pick(rows)}
    round_of = {N: min(n for n in lengths if n >= N and n % 128 == 0) for N in lengths}
    kept = {
        key[1:]: x / rate[*key[:3], round_of[key[3]]]
        for key, x in rate.items()
        if key[0] == OURS and round_of[key[3]] != key[3]
    }
    of_own = {key[1:]: rate[shared, *key[1:]] / x for key, x in rate.items() if key[0] == OURS}

    def worst(shares):
        D, causal, N = key = min(shares, key=shares.get)
        return f"{percent(shares[key])} ({_case(D, causal)}, N {N})"

    return Figure(
        finding=f"A length that fills no tile changes the rate by {worst(kept)} at worst, keys that "
        f"four heads share by {worst(of_own)}.",
        caption=f"bfloat16, batch 4, 16 heads; work counted for the length as it is. {MEDIANS}",
        table=[
            {
                "D": D, "causal": "yes" if causal else "no", "N": N,
                "heads of keys": "4" if name == shared else "16", "TFLOP/s": f"{x:.0f}",
                "of the round length": f"{x / rate[name, D, causal, round_of[N]]:.2f}",
                "of heads with their own keys": f"{x / rate[OURS, D, causal, N]:.2f}",
            }
            for (name, D, causal, N), x in sorted(
                rate.items(), key=lambda item: (item[0][0] != OURS, item[0][1:])
            )
        ],
        plot=figure,
        height=380,
        narrow=stacked(TITLES, 1200, 70),
        sentences={
            "lengths": f"Beside the next round length the rate is {between(kept.values())} times as "
            f"high, worst at {worst(kept)}.",
            "shared": f"With four query heads to a head of keys it is {between(of_own.values())} "
            f"times that with keys for every head, worst at {worst(of_own)}.",
        },
    )  # fmt: skip


def error(results):
    result = results[0]
    rows = result.rows
    dtypes = list(dict.fromkeys(r["dtype"] for r in rows))

    def beside(name):
        """This kernel's largest difference over another's, in each cell."""
        return [
            r["largest"]
            / only(rows, implementation=name, dtype=r["dtype"], D=r["D"], N=r["N"])["largest"]
            for r in pick(rows, implementation=OURS)
        ]

    return Figure(
        finding=f"Its largest difference from float64 is {between(beside(EAGER))} times that of "
        "eager PyTorch in the same dtype.",
        caption="Largest difference from attention in float64 of the same rounded inputs, a dot for "
        "each length and head dimension; left is better. Two heads.",
        table=[
            {
                "implementation": name_of(r["implementation"], result, results[:1]),
                "dtype": r["dtype"], "D": r["D"], "N": r["N"],
                "largest": f"{r['largest']:.1e}", "mean": f"{r['mean']:.1e}",
            }
            for r in rows
        ],
        plot=charts.errors(results),
        height=320,
        narrow=stacked(dtypes, 620, 10, left=10),
        sentences={
            "beside": f"It is {between(beside(CUDNN))} times that of cuDNN and "
            f"{between(beside(TRITON))} times that of the Triton kernel of the post before.",
        },
    )  # fmt: skip


def fuzz(results):
    rows = results[0].rows
    shapes, wrong = (sum(r[field] for r in rows) for field in ("shapes", "wrong"))
    share = max(r["largest_share_of_allowed"] for r in rows)
    return Figure(
        finding=f"Of {cell(shapes)} random shapes {wrong or 'none'} "
        f"{'is' if wrong < 2 else 'are'} wrong; the largest error is {share * 100:.0f} % of what is "
        "allowed.",
        caption="Lengths from 1 to 400, one or two batches, one, two or four query heads to a head of "
        "keys, either corner of the mask, each variant of the table. What is allowed follows from "
        "the error of PyTorch in the same dtype.",
        table=[
            {
                "dtype": r["dtype"], "D": r["D"], "causal": "yes" if r["causal"] else "no",
                "shapes": r["shapes"], "wrong": r["wrong"],
                "largest error, of what is allowed": f"{r['largest_share_of_allowed']:.2f}",
            }
            for r in rows
        ],
        open_table=True,
    )  # fmt: skip


def protocol_mutants(results):
    rows = results[0].rows
    wrong = [r for r in rows if r["message"]]
    whole = next(r for r in rows if not r["message"])
    return Figure(
        finding=f"{len(wrong)} kernels whose parts agree on something wrong, and the simulation says "
        "of each what happens.",
        caption="Each line is the page's kernel with one mistake among its barriers, and the first "
        "thing that went wrong in some random order of events. The kernel as it is went through "
        f"{cell(whole['events'])} events, in every variant of its table, and nothing did.",
        table=[
            {
                "mistake": r["mutant"],
                "what happens": r["message"],
                "diagnosis": r["diagnosis"],
            }
            for r in wrong
        ],
        open_table=True,
        table_class="am-kills",
    )


def resources(results):
    rows = results[0].rows
    overlapping, alone = ([r for r in rows if r["OVERLAP"] is overlap] for overlap in (True, False))
    whole = sum(r["exponentials_under_products"] == r["exponentials"] for r in overlapping)
    spilled = [r for r in rows if r["spill_store_bytes"]]
    in_loops = [r for r in rows if r["local_memory_instructions"]]

    def told(fields, rows):
        """Distinct values of a field, or of two, as a sentence lists them."""
        return listed(list(dict.fromkeys(fields(r) for r in rows)))

    def share(r):
        return f"{r['exponentials_under_products']} of {r['exponentials']}"

    return Figure(
        finding=f"In {whole} of {len(overlapping)} kernels that are to overlap, all exponentials of the "
        "loop run under a product; "
        + (
            "and none of all kernels spills."
            if not spilled
            else f"{len(spilled)} of {len(rows)} kernels spill, "
            + (
                "none of them inside a loop over keys."
                if not in_loops
                else f"{len(in_loops)} of them inside a loop over keys."
            )
        ),
        caption="Compiled ahead of time, without such a GPU. Registers of a thread before they are "
        "moved, shared memory of a program; exponentials in the machine code of the loop without a "
        "mask: how many a thread executes for a tile of keys, and how many of these between the "
        "start of a product and the wait for it.",
        table=[
            {
                "D": r["D"],
                "mask": "causal" if r["causal"] else "last tile" if r["ragged"] else "none",
                "from keys": r["MIN_KEYS"],
                "variant": _variant(r),
                "registers": r["registers"],
                "spilled, bytes": r["spill_store_bytes"],
                "shared, KB": round(r["shared_bytes"] / 1024),
                "exp2 under a product": share(r),
            }
            for r in rows
        ],
        open_table=True,
        sentences={
            "under": f"With the softmax under the product, {told(share, overlapping)} exponentials of "
            "a loop's round run while a product does"
            + (f"; where nothing is to overlap, {told(share, alone)}." if alone else "."),
        },
    )


def _variant(row):
    """A variant in words."""
    switches = {
        "OVERLAP": "overlap",
        "PING_PONG": "in turn",
        "Q_IN_REGISTERS": "queries in registers",
    }
    told = [words for switch, words in switches.items() if row[switch]]
    return ", ".join([f"{row['CONSUMERS']} consumers", f"{row['STAGES']} stages", *told])


def protocol(results):
    rows = results[0].rows
    signals = from_rows(rows)[1]
    waited = sum(s.received > s.sent for s in signals)
    return Figure(
        finding=f"{len(signals)} signals carry three tiles of keys through a program; at {waited} of "
        "them the receiver came later than the signal, and did not have to wait.",
        caption="Time runs downwards. Two consumers take turns, each with a lane for what the tensor "
        "cores do for it and one for its own threads. An arrow is an arrival at a barrier that "
        "somebody waits for, in the colour of what it is about: queries grey, keys blue, values "
        "orange, the turn purple; dashed where it came early. What waits for what is found by running "
        "the kernel's own lines; how long things take is made up, not measured.",
        sources=results,
        table=[
            {
                "barrier": s.barrier, "signalled by": _who(s.sender), "at": s.sent,
                "waited for by": _who(s.receiver), "goes on at": s.received,
            }
            for s in signals
        ],
        widget=protocol_svg(rows),
    )  # fmt: skip


def _who(part):
    return "TMA" if part == "copies" else part


def _timeline(results, what):
    """Who works when, and how often the tensor cores rest in between."""
    rows = results[0].rows
    spans = from_rows(rows)[0]
    products = sorted((s.start, s.end) for s in spans if s.kind in ("scores", "values"))
    tiles = {}  # of keys → what is done with it → when
    for s in sorted(spans, key=lambda s: s.part):
        if s.kind in ("scores", "softmax", "values"):
            when = f"{s.start} to {s.end}"
            tiles.setdefault(s.tile, {})[f"{s.part}, {s.kind}"] = when
    rests = sum(start > end for (_, end), (start, _) in itertools.pairwise(products))
    return Figure(
        finding=f"{what}: over {len(tiles)} tiles of keys the tensor cores rest {_times(rests)}.",
        caption="Drawn to the kernel's own waits with made-up durations, not measured: a softmax takes "
        "two and a half times as long as a product at D 128, five times at D 64. What the tensor "
        "cores do for a consumer is above, its softmax below, in its colour.",
        sources=results,
        table=[{"tile of keys": tile, **done} for tile, done in sorted(tiles.items())],
        widget=timeline_svg(rows=rows),
    )  # fmt: skip


def _times(count):
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def timeline_alone(results):
    return _timeline(results, "One thing after the other")


def timeline_overlap(results):
    return _timeline(results, "Softmax under the product")


def timeline_turns(results):
    return _timeline(results, "Softmax under the product, in turn")


def timeline_three(results):
    return _timeline(results, "Three consumers, one thing after the other, D 64")
