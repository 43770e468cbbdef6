"""The figures of basic_attention's experiments, drawn from made-up times."""

import pytest

from snippets.basic_attention import figures
from snippets.basic_attention.bench import PARTS
from tests.made_up import CEILINGS, result, timed

SHARES = dict(zip(PARTS, (0.8, 0.6, 0.95, 0.5), strict=True))  # of the time, without a part


def test_an_ablation_says_what_each_part_costs():
    rows = [
        timed(ms, implementation=name, dtype="float32", D=64, heads=heads, N=N)
        for heads in (1, 16)
        for N in (256, 1024, 2048)
        for name, ms in {
            "basic_attention": 1.0,
            **{f"without {part}": share for part, share in SHARES.items()},
        }.items()
    ]
    drawn = figures.ablation([result("basic_attention", "ablation", rows, ceilings=CEILINGS)])
    assert drawn.numbers["loads_alone"] == "20 %"
    assert drawn.numbers["reading_alone"] == "50 %"
    assert drawn.numbers["dot_costs"] == "40 %"
    assert drawn.numbers["writing_costs"] == "5 %"
    assert "loads cost the most at N 256 (20 %)" in drawn.finding
    assert [*drawn.claims.values()] == [False, False, False, True], "reading slots costs most"


@pytest.mark.parametrize("of_one_head", [2, 1])
def test_the_best_number_of_warps_is_claimed_only_while_it_is_one(of_one_head):
    rows = [
        timed(
            number * heads if heads > 1 else 1.0 + abs(number - of_one_head) / 10,
            implementation=f"basic_attention:{number} warps",
            dtype="float32",
            D=64,
            heads=heads,
            N=N,
            num_warps=number,
        )
        for heads in (1, 16)
        for N in (256, 1024, 2048)
        for number in (1, 2, 4, 8)
    ]
    drawn = figures.warps([result("basic_attention", "warps", rows)])
    assert "16 heads of 1024 keys take 16 ms instead of 64 ms" in drawn.finding
    assert [*drawn.claims.values()] == [of_one_head == 1]
