"""The site's one MkDocs hook: what configuration cannot do. Each subject has its module.

- `published` publishes the files that a reader may copy, `listings` gives each a page, and
  `notebooks` shows notebooks as pages; `search` writes the index;
- `named_numbers` fills in the numbers that a page names, `includes` shows whole functions;
- `formulas`, `tables`, `glossary`, `reference`, `moved` and `html_fixes` change the HTML,
  `stale`, `unmeasured` and `mistakes_table` add what is known only at build;
- `your_kernel` folds kernels to what readers need (`fold`, `fold_words`, `host_side`), and
  publishes the files;
- `playground`, with `kernels` and `exercises`, gives each listing of a kernel a way to run it;
- `about` and `cards` say how long a page is, when it was measured and what a link to it shows;
- `export` writes each page as Markdown, with llms.txt and a feed;
- `packing`, with `scripts`, puts what a browser waits for before it paints into one style, one
  script and one policy.
"""

import logging
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from jinja2 import Environment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.livereload import LiveReloadServer
from mkdocs.plugins import event_priority
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

from snippets._lab.results.store import DataError
from snippets._lab.rooms import ROOT
from snippets._site import (
    about,
    exercises,
    export,
    formulas,
    front_menu,
    glossary,
    html_fixes,
    listings,
    mistakes_table,
    moved,
    named_numbers,
    notebooks,
    numbering,
    packing,
    playground,
    published,
    reference,
    repository,
    search,
    stale,
    tables,
    unmeasured,
    your_kernel,
)

log = logging.getLogger("mkdocs.hooks.site")
EXAMPLE = re.compile(r"(?:^|\.)(?:example(?:\.(?:com|net|org))?|invalid|test)$")  # RFC 2606
_command: list[str] = []  # of MkDocs: build or serve


def on_startup(command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:
    """Remember whether pages are served: MkDocs adds a script of its own to them."""
    _command[:] = [command]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Drop the style sheet of mkdocstrings, of which ours have the few rules that are needed; add
    those of widgets, which lie beside their scripts. Name the version, and warn of an address that
    is nobody's: a strict build, which is what is published, refuses it.
    """
    for name, address in {"SITE_URL": config.site_url, "REPO_URL": config.repo_url}.items():
        if EXAMPLE.search(urlsplit(address or "").hostname or ""):
            log.warning("%s is an example's address: %s", name, address)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    config.copyright = f"{config.copyright} Version {project['version']}."
    config.extra_css = [path for path in config.extra_css if "_mkdocstrings" not in str(path)]
    docs = Path(config.docs_dir)
    found = sorted(docs.glob("assets/javascripts/widgets/*.css"))
    config.extra_css += [path.relative_to(docs).as_posix() for path in found]
    listed = config.plugins["material/tags"].config
    listed.tags_sort_by = listed.listings_tags_sort_by = _as_a_reader_sorts
    listed.listings_sort_by = _as_a_reader_counts
    stale.forget()
    return config


def _as_a_reader_sorts(tag: Any, *_listing: Any) -> str:
    """A tag's place in a list: "FlashAttention" is an f."""
    return str(tag.name).casefold()


def _as_a_reader_counts(listed: Any) -> list[str | int]:
    """A page's place in a list: post 2 comes before post 10."""
    parts = re.split(r"(\d+)", str(listed.item.title))
    return [int(x) if x.isdigit() else x.casefold() for x in parts]


@event_priority(100)  # before mkdocs-jupyter looks for notebooks
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Publish the rooms' files and kernels, and give mkdocs-jupyter the executed notebooks."""
    published.add(files, config)
    your_kernel.add(files, config)
    numbering.add(files, config)
    try:
        playground.add(files, config)
    except exercises.ExerciseError as error:
        raise PluginError(str(error)) from error
    notebooks.give(files, config)
    return files


def on_serve(
    server: LiveReloadServer, config: MkDocsConfig, builder: Callable[..., None]
) -> LiveReloadServer:
    """Show what `make notebooks` prints as soon as it has run."""
    notebooks.CACHE.mkdir(parents=True, exist_ok=True)
    server.watch(str(notebooks.CACHE))
    return server


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Remember the pages in the order of the series."""
    export.remember_order(nav.pages)
    listings.remember(nav)
    return nav


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> Environment:
    """Remember the theme's templates for the pages of files."""
    listings.draw(env, files)
    return env


def on_page_read_source(page: Page, config: MkDocsConfig) -> str | None:
    """A notebook's text and what it says about itself; other pages are read as ever."""
    return notebooks.source(page) if notebooks.is_notebook(page) else None


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draw what is drawn at build, keep the text for its Markdown version, link the reference."""
    about.date_at_the_foot(page)
    markdown = unmeasured.shown(markdown, Path(config.docs_dir).parent)
    markdown = your_kernel.shown(markdown)
    markdown = repository.shown(markdown, config.repo_url or "")
    try:
        markdown = named_numbers.filled(markdown, Path(config.docs_dir))
        markdown = mistakes_table.shown(markdown, Path(config.docs_dir) / "data")
        snippets = Path(config.docs_dir).parent / "snippets"
        markdown = exercises.ladder(exercises.shown(markdown, snippets), snippets, export.titles())
        markdown = playground.listed(markdown, config, export.titles())
    except (DataError, exercises.ExerciseError, named_numbers.UnknownNumber) as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from error
    export.remember_text(markdown, page, config)
    page.meta["moved"] = numbering.moved(page)
    markdown = moved.linked(markdown, page.meta["moved"])
    return playground.marked(reference.linked(markdown, page, files))


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change a page's HTML, one subject after the other."""
    try:
        if notebooks.is_notebook(page):
            content = notebooks.as_page(content, page, files, config.repo_url)
        content = stale.shown(content, Path(config.docs_dir) / "data")
        content = moved.anchored(content, page.meta["moved"])
    except (notebooks.NotebookError, moved.MovedError, DataError) as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from error
    content = listings.viewed(html_fixes.fixed(content))
    content = formulas.converted(content, page.file.src_uri)
    content = reference.plainer(content)
    content = playground.shown(content, config)
    content = search.without_asides(numbering.numbered(tables.folded(content), page, files))
    words = files.get_file_from_path(glossary.PAGE)
    if words is None or not (page.is_homepage or about.is_read(page)):
        return content
    url = words.url_relative_to(page.file)
    entries = glossary.definitions(words.content_string)
    return glossary.mark(content, entries, url, page.file.name)


def on_page_context(
    context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Navigation
) -> dict[str, Any]:
    """What the theme's templates show beside a page's own text."""
    try:
        context["reading"] = about.context(page, config, nav)
        posts = about.posts(nav)
        page.content = front_menu.filled(page.content or "", posts, page, config.docs_dir)
    except (DataError, named_numbers.UnknownNumber) as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from error
    if notebooks.is_notebook(page):
        context["reading"]["card"] = notebooks.card_path(page)
    about.place_beside(page, nav)
    return context


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Put right what the theme's templates have too much or too little of."""
    about.leave(page)
    return html_fixes.fixed_template(output)


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for the 404 page, which is made from a template."""
    return html_fixes.fixed_template(output) if template_name.endswith(".html") else output


def on_post_build(config: MkDocsConfig) -> None:
    """Write what is no page, and pack what a browser needs before it paints."""
    export.write(config)
    listings.write(config)
    moved.write(config)
    notebooks.publish(config)
    site = Path(config.site_dir)
    try:
        search.pack(site, Path(config.docs_dir) / glossary.PAGE, list(export.titles()))
        packing.pack(site, config.extra_css, served=_command == ["serve"])
    except packing.PackingError as error:
        raise PluginError(str(error)) from error
