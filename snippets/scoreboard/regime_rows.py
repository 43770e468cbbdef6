"""Rows of one case in several regimes: what stands beside what, and what must be said with it."""

from snippets._lab.draw import units
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.identity import named
from snippets._lab.draw.rows import TIME, Quantity, pick
from snippets._lab.draw.tables import listed
from snippets._lab.draw.units import between, decimals

QUEUED, SUSTAINED, AS_CALLED = "queued", "sustained", "as called"
IN_A_GRAPH, COMPILED = "in a CUDA graph", "under torch.compile"
CLEAN = "queued, L2 clean"
# Of _lab.measure, which has torch.
REGIMES = (QUEUED, CLEAN, SUSTAINED, AS_CALLED, IN_A_GRAPH, COMPILED)
CUDNN, FLASH, LAST = "torch:cudnn", "flash_attention", "hopper_attention"
PACKAGES = ("flash_attention_4", "flash_attention_3", "flash_attention_2")
CELL = ("D", "causal", "N")
STARVED = 0.9  # of the time between two calls: from here on the host sets the pace
OF_CUDNN = Quantity("of cuDNN's rate", "of_cudnn", units.fraction)


def versioned(rows):
    """Implementation → its name, with the version of a package: those that were timed."""
    found = {r["implementation"]: r.get("version") for r in pick(rows)}
    order = [name for name in (CUDNN, *PACKAGES, LAST, FLASH) if name in found]
    return {name: named(name) + (f" {found[name]}" if found[name] else "") for name in order}


def within(rows, regime, by=CELL):
    """Our last kernel beside all others in one regime."""
    return Comparison([r for r in rows if r.get("regime") == regime], LAST, by=by)


def regimes_of(rows):
    """The regimes that have rows, in their order."""
    return [regime for regime in REGIMES if any(r.get("regime") == regime for r in pick(rows))]


def beside_cudnn(result, by):
    """The timed rows, with their rate as a part of cuDNN's in the same case."""
    rows = pick(result.rows)
    cudnn = {tuple(r[axis] for axis in by): r for r in rows if r["implementation"] == CUDNN}
    for r in rows:
        at = tuple(r[axis] for axis in by)
        if at in cudnn:
            yield r | {"of_cudnn": TIME(cudnn[at]) / TIME(r)}


def quotient(other, ours=LAST):
    """How many times as fast a kernel of ours is as another, for a table."""

    def text(line):
        mine, theirs = line.get(ours), line.get(other)
        if not mine or not theirs:
            return None
        return decimals(TIME(theirs) / TIME(mine))

    return text


def remark(rows):
    """What else a line of the table must say of its times."""
    told = [
        f"{named(r['implementation'])}: the GPU was slowed by {listed(r['slowdowns'])}"
        for r in rows
        if r.get("slowdowns")
    ]
    told += [f"{named(r['implementation'])}: the host sets the pace" for r in rows if starved(r)]
    told += [f"{named(r['implementation'])}: {r['error']}" for r in rows if r.get("error")]
    return "; ".join(told) or None


def starved(row):
    """Whether calls back to back wait for the host."""
    return row.get("regime") == SUSTAINED and row["ms_host"] > STARVED * TIME(row)


def missing(rows):
    """What was not timed at all, and why: "FlashAttention-3: flash-attn-3 is not installed"."""
    timed = {r["implementation"] for r in pick(rows)}
    errors = {r["implementation"]: r["error"] for r in rows if r.get("error")}
    return [f"{named(name)}: {why}" for name, why in errors.items() if name not in timed]


def seen(rows, name, unit):
    """The range of a reading over some rows: "512 to 690 W"; None where nobody read it."""
    found = [r[name] for r in pick(rows) if r.get(name) is not None]
    return between(found, unit) if found else None
