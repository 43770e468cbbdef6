"""The sentences, who says them, how each is read so that it can be checked, and what judges it.

A judge gets the result that a claim names and returns one Case for each regime. No verdict is
written down anywhere: other numbers give another verdict.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean

from snippets._lab.draw.identity import named
from snippets._lab.draw.rows import ceiling, moved, only, pick, rate, values
from snippets._lab.draw.units import count, host_time, many, percent, ratio, share, time
from snippets._lab.results.store import DataError, Result

SDPA, EAGER, CUDNN, FLASH = "torch:sdpa", "torch:eager", "torch:cudnn", "torch:flash"
SHORTEST = 1024  # keys: below, what does not grow with the length is a large part
HALF = 0.5  # of a ceiling: what reaches it is limited by it


@dataclass(frozen=True)
class Case:
    """What a sentence is worth in one regime."""

    regime: str
    holds: bool
    value: float  # what was compared, for a range over regimes
    measured: str  # the same in words


@dataclass(frozen=True)
class Source:
    """Where a sentence stands: who says it, with what title, the few words, and an address."""

    who: str
    title: str
    address: str
    words: str  # as they stand there
    about: str = ""  # what it says them of, where that is less than what is made of them


@dataclass(frozen=True)
class Claim:
    """A sentence, who says it, how it is read here, and what decides about it."""

    sentence: str
    said: Source
    read_as: str
    post: str  # whose measurement it is, and …
    result: str  # … which one: its figure stands on the post's page
    judge: Callable[[Result], list[Case]]


CLAIMS: dict[str, Claim] = {}


def claim(sentence: str, *, said: Source, read_as: str, measured: str):
    """Enter the decorated judge as a claim, under the name of the function."""
    post, result = measured.split("/")

    def enter(judge: Callable[[Result], list[Case]]):
        CLAIMS[judge.__name__] = Claim(sentence, said, read_as, post, result, judge)
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


# Attention.


@claim(
    "Standard attention is memory-bound.",
    said=Source(
        "Aayush Garg",
        "FlashAttention: Making Attention I/O-Aware",
        "https://huggingface.co/blog/garg-aayush/flash-attention",
        "Standard attention is memory-bound",
        about="standard attention, with separate operations",
    ),
    read_as="Attention in separate operations reaches at least half of the memory's ceiling, and a "
    "larger share of it than of the arithmetic's.",
    measured="attention_memory/intensity",
)
def attention_is_memory_bound(result):
    cases = []
    for r in pick(result.rows, implementation="eager"):
        shares = _shares(r, result, True, "bytes_moved")
        measured = "{} of the memory's ceiling, {} of the other".format(*map(percent, shares))
        nearer, regime = shares[0] / shares[1], f"N {count(r['N'])}, D {r['D']}"
        cases.append(Case(regime, _memory_limits(*shares), nearer, measured))
    return cases


def _shares(row, result, product, field):
    """What a row reaches of the memory's ceiling and of the arithmetic's."""
    arithmetic = ceiling(result, "matmul_float16" if product else "fma_float32")
    return moved(row, field) / ceiling(result, "read"), rate(row) / arithmetic


def _memory_limits(memory, arithmetic):
    """Whether work that reaches such shares is memory-bound."""
    return memory >= max(HALF, arithmetic)


FLASH_TWO = "Tri Dao", "FlashAttention-2, abstract", "https://arxiv.org/abs/2307.08691"


@claim(
    "FlashAttention is 2–4× faster than standard attention.",
    said=Source(
        *FLASH_TWO,
        "runtime speedup (2-4× compared to optimized baselines)",
        about="FlashAttention and the baselines of 2022",
    ),
    read_as="Time of attention in separate PyTorch operations over the time of a fused kernel: "
    "at least 2; more than 4 counts as well.",
    measured="flash_attention/roofline",
)
def flash_attention_is_two_to_four_times_faster(result):
    eager = {r["N"]: r["ms_p50"] for r in pick(result.rows, implementation=EAGER)}
    cases = []
    for name, label in (("flash_attention", "our kernel"), (CUDNN, "cuDNN's")):
        for r in pick(result.rows, implementation=name):
            if r["N"] in eager and r.get("M", r["N"]) > 1:
                faster = eager[r["N"]] / r["ms_p50"]
                cases.append(
                    Case(f"{label}, N {count(r['N'])}", faster >= 2, faster, ratio(faster))
                )
    return cases


@claim(
    "FlashAttention's memory grows linearly with the length, standard attention's quadratically.",
    said=Source(*FLASH_TWO, "significant memory saving (linear instead of quadratic)"),
    read_as="From 1024 keys to the longest that was measured, peak memory grows like the length "
    "in a fused kernel, and like its square with separate operations, within a tenth.",
    measured="attention_memory/peak_memory",
)
def memory_is_linear_instead_of_quadratic(result):
    cases = []
    for name, label, power in (
        (FLASH, "FlashAttention-2", 1),
        (CUDNN, "cuDNN", 1),
        ("flash_attention", "our kernel", 1),
        (EAGER, "separate operations", 2),
    ):
        for backward, passes in ((False, "forward"), (True, "forward and backward")):
            rows = [
                r
                for r in pick(result.rows, implementation=name, backward=backward)
                if r["N"] >= SHORTEST
            ]
            if len(rows) > 1:
                short, long = (end(rows, key=lambda r: r["N"]) for end in (min, max))
                grown = long["bytes_peak"] / short["bytes_peak"]
                like = (long["N"] / short["N"]) ** power
                regime = f"{label}, {passes}, N {count(short['N'])} to {count(long['N'])}"
                holds = abs(grown / like - 1) <= 0.1
                cases.append(Case(regime, holds, grown, f"{ratio(grown)} as much"))
    return cases


@claim(
    "cuDNN's attention is up to 75 % faster than FlashAttention-2 on Hopper.",
    said=Source(
        "The PyTorch team",
        "PyTorch 2.5 release notes",
        "https://github.com/pytorch/pytorch/releases/tag/v2.5.0",
        "up to 75% speed-up over FlashAttentionV2",
        about="an H100 in 2024",
    ),
    read_as="The time of PyTorch's FlashAttention-2 over cuDNN's is at least 1.75 in some case, "
    "and below 1 in none.",
    measured="flash_attention/forward",
)
def cudnn_is_up_to_three_quarters_faster(result):
    axes = ("dtype", "causal", "D", "N")
    flash = {
        tuple(r[a] for a in axes): r["ms_p50"] for r in pick(result.rows, implementation=FLASH)
    }
    cases = {}
    for r in pick(result.rows, implementation=CUDNN):
        mask = "causal" if r["causal"] else "full"
        what = f"{r['dtype']}, {mask}, D {r['D']}, N {count(r['N'])}"
        cases[what] = flash[tuple(r[a] for a in axes)] / r["ms_p50"]
    most, least = (end(cases, key=cases.__getitem__) for end in (max, min))
    of = f"of {many(len(cases), 'case')}"
    return [
        Case(f"the {word} {of}", cases[what] >= bar, cases[what], f"{ratio(cases[what])}: {what}")
        for word, what, bar in (("most", most, 1.75), ("least", least, 1))
    ]


@claim(
    "Without 1/√d, the softmax has extremely small gradients.",
    said=Source(
        "Vaswani et al.",
        "Attention Is All You Need, section 3.2.1",
        "https://arxiv.org/abs/1706.03762",
        "regions where it has extremely small gradients",
        about="large d, as a suspicion",
    ),
    read_as="With queries and keys from N(0, 1) and 256 keys, the gradient of the softmax of a "
    "typical row (the median) is less than a tenth of what it is with the scale.",
    measured="attention_weights/scaling",
)
def softmax_without_scaling_has_small_gradients(result):
    cases = []
    for d in values(pick(result.rows), "d"):
        bare, scaled = (
            mean(r["gradient_norm_median"] for r in pick(result.rows, d=d, scaled=with_scale))
            for with_scale in (False, True)
        )
        measured = f"{ratio(bare / scaled)} the gradient"
        cases.append(Case(f"d {d}", bare < scaled / 10, bare / scaled, measured))
    return cases


# The GPU.


@claim(
    "Most operations in a transformer are bottlenecked by memory accesses.",
    said=Source(
        "Dao et al.",
        "FlashAttention, section 1",
        "https://arxiv.org/abs/2205.14135",
        "most operations in Transformers are bottlenecked by memory accesses",
    ),
    read_as="More than half of a transformer layer's operations, by number or by time, reach at "
    "least half of the memory's ceiling, and a larger share of it than of the arithmetic's.",
    measured="coalescing/bound",
)
def most_operations_are_memory_bound(result):
    cases = []
    for tokens in values(pick(result.rows), "tokens"):
        rows = pick(result.rows, tokens=tokens)
        bound = [r for r in rows if _is_memory_bound(r, result)]
        for how, weight in (
            ("by number", lambda r: r["calls"]),
            ("by time", lambda r: r["calls"] * r["ms_p50"]),
        ):
            part = sum(map(weight, bound)) / sum(map(weight, rows))
            regime = f"{many(tokens, 'new token')}, {how}"
            cases.append(Case(regime, part > HALF, part, percent(part)))
    return cases


def _is_memory_bound(row, result):
    return _memory_limits(*_shares(row, result, row["product"], "bytes_compulsory"))


@claim(
    "A kernel launch takes on the order of microseconds.",
    said=Source(
        "Modal",
        "GPU Glossary, CUDA Graph",
        "https://modal.com/gpu-glossary/host-software/cuda-graph",
        "Each launch takes on the order of microseconds",
    ),
    read_as="Time of one launch among a hundred from Python: at least 1 µs and less than 100 on "
    "the host's clock, and on the GPU's with a full queue.",
    measured="multi_head_attention/empty_launch",
)
def a_launch_takes_microseconds(result):
    each = [(r, r["ms_p50"] / r["launches"]) for r in pick(result.rows)]
    clocks = {"gpu": ("on the GPU", time), "host": ("on the host", host_time)}
    return [
        Case(f"{r['implementation']}, {where}", 0.001 <= ms < 0.1, ms, said(ms))
        for r, ms in each
        for where, said in [clocks[r["clock"]]]
    ]


@claim(
    "Tensor cores provide 8× more throughput than single precision.",
    said=Source(
        "NVIDIA",
        "Train With Mixed Precision",
        "https://docs.nvidia.com/deeplearning/performance/mixed-precision-training/index.html",
        "8x more throughput than single precision math pipelines",
        about="Volta, the first GPU that had any",
    ),
    read_as="Time of PyTorch's product of two N × N matrices in float32 over its time in float16;"
    " and the best rates of the units. At least 6 counts.",
    measured="composed_attention/matmul",
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
    return [Case(regime, x >= 6, x, ratio(x)) for regime, x in found.items()]


@claim(
    "Tensor cores are more efficient when dimensions are multiples of 16 bytes.",
    said=Source(
        "NVIDIA",
        "Matrix Multiplication Background, section 2.2",
        "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/"
        "index.html",
        "efficiency is better when matrix dimensions are multiples of 16 bytes",
    ),
    read_as="16 bytes are 8 numbers in float16. An operation on heads of 65, 66 or 68 columns "
    "takes over a tenth longer than on 72, the next multiple of 8, although there is less to do.",
    measured="multi_head_attention/head_dim",
)
def multiples_of_sixteen_bytes_are_more_efficient(result):
    rows = pick(result.rows, dtype="float16")
    cases = []
    for operation in sorted({r["operation"] for r in rows}):
        ms = {D: only(rows, operation=operation, D=D)["ms_p50"] for D in (65, 66, 68, 72)}
        for D in (65, 66, 68):
            longer = ms[D] / ms[72]
            measured = f"{ratio(longer)} the time of D 72"
            cases.append(Case(f"{operation}, D {D}", longer > 1.1, longer, measured))
    return cases


@claim(
    "A stride of 2 halves the efficiency of loads.",
    said=Source(
        "NVIDIA",
        "CUDA C++ Best Practices Guide, Strided Accesses",
        "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#strided-accesses",
        "a stride of 2 results in a 50% of load/store efficiency",
    ),
    read_as="A copy reads as much as it writes, and only its reads are strided. If its time is "
    "that of the bytes, reading every second element is 45 to 55 % efficient.",
    measured="coalescing/strides",
)
def a_stride_of_two_halves_the_efficiency(result):
    cases = []
    for r in pick(result.rows, stride=2):
        dense = only(result.rows, stride=1, implementation=r["implementation"], dtype=r["dtype"])
        efficiency = 1 / (2 * r["ms_p50"] / dense["ms_p50"] - 1)
        regime = f"{named(r['implementation'])}, {r['dtype']}"
        cases.append(Case(regime, 0.45 <= efficiency <= 0.55, efficiency, share(efficiency)))
    return cases
