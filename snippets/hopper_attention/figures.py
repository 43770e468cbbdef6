"""The figures of the hopper_attention page: each draws the result of the same name."""

import itertools
import re

from snippets._lab.draw import charts, shared_figures, units
from snippets._lab.draw.charts import Reference, Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import BEST, identity, named
from snippets._lab.draw.mutant_figure import Kill, picture
from snippets._lab.draw.rows import (
    INTENSITY,
    RATE,
    TIME,
    Quantity,
    ceiling,
    derived,
    field,
    gains,
    intensity,
    only,
    pick,
    rate,
    values,
)
from snippets._lab.draw.scene import roles_scene
from snippets._lab.draw.tables import beside, columns
from snippets._lab.draw.units import change, count, decimals, flops, percent, share
from snippets._lab.draw.words import (
    Words,
    between,
    case,
    how_often,
    in_cells,
    listed,
    pays,
    useless,
)

from .diagram import from_rows, protocol_svg, timeline_svg

OURS, TRITON, CUDNN = "hopper_attention", "flash_attention", "torch:cudnn"
FLASH, FLEX, EAGER, SDPA = "torch:flash", "torch:flex", "torch:eager", "torch:sdpa"
UNIT = "matmul_bfloat16"  # the ceiling of the tensor cores
BY = ("D", "causal", "N")
WALKS = "barriers_walks.json"  # what the widget plays
OF_CUDNN = Quantity("of cuDNN's rate", "of_cudnn", units.fraction)
words = Words(__file__)


def _views(rows, **further):
    """A panel for each D, without a mask and with one."""
    pairs = sorted({(r["D"], r["causal"]) for r in rows})
    wanted = [{"D": D, "causal": causal} for D, causal in pairs]
    return [View(case(where), {**where, **further}) for where in wanted]


def _caption(section, **fields):
    return f"{words(section, **fields)} {words('medians')}"


def _by_case(found, text):
    """Numbers of cases as a sentence lists them: "0.9 and 1.1 (D 64), 1.2 (D 64, causal)"."""
    told = {}
    for at, value in found.items():
        told.setdefault(case(at, "D", "causal"), []).append(text(value))
    return [f"{listed(numbers)} ({where})" for where, numbers in told.items()]


def forward(results):
    rows = results[0].rows
    main, half = (
        Comparison(pick(rows, dtype=dtype), OURS, [CUDNN, TRITON, FLASH, FLEX], BY)
        for dtype in ("bfloat16", "float16")
    )
    cudnn, triton, flash, flex = (main[name] for name in main.others)
    best, the_best = main.best(), main.the_best()
    rivals = [name for name in BEST if main[name]]  # where they are installed
    layouts = main.of_layout([FLASH, *BEST])
    dtypes = [half.ms(OURS, at) / main.ms(OURS, at) for at in half.cases if at in main.cases]
    rates = {at: rate(main.row(OURS, at)) for at in main.cases}
    top = max(rates, key=rates.get)
    peak = ceiling(results[0], UNIT)
    one = main.row(OURS, top)
    names = {
        "ours": OURS,
        "cuDNN": CUDNN,
        **{named(name): name for name in rivals},
        "flash_attention": TRITON,
        "FlashAttention-2": FLASH,
        "Flex": FLEX,
    }
    others = {"others": words("forward.others", triton=triton.span(), flash=flash.span())}
    if flex:
        others["others"] = words(
            "forward.flex", triton=triton.span(), flash=flash.span(), flex=flex.span()
        )
    return Figure(
        finding=words(
            "forward.best",
            best=the_best,
            between=best.between(),
            standing=best.standing(" (", ")"),
            cudnn=cudnn.between(),
        )
        if best
        else words("forward", between=cudnn.between(), standing=cudnn.standing()),
        caption=_caption(
            "forward.caption",
            tokens=one["batch"] * one["N"],
            columns=one["heads"] * one["D"],
        ),
        table=beside(rows, ["dtype", *BY], names, RATE, _against([CUDNN, *rivals])),
        plot=charts.lines(
            results,
            [CUDNN, *rivals, OURS, TRITON, FLEX, FLASH],
            "N",
            RATE,
            _views(rows, dtype="bfloat16"),
            log="x",
        ),
        sentences={
            "cudnn": words(
                "forward.cudnn",
                lengths=listed(values(rows, "N")),
                cases="; ".join(_by_case(cudnn, decimals)),
                best=case(cudnn.best),
                worst=case(cudnn.worst),
            ),
            **others,
            "layout": words("forward.layout", times=layouts)
            if layouts
            else words("forward.one_layout"),
            "half": words("forward.half", between=between(dtypes)),
            "peak": words(
                "forward.peak",
                case=case(top),
                rate=flops(rates[top]),
                share=share(rates[top], peak),
                peak=flops(peak),
            ),
        },
    )


def _against(others):
    """How many times as fast as each of these ours is: columns of the table."""

    def more(row):
        return {
            f"÷ {named(name)}": row[name] and decimals(row[name]["ms_p50"] / row[OURS]["ms_p50"])
            for name in others
        }

    return more


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


def _worth(faster):
    """A step's gains as a sentence with a verdict."""
    return words(
        "rungs.step",
        lengths=listed(sorted({at.N for at in faster})),
        gains=in_cells(_in_cases(faster)),
        verdict=pays(faster.values()),
    )


def _in_cases(faster):
    """Case, without its N → the gains at each N."""
    found = {}
    for at in sorted(faster, key=lambda at: (at.causal, at.D, at.N)):
        found.setdefault(case(at, "D", "causal"), []).append(faster[at])
    return found


def _of_cudnn(result):
    """Rows of the rungs and of the kernel, with their rate as a part of cuDNN's."""
    timed = Comparison(result.rows, CUDNN, by=BY)
    for row in pick(result.rows):
        at = timed.case(*(row[axis] for axis in BY))
        yield row | {"of_cudnn": timed.ms(CUDNN, at) / row["ms_p50"]}


def _times(rows, labels):
    """A row a rung: its times. What its step gains, its sentence says."""
    timed = Comparison(rows, OURS, by=BY)
    table = [
        {"rung": label, **{case(at): timed.ms(name, at) for at in timed.cases}}
        for name, label in labels.items()
    ]
    times = {case(at): field(case(at), "", units.time) for at in timed.cases}
    return columns(table, {"rung": "rung", **times})


def rungs(results):
    rows = results[0].rows
    found, steps = _gains(rows), _steps(rows)
    told = {r["implementation"]: r for r in rows if "base" in r}
    (first,) = (rung for rung in told if rung not in steps)
    labels = {rung: rung for rung in told} | {OURS: "the kernel with its table"}
    whole = Comparison(rows, OURS, [first], BY)[first]
    least, most = change(min(whole.values())), change(max(whole.values()))
    start, end = (Comparison(rows, name, [CUDNN], BY)[CUDNN] for name in (first, OURS))
    colors = {rung: OURS if told[rung]["way_up"] else "context" for rung in told}
    places = [
        Series(name, label, {"implementation": name}, like=colors.get(name, OURS))
        for name, label in labels.items()
    ]
    lengths = values(rows, "N")
    return Figure(
        finding=words("rungs", least=least, most=most),
        caption=_caption("rungs.caption", tokens=rows[0]["batch"] * rows[0]["N"]),
        table=_times(rows, {**labels, CUDNN: named(CUDNN)}),
        plot=charts.dots(
            derived(results, _of_cudnn),
            places,
            OF_CUDNN,
            _views(rows),
            groups=[
                Series("", f"N {count(N)}", {"N": N}, symbol=symbol)
                for N, symbol in zip(lengths, ("circle-open", "circle", "diamond"), strict=False)
            ],
            log=False,
            references=[Reference("cuDNN", 1.0, across="x", key=CUDNN)],
        ),
        sentences={
            **{steps[rung]["section"]: _worth(of) for rung, of in found.items()},
            "first": words("rungs.first", between=start.between()),
            "whole": words("rungs.whole", between=end.between(), least=least, most=most),
            "useless": useless(
                {
                    steps[rung]["step"]: of.values()
                    for rung, of in found.items()
                    if steps[rung]["section"] != "length"  # `order` says where that pays
                }
            ),
        },
    )


def order(results):
    rows = pick(results[0].rows)
    paired, dealt = dict.fromkeys(r["implementation"] for r in rows)
    grids = list(dict.fromkeys((r["heads"], r["N"]) for r in rows))
    compared = Comparison(rows, dealt, [paired], ("heads", "N", "D"))
    faster, names = compared[paired], {at: f"{at[0]} heads, N {count(at[1])}" for at in grids}
    cells = {names[at]: [x for c, x in faster.items() if c[:2] == at] for at in grids}
    best = faster.best
    return Figure(
        finding=words("order", gain=change(faster[best]), grid=f"{names[best[:2]]}, D {best.D}"),
        caption=_caption("order.caption"),
        table=beside(rows, ["D", "heads", "N"], {paired: paired, dealt: dealt}, TIME),
        plot=charts.bars(
            results,
            [Series(name, name, {"heads": h, "N": N}, like=OURS) for (h, N), name in names.items()],
            RATE,
            [View(f"D {D}", {"D": D}) for D in values(rows, "D")],
            groups=[Series(dealt, dealt, like=OURS), Series(paired, paired, like="context")],
        ),
        sentences={
            "gains": words("order.gains", verdict=pays(faster.values()), gains=in_cells(cells))
        },
    )


def roofline(results):
    rows = results[0].rows
    memory, peak = ceiling(results[0], "memory"), ceiling(results[0], UNIT)
    reached = {
        r["N"]: rate(r) / min(peak, intensity(r) * memory) for r in pick(rows, implementation=OURS)
    }
    last, first = max(reached), min(reached)
    one = rows[0]
    return Figure(
        finding=words(
            "roofline",
            last=last,
            reached=percent(reached[last]),
            first=first,
            at_first=percent(reached[first]),
        ),
        caption=_caption("roofline.caption", D=one["D"], heads=one["heads"], batch=one["batch"]),
        table=columns(
            pick(rows),
            {
                "implementation": lambda r: named(r["implementation"]),
                "N": "N",
                "FLOP per byte": INTENSITY,
                "rate": RATE,
                "time": TIME,
            },
        ),
        plot=charts.roofline(results, [CUDNN, OURS, TRITON]),
        sentences={
            "share": words(
                "roofline.share",
                shares=listed(f"{percent(x)} at N {count(N)}" for N, x in sorted(reached.items())),
            ),
        },
    )


def ragged(results):
    rows = pick(results[0].rows)
    lengths = values(rows, "N")
    (shared,) = {r["implementation"] for r in rows} - {OURS}
    compared = Comparison(rows, shared, [OURS], BY)
    rates = {
        name: {at: rate(compared.row(name, at)) for at in compared.cases} for name in (OURS, shared)
    }
    round_of = {N: min(n for n in lengths if n >= N and n % 128 == 0) for N in lengths}

    def of_round(name, at):
        return rates[name][at] / rates[name][at._replace(N=round_of[at.N])]

    kept = {at: of_round(OURS, at) for at in compared.cases if round_of[at.N] != at.N}
    of_own = dict(compared[OURS])

    def worst(shares):
        least = min(shares, key=shares.get)
        return f"{change(shares[least])} ({case(least)})"

    def at(row):
        return compared.case(*(row[axis] for axis in BY))

    (heads,) = values(pick(rows, implementation=shared), "heads_kv")
    return Figure(
        finding=words("ragged", lengths=worst(kept), shared=worst(of_own)),
        caption=_caption("ragged.caption", batch=rows[0]["batch"], heads=rows[0]["heads"]),
        table=columns(
            sorted(pick(rows, implementation=OURS), key=at),
            {
                "D": "D",
                "causal": "causal",
                "N": "N",
                "rate": RATE,
                "of the round length": lambda r: decimals(of_round(OURS, at(r))),
                f"with {heads} heads of keys": Quantity(
                    "rate", lambda r: rates[shared][at(r)], units.flops
                ),
            },
        ),
        plot=charts.bars(
            results,
            [Series(str(N), count(N), {"N": N}, like=OURS) for N in lengths],
            RATE,
            _views(rows),
            groups=[
                Series(OURS, "each head its own keys"),
                Series(shared, shared, like="context"),
            ],
            upright=True,
            texts=False,
            along="N",
        ),
        sentences={
            "lengths": words("ragged.lengths", between=between(kept.values()), worst=worst(kept)),
            "shared": words("ragged.shared", between=between(of_own.values()), worst=worst(of_own)),
        },
    )


def error(results):
    rows = results[0].rows

    def beside_ours(name):
        """This kernel's largest difference over another's, in each cell."""
        others = (
            only(rows, implementation=name, dtype=r["dtype"], D=r["D"], N=r["N"])
            for r in pick(rows, implementation=OURS)
        )
        return between(
            r["largest"] / other["largest"]
            for r, other in zip(pick(rows, implementation=OURS), others, strict=True)
        )

    return Figure(
        finding=words("error", eager=beside_ours(EAGER)),
        caption=words("error.caption"),
        table=[
            {"dtype": dtype, "D": D}
            | {
                named(name): units.error(
                    max(r["largest"] for r in pick(rows, implementation=name, dtype=dtype, D=D))
                )
                for name in values(rows, "implementation")
            }
            for dtype, D in itertools.product(values(rows, "dtype"), values(rows, "D"))
        ],
        plot=charts.errors(results),
        sentences={
            "beside": words("error.beside", cudnn=beside_ours(CUDNN), triton=beside_ours(TRITON)),
        },
    )


def host_time(results):
    host = shared_figures.host(results, [OURS, TRITON, SDPA])
    one = results[0].rows[0]
    return Figure(
        finding=words("host_time", ours=host.ours, times=host.times),
        caption=words("host_time.caption", heads=one["heads"], N=one["N"]),
        table=host.table,
        plot=host.plot,
        sentences={"kept": words("host_time.kept", kept=host.kept, asked=host.asked)},
    )


def fuzz(results):
    rows = results[0].rows
    shapes, wrong = (sum(r[count_] for r in rows) for count_ in ("shapes", "wrong"))
    return Figure(
        finding=words(
            "fuzz",
            shapes=shapes,
            wrong=f"{wrong or 'none'} {'is' if wrong < 2 else 'are'} wrong",
            share=percent(max(r["largest_share_of_allowed"] for r in rows)),
        ),
        caption=words("fuzz.caption", longest=max(values(rows, "longest"))),
        table=columns(
            rows,
            {
                "dtype": "dtype",
                "D": "D",
                "causal": "causal",
                "shapes": "shapes",
                "wrong": "wrong",
                "largest error, of what is allowed": field(
                    "largest_share_of_allowed", "", units.fraction
                ),
            },
        ),
        open_table=True,
    )


def protocol_mutants(results):
    rows = results[0].rows
    wrong = [r for r in rows if r["message"]]
    whole = next(r for r in rows if not r["message"])
    return Figure(
        finding=words("protocol_mutants", wrong=len(wrong)),
        caption=words("protocol_mutants.caption", events=whole["events"]),
        table=[],
        widget=picture(
            [Kill(r["mutant"], r["diagnosis"], r["message"]) for r in wrong],
            "what happens",
        ),
    )


def barriers(results):
    rows = [_as_the_page_says(row) for row in results[0].rows]
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
        finding=words("barriers", states=count(len(whole["states"])), removed=len(removed)),
        caption=words(
            "barriers.caption",
            tiles=len(whole["steps"]["producer"]),
            states=count(sum(len(r["states"]) for r in rows)),
        ),
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


def _share_under(row):
    return f"{row['exponentials_under_products']} of {row['exponentials']}"


def resources(results):
    rows = results[0].rows
    overlapping, alone = ([r for r in rows if r["OVERLAP"] is overlap] for overlap in (True, False))
    whole = sum(r["exponentials_under_products"] == r["exponentials"] for r in overlapping)
    spilled = [r for r in rows if r["spill_store_bytes"]]
    inside = [r for r in rows if r["local_memory_instructions"]]
    under = listed(dict.fromkeys(map(_share_under, overlapping)))
    said = words("resources.under", overlapping=under)
    if alone:
        beside_it = listed(dict.fromkeys(map(_share_under, alone)))
        said = words("resources.under_and_alone", overlapping=under, alone=beside_it)
    return Figure(
        finding=words(
            "resources",
            whole=whole,
            overlapping=len(overlapping),
            spilled=words(
                "resources.spilled",
                spilled=len(spilled),
                kernels=len(rows),
                inside=len(inside) or "none",
            )
            if spilled
            else words("resources.none"),
        ),
        caption=words("resources.caption"),
        table=columns(
            rows,
            {
                "D": "D",
                "mask": lambda r: "causal" if r["causal"] else "last tile" * r["ragged"] or "none",
                "variant": _variant,
                "registers": "registers",
                "spilled, bytes": "spill_store_bytes",
                "shared": field("shared_bytes", "", units.kib),
                "exp2 under a product": _share_under,
            },
        ),
        open_table=True,
        sentences={"under": said},
    )


def _variant(row):
    """A variant in words."""
    switches = {
        "OVERLAP": "overlap",
        "PING_PONG": "in turn",
        "Q_IN_REGISTERS": "queries in registers",
        "LAZY": "rescaled late",
    }
    told = [words_ for switch, words_ in switches.items() if row[switch]]
    return ", ".join([f"{row['CONSUMERS']} consumers", f"{row['STAGES']} stages", *told])


def protocol(results):
    rows = results[0].rows
    signals = from_rows(rows)[1]
    return Figure(
        finding=words(
            "protocol",
            signals=len(signals),
            waited=sum(s.received > s.sent for s in signals),
        ),
        caption=words("protocol.caption"),
        sources=results,
        table=[
            {
                "barrier": s.barrier,
                "signaled by": _sender(s.sender),
                "at": s.sent,
                "waited for by": _sender(s.receiver),
                "goes on at": s.received,
            }
            for s in signals
        ],
        widget=protocol_svg(rows),
    )


def _sender(part):
    return "TMA" if part == "copies" else part


def _timeline(results, what, caption="timeline.again"):
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
        finding=words("timeline", what=what, tiles=len(tiles), rests=how_often(rests)),
        caption=words(caption),
        sources=results,
        table=[{"tile of keys": tile, **done} for tile, done in sorted(tiles.items())],
        widget=timeline_svg(rows),
    )


def timeline_alone(results):
    return _timeline(results, "One thing after the other", "timeline.caption")


def timeline_overlap(results):
    return _timeline(results, "Softmax under the product")


def timeline_turns(results):
    return _timeline(results, "Softmax under the product, in turn")


def timeline_three(results):
    return _timeline(results, "Three consumers, one thing after the other, D 64")


def scene(results):
    rows = results[0].rows
    whole = only([r for r in rows if "listing" in r])
    spans = [r for r in rows if "part" in r]
    products = [s for s in spans if s["kind"] in ("scores", "values")]
    busy = sum(s["end"] - s["start"] for s in products)
    first, last = min(s["start"] for s in products), max(s["end"] for s in products)
    return Figure(
        finding=words(
            "scene",
            busy=units.percent(busy / (last - first)),
            tiles=whole["keys"] // whole["tile"],
        ),
        caption=words("scene.caption", consumers=whole["consumers"]),
        **roles_scene(
            "hopper_attention",
            rows,
            timeline_svg([r for r in rows if "part" in r or "barrier" in r]),
        ),
    )
