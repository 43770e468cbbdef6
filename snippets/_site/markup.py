"""The built pages as HTML, and their links.

HTML is read by a parser that follows the standard and reports where a browser would have to guess.
What a parser does not judge is asked here: each id is unique, what refers to an id finds it, no
control lies in another, text holds no block, a picture has a text, and no reader sees Markdown's
backticks instead of code, or braces instead of a number. Links inside the site must lead to a file,
and to an id in it; links to elsewhere are followed on demand only.
"""

import re
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

from justhtml import JustHTML

HOST = "https://this.site"  # where the pages lie while their links are resolved
CONTROLS = {"a", "button", "input", "select", "textarea", "iframe"}
TEXT_ONLY = {"h1", "h2", "h3", "h4", "p", "span", "em", "strong", "code", "button", "summary"}
BLOCKS = {"div", "p", "ul", "ol", "dl", "table", "figure", "pre", "section", "details", "h2", "h3"}
# Where a backtick is itself: code, what a program printed, and what no reader sees.
VERBATIM = {"code", "pre", "kbd", "samp", "script", "style", "template"}
LEFT_OVER = re.compile(r"`|\{\{|\}\}")  # Markdown's code, or the name of a number
READ_OUT = ("alt", "aria-label", "title", "placeholder", "content")  # attributes that hold prose
REFERENCES = ("for", "aria-labelledby", "aria-describedby", "aria-controls", "list", "headers")
PAGES, LINKS = 20, 1000  # that the site has, at least


class TooLittle(ValueError):
    """A check read so little that finding no fault says nothing; the text says how much it read."""


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
    """One built page: its elements, each with the tags around it, its ids and its links."""

    def __init__(self, text: str) -> None:
        document = JustHTML(text, sanitize=False, collect_errors=True)
        self.faults = [f"line {e.line}: {e.code}" for e in document.errors]
        self.faults += _left_over(document.root)
        self.elements = list(_walk(document.root, ()))
        self.ids = Counter(a["id"] for _, a, _ in self.elements if a.get("id"))
        names = ("href", "src")
        self.links = [str(a[name]) for _, a, _ in self.elements for name in names if a.get(name)]

    def complaints(self) -> list[str]:
        """Sentences about what is no valid HTML."""
        found = self.faults + [f"id {i!r} occurs twice" for i, n in self.ids.items() if n > 1]
        for tag, attributes, above in self.elements:
            if "svg" in above or "math" in above:
                continue
            if tag in BLOCKS and (outside := TEXT_ONLY & {*above}):
                found.append(f"<{tag}> in <{min(outside)}>")
            if tag in CONTROLS and (outside := {"a", "button"} & {*above}):
                found.append(f"<{tag}> in <{min(outside)}>")
            if tag == "img" and "alt" not in attributes:
                found.append(f"a picture without a text: {attributes.get('src')}")
            for name in REFERENCES:
                for target in str(attributes.get(name) or "").split():
                    if target not in self.ids:
                        found.append(f"{name}={target!r} finds nothing")
        return found


def _is_tag(node: Any) -> bool:
    return not node.name.startswith(("#", "!"))


def _walk(
    node: Any, above: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any], tuple[str, ...]]]:
    for child in filter(_is_tag, node.children or ()):
        yield child.name, child.attrs or {}, above
        yield from _walk(child, (*above, child.name))


def _left_over(node: Any) -> Iterator[str]:
    """Marks of the page's source where a reader sees them: in text, or in what is read out."""
    for child in node.children or ():
        if child.name == "#text":
            texts = [child.data]
        elif not _is_tag(child) or child.name in VERBATIM:
            continue
        else:
            texts = [str((child.attrs or {}).get(name) or "") for name in READ_OUT]
            yield from _left_over(child)
        for text in texts:
            if found := LEFT_OVER.search(text):
                at = found.start()
                what = "a backtick is" if found[0] == "`" else "braces are"
                yield f"{what} shown: {text[max(0, at - 20) : at + 40].strip()!r}"


def faults(site: Path) -> Found:
    """What is wrong in a built site, as sentences, and its links to elsewhere."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
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
    return Found(wrong, sorted(outside), len(pages), elements, followed)


def _dead(site: Path, pages: dict[Path, Page], target: Any) -> Iterator[str]:
    path = unquote(target.path).lstrip("/")
    file = site / path / "index.html" if path.endswith("/") or not path else site / path
    if not file.is_file():
        yield f"link to /{path} leads nowhere"
    elif target.fragment and file in pages and unquote(target.fragment) not in pages[file].ids:
        yield f"link to /{path}#{target.fragment} finds no such place"


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
