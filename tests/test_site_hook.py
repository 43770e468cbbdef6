"""How pages are packed, drawn beforehand and proof-read: on small pages, each with a fault."""

import json
import re
import shutil

import pytest

from snippets._lab.draw.still import preview
from snippets._lab.rooms import ROOT
from snippets._site import hook, packing
from snippets._site.checks import proof

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
        "bundle.1a2b.min.js": "", "own.js": "", "w.js": "load(AM_WIDGETS)", "steps.js": "play()",
        "../theme.css": "", "../own.css": "",
    }.items():  # fmt: skip
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
        ("p", True), (".a", True), (".z", False), ("#b", True), ("#z", False),
        (".a .z", False), (".a:hover", True), (".a::before", True), ("q", False),
        ("[data-kind]", True), ("[data-kind=x]", True), ("[data-kind=y]", False),
        ("[data-kind^=y]", False),
        ("[data-kind^=fac]", True), ("[data-none]", False), (".a:not(.z)", True),
        (".a:is(.z, #b)", True), (".a:is(.z, .y)", False), (".made-here", True),
        (".fact--3", True), ("[data-is-open]", True), (".md-version", False),
        (".tabbed-x>:nth-child(3)", False), ("*", True), (":root", True), (".no-js p", True),
    ],
)  # fmt: skip
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


def test_code_is_light_and_says_its_lines(monkeypatch):
    class AnyPage:
        class file:
            src_uri = "x.md"

    text = (
        '<div class="language-python highlight"><pre><span></span><code>'
        '<span class="n">a</span><span class="w"> </span><span class="o">=</span>\n'
        '<span class="kn">b</span>\n</code></pre></div>'
    )
    made = hook.on_page_content(text, AnyPage, None, None)
    assert 'style="--am-lines: 2"' in made
    assert '<code>a <span class="o">=</span>\n<span class="kn">b</span>' in made
    links = '<a href="https://x.org">x</a> <a class="y" href="../z/">z</a>'
    marked = hook.on_page_content(links, AnyPage, None, None)
    assert marked == links.replace("<a href", '<a rel="external" href')
    stray = '<p><div class="x" markdown>\n<a href="y">z</a>\n</div></p>\n<p>t</p>'
    mended = hook.on_page_content(stray, AnyPage, None, None)
    assert mended == '<div class="x">\n<a href="y">z</a>\n</div>\n<p>t</p>'


# The light picture.


def spec(*data, **layout):
    return {"data": list(data), "layout": layout}


def test_a_line_lies_where_it_will_be_drawn():
    trace = {"type": "scatter", "mode": "lines", "x": [1, 10, 100], "y": [0, None, 10],
             "line": {"color": "#123456"}}  # fmt: skip
    html = preview(spec(trace, xaxis={"type": "log"}, yaxis={"range": [0, 10]}))
    assert 'stroke="#123456" d="M18 400M382 0"' in html
    trace["y"] = [0, 5, 10]
    html = preview(spec(trace, xaxis={"type": "log"}, yaxis={"range": [0, 10]}))
    assert 'd="M18 400L200 200L382 0"' in html


def test_bars_stand_beside_or_upon_each_other():
    bars = [
        {"type": "bar", "x": ["a", "b"], "y": [1, 3]},
        {"type": "bar", "x": ["a", "b"], "y": [2, 1]},
    ]
    beside = preview(spec(*bars, yaxis={"range": [0, 4]}))
    assert 'd="M20 400V300H100V400ZM220 400V100H300V400Z"' in beside
    assert 'd="M100 400V200H180V400ZM300 400V300H380V400Z"' in beside
    upon = preview(spec(*bars, barmode="stack", yaxis={"range": [0, 4]}))
    assert 'd="M20 300V100H180V300ZM220 100V0H380V100Z"' in upon


def test_lying_bars_leave_room_for_their_names():
    bar = {"type": "bar", "orientation": "h", "y": ["a long name", "b"], "x": [1, 2]}
    html = preview(spec(bar, margin={"l": 10}, xaxis={"range": [0, 2]}))
    assert "--l:66px" in html
    assert 'd="M0 380H200V220H0Z' in html


def test_panels_have_a_place_on_a_laptop_and_on_a_phone():
    traces = [{"type": "scatter", "mode": "markers", "x": [1], "y": [1], "xaxis": a, "yaxis": b}
              for a, b in (("x", "y"), ("x2", "y2"))]  # fmt: skip
    narrow = {"xaxis": {"domain": [0, 1]}, "yaxis": {"domain": [0.6, 1]}}
    axes = {"xaxis": {"domain": [0, 0.45]}, "xaxis2": {"domain": [0.55, 1]}}
    html = preview(spec(*traces, **axes, meta={"narrow": narrow}))
    assert html.count("<svg") == 2
    assert "--x:0%;--y:0%;--w:45%;--h:100%;--nx:0%;--ny:60%;--nw:100%;--nh:40%;" in html
    assert "--x:55%;" in html
    assert preview(spec({"type": "indicator"})) == ""


# Proof-reading.

GOOD = '<main id="m"><h1 id="h">T</h1><p>x <a href="#h">y</a></p><img src="i.svg" alt=""></main>'
FAULTS = {
    "an unclosed tag": ("</p>", "</em></p>", "unexpected-end-tag"),
    "an id twice": ('id="m"', 'id="h"', "'h' occurs twice"),
    "a picture without a text": (' alt=""', "", "a picture without a text"),
    "a block in text": (">T<", "><div>T</div><", "<div> in <h1>"),
    "a control in a control": (">y<", "><button>y</button><", "<button> in <a>"),
    "a label without its input": ("<p>x", '<p><label for="q">x</label>', "for='q' finds nothing"),
    "a list item without a list": ("<p>x", "<li>z</li><p>x", "<li> in <main>"),
    "a caption in between": (
        "<p>x",
        "<figure><b>f</b><figcaption>c</figcaption><b>d</b></figure><p>x",
        "<figcaption>",
    ),
    "an obsolete tag": ("<p>x", "<center>x</center><p>x", "obsolete"),
    "a dead place": ("#h", "#nowhere", "finds no such place"),
    "a dead link": ("#h", "gone/", "leads nowhere"),
    "a dead picture": ("i.svg", "j.svg", "leads nowhere"),
}


@pytest.fixture
def good(tmp_path):
    text = f"{HEAD}</head><body>{GOOD}</body></html>\n"
    (tmp_path / "index.html").write_text(text, "utf-8")
    (tmp_path / "i.svg").write_text("<svg/>", "utf-8")
    return tmp_path


def test_a_good_page_is_left_in_peace(good):
    assert proof.proof(good) == ([], [])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_named(good, fault):
    old, new, message = FAULTS[fault]
    file = good / "index.html"
    text = file.read_text("utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), "utf-8")
    wrong, _ = proof.proof(good)
    assert any(message in sentence and "index.html" in sentence for sentence in wrong), wrong


def test_nothing_to_check_is_a_failure(good):
    shutil.rmtree(good)
    good.mkdir()
    with pytest.raises(ValueError, match="no page"):
        proof.proof(good)
    with pytest.raises(ValueError, match="no text"):
        proof.misspelt([], set())


def test_links_to_elsewhere_are_listed_and_followed(good, tmp_path):
    file = good / "index.html"
    dead = "http://127.0.0.1:9/x"
    file.write_text(file.read_text("utf-8").replace("#h", dead), "utf-8")
    wrong, outside = proof.proof(good)
    assert (wrong, outside) == ([], [dead])
    (answer,) = proof.unreachable(outside, seconds=2)
    assert answer.startswith(dead)
    assert proof.unreachable([(good / "i.svg").as_uri()]) == []


def test_a_misspelt_word_is_found_and_code_is_not_prose(tmp_path):
    file = tmp_path / "x.md"
    file.write_text(
        "---\ntitle: qwert\n---\nThe kernal reads the reader's colour, `qwert` and\n"
        "$\\alpha qwert$ [here](qwert.md).\n\n```python\nqwert = 1\n```\n",
        "utf-8",
    )
    assert proof.misspelt([file], {"colour"}) == ["kernal (x.md)"]
    assert [x.split()[0] for x in proof.misspelt([file], set())] == ["colour", "kernal"]


def test_the_project_s_words_are_sorted_and_each_is_there_once(tmp_path):
    assert "softmax" in proof.project_words()
    file = tmp_path / "words.txt"
    for text in ("b\na\n", "a\na\n"):
        file.write_text(text, "utf-8")
        with pytest.raises(ValueError, match="sorted"):
            proof.project_words(file)
