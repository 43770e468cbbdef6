"""A partial evaluator for a kernel's file: what a choice decides is put in, what is dead then goes.

It knows literals, parameters that every call gives the same constant, and what its caller says of
names. It folds `if`, the ternary, `and`, `or`, `not`, comparisons and `is None`; drops names,
parameters with their arguments, fields of named tuples, rows of refusals, definitions and imports
that nothing uses any more; and so on until nothing changes. What it does not know it leaves. A
number that a kernel is given when it runs is never put in, and a dimension keeps its name.
Comments stay, without the sentences that name what is gone: `wording` sees to that.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence, Set
from typing import Any

import libcst as cst

from snippets._site import wording
from snippets._site.program import (
    LITERALS,
    PLAIN,
    SOME,
    UNKNOWN,
    Call,
    Choice,
    Definition,
    Program,
    Scope,
    forget,
    loads,
    pairs,
    rebuilt,
    string,
    tidy,
    walk,
    written,
)


class Unfoldable(ValueError):
    """What a choice says of a file is not in it."""


def fold(source: str, choice: Choice) -> str:
    """The file that holds just what was chosen. ruff formats it."""
    for old, new in choice.texts:
        if source.count(old) != 1:
            raise Unfoldable(f"{source.count(old)} times, and not once: {old}")
        source = source.replace(old, new)
    tree = cst.parse_module(source)
    before, code, names = "", source, loads(tree)
    while before != code:
        tree = _Round(tree, choice).folded()
        before, code = code, tree.code
    forget()
    return wording.without(tree, names - loads(tree), choice.words).code


# What goes.


class _Round(Program):
    """One pass over a file: the same without what is dead."""

    def folded(self) -> cst.Module:
        """The file, one round further."""
        if versions := self._versions():
            return versions
        gone = self._dropped()
        going = {i for i, users in self.users.items() if users <= gone}
        for name, statement in (
            (getattr(x.name, "value", ""), x) for x in self.tree.body if hasattr(x, "name")
        ):
            for inner in walk(statement):
                match inner:
                    case cst.Decorator():
                        strings = (x for x in walk(inner) if isinstance(x, cst.Element))
                        going |= {id(x) for x in strings if (name, string(x.value)) in gone}
                    case cst.SimpleStatementLine(body=[cst.AnnAssign(target=cst.Name(value=of))]):
                        going |= (
                            {id(inner)} if name in self.classes and (name, of) in gone else set()
                        )
        self.unread = {name: self._unread(name) for name in self.scopes}
        body: list[Any] = []
        for statement in self.tree.body:
            name = statement.name.value if isinstance(statement, cst.FunctionDef) else ""
            new = _Function(self, self.scopes[name], gone, going).changed(statement)
            body += new if isinstance(new, list) else [new]
        return _reachable(self.tree.with_changes(body=body), self.choice.roots)

    def _versions(self) -> cst.Module | None:
        """The file with a function twice, once for each half that a flag of its calls decides."""
        inner = {x: of for x, of in self.scopes.items() if of.jit and x not in self.escaped}
        for name, scope in inner.items():
            tests = [x.test for x in scope.node.body.body if isinstance(x, cst.If) and x.orelse]
            for flag in sorted({*scope.parameters}.intersection(*[map(_named, tests)])):
                values = [self.value(x.value, x.scope) for x in self.arguments[name, flag]]
                if len({*values}) < 2 or not all(isinstance(x, bool) for x in values):
                    continue
                other = f"{name}_{flag.lower().removeprefix('use_')}"
                calls = [(x, of) for of in self.scopes.values() for x in of.calls]
                slots = {
                    id(x): self._matched(scope.positional, Call(of, x.args), scope)[0][flag]
                    for x, of in calls
                    if _named(x.func) == name
                }
                true = {i for i, slot in slots.items() if self.value(slot.value, slot.scope)}
                return rebuilt(self.tree, functools.partial(_twice, scope.node, other, true))
        return None

    def _unread(self, name: str) -> set[int]:
        """Which parts of what a function returns nobody reads."""
        scope = self.scopes[name]
        sizes = {len(x.elements) if isinstance(x, cst.Tuple) else 0 for x in scope.returns}
        if not scope.jit or name in self.escaped or len(sizes) != 1:
            return set()
        calls = [x for of in self.scopes.values() for x in of.calls if _named(x.func) == name]
        targets = [(x, of) for of in self.scopes.values() for x, by in of.unpacked if by == name]
        read = {
            i
            for target, of in targets
            for i, x in enumerate(target.elements)
            if _named(x.value) != "_" and loads(x.value) & of.live
        }
        return {*range(*sizes)} - read if len(calls) == len(targets) and read else set()

    def _dropped(self) -> set[tuple[str, str]]:
        """What nothing needs: parameters and fields that share no argument with one that stays."""
        gone = set()
        for name, scope in self.scopes.items():
            private = name not in self.choice.roots and name not in self.escaped
            for parameter in scope.parameters:
                given = self.choice.given.get(name, {}).get(parameter, SOME) is not SOME
                known = parameter not in scope.definitions
                known = known and _definite(self.constant(scope, parameter))
                free = private and (name, parameter) not in self.unsure
                if given or (free and (known or parameter not in scope.live)):
                    gone.add((name, parameter))
        read = {x.attr.value for x in walk(self.tree) if isinstance(x, cst.Attribute)}
        for name, names in self.classes.items():
            ours = self.calls[name] and all(x.scope.jit for x in self.calls[name])
            for part in names if ours else ():
                known = self.owner(part) != "" and _definite(self.same(name, part))
                if (name, part) not in self.unsure and (known or part not in read):
                    gone.add((name, part))
        keys = {string(x.value) for x in walk(self.tree) if isinstance(x, cst.Index)}
        for element in walk(self.tree):  # an entry that is read by its key stays
            if isinstance(element, cst.DictElement) and string(element.key) in keys - {None}:
                self.users[id(element)].add(("", ""))
        while shared := {
            x for users in self.users.values() if not users <= gone for x in users & gone
        }:
            gone -= shared
        return gone


def _twice(function: Any, other: str, calls: set[int], old: Any, new: Any) -> Any:
    """A function, and below it itself by another name, which these calls call."""
    if id(old) in calls:
        return new.with_changes(func=cst.Name(other))
    if old is not function:
        return new
    bare = cst.MaybeSentinel.DEFAULT  # a comment of a parameter is of both
    listed = [x.with_changes(comma=bare) for x in new.params.params]
    one = new.with_deep_changes(new.params, params=listed)
    return [one, one.deep_clone().with_changes(name=cst.Name(other))]


def _named(node: Any) -> str:
    return node.value if isinstance(node, cst.Name) else ""


def _definite(found: Any) -> bool:
    """Whether a value can be written down: of a tuple parts may go."""
    return found is not UNKNOWN and found is not SOME and not isinstance(found, tuple)


class _Function:
    """The changes of one round to one statement of the file."""

    def __init__(
        self, around: _Round, scope: Scope, gone: set[tuple[str, str]], going: set[int]
    ) -> None:
        self.around, self.scope, self.gone, self.going = around, scope, gone, going
        given = around.choice.given
        self.asked = given.get(scope.name, {})
        self.given = {x: y for x, y in self.asked.items() if y is not SOME}
        self.going |= {id(x) for name, x in scope.parameters.items() if (scope.name, name) in gone}
        chosen = [given.get(root, {}) for root in around.choice.roots]
        self.rows = {name for of in chosen for name in of if of[name] is not SOME}

    def changed(self, node: Any) -> Any:
        return rebuilt(node, self._change)

    def _change(self, old: Any, new: Any) -> Any:
        if id(old) in self.going:
            return None
        match new:
            case cst.Name():
                return self._name(old, new)
            case cst.Param(name=cst.Name(value=name)) if self.asked.get(name) is SOME:
                return new.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT)
            case cst.Arg(value=cst.BinaryOperation(lpar=[_])) if not old.value.lpar:
                return new.with_changes(value=new.value.with_changes(lpar=(), rpar=()))
            case cst.Element(value=cst.Tuple(elements=[cst.Element(value=key), _, *_])):
                return None if string(key) in self.rows else new
            case cst.DictElement(key=key) if id(old) not in self.around.users:
                return None if string(key) in self.rows else new
            case cst.If():
                return self._if(old, new)
            case cst.FormattedStringExpression(
                expression=cst.Integer() | cst.SimpleString() as plain, conversion=None
            ) if not new.format_spec:
                return cst.FormattedStringText(str(plain.evaluated_value))
            case cst.IfExp():
                found = self.around.truth(old.test, self.scope)
                if found is UNKNOWN and self.around.pure(old.test):
                    found = True if new.body.deep_equals(new.orelse) else UNKNOWN
                return new if found is UNKNOWN else _atomic(new.body if found else new.orelse, new)
            case cst.BooleanOperation():
                return self._boolean(old, new)
            case cst.BinaryOperation(operator=cst.Multiply() | cst.Divide()) if (
                self.scope.jit and self._value(old.right) == 1.0
            ):
                return _atomic(new.left, new)
            case cst.Comparison() | cst.UnaryOperation() | cst.Call() | cst.Subscript():
                found = self._value(old)
                plain = (found is None or isinstance(found, bool)) and self.around.pure(old)
                return written(found) if plain else new
            case cst.Attribute(attr=cst.Name(value=name)):
                known = (self.around.owner(name), name) in self.gone
                found = self._value(old) if known else UNKNOWN
                return written(found) if _definite(found) else new
            case cst.Return(value=cst.Tuple() as returned) if self.around.unread[self.scope.name]:
                return new.with_changes(value=self._read(returned, self.scope.name))
            case cst.Assign(
                targets=[cst.AssignTarget(cst.Tuple() as target)],
                value=cst.Call(func=cst.Name(called)),
            ) if self.around.unread.get(called):
                return _paired(new, [(self._read(target, called), new.value)])
            case cst.Assign() | cst.AnnAssign() | cst.AugAssign() if self.scope.name:
                return self._assign(old, new)
            case cst.SimpleStatementLine(body=[]):
                return None
            case cst.Arg(star="**") if self.around.entries(old.value, self.scope) == ({}, False):
                return None
            case cst.For(iter=cst.Tuple(elements=[])) | cst.For(body=cst.IndentedBlock(body=[])):
                return None
            case cst.IndentedBlock():
                return new.with_changes(body=self._reached(new.body))
        return new

    def _read(self, whole: cst.Tuple, function: str) -> Any:
        """Those parts of a tuple that a caller of the function reads."""
        unread = self.around.unread[function]
        left = [x for i, x in enumerate(whole.elements) if i not in unread]
        return whole.with_changes(elements=left) if len(left) > 1 else left[0].value

    def _value(self, node: Any) -> Any:
        return self.around.value(node, self.scope)

    def _name(self, old: cst.Name, new: cst.Name) -> Any:
        name, scope = old.value, self.scope
        if id(old) in scope.stores or not scope.name:
            return new
        if name in self.given:
            return written(self.given[name])
        if name in scope.parameters:
            goes = (scope.name, name) in self.gone and name not in scope.definitions
            found = self.around.constant(scope, name) if goes else UNKNOWN
            return written(found) if _definite(found) else new
        match scope.definitions.get(name, ()):
            case [Definition(cst.Integer() as number, None)] if scope.reaching(old):
                return number
            case [Definition(cst.Name(value=other), None)] if other not in LITERALS:
                if len(scope.definitions.get(other, ())) + (other in scope.parameters) == 1:
                    return new.with_changes(value=other) if scope.reaching(old) else new
        found = self._value(old) if name in scope.definitions else UNKNOWN
        if found == 0 and len(scope.definitions[name]) == 1:
            return written(found)
        return written(found) if found is None or isinstance(found, bool) else new

    def _boolean(self, old: cst.BooleanOperation, new: cst.BooleanOperation) -> Any:
        left, right = (self.around.truth(x, self.scope) for x in (old.left, old.right))
        stops = isinstance(old.operator, cst.Or)
        if left is not UNKNOWN:
            return _atomic(new.left if left is stops else new.right, new)
        if isinstance(whole := self._value(old), bool):
            return written(whole)
        tests = (cst.Comparison, cst.UnaryOperation, cst.BooleanOperation)
        return (
            _atomic(new.left, new)
            if right is not stops
            and right is not UNKNOWN
            and (self.scope.jit or isinstance(old.left, tests))
            else new
        )

    def _if(self, old: cst.If, new: cst.If) -> Any:
        found = self.around.truth(old.test, self.scope)
        if found is UNKNOWN:
            empty = cst.SimpleStatementLine([cst.Pass()])
            keeps = new.body.body or not new.orelse
            new = new if keeps else new.with_deep_changes(new.body, body=[empty])
            return new if new.body.body else []
        chosen = new if found else new.orelse
        if isinstance(chosen, cst.If) and not found:
            return [chosen]
        body = list(chosen.body.body) if chosen else []
        if body:
            comment = chosen.body.header.comment
            above = [*old.leading_lines] if found else []
            above += [cst.EmptyLine(comment=comment)] if comment else []
            body[0] = body[0].with_changes(leading_lines=[*above, *body[0].leading_lines])
        return body

    def _reached(self, body: Sequence[Any]) -> list[Any]:
        """A block without what stands after a return, and values that another replaces unread."""
        out: list[Any] = []
        for at, statement in enumerate(body):
            out.append(statement)
            match [*body[at : at + 2], None][:2]:
                case (
                    cst.SimpleStatementLine(body=[cst.Assign(targets=[cst.AssignTarget(a)])]),
                    cst.SimpleStatementLine(body=[cst.Return(value=b)]),
                ) if b and a.deep_equals(b) and isinstance(a, cst.Name):
                    returned = cst.Return(statement.body[0].value)
                    out[-1] = statement.with_changes(body=[returned])
                    break
            match statement:
                case cst.SimpleStatementLine(
                    body=[cst.Assign(targets=[cst.AssignTarget(target)], value=value) as whole]
                ) if self.scope.name and self.around.pure(value):
                    every = pairs(target, value)
                    kept = [
                        x
                        for x in every
                        if self._is_carried(x[0]) or not _replaced(x[0], body[at + 1 :])
                    ]
                    if len(kept) < len(every):
                        left = _paired(whole, kept) if kept else None
                        out[-1:] = [statement.with_changes(body=[left])] if left else []
                case cst.SimpleStatementLine(body=[cst.Return() | cst.Raise()]):
                    break
        return out

    def _is_carried(self, target: Any) -> bool:
        """Whether a loop changes a name: its place among those that a kernel's loop carries."""
        every = self.scope.definitions.get(_named(target), ())
        return any(self.scope.loops & {*x.block} for x in every)

    def _assign(self, old: Any, new: Any) -> Any:
        targets = [x.target for x in new.targets] if isinstance(new, cst.Assign) else [new.target]
        if len(targets) > 1 or new.value is None:
            return new
        if isinstance(new, cst.AugAssign):
            nothing = not self.around.spread(old.value, self.scope)
            return None if nothing or self._is_dead(new.target, new.value) else new
        every = pairs(targets[0], new.value)
        kept = [(self._renamed(a), b) for a, b in every if not self._is_dead(a, b)]
        if not kept:
            return None
        if isinstance(new, cst.Assign):
            return _paired(new, kept)
        return new.with_changes(target=kept[0][0], value=kept[0][1])

    def _is_dead(self, target: Any, value: Any) -> bool:
        if isinstance(target, cst.Name) and target.value == getattr(value, "value", ""):
            return True
        names = loads(target)
        if not names or not all(isinstance(x, PLAIN) for x in walk(target)):
            return False
        return names <= {*self.given} or (not names & self.scope.live and self.around.pure(value))

    def _renamed(self, target: Any) -> Any:
        """The names that nobody reads, called `_`."""

        def change(old: Any, new: Any) -> Any:
            dead = isinstance(old, cst.Name) and old.value[0] != "_"
            dead = dead and (old.value not in self.scope.live or old.value in self.given)
            return new.with_changes(value="_") if dead else new

        return rebuilt(target, change) if isinstance(target, cst.Tuple) else target


def _paired(new: cst.Assign, kept: Sequence[tuple[Any, Any]]) -> cst.Assign:
    """An assignment of these values to these targets."""
    (outer,), (target, value) = new.targets, kept[0]
    if len(kept) > 1:
        target = outer.target.with_changes(elements=[cst.Element(x) for x, _ in kept])
        value = new.value.with_changes(elements=[cst.Element(x) for _, x in kept])
    return new.with_changes(targets=[outer.with_changes(target=target)], value=value)


def _replaced(target: Any, following: Sequence[Any]) -> bool:
    """Whether a name gets another value before anything reads this one."""
    for statement in following if isinstance(target, cst.Name) else ():
        match statement:
            case cst.SimpleStatementLine(
                body=[cst.Assign(targets=[cst.AssignTarget(cst.Name(name))], value=value)]
            ) if name == target.value:
                return name not in loads(value)
        if target.value in loads(statement) or not isinstance(statement, cst.SimpleStatementLine):
            return False
    return False


def _atomic(node: Any, outer: Any) -> Any:
    """The part that replaces a whole, with the whole's parentheses if it may need them."""
    simple = (cst.Name, cst.BaseNumber, cst.BaseString, cst.Call, cst.Attribute, cst.Subscript)
    if isinstance(node, simple) or node.lpar or not outer.lpar:
        return node
    return node.with_changes(lpar=outer.lpar, rpar=outer.rpar)


def _reachable(tree: cst.Module, roots: Sequence[str]) -> cst.Module:
    """The file without what none of its roots reaches."""
    items = [(statement, _defines(statement)) for statement in tree.body]
    needed = {*roots}.union(*(loads(x) for x, names in items if names is None))
    while more := {y for x, names in items if names and names & needed for y in loads(x)} - needed:
        needed |= more
    body: list[Any] = []
    for statement, names in items:
        match statement:
            case cst.SimpleStatementLine(
                body=[cst.Import(names=aliases) | cst.ImportFrom(names=aliases)]
            ):
                kept = tidy(aliases, [x if _called(x) in needed else None for x in aliases])
                if kept:
                    left = statement.body[0].with_changes(names=kept)
                    body.append(statement.with_changes(body=[left]))
            case _ if names is None or names & needed:
                body.append(statement)
    return tree.with_changes(body=body)


def _defines(statement: Any) -> Set[str] | None:
    """The names that a statement of the file defines, or None if it does more."""
    match statement:
        case cst.FunctionDef(name=name) | cst.ClassDef(name=name):
            return {name.value}
        case cst.SimpleStatementLine(body=[cst.Assign(targets=[cst.AssignTarget(target)])]):
            return loads(target) if all(isinstance(x, PLAIN) for x in walk(target)) else None
        case cst.SimpleStatementLine(body=[cst.Import(names=names) | cst.ImportFrom(names=names)]):
            return {_called(x) for x in names}
    return None


def _called(alias: cst.ImportAlias) -> str:
    return alias.evaluated_alias or alias.evaluated_name.split(".")[0]
