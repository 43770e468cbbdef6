"""The site in a zip, to be read by double click: a copy of a built site that needs no server.

A browser that opens a file lets no script ask for another: no module, no data, no worker. So text,
code, stills, tables, formulas and links work, and what a script would load does not. In this copy

- links name files, because nobody answers for a folder;
- one short script looks where the page is. From a server, it starts ours, and everything works.
  From a file, it takes the search away before the theme's script looks for it, and shows the line
  that says how to have the rest.

The zip holds `serve.txt` with the same command.
"""

import html
import posixpath
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from snippets._site.published import zipped

FOLDER = "attention-measured"
COMMAND = "python3 -m http.server"
START = "assets/start.js"
MODULE = re.compile(r'<script src="(?P<path>[^"]+)" type="module"></script>')
THEME = re.compile(r'(?=<script src="[^"]*assets/javascripts/bundle\.)')
LINK = re.compile(r'(?P<before><a\b[^>]*?\bhref=")(?P<link>[^"]*)(?=")')
BODY = re.compile(r"<main\b[^>]*>")
LINE = (
    '<p class="am-offline md-grid" hidden>This copy is read from a file, where a browser loads no '
    "data. For charts that answer, widgets and the search, run <code>{command}</code> in the "
    "folder of this copy and open <code>http://localhost:8000</code>.</p>"
)
# Beside the theme's script, before it: what is not there it does not start.
SCRIPT = """"use strict";
(() => {
  const own = document.currentScript.dataset.module;
  if (location.protocol === "file:") {
    document.documentElement.classList.add("am-from-file");
    const search = document.querySelectorAll("[data-md-component=search], label[for=__search]");
    for (const part of search) part.remove();
    for (const line of document.querySelectorAll(".am-offline")) line.hidden = false;
    return;
  }
  const script = document.createElement("script");
  script.type = "module";
  script.src = own;
  // After the theme's, whose streams ours subscribes to: a script that is added waits for no other.
  addEventListener("DOMContentLoaded", () => document.head.append(script));
})();
"""


class OfflineError(Exception):
    """The built site is unlike what can be read without a server."""


def archive(site: Path) -> bytes:
    """A zip of a built site, to be read without a server. Raises OfflineError."""
    files = {p.relative_to(site).as_posix(): p for p in sorted(site.rglob("*")) if p.is_file()}
    pages = [name for name in files if name.endswith(".html") and name != "404.html"]
    if "index.html" not in pages:
        raise OfflineError(f"{site} holds no front page")
    made = {}
    for name, path in files.items():
        if name in pages:
            made[name] = page_from_file(path.read_text("utf-8"), name, files).encode()
        elif not name.startswith(("sitemap.xml.", "404.")) and not name.endswith(".map"):
            made[name] = path.read_bytes()
    made[START] = SCRIPT.encode()
    text = f"Open index.html. For charts and search: {COMMAND}, then http://localhost:8000\n"
    made["serve.txt"] = text.encode()
    return zipped({f"{FOLDER}/{name}": content for name, content in made.items()})


def page_from_file(page: str, name: str, files: dict[str, Path]) -> str:
    """A page's HTML, `name` from the root of the site, as a browser can read it from a file."""
    module = MODULE.search(page)
    if module is None or not THEME.search(page):
        raise OfflineError(f"{name} starts no script of ours beside the theme's")
    up = "../" * name.count("/")
    address = module["path"].removeprefix("./")
    starter = f'<script src="{up}{START}" data-module="{address}"></script>'
    page = THEME.sub(starter, MODULE.sub("", page), count=1)
    line = LINE.format(command=html.escape(COMMAND))
    page = BODY.sub(lambda match: f"{line}{match[0]}", page, count=1)
    return LINK.sub(lambda match: match["before"] + _to_file(match["link"], name, files), page)


def _to_file(link: str, name: str, files: dict[str, Path]) -> str:
    """A link to a folder of the site, as a link to the page in it; any other as it is."""
    parts = urlsplit(html.unescape(link))
    if parts.scheme or parts.netloc or not parts.path or parts.path.startswith("/"):
        return link
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path)))
    page = "index.html" if target == "." else f"{target}/index.html"
    if target in files or page not in files:
        return link
    folder, mark, rest = link.partition(parts.path)
    return f"{folder}{mark.rstrip('/')}/index.html{rest}"
