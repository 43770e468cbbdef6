"""The plan of the house, as assertions: who may import whom, and what must not be there twice."""

import ast
import importlib
import operator
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What a part of the lab may see, beside itself: only what stands above it.
LAB = ("_lab.rooms", "_lab.child", "_lab.results", "_lab.probe", "_lab.judge", "_lab.measure")
SEES = {name: set(LAB[:at]) for at, name in enumerate(LAB)} | {
    "_lab.draw": {"_lab.rooms", "_lab.results"},
    "_lab.skeleton": {"_lab.rooms"},
    "_lab.cli": {*LAB, "_lab.draw", "_lab.skeleton"},
    "_lab.__main__": {"_lab.cli"},
    "_site": {"_lab.rooms", "_lab.child", "_lab.results", "_lab.draw"},
}
# A room's figures are drawn without torch; the facts about GPUs need none either.
FIGURES = {"_lab.rooms", "_lab.results", "_lab.draw", "_lab.probe.gpus"}


def part(module):
    """The part of the house that a module is in: "_lab.judge", "_site", "basic_attention"."""
    names = module.split(".")[1:]
    return ".".join(names[:2] if names[:1] == ["_lab"] else names[:1])


def imported(source, module):
    """(line, module) of everything of the house that a module imports, inside functions too."""
    package = module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join(base + ([node.module] if node.module else []))
            # A name may be a module: `from snippets._lab import rooms`.
            found = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in found if name.startswith("snippets."))


def faults(source, module):
    """What a module imports that its part of the house may not see."""
    here = part(module)
    if here in SEES:
        allowed = SEES[here]
    elif module.endswith(".figures"):
        allowed = FIGURES
    else:
        allowed = set().union(*SEES.values()) - {"_lab.cli", "_site"}
    for line, name in imported(source, module):
        there = part(name)
        named = any(f"{name}.".startswith(f"snippets.{a}.") for a in allowed)
        if there == here or named:
            continue
        if there.startswith("_") and there != "_lab":
            yield f"{module}, line {line}: {here} does not see {there} ({name})"
        if here.startswith("_") and not there.startswith("_"):
            yield f"{module}, line {line}: {here} names the room {there}"


def modules():
    for path in sorted(ROOT.glob("snippets/**/*.py")):
        if path.name == "__init__.py":
            names = (*path.parent.relative_to(ROOT).parts, "__init__")
        else:
            names = path.relative_to(ROOT).with_suffix("").parts
        yield path, ".".join(names)


def test_imports_flow_one_way():
    found, read = [], defaultdict(int)
    for path, module in modules():
        source = path.read_text(encoding="utf-8")
        read[part(module)] += 1
        found += faults(source, module)
    assert not found, "\n".join(found)
    missing = [name for name in SEES if not read[name]]
    assert not missing, f"the plan names parts that hold no file: {missing}"


def test_every_file_of_the_lab_is_in_the_plan():
    parts = {part(m) for _, m in modules() if m.startswith(("snippets._lab.", "snippets._site."))}
    parts -= {"_lab.__init__"}
    assert parts == set(SEES)


@pytest.mark.parametrize(
    ("module", "line", "fault"),
    [
        ("_lab.rooms", "from snippets._lab.child import run", "does not see _lab.child"),
        ("_lab.results.store", "import snippets._lab.probe.compiled", "does not see _lab.probe"),
        (
            "_lab.results.store",
            "def f():\n    from snippets._lab.judge import oracle",
            "_lab.judge",
        ),
        ("_lab.probe.compiled", "from ..judge import oracle", "does not see _lab.judge"),
        ("_lab.judge.oracle", "from snippets._lab.measure.timing import Flush", "_lab.measure"),
        ("_lab.draw.charts", "from snippets._lab.judge.oracle import make_qkv", "_lab.judge"),
        ("_lab.measure.session", "from snippets._lab import cli", "does not see _lab.cli"),
        ("_lab.cli", "from snippets._site import markup", "does not see _site"),
        ("_lab.judge.grid", "from snippets import flash_attention", "names the room"),
        ("_site.hook", "from snippets._lab.measure import machine", "does not see _lab.measure"),
        ("_site.hook", "from snippets.basic_attention import kernel", "names the room"),
        ("basic_attention.bench", "from snippets._site import hook", "does not see _site"),
        ("basic_attention.figures", "from snippets._lab.judge import oracle", "_lab.judge"),
    ],
)
def test_an_import_against_the_flow_is_found(module, line, fault):
    found = list(faults(line, f"snippets.{module}"))
    assert len(found) == 1
    assert fault in found[0]


def bodies(source):
    """(name, line, body without docstring as text) of each function of eight statements or more."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        inner = [n for statement in body for n in ast.walk(statement)]
        if sum(isinstance(n, ast.stmt) for n in inner) >= 8:
            yield node.name, node.lineno, "\n".join(map(ast.unparse, body))


def by_body(sources):
    """Functions by their body's text, as lists of "file:line name"."""
    places = defaultdict(list)
    for name, source in sources:
        for function, line, body in bodies(source):
            places[body].append(f"{name}:{line} {function}")
    return places


def repeated(places):
    """Functions with the same body, of the places by body."""
    return [where for where in places.values() if len(where) > 1]


def stands_alone(path):
    """A file that readers copy holds all that it needs, whoever else needs it too."""
    return path.name in ("kernel.py", "module.py") and path.parent.parent.name == "snippets"


def test_no_function_stands_in_two_places():
    files = [*ROOT.glob("snippets/**/*.py"), *ROOT.glob("tests/*.py")]
    sources = [
        (str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
        for path in sorted(files)
        if not stands_alone(path)
    ]
    places = by_body(sources)
    assert sum(map(len, places.values())) > 300
    found = repeated(places)
    assert not found, "\n".join(map(" and ".join, found))


def test_a_function_in_two_places_is_found():
    body = "\n".join(f"    x{i} = {i}" for i in range(8))
    sources = [("a.py", f"def f():\n{body}\n"), ("b.py", f'def g():\n    """Doc."""\n{body}\n')]
    assert repeated(by_body(sources)) == [["a.py:1 f", "b.py:1 g"]]
    shorter = [(name, source.replace("    x7 = 7\n", "")) for name, source in sources]
    assert not repeated(by_body(shorter))


def test_typography_is_left_to_the_formatter():
    """Where a hand-set table reads better, `fmt: skip` says so; it is not a way to save lines."""
    skip = re.compile(r"#\s*fmt:\s*(?:skip|off)\b")
    counts = {
        str(path.relative_to(ROOT)): len(skip.findall(path.read_text(encoding="utf-8")))
        for path in [*ROOT.glob("snippets/**/*.py"), *ROOT.glob("tests/*.py")]
        if path != Path(__file__)
    }
    assert len(counts) > 80
    assert sum(counts.values()) <= 40, {name: n for name, n in counts.items() if n}


def test_every_place_of_the_walk_exists():
    """CONTRIBUTING.md follows one number from the clock to the page; each stop can be imported."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walk = text.partition("### One number, from the clock to the page")[2].partition("\n## ")[0]
    places = re.findall(r"`(snippets\.[\w.]+)`", walk)
    assert len(places) >= 12
    for place in places:
        module, name = place, ""
        while not (ROOT / module.replace(".", "/")).with_suffix(".py").exists():
            module, _, last = module.rpartition(".")
            name = f"{last}.{name}".rstrip(".")
        assert operator.attrgetter(name)(importlib.import_module(module)), place


def test_every_path_of_the_map_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:snippets|tests|docs)/[\w./]+)`", text)
    assert len(paths) >= 15
    made_up = [p for p in paths if "new_attention" not in p and not (ROOT / p).exists()]
    assert not made_up
