"""The scoreboard: its models of rounding, the rows it will store, its diff, and its figures.

Timings that appear here are made up, round, and stored nowhere.
"""

import math
import re
from dataclasses import replace

import pytest
import torch

from snippets._lab import rooms
from snippets._lab.draw import units
from snippets._lab.draw.rows import only
from snippets._lab.judge.oracle import NumericalMismatch, eager_attention, make_qkv
from snippets._lab.probe.launches import recorded
from snippets._lab.results import store
from snippets.scoreboard import bench, differences, road
from snippets.scoreboard import figures as page
from tests.floors import some

ON_GPU = torch.cuda.is_available()

KERNELS = bench.KERNELS
READ = rooms.DATA / "interpreter" / "scoreboard"


def measured(result):
    return store.read(READ / f"{result}.json")


# The models of one effect.


def test_tf32_keeps_ten_bits():
    one = torch.tensor(1.0)
    ulp = 2.0**-10
    for x, want in (
        (one + ulp, 1 + ulp),
        (one + ulp / 4, 1.0),
        (one + 0.75 * ulp, 1 + ulp),
        (-one - 0.75 * ulp, -1 - ulp),
        (torch.tensor(0.0), 0.0),
        (3 * one, 3.0),
    ):
        assert bench.tf32(x).item() == want
    x = torch.randn(1000)
    assert ((bench.tf32(x) - x.double()).abs() / x.double().abs()).max() <= 2.0**-11


def errors(dtype):
    q, k, v = make_qkv(2, M=16, N=300, D=64, dtype=dtype)
    want = eager_attention(q.double(), k.double(), v.double())
    return {n: (x - want).abs().max().item() for n, x in bench.effects(q, k, v)}, want, v


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_each_effect_is_there_and_as_large_as_its_rounding(dtype):
    """Half a unit in the last place each: of the result, of a weight (relative), of an input."""
    found, want, v = errors(dtype)
    eps, size = torch.finfo(dtype).eps, v.abs().max().item()
    allowed = {
        "stored": eps / 2 * want.abs().max().item(),
        "exp": 64 * torch.finfo(torch.float32).eps * size,
        "exp2": 64 * torch.finfo(torch.float32).eps * size,
        "weights": eps / 2 * size * 1.01,
        "tf32": 64 * 2.0**-11 * size,
    }
    expected = {*list(allowed)[:3], "tf32" if dtype == torch.float32 else "weights"}
    assert set(found) == expected < set(bench.EFFECTS)
    for name, error in found.items():
        assert 0 < error <= allowed[name], name


def test_without_the_effect_there_is_no_error(monkeypatch):
    monkeypatch.setattr(bench, "tf32", torch.Tensor.double)
    found, want, _ = errors(torch.float32)
    assert found["tf32"] <= 1e-14 * want.abs().max().item()
    assert found["exp"] > 1e-9


def test_tf32_is_allowed_for_one_call_only():
    before = torch.backends.cuda.matmul.allow_tf32
    q, k, v = make_qkv(1, M=3, N=5, D=16)
    assert torch.equal(bench.with_tf32(q, k, v), eager_attention(q, k, v))
    assert torch.backends.cuda.matmul.allow_tf32 == before


# The rows.


def test_every_attention_kernel_is_on_the_board():
    """A room that joins the series joins the board: its launcher takes q, k and v."""
    from snippets._lab.judge.grid import attention_rooms

    takes_v = [
        room
        for room in attention_rooms()
        if re.search(rf"def {room}\(\s*q, k, v", rooms.source_file(room).read_text("utf-8"))
    ]
    takes_v.remove("masks_and_packing")  # which has flash_attention's code, as its test shows
    assert sorted([*KERNELS, bench.LAST]) == sorted(takes_v)


def test_a_wrong_kernel_stops_it(monkeypatch):
    real = bench.resolve

    def planted(name):
        if name != KERNELS[-1]:
            return real(name)
        return lambda q, k, v: v.mean(-2, keepdim=True).expand(q.shape)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    monkeypatch.setattr(bench, "KERNELS", KERNELS[-2:])
    bench.check(device)
    monkeypatch.setattr(bench, "resolve", planted)
    with pytest.raises(NumericalMismatch):
        bench.check(device)


def test_wrong_gradients_stop_it(monkeypatch):
    monkeypatch.setattr(bench, "KERNELS", [])
    monkeypatch.setattr(bench, "on_hopper", lambda: False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    bench.check(device)
    right = bench.there_and_back

    def scaled(*given, **options):
        q, *others = right(*given, **options)
        return (q * 1.02, *others)

    monkeypatch.setattr(bench, "there_and_back", scaled)
    with pytest.raises(NumericalMismatch, match="grad_q"):
        bench.check(device)


# The differences.


@pytest.mark.parametrize("name", [*KERNELS, bench.LAST])
def test_code_comes_from_the_file(name):
    path = rooms.source_file(name)
    lines = differences.kernel_lines(path)
    text = path.read_text("utf-8")
    code = [x for x in lines if not x.lstrip().startswith(("#", "def "))]
    assert len(code) > 15
    assert all(line in text for line in code)
    assert not any("--8<--" in x or '"""' in x for x in some(lines))
    assert len(code) >= differences.lines_of_code(path) > 15


def test_lines_of_code_leave_out_what_is_none(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(
        '@gluon.jit(do_not_specialize=["N"])\ndef _k(\n    a,\n):\n    """Text."""\n    # why\n'
        "    x = (\n        1\n    )\n\n    return x  # [N]\n\ndef launcher():\n    return 1\n",
        "utf-8",
    )
    assert differences.lines_of_code(path) == 4
    assert differences.kernel_lines(path)[0] == "def _k(…):"
    path.write_text("@functools.cache\ndef launcher():\n    return 1\n", "utf-8")
    with pytest.raises(ValueError, match="no kernel"):
        differences.lines_of_code(path)


@pytest.mark.parametrize("begin", ["acc = ", "no such line", "import torch"])
def test_a_stop_shows_only_lines_that_one_kernel_has(begin):
    """One that many lines begin with, one that is gone, one that both files have."""
    with pytest.raises(ValueError, match=begin):
        road.changed("tiled_attention", f"+{begin}", "composed_attention")


# The figures.


@pytest.mark.skipif(ON_GPU, reason="launches are recorded in the interpreter")
def test_a_kernel_is_raced_as_its_launcher_launches_it_and_on_the_case_that_was_timed():
    rows = measured("race").rows
    q, k, v = make_qkv(8, M=1024, N=1024, D=64, dtype=torch.float16)
    for row in some(rows, 4):
        with recorded({}, run=False) as launches:
            bench.resolve(row["implementation"])(q, k, v)
        assert launches.rows == [row["launch"]]
    figure = page.race(list(store.scan(rooms.DATA)))
    races = figure.extra_files["race_launches.json"]
    assert len(some(races["launches"])) == len(rows)
    with pytest.raises(ValueError, match="not enough values"):
        page.race([r for r in store.scan(rooms.DATA) if r.result == "kernels"])


def test_the_budget_says_what_its_rows_say():
    result = measured("budget")
    row = only(result.rows, implementation="weights", dtype="float16")
    assert units.error(row["error_largest"]) in page.budget([result]).finding
    rows = [r | {"error_largest": 1.0} if r["implementation"] == "exp2" else r for r in result.rows]
    assert not all(page.budget([replace(result, rows=rows)]).claims.values())


def test_recorded_errors_are_within_rounding():
    for r in some(measured("budget").rows):
        assert math.isfinite(r["error_largest"])
        assert r["error_largest"] >= r["error_mean"] > 0
        assert r["error_largest"] < 0.02
