"""Draws docs/figures from docs/data: the same bytes every time, and without torch or triton."""

import functools
import inspect
import tomllib
from pathlib import Path

from snippets._lab.draw.every_room import mutants, report
from snippets._lab.draw.figure import Drawn
from snippets._lab.draw.fragment import fragment
from snippets._lab.draw.pictures import Pictured, picture_fragment
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

    Raises DataError that names a missing, truncated or tampered data file.
    """
    by_name: dict[tuple[str, str], list[Result]] = {}
    # What a browser measured of the site becomes a table when the site is built.
    shown = (r for r in store.scan(data) if r.place != "browser")
    everything = [result for result in shown if result.result not in FOR_SCRIPTS]
    for result in everything:
        by_name.setdefault((result.post, result.result), []).append(result)
    files: dict[Path, str] = {}
    for room in rooms():
        for name, function in figure_functions(room).items():
            results = by_name.pop((room, name), [])
            if hasattr(function, "from_all"):
                results = everything
            if not results and room in waiting():
                continue
            if not results and places_of(room).get(name) == ("gpu",):
                continue  # its page says that no GPU has measured it
            if not results:
                command = f"make bench-cpu POST={room} RESULT={name}"
                raise DataError(f"no device has {data}/*/{room}/{name}.json; run `{command}`")
            for file, text in fragment(room, name, function, reference_first(results)).items():
                files[out / room / file] = text
        for name, drawing in pictures(room).items():
            for file, text in picture_fragment(room, name, drawing, everything).items():
                if out / room / file in files:
                    raise DataError(f"a picture and a figure of {room} are both called {name}")
                files[out / room / file] = text
    if by_name:
        left = ", ".join(f"{post}/{result}" for post, result in sorted(by_name))
        raise DataError(f"no figures.py draws these results: {left}")
    changed = [p for p, text in files.items() if not p.exists() or p.read_bytes() != text.encode()]
    gone = [p for p in out.rglob("*") if p.is_file() and p not in files]
    if strange := [p for p in gone if p.suffix not in (".md", ".json", ".part")]:
        raise DataError(f"{strange[0]} is no figure, and {out} is for nothing else: move it away")
    if write:
        for path in changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            store.write_whole(path, files[path])
        for path in gone:
            path.unlink()
    return sorted(changed + gone)


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
