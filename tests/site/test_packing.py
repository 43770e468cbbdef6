"""How pages are packed: on small pages and modules, each with a fault."""

import re

import pytest

from snippets._lab.rooms import ROOT
from snippets._site import packing, scripts

HEAD = (
    '<!doctype html>\n<html lang="en" dir="ltr"><head>\n<meta charset="utf-8">\n<title>t</title>\n'
)
SCRIPTS = (
    '<script src="assets/javascripts/bundle.1a2b.min.js"></script>\n'
    '<script src="assets/javascripts/site/index.js" type="module"></script>\n'
)
STEPS = "assets/javascripts/widgets/steps.css"
LINKS = "".join(
    f'<link rel="stylesheet" href="{path}">\n'
    for path in ("assets/stylesheets/main.1a.min.css", "assets/own.css", STEPS)
)
FILES = {
    "assets/stylesheets/main.1a.min.css": (
        ".kept{margin:0}.gone{top:0}.state-on,.gone>p{top:0}@media print{.gone{top:0}p{top:0}}"
        ".md-typeset table:not([class]){top:0}"
        '[dir=ltr] p,[dir=rtl] p{top:0}:root{--icon:url("data:a;b{}")}:is(.gone,p) b,.gone{top:0}'
        ":root{--one:var(--two);--two:1;--tint:2}.kept{color:var(--tint)}"
    ),
    "assets/own.css": (
        '/* why */\n@font-face { src: url("../fonts/a.woff2"); }\n.gone { color: red }\n'
    ),
    "assets/javascripts/bundle.1a2b.min.js": 'x.classList.add("state-on","md-typeset")',
    "assets/javascripts/site/index.js": 'import { box } from "./dom.js";\n\nbox();\n',
    "assets/javascripts/site/dom.js": (
        '// why\nexport const make = (tag) => tag;\nexport function box() {\n  make("b");\n}\n'
    ),
    "assets/javascripts/site/more.js": 'import { make } from "./dom.js";\nexport const n = 1;\n',
    "assets/javascripts/widgets/steps.js": (
        'import {\n  make,\n} from "../site/dom.js";\nimport { n } from "../site/more.js";\n'
        "export function start() {\n  make(n);\n}\n"
    ),
    STEPS: ".x { margin: 0 }",
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
        "index.html": page('<p class="kept am-table">x</p>', "<script>one()</script>"),
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
    packing.pack(source, ["assets/own.css", STEPS])
    return source


def styles(page):
    return re.findall("<style>(.*?)</style>", page.read_text("utf-8"), re.DOTALL)


def test_a_page_asks_for_two_scripts_and_no_style(folder):
    for name, up in (("index.html", ""), ("sub/index.html", "../"), ("404.html", "/deep/")):
        text = (folder / name).read_text("utf-8")
        assert "stylesheet" not in text
        common, faces = styles(folder / name)
        assert "url(" not in common
        assert f'url("{up}assets/fonts/a.woff2")' in faces
        theme, own = re.findall(r'<script src="([^"]*)"', text)
        assert theme.endswith("bundle.1a2b.min.js")
        assert re.fullmatch(rf"{up}assets/[0-9a-f]{{8}}/site/index.js", own)
        assert (folder / own.removeprefix(up)).is_file()


def test_what_the_theme_says_of_nothing_here_is_left_out_and_ours_stays(folder):
    assert styles(folder / "index.html")[0] == (
        ".kept{margin:0}.state-on{top:0}@media print{p{top:0}}.md-typeset table.am-table{top:0}"
        "[dir=ltr] p{top:0}:is(.gone,p) b{top:0}:root{--tint:2}.kept{color:var(--tint)}"
        ".gone{color:red}"
    )


def test_a_page_has_the_style_of_its_own_widgets_only(folder):
    common, own, _faces = styles(folder / "more/index.html")
    assert own == ".x{margin:0}"
    assert styles(folder / "index.html")[0] == common, "so that navigation keeps it"


def test_every_page_names_the_same_policy_before_anything_else(folder):
    texts = [(folder / n).read_text("utf-8") for n in ("index.html", "sub/index.html", "404.html")]
    (policy,) = {re.search(r'Policy" content="([^"]*)"', text)[1] for text in texts}
    assert policy.count("'sha256-") == 2, "the inline scripts of all pages"
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("style-src")[0]
    assert all(text.index("Policy") < text.index("<style>") for text in texts)


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
    (worker,) = folder.glob("assets/*/playground/engine/worker.js")
    assert "import" not in worker.read_text("utf-8")
    left = {path.name for path in folder.glob("assets/javascripts/**/*") if path.is_file()}
    assert left == {"bundle.1a2b.min.js"}, "the source is not published beside the packs"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("site/dom.js", 'import { n } from "./more.js";\n', "dom.js imports itself"),
        ("site/dom.js", 'import { n } from "./nowhere.js";\n', "dom.js needs .*nowhere.js"),
        ("site/dom.js", "export default 1;\n", "not packed: export default 1"),
        ("site/dom.js", "const s = `a ${n ? ` b ` : 1}`;\n", "not packed: .{n . ` b `"),
    ],
)
def test_a_form_that_is_not_packed_is_refused(source, file, text, message):
    (source / scripts.SOURCE / file).write_text(text, "utf-8")
    with pytest.raises(scripts.PackingError, match=message):
        scripts.pack(source)


def test_a_widget_has_a_page_that_asks_for_it():
    folder = ROOT / "docs/assets/javascripts/widgets"
    there = {path.stem for path in folder.glob("*.js")}
    assert {path.stem for path in folder.glob("*.css")} <= there
    docs = ROOT / "docs"
    pages = [*docs.glob("*.md"), *docs.glob("[pl]*/*.md")]  # a prediction stands in a post's text
    sources = [*(ROOT / "snippets").rglob("*.py"), *pages]
    wanted = re.compile(r'(?:data-widget=|\bwidget\(\s*"[\w-]+",\s*)"(\w+)"')
    assert {name for path in sources for name in wanted.findall(path.read_text("utf-8"))} == there
