"""The figures of the same_bits page: each draws the result of the same name."""

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import named
from snippets._lab.draw.rows import TIME, Quantity, derived, only, pick, values
from snippets._lab.draw.tables import Numeral
from snippets._lab.draw.units import between, count, error, percent, ratio, significant, thousands

OURS, FLASH, HOPPER, DECODE = "same_bits", "flash_attention", "hopper_attention", "decode_attention"
PAGE = "docs/posts/same_bits.md"
FA4 = "flash_attention_4"
SHARE = Quantity("numbers with other bits", lambda r: r["differ"] / r["numbers"], units.percent)


NAMES = {
    "same_bits:training": "same_bits, one pass",
    "same_bits:decoding": "same_bits, split",
    "decode_attention:invariant": "decode_attention, batch-invariant",
}
HEADS = {
    "batch": "batch",
    "position": "place in it",
    "queries": "queries",
    "chunk": "part of a prefill",
    "splits": "splits",
    "pages": "pages",
    "repeated": "again",
}


def matrix(rows):
    measured = [r for r in rows if "differ" in r]
    names = values(measured, "kernel")  # without a package that was not installed

    def cell(kernel, change):
        found = pick(rows, kernel=kernel, change=change)
        if not found or "differ" not in found[0]:
            return "failed" if found else "–"
        row = found[0]
        return "same" if not row["differ"] else f"{percent(SHARE(row))}, {error(row['largest'])}"

    broken = {r["kernel"] for r in measured if r["differ"]}
    again = pick(measured, change="repeated")
    queries = {row["kernel"]: SHARE(row) for row in pick(measured, change="queries")}
    return Figure(
        finding=f"Each kernel against itself: {len(names) - len(broken)} of {len(names)} kept "
        "every bit in all that they were asked.",
        caption="*Batch*: a sequence alone or one of 16. *Place in it*: first or twelfth. "
        "*Queries*: its newest alone or among all. *Part of a prefill*: its newest 300 (decoding: "
        "17) or all. *Splits*: one or several. *Pages*: in one piece or on them. *Again*: 100 "
        "calls. Share of numbers that differ, largest difference; a dash: not "
        "offered. bfloat16, 600 keys of 64 columns, 4,100 of 128.",
        open_table=True,
        table=[
            {
                "kernel": NAMES.get(kernel, named(kernel)),
                **{head: cell(kernel, change) for change, head in HEADS.items()},
            }
            for kernel in names
        ],
        numbers={name: percent(queries[f"torch:{name}"]) for name in ("math", "flash", "cudnn")},
        claims={
            f"{PAGE}: The efficient kernel keeps every bit": not queries["torch:efficient"],
            f"{PAGE}: every cell of both its rows says *same*": not any(
                kernel.startswith(OURS) for kernel in broken
            ),
            f"{PAGE}: FlashAttention-4 kept every bit as well": FA4 in names and FA4 not in broken,
            f"{PAGE}: All kernels repeat their bits in the same call": not any(
                r["differ"] for r in again
            ),
        },
    )


def ring(rows):
    one = pick(rows, change="splits")

    def share(rows):
        differ = sum(r["differ"] for r in rows)
        return percent(differ / sum(r["numbers"] for r in rows)) if differ else "0"

    return Figure(
        finding="A ring of GPUs against itself, and against one GPU.",
        numbers={
            "again": share([r for r in rows if r not in one]),
            "later": share([r for r in one if r["chunk"]]),
        },
        claims={
            "docs/posts/ring_attention.md: wherever a row sees the other's keys": all(
                bool(r["differ"]) == (r["change"] == "splits" and r["chunk"] > 0) for r in rows
            ),
        },
    )


def square(rows):
    rows = [r for r in rows if r["one"] != r["other"]]
    ours = only(rows, one="same_bits, one pass", other="same_bits, split")
    today = only(rows, one=FLASH, other="decode_attention, 1 split")
    usual = only(rows, one=FLASH, other="decode_attention, invariant")
    return Figure(
        finding="Our kernels beside each other.",
        numbers={
            "one_split": percent(SHARE(today)),
            "invariant": percent(SHARE(usual)),
            "largest": error(usual["largest"]),
        },
        claims={
            f"{PAGE}: No pair of our older kernels agrees": all(
                r["differ"] for r in rows if OURS not in r["one"] or OURS not in r["other"]
            ),
            f"{PAGE}: the two forms of `same_bits` do": not ours["differ"],
        },
    )


def products(rows):
    sums = pick(rows, of="tl.sum")
    return Figure(
        finding="Rows of a product and their sums, by tile height and warps.",
        numbers={"compared": thousands(sum(r["numbers"] for r in pick(rows, of="product")))},
        claims={
            f"{PAGE}: not one product": not any(r["differ"] for r in pick(rows, of="product"))
            and {r["unit"] for r in rows} == {"mma.sync", "wgmma"},
            f"{PAGE}: gave the same bits for every tile": not any(r["differ"] for r in sums),
            f"{PAGE}: do not depend on the layout": not any(
                r["differ"] for r in pick(rows, of="ones")
            ),
        },
    )


def _panel(title, **where):
    """A view with a scale of its own: times of other panels are many times as long."""
    return View(title, where, y=Quantity("time", lambda row: TIME(row), units.time))


def _worst(rows):
    """Of output and logsumexp, the one of which more is different."""
    return max(map(SHARE, rows))


DIVIDED = "acc / l"  # changes outputs alone, if anything: the chart is of logsumexps


LAST_FIRST = "the last chunk first"


def causes(results, rows):
    compared = [c for c in values(rows, "change") if c != DIVIDED]
    changes = [c for c in compared if c != "nothing"]
    shown = {
        beside: {c: _worst(pick(rows, change=c, beside=beside)) for c in compared}
        for beside in ("ours", "its own")
    }
    others, breaks = ([c for c in changes if shown[beside][c]] for beside in shown)
    breaks = [c for c in breaks if c != LAST_FIRST]  # which only one form can do

    def fair(result):
        return (r for r in result.rows if (r["change"], r["beside"]) != (LAST_FIRST, "its own"))

    all_of = "All" if len(others) == len(changes) else f"{len(others)} of"
    return Figure(
        finding=f"{all_of} {len(changes)} changes of the split form give other bits. With "
        f"{len(breaks)} of them the two forms differ even if both are changed.",
        caption="1,300 keys of 128 columns in bfloat16. Share of float32 logsumexps with other "
        "bits than those of the unchanged forward, and of one with the same change.",
        plot=charts.bars(
            derived(results, fair),
            [Series(OURS, c, {"change": c, "of": "logsumexp"}) for c in compared],
            SHARE,
            [
                View("only the split form is changed", {"beside": "ours"}),
                View("both forms are changed", {"beside": "its own"}),
            ],
            columns=2,
        ),
        numbers={
            "chunk": percent(shown["ours"]["chunks of 1,024 keys"]),
            "sums": percent(shown["its own"]["row sums by tl.sum"]),
        },
        claims={
            f"{PAGE}: Two changes still make them differ": breaks
            == ["row sums by tl.sum", "fusing left to the compiler"],
            f"{PAGE}: With no change": not shown["ours"]["nothing"],
            f"{PAGE}: changed no bit": not any(r["differ"] for r in pick(rows, change=DIVIDED)),
        },
    )


FORMS = {
    OURS: "one pass",
    f"{OURS}:one chunk": "without merging",
    f"{OURS}:tl.sum": "rows by tl.sum",
}


def training(results, rows):
    beside = Comparison(rows, OURS, by=("D", "N"))
    split = beside[f"{OURS}:as decoding"].values()
    flash, one_chunk, sums, hopper, cudnn = (
        [1 / x for x in beside[name].values()]
        for name in (FLASH, f"{OURS}:one chunk", f"{OURS}:tl.sum", HOPPER, "torch:cudnn")
    )
    return Figure(
        finding=f"The forward in one pass takes {between(flash, ratio)} the time of "
        "flash_attention.",
        caption="A causal forward of 16,384 tokens and 2,048 columns in all heads, bfloat16, "
        "queued.",
        plot=charts.bars(
            results,
            [
                *(
                    Series(name, said, like=OURS, shade=i)
                    for i, (name, said) in enumerate(FORMS.items())
                ),
                *(Series(name) for name in (FLASH, HOPPER, "torch:flash", "torch:cudnn")),
            ],
            views=[_panel(f"D {D}, {count(N)} keys", D=D, N=N) for D, N in beside.cases],
            columns=2,
        ),
        numbers={
            "merging": between(one_chunk, ratio),
            "sums": between(sums, ratio),
            "split": between(split, ratio),
            "hopper": between(hopper, ratio),
            "cudnn": between(cudnn, ratio),
        },
    )


def decoding(rows):
    beside = Comparison(rows, OURS, [DECODE, f"{OURS}:one pass"], ("batch", "N"))
    return Figure(
        finding="One new token, split, in one pass and by decode_attention.",
        numbers={"slower": between([1 / x for x in beside[DECODE].values()], ratio)},
    )


def ladder(rows):
    together = [r for r in rows if r["together"] == r["batch"]]
    top = pick(rows, rung="+ log-softmax")
    first = next(
        (r["rung"] for r in together if not any(x["differ"] for x in pick(rows, rung=r["rung"]))),
        "none",
    )
    usual = only(together, rung="as usual")
    return Figure(
        finding=f"On the rung “{first}” the difference is 0, for each of "
        f"{thousands(usual['numbers'])} tokens.",
        caption="Log-probabilities of four sequences of 1,000 sampled tokens, by decoding and by a "
        "training forward, of a model of 17 million parameters in bfloat16; scored together and "
        "alone.",
        open_table=True,
        table=[
            {
                "rung": r["rung"],
                "tokens that differ": Numeral(percent(SHARE(r)) if r["differ"] else "0"),
                "largest difference": Numeral(error(r["largest"])),
                "alone": Numeral(error(only(rows, rung=r["rung"], together=1)["largest"])),
            }
            for r in together
        ],
        numbers={
            "tokens": thousands(usual["numbers"]),
            "usual": significant(usual["largest"], 2),
            "usual_share": percent(SHARE(usual)),
        },
        claims={f"{PAGE}: exactly 0": not any(r["differ"] for r in top)},
    )


def price(rows):

    def times(name, part):
        usual = only(rows, part=part, implementation="as usual")
        return ratio(TIME(only(rows, part=part, implementation=name)) / TIME(usual))

    return Figure(
        finding="What each rung costs.",
        numbers={
            f"{part.split()[0]}_{name}": times(rung, part)
            for part in ("sampling", "training forward")
            for name, rung in (("attention", "attention"), ("all", "+ log-softmax"))
        },
    )


NAMED = {"flash": "torch:flash", "fa4": "flash_attention_4"}  # those whose counts the page says


def repeats(rows):
    ran = [r for r in rows if "runs" in r]
    own = [r for r in ran if r["implementation"] in ("flash_backward", OURS)]

    def others(row):
        return max(row["other_dq"], row["other_dk"], row["other_dv"])

    return Figure(
        finding="A backward, repeated.",
        numbers={"runs": thousands(ran[0]["runs"])}
        | {
            f"{short}_deterministic" if row["deterministic"] else short: thousands(others(row))
            for short, name in NAMED.items()
            for row in pick(ran, implementation=name)
        },
        claims={
            f"{PAGE}: no run differed from the first": not any(map(others, own)),
            f"{PAGE}: nor did a sequence alone": not any(r.get("other_alone") for r in own),
            f"{PAGE}: in deterministic mode": not any(others(r) for r in ran if r["deterministic"]),
        },
    )
