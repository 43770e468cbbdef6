"""The figures of basic_attention's experiments, drawn from made-up times."""

import pytest

from snippets._lab.draw.fragment import fragment
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
    files = fragment(
        "basic_attention",
        "ablation",
        figures.ablation,
        [result("basic_attention", "ablation", rows, ceilings=CEILINGS)],
    )
    assert "with one head reading slots (50 % at N 256)" in files["ablation.md"].replace("\n", " ")
    text = files["ablation_sentences.md"]
    assert "without loads 80 %, without the sum of a dot product 60 %" in text
    assert "costs 5 % of the time" in text.replace("5.0 %", "5 %")


@pytest.mark.parametrize(
    ("of_one_head", "said"),
    [(2, "in 3 of 6 cases, in the others 2 warps"), (1, "in all 6 cases")],
)
def test_the_best_number_of_warps_is_counted(of_one_head, said):
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
    files = fragment(
        "basic_attention", "warps", figures.warps, [result("basic_attention", "warps", rows)]
    )
    assert "16 heads of 1024 keys take 16 ms instead of 64 ms" in files["warps.md"]
    assert f"One warp is the fastest {said}." in files["warps_sentences.md"].replace("\n", " ")
