"""All pages as one document to print: in the order of the navigation, each with a new sheet.

What is folded is opened, a link to another page of the site becomes a link within the document, and
stills stand in the places of charts. Chromium prints it, with an outline of its headings.
"""

import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, Tag

from snippets._site.checks.browser import Server, chromium

NAME = "book.html"
REFERS = ("href", "for", "aria-labelledby", "aria-describedby", "aria-controls")
NOT_PRINTED = "script, .am-here, .am-foot, .headerlink, .md-code__nav, .am-file, [data-print=none]"
STYLE = """
.am-book > article { break-before: page; }
.am-book > article:first-child { break-before: auto; }
.am-book .am-address { display: none; }
"""


class BookError(Exception):
    """The built site has no pages in an order, or a page without text."""


def order(front: str) -> list[str]:
    """The pages in the order of the navigation, as the front page's side column lists them."""
    soup = BeautifulSoup(front, "html.parser")
    links = soup.select(".md-nav--primary a.md-nav__link[href]")
    paths = [urlsplit(str(link["href"])).path for link in links]
    found = [posixpath.normpath(path or ".") for path in paths]
    pages = ["" if path == "." else f"{path}/" for path in found]
    if len(pages) < 2:
        raise BookError("the front page lists no pages")
    return list(dict.fromkeys(pages))


def book(site: Path) -> str:
    """One HTML document of all pages of a built site. Raises BookError."""
    front = (site / "index.html").read_text("utf-8")
    pages = order(front)
    soup = BeautifulSoup(front, "html.parser")
    head = soup.head
    body = soup.body
    if head is None or body is None:
        raise BookError("the front page has no head")
    for left in head.select("script, meta[http-equiv], link[rel=prev], link[rel=next]"):
        left.decompose()
    style = soup.new_tag("style")
    style.string = STYLE
    head.append(style)
    styles = _styles(site, pages)
    for text in styles:
        further = soup.new_tag("style")
        further.string = text
        head.append(further)
    document = soup.new_tag("div", attrs={"class": "am-book"})
    for page in pages:
        document.append(_article(site, page, pages))
    body.clear()
    body.append(document)
    body["data-md-color-scheme"] = "default"
    return str(soup)


def _styles(site: Path, pages: Iterable[str]) -> list[str]:
    """The styles of all pages' widgets, each once: the front page brings its own alone."""
    found: dict[str, None] = {}
    for page in pages:
        text = (site / page / "index.html").read_text("utf-8")
        found |= dict.fromkeys(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
    return list(found)


def _article(site: Path, page: str, pages: list[str]) -> Tag:
    """A page's text with names of its own: "posts/x/" and "figure-1" make "posts-x--figure-1"."""
    soup = BeautifulSoup((site / page / "index.html").read_text("utf-8"), "html.parser")
    article = soup.select_one("article")
    if article is None:
        raise BookError(f"/{page} has no text")
    for part in article.select(NOT_PRINTED):
        part.decompose()
    for box in article.select("details:not(.am-data)"):
        box["open"] = ""
    for part in article.select("[id]"):
        part["id"] = _name(page, str(part["id"]))
    article["id"] = _name(page, "")
    for part in article.find_all(True):
        for attribute in REFERS:
            if part.has_attr(attribute):
                part[attribute] = _within(str(part[attribute]), page, pages, attribute)
        for attribute, value in list(part.attrs.items()):
            if isinstance(value, str) and "url(#" in value:
                part[attribute] = re.sub(
                    r"url\(#([\w-]+)\)", lambda m: f"url(#{_name(page, m[1])})", value
                )
    return article


def _name(page: str, anchor: str) -> str:
    return f"{page.strip('/').replace('/', '-') or 'start'}--{anchor or 'page'}"


def _within(value: str, page: str, pages: list[str], attribute: str) -> str:
    """A reference as it is within the document; away from the site as it was."""
    if attribute != "href":
        return " ".join(_name(page, word) for word in value.split())
    parts = urlsplit(value)
    if parts.scheme or parts.netloc:
        return value
    joined = posixpath.normpath(posixpath.join("/", page, unquote(parts.path))).lstrip("/")
    target = f"{joined}/" if joined else ""
    if not parts.path:
        target = page
    if target in pages:
        return f"#{_name(target, parts.fragment)}"
    return f"#{_name(page, '')}" if not posixpath.splitext(joined)[1] else value


def pdf(site: Path, out: Path) -> int:
    """Print a built site into one PDF; returns how many pages of the site are in it."""
    text = book(site)
    (site / NAME).write_text(text, "utf-8")
    try:
        with Server(site) as server, chromium() as browser:
            page: Any = browser.new_page()
            page.emulate_media(media="print", color_scheme="light")
            page.goto(server.address + NAME, wait_until="load", timeout=120_000)
            page.pdf(
                path=str(out),
                format="A4",
                margin={"top": "18mm", "bottom": "18mm", "left": "16mm", "right": "16mm"},
                outline=True,
                tagged=True,
                print_background=True,
            )
    finally:
        (site / NAME).unlink()
    return len(order((site / "index.html").read_text("utf-8")))
