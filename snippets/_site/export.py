"""The site for other readers than browsers: each page as Markdown, llms.txt as their list, a feed.

Includes are resolved. The feed, and for each page the picture that a link to it shows elsewhere,
need the site's address and are written only where it is known.
"""

import ast
import functools
import html
import posixpath
import re
from collections.abc import Iterable
from datetime import UTC, datetime, time
from email.utils import format_datetime
from pathlib import Path
from xml.sax.saxutils import escape

from markdown import Markdown
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

from snippets._site import includes, stale
from snippets._site.cards import card
from snippets._site.reference import IDENTIFIER

CODE = re.compile(r"^ *```[^\n]*\n.*?^ *```[^\S\n]*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
KEPT = "\0"  # where a piece of code is, until it is put back
# Of HTML: what is only drawn or pressed, drawings, code, and what keeps to one line.
UNSAID = re.compile(
    r'^ *<\w+\b[^>\n]*aria-hidden="true".*?$|<!--.*?-->|<(button|label|style)\b.*?</\1>',
    re.MULTILINE | re.DOTALL,
)
DRAWING = re.compile(r'<svg\b(?:[^>]*\baria-label="([^"]*)")?[^>]*>.*?</svg>', re.DOTALL)
LISTING = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
IN_ONE_LINE = re.compile(r"<(table|li)\b.*?</\1>", re.DOTALL)
TAG = re.compile(r"<(?P<name>/?[a-z][a-z0-9]*)\b[^<>]*>")
MARKS = {
    **dict.fromkeys(("/div", "/p", "/span", "/b", "/small", "br"), " "),
    **{"tr": "\n| ", "/th": " | ", "/td": " | ", "/thead": "\n| --- |", "li": "\n- "},
    **{"code": " `", "/code": "` ", "del": "[-", "/del": "-]", "ins": "{+", "/ins": "+}"},
}

# What this build has seen so far: a page's Markdown by its source path, and the pages in order.
_markdown: dict[str, str] = {}
_nav: list[Page] = []


def remember_order(pages: Iterable[Page]) -> None:
    """Keep the pages in the order of the series, and number the posts' names in the navigation."""
    _nav[:] = pages
    posts = (page for page in _nav if page.file.src_uri.startswith("posts/") and page.title)
    for number, post in enumerate(posts, 1):
        post.title = f"{number} {post.title}"


def title(page: Page) -> str:
    """A page's title in full; in the navigation it has a short name."""
    return str(page.meta.get("title") or page.title or "")


def titles() -> dict[str, str]:
    """The posts' titles by name, in the order of the series."""
    posts = [page for page in _nav if page.file.src_uri.startswith("posts/")]
    return {p.file.name: p.title or p.file.name.replace("_", " ").capitalize() for p in posts}


def remember_text(markdown: str, page: Page, config: MkDocsConfig) -> None:
    """Keep a page's text, with its includes and badges, for its Markdown version."""
    text = stale.shown(_resolve(markdown, config), Path(config.docs_dir) / "data")
    _markdown[page.file.src_uri] = as_markdown(text, page.file.src_uri)


def write(config: MkDocsConfig) -> None:
    """Write what is no page: Markdown and llms.txt; with an address, the feed and the pictures."""
    site, address = Path(config.site_dir), config.site_url or ""
    pages = [page for page in _nav if is_text(page)]
    others = "|".join(p.file.src_uri.removesuffix(".md") for p in _nav if not is_text(p))
    to_others = re.compile(rf"(\]\((?:\.\./)*(?:{others}))\.md")  # which are there as pages alone
    for page in pages:
        source = str(page.file.src_uri)
        text = to_others.sub(r"\1/", _markdown[source])
        numbers = source.removesuffix(".md") + "/numbers.md"
        if numbers in _markdown:
            text += f"\n[The data of the figures]({page.file.name}/numbers.md)\n"
            _write(site / numbers, _markdown[numbers].encode())
        _write(site / source, text.encode())
    _write(site / "llms.txt", llms(config, pages).encode())
    if address:
        posts = [page for page in pages if page.file.src_uri.startswith("posts/")]
        _write(site / "feed.xml", feed(config, posts).encode())
        for page in _nav:
            section = page.parent.title if page.parent else ""
            _write(site / card_path(page), card(title(page), section, config.site_name))


def is_text(page: Page) -> bool:
    """A page that search leaves out is a list made by the theme: there is no text in it."""
    return not page.meta.get("search", {}).get("exclude", False)


def card_path(page: Page) -> str:
    """Where the picture of a page lies, from the root of the site."""
    slug = str(page.file.src_uri).removesuffix(".md").removesuffix("/numbers").replace("/", "-")
    return f"assets/social/{slug}.png"


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _resolve(markdown: str, config: MkDocsConfig) -> str:
    """A page's Markdown with its includes, and references replaced by signature and docstring."""
    parser = Markdown(extensions=[includes.makeExtension(**config.mdx_configs[includes.__name__])])
    text = "\n".join(parser.preprocessors["snippet"].run(markdown.splitlines()))
    root = Path(config.config_file_path).parent
    return IDENTIFIER.sub(lambda match: _documented(root, match["identifier"]), text)


def _documented(root: Path, identifier: str) -> str:
    """Signature and docstring of a function, read and not imported."""
    module, _, name = identifier.rpartition(".")
    source = (root / module.replace(".", "/")).with_suffix(".py").read_text("utf-8")
    return _signature(source, module, name)


@functools.cache  # live reload asks again
def _signature(source: str, module: str, name: str) -> str:
    function = next(n for n in ast.parse(source).body if getattr(n, "name", "") == name)
    assert isinstance(function, ast.FunctionDef)
    lines = source.splitlines()[function.lineno - 1 : function.body[0].end_lineno]
    return "\n".join([f"### {name}", "", f"From `{module}`:", "", "```python", *lines, "```"])


def as_markdown(text: str, source: str) -> str:
    """Markdown for other readers than MkDocs: no HTML around it, no attributes, relative links."""
    folder = posixpath.dirname(source) or "."
    code = iter(CODE.findall(text))
    text = CODE.sub(KEPT, text)
    text = re.sub(r'<p class="am-finding" markdown>\n(.*?)\n</p>', r"**\1**", text)
    text = re.sub(r"<summary>(.*?)</summary>", r"**\1**", text)
    text = without_html(text)
    text = re.sub(r" ?\{ (?:[.#][^{}\n]*|download )\}", "", text)
    text = re.sub(r"\]\(/([^)]*)\)", lambda m: f"]({posixpath.relpath(m[1], folder)})", text)
    text = re.sub(r"&#?\w+;", _character, text)
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\n{3,}", "\n\n", text)
    return re.sub(KEPT, lambda _: next(code), text).strip() + "\n"


def without_html(text: str) -> str:
    """Text in which a table has a row a line, a list an entry a line, a drawing its label."""
    text = UNSAID.sub("", text)
    text = DRAWING.sub(lambda m: f"*Diagram: {m[1]}*" if m[1] else "", text)
    text = LISTING.sub(_listing, text)
    text = IN_ONE_LINE.sub(lambda m: " ".join(m[0].split()), text)
    return TAG.sub(lambda m: MARKS.get(m["name"], ""), text)


def _listing(block: re.Match[str]) -> str:
    code = TAG.sub("", block[0].replace("</span>", "\n"))  # each line is an element of its own
    return f"\n```\n{code.rstrip()}\n```\n"


def _character(entity: re.Match[str]) -> str:
    text = html.unescape(entity[0])
    makes_a_link = text == "]" and entity.string[entity.end() :].startswith("(")
    return entity[0] if text in "|&" or makes_a_link else text


def llms(config: MkDocsConfig, pages: Iterable[Page]) -> str:
    """llms.txt: what the site is, and its pages as Markdown with their descriptions."""
    lines = [
        f"# {config.site_name}",
        "",
        f"> {config.site_description}",
        "",
        "Each page is also Markdown: replace the last slash of its address with .md.",
        "Code on a page is the code under test; data/ has the raw samples behind each number.",
    ]
    section = None
    for page in pages:
        part = page.parent.title if page.parent else "Start"
        if part != section:
            lines += ["", f"## {part}", ""]
            section = part
        link = f"{config.site_url or ''}{page.file.src_uri}"
        lines.append(f"- [{title(page)}]({link}): {page.meta.get('description', '')}")
    return "\n".join(lines) + "\n"


def feed(config: MkDocsConfig, posts: Iterable[Page]) -> str:
    """RSS 2.0 of the posts, newest first."""
    items = []
    dated = [page for page in posts if "date" in page.meta]
    for page in sorted(dated, key=lambda p: p.meta["date"], reverse=True):
        day = datetime.combine(page.meta["date"], time(), UTC)
        items.append(
            f"<item><title>{escape(title(page))}</title><link>{escape(page.canonical_url)}</link>"
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
