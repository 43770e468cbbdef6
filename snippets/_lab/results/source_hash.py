"""What a file defines, each with a text of what it does: equal on every Python.

Comments, layout, docstrings, annotations, the wording of errors and the names of parameters and
variables do not count: whoever renames an argument measures nothing again.
"""

import ast
import functools
import hashlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

DIGITS = 10  # of a definition's digest
# Fields that say nothing about what the code does, or exist only in some versions of Python.
IGNORED_FIELDS = {"ctx", "kind", "returns", "type_comment", "type_ignores", "type_params"}
FIXED_FIELDS = {"attr", "module"}  # names that belong to no scope
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Names = Mapping[str, str]
Import = tuple[str, str]  # module as it is written (".kernel", "snippets._lab.rooms"), name there


@dataclass(frozen=True)
class Definition:
    """A top-level name of a file: what it does, and what it uses."""

    text: str  # canonical, without the keywords of calls
    keywords: tuple[
        tuple[str, str, str], ...
    ]  # (name that is called, its attribute or "", keyword)
    free: frozenset[str]  # names of the file that it uses otherwise than by an attribute
    members: frozenset[tuple[str, str]]  # (name, attribute)
    strings: frozenset[str]  # each may be a competitor's name
    parameters: tuple[str, ...]  # of a function


class Writer:
    """Writes syntax trees; ast.dump, ast.unparse and tokenize differ between versions of Python.

    Names that a function binds are written as numbers, in the order in which it binds them. What
    the code uses is noted on the way.
    """

    def __init__(self) -> None:
        self.free: set[str] = set()
        self.members: set[tuple[str, str]] = set()
        self.strings: set[str] = set()
        self.keywords: list[tuple[str, str, str]] = []
        self._in_an_error = False
        self._numbers = itertools.count()

    def write(self, node: object, names: Names) -> str:
        """Text of a node; `names` are those that the functions around it bind."""
        match node:
            case list():
                return f"[{','.join(filter(None, [self.write(item, names) for item in node]))}]"
            case ast.Expr(value=ast.Constant(value=str())):
                return ""  # a docstring
            case ast.Constant(value=value):
                if isinstance(value, str):
                    self.strings.add(value)
                    value = "" if self._in_an_error else value
                return f"{value!a}"  # !a: repr would depend on the Unicode tables
            case ast.JoinedStr(values=values):
                # Python 3.12 ends the format of f"{x:{y}}" with an empty constant.
                found = [self.write(value, names) for value in values]
                return f"JoinedStr({','.join(text for text in found if text != repr(''))})"
            case ast.Name(id=name):
                if name not in names:
                    self.free.add(name)
                return names.get(name, name)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name not in names:
                self.members.add((name, attribute))
                return f"{name}.{attribute}"
            case ast.arg(arg=name, annotation=annotation):
                # Triton compiles by this one annotation.
                compiled = annotation is not None and "constexpr" in ast.dump(annotation)
                return names.get(name, name) + (self.write(annotation, names) if compiled else "")
            case ast.Call(keywords=[_, *_]):
                return self._call(node, names)
            case ast.Raise(exc=ast.Call() as error):
                self._in_an_error = True
                given = self.write([error.args, error.keywords], names)
                self._in_an_error = False
                return f"raise {self.write([error.func, node.cause], names)}{given}"
            case ast.AST():
                own = {name: f"%{next(self._numbers)}" for name in _bound(node)}
                return self._fields(node, {**names, **own})
        return f"{node!a}"

    def _fields(self, node: ast.AST, names: Names) -> str:
        found = []
        for field in sorted(set(node._fields) - IGNORED_FIELDS):
            value = getattr(node, field, None)
            if isinstance(value, str) and field not in FIXED_FIELDS:
                value = names.get(value, value)
            if value not in (None, []):
                found.append(f"{field}={self.write(value, names)}")
        return f"{type(node).__name__}({','.join(found)})"

    def _call(self, node: ast.Call, names: Names) -> str:
        """A call with keywords: they are noted apart, if the file says whose they are."""
        called = node.func.value if isinstance(node.func, ast.Subscript) else node.func  # a launch
        match called:
            case ast.Name(id=name) if name not in names:
                of = [(name, "")]
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name not in names:
                of = [(name, attribute)]
            case _:
                of = []
        given = []
        for keyword in node.keywords:
            if keyword.arg:
                self.keywords += [(*place, keyword.arg) for place in of]
            name = "**" if keyword.arg is None else "" if of else keyword.arg
            given.append(f"{name}={self.write(keyword.value, names)}")
        return f"{self.write([node.func, node.args], names)}({','.join(given)})"


def _parameters(arguments: ast.arguments) -> list[str]:
    """Names in order: those that may be given by a keyword come before *args and **kwargs."""
    a = arguments
    found = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
    return [x.arg for x in found if x]


def _bound(scope: ast.AST) -> list[str]:
    """The names that a function or comprehension binds, in order; none of any other node.

    A name that is also used where the scope does not reach yet is left as it is.
    """
    if isinstance(scope, COMPREHENSIONS):
        given: list[str] = []
        inside: list[ast.AST] = [generator.target for generator in scope.generators]
        outside: list[ast.expr | None] = [scope.generators[0].iter]
    elif isinstance(scope, FUNCTIONS):
        given = _parameters(scope.args)
        inside = [scope.body] if isinstance(scope, ast.Lambda) else [*scope.body]
        outside = [*scope.args.defaults, *scope.args.kw_defaults]
        outside += getattr(scope, "decorator_list", [])
    else:
        return []
    used = {n.id for node in outside if node for n in ast.walk(node) if isinstance(n, ast.Name)}
    return [name for name in dict.fromkeys(given + _stored(inside)) if name not in used]


def _stored(waiting: list[ast.AST]) -> list[str]:
    """The names that code assigns or defines, not counting the functions and classes in it."""
    found, shared = [], set()
    while waiting:
        node = waiting.pop(0)
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str() as name):
                found.append(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.append(name)
            case ast.ClassDef(name=name):
                found.append(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                shared.update(names)
        if not isinstance(node, FUNCTIONS | COMPREHENSIONS | ast.ClassDef):
            waiting[:0] = ast.iter_child_nodes(node)
    return [name for name in found if name not in shared]


@functools.lru_cache(maxsize=4096)
def definition(source: str, name: str) -> Definition:
    """What a file says of a name. Raises KeyError for one that it does not define."""
    writer = Writer()
    found = statements(source)[name]
    libraries, _ = _imported(source)
    texts = [writer.write(statement, {}) for statement in found]
    used = writer.free | {name for name, _ in writer.members}
    texts += [f"{name}={libraries[name]}" for name in sorted(used & libraries.keys())]
    arguments = [s.args for s in found if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef)]
    return Definition(
        text="\n".join(texts),
        keywords=tuple(writer.keywords),
        free=frozenset(writer.free),
        members=frozenset(writer.members),
        strings=frozenset(writer.strings),
        parameters=tuple(name for a in arguments for name in _parameters(a)),
    )


def digest(texts: Iterable[str]) -> str:
    """A short hash of some texts."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:DIGITS]


@functools.lru_cache(maxsize=512)
def statements(source: str) -> Mapping[str, list[ast.stmt]]:
    """Every top-level name that a file defines. An import counts where its name is used."""
    found: dict[str, list[ast.stmt]] = {}
    for statement in ast.parse(source).body:
        for name in dict.fromkeys(_stored([statement])):
            found.setdefault(name, []).append(statement)
    return found


@functools.lru_cache(maxsize=512)
def _imported(source: str) -> tuple[dict[str, str], dict[str, Import]]:
    """What names are that a file imports: from libraries, and from the house."""
    libraries, house = {}, {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                libraries[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                if node.level or module.partition(".")[0] == "snippets":
                    house[alias.asname or alias.name] = module, alias.name
                else:
                    libraries[alias.asname or alias.name] = f"{module}:{alias.name}"
    return libraries, house


def imports(source: str) -> dict[str, Import]:
    """Name → where it comes from, for all that a file imports from the house, in functions too."""
    return _imported(source)[1]


def public_functions(source: str) -> list[str]:
    """Top-level public functions and classes, `main` apart: what a reader imports."""
    return [
        name
        for name, found in statements(source).items()
        if isinstance(found[0], ast.FunctionDef | ast.ClassDef)
        and not name.startswith("_")
        and name != "main"
    ]
