"""The figures of the flash_backward page: each draws the result of the same name."""

from snippets._lab.draw import charts
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Against, Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import named
from snippets._lab.draw.rows import RATE, TIME, Gain, compiled, pick, rate, values
from snippets._lab.draw.tables import beside
from snippets._lab.draw.units import flops, percent
from snippets._lab.draw.words import Words, between, listed, verdict

OURS, IN_ORDER = "flash_backward", "flash_backward, deterministic"
NOT_ADDED, NOT_COMPUTED = (
    "flash_backward, dQ computed, not added",
    "flash_backward, dQ not computed",
)
CUDNN, FLASH, FLEX, FA4 = "torch:cudnn", "torch:flash", "torch:flex", "flash_attention_4"
SMALL, WARPS, ONE, APART, BY_TMA, NARROW, FIRST, TOGETHER = (
    "two kernels, seven products",
    "twice the warps",
    "one kernel, five products",
    "programs begin apart",
    "dQ added by TMA",
    "in rows of 128 bytes",
    "two products before P",
    "all of it, beginning together",
)
words = Words(__file__)


def registers(results):
    rows = compiled(results)[0].rows
    widest = [r for r in pick(rows, D=128, causal=False) if r["kernel"] != "_queries_kernel"]
    spilled = {r["rung"]: r["spill_store_bytes"] for r in widest}
    return Figure(
        finding=words("registers", first=spilled[SMALL], last=spilled[FIRST]),
        caption=words("registers.caption"),
        table=[
            {
                "rung": r["rung"],
                "kernel": r["kernel"],
                "mask": "causal" if r["causal"] else "none",
                "D": r["D"],
                "warps": r["num_warps"],
                "registers per thread": r["registers"],
                "spilled bytes per thread": r["spill_store_bytes"],
                "shared memory, bytes": r["shared_bytes"],
            }
            for r in sorted(rows, key=lambda r: -r["D"])
        ],
        open_table=True,
        sentences={
            "first": words("registers.first", spilled=spilled[SMALL]),
            "warps": words("registers.warps", before=spilled[SMALL], spilled=spilled[WARPS]),
            "one": words("registers.one", before=spilled[WARPS], spilled=spilled[ONE]),
            "tma": words("registers.tma", before=spilled[APART], spilled=spilled[BY_TMA]),
        },
    )


def rungs(results):
    timed = {r["implementation"]: r for r in results[0].rows if "error" not in r}
    rows = list(timed.values())
    names = {name.partition(", ")[2]: name for name in timed}
    return Figure(
        finding=words(
            "rungs",
            N=values(rows, "N")[0],
            first=flops(rate(timed[names[SMALL]])),
            last=flops(rate(timed[names[FIRST]])),
        ),
        caption=words("rungs.caption"),
        table=beside(rows, ["N"], names, RATE),
        plot=charts.bars(results, [_bar(name) for name in timed], RATE),
        sentences={
            "warps": words("rungs.warps", **_change(timed, SMALL, WARPS)),
            "one": words("rungs.one", **_change(timed, WARPS, ONE)),
            "apart": words("rungs.apart", **_change(timed, ONE, APART)),
            "tma": words("rungs.tma", **_change(timed, APART, BY_TMA)),
            "narrow": words("rungs.narrow", **_change(timed, BY_TMA, NARROW)),
            "first": words("rungs.first", **_change(timed, NARROW, FIRST)),
            "together": words("rungs.together", **_rates(timed, FIRST, TOGETHER)),
        },
    )


def _bar(name):
    """Our bar under the name of its variant alone."""
    return Series(OURS, name.partition(", ")[2] or "as it is", {"implementation": name})


def _rates(timed, *rungs):
    """The rates of two rungs, for a sentence."""
    before, after = (flops(rate(timed[f"{OURS}, {rung}"])) for rung in rungs)
    return {"before": before, "after": after}


def _change(timed, *rungs):
    """The same, and whether the step from one to the other pays."""
    before, after = (timed[f"{OURS}, {rung}"] for rung in rungs)
    return _rates(timed, *rungs) | {"verdict": verdict([Gain(after, before)])}


def dq(results):
    rows = results[0].rows
    compared = Comparison(rows, OURS, [NOT_ADDED, NOT_COMPUTED, CUDNN], by=("D", "causal", "N"))
    names = [OURS, NOT_ADDED, NOT_COMPUTED, CUDNN]
    return Figure(
        finding=words(
            "dq",
            added=between(_left(compared, NOT_ADDED), percent),
            computed=between(_left(compared, NOT_COMPUTED), percent),
        ),
        caption=words("dq.caption", N=values(rows, "N")[0]),
        table=beside(rows, ["D", "causal", "N"], {named(name): name for name in names}, TIME),
        plot=charts.bars(results, [*map(_bar, names[:-1]), CUDNN], TIME, _panels(rows), columns=2),
        sentences={"left": words("dq.left", cudnn=_without_dq(compared).between())},
    )


def _left(compared, other):
    """The share of our time that a variant takes, in every case."""
    return [
        compared.ms(other, case) / compared.ms(OURS, case)
        for case in compared.cases
        if compared.ms(other, case)
    ]


def _without_dq(compared):
    """What is left without dQ, beside all of cuDNN."""
    return Against(compared.rows.get(NOT_COMPUTED, {}), compared.rows.get(CUDNN, {}))


def _panels(rows):
    return [
        View(f"D {D}, {'causal' if causal else 'no mask'}", {"D": D, "causal": causal})
        for D in values(rows, "D")
        for causal in (False, True)
    ]


def backward(results):
    rows = results[0].rows
    compared = Comparison(rows, OURS, [IN_ORDER, CUDNN, FLASH, FLEX, FA4], by=("D", "causal", "N"))
    shown = [OURS, *(name for name in compared.others if compared[name])]
    costs = [slower - 1 for slower in compared[IN_ORDER].values()]
    return Figure(
        finding=words("backward", cudnn=compared[CUDNN].between()),
        caption=words("backward.caption"),
        table=beside(rows, ["D", "causal", "N"], {named(name): name for name in shown}, RATE),
        plot=charts.lines(results, shown, "N", RATE, _panels(rows), columns=2, log="x"),
        sentences={
            "order": words("backward.order", price=between(costs, percent)),
            "others": words(
                "backward.others",
                full=compared[CUDNN].where(causal=False).between(),
                causal=compared[CUDNN].where(causal=True).between(),
                others=listed(
                    f"{named(other)} {rates.between()}"
                    for other in (FA4, FLEX, FLASH)
                    if (rates := Against(compared.rows.get(other, {}), compared.rows[CUDNN]))
                ),
            ),
        },
    )
