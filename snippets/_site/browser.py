"""The one HTTP server and the one Chromium of this repository, for checks and for tests."""

import gzip
import mimetypes
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from snippets._lab.results.store import DataError

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# Without a sandbox, which containers do not allow, and without requests of its own.
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PHONE = {"width": 390, "height": 844}
LAPTOP = {"width": 1280, "height": 720}
REPLACED = 'class="am-replaced"'  # a page that leads to another at once
# Until what observes the layout has answered it.
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
WITH_ADDRESSES = (".html", ".xml", ".txt", ".md")


class Server:
    """Serves a built site below a prefix, compressed, and keeps a list of (path, bytes sent).

    A site that was built for the address `built_for` is served as if it had been built for this
    server's. The folder may be filled, or changed, while it is served.
    """

    def __init__(self, folder: Path, prefix: str = "/", built_for: str = "") -> None:
        self.folder, self.prefix, self.built_for = folder, prefix, built_for
        self.sent: list[tuple[str, int]] = []
        self.last = time.monotonic()  # when something was sent
        self._bodies: dict[Path, tuple[int, bytes, bytes]] = {}  # time of change, as is, compressed
        self._server = _QuietServer(("127.0.0.1", 0), self._handler())
        self.address = f"http://127.0.0.1:{self._server.server_port}{prefix}"

    def __enter__(self) -> "Server":
        serve = partial(self._server.serve_forever, poll_interval=0.05)
        threading.Thread(target=serve, daemon=True).start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = unquote(urlsplit(self.path).path)
                file = server._file(path)
                plain, small = server._body(file) if file else server._not_found()
                compressed = "gzip" in self.headers.get("Accept-Encoding", "")
                body = small if compressed else plain
                self.send_response(200 if file else 404)
                kind = mimetypes.guess_type((file or Path("404.html")).name)[0]
                self.send_header("Content-Type", kind or "application/octet-stream")
                if compressed:
                    self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                server.sent.append((path, len(body)))
                self.wfile.write(body)
                server.last = time.monotonic()

            def log_message(self, *_args: object) -> None:
                """Nothing: what was sent is in the server's list."""

        return Handler

    def _file(self, path: str) -> Path | None:
        """The file behind a path, if there is one below the folder."""
        if not path.startswith(self.prefix):
            return None
        file = self.folder / path.removeprefix(self.prefix)
        file = file / "index.html" if path.endswith("/") else file
        inside = file.resolve().is_relative_to(self.folder.resolve())
        return file if inside and file.is_file() else None

    def _body(self, file: Path) -> tuple[bytes, bytes]:
        """A file's content as it is and compressed; made once, until the file changes."""
        changed = file.stat().st_mtime_ns
        if self._bodies.get(file, (0,))[0] != changed:
            plain = file.read_bytes()
            if self.built_for and file.suffix in WITH_ADDRESSES:
                plain = plain.replace(self.built_for.encode(), self.address.encode())
            self._bodies[file] = changed, plain, gzip.compress(plain, 9, mtime=0)
        return self._bodies[file][1:]

    def _not_found(self) -> tuple[bytes, bytes]:
        page = self.folder / "404.html"
        return self._body(page) if page.is_file() else (b"not found", gzip.compress(b"not found"))


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # one that finds no room waits seconds before it asks again

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a browser that leaves a page cuts its connections."""


def program() -> str | None:
    """Where Chromium is; None if it is not installed."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless Chromium. Raises DataError where there is none."""
    path = program()
    if path is None:
        raise DataError(f"a browser is needed: none of {', '.join(PROGRAMS)} is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield browser
        browser.close()


def addresses(site: Path) -> list[str]:
    """Addresses of the pages of a built site, from its root on. Raises DataError if it has none."""
    pages = [p for p in site.rglob("index.html") if REPLACED not in p.read_text("utf-8")]
    found = sorted(p.parent.relative_to(site).as_posix() for p in pages)
    if not found:
        raise DataError(f"{site} holds no page")
    return ["" if page == "." else f"{page}/" for page in found]


def see_everything(page: Any) -> None:
    """Scroll through a page until each figure in sight is drawn and each widget built."""
    for box in page.locator(".am-plot").all():
        if box.is_visible():
            box.scroll_into_view_if_needed()
            box.locator(".main-svg, .am-missing").first.wait_for()
    built = "source => !source.isConnected || source.closest(':has(> .am-missing)')"
    for source in page.query_selector_all(".am-source"):
        if source.is_visible():
            source.evaluate("source => source.scrollIntoView()")  # it may be built by now
            page.wait_for_function(built, arg=source)
    page.evaluate("scrollTo(0, 0)")
    page.evaluate(TWO_FRAMES)
