"""How quick the site is: every page beside the theme's stock page with the same text, in one run.

Both sites are built on the spot and served, compressed, from memory. A headless Chromium with a
CPU slowed four times and a slow mobile network opens each page with an empty cache, ours and the
stock page in turn, five times. Absolute times belong to the machine; the ratios are the result.
`make page-speed` stores them under docs/data; `snippets/_site/speed_table.py` says what they mean.
"""

import importlib.metadata
import platform
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from snippets._lab.results import staleness, store
from snippets._lab.rooms import ROOT
from snippets._site.checks.browser import PHONE, Server, addresses, chromium

RUNS = 5
CPU_SLOWED = 4
LATENCY_MS = 562.5  # of each request; with the rates below what browsers' tools call slow 4G
DOWNLOAD = 1.6e6 * 0.9 / 8  # bytes/s
UPLOAD = 0.75e6 * 0.9 / 8
QUIET_S = 2.0  # without a request: the page has loaded
BLOCKING_MS = 50  # a task is felt from here on

OBSERVE = """
window.seen = {fcp: 0, lcp: 0, shift: 0, tasks: [], library: Infinity};
const watch = (type, note) => new PerformanceObserver(list => list.getEntries().forEach(note))
  .observe({type, buffered: true});
watch('paint', e => { if (e.name === 'first-contentful-paint') seen.fcp = e.startTime; });
watch('largest-contentful-paint', e => { seen.lcp = e.startTime; });
watch('layout-shift', e => { if (!e.hadRecentInput) seen.shift += e.value; });
watch('longtask', e => { seen.tasks.push([e.startTime, e.duration]); });
watch('resource', e => { if (e.name.includes('/assets/vendor/')) seen.library = e.responseEnd; });
"""
DRAW = """async () => {
  const box = document.querySelector('.am-plot');
  if (!box) return null;
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


def slow_down(session: Any) -> None:
    """Slow down the CPU and the network of the page that a DevTools session belongs to."""
    network = {"latency": LATENCY_MS, "downloadThroughput": DOWNLOAD}
    network |= {"offline": False, "uploadThroughput": UPLOAD}
    session.send("Network.enable")
    session.send("Network.emulateNetworkConditions", network)
    session.send("Emulation.setCPUThrottlingRate", {"rate": CPU_SLOWED})


def open_slowly(browser: Any, server: Server, address: str, figures: bool = False) -> Sample:
    """Open one page of a server with an empty cache, a slow CPU and a slow network.

    With `figures` the first figure is scrolled to, and timed until it is drawn.
    """
    context = browser.new_context(viewport=PHONE)
    try:
        page = context.new_page()
        session = context.new_cdp_session(page)
        slow_down(session)
        page.add_init_script(OBSERVE)
        server.sent.clear()
        page.goto(server.address + address, wait_until="load", timeout=60_000)
        _settle(page, server)
        seen = page.evaluate("seen")
        before = list(server.sent)
        drawn = page.evaluate(DRAW) if figures else None
        figure = [(p, n) for p, n in server.sent if _is_figure(p)]
        near = [p for p, _ in before if _is_figure(p)]
    finally:
        context.close()
    plain = [(p, n) for p, n in before if not _is_figure(p) and not _is_index(p)]
    text = [(p, n) for p, n in plain if not _is_font(p)]
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
        bytes=sum(
            n for _, n in text
        ),  # fonts, which come after the first paint, have a limit of their own
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


def _is_font(path: str) -> bool:
    return path.endswith(".woff2")


def _is_index(path: str) -> bool:
    return path.endswith("/search_index.json")


def pages(
    chosen: list[str] | None = None,
    runs: int = RUNS,
    advance: Callable[[str], None] = lambda _page: None,
) -> store.Result:
    """Measure the pages of both sites in turn: a row for each opening."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        mine, stock = Path(folder, "ours"), Path(folder, "stock")
        with Server(mine) as our_server, Server(stock) as stock_server:
            build(mine, address=our_server.address)
            build(stock, stock=True, address=stock_server.address)
            servers = {"stock": stock_server, "ours": our_server}
            for page in addresses(mine, chosen):
                for server in servers.values():  # a first opening compresses and warms
                    open_slowly(browser, server, page)
                for run in range(runs):
                    for site, server in servers.items():
                        sample = open_slowly(browser, server, page, figures=site == "ours")
                        rows.append({"page": page, "site": site, "run": run, **asdict(sample)})
                advance(page)
        device = {
            "name": _cpu(),
            "browser": f"Chromium {browser.version}",
            "cpu_slowed": CPU_SLOWED,
            "latency_ms": LATENCY_MS,
            "download_bytes_per_s": DOWNLOAD,
            "width": PHONE["width"],
            "runs": runs,
        }
    code = staleness.code_of("page_speed", "pages")
    return store.Result(
        post="page_speed",
        result="pages",
        place="browser",
        folder="browser",
        device=device,
        versions=_versions(),
        commit="unknown",
        measured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        seed=0,
        source_hash=staleness.source_hash(code),
        code=code,
        rows=sorted(rows, key=lambda row: (row["page"], row["site"])),
    )


def _versions() -> dict[str, str]:
    """What can change how a page starts; of what every result names, the site needs only Python."""
    absent = dict.fromkeys(store.VERSIONS, "absent")
    theme = importlib.metadata.version("mkdocs-material")
    return {**absent, "python": platform.python_version(), "mkdocs-material": theme}


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return "unknown"
    found = re.search(r"model name\s*:\s*(.+)", text)
    return found[1] if found else "unknown"
