"""What of a section the index of the search holds."""

from snippets._site import search

LONG = " ".join(f"Sentence {n} says something new." for n in range(60))
LISTED = [
    {"location": "a/", "title": "A page", "text": "<p>What it is about.</p>"},
    {
        "location": "a/#b",
        "title": "Why <code>\u221ad</code>?",
        "text": "<p>It is &lt; 1.</p><pre><code>acc = tl.dot(q, k)  # 2</code></pre>",
        "boost": 2,
    },
    {"location": "a/#c", "title": "Long", "text": f"<p>{LONG}</p>"},
]


def test_a_section_keeps_its_first_sentences_and_the_names_of_its_code():
    page, short, long = search.sections(LISTED)
    assert page == {
        "location": "a/",
        "title": "A page",
        "page": "A page",
        "text": "What it is about.",
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
