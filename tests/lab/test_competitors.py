"""Competitors that a machine may have or not: named with their version, checked, or left out aloud.

Stub packages stand in for FlashAttention; what they compute is eager attention, or wrong on demand.
"""

import importlib.metadata
import sys
import types

import pytest
import torch

from snippets._lab.judge.oracle import (
    NumericalMismatch,
    TrivialInputs,
    assert_some_rows,
    causal_mask,
    eager_attention,
    make_qkv,
)
from snippets._lab.measure import session
from snippets._lab.measure.competitors import (
    AS_OURS,
    PACKAGES,
    Unavailable,
    bind,
    is_ours,
    layout_of,
    own_layout,
    resolve,
    version_of,
)
from snippets._lab.measure.session import Lab
from snippets._lab.measure.timing import Times

NAMES = list(PACKAGES)
CASE = {"dtype": "float32", "causal": True, "batch": 2, "heads": 3, "N": 40, "D": 16}


def in_their_layout(q, k, v, causal=False):
    """Attention of [B, M, H, D], with its statistics beside it."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    mask = causal_mask(q.shape[-2], k.shape[-2]) if causal else None
    return eager_attention(q, k, v, mask=mask).transpose(1, 2).contiguous(), "statistics"


@pytest.fixture
def packages(monkeypatch):
    """Installs stub packages, by the name of the competitor; `None` takes one away."""
    versions = {}

    def version(distribution):
        if distribution not in versions:
            raise importlib.metadata.PackageNotFoundError(distribution)
        return versions[distribution]

    def install(name, number, attend=in_their_layout):
        package = PACKAGES[name]
        versions[package.distribution] = number
        stub = types.ModuleType(package.module)
        if attend is not None:
            stub.flash_attn_func = attend
        parent = package.module.partition(".")[0]
        monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
        monkeypatch.setitem(sys.modules, package.module, stub)

    monkeypatch.setattr(importlib.metadata, "version", version)
    return install


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_a_package_is_called_in_its_own_layout(name, lead, packages):
    q, k, v = make_qkv(*lead, M=5, N=9, D=8)
    want = eager_attention(q, k, v, mask=causal_mask(5, 9))
    contiguous = []

    def attend(*there, causal):
        assert all(x.shape[1] in (5, 9) for x in there), "tokens come before heads"
        contiguous.append(all(x.is_contiguous() for x in there))
        return in_their_layout(*there, causal=causal)

    packages(name, f"{PACKAGES[name].wanted}1", attend)
    for asked, own in ((name, True), (f"{name}{AS_OURS}", len(lead) < 2)):
        tensors = own_layout(asked, q, k, v)
        for x, given in zip((q, k, v), tensors, strict=True):
            torch.testing.assert_close(given, x)
        torch.testing.assert_close(resolve(asked)(*tensors, causal=True), want)
        torch.testing.assert_close(bind(asked, resolve(asked), *tensors, causal=True)(), want)
        assert contiguous == [own] * 2 or lead == (3,)
        contiguous.clear()
        assert version_of(asked) == f"{PACKAGES[name].told}{PACKAGES[name].wanted}1"
        assert not is_ours(asked)
    assert layout_of(name) == "[B, M, H, D]"
    assert layout_of(f"{name}{AS_OURS}") == layout_of("torch:cudnn") == "[B, H, M, D]"
    assert [layout_of("torch:softmax"), layout_of("flash_attention")] == ["", ""]


@pytest.mark.parametrize("name", NAMES)
def test_a_package_that_is_missing_or_another_is_named(name, packages):
    package = PACKAGES[name]
    with pytest.raises(Unavailable, match=f"^{package.distribution} is not installed$"):
        resolve(name)
    packages(name, "1.0.9")
    with pytest.raises(Unavailable, match=rf"1\.0\.9 is installed; version {package.wanted}\* is"):
        resolve(name)
    packages(name, f"{package.wanted}0", attend=None)
    with pytest.raises(Unavailable, match=r"\.0 cannot be imported: AttributeError: module"):
        resolve(name)


def test_another_name_is_still_an_error():
    with pytest.raises(ValueError, match="flash_attention_2, flash_attention_3, flash_attention_4"):
        resolve("torch:flashinfer")
    assert resolve("flash_attention_5") is None, "a room that may come"


# Before a time is taken, the result is looked at: some rows of the very case.


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lead", [(), (2, 3)])
def test_some_rows_tell_a_wrong_result(lead, causal):
    q, k, v = make_qkv(*lead, M=90, N=100, D=16)
    right = eager_attention(q, k, v, mask=causal_mask(90, 100) if causal else None)
    assert_some_rows(right, q, k, v, causal=causal)
    other = eager_attention(q, k, v, mask=None if causal else causal_mask(90, 100))
    for wrong in (other, right * 1.01, right.roll(1, -2), torch.full_like(right, torch.nan)):
        with pytest.raises(NumericalMismatch):
            assert_some_rows(wrong, q, k, v, causal=causal)
    with pytest.raises(NumericalMismatch, match="shape"):
        assert_some_rows(right[..., :-1, :], q, k, v, causal=causal)
    with pytest.raises(TrivialInputs):
        assert_some_rows(v.mean(-2, keepdim=True).expand(q.shape), q * 0, k, v)


@pytest.fixture
def lab(monkeypatch):
    """A lab whose clock says 1 ms of everything."""
    monkeypatch.setattr(session, "make_qkv", lambda *lead, device, **o: make_qkv(*lead, **o))
    monkeypatch.setattr(session, "time_interleaved", one_millisecond)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    properties = types.SimpleNamespace(L2_cache_size=4096)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    return Lab("gpu", flush="flushed")


def one_millisecond(calls, flush):
    return {name: Times([1.0] * 5) for name in calls}


def fails(q, k, v, causal=False):
    raise RuntimeError("no kernel image\nis available")


def mean(q, k, v, causal=False):
    return v.mean(1, keepdim=True).expand(q.shape)


def out_of_memory(q, k, v, causal=False):
    raise torch.cuda.OutOfMemoryError("tried to allocate 3 PiB")


@pytest.mark.parametrize(
    ("attend", "why"),
    [
        (fails, "fails: RuntimeError: no kernel image"),
        (mean, "wrong: largest difference"),
        (out_of_memory, "out of memory"),
    ],
)
def test_a_competitor_that_cannot_be_timed_is_a_row_and_the_rest_goes_on(
    attend, why, packages, lab
):
    packages("flash_attention_4", "4.0.0b36")
    packages("flash_attention_3", "0.0.3", attend)
    names = ["torch:sdpa", *NAMES]
    rows = {r["implementation"]: r for r in lab.time_attention(CASE, names)}
    assert set(rows) == set(names)
    assert rows["flash_attention_3"]["error"].startswith(why)
    assert rows["flash_attention_2"]["error"] == "flash-attn is not installed"
    timed = rows["flash_attention_4"]
    assert (timed["ms_p50"], timed["version"], timed.get("error")) == (1.0, "4.0.0b36", None)
    assert timed["layout"] == "[B, M, H, D]"
    assert rows["torch:sdpa"]["layout"] == "[B, H, M, D]"
    assert "version" not in rows["torch:sdpa"]
    assert not any("ms_p50" in r for r in rows.values() if r.get("error"))


def test_heads_may_share_keys(packages, lab):
    packages("flash_attention_3", "0.0.3")
    names = ["torch:sdpa", "torch:math", "flash_attention_3", "flash_attention_3:as ours"]
    shared = {**CASE, "heads": 6, "heads_kv": 2}
    rows = {r["implementation"]: r for r in lab.time_attention(shared, names)}
    layouts = ["[B, H, M, D]", "[B, H, M, D]", "[B, M, H, D]", "[B, H, M, D]"]
    assert {name: (r.get("error"), r.get("layout")) for name, r in rows.items()} == {
        name: (None, layout) for name, layout in zip(names, layouts, strict=True)
    }
    (whole,) = lab.time_attention({**shared, "heads_kv": 6}, names[:1])
    for row in rows.values():
        assert row["flops"] == whole["flops"]
        assert row["bytes_compulsory"] == whole["bytes_compulsory"] * (2 * 6 + 2 * 2) // (4 * 6)
        assert row["implementation"].startswith("torch") or row["version"] == "fa3-fwd 0.0.3"


def test_one_of_ours_that_fails_stops_the_result(lab, monkeypatch):
    monkeypatch.setattr(session, "resolve", lambda name: fails if name == "ours" else resolve(name))
    with pytest.raises(RuntimeError, match="no kernel image"):
        list(lab.time_attention(CASE, ["torch:sdpa", "ours"]))
