"""Draws docs/figures from docs/data: the same bytes every time, and without torch or triton."""

import functools
import inspect
import json
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from snippets._lab.draw.figure import Drawn
from snippets._lab.draw.fragment import NUMBERS, fragment
from snippets._lab.draw.pictures import Pictured, picture_fragment
from snippets._lab.draw.shared_figures import mutants, report
from snippets._lab.results import store
from snippets._lab.results.store import DataError, Result
from snippets._lab.rooms import (
    DATA,
    FIGURES,
    FOR_SCRIPTS,
    ROOT,
    load,
    places_of,
    room_file,
    rooms,
    source_file,
    waiting,
)


def draw_all(data: Path = DATA, out: Path = FIGURES, write: bool = True) -> list[Path]:
    """Draw every figure; return the files that are not (or, with write, were not) as drawn.

    Raises DataError that names all that is wrong: each missing, truncated or tampered data file,
    each figure that cannot be drawn and, so that nothing hides behind them, the files that are not
    as drawn. Nothing is written then.
    """
    faults: list[str] = []
    everything: list[Result] = []
    unread: set[tuple[str, str]] = set()
    for path in sorted(data.rglob("*.json")):
        try:
            everything.append(store.read(path, data))
        except DataError as error:
            faults.append(str(error))
            unread.add((path.parent.name, path.stem))
    # What a browser measured of the site becomes a table when the site is built.
    everything = [r for r in everything if r.place != "browser" and r.result not in FOR_SCRIPTS]
    by_name: dict[tuple[str, str], list[Result]] = {}
    for result in everything:
        by_name.setdefault((result.post, result.result), []).append(result)
    files: dict[Path, str] = {}
    numbers: dict[str, dict[str, Any]] = {}  # room → figure → its numbers
    unknown: list[str] = []  # figures that data which cannot be read belongs to

    def draw(room: str, name: str, make: Callable[[], dict[str, str]], waits: bool) -> None:
        if waits:
            return unknown.append(f"{room}/{name}")
        try:
            for file, text in make().items():
                if file == NUMBERS:
                    numbers.setdefault(room, {}).update(json.loads(text))
                    claims = numbers[room][name]["claims"]
                    faults.extend(
                        f"figure {name} of {room} no longer bears out {claim!r}: rewrite the words"
                        for claim, holds in claims.items()
                        if not holds
                    )
                    continue
                if out / room / file in files:
                    raise DataError(f"two figures of {room} are called {name}")
                files[out / room / file] = text
        except DataError as error:
            faults.append(str(error))
            unknown.append(f"{room}/{name}")

    for room in rooms():
        for name, function in figure_functions(room).items():
            results = by_name.pop((room, name), [])
            whole = hasattr(function, "from_all")
            waits = bool(unread) if whole else (room, name) in unread
            if whole:
                results = everything
            if not results and not waits:
                if room in waiting() or places_of(room).get(name) == ("gpu",):
                    continue  # its page says that no GPU has measured it
                command = f"make bench-cpu POST={room} RESULT={name}"
                faults.append(f"no device has {data}/*/{room}/{name}.json; run `{command}`")
                waits = True
            ordered = reference_first(results)
            draw(room, name, partial(fragment, room, name, function, ordered), waits)
        for name, drawing in pictures(room).items():
            waits = bool(unread and inspect.signature(drawing).parameters)
            draw(room, name, partial(picture_fragment, room, name, drawing, everything), waits)
    if by_name:
        left = ", ".join(f"{post}/{result}" for post, result in sorted(by_name))
        faults.append(f"no figures.py draws these results: {left}")
    for room, of_room in numbers.items():
        text = json.dumps(of_room, ensure_ascii=False, indent=1)
        files[out / room / NUMBERS] = text + "\n"
    changed = [p for p, text in files.items() if not p.exists() or p.read_bytes() != text.encode()]
    gone = [p for p in out.rglob("*") if p.is_file() and p not in files]
    strange = [p for p in gone if p.suffix not in (".md", ".json", ".part")]
    if strange and write:
        faults.append(f"{strange[0]} is no figure, and {out} is for nothing else: move it away")
    differing = sorted({*changed, *gone} - {*strange})
    if faults:
        there = [p for p in differing if not any(_made_by(p, out, name) for name in unknown)]
        faults += [f"{path} is not as drawn" for path in there if not write]
        raise DataError("\n".join(faults))
    if write:
        for path in changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            store.write_whole(path, files[path])
        for path in gone:
            path.unlink()
    return differing


def _made_by(path: Path, out: Path, figure: str) -> bool:
    """Whether a file is one of a figure's: room/name.md, what is named after it, its numbers."""
    room, _, name = figure.partition("/")
    own = path.name == NUMBERS or f"{path.stem}_".startswith(f"{name}_")
    return path.parent == out / room and own


def figure_functions(room: str) -> dict[str, Drawn]:
    """The figures of a room by name, those every room has included."""
    if not room_file(room, "figures.py").exists():
        return {}
    module = load(room, "figures")
    functions: dict[str, Drawn] = {
        name: f
        for name, f in inspect.getmembers(module, inspect.isfunction)
        if not name.startswith("_") and f.__module__ == module.__name__
    }
    if room_file(room, "mutants.py").exists():
        functions["mutants"] = mutants
    if source_file(room).exists():
        functions["report"] = report
    return functions


def pictures(room: str) -> dict[str, Pictured]:
    """The pictures of a room by name: what is marked so in its drawings.py."""
    if not room_file(room, "drawings.py").exists():
        return {}
    functions = inspect.getmembers(load(room, "drawings"), inspect.isfunction)
    return {name: f for name, f in functions if hasattr(f, "picture")}


@functools.cache
def _reference() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return str(project["tool"]["attention-measured"]["reference-device"])


def reference_first(results: list[Result]) -> list[Result]:
    """Results as a figure gets them: the reference device, other GPUs, then the rest."""
    return sorted(results, key=lambda r: (r.folder != _reference(), r.place != "gpu", r.folder))
