"""multi_head_attention against PyTorch in float64, with masks and gradients; what it refuses."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from snippets._lab.judge.oracle import NumericalMismatch
from snippets._lab.measure.session import Lab
from snippets._lab.results import store
from snippets._lab.rooms import DATA
from snippets.multi_head_attention import bench, exercise, module
from snippets.multi_head_attention.checks import assert_same
from snippets.multi_head_attention.module import (
    AttentionHead,
    MultiHeadAttention,
    MultiHeadAttentionVectorized,
)
from tests.floors import some
from tests.refusals import assert_refused, each_refusal

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
OPTIONS = {"dtype": torch.float64, "device": DEVICE}
FORMS = ["loop", "vectorized", "fused"]


def make(E=24, heads=3, head_dim=None, seed=0):
    """The three forms with the same weights, three times as wide as usual, and biases not 0."""
    torch.manual_seed(seed)
    loop = MultiHeadAttention(E, heads, head_dim).to(**OPTIONS)
    with torch.no_grad():
        for weight in loop.parameters():
            weight.mul_(3)
    vectorized = MultiHeadAttentionVectorized.from_heads(loop)
    fused = exercise.MultiHeadAttentionFused.from_separate(vectorized)
    return {"loop": loop, "vectorized": vectorized, "fused": fused}


def tokens(B=2, N=5, E=24, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, N, E, generator=generator, dtype=torch.float64).to(DEVICE)


def masks(B, N):
    """name → mask: none, causal, padding of the last tokens, both, and one with a blind query."""
    causal = torch.ones(N, N, device=DEVICE).tril().bool()  # [N, N]
    lengths = torch.arange(N, N - B, -1, device=DEVICE).clamp(min=1)  # [B]
    padding = (torch.arange(N, device=DEVICE) < lengths[:, None])[:, None]  # [B, 1, N]
    blind = causal.expand(B, N, N).clone()
    blind[-1, N // 2] = False
    return {
        "none": None,
        "causal": causal,
        "padding": padding,
        "both": causal & padding,
        "blind query": blind,
        "integers": causal.int(),
        "of a batch of one": causal[None],
    }


def pytorch(loop, x, mask=None):
    """The same layer written with PyTorch's fused attention, in float64, one head at a time."""
    if mask is not None:
        mask = mask.bool()
        mask = mask if mask.dim() == 2 else mask.expand(x.shape[0], x.shape[1], -1)
    outs = []
    for head in loop.heads:
        q, k, v = (x @ getattr(head, name).weight.mT for name in ("W_q", "W_k", "W_v"))
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask)  # True: visible
        if mask is not None:  # a query that sees nothing: zeros, whatever PyTorch's backend says
            out = out.masked_fill(~mask.any(-1, keepdim=True), 0.0)
        outs.append(out)
    return torch.cat(outs, -1) @ loop.W_o.weight.mT + loop.W_o.bias


def assert_layer(out, loop, x, mask=None):
    """Raise NumericalMismatch unless `out` is what PyTorch gives, up to the order of its sums.

    A sum of n terms is off by at most n·eps of the sum of their sizes, and a score of size S makes
    its weight off by S·eps: allowed is the sum of both for the longest path through a layer.
    """
    want = pytorch(loop, x, mask)
    values = max((x.abs() @ head.W_v.weight.abs().mT).max().item() for head in loop.heads)
    scores = max(
        ((x @ h.W_q.weight.mT).abs() @ (x @ h.W_k.weight.mT).abs().mT).max().item() * h.scale
        for h in loop.heads
    )
    largest = values * loop.W_o.weight.abs().sum(-1).max().item() + loop.W_o.bias.abs().max().item()
    terms = 2 * x.shape[2] + x.shape[1] + loop.W_o.weight.shape[1]
    assert_same(out, want, slack=(terms + scores) * torch.finfo(x.dtype).eps * largest)


@pytest.mark.numerical
@pytest.mark.parametrize("mask", masks(2, 5))
@pytest.mark.parametrize("form", FORMS)
def test_equals_pytorch(form, mask):
    modules, x, mask = make(), tokens(), masks(2, 5)[mask]
    assert_layer(modules[form](x, mask), modules["loop"], x, mask)


@pytest.mark.numerical
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("E", "heads", "head_dim"), [(8, 1, None), (8, 8, None), (7, 3, 5)])
@pytest.mark.parametrize("N", [1, 2, 17])
def test_sizes(form, E, heads, head_dim, N):
    modules, x = make(E, heads, head_dim), tokens(B=1, N=N, E=E)
    assert_layer(modules[form](x), modules["loop"], x)


@pytest.mark.numerical
@given(
    B=st.integers(1, 3),
    N=st.integers(1, 40),
    E=st.integers(1, 20),
    heads=st.integers(1, 5),
    head_dim=st.integers(1, 20),
    name=st.sampled_from(sorted(masks(3, 5))),
    form=st.sampled_from(FORMS),
    seed=st.integers(0, 99),
)
def test_any_size(B, N, E, heads, head_dim, name, form, seed):
    modules, x, mask = make(E, heads, head_dim, seed), tokens(B, N, E, seed), masks(B, N)[name]
    assert_layer(modules[form](x, mask), modules["loop"], x, mask)


@pytest.mark.numerical
@pytest.mark.parametrize("form", FORMS)
def test_a_transposed_input(form):
    modules, x = make(), tokens().mT.contiguous().mT
    assert not x.is_contiguous()
    assert_layer(modules[form](x), modules["loop"], x)


@pytest.mark.numerical
@pytest.mark.parametrize("mask", ["none", "causal", "padding", "both"])
@pytest.mark.parametrize("form", FORMS)
def test_equals_the_module_of_pytorch(form, mask):
    modules, x, mask = make(), tokens(), masks(2, 5)[mask]
    theirs = modules["vectorized"].as_torch()
    hidden = None if mask is None else ~mask  # there True hides
    if hidden is not None and hidden.dim() == 3:
        hidden = hidden.expand(2, 5, 5).repeat_interleave(3, dim=0)  # and there it is [B·H, N, N]
    want = theirs(x, x, x, attn_mask=hidden, need_weights=False)[0]
    assert_same(modules[form](x, mask), want, slack=rounding(want))


def rounding(want):
    """What the order of a few hundred additions may change in results of this size."""
    return 1000 * torch.finfo(want.dtype).eps * want.abs().max().item()


@pytest.mark.numerical
@pytest.mark.parametrize("mask", ["none", "both", "blind query"])
def test_gradients_equal_pytorch(mask):
    modules, x, mask = make(), tokens().requires_grad_(), masks(2, 5)[mask]
    sent_back = tokens(seed=2)
    gradients = {}
    for form, layer in [*modules.items(), ("PyTorch", None)]:
        weights = dict((layer or modules["loop"]).named_parameters())
        out = layer(x, mask) if layer else pytorch(modules["loop"], x, mask)
        found = torch.autograd.grad(out, [x, *weights.values()], sent_back)
        gradients[form] = stacked(dict(zip(["x", *weights], found, strict=True)))
    for form in FORMS:
        for name, want in gradients["PyTorch"].items():
            assert_same(gradients[form][name], want, slack=rounding(want))


def stacked(found):
    """Gradients under the names of the vectorized form, the heads' or parts' put together."""
    if "W_qkv.weight" in found:
        parts = found.pop("W_qkv.weight").chunk(3)
        return found | {f"{n}.weight": p for n, p in zip(module.PROJECTIONS, parts, strict=True)}
    for name in module.PROJECTIONS:
        of_heads = [n for n in found if n.endswith(f".{name}.weight")]
        if of_heads:
            found[f"{name}.weight"] = torch.cat([found.pop(n) for n in of_heads])
    return found


@pytest.mark.numerical
def test_gradients_equal_the_module_of_pytorch():
    vectorized, x = make()["vectorized"], tokens().requires_grad_()
    theirs, sent_back = vectorized.as_torch(), tokens(seed=2)
    wanted = [theirs.in_proj_weight, theirs.out_proj.weight, theirs.out_proj.bias]
    out = theirs(x, x, x, need_weights=False)[0]
    want_x, want_in, *want_out = torch.autograd.grad(out, [x, *wanted], sent_back)
    weights = [x, *vectorized.parameters()]
    g_x, q, k, v, *g_out = torch.autograd.grad(vectorized(x), weights, sent_back)
    pairs = [(g_x, want_x), (torch.cat([q, k, v]), want_in), *zip(g_out, want_out, strict=True)]
    for found, want in pairs:
        assert_same(found, want, slack=rounding(want))


@pytest.mark.numerical
@pytest.mark.parametrize("form", FORMS)
def test_a_query_that_sees_nothing_gives_zeros(form):
    layer, x, mask = make()[form], tokens().requires_grad_(), torch.ones(5, 5, device=DEVICE).int()
    mask[3] = 0
    out = layer(x, mask)
    assert_same(out[:, 3], layer.W_o.bias.expand(2, -1), slack=0.0)  # W_o of zeros
    assert not torch.autograd.grad(out.sum(), x)[0].isnan().any()


def test_the_module_of_pytorch_gives_nan():
    theirs, x = make()["vectorized"].as_torch(), tokens()
    hidden = torch.zeros(5, 5, device=DEVICE).bool()
    hidden[3] = True
    out, _ = theirs(x, x, x, attn_mask=hidden)
    assert out[:, 3].isnan().all()
    assert not out[:, :3].isnan().any()


@pytest.mark.numerical
def test_one_head_that_sees_nothing_gives_zeros():
    torch.manual_seed(0)
    head, x = AttentionHead(8, 4).to(**OPTIONS), tokens(E=8)
    mask = torch.ones(5, 5, device=DEVICE).tril(-1).bool()  # query 0 sees no key
    out = head(x, mask)
    assert_same(out[:, 0], torch.zeros(2, 4, **OPTIONS), slack=0.0)
    assert_same(out[:, 1], head.W_v(x)[:, 0], slack=rounding(out))  # it sees one


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_low_precision_has_no_nan(dtype):
    x = tokens().to(dtype)
    for layer in some(make().values()):
        for mask in some(masks(2, 5).values()):
            assert layer.to(dtype)(x, mask).isfinite().all()


def test_inputs_stay_as_they_were():
    x, mask = tokens(), masks(2, 5)["both"]
    kept = x.clone(), mask.clone()
    for layer in make().values():
        layer(x, mask)
    assert torch.equal(x, kept[0])
    assert torch.equal(mask, kept[1])


def test_copies_share_no_memory_and_keep_the_dtype():
    modules, x = make(), tokens()
    before = modules["vectorized"](x)
    for weight in modules["loop"].parameters():
        weight.data.zero_()
    assert torch.equal(modules["vectorized"](x), before)
    weights = [w for m in modules.values() for w in m.parameters()]
    assert all(w.dtype == torch.float64 for w in some(weights, len(modules)))


def test_projections_have_no_bias_and_the_last_one_has():
    for layer in some(make().values()):
        assert [n for n, _ in layer.named_parameters() if n.endswith("bias")] == ["W_o.bias"]


REFUSED = {
    ValueError: {
        "embed_dim is 10, which 3 heads cannot": lambda: MultiHeadAttention(10, 3),
        "or give head_dim": lambda: MultiHeadAttentionVectorized(10, 4),
        "num_heads is 0; it must be at": lambda: MultiHeadAttention(8, 0),
        "embed_dim is -8": lambda: AttentionHead(-8, 4),
        "head_dim is 0": lambda: MultiHeadAttention(8, 2, 0),
        "num_heads * head_dim must be embed_dim, 2 * 3 is not 8": (
            lambda: MultiHeadAttentionVectorized(8, 2, 3).as_torch()
        ),
    },
    TypeError: {
        "num_heads has type float; it must be an": lambda: MultiHeadAttention(8, 0.5),
        "num_heads has type bool": lambda: MultiHeadAttention(8, True),
    },
}


@each_refusal(REFUSED)
def test_refused_sizes(error, change):
    assert_refused(error, change)


X = torch.ones(2, 5, 24, dtype=torch.float64)
REFUSED_INPUTS = {  # x and a mask
    TypeError: {
        "x has type list": ([1.0], None),
        "x is torch.sparse_coo; it must be dense": (X.to_sparse(), None),
        "mask is torch.sparse_coo; it must be dense": (X, torch.ones(5, 5).bool().to_sparse()),
        "x is torch.float32 but the weights are torch.f": (X.float(), None),
        "mask has type list; it must be a torch.Tensor or None": (X, [[1]]),
        "mask is torch.float32; bool and integers": (X, torch.ones(5, 5)),
    },
    ValueError: {
        "x has shape (5, 24); [B, N, 24] is allowed": (X[0], None),
        "x has shape (2, 5, 23); [B, N, 24]": (X[..., :23], None),
        "x has shape (2, 0, 24); no dimension may be 0": (X[:, :0], None),
        "x is on meta but the weights are on": (X.to("meta"), None),
        "mask is on meta": (X, torch.ones(5, 5, device="meta").bool()),
        "mask has shape (2, 5); allowed are (5, 5), (2, 5, 5) and, for padding, (2, 1, 5)": (
            X,
            torch.ones(2, 5).bool(),
        ),
        "mask has shape (2, 3, 5, 5": (X, torch.ones(2, 3, 5, 5).bool()),
        "mask has shape (3, 5, 5)": (X, torch.ones(3, 5, 5).bool()),
        "mask has shape (5, 1)": (X, torch.ones(5, 1).bool()),
    },
}


@pytest.mark.parametrize("form", [*FORMS, "head"])
@each_refusal(REFUSED_INPUTS)
def test_refused_inputs(error, change, form):
    layer = AttentionHead(24, 8).to(**OPTIONS) if form == "head" else make()[form]
    x, mask = (
        t.to(DEVICE) if isinstance(t, torch.Tensor) and t.device.type == "cpu" else t
        for t in change
    )
    assert_refused(error, layer, x, mask)


# What the page measures: on a GPU for real, here with a stand-in that calls everything once.


def test_work_of_a_layer():
    size = {"B": 2, "N": 3, "E": 4}
    projections, scores = 4 * 2 * (2 * 3) * 4 * 4, 2 * 2 * 2 * 3 * 3 * 4
    weights = 4 * 4 * 4
    assert bench._work_of(size, "forward") == (projections + scores, 2 * (2 * 24 + weights))
    flops, count = bench._work_of(size, "forward and backward")
    assert (flops, count) == (3 * (projections + scores), 2 * 2 * (2 * 24 + weights))


def test_products_multiply_what_they_say(monkeypatch):
    monkeypatch.setattr(bench, "BATCH", 4)
    monkeypatch.setattr(bench, "BATCH_HEADS", 2)
    monkeypatch.setattr(bench, "TOKENS", 6)
    for operation, flops, numbers in (
        ("scores", 2 * 8 * 6 * 6 * 5, 8 * (6 * 5 + 6 * 5 + 6 * 6)),
        ("values", 2 * 8 * 6 * 6 * 5, 8 * (6 * 5 + 6 * 5 + 6 * 6)),
        ("attention", 4 * 8 * 6 * 6 * 5, 8 * 4 * 6 * 5),
    ):
        case = {"operation": operation, "D": 5, "dtype": "float32"}
        calls, found, count = bench._products(case, DEVICE)
        assert (found, count) == (flops, 4 * numbers)
        outs = [call() for call in calls.values()]
        assert outs[0].shape == ((4, 2, 6, 6) if operation == "scores" else (4, 2, 6, 5))
        assert len(outs) == (1 if operation == "attention" else 2)
    assert torch.backends.cuda.matmul.allow_tf32 is False


@pytest.mark.parametrize("device", [DEVICE])
def test_check_passes_and_sees_a_wrong_form(device, monkeypatch):
    bench.check(device)
    monkeypatch.setattr(bench.WithSDPA, "attend", lambda self, q, k, v, mask=None: v)
    with pytest.raises(NumericalMismatch):
        bench.check(device)


@pytest.mark.skipif(ON_GPU, reason="these results come from a CPU")
@pytest.mark.parametrize("name", ["contiguity", "heads"])
def test_published_evidence_is_what_the_code_gives(name):
    published = store.read(store.path_of("interpreter", "multi_head_attention", name), DATA)
    if published.versions["torch"] != torch.__version__:
        pytest.skip(f"recorded with torch {published.versions['torch']}")
    assert list(getattr(bench, name)(Lab("interpreter"))) == published.rows


def test_view_after_transpose_raises_and_contiguous_copies():
    out = torch.zeros(2, 3, 5, 4)  # [B, H, N, D]
    turned = out.transpose(1, 2)  # [B, N, H, D]
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        turned.view(2, 5, 12)
    copied = turned.contiguous()
    assert copied.data_ptr() != out.data_ptr()
    assert copied.view(2, 5, 12).shape == (2, 5, 12)


def test_conventions_say_the_same_and_differ_on_a_blind_query():
    rows = {r["convention"]: r for r in bench.masks(Lab("interpreter"))}
    assert all(r["difference"] < 1e-12 for r in some(rows.values()))
    assert rows["this page"]["hidden_row"] == "zeros"
    assert rows["nn.MultiheadAttention"]["hidden_row"] == "NaN"
    assert "raised" in rows["this page"]["given_float"]
    assert rows["SDPA, bool"]["given_float"]["difference"] > 0.1


def test_behavior_of_known_heads():
    ahead, equal = torch.zeros(4, 4).double(), torch.full((4, 4), 0.25).double()
    ahead[range(4), [0, 0, 1, 2]] = 1.0  # the token before; the first itself
    found = bench._behaviour(torch.stack([ahead, equal]), 0)
    assert found["to_previous"] == 1.0
    assert found["entropy_relative"] == 0.0
    assert found["distance_strongest"] == found["distance_mean"] == 0.75
    assert found["elsewhere"] == pytest.approx(0.75)
    assert bench._behaviour(torch.stack([ahead, equal]), 1)["entropy_relative"] == pytest.approx(
        1.0
    )
