"""How pages are packed: on small pages, each with a fault."""

import json
import re

import pytest

from snippets._lab.rooms import ROOT
from snippets._site import packing

HEAD = '<!doctype html>\n<html lang="en"><head>\n<meta charset="utf-8">\n<title>t</title>\n'
SCRIPTS = (
    '<script src="assets/javascripts/bundle.1a2b.min.js"></script>\n'
    '<script src="assets/javascripts/own.js"></script>\n'
)
LINKS = (
    '<link rel="stylesheet" href="assets/theme.css">\n'
    '<link rel="stylesheet" href="assets/own.css">\n'
)


def page(body="", head=""):
    return f"{HEAD}{LINKS}{head}</head><body>{body}\n{SCRIPTS}</body></html>\n"


@pytest.fixture
def folder(tmp_path):
    """A small site: a page, a page one folder down, the theme's files and ours."""
    (tmp_path / "assets/javascripts").mkdir(parents=True)
    (tmp_path / "sub").mkdir()
    for name, text in {
        "assets/theme.css": ":root{--used:1px;--unused:2px}.kept{margin:var(--used)}.gone{top:0}",
        "assets/own.css": "/* why */\n.later { color: red }\n@media print { .kept { top: 0 } }",
        "assets/javascripts/bundle.1a2b.min.js": 'x.classList.add("state-on")',
        "assets/javascripts/own.js": "// why\nbox.classList.add('later');\n",
        "index.html": page('<p class="kept">x</p>', "<script>one()</script>"),
        "sub/index.html": page("<script>two()</script>").replace('"assets', '"../assets'),
        "404.html": page().replace('"assets', '"/deep/assets'),
    }.items():
        (tmp_path / name).write_text(text, "utf-8")
    packing.pack(tmp_path)
    return tmp_path


def test_a_page_asks_for_two_scripts_and_no_style(folder):
    for name in ("index.html", "sub/index.html", "404.html"):
        text = (folder / name).read_text("utf-8")
        assert "stylesheet" not in text
        assert text.count("<style>") == 1
        theme, own = packing.SCRIPT.findall(text)
        assert theme.endswith("bundle.1a2b.min.js")
        assert own.rpartition("/")[0] == theme.rpartition("/")[0]
        file = folder / "assets/javascripts" / own.rpartition("/")[2]
        assert file.read_text("utf-8") == "box.classList.add('later');"


def test_the_script_of_a_widget_stays_apart_and_is_named_in_the_first(tmp_path):
    scripts = tmp_path / "assets/javascripts"
    scripts.mkdir(parents=True)
    links = "".join(f'<script src="assets/javascripts/{n}.js"></script>\n' for n in ("w", "steps"))
    (tmp_path / "index.html").write_text(page(head=links), "utf-8")
    for name, text in {
        "bundle.1a2b.min.js": "",
        "own.js": "",
        "w.js": "load(AM_WIDGETS)",
        "steps.js": "play()",
        "../theme.css": "",
        "../own.css": "",
    }.items():
        (scripts / name).write_text(text, "utf-8")
    packing.pack(tmp_path)
    (first,) = scripts.glob("site.*.js")
    ((selector, file),) = json.loads(re.fullmatch(r"load\((.*)\)", first.read_text("utf-8"))[1])
    assert selector == ".am-steps"
    assert (scripts / file).read_text("utf-8") == "play()"
    assert file not in (tmp_path / "index.html").read_text("utf-8")


def test_every_widget_is_a_script_that_looks_for_its_boxes():
    for name, selector in packing.WIDGETS.items():
        text = (ROOT / "docs/assets/javascripts" / name).read_text("utf-8")
        looks = f'document.querySelectorAll("{selector}")', f'widget("{selector}", {{'
        assert any(look in text for look in looks), name


def test_every_page_names_the_same_policy_before_anything_else(folder):
    texts = [(folder / n).read_text("utf-8") for n in ("index.html", "sub/index.html", "404.html")]
    policies = {re.search(r'Policy" content="([^"]*)"', text)[1] for text in texts}
    assert len(policies) == 1
    (policy,) = policies
    assert policy.count("'sha256-") == 2, "the inline scripts of all pages"
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("style-src")[0]
    assert all(text.index("Policy") < text.index("<style>") for text in texts)


def test_only_rules_that_can_match_are_kept(folder):
    style = re.search("<style>(.*?)</style>", (folder / "index.html").read_text("utf-8"))[1]
    assert style == (
        ":root{--used:1px}.kept{margin:var(--used)}.later{color:red}@media print{.kept{top:0}}"
    )


NAMES = packing.Names.of(
    ['<html class="no-js"><p class="a" id="b" data-kind="x">', '<div data-tabs="1:2" hidden>'],
    'e.classList.add("made-here"); `fact--${n}`; e.dataset.isOpen = 1; V("md-version")',
)


@pytest.mark.parametrize(
    ("selector", "kept"),
    [
        ("p", True),
        (".a", True),
        (".z", False),
        ("#b", True),
        ("#z", False),
        (".a .z", False),
        (".a:hover", True),
        (".a::before", True),
        ("q", False),
        ("[data-kind]", True),
        ("[data-kind=x]", True),
        ("[data-kind=y]", False),
        ("[data-kind^=y]", False),
        ("[data-kind^=fac]", True),
        ("[data-none]", False),
        (".a:not(.z)", True),
        (".a:is(.z, #b)", True),
        (".a:is(.z, .y)", False),
        (".made-here", True),
        (".fact--3", True),
        ("[data-is-open]", True),
        (".md-version", False),
        (".tabbed-x>:nth-child(3)", False),
        ("*", True),
        (":root", True),
        (".no-js p", True),
    ],
)
def test_what_can_match(selector, kept):
    names = packing.Names(NAMES.words | {"tabbed-x"}, NAMES.stems, NAMES.tabs)
    assert bool(packing.purge(selector + "{top:0}", names)) is kept


def test_the_same_is_said_without_reading_an_attribute():
    names = packing.Names({"table", "class", "href", "a"})
    css = "a[href]:hover,table:not([class]){top:0}"
    assert packing.purge(css, names) == "a:any-link:hover,table.am-table{top:0}"


def test_a_list_keeps_its_living_selectors():
    assert packing.purge(".a,.z , #b{top:0}", NAMES) == ".a,#b{top:0}"


@pytest.mark.parametrize(
    ("css", "message"),
    [
        ("@import 'x.css';", "imports another"),
        (".a{background:url(x.png)}", "reads a file"),
        (".a{&:hover{top:0}}", "only declarations"),
        (".a{top:0", ""),
        ("}.a{top:0}", "a fault in line"),
    ],
)
def test_a_style_that_would_be_lost_is_refused(css, message):
    if not message:  # the standard closes what is left open
        assert packing.purge(css, NAMES) == ".a{top:0}"
        return
    with pytest.raises(packing.PackingError, match=message):
        packing.purge(css, NAMES)


def test_a_site_of_another_make_is_refused(tmp_path):
    (tmp_path / "index.html").write_text("<p>", "utf-8")
    with pytest.raises(packing.PackingError, match="unlike a page"):
        packing.pack(tmp_path)
