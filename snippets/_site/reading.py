"""The second MkDocs hook: aids for readers, made from what is there anyway.

Configuration cannot do these, and the plugins that do some of them bring a script, a request, a
whole HTTP client or a second copy of a text:

- the first use of a glossary word leads to the glossary, which is the only place of its definition;
- tables fold on a phone, because each cell knows the name of its column, and scroll in a box that
  the theme's script would make for each while the page starts;
- a page says how long it takes and when its numbers were last measured;
- each page is published as Markdown too, includes resolved, with llms.txt as the list of them;
- where the site's address is known: a feed of the posts, and for each page a picture for links.
"""

import ast
import functools
import html
import io
import json
import math
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from markdown import Markdown
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from PIL import Image, ImageDraw, ImageFont

GLOSSARY = "reference/glossary.md"
LAUNCHERS = "reference/launchers.md"
FOLDS_FROM = 4  # columns: fewer fit a phone
FLOWS_FROM = 9  # rows: with a line for each cell so many would be screens long
WORDS_A_MINUTE = 220
CODE_LINES_A_MINUTE = 20

# Where no word is marked: links, code, titles, formulas, tables, and what a widget draws.
UNMARKED = {
    "a", "button", "code", "h1", "h2", "h3", "h4", "label", "math", "pre", "summary", "svg",
    "table",
}  # fmt: skip
UNMARKED_TEXT = re.compile(r'class="[^"]*\b(?:am-lead|am-finding|admonition-title)\b')
TEXT = {"p", "li", "dd"}
TAG = re.compile(r"(<!--.*?-->|<[^>]+>)", re.DOTALL)
NAME = re.compile(r"</?([a-z][a-z0-9]*)")
ENTRY = re.compile(
    r"^(?P<terms>\w[^\n]*(?:\n\w[^\n]*)*?) \{ #(?P<id>[\w-]+)(?P<plain> \.am-plain)? \}\n"
    r":   (?P<text>[^\n]+(?:\n    [^\n]+)*)",
    re.MULTILINE,
)
FILE_ROW = re.compile(r"\[Download\]\(/snippets/(?P<room>\w+)/kernel\.py\)\{ download \}")
DIAGRAM = re.compile(r'<svg\b[^>]*\baria-label="([^"]*)"[^>]*>.*?</svg>', re.DOTALL)
FENCED = re.compile(r"(^ *```[^\n]*\n.*?^ *```[^\S\n]*$)", re.MULTILINE | re.DOTALL)
IDENTIFIER = re.compile(r"^::: (?P<identifier>[\w.]+)$", re.MULTILINE)

# What this build has seen so far: a page's Markdown by its source path, and the navigation.
_markdown: dict[str, str] = {}
_nav: list[Page] = []


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Drop the style sheet of mkdocstrings: site.css has the few rules that are needed."""
    config.extra_css = [path for path in config.extra_css if "_mkdocstrings" not in str(path)]
    return config


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Remember the pages in the order of the series."""
    _nav[:] = nav.pages
    return nav


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep the page's text for its Markdown version; link a kernel's row to its reference."""
    _markdown[page.file.src_uri] = as_markdown(_resolve(markdown, config), page.file.src_uri)
    launchers = files.get_file_from_path(LAUNCHERS)
    if not page.file.src_uri.startswith("posts/") or launchers is None:
        return markdown
    documented = IDENTIFIER.findall(launchers.content_string)
    room = page.file.name
    if f"snippets.{room}.kernel.{room}" not in documented:
        return markdown
    link = f"[Reference](../{LAUNCHERS}#snippets.{room}.kernel.{room})"
    return FILE_ROW.sub(lambda row: f"{row[0]} {link}", markdown)


# Long and of little use in a search: tables of numbers, tests' names, code that stands elsewhere.
UNSEARCHED = (
    '<details class="am-data', '<div class="am-kills"', '<div class="am-ladder"',
    '<div class="am-cards"', '<div class="am-coverage"', '<div class="am-backends"',
    '<div class="am-journey"', '<details class="example"',
)  # fmt: skip


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark glossary words, name the cells of tables, keep figures' tables out of the search."""
    content = _plainer_reference(content)
    for quiet in UNSEARCHED:
        content = content.replace(quiet, quiet.replace(" ", " data-search-exclude ", 1))
    content = re.sub(r"<table>.*?</table>", lambda m: boxed(fold(m[0])), content, flags=re.DOTALL)
    glossary = files.get_file_from_path(GLOSSARY)
    if glossary is None or not page.file.src_uri.startswith(("posts/", "lab/")):
        return content
    url = glossary.url_relative_to(page.file)
    return mark(content, definitions(glossary.content_string), url, page.file.name)


def on_page_context(
    context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Navigation
) -> dict[str, Any]:
    """What the theme's templates show beside a page's own text."""
    text = page.file.src_uri.startswith(("posts/", "lab/"))
    context["reading"] = {
        "minutes": minutes(page.content or "") if text else None,
        "measured": last_measured(Path(config.docs_dir) / "data", page.file.name) if text else None,
        "markdown": page.file.src_uri if _is_text(page) else None,
        "card": f"assets/social/{_slug(page)}.png",
    }
    return context


def on_post_build(config: MkDocsConfig) -> None:
    """Write what is no page: Markdown and llms.txt; with an address, the feed and the pictures."""
    site, address = Path(config.site_dir), config.site_url or ""
    pages = [page for page in _nav if _is_text(page)]
    for page in pages:
        _write(site / page.file.src_uri, _markdown[page.file.src_uri].encode())
    _write(site / "llms.txt", llms(config, pages).encode())
    if address:
        posts = [page for page in pages if page.file.src_uri.startswith("posts/")]
        _write(site / "feed.xml", feed(config, posts).encode())
        for page in _nav:
            section = page.parent.title if page.parent else ""
            picture = card(page.title or "", section, config.site_name)
            _write(site / "assets" / "social" / f"{_slug(page)}.png", picture)


def _slug(page: Page) -> str:
    return str(page.file.src_uri).removesuffix(".md").replace("/", "-")


def _is_text(page: Page) -> bool:
    """A page that search leaves out is a list made by the theme: there is no text in it."""
    return not page.meta.get("search", {}).get("exclude", False)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


# Reading time and date.


def minutes(content: str) -> int:
    """Minutes to read a page's HTML: its words and its lines of code, what is folded left out."""
    folded = re.compile(r"<details\b(?:(?!<details\b).)*?</details>", re.DOTALL)
    while folded.search(content):
        content = folded.sub("", content)
    code = re.findall(r"<pre\b.*?</pre>", content, re.DOTALL)
    text = re.sub(r"<(pre|table|math)\b.*?</\1>|<[^>]+>", " ", content, flags=re.DOTALL)
    lines = sum(len(TAG.sub("", block).strip().splitlines()) for block in code)
    return math.ceil(len(text.split()) / WORDS_A_MINUTE + lines / CODE_LINES_A_MINUTE)


def last_measured(data: Path, post: str) -> dict[str, str] | None:
    """Day and device of a post's newest result from a GPU; None while no GPU has measured it."""
    results = [json.loads(p.read_text("utf-8")) for p in data.glob(f"*/{post}/*.json")]
    measured = [r for r in results if r["place"] == "gpu"]
    if not measured:
        return None
    newest = max(measured, key=lambda r: r["measured_at"])
    day = datetime.fromisoformat(newest["measured_at"]).date()
    return {"day": f"{day.day} {day:%B %Y}", "device": newest["device"]["name"]}


# The glossary.


@dataclass(frozen=True)
class Entry:
    """A word of the glossary that pages lead to."""

    id: str
    terms: tuple[str, ...]  # its spellings
    text: str  # plain, without links
    pages: tuple[str, ...]  # pages that explain it themselves, by file name


@functools.cache
def definitions(glossary: str) -> tuple[Entry, ...]:
    """The entries of the glossary's Markdown that are marked on pages."""
    found = []
    for match in ENTRY.finditer(glossary):
        if match["plain"]:
            continue
        text = " ".join(match["text"].split())
        pages = tuple(re.findall(r"\]\(\.\./posts/(\w+)\.md", text))
        text = re.sub(r"\[[^\]]*\]\([^)]*\)\.?|[`*$]", "", text).strip()
        terms = tuple(re.sub(r" \{.*", "", line) for line in match["terms"].splitlines())
        found.append(Entry(match["id"], terms, text, pages))
    return tuple(found)


@functools.cache
def _spellings(entries: tuple[Entry, ...]) -> tuple[re.Pattern[str], dict[str, Entry]]:
    """One pattern for every spelling, and whose it is: plural, or at the start of a sentence."""
    owner = {}
    for entry in entries:
        for term in entry.terms:
            plural = term + ("es" if term.endswith("ch") else "s")
            for spelling in (term, plural):
                owner[spelling] = entry
                owner[spelling[0].upper() + spelling[1:]] = entry
    longest = sorted(map(re.escape, owner), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(longest)})(?![\w-])"), owner


def mark(content: str, entries: tuple[Entry, ...], url: str, page: str = "") -> str:
    """Lead from the first use of each word in running text to its entry at `url`."""
    if not entries:
        return content
    pattern, owner = _spellings(entries)
    seen = {entry.id for entry in entries if page in entry.pages}
    depth = dict.fromkeys(("text", "unmarked"), 0)
    quiet = ""  # the tag of a paragraph that is a title

    def link(match: re.Match[str]) -> str:
        entry = owner[match[0]]
        if entry.id in seen:
            return match[0]
        seen.add(entry.id)
        title = html.escape(entry.text, quote=True)
        return f'<a class="am-term" href="{url}#{entry.id}" title="{title}">{match[0]}</a>'

    parts = TAG.split(content)
    for number, part in enumerate(parts):
        if number % 2:  # a tag, or a comment
            if not (tag := NAME.match(part)):
                continue
            name, step = tag[1], -1 if part.startswith("</") else 1
            if name in UNMARKED:
                depth["unmarked"] += step
            elif name in TEXT:
                depth["text"] += step
                quiet = part if step > 0 and UNMARKED_TEXT.search(part) else ""
        elif depth["text"] > 0 and not depth["unmarked"] and not quiet:
            parts[number] = pattern.sub(link, part)
    return "".join(parts)


# Tables.


def _plainer_reference(content: str) -> str:
    """Returns without a dash in the place of a name; errors without a tuple's parentheses."""
    content = re.sub(r'(<li class="doc-section-item[^>]*>)\s*–\s*', r"\1", content)
    return re.sub(
        r"<code>\(((?:<span[^>]*>\w+</span>(?:, )?)+)\)</code>", r"<code>\1</code>", content
    )


def fold(table: str) -> str:
    """Name each cell of a wide table after its column, so that a phone can show a row as a list."""
    heads = [TAG.sub("", head).strip() for head in re.findall(r"<th\b[^>]*>(.*?)</th>", table)]
    if len(heads) < FOLDS_FROM:
        return table

    def row(match: re.Match[str]) -> str:
        names = iter(heads)
        return re.sub(r"<td\b", lambda _: f'<td data-label="{next(names)}"', match[0])

    head, _, body = table.partition("<tbody>")
    body = re.sub(r"<tr>.*?</tr>", row, body, flags=re.DOTALL)
    flows = ' data-fold="flow"' if body.count("<tr>") >= FLOWS_FROM else " data-fold"
    return head.replace("<table>", f"<table{flows}>", 1) + "<tbody>" + body


def boxed(table: str) -> str:
    """A table in the two boxes of the theme; one that has a class its script leaves alone."""
    table = table.replace("<table", '<table class="am-table"', 1)
    box = '<div class="md-typeset__scrollwrap"><div class="md-typeset__table">'
    return f"{box}{table}</div></div>"


# Pages as Markdown.


def _resolve(markdown: str, config: MkDocsConfig) -> str:
    """A page's Markdown with its includes, and references replaced by signature and docstring."""
    options = config.mdx_configs["pymdownx.snippets"]
    parser = Markdown(
        extensions=["pymdownx.snippets"], extension_configs={"pymdownx.snippets": options}
    )
    text = "\n".join(parser.preprocessors["snippet"].run(markdown.splitlines()))
    root = Path(config.config_file_path).parent
    return IDENTIFIER.sub(lambda match: _documented(root, match["identifier"]), text)


def _documented(root: Path, identifier: str) -> str:
    """Signature and docstring of a function, read and not imported."""
    module, _, name = identifier.rpartition(".")
    source = (root / module.replace(".", "/")).with_suffix(".py").read_text("utf-8")
    function = next(n for n in ast.parse(source).body if getattr(n, "name", "") == name)
    assert isinstance(function, ast.FunctionDef)
    lines = source.splitlines()[function.lineno - 1 : function.body[0].end_lineno]
    return "\n".join([f"### {name}", "", f"From `{module}`:", "", "```python", *lines, "```"])


def as_markdown(text: str, source: str) -> str:
    """Markdown for other readers than MkDocs: no HTML around it, no attributes, relative links."""
    folder = posixpath.dirname(source) or "."
    parts = FENCED.split(text)
    for number in range(0, len(parts), 2):  # every second part is code
        part = re.sub(r"<!--.*?-->", "", parts[number], flags=re.DOTALL)
        part = re.sub(r'<p class="am-finding" markdown>\n(.*?)\n</p>', r"**\1**", part)
        part = re.sub(r"<summary>(.*?)</summary>", r"**\1**", part)
        part = DIAGRAM.sub(r"*Diagram: \1*", part)
        part = re.sub(r"</?[a-z][^>]*>", "", part)
        part = re.sub(r" ?\{ (?:[.#][^{}\n]*|download )\}", "", part)
        part = re.sub(r"\]\(/([^)]*)\)", lambda m: f"]({posixpath.relpath(m[1], folder)})", part)
        part = re.sub(r"&#?\w+;", _character, part)
        parts[number] = re.sub(r"\n{3,}", "\n\n", part)
    return "".join(parts).strip() + "\n"


def _character(entity: re.Match[str]) -> str:
    text = html.unescape(entity[0])
    return entity[0] if text in "|<>&" else text


def llms(config: MkDocsConfig, pages: Iterable[Page]) -> str:
    """llms.txt: what the site is, and its pages as Markdown with their descriptions."""
    lines = [
        f"# {config.site_name}", "", f"> {config.site_description}", "",
        "Each page is also Markdown: put .md in the place of the last slash of its address.",
        "Code on a page is the code under test; data/ has the raw samples behind each number.",
    ]  # fmt: skip
    section = None
    for page in pages:
        title = page.parent.title if page.parent else "Start"
        if title != section:
            lines += ["", f"## {title}", ""]
            section = title
        link = f"{config.site_url or ''}{page.file.src_uri}"
        lines.append(f"- [{page.title}]({link}): {page.meta.get('description', '')}")
    return "\n".join(lines) + "\n"


# Where the site has an address.


def feed(config: MkDocsConfig, posts: Iterable[Page]) -> str:
    """RSS 2.0 of the posts, newest first."""
    items = []
    dated = [page for page in posts if "date" in page.meta]
    for page in sorted(dated, key=lambda p: p.meta["date"], reverse=True):
        day = datetime.combine(page.meta["date"], time(), UTC)
        items.append(
            f"<item><title>{escape(page.title)}</title><link>{escape(page.canonical_url)}</link>"
            f"<guid>{escape(page.canonical_url)}</guid><pubDate>{format_datetime(day)}</pubDate>"
            f"<description>{escape(page.meta['description'])}</description></item>"
        )
    address = escape(str(config.site_url))
    return "\n".join(
        [
            '<?xml version="1.0" encoding="utf-8"?>',
            '<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel>',
            f"<title>{escape(config.site_name)}</title><link>{address}</link><language>en</language>",
            f"<description>{escape(config.site_description)}</description>",
            f'<atom:link href="{address}feed.xml" rel="self" type="application/rss+xml"/>',
            *items,
            "</channel></rss>",
            "",
        ]
    )


@functools.cache
def card(title: str, section: str, site: str) -> bytes:
    """The picture that a link to a page shows elsewhere: a PNG of 1200 × 630 pixels."""
    paper, ink, muted, accent = "#fcfbf8", "#1f2429", "#595f66", (11, 99, 116)
    image = Image.new("RGB", (1200, 630), paper)
    draw = ImageDraw.Draw(image)
    rows, size = 9, 46
    for row in range(rows):  # a causal mask, the nearest keys strongest
        for column in range(row + 1):
            share = 0.9 * 0.72 ** (row - column) + 0.06
            shade = tuple(
                round(s * share + p * (1 - share))
                for s, p in zip(accent, (252, 251, 248), strict=True)
            )
            x, y = 1200 - (rows + 1) * size + column * size, 630 - (rows + 1) * size + row * size
            draw.rectangle((x, y, x + size - 5, y + size - 5), fill=shade)
    draw.text((80, 76), site, font=ImageFont.load_default(34), fill=accent)
    font = ImageFont.load_default(70)
    lines = [""]
    for word in title.split():
        longer = f"{lines[-1]} {word}".strip()
        if draw.textlength(longer, font) > 640 and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    draw.multiline_text((78, 170), "\n".join(lines), font=font, fill=ink, spacing=18)
    draw.text((80, 530), section, font=ImageFont.load_default(32), fill=muted)
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()
