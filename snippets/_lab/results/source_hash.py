"""A hash of what a result depends on: equal on every Python, blind to comments and formatting."""

import ast
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

# Fields that say nothing about what the code does, or exist only in some versions of Python.
IGNORED_FIELDS = {"ctx", "kind", "type_comment", "type_ignores", "type_params"}


def canonical(node: object) -> str:
    """Text of a syntax tree. ast.dump, ast.unparse and tokenize differ between Python versions."""
    if isinstance(node, ast.AST):
        fields = [
            f"{name}={canonical(value)}"
            for name in sorted(node._fields)
            if name not in IGNORED_FIELDS and (value := _comparable(node, name)) not in (None, [])
        ]
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(canonical(item) for item in node)}]"
    return f"{type(node).__name__}:{node!a}"  # !a: repr would depend on the Unicode tables


def _comparable(node: ast.AST, name: str) -> object:
    """A field of a node without docstrings, and without what only some Pythons put there."""
    value = getattr(node, name, None)
    if isinstance(node, ast.JoinedStr) and isinstance(value, list):
        # Python 3.12 ends the format of f"{x:{y}}" with an empty constant; 3.11 and 3.13 do not.
        return [v for v in value if not (isinstance(v, ast.Constant) and v.value == "")]
    documented = isinstance(
        node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    )
    if name == "body" and documented and isinstance(value, list) and value:
        first = value[0]
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            return value[1:]
    return value


def closure(source: str, roots: Iterable[str]) -> list[str]:
    """Canonical text of the named top-level definitions and of all those that they use.

    Raises ValueError if a root is not defined in `source`.
    """
    return list(_closure(source, tuple(sorted(roots))))


# Every device's result asks for the same texts again: to draw all figures takes half the time.
@functools.lru_cache(maxsize=1024)
def _closure(source: str, roots: tuple[str, ...]) -> tuple[str, ...]:
    defined: dict[str, list[ast.stmt]] = {}
    for statement in _statements(source):
        for name in _names_defined(statement):
            defined.setdefault(name, []).append(statement)
    reached: dict[str, None] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        if name not in defined:
            raise ValueError(f"no top-level definition of {name!r} to hash")
        reached[name] = None
        for statement in defined[name]:
            used = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
            waiting.extend(used & defined.keys() - reached.keys())
    return tuple(f"{name}:{canonical(defined[name])}" for name in sorted(reached))


def _names_defined(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.If() | ast.Try() | ast.With():  # defines what any of its branches defines
            inner = [s for s in ast.walk(statement) if isinstance(s, ast.stmt)]
            return [name for s in inner if s is not statement for name in _names_defined(s)]
        case ast.Assign(targets=targets):
            return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.AugAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [(a.asname or a.name).split(".")[0] for a in names]
    return []


@functools.lru_cache(maxsize=256)
def _statements(source: str) -> tuple[ast.stmt, ...]:
    return tuple(ast.parse(source).body)


def public_functions(source: str) -> list[str]:
    """Top-level public functions and classes, `main` apart: what a reader imports."""
    return [
        s.name
        for s in _statements(source)
        if isinstance(s, ast.FunctionDef | ast.ClassDef)
        and not s.name.startswith("_")
        and s.name != "main"
    ]


def source_hash(parts: Iterable[tuple[Path, Iterable[str]]]) -> str:
    """Hash of (file, names) pairs: the named definitions with everything they use in their file."""
    digest = hashlib.sha256()
    for path, names in parts:
        for text in closure(path.read_text(encoding="utf-8"), names):
            digest.update(text.encode() + b"\n")
    return digest.hexdigest()[:16]
