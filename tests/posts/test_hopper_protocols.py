"""The barriers of both Hopper kernels: their own lines, in all orders and in random ones."""

import ast
import functools
import itertools
import random
import re
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from snippets._lab.judge.mutants import CONTROL, variant
from snippets._lab.results.staleness import code_of
from snippets._warps import gluon
from snippets._warps.interleavings import Interleavings
from snippets._warps.launch import traced
from snippets._warps.role_traces import (
    Arrive,
    Copy,
    Expect,
    Fault,
    Fence,
    Finish,
    Load,
    Product,
    Region,
    Softmax,
    Store,
    StoreWait,
    Trace,
    Wait,
    Write,
)
from snippets._warps.simulation import Barrier, Simulation
from snippets.hopper_attention import bench, channel, clocks, in_turn, protocol, timeline, wide
from snippets.hopper_attention.kernel import Variant, hopper_attention
from snippets.hopper_attention.protocol import Work
from snippets.hopper_backward import bench as backward_bench
from snippets.hopper_backward.kernel import VARIANTS, hopper_backward
from snippets.hopper_backward.mutants import MUTANTS
from tests.floors import some
from tests.posts.arrivals import arrivals

PLAIN = Variant(CONSUMERS=2, STAGES=2)
BASE = PLAIN._replace(OVERLAP=True)
COMPILER_SECONDS = 60
IN_TURN = variant("hopper_attention", in_turn.TURNS)
WIDE = variant("hopper_attention", wide.PIECES)
FAST = variant("hopper_attention", bench.APART[64]["weights not in pairs"])  # no assembly
KEYS_64 = variant("hopper_attention", [bench.KEYS_64])
LAUNCHERS = [hopper_attention, IN_TURN, KEYS_64, WIDE, FAST]


# The two kernels.


def forward(launcher=hopper_attention):
    """What the programs ask for, of all variants and problems."""
    for chosen, work in itertools.product(protocol.used_variants(), protocol.WORK):
        yield from protocol.traces(chosen, work, launcher)


def backward(launcher=hopper_backward, M=330, N=130, widths=VARIANTS, causal=False, H=2, add=False):
    """What the programs ask for, of heads that share keys."""
    for D in widths:
        q, k = torch.zeros(H, M, D).half(), torch.zeros(1, N, D).half()
        into = [x.float() for x in (q, k, k)] if add else None
        with traced(launcher) as found:
            launcher(q, k, k, q, torch.zeros(q.shape[:-1]), q, causal=causal, into=into)
        yield from some(found)


class Kernel(NamedTuple):
    launcher: Any
    traces: Any
    mistakes: dict  # name → changes
    computed: set  # mistakes that are wrong in every order alike


# What is multiplied by what, and who does which rows.
FORWARD = {"weights times the values of the next tile", "programs one item apart"}
OF_ORDER = {
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
    "dQ read too early",
    "dQ written over dQ",
    "dQ added before it is there",
    "dQ released before it is read",
    "dK written over dV",
    "end before dK is out",
}
MISTAKES = {m.name: m.changes for m in protocol.MISTAKES}
WRONG = {m.name: [(m.old, m.new)] for m in MUTANTS}
KERNELS = {
    "hopper_attention": Kernel(hopper_attention, forward, MISTAKES, FORWARD),
    "hopper_backward": Kernel(hopper_backward, backward, WRONG, set(WRONG) - OF_ORDER),
}
CASES = [(room, name) for room, kernel in KERNELS.items() for name in kernel.mistakes]
of_both = pytest.mark.parametrize("room", KERNELS)


def fault(room, changes=()):
    """The first fault that some order has, or nothing; who goes first in the proof is all one."""
    kernel = KERNELS[room]
    try:
        launcher = variant(room, changes) if changes else kernel.launcher
        for trace in some(kernel.traces(launcher)):
            said = [said_of(trace, patience) for patience in (1, 3, 10**6)]
            assert len(set(map(bool, said))) == 1, said
            if said[0]:
                return said[0]
    except Fault as found:
        return str(found)
    return ""


def said_of(trace, patience):
    try:
        Interleavings(trace, patience).faults()
    except Fault as found:
        return str(found)
    return ""


@of_both
def test_no_order_matters_to_a_kernel(room):
    assert not fault(room)


@pytest.mark.parametrize(("room", "name"), CASES)
def test_a_mistake_has_a_fault_if_it_is_one_of_order(room, name):
    found = fault(room, KERNELS[room].mistakes[name])
    assert bool(found) == (name not in KERNELS[room].computed), found


@given(
    chosen=st.builds(
        Variant,
        CONSUMERS=st.integers(2, 3),
        STAGES=st.integers(1, 4),
        OVERLAP=st.booleans(),
        Q_IN_REGISTERS=st.booleans(),
    ),
    work=st.builds(
        lambda G, **sizes: Work(heads=2 * G, heads_kv=2, **sizes),
        rounds=st.integers(0, 9),
        G=st.integers(1, 2),
        M=st.integers(1, 400),
        N=st.integers(1, 600),
        causal=st.booleans(),
        align=st.sampled_from(("bottom_right", "top_left")),
        batch=st.integers(1, 2),
        programs=st.integers(1, 3),
    ),
    seed=st.integers(0, 10**6),
    launcher=st.sampled_from(LAUNCHERS),
)
@example(chosen=BASE, work=Work(M=400, N=100, causal=True, rounds=2), seed=0, launcher=IN_TURN)
@settings(max_examples=60)
def test_every_order_of_the_forward_ends_well(chosen, work, seed, launcher):
    """No deadlock, and nothing overwritten or read too early, whatever the shape and variant."""
    assert protocol.check(chosen, work, seed, launcher) > 0
    for trace in some(protocol.traces(chosen, work, launcher)):
        assert Interleavings(trace).faults() > 0


@pytest.mark.parametrize("add", [False, True], ids=["stored", "added"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(("M", "N"), [(1, 1), (64, 300), (129, 65), (700, 200)])
def test_every_order_of_the_backward_ends_well(M, N, causal, add):
    for trace in some(backward(M=M, N=N, causal=causal, H=3, add=add)):
        assert Interleavings(trace).faults() > 0
        assert Simulation(trace).run(random.Random(f"{M} {N}")) > 0


@pytest.mark.parametrize("name", [n for n, rung in backward_bench.RUNGS.items() if rung.right])
def test_no_order_matters_to_a_rung(name):
    rung = backward_bench.RUNGS[name]
    for D in some(rung.widths):
        launcher = backward_bench._launcher(rung, D).__wrapped__
        table = launcher.__globals__["VARIANTS"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(table, D, table[D]._replace(**rung.switches))
            for trace in some(backward(launcher, widths=[D], causal=True)):
                assert Interleavings(trace).faults() > 0


# Random orders.

STUCK = "nobody can go on: .* waits for "
SAID = {
    "no wait for an empty buffer": "filled by two copies|overwritten|missed a phase|before",
    "wait for an empty buffer in the first phase": STUCK + r".*producer waits for q.empty\[0\]",
    "full before the bytes are there": "before its copy has arrived",
    "a phase for each tile of keys": STUCK,
    "tiles counted anew for each tile of queries": "missed a phase|" + STUCK,
    "one arrival too few": "before its copy has arrived|overwritten|missed a phase",
    "keys released under their product": r"k\[\d\] is overwritten while consumer \d multiplies",
    "scores read too early": "the result of a product that may still run",
    "weights times the values of the next tile": "largest difference .* from float64",
    "queries released before they are used": r"q\[\d\] is overwritten before consumer \d has read",
    "queries without keys never released": STUCK + ".*q.empty",
    "rows written over rows on their way out": r"overwrites out\[\d\] while it is being stored",
    "end before the last rows are out": "ends while its rows are being stored",
    "no fence before the store": "before TMA can see it",
    "programs one item apart": "largest difference nan from float64",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_of_the_forward_is_seen_for_what_it_is(name):
    found = protocol.judge(MISTAKES[name])
    assert found["message"], f"{name} survived"
    assert re.search(SAID[name], found["message"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("work_idx % 2 == 0, prob.tiles - 1", "work_idx % 2 == 0, prob.tiles"),
        ("row = (n - 1 - i) * BLOCK_N", "row = i * BLOCK_N"),
        ("_fill(k_desc, [b, h // prob.G, row, 0]", "_fill(k_desc, [b, h, row, 0]"),
        ("return n, n - seen_by_all", "return n, n - 1 - seen_by_all"),
        (
            "            end = masked if with_mask else keys.n\n            for",
            "            end = masked\n            for",
        ),
    ],
)
def test_a_wrong_schedule_is_seen_too(old, new):
    said = "largest difference|nobody can go on|before its copy has arrived"
    assert re.search(said, protocol.judge([(old, new)])["message"])


LEAVES = "tma.store_wait(0)\n        _release(channels.q, q_stage)\n"


@pytest.mark.parametrize(
    ("said", "old", "new"),
    [
        ("", "", ""),
        (r"missed a phase of q|q\[\d\] is overwritten", "V.CONSUMERS, 2)", "V.CONSUMERS, 1)"),
        (r"overwrites q\[\d\] while it is being stored", LEAVES, LEAVES.partition("\n")[2]),
        (STUCK + ".*q.empty", LEAVES, "tma.store_wait(0)\n"),
    ],
    ids=["as it is", "one arrival", "released before they have left", "never released"],
)
def test_rows_of_256_columns_leave_through_the_buffer_of_their_queries(said, old, new):
    launcher = variant("hopper_attention", [*wide.WIDE, *[(old, new)] * bool(old)])
    (chosen,) = launcher.__globals__["VARIANTS"][256]
    works = [work._replace(D=256) for work in protocol.WORK]
    faults = []
    for seed, work in itertools.product(range(10), works):
        try:
            protocol.check(chosen, work, seed, launcher)
        except Fault as fault:
            faults.append(str(fault))
    assert all(re.search(said, fault) for fault in faults)
    assert bool(faults) == bool(said)


def test_the_table_of_mistakes_begins_with_the_kernel_that_passes():
    lab = SimpleNamespace(each=lambda mutant: [{"mutant": name} for name in mutant[:3]])
    rows = list(protocol.protocol_mutants(lab, orders=1))
    assert [bool(r["message"]) for r in rows] == [False, True, True]
    assert rows[0]["events"] > 10_000
    assert all(r["diagnosis"].endswith(".") for r in some(rows[1:]))


@pytest.mark.skipif(torch.cuda.is_available(), reason="plays orders in the interpreter")
def test_the_result_names_a_fault_and_how_often_it_shows(monkeypatch):
    names = [CONTROL, "dS not fenced", "no scale in dK"]
    monkeypatch.setattr(backward_bench, "PLAYED", 1)
    lab = SimpleNamespace(each=lambda mutant: [{"mutant": name} for name in names])
    whole, unfenced, unscaled = backward_bench.orders(lab)
    assert not whole["fault"]
    assert whole["pairs"] > 1000
    assert "without a fence" in unfenced["fault"]
    assert unfenced["shown"] == 1
    assert not unscaled["fault"]
    assert unscaled["shown"] is None


def test_the_same_seed_gives_the_same_order():
    (trace,) = protocol.traces(BASE, Work(M=128, N=512))

    def order(seed):
        simulation, seen = Simulation(trace), []
        happen = simulation.happen
        simulation.happen = lambda event: (seen.append(event), happen(event))
        simulation.run(random.Random(seed))
        return seen

    assert order("a") == order("a") != order("b")


# What is played and compared is the kernel that runs.


@of_both
def test_every_line_that_waits_or_signals_has_been_seen(room):
    """Each line of kernel.py that calls one of these runs in some trace."""
    kernel = KERNELS[room]
    signals = re.compile(
        r"mbarrier\.|_?tma[._]|async_copy|_reduce_add|warpgroup_mma|fence_|_fill|_wait|_release"
        r"|_issue|_pass_turn|_step|_hand_over"
    )
    source = Path(kernel.launcher.__globals__["__file__"]).read_text("utf-8")
    wanted = {
        call.lineno
        for function in ast.parse(source).body
        if gluon.runs_on_gpu(function)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and signals.match(ast.unparse(call.func))
    }
    seen = set()

    def watch(frame, event, _):
        if frame.f_code.co_filename != gluon.FILE:
            return None
        seen.add(frame.f_lineno)
        return watch

    protocol.traces.cache_clear()
    before = sys.gettrace()
    sys.settrace(watch)
    try:
        list(kernel.traces())
        if room == "hopper_backward":  # which orders its products by the mask
            list(backward(causal=True))
    finally:
        sys.settrace(before)
    assert len(wanted) > 20
    assert not wanted - seen


def test_what_the_roles_ask_for_by_hand():
    """One tile of queries, two of keys, the simplest variant: written out by hand."""
    (trace,) = protocol.traces(PLAIN, Work(M=128, N=256, D=128))
    assert trace.barriers["k.empty[1]"] == 2
    assert trace.barriers["q.empty[1]"] == trace.barriers["v.full[0]"] == 1
    size = 128 * 128 * 2
    q, k, v, out = (Region(x, 0, 128) for x in ("q[1]", "k[0]", "v[0]", "out[1]"))
    for x, asked in (("k", trace.roles["producer"][-6:-3]), ("v", trace.roles["producer"][-3:])):
        copy = Copy((Region(f"{x}[1]", 0, 128),), f"{x}.full[1]", size, block=(0, 0, 0, 0))
        assert asked == [Wait(f"{x}.empty[1]", 1), Expect(f"{x}.full[1]", size), copy]
    ops = trace.roles["consumer 1"]
    scores = [Product((q, k), (), 0), Finish(0), Arrive("k.empty[0]"), Softmax(0, 128)]
    values = [Wait("v.full[0]", 0), Product((v,), (), 1), Finish(0)]
    assert ops[:9] == [Wait("q.full[1]", 0), Wait("k.full[0]", 0), *scores, *values]
    released = [Arrive("v.empty[1]"), Arrive("q.empty[1]")]
    stored = [StoreWait(0), Write(out), Fence(), Store(out), StoreWait(0)]
    assert ops[-7:] == [*released, *stored]


def test_a_name_of_gluon_that_is_not_known_is_an_error():
    launcher = variant("hopper_attention", [("fence_async_shared()", "gl.barrier()")])
    with pytest.raises(AttributeError, match="barrier"):
        protocol.traces(BASE, Work(M=64, N=64), launcher)


def test_constants_are_found_by_who_uses_them():
    source = "import torch\nUSED = 1\nUNUSED = torch.half\n"
    names = {"gluon": SimpleNamespace(jit=lambda f: f)}
    function = "@gluon.jit\ndef _f():\n    return USED\n"
    exec(gluon.gpu_code(source + function), names)  # noqa: S102 - the text above
    assert {"USED", "_f"} <= set(names)
    assert "UNUSED" not in names


@pytest.mark.parametrize(
    ("room", "result"), [("hopper_attention", "barriers"), ("hopper_backward", "orders")]
)
def test_a_result_of_the_package_depends_on_it(room, result):
    assert "role_traces.py" in {Path(file).name for file in code_of(room, result, "interpreter")}


# The rules, one by one: two roles, two buffers, two barriers. Both hold buffers that are written.

X, LEFT, RIGHT = Region("x[0]", 0, 8), Region("x[0]", 0, 4), Region("x[0]", 4, 4)
Y = Region("y[0]", 0, 8)
READY, BACK = "ready[0]", "back[0]"
SAY, HEAR = Arrive(READY), Wait(READY, 0)
LOAD, TAKE, READS = Load(X, 0), Product((), (0,)), Product((X,))
READ, STORED = [LOAD, TAKE, Finish(0)], [Store(X), StoreWait(0)]
WRITTEN = [Write(X), Write(Y), Fence()]  # before the two roles begin
THEN_READ, THEN_WRITTEN, THEN_MULTIPLIED = [HEAR, *READ], [HEAR, Write(X)], [HEAR, READS, Finish(0)]
RULES = {  # what is said of it → a rule, and what the two roles do
    "": {
        "one after the other, threads need no fence": ([Write(X), SAY], THEN_READ),
        "both read": (READ, READ),
        "halves of a buffer": ([Write(LEFT)], [Write(RIGHT)]),
        "fenced": ([Write(X), Fence(), SAY], THEN_MULTIPLIED),
        "loaded and taken": ([*READ, SAY], THEN_WRITTEN),
        "loaded and stored": ([LOAD, Write(Y, (0,)), SAY], THEN_WRITTEN),
        "loaded and never taken": ([LOAD, SAY], THEN_WRITTEN),
        "bytes have come": ([Expect(READY, 16), Copy((X,), READY, 16)], THEN_READ),
        "products end in order": ([READS, Product(()), Finish(1), SAY, Finish(0)], THEN_WRITTEN),
        "back and forth": ([SAY, Wait(BACK, 0), SAY], [HEAR, Arrive(BACK), Wait(READY, 1)]),
    },
    "at the same time": {
        "nobody waits": ([Write(X), SAY], READ),
        "a half and the whole": ([Write(LEFT)], [Write(X)]),
        "said too early": ([SAY, Write(X)], THEN_READ),
        "handed back before what was loaded is taken": ([LOAD, SAY, TAKE, Finish(0)], THEN_WRITTEN),
        "bytes nobody announced": ([SAY, Copy((X,), READY, 16)], THEN_READ),
        "handed back while a product reads": ([READS, SAY, Finish(0)], THEN_WRITTEN),
        "the end of too few products": (
            [Product(()), READS, Finish(1), SAY, Finish(0)],
            THEN_WRITTEN,
        ),
    },
    "without a fence": {
        "not fenced": ([Write(X), SAY], THEN_MULTIPLIED),
        "fenced too late": ([Write(X), SAY, Fence()], [HEAR, *STORED]),
        "the reader's fence is none of the writer's": ([Write(X), SAY], [HEAR, Fence(), *STORED]),
    },
    "may end while a product": {"an end that nobody waits for": ([READS], [])},
    "may end while TMA": {"a store that nobody waits for": ([Store(X)], [])},
    "b waits for ready": {"an arrival that never comes": (READ, [HEAR])},
    "may miss it|b waits for ready": {"two phases ahead looks like none": ([SAY, SAY], [HEAR])},
    "may ask for|may miss it|nobody": {
        "a phase asked for before its turn": (
            [SAY, Wait(BACK, 0), SAY],
            [Wait(READY, 1), Arrive(BACK)],
        )
    },
    "phases 0 and 1 of back": {"arrivals of two phases": ([Arrive(BACK)] * 2, [Arrive(BACK)] * 2)},
}
# What no single order can show: who wrote last, and who contributed to which phase.
UNSEEN = {"a half and the whole", "arrivals of two phases"}


with_each_rule = pytest.mark.parametrize(
    ("rule", "words"), [(rule, words) for words, rules in RULES.items() for rule in rules]
)


def of_two(rule, words):
    a, b = RULES[words][rule]
    arrivals_of = {READY: 1, BACK: 2 if rule == "arrivals of two phases" else 1}
    return Trace(arrivals_of, WRITTEN, {"a": a, "b": b})


@pytest.mark.parametrize("patience", [1, 100])
@with_each_rule
def test_rule(rule, words, patience):
    found = said_of(of_two(rule, words), patience)
    assert re.search(words, found) if words else not found


@with_each_rule
def test_a_rule_that_is_broken_shows_in_some_random_order(rule, words):
    trace = of_two(rule, words)
    faults = []
    for seed in range(40):
        try:
            Simulation(trace).run(random.Random(seed))
        except Fault as found:
            faults.append(str(found))
    assert bool(faults) == bool(words and rule not in UNSEEN), faults


def test_a_phase_ends_with_the_last_arrival_and_the_last_byte():
    barrier = Barrier(2)
    barrier.change(1, 64)
    barrier.change(1, 0)
    assert barrier.over == 0
    barrier.change(0, -64)
    assert (barrier.over, barrier.pending) == (1, 2)


# The channel that a page lets its readers play: every order of events.


def walked(changes, tiles, single):
    return channel.walk(channel.Keys(channel.channel_of_keys(changes, tiles), tiles, single))


@pytest.mark.parametrize("mistake", channel.REMOVED, ids=lambda m: m.name)
def test_what_can_be_taken_out_goes_wrong_in_steps_of_any_size(mistake):
    walks = [walked(mistake.changes, 3, single) for single in (False, True)]
    assert None not in [walk.trouble() for walk in walks]
    faults = [
        {re.sub(r"\d", "", to) for ways in walk.ways for _, to in ways if isinstance(to, str)}
        for walk in walks
    ]
    assert faults[0] <= faults[1], "a step that is longer shows nothing that cannot be"
    assert bool(faults[0]) == bool(faults[1])
    if len(walks[0].states) > 1:  # of all channels, in random orders
        assert protocol.judge(mistake.changes, orders=2)["message"]


@pytest.mark.parametrize("single", [False, True])
def test_every_state_of_the_channel_leads_to_the_end(single):
    walk = walked((), 4, single)
    assert walk.trouble() is None
    ends = [s for s, ways in zip(walk.states, walk.ways, strict=True) if not ways]
    assert [end.stuck() for end in ends] == [{}]
    assert {to for ways in walk.ways for _, to in ways} == {*range(1, len(walk.states))}
    assert len(walk.states) > 100


# Pictures.


def test_the_scene_is_the_timeline_with_the_lines_where_roles_stand():
    rows = list(timeline.scene(BASE, tiles=4, launcher=IN_TURN))
    clock = timeline.play(BASE, 4, 128, IN_TURN)
    assert [r for r in rows if "part" in r] == [x._asdict() for x in clock.spans]
    whole = rows[-1]
    file = IN_TURN.__globals__["__file__"]
    source = "".join(Path(file).read_text("utf-8").split())
    code = [line for line in whole["listing"] if not line.startswith("def ")]
    assert all("".join(line.split()) in source for line in some(code))
    stays = [r for r in rows if "stays" in r]
    for softmax in some([r for r in rows if r.get("kind") == "softmax" and r["tile"] > 0]):
        when = softmax["part"], softmax["start"], softmax["end"]
        (stay,) = [s for s in stays if (s["stays"], s["works_from"], s["until"]) == when]
        assert "_online_softmax(" in whole["listing"][stay["lines"][0]]
    waits = [s for s in stays if s["since"] < s["works_from"]]
    asked = [whole["listing"][s["lines"][0]] for s in some(waits)]
    assert all("_fill(" in line or "wait" in line for line in asked)
    for one, two in some(itertools.combinations([s for s in stays if s["stays"] == "producer"], 2)):
        assert one["until"] <= two["since"], "a role stands at one line at a time"
    # A buffer is released once by each consumer for every tile that went through it.
    fetched = [r["fetched"] for r in rows if "fetched" in r]
    sent = [r["sent_to"] for r in rows if "sent_to" in r]
    for buffer in some({name for name in fetched if name[0] in "kv"}):
        assert sent.count(buffer.replace("[", ".empty[")) == 2 * fetched.count(buffer)


def marks_of(clock):
    """What clocks.py would note of a program that the simulation plays."""
    marks = [[[0] * clocks.MARKS for _ in range(clocks.TILES + 2)] for _ in range(clocks.PARTS)]
    at = {"scores": (clocks.SCORES, clocks.SCORED), "values": (clocks.VALUES, clocks.ADDED)}
    for part, kind, tile, start, end in clock.spans:
        if part == "producer":
            row, first = (6, 3 * tile) if "q" in kind else (tile, 3 * ("v" in kind))
            marks[-1][row][first : first + 3] = [start, start, end]
        elif kind in at:
            row = marks[int(part[-1])][tile]
            row[at[kind][0]], row[at[kind][1]] = start, end
        elif kind == "softmax":
            marks[int(part[-1])][tile][clocks.WEIGHED] = end
        elif kind == "out":
            marks[int(part[-1])][clocks.WHOLE][clocks.STORES : clocks.STORED + 1] = [start, end]
        elif kind == "q":
            marks[tile][clocks.WHOLE][clocks.CAME] = end
    return marks


def test_what_was_noted_is_what_is_played():
    """From a simulation to the marks of a GPU and back: spans, releases and buffers."""
    clock = timeline.play(BASE, clocks.TILES, took=timeline.Took(500, 900, 700, 30, 600))
    rows = list(timeline.measured(marks_of(clock), BASE))
    spans = {tuple(r.values()) for r in rows if "part" in r}
    seen = {s for s in clock.spans if s.part[0] == "c" and s.kind in ("scores", "values", "out")}
    assert seen <= spans
    assert [r for r in rows if "fetched" in r] == clock.fetches
    released = Counter(s["sent_to"] for s in clock.sends)
    assert released == Counter(r["sent_to"] for r in rows if "sent_to" in r)
    listing = rows[-1]["listing"]
    asked = {listing[r["lines"][0]].strip() for r in rows if "stays" in r}
    assert len(asked) >= 6
    assert all("_fill(" in x or "=" in x for x in asked)
    assert timeline.took(marks_of(clock), 2)[:2] == (500, 900)


def test_a_piece_taken_out_ends_in_trouble():
    clock = timeline.play(BASE, clocks.TILES)
    ends = {
        r["example"]: r["ends"] for r in timeline.examples(marks_of(clock), BASE) if "ends" in r
    }
    assert ends.pop("nothing") == ""
    for name, told in some(ends.items()):
        assert "Deadlock" in told or "overwritten" in told or "two copies" in told, name


# What the backward compiles to; the forward's machine code is read in its own file.


@pytest.mark.compiler
@pytest.mark.parametrize("D", VARIANTS)
def test_whoever_arrives_speaks_for_all_its_warps(D, monkeypatch, compiler):
    """A group of warps is taken as one here; this is what entitles us to."""
    monkeypatch.setitem(hopper_backward.__globals__, "_refusals", lambda *_: ())  # of a CPU
    x = torch.zeros(1, 2, 256, D, dtype=torch.bfloat16)
    for causal, into in ((False, None), (True, None), (True, [x.float()] * 3)):
        given_ = (x, x, x, x, torch.zeros(1, 2, 256), x)
        run = functools.partial(hopper_backward, causal=causal, into=into)
        found = compiler.resources(run, given_, target="sm_90")
        (found,) = (r for r in found if r.kernel == "_hopper_backward_kernel")
        assert found.error is None
        assert all(met for _, met in some(arrivals(found.ptx), 7))
