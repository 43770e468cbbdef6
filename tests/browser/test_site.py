"""Every page in a real browser: open to all readers, obedient to its policy, light to load.

One walk over the site checks what needs a page with its figures drawn. A fault planted for each
check shows that it can fail.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

from snippets._site.browser import LAPTOP, PHONE, Server, see_everything
from snippets._site.browser import addresses as addresses_of
from tests.browser.browser import SUBPATH, switch_scheme
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

BYTES, REQUESTS, INDEX_BYTES = 160_000, 11, 155_000  # of a page before a figure; of the search
INTERACTIVE = (
    "a[href], button, input, select, textarea, summary, [tabindex], [role=button], [role=slider]"
)
# Interactive parts in sight that the Tab key cannot reach or that have no name.
DEAF = """selector => [...document.querySelectorAll(selector)].filter(part => {
  if (!part.checkVisibility({visibilityProperty: true}) || part.disabled) return false;
  if (part.closest('[inert], [hidden], [aria-hidden=true]')) return false;
  const name = part.getAttribute('aria-label') || part.getAttribute('aria-labelledby')
    || part.title || part.labels?.length || part.textContent.trim() || part.alt
    || part.querySelector('[alt], title');
  const scrolls = part.matches('[tabindex]:not(a, button, input, select, summary, [role])');
  return !name && !scrolls;
}).map(part => part.outerHTML.slice(0, 120))"""
FOCUS_RING = """() => {
  const part = document.activeElement;
  if (!part || part === document.body) return null;
  const seen = [part, part.nextElementSibling, part.parentElement].filter(Boolean);
  const visible = seen.some(x => {
    const style = getComputedStyle(x);
    return (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0)
      || style.boxShadow !== 'none';
  });
  const changed = part.matches('.md-skip, .md-search__input'); // shown, or a caret in it
  const words = part.id + part.className + part.outerHTML.slice(0, 120);
  return {part: words, visible: visible || changed};
}"""


@pytest.fixture(scope="session")
def addresses(site, site_folder):
    found = [site + page for page in addresses_of(site_folder)]
    assert len(found) >= 5, found
    return found


@dataclass(frozen=True)
class Seen:
    address: str
    status: int
    wide: int  # pixels beyond the window
    charts: int
    violations: list[tuple[str, str]]  # (scheme, what axe says)
    wrong: list[str]  # what the console reports, a broken policy included
    deaf: list[str]  # interactive parts without a name


@pytest.fixture(scope="session")
def walk(browser, addresses):
    """What each page says, in light and in dark."""
    found = []
    axe = Axe()
    context = browser.new_context(viewport=LAPTOP, color_scheme="light", reduced_motion="reduce")
    page = context.new_page()
    wrong = []
    page.on("console", lambda m: m.type == "error" and wrong.append(m.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    for address in addresses:
        wrong.clear()
        status = page.goto(address).status
        see_everything(page)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        charts = page.locator(".am-plot .main-svg").count()
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        deaf = page.evaluate(DEAF, INTERACTIVE)
        page.evaluate(TAKE_OUT, ", ".join(MORE))
        violations = []
        for scheme in ("default", "slate"):
            switch_scheme(page, scheme)
            page.wait_for_timeout(150)
            options = AXE if scheme == "default" else {**AXE, "runOnly": ["color-contrast"]}
            response = axe.run(page, options=options).response
            violations += [(scheme, text) for text in serious(response)]
        found.append(Seen(address, status, wide, charts, violations, list(wrong), deaf))
    assert context.cookies() == []
    context.close()
    return found


# Everything axe knows but its experiments; only violations are listed, which is quicker.
AXE = {"resultTypes": ["violations"]}
# More of the same is taken out before: the further rows of a table, the further code of a page. axe
# would look at them even where it is told not to judge them.
MORE = ("tbody tr:nth-child(n + 3)", ".highlight ~ .highlight ~ .highlight", "details .highlight")
TAKE_OUT = "more => document.querySelectorAll(more).forEach(part => part.remove())"


ASKED = {"landmark-unique"}  # beside what axe calls serious


def serious(response):
    """Sentences about what shuts readers out."""
    return [
        f"{v['id']} ({v['impact']}): {node['html'][:140]} {node['failureSummary'][:240]}"
        for v in response["violations"]
        if v["impact"] in ("serious", "critical") or v["id"] in ASKED
        for node in v["nodes"]
    ]


def test_axe_finds_nothing_serious_on_any_page_in_light_and_dark(walk):
    found = [(urlsplit(seen.address).path, *v) for seen in some(walk) for v in seen.violations]
    assert not found, "\n".join(map(str, found))


def test_every_page_and_figure_loads_and_fits_a_laptop(walk):
    assert not [(s.address, s.status, s.wide) for s in some(walk) if s.status != 200 or s.wide > 0]
    assert sum(seen.charts for seen in walk), "no page has a figure"


def test_every_page_keeps_its_policy_and_reports_nothing(walk):
    assert not [(seen.address, seen.wrong) for seen in some(walk) if seen.wrong]


def test_every_interactive_part_has_a_name(walk):
    assert not [(seen.address, seen.deaf) for seen in some(walk) if seen.deaf]


def test_axe_sees_a_planted_fault(open_page, addresses):
    page = open_page()
    page.goto(addresses[-1])
    page.evaluate(
        """document.querySelector('.md-content__inner').insertAdjacentHTML('afterbegin',
        '<p style="color: #bbb; background: #fff">pale</p><button></button><img src="x.svg">'
        + '<nav>one</nav><nav>two</nav>')"""
    )
    found = " ".join(serious(Axe().run(page, options=AXE).response))
    assert all(rule in found for rule in ("color-contrast", "button-name", "image-alt", *ASKED))
    assert any("<button></button>" in part for part in page.evaluate(DEAF, INTERACTIVE))


PLANTED = {
    "an inline script": "document.body.append(Object.assign("
    "document.createElement('script'), {textContent: 'window.planted = 1'}))",
    "eval": "setTimeout(() => { try { window.eval('1'); } catch {} })",
    "a foreign picture": "document.body.append(Object.assign("
    "new Image(), {src: 'https://example.org/x.png'}))",
    "a foreign request": "fetch('https://example.org/').catch(() => {})",
    "a foreign base": "document.head.append(Object.assign("
    "document.createElement('base'), {href: 'https://example.org/'}))",
}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_policy_stops_a_planted_fault(browser, addresses, fault):
    page = browser.new_page()
    page.goto(addresses[-1])
    page.evaluate(
        """() => { window.stopped = new Promise(resolve =>
        addEventListener('securitypolicyviolation', e => resolve(e.effectiveDirective))); }"""
    )
    page.evaluate(f"() => {{ {PLANTED[fault]} }}")
    assert page.evaluate("stopped")
    assert page.evaluate("window.planted") is None
    page.close()


def test_the_keyboard_reaches_the_page_and_its_focus_is_seen(open_page, addresses):
    page = open_page()
    page.goto(next(a for a in addresses if "/posts/" in a))
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(FOCUS_RING))
    unseen = [entry["part"] for entry in some(seen) if entry and not entry["visible"]]
    assert not unseen
    parts = [entry["part"] for entry in seen if entry]
    assert "md-skip" in parts[0], "the first stop leads past the header"
    assert any("__palette" in part for part in parts), "the color scheme has no key"
    assert len(set(parts)) > 20, "focus goes round in a circle"


def test_the_scheme_answers_to_keys_is_kept_and_follows_the_system(open_page, addresses):
    page = open_page(color_scheme="dark")
    page.goto(addresses[0])
    body = page.locator("body")
    assert body.get_attribute("data-md-color-scheme") == "slate"
    page.emulate_media(color_scheme="light")
    page.wait_for_function("() => document.body.dataset.mdColorScheme === 'default'")
    page.locator("input[name=__palette]:checked").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert body.get_attribute("data-md-color-scheme") == "slate"
    page.goto(addresses[1])
    assert body.get_attribute("data-md-color-scheme") == "slate"
    assert page.wrong == []


def test_a_page_is_light_before_a_figure_is_seen(browser, site, site_folder):
    with Server(site_folder) as server:
        for address in some(addresses_of(site_folder)):
            page = browser.new_page(viewport=PHONE)
            server.sent.clear()
            page.goto(server.address + address, wait_until="load")
            page.wait_for_timeout(300)
            index = sum(n for path, n in server.sent if path.endswith("/search_index.json"))
            figure = [p for p, _ in server.sent if "/figures/" in p or "/vendor/" in p]
            rest = [(p, n) for p, n in server.sent if p not in figure and "search_index" not in p]
            text = [(p, n) for p, n in rest if not p.endswith(".woff2")]
            page.close()
            assert index == 0, f"/{address}: nobody has asked for the search"
            assert sum(n for _, n in text) <= BYTES, f"/{address}: {text}"
            assert 3 < len(rest) <= REQUESTS, f"/{address}: {rest}"


def test_the_index_of_the_search_is_small_and_comes_when_a_reader_turns_to_it(browser, site_folder):
    with Server(site_folder) as server:
        page = browser.new_page(viewport=PHONE)
        page.goto(server.address, wait_until="load")
        page.locator("label.md-header__button[for=__search]").click()
        page.wait_for_function("() => document.querySelector('#am-hits').dataset.question === ''")
        index = sum(n for path, n in server.sent if path.endswith("/search_index.json"))
        page.close()
    assert 10_000 < index <= INDEX_BYTES


def test_the_site_works_from_a_subpath(browser, site):
    assert urlsplit(site).path == SUBPATH != "/"
    page = browser.new_page(viewport=LAPTOP)
    wrong = []
    page.on("console", lambda m: m.type == "error" and wrong.append(m.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    with page.expect_response(f"{site}sitemap.xml"):  # before, a link loads anew
        page.goto(site)
    page.evaluate("window.sameDocument = true")
    link = page.locator(".md-nav--primary a.md-nav__link[href*='posts/']").last
    title = page.title()
    link.evaluate("link => link.click()")
    page.wait_for_function(f"() => location.pathname.startsWith('{SUBPATH}posts/')")
    page.wait_for_function("title => document.title !== title", arg=title)
    assert page.evaluate("window.sameDocument"), "no instant navigation"
    see_everything(page)
    switch_scheme(page, "slate")
    page.goto(site + "no/such/page/")
    assert "no such page" in page.content()
    assert all("404" in text for text in some(wrong)), "of the missing page, and of nothing else"
    page.close()
