"""The figures of the flash_backward page: each draws the result of the same name."""

from snippets._lab.draw import charts
from snippets._lab.draw.charts import Series
from snippets._lab.draw.comparison import Against, Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import RATE, TIME, compiled, gains, pick, rate, values
from snippets._lab.draw.units import between, flops, percent

OURS = "flash_backward"
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
    "rung six, beginning together",  # no rung, and not drawn
)
ONE_PASS = MERGED, APART, BY_TMA, NARROW
PAGE = "docs/posts/flash_backward.md"


def _bar(name, number=""):
    """Our bar under the name of its variant alone, and which rung that is."""
    label = name.partition(", ")[2] or "as it is"
    return Series(OURS, number + label, {"implementation": name})


def rungs(results):
    timed = {r["implementation"]: r for r in results[0].rows if "error" not in r}
    rows = list(timed.values())
    names = {name.partition(", ")[2]: name for name in timed}
    best = max(ONE_PASS, key=lambda rung: rate(timed[names[rung]]))
    steps = {
        "warps": (SMALLEST, WARPS),
        "one": (WARPS, MERGED),
        "apart": (MERGED, APART),
        "tma": (APART, BY_TMA),
        "narrow": (BY_TMA, NARROW),
        "again": (best, AGAIN),
        "half": (AGAIN, HALF),
        "kept": (HALF, KEPT),
    }
    pairs = {
        name: (timed[names[after]], timed[names[before]]) for name, (before, after) in steps.items()
    }
    verdict = {name: gain.word for name, gain in gains(pairs).items()}
    rates = {rung: flops(rate(timed[name])) for rung, name in names.items()}
    return Figure(
        finding=f"From {rates[SMALLEST]} on the first rung to {rates[KEPT]} on the ninth, at N "
        f"{values(rows, 'N')[0]}.",
        caption="Longer is faster. float16, D 128, no mask, 16 heads. All launches of a rung are "
        "counted, from dO to the three gradients, and always five products as its work. On the "
        "eighth, two programs share a multiprocessor.",
        plot=charts.bars(
            results,
            [_bar(name, f"{i}. ") for i, name in enumerate(timed, start=1) if TOGETHER not in name],
            RATE,
        ),
        numbers={
            "first": rates[SMALLEST],
            "warps": rates[WARPS],
            "one": rates[MERGED],
            "tma": rates[BY_TMA],
            "again": rates[AGAIN],
            "kept": rates[KEPT],
        },
        claims={
            f"{PAGE}: **Twice the warps**": verdict["warps"] == "ahead",
            f"{PAGE}: **One kernel, five products.**": verdict["one"] == "ahead",
            f"{PAGE}: Letting TMA add whole tiles brings": verdict["tma"] == "ahead",
            f"{PAGE}: programs that begin at different queries made no clear difference": verdict[
                "apart"
            ]
            in ("level", "undecided"),
            f"{PAGE}: and rows of 128 bytes cost time": verdict["narrow"] == "behind",
            f"{PAGE}: Compared with the fastest kernel of one pass, the rate": best == BY_TMA
            and verdict["again"] == "ahead",
            f"{PAGE}: eighth rung, gain nothing more": verdict["half"] != "ahead",
            f"{PAGE}: half the queries on half the warps it brings": verdict["kept"] == "ahead",
        },
    )


def registers(results):
    result, *_ = compiled(results)
    rows = result.rows
    widest = pick(rows, D=128, causal=False)
    spilled = {r["rung"]: 0 for r in widest}
    for r in widest:
        spilled[r["rung"]] = max(spilled[r["rung"]], r["spill_store_bytes"])
    return Figure(
        finding=f"At D 128 without a mask the first rung spills {spilled[SMALLEST]} bytes per "
        f"thread, the last {spilled[KEPT]}.",
        numbers={"first": f"{spilled[SMALLEST]} bytes", "warps": f"{spilled[WARPS]} bytes"},
        claims={f"{PAGE}: Nothing spills": spilled[AGAIN] == 0},
    )


def dq(results, rows):
    names = [TWO, KEYS, QUERIES, ONE, NOT_ADDED, NO_DQ]
    compared = Comparison(rows, TWO, names[1:], by=("D", "causal", "N"))
    cases = [case for case in compared.cases if all(compared.ms(n, case) for n in names)]
    ms = {name: {case: compared.ms(name, case) for case in cases} for name in names}
    shares = [ms[QUERIES][case] / (ms[ONE][case] - ms[NO_DQ][case]) for case in cases]
    added = {case: 1 - ms[NOT_ADDED][case] / ms[ONE][case] for case in cases}
    return Figure(
        finding=f"A kernel of its own finds dQ in {between(shares, percent)} of the time that dQ "
        "costs in one pass.",
        caption=f'Shorter is faster. bfloat16, N {values(rows, "N")[0]}; medians. "dK and dV '
        'alone" and "dQ alone" are the two kernels of two passes, each timed by itself. "One '
        'pass" has its fastest tiles. "dQ not added" adds to rows beyond the end of dQ, which '
        'the hardware drops: all instructions stay, and no sum is written. "No dQ" leaves out '
        "the product and the addition.",
        plot=charts.bars(results, [*map(_bar, names)], TIME, charts.by_mask(rows), columns=2),
        numbers={
            "narrow": between([x for case, x in added.items() if case.D == 64], percent),
            "wide": between([x for case, x in added.items() if case.D == 128], percent),
            "without": between([ms[NO_DQ][at] / ms[KEYS][at] for at in cases]),
        },
        claims={
            f"{PAGE}: So what it loses, it loses to $dQ$": all(
                abs(ms[NO_DQ][at] / ms[KEYS][at] - 1) < 0.1 for at in cases
            ),
            f"{PAGE}: added, one pass is still the slower one in all cases but one": sum(
                ms[NOT_ADDED][at] > ms[TWO][at] for at in cases
            )
            == len(cases) - 1,
            f"{PAGE}: ## Why one pass is slower": all(ms[ONE][at] > ms[TWO][at] for at in cases),
        },
    )


def backward(results):
    rows = [r for r in results[0].rows if r["dtype"] == "bfloat16"]
    compared = Comparison(rows, OURS, [CUDNN, FLASH, FLEX, FA4], by=("D", "causal", "N"))
    shown = [OURS, *(name for name in compared.others if compared[name])]
    cudnn = compared[CUDNN]
    others = {
        name: Against(compared.rows[of], compared.rows[CUDNN])
        for name, of in (("fa4", FA4), ("flex", FLEX))
        if of in compared.rows
    }
    half = pick(results[0].rows, dtype="float16")
    in_half = {
        name: Comparison(half, name, [CUDNN], by=("D", "causal", "N"))[CUDNN]
        for name in (OURS, TUTORIAL)
    }
    return Figure(
        finding=f"It does {cudnn.between()} of cuDNN's rate.",
        caption="Up is faster. bfloat16; 16,384 tokens and 2,048 columns at every length: batch "
        "times N, and heads times D, stay the same. Five products are counted as work, and with "
        "a mask only the visible scores. Medians; L2 flushed before every call; all take turns.",
        plot=charts.lines(
            results, shown, "N", RATE, charts.by_mask(rows, dtype="bfloat16"), columns=2, log="x"
        ),
        numbers={
            **{name: against.between() for name, against in others.items()},
            "times_flash": compared[FLASH].between(),
            **{
                f"{who}_128": in_half[name].where(D=128).between()
                for who, name in (("ours", OURS), ("tutorial", TUTORIAL))
                if in_half[name]
            },
        },
        claims={
            f"{PAGE}: At D 128 cuDNN is ahead in every case but one, which is too close to call": (
                sorted(cudnn.where(D=128).words)
                == ["behind"] * (len(cudnn.where(D=128)) - 1) + ["undecided"]
            ),
            f"{PAGE}: At D 64 cuDNN is behind without a mask": set(
                cudnn.where(D=64, causal=False).words
            )
            == {"ahead"},
            f"{PAGE}: with one it depends on the length": {"ahead", "behind"}
            <= set(cudnn.where(D=64, causal=True).words),
            f"{PAGE}: ## Faster than FlashAttention-2": min(compared[FLASH].values()) > 1,
            f"{PAGE}: FlashAttention-4 is faster than cuDNN in every case": all(
                x > 1 for name, against in others.items() if name == "fa4" for x in against.values()
            ),
        },
    )
