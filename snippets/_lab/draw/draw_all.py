"""Draws docs/figures from docs/data: the same bytes every time, and without torch or triton."""

import inspect
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from snippets._lab.draw.figure import Drawn, of_results
from snippets._lab.draw.fragment import NUMBERS, fragment
from snippets._lab.draw.pictures import Pictured, picture_fragment
from snippets._lab.draw.shared_figures import mutants, report
from snippets._lab.results import store
from snippets._lab.results.store import DataError, Result
from snippets._lab.rooms import (
    DATA,
    FIGURES,
    FOR_SCRIPTS,
    load,
    places_of,
    room_file,
    rooms,
    source_file,
)

REFERENCE = "nvidia_h200"  # whose finding is the title of a figure that shows several devices


def draw_all(data: Path = DATA, out: Path = FIGURES, write: bool = True) -> list[Path]:
    """Draw every figure; return the files that are not (or, with write, were not) as drawn.

    Raises DataError that names a data file that is truncated or tampered; if there is none, all
    figures that cannot be drawn. Nothing is written then.
    """
    # Not what a browser measured, nor what is asked there.
    everything = [r for r in store.scan(data) if r.place != "browser"]
    everything = [r for r in everything if r.result not in FOR_SCRIPTS]
    by_name: dict[tuple[str, str], list[Result]] = {}
    for result in everything:
        by_name.setdefault((result.post, result.result), []).append(result)
    faults: list[str] = []
    files: dict[Path, str] = {}

    def draw(room: str, name: str, make: Callable[[], dict[str, str]]) -> None:
        try:
            made = make()
        except DataError as error:
            return faults.append(str(error))
        for file, text in made.items():
            path = out / room / file
            if file == NUMBERS:  # of a room, put together
                mine = json.loads(text)
                faults.extend(
                    f"figure {name} of {room} no longer bears out {claim!r}: rewrite the words"
                    for claim, holds in mine[name]["claims"].items()
                    if not holds
                )
                mine = json.loads(files.get(path, "{}")) | mine
                files[path] = json.dumps(mine, ensure_ascii=False, indent=1) + "\n"
            elif path in files:
                faults.append(f"two figures of {room} are called {name}")
            else:
                files[path] = text

    for room in rooms():
        for name, function in figure_functions(room).items():
            results = by_name.pop((room, name), [])
            if hasattr(function, "from_all"):
                results = everything
            if results:
                ordered = reference_first(results)
                draw(room, name, partial(fragment, room, name, function, ordered))
            elif places_of(room).get(name) != ("gpu",):
                command = f"make bench-cpu POST={room} RESULT={name}"
                faults.append(f"no device has {data}/*/{room}/{name}.json; run `{command}`")
        for name, drawing in pictures(room).items():
            draw(room, name, partial(picture_fragment, room, name, drawing, everything))
    if by_name:
        left = ", ".join(f"{post}/{result}" for post, result in sorted(by_name))
        faults.append(f"no figures.py draws these results: {left}")
    changed = [p for p, text in files.items() if not p.exists() or p.read_bytes() != text.encode()]
    gone = [p for p in out.rglob("*") if p.is_file() and p not in files]
    strange = [p for p in gone if p.suffix not in (".md", ".json", ".part")]
    if strange and write:
        faults.append(f"{strange[0]} is no figure, and {out} is for nothing else: move it away")
    if faults:
        raise DataError("\n".join(faults))
    if write:
        for path in changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            store.write_whole(path, files[path])
        for path in gone:
            path.unlink()
    return sorted({*changed, *gone} - {*strange})


def figure_functions(room: str) -> dict[str, Drawn]:
    """The figures of a room by name, those every room has included."""
    if not room_file(room, "figures.py").exists():
        return {}
    module = load(room, "figures")
    functions: dict[str, Drawn] = {
        name: of_results(f)
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


def reference_first(results: list[Result]) -> list[Result]:
    """Results as a figure gets them: the reference device, other GPUs, then the rest."""
    return sorted(results, key=lambda r: (r.folder != REFERENCE, r.place != "gpu", r.folder))
