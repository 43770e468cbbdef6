"""Where things are: the rooms, their files, and the modules behind a name."""

import ast
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SNIPPETS = ROOT / "snippets"
DATA = ROOT / "docs" / "data"
FIGURES = ROOT / "docs" / "figures"

PLACES = ("gpu", "interpreter", "compiler")
# Results that no figure shows: what a reader's kernel is tried on. Each is a function of a room's
# problems.py; apart, because a page fetches only those of the kernel that is opened.
FOR_SCRIPTS = ("pasted", "problems")


class UnknownName(ValueError):
    """A post or a result that does not exist; the message lists those that do."""


def rooms() -> list[str]:
    """The slugs of all rooms: every folder of snippets/ without a leading underscore."""
    return sorted(p.parent.name for p in SNIPPETS.glob("[!_]*/__init__.py"))


def room_file(room: str, name: str) -> Path:
    """Path of a file of a room, e.g. kernel.py. Raises UnknownName for an unknown room."""
    if room not in rooms():
        raise UnknownName(f"no post is called {room!r}; there are: {', '.join(rooms())}")
    return SNIPPETS / room / name


def source_file(room: str) -> Path:
    """The file a reader copies: kernel.py, or module.py in a PyTorch room."""
    kernel = room_file(room, "kernel.py")
    return kernel if kernel.exists() else room_file(room, "module.py")


def interpreted(room: str) -> bool:
    """Whether Triton's interpreter can run the room's kernel: it knows no Gluon."""
    return "triton.experimental.gluon" not in source_file(room).read_text(encoding="utf-8")


def attention_rooms(place: str = "gpu") -> list[str]:
    """Rooms whose kernel.py has a launcher of q and k that runs there; read, not imported.

    A backward, which takes the gradient of the output too, is not among them, nor is what runs in a
    group of processes.
    """
    found = []
    for room in rooms():
        launcher = functions(room_file(room, "kernel.py")).get(room)
        if launcher is None or (place == "interpreter" and not interpreted(room)):
            continue
        names = [a.arg for a in (*launcher.args.args, *launcher.args.kwonlyargs)]
        if names[:2] == ["q", "k"] and not {"grad_out", "group"} & set(names):
            found.append(room)
    return found


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    """The top-level functions of a file, read and not imported; none of one that is not there."""
    return _functions(path.read_text("utf-8")) if path.exists() else {}


@functools.cache
def _functions(source: str) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}


def test_files(room: str) -> list[Path]:
    """The tests of a room: the contract that all launchers are held to, and its own."""
    tests = SNIPPETS.parent / "tests" / "posts"
    contract = tests / "test_launchers.py"
    return [*([contract] if contract.exists() else []), tests / f"test_{room}.py"]


def load(room: str, module: str) -> ModuleType:
    """Import a module of a room, e.g. load("basic_attention", "bench")."""
    room_file(room, module)
    return importlib.import_module(f"snippets.{room}.{module}")


def module_at(path: Path, name: str) -> tuple[ModuleType, Callable[[], None]]:
    """The module of a file, still empty, and the call that executes the file in it.

    Raises ImportError for what is no Python file.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    return module, functools.partial(spec.loader.exec_module, module)


def load_file(path: Path, name: str = "") -> ModuleType:
    """Import a file that no package holds, as a module of this name (its own if left out)."""
    name = name or path.stem
    module, execute = module_at(path, name)
    sys.modules[name] = module  # dataclasses, pickle and triton look there
    execute()
    return module


def measured_on(
    *places: str,
    targets: Sequence[str] = (),
    every_launcher: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function of a bench.py as a result, and say where it is measured.

    `targets`: what the compiler compiles for, if it is not what it compiles for otherwise.
    `every_launcher`: it measures the launchers of `attention_rooms`, though it names none; so it
    depends on all that there are when it is measured.
    """
    if not places or not set(places) <= set(PLACES):
        raise ValueError(f"places are {places}; allowed are {', '.join(PLACES)}")

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function.measured_on = places  # type: ignore[attr-defined]
        function.targets = tuple(targets)  # type: ignore[attr-defined]
        function.every_launcher = every_launcher  # type: ignore[attr-defined]
        return function

    return mark


def places_of(room: str) -> dict[str, tuple[str, ...]]:
    """Where each result of a room is measured, read from its bench.py and not imported.

    The results that no bench.py defines run without a GPU.
    """
    marked = {
        name: tuple(ast.literal_eval(argument) for argument in call.args)
        for name, function in functions(room_file(room, "bench.py")).items()
        for call in function.decorator_list
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "measured_on"
    }
    return marked | {
        "report": ("interpreter", "gpu"),
        "mutants": ("interpreter",),
        **dict.fromkeys(FOR_SCRIPTS, ("interpreter",)),
    }


def for_scripts(room: str) -> list[str]:
    """The results of a room that no figure shows, read from its problems.py and not imported."""
    defined = functions(room_file(room, "problems.py"))
    return [name for name in FOR_SCRIPTS if name in defined]


def drawn_from_all(room: str) -> list[str]:
    """Figures and pictures of a room that have no result of their own, read from their files."""
    return [
        name
        for file in ("figures.py", "drawings.py")
        for name, function in functions(room_file(room, file)).items()
        if {"from_all", "picture"} & set(map(ast.unparse, function.decorator_list))
    ]


def on_a_gpu(data: Path, room: str, result: str) -> bool:
    """Whether a GPU has measured a result: its folder lies beside the interpreter's."""
    found = data.glob(f"*/{room}/{result}.json")  # the compiler's lie one deeper
    return any(path.parts[-3] not in ("interpreter", "browser") for path in found)


def results(room: str) -> dict[str, Callable[..., Any]]:
    """The results of a room in the order of its bench.py: name → marked function."""
    if not room_file(room, "bench.py").exists():
        return {}
    functions = inspect.getmembers(load(room, "bench"), inspect.isfunction)
    found = {name: f for name, f in functions if hasattr(f, "measured_on")}
    return dict(sorted(found.items(), key=lambda item: item[1].__code__.co_firstlineno))
