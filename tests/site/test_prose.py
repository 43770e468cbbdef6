"""What no data file knows of a page: its sums in numbers, and which figure a sentence announces."""

import re
from itertools import chain

from snippets._lab.rooms import ROOT
from snippets._site.named_numbers import filled
from tests.floors import some

PAGES = sorted((ROOT / "docs").glob("*/*.md"))
FIGURE = re.compile(r'\s*--8<-- "(?P<path>docs/figures/\w+/\w+\.md)"\s*')
TOLD = re.compile(
    r'"am-finding"[^>]*>(.*?)</p>|<figcaption[^>]*>(.*?)</figcaption>|label="([^"]*)"', re.S
)
MARKUP = re.compile(r"<[^>]*>|\]\([^)]*\)|\{[^}]*\}|`|--8<--.*")
COMMON = re.findall(
    r"\w+",
    """this that with from what when where which they them their there these then than only also
    more most each every other same into over does have been will take kernel""",
)
SUM = re.compile(r"\$((?:[\d.+ ]|\\cdot)+(?:=(?:[\d.+ ]|\\cdot)+)+)\$")


def words(text):
    """Words of four letters and more without their plural, common ones left out."""
    found = re.findall(r"[a-z]{4,}", MARKUP.sub(" ", text).lower())
    return {word.rstrip("s") for word in found} - {*COMMON}


def announced(text):
    """The figures below a sentence that ends in a colon: (fragment, words before it, its words)."""
    blocks, heading = re.split(r"\n\s*\n", text), ""
    for before, block in zip(["", *blocks], blocks, strict=False):
        heading = block if block.startswith("#") else heading
        figure = FIGURE.fullmatch(block)
        if not figure or not before.rstrip().endswith(":"):
            continue
        fragment = (ROOT / figure["path"]).read_text("utf-8")
        told = " ".join(" ".join(one) for one in TOLD.findall(fragment))
        name = figure["path"].rpartition("/")[2].replace("_", " ")
        if words(told):  # what was printed has no words of its own
            yield figure["path"], words(f"{before} {heading}"), words(f"{told} {name}")


def test_a_figure_is_the_one_that_the_sentence_above_it_announces():
    found = [(page.name, *one) for page in PAGES for one in announced(page.read_text("utf-8"))]
    apart = [(page, path) for page, path, said, told in some(found, 30) if not said & told]
    assert not apart, "sentence and figure have no word in common: are two figures exchanged?"
    scene, warps = (f"docs/figures/basic_attention/{name}.md" for name in ("scene", "warps"))
    page = (ROOT / "docs/posts/basic_attention.md").read_text("utf-8")
    exchanged = page.replace(scene, "?").replace(warps, scene).replace("?", warps)
    assert [path for path, said, told in announced(exchanged) if not said & told], "it can fail"


def unknown(text):
    """Numbers that a sentence says before its sum in numbers, and that the sum does not hold."""
    for sum_ in SUM.finditer(text):
        before = re.split(r"[.:]\s|\n\s*\n", text[: sum_.start()])[-1]
        known = {*re.findall(r"\d+", sum_[1])}
        yield from (number for number in re.findall(r"\d+", before) if number not in known)


def test_a_sum_holds_the_numbers_of_its_sentence():
    pages = {page.name: filled(page.read_text("utf-8"), ROOT / "docs") for page in some(PAGES, 20)}
    assert {name: found for name, text in pages.items() if (found := [*unknown(text)])} == {}
    assert [*unknown(r"Key 37 is row 6, because $37 = 2 \cdot 16 + 5$.")] == ["6"]


def test_a_prediction_marks_one_of_its_choices_as_the_answer():
    texts = [page.read_text("utf-8").split('data-widget="predict"')[1:] for page in some(PAGES, 20)]
    asked = [box.partition("???")[0] for box in some([*chain.from_iterable(texts)], 20)]
    wrong = [box.split("\n")[1] for box in asked if box.count("  { .am-answer }\n") != 1]
    assert wrong == []
