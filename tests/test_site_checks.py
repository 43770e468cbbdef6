"""What is asked of built pages and of texts: each question on a small page with a fault."""

import shutil

import pytest

from snippets._site.checks import markup, spelling

HEAD = '<!doctype html>\n<html lang="en"><head>\n<meta charset="utf-8">\n<title>t</title>\n'
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
    assert markup.faults(good) == ([], [])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_named(good, fault):
    old, new, message = FAULTS[fault]
    file = good / "index.html"
    text = file.read_text("utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), "utf-8")
    wrong, _ = markup.faults(good)
    assert any(message in sentence and "index.html" in sentence for sentence in wrong), wrong


def test_nothing_to_check_is_a_failure(good):
    shutil.rmtree(good)
    good.mkdir()
    with pytest.raises(ValueError, match="no page"):
        markup.faults(good)
    with pytest.raises(ValueError, match="no text"):
        spelling.misspelt([], set())


def test_links_to_elsewhere_are_listed_and_followed(good, tmp_path):
    file = good / "index.html"
    dead = "http://127.0.0.1:9/x"
    file.write_text(file.read_text("utf-8").replace("#h", dead), "utf-8")
    wrong, outside = markup.faults(good)
    assert (wrong, outside) == ([], [dead])
    (answer,) = markup.unreachable(outside, seconds=2)
    assert answer.startswith(dead)
    assert markup.unreachable([(good / "i.svg").as_uri()]) == []


def test_a_misspelt_word_is_found_and_code_is_not_prose(tmp_path):
    file = tmp_path / "x.md"
    file.write_text(
        "---\ntitle: qwert\n---\nThe kernal reads the reader's colour, `qwert` and\n"
        "$\\alpha qwert$ [here](qwert.md).\n\n```python\nqwert = 1\n```\n",
        "utf-8",
    )
    assert spelling.misspelt([file], {"colour"}) == ["kernal (x.md)"]
    assert [x.split()[0] for x in spelling.misspelt([file], set())] == ["colour", "kernal"]


def test_the_project_s_words_are_sorted_and_each_is_there_once(tmp_path):
    assert "softmax" in spelling.project_words()
    file = tmp_path / "words.txt"
    for text in ("b\na\n", "a\na\n"):
        file.write_text(text, "utf-8")
        with pytest.raises(ValueError, match="sorted"):
            spelling.project_words(file)
