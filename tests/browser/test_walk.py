"""Every page on a laptop and on a phone: errors, access, what is cut off or too small to touch.

One walk a device asks each page all questions; a fault planted for each shows that it is found.
"""

from collections import defaultdict

import pytest
from axe_playwright_python.sync_playwright import Axe

from snippets._site.browser import LAPTOP, PHONE, addresses, see_everything
from tests.browser.browser import PATIENCE, only_missing, switch_scheme
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

# Questions: each names what is wrong with the page that is open.
TOO_WIDE = """() => [document.documentElement.scrollWidth - innerWidth]
  .filter(pixels => pixels > 0).map(pixels => `${pixels} pixels`)"""
CODE_SCROLLS = """() => !location.pathname.includes("/posts/") ? []
  : [...document.querySelectorAll('.md-content pre > code')]
    .filter(code => code.clientWidth && code.scrollWidth > code.clientWidth + 1)
    .map(code => code.textContent.slice(0, 60))"""
# Some tables are wide even with three columns: they scroll inside themselves, and only those may.
TABLE_SCROLLS = """() => [...document.querySelectorAll('.md-content table')]
  .filter(table => table.querySelectorAll('th').length >= 4 && table.checkVisibility())
  .filter(table => table.getBoundingClientRect().right > innerWidth + 1)
  .map(table => table.textContent.trim().slice(0, 60))"""
LAPTOP_ASKS = {"too wide": TOO_WIDE, "code scrolls": CODE_SCROLLS}
PHONE_ASKS = {"too wide": TOO_WIDE, "table scrolls": TABLE_SCROLLS}
NARROWEST = {"width": 320, "height": 640}
# Everything axe knows but its experiments on a laptop, and on a phone what depends on the width.
AXE = {"resultTypes": ["violations"]}
CONTRAST_ALONE = AXE | {"runOnly": ["color-contrast"]}
SCROLLS = AXE | {"runOnly": ["scrollable-region-focusable"]}
AXE_PHONE = AXE | {"runOnly": ["target-size", "heading-order", "empty-table-header"]}
ASKED = {"landmark-unique", "heading-order", "empty-table-header"}  # beside what axe calls serious
# More of the same is taken out before: the further rows of a table, the further code of a page. axe
# would look at them even where it is told not to judge them.
MORE = "tbody tr:nth-child(n + 3), .highlight ~ .highlight ~ .highlight, details .highlight"
UNFOLD = "document.querySelectorAll('details').forEach(d => { d.open = true; })"


def serious(page, options):
    """Sentences about what shuts readers out."""
    return [
        f"{v['id']} ({v['impact']}): {node['html'][:140]} {node['failureSummary'][:240]}"
        for v in Axe().run(page, options=options).response["violations"]
        if v["impact"] in ("serious", "critical") or v["id"] in ASKED
        for node in v["nodes"]
    ]


def on_a_laptop(page):
    """What is wrong with the open page: what was asked, and the answers."""
    page.evaluate(UNFOLD)
    found = {what: page.evaluate(ask) for what, ask in LAPTOP_ASKS.items()}
    page.evaluate("more => document.querySelectorAll(more).forEach(part => part.remove())", MORE)
    found["shut out"] = []
    for scheme in ("default", "slate"):
        switch_scheme(page, scheme)
        page.wait_for_timeout(150)
        found["shut out"] += serious(page, AXE if scheme == "default" else CONTRAST_ALONE)
    return found


def on_a_phone(page):
    """The same on a phone, and what is too wide on the narrowest."""
    # Code without a language has no script that makes it focusable: browsers do that by themselves.
    folded = [one for one in serious(page, SCROLLS) if "<code>" not in one]
    page.evaluate(UNFOLD)
    found = {what: page.evaluate(ask) for what, ask in PHONE_ASKS.items()}
    found["shut out"] = folded + serious(page, AXE_PHONE)
    page.set_viewport_size(NARROWEST)
    found["too wide for 320 pixels"] = page.evaluate(TOO_WIDE)
    page.set_viewport_size(PHONE)
    return found


DEVICES = {
    "laptop": (on_a_laptop, {"viewport": LAPTOP, "color_scheme": "light"}),
    "phone": (on_a_phone, {"viewport": PHONE, "has_touch": True}),
}


@pytest.fixture(scope="module", params=DEVICES)
def walk(request, browser, site, site_folder):
    """What was asked → address → what is wrong there; and the number of charts that were drawn."""
    ask, options = DEVICES[request.param]
    context = browser.new_context(**options, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    found, wrong, charts = defaultdict(dict), [], 0
    page.on("console", lambda m: m.type == "error" and wrong.append(m.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    for address in some(addresses(site_folder), 5):
        wrong.clear()
        assert page.goto(site + address).status == 200
        page.add_style_tag(content="* { content-visibility: visible !important }")
        see_everything(page)
        charts += page.locator(".am-plot .main-svg").count()
        for what, answers in ask(page).items():
            found[what][address] = answers
        found["error"][address] = list(wrong)
    assert context.cookies() == []
    context.close()
    return found, charts


def test_no_page_is_wrong(walk):
    found, charts = walk
    assert charts, "no page has a figure"
    told = [
        f"/{address}: {what}: {answer}"
        for what, pages in some(found.items(), 4)
        for address, answers in some(pages.items(), 5)
        for answer in dict.fromkeys(answers)
    ]
    assert not told, "\n".join(told)


PLANTED = {
    "laptop": """<p style="color: #bbb; background: #fff">pale</p><button></button>
      <img src="x.svg"><nav>one</nav><nav>two</nav><h6>too deep</h6>
      <pre style="width: 50px"><code
      style="display: block; overflow: auto">a line that is far too long</code></pre>""",
    "phone": """<button style="padding: 0; width: 10px; height: 10px">a</button>
      <button style="padding: 0; width: 10px; height: 10px">b</button>
      <h6>too deep</h6><p style="width: 330px">for a phone</p>
      <table style="min-width: 900px; display: table"><tr><th>a<th>b<th>c<th>d</table>""",
}
SEEN = {
    "laptop": {
        "code scrolls": ["far too long"],
        "shut out": ["color-contrast", "button-name", "image-alt", *ASKED - {"empty-table-header"}],
    },
    "phone": {
        "table scrolls": ["abcd"],
        "shut out": ["heading-order", "target-size"],
        "too wide for 320 pixels": ["pixels"],
    },
}


@pytest.mark.parametrize("device", DEVICES)
def test_a_planted_fault_is_seen(open_page, site, device):
    ask, options = DEVICES[device]
    page = open_page(at=site + "posts/coalescing/", **options)
    within = page.locator(".md-content__inner")
    within.evaluate("(e, html) => e.insertAdjacentHTML('beforeend', html)", PLANTED[device])
    found = {what: " ".join(answers) for what, answers in ask(page).items()}
    for what, parts in SEEN[device].items():
        assert [part for part in parts if part not in found[what]] == [], what
    only_missing(page)  # the planted picture
