"""A partial evaluator for a kernel's file: what a choice decides is put in, what is dead then goes.

Each round walks through every function in its order and knows what names are: literals, what the
caller says of the launcher's names, and what every call of a kernel's function gives a parameter.
It folds `if`, the ternary, `and`, `or`, `not`, comparisons and `is None`; then drops what nobody
reads: assignments, parameters with their arguments, fields of named tuples, parts of what a
function returns, and definitions; until nothing changes. What it does not know it leaves. A number
that a kernel is given when it runs is never put in, and a dimension keeps its name. Comments stay,
without the clauses that name what is gone (`fold_words`).
"""

from __future__ import annotations

import builtins
import functools
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Any

import libcst as cst

from snippets._site.fold_words import worded

UNKNOWN: Any = object()
SOME: Any = object()  # unknown, but not None
LITERALS = {"True": True, "False": False, "None": None}
COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    cst.Equal: operator.eq, cst.NotEqual: operator.ne,
    cst.LessThan: operator.lt, cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt, cst.GreaterThanEqual: operator.ge,
}  # fmt: skip
# Parts of a node that are neither code nor a use of a name.
QUIET = re.compile("whitespace|comma|equal|[lr]par|lines|header|footer|keyword|attr")
# A function with one of these does something, beside returning a value.
HARMS = re.compile(r"\b(raise|yield|print|global|set_\w+|store|atomic_\w+|gdc_\w+)\b|\]\(|\] = ")
Parameter = tuple[str, str]  # function → its parameter, or named tuple → its field


@dataclass(frozen=True)
class Choice:
    """What a reader has chosen, as it says of one file."""

    root: str  # what the file is for
    known: Mapping[str, object]  # name around the kernels → its value; None: it is not there
    facts: Mapping[str, int] = field(default_factory=dict)  # of kernels; these names stay
    texts: tuple[tuple[str, str], ...] = ()  # what is narrowed: old code, once → new code
    words: tuple[str, ...] = ()  # what comments call what is not there


def fold(source: str, choice: Choice) -> str:
    """The file that holds just what was chosen. ruff formats it, and takes unused imports."""
    for old, new in choice.texts:
        if source.count(old) != 1:
            raise ValueError(f"{source.count(old)} times, and not once: {old}")
        source = source.replace(old, new)
    tree = cst.parse_module(source)
    known: dict[Parameter, Any] = {}
    names, before = loads(tree), ""
    while before != tree.code:
        before = tree.code
        tree, known = _Round(tree, choice, known).folded()
    text = worded(tree.code, names - loads(tree), choice.words)
    loads.cache_clear()  # let go of the nodes
    return text


# Trees.


@functools.cache
def _parts(kind: Any) -> tuple[str, ...]:
    """What a node has of code and names; nothing has none."""
    listed = fields(kind) if issubclass(kind, cst.CSTNode) else ()
    return tuple(part.name for part in listed if not QUIET.match(part.name))


def walk(node: Any) -> Iterator[Any]:
    yield node
    for name in _parts(node.__class__):
        value = getattr(node, name)
        for child in value if isinstance(value, (list, tuple)) else (value,):
            if _parts(child.__class__):
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
            new = [rebuilt(x, change) if _parts(x.__class__) else x for x in value]
            if any(map(operator.is_not, new, value)):
                changes[name] = _tidy(value, new)
        elif _parts(value.__class__) and (new := rebuilt(value, change)) is not value:
            changes[name] = new
    return change(node, node.with_changes(**changes) if changes else node)


def _tidy(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """What is left of a list, of which some is None; lines end where they ended."""
    out: list[Any] = []
    for old, new in zip(before, after, strict=True):
        if new is not None:
            out += new if isinstance(new, list) else [new]
        elif out and _ends_line(old) and not _ends_line(out[-1]):  # its comment was of both
            space = old.comma.whitespace_after.with_changes(first_line=cst.TrailingWhitespace())
            out[-1] = out[-1].with_changes(comma=old.comma.with_changes(whitespace_after=space))
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
    if not isinstance(node, cst.Assign):
        return node
    target, value = kept[0]
    if len(kept) > 1:
        sides = zip(*kept, strict=True)
        target, value = (cst.Tuple([cst.Element(x) for x in side]) for side in sides)
        value = value.with_changes(lpar=(), rpar=())
    if isinstance(target, cst.Tuple):
        target = target.with_changes(lpar=(), rpar=())
    return node.with_changes(targets=[cst.AssignTarget(target)], value=value)


def _stored(node: Any) -> Counter[str]:
    """How often names get a value in it."""
    found: Counter[str] = Counter()
    for inner in walk(node):
        target = inner.name if isinstance(inner, cst.Param) else getattr(inner, "target", None)
        if target and not isinstance(target, (cst.Subscript, cst.Attribute)):
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
                case cst.ClassDef(
                    name=cst.Name(value=name), bases=[cst.Arg(value=cst.Name(value="NamedTuple"))]
                ):
                    fields_of = (x for x in map(_small, node.body.body) if hasattr(x, "target"))
                    self.parameters[name] = {x.target.value: x.value for x in fields_of}
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
        body = [self._alive(x) if isinstance(x, cst.FunctionDef) else x for x in tree.body]
        return self._reachable(_narrowed(tree.with_changes(body=body))), self.known

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
                return [node.with_changes(body=self._block(node.body))]
            case cst.SimpleStatementLine(body=[small]):
                return [node.with_changes(body=[self._line(small)])]
        self.env = {x: y for x, y in before.items() if x not in _stored(node)}
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
        before = dict(self.env)
        body, one = self._block(node.body), self.env
        self.env = before
        inner, other = [], node.orelse
        if isinstance(other, cst.If):
            inner = self._if(other)
            chained = len(inner) == 1 and isinstance(inner[0], cst.If)
            other = inner[0] if chained else cst.Else(cst.IndentedBlock(inner))
        elif other:
            other = other.with_changes(body=self._block(other.body))
            inner = other.body.body
        self.env = {x: y for x, y in one.items() if self.env.get(x, UNKNOWN) is y}
        if not body.body and not inner:
            return []
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
                if self._given(old.name.value):
                    return None
                new = new.with_changes(name=old.name)
                wanted = not self.jit and self.choice.known.get(old.name.value) is SOME
                bare = {"default": None, "equal": cst.MaybeSentinel.DEFAULT}
                return new.with_changes(**bare) if wanted else new
            case cst.Arg(value=cst.BinaryOperation(lpar=[_]) as value) if not old.value.lpar:
                return new.with_changes(value=value.with_changes(lpar=(), rpar=()))
            case (
                cst.Element(value=cst.Tuple(elements=[cst.Element(value=key), _, *_]))
                | cst.DictElement(key=key)
            ):
                return None if self._given(_string(key)) else new
            case cst.IfExp(test=test, body=body, orelse=other):
                found = self._truth(test)
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
        return new if right in (stops, UNKNOWN) else _atomic(new.left, new)  # as true as both

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
        """Whether an argument is an option that is decided."""
        given = self._given(_named(old.value)) and not new.keyword
        return given and _named(new.value) in LITERALS

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
                dropped = [x for name, x in arguments if (owner, name) in gone]
                kept = [None if x in dropped else x for x in new.args]
                return new.with_changes(args=_tidy(new.args, kept)) if dropped else new
            case cst.FunctionDef(name=cst.Name(value=owner), params=params):
                kept = [None if (owner, x.name.value) in gone else x for x in params.params]

                def listed(_: Any, x: Any) -> Any:  # of do_not_specialize
                    is_gone = isinstance(x, cst.Element) and (owner, _string(x.value)) in gone
                    return None if is_gone else x

                new = new.with_changes(decorators=[rebuilt(x, listed) for x in new.decorators])
                return new.with_deep_changes(new.params, params=_tidy(params.params, kept))
            case cst.ClassDef(name=cst.Name(value=owner)) if owner in self.parameters:
                named = ((_named(getattr(_small(x), "target", None)), x) for x in new.body.body)
                kept = [x for name, x in named if (owner, name) not in gone]
                return new.with_deep_changes(new.body, body=kept)
        return new

    def _pure(self, node: Any) -> bool:
        """Whether nobody misses an expression whose value nobody uses."""
        called = (x.func for x in walk(node) if isinstance(x, cst.Call))
        return all(
            not HARMS.fullmatch(x.attr.value)
            if isinstance(x, cst.Attribute)
            else _named(x) in self.harmless
            for x in called
        )

    def _alive(self, function: Any) -> Any:
        """A function without assignments that nobody reads."""
        inner = (x for x in walk(function.body) if isinstance(x, (cst.FunctionDef, cst.Lambda)))
        self.closed = {name for x in inner for name in loads(x)}  # read at any time
        return function.with_changes(body=self._live_block(function.body, frozenset())[0])

    def _live_block(self, block: Any, live: frozenset[str]) -> tuple[Any, frozenset[str]]:
        out: list[Any] = []
        for statement in reversed(block.body):
            left, live = self._live(statement, live)
            out[:0] = [left] if left else []
        return block.with_changes(body=out), live

    def _live(self, node: Any, live: frozenset[str]) -> tuple[Any, frozenset[str]]:
        """What is left of a statement after which these names are read; those read before it."""
        live |= self.closed
        match node:
            case cst.If(test=test, orelse=other):
                body, before = self._live_block(node.body, live)
                other, instead = self._live(other, live) if other else (None, live)
                node = node.with_changes(body=body, orelse=other)
                return node, loads(test) | before | instead
            case cst.Else() | cst.With():
                body, live = self._live_block(node.body, live)
                items = getattr(node, "items", ())
                return node.with_changes(body=body), live.union(*map(loads, items))
            case cst.For() | cst.While():
                turns = isinstance(node, cst.For)
                live |= loads(node.iter if turns else node.test)
                while True:  # what a turn reads matters at the end of the one before
                    body, before = self._live_block(node.body, live)
                    before -= loads(node.target) if turns else set()
                    if before <= live:  # Triton carries values in the order of their first ones
                        self.closed |= live & {*_stored(node)}
                        return node.with_changes(body=body), live
                    live |= before
            case cst.SimpleStatementLine(body=[cst.Return() | cst.Raise()]):
                return node, loads(node)
            case cst.SimpleStatementLine(body=[cst.AugAssign(target=target, value=value)]):
                if self._dead(target, value, live):
                    return None, live
            case cst.SimpleStatementLine(body=[small]) if pairs := _pairs(small):
                kept = [(x, y) for x, y in pairs if not self._dead(x, y, live)]
                kept = [(_renamed(x, live), y) for x, y in kept]
                if not kept:
                    return None, live
                if all(_is_plain(x) for x, _ in kept):
                    before = live.difference(*(loads(x) for x, _ in kept))
                    left = node.with_changes(body=[_paired(small, kept)])
                    return left, before.union(*(loads(x) for _, x in kept))
        return node, live | loads(node)

    def _dead(self, target: Any, value: Any, live: Set[str]) -> bool:
        """Whether nobody misses an assignment after which these names are read."""
        unread = _is_plain(target) and not loads(target) & live
        return (unread and self._pure(value)) or _named(target) == _named(value) != ""

    def _reachable(self, tree: cst.Module) -> cst.Module:
        """The file without what its root does not reach; imports stay."""
        items = [(statement, _defines(statement)) for statement in tree.body]
        needed = {self.choice.root}.union(*(loads(x) for x, names in items if not names))
        while more := {y for x, names in items if names & needed for y in loads(x)} - needed:
            needed |= more
        return tree.with_changes(body=[x for x, names in items if not names or names & needed])


def _compared(kind: type, left: Any, right: Any) -> Any:
    """What a comparison gives, or UNKNOWN."""
    if kind in (cst.Is, cst.IsNot):
        known = right is None and left is not UNKNOWN
        return (left is None) is (kind is cst.Is) if known else UNKNOWN
    plain = all(isinstance(x, (int, float, str)) for x in (left, right)) and kind in COMPARISONS
    return COMPARISONS[kind](left, right) if plain else UNKNOWN


def _is_plain(target: Any) -> bool:
    """Whether an assignment does no more than name things."""
    return all(isinstance(x, (cst.Name, cst.Tuple, cst.Element)) for x in walk(target))


def _renamed(target: Any, live: Set[str]) -> Any:
    """The names that nobody reads, called `_`, where others stand beside them."""

    def change(_: Any, new: Any) -> Any:
        dead = isinstance(new, cst.Name) and new.value not in live
        return new.with_changes(value="_") if dead else new

    return rebuilt(target, change) if isinstance(target, cst.Tuple) else target


def _narrowed(tree: cst.Module) -> cst.Module:
    """The file without parts of what a function returns that every call of it names `_`."""
    uses = Counter(x.value for x in walk(tree) if isinstance(x, cst.Name))
    targets: dict[str, list[Any]] = defaultdict(list)
    for node in walk(tree):
        match node:
            case cst.Assign(targets=[target], value=cst.Call(func=cst.Name(value=name))):
                targets[name] += [target.target] if isinstance(target.target, cst.Tuple) else []
    replaced: dict[Any, Any] = {}
    for function in tree.body:
        name = _named(getattr(function, "name", None))
        wholes = [x.value for x in walk(function) if isinstance(x, cst.Return)] + targets[name]
        parts = [part for x in targets[name] for part in enumerate(x.elements)]
        used = {i for i, part in parts if loads(part) - {"_"}}
        only_unpacked = len(targets[name]) == uses[name] - 1
        if used and only_unpacked and all(isinstance(x, cst.Tuple) for x in wholes):
            for whole in wholes:
                kept = [x for i, x in enumerate(whole.elements) if i in used]
                several = whole.with_changes(elements=kept)
                replaced[whole] = several if len(kept) > 1 else kept[0].value
    return rebuilt(tree, lambda old, new: replaced.get(old, new))


def _defines(statement: Any) -> Set[str]:
    """The names that a statement of the file defines."""
    name = _named(getattr(statement, "name", None))
    return {name} if name else {*_stored(statement)}
