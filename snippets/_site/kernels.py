"""Kernels as the playground's editor opens them, cut from a room's file.

A kernel's text is the `@triton.jit` function, the jit functions that it calls and the constants
and named tuples that these use, as they stand in the file, without the markers of sections. Files
are read and not imported.
"""

import ast
import functools
import re
from dataclasses import dataclass, field
from pathlib import Path

MARKER = re.compile(r"\s*# --8<-- \[(?P<edge>start|end):(?P<name>[^\]]+)\]$")


@dataclass(frozen=True)
class Kernel:
    """One kernel as the editor opens it; `sections`: name → its first and last line there."""

    name: str
    text: str
    rest: str = ""  # the file's other kernels, which the same launcher may need
    sections: dict[str, tuple[int, int]] = field(default_factory=dict)
    says: str = ""  # its docstring


def of_file(path: Path) -> tuple[Kernel, ...]:
    """The kernels of a file, cut with those parts of the kernel.py beside it that they use."""
    source, beside = path.read_text("utf-8"), path.with_name("kernel.py")
    return cut(source, beside.read_text("utf-8") if "from .kernel import" in source else "")


@functools.cache  # live reload asks again for every file
def cut(source: str, beside: str = "") -> tuple[Kernel, ...]:
    """The kernels of a file: its `@triton.jit` functions that no other of them calls.

    `beside`: a file from which it imports.
    """
    own = {getattr(node, "name", "") for node in ast.parse(source).body}
    source = beside + source
    tree = ast.parse(source)
    functions = {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and language(node) == "triton"
    }
    uses = {name: _names(node) for name, node in functions.items()}
    called = {other for name, used in uses.items() for other in used & {*functions} - {name}}
    kernels = [name for name in functions if name not in called and name in own]
    found = []
    for name in kernels:
        needed = _needed({name}, uses)
        others = _needed({*kernels} - {name}, uses) - needed
        lines = _lines(source, _pieces(tree, needed, uses))
        there = {
            section: (inside[0], inside[-1])
            for section, (first, last) in sections(source).items()
            if (inside := [at for at, (line, _) in enumerate(lines, 1) if first < line < last])
        }
        rest = _lines(source, _pieces(tree, others, uses))
        says = ast.get_docstring(functions[name]) or ""
        found.append(Kernel(name, _text(lines), _text(rest), there, says))
    return tuple(found)


def _needed(names: set[str], uses: dict[str, set[str]]) -> set[str]:
    """These functions, those that they call, those that these call …"""
    while more := {other for name in names for other in uses[name] & {*uses}} - names:
        names = names | more
    return names


def _pieces(tree: ast.Module, functions: set[str], uses: dict[str, set[str]]) -> list[ast.stmt]:
    """The functions, and the constants and classes that they use, in the order of the file."""
    constants: dict[str, ast.stmt] = {
        target.id: node
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    constants |= {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    used = {name for function in functions for name in uses[function]}
    while more := {n for name in used & {*constants} for n in _names(constants[name])} - used:
        used = used | more  # a constant may be made of others
    wanted = [constants[name] for name in constants if name in used]
    wanted += [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in functions]
    return sorted(wanted, key=first_line)


def _lines(source: str, pieces: list[ast.stmt]) -> list[tuple[int, str]]:
    """The lines of pieces of a file, each with its number there: 0 for an empty one between."""
    lines = source.splitlines()
    found: list[tuple[int, str]] = []
    for piece in pieces:
        if found:  # constants stand together, functions apart
            found += [(0, "")] * (0 if isinstance(piece, ast.Assign) else 2)
        for number in range(first_line(piece), last_line(piece) + 1):
            if not MARKER.match(lines[number - 1]):
                found.append((number, lines[number - 1]))
    return found


def _text(lines: list[tuple[int, str]]) -> str:
    return "\n".join(text for _, text in lines)


def sections(source: str) -> dict[str, tuple[int, int]]:
    """Section → the lines of its two markers; a whole function → the lines around it."""
    found = {
        node.name: (first_line(node) - 1, last_line(node) + 1)
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    for number, line in enumerate(source.splitlines(), 1):
        if match := MARKER.match(line):
            start = number if match["edge"] == "start" else found[match["name"]][0]
            found[match["name"]] = (start, number)
    return found


def language(node: ast.AST) -> str:
    """Of a decorated function or class: "triton", "gluon" or nothing."""
    for decorator in getattr(node, "decorator_list", ()):
        name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if name in ("triton.jit", "gluon.jit", "gluon.aggregate"):
            return name.split(".")[0]
    return ""


def _names(node: ast.AST) -> set[str]:
    """The names that it uses from outside: a parameter may be called like a constant."""
    used = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return used - {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}


def first_line(node: ast.stmt) -> int:
    """A statement's first line, that of its decorators where it has some."""
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])


def last_line(node: ast.stmt) -> int:
    """A statement's last line."""
    return node.end_lineno or node.lineno
