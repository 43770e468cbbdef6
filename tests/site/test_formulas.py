"""Formulas become MathML, and what the converter would show as nonsense stops a strict build."""

import logging
import re

import pytest

from snippets._lab.rooms import ROOT
from snippets._site import formulas

FORMULA = re.compile(r"\$\$([^$]+)\$\$|\$([^$\n]+)\$")


def marked(latex, tag="span"):
    opening, closing = r"\(", r"\)"
    return f'<p><{tag} class="arithmatex">{opening}{latex}{closing}</{tag}></p>'


def complaints(content, caplog):
    with caplog.at_level(logging.WARNING, "mkdocs.hooks.formulas"):
        made = formulas.converted(content, "x.md")
    return made, [record.getMessage() for record in caplog.records]


def written():
    """Every formula of the posts."""
    texts = [path.read_text("utf-8") for path in sorted((ROOT / "docs/posts").glob("*.md"))]
    return [a or b for text in texts for a, b in FORMULA.findall(text)]


def test_a_formula_becomes_mathml(caplog):
    made, said = complaints(marked(r"\frac{QK^\top}{\sqrt{D}} &lt; 1"), caplog)
    assert said == []
    assert "arithmatex" not in made
    assert "<msqrt>" in made
    assert "<mfrac>" in made


def test_the_formulas_of_the_posts_are_known():
    found = written()
    assert len(found) > 100
    assert {latex: names for latex in found if (names := formulas.unknown(latex))} == {}


@pytest.mark.parametrize(
    ("latex", "said"),
    [
        (r"\mathrn{softmax}(x)", r"unknown command \mathrn"),
        (r"a \mathrn b", r"unknown command \mathrn"),
        (r"\math{x}", r"unknown command \math"),
        (r"\sofmax(x)", r"unknown command \sofmax"),
        (r"\text{the \sofmax of x}", r"unknown command \sofmax"),
        (r"\begin{matrx} a \end{matrx}", r"matrx"),
        (r"\frac{a}", ""),
        (r"\sqrt{a", ""),
    ],
)
def test_what_the_converter_does_not_know_is_named(latex, said, caplog):
    made, (complaint,) = complaints(marked(latex), caplog)
    assert complaint.startswith("x.md: formula ")
    assert said in complaint
    assert "<math" not in made


def test_a_formula_in_a_heading_and_one_that_is_left_over_are_named(caplog):
    _, said = complaints(f"<h2>{marked('x')}</h2>", caplog)
    assert said == ["x.md: a heading holds a formula; say it in words"]
    caplog.clear()
    _, said = complaints(marked("x", tag="b"), caplog)
    assert said == ["x.md: 1 formulas are not in the form that is converted"]
