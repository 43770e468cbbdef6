"""The figures of the flash_attention page: each draws the result of the same name."""

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import RATE, TIME, ceiling, derived, field, gains, pick, rate, values
from snippets._lab.draw.scene import scene as drawn_scene
from snippets._lab.draw.tables import case, cell
from snippets._lab.draw.units import between, change, flops, percent, ratio, share, size

OURS, CUDNN, FLASH, FLEX = "flash_attention", "torch:cudnn", "torch:flash", "torch:flex"
EAGER, TILED = "torch:eager", "tiled_attention"
UNIT = "matmul_bfloat16"  # the ceiling of the tensor cores
PAGE = "docs/posts/flash_attention.md"
TILES = "docs/how_to/tile_sizes.md"
FLOP_IN_TURN = 4096 / 2  # a cycle, at D 64: the exponentials take as long as the products
PARTS = "launch", "launch, found by Triton"  # of a call
MEDIANS = "Medians; L2 flushed before every call; all take turns."


def _tokens(rows):
    return cell(rows[0]["batch"] * rows[0]["N"])


def kernels(results, rows):
    compared = Comparison(rows, OURS, [r["implementation"] for r in pick(rows)])
    far = compared.cases[-1]
    gain = compared[TILED][far]
    return Figure(
        finding=f"From the tiled kernel to tensor cores: {units.measured_ratio(gain)} at N "
        f"{far.N}, on the same work.",
        numbers={
            "before": flops(rate(compared.row(TILED, far))),
            "tensor_cores": flops(ceiling(results[0], "matmul_float16")),
            "small": units.decimals(compared.ms(CUDNN, far) / compared.ms(OURS, far)),
        },
    )


def staircase(results, rows):
    steps = [n for n in values(rows, "implementation") if n not in (OURS, CUDNN)]
    first, *_, untiled, last = steps
    tiled = Comparison(rows, last, [untiled], ("D",))[untiled]
    built = Comparison(rows, OURS, [first, CUDNN], ("D",))
    rates = {
        name: {at.D: rate(row) for at in built.cases if (row := built.row(name, at))}
        for name in (*steps, OURS)
    }
    risen = {D: rates[last][D] / rates[first][D] for D in rates[last]}
    labels = {name: name if name == first else f"+ {name}" for name in steps}
    heads = {D: pick(rows, D=D)[0]["heads"] for D in values(rows, "D")}
    return Figure(
        finding=f"From the dozen lines to the last step: {between(risen.values(), ratio)} faster.",
        caption="Each step is a change to the kernel above, on top of those before it. Longer is "
        "faster. At D 128 the larger tile comes with warp specialization. The last of ours is the "
        f"kernel that a reader copies. bfloat16, N {rows[0]['N']}, no mask; a batch of "
        f"{rows[0]['batch']} with {heads[64]} heads at D 64 and {heads[128]} at D 128. {MEDIANS}",
        plot=charts.bars(
            results,
            [
                *(Series(name, told, like=OURS) for name, told in labels.items()),
                Series(OURS, "the whole kernel"),
                Series(CUDNN),
            ],
            RATE,
            charts.views("D {}", "D", values(rows, "D")),
        ),
        numbers={
            **{f"first_{D}": flops(found) for D, found in rates[first].items()},
            **{f"last_{D}": flops(found) for D, found in rates[last].items()},
            "whole_128": percent(rates[OURS][128] / rates[last][128] - 1),
            "exp2": between([x / rates[first][D] - 1 for D, x in rates[steps[1]].items()], percent),
        },
        claims={
            f"{PAGE}: The larger tiles that pay": set(tiled.words) == {"ahead"},
            f"{PAGE}: That is about half of the tensor cores' rate": all(
                0.4 < found / ceiling(results[0], UNIT) < 0.6 for found in rates[first].values()
            ),
        },
    )


# Steps that the data names in other words.
STEPS = {
    "exp2 in place of exp": "powers of two",
    "descriptors in place of pointers": "descriptors",
    "one loop, with a branch": "one loop with a branch",
    "more queries a program": "more queries per program",
    "warp specialisation": "warp specialization",
    "lines in the fastest order": "our order of lines",
}


# What the page says of a step, and the verdicts that it says it from: D 64, D 128, each without a
# mask and with one. Some steps need a mask.
ALWAYS, NEVER = "ahead ahead ahead ahead", "behind behind behind behind"
HALF = "undecided undecided behind behind"


VERDICTS = {
    "exp by e": ("Powers of two pay in all four cases", ALWAYS),
    "a mask on every tile": ("A mask only where it is needed", ALWAYS),
    "two loops": ("one loop with a branch costs time at D 64 and pays at D 128", "behind ahead"),
    "shortest rows first": ("That pays at D 128; at D 64 we see no clear", "undecided ahead"),
    "pointers": ("Descriptors pay in all four cases", ALWAYS),
    "taller tiles": ("at D 128 and make no clear difference at D 64", HALF),
    "large tiles": ("128 × 128 on eight warps cost time everywhere", NEVER),
    "warp specialisation": ("where we use it, and costs up to", "behind behind ahead behind"),
}


def scene(rows):
    masked = {
        name: [r["masked"] for r in rows if r["example"] == name and "masked" in r]
        for name in values(rows, "example")
    }
    full, causal = masked["every key"], masked["causal"]
    return Figure(
        finding=f"Without a causal mask, {sum(full)} of {len(full)} tiles has to be masked. With "
        f"one, {sum(causal)} of {len(causal)}, and another tile is skipped.",
        caption="Four queries, 14 keys in tiles of four, float16, the first four of 16 columns, "
        "base 2: this page's kernel with smaller tiles, recorded in the interpreter between two "
        "iterations of its loop. The last accumulator divided by the "
        "sum is, bit for bit, what the launcher returned.",
        **drawn_scene(
            "flash_attention",
            rows,
            "tiles",
            "shared memory",
            "The kernel at work: a block of queries, the tile of keys that it is at, and what it "
            "has collected so far.",
        ),
    )


def ladder(rows):
    found = _gains(rows)
    step = {rung: r["step"] for rung, r in _steps(rows).items()}
    gain, at, best = max((x, at, rung) for rung, of in found.items() for at, x in of.items())
    divided = found["warp specialisation"].values()
    further = set(values([r for r in rows if r.get("kind") == "further"], "implementation"))
    return Figure(
        finding=f"The largest gain of a step is that of “{step[best]}”: {change(gain)} at "
        f"{case(at)}.",
        caption="How much faster the kernel, with tiles of 64 × 64 on four warps and three stages, "
        "is with a step than without it. The last three rows change the tile as well. Gains do not "
        "add up. Brackets: no clear difference. bfloat16, "
        f"N {rows[0]['N']}, {_tokens(rows)} tokens. {MEDIANS}",
        table=[
            {"step": step[rung]} | {case(at): _told(of.get(at)) for at in _over_base(rows).cases}
            for rung, of in sorted(
                found.items(), key=lambda at: (at[0] in further, -max(at[1].values()))
            )
        ],
        open_table=True,
        numbers={
            "loads": percent(max(found["nothing in flight"].values()) - 1),
            "order": percent(max(found["lines in another order"].values()) - 1),
            "divided": percent(max(divided) - 1),
            "divided_costs": percent(1 - min(divided)),
        },
        claims={
            f"{PAGE}: {said}": [gain.word for gain in found[rung].values()] == verdicts.split()
            for rung, (said, verdicts) in VERDICTS.items()
        }
        | {f"{PAGE}: is the largest in the table": best == "nothing in flight"},
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


def _told(gain):
    """A gain in a cell of the table; one that is none, in brackets."""
    if gain is None:
        return "–"
    return change(gain) if gain.word in ("ahead", "behind") else f"({change(gain)})"


def sweep(results, rows):
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
        Series(OURS, case(where), where, shade=shade, symbol=symbol + filled)
        for shade, symbol in enumerate(("circle", "diamond"))
        for N, filled in zip(values(rows, "N"), ("-open", ""), strict=True)
        for where in [{"N": N, "causal": bool(shade)}]
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
            field("share", "of the fastest tile's rate", units.percent),
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


def forward(results, rows):
    halves = pick(rows, dtype="bfloat16")
    main = Comparison(halves, OURS, [CUDNN, FLASH, FLEX], ("D", "causal", "N"))
    cudnn, flash, flex = (main[name] for name in main.others)
    rates = {at: rate(main.row(OURS, at)) for at in main.cases}
    wide = cudnn.where(D=128).values()
    top = max(rates, key=rates.get)
    device = results[0].device
    in_turn = FLOP_IN_TURN * device["multiprocessors"] * max(device["sm_clock_mhz"]) * 1e6
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
            "flash": flash.between(),
            "cudnn": between(cudnn.where(D=64, causal=False).values()),
            "ahead": percent(1 / min(wide) - 1),
            "best": flops(rates[top]),
            "in_turn": flops(in_turn),
            "best_share": share(rates[top], ceiling(results[0], UNIT)),
        },
        claims={
            f"{PAGE}: 1.4 times its rate or more": min(flash.values()) >= 1.4,
            f"{PAGE}: At D 128 cuDNN is ahead, by up to": max(wide) < 1,
            f"{PAGE}: No kernel in the chart gets past that at D 64": in_turn
            > max(rate(r) for r in pick(halves, D=64)),
            f"{PAGE}: The best cell, D 128 without a mask at 16,384 keys": top
            == (128, False, 16384),
        },
    )


def roofline(results):
    memory, peak = ceiling(results[0], "memory"), ceiling(results[0], UNIT)
    return Figure(
        finding=f"The ceilings: {flops(peak)} of bfloat16 products, {units.bandwidth(memory)} of "
        "traffic with memory.",
        numbers={"peak": flops(peak)},
    )


def memory(rows):
    far = max(pick(rows, implementation=OURS), key=lambda r: r["N"])
    extra = [r["peak_bytes"] - r["result_bytes"] for r in pick(rows, implementation=OURS)]
    peak = field("peak_bytes", "allocated at the peak", units.size)
    return Figure(
        finding=f"At N {cell(far['N'])} a call allocates {peak.text(far)} beyond its inputs.",
        numbers={"matrix": size(far["N"] ** 2 * far["heads"] * 2)},
        claims={
            f"{PAGE}: At 65,536 keys a call allocates its result and nothing else": max(extra) <= 0
            and far["N"] == 65_536
        },
    )


def error(rows):
    ours, eager = (
        {(r["dtype"], r["D"], r["N"]): r["largest"] for r in pick(rows, implementation=name)}
        for name in (OURS, EAGER)
    )
    against = between([ours[at] / eager[at] for at in ours if at[0] == "bfloat16"])
    return Figure(
        finding=f"The largest difference from float64 is {against} of eager PyTorch's in bfloat16.",
        numbers={"bfloat16": against},
    )


def host_time(rows):
    kept, asked = ([r["ms_p50"] for r in pick(rows, part=part)] for part in PARTS)
    return Figure(
        finding="The host's own time for a call and for its parts: bfloat16, 8 heads of 128 "
        "queries and keys.",
        numbers={"kept": between(kept, units.host_time), "asked": between(asked, units.host_time)},
    )
