"""Reading a kernel's variables in the interpreter: what is recorded, and what cannot be."""

import pytest
import torch
import triton
import triton.language as tl

from snippets._lab.probe.listing import Listing
from snippets._lab.probe.variables import watch

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="needs Triton's interpreter")


@triton.jit
def _sums_kernel(x_ptr, out_ptr, n: tl.constexpr):
    total = tl.zeros([2], tl.float32)
    for i in range(n):
        total += tl.load(x_ptr + 2 * i + tl.arange(0, 2))
    for j in range(1):
        last = total * 2 + j
    tl.store(out_ptr + tl.program_id(0) * 2 + tl.arange(0, 2), last)


@triton.jit
def _straight_kernel(x_ptr):
    tl.store(x_ptr, 1.0)


def run(programs=1):
    x, out = torch.arange(6.0), torch.zeros(programs, 2)
    _sums_kernel[(programs,)](x, out, 3)
    return out


def test_variables_are_read_at_each_head_of_a_loop_and_copied():
    with watch(_sums_kernel, ["i", "total", "last"]) as turns:
        out = run()
    assert [t.loop for t in turns] == [0, 0, 0, 0, 1, 1]
    totals = [t.values["total"].tolist() for t in turns]
    assert totals == [[0, 0], [0, 1], [2, 4], [6, 9], [6, 9], [6, 9]]
    assert [t.values.get("i") for t in turns] == [None, 0, 1, 2, 2, 2]
    assert ["last" in t.values for t in turns] == [False] * 5 + [True]
    assert turns[-1].values["last"].tolist() == out[0].tolist()


def test_what_cannot_be_watched_is_said():
    with pytest.raises(ValueError, match="does not run in Triton's interpreter"), watch(run, []):
        pass
    with (
        pytest.raises(ValueError, match="_straight_kernel has no loop"),
        watch(_straight_kernel, []),
    ):
        pass
    with pytest.raises(RuntimeError, match="did not run"), watch(_sums_kernel, ["total"]):
        pass
    with pytest.raises(RuntimeError, match="never assigned nothing"):  # noqa: SIM117
        with watch(_sums_kernel, ["total", "nothing"]):
            run()


SOURCE = """def kernel(
    x,  # what comes in
):
    \"\"\"Says what it does.\"\"\"
    # A line of its own.
    a = load(  # why
        x,
        "#",
    )

    for i in range(3):
        if x:  # never
            b = 1
        else:
            b, c = 2, 3
    return a
"""


def test_a_listing_is_the_code_without_comments_and_docstring():
    listing = Listing(SOURCE, first=101)
    code = ["a = load(", "    x,", '    "#",', ")", "for i in range(3):", "    if x:"]
    code += ["        b = 1", "    else:", "        b, c = 2, 3", "return a"]
    assert listing.lines == code
    # Lines of the file: the call is one statement, `else:` is none; each statement stands once.
    ran = [106, 107, 106, 111, 112, 115, 111, 115, 116]
    assert listing.statements(ran) == [(0, 3), (4, 4), (5, 5), (8, 8), (9, 9)]
    assert listing.parts(ran, ["c"]) == [[(0, 3), (4, 4), (5, 5)], [(8, 8), (9, 9)]]
    with pytest.raises(ValueError, match="no statement that ran assigns d"):
        listing.parts(ran, ["a", "d"])


def test_the_lines_that_ran_stand_beside_the_variables():
    with watch(_sums_kernel, ["total"]) as turns:
        run(programs=2)
    listing = Listing.of(_sums_kernel.fn)

    def said(lines):
        return [listing.lines[first].strip() for first, _ in listing.statements(lines)]

    mine = [t for t in turns if t.program == (1, 0, 0)]
    head, second = "for i in range(n):", "for j in range(1):"
    added = listing.lines[2].strip()
    assert said(mine[0].lines) == ["total = tl.zeros([2], tl.float32)"]
    assert [said(t.lines) for t in mine[1:4]] == [[head, added]] * 3
    assert said(mine[4].lines) == [head], "the second loop begins where the first has ended"
    assert said(mine[5].lines) == [second, "last = total * 2 + j"]
    after = said(turns.last_lines[1, 0, 0])
    assert after[0] == second
    assert after[1].startswith("tl.store(")
