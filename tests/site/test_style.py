"""The style check: it stops at what readers stumbled over, and lets plain English pass."""

import re

import pytest

from snippets._site.checks import style
from tests.floors import some

# From the pages as they once were. The first five were in sight when the phrases were listed; the
# others were drawn afterward, from those that it stops.
STUMBLED_OVER = [
    "Two consumers that know nothing of each other: it needs hardly anybody new. It needs an "
    "agreement.",
    "each tile gets a bias added, which is −∞ for the places behind the last key and 0 for "
    "all others",
    "The usual advice is two loops, one for each part. That was measured as well; between two "
    "loops nothing is in flight, and the code is half as long again.",
    "What that brings is up to the compiler, which fits these instructions into what is left "
    "between others.",
    "Merging the heads asks for one dimension in the place of two, with one stride. Remember "
    "this line; it comes back.",
    "How many consumers there are, how many tiles of keys are under way, and which of the "
    "steps below are taken, is a *variant*:",
    "As addresses these would be useless, because most of them occur several times. A matrix "
    "lies in memory row after row, so one row further down means one *row length* further on:",
    "Neighbors in a row lie side by side in memory, and neighbors in a column lie a whole "
    "row apart. Whoever copies row by row into columns reads well and writes badly; the other "
    "way round it is the reading that suffers. The way out is a tile:",
    "After this post you can write multi-head attention in PyTorch, follow the shape of a "
    "tensor through it, say what a launch costs and how many there are, and hand a mask to "
    "somebody else's layer without turning it upside down.",
    "The loop, the vectorized layer and the answer of the exercise get the same weights, and "
    "each is held against the same layer written with PyTorch's own attention, in float64:",
]
PLAIN = [
    "For shared memory a second kernel transposes a tile over and over. The threads have to "
    "exchange elements, which they do through shared memory: each word is written and read "
    "once per iteration. The compiled code shows it, and a test counts it. The result is a "
    "lower bound, because the threads also wait for each other.",
    "The peak is bounded now, but the traffic is not: every score still travels to memory and "
    "back, one block after the other. To save that too, a block must never leave the chip.",
    "A model that predicts the next token must not look at it. A *causal mask* hides, from "
    "each query, every key that comes later. When there are as many queries as keys, that "
    "leaves a triangle. When there are not, libraries disagree about which corner the "
    "triangle starts from, so always say which one you mean:",
    "The model on this page is all-MiniLM-L6-v2, a small sentence encoder. It runs attention "
    "twelve times in parallel in each of its six layers. Each of these *heads* has its own "
    "queries and keys, so each can look for something else.",
    "A sum over four warps takes shuffles, a trip through shared memory, and barriers at "
    "which all four warps wait. On a single warp only the shuffles remain. More warps are "
    "supposed to hide each other's waits, but here they wait *for* each other. So try one "
    "warp:",
    "A *program* is Triton's unit of work. It runs on one streaming multiprocessor, on four "
    "warps of 32 threads by default, and computes with *tiles*: small arrays held in "
    "registers. A program is not a thread.",
    "An elementwise addition does one FLOP for six bytes of float16, at any size. A matrix "
    "product does more per byte the larger it is. We took the operations of a whole "
    "transformer layer and varied the number of tokens:",
    "Triton's interpreter records every address that the kernel asks for. Step through the "
    "strides with the buttons, the slider or the arrow keys. On top are the 32 lanes of one "
    "request, below them the memory in sectors, and at the bottom its first four sectors "
    "enlarged.",
    "Neighbors in a row are neighbors in memory; neighbors in a column are a whole row apart. "
    "A copy from rows to columns reads well and writes badly, or the other way around. Tiles "
    "solve that:",
    "After this post you can write a tiled transpose, a tiled matrix product and a row "
    "softmax, compose them without needless allocations, register the result as a PyTorch op, "
    "and say what composition costs in launches, bytes and time.",
    "Besides its ordinary arithmetic units, a streaming multiprocessor has *tensor cores*. In "
    "one instruction they multiply two small matrices of 16-bit numbers and add the product "
    "to a matrix of float32 numbers. On a GPU built for models, most of the arithmetic is "
    "there.",
    "Our kernel takes no arbitrary mask. Padding at the ends doesn't need one: each sentence "
    "is cut to its own length. A mask with a gap is refused with an error that names it.",
    "When a program ends, its SM idles until the next one has set up its barriers and loaded "
    "its first tile. So programs *stay*: one per SM, taking one tile of queries after "
    "another. This is a *persistent kernel*. Its producer can load the next queries and keys "
    "while the consumers finish the last rows.",
    "Then it folds one tile of keys after another into the running maximum, sum and "
    "accumulator. The simplest consumer does one thing at a time: product, wait, softmax, "
    "product, wait. It releases each buffer as soon as the product that reads it is done.",
    "To measure it, let each load return the address of the next one. Then no load can start "
    "before the previous one has returned, and the time per step is the *latency*. This is "
    "called a pointer chase:",
    "Before a kernel can run, the CPU must launch it: check the arguments, look up the "
    "compiled code, pass the request to the driver. If the GPU finishes a small kernel before "
    "the next request arrives, it waits for the CPU.",
    "After this post you can write multi-head attention both ways, follow a tensor's shape "
    "and strides through it, say what a kernel launch costs, and pass a mask to somebody "
    "else's layer without inverting it.",
    "Matrix products can run on *tensor cores*, units that multiply small blocks of matrices "
    "in one instruction. Libraries feed them with 16-byte loads, which need rows that start "
    "at multiples of 16 bytes. In float16 that means widths that are multiples of 8. What "
    "happens at other widths is up to the library:",
    "The last block of a head may be partly empty, so its queries are masked. What the loop "
    "carries from tile to tile is small: two numbers and one row of output per query. The "
    "scale is multiplied into the queries once instead of into every score.",
    "A hidden tile costs nothing: it is not loaded, multiplied or masked. Nearly half of all "
    "query–key pairs are hidden, so at best a causal kernel takes half the time.",
]


@pytest.mark.parametrize("paragraph", STUMBLED_OVER)
def test_a_paragraph_that_readers_stumbled_over_is_stopped(paragraph):
    found = style.phrases(paragraph)
    assert found
    assert all(fault.found in " ".join(paragraph.split()) for fault in some(found))
    assert all(fault.instead for fault in some(found))


@pytest.mark.parametrize("paragraph", PLAIN)
def test_a_plain_paragraph_passes(paragraph):
    assert style.phrases(paragraph) == []


def test_there_are_as_many_of_both_as_asked_for():
    assert len(STUMBLED_OVER) == 10
    assert len(PLAIN) == 20


@pytest.mark.parametrize("phrase", style.PHRASES, ids=lambda phrase: phrase.instead)
def test_no_phrase_matches_nothing_at_all_or_anything(phrase):
    assert not phrase.pattern.search("")
    assert not phrase.pattern.search("The kernel loads a tile of keys and multiplies it.")


def test_a_heading_that_asks_is_stopped_unless_it_is_an_exercise():
    asks = "## And at the end? {#end}\n\n### Exercise: is it faster?\n\n```\n## Why?\n```\n"
    assert [fault.found for fault in style.phrases(asks)] == ["And at the end?"]


def page(folder, name, text):
    (folder / "docs/posts").mkdir(parents=True, exist_ok=True)
    file = folder / "docs/posts" / f"{name}.md"
    file.write_text(text, "utf-8")
    return file


def test_a_term_is_defined_where_the_series_first_uses_it(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "TERMS", {"warp": r"warps?", "lane": r"lanes?"})
    first = page(tmp_path, "first", "# One\n\nFour warps run.\n\nA *warp* is 32 threads.\n")
    second = page(tmp_path, "second", "# Two\n\nIts threads are its *lanes*.\n")
    (fault,) = style.undefined([first, second], tmp_path)
    assert (fault.where, fault.found) == ("first", "warp")
    defined = first.read_text("utf-8").replace("Four warps", "Four *warps*")
    assert style.undefined([page(tmp_path, "first", defined), second], tmp_path) == []
    assert [f.found for f in style.undefined([second], tmp_path)] == ["warp"]


def test_what_is_folded_or_code_uses_no_term(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "TERMS", {"warp": r"warps?"})
    text = (
        '??? example "How"\n    Warps.\n\n    More warps.\n\nA `warp` of code.\n\n'
        "```python\nwarp = 1\n```\n\nThese are *warps*.\n"
    )
    assert style.undefined([page(tmp_path, "only", text)], tmp_path) == []


def test_a_figures_sentence_counts_where_it_is_included(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "TERMS", {"warp": r"warps?"})
    said = tmp_path / "docs/figures/room/result_sentences.md"
    said.parent.mkdir(parents=True)
    said.write_text("<!-- --8<-- [start:name] -->\nFour warps.\n<!-- --8<-- [end:name] -->\n")
    text = '--8<-- "docs/figures/room/result_sentences.md:name"\n\nA *warp*.\n'
    (fault,) = style.undefined([page(tmp_path, "only", text)], tmp_path)
    assert "Four warps." in fault.instead


def test_the_series_is_read_in_the_order_of_the_navigation():
    names = [page.stem for page in style.in_order()]
    assert names.index("coalescing") < names.index("basic_attention")
    assert len(names) > 8


def test_the_report_counts_long_sentences_and_passives():
    long = " ".join(["word"] * (style.LONG + 1)) + "."
    assert style.report(f"{long} The tile is loaded. We load it.") == (3, 1, 1)


def test_the_project_has_no_fault_and_enough_was_read():
    found, texts = style.faults()
    assert texts >= style.TEXTS
    assert not found, "\n".join(map(str, found))
    assert any(re.fullmatch(r"words\.md", file.name) for file in some(style.checked()))
