"""Which results an edit makes stale: exactly those that depend on what was edited."""

import re
import shutil
from dataclasses import replace

import pytest

from snippets._lab import rooms
from snippets._lab.results.staleness import changed, code_of
from snippets._lab.rooms import ROOT
from tests import made_up
from tests.made_up import edit

HOUSE = {
    "snippets/first_attention/kernel.py": """
import triton

TILES = {"float16": (64, 32)}

def _check_inputs(q):
    if q.dim() != 2:
        raise ValueError(f"q has {q.dim()} dimensions; 2 are allowed")

@triton.jit
def _first_attention_kernel(x):
    return x

def first_attention(q, k, v):
    _check_inputs(q)
    return _first_attention_kernel[TILES](q)

def of_no_use_here(q):
    return 5

def main():
    print(first_attention(1, 2, 3))
""",
    "snippets/first_attention/exercise.py": """
from .kernel import _check_inputs

def first_attention(q, k, v):
    _check_inputs(q)
    return q
""",
    "snippets/first_attention/parts.py": """
def _inside(x):
    return x + 1

def shown(x):
    return _inside(x)

def not_shown(x):
    return 8
""",
    "snippets/first_attention/bench.py": '''
from snippets._lab.measure.competitors import resolve
from snippets._lab.rooms import measured_on
from . import exercise, parts
from .parts import shown as drawn

@measured_on("gpu")
def forward(lab):
    """Times."""
    return lab.time(["first_attention", "torch:sdpa", "an_attention_of_tomorrow"])

@measured_on("gpu")
def pairs(lab):
    return lab.time({"ours": exercise.first_attention})

@measured_on("interpreter")
def picture(lab):
    return drawn(3)

@measured_on("interpreter")
def whole(lab):
    return lab.play(parts)
''',
    "snippets/first_attention/mutants.py": 'MUTANTS = [("no scale", "return x", "", "Why.")]',
    "snippets/second_attention/kernel.py": """
def _second(q):
    return q

def second_attention(q, k, v):
    return _second(q)

def main():
    print(second_attention(1, 2, 3))
""",
    "snippets/second_attention/bench.py": """
from snippets._lab.rooms import measured_on

@measured_on("gpu")
def forward(lab):
    return lab.time(["second_attention", "first_attention:exercise"])

@measured_on("gpu")
def alone(lab):
    return lab.time(["second_attention"])
""",
    "snippets/second_attention/mutants.py": 'MUTANTS = [("no scale", "return q", "", "Why.")]',
    "snippets/gluon_attention/kernel.py": """
from triton.experimental.gluon import language

def gluon_attention(q, k, v):
    return language.of(q)
""",
    "snippets/board/bench.py": """
from snippets._lab.rooms import measured_on

OURS = {"first_attention": "one", "gluon_attention": "for one card"}

@measured_on("gpu", "interpreter")
def ladder(lab):
    return [lab.time([name]) for name in OURS]
""",
    "snippets/cover/bench.py": """
from snippets._lab.rooms import measured_on

@measured_on("gpu", "interpreter", every_launcher=True)
def grid(lab):
    return lab.try_all()
""",
    "tests/posts/test_launchers.py": """
import pytest

LAUNCHERS = {"first_attention": dict(M=3), "second_attention": dict(M=4)}
REFUSED = {"two dtypes": "q is"}

@pytest.mark.numerical
def test_dtypes(room):
    check(LAUNCHERS[room])

def test_refusals(room):
    assert REFUSED
""",
    "tests/posts/test_first_attention.py": """
import pytest
from snippets.first_attention.exercise import first_attention

LENGTHS = [1, 64]

@pytest.fixture
def problem():
    return 7

@pytest.mark.numerical
@pytest.mark.parametrize("n", LENGTHS)
def test_equals_float64(n, problem):
    assert first_attention(n, n, problem)

def test_message():
    assert True
""",
    "tests/posts/test_second_attention.py": "def test_small():\n    assert 1\n",
}
TIMED = made_up.timed(N=16)
RESULTS = [  # post/result/place
    *(f"first_attention/{name}/gpu" for name in ("forward", "pairs")),
    *(f"first_attention/{name}/interpreter" for name in ("picture", "whole", "mutants", "report")),
    *(f"second_attention/{name}/gpu" for name in ("forward", "alone")),
    "second_attention/mutants/interpreter",
    *(f"board/ladder/{place}" for place in ("gpu", "interpreter")),
    *(f"cover/grid/{place}" for place in ("gpu", "interpreter")),
]
OF_FIRST = {name for name in RESULTS if name.startswith("first_attention/")}
OF_ALL = {name for name in RESULTS if name.startswith(("board/", "cover/"))}
FIRST = OF_FIRST | OF_ALL  # whatever calls the first launcher
CHECKED = FIRST | {"second_attention/forward/gpu"}  # its exercise checks its inputs by the kernel's


@pytest.fixture
def house(tmp_path, monkeypatch):
    """Rooms that measure each other; their root."""
    for name, text in HOUSE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if path.parent.parent.name == "snippets":
            (path.parent / "__init__.py").write_text("")
    monkeypatch.setattr(rooms, "SNIPPETS", tmp_path / "snippets")
    return tmp_path


def measured(result):
    post, name, place = result.split("/")
    code = made_up.code_as_it_is(post, name, place)
    return made_up.result(post, name, [TIMED], place=place, **code)


KERNEL, BENCH, PARTS, EXERCISE, OWN_MUTANTS = (
    f"snippets/first_attention/{name}.py"
    for name in ("kernel", "bench", "parts", "exercise", "mutants")
)
GLUON = "snippets/gluon_attention/kernel.py"
OWN_TESTS, TESTS_OF_ALL = "tests/posts/test_first_attention.py", "tests/posts/test_launchers.py"
MUTANTS, WHOLE = {"first_attention/mutants/interpreter"}, {"first_attention/whole/interpreter"}
OF_EXERCISE = {"first_attention/pairs/gpu", "second_attention/forward/gpu"}
OF_PARTS = WHOLE | {"first_attention/picture/interpreter"}
ALL_MUTANTS = {name for name in RESULTS if "/mutants/" in name}
OF_ALL_ON_A_GPU = {name for name in OF_ALL if name.endswith("/gpu")}
EDITS = {
    "kernel": (KERNEL, "return x\n", "return -x\n", FIRST),
    "table": (KERNEL, "(64, 32)", "(64, 64)", FIRST),
    "condition of a refusal": (KERNEL, "!= 2", "!= 3", CHECKED),
    "what is not called": (KERNEL, "return 5", "return 6", MUTANTS),  # a mutant may be in any line
    "main": (KERNEL, "1, 2, 3", "3, 2, 1", {"first_attention/report/interpreter"}),
    "exercise": (EXERCISE, "return q", "return -q", MUTANTS | OF_EXERCISE),
    "competitor": (BENCH, '"torch:sdpa"', '"torch:cudnn"', {"first_attention/forward/gpu"}),
    "what an imported function calls": (PARTS, "x + 1", "x + 2", OF_PARTS),
    "a module that is handed on": (PARTS, "return 8", "return 9", WHOLE),
    "another import of the lab": (BENCH, "import resolve", "import resolve, same_work", set()),
    "a launcher that no interpreter runs": (GLUON, "of(q)", "of(-q)", OF_ALL_ON_A_GPU),
    "what a mutant is said to do": (OWN_MUTANTS, "Why.", "How.", MUTANTS),
    "a test that judges": (OWN_TESTS, "[1, 64]", "[1, 65]", MUTANTS),
    "what pytest hands to a test": (OWN_TESTS, "return 7", "return 8", MUTANTS),
    "a test of words": (OWN_TESTS, "assert True", "assert 1", set()),
    "a test of all": (TESTS_OF_ALL, "[room])", "[room], 1)", ALL_MUTANTS),
    "a refusal that all are asked for": (TESTS_OF_ALL, "q is", "k is", set()),
    "a room's line in the tests of all": (TESTS_OF_ALL, "M=4", "M=5", set()),  # a new room adds one
}


@pytest.mark.parametrize("case", EDITS)
def test_an_edit_makes_stale_what_depends_on_it(case, house):
    before = {name: measured(name) for name in RESULTS}
    assert not any(map(changed, before.values()))
    file, old, new, stale = EDITS[case]
    edit(house / file, old, new)
    assert {name for name, result in before.items() if changed(result)} == stale


@pytest.mark.parametrize("gone", ["the function", "bench.py", "kernel.py", "the room"])
def test_a_result_is_stale_when_its_code_is_gone(gone, house):
    result = measured("first_attention/forward/gpu")
    room = house / "snippets" / "first_attention"
    if gone == "the function":
        edit(room / "bench.py", "def forward", "def backward")
    elif gone == "the room":
        shutil.rmtree(room)
    else:
        (room / gone).unlink()
    assert changed(result)


def test_what_has_changed_is_named(house):
    result = measured("first_attention/forward/gpu")
    assert changed(replace(result, code={})) == ["measured before definitions were recorded"]
    edit(house / KERNEL, "!= 2", "!= 3")
    edit(house / KERNEL, "TILES = ", "TILES_OF_ALL = ")
    edit(house / BENCH, '"torch:sdpa", ', "")
    assert sorted(changed(result)) == [
        "first_attention/bench.py: forward",
        "first_attention/kernel.py: TILES is gone",
        "first_attention/kernel.py: _check_inputs",
    ]


def test_a_room_is_added_to_this_house_and_nothing_is_stale(tmp_path, monkeypatch):
    """The real rooms, copied: all results there are, and one room more."""
    for folder in ("snippets", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.json"))
    places = {"interpreter": "interpreter", "compiler": "compiler"}  # any other folder is a GPU's
    files = [path.relative_to(rooms.DATA).parts for path in rooms.DATA.rglob("*.json")]
    known = {(x[-2], x[-1].removesuffix(".json"), places.get(x[0], "gpu")) for x in files}
    found = [
        made_up.result(post, name, [TIMED], place=place, code=code_of(post, name, place))
        for post, name, place in sorted(known)
        if post in rooms.rooms() and is_there(post, name)
    ]
    assert len(found) > 80
    monkeypatch.setattr(rooms, "SNIPPETS", tmp_path / "snippets")
    room = tmp_path / "snippets" / "new_attention"
    room.mkdir()
    (room / "__init__.py").write_text('"""New. docs/posts/new_attention.md"""\n')
    kernel = (ROOT / "snippets/basic_attention/kernel.py").read_text()
    (room / "kernel.py").write_text(kernel.replace("basic_attention", "new_attention"))
    edit(
        tmp_path / "tests/posts/test_launchers.py",
        "\nLAUNCHERS = {",
        '\nLAUNCHERS = {"new_attention": 3,',
    )
    assert not [(r.post, r.place, changed(r)) for r in found if changed(r)]
    edit(
        tmp_path / "snippets/tiled_attention/kernel.py", "\ndef _tiles(", "\n@hurried\ndef _tiles("
    )
    stale = {r.post for r in found if changed(r)}
    assert {"tiled_attention", "scoreboard", "coverage", "your_gpu"} <= stale
    assert not stale & {"coalescing", "basic_attention", "attention_weights", "hopper_attention"}


def is_there(post, name):
    """Whether the room has the result still: one that it dropped is removed with the next bench."""
    bench = rooms.room_file(post, "bench.py")
    return name in ("mutants", "report") or re.search(rf"^def {name}\(", bench.read_text(), re.M)
