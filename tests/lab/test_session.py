"""Measuring and its command line: what is stored, what is left alone, and what is said about it.

A room of a few lines stands in for the real ones; its results fail and stop on demand.
"""

import contextlib
import functools
import io
import os
import random
import statistics
import types
from dataclasses import replace

import pytest
import torch

from snippets._lab import cli, rooms
from snippets._lab.child import Child
from snippets._lab.measure import ceilings, competitors, machine, session
from snippets._lab.measure.session import Lab, jobs
from snippets._lab.measure.timing import Times
from snippets._lab.results import origin, runs, staleness, store
from snippets._lab.results.validate import CEILINGS as CEILING_NAMES
from snippets._lab.results.validate import faults
from tests import made_up

KERNEL = '''
"""Attention that is easy to get right."""

def fake_attention(q, k, v):
    import torch  # not above: `python kernel.py` is to be quick here
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)
'''
REPORT = """
def main():
    print("OK")

if __name__ == "__main__":
    main()
"""
BENCH = """
from snippets._lab.rooms import measured_on

calls, trouble = [], {}

def act(name):
    calls.append(name)
    if name in trouble:
        raise trouble[name]

def check(device):
    act(f"check on {device}")

@measured_on("interpreter")
def first(lab):
    for case in lab.each(N=[1, 2]):
        yield {**case, "loads": 10 * case["N"]}
    act("first")

@measured_on("interpreter")
def second(lab):
    yield {"loads": 1}
    act("second")

@measured_on("interpreter")
def third(lab):
    act("third")
    yield {"loads": 3}

@measured_on("gpu")
def timed(lab):
    act("timed")
    for case in lab.each(dtype=["float32"], D=[8], N=[16, 32, 64]):
        yield from lab.time_attention(case, ["fake_attention", "no_such_room_yet", "torch:sdpa"])
"""


@pytest.fixture
def room(tmp_path, monkeypatch):
    """The stand-in room; its folder."""
    monkeypatch.setattr(cli.console, "width", 400)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with made_up.room(tmp_path, monkeypatch, kernel=KERNEL + REPORT, bench=BENCH) as folder:
        yield folder


COMMIT = "0123456789" * 4
TIMED = "some_gpu_9000/fake_attention/timed.json"


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def lab(room, data, capsys):
    """Runs a command; returns its exit code and what it printed."""

    def run(*arguments):
        code = cli.main([*arguments, "--data", str(data), "--commit", COMMIT])
        return code, capsys.readouterr().out

    return run


def in_room():
    return rooms.load("fake_attention", "bench")


def stored(data):
    """Result → its file's content."""
    return {p.stem: p.read_bytes() for p in sorted(data.rglob("*.json"))}


def timed(data):
    """The result of the GPU that is not there."""
    return store.read(data / TIMED, data)


def test_every_result_is_stored_with_where_it_comes_from(lab, data):
    code, out = lab("bench-cpu")
    assert code == 0
    assert "2 rows" in out
    assert set(stored(data)) == {"first", "second", "third", "report"}
    result = store.read(data / "interpreter" / "fake_attention" / "first.json", data)
    assert result.rows == [{"N": 1, "loads": 10}, {"N": 2, "loads": 20}]
    assert (result.place, result.folder, result.commit) == ("interpreter", "interpreter", COMMIT)
    assert result.device == {"name": "Triton's interpreter"}
    assert result.code == staleness.code_of("fake_attention", "first", "interpreter")
    assert result.source_hash == staleness.source_hash(result.code)
    assert result.versions == machine.versions()
    report = store.read(data / "interpreter" / "fake_attention" / "report.json", data)
    assert report.rows == [{"line": "OK"}]


def test_nothing_is_stored_from_a_room_that_fails_its_check(lab, data):
    in_room().trouble["check on cpu"] = AssertionError("largest difference 1.0")
    code, out = lab("bench-cpu")
    assert code == 1
    assert "failed, nothing stored: AssertionError: largest difference 1.0" in out
    assert stored(data) == {}
    assert "first" not in in_room().calls


def test_a_rerun_measures_only_what_is_missing_stale_or_damaged(lab, room, data):
    lab("bench-cpu")
    before = stored(data)
    folder = data / "interpreter" / "fake_attention"
    in_room().calls.clear()

    code, out = lab("bench-cpu")
    assert (code, out.count("up to date"), in_room().calls) == (0, 4, [])
    assert stored(data) == before

    (folder / "first.json").unlink()
    (folder / "report.json").write_text('{"schema": 1, "rows": [')
    made_up.edit(room / "bench.py", '"loads": 3', '"loads": 1 + 2')
    code, out = lab("bench-cpu")
    assert (code, out.count("up to date")) == (0, 1)
    assert in_room().calls == ["check on cpu", "first", "third"]
    assert set(stored(data)) == set(before)
    assert stored(data)["second"] == before["second"]


OTHERWISE = {
    '"schema": 3': '"schema": 2',
    '"triton": "': '"triton": "0.',
    '"torch": "': '"torch": "0.',
}


@pytest.mark.parametrize(("old", "new"), OTHERWISE.items())
def test_what_was_measured_otherwise_is_measured_again(old, new, lab, data):
    lab("bench-cpu", "--result", "second")
    path = data / "interpreter" / "fake_attention" / "second.json"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    code, out = lab("bench-cpu", "--result", "second")
    assert (code, "up to date" in out) == (0, False)
    store.read(path, data)


def test_a_failing_result_leaves_its_file_and_the_others_go_on(lab, data):
    lab("bench-cpu")
    before = stored(data)
    in_room().trouble["second"] = RuntimeError("no [/luck] today")  # not rich's markup
    code, out = lab("bench-cpu", "--force")
    assert code == 1
    assert "failed, nothing stored: RuntimeError: no [/luck] today" in out
    assert stored(data)["second"] == before["second"]
    assert "third" in in_room().calls[-3:]


def test_an_interruption_keeps_what_is_done_and_a_rerun_goes_on(lab, data):
    in_room().trouble["second"] = KeyboardInterrupt()
    code, out = lab("bench-cpu")
    assert code == 130
    assert "every result stored so far is whole" in out
    assert list(stored(data)) == ["first"]

    first = stored(data)["first"]
    in_room().trouble.clear()
    in_room().calls.clear()
    assert lab("bench-cpu")[0] == 0
    assert in_room().calls == ["check on cpu", "second", "third"]
    assert set(stored(data)) == {"first", "second", "third", "report"}
    assert stored(data)["first"] == first


def test_a_folder_that_cannot_be_written_to_ends_the_run(lab, data, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    code, out = lab("bench-cpu")
    assert code == 2
    assert "cannot be written to; nothing was measured" in out
    assert in_room().calls == []


def test_code_edited_while_measuring_does_not_pass_for_what_ran(lab, room, data, monkeypatch):
    before = staleness.code_of("fake_attention", "second", "interpreter")

    def edit_meanwhile(name):
        text = (room / "bench.py").read_text()
        (room / "bench.py").write_text(text.replace('"loads": 1}', '"loads": 1 + 1}'))

    monkeypatch.setattr(in_room(), "act", edit_meanwhile)
    lab("bench-cpu", "--result", "second")
    result = store.read(data / "interpreter" / "fake_attention" / "second.json", data)
    assert result.code == before
    assert staleness.changed(result) == ["fake_attention/bench.py: second"]


@pytest.mark.parametrize("command", ["bench", "bench-cpu"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--post", "flsah"], "no post is called 'flsah'; there are: fake_attention"),
        (["--post", "flsah", "--result", "first"], "no post is called 'flsah'"),
        (["--post", "fake_attention", "--result", "frist"], "no result of fake_attention is"),
        (["--result", "frist"], "'frist'; there are: first, second, third, timed, report, mutants"),
    ],
)
def test_an_unknown_name_is_answered_with_the_known_ones(command, arguments, message, lab, data):
    code, out = lab(command, *arguments)
    assert code == 2
    assert message in out
    assert not data.exists()


def test_bench_without_a_gpu_says_what_it_leaves_alone_and_measures_the_rest(lab, data):
    code, out = lab("bench")
    assert code == 0
    assert "There is no GPU that torch can use: timings stay as they are" in out
    assert set(stored(data)) == {"first", "second", "third", "report"}
    assert "timed" not in in_room().calls


@pytest.mark.parametrize("typed", ["abc", "c1051fdd", "A" * 40, "0" * 41])
def test_a_typed_commit_is_whole(typed, room, capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench-cpu", "--commit", typed])
    assert f"{typed!r} is no whole commit" in capsys.readouterr().err


# A GPU that is not there: 1 ms for every call, and no memory for a length of 32.
CEILINGS = {
    name: {"per_s_p20": 1e12, "per_s_p50": 1e12, "per_s_p80": 1e12} for name in CEILING_NAMES
}


class NoClock(contextlib.nullcontext):
    def summary(self):
        return {"sm_clock_mhz": [1.0, 2.0, 3.0]}


@pytest.fixture
def gpu(room, monkeypatch):
    """A fake device; returns a dict in which a test may change how long a call takes."""
    taken = {"ms": 1.0}

    def time_them(calls, flush):
        return {name: Times([taken["ms"]] * 5) for name in calls}

    def resolve_one_that_is_greedy(name):
        function = resolve(name)

        def greedy(q, k, v):
            if q.shape[-2] == 32:
                raise torch.cuda.OutOfMemoryError("tried to allocate 3 PiB")
            return function(q, k, v)

        return greedy if name == "fake_attention" else function

    def inputs(*leading, device, **options):
        assert device == "cuda"
        return make_qkv(*leading, **options)

    make_qkv, resolve = session.make_qkv, session.resolve
    about = {"name": "Some GPU 9000", "l2_bytes": 4096}
    properties = types.SimpleNamespace(L2_cache_size=4096)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(session, "resolve", resolve_one_that_is_greedy)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(machine, "gpu", lambda: dict(about))
    monkeypatch.setattr(machine, "versions", lambda: dict.fromkeys(store.VERSIONS, "1"))
    monkeypatch.setattr(machine, "ClockWatch", NoClock)
    monkeypatch.setattr(ceilings, "measure", lambda flush: CEILINGS)
    monkeypatch.setattr(session, "Flush", lambda: "flushed")
    monkeypatch.setattr(session, "make_qkv", inputs)
    monkeypatch.setattr(session, "time_interleaved", time_them)
    return taken


def test_out_of_memory_at_one_size_is_a_row_and_the_rest_goes_on(lab, gpu, data):
    code, out = lab("bench", "--result", "timed", "--runs", "1")
    assert code == 0
    assert "6 rows, 1 of them without a value" in out
    result = timed(data)
    names = ["fake_attention", "torch:sdpa"]  # a room that does not exist yet is left out
    assert [(r["implementation"], r["N"]) for r in result.rows] == [
        (name, N) for N in (16, 32, 64) for name in names
    ]
    assert [r.get("error") for r in result.rows] == [None, None, "out of memory", None, None, None]
    assert "ms_p50" not in result.rows[2]  # only the greedy one; the other was timed without it
    assert result.rows[3]["ms_p50"] == 1.0


def test_a_timed_row_says_what_it_moved_and_where_it_ran(lab, gpu, data):
    lab("bench", "--result", "timed", "--runs", "1")
    result = timed(data)
    row, large = result.rows[0], result.rows[-1]
    assert row["ms_p50"] == 1.0
    assert row["flops"] == 4 * 16 * 16 * 8
    assert row["bytes_compulsory"] == 4 * 16 * 8 * 4
    assert (row["fits_l2"], large["fits_l2"]) == (True, False)
    assert result.ceilings == CEILINGS
    assert result.device["sm_clock_mhz"] == [1.0, 2.0, 3.0]
    assert in_room().calls == ["check on cuda", "timed"]


def test_a_row_beyond_physics_stops_the_result(lab, gpu, data):
    gpu["ms"] = 1e-8
    code, out = lab("bench", "--result", "timed", "--runs", "1")
    assert code == 1
    assert "PhysicsError" in out
    assert stored(data) == {}


def test_a_second_measurement_keeps_what_it_replaces(lab, data, gpu):
    for milliseconds in (1.0, 2.0):
        gpu["ms"] = milliseconds
        assert lab("bench", "--result", "timed", "--force", "--runs", "1")[0] == 0
    found = timed(data)
    (entry,) = found.history
    assert entry["changed"] == []
    assert entry["compared"] == len(entry["moved"]) == sum("ms_p50" in row for row in found.rows)
    assert {(m["before"]["ms_p50"], m["now"]["ms_p50"]) for m in entry["moved"]} == {(1.0, 2.0)}
    path = data / TIMED
    path.write_text(path.read_text()[:99])  # nothing that could be read comes before the next
    assert lab("bench", "--result", "timed", "--force", "--runs", "1")[0] == 0
    assert timed(data).history == []


@pytest.fixture
def three(gpu, room, monkeypatch):
    """Lets the processes of runs be forks, which know the fake device; returns the orders timed."""
    seen = room / "orders"

    def time_them(calls, flush):
        with seen.open("a") as file:
            print(os.getpid(), *calls, file=file)
        return {name: Times([gpu["ms"] * (i + 1) for i in range(5)]) for name in calls}

    made_up.edit(room / "bench.py", '"torch:sdpa"]', '"torch:sdpa", "torch:math"]')

    def in_a_fork(channel, arguments):
        torch.set_num_threads(1)  # a fork has none of its owner's threads
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = cli.main(arguments)
        channel.send((code, out.getvalue()))

    def apart(arguments):
        with Child(in_a_fork, arguments) as other:
            code, out = other.receive(60)
        print(out)
        return code

    monkeypatch.setattr(cli, "_apart", apart)
    monkeypatch.setattr(session, "time_interleaved", time_them)
    return lambda: [line.split(" ", 1) for line in seen.read_text().splitlines()]


def test_a_gpus_times_are_taken_in_three_processes_and_put_together(lab, data, three):
    code, out = lab("bench", "--result", "timed")
    assert (code, "9 rows, 1 of them without a value, run 3 of 3" in out) == (0, True)
    found = timed(data)
    row = found.rows[0]
    assert row["runs"] == [5, 5, 5]
    assert row["ms_samples"] == [1, 2, 3, 4, 5] * 3
    assert "runs" not in found.rows[3], "what ran out of memory has none"
    assert found.history == [], "a run that is added replaces nothing"
    orders = three()
    assert len({process for process, _ in orders} - {str(os.getpid())}) == 3
    first, second, third = (order for _, order in orders[::3])
    assert len({first, second, third}) > 1, "the order is drawn again"
    assert first == " ".join(row["implementation"] for row in found.rows[:3])
    for drawn, number in ((second, 1), (third, 2)):
        again = first.split()
        random.Random(number).shuffle(again)
        assert drawn == " ".join(again), "the number of the run says the order"


def test_a_run_that_was_interrupted_is_taken_up_again(lab, data, three, gpu, monkeypatch):
    assert lab("bench", "--result", "fake_attention/timed", "--runs", "2")[0] == 0
    before = timed(data)
    monkeypatch.setattr(in_room(), "trouble", {"timed": RuntimeError("no luck")})
    assert lab("bench", "--result", "timed")[0] == 1
    assert timed(data) == before
    monkeypatch.setattr(in_room(), "trouble", {})
    gpu["ms"] = 2.0
    assert lab("bench", "--result", "timed")[0] == 0
    assert len(three()) == 9, "one run was missing"
    assert timed(data).rows[0]["ms_samples"][10:] == [2, 4, 6, 8, 10]
    assert "up to date" in lab("bench", "--result", "timed")[1]
    assert lab("bench", "--result", "timed", "--force")[0] == 0
    found = timed(data)
    assert (found.rows[0]["runs"], len(found.history)) == ([5, 5, 5], 1), "forced, all runs anew"


@pytest.mark.parametrize("field", ["driver", "power_limit_w"])
def test_a_run_on_another_machine_begins_again(field, lab, data, three, monkeypatch):
    lab("bench", "--result", "timed", "--runs", "2")
    about = machine.gpu() | {field: "another"}
    monkeypatch.setattr(machine, "gpu", lambda: dict(about))
    lab("bench", "--result", "timed")
    found = timed(data)
    assert (found.rows[0]["runs"], len(found.history)) == ([5, 5, 5], 1)


def test_a_run_of_other_cases_is_refused(lab, data, three, room):
    lab("bench", "--result", "timed", "--runs", "1")
    old = timed(data)
    store.write(replace(old, rows=old.rows[1:]), data)
    code, out = lab("bench", "--result", "timed", "--runs", "2")
    assert code == 1
    assert "of run 2 and the runs before it, one only timed" in out
    assert timed(data).rows == old.rows[1:]


def test_what_differs_from_run_to_run_is_the_mean_of_the_runs():
    readings = {"sm_clock_mhz": [900, 1000, 1100], "power_w": None, "driver": "1"}
    a = {"readings": 20, "power_w": 600.0, "ms_host": 0.5, "regime": "sustained"}
    b = {"readings": 23, "power_w": 630, "ms_host": 2.0, "regime": "sustained"}
    made = [
        made_up.result(
            "a",
            "b",
            [made_up.timed(ms, **fields, N=1), {"N": 2, "error": "?"}],
            device={"name": "Some GPU", **readings, "sm_clock_mhz": [900 + ms, 1000 + ms, 1900]},
        )
        for ms, fields in ((1.0, a), (2.0, b), (4.0, a))
    ]
    found = functools.reduce(runs.added, made)
    row = found.rows[0]
    assert row["runs"] == [11, 11, 11]
    assert [statistics.median(ms) for ms in runs.samples(row)] == [1.0, 2.0, 4.0]
    assert (row["readings"], row["power_w"], row["ms_host"]) == (21.0, 610.0, 1.0)
    assert found.device["sm_clock_mhz"] == [901.0, 1002.3, 1900]
    assert next(faults(found), None) is None


def test_timing_needs_a_gpu():
    with pytest.raises(RuntimeError, match=r"measured_on\('gpu'\)"):
        next(Lab("interpreter").time_attention({"N": 1}, ["torch:sdpa"]))


def test_what_was_compiled_ahead_was_compiled_with_the_triton_that_was_timed():
    timed = store.timed_with("triton")
    assert timed
    assert {r.versions["triton"] for r in store.scan() if r.place == "compiler"} == {timed}


def test_a_kernel_that_only_a_gpu_runs_reports_from_there(lab, room, monkeypatch):
    monkeypatch.setattr(machine, "gpu", lambda: {"name": "made up"})

    def places():
        return [p for p in ("gpu", "interpreter") if any(j.result == "report" for j in jobs(p))]

    assert places() == ["gpu", "interpreter"]
    text = (room / "kernel.py").read_text()
    (room / "kernel.py").write_text(f"{text}\nfrom triton.experimental.gluon import language\n")
    assert places() == ["gpu"]


def test_a_report_that_fails_is_not_stored(lab, room, data):
    made_up.edit(room / "kernel.py", 'print("OK")', "raise SystemExit('WRONG')")
    code, out = lab("bench-cpu", "--result", "report")
    assert code == 1
    assert "kernel.py alone failed" in out
    assert "WRONG" in out
    assert stored(data) == {}


def test_places_are_checked():
    with pytest.raises(ValueError, match="allowed are gpu, interpreter, compiler"):
        rooms.measured_on("tpu")
    with pytest.raises(ValueError, match="allowed are"):
        rooms.measured_on()


@pytest.mark.parametrize("name", ["torch:sdpa", "torch:eager", "torch:math"])
def test_pytorchs_own_are_found_by_name(name):
    q, k, v = session.make_qkv(2, M=5, N=7, D=8)
    want = competitors.eager_attention(q, k, v)
    q = q.mT.contiguous().mT
    torch.testing.assert_close(competitors.resolve(name)(q, k, v), want)
    torch.testing.assert_close(competitors.resolve(name)(q[0], k[0], v[0]), want[0])


def test_stale_results_are_listed(lab, room, data, capsys):
    lab("bench-cpu")
    assert cli.main(["stale", "--data", str(data)]) == 0
    assert "0 stale results of 4" in capsys.readouterr().out
    made_up.edit(room / "bench.py", '"loads": 1}', '"loads": 2}')
    made_up.edit(room / "kernel.py", 'print("OK")', 'print("fine")')
    store.write(made_up.result("fake_attention", "timed", [made_up.timed()]), data)
    assert cli.main(["stale", "--data", str(data)]) == 0
    first, one, second, two, third, three, count = capsys.readouterr().out.splitlines()
    assert (first, "report, " in one) == ("changed: fake_attention/kernel.py: main", True)
    assert second == "changed: fake_attention/bench.py: second"
    assert two.startswith(f"  interpreter/fake_attention/second, {origin.now()[:10]} ")
    assert two.endswith("  make bench-cpu POST=fake_attention RESULT=second")
    assert third == "changed: measured before definitions were recorded"
    assert three.endswith("  make bench POST=fake_attention RESULT=timed")
    assert count == "3 stale results of 5"
    made_up.edit(room / "bench.py", "def second", "def fourth")
    assert cli.main(["stale", "--data", str(data)]) == 0
    out = capsys.readouterr().out
    assert "changed: fake_attention/bench.py: second is gone" in out
    assert "  git rm docs/data/interpreter/fake_attention/second.json" in out


def test_a_check_with_nothing_to_check_fails(lab, data, capsys):
    assert cli.main(["stale", "--data", str(data)]) == 1
    assert cli.main(["mutants"]) == 1
    assert capsys.readouterr().out.count("nothing was checked") == 2
