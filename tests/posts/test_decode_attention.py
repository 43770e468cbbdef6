"""decode_attention against float64; what it reads and refuses; its splits; and cache_append."""

import itertools
import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import flex_attention

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import NumericalMismatch
from snippets._lab.measure.competitors import Package
from snippets._lab.measure.session import Lab
from snippets._lab.probe.compiled import SHARED_LIMIT, Compiler
from snippets.decode_attention import bench, kernel
from snippets.decode_attention.bench import flex_paged
from snippets.decode_attention.cache import check_cache
from snippets.decode_attention.checks import (
    BAD_PAGE,
    Cache,
    assert_appended,
    assert_decoded,
    make_cache,
    quantize,
    quantized,
    sequence,
    with_sinks,
)
from snippets.decode_attention.kernel import SPLIT_KEYS, cache_append, decode_attention, split_rule
from tests.floors import some
from tests.refusals import assert_refused, each_refusal

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def make(lengths, **options):
    return make_cache(lengths, device=DEVICE, **options)


def decode(cache, **options):
    return decode_attention(cache.q, cache.k, cache.v, **cache.options(), **options)


def check(cache, *, scale=None, **options):
    out, lse = decode(cache, scale=scale, return_lse=True, **options)
    assert_decoded(out, cache, scale=scale, lse=lse)
    return out


@pytest.mark.numerical
@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("lengths", [[1, 2], [63, 64], [65, 127], [129, 200]], ids=str)
def test_awkward_lengths(lengths, num_splits):
    check(make(lengths), num_splits=num_splits)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("D", [64, 128, 256])
def test_dtypes_and_head_dimensions(D, dtype):
    check(make([70], heads=(2, 1), D=D, dtype=dtype), num_splits=2)


@pytest.mark.numerical
@pytest.mark.parametrize("D", [1, 40, 72])
def test_head_dimensions_that_are_no_power_of_two(D):
    check(make([70], heads=(2, 2), D=D), num_splits=2)


@pytest.mark.numerical
@pytest.mark.parametrize(
    ("M", "heads"), [(1, (1, 1)), (1, (8, 1)), (2, (6, 2)), (3, (7, 1)), (17, (2, 1)), (64, (3, 1))]
)
def test_groups_and_new_tokens(M, heads):
    """Rows that fill no block, and that fill several."""
    check(make([90, M], M=M, heads=heads), num_splits=2)


@pytest.mark.numerical
@pytest.mark.parametrize("page", [1, 16, 64, 256])
def test_pages(page):
    check(make([1, 130, 64], M=1, page=page, dtype=torch.float16), num_splits=3)


@pytest.mark.numerical
@pytest.mark.parametrize("page", [0, 16])
def test_sequences_of_very_different_lengths(page):
    """Short ones have splits without a key, and one has no key at all."""
    cache = make([0, 1, 5, 200], M=1, page=page)
    check(cache, num_splits=5)
    check(cache, num_splits=1)


@pytest.mark.numerical
@pytest.mark.parametrize("length", [1, 2, 5])
def test_new_tokens_before_the_first_key_get_zeros(length):
    """A length that counts fewer keys than there are new tokens: the first ones see none."""
    cache = make([length, 40], M=5, heads=(2, 1))
    for num_splits in (1, 2):
        out, lse = decode(cache, num_splits=num_splits, return_lse=True)
        assert_decoded(out, cache, lse=lse)
        hidden = slice(0, max(0, 5 - length))
        if not (bool((out[0, :, hidden] == 0).all()) and bool(lse[0, :, hidden].isneginf().all())):
            raise NumericalMismatch("a token without keys has a result")


@pytest.mark.numerical
def test_without_lengths_every_cache_is_full():
    for page in (0, 16):
        cache = make([96, 96], page=page)
        out = decode_attention(cache.q, cache.k, cache.v, page_table=cache.table, num_splits=2)
        assert_decoded(out, cache)


def transposed(x):
    """[B, Hkv, N, D] in [B, N, Hkv, D] memory: FlashAttention's layout."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def sliced(x):
    """Every second row of a tensor with twice the columns."""
    return torch.cat([x, x], -1).repeat_interleave(2, 2)[:, :, ::2, : x.shape[-1]]


def columns_apart(x):
    return x.mT.contiguous().mT


@pytest.mark.numerical
@pytest.mark.parametrize("layout", [transposed, sliced, columns_apart], ids=lambda f: f.__name__)
@pytest.mark.parametrize("page", [0, 16])
def test_strides_are_honoured(page, layout):
    cache = make([70, 33], M=2, page=page)
    q, k, v = (layout(x) for x in cache[:3])
    lengths = torch.stack([cache.lengths, -cache.lengths], 1)[:, 0]
    table = None if not page else torch.stack([cache.table, -cache.table], 2)[:, :, 0]
    assert not k.is_contiguous()
    assert lengths.stride() == (2,)
    check(Cache(q, k, v, lengths, table), num_splits=2)


@pytest.mark.numerical
def test_scale_and_large_scores():
    cache = make([150], heads=(2, 1))
    check(cache, scale=0.3, num_splits=2)
    unit = [x / x.norm(dim=-1, keepdim=True) for x in (cache.q, cache.k)]
    check(cache._replace(q=unit[0] * 300, k=unit[1] * 300), scale=1.0, num_splits=2)


@pytest.mark.numerical
@given(
    lengths=st.lists(st.integers(0, 140), min_size=1, max_size=3),
    M=st.integers(1, 9),
    heads=st.sampled_from([(1, 1), (4, 2), (5, 1)]),
    page=st.sampled_from([0, 1, 8, 32]),
    num_splits=st.integers(0, 6),
    dtype=st.sampled_from(DTYPES),
    left=st.sampled_from([None, 0, 9, 64, 200]),
    also=st.lists(st.sampled_from([with_sinks, quantized]), unique=True),
)
def test_any_cache(lengths, M, heads, page, num_splits, dtype, left, also):
    cache = make(lengths, M=M, heads=heads, page=page, dtype=dtype, D=16)._replace(window=(left, 0))
    for change in also:
        cache = change(cache)
    check(cache, num_splits=num_splits)


# Windows, sinks and caches in float8.


@pytest.mark.numerical
@pytest.mark.parametrize("left", [0, 1, 63, 64, 129])
@pytest.mark.parametrize("page", [0, 16])
def test_a_window(page, left):
    """One that begins and ends within a tile, with splits and without."""
    cache = make([200, 65, 2], M=3, heads=(6, 2), D=16, page=page)._replace(window=(left, None))
    for num_splits in (1, 2):
        check(cache, num_splits=num_splits)


def forgotten(cache):
    """The cache, and NaN and infinity where no token's window reaches; such pages do not exist."""
    k, v, table = (x if x is None else x.clone() for x in (cache.k, cache.v, cache.table))
    for b, length in enumerate(cache.lengths.tolist()):
        first = max(0, length - cache.q.shape[2] - cache.window[0])
        if table is None:
            k[b, :, :first], v[b, :, :first] = math.inf, math.nan
            continue
        page, whole_pages = k.shape[2], first // k.shape[2]
        for n in range(first):
            k[table[b, n // page], :, n % page] = math.nan
            v[table[b, n // page], :, n % page] = math.inf
        table[b, :whole_pages] = torch.tensor([BAD_PAGE, -1]).repeat(whole_pages)[:whole_pages]
    return cache._replace(k=k, v=v, table=table)


@pytest.mark.numerical
@pytest.mark.parametrize("batch_invariant", [False, True])
@pytest.mark.parametrize("page", [0, 4, 128])
def test_what_lies_before_the_window_changes_no_bit(page, batch_invariant):
    """The first sequence's window begins in its second split of 1,024 keys."""
    cache = make([1_500, 40, 130], M=2, heads=(2, 1), D=16, page=page, dtype=torch.float16)
    cache = with_sinks(cache)._replace(window=(77, 0))
    out = check(cache, batch_invariant=batch_invariant)
    if not torch.equal(decode(forgotten(cache), batch_invariant=batch_invariant), out):
        raise NumericalMismatch("what no token sees changed the result")


@pytest.mark.numerical
def test_options_that_hide_nothing_change_no_bit():
    cache = make([150, 70], M=2, heads=(4, 2), D=16)
    nothing = torch.full((4,), -math.inf, device=DEVICE)
    for num_splits in (1, 2):
        out = decode(cache, num_splits=num_splits, return_lse=True)
        for window, sinks in (((150, 5), None), ((None, 0), nothing)):
            same = decode(cache._replace(window=window, sinks=sinks), num_splits=num_splits)
            if not torch.equal(same, out[0]):
                raise NumericalMismatch("other bits, where nothing is hidden")


def test_splits_are_planned_for_the_keys_in_the_window(monkeypatch):
    programs = {}
    q, k = ones(1, 2, 3, 16), ones(1, 1, 1, 16).expand(1, 1, 300_000, 16)
    for left, batch_invariant in itertools.product((None, 0, 127, 2_000), (False, True)):
        asked = []
        monkeypatch.setattr(kernel, "_launch", lambda *given, x=asked: x.append(given[2]))
        decode_attention(q, k, k, window=(left, 0), batch_invariant=batch_invariant)
        programs[left, batch_invariant] = asked[0]
    assert [programs[left, True] for left in (None, 0, 127, 2_000)] == [293, 2, 2, 3]
    assert programs[None, False] > 100 > 34 > programs[2_000, False] > programs[127, False] >= 1


@pytest.mark.numerical
@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize(("M", "heads"), [(1, (4, 2)), (3, (6, 1)), (17, (2, 2))])
def test_sinks(M, heads, num_splits):
    """One sequence has no key, and another fewer than tokens: their logsumexp is the sink."""
    cache = with_sinks(make([150, 0, 2], M=M, heads=heads, D=16, page=16))
    check(cache, num_splits=num_splits, scale=0.4)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("page", [0, 16])
def test_a_cache_in_float8(page, dtype):
    cache = quantized(make([130, 0, 70], M=2, heads=(6, 3), D=40, page=page, dtype=dtype))
    check_cache(*cache[:3], cache_seqlens=cache.lengths, page_table=cache.table)
    for num_splits in (1, 2):
        check(cache, num_splits=num_splits)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_number_of_float8_is_read_as_what_it_is(dtype):
    """The result over one key is its value: all 256 codes are the columns of one."""
    codes = torch.arange(256, device=DEVICE).to(torch.uint8).view(torch.float8_e4m3fn)
    v, one = codes[None, None, None], ones(1, dtype=torch.float32)
    q = torch.zeros_like(v, dtype=dtype)
    out = decode_attention(q, torch.zeros_like(q).to(v.dtype), v, k_scale=one, v_scale=one)
    torch.testing.assert_close(out, v.to(dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.numerical
def test_queries_of_any_size_read_float8():
    """In float16 they would be infinite, or zeros."""
    cache = quantized(make([70], heads=(4, 2), D=32, dtype=torch.bfloat16))
    out = decode(cache, scale=0.25)
    for n in (60, -60):
        if not torch.equal(decode(cache._replace(q=cache.q * 2.0**n), scale=2.0 ** (-2 - n)), out):
            raise NumericalMismatch("queries and scale are in balance, and the bits are others")


@pytest.mark.numerical
@pytest.mark.parametrize("page", [0, 4])
def test_what_is_appended_to_float8_is_the_nearest_number(page):
    """All numbers, what lies between two and beside that, and what is too large."""
    numbers = torch.arange(127).to(torch.uint8).view(torch.float8_e4m3fn).float()
    between = (numbers[1:] + numbers[:-1]) / 2
    beside = [between.nextafter(torch.tensor(x)) for x in (0.0, math.inf)]
    large = torch.tensor([449.0, 464.0, 480.0, 1e30, math.inf, math.nan])
    rows = torch.cat([numbers, between, *beside, large])
    rows = torch.cat([rows, -rows, torch.zeros(-2 * len(rows) % 64)]).view(1, 1, -1, 64)
    scale = torch.tensor([0.375], device=DEVICE)
    new = rows.to(DEVICE) * scale
    for x in (new, new.half(), new.bfloat16()):
        before = make([x.shape[2]], heads=(1, 1), D=64, page=page)
        before = before._replace(k=quantize(before.k, scale), v=quantize(before.v, scale))
        after = before._replace(k=before.k.clone(), v=before.v.clone())
        scales = {"k_scale": scale, "v_scale": scale * 2}
        cache_append(x, x, after.k, after.v, after.lengths, after.table, **scales)
        assert_appended(after, before, *(quantize(x, s) for s in scales.values()))


def moved_by_rounding(q, k, v, k_scale, v_scale):
    """How far from attention of k, v that of their float8 numbers can be; all in float64.

    To the nearest with three bits of a mantissa: off by 2^-4 of a number, and by half of the
    smallest, 2^-10 of the scale, where that is more. A score is off by no more than e = |q| |δk| /
    √D, so that a weight lies between two softmaxes, one with its own score raised by e and all
    others lowered by theirs, the other the opposite.
    """
    off_k, off_v = (
        torch.maximum(x.abs() / 16, scale[:, None, None] / 2**10)
        for x, scale in ((k, k_scale), (v, v_scale))
    )
    scores, e = (q @ k.mT * q.shape[-1] ** -0.5, q.abs() @ off_k.mT * q.shape[-1] ** -0.5)
    weights = scores.softmax(-1)
    (high, low), total = ((scores + e).exp(), (scores - e).exp()), lambda x: x.sum(-1, keepdim=True)
    most, least = high / (high + total(low) - low), low / (low + total(high) - high)
    off = torch.maximum(most - weights, weights - least)
    return off @ v.abs() + most @ off_v


@pytest.mark.numerical
def test_float8_is_as_near_as_its_rounding_allows():
    """Beside the cache that was rounded. Each query is a multiple of a key, so that it is sharp."""
    cache = make([90], heads=(4, 2), D=64)
    k, v = (sequence(x, 0, 90, None)[None] for x in (cache.k, cache.v))
    k[:, 1], v[:, 1] = k[:, 1] * 20, v[:, 1] / 20
    q = (
        2.5
        * (k / k.abs().amax((2, 3), keepdim=True) * 3.5)[:, :, [3, 40]].flatten(1, 2)[:, :, None]
    )
    q[:, 2:] /= k[:, 1].abs().max() / 3.5
    scales = [x.abs().amax((0, 2, 3)) / 448 for x in (k, v)]
    coded = [quantize(x, scale) for x, scale in zip((k, v), scales, strict=True)]
    out = decode_attention(q, *coded, k_scale=scales[0], v_scale=scales[1], num_splits=2)
    q, k, v = q.double(), *(x.double().repeat_interleave(2, 1) for x in (k, v))
    allowed = moved_by_rounding(q, k, v, *(x.double().repeat_interleave(2) for x in scales))
    want = (q @ k.mT / 8).softmax(-1) @ v
    assert bool(((v.mean(2, keepdim=True) - want).abs().amax(-1) > allowed.amax(-1)).all())
    if not bool(((out - want).abs() <= allowed).all()):
        raise NumericalMismatch("float8 is further off than its rounding explains")


# What only the device knows.


@pytest.mark.numerical
@pytest.mark.parametrize("page", [0, 16])
@pytest.mark.parametrize("length", [97, 10_000, 2**31 - 1, -1, -(2**31)])
def test_a_length_that_cannot_be_reads_nothing_outside(length, page):
    """One that is too long sees the keys there are; one below 0 sees none."""
    cache = make([96, 50], page=page)
    wrong = cache._replace(lengths=torch.tensor([length, 50], dtype=torch.int32, device=DEVICE))
    seen = cache._replace(lengths=cache.lengths.clone())
    seen.lengths[0] = 96 if length > 0 else 0
    assert_decoded(decode(wrong, num_splits=3 if page else 1), seen)


@pytest.mark.numerical
@pytest.mark.parametrize("page", [-1, -(2**31), 14, BAD_PAGE, 2**31 - 1])
def test_a_page_that_does_not_exist_is_not_read(page):
    """Its keys are not seen, as if the sequence had none there."""
    cache = make([112], page=16)
    assert cache.k.shape[0] == 14
    wrong = cache.table.clone()
    wrong[0, 5] = page
    kept = torch.cat([cache.table[:, :5], cache.table[:, 6:]], 1)
    shorter = cache._replace(lengths=cache.lengths - 16, table=kept)
    assert_decoded(decode(cache._replace(table=wrong), num_splits=2), shorter)


@pytest.mark.numerical
@pytest.mark.skipif(ON_GPU, reason="loads are recorded in the interpreter")
@pytest.mark.parametrize("page", [16, 64])
def test_the_table_is_read_no_further_than_a_sequence_goes(page):
    """The pages of a tile are looked up before the loop knows whether there is such a tile."""
    from snippets._lab.probe.memory_trace import record

    lengths = [33, 128, 0, 64]
    cache = make(lengths, heads=(2, 1), D=16, page=page, capacity=256)
    for num_splits in (1, 3):
        with record({"table": cache.table}, keep_addresses=True) as trace:
            decode(cache, num_splits=num_splits)
        read = [x.offsets for x in trace.accesses if x.tensor == "table"]
        entries = torch.cat([torch.from_numpy(x.ravel()) for x in some(read, 3)])
        entries = entries[entries >= 0] // cache.table.element_size()
        b, n = entries // cache.table.shape[1], entries % cache.table.shape[1]
        used = torch.tensor([math.ceil(length / page) for length in lengths])
        if bool((n >= used[b]).any()):
            raise NumericalMismatch("entries are looked up that no key needs")


@pytest.mark.numerical
def test_a_sequence_whose_pages_are_all_missing_gives_zeros():
    cache = make([40, 40], page=16)
    cache.table[0] = -1
    out, lse = decode(cache, num_splits=2, return_lse=True)
    nothing = cache._replace(lengths=cache.lengths * torch.tensor([0, 1], device=DEVICE).int())
    assert_decoded(out, nothing, lse=lse)


# Splits.


@pytest.mark.numerical
@pytest.mark.parametrize("left", [None, 600])
@pytest.mark.parametrize("page", [0, 64])
def test_the_same_bits_in_every_batch(page, left):
    """Batch-invariant: alone or with others, in a small cache or in a larger one."""
    lengths = [1_500, 70, 1_024]
    cache, wider = (
        make(lengths, heads=(2, 1), D=16, page=page, dtype=torch.float16, capacity=capacity)
        for capacity in (None, 5_000)
    )
    if left is not None:
        more = {"window": (left, 0), "sinks": torch.tensor([2.0, 5.0], device=DEVICE)}
        cache, wider = (quantized(x)._replace(**more) for x in (cache, wider))
    out = check(cache, batch_invariant=True)
    results = {"a larger cache": decode(wider, batch_invariant=True)}
    for b, length in enumerate(lengths):
        table = None if cache.table is None else cache.table[b : b + 1]
        k, v = (x if page else x[b : b + 1] for x in (cache.k, cache.v))
        alone = Cache(cache.q[b : b + 1], k, v, cache.lengths[b : b + 1], table, *cache[5:])
        found = decode(alone, batch_invariant=True, max_seqlen=length)
        if not torch.equal(found[0], out[b]):
            raise NumericalMismatch(f"sequence {b} has other bits alone")
    for name, found in results.items():
        if page == 0 and not torch.equal(found, out):
            raise NumericalMismatch(f"other bits in {name}")


@pytest.mark.numerical
def test_the_same_bits_alone_and_after_another_new_token():
    """Two tokens' windows begin a tile before that of the last: the splits are where they were."""
    cache = make([1_365], M=2, heads=(2, 1), D=16)._replace(window=(1_300, 0))
    alone = cache._replace(q=cache.q[:, :, 1:])
    both, one = (decode(x, batch_invariant=True) for x in (cache, alone))
    if not torch.equal(both[:, :, 1:], one):
        raise NumericalMismatch("other bits, beside a token that is not seen")


@pytest.mark.numerical
def test_splits_that_nothing_fills_change_no_bit():
    """Seventeen splits, which are combined sixteen at a time."""
    cache = make([40], heads=(2, 1), D=16)
    few, many = (check(cache, num_splits=n) for n in (2, 17))
    if not torch.equal(few, many):
        raise NumericalMismatch("empty splits changed the result")


@pytest.mark.numerical
def test_the_largest_score_may_be_in_the_last_split():
    """Of twenty, the last ones are combined after the others: what those gave is rescaled."""
    cache = make([20 * 64], heads=(2, 1), D=16)
    rising = torch.linspace(0.5, 8, 20 * 64, device=DEVICE)[:, None]
    check(cache._replace(k=cache.q[:, :1] * rising), num_splits=20)


@pytest.mark.numerical
def test_a_longer_sequence_than_expected_is_right():
    cache = make([1_300], heads=(1, 1), D=16)
    check(cache, max_seqlen=64)
    check(cache, max_seqlen=64, batch_invariant=True)


def test_no_split_is_empty_where_the_longest_sequence_is_known():
    for programs, tiles, slots in itertools.product(
        (1, 7, 264, 5_000), (*range(1, 70), 128, 2_048), (132, 264)
    ):
        splits = split_rule(programs, tiles, slots)
        assert 1 <= splits <= tiles
        assert -(-tiles // -(-tiles // splits)) == splits


def test_the_rule_fills_the_gpu_and_no_more():
    assert split_rule(1_000, 64, 264) == 1, "there is enough to do"
    assert split_rule(8, 1, 264) == 1, "one tile cannot be shared"
    assert split_rule(264, 256, 264) == 1, "one turn for all"
    assert split_rule(8, 2_048, 264) == 33, "exactly one turn"
    for programs in range(1, 264):
        work = programs * split_rule(programs, 512, 264)
        assert work / (-(-work // 264) * 264) > 0.9, "of the slots of all turns"


def test_what_is_launched_depends_on_no_length():
    """So a graph may be replayed with other lengths: nothing here may ask the device."""
    cache = make([96, 50])
    asked = []
    launch = kernel._launch

    def watch(kernel_, tensors, *plan):
        asked.append(plan)
        return launch(kernel_, tensors, *plan)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_launch", watch)
        decode(cache)
        decode(cache._replace(lengths=cache.lengths * 0))
    assert len(asked) == 2 * (len(asked) // 2) > 0
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]


@needs_gpu
@pytest.mark.numerical
def test_a_graph_is_replayed_with_other_lengths_and_pages():
    cache = make([300, 200], page=16, dtype=torch.float16)
    decode(cache, num_splits=3)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = decode(cache, num_splits=3, return_lse=True)
    other = make([17, 299], page=16, dtype=torch.float16, seed=1, capacity=300)
    for x, y in zip(cache, other, strict=True):
        if y is not None:  # no scales: the cache is in float16
            x.copy_(y)
    graph.replay()
    torch.cuda.synchronize()
    assert_decoded(out, other, lse=lse)


@needs_gpu
@pytest.mark.numerical
def test_two_streams_at_once():
    caches = [make([900, 400], seed=seed, dtype=torch.float16) for seed in (0, 1)]
    streams = [torch.cuda.Stream() for _ in caches]
    torch.cuda.synchronize()
    for _ in range(20):
        found = []
        for stream, cache in zip(streams, caches, strict=True):
            with torch.cuda.stream(stream):
                found.append(decode(cache, num_splits=4))
        torch.cuda.synchronize()
        for out, cache in zip(found, caches, strict=True):
            assert_decoded(out, cache)


def test_combining_starts_early_only_where_it_can():
    facts = kernel._device_facts(torch.device("cpu"))
    assert not facts.early, "the interpreter runs one kernel after the other"
    work = (torch.float16, 8, 4, 128, 0, 4_096)
    for can, splits in itertools.product((False, True), (1, 3)):
        plan = kernel._plan(facts._replace(early=can), *work, splits)
        assert plan[-2:] == (splits, can and splits > 1)


@needs_gpu
@pytest.mark.numerical
def test_combining_waits_for_the_splits():
    """On a busy GPU both kernels are queued, and the second could overtake the first."""
    cache = make([20_000, 9_000], dtype=torch.float16)
    (*_, D), splits = cache.q.shape, 16
    rows = cache.q.numel() // D

    def assert_right(launcher):
        for _ in range(10):
            torch.cuda._sleep(2_000_000)
            # What lay before where the parts will lie: the allocator hands the same memory out.
            torch.full((rows * splits * (D + 1),), math.nan, device=DEVICE)
            out = launcher(*cache[:3], **cache.options(), num_splits=splits)
            assert_decoded(out, cache)

    assert_right(decode_attention)
    if kernel._device_facts(cache.q.device).early:
        with pytest.raises(NumericalMismatch):
            assert_right(variant("decode_attention", [("tl.extra.cuda.gdc_wait()", "pass")]))


# Appending.


@pytest.mark.numerical
@pytest.mark.parametrize("page", [0, 4])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_new_tokens_are_appended(dtype, page):
    before = make([3, 20, 9], M=3, page=page, dtype=dtype, D=24, capacity=21)
    new = make([3, 3, 3], dtype=dtype, D=24, seed=1)
    after = before._replace(k=before.k.clone(), v=before.v.clone())
    cache_append(new.k, new.v, after.k, after.v, after.lengths, after.table)
    assert_appended(after, before, new.k, new.v)


@pytest.mark.numerical
def test_more_tokens_than_a_program_appends():
    before = make([40], page=16)
    new = make([37], seed=1)
    after = before._replace(k=transposed(before.k), v=before.v.clone())
    cache_append(new.k, new.v, after.k, after.v, after.lengths, after.table)
    assert_appended(after, before, new.k, new.v)


@pytest.mark.numerical
@pytest.mark.parametrize("page", [0, 4])
@pytest.mark.parametrize("length", [0, 1, 23, 2**31 - 1, -1, -(2**31) + 1])
def test_nothing_is_appended_outside_the_cache(length, page):
    before = make([20, 20], page=page)
    new = make([2, 2], seed=1)
    lengths = torch.tensor([length, 20], dtype=torch.int32, device=DEVICE)
    after = before._replace(k=before.k.clone(), v=before.v.clone())
    cache_append(new.k, new.v, after.k, after.v, lengths, after.table)
    expected = [length if length == 1 else 0, 20]
    seen = after._replace(lengths=torch.tensor(expected, dtype=torch.int32))
    assert_appended(seen, before, new.k, new.v)


@pytest.mark.numerical
def test_generation_token_by_token_is_attention_of_the_whole():
    """Append, decode, and once more, as a model does."""
    whole = make([12], heads=(4, 2), D=16, page=4)
    start = make([0], heads=(4, 2), D=16, page=4, capacity=12)
    start = start._replace(table=whole.table)
    rows = [x[whole.table[0].long()].transpose(0, 1).flatten(1, 2) for x in (whole.k, whole.v)]
    for n in range(12):
        k_new, v_new = (x[None, :, n : n + 1] for x in rows)
        start.lengths.add_(1)
        cache_append(k_new, v_new, start.k, start.v, start.lengths, start.table)
        check(start)


# What is refused.


def ones(*shape, dtype=torch.float16):
    return torch.ones(*shape, dtype=dtype, device=DEVICE)


def whole(*shape):
    return torch.ones(*shape, dtype=torch.int32, device=DEVICE)


WHERE = ones(1).device
KEPT = ("k_cache", "v_cache")
PAGED = dict.fromkeys(KEPT, ones(6, 2, 16, 16)) | {"page_table": whole(2, 3)}
PAGES_OF_48 = PAGED | dict.fromkeys(KEPT, ones(6, 2, 48, 16))
FLOAT8 = dict.fromkeys(KEPT, ones(2, 2, 40, 16).to(torch.float8_e4m3fn))
FLOAT8 |= dict.fromkeys(("k_scale", "v_scale"), ones(2, dtype=torch.float32))
SINKS = ones(8, dtype=torch.float32)
REFUSED = {
    ValueError: {
        "q has shape (4, 1, 16)": {"q": ones(4, 1, 16)},
        "q has shape (2, 4, 65, 16); allowed: at most 64 tokens": {"q": ones(2, 4, 65, 16)},
        "q has shape (2, 2, 1, 264); allowed: at most 64 tokens, 256 columns": dict.fromkeys(
            ("q", *KEPT), ones(2, 2, 1, 264)
        ),
        "q requires grad, but has no backward": {"q": ones(2, 4, 1, 16).requires_grad_()},
        "q has 3 heads and k 2; allowed: a multiple of k's": {"q": ones(2, 3, 1, 16)},
        "k_cache has shape (2, 2, 40, 16); allowed: (3, 2, 40, 16)": {"q": ones(3, 4, 1, 16)},
        "v_cache has shape (2, 2, 41, 16); allowed: (2, 2, 40": {"v_cache": ones(2, 2, 41, 16)},
        f"cache_seqlens has shape (3,) on {WHERE}; allowed: (2,)": {"cache_seqlens": whole(3)},
        "cache_seqlens has shape (2,) on meta; allowed": {"cache_seqlens": whole(2).to("meta")},
        f"page_table has shape (3, 3) on {WHERE}; allowed: (2, 'pages') on {WHERE}": (
            PAGED | {"page_table": whole(3, 3)}
        ),
        "16), 0 keys for a sequence; allowed: 1 to 2^30": PAGED | {"page_table": whole(2, 0)},
        "(6, 2, 48, 16), 144 keys for a sequence; allowed: 1 to 2^30": PAGES_OF_48,
        "max_seqlen is 41; allowed: an int from 1 to 40": {"max_seqlen": 41},
        "max_seqlen is 49; allowed: an int from 1 to 48": PAGED | {"max_seqlen": 49},
        "max_seqlen is tensor([1]": {"max_seqlen": whole(1)},
        "num_splits is -1; allowed: an int from 0 to 256": {"num_splits": -1},
        "num_splits is True; allowed: an int from 0 to 256": {"num_splits": True},
        "num_splits is 2; allowed: an int from 0 to 0": {"num_splits": 2, "batch_invariant": True},
        "scale is 0; allowed: 2^-64 to 2^64": {"scale": 0},
        "window is -1; allowed: an int from 0 to 1073741824": {"window": (-1, 0)},
        "sinks has shape (2,); allowed: (4,), contiguous": {"sinks": SINKS[:2]},
        "sinks has shape (4,); allowed: (4,), contiguous": {"sinks": SINKS[::2]},
        "sinks requires grad, but has no backward": {"sinks": SINKS[:4].clone().requires_grad_()},
        "v_cache has 16 columns, strides (1280, 640, 1, 40); allowed: even, last 1": (
            FLOAT8 | {"v_cache": FLOAT8["v_cache"].mT.contiguous().mT}
        ),
        "k_scale has shape (4,); allowed: (2,), contiguous": FLOAT8 | {"k_scale": SINKS[:4]},
        "q is on meta; allowed: a GPU": dict.fromkeys(("q", *KEPT), ones(2, 2, 1, 16).to("meta")),
    },
    TypeError: {
        "q is torch.float64": {"q": ones(2, 4, 1, 16).double()},
        "v_cache is torch.float32": {"v_cache": ones(2, 2, 40, 16).float()},
        "cache_seqlens is <class 'list'>; allowed: a dense torch": {"cache_seqlens": [3, 4]},
        "cache_seqlens is torch.int64; allowed": {"cache_seqlens": whole(2).long()},
        "page_table is torch.int": PAGED | {"page_table": whole(2, 3).long()},
        "batch_invariant is 1; allowed: True, False": {"batch_invariant": 1},
        "return_lse is None; allowed: True, False": {"return_lse": None},
        "window is 128; allowed: (left, right) or None": {"window": 128},
        f"sinks is torch.float16 on {WHERE}; allowed: torch.float32 on": {"sinks": ones(4)},
        "v_scale is <class 'NoneType'>; allowed: a tensor for": FLOAT8 | {"v_scale": None},
        "k_scale is <class 'torch.Tensor'>; allowed: a tensor for": {"k_scale": SINKS[:2]},
        "v_cache is torch.float16 on": FLOAT8 | {"v_cache": ones(2, 2, 40, 16)},
        "q is torch.float8_e4m3fn; allowed: (torch.float16": (
            FLOAT8 | {"q": ones(2, 4, 1, 16).to(torch.float8_e4m3fn)}
        ),
    },
}


@each_refusal(REFUSED)
def test_refusals(error, change, monkeypatch):
    usual = {"q": ones(2, 4, 1, 16), "k_cache": ones(2, 2, 40, 16), "v_cache": ones(2, 2, 40, 16)}
    decode_attention(**usual)  # one like it is known
    monkeypatch.setattr(kernel, "_launch", None)  # a launch would be a TypeError of another text
    assert_refused(error, decode_attention, **usual | change)


def test_an_option_is_refused_though_one_that_equals_it_is_known(monkeypatch):
    tensors = ones(2, 4, 1, 16), ones(2, 2, 40, 16), ones(2, 2, 40, 16)
    known = {"window": (1, 0), "num_splits": 1, "max_seqlen": 1, "scale": 1.0, "return_lse": False}
    decode_attention(*tensors, **known)
    monkeypatch.setattr(kernel, "_launch", None)
    for name, x in known.items():
        equal = (True, False) if name == "window" else 0 if x is False else True
        assert equal == x
        with pytest.raises((TypeError, ValueError), match=f"{name} is"):
            decode_attention(*tensors, **known | {name: equal})


def test_float8_is_refused_where_no_instruction_converts_it(monkeypatch):
    facts = kernel._device_facts(WHERE)._replace(capability=(8, 0))
    monkeypatch.setattr(kernel, "_device_facts", lambda _: facts)
    error = TypeError(
        "torch.float8_e4m3fn has no instructions on a GPU of (8, 0); allowed: from (8, 9)"
    )
    assert_refused(error, decode_attention, ones(2, 4, 1, 16), **FLOAT8)
    new = {n: ones(2, 2, 1, 16) for n in ("k_new", "v_new")}
    assert_refused(error, cache_append, **new, **FLOAT8, cache_seqlens=whole(2))


APPEND_REFUSED = {
    TypeError: {
        "k_scale is <class 'NoneType'>; allowed: a tensor for": {n: FLOAT8[n] for n in KEPT},
        "cache_seqlens is <class 'NoneType'>; allowed: a dense torch": {"cache_seqlens": None},
        "k_cache is torch.float32": {"k_cache": ones(2, 2, 40, 16).float()},
    },
    ValueError: {
        "k_cache has shape (2, 2, 40, 16); allowed: (2, 4, 40, 16)": dict.fromkeys(
            ("k_new", "v_new"), ones(2, 4, 1, 16)
        ),
        "v_new has shape (2, 2, 3, 16); allowed: (2, 2, 1, 16)": {"v_new": ones(2, 2, 3, 16)},
        "2147483648 keys for a sequence; allowed: 1 to 2^30, in pages of a power of two": (
            PAGED | {"page_table": whole(2, 1).expand(2, 2**27)}
        ),
        "(6, 2, 48, 16), 144 keys for a sequence; allowed: 1 to 2^30": PAGES_OF_48,
        "k_cache has strides (640, 0, 16, 1); allowed: none of 0": {
            "k_cache": ones(2, 1, 40, 16).expand(2, 2, 40, 16)
        },
    },
}


@each_refusal(APPEND_REFUSED)
def test_what_cannot_be_appended(error, change, monkeypatch):
    monkeypatch.setattr(kernel, "_launch", None)
    usual = dict.fromkeys(("k_new", "v_new"), ones(2, 2, 1, 16))
    usual |= dict.fromkeys(KEPT, ones(2, 2, 40, 16)) | {"cache_seqlens": whole(2)}
    assert_refused(error, cache_append, **usual | change)


def test_check_cache_names_what_is_wrong():
    cache = make([30, 20, 0], page=16)
    check_cache(*cache[:3], **cache.options())  # entries that no key needs may say anything
    for lengths, message in (
        ([30, -1, 0], r"cache_seqlens\[1\] is -1; allowed: 0 to 32$"),
        ([30, 33, 99], r"cache_seqlens\[1\] is 33; allowed: 0 to 32 \(1 more like it\)"),
    ):
        wrong = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
        with pytest.raises(ValueError, match=message):
            check_cache(*cache[:3], cache_seqlens=wrong, page_table=cache.table)
    table = cache.table.clone()
    table[1, 1] = 12
    with pytest.raises(ValueError, match=r"page_table\[1, 1\] is 12; allowed: 0 to 11$"):
        check_cache(*cache[:3], cache_seqlens=cache.lengths, page_table=table)
    # Without lengths every entry is needed.
    with pytest.raises(ValueError, match=r"page_table\[2, 0\] is 1000003; .* \(1 more like it\)"):
        check_cache(*cache[:3], page_table=cache.table)


# What the tiles compile to.


@pytest.fixture
def facts(monkeypatch):
    """What the launcher knows of its GPU: the interpreter plays a Hopper GPU."""
    found = kernel._device_facts(torch.device("cpu"))
    monkeypatch.setattr(kernel, "_device_facts", lambda device: found)
    return found


@pytest.mark.compiler
@pytest.mark.parametrize("D", [64, 128])
def test_as_many_tiles_are_in_flight_with_pages_as_without(D, facts):
    """The table is looked up ahead of the keys, at no tile's expense; nothing spills."""
    with Compiler() as compiler:
        shared = {}
        for page in (0, 16):
            cache = make([64], heads=(8, 1), D=D, page=page, dtype=torch.bfloat16)
            options = cache.options() | {"num_splits": 2}
            found = compiler.resources(decode_attention, cache[:3], options, target="sm_90")
            assert [x.kernel for x in found] == ["_decode_attention_kernel", "_combine_kernel"]
            assert not any(x.spill_store_bytes for x in some(found, 2))
            assert "LDGSTS" in found[0].sass(), "loads that no register waits for"
            shared[page] = found[0].shared_bytes
    tiles = {page: kernel._plan(facts, torch.bfloat16, 1, 8, D, page, 64)[0] for page in shared}
    for page, tile in some(tiles.items(), 2):
        assert shared[page] >= (tile.num_stages - 1) * 2 * tile.BLOCK_N * D * 2
    if tiles[16] == tiles[0]:
        assert abs(shared[16] - shared[0]) < 2 * tiles[0].BLOCK_N * D * 2 / 8


@pytest.mark.compiler
@pytest.mark.parametrize("target", ["sm_89", "sm_90", "sm_100"])
def test_float8_is_converted_in_the_loop_and_loaded_ahead(target, facts, monkeypatch):
    """By instructions, with the other options too; nothing spills. Appending compiles as well."""
    if target == "sm_89":
        facts = facts._replace(capability=(8, 9), shared=SHARED_LIMIT[target])
        monkeypatch.setattr(kernel, "_device_facts", lambda device: facts)
    cache = make([64], heads=(8, 1), D=128, page=16, dtype=torch.bfloat16)
    cache = quantized(with_sinks(cache))._replace(window=(100, 0))
    scales = {"k_scale": cache.k_scale, "v_scale": cache.v_scale}
    new = [ones(1, 1, 1, 128)] * 2
    with Compiler() as compiler:
        options = cache.options() | {"num_splits": 2}
        decoded = compiler.resources(decode_attention, cache[:3], options, target=target)
        (appended,) = compiler.resources(cache_append, (*new, *cache[1:5]), scales, target=target)
    for found in some([*decoded, appended], 3):
        assert (found.error, found.spill_store_bytes) == (None, 0)
    assert "cvt.rn.f16x2.e4m3x2" in loop_of(decoded[0].ptx)


@pytest.mark.compiler
@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("float8", [False, True])
def test_few_rows_take_half_the_products_and_load_as_much_ahead(float8):
    with Compiler() as compiler:

        def machine_code(heads):
            cache = make([64], heads=(heads, 1), D=128, dtype=torch.bfloat16)
            cache = quantized(cache) if float8 else cache
            (found,) = compiler.resources(
                decode_attention, cache[:3], cache.options() | {"num_splits": 1}, target="sm_90"
            )
            return found.sass()

        few, more = (machine_code(kernel.FEW_ROWS.value * n) for n in (1, 2))
        assert 2 * few.count("HMMA") == more.count("HMMA") > 0
        assert few.count("LDGSTS") == more.count("LDGSTS") > 0


@pytest.mark.compiler
@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("D", [64, 128, 256])
def test_every_tile_fits(D, target, facts, monkeypatch):
    """Into shared memory, which Triton only asks for at launch."""
    facts = facts._replace(shared=SHARED_LIMIT[target])
    monkeypatch.setattr(kernel, "_device_facts", lambda device: facts)
    kinds = {"float16": torch.float16, "float32": torch.float32, "float8": torch.float16}
    if target == "sm_80":  # no instruction converts float8
        del kinds["float8"]
    with Compiler() as compiler:
        for (kind, dtype), heads in itertools.product(kinds.items(), (8, 16, 64)):
            cache = make([64], heads=(heads, 1), D=D, dtype=dtype)
            cache = quantized(cache) if kind == "float8" else cache
            (found,) = compiler.resources(
                decode_attention, cache[:3], cache.options() | {"num_splits": 1}, target=target
            )
            assert found.error is None, (kind, heads)
            assert found.shared_bytes <= SHARED_LIMIT[target], (kind, heads)


def loop_of(ptx):
    """The lines of the only loop that loads asynchronously."""
    loops = re.findall(r"(?ms)^(\$\w+):(.*?)bra\s+\1;", ptx)
    (found,) = (text for _, text in loops if "cp.async.cg" in text)
    return found


def waits_for_the_table(ptx):
    """Whether keys are loaded from where a load of the same iteration says.

    Follows what is loaded into registers through the loop's instructions, in their order: what
    reaches an asynchronous load only in the next iteration does not count.
    """
    instruction = re.compile(r"\s*(@!?%\w+)?\s*([\w.:]+)\s+(\{[^}]*\}|[^,;]*)(.*)")
    late, loads = set(), 0
    for line in loop_of(ptx).splitlines():
        if not (found := instruction.match(line)):
            continue
        guard, name, first, rest = found.groups()
        written, read = (set(re.findall(r"%\w+", text or "")) for text in (first, rest))
        if name.startswith("ld.global"):
            loads += 1
            late |= written
        elif name.startswith(("cp.async", "st.")):
            if name.startswith("cp.async.cg") and late & (written | read):
                return True
        elif late & (read | set(re.findall(r"%\w+", guard or ""))):
            late |= written
        else:
            late -= written
    assert loads, "the table is read in the loop"
    return False


PLACES = "places = _places(page, start, stop, pages.count, PAGE=PAGE, BLOCK_N=BLOCK_N)"
LOOK_UP = "page = _look_up(pages, n, n < stop, PAGE=PAGE)"
IN_TIME = f"""{PLACES}
        if PAGE > 0:
            n += BLOCK_N
            {LOOK_UP}"""
LATE = f"""if PAGE > 0:
            {LOOK_UP}
            n += BLOCK_N
        {PLACES}"""
ROWS = [
    ("rows = offs % PAGE", "rows = offs_n % PAGE"),
    ("first_row = start % PAGE", "first_row = 0"),
]
# Pages looked up in the iteration that needs them; rows counted from a page's first in each.
LOOPS = {"looked up late": [(IN_TIME, LATE)], "rows in the loop": ROWS}


@pytest.mark.compiler
@pytest.mark.skipif(ON_GPU, reason="its tensors lie on a CPU, which a launcher refuses there")
@pytest.mark.usefixtures("facts")
def test_what_pages_need_is_done_ahead():
    """No load of keys waits for one of the table, and few instructions work out addresses.

    In two variants it is otherwise.
    """
    with Compiler() as compiler:

        def ptx(launcher, page, rows):
            cache = make_cache([300], heads=(rows, 1), D=128, page=page, dtype=torch.bfloat16)
            options = {**cache.options(), "num_splits": 2}
            found, _ = compiler.resources(launcher, cache[:3], options, target="sm_90")
            assert not found.spill_store_bytes
            return found.ptx

        for page, rows in itertools.product((16, 64, 256), (4, 16)):
            assert not waits_for_the_table(ptx(decode_attention, page, rows)), (page, rows)
        loops = {
            name: ptx(variant("decode_attention", changes), 256, rows=16)
            for name, changes in LOOPS.items()
        }
        late = {name for name, text in loops.items() if waits_for_the_table(text)}
        assert late == {"looked up late"}
        multiplied = {name: loop_of(text).count("mul.lo.s64") for name, text in loops.items()}
        assert multiplied["looked up late"] < 8 < 32 <= multiplied["rows in the loop"]


# The checks themselves.


def test_what_is_not_appended_is_seen():
    cache = make([40, 0], page=16)
    with pytest.raises(NumericalMismatch):
        assert_appended(cache, cache, cache.k[:2, :, :1] + 1, cache.v[:2, :, :1])


@pytest.mark.numerical
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")  # a CPU's check
@pytest.mark.parametrize("heads", [(4, 2), (2, 2)])
def test_the_rival_with_pages_gives_the_same(heads):
    cache = make([48, 48, 48], heads=heads, page=16)
    # Uncompiled it computes with every page of the pool, and gives those of others no weight.
    cache = cache._replace(k=cache.k.nan_to_num(5.0), v=cache.v.nan_to_num(7.0))
    assert_decoded(flex_paged(cache, flex_attention)(), cache)


def test_the_largest_split_is_whole_tiles():
    """Otherwise a batch-invariant split would begin inside a tile."""
    rows = [*kernel.TILES.values(), *kernel.FEW_TILES.values()]
    tiles = [tile for row in rows for tile in row.values()]
    tiles += [kernel.MANY, kernel.SINGLE, kernel.PAGED, kernel.MANY_PAGED, kernel.FLOAT8]
    widths = [tile.BLOCK_N for tile in tiles]
    assert not [n for n in some(widths, 10) if SPLIT_KEYS % n]


@pytest.mark.numerical
def test_many_programs_have_a_tile_of_their_own(monkeypatch):
    facts = kernel._device_facts(torch.device("cpu"))._replace(processors=1)
    monkeypatch.setattr(kernel, "_device_facts", lambda _: facts)
    cache = make([150, 33, 1], heads=(4, 2), D=128, dtype=torch.float16)
    few, many = (kernel._plan(facts, cache.q.dtype, n, 2, 128, 0, 150)[0] for n in (2, 6))
    assert (few, many) == (kernel.TILES["16 bits"][128], kernel.MANY)
    assert_decoded(decode(cache), cache)
    single = make([33, 1], heads=(10, 10), M=1, D=128, dtype=torch.float16)
    found = [kernel._plan(facts, cache.q.dtype, n, 1, 128, 0, 33)[0] for n in (6, 20)]
    assert found == [many, kernel.SINGLE]
    assert_decoded(decode(single), single)
    alone = [kernel._plan(facts, cache.q.dtype, n, 2, 128, 0, 150, 0, True)[0] for n in (1, 6)]
    assert alone == [few, few], "batch-invariant calls have one tile"
    large, small, more = few, kernel.PAGED, kernel.MANY_PAGED
    for page, heads, rows, want in (
        (256, 2, 2, large),
        (64, 2, 2, small),
        (64, 6, 2, more),
        (256, 6, 2, more),
        (256, 6, 17, small),
    ):
        found = kernel._plan(facts, cache.q.dtype, heads, rows, 128, page, 150)[0]
        assert found == want, (page, heads, rows)
    alone = kernel.FEW_TILES["float8"][128]
    for page, heads, rows, want in (
        (0, 2, 8, alone),
        (0, 6, 8, kernel.FLOAT8),
        (64, 2, 8, kernel.FLOAT8),
        (0, 6, 9, large),
        (64, 2, 9, small),
    ):
        found = kernel._plan(facts, cache.q.dtype, heads, rows, 128, page, 150, fp8=True)[0]
        assert found == want, (page, heads, rows, "float8")
    for lengths, M, page in (([70], 1, 16), ([150, 33, 1], 1, 256), ([150, 33, 1], 9, 64)):
        paged = make(lengths, heads=(4, 2), M=M, D=128, page=page, dtype=torch.float16)
        assert_decoded(decode(paged), paged)


def test_a_tile_says_how_many_programs_a_multiprocessor_gets():
    """Fewer than its shared memory has room for, where more of them would not load faster."""
    facts = kernel._device_facts(torch.device("cpu"))
    tile, _, block_d, _, slots, *_ = kernel._plan(facts, torch.float16, 32, 4, 128, 16, 1_000)
    assert slots == tile.at_once * facts.processors == 2 * 132
    held = (tile.num_stages - 1) * 2 * tile.BLOCK_N * block_d * 2
    assert 3 * held < facts.shared, "a third one would fit"


# What the calculator of the page is given.


def test_a_step_reads_the_weights_once_and_every_cache():
    cases = {
        (r["name"], r["keys"], r["size"], r["batch"]): r for r in bench.tokens(Lab("interpreter"))
    }
    one, many = (cases["Llama 3.1 8B", 8192, 2, batch] for batch in (1, 64))
    assert one["of_a_sequence"] == 2**30, "as the exercise of the page has it"
    assert one["seconds"] == (8.03e9 * 2 + 2**30) / 4e12
    assert many["seconds"] == (8.03e9 * 2 + 64 * 2**30) / 4e12


# Rivals for caches are packages; these stand-ins take what they take.


def of_tokens_first(q, k, v):
    """What q [B, M, H, D] sees in k, v [B, N, Hkv, D], in that layout."""
    assert all(x.is_contiguous() for x in (q, k, v))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
    return (weights @ v).transpose(1, 2)


def flash_attn_with_kvcache(q, k, v, *, cache_seqlens):
    assert cache_seqlens.tolist() == [k.shape[1]] * len(q)
    return of_tokens_first(q, k, v)


class BatchDecodeWithPagedKVCacheWrapper:
    def __init__(self, workspace, layout, *, use_tensor_cores):
        assert (layout, workspace.dtype) == ("NHD", torch.uint8)
        self.grouped = use_tensor_cores

    def plan(self, indptr, indices, last, H, Hkv, D, page, *, q_data_type, kv_data_type):
        assert self.grouped == (Hkv < H)
        assert (indices.tolist(), set(last.tolist())) == (list(range(len(indices))), {page})
        self.pages = indptr.tolist()

    def run(self, q, caches):
        k, v = (torch.stack(x.flatten(0, 1).chunk(len(q))) for x in caches)
        assert self.pages == [b * k.shape[1] // caches[0].shape[1] for b in range(len(q) + 1)]
        return of_tokens_first(q[:, None], k, v)[:, 0]


@pytest.mark.skipif(ON_GPU, reason="a GPU may have the packages")
@pytest.mark.parametrize("heads", [(2, 2), (6, 2)])
def test_each_rival_gets_the_cache_as_its_authors_lay_it_out(heads, monkeypatch):
    there = {f.__name__: f for f in (flash_attn_with_kvcache, BatchDecodeWithPagedKVCacheWrapper)}
    monkeypatch.setattr(Package, "function", lambda self, name: there[name])
    cache = make([64, 64, 64], heads=heads)
    names = [bench.FA3, bench.FLASHINFER, "torch:math"]
    calls, errors = bench.rivals(cache, names)
    assert (list(calls), errors) == (names, {})
    for call in calls.values():
        assert_decoded(call(), cache)
    monkeypatch.setattr(Package, "function", lambda self, name: lambda *_, **__: cache.q)
    calls, errors = bench.rivals(cache, names[:1])
    assert (calls, list(errors)) == ({}, names[:1]), "a wrong one is not timed"
    monkeypatch.undo()
    assert bench.rivals(cache, [bench.FA3])[1] == {bench.FA3: "fa3-fwd is not installed"}
