"""The figures of the ring_attention page: each draws the result of the same name."""

from snippets._lab.draw import charts
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.drawings import PHONE, svg
from snippets._lab.draw.drawings import words as written
from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.identity import identity
from snippets._lab.draw.mutant_figure import Kill, picture
from snippets._lab.draw.rows import TIME, Quantity, field, moved, pick, rate, values
from snippets._lab.draw.tables import beside, columns, table
from snippets._lab.draw.timelines import Span, Timeline, time_arrow, timeline
from snippets._lab.draw.units import (
    bandwidth,
    change,
    count,
    decimals,
    flops,
    microseconds,
    percent,
    ratio,
    seconds,
    size,
    time,
)
from snippets._lab.draw.words import Words, between, listed

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
words = Words(__file__)


def _masks(N, **further):
    titles = {False: "no mask", True: "causal"}
    return [View(title, {"causal": c, "N": N, **further}) for c, title in titles.items()]


def _milliseconds(rows, name, **case):
    found = pick(rows, implementation=name, **case)
    return found[0]["ms_p50"] if found else None


def _gain(rows, **case):
    """How many times as fast the ring is as the fastest on one GPU; None if either is missing."""
    ours = _milliseconds(rows, OURS, **case)
    alone = [_milliseconds(rows, name, **case) for name in (HOPPER, TRAINED, CUDNN, ALONE)]
    alone = [ms for ms in alone if ms is not None]
    return min(alone) / ours if ours and alone else None


def _times(rows, name, **case):
    """How many times as long as the ring something takes, in words."""
    other, ours = (_milliseconds(rows, n, **case) for n in (name, OURS))
    return ratio(other / ours) if other and ours else "n/a"


def _quotient(rows, one, other, **case):
    """The times of one over those of the other, with a causal mask; None if either is missing."""
    times = [_milliseconds(rows, name, causal=True, **case) for name in (one, other)]
    return times[0] / times[1] if all(times) else None


def _said(number, text):
    return "n/a" if number is None else text(number)


def balance(results):
    rows = results[0].rows
    ranks = max(values(rows, "ranks"))
    shown = pick(rows, ranks=ranks)
    shares = {r["rank"]: r["share"] for r in pick(shown, layout="contiguous")}
    return Figure(
        finding=words("balance", ranks=ranks, most=ratio(shares[ranks - 1] / shares[0])),
        caption=words("balance.caption"),
        table=columns(
            rows,
            {
                "ranks": "ranks",
                "layout": "layout",
                "rank": "rank",
                "work": lambda r: percent(r["share"]),
                "steps with work": "steps",
            },
        ),
        plot=charts.bars(
            results,
            [Series(OURS, f"rank {r}", where={"rank": r, "ranks": ranks}) for r in range(ranks)],
            Quantity("work, of an even share", "share", percent),
            [View(layout, {"layout": layout}) for layout in ("contiguous", "zigzag")],
        ),
    )


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
        finding=words("simulator"),
        caption=words("simulator.caption", rate=flops(rows[0]["rate"])),
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


def scaling(results):
    rows = results[0].rows
    measured = [r for r in rows if "ms_p50" in r]
    lengths = values(measured, "N")
    N = max(n for n in lengths if _gain(rows, N=n, causal=False) or _gain(rows, N=n, causal=True))
    near = {"N": max(n for n in lengths if n <= COMPARED or n == min(lengths)), "causal": True}
    theirs = _milliseconds(rows, THEIRS, **near)
    why = [r["error"] for r in rows if r.get("error") and r["implementation"] == THEIRS]
    said = words("scaling.theirs.missing", why=(why or ["it was not timed"])[0])
    if theirs is not None:
        said = words("scaling.theirs", theirs=_times(rows, THEIRS, **near), N=near["N"])
    ranks = max(values(measured, "ranks"))

    def gains(N):
        return {mask: _said(_gain(rows, N=N, causal=c), ratio) for mask, c in MASKS.items()}

    there = {r["implementation"] for r in measured}
    names = {label: name for label, name in NAMES.items() if name in there}
    return Figure(
        finding=words("scaling", N=near["N"], ranks=ranks, **gains(near["N"])),
        caption=words("scaling.caption"),
        table=beside(rows, ["N", "causal"], names, TIME),
        plot=charts.bars(
            results, [Series(n, label) for label, n in names.items()], TIME, _masks(near["N"])
        ),
        sentences={
            "longest": words("scaling.longest", N=N, **gains(N)),
            "others": words(
                "scaling.others",
                N=near["N"],
                gather=_times(rows, GATHER, **near),
                ulysses=_times(rows, ULYSSES, **near),
            ),
            "theirs": said,
            "own": words(
                "scaling.own",
                N=near["N"],
                triton=_said(_quotient(rows, TRITON, OURS, N=near["N"]), ratio),
                step=_said(_quotient(rows, ALONE, HOPPER, N=near["N"]), ratio),
            ),
        },
    )


def overlap(results):
    rows = [r for r in results[0].rows if "ms_p50" in r]
    N = max(values(rows, "N"))
    at = {r["part"]: r for r in pick(rows, N=N, causal=False)}
    parts = ("transfers only", "compute only", "both")
    return Figure(
        finding=words(
            "overlap",
            N=N,
            transfers=time(at["transfers only"]["ms_p50"]),
            steps=time(at["compute only"]["ms_p50"]),
            both=time(at["both"]["ms_p50"]),
        ),
        caption=words("overlap.caption"),
        table=beside(rows, ["N", "causal"], {p: p for p in parts}, TIME, name="part"),
        plot=charts.bars(
            results, [Series(OURS, p, where={"part": p}) for p in parts], TIME, _masks(N)
        ),
        sentences={
            "link": words("overlap.link", link=bandwidth(moved(at["transfers only"], "bytes_sent")))
        },
    )


def ways(results):
    rows = [r for r in results[0].rows if "ms_p50" in r]
    N = max(values(rows, "N"))

    def beyond(way, causal):
        """What a way takes beyond the steps alone, in words."""
        at = {r["way"]: r["ms_p50"] for r in pick(rows, N=N, causal=causal)}
        if way not in at or STEPS not in at:
            return "n/a"
        return change(at[way] / at[STEPS])

    def fastest(N, causal):
        ways = [r for r in pick(rows, N=N, causal=causal) if r["way"] != STEPS]
        mask = "causal" if causal else "no mask"
        return f"{min(ways, key=TIME)['way']} (N {count(N)}, {mask})"

    cells = dict.fromkeys((r["N"], r["causal"]) for r in rows)
    told = {"copies": COPIES, "nccl": NCCL, "fewer": FEWER, "tickets": TICKETS}
    return Figure(
        finding=words(
            "ways",
            ranks=rows[0]["ranks"],
            fastest=listed(fastest(*cell) for cell in cells),
        ),
        caption=words("ways.caption", channels=rows[0]["channels"]),
        table=beside(rows, ["N", "causal"], {w: w for w in WAYS}, TIME, name="way"),
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
        sentences={
            "others": words("ways.others", N=N, **{n: beyond(w, True) for n, w in told.items()})
        },
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
    return Figure(
        finding=words("timelines"),
        caption=words("timelines.caption", N=case["N"]),
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
        widget=svg(PHONE, over.y + over.down + 24, words("timelines"), drawn),
    )


def graphs(results):
    rows = [r for r in results[0].rows if "ms_p50" in r]
    N = max(values(rows, "N"))
    ranks = max(values(rows, "ranks"))
    names = {label: name for label, name in NAMES.items() if pick(rows, implementation=name)}
    gains = {m: _said(_gain(rows, N=N, causal=c), ratio) for m, c in MASKS.items()}
    return Figure(
        finding=words("graphs", N=N, ranks=ranks, **gains),
        caption=words("graphs.caption"),
        table=beside(rows, ["N", "causal"], names, TIME),
        plot=charts.bars(
            results, [Series(n, label) for label, n in names.items()], TIME, _masks(N)
        ),
    )


def step_mutants(results):
    wrong = [r for r in results[0].rows if r["message"]]
    kills = [Kill(r["mutant"], r["diagnosis"], r["message"], r["old"], r["new"]) for r in wrong]
    return Figure(
        finding=words("step_mutants", wrong=len(wrong)),
        caption=words("step_mutants.caption"),
        table=[],
        widget=picture(kills, "how far off"),
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
        finding=words(
            "against_model",
            share=between([r["predicted"] * rate(r) / r["flops"] for r in found], decimals),
        ),
        caption=words(
            "against_model.caption", N=N, rate=flops(rates["rate"]), link=bandwidth(rates["link"])
        ),
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


def training(results):
    rows = [r for r in results[0].rows if "ms_p50" in r]
    ranks = max(values(rows, "ranks"))

    def reached(causal):
        gain = _gain(rows, causal=causal)
        return _said(gain, lambda gain: percent(gain / ranks))

    names = {label: name for label, name in NAMES.items() if pick(rows, implementation=name)}
    return Figure(
        finding=words("training", full=reached(False), causal=reached(True)),
        caption=words("training.caption"),
        table=beside(rows, ["N", "causal"], names, TIME),
        plot=charts.bars(
            results,
            [Series(n, label) for label, n in names.items()],
            TIME,
            _masks(values(rows, "N")[0]),
        ),
    )


def memory(results):
    rows = [r for r in results[0].rows if "bytes_peak" in r]
    N = max(values(rows, "N"))
    at = {r["implementation"]: r for r in pick(rows, N=N, train=True)}
    peak = field("bytes_peak", "memory at most", size)
    names = {"a rank of the ring": OURS, "one GPU": ALONE}
    return Figure(
        finding=words(
            "memory",
            N=N,
            ranks=at[OURS]["ranks"],
            share=percent(at[OURS]["bytes_peak"] / at[ALONE]["bytes_peak"]),
        ),
        caption=words("memory.caption", ranks=at[OURS]["ranks"]),
        table=beside(rows, ["N", "train"], names, peak),
        plot=charts.bars(
            results,
            [Series(n, label) for label, n in names.items()],
            peak,
            [View("forward", {"N": N, "train": False}), View("training", {"N": N, "train": True})],
        ),
    )
