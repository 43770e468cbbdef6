"""What the page about other cards measures: every kernel is compiled, and none runs."""

import ast
import contextlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import triton
from torch.overrides import TorchFunctionMode

from snippets._lab.judge.patch import occurs
from snippets._lab.probe.compiled import Compiler
from snippets._lab.probe.gpus import ARCHITECTURES, CARDS
from snippets._lab.rooms import ROOT, attention_rooms, load, measured_on

TARGETS = tuple(dict.fromkeys(card.target for card in CARDS))
# Of one card of each target. No kernel is another one for it, only a launch's number of programs.
MULTIPROCESSORS = {card.target: card.multiprocessors for card in CARDS if card.multiprocessors}
DTYPES = ("float16", "bfloat16", "float32")
HEADS = 8
WIDTHS = (64, 128, 256)

# Launcher → (keys, columns, causal) of the calls that are compiled: together they make it choose
# each configuration that it has. There are as many queries as keys, but few for longer rows, except
# where their number decides.
ONE_QUERY = [(1024, 64, False), (16_384, 64, False)]
CASES = {
    "attention_weights": ONE_QUERY,
    "basic_attention": ONE_QUERY,
    "vectorized_attention": [(256, 64, False), (512, 64, False)],
    "composed_attention": [
        *((1024, D, False) for D in WIDTHS),
        (64, 64, False),
        *((keys, 64, False) for keys in (4096, 32_768)),
    ],
    "flash_attention": [(1024, D, causal) for causal in (False, True) for D in WIDTHS],
    "masks_and_packing": [(1024, D, causal) for causal in (False, True) for D in WIDTHS],
    "hopper_attention": [
        *((keys, 64, False) for keys in (1024, 2560, 16_384)),
        (1024, 128, False),
        *((keys, 64, True) for keys in (1024, 16_384)),
        (1024, 128, True),
    ],
}
EVERY_WIDTH = [(1024, D, False) for D in WIDTHS]  # any other launcher
TILING = ("BLOCK", "CONSUMERS", "STAGES")  # how a kernel's constants begin that a table shows
LONGEST = 1024  # keys with as many queries
FEW = 16  # queries of a longer row
SLOW = 60  # seconds


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a launcher: its name, what a table says of it, and what it is called with."""

    launcher: str
    case: str
    function: Callable[..., Any]
    dtype: str
    shapes: list[tuple[int, ...]]  # of its tensors; multiples of 16
    options: dict[str, Any]


def calls():
    """Every call to compile.

    bfloat16 gets float16's configurations, so that one call says whether it works; nor has float32
    other ones with a mask.
    """
    for room in attention_rooms():
        for dtype in DTYPES:
            cases = CASES.get(room, EVERY_WIDTH)[: 1 if dtype == "bfloat16" else None]
            for keys, D, causal in cases:
                if causal and dtype == "float32":
                    continue
                queries = keys if keys <= LONGEST or room == "hopper_attention" else FEW
                shapes = [(1, HEADS, rows, D) for rows in (queries, keys, keys)]
                if room == "attention_weights":
                    del shapes[2]
                text = f"{keys} keys, D {D}" + ", causal" * causal
                launcher = getattr(load(room, "kernel"), room)
                options = {"causal": True} if causal else {}
                yield Call(room, text, launcher, dtype, shapes, options)
    memory = load("coalescing", "kernel")
    for dtype in DTYPES:
        for stride in (1, 32):
            text, options = f"stride {stride}", {"stride": stride}
            yield Call("coalescing", text, memory.coalescing, dtype, [(32_768,)], options)
        for dim in (1, 0):
            text = "rows" if dim else "columns"
            yield Call("line_sums", text, memory.line_sums, dtype, [(1024, 1024)], {"dim": dim})


def check(device):
    """Raise unless a launcher on a pretended card sees that card, and chooses for it."""
    for target in TARGETS:
        with on_card(target):
            x = torch.empty(2, 16)
            seen = torch.cuda.get_device_properties(x.device).shared_memory_per_block_optin
        if x.device.type != "cuda" or seen != ARCHITECTURES[target].shared_block:
            raise RuntimeError(f"a launcher does not see the pretended card {target}")


class OnCard(torch.Tensor):
    """A tensor in main memory that says it is on a GPU: a launcher asks, and no kernel reads it."""

    device = property(lambda self: torch.device("cuda", 0))


class Allocations(TorchFunctionMode):
    """What is allocated says so too."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.empty, torch.zeros):
            return function(*args, **(kwargs or {}) | {"device": "cpu"}).as_subclass(OnCard)
        return function(*args, **kwargs or {})


@contextlib.contextmanager
def on_card(target):
    """A launcher called inside refuses and chooses as it would on a GPU of the target."""
    amd = target.startswith("gfx")
    major, minor = divmod(94 if amd else int(target.removeprefix("sm_")), 10)
    about = {
        "major": major,
        "minor": minor,
        "shared_memory_per_block_optin": ARCHITECTURES[target].shared_block,
        "shared_memory_per_multiprocessor": ARCHITECTURES[target].shared_sm,
    }
    if target in MULTIPROCESSORS:  # a launcher that asks for what nobody states must fail
        about["multi_processor_count"] = MULTIPROCESSORS[target]
    _forget_cards()
    with (
        contextlib.ExitStack() as after,
        Allocations(),
        patch.object(torch.cuda, "is_available", lambda: True),
        patch.object(torch.cuda, "get_device_capability", lambda *_: (major, minor)),
        patch.object(
            torch.cuda, "get_device_properties", lambda *_: types.SimpleNamespace(**about)
        ),
        patch.object(torch.cuda, "device_of", lambda _: contextlib.nullcontext()),
        patch.object(torch.version, "hip", "6" if amd else None),
    ):
        after.callback(_forget_cards)
        yield


def _forget_cards():
    """Launchers remember what a GPU is and has: a card's place is another's now."""
    for room in attention_rooms():
        for known in vars(load(room, "kernel")).values():
            if hasattr(known, "cache_clear"):
                known.cache_clear()
    for room in ("flash_attention", "hopper_attention", "decode_attention"):
        load(room, "kernel")._plans.clear()


def launches(lab, call, target):
    """What a call launches on a card of the target. Raises what the launcher raises."""
    # The interpreter's own detours must not be compiled: no GPU takes them.
    compiled = patch.dict(call.function.__globals__, INTERPRETED=False)
    with compiled, on_card(target):
        tensors = [torch.empty(shape, dtype=getattr(torch, call.dtype)) for shape in call.shapes]
        return lab.compiler.launches(call.function, tensors, call.options, target=target)


def arguments(launch):
    """(kernel, its arguments by name, and options: warps, stages)."""
    kernel = getattr(sys.modules[launch.module], launch.kernel)
    return kernel, dict(zip(kernel.arg_names, launch.args, strict=False)) | launch.kwargs


def constants(launch):
    """The compile-time arguments of a launch, by name, and its options."""
    kernel, named = arguments(launch)
    fixed = kernel.fn.__annotations__
    return {
        name: value
        for name, value in named.items()
        if name in fixed or name not in kernel.arg_names
    }


def specialised(launch):
    """What Triton compiles anew for, beside the dtype: constants, ones and multiples of 16.

    And the blocks that descriptors move.
    """
    kernel, named = arguments(launch)
    alike = getattr(kernel, "do_not_specialize", None) or ()  # the interpreter's has no such list
    sizes = [
        (x == 1, x % 16 == 0)
        for name, x in named.items()
        if isinstance(x, int) and name not in alike
    ]
    blocks = [x.block_shape for x in named.values() if hasattr(x, "block_shape")]
    return launch.kernel, str(constants(launch)), str(sizes), str(blocks)


@measured_on("compiler", targets=TARGETS, every_launcher=True)
def kernels(lab):
    """What each kernel needs that a launcher launches on a card, or why it refuses."""
    wanted = {}  # what Triton would compile → the launch, and the first call that asks for it
    for call in calls():
        about = {"launcher": call.launcher, "case": call.case, "dtype": call.dtype}
        try:
            for launch in launches(lab, call, lab.target):
                key = call.launcher, call.dtype, *specialised(launch)
                wanted.setdefault(key, (launch, {**about, "refused": None}))
        except (TypeError, ValueError) as error:
            wanted[call] = None, {**about, "kernel": None, "refused": f"{error}".splitlines()[0]}
    steps = lab.each(kernel=range(1, len(wanted) + 1))
    for _, (launch, about) in zip(steps, wanted.values(), strict=True):
        if launch is None:
            yield about
        else:
            blocks = {k: v for k, v in constants(launch).items() if k.startswith(TILING)}
            yield {**about, "blocks": blocks, **lab.compiler.compiled(launch).as_row()}


# Of each that pyproject.toml allows, the version that everything was tried with.
TRITONS = ("3.6.0", "3.7.1", "3.8.0", "3.9.0")


def one_of_each():
    """(module, launcher, arguments, options): together they launch every kernel of snippets/.

    The first launch of a kernel counts. A kernel that no function launches is named itself.
    """

    def tensor(*shape, dtype="float16"):
        return torch.empty(shape, dtype=getattr(torch, dtype))

    x, row = tensor(1, HEADS, 1024, 64), tensor(1, HEADS, 1024, dtype="float32")
    few, one = tensor(1, HEADS, FEW, 64), tensor(1, HEADS, 1, 64)
    short, lengths = tensor(1, HEADS, 512, 64), tensor(1, dtype="int32")
    places, numbers = tensor(4096, dtype="int32").zero_(), tensor(4096, dtype="float32")
    matrix, square = numbers.view(64, 64), tensor(64, 64)
    given = x, x, x, x, row, x  # q, k, v, out, lse, grad_out
    ring = load("ring_attention", "kernel")
    step = ring.Step(0, 0, 1024, 0, 1024, False)
    state, sums = (x.float(), row, row, x, row), (x.float(), x.float(), x.float())
    yield from [
        ("attention_weights.kernel", "attention_weights", (x, x), {}),
        ("basic_attention.kernel", "basic_attention", (x, x, x), {}),
        ("basic_attention.exercise", "basic_attention", (x, x, x), {}),
        ("vectorized_attention.kernel", "vectorized_attention", (few, short, short), {}),
        ("vectorized_attention.exercise", "vectorized_attention", (few, x, x), {}),
        ("vectorized_attention.bench", "_chain_kernel", (places, places, 16), {}),
        ("vectorized_attention.bench", "_grids_kernel", (places, places), {}),
        ("composed_attention.kernel", "composed_attention", (x, x, x), {}),
        ("tiled_attention.kernel", "tiled_attention", (x, x, x), {}),
        ("flash_attention.kernel", "flash_attention", (x, x, x), {}),
        ("flash_backward.kernel", "flash_backward", given, {}),
        ("flash_backward.kernel", "flash_backward", tuple(x.float() for x in given), {}),
        ("flash_backward.one_pass", "one_pass", given, {}),
        ("flash_backward.two_passes", "two_passes", given, {}),
        ("masks_and_packing.kernel", "masks_and_packing", (x, x, x), {"window": (99, 0)}),
        (
            "masks_and_packing.backward",
            "masks_and_packing_backward",
            given,
            {"bias": numbers[:1024].view(1, 1, 1, 1024), "want_grad_bias": True},
        ),
        ("masks_and_packing.exercise", "prefix_mask", (matrix, 3), {}),
        ("masks_and_packing.exercise", "tiles_of_sequences", (places[:4], 16, 4), {}),
        ("same_bits.kernel", "same_bits", (x, x, x), {"split": True}),
        ("same_bits.exercise", "row_sums", (matrix, 16, 8), {}),
        ("same_bits.one_order", "linear", (matrix, matrix), {}),
        ("same_bits.one_order", "rms_norm", (matrix, (64,), numbers[:64], 1e-6), {}),
        ("same_bits.one_order", "log_softmax", (matrix,), {}),
        ("same_bits.experiments", "rows", (square, square, 64, 4), {}),
        ("hopper_attention.kernel", "hopper_attention", (x, x, x), {}),
        ("hopper_attention.small", "scores", (x[0, 0], x[0, 0]), {}),
        ("hopper_backward.kernel", "hopper_backward", given, {}),
        ("decode_attention.kernel", "decode_attention", (one, x, x), {"num_splits": 2}),
        ("decode_attention.kernel", "cache_append", (one, one, x, x, lengths), {}),
        ("ring_attention.kernel", "_launch_step", (x, x, x, state, step, 0.125), {"first": True}),
        (
            "ring_attention.kernel",
            "_launch_backward",
            (x, x, row, row, 0.125, x, x, sums, step),
            {},
        ),
        ("ring_attention.op", "hopper_step", (x, x, x, state, step, 0.125), {"first": True}),
        ("coalescing.kernel", "coalescing", (numbers,), {"stride": 32}),
        ("coalescing.kernel", "line_sums", (matrix,), {"dim": 0}),
        ("coalescing.exercise", "column_sums", (matrix,), {}),
        ("latency_hiding.kernel", "latency_hiding", (places, places), {"steps": 16}),
        ("latency_hiding.kernel", "copy_in_flight", (numbers,), {"programs": 8}),
        ("latency_hiding.kernel", "work_on_tiles", (matrix,), {"steps": 16}),
        ("latency_hiding.kernel", "hold_and_wait", (places, places, numbers), {"steps": 16}),
        ("latency_hiding.exercise", "latency_hiding", (places, places), {"steps": 16}),
        ("multi_head_attention.bench", "_empty_kernel", (numbers,), {}),
        ("multi_head_attention.bench", "_one_kernel", (numbers,), {}),
        ("attention_memory.bench", "_walk", (numbers, numbers, 16), {}),
        ("attention_memory.bench", "_turn", (numbers, numbers, 16), {}),
        ("diagnose.kernels.flash", "flash", (x, x, x), {}),
        ("_lab.measure.ceilings", "read", (numbers,), {}),
        ("_lab.measure.ceilings", "_fma_kernel", (numbers, 16), {"BLOCK": 256}),
    ]


def compiled_here(target):
    """A row for each kernel of `one_of_each`, as the Triton of this process compiles it."""
    found = {}  # (module, kernel) → what came of it
    with Compiler(SLOW) as compiler:
        with on_card(target):
            for module, name, given, options in one_of_each():
                if "hopper" in f"{module}.{name}" and target != "sm_90":
                    continue
                module = importlib.import_module(f"snippets.{module}")
                function = getattr(module, name)
                launcher = function[(1,)] if hasattr(function, "arg_names") else function
                with patch.dict(vars(module), INTERPRETED=False):
                    for launch in compiler.launches(launcher, given, options, target=target):
                        found.setdefault((launch.module, launch.kernel), launch)
        for (module, kernel), launch in found.items():
            resources = compiler.compiled(launch)
            yield {
                "triton": triton.__version__,
                "module": module.removeprefix("snippets."),
                "kernel": kernel,
                "registers": resources.registers,
                "spill_store_bytes": resources.spill_store_bytes,
                "shared_bytes": resources.shared_bytes,
                "error": resources.error,
            }


def on_triton(version, target):
    """The rows of `compiled_here`, from a process that has this version of Triton."""
    environment = dict(os.environ)
    if version != triton.__version__:
        folder = f".cache/triton-{version}"
        if not (ROOT / folder).is_dir():
            raise RuntimeError(f"Triton {version} is not there to compile: make {folder}")
        environment["PYTHONPATH"] = f"{ROOT / folder}"
    rows = compiled_here.__name__
    code = f"import json; from {__name__} import {rows}; print(json.dumps([*{rows}({target!r})]))"
    told = {"capture_output": True, "text": True, "timeout": SLOW * 10}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, **told)
    if done.returncode:
        raise RuntimeError(f"with Triton {version}: {done.stderr.strip()}")
    return json.loads(done.stdout)


@measured_on("compiler", targets=("sm_80", "sm_90"), every_launcher=True)
def tritons(lab):
    """Whether each Triton that pyproject.toml allows compiles every kernel."""
    for step in lab.each(triton=TRITONS):
        yield from on_triton(step["triton"], lab.target)


class Point(NamedTuple):
    """What a post says about its kernel, as the code of the kernel must show it."""

    room: str
    dtype: str
    shapes: list[tuple[int, ...]]
    claim: str  # for a reader
    pattern: str  # the instruction
    python: str  # code in the statement that must have made it
    launcher: str = ""  # the room's own if left out
    file: str = "kernel"  # of the room: where the launcher is
    options: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    absent: str | None = None  # an instruction that must not be anywhere in the kernel
    machine: bool = False  # look at the machine code: spills come after PTX


QKV = [(1, HEADS, 1024, 64)] * 3
# One for each post with a kernel, two where a post compares two.
POINTS = [
    Point(
        room="attention_weights",
        dtype="float32",
        shapes=QKV[:2],
        claim="exp is a multiplication and the one exponential that the GPU has, of base 2",
        pattern=r"ex2\.approx",
        python="weights = tl.exp(",
    ),
    Point(
        room="coalescing",
        dtype="float32",
        shapes=[(32_768,)],
        options={"stride": 1},
        claim="stride 1: each thread loads one number, and the 32 of a warp lie side by side",
        pattern=r"ld\.global\S*\.b32",
        python="x = tl.load(",
        absent=r"ld\.global\S*\.v[24]",
    ),
    Point(
        room="coalescing",
        dtype="float32",
        shapes=[(32_768,)],
        options={"stride": 32},
        claim="stride 32: the same instruction, only the addresses lie apart",
        pattern=r"ld\.global\S*\.b32",
        python="x = tl.load(",
        absent=r"ld\.global\S*\.v[24]",
    ),
    Point(
        room="basic_attention",
        dtype="float32",
        shapes=QKV,
        claim="in each iteration a thread loads one number of a key's row, and nothing wider",
        pattern=r"ld\.global\S*\.b32",
        python="k = tl.load(",
        absent=r"ld\.global\S*\.v[24]",
    ),
    Point(
        room="vectorized_attention",
        dtype="float32",
        shapes=[(1, HEADS, rows, 64) for rows in (FEW, 512, 512)],
        claim="a spill: addresses of the values wait in local memory until v is loaded",
        pattern=r"\bSTL\b",
        python="v_tile += ",
        machine=True,
    ),
    Point(
        room="composed_attention",
        launcher="matmul",
        file="parts",
        dtype="float16",
        shapes=[(FEW, 64), (64, 64)],
        claim="16 rows are too few for Hopper's own instruction: each warp multiplies 16 × 8 tiles",
        pattern=r"mma\.sync",
        python="acc = tl.dot(",
        absent=r"wgmma",
    ),
    Point(
        room="tiled_attention",
        dtype="float32",
        shapes=QKV,
        claim="no tensor core: each product is a multiply-add of the ordinary units",
        pattern=r"fma\.rn\.f32",
        python="scores = tl.sum(",
        absent=r"mma\.sync|wgmma|tcgen05",
    ),
    Point(
        room="flash_attention",
        dtype="float16",
        shapes=QKV,
        claim="four warps together multiply 64 rows, and go on before the result is there",
        pattern=r"wgmma\.mma_async",
        python="s = tl.dot(",
    ),
    Point(
        room="hopper_attention",
        dtype="float16",
        shapes=QKV,
        claim="who loads: one thread asks TMA for a whole tile, and no thread loads a number",
        pattern=r"cp\.async\.bulk\.tensor\S*\.shared\S*\.global",
        python="_tma_load(",
        absent=r"ld\.global|cp\.async\.c[ag]",
    ),
    Point(
        room="hopper_attention",
        dtype="float16",
        shapes=QKV,
        claim="who computes: four warps multiply 64 queries with 128 keys, 16 columns at a time",
        pattern=r"wgmma\.mma_async\S*\.m64n128k16",
        python="return warpgroup_mma(q_tile, ",
    ),
    Point(
        room="masks_and_packing",
        dtype="float16",
        shapes=QKV,
        options={"softcap": 20.0},
        claim="a soft cap: tanh is no instruction that keeps its digits, so it comes from exp2",
        pattern=r"ex2\.approx",
        python="return 1.0 - 2.0 / (1.0 + tl.exp2(",
    ),
]


@measured_on("compiler", targets=("sm_90",))
def excerpts(lab):
    """The instruction that shows each post's point, and the line of Python that made it."""
    for step in lab.each(point=range(len(POINTS))):
        point = POINTS[step["point"]]
        function = getattr(load(point.room, point.file), point.launcher or point.room)
        call = Call(point.room, "", function, point.dtype, point.shapes, point.options)
        (launch,) = launches(lab, call, lab.target)
        found = lab.compiler.compiled(launch)
        code = listing(found) if point.machine else found.ptx
        if point.absent and (unwanted := re.search(point.absent, code)):
            raise LookupError(f"{found.kernel} has {unwanted.group()}, and must not")
        python, lines, count = excerpt(code, launch.file, point.pattern, point.python)
        yield {
            "post": point.room,
            "kernel": found.kernel,
            "dtype": point.dtype,
            "claim": point.claim,
            "python": python,
            "language": "SASS" if point.machine else "PTX",
            "lines": lines,
            "instructions": count,
        }


SHOWN = 3  # lines of an excerpt
# `.loc 2 263 15 // standard.py:263:15 @[ kernel.py:85:24 ]` in PTX, and nvdisasm's form of it.
SOURCE = re.compile(
    r'^\s*\.loc\s.*//(?P<ptx>.*)$|^\s*//## File "(?P<file>[^"]+)", line (?P<line>\d+)'
)


def excerpt(code, file, pattern, python):
    """(Python line, first instructions, how many there are) of `pattern` below a line of `file`.

    Triton writes beside each instruction which line it stems from. Only instructions count whose
    line has the code `python`; a statement of several lines is one. Raises LookupError for none.
    """
    with open(file, encoding="utf-8") as opened:
        source = statements(opened.read())
    name, line, found = re.escape(file.rpartition("/")[2]), "", []
    for text in code.splitlines():
        if match := SOURCE.match(text):
            if match["ptx"]:  # innermost first; the first in the kernel's own file counts
                number = re.search(rf"{name}:(\d+):", match["ptx"])
                line = source.get(int(number[1]), "") if number else ""
            elif match["file"].endswith(file.rpartition("/")[2]):
                line = source.get(int(match["line"]), "")  # 0 is no line
        elif re.search(pattern, text) and occurs(line, python):
            found.append((line, shortened(text)))
    if not found:
        raise LookupError(f"no {pattern!r} stems from a line with {python!r}")
    return found[0][0], [text for _, text in found[:SHOWN]], len(found)


def statements(source):
    """Line number → the statement without a body that the line is a part of, or the line."""
    lines = source.splitlines()
    found = {number: line.strip() for number, line in enumerate(lines, 1)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            text = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
            found |= dict.fromkeys(range(node.lineno, node.end_lineno + 1), text)
    return found


def shortened(text):
    """An instruction without its address, and of a long list of registers the ends only."""
    text = re.sub(r"^/\*\w+\*/\s*", "", text.strip())
    return re.sub(r"\{\s*([^,{}]+),(?:[^,{}]+,){3,}\s*([^,{}]+?)\s*\}", r"{\1, …, \2}", text)


def listing(resources):
    """The machine code of a kernel with the Python lines that it stems from."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(resources.cubin)
        cubin.flush()
        command = [triton.knobs.nvidia.nvdisasm.path, "-g", "-c", cubin.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"nvdisasm: {done.stderr.strip()}")
    return done.stdout
