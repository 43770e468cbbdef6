"""What a kernel's file says: its names, its calls, and what each call gives a parameter.

For `fold`. A value is known from literals, from what a choice gives a name, and through tuples,
dicts and lists that are written out: launches take their arguments from those.
"""

from __future__ import annotations

import functools
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import libcst as cst

UNKNOWN: Any = object()
SOME: Any = object()  # unknown, but not None
LITERALS = {"True": True, "False": False, "None": None}
COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    cst.Equal: operator.eq, cst.NotEqual: operator.ne,
    cst.Is: operator.is_, cst.IsNot: operator.is_not,
    cst.LessThan: operator.lt, cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt, cst.GreaterThanEqual: operator.ge,
    cst.In: lambda a, b: a in b, cst.NotIn: lambda a, b: a not in b,
}  # fmt: skip
# Parts of a node that are neither code nor a use of a name.
QUIET = re.compile(
    "whitespace|comma|equal|[lr]par|lines|header|footer|semicolon|[lr]bra|keyword|attr"
)
# A function with one of these does something, beside returning a value.
HARMS = re.compile(r"\b(raise|yield|print|global|set_\w+|store|atomic_\w+|gdc_\w+)\b|\]\(|\] = ")
MODULES = ("tl", "torch", "triton", "math")
METHODS = ("to", "stride", "new_empty", "size", "data_ptr", "reshape", "dim", "numel", "get")
BUILTINS = ("len", "max", "min", "float", "int", "bool", "range")
PLAIN = (cst.Name, cst.Tuple, cst.List, cst.Element, cst.StarredElement)


@dataclass(frozen=True)
class Choice:
    """What a reader has chosen, as it says of one file."""

    roots: tuple[str, ...]  # what the file is for
    given: Mapping[str, Mapping[str, object]]  # function → name in it → its value
    facts: Mapping[str, int] = field(default_factory=dict)  # of kernels; these names stay
    texts: tuple[tuple[str, str], ...] = ()  # what is narrowed: old code, once → new code
    words: tuple[str, ...] = ()  # what comments call what is not there


# Trees.


@functools.cache
def _parts(kind: Any) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind) if not QUIET.match(part.name))


def children(node: Any) -> Iterator[Any]:
    for name in _parts(node.__class__):
        value = getattr(node, name)
        for child in value if isinstance(value, (list, tuple)) else (value,):
            if _is_node(child.__class__):
                yield child


@functools.cache
def _is_node(kind: type) -> bool:
    return issubclass(kind, cst.CSTNode)


def walk(node: Any) -> Iterator[Any]:
    yield node
    for child in children(node):
        yield from walk(child)


@functools.cache  # a node never changes, and most stay from round to round
def loads(node: Any) -> frozenset[str]:
    return frozenset(x.value for x in walk(node) if x.__class__ is cst.Name)


@functools.cache
def _code(node: Any) -> str:
    return cst.Module([]).code_for_node(node)


def forget() -> None:
    """Let go of a file's nodes."""
    loads.cache_clear()
    _code.cache_clear()


def rebuilt(node: Any, change: Callable[[Any, Any], Any]) -> Any:
    """The tree, each node replaced by change(it, it with new parts): by a node, some, or None."""
    changes: dict[str, Any] = {}
    for name in _parts(node.__class__):
        value = getattr(node, name)
        if isinstance(value, (list, tuple)):
            new = [rebuilt(x, change) if _is_node(x.__class__) else x for x in value]
            if any(map(operator.is_not, new, value)):
                flat = [x for y in new for x in (y if isinstance(y, list) else [y])]
                changes[name] = tidy(value, new) if None in new else flat
        elif _is_node(value.__class__) and (new := rebuilt(value, change)) is not value:
            if isinstance(new, list):  # an elif that is decided
                decided: list[Any] = new
                chained = isinstance((decided or [None])[0], cst.If)
                other: Any = cst.Else(cst.IndentedBlock(decided)) if decided else None
                new = decided[0] if chained else other
            changes[name] = new
    return change(node, node.with_changes(**changes) if changes else node)


def tidy(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """What is left of a list, of which some is None; the commas and ends of lines in order."""
    out: list[Any] = []
    line = 0  # what is left of this one
    for old, new in zip(before, after, strict=True):
        if new is not None:
            out += new if isinstance(new, list) else [new]
            line += 1
        elif line and _ends_line(old):  # its comment was of both
            space = old.comma.whitespace_after
            bare = space.with_changes(first_line=cst.TrailingWhitespace())
            out[-1] = out[-1].with_changes(comma=old.comma.with_changes(whitespace_after=bare))
        line = 0 if _ends_line(old) else line
    if out and after[-1] is None and hasattr(out[-1], "comma"):
        comma = before[-1].comma
        if _ends_line(before[-1]) and _ends_line(out[-1]):
            last, space = comma.whitespace_after, out[-1].comma.whitespace_after
            space = space.with_changes(indent=last.indent, last_line=last.last_line)
            comma = comma.with_changes(whitespace_after=space)
        out[-1] = out[-1].with_changes(comma=comma)
        for name in ("whitespace_after_param", "whitespace_after_arg"):
            if hasattr(out[-1], name):
                out[-1] = out[-1].with_changes(**{name: getattr(before[-1], name)})
    return out


def _ends_line(item: Any) -> bool:
    space = getattr(getattr(item, "comma", None), "whitespace_after", None)
    return isinstance(space, cst.ParenthesizedWhitespace)


def written(value: object) -> Any:
    return cst.parse_expression(repr(value))


def string(node: Any) -> Any:
    return node.evaluated_value if isinstance(node, cst.SimpleString) else None


def pairs(target: Any, value: Any) -> list[tuple[Any, Any]]:
    """What is assigned to what: `a, b = x, y` are two."""
    if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        sides = [*target.elements, *value.elements]
        starred = any(isinstance(x, cst.StarredElement) for x in sides)
        if not starred and len(target.elements) == len(value.elements):
            pairs = zip(target.elements, value.elements, strict=True)
            return [(a.value, b.value) for a, b in pairs]
    return [(target, value)]


# What a function says.


class Definition(NamedTuple):
    """One place where a name gets its value."""

    value: Any  # the expression, or None if nobody can know
    part: int | None  # which part of what the expression returns
    order: int
    block: tuple[int, ...]


class Slot(NamedTuple):
    """An argument, as a call gives it, and what would go with it."""

    value: Any
    scope: Scope
    element: Any


class Call(NamedTuple):
    """A call of a function of this file."""

    scope: Scope
    arguments: Sequence[cst.Arg]


class Scope:
    """A function, or all that stands outside of them: its names and what they are."""

    def __init__(self, name: str, node: Any, pure: Callable[[Any], bool]) -> None:
        self.name, self.node, self.pure, self.order = name, node, pure, 0
        self.definitions: dict[str, list[Definition]] = defaultdict(list)
        self.place: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.stores: set[int] = set()
        self.loops: set[int] = set()
        self.reads: list[tuple[str, frozenset[str]]] = []  # each with the names made of it
        self.calls: list[cst.Call] = []
        self.returns: list[Any] = []
        self.unpacked: list[tuple[cst.Tuple, str]] = []  # targets, and the function that is called
        self.parameters: dict[str, cst.Param] = {}
        self.positional: list[str] = []
        self.jit = False
        if isinstance(node, cst.FunctionDef):
            listed = [*node.params.posonly_params, *node.params.params]
            self.positional = [x.name.value for x in listed]
            self.parameters = {x.name.value: x for x in (*listed, *node.params.kwonly_params)}
            self.stores |= {id(x.name) for x in self.parameters.values()}
            for star in (node.params.star_arg, node.params.star_kwarg):
                self._define(getattr(star, "name", None), None, ())
            called = [getattr(x.decorator, "func", x.decorator) for x in node.decorators]
            self.jit = any(isinstance(x, cst.Attribute) and x.attr.value == "jit" for x in called)
        for statement in node.body.body if name else node.body:
            if name or not isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
                self._read(statement, (), frozenset())

    def _read(self, node: Any, path: tuple[int, ...], into: frozenset[str]) -> None:
        path = (*path, id(node)) if isinstance(node, cst.IndentedBlock) else path
        self.order += isinstance(node, (cst.BaseSmallStatement, cst.BaseCompoundStatement))
        self.place[id(node)] = (self.order, path)
        match node:
            case cst.Name(value=name) if id(node) not in self.stores:
                self.reads.append((name, into))
            case cst.Call():
                self.calls.append(node)
            case cst.Return(value=value):
                self.returns.append(value)
            case cst.For(target=target) | cst.CompFor(target=target) | cst.NamedExpr(target=target):
                self._define(target, None, path)
                self.loops.add(id(getattr(node, "body", None)))
            case cst.While(body=body):
                self.loops.add(id(body))
            case cst.AsName(name=target) | cst.Param(name=target):
                self._define(target, None, path)
            case cst.AugAssign(target=target, value=value):
                self._assign(target, value, None, path)
                return
            case cst.AnnAssign(target=target, value=value) if value is not None:
                self._assign(target, value, value, path)
                return
            case cst.Assign(targets=[cst.AssignTarget(target=target)], value=value):
                match target, value:
                    case cst.Tuple(), cst.Call(func=cst.Name(value=called)):
                        self.unpacked.append((target, called))
                for one, its in pairs(target, value):
                    self._assign(one, its, its, path)
                return
            case cst.Assign(targets=targets):
                for each in targets:
                    self._define(each.target, None, path)
        for child in children(node):
            self._read(child, path, into)

    def _assign(self, target: Any, value: Any, known: Any, path: tuple[int, ...]) -> None:
        plain = all(isinstance(x, PLAIN) for x in walk(target))
        if plain:
            self._define(target, known, path)
        self._read(target, path, frozenset())
        self._read(value, path, frozenset(loads(target) if plain and self.pure(value) else ()))

    def _define(
        self, target: Any, value: Any, path: tuple[int, ...], part: int | None = None
    ) -> None:
        if isinstance(target, cst.Name):
            self.stores.add(id(target))
            self.definitions[target.value].append(Definition(value, part, self.order, path))
        elif isinstance(target, (cst.Tuple, cst.List)):
            for at, element in enumerate(target.elements):
                if isinstance(element, cst.StarredElement):
                    value = None
                self._define(element.value, value if part is None else None, path, at)

    def reaching(self, name: cst.Name) -> Definition | None:
        """What a name is where it is used, if that is certain: the last before it, in its block."""
        order, path = self.place.get(id(name), (0, ()))
        every = self.definitions.get(name.value, ())
        if any(x.order >= order and self.loops & {*x.block} & {*path} for x in every):
            return None  # the round before has changed it
        found = [x for x in every if x.order < order]
        return found[-1] if found and path[: len(found[-1].block)] == found[-1].block else None

    @functools.cached_property
    def live(self) -> set[str]:
        """The names whose values matter."""
        alive = {name for name, into in self.reads if not into}
        while more := {name for name, into in self.reads if into & alive} - alive:
            alive |= more
        return alive


# The whole file.


class Program:
    """A file, and what is known of it."""

    def __init__(self, tree: cst.Module, choice: Choice) -> None:
        self.tree, self.choice = tree, choice
        functions = {x.name.value: x for x in tree.body if isinstance(x, cst.FunctionDef)}
        kinds = {x.name.value: x for x in tree.body if isinstance(x, cst.ClassDef)}
        self.classes = {name: found for name, x in kinds.items() if (found := _fields(x))}
        quiet = (name for name, x in functions.items() if not HARMS.search(_code(x)))
        self.harmless = {*quiet, *kinds, *BUILTINS}
        self.scopes = {
            name: Scope(name, x, self.pure) for name, x in {"": tree, **functions}.items()
        }
        self.calls: dict[str, list[Call]] = defaultdict(list)
        self.escaped = self._find_calls()
        self.users: dict[int, set[tuple[str, str]]] = defaultdict(set)  # of an argument
        self.arguments: dict[tuple[str, str], list[Slot]] = defaultdict(list)
        self.unsure: set[tuple[str, str]] = set()
        self.known: dict[tuple[int, str], Any] = {}
        for name in [*self.scopes, *self.classes]:
            for call in self.calls[name]:
                self._bind(name, call)
        self.known.clear()  # not all arguments were known

    def pure(self, node: Any) -> bool:
        """Whether nobody misses an expression whose value nobody uses."""
        for call in walk(node):
            match call:
                case cst.Call(func=cst.Name(value=name)) if name not in self.harmless:
                    return False
                case cst.Call(func=cst.Attribute(attr=cst.Name(value=name)) as callee):
                    roots = [x.value for x in walk(callee) if isinstance(x, cst.Name)]
                    if HARMS.match(name) or not (name in METHODS or {*roots[:1]} & {*MODULES}):
                        return False
                case cst.Call(func=func) if not isinstance(func, (cst.Name, cst.Attribute)):
                    return False
        return True

    # Calls and their arguments.

    def _find_calls(self) -> set[str]:
        """Find the calls of each function; those that are also used otherwise."""
        direct = {id(scope.node.name) for name, scope in self.scopes.items() if name}
        for scope in self.scopes.values():
            for call in scope.calls:
                callee, arguments = call.func, call.args
                if isinstance(callee, cst.Attribute) and callee.attr.value == "run" and arguments:
                    callee, arguments = arguments[0].value, arguments[1:]
                callee = callee.value if isinstance(callee, cst.Subscript) else callee
                if isinstance(callee, cst.Name) and callee.value in {*self.scopes, *self.classes}:
                    self.calls[callee.value].append(Call(scope, arguments))
                    direct.add(id(callee))
        names = (x for x in walk(self.tree) if isinstance(x, cst.Name) and id(x) not in direct)
        return {x.value for x in names if x.value in self.scopes}

    def spread(self, value: Any, scope: Scope) -> list[Slot | None]:
        """The parts of what is starred; None stands for an unknown number of them."""
        if isinstance(value, (cst.Tuple, cst.List)):
            out: list[Slot | None] = []
            for element in value.elements:
                if isinstance(element, cst.StarredElement):
                    out += self.spread(element.value, scope)
                else:
                    out.append(Slot(element.value, scope, element))
            return out
        slot = self._resolved(value, scope)
        return self.spread(slot.value, slot.scope) if slot else [None]

    def _resolved(self, value: Any, scope: Scope) -> Slot | None:
        """What stands behind a name or a call, if it is certain."""
        match value:
            case cst.Call(func=cst.Name(value=name)) if name in self.scopes:
                inner = self.scopes[name]
                return Slot(inner.returns[0], inner, None) if len(inner.returns) == 1 else None
            case cst.Name(value=name):
                found = scope.reaching(value)
                if found and found.value is not None:
                    if found.part is None:
                        return Slot(found.value, scope, None)
                    whole = self.spread(found.value, scope)
                    known = len(whole) > found.part and None not in whole[: found.part + 1]
                    return whole[found.part] if known else None
        return None

    def _matched(
        self, positional: Sequence[str], call: Call, scope: Scope | None
    ) -> tuple[dict[str, Slot], bool]:
        """Parameter → its argument, and whether there may be others that nobody knows."""
        listed: list[Slot | None] = []
        named: dict[str, Slot] = {}
        unsure = False
        for argument in call.arguments:
            if argument.keyword:
                named[argument.keyword.value] = Slot(argument.value, call.scope, argument)
            elif argument.star == "*":
                listed += self.spread(argument.value, call.scope)
            elif not argument.star:
                listed.append(Slot(argument.value, call.scope, argument))
            else:
                entries, more = self.entries(argument.value, call.scope)
                unsure, named = unsure or more, named | entries
        defaults = {name for name, x in scope.parameters.items() if x.default} if scope else set()
        free = [x for x in positional if x not in named and not (unsure and x in defaults)]
        if None in listed:
            left, right, unsure = listed.index(None), listed[::-1].index(None), True
            free = free[:left] + free[len(free) - right :]
            listed = listed[:left] + listed[len(listed) - right :]
        return {**{name: x for name, x in zip(free, listed, strict=False) if x}, **named}, unsure

    def entries(self, value: Any, scope: Scope) -> tuple[dict[str, Slot], bool]:
        """Key → value of a dict that is starred, and whether there may be more of them."""
        if isinstance(value, cst.Name) and (slot := self._resolved(value, scope)):
            return self.entries(slot.value, slot.scope)
        found: dict[str, Slot] = {}
        for element in value.elements if isinstance(value, cst.Dict) else ():
            if isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString):
                found[string(element.key)] = Slot(element.value, scope, element)
        return found, not isinstance(value, cst.Dict) or len(found) < len(value.elements)

    def _bind(self, name: str, call: Call) -> None:
        scope = self.scopes.get(name)
        defaults = {x: y.default for x, y in scope.parameters.items()} if scope else {}
        listed = [*defaults] if scope else self.classes[name]
        found, unsure = self._matched(scope.positional if scope else listed, call, scope)
        for parameter in listed:
            if slot := found.get(parameter):
                self.arguments[name, parameter].append(slot)
                self.users[id(slot.element)].add((name, parameter))
            elif unsure or not defaults.get(parameter):
                self.unsure.add((name, parameter))
            else:
                self.arguments[name, parameter].append(
                    Slot(defaults[parameter], self.scopes[""], 0)
                )

    # Values.

    def truth(self, node: Any, scope: Scope) -> Any:
        """What a test gives, or UNKNOWN."""
        found = self.value(node, scope)
        return UNKNOWN if found is SOME or found is UNKNOWN else bool(found)

    def value(self, node: Any, scope: Scope) -> Any:
        """What an expression is, or UNKNOWN."""
        key = id(node), scope.name
        if key not in self.known:
            self.known[key] = UNKNOWN  # while it is worked out
            self.known[key] = self._value(node, scope)
        return self.known[key]

    def _value(self, node: Any, scope: Scope) -> Any:
        match node:
            case cst.Name(value=name):
                return LITERALS[name] if name in LITERALS else self._named(node, scope)
            case cst.Integer() | cst.Float() | cst.SimpleString():
                return node.evaluated_value
            case cst.BinaryOperation():
                return SOME
            case cst.UnaryOperation(operator=cst.Not(), expression=inner):
                found = self.truth(inner, scope)
                return found if found is UNKNOWN else not found
            case cst.BooleanOperation(left=left, right=right):
                stops = isinstance(node.operator, cst.Or)
                first, other = self.truth(left, scope), self.value(right, scope)
                if first is not UNKNOWN:
                    return self.value(left, scope) if first is stops else other
                return other if other is stops and self.pure(left) else UNKNOWN
            case cst.IfExp(test=test, body=body, orelse=orelse):
                found = self.truth(test, scope)
                if found is not UNKNOWN:
                    return self.value(body if found else orelse, scope)
                both = self.value(body, scope), self.value(orelse, scope)
                return SOME if both == (SOME, SOME) else UNKNOWN
            case cst.Comparison(left=left, comparisons=targets):
                sides = [self.value(x, scope) for x in (left, *(x.comparator for x in targets))]
                kinds = [type(x.operator) for x in targets]
                results = [_compared(*x) for x in zip(kinds, sides, sides[1:], strict=False)]
                return False if False in results else UNKNOWN if UNKNOWN in results else True
            case cst.Tuple() | cst.List():
                slots = self.spread(node, scope)
                inside = [self.value(x.value, x.scope) if x else UNKNOWN for x in slots]
                return UNKNOWN if UNKNOWN in inside or not inside else tuple(inside)
            case cst.Attribute(value=cst.Name(), attr=cst.Name(value=name)):
                return self.same(owner, name) if (owner := self.owner(name)) else UNKNOWN
        return UNKNOWN

    def _named(self, node: cst.Name, scope: Scope) -> Any:
        name, given = node.value, self.choice.given.get(scope.name, {})
        if name in given:
            return given[name]
        if scope.jit and name in self.choice.facts:
            return self.choice.facts[name]
        order, _ = scope.place.get(id(node), (0, ()))
        if all(
            x.order >= order and not scope.loops & {*x.block}
            for x in scope.definitions.get(name, ())
        ):
            return self.constant(scope, name) if name in scope.parameters else UNKNOWN
        slot = self._resolved(node, scope)
        return self.value(slot.value, slot.scope) if slot else UNKNOWN

    def constant(self, scope: Scope, name: str) -> Any:
        """What every call gives a parameter."""
        given = self.choice.given.get(scope.name, {})
        if name in given:
            return given[name]
        private = scope.name not in self.escaped and scope.name not in self.choice.roots
        found = (
            self.same(scope.name, name) if private and name not in self.choice.facts else UNKNOWN
        )
        numeric = isinstance(found, (int, float)) and not isinstance(found, bool)
        launched = scope.jit and not all(x.scope.jit for x in self.calls[scope.name])
        late = launched and numeric and not _is_constexpr(scope.parameters[name])
        return UNKNOWN if late else found

    def same(self, owner: str, name: str) -> Any:
        """What every call of a function, or of a class, gives one of its names."""
        if (owner, name) in self.unsure or not self.arguments[owner, name]:
            return UNKNOWN
        found = [self.value(x.value, x.scope) for x in self.arguments[owner, name]]
        alike = all(type(x) is type(found[0]) and x == found[0] for x in found)
        return found[0] if alike else UNKNOWN

    def owner(self, field: str) -> str:
        """The class that alone has such a field, made in kernels only."""
        owners = [x for x, names in self.classes.items() if field in names]
        ours = len(owners) == 1 and all(x.scope.jit for x in self.calls[owners[0]])
        return owners[0] if ours else ""


def _compared(kind: type, left: Any, right: Any) -> Any:
    """What a comparison gives, or UNKNOWN."""
    if UNKNOWN in (left, right):
        return UNKNOWN
    if left is SOME or right is SOME:
        known = None in (left, right) and kind in (cst.Is, cst.IsNot)
        return kind is cst.IsNot if known else UNKNOWN
    try:
        found = COMPARISONS[kind](left, right)
    except TypeError:  # as a test that comes first would have seen
        return UNKNOWN
    some = any(isinstance(x, tuple) and SOME in x for x in (left, right))
    return UNKNOWN if some and found is not (kind is cst.NotEqual) else found


def _fields(node: cst.ClassDef) -> list[str]:
    if not any(getattr(x.value, "value", "") == "NamedTuple" for x in node.bases):
        return []
    lines = [x.body[0] for x in node.body.body if isinstance(x, cst.SimpleStatementLine)]
    return [x.target.value for x in lines if isinstance(x, cst.AnnAssign)]


def _is_constexpr(parameter: cst.Param) -> bool:
    kind = parameter.annotation and parameter.annotation.annotation
    return isinstance(kind, cst.Attribute) and kind.attr.value == "constexpr"
