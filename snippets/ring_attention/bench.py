"""What the page of ring_attention measures: one function for each result."""

import functools

import torch

from snippets._lab.measure.timing import Times
from snippets._lab.results.validate import FEWEST_SAMPLES
from snippets._lab.rooms import measured_on

from . import ring as rings
from . import trials
from .model import Ring, hidden_from, predicted
from .model import memory as memory_of
from .ranks import Ranks
from .trials import (
    ALONE,
    CUDNN,
    GATHER,
    HEADS,
    HOPPER,
    ON_ONE,
    OURS,
    THEIRS,
    TRAINED,
    TRITON,
    ULYSSES,
    D,
)

LENGTHS = {16_384: 20, 65_536: 7, 262_144: 3}  # N → timed calls of each
DEVICES = "it is measured on two GPUs or more of one host"


def check(device):
    """Raise unless ring and exchange are right on this device, between all its GPUs."""
    masks = [(True, "zigzag"), (True, "contiguous"), (False, "zigzag")]
    if device == "cuda":  # rows of a rank: whole tiles, and some that are not
        cases = [(torch.bfloat16, *mask, 128, length) for mask in masks for length in (512, 130)]
        cases.append((torch.float16, *masks[0], 64, 130))
        _ask(trials.check_rank, device, cases, seconds=180)
        return
    with Ranks(2) as two:
        two.run(trials.check_rank, device, [(torch.float16, *mask, 16, 10) for mask in masks])


@functools.cache
def _ranks():
    """A process for each GPU, started when first asked for; they end with this one."""
    count = torch.cuda.device_count()
    if count < 2:
        raise RuntimeError(f"{OURS} needs a ring: {DEVICES}, and this machine has {count}")
    return Ranks(count, "cuda", timeout=60.0)


def _ask(function, *args, seconds=120.0):
    """What a function returns on each rank. After a failure the next call starts new ranks."""
    try:
        return _ranks().run(function, *args, seconds=seconds)
    except BaseException:
        stop()
        raise


def stop():
    """End the ranks, if there are any."""
    if _ranks.cache_info().currsize:
        _ranks().stop()
        _ranks.cache_clear()


def _work(N, causal, ranks, factor=1.0):
    """What one of so many GPUs does: FLOPs, and bytes that must move between it and its memory."""
    pairs = N * (N + 1) // 2 if causal else N * N
    tensor = HEADS * N * D * 2
    return {
        "flops": factor * 4 * HEADS * pairs * D / ranks,
        "bytes_compulsory": 2 * tensor // ranks + 2 * tensor,  # its q and out, and all k and v
        "ranks": ranks,
        "fits_l2": False,
    }


def _timed(case, names, rounds, factor=1.0):
    """A row for each call: of every round the rank that took longest."""
    if not names:
        return
    taken = _ask(trials.clock, list(names), rounds)
    for name in names:
        samples = [max(on_all) for on_all in zip(*(rank[name] for rank in taken), strict=True)]
        ranks = 1 if name in ON_ONE else len(taken)
        work = _work(case["N"], case["causal"], ranks, factor)
        yield {"implementation": name, **case, **Times(samples).as_row(), **work}


def _able(case, answers):
    """Names that all ranks can time, and rows for the others."""
    why = {}
    for answer in answers:
        why = {name: why.get(name) or text for name, text in answer.items()}
    rows = [{"implementation": n, **case, "error": text} for n, text in why.items() if text]
    return [name for name, text in why.items() if not text], rows


def _broken(case, name, error):
    return {"implementation": name, **case, "error": f"{type(error).__name__}: {error}"[:500]}


@measured_on("interpreter")
def balance(lab):
    """The scores that each rank of a causal ring computes, as a share of an even division."""
    for case in lab.each(ranks=[2, 4], layout=["contiguous", "zigzag"]):
        ranks, length = case["ranks"], 1024
        for rank in range(ranks):
            plan = rings._plan(rings.Ring(rank, ranks), length, True, case["layout"])
            scores = sum(s.M * (s.M + 1) // 2 if s.causal else s.M * s.N for s in plan)
            even = ranks * length * (ranks * length + 1) // 2 / ranks
            steps = sum(bool(step.M) for step in plan)
            yield {**case, "rank": rank, "share": scores / even, "steps": steps}


@measured_on("interpreter")
def simulator(lab):
    """What the model of the page says; the page's script must say the same."""
    axes = {"ranks": [2, 4, 8, 64, 1024], "N": [65_536, 1_048_576], "causal": [False, True]}
    for case in lab.each(**axes, link=[50e9, 250e9], rate=[600e12]):
        ring = Ring(**case)
        found = {name: float(f"{x:.6g}") for name, x in predicted(ring).items()}
        yield {**case, **found, "bytes": memory_of(ring), "hidden_from": hidden_from(ring)}


@measured_on("gpu")
def scaling(lab):
    """One call on all GPUs, and the same on each of them at once, of which the slowest counts."""
    for case in lab.each(dtype=["bfloat16"], N=list(LENGTHS), causal=[True, False]):
        names = [OURS, HOPPER, CUDNN, GATHER, ULYSSES, TRITON, ALONE]
        if case["N"] > 100_000:  # the others take up to a second, and are not the fastest
            names = [OURS, HOPPER, GATHER]
        try:
            answers = _ask(trials.prepare, case["N"], case["causal"], names)
            able, rows = _able(case, answers)
            yield from rows
            yield from _timed(case, able, max(FEWEST_SAMPLES, LENGTHS[case["N"]]))
        except (RuntimeError, TimeoutError) as error:
            yield _broken(case, OURS, error)
    for case in lab.each(dtype=["bfloat16"], N=list(LENGTHS)[:2], causal=[True, False]):
        try:
            answers = _ask(trials.prepare_theirs, case["N"], case["causal"], seconds=45)
            able, rows = _able(case, answers)
            yield from rows
            yield from _timed(case, able, LENGTHS[case["N"]])
        except (RuntimeError, TimeoutError) as error:
            yield _broken(case, THEIRS, error)
            break  # it has stopped the ranks, and would again
    stop()  # what has entered their context must not be measured again


@measured_on("gpu")
def ways(lab):
    """Ways to send a block while the step for Hopper runs, and that step without a message."""
    for case in lab.each(dtype=["bfloat16"], N=list(LENGTHS)[:2], causal=[True, False]):
        try:
            able, rows = _able(case, _ask(trials.prepare_ways, case["N"], case["causal"]))
            rows += _timed(case, able, LENGTHS[case["N"]])
        except (RuntimeError, TimeoutError) as error:
            yield _broken(case, OURS, error)
            continue
        for row in rows:
            way = row["implementation"]
            yield row | {"implementation": OURS, "way": way, "channels": trials.CHANNELS}


@measured_on("gpu")
def overlap(lab):
    """The steps without messages, the messages without steps, and both."""
    for case in lab.each(dtype=["bfloat16"], N=list(LENGTHS)[:2], causal=[True, False]):
        try:
            names = _ask(trials.prepare_apart, case["N"], case["causal"])[0]
            rows = list(_timed(case, names, LENGTHS[case["N"]]))
        except (RuntimeError, TimeoutError) as error:
            yield _broken(case, OURS, error)
            continue
        for row in rows:
            part = row["implementation"]
            ranks = row["ranks"]
            sent = 0 if part == "compute only" else 4 * HEADS * case["N"] // ranks * D * (ranks - 1)
            row["flops"] *= part != "transfers only"
            if part == "transfers only":
                row["bytes_compulsory"] = 2 * sent  # read to be sent, and written where it arrives
            yield row | {"implementation": OURS, "part": part, "bytes_sent": sent}


@measured_on("gpu")
def training(lab):
    """Forward and backward of one call, on all GPUs and on each of them at once."""
    for case in lab.each(dtype=["bfloat16"], N=list(LENGTHS)[1:2], causal=[True, False]):
        try:
            names = [OURS, TRITON, TRAINED, CUDNN]
            answers = _ask(trials.prepare_training, case["N"], case["causal"], names)
            able, rows = _able(case, answers)
            yield from rows
            yield from _timed(case, able, 5, factor=3.5)  # five products after two
        except (RuntimeError, TimeoutError) as error:
            yield _broken(case, OURS, error)
