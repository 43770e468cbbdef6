"""Writes the files of a new post and enters its name where posts are listed."""

import json
import keyword
import re
from datetime import date
from pathlib import Path

from snippets._lab.rooms import ROOT, UnknownName, load, room_file, rooms

TEMPLATES = Path(__file__).parent  # each lies where its file will, NAME for the post's
MUTANTS = 3  # of the kernel that a post begins with; more of them belong to a post that is written
SECTION = re.compile(r"^\s*# --8<-- \[start:(\w+)\]$", re.MULTILINE)
WARM = (*range(20, 113), *range(340, 360))  # hues, in degrees, in which our own kernels are drawn
RUNG = r'^    "\w+": Rung\((\d+).*\n'


class CannotBegin(UnknownName):
    """A post that cannot be begun; the message says why, and nothing was written."""


def new_post(name: str, like: str, root: Path = ROOT) -> list[Path]:
    """Write a post that begins with the kernel of the room `like`; returns what was written.

    Raises CannotBegin, before anything is written.
    """
    if not re.fullmatch(r"[a-z]+(_[a-z]+)*", name) or keyword.iskeyword(name):
        raise CannotBegin(
            f"{name!r} is no name for a post; lower-case words joined by underscores are, without "
            "digits: make new POST=sliding_window"
        )
    able = [r for r in rooms() if room_file(r, "mutants.py").exists()]
    able = [r for r in able if room_file(r, "kernel.py").exists()]
    if like not in able:
        raise CannotBegin(f"a post can begin with the kernel of {', '.join(able)}, not of {like!r}")

    def renamed(source: str) -> str:
        return re.sub(rf"(?<![a-z]){like}(?![a-z])", name, source)

    kernel = renamed(room_file(like, "kernel.py").read_text("utf-8"))
    mutants = []
    for mutant in load(like, "mutants").MUTANTS[:MUTANTS]:
        values = mutant.name, renamed(mutant.old), renamed(mutant.new), mutant.diagnosis
        lines = "".join(f"        {json.dumps(v, ensure_ascii=False)},\n" for v in values)
        mutants.append(f"    Mutant(\n{lines}    ),\n")
    words = name.replace("_", " ").capitalize()
    fields = {
        "MUTANT_LINES": "".join(mutants),
        "SECTIONS\n": "".join(_shown(name, section) for section in SECTION.findall(kernel)),
        "DATE": date.today().isoformat(),
        "WORDS": words,
        "LIKE": like,
        "NAME": name,
    }
    files = {f"snippets/{name}/kernel.py": kernel}
    for template in TEMPLATES.rglob("*.txt"):
        text = template.read_text("utf-8")
        for mark, value in fields.items():
            text = text.replace(mark, value)
        path = template.relative_to(TEMPLATES).with_suffix("").as_posix()
        files[path.replace("NAME", name)] = text
    if taken := [path for path in files if (root / path).exists()]:
        raise CannotBegin(f"there is a {name} already: {', '.join(taken)}")
    entry = (
        f"::: snippets.{name}.kernel.{name}\n\n"
        f"Explained in [{words}](../posts/{name}.md#kernel). "
        f"[The file](/snippets/{name}/kernel.py).\n\n"
    )
    listed = {  # file → after the last of which lines, and what
        "mkdocs.yml": (r"^ +- .+: posts/\w+\.md\n", f"          - {words}: posts/{name}.md\n"),
        "docs/reference/launchers.md": (
            rf"^::: snippets\.{like}\.kernel\.{like}\n\nExplained .*\n\n",
            entry,
        ),
    }
    identity = "snippets/_lab/draw/identity.py"
    taken_hues = map(int, re.findall(RUNG, (root / identity).read_text("utf-8"), re.MULTILINE))
    hue = _farthest([*taken_hues])
    listed[identity] = RUNG, f'    "{name}": Rung({hue}, 0.58, "", 0.14),\n'
    for path, (pattern, new) in listed.items():
        text = (root / path).read_text("utf-8")
        found = list(re.finditer(pattern, text, re.MULTILINE))
        if not found:
            raise CannotBegin(f"nowhere to enter {new.strip()!r}: no line is like {pattern}")
        files[path] = text[: found[-1].end()] + new + text[found[-1].end() :]
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, "utf-8")
    return [root / path for path in files]


def _farthest(taken: list[int]) -> int:
    """The hue that is as far from those of the others as can be."""
    return max(WARM, key=lambda h: min(abs((h - t + 180) % 360 - 180) for t in taken))


def _shown(name: str, section: str) -> str:
    words = section.replace("_", " ")
    return (
        f"The part called *{words}*:\n\n"
        f'```python title="snippets/{name}/kernel.py"\n'
        f'--8<-- "snippets/{name}/kernel.py:{section}"\n'
        "```\n\n"
    )
