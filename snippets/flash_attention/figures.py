"""The figures of the flash_attention page: each draws the result of the same name."""

from snippets._lab.draw import charts, shared_figures, units
from snippets._lab.draw.charts import Series
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import named
from snippets._lab.draw.rows import (
    RATE,
    TIME,
    Quantity,
    ceiling,
    compiled,
    derived,
    field,
    gains,
    intensity,
    moved,
    only,
    pick,
    rate,
    ridge,
    target,
    values,
)
from snippets._lab.draw.scene import scene as drawn_scene
from snippets._lab.draw.tables import case, cell, in_cells, listed
from snippets._lab.draw.units import (
    between,
    change,
    count,
    decimals,
    flops,
    measured_ratio,
    percent,
    ratio,
    share,
    size,
)

OURS, CUDNN, FLASH, FLEX = "flash_attention", "torch:cudnn", "torch:flash", "torch:flex"
EAGER, SDPA, TILED = "torch:eager", "torch:sdpa", "tiled_attention"
UNIT = "matmul_bfloat16"  # the ceiling of the tensor cores
PAGE = "docs/posts/flash_attention.md"
TILES = "docs/how_to/tile_sizes.md"
MEDIANS = "Medians; L2 flushed before every call; all take turns."


def _tokens(rows):
    return cell(rows[0]["batch"] * rows[0]["N"])


def kernels(results):
    rows = results[0].rows
    labels = {r["implementation"]: r["label"] for r in pick(rows)}
    compared = Comparison(rows, OURS, labels)
    far = compared.cases[-1]
    gain = {name: compared[name][far] for name in labels if far in compared[name]}
    first = next(name for name in gain if not name.startswith("torch"))

    return Figure(
        finding=f"From “{labels[first]}” to tensor cores: {measured_ratio(gain[first])} at N "
        f"{far.N}, on the same work.",
        caption=f"{rows[0]['heads']} heads of N queries and keys, D {rows[0]['D']}, float16; time "
        f"of one call, logarithmic: left is faster. {MEDIANS}",
        plot=charts.times(results, labels, values(rows, "N")),
        numbers={
            "first": measured_ratio(gain[first]),
            "sdpa": ratio(1 / gain[SDPA]),
            "tiled": ratio(gain[TILED]),
        },
    )


# Steps that the data names in other words.
STEPS = {
    "exp2 in place of exp": "exp2 instead of exp",
    "descriptors in place of pointers": "descriptors instead of pointers",
    "one loop, with a branch": "one loop with a branch",
    "more queries a program": "more queries per program",
    "warp specialisation": "warp specialization",
    "lines in the fastest order": "our order of lines",
}


# What the page says of a step, and the verdicts that it says it from: D 64, D 128, each without a
# mask and with one. Some steps need a mask.
ALWAYS = "ahead ahead ahead ahead"


VERDICTS = {
    "exp by e": ("Powers of two pay in all four cases", ALWAYS),
    "nothing in flight": ("Loads in flight pay in all four cases", ALWAYS),
    "a mask on every tile": ("Leaving out the mask pays in all four cases", ALWAYS),
    "two loops": ("One loop with a branch costs time at D 64 and pays at D 128", "behind ahead"),
    "heads side by side": (
        "Neighbors of one head pay in three cases and are undecided at D 128 without a mask",
        "ahead ahead undecided ahead",
    ),
    "shortest rows first": (
        "Longest rows first is undecided at D 64 and pays at D 128",
        "undecided ahead",
    ),
    "pointers": ("Descriptors pay in all four cases", ALWAYS),
    "lines in another order": (
        "Our order pays with a mask and is undecided without one",
        "undecided ahead undecided ahead",
    ),
    "taller tiles": (
        "More queries per program are undecided at D 64 and cost time at D 128",
        "undecided undecided behind behind",
    ),
    "large tiles": (
        "Larger tiles on more warps cost time in all four cases",
        "behind behind behind behind",
    ),
    "warp specialisation": (
        "Warp specialization pays at D 128 without a mask and costs time in the other three cases",
        "behind behind ahead behind",
    ),
}


def ladder(results):
    rows = results[0].rows
    compared, found = _over_base(rows), _gains(rows)
    step = {rung: r["step"] for rung, r in _steps(rows).items()}
    gain, at, best = max((x, at, rung) for rung, of in found.items() for at, x in of.items())
    whole = Comparison(rows, compared.ours, by=compared.by)[CUDNN]
    return Figure(
        finding=f"The largest gain of a step is that of “{step[best]}”: {change(gain)} at "
        f"{case(at)}.",
        caption="How much faster the kernel is with a step than without it; everything else is "
        f"unchanged. bfloat16, N {rows[0]['N']}, {_tokens(rows)} tokens. {MEDIANS}",
        plot=charts.bars(
            derived(results, _drawn_gains),
            [Series(OURS, step[rung], {"rung": rung}) for rung in found],
            Quantity("faster with the step", "gain", units.gain),
            charts.by_mask(rows),
            columns=2,
        ),
        numbers={"whole": whole.between()},
        claims={
            f"{PAGE}: {said}": [gain.word for gain in found[rung].values()] == verdicts.split()
            for rung, (said, verdicts) in VERDICTS.items()
        },
        pieces={
            rung.replace(" ", "_"): in_cells({case(at): [gain] for at, gain in of.items()})
            for rung, of in found.items()
        },
    )


def _steps(rows):
    """Rung → its row, its step in words, for all steps but the kernel that they are steps of."""
    return {
        r["implementation"]: {**r, "step": STEPS.get(r["step"], r["step"])}
        for r in rows
        if r.get("kind") in ("back", "further")
    }


def _over_base(rows):
    """The kernel with all steps beside everything else."""
    base = next(r["implementation"] for r in rows if r.get("kind") == "base")
    return Comparison(rows, base, by=("D", "causal"))


def _gains(rows):
    """Rung → case → how many times as fast the kernel is with the step as without it."""
    compared = _over_base(rows)
    steps, pairs = _steps(rows), {}
    for r in pick(rows):
        if r["implementation"] in steps and r["matters"]:
            at = compared.case(r["D"], r["causal"])
            base = compared.row(compared.ours, at)
            pairs[r["implementation"], at] = (r, base) if r["kind"] == "further" else (base, r)
    found = {rung: {} for rung in steps}
    for (rung, at), gain in sorted(gains(pairs).items()):
        found[rung][at] = gain
    return found


def _drawn_gains(result):
    for rung, found in _gains(result.rows).items():
        for at, gain in found.items():
            yield {"rung": rung, **at._asdict(), "gain": gain - 1}


def scene(results):
    rows = results[0].rows
    masked = {
        name: [r["masked"] for r in rows if r["example"] == name and "masked" in r]
        for name in values(rows, "example")
    }
    full, causal = masked["every key"], masked["causal"]
    first = next(r for r in rows if "scores" in r)
    return Figure(
        finding=f"Of the {len(full)} tiles of the full example {sum(full)} needs a mask, of the "
        f"{len(causal)} of the causal one {sum(causal)}; one more is skipped.",
        caption="Four queries, 14 keys in tiles of four, float16, the first four of 16 columns, "
        "base 2: this page's kernel with smaller tiles, recorded in the interpreter between two "
        "iterations of its loop; the kernel is not changed. The last accumulator divided by the "
        "sum is, bit for bit, what the launcher returned.",
        **drawn_scene(
            "flash_attention",
            rows,
            "tiles",
            "shared memory",
            "The kernel at work: a block of queries, the tile of keys that it is at, and what it "
            "has collected so far.",
        ),
        numbers={"m": decimals(first["m"][0]), "l": decimals(first["l"][0])},
        claims={
            f"{PAGE}: the tiles of keys 0 to 11 need no mask": full == [False, False, False, True],
            f"{PAGE}: keys 0 to 3 are visible to all four queries": causal == [False, True, True],
        },
    )


def sweep(results):
    rows = results[0].rows
    shares = _shares(results[0])
    tiles = {
        r["implementation"]: f"{r['BLOCK_M']} × {r['BLOCK_N']}, {r['num_warps']}, {r['num_stages']}"
        + " *" * r["warp_specialize"]
        for r in _swept(rows)
    }
    part = {(*_grid(r), r["implementation"]): r["share"] for r in shares}
    winners = {}
    for r in pick(shares, share=1):
        winners.setdefault(r["implementation"], set()).add((r["D"], r["causal"]))
    behind = {
        _grid(r): TIME(r) / min(TIME(x) for x in pick(rows) if _grid(x) == _grid(r))
        for r in pick(rows, implementation=OURS)
    }
    left = {r["implementation"] for r in rows if r.get("error")}
    groups = [
        Series(OURS, case(where), where, shade=shade, symbol=symbol)
        for (causal, N), shade, symbol in zip(
            [(causal, N) for causal in (False, True) for N in values(rows, "N")],
            [0, 0, 1, 1],
            ["circle-open", "circle", "diamond-open", "diamond"],
            strict=True,
        )
        for where in [{"N": N, "causal": causal}]
    ]
    return Figure(
        finding=f"The tile decides: the slowest that runs does {percent(min(part.values()))} of "
        f"the fastest one's rate, and {len(winners)} different tiles win the {len(behind)} cases.",
        caption="Queries × keys of an iteration, warps, stages; a star gives loading to warps of "
        f"their own. bfloat16, {_tokens(rows)} tokens. {len(left)} of {len(tiles)} tiles cannot "
        f"run in every case. {MEDIANS}",
        plot=charts.dots(
            derived(results, _shares),
            [Series(OURS, told, {"implementation": tile}) for tile, told in tiles.items()],
            Quantity("rate, of the fastest tile's", "share", units.percent),
            charts.views("D {}", "D", values(rows, "D")),
            groups=groups,
            log=False,
            ends=(0, 1.04),
        ),
        numbers={"own": between(behind.values()), "slowest": percent(min(part.values()))},
        claims={
            f"{TILES}: The fastest tiles are 64 × 128 on 4 warps with 2 stages (D 64)": winners
            == {
                "64 × 128, 4 warps, 2 stages": {(64, False), (64, True)},
                "128 × 128, 4 warps, 2 stages, specialised": {(128, False)},
                "64 × 64, 4 warps, 3 stages": {(128, True)},
            }
        },
    )


def _swept(rows):
    """The rows that have a tile of their own, and not that of the kernel's table."""
    return [r for r in rows if "BLOCK_M" in r]


def _grid(r):
    return r["D"], r["causal"], r["N"]


def _shares(result):
    """The swept rows, each with its part of the rate of its case's fastest."""
    timed = pick(_swept(result.rows))
    fastest = {at: min(TIME(r) for r in timed if _grid(r) == at) for at in map(_grid, timed)}
    return [{**r, "share": fastest[_grid(r)] / TIME(r)} for r in timed]


def resources(results):
    shown = compiled(results)
    rows = [r for result in shown for r in result.rows]
    failed = [r for r in rows if r["error"]]
    spilled = [r["spill_store_bytes"] for r in rows if r["spill_store_bytes"]]
    registers = [r["registers"] for r in rows if r["registers"]]
    return Figure(
        finding=f"All {len(rows)} kernels fit their GPU, and {len(spilled)} spills, at most "
        f"{max(spilled)} bytes per thread.",
        caption="Registers of a thread, shared memory of a program, and the instruction that "
        "does the products; two numbers where a causal mask changes something: without | with. "
        "All were compiled ahead of time, without such a GPU.",
        table=[
            {
                "GPU": f"{target(result)} ({result.rows[0]['cards']})",
                "dtype": dtype,
                "tensor cores": listed(values(mine, "tensor_core")),
                **{
                    f"D {D}": _without_and_with([r for r in mine if r["D"] == D])
                    for D in values(rows, "D")
                },
            }
            for result in shown
            for dtype in values(result.rows, "dtype")
            for mine in [[r for r in result.rows if r["dtype"] == dtype]]
        ],
        open_table=True,
        numbers={
            "registers": between(registers, count),
            "kernels": len(rows),
            "most_spilled": max(spilled),
        },
        claims={
            "title of flash_attention/resources: kernels fit their GPU, and 1 spills": not failed
            and len(spilled) == 1,
            f"{PAGE}: `mma` on sm_80, `wgmma` on sm_90 and `tcgen05` on sm_100; none on sm_75": {
                target(result): r["tensor_core"]
                for result in shown
                for r in pick(result.rows, dtype="float16")
            }
            == {"sm_75": "none", "sm_80": "mma", "sm_90": "wgmma", "sm_100": "tcgen05"},
        },
    )


def _without_and_with(rows):
    """Registers and shared memory without a mask and with one: once where they agree."""
    if not rows:
        return None
    if reasons := [r["error"] for r in rows if r["error"]]:
        return reasons[0]
    pair = sorted(rows, key=lambda r: r["causal"])

    def both(name, text):
        return " | ".join(dict.fromkeys(text(r[name]) for r in pair))

    spills = max(r["spill_store_bytes"] for r in pair)
    told = f"{both('registers', count)} registers, {both('shared_bytes', units.binary)}"
    return told + f", {spills} bytes spilled" * (spills > 0)


def forward(results):
    rows = results[0].rows
    main, half = (
        Comparison(pick(rows, dtype=dtype), OURS, [CUDNN, FLASH, FLEX], ("D", "causal", "N"))
        for dtype in ("bfloat16", "float16")
    )
    cudnn, flash, flex = (main[name] for name in main.others)
    rates = {at: rate(main.row(OURS, at)) for at in main.cases}
    masked = [rates[at] / rates[at._replace(causal=False)] for at in main.cases if at.causal]
    top = max(rates, key=rates.get)
    peak = ceiling(results[0], UNIT)
    return Figure(
        finding=f"In bfloat16 it does {cudnn.between()} of cuDNN's rate, {flash.between()} of "
        f"that of FlashAttention-2 (PyTorch's flash backend) and {flex.between()} of "
        "FlexAttention's.",
        caption=f"Up is faster. bfloat16. {_tokens(rows)} tokens and "
        f"{rows[0]['heads'] * rows[0]['D']} columns at every length: batch times N, and heads "
        f"times D, stay the same. With a mask only the visible scores count as work. {MEDIANS}",
        plot=charts.lines(
            results,
            [CUDNN, OURS, FLEX, FLASH],
            "N",
            RATE,
            charts.by_mask(rows, dtype="bfloat16"),
            log="x",
        ),
        numbers={
            **{
                f"cudnn_{D}{'_causal' * causal}": between(cudnn.where(D=D, causal=causal).values())
                for D in (64, 128)
                for causal in (False, True)
            },
            "flash": between(flash.values(), ratio),
            "flex": between(flex.values(), ratio),
            "half_cudnn": between(half[CUDNN].values()),
            "half_flash": between(half[FLASH].values(), ratio),
            "best": flops(rates[top]),
            "best_share": share(rates[top], peak),
            "peak": flops(peak),
            "masked": between(masked),
        },
        claims={
            f"{PAGE}: closest at D 64 with a causal mask and 16,384 keys": cudnn.best
            == (64, True, 16384),
            f"{PAGE}: Its best cell, D 128 without a mask at N 16,384": top == (128, False, 16384),
        },
    )


def roofline(results):
    rows = results[0].rows
    memory, peak = ceiling(results[0], "memory"), ceiling(results[0], UNIT)
    meet = ridge(results[0], UNIT)
    ours = pick(rows, implementation=OURS)
    one = [r for r in ours if r.get("M") == 1]
    many = [r for r in ours if "M" not in r]
    reached = {r["N"]: rate(r) / min(peak, intensity(r) * memory) for r in many}
    last, first = max(reached), min(reached)
    return Figure(
        finding=f"At N {last} the kernel does {percent(reached[last])} of what the tensor cores "
        f"of this GPU do at best, at N {first} {percent(reached[first])} of what its memory "
        "allows.",
        caption="bfloat16, D 128, 16 heads, no mask, batch 4 (16 where there is one query). "
        "Bytes: each tensor once. The slope is the fastest measured traffic with memory, the "
        f"flat part a plain bfloat16 matrix product, both of the same run. {MEDIANS}",
        plot=charts.roofline(
            results,
            [
                *(Series(name, where=_at_all_queries(name)) for name in (OURS, CUDNN, EAGER)),
                Series(OURS, f"{OURS}, one query", {"implementation": OURS, "M": 1}),
                Series(SDPA, f"{named(SDPA)}, one query", {"implementation": SDPA, "M": 1}),
            ],
        ),
        numbers={
            "ridge": count(meet),
            "peak": flops(peak),
            "memory": units.bandwidth(memory),
            "ridge_keys": count(2 * meet),
            **{f"reached_{N}": percent(reached[N]) for N in (128, 1024, 8192)},
            **{f"one_{r['N']}": share(moved(r), memory) for r in one},
        },
    )


def _at_all_queries(name):
    """The rows of an implementation with as many queries as keys."""
    return lambda r: r["implementation"] == name and "M" not in r


def memory(results):
    rows = results[0].rows
    peak = field("peak_bytes", "allocated at the peak", units.size)
    at = {(r["implementation"], r["N"]): r for r in pick(rows)}
    ours = {N: at[OURS, N] for N in values(rows, "N")}
    near, far = ours[min(ours)], ours[max(ours)]
    extra = max(r["peak_bytes"] - r["result_bytes"] for r in ours.values())
    both = max(N for N in ours if (EAGER, N) in at)
    return Figure(
        finding=f"At N {cell(far['N'])} a call allocates {peak.text(far)}: its result, and "
        "nothing else.",
        caption="Bytes allocated at the peak of a call, beyond its inputs. bfloat16, "
        f"{far['heads']} heads, D {far['D']}; both axes logarithmic.",
        plot=charts.lines(results, [OURS, EAGER], "N", peak),
        numbers={
            "longer": far["N"] // near["N"],
            "more": count(far["peak_bytes"] / near["peak_bytes"]),
            "eager": peak.text(at[EAGER, both]),
            "times": count(at[EAGER, both]["peak_bytes"] / ours[both]["peak_bytes"]),
            "matrix": size(far["N"] ** 2 * far["heads"] * 2),
        },
        claims={
            "title of flash_attention/memory: its result, and nothing else": extra <= 0,
            f"{PAGE}: at N 16,384": both == 16384,
        },
    )


def ragged(results):
    rows = results[0].rows
    lengths = values(rows, "N")
    own, shared = max(values(rows, "heads_kv")), min(values(rows, "heads_kv"))
    label = only(rows, heads_kv=shared, causal=False, N=lengths[0])["implementation"]
    rates = {(r["heads_kv"], r["causal"], r["N"]): rate(r) for r in pick(rows)}
    round_of = {N: min(n for n in lengths if n >= N and n % 128 == 0) for N in lengths}
    lost = {
        (causal, N): 1 - x / rates[heads, causal, round_of[N]]
        for (heads, causal, N), x in rates.items()
        if heads == own and round_of[N] != N
    }
    kept = [rates[shared, causal, N] / x for (h, causal, N), x in rates.items() if h == own]

    return Figure(
        finding="Where each head has its own keys, lengths that are not a multiple of the tile "
        f"lose at most {percent(max(lost.values()))} against the next multiple; heads that share "
        f"keys lose at most {percent(1 - min(kept))} against heads with their own.",
        caption=f"bfloat16, D {rows[0]['D']}, batch {rows[0]['batch']}, {rows[0]['heads']} heads; "
        f"work counted for the length as it is. {MEDIANS}",
        plot=charts.bars(
            results,
            [Series(OURS, f"N {N}", {"N": N}) for N in lengths],
            RATE,
            {"full": {"causal": False}, "causal": {"causal": True}},
            groups=[
                Series(OURS, "each head its own keys", {"heads_kv": own}),
                Series(OURS, label, {"heads_kv": shared}, shade=1),
            ],
            upright=True,
            texts=False,
        ),
        numbers={
            **{
                f"lost_{N}{'_causal' * causal}": percent(lost[causal, N])
                for N in (1000, 4095)
                for causal in (False, True)
            },
            "shared": between(kept),
        },
    )


def error(results):
    result = results[0]
    rows = result.rows

    def beside_ours(r, name):
        return only(rows, implementation=name, dtype=r["dtype"], D=r["D"], N=r["N"])

    cells = [(r, beside_ours(r, EAGER)) for r in pick(rows, implementation=OURS)]
    against = {
        dtype: between(
            [r["largest"] / eager["largest"] for r, eager in cells if r["dtype"] == dtype]
        )
        for dtype in values(rows, "dtype")
    }
    fused = [
        r["largest"] / beside_ours(r, OURS)["largest"]
        for r in rows
        if r["implementation"] not in (OURS, EAGER, "torch:math")
    ]
    return Figure(
        finding="On average over a result it is as close to float64 as eager PyTorch or closer "
        f"in {sum(r['mean'] <= other['mean'] for r, other in cells)} of {len(cells)} cells.",
        caption="Largest difference from attention in float64 of the same rounded inputs, a dot "
        "for each length and head dimension; left is better. Two heads.",
        plot=charts.errors(results),
        numbers={**against, "fused": between(fused)},
    )


def host_time(results):
    return shared_figures.host(results, [OURS, SDPA])
