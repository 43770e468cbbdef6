"""The barriers of hopper_attention: its own lines, simulated in random orders, and wrong ones."""

import ast
import itertools
import json
import random
import re
import sys
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from snippets._lab.judge.mutants import Mutant, mutate
from snippets.hopper_attention import exercise, kernel
from snippets.hopper_attention.simulator import (
    diagram,
    gluon,
    lit,
    mistakes,
    on_cpu,
    parts,
    protocol,
    reachable,
    timed,
)
from snippets.hopper_attention.simulator.parts import Arrive, Copy, Finish, Product, Wait, Work
from tests.floors import some

VARIANT = parts.defined("Variant")
BASE = {"CONSUMERS": 2, "STAGES": 2, "OVERLAP": True, "PING_PONG": True}


def variant(**switches):
    return VARIANT(**BASE | switches)


variants = st.builds(
    VARIANT,
    CONSUMERS=st.integers(2, 3),
    STAGES=st.integers(1, 4),
    OVERLAP=st.booleans(),
    PING_PONG=st.booleans(),
    Q_IN_REGISTERS=st.booleans(),
    BLOCK_N=st.sampled_from((64, 128)),
)


@st.composite
def works(draw):
    """Lengths of up to three tiles of queries and five of keys, any corner, any schedule."""
    G, groups = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    M, N, causal = draw(st.integers(1, 400)), draw(st.integers(1, 600)), draw(st.booleans())
    offset = draw(st.sampled_from((0, N - M))) if causal else 0
    H = G * groups
    return Work(
        M=M,
        N=N,
        causal=causal,
        causal_offset=offset,
        heads=H * draw(st.integers(1, 2)),
        H=H,
        G=G,
        programs=draw(st.integers(1, 3)),
        **draw(st.sampled_from([{"step": 1}, {"step": 2}, {"by_length": True}])),
    )


@given(variant=variants, work=works(), seed=st.integers(0, 10**6))
@example(
    variant=variant(),
    work=Work(M=400, N=100, causal=True, causal_offset=-300, step=2),
    seed=0,
)
@settings(max_examples=60)
def test_every_order_of_events_ends_well(variant, work, seed):
    """No deadlock, nothing overwritten or read too early, each row from each of its keys once."""
    assert protocol.check(variant, work, seed=seed) > 0


@pytest.mark.parametrize("chosen", protocol.used_variants(), ids=protocol.say)
def test_the_variants_of_the_table_take_many_orders(chosen):
    for work in protocol.WORK:
        assert protocol.check(chosen, work, orders=10) > 1000


# The simulation sees the kernel that runs.


def test_the_table_read_without_torch_is_the_kernels():
    def plain(x):
        return (
            {k: plain(v) for k, v in x.items()}
            if isinstance(x, dict)
            else (tuple(x) if hasattr(x, "_asdict") else tuple(map(plain, x)))
        )

    assert VARIANT._fields == kernel.Variant._fields
    assert plain(parts.defined("VARIANTS")) == plain(kernel.VARIANTS)
    chosen = {v for v in protocol.used_variants()}
    assert len(chosen) >= 4
    assert {v.OVERLAP for v in chosen} == {v.PING_PONG for v in chosen} == {True, False}


def test_every_line_that_waits_or_signals_has_been_seen():
    """Each line of kernel.py that calls one of these runs in some variant of the simulation."""
    signals = re.compile(
        r"mbarrier\.|_?tma[._]|warpgroup_mma|fence_|_fill|_wait|_release|_issue|_pass_turn|_step"
    )
    wanted = {
        call.lineno
        for function in ast.parse(gluon.KERNEL.read_text("utf-8")).body
        if isinstance(function, ast.FunctionDef) and gluon._runs_on_gpu(function)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and signals.match(ast.unparse(call.func))
    }
    seen = set()

    def watch(frame, event, _):
        if frame.f_code.co_filename != gluon.KERNEL.name:
            return None
        seen.add(frame.f_lineno)
        return watch

    parts.trace.cache_clear()
    before = sys.gettrace()
    sys.settrace(watch)
    try:
        for chosen, work in itertools.product(protocol.used_variants(), protocol.WORK):
            parts.trace(chosen, work)
    finally:
        sys.settrace(before)
    assert len(wanted) > 25
    assert not wanted - seen


def test_what_the_parts_ask_for_by_hand():
    """One tile of queries, two of keys, the simplest variant: written out by hand."""
    trace = parts.trace(variant(OVERLAP=False, PING_PONG=False), Work(M=128, N=256))
    assert trace.barriers["k.empty[1]"] == 2
    assert trace.barriers["q.empty[1]"] == trace.barriers["v.full[0]"] == 1
    size = 128 * 128 * 2
    assert trace.parts["producer"][-6:] == [
        Wait("k.empty[1]", 1),
        parts.Expect("k.full[1]", size),
        Copy((0, 0, 0, 0), "k.full[1]", "k[1]", size),
        Wait("v.empty[1]", 1),
        parts.Expect("v.full[1]", size),
        Copy((0, 0, 0, 0), "v.full[1]", "v[1]", size),
    ]
    ops = trace.parts["consumer 1"]
    first = ops[2].number
    assert ops[:9] == [
        Wait("q.full[1]", 0),
        Wait("k.full[0]", 0),
        Product(first, "q[1]", "k[0]"),
        Finish(0),
        Arrive("k.empty[0]"),
        parts.Softmax(first, 128, False),
        Wait("v.full[0]", 0),
        Product(first + 1, first, "v[0]"),
        Finish(0),
    ]
    assert ops[-7:] == [
        Arrive("v.empty[1]"),
        Arrive("q.empty[1]"),
        parts.StoreWait(0),
        parts.Write("out[1]"),
        parts.Fence(),
        parts.Store((0, 64, 0), "out[1]"),
        parts.StoreWait(0),
    ]


def test_the_exercise_waits_for_what_the_kernel_waits_for():
    tiles, stages = 8, 3
    work = Work(M=128, N=128 * tiles)
    trace = parts.trace(variant(OVERLAP=False, PING_PONG=False, STAGES=stages), work)

    def waited(part, kind):
        found = [op for op in trace.parts[part] if isinstance(op, Wait)]
        return [(op.barrier, op.parity) for op in found if op.barrier.startswith(f"k.{kind}")]

    for tile in some(range(tiles), 8):
        buffer, full, empty = exercise.waits(tile, stages)
        assert waited("consumer 0", "full")[tile] == (f"k.full[{buffer}]", full)
        assert waited("producer", "empty")[tile] == (f"k.empty[{buffer}]", empty)


def test_a_name_of_gluon_that_is_not_known_is_an_error():
    source = gluon.KERNEL.read_text("utf-8").replace("fence_async_shared()", "gl.barrier()", 1)
    with pytest.raises(AttributeError, match="barrier"):
        parts.trace(variant(), Work(M=64, N=64), source=source)


def test_both_back_ends_run_under_one_stand_in():
    """What the kernel finds under Gluon's names has the same names, whoever is behind them."""
    source = gluon.KERNEL.read_text("utf-8")
    tracer, program = parts.Tracer(source, Work(1, 1), 0), on_cpu.Program(source, 0, 1)
    assert set(tracer.names) == set(program.names)
    for name in ("gl", "mbarrier", "tma"):
        assert set(vars(tracer.names[name])) == set(vars(program.names[name]))


def test_constants_are_found_by_who_uses_them():
    source = "import torch\nUSED = 1\nUNUSED = torch.half\nVARIANTS = {}\n"
    names = {"gluon": parts.SimpleNamespace(jit=lambda f: f)}
    function = "@gluon.jit\ndef _f():\n    return USED\n"
    exec(gluon.gpu_code(source + function), names)  # noqa: S102 - the text above
    assert {"USED", "VARIANTS", "_f"} <= set(names)
    assert "UNUSED" not in names


# It sees mistakes.


@pytest.mark.parametrize("mistake", mistakes.MISTAKES, ids=lambda m: m.name)
def test_each_mistake_is_seen_for_what_it_is(mistake):
    found = protocol.judge(mistakes.with_mistake(mistake, gluon.KERNEL.read_text("utf-8")))
    assert found["message"], f"{mistake.name} survived"
    assert re.search(SAID[mistake.name], found["message"])


STUCK = "nobody can go on: .* waits for "
SAID = {
    "no wait for an empty buffer": "filled by two copies|overwritten|phases ahead|before its copy",
    "wait for an empty buffer in the first phase": STUCK + r".*producer waits for q.empty\[0\]",
    "full before the bytes are there": "before its copy has arrived",
    "a phase for each tile of keys": STUCK,
    "a phase for each tile of queries": STUCK + r".*producer waits for q.empty",
    "tiles counted anew for each tile of queries": "phases ahead|" + STUCK,
    "one arrival too few": "before its copy has arrived|overwritten|phases ahead",
    "one arrival too many": STUCK + r".*producer waits for v.empty\[0\]",
    "keys released under their product": r"k\[\d\] is overwritten while consumer \d multiplies",
    "values released under their product": r"v\[\d\] is overwritten while consumer \d multiplies",
    "values of the last tile not released": STUCK + r".*producer waits for v.empty",
    "scores read too early": "scores that are still being computed",
    "weights times the values of the next tile": "weights of keys .* with values of",
    "queries released before the loop": r"queries of|q\[\d\] is overwritten|q\[\d\] before",
    "queries released before they are used": r"q\[\d\] is overwritten before consumer \d has read",
    "queries without keys never released": STUCK + ".*q.empty",
    "turn not passed on": STUCK + ".*order_barriers",
    "nobody's turn at first": STUCK
    + r"order_barriers\[0\], consumer 1 waits for order_barriers\[1\]",
    "turn not waited for": "not its turn|twice in a row|turn that is not its own",
    "rows written over rows on their way out": r"overwrites out\[\d\] while it is being stored",
    "end before the last rows are out": "ends while its rows are being stored",
    "no fence before the store": "before TMA can see it",
    "programs one item apart": "stored by no program",
}


def test_the_expected_words_are_of_these_mistakes():
    assert set(SAID) == {m.name for m in mistakes.MISTAKES}
    assert len(SAID) >= 8


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tile % 2 == 0, prob.tiles - 1", "tile % 2 == 0, prob.tiles", "stored|tiles of keys"),
        ("row = (n - 1 - i) * V.BLOCK_N", "row = i * V.BLOCK_N", "instead of those from"),
        (
            "_fill(k_desc, [b, h // prob.G, row, 0]",
            "_fill(k_desc, [b, h, row, 0]",
            "instead of those from",
        ),
        ("return n, n - seen_by_all", "return n, n - 1 - seen_by_all", "not masked"),
        (
            "begin = 1 if with_mask else masked\n            end = masked if with_mask else n",
            "begin = 1 if with_mask else masked\n            end = masked if with_mask else n - 1",
            "nobody can go on|with values of",
        ),
    ],
)
def test_a_wrong_schedule_is_seen_too(old, new, said):
    source = mutate(gluon.KERNEL.read_text("utf-8"), Mutant("schedule", old, new, ""))
    assert re.search(said, protocol.judge(source)["message"])


def test_the_table_of_mistakes_begins_with_the_kernel_that_passes():
    class Lab:
        def each(self, mutant):
            for name in mutant[:3]:
                yield {"mutant": name}

    rows = list(mistakes.protocol_mutants(Lab(), orders=2))
    assert [bool(r["message"]) for r in rows] == [False, True, True]
    assert rows[0]["events"] > 10_000
    assert all(r["diagnosis"].endswith(".") for r in some(rows[1:]))


def test_the_same_seed_gives_the_same_order():
    trace = parts.trace(variant(), Work(M=128, N=512))

    def order(seed):
        simulation, seen = protocol.Simulation(trace), []
        happen = simulation.happen
        simulation.happen = lambda event: (seen.append(event), happen(event))
        simulation.run(random.Random(seed))
        return seen

    assert order("a") == order("a") != order("b")


# Barriers behave as the hardware's.


def test_a_phase_ends_with_the_last_arrival_and_the_last_byte():
    barrier = protocol.Barrier(2)
    barrier.change(1, 64)
    barrier.change(1, 0)
    assert barrier.over == 0
    barrier.change(0, -64)
    assert (barrier.over, barrier.pending) == (1, 2)


# Pictures.


def test_the_pictures_are_drawn_from_the_kernel():
    spans, signals = timed.play(variant(), 3)
    products = [s for s in spans if s.kind in ("scores", "values")]
    assert len(products) == 2 * 2 * 3
    in_order = sorted(products, key=lambda s: s.start)
    assert all(a.end <= b.start for a, b in itertools.pairwise(in_order))
    kinds = {g.barrier.split("[")[0] for g in signals}
    assert kinds == {"q.full", "k.full", "v.full", "k.empty", "v.empty", "order_barriers"}
    assert all(g.sent <= g.received for g in some(signals))


def under_softmax(**switches):
    """Values products that start while their own consumer's softmax of the next tile runs."""
    spans, _ = timed.play(variant(**switches), 6)
    softmax = [s for s in spans if s.kind == "softmax"]
    return sum(
        any(s.part == v.part and s.start < v.end and v.start < s.end for s in softmax)
        for v in spans
        if v.kind == "values"
    )


def test_a_timeline_shows_the_softmax_under_the_product():
    assert under_softmax(OVERLAP=False, PING_PONG=False) == 0
    assert under_softmax(PING_PONG=False) == 2 * 5  # the last of each has no softmax over it


@pytest.mark.parametrize(
    "picture",
    [
        diagram.protocol_svg(timed.rows(variant(), 3)),
        diagram.timeline_svg(timed.rows(variant(CONSUMERS=3, OVERLAP=False), D=64)),
    ],
    ids=["protocol", "timeline"],
)
def test_a_picture_is_valid_and_says_what_it_is(picture):
    box = ET.fromstring(picture)
    assert "tabindex" not in box.attrib  # it fits a phone: nothing scrolls
    assert len(box[0].attrib["aria-label"]) > 40
    assert len(list(box[0])) > 40
    assert "\n" not in picture
    wide, high = map(float, box[0].attrib["viewBox"].split()[2:])
    for rect in box.iter("rect"):
        x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
        assert 0 <= x < x + w <= wide
        assert 0 <= y < y + h <= high


def test_rows_hold_all_that_was_played():
    """A picture is drawn from rows that went through a file."""
    chosen = variant(PING_PONG=False)
    rows = json.loads(json.dumps(timed.rows(chosen, 16, 64)))
    assert timed.from_rows(rows) == timed.play(chosen, 16, 64)
    assert diagram.timeline_svg(rows) == diagram.timeline_svg(timed.rows(chosen, 16, 64))
    assert diagram.timeline_svg(rows) != diagram.timeline_svg(timed.rows(chosen, 16, 128))


# The channel that a page lets its readers play: every order of events.


@pytest.mark.parametrize("mistake", reachable.REMOVED, ids=lambda m: m.name)
def test_what_can_be_taken_out_goes_wrong_in_steps_of_any_size(mistake):
    source = mistakes.with_mistake(mistake, gluon.KERNEL.read_text("utf-8"))
    walks = [reachable.walk(reachable.channel_of_keys(source, 3), single) for single in (0, 1)]
    ways = [walked.trouble() for walked in walks]
    assert None not in ways
    faults = [
        {re.sub(r"\d", "", to) for ways in walked.ways for _, to in ways if isinstance(to, str)}
        for walked in walks
    ]
    assert faults[0] <= faults[1], "a step that is longer shows nothing that cannot be"
    assert bool(faults[0]) == bool(faults[1])
    if len(walks[0].states) > 1:
        whole = protocol.judge(source, orders=2)  # of all channels, in random orders
        assert whole["message"]


@pytest.mark.parametrize("single", [False, True])
def test_every_state_of_the_channel_leads_to_the_end(single):
    walked = reachable.walk(reachable.channel_of_keys(gluon.KERNEL.read_text("utf-8"), 4), single)
    assert walked.trouble() is None
    ends = [s for s, ways in zip(walked.states, walked.ways, strict=True) if not ways]
    assert [end.stuck() for end in ends] == [[]]
    assert {to for ways in walked.ways for _, to in ways} == {*range(1, len(walked.states))}
    assert len(walked.states) > 100


def test_the_scene_is_the_timeline_with_the_lines_where_parts_stand():
    rows = list(lit.rows(variant(), tiles=4))
    assert [r for r in rows if "part" in r or "barrier" in r] == timed.rows(variant(), tiles=4)
    whole = rows[-1]
    source = "".join(gluon.KERNEL.read_text("utf-8").split())
    code = [line for line in whole["listing"] if not line.startswith("def ")]
    assert all("".join(line.split()) in source for line in some(code))
    stays = [r for r in rows if "stays" in r]
    for softmax in some([r for r in rows if r.get("kind") == "softmax" and r["tile"] > 0]):
        (stay,) = [
            s
            for s in stays
            if (s["stays"], s["works_from"], s["until"])
            == (softmax["part"], softmax["start"], softmax["end"])
        ]
        assert "_online_softmax(" in whole["listing"][stay["lines"][0]]
    waits = [s for s in stays if s["since"] < s["works_from"]]
    asked = [whole["listing"][s["lines"][0]] for s in some(waits)]
    assert all("_fill(" in line or "wait" in line for line in asked)
    for one, two in some(itertools.combinations([s for s in stays if s["stays"] == "producer"], 2)):
        assert one["until"] <= two["since"], "a part stands at one line at a time"
    # A buffer is released once by each consumer for every tile that went through it.
    fetched = [r["fetched"] for r in rows if "fetched" in r]
    sent = [r["sent_to"] for r in rows if "sent_to" in r]
    for buffer in some({name for name in fetched if name[0] in "kv"}):
        released = sent.count(buffer.replace("[", ".empty["))
        assert released == 2 * fetched.count(buffer)
