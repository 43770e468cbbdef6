"""One thread a post: how much its built page shows and folds away, and its first kernel, run alone.

A post has a `first.py` once it keeps to that. A box is what opens: a fold, or an exercise with its
hints. Words of exercises, drawings, buttons and code are not counted.
"""

import re
import sys
from collections import Counter

import pytest
from bs4 import BeautifulSoup, NavigableString

from tests import apart
from tests.floors import some
from tests.site.test_site import ROOT, fail_with, nav_pages, packages, published

pytestmark = pytest.mark.browser  # which build the site anyway
pytest_plugins = ["tests.browser.browser"]

FIRST = sorted(path.parent.name for path in ROOT.glob("snippets/*/first.py"))
HOW_TO = [page for page in nav_pages() if page.startswith("how_to/")]
LIMITS = {"words": 2200, "folded": 600, "boxes": 8, "figures": 7, "tables": 2, "code": 150}
LONGER = 2400  # words, where a post explains more than one kernel
LINES, NEAR_THE_TOP = 90, 700  # of first.py; words before it

WORD = re.compile(r"\w[\w'’-]*")
UNREAD = {"script", "style", "svg", "template", "button", "select", "noscript"}
SAYS = "largest difference from float64: "
COMMAND = "$ python first.py\n"
NUMBER = r"\d[\d.]*(?:e[-+]\d+)?"
OTHER_REFERENCE = """import torch
right = torch.Tensor.double
torch.Tensor.double = lambda tensor: 1.1 * right(tensor)
"""


def article(folder, page):
    """The text of a built page, without the site around it."""
    html = (folder / page.removesuffix(".md") / "index.html").read_text("utf-8")
    return BeautifulSoup(html, "html.parser").find("article")


def counted(text, end=None):
    """What a reader meets in an article, or in what comes before an element of it."""
    found = Counter()
    for part in text.descendants:
        if part is end:
            break
        names = {parent.name for parent in part.parents}
        exercise = any("am-exercise" in parent.get("class", ()) for parent in part.parents)
        folded = "details" in names
        if part.name:
            classes = part.get("class", ())
            found["boxes"] += part.name == "details" and not exercise
            if folded or exercise:
                continue
            found["boxes"] += "am-exercise" in classes
            found["figures"] += part.name == "figure"
            found["tables"] += part.name == "table" and "highlighttable" not in classes
        elif type(part) is NavigableString and not exercise and not names & UNREAD:
            if "pre" not in names:
                found["folded" if folded else "words"] += len(WORD.findall(part))
            elif not folded:
                found["code"] += part.count("\n")
    return found


def first_block(text):
    """The first listing that checks itself."""
    found = [block for block in text.find_all("pre") if SAYS in block.get_text()]
    assert found, f'no listing on the page prints "{SAYS}"'
    return found[0]


def printed(code, folder):
    """What a file prints, run in a folder of its own without a GPU."""
    (folder / "first.py").write_text(code, "utf-8")
    changes = {"TRITON_INTERPRET": 1, "CUDA_VISIBLE_DEVICES": ""}
    return apart.printed("-I", "first.py", cwd=folder, **changes)


def differences(output):
    """The differences from float64 that it names."""
    return [float(number) for number in re.findall(f"{SAYS}(.*)", output)]


def same_output(shown, output):
    """Whether a page shows what was printed; another CPU adds in another order."""
    words = [re.sub(NUMBER, "", text).strip() for text in (shown, output)]
    said, found = ([float(x) for x in re.findall(NUMBER, text)] for text in (shown, output))
    return words[0] == words[1] and said == pytest.approx(found, rel=0.02, abs=1e-5)


@pytest.mark.parametrize("post", FIRST)
def test_a_post_keeps_to_one_thread(site_folder, post):
    there = counted(article(site_folder, f"posts/{post}.md"))
    later = published().index(post) > published().index("tiled_attention")
    limits = LIMITS | ({"words": LONGER} if later else {})
    over = [f"{there[k]} {k}, at most {n}" for k, n in limits.items() if there[k] > n]
    fail_with(over, f"{post} has too much")


def test_a_how_to_page_is_short_and_there_are_few(site_folder):
    long = {page: counted(article(site_folder, page))["words"] for page in some(HOW_TO)}
    fail_with([f"{page}: {n} words" for page, n in long.items() if n > 700], "at most 700")
    assert len(long) <= 14
    assert sum(long.values()) <= 8000


def test_what_is_counted():
    text = BeautifulSoup(
        "<article>One two’s<pre>x\ny\n</pre><svg>no</svg><figure>three<table></table></figure>"
        '<details><summary>four</summary><figure></figure></details><!-- no --><div class="x '
        'am-exercise">no<pre>no\n</pre><details>no</details></div><b>five</b></article>',
        "html.parser",
    ).article
    assert counted(text) == Counter(
        {"words": 4, "folded": 1, "boxes": 2, "figures": 1, "tables": 1, "code": 2}
    )
    assert counted(text, text.find("details"))["words"] == 3


@pytest.mark.parametrize("post", FIRST)
def test_a_post_begins_with_one_complete_thing_that_runs(site_folder, post, tmp_path):
    text = article(site_folder, f"posts/{post}.md")
    block = first_block(text)
    code = block.get_text()
    assert code.strip() == (ROOT / f"snippets/{post}/first.py").read_text("utf-8").strip()
    assert counted(text, block)["words"] <= NEAR_THE_TOP
    assert len(code.strip().splitlines()) <= LINES
    allowed = {"torch", "triton"} | sys.stdlib_module_names
    assert packages(f"snippets/{post}/first.py") <= allowed
    output = printed(code, tmp_path)
    shown = [pre.get_text() for pre in text.find_all("pre") if COMMAND in pre.get_text()]
    assert all(same_output(block.removeprefix(COMMAND), output) for block in shown), output
    right = differences(output)
    wrong = differences(printed(OTHER_REFERENCE + code, tmp_path))
    assert max(right) < (1e-3 if ".half()" in code else 1e-4)
    assert max(wrong) > 4e-3, "it is not compared with what it computes from .double()"


def test_a_listing_that_is_cut_short_or_wrong_is_noticed(tmp_path):
    with pytest.raises(AssertionError, match="NameError"):
        printed("print(nothing)", tmp_path)
    with pytest.raises(AssertionError, match="no listing"):
        first_block(BeautifulSoup("<pre>print(1)</pre>", "html.parser"))
    output = printed(f"print('{SAYS}1e-7')\nprint('step 2: {SAYS}2')", tmp_path)
    assert differences(output) == [1e-7, 2]
    assert same_output(output.replace("1e-7", "3e-07"), output)
    for wrong in (output.replace(": 2", ": 3"), output.replace("step", "steps"), SAYS + "1e-7"):
        assert not same_output(wrong, output)
