"""What the playground gets from a build: kernels, ways in, exercises; and its vendored editor."""

import ast
import hashlib
import json
import re
from types import SimpleNamespace

import pytest

from snippets._lab.rooms import ROOT, rooms
from snippets._site import exercises, kernels, playground
from tests.floors import perhaps, some

ROOMS = sorted(path.parent for path in (ROOT / "snippets").glob("[!_]*/__init__.py"))
POSTS = [
    name for name in rooms() if (ROOT / f"docs/posts/{name}.md").is_file()
]  # a room may have a second post: test_site.py
FILES = [room / name for room in ROOMS for name in playground.FILES if (room / name).is_file()]
CONFIG = SimpleNamespace(config_file_path=str(ROOT / "mkdocs.yml"))
VENDOR = ROOT / "docs/assets/vendor"

MADE_UP = '''
import triton
import triton.language as tl

TWO = 2
FOUR = tl.constexpr(TWO * 2)
UNUSED = tl.constexpr(5)
n = 3  # called like a parameter


class Rows(NamedTuple):
    ptr: tl.tensor


class Unused(NamedTuple):
    n: int


@triton.jit
def _helper(x: Rows):
    return x.ptr * FOUR


# MARK [start:whole]
@triton.jit(do_not_specialize=["n"])  # a reason
def _kernel(x_ptr, n):
    """Does little."""
    # MARK [start:load]
    x = tl.load(x_ptr + n)
    # MARK [end:load]
    tl.store(x_ptr, _helper(Rows(x)))
    # MARK [end:whole]


@triton.jit
def _other(x_ptr):
    tl.store(x_ptr, 1)


# MARK [start:launcher]
def kernel(x):
    _kernel[(1,)](x, 0)
    # MARK [end:launcher]
'''.replace("MARK", "--8<--")


def test_a_kernel_is_cut_with_what_it_needs_and_nothing_else():
    kernel, other = kernels.cut(MADE_UP)
    assert (kernel.name, other.name) == ("_kernel", "_other")
    assert kernel.text == (
        "TWO = 2\nFOUR = tl.constexpr(TWO * 2)\n\n\n"
        "class Rows(NamedTuple):\n    ptr: tl.tensor\n\n\n"
        "@triton.jit\ndef _helper(x: Rows):\n    return x.ptr * FOUR\n\n\n"
        '@triton.jit(do_not_specialize=["n"])  # a reason\ndef _kernel(x_ptr, n):\n'
        '    """Does little."""\n    x = tl.load(x_ptr + n)\n    tl.store(x_ptr, _helper(Rows(x)))'
    )
    assert kernel.rest == other.text == "@triton.jit\ndef _other(x_ptr):\n    tl.store(x_ptr, 1)"
    own = {"Rows": (5, 6), "_helper": (9, 11), "_kernel": (14, 18)}
    assert kernel.sections == {"whole": (14, 18), "load": (17, 17)} | own
    assert kernel.says == "Does little."
    assert other.rest == kernel.text


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}/{f.name}")
def test_a_section_in_the_editor_is_the_section_of_the_file(file):
    source = file.read_text("utf-8")
    lines = source.splitlines()
    marker = kernels.MARKER
    for kernel in perhaps(kernels.cut(source), "an exercise may be no kernel"):
        ast.parse(kernel.text)
        assert "--8<--" not in kernel.text
        shown = kernel.text.splitlines()
        sections = perhaps(kernel.sections, "an exercise's kernel may be shown nowhere else")
        for name, (first, last) in sections.items():
            start, end = kernels.sections(source)[name]
            wanted = [line for line in lines[start : end - 1] if not marker.match(line)]
            assert shown[first - 1 : last] == wanted, name


def listing(path, section):
    return f'```python title="{path}"\n--8<-- "{path}:{section}"\n```\n'


def test_a_listing_gets_a_button_or_a_reason():
    path, kernel = "snippets/basic_attention/kernel.py", "_basic_attention_kernel"
    marked = playground.marked(listing(path, kernel))
    assert f'title="{path}:{kernel}"\n--8<-- "{path}:{kernel}"' in marked
    titles = "".join(
        f'<span class="filename">{path}:{section}</span>'
        for path, section in (
            (path, kernel),
            (path, "basic_attention"),
            ("snippets/attention_memory/module.py", "eager_attention"),
            ("snippets/hopper_attention/kernel.py", "_producer"),
            ("snippets/hopper_attention/kernel.py", "table"),
        )
    )
    button, host, torch, gluon, table = re.findall(
        r'<span class="filename">(.*?)</span>', playground.shown(titles, CONFIG)
    )
    assert f'data-kernel="basic_attention/kernel.py:{kernel}" data-section="{kernel}"' in button
    assert playground.HOST in host
    assert playground.PYTORCH in torch
    assert playground.GLUON in gluon
    assert table == "snippets/hopper_attention/kernel.py", "a table of numbers needs no reason"
    row = f'<div class="am-file">\n<p><code>{path}</code> <a href="x">View</a></p>\n</div>'
    assert "Edit and run</button></p>" in playground.shown(row, CONFIG)
    assert playground.shown(titles + row, CONFIG).endswith(row), "its listing has the button"
    several = playground.shown(row.replace("basic", "composed"), CONFIG)
    assert "Edit and run <code>_matmul_kernel</code></button>" in several
    beside = '<div id="figure-x-barriers"></div>'
    linked = playground.shown(titles + beside, CONFIG)
    assert f'{playground.GLUON}, <a href="#figure-x-barriers">' in linked


def test_a_kernel_without_recorded_problems_has_no_button(tmp_path):
    path = "snippets/new/kernel.py"
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(MADE_UP, "utf-8")
    config = SimpleNamespace(config_file_path=str(tmp_path / "mkdocs.yml"))
    data = tmp_path / "docs/data/interpreter/new/problems.json"
    data.parent.mkdir(parents=True)
    for launched, button in (("_other", False), ("_kernel", True)):
        data.write_text(f'{{"rows": [{{"launches": [{{"kernel": "{launched}"}}]}}]}}', "utf-8")
        playground._recorded.cache_clear()
        made = playground.shown(f'<span class="filename">{path}:load</span>', config)
        assert ('data-kernel="new/kernel.py:_kernel"' in made) is button
    opened = playground.opened(tmp_path / "snippets/new")["kernels"]
    assert opened["kernel.py:_kernel"]["problems"] == "problems"


DECLARED = [(room, name) for room in ROOMS for name in exercises.declared(room)]


def test_every_post_has_an_exercise_and_the_ladder_has_each_once_with_a_loop_first():
    declared = {room.name for room, _ in DECLARED}
    assert declared == set(POSTS)
    page = (ROOT / "docs/playground.md").read_text("utf-8")
    made = exercises.ladder(page, ROOT / "snippets", dict.fromkeys(POSTS, "A post"))
    for pattern in (r'data-rung="([\w:]+)"', r'data-exercise="([\w:]+)" data-kind'):
        asked = re.findall(pattern, made)
        assert sorted(asked) == sorted(f"{room.name}:{name}" for room, name in DECLARED)
        assert asked[0] == "coalescing:line_sums"
    cells, boxes = (re.findall(rf'{at}(rung-[\w-]+)"', made) for at in ('href="#', 'id="'))
    assert cells == boxes
    assert made.count("<details") == made.count("</details>") == len(declared)
    first = exercises.opened(ROOT / "snippets/coalescing")["line_sums"]
    begin, end = first["shown"]
    assert re.match(r" +for \w+ in ", first["stub"].splitlines()[begin - 1])
    assert end - begin < 4


@pytest.mark.parametrize(("room", "name"), DECLARED, ids=lambda x: getattr(x, "name", x))
def test_an_exercise_can_be_opened(room, name):
    declared, opened = exercises.declared(room)[name], exercises.opened(room)[name]
    box = exercises.shown(
        f'<div class="am-exercise" data-exercise="{room.name}:{name}"></div>', ROOT / "snippets"
    )
    assert declared["title"] in box
    assert some(declared["hints"])[0].strip() in box
    assert box.count('class="am-edit"') == 1
    if "question" in declared:
        wrong = [answer for one in opened.get("wrong", ()) for answer in one["answers"]]
        assert not set(some(opened["answers"])) & set(wrong)
        return
    answer = playground.opened(room)["kernels"][declared["kernel"]]["text"]
    assert opened["bug"] is ("mutant" in declared)
    assert ast.parse(opened["stub"])
    assert ast.dump(ast.parse(opened["stub"])) != ast.dump(ast.parse(answer))


def test_the_questions_have_the_answers_that_the_code_gives():
    torch = pytest.importorskip("torch")
    from snippets._warps.role_traces import Softmax, Wait
    from snippets.hopper_attention.kernel import Variant
    from snippets.hopper_attention.protocol import Work, traces

    def answers(room, name):
        return exercises.declared(ROOT / "snippets" / room)[name]["answers"]

    _, k, _ = torch.empty(2, 5, 3, 4, 8).permute(2, 0, 3, 1, 4)
    given = ", ".join(map(str, (*k.stride(), k.storage_offset())))
    assert answers("multi_head_attention", "strides") == [given]
    assert answers("attention_memory", "budget") == [str(64 * 2**20 // (16 * 2 * 8192 * 2))]
    touched = {5 * 4 * lane // 32 for lane in range(32)}
    assert answers("coalescing", "sectors") == [str(len(touched))]
    weights = torch.tensor([1.0, 2.0, 5.0]).log().softmax(0)
    assert float(answers("attention_weights", "one_weight")[0]) == pytest.approx(weights[2].item())
    heads = int(answers("multi_head_attention", "hidden")[0])
    assert 10 * (7 * (heads - 1) + 2) <= 500 < 10 * (7 * heads + 2)
    assert float(answers("attention_memory", "ceiling")[0]) == 100 * 4 * (8 / 4) / 800
    assert int(answers("latency_hiding", "in_flight")[0]) * 1e3 == pytest.approx(4e12 * 500e-9)
    # What the kernel asks for: one tile of queries and eight of keys, then a causal mask.
    chosen = Variant(CONSUMERS=2, STAGES=3)
    (trace,) = traces(chosen, Work(M=128, N=1024))
    waits = [
        [op for op in trace.roles[role] if isinstance(op, Wait) and op.barrier.startswith(kind)][7]
        for role, kind in (("consumer 0", "k.full"), ("producer", "k.empty"))
    ]
    assert {op.barrier[-3:] for op in waits} == {"[1]"}
    given = ", ".join(map(str, (1, *(op.parity for op in waits))))
    assert answers("hopper_attention", "parity")[0] == given
    work = Work(M=384, N=384, causal=True, heads=4, heads_kv=4, programs=3, rounds=1)
    visited = [
        sum(isinstance(op, Softmax) for op in trace.roles["consumer 1"])
        for trace in traces(chosen, work)
    ]
    assert answers("hopper_attention", "busiest") == [", ".join(map(str, visited))]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('kernel = "kernel.py:_none"\ngap = []', "_none, is not in kernel.py"),
        ('kernel = "kernel.py:_kernel"\ngap = [{ from = "y = " }]', "0 lines begin with 'y = '"),
        ('kernel = "kernel.py:_kernel"\nloop = "for n"', "no loop begins with 'for n'"),
        ('kernel = "kernel.py:_kernel"\nmutant = "no such"', "no mutant 'no such'"),
        ('kernel = "kernel.py:_kernel"\nmutant = "elsewhere"', "is not in the kernel once"),
    ],
)
def test_an_exercise_that_cannot_be_made_stops_the_build(tmp_path, entry, message):
    room = tmp_path / "room"
    room.mkdir()
    (room / "kernel.py").write_text(MADE_UP, "utf-8")
    (room / "mutants.py").write_text('M = [Mutant("elsewhere", "z = 1", "z = 2", "why")]', "utf-8")
    (room / "tasks.toml").write_text(f'[one]\ntitle = "t"\ntask = "t"\n{entry}\n', "utf-8")
    with pytest.raises(exercises.ExerciseError, match=re.escape(message)):
        exercises.opened(room)
    with pytest.raises(exercises.ExerciseError, match="has no exercise two"):
        exercises.shown('<div class="am-exercise" data-exercise="room:two"></div>', tmp_path)


def test_the_vendored_editor_is_the_one_that_is_named():
    versions = (VENDOR / "VERSIONS.md").read_text("utf-8")
    package = json.loads((VENDOR / "codemirror/package.json").read_text("utf-8"))
    name = f"codemirror-{package['dependencies']['@codemirror/view']}.min.js"
    digest = hashlib.sha256((VENDOR / name).read_bytes()).hexdigest()
    assert f"sha256 of {name}:\n    {digest}" in versions
    editor = ROOT / "docs/assets/javascripts/playground/editor.js"
    assert name in editor.read_text("utf-8")
