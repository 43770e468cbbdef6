"""The figures of the flash_attention page: each draws the result of the same name."""

import re

from plotly.subplots import make_subplots

from snippets._lab.draw import charts
from snippets._lab.draw.charts import (
    LEGEND,
    between,
    ceilings,
    curves,
    faster,
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
    ratio,
    time,
)
from snippets._lab.draw.players import player

OURS, CUDNN, FLASH, FLEX = "flash_attention", "torch:cudnn", "torch:flash", "torch:flex"
EAGER, SDPA, TILED = "torch:eager", "torch:sdpa", "tiled_attention"
CASES = [(64, False), (64, True), (128, False), (128, True)]  # D, causal
NOTHING = 0.02  # a step that changes the time by less has done nothing
MEDIANS = "Medians; L2 flushed before every call; all take turns."
ALONG = {"type": "log", "title": "N"}


def _case(D, causal):
    return f"D {D}, causal" if causal else f"D {D}"


def _panels():
    return [(_case(D, causal), {"D": D, "causal": causal}) for D, causal in CASES]


def _lengths(rows):
    return sorted({r["N"] for r in rows})


def forward(results):
    rows = results[0].rows
    lengths = _lengths(rows)
    main = [r for r in rows if r["dtype"] == "bfloat16"]
    figure = curves(
        results,
        [(title, wanted | {"dtype": "bfloat16"}) for title, wanted in _panels()],
        [CUDNN, OURS, FLEX, FLASH],
        of=tflops,
    )
    figure.update_xaxes(
        ALONG | {"tickvals": lengths, "ticktext": [f"{n // 1024}k" for n in lengths]}
    )
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title="TFLOP/s", col=1)
    ms = ms_of(main, "D", "causal", "N")

    def against(other, times):
        return {
            key[1:]: times[other, *key[1:]] / x
            for key, x in times.items()
            if key[0] == OURS and (other, *key[1:]) in times
        }

    cudnn, flash, flex = (against(other, ms) for other in (CUDNN, FLASH, FLEX))
    half = ms_of([r for r in rows if r["dtype"] == "float16"], "D", "causal", "N")
    in_half, flash_in_half = against(CUDNN, half), against(FLASH, half)
    rates = {(r["D"], r["causal"], r["N"]): tflops(r) for r in pick(main, implementation=OURS)}
    masked = {(D, N): x / rates[D, False, N] for (D, causal, N), x in rates.items() if causal}
    top = max(rates, key=rates.get)
    peak = results[0].ceilings["matmul_bfloat16"]["per_s_p50"] / 1e12
    near, far = max(cudnn, key=cudnn.get), min(cudnn, key=cudnn.get)
    ahead = sum(x >= 1 for x in cudnn.values())
    others = {"cuDNN": CUDNN, "flash": FLASH, "Flex": FLEX}

    def where(key):
        D, causal, N = key
        return f"D {D}, {'causal' if causal else 'no mask'}, N {cell(N)}"

    return Figure(
        finding=f"In bfloat16 it does {between(cudnn.values())} of cuDNN's rate, "
        f"{between(flash.values())} of that of PyTorch's flash backend"
        + (f" and {between(flex.values())} of FlexAttention's." if flex else "."),
        caption=f"Up is faster. bfloat16; float16 is in the table. {cell(16_384)} tokens and 2048 "
        "columns at every length: batch times N, and heads times D, stay the same. With a mask "
        f"only the visible scores count as work. {MEDIANS}",
        table=charts.rates_beside(rows, OURS, others),
        plot=figure,
        height=400,
        narrow=stacked([_case(*case) for case in CASES], 1200, 90),
        sentences={
            "cudnn": "Of cuDNN's rate it does, at N "
            + listed([cell(n) for n in lengths])
            + ": "
            + "; ".join(
                listed([f"{cudnn[D, causal, n]:.2f}" for n in lengths if (D, causal, n) in cudnn])
                + f" ({_case(D, causal)})"
                for D, causal in CASES
            )
            + f". It comes closest at {where(near)}, and "
            + (
                f"it is level or ahead in {ahead} of {len(cudnn)} cells."
                if ahead
                else f"it is behind in all {len(cudnn)} cells, most at {where(far)}."
            ),
            "flash": f"Against PyTorch's flash backend it is {span(flash.values())}"
            + (f", and against FlexAttention, {span(flex.values())}." if flex else "."),
            "half": f"In float16 it does {between(in_half.values())} of cuDNN's rate and "
            f"{between(flash_in_half.values())} of the flash backend's.",
            "peak": f"Its best cell, {where(top)}, does {rates[top]:.0f} TFLOP/s: "
            f"{rates[top] / peak * 100:.0f} % of what one plain matrix product reaches on this GPU "
            f"({peak:.0f} TFLOP/s, same run).",
            "masked": f"Counted like that, the causal kernel works at {between(masked.values())} "
            "of the rate of the full one.",
        },
    )


def _steps(rows):
    """Rung → its row's words, for all steps but the kernel that they are steps of."""
    return {r["implementation"]: r for r in rows if r.get("kind") in ("back", "further")}


def _base(rows):
    return next(r["implementation"] for r in rows if r.get("kind") == "base")


def _gains(rows):
    """Rung → (D, causal) → how many times as fast the kernel is with the step as without it."""
    ms = ms_of(rows, "D", "causal")
    base = _base(rows)
    gains = {rung: {} for rung in _steps(rows)}
    for r in rows:
        if r["implementation"] in gains and r["matters"]:
            case = r["D"], r["causal"]
            gain = ms[r["implementation"], *case] / ms[base, *case]
            gains[r["implementation"]][case] = 1 / gain if r["kind"] == "further" else gain
    return gains


def _worth(gains):
    """A step's gains as a sentence with a verdict."""
    told = listed([f"{percent(x)} ({_case(*case)})" for case, x in gains.items()])
    return f"On the clock: {told}; {verdict(gains.values(), NOTHING)}."


def ladder(results):
    rows = results[0].rows
    gains = _gains(rows)
    base, step = _base(rows), {rung: r["step"] for rung, r in _steps(rows).items()}
    further = {rung for rung, r in _steps(rows).items() if r["kind"] == "further"}
    labels = list(step.values())
    figure = make_subplots(
        1, len(CASES), subplot_titles=[_case(*case) for case in CASES], shared_yaxes=True
    )
    for device, result in enumerate(results):
        found = _gains(result.rows)
        for column, case in enumerate(CASES, start=1):
            values = [found[rung].get(case) for rung in gains]
            figure.add_bar(
                y=labels[::-1],
                x=[None if x is None else (x - 1) * 100 for x in values][::-1],
                orientation="h",
                name=device_name(result),
                showlegend=column == 1 and len(results) > 1,
                marker={"color": colour(OURS), "opacity": 0.75**device},
                text=["" if x is None else percent(x) for x in values][::-1],
                textposition="outside",
                cliponaxis=False,
                hovertemplate="%{y}: %{text}",
                row=1,
                col=column,
            )
    figure.update_yaxes(automargin=True)
    every = [(x - 1) * 100 for by_case in gains.values() for x in by_case.values()]
    low, high = min(0, *every), max(0, *every)
    room = 0.9 * (high - low) + 1  # for the numbers beside the bars
    figure.update_xaxes(
        ticksuffix=" %", range=[low - room * (0.15 if low > -1 else 1), high + room]
    )
    figure.update_layout(margin={"t": 40, "r": 20, "l": 10, "b": 40}, bargap=0.35)
    paid = {r: [c for c, x in g.items() if x > 1 + NOTHING] for r, g in gains.items()}
    idle = [r for r in gains if not paid[r]]
    steps = {r: max(g.values()) for r, g in gains.items() if g}
    best = max(steps, key=steps.get)
    ms = ms_of(rows, "D", "causal")
    whole = {case: ms[CUDNN, *case] / ms[base, *case] for case in CASES if (CUDNN, *case) in ms}
    length = _lengths(rows)[0]
    return Figure(
        finding=f"The step that counts most is “{step[best]}”, {percent(steps[best])} at best; "
        + (
            f"{len(idle)} of {len(gains)} steps bring nothing in any of the four cases."
            if idle
            else "each of the steps pays in at least one of the four cases."
        ),
        caption=f"How much faster the kernel is with a step than without it: the kernel is the same "
        f"for all but that one. bfloat16, N {cell(length)}, {cell(16_384)} tokens. Less than "
        f"{NOTHING * 100:.0f} % either way counts as nothing. {MEDIANS}",
        table=[
            {
                "step": step[rung], "without it": "–" if rung in further else rung,
                **{_case(*case): percent(g[case]) if case in g else None for case in CASES},
                **{
                    f"{_case(*case)}, time": time(ms[rung, *case]) if (rung, *case) in ms else None
                    for case in CASES
                },
            }
            for rung, g in gains.items()
        ]
        + [
            {
                "step": label, "without it": "–", **{_case(*case): None for case in CASES},
                **{
                    f"{_case(*case)}, time": time(ms[name, *case]) if (name, *case) in ms else None
                    for case in CASES
                },
            }
            for label, name in (
                (base, base), ("the kernel with its table", OURS), ("cuDNN", CUDNN)
            )
        ],
        plot=figure,
        height=420,
        narrow=stacked([_case(*case) for case in CASES], 1700, 10, left=10),
        sentences={rung.replace(" ", "_"): _worth(g) for rung, g in gains.items()}
        | {
            "useless": useless({step[r]: g.values() for r, g in gains.items()}, NOTHING),
            "whole": f"With all steps of the first group the kernel does {between(whole.values())} "
            f"of cuDNN's rate at N {cell(length)}, with one tile for all cases.",
        },
    )  # fmt: skip


def sweep(results):
    rows = results[0].rows
    lengths = _lengths(rows)
    cases = [(D, causal, N) for D, causal in CASES for N in lengths]
    short = {
        r["implementation"]: f"{r['BLOCK_M']} × {r['BLOCK_N']}, {r['num_warps']}, "
        f"{r['num_stages']}{' *' if r['warp_specialize'] else ''}"
        for r in rows
        if "BLOCK_M" in r
    }
    tiles = list(short)

    def shares(result, case):
        """Tile → part of the fastest tile's rate."""
        D, causal, N = case
        timed = pick([r for r in result.rows if "BLOCK_M" in r], D=D, causal=causal, N=N)
        quickest = min(r["ms_p50"] for r in timed)
        return {r["implementation"]: quickest / r["ms_p50"] for r in timed}

    figure = make_subplots(1, 2, subplot_titles=["D 64", "D 128"], shared_yaxes=True)
    symbols = dict(zip([(c, N) for c in (False, True) for N in lengths],
                       ["circle-open", "circle", "diamond-open", "diamond"], strict=False))  # fmt: skip
    for device, result in enumerate(results):
        for D, causal, N in cases:
            found = shares(result, (D, causal, N))
            label = f"N {N}{', causal' if causal else ''}"
            label += "" if len(results) == 1 else f", {device_name(result)}"
            figure.add_scatter(
                y=[short[t] for t in tiles[::-1] if t in found],
                x=[found[t] * 100 for t in tiles[::-1] if t in found],
                mode="markers",
                name=label,
                legendgroup=label,
                showlegend=D == 64,
                marker={"symbol": symbols[causal, N], "size": 9, "opacity": 0.75**device,
                        "color": colour(OURS if causal else CUDNN)},
                hovertemplate="%{y}: %{x:.0f} % of the fastest",
                row=1,
                col=1 if D == 64 else 2,
            )  # fmt: skip
    figure.update_yaxes(
        automargin=True,
        categoryorder="array",
        categoryarray=[short[t] for t in tiles[::-1]],
        range=[-0.7, len(tiles) - 0.3],
    )
    figure.update_xaxes(title="% of the fastest", range=[0, 104])
    figure.update_layout(legend=LEGEND | {"y": -0.14}, margin={"t": 40, "r": 20, "l": 10, "b": 100})
    every = {case: shares(results[0], case) for case in cases}
    fastest = {case: max(found, key=found.get) for case, found in every.items()}
    ms = ms_of(rows, "D", "causal", "N")
    behind = {
        case: ms[OURS, *case] / min(x for key, x in ms.items() if key[1:] == case) for case in cases
    }
    slowest = min(x for found in every.values() for x in found.values())
    left = sorted({r["implementation"] for r in rows if r.get("error")})
    winners = {}
    for (D, causal, N), tile in fastest.items():
        winners.setdefault((D, tile), []).append(f"N {cell(N)}{' causal' if causal else ''}")
    worst = max(behind, key=behind.get)
    return Figure(
        finding=f"The tile decides: the slowest that runs does {slowest * 100:.0f} % of the fastest "
        f"one's rate, and {len(set(fastest.values()))} different tiles win the {len(cases)} cases.",
        caption="Queries × keys of a step, warps, stages; a star gives loading to warps of their "
        f"own. bfloat16, {cell(16_384)} tokens. "
        + (
            f"Of {len(tiles)} tiles {len(left)} cannot run on this GPU; the table says why. "
            if left
            else "All tiles fit this GPU. "
        )
        + MEDIANS,
        table=[
            {
                "D": r["D"], "causal": "yes" if r["causal"] else "no", "N": r["N"],
                "tile": r["implementation"] if "BLOCK_M" in r else "the kernel's table",
                "time": None if r.get("error") else time(r["ms_p50"]),
                "of the fastest": f"{every[r['D'], r['causal'], r['N']][r['implementation']]:.2f}"
                if r["implementation"] in every[r["D"], r["causal"], r["N"]]
                else None,
                "remark": r.get("error"),
            }
            for r in rows
        ],
        plot=figure,
        height=620,
        narrow=stacked(["D 64", "D 128"], 1240, 110, left=10),
        sentences={
            "fastest": "The fastest tiles are "
            + "; ".join(
                f"{tile} (D {D}: {listed(where)})" for (D, tile), where in winners.items()
            )
            + ".",
            "own": f"The kernel takes its tile from the table above, {between(behind.values())} "
            "times the time of the fastest one"
            + (
                "."
                if behind[worst] < 1 + NOTHING
                else f"; furthest behind at {_case(*worst[:2])}, N {cell(worst[2])}. A row of the "
                "table serves all lengths."
            ),
        },
    )  # fmt: skip


def _target_of(result):
    return result.folder.rpartition("/")[2]


def resources(results):
    shown = sorted(results, key=lambda r: int(re.sub(r"\D", "", _target_of(r))))

    def both(rows, field, unit=1):
        """The value without and with a mask: once where they agree."""
        values = ["–" if r[field] is None else f"{r[field] / unit:,.0f}" for r in rows]
        return values[0] if len(set(values)) == 1 else " | ".join(values)

    def told(pair):
        if reasons := [r["error"] for r in pair if r["error"]]:
            return reasons[0]
        spills = max(r["spill_store_bytes"] for r in pair)
        return (
            f"{both(pair, 'registers')} registers, {both(pair, 'shared_bytes', 1024)}\u00a0KB"
            + f", {spills} bytes spilled" * (spills > 0)
        )

    table = []
    widths = sorted({r["D"] for result in shown for r in result.rows})
    for result in shown:
        cards = result.rows[0]["cards"]
        for dtype in dict.fromkeys(r["dtype"] for r in result.rows):
            mine = [r for r in result.rows if r["dtype"] == dtype]
            pairs = {
                D: sorted((r for r in mine if r["D"] == D), key=lambda r: r["causal"])
                for D in widths
            }
            table.append(
                {
                    "GPU": f"{_target_of(result)} ({cards})",
                    "dtype": dtype,
                    "tensor cores": listed(
                        list(dict.fromkeys(str(r["tensor_core"]) for r in mine))
                    ),
                    **{f"D {D}": told(pair) if pair else None for D, pair in pairs.items()},
                }
            )
    rows = [r for result in shown for r in result.rows]
    spilled = [r for r in rows if r["spill_store_bytes"]]
    failed = [r for r in rows if r["error"]]
    units = {}
    for result in shown:
        for r in result.rows:
            if r["dtype"] == "float16":
                units.setdefault(r["tensor_core"], []).append(_target_of(result))
    words = {
        unit: listed(list(dict.fromkeys(targets)))
        for unit, targets in sorted(units.items(), key=lambda item: item[0] == "none")
    }
    instructions = "; ".join(
        f"none on {where}" if unit == "none" else f"`{unit}` on {where}"
        for unit, where in words.items()
    )
    wide = [r["registers"] for r in rows if r["registers"]]
    return Figure(
        finding=(
            f"All {len(rows)} kernels fit their GPU, "
            if not failed
            else f"{len(failed)} of {len(rows)} kernels do not fit their GPU, "
        )
        + (
            "and none spills."
            if not spilled
            else f"and {len(spilled)} spill, at most "
            f"{max(r['spill_store_bytes'] for r in spilled)} bytes a thread."
        ),
        caption="Registers of a thread, shared memory of a program, and the instruction that does the "
        "products; two numbers where a causal mask changes something: without | with. Rows that name "
        "an architecture were compiled ahead of time, without such a GPU.",
        table=table,
        open_table=True,
        sentences={
            "instructions": f"What `tl.dot` becomes for float16: {instructions}.",
            "registers": f"Over all of these kernels a thread takes {min(wide)} to {max(wide)} "
            "registers, of 255"
            + (
                ", and nothing is spilled."
                if not spilled
                else f"; {len(spilled)} of {len(rows)} kernels spill, at most "
                f"{max(r['spill_store_bytes'] for r in spilled)} bytes."
            ),
        },
    )


def kernels(results):
    rows = results[0].rows
    lengths = _lengths(rows)
    labels = {r["implementation"]: r["label"] for r in pick(rows)}
    shown = list(labels)
    figure = charts.times(results, labels, lengths)
    ms = ms_of(rows, "N")
    far = lengths[-1]
    gain = {name: ms[name, far] / ms[OURS, far] for name in shown if (name, far) in ms}
    own = [name for name in shown if not name.startswith("torch") and name in gain]
    first = own[0]
    sentences = {
        "whole": f"At N {far} this kernel is {faster(gain[first])} than the first of the series"
        + (f" and {faster(gain[SDPA])} than what SDPA chooses by itself." if SDPA in gain else "."),
    }
    if TILED in gain:
        sentences["cores"] = (
            "The running softmax is the same as in the kernel before; giving its two products to "
            f"tensor cores, and the larger tiles this allows, makes it {faster(gain[TILED])} at "
            f"N {far}."
        )
    return Figure(
        finding=f"From “{labels[first]}” to tensor cores: {ratio(gain[first])} at N {far}, for the "
        "same work.",
        caption="8 heads of N queries and keys, D 64, float16; time of one call, logarithmic: left is "
        f"faster. {MEDIANS}",
        table=[
            {
                "kernel": labels[name],
                **{f"N {N}": time(ms[name, N]) if (name, N) in ms else None for N in lengths},
                **{
                    f"N {N}, against this kernel": ratio(ms[name, N] / ms[OURS, N])
                    if (name, N) in ms
                    else None
                    for N in lengths
                },
            }
            for name in shown
        ],
        plot=figure,
        height=380,
        narrow=stacked([f"N {N}" for N in lengths], 800, 10, left=10),
        sentences=sentences,
    )


def roofline(results):
    figure = charts.roofline(results, [OURS, CUDNN, EAGER, SDPA])
    rows = results[0].rows
    memory, peak = ceilings(results[0])
    ridge = peak / memory
    share = {
        r["N"]: r["flops"] / r["ms_p50"] * 1e3 / min(peak, intensity(r) * memory)
        for r in pick(rows, implementation=OURS)
        if "M" not in r
    }
    one = [r for r in pick(rows, implementation=OURS) if r.get("M") == 1]
    streamed = {r["N"]: r["bytes_compulsory"] / r["ms_p50"] * 1e3 / memory for r in one}
    last, first = max(share), min(share)
    return Figure(
        finding=f"At N {cell(last)} the kernel does {share[last] * 100:.0f} % of what the tensor cores "
        f"of this GPU do at best, at N {first} {share[first] * 100:.0f} % of what its memory allows.",
        caption="bfloat16, D 128, 16 heads, no mask, batch 4 (8 where there is one query). Bytes: "
        "each tensor once. The slope is the fastest "
        "measured traffic with memory, the flat part a plain bfloat16 matrix product, both of the "
        f"same run. {MEDIANS}",
        table=[
            {
                "implementation": name_of(r["implementation"], results[0], results[:1]),
                "M": r.get("M", r["N"]), "N": r["N"],
                "FLOP a byte": intensity(r),
                "TFLOP/s": tflops(r),
                "TB/s": r["bytes_compulsory"] / r["ms_p50"] * 1e3 / 1e12,
                "time": time(r["ms_p50"]),
            }
            for r in pick(rows)
        ],
        plot=figure,
        height=440,
        sentences={
            "ridge": f"On this GPU the two ceilings meet at {ridge:.0f} FLOP a byte "
            f"({peak / 1e12:.0f} TFLOP/s over {memory / 1e12:.2f} TB/s): with 16 bits a number, at "
            f"N {2 * ridge:.0f}.",
            "rest": "Of the ceiling above it the kernel reaches "
            + listed([f"{x * 100:.0f} % at N {cell(N)}" for N, x in sorted(share.items())])
            + ".",
            "one": "One query takes "
            + listed([f"{x * 100:.0f} % of the bandwidth at N {cell(N)}" for N, x in streamed.items()])
            + ".",
        },
    )  # fmt: skip


def ragged(results):
    rows = results[0].rows
    lengths = _lengths(rows)
    shared = next(n for n in dict.fromkeys(r["implementation"] for r in rows) if n != OURS)
    titles = ["full", "causal"]
    figure = make_subplots(1, 2, subplot_titles=titles, shared_yaxes=True)
    for device, result in enumerate(results):
        for column, causal in enumerate((False, True), start=1):
            for name, label in ((OURS, "each head its own keys"), (shared, shared)):
                chosen = pick(result.rows, implementation=name, causal=causal)
                label += "" if len(results) == 1 else f", {device_name(result)}"
                figure.add_bar(
                    x=[f"N {r['N']}" for r in chosen],
                    y=[tflops(r) for r in chosen],
                    name=label,
                    legendgroup=label,
                    showlegend=column == 1,
                    marker={"color": colour(OURS if name == OURS else CUDNN),
                            "opacity": 0.75**device},
                    hovertext=[hover(r) for r in chosen],
                    hovertemplate="%{x}: %{y:.0f} TFLOP/s<br>%{hovertext}",
                    row=1,
                    col=column,
                )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title="TFLOP/s", col=1)
    figure.update_layout(
        barmode="group", legend=LEGEND, margin={"t": 40, "r": 10, "l": 60, "b": 80}
    )
    rate = {(r["implementation"], r["causal"], r["N"]): tflops(r) for r in pick(rows)}
    heads_kv = {r["implementation"]: str(r["heads_kv"]) for r in pick(rows)}
    round_of = {N: min(n for n in lengths if n >= N and n % 128 == 0) for N in lengths}
    loss = {
        (causal, N): 1 - rate[OURS, causal, N] / rate[OURS, causal, round_of[N]]
        for name, causal, N in rate
        if name == OURS and round_of[N] != N
    }
    kept = {key[1:]: rate[shared, *key[1:]] / x for key, x in rate.items() if key[0] == OURS}
    most, least = max(loss.values()), min(kept.values())

    def lost(x):
        return f"lose at most {x * 100:.0f} %" if x > 0 else "lose nothing"

    return Figure(
        finding=f"Lengths that fill no tile {lost(most)} against the next round length; heads that "
        f"share keys {lost(1 - least)} against heads with their own.",
        caption=f"bfloat16, D 128, batch 4, 16 heads; work counted for the length as it is. {MEDIANS}",
        table=[
            {
                "heads of keys": heads_kv[name],
                "causal": "yes" if causal else "no", "N": N, "TFLOP/s": f"{x:.0f}",
                "of the round length": f"{x / rate[name, causal, round_of[N]]:.2f}",
                "of heads with their own keys": f"{x / rate[OURS, causal, N]:.2f}",
            }
            for (name, causal, N), x in sorted(
                rate.items(), key=lambda item: (item[0][0] != OURS, item[0][1:])
            )
        ],
        plot=figure,
        height=360,
        narrow=stacked(titles, 640, 70),
        sentences={
            "cells": "Against the next round length: "
            + "; ".join(
                f"{percent(1 - x)} at N {N}{', causal' if causal else ''}"
                for (causal, N), x in loss.items()
            )
            + ".",
            "shared": f"With four query heads to a head of keys the rate is {between(kept.values())} "
            "times that with keys for every head.",
        },
    )  # fmt: skip


def error(results):
    result = results[0]
    rows = result.rows
    dtypes = list(dict.fromkeys(r["dtype"] for r in rows))
    names = list(dict.fromkeys(r["implementation"] for r in rows))
    cells = [
        (r, only(rows, implementation=EAGER, dtype=r["dtype"], D=r["D"], N=r["N"]))
        for r in pick(rows, implementation=OURS)
    ]
    closer = sum(r["mean"] <= eager["mean"] for r, eager in cells)
    against = {
        dtype: [r["largest"] / eager["largest"] for r, eager in cells if r["dtype"] == dtype]
        for dtype in dtypes
    }
    rivals = [r for r in rows if r["implementation"] not in (OURS, EAGER, "torch:math")]
    sentences = {
        "eager": "Its largest difference is, of that of eager PyTorch in the same dtype, "
        + "; ".join(f"{between(x)} ({dtype})" for dtype, x in against.items())
        + ".",
    }
    if rivals:
        beside = [
            r["largest"]
            / only(rows, implementation=OURS, dtype=r["dtype"], D=r["D"], N=r["N"])["largest"]
            for r in rivals
        ]
        sentences["eager"] += (
            " The differences of PyTorch's own fused kernels are "
            f"{between(beside)} times this kernel's."
        )
    return Figure(
        finding=f"On average over a result it is as close to float64 as eager PyTorch or closer in "
        f"{closer} of {len(cells)} cells.",
        caption="Largest difference from attention in float64 of the same rounded inputs, a dot for "
        "each length and head dimension; left is better. "
        + (
            "Recorded in the interpreter, where bfloat16 is computed in float32."
            if result.place != "gpu"
            else "Two heads."
        ),
        table=[
            {
                "implementation": name_of(r["implementation"], result, results[:1]),
                "dtype": r["dtype"], "D": r["D"], "N": r["N"],
                "largest": f"{r['largest']:.1e}", "mean": f"{r['mean']:.1e}",
            }
            for r in rows
        ],
        plot=charts.errors(results),
        height=340 if len(names) > 2 else 240,
        narrow=stacked(dtypes, 780 if len(names) > 2 else 560, 10, left=10),
        sentences=sentences,
    )  # fmt: skip


def memory(results):
    rows = results[0].rows
    lengths = _lengths(rows)
    figure = curves(results, [("", {})], [OURS, EAGER], of=lambda r: r["peak_bytes"])
    figure.update_xaxes(ALONG | {"tickvals": lengths, "ticktext": [cell(n) for n in lengths]})
    figure.update_yaxes(
        type="log",
        tickvals=[10.0**e for e in range(5, 12)],
        ticktext=["100 kB", "1 MB", "10 MB", "100 MB", "1 GB", "10 GB", "100 GB"],
    )
    at = {(r["implementation"], r["N"]): r for r in pick(rows)}
    ours = {N: at[OURS, N] for N in lengths}
    extra = max(r["peak_bytes"] - r["result_bytes"] for r in ours.values())
    far = lengths[-1]
    both = max(N for N in lengths if (EAGER, N) in at)
    least = ours[far]["N"] ** 2 * ours[far]["heads"] * 2

    def size(n):
        for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
            if n >= scale:
                return f"{n / scale:.3g} {unit}"
        return f"{n} bytes"

    return Figure(
        finding=f"At N {cell(far)} a call allocates {size(ours[far]['peak_bytes'])}: "
        + ("its result, and nothing else." if extra <= 0 else f"its result, and {size(extra)}."),
        caption="Bytes allocated at the peak of a call, beyond its inputs. bfloat16, 8 heads, D 64; "
        "both axes logarithmic.",
        table=[
            {
                "implementation": name_of(r["implementation"], results[0], results[:1]),
                "N": r["N"],
                "peak, bytes": r.get("peak_bytes"),
                "of it the result, bytes": r.get("result_bytes"),
            }
            for r in rows
        ],
        plot=figure,
        height=360,
        sentences={
            "linear": f"A length {far // lengths[0]} times as long takes "
            f"{ours[far]['peak_bytes'] / ours[lengths[0]]['peak_bytes']:.0f} times the memory. "
            f"Eager PyTorch takes {size(at[EAGER, both]['peak_bytes'])} at N {cell(both)}, "
            f"{at[EAGER, both]['peak_bytes'] / ours[both]['peak_bytes']:.0f} times this kernel's; "
            f"one matrix of scores in 16 bits at N {cell(far)} would be {size(least)}.",
        },
    )


def steps(results):
    rows = results[0].rows
    masked = {
        name: [r["masked"] for r in rows if r["example"] == name and "masked" in r]
        for name in dict.fromkeys(r["example"] for r in rows)
    }
    full, causal = masked["every key"], masked["causal"]
    last = only([r for r in rows if "result" in r], example="causal")
    skipped = -(-last["keys"] // last["tile"]) - len(causal)
    first = next(r for r in rows if "scores" in r)
    m, total = first["m"][0], first["l"][0]
    return Figure(
        finding=f"Of the {len(full)} tiles of the full example {sum(full)} "
        f"{'needs' if sum(full) == 1 else 'need'} a mask, of the {len(causal)} of the causal one "
        f"{sum(causal)}; {_many(skipped)} skipped.",
        caption="Four queries, 14 keys in tiles of four, float16, the first four of 16 columns, base "
        "2: this page's kernel with smaller tiles, recorded in the interpreter between two iterations of "
        "its loop; the kernel is not changed. The last accumulator divided by the sum is, bit for "
        "bit, what the launcher returned.",
        **player("flash_attention", rows),
        sentences={
            "masked": "In the full example the tiles of keys "
            + _tiles_of(rows, "every key", masked=False)
            + " need no mask; the last holds only keys "
            + _tiles_of(rows, "every key", masked=True)
            + " and is masked. In the causal one masks begin earlier: keys "
            + _tiles_of(rows, "causal", masked=False)
            + " are visible to all four queries, of keys "
            + _tiles_of(rows, "causal", masked=True)
            + f" some are hidden, and what follows is {'never loaded' if skipped else 'not there'}.",
            "base": f"After the first tile query 0 has $m = {m:.2f}$, the largest of four scores that "
            f"are already times $\\log_2 e$, and $l = {total:.2f}$ is a sum of powers of two.",
        },
    )


def _many(skipped):
    return {0: "none is", 1: "one more is"}.get(skipped, f"{skipped} more are")


def _tiles_of(rows, example, masked):
    """The keys of the tiles with a mask, or of those without: "0 to 11", "12 and 13"."""
    chosen = [r["start"] for r in rows if r["example"] == example and r.get("masked") is masked]
    last = only([r for r in rows if "result" in r], example=example)
    first, end = min(chosen), min(max(chosen) + last["tile"], last["keys"])
    return f"{first} {'and' if end - first == 2 else 'to'} {end - 1}"
