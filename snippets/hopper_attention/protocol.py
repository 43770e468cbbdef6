"""kernel.py's protocol: problems to play it on, kernels with a mistake in it, what is said to them.

What groups of warps do wrong depends on the moment, so these mistakes are none of mutants.py.
"""

import functools
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from snippets._lab.judge.mutants import CONTROL, MutantError, variant
from snippets._lab.judge.oracle import NumericalMismatch, assert_attention, causal_mask, make_qkv
from snippets._warps.launch import played, traced
from snippets._warps.role_traces import Fault, Trace
from snippets._warps.simulation import Simulation

from .kernel import VARIANTS, Variant, hopper_attention

ORDERS = 50  # for each variant and each problem


class Work(NamedTuple):
    """A problem, and how its tiles of queries are divided."""

    M: int  # queries
    N: int  # keys
    causal: bool = False
    align: str = "bottom_right"
    batch: int = 1
    heads: int = 1  # of queries
    heads_kv: int = 1
    D: int = 64
    programs: int = 1
    rounds: int = 0  # causal: of pairs, at most, before tiles are dealt by their length

    def qkv(self) -> Any:
        """q, k and v."""
        sizes = {"D": self.D, "dtype": torch.float16}
        q, *_ = make_qkv(self.batch, self.heads, M=self.M, N=1, **sizes)
        _, *kv = make_qkv(self.batch, self.heads_kv, M=1, N=self.N, seed=1, **sizes)
        return q, *kv

    def assumed(self, launcher: Any, chosen: Variant) -> dict[str, Any]:
        """Names of the launcher's module under which it does this, with a variant."""
        return {
            "programs": self.programs,
            "_variant": lambda *_: chosen,
            "_paired": lambda total, tiles, programs: (
                min(self.rounds, total // (2 * programs)) * 2 * programs
            ),
            "_plan": launcher.__globals__["_plan"].__wrapped__,  # it remembers other orders
        }


# Whole and ragged tiles, several tiles of queries for a program, and queries that see no key.
WORK = (
    Work(M=300, N=1000, heads=2, programs=2),
    Work(M=500, N=300, causal=True, heads=2, heads_kv=2, programs=2, rounds=1),
    Work(M=500, N=500, causal=True, heads=2, heads_kv=2, programs=2),
)
# The same with numbers, which take longer.
COMPUTED = (
    Work(M=200, N=300, heads=2, programs=2),
    Work(M=300, N=200, causal=True, heads=2, heads_kv=2, programs=2, rounds=1),
)


@functools.lru_cache(64)
def traces(chosen: Variant, work: Work, launcher: Any = hopper_attention) -> list[Trace]:
    """What the roles of each program of a problem ask for."""
    with traced(launcher, **work.assumed(launcher, chosen)) as found:
        launcher(*work.qkv(), causal=work.causal, align=work.align)
    return found


def check(chosen: Variant, work: Work, seed: int = 0, launcher: Any = hopper_attention) -> int:
    """Play every program of a problem in a random order; how many events. Raises Fault."""
    return sum(
        Simulation(trace).run(random.Random(f"{seed} {program} 0"))
        for program, trace in enumerate(traces(chosen, work, launcher))
    )


def compute(chosen: Variant, work: Work, seed: int = 0, launcher: Any = hopper_attention) -> int:
    """Hold what it computes in a random order against float64. Raises NumericalMismatch."""
    q, k, v = work.qkv()
    unwritten = functools.partial(torch.full_like, fill_value=math.nan)
    with (
        patch.object(torch, "empty_like", unwritten),
        played(launcher, seed=seed, **work.assumed(launcher, chosen)),
    ):
        out = launcher(q, k, v, causal=work.causal, align=work.align)
    mask = causal_mask(work.M, work.N, align=work.align) if work.causal else None
    k, v = (x.repeat_interleave(work.heads // work.heads_kv, dim=1) for x in (k, v))
    assert_attention(out, q, k, v, mask=mask)
    return 0


def used_variants() -> list[Variant]:
    """Those of the kernel's table, each once."""
    found = {say(chosen): chosen for rows in VARIANTS.values() for chosen in rows}
    return [found[words] for words in sorted(found)]


def say(chosen: Variant) -> str:
    """A variant in words."""
    switches = {
        "softmax under the product": chosen.OVERLAP,
        "queries in registers": chosen.Q_IN_REGISTERS,
        "sums rescaled late": chosen.LAZY,
    }
    parts = [f"{chosen.CONSUMERS} consumers", f"{chosen.STAGES} buffers"]
    return ", ".join([*parts, *(words for words, on in switches.items() if on)])


def judge(changes: Sequence[tuple[str, str]] = (), orders: int = ORDERS) -> dict[str, Any]:
    """The first fault of a kernel with changes and the variant that showed it; events passed."""
    launcher = variant("hopper_attention", changes) if changes else hopper_attention
    events = 0
    for seed in range(orders):
        # Right numbers in one order are right in all.
        calls = [check] if seed else [check, compute]
        for call, chosen in itertools.product(calls, used_variants()):
            for work in WORK if call is check else COMPUTED:
                try:
                    events += call(chosen, work, seed, launcher)
                except (Fault, NumericalMismatch) as fault:
                    return {"message": str(fault), "variant": say(chosen), "events": events}
    return {"message": "", "variant": "all", "events": events}


class Mistake(NamedTuple):
    """A wrong protocol: pieces of kernel.py, each occurring once, that are replaced."""

    name: str
    changes: list[tuple[str, str]]
    diagnosis: str  # one sentence a reader with this mistake would want to read


NO_WAIT = ("mbarrier.wait(channel.empty.index(stage.index), stage.phase ^ 1)", "pass")
SAME_PARITY = ("stage.phase ^ 1", "stage.phase")
RELEASED_EARLY = (
    "    s = warpgroup_mma_wait(0, deps=[scores])\n    _release_in_passing(channels.k, stage)\n",
    "    _release_in_passing(channels.k, stage)\n    s = warpgroup_mma_wait(0, deps=[scores])\n",
)
MISTAKES = [
    Mistake(
        "no wait for an empty buffer",
        [NO_WAIT],
        "The producer runs ahead and copies over tiles that nobody has read.",
    ),
    Mistake(
        "wait for an empty buffer in the first phase",
        [SAME_PARITY],
        "Nobody has emptied a buffer that was never full: only the opposite parity lets the first "
        "wait pass.",
    ),
    Mistake(
        "full before the bytes are there",
        [("mbarrier.expect(full, desc.block_type.nbytes)", "mbarrier.arrive(full, count=1)")],
        "An arrival that announces no bytes ends the phase at once; the copy is still on its way.",
    ),
    Mistake(
        "a phase for each tile of keys",
        [
            (
                "stage = _stage(kv_count, V)\n            _fill(k_desc",
                "stage = Stage(kv_count % V.STAGES, kv_count & 1)\n            _fill(k_desc",
            )
        ],
        "The phase changes when a buffer comes round again, not with every tile.",
    ),
    Mistake(
        "tiles counted anew for each tile of queries",
        [("kv_count += n", "pass")],
        "Barriers remember their phases from one tile of queries to the next, so must the count.",
    ),
    Mistake(
        "one arrival too few",
        [("(k_desc, V.STAGES, V.CONSUMERS)", "(k_desc, V.STAGES, V.CONSUMERS - 1)")],
        "Every consumer reads a tile of keys; it is empty when the last of them has released it.",
    ),
    Mistake(
        "keys released under their product",
        [RELEASED_EARLY],
        "A started product still reads its buffers: release them after the wait for its end.",
    ),
    Mistake(
        "scores read too early",
        [("warpgroup_mma_wait(1, deps=[scores])", "warpgroup_mma_wait(2, deps=[scores])")],
        "Two products run; one may be left when the softmax begins, and that is the later one.",
    ),
    Mistake(
        "weights times the values of the next tile",
        [
            (
                "_issue_pv(p, state.acc, channels.v, before)",
                "_issue_pv(p, state.acc, channels.v, stage)",
            )
        ],
        "With the softmax under the product, the weights at hand belong to the tile before.",
    ),
    Mistake(
        "queries released before they are used",
        [
            (
                "    if V.Q_IN_REGISTERS:\n"
                "        _release(channels.q, queries.stage)\n"
                "    start = ",
                "    start = ",
            ),
            (
                "    stage = _stage(keys.before, V)\n",
                "    if V.Q_IN_REGISTERS:\n"
                "        _release(channels.q, queries.stage)\n"
                "    stage = _stage(keys.before, V)\n",
            ),
        ],
        "A load that has been issued may still wait for its turn when the next queries arrive.",
    ),
    Mistake(
        "queries without keys never released",
        [("else:\n            _release(channels.q, q_stage)\n", "else:\n            pass\n")],
        "A tile of queries that sees no key was copied all the same, and its buffer is awaited.",
    ),
    Mistake(
        "rows written over rows on their way out",
        [("tma.store_wait(0)\n        out_tile = ", "out_tile = ")],
        "TMA may still be storing the tile before when a short one is done.",
    ),
    Mistake(
        "end before the last rows are out",
        [
            (
                "_next_work(work_idx, prob, CAUSAL)\n    tma.store_wait(0)",
                "_next_work(work_idx, prob, CAUSAL)",
            )
        ],
        "The next program gets this shared memory while TMA still reads it.",
    ),
    Mistake(
        "no fence before the store",
        [("fence_async_shared()", "pass")],
        "TMA reads shared memory another way than threads do, and may see old rows.",
    ),
    Mistake(
        "programs one item apart",
        [("next_idx = work_idx + programs", "next_idx = work_idx + programs + 1")],
        "Each program leaves out the work of one program too many, and nobody takes that.",
    ),
]


def protocol_mutants(lab: Any, orders: int = ORDERS) -> Iterator[dict[str, Any]]:
    """What is said to each mistake; the kernel as it is comes first and passes."""
    mistakes = {m.name: m for m in (Mistake(CONTROL, [], ""), *MISTAKES)}
    for case in lab.each(mutant=list(mistakes)):
        mistake = mistakes[case["mutant"]]
        found = judge(mistake.changes, orders)
        if bool(found["message"]) != bool(mistake.changes):
            raise MutantError(f"{mistake.name}: {found['message'] or 'nothing was found'}")
        yield {**case, "diagnosis": mistake.diagnosis, **found}
