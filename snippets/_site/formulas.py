"""Formulas become MathML at build, so that a page needs no script to show them."""

import html
import logging
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from latex2mathml import commands
from latex2mathml.converter import convert
from latex2mathml.symbols_parser import SYMBOLS
from latex2mathml.tokenizer import tokenize

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


def _named(value: object) -> Iterator[str]:
    """The commands that a table of the converter holds."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple | list | set | frozenset | dict):
        for item in value:
            yield from _named(item)


TABLES = [table for name, table in vars(commands).items() if not name.startswith("_")]
# What the converter knows: it shows nothing of another command that begins with \math.
COMMANDS = {*_named(TABLES), *SYMBOLS} - {commands.MATH}
COMMAND = re.compile(r"\\[A-Za-z]+\*?")

# Below "mkdocs", so that a warning fails a strict build.
log = logging.getLogger("mkdocs.hooks.formulas")


def converted(content: str, page: str) -> str:
    """A page's HTML with its formulas as MathML; one that cannot be is a warning that names it."""
    if HEADING_WITH_FORMULA.search(content):
        # A heading is also a link's name, a search title and a line of the table of contents.
        log.warning("%s: a heading holds a formula; say it in words", page)
    made = FORMULA.sub(lambda match: _mathml(match["latex"], match["tag"] == "div", page), content)
    if left := made.count('class="arithmatex"'):
        log.warning("%s: %d formulas are not in the form that is converted", page, left)
    return made


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
    for name in unknown(latex):
        raise ValueError(f"unknown command {name}")
    braces = re.sub(r"\\[{}]", "", latex)
    if braces.count("{") != braces.count("}"):
        raise ValueError("unbalanced braces")
    for node in ElementTree.fromstring(mathml).iter():
        tag = node.tag.rpartition("}")[2]
        if len(node) != CHILDREN.get(tag, len(node)):
            raise ValueError(f"{tag} lacks an argument")


def unknown(latex: str) -> list[str]:
    """The commands in a formula that the converter does not know, and environments it does not."""
    found = []
    for token in tokenize(latex):
        if environment := re.fullmatch(r"\\(?:begin|end)\{(.*)\}", token):
            found += [token] if f"\\{environment[1]}" not in COMMANDS else []
        else:
            found += [name for name in COMMAND.findall(token) if name not in COMMANDS]
    return found
