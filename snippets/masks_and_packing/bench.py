"""What the page of masks_and_packing measures: one function for each result."""

import functools
import itertools
from unittest.mock import patch

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.attention.varlen import varlen_attn

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import NumericalMismatch, make_qkv
from snippets._lab.measure.competitors import PACKAGES, own_layout, resolve
from snippets._lab.measure.session import why_not
from snippets._lab.rooms import measured_on

from . import backward, checks, kernel
from .backward import masks_and_packing_backward
from .kernel import masks_and_packing

OURS, PLAIN = "masks_and_packing", "flash_attention"
WINDOWS = [None, 64, 128, 256, 512, 1024]


def check(device):
    """Raise unless output and gradients are right here; no result is stored before it passed."""
    options = {"causal": True, "window": (40, None), "softcap": 9.0}
    sinks = torch.tensor([1.0, -2.0], device=device)
    ends = [torch.tensor(x, device=device).int() for x in ([0, 9, 70], [0, 90, 150])]
    packed = dict(zip(("cu_seqlens_q", "cu_seqlens_k"), ends, strict=True))
    for dtype, more in itertools.product((torch.float16, torch.float32), ({}, packed)):
        tensors = make_qkv(1, 2, M=70, N=150, D=64, dtype=dtype, device=device)
        attend, said = checks.attend, options | more
        if more:
            tensors = [x[0].transpose(0, 1).contiguous() for x in tensors]
            attend = checks.attend_packed
        q, k, v = tensors
        out, lse = masks_and_packing(q, k, v, sinks=sinks, return_lse=True, **said)
        leaves = [x.double().requires_grad_() for x in (q, k, v, sinks)]
        want, want_lse = attend(*leaves[:3], sinks=leaves[3], **said)
        found = masks_and_packing_backward(q, k, v, out, lse, q, sinks=sinks, **said)
        gradients = torch.autograd.grad(want, leaves, q.double())
        pairs = zip((out, lse, *found[:4]), (want, want_lse, *gradients), strict=True)
        for ours, right in pairs:  # a few roundings of each, and float32 sums of 150 numbers
            bound = 8 * torch.finfo(dtype).eps * right.abs().max().item() + 150 * 2.0**-23
            torch.testing.assert_close(ours.double(), right, rtol=0, atol=bound)


@measured_on("interpreter")
def visited(lab):
    """The bytes of K that one head loads, recorded while the interpreter runs the kernel."""
    from snippets._lab.probe.memory_trace import record

    N, D = 2048, 16
    q, k, v = make_qkv(1, 1, N=N, D=D, dtype=torch.float16)
    tile = kernel._tile_config("sm_80", q.dtype, D, branches=True)
    for case in lab.each(window=WINDOWS):
        size = case["window"]
        own = {"causal": True, "window": (None if size is None else size - 1, None)}
        without_tma = patch.object(kernel, "_architecture", lambda device: "sm_80")
        with without_tma, record({"q": q, "k": k, "v": v}) as trace:
            out = masks_and_packing(q, k, v, **own)
        want, _ = checks.attend(q.double(), k.double(), v.double(), **own)
        torch.testing.assert_close(out.double(), want, rtol=0, atol=4e-3)
        loaded = trace.total("load", tensor="k").bytes
        yield {
            **case,
            "N": N,
            "D": D,
            "BLOCK_M": tile.BLOCK_M,
            "BLOCK_N": tile.BLOCK_N,
            "key_bytes": loaded,
            "tiles": loaded // (tile.BLOCK_N * D * q.element_size()),
            "pairs_seen": int(checks.visible(N, N, **own).sum()),
        }


OPTIONS = {
    "none": {},
    "window": {"window": (127, None)},
    "sinks": {"sinks": torch.zeros(2)},
    "soft cap": {"softcap": 30.0},
    "bias": {"bias": torch.zeros(1, 1, 1, 256)},
    "packed": {"cu_seqlens_q": torch.tensor([0, 256]), "cu_seqlens_k": torch.tensor([0, 256])},
}


@measured_on("compiler", targets=["sm_90"])
def code(lab):
    """Instructions, registers and spills with each option, and of flash_attention."""
    from snippets._lab.probe.loops import INSTRUCTION

    plain = functools.partial(resolve(PLAIN), causal=True)
    for case in lab.each(D=[64, 128], option=["flash_attention", *OPTIONS]):
        q, k, v = make_qkv(1, 2, N=256, D=case["D"], dtype=torch.float16)
        options = {
            name: x.int() if name.startswith("cu") else x
            for name, x in OPTIONS.get(case["option"], {}).items()
        }
        if case["option"] == "packed":
            q, k, v = (x[0].transpose(0, 1).contiguous() for x in (q, k, v))
        call = functools.partial(masks_and_packing, causal=True, **options)
        (found,) = lab.kernels(plain if case["option"] == PLAIN else call, q, k, v)
        row = found.as_row()
        if found.cubin:
            names = [name for _, _, name in INSTRUCTION.findall(found.sass())]
            row["instructions"] = len(names) - names.count("NOP")  # which only fill up the end
        yield case | row


HEADS = {64: 32, 128: 16}  # D → heads: as many numbers in a row
PARTS = ["forward", "backward"]
# As many tokens: sequences that are alike, and a long one beside many of one token.
LENGTHS = {"packed": [4096] * 16, "one long": [60_000] + [1] * 5_536}
FLEX, VARLEN, FA4 = "torch:flex", "torch:varlen", "flash_attention_4"


@measured_on("gpu")
def windows(lab):
    """Causal windows, beside the plain kernels on sequences twice as long as the window.

    Those have as many tokens and about as many tiles: `scores` is how many these hold.
    """
    torch._dynamo.reset()  # beyond its limit of recompilations it would fall back to eager
    for case in lab.each(dtype=["bfloat16"], D=[64, 128], window=[256, 1024, 4096], part=PARTS):
        size, D, N = case["window"], case["D"], 16_384
        given = tensors(1, HEADS[D], N, D)
        short = [x.view(1, -1, 2 * size, D) for x in given]
        own = {OURS: (given, {"window": (size - 1, None)}), PLAIN: (short, {})}
        seen = in_window(size)
        yield from building(lab, case, seen, N)
        rivals = {FLEX: functools.partial(flex, seen, N), FA4: functools.partial(fa4, size)}
        for row in timed(lab, case, own, rivals):
            rows, width = (2 * size,) * 2 if row["implementation"] == PLAIN else (N, size)
            if "flops" in row:
                heads = HEADS[D] * N // rows
                row["flops"] *= heads * pairs(rows, width)
                row["scores"] = heads * computed(rows, width, D, case["part"])
            yield row


@measured_on("gpu")
def prices(lab):
    """What each option costs, beside the plain kernels on the same sequences, causal.

    Of a long sequence and many of one token, the plain kernels get the long one alone.
    """
    torch._dynamo.reset()
    names = ["sinks", "soft cap", "bias", *LENGTHS]
    for case in lab.each(dtype=["bfloat16"], D=[64, 128], option=names, part=PARTS):
        D, lengths = case["D"], LENGTHS.get(case["option"])
        heads, batch, L = HEADS[D], 4, 4096
        if lengths:
            heads, batch, L = heads // 4, lengths.count(lengths[0]), lengths[0]
            given = tensors(1, heads, sum(lengths), D)
            plain = [
                x[0, :, : batch * L].view(heads, batch, L, D).transpose(0, 1).contiguous()
                for x in given
            ]
            given = [x[0].transpose(0, 1).contiguous() for x in given]
            yield from building(lab, case, in_sequence(lengths), sum(lengths))
        else:
            given = plain = tensors(batch, heads, L, D)
        options, rivals = of_option(case["option"], heads, L)
        rivals = rivals if D == 128 else {}  # FlexAttention takes long to compile
        own = {OURS: (given, options), PLAIN: (plain, {})}
        if case["option"] == "bias" and case["part"] == "backward":
            own[f"{OURS}, its gradient too"] = given, options | {"want_grad_bias": True}
        for row in timed(lab, case, own, rivals):
            if "flops" in row:
                row["flops"] *= heads * batch * pairs(L, L)
            yield row


WHOLE, LEFT_OUT = "whole", "left out"
PIECES = {  # option → what is left out of kernel.py, and of the result, to see what it costs
    "soft cap": (
        "s = _tanh(s * (scale_log2 / LOG2_E / softcap)) * softcap",
        "s = s * (scale_log2 / LOG2_E)",
    ),
    "bias": ("s += _load_bias(bias, offs_m, start, M, columns, stride_bm, BLOCK_N)", "pass"),
}


@measured_on("gpu")
def apart(lab):
    """A soft cap without its tanh, and a bias that is not loaded: how much of their price is left.

    Both still scale a score apart from the subtraction.
    """
    left = {option: variant(OURS, [piece]) for option, piece in PIECES.items()}
    for case in lab.each(dtype=["bfloat16"], D=[64, 128], option=list(PIECES)):
        heads, L = HEADS[case["D"]], 4096
        *given, _ = tensors(4, heads, L, case["D"])
        options, _ = of_option(case["option"], heads, L)
        calls = {
            PLAIN: functools.partial(resolve(PLAIN), *given, causal=True),
            WHOLE: functools.partial(masks_and_packing, *given, causal=True, **options),
            LEFT_OUT: functools.partial(left[case["option"]], *given, causal=True, **options),
        }
        size = 4 * given[0].numel() * given[0].element_size()
        flops = 4 * case["D"] * 4 * heads * pairs(L, L)
        yield from lab.time(case, calls, flops=flops, bytes_compulsory=size)


# Choices of the page Your kernel, as its command names them.
CHOICES = [
    "causal D=128", "causal D=64", "D=64", "D=128", "causal lse D=128", "causal grouped D=128",
    "causal window D=128", "causal sinks D=128", "causal packed D=128", "causal softcap D=128",
    "causal bias D=128", "bias D=64", "causal window sinks grouped D=64",
    "causal window softcap grouped D=256", "backward D=128", "causal backward D=128",
    "causal grouped backward D=128", "causal packed grouped backward D=128",
]  # fmt: skip


@measured_on("gpu")
def popular(lab):
    """What people copy, forward, and backward where that is asked for: 4 sequences of 4,096 tokens.

    Of 16 heads of 128 columns, or as many numbers; four share a head of keys if they are grouped.
    """
    for case in lab.each(dtype=["bfloat16"], choice=CHOICES):
        named, D = case["choice"].split("D=")
        ticked, D, B, L = named.split(), int(D), 4, 4096
        H, both = 2048 // D, "backward" in ticked
        given = tensors(B, H, L, D)
        if "grouped" in ticked:
            given[1:3] = (x[:, ::4].contiguous() for x in given[1:3])
        size = sum(x.numel() * x.element_size() for x in (given[0], *given[:3]))
        options, width = {"causal": "causal" in ticked}, L
        if "window" in ticked:
            options["window"], width = (1023, None), 1024
        seen = pairs(L, width) if "causal" in ticked else L * L
        for option in ("sinks", "soft cap", "bias"):
            if option.replace(" ", "") in ticked:
                options |= of_option(option, H, L)[0]
        if "packed" in ticked:
            given = [x.transpose(1, 2).flatten(0, 1).contiguous() for x in given]
            ends = torch.arange(0, B * L + 1, L, dtype=torch.int32, device="cuda")
            options |= {"cu_seqlens_q": ends, "cu_seqlens_k": ends}
        call = functools.partial(through, *given, both, both or "lse" in ticked, **options)
        flops = (4 + 10 * both) * D * B * H * seen
        yield from lab.time(
            case | {"D": D}, {OURS: call}, flops=flops, bytes_compulsory=size * (1 + 2 * both)
        )


def through(q, k, v, grad_out, both, return_lse, **options):
    """A call of the forward, and of the backward that follows."""
    found = masks_and_packing(q, k, v, return_lse=return_lse, **options)
    return masks_and_packing_backward(q, k, v, *found, grad_out, **options) if both else found


def tensors(*shape):
    """q, k, v and the gradient for the output, [B, H, N, D], drawn on the GPU: they are large."""
    torch.manual_seed(0)
    q, *others = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(4))
    return [3 * q, *others]  # scores far enough apart


def pairs(N, window):
    """Of N queries and keys those that see each other, with a causal window."""
    return N * window - window * (window - 1) // 2


def computed(N, window, D, part):
    """How many scores the tiles hold that a causal window visits; backward, of seven products."""
    gpu, dtype = kernel._architecture(torch.device("cuda")), torch.bfloat16
    tiles = [(kernel._tile_config(gpu, dtype, D, branches=True), 7)]
    if part == "backward":
        tiles = zip(backward._tiles(gpu, dtype, D, causal=True), (4, 3), strict=True)
    found = 0
    for (block_m, block_n, *_), products in tiles:
        for first in range(0, N, block_m):
            begin, end = max(first - window + 1, 0) // block_n, -(-(first + block_m) // block_n)
            found += products * (end - begin) * block_m * block_n
    return found // 7


def timed(lab, case, own, rivals):
    """Rows of ours and the plain kernels, by name their tensors and options, and of the others.

    Their FLOPs are those of one query and one key.
    """
    launchers = {OURS: (masks_and_packing, masks_and_packing_backward)}
    launchers[PLAIN] = resolve("flash_attention"), resolve("flash_backward")
    calls = {}
    for name, (given, options) in own.items():
        forward, gradients = launchers[name.partition(",")[0]]
        said = {x: options[x] for x in options if x != "want_grad_bias"}
        call = functools.partial(forward, *given[:3], causal=True, return_lse=True, **said)
        if case["part"] == "backward":
            q, k, v, grad_out = given
            call = functools.partial(gradients, q, k, v, *call(), grad_out, causal=True, **options)
        calls[name] = call
    given, want = own[OURS][0], calls[OURS]()
    for name, make in rivals.items():
        try:
            calls[name] = agreeing(want, rival(name, make(), case["part"], *given))
        except Exception as error:  # noqa: BLE001 - what is missing or wrong is named in its row
            yield {"implementation": name, **case, "error": why_not(error)}
    products, moved = (4, 4) if case["part"] == "forward" else (10, 8)
    size = moved * given[0].numel() * given[0].element_size()
    yield from lab.time(case, calls, flops=products * case["D"], bytes_compulsory=size)


def rival(name, attend, part, *given):
    """A call of somebody else's attention, on tensors that lie as its authors have them."""
    if given[0].dim() == 4:
        given = own_layout(name, *given)
    elif name == FLEX:
        given = [x.transpose(0, 1)[None].contiguous() for x in given]
    *leaves, grad_out = (x.detach() for x in given)
    leaves = [x.requires_grad_() for x in leaves]
    if part == "forward":
        return functools.partial(attend, *leaves)
    return functools.partial(
        torch.autograd.grad, attend(*leaves), leaves, grad_out, retain_graph=True
    )


def agreeing(want, call):
    """The call, if it finds what is wanted: both round to 16 bits."""
    found = call()
    for x, y in zip(found if isinstance(found, tuple) else (found,), want, strict=False):
        x = x[0].transpose(0, 1) if x.dim() > y.dim() else x
        share = ((x - y).double().norm() / y.double().norm()).item()
        if not share <= 0.02:  # written so that NaN fails
            raise NumericalMismatch(f"{share:.1%} off")
    return call


def in_window(size):
    """A causal window as FlexAttention wants it; a tensor, so that it is compiled once."""
    size = torch.tensor(size, device="cuda")
    return lambda b, h, m, n: (n <= m) & (n > m - size)


def in_sequence(lengths):
    """The same of packed sequences, causal."""
    own = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).int().cuda()
    return lambda b, h, m, n: (own[m] == own[n]) & (n <= m)


def building(lab, case, seen, N):
    """What it costs to build FlexAttention's mask, once for all kinds of call."""
    if case["part"] == "forward" and case["D"] == 128:
        call = functools.partial(create_block_mask, seen, None, None, N, N, device="cuda")
        yield from lab.time(case, {f"{FLEX}, its mask": call}, flops=0, bytes_compulsory=0)


def flex(seen, N, score_mod=None):
    """FlexAttention, compiled; its mask is built here, before the clock starts."""
    mask = create_block_mask(seen, None, None, N, N, device="cuda")
    attend = torch.compile(flex_attention, dynamic=False)
    return functools.partial(attend, score_mod=score_mod, block_mask=mask)


def fa4(size=None, ends=None, longest=None):
    """FlashAttention-4, causal: of a window, or packed."""
    if ends is not None:
        attend = PACKAGES[FA4].function("flash_attn_varlen_func")
        most = {"max_seqlen_q": longest, "max_seqlen_k": longest}
        said = {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "causal": True}
        return lambda *given: first(attend(*given, **said, **most))
    attend = PACKAGES[FA4].function()
    return lambda *given: first(
        attend(*(x.transpose(1, 2) for x in given), causal=True, window_size=(size - 1, 0))
    ).transpose(1, 2)


def first(found):
    """The output, which may come with statistics."""
    return found[0] if isinstance(found, tuple) else found


def of_option(name, heads, L):
    """An option of ours at this many heads; and what makes the others that have it, by name."""

    def causal(b, h, m, n):
        return n <= m

    if name in LENGTHS:
        lengths = LENGTHS[name]
        ends = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device="cuda")
        packed = {"cu_seq_q": ends, "cu_seq_k": ends, "max_q": L, "max_k": L}
        return {"cu_seqlens_q": ends, "cu_seqlens_k": ends}, {
            FLEX: functools.partial(flex, in_sequence(lengths), sum(lengths)),
            VARLEN: lambda: functools.partial(varlen_attn, **packed, window_size=(-1, 0)),
            FA4: functools.partial(fa4, ends=ends, longest=L),
        }
    if name == "sinks":
        sinks = torch.linspace(-1, 3, heads, device="cuda")
        return {"sinks": sinks}, {}  # FlexAttention has none
    if name == "soft cap":
        capped = lambda s, b, h, m, n: 30 * torch.tanh(s / 30)  # noqa: E731
        return {"softcap": 30.0}, {FLEX: functools.partial(flex, causal, L, capped)}
    bias = torch.randn(1, heads, L, L, dtype=torch.bfloat16, device="cuda")
    biased = lambda s, b, h, m, n: s + bias[0, h, m, n]  # noqa: E731
    return {"bias": bias}, {FLEX: functools.partial(flex, causal, L, biased)}
