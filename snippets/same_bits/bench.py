"""What the page of same_bits measures: one function for each result."""

import functools

import torch
from torch.nn.attention import sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import NumericalMismatch, assert_some_rows
from snippets._lab.measure.competitors import BACKENDS, PACKAGES, in_a_line, resolve, version_of
from snippets._lab.measure.regimes import in_a_graph
from snippets._lab.rooms import measured_on

from . import op
from .experiments import CHANGES, difference, rows
from .kernel import same_bits

OURS, FA4 = "same_bits", "flash_attention_4"
DEVICE = "cuda"
HEADS, HEADS_KV = 8, 2
SHAPES = ((600, 64), (4100, 128))  # of `matrix`: keys, columns
LENGTH = 1300  # of what is compared otherwise


def check(device):
    """Raise unless both forms are right on this device, and on a GPU the same in every bit."""
    for D in (64, 128):
        q, k, v = _problem(2, 150, D, device)
        whole = same_bits(q, k, v, split=False)
        assert_some_rows(whole, q, *(x.repeat_interleave(4, 1) for x in (k, v)), causal=True)
        parts = same_bits(q[:, :, -3:], k, v, split=True)
        if device == "cuda":
            if not torch.equal(parts, whole[:, :, -3:]):
                raise NumericalMismatch("three queries alone have other bits than among all")
        else:
            torch.testing.assert_close(parts, whole[:, :, -3:], rtol=0, atol=4e-3)


def eager(q, k, v):
    """Causal attention in separate operations, of any dtype; groups of query heads share keys."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    M, N = q.shape[2], k.shape[2]
    hidden = torch.ones(M, N, dtype=torch.bool, device=q.device).triu(N - M + 1)
    return (q @ k.mT * q.shape[3] ** -0.5).masked_fill(hidden, -torch.inf).softmax(-1) @ v


@functools.cache
def _problem(batch, N, D, device):
    """q of 8 heads, k and v of 2."""
    generator = torch.Generator().manual_seed(0)
    made = (torch.randn(batch, H, N, D, generator=generator) for H in (HEADS, HEADS_KV, HEADS_KV))
    dtype = torch.bfloat16 if device == "cuda" else torch.float16  # which the interpreter knows
    return [(scale * x).to(device, dtype) for scale, x in zip((3, 1, 1), made, strict=True)]


@measured_on("gpu")
def products(lab):
    """Rows of one product, and two sums of each: by tile height, warps and place in the tile."""
    for case in lab.each(dtype=["bfloat16", "float16"], K=[64, 256], computed=[False, True]):
        generator = torch.Generator().manual_seed(0)
        made = (
            torch.randn(shape, generator=generator) for shape in ((256, case["K"]), (case["K"], 64))
        )
        x, y = (made_of.to(DEVICE, getattr(torch, case["dtype"])) for made_of in made)
        want, _ = rows(x, y, 64, 4, computed=case["computed"])
        for BLOCK_M, num_warps, shift in (
            (16, 1, 0),
            (16, 4, 5),
            (32, 4, 0),
            (64, 4, 5),
            (128, 8, 0),
        ):
            found, unit = rows(x, y, BLOCK_M, num_warps, shift=shift, computed=case["computed"])
            at = {"BLOCK_M": BLOCK_M, "num_warps": num_warps, "shift": shift, "unit": unit}
            for of, result in found.items():
                yield {**case, **at, "of": of, **difference(result, want[of])}


@measured_on("gpu")
def causes(lab):
    """One change to the kernel at a time: its decoding beside our forward, and beside its own."""
    q, k, v = _problem(1, LENGTH, 128, DEVICE)
    want = [x[:, :, -64:] for x in same_bits(q, k, v, return_lse=True)]
    for case in lab.each(change=list(CHANGES)):
        changed = functools.partial(variant(OURS, CHANGES[case["change"]]), return_lse=True)
        parts = changed(q[:, :, -64:], k, v, split=True)
        own = [x[:, :, -64:] for x in changed(q, k, v)]
        for beside, other in (("ours", want), ("its own", own)):
            for of, x, y in zip(("output", "logsumexp"), parts, other, strict=True):
                yield {**case, "beside": beside, "of": of, **difference(x, y)}


def _call(name, q, k, v, **options):
    """Causal attention by name; the queries are the newest of the keys' tokens."""
    M, N = q.shape[2], k.shape[2]
    name, _, how = name.partition(":")
    if name == "torch":
        k, v = (x.repeat_interleave(HEADS // HEADS_KV, dim=1) for x in (k, v))
        mask = None if M in (1, N) else causal_lower_right(M, N)
        with sdpa_kernel(BACKENDS[f"torch:{how}"]):
            return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=M == N > 1)
    if name == "decode_attention":
        return resolve(name)(q, k, v, batch_invariant=how == "invariant", **options)
    if name == FA4:
        return _fa4(q, k, v, **options)
    return resolve(name)(q, k, v, causal=True, **options)


def _fa4(q, k, v, *, cache_seqlens=None, page_table=None, deterministic=False):
    """FlashAttention-4, causal: its tensors are [B, M, H, D], its caches [pages, keys, Hkv, D]."""
    options = {"causal": True, "deterministic": deterministic}
    attend = PACKAGES[FA4].function()
    if page_table is not None:  # what lies past a length is loaded, and 0 · NaN is NaN
        k, v = k.nan_to_num(), v.nan_to_num()
        attend = PACKAGES[FA4].function("flash_attn_varlen_func")
        options |= {"page_table": page_table, "seqused_k": cache_seqlens}
    found = attend(*(x.transpose(1, 2) for x in (q, k, v)), **options)
    return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)


DECODING = {"same_bits:decoding", "decode_attention", "decode_attention:invariant"}
KERNELS = [
    "same_bits:training", "same_bits:decoding", "flash_attention", "hopper_attention",
    "decode_attention", "decode_attention:invariant", *BACKENDS, FA4,
]  # fmt: skip
CALLS = 100
COLUMNS = {
    "batch": "alone or one of 16",
    "position": "first or twelfth of 16",
    "queries": "the newest query alone or among all",
    "chunk": "all queries at once or the newest 300",
    "splits": "one split or as many as there are",
    "pages": "in one piece or in pages of 16 and 128",
    "repeated": "100 calls",
}


@measured_on("gpu")
def matrix(lab):
    """Each kernel beside itself while one thing changes: how many numbers differ, how far."""
    for case in lab.each(kernel=KERNELS, change=list(COLUMNS)):
        total = {}
        try:
            for N, D in SHAPES:
                for found, want in _changed(
                    case["kernel"], case["change"], *_problem(16, N, D, DEVICE)
                ):
                    for name, value in difference(found, want).items():
                        total[name] = _joined(name, total.get(name, 0), value)
        except Exception as error:  # noqa: BLE001 - whatever it is, its row says so
            yield {**case, "error": in_a_line(error)}
            continue
        if total:
            yield {**case, **total, "version": version_of(case["kernel"])}


def _joined(name, before, value):
    return max(before, value) if name == "largest" else before + value


def _changed(name, change, q, k, v):
    """Pairs of results that would be equal if the change changed nothing."""
    decodes, ours = name in DECODING, name.startswith(OURS)
    call = functools.partial(_call, name.replace(":training", "").replace(":decoding", ""))
    N, M, few = k.shape[2], 1 if decodes else k.shape[2], 17 if decodes else 300
    at_once = 64 if decodes else N
    first = [x[:1] for x in (q, k, v)]
    if change == "batch":
        yield call(*_newest(M, *first)), call(*_newest(M, q, k, v))[:1]
    if change == "position":
        moved = call(*_newest(M, *(x.roll(11, 0) for x in (q, k, v))))[11:12]
        yield moved, call(*_newest(M, q, k, v))[:1]
    if change == "queries":
        yield call(*_newest(1, *first)), call(*_newest(at_once, *first))[:, :, -1:]
    if change == "chunk":
        yield call(*_newest(few, *first)), call(*_newest(at_once, *first))[:, :, -few:]
    if change == "splits" and ours:
        yield tuple(call(*_newest(at_once, *first), split=split) for split in (True, False))
    if change == "splits" and name == "decode_attention":
        yield tuple(call(*_newest(M, *first), num_splits=splits) for splits in (1, 8))
    if change == "pages" and (decodes or ours or name == FA4):
        for page in (16, 128):
            options = _paged(page, *first[1:])
            caches = options.pop("caches")
            yield call(_newest(M, *first)[0], *caches, **options), call(*_newest(M, *first))
    if change == "repeated":
        want = call(*_newest(M, *first))
        for _ in range(CALLS - 1):
            yield call(*_newest(M, *first)), want


def _newest(M, q, k, v):
    return q[:, :, q.shape[2] - M :].contiguous(), k, v


def _paged(page, k, v):
    """The same keys and values of one sequence on pages in a random order, NaN between them."""
    N = k.shape[2]
    pages = -(-N // page)
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(0)).to(k.device)
    caches = []
    for x in (k, v):
        room = x.new_full((x.shape[1], pages * page, x.shape[3]), float("nan"))
        room[:, :N] = x[0]
        cache = x.new_empty(pages, x.shape[1], page, x.shape[3])
        cache[order] = room.unflatten(1, (pages, page)).transpose(0, 1)
        caches.append(cache)
    lengths = torch.tensor([N], dtype=torch.int32, device=k.device)
    return {"caches": caches, "page_table": order.int()[None], "cache_seqlens": lengths}


@measured_on("gpu")
def ring(lab):
    """Rows of a ring of all GPUs beside themselves, while one thing changes: by chunk."""
    count = torch.cuda.device_count()
    if count < 2:
        raise RuntimeError(f"a ring needs two GPUs of one host, and this machine has {count}")
    with op.Ranks(count, DEVICE, timeout=60.0) as ranks:
        for found in ranks.run(op.on_a_rank, DEVICE, torch.bfloat16, 4096, 128):
            yield from found


SQUARE = {
    "flash_attention": ("flash_attention", {}),
    "hopper_attention": ("hopper_attention", {}),
    "decode_attention, 1 split": ("decode_attention", {"num_splits": 1}),
    "decode_attention, invariant": ("decode_attention:invariant", {}),
    "same_bits, one pass": (OURS, {"split": False}),
    "same_bits, split": (OURS, {"split": True}),
}


@measured_on("gpu")
def square(lab):
    """Our kernels beside each other: the newest 64 queries, which the first two compute of all."""
    results = {}
    tensors = _problem(1, LENGTH, 128, DEVICE)
    for name, (called, options) in SQUARE.items():
        M = 64 if "decode" in called else LENGTH
        results[name] = _call(called, *_newest(M, *tensors), **options)[:, :, -64:]
    for case in lab.each(one=list(SQUARE), other=list(SQUARE)):
        yield {**case, **difference(results[case["one"]], results[case["other"]])}


RUNS = 1000
BACKWARDS = [
    (OURS, False), (OURS, True), ("flash_backward", False), ("flash_backward", True),
    ("hopper_backward", False), ("hopper_backward", True), ("torch:flash", False),
    ("torch:flash", True), ("torch:cudnn", False), ("torch:math", False), (FA4, False), (FA4, True),
]  # fmt: skip


@measured_on("gpu")
def repeats(lab):
    """A thousand runs of one backward: how many have other bits than the first."""
    q, k, v = (x.detach().requires_grad_() for x in _problem(2, 2048, 64, DEVICE))
    for name, deterministic in BACKWARDS:
        lab.advance(f"{name}, deterministic {deterministic}")
        row = {"implementation": name, "deterministic": deterministic, "N": 2048, "D": 64}
        try:
            yield row | _repeated(name, deterministic, q, k, v)
        except Exception as error:  # noqa: BLE001 - whatever it is, its row says so
            yield row | {"error": in_a_line(error)}
        finally:
            torch.use_deterministic_algorithms(False)


def _repeated(name, deterministic, q, k, v):
    torch.use_deterministic_algorithms(name.startswith("torch") and deterministic)
    attend = _differentiable(name, deterministic)
    out = attend(q, k, v)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    backward = functools.partial(torch.autograd.grad, out, (q, k, v), grad, retain_graph=True)
    first = backward()
    others = torch.zeros(3, dtype=torch.int64, device=q.device)
    largest = torch.zeros((), device=q.device)
    for _ in range(RUNS - 1):
        found = backward()
        others += torch.stack([(x != y).any() for x, y in zip(found, first, strict=True)])
        apart = [(x.float() - y.float()).abs().max() for x, y in zip(found, first, strict=True)]
        largest = torch.maximum(largest, torch.stack(apart).max())
    dq, dk, dv = others.tolist()
    row = {"other_dq": dq, "other_dk": dk, "other_dv": dv, "largest": largest.item()}
    alone = torch.autograd.grad(attend(*(x[:1] for x in (q, k, v))), (q, k, v), grad[:1])
    apart = [int((x[:1] != y[:1]).sum()) for x, y in zip(alone, first, strict=True)]
    row |= {"other_alone": sum(apart), "version": version_of(name)}  # a sequence, and one of two
    return {"runs": RUNS, **row}


def _differentiable(name, deterministic):
    """Causal attention with gradients, by name."""
    if name == FA4:
        return functools.partial(_fa4, deterministic=deterministic)
    if name == OURS:
        return functools.partial(op.attention, deterministic=deterministic)
    return op.attend_with(name, deterministic=deterministic and not name.startswith("torch"))


ONE_CHUNK = [("CHUNK = tl.constexpr(512)", "CHUNK = tl.constexpr(1048576)")]


@measured_on("gpu")
def training(lab):
    """Time of a causal forward: in one pass, as decoding does it, and without merging."""
    variants = {
        f"{OURS}:as decoding": functools.partial(same_bits, split=True),
        f"{OURS}:one chunk": variant(OURS, ONE_CHUNK),
        f"{OURS}:tl.sum": variant(OURS, CHANGES["row sums by tl.sum"]),
    }
    for case in lab.each(dtype=["bfloat16"], D=[64, 128], N=[1024, 16384], causal=[True]):
        case |= {"batch": 16384 // case["N"], "heads": 2048 // case["D"]}
        names = [OURS, "flash_attention", "hopper_attention", "torch:flash", "torch:cudnn"]
        yield from lab.time_attention(case, names, variants)


@measured_on("gpu")
def decoding(lab):
    """Time of one new token per sequence: split, in one pass, and decode_attention."""
    for case in lab.each(dtype=["bfloat16"], D=[128], batch=[1, 16, 64], N=[1024, 8192]):
        B, N, D = case["batch"], case["N"], case["D"]
        torch.manual_seed(0)  # on the GPU, where drawing so many numbers takes no time
        q, k, v = (
            torch.randn(*shape, D, dtype=torch.bfloat16, device=DEVICE)
            for shape in ((B, 32, 1), (B, 8, N), (B, 8, N))
        )
        decode = resolve("decode_attention")
        calls = {
            OURS: functools.partial(same_bits, q, k, v),
            f"{OURS}:one pass": functools.partial(same_bits, q, k, v, split=False),
            "decode_attention": functools.partial(decode, q, k, v),
            "decode_attention:invariant": functools.partial(decode, q, k, v, batch_invariant=True),
        }
        amounts = {
            "flops": 4 * q.numel() * case["N"],
            "bytes_compulsory": 2 * (k.numel() + v.numel()),
        }
        yield from lab.time(case, calls, **amounts)


BATCH, PROMPT, TOKENS, STEPS = 4, 24, 1000, 200


@measured_on("gpu")
def ladder(lab):
    """Log-probabilities of sampled tokens, as sampled and as training computes them."""
    model, prompt = op.trained(STEPS, BATCH, PROMPT)
    for case in lab.each(rung=list(op.RUNGS)):
        rung = op.RUNGS[case["rung"]]
        tokens, sampled = op.rollout(model, prompt, TOKENS, rung)
        about = {**case, "trained_steps": STEPS, "batch": BATCH, "tokens": TOKENS}
        for together in (BATCH, 1):
            parts = [op.score(model, part, TOKENS, rung) for part in tokens.split(together)]
            apart = difference(torch.cat(parts), sampled)
            mean = (torch.cat(parts) - sampled).abs().mean().item()
            yield about | {"part": "difference", "together": together, **apart, "mean": mean}


@measured_on("gpu")
def price(lab):
    """Time of one sampled token of four sequences in a graph, and of a training forward."""
    model, _ = op.trained(0, BATCH, PROMPT)
    tokens = torch.randint(256, (BATCH, PROMPT + TOKENS), device=DEVICE)
    numbers = sum(x.numel() for x in model.parameters())
    for part in ("sampling", "training forward"):
        calls = {}
        for name, rung in op.RUNGS.items():
            if part == "sampling":
                calls[name] = in_a_graph(op.one_step(model, tokens, rung))
            else:
                calls[name] = functools.partial(op.score, model, tokens, TOKENS, rung)
        count = BATCH * (1 if part == "sampling" else tokens.shape[1])
        amounts = {"flops": 2 * count * numbers, "bytes_compulsory": 2 * numbers}
        yield from lab.time({"part": part, "dtype": "bfloat16", "batch": BATCH}, calls, **amounts)
