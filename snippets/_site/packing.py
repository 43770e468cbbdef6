"""What a browser waits for before it paints, packed: its style inline, one script, one policy.

A page of the theme asks for five style sheets and five scripts before its first paint. After a
build the style that can match is written into every page (styles.py), and that of its widgets
beside it; our scripts are one module (scripts.py); and every page carries the same
Content-Security-Policy. Its inline scripts differ by
the page's depth, and instant navigation adds the head of the next page to this one, so each page
names the hashes of all.
"""

import base64
import functools
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from snippets._site import fonts, scripts, styles
from snippets._site.scripts import PackingError

STYLESHEET = re.compile(r'[ \t]*<link rel="stylesheet" href="([^"]+)">\n?')
THEME_STYLE = re.compile(r"\.min\.css$")
SCRIPT = re.compile(r'[ \t]*<script src="([^"]+)"(?: type="module")?></script>\n?')
THEME_SCRIPT = re.compile(r"\bassets/javascripts/bundle\.\w+\.min\.js$")
INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
WIDGET = re.compile(r'\bdata-widget="(\w+)"')
CHARSET = '<meta charset="utf-8">'


def pack(site: Path, served: bool = False) -> None:
    """Rewrite every page below `site`. Raises PackingError for what would be lost.

    `served`: by MkDocs, which adds a script of its own to reload a page when it has changed.
    """
    pages = {path: path.read_text("utf-8") for path in sorted(site.rglob("*.html"))}
    sheets = _linked(STYLESHEET, pages, site)
    linked = _linked(SCRIPT, pages, site)
    own = site.resolve() / scripts.SOURCE / scripts.FIRST
    if not sheets or [p for p in linked if not THEME_SCRIPT.search(p.as_posix())] != [own]:
        raise PackingError(f"unlike a page of this site: styles {sheets}, scripts {linked}")
    theme = _text(path for path in sheets if THEME_STYLE.search(path.name))
    widgets = {path.stem: path for path in sheets if path.parent.name == "widgets"}
    ours = [path for path in sheets if not THEME_STYLE.search(path.name)]
    common = _text(path for path in ours if path not in widgets.values())
    apart = {name: styles.short(_text([path])) for name, path in widgets.items()}
    address = scripts.pack(site)  # beside the source of a widget's script lies its style
    code = [path for path in linked if path != own]
    code += sorted((site / address).parents[1].rglob("*.js"))
    names = styles.Names.of(pages.values(), _text(code))
    style = _style(theme, common, names.words, names.tabs, "".join(apart.values()))
    policy = policy_for(pages.values(), served)
    for path, page in pages.items():
        if CHARSET not in page:
            raise PackingError(f"{path} has no {CHARSET}, beside which its policy belongs")
        meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        page = page.replace(CHARSET, CHARSET + "\n      " + meta, 1)
        head, *rest = STYLESHEET.split(page)[::2]  # what stands between the links
        there = dict.fromkeys(name for name in WIDGET.findall(page) if name in apart)
        texts = [style, "".join(apart[name] for name in there)] if there else [style]
        # The fonts' files have another address on each level, so their rules stand apart.
        texts.append(fonts.faces(_root(page)))
        both = "".join(f"<style>{text}</style>\n" for text in texts)
        page = f"{head}{both}{''.join(rest)}"
        page = page.replace(f"{scripts.SOURCE}/{scripts.FIRST}", address)
        path.write_text(page, "utf-8")


@functools.lru_cache(maxsize=1)  # live reload packs again, and a new sentence changes no name
def _style(theme: str, common: str, words: frozenset[str], tabs: int, beside: str) -> str:
    return styles.packed(theme, common, styles.Names(words, tabs), beside)


def policy_for(pages: Iterable[str], served: bool = False) -> str:
    """A policy that allows the site itself and the inline scripts of these pages, by hash.

    The script that MkDocs adds to a `served` page is not known here, so any inline one may run.
    """
    inline = sorted({script for page in pages for script in INLINE_SCRIPT.findall(page)})
    digests = [hashlib.sha256(script.encode()).digest() for script in inline]
    hashes = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    if served:
        hashes = ["'unsafe-inline'"]  # beside a hash it would count for nothing
    return "; ".join(
        (
            "default-src 'none'",
            " ".join(["script-src 'self'", *hashes]),
            "style-src 'self' 'unsafe-inline'",  # Plotly writes style elements
            "img-src 'self' data: blob:",  # icons in the style; Plotly saves a figure from a blob
            "font-src 'self'",
            "connect-src 'self'",
            "worker-src 'self'",  # search
            "manifest-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
        )
    )


def _root(page: str) -> str:
    """From a page to the root of its site, as its first link to a style leads there."""
    link = STYLESHEET.search(page)
    return link[1].partition("assets/")[0] if link else ""


def _text(files: Iterable[Path]) -> str:
    return "\n".join(path.read_text("utf-8") for path in files)


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
