"""The style of every page: the rules of the theme that can match, and ours, as short text.

Nine tenths of the theme's style belong to parts that no page of this site has. A rule of the theme
stays if each class, id, tag and attribute that it names occurs in a page's tags or, whole, in a
script. Our own style sheets are kept as they are: who writes a rule there wants it.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import tinycss2
from tinycss2.ast import Node

TAG = re.compile(r"<[a-zA-Z][^<>]*>")
WORD = re.compile(r"-{0,2}[A-Za-z_][\w-]*")
GROUPS = ("media", "supports", "layer", "container")


# A word of a script that is a name: one with a dash. Words without one are a script's own, but for
# an element that the theme's search makes and the class of a document that has scripts.
SCRIPT_NAME = re.compile(r"-{0,2}[A-Za-z_]\w*-[\w-]*")
MADE = {"mark", "js"}
# Of these parts of the theme nothing is made by its script: only a page can bring them.
ONLY_ON_PAGES = re.compile(
    r"tabbed-|md-(?:version|source__|annotation|tabs|banner)|data-md-color-switching"
)
TABS = re.compile(r'data-tabs="\d+:(\d+)"')
NTH_TAB = re.compile(r"\.tabbed-.*:(?:nth-child\((\d+)\)|first-child)$")
# Selectors said in another way. The theme's script writes the address of every link anew, and a
# table without a class it takes out of the page to put it back in a box: tables.py gives it both
# before. A rule that reads an attribute makes a browser style each element on which that is set.
SELECTORS = {"table:not([class])": "table.am-table", "[href]": ":any-link"}


class StyleError(Exception):
    """A style sheet holds something that would be lost."""


class Names:
    """The names that occur in the tags of pages and in scripts."""

    def __init__(self, words: Iterable[str], tabs: int = 0) -> None:
        self.words = frozenset(words)
        self.tabs = tabs  # of the page's largest set of tabs

    @classmethod
    def of(cls, pages: Iterable[str], code: str) -> "Names":
        words = {name for name in SCRIPT_NAME.findall(code) if not ONLY_ON_PAGES.match(name)}
        tabs = 0
        for page in pages:
            tabs = max([tabs, *map(int, TABS.findall(page))])
            for tag in TAG.findall(page):
                words.update(WORD.findall(tag))
        return cls(words | MADE, tabs)

    def __contains__(self, name: str) -> bool:
        return name in self.words

    def within(self, part: str) -> bool:
        """Whether a name has this part."""
        return any(part in name for name in self.words)


def short(css: str) -> str:
    """A style sheet of ours, whole and short."""
    return "".join(map(_text, _rules(css, None)))


def packed(theme: str, own: str, names: Names, beside: str = "") -> str:
    """One short text of the theme's rules that can match and of all of ours.

    Variables of the theme that nobody reads are left out, and movements that nobody asks for;
    what some pages have `beside` this style may read them too.
    """
    ours = _rules(own, None)
    kept = _rules(theme, names)
    while True:  # a variable may be read by another that is dropped
        text = "".join(map(_text, [*kept, *ours])) + beside
        read = {*re.findall(r"--[\w-]+(?=\s*[,)])", text), *names.words}
        fewer = _without(kept, read.__contains__)
        if fewer == kept:
            break
        kept = fewer
    animated = set(re.findall(r"animation(?:-name)?:([^;}]+)", text))
    used = {word for value in animated for word in WORD.findall(value)}
    kept = [
        rule
        for rule in kept
        if not (frames := re.match(r"@(?:-webkit-)?keyframes (\S+)", rule[0])) or frames[1] in used
    ]
    return "".join(map(_text, [*kept, *ours]))


# A rule is its prelude and what stands in its braces: rules, declarations (name, value), or text.
Rule = tuple[str, list[Any]]


def _rules(css: str, names: Names | None) -> list[Rule]:
    """The rules of a style sheet; with `names`, those that can match."""
    return _kept(tinycss2.parse_stylesheet(css, skip_comments=True, skip_whitespace=True), names)


def _kept(nodes: list[Node], names: Names | None) -> list[Rule]:
    kept: list[Rule] = []
    for node in nodes:
        if any(token.type == "error" for token in (node, *getattr(node, "prelude", ()))):
            raise StyleError(f"a style sheet has a fault in line {node.source_line}")
        if node.type == "qualified-rule":
            selectors = [s for s in _split(node.prelude) if not names or _can_match(s, names)]
            if selectors:
                prelude = ",".join(map(_selector, selectors))
                kept.append((prelude, _declarations(node.content)))
        elif node.type == "at-rule" and node.lower_at_keyword in GROUPS and node.content:
            inner = tinycss2.parse_rule_list(node.content, skip_comments=True, skip_whitespace=True)
            if rules := _kept(inner, names):
                kept.append((f"@{node.at_keyword} {_short(node.prelude)}", rules))
        elif node.type == "at-rule" and node.lower_at_keyword == "import":
            raise StyleError("a style sheet imports another")
        elif node.type == "at-rule" and node.content is not None:
            kept.append((f"@{node.at_keyword} {_short(node.prelude)}", [_short(node.content)]))
    return kept


def _declarations(content: list[Node]) -> list[Any]:
    found: list[object] = []
    for item in tinycss2.parse_blocks_contents(content, skip_comments=True, skip_whitespace=True):
        if item.type != "declaration":
            raise StyleError(f"line {item.source_line} of a style: only declarations are packed")
        value = _short(item.value) + ("!important" if item.important else "")
        if re.search(r"url\((?![\"']?(?:data:|#))", value):
            raise StyleError(f"{item.name} reads a file; an inline style has another folder")
        found.append((item.name, value))
    return found


def _without(rules: list[Rule], keep: Callable[[str], bool]) -> list[Rule]:
    result: list[Rule] = []
    for prelude, body in rules:
        if body and isinstance(body[0], tuple) and isinstance(body[0][1], list):
            body = _without(body, keep)
        elif body and isinstance(body[0], tuple):
            body = [(n, v) for n, v in body if not n.startswith("--") or keep(n)]
        if body:
            result.append((prelude, body))
    return result


def _text(rule: Rule) -> str:
    prelude, body = rule
    if body and isinstance(body[0], tuple) and isinstance(body[0][1], list):
        return f"{prelude}{{{''.join(map(_text, body))}}}"
    return f"{prelude}{{{';'.join(x if isinstance(x, str) else ':'.join(x) for x in body)}}}"


def _short(tokens: list[Node]) -> str:
    text = tinycss2.serialize([token for token in tokens if token.type != "comment"])
    return re.sub(r"\s+", " ", text).strip()


def _selector(tokens: list[Node]) -> str:
    text = _short(tokens)
    for mark, other in SELECTORS.items():
        text = text.replace(mark, other)
    return text


def _split(tokens: list[Node]) -> list[list[Node]]:
    parts: list[list[Node]] = [[]]
    for token in tokens:
        if token.type == "literal" and token.value == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _can_match(selector: list[Node], names: Names) -> bool:
    # The theme has a rule for each of twenty tabs, eight times over, that a browser must try on
    # every element; those for readers without a script would only color the open tab's name.
    tab = NTH_TAB.search(_short(selector))
    if tab and (int(tab[1] or 1) > names.tabs or "no-js" in _short(selector)):
        return False
    before = ""
    for token in selector:
        if token.type == "hash" and token.value not in names:
            return False
        if token.type == "ident" and before != ":" and token.value not in names:
            return False  # a class or a tag
        alternatives = token.type == "function" and token.lower_name in ("is", "where", "has")
        if alternatives and not any(_can_match(part, names) for part in _split(token.arguments)):
            return False
        if token.type == "[] block" and not _attribute_can_match(token.content, names):
            return False
        before = token.value if token.type == "literal" else ""
    return True


def _attribute_can_match(content: list[Node], names: Names) -> bool:
    """`[name]`, `[name=value]`; of other comparisons the value may be a part of a name."""
    name, *rest = [token for token in content if token.type != "whitespace"]
    if name.value not in names or len(rest) < 2:
        return name.value in names
    exact = rest[0].type == "literal" and rest[0].value == "="
    there = names.__contains__ if exact else names.within
    return all(map(there, WORD.findall(str(rest[1].value))))
