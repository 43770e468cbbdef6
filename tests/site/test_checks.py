"""What is asked of built pages and of texts: each question on a small page with a fault."""

import re
import shutil

import pytest

from snippets._lab.rooms import ROOT
from snippets._site import cli
from snippets._site.checks import TooLittle, markup, spelling

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
    "a backtick in text": ("<p>x", "<p>x, <code>`y`</code> and `z`", "is shown: 'and `z`"),
    "a backtick that is read out": ('alt=""', 'alt="of `q`"', "a backtick is shown: 'of `q`'"),
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
    found = markup.faults(good)
    assert (found.wrong, found.outside) == ([], [])
    assert (found.pages, found.elements, found.links) == (1, 10, 2), "all of it was read"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_named(good, fault):
    old, new, message = FAULTS[fault]
    file = good / "index.html"
    text = file.read_text("utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), "utf-8")
    wrong = markup.faults(good).wrong
    assert any(message in sentence and "index.html" in sentence for sentence in wrong), wrong


def test_nothing_to_check_is_a_failure(good):
    shutil.rmtree(good)
    good.mkdir()
    with pytest.raises(TooLittle, match="no page"):
        markup.faults(good)
    with pytest.raises(TooLittle, match="no text"):
        spelling.misspelled([], set())


def test_a_page_that_is_not_read_whole_is_a_failure(good, monkeypatch):
    read = markup.Page((good / "index.html").read_text("utf-8")).elements[:-3]
    monkeypatch.setattr(markup, "_walk", lambda *_: read)
    with pytest.raises(TooLittle, match=r"index\.html: 7 of 10 elements were read"):
        markup.faults(good)


def test_a_site_of_one_page_is_not_the_projects_site(good, capsys):
    for command in ("check-html", "links"):
        assert cli.main([command, str(good)]) == 2
        assert "only 1 pages with 2 links were read" in capsys.readouterr().out


def test_links_to_elsewhere_are_listed_and_followed(good, tmp_path):
    file = good / "index.html"
    dead = "http://127.0.0.1:9/x"
    file.write_text(file.read_text("utf-8").replace("#h", dead), "utf-8")
    wrong, outside, *_ = markup.faults(good)
    assert (wrong, outside) == ([], [dead])
    (answer,) = markup.unreachable(outside, seconds=2)
    assert answer.startswith(dead)
    assert markup.unreachable([(good / "i.svg").as_uri()]) == []


def test_a_misspelled_word_is_found_and_code_is_not_prose(tmp_path):
    file = tmp_path / "x.md"
    file.write_text(
        "---\ntitle: qwert\n---\nThe kernal reads the reader's colour, `qwert` and\n"
        "$\\alpha qwert$ [here](qwert.md).\n\n```python\nqwert = 1\n```\n",
        "utf-8",
    )
    where = f"{tmp_path.name}/x.md"
    assert spelling.misspelled([file], {"colour"}) == ([f"kernal ({where})"], 8)
    assert [x.split()[0] for x in spelling.misspelled([file], set())[0]] == ["colour", "kernal"]


TEXTS = [p for p in spelling.written() if "figures" not in p.parts and p.suffix == ".md"]
PROGRAMS = [p for p in spelling.written() if p.suffix == ".py"]
TYPO = "attenion rihgt"


def planted(file, text, folder):
    """What the check says of a text under the name of another file."""
    copy = folder / file.name
    copy.write_text(text, "utf-8")
    unknown, _ = spelling.misspelled([copy], spelling.project_words())
    return {word.split()[0] for word in unknown}


def test_the_project_s_texts_are_read():
    assert len(TEXTS) >= 20
    assert len(PROGRAMS) >= 18
    readings = [spelling.reading(file) for file in spelling.written()]
    assert all(map(spelling.Reading.whole, readings))
    assert len(readings) >= spelling.TEXTS
    assert sum(len(read.words) for read in readings) >= spelling.ALL_WORDS


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.stem)
def test_a_typo_anywhere_on_a_page_is_found(file, tmp_path):
    """After an include, a fence, a formula and a heading: where a pattern may reach too far."""
    text = file.read_text("utf-8")
    ends = [
        m.end() for m in re.finditer(r'^(?:--8<-- "[^"\n]*"|```|#.*|<.*>)$', text, re.MULTILINE)
    ]
    inside = [at for at in ends if text[:at].count("\n```") % 2 == 0]
    assert inside
    for at in {inside[0], inside[len(inside) // 2], inside[-1]}:
        made = f"{text[:at]}\n\n{TYPO}\n\n{text[at:]}"
        assert planted(file, made, tmp_path) == {"attenion", "rihgt"}


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_typo_in_what_a_published_file_says_is_found(file, tmp_path):
    text = file.read_text("utf-8")
    docstring = [m.start() for m in re.finditer(r'(?<=\w\.)"""$|^ *"""$', text, re.MULTILINE)][-1]
    error = f'\n\ndef f(x):\n    raise ValueError(f"the {{x}} {TYPO}")\n'
    for made in (
        f"{text[:docstring]} {TYPO}{text[docstring:]}",
        text + error,
        text.replace("\n\n\n", f"\n\n\n# {TYPO}\n", 1),
    ):
        assert planted(file, made, tmp_path) == {"attenion", "rihgt"}


@pytest.mark.parametrize(
    ("pattern", "greedy"),
    [
        ("NO_PROSE", re.compile(r"^.*--8<--.*$", re.DOTALL | re.MULTILINE)),
        ("FENCED", re.compile(r"^```.*^```$", re.DOTALL | re.MULTILINE)),
        ("ELEMENT", re.compile(r"<.*>", re.DOTALL)),
    ],
)
def test_a_pattern_that_takes_too_much_is_a_failure(pattern, greedy, monkeypatch):
    monkeypatch.setattr(spelling, pattern, greedy)
    page = ROOT / "docs/posts/basic_attention.md"
    with pytest.raises(TooLittle, match=r"basic_attention\.md: \d+ of 1\d\d\d words were read"):
        spelling.misspelled([page], spelling.project_words())


def test_a_published_file_that_says_nothing_is_a_failure(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("x = 1\n", "utf-8")
    with pytest.raises(TooLittle, match="hardly a word"):
        spelling.misspelled([file], set())


def test_a_spelling_of_few_texts_is_a_failure(monkeypatch, capsys):
    monkeypatch.setattr(spelling, "written", lambda: TEXTS[:2])
    assert cli.main(["spelling"]) == 2
    assert "words in 2 texts were read" in capsys.readouterr().out


def test_the_project_s_words_are_sorted_and_each_is_there_once(tmp_path):
    assert "softmax" in spelling.project_words()
    file = tmp_path / "words.txt"
    for text in ("b\na\n", "a\na\n"):
        file.write_text(text, "utf-8")
        with pytest.raises(ValueError, match="sorted"):
            spelling.project_words(file)
