"""The figures of the ring_attention page: each draws the result of the same name."""

import itertools

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Reference, Series, View
from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.rows import TIME, Quantity, derived, gains, moved, only, pick, rate, values
from snippets._lab.draw.tables import columns, listed, widget
from snippets._lab.draw.units import bandwidth, between, change, count, percent, ratio, seconds

from .model import Ring, hidden_from

OURS, ALONE = "ring_attention", "ring_attention, one GPU"
TRITON = "ring_attention, Triton step"
GATHER, ULYSSES = "ring_attention, all-gather", "ring_attention, Ulysses"
THEIRS, CUDNN, HOPPER = "torch:context_parallel", "torch:cudnn", "hopper_attention"
TRAINED = "hopper_backward"
NAMES = {
    "ring": OURS,
    "ring with its Triton step": TRITON,
    "all-gather": GATHER,
    "Ulysses": ULYSSES,
    "PyTorch's": THEIRS,
    "hopper_attention on one GPU": HOPPER,
    "hopper_backward on one GPU": TRAINED,
    "cuDNN on one GPU": CUDNN,
    "the Triton step on one GPU": ALONE,
}
STEPS, COPIES, NCCL = "steps alone", "DMA engines", "NCCL"
FEWER, TICKETS = "NCCL, fewer programs", "NCCL, a program a tile"
WAYS = (STEPS, COPIES, NCCL, FEWER, TICKETS)
COMPARED = 65_536  # rows up to which all rivals are timed
OF_STEPS = Quantity("time, relative to the steps alone", "of_steps", units.times)
MASKS = {"full": False, "causal": True}
PAGE = "docs/posts/ring_attention.md"


def _ms(rows, name, **case):
    return only(pick(rows), implementation=name, **case)["ms_p50"]


def _alone(rows, **case):
    """The milliseconds of the fastest on one GPU."""
    alone = (HOPPER, TRAINED, CUDNN, ALONE)
    return min(TIME(r) for name in alone for r in pick(rows, implementation=name, **case))


def _gain(rows, **case):
    """How many times as fast the ring is as the fastest on one GPU."""
    return _alone(rows, **case) / _ms(rows, OURS, **case)


def _of_this_room(results, name):
    """The first result of this name, or None."""
    return next((r for r in results if (r.post, r.result) == (OURS, name)), None)


def _rates(rows):
    """FLOP/s of the steps alone and bytes/s of the messages alone, at the greatest N."""
    at = {r["part"]: r for r in pick(rows, N=max(values(rows, "N")), causal=False)}
    return {"rate": rate(at["compute only"]), "link": moved(at["transfers only"], "bytes_sent")}


def overlap(rows):
    rows = [r for r in rows if "ms_p50" in r]
    short, N = min(values(rows, "N")), max(values(rows, "N"))
    at = {r["part"]: r for r in pick(rows, N=short, causal=True)}
    both, steps, sent = (at[part] for part in ("both", "compute only", "transfers only"))
    part = {
        (n, mask): TIME(only(rows, part="transfers only", N=n, causal=mask))
        / TIME(only(rows, part="compute only", N=n, causal=mask))
        for n in (short, N)
        for mask in (True, False)
    }
    hidden = {mask: hidden_from(Ring(2, N, mask, **_rates(rows))) for mask in (True, False)}
    shown = {mask: count(round(found, -2)) for mask, found in hidden.items()}
    return Figure(
        finding=f"At N {count(short)} with a causal mask the messages alone take "
        f"{TIME.text(sent)}, the steps alone {TIME.text(steps)}, and both together "
        f"{TIME.text(both)}.",
        numbers={
            "messages": TIME.text(sent),
            "steps": TIME.text(steps),
            "both": TIME.text(both),
            "added": change(TIME(both) / TIME(steps)),
            "nvlink": bandwidth(_rates(rows)["link"]),
            "part_short": percent(part[short, True]),
            "part_long": percent(part[N, False]),
            "rows": shown[False],
            "rows_causal": shown[True],
        },
        claims={
            f"{PAGE}: most of the traffic hides behind the computing": TIME(both)
            < TIME(steps) + 0.5 * TIME(sent),
            f"{PAGE}: They take less than half the time of the steps": max(part.values()) < 0.5,
            f"{PAGE}: it hides all messages": short / 2 > hidden[True],
        },
    )


def ways(results):
    rows = [r for r in results[0].rows if "ms_p50" in r]
    short, N = min(values(rows, "N")), max(values(rows, "N"))
    taken = {(r["way"], r["N"], r["causal"]): TIME(r) for r in rows}
    cells = dict.fromkeys((r["N"], r["causal"]) for r in rows)
    added = {
        (way, *cell): taken[way, *cell] / taken[STEPS, *cell] for way in WAYS for cell in cells
    }
    near = [way for way in WAYS[1:] if max(added[way, *cell] for cell in cells) < 1.05]
    by_length = sorted(cells, key=lambda cell: taken[STEPS, *cell] / cell[0])  # as of a message
    channels = rows[0]["channels"]
    return Figure(
        finding=f"At both lengths, with a mask and without, {_listed(near)} add less than 5 %.",
        caption="The same tiles and messages: the time over that of the steps alone with one "
        "program per multiprocessor, so another way to start the programs can fall below 1. "
        f"{rows[0]['ranks']} GPUs, medians of {len(rows[0]['runs'])} runs. *Fewer programs*: NCCL "
        f"has {channels} channels, and the step as many programs fewer than multiprocessors. *A "
        "program per tile*: the GPU starts one wherever a multiprocessor is free, and NCCL has as "
        "many channels.",
        numbers={
            "n": N,
            "short": short,
            "fewer": ratio(added[FEWER, short, True]),
            "tickets": ratio(added[TICKETS, short, True]),
            "copies": change(added[COPIES, short, True]),
            "nccl": change(added[NCCL, short, True]),
            "copies_long": change(max(added[COPIES, N, mask] for mask in (True, False))),
        },
        claims={
            f"{PAGE}: DMA engines are the fastest way, with a mask and without": all(
                _verdict(rows, COPIES, way, short, mask) == "ahead"
                for way in (NCCL, FEWER, TICKETS)
                for mask in (True, False)
            ),
            f"{PAGE}: catches up: the two cannot be told apart": all(
                _verdict(rows, TICKETS, COPIES, N, mask) in ("level", "undecided")
                for mask in (True, False)
            ),
            f"{PAGE}: the less each way with NCCL adds": all(
                added[way, *one] > added[way, *longer]
                for way in (NCCL, FEWER, TICKETS)
                for one, longer in itertools.pairwise(by_length)
            ),
        },
        plot=charts.bars(
            derived(results, _of_steps),
            [Series(OURS, w, where={"way": w}) for w in WAYS[1:]],
            OF_STEPS,
            {
                f"N {count(n)}, {'causal' if causal else 'no mask'}": {"N": n, "causal": causal}
                for n, causal in cells
            },
            columns=2,
            references=[Reference("steps alone", 1.0, across="x")],
        ),
    )


def _listed(ways):
    """Ways in a sentence."""
    return " and ".join(f"“{way}”" for way in ways) or "none"


def _verdict(rows, one, other, N, causal):
    """Whether a way to send is ahead of another."""
    case = {"N": N, "causal": causal}
    return gains({0: (only(rows, way=one, **case), only(rows, way=other, **case))})[0].word


def _of_steps(result):
    """Each way's time over that of the steps alone, at the same length and mask."""
    rows = [r for r in result.rows if "ms_p50" in r]
    for row in rows:
        steps = only(rows, way=STEPS, N=row["N"], causal=row["causal"])
        yield row | {"of_steps": TIME(row) / TIME(steps)}


def balance(rows):
    ranks = max(values(rows, "ranks"))
    shares = {r["rank"]: r["share"] for r in pick(rows, ranks=ranks, layout="contiguous")}
    more = shares[ranks - 1] / shares[0]
    return Figure(
        finding=f"In a causal ring of {ranks} ranks with contiguous shards the last rank has "
        f"{ratio(more)} the work of the first; in zigzag all have the same.",
        claims={f"{PAGE}: Seven times. The first rank has": round(more, 1) == 7 and ranks == 4},
    )


def training(results):
    rows = [r for r in results[0].rows if "ms_p50" in r]
    ranks, N = max(values(rows, "ranks")), values(rows, "N")[0]
    names = {label: name for label, name in NAMES.items() if pick(rows, implementation=name)}
    reached = {mask: percent(_gain(rows, causal=c) / ranks) for mask, c in MASKS.items()}
    return Figure(
        finding=f"Forward and backward together run at {reached['full']} of the ideal speed-up "
        f"without a mask, and {reached['causal']} with a causal one.",
        numbers=reached,
        caption=f"Forward and backward at N {listed(map(count, values(rows, 'N')))}, B 1, "
        "16 heads, D 128, bfloat16. The ideal is the faster of hopper_backward and cuDNN on one "
        "GPU, divided by the number of GPUs.",
        plot=charts.bars(
            results,
            [Series(n, label) for label, n in names.items()],
            views={"no mask": {"causal": False, "N": N}, "causal": {"causal": True, "N": N}},
        ),
    )


def scaling(results, rows):
    measured = [r for r in rows if "ms_p50" in r]
    lengths = values(measured, "N")
    short, N = min(lengths), max(lengths)
    near = max(n for n in lengths if n <= COMPARED or n == short)
    gain = {
        (n, mask): _gain(rows, N=n, causal=causal)
        for n in (short, near, N)
        for mask, causal in MASKS.items()
    }
    rivals = {
        (n, name): _ms(rows, name, N=n, causal=True) / _ms(rows, OURS, N=n, causal=True)
        for n in (short, near)
        for name in (GATHER, THEIRS, ULYSSES)
    }
    rates = {
        (name, n): rate(only(pick(rows), implementation=name, N=n, causal=False))
        for name in (OURS, HOPPER)
        for n in (short, N)
    }
    ranks = max(values(measured, "ranks"))
    there = {r["implementation"] for r in measured}
    names = {label: name for label, name in NAMES.items() if name in there}
    refused = {r["implementation"]: r["error"] for r in rows if r.get("error")}
    missing = ""
    if THEIRS in refused:
        said = refused[THEIRS].partition(": ")[2].replace("`", "").rstrip(".")
        missing = f' Without a mask PyTorch\'s context parallelism raises "{said}".'
    return Figure(
        finding=f"With a causal mask, {ranks} GPUs are {ratio(gain[short, 'causal'])} as fast as "
        f"the fastest call on one at N {count(short)}, and {ratio(gain[near, 'causal'])} at N "
        f"{count(near)}.",
        caption="Time of one forward call with a causal mask, B 1, 16 heads, D 128, bfloat16, all "
        "GPUs starting together and the slowest counted; each panel has its own scale. On one GPU: "
        "the whole sequence on each GPU at once. L2 is flushed before each call."
        f"{missing}",
        numbers={
            "short": short,
            "n": near,
            "longest": N,
            "causal": ratio(gain[short, "causal"]),
            "full": ratio(gain[short, "full"]),
            "full_near": ratio(gain[near, "full"]),
            "full_longest": ratio(gain[N, "full"]),
            "half": TIME.unit(_alone(rows, N=short, causal=True) / ranks),
            "gather": ratio(rivals[short, GATHER]),
            "ulysses": ratio(rivals[short, ULYSSES]),
            "theirs": ratio(rivals[short, THEIRS]),
            "rivals": between([rivals[near, name] for name in (GATHER, THEIRS, ULYSSES)], ratio),
        },
        claims={
            f"{PAGE}: More than twice as fast": gain[N, "full"] > 2,
            f"{PAGE}: In such long calls both lose speed, and the single GPU more": 1
            > rates[OURS, N] / rates[OURS, short]
            > rates[HOPPER, N] / rates[HOPPER, short],
        },
        plot=charts.bars(
            results,
            [Series(n, label) for label, n in names.items()],
            views=[
                View(f"N {count(n)}", {"causal": True, "N": n}, TIME.called(f"time, N {count(n)}"))
                for n in (short, near)
            ],
        ),
    )


@from_all
def simulator(results):
    model, timed = (_of_this_room(results, name) for name in ("simulator", "overlap"))
    if model is None:
        return None
    rows = model.rows
    measured = pick(timed.rows) if timed else []
    shown = columns(
        [r for r in rows if r["causal"]],
        {
            "GPUs": "ranks",
            "N": lambda r: count(r["N"]),
            "link": lambda r: bandwidth(r["link"]),
            "step": lambda r: seconds(r["step"]),
            "message": lambda r: seconds(r["message"]),
            "of the ideal": lambda r: percent(r["share"]),
            "memory per GPU": lambda r: units.size(r["bytes"]),
        },
    )
    names = ("ranks", "N", "causal", "link", "rate")
    slow = bandwidth(min(values(rows, "link")))  # the widget shows a table of these at first
    return Figure(
        finding="In the model, whether a ring is efficient depends on how many rows each GPU has: "
        "with long enough shards, even a slow link is hidden.",
        caption="The line is a model: B 1, 16 heads, D 128, 16 bits, forward; each step takes as "
        "long as the longer of its products and its message. The table has a causal mask and "
        f"{units.flops(max(values(rows, 'rate')))}. Dots are measured calls, filled where they "
        "have as many rows as the line.",
        sources=[model, timed] if timed else [model],
        table=shown,
        widget=widget(
            "ring",
            "ring_attention",
            "[Cases](/figures/ring_attention/simulator_cases.json)",
            [row for row in shown if row["link"] == slow and row["GPUs"] > 4],
        ),
        extra_files={
            "simulator_cases.json": {
                "cases": [
                    {"ring": {n: r[n] for n in names}, "share": r["share"], "bytes": r["bytes"]}
                    for r in rows
                ],
                "start": _rates(measured) if timed else None,
                "measured": [
                    {**{n: r[n] for n in ("ranks", "N", "causal")}, "rate": rate(r)}
                    for r in pick(measured, part="both")
                ],
            }
        },
    )
