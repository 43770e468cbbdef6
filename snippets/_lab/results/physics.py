"""The gate that refuses what no GPU can do: when measuring, and again when a file is read.

Without torch, because figures are drawn without it.
"""

import statistics
from collections.abc import Sequence
from typing import Any

MOST_SLACK = 1.5  # however far a row's samples spread, it is not believed beyond this


class PhysicsError(RuntimeError):
    """A row claims more bytes or operations a second than its GPU has: the measurement is wrong."""


def five_digits(value: float) -> float:
    """What is stored of a time: the clock of a CUDA event resolves no more."""
    return float(f"{value:.5g}")


def percentiles(ms_samples: Sequence[float]) -> dict[str, float]:
    """The 20th, 50th and 80th percentile of stored samples, as a row has them."""
    tenths = statistics.quantiles(ms_samples, n=10, method="inclusive")
    return {f"ms_p{p}": five_digits(tenths[p // 10 - 1]) for p in (20, 50, 80)}


def refuse_impossible(row: dict[str, Any], ceilings: dict[str, Any]) -> None:
    """Raise PhysicsError if a timed row beats its device's ceilings by more than its own spread,
    of which at most MOST_SLACK is granted.

    Gated are the compulsory bytes (each tensor once, L2 flushed before) and the FLOPs. Bytes that
    programs load are mostly served by L2 and say nothing about HBM: they are not gated. Nor is what
    the host took to call, which may be shorter than the work.
    """
    if "ms_p50" not in row or row.get("clock") == "host":
        return
    seconds = row["ms_p50"] / 1e3
    slack = min(MOST_SLACK, 1 + (row["ms_p80"] - row["ms_p20"]) / row["ms_p50"])
    ways = ["read", "write", "copy"]
    gates = [(row["bytes_compulsory"], ways, "bytes/s of compulsory traffic")]
    if row["flops"]:  # a walk along addresses has none, and no unit's ceiling to be held against
        dtype = row["dtype"]
        units = [f"matmul_{dtype}"] + ["matmul_tf32", "fma_float32"] * (dtype == "float32")
        if units[0] not in ceilings:
            raise PhysicsError(f"dtype {dtype!r}, for which no ceiling is measured")
        gates.append((row["flops"], units, "FLOP/s"))
    for amount, units, what in gates:
        ceiling = max(float(ceilings[unit]["per_s_p80"]) for unit in units)  # the fast end
        if amount / seconds > ceiling * slack:
            raise PhysicsError(
                f"{amount / seconds:.3g} {what} where the device does {ceiling:.3g}: {row}"
            )
