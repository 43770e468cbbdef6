"""Whether the code behind a result is still the code that was measured, and what has changed.

A result records a digest of every definition that it depends on: its bench function, its room's
launcher and the launchers that it names, each with all that it uses in the files of rooms. It is
stale when one of those has changed or gone. What nobody recorded, such as a room that was added
later, makes nothing stale; the next `make bench` measures it. The lab is not counted.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from snippets._lab import rooms
from snippets._lab.results.result import Code, Result
from snippets._lab.results.source_hash import (
    Definition,
    Import,
    definition,
    digest,
    imports,
    public_functions,
    statements,
)
from snippets._lab.rooms import attention_rooms, interpreted, room_file, source_file, test_files

NUMERICAL = "attr='numerical'"  # in the text of a test that judges mutants
NOT_RECORDED = "measured before definitions were recorded"


def code_of(room: str, result: str, place: str = "gpu") -> Code:
    """Every definition that a result depends on, with its digest: file → name → digest.

    Raises ValueError if the room does not define the result, UnknownName if there is no room.
    """
    walk = Walk(room, place)
    if place == "browser":
        walk.follow(
            rooms.SNIPPETS / "_site" / f"{result}.py", [result]
        )  # what the site asks itself
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
            walk.follow(path, _judging(walk.text(path)))
    elif result in rooms.FOR_SCRIPTS:
        walk.follow(room_file(room, "problems.py"), [result])
        wrong = room_file(room, "mutants.py")
        listed = {"MUTANTS", "EXERCISE"} & statements(walk.text(wrong)).keys()
        walk.follow(wrong, sorted(listed))
    elif result != "report":
        bench = room_file(room, "bench.py")
        walk.follow(bench, [result])
        if "every_launcher" in {k for *_, k in definition(walk.text(bench), result).keywords}:
            for other in attention_rooms(place):
                walk.follow(source_file(other), _launchers(source_file(other), other))
    return walk.code


def source_hash(code: Code) -> str:
    """One hash of all definitions that a result depends on."""
    lines = [
        f"{file}:{name}:{value}\n"
        for file in sorted(code)
        for name, value in sorted(code[file].items())
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def changed(result: Result) -> list[str]:
    """The definitions that have changed, or gone, since they were measured: "file: name"."""
    if not result.code:
        return [NOT_RECORDED]
    walk = Walk(result.post, result.place)
    found = []
    for file, recorded in result.code.items():
        path = _path(file)
        for name, value in recorded.items():
            now = walk.digest(path, name) if path.exists() else None
            if now != value:
                found.append(f"{file}: {name}" + (" is gone" if now is None else ""))
    return found


def is_stale(result: Result) -> bool:
    """True if code behind a result has changed, or gone, since it was measured."""
    return bool(changed(result))


def _launchers(source: Path, room: str) -> list[str]:
    """The launcher called like its room; all public names of a file that has none."""
    text = source.read_text("utf-8")
    return [room] if room in statements(text) else public_functions(text)


def _judging(text: str) -> list[str]:
    """The tests of a file that judge mutants; all of them if it marks none."""
    tests = [name for name in statements(text) if name.startswith("test_")]
    return [name for name in tests if NUMERICAL in definition(text, name).text] or tests


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
        self._others = {other for other in self.rooms if other != room}
        self._texts: dict[Path, str] = {}

    def text(self, path: Path) -> str:
        """A file's content, read once."""
        if path not in self._texts:
            self._texts[path] = path.read_text("utf-8")
        return self._texts[path]

    def find(self, path: Path, name: str) -> Definition | None:
        """A definition; None if the file has none of this name."""
        text = self.text(path)
        return definition(text, name) if name in statements(text) else None

    def digest(self, path: Path, name: str) -> str | None:
        """The digest of a definition; None if it is gone.

        A keyword counts as the position of the parameter that it names.
        """
        if (found := self.find(path, name)) is None:
            return None
        keywords = [self._position(path, *keyword) for keyword in found.keywords]
        return digest([found.text, *keywords])

    def follow(self, path: Path, names: Iterable[str]) -> None:
        """Record these definitions of a file and all that they use.

        Raises ValueError if the file does not define one of them.
        """
        waiting = [(path, name) for name in names]
        if missing := [name for _, name in waiting if name not in statements(self.text(path))]:
            raise ValueError(f"{_file(path)} has no top-level definition of {missing[0]!r}")
        seen = set()
        while waiting:
            path, name = waiting.pop()
            if (path, name) in seen or (found := self.find(path, name)) is None:
                continue
            seen.add((path, name))
            if self._is_test(path) and name.isupper() and found.strings & self._others:
                continue  # a table that each room adds a line to
            self.code.setdefault(_file(path), {})[name] = str(self.digest(path, name))
            waiting += self._used(path, found)

    def _is_test(self, path: Path) -> bool:
        return path.is_relative_to(rooms.SNIPPETS.parent / "tests")

    def _used(self, path: Path, found: Definition) -> Iterator[tuple[Path, str]]:
        """(file, name) of all that a definition uses in files of rooms."""
        handed = found.parameters if self._is_test(path) else ()  # pytest's fixtures
        for name in sorted({*found.free, *handed}):
            there = self._named(path, name)
            if isinstance(there, tuple):
                yield there
            elif there:  # a module that is handed on
                yield from ((there, n) for n in public_functions(self.text(there)))
        for name, attribute in sorted(found.members):
            if there := self._member(path, name, attribute):
                yield there
        if not self._is_test(path):  # a test names rooms in order to leave them out, or in
            for text in sorted(found.strings):
                yield from self._competitor(text)

    def _member(self, path: Path, name: str, attribute: str) -> tuple[Path, str] | None:
        """Where the definition is that code calls `name.attribute`, or `name` if that is none."""
        there = self._named(path, name)
        return (there, attribute) if isinstance(there, Path) else there

    def _named(self, path: Path, name: str) -> Path | tuple[Path, str] | None:
        """The module or the definition that a name in a file stands for; None for no room's."""
        from_house = imports(self.text(path))
        return self._origin(path, from_house[name]) if name in from_house else (path, name)

    def _position(self, path: Path, name: str, attribute: str, keyword: str) -> str:
        """Which of a function's parameters a keyword names; the keyword, if that is not known."""
        place = self._member(path, name, attribute)
        found = self.find(*place) if place else None
        if found is None or keyword not in found.parameters:
            return keyword
        return f"{found.parameters.index(keyword)}"

    def _origin(self, path: Path, imported: Import) -> Path | tuple[Path, str] | None:
        """The module that an import names, or the definition; None for what is of no room."""
        dots = len(imported[0]) - len(imported[0].lstrip("."))
        base = path.parents[dots - 1] if dots else rooms.SNIPPETS.parent
        place = base.joinpath(*filter(None, imported[0].lstrip(".").split(".")))
        within = place.is_relative_to(rooms.SNIPPETS)
        if not within or _file(place).startswith(("_lab", "_site")):
            return None
        if (module := place / f"{imported[1]}.py").exists():
            return module
        for there in (place.with_suffix(".py"), place / "__init__.py"):
            if there.exists():
                text = self.text(there)
                if imported[1] in statements(text):
                    return there, imported[1]
                if again := imports(text).get(imported[1]):  # it is handed on
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
