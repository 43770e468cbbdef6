"""What a build adds to pages: glossary words, tables that fold, badges, Markdown, dates."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from mkdocs.exceptions import PluginError

from snippets._lab.results import store
from snippets._lab.rooms import ROOT
from snippets._site import (
    about,
    export,
    front_menu,
    glossary,
    hook,
    html_fixes,
    reference,
    stale,
    tables,
)
from tests import made_up
from tests.floors import some
from tests.site.test_site import published

GLOSSARY = (ROOT / "docs" / glossary.PAGE).read_text("utf-8")
REFERENCE = (ROOT / "docs" / reference.PAGE).read_text("utf-8")


def mark(content, page="some_post"):
    return glossary.mark(content, glossary.definitions(GLOSSARY), "../g/", page)


def marked(content, page="some_post"):
    return re.findall(r'class="am-term" href="../g/#([\w-]+)"', mark(content, page))


def test_no_word_is_marked_in_an_answer_that_becomes_a_button():
    asked = '<div class="am-predict"><ul><li>a warp</li></ul><details><p>a warp</p></details></div>'
    assert mark(asked).count('class="am-term"') == 1
    assert mark(asked).index("am-term") > asked.index("<details>")
    assert marked(asked + "<ul><li>a tile</li></ul>") == ["warp", "tile"]


# What the pages must have.


def test_every_launcher_of_a_published_post_is_in_the_reference():
    documented = reference.IDENTIFIER.findall(REFERENCE)
    found = [p for p in some(published()) if (ROOT / f"snippets/{p}/kernel.py").exists()]
    launchers = {tuple(name.split(".")[1::2]) for name in documented}  # its room, and its name
    assert not [p for p in some(found) if (p, p) not in launchers]


def test_the_road_is_a_menu_of_every_post_in_the_order_of_the_navigation(tmp_path):
    def page(name, part="Part", **meta):
        file = SimpleNamespace(name=name, url_relative_to=lambda front: f"posts/{name}/")
        meta = {"description": "First. Second.", "found": "{{ one.two.three }}, & fast", **meta}
        parent = SimpleNamespace(title=part)
        return SimpleNamespace(
            file=file,
            title=f"On {name}",
            meta=meta,
            content="<p>word</p>",
            parent=parent,
            is_homepage=name == "front",
        )

    posts = [page("one", "A"), page("two", "B", description="Short.")]
    posts += [page(name, "B") for name in ("four", "five", "six")]
    numbers = tmp_path / "figures/one/numbers.json"
    numbers.parent.mkdir(parents=True)
    numbers.write_text(json.dumps({"two": {"numbers": {"three": "3 ms"}}}))
    made = front_menu.filled('<div class="am-road"></div>', posts, page("index"), tmp_path)
    assert re.findall(r'<i>(\d)</i>.*?<a href="posts/(\w+)/">On \w+</a><p>([^<]*)</p>', made) == [
        ("1", "one", "First."),
        ("2", "two", "Short."),
        *((str(i), name, "First.") for i, name in enumerate(("four", "five", "six"), 3)),
    ]
    assert re.findall(r"<h3>([^<]*)</h3>", made) == ["A", "B"]
    assert made.count("<em><b>3\u00a0ms</b>, &amp; fast</em>") == len(posts)
    place = '<div class="am-road" data-posts="two three"></div>'
    short = front_menu.filled(place, posts, page("index"), tmp_path)
    assert re.findall(r"<i>(\d)</i>.*?>On (\w+)</a>", short) == [("2", "two")]
    assert "<h3>" not in short
    assert "<p>" not in short
    place = '<div class="am-road" data-marked="two"></div>'
    marked = front_menu.filled(place, posts, page("index"), tmp_path)
    assert marked == made.replace("<li><i>2<", '<li class="am-marked"><i>2<')
    front = front_menu.filled('<div class="am-road"></div>', posts, page("front"), tmp_path)
    assert front == re.sub("<p>[^<]*</p>", "", made)


def test_the_front_page_marks_the_posts_of_the_short_path():
    front, learn = ((ROOT / "docs" / name).read_text("utf-8") for name in ("index.md", "learn.md"))
    assert re.findall('data-marked="(.+)"', front) == re.findall('data-posts="(.+)"', learn) != []


def test_a_glossary_word_is_there_once_and_its_text_fits_a_tooltip():
    entries = [(m["id"], " ".join(m["text"].split())) for m in glossary.ENTRY.finditer(GLOSSARY)]
    ids = [name for name, _ in some(entries, 40)]
    assert sorted(ids) == sorted({*ids})
    assert {*re.findall(r"\{ #([\w-]+)", GLOSSARY)} == {*ids}, "each anchor is an entry"
    assert not [name for name, words in entries if len(words) > 320]
    for entry in some(glossary.definitions(GLOSSARY)):
        assert not re.search(r"[\[\]`*$\\]", entry.text), entry
        assert entry.text.endswith("."), entry


# Marking words.


def test_the_first_use_of_a_word_leads_to_its_definition():
    text = mark("<p>Two warps, and then a warp.</p>")
    assert text.count("am-term") == 1
    assert 'href="../g/#warp" title="32 threads that execute' in text
    assert (
        text.replace(re.search(r"<a .*?</a>", text)[0], "warps", 1)
        == "<p>Two warps, and then a warp.</p>"
    )


def test_plurals_beginnings_of_sentences_and_acronyms_are_words_too():
    assert marked("<p>Tiles, SMs, tensor cores; kernel launches.</p>") == [
        "tile",
        "multiprocessor",
        "tensor-core",
        "kernel-launch",
    ]
    assert marked("<p>sms, warped, tile-wise, hbm</p>") == []


@pytest.mark.parametrize(
    "quiet",
    [
        "<h2>A warp</h2>",
        "warp outside text",
        "<p><code>warp</code></p>",
        '<p><a href="x">a warp</a></p>',
        "<table><tr><td><p>warp</p></td></tr></table>",
        "<details><summary>warp</summary></details>",
        '<p class="am-finding">warp</p>',
        '<p class="admonition-title">warp</p>',
        "<p><math><mtext>warp</mtext></math></p>",
        '<p><!-- warp --><span title="warp">x</span></p>',
    ],
)
def test_titles_code_links_and_tables_are_left_alone(quiet):
    assert mark(quiet) == quiet
    assert marked(quiet + "<p>warp</p>") == ["warp"], "the next use is marked"


def test_a_page_that_explains_a_word_does_not_lead_away_from_itself():
    assert marked("<p>coalescing</p>") == ["coalescing"]
    assert marked("<p>coalescing</p>", page="coalescing") == []


# Code, links, and what Markdown leaves of HTML.


def test_code_is_light_and_says_its_lines():
    text = (
        '<div class="language-python highlight"><pre><span></span><code>'
        '<span class="n">a</span><span class="w"> </span><span class="o">=</span>\n'
        '<span class="kn">b</span>\n</code></pre></div>'
    )
    made = html_fixes.fixed(text)
    assert 'style="--am-lines: 2; --am-columns: 3"' in made
    assert '<code>a <i>=</i>\n<span class="kn">b</span>' in made
    links = '<a href="https://x.org">x</a> <a class="y" href="../z/">z</a>'
    marked = html_fixes.fixed(links)
    assert marked == links.replace("<a href", '<a rel="external" href')
    stray = '<p><div class="x" markdown>\n<a href="y">z</a>\n</div></p>\n<p>t</p>'
    opened = '<p><div class="x">\n</p>\n<table></table>'
    assert html_fixes.fixed(opened) == '<div class="x">\n\n<table></table>'
    assert html_fixes.fixed(stray) == '<div class="x">\n<a href="y">z</a>\n</div>\n<p>t</p>'


# Tables.


def test_a_wide_table_names_its_cells_and_a_narrow_one_does_not():
    def table(columns, rows=1):
        heads = "".join(f"<th>h{i}</th>" for i in range(columns))
        cells = "".join(f'<td style="x">{i}</td>' for i in range(columns))
        body = f"<tr>{cells}</tr>" * rows
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"

    wide = tables.fold(table(4))
    assert wide.startswith("<table data-fold>")
    assert re.findall(r'<td data-label="(h\d)" style="x">\d', wide) == ["h0", "h1", "h2", "h3"]
    assert tables.fold(table(3)) == table(3)
    wordy = table(3).replace(">2<", f">{'word ' * 20}<")
    assert tables.fold(wordy).startswith('<table data-fold="words">')
    assert tables.fold(table(4, 9)).startswith('<table data-fold="flow" data-search-exclude>')
    boxed = tables.folded(table(4).replace("h0", ""))
    assert '<div class="md-typeset__table"><table class="am-table"' in boxed
    assert "<td></td><th>h1</th>" in boxed, "no head is empty"


# Times and dates.


def test_last_measured_is_the_newest_result_of_a_gpu(tmp_path):
    def result(place, at, **fields):
        made = made_up.result("post", "forward", [{"N": 1}], place=place, measured_at=at, **fields)
        return store.write(made, tmp_path)

    assert about.last_measured(tmp_path, "post") is None
    result("interpreter", "2026-11-04T00:00:00Z")
    assert about.last_measured(tmp_path, "post") is None
    result("gpu", "2026-11-03T23:00:00Z", device={"name": "one"})
    path = result("gpu", "2026-11-02T23:00:00Z", device={"name": "two"})
    assert about.last_measured(tmp_path, "post") == {"day": "3 November 2026", "device": "one"}
    path.write_text(path.read_text()[:99])
    with pytest.raises(store.DataError, match=f"{path} is not whole JSON"):
        about.last_measured(tmp_path, "post")


def test_a_truncated_result_stops_the_build_by_its_page_and_path(tmp_path):
    path = store.write(made_up.result("a_post", "forward", [made_up.timed()]), tmp_path / "data")
    path.write_text(path.read_text()[:300])
    file = SimpleNamespace(src_uri="posts/a_post.md", name="a_post")
    page = SimpleNamespace(file=file, content="<p>text</p>", meta={})
    config = SimpleNamespace(docs_dir=str(tmp_path))
    with pytest.raises(PluginError, match=rf"posts/a_post.md: {path} is not whole JSON"):
        hook.on_page_context({}, page, config, SimpleNamespace(pages=[]))


# Badges.


def test_a_result_whose_code_has_changed_has_a_badge_and_another_has_none(tmp_path, monkeypatch):
    stored = store.read(store.path_of("browser", "playground", "mistakes"))
    place = '.<span class="am-stale" data-result="browser/playground/mistakes"></span>\nx'
    now = replace(stored, **made_up.code_as_it_is("playground", "mistakes", "browser"))
    before = replace(now, code={}, source_hash="0" * 16)
    for found, badge in ((now, ""), (before, stale.BADGE), (now, "")):
        store.write(found, tmp_path)
        stale.forget()
        assert stale.shown(place, tmp_path) == f".{badge}\nx"
    with pytest.raises(store.DataError, match="is missing"):
        stale.shown(place.replace("playground", "gone"), tmp_path)


# Markdown versions.


def test_markdown_has_no_html_no_attributes_and_relative_links():
    text = """# A
<p class="am-lead" markdown>Lead, $\\frac{a}{b}$.</p>

<figure class="am-figure" markdown>
<p class="am-finding" markdown>
It is so.
</p>
[Data](/data/x.json){ .am-source } [File](/snippets/a/kernel.py){ download }
</figure>
<!-- gone -->
<svg role="img" aria-label="Q times K">
<text>Q</text></svg>
a &#124; b&#95;c

```python
x = {"<p>": 1}  # [D](/y){ .z }
```
"""
    assert (
        export.as_markdown(text, "posts/a.md")
        == """# A
Lead, $\\frac{a}{b}$.

**It is so.**
[Data](../data/x.json) [File](../snippets/a/kernel.py)

*Diagram: Q times K*
a &#124; b_c

```python
x = {"<p>": 1}  # [D](/y){ .z }
```
"""
    )


def test_markdown_of_html_puts_each_row_and_entry_on_a_line_of_its_own():
    text = """<ul><li><strong>2×</strong> as fast</li><li>tiled: 3 ms</li></ul>
<table><thead><tr><th>wrong</th></tr></thead><tbody><tr><td>A
<code>x <del>&lt; y</del><ins>&#60; z</ins></code></td></tr></tbody></table>

<pre><code><span>a = 1</span><span>if a:</span></code></pre>
<div aria-hidden="true">■<div>166425</div>4096</div>
A <svg class="x" aria-label="Q times K"><text>Q</text></svg> B<button>Run</button>
"""
    assert (
        export.as_markdown(text, "a.md")
        == """- 2× as fast
- tiled: 3 ms

| wrong |
| --- |
| A  `x [-< y-]{+< z+}`  |

```
a = 1
if a:
```

A *Diagram: Q times K* B
"""
    )
