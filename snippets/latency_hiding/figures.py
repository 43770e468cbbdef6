"""The figures of the latency_hiding page: each draws the result of the same name."""

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Reference, Series, View
from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.gpu import gpu as drawn_gpu
from snippets._lab.draw.gpu import memories
from snippets._lab.draw.rows import TIME, ceiling, derived, field, only, pick, values
from snippets._lab.draw.tables import columns, widget
from snippets._lab.draw.units import bandwidth, between, binary, many, ratio, size, thousands, time
from snippets._lab.results.store import DataError

from . import model

OURS, TWO = "latency_hiding", "latency_hiding:exercise"
FULL = 0.9  # of the ceiling: a copy that reaches this share has filled the pipe
# Results of ex2 a cycle and multiprocessor: CUDA C++ Programming Guide, arithmetic instructions.
EXPONENTIALS = {"7.5": 16, "8.0": 16, "8.6": 16, "8.9": 16, "9.0": 16, "10.0": 16}
PAGE = "docs/posts/latency_hiding.md"
STEP = field("step_ms", "time per step", time)


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
        "tensor cores": units.flops(ceiling(sizes, "matmul_float16")),
        "float32 cores": units.flops(ceiling(sizes, "fma_float32")),
        "exponential units": f"{exponentials} per cycle" if exponentials else "",
    }
    used = [sizes, *(r for r in of if r.result == "latency")]
    rates = {level.name: level.per_s for level in levels}
    return Figure(
        finding=f"An {sizes.label} is {processors} multiprocessors around a shared cache.",
        caption="One streaming multiprocessor, and what all of them share. Sizes are those that "
        "the device reports, of L1 the part for shared memory. Rates are of all multiprocessors "
        "together, latencies of a load that the next one waits for; both were measured. "
        "Exponentials per cycle are from NVIDIA's programming guide.",
        table=[
            *(
                {"what": x.name, "size": x.size, "rate": x.rate, "latency": x.latency}
                for x in levels
            ),
            *({"what": k, "size": "", "rate": v, "latency": ""} for k, v in work.items()),
        ],
        widget=drawn_gpu((sizes.label, processors), levels, tuple(work.values())),
        sources=used,
        claims={
            f"{PAGE}: About as much as their bandwidths differ, 6 to 7 times": 6
            < rates["shared memory and L1"] / rates["HBM"]
            < 7
        },
    )


def latency(results):
    levels = model.levels(results[0])
    steps = derived(results, model.steps)
    rows, l2 = steps[0].rows, results[0].device["l2_bytes"]
    sets, l1 = values(rows, "set_bytes"), rows[0]["shared_bytes"]
    bands = [(sets[0], l1, "shared memory"), (l1, l2, "L2"), (l2, sets[-1], "HBM")]
    l2_level, hbm = levels["L2"], levels["HBM"]
    grown = [r for r in rows if STEP(r) > 1.1 * STEP(l2_level)]
    first = min(r["set_bytes"] for r in grown if r["set_bytes"] > l2_level["set_bytes"])
    return Figure(
        finding=f"A load that waits for the previous one takes {_told(levels['L1'])} where L1 has "
        f"the data, {_told(l2_level)} where L2 has it, and {_told(hbm)} where only HBM does.",
        caption="One walker, one load at a time: time of a step over the size of the memory it "
        "walks through, 128-byte lines in random order. A step is a load, the address computed "
        "from its result, and the loop around both: a long walk minus a short one. Cycles are at "
        "the clock of the same run.",
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
        numbers={
            "hbm_times": ratio(STEP(hbm) / STEP(levels["L1"])),
            "hbm": time(STEP(hbm)),
            "flops": units.rough(
                model.amount(
                    ceiling(results[0], "fma_float32") / results[0].device["multiprocessors"],
                    STEP(hbm),
                ),
                digits=2,
            ),
            "l2": binary(l2),
            "edge": binary(first),
        },
        claims={
            f"{PAGE}: and yet steps take clearly longer from": first < l2,
            f"{PAGE}: More: ": STEP(hbm) > 7 * STEP(levels["L1"]),
            f"{PAGE}: A load from HBM takes hundreds of nanoseconds": 200 < 1e6 * STEP(hbm) < 1000,
        },
    )


def _told(row):
    return f"{time(row['step_ms'])} ({units.count(row['cycles'])} cycles)"


def hiding(results):
    found = derived(results, model.rates)
    rows = found[0].rows
    one = only(rows, implementation=OURS, walkers=1)
    ours = pick(rows, implementation=OURS, lanes=1)
    same = [r for r in ours if STEP(r) <= 1.25 * STEP(one)]
    most = max(same, key=lambda r: r["walkers"])
    all_ = max(pick(rows, implementation=OURS), key=lambda r: r["walkers"])
    half = only(rows, implementation=OURS, walkers=all_["walkers"] // 2)
    few = min((r for r in ours if r["walkers"] > 1), key=lambda r: r["walkers"])
    pair = only(rows, implementation=TWO, lanes=1, programs=few["programs"])
    return Figure(
        finding=f"{thousands(most['walkers'])} walkers take {ratio(STEP(most) / STEP(one))} the "
        "time of one: the GPU waits for all of them at once.",
        caption=f"The same walk by one walker and by many, through {binary(one['set_bytes'])}, "
        f"{one['steps']} steps each; both axes logarithmic. Left: time of a step. Right: bytes of "
        "the 32-byte sectors that the steps fetch, a second. “One walker per warp”: one load "
        "instruction brings one sector. “One walker per lane”: it brings 32.",
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
        numbers={
            "one": time(STEP(one)),
            "walkers": thousands(most["walkers"]),
            "many": time(STEP(most)),
            "times": ratio(most["sectors_per_s"] / one["sectors_per_s"]),
            "all_step": time(STEP(all_)),
            "half": thousands(half["walkers"]),
            "half_step": time(STEP(half)),
            "end": bandwidth(half["sectors_per_s"]),
            "few": thousands(few["walkers"]),
            "few_step": time(STEP(few)),
            "pair": time(STEP(pair)),
        },
        claims={
            f"{PAGE}: hide latency almost as well as other warps do": STEP(pair) < 1.25 * STEP(few),
            f"{PAGE}: and twice as many need": 1.9 * STEP(half) < STEP(all_),
            f"{PAGE}: less than a third of what memory delivers in order": half["sectors_per_s"]
            < ceiling(results[0], "read") / 3,
        },
    )


READ = field("read_per_s", "read bandwidth", bandwidth)


IN_FLIGHT = field("bytes_in_flight", "bytes in flight", size)
TURN = field("turn_ms", "time in flight", time)


def littles_law(results):
    found = derived(results, model.with_law)
    rows = pick(found[0].rows, kind="copy")
    limit = ceiling(results[0], "copy") / 2
    step = rows[0]["latency_ms"]
    needed = model.amount(limit, step)
    sparse = [r for r in rows if r["bytes_in_flight"] < needed / 4 and r["programs_sm"]]
    full = [r for r in rows if READ(r) >= FULL * limit]
    if not sparse or not full:
        raise DataError("no copy has so few bytes in flight, or so many, that the law can be seen")
    first = min(full, key=IN_FLIGHT)
    shape = {"num_warps": first["num_warps"], "loads": first["loads"]}
    alone = only(rows, programs=1, **shape)
    alike = _alike(rows)
    less = [READ(r) for r in rows if IN_FLIGHT(r) == IN_FLIGHT(first) / 2]
    return Figure(
        finding="Near its ceiling memory makes loads wait: with "
        f"{size(IN_FLIGHT(first))} in flight one takes {time(TURN(first))} with its store, "
        f"{ratio(TURN(first) / TURN(alone))} as long as for one program alone.",
        caption="A square is a copy in float32, whose launch decides how many bytes are asked for "
        "and not there yet; L2 flushed, axes logarithmic. Right: bytes in flight over the rate on "
        "the left, which by Little's law is how long a load takes. Dashed: the latency of a lone "
        "load. Dotted: half the copy ceiling.",
        plot=charts.lines(
            found,
            [
                Series(OURS, "copies", {"kind": "copy"}, joined=False),
                Series("ceiling", "as fast as a lone load", {"kind": "law"}, dash="dash", size=0.1),
                Series("ceiling", "at memory's ceiling", {"kind": "full"}, dash="dot", size=0.1),
            ],
            IN_FLIGHT,
            views=[View("read", y=READ), View("a load takes", y=TURN)],
            columns=2,
        ),
        numbers={
            "latency": time(step),
            "rate": bandwidth(limit),
            "needed": size(needed),
            "loaded_bytes": size(IN_FLIGHT(first)),
            "loaded": time(TURN(first)),
            "alone": time(TURN(alone)),
            "reached": units.percent(READ(first) / limit),
            "near": units.percent(max(less) / limit),
            "alike": size(IN_FLIGHT(alike[0])),
            "alike_rate": between(map(READ, alike), bandwidth),
        },
        claims={
            "title of latency_hiding/littles_law: Near its ceiling memory makes loads wait": max(
                map(TURN, sparse)
            )
            < 2 * step
            < min(map(TURN, full)) / 2,
            f"{PAGE}: in flight, six times what the law asks for": 5.5
            < IN_FLIGHT(first) / needed
            < 6.5,
            f"{PAGE}: which is several times that of a lone load": TURN(first) > 3 * step,
            f"{PAGE}: How you arrange it matters less": max(map(READ, alike))
            < 1.3 * min(map(READ, alike)),
        },
    )


def _alike(rows):
    """The rows with the same bytes in flight in the most different ways."""
    by = {}
    for row in rows:
        by.setdefault(row["bytes_in_flight"], []).append(row)
    return max((x for x in by.values() if x[0]["programs_sm"]), key=len)


def occupancy(results):
    rows = pick(results[0].rows)
    processors = results[0].device["multiprocessors"]
    waits, computes = (pick(rows, kind=kind, num_warps=4) for kind in ("waits", "computes"))
    few, most = waits[0], waits[-1]
    one = max(pick(rows, kind="waits", num_warps=1), key=lambda r: r["programs_at_once"])
    spread = [TIME(r) for r in computes]
    expected = few["programs_at_once"] / most["programs_at_once"]
    return Figure(
        finding=f"With four warps per program, {most['programs_at_once']} programs at once "
        f"instead of {few['programs_at_once']} make the kernel that waits take "
        f"{ratio(TIME(most) / TIME(few))} as long; the one that computes changes by "
        f"{ratio(max(spread) / min(spread))} at most.",
        caption=f"{thousands(few['programs'])} programs, {few['programs'] // processors} for each "
        "multiprocessor. The more numbers each holds in registers, the fewer fit at once. The one "
        "that waits follows links through HBM; the one that computes does multiply-adds. "
        "Registers are those of the compiled kernel, programs at once follow by NVIDIA's rules.",
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
            views=charts.views("it {}", "kind", ["waits", "computes"]),
            columns=2,
        ),
        numbers={
            "fit": few["programs_at_once"],
            "fit_most": most["programs_at_once"],
            "measured": ratio(TIME(most) / TIME(few)),
            "computes": ratio(max(spread) / min(spread)),
            "four": time(TIME(few)),
            "fit_one": one["programs_at_once"],
            "one": time(TIME(one)),
        },
        claims={
            f"{PAGE}: so what counts is how many programs fit": TIME(most) / TIME(few)
            > 0.9 * expected,
            f"{PAGE}: Occupancy alone doesn't tell": TIME(one) < 0.6 * TIME(few)
            and 2 * one["programs_at_once"] == 4 * few["programs_at_once"],
        },
    )


FIRST = {"target": "sm_90", "registers": 64, "num_warps": 4, "shared_bytes": 16_384}


def calculator(rows):
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
        finding="How many programs fit depends on what each needs.",
        caption="Programs of one kernel on one multiprocessor, by NVIDIA's rules: registers are "
        "given to warps in units of 256, a quarter of them to each scheduler; shared memory is "
        "given to programs, with 1 KiB of each for the driver. A grid with fewer programs fills "
        "less.",
        table=some,
        widget=widget(
            "occupancy",
            "latency_hiding",
            "[Limits and cases](/figures/latency_hiding/calculator_cases.json)",
            some,
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


def waves(results, rows):
    processors = rows[0]["multiprocessors"]

    def ms(tiles, name=WHOLE):
        return TIME(only(rows, implementation=name, tiles=tiles))

    one, beyond = (only(rows, implementation=WHOLE, tiles=processors + n) for n in (0, 1))
    apart = [ms(t, PERSISTENT) / ms(t) for t in values(rows, "tiles")]
    return Figure(
        finding=f"{processors} tiles fill the GPU once. One more tile, {processors + 1}, takes "
        f"{ratio(TIME(beyond) / TIME(one))} the time.",
        caption="Time over the number of tiles, each the same work; a multiprocessor holds one "
        f"program of the first two kernels at a time, and the GPU has {processors}.",
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
            log="",
            references=[
                Reference(
                    f"{n} × {processors}", lambda r, n=n: n * r.rows[0]["multiprocessors"], "x"
                )
                for n in (1, 2, 3)
            ],
        ),
        numbers={
            "full": processors,
            "full_time": TIME.text(one),
            "more": processors + 1,
            "more_time": TIME.text(beyond),
            "persistent": between(apart, ratio),
            "halves": time(ms(processors + 1, HALVES)),
        },
        claims={
            f"{PAGE}: It is hardly faster here": min(apart) > 0.95,
            f"{PAGE}: Smaller tiles help while": ms(processors + 1, HALVES) < 0.9 * TIME(beyond),
        },
    )


WALL, HOST = (
    field("wall_ms_p50", "time per launch", time),
    field("host_ms_p50", "CPU time", units.host_time),
)


QUEUED, EACH, GRAPH = "queued", "waiting for each", "CUDA graph"


def host_time(results, rows):
    calls = {r["way"]: r for r in pick(rows, kind="call")}
    add, launcher = calls["torch.add"], calls["Triton, through a launcher"]
    direct = calls["Triton, the compiled kernel"]
    queue = pick(rows, kind="queue")
    least = min(queue, key=lambda r: r["gpu_ms"])["steps"]

    def wall(mode, steps):
        return WALL(only(queue, mode=mode, steps=steps))

    hidden = [r for r in pick(queue, mode=QUEUED) if WALL(r) <= 1.1 * r["gpu_ms"]]
    chains = {r["way"]: r for r in rows if r["kind"] == "chain"}
    return Figure(
        finding=f"A kernel of {time(min(r['gpu_ms'] for r in queue))} takes "
        f"{units.host_time(wall(EACH, least))} if the CPU waits for each, "
        f"{units.host_time(wall(QUEUED, least))} queued, and its own time in a CUDA graph.",
        caption="Time per launch until the last of a hundred is done, over the GPU's own time for "
        "one; both axes logarithmic. Waiting for each: the CPU launches one and waits for it. "
        "Queued: it launches a hundred and then waits. CUDA graph: a hundred recorded launches, "
        "replayed together.",
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
        numbers={
            "add": HOST.text(add),
            "launcher": HOST.text(launcher),
            "direct": HOST.text(direct),
            "hidden": time(min(r["gpu_ms"] for r in hidden)),
            "operations": chains["eager"]["operations"],
            "eager": units.host_time(WALL(chains["eager"])),
            "graphed": WALL.text(chains["CUDA graph"]),
            "compiled": units.host_time(WALL(chains["torch.compile"])),
        },
    )
