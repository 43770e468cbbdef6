"""What drawings work out for themselves agrees with the kernels and layouts that they show."""

import itertools
import math
from pathlib import Path

import pytest

from tests.floors import some

pytest.importorskip("plotly")

from snippets._lab.draw.pictures import Picture
from snippets._lab.results import store
from snippets._warps import gluon
from snippets.flash_attention import drawings as flash
from snippets.hopper_attention import drawings as hopper
from snippets.hopper_attention import kernel
from snippets.tiled_attention import drawings as tiled
from snippets.vectorized_attention import drawings as vectorized


@pytest.fixture(scope="module")
def results():
    """What the pictures below are drawn from, of all devices."""
    names = {
        "vectorized_attention": ("registers", "latency"),
        "tiled_attention": ("scene",),
        "flash_attention": ("kernels", "forward"),
    }
    return [r for r in store.scan() if r.result in names.get(r.post, ())]


def where(bases, index):
    """The coordinates that a linear layout gives an index, one basis a bit."""
    found = (0, 0)
    for bit, basis in enumerate(bases):
        if index >> bit & 1:
            found = tuple(a ^ b for a, b in zip(found, basis, strict=True))
    return found


def test_the_fragment_is_the_layout_that_the_kernel_names():
    layout = kernel.COLUMNS_LAYOUT.value
    flat = {  # [64, N / 8, 4, 2] → [64, N]
        name: [(row, 8 * i + 2 * j + k) for row, i, j, k in getattr(layout, f"{name}_bases")]
        for name in ("reg", "lane", "warp")
    }
    seen = set()
    for warp, lane, register in itertools.product(range(4), range(32), range(4)):
        parts_ = (
            where(flat["warp"], warp),
            where(flat["lane"], lane),
            where(flat["reg"], register),
        )
        row, column = (sum(x) for x in zip(*parts_, strict=True))
        assert hopper.holder(row, column) == (warp, lane)
        seen.add((row, column))
    assert len(seen) == 64 * 8, "four registers of all threads hold eight columns"
    rows = where(kernel.ROW_SUM_LAYOUT.value.lane_bases, 5)
    assert rows[0] == 1, "lane 5 is in row 1, as the drawing says"


@pytest.mark.parametrize("chunk", range(8))
def test_the_swizzle_keeps_every_chunk_and_leaves_no_conflict(chunk):
    for row in range(16):
        places = [hopper.chunk_at(row, c, True) for c in range(8)]
        assert sorted(places) == [*range(8)]
        assert hopper.chunk_at(row, hopper.chunk_at(row, chunk, True), True) == chunk
    assert hopper.conflicts(chunk, False) == 8
    assert hopper.conflicts(chunk, True) == 1


def test_the_drawn_registers_are_those_of_the_kernel():
    assert hopper.GIVEN == kernel.REGISTERS


def test_the_ring_follows_the_kernels_own_rule():
    variant = kernel.Variant(CONSUMERS=2, STAGES=hopper.STAGES)
    stage_of = gluon.Program(Path(kernel.__file__).read_text("utf-8"), 0, 1).names["_stage"]
    drawn = hopper.ring().svg
    for tile in some(range(2 * hopper.STAGES)):
        stage = stage_of(tile, variant)
        assert (stage.index, stage.phase) == (tile % hopper.STAGES, tile // hopper.STAGES & 1)
    assert drawn.count("<text") >= 3 * 2 * hopper.STAGES


@pytest.mark.parametrize(
    ("room", "name"),
    [
        (vectorized, "tile_in_registers"),
        (vectorized, "loads"),
        (tiled, "running"),
        (flash, "units"),
        (flash, "budget"),
    ],
)
def test_a_measured_picture_names_its_source_and_waits_without_one(room, name, results):
    draw = getattr(room, name)
    made = draw(results)
    assert isinstance(made, Picture)
    assert some(made.sources)
    assert draw([]) is None


def test_the_numbers_of_a_rescale_add_up(results):
    (source,) = tiled.running(results).sources
    table = tiled.running(results).table
    assert source.result == "scene"
    for line in some([line for line in table if line["what"] != "m"]):
        assert math.isclose(line["× α"] + line["+ this tile"], line["after"], abs_tol=1e-6)
