"""What is asked of built pages: each question on a small page with a fault."""

import pytest

from snippets._site import cli, markup

HEAD = '<!doctype html>\n<html lang="en"><head>\n<meta charset="utf-8">\n<title>t</title>\n'
GOOD = '<main id="m"><h1 id="h">T</h1><p>x <a href="#h">y</a></p><img src="i.svg" alt=""></main>'
FAULTS = {
    "an unclosed tag": ("</p>", "</em></p>", "unexpected-end-tag"),
    "an id twice": ('id="m"', 'id="h"', "'h' occurs twice"),
    "a picture without a text": (' alt=""', "", "a picture without a text"),
    "a block in text": (">T<", "><div>T</div><", "<div> in <h1>"),
    "a control in a control": (">y<", "><button>y</button><", "<button> in <a>"),
    "a label without its input": ("<p>x", '<p><label for="q">x</label>', "for='q' finds nothing"),
    "a backtick in text": ("<p>x", "<p>x, <code>`y`</code> and `z`", "is shown: 'and `z`"),
    "a backtick that is read out": ('alt=""', 'alt="of `q`"', "a backtick is shown: 'of `q`'"),
    "a name instead of a number": ("<p>x", "<p>{{ a.b.c }} x", "braces are shown: '{{ a.b.c }} x"),
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


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_named_and_a_good_page_has_none(good, fault):
    assert markup.faults(good) == ([], [], 1, 10, 2)
    old, new, message = FAULTS[fault]
    file = good / "index.html"
    file.write_text(file.read_text("utf-8").replace(old, new), "utf-8")
    wrong = markup.faults(good).wrong
    assert any(message in sentence and "index.html" in sentence for sentence in wrong), wrong


def test_a_site_of_one_page_is_not_the_projects_site(good, capsys):
    for command in ("check-html", "links"):
        assert cli.main([command, str(good)]) == 2
        assert "only 1 pages with 2 links were read" in capsys.readouterr().out


def test_links_to_elsewhere_are_listed_and_followed(good):
    file = good / "index.html"
    dead = "http://127.0.0.1:9/x"
    file.write_text(file.read_text("utf-8").replace("#h", dead), "utf-8")
    wrong, outside, *_ = markup.faults(good)
    assert (wrong, outside) == ([], [dead])
    (answer,) = markup.unreachable(outside, seconds=2)
    assert answer.startswith(dead)
    assert markup.unreachable([(good / "i.svg").as_uri()]) == []
