"""The page's interpreter of kernels, in Chromium, against Triton's own and Triton's front end.

What Triton's interpreter makes of the rooms' kernels, and of their wrong variants, on fixed
problems is recorded in docs/data (judge/problems.py); here the engine runs the same texts on them.
"""

import ast
import json
import random
import re
import textwrap

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from snippets._lab.judge import problems
from snippets._lab.judge.mutants import mutate
from snippets._lab.judge.patch import replace
from snippets._lab.results import staleness, store
from snippets._lab.rooms import (
    DATA,
    ROOT,
    for_scripts,
    load,
    load_file,
    room_file,
    rooms,
    source_file,
)
from snippets._site.browser import Server
from snippets._site.scripts import bundle, needed
from tests.apart import printed
from tests.browser.engine_idioms import (
    AT_RUN_TIME,
    COMPILED,
    HELPERS,
    IMPORTS,
    LINES,
    REAL,
    WHOLE,
    parted,
)
from tests.floors import some

pytest_plugins = ["tests.browser.browser"]

ENGINE = ROOT / "docs/assets/javascripts/playground/engine"
ROOMS = [room for room in rooms() if for_scripts(room)]
RECORDED = [(room, result) for room in ROOMS for result in for_scripts(room)]
LEAST_REJECTED, LEAST_NAMED = 0.96, 0.70  # of all wrong variants whose kernels are changed

# Wrong variants that no problem rejects, and why.
SURVIVORS = {
    "tiled_attention: hidden NaN gets in": "needs a value that is NaN, and float64 attention of "
    "one is NaN too",
    "flash_attention: key beyond the end": "the line runs only in a warp-specialized kernel",
    "flash_backward: gradients replaced, not added to": "needs gradients that came before",
    "flash_backward: identity off by one": "the line runs only with a Hopper GPU's tiles",
    "flash_backward: groups of heads overlap": "needs more programs than a GPU runs at one time",
    "decode_attention: forgotten keys read": "needs keys before a window that are no numbers",
    "decode_attention: splits begin at the window": "needs a batch-invariant call",
    "masks_and_packing: bias of the first batch": "needs two batches",
    "masks_and_packing: later heads of a packed batch": "needs more programs than a GPU runs at "
    "one time",
}
IN_FLOAT8 = {  # which the engine does not have
    "decode_attention: first head's scale of keys",
    "decode_attention: scale of values left out",
    "decode_attention: one column of two",
    "decode_attention: queries too large for float16",
    "decode_attention: float8 multiplied by its scale",
    "decode_attention: float8 halves rounded down",
    "decode_attention: float8 not limited",
}
# Wrong variants whose result is not that of Triton's interpreter, and why.
DIFFERENT = {
    "composed_attention: tile not transposed": "it stores what masked lanes loaded, which is "
    "undefined: 0 there, NaN here",
    "latency_hiding: last walker dropped": "an integer that nobody writes is as it was: 0 here",
}


def worker_text():
    return bundle(needed((ENGINE / "worker.js").resolve()))


@pytest.fixture(scope="module")
def ask(browser, tmp_path_factory):
    """Sends a task to the engine as it is shipped, and gives its answer."""
    folder = tmp_path_factory.mktemp("engine")
    (folder / "worker.js").write_text(worker_text(), "utf-8")
    (folder / "verdict.js").write_text(bundle(needed((ENGINE / "verdict.js").resolve())), "utf-8")
    (folder / "index.html").write_text("<!doctype html><title>engine</title>", "utf-8")
    with Server(folder) as server:
        context = browser.new_context()
        page = context.new_page()
        page.goto(server.address)
        page.evaluate(HARNESS)
        yield lambda task, **fields: page.evaluate(
            "(message) => ask(message)", {"task": task, **fields}
        )
        context.close()


# Answers are plain lists: typed arrays do not leave the page.
HARNESS = """async () => {
  const worker = new Worker("worker.js", { type: "module" });
  const { judge, likeness } = await import(new URL("verdict.js", location.href).href);
  const waiting = new Map();
  worker.onmessage = ({ data }) => {
    waiting.get(data.id)(data);
    waiting.delete(data.id);
  };
  let last = 0;
  const send = (message) => new Promise((resolve) => {
    last += 1;
    waiting.set(last, resolve);
    worker.postMessage({ ...message, id: last });
  });
  const plain = (value) => JSON.parse(JSON.stringify(value, (key, x) => {
    if (ArrayBuffer.isView(x)) return Array.from(x, (n) => (Number.isFinite(n) ? n : String(n)));
    return typeof x === "number" && !Number.isFinite(x) ? String(x) : x;
  }));
  const problem = async ({ source, row, options }) => {
    const given = { ...row, name: row.problem };
    const answer = await send({ task: "problem", source, problem: given, options });
    if (answer.failure) throw new Error(answer.failure);
    return answer.result;
  };
  window.ask = async (message) => {
    if (message.task === "all") {
      const answers = [];
      for (const { source, rows, file } of message.texts) {
        const results = [];
        for (const row of rows) results.push(await problem({ source, row }));
        const verdict = file === undefined ? null : judge(source, results, message.files[file]);
        const seen = verdict ? likeness(results, message.files[file]) : [];
        const likes = seen.map((one) => one?.like ?? null);
        for (const result of results) delete result.outputs; // long, and nobody asks for them
        answers.push({ verdict, likes, results });
      }
      return plain(answers);
    }
    if (message.task === "problem") return plain(await problem(message));
    const answer = await send(message);
    if (answer.failure) throw new Error(answer.failure);
    return plain(answer.result);
  };
}"""


def recorded(room, result="problems"):
    return store.read(DATA / "interpreter" / room / f"{result}.json", DATA).rows


def all_recorded(room):
    return [row for result in for_scripts(room) for row in recorded(room, result)]


def texts(room):
    """The files of a room whose kernels are recorded; one_pass.py is made of kernel.py's parts."""
    names = {row["file"] for row in all_recorded(room) if "problem" in row}
    found = {name: room_file(room, f"{name}.py").read_text("utf-8") for name in sorted(names)}
    return {name: (name == "one_pass") * found["kernel"] + text for name, text in found.items()}


def variants(room):
    """name → (file, text): a room's mutants, and its exercises' usual wrong answers."""
    found = {}
    for file, listed in (("kernel", "MUTANTS"), ("exercise", "EXERCISE")):
        mutants = [m for m in getattr(load(room, "mutants"), listed, ()) if not m.file]
        source = room_file(room, f"{file}.py").read_text("utf-8") if mutants else ""
        changed = {m.name: mutate(source, m) for m in mutants}
        own = problems.kernels_of(source)
        kept = {name: text for name, text in changed.items() if problems.kernels_of(text) != own}
        found |= {name: (file, text) for name, text in kept.items()}
    return found


# What is shipped.


@pytest.mark.parametrize("room", ROOMS)
def test_the_problems_of_a_post_cover_its_kernels(room):
    launched = {one["kernel"] for row in recorded(room) for one in row.get("launches", ())}
    tree = ast.parse(source_file(room).read_text("utf-8"))
    jit = {
        f.name
        for f in tree.body
        if isinstance(f, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in f.decorator_list)
    }
    called = {
        n.func.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
    assert jit - called <= launched, "a kernel without a problem"


@pytest.mark.parametrize(("room", "result"), RECORDED)
def test_the_problems_are_those_of_the_code(room, result):
    found = store.read(DATA / "interpreter" / room / f"{result}.json", DATA)
    assert not staleness.changed(found), f"make bench-cpu POST={room} RESULT={result}"


# Agreement.


@pytest.mark.browser
def test_no_alarm_on_right_kernels(ask):
    """Every kernel and every exercise's answer, on every problem: right, and nothing said."""
    sent = {
        (room, file): (text, [row for row in all_recorded(room) if row.get("file") == file])
        for room in ROOMS
        for file, text in texts(room).items()
    }
    answers = ask("all", texts=[{"source": text, "rows": rows} for text, rows in sent.values()])
    results = [
        (name, result["name"], result["error"], result["faults"], result["right"])
        for name, answer in zip(sent, answers, strict=True)
        for result in answer["results"]
    ]
    assert not [result for result in some(results, 120) if not result[-1]]


@pytest.mark.browser
def test_wrong_variants_are_rejected_and_named_and_agree_with_triton(ask):
    sent, about, files = [], [], {}
    for room, result in RECORDED:
        rows = recorded(room, result)
        files[f"{room}/{result}"] = {"rows": rows}
        listed = {row["mistake"] for row in rows if row.get("source") == "variant"}
        for name, (file, text) in variants(room).items():
            if name in listed:
                mine = [row for row in rows if row.get("file") == file]
                sent.append({"source": text, "rows": mine, "file": f"{room}/{result}"})
                about.append((room, result, file, name))
    assert {(room, name) for room, _, _, name in about} == {
        (room, name) for room in ROOMS for name in variants(room)
    }
    answers = ask("all", texts=sent, files=files)
    survived, unnamed, apart, rejected = set(), set(), set(), set()
    compared = 0
    for (room, result, file, name), answer in zip(about, answers, strict=True):
        verdict, label = answer["verdict"], f"{room}: {name}"
        if file == "exercise":
            assert verdict["mistake"], f"{label}: no name"
        (survived if verdict["right"] else rejected).add(label)
        if not verdict["right"] and verdict["mistake"] is None:
            unnamed.add(label)
        (row,) = [
            row
            for row in recorded(room, result)
            if row.get("mistake") == name and row["source"] == "variant"
        ]
        for number, like in zip(row["prints"][0], answer["likes"], strict=True):
            if number >= 0 and like is not None:
                compared += 1
                if not like[number]:
                    apart.add(label)
    assert compared > 1_000
    assert apart == set(DIFFERENT)
    survived -= rejected  # by other problems
    assert survived == set(SURVIVORS) | IN_FLOAT8
    possible = len(about) - len(IN_FLOAT8)
    assert len(about) - len(survived) >= LEAST_REJECTED * possible
    assert len(about) - len(survived | unnamed) >= LEAST_NAMED * possible


# The front end.

FRONT_END = """
import json, os, sys
from pathlib import Path
os.environ.pop("TRITON_INTERPRET", None)
from snippets._lab.rooms import load_file
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource, make_backend
target = GPUTarget("cuda", 90, 32)
backend = make_backend(target)
options = backend.parse_options({})
tools = backend.get_codegen_implementation(options), backend.get_module_map()

def said(path):
    try:
        function = load_file(path, path.stem)._fuzz_kernel
        signature = {p.name: kind(p) for p in function.params}
        known = {(function.arg_names.index("BLOCK"),): 16}
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        source = ASTSource(fn=function, signature=signature, constexprs=known)
        source.make_ir(target, options, *tools, context)
        return None
    except Exception as error:
        while error.__cause__ is not None:
            error = error.__cause__
        return str(error)

def kind(p):
    if p.is_constexpr:
        return "constexpr"
    if p.name in ("i_ptr", "j_ptr", "whole_ptr"):
        return "*i32"
    return "*fp32" if p.name.endswith("_ptr") else "fp32" if p.name == "s" else "i32"

print(json.dumps([said(Path(sys.argv[1], f"{i}.py")) for i in range(int(sys.argv[2]))]))
"""
# Of the refused idioms: the rest differs in how a type or an index is shown.
LEAST_IN_ITS_WORDS = 0.6


def words(text):
    """The words of a message, without what differs from printer to printer."""
    return set(re.findall(r"[a-z_]{3,}", text.lower()))


def front_end(folder, texts):
    """What Triton's front end says of each; None if it accepts it."""
    for number, text in enumerate(texts):
        (folder / f"{number}.py").write_text(text, "utf-8")
    said = printed("-c", FRONT_END, folder, len(texts), TRITON_INTERPRET=None)
    return json.loads(said.splitlines()[-1])


# Idioms.

FUZZED = """

@triton.jit
def _fuzz_kernel(x_ptr, y_ptr, i_ptr, j_ptr, out_ptr, whole_ptr, s, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    i = tl.load(i_ptr + offs)
    j = tl.load(j_ptr + offs)
"""
TILES = """
    r = offs[:, None] * 16 + offs[None, :]
    t = tl.load(x_ptr + r)
    m = offs < n
"""


OF_THE_PINNED_TRITON = pytest.mark.skipif(
    f"triton=={triton.__version__}" not in (ROOT / "constraints.txt").read_text("utf-8"),
    reason="names and refusals differ from one Triton to the next",
)


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore")
@OF_THE_PINNED_TRITON
def test_idioms_are_refused_and_computed_as_by_triton(ask, tmp_path):
    """Refused or not as by the front end; the interpreter's numbers, but for COMPILED."""
    whole = [*parted(WHOLE), *COMPILED]
    bodies = [f"tl.store(out_ptr + offs, {one})" for one in parted(REAL)]
    bodies += [f"tl.store(whole_ptr + offs, {one})" for one in whole]
    bodies += [*LINES, *AT_RUN_TIME]
    compiled = {f"tl.store(whole_ptr + offs, {one})": value for one, value in COMPILED.items()}
    head = IMPORTS + "import triton\nimport triton.language as tl\n" + HELPERS + FUZZED + TILES
    texts = [head + textwrap.indent(body.strip(), "    ") + "\n" for body in bodies]
    assert len(texts) >= 550
    front = front_end(tmp_path, texts)
    generator = torch.Generator().manual_seed(1)
    given = {name: torch.randn(1024, generator=generator) for name in "xy"}
    given |= {
        name: torch.randint(-9, 10, (1024,), generator=generator, dtype=torch.int32)
        for name in "ij"
    }
    given["j"][given["j"] == 0] = 1
    given |= {"out": torch.full((1024,), -77.0), "whole": torch.full((1024,), -77).int()}
    wrong, alike = [], []
    for number, (body, text, theirs) in enumerate(zip(bodies, texts, front, strict=True)):
        inputs = {name: x.clone() for name, x in given.items()}
        answer = launched(ask, text, "_fuzz_kernel", inputs, SCALARS | {"BLOCK": 16})
        ours = answer["error"] and answer["error"]["message"]
        interpreted = None
        if theirs is None and body not in compiled:
            try:
                module = load_file(tmp_path / f"{number}.py", f"idiom_{number}")
                module._fuzz_kernel[(1,)](*inputs.values(), 0.75, 5, BLOCK=16)
            except triton.runtime.errors.InterpreterError as error:
                interpreted = str(error)
        got = numbers(answer)
        if body in AT_RUN_TIME:
            words_ = AT_RUN_TIME[body]
            right = theirs is None and words_ in interpreted and words_ in ours
        elif theirs is not None:
            right = ours is not None and "engine" not in ours  # it is refused for Triton's reason
            alike.append(right and len(words(ours) & words(theirs)) >= 0.6 * len(words(ours)))
        elif body in compiled:
            right = got["whole_ptr"][:16] == [compiled[body]] * 16
        else:
            near = pytest.approx(inputs["out"].tolist(), rel=2e-5, abs=2e-5, nan_ok=True)
            whole = inputs["whole"].tolist()
            right = not ours and not interpreted
            right = right and got["whole_ptr"] == whole and got["out_ptr"] == near
        if not right:
            wrong.append((body, theirs, interpreted, ours))
    assert not wrong
    assert sum(alike) >= LEAST_IN_ITS_WORDS * len(some(alike, 150))


SCALARS = {"s": {"type": "float32", "value": 0.75}, "n": 5}


def launched(ask, text, kernel, tensors, others, **options):
    """The engine's answer to a launch of one program."""
    args = {f"{name}_ptr": placed(name, x.flatten()) for name, x in tensors.items()} | others
    return ask("run", source=text, kernel=kernel, grid=[1], args=args, options=options)


def numbers(answer):
    """What the outputs of a launch hold: argument → numbers."""
    return {name: [*map(float, args["data"])] for name, args in answer["outputs"].items()}


def placed(name, value):
    dtype = "float32" if value.is_floating_point() else "int32"
    return {
        "data": value.tolist(), "dtype": dtype, "shape": [len(value)], "strides": [1], "offset": 0,
        "name": name, "output": name in ("out", "whole"),
    }  # fmt: skip


def names_of(module):
    """What a reader can call there: no module that is merely imported."""
    public = {name: value for name, value in vars(module).items() if name[0] != "_"}
    return {n for n, v in public.items() if getattr(v, "__module__", "triton").startswith("triton")}


# Triton's modules as the engine calls them.
MODULES = {
    "triton.language": tl,
    "triton.language.math": tl.math,
    "triton.language.extra.cuda": tl.extra.cuda,
    "triton.language.extra.libdevice": libdevice,
}


# Of the package; who has imported what decides where they show.
PARTS = {"core", "semantic", "T", ""}


@pytest.mark.browser
@OF_THE_PINNED_TRITON
def test_what_triton_has_and_the_engine_lacks_is_told_as_that(ask):
    names = ask("modules")
    for path, module in MODULES.items():
        known = {*names[path]["has"], *names[path]["lacks"]}
        assert known - PARTS == names_of(module) - PARTS, path
    members = {n for n, v in vars(tl.tensor).items() if n[0] != "_" and callable(v)}
    own = {n for n in members if vars(tl.tensor)[n].__qualname__.startswith("tensor.")}  # or a stub
    assert set(names["triton.language.tensor"]["has"]) == members - own
    said = "this page's engine does not know it; Triton does"
    lacking = [
        f"{path.replace('triton.language', 'tl')}.{name}"
        for path in some(MODULES)
        for name in names[path]["lacks"]
    ]
    for name in some([*lacking, "isinstance"], 200):
        text = f"@triton.jit\ndef _bad_kernel(n):\n    n = {name}(n)\n"
        answer = ask("run", source=text, kernel="_bad_kernel", grid=[1], args={"n": 1}, options={})
        assert answer["error"]["message"] == f"{name}: {said}"
        assert answer["error"]["kind"] == "limit"


# Expressions.


# A kind of expression → those of no depth and those that are deeper, in which a letter stands for
# another one: R is real and W whole, T is a condition, and B bfloat16 in words that torch has too.
COMPARED = """
(R < y)  (R <= y)  (R > y)  (R >= y)  (R == y)  (R != y)
(W < j)  (W <= j)  (W > j)  (W >= j)  (W == j)  (W != j)
"""
EXPRESSIONS = {
    "R": (
        "x  y  s  0.5  -1.25  3.0  x  y",
        """
(R + R)  (R - R)  (R * R)  (-(R + x))  (R / (tl.abs(R + x) + 1.0))  tl.maximum(R, y)
tl.minimum(R, y)  tl.where(T, R, y)  tl.exp(tl.minimum(R, x))  tl.exp2(tl.minimum(R, x))
tl.log(tl.abs(R + x) + 1.0)  tl.sqrt(tl.abs(R + x))  ((W + i).to(tl.float32))
tl.sum(R + x, axis=0)  tl.max(R + x, axis=0)  tl.sum((R + x)[:, None] * y[None, :], axis=1)
(R + x).to(tl.float16).to(tl.float32)
""",
    ),
    "W": (
        "i  j  n  3  -2  7  i",
        """
(W + W)  (W - W)  (W * W)  ((W + i) // (j + 20))  ((W + i) % (j + 20))  ((W + i) & W)
((W + i) | W)  ((W + i) ^ W)  tl.maximum(W, j)  tl.minimum(W, j)  tl.where(T, W, j)
(T).to(tl.int32)  tl.sum(W + i, axis=0)  tl.min(W + i, axis=0)  ((W + i) << 2)  ((W + i) >> 1)
tl.cdiv(W + i, 3)
""",
    ),
    "T": (COMPARED, COMPARED + "(T & T)  (T | T)  " * 4),
    "B": (
        "x  y  z",
        """
(B + B)  (B - B)  (B * B)  (-B)  (B * 1.75)  (B + 0.3125)  tl.maximum(B, B)  tl.minimum(B, B)
tl.abs(B)  tl.where(B < B, B, B)  tl.where(B == B, x, B)  (B.to(tl.float32) / 3.0).to(tl.bfloat16)
(B.to(tl.float32) * B.to(tl.float32) + 0.1).to(tl.bfloat16)
""",
    ),
}


def drawn(chance, kind, depth):
    """A random expression of a kind."""
    text = chance.choice(parted(EXPRESSIONS[kind][depth > 0]))
    return re.sub(r"\b[RWTB]\b", lambda found: drawn(chance, found[0], max(0, depth - 1)), text)


EACH = 60  # expressions of each type


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_expressions_give_what_tritons_interpreter_gives(ask, tmp_path):
    chance, lines = random.Random(20), []
    for number in range(EACH):
        at, depth = f"{number} * BLOCK + offs", 1 + number % 3
        lines.append(f"tl.store(out_ptr + {at}, {drawn(chance, 'R', depth)} + x * 0.0)")
        lines.append(f"tl.store(whole_ptr + {at}, {drawn(chance, 'W', depth)} + i * 0)")
    head = "import triton\nimport triton.language as tl\n" + FUZZED
    text = head + "".join(f"    {line}\n" for line in lines)
    path = tmp_path / "fuzz.py"
    path.write_text(text, "utf-8")
    generator = torch.Generator().manual_seed(1)
    given = {name: torch.randn(8, generator=generator) for name in "xy"}
    given |= {name: torch.randint(-9, 10, (8,), generator=generator).int() for name in "ij"}
    given |= {"out": torch.zeros(EACH, 8), "whole": torch.zeros(EACH, 8).int()}
    answer = launched(ask, text, "_fuzz_kernel", given, SCALARS | {"BLOCK": 8})
    assert not answer["error"], (answer["error"], text.splitlines()[answer["error"]["line"] - 1])
    module = load_file(path, "fuzz_of_the_engine")
    module._fuzz_kernel[(1,)](*given.values(), 0.75, 5, BLOCK=8)
    got = numbers(answer)
    for place, (real, whole) in some(
        enumerate(zip(got["out_ptr"], got["whole_ptr"], strict=True)), 8 * EACH
    ):
        about = lines[place // 8 * 2 :][:2]
        # Each step rounds to float32, exp in its own way; sums are added in another order.
        want = given["out"].flatten()[place].item()
        assert real == pytest.approx(want, rel=2e-5, abs=2e-5, nan_ok=True), about
        assert whole == given["whole"].flatten()[place].item(), about


class InTorch:
    """What `tl` is where PyTorch evaluates such an expression."""

    float32, bfloat16 = torch.float32, torch.bfloat16
    abs, where = torch.abs, torch.where

    @staticmethod
    def maximum(a, b):
        return torch.maximum(a.float(), b.float())  # Triton, too: NVIDIA compares no bfloat16

    @staticmethod
    def minimum(a, b):
        return torch.minimum(a.float(), b.float())


BFLOATS = """@triton.jit
def _bfloat_kernel(x_ptr, y_ptr, z_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs).to(tl.bfloat16)
    y = tl.load(y_ptr + offs).to(tl.bfloat16)
    z = tl.load(z_ptr + offs).to(tl.bfloat16)
"""
ROUNDED = 1 + 3 * 2**-8  # between two numbers of bfloat16, and as near to both: the even one wins


@pytest.mark.browser
def test_random_expressions_of_bfloat16_give_what_pytorch_gives(ask):
    """Each operation rounds to the nearest, as on a GPU.

    PyTorch and not Triton's interpreter is the yardstick: that one cuts bfloat16 off, and has no
    arithmetic of it.
    """
    chance = random.Random(20)
    expressions = ["x", "y", "z", *(drawn(chance, "B", 1 + number % 3) for number in range(EACH))]
    generator = torch.Generator().manual_seed(1)
    x, y, z = (torch.randn(16, generator=generator) for _ in "xyz")
    x[:3] = torch.tensor([ROUNDED, -ROUNDED, 1 + 2**-8])
    given = {"x": x, "y": y, "z": z * torch.logspace(-20, 20, 16)}
    rounded = {name: value.bfloat16() for name, value in given.items()}
    want = torch.stack([eval(text, {"tl": InTorch, **rounded}) for text in expressions]).float()
    lines = [
        f"tl.store(out_ptr + {number} * BLOCK + offs, ({text}).to(tl.float32))"
        for number, text in enumerate(expressions)
    ]
    text = BFLOATS + "".join(f"    {line}\n" for line in lines)
    tensors = given | {"out": torch.empty_like(want)}
    answer = launched(ask, text, "_bfloat_kernel", tensors, {"BLOCK": 16})
    assert not answer["error"], (answer["error"], lines[answer["error"]["line"] - 7])
    got = some(numbers(answer)["out_ptr"], 900)
    for place, pair in enumerate(zip(got, want.flatten().tolist(), strict=True)):
        assert pair[0] == pytest.approx(pair[1], rel=0, abs=0, nan_ok=True), lines[place // 16]


# Bad input.

LIMITS = {
    "an endless loop": ("while n == n:\n        n = n + 0", "limit", "stopped after"),
    "a huge tile": ("x = tl.zeros([1048576, 2], tl.float32)", "compile", "exceeds triton maximum"),
    "unrolled for ever": ("for i in tl.static_range(10000000):\n        n = n", "compile", "turns"),
    "brackets": ("n = " + "(" * 5_000 + "1" + ")" * 5_000, "syntax", "too many nested"),
    "signs": ("n = " + "-" * 5_000 + "1", "syntax", "too many nested"),
    "an open bracket": ("n = (1", "syntax", "'(' was never closed"),
    "a word": ("n = 1 2", "syntax", "invalid syntax"),
    "a line that lost its place": ("n = n\nn += f(n)items, add", "syntax", "invalid syntax"),
    "what it leaves": ("n = n\nn += 1\n    n = n", "syntax", "unexpected indent"),
}


@pytest.mark.browser
@pytest.mark.parametrize("what", LIMITS)
def test_bad_input_is_a_message(ask, what):
    line, kind, said = LIMITS[what]
    text = f"@triton.jit\ndef _bad_kernel(n):\n    {line}\n"
    options = {"maxSteps": 1_000_000, "maxMilliseconds": 500}
    answer = ask("run", source=text, kernel="_bad_kernel", grid=[1], args={"n": 1}, options=options)
    assert answer["error"]["kind"] == kind
    assert said in answer["error"]["message"]
    assert answer["error"]["line"] >= 2


@pytest.mark.browser
def test_megabytes_are_not_read(ask):
    answer = ask("parse", source="# " + "x" * 1_000_000)
    assert "at most 300000 are read" in answer["error"]["message"]


@pytest.mark.browser
def test_what_leaves_a_tensor_is_told_with_its_place(ask):
    text = source_file("vectorized_attention").read_text("utf-8")
    row = next(r for r in recorded("vectorized_attention") if r["problem"] == "ragged")
    answer = ask(
        "problem", source=replace(text, "mask_n = offs_n < N", "mask_n = offs_n <= N"), row=row
    )
    (k, v) = [fault for fault in answer["faults"] if fault["kind"] == "read_out_of_bounds"]
    assert k["message"].startswith("program 0 reads k[13, 0], out of bounds of [13, 24], line ")
    assert v["tensor"] == "v"
    assert v["count"] == 3 * 24


@pytest.mark.browser
def test_what_a_kernel_does_is_counted_as_triton_counts_it(ask):
    """Loads, stores and bytes against the recorder of memory accesses."""
    from snippets._lab.probe.memory_trace import record

    (problem,) = [p for p in load("tiled_attention", "problems").problems()
                  if p.name == "ragged" and p.file == "kernel"]  # fmt: skip
    with record() as trace:
        problem.call(load("tiled_attention", "kernel"), problem.inputs)
    row = next(r for r in recorded("tiled_attention") if r["problem"] == "ragged")
    text = source_file("tiled_attention").read_text("utf-8")
    counts = ask("problem", source=text, row=row)["counts"]
    loads, stores = trace.total("load"), trace.total("store")
    assert (counts["loads"], counts["bytesLoaded"]) == (loads.instructions, loads.bytes)
    assert (counts["stores"], counts["bytesStored"]) == (stores.instructions, stores.bytes)
    assert (counts["sectorsLoaded"], counts["sectorsStored"]) == (loads.sectors, stores.sectors)


@pytest.mark.browser
def test_the_fields_of_a_named_tuple_are_seen_one_by_one(ask):
    text = IMPORTS + "import triton\nimport triton.language as tl\n" + HELPERS + FUZZED
    text += "    state = State(x[:, None], (y, 0.0))\n    z = state.m * s\n"
    text += "    tl.store(out_ptr + offs, tl.sum(z, 1))\n"
    tensors = dict.fromkeys(("x", "y", "out"), torch.zeros(16))
    tensors |= dict.fromkeys(("i", "j", "whole"), torch.zeros(16).int())
    others = SCALARS | {"BLOCK": 16}
    answer = launched(ask, text, "_fuzz_kernel", tensors, others, variables={"program": [0]})
    seen = [step["variable"] for step in answer["steps"]]
    assert seen == ["offs", *"xyij", "state.m", "state.l[0]", "state.l[1]", "z"]
