"""The figures of the hopper_backward page: each draws the result of the same name."""

import itertools

from snippets._lab.draw import charts
from snippets._lab.draw.charts import Series
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import RATE, compiled, only, pick, rate, values
from snippets._lab.draw.units import between, change, flops, percent, rough

OURS, TRITON = "hopper_backward", "flash_backward"
CUDNN, FLASH, FA4 = "torch:cudnn", "torch:flash", "flash_attention_4"
IN_ORDER, AT_ONCE = "programs in order of heads", "all heads at once"
KERNEL, WAITED, HERE, NOT_ADDED, NO_DQ = (
    "the kernel",
    "dQ waited for",
    "K and V from shared memory",
    "dQ not added",
    "no dQ",
)
EXCHANGED, NO_DK, NO_EXP2, NO_WAIT = "dK and dQ exchanged", "no dK", "no exp2", "no wait for dS"
IN_ROWS = "dQ in rows"
LATE = "logsumexp read late"  # measured, and no part of the page's story
PAGE = "docs/posts/hopper_backward.md"
# Of a tile of 64 queries and 128 keys at D 128: its five products, and the cycles in which its
# 368 KiB go through shared memory.
TILE_FLOP, TILE_CYCLES = 10 * 64 * 128 * 128, 368 * 1024 / 128


def rungs(results):
    rows = [r for r in results[0].rows if "error" not in r]
    names = {}
    for row in rows:
        names.setdefault(row["implementation"].partition(", ")[2], row["implementation"])
    del names[LATE]
    ours, waited = (_reached(rows, rung) for rung in (KERNEL, WAITED))
    changed = {
        rung: {
            (D, causal): _reached(rows, rung, D, causal) / _reached(rows, KERNEL, D, causal)
            for D, causal in itertools.product(values(rows, "D"), (False, True))
        }
        for rung in (WAITED, EXCHANGED, NO_DK, NO_EXP2, NO_WAIT, NOT_ADDED, IN_ROWS)
    }
    without_dq = [
        _reached(rows, NO_DQ, causal=causal) / _reached(rows, KERNEL, causal=causal)
        for causal in (False, True)
    ]
    device = results[0].device
    tile_s = TILE_FLOP * device["multiprocessors"] / ours
    longer = [1e6 * mhz * tile_s / TILE_CYCLES for mhz in device["sm_clock_mhz"]]
    without_dk = [changed[NO_DK][128, causal] - 1 for causal in (False, True)]
    written = [1 / changed[WAITED][128, causal] for causal in (False, True)]
    return Figure(
        finding=f"At D 128 and N {values(rows, 'N')[0]}, without a mask, the kernel does "
        f"{flops(ours)}. If its consumers wait for the sum of dQ, it does {flops(waited)}.",
        caption="Longer is faster. bfloat16, N 4096, 16,384 tokens, in a run of its own. In gray, "
        "variants that leave something out: their gradients are wrong, and they show what these "
        "steps cost. Five products are counted as work all the same. Not every variant exists at "
        f"both widths. *{EXCHANGED}*: dK hides the other wait.",
        plot=charts.bars(
            results,
            [
                Series(OURS, rung, {"implementation": name}, like=OURS if right else "context")
                for rung, name in names.items()
                for right in [rung != NOT_ADDED and not rung.startswith("no ")]
            ],
            RATE,
            charts.by_mask(rows),
            columns=2,
        ),
        numbers={
            "ours": flops(ours),
            "writer": between(written, change),
            "exchanged": between((1 / gain - 1 for gain in changed[EXCHANGED].values()), percent),
            "not_added": between(changed[NOT_ADDED].values(), change),
            "in_rows": between(changed[IN_ROWS].values()),
            "longer": between(longer, lambda x: rough(x, 2)),
            "gained": percent(max(without_dk)),
            "no_dk": between(changed[NO_DK].values(), change),
            "no_exp2": between(changed[NO_EXP2].values(), change),
            "no_wait": between(changed[NO_WAIT].values(), change),
            "no_dq": between((gain - 1 for gain in without_dq), percent),
            "narrow": flops(_reached(rows, KERNEL, D=64)),
            "here": flops(_reached(rows, HERE, D=64)),
        },
        claims={
            f"{PAGE}: A fifth or more, ": min(written) > 1.2,
            f"{PAGE}: The addition itself is nearly free now": max(changed[NOT_ADDED].values())
            < 1.03,
            f"{PAGE}: The wrong choice costs": max(changed[EXCHANGED].values()) < 1,
            f"{PAGE}: So neither unit is full": min(longer) > 1.2 and max(without_dk) < 0.1,
            f"{PAGE}: more than the missing fifth of the work explains": min(without_dq) > 1.25,
        },
    )


def _reached(rows, rung, D=128, causal=False):
    """The rate that a rung reaches."""
    return rate(only(rows, implementation=f"{OURS}, {rung}", D=D, causal=causal))


def registers(results):
    result, *_ = compiled(results)
    worst = max(r["spill_store_bytes"] for r in pick(result.rows, rung=KERNEL))
    return Figure(
        finding=f"The kernel spills at most {worst} bytes per thread, compiled ahead of time with "
        f"Triton {result.versions['triton']}.",
        numbers={"spilled": worst},
    )


def order(rows):
    in_order, at_once = (f"{OURS}, {name}" for name in (IN_ORDER, AT_ONCE))
    compared = Comparison(rows, OURS, [in_order, at_once, CUDNN], by=("heads_kv", "N"))
    few, many = values(rows, "heads_kv")
    alike = compared[in_order].where(heads_kv=many), compared[at_once].where(heads_kv=many)
    return Figure(
        finding=f"With {few} heads of keys, the kernel does "
        f"{compared[in_order].where(heads_kv=few).between()} of the rate that it does with "
        f"programs in order of heads, and {compared[CUDNN].where(heads_kv=few).between()} of "
        "cuDNN's.",
        numbers={
            "few": compared[in_order].where(heads_kv=few).between(),
            "at_once": alike[1].between(),
        },
        claims={
            f"{PAGE}: With 32 heads the kernel takes about as long": all(
                0.95 < gain < 1.05 for gain in alike[0].values()
            ),
            f"{PAGE}: sorting over all of them takes": many == 32 and min(alike[1].values()) > 1,
        },
    )


def backward(results, rows):
    compared = Comparison(rows, OURS, [TRITON, CUDNN, FLASH, FA4], by=("D", "causal", "N"))
    shown = [OURS, *(name for name in compared.others if compared[name])]
    return Figure(
        finding=f"It does {compared[FA4].between()} of FlashAttention-4's rate, "
        f"{compared[CUDNN].between()} of cuDNN's, and {compared[TRITON].between()} of the Triton "
        "kernel's.",
        caption="Up is faster. bfloat16; 16,384 tokens and 2,048 columns at every length: batch "
        "times N, and heads times D, stay the same. Five products are counted as work, and with "
        "a mask only the visible scores. Medians; L2 flushed before every call; all take turns. "
        "FlashAttention-4 gets its own layout, [B, M, H, D].",
        plot=charts.lines(results, shown, "N", RATE, charts.by_mask(rows), columns=2, log="x"),
        numbers={"fa4": compared[FA4].between()},
        claims={
            f"{PAGE}: FlashAttention-4's backward is ahead in all cells but one, which is": sorted(
                compared[FA4].words
            )
            == [*["behind"] * (len(compared[FA4]) - 1), "undecided"],
            f"{PAGE}: cuDNN is behind in every cell, and so is our Triton kernel": min(
                *compared[CUDNN].values(), *compared[TRITON].values()
            )
            > 1,
        },
    )


def tiles(rows):
    kept = Comparison(rows, f"{FA4}:64 queries", [FA4])[FA4]
    return Figure(
        finding=f"With tiles of 64 queries, FlashAttention-4 keeps {kept.between()} of its rate.",
        numbers={"kept": kept.between()},
        claims={f"{PAGE}: so that is at most part of its lead": min(kept.values()) > 0.95},
    )


def orders(rows):
    whole, *wrong = rows
    found = [r for r in wrong if r["fault"]]
    rare = min(found, key=lambda r: r["shown"])
    return Figure(
        finding=f"{len(found)} kernels whose parts agree on something wrong, and each is refused "
        "without playing an order.",
        numbers={
            "events": whole["events"],
            "pairs": whole["pairs"],
            "shown": rare["shown"],
            "played": rare["played"],
        },
        claims={f"{PAGE}: “{rare['mutant']}” showed in": rare["shown"] < rare["played"]},
    )
