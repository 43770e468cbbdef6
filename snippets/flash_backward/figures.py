"""The figures of the flash_backward page: each draws the result of the same name."""

from snippets._lab.draw import charts
from snippets._lab.draw.charts import View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import RATE, compiled, only, pick, rate, values
from snippets._lab.draw.tables import beside
from snippets._lab.draw.units import flops, percent
from snippets._lab.draw.words import Words, between

OURS, IN_ORDER = "flash_backward", "flash_backward, deterministic"
CUDNN, FLASH, FLEX, FA4 = "torch:cudnn", "torch:flash", "torch:flex", "flash_attention_4"
SMALL, WARPS, ONE, BY_TMA = (
    "two kernels, seven products",
    "twice the warps",
    "one kernel, five products",
    "dQ added by TMA",
)
words = Words(__file__)


def registers(results):
    rows = compiled(results)[0].rows
    widest = [r for r in pick(rows, D=128, causal=False) if r["kernel"] != "_queries_kernel"]
    spilled = {r["rung"]: r["spill_store_bytes"] for r in widest}
    return Figure(
        finding=words("registers", first=spilled[SMALL], last=spilled[BY_TMA]),
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
    rows = results[0].rows
    case = values(rows, "N")[0]
    reached = {r["implementation"]: rate(r) for r in rows if "error" not in r}
    return Figure(
        finding=words(
            "rungs", N=case, first=flops(reached[SMALL]), last=flops(max(reached.values()))
        ),
        caption=words("rungs.caption"),
        table=beside(rows, ["N"], {name: name for name in reached}, RATE),
        plot=charts.bars(results, list(reached), RATE),
    )


def backward(results):
    rows = [r for r in results[0].rows if "error" not in r]
    compared = Comparison(rows, OURS, [IN_ORDER, CUDNN, FLASH, FLEX, FA4], by=("D", "causal", "N"))
    others = {name: compared[name] for name in compared.others}
    price = [only(rows, **at, implementation=IN_ORDER)["ms_p50"] for at in _cells(rows)]
    plain = [only(rows, **at, implementation=OURS)["ms_p50"] for at in _cells(rows)]
    costs = [ordered / free - 1 for ordered, free in zip(price, plain, strict=True)]
    panels = [
        View(f"D {D}, {'causal' if causal else 'no mask'}", {"D": D, "causal": causal})
        for D in values(rows, "D")
        for causal in (False, True)
    ]
    shown = [OURS, IN_ORDER, *others]
    return Figure(
        finding=words("backward", cudnn=others[CUDNN].span()),
        caption=words("backward.caption"),
        table=beside(rows, ["D", "causal", "N"], {name: name for name in shown}, RATE),
        plot=charts.lines(results, shown, "N", RATE, panels, columns=2, log="x"),
        sentences={"order": words("backward.order", price=between(costs, percent))},
    )


def _cells(rows):
    return [
        {"D": r["D"], "causal": r["causal"], "N": r["N"]} for r in pick(rows, implementation=OURS)
    ]
