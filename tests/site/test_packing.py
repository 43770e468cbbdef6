"""How pages are packed: on small pages and modules, each with a fault."""

import re

import pytest

from snippets._lab.rooms import ROOT
from snippets._site import packing, scripts, styles

HEAD = '<!doctype html>\n<html lang="en"><head>\n<meta charset="utf-8">\n<title>t</title>\n'
SCRIPTS = (
    '<script src="assets/javascripts/bundle.1a2b.min.js"></script>\n'
    '<script src="assets/javascripts/site/index.js" type="module"></script>\n'
)
LINKS = (
    '<link rel="stylesheet" href="assets/theme.min.css">\n'
    '<link rel="stylesheet" href="assets/own.css">\n'
    '<link rel="stylesheet" href="assets/javascripts/widgets/steps.css">\n'
)
FILES = {
    "assets/theme.min.css": (
        ":root{--used:1px;--later:1px;--unused:2px}.kept{margin:var(--used)}.state-on{top:0}.gone{top:0}"
    ),
    "assets/own.css": "/* why */\n.later { color: red }\n@media print { .kept { top: 0 } }",
    "assets/javascripts/bundle.1a2b.min.js": 'x.classList.add("state-on")',
    "assets/javascripts/site/index.js": 'import { box } from "./dom.js";\n\nbox();\n',
    "assets/javascripts/site/dom.js": (
        '// why\nexport const make = (tag) => tag;\nexport function box() {\n  make("b");\n}\n'
    ),
    "assets/javascripts/site/more.js": 'import { make } from "./dom.js";\nexport const n = 1;\n',
    "assets/javascripts/widgets/steps.js": (
        'import {\n  make,\n} from "../site/dom.js";\nimport { n } from "../site/more.js";\n'
        "export function start() {\n  make(n);\n}\n"
    ),
    "assets/javascripts/widgets/steps.css": ".x { margin: var(--later) }",
    "assets/javascripts/playground/engine/worker.js": (
        'import { run } from "./run.js";\n\naddEventListener("message", () => run());\n'
    ),
    "assets/javascripts/playground/engine/run.js": "export function run() {\n  postMessage(1);\n}",
}


def page(body="", head=""):
    return f"{HEAD}{LINKS}{head}</head><body>{body}\n{SCRIPTS}</body></html>\n"


@pytest.fixture
def source(tmp_path):
    """A small site before it is packed: pages at three depths, the theme's files and ours."""
    pages = {
        "index.html": page('<p class="kept">x</p>', "<script>one()</script>"),
        "more/index.html": page('<p data-widget="steps"></p>').replace('"assets', '"../assets'),
        "sub/index.html": page("<script>two()</script>").replace('"assets', '"../assets'),
        "404.html": page().replace('"assets', '"/deep/assets'),
    }
    for name, text in {**FILES, **pages}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


@pytest.fixture
def folder(source):
    packing.pack(source)
    return source


def test_a_page_asks_for_two_scripts_and_no_style(folder):
    for name, up in (("index.html", ""), ("sub/index.html", "../"), ("404.html", "/deep/")):
        text = (folder / name).read_text("utf-8")
        assert "stylesheet" not in text
        own_style, faces = re.findall("<style>(.*?)</style>", text)
        assert "url(" not in own_style
        assert faces.count(f'url("{up}assets/fonts/') == faces.count("@font-face") == 4
        theme, own = packing.SCRIPT.findall(text)
        assert theme.endswith("bundle.1a2b.min.js")
        assert re.fullmatch(rf"{up}assets/[0-9a-f]{{8}}/site/index.js", own)
        assert (folder / own.removeprefix(up)).is_file()


def test_a_worker_is_one_script_that_imports_nothing(folder):
    (worker,) = folder.glob("assets/*/playground/engine/worker.js")
    assert worker.read_text("utf-8").replace("\n", "") == (
        "const engine_run=(()=>{function run(){postMessage(1);}return{run};})();"
        'const{run}=engine_run;addEventListener("message",()=>run());'
    )
    assert not (folder / "assets/javascripts/playground/engine").exists()


def test_modules_are_packed_in_order_and_a_widget_imports_what_the_page_has(folder):
    (first,) = folder.glob("assets/*/site/index.js")
    assert first.read_text("utf-8").replace("\n", "") == (
        'const site_dom=(()=>{const make=(tag)=>tag;function box(){make("b");}'
        "return{make,box};})();const{box}=site_dom;box();export{site_dom};"
    )
    (widget,) = folder.glob("assets/*/widgets/steps.js")
    assert widget.read_text("utf-8").replace("\n", "") == (
        'import{site_dom}from"../site/index.js";'
        "const site_more=(()=>{const{make}=site_dom;const n=1;return{n};})();"
        "const{make,}=site_dom;const{n}=site_more;function start(){make(n);}export{start};"
    )
    left = {path.name for path in folder.glob("assets/javascripts/**/*") if path.is_file()}
    assert left == {"bundle.1a2b.min.js"}, "the source is not published beside the packs"


def test_a_cache_may_keep_the_packs_until_one_of_them_changes(source, tmp_path_factory):
    names = set()
    for text in (
        "export const start = 1;\n",
        "export const start = 2;\n",
        "export const start = 1;\n",
    ):
        site = tmp_path_factory.mktemp("site")
        for name, other in FILES.items():
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).write_text(other, "utf-8")
        (site / "assets/javascripts/widgets/steps.js").write_text(text, "utf-8")
        names.add(scripts.pack(site))
    assert len(names) == 2


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("site/dom.js", 'import { n } from "./more.js";\n', "dom.js imports itself"),
        ("site/dom.js", 'import { n } from "./nowhere.js";\n', "dom.js needs .*nowhere.js"),
        ("site/dom.js", "export default 1;\n", "not packed: export default 1"),
        ("site/dom.js", 'import * as all from "./more.js";\n', "not packed: import . as all"),
        ("site/dom.js", "export let n = 1;\n", "not packed: export let n"),
        ("site/dom.js", "const s = `a ${n ? ` b ` : 1}`;\n", "not packed: .{n . ` b `"),
        ("widgets/steps.js", 'import "https://example.org/x.js";\n', "not packed: import"),
    ],
)
def test_a_form_that_is_not_packed_is_refused(source, file, text, message):
    (source / scripts.SOURCE / file).write_text(text, "utf-8")
    with pytest.raises(scripts.PackingError, match=message):
        packing.pack(source)


def test_a_widget_is_found_by_its_name_and_listed_nowhere():
    folder = ROOT / "docs/assets/javascripts/widgets"
    there = {path.stem for path in folder.glob("*.js")}
    assert {path.stem for path in folder.glob("*.css")} <= there
    posts = (ROOT / "docs").glob("[pl]*/*.md")  # a prediction stands in a post's own text
    sources = sorted([*(ROOT / "snippets").rglob("*.py"), *posts])
    wanted = re.compile(r'data-widget="(\w+)"')
    assert {name for path in sources for name in wanted.findall(path.read_text("utf-8"))} == there
    lists = [
        ROOT / "mkdocs.yml",
        *(ROOT / "snippets/_site").glob("*.py"),
        *folder.glob("../site/*"),
    ]
    for path in lists:
        named = set(re.findall(r"\b(\w+)\.(?:js|css)\b", path.read_text("utf-8"))) & there
        assert not named, f"{path.name} names {named}"


def undeclared(text):
    """Names of classes and attributes that a script puts together: trimming cannot see them."""
    return re.findall(r"""["'`\s.](?:am|md|data)-(?:[\w-]*\$\{|[\w-]*-["'`]\s*\+).*""", text)


def test_a_name_that_a_script_makes_stands_there_whole():
    """The theme's rules for such a name stay only if the name can be found."""
    found = sorted((ROOT / "docs/assets/javascripts").rglob("*.js"))
    assert len(found) > 10
    assert {p.name: u for p in found if (u := undeclared(p.read_text("utf-8")))} == {}
    for fault in ("`am-lanes-${state}`", '"md-search-" + part', "`a data-md-${x}`", "`.am-${x}`"):
        assert undeclared(f"const name = {fault};"), fault
    assert not undeclared('make("p", { className: "am-missing" }); `${a}-b`; "am-a" + " md-b"')


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
        ":root{--used:1px;--later:1px}.kept{margin:var(--used)}.state-on{top:0}"
        ".later{color:red}@media print{.kept{top:0}}"
    )


def test_a_page_has_the_style_of_its_own_widgets_only(folder):
    text = (folder / "more/index.html").read_text("utf-8")
    common, own, faces = re.findall("<style>(.*?)</style>", text)
    assert faces.startswith("@font-face")
    assert own == ".x{margin:var(--later)}"
    assert common in (folder / "index.html").read_text("utf-8"), "so that navigation keeps it"
    assert ".x{" not in (folder / "index.html").read_text("utf-8")


NAMES = styles.Names.of(
    ['<html class="no-js"><p class="a" id="b" data-kind="x">', '<div data-tabs="1:2" hidden>'],
    'e.classList.add("made-here"); e.setAttribute("data-is-open", 1); V("md-version")',
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
        ("[data-kind^=mad]", True),
        ("[data-none]", False),
        (".a:not(.z)", True),
        (".a:is(.z, #b)", True),
        (".a:is(.z, .y)", False),
        (".made-here", True),
        ("mark", True),
        (".js p", True),
        ("[data-is-open]", True),
        (".md-version", False),
        (".tabbed-x>:nth-child(3)", False),
        ("*", True),
        (":root", True),
        (".no-js p", True),
    ],
)
def test_what_can_match(selector, kept):
    names = styles.Names(NAMES.words | {"tabbed-x"}, NAMES.tabs)
    assert bool(styles.packed(selector + "{top:0}", "", names)) is kept


def test_the_same_is_said_without_reading_an_attribute():
    names = styles.Names({"table", "class", "href", "a"})
    css = "a[href]:hover,table:not([class]){top:0}"
    assert styles.packed(css, "", names) == "a:any-link:hover,table.am-table{top:0}"


def test_a_list_keeps_its_living_selectors():
    assert styles.packed(".a,.z , #b{top:0}", "", NAMES) == ".a,#b{top:0}"


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
        assert styles.packed(css, "", NAMES) == ".a{top:0}"
        return
    with pytest.raises(styles.StyleError, match=message):
        styles.packed(css, "", NAMES)


def test_a_site_of_another_make_is_refused(tmp_path):
    (tmp_path / "index.html").write_text("<p>", "utf-8")
    with pytest.raises(packing.PackingError, match="unlike a page"):
        packing.pack(tmp_path)
