"""A kernel's code as a picture shows it: no comments, no docstring, its statements numbered."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Lines = tuple[int, int]  # the first and the last line of a statement in a listing


class Listing:
    """The body of a function, cut from its file.

    `lines` are its lines of code; `statements` says which of them a run has come to.
    """

    def __init__(self, source: str, first: int = 1) -> None:
        """`source` begins in line `first` of its file."""
        self._first = first
        source = textwrap.dedent(source)
        (function,) = ast.parse(source).body
        assert isinstance(function, ast.FunctionDef)
        body = function.body[1:] if ast.get_docstring(function) else function.body
        code = _without_comments(source)
        kept = [n for n in range(body[0].lineno, len(code) + 1) if code[n - 1].strip()]
        self._shown = {number: place for place, number in enumerate(kept)}
        self.lines = textwrap.dedent("\n".join(code[n - 1] for n in kept)).splitlines()
        self._statement: dict[int, Lines] = {}
        self._assigned: dict[Lines, set[str]] = {}
        for node in _statements(body):
            # A statement with a body is its head: `for … in …:`.
            end = node.body[0].lineno - 1 if hasattr(node, "body") else node.end_lineno or 0
            numbers = [n for n in range(node.lineno, end + 1) if n in self._shown]
            found = self._shown[numbers[0]], self._shown[numbers[-1]]
            self._statement |= dict.fromkeys(numbers, found)
            self._assigned[found] = _names_assigned(node)

    @classmethod
    def of(cls, function: Any) -> Listing:
        """The listing of a function of Python."""
        lines, first = inspect.getsourcelines(function)
        return cls("".join(lines), first)

    def statements(self, ran: Iterable[int]) -> list[Lines]:
        """Lines of the file that ran, as statements of the listing: each once, in their order."""
        numbers = (line - self._first + 1 for line in ran)
        return list(dict.fromkeys(self._statement[n] for n in numbers if n in self._statement))

    def parts(self, ran: Iterable[int], begin: Sequence[str]) -> list[list[Lines]]:
        """The same, cut before the first assignment to each of some names, in their order."""
        found: list[list[Lines]] = [[]]
        for lines in self.statements(ran):
            if len(found) <= len(begin) and begin[len(found) - 1] in self._assigned[lines]:
                found.append([])
            found[-1].append(lines)
        if len(found) <= len(begin):
            raise ValueError(f"no statement that ran assigns {begin[len(found) - 1]}")
        return found


def _without_comments(source: str) -> list[str]:
    code = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            code[row - 1] = code[row - 1][:column].rstrip()
    return code


def _statements(body: Iterable[ast.stmt]) -> Iterator[Any]:
    for statement in body:
        yield statement
        for inside in ("body", "orelse"):
            yield from _statements(getattr(statement, inside, ()))


def _names_assigned(node: ast.stmt) -> set[str]:
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    nodes = (x for target in targets if target is not None for x in ast.walk(target))
    return {x.id for x in nodes if isinstance(x, ast.Name)}
