"""The figures of the masks_and_packing page: each draws the result of the same name."""

from snippets._lab.draw import charts
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import TIME, field, only, pick, values
from snippets._lab.draw.tables import columns
from snippets._lab.draw.units import percent, ratio, thousands

OURS, PLAIN, FLEX = "masks_and_packing", "flash_attention", "torch:flex"
PAGE = "docs/posts/masks_and_packing.md"


def visited(results):
    rows = results[0].rows
    full, *windows = rows
    narrow = only(rows, window=128)
    useful = [r["pairs_seen"] / r["tiles"] for r in [*windows, full]]
    return Figure(
        finding=f"At N {full['N']} a window of 128 keys visits {narrow['tiles']} tiles of "
        f"{full['tiles']}.",
        caption="Causal, one head, counted by recording every load of K while the interpreter runs "
        f"the kernel, with tiles of {full['BLOCK_M']} queries and {full['BLOCK_N']} keys.",
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
            "times": ratio(full["tiles"] / narrow["tiles"]),
            "block_m": full["BLOCK_M"],
            "block_n": full["BLOCK_N"],
            "useful": percent(
                narrow["pairs_seen"] / (narrow["tiles"] * full["BLOCK_M"] * full["BLOCK_N"])
            ),
        },
        claims={
            f"{PAGE}: The narrower the window, the larger the share": sorted(useful) == useful,
        },
    )


def code(results):
    rows = results[0].rows
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
        table=columns(
            rows,
            {
                "D": "D",
                "option": "option",
                "instructions": "instructions",
                "registers": "registers",
                "spilled bytes": "spill_store_bytes",
                "shared memory": "shared_bytes",
            },
        ),
        numbers={
            "plain": thousands(at["none"]),
            "window": thousands(at["window"] - at["none"]),
            "sinks": thousands(at["sinks"] - at["none"]),
        },
        claims={f"{PAGE}: instruction for instruction": all(same)},
    )


def windows(results):
    rows = results[0].rows
    widths = values(rows, "D")
    panels = [View(f"D {D}", {"D": D}) for D in widths]
    return Figure(
        finding="Time over the window, beside FlexAttention and the plain causal kernel.",
        caption="bfloat16, causal, 16 heads, both axes logarithmic: down is faster. FlexAttention "
        "is compiled, and its mask was built before.",
        plot=charts.lines(results, [OURS, FLEX, PLAIN], "window", TIME, panels, columns=2),
    )
