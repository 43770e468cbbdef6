"""Writes the files of a new post and enters its name where posts are listed."""

import keyword
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path

from snippets._lab.rooms import ROOT, UnknownName, load, room_file, rooms

NEEDED = ("kernel", "mutants")  # of the room that a post begins with
TEMPLATES = Path(__file__).parent
MUTANTS = 3  # of the kernel that a post begins with; more of them belong to a post that is written
SECTION = re.compile(r"^\s*# --8<-- \[start:(\w+)\]$", re.MULTILINE)
WARM = (*range(20, 113), *range(340, 360))  # hues, in degrees, in which our own kernels are drawn
RUNG = re.compile(r'^    "\w+": Rung\((\d+).*\n', re.MULTILINE)


class CannotBegin(UnknownName):
    """A post that cannot be begun; the message says why, and nothing was written."""


def new_post(name: str, like: str, root: Path = ROOT) -> list[Path]:
    """Write a post that begins with the kernel of the room `like`; returns what was written.

    Raises CannotBegin, before anything is written.
    """
    _check(name, like, root)
    sources = {
        f"snippets/{name}/__init__.py": "init",
        f"snippets/{name}/bench.py": "bench",
        f"snippets/{name}/figures.py": "figures",
        f"snippets/{name}/mutants.py": "mutants",
        f"snippets/{name}/exercise.py": "exercise",
        f"snippets/{name}/tasks.toml": "exercises",
        f"tests/posts/test_{name}.py": "test",
        f"docs/posts/{name}.md": "page",
    }
    kernel = _renamed(room_file(like, "kernel.py").read_text("utf-8"), like, name)
    words = name.replace("_", " ")
    fields = {
        "MUTANT_LINES": _mutants(like, name),
        "SECTIONS\n": "".join(_shown(name, section) for section in SECTION.findall(kernel)),
        "DATE": date.today().isoformat(),
        "WORDS": words[0].upper() + words[1:],
        "LIKE": like,
        "NAME": name,
    }
    files = {root / f"snippets/{name}/kernel.py": kernel}
    for path, template in sources.items():
        text = (TEMPLATES / f"{template}.txt").read_text("utf-8")
        for mark, value in fields.items():
            text = text.replace(mark, value)
        files[root / path] = text
    lists: dict[str, Callable[[str], str]] = {
        "mkdocs.yml": lambda text: _after_last(
            text, r"^ +- posts/\w+\.md\n", f"      - posts/{name}.md\n"
        ),
        "docs/reference/launchers.md": lambda text: _reference(text, name, like, fields["WORDS"]),
        "docs/playground.md": lambda text: _after_last(
            text,
            r'^<div class="am-exercise" data-exercise="\w+:\w+"></div>\n',
            f'\n<div class="am-exercise" data-exercise="{name}:scores"></div>\n',
        ),
        "snippets/_lab/draw/identity.py": lambda text: _identity(text, name),
    }
    for path, change in lists.items():
        files[root / path] = change((root / path).read_text("utf-8"))
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return list(files)


def _check(name: str, like: str, root: Path) -> None:
    if not re.fullmatch(r"[a-z]+(_[a-z]+)*", name) or keyword.iskeyword(name):
        raise CannotBegin(
            f"{name!r} is no name for a post; lower-case words joined by underscores are, without "
            "digits: make new POST=sliding_window"
        )
    taken = [
        path
        for path in (
            f"snippets/{name}",
            f"docs/posts/{name}.md",
            f"docs/lab/{name}.md",
            f"tests/posts/test_{name}.py",
        )
        if (root / path).exists()
    ]
    if taken:
        raise CannotBegin(f"there is a {name} already: {', '.join(taken)}")
    able = [r for r in rooms() if all(room_file(r, f"{f}.py").exists() for f in NEEDED)]
    if like not in able:
        raise CannotBegin(f"a post can begin with the kernel of {', '.join(able)}, not of {like!r}")


def _renamed(source: str, like: str, name: str) -> str:
    return re.sub(rf"(?<![a-z]){like}(?![a-z])", name, source)


def _mutants(like: str, name: str) -> str:
    try:
        known = load(like, "mutants").MUTANTS[:MUTANTS]
    except ImportError as error:
        raise UnknownName(f"the wrong kernels of {like} cannot be read: {error}") from error
    lines = []
    for mutant in known:
        values = [mutant.name, *(_renamed(text, like, name) for text in mutant[1:3])]
        lines += ["    Mutant(", *(f"        {_quoted(v)}," for v in (*values, mutant.diagnosis))]
        lines.append("    ),")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A text as the formatter writes it."""
    plain = text.replace("\\", "\\\\").replace("\n", "\\n")
    return (
        f"'{plain}'" if '"' in plain and "'" not in plain else '"' + plain.replace('"', '\\"') + '"'
    )


def _shown(name: str, section: str) -> str:
    words = section.replace("_", " ")
    return (
        f"The part called *{words}*:\n\n"
        f'```python title="snippets/{name}/kernel.py"\n'
        f'--8<-- "snippets/{name}/kernel.py:{section}"\n'
        "```\n\n"
    )


def _after_last(text: str, pattern: str, new: str) -> str:
    found = list(re.finditer(pattern, text, re.MULTILINE))
    if not found:
        raise CannotBegin(f"nowhere to enter {new.strip()!r}: no line is like {pattern}")
    at = found[-1].end()
    return text[:at] + new + text[at:]


def _reference(text: str, name: str, like: str, words: str) -> str:
    entry = (
        f"::: snippets.{name}.kernel.{name}\n\n"
        f"Explained in [{words}](../posts/{name}.md#kernel). "
        f"[The file](/snippets/{name}/kernel.py).\n\n"
    )
    return _after_last(text, rf"^::: snippets\.{like}\.kernel\.{like}\n\nExplained .*\n\n", entry)


def _identity(text: str, name: str) -> str:
    """The new post's color: as far from those of the others as can be."""
    taken = [int(hue) for hue in RUNG.findall(text)]
    hue = max(WARM, key=lambda h: min(abs((h - t + 180) % 360 - 180) for t in taken))
    return _after_last(text, RUNG.pattern, f'    "{name}": Rung({hue}, 0.58, "", 0.14),\n')
