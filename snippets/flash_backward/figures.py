"""The figures of the flash_backward page: each draws the result of the same name."""

from snippets._lab.draw import charts
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Against, Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import named
from snippets._lab.draw.rows import RATE, TIME, compiled, gains, pick, rate, values
from snippets._lab.draw.tables import beside
from snippets._lab.draw.units import count, flops, percent
from snippets._lab.draw.words import Words, between, listed, pays

OURS, REPEATABLE = "flash_backward", "flash_backward, deterministic"
TWO, KEYS, QUERIES, ONE, NOT_ADDED, NO_DQ = (
    f"flash_backward, {part}"
    for part in (
        "two passes",
        "dK and dV alone",
        "dQ alone",
        "one pass",
        "one pass, dQ not added",
        "one pass, no dQ",
    )
)
CUDNN, FLASH, FLEX, FA4 = "torch:cudnn", "torch:flash", "torch:flex", "flash_attention_4"
TUTORIAL = "triton_tutorial_06"
SMALLEST, WARPS, MERGED, APART, BY_TMA, NARROW, AGAIN, HALF, KEPT, TOGETHER = (
    "two kernels, seven products",
    "twice the warps",
    "one kernel, five products",
    "programs begin apart",
    "dQ added by TMA",
    "in rows of 128 bytes",
    "two kernels again",
    "two programs at a time",
    "queries in registers",
    "rung six, beginning together",
)
ONE_PASS = MERGED, APART, BY_TMA, NARROW
KEY_KERNEL = "_flash_backward_kernel"
words = Words(__file__)


def registers(results):
    result, *_ = compiled(results)
    rows = result.rows
    widest = pick(rows, D=128, causal=False)
    spilled = {r["rung"]: 0 for r in widest}
    for r in widest:
        spilled[r["rung"]] = max(spilled[r["rung"]], r["spill_store_bytes"])
    shared = {r["rung"]: r["shared_bytes"] for r in widest if r["kernel"] == KEY_KERNEL}
    return Figure(
        finding=words("registers", first=spilled[SMALLEST], last=spilled[KEPT]),
        caption=words("registers.caption", triton=result.versions["triton"]),
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
            "first": words("registers.first", spilled=spilled[SMALLEST]),
            "warps": words("registers.warps", before=spilled[SMALLEST], spilled=spilled[WARPS]),
            "one": words("registers.one", before=spilled[WARPS], spilled=spilled[MERGED]),
            "tma": words("registers.tma", before=spilled[APART], spilled=spilled[BY_TMA]),
            "again": words("registers.again", before=spilled[BY_TMA], spilled=spilled[AGAIN]),
            "half": words(
                "registers.half", before=count(shared[AGAIN]), shared=count(shared[HALF])
            ),
        },
    )


def rungs(results):
    timed = {r["implementation"]: r for r in results[0].rows if "error" not in r}
    rows = list(timed.values())
    names = {name.partition(", ")[2]: name for name in timed}
    steps = {
        "warps": (SMALLEST, WARPS),
        "one": (WARPS, MERGED),
        "apart": (MERGED, APART),
        "tma": (APART, BY_TMA),
        "narrow": (BY_TMA, NARROW),
        "again": (max(ONE_PASS, key=lambda rung: rate(timed[names[rung]])), AGAIN),
        "half": (AGAIN, HALF),
        "kept": (HALF, KEPT),
    }
    faster = gains(
        {
            name: (timed[names[after]], timed[names[before]])
            for name, (before, after) in steps.items()
        }
    )
    return Figure(
        finding=words(
            "rungs",
            N=values(rows, "N")[0],
            first=flops(rate(timed[names[SMALLEST]])),
            last=flops(rate(timed[names[KEPT]])),
        ),
        caption=words("rungs.caption"),
        table=beside(rows, ["N"], names, RATE),
        plot=charts.bars(results, [_bar(name) for name in timed], RATE),
        sentences={
            name: words("rungs.step", **_rates(timed, *steps[name]), verdict=pays([gain], "; "))
            for name, gain in faster.items()
        }
        | {"together": words("rungs.together", **_rates(timed, NARROW, TOGETHER))},
    )


def _bar(name):
    """Our bar under the name of its variant alone."""
    return Series(OURS, name.partition(", ")[2] or "as it is", {"implementation": name})


def _rates(timed, *rungs):
    """The rates of two rungs, for a sentence."""
    before, after = (flops(rate(timed[f"{OURS}, {rung}"])) for rung in rungs)
    return {"before": before, "after": after}


def dq(results):
    rows = results[0].rows
    names = [TWO, KEYS, QUERIES, ONE, NOT_ADDED, NO_DQ, CUDNN]
    compared = Comparison(rows, TWO, names[1:], by=("D", "causal", "N"))
    cases = [case for case in compared.cases if all(compared.ms(n, case) for n in names[:-1])]
    ms = {name: {case: compared.ms(name, case) for case in cases} for name in names[:-1]}
    shares = [ms[QUERIES][case] / (ms[ONE][case] - ms[NO_DQ][case]) for case in cases]
    added = {case: 1 - ms[NOT_ADDED][case] / ms[ONE][case] for case in cases}
    return Figure(
        finding=words("dq", share=between(shares, percent)),
        caption=words("dq.caption", N=values(rows, "N")[0]),
        table=beside(rows, ["D", "causal", "N"], {_part(name): name for name in names}, TIME),
        plot=charts.bars(results, [*map(_bar, names[:-1]), CUDNN], TIME, _panels(rows), columns=2),
        sentences={
            "added": words(
                "dq.added",
                narrow=between([x for case, x in added.items() if case.D == 64], percent),
                wide=between([x for case, x in added.items() if case.D == 128], percent),
            ),
            "passes": words("dq.passes", rate=_rates_of(rows, QUERIES), keys=_rates_of(rows, KEYS)),
        },
    )


def _part(name):
    """What a variant of ours leaves or takes, and others by their name."""
    return name.partition(", ")[2] or named(name)


def _rates_of(rows, name):
    """The rates of a variant, of the products that it computes."""
    return between([rate(r) for r in rows if r["implementation"] == name], flops)


def _panels(rows, **further):
    return [
        View(f"D {D}, {'causal' if causal else 'no mask'}", {"D": D, "causal": causal, **further})
        for D in values(rows, "D")
        for causal in (False, True)
    ]


def _beside_the_tutorial(rows):
    """Triton's tutorial and our kernel as shares of cuDNN's rate; "" where there is no tutorial."""
    half = pick(rows, dtype="float16")
    shares = {
        name: Comparison(half, name, [CUDNN], by=("D", "causal", "N"))[CUDNN]
        for name in (OURS, TUTORIAL)
    }
    if not shares[TUTORIAL]:
        return ""
    told = {
        f"{who}{D}": shares[name].where(D=D).between()
        for who, name in (("ours", OURS), ("theirs", TUTORIAL))
        for D in (64, 128)
    }
    return words("backward.tutorial", **told)


def backward(results):
    rows = [r for r in results[0].rows if r["dtype"] == "bfloat16"]
    compared = Comparison(
        rows, OURS, [REPEATABLE, CUDNN, FLASH, FLEX, FA4], by=("D", "causal", "N")
    )
    shown = [OURS, *(name for name in compared.others if compared[name])]
    return Figure(
        finding=words("backward", cudnn=compared[CUDNN].between()),
        caption=words("backward.caption"),
        table=beside(rows, ["D", "causal", "N"], {named(name): name for name in shown}, RATE),
        plot=charts.lines(
            results, shown, "N", RATE, _panels(rows, dtype="bfloat16"), columns=2, log="x"
        ),
        sentences={
            "tutorial": _beside_the_tutorial(results[0].rows),
            "order": words(
                "backward.order", share=between([*compared[REPEATABLE].values()], percent)
            ),
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
