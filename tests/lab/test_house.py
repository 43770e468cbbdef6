"""Who may import whom, and whether what the texts name is there."""

import ast
import importlib
import re
from collections import defaultdict

from snippets._lab.rooms import ROOT
from tests.floors import some

# What a part of the lab may see, beside itself: only what stands above it.
LAB = tuple(
    f"_lab.{name}"
    for name in ("rooms", "child", "results", "probe", "judge", "diagnose", "measure")
)
SEES = {name: set(LAB[:at]) for at, name in enumerate(LAB)} | {
    "_lab.draw": {"_lab.rooms", "_lab.results"},
    "_lab.skeleton": {"_lab.rooms"},
    "_lab.cli": {*LAB, "_lab.draw", "_lab.skeleton"},
    "_lab.__main__": {"_lab.cli"},
    "_site": {"_lab.rooms", "_lab.child", "_lab.results", "_lab.draw", "_lab.judge.mutants"},
    "_warps": {"_lab.judge"},
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
        allowed = set().union({"_warps"}, *SEES.values()) - {"_lab.cli"}
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
    parts = {part(m) for _, m in modules() if m.startswith("snippets._")}
    parts -= {"__init__", "_lab.__init__"}
    assert parts == set(SEES)


def test_what_the_texts_name_is_there():
    """Paths and functions of CONTRIBUTING.md, and each target that a text tells to make."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for path in some(re.findall(r"`((?:snippets|tests|docs)/[\w./]+)`", text)):
        assert (ROOT / path).exists(), path
    for place in some(re.findall(r"`(snippets\.[\w.]+\.\w+)`", text)):
        module, _, name = place.rpartition(".")
        assert hasattr(importlib.import_module(module), name), place
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    texts = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", ".ci/run")]
    texts += [*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob("docs/**/*.md")]
    for path in texts:
        named = re.findall(r"(?:`|\$ |\brun: |\"|^)make ((?:[a-z-]+ ?)+)", path.read_text("utf-8"))
        for target in {word for words in named for word in words.split()} - {"-n"}:
            assert target in targets, f"{path.relative_to(ROOT)}: make {target}"
