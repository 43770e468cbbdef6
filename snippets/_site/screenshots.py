"""Pictures of each page in light and dark, on a laptop and on a phone."""

import shutil
from pathlib import Path

from snippets._site.browser import LAPTOP, PHONE, Server, addresses, chromium, see_everything


def screenshots(site: Path, folder: Path, chosen: list[str] | None = None) -> list[Path]:
    """Render each page of a built site, or only the chosen, in four ways into `folder`."""
    made = []
    pages = addresses(site, chosen)
    shutil.rmtree(folder, ignore_errors=True)
    with chromium() as browser, Server(site) as server:
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
