"""The sentences, how each is read so that it can be checked, and the code that judges it.

A judge gets the result that a claim names and returns one Case for each regime. No verdict is
written down anywhere: other numbers give another verdict.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean

from snippets._lab.draw.rows import ceiling, moved, only, pick, rate, values
from snippets._lab.draw.units import (
    count,
    decimals,
    error,
    flops,
    percent,
    power_of_ten,
    ratio,
    share,
    thousands,
    time,
)
from snippets._lab.draw.words import how_often, many
from snippets._lab.results.store import DataError, Result

BASIC, ONE_LOAD = "basic_attention", "vectorized_attention"
SDPA, EAGER = "torch:sdpa", "torch:eager"
LAYERS = 6  # of the model behind the attention map
HALF = 0.5  # of a ceiling: what reaches it is limited by it


@dataclass(frozen=True)
class Case:
    """What a sentence is worth in one regime."""

    regime: str
    holds: bool
    measured: str


@dataclass(frozen=True)
class Claim:
    """A sentence, where one hears it, how it is read here, and what decides about it."""

    sentence: str
    heard: str
    read_as: str
    post: str  # whose measurement it is, and …
    result: str  # … which one: its figure stands on the post's page
    judge: Callable[[Result], list[Case]]


CLAIMS: dict[str, Claim] = {}


def claim(sentence: str, *, heard: str, read_as: str, source: str):
    """Enter the decorated judge as a claim, under the name of the function."""
    post, result = source.split("/")

    def enter(judge: Callable[[Result], list[Case]]):
        CLAIMS[judge.__name__] = Claim(sentence, heard, read_as, post, result, judge)
        return judge

    return enter


def cases_of(name: str, result: Result) -> list[Case]:
    """The verdict of a claim by regime. Raises DataError where the result cannot decide it."""
    try:
        cases = CLAIMS[name].judge(result)
    except (KeyError, ZeroDivisionError, ValueError) as error:
        text = f"{type(error).__name__}: {error}"
        where = f"{result.folder}/{result.post}/{result.result}"
        raise DataError(f"claim {name} cannot be judged from {where}: {text}") from error
    if not cases:
        raise DataError(f"claim {name} finds no regime in {result.post}/{result.result}")
    return cases


def verdict(cases: list[Case]) -> str:
    """ "true", "false" or "depends": on whether it holds in all regimes, in none, or in some."""
    held = {case.holds for case in cases}
    return "depends" if len(held) == 2 else "true" if held.pop() else "false"


TUTORIAL = "From a tutorial on attention kernels."
SAYING = "Often said."


# Attention itself.


@claim(
    "In “The cat sat on the mat”, *sat* attends to *cat* and *mat* and ignores *the*.",
    heard="From introductions to attention.",
    read_as="In most heads of a layer *cat* and *mat* get more than an equal share each, and both"
    " *the* less.",
    source="attention_weights/claims",
)
def sat_attends_to_cat_and_mat(result):
    row = only(result.rows, claim=0)
    heads = row["heads"] // LAYERS
    agree = [sum(layer == at for layer, _ in row["agree"]) for at in range(LAYERS)]
    return [
        Case(f"layer {at}", some > heads / 2, f"{some} of {heads} heads")
        for at, some in enumerate(agree)
    ]


@claim(
    "Without 1/√d the softmax saturates.",
    heard="From the paper that introduced the scale, and most texts since.",
    read_as="With queries and keys from N(0, 1) and no scale, the largest weight of a row of 256 "
    "keys takes more than half of the attention on average.",
    source="attention_weights/scaling",
)
def softmax_without_scaling_saturates(result):
    rows = pick(result.rows, scaled=False)
    largest = {d: mean(r["largest_weight"] for r in pick(rows, d=d)) for d in values(rows, "d")}
    return [Case(f"d {d}", x > HALF, f"largest weight {decimals(x)}") for d, x in largest.items()]


@claim(
    "A loop over 8 heads launches 48 kernels and more, the vectorised layer about 6.",
    heard=TUTORIAL,
    read_as="Launches of one forward pass as the profiler counts them: at least 48, and 5 to 7.",
    source="multi_head_attention/launches",
)
def launches_of_a_loop_and_of_a_layer(result):
    rows = pick(result.rows, passes="forward", heads=8)
    loop, wide = (
        only(rows, implementation=f"multi_head_attention:{form}")["launches"]
        for form in ("loop", "vectorized")
    )
    return [
        Case("a loop over 8 heads", loop >= 48, f"{loop} launches"),
        Case("all 8 heads at once", 5 <= wide <= 7, f"{wide} launches"),
    ]


@claim(
    "A kernel launch costs 5 to 10 µs.",
    heard=SAYING,
    read_as="Time of one launch among a hundred, on the host's clock or on the GPU's with a full "
    "queue.",
    source="multi_head_attention/empty_launch",
)
def a_launch_costs_five_to_ten_microseconds(result):
    each = [(r, r["ms_p50"] / r["launches"]) for r in pick(result.rows)]
    clocks = {"gpu": "on the GPU", "host": "on the host"}
    return [
        Case(f"{r['implementation']}, {clocks[r['clock']]}", 0.005 <= ms <= 0.01, time(ms))
        for r, ms in each
    ]


# Where the time goes.


@claim(
    "Most GPU operations are memory-bound.",
    heard=SAYING,
    read_as="More than half of a transformer layer's operations, by number or by time, reach at "
    "least half of the memory's ceiling, and a larger share of it than of the "
    "arithmetic's.",
    source="coalescing/bound",
)
def most_gpu_operations_are_memory_bound(result):
    cases = []
    for tokens in values(pick(result.rows), "tokens"):
        rows = pick(result.rows, tokens=tokens)
        bound = [r for r in rows if _is_memory_bound(r, result, r["product"], "bytes_compulsory")]
        for how, weight in (
            ("by number", lambda r: r["calls"]),
            ("by time", lambda r: r["calls"] * r["ms_p50"]),
        ):
            part = sum(map(weight, bound)) / sum(map(weight, rows))
            regime = f"{many(tokens, 'new token')}, {how}"
            cases.append(Case(regime, part > HALF, percent(part)))
    return cases


@claim(
    "Attention is memory-bound.",
    heard=SAYING,
    read_as="It reaches at least half of the memory's ceiling, and a larger share of it than of "
    "the arithmetic's.",
    source="attention_memory/intensity",
)
def attention_is_memory_bound(result):
    kinds = {"eager": "eager", SDPA: "fused"}
    cases = []
    for r in pick(result.rows):
        if r["implementation"] in kinds:
            one = r.get("M", r["N"]) == 1
            kind = "one query, a cache" if one else kinds[r["implementation"]]
            length = f"{count(r['N'])} keys" if one else f"N {count(r['N'])}"
            memory = _memory_share(r, result, "bytes_moved")
            bound = _is_memory_bound(r, result, True, "bytes_moved")
            measured = f"{percent(memory)} of the memory's ceiling"
            cases.append(Case(f"{kind}, {length}, D {r['D']}", bound, measured))
    return cases


def _memory_share(row, result, field):
    return moved(row, field) / ceiling(result, "read")


def _is_memory_bound(row, result, product, field):
    arithmetic = rate(row) / ceiling(result, "matmul_float16" if product else "fma_float32")
    memory = _memory_share(row, result, field)
    return memory >= HALF and memory >= arithmetic


@claim(
    "Tensor cores give 8×.",
    heard=TUTORIAL,
    read_as="Time of PyTorch's product of two N × N matrices in float32 over its time in float16;"
    " and the best rates of the units. Between 6 and 10 counts.",
    source="composed_attention/matmul",
)
def tensor_cores_give_eight_times(result):
    rows = pick(result.rows, implementation="torch:matmul")
    found = {
        f"float16 against float32, N {count(N)}": only(rows, dtype="float32", N=N)["ms_p50"]
        / only(rows, dtype="float16", N=N)["ms_p50"]
        for N in values(rows, "N")
    }
    best = {unit: ceiling(result, unit) for unit in result.ceilings}
    found["TF32 against float32, best rate"] = best["matmul_tf32"] / best["matmul_float32"]
    found["float16 against float32 units, best rate"] = best["matmul_float16"] / best["fma_float32"]
    return [Case(regime, 6 <= x <= 10, ratio(x)) for regime, x in found.items()]


@claim(
    "For tensor cores, dimensions must be multiples of 8.",
    heard=SAYING,
    read_as="In float16 an operation on heads of 65, 66 or 68 columns takes over a tenth longer "
    "than on 72, the next multiple of 8, although there is less to do.",
    source="multi_head_attention/head_dim",
)
def dimensions_must_be_multiples_of_eight(result):
    rows = pick(result.rows, dtype="float16")
    cases = []
    for operation in sorted({r["operation"] for r in rows}):
        ms = {D: only(rows, operation=operation, D=D)["ms_p50"] for D in (65, 66, 68, 72)}
        for D in (65, 66, 68):
            longer = ms[D] / ms[72]
            measured = f"{ratio(longer)} the time of D 72"
            cases.append(Case(f"{operation}, D {D}", longer > 1.1, measured))
    return cases


@claim(
    "FlashAttention is 2–4× faster.",
    heard="From summaries of the papers on it.",
    read_as="Time of eager attention, in separate operations, over the time of the fused kernel: "
    "between 2 and 4.",
    source="flash_attention/roofline",
)
def flash_attention_is_two_to_four_times_faster(result):
    eager = {r["N"]: r["ms_p50"] for r in pick(result.rows, implementation=EAGER)}
    cases = []
    for name, label in (("flash_attention", "our kernel"), ("torch:cudnn", "cuDNN's")):
        for r in pick(result.rows, implementation=name):
            if r["N"] in eager and r.get("M", r["N"]) > 1:
                faster = eager[r["N"]] / r["ms_p50"]
                cases.append(Case(f"{label}, N {count(r['N'])}", 2 <= faster <= 4, ratio(faster)))
    return cases


# One key at a time.


@claim(
    "A program is a thread.",
    heard="From short explanations of Triton.",
    read_as="One program runs on one thread of the GPU.",
    source="basic_attention/registers",
)
def a_program_is_a_thread(result):
    threads = sorted({32 * r["num_warps"] for r in pick(result.rows)})
    return [Case("the kernel with one key at a time", n == 1, many(n, "thread")) for n in threads]


@claim(
    "Each program reads 1,048,888 elements.",
    heard=TUTORIAL,
    read_as="Elements that one program loads for 1024 keys of 512 columns, as recorded.",
    source="basic_attention/traffic",
)
def elements_for_each_program(result):
    row = only(result.rows, case="one program")
    elements = row["elements"]
    return [
        Case(
            f"N {row['N']}, D {row['D']}", elements == 1_048_888, f"{thousands(elements)} elements"
        )
    ]


@claim(
    "The largest difference from PyTorch is 2e-6.",
    heard=TUTORIAL,
    read_as="The largest distance from float64 of the kernel in float32 rounds to 2e-6.",
    source="basic_attention/error",
)
def the_largest_difference_is_two_millionths(result):
    return [
        Case(
            f"N {count(r['N'])}, D {r['D']}",
            power_of_ten(r["error_largest"]) == power_of_ten(2e-6),
            error(r["error_largest"]),
        )
        for r in pick(result.rows, dtype="float32")
    ]


def _slower(rows, **case):
    return (
        only(rows, implementation=BASIC, **case)["ms_p50"]
        / only(rows, implementation=SDPA, **case)["ms_p50"]
    )


@claim(
    "One key at a time is 6.2× slower than PyTorch for 16 queries of 64 columns.",
    heard=TUTORIAL,
    read_as="The kernel's time over that of PyTorch's fused attention, within a tenth of 6.2.",
    source="basic_attention/forward",
)
def slower_by_six_at_sixteen_queries(result):
    slower = {t: _slower(result.rows, dtype=t, N=16, D=64) for t in ("float32", "float16")}
    return [
        Case(f"{dtype}, N 16, D 64", abs(x / 6.2 - 1) <= 0.1, ratio(x))
        for dtype, x in slower.items()
    ]


@claim(
    "One key at a time is up to 40× slower than PyTorch.",
    heard=TUTORIAL,
    read_as="The kernel's time over that of PyTorch's fused attention stays at or below 40 at "
    "every length that was measured.",
    source="basic_attention/forward",
)
def up_to_forty_times_slower(result):
    rows = pick(result.rows)
    cases = []
    for dtype in ("float32", "float16"):
        for D in values(rows, "D"):
            slower = {N: _slower(rows, dtype=dtype, N=N, D=D) for N in values(rows, "N")}
            worst = max(slower, key=slower.get)
            measured = f"up to {ratio(slower[worst])}, N {count(worst)}"
            cases.append(Case(f"{dtype}, D {D}", slower[worst] <= 40, measured))
    return cases


@claim(
    "One key at a time is slow because of cache misses.",
    heard=TUTORIAL,
    read_as="Half the loads then take much less time: with two queries a program, at most two "
    "thirds.",
    source="basic_attention/reuse",
)
def slow_because_of_cache_misses(result):
    rows = pick(result.rows)
    left = {
        N: only(rows, implementation=f"{BASIC}:exercise", N=N)["ms_p50"]
        / only(rows, implementation=BASIC, N=N)["ms_p50"]
        for N in values(rows, "N")
    }
    return [
        Case(
            f"16 heads, N {count(N)}",
            x <= 2 / 3,
            f"half the loads take {percent(x)} of the time",
        )
        for N, x in left.items()
    ]


@claim(
    "One key at a time is slow because nothing runs in parallel.",
    heard=TUTORIAL,
    read_as="1024 programs then take about 1024 times as long as one: at least half of that.",
    source="vectorized_attention/latency",
)
def slow_because_nothing_is_parallel(result):
    rows = pick(result.rows, implementation=BASIC)
    cases = []
    for N in values(rows, "N"):
        one, all_ = (only(rows, M=M, N=N)["ms_p50"] for M in (1, 1024))
        measured = f"1024 programs take {ratio(all_ / one)} the time of one"
        cases.append(Case(f"{count(N)} keys", all_ / one >= 512, measured))
    return cases


@claim(
    "A KV cache removes the redundant loads.",
    heard=TUTORIAL,
    read_as="Keys and values are there already, as they are in every call of a kernel; each byte "
    "of them is then loaded once. (With one query nothing was redundant before either.)",
    source="basic_attention/traffic",
)
def a_kv_cache_removes_redundant_loads(result):
    cases = []
    for name, label in (("one decoding step", "one query"), ("whole head", "a head of queries")):
        row = only(result.rows, case=name)
        again = row["bytes_loaded"] / row["bytes_compulsory"]
        regime = f"{label}: M {row['M']}, N {row['N']}"
        cases.append(Case(regime, again == 1, f"{ratio(again)} the bytes it must read"))
    return cases


# All keys at once.


@claim(
    "A column of 0…3 and a row of 0…3 add up to a tile that counts from 0 to 15.",
    heard=TUTORIAL,
    read_as="The largest element of `rows[:, None] + columns[None, :]` is 15.",
    source="vectorized_attention/broadcasting",
)
def two_aranges_count_to_fifteen(result):
    expression = "rows[:, None] + columns[None, :]"
    (largest,) = {r["largest"] for r in pick(result.rows, expression=expression)}
    return [Case("two aranges of 4", largest == 15, f"it ends at {largest}")]


@claim(
    "1024 trips become 2, so there are 512× fewer memory operations.",
    heard=TUTORIAL,
    read_as="One key at a time over all in one load, for one program and 1024 keys: at least 512.",
    source="vectorized_attention/traffic",
)
def fewer_memory_operations(result):
    before, after = (
        only(result.rows, case="one program", implementation=name) for name in (BASIC, ONE_LOAD)
    )
    return [
        Case(
            label,
            before[field] / after[field] >= 512,
            f"{thousands(before[field])} → {thousands(after[field])}",
        )
        for label, field in (("load instructions", "loads"), ("bytes", "bytes_loaded"))
    ]


@claim(
    "Each key is loaded exactly once.",
    heard=TUTORIAL,
    read_as="Recorded loads of k over its size, with all keys in one load.",
    source="vectorized_attention/traffic",
)
def each_key_is_loaded_once(result):
    cases = []
    for row in pick(result.rows, implementation=ONE_LOAD):
        times = row["key_elements"] / (row["N"] * row["D"])
        regime = f"{row['case']}: {many(row['programs'], 'program')}"
        cases.append(Case(regime, times == 1, how_often(times)))
    return cases


# --8<-- [start:judge]
@claim(
    "Vectorising is 3–5× faster.",
    heard=TUTORIAL,
    read_as="Time of one key at a time over that of all keys in one load: between 3 and 5.",
    source="vectorized_attention/forward",
)
def vectorising_is_three_to_five_times_faster(result):
    cases = []
    for r in pick(result.rows, implementation=ONE_LOAD):
        before = only(result.rows, implementation=BASIC, N=r["N"], D=r["D"])
        faster = before["ms_p50"] / r["ms_p50"]
        cases.append(Case(f"N {count(r['N'])}, D {r['D']}", 3 <= faster <= 5, ratio(faster)))
    return cases
    # --8<-- [end:judge]


@claim(
    "A trip to memory takes 100 ns, so 1024 of them take 102 µs.",
    heard=TUTORIAL,
    read_as="Time for each load of one program that reads 1024 keys, launch apart: 67 to 150 ns.",
    source="vectorized_attention/latency",
)
def a_trip_takes_a_hundred_nanoseconds(result):
    cases = []
    for name, label, loads in (
        ("each load waits", "each load waits for the one before", 1),
        (BASIC, "one key at a time", 2),
    ):
        short, long = (only(result.rows, implementation=name, M=1, N=N) for N in (256, 1024))
        ms = (long["ms_p50"] - short["ms_p50"]) / (loads * 768)
        cases.append(Case(label, 1e-4 / 1.5 <= ms <= 1.5e-4, f"{time(ms)} a load"))
    return cases


@claim(
    "97.3 % of the time is a memory stall.",
    heard=TUTORIAL,
    read_as="With the same row again and again, always in the nearest cache, at most a tenth of "
    "the time is left. (The profiler's own stall counters were not open to us.)",
    source="vectorized_attention/latency",
)
def nearly_all_time_is_a_memory_stall(result):
    cases = []
    names = (BASIC, "the same row each iteration")
    for N in values(pick(result.rows, implementation=BASIC, M=1024), "N"):
        whole, cached = (only(result.rows, implementation=i, M=1024, N=N)["ms_p50"] for i in names)
        left = cached / whole
        measured = f"{percent(left)} of {time(whole)} is left"
        cases.append(Case(f"1024 queries, {count(N)} keys", left <= 0.1, measured))
    return cases


@claim(
    "A GPU of 83 TFLOP/s runs at the speed of a calculator of 2005.",
    heard=TUTORIAL,
    read_as="Generously: at a thousandth, or less, of what the float32 units of the GPU reach at "
    "best.",
    source="vectorized_attention/latency",
)
def as_slow_as_a_calculator(result):
    cases = []
    for name, label in ((BASIC, "one key at a time"), (ONE_LOAD, "all keys in one load")):
        row = only(result.rows, implementation=name, M=1024, N=1024)
        reached, best = rate(row), ceiling(result, "fma_float32")
        measured = f"{flops(reached)}, {share(reached, best)} of the best"
        cases.append(Case(f"{label}, N 1024", reached <= 1e-3 * best, measured))
    return cases
