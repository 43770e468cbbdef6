"""One hypothesis and one experiment each, on kernels of this series.

An experiment compares two rows of one result: the kernel as it is slow, and with one thing changed.
What it shows is worked out from their times, and nothing about that is written down.
"""

from typing import Any, NamedTuple

from snippets._lab.draw.rows import TIME, only
from snippets._lab.results.store import Result

LARGE = 0.2  # of the time: what saves as much is a cause, what saves less a small part of one


class Experiment(NamedTuple):
    """A suspicion, the one change that tests it, and the two rows that decide."""

    hypothesis: str  # a clause: "it waits for loads"
    change: str  # what to do: "take the loads out of the loops"
    measured: str  # post/result
    case: dict[str, Any]  # what both rows have
    before: str  # the implementation that is slow, …
    after: str  # … and the one with a single change
    axis: str = "implementation"  # or the field that is changed

    def rows(self, result: Result) -> tuple[Any, Any]:
        """The row before the change, and the row after it. Raises DataError if one is missing."""
        first, second = (
            only(result.rows, **self.case, **{self.axis: name})
            for name in (self.before, self.after)
        )
        return first, second


class Outcome(NamedTuple):
    """What an experiment has shown: the part of the time that is left, and what follows."""

    left: float
    verdict: str  # a key of VERDICTS


VERDICTS = {"cause": "a cause", "part": "less than a fifth", "refuted": "not the cause"}


def outcome(before: Any, after: Any) -> Outcome:
    """What the times of a kernel before and after one change say about the hypothesis."""
    left = TIME(after) / TIME(before)
    if left >= 1:
        return Outcome(left, "refuted")
    return Outcome(left, "cause" if 1 - left >= LARGE else "part")


BASIC = "basic_attention"
FULL = {"heads": 16, "N": 1024}  # enough heads to fill the GPU
TILED_ONCE = {"D": 64, "N": 1024}


def _ladder(before: str, after: str, hypothesis: str, change: str) -> Experiment:
    case = {"causal": False, "D": 128, "N": 4096}
    return Experiment(hypothesis, change, "flash_attention/ladder", case, before, after)


def _without(part: str, hypothesis: str, change: str) -> Experiment:
    after = f"without {part}"
    return Experiment(hypothesis, change, "basic_attention/ablation", FULL, BASIC, after)


ALL = "all of the above"
EXPERIMENTS = {
    "basic_attention": [
        Experiment(
            "memory cannot deliver its bytes",
            "let two queries share each load",
            "basic_attention/reuse",
            FULL,
            BASIC,
            f"{BASIC}:exercise",
        ),
        _without("loads", "it waits for loads", "take the loads out of the loops"),
        _without(
            "the sum of a dot product", "the sums of dot products take long", "take the sum out"
        ),
        _without("writing slots", "writing a score to its slot takes long", "take the writing out"),
        _without(
            "reading slots", "reading a weight from its slot takes long", "take the reading out"
        ),
        Experiment(
            "warps wait for each other",
            "launch one warp per program instead of four",
            "basic_attention/warps",
            FULL,
            f"{BASIC}:4 warps",
            f"{BASIC}:1 warps",
        ),
    ],
    "vectorized_attention": [
        Experiment(
            "each thread holds too much of the tile",
            "let 32 warps share the tile instead of 4",
            "vectorized_attention/remedies",
            TILED_ONCE,
            "vectorized_attention",
            "32 warps",
        )
    ],
    "coalescing": [
        Experiment(
            "a warp's addresses are far apart",
            "read with stride 1 instead of 32",
            "coalescing/strides",
            {"dtype": "float32", "implementation": "coalescing"},
            32,
            1,
            axis="stride",
        )
    ],
    "flash_attention": [
        _ladder(
            "nothing in flight",
            ALL,
            "each tile waits for its load",
            "keep loads for later tiles in flight",
        ),
        _ladder("exp by e", ALL, "exponentials take long", "call exp2 instead of exp"),
        _ladder(
            "a mask on every tile", ALL, "masking every tile takes long", "mask only where needed"
        ),
        _ladder(ALL, "taller tiles", "a program has too few queries", "give it more queries"),
    ],
}
