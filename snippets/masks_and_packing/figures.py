"""The figures of the masks_and_packing page: each draws the result of the same name."""

from snippets._lab.draw import charts
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import RATE, TIME, field, only, pick, rate, values
from snippets._lab.draw.tables import columns
from snippets._lab.draw.units import between, flops, percent, ratio, thousands

OURS, PLAIN, FLEX = "masks_and_packing", "flash_attention", "torch:flex"
VARLEN, FA4, PARTS = "torch:varlen", "flash_attention_4", ("forward", "backward")
PACKS = ("packed", "one long")
PAGE = "docs/posts/masks_and_packing.md"


def visited(results, rows):
    full, *windows = rows
    narrow = only(rows, window=128)
    useful = [r["pairs_seen"] / r["tiles"] for r in [*windows, full]]
    return Figure(
        finding=f"At N {full['N']} a window of 128 keys visits {narrow['tiles']} tiles of "
        f"{full['tiles']}.",
        caption="Causal, one head, counted by recording every load of K while the interpreter runs "
        f"the kernel, with tiles of {full['BLOCK_M']} queries and {full['BLOCK_N']} keys, as on "
        "an A100.",
        plot=charts.bars(
            results,
            [
                Series(
                    OURS,
                    f"{r['window']} keys" if r["window"] else "no window",
                    {"window": r["window"]},
                )
                for r in rows
            ],
            field("tiles", "tiles visited"),
        ),
        numbers={
            "keys": full["N"],
            "all": full["tiles"],
            "narrow": narrow["tiles"],
            "useful": percent(
                narrow["pairs_seen"] / (narrow["tiles"] * full["BLOCK_M"] * full["BLOCK_N"])
            ),
        },
        claims={f"{PAGE}: The narrower the window, the larger the share": sorted(useful) == useful},
    )


def code(rows):
    kept = ("instructions", "registers", "spill_store_bytes", "shared_bytes")
    same = [
        all(
            only(rows, D=D, option="none")[name] == only(rows, D=D, option=PLAIN)[name]
            for name in kept
        )
        for D in values(rows, "D")
    ]
    at = {row["option"]: row["instructions"] for row in pick(rows, D=128)}
    return Figure(
        finding=f"Without options the kernel has the {thousands(at['none'])} instructions of "
        "flash_attention; each option brings its own.",
        numbers={
            "plain": thousands(at["none"]),
            "window": thousands(at["window"] - at["none"]),
            "sinks": thousands(at["sinks"] - at["none"]),
        },
        claims={f"{PAGE}: instruction for instruction": all(same)},
    )


def windows(results, rows):
    beside = Comparison(rows, OURS, [FLEX, PLAIN, FA4], ("D", "window", "part"))
    sizes = [
        beside.row(OURS, case)["scores"] / beside.row(PLAIN, case)["scores"]
        for case in beside.cases
    ]
    tiles = [gain * size for gain, size in zip(beside[PLAIN].values(), sizes, strict=True)]
    mask = only(rows, implementation=f"{FLEX}, its mask", window=1024)
    return Figure(
        finding=f"With windows the kernel is {beside[FLEX].between()} times as fast as "
        "FlexAttention.",
        caption="bfloat16, causal, 16,384 tokens, heads × D = 2,048, both axes "
        "logarithmic: down is faster. flash_attention and its backward compute sequences twice as "
        "long as the window, which have a similar number of tiles. FlexAttention is compiled, and "
        "its mask was built before.",
        plot=charts.lines(
            results,
            [OURS, FLEX, FA4, Series(PLAIN, "plain kernels, short sequences")],
            "window",
            views=[
                View(f"D {D}, {part}", {"D": D, "part": part})
                for D in values(rows, "D")
                for part in PARTS
            ],
            columns=2,
        ),
        numbers={"fa4": beside[FA4].between(), "tiles": between(tiles), "mask": TIME.text(mask)},
        claims={
            f"{PAGE}: a similar number of tiles": 0.7 < min(sizes) <= max(sizes) < 1.5,
            f"{PAGE}: faster in every case": set(beside[FLEX].words) == {"ahead"},
            f"{PAGE}: FlashAttention-4 is faster in every backward": set(
                beside[FA4].where(part="backward").words
            )
            == {"behind"},
            f"{PAGE}: So an edge costs next to nothing": min(tiles) > 0.95,
        },
    )


def popular(rows):
    rates = between(map(rate, rows), flops)
    return Figure(
        finding=f"Choices of the page Your kernel, at {rates}.",
        table=columns(rows, {"choice": "choice", "time": TIME, "rate": RATE}),
        numbers={"rates": rates},
    )


def prices(rows):
    names = values(rows, "option")
    beside = Comparison(rows, OURS, [PLAIN, FLEX, VARLEN, FA4], ("D", "option", "part"))

    def against(other, *options):
        return [gain for x in options for gain in beside[other].where(option=x).values()]

    sinks = beside[PLAIN].where(option="sinks", part="forward").values()
    packed = beside[PLAIN].where(option="packed").values()
    gradient = Comparison(rows, f"{OURS}, its gradient too", [OURS], ("D", "option", "part"))[OURS]
    return Figure(
        finding="What is left of the plain kernels' speed with each option: bfloat16, causal, four "
        "sequences of 4096 tokens, or as many tokens packed.",
        numbers={
            **{
                f"{name.replace(' ', '_')}_{part}": between(
                    beside[PLAIN].where(option=name, part=part).values()
                )
                for name in names
                for part in PARTS
            },
            **{
                f"flex_{name.replace(' ', '_')}": between(against(FLEX, name))
                for name in names
                if against(FLEX, name)
            },
            "fa4_packed": between(against(FA4, *PACKS)),
            "varlen": between(against(VARLEN, "packed")),
            "varlen_long": between(against(VARLEN, "one long")),
            "gradient": between([1 / gain for gain in gradient.values()], ratio),
            "mask": TIME.text(only(rows, implementation=f"{FLEX}, its mask", option="packed")),
        },
        claims={
            f"{PAGE}: A sink costs the forward nothing": min(sinks) > 0.99,
            f"{PAGE}: packing sequences of one length next to nothing": min(packed) > 0.98,
        },
    )


def apart(rows):
    """How much of an option's extra time goes when a part of it is left out."""

    def spent(option):
        shares = []
        for D in values(rows, "D"):
            times = {r["implementation"]: TIME(r) for r in pick(rows, option=option, D=D)}
            extra = times["whole"] - times[PLAIN]
            shares.append((times["whole"] - times["left out"]) / extra)
        return between(shares, percent)

    return Figure(
        finding="Of what a soft cap adds to the plain kernel's time its tanh is "
        f"{spent('soft cap')}; of what a bias adds its load is {spent('bias')}.",
        numbers={"tanh": spent("soft cap"), "load": spent("bias")},
    )
