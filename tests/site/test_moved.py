"""Old addresses of sections: the anchors of `moved` in a page's front matter."""

import pytest

from snippets._site.moved import MovedError, anchored, linked

PAGE = '<h1 id="top">T</h1><h2 id="kernel">The kernel</h2><p>…</p><h3 id="clock">Clock</h3>'
PAGE += '<a href="b/#x" id="gone"></a>'


def test_a_section_answers_to_its_old_names():
    found = anchored(PAGE, {"kernel": ["which-query", "how-launched"], "clock": ["cost"]})
    assert '<h2 id="kernel"><a id="which-query"></a><a id="how-launched"></a>The' in found
    assert '<h3 id="clock"><a id="cost"></a>Clock' in found
    assert anchored(PAGE, {}) == PAGE


def test_a_section_on_another_page_is_a_link_with_the_old_name():
    moved = {"clock": ["cost"], "/how_to/odd_widths.md#rows": ["width", "figure-a-b"]}
    made = linked("Text.", moved)
    assert made.startswith("Text.\n\n<p ")
    assert "[odd widths](/how_to/odd_widths.md#rows){ #width }\n[odd widths]" in made
    assert "cost" not in made
    assert linked("Text.", {"clock": ["cost"]}) == "Text."
    assert '<h3 id="clock"><a id="cost"></a>Clock' in anchored(PAGE, moved)


@pytest.mark.parametrize(
    ("moved", "named"),
    [
        ({"kernels": ["which-query"]}, "kernels"),
        ({"kernel": ["clock"]}, "clock"),
        ({"kernel": ["a"], "clock": ["a"]}, "a"),
        ({"/b.md#x": ["gone"], "kernel": ["gone"]}, "gone"),
    ],
)
def test_what_does_not_fit_the_page_is_named(moved, named):
    with pytest.raises(MovedError, match=rf"\b{named}\b"):
        anchored(PAGE, moved)
