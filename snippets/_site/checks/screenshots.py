"""Pictures of each page in light and dark, on a laptop and on a phone."""

import shutil
import tempfile
from pathlib import Path

from snippets._site.checks.browser import (
    LAPTOP,
    PHONE,
    Server,
    addresses,
    chromium,
    see_everything,
)
from snippets._site.checks.page_speed import build


def screenshots(folder: Path, chosen: list[str] | None = None) -> list[Path]:
    """Render each page, or only the chosen, in four ways into `folder`."""
    made = []
    shutil.rmtree(folder, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory() as built,
        chromium() as browser,
        Server(Path(built)) as server,
    ):
        pages = addresses(build(Path(built), address=server.address), chosen)
        for width, viewport in (("laptop", LAPTOP), ("phone", PHONE)):
            for scheme in ("light", "dark"):
                context = browser.new_context(viewport=viewport, color_scheme=scheme)
                page = context.new_page()
                for address in pages:
                    page.goto(server.address + address, wait_until="load")
                    # What is out of sight is not painted, not even for a picture of the whole page.
                    page.add_style_tag(content="* { content-visibility: visible !important }")
                    see_everything(page)
                    name = address.strip("/").replace("/", "-") or "home"
                    made.append(folder / f"{name}-{scheme}-{width}.png")
                    page.screenshot(path=made[-1], full_page=True)
                context.close()
    return made
