"""The figures of the hopper_backward page: each draws the result of the same name."""

from snippets._lab.draw import charts
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import named
from snippets._lab.draw.rows import RATE, compiled, rate, values
from snippets._lab.draw.tables import beside
from snippets._lab.draw.units import flops

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
PAGE = "docs/posts/hopper_backward.md"


def rungs(results):
    rows = [r for r in results[0].rows if "error" not in r]
    names = {}
    for row in rows:
        names.setdefault(row["implementation"].partition(", ")[2], row["implementation"])
    return Figure(
        finding=f"At D 128 and N {values(rows, 'N')[0]}, without a mask, the kernel does "
        f"{_reached(rows, KERNEL)}. With a writer that adds nothing it does "
        f"{_reached(rows, NOT_ADDED)}.",
        caption="Longer is faster. bfloat16, N 4096, 16,384 tokens, in a run of its own. Five "
        "products are counted as work, even where one is left out. The variants that do not add "
        "dQ, or do not compute it, give a wrong dQ and show what these steps cost. K and V can "
        "stay in registers at D 64 only.",
        table=beside(rows, ["D", "causal"], names, RATE),
        plot=charts.bars(
            results,
            [Series(OURS, rung, {"implementation": name}) for rung, name in names.items()],
            RATE,
            charts.by_mask(rows),
            columns=2,
        ),
        numbers={
            "ours": _reached(rows, KERNEL),
            "waited": _reached(rows, WAITED),
            "no_dq": _reached(rows, NO_DQ),
            "narrow": _reached(rows, KERNEL, D=64),
            "here": _reached(rows, HERE, D=64),
        },
    )


def _reached(rows, rung, D=128):
    """What a rung reaches without a mask."""
    (row,) = (
        r
        for r in rows
        if r["implementation"] == f"{OURS}, {rung}" and r["D"] == D and not r["causal"]
    )
    return flops(rate(row))


def registers(results):
    result, *_ = compiled(results)
    rows = result.rows
    worst = max(r["spill_store_bytes"] for r in rows if r["rung"] == KERNEL)
    return Figure(
        finding=f"The kernel spills at most {worst} bytes per thread.",
        caption="What the compiler gives each variant on an H100 or H200. A computing thread may "
        "use 240 registers. What does not fit is written to local memory and read back; this "
        "count does not say whether inside a loop. Compiled ahead of time with Triton "
        f"{result.versions['triton']}: no GPU has run here.",
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


def order(results):
    rows = results[0].rows
    in_order, at_once = (f"{OURS}, {name}" for name in (IN_ORDER, AT_ONCE))
    compared = Comparison(rows, OURS, [in_order, at_once, CUDNN], by=("heads_kv", "N"))
    few, many = values(rows, "heads_kv")
    names = {"hopper_backward": OURS, IN_ORDER: in_order, AT_ONCE: at_once, "cuDNN": CUDNN}
    return Figure(
        finding=f"With {few} heads of keys, the kernel does "
        f"{compared[in_order].where(heads_kv=few).between()} of the rate that it does with "
        f"programs in order of heads, and {compared[CUDNN].where(heads_kv=few).between()} of "
        "cuDNN's.",
        caption=f"Up is faster. bfloat16, a causal mask, D {values(rows, 'D')[0]}, 16,384 tokens "
        "at every length. Our three kernels are the same but for the order in which their "
        "programs start.",
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
        numbers={
            "heads": many,
            "in_order": compared[in_order].where(heads_kv=many).between(),
            "at_once": compared[at_once].where(heads_kv=many).between(),
        },
    )


def _heads(rows, heads_kv):
    """Heads of queries where there are so many of keys."""
    return values([r for r in rows if r["heads_kv"] == heads_kv], "heads")[0]


def backward(results):
    rows = results[0].rows
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
        table=beside(rows, ["D", "causal", "N"], {named(name): name for name in shown}, RATE),
        plot=charts.lines(results, shown, "N", RATE, charts.by_mask(rows), columns=2, log="x"),
    )


def orders(results):
    rows = results[0].rows
    whole, *wrong = rows
    found = [r for r in wrong if r["fault"]]
    rare = min(found, key=lambda r: r["shown"])
    return Figure(
        finding=f"{len(found)} kernels whose parts agree on something wrong, and each is refused "
        "without playing an order.",
        caption="Each line is this page's kernel with one mistake, and the first thing that may "
        f"happen in some order. The last column counts how many of {whole['played']} random "
        f"orders show it. {whole['M']} queries of two heads, {whole['N']} keys, D 64 and 128. All "
        "orders are compared with a causal mask and without one; random orders run without one.",
        table=[
            {
                "mistake": r["mutant"],
                "what is said": r["fault"],
                f"shown by random orders, of {r['played']}": r["shown"],
            }
            for r in found
        ],
        open_table=True,
        numbers={
            "events": whole["events"],
            "pairs": whole["pairs"],
            "others": len(wrong) - len(found),
            "shown": rare["shown"],
            "played": rare["played"],
        },
        claims={f"{PAGE}: “{rare['mutant']}” showed in": rare["shown"] < rare["played"]},
    )
