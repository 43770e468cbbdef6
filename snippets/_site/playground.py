"""What the playground needs of a build: each kernel's text, and a way in beside each listing.

A listing that shows a section of a `@triton.jit` function gets a button, "Edit and run"; one of
Gluon, of PyTorch or of a launcher says in its title why it has none. The row of a room's kernel.py
gets the buttons of the kernels that no listing of the page shows. The text that the editor opens
is cut from the room's file: the kernel, the jit functions that it calls and the constants that
these use, as they stand there. One file a room is published, and fetched after a click.
"""

import ast
import functools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from snippets._lab.draw.scene import LAUNCHES
from snippets._lab.rooms import FOR_SCRIPTS
from snippets._site import exercises, kernels

FILES = ("kernel.py", "one_pass.py", "exercise.py")
LISTING = re.compile(
    r'^(?P<fence> *```python title="(?P<path>snippets/(?P<room>[a-z_]+)/(?P<file>\w+\.py)))"\n'
    r'(?P<include> *--8<-- "(?P=path):(?P<section>\w+)"\n)',
    re.MULTILINE,
)
SHOWN = re.compile(
    r'<span class="filename">(?P<path>snippets/(?P<room>[a-z_]+)/(?P<file>\w+\.py)):'
    r"(?P<section>\w+)</span>"
)
FILE_ROW = re.compile(
    r'(?P<row><div class="am-file">\s*<p><code>snippets/(?P<room>[a-z_]+)/kernel\.py</code>.*?)'
    r"</p>",
    re.DOTALL,
)
MODEL = re.compile(r'id="(?P<id>figure-[\w-]*barriers[\w-]*)"')  # what Gluon's warps agree on
RACE = "docs/figures/scoreboard/race_launches.json"
LIST = '<div class="am-kernels"></div>'
EDIT = "Edit and run"
# Why a listing cannot be run on the page, by what it is.
GLUON = "Gluon: needs a Hopper GPU"
HOST = "host code, not run here"
PYTORCH = "PyTorch, not run here"


def add(files: Files, config: MkDocsConfig) -> None:
    """Publish what the editor opens: one file for each room that has a kernel or an exercise."""
    for room in sorted(_snippets(config).glob("[!_]*/")):
        if published := opened(room):
            uri = f"assets/playground/{room.name}.json"
            files.append(File.generated(config, uri, content=json.dumps(published)))


def opened(room: Path) -> dict[str, Any]:
    """A room's kernels, each with the result that holds its problems, and exercises; or nothing."""
    recorded = _recorded(room.parent, room.name)
    played = _played(room.parent, room.name)
    races = room.parent.parent / RACE
    raced = json.loads(races.read_text("utf-8"))["launches"] if races.is_file() else {}
    found = {
        f"{path.name}:{kernel.name}": {
            "text": kernel.text,
            "rest": kernel.rest,
            "sections": kernel.sections,
            "problems": recorded.get(kernel.name, ""),
            "scene": path.name == "kernel.py" and kernel.name in played,
            "race": path.name == "kernel.py" and kernel.name in raced,
        }
        for path in (room / name for name in FILES)
        if path.is_file()
        for kernel in kernels.of_file(path)
    }
    tasks = exercises.opened(room)
    return {"room": room.name, "kernels": found, "exercises": tasks} if found or tasks else {}


def marked(markdown: str) -> str:
    """A page's Markdown in which the title of a listing names its section too."""
    return LISTING.sub(r'\g<fence>:\g<section>"\n\g<include>', markdown)


def shown(content: str, config: MkDocsConfig) -> str:
    """A page's HTML with a button, or the reason for none, in the title of each listing."""

    model = MODEL.search(content)

    def title(match: re.Match[str]) -> str:
        path = _snippets(config).parent / match["path"]
        kind = _kinds(path.read_text("utf-8")).get(match["section"], "")
        beside = _beside(match, kind, _snippets(config))
        if kind == GLUON and model:
            link = f'<a href="#{model["id"]}">play its barriers instead</a>'
            beside = beside.replace(GLUON, f"{GLUON}, {link}")
        return f'<span class="filename">{match["path"]}{beside}</span>'

    content = SHOWN.sub(title, content)

    def row(match: re.Match[str]) -> str:
        path = _snippets(config) / match["room"] / "kernel.py"
        can_run = _recorded(_snippets(config), match["room"])
        names = [kernel.name for _, kernel in _kernels_of([path]) if kernel.name in can_run]
        ids = {f"{match['room']}/kernel.py:{name}": name for name in names}
        buttons = [
            _button(kernel, "", f"Edit and run <code>{name}</code>" if len(ids) > 1 else EDIT)
            for kernel, name in ids.items()
            if f'data-kernel="{kernel}"' not in content
        ]
        return " ".join([match["row"], *buttons]) + "</p>"

    return FILE_ROW.sub(row, content)


def listed(markdown: str, config: MkDocsConfig, order: Iterable[str]) -> str:
    """A page's Markdown with the list of all kernels where it asks for one."""
    if LIST not in markdown:
        return markdown
    lines = ['<div class="am-kernels" markdown>', ""]
    for room in order:
        can_run = _recorded(_snippets(config), room)
        files = (_snippets(config) / room / name for name in FILES if name != "exercise.py")
        there = [path for path in files if can_run and path.is_file()]
        for path, kernel in _kernels_of(there):
            if kernel.name not in can_run:
                continue
            says = (kernel.says.splitlines() or [""])[0]
            button = _button(f"{room}/{path.name}:{kernel.name}", "")
            lines += [
                '<div class="am-kernel" markdown>',
                f"`{kernel.name}` of [{room}](posts/{room}.md): {says} "
                f"[{path.name}](/snippets/{room}/{path.name}) {button}",
                "</div>",
                "",
            ]
    return markdown.replace(LIST, "\n".join([*lines, "</div>"]))


def _kernels_of(paths: Iterable[Path]) -> Iterator[tuple[Path, kernels.Kernel]]:
    for path in paths:
        for kernel in kernels.of_file(path):
            yield path, kernel


def _beside(match: re.Match[str], kind: str, snippets: Path) -> str:
    if kind in (GLUON, HOST, PYTORCH):
        return f' <small class="am-not-run" data-search-exclude>{kind}</small>'
    if match["file"] not in FILES or kind not in _recorded(snippets, match["room"]):
        return ""
    return " " + _button(f"{match['room']}/{match['file']}:{kind}", match["section"])


def _button(kernel: str, section: str, label: str = EDIT) -> str:
    at = f' data-section="{section}"' if section else ""
    return (
        f'<button class="am-edit" type="button" data-kernel="{kernel}"{at} '
        f"data-search-exclude>{label}</button>"
    )


@functools.cache  # live reload and many listings of one file ask again
def _kinds(source: str) -> dict[str, str]:
    """Section → the kernel that it is a part of, or why it cannot be run; others have no entry."""
    body = ast.parse(source).body
    cut, torch = kernels.cut(source), "import torch" in source
    kinds: dict[str, str] = {}
    for name, (first, last) in kernels.sections(source).items():
        inside = [
            node
            for node in body
            if first < kernels.last_line(node) and kernels.first_line(node) < last
        ]
        if whole := [kernel.name for kernel in cut if name in kernel.sections]:
            kinds[name] = whole[0]
        elif any(kernels.language(node) == "gluon" for node in inside):
            kinds[name] = GLUON
        elif any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in inside):
            kinds[name] = HOST if "import triton" in source else PYTORCH if torch else ""
    return kinds


@functools.cache
def _recorded(snippets: Path, room: str) -> dict[str, str]:
    """The kernels that a room's recorded problems launch, and which result holds these problems.

    The others cannot be judged on the page.
    """
    data = snippets.parent / "docs/data/interpreter" / room
    return {
        launch["kernel"]: result
        for result in FOR_SCRIPTS
        if (path := data / f"{result}.json").is_file()
        for row in json.loads(path.read_text("utf-8"))["rows"]
        for launch in row.get("launches", ())
    }


@functools.cache
def _played(snippets: Path, room: str) -> set[str]:
    """The kernels that a room's scene can show with another text: those whose launch it knows."""
    path = snippets.parent / "docs/figures" / room / LAUNCHES
    if not path.is_file():
        return set()
    examples = json.loads(path.read_text("utf-8")).values()
    launches = [e["problem"]["launches"] for e in examples if isinstance(e, dict)]
    return {row["kernel"] for of_one in launches for row in of_one}


def _snippets(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent / "snippets"
