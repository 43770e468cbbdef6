"""The figures of latency_hiding, drawn from a made-up GPU that keeps to a simple model."""

import math
import re

import pytest

from snippets._lab.draw.fragment import fragment
from snippets._lab.results.store import DataError
from snippets._site import unmeasured
from snippets.latency_hiding import figures
from snippets.latency_hiding.bench import SETS, STEPS
from tests.made_up import CEILINGS, result, timed

MANY, L1, L2 = 132, 228 << 10, 60 << 20
DEVICE = {
    "name": "Some GPU",
    "capability": "9.0",
    "power_limit_w": 700.0,
    "multiprocessors": MANY,
    "l2_bytes": L2,
    "sm_clock_mhz": [2000.0, 2000.0, 2000.0],
}
RATE = 2e12  # bytes a second that a copy reads
NS = {"L1": 16.0, "L2": 130.0, "HBM": 400.0}


def step(set_bytes):
    """Nanoseconds of a step."""
    return NS["L1" if set_bytes <= L1 else "L2" if set_bytes <= L2 else "HBM"]


def made(name, rows):
    peak = {"per_s_p20": 1.99 * RATE, "per_s_p50": 2 * RATE, "per_s_p80": 2.01 * RATE}
    ceilings = CEILINGS | {"copy": peak, "read": peak, "write": peak}
    return result("latency_hiding", name, rows, device=DEVICE, ceilings=ceilings)


def walks(set_bytes, **fields):
    for steps in (100, 100 + STEPS):
        ms = (5_000 + steps * step(set_bytes)) / 1e6
        about = {"implementation": "latency_hiding", "steps": steps, "set_bytes": set_bytes}
        yield timed(ms, **about, **fields)


def latency():
    return made("latency", [r for n in SETS for r in walks(n, shared_bytes=L1)])


def littles_law():
    rows = []
    for num_warps in (1, 4):
        for loads in (1, 2, 4, 8):
            for per_sm in (0, 1, 2, 4, 8, 16):
                programs = per_sm * MANY or 1
                in_flight = programs * num_warps * loads * 512
                rate = min(0.95 * RATE, in_flight / NS["HBM"] * 1e9)
                moved = 2 * in_flight * 256
                about = {"kind": "copy", "programs": programs, "bytes_in_flight": in_flight}
                about |= {"num_warps": num_warps, "loads": loads, "programs_sm": per_sm}
                rows.append(timed(moved / 2 / rate * 1e3, bytes_compulsory=moved, **about))
    return made("littles_law", [*rows, *walks(1 << 29, kind="latency")])


def waves():
    rows = []
    for tiles in (33, 66, 99, 131, 132, 133, 263, 264, 265, 396, 528):
        for name, grain in (("a program a tile", 1), ("persistent", 1), ("half tiles", 2)):
            ms = 0.03 * math.ceil(tiles * grain / MANY) / grain
            rows.append(timed(ms, implementation=name, tiles=tiles, multiprocessors=MANY))
    return made("waves", rows)


MADE = {f.__name__: f for f in (latency, littles_law, waves)}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("latency", ["16 ns (32 cycles)", "130 ns (260 cycles)", "400 ns (800 cycles)"]),
        ("littles_law", ["1.08 MB", "569 ns", "1.42×"]),
        ("waves", ["133", "2.0×"]),
    ],
)
def test_the_titles_tell_what_the_model_does(name, said):
    finding = getattr(figures, name)([MADE[name]()]).finding
    assert [number for number in said if number not in finding] == []


def test_a_card_whose_levels_were_not_measured_is_refused():
    short = made("latency", [r for n in SETS[:4] for r in walks(n, shared_bytes=L1)])
    with pytest.raises(DataError, match="no working set between"):
        figures.latency([short])


def hierarchy():
    sizes = {"kind": "sizes", "multiprocessors": MANY, "registers_bytes": 256 << 10}
    sizes |= {"shared_bytes": L1, "l2_bytes": L2, "memory_bytes": 141 * 10**9}
    walked = [
        timed(0.3, kind="walk", set_bytes=n, bytes_loaded=10**10)
        for n in (65_536, 1 << 20, 1 << 29)
    ]
    return result("attention_memory", "hierarchy", [sizes, *walked], device=DEVICE)


def test_the_gpu_is_drawn_with_latencies_and_without():
    """Other posts include it; on a card whose latencies nobody measured it says the rest."""
    with_, without = (
        fragment("latency_hiding", "gpu", figures.gpu, [hierarchy(), *more])["gpu.md"]
        for more in ([latency()], [])
    )
    for text in ("132 streaming multiprocessors", "256 KiB", "60 MiB", "16 per cycle"):
        assert text in with_
        assert text in without
    assert "400 ns" in with_
    assert " ns" not in without
    assert re.search(r'aria-label="The Some GPU: 132 streaming', with_), "a text alternative"


def test_a_page_says_that_a_drawing_waits(tmp_path):
    include = '--8<-- "docs/figures/latency_hiding/gpu.md"'
    shown = unmeasured.shown(include, tmp_path)
    assert unmeasured.BADGE in shown
    assert "`make bench POST=latency_hiding`" in shown
    for drawn in ("gpu.md:part", "no_such_drawing.md"):
        wrong = include.replace("gpu.md", drawn)
        assert unmeasured.shown(wrong, tmp_path) == wrong, "the build says that it is not there"
    path = tmp_path / "docs/figures/latency_hiding/gpu.md"
    path.parent.mkdir(parents=True)
    path.write_text("drawn")
    assert unmeasured.shown(include, tmp_path) == include
