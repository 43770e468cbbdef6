"""The figures of the ring_attention page: each draws the result of the same name."""

from snippets._lab.draw import charts
from snippets._lab.draw.charts import Reference, Series, View
from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.rows import TIME, Quantity, derived, moved, only, pick, rate, values
from snippets._lab.draw.tables import columns, table
from snippets._lab.draw.units import bandwidth, change, count, percent, ratio, seconds, size, times

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
OF_STEPS = Quantity("time, relative to the steps alone", "of_steps", times)
MASKS = {"full": False, "causal": True}
PAGE = "docs/posts/ring_attention.md"


def _masks(N, **further):
    titles = {False: "no mask", True: "causal"}
    return [View(title, {"causal": c, "N": N, **further}) for c, title in titles.items()]


def _ms(rows, name, **case):
    return only(pick(rows), implementation=name, **case)["ms_p50"]


def _gain(rows, **case):
    """How many times as fast the ring is as the fastest on one GPU."""
    alone = (HOPPER, TRAINED, CUDNN, ALONE)
    there = [r["ms_p50"] for name in alone for r in pick(rows, implementation=name, **case)]
    return min(there) / _ms(rows, OURS, **case)


def _times(rows, one, other, **case):
    """How many times as long as another something takes."""
    return ratio(_ms(rows, one, **case) / _ms(rows, other, **case))


def _of_this_room(results, name):
    """The first result of this name, or None."""
    return next((r for r in results if (r.post, r.result) == (OURS, name)), None)


def _rates(rows):
    """FLOP/s of the steps alone and bytes/s of the messages alone, at the greatest N."""
    at = {r["part"]: r for r in pick(rows, N=max(values(rows, "N")), causal=False)}
    return {
        "rate": rate(at["compute only"]),
        "link": moved(at["transfers only"], "bytes_sent"),
    }


def ways(results):
    rows = [r for r in results[0].rows if "ms_p50" in r]
    N = max(values(rows, "N"))

    causal, full = (
        {r["way"]: r["ms_p50"] for r in pick(rows, N=N, causal=mask)} for mask in (True, False)
    )

    cells = {(r["N"], r["causal"]): [] for r in rows}
    for r in rows:
        if r["way"] != STEPS:
            cells[r["N"], r["causal"]].append(r)
    fastest = [min(ways, key=TIME)["way"] for ways in cells.values()]
    best = max(fastest, key=fastest.count)
    short = min(values(rows, "N"))
    longest = max(
        _way(rows, way, short, mask) / _way(rows, STEPS, short, mask)
        for way in (FEWER, TICKETS)
        for mask in (False, True)
    )
    told = {"copies": COPIES, "nccl": NCCL}
    channels = rows[0]["channels"]
    return Figure(
        finding=f"{best} are the fastest way, by the median, in {fastest.count(best)} of "
        f"{len(cells)} cells, on {rows[0]['ranks']} GPUs.",
        caption="The same steps and the same messages, sent in different ways: the time over "
        f"that of the steps alone. With *fewer programs*, NCCL has {channels} channels and the "
        f"step runs {channels} programs fewer than there are multiprocessors; with *a program a "
        "tile* the GPU starts a program wherever a multiprocessor is free, and NCCL has "
        f"{channels} channels too. A median of few calls: a percent or two is no difference, and "
        "the same ring differs by several between the runs of this page.",
        numbers={
            "n": N,
            "short": short,
            "most": ratio(longest),
            **{name: change(causal[way] / causal[STEPS]) for name, way in told.items()},
        },
        claims={
            f"{PAGE}: It depends on the length and the mask": len(set(fastest)) > 1,
            f"{PAGE}: But at N": longest > 1.1,
            f"{PAGE}: Without a mask a program for each tile is even faster than the steps": full[
                TICKETS
            ]
            < full[STEPS],
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


def _of_steps(result):
    """Each way's time over that of the steps alone, at the same length and mask."""
    rows = [r for r in result.rows if "ms_p50" in r]
    for row in rows:
        yield row | {"of_steps": TIME(row) / _way(rows, STEPS, row["N"], row["causal"])}


def _way(rows, way, N, causal):
    """The milliseconds of a way to send messages."""
    return only(rows, way=way, N=N, causal=causal)["ms_p50"]


def overlap(results):
    rows = [r for r in results[0].rows if "ms_p50" in r]
    N = max(values(rows, "N"))
    at = {r["part"]: r for r in pick(rows, N=N, causal=False)}
    both, steps = at["both"], at["compute only"]
    return Figure(
        finding=f"At N {count(N)} without a mask the messages alone take "
        f"{TIME.text(at['transfers only'])}, the steps alone {TIME.text(steps)}, and both "
        f"together {TIME.text(both)}.",
        claims={f"{PAGE}: The traffic does not show": TIME(both) < 1.03 * TIME(steps)},
    )


def balance(results):
    rows = results[0].rows
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
    ranks = max(values(rows, "ranks"))

    names = {label: name for label, name in NAMES.items() if pick(rows, implementation=name)}
    reached = {mask: percent(_gain(rows, causal=c) / ranks) for mask, c in MASKS.items()}
    return Figure(
        finding=f"Forward and backward together run at {reached['full']} of the ideal speed-up "
        f"without a mask, and {reached['causal']} with a causal one.",
        caption="Time of forward and backward, B 1, 16 heads, D 128, bfloat16. The ideal is the "
        "faster of the two on one GPU, divided by the number of GPUs.",
        plot=charts.bars(
            results,
            [Series(n, label) for label, n in names.items()],
            TIME,
            _masks(values(rows, "N")[0]),
        ),
    )


def scaling(results):
    rows = results[0].rows
    measured = [r for r in rows if "ms_p50" in r]
    lengths = values(measured, "N")
    N = max(lengths)
    near = {"N": max(n for n in lengths if n <= COMPARED or n == min(lengths)), "causal": True}
    gain = {
        (n, mask): ratio(_gain(rows, N=n, causal=causal))
        for n in (near["N"], N)
        for mask, causal in MASKS.items()
    }
    there = {r["implementation"] for r in measured}
    names = {label: name for label, name in NAMES.items() if name in there}
    return Figure(
        finding=f"At N {count(near['N'])}, {max(values(measured, 'ranks'))} GPUs are "
        f"{gain[near['N'], 'full']} as fast as one without a mask, and "
        f"{gain[near['N'], 'causal']} as fast with a causal one.",
        caption="Time of one forward call, B 1, 16 heads, D 128, bfloat16, all GPUs starting "
        "together and the slowest counted. The bars of one GPU are the same call with the whole "
        "sequence on each GPU at once. L2 is flushed before each call.",
        numbers={
            "n": near["N"],
            "longest": N,
            "full": gain[N, "full"],
            "gather": _times(rows, GATHER, OURS, **near),
            "ulysses": _times(rows, ULYSSES, OURS, **near),
            "theirs": _times(rows, THEIRS, OURS, **near),
        },
        plot=charts.bars(
            results, [Series(n, label) for label, n in names.items()], TIME, _masks(near["N"])
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
            "memory per GPU": lambda r: size(r["bytes"]),
        },
    )
    names = ("ranks", "N", "causal", "link", "rate")
    return Figure(
        finding="Whether a ring is efficient depends on how many rows each GPU has: with long "
        "enough shards, even a slow link is hidden.",
        caption="The line is a model: B 1, 16 heads, D 128, 16 bits, forward; each step takes as "
        "long as the longer of its products and its message. Dots are measured calls, filled "
        "where they have as many rows as the line. The sliders begin at the step rate and link "
        "that were measured.",
        sources=[model, timed] if timed else [model],
        table=shown,
        widget="\n".join(
            [
                '<div class="am-ring" data-widget="ring_attention" markdown>',
                "[Cases](/figures/ring_attention/simulator_cases.json){ .am-source }",
                "",
                *table(shown),
                "",
                "</div>",
            ]
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
