"""The site's one MkDocs hook: what configuration cannot do.

- Kernel files live in `snippets/`, outside `docs/`, because they are imported and tested. Pages
  link to them (`/snippets/<post>/kernel.py`), so they are published from where they are: nothing is
  copied into `docs/`, and a strict build knows when such a link is broken.
- Formulas become MathML while building, so that a page needs no script to show them.
- Material shows a date only in the form another plugin gives it, and asks the host of a repository
  for its number of stars from the reader's browser. The first is given, the second taken away.
- In an indented block, such as a folded answer, Markdown takes HTML for a part of a paragraph.
  Browsers forgive the result, validators do not.
- Links away from the site are marked. A heading's link to itself has a name and no title: the theme
  makes a tooltip for each title while the page starts.
- Code is most of a page's elements. A span whose colour is the text's own is taken away, and a
  block says how many lines it has, so that a browser can leave it aside until it comes near.
- The theme's own script for the colour scheme costs more than the rest of it; scheme.js takes its
  place, and the scheme of a first visit is known before the page is painted.
- When all pages are written, their style, scripts and security policy are packed (packing.py, a
  module of its own because it knows nothing of MkDocs and is tested on small pages).
"""

import html
import logging
import re
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from snippets._site import packing

PUBLISHED = ("kernel.py", "module.py", "exercise.py", "in_transformers.py")

# pymdownx.arithmatex (generic) marks formulas: \(…\) in a span, \[…\] in a div.
FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
# Elements of MathML with a fixed number of arguments.
CHILDREN = {
    **dict.fromkeys(("mfrac", "mroot", "msub", "msup", "munder", "mover"), 2),
    **dict.fromkeys(("msubsup", "munderover"), 3),
}
HEADING_WITH_FORMULA = re.compile(r"<h([1-6])\b(?:(?!</h\1>).)*arithmatex", re.DOTALL)

# Names and spaces have no colour of their own (--md-code-hl-name-color is the ink).
PLAIN_SPAN = re.compile(r'<span class="(?:n|w)">([^<]*)</span>')
CODE_BLOCK = re.compile(r'<div class="([^"]*\bhighlight\b[^"]*)">(?=(.*?)</code></pre>)', re.DOTALL)

# What Markdown leaves of HTML in an indented block.
BLOCK = "(?:div|figure|figcaption|details|summary)"
STRAY = re.compile(
    rf"<p>(?=\s*</?{BLOCK}\b)|(?P<block></{BLOCK}>\s*)</p>|(?P<tag><[a-z]+\b[^<>]*) markdown>"
)

# A link away from the site. A style sheet cannot tell: instant navigation makes every link whole.
OUTWARD = re.compile(r'<a (?=[^>]*\bhref="https?://)(?![^>]*\brel=)')

HEADERLINK = re.compile(r'(<a class="headerlink" href="[^"]*" )title(?==)')

# Below "mkdocs", so that a warning fails a strict build.
log = logging.getLogger("mkdocs.hooks.site")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Publish what a reader may copy from each room (a folder without a leading underscore)."""
    snippets = Path(config.config_file_path).parent / "snippets"
    for path in sorted(snippets.glob("[!_]*/*.py")):
        if path.name in PUBLISHED:
            uri = f"snippets/{path.parent.name}/{path.name}"
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show the page's date at its foot."""
    day = page.meta.get("date")
    if isinstance(day, date):
        page.meta["git_creation_date_localized"] = f"{day.day} {day:%B %Y}"
    return markdown


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn formulas into MathML (one that cannot be is a warning that names it); lighten code."""
    name = page.file.src_uri
    if HEADING_WITH_FORMULA.search(content):
        # A heading is also a link's name, a search title and a line of the table of contents.
        log.warning("%s: a heading holds a formula; say it in words", name)
    content = STRAY.sub(
        lambda m: (m["block"] or "") + (f"{m['tag']}>" if m["tag"] else ""), content
    )
    content = OUTWARD.sub('<a rel="external" ', content)
    content = HEADERLINK.sub(r"\1aria-label", content)
    content = PLAIN_SPAN.sub(r"\1", content)
    content = CODE_BLOCK.sub(
        lambda m: f'<div class="{m[1]}" style="--am-lines: {m[2].count(chr(10))}">', content
    )
    return FORMULA.sub(lambda match: _mathml(match["latex"], match["tag"] == "div", name), content)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Put right what the theme's templates have too much or too little."""
    return packing.mended(output)


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for the 404 page, which is made from a template."""
    return packing.mended(output) if template_name.endswith(".html") else output


def on_post_build(config: MkDocsConfig) -> None:
    """Pack what a browser needs before it paints."""
    try:
        packing.pack(Path(config.site_dir))
    except packing.PackingError as error:
        raise PluginError(str(error)) from error


def _mathml(escaped: str, block: bool, page: str) -> str:
    latex = html.unescape(escaped).strip()
    try:
        mathml = convert(latex, display="block" if block else "inline")
        _check(latex, mathml)
    except Exception as error:  # noqa: BLE001 (latex2mathml's errors have no base class)
        log.warning("%s: formula %s: %s", page, latex, str(error) or type(error).__name__)
        return f"<code>{escaped}</code>"
    return f'<div class="am-math">{mathml}</div>' if block else mathml


def _check(latex: str, mathml: str) -> None:
    """Raise ValueError for what latex2mathml lets pass: it would show as nonsense."""
    braces = re.sub(r"\\[{}]", "", latex)
    if braces.count("{") != braces.count("}"):
        raise ValueError("unbalanced braces")
    for node in ElementTree.fromstring(mathml).iter():
        tag = node.tag.rpartition("}")[2]
        if (node.text or "").lstrip().startswith("\\"):
            raise ValueError(f"unknown command {node.text}")
        if len(node) != CHILDREN.get(tag, len(node)):
            raise ValueError(f"{tag} lacks an argument")
