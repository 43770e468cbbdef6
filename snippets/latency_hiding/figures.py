"""The figures of the latency_hiding page: each draws the result of the same name."""

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Reference, Series, View
from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.gpu import gpu as drawn_gpu
from snippets._lab.draw.gpu import memories
from snippets._lab.draw.rows import (
    TIME,
    Quantity,
    ceiling,
    derived,
    field,
    only,
    pick,
    values,
)
from snippets._lab.draw.tables import beside, columns, table
from snippets._lab.draw.units import (
    bandwidth,
    binary,
    count,
    flops,
    percent,
    ratio,
    size,
    thousands,
    time,
)
from snippets._lab.draw.words import Words, between, listed, many
from snippets._lab.results.store import DataError

from . import model

OURS, TWO = "latency_hiding", "latency_hiding:exercise"
LAW = 0.8  # of the law's line: a copy that reaches this share follows it
FULL = 0.9  # of the ceiling: a copy that reaches this share has filled the pipe
# Results of ex2 a cycle and multiprocessor: CUDA C++ Programming Guide, arithmetic instructions.
EXPONENTIALS = {"7.5": 16, "8.0": 16, "8.6": 16, "8.9": 16, "9.0": 16, "10.0": 16}
words = Words(__file__)
STEP = field("step_ms", "time per step", time)


def latency(results):
    levels = model.levels(results[0])
    steps = derived(results, model.steps)
    rows, l2 = steps[0].rows, results[0].device["l2_bytes"]
    sets, l1 = values(rows, "set_bytes"), rows[0]["shared_bytes"]
    bands = [(sets[0], l1, "shared memory"), (l1, l2, "L2"), (l2, sets[-1], "HBM")]
    told = {name: _told(row) for name, row in levels.items()}
    far = rows[-1]
    return Figure(
        finding=words("latency", **told),
        caption=words("latency.caption", lines=128),
        table=columns(
            rows,
            {
                "working set": lambda r: binary(r["set_bytes"]),
                "time per step": STEP,
                "cycles": lambda r: round(r["cycles"]),
            },
        ),
        plot=charts.lines(
            steps,
            [Series(OURS, "one walker", {}, told=_told)],
            field("set_bytes", "working set", binary),
            STEP,
            [View(bands=bands)],
            log="x",
            references=[
                Reference("L1 and shared memory", lambda r: r.rows[0]["shared_bytes"], "x"),
                Reference("L2", lambda r: r.device["l2_bytes"], "x"),
            ],
            ticks={"x": [n for n in sets if (n & (n - 1)) == 0][::3]},
        ),
        sentences={
            "times": words(
                "latency.times",
                L2=ratio(STEP(levels["L2"]) / STEP(levels["L1"])),
                HBM=ratio(STEP(levels["HBM"]) / STEP(levels["L1"])),
            ),
            "work": words(
                "latency.work",
                latency=time(STEP(levels["HBM"])),
                flops=units.rough(
                    model.amount(
                        ceiling(results[0], "fma_float32") / results[0].device["multiprocessors"],
                        STEP(levels["HBM"]),
                    ),
                    digits=2,
                ),
            ),
            "edge": _edge(rows, levels["L2"], l2),
            "far": words(
                "latency.farther" if STEP(far) > 1.1 * STEP(levels["HBM"]) else "latency.steady",
                near=binary(levels["HBM"]["set_bytes"]),
                near_step=time(STEP(levels["HBM"])),
                set=binary(far["set_bytes"]),
                step=time(STEP(far)),
            ),
        },
    )


def _edge(rows, level, l2):
    """Where in L2's size the times begin to grow."""
    slower = [
        r for r in rows if r["set_bytes"] > level["set_bytes"] and STEP(r) > 1.1 * STEP(level)
    ]
    first = min(slower, key=lambda r: r["set_bytes"])
    if first["set_bytes"] >= l2:
        return words("latency.sharp", l2=binary(l2))
    return words("latency.edge", l2=binary(l2), first=binary(first["set_bytes"]))


def _told(row):
    return f"{time(row['step_ms'])} ({count(row['cycles'])} cycles)"


def hiding(results):
    found = derived(results, model.rates)
    rows = found[0].rows
    one = only(rows, implementation=OURS, walkers=1)
    ours = [r for r in pick(rows, implementation=OURS, lanes=1)]
    same = [r for r in ours if STEP(r) <= 1.25 * STEP(one)]
    most = max(same, key=lambda r: r["walkers"])
    all_ = max(pick(rows, implementation=OURS), key=lambda r: r["walkers"])
    best = max(rows, key=lambda r: r["sectors_per_s"])
    few = min((r for r in ours if r["walkers"] > 1), key=lambda r: r["walkers"])
    pair = only(rows, implementation=TWO, lanes=1, programs=few["programs"])
    return Figure(
        finding=words(
            "hiding",
            many=thousands(most["walkers"]),
            longer=ratio(STEP(most) / STEP(one)),
        ),
        caption=words("hiding.caption", set=binary(one["set_bytes"]), steps=one["steps"]),
        table=columns(
            rows,
            {
                "walkers": "walkers",
                "of a warp": "lanes",
                "programs": "programs",
                "kernel": lambda r: "two walks per thread" if r["implementation"] == TWO else OURS,
                "time per step": STEP,
                "sectors": field("sectors_per_s", unit=bandwidth),
            },
        ),
        plot=charts.lines(
            found,
            [
                Series(OURS, "one walker per warp", {"implementation": OURS, "lanes": 1}),
                Series(
                    OURS,
                    "one walker per lane",
                    {"implementation": OURS, "lanes": 32},
                    symbol="square",
                    dash="dash",
                ),
            ],
            field("walkers", "walkers", units.whole),
            STEP,
            [
                View("time of a step"),
                View("sectors fetched", y=field("sectors_per_s", "bandwidth", bandwidth)),
            ],
            columns=2,
        ),
        sentences={
            "one": words("hiding.one", step=time(STEP(one)), rate=bandwidth(one["sectors_per_s"])),
            "many": words(
                "hiding.many",
                many=thousands(most["walkers"]),
                step=time(STEP(most)),
                times=ratio(most["sectors_per_s"] / one["sectors_per_s"]),
            ),
            "end": words(
                "hiding.end",
                all=thousands(all_["walkers"]),
                step=time(STEP(all_)),
                rate=bandwidth(best["sectors_per_s"]),
                share=percent(best["sectors_per_s"] / ceiling(results[0], "read")),
            ),
            "exercise": words(
                "hiding.exercise",
                walkers=thousands(few["walkers"]),
                programs=thousands(few["programs"] // 2),
                step=time(STEP(few)),
                two=time(STEP(pair)),
            ),
        },
    )


READ = field("read_per_s", "read bandwidth", bandwidth)
IN_FLIGHT = field("bytes_in_flight", "bytes in flight", size)


def littles_law(results):
    found = derived(results, model.with_law)
    rows = pick(found[0].rows, kind="copy")
    limit = ceiling(results[0], "copy") / 2
    step = rows[0]["latency_ms"]
    needed = model.amount(limit, step)
    processors = results[0].device["multiprocessors"]
    sparse = [r for r in rows if r["bytes_in_flight"] < needed / 4 and r["programs_sm"]]
    full = [r for r in rows if READ(r) >= FULL * limit]
    if not sparse or not full:
        raise DataError("no copy has so few bytes in flight, or so many, that the law can be seen")
    first = min(full, key=IN_FLIGHT)
    loads = values(rows, "loads")
    shapes = dict(zip(loads, ("circle", "square", "diamond", "triangle-up"), strict=True))
    same = _alike(rows)
    return Figure(
        finding=words(
            "littles_law",
            needed=size(needed),
            full=percent(READ(first) / limit),
            first=size(IN_FLIGHT(first)),
        ),
        caption=words("littles_law.caption", latency=time(step)),
        table=columns(
            sorted(rows, key=lambda r: (IN_FLIGHT(r), r["num_warps"])),
            {
                "in flight": IN_FLIGHT,
                "programs": "programs",
                "warps": "num_warps",
                "loads per thread": "loads",
                "read": READ,
                "the law": field("law", unit=bandwidth),
                "measured ÷ law": Quantity("", lambda r: READ(r) / r["law"], percent),
            },
        ),
        plot=charts.lines(
            found,
            [
                *(
                    Series(
                        OURS,
                        f"{many(n, 'load')} per thread",
                        {"kind": "copy", "loads": n},
                        shade=i,
                        symbol=shapes[n],
                        joined=False,
                    )
                    for i, n in enumerate(loads)
                ),
                Series(
                    "ceiling",
                    "bytes in flight ÷ latency",
                    {"kind": "law"},
                    symbol="line-ew",
                    dash="dash",
                ),
            ],
            IN_FLIGHT,
            READ,
            references=[
                Reference("half the copy ceiling", lambda r: ceiling(r, "copy") / 2),
            ],
        ),
        sentences={
            "needed": words(
                "littles_law.needed",
                latency=time(step),
                rate=bandwidth(limit),
                needed=size(needed),
                one=size(needed / processors),
            ),
            "below": words(
                "littles_law.below",
                quarter=size(needed / 4),
                shares=between([READ(r) / r["law"] for r in sparse], percent),
                turn=between([r["turn_ms"] for r in sparse if r["loads"] == 1], time),
                latency=time(step),
            ),
            "alike": words("littles_law.alike", **same),
        },
    )


def _alike(rows):
    """The same bytes in flight in the most different ways: how far apart their speeds lie."""
    by = {}
    for row in rows:
        by.setdefault(row["bytes_in_flight"], []).append(row)
    ways = max((x for x in by.values() if x[0]["programs_sm"]), key=len)
    return {
        "ways": len(ways),
        "bytes": size(IN_FLIGHT(ways[0])),
        "slow": bandwidth(min(map(READ, ways))),
        "fast": bandwidth(max(map(READ, ways))),
    }


HELD = field("held", "numbers held by a thread", units.whole)


def occupancy(results):
    rows = pick(results[0].rows)
    processors = results[0].device["multiprocessors"]
    waits, computes = (pick(rows, kind=kind, num_warps=4) for kind in ("waits", "computes"))
    few, most = waits[0], waits[-1]
    spread = [TIME(r) for r in computes]
    narrow = only(rows, kind="waits", num_warps=1, held=few["held"])
    return Figure(
        finding=words(
            "occupancy",
            waits=ratio(TIME(most) / TIME(few)),
            computes=ratio(max(spread) / min(spread)),
            most=few["programs_at_once"],
            few=most["programs_at_once"],
        ),
        caption=words(
            "occupancy.caption",
            programs=thousands(few["programs"]),
            each=few["programs"] // processors,
        ),
        table=columns(
            rows,
            {
                "a program": "kind",
                "warps": "num_warps",
                "numbers held by a thread": "held",
                "registers": "registers",
                "programs at once": "programs_at_once",
                "because of": "limit",
                "time": TIME,
            },
        ),
        plot=charts.lines(
            results,
            [
                Series(
                    OURS,
                    f"{many(n, 'warp')} per program",
                    {"num_warps": n},
                    shade=i,
                    symbol=s,
                    dash=d,
                )
                for i, (n, s, d) in enumerate(((4, "circle", "solid"), (1, "square", "dash")))
            ],
            field("programs_at_once", "programs at once on a multiprocessor", units.whole),
            TIME,
            charts.views("it {}", "kind", ["waits", "computes"]),
            columns=2,
        ),
        sentences={
            "waits": words(
                "occupancy.waits",
                held=few["held"],
                registers=few["registers"],
                fit=few["programs_at_once"],
                time=TIME.text(few),
                held_most=most["held"],
                registers_most=most["registers"],
                fit_most=most["programs_at_once"],
                time_most=TIME.text(most),
                expected=ratio(few["programs_at_once"] / most["programs_at_once"]),
                measured=ratio(TIME(most) / TIME(few)),
            ),
            "computes": words(
                "occupancy.computes",
                few=min(r["programs_at_once"] for r in computes),
                most=max(r["programs_at_once"] for r in computes),
                ratio=ratio(max(spread) / min(spread)),
            ),
            "limit": words(
                "occupancy.limit",
                registers=narrow["registers"],
                fit=narrow["programs_at_once"],
                limit=narrow["limit"],
                time=TIME.text(narrow),
            ),
        },
    )


FIRST = {"target": "sm_90", "registers": 64, "num_warps": 4, "shared_bytes": 16_384}


def calculator(results):
    rows = results[0].rows
    cases = pick(rows, kind="case")
    some = columns(
        [r for r in cases if all(r[k] == v for k, v in FIRST.items() if k != "registers")],
        {
            "registers per thread": "registers",
            "warps per program": "num_warps",
            "shared memory per program": lambda r: binary(r["shared_bytes"]),
            "programs at once": "fits",
            "because of": lambda r: r["limit"] if r["fits"] else "too large",
        },
    )
    names = ("target", "registers", "num_warps", "shared_bytes", "fits", "limit")
    return Figure(
        finding=words("calculator"),
        caption=words("calculator.caption"),
        table=some,
        widget="\n".join(
            [
                '<div class="am-occupancy" data-widget="latency_hiding" markdown>',
                "[Limits and cases](/figures/latency_hiding/calculator_cases.json){ .am-source }",
                "",
                *table(some),
                "",
                "</div>",
            ]
        ),
        extra_files={
            "calculator_cases.json": {
                "first": FIRST,
                "limits": [
                    {k: v for k, v in r.items() if k != "kind"} for r in pick(rows, kind="limits")
                ],
                "cases": [[r[name] for name in names] for r in cases],
            }
        },
    )


WHOLE, PERSISTENT, HALVES = "a program a tile", "persistent", "half tiles"


def waves(results):
    rows = results[0].rows
    processors = rows[0]["multiprocessors"]

    def ms(tiles, name=WHOLE):
        return TIME(only(rows, implementation=name, tiles=tiles))

    one, beyond = (
        only(rows, implementation=WHOLE, tiles=processors),
        only(rows, implementation=WHOLE, tiles=processors + 1),
    )
    apart = [ms(t, PERSISTENT) / ms(t) for t in values(rows, "tiles")]
    return Figure(
        finding=words(
            "waves", tiles=processors, more=processors + 1, longer=ratio(TIME(beyond) / TIME(one))
        ),
        caption=words("waves.caption", many=processors),
        table=beside(rows, ["tiles"], {name: name for name in (WHOLE, PERSISTENT, HALVES)}),
        plot=charts.lines(
            results,
            [
                Series(WHOLE, "one program per tile", like=OURS, symbol="circle"),
                Series(
                    PERSISTENT,
                    f"persistent, {processors} programs",
                    like=OURS,
                    shade=1,
                    dash="dash",
                ),
                Series(HALVES, "tiles of half the size", like=OURS, shade=2, dash="dot"),
            ],
            field("tiles", "tiles", units.whole),
            TIME,
            log="",
            references=[
                Reference(
                    f"{n} × {processors}", lambda r, n=n: n * r.rows[0]["multiprocessors"], "x"
                )
                for n in (1, 2, 3)
            ],
        ),
        sentences={
            "flat": words(
                "waves.flat",
                quarter=min(values(rows, "tiles")),
                few=time(ms(min(values(rows, "tiles")))),
                many=processors,
                full=TIME.text(one),
            ),
            "step": words(
                "waves.step",
                more=processors + 1,
                time=TIME.text(beyond),
                idle=percent(1 - (processors + 1) / (2 * processors)),
            ),
            "persistent": words(
                "waves.persistent",
                ratios=between(apart),
            ),
            "halves": words(
                "waves.halves",
                more=processors + 1,
                whole=TIME.text(beyond),
                half=time(ms(processors + 1, HALVES)),
            ),
        },
    )


WALL, HOST = (
    field("wall_ms_p50", "time per launch", time),
    field("host_ms_p50", "CPU time", units.host_time),
)
QUEUED, EACH, GRAPH = "queued", "waiting for each", "CUDA graph"


def host_time(results):
    rows = results[0].rows
    calls = {r["way"]: r for r in pick(rows, kind="call")}
    add, launcher = calls["torch.add"], calls["Triton, through a launcher"]
    direct, graph = calls["Triton, the compiled kernel"], calls["CUDA graph of 20 torch.add"]
    queue = pick(rows, kind="queue")
    least, longest = (f(queue, key=lambda r: r["gpu_ms"])["steps"] for f in (min, max))

    def wall(mode, steps):
        return WALL(only(queue, mode=mode, steps=steps))

    hidden = [r for r in pick(queue, mode=QUEUED) if WALL(r) <= 1.1 * r["gpu_ms"]]
    chains = {r["way"]: r for r in rows if r["kind"] == "chain"}
    return Figure(
        finding=words(
            "host_time",
            launch=HOST.text(launcher),
            gpu=time(min(r["gpu_ms"] for r in queue)),
        ),
        caption=words("host_time.caption"),
        table=[
            *(
                {
                    "what": r["way"],
                    "launches": r.get("launches") or r["operations"],
                    "CPU": HOST.text(r) if not r.get("error") else r["error"],
                    "until done": WALL.text(r) if not r.get("error") else "–",
                }
                for r in rows
                if r["kind"] in ("call", "chain")
            ),
            *(
                {
                    "what": f"{r['mode']}, {time(r['gpu_ms'])} of work",
                    "launches": 1,
                    "CPU": HOST.text(r),
                    "until done": WALL.text(r),
                }
                for r in queue
            ),
        ],
        plot=charts.lines(
            results,
            [
                Series(
                    mode,
                    mode,
                    {"kind": "queue", "mode": mode},
                    like=OURS,
                    shade=i,
                    symbol=s,
                    dash=d,
                )
                for i, (mode, s, d) in enumerate(
                    (
                        (EACH, "square", "dot"),
                        (QUEUED, "circle", "solid"),
                        (GRAPH, "diamond", "dash"),
                    )
                )
            ],
            field("gpu_ms", "the GPU's time for one launch", time),
            WALL,
        ),
        sentences={
            "calls": words(
                "host_time.calls",
                add=HOST.text(add),
                launcher=HOST.text(launcher),
                direct=HOST.text(direct),
            ),
            "queue": words(
                "host_time.queue",
                least=time(min(r["gpu_ms"] for r in queue)),
                each=units.host_time(wall(EACH, least)),
                queued=units.host_time(wall(QUEUED, least)),
                graph=time(wall(GRAPH, least)),
                longest=time(max(r["gpu_ms"] for r in queue)),
                queued_longest=time(wall(QUEUED, longest)),
            ),
            "hidden": words("host_time.hidden", gpu=time(min(r["gpu_ms"] for r in hidden)))
            if hidden
            else words("host_time.never"),
            "graph": words(
                "host_time.graph",
                one=HOST.text(add),
                all=HOST.text(graph),
                launches=graph["launches"],
                each=time(WALL(graph) / graph["launches"]),
            ),
            "chain": words(
                "host_time.chain",
                operations=chains["eager"]["operations"],
                ways=listed(
                    f"{way} {WALL.text(r) if not r.get('error') else 'failed'}"
                    for way, r in chains.items()
                ),
            ),
        },
    )


@from_all
def gpu(results):
    """The GPU that was measured first, with what was measured of it."""
    sizes = next(r for r in results if (r.post, r.result) == ("attention_memory", "hierarchy"))
    of = [r for r in results if r.folder == sizes.folder and r.post == OURS]
    measured = {r.result: r for r in of}
    steps = model.levels(measured["latency"]) if "latency" in measured else {}
    processors = only(sizes.rows, kind="sizes")["multiprocessors"]
    levels = memories(sizes, lambda level: time(STEP(steps[level])) if level in steps else "")
    exponentials = EXPONENTIALS.get(sizes.device["capability"])
    work = {
        "tensor cores": flops(ceiling(sizes, "matmul_float16")),
        "float32 cores": flops(ceiling(sizes, "fma_float32")),
        "exponential units": f"{exponentials} per cycle" if exponentials else "",
    }
    used = [sizes, *(r for r in of if r.result == "latency")]
    return Figure(
        finding=words("gpu", name=sizes.label, many=processors),
        caption=words("gpu.caption"),
        table=[
            *(
                {"what": x.name, "size": x.size, "rate": x.rate, "latency": x.latency}
                for x in levels
            ),
            *({"what": k, "size": "", "rate": v, "latency": ""} for k, v in work.items()),
        ],
        widget=drawn_gpu((sizes.label, processors), levels, tuple(work.values())),
        sources=used,
    )
