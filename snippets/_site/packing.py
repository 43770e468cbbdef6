"""What a browser waits for before it paints, packed: one inline style, one script, one policy.

A page of the theme asks for five style sheets and five scripts before its first paint, and nine
tenths of the style belong to parts that no page of this site has. After a build:

- the rules that can match something are written into every page, the others are left out. "Can
  match" is asked of names: each class, id, tag, attribute and value of a selector must occur in a
  page's tags or, like a name, in a script, so that a state which a script adds keeps its rules;
- the site's own scripts become one file, named after its content so that a cache may keep it; that
  of a widget stays apart, and comes where the widget is (widgets.js);
- every page carries the same Content-Security-Policy. Its inline scripts differ by the page's
  depth, and instant navigation adds the head of the next page to this one, so each page names the
  hashes of all.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import rjsmin
import tinycss2
from tinycss2.ast import Node

STYLESHEET = re.compile(r'[ \t]*<link rel="stylesheet" href="([^"]+)">\n?')
SCRIPT = re.compile(r'[ \t]*<script src="([^"]+)"></script>\n?')
INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
CHARSET = '<meta charset="utf-8">'
TAG = re.compile(r"<[a-zA-Z][^<>]*>")
WORD = re.compile(r"-{0,2}[A-Za-z_][\w-]*")
# A word of a script that can become a name: with a dash, in a string, or a property that is set.
SCRIPT_WORD = re.compile(
    r"-{0,2}[A-Za-z_]\w*-[\w-]*|(?<=[\"'`\s<])[A-Za-z]\w*(?=[\"'`\s>])|(?<=\.)[A-Za-z]+(?==[^=])"
)
TABS = re.compile(r'data-tabs="\d+:(\d+)"')
NTH_TAB = re.compile(r"\.tabbed-.*:(?:nth-child\((\d+)\)|first-child)$")
DATASET = re.compile(r"\.dataset\.(\w+)")
# What the theme's script looks for and never makes: only a page can bring it. (The last one it
# makes for a moment, to stop transitions; its rule names every element: all are styled anew.)
ONLY_ON_PAGES = re.compile(
    r"tabbed-|mermaid|md-version|md-source__|md-annotation|md-tabs|rtl$|data-md-color-switching$"
)
STEM = re.compile(
    r"([\w-]{4,})(?:\$\{|(?<=-)[\"'`])"
)  # `md-fact--${name}`, "data-md-color-" + name
# The scripts that a page needs only if it has what they look for.
WIDGETS = {
    "attention_map.js": ".am-map",
    "attention_memory.js": ".am-memory",
    "coalescing.js": ".am-lanes",
    "coverage.js": ".am-coverage",
    "scoreboard.js": ".am-ladder",
    "steps.js": ".am-steps",
    "your_gpu.js": ".am-cards",
}
LIST_OF_WIDGETS = "AM_WIDGETS"
GROUPS = ("media", "supports", "layer", "container")
# Selectors said in another way. The theme's script writes the address of every link anew, and a
# table without a class it takes out of the page to put it back in a box: reading.py gives it both
# before. A rule that reads an attribute makes a browser style each element on which that is set.
SELECTORS = {"table:not([class])": "table.am-table", "[href]": ":any-link"}
THEME_SCRIPT = re.compile(r"\bassets/javascripts/bundle\.\w+\.min\.js$")


class PackingError(Exception):
    """The built site holds something that cannot be packed."""


def pack(site: Path) -> None:
    """Rewrite every page below `site`. Raises PackingError for what would be lost."""
    pages = {path: path.read_text("utf-8") for path in sorted(site.rglob("*.html"))}
    styles = _linked(STYLESHEET, pages, site)
    scripts = _linked(SCRIPT, pages, site)
    own = [path for path in scripts if _is_own(path.as_posix())]
    if not styles or not own or own == scripts:
        raise PackingError(f"unlike a page of this site: styles {styles}, scripts {scripts}")
    code = "\n".join(path.read_text("utf-8") for path in scripts)
    names = Names.of(pages.values(), code)
    style = purge("\n".join(path.read_text("utf-8") for path in styles), names)
    later = {
        WIDGETS[path.name]: _packed([path], path.stem).name for path in own if path.name in WIDGETS
    }
    first = [path for path in own if path.name not in WIDGETS]
    script = _packed(first, "site", json.dumps(list(later.items())))
    policy = policy_for(pages.values())
    for path, page in pages.items():
        if CHARSET not in page:
            raise PackingError(f"{path} has no {CHARSET}, beside which its policy belongs")
        meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        page = page.replace(CHARSET, CHARSET + "\n      " + meta, 1)
        page = _replace(STYLESHEET, page, lambda _href: True, f"<style>{style}</style>\n")
        folder = next(filter(_is_own, SCRIPT.findall(page))).rpartition("/")[0]
        tag = f'<script src="{folder}/{script.name}"></script>\n'
        path.write_text(_replace(SCRIPT, page, _is_own, tag), "utf-8")


def _packed(scripts: list[Path], stem: str, widgets: str = "") -> Path:
    """One short script of some, beside the first."""
    text = rjsmin.jsmin("\n".join(path.read_text("utf-8") for path in scripts))
    text = text.replace(LIST_OF_WIDGETS, widgets)
    packed = scripts[0].with_name(f"{stem}.{_digest(text, 'md5').hex()[:8]}.js")
    packed.write_text(text, "utf-8")
    return packed


def policy_for(pages: Iterable[str]) -> str:
    """A policy that allows the site itself and the inline scripts of these pages, by hash."""
    inline = sorted({script for page in pages for script in INLINE_SCRIPT.findall(page)})
    hashes = [
        f"'sha256-{base64.b64encode(_digest(script, 'sha256')).decode()}'" for script in inline
    ]
    return "; ".join(
        (
            "default-src 'none'",
            " ".join(["script-src 'self'", *hashes]),
            "style-src 'self' 'unsafe-inline'",  # Plotly writes style elements
            "img-src 'self' data: blob:",  # icons in the style; Plotly saves a figure from a blob
            "connect-src 'self'",
            "worker-src 'self'",  # search
            "manifest-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
        )
    )


class Names:
    """The names that pages and scripts use, and the beginnings from which scripts make names."""

    def __init__(self, words: Iterable[str], stems: Iterable[str] = (), tabs: int = 0) -> None:
        self.words = frozenset(words)
        self.stems = tuple(stems)
        self.tabs = tabs  # of the page's largest set of tabs

    @classmethod
    def of(cls, pages: Iterable[str], code: str) -> "Names":
        words = {word for word in SCRIPT_WORD.findall(code) if not ONLY_ON_PAGES.match(word)}
        for name in DATASET.findall(code):
            words.add("data-" + re.sub("[A-Z]", lambda c: "-" + c[0].lower(), name))
        tabs = 0
        for page in pages:
            tabs = max([tabs, *map(int, TABS.findall(page))])
            for tag in TAG.findall(page):
                words.update(WORD.findall(tag))
        return cls(words, {s for s in STEM.findall(code) if not ONLY_ON_PAGES.match(s)}, tabs)

    def __contains__(self, name: str) -> bool:
        made = name.startswith(self.stems) and not ONLY_ON_PAGES.match(name)
        return name in self.words or made

    def within(self, part: str) -> bool:
        """Whether a name has this part, or could be made to have it."""
        return any(part in name for name in (*self.words, *self.stems))


def purge(css: str, names: Names) -> str:
    """The rules of a style sheet that can match, as short text, without variables nobody reads."""
    rules = tinycss2.parse_stylesheet(css, skip_comments=True, skip_whitespace=True)
    kept = _kept(rules, names)
    while True:  # a variable may be read by another that is dropped
        text = "".join(map(_text, kept))
        read = Names({*re.findall(r"--[\w-]+(?=\s*[,)])", text), *names.words}, names.stems)
        fewer = _without(kept, read.__contains__)
        if fewer == kept:
            break
        kept = fewer
    animated = set(re.findall(r"animation(?:-name)?:([^;}]+)", text))
    used = {word for value in animated for word in WORD.findall(value)}
    return "".join(
        _text(rule)
        for rule in kept
        if not (frames := re.match(r"@(?:-webkit-)?keyframes (\S+)", rule[0])) or frames[1] in used
    )


# A rule is its prelude and what stands in its braces: rules, declarations (name, value), or text.
Rule = tuple[str, list[Any]]


def _kept(nodes: list[Node], names: Names) -> list[Rule]:
    kept: list[Rule] = []
    for node in nodes:
        if any(token.type == "error" for token in (node, *getattr(node, "prelude", ()))):
            raise PackingError(f"a style sheet has a fault in line {node.source_line}")
        if node.type == "qualified-rule":
            selectors = [s for s in _split(node.prelude) if _can_match(s, names)]
            if selectors:
                prelude = ",".join(map(_selector, selectors))
                kept.append((prelude, _declarations(node.content)))
        elif node.type == "at-rule" and node.lower_at_keyword in GROUPS and node.content:
            inner = tinycss2.parse_rule_list(node.content, skip_comments=True, skip_whitespace=True)
            if rules := _kept(inner, names):
                kept.append((f"@{node.at_keyword} {_short(node.prelude)}", rules))
        elif node.type == "at-rule" and node.lower_at_keyword == "import":
            raise PackingError("a style sheet imports another")
        elif node.type == "at-rule" and node.content is not None:
            kept.append((f"@{node.at_keyword} {_short(node.prelude)}", [_short(node.content)]))
    return kept


def _declarations(content: list[Node]) -> list[Any]:
    found: list[object] = []
    for item in tinycss2.parse_blocks_contents(content, skip_comments=True, skip_whitespace=True):
        if item.type != "declaration":
            raise PackingError(f"line {item.source_line} of a style: only declarations are packed")
        value = _short(item.value) + ("!important" if item.important else "")
        if re.search(r"url\((?![\"']?(?:data:|#))", value):
            raise PackingError(f"{item.name} reads a file; an inline style has another folder")
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
    # every element; those for readers without a script would only colour the open tab's name.
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


def _linked(pattern: re.Pattern[str], pages: dict[Path, str], site: Path) -> list[Path]:
    """The files that pages link to, each once, in the order of the first page that does."""
    found: dict[Path, None] = {}
    for path, page in pages.items():
        for link in pattern.findall(page):
            target = urlsplit(link).path
            # The page for missing addresses links from the root of the host.
            file = path.parent / target
            if target.startswith("/"):
                parts = Path(target.lstrip("/")).parts
                folders = (site.joinpath(*parts[i:]) for i in range(len(parts)))
                file = next((f for f in folders if f.is_file()), file)
            found[file.resolve()] = None
    return list(found)


def _replace(pattern: re.Pattern[str], page: str, chosen: Callable[[str], bool], text: str) -> str:
    """Put `text` in the place of the first chosen match and nothing in the others'."""
    pieces = iter([text])
    return pattern.sub(
        lambda match: next(pieces, "") if chosen(match[1]) else match[0],
        page,
    )


def _is_own(script: str) -> bool:
    return not THEME_SCRIPT.search(script)


def _digest(text: str, name: str) -> bytes:
    return hashlib.new(name, text.encode()).digest()
