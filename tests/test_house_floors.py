"""No test passes because it found nothing to look at.

`for x in found: assert …`, `assert all(…)` and `assert not [x for x in found if …]` are all true of
nothing. Their source must be evidently more: written out, a constant that is, asserted in the same
function, or handed through `some` (floors.py).
"""

import ast
import functools
from pathlib import Path

import pytest
from floors import perhaps, some

ROOT = Path(__file__).resolve().parents[1]
COMPREHENSIONS = ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp
# They pass on what they are given, and nothing of it is lost.
KEEPING = {"enumerate", "sorted", "reversed", "list", "tuple", "set", "dict", "iter", "frozenset"}
KEEPING |= {"len"}
# ast.walk yields its root, str.split a word or ""; `perhaps` says why there may be nothing.
NEVER_EMPTY = {"some", "perhaps", "walk", "split"}


class Constants:
    """The names that a module binds at its top, and those that it imports from the project."""

    def __init__(self, module):
        self.values, self.imported, self.floors = {}, {}, set()
        for node in module.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.values[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self.values[node.target.id] = node.value
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("snippets"):
                folder = ROOT.joinpath(*node.module.split("."))
                for alias in node.names:
                    whole, part = folder / f"{alias.name}.py", folder.with_suffix(".py")
                    place = (whole, "") if whole.exists() else (part, alias.name)
                    if place[0].exists():
                        self.imported[alias.asname or alias.name] = place
            elif isinstance(node, ast.FunctionDef) and self._has_floor(node):
                self.floors.add(node.name)

    def _has_floor(self, function):
        """Whether a function asserts of the name that it returns that it holds something."""
        returned = getattr(function.body[-1], "value", None)
        if not isinstance(returned, ast.Name):
            return False
        return returned.id in said_to_hold(list(ast.walk(function)), self)

    def hold(self, name):
        """Whether a name, perhaps of another module, is bound to something evident."""
        head, _, rest = name.partition(".")
        if name in self.values:
            return evident(self.values[name], self.hold, self.floors)
        if head in self.imported:
            path, inner = self.imported[head]
            if bool(inner) != bool(rest):
                return constants_of(path).hold(inner or rest)
        return False


@functools.cache
def constants_of(path):
    return Constants(ast.parse(path.read_text(encoding="utf-8")))


def evident(node, holds, floors=frozenset()):
    """Whether an expression evidently holds something; `holds` answers for a name."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        stars = [e.value for e in node.elts if isinstance(e, ast.Starred)]
        return len(stars) < len(node.elts) or any(evident(s, holds, floors) for s in stars)
    if isinstance(node, ast.Dict):
        return bool(node.keys)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value != ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.BitOr):
        return evident(node.left, holds, floors) or evident(node.right, holds, floors)
    if isinstance(node, COMPREHENSIONS):
        return all(evident(g.iter, holds, floors) and not g.ifs for g in node.generators)
    if isinstance(node, ast.Name | ast.Attribute):
        return holds(ast.unparse(node))
    return isinstance(node, ast.Call) and _evident_call(node, holds, floors)


def _called(node):
    """The last word of what a call calls."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def _builtin(node, name):
    """Whether an expression calls this function, and no method of the name."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _evident_call(node, holds, floors):
    name = _called(node)
    inner = [evident(a, holds, floors) for a in node.args if not isinstance(a, ast.Starred)]
    if name in NEVER_EMPTY or name in floors:
        return True
    if name in ("items", "values", "keys") and isinstance(node.func, ast.Attribute):
        return evident(node.func.value, holds, floors)
    if name == "range":
        return all(isinstance(a, ast.Constant) for a in node.args) or inner[-1:] == [True]
    if name == "zip":  # strict, so that the shortest does not end it
        return any(inner) and any(k.arg == "strict" for k in node.keywords)
    if name == "product":
        return all(inner) and len(inner) == len(node.args)
    if name in KEEPING or name in ("pairwise", "combinations", "chain"):
        return any(inner)
    return False


def _bound(node):
    """The one name that a statement binds, or ""."""
    one = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    return node.targets[0].id if one else ""


def said_to_hold(nodes, constants):
    """The names of which a function's assertions say that they hold something."""
    found = set()

    def holds(name):
        return name in found or constants.hold(name)

    for node in nodes:
        if name := _bound(node):
            found |= {name} if evident(node.value, holds, constants.floors) else set()
        if not isinstance(node, ast.Assert):
            continue
        both = isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And)
        for test in node.test.values if both else [node.test]:
            if isinstance(test, ast.Name | ast.Attribute):
                found.add(ast.unparse(test))
            elif isinstance(test, ast.Compare):
                sides = [test.left, *test.comparators]
                if not any(_nothing(side) for side in sides):
                    found |= {name for side in sides for name in _compared(side)}
    return found


def _nothing(node):
    """Whether an expression is an empty literal, zero or `set()`."""
    if isinstance(node, ast.Tuple | ast.List):
        return not node.elts
    if isinstance(node, ast.Call):
        return _called(node) == "set" and not node.args
    return (isinstance(node, ast.Dict) and not node.keys) or (
        isinstance(node, ast.Constant) and node.value in ("", 0)
    )


def _compared(side):
    """The names of a comparison's side, whole, or of which it takes the length or the members."""
    if isinstance(side, ast.Name | ast.Attribute):
        yield ast.unparse(side)
    elif isinstance(side, ast.Call) and _called(side) in KEEPING:
        yield from (name for argument in side.args for name in _compared(argument))
    elif isinstance(side, COMPREHENSIONS):
        yield from _compared(side.generators[0].iter)


def _none_of(test):
    """The expression of which an assertion says that it is nothing, or None."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = test.operand
        of_any = _builtin(inner, "any")
        return inner.args[0] if of_any else inner
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        one, other = test.left, test.comparators[0]
        return one if _nothing(other) else other if _nothing(one) else None
    return None


def _gone_through(nodes):
    """(line, what is gone through) of each loop, `all` and "none of them" of a function."""
    bound = {name: node.value for node in nodes if (name := _bound(node))}
    for node in nodes:
        body = node.body if isinstance(node, ast.For) else []
        if any(isinstance(inner, ast.Assert) for part in body for inner in ast.walk(part)):
            yield node.lineno, node.iter
        if not isinstance(node, ast.Assert):
            continue
        for call in ast.walk(node.test):
            if _builtin(call, "all"):
                yield from ((node.lineno, each) for each in _sources(call.args[0]))
        none = _none_of(node.test)
        if isinstance(none, ast.Name):
            none = bound.get(none.id)
        if isinstance(none, COMPREHENSIONS):
            yield node.lineno, none.generators[0].iter  # of the others one may be empty


def _sources(argument):
    """What the argument of `all` is made from."""
    if isinstance(argument, COMPREHENSIONS) and not any(g.ifs for g in argument.generators):
        return [g.iter for g in argument.generators]
    return argument.args[1:] if isinstance(argument, ast.Call) and argument.args[1:] else [argument]


def vacuous(source):
    """ "line: what" of each assertion of a test file that may be made of nothing."""
    module = ast.parse(source)
    constants = Constants(module)
    found = {}
    for function in ast.walk(module):
        nodes = list(ast.walk(function)) if isinstance(function, ast.FunctionDef) else []
        if any(isinstance(node, ast.Assert) for node in nodes):
            names = said_to_hold(nodes, constants)

            def holds(name, names=names):
                return name in names or constants.hold(name)

            for line, node in _gone_through(nodes):
                if not evident(node, holds, constants.floors):
                    found[line, ast.unparse(node)] = node
    return found


def test_no_test_passes_on_nothing():
    read = 0
    wrong = []
    for path in some(sorted((ROOT / "tests").glob("*.py")), 50):
        source = path.read_text(encoding="utf-8")
        read += source.count("    assert ")
        wrong += [f"{path.name}:{line}: {what}" for line, what in vacuous(source)]
    assert read > 1500
    assert not wrong, "wrap what may be empty in floors.some:\n" + "\n".join(wrong)


HEAD = "from snippets._lab.draw.identity import ROAD\nFEW = (1, 2)\nNONE = ()\n"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("for x in found:\n        assert x", "found"),
        ("for x in (1, 2):\n        assert x", None),
        ("for x in FEW:\n        assert x", None),
        ("for x in NONE:\n        assert x", "NONE"),
        ("for x in ROAD:\n        assert x", None),
        ("for x in some(found):\n        assert x", None),
        ("for x in found:\n        print(x)", None),
        ("assert found\n    for x in found:\n        assert x", None),
        ("assert len(found) > 3\n    for x in found:\n        assert x", None),
        ("assert len(found) == 0\n    for x in found:\n        assert x", "found"),
        ("assert [x.name for x in found] == ['a']\n    assert all(found)", None),
        ("assert not found\n    for x in found:\n        assert x", "found"),
        ("for x in sorted(found):\n        assert x", "sorted(found)"),
        ("for x in [y for y in FEW if y > 3]:\n        assert x", "[y for y in FEW if y > 3]"),
        ("for x, y in zip(FEW, found, strict=True):\n        assert x", None),
        ("for x, y in zip(FEW, found):\n        assert x", "zip(FEW, found)"),
        ("assert all(x for x in found)", "found"),
        ("assert all(x for x in FEW)", None),
        ("assert all(x for x in FEW if x > 3)", "(x for x in FEW if x > 3)"),
        ("assert all(map(str, found))", "found"),
        ("assert not [x for x in found if x]", "found"),
        ("assert not any(x for x in found)", "found"),
        ("assert [x for x in found if x] == []", "found"),
        ("wrong = [x for x in found if x]\n    assert not wrong", "found"),
        ("wrong = {x: 1 for x in FEW if x}\n    assert wrong == {}", None),
        ("for path in folder.glob('*'):\n        assert path", "folder.glob('*')"),
    ],
)
def test_what_may_be_empty_is_found(body, found):
    """`found` is a parameter, of which nothing is known."""
    lines = {what for _, what in vacuous(f"{HEAD}def test_x(found, folder):\n    {body}\n")}
    assert lines == ({found} if found else set())


def test_a_floor_lets_nothing_pass():
    assert some([1, 2], 2) == [1, 2]
    assert some(x for x in "ab") == ["a", "b"]
    assert some({"a": 1}.items())
    for nothing in ([], {}, "", iter(()), (x for x in ()), {}.values()):
        with pytest.raises(AssertionError, match="0 things to go through"):
            some(nothing)
    with pytest.raises(AssertionError, match="2 things to go through, at least 3"):
        some([1, 2], 3)


def test_what_may_be_nothing_is_rare_and_says_why():
    calls = [
        node
        for path in some(sorted((ROOT / "tests").glob("test_*.py")), 50)
        for text in [path.read_text(encoding="utf-8")]
        if "perhaps(" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and _called(node) == "perhaps"
    ]
    assert 1 <= len(calls) <= 25
    with pytest.raises(AssertionError, match="a reason"):
        perhaps([], "because")
