"""The figures of the language_model page: each draws the result of the same name."""

import itertools
import statistics
from pathlib import Path

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Reference, Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.rows import TIME, derived, field, only, pick, values
from snippets._lab.draw.tables import Numeral, Prose, widget
from snippets._lab.draw.units import between, decimals, host_time, many, percent, ratio, size

OURS, HOPPER, EAGER = "flash_backward", "hopper_backward", "torch:eager"
BACKENDS = ("torch:flash", "torch:cudnn", "torch:math")
LOSS = field("loss", "loss, nats per byte")
APART = field("loss", "nats per byte")
STEP = field("step", "step")
SMOOTHED = 10  # steps of a point of a curve
RIGHT = "none"
WIDEST = 88  # signs in a line of a sample
SYMBOLS = ("circle", "square", "diamond", "x")  # of the wrong curves
# Student's t for 95 % intervals, by degrees of freedom from 1. More seeds take the last, which
# makes their intervals a little too wide.
STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
PAGE = "docs/posts/language_model.md"


def _measured(result):
    """The rows of a result that were measured: those that describe it are not."""
    return [r for r in result.rows if "about" not in r and not r.get("error")]


def _about(result, what):
    return next(r for r in result.rows if r.get("about") == what)


def _points(losses, together=SMOOTHED, **case):
    """Means of so many steps as rows of a chart."""
    for at in range(0, len(losses), together):
        group = losses[at : at + together]
        yield {**case, "step": at + len(group) / 2, "loss": statistics.fmean(group)}


def _complete(rows):
    """The runs from seeds that all but the one in float32 were made from."""
    rows = [r for r in rows if r["implementation"] != EAGER]
    everyone = set(values(rows, "implementation"))
    there = {
        seed: set(values(pick(rows, seed=seed), "implementation")) for seed in values(rows, "seed")
    }
    return [r for r in rows if there[r["seed"]] == everyone]


def _singly(rows):
    """How far apart two of PyTorch's single runs from one seed end, at most."""
    theirs = [row for row in rows if row["implementation"] in BACKENDS]
    ends = [list(map(_end, pick(theirs, seed=seed))) for seed in values(theirs, "seed")]
    return max(max(one) - min(one) for one in ends)


def _paired(rows, compared):
    """(mean, half of its 95 % interval) of rows minus the mean of PyTorch's runs, seed by seed.

    Pairing takes out what a seed does to all runs, and the interval takes its width from how much
    the differences scatter from seed to seed.
    """
    there = [r for r in compared if r["implementation"] in BACKENDS]
    apart = [_end(row) - _mean(same) for row in rows if (same := pick(there, seed=row["seed"]))]
    t = STUDENT[min(len(apart) - 1, len(STUDENT)) - 1]
    return statistics.fmean(apart), t * statistics.stdev(apart) / len(apart) ** 0.5


def _interval(found):
    mean, half = found
    return f"{decimals(mean, 4)} ± {_four(half)}"


def _told_apart(found):
    """Whether an interval leaves zero out."""
    mean, half = found
    return abs(mean) > half


def _mean(rows):
    """The loss at the end, the mean of the seeds; None without a run."""
    return statistics.fmean(map(_end, rows)) if rows else None


def faults(results):
    rows = _measured(results[0])
    ends = _ends_by_fault(rows)
    apart = {fault: end - ends[RIGHT] for fault, end in ends.items() if fault != RIGHT}
    nearest, *others = sorted(apart, key=apart.__getitem__)
    drawn = derived(results, lambda r: _by_fault(_measured(r)))
    series = [
        Series(OURS, fault, {"fault": fault}, shade=i, symbol=SYMBOLS[i], size=8)
        for i, fault in enumerate(apart)
    ]
    series.append(Series(OURS, "right", {"fault": RIGHT}, like="ceiling", dash="dash"))
    return Figure(
        finding=f"Three wrong curves end {between((apart[o] for o in others), decimals)} nats per "
        f"byte above the right one. The fourth, {nearest}, ends {decimals(apart[nearest])} above.",
        caption="The loss of each step with one mistake in the backward, and with none; means of "
        f"{many(len(values(rows, 'seed')), 'seed')} and of {SMOOTHED} steps. The end is the mean "
        "over the last fifth of the steps.",
        plot=charts.lines(drawn, series, STEP, LOSS, log="", from_zero=False),
        claims={f"{PAGE}: You could not tell by eye": nearest == "scale 1.02"},
    )


def _ends_by_fault(rows):
    return {fault: _mean(pick(rows, fault=fault)) for fault in values(rows, "fault")}


def _by_fault(rows):
    for fault in values(rows, "fault"):
        yield from _points(_mean_curve(pick(rows, fault=fault)), fault=fault)


def losses(results):
    result = results[0]
    rows = _complete(_measured(result))
    alone, eager = _singly(rows), pick(_measured(result), implementation=EAGER)
    paired = {name: _paired(pick(rows, implementation=name), rows) for name in (OURS, HOPPER)}
    text, model = _about(result, "text"), _about(result, "model")
    drawn = derived(results, lambda r: _curves(_measured(r)))
    panels = [
        View("the loss", {"panel": "loss"}),
        View("minus the mean of PyTorch's backends", {"panel": "apart"}, y=APART),
    ]
    shown = [
        name
        for name in (OURS, HOPPER, *BACKENDS, EAGER)
        if pick(drawn[0].rows, implementation=name)
    ]
    return Figure(
        finding=f"Over {many(len(values(rows, 'seed')), 'seed')}, seed by seed, `{OURS}` ends "
        f"{_interval(paired[OURS])} nats per byte from PyTorch's mean, `{HOPPER}` "
        f"{_interval(paired[HOPPER])}.",
        caption=f"The loss of each step, means of the seeds and of {SMOOTHED} steps. A model of "
        f"{units.millions(model['parameters'])} parameters, bfloat16 products, the same first "
        "weights and the same bytes in the same order for each seed. "
        f"{many(text['files'], 'file')} of Python {text['python']}'s standard library, "
        f"{size(text['bytes'])}. Eager PyTorch, in float32, ran from {many(len(eager), 'seed')} "
        f"and for the first {len(eager[0]['losses'])} steps only.",
        plot=charts.lines(drawn, shown, STEP, LOSS, panels, log="", from_zero=False, columns=2),
        numbers={
            "flash": _interval(paired[OURS]),
            "hopper": _interval(paired[HOPPER]),
            "largest": _four(max(abs(mean) + half for mean, half in paired.values())),
            "seeds": len(values(rows, "seed")),
            "alone_theirs": _four(alone),
        },
        claims={
            f"{PAGE}: Zero lies inside both": not any(map(_told_apart, paired.values())),
            f"{PAGE}: so a single pair tells nothing": alone
            > max(abs(mean) + half for mean, half in paired.values()),
        },
    )


def _curves(rows):
    """The mean curves of the seeds, and how far each is from that of PyTorch's backends."""
    shown = [*_complete(rows), *pick(rows, implementation=EAGER)]
    curves = {
        name: _mean_curve(pick(shown, implementation=name))
        for name in values(shown, "implementation")
    }
    there = [curves[name] for name in BACKENDS if name in curves]
    mean = [statistics.fmean(losses) for losses in zip(*there, strict=True)]
    for name, losses in curves.items():
        yield from _points(losses, implementation=name, panel="loss")
        if name != EAGER:  # float32 is another computation, not another order of the same sums
            apart = [loss - at for loss, at in zip(losses, mean, strict=True)]
            yield from _points(apart, implementation=name, panel="apart")


def _mean_curve(rows):
    """The loss of each step, the mean of the seeds."""
    return [statistics.fmean(each) for each in zip(*(r["losses"] for r in rows), strict=True)]


def _end(row):
    """The loss at the end of a run: the mean of its last fifth."""
    return statistics.fmean(row["losses"][-(len(row["losses"]) // 5) :])


def _four(loss):
    return decimals(loss, 4)


@from_all
def verdict(results):
    """Which of the wrong backwards are told from chance, compared seed by seed."""
    mine = {r.result: r for r in reversed(results) if r.post == "language_model"}
    if not mine.keys() >= {"losses", "faults"}:
        return None
    compared, rows = _complete(_measured(mine["losses"])), _measured(mine["faults"])
    ends = _ends_by_fault(rows)
    # The same runs, as they were made for the other figure.
    same = [r for r in pick(compared, implementation=OURS) if r["seed"] in values(rows, "seed")]
    again = abs(ends.pop(RIGHT) - _mean(same))
    right = _paired(pick(rows, fault=RIGHT), compared)
    paired = {fault: _paired(pick(rows, fault=fault), compared) for fault in ends}
    found = [fault for fault, one in paired.items() if _told_apart(one)]
    return Figure(
        finding=f"{len(found)} of {len(ends)} wrong backwards are told from chance.",
        table=[
            {"fault": fault, "minus PyTorch's, paired": Numeral(_interval(one))}
            for fault, one in [*paired.items(), (RIGHT, right)]
        ],
        numbers={
            "again": _four(again),
            "right": _interval(right),
            "scale": _interval(paired["scale 1.02"]),
            "seeds": len(values(rows, "seed")),
        },
        claims={
            f"{PAGE}: each of the four intervals leaves out zero": len(found) == len(ends) == 4,
            f"{PAGE}: from it: zero lies inside": not _told_apart(right),
            f"{PAGE}: about as much as the smallest mistake of the four adds": 0.5
            < _singly(compared) / min(abs(mean) for mean, _ in paired.values())
            < 2,
        },
        sources=(mine["losses"], mine["faults"]),
    )


def training(results):
    row = only(_measured(results[0]))
    lowest = min(row["validation"], key=lambda pair: pair[1])
    return Figure(
        finding=f"The held-out loss is lowest at step {lowest[0]}: {decimals(lowest[1], 3)} nats "
        "per byte.",
        table=[{"step": at, "held out": Numeral(decimals(x, 3))} for at, x in row["validation"]],
        numbers={
            "steps": len(row["losses"]),
            "seconds": f"{decimals(row['seconds_in_all'], 0)} s",
            "parameters": units.millions(_about(results[0], "model")["parameters"]),
        },
        claims={
            f"{PAGE}: with the gradients of `hopper_backward`": row["implementation"] == HOPPER
        },
    )


def samples(results):
    rows = _measured(results[0])
    _, early, *_, last = values(rows, "step")
    return Figure(
        finding="The same prompts, from before the first step to after the last.",
        table=[
            {name: r[name] for name in ("step", "prompt")}
            | {"what it says": Prose(f"`{_printable(r['text'])}`")}
            for r in rows
        ],
        numbers={"early": early, "last": last},
    )


@from_all
def written(results):
    """The loss of the whole run as it falls, and what the model writes on the way."""
    mine = {r.result: r for r in reversed(results) if r.post == "language_model"}
    if not mine.keys() >= {"training", "samples"}:
        return None
    run, said = only(_measured(mine["training"])), _measured(mine["samples"])
    steps, prompt = values(said, "step"), said[0]["prompt"]
    first, early, *_, last = steps
    reached = {step: only(said, step=step, prompt=prompt)["held_out"] for step in steps}
    held_out = [tuple(pair) for pair in run["validation"]]
    rows = [{"of": "held out", "step": at, "loss": loss} for at, loss in held_out]
    shown = derived(
        [mine["training"]], lambda _: [*rows, *_points(run["losses"], 50, of="trained on")]
    )
    return Figure(
        finding=f"From {decimals(held_out[0][1])} to {decimals(held_out[-1][1])} nats per byte in "
        f"{held_out[-1][0]} steps.",
        caption="The loss on the bytes it learns from, means of 50 steps, and on files it never "
        "sees.",
        plot=charts.lines(
            shown,
            [
                Series(HOPPER, "trained on", {"of": "trained on"}),
                Series(HOPPER, "held out", {"of": "held out"}, shade=1),
            ],
            STEP,
            LOSS,
            log="y",
            from_zero=False,
            references=[Reference(f"step {early}", early, "x")],
        ),
        numbers={
            "loss_first": decimals(reached[first]),
            "loss_early": decimals(reached[early]),
            "loss_last": decimals(reached[last]),
        },
        claims={
            f"{PAGE}: Here is its loss, and what the model makes": reached.items()
            <= dict(held_out).items()
        },
        pieces={
            name: _quoted(only(said, step=step, prompt=prompt)["text"])
            for name, step in (("first", first), ("early", early), ("last", last))
        }
        | {"printed": _printed_by_first()},
        sources=(mine["training"], mine["samples"]),
    )


def _printed_by_first():
    """What first.py printed on a CPU, which a test repeats; from no result."""
    printed = Path(__file__).with_name("first.txt").read_text("utf-8")
    return f"```console\n$ python first.py\n{printed.rstrip()}\n```"


def _quoted(text):
    """A sample as a block of text; what could end the block is left out."""
    return "\n".join(["```text", *_lines(text), "```"])


def _lines(text):
    """The lines of a sample; one that a model does not end is broken."""
    for line in _printable(text).splitlines():
        yield from (line[at : at + WIDEST] for at in range(0, max(len(line), 1), WIDEST))


def _printable(text):
    """ASCII as it is, and a dot for every other byte or letter."""
    shown = "".join(c if c.isascii() and (c.isprintable() or c == "\n") else "·" for c in text)
    return shown.replace("`", "'")


def steps(results):
    result = results[0]
    rows = _measured(result)
    names = [OURS, HOPPER, *BACKENDS]
    plain = [r for r in rows if not r["compiled"]]
    parts = {
        "one training step": {"part": "step", "compiled": False},
        "its attention alone": {"part": "attention", "compiled": False},
    }
    panels = [View(title, where) for title, where in parts.items()]
    shares = [_share(plain, HOPPER, N) for N in values(plain, "N")]
    over = {name: _over_cudnn(rows, name, "attention", False) for name in (OURS, HOPPER)}
    whole, uncompiled = (_over_cudnn(rows, HOPPER, "step", c) for c in (True, False))
    shorter = "; that step is shorter than cuDNN's at every length"
    return Figure(
        finding=f"Attention with `{HOPPER}`, forward and backward, takes "
        f"{between(shares, percent)} of a training step"
        f"{shorter if max(uncompiled) < 1 else ''}.",
        caption="Down is faster. 16,384 tokens a step at every length, 8 heads of queries, 2 of "
        "keys, D 64, bfloat16. A step is forward, backward and AdamW; its attention is forward "
        "and backward of all six layers.",
        plot=charts.lines(derived(results, _measured), names, "N", TIME, panels, columns=2),
        numbers={
            "flash": between(over[OURS], ratio),
            "hopper": between(over[HOPPER], ratio),
            "compiled": between(whole, ratio),
            "step": between(uncompiled, ratio),
        },
        claims={
            f"{PAGE}: less than cuDNN's at every length": max(over[HOPPER] + whole) < 1,
            f"{PAGE}: With everything else compiled (N 1024 and 4096, not in the chart)": values(
                pick(rows, compiled=True), "N"
            )
            == [1024, 4096],
        },
    )


def _share(rows, name, N):
    """The part of a step that its attention takes."""
    case = {"implementation": name, "N": N}
    whole, part = (only(rows, part=p, **case)["ms_p50"] for p in ("step", "attention"))
    return part / whole


def _over_cudnn(rows, name, part, compiled):
    """Times of one of ours over cuDNN's, one for each length that both have."""
    some = pick(rows, part=part, compiled=compiled)
    return list(Comparison(some, "torch:cudnn", [name])[name].values())


def sampling(results):
    rows = _measured(results[0])
    one = [r for r in rows if r["batch"] == min(values(rows, "batch"))]
    longest = max(values(one, "N"))
    by = {r["way"]: r["ms_p50"] for r in one if r["N"] == longest}
    fastest = min(by, key=by.__getitem__)
    return Figure(
        finding=f"The fastest way to the next byte is {fastest}: {host_time(by[fastest])} after "
        f"{longest} bytes.",
        numbers={
            "after": longest,
            "graph": host_time(by["ours, in a graph"]),
            "eager": host_time(by["ours, eager"]),
            "sdpa": host_time(by["SDPA, in a graph"]),
            "none": host_time(by["no cache"]),
        },
        claims={
            f"{PAGE}: A cache alone saves no time here": by["ours, eager"] > 0.9 * by["no cache"],
            f"{PAGE}: At this size the graph matters more than the cache": fastest
            == "ours, in a graph"
            and by["no cache"] / by["ours, eager"] < by["ours, eager"] / by[fastest],
        },
    )


def looked_at(results):
    rows = [r for r in _measured(results[0]) if "kind" in r]
    kinds = values(rows, "kind")
    last = max(values(rows, "step"))
    ends = {kind: only(rows, kind=kind, step=last) for kind in kinds}
    best = {kind: _best(row["shares"]) for kind, row in ends.items()}
    largest = {kind: _at(ends[kind], best[kind]) for kind in kinds}
    return Figure(
        finding=f"At the end one head has {percent(largest['previous byte'])} of its weight on "
        f"the previous byte, one {percent(largest['matching bracket'])} on the matching bracket, "
        f"and one {percent(largest['indentation'])} on the indentation of the current line.",
        table=[
            {"step": r["step"], "looked for": r["kind"], "share": percent(_at(r, best[r["kind"]]))}
            for r in rows
        ],
        claims={
            f"{PAGE}: At the end one head puts most of its weight on the previous byte": (
                largest["previous byte"] > 0.5
            ),
            f"{PAGE}: another more than a third on the matching bracket": (
                1 / 3 < largest["matching bracket"] < 1 / 2
            ),
            f"{PAGE}: and a third more than two thirds on the indentation": (
                2 / 3 < largest["indentation"] < 0.85
            ),
        },
    )


def _best(shares):
    """Layer and head of the largest share."""
    places = itertools.product(range(len(shares)), range(len(shares[0])))
    return max(places, key=lambda at: shares[at[0]][at[1]])


def _at(row, place):
    return row["shares"][place[0]][place[1]]


@from_all
def maps(results):
    """The stored maps of a few heads, with a slider over the steps."""
    found = [r for r in results if (r.post, r.result) == ("language_model", "looked_at")]
    if not found:
        return None
    rows = [r for r in _measured(found[0]) if "map" in r]
    steps, kinds = values(rows, "step"), values(rows, "map")
    by = {(r["map"], r["step"]): r for r in rows}
    first = [by[kind, steps[0]] for kind in kinds]
    shown = [
        {"chosen for": r["map"], "layer": r["layer"] + 1, "head": r["head"] + 1} for r in first
    ]
    heads = [
        {
            "name": f"{r['map']}: layer {r['layer'] + 1}, head {r['head'] + 1}",
            "weights": [by[r["map"], step]["weights"] for step in steps],
        }
        for r in first
    ]
    return Figure(
        finding="Move the slider: what three heads look at before the first step, and as they "
        "learn.",
        caption="Where one byte looks: the stronger the color behind a byte, the larger its "
        "weight. The text is short and the model has never seen it. Each head is the one that "
        "ends with the largest share of its kind.",
        table=shown,
        widget=widget(
            "history",
            "checkpoint_map",
            "[The weights](/figures/language_model/maps_steps.json)",
            shown,
        ),
        extra_files={"maps_steps.json": {"text": first[0]["text"], "steps": steps, "heads": heads}},
        sources=found[:1],
    )
