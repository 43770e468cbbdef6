"""What the browser tests share: the built site, one browser, and pages that notice what goes wrong.

A pytest plugin (`pytest_plugins = ["browser"]` in a test module), so that all modules use one site
and one browser: Playwright allows only one per process. PYTEST_DONT_REWRITE: modules import from
it before pytest sees the plugin, and its assertions bring their own messages.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
LAPTOP = {"width": 1280, "height": 720}
PHONE = {"width": 390, "height": 844}
OWN = "http://127.0.0.1:"  # a request anywhere else is a foreign one
SUBPATH = "/deep/er/"  # where the site is served, as on a host of many; scratch sites have a root
NOWHERE = f"{OWN}9{SUBPATH}"  # the address of the one build that all workers copy


class QuietHandler(SimpleHTTPRequestHandler):
    prefix = "/"

    def log_message(self, *_args: object) -> None:
        pass

    def translate_path(self, path: str) -> str:
        inside = urlsplit(path).path
        below = inside.startswith(self.prefix)
        return super().translate_path("/" + inside.removeprefix(self.prefix) if below else "/\0")

    def send_error(self, code: int, *_texts: object) -> None:
        page = Path(self.directory, "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page)


def build(source: Path, folder: Path, address: str) -> None:
    """Build the site in `source`, every warning an error."""
    # A repository address, because Material would ask its host for the number of stars.
    env = {**os.environ, "SITE_URL": address, "REPO_URL": "https://github.com/example/example"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    done = subprocess.run(command, cwd=source, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def served(folder: Path, prefix: str = "/") -> Iterator[str]:
    """Serve a folder that may be filled later; yields its address."""
    handler = type("Handler", (QuietHandler,), {"prefix": prefix})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"{OWN}{server.server_port}{prefix}"
    server.shutdown()


@contextmanager
def built(source: Path, folder: Path, prefix: str = "/") -> Iterator[str]:
    """Build the site in `source` for the address it is served at; yields that address."""
    with served(folder, prefix) as address:
        build(source, folder, address)
        yield address


@pytest.fixture(scope="session")
def site_folder(tmp_path_factory):
    """Where the files of `site` lie."""
    return tmp_path_factory.mktemp("served") / "site"


@pytest.fixture(scope="session")
def site(site_folder, tmp_path_factory):
    """The address of this site: one build for all workers, of which each serves a copy."""
    run = tmp_path_factory.getbasetemp()
    run = run.parent if "PYTEST_XDIST_WORKER" in os.environ else run
    one = run / "one-site"
    with (run / "one-site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not one.exists():
            build(ROOT, run / "unfinished", NOWHERE)
            (run / "unfinished").rename(one)
    shutil.copytree(one, site_folder)
    with served(site_folder, SUBPATH) as address:
        named = [p for p in site_folder.rglob("*") if p.suffix in (".html", ".xml", ".txt", ".md")]
        for path in named:
            path.write_text(path.read_text("utf-8").replace(NOWHERE, address), "utf-8")
        yield address


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI=true, and no chromium to check the site with")
        pytest.skip("no chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        args = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=args)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens pages that keep a list of what went wrong: script errors and foreign requests."""
    contexts = []

    def open_page(viewport=LAPTOP, **options):
        def note_failure(request):
            # Aborted: the test left the page while its icon was still under way. A file that is
            # missing comes with a status instead, and the console reports that as an error.
            if request.failure != "net::ERR_ABORTED":
                page.wrong.append(f"failed: {request.url} {request.failure}")

        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.wrong = []
        page.on("pageerror", lambda error: page.wrong.append(f"script: {error}"))
        page.on("console", lambda m: m.type == "error" and page.wrong.append(f"console: {m.text}"))
        page.on("requestfailed", note_failure)

        def only_own(route):
            if not route.request.url.startswith(OWN):
                page.wrong.append(f"foreign request: {route.request.url}")
                return route.abort()
            return route.continue_()

        page.route(re.compile("^https?:"), only_own)
        return page

    yield open_page
    for context in contexts:
        context.close()


def plotly_is_loaded(page) -> bool:
    return page.evaluate("typeof Plotly !== 'undefined'")


def switch_scheme(page, scheme: str) -> None:
    """Press the palette button until the scheme is in force."""
    for _ in range(3):
        if page.locator("body").get_attribute("data-md-color-scheme") == scheme:
            return
        page.locator("label.md-header__button[for^='__palette']:visible").click()
    assert page.locator("body").get_attribute("data-md-color-scheme") == scheme
