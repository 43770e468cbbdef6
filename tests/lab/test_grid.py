"""The coverage grid: which cells there are, what a cell says, and that none is skipped everywhere.

Without a GPU a handful of cells run; the grid itself is `make bench-cpu`. On a GPU all of them run.
"""

from types import SimpleNamespace

import pytest
import torch

from snippets._lab import rooms
from snippets._lab.judge import grid
from snippets._lab.judge.grid import LAYOUTS, MASKS, SHAPES, cases, cell, launcher, pairwise
from snippets._lab.judge.oracle import eager_attention
from snippets._lab.results import store
from snippets._site import unmeasured
from snippets.coverage import bench, figures
from tests import made_up
from tests.floors import some

ON_GPU = torch.cuda.is_available()
DEVICE, PLACE = ("cuda", "gpu") if ON_GPU else ("cpu", "interpreter")
ROOMS = grid.attention_rooms(PLACE)
PLAIN = {
    "shape": SHAPES[1],
    "dtype": "float32",
    "mask": "full",
    "layout": LAYOUTS[0],
    "configuration": None,
}


@pytest.mark.parametrize("room", ROOMS)
def test_cells_of_every_launcher(room):
    every = cases(room, PLACE)
    if not ON_GPU:  # one for each mask and layout, of the smaller shapes
        small = [c for c in every if c["shape"].M * c["shape"].N < 20 or c["configuration"]]
        every = small[:6] + [c for c in small if c["configuration"]][:1]
    wrong = [r for c in every if (r := cell(launcher(room), c, DEVICE))["outcome"] == "failed"]
    assert not wrong
    assert every


def test_all_attention_rooms_are_in_the_grid():
    assert {"attention_weights", "basic_attention", "composed_attention"} <= set(ROOMS)
    assert "coalescing" not in ROOMS
    assert "multi_head_attention" not in ROOMS


AXES = {"a": range(4), "b": "xyz", "c": (True, False), "d": "pqrst"}


def test_pairwise_has_every_pair_and_few_cases():
    found = list(pairwise(AXES))
    assert found == list(pairwise(AXES)), "the same cells each time"
    assert len(found) < 30, "of 120"
    for a, b in (("a", "b"), ("a", "d"), ("b", "c"), ("c", "d")):
        assert len({(c[a], c[b]) for c in found}) == len(AXES[a]) * len(AXES[b])


def test_axes_that_are_apart_need_not_meet():
    found = list(pairwise(AXES, [("a", "d")]))
    assert len(found) < 20
    assert {c["d"] for c in found} == set("pqrst")
    assert len({(c["b"], c["d"]) for c in found}) == 15


@pytest.mark.parametrize("room", ROOMS)
def test_each_value_of_each_axis_is_there(room):
    found = cases(room, PLACE)
    own = [c for c in found if c["configuration"] is None]
    assert {c["shape"] for c in own} >= set(grid.shapes(room, SHAPES))
    assert {c["layout"] for c in own} == set(LAYOUTS)
    assert {c["mask"] for c in own} == set(grid.masks(room))
    here = grid.DTYPES if ON_GPU else ("float16", "float32")
    assert {c["dtype"] for c in own} == set(grid.dtypes(room)) & set(here)
    forced = [c["configuration"].name for c in found if c["configuration"]]
    assert forced == [x.name for x in grid.configurations(room)], "each of them, once"
    assert len(found) < 120


def zeros(q, k, v):
    return torch.zeros_like(q)


def nothing(q, k, v):
    return torch.full_like(q, float("nan"))


def mean(q, k, v):
    return v.mean(-2, keepdim=True).expand_as(q)


@pytest.mark.parametrize("wrong", [zeros, nothing, mean])
def test_a_wrong_launcher_fails_its_cell(wrong):
    found = cell(wrong, PLAIN, "cpu")
    assert found["outcome"] == "failed"
    assert "from float64, allowed" in found["reason"]


def top_left(q, k, v, *, causal=False, align="bottom_right"):
    mask = torch.ones(q.shape[-2], k.shape[-2]).tril().bool() if causal else None
    return eager_attention(q, k, v, mask=mask)


def test_a_wrong_corner_fails_in_its_mask_only():
    found = {m: cell(top_left, {**PLAIN, "mask": m}, "cpu")["outcome"] for m in MASKS}
    assert found == {"full": "passed", "causal": "failed", "causal, top-left": "passed"}


def crashing(q, k, v):
    raise RuntimeError("no\nmore")


def refusing(q, k, v):
    raise ValueError("q is blue; red is allowed")


def test_a_refusal_is_said_and_a_crash_is_a_failure():
    refused, failed = cell(refusing, PLAIN, "cpu"), cell(crashing, PLAIN, "cpu")
    assert (refused["outcome"], refused["reason"]) == ("refused", "q is blue; red is allowed")
    assert (failed["outcome"], failed["reason"]) == ("failed", "RuntimeError: no")


def test_the_page_refuses_to_be_measured_where_a_cell_cannot_fail(monkeypatch):
    bench.check("cpu")
    monkeypatch.setattr(bench, "cell", lambda *_: {"outcome": "passed"})
    with pytest.raises(RuntimeError, match="a cell that must have failed has passed"):
        bench.check("cpu")


# A room that comes later, with a table of configurations.

KERNEL = """
from collections import namedtuple

Tile = namedtuple("Tile", "BLOCK_M BLOCK_N")
TILES = {
    "sm_80": {64: (Tile(64, 32), Tile(32, 32)), 128: (Tile(64, 32), Tile(16, 16))},
    "float32": {64: (Tile(8, 8), Tile(8, 8))},
}
CONFIGURATIONS = {"_tiles": TILES}
seen = []

def later_attention(q, k, v, *, causal=False):
    tile = _tiles(q)
    seen.append(tile)
    if tile == Tile(16, 16):
        raise OutOfResources("shared memory")
    from snippets._lab.judge.oracle import causal_mask, eager_attention
    mask = causal_mask(q.shape[-2], k.shape[-2]) if causal else None
    if k.shape[1] != q.shape[1]:
        raise ValueError("k has other heads than q")
    return eager_attention(q, k, v, mask=mask)

class OutOfResources(Exception):
    pass

def _tiles(q):
    return None
"""


@pytest.fixture
def later(tmp_path, monkeypatch):
    with made_up.room(tmp_path, monkeypatch, "later_attention", kernel=KERNEL):
        yield rooms.load("later_attention", "kernel")


def test_a_room_joins_without_code(later):
    assert grid.attention_rooms() == ["later_attention"]
    found = list(grid.rows("interpreter", lambda cell: ({"cell": name} for name in cell)))
    assert {r["launcher"] for r in found} == {"later_attention"}
    assert {r["mask"] for r in found} == {"full", "causal"}, "what its signature offers"
    assert {r["layout"] for r in found if r["outcome"] == "refused"} == {"grouped heads"}
    assert not [r for r in found if r["outcome"] == "failed"]
    (unfit,) = [r for r in found if r["outcome"] == "does not fit"]
    assert unfit["configuration"] == "sm_80, D ≤ 128: BLOCK_M 16, BLOCK_N 16"


def test_its_configurations_are_read_from_its_table_and_forced(later):
    found = grid.configurations("later_attention")
    assert [(c.value, c.dtypes, c.widest) for c in found] == [
        ((64, 32), ("float16", "bfloat16"), 64),
        ((32, 32), ("float16", "bfloat16"), 64),
        ((64, 32), ("float16", "bfloat16"), 128),
        ((16, 16), ("float16", "bfloat16"), 128),
        ((8, 8), ("float32",), 64),
    ]
    forced = [c for c in cases("later_attention", "interpreter") if c["configuration"]]
    later.seen.clear()
    outcomes = [cell(launcher("later_attention"), c, "cpu")["outcome"] for c in forced]
    assert later.seen == [c.value for c in found], "the launcher was made to take each"
    assert outcomes.count("passed") == 4
    assert all(c["configuration"].widest >= c["shape"].D for c in some(forced))
    assert [c["dtype"] for c in forced][-1] == "float32"


# What is stored, and the page.


def stored():
    return [r for r in store.scan() if (r.post, r.result) == ("coverage", "grid")]


def test_no_stored_cell_fails_and_no_launcher_is_missing():
    found = stored()
    assert found, "never measured"
    for result in found:
        assert not [row for row in some(result.rows) if row["outcome"] == "failed"]
        passed = [row for row in result.rows if row["outcome"] == "passed"]
        assert all(row["error_largest"] <= row["allowed"] for row in some(passed))
    measured = {row["launcher"] for result in found for row in result.rows}
    new = {room for room in ROOMS if unmeasured.nothing_measured(rooms.DATA, room)}
    missing = sorted(set(ROOMS) - new - measured)
    assert not missing, f"make bench-cpu POST=coverage: the grid lacks {', '.join(missing)}"


def result_of(rows):
    return SimpleNamespace(place="interpreter", label="Some GPU", rows=rows)


@pytest.mark.parametrize("axis", ["dtype", "mask", "configuration"])
def test_a_value_skipped_everywhere_stops_the_page(axis):
    rows = [dict(r) for r in stored()[0].rows if r["launcher"] == "composed_attention"]
    assert all(figures.grid([result_of(rows)]).claims.values())
    value = rows[-1][axis]
    for row in rows:
        if row[axis] == value:
            row["outcome"] = "does not fit"
    if all(row["outcome"] == "does not fit" for row in rows):  # it has one mask only
        value = rows[0]["dtype"]
    with pytest.raises(store.DataError, match="skipped everywhere"):
        figures.grid([result_of(rows)])


def test_a_layout_may_be_refused_but_not_be_missing():
    rows = [dict(r) for r in stored()[0].rows if r["launcher"] == "basic_attention"]
    refused = {r["layout"] for r in rows if r["outcome"] == "refused"}
    assert refused == {"grouped heads"}
    for row in rows:
        if row["layout"] == "grouped heads":
            row["outcome"] = "does not fit"
    with pytest.raises(store.DataError, match="'grouped heads' is skipped everywhere"):
        figures.grid([result_of(rows)])
