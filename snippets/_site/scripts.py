"""Our scripts, packed: one for every page, one for each widget that comes where the widget is, and
those of the playground, which come after a click.

The source is ES modules. Each module of a pack becomes a constant that holds what it exports, in
the order in which they need each other; what an entry exports it still exports. A widget shares
modules with the first script by importing them from it, so that a module runs once on a page, and
nothing is global. The packs lie in a folder named after their content, so that a cache may keep
them; it is as deep as the source, so that a module finds other files from where it is
(`import.meta.url`).

Only these forms are packed: `import { a, b } from "./file.js";`, `import "./file.js";`, and
`export` before a const, a function or a class; and no template stands inside a template.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import rcssmin
import rjsmin

SOURCE = "assets/javascripts"
FIRST = "site/index.js"
# Scripts that come when something asks for them.
LATE = (
    "widgets/*.js",
    "search/answers.js",
    "playground/panel.js",
    "playground/at_work.js",
    "playground/race.js",
    "playground/paste.js",
)
SHEETS = ("playground/*.css", "widgets/*.css")  # the playground fetches its own, and a scene's
WORKERS = "playground/*/worker.js"  # scripts beside a page: each brings all that it needs
IMPORT = re.compile(
    r'^import (?:\{(?P<names>(?:(?! as )[^}])*)\} from )?"(?P<path>\.\.?/[^"]+)";\n', re.MULTILINE
)
EXPORT = re.compile(r"^export (?=(?:const|class|(?:async )?function\*?) (\w+))", re.MULTILINE)
LEFT = re.compile(r"^(?:import|export)\b(?!\().*", re.MULTILINE)
NESTED = re.compile(
    r"\$\{[^}`]*`.*"
)  # what makes scripts short takes such a template's spaces away


class PackingError(Exception):
    """The built site holds something that cannot be packed."""


def pack(site: Path) -> str:
    """Write the packs of a built site in place of their source; returns the first one's address."""
    source = site / SOURCE
    first = source / FIRST
    shared = needed(first)
    packs = {FIRST: bundle(shared, exported=True)}
    packed = {*shared}
    for late in sorted(path for pattern in LATE for path in source.glob(pattern)):
        address = os.path.relpath(first, late.parent)
        mine = [module for module in needed(late) if module not in shared]
        packs[late.relative_to(source).as_posix()] = bundle(mine, shared, address)
        packed |= {*mine}
    for worker in sorted(source.glob(WORKERS)):
        modules = needed(worker)
        packs[str(worker.relative_to(source))] = bundle(modules)
        packed |= {*modules}
    for sheet in sorted(path for pattern in SHEETS for path in source.glob(pattern)):
        packs[sheet.relative_to(source).as_posix()] = str(rcssmin.cssmin(sheet.read_text("utf-8")))
    digest = hashlib.sha256("".join(packs.values()).encode()).hexdigest()[:8]
    for name, text in packs.items():
        pack = source.parent / digest / name
        pack.parent.mkdir(parents=True, exist_ok=True)
        pack.write_text(text, "utf-8")
    for folder in {module.parent for module in packed}:
        if folder.exists():  # or it went with the folder that it was in
            shutil.rmtree(folder)
    return f"assets/{digest}/{FIRST}"


def needed(entry: Path, above: tuple[Path, ...] = ()) -> list[Path]:
    """A module and all that it imports, each once and after what it imports itself."""
    if entry in above:
        raise PackingError(f"{entry.name} imports itself, through {above[-1].name}")
    if not entry.is_file():
        raise PackingError(f"{above[-1].name if above else 'the site'} needs {entry}")
    found: dict[Path, None] = {}
    for match in IMPORT.finditer(entry.read_text("utf-8")):
        found |= dict.fromkeys(needed(_imported(entry, match), (*above, entry)))
    return [*found, entry]


def bundle(
    modules: list[Path],
    shared: Sequence[Path] = (),
    address: str = "",
    exported: bool = False,
) -> str:
    """One script of modules, the last of which is its entry; `shared` ones lie at `address`."""
    *parts, entry = modules
    text = "".join(
        f"const {_name(module)} = (() => {{\n{body}return {{ {', '.join(names)} }};\n}})();\n"
        for module in parts
        for body, names in [_body(module)]
    )
    body, names = _body(entry)
    if names:
        body += f"export {{ {', '.join(names)} }};\n"
    if exported:
        body += f"export {{ {', '.join(map(_name, parts))} }};\n"
    text += body
    if taken := [_name(module) for module in shared if re.search(rf"= {_name(module)};", text)]:
        text = f'import {{ {", ".join(taken)} }} from "{address}";\n{text}'
    return str(rjsmin.jsmin(text))


def _body(module: Path) -> tuple[str, list[str]]:
    """A module's code with its imports as constants, and the names that it exports."""
    text = module.read_text("utf-8")

    def imported(match: re.Match[str]) -> str:
        names = " ".join((match["names"] or "").split())
        return f"const {{ {names} }} = {_name(_imported(module, match))};\n" if names else ""

    names = EXPORT.findall(text)
    text = EXPORT.sub("", IMPORT.sub(imported, text))
    if left := LEFT.search(text) or NESTED.search(text):
        raise PackingError(f"{module.name}: this form is not packed: {left[0]}")
    return text, names


def _imported(module: Path, match: re.Match[str]) -> Path:
    return Path(os.path.normpath(module.parent / match["path"]))


def _name(module: Path) -> str:
    return f"{module.parent.name}_{module.stem}"
