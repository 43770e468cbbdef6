"""The walk, the copy and the tiles against PyTorch; what they compile to; and what they refuse."""

import functools
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snippets._lab.judge.oracle import NumericalMismatch
from snippets.latency_hiding import exercise, kernel
from snippets.latency_hiding.checks import assert_held, assert_walked, assert_worked
from snippets.latency_hiding.kernel import (
    LINE,
    copy_in_flight,
    cycle,
    hold_and_wait,
    latency_hiding,
    work_on_tiles,
)
from tests.refusals import assert_refused, each_refusal

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"


def chain(lines, walkers):
    """Links in a cycle, and walkers on lines that lie apart."""
    links = cycle(lines * 4 * LINE, device=DEVICE)
    return links, (torch.arange(walkers, device=DEVICE) * 7 % lines * LINE).int()


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)


@pytest.mark.numerical
@pytest.mark.parametrize("walk", [latency_hiding, exercise.latency_hiding])
@pytest.mark.parametrize("steps", [0, 1, 2, 65])
@pytest.mark.parametrize(("walkers", "block"), [(1, 1), (2, 1), (63, 16), (65, 32), (129, 64)])
def test_walkers_end_where_their_links_lead(walkers, block, steps, walk):
    links, starts = chain(127, walkers)
    assert_walked(walk(links, starts, steps=steps, block=block), links, starts, steps)


@pytest.mark.numerical
@given(
    lines=st.integers(1, 300),
    walkers=st.integers(1, 40),
    steps=st.integers(0, 30),
    block=st.sampled_from([1, 2, 8, 32]),
    num_warps=st.sampled_from([1, 4]),
)
def test_any_walk(lines, walkers, steps, block, num_warps):
    links, starts = chain(lines, walkers)
    out = latency_hiding(links, starts, steps=steps, block=block, num_warps=num_warps)
    assert_walked(out, links, starts, steps)


@pytest.mark.numerical
@pytest.mark.parametrize("lines", [1, 2, 65])
def test_a_cycle_visits_every_line_before_it_returns(lines):
    links = cycle(lines * 4 * LINE, device=DEVICE)
    at, seen = 0, []
    for _ in range(lines):
        seen.append(at)
        at = int(links[at])
    if at or sorted(seen) != list(range(0, lines * LINE, LINE)):
        raise NumericalMismatch(f"after {lines} steps at {at}, {len(set(seen))} lines seen")


@pytest.mark.numerical
@pytest.mark.parametrize("L", [1, 127, 129, 5_000])
@pytest.mark.parametrize(("programs", "loads", "num_warps"), [(1, 1, 1), (3, 2, 4), (7, 4, 1)])
def test_copies_everything(L, programs, loads, num_warps):
    x = normal(L)
    out = copy_in_flight(x, programs=programs, loads=loads, num_warps=num_warps)
    if not torch.equal(out, x):
        raise NumericalMismatch(f"{int((out != x).sum())} of {L} elements differ")


@pytest.mark.numerical
@pytest.mark.parametrize("programs", [None, 1, 2, 3, 9])
@pytest.mark.parametrize("steps", [0, 1, 5, 40])
def test_each_tile_gets_its_work(steps, programs):
    x = normal(5, 64)
    assert_worked(work_on_tiles(x, steps=steps, programs=programs, num_warps=1), x, steps)


@pytest.mark.numerical
@pytest.mark.parametrize("work", [0, 1, 64, 128])
def test_holds_and_waits_or_works(work):
    links, starts = chain(65, 5)
    x = normal(128)
    ends, sums = hold_and_wait(links, starts, x, steps=9, work=work)
    assert_held(ends, sums, links, starts, x, 9, work)


# Each refusal: the call, the error, and what it says.
LINKS, STARTS = cycle(4 * 4 * LINE, device=DEVICE), torch.zeros(2, dtype=torch.int32, device=DEVICE)
TILES = torch.ones(3, 64, device=DEVICE)
REFUSED = {  # a call; or what is given to latency_hiding instead of something right
    TypeError: {
        "links is <class 'list'>": {"links": [0]},
        "links is torch.int64; allowed: torch.int32": {"links": LINKS.long()},
        "steps is 1.0; allowed: an int": {"steps": 1.0},
        "x is torch.float16": lambda: work_on_tiles(TILES.half(), steps=1),
    },
    ValueError: {
        "links points outside links; allowed: 0 to 127": {"links": LINKS + len(LINKS)},
        "starts points outside links": {"starts": STARTS - 1},
        "starts has shape (0,); allowed: rank 1, no 0": {"starts": STARTS[:0]},
        "links has strides (2,); allowed: links.contiguous()": {"links": LINKS[::2]},
        "links is on meta; allowed: a GPU, or a CPU": {"links": LINKS.to("meta")},
        "steps is -1; allowed: 0 to 2147483647": {"steps": -1},
        "block is 3; allowed: 1 to 1048576, powers of two": {"block": 3},
        "num_warps is 64; allowed: 1 to 32": {"num_warps": 64},
        "x has shape (3, 64); allowed: rank 1": lambda: copy_in_flight(TILES, programs=1),
        "programs is 0; allowed: 1 to 2147483647": lambda: copy_in_flight(TILES[0], programs=0),
        "loads is 4096; allowed: at most 2048": (
            lambda: copy_in_flight(TILES[0], programs=1, loads=4_096, num_warps=4)
        ),
        "x requires grad": lambda: work_on_tiles(TILES.clone().requires_grad_(), steps=1),
        "the width of x is 63; allowed: 1 to 1048576, powers": (
            lambda: work_on_tiles(TILES[:, :63].contiguous(), steps=1)
        ),
        "work is 128; allowed: at most 64": (
            lambda: hold_and_wait(LINKS, STARTS, TILES[0], steps=1, work=128)
        ),
        "allowed: a positive multiple of 128": lambda: cycle(64, device=DEVICE),
    },
}


@each_refusal(REFUSED)
def test_refusals(error, change, monkeypatch):
    for name in ("_latency_hiding_kernel", "_copy_kernel", "_tiles_kernel", "_held_kernel"):
        monkeypatch.setattr(kernel, name, None)  # a launch would be a TypeError of another text
    if isinstance(change, dict):
        usual = {"links": LINKS, "starts": STARTS, "steps": 1}
        change = functools.partial(latency_hiding, **usual | change)
    assert_refused(error, change)


@pytest.mark.skipif(ON_GPU, reason="needs a machine without a GPU")
def test_cpu_without_the_interpreter_says_what_to_do(monkeypatch):
    monkeypatch.setattr(kernel, "INTERPRETED", False)
    with pytest.raises(ValueError, match="TRITON_INTERPRET=1"):
        latency_hiding(LINKS, STARTS, steps=1)


# What the experiments rest on, seen in the compiled code.


@pytest.mark.compiler
@pytest.mark.parametrize("loads", [1, 8])
def test_a_copy_asks_for_all_loads_before_it_stores_any(compiled, loads):
    """So the bytes in flight are those that bench.py says."""
    (found,) = compiled(copy_in_flight, torch.zeros(8_192, device=DEVICE), programs=2, loads=loads)
    asked = re.findall(r"\b(LDG|STG|BRA|CP\.ASYNC|LDGSTS)[.\w]*", found.sass())
    assert [x for x in asked if x != "BRA"] == ["LDG"] * loads + ["STG"] * loads
    assert found.sass().count("LDG.E.128") == loads, "16 bytes a load"


@pytest.mark.compiler
def test_a_step_waits_for_the_one_before(compiled):
    """One load in the loop, and its address is what it loaded last."""
    (found,) = compiled(latency_hiding, *chain(4, 1), steps=9)
    loop = re.search(r"(\$L__BB0_2):(.*?)bra\s+\$L__BB0_2", found.ptx, re.DOTALL)[2]
    (loaded,) = re.findall(r"ld\.global\.b32 \{ (%r\d+) \}", loop)
    assert re.search(rf"mad\.wide\.s32\s+%rd\d+, {loaded}, 4", loop)


@pytest.mark.compiler
def test_what_is_held_takes_registers(compiled):
    """The registers of a thread grow by about what it holds, waiting or computing; none spill."""
    links, starts = chain(4, 1)
    for work in (0, 1_024):
        found = [
            compiled(hold_and_wait, links, starts, kept, steps=9, work=work)[0]
            for kept in (torch.zeros(128 * held, device=DEVICE) for held in (16, 64, 128))
        ]
        few, some, many = (x.registers for x in found)
        assert 40 <= some - few <= 56
        assert 56 <= many - some <= 80
        assert not any(x.spill_store_bytes for x in found)


@pytest.mark.compiler
def test_a_multiprocessor_holds_one_program_of_the_waves(compiled):
    from snippets._lab.probe.gpus import programs_at_once
    from snippets.latency_hiding.bench import TILE

    (found,) = compiled(work_on_tiles, torch.zeros(1, TILE, device=DEVICE), steps=9)
    assert programs_at_once("sm_90", found.registers, 32, found.shared_bytes) == (1, "registers")
