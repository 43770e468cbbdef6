"""What a browser waits for before it paints, packed: its style inline, one script, one policy.

A page of the theme asks for five style sheets and five scripts before its first paint. After a
build the style is written into every page, and that of its widgets beside it; our scripts are one
module (scripts.py); and every page carries the same Content-Security-Policy. Its inline scripts
differ by the page's depth, and instant navigation adds the head of the next page to this one, so
each page names the hashes of all.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import rcssmin

from snippets._site import scripts
from snippets._site.scripts import PackingError

STYLESHEET = re.compile(r'[ \t]*<link rel="stylesheet" href="([^"]*?)assets/[^"]+">\n?')
INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
WIDGET = re.compile(r'\bdata-widget="(\w+)"')
CHARSET = '<meta charset="utf-8">'
FACE = re.compile(r"@font-face[^{}]*\{[^{}]*\burl\([^{}]*\}")
RULE = re.compile(r"(?P<selectors>[^{}@;]+)\{[^{}]*\}")
CLASS = re.compile(r"\.(-?[A-Za-z_][\w-]*)")
STATED = re.compile(r'\b(dir|data-md-color-(?:primary|accent))="?(\w[\w-]*)')
PROPERTY = re.compile(r'(?<=[{;])(--[\w-]+):(?:"[^"]*"|[^;{}"])*;?')
# The theme's rules for a table without a class: its script would take such a table out of the page
# and put it back in a box, which tables.py has done before.
UNBOXED, BOXED = "table:not([class])", "table.am-table"


def pack(site: Path, own: Sequence[str], served: bool = False) -> None:
    """Rewrite every page below `site`; `own`: our style sheets. Raises PackingError.

    `served`: by MkDocs, which adds a script of its own to reload a page when it has changed.
    """
    pages = {path: path.read_text("utf-8") for path in sorted(site.rglob("*.html"))}
    theme = _text(sorted(site.glob("assets/stylesheets/*.min.css"))).replace(UNBOXED, BOXED)
    widgets = {p.stem: _text([p]) for p in (site / "assets/javascripts/widgets").glob("*.css")}
    common = _text(site / path for path in own if "/widgets/" not in path)
    faces = "".join(FACE.findall(common))
    address = scripts.pack(site)
    code = [
        *site.glob("assets/javascripts/bundle.*.js"),
        *(site / address).parents[1].rglob("*.js"),
    ]
    said = "".join(path.read_text("utf-8") for path in code)
    read = said + "".join(pages.values())
    named = {name for page in pages.values() for name in _classes(page)}
    named |= {*re.findall(r"[\w-]+", said)}
    theme = _used(theme, named, {*STATED.findall(read)})
    read += common + "".join(widgets.values())
    style = _read(theme, {*re.findall(r"--[\w-]+", read)}) + FACE.sub("", common)
    policy = policy_for(pages.values(), served)
    for path, page in pages.items():
        link = STYLESHEET.search(page)
        if not theme or not link or CHARSET not in page:
            raise PackingError(f"{path} is unlike a page of this site")
        meta = f'{CHARSET}\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
        there = sorted({*WIDGET.findall(page)} & {*widgets})
        # The fonts' files have another address on each level, so their rules stand apart.
        texts = [
            style,
            "".join(widgets[name] for name in there),
            faces.replace("../", f"{link[1]}assets/"),
        ]
        inline = "".join(f"<style>{text}</style>\n" for text in texts if text)
        head, *rest = STYLESHEET.split(page)[::2]
        page = f"{head}{inline}{''.join(rest)}".replace(CHARSET, meta, 1)
        path.write_text(page.replace(f"{scripts.SOURCE}/{scripts.FIRST}", address), "utf-8")


def _text(sheets: Iterable[Path]) -> str:
    return "".join(str(rcssmin.cssmin(path.read_text("utf-8"))) for path in sheets)


def _classes(page: str) -> Iterable[str]:
    return (name for names in re.findall(r'\bclass="([^"]*)"', page) for name in names.split())


def _used(style: str, named: set[str], stated: set[tuple[str, str]]) -> str:
    """The theme's rules without selectors that ask for a class, direction or color nothing has.

    Half of that style is for parts that this site has nowhere, and every page carries it.
    """

    def kept(rule: re.Match[str]) -> str:
        alive = [
            selector
            for selector in _selectors(rule["selectors"])
            # A comma in parentheses parts a selector too: then more is kept than could match.
            if any({*CLASS.findall(s)} <= named for s in selector.split(","))
            and {*STATED.findall(selector)} <= stated
        ]
        return rule[0].replace(rule["selectors"], ",".join(alive), 1) if alive else ""

    return RULE.sub(kept, style)


def _selectors(listed: str) -> list[str]:
    parts: list[str] = []
    for piece in listed.split(","):
        if parts and parts[-1].count("(") > parts[-1].count(")"):
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
    return parts


def _read(style: str, elsewhere: set[str]) -> str:
    """The theme's style without custom properties that nothing reads, icons above all."""
    before, read = "", elsewhere

    def kept(found: re.Match[str]) -> str:
        return found[0] if found[1] in read else ""

    while before != style:
        before = style
        read = elsewhere | {*re.findall(r"var\((--[\w-]+)", style)}
        style = PROPERTY.sub(kept, style)
    return re.sub(r"(?<=\})[^{}@]+\{\}", "", style)


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
