"""What the browser tests share: the built site, one browser, and pages that notice what goes wrong.

A pytest plugin (`pytest_plugins = ["tests.browser.browser"]` in a test module), so that all modules
use one site and one browser: Playwright allows only one per process. PYTEST_DONT_REWRITE: modules
import from it before pytest sees the plugin, and its assertions bring their own messages.
"""

import fcntl
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from mkdocs.commands.build import build as mkdocs_build
from mkdocs.config import load_config
from playwright.sync_api import sync_playwright

from snippets._lab.rooms import ROOT
from snippets._site.browser import LAPTOP, OPTIONS, Server, program
from tests.browser.widgets import WIDGETS, is_built

OWN = "http://127.0.0.1:"  # a request anywhere else is a foreign one
SUBPATH = "/deep/er/"  # where the site is served, as on a host of many; scratch sites have a root
NOWHERE = f"{OWN}9{SUBPATH}"  # the address of the one build that all workers serve
CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}  # of a page that may copy
FONTS = "**/assets/fonts/*.woff2"
PATIENCE = 60_000  # ms: eight browsers on a few cores are slow, and only a failure waits this long
# The contrast of text with its background, for each element, as WCAG 2 defines it.
CONTRAST = """all => {
  const context = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const channels = (color) => {
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => c / 255);
  };
  const light = (color) => channels(color)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  return all.map((element) => {
    const { color, backgroundColor } = getComputedStyle(element);
    const [low, high] = [color, backgroundColor].map(light).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  });
}"""
MEASURE_SHIFT = """window.shift = 0;
new PerformanceObserver(list => list.getEntries().forEach(e => { window.shift += e.value; }))
  .observe({type: "layout-shift", buffered: true});"""


def build(source: Path, folder: Path, address: str = "") -> None:
    """Build the site in `source`, every warning an error."""
    changes = {"site_dir": str(folder), "site_url": address, "strict": True}
    # A repository address, because Material would ask its host for the number of stars.
    changes["repo_url"] = "https://github.com/example/example"
    before = os.getcwd()
    os.chdir(source)  # where mkdocstrings looks for sources
    try:
        mkdocs_build(load_config("mkdocs.yml", **changes))
    finally:
        os.chdir(before)


@contextmanager
def built(source: Path, folder: Path) -> Iterator[str]:
    """Build the site in `source` for the address it is served at; yields that address."""
    with Server(folder) as server:
        build(source, folder, server.address)
        yield server.address


def scratch_source(folder: Path, pages: dict[str, str], links: Iterable[str] = ()) -> Path:
    """The source of a site with this site's configuration and look, and pages of its own.

    `links`: folders of docs/ that it shares with this site, beside the scripts and styles.
    """
    for name, text in pages.items():
        path = folder / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for name in ("assets", *links):
        (folder / "docs" / name).symlink_to(ROOT / "docs" / name)
    (folder / "snippets").symlink_to(ROOT / "snippets")
    nav = "".join(f"  - {name}\n" for name in pages if name.endswith(".md"))
    (folder / "mkdocs.yml").write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\nnav:\n{nav}", "utf-8")
    return folder


@pytest.fixture(scope="session")
def site_folder(tmp_path_factory):
    """Where the files of `site` lie: one build for all workers, made for an address of nowhere.

    BUILT_SITE names one that is there already, for tests that read its files.
    """
    if named := os.environ.get("BUILT_SITE"):
        return Path(named)
    run = tmp_path_factory.getbasetemp()
    run = run.parent if "PYTEST_XDIST_WORKER" in os.environ else run
    one = run / "one-site"
    with (run / "one-site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not one.exists():
            build(ROOT, run / "unfinished", NOWHERE)
            (run / "unfinished").rename(one)
    return one


@pytest.fixture(scope="session")
def site(site_folder):
    """The address of this site."""
    with Server(site_folder, SUBPATH, built_for=NOWHERE) as server:
        yield server.address


@pytest.fixture(scope="session")
def playwright():
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def browser(playwright):
    if program() is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI=true, and no chromium to check the site with")
        pytest.skip("no chromium")
    launched = playwright.chromium.launch(executable_path=program(), args=OPTIONS)
    yield launched
    launched.close()


@pytest.fixture
def open_page(browser):
    """Opens pages, `at` an address if it is given; after the test none may have gone wrong.

    A page notes in `asked` what it has asked for, and in `wrong` errors of scripts and foreign
    requests: those whose address does not begin with `own`. A test in which something has to go
    wrong looks at that and clears it.
    """
    pages = []

    def open_page(viewport=LAPTOP, at="", until="load", own=OWN, **options):
        def note_failure(request):
            # Aborted: the test left the page while its icon was still under way. A file that is
            # missing comes with a status instead, and the console reports that as an error.
            if request.failure != "net::ERR_ABORTED":
                page.wrong.append(f"failed: {request.url} {request.failure}")

        page = browser.new_context(viewport=viewport, **options).new_page()
        pages.append(page)
        page.set_default_timeout(PATIENCE)
        page.asked, page.wrong = [], []
        page.on("pageerror", lambda error: page.wrong.append(f"script: {error}"))
        page.on("console", lambda m: m.type == "error" and page.wrong.append(f"console: {m.text}"))
        page.on("requestfailed", note_failure)

        def note_request(request):
            # Watched and not intercepted, which would switch the browser's cache off.
            page.asked.append(request.url)
            if not request.url.startswith((own, "data:", "blob:")):
                page.wrong.append(f"foreign request: {request.url}")

        page.on("request", note_request)
        if at:
            assert page.goto(at, wait_until=until).status == 200, at
        return page

    yield open_page
    wrong = [page.wrong for page in pages]
    for page in pages:
        page.context.close()
    assert not any(wrong), wrong


@pytest.fixture
def opened(open_page, site):
    """Opens a widget's page: the page, and the box that is built."""

    def opened(name, query="", viewport=LAPTOP, clock=False, **options):
        page = open_page(viewport, **options)
        if clock:
            page.clock.install()
        assert page.goto(f"{site}{WIDGETS[name].page}{query}").status == 200
        return page, is_built(page, name)

    return opened


def only_missing(page) -> None:
    """Nothing is wrong but what the browser itself says of a file that the test took away."""
    assert all("404" in wrong for wrong in page.wrong), page.wrong
    page.wrong.clear()


def violations(page, grave: bool = False, **asked) -> list[tuple[str, str]]:
    """What axe finds, or what of it is grave: each rule, with the first element that breaks it."""
    found = Axe().run(page, **asked).response["violations"]
    kept = [v for v in found if v["impact"] in ("serious", "critical") or not grave]
    return [(v["id"], v["nodes"][0]["html"][:200]) for v in kept]


def copied(page) -> str:
    return page.evaluate("navigator.clipboard.readText()")


def plotly_is_loaded(page) -> bool:
    return page.evaluate("typeof Plotly !== 'undefined'")


def measure_shift(page, *, fonts: bool = True) -> None:
    """Sum up in `window.shift` how far things jump on the pages that are opened from here on.

    Without fonts, letters stay those of the machine: a font that comes late moves words as well,
    which test_type.py measures apart.
    """
    page.add_init_script(MEASURE_SHIFT)
    if not fonts:
        page.route(FONTS, lambda route: route.fulfill(body=b""))


def switch_scheme(page, scheme: str) -> None:
    """Press the palette button until the scheme is in force."""
    for _ in range(3):
        if page.locator("body").get_attribute("data-md-color-scheme") == scheme:
            return
        page.locator("label.md-header__button[for^='__palette']:visible").click()
    assert page.locator("body").get_attribute("data-md-color-scheme") == scheme


def away_and_back(page) -> None:
    """Go to another page by instant navigation, and back: the document stays the same."""
    title = page.title()
    page.evaluate("window.sameDocument = true")
    others = page.locator(".md-nav--primary a.md-nav__link:not(.md-nav__link--active, [href*='#'])")
    others.first.evaluate("link => link.click()")  # also where a page hides its navigation
    page.wait_for_function("title => document.title !== title", arg=title)
    page.go_back()
    page.wait_for_function("title => document.title === title", arg=title)
    assert page.evaluate("window.sameDocument"), "the page was loaded anew: no instant navigation"


def apart(one, two, close: float, where: str = "") -> str:
    """Where two values of JSON differ: the first place, or nothing."""
    if isinstance(two, dict):
        if not isinstance(one, dict) or one.keys() != two.keys():
            return f"{where}: {one} for {two}"
        found = (apart(one[key], two[key], close, f"{where}.{key}") for key in two)
    elif isinstance(two, list):
        if not isinstance(one, list) or len(one) != len(two):
            return f"{where}: {one} for {two}"
        pairs = enumerate(zip(one, two, strict=True))
        found = (apart(a, b, close, f"{where}[{n}]") for n, (a, b) in pairs)
    elif type(two) in (int, float) and type(one) in (int, float):
        same = math.isclose(one, two, rel_tol=close, abs_tol=close)
        return "" if same else f"{where}: {one} for {two}"
    else:
        return "" if one == two else f"{where}: {one} for {two}"
    return next(filter(None, found), "")
