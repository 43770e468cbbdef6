"""What a file defines, each with a digest: equal on every Python, blind to comments and layout."""

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

DIGITS = 10  # of a definition's digest
# Fields that say nothing about what the code does, or exist only in some versions of Python.
IGNORED_FIELDS = {"ctx", "kind", "type_comment", "type_ignores", "type_params"}
SCOPES = (  # what is assigned inside stays inside
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
DOCUMENTED = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Definition:
    """A top-level name of a file: what it says, and what it uses."""

    digest: str  # of all its statements, the wording of its errors apart
    wording: str  # of its errors; "" where it raises none that is worded
    uses: frozenset[str]  # names
    parameters: frozenset[str]  # of a function: in a test they may name what pytest hands over
    whole: frozenset[str]  # those of them that are used otherwise than by an attribute
    members: frozenset[tuple[str, str]]  # (name, attribute)
    strings: frozenset[str]  # each may be a competitor's name
    marks: Mapping[str, object]  # keywords of its decorators, where they are constants


@dataclass(frozen=True)
class Import:
    """Where a name that is imported from the house comes from."""

    module: str  # as it is written: ".kernel", "snippets._lab.rooms"
    name: str  # there


def canonical(node: object, worded: bool = True) -> str:
    """Text of a syntax tree. ast.dump, ast.unparse and tokenize differ between Python versions.

    Without `worded` the text of error messages is left out; what is worked out for them stays.
    """
    if isinstance(node, ast.Raise) and not worded:
        node = ast.Raise(exc=_unworded(node.exc), cause=node.cause)
    if isinstance(node, ast.AST):
        fields = [
            f"{name}={canonical(value, worded)}"
            for name in sorted(node._fields)
            if name not in IGNORED_FIELDS and (value := _comparable(node, name)) not in (None, [])
        ]
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(canonical(item, worded) for item in node)}]"
    return f"{type(node).__name__}:{node!a}"  # !a: repr would depend on the Unicode tables


def _unworded(node: ast.expr | None) -> ast.expr | None:
    """What `raise` is given without the literal text in its arguments: a call, a sum, an f-string.

    Nothing deeper is touched: a key, a format or what joins a list may decide more than a wording.
    """
    match node:
        case ast.Call(func=func, args=args, keywords=keywords):
            return ast.Call(func, [_unworded(a) or a for a in args], keywords)
        case ast.BinOp(left=left, op=ast.Add() as op, right=right):
            return ast.BinOp(_unworded(left) or left, op, _unworded(right) or right)
        case ast.JoinedStr(values=values):
            return ast.JoinedStr([v for v in values if not isinstance(v, ast.Constant)])
        case ast.Constant(value=str()):
            return ast.JoinedStr([])
    return node


def _comparable(node: ast.AST, name: str) -> object:
    """A field of a node without docstrings, and without what only some Pythons put there."""
    value = getattr(node, name, None)
    if isinstance(node, ast.JoinedStr) and isinstance(value, list):
        # Python 3.12 ends the format of f"{x:{y}}" with an empty constant; 3.11 and 3.13 do not.
        return [v for v in value if not (isinstance(v, ast.Constant) and v.value == "")]
    if name == "body" and isinstance(node, DOCUMENTED) and isinstance(value, list):
        return value[1:] if _is_documented(node) else value
    return value


def _is_documented(node: ast.AST) -> bool:
    match node:
        case ast.Module(body=body) | ast.ClassDef(body=body):
            pass
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            pass
        case _:
            return False
    match body[:1]:
        case [ast.Expr(value=ast.Constant(value=str()))]:
            return True
    return False


class Definitions(Mapping[str, Definition]):
    """Every top-level name that a file defines; each is looked at when it is asked for.

    An import counts where its name is used, so it has no definition of its own.
    """

    def __init__(self, source: str) -> None:
        self.statements: dict[str, list[ast.stmt]] = {}
        for statement in _statements(source):
            for name in _names_defined(statement):
                self.statements.setdefault(name, []).append(statement)
        self.libraries = _libraries(source)
        self._known: dict[tuple[str, frozenset[str]], Definition] = {}

    def __getitem__(self, name: str) -> Definition:
        return self.without(name, frozenset())

    def without(self, name: str, keys: frozenset[str]) -> Definition:
        """A definition in which the entries of these keys do not count, if it is a dictionary."""
        found = [_without(s, keys) for s in self.statements[name]]
        if found == self.statements[name]:
            keys = frozenset()
        if (name, keys) not in self._known:
            self._known[name, keys] = _definition(found, self.libraries)
        return self._known[name, keys]

    def __iter__(self) -> Iterator[str]:
        return iter(self.statements)

    def __len__(self) -> int:
        return len(self.statements)


@functools.lru_cache(maxsize=512)
def definitions(source: str) -> Definitions:
    """What a file defines."""
    return Definitions(source)


def _definition(found: list[ast.stmt], origin: Mapping[str, str]) -> Definition:
    """Of the statements that define a name; `origin` says what imported names are."""
    nodes = [node for statement in found for node in ast.walk(statement)]
    own = set.intersection(*map(_own_names, found))
    names = {n.id for n in nodes if isinstance(n, ast.Name)} - own
    members, inside = set(), set()
    for n in nodes:
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name):
            members.add((n.value.id, n.attr))
            inside.add(id(n.value))
    whole = {n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in inside}
    libraries = [f"{name}={origin[name]}" for name in sorted(names & origin.keys())]
    full = canonical(found)
    raises = any(isinstance(n, ast.Raise) for n in nodes)
    says = canonical(found, worded=False) if raises else full
    return Definition(
        digest=digest([says, *libraries]),
        wording=digest([full]) if full != says else "",
        uses=frozenset(names),
        parameters=frozenset(n.arg for n in nodes if isinstance(n, ast.arg)),
        whole=frozenset(whole - own),
        members=frozenset(members),
        strings=frozenset(_strings(nodes)),
        marks=dict(_marks(found)),
    )


def _own_names(statement: ast.stmt) -> set[str]:
    """The parameters and variables of a function: they hide what the file defines by that name."""
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return set()
    found, shared = set(), set()
    waiting: list[ast.AST] = [*statement.body]
    for given in ast.walk(statement.args):
        if isinstance(given, ast.arg):
            found.add(given.arg)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if isinstance(node, ast.Global):
            shared.update(node.names)
        if not isinstance(node, SCOPES):
            waiting += ast.iter_child_nodes(node)
    return found - shared


def digest(texts: Iterable[str]) -> str:
    """A short hash of some texts."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:DIGITS]


def _strings(nodes: list[ast.AST]) -> Iterator[str]:
    documentation = {
        id(node.body[0].value)  # type: ignore[attr-defined]
        for node in nodes
        if isinstance(node, DOCUMENTED) and _is_documented(node)
    }
    constants = (n for n in nodes if isinstance(n, ast.Constant) and id(n) not in documentation)
    yield from (n.value for n in constants if isinstance(n.value, str))


def _marks(found: list[ast.stmt]) -> Iterator[tuple[str, object]]:
    """The keywords of decorators; a decorator that is no call is its own name."""
    for statement in found:
        for decorator in getattr(statement, "decorator_list", []):
            if isinstance(decorator, ast.Call):
                for keyword in decorator.keywords:
                    if keyword.arg and isinstance(keyword.value, ast.Constant):
                        yield keyword.arg, keyword.value.value
            else:
                yield ast.unparse(decorator), True


def _without(statement: ast.stmt, keys: frozenset[str]) -> ast.stmt:
    """An assignment of a dictionary without the entries of these keys; all else as it is."""
    match statement:
        case ast.Assign(targets=targets, value=ast.Dict(keys=names, values=values)):
            kept = [
                (name, value)
                for name, value in zip(names, values, strict=True)
                if not (isinstance(name, ast.Constant) and name.value in keys)
            ]
            if len(kept) == len(names):
                return statement
            table = ast.Dict([name for name, _ in kept], [value for _, value in kept])
            return ast.Assign(targets, table)
    return statement


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
    return []


def _libraries(source: str) -> dict[str, str]:
    """Name → what it is, for the top-level imports of what is not the house's."""
    found = {}
    for statement in _statements(source):
        for node in ast.walk(statement) if isinstance(statement, ast.If | ast.Try) else [statement]:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    bound = alias.asname or alias.name.split(".")[0]
                    found[bound] = alias.name if alias.asname else bound
            elif isinstance(node, ast.ImportFrom) and not _of_the_house(node):
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module}:{alias.name}"
    return found


@functools.lru_cache(maxsize=512)
def imports(source: str) -> dict[str, Import]:
    """Name → where it comes from, for all that a file imports from the house, in functions too."""
    return {
        alias.asname or alias.name: Import("." * node.level + (node.module or ""), alias.name)
        for statement in _statements(source)
        for node in ast.walk(statement)
        if isinstance(node, ast.ImportFrom) and _of_the_house(node)
        for alias in node.names
    }


def _of_the_house(node: ast.ImportFrom) -> bool:
    return bool(node.level) or (node.module or "").partition(".")[0] == "snippets"


@functools.lru_cache(maxsize=512)
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
