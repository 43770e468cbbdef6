"""The figures of the hopper_attention page: each draws the result of the same name."""

import re

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Reference, Series, View
from snippets._lab.draw.comparison import Against, Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import BEST, identity, named
from snippets._lab.draw.rows import RATE, Quantity, ceiling, derived, gains, pick, rate, values
from snippets._lab.draw.scene import roles_scene
from snippets._lab.draw.tables import case, columns, listed
from snippets._lab.draw.units import between, change, count, flops, percent, ratio

from .diagram import timeline_svg

OURS, TRITON, CUDNN = "hopper_attention", "flash_attention", "torch:cudnn"
FLASH, FLEX, SDPA = "torch:flash", "torch:flex", "torch:sdpa"
UNIT = "matmul_bfloat16"  # the ceiling of the tensor cores
BY = ("D", "causal", "N")
WALKS = "barriers_walks.json"  # what the widget plays
OF_CUDNN = Quantity("of cuDNN's rate", "of_cudnn", units.fraction)
PAGE = "docs/posts/hopper_attention.md"
FIRST_PAGE = "docs/posts/warp_specialization.md"
STEP = 20  # cycles
FLOP_A_CYCLE = 4096  # of a multiprocessor's tensor cores, in 16 bits
MEDIANS = "Medians; L2 flushed before every call; all take turns."


def barriers(rows):
    rows = [_as_the_page_says(row) for row in rows]
    whole, *removed = rows
    table = columns(
        removed,
        {
            "taken out": "removed",
            "who fails": _first_trouble,
            "why": "diagnosis",
            "states": lambda r: len(r["states"]),
        },
    )
    colors = f"--am-k: {identity('k').color}"
    return Figure(
        finding="Take out a wait or an arrival and see who fails. In the kernel as written, each "
        f"of the {count(len(whole['states']))} states that can occur leads to the end; without any "
        f"one of {len(removed)} pieces, some order of events deadlocks or loses a tile.",
        caption="One channel of the kernel: a producer, two consumers and two buffers, for "
        f"{len(whole['steps']['producer'])} tiles of keys. Press whichever is to act next; "
        "whoever is waiting says what for. A filled circle is an arrival in the current phase. The "
        "kernel's own lines, run in every order, with and without each piece, reach "
        f"{count(sum(len(r['states']) for r in rows))} states.",
        table=table,
        widget="\n".join(
            [
                f'<div class="am-barriers" data-widget="barriers" style="{colors}" markdown>',
                f"[All states](/figures/hopper_attention/{WALKS}){{ .am-source }}",
                "</div>",
            ]
        ),
        extra_files={WALKS: {"walks": rows}},
    )


def _as_the_page_says(value):
    """The names of the keys' channel as the page writes them: "buffer 0", "full[0]"."""
    if isinstance(value, str):
        return re.sub(r"\bk\[(\d+)\]", r"buffer \1", value).replace("k.", "")
    if isinstance(value, dict):
        return {_as_the_page_says(key): _as_the_page_says(x) for key, x in value.items()}
    return [_as_the_page_says(x) for x in value] if isinstance(value, list) else value


def _first_trouble(row):
    """What the shortest way into trouble ends with."""
    at = 0
    for way in row["trouble"]:
        _, at = row["ways"][at][way]
        if at < 0:
            return row["faults"][~at]
    left = {
        part: steps[done]["asks"]
        for (part, steps), done in zip(row["steps"].items(), row["states"][at], strict=False)
        if done < len(steps)
    }
    return f"deadlock: {listed(f'{part} waits for {asks}' for part, asks in left.items())}"


def protocol_mutants(rows):
    wrong = [r for r in rows if r["message"]]
    return Figure(
        finding=f"{len(wrong)} kernels with a mistake in their protocol, and the simulation says "
        "what goes wrong in each.",
        numbers={"count": len(wrong)},
        claims={
            f"{FIRST_PAGE}: {name[0].upper()}{name[1:]}": name in values(wrong, "mutant")
            for name in (
                "no wait for an empty buffer",
                "full before the bytes are there",
                "keys released under their product",
                "one arrival too few",
            )
        },
    )


def timeline(rows):
    scenes = [_rounded(r) for r in rows if "example" in r]
    scenes = [r for r in scenes if "part" not in r or r["end"] > r["start"]]
    recorded, *broken = (r for r in scenes if "listing" in r)
    spans = [s for s in pick(scenes, example=recorded["example"]) if "part" in s]
    end = max(s["end"] for s in spans)
    scores = [s for s in spans if s["kind"] == "scores"]
    waited = sum(s["end"] - s["start"] for s in scores)
    in_turn = sum(_overlap(s, other) for s in scores for other in spans)
    (programs,) = (len(r["cycles"]) for r in rows if "cycles" in r)
    timed = Comparison([r for r in rows if "implementation" in r], "with clocks", [OURS])
    (price,) = timed[OURS].values()
    chance = recorded["took"]["softmax"] / _step(scores)
    flop = 4 * recorded["queries"] * recorded["tile"] * recorded["D"]  # of a step's products
    return Figure(
        finding=f"{count(end)} cycles of one program on the card. While one consumer waits for its "
        f"scores, the other is at its softmax for {percent(in_turn / waited)} of the time. By "
        f"chance it would be {percent(chance)}.",
        caption=f"{count(recorded['queries'])} queries and {count(recorded['keys'])} keys, D "
        f"{recorded['D']}, the median of {count(programs)} programs, in steps of {STEP} cycles. "
        "A number is that of a tile. A p·v is drawn until its consumer has waited for it, a copy "
        "until the first consumer finds it: both may be over earlier. The notes change the time "
        f"of a call by {change(1 / price)}. *Take out* simulates the barriers with the times "
        f"measured here; the whole kernel takes {count(recorded['played'])} cycles there. A square "
        "is 16 queries and 32 keys. A tinted line is running, a dotted one waits; the color is the "
        "part's.",
        numbers={
            "softmax": count(recorded["took"]["softmax"]),
            "step": count(_step(scores)),
            "products": count(flop / FLOP_A_CYCLE),
            "busy": percent(flop / FLOP_A_CYCLE / _step(scores)),
            "before": count(min(s["start"] for s in scores)),
            "after": count(end - max(s["end"] for s in spans if s["kind"] == "values")),
        },
        claims={
            f"{PAGE}: under *Take out*": all(r["ends"] for r in broken) and len(broken) > 3,
            f"{PAGE}: turns, and yet they do": in_turn / waited > chance,
        },
        **roles_scene("hopper_attention", scenes, timeline_svg(spans, tick=5000)),
    )


def _step(scores):
    """Cycles from one tile's scores to the next: of one consumer, without the first and last."""
    starts = sorted(s["start"] for s in scores if s["part"] == scores[0]["part"])
    return (starts[-1] - starts[1]) / (len(starts) - 2)


def _rounded(row):
    """A row of the scene in steps of STEP cycles: what is closer together is seen together."""
    times = ("start", "end", "time", "since", "works_from", "until")
    there = times if "part" in row else times[2:]  # the "start" of a copy is a key
    return row | {name: STEP * round(row[name] / STEP) for name in there if name in row}


def _overlap(scores, other):
    """For how many cycles another consumer is at its softmax meanwhile."""
    if other["kind"] != "softmax" or other["part"] == scores["part"]:
        return 0
    return max(0, min(scores["end"], other["end"]) - max(scores["start"], other["start"]))


def resources(rows):
    overlapping = [r for r in rows if r["OVERLAP"]]
    whole = sum(r["exponentials_under_products"] == r["exponentials"] for r in overlapping)
    undone = [r for r in overlapping if not r["exponentials_under_products"]]
    spilled = [r for r in rows if r["spill_store_bytes"]]
    inside = sum(r["local_memory_instructions"] > 0 for r in rows)
    return Figure(
        finding=f"In {whole} of {len(overlapping)} kernels that are to overlap, all exponentials "
        f"of the loop run under a product; {len(spilled)} of {len(rows)} kernels spill, {inside} "
        "of them inside a loop over keys.",
        claims={
            f"{PAGE}: with it, at most two run outside. (On ragged": all(
                r["exponentials"] - r["exponentials_under_products"] <= 2
                for r in overlapping
                if r not in undone
            )
            and [(r["D"], r["CONSUMERS"], r["ragged"]) for r in undone] == [(64, 3, True)]
            and not any(r["exponentials_under_products"] for r in rows if not r["OVERLAP"])
        },
    )


# Of the steps aside, those that the chart shows: each is the subject of a section.
TAKEN_APART = ("undone by the compiler", "three consumers")


def rungs(results, rows):
    found, steps = _gains(rows), _steps(rows)
    told = {r["implementation"]: r for r in rows if "base" in r}
    (first,) = (rung for rung in told if rung not in steps)
    labels = {rung: rung for rung in told} | {OURS: "the kernel with its table"}
    whole = Comparison(rows, OURS, [first], BY)[first]
    least, most = change(min(whole.values())), change(max(whole.values()))
    of = {steps[rung]["section"]: gains for rung, gains in found.items()}
    ahead, behind = (
        {
            name: [at for at, gain in gains.items() if gain.word == word]
            for name, gains in of.items()
        }
        for word in ("ahead", "behind")
    )
    pays = {name for name in of if ahead[name] and not behind[name]}
    costs = {name for name in of if behind[name] and not ahead[name]}

    start, end = (Comparison(rows, name, [CUDNN], BY)[CUDNN] for name in (first, OURS))
    undone = Comparison(rows, "undone by the compiler", [first], BY)[first]
    colors = {rung: OURS if told[rung]["way_up"] else "context" for rung in told}
    places = [
        Series(name, label, {"implementation": name}, like=colors.get(name, OURS))
        for name, label in labels.items()
        if name == OURS or told[name]["way_up"] or name in TAKEN_APART
    ]
    lengths = values(rows, "N")
    far = max((at for at in of["three"] if at.D == 64 and not at.causal), key=lambda at: at.N)
    return Figure(
        finding=f"From the first step to the last the rate changes by {least} to {most}.",
        caption="Each step's rate relative to cuDNN's in the same run (the line); right is "
        "faster. In color, each step on top of those above it; in gray, the overlap undone, and "
        "three consumers, which the last kernel has at D 64. The data has all steps. "
        f"bfloat16, {count(rows[0]['batch'] * rows[0]['N'])} tokens. {MEDIANS}",
        plot=charts.dots(
            derived(results, _of_cudnn),
            places,
            OF_CUDNN,
            charts.by_mask(rows),
            groups=[
                Series("", f"N {count(N)}", {"N": N}, symbol=symbol)
                for N, symbol in zip(lengths, ("circle-open", "circle", "diamond"), strict=False)
            ],
            log=False,
            references=[Reference("cuDNN", 1.0, across="x", key=CUDNN)],
        ),
        numbers={
            "first": start.between(),
            "whole": end.between(),
            "held_most": change(max(of["held"].values())),
            "three_most": change(max(of["three"].values())),
            "stay_most": change(max(of["stay"].values())),
            "stay_least": change(min(of["stay"].values())),
            "pairs_most": change(max(of["pairs"].values())),
            "pairs_long": between(
                [x for at, x in of["pairs"].items() if lengths[-1] == at.N], change
            ),
            "held": len(ahead["held"]),
            "polynomial": len(behind["polynomial"]),
            "both": len(behind["both"]),
        },
        claims={
            f"{FIRST_PAGE}: least on short causal rows at D 64, "
            "most on long causal ones at D 128": (
                (*start.worst, *start.best) == (64, True, lengths[0], 128, True, lengths[-1])
            ),
            f"{PAGE}: of 12 cases and costs time in none": "held" in pays
            and max(of["held"], key=of["held"].get).D == 64
            and max(of["held"], key=of["held"].get).causal,
            f"{PAGE}: part of which makes up for a loss by the new order": all(
                gain < 1 for at, gain in undone.items() if at.D == 64 and at.causal
            ),
            f"{PAGE}: the largest step of all": max(of["pairs"].values())
            == max(max(gains.values()) for gains in of.values()),
            f"{PAGE}: at worst. The last block": all(
                at.causal for at, gain in of["stay"].items() if gain < 1
            ),
            f"{PAGE}: By the chart, at D 128": "overlap" in pays
            and max(of["overlap"], key=of["overlap"].get).D == 128,
            f"{PAGE}: | two consumers take turns (ping-pong) |": not (
                ahead["turns"] + behind["turns"]
            ),
            f"{PAGE}: | the sum is rescaled late |": (len(ahead["lazy"]), len(behind["lazy"]))
            == (1, 5)
            and [(at.D, at.causal, at.N) for at in ahead["lazy"]] == [(128, False, lengths[-1])],
            f"{PAGE}: | a quarter of the exponentials by a polynomial |": "polynomial" in costs,
            f"{PAGE}: | smaller tiles of keys, more in flight |": len(behind["keys"])
            == len(of["keys"]),
            f"{PAGE}: | overlap in three consumers |": "both" in costs and len(of["both"]) == 6,
            f"{PAGE}: On short rows with a mask it costs more than it can give": min(
                gain for at, gain in of["three"].items() if at.causal and lengths[0] == at.N
            )
            < 1,
            f"{PAGE}: Four small steps stay because they pay somewhere": {
                "queries",
                "engine",
                "packed",
                "ahead",
            }
            <= pays,
            f"{PAGE}: this is the largest step for long rows without a mask": of["three"][far]
            == max(gains[far] for gains in of.values() if far in gains),
        },
        table=[
            {"step": rung, "at": at, "gains, by N": ", ".join(each)}
            for rung, gains in found.items()
            for at, each in _in_cases(gains).items()
        ],
    )


def _steps(rows):
    """Rung → what its rows say about it, of those that are compared with another."""
    return {r["implementation"]: r for r in rows if r.get("base")}


def _gains(rows):
    """Rung → case → how many times as fast the kernel is with the step as without it."""
    timed = Comparison(rows, OURS, by=BY)
    pairs = {}
    for rung, told in _steps(rows).items():
        step, base = (rung, told["base"]) if told["has_step"] else (told["base"], rung)
        for at in timed.cases:
            if at.causal or not told["causal_only"]:
                pairs[rung, at] = timed.row(step, at), timed.row(base, at)
    found = {}
    for (rung, at), gain in gains({key: pair for key, pair in pairs.items() if all(pair)}).items():
        found.setdefault(rung, {})[at] = gain
    return found


def _in_cases(faster):
    """Case, without its N → the gains at each N."""
    found = {}
    for at in sorted(faster, key=lambda at: (at.causal, at.D, at.N)):
        found.setdefault(case(at, "D", "causal"), []).append(change(faster[at]))
    return found


def _of_cudnn(result):
    """Rows of the rungs and of the kernel, with their rate as a part of cuDNN's."""
    timed = Comparison(result.rows, CUDNN, by=BY)
    for row in pick(result.rows):
        at = timed.case(*(row[axis] for axis in BY))
        yield row | {"of_cudnn": timed.ms(CUDNN, at) / row["ms_p50"]}


def order(results):
    rows = pick(results[0].rows)
    paired, dealt, both = dict.fromkeys(r["implementation"] for r in rows)
    grids = list(dict.fromkeys((r["heads"], r["N"]) for r in rows))
    compared = Comparison(rows, both, [paired, dealt], ("heads", "N", "D"))
    names = {at: f"{at[0]} heads, N {count(at[1])}" for at in grids}
    over, beside = compared[paired], compared[dealt]
    best, by_length = over.best, percent(max(beside.values()) - 1)
    return Figure(
        finding="Causal tiles first in pairs, then by length: up to "
        f"{percent(over[best] - 1)} faster than all in pairs ({names[best[:2]]}, D {best.D}), up "
        f"to {by_length} faster than all by length.",
        caption="Longer is faster. bfloat16, causal, batch 1, two consumers; the three orders. "
        f"{MEDIANS}",
        plot=charts.bars(
            results,
            [Series(name, name, {"heads": h, "N": N}, like=OURS) for (h, N), name in names.items()],
            RATE,
            [View(f"D {D}", {"D": D}) for D in values(rows, "D")],
            groups=[
                Series(both, both, like=OURS),
                Series(paired, paired, like="context"),
                Series(dealt, dealt, like="context", shade=1),
            ],
        ),
        numbers={"ahead": sum(gain.word == "ahead" for gain in over.values()), "cases": len(over)},
        claims={
            f"{PAGE}: and behind either order alone in none": (
                over.never_behind and beside.never_behind
            )
        },
    )


def forward(results, rows):
    main = Comparison(pick(rows, dtype="bfloat16"), OURS, [CUDNN, TRITON, FLASH, FLEX], BY)
    cudnn, triton, flash, flex = (main[name] for name in main.others)
    best, the_best = main.best() or cudnn, main.the_best() or named(CUDNN)
    rivals = [name for name in BEST if main[name]]  # where they are installed
    own = [Against(main.rows[x], main.rows.get(f"{x}:as ours", {})) for x in (*rivals, FLASH)]
    of_own = between(1 / gain for against in own for gain in against.values())
    rates = {at: rate(main.row(OURS, at)) for at in main.cases}
    top = max(rates, key=rates.get)
    peak = ceiling(results[0], UNIT)
    one = main.row(OURS, top)
    device = results[0].device
    in_turn = FLOP_A_CYCLE / 2 * device["multiprocessors"] * max(device["sm_clock_mhz"]) * 1e6
    return Figure(
        finding=f"In bfloat16 it does {best.between()} of the rate of {the_best} "
        f"({best.verdicts()}), and {cudnn.between()} of cuDNN's.",
        caption="Up is faster. bfloat16. "
        f"{count(one['batch'] * one['N'])} tokens and {count(one['heads'] * one['D'])} columns at "
        "every length. With a mask only the visible scores count as work. Each FlashAttention gets "
        f"its own layout, [B, M, H, D]; with ours, transposed, it reaches {of_own} of that rate. "
        f"{MEDIANS}",
        plot=charts.lines(
            results,
            [CUDNN, *rivals, OURS, TRITON, FLEX, FLASH],
            "N",
            RATE,
            charts.by_mask(rows, dtype="bfloat16"),
            log="x",
        ),
        numbers={
            "flash": between(flash.values(), ratio),
            "flex": between(flex.values(), ratio),
            "peak": flops(rates[top]),
            "peak_share": percent(rates[top] / peak),
        },
        claims={
            f"{PAGE}: our time, FlexAttention": min(
                [*cudnn.values(), *triton.values(), *flash.values(), *flex.values()]
            )
            > 1,
            f"{PAGE}: its best case does": top.D == 128,
            f"{PAGE}: is ahead in most cases": best.words.count("behind") > len(best) / 2,
            "docs/posts/flash_attention.md: FlashAttention-3 and -4 do": all(
                max(rate(r) for r in pick(rows, implementation=name, D=64)) > in_turn
                for name in rivals
            ),
        },
    )


def ragged(rows):
    rows = pick(rows)
    (shared,) = {r["implementation"] for r in rows} - {OURS}
    compared = Comparison(rows, shared, [OURS], BY)

    def of_round(at):
        """Of the rate at the next length that fills its tiles."""
        N = min(n for n in values(rows, "N") if n >= at.N and n % 128 == 0)
        own, full = (rate(compared.row(OURS, x)) for x in (at, at._replace(N=N)))
        return own / full

    def worst(shares):
        least = min(shares, key=shares.get)
        return f"{change(shares[least])} ({case(least)})"

    kept = {at: of_round(at) for at in compared.cases if at.N % 128}
    return Figure(
        finding="At worst, a length that is not a multiple of the tile changes the rate by "
        f"{worst(kept)}, and sharing keys among four heads changes it by "
        f"{worst(dict(compared[OURS]))}.",
        numbers={"lengths": between(kept.values())},
    )


def wide(rows):
    compared = Comparison(rows, OURS, [CUDNN, *BEST], ("causal", "N"))
    cudnn, three, four = (compared[name].between() for name in compared.others)
    return Figure(
        finding=f"With heads of 256 columns it does {cudnn} of cuDNN's rate and {four} of "
        "FlashAttention-4's.",
        numbers={"cudnn": cudnn, "three": three, "four": four},
    )


def in_turn(rows):
    compared = Comparison(rows, "kernel_fast.py", [OURS, *BEST], BY)
    best, gain = compared.best(), compared[OURS]
    apart = Comparison(rows, "three in turn", by=BY)
    steps = {
        "order": apart["in no order"],
        "late": apart["values awaited late"],
        "pairs": apart["weights not in pairs"],
        "sums": compared["sums that are shared"],
    }
    full = {name: gains.where(causal=False) for name, gains in steps.items()}
    pays = {name for name, gains in full.items() if set(gains.words) == {"ahead"}}
    best_growth = max(compared["a factor of 16"].values())
    (chain,) = apart["one chain"].where(causal=False, N=16_384).values()
    (met,) = compared["released by all warps"].where(causal=True, N=16_384).values()
    changed = between(gain.values(), change)
    return Figure(
        finding=f"The last few percent: {changed} over kernel.py.",
        numbers={
            "best": best.between(),
            "ahead": str(best.words.count("ahead")),
            "growth": change(best_growth),
            "gain": changed,
            "chain": change(chain),
            "met": change(met),
        }
        | {name: between(gains.values(), change) for name, gains in full.items()},
        claims={
            f"{PAGE}: At D 64 three consumers get further": {"order", "late", "pairs"} <= pays,
            f"{PAGE}: score in short chains": chain.word == "ahead",
            f"{PAGE}: sums that stay with their threads": "sums" in pays,
            f"{PAGE}: without a barrier of all four warps": met.word == "ahead",
            f"{PAGE}: as FlashAttention-4 does, instead of 16": best_growth.word == "ahead",
            f"{PAGE}: cases, level in the others": set(best.words) == {"ahead", "level"},
        },
    )


def sustained(rows):
    even, odd = (pick(rows, M=M) for M in (16_384, 16_256))
    compared = Comparison(even, "kernel_fast.py", BEST, BY)
    best = compared.best()
    # By name, which part of its rate without a mask goes with one tile of queries fewer.
    lost = {
        row["implementation"]: 1 - RATE(fewer) / RATE(row)
        for row, fewer in zip(*(pick(x, D=128, causal=False) for x in (even, odd)), strict=True)
    }
    alone = lost.pop(BEST[0])
    return Figure(
        finding=f"Sustained, it does {best.between()} of the rate of {compared.the_best()}.",
        numbers={
            "best": best.between(),
            "alone": percent(alone),
            "others": percent(max(lost.values())),
        },
        claims={
            f"{PAGE}: which decides none": set(best.words) == {"undecided"},
            f"{PAGE}: with one tile fewer": alone > 2 * max(lost.values()),
        },
    )


def tiles(rows):
    kept = Comparison(rows, f"{BEST[1]}:64 keys", [BEST[1]], ("causal", "N"))[BEST[1]]
    return Figure(
        finding=f"With tiles of 64 keys, FlashAttention-4 keeps {kept.between()} of its rate at "
        "D 256.",
        numbers={"kept": kept.between()},
    )


def host_time(rows):
    ours, theirs = (
        [r["ms_p50"] for r in pick(rows, part="a call", implementation=name)]
        for name in (OURS, SDPA)
    )
    busy = between(ours, units.host_time)
    longer = between(
        [one / other for one, other in zip(ours, theirs, strict=True)], units.rough_ratio
    )
    return Figure(
        finding=f"A call keeps the host busy for {busy}, {longer} as long as one of PyTorch's "
        "SDPA.",
        numbers={"busy": busy},
    )


def fuzz(rows):
    shapes, wrong = (sum(r[count_] for r in rows) for count_ in ("shapes", "wrong"))
    return Figure(
        finding=f"Of {count(shapes)} random shapes none is wrong; the largest error is "
        f"{percent(max(r['largest_share_of_allowed'] for r in rows))} of what is allowed.",
        claims={
            f"{PAGE}: its numbers with a thousand random shapes": wrong == 0 and shapes >= 1000
        },
    )
