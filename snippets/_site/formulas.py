"""Formulas become MathML at build, so that a page needs no script to show them.

The converter writes what LaTeX names, not how LaTeX spaces it: `_spaced` puts that right, in the
form that Chromium, Firefox and WebKit show alike.
"""

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
MATHML = "http://www.w3.org/1998/Math/MathML"
ElementTree.register_namespace("", MATHML)
# Operators whose bounds stand below and above them where there is room.
BOUNDED = {"∑", "∏", "⋃", "⋂", "max", "min", "lim", "sup", "inf", "argmax", "argmin"}
UNDER = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}
LETTERS = {"∞", "⊤", "∅", "∂", "∇"}  # written as operators, which would get space on both sides
PRIMES = re.compile("[′″‴]+")
THIN = "0.167em"  # of LaTeX, around a function's name
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
# The names that LaTeX sets upright and apart from what follows.
FUNCTIONS = {
    *("arg", "argmax", "argmin", "cos", "det", "dim", "exp", "inf", "ker", "lim", "ln", "log"),
    *("max", "min", "sin", "sup", "tan", "tanh", "softmax", "rowmax", "rowsum"),
}
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
        mathml = _spaced(mathml)
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


def _spaced(mathml: str) -> str:
    """The same formula with names in one piece, and with the spaces and bounds of LaTeX."""
    root = ElementTree.fromstring(mathml)
    _in_one_piece(root)
    for parent in list(root.iter()):
        for index, node in enumerate(parent):
            parent[index] = _bounded(_primed(node))
    for node in root.iter():
        if _is(node, "mo") and node.text in LETTERS:
            node.tag = f"{{{MATHML}}}mi"
            node.attrib.clear()
    _set_names_apart(root)
    _close_up(root, within=False)
    return ElementTree.tostring(root, encoding="unicode")


def _is(node: ElementTree.Element, *tags: str) -> bool:
    return node.tag.rpartition("}")[2] in tags


def _made(tag: str, text: str = "", *children: ElementTree.Element) -> ElementTree.Element:
    node = ElementTree.Element(f"{{{MATHML}}}{tag}")
    node.text = text or None
    node.extend(children)
    return node


def _in_one_piece(parent: ElementTree.Element) -> None:
    """An upright word is one name, not a name for each of its letters."""
    pieces: list[ElementTree.Element] = []
    for node in parent:
        _in_one_piece(node)
        upright = _is(node, "mi") and node.get("mathvariant") == "normal"
        before = pieces[-1] if pieces else None
        if upright and before is not None and before.get("mathvariant") == "normal":
            before.text = (before.text or "") + (node.text or "")
        else:
            pieces.append(node)
    for node in pieces:
        if _is(node, "mi") and len(node.text or "") > 1:
            node.attrib.pop("mathvariant", None)  # a longer name is upright by itself
    if len(pieces) < len(parent):
        parent[:] = pieces
    if _is(parent, "mrow") and len(pieces) == 1:
        parent.text = None


def _primed(node: ElementTree.Element) -> ElementTree.Element:
    """A prime is raised by its own form; as a superscript it would be a speck."""
    if _is(node, "msup", "msubsup") and PRIMES.fullmatch(node[-1].text or ""):
        prime = _made("mo", node[-1].text or "")
        prime.attrib.update(lspace="0", rspace="0")
        primed = _made("mrow", "", node[0], prime)
        return primed if _is(node, "msup") else _made("msub", "", primed, node[1])
    return node


def _bounded(node: ElementTree.Element) -> ElementTree.Element:
    """The bounds of a sum or a maximum stand below and above it where there is room."""
    tag = node.tag.rpartition("}")[2]
    if tag in UNDER and (node[0].text or "") in BOUNDED:
        node.tag = f"{{{MATHML}}}{UNDER[tag]}"
        node[0].tag = f"{{{MATHML}}}mo"
        node[0].set("movablelimits", "true")
    return node


def _name_of(node: ElementTree.Element) -> bool:
    """Whether this is the name of a function, alone or with its bounds."""
    if _is(node, "msub", "msup", "msubsup", "munder", "mover", "munderover"):
        return _name_of(node[0])
    text = node.text or ""
    return _is(node, "mi", "mo") and len(text) > 1 and text.isalpha() and text in FUNCTIONS


def _set_names_apart(parent: ElementTree.Element) -> None:
    """A thin space between the name of a function and what it is of, unless a parenthesis opens."""
    for node in list(parent):
        _set_names_apart(node)
    if not _is(parent, "mrow", "math", "msqrt", "mtd", "mstyle"):
        return
    spaced: list[ElementTree.Element] = []
    for node in parent:
        before = spaced[-1] if spaced else None
        opens = _is(node, "mo") or (len(node) > 0 and _is(node, "mrow") and _is(node[0], "mo"))
        after_name = before is not None and _name_of(before) and not opens
        before_name = before is not None and _name_of(node) and not _is(before, "mo", "mspace")
        if after_name or before_name:
            space = _made("mspace")
            space.set("width", THIN)
            spaced.append(space)
        name = node
        while len(name) and _name_of(name):
            name = name[0]
        if _name_of(node) and _is(name, "mo"):
            name.attrib.update(lspace="0", rspace="0")
        spaced.append(node)
    parent[:] = spaced


def _close_up(node: ElementTree.Element, within: bool) -> None:
    """Where letters are small there is no space around an operator."""
    if within and _is(node, "mo") and not _name_of(node):
        node.attrib.update(lspace="0", rspace="0")
    scripts = _is(node, "msub", "msup", "msubsup", "munder", "mover", "munderover")
    for index, child in enumerate(node):
        _close_up(child, within or (scripts and index > 0))


def unknown(latex: str) -> list[str]:
    """The commands in a formula that the converter does not know, and environments it does not."""
    found = []
    for token in tokenize(latex):
        if environment := re.fullmatch(r"\\(?:begin|end)\{(.*)\}", token):
            found += [token] if f"\\{environment[1]}" not in COMMANDS else []
        else:
            found += [name for name in COMMAND.findall(token) if name not in COMMANDS]
    return found
