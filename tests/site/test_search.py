"""What the index of the search holds."""

import json

from snippets._site import search

LONG = " ".join(f"Sentence {n} says something new." for n in range(60))
LISTED = [
    {"location": "a/", "title": "A page", "text": "<p>What it is about.</p>", "tags": ["gpu", "x"]},
    {
        "location": "a/#b",
        "title": "Why <code>\u221ad</code>?",
        "text": "<p>It is &lt; 1.</p><pre><code>acc = tl.dot(q, k)  # 2</code></pre>",
        "boost": 2,
        "tags": ["gpu", "x"],
    },
    {"location": "a/#c", "title": "Long", "text": f"<p>{LONG}</p>"},
    {"location": "a/#row", "title": "A page", "text": ""},
]
WORDS = """# Words

scale { #scale .am-plain }
:   The factor $1/\\sqrt{d}$. [Why](../posts/weights.md#why).

## Not covered here

fp8
int8 { #fp8 .am-plain }
:   Numbers of *8 bits*. [The nearest](errors.md#eight).
"""


def test_a_section_keeps_its_first_sentences_and_the_names_of_its_code():
    page, short, long = search.sections(LISTED)
    assert page == {
        "location": "a/",
        "title": "A page",
        "page": "A page",
        "text": "What it is about.",
        "tags": "gpu x",
    }
    assert short == {
        "location": "a/#b",
        "title": "Why \u221ad?",
        "page": "A page",
        "text": "It is < 1.",
        "code": "acc tl.dot",
        "boost": 2,
    }
    assert LONG.startswith(long["text"])
    assert long["text"].endswith(".")
    assert search.SHOWN / 2 < len(long["text"]) <= search.SHOWN
    assert "59" in long["rest"].split(), "each further word once"
    assert long["rest"].split().count("Sentence") == 0


def test_a_word_of_the_glossary_is_an_entry_and_may_name_what_comes_nearest(tmp_path):
    words, index = tmp_path / "glossary.md", tmp_path / search.INDEX
    words.write_text(WORDS, "utf-8")
    index.parent.mkdir()
    places = ["reference/glossary/", "reference/glossary/#all", "posts/a/#next"]
    listed = [{"location": place, "title": place, "text": "x"} for place in places]
    index.write_text(json.dumps({"docs": listed}), "utf-8")
    search.pack(tmp_path, words, ["a"])
    post, page, *entries = json.loads(index.read_text("utf-8"))
    assert (post["location"], post["boost"], page["location"]) == (places[2], 0.1, places[0])
    assert [[*entry.values()] for entry in entries] == [
        ["reference/glossary/#scale", "scale", "Glossary", "The factor 1/√d."],
        [
            *("reference/glossary/#fp8", "fp8, int8", "Not covered here", "Numbers of 8 bits."),
            "reference/errors/#eight",
        ],
    ]


def test_drawings_and_names_of_files_are_marked_for_the_plugin_alone():
    marked = search.without_asides(
        '<p>a <svg id="b"><text>c</text></svg></p><span class="filename">'
        "<p><strong>Checked by</strong> <code>test_d</code></p>"
    )
    assert marked.count(' data-search-exclude="true"') == 3
    assert '<svg data-search-exclude="true" id="b">' in marked
