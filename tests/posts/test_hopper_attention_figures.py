"""What the page of hopper_attention draws, from made-up rows: no GPU is needed for this."""

import itertools
import re

import pytest

pytest.importorskip("plotly")

from snippets._lab.draw import identity
from snippets.hopper_attention import bench, drawings, figures, kernel
from tests.floors import some
from tests.made_up import result as result_of

OURS = bench.OURS


def cases(**axes):
    yield from (dict(zip(axes, x, strict=True)) for x in itertools.product(*axes.values()))


class Lab:
    """A lab with a stand-in clock: times grow with the work, and `gain` says how names differ.

    Three runs are put together, or `runs`.
    """

    place, target = "gpu", "sm_90"
    each = staticmethod(cases)

    def __init__(self, gain=lambda name, case: 1.0, runs=3):
        self.gain, self.runs = gain, runs

    def time_attention(self, case, names, variants=None):
        flops = 4.0 * case["batch"] * case["heads"] * case["N"] ** 2 * case["D"]
        for name in (*names, *(variants or {})):
            ms = flops / 5e14 * 1e3 / self.gain(name, case)
            yield {
                "implementation": name,
                **case,
                "ms_p20": ms,
                "ms_p50": ms,
                "ms_p80": ms,
                "ms_samples": [ms] * self.runs,
                "runs": [1] * self.runs,
                "flops": flops,
                "bytes_compulsory": flops / case["N"],
            }


def rows_of(name, lab):
    """Made-up rows with the fields that the bench function of that name gives."""
    if name == "rungs":  # without the check on a GPU
        for case in cases(dtype=["bfloat16"], causal=[False, True], D=[64, 128], N=[1024, 4096]):
            there = bench._rungs_at(case["D"])
            timed = lab.time_attention(bench.same_work(case), [OURS, "torch:cudnn"], there)
            yield from bench._described(timed)
    elif name == "fuzz":
        for case in cases(dtype=["float16", "bfloat16"], D=[64, 128], causal=[False, True]):
            yield case | {
                "shapes": 125,
                "longest": 400,
                "wrong": 0,
                "largest_share_of_allowed": 0.61,
            }
    elif name == "host_time":
        whole = [(bench.A_CALL, n) for n in (OURS, "flash_attention", "torch:sdpa")]
        parts = [(part, OURS) for part in ("refusals", "launch", bench.ASKED)]
        for D, (part, implementation) in itertools.product((64, 128), whole + parts):
            case = {"D": D, "part": part, "implementation": implementation, "heads": 8, "N": 128}
            yield case | dict.fromkeys(("ms_p20", "ms_p50", "ms_p80"), 0.02)
    else:
        yield from getattr(bench, name)(lab)


def made_up(name, rows):
    ceilings = {name: {"per_s_p50": 4e12} for name in ("read", "write", "copy")}
    ceilings["matmul_bfloat16"] = {"per_s_p50": 8e14}
    return result_of(OURS, name, list(rows), ceilings=ceilings)


def drawn(name, lab):
    return getattr(figures, name)([made_up(name, rows_of(name, lab))])


def claim(figure, words):
    """Whether what a page says in these words is so."""
    (found,) = (holds for text, holds in figure.claims.items() if words in text)
    return found


def test_every_rung_has_a_base_that_exists_and_gains_of_its_own():
    place = {rung: i for i, rung in enumerate(bench.RUNGS)}
    first, *others = bench.RUNGS
    assert not bench.RUNGS[first].base
    for rung in others:
        assert place[bench.RUNGS[rung].base] < place[rung]
    way_up = [rung for rung in bench.RUNGS if bench.RUNGS[rung].way_up]
    assert way_up[0] == first
    steps = dict(zip(way_up[1:], way_up, strict=False))
    steps["causal tiles in pairs"] = "softmax under the product"  # of two steps at once
    assert {rung: bench.RUNGS[rung].base for rung in way_up[1:]} == steps
    assert {line["step"] for line in drawn("rungs", Lab()).table} == set(others)


@pytest.mark.parametrize(("gain", "engine"), [(1.2, 0), (0.8, 8), (1.0, 0)])
def test_what_is_claimed_follows_from_the_numbers(gain, engine):
    """A step that is taken back and slows the kernel pays; one taken further must quicken it."""
    quicker = ("stored by the threads", "tiles of 64 keys")
    figure = drawn("rungs", Lab(lambda name, _: gain if name in quicker else 1.0))
    assert figure.numbers["engine"] == engine
    assert claim(figure, "smaller tiles of keys, more in flight") == (gain < 1)
    assert not claim(figure, "of 12 cases and costs time in none")


def test_one_run_decides_nothing():
    figure = drawn("rungs", Lab(lambda name, _: 2.0 if name == "three consumers" else 1.0, runs=1))
    assert not claim(figure, "Constants pay at every length")
    assert figure.numbers["three_most"] == "+100 %"


def test_a_gain_is_that_of_the_step_and_not_of_those_before():
    """Each rung 10 % above its base: each step says so, and the way up multiplies them."""
    level = {}
    for name, rung in bench.RUNGS.items():
        level[name] = level.get(rung.base, 1.0) * (1.1 if rung.has_step else 1 / 1.1)
    figure = drawn("rungs", Lab(lambda name, _: level.get(name, 1.1**5)))
    for line in some(figure.table, len(bench.RUNGS) - 1):
        assert set(re.findall(r"[+−]\d+ %", line["gains, by N"])) == {"+10 %"}, line
    at = {
        line["step"]: [x["at"] for x in figure.table if x["step"] == line["step"]]
        for line in figure.table
    }
    assert at["three consumers"] == ["D 64", "D 64, causal"], "192 rows were measured at D 64 only"
    assert at["causal tiles in pairs"] == ["D 64, causal", "D 128, causal"], "nothing else to pair"
    assert "+46 %" in figure.finding


def test_the_rate_is_held_against_the_better_rival_and_its_own_layout():
    def gain(name, case):
        by_length = {1024: 0.9, 4096: 1.0, 16_384: 1.2}
        slow = "flash_attention_3" if case["causal"] else "flash_attention_4"
        return by_length[case["N"]] if name == OURS else 0.5 if name == slow else 1.0

    figure = drawn("forward", Lab(gain))
    both = "0.90 to 1.20 of the rate of the better of FlashAttention-3 and FlashAttention-4"
    assert f"{both} " in figure.finding
    assert "and 0.90 to 1.20 of cuDNN's" in figure.finding
    assert not claim(figure, "cuDNN is behind")
    timed = [r["implementation"] for r in rows_of("forward", Lab()) if r["dtype"] == "bfloat16"]
    cells = {name: timed.count(name) for name in timed}
    assert cells == dict.fromkeys(cells, 12), "each is timed at all lengths"
    assert {"torch:flex", "torch:cudnn", *identity.BEST} <= cells.keys()


def test_a_wrong_shape_is_told():
    rows = list(rows_of("fuzz", Lab()))
    assert claim(figures.fuzz([made_up("fuzz", rows)]), "random shapes")
    rows[0] |= {"wrong": 2}
    assert not claim(figures.fuzz([made_up("fuzz", rows)]), "random shapes")


def test_the_drawn_registers_are_those_of_the_kernel():
    assert drawings.GIVEN == kernel.REGISTERS
