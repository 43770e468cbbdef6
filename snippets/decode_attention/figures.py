"""The figures of the decode_attention page: each draws the result of the same name."""

from dataclasses import replace

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View, at_ceiling
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import named
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
from snippets._lab.draw.tables import beside, columns, table
from snippets._lab.draw.units import bandwidth as per_second
from snippets._lab.draw.units import count, percent, ratio, rough_ratio, size, time
from snippets._lab.draw.words import Words, between, cell, listed, many

OURS, CUDNN, FLASH, SDPA = "decode_attention", "torch:cudnn", "torch:flash", "torch:sdpa"
RIVALS = (CUDNN, FLASH, "flash_attention_3", "flashinfer")  # of them what was there
FLEX = "torch:flex"
READER, ONLY_READS = f"{OURS}:only reads", "a kernel that only reads"
SEEN = 0.01  # of a call's time: less is not told from noise
SMALL = 64e6  # bytes of keys and values: with fewer, what counts is microseconds
UNIT = "matmul_bfloat16"
words = Words(__file__)
CASE = ("group", "batch", "N")
BYTES = field("bytes_compulsory", "keys and values", units.size)
OF_A_CALL = Quantity("time of a call", lambda r: r["ms_p50"] / r["calls"], units.time)


def _groups(rows):
    return [View(f"group of {group}", {"group": group}) for group in values(rows, "group")]


def bandwidth(results):
    rows = results[0].rows
    beside_ = Comparison(rows, OURS, RIVALS, CASE)
    there = [OURS, *(name for name in RIVALS if beside_[name])]
    best = beside_.best(RIVALS)
    most = ceiling(results[0], "read")
    large = [r for r in pick(rows) if r["bytes_compulsory"] >= 500e6]
    of_reading = Comparison(large, OURS, [READER], CASE)[READER]
    return Figure(
        finding=words(
            "bandwidth",
            share=between(list(of_reading.values()), percent),
            between=best.between(),
            best=beside_.the_best(RIVALS),
            standing=best.standing(),
        ),
        sentences={"middle": _middle(beside_)},
        caption=words(
            "bandwidth.caption",
            read=per_second(most),
            plan=f" {words('bandwidth.plan')}" if "flashinfer" in there else "",
        ),
        table=beside(
            rows,
            CASE,
            {named(n): n for n in there} | {ONLY_READS: READER},
            BANDWIDTH,
        ),
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


def _middle(beside_):
    """The cell that a server is most like, in words."""
    at = beside_.case(4, 64, 8_192)
    there = {name: beside_.row(name, at) for name in (OURS, *RIVALS)}
    told = [f"{named(name)} at {per_second(moved(row))}" for name, row in there.items() if row]
    return words("bandwidth.middle", speeds=listed(told))


def small(results):
    rows = results[0].rows
    ours = pick(rows, implementation=OURS)
    there = [name for name in (OURS, *RIVALS) if pick(rows, implementation=name)]
    return Figure(
        finding=words(
            "small",
            least=time(min(map(OF_A_CALL, ours))),
            most=time(max(map(OF_A_CALL, ours))),
        ),
        caption=words("small.caption"),
        table=beside(rows, CASE, {named(n): n for n in there}, OF_A_CALL),
        plot=charts.lines(
            results,
            [Series(name, joined=False) for name in there],
            Quantity("keys and values", lambda r: r["bytes_compulsory"] / r["calls"], units.size),
            OF_A_CALL,
            _groups(rows),
        ),
    )


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
    costs = [
        words("pages.cost", page=_page(name), cost=_cost(lost)) for name, lost in behind.items()
    ]
    finding = words("pages", least=size(SMALL), costs=listed(costs))
    if rivals:
        gains = [
            gain
            for name in rivals
            for gain in Comparison(rows, f"{OURS}:{_part(name)}", [name], ("batch", "N"))[
                name
            ].values()
        ]
        finding += " " + words("pages.flex", between=between(gains))
    looks = {OURS: "contiguous"}
    looks |= {name: _part(name) for name in sizes}
    looks |= {name: f"FlexAttention, {_part(name)}" for name in rivals}
    return Figure(
        finding=finding,
        sentences={"most": finding},
        caption=words("pages.caption"),
        table=beside(
            rows, ("batch", "N"), {label: name for name, label in looks.items()}, BANDWIDTH
        ),
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


def _lost(times):
    """The share of its speed that a call loses which takes so many times as long."""
    return 1 - 1 / times


def _cost(share):
    """A share that is lost, in words."""
    return percent(share) if share >= 0.0005 else words("pages.nothing")


def _middle_runs(rows):
    """Of an implementation's runs of a case the one whose median is in the middle."""
    runs = {}
    for row in pick(rows):
        runs.setdefault((row["implementation"], row["batch"], row["N"]), []).append(row)
    timed = [sorted(found, key=lambda r: r["ms_p50"])[len(found) // 2] for found in runs.values()]
    return timed + [row for row in rows if "error" in row]


def _part(name):
    """What comes behind the implementation's name: "pages of 16"."""
    return name.split(":")[-1]


def _page(name):
    return name.rpartition(" ")[2]


def _shade(name, names):
    """Each page size has a shade of its implementation's color; the contiguous cache has none."""
    alike = [n for n in names if n.startswith(name.rpartition(":")[0] + ":")]
    return 1 + alike.index(name) if name in alike and name != OURS else 0


def _shapes(rows):
    return list(dict.fromkeys((r["batch"], r["N"]) for r in rows))


def paged_loop(results):
    rows = pick(results[0].rows)
    contiguous = only(rows, implementation=OURS)
    looks = {OURS: "contiguous"}
    looks |= {r["implementation"]: _part(r["implementation"]) for r in rows if r is not contiguous}
    shares = {
        label: _lost(TIME(only(rows, implementation=name)) / TIME(contiguous))
        for name, label in looks.items()
    }
    lost = {label: _cost(share) for label, share in shares.items()}
    gained = max(shares.values()) - shares["as it is"]
    return Figure(
        sentences={"verdict": words("paged_loop.gained" if gained > SEEN else "paged_loop.same")},
        finding=words(
            "paged_loop",
            batch=contiguous["batch"],
            N=count(contiguous["N"]),
            page=rows[0]["page"],
            ahead=lost["as it is"],
            late=lost["looked up late"],
            rows=lost["rows in the loop"],
            both=lost["both"],
        ),
        caption=words("paged_loop.caption"),
        table=columns(
            rows,
            {"kernel": lambda r: looks[r["implementation"]], "time": OF_A_CALL, "read": BANDWIDTH},
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
    return Figure(
        finding=words(
            "splits",
            most=ratio(max(gains)),
            choice=words("splits.wrong", loss=percent(max(loss)))
            if max(loss)
            else words("splits.right", shapes=len(loss)),
        ),
        sentences={"one": _alone(results[0]), "rules": _losses(rows)},
        caption=words("splits.caption"),
        table=columns(
            rows,
            {
                "sequences": "batch",
                "keys": "N",
                "splits": "splits",
                "time": TIME,
                "chosen by": lambda r: listed(r["chosen_by"]) if r["chosen_by"] else "–",
            },
        ),
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


def _alone(result):
    """One sequence with one split, and with the best number of them."""
    single = pick(result.rows, batch=1)
    single = pick(single, N=max(values(single, "N")))
    one, best = only(single, splits=1), min(single, key=TIME)
    most = ceiling(result, "read")
    return words(
        "splits.one",
        N=count(one["N"]),
        alone=percent(moved(one) / most),
        splits=best["splits"],
        best=percent(moved(best) / most),
    )


def _losses(rows):
    """What each rule's choice loses at most, over the shapes where its number was timed."""
    lost, shapes = {}, _shapes(rows)
    for batch, N in shapes:
        mine = pick(rows, batch=batch, N=N)
        best = min(map(TIME, mine))
        for row in mine:
            for rule in row["chosen_by"]:
                lost.setdefault(rule, []).append(TIME(row) / best - 1)
    most = {rule: max(losses) for rule, losses in lost.items()}
    told = words(
        "splits.rules",
        rules=listed(
            [f"{percent(most[rule])} ({_said(rule)})" for rule in sorted(most, key=most.get)]
        ),
    )
    for rule, losses in lost.items():
        if missing := len(shapes) - len(losses):
            shape = f"{missing} of {many(len(shapes), 'shape')}"
            told += " " + words("splits.untimed", rule=_said(rule), shapes=shape)
    return told


def rules(results):
    rows = results[0].rows
    own = pick(rows, rule=OURS)
    longest = max(values(own, "N"))
    few, most = (only(own, batch=f(values(own, "batch")), N=longest) for f in (min, max))
    return Figure(
        finding=words(
            "rules",
            N=count(longest),
            one=few["splits"],
            batch=most["batch"],
            many=most["splits"],
        ),
        caption=words("rules.caption", slots=own[0]["slots"]),
        table=beside(
            rows,
            ("batch", "N"),
            {rule: rule for rule in values(rows, "rule")},
            field("splits", "splits", units.whole),
            name="rule",
        ),
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


# What the explorer and the calculator show first.
FIRST = {"batch": 1, "heads": 8, "N": 8_192, "processors": 132}
FIRST_MODEL = {"name": "Llama 3.1 8B", "keys": 8_192, "size": 2, "batch": 64}


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
        finding=words("explorer"),
        caption=words("explorer.caption"),
        table=shown,
        widget=_widget(
            '<div class="am-splits" data-widget="decode_attention" markdown>',
            "explorer",
            words("explorer.first"),
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


def _widget(opening, result, before, lines):
    """A box that becomes a widget, and says the same in a table where it cannot."""
    source = f"/figures/decode_attention/{result}_cases.json"
    cases = f"[The cases]({source}){{ .am-source }}"
    return "\n".join([opening, cases, "", before, "", *lines, "", "</div>"])


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
    caption = words("tokens.caption")
    if measured:
        speeds = listed([f"{per_second(x)} ({cell(name)})" for name, x in measured])
        caption += " " + words("tokens.measured", speeds=speeds)
    return Figure(
        finding=words("tokens"),
        caption=caption,
        sources=results,  # what it says is of all GPUs
        table=shown,
        widget=_widget(
            '<div class="am-tokens" data-widget="decode_tokens" markdown>',
            "tokens",
            words("tokens.first"),
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


def ragged(results):
    rows = results[0].rows
    slower = []
    for batch in values(rows, "batch"):
        own = pick(rows, implementation=OURS, batch=batch)
        alike = only(own, kind="all alike")
        slower += [TIME(r) / TIME(alike) for r in own if r is not alike]
    names = values(rows, "implementation")
    return Figure(
        finding=words("ragged", slower=ratio(max(slower))),
        caption=words("ragged.caption"),
        table=beside(
            rows,
            ("batch", "kind"),
            {_splits_of(name): name for name in names},
        ),
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


def cold_and_warm(results):
    rows = results[0].rows
    warm, cold = (f"{OURS}:{how}" for how in ("warm", "cold"))
    against = Comparison(rows, warm, [cold])[cold]
    return Figure(
        finding=words("cold_and_warm", most=ratio(against[against.best]), N=count(against.best.N)),
        sentences={
            "hot": words(
                "cold_and_warm.hot",
                N=count(against.best.N),
                most=ratio(against[against.best]),
                warm=time(OF_A_CALL(against.ours[against.best])),
                cold=time(OF_A_CALL(against.other[against.best])),
            )
        },
        caption=words("cold_and_warm.caption", calls=rows[0]["calls"]),
        table=beside(rows, ["N"], {"from L2": warm, "from memory": cold}, OF_A_CALL),
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


def _by_rows(row):
    return row["rows"], row["ms_p50"]


def intensity(results):
    rows = pick(results[0].rows, implementation=OURS)
    crossing = ridge(results[0], UNIT, "read")
    least = min(r["rows"] for r in rows)
    few = [r for r in rows if r["rows"] <= max(least, crossing / 4)]
    top = max(rows, key=RATE)
    held = max((r for r in rows if r["rows"] <= HELD), key=_by_rows)
    more = min((r for r in rows if r["rows"] > HELD), key=_by_rows)
    return Figure(
        finding=words(
            "intensity",
            crossing=count(crossing),
            share=between([moved(r) / ceiling(results[0], "read") for r in few], percent),
            rate=RATE.text(top),
            rows=top["rows"],
        ),
        sentences={
            "step": words(
                "intensity.step",
                held=held["rows"],
                time=TIME.text(held),
                more=more["rows"],
                longer=TIME.text(more),
            )
        },
        caption=words("intensity.caption"),
        table=columns(
            rows,
            {
                "new tokens": "M",
                "group": "group",
                "rows per key": "rows",
                "time": TIME,
                "keys and values": BANDWIDTH,
                "arithmetic": RATE,
            },
        ),
        plot=charts.lines(
            results,
            [Series(OURS, joined=False)],
            field("rows", "rows per key: new tokens × group", units.whole),
            RATE,
            references=[at_ceiling(UNIT, "matmul ceiling")],
        ),
    )


def combining(results):
    rows = results[0].rows
    last, late = f"{OURS}:last arriver", f"{OURS}:in order"
    against = Comparison(rows, OURS, [last, late], ("batch", "N", "splits"))
    names = {
        "second kernel, early": OURS,
        "second kernel, in order": late,
        "the last arriver, early": last,
        "the last arriver, in order": f"{last}, in order",
    }
    names = {label: name for label, name in names.items() if pick(rows, implementation=name)}
    return Figure(
        finding=words("combining", between=against[last].between()),
        caption=words("combining.caption"),
        sentences={"early": words("combining.early", times=against[late].between())},
        table=beside(rows, ("batch", "N", "splits"), names, OF_A_CALL),
        plot=charts.lines(
            results,
            [
                Series(name, label, {"implementation": name, "splits": 16}, shade=shade)
                for shade, (label, name) in enumerate(names.items())
            ],
            "N",
            OF_A_CALL,
            [View(many(b, "sequence"), {"batch": b}) for b in values(rows, "batch")],
        ),
    )


def invariance(results):
    rows = results[0].rows
    same = f"{OURS}:batch-invariant"
    against = Comparison(rows, OURS, [same], ("batch", "N"))[same]
    return Figure(
        finding=words("invariance", price=between(against.values(), ratio)),
        caption=words("invariance.caption"),
        table=beside(rows, ("batch", "N"), {"by the rule": OURS, "every 1,024 keys": same}),
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
        finding=words(
            "host_time", times=rough_ratio(TIME(two) / TIME(sdpa)), time=OF_THE_HOST.text(two)
        ),
        caption=words("host_time.caption"),
        table=columns(rows, {"call": "implementation", "time": OF_THE_HOST}),
        plot=charts.bars(results, [Series(key, name) for name, key in names.items()], OF_THE_HOST),
    )


def resources(results):
    found = compiled(results)
    rows = [r | {"target": target(result)} for result in found for r in result.rows]
    hopper = [r for r in rows if r["target"] == "sm_90" and not r["error"]]
    spilling = [r for r in hopper if r["spill_store_bytes"]]
    return Figure(
        finding=words(
            "resources" if not spilling else "resources.spills",
            registers=max(r["registers"] for r in hopper),
            **({"spilling": len(spilling)} if spilling else {}),
        ),
        caption=words("resources.caption"),
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


def traffic(results):
    rows = results[0].rows
    alone = max(pick(rows, shared=False), key=field("group"))
    shared = only(rows, shared=True, group=alone["group"])
    return Figure(
        finding=words(
            "traffic",
            group=alone["group"],
            times=ratio(alone["key_bytes"] / shared["key_bytes"]),
        ),
        caption=words("traffic.caption"),
        table=beside(
            rows,
            ["group"],
            {"a program for the group": True, "a launch for each head": False},
            field("key_bytes", "keys loaded", units.size),
            name="shared",
        ),
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
