"""What limits an operation: memory, arithmetic or neither, by the ceilings of the same run."""

from typing import NamedTuple

from snippets._lab.draw.rows import Row, ceiling, moved, rate
from snippets._lab.results.store import Result

HALF = 0.5  # from this share of a ceiling on we say that the ceiling is what limits


class Limit(NamedTuple):
    """The ceiling that limits an operation, and the shares that it reaches of both."""

    by: str  # "memory", "arithmetic", or "neither" where it reaches half of none
    memory: float
    arithmetic: float


def limit(row: Row, result: Result, field: str = "bytes_compulsory") -> Limit:
    """What limits a timed row in float16: the ceiling of which it reaches the larger share.

    `product` of the row says whether tensor cores can do it; `field` holds the bytes it moves.
    """
    unit = "matmul_float16" if row["product"] else "fma_float32"
    memory = moved(row, field) / ceiling(result, "read")
    arithmetic = rate(row) / ceiling(result, unit)
    by = "memory" if memory >= arithmetic else "arithmetic"
    return Limit(by if max(memory, arithmetic) >= HALF else "neither", memory, arithmetic)
