"""Live reload: `make serve` draws again what has changed, and takes the rest from memory.

Most of a build turns Markdown into HTML and HTML into a search index, page by page. Both depend on
the page's text with its includes, on what its front matter says and on which files there are. While
those stay as they are, a page keeps what the last build made of it. What pages show of each other
(titles, navigation, tags) is put together anew each time.

A build on its own remembers nothing: only `mkdocs serve` builds twice in one process.
"""

import functools
import hashlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import TableOfContents

LISTING = "material/tags"  # a page that shows what other pages say of themselves


class Drawn(NamedTuple):
    """What became of a page, and the key of what it was made from."""

    key: str
    content: str
    toc: TableOfContents
    title: str | None
    anchors: set[str] | None
    links: dict[str, dict[str, str]]  # anchors that it links to, by the source path of their page


class Warnings(logging.Handler):
    """Counts what MkDocs warns of: a page with a warning is drawn anew, and it is heard again."""

    count = 0

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


_drawn: dict[str, Drawn] = {}  # by a page's source path
_entries: dict[str, tuple[str, list[Any]]] = {}  # of the search index, likewise
_under_way: dict[str, tuple[str, int]] = {}  # key, and the number of warnings before
_seen: dict[Path, tuple[int, int]] = {}  # files by which badges are decided: time and size
_heard = Warnings()
_serving = False


def begin(command: str) -> None:
    """Remember from here on if pages are served, and forget what was remembered before."""
    global _serving
    _serving = command == "serve"
    for known in (_drawn, _entries, _under_way, _seen):
        known.clear()
    logger = logging.getLogger("mkdocs")
    logger.removeHandler(_heard)
    if _serving:
        logger.addHandler(_heard)


def serving() -> bool:
    """Whether `mkdocs serve` builds, which adds a script of its own to each page."""
    return _serving


def reuse(page: Page, config: MkDocsConfig, files: Files, *made_from: str) -> None:
    """Before a page is rendered: take what the last build made of it, if it would be the same.

    `made_from`: the page's text with its includes, and all else that its HTML depends on.
    """
    if not _serving or LISTING in (page.markdown or ""):
        return
    source = page.file.src_uri
    names = sorted(file.src_uri for file in files)
    settings = Path(config.config_file_path).read_text("utf-8")
    around = (page.meta, names, settings, config.repo_url, config.site_url)
    key = hashlib.sha256(repr((made_from, around)).encode()).hexdigest()
    _under_way[source] = key, _heard.count
    if (drawn := _drawn.get(source)) and drawn.key == key:
        page.render = functools.partial(_restore, page, drawn)


def _restore(page: Page, drawn: Drawn, config: MkDocsConfig, files: Files) -> None:
    page.content, page.toc = drawn.content, drawn.toc
    page._title_from_render = drawn.title
    page.present_anchor_ids = drawn.anchors
    there = {files.get_file_from_path(name): links for name, links in drawn.links.items()}
    page.links_to_anchors = {file: links for file, links in there.items() if file is not None}


def remembered(page: Page) -> bool:
    """Whether a page's content is that of the last build, with all that hooks do to it."""
    return isinstance(page.render, functools.partial)


def remember(page: Page, content: str) -> None:
    """Keep a page's content as the hooks leave it, unless there was something to warn of."""
    key, before = _under_way.pop(page.file.src_uri, ("", -1))
    if before != _heard.count:
        return
    links = {file.src_uri: links for file, links in (page.links_to_anchors or {}).items()}
    title, anchors = page._title_from_render, page.present_anchor_ids
    _drawn[page.file.src_uri] = Drawn(key, content, page.toc, title, anchors, links)


def index_again(config: MkDocsConfig) -> None:
    """Let the search plugin keep its entries for a page whose content has not changed."""
    if not _serving:
        return
    index = config.plugins["material/search"].search_index
    add: Callable[[Page], None] = index.add_entry_from_context

    def kept(page: Page) -> None:
        source, at = page.file.src_uri, len(index.entries)
        key = hashlib.sha256(repr((page.url, page.title, page.meta, page.content)).encode())
        known, entries = _entries.get(source, ("", []))
        if known == key.hexdigest():
            index.entries.extend(entries)
            return
        add(page)
        _entries[source] = key.hexdigest(), index.entries[at:]

    index.add_entry_from_context = kept


class Templates(BytecodeCache):
    """The theme's templates, compiled: each build makes an environment of its own."""

    def __init__(self) -> None:
        self._compiled: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if known := self._compiled.get(bucket.key):
            bucket.bytecode_from_string(known)  # jinja2 compares a checksum of the source

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._compiled[bucket.key] = bucket.bytecode_to_string()


_templates = Templates()


def compile_once(env: Environment) -> None:
    """Let an environment take templates that are compiled already."""
    if _serving:
        env.bytecode_cache = _templates


def changed(files: Iterable[Path]) -> bool:
    """Whether any of these files has changed since this was last asked."""
    now = {path: (stat.st_mtime_ns, stat.st_size) for path in files for stat in [path.stat()]}
    if now == _seen:
        return False
    _seen.clear()
    _seen.update(now)
    return True
