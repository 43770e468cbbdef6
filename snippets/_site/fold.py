"""A partial evaluator for a kernel's file: what a choice decides is put in, what is dead then goes.

Each round walks through every function in its order and knows what names are: literals, what the
caller says of the launcher's names, and what every call of a kernel's function gives a parameter.
It folds `if`, the ternary, `and`, `or`, `not`, comparisons and `is None`; then drops what nobody
reads: assignments, parameters with their arguments, fields of named tuples, parts of what a
function returns, definitions and imports; until nothing changes. What it does not know it leaves.
A number that a kernel is given when it runs is never put in, and a dimension keeps its name.
Comments stay, without the clauses that name what is gone.
"""

from __future__ import annotations

import builtins
import functools
import operator
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Any

import libcst as cst

UNKNOWN: Any = object()
SOME: Any = object()  # unknown, but not None
LITERALS = {"True": True, "False": False, "None": None}
COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    cst.Equal: operator.eq, cst.NotEqual: operator.ne,
    cst.LessThan: operator.lt, cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt, cst.GreaterThanEqual: operator.ge,
}  # fmt: skip
# Parts of a node that are neither code nor a use of a name.
QUIET = re.compile(
    "whitespace|comma|equal|[lr]par|lines|header|footer|semicolon|[lr]bra|keyword|attr"
)
# A function with one of these does something, beside returning a value.
HARMS = re.compile(r"\b(raise|yield|print|global|set_\w+|store|atomic_\w+|gdc_\w+)\b|\]\(|\] = ")
WIDTH = 97
Parameter = tuple[str, str]  # function → its parameter, or named tuple → its field


class Unfoldable(ValueError):
    """What a choice says of a file is not in it."""


@dataclass(frozen=True)
class Choice:
    """What a reader has chosen, as it says of one file."""

    root: str  # what the file is for
    known: Mapping[str, object]  # name around the kernels → its value; None: it is not there
    facts: Mapping[str, int] = field(default_factory=dict)  # of kernels; these names stay
    texts: tuple[tuple[str, str], ...] = ()  # what is narrowed: old code, once → new code
    words: tuple[str, ...] = ()  # what comments call what is not there


def fold(source: str, choice: Choice) -> str:
    """The file that holds just what was chosen. ruff formats it."""
    for old, new in choice.texts:
        if source.count(old) != 1:
            raise Unfoldable(f"{source.count(old)} times, and not once: {old}")
        source = source.replace(old, new)
    tree = cst.parse_module(source)
    known: dict[Parameter, Any] = {}
    names, before = loads(tree), ""
    while before != tree.code:
        before = tree.code
        tree, known = _Round(tree, choice, known).folded()
    tree = _worded(tree, names - loads(tree), choice.words)
    loads.cache_clear()  # let go of the nodes
    return tree.code


# Trees.


@functools.cache
def _parts(kind: Any) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind) if not QUIET.match(part.name))


@functools.cache
def _is_node(kind: type) -> bool:
    return issubclass(kind, cst.CSTNode)


def _children(node: Any) -> Iterator[Any]:
    for name in _parts(node.__class__):
        value = getattr(node, name)
        for child in value if isinstance(value, (list, tuple)) else (value,):
            if _is_node(child.__class__):
                yield child


def walk(node: Any) -> Iterator[Any]:
    yield node
    for child in _children(node):
        yield from walk(child)


@functools.cache  # a node never changes, and most stay from round to round
def loads(node: Any) -> frozenset[str]:
    return frozenset(x.value for x in walk(node) if x.__class__ is cst.Name)


def rebuilt(node: Any, change: Callable[[Any, Any], Any]) -> Any:
    """The tree, each node replaced by change(it, it with new parts): by a node, some, or None."""
    changes: dict[str, Any] = {}
    for name in _parts(node.__class__):
        value = getattr(node, name)
        if isinstance(value, (list, tuple)):
            new = [rebuilt(x, change) if _is_node(x.__class__) else x for x in value]
            if any(map(operator.is_not, new, value)):
                changes[name] = _tidy(value, new)
        elif _is_node(value.__class__) and (new := rebuilt(value, change)) is not value:
            changes[name] = new
    return change(node, node.with_changes(**changes) if changes else node)


def _tidy(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
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


def _atomic(node: Any, outer: Any) -> Any:
    """The part that replaces a whole, with the whole's parentheses if it may need them."""
    simple = (cst.Name, cst.BaseNumber, cst.BaseString, cst.Call, cst.Attribute, cst.Subscript)
    if isinstance(node, simple) or node.lpar or not outer.lpar:
        return node
    return node.with_changes(lpar=outer.lpar, rpar=outer.rpar)


def _written(value: object) -> Any:
    return cst.parse_expression(repr(value))


def _named(node: Any) -> str:
    return node.value if isinstance(node, cst.Name) else ""


def _string(node: Any) -> Any:
    return node.evaluated_value if isinstance(node, cst.SimpleString) else None


def _small(statement: Any) -> Any:
    """The only part of a line of code."""
    is_line = isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1
    return statement.body[0] if is_line else None


def _pairs(node: Any) -> list[tuple[Any, Any]]:
    """What an assignment gives what: `a, b = x, y` are two."""
    if not isinstance(node, cst.Assign) or len(node.targets) > 1:
        known = isinstance(node, cst.AnnAssign) and node.value
        return [(node.target, node.value)] if known else []
    target, value = node.targets[0].target, node.value
    both = isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple)
    if both and not any(isinstance(x, cst.StarredElement) for x in value.elements):
        sides = zip(target.elements, value.elements, strict=True)
        return [(one.value, its.value) for one, its in sides]
    return [(target, value)]


def _paired(node: Any, kept: Sequence[tuple[Any, Any]]) -> Any:
    """An assignment of these values to these targets."""
    (target, value), outer = kept[0], getattr(node, "targets", [None])[0]
    if outer is None:
        return node.with_changes(value=value)
    if len(kept) > 1:
        target = outer.target.with_changes(elements=[cst.Element(x) for x, _ in kept])
        value = node.value.with_changes(elements=[cst.Element(x) for _, x in kept])
    return node.with_changes(targets=[outer.with_changes(target=target)], value=value)


def _stored(node: Any) -> Counter[str]:
    """How often names get a value in it."""
    found: Counter[str] = Counter()
    for inner in walk(node):
        match inner:
            case cst.Param(name=target):
                found[_named(target)] += 1
            case (
                cst.AssignTarget(target=target)
                | cst.AugAssign(target=target)
                | cst.AnnAssign(target=target)
                | cst.For(target=target)
            ) if not isinstance(target, (cst.Subscript, cst.Attribute)):
                found.update(loads(target))
    return found


# One round.


class _Round:
    """One pass over a file: the same without what is known or dead."""

    def __init__(self, tree: cst.Module, choice: Choice, known: Mapping[Parameter, Any]) -> None:
        self.tree, self.choice, self.known = tree, choice, dict(known)
        self.parameters: dict[str, dict[str, Any]] = {}  # of kernels and named tuples → default
        self.jits, self.harmless = set(), {*dir(builtins)} - {"print"}
        for node in tree.body:
            match node:
                case cst.FunctionDef(name=cst.Name(value=name)):
                    harms = HARMS.search(tree.code_for_node(node))
                    self.harmless |= set() if harms else {name}
                    if "jit" in {x.attr.value for x in walk(node) if isinstance(x, cst.Attribute)}:
                        self.jits.add(name)
                        listed = node.params.params
                        self.parameters[name] = {x.name.value: x.default for x in listed}
                case cst.ClassDef(name=cst.Name(value=name), bases=[cst.Arg(value=base)]):
                    lines = [_small(x) for x in node.body.body if _named(base) == "NamedTuple"]
                    listed = {_named(x.target): x.value for x in lines if hasattr(x, "target")}
                    self.parameters |= {name: listed} if listed else {}
                    self.harmless.add(name)
        tuples = [x for name, x in self.parameters.items() if name not in self.jits]
        gone = ((x, y) for (of, x), y in known.items() if of[0].isupper())
        self.fields = {x: y for x, y in gone if not any(x in listed for listed in tuples)}
        self.seen: dict[Parameter, list[Any]] = defaultdict(list)  # what calls give
        self.calls: Counter[str] = Counter()
        self.env: dict[str, Any] = {}
        self.jit = False

    def folded(self) -> tuple[cst.Module, dict[Parameter, Any]]:
        """The file, one round further, and what is known of parameters."""
        body: list[Any] = []
        for statement in self.tree.body:
            name = _named(getattr(statement, "name", None))
            self.jit = name in self.jits
            self.env = dict(self.choice.known)
            if self.jit:
                self.env = {x: y for (of, x), y in self.known.items() if of == name}
                self.stored = _stored(statement)
            walked = self.jit or (name and name not in self.parameters)
            body += self._statement(statement) if walked else [statement]
        tree = self.tree.with_changes(body=body)
        gone = self._gone(tree)
        tree = rebuilt(tree, functools.partial(self._without, gone))
        return self._reachable(self._alive(tree)), self.known

    # What is known.

    def _statement(self, node: Any) -> list[Any]:
        """A statement, folded: none, one or some."""
        before = dict(self.env)
        match node:
            case cst.FunctionDef() | cst.ClassDef():
                body = self._block(node.body)
                self.env = before
                if isinstance(node, cst.FunctionDef):
                    node = node.with_changes(params=self._put_in(node.params))
                return [node.with_changes(body=body)]
            case cst.If():
                return self._if(node)
            case cst.For() | cst.While():
                if isinstance(node, cst.For):
                    node = node.with_changes(iter=self._put_in(node.iter))
                changed = _stored(node)
                outside = {x: y for x, y in before.items() if x not in changed}
                self.env = dict(outside)
                node = node.with_changes(body=self._block(node.body))
                self.env = outside
                turns = getattr(getattr(node, "iter", None), "elements", True)
                return [node] if node.body.body and turns else []
            case cst.With():
                items = [self._put_in(x) for x in node.items]
                return [node.with_changes(items=items, body=self._block(node.body))]
            case cst.SimpleStatementLine(body=[small]):
                return [node.with_changes(body=[self._line(small)])]
        return [node]

    def _block(self, block: Any) -> Any:
        """A block up to where it returns."""
        out: list[Any] = []
        for statement in block.body:
            out += self._statement(statement)
            if out and isinstance(_small(out[-1]), (cst.Return, cst.Raise)):
                break
        return block.with_changes(body=out)

    def _if(self, node: cst.If) -> list[Any]:
        test = self._put_in(node.test)
        found = self._truth(test)
        if found is not UNKNOWN:
            if isinstance(node.orelse, cst.If) and not found:
                return self._if(node.orelse)
            chosen = node if found else node.orelse
            body = list(self._block(chosen.body).body) if chosen else []
            if body:
                comment = chosen.body.header.comment
                above = [*node.leading_lines] if found else []
                above += [cst.EmptyLine(comment=comment)] if comment else []
                body[0] = body[0].with_changes(leading_lines=[*above, *body[0].leading_lines])
            return body
        before = self.env
        self.env = dict(before)
        body, one = self._block(node.body), self.env
        self.env = dict(before)
        match node.orelse:
            case cst.If():
                inner = self._if(node.orelse)
                chained = len(inner) == 1 and isinstance(inner[0], cst.If)
                other = inner[0] if chained else cst.Else(cst.IndentedBlock(inner))
            case other:
                inner = other and self._block(other.body).body
                other = other and other.with_deep_changes(other.body, body=inner)
        same = {x for x in one if self.env.get(x, UNKNOWN) is one[x]}
        self.env = {x: one[x] for x in same}
        if not body.body and not inner:
            return []
        if not body.body:
            body = body.with_changes(body=[cst.SimpleStatementLine([cst.Pass()])])
        return [node.with_changes(test=test, body=body, orelse=other if inner else None)]

    def _line(self, node: Any) -> Any:
        """A small statement, and what names are after it."""
        match node:
            case cst.Assign() | cst.AnnAssign(value=cst.BaseExpression()) | cst.AugAssign():
                node = node.with_changes(value=self._put_in(node.value))
            case _:
                return self._put_in(node)
        for name in _stored(node):
            self.env.pop(name, None)
        for target, value in _pairs(node):
            found = self._value(value)
            if isinstance(value, cst.Dict) and not value.elements:
                found = value
            if self.jit and isinstance(value, cst.Name) and value.value not in LITERALS:
                found = value if self.stored[value.value] == 1 else UNKNOWN
            if found is not UNKNOWN and isinstance(target, cst.Name):
                self.env[target.value] = found
        return node

    def _put_in(self, node: Any) -> Any:
        return rebuilt(node, self._change)

    def _given(self, name: Any) -> bool:
        """Whether a choice says what a name is, so that nobody passes it."""
        return not self.jit and self.choice.known.get(name, SOME) is not SOME

    def _change(self, old: Any, new: Any) -> Any:
        match new:
            case cst.Name(value=name):
                found = self.env.get(name, UNKNOWN)
                if isinstance(found, cst.CSTNode):
                    return found
                return _written(found) if found is None or isinstance(found, int) else new
            case cst.Param():
                name = old.name.value
                wanted = not self.jit and self.choice.known.get(name, UNKNOWN) is SOME
                new = new.with_changes(name=old.name)
                bare = {"default": None, "equal": cst.MaybeSentinel.DEFAULT} if wanted else {}
                return None if self._given(name) else new.with_changes(**bare)
            case cst.Arg(value=cst.BinaryOperation(lpar=[_]) as value) if not old.value.lpar:
                return new.with_changes(value=value.with_changes(lpar=(), rpar=()))
            case cst.Element(value=cst.Tuple(elements=[cst.Element(value=key), _, *_])):
                return None if self._given(_string(key)) else new
            case cst.DictElement(key=key):
                return None if self._given(_string(key)) else new
            case cst.IfExp(test=test, body=body, orelse=other):
                found = True if body.deep_equals(other) else self._truth(test)
                return new if found is UNKNOWN else _atomic(body if found else other, new)
            case cst.BooleanOperation():
                return self._boolean(new)
            case cst.UnaryOperation(operator=cst.Not(), expression=inner):
                found = self._truth(inner)
                return new if found is UNKNOWN else _written(not found)
            case cst.Comparison(left=left, comparisons=[target]):
                sides = self._value(left), self._value(target.comparator)
                found = _compared(type(target.operator), *sides)
                return new if found is UNKNOWN else _written(found)
            case cst.BinaryOperation(operator=cst.Multiply() | cst.Divide()):
                return _atomic(new.left, new) if self._value(new.right) == 1.0 else new
            case cst.BinaryOperation(operator=cst.Add() | cst.Subtract()) if self.jit:
                if self._value(new.right) == 0:
                    return _atomic(new.left, new)
                from_0 = isinstance(new.operator, cst.Add) and self._value(new.left) == 0
                return _atomic(new.right, new) if from_0 else new
            case cst.Attribute(attr=cst.Name(value=name)):
                found = self.fields.get(name, SOME)
                return new if found is SOME else _written(found)
            case cst.Call():
                return self._call(old, new)
        return new

    def _boolean(self, new: cst.BooleanOperation) -> Any:
        left, right = self._truth(new.left), self._truth(new.right)
        stops = isinstance(new.operator, cst.Or)
        if left is not UNKNOWN:
            return _atomic(new.left if left is stops else new.right, new)
        if right is stops and self._pure(new.left):
            return new.right
        tests = (cst.Comparison, cst.UnaryOperation, cst.BooleanOperation)
        if right in (stops, UNKNOWN) or not (self.jit or isinstance(new.left, tests)):
            return new
        return _atomic(new.left, new)

    def _value(self, node: Any) -> Any:
        """What a folded expression is, or UNKNOWN."""
        match node:
            case cst.Name(value=name):
                facts = self.choice.facts if self.jit else {}
                return LITERALS.get(name, self.env.get(name, facts.get(name, UNKNOWN)))
            case cst.Integer() | cst.Float() | cst.SimpleString():
                return node.evaluated_value
            case cst.BinaryOperation():
                return SOME
            case cst.Call() if self.jit:
                return SOME
        return UNKNOWN

    def _truth(self, node: Any) -> Any:
        """What a folded test gives, or UNKNOWN."""
        found = self._value(node)
        return bool(found) if found is None or isinstance(found, (int, str)) else UNKNOWN

    def _call(self, old: cst.Call, new: cst.Call) -> Any:
        """A call, without arguments that are not there; a kernel's, noticed."""
        owner, arguments = self._called(new)
        if owner in self.jits or (self.jit and owner in self.parameters):
            self.calls[owner] += 1
            given = {name: x.value for name, x in arguments}
            for name, default in self.parameters[owner].items():
                value = given.get(name, default)
                self.seen[owner, name].append(self._value(value) if value else UNKNOWN)
        elif not self.jit:
            both = zip(old.args, new.args, strict=True)
            kept = [None if self._absent(x, y) else y for x, y in both]
            return new.with_changes(args=_tidy(new.args, kept)) if None in kept else new
        return new

    def _absent(self, old: cst.Arg, new: cst.Arg) -> bool:
        if new.star:
            return not getattr(new.value, "elements", True)
        given = self._given(_named(old.value)) and not new.keyword
        return given and _named(new.value) == "None"

    def _called(self, call: cst.Call) -> tuple[str, list[tuple[str, cst.Arg]]]:
        """Which function or tuple of kernels a call is for; each parameter with its argument."""
        callee, arguments = call.func, call.args
        if isinstance(callee, cst.Attribute) and callee.attr.value == "run":
            callee, arguments = arguments[0].value, arguments[1:]
        owner = _named(callee.value if isinstance(callee, cst.Subscript) else callee)
        names = iter(self.parameters.get(owner, ()))
        if any(x.star for x in arguments):
            return "", []  # who knows: it counts as another use of the function
        return owner, [(x.keyword.value if x.keyword else next(names, ""), x) for x in arguments]

    # What is dead.

    def _gone(self, tree: cst.Module) -> set[Parameter]:
        """Parameters and fields that nobody reads, or whose value is known now."""
        names = Counter(x.value for x in walk(self.tree) if isinstance(x, cst.Name))
        read = {x.attr.value for x in walk(tree) if isinstance(x, cst.Attribute)}
        bodies = {_named(getattr(x, "name", None)): x for x in tree.body}
        gone = set()
        for owner, listed in self.parameters.items():
            if names[owner] != self.calls[owner] + 1 or not self.calls[owner]:
                continue  # not only called
            jit = owner in self.jits
            stored = _stored(bodies[owner]) if jit else {}
            for name in listed:
                first, *more = self.seen[owner, name]
                if any(x is not first for x in more):
                    first = UNKNOWN
                if first is SOME or first is None or isinstance(first, bool):
                    self.known[owner, name] = first
                unread = name not in (loads(bodies[owner].body) if jit else read)
                found = self.known.get((owner, name), SOME) if stored.get(name, 1) == 1 else SOME
                if unread or found is not SOME:
                    gone.add((owner, name))
        return gone

    def _without(self, gone: set[Parameter], old: Any, new: Any) -> Any:
        """The file without some parameters, and their arguments."""
        match new:
            case cst.Call():
                owner, arguments = self._called(new)
                if not any((owner, name) in gone for name, _ in arguments):
                    return new
                names = {id(x): name for name, x in arguments}
                kept = [None if (owner, names.get(id(x))) in gone else x for x in new.args]
                return new.with_changes(args=_tidy(new.args, kept))
            case cst.FunctionDef(name=cst.Name(value=owner), params=params):
                kept = [None if (owner, x.name.value) in gone else x for x in params.params]

                def listed(_: Any, x: Any) -> Any:  # of do_not_specialize
                    is_gone = isinstance(x, cst.Element) and (owner, _string(x.value)) in gone
                    return None if is_gone else x

                new = new.with_changes(decorators=[rebuilt(x, listed) for x in new.decorators])
                return new.with_deep_changes(new.params, params=_tidy(params.params, kept))
            case cst.ClassDef(name=cst.Name(value=owner)) if owner in self.parameters:
                targets = [_named(getattr(_small(x), "target", None)) for x in new.body.body]
                both = zip(targets, new.body.body, strict=True)
                kept = [x for name, x in both if (owner, name) not in gone]
                return new.with_deep_changes(new.body, body=kept)
        return new

    def _pure(self, node: Any) -> bool:
        """Whether nobody misses an expression whose value nobody uses."""
        for call in walk(node):
            match call:
                case cst.Call(func=cst.Name(value=name)) if name in self.harmless:
                    pass
                case cst.Call(func=cst.Attribute(attr=cst.Name(value=name))):
                    if HARMS.fullmatch(name):
                        return False
                case cst.Call():
                    return False
        return True

    def _alive(self, tree: cst.Module) -> cst.Module:
        """The file without assignments and parts of what is returned that nobody reads."""
        live = {
            x: self._live(x)
            for x in tree.body
            if hasattr(x, "name")
            and (x.name.value in self.jits or x.name.value not in self.parameters)
        }
        parts = {name: self._read_parts(name, live) for name in self.jits}
        body = [
            rebuilt(x, functools.partial(self._kept, x.name.value, live[x], _loops(x), parts))
            if x in live
            else x
            for x in tree.body
        ]
        return tree.with_changes(body=body)

    def _live(self, function: Any) -> Set[str]:
        """The names whose values matter."""
        reads: list[tuple[str, Set[str]]] = []  # each with the names that are made of it

        def read(node: Any, into: Set[str]) -> None:
            match node:
                case cst.Name(value=name):
                    reads.append((name, into))
                case cst.Param(default=default):
                    return read(default, into) if default else None
                case cst.AugAssign(target=cst.Name(value=name), value=value):
                    return read(value, {name} if self._pure(value) else set())
                case cst.Assign() | cst.AnnAssign() if node.value and (pairs := _pairs(node)):
                    for target, value in pairs:
                        plain = not {cst.Subscript, cst.Attribute} & {type(x) for x in walk(target)}
                        read(value, loads(target) if plain and self._pure(value) else set())
                        read(cst.Pass() if plain else target, set())
                    return None
            for child in _children(node):
                read(child, into)
            return None

        read(function, set())
        alive = {name for name, into in reads if not into}
        while more := {name for name, into in reads if into & alive} - alive:
            alive |= more
        return alive

    def _read_parts(self, name: str, live: Mapping[Any, Set[str]]) -> Set[int] | None:
        """Which parts of what a function returns somebody reads; None: all."""
        sizes, targets, uses = set(), [], 0
        for function, alive in live.items():
            for node in walk(function):
                match node:
                    case cst.Name(value=found):
                        uses += found == name
                    case cst.Return(value=value) if function.name.value == name:
                        sizes.add(len(value.elements) if isinstance(value, cst.Tuple) else 0)
                    case cst.Assign(
                        targets=[cst.AssignTarget(target=cst.Tuple(elements=elements))],
                        value=cst.Call(func=cst.Name(value=found)),
                    ) if found == name:
                        targets.append({i for i, x in enumerate(elements) if loads(x) & alive})
        used = set().union(*targets)
        return used if used and len(targets) == uses - 1 and sizes == {max(sizes)} else None

    def _kept(
        self,
        name: str,
        live: Set[str],
        loops: Set[str],
        parts: Mapping[str, Set[int] | None],
        old: Any,
        new: Any,
    ) -> Any:
        """What is left of a part of a function."""

        def of(whole: Any, function: str) -> Any:
            used = parts.get(function)
            left = [x for i, x in enumerate(whole.elements) if used is None or i in used]
            return whole.with_changes(elements=left) if len(left) > 1 else left[0].value

        def dead(target: Any, value: Any) -> bool:
            unread = isinstance(target, (cst.Name, cst.Tuple)) and not loads(target) & live
            return (unread and self._pure(value)) or _named(target) == _named(value) != ""

        match new:
            case cst.Return(value=cst.Tuple() as value) if parts.get(name):
                return new.with_changes(value=of(value, name))
            case cst.Assign(
                targets=[cst.AssignTarget(target=cst.Tuple() as target)],
                value=cst.Call(func=cst.Name(value=called)) as value,
            ) if parts.get(called):
                return _paired(new, [(of(target, called), value)])
            case cst.AugAssign(target=target, value=value):
                return None if dead(target, value) else new
            case cst.Assign() | cst.AnnAssign() if new.value and (pairs := _pairs(new)):
                left = [(_renamed(a, live), b) for a, b in pairs if not dead(a, b)]
                return _paired(new, left) if left else None
            case cst.SimpleStatementLine(body=[]):
                return None
            case cst.IndentedBlock(body=body):
                return new.with_changes(body=self._replaced(body, loops))
        return new

    def _replaced(self, body: Sequence[Any], loops: Set[str]) -> list[Any]:
        """A block without values that others replace unread, but of names that a loop carries."""
        out: list[Any] = []
        for at, statement in enumerate(body):
            pairs = _pairs(_small(statement))
            kept = [
                (target, value)
                for target, value in pairs
                if _named(target) in {*loops, ""}
                or not self._pure(value)
                or not _again(_named(target), body[at + 1 :])
            ]
            if len(kept) == len(pairs):
                out.append(statement)
            elif kept:
                out.append(statement.with_changes(body=[_paired(_small(statement), kept)]))
        return out

    def _reachable(self, tree: cst.Module) -> cst.Module:
        """The file without what its root does not reach."""
        items = [(statement, _defines(statement)) for statement in tree.body]
        needed = {self.choice.root}.union(*(loads(x) for x, names in items if names is None))
        while (
            more := {y for x, names in items if names and names & needed for y in loads(x)} - needed
        ):
            needed |= more
        body: list[Any] = []
        for statement, names in items:
            match _small(statement):
                case cst.Import(names=aliases) | cst.ImportFrom(names=aliases) as small:
                    kept = _tidy(aliases, [x if _imported(x) in needed else None for x in aliases])
                    if kept:
                        left = small.with_changes(names=kept)
                        body.append(statement.with_changes(body=[left]))
                case _:
                    body += [statement] if names is None or names & needed else []
        return tree.with_changes(body=body)


def _compared(kind: type, left: Any, right: Any) -> Any:
    """What a comparison gives, or UNKNOWN."""
    if kind in (cst.Is, cst.IsNot):
        known = right is None and left is not UNKNOWN
        return (left is None) is (kind is cst.Is) if known else UNKNOWN
    plain = all(isinstance(x, (int, float, str)) for x in (left, right)) and kind in COMPARISONS
    return COMPARISONS[kind](left, right) if plain else UNKNOWN


def _renamed(target: Any, live: Set[str]) -> Any:
    """The names that nobody reads, called `_`, where others stand beside them."""

    def change(_: Any, new: Any) -> Any:
        dead = isinstance(new, cst.Name) and new.value[0] != "_" and new.value not in live
        return new.with_changes(value="_") if dead else new

    return rebuilt(target, change) if isinstance(target, cst.Tuple) else target


def _loops(function: Any) -> Set[str]:
    """The names that a loop changes."""
    loops = (x for x in walk(function) if isinstance(x, (cst.For, cst.While)))
    return {name for loop in loops for name in _stored(loop)}


def _again(name: str, following: Sequence[Any]) -> bool:
    """Whether a name gets another value before anything reads this one."""
    for statement in following:
        match _pairs(_small(statement)):
            case [(cst.Name(value=target), value)] if target == name:
                return name not in loads(value)
        if name in loads(statement) or _small(statement) is None:
            return False
    return False


def _defines(statement: Any) -> Set[str] | None:
    """The names that a statement of the file defines, or None if it does more."""
    match statement:
        case cst.FunctionDef(name=name) | cst.ClassDef(name=name):
            return {name.value}
        case cst.SimpleStatementLine(body=[cst.Import(names=names) | cst.ImportFrom(names=names)]):
            return {_imported(x) for x in names}
    return {*_stored(statement)} or None


def _imported(alias: cst.ImportAlias) -> str:
    return alias.evaluated_alias or alias.evaluated_name.split(".")[0]


# Words.


def _worded(tree: cst.Module, gone: Set[str], words: Sequence[str]) -> cst.Module:
    """The file, its comments without the clauses that name one of these names or words."""
    listed = [*words, *(x for x in gone if len(x) > 1 and (x.upper() == x or "_" in x))]
    if not listed:
        return tree
    names = "|".join(map(re.escape, sorted(listed)))
    kept = functools.partial(_said, re.compile(rf"(?<![\w.])(?:{names})(?!\w)"))
    return tree.visit(_Words(gone, kept))


class _Words(cst.CSTTransformer):
    def __init__(self, gone: Set[str], kept: Callable[[str], str]) -> None:
        super().__init__()
        self.gone, self.kept = gone, kept

    def on_leave(self, original: Any, updated: Any) -> Any:
        for name in ("leading_lines", "lines_after_decorators", "header", "footer", "empty_lines"):
            part = getattr(updated, name, None)
            if isinstance(part, (list, tuple)) and part:
                updated = updated.with_changes(**{name: _lines(part, self.kept)})
        if isinstance(updated, cst.TrailingWhitespace) and updated.comment:
            text = self.kept(updated.comment.value.lstrip("# "))
            space = cst.SimpleWhitespace("  " if text else "")
            comment = cst.Comment(f"# {text}") if text else None
            return updated.with_changes(comment=comment, whitespace=space)
        match updated:
            case cst.SimpleStatementLine(body=[cst.Expr(value=cst.SimpleString(value=text))]):
                left = _docstring(text, self.gone, self.kept)
                if not left:
                    return cst.RemoveFromParent()
                return updated.with_deep_changes(updated.body[0].value, value=left)
        return updated


def _said(names: re.Pattern[str], text: str) -> str:
    clauses = re.split(r"(?<=;)\s+|(?<=\.)\s+(?=[A-Z`])", text)
    left = [x for x in clauses if not names.search(x)]
    if len(left) == len(clauses):
        return text
    found = " ".join(left).removesuffix(";")
    if clauses[-1].endswith("."):
        found = re.sub(r";(?= [A-Z])|(?<=[^.])$", ".", found) if found else ""
        found = re.sub(r"(?<=\. )[a-z]", lambda x: x[0].upper(), found)
    return found[:1].upper() + found[1:] if text[:1].isupper() else found


def _lines(lines: Sequence[Any], kept: Callable[[str], str]) -> list[Any]:
    """The comments above a statement, each a paragraph of lines."""
    out: list[Any] = []
    together: list[Any] = []
    for line in [*lines, None]:
        if line is not None and line.comment:
            together.append(line)
            continue
        text = " ".join(x.comment.value.lstrip("# ") for x in together)
        left = kept(text)
        rows = textwrap.wrap(left, WIDTH - 7) if left != text else []
        new = [together[0].with_changes(comment=cst.Comment(f"# {row}")) for row in rows]
        out += together if left == text else new
        together = []
        out += [line] if line is not None else []
    return out


def _docstring(text: str, gone: Set[str], kept: Callable[[str], str]) -> str:
    """A docstring, its paragraphs and its entries for arguments each by itself."""
    out: list[str] = []
    for part in re.split(r"(\n\n|(?<=:)\n|\n(?= {8}[\w, ]+: ))", text.strip('"').rstrip()):
        entry = re.match(r" {8}(\w+(?:, \w+)*): ", part)
        flat = re.sub(r"\s+", " ", part.strip())
        left = "" if entry and gone >= {*entry[1].split(", ")} else kept(flat)
        indent = part[: len(part) - len(part.lstrip())]
        if left == flat:
            out.append(part)
        elif left:
            after = indent + "    " * bool(entry) if out else "    "
            rows = textwrap.wrap(left, WIDTH, initial_indent=indent, subsequent_indent=after)
            out.append("\n".join(rows))
        elif out:
            out.pop()
    whole = re.sub(r"\n\n +\w+:(?=\n\n|$)", "", "".join(out))
    if "\n" not in whole and len(whole) > WIDTH - 7:
        whole = "\n    ".join(textwrap.wrap(whole, WIDTH - 7))
    end = "\n    " if "\n" in whole else ""
    return f'"""{whole}{end}"""' if whole.strip() else ""
