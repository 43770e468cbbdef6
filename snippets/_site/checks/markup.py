"""The built pages as HTML, and their links.

HTML is read by a parser that follows the standard and reports where a browser would have to guess.
What a parser does not judge is asked here: each id is unique, what refers to an id finds it, no
control lies in another, text holds no block, a caption comes first or last in its figure, nothing
is written as in the last century, and no reader sees Markdown's backticks instead of code. Links
inside the site must lead to a file, and to an id in it; links to elsewhere are followed on demand
only.

A page of which the parser sees fewer elements than tags are written was not read whole, and a site
of few pages or links was not read at all: both are errors.
"""

import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

from justhtml import JustHTML

from snippets._site.checks import TooLittle

HOST = "https://this.site"  # where the pages lie while their links are resolved
CONTROLS = {"a", "button", "input", "select", "textarea", "summary", "details", "iframe"}
HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
TEXT_ONLY = HEADINGS | {
    "p",
    "span",
    "em",
    "strong",
    "code",
    "b",
    "i",
    "small",
    "button",
    "summary",
    "abbr",
    "pre",
}
BLOCKS = HEADINGS | {
    "div",
    "p",
    "ul",
    "ol",
    "dl",
    "table",
    "figure",
    "pre",
    "section",
    "article",
    "aside",
    "nav",
    "blockquote",
    "form",
    "details",
}
OBSOLETE = {"center", "font", "big", "tt", "strike", "marquee", "frame", "frameset", "acronym"}
# Where a backtick is itself: code, what a program printed, and what no reader sees.
VERBATIM = {"code", "pre", "kbd", "samp", "script", "style", "template"}
READ_OUT = ("alt", "aria-label", "title", "placeholder", "content")  # attributes that hold prose
REFERENCES = ("for", "aria-labelledby", "aria-describedby", "aria-controls", "list", "headers")
PARENTS = {
    "dt": {"dl", "div"},
    "dd": {"dl", "div"},
    "td": {"tr"},
    "th": {"tr"},
    "li": {"ul", "ol", "menu"},
    "tr": {"thead", "tbody", "tfoot", "table"},
    "figcaption": {"figure"},
    "summary": {"details"},
    "option": {"select", "optgroup", "datalist"},
}

TAG = re.compile(r"<[a-z][\w-]*[\s>/]")
# What a script, a style or a comment holds is no markup.
NO_MARKUP = re.compile(r"<(script|style)\b[^>]*>.*?</\1>|<!--.*?-->", re.DOTALL)
PAGES, LINKS = 20, 1000  # that the site has, at least


class Found(NamedTuple):
    """What is wrong in a built site, its links to elsewhere, and how much of it was read."""

    wrong: list[str]
    outside: list[str]
    pages: int
    elements: int
    links: int  # that lead to a place of this site

    def whole(self) -> "Found":
        """The same. Raises TooLittle for less than the project's site has."""
        if self.pages < PAGES or self.links < LINKS:
            raise TooLittle(f"only {self.pages} pages with {self.links} links were read")
        return self


class Page:
    """One built page: its elements, ids and links."""

    def __init__(self, text: str) -> None:
        document = JustHTML(text, sanitize=False, collect_errors=True)
        self.faults = [f"line {e.line}: {e.code}" for e in document.errors]
        self.elements = list(_walk(document.root, ()))
        written = len(TAG.findall(NO_MARKUP.sub("", text)))
        if len(self.elements) < written:
            raise TooLittle(f"{len(self.elements)} of {written} elements were read")
        self.faults += _between(document.root)
        self.faults += _backticks(document.root)
        self.ids = [a["id"] for _, a, _ in self.elements if a.get("id")]
        self.names = {a["name"] for t, a, _ in self.elements if t == "a" and a.get("name")}
        self.links = [
            str(attributes[name])
            for _, attributes, _ in self.elements
            for name in ("href", "src")
            if attributes.get(name)
        ]

    def complaints(self) -> list[str]:
        """Sentences about what is no valid HTML."""
        found = list(self.faults)
        found += sorted({f"id {i!r} occurs twice" for i in self.ids if self.ids.count(i) > 1})
        known = set(self.ids)
        for tag, attributes, above in self.elements:
            parent = above[-1] if above else ""
            if tag in OBSOLETE:
                found.append(f"<{tag}> is obsolete")
            if "svg" in above or "math" in above:
                continue
            if tag in PARENTS and parent not in PARENTS[tag]:
                found.append(f"<{tag}> in <{parent}>")
            if tag in BLOCKS and (outside := next((t for t in above if t in TEXT_ONLY), "")):
                found.append(f"<{tag}> in <{outside}>")
            if tag in CONTROLS - {"summary", "details"}:
                found += [f"<{tag}> in <{t}>" for t in above if t in ("a", "button")]
            if tag == "img" and "alt" not in attributes:
                found.append(f"a picture without a text: {attributes.get('src')}")
            for name in REFERENCES:
                for target in str(attributes.get(name) or "").split():
                    if target not in known:
                        found.append(f"{name}={target!r} finds nothing")
        return found


def _walk(
    node: Any, above: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any], tuple[str, ...]]]:
    for child in node.children or ():
        if child.name.startswith(("#", "!")):
            continue
        yield child.name, child.attrs or {}, above
        yield from _walk(child, (*above, child.name))


def _between(node: Any) -> Iterator[str]:
    """Captions that are neither the first nor the last part of their figure."""
    parts = [child for child in node.children or () if not child.name.startswith(("#", "!"))]
    if node.name == "figure" and "figcaption" in [part.name for part in parts[1:-1]]:
        yield "<figcaption> between other parts of a <figure>"
    for part in parts:
        yield from _between(part)


def _backticks(node: Any) -> Iterator[str]:
    """Markdown's mark for code where a reader sees it: in text, or in what is read out of it."""
    for child in node.children or ():
        if child.name == "#text":
            texts = [child.data]
        elif child.name.startswith(("#", "!")) or child.name in VERBATIM:
            continue
        else:
            texts = [str((child.attrs or {}).get(name) or "") for name in READ_OUT]
            yield from _backticks(child)
        for text in texts:
            if "`" in text:
                at = text.index("`")
                yield f"a backtick is shown: {text[max(0, at - 20) : at + 40].strip()!r}"


def faults(site: Path) -> Found:
    """What is wrong in a built site, as sentences, and its links to elsewhere.

    Raises TooLittle where there is no page, or where not all of one was read.
    """
    pages: dict[Path, Page] = {}
    for path in sorted(site.rglob("*.html")):
        try:
            pages[path] = Page(path.read_text("utf-8"))
        except TooLittle as error:
            raise TooLittle(f"{path}: {error}") from None
    if not pages:
        raise TooLittle(f"{site} holds no page: nothing was checked")
    wrong, outside, followed = [], set(), 0
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        wrong += [f"{name}: {text}" for text in page.complaints()]
        base = f"{HOST}/{name.removesuffix('index.html')}"
        for link in page.links:
            target = urlsplit(urljoin(base, link))
            if target.scheme not in ("http", "https"):
                continue
            if target.netloc != urlsplit(HOST).netloc:
                outside.add(link)
            elif name != "404.html":  # its links begin at the host, which is not known here
                followed += 1
                wrong += [f"{name}: {text}" for text in _dead(site, pages, target)]
    elements = sum(len(page.elements) for page in pages.values())
    wrong = list(dict.fromkeys(wrong))
    return Found(wrong, sorted(outside), len(pages), elements, followed)


def _dead(site: Path, pages: dict[Path, Page], target: Any) -> list[str]:
    path = unquote(target.path).lstrip("/")
    file = site / path / "index.html" if not path or path.endswith("/") else site / path
    if not file.is_file():
        return [f"the link to /{path} leads nowhere"]
    page, fragment = pages.get(file), unquote(target.fragment)
    if page and fragment and fragment not in page.ids and fragment not in page.names:
        return [f"the link to /{path}#{fragment} finds no such place"]
    return []


def unreachable(links: Iterable[str], seconds: float = 20) -> list[str]:
    """The links that do not answer, each with the reason. Asks the network."""

    def ask(link: str) -> str | None:
        agent = {"User-Agent": "Mozilla/5.0 (link check)"}
        request = urllib.request.Request(link.split("#")[0], headers=agent)
        try:
            with urllib.request.urlopen(request, timeout=seconds):
                return None
        except (urllib.error.URLError, OSError, ValueError) as error:
            return f"{link}: {error}"

    with ThreadPoolExecutor(8) as pool:
        return [answer for answer in pool.map(ask, links) if answer]
