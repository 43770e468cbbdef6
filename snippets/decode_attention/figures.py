"""The figures of the decode_attention page: each draws the result of the same name."""

from dataclasses import replace

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View, at_ceiling
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import (
    BANDWIDTH,
    OF_THE_HOST,
    RATE,
    TIME,
    Quantity,
    ceiling,
    compiled,
    derived,
    field,
    moved,
    only,
    over,
    pick,
    ridge,
    target,
    values,
)
from snippets._lab.draw.tables import columns, table
from snippets._lab.draw.units import bandwidth as per_second
from snippets._lab.draw.units import between, count, many, percent, ratio, rough_ratio, size, time

OURS, CUDNN, FLASH, SDPA = "decode_attention", "torch:cudnn", "torch:flash", "torch:sdpa"
RIVALS = (CUDNN, FLASH, "flash_attention_3", "flashinfer")  # of them what was there
FLEX = "torch:flex"
READER, ONLY_READS = f"{OURS}:only reads", "a kernel that only reads"
SEEN = 0.01  # of a call's time: less is not told from noise
SMALL = 64e6  # bytes of keys and values: with fewer, what counts is microseconds
UNIT = "matmul_bfloat16"
PAGE = "docs/posts/decode_attention.md"
CASE = ("group", "batch", "N")
BYTES = field("bytes_compulsory", "keys and values", units.size)
OF_A_CALL = Quantity("time of a call", lambda r: r["ms_p50"] / r["calls"], units.time)


def _groups(rows):
    return [View(f"group of {group}", {"group": group}) for group in values(rows, "group")]


def _lost(times):
    """The share of its speed that a call loses which takes so many times as long."""
    return 1 - 1 / times


def _part(name):
    """What comes behind the implementation's name: "pages of 16"."""
    return name.split(":")[-1]


def _shapes(rows):
    return list(dict.fromkeys((r["batch"], r["N"]) for r in rows))


def _losses(rows):
    """What each rule's choice loses at most, over the shapes where its number was timed."""
    most = {}
    for batch, N in _shapes(rows):
        mine = pick(rows, batch=batch, N=N)
        best = min(map(TIME, mine))
        for row in mine:
            for rule in row["chosen_by"]:
                most[rule] = max(most.get(rule, 0.0), TIME(row) / best - 1)
    return most


def _widget(opening, result, before, lines):
    """A box that becomes a widget, and says the same in a table where it cannot."""
    source = f"/figures/decode_attention/{result}_cases.json"
    cases = f"[The cases]({source}){{ .am-source }}"
    return "\n".join([opening, cases, "", before, "", *lines, "", "</div>"])


FIRST_MODEL = {"name": "Llama 3.1 8B", "keys": 8_192, "size": 2, "batch": 64}


def tokens(results):
    """Bandwidths as GPUs have them, and models, for the calculator; the formula's cases beside."""
    (formula,) = (result for result in results if result.place == "interpreter")
    measured = [(r.device["name"], moved(only(r.rows))) for r in results if r.place == "gpu"]
    cases = formula.rows
    models = {r["name"]: [r[k] for k in ("layers", "heads", "D", "parameters")] for r in cases}
    fields = ("name", "keys", "size", "batch", "of_a_sequence", "seconds")
    at = [only(cases, **FIRST_MODEL | {"name": name}) for name in models]
    shown = [
        {
            "model": r["name"],
            "weights": size(r["parameters"] * r["size"]),
            "cache of a sequence": size(r["of_a_sequence"]),
            "read in a step": size(r["parameters"] * r["size"] + r["batch"] * r["of_a_sequence"]),
        }
        for r in at
    ]
    return Figure(
        finding="How many tokens per second memory allows.",
        caption="A step reads the weights once for all sequences, and every sequence's keys and "
        "values. All else comes on top, so this is an upper bound. The formula is that of "
        "tokens.py, written once more in JavaScript and tested against it.",
        sources=results,  # what it says is of all GPUs
        table=shown,
        widget=_widget(
            '<div class="am-tokens" data-widget="decode_tokens" markdown>',
            "tokens",
            "64 sequences of 8,192 keys, 16 bits:",
            table(shown),
        ),
        extra_files={
            "tokens_cases.json": {
                "first": FIRST_MODEL,
                "models": [[name, *facts] for name, facts in models.items()],
                "measured": measured,
                "cases": [[r[field] for field in fields] for r in cases],
            }
        },
    )


def traffic(results):
    rows = results[0].rows
    alone = max(pick(rows, shared=False), key=field("group"))
    shared = only(rows, shared=True, group=alone["group"])
    return Figure(
        finding=f"With a group of {alone['group']} query heads, a program for each of them loads "
        f"every key {ratio(alone['key_bytes'] / shared['key_bytes'])} as often.",
        caption="Bytes of keys that programs load in Triton's interpreter over the bytes that "
        "there are: eight query heads, 64 keys, D 64, float32.",
        plot=charts.lines(
            results,
            [
                Series(OURS, "a program for the group", {"shared": True}),
                Series(OURS, "a launch for each head", {"shared": False}, shade=2),
            ],
            "group",
            Quantity(
                "times that each key is loaded",
                lambda r: r["key_bytes"] / r["bytes_compulsory"],
                units.times,
            ),
            log="x",
        ),
    )


def splits(results):
    rows = results[0].rows
    gains, loss = [], []
    for batch, N in _shapes(rows):
        mine = pick(rows, batch=batch, N=N)
        one = only(mine, splits=1)
        best = min(mine, key=TIME)
        (ours,) = (r for r in mine if OURS in r["chosen_by"])
        gains.append(TIME(one) / TIME(best))
        loss.append(TIME(ours) / TIME(best) - 1)
    single = [r for r in pick(rows, batch=1) if r["N"] == max(values(pick(rows, batch=1), "N"))]
    alone, best_alone = only(single, splits=1), min(single, key=TIME)
    most, losses = ceiling(results[0], "read"), _losses(rows)
    return Figure(
        finding=f"The best number of splits is up to {ratio(max(gains))} as fast as one, and our "
        f"rule loses at most {percent(max(loss))} against it in the {len(loss)} shapes that were "
        "timed.",
        caption="One new token, four query heads on each of eight heads of keys, D 128, "
        "bfloat16, L2 flushed. One split writes the result itself; from two on a second kernel "
        "combines them. The table says which rule would choose which number.",
        numbers={
            "keys": alone["N"],
            "alone": percent(moved(alone) / most),
            "splits": best_alone["splits"],
            "best": percent(moved(best_alone) / most),
            "fixed": percent(losses["batch-invariant, every 1,024 keys"]),
            "adapted": percent(max(x for rule, x in losses.items() if "every" not in rule)),
            "rivals": len([rule for rule in losses if "every" not in rule]),
        },
        plot=charts.lines(
            results,
            [Series(OURS, where={})],
            "splits",
            TIME,
            [
                View(f"{batch} × {count(N)} keys", {"batch": batch, "N": N})
                for batch, N in _shapes(rows)
            ],
        ),
    )


# What the explorer and the calculator show first.
FIRST = {"batch": 1, "heads": 8, "N": 8_192, "processors": 132}


def explorer(results):
    rows = results[0].rows
    (facts,) = pick(rows, kind="facts")
    names = facts["rules"]
    cases = pick(rows, kind="case")
    first = only(cases, **FIRST)
    shown = [
        {"rule": _said(rule), "splits": count(splits), "slots busy": percent(busy)}
        for rule, splits, busy in zip(names, first["splits"], first["filled"], strict=True)
    ]
    fields = (*FIRST, "splits", "filled", "cost")
    return Figure(
        finding="Move the sliders: each rule cuts the same work in its own way.",
        caption="One new token, D 128, 16 bits. A bar is the time that our rule expects of this "
        "kernel, not a measurement: its length is all turns together, the height of the last one "
        "is the share of slots that it fills, and the block at the end is the merging. The rules "
        "are those of splits.py, written once more in JavaScript and tested against them; all "
        "sequences are equally long.",
        table=shown,
        widget=_widget(
            '<div class="am-splits" data-widget="decode_attention" markdown>',
            "explorer",
            "One sequence of 8,192 keys, eight heads of keys, 132 multiprocessors:",
            table(shown),
        ),
        extra_files={
            "explorer_cases.json": {
                "first": FIRST,
                "rules": [_said(rule) for rule in names],
                "facts": {k: v for k, v in facts.items() if k not in ("kind", "rules")},
                "cases": [[r[field] for field in fields] for r in cases],
            }
        },
    )


def _said(rule):
    return "ours" if rule == OURS else rule


def rules(results):
    rows = results[0].rows
    own = pick(rows, rule=OURS)
    longest = max(values(own, "N"))
    few, most = (only(own, batch=f(values(own, "batch")), N=longest) for f in (min, max))
    return Figure(
        finding=f"At {count(longest)} keys our rule cuts a single sequence into {few['splits']} "
        f"splits per head of keys, and each of {most['batch']} sequences into {most['splits']}.",
        caption="What each rule chooses on an H200 for one new token, four query heads on each "
        f"of eight heads of keys, D 128, bfloat16. The GPU runs {own[0]['slots']} programs of "
        "this kernel at once; from a batch of 64 on the tiles are smaller, and more programs "
        "fit. Both axes are logarithmic. FlashInfer's rule knows all lengths; here they are "
        "alike.",
        plot=charts.lines(
            results,
            [
                Series(OURS, rule, where={"rule": rule}, shade=i % (len(_rules(rows))))
                for i, rule in enumerate(_rules(rows))
            ],
            "batch",
            field("splits", "splits", units.whole),
            [View(f"{count(N)} keys", {"N": N}) for N in (8_192, 131_072)],
        ),
    )


def _rules(rows):
    """The rules that look at the shape; the others cut every so many keys."""
    return [rule for rule in values(rows, "rule") if "every" not in rule]


def combining(results):
    rows = results[0].rows
    late = f"{OURS}:in order"
    early = Comparison(rows, OURS, [late], ("batch", "N", "splits"))[late]
    return Figure(
        finding=f"Starting the second kernel early makes a call {between(early.values(), ratio)} "
        "as fast.",
        caption="One new token, four query heads on each of eight heads of keys, D 128, "
        "bfloat16. A CUDA graph of calls that take other caches in turn, so that none of them is "
        "in L2; the time of one call. “Early”: the launch does not wait until the kernel in "
        "front of it has ended.",
        numbers={"early": between(early.values(), ratio)},
        plot=charts.lines(
            results,
            [
                Series(name, label, {"implementation": name, "splits": 16}, shade=shade)
                for shade, (label, name) in enumerate({"early": OURS, "in order": late}.items())
            ],
            "N",
            OF_A_CALL,
            [View(many(b, "sequence"), {"batch": b}) for b in values(rows, "batch")],
        ),
    )


def bandwidth(results):
    rows = results[0].rows
    beside_ = Comparison(rows, OURS, RIVALS, CASE)
    there = [OURS, *(name for name in RIVALS if beside_[name])]
    best = beside_.best(RIVALS)
    middle = {name: beside_.row(name, beside_.case(4, 64, 8_192)) for name in (OURS, *RIVALS)}
    speeds = {name: moved(row) for name, row in middle.items() if row}
    most = ceiling(results[0], "read")
    large = [r for r in pick(rows) if r["bytes_compulsory"] >= 500e6]
    of_reading = Comparison(large, OURS, [READER], CASE)[READER]
    return Figure(
        finding="From 500 MB of keys and values on, one new token takes them in at "
        f"{between(list(of_reading.values()), percent)} of the rate of a kernel that only reads "
        f"them. At every size it reaches {best.between()} of the speed of "
        f"{beside_.the_best(RIVALS)} ({best.verdicts()}).",
        caption="One new token, eight heads of keys of width 128, bfloat16, and a group of 1, 4 "
        "or 8 query heads on each. Each point is a number of sequences and their length. "
        "Compulsory bytes over the time, L2 flushed before each call. The kernel that only reads "
        "takes the same keys and values in turn with the others; the line is its rate over 2 GB "
        f"({per_second(most)}). Other kernels can be faster than this reader. FlashInfer's plan, "
        "one for all layers of a model, is made before the clock starts.",
        numbers={
            "ours": per_second(speeds[OURS]),
            "cudnn": per_second(speeds[CUDNN]),
            "flash": per_second(speeds[FLASH]),
        },
        claims={
            f"{PAGE}: only FlashAttention-2 is far behind": 0.8
            * min(speed for name, speed in speeds.items() if name != FLASH)
            > speeds[FLASH]
        },
        plot=charts.lines(
            results,
            [
                *(Series(name, joined=False) for name in there),
                Series(READER, ONLY_READS, like="ceiling", symbol="diamond", joined=False),
            ],
            BYTES,
            BANDWIDTH,
            _groups(rows),
            log="x",
            references=[at_ceiling("read", "reading 2 GB")],
        ),
    )


def small(results):
    rows = results[0].rows
    ours = pick(rows, implementation=OURS)
    there = [name for name in (OURS, *RIVALS) if pick(rows, implementation=name)]
    return Figure(
        finding=f"Below 64 MB a call takes {time(min(map(OF_A_CALL, ours)))} to "
        f"{time(max(map(OF_A_CALL, ours)))}.",
        caption="The same, in a CUDA graph. The calls of a graph take caches in turn that "
        "together are four times as large as L2, so that none is found there. Time of one call.",
        plot=charts.lines(
            results,
            [Series(name, joined=False) for name in there],
            Quantity("keys and values", lambda r: r["bytes_compulsory"] / r["calls"], units.size),
            OF_A_CALL,
            _groups(rows),
        ),
    )


def cold_and_warm(results):
    rows = results[0].rows
    warm, cold = (f"{OURS}:{how}" for how in ("warm", "cold"))
    against = Comparison(rows, warm, [cold])[cold]
    (asked,) = (at for at in against if at.N == 2048)
    bytes_ = against.ours[asked]["bytes_read"] / rows[0]["calls"]
    return Figure(
        finding=f"With {count(against.best.N)} keys, which L2 keeps, calls on one cache are "
        f"{ratio(against[against.best])} as fast as calls on others in turn.",
        caption="One sequence, four query heads on each of eight heads of keys, D 128, bfloat16. "
        f"A CUDA graph of {rows[0]['calls']} calls, either all on one cache or each on its own. "
        "Bytes read per second, whatever memory they come from.",
        numbers={
            "times": ratio(against[asked]),
            "warm": time(OF_A_CALL(against.ours[asked])),
            "cold": time(OF_A_CALL(against.other[asked])),
            "reading": time(bytes_ / ceiling(results[0], "read") * 1e3),
        },
        claims={f"{PAGE}: A little: a call takes": 1.05 < against[asked] < 1.25},
        plot=charts.lines(
            results,
            [Series(warm, "the same cache", shade=1), Series(cold, "other caches in turn")],
            "N",
            over("bytes_read", "bytes read per second"),
            log="x",
            references=[at_ceiling("read", "read-only ceiling of memory")],
        ),
    )


HELD = 64  # rows that a program of the kernel holds at most


def intensity(results):
    rows = pick(results[0].rows, implementation=OURS)
    crossing = ridge(results[0], UNIT, "read")
    least = min(r["rows"] for r in rows)
    few = [r for r in rows if r["rows"] <= max(least, crossing / 4)]
    top = max(rows, key=RATE)
    held = max((r for r in rows if r["rows"] <= HELD), key=_by_rows)
    more = min((r for r in rows if r["rows"] > HELD), key=_by_rows)
    return Figure(
        finding=f"The two ceilings of this run cross at {count(crossing)} rows per key. Up to a "
        "quarter of that, decoding reads at "
        f"{between([moved(r) / ceiling(results[0], 'read') for r in few], percent)} of the "
        f"ceiling. With {top['rows']} rows it computes at {RATE.text(top)}.",
        caption="Sixteen sequences of 8,192 keys, eight heads of keys, D 128, bfloat16. A key is "
        "multiplied with as many rows as there are new tokens times query heads that share it. "
        "Both axes are logarithmic.",
        numbers={
            "held": held["rows"],
            "time": TIME.text(held),
            "more": more["rows"],
            "longer": TIME.text(more),
        },
        plot=charts.lines(
            results,
            [Series(OURS, joined=False)],
            field("rows", "rows per key: new tokens × group", units.whole),
            RATE,
            references=[at_ceiling(UNIT, "matmul ceiling")],
        ),
    )


def _by_rows(row):
    return row["rows"], row["ms_p50"]


def pages(results):
    results = [replace(result, rows=_middle_runs(result.rows)) for result in results]
    rows = results[0].rows
    names = values(pick(rows), "implementation")
    sizes = [name for name in names if name.startswith(f"{OURS}:")]
    rivals = [name for name in names if name.startswith(f"{FLEX}:")]
    long = [r for r in pick(rows) if r["bytes_compulsory"] >= SMALL * r["calls"]]
    behind = {
        name: _lost(max(Comparison(long, OURS, [name], ("batch", "N"))[name].values()))
        for name in sizes
    }
    gains = [
        gain
        for name in rivals
        for gain in Comparison(rows, f"{OURS}:{_part(name)}", [name], ("batch", "N"))[name].values()
    ]
    looks = {OURS: "contiguous"}
    looks |= {name: _part(name) for name in sizes}
    looks |= {name: f"FlexAttention, {_part(name)}" for name in rivals}
    return Figure(
        finding=f"From {size(SMALL)} of keys and values on, pages cost at most "
        f"{percent(max(behind.values()))} of a contiguous cache's speed.",
        caption="One new token, four query heads on each of eight heads of keys, D 128, "
        "bfloat16. Pages lie in random order in a pool twice as large as needed. A CUDA graph of "
        "calls on caches in turn; of three runs the one in the middle. FlexAttention is "
        "compiled, has the same pages in the order it asks for, and was timed for 64 sequences "
        "of 8,192 keys only.",
        numbers={
            "small": size(SMALL),
            **{
                f"cost_{_page(name)}": percent(lost)
                for name, lost in behind.items()
                if _page(name) != "64"
            },
            "flex": between(gains, ratio),
        },
        claims={f"{PAGE}: A little": 0 < max(behind.values()) < 0.1},
        plot=charts.bars(
            results,
            [Series(name, label, shade=_shade(name, names)) for name, label in looks.items()],
            BANDWIDTH,
            [
                View(f"{batch} × {count(N)} keys", {"batch": batch, "N": N})
                for batch, N in _shapes(rows)
            ],
            columns=3,
            references=[at_ceiling("read", "ceiling")],
        ),
    )


def _middle_runs(rows):
    """Of an implementation's runs of a case the one whose median is in the middle."""
    runs = {}
    for row in pick(rows):
        runs.setdefault((row["implementation"], row["batch"], row["N"]), []).append(row)
    timed = [sorted(found, key=lambda r: r["ms_p50"])[len(found) // 2] for found in runs.values()]
    return timed + [row for row in rows if "error" in row]


def _page(name):
    return name.rpartition(" ")[2]


def _shade(name, names):
    """Each page size has a shade of its implementation's color; the contiguous cache has none."""
    alike = [n for n in names if n.startswith(name.rpartition(":")[0] + ":")]
    return 1 + alike.index(name) if name in alike and name != OURS else 0


def paged_loop(results):
    rows = pick(results[0].rows)
    contiguous = only(rows, implementation=OURS)
    looks = {OURS: "contiguous"}
    looks |= {r["implementation"]: _part(r["implementation"]) for r in rows if r is not contiguous}
    shares = {
        label: _lost(TIME(only(rows, implementation=name)) / TIME(contiguous))
        for name, label in looks.items()
    }
    gained = max(shares.values()) - shares["as it is"]
    return Figure(
        finding=f"With {contiguous['batch']} sequences of {count(contiguous['N'])} keys, pages of "
        f"{rows[0]['page']} cost at most {percent(max(shares.values()))} of a contiguous cache's "
        "speed, whether the loop looks ahead or not.",
        caption="One new token, four query heads on each of eight heads of keys, D 128, "
        "bfloat16: one program for each multiprocessor, and no other that could use its waits. "
        "The same pages in each case, and contiguous caches beside them. A CUDA graph of calls "
        "on caches in turn.",
        claims={f"{PAGE}: In this case, timed in one run, neither shows": gained <= SEEN},
        table=columns(
            rows,
            {"kernel": lambda r: looks[r["implementation"]], "time": OF_A_CALL, "read": BANDWIDTH},
        ),
    )


def ragged(results):
    rows = results[0].rows
    slower = []
    for batch in values(rows, "batch"):
        own = pick(rows, implementation=OURS, batch=batch)
        alike = only(own, kind="all alike")
        slower += [TIME(r) / TIME(alike) for r in own if r is not alike]
    names = values(rows, "implementation")
    return Figure(
        finding="With splits by the rule, the same number of keys takes up to "
        f"{ratio(max(slower))} as long when the lengths differ.",
        caption="One new token, four query heads on each of eight heads of keys, D 128, "
        "bfloat16, pages of 64. The number of keys in all sequences together is always the same.",
        plot=charts.bars(
            results,
            [Series(OURS, kind, {"kind": kind}) for kind in values(rows, "kind")],
            TIME,
            [View(many(batch, "sequence"), {"batch": batch}) for batch in values(rows, "batch")],
            groups=[
                Series(name, _splits_of(name), {"implementation": name}, shade=i)
                for i, name in enumerate(names)
            ],
        ),
    )


def _splits_of(name):
    number = name.partition(":")[2].removesuffix(" splits")
    return many(int(number), "split") if number else "splits by the rule"


def invariance(results):
    rows = results[0].rows
    same = f"{OURS}:batch-invariant"
    against = Comparison(rows, OURS, [same], ("batch", "N"))[same]
    return Figure(
        finding="With the same bits in every batch a call takes "
        f"{between(against.values(), ratio)} as long as with our rule.",
        caption="One new token, four query heads on each of eight heads of keys, D 128, "
        "bfloat16, L2 flushed.",
        plot=charts.lines(
            results,
            [Series(OURS, "by the rule"), Series(same, "every 1,024 keys", shade=1)],
            "batch",
            TIME,
            [View(f"{count(N)} keys", {"N": N}) for N in values(rows, "N")],
        ),
    )


def host_time(results):
    rows = results[0].rows
    two = only(rows, implementation=f"{OURS}:two launches")
    sdpa = only(rows, implementation=SDPA)
    names = {r["implementation"].partition(":")[2]: r["implementation"] for r in rows}
    names = {("PyTorch SDPA" if n == "sdpa" else n): key for n, key in names.items()}
    return Figure(
        finding=f"A call with two launches keeps the host for {OF_THE_HOST.text(two)}, "
        f"{rough_ratio(TIME(two) / TIME(sdpa))} as long as one of PyTorch's SDPA.",
        caption="One sequence of 512 keys: the GPU's work is short, and the queue takes all "
        "calls. Lengths and pages are on the GPU, and no call waits for it.",
        plot=charts.bars(results, [Series(key, name) for name, key in names.items()], OF_THE_HOST),
    )


def resources(results):
    found = compiled(results)
    rows = [r | {"target": target(result)} for result in found for r in result.rows]
    hopper = [r for r in rows if r["target"] == "sm_90" and not r["error"]]
    return Figure(
        finding=f"Compiled for Hopper {sum(r['spill_store_bytes'] > 0 for r in hopper)} of "
        f"{len(hopper)} configurations spill; the largest takes "
        f"{max(r['registers'] for r in hopper)} registers per thread.",
        caption="The kernel that computes a split, compiled ahead of time for few rows and for "
        "many. The chart shows contiguous caches; the table also has pages of 16.",
        table=columns(
            rows,
            {
                "target": "target",
                "dtype": "dtype",
                "D": "D",
                "rows": "rows",
                "page": lambda r: r["page"] or "–",
                "warps": "num_warps",
                "registers": lambda r: r["registers"] or "–",
                "spilled, bytes": lambda r: "–" if r["error"] else r["spill_store_bytes"],
                "shared memory": lambda r: size(r["shared_bytes"]) if r["shared_bytes"] else "–",
                "tensor cores": lambda r: r["tensor_core"] or "–",
                "error": lambda r: r["error"] or "–",
            },
        ),
        open_table=False,
        plot=charts.dots(
            derived(found, lambda r: pick(r.rows, page=0)),
            [
                Series(OURS, f"{dtype}, {n} rows", {"dtype": dtype, "rows": n}, shade=i)
                for i, (dtype, n) in enumerate(
                    (dtype, n) for dtype in values(rows, "dtype") for n in values(rows, "rows")
                )
            ],
            field("registers", "registers per thread", units.whole),
            [View(f"D {D}", {"D": D}) for D in values(rows, "D")],
            log=False,
        ),
    )
