"""Formulas become MathML at build, so that a page needs no script to show them."""

import html
import logging
import re
from xml.etree import ElementTree

from latex2mathml.converter import convert

# pymdownx.arithmatex (generic) marks formulas: \(…\) in a span, \[…\] in a div.
FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
# Elements of MathML with a fixed number of arguments.
CHILDREN = {
    **dict.fromkeys(("mfrac", "mroot", "msub", "msup", "munder", "mover"), 2),
    **dict.fromkeys(("msubsup", "munderover"), 3),
}
HEADING_WITH_FORMULA = re.compile(r"<h([1-6])\b(?:(?!</h\1>).)*arithmatex", re.DOTALL)

# Below "mkdocs", so that a warning fails a strict build.
log = logging.getLogger("mkdocs.hooks.formulas")


def converted(content: str, page: str) -> str:
    """A page's HTML with its formulas as MathML; one that cannot be is a warning that names it."""
    if HEADING_WITH_FORMULA.search(content):
        # A heading is also a link's name, a search title and a line of the table of contents.
        log.warning("%s: a heading holds a formula; say it in words", page)
    return FORMULA.sub(lambda match: _mathml(match["latex"], match["tag"] == "div", page), content)


def _mathml(escaped: str, block: bool, page: str) -> str:
    latex = html.unescape(escaped).strip()
    try:
        mathml = convert(latex, display="block" if block else "inline")
        _check(latex, mathml)
    except Exception as error:  # noqa: BLE001 (latex2mathml's errors have no base class)
        log.warning("%s: formula %s: %s", page, latex, str(error) or type(error).__name__)
        return f"<code>{escaped}</code>"
    return f'<div class="am-math">{mathml}</div>' if block else mathml


def _check(latex: str, mathml: str) -> None:
    """Raise ValueError for what latex2mathml lets pass: it would show as nonsense."""
    braces = re.sub(r"\\[{}]", "", latex)
    if braces.count("{") != braces.count("}"):
        raise ValueError("unbalanced braces")
    for node in ElementTree.fromstring(mathml).iter():
        tag = node.tag.rpartition("}")[2]
        if (node.text or "").lstrip().startswith("\\"):
            raise ValueError(f"unknown command {node.text}")
        if len(node) != CHILDREN.get(tag, len(node)):
            raise ValueError(f"{tag} lacks an argument")
