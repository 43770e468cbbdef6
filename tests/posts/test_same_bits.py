"""same_bits against float64; in the same bits on a GPU, in the same order of events anywhere."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from snippets._lab.judge.oracle import NumericalMismatch, assert_attention, causal_mask, make_qkv
from snippets.language_model.module import Config, LanguageModel, cast
from snippets.same_bits import bench, exercise, kernel, one_order, op
from snippets.same_bits.kernel import CHUNK, TILE, same_bits
from tests.refusals import assert_refused

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
HALF = torch.float16
LENGTHS = [1, 2, 15, 63, 64, 65, 129, 511, 512, 513, 600, *([1500, 4097, 8192] if ON_GPU else [])]


def make(B=1, H=4, G=1, M=3, N=70, D=16, dtype=HALF, seed=0):
    """q of H heads, k and v of H / G."""
    q, k, v = make_qkv(B, H, M=M, N=N, D=D, dtype=dtype, device=DEVICE, seed=seed)
    return q, *(x[:, : H // G].contiguous() for x in (k, v))


def on_pages(k, v, page):
    """Options and caches of the same keys and values on pages in another order, NaN elsewhere."""
    B, H, N, D = k.shape
    count = -(-N // page)
    order = torch.randperm(B * count, generator=torch.Generator().manual_seed(page)).to(DEVICE)
    caches = []
    for x in (k, v):
        room = F.pad(x, (0, 0, 0, count * page - N), value=float("nan"))
        cache = x.new_empty(B * count, H, page, D)
        cache[order] = room.unflatten(2, (count, page)).transpose(1, 2).flatten(0, 1)
        caches.append(cache)
    lengths = torch.full((B,), N, dtype=torch.int32, device=DEVICE)
    return caches, {"page_table": order.int().view(B, count), "cache_seqlens": lengths}


def check(q, k, v, found, *, causal=True):
    """Hold a result against float64."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    mask = causal_mask(q.shape[2], k.shape[2], device=q.device) if causal else None
    assert_attention(found, q, k, v, mask=mask)


def assert_same(found, want):
    """The same bits on a GPU. NumPy adds in another order for other sizes, and then a weight may be
    rounded to the other side: a unit of 16 bits.
    """
    if ON_GPU and not torch.equal(found, want):
        count = (found != want).sum().item()
        raise NumericalMismatch(f"{count} of {found.numel()} numbers have other bits")
    torch.testing.assert_close(found, want, rtol=2.0**-9, atol=2.0**-9)


@pytest.mark.numerical
@pytest.mark.parametrize("split", [False, True], ids=["one pass", "split"])
@pytest.mark.parametrize("N", LENGTHS)
def test_equals_float64(N, split):
    for M in {1, min(N, 7)}:
        q, k, v = make(G=2, M=M, N=N, D=32)
        check(q, k, v, same_bits(q, k, v, split=split))


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("D", [16, 64, 128])
def test_dtypes_and_widths(D, dtype):
    q, k, v = make(B=2, G=4, M=5, N=80, D=D, dtype=dtype)
    for split in (False, True):
        check(q, k, v, same_bits(q, k, v, split=split))
        check(q, k, v, same_bits(q, k, v, split=split, causal=False), causal=False)


@pytest.mark.numerical
def test_more_queries_than_keys_and_a_logsumexp():
    q, k, v = make(M=70, N=40)
    for split in (False, True):
        out, lse = same_bits(q, k, v, split=split, return_lse=True, scale=0.2)
        seen = causal_mask(70, 40, device=DEVICE)
        scores = (q.double() @ k.double().mT * 0.2).masked_fill(~seen, -torch.inf)
        # Its sum is of weights that were rounded to 16 bits.
        torch.testing.assert_close(lse.double(), scores.logsumexp(-1), rtol=0, atol=1e-3)
        assert (out[:, :, :30] == 0).all()
        assert (lse[:, :, :30] == -torch.inf).all()


def sizes(G, M, N, D, page):
    return {"G": G, "M": min(M, N), "N": N, "D": D, "page": page}


@pytest.mark.numerical
@pytest.mark.parametrize("N", LENGTHS if ON_GPU else [65, 513])
@pytest.mark.parametrize("G", [1, 4])
@pytest.mark.parametrize("D", [64, 128] if ON_GPU else [16])
def test_the_newest_queries_have_the_bits_of_the_whole_forward(D, G, N):
    q, k, v = make(G=G, M=N if ON_GPU else min(N, 80), N=N, D=D)
    whole, lse = same_bits(q, k, v, split=False, return_lse=True)
    calls = {"whole": ([k, v], {}), **{page: on_pages(k, v, page) for page in (16, 128)}}
    for M, split in itertools.product([1, 2, 7, 33, 64] if ON_GPU else [2, 33], [False, True]):
        for caches, options in calls.values():
            newest = q[:, :, max(0, q.shape[2] - M) :]
            found = same_bits(newest, *caches, **options, split=split, return_lse=True)
            assert_same(found[0], whole[:, :, -M:])
            assert_same(found[1], lse[:, :, -M:])


@pytest.mark.numerical
@pytest.mark.parametrize("split", [False, True], ids=["one pass", "split"])
def test_a_batch_of_lengths_beside_each_alone(split):
    q, k, v = make(B=6, G=4, M=3, N=600, D=16)
    lengths = torch.tensor([600, 3, 512, 513, 64, 599], dtype=torch.int32, device=DEVICE)
    found = same_bits(q, k, v, cache_seqlens=lengths, split=split)
    for b, N in enumerate(lengths.tolist()):
        q_b, k_b, v_b = q[b : b + 1], k[b : b + 1, :, :N], v[b : b + 1, :, :N]
        check(q_b, k_b, v_b, found[b : b + 1])
        assert_same(found[b : b + 1], same_bits(q_b, k_b, v_b, split=split))


@pytest.mark.numerical
@given(
    G=st.sampled_from([1, 2, 4]),
    M=st.integers(1, 70),
    N=st.integers(1, 150),
    D=st.sampled_from([16, 32]),
    causal=st.booleans(),
    split=st.sampled_from([None, False, True]),
    page=st.sampled_from([0, 16]),
)
def test_any_combination(G, M, N, D, causal, split, page):
    q, k, v = make(G=G, M=M, N=N, D=D)
    caches, options = on_pages(k, v, page) if page else ([k, v], {})
    check(q, k, v, same_bits(q, *caches, **options, causal=causal, split=split), causal=causal)


@pytest.mark.skipif(ON_GPU, reason="events are recorded in the interpreter")
def test_the_order_of_events(monkeypatch):
    """A row's tiles and merges are the same, in one order, in one pass and split."""
    events = []
    tile, merge = kernel._one_tile, kernel._merge

    def watched_tile(m_i, l_i, acc, q, k_tile, *rest):
        fresh = bool((m_i.handle.data == -torch.inf).all())
        events.append(("start" if fresh else "tile", int(k_tile.handle.data[0, 0])))
        return tile(m_i, l_i, acc, q, k_tile, *rest)

    def watched_merge(*states):
        events.append(("merge",))
        return merge(*states)

    monkeypatch.setattr(kernel, "_one_tile", watched_tile)
    monkeypatch.setattr(kernel, "_merge", watched_merge)
    N = 2 * CHUNK.value + TILE.value + 3
    q, _, v = make(H=1, M=1, N=N)
    k = torch.arange(N).half()[None, None, :, None].expand(1, 1, N, 16).contiguous()
    q.fill_(2.0**-10)

    def seen(split):
        events.clear()
        same_bits(q, k, v, split=split)
        return list(events)

    firsts = range(0, N, CHUNK.value)
    chunks = [range(first, min(first + CHUNK.value, N), TILE.value) for first in firsts]
    # What was before is merged, which for a first chunk is nothing; then its tiles in their order.
    each = [[("merge",), ("start", c[0]), *(("tile", x) for x in c[1:])] for c in chunks]
    assert seen(split=False) == [*itertools.chain(*each), ("merge",)]
    # Each program's last merge is of its own chunk with nothing; the other kernel merges them all.
    alone = [[*events, ("merge",)] for events in each]
    assert seen(split=True) == [*itertools.chain(*alone), *[("merge",)] * len(chunks)]


def nested(x):
    return torch.nested.nested_tensor([*x], layout=torch.jagged)


DENSE = "allowed: a dense torch.Tensor"
REFUSED = [
    ({"k_cache": nested}, TypeError(f"k_cache is nested; {DENSE}")),
    ({"k_cache": torch.Tensor.to_sparse}, TypeError(f"k_cache is torch.sparse_coo; {DENSE}")),
    ({"v_cache": list}, TypeError(f"v_cache is <class 'list'>; {DENSE}")),
    ({"q": torch.Tensor.double}, TypeError("q is torch.float64; allowed")),
    ({"k_cache": torch.Tensor.float}, TypeError("k_cache is torch.float32 on")),
    ({"q": torch._neg_view}, ValueError("q is a negated view; allowed: q.resolve_neg()")),
    ({"q": lambda x: x.mT}, ValueError("q has strides (192, 48, 1, 16); allowed: the last 1")),
    ({"q": lambda x: x[0]}, ValueError("q has shape (4, 3, 16); allowed: 4 dimensions")),
    ({"q": lambda x: x.clone().requires_grad_()}, ValueError("q requires grad")),
    ({"v_cache": lambda x: x[:, :, :9]}, ValueError("v_cache has shape (1, 4, 9, 16); allowed")),
    ({"q": lambda x: x[:, :3]}, ValueError("q has 3 heads and k 4; allowed: a multiple of k's")),
    (dict.fromkeys("qkv", lambda x: x[..., :8]), ValueError("q has 8 columns; allowed: 16, 32")),
    ({"cache_seqlens": 70}, TypeError("cache_seqlens is <class 'int'>; allowed: a dense")),
    ({"cache_seqlens": torch.tensor([70])}, TypeError("cache_seqlens is torch.int64; allowed")),
    (
        {"page_table": torch.ones(1, dtype=torch.int32)},
        ValueError("page_table has shape (1,) on cpu; allowed: (1, 'pages') on"),
    ),
    ({"causal": 1}, TypeError("causal is 1; allowed: True, False")),
    ({"split": 2}, TypeError("split is 2; allowed: True, False, None")),
    ({"scale": "1"}, TypeError("scale is '1'; allowed: a number or None")),
    ({"scale": 3.0}, ValueError("scale is 3.0; allowed: 2^-64 to 1")),
]


@pytest.mark.filterwarnings("ignore:.*prototype stage:UserWarning")  # of nested tensors
@pytest.mark.parametrize(("changes", "error"), REFUSED, ids=[str(e) for _, e in REFUSED])
def test_refusals(changes, error):
    given = dict(zip(("q", "k_cache", "v_cache"), make(), strict=True))
    for name, change in changes.items():
        name = {"k": "k_cache", "v": "v_cache"}.get(name, name)
        given[name] = change(given[name]) if callable(change) else change
    assert_refused(error, same_bits, **given)


def test_tensors_that_start_anywhere_are_loaded_without_tma():
    """An odd address or stride: the same result, by pointers."""
    q, k, v = make(D=32)
    want = same_bits(q, k, v)
    for x in (k, v):
        odd = torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)
        wide = F.pad(x, (0, 3))[..., :32]
        for other in (odd, wide):
            assert not kernel._can_use_tma(other)
            caches = [other if y is x else y for y in (k, v)]
            assert torch.equal(same_bits(q, *caches), want)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("M", [1, 3, 64, 65])
def test_a_product_of_fixed_tiles(M, dtype):
    generator = torch.Generator().manual_seed(M)
    x, w = (
        torch.randn(*shape, generator=generator).to(DEVICE, dtype) for shape in ((M, 70), (90, 70))
    )
    found = one_order.linear(x, w)
    want = x.double() @ w.double().T
    # One rounding of the result, and 70 additions in float32.
    allowed = torch.finfo(dtype).eps * want.abs() + 70 * 2.0**-23 * (
        x.double().abs() @ w.double().abs().T
    )
    assert ((found.double() - want).abs() <= allowed).all()
    assert_same(one_order.linear(x[-1:], w), found[-1:])
    with pytest.raises(ValueError, match="allowed: one dtype"):
        one_order.linear(x, w[:, :9])


@pytest.mark.numerical
def test_norms_and_log_softmax_of_one_row():
    generator = torch.Generator().manual_seed(0)
    x = 5 * torch.randn(7, 3, 48, generator=generator).to(DEVICE)
    weight = torch.randn(48, generator=generator).to(DEVICE)
    norm = one_order.rms_norm(x, (48,), weight, 1e-6)
    wanted = F.rms_norm(x.double(), (48,), weight.double(), 1e-6)
    torch.testing.assert_close(norm.double(), wanted, rtol=1e-5, atol=1e-6)
    assert torch.equal(one_order.rms_norm(x[2:3], (48,), weight, 1e-6), norm[2:3])
    logs = one_order.log_softmax(x)
    torch.testing.assert_close(logs.double(), x.double().log_softmax(-1), rtol=1e-5, atol=1e-5)
    assert torch.equal(one_order.log_softmax(x[2:3]), logs[2:3])


@pytest.mark.numerical
@pytest.mark.parametrize(("M", "N", "causal"), [(70, 70, True), (5, 90, True), (33, 70, False)])
def test_gradients(M, N, causal):
    """Of groups of heads, against float64; of one sequence alone the same bits as in a batch."""
    q, k, v = make(B=2, G=2, M=M, N=N, D=32)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    grad_out = torch.randn(q.shape, generator=torch.Generator().manual_seed(1)).to(q)
    out = op.attention(*leaves, causal=causal)
    found = torch.autograd.grad(out, leaves, grad_out)
    mask = causal_mask(M, N, device=q.device) if causal else None
    op.assert_gradients(found, *(x.detach() for x in leaves), grad_out, mask=mask)
    with torch.no_grad():
        assert torch.equal(out, same_bits(q, k, v, causal=causal))
    alone = op.attention(*(x[1:] for x in leaves), causal=causal)
    for x, y in zip(torch.autograd.grad(alone, leaves, grad_out[1:]), found, strict=True):
        assert torch.equal(x[1:], y[1:])


def test_the_op_is_one_for_compile_and_opcheck():
    leaves = [x.requires_grad_() for x in make(M=9, N=9)]
    options = {"causal": True, "forward": "same_bits"}
    torch.library.opcheck(torch.ops.attention_measured.attend, leaves, options)
    run = lambda q, k, v: op.attention(q, k, v, scale=0.3) * 2  # noqa: E731
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    outs = [f(*leaves) for f in (run, compiled)]
    grads = [torch.autograd.grad(out.sum(), leaves) for out in outs]
    assert torch.equal(*outs)
    assert all(torch.equal(x, y) for x, y in zip(*grads, strict=True))
    with pytest.raises(ValueError, match="align is 'top_left'"):
        op.attention(leaves[0][:, :, :3], *leaves[1:], align="top_left")


@pytest.mark.skipif(ON_GPU, reason="ranks of a CPU; those of GPUs are the bench's")
def test_a_ring_beside_itself_and_beside_one_gpu():
    """Rows that see the first step's keys only don't know of the ring, which the others do."""
    with op.Ranks(2) as ranks:
        rows = [*itertools.chain(*ranks.run(op.on_a_rank, "cpu", HALF, 256, 16))]
    assert {(row["change"], row["chunk"]) for row in rows} == set(
        itertools.product(["batch", "position", "splits", "repeated"], range(4))
    )
    differ = {(row["change"], row["chunk"]) for row in rows if row["differ"]}
    assert differ == {("splits", chunk) for chunk in (1, 2, 3)}


def fake_fa4(q, k, v, *, causal, deterministic, page_table=None, seqused_k=None):
    """Called as FlashAttention-4 is: [B, M, H, D], or [pages, keys, Hkv, D] and a table."""
    assert causal
    assert not deterministic
    if page_table is not None:
        k, v = (x[page_table[0].long()].flatten(0, 1)[None, : seqused_k[0]] for x in (k, v))
    out = bench.eager(*(x.transpose(1, 2).double() for x in (q, k, v)))
    return out.transpose(1, 2).to(q.dtype), None


def test_another_package_is_called_in_its_own_layout(monkeypatch):
    """For each column that it has, two results that differ by one rounding at most."""
    package = SimpleNamespace(function=lambda name="": fake_fa4)
    monkeypatch.setattr(bench, "PACKAGES", {bench.FA4: package})
    monkeypatch.setattr(bench, "CALLS", 2)
    tensors = bench._problem(16, 320, 16, DEVICE)
    asked = set()
    for change in bench.COLUMNS:
        for found, want in bench._changed(bench.FA4, change, *tensors):
            torch.testing.assert_close(found, want, rtol=2.0**-7, atol=0)
            asked.add(change)
    assert set(bench.COLUMNS) - asked == {"splits"}
    check(*tensors, bench._call(bench.FA4, *tensors))


def test_every_rung_replaces_what_it_names():
    """The model samples and scores on every rung; each replaced function is called, no other."""
    config = Config(32, 2, 4, 2, 16, 64, 40)
    model = cast(LanguageModel(config, dtype=torch.bfloat16 if ON_GPU else HALF).to(DEVICE))
    prompt = torch.randint(256, (2, 5), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    for name, rung in op.RUNGS.items():
        called = set()

        def spy(replacement, called=called):
            return lambda *x, **o: called.add(replacement) or replacement(*x, **o)

        watched = rung._replace(replaced={f: spy(new) for f, new in rung.replaced.items()})
        tokens, sampled = op.rollout(model, prompt, 9, watched)
        assert called == set(rung.replaced.values()), name
        scored = op.score(model, tokens, 9, watched)
        assert (sampled < 0).all()
        exact = ON_GPU and name == "+ log-softmax"
        torch.testing.assert_close(scored, sampled, rtol=0, atol=0 if exact else 0.02)


def test_a_step_in_a_graph_begins_at_the_same_length():
    model = LanguageModel(Config(32, 1, 4, 2, 16, 64, 40), dtype=HALF).to(DEVICE)
    tokens = torch.randint(256, (2, 9), device=DEVICE)
    call = op.one_step(model, tokens, op.RUNGS["attention"])
    assert torch.equal(call(), call())


def test_a_change_is_one_change():
    """Every experiment finds the code that it replaces, and still computes attention."""
    q, k, v = make(N=600, G=4)
    for name, changes in bench.CHANGES.items():
        changed = bench.variant("same_bits", changes)
        for split in (False, True):
            check(q, k, v, changed(q, k, v, split=split))
        assert name == "nothing" or changes


def test_the_answer_of_the_exercise():
    x = torch.randn(3, 70, device=DEVICE)
    found = exercise.row_sums(x, 16, 8)
    torch.testing.assert_close(found.double(), x.double().sum(1), rtol=1e-5, atol=1e-5)
    assert torch.equal(exercise.row_sums(x[1:2].contiguous(), 16, 8), found[1:2])
