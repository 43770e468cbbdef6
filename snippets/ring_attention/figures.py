"""The figures of the ring_attention page: each draws the result of the same name."""

from snippets._lab.draw import charts
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.drawings import PHONE, svg
from snippets._lab.draw.drawings import words as written
from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.identity import identity
from snippets._lab.draw.mutant_figure import Kill, picture
from snippets._lab.draw.rows import TIME, Quantity, field, moved, only, pick, rate, values
from snippets._lab.draw.tables import columns, listed, table
from snippets._lab.draw.timelines import Span, Timeline, time_arrow, timeline
from snippets._lab.draw.units import (
    bandwidth,
    between,
    change,
    count,
    decimals,
    flops,
    microseconds,
    percent,
    ratio,
    seconds,
    size,
)

from .model import Ring, predicted

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


def step_mutants(results):
    wrong = [r for r in results[0].rows if r["message"]]
    kills = [Kill(r["mutant"], r["diagnosis"], r["message"], r["old"], r["new"]) for r in wrong]
    return Figure(
        finding=f"{len(wrong)} mistakes in what surrounds the loop, and how far off each makes "
        "the result.",
        caption="Each line is the step for Hopper with one mistake, played on a CPU by a "
        "stand-in for Gluon, in rings of two, three and eight ranks. The unchanged step passes.",
        table=[],
        widget=picture(kills, "how far off"),
    )


def ways(results):
    rows = [r for r in results[0].rows if "ms_p50" in r]
    N = max(values(rows, "N"))

    causal, full = (
        {r["way"]: r["ms_p50"] for r in pick(rows, N=N, causal=mask)} for mask in (True, False)
    )

    def fastest(N, causal):
        ways = [r for r in pick(rows, N=N, causal=causal) if r["way"] != STEPS]
        mask = "causal" if causal else "no mask"
        return f"{min(ways, key=TIME)['way']} (N {count(N)}, {mask})"

    cells = dict.fromkeys((r["N"], r["causal"]) for r in rows)
    told = {"copies": COPIES, "nccl": NCCL, "fewer": FEWER, "tickets": TICKETS}
    channels = rows[0]["channels"]
    return Figure(
        finding=f"The fastest way by its median, on {rows[0]['ranks']} GPUs: "
        f"{listed(fastest(*cell) for cell in cells)}.",
        caption="The same steps and the same messages, sent in different ways, and the steps "
        f"alone. With *fewer programs*, NCCL has {channels} channels and the step runs {channels} "
        "programs fewer than there are multiprocessors; with *a program a tile* the GPU starts a "
        f"program wherever a multiprocessor is free, and NCCL has {channels} channels too. A "
        "median of few calls: a percent or two is no difference, and the same ring differs by "
        "several between the runs of this page.",
        numbers={
            "n": N,
            **{name: change(causal[way] / causal[STEPS]) for name, way in told.items()},
        },
        claims={
            f"{PAGE}: without a mask the ring with a program for each tile takes less": full[
                TICKETS
            ]
            < full[STEPS],
        },
        plot=charts.bars(
            results,
            [Series(OURS, w, where={"way": w}) for w in WAYS],
            TIME,
            {
                f"N {count(n)}, {'causal' if causal else 'no mask'}": {"N": n, "causal": causal}
                for n, causal in cells
            },
            columns=2,
        ),
    )


LOOKS = {"step": "scores", "message": "k"}


def timelines(results):
    rows = [r for r in results[0].rows if "what" in r]
    shown = values(rows, "way")
    end = max(r["end_us"] for r in rows)
    pitch, left = 70, 62
    drawn = []
    for i, way in enumerate(way for way in WAYS if way in shown):
        y = i * pitch
        drawn.append(written(0, y + 10, way, 11, 600, anchor="start"))
        over = Timeline(["step", "message"], end, 0, y + 16, left, PHONE, 18, 4)
        spans = [
            Span(r["what"], r["start_us"], r["end_us"], identity(LOOKS[r["what"]]).color)
            for r in pick(rows, way=way)
        ]
        drawn.append(timeline(over, spans))
    drawn.append(time_arrow(over, f"time, {microseconds(end)} in all"))
    case = rows[0]
    title = "When steps and messages run in each of the four ways."
    return Figure(
        finding=title,
        caption=f"One call of each way at N {count(case['N'])} with a causal mask on the first "
        "rank, as PyTorch's profiler records it, which makes every call a little slower. Two "
        "messages, k and v, travel during the first step.",
        sources=results,
        table=columns(
            rows,
            {
                "way": "way",
                "what": "what",
                "from": lambda r: microseconds(r["start_us"]),
                "to": lambda r: microseconds(r["end_us"]),
            },
        ),
        widget=svg(PHONE, over.y + over.down + 24, title, drawn),
    )


def overlap(results):
    rows = [r for r in results[0].rows if "ms_p50" in r]
    N = max(values(rows, "N"))
    at = {r["part"]: r for r in pick(rows, N=N, causal=False)}
    parts = ("transfers only", "compute only", "both")
    return Figure(
        finding=f"At N {count(N)} without a mask the messages alone take "
        f"{TIME.text(at['transfers only'])}, the steps alone {TIME.text(at['compute only'])}, and "
        f"both together {TIME.text(at['both'])}.",
        caption="The same ring three times: its steps on the keys that a rank holds, without a "
        "message; its messages, copied by DMA engines, without a step; and as it is. What both "
        "together take beyond the longer of the two is not hidden. Taken once, such a difference "
        "can also come out below zero.",
        numbers={"link": bandwidth(moved(at["transfers only"], "bytes_sent"))},
        plot=charts.bars(
            results, [Series(OURS, p, where={"part": p}) for p in parts], TIME, _masks(N)
        ),
    )


def graphs(results):
    rows = [r for r in results[0].rows if "ms_p50" in r]
    N = max(values(rows, "N"))
    ranks = max(values(rows, "ranks"))
    names = {label: name for label, name in NAMES.items() if pick(rows, implementation=name)}
    gains = {mask: ratio(_gain(rows, N=N, causal=causal)) for mask, causal in MASKS.items()}
    return Figure(
        finding=f"Captured in a CUDA graph, at N {count(N)}, {ranks} GPUs are {gains['full']} as "
        f"fast as one without a mask and {gains['causal']} as fast with a causal one.",
        caption="The whole forward of each rank is one graph, its messages included, and so is "
        "the call of one GPU that it is compared with. B 1, 16 heads, D 128, bfloat16, all GPUs "
        "starting together and the slowest counted.",
        plot=charts.bars(
            results, [Series(n, label) for label, n in names.items()], TIME, _masks(N)
        ),
    )


def balance(results):
    rows = results[0].rows
    ranks = max(values(rows, "ranks"))
    shown = pick(rows, ranks=ranks)
    shares = {r["rank"]: r["share"] for r in pick(shown, layout="contiguous")}
    return Figure(
        finding=f"In a causal ring of {ranks} ranks with contiguous shards the last rank has "
        f"{ratio(shares[ranks - 1] / shares[0])} the work of the first; in zigzag all have the "
        "same.",
        caption="Scores that each rank computes over the whole ring, as a share of what an even "
        "division would give it. Counted from the steps that the launcher plans; no GPU has run "
        "here.",
        plot=charts.bars(
            results,
            [Series(OURS, f"rank {r}", where={"rank": r, "ranks": ranks}) for r in range(ranks)],
            Quantity("work, of an even share", "share", percent),
            [View(layout, {"layout": layout}) for layout in ("contiguous", "zigzag")],
        ),
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
            "causal": gain[N, "causal"],
            "gather": _times(rows, GATHER, OURS, **near),
            "ulysses": _times(rows, ULYSSES, OURS, **near),
            "theirs": _times(rows, THEIRS, OURS, **near),
            "triton": _times(rows, TRITON, OURS, **near),
            "step": _times(rows, ALONE, HOPPER, **near),
        },
        plot=charts.bars(
            results, [Series(n, label) for label, n in names.items()], TIME, _masks(near["N"])
        ),
    )


def memory(results):
    rows = [r for r in results[0].rows if "bytes_peak" in r]
    N = max(values(rows, "N"))
    at = {r["implementation"]: r for r in pick(rows, N=N, train=True)}
    peak = field("bytes_peak", "memory at most", size)
    names = {"a rank of the ring": OURS, "one GPU": ALONE}
    return Figure(
        finding=f"At N {count(N)} one of {at[OURS]['ranks']} GPUs needs "
        f"{percent(at[OURS]['bytes_peak'] / at[ALONE]['bytes_peak'])} of the memory that a single "
        "GPU would, for a forward and a backward.",
        caption="The most that one GPU holds at any moment of a call: its part of q, k, v and "
        "the output, buffers, and for training the gradients. In a ring a GPU also keeps room "
        "for keys and values on their way, from call to call, and for their float32 gradients in "
        f"the backward, so with {at[OURS]['ranks']} GPUs one holds more than its "
        f"1/{at[OURS]['ranks']} of everything.",
        plot=charts.bars(
            results,
            [Series(n, label) for label, n in names.items()],
            peak,
            [View("forward", {"N": N, "train": False}), View("training", {"N": N, "train": True})],
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
        f"that were measured. The table has a causal mask and assumes {flops(rows[0]['rate'])} "
        "per GPU.",
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


@from_all
def against_model(results):
    """The simulator's model, with the rate and the link that were measured, beside the clock."""
    timed = _of_this_room(results, "overlap")
    if timed is None:
        return None
    rows = pick(timed.rows)
    N, ranks = max(values(rows, "N")), max(values(rows, "ranks"))
    rates = _rates(rows)
    found = []
    for r in pick(rows, part="both"):
        ring = Ring(ranks=ranks, N=r["N"], causal=r["causal"], **rates)
        found.append({**r, "predicted": predicted(ring)["total"]})
    return Figure(
        finding="The model predicts "
        f"{between([r['predicted'] * rate(r) / r['flops'] for r in found], decimals)} times the "
        "measured time.",
        caption="Forward on the GPUs we have, B 1, 16 heads, D 128, bfloat16. The model gets two "
        f"numbers, both measured at N {count(N)} without a mask: {flops(rates['rate'])} for a "
        f"step without messages, and {bandwidth(rates['link'])} for messages without a step.",
        table=columns(
            found,
            {
                "N": "N",
                "causal": "causal",
                "predicted": field("predicted", "time", seconds),
                "measured": TIME,
            },
        ),
        open_table=True,
        sources=[timed],
    )
