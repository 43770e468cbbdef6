"""Typical mistakes: what the playground says of each is what its page shows."""

from collections import Counter
from dataclasses import replace

import pytest

from snippets._lab.judge.mutants import MutantError, mutate
from snippets._lab.results.store import DataError
from snippets._lab.rooms import ROOT
from snippets._site import mistakes as check
from snippets._site import mistakes_table, playground
from snippets._site.browser import Server
from snippets.coalescing.mutants import PLAYGROUND
from tests.floors import some

pytest_plugins = ["tests.browser.browser"]

# Mistakes that no problem shows, and why.
NOT_FOUND = {
    "mask without `other`": "an address of a surplus walker that nobody set is 0 here",
    "written over the first tokens": "a cache begins empty here, and its tokens are the first",
}


def kernels_with_a_button():
    for room in sorted((ROOT / "snippets").glob("[!_]*/")):
        for path, kernel in playground.opened(room).get("kernels", {}).items():
            if kernel["problems"] and not path.startswith("exercise.py"):
                yield f"{room.name}/{path}"


def test_each_kernel_has_ten_mistakes_and_each_can_be_made(monkeypatch):
    declared = list(check.declared())
    assert Counter(kernel for kernel, _ in declared) == dict.fromkeys(kernels_with_a_button(), 10)
    for kernel, mistake in some(declared, 100):
        text = check.opened(kernel)["text"]
        assert mutate(text, mistake) != text, mistake
    with pytest.raises(MutantError, match="the page runs no kernel"):
        check.opened("coalescing/kernel.py:_none")
    monkeypatch.setitem(PLAYGROUND, "kernel.py:_coalescing_kernel", ["none"])
    with pytest.raises(MutantError, match=r"coalescing/mutants\.py has no mutant 'none'"):
        list(check.declared())


def test_the_page_shows_what_was_said(tmp_path):
    stored = check.stored()
    page = 'before\n\n<div class="am-mistakes" data-result="browser/playground/mistakes"></div>\n'
    shown = mistakes_table.shown(page, ROOT / "docs/data")
    assert shown.startswith(f"before\n\nOf {len(stored.rows)} typical mistakes, ")
    found = sum(row["right"] < row["of"] for row in stored.rows)
    assert f"it finds {found}:" in shown
    assert shown.count("??? note") == len({row["kernel"] for row in stored.rows})
    cells = [line for line in shown.splitlines() if line.startswith("    | ")]
    assert len(cells) == len(stored.rows) + 2 * shown.count("??? note"), "a row each, and heads"
    with pytest.raises(DataError, match="missing"):
        mistakes_table.shown(page, tmp_path)


def test_a_cell_keeps_its_text():
    row = check.stored().rows[0] | {
        "mistake": "a | b",
        "old": "x = 1\n    y = a | b",
        "new": "",
        "says": "Line 3: *no*",
        "faults": [],
        "named": None,
    }
    table = mistakes_table.tables(replace(check.stored(), rows=[row]))
    assert r"| a \| b | `x = 1 ⏎ y = a \| b` | – | Line 3: \*no\*. |" in table


@pytest.mark.browser
def test_the_playground_says_of_each_mistake_what_is_stored(browser, tmp_path):
    check.laid_out(tmp_path)
    with Server(tmp_path) as server:
        page = browser.new_page()
        page.goto(server.address)
        said = list(check.answers(page))
        page.close()
    stored = check.stored().rows
    changed = [(a, b) for a, b in zip(some(said, 100), stored, strict=True) if a != b]
    assert changed == [], "python -m snippets._site mistakes"
    assert {row["mistake"] for row in said if row["right"] == row["of"]} == set(NOT_FOUND)
