"""Numbers that pages name, words that figures vouch for, and figures where their text is."""

import ast
import json
import re
from pathlib import Path

import pytest
from markdown import Markdown

from snippets._lab.draw import draw_all
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.fragment import fragment
from snippets._lab.results.store import DataError
from snippets._site import includes
from snippets._site.named_numbers import NAMED, UnknownNumber, filled
from tests import made_up
from tests.floors import some
from tests.site.test_site import ROOT, pages, read, room_of
from tests.site.test_site import includes as included

DOCS = ROOT / "docs"
NUMBERS = {
    path.parent.name: json.loads(path.read_text("utf-8"))
    for path in sorted((DOCS / "figures").glob("*/numbers.json"))
}
THERE = {
    f"{room}.{figure}.{name}"
    for room, figures in NUMBERS.items()
    for figure, told in figures.items()
    for name in told["numbers"]
}


NO_BREAK = "\u00a0"


def test_a_name_becomes_its_number_and_nothing_else_changes():
    name = min(some(THERE))
    room, figure, number = name.split(".")
    text = NUMBERS[room][figure]["numbers"][number]
    assert filled(f"It takes {{{{ {name} }}}}.", DOCS) == f"It takes {text.replace(' ', NO_BREAK)}."
    for same in ("$\\frac{{a}}{{b}}$", "## Head {#head}", '`f"{{x}}"`', "`{{x.y.z}}`"):
        assert filled(same, DOCS) == same


@pytest.mark.parametrize("name", ["coalescing.strides.no", "coalescing.no.x", "no.x.y", "x", "x.y"])
def test_an_unknown_name_stops_the_build(name):
    with pytest.raises(UnknownNumber, match=f"no number is called {name}; there are: "):
        filled(f"It takes {{{{ {name} }}}}.", DOCS)


def test_every_number_is_named_on_a_page_and_every_name_is_a_number():
    named = {match["name"] for page in pages() for match in NAMED.finditer(read(page))}
    assert not named - THERE, "a page names what no data file holds"
    unnamed = {name for name in THERE - named if not name.endswith(".mutants.count")}
    assert not unnamed, "no page names these: figures.py makes them for nothing"


def plain(text):
    return " ".join(text.split())


def test_the_words_that_a_figure_vouches_for_stand_on_their_page():
    wrong = []
    for room, figures in NUMBERS.items():
        for figure, told in figures.items():
            for claim in told["claims"]:
                place, words = claim.split(": ", 1)
                place = re.sub(r"^title of (\w+/\w+)$", r"docs/figures/\1.md", place)
                path = ROOT / place
                if not path.is_file() or plain(words) not in plain(path.read_text("utf-8")):
                    wrong.append(
                        f"{room}/{figure} vouches for {words!r}, which {place} does not say"
                    )
    assert not wrong, "\n".join(wrong)


def test_a_claim_that_no_longer_holds_names_its_page_and_its_words(monkeypatch, tmp_path):
    figure = Figure("Fast.", "Times.", [{"a": 1}], claims={"docs/x.md: ahead": False, "b": True})
    of_room = draw_all.figure_functions("coalescing") | {"bound": lambda _: figure}
    monkeypatch.setattr(draw_all, "rooms", lambda: ["coalescing"])
    monkeypatch.setattr(draw_all, "pictures", lambda room: {})
    monkeypatch.setattr(
        draw_all, "figure_functions", lambda _: of_room | {"bound": lambda _: figure}
    )
    with pytest.raises(DataError, match=r"bound of coalescing no .*'docs/x\.md: ahead': rew"):
        draw_all.draw_all(out=tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["faster", "ahead in 9 of 12 cases", "12 cases", "–", "<b>1</b>"])
def test_a_number_is_no_sentence(text):
    figure = Figure("Fast.", "Times.", [{"a": 1}], numbers={"x": text})
    results = [made_up.result("coalescing", "strides", [{"a": 1}])]
    with pytest.raises(DataError, match="is no number; a page has the words around it"):
        fragment("coalescing", "strides", lambda _: figure, results)


# Two figures exchanged, and arithmetic that does not add up.


@pytest.mark.parametrize("page", [p for p in pages() if p.parts[1] in ("posts", "lab")], ids=str)
def test_figures_stand_in_the_order_of_their_page(page):
    """A page and the files that draw its figures have one order, so an exchange is a fault."""
    room = room_of(page)
    own = f"docs/figures/{room}/"
    shown = [Path(path).stem for path, _ in included(page) if path.startswith(own)]
    for name in ("figures.py", "drawings.py"):
        file = ROOT / "snippets" / room / name
        if not file.is_file() or (file.parent / "words.md").exists():
            continue
        body = ast.parse(file.read_text("utf-8")).body
        drawn = [node.name for node in body if isinstance(node, ast.FunctionDef)]
        on_page = list(dict.fromkeys(figure for figure in shown if figure in drawn))
        in_file = [figure for figure in drawn if figure in on_page]
        assert on_page == in_file, f"{page} shows the figures of {file} in another order"


OPERATORS = {r"\cdot": "*", r"\times": "*", r"\bmod": "%", "{,}": "", "{": "(", "}": ")", "^": "**"}


def sides(formula):
    """The values of a formula of plain numbers, one for each side of its equals signs."""
    for old, new in OPERATORS.items():
        formula = formula.replace(old, new)
    return [eval(side, {"__builtins__": {}}) for side in formula.split("=")]


def sums(text):
    """The formulas of plain numbers in a text: no letter in them, and an equals sign."""
    formulas = re.findall(r"\$([^$\n]*\d[^$\n]*)\$", text)
    known = re.compile(r"(?:[\d\s.+\-=(){},^]|\\(?:cdot|times|bmod)\b)+")
    return [formula for formula in formulas if "=" in formula and known.fullmatch(formula)]


def test_what_is_calculated_with_plain_numbers_is_right():
    found = [(page, formula) for page in pages() for formula in sums(read(page))]
    wrong = [f"{page}: {formula}" for page, formula in some(found) if len(set(sides(formula))) > 1]
    assert not wrong, wrong
    assert sums(r"because $37 = 2 \cdot 15 + 5$, or $x = 2$") == [r"37 = 2 \cdot 15 + 5"]
    assert sides(r"37 = 2 \cdot 15 + 5") == [37, 35]


# Whole functions by their names.


def shown(tmp_path, name, source):
    (tmp_path / "kernel.py").write_text(source, "utf-8")
    settings = {"base_path": [str(tmp_path)], "check_paths": True, "dedent_subsections": True}
    parser = Markdown(extensions=[includes.makeExtension(**settings)])
    return parser.preprocessors["snippet"].run([f'--8<-- "kernel.py:{name}"'])


SOURCE = """import x

# --8<-- [start:part]
PART = 1
# --8<-- [end:part]


@x.jit
def _one(a):
    # --8<-- [start:load]
    b = a
    # --8<-- [end:load]
    return b


class Two:
    def method(self):
        return 2
"""


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("_one", ["@x.jit", "def _one(a):", "    b = a", "    return b"]),
        ("Two", ["class Two:", "    def method(self):", "        return 2"]),
        ("method", ["def method(self):", "    return 2"]),
        ("part", ["PART = 1"]),
        ("load", ["b = a"]),
    ],
)
def test_an_include_names_a_section_or_a_whole_function(tmp_path, name, lines):
    assert shown(tmp_path, name, SOURCE) == lines


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("three", SOURCE, "'three' could not be located"),
        ("_one", SOURCE + "\n\ndef _one():\n    pass\n", "2 functions are called '_one'"),
        ("one", "no Python {", "'one' could not be located"),
    ],
)
def test_a_name_that_is_missing_or_doubled_stops_the_build(tmp_path, name, source, said):
    with pytest.raises(includes.SnippetMissingError, match=said):
        shown(tmp_path, name, source)
