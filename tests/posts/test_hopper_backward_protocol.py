"""What comes before what in every order: right kernels pass, and each wrong protocol is refused."""

import functools

import pytest
import torch

from snippets._lab.judge.mutants import CONTROL, variant
from snippets._lab.probe.compiled import Compiler
from snippets.hopper_attention.simulator import mistakes, protocol
from snippets.hopper_attention.simulator import parts as forward
from snippets.hopper_attention.simulator.gluon import KERNEL
from snippets.hopper_backward import bench, kernel, parts
from snippets.hopper_backward.kernel import VARIANTS, hopper_backward
from snippets.hopper_backward.mutants import MUTANTS
from snippets.hopper_backward.orders import Orders
from snippets.hopper_backward.parts import (
    Arrive,
    Copy,
    Expect,
    Fault,
    Fence,
    Finish,
    Load,
    Product,
    Program,
    Region,
    Store,
    StoreWait,
    Wait,
    Write,
)
from tests.floors import some
from tests.posts.arrivals import arrivals

OF_ORDER = {
    "dQ of the first half for both",
    "no wait for a released stage",
    "wait for a released stage in the first phase",
    "full before the bytes are there",
    "numbers not waited for",
    "a phase for each tile of queries",
    "dS of the other consumer not waited for",
    "one consumer releases a stage for both",
    "dS not fenced",
    "dQ not fenced",
    "scores read too early",
    "dP read too early",
    "dQ written over dQ",
    "dQ added before it is there",
    "dQ released before it is read",
    "dK written over dV",
    "end before dK is out",
}


def programs(launcher, M, N, D, causal, H=2, added=False):
    """What a launch would run."""
    q, k = torch.zeros(H, M, D).half(), torch.zeros(1, N, D).half()
    into = [x.float() for x in (q, k, k)] if added else None
    with parts.listed(launcher) as found:
        launcher(q, k, k, q, torch.zeros(q.shape[:-1]), q, causal=causal, into=into)
    return found


def fault(launcher, patience=1):
    """The first fault of a launcher, or nothing."""
    try:
        for D in VARIANTS:
            for program in some(programs(launcher, 330, 130, D, causal=False)):
                Orders(program, patience).faults()
    except Fault as found:
        return str(found)
    return ""


# The kernel.


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("D", VARIANTS)
def test_no_order_matters(D, causal):
    for M, N in ((1, 1), (64, 300), (129, 65), (700, 200)):
        for program in some(programs(hopper_backward, M, N, D, causal, H=3)):
            assert Orders(program).faults() > 0


@pytest.mark.parametrize("D", VARIANTS)
def test_no_order_matters_where_gradients_are_added(D):
    for program in some(programs(hopper_backward, 200, 300, D, causal=True, added=True)):
        assert Orders(program).faults() > 0


@pytest.mark.parametrize("name", [name for name, rung in bench.RUNGS.items() if rung.right])
def test_no_order_matters_to_a_rung(name):
    rung = bench.RUNGS[name]
    for D in some(rung.widths):
        launcher = bench._launcher(rung, D)
        names = launcher.__wrapped__.__globals__
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(names["VARIANTS"], D, names["VARIANTS"][D]._replace(**rung.switches))
            for program in some(programs(launcher.__wrapped__, 330, 130, D, causal=True)):
                assert Orders(program).faults() > 0


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_mistake_has_a_fault_if_it_is_one_of_order(mutant):
    wrong = variant("hopper_backward", [(mutant.old, mutant.new)])
    assert bool(fault(wrong)) == (mutant.name in OF_ORDER), fault(wrong)


def test_every_mistake_of_order_is_one_of_the_room():
    assert {m.name for m in MUTANTS} >= OF_ORDER


@pytest.mark.parametrize("patience", [1, 3, 10**6])
def test_no_verdict_depends_on_who_goes_first_here(patience):
    assert not fault(hopper_backward, patience)
    for mutant in some([m for m in MUTANTS if m.name in OF_ORDER], 17):
        assert fault(variant("hopper_backward", [(mutant.old, mutant.new)]), patience), mutant.name


def test_the_result_names_a_fault_and_how_often_it_shows(monkeypatch):
    class Lab:
        def each(self, mutant):
            return [{"mutant": name} for name in (CONTROL, "dS not fenced", "no scale in dK")]

    monkeypatch.setattr(bench, "PLAYED", 1)
    whole, unfenced, unscaled = bench.orders(Lab())
    assert not whole["fault"]
    assert whole["pairs"] > 1000
    assert "without a fence" in unfenced["fault"]
    assert unfenced["shown"] == 1
    assert not unscaled["fault"]
    assert unscaled["shown"] is None


# The forward, whose faults the simulation of hopper_attention finds in random orders.


def of_the_forward(trace):
    """A program of hopper_attention, and its first arrivals as a part that all others wait for."""
    found = {}
    for part, ops in {"setup": trace.setup, **trace.parts}.items():
        found[part] = [] if part == "setup" else [Wait("started", 0)]
        numbers, ended = [], 0
        for op in ops:
            match op:
                case forward.Softmax(number, _, _) if number in numbers[ended:]:
                    raise Fault(f"{part} reads scores that are still computed")
                case forward.Softmax():
                    continue
                case forward.Product(number, _, _):
                    numbers.append(number)
                case forward.Finish(left):
                    ended = max(ended, len(numbers) - left)
            found[part].append(translated(op))
    found["setup"].append(Arrive("started", 1))
    return Program({**trace.barriers, "started": 1}, found)


def translated(op):
    """An operation of the forward's list in the words of this room."""
    whole = functools.partial(Region, first=0, width=1)
    match op:
        case forward.Arrive(barrier):
            return Arrive(barrier, 1)
        case forward.Copy(_, barrier, buffer, size):
            return Copy(whole(buffer), barrier, size)
        case forward.Load(number, buffer):
            return Load(whole(buffer), number)
        case forward.Write(buffer):
            return Write(whole(buffer))
        case forward.Store(_, buffer):
            return Store(whole(buffer))
        case forward.Product(_, a, b):
            loads = () if isinstance(a, str) else (a,)  # or none: weights have no load
            return Product(tuple(whole(x) for x in (a, b) if isinstance(x, str)), loads)
    return {
        forward.Wait: Wait,
        forward.Expect: Expect,
        forward.Fence: Fence,
        forward.Finish: Finish,
        forward.StoreWait: StoreWait,
    }[type(op)](*op)


def fault_of_the_forward(source):
    try:
        for chosen in some(protocol.used_variants()):
            for work in protocol.WORK:
                for program in range(work.programs):
                    trace = forward.trace(chosen, work, program, source)
                    Orders(of_the_forward(trace)).faults()
    except (Fault, forward.Fault) as found:
        return str(found)
    return ""


def test_no_order_matters_to_the_forward():
    assert not fault_of_the_forward(KERNEL.read_text("utf-8"))


@pytest.mark.parametrize("mistake", mistakes.MISTAKES, ids=lambda m: m.name)
def test_it_finds_what_the_simulation_of_the_forward_finds(mistake):
    found = fault_of_the_forward(mistakes.with_mistake(mistake, KERNEL.read_text("utf-8")))
    # Two are wrong in every order alike: what is multiplied by what, and who does which rows.
    computed = {"weights times the values of the next tile", "programs one item apart"}
    assert bool(found) == (mistake.name not in computed), found


# The rules, one by one: two parts, one buffer, one or two barriers.

X, LEFT, RIGHT = Region("x[0]", 0, 8), Region("x[0]", 0, 4), Region("x[0]", 4, 4)
Y = Region("y[0]", 0, 8)
READY, BACK = "ready[0]", "back[0]"
LOAD, TAKE = Load(X, 0), Product((), (0,))
READ = [LOAD, TAKE]
RULES = {
    "one after the other": ([Write(X), Arrive(READY, 1)], [Wait(READY, 0), *READ], ""),
    "nobody waits": ([Write(X), Arrive(READY, 1)], READ, "at the same time"),
    "both read": (READ, READ, ""),
    "halves of a buffer": ([Write(LEFT)], [Write(RIGHT)], ""),
    "a half and the whole": ([Write(LEFT)], [Write(X)], "at the same time"),
    "said too early": ([Arrive(READY, 1), Write(X)], [Wait(READY, 0), *READ], "same time"),
    "fenced": (
        [Write(X), Fence(), Arrive(READY, 1)],
        [Wait(READY, 0), Product((X,)), Finish(0)],
        "",
    ),
    "not fenced": (
        [Write(X), Arrive(READY, 1)],
        [Wait(READY, 0), Product((X,)), Finish(0)],
        "without a fence",
    ),
    "fenced too late": (
        [Write(X), Arrive(READY, 1), Fence()],
        [Wait(READY, 0), Store(X), StoreWait(0)],
        "without a fence",
    ),
    "the reader's fence is none of the writer's": (
        [Write(X), Arrive(READY, 1)],
        [Wait(READY, 0), Fence(), Store(X), StoreWait(0)],
        "without a fence",
    ),
    "threads need no fence": ([Write(X), Arrive(READY, 1)], [Wait(READY, 0), *READ], ""),
    "loaded and taken": ([*READ, Arrive(READY, 1)], [Wait(READY, 0), Write(X)], ""),
    "loaded and stored": (
        [LOAD, Write(Y, (0,)), Arrive(READY, 1)],
        [Wait(READY, 0), Write(X)],
        "",
    ),
    "handed back before what was loaded is taken": (
        [LOAD, Arrive(READY, 1), TAKE],
        [Wait(READY, 0), Write(X)],
        "at the same time",
    ),
    "loaded and never taken": ([LOAD, Arrive(READY, 1)], [Wait(READY, 0), Write(X)], ""),
    "bytes have come": (
        [Expect(READY, 16), Copy(X, READY, 16)],
        [Wait(READY, 0), *READ],
        "",
    ),
    "bytes nobody announced": (
        [Arrive(READY, 1), Copy(X, READY, 16)],
        [Wait(READY, 0), *READ],
        "at the same time",
    ),
    "handed back while a product reads": (
        [Product((X,)), Arrive(READY, 1), Finish(0)],
        [Wait(READY, 0), Write(X)],
        "at the same time",
    ),
    "products end in order": (
        [Product((X,)), Product(()), Finish(1), Arrive(READY, 1), Finish(0)],
        [Wait(READY, 0), Write(X)],
        "",
    ),
    "the end of too few products": (
        [Product(()), Product((X,)), Finish(1), Arrive(READY, 1), Finish(0)],
        [Wait(READY, 0), Write(X)],
        "at the same time",
    ),
    "an end that nobody waits for": ([Product((X,))], [], "may end while a product"),
    "a store that nobody waits for": ([Store(X)], [], "may end while TMA"),
    "an arrival that never comes": (READ, [Wait(READY, 0)], "b waits for ready"),
    "two phases ahead looks like none": (
        [Arrive(READY, 1), Arrive(READY, 1)],
        [Wait(READY, 0)],
        "may miss it|b waits for ready",
    ),
    "back and forth": (
        [Arrive(READY, 1), Wait(BACK, 0), Arrive(READY, 1)],
        [Wait(READY, 0), Arrive(BACK, 1), Wait(READY, 1)],
        "",
    ),
    "a phase asked for before its turn": (
        [Arrive(READY, 1), Wait(BACK, 0), Arrive(READY, 1)],
        [Wait(READY, 1), Arrive(BACK, 1)],
        "may ask for|may miss it|nobody",
    ),
}


@pytest.mark.parametrize("patience", [1, 100])
@pytest.mark.parametrize("rule", RULES)
def test_rule(rule, patience):
    a, b, words = RULES[rule]
    orders = Orders(Program({READY: 1, BACK: 1}, {"a": a, "b": b}), patience)
    if not words:
        orders.faults()
        return
    with pytest.raises(Fault, match=words):
        orders.faults()


def test_arrivals_of_two_phases_may_not_mix():
    once = [Arrive(READY, 1)]
    orders = Orders(Program({READY: 2}, {"a": once * 2, "b": once * 2}))
    with pytest.raises(Fault, match="phases 0 and 1 of ready"):
        orders.faults()


# What it compiles to.


@pytest.mark.compiler
@pytest.mark.parametrize("D", VARIANTS)
def test_whoever_arrives_speaks_for_all_its_warps(D, monkeypatch):
    """orders.py takes a group of warps as one; this is what entitles it to."""
    monkeypatch.setattr(kernel, "_check_inputs", lambda *_: None)  # of a CPU
    x = torch.zeros(1, 2, 256, D, dtype=torch.bfloat16)
    given = (x, x, x, x, torch.zeros(1, 2, 256), x)
    with Compiler(60) as compiler:
        for causal, into in ((False, None), (True, None), (True, [x.float()] * 3)):
            options = {"causal": causal, "into": into}
            found = compiler.resources(hopper_backward, given, options, target="sm_90")
            (found,) = (r for r in found if r.kernel == "_hopper_backward_kernel")
            assert found.error is None
            assert all(met for _, met in some(arrivals(found.ptx), 7))
