"""Whether one is faster than the other: the one place where verdicts are made. No torch.

Inside a run competitors take turns, so sample i of one is set beside sample i of the other. What
the pairs of a run say holds for that run: rounds of one process agree far better than two processes
do. So the unit of the interval is the run, and a result that was taken in fewer than three has a
ratio and no verdict.
"""

import functools
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from snippets._lab.results.history import Row
from snippets._lab.results.runs import RUNS, count, samples

RISK = 0.05  # of one false verdict among all that are read together
MARGIN = 0.01  # what lies within it on both sides of 1 is level
FREEDOM = 6  # at most, of a variance that is shared by pairs whose variances differ
Pair = tuple[Row, Row]


@dataclass(frozen=True)
class Verdict:
    """How many times as fast ours is as the other: above 1 ours takes less time."""

    ratio: float
    low: float
    high: float

    @property
    def word(self) -> str:
        """*level* if the whole interval lies within 1 %, even where it excludes 1."""
        if self.low >= 1 - MARGIN and self.high <= 1 + MARGIN:
            return "level"
        return "ahead" if self.low > 1 else "behind" if self.high < 1 else "undecided"


def verdicts(pairs: Iterable[Pair]) -> list[Verdict | None]:
    """A verdict on each pair of timed rows, ours first; None for one with fewer than three runs.

    The estimate of a run is the median of its paired ratios, and the ratio their geometric mean.
    The interval is the range of the estimates or, where that is wider, Student's interval on their
    logarithms. Three runs of a pair say little about how far its runs differ, so the variance
    between runs is the mean over all pairs that are read together, or the pair's own where that is
    larger. The more are read together, the wider all intervals are (Bonferroni): the risk of one
    false word among them is 5 %.
    """
    found = [estimates(*pair) if min(map(count, pair)) >= RUNS else [] for pair in pairs]
    logs = [list(map(math.log, each)) for each in found if len(each) >= RUNS]
    own = [statistics.variance(each) for each in logs]
    shared = statistics.fmean(own) if own else 0.0
    freedom = min(FREEDOM, sum(len(each) - 1 for each in logs))
    intervals = []
    for each, variance in zip(logs, own, strict=True):
        middle = statistics.fmean(each)
        reach = student(RISK / len(logs), freedom) * math.sqrt(max(variance, shared) / len(each))
        low, high = min(middle - reach, *each), max(middle + reach, *each)
        intervals.append(Verdict(*map(math.exp, (middle, low, high))))
    there = iter(intervals)
    return [next(there) if len(each) >= RUNS else None for each in found]


def estimates(ours: Row, other: Row) -> list[float]:
    """For each run that both have, how many times as fast ours is as the other.

    Where a run gave the two different numbers of samples they took no turns, and its estimate is
    the ratio of their medians.
    """
    found = []
    for a, b in zip(samples(ours), samples(other), strict=False):
        if len(a) == len(b):
            found.append(statistics.median(y / x for x, y in zip(a, b, strict=True)))
        else:
            found.append(statistics.median(b) / statistics.median(a))
    return found


@functools.cache
def student(risk: float, freedom: int) -> float:
    """The t that Student's distribution exceeds, on both sides together, with this probability."""
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        angle = (low + high) / 2
        low, high = (angle, high) if 1 - _within(angle, freedom) > risk else (low, angle)
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """How much of Student's distribution lies within ±√freedom · tan(angle).

    A finite sum for whole degrees of freedom: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    odd = freedom % 2
    term, total = math.cos(angle) ** odd, 0.0
    for step in range(1 + odd, freedom, 2):
        total += term
        term *= step / (step + 1) * math.cos(angle) ** 2
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
