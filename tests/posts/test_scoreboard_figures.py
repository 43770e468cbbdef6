"""The scoreboard's regimes and grids, drawn from made-up rows: no GPU is needed for this."""

import collections
import itertools
import types

import pytest
import torch

from snippets._lab.measure import regimes as measured
from snippets._lab.results import staleness
from snippets._lab.results.store import DataError
from snippets.scoreboard import bench, regime_rows
from snippets.scoreboard import figures as page
from tests.floors import some
from tests.made_up import result, timed

CUDNN, FA, LAST, FLASH = "torch:cudnn", "flash_attention_4", "hopper_attention", "flash_attention"
FA3 = "flash_attention_3"
SPEED = {CUDNN: 1.0, FA: 1.25, LAST: 1.2, FLASH: 0.8}  # of cuDNN's, queued
HOST = {CUDNN: 0.02, FA: 0.06, LAST: 0.045, FLASH: 0.045}


class Lab:
    """A lab with a stand-in clock: `gain` changes the speed of a name in a case."""

    place = "gpu"

    def __init__(self, gain=lambda name, case: 1.0, missing=("flash_attention_3",), **beside):
        self.gain, self.missing, self.beside = gain, missing, beside

    def each(self, **axes):
        return (dict(zip(axes, x, strict=True)) for x in itertools.product(*axes.values()))

    def time_attention(self, case, names, variants=None, within=("queued",)):
        flops = 4.0 * case.get("batch", 1) * case["heads"] * case["N"] ** 2 * case["D"]
        for name in names:
            if name not in SPEED or name in self.missing:
                yield {"implementation": name, **case, "error": f"{name} is not installed"}
                continue
            version = {"version": "4.0.0b36"} if name == FA else {}
            for regime in within:
                ms = flops / 5e14 * 1e3 / SPEED[name] / self.gain(name, case | {"regime": regime})
                host = {} if regime == "queued" else {"ms_host": HOST[name]}
                if regime == "sustained":
                    host |= {"readings": 40, "power_w": 690.5, "sm_clock_mhz": 1755}
                    host |= {"power_capped": 0.9} | self.beside
                elif regime != "queued":
                    ms += HOST[name]
                work = {"flops": flops, "bytes_compulsory": 1e3, **case}
                yield timed(ms, implementation=name, regime=regime, **work, **host, **version)


@pytest.fixture(autouse=True)
def hopper(monkeypatch):
    monkeypatch.setattr(bench, "on_hopper", lambda: True)
    monkeypatch.setattr(bench, "SUSTAINED_AT", bench.LENGTHS)
    properties = types.SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)


def made_up(name, lab):
    for kernel in bench.KERNELS:
        SPEED.setdefault(kernel, 0.1), HOST.setdefault(kernel, 0.02)
    return result("scoreboard", name, list(getattr(bench, name)(lab)))


def drawn(name, *labs):
    return getattr(page, name)([made_up(name, lab) for lab in labs or [Lab()]])


def test_the_names_of_the_regimes_are_those_that_are_measured():
    assert regime_rows.REGIMES == measured.REGIMES


def test_each_regime_has_its_ratio_to_cudnn():
    capped = Lab(lambda name, case: 0.9 if (name, case["regime"]) == (LAST, "sustained") else 1.0)
    figure = drawn("regimes", capped)
    told = figure.numbers
    assert told["flash_sustained"] == "0.80"
    assert told["short_called"] == "1.08"
    assert told["compiled_of_called"] == "1.00×"
    assert told["host_cudnn"] == "20 µs"
    assert {on for said, on in figure.claims.items() if "behind in" in said} == {False}, (
        "no verdict"
    )
    row = figure.table[0]
    assert row["hopper_attention ÷ PyTorch cuDNN"] == "1.20"
    assert row["hopper_attention ÷ FlashAttention-4 4.0.0b36"] == "0.96"


def test_the_best_is_in_each_cell_the_faster_flash_attention(monkeypatch):
    monkeypatch.setitem(SPEED, FA3, SPEED[FA])
    monkeypatch.setitem(HOST, FA3, HOST[FA])

    def gain(name, case):
        return 1.25 if name == (FA3 if case["causal"] else FA) and case["D"] == 64 else 1.0

    figure = drawn("regimes", Lab(gain, missing=()))
    assert figure.numbers["best_queued"] == figure.numbers["best_sustained"] == "0.77 to 0.96"
    assert "the better of FlashAttention-3 and FlashAttention-4 4.0.0b36" in figure.finding
    assert drawn("grids", Lab(gain, missing=())).numbers["best"] == "0.77 to 0.96"


def test_what_slowed_the_gpu_is_marked():
    quiet, hot = drawn("regimes"), drawn("regimes", Lab(slowdowns={"heat": 0.25}))
    (claim,) = [words for words in quiet.claims if "neither heat" in words]
    assert (quiet.claims[claim], hot.claims[claim]) == (True, False)
    assert (quiet.numbers["limit"], quiet.numbers["watts"]) == ("700 W", "690 W")
    marked = [r["regime"] for r in hot.table if "slowed by heat" in (r["remark"] or "")]
    assert marked == ["sustained"] * 12
    assert not any("slowed" in (r["remark"] or "") for r in some(quiet.table))


def test_a_competitor_that_is_not_there_is_named():
    figure = drawn("regimes", Lab(missing=(FA, "flash_attention_3", "flash_attention_2")))
    assert "flash_attention_4 is not installed" in figure.caption
    with pytest.raises(DataError, match=r"hopper_attention was not timed: .*not installed"):
        drawn("regimes", Lab(missing=(LAST,)))


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
    rows = list(bench.regimes(Lab()))
    told = [r for r in rows if r["implementation"] == LAST]
    assert {r["error"] for r in told} == {"it is for Hopper"}
