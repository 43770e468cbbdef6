"""What follows from the times: latencies of levels, rates of walks, what Little's law allows."""

from snippets._lab.draw.rows import TIME, ceiling, pick, values
from snippets._lab.results.store import DataError

MS = 1e-3  # of a second


def amount(per_second, ms):
    """So much in a number of milliseconds, at a rate."""
    return per_second * ms * MS


def rate(number, ms):
    """So much a second."""
    return number / (ms * MS)


def _difference(short, long):
    """Milliseconds of a step, from two walks of different length."""
    return (TIME(long) - TIME(short)) / (long["steps"] - short["steps"])


def steps(result):
    """One row for each working set: the time of a step, from a short and a long walk."""
    cycles_per_s = 1e6 * result.device["sm_clock_mhz"][1]  # while it was measured
    walks = pick(result.rows, implementation="latency_hiding")
    for set_bytes in values(walks, "set_bytes"):
        short, long = sorted(pick(walks, set_bytes=set_bytes), key=lambda r: r["steps"])
        step = _difference(short, long)
        yield {**long, "step_ms": step, "cycles": amount(cycles_per_s, step)}


def levels(result):
    """Level → the row of a working set that lies in it for certain."""
    rows, l2 = list(steps(result)), result.device["l2_bytes"]
    l1 = rows[0]["shared_bytes"]

    def within(least, most):
        found = [r for r in rows if least <= r["set_bytes"] <= most]
        if not found:
            raise DataError(f"no working set between {least} and {most} bytes was measured")
        return found[len(found) // 2]

    return {"L1": within(0, l1 / 3), "L2": within(2 * l1, l2 / 4), "HBM": within(4 * l2, 16 * l2)}


def rates(result):
    """Walks with the time of a step, and the bytes of sectors that all walkers fetch a second."""
    for row in pick(result.rows):
        step = TIME(row) / row["steps"]
        fetched = rate(row["walkers"] * row["sector_bytes"], step)
        yield {**row, "step_ms": step, "sectors_per_s": fetched}


def with_law(result):
    """Copies with the time of a turn; then two lines: the law for a lone load, and the ceiling.

    A turn is how long what is in flight takes to arrive at the rate of the copy.
    """
    short, long = sorted(pick(result.rows, kind="latency"), key=lambda r: r["steps"])
    step = _difference(short, long)
    limit = ceiling(result, "copy") / 2
    copies = pick(result.rows, kind="copy")
    for row in copies:
        in_flight = row["bytes_in_flight"]
        read = rate(row["bytes_compulsory"] / 2, TIME(row))
        derived = {"latency_ms": step, "law": rate(in_flight, step), "read_per_s": read}
        yield {**row, **derived, "turn_ms": in_flight / amount(read, 1)}
    least, most = (end(r["bytes_in_flight"] for r in copies) for end in (min, max))
    needed = amount(limit, step)
    for kind, ends in (("law", (least, needed)), ("full", (needed, most))):
        for in_flight in ends:
            read = min(rate(in_flight, step), limit)
            turn = in_flight / amount(read, 1)
            yield {"kind": kind, "bytes_in_flight": in_flight, "read_per_s": read, "turn_ms": turn}
