"""The figures of the hopper_backward page: each draws the result of the same name."""

from snippets._lab.draw import charts
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import named
from snippets._lab.draw.rows import RATE, compiled, rate, values
from snippets._lab.draw.tables import beside
from snippets._lab.draw.units import count, flops
from snippets._lab.draw.words import Words

OURS, TRITON = "hopper_backward", "flash_backward"
CUDNN, FLASH, FA4 = "torch:cudnn", "torch:flash", "flash_attention_4"
IN_ORDER, AT_ONCE = "programs in order of heads", "all heads at once"
KERNEL, WAITED, HALVES, HERE, NOT_ADDED, NO_DQ = (
    "the kernel",
    "dQ waited for",
    "dQ in halves",
    "K and V from shared memory",
    "dQ not added",
    "no dQ",
)
words = Words(__file__)


def _panels(rows):
    """One for each head dimension, without a mask and with one."""
    return [
        View(f"D {D}, {'causal' if causal else 'no mask'}", {"D": D, "causal": causal})
        for D in values(rows, "D")
        for causal in (False, True)
    ]


def backward(results):
    rows = results[0].rows
    compared = Comparison(rows, OURS, [TRITON, CUDNN, FLASH, FA4], by=("D", "causal", "N"))
    shown = [OURS, *(name for name in compared.others if compared[name])]
    found = {"cudnn": compared[CUDNN].between(), "triton": compared[TRITON].between()}
    finding = words("backward", **found)
    if compared[FA4]:
        finding = words("backward.fa4", **found, fa4=compared[FA4].between())
    layouts = compared.of_layout([FA4])
    return Figure(
        finding=finding,
        caption=words("backward.caption"),
        table=beside(rows, ["D", "causal", "N"], {named(name): name for name in shown}, RATE),
        plot=charts.lines(results, shown, "N", RATE, _panels(rows), columns=2, log="x"),
        sentences={
            "layout": words("backward.layout", times=layouts)
            if layouts
            else words("backward.one_layout")
        },
    )


def rungs(results):
    rows = [r for r in results[0].rows if "error" not in r]
    names = {}
    for row in rows:
        names.setdefault(row["implementation"].partition(", ")[2], row["implementation"])
    return Figure(
        finding=words(
            "rungs",
            N=values(rows, "N")[0],
            D=128,
            ours=_reached(rows, KERNEL, 128),
            bare=_reached(rows, NOT_ADDED, 128),
        ),
        caption=words("rungs.caption"),
        table=beside(rows, ["D", "causal"], names, RATE),
        plot=charts.bars(
            results,
            [Series(OURS, rung, {"implementation": name}) for rung, name in names.items()],
            RATE,
            _panels(rows),
            columns=2,
        ),
        sentences={
            "waited": words("rungs.waited", **_change(rows, WAITED)),
            "halves": words("rungs.halves", **_change(rows, HALVES)),
            "none": words("rungs.none", **_change(rows, NO_DQ)),
            "here": words("rungs.here", **_change(rows, HERE, D=64)),
        },
    )


def _change(rows, rung, D=128):
    """What the kernel reaches, and what a rung does."""
    return {"ours": _reached(rows, KERNEL, D), "other": _reached(rows, rung, D)}


def _reached(rows, rung, D):
    """What a rung reaches without a mask."""
    (row,) = (
        r
        for r in rows
        if r["implementation"] == f"{OURS}, {rung}" and r["D"] == D and not r["causal"]
    )
    return flops(rate(row))


def order(results):
    rows = results[0].rows
    in_order, at_once = (f"{OURS}, {name}" for name in (IN_ORDER, AT_ONCE))
    compared = Comparison(rows, OURS, [in_order, at_once, CUDNN], by=("heads_kv", "N"))
    few, many = values(rows, "heads_kv")
    names = {"hopper_backward": OURS, IN_ORDER: in_order, AT_ONCE: at_once, "cuDNN": CUDNN}
    return Figure(
        finding=words(
            "order",
            few=few,
            in_order=compared[in_order].where(heads_kv=few).between(),
            cudnn=compared[CUDNN].where(heads_kv=few).between(),
        ),
        caption=words("order.caption", D=values(rows, "D")[0]),
        table=beside(rows, ["heads_kv", "N"], names, RATE),
        plot=charts.lines(
            results,
            [
                OURS,
                Series(OURS, IN_ORDER, {"implementation": in_order}, shade=1),
                Series(OURS, AT_ONCE, {"implementation": at_once}, shade=2),
                CUDNN,
            ],
            "N",
            RATE,
            [
                View(f"{_heads(rows, n)} heads of queries, {n} of keys", {"heads_kv": n})
                for n in (few, many)
            ],
            columns=2,
            log="x",
        ),
        sentences={
            "many": words(
                "order.many",
                many=many,
                in_order=compared[in_order].where(heads_kv=many).between(),
                at_once=compared[at_once].where(heads_kv=many).between(),
            )
        },
    )


def _heads(rows, heads_kv):
    """Heads of queries where there are so many of keys."""
    return values([r for r in rows if r["heads_kv"] == heads_kv], "heads")[0]


def registers(results):
    result, *_ = compiled(results)
    rows = result.rows
    worst = max(r["spill_store_bytes"] for r in rows if r["rung"] == KERNEL)
    return Figure(
        finding=words("registers", worst=worst),
        caption=words("registers.caption", triton=result.versions["triton"]),
        table=[
            {
                "rung": r["rung"],
                "D": r["D"],
                "mask": "causal" if r["causal"] else "none",
                "spilled bytes per thread": r["spill_store_bytes"],
                "shared memory, bytes": r["shared_bytes"],
            }
            for r in rows
        ],
        open_table=True,
    )


def orders(results):
    rows = results[0].rows
    whole, *wrong = rows
    found = [r for r in wrong if r["fault"]]
    rare = min(found, key=lambda r: r["shown"])
    return Figure(
        finding=words("orders", found=len(found)),
        caption=words("orders.caption", played=whole["played"], M=whole["M"], N=whole["N"]),
        table=[
            {
                "mistake": r["mutant"],
                "what is said": r["fault"],
                f"shown by random orders, of {r['played']}": r["shown"],
            }
            for r in found
        ],
        open_table=True,
        sentences={
            "whole": words(
                "orders.whole", events=count(whole["events"]), pairs=count(whole["pairs"])
            ),
            "others": words("orders.others", others=len(wrong) - len(found)),
            "rare": words(
                "orders.rare", mistake=rare["mutant"], shown=rare["shown"], played=rare["played"]
            ),
        },
    )
