"""The exercises that a reader does on the page: their boxes, and what the playground needs of them.

A room declares them in `tasks.toml`. There are three kinds, by what stands in an entry:

- with `gap`, a kernel to complete: the tested answer stands in `exercise.py`, and the stub is the
  answer with pieces taken out, so that the two cannot drift apart;
- with `mutant`, a bug to find: the room's kernel with one of the mistakes of `mutants.py`;
- with `question`, something to work out: `answers` lists what counts as right, and each `wrong`
  has answers of its own and what it says of them.

A post asks for one by an element
(`<div class="am-exercise" data-exercise="basic_attention:two_queries"></div>`). The playground has
all of them, a ladder of rungs in groups, one group a post, with a map that leads to each.
"""

import ast
import html
import re
import tomllib
from pathlib import Path
from typing import Any

from snippets._site import kernels

PLACE = re.compile(
    r'^<div class="am-exercise" data-exercise="(?P<room>[a-z_]+):(?P<name>[a-z_]+)"></div>$',
    re.MULTILINE,
)
LADDER = re.compile(
    r'^<div class="am-rung-map" data-first="(?P<first>[a-z_ ]+)"></div>$', re.MULTILINE
)
FILE = "tasks.toml"
KINDS = {
    "kernel": "Complete the kernel",
    "bug": "Find the bug",
    "question": "Pencil and paper",
}  # in order


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


def ladder(markdown: str, snippets: Path, titles: dict[str, str]) -> str:
    """A page's Markdown with the map of all exercises and a group for each post in its place.

    `titles`: those of posts by room, in the order of the series. The rooms that the element names
    come first; rooms in which there is no kernel to write or to mend come last.
    """
    match = LADDER.search(markdown)
    if match is None:
        return markdown
    first = match["first"].split()
    of_room = {room: _by_kind(declared(snippets / room)) for room in [*first, *titles]}

    def place(room: str) -> tuple[bool, int]:
        return all("question" in e for e in of_room[room].values()), [*first, *titles].index(room)

    number = 0
    cells: list[str] = []
    groups: list[str] = []
    for room in sorted(filter(of_room.get, of_room), key=place):
        title = html.escape(titles[room].lstrip("0123456789 "))  # here in another order
        boxes, own = [], []
        for name, exercise in of_room[room].items():
            number += 1
            identity = f"{room}:{name}"
            said = html.escape(f"{number}. {exercise['title']} ({title})")
            own.append(
                f'<a class="am-rung" href="#rung-{room}-{name}" data-rung="{identity}" '
                f'data-kind="{_kind(exercise)}" data-title="{said}" '
                f'aria-label="{said}">{number}</a>'
            )
            boxes.append(_box(identity, exercise, number))
        cells.append(f'<li aria-label="{title}">{"".join(own)}</li>')
        groups += [
            f'<details class="am-group" name="am-group"{"" if groups else " open"} markdown>',
            f"<summary>{title}<span>{len(own)} to solve</span></summary>",
            f"\nFrom the post [{title}](posts/{room}.md)\n",
            "\n\n".join(boxes),
            "\n</details>\n",
        ]
    drawn = f'<ol class="am-rung-map" data-search-exclude>{"".join(cells)}</ol>'
    tally = '<p class="am-tally" id="start" role="status"></p>'
    return LADDER.sub(lambda _: "\n".join([drawn, "", tally, "", *groups]), markdown)


def _kind(exercise: dict[str, Any]) -> str:
    return "question" if "question" in exercise else "bug" if "mutant" in exercise else "kernel"


def _by_kind(exercises: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    order = list(KINDS)
    return dict(sorted(exercises.items(), key=lambda item: order.index(_kind(item[1]))))


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
    loop = {"shown": _loop(text, exercise["loop"])} if "loop" in exercise else {}
    return {**of_kernel, "stub": text, "bug": "mutant" in exercise, **loop}


def _loop(text: str, begins: str) -> list[int]:
    """The first and last line of the loop that begins so: the rest of the kernel is folded."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.For) and ast.unparse(node).startswith(begins):
            return [node.lineno, kernels.last_line(node)]
    raise ExerciseError(f"no loop begins with {begins!r}")


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


def _box(identity: str, exercise: dict[str, Any], number: int = 0) -> str:
    kind = _kind(exercise)
    known = f' id="rung-{identity.replace(":", "-")}"' if number else ""
    label = f"{number}\\. " if number else "Find the bug: " if kind == "bug" else "Exercise: "
    said = f' <small class="am-kind">{KINDS[kind]}</small>' if number else ""
    task = (exercise.get("question") or exercise["task"]).strip()
    lines = [
        f'<div class="am-exercise" data-exercise="{identity}" data-kind="{kind}"{known} markdown>',
        f"\n{label}{exercise['title']}{said}\n",
        f'<div class="am-task" markdown>\n\n{task}\n\n</div>',
    ]
    hints = exercise.get("hints", ())
    for at, hint in enumerate(hints, 1):
        named = f"Hint {at} of {len(hints)}" if len(hints) > 1 else "Hint"
        lines += ["", f'??? tip "{named}"', f"    {hint.strip()}"]
    question = ' data-question="true"' if kind == "question" else ""
    start = "Type your answer" if question else "Start"
    button = f'<button class="am-edit" type="button" data-exercise="{identity}"{question}>'
    return "\n".join([*lines, "", f"{button}{start}</button>", "", "</div>"])
