"""Files to view and commands to copy, in a real browser."""

import pytest

from snippets._lab.rooms import ROOT
from snippets._site.browser import PHONE
from tests.browser.browser import CLIPBOARD, copied, violations

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]


def test_view_opens_a_highlighted_page_with_a_way_back(open_page, site):
    page = open_page(at=site + "posts/basic_attention/", until="networkidle")
    link = page.locator(".am-file a", has_text="View").first
    link.scroll_into_view_if_needed()
    link.click()
    page.wait_for_url("**/snippets/basic_attention/kernel.html")
    assert page.evaluate("document.characterSet") == "UTF-8"
    code = page.locator(".am-listing code")
    assert code.locator("span.k, span.kn").count() > 5, "highlighted"
    assert "B·H·M" in code.inner_text()
    assert "--8<--" not in page.content()
    line = page.locator("#L20 a")
    line.click()
    assert page.url.endswith("#L20")
    page.mouse.move(0, 0)
    page.wait_for_function("() => !document.getAnimations().length")  # between two colors
    assert violations(page, grave=True) == []
    page.locator(".am-kicker a").click()
    page.wait_for_url("**/posts/basic_attention/")


def test_a_file_is_copied_as_it_runs(open_page, site):
    address = site + "snippets/basic_attention/kernel.html"
    page = open_page(at=address, until="networkidle", **CLIPBOARD)
    page.locator("a.am-copy").click()
    page.locator("a.am-copy", has_text="Copied").wait_for()
    text = copied(page)
    assert "--8<--" not in text
    compile(text, "kernel.py", "exec")
    theirs = (ROOT / "snippets/basic_attention/kernel.py").read_text("utf-8").splitlines()
    assert [x for x in text.splitlines() if x] == [x for x in theirs if x and "--8<--" not in x]


def test_a_console_block_is_copied_without_prompt_and_answers(open_page, site):
    page = open_page(at=site + "lab/diagnose/", until="networkidle", **CLIPBOARD)
    block = page.locator(".language-console").first
    block.scroll_into_view_if_needed()
    block.hover()
    block.locator("button[data-clipboard-target]").first.click()
    page.wait_for_timeout(200)
    assert block.locator("code").inner_text().startswith("$ make")
    assert copied(page).startswith("make diagnose")


def test_a_phone_wraps_long_lines_and_copies_them_whole(open_page, site):
    address = site + "posts/flash_attention/"
    page = open_page(PHONE, at=address, until="networkidle", has_touch=True, **CLIPBOARD)
    block = page.locator(".language-python").first
    block.scroll_into_view_if_needed()
    code = block.locator("code")
    page.wait_for_function(  # the theme takes the tab stop away once the block is seen
        "c => c.scrollWidth <= c.clientWidth && c.tabIndex < 0", arg=code.element_handle()
    )
    block.locator("button[data-clipboard-target]").first.click()
    page.wait_for_timeout(200)
    first = (ROOT / "snippets/flash_attention/first.py").read_text("utf-8")
    assert copied(page).strip() == first.strip()
