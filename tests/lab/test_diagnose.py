"""The kernels and their verdicts; what is seen of a kernel's memory, errors and NaN."""

from dataclasses import replace

import pytest
import torch

from snippets._lab.diagnose.diagnosis import said
from snippets._lab.diagnose.examination import examine
from snippets._lab.diagnose.verdict import Diagnosis
from snippets._lab.judge.bounds import Memory
from snippets._lab.judge.launcher import launcher_of
from snippets._lab.judge.models import Probe
from snippets._lab.judge.oracle import eager_attention
from snippets._lab.results import store
from snippets._lab.rooms import DATA
from snippets.diagnose import bench
from snippets.diagnose.cases import CASES, STYLES

BY_NAME = {f"{case.kernel}: {case.planted}": case for case in CASES}
SAMPLE = [
    "rows: V with K's strides",
    "tiled: no mask for rows of K",
    "tiled: exp(new - old) in the first tile",
    "tiled: no such function",
]
interpreter_only = pytest.mark.skipif(
    torch.cuda.is_available(), reason="a kernel's accesses are watched in the interpreter"
)


def judged(name, tmp_path):
    """A case's verdict, with its file run in this process."""
    file = tmp_path / f"case_{abs(hash(name))}.py"
    file.write_text(bench.sources(BY_NAME[name])[1], encoding="utf-8")
    found = said(file)
    if found.cannot:
        found = Diagnosis(False, error=found.cannot)
    return bench.verdict(BY_NAME[name], found), found


@interpreter_only
@pytest.mark.parametrize("name", SAMPLE)
def test_a_case_gets_the_right_verdict(name, tmp_path):
    verdict, found = judged(name, tmp_path)
    assert verdict == "right", found.text()


@interpreter_only
@pytest.mark.diagnosis
@pytest.mark.parametrize("name", BY_NAME)
def test_no_case_gets_a_wrong_name(name, tmp_path):
    verdict, found = judged(name, tmp_path)
    assert verdict != "wrong name", found.text()
    stored = store.read(DATA / "interpreter" / "diagnose" / "kernels.json").rows
    assert verdict == next(row["verdict"] for row in stored if row["case"] == name)


def test_nine_in_ten_are_right_and_no_name_is_wrong():
    rows = store.read(DATA / "interpreter" / "diagnose" / "kernels.json").rows
    verdicts = [row["verdict"] for row in rows]
    assert [row["case"] for row in rows] == list(BY_NAME)
    assert verdicts.count("right") >= 0.9 * len(rows)
    assert "wrong name" not in verdicts


def test_the_cases_are_of_every_kind():
    assert {case.kernel for case in CASES} == STYLES.keys()
    assert sum(case.says.startswith("No mistake") for case in CASES) >= 4
    assert sum(len(case.names) == 1 for case in CASES) >= 20
    assert sum(len(case.names) == 2 for case in CASES) >= 2
    bench.check("cpu")


SEEN = Diagnosis(False, names=("no scale",))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (SEEN, "right"),
        (replace(SEEN, names=("no scale", "scale 1/√N")), "right"),  # called alternatives
        (replace(SEEN, names=("wrong base",)), "wrong name"),
        (replace(SEEN, names=()), "no name"),
        (replace(SEEN, names=(), memory=("reads outside K",)), "wrong name"),
        (Diagnosis(True), "no name"),
    ],
)
def test_a_verdict_can_be_bad(found, verdict):
    if verdict == "wrong name" and found.memory:
        assert bench.verdict(BY_NAME["rows: one query per program"], found) == verdict
    else:
        assert bench.verdict(BY_NAME["rows: no scale"], found) == verdict


# Memory, seen from outside: a launcher in PyTorch can leave a tensor through its strides.


def longer(x, rows):
    """x with rows that are not its own."""
    return x.as_strided((*x.shape[:-2], x.shape[-2] + rows, x.shape[-1]), x.stride())


def test_a_read_outside_is_seen_by_its_guard():
    def reads(q, k, v):
        q, k, v = (x[0] for x in (q, k, v)) if q.dim() == 3 else (q, k, v)
        return eager_attention(q, longer(k, 1), longer(v, 1))

    assert set(examine(lambda q, k, v: reads(q, k, v) if q.dim() == 2 else no()).memory) >= {
        "reads outside k",
        "reads outside v",
    }


def no():
    raise ValueError("one head only")


def test_a_write_outside_is_seen_by_its_guard():
    def writes(q, k, v):
        out = torch.empty_like(q)
        longer(out, 1).zero_()
        return out.copy_(eager_attention(q, k, v))

    found = examine(writes)
    assert found.names == ()
    assert found.memory == ("writes outside a tensor that the launcher made",)
    assert "results are right all the same" in found.text()


def test_gaps_between_rows_are_not_the_tensors():
    wide = torch.zeros(4, 8)
    with Memory({"q": wide[:, :5]}) as memory:
        memory.inputs["q"].as_strided((1,), (1,), memory.inputs["q"].storage_offset() + 6).fill_(1)
    assert [(f.kind, f.tensor) for f in memory.faults] == [("writes outside", "q")]
    with Memory({"q": wide[:, :5]}) as memory:
        memory.inputs["q"].add_(1)
    assert [(f.kind, f.tensor) for f in memory.faults] == [("overwrites", "q")]
    with Memory({"q": wide[:, :5]}) as memory:
        assert torch.empty(3).isnan().all()
        memory.inputs["q"] + 1
    assert not memory.faults


# Errors.


def test_the_first_error_is_told_and_not_that_of_a_later_attempt():
    def fails(q, k, v):
        B, H, M, D = q.shape
        return undefined(B, H, M, D)  # noqa: F821

    with pytest.raises(ValueError, match=r"NameError: name 'undefined' is not defined, line \d+"):
        examine(fails)


def test_an_error_on_some_inputs_is_told_with_its_input():
    def fails(q, k, v):
        if q.shape[-1] == 40:
            return undefined  # noqa: F821
        return eager_attention(q, k, v)

    found = examine(fails)
    assert not found.right
    assert 'on the input "head dimension 40"' in found.text()


def test_a_refusal_of_some_inputs_is_no_mistake():
    def refuses(q, k, v):
        if q.shape[-1] == 40:
            raise ValueError("D is 40; a power of two is needed")
        return eager_attention(q, k, v)

    found = examine(refuses)
    assert found.right
    assert "does not take: head dimension 40 (ValueError: D is 40" in found.text()


# NaN.


def test_nan_everywhere_gets_no_name_but_a_line():
    def broken(q, k, v):
        scores = q @ k.mT
        largest = scores.amax(-1, keepdim=True) + torch.inf
        return (scores - largest).exp() / (scores - largest).exp().sum(-1, keepdim=True) @ v

    def with_steps(q, k, v):
        scores = q @ k.mT
        weights = (scores - torch.inf).exp()
        shares = weights / weights.sum(-1, keepdim=True)
        return shares @ v

    assert examine(broken).names == ()
    found = examine(with_steps)
    assert found.names == ()
    assert "The first NaN is in shares[0, 0, 0, 0]" in found.text()
    assert "`shares = weights / weights.sum(-1, keepdim=True)`" in found.text()
    assert "there weights is 0" in found.text()


def test_an_output_that_is_never_written_is_said_to_be():
    found = examine(lambda q, k, v: torch.empty_like(q))
    assert found.names == ()
    assert "the result is NaN" in found.text()


# Launchers.


@pytest.mark.parametrize(
    "launcher",
    [
        lambda Q, K, V: eager_attention(Q, K, V),
        lambda query, key, value: eager_attention(query, key, value),
        lambda v, k, q: eager_attention(q, k, v),
        lambda q, k, v, M, N, D: eager_attention(q, k, v) + 0 * (M + N + D),
        lambda q, k, v, out: [None for _ in out.copy_(eager_attention(q, k, v)).shape[:0]] or None,
        lambda q, k, v, /: eager_attention(q, k, v),
    ],
)
def test_arguments_may_have_other_names(launcher):
    known = launcher_of(launcher)
    q, k, v = torch.randn(3, 1, 1, 4, 8)
    assert torch.equal(known.call(Probe("", q, k, v), q, k, v), eager_attention(q, k, v))
