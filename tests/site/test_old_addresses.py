"""Addresses that people may have linked, a page a line with its anchors, lead to their content.

`?scene` is a view of that page's widget. A link that holds an edit names one of a room's kernels.

`BUILT_SITE=.cache/site pytest -m browser` asks a site that is built already.
"""

import json
import posixpath
from pathlib import Path
from urllib.parse import urldefrag

import pytest
from bs4 import BeautifulSoup

from tests.floors import some
from tests.site.test_site import fail_with

pytestmark = pytest.mark.browser  # which build the site anyway
pytest_plugins = ["tests.browser.browser"]

OLD = Path(__file__).with_name("old_addresses.txt")
FORWARDED = ".am-moved a[id][href], .am-replaced[href]"
WHOLE = "the page"  # has become a part of another


def read(text):
    """A page's ids and widgets, each with what it forwards to."""
    html = BeautifulSoup(text, "html.parser")
    ids = [element["id"] for element in html.find_all(id=True)]
    ids += ["?" + element["data-widget"] for element in html.select("[data-widget]")]
    links = {link.get("id", WHOLE): link["href"] for link in html.select(FORWARDED)}
    return dict.fromkeys(ids, "") | links


def edited(text):
    """The kernels that a link may hold an edit of."""
    return dict.fromkeys(json.loads(text)["kernels"], "")


class Site:
    """Where the addresses of a built site lead."""

    def __init__(self, folder):
        self.folder, self.pages = folder, {}

    def anchors(self, page):
        """The ids of a page, each with what it forwards to; None where there is no page."""
        if page not in self.pages:
            path = self.folder / page / ("index.html" if page.endswith("/") else "")
            text = path.read_text("utf-8") if path.is_file() else ""
            self.pages[page] = (edited if page.endswith(".json") else read)(text) if text else None
        return self.pages[page]

    def end(self, page, anchor=""):
        """The page and the anchor where a reader arrives; None at an address without either."""
        for _ in range(4):  # from a page of numbers to a post and on
            ids = self.anchors(page)
            if ids is not None and WHOLE in ids:
                path = ids[WHOLE]
            elif ids is None or (anchor and anchor not in ids):
                return None
            elif not (link := ids.get(anchor)):
                return page, anchor
            else:
                path, anchor = urldefrag(link)
            folder = posixpath.dirname(page)
            page = posixpath.normpath(posixpath.join(folder, path)) + "/" * path.endswith("/")
        return None


def lost(site, page, anchors):
    """What a page's front matter lacks: under the section that stood above it, the old ids."""
    found, above = {}, "?"
    for anchor in anchors:
        if end := site.end(page, anchor):
            there, section = end
            above = section if there == page else f"/{there.rstrip('/')}.md#{section}"
        else:
            found.setdefault(above, []).append(anchor)
    return [f"{above}: [{', '.join(ids)}]" for above, ids in found.items()]


def old():
    return [line.split() for line in OLD.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def site(site_folder):
    return Site(site_folder)


def test_every_old_page_is_there(site):
    gone = [page for page, *_ in some(old(), 90) if not site.end(page)]
    fail_with(gone, "these pages had readers")


@pytest.mark.parametrize(("page", "anchors"), [(page, ids) for page, *ids in old() if ids])
def test_every_old_anchor_leads_to_its_content(site, page, anchors):
    fail_with(lost(site, page, anchors), f"{page}: `moved:` of its front matter lacks")


def test_an_anchor_is_followed_or_missed(tmp_path):
    moved = '<p class="am-moved"><a id="old" href="{}">b</a></p><h2 id="x"></h2>'
    for page, link in {"a": "../b/#new", "c": "../b/#no", "d": "../e/"}.items():
        (tmp_path / page).mkdir()
        (tmp_path / page / "index.html").write_text(moved.format(link))
    (tmp_path / "b").mkdir()
    (tmp_path / "b/index.html").write_text('<h2 id="new"></h2>')
    (tmp_path / "f").mkdir()
    (tmp_path / "f/index.html").write_text('<a class="am-replaced" href="../a/">a</a>')
    (tmp_path / "f/g.html").write_text('<a class="am-replaced" href="../a/">a</a>')
    site = Site(tmp_path)
    assert site.end("a/", "old") == ("b/", "new")
    assert lost(site, "a/", ["gone", "x", "y", "old", "z"]) == [
        "?: [gone]",
        "x: [y]",
        "/b.md#new: [z]",
    ]
    assert site.end("f/", "old") == ("b/", "new")
    assert site.end("f/g.html", "old") == ("b/", "new")
    assert not site.end("f/", "gone")
    assert not site.end("c/", "old")
    assert not site.end("d/", "old")
    assert not site.end("e/")
