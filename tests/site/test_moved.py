"""Old addresses of sections: the anchors of `moved` in a page's front matter."""

import re

import pytest
import yaml

from snippets._lab.rooms import ROOT
from snippets._site.moved import MovedError, anchored

POSTS = ROOT / "docs" / "posts"

PAGE = '<h1 id="top">T</h1><h2 id="kernel">The kernel</h2><p>…</p><h3 id="clock">Clock</h3>'


def test_a_section_answers_to_its_old_names():
    found = anchored(PAGE, {"kernel": ["which-query", "how-launched"], "clock": ["cost"]})
    assert '<h2 id="kernel"><a id="which-query"></a><a id="how-launched"></a>The' in found
    assert '<h3 id="clock"><a id="cost"></a>Clock' in found
    assert anchored(PAGE, {}) == PAGE


@pytest.mark.parametrize(
    ("moved", "named"),
    [
        ({"kernels": ["which-query"]}, "kernels"),
        ({"kernel": ["clock"]}, "clock"),
        ({"kernel": ["a"], "clock": ["a"]}, "a"),
    ],
)
def test_what_does_not_fit_the_page_is_named(moved, named):
    with pytest.raises(MovedError, match=rf"\b{named}\b"):
        anchored(PAGE, moved)


def headings(page):
    return set(re.findall(r"^##+ .*\{#([\w-]+)\}$", page.read_text("utf-8"), re.MULTILINE))


def test_sections_that_went_to_a_post_of_their_own_are_found_from_their_old_address():
    """posts/hopper_attention/#barriers leads to the paragraph that says where barriers are now."""
    first, second = (POSTS / f"{name}.md" for name in ("warp_specialization", "hopper_attention"))
    front = yaml.safe_load(second.read_text("utf-8").split("\n---\n")[0])
    gone = headings(first) - headings(second)
    assert len(gone) > 5
    assert gone <= set(front["moved"]["so-far"])
    recap = second.read_text("utf-8").split("{#so-far}")[1].split("\n## ")[0]
    assert "(warp_specialization.md#barriers)" in recap
