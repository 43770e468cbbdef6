"""What the scoreboard chooses to measure, and that it says what slowed a GPU."""

import collections
import itertools
from dataclasses import replace
from types import SimpleNamespace

from snippets._lab.measure import regimes as measured
from snippets._lab.results import staleness, store
from snippets.scoreboard import bench, regime_rows
from snippets.scoreboard import figures as page
from tests.floors import some


def test_the_names_of_the_regimes_are_those_that_are_measured():
    assert regime_rows.REGIMES == measured.REGIMES


def test_what_slowed_the_gpu_is_marked():
    quiet = store.read(store.path_of("nvidia_h200", "scoreboard", "regimes"))
    hot = [
        row | ({"slowdowns": {"heat": 0.25}} if row.get("regime") == measured.SUSTAINED else {})
        for row in quiet.rows
    ]
    told = [page.regimes([result], result.rows) for result in (quiet, replace(quiet, rows=hot))]
    (claim,) = [words for words in told[0].claims if "neither heat" in words]
    assert [figure.claims[claim] for figure in told] == [True, False]
    marked = [
        {row["regime"] for row in some(figure.table) if "slowed by heat" in (row["remark"] or "")}
        for figure in told
    ]
    assert marked == [set(), {measured.SUSTAINED}]


def test_nobody_chose_the_drawn_shapes_and_none_was_tuned_on():
    shapes = list(bench.drawn())
    assert shapes == list(bench.drawn()), "drawn once for good"
    assert len(shapes) == len({s["N"] for s in shapes}) == bench.DRAWN
    kinds = collections.Counter((s["D"], s["causal"]) for s in shapes)
    assert kinds == dict.fromkeys(itertools.product((64, 128), (False, True)), bench.DRAWN // 4)
    assert len({s["heads"] // s["heads_kv"] for s in shapes}) > 2
    for s in shapes:
        assert s["heads_kv"] % 2
        assert not s["heads"] % s["heads_kv"]
        assert s["N"] % 64
        assert s["N"] not in bench.LENGTHS


def test_what_takes_minutes_to_measure_depends_on_the_two_fastest_only():
    for name in ("regimes", "grids"):
        files = {key.partition(":")[0] for key in staleness.code_of("scoreboard", name)}
        kernels = {file for file in files if file.endswith("kernel.py")}
        assert kernels == {f"{room}/kernel.py" for room in bench.BEST}


def test_elsewhere_than_on_hopper_the_last_kernel_is_left_out(monkeypatch):
    monkeypatch.setattr(bench, "on_hopper", lambda: False)
    lab = SimpleNamespace(
        time_attention=lambda case, names, **_: [{"implementation": x} for x in names]
    )
    rows = list(bench.best_beside_others(lab, {}, ()))
    last = [row for row in rows if row["implementation"] == bench.BEST[-1]]
    assert [row["error"] for row in last] == ["it is for Hopper"]
