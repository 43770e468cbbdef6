"""Whether the code behind a result is still the code that was measured, and what has changed.

A result records a digest of every definition that it depends on: its bench function, its room's
launcher and the launchers that it names, each with all that it uses in the files of rooms. It is
stale when one of those has changed or gone. What nobody recorded, such as a room that was added
later, makes nothing stale; the next `make bench` measures it. The lab is not counted.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from snippets._lab import rooms
from snippets._lab.results.result import Code, Result
from snippets._lab.results.source_hash import (
    Definition,
    Import,
    definitions,
    imports,
    public_functions,
)
from snippets._lab.rooms import attention_rooms, interpreted, room_file, source_file, test_files

WORDING = ", the wording of its errors"
NUMERICAL = "pytest.mark.numerical"  # the tests that judge mutants
NOT_RECORDED = "measured before definitions were recorded"


def code_of(room: str, result: str, place: str = "gpu") -> Code:
    """Every definition that a result depends on, with its digest: file → name → digest.

    Raises ValueError if the room does not define the result, UnknownName if there is no room.
    """
    walk = Walk(room, place)
    if place == "browser":
        walk.follow(rooms.SNIPPETS / "_site" / f"{result}.py", [result])  # what the site asks itself
        return walk.code
    source = source_file(room)
    if source.exists():
        names = _launchers(source, room)
        if result in ("mutants", *rooms.FOR_SCRIPTS):  # any line of the file may be in one
            names = public_functions(source.read_text("utf-8"))
        walk.follow(source, [*names, "main"] if result == "report" else names)
    if result == "mutants":
        walk.follow(room_file(room, "mutants.py"), ["MUTANTS"])
        for path in test_files(room):
            walk.follow(path, _judging(definitions(walk.text(path))))
    elif result in rooms.FOR_SCRIPTS:
        walk.follow(room_file(room, "problems.py"), [result])
        if result == "problems":
            walk.follow(room_file(room, "mutants.py"), ["MUTANTS"])
    elif result != "report":
        bench = room_file(room, "bench.py")
        walk.follow(bench, [result])
        if definitions(walk.text(bench))[result].marks.get("every_launcher"):
            for other in attention_rooms(place):
                walk.follow(source_file(other), _launchers(source_file(other), other))
    return walk.code


def of_rows(code: Code, place: str, rows: Sequence[Mapping[str, Any]]) -> Code:
    """What of the code these rows depend on.

    Where every row is a time on a GPU none holds the text of an error, which takes no time either.
    """
    if place != "gpu" or not all("ms_p50" in row for row in rows):
        return code
    return {
        file: {name: value for name, value in found.items() if not name.endswith(WORDING)}
        for file, found in code.items()
    }


def source_hash(code: Code) -> str:
    """One hash of all definitions that a result depends on."""
    lines = [
        f"{file}:{name}:{value}\n"
        for file in sorted(code)
        for name, value in sorted(code[file].items())
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


# --8<-- [start:stale]
def changed(result: Result) -> list[str]:
    """The definitions that have changed, or gone, since they were measured: "file: name"."""
    if not result.code:
        return [NOT_RECORDED]
    walk = Walk(result.post, result.place)
    found = []
    for file, recorded in result.code.items():
        path = _path(file)
        for name, value in recorded.items():
            now = walk.entries(path, name.removesuffix(WORDING)) if path.exists() else {}
            if name not in now:
                found.append(f"{file}: {name} is gone")
            elif now[name] != value:
                found.append(f"{file}: {name}")
    return found


def is_stale(result: Result) -> bool:
    """True if code behind a result has changed, or gone, since it was measured."""
    return bool(changed(result))
    # --8<-- [end:stale]


def _launchers(source: Path, room: str) -> list[str]:
    """The launcher called like its room; all public names of a file that has none."""
    text = source.read_text("utf-8")
    return [room] if room in definitions(text) else public_functions(text)


def _judging(found: Mapping[str, Definition]) -> list[str]:
    """The tests that judge mutants; all tests of a file that marks none."""
    tests = [name for name in found if name.startswith("test_")]
    return [name for name in tests if NUMERICAL in found[name].marks] or tests


def _file(path: Path) -> str:
    """What a file is called in a result: "x/kernel.py", or "tests/posts/test_launchers.py"."""
    within = path.is_relative_to(rooms.SNIPPETS)
    return path.relative_to(rooms.SNIPPETS if within else rooms.SNIPPETS.parent).as_posix()


def _path(file: str) -> Path:
    return (rooms.SNIPPETS.parent if file.startswith("tests/") else rooms.SNIPPETS) / file


class Walk:
    """Follows definitions from file to file; `code` holds those that were reached."""

    def __init__(self, room: str, place: str) -> None:
        self.room, self.place = room, place
        self.rooms = rooms.rooms()
        self.code: Code = {}
        self._others = frozenset(self.rooms) - {room}
        self._texts: dict[Path, str] = {}

    def text(self, path: Path) -> str:
        """A file's content, read once."""
        if path not in self._texts:
            self._texts[path] = path.read_text("utf-8")
        return self._texts[path]

    def find(self, path: Path, name: str) -> Definition | None:
        """A definition; of a table in the tests, the other rooms' entries do not count."""
        found = definitions(self.text(path))
        if name not in found:
            return None
        return found.without(name, self._others) if self._judges(path) else found[name]

    def entries(self, path: Path, name: str) -> dict[str, str]:
        """The digests of a definition by name, as a result records them; empty if it is gone."""
        if (found := self.find(path, name)) is None:
            return {}
        return {name: found.digest} | ({name + WORDING: found.wording} if found.wording else {})

    def follow(self, path: Path, names: Iterable[str]) -> None:
        """Record these definitions of a file and all that they use.

        Raises ValueError if the file does not define one of them.
        """
        waiting = [(path, name) for name in names]
        if missing := [name for _, name in waiting if name not in definitions(self.text(path))]:
            raise ValueError(f"{_file(path)} has no top-level definition of {missing[0]!r}")
        seen = set()
        while waiting:
            path, name = waiting.pop()
            if (path, name) in seen or (definition := self.find(path, name)) is None:
                continue
            seen.add((path, name))
            self.code.setdefault(_file(path), {}).update(self.entries(path, name))
            waiting += self._used(path, definition)

    def _judges(self, path: Path) -> bool:
        return path.is_relative_to(rooms.SNIPPETS.parent / "tests")

    def _used(self, path: Path, definition: Definition) -> Iterator[tuple[Path, str]]:
        """(file, name) of all that a definition uses in files of rooms."""
        from_house = imports(self.text(path))
        handed = definition.parameters if self._judges(path) else frozenset()
        for name in definition.uses | handed:
            if name not in from_house:
                yield path, name
                continue
            there = self._origin(path, from_house[name])
            if isinstance(there, tuple):
                yield there
            elif there and name in definition.whole:
                yield from ((there, n) for n in public_functions(self.text(there)))
            elif there:
                yield from ((there, member) for n, member in definition.members if n == name)
        if not self._judges(path):  # a test names rooms in order to leave them out, or in
            for text in definition.strings:
                yield from self._competitor(text)

    def _origin(self, path: Path, imported: Import) -> Path | tuple[Path, str] | None:
        """The module that an import names, or the definition; None for what is of no room."""
        dots = len(imported.module) - len(imported.module.lstrip("."))
        base = path.parents[dots - 1] if dots else rooms.SNIPPETS.parent
        place = base.joinpath(*filter(None, imported.module.lstrip(".").split(".")))
        within = place.is_relative_to(rooms.SNIPPETS)
        if not within or _file(place).startswith("_"):
            return None
        if (module := place / f"{imported.name}.py").exists():
            return module
        for there in (place.with_suffix(".py"), place / "__init__.py"):
            if there.exists():
                text = self.text(there)
                if imported.name in definitions(text):
                    return there, imported.name
                if again := imports(text).get(imported.name):  # it is handed on
                    return self._origin(there, again)
        return None

    def _competitor(self, text: str) -> Iterator[tuple[Path, str]]:
        """The launcher that a string names: "basic_attention", "basic_attention:exercise"."""
        owner, _, variant = text.partition(":")
        if owner not in self.rooms or not (variant or owner).isidentifier():
            return
        path = room_file(owner, f"{variant}.py") if variant else source_file(owner)
        if not path.exists():
            return
        if self.place == "interpreter" and owner != self.room and not interpreted(owner):
            return  # it runs no Gluon, so nothing of that kernel can be in the rows
        yield from ((path, name) for name in _launchers(path, owner))
