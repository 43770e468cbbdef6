"""The verdict on made-up times whose truth is known."""

import math
import random

import pytest

from snippets._lab.results.verdict import Verdict, estimates, student, verdicts


def alone(ours, other):
    return verdicts([(ours, other)])[0]


def timed(runs):
    """A row of several runs; one of a single run has no "runs"."""
    several = {"runs": [len(run) for run in runs]} if len(runs) > 1 else {}
    return {"ms_samples": [ms for run in runs for ms in run], **several}


def pair(truths, rounds=40, noise=0.02, seed=0):
    """Ours and another that takes `truths[r]` times as long in run r.

    What a round does to both, it does to both alike, as a clock that falls in mid-run does.
    """
    draw = random.Random(seed)
    turns = [[math.exp(draw.gauss(0, noise)) for _ in range(rounds)] for _ in truths]
    jitter = [[math.exp(draw.gauss(0, noise / 20)) for _ in range(rounds)] for _ in truths]
    theirs = [
        [truth * a * b for a, b in zip(*both, strict=True)]
        for truth, both in zip(truths, zip(turns, jitter, strict=True), strict=True)
    ]
    return timed(turns), timed(theirs)


@pytest.mark.parametrize(
    ("truths", "word"),
    [
        ((0.97, 0.969, 0.971), "behind"),  # a loss of 3 % in all rounds of all runs
        ((1.03, 1.031, 1.029), "ahead"),
        ((1.16, 1.25, 1.20), "ahead"),  # its runs disagree by 8 %, all far from 1 …
        ((0.98, 1.06, 1.02), "undecided"),  # … and here near it
        ((1.01, 1.09, 1.05), "undecided"),  # though all three runs are above it
        ((1.003, 1.0035, 1.004), "level"),  # excludes 1, but what of it
        ((0.999, 1.0, 1.001), "level"),
        ((1.002, 1.015, 1.009), "undecided"),
        ((1.02, 1.021, 1.019), "ahead"),
    ],
)
def test_the_word_of_a_truth(truths, word):
    found = alone(*pair(truths))
    assert found.word == word
    assert found.low <= min(truths) * 1.001
    assert found.high >= max(truths) * 0.999
    assert found.ratio == pytest.approx(math.prod(truths) ** (1 / 3), rel=0.002)
    turned = alone(*reversed(pair(truths)))
    assert turned.low == pytest.approx(1 / found.high), "from the other side it is the same"


@pytest.mark.parametrize("runs", [1, 2])
def test_fewer_than_three_runs_have_no_verdict(runs):
    ours, other = pair((0.9,) * runs)
    assert alone(ours, other) is None
    assert len(estimates(ours, other)) == runs
    three, _ = pair((0.9,) * 3)
    assert alone(three, other) is None, "both must have three"
    assert verdicts([(ours, other), pair((0.9,) * 3)])[0] is None
    assert verdicts([(ours, other), pair((0.9,) * 3)])[1] == alone(*pair((0.9,) * 3))


def test_rounds_are_compared_with_rounds():
    """A clock that halves in mid-run hides nothing: medians of runs would say the contrary."""
    slow, fast = [2.0] * 21, [1.0] * 20
    ours = timed([slow + fast] * 3)
    other = timed([[1.98] * 21 + [0.99] * 20] * 3)
    assert alone(ours, other) == Verdict(*[pytest.approx(0.99)] * 3)
    shuffled = random.Random(0).sample(range(41), 41)
    again = (
        timed([[(slow + fast)[i] for i in shuffled]] * 3),
        timed([[([1.98] * 21 + [0.99] * 20)[i] for i in shuffled]] * 3),
    )
    assert alone(*again) == alone(ours, other), "the order of the rounds does not matter"


def test_runs_without_turns_are_compared_by_their_medians():
    ours, other = timed([[1.0, 2.0, 3.0]] * 3), timed([[3.0, 5.0]] * 3)
    assert estimates(ours, other) == [2.0] * 3


def test_the_more_are_read_together_the_wider():
    """And one whose runs agree by chance is no surer than the others."""
    family = [pair((1.01, 1.03, 1.02), seed=seed) for seed in range(24)]
    widths = [(v := verdicts(family[:many])[0]).high - v.low for many in (4, 12, 24)]
    assert widths == sorted(widths)
    assert len(set(widths)) == 3
    lucky = pair((1.02, 1.02, 1.02))
    assert alone(*lucky).word == "ahead"
    assert verdicts([lucky, *family])[0].word == "undecided"


def noise(kind, draw):
    """The standard deviation between the runs of a pair."""
    return {
        "alike": 0.02,
        "of three kinds": draw.choice([0.002, 0.005, 0.01]),
        "few noisy": 0.05 if draw.random() < 0.1 else 0.004,
    }[kind]


@pytest.mark.parametrize("kind", ["alike", "of three kinds", "few noisy"])
@pytest.mark.parametrize("together", [1, 4, 12, 60])
def test_false_words_are_rarer_than_five_percent_of_families(kind, together):
    draw = random.Random(f"{kind} {together}")
    families = 600 if together < 60 else 120
    false = 0
    for _ in range(families):
        deviations = [noise(kind, draw) for _ in range(together)]
        family = [
            (timed([[1.0]] * 3), timed([[math.exp(draw.gauss(0, sd))] for _ in range(3)]))
            for sd in deviations
        ]
        words = {found.word for found in verdicts(family)}
        false += bool(words & {"ahead", "behind"})
    assert false / families < 0.05


@pytest.mark.parametrize(
    ("risk", "freedom", "t"),  # from printed tables
    [
        (0.05, 1, 12.706),
        (0.05, 2, 4.303),
        (0.05, 3, 3.182),
        (0.01, 4, 4.604),
        (0.01, 7, 3.499),
        (0.001, 30, 3.646),
    ],
)
def test_students_quantiles(risk, freedom, t):
    assert student(risk, freedom) == pytest.approx(t, abs=0.0005)
