"""What the page of decode_attention measures: one function for each result."""

import functools
import math
from unittest.mock import patch

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from snippets._lab.judge.mutants import variant
from snippets._lab.measure import ceilings
from snippets._lab.measure.competitors import PACKAGES, layout_of, own_layout, resolve
from snippets._lab.measure.regimes import CLEAN, IN_A_GRAPH, QUEUED
from snippets._lab.measure.session import why_not
from snippets._lab.measure.timing import time_host
from snippets._lab.rooms import measured_on

from . import kernel
from .checks import Cache, assert_appended, assert_decoded, make_cache
from .kernel import cache_append, decode_attention
from .tokens import MODELS, cache_bytes, least_seconds

OURS = "decode_attention"
READER = f"{OURS}:only reads"
APART = f"{OURS}:a program a head"
FA3, FLASHINFER = "flash_attention_3", "flashinfer"
RIVALS = ["torch:cudnn", "torch:flash", FA3, FLASHINFER]
FLEX = "torch:flex"  # the rival with pages
HEADS = 8  # of keys
BATCHES = [1, 4, 16, 64, 256]
LENGTHS = [512, 2_048, 8_192, 32_768, 131_072]
MOST_BYTES = 100e9  # of keys and values
SMALL = 64e6  # bytes; below, a GPU's caches and launches matter


def check(device):
    """Raise unless the kernel is right on this device; no result is stored before it passed."""
    on_gpu = device == "cuda"
    lengths = [1, 300, 77, 0] if on_gpu else [1, 90, 0]  # the interpreter takes its time
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for page, M, D in ((0, 1, 128), (16, 3, 64), (64, 1, 128), (0, 17, 256))[
            : 4 if on_gpu else 2
        ]:
            cache = make_cache(
                lengths, M=M, page=page, D=D, dtype=dtype, heads=(4, 1), device=device
            )
            for num_splits in (0, 1, 3) if on_gpu else (1, 3):
                out, lse = decode_attention(
                    *cache[:3], **cache.options(), num_splits=num_splits, return_lse=True
                )
                assert_decoded(out, cache, lse=lse)
            after = cache._replace(k=cache.k.clone(), v=cache.v.clone())
            new = make_cache(
                [M] * len(lengths), D=D, dtype=dtype, heads=(4, 1), device=device, seed=1
            )
            cache_append(new.k, new.v, after.k, after.v, after.lengths, after.table)
            assert_appended(after, cache, new.k, new.v)


# What is timed: caches that fill the GPU's memory, without the help of the CPU.


def kv_bytes(case):
    """Bytes of the keys and values of a case, each once."""
    return 2 * case["batch"] * HEADS * case["N"] * case["D"] * 2


def fits(case):
    """Whether the GPU at hand has room for a case, and the brief asks for it."""
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    return kv_bytes(case) <= min(MOST_BYTES, 0.7 * device.total_memory)


def full(case, page=0):
    """A Cache on the GPU whose sequences are all of length N, or of the case's lengths."""
    B, N, D = case["batch"], case["N"], case["D"]
    dtype = getattr(torch, case["dtype"])
    q = torch.randn(B, HEADS * case["group"], case.get("M", 1), D, device="cuda", dtype=dtype)
    lengths = case.get("lengths", [N] * B)
    table = None
    shape = (B, HEADS, N, D)
    if page:
        needed = [math.ceil(length / page) for length in lengths]
        shape = (2 * sum(needed), HEADS, page, D)  # a pool twice as large
        order = torch.randperm(shape[0], device="cuda").int()
        table = torch.full((B, max(needed)), -1, dtype=torch.int32, device="cuda")
        for b, pages_of_it in enumerate(order[: sum(needed)].split(needed)):
            table[b, : needed[b]] = pages_of_it
    k, v = (torch.empty(shape, device="cuda", dtype=dtype).normal_() for _ in "kv")
    return Cache(q, k, v, torch.tensor(lengths, dtype=torch.int32, device="cuda"), table)


def work(case, lengths=None):
    """FLOPs and compulsory bytes of a call: keys, values, queries and results, each once."""
    keys = sum(lengths) if lengths else case["batch"] * case["N"]
    rows = HEADS * case["group"] * case.get("M", 1)
    size = getattr(torch, case["dtype"]).itemsize
    tensors = 2 * keys * HEADS * case["D"] + 2 * case["batch"] * rows * case["D"]
    return {"flops": 4 * keys * rows * case["D"], "bytes_compulsory": tensors * size}


def decode(cache, **options):
    """A call of ours without arguments."""
    return functools.partial(decode_attention, *cache[:3], **cache.options(), **options)


def rivals(cache, names=RIVALS):
    """Others on one new token of full caches, each in its own layout: as `right` returns them."""
    makers = {FA3: of_flash_attention, FLASHINFER: of_flashinfer}
    calls, errors, laid_out = {}, {}, {}
    for name in names:
        layout = layout_of(name)
        try:
            if layout not in laid_out:  # one copy for all that want it: a cache may be large
                laid_out[layout] = own_layout(name, *cache[:3])
            calls[name] = makers.get(name, of_pytorch)(name, *laid_out[layout], cache.lengths)
        except Exception as error:  # noqa: BLE001 - what is missing is named in its row
            errors[name] = why_not(error)
    calls, wrong = right(decode(cache)(), calls)
    return calls, errors | wrong


def right(want, makers):
    """Calls that give the result wanted, by name; and why the others do not, by name."""
    calls, errors = {}, {}
    for name, call in makers.items():
        try:
            # Both round the same sum to 16 bits, after rounding the weights to 16 bits.
            torch.testing.assert_close(call(), want, rtol=0.02, atol=0.02 * float(want.abs().max()))
        except Exception as error:  # noqa: BLE001 - whatever it is, its row says so
            errors[name] = why_not(error)
        else:
            calls[name] = call
    return calls, errors


def of_pytorch(name, q, k, v, lengths):
    """SDPA with one backend; it is told no lengths, so the caches must be full."""
    shared = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    return functools.partial(resolve(name), q, k, v, **shared)


def of_flash_attention(name, q, k, v, lengths):
    """FlashAttention's function for caches; it finds the number of splits itself."""
    attend = PACKAGES[name].function("flash_attn_with_kvcache")
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # [B, M, H, D]
    return lambda: attend(q, k, v, cache_seqlens=lengths).transpose(1, 2)


def of_flashinfer(name, q, k, v, lengths):
    """FlashInfer's wrapper, on pages that lie in order. Its plan, which serves all layers of a
    model, is made before the clock starts.
    """
    wrapper = PACKAGES[name].function("BatchDecodeWithPagedKVCacheWrapper")
    (B, H, _, D), (_, Hkv, N, _), page = q.shape, k.shape, PAGES[0]
    workspace = torch.zeros(128 << 20, dtype=torch.uint8, device=q.device)
    found = wrapper(workspace, "NHD", use_tensor_cores=Hkv < H)
    each = N // page  # pages of a sequence
    found.plan(
        torch.arange(B + 1, dtype=torch.int32, device=q.device) * each,
        torch.arange(B * each, dtype=torch.int32, device=q.device),
        torch.full((B,), page, dtype=torch.int32, device=q.device),
        *(H, Hkv, D, page),
        q_data_type=q.dtype,
        kv_data_type=k.dtype,
    )
    q, there = q.view(B, H, D), tuple(x.transpose(1, 2).view(-1, page, Hkv, D) for x in (k, v))
    return lambda: found.run(q, there)[:, :, None]


def unable(case, errors):
    """Rows of the competitors that have no time."""
    yield from ({"implementation": name, **case, "error": why} for name, why in errors.items())


@measured_on("gpu")
def bandwidth(lab):
    """Time of one new token, over sequences, keys and the heads of a group; L2 is flushed.

    Beside it a kernel that only reads the same keys and values, and adds them up.
    """
    for case in lab.each(dtype=["bfloat16"], D=[128], group=[1, 4, 8], batch=BATCHES, N=LENGTHS):
        if kv_bytes(case) < SMALL or not fits(case):
            continue
        cache, both = side_by_side(case)
        calls, errors = rivals(cache)
        yield from unable(case, errors)
        calls |= {OURS: decode(cache), READER: functools.partial(ceilings.read, both)}
        for row in lab.time(case, calls, **work(case)):
            yield row | {"flops": 0} if row["implementation"] == READER else row
        del cache, both, calls
        torch.cuda.empty_cache()


def side_by_side(case):
    """full(case), and its keys and values as one tensor of float32."""
    one_key = full(case | {"N": 1})
    shape = (2, case["batch"], HEADS, case["N"], case["D"])
    both = torch.empty(shape, device="cuda", dtype=one_key.k.dtype).normal_()
    lengths = torch.full_like(one_key.lengths, case["N"])
    cache = one_key._replace(k=both[0], v=both[1], lengths=lengths)
    return cache, both.view(torch.float32).flatten()


def rotating(case):
    """Caches enough that one has left L2 when its turn comes again."""
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    return [full(case) for _ in range(max(8, math.ceil(4 * l2 / kv_bytes(case))))]


def in_turn(calls):
    """One call of all of them; it returns the last one's result."""

    def call():
        for one in calls:
            out = one()
        return out

    return call


PAGES = [16, 64, 256]
RUNS = 3
IN_TURN = 1e9  # bytes of the caches that take turns, of which L2 keeps nothing worth a percent
BESIDE = {"batch": 64, "N": 8_192}  # where the rival is timed: it is compiled for every page size


@measured_on("gpu")
def pages(lab):
    """Paged caches, their pages at random in a pool twice as large, beside contiguous ones.

    In a CUDA graph: with a flush before each call, the same kernel differs from itself by as much
    as pages cost.
    """
    batches = [4, 16, 64]
    for case in lab.each(dtype=["bfloat16"], D=[128], group=[4], batch=batches, N=[8_192, 32_768]):
        if 7 * kv_bytes(case) > MOST_BYTES or not fits(case):  # three pools of twice the size
            continue
        turns = range(math.ceil(IN_TURN / kv_bytes(case)))
        caches = {page: [full(case, page) for _ in turns] for page in (0, *PAGES)}
        calls = {named(page): in_turn([*map(decode, each)]) for page, each in caches.items()}
        if case | BESIDE == case:
            torch._dynamo.reset()  # beyond its limit of recompilations it would fall back to eager
            for page in PAGES:
                want = calls[named(page)]()
                flex = in_turn([*map(flex_paged, caches[page])])
                found, errors = right(want, {named(page, FLEX): flex})
                yield from unable(case, errors)
                calls |= found
        all_turns = {name: amount * len(turns) for name, amount in work(case).items()}
        for run in range(RUNS):
            again = case | {"run": run, "regime": IN_A_GRAPH}
            for row in lab.time(again, calls, **all_turns):
                yield row | {"calls": len(turns)}
        del caches, calls
        torch.cuda.empty_cache()


def named(page, owner=OURS):
    """What the rows of a page size are called."""
    return f"{owner}:pages of {page}" if page else owner


def flex_paged(cache, attend=None):
    """A call of FlexAttention over the same pages, compiled, whose block mask names them.

    This is how PyTorch's own paged attention does it
    (torch/nn/attention/experimental/_paged_attention.py): the pool is one sequence that all others
    share, [1, Hkv, pages · page, D], here a copy in that order. All pages are full, so that nothing
    is masked while it runs. The copy and the mask are made before the clock starts.
    """
    (B, width), (pages_, Hkv, page, D) = cache.table.shape, cache.k.shape
    k, v = (x.transpose(0, 1).reshape(1, Hkv, pages_ * page, D) for x in (cache.k, cache.v))
    # [B, heads, blocks of queries] and the same with [pages]: those of a sequence come first.
    full_pages = torch.full((B, 1, 1), width, dtype=torch.int32, device=k.device)
    places = torch.zeros(B, 1, 1, pages_, dtype=torch.int32, device=k.device)
    places[..., :width] = cache.table[:, None, None]
    owner = torch.full((pages_,), -1, dtype=torch.int32, device=k.device)
    owner[cache.table.long()] = torch.arange(B, dtype=torch.int32, device=k.device)[:, None]
    mask = BlockMask.from_kv_blocks(
        torch.zeros_like(full_pages),
        torch.zeros_like(places),
        full_pages,
        places,
        BLOCK_SIZE=(128, page),
        mask_mod=lambda b, h, m, n: owner[n // page] == b,
        seq_lengths=(cache.q.shape[2], pages_ * page),
    )
    attend = attend or torch.compile(flex_attention, dynamic=False)
    shared = cache.q.shape[1] != Hkv
    return functools.partial(attend, cache.q, k, v, block_mask=mask, enable_gqa=shared)


SHAPES = [(1, 8_192), (1, 131_072), (4, 32_768), (16, 8_192), (64, 8_192)]
COUNTS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256]


@measured_on("gpu")
def splits(lab):
    """Time over the number of splits, and which of them our rule chooses."""
    for shape in lab.each(dtype=["bfloat16"], D=[128], group=[4], shape=SHAPES):
        case = {key: x for key, x in shape.items() if key != "shape"}
        case |= dict(zip(("batch", "N"), shape["shape"], strict=True))
        cache = full(case)
        ours = chosen(cache)
        calls = {f"{OURS}:{n}": decode(cache, num_splits=n) for n in sorted({*COUNTS, ours})}
        for row in lab.time(case, calls, **work(case)):
            number = int(row["implementation"].rpartition(":")[2])
            yield row | {"splits": number, "chosen_by": [OURS] if number == ours else []}
        del cache, calls
        torch.cuda.empty_cache()


def chosen(cache):
    """How many splits our rule takes for a cache."""
    (B, H, M, D), Hkv = cache.q.shape, cache.k.shape[1]
    device = kernel._device_facts(cache.q.device)
    page, keys, _ = kernel._layout(*cache[1:5])
    work = (cache.q.dtype, B * Hkv, M * H // Hkv, D, page, keys)
    tile, _, _, programs, slots, *_ = kernel._plan(device, *work)
    return kernel.split_rule(programs, -(-keys // tile.BLOCK_N), slots)


@measured_on("gpu", "interpreter")
def tokens(lab):
    """How fast a GPU reads many caches; elsewhere the cases of the calculator's two languages."""
    if lab.place == "gpu":
        for case in lab.each(dtype=["bfloat16"], D=[128], group=[4], batch=[64], N=[8_192]):
            yield from lab.time(case, {OURS: decode(full(case))}, **work(case))
        return
    for case in lab.each(model=MODELS, keys=[1, 8_192, 131_072], size=[1, 2], batch=[1, 64]):
        model = case.pop("model")
        of_a_sequence = cache_bytes(
            layers=model.layers, heads=model.heads, D=model.D, keys=case["keys"], size=case["size"]
        )
        weight_bytes = model.parameters * case["size"]
        yield {
            **model._asdict(),
            **case,
            "of_a_sequence": of_a_sequence,
            "seconds": least_seconds(
                weight_bytes=weight_bytes,
                of_a_sequence=of_a_sequence,
                batch=case["batch"],
                per_second=4e12,
            ),
        }


ROWS_FIRST = f"{OURS}:float8, rows of q as rows"
FEW_AS_MANY = ("max(FEW_ROWS.value, ", "max(16, ")  # of 16 rows 12 are empty; the same tiles
WIDENED = f"{OURS}:float8, bytes widened"
NOT_CONVERTED = (  # wrong numbers, and all else the same
    "numbers = tile.to(dtype)",
    "numbers = tile.to(tl.uint8, bitcast=True).to(tl.uint16).to(tl.float16, bitcast=True)",
)


@measured_on("gpu")
def float8(lab):
    """The same cache in bfloat16 and in float8, also not converted, and a window of 1,024.

    Beside each time how far the first sequence is from float64 of the bfloat16 cache, as a norm.
    Both with what the flush wrote in L2, as in all other results, and without.
    """
    lengths = {"batch": [4, 16, 64], "N": [16_384, 65_536]}
    widened, rows_first = (variant(OURS, [x]) for x in (NOT_CONVERTED, FEW_AS_MANY))
    for case in lab.each(dtype=["bfloat16"], D=[128], group=[4], **lengths):
        cache = full(case)
        scales = [x.abs().amax((0, 2, 3)).float() / 448 for x in cache[1:3]]
        small = [torch.empty_like(x, dtype=torch.float8_e4m3fn) for x in cache[1:3]]
        named_scales = dict(zip(("k_scale", "v_scale"), scales, strict=True))
        cache_append(*cache[1:3], *small, cache.lengths, **named_scales)
        small = cache._replace(k=small[0], v=small[1], **named_scales)
        calls = {OURS: decode(cache), f"{OURS}:float8": decode(small)}
        exact = (x[:1].double() for x in cache[:3])
        want = scaled_dot_product_attention(*exact, enable_gqa=True)
        off = {x: float((call()[:1] - want).norm() / want.norm()) for x, call in calls.items()}
        calls[f"{OURS}:window"] = decode(cache, window=(1_023, 0))
        for name, other in ((WIDENED, widened), (ROWS_FIRST, rows_first)):
            calls[name] = functools.partial(other, *small[:3], **small.options())
        for regime in (QUEUED, CLEAN):
            for row in lab.time(case | {"regime": regime}, calls, **work(case)):
                name = row["implementation"]
                seen = work(case, [1_024] * case["batch"]) if name == f"{OURS}:window" else {}
                if name.startswith(f"{OURS}:float8"):
                    seen = {"bytes_compulsory": row["bytes_compulsory"] - kv_bytes(case) // 2}
                yield row | seen | ({"off": off[name]} if name in off else {})
        del cache, small, calls, exact, want
        torch.cuda.empty_cache()


# Choices of the page Your kernel, as its command names them.
CHOICES = [
    "decode D=128", "grouped decode D=128", "grouped decode paged D=128",
    "window sinks grouped decode paged D=64", "grouped decode paged float8 D=128",
    "grouped decode paged same_bits D=128",
]  # fmt: skip


@measured_on("gpu")
def popular(lab):
    """What people copy: 16 sequences of 32,768 keys; pages hold 64, and a window 1,024 of them."""
    for case in lab.each(dtype=["bfloat16"], choice=CHOICES, batch=[16], N=[32_768]):
        named, D = case["choice"].split("D=")
        ticked = named.split()
        case |= {"D": int(D), "group": 4 if "grouped" in ticked else 1}
        cache = full(case, page=64 if "paged" in ticked else 0)
        options, seen = {"batch_invariant": "same_bits" in ticked}, work(case)
        if "window" in ticked:
            options["window"], seen = (1_023, 0), work(case, [1_024] * case["batch"])
        if "sinks" in ticked:
            options["sinks"] = torch.linspace(-1, 3, cache.q.shape[1], device="cuda")
        if "float8" in ticked:
            small = {x: getattr(cache, x).to(torch.float8_e4m3fn) for x in ("k", "v")}
            ones = torch.ones(HEADS, device="cuda")
            cache = cache._replace(**small, k_scale=ones, v_scale=ones)
            seen["bytes_compulsory"] -= kv_bytes(case) // 2
        yield from lab.time(case, {OURS: decode(cache, **options)}, **seen)
        del cache
        torch.cuda.empty_cache()


def uneven(kind, B, N):
    """Lengths of B sequences with B · N keys in all."""
    if kind == "all alike":
        return [N] * B
    if kind == "half long, half short":
        return [N // 8, 2 * N - N // 8] * (B // 2)
    longest = N * B // 4  # a quarter of all keys in one sequence
    rest = (N * B - longest) // (B - 1)
    return [N * B - rest * (B - 1), *[rest] * (B - 1)]


@measured_on("gpu")
def ragged(lab):
    """As many keys in all, in sequences that are alike, of two lengths, and with one giant."""
    kinds = ["all alike", "half long, half short", "one holds a quarter"]
    for case in lab.each(dtype=["bfloat16"], D=[128], group=[4], batch=[16, 64], kind=kinds):
        lengths = uneven(case["kind"], case["batch"], 8_192)
        case |= {"N": max(lengths)}
        cache = full(case | {"lengths": lengths}, page=64)
        calls = {OURS: decode(cache)}
        calls |= {f"{OURS}:{n} splits": decode(cache, num_splits=n) for n in (1, 8, 32)}
        for row in lab.time(case, calls, **work(case, lengths)):
            yield row | {"keys": sum(lengths), "longest": max(lengths)}
        del cache, calls
        torch.cuda.empty_cache()


@measured_on("gpu")
def intensity(lab):
    """From one row for each key to hundreds: where reading stops being the limit."""
    tokens = [1, 4, 8, 12, 16, 24, 64]  # near 184 rows, too
    for case in lab.each(dtype=["bfloat16"], D=[128], group=[1, 4, 8, 16], M=tokens):
        case |= {"batch": 16, "N": 8_192}
        cache = full(case)
        for row in lab.time(case, {OURS: decode(cache)}, **work(case)):
            yield row | {"rows": case["M"] * case["group"]}
        del cache
        torch.cuda.empty_cache()


@measured_on("gpu")
def sharing(lab):
    """A program for a group of query heads, and one for each of them, on the same cache."""
    for case in lab.each(dtype=["bfloat16"], D=[128], group=[4, 8], batch=[16, 64]):
        case |= {"N": 8_192}
        cache = full(case)
        alone = cache.q.shape[0] * HEADS, case["group"]  # each head of keys as a sequence
        k, v = (x.view(alone[0], 1, *x.shape[2:]).expand(*alone, -1, -1) for x in cache[1:3])
        lengths = cache.lengths.repeat_interleave(HEADS)
        each = functools.partial(
            decode_attention, cache.q.view(*alone, 1, -1), k, v, cache_seqlens=lengths
        )
        torch.testing.assert_close(
            each().view(cache.q.shape), decode(cache)(), rtol=0.02, atol=0.01
        )
        yield from lab.time(case, {OURS: decode(cache), APART: each}, **work(case))
        del cache, each, k, v
        torch.cuda.empty_cache()


@measured_on("gpu")
def combining(lab):
    """Splits combined by a second kernel that is started early, and in order."""
    for case in lab.each(dtype=["bfloat16"], D=[128], group=[4], batch=[1, 4], N=LENGTHS[:4]):
        caches = rotating(case)
        each = {name: amount * len(caches) for name, amount in work(case).items()}
        for number in (4, 16):
            call = in_turn([decode(cache, num_splits=number) for cache in caches])
            calls = {OURS: call, f"{OURS}:in order": in_order(call)}
            for row in lab.time(case | {"regime": IN_A_GRAPH}, calls, **each):
                yield row | {"splits": number, "calls": len(caches)}
        del caches, calls
        torch.cuda.empty_cache()


def in_order(call):
    """The call, whose second kernel waits to be launched until the first has ended."""
    facts = kernel._device_facts(torch.device("cuda"))._replace(early=False)
    played = patch.object(kernel, "_device_facts", lambda _: facts)

    def late():
        with played:
            return call()

    return late


@measured_on("gpu")
def invariance(lab):
    """The price of the same bits in every batch."""
    for case in lab.each(dtype=["bfloat16"], D=[128], group=[4], batch=BATCHES, N=[2_048, 32_768]):
        if not fits(case):
            continue
        cache = full(case)
        calls = {
            OURS: decode(cache),
            f"{OURS}:batch-invariant": decode(cache, batch_invariant=True),
        }
        yield from lab.time(case, calls, **work(case))
        del cache, calls
        torch.cuda.empty_cache()


@measured_on("gpu")
def host_time(lab):
    """What a call costs the host: one launch and two, beside PyTorch's; the work is short."""
    for case in lab.each(dtype=["bfloat16"], D=[128], group=[4], batch=[1], N=[512]):
        cache, paged = full(case), full(case, page=64)
        calls = {
            f"{OURS}:one launch": decode(cache, num_splits=1),
            f"{OURS}:two launches": decode(cache, num_splits=4),
            f"{OURS}:two launches, paged": decode(paged, num_splits=4),
            "torch:sdpa": functools.partial(resolve("torch:sdpa"), *cache[:3], enable_gqa=True),
        }
        for name, taken in time_host(calls).items():
            yield {"implementation": name, **case, **taken.as_row()}
