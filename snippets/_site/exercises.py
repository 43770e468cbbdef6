"""The exercises that a reader does on the page: their boxes, and what the playground needs of them.

A room declares them in `tasks.toml`. There are three kinds, by what stands in an entry:

- with `gap`, a kernel to complete: the tested answer stands in `exercise.py`, and the stub is the
  answer with pieces taken out, so that the two cannot drift apart;
- with `mutant`, a bug to find: the room's kernel with one of the mistakes of `mutants.py`;
- with `question`, something to work out: `answers` lists what counts as right, and each `wrong`
  has answers of its own and what it says of them.

A page, a post or the playground, asks for one by an element
(`<div class="am-exercise" data-exercise="basic_attention:two_queries"></div>`).
"""

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

from snippets._site import kernels

PLACE = re.compile(
    r'^<div class="am-exercise" data-exercise="(?P<room>[a-z_]+):(?P<name>[a-z_]+)"></div>$',
    re.MULTILINE,
)
FILE = "tasks.toml"


class ExerciseError(Exception):
    """An exercise is asked for, or declared, that cannot be made."""


def shown(markdown: str, snippets: Path) -> str:
    """A page's Markdown with a box in place of each element that asks for an exercise."""

    def box(match: re.Match[str]) -> str:
        exercise = declared(snippets / match["room"]).get(match["name"])
        if exercise is None:
            raise ExerciseError(f"{match['room']}/{FILE} has no exercise {match['name']}")
        return _box(f"{match['room']}:{match['name']}", exercise)

    return PLACE.sub(box, markdown)


def declared(room: Path) -> dict[str, dict[str, Any]]:
    """The room's exercises by name, as they are declared; none without a declaration."""
    path = room / FILE
    return tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}


def opened(room: Path) -> dict[str, dict[str, Any]]:
    """What the playground opens, by name: the stub of a kernel, or a question's answers."""
    return {name: _opened(room, name, exercise) for name, exercise in declared(room).items()}


def _opened(room: Path, name: str, exercise: dict[str, Any]) -> dict[str, Any]:
    if "question" in exercise:
        keys = ("title", "answers", "explanation", "format", "wrong")
        return {key: exercise[key] for key in keys if key in exercise}
    file, _, kernel = exercise["kernel"].partition(":")
    found = {k.name: k for k in kernels.of_file(room / file)}
    if kernel not in found:
        raise ExerciseError(f"{room.name}: the kernel of {name}, {kernel}, is not in {file}")
    text = found[kernel].text
    for gap in exercise.get("gap", ()):
        text = _without(text, gap, f"{room.name}:{name}")
    if "mutant" in exercise:
        text = _with_mistake(text, room, exercise["mutant"])
    of_kernel = {key: exercise[key] for key in ("title", "kernel")}
    return {**of_kernel, "stub": text, "bug": "mutant" in exercise}


def _without(text: str, gap: dict[str, str], what: str) -> str:
    """A kernel without the lines from one that begins like `from` to one that begins like `to`.

    `put` comes in their place. Lines are told apart by their code; comments may change.
    """
    lines = text.splitlines()
    at = []
    for edge in (gap["from"], gap.get("to", gap["from"])):
        there = [n for n, line in enumerate(lines) if line.strip().startswith(edge)]
        if len(there) != 1:
            raise ExerciseError(f"{what}: {len(there)} lines begin with {edge!r}, not one")
        at += there
    put = gap["put"].strip("\n").split("\n") if "put" in gap else []
    return "\n".join([*lines[: at[0]], *put, *lines[at[1] + 1 :]])


def _with_mistake(text: str, room: Path, name: str) -> str:
    """A kernel with one of the room's mistakes."""
    old, new = _mutant(room, name)
    if text.count(old) != 1:
        raise ExerciseError(f"{room.name}: {old!r} of mutant {name!r} is not in the kernel once")
    right = text.splitlines()  # the comment of a line that was right would tell
    changed = text.replace(old, new).splitlines()
    return "\n".join(line if line in right else line.partition("  #")[0] for line in changed)


def _mutant(room: Path, name: str) -> tuple[str, str]:
    """A mutant's old and new code. mutants.py is read and not imported: a build has no torch."""
    tree = ast.parse((room / "mutants.py").read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Mutant":
            given = [ast.literal_eval(a) for a in node.args[:3] if isinstance(a, ast.Constant)]
            if len(given) == 3 and given[0] == name:
                return given[1], given[2]
    raise ExerciseError(f"{room.name}/mutants.py has no mutant {name!r}")


def _box(identity: str, exercise: dict[str, Any]) -> str:
    kind = "Find the bug" if "mutant" in exercise else "Exercise"
    lines = [
        f'<div class="am-exercise" data-exercise="{identity}" markdown>',
        "",
        f"{kind}: {exercise['title']}",
        "",
        (exercise.get("question") or exercise["task"]).strip(),
    ]
    hints = exercise.get("hints", ())
    for number, hint in enumerate(hints, 1):
        named = f"Hint {number} of {len(hints)}" if len(hints) > 1 else "Hint"
        lines += ["", f'??? tip "{named}"', f"    {hint.strip()}"]
    question = ' data-question="true"' if "question" in exercise else ""
    label = "Type your answer" if question else "Start"
    button = f'<button class="am-edit" type="button" data-exercise="{identity}"{question}>'
    return "\n".join([*lines, "", f"{button}{label}</button>", "", "</div>"])
