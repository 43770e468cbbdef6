"""What the page of flash_attention measures: one function for each result."""

import ast
import contextlib
import functools
import io
import itertools
import textwrap
from collections.abc import Sequence
from typing import NamedTuple
from unittest.mock import patch

import torch
import triton

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import (
    NumericalMismatch,
    assert_attention,
    causal_mask,
    deviation,
    make_qkv,
)
from snippets._lab.judge.patch import replace
from snippets._lab.measure.competitors import resolve, same_work
from snippets._lab.measure.timing import time_host
from snippets._lab.rooms import measured_on, source_file

from . import kernel
from .kernel import Tile, flash_attention

OURS = "flash_attention"
WRONG_UNDER_A_TOOL = {  # of compute-sanitizer → why that is the tool's doing, with the evidence
    "racecheck": (
        "Triton 3.6.0's warp specialization initializes barriers that nobody uses where the first "
        "tile of keys will lie, and racecheck takes that memory for barriers from then on; without "
        "those ten lines of PTX 12 of 12 results are right under it, with them 4"
    )
}


def check(device):
    """Raise unless the kernel is right on this device; no result is stored before it passed."""
    dtypes = [torch.float16, torch.bfloat16, torch.float32]
    lengths = ((1, 65), (130, 256), (257, 130))
    for dtype, D, (M, N) in itertools.product(dtypes, (64, 128), lengths):
        q, k, v = make_qkv(1, 2, M=M, N=N, D=D, dtype=dtype, device=device)
        assert_attention(flash_attention(q, k, v), q, k, v)
        mask = causal_mask(M, N, device=device)
        assert_attention(flash_attention(q, k, v, causal=True), q, k, v, mask=mask)


@measured_on("gpu")
def forward(lab):
    """Time beside PyTorch's backends, the same number of tokens at every length."""
    axes = {"dtype": ["bfloat16", "float16"], "causal": [False, True], "D": [64, 128]}
    for case in lab.each(**axes, N=[1024, 4096, 16_384]):
        names = [OURS, "torch:cudnn", "torch:flash"]
        if case["dtype"] == "bfloat16":
            names.append("torch:flex")  # compiles for every shape, the same for both
        yield from lab.time_attention(same_work(case), names)


def in_two_loops():
    """The code of the loop, and that of two: without a mask as far as possible, then with."""
    one = source_file(OURS).read_text(encoding="utf-8")
    two = replace(one, "tl.range(0, end,", "tl.range(first, last,")
    two = replace(two, "start >= unmasked_end", "second")
    return loop_in(one), (
        "    for second in tl.static_range(2 if MASKED else 1):\n"
        "        first = unmasked_end if second else 0\n"
        "        last = unmasked_end if MASKED and not second else end\n"
    ) + textwrap.indent(loop_in(two), "    ")


def loop_in(text):
    """The code of the kernel's loop over keys."""
    (loop,) = (
        ast.get_source_segment(text, node, padded=True)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.For) and ast.unparse(node.iter).startswith("tl.range(")
    )
    return loop


ROUNDED = "rounded = p.to(q_tile.dtype)"
SUMMED = "l_i = l_i * alpha + row_sum"
PRODUCT = 'acc = tl.dot(rounded, v_tile, acc, input_precision="ieee")'
OTHER_ORDER = [  # the order in which one would write it: sum, correction, rounding, product
    (ROUNDED, SUMMED),
    (f"{PRODUCT}\n        {SUMMED}", f"{ROUNDED}\n        {PRODUCT}"),
]


class Rung(NamedTuple):
    """A variant of the kernel: one step taken back, or one step further."""

    step: str  # what the kernel has and this variant lacks; if further, the reverse
    changes: Sequence[tuple[str, str]] = ()  # pieces of kernel.py, and what replaces them
    config: Tile = Tile(64, 64, 4, 3)  # for both head dimensions; spills nothing
    further: bool = False
    only_causal: bool = False  # without a mask all rows are equally long, and there is one loop


BASE = "all of the above"  # the kernel as it is, with one tile for all cases
RUNGS = {
    "exp by e": Rung(
        "exp2 in place of exp",
        [
            (
                "p = tl.exp2((s * before - m_sub[:, None]) * after)",
                "p = tl.exp((s * before - m_sub[:, None]) * after / LOG2_E)",
            ),
            ("tl.exp2((m_i - m_sub) * after)", "tl.exp((m_i - m_sub) * after / LOG2_E)"),
        ],
    ),
    "a mask on every tile": Rung(
        "a mask only where needed", [("elif MASKED and start >= unmasked_end:", "elif True:")]
    ),
    "two loops": Rung("one loop, with a branch", [in_two_loops()], only_causal=True),
    "lines in another order": Rung("lines in the fastest order", OTHER_ORDER),
    "pointers": Rung(
        "descriptors in place of pointers", [("use_tma = gpu in", "use_tma = False and gpu in")]
    ),
    "shortest rows first": Rung(
        "longest rows first",
        [("tile_idx = num_tiles - 1 - tile_idx", "tile_idx = tile_idx + 0")],
        only_causal=True,
    ),
    "heads side by side": Rung(
        "rows of a head side by side",
        [
            (
                "tile_idx = pid % num_tiles",
                "heads = tl.num_programs(0) // num_tiles\n    tile_idx = pid // heads",
            ),
            (
                "b, h = pid // num_tiles // H, pid // num_tiles % H",
                "b, h = pid % heads // H, pid % H",
            ),
        ],
    ),
    "nothing in flight": Rung("loads in flight", config=Tile(64, 64, 4, 1)),
    BASE: Rung(BASE),
    "taller tiles": Rung("more queries a program", config=Tile(128, 64, 4, 3), further=True),
    "large tiles": Rung("larger tiles on more warps", config=Tile(128, 128, 8, 2), further=True),
    "warp specialisation": Rung(
        "warp specialisation",
        [  # the mask on every tile, if there is one: the loop may hold no branch
            ("if MASKED and WARP_SPECIALIZE:", "if False:"),
            ("elif MASKED and start >= unmasked_end:", "elif MASKED:"),
            ("config.warp_specialize and not causal", "config.warp_specialize"),
        ],
        Tile(128, 128, 4, 2, warp_specialize=True),
        further=True,
    ),
}


def with_config(launcher, config):
    """The launcher (the page's, or a variant of it) with this config and not its table's."""
    names = getattr(launcher, "__wrapped__", launcher).__globals__

    def choose(*_):  # one function for all calls: a launcher knows its plans by it
        return config

    def launch(*tensors, **options):
        chosen, names["_tile_config"] = names["_tile_config"], choose
        try:
            return launcher(*tensors, **options)
        finally:
            names["_tile_config"] = chosen

    return launch


def launcher_of(rung):
    """The launcher of a rung."""
    launcher = variant(OURS, rung.changes) if rung.changes else flash_attention
    return with_config(launcher, rung.config)


@measured_on("gpu")
def ladder(lab):
    """One step taken back at a time, and three steps further, each correct, all in turn."""
    launchers = {name: launcher_of(rung) for name, rung in RUNGS.items()}
    for launcher in launchers.values():
        for causal in (False, True):
            q, k, v = make_qkv(1, 2, N=300, D=128, dtype=torch.bfloat16, device="cuda")
            mask = causal_mask(300, 300, device="cuda") if causal else None
            assert_attention(launcher(q, k, v, causal=causal), q, k, v, mask=mask)
    for case in lab.each(dtype=["bfloat16"], causal=[False, True], D=[64, 128], N=[4096]):
        for row in lab.time_attention(same_work(case), [OURS, "torch:cudnn"], launchers):
            yield row | about_rung(row["implementation"], case["causal"])


def about_rung(name, causal):
    """What the row of a rung says beside its time: the step, and whether it matters here."""
    if name not in RUNGS:
        return {}
    rung = RUNGS[name]
    kind = "base" if name == BASE else "further" if rung.further else "back"
    return {"step": rung.step, "kind": kind, "matters": causal or not rung.only_causal}


BUILT_UP = {  # a step → pieces of first.py, with the steps before, and what replaces them
    "a dozen lines": [],
    "powers of two": [
        ("alpha = tl.exp(m_i - m_new)", "alpha = tl.exp2(m_i - m_new)"),
        ("p = tl.exp(s - m_new[:, None])", "p = tl.exp2(s - m_new[:, None])"),
        ("N, D**-0.5, D=D", "N, D**-0.5 * 1.4426950408889634, D=D"),
    ],
    "scaled by the subtraction": [
        ("s = tl.dot(q, k.T) * scale", "s = tl.dot(q, k.T)"),
        ("tl.maximum(m_i, tl.max(s, axis=1))", "tl.maximum(m_i, tl.max(s, axis=1) * scale)"),
        ("p = tl.exp2(s - m_new[:, None])", "p = tl.exp2(s * scale - m_new[:, None])"),
    ],
    "descriptors": [
        ("    k_tile = (head * N + rows)[:, None] * D + cols[None, :]\n", ""),
        ("k = tl.load(k_ptr + k_tile + start * D)", "k = k_ptr.load([head * N + start, 0])"),
        ("v = tl.load(v_ptr + k_tile + start * D)", "v = v_ptr.load([head * N + start, 0])"),
        (
            "    out = torch.empty_like(q)\n",
            "    out = torch.empty_like(q)\n"
            "    k, v = (TensorDescriptor.from_tensor(x.view(-1, D), [T, D]) for x in (k, v))\n",
        ),
        (
            "import triton.language as tl\n",
            "import triton.language as tl\n"
            "from triton.tools.tensor_descriptor import TensorDescriptor\n",
        ),
    ],
}
TILED = {  # the last step, by D: the tile of the kernel's table
    64: [
        ("T: tl.constexpr):", "T: tl.constexpr, KEYS: tl.constexpr):"),
        ("range(0, N, T)", "range(0, N, KEYS)"),
        ("x.view(-1, D), [T, D])", "x.view(-1, D), [128, D])"),
        ("D=D, T=T)", "D=D, T=T, KEYS=128, num_stages=2)"),
    ],
    128: [
        ("T=64", "T=128"),
        ("range(0, N, T)", "tl.range(0, N, T, warp_specialize=True)"),
        ("D=D, T=T)", "D=D, T=T, num_stages=2)"),
        (  # As in kernel.py: half of the queries go to each group of warps. For the second half
            # Triton 3.6 moves the row, and with it all that is the same expression.
            "q = tl.load(q_ptr + q_tile)",
            "q = tl.make_tensor_descriptor(q_ptr + head * M * D, [M, D], [D, 1], [T, D])\n"
            "    q = q.load([(tl.program_id(0) + 1) * T - T, 0])",
        ),
    ],
}


def built_up(D):
    """Step → first.py's function with it and all steps before, of q, k and v [..., N, D]."""
    triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device="cuda"))
    changes, found = [], {}
    for step, more in (BUILT_UP | {"a larger tile": TILED[D]}).items():
        changes = [*changes, *more]
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its own check
            attention = variant(OURS, changes, "first", "attention")
        found[step] = functools.partial(_flattened, attention)
    return found


def _flattened(attention, q, k, v):
    return attention(*(x.flatten(0, -3) for x in (q, k, v))).view(q.shape)


@measured_on("gpu")
def staircase(lab):
    """The page's first kernel, one step more at a time, and the whole kernel."""
    for case in lab.each(dtype=["bfloat16"], causal=[False], D=[64, 128], N=[4096]):
        launchers = built_up(case["D"])
        q, k, v = make_qkv(1, 2, N=256, D=case["D"], dtype=torch.bfloat16, device="cuda")
        for name in [*launchers]:
            try:
                assert_attention(launchers[name](q, k, v), q, k, v)
            except NumericalMismatch as wrong:  # a compiler's doing: in the interpreter it is right
                yield {"implementation": name, **same_work(case), "error": f"wrong: {wrong}"}
                del launchers[name]
        yield from lab.time_attention(same_work(case), [OURS, "torch:cudnn"], launchers)


# --8<-- [start:sweep]
SWEEP = [
    *itertools.starmap(Tile, itertools.product([128], [64, 128], [4, 8], [2, 3])),
    *(Tile(64, 64, 4, num_stages) for num_stages in (2, 3, 4)),
    *(Tile(64, 128, 4, num_stages) for num_stages in (2, 3)),
    Tile(128, 32, 4, 4),
    Tile(256, 64, 8, 2),
    *(Tile(128, *rest, True) for rest in ((64, 4, 2), (128, 4, 2), (128, 4, 3))),
]
# --8<-- [end:sweep]


@measured_on("gpu")
def sweep(lab):
    """Time of every tile that fits the GPU, at a short and a longer length."""
    for case in lab.each(dtype=["bfloat16"], causal=[False, True], D=[64, 128], N=[1024, 16_384]):
        case = same_work(case)
        launchers = {config: with_config(flash_attention, config) for config in SWEEP}
        tensors = lab.qkv(case)
        reasons = {c: why_not(case, tensors, c, launcher) for c, launcher in launchers.items()}
        fits = {label(c): launcher for c, launcher in launchers.items() if not reasons[c]}
        timed = {row["implementation"]: row for row in lab.time_attention(case, [OURS], fits)}
        yield timed[OURS]
        for config, reason in reasons.items():
            row = timed.get(label(config)) or {"implementation": label(config), "error": reason}
            yield {**row, **case, **config._asdict()}


def why_not(case, tensors, config, launcher):
    """Why a launcher with this config cannot run this case on the GPU at hand; "" if it can."""
    if config.warp_specialize and case["causal"]:
        return "not divided among warps: the loop holds a branch"
    try:
        launcher(*tensors, causal=case["causal"])
    except triton.runtime.errors.OutOfResources as error:
        return f"{error}".partition(". Reducing")[0]
    except RuntimeError as error:  # a pass of the compiler gave up
        return f"does not compile: {error}".splitlines()[0]
    return ""


def label(config):
    """What the rows of a config are called."""
    special = ", specialised" if config.warp_specialize else ""
    tile = f"{config.BLOCK_M} × {config.BLOCK_N}"
    return f"{tile}, {config.num_warps} warps, {config.num_stages} stages{special}"


KERNELS = {  # implementation → what it is, in a few words
    "basic_attention": "one key at a time",
    "vectorized_attention:exercise": "32 keys at a time",
    "composed_attention": "three kernels",
    "tiled_attention": "tiles, no tensor cores",
    OURS: "tiles on tensor cores",
    "torch:eager": "eager PyTorch",
    "torch:sdpa": "PyTorch SDPA",
    "torch:cudnn": "PyTorch, cuDNN",
}


@measured_on("gpu")
def kernels(lab):
    """Every kernel of the series on the same work: 8 heads, N 1024, D 64."""
    for case in lab.each(dtype=["float16"], heads=[8], D=[64], N=[1024, 4096]):
        for row in lab.time_attention(case, list(KERNELS)):
            yield row | {"label": KERNELS[row["implementation"]]}


@measured_on("gpu")
def roofline(lab):
    """Time over length for the roofline: intensity grows with N; one query has next to none."""
    for case in lab.each(dtype=["bfloat16"], D=[128], N=[128, 256, 512, 1024, 2048, 4096, 8192]):
        case = {**case, "batch": 4, "heads": 16}
        names = [OURS, "torch:cudnn"] + ["torch:eager"] * (case["N"] <= 4096)
        yield from lab.time_attention(case, names)
    for case in lab.each(dtype=["bfloat16"], D=[128], M=[1], N=[4096, 16_384]):
        yield from lab.time_attention({**case, "batch": 8, "heads": 16}, [OURS, "torch:sdpa"])


@measured_on("gpu", "interpreter")
def error(lab):
    """Distance from float64, largest and mean, beside PyTorch's own in the same dtype."""
    gpu = lab.place == "gpu"
    names = ["torch:math", "torch:flash", "torch:cudnn", "torch:efficient", "torch:eager"]
    dtypes = ["float16", "bfloat16", "float32"]
    for case in lab.each(dtype=dtypes, D=[64, 128], N=[256, 1024, 4096] if gpu else [256]):
        q, k, v = lab.qkv({**case, "batch": 1, "heads": 2})
        for name in (OURS, *(names if gpu else ["torch:eager"])):
            if case["dtype"] == "float32" and name in ("torch:flash", "torch:cudnn"):
                continue  # 16 bits only
            found = deviation(resolve(name)(q, k, v), q, k, v)
            yield {"implementation": name, **case, "largest": found.largest, "mean": found.mean}


A_CALL = "a call"
ASKED = "launch, found by Triton"


@measured_on("gpu")
def host_time(lab):
    """What a call costs the host, whole and in parts, beside PyTorch's; the GPU's work is short."""
    for case in lab.each(dtype=["bfloat16"], D=[64, 128]):
        case |= {"batch": 1, "heads": 8, "N": 128}
        q, k, v = lab.qkv(case)
        calls = {(A_CALL, n): functools.partial(resolve(n), q, k, v) for n in (OURS, "torch:sdpa")}
        calls |= {(part, OURS): call for part, call in host_parts(q, k, v).items()}
        for (part, name), taken in time_host(calls).items():
            yield {"implementation": name, "part": part, **case, **taken.as_row()}


def host_parts(q, k, v):
    """Parts of a call, to be made one at a time; and the launch without the kept kernel."""
    triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device="cuda"))
    given = []
    with patch.object(kernel, "_launch", lambda *launch: given.append(launch)):
        flash_attention(q, k, v)
    launch = functools.partial(kernel._launch, *given[0])

    def found_by_triton():
        kernel._compiled.clear()
        launch()

    return {
        "refusals": lambda: [*kernel._refusals(q, k, v, None, False, "bottom_right", False)],
        "their looking up": lambda: kernel._plan(q, k, v, None, False, "bottom_right", False),
        "memory for the result": lambda: torch.empty_like(q),
        "launch": launch,
        ASKED: found_by_triton,
    }


@measured_on("gpu")
def memory(lab):
    """Bytes allocated while a call runs, beyond its inputs: the result, and nothing of N × N."""
    lengths = [1024, 4096, 16_384, 65_536]
    for case in lab.each(dtype=["bfloat16"], heads=[8], D=[64], N=lengths):
        q, k, v = lab.qkv(case)
        for name in (OURS, *(["torch:eager"] if case["N"] <= 16_384 else [])):
            call = resolve(name)
            call(q[:, :64], k[:, :64], v[:, :64])  # compiles, and takes its workspace
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            out = call(q, k, v)
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() - before
            yield {
                "implementation": name,
                **case,
                "peak_bytes": peak,
                "result_bytes": out.numel() * out.element_size(),
            }
            del out


EXAMPLES = {"every key": False, "causal": True}
COLUMNS = 4  # of 16, for a player that fits a page


def example():
    """q [1, 1, 8, 16], k and v [1, 1, 14, 16] in steps of 0.1, float16."""
    q, k, v = make_qkv(1, 1, M=8, N=14, D=16, seed=147, spread=1.5)
    return [((x * 10).round() / 10).half() for x in (q, k, v)]


@measured_on("interpreter")
def scene(lab):
    """The kernel's own variables, tile by tile, for queries 0 to 3."""
    from snippets._lab.probe.recording import recording, running_softmax

    launcher = with_config(flash_attention, Tile(BLOCK_M=4, BLOCK_N=4, num_warps=4, num_stages=1))
    names = ("start", "s", "m_i", "alpha", "p", "l_i", "acc", "scale_log2", "unmasked_end")
    q, k, v = example()
    for case in lab.each(example=list(EXAMPLES)):
        causal = EXAMPLES[case["example"]]
        with recording(kernel._flash_attention_kernel, q, k, v, names) as recorded:
            out = launcher(q, k, v, causal=causal)
        assert_attention(out, q, k, v, mask=causal_mask(8, 14) if causal else None)
        program = (1, 0, 0) if causal else (0, 0, 0)  # causal: the last rows start first
        # What the running maximum is compared with, in base 2.
        known = recorded.of(program)[0].values
        scores = {"scores": "s", "scale": known["scale_log2"]}
        tiles, whole = running_softmax(recorded, program, **scores)
        last = tiles[-1]
        divided = torch.tensor(last["acc"]) / torch.tensor(last["l"])[:, None]
        if not torch.equal(divided.half(), out[0, 0, :4]):
            raise RuntimeError("the last step divided by l is not what the launcher returned")
        for row in tiles:
            shown = {name: [x[:COLUMNS] for x in row[name]] for name in ("acc", "acc_before")}
            yield case | row | shown | {"masked": row["start"] >= known["unmasked_end"]}
        heads = (x[0, 0, :, :COLUMNS].tolist() for x in (q[..., :4, :], k, v, out[..., :4, :]))
        inputs = dict(zip(("q", "k", "v", "result"), heads, strict=True))
        sizes = {"queries": 4, "keys": 14, "tile": 4, "columns": COLUMNS, "all_queries": 8}
        called = {"scores": "s", "scale": "scale_log2", "masked_from": "unmasked_end"}
        launch = recorded.launch(out, program, **called)
        yield case | {"base": "2", **sizes} | whole | inputs | launch
