"""How quick the site is: every page beside the theme's stock page with the same text, in one run.

Both sites are built on the spot and served, compressed, from memory. A headless Chromium with a
CPU slowed four times and a slow mobile network opens each page with an empty cache, ours and the
stock page in turn, and the medians of five are kept. Absolute times belong to the machine; the
ratios are the result. `make audit` writes docs/assets/audit/audit.json and draws the table that a
page includes.
"""

import gzip
import json
import mimetypes
import re
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from snippets._lab.results import store
from snippets._lab.rooms import ROOT

REPORT = ROOT / "docs" / "assets" / "audit"
RUNS = 5
CPU_SLOWED = 4
LATENCY_MS = 562.5  # of each request; with the rates below what browsers' tools call slow 4G
DOWNLOAD = 1.6e6 * 0.9 / 8  # bytes/s
UPLOAD = 0.75e6 * 0.9 / 8
PHONE = {"width": 390, "height": 844}
LAPTOP = {"width": 1280, "height": 720}
QUIET_S = 2.0  # without a request: the page has loaded
BLOCKING_MS = 50  # a task is felt from here on
FIGURE_GRACE_MS, FIGURE_FACTOR = 2000, 2.5

OBSERVE = """
window.audit = {fcp: 0, lcp: 0, shift: 0, tasks: [], library: Infinity};
const watch = (type, note) => new PerformanceObserver(list => list.getEntries().forEach(note))
  .observe({type, buffered: true});
watch('paint', e => { if (e.name === 'first-contentful-paint') audit.fcp = e.startTime; });
watch('largest-contentful-paint', e => { audit.lcp = e.startTime; });
watch('layout-shift', e => { if (!e.hadRecentInput) audit.shift += e.value; });
watch('longtask', e => { audit.tasks.push([e.startTime, e.duration]); });
watch('resource', e => { if (e.name.includes('/assets/vendor/')) audit.library = e.responseEnd; });
"""
DRAW = """async () => {
  const box = document.querySelector('.am-plot');
  if (!box || !window.amFigures) return null; // no figure, or the stock page
  const began = performance.now();
  if (!box.classList.contains('am-drawn')) await new Promise((resolve, reject) => {
    new MutationObserver(() => box.classList.contains('am-drawn') && resolve())
      .observe(box, {attributes: true});
    setTimeout(() => reject(new Error('no figure after 60 s')), 60000);
    box.scrollIntoView({block: 'center'});
  });
  return performance.now() - began;
}"""


@dataclass(frozen=True)
class Sample:
    """One opening of one page. Bytes are those of compressed bodies; the search index is apart."""

    first_paint_ms: float
    largest_paint_ms: float
    shift: float
    blocking_ms: float
    bytes: int
    requests: int
    index_bytes: int
    figure_ms: float | None  # from scrolling to a figure until it is drawn
    figure_bytes: int


@dataclass(frozen=True)
class Budget:
    """What a page may cost: `limit`, of the stock page's value where `ratio`, or more: `floor`."""

    field: str
    title: str
    unit: str
    limit: float
    ratio: bool = False
    floor: float = 0.0  # less is not told from nothing

    def allowed(self, stock: float) -> float:
        return max(self.floor, self.limit * (stock if self.ratio else 1))


BUDGETS = (
    Budget("first_paint_ms", "first paint", "ms", 0.6, ratio=True),
    Budget("largest_paint_ms", "largest paint", "ms", 0.65, ratio=True),
    Budget("shift", "layout shift", "", 0.02),
    Budget("blocking_ms", "blocking", "ms", 0.8, ratio=True, floor=150),
    Budget("bytes", "bytes before a figure", "kB", 130_000),
    Budget("requests", "requests", "", 8),
    Budget("index_bytes", "search index", "kB", 150_000),
)


class Server:
    """Serves a built site, compressed, and keeps a list of (path, bytes sent)."""

    def __init__(self, folder: Path, prefix: str = "/") -> None:
        self.sent: list[tuple[str, int]] = []
        self.last = time.monotonic()
        files: dict[str, tuple[bytes, str]] = {}

        def body(path: str) -> tuple[bytes, str] | None:
            if path not in files:
                inside = path.removeprefix(prefix) if path.startswith(prefix) else "\0"
                file = folder / inside / "index.html" if path.endswith("/") else folder / inside
                if "\0" in inside or not file.is_file():
                    return None
                kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
                files[path] = gzip.compress(file.read_bytes(), 9, mtime=0), kind
            return files[path]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(handler) -> None:
                path = unquote(urlsplit(handler.path).path)
                content, kind = body(path) or (gzip.compress(b"not found"), "text/plain")
                handler.send_response(200 if body(path) else 404)
                handler.send_header("Content-Type", kind)
                handler.send_header("Content-Encoding", "gzip")
                handler.send_header("Content-Length", str(len(content)))
                handler.end_headers()
                self.sent.append((path, len(content)))
                handler.wfile.write(content)
                self.last = time.monotonic()

            def log_message(handler, *_args: object) -> None:
                pass

        class QuietServer(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a browser that leaves a page cuts its connections

        self.server = QuietServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}{prefix}"

    def __enter__(self) -> "Server":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def build(folder: Path, stock: bool = False, address: str = "") -> Path:
    """Build this site, or its text in the theme's stock look, into `folder`."""
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.config import load_config

    changes: dict[str, Any] = {"site_dir": str(folder), "site_url": address, "repo_url": ""}
    if stock:
        # Fonts would come from a third party, which no measuring machine needs to reach.
        changes |= {"theme": {"name": "material", "font": False}, "hooks": []}
        changes |= {"extra_css": [], "extra_javascript": []}
        # Links to files that a hook publishes.
        changes |= {"validation": {"links": {"not_found": "ignore"}}}
    mkdocs_build(load_config(str(ROOT / "mkdocs.yml"), **changes))
    return folder


def pages(site: Path, chosen: Iterable[str] = ()) -> list[str]:
    """Addresses of the pages of a built site, relative to its root; only the chosen, if any are.

    Raises DataError for a chosen one that is not there, and for a site without pages.
    """
    found = sorted(p.parent.relative_to(site).as_posix() for p in site.rglob("index.html"))
    if not found:
        raise store.DataError(f"{site} holds no page")
    every = ["" if page == "." else f"{page}/" for page in found]
    chosen = list(chosen)
    if unknown := set(chosen) - set(every):
        there = ", ".join(f"/{page}" for page in every)
        raise store.DataError(f"no page {', '.join(sorted(unknown))}; there are {there}")
    return chosen or every


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless Chromium. Raises DataError where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        raise store.DataError(f"a browser is needed: none of {', '.join(names)} is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        args = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=program, args=args)
        yield browser
        browser.close()


def open_slowly(browser: Any, server: Server, page_address: str) -> Sample:
    """Open one page of a server with an empty cache, a slow CPU and a slow network."""
    context = browser.new_context(viewport=PHONE)
    try:
        page = context.new_page()
        session = context.new_cdp_session(page)
        network = {"latency": LATENCY_MS, "downloadThroughput": DOWNLOAD}
        network |= {"offline": False, "uploadThroughput": UPLOAD}
        session.send("Network.enable")
        session.send("Network.emulateNetworkConditions", network)
        session.send("Emulation.setCPUThrottlingRate", {"rate": CPU_SLOWED})
        page.add_init_script(OBSERVE)
        server.sent.clear()
        page.goto(server.address + page_address, wait_until="load", timeout=60_000)
        _settle(page, server)
        seen = page.evaluate("audit")
        before = list(server.sent)
        drawn = page.evaluate(DRAW)
        figure = [(p, n) for p, n in server.sent if _is_figure(p)]
        near = [p for p, _ in before if _is_figure(p)]
    finally:
        context.close()
    plain = [(p, n) for p, n in before if not _is_figure(p) and not _is_index(p)]
    late = [  # a chart that is in sight at once is drawn at once, which is what figure_ms limits
        duration
        for start, duration in seen["tasks"]
        if start + duration > seen["fcp"] and start < seen["library"]
    ]
    return Sample(
        first_paint_ms=round(seen["fcp"], 1),
        largest_paint_ms=round(seen["lcp"], 1),
        shift=round(seen["shift"], 4),
        blocking_ms=round(sum(max(0, d - BLOCKING_MS) for d in late), 1),
        bytes=sum(n for _, n in plain),
        requests=len(plain),
        index_bytes=sum(n for p, n in before if _is_index(p)),
        figure_ms=None if near or drawn is None else round(drawn, 1),
        figure_bytes=sum(n for _, n in figure),
    )


def _settle(page: Any, server: Server) -> None:
    server.last = time.monotonic()
    while time.monotonic() - server.last < QUIET_S:
        page.wait_for_timeout(100)


def _is_figure(path: str) -> bool:
    return "/assets/vendor/" in path or "/figures/" in path


def _is_index(path: str) -> bool:
    return path.endswith("/search_index.json")


def measure(
    chosen: Iterable[str] = (),
    runs: int = RUNS,
    advance: Callable[[str], None] = lambda _page: None,
) -> dict[str, Any]:
    """Measure the pages of both sites in turn; returns the report."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        mine, stock = Path(folder, "ours"), Path(folder, "stock")
        with Server(mine) as our_server, Server(stock) as stock_server:
            build(mine, address=our_server.address)
            build(stock, stock=True, address=stock_server.address)
            samples: dict[str, dict[str, list[Sample]]] = {}
            for page in pages(mine, chosen):
                open_slowly(browser, our_server, page)  # a first opening compresses and warms
                open_slowly(browser, stock_server, page)
                both: dict[str, list[Sample]] = {"ours": [], "stock": []}
                for _ in range(runs):
                    both["stock"].append(open_slowly(browser, stock_server, page))
                    both["ours"].append(open_slowly(browser, our_server, page))
                samples[page] = both
                advance(page)
        return {
            "schema": 1,
            "measured_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "cpu": _cpu(),
            "browser": f"Chromium {browser.version}",
            "profile": {
                "cpu_slowed": CPU_SLOWED,
                "latency_ms": LATENCY_MS,
                "download_bytes_per_s": DOWNLOAD,
                "viewport": PHONE,
                "runs": runs,
            },
            "pages": {
                page: {site: [asdict(s) for s in rows] for site, rows in both.items()}
                for page, both in samples.items()
            },
        }


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return "unknown"
    found = re.search(r"model name\s*:\s*(.+)", text)
    return found[1] if found else "unknown"


def median(rows: list[dict[str, Any]], field: str) -> float | None:
    """The median of a field, None where a page has none."""
    values = [row[field] for row in rows if row[field] is not None]
    return statistics.median(values) if values else None


def over(report: dict[str, Any]) -> list[str]:
    """Sentences about the pages and budgets that do not agree."""
    found = []
    for page, both in report["pages"].items():
        for budget in BUDGETS:
            ours, stock = (median(both[s], budget.field) or 0 for s in ("ours", "stock"))
            limit = budget.allowed(stock)
            if ours > limit:
                found.append(f"/{page}: {budget.title} {ours:g}, allowed {limit:g}")
        drawn, allowed = median(both["ours"], "figure_ms"), figure_limit_ms(both["ours"])
        if drawn is not None and drawn > allowed:
            found.append(f"/{page}: figure drawn after {drawn:.0f} ms, allowed {allowed:.0f} ms")
    return found


def figure_limit_ms(rows: list[dict[str, Any]]) -> float:
    """How long a figure may take: by the bytes it needs on this network, and the slow CPU."""
    size = median(rows, "figure_bytes") or 0
    return FIGURE_FACTOR * (LATENCY_MS + 1000 * size / DOWNLOAD) + FIGURE_GRACE_MS


def table(report: dict[str, Any]) -> str:
    """The Markdown that a page includes."""
    heads = [b.title + (f", {b.unit}" if b.unit else "") for b in BUDGETS]
    lines = [
        f"| page | {' | '.join(heads)} | figure drawn, ms |",
        f"| --- |{' ---: |' * (len(heads) + 1)}",
        f"| allowed | {' | '.join(map(_limit, BUDGETS))} | by its bytes |",
    ]
    for page, both in report["pages"].items():
        cells = [_cell(b, both) for b in BUDGETS]
        drawn = median(both["ours"], "figure_ms")
        allowed = figure_limit_ms(both["ours"])
        cells.append("–" if drawn is None else f"{drawn:.0f} (of {allowed:.0f})")
        lines.append(f"| /{page} | {' | '.join(cells)} |")
    missed = over(report)
    verdict = (
        "Every page keeps every limit." if not missed else f"Over the limit: {'; '.join(missed)}."
    )
    profile = report["profile"]
    origin = (
        f"Medians of {profile['runs']}, {report['measured_at'][:10]}, {report['browser']}, "
        f"{report['cpu']} slowed {profile['cpu_slowed']} times, "
        f"{profile['latency_ms']:g} ms a request, "
        f"{profile['download_bytes_per_s'] / 1000:.0f} kB/s, "
        f"{profile['viewport']['width']} px wide. "
        "[All samples](/assets/audit/audit.json)."
    )
    return "\n".join([verdict, "", *lines, "", origin, ""])


def _limit(budget: Budget) -> str:
    if budget.ratio:
        return f"{budget.limit:g} × stock" + (f", or {budget.floor:g}" if budget.floor else "")
    return f"{budget.limit / 1000:g}" if budget.unit == "kB" else f"{budget.limit:g}"


def _cell(budget: Budget, both: dict[str, list[dict[str, Any]]]) -> str:
    ours, stock = (median(both[s], budget.field) or 0 for s in ("ours", "stock"))
    if budget.unit == "kB":
        return f"{ours / 1000:.0f} ({stock / 1000:.0f})"
    if budget.ratio and stock:
        return f"{ours:.0f} ({stock:.0f}), {ours / stock:.2f} ×"
    return f"{ours:.3g} ({stock:.3g})"


def renewed(report: dict[str, Any], folder: Path = REPORT) -> dict[str, Any]:
    """The stored report with the pages of this one in the place of its own.

    Raises DataError for a stored one of another machine, browser or recipe.
    """
    old = json.loads((folder / "audit.json").read_text("utf-8"))
    if changed := [x for x in ("schema", "cpu", "browser", "profile") if old[x] != report[x]]:
        raise store.DataError(f"not stored: {', '.join(changed)} changed, so measure all pages")
    return {**report, "pages": dict(sorted({**old["pages"], **report["pages"]}.items()))}


def write(report: dict[str, Any], folder: Path = REPORT) -> None:
    """Store the report and the table drawn from it."""
    folder.mkdir(parents=True, exist_ok=True)
    store.write_whole(folder / "audit.json", json.dumps(report, indent=1) + "\n")
    store.write_whole(folder / "table.md", table(report))


def screenshots(folder: Path, chosen: Iterable[str] = ()) -> list[Path]:
    """Render each page in light and dark, on a laptop and on a phone, into `folder`."""
    made = []
    shutil.rmtree(folder, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory() as built,
        chromium() as browser,
        Server(Path(built)) as server,
    ):
        addresses = pages(build(Path(built), address=server.address), chosen)
        for width, viewport in (("laptop", LAPTOP), ("phone", PHONE)):
            for scheme in ("light", "dark"):
                context = browser.new_context(viewport=viewport, color_scheme=scheme)
                page = context.new_page()
                for address in addresses:
                    page.goto(server.address + address, wait_until="load")
                    # What is out of sight is not painted, not even for a picture of the whole page.
                    page.add_style_tag(content="* { content-visibility: visible !important }")
                    see_everything(page)
                    name = address.strip("/").replace("/", "-") or "home"
                    made.append(folder / f"{name}-{scheme}-{width}.png")
                    page.screenshot(path=made[-1], full_page=True)
                context.close()
    return made


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
