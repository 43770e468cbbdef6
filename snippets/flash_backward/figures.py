"""The figures of the flash_backward page: each draws the result of the same name."""

from snippets._lab.draw import charts
from snippets._lab.draw.charts import View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import RATE, compiled, pick, rate, values
from snippets._lab.draw.tables import beside
from snippets._lab.draw.units import flops, percent
from snippets._lab.draw.words import Words, between

OURS, IN_ORDER = "flash_backward", "flash_backward, deterministic"
CUDNN, FLASH, FLEX, FA4 = "torch:cudnn", "torch:flash", "torch:flex", "flash_attention_4"
SMALL, WARPS, ONE, BY_TMA, NARROW, APART, FIRST = (
    "two kernels, seven products",
    "twice the warps",
    "one kernel, five products",
    "dQ added by TMA",
    "in rows of 128 bytes",
    "programs begin apart",
    "two products before P",
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
            "tma": words("registers.tma", before=spilled[ONE], spilled=spilled[BY_TMA]),
        },
    )


def rungs(results):
    rows = [r for r in results[0].rows if "error" not in r]
    reached = {r["implementation"]: rate(r) for r in rows}
    names = {name.partition(", ")[2]: name for name in reached}
    return Figure(
        finding=words(
            "rungs",
            N=values(rows, "N")[0],
            first=flops(reached[names[SMALL]]),
            last=flops(reached[names[FIRST]]),
        ),
        caption=words("rungs.caption"),
        table=beside(rows, ["N"], names, RATE),
        plot=charts.bars(results, list(reached), RATE),
        sentences={
            "warps": words("rungs.warps", **_change(reached, SMALL, WARPS)),
            "one": words("rungs.one", **_change(reached, WARPS, ONE)),
            "tma": words("rungs.tma", **_change(reached, ONE, BY_TMA)),
            "narrow": words("rungs.narrow", **_change(reached, BY_TMA, NARROW)),
            "apart": words("rungs.apart", **_change(reached, NARROW, APART)),
            "first": words("rungs.first", **_change(reached, APART, FIRST)),
        },
    )


def _change(reached, *rungs):
    """The rates of two rungs, for a sentence."""
    before, after = (flops(reached[f"{OURS}, {rung}"]) for rung in rungs)
    return {"before": before, "after": after}


def backward(results):
    rows = results[0].rows
    compared = Comparison(rows, OURS, [IN_ORDER, CUDNN, FLASH, FLEX, FA4], by=("D", "causal", "N"))
    panels = [
        View(f"D {D}, {'causal' if causal else 'no mask'}", {"D": D, "causal": causal})
        for D in values(rows, "D")
        for causal in (False, True)
    ]
    shown = [OURS, *(name for name in compared.others if compared[name])]
    costs = [slower - 1 for slower in compared[IN_ORDER].values()]
    return Figure(
        finding=words("backward", cudnn=compared[CUDNN].between()),
        caption=words("backward.caption"),
        table=beside(rows, ["D", "causal", "N"], {name: name for name in shown}, RATE),
        plot=charts.lines(results, shown, "N", RATE, panels, columns=2, log="x"),
        sentences={"order": words("backward.order", price=between(costs, percent))},
    )
