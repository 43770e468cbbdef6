"""The exercises in Triton's interpreter: what a reader starts with is wrong, the answer is right.

The page's own interpreter is asked the same in tests/browser/test_playground.py.
"""

import ast
import functools

import pytest

from snippets._lab.judge import problems
from snippets._lab.judge.bounds import Memory
from snippets._lab.rooms import for_scripts, load, load_file, room_file, rooms
from snippets._site import exercises, kernels
from tests.floors import some

FEW = {"ragged", "large", "tiles"}  # the others are for the page
DECLARED = [
    (room, name)
    for room in rooms()
    for name, exercise in exercises.declared(room_file(room, "exercise.py").parent).items()
    if "kernel" in exercise
]


@functools.cache
def tried_on(room):
    """A room's problems: of attention a few, of others all."""
    every = problems._probes
    with pytest.MonkeyPatch.context() as patch:
        few = lambda launcher: [(title, p) for title, p in every(launcher) if p.name in FEW]  # noqa: E731
        patch.setattr(problems, "_probes", few)
        return [p for name in for_scripts(room) for p in getattr(load(room, "problems"), name)()]


def with_text(room, file, kernel, text, folder):
    """A room's file, as a module, with this text of a kernel and what it calls in it."""
    source = room_file(room, file).read_text("utf-8")
    edges = []
    for whole in (source, text):
        functions = [n for n in ast.parse(whole).body if isinstance(n, ast.FunctionDef)]
        edges.append({n.name: (kernels.first_line(n) - 1, n.end_lineno) for n in functions})
    own, put = edges
    assert kernel in put
    lines, new = source.splitlines(), text.splitlines()
    for name in sorted(put, key=lambda name: -own[name][0]):  # a kernel, and what it calls
        (start, end), (first, last) = own[name], put[name]
        lines[start:end] = new[first:last]
    path = folder / f"{room}_{kernel}.py"
    path.write_text("\n".join(lines).replace("from .", f"from snippets.{room}."), "utf-8")
    return load_file(path)


def is_right(problem, module):
    with Memory(problem.inputs) as memory:  # a stub may read beyond its tensors
        out = problem.call(module, memory.inputs)
    results = out if isinstance(out, tuple | list) else [out]
    return all(
        bool((((x.double() - want).abs() <= allowed) | (x.double() == want)).all())
        for x, want, allowed in zip(results, problem.expected, problem.allowed, strict=True)
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a stub may compute with NaN
@pytest.mark.parametrize(("room", "name"), DECLARED, ids=lambda part: part)
def test_the_stub_is_wrong_and_the_answer_right(room, name, tmp_path):
    opened = exercises.opened(room_file(room, "exercise.py").parent)[name]
    file, kernel = opened["kernel"].split(":")
    mine = [p for p in tried_on(room) if f"{p.file}.py" == file]
    right = load(room, file.removesuffix(".py"))
    assert [p.name for p in some(mine, 2) if not is_right(p, right)] == []
    stub = with_text(room, file, kernel, opened["stub"], tmp_path)
    assert not all(is_right(p, stub) for p in some(mine)), "nobody would have to write anything"
