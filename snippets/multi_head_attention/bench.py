"""What the page of multi_head_attention measures: one function for each result."""

import functools
import itertools
import math
import time

import torch
import triton
import triton.language as tl
from torch.nn.functional import scaled_dot_product_attention

from snippets._lab.measure.timing import Times
from snippets._lab.results import store
from snippets._lab.rooms import measured_on

from . import exercise
from .checks import assert_same
from .module import PROJECTIONS, MultiHeadAttention, MultiHeadAttentionVectorized

HEADS = [1, 2, 4, 8, 16, 32]
SIZES = {"small": {"B": 8, "N": 128, "E": 512}, "large": {"B": 8, "N": 1024, "E": 1024}}
SMALL = SIZES["small"]
PASSES = ["forward", "forward and backward"]
BURST = 100  # launches between two events
GPU = "cuda"


class WithSDPA(MultiHeadAttentionVectorized):
    """The vectorised module with PyTorch's fused attention; mask as PyTorch takes it."""

    def attend(self, q, k, v, mask=None):
        return scaled_dot_product_attention(q, k, v, attn_mask=mask)  # [B, H, N, D]


def _forms(E, heads, *, dtype, device, head_dim=None):
    """The same weights in every form: name → module, and torch.nn's where it has one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loop = MultiHeadAttention(E, heads, head_dim).to(device, dtype)
    vectorized = MultiHeadAttentionVectorized.from_heads(loop)
    found = {
        "loop": loop,
        "vectorized": vectorized,
        "exercise": exercise.MultiHeadAttentionFused.from_separate(vectorized),
        "SDPA": WithSDPA.from_heads(loop),
    }
    if head_dim is None:
        found["torch"] = vectorized.as_torch()
    return {f"multi_head_attention:{name}": module for name, module in found.items()}


def _tokens(case, *, dtype, device):
    """x [B, N, E] of a case; three times as wide as N(0, 1), so that no softmax is flat."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(case["B"], case["N"], case["E"], generator=generator) * 3
    return x.to(device, dtype)


def _run(module, x, mask=None):
    """What a form gives for x; mask: bool, True where a key is visible."""
    if isinstance(module, torch.nn.MultiheadAttention):
        hidden = None if mask is None else ~mask
        return module(x, x, x, attn_mask=hidden, need_weights=False)[0]
    return module(x, mask)


def check(device):
    """Raise unless all forms agree on this device; no result is stored before they do.

    In float64 the forms differ by the order of their sums only: of a few hundred terms each, with
    one rounding a term.
    """
    for heads, causal in itertools.product((1, 2, 8), (False, True)):
        case = {"B": 2, "N": 33, "E": 64}
        x = _tokens(case, dtype=torch.float64, device=device)
        mask = torch.ones(33, 33, device=device).tril().bool() if causal else None
        modules = _forms(64, heads, dtype=torch.float64, device=device)
        want = _run(modules.pop("multi_head_attention:torch"), x, mask)
        slack = 1000 * torch.finfo(x.dtype).eps * want.abs().max().item()
        for module in modules.values():
            assert_same(_run(module, x, mask), want, slack=slack)


def _call_of(module, x, passes):
    """A function that runs a layer: the output alone, or all gradients after it."""
    if passes == "forward":
        module.eval()

        def forward():
            with torch.no_grad():
                return _run(module, x)

        return forward
    module.train()
    x = x.clone().requires_grad_()
    wanted = [x, *module.parameters()]
    sent_back = torch.ones_like(x)

    def forward_and_backward():
        return torch.autograd.grad(_run(module, x), wanted, sent_back)

    return forward_and_backward


@measured_on("gpu")
def launches(lab):
    """Kernels that one call of a layer launches, as torch.profiler saw them on the GPU."""
    for case in lab.each(dtype=["float16"], passes=PASSES, heads=HEADS):
        x = _tokens(SMALL, dtype=torch.float16, device=GPU)
        modules = _forms(SMALL["E"], case["heads"], dtype=torch.float16, device=GPU)
        for name, module in modules.items():
            seen = _kernels_seen(_call_of(module, x, case["passes"]))
            listed = case["heads"] == 8 and case["passes"] == "forward"
            kernels = [event for event in seen if not event.startswith(("Memcpy", "Memset"))]
            yield {
                **SMALL,
                **case,
                "implementation": name,
                "launches": len(kernels),
                "copies_and_fills": len(seen) - len(kernels),
                "kernels": [kernel[:120] for kernel in kernels] if listed else None,
            }


def _kernels_seen(call):
    """Names of everything on the GPU's timeline while `call` runs, in order."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    for _ in range(2):  # the first profile of a process may come out empty
        call()  # libraries load, the allocator's cache fills
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=activities) as profile:
            call()
            torch.cuda.synchronize()
    on_gpu = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    if not on_gpu:
        raise RuntimeError("torch.profiler saw no kernel; CUPTI may be missing or forbidden")
    return [e.name for e in sorted(on_gpu, key=lambda e: e.time_range.start)]


def _work_of(size, passes):
    """(FLOPs, compulsory bytes) of a layer in float16; the backward pass has twice the products."""
    B, N, E = size["B"], size["N"], size["E"]
    products = 4 * 2 * B * N * E * E + 2 * 2 * B * N * N * E
    bytes_once = 2 * (2 * B * N * E + 4 * E * E)  # x and the result, four weights
    factor = {"forward": (1, 1), "forward and backward": (3, 2)}[passes]
    return products * factor[0], bytes_once * factor[1]


@measured_on("gpu")
def layer_time(lab):
    """Time of a layer over heads: on the GPU alone, and on the host's clock from call to call."""
    for case in lab.each(dtype=["float16"], size=[*SIZES], passes=PASSES, heads=HEADS):
        size = SIZES[case["size"]]
        x = _tokens(size, dtype=torch.float16, device=GPU)
        modules = _forms(size["E"], case["heads"], dtype=torch.float16, device=GPU)
        calls = {name: _call_of(module, x, case["passes"]) for name, module in modules.items()}
        flops, count = _work_of(size, case["passes"])
        case = {**size, **case}
        about = {**case, "clock": "gpu"}
        yield from lab.time(about, calls, flops=flops, bytes_compulsory=count)
        for name, taken in _host_times(calls).items():
            row = {"implementation": name, **case, "clock": "host", **taken.as_row()}
            yield {**row, "flops": flops, "bytes_compulsory": count}


def _host_times(calls, samples=7, budget_ms=5.0):
    """Times of one call among several back to back, from the host's side, in turns."""
    repeats = {}
    for name, call in calls.items():
        _host_ms(call, 2)
        repeats[name] = min(20, max(1, int(budget_ms / _host_ms(call, 1))))
    taken = {name: [] for name in calls}
    for _ in range(samples):
        for name, call in calls.items():
            taken[name].append(_host_ms(call, repeats[name]))
    return {name: Times(values) for name, values in taken.items()}


def _host_ms(call, repeats):
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e3 / repeats


@triton.jit
def _empty_kernel(x_ptr):
    """Does nothing: what is left is the launch."""


@triton.jit
def _one_kernel(x_ptr):
    """Adds one to one number: the least that a kernel can do."""
    tl.store(x_ptr, tl.load(x_ptr) + 1)


@measured_on("gpu")
def empty_launch(lab):
    """Time of a launch among many: on the host's clock, and on the GPU with a full queue."""
    x = torch.zeros(1, device=GPU)
    small = torch.zeros(16, 16, device=GPU)
    calls = {
        "empty Triton kernel": lambda: _empty_kernel[(1,)](x),
        "Triton kernel, one number": lambda: _one_kernel[(1,)](x),
        "PyTorch, one number": lambda: x.add_(1),
        "PyTorch, product 16 × 16": lambda: small @ small,
    }
    for case in lab.each(dtype=["float32"], launches=[BURST]):
        bursts = {name: functools.partial(_repeat, call, BURST) for name, call in calls.items()}
        yield from lab.time({**case, "clock": "gpu"}, bursts, flops=0, bytes_compulsory=0)
        for name, taken in _host_times(bursts, samples=20).items():
            row = {"implementation": name, **case, "clock": "host", **taken.as_row()}
            yield {**row, "flops": 0, "bytes_compulsory": 0}


def _repeat(call, times):
    for _ in range(times):
        call()


WIDTHS = {  # a width that kernels are made for → it and its neighbours
    64: [*range(60, 73)],
    128: [120, 122, 124, 126, 127, 128, 129, 130, 132, 134, 136],
}
NAMED = [63, 64, 65, 68, 72]  # widths whose kernels are looked up
BATCH, BATCH_HEADS, TOKENS = 4, 8, 1024  # sentences, heads of each, tokens
OPERATIONS = {  # operation → what a chart calls it
    "scores": "scores, q·kᵀ",
    "values": "values, weights·v",
    "attention": "SDPA, both at once",
}


@measured_on("gpu")
def head_dim(lab):
    """Time of the two products of attention, and of SDPA, over the width of a head."""
    dtypes = ["float16", "bfloat16", "float32"]
    around = {D: width for width, near in WIDTHS.items() for D in near}
    for case in lab.each(dtype=dtypes, operation=[*OPERATIONS], D=[*around]):
        calls, flops, count = _products(case, device=GPU)
        about = {"label": OPERATIONS[case["operation"]], "around": around[case["D"]]}
        about |= {"batch": BATCH, "heads": BATCH_HEADS, "N": TOKENS}
        names = dict.fromkeys(calls)
        if case["D"] in NAMED:
            names = {name: _kernels_seen(call) for name, call in calls.items()}
        for row in lab.time(case, calls, flops=flops, bytes_compulsory=count):
            seen = names[row["implementation"]]
            yield {**row, **about, "kernels": [kernel[:120] for kernel in seen] if seen else None}


def _products(case, device):
    """Calls, FLOPs and compulsory bytes of an operation of [B, H, N, D] tensors."""
    dtype = getattr(torch, case["dtype"])
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, BATCH, BATCH_HEADS, TOKENS, case["D"], generator=generator)
    q, k, v = (x.to(device, dtype) for x in (q, k, v))  # [B, H, N, D] each
    rows = q.numel()
    pairs = BATCH * BATCH_HEADS * TOKENS * TOKENS
    product = 2 * pairs * case["D"]
    size = dtype.itemsize
    if case["operation"] == "attention":
        calls = {"torch:sdpa": lambda: scaled_dot_product_attention(q, k, v)}
        return calls, 2 * product, 4 * rows * size
    if case["operation"] == "scores":
        left, right = q, k.mT  # [B, H, N, D] · [B, H, D, N]
    else:
        weights = torch.softmax(q @ k.mT * case["D"] ** -0.5, -1)
        left, right = weights, v  # [B, H, N, N] · [B, H, N, D]
    calls = {"torch:matmul": lambda: left @ right}
    if case["dtype"] == "float32":
        calls["torch:matmul, TF32"] = lambda: _with_tf32(left, right)
    return calls, product, (2 * rows + pairs) * size


def _with_tf32(a, b):
    """a @ b with float32 inputs cut to 10 bits of mantissa, as tensor cores take them."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return a @ b
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


ATTEMPTS = {
    "out.transpose(1, 2)": lambda x, B, N, width: x.transpose(1, 2),
    "out.transpose(1, 2).view(B, N, H * D)": lambda x, B, N, width: x.transpose(1, 2).view(
        B, N, width
    ),
    "out.transpose(1, 2).contiguous()": lambda x, B, N, width: x.transpose(1, 2).contiguous(),
    "out.transpose(1, 2).contiguous().view(B, N, H * D)": lambda x, B, N, width: (
        x.transpose(1, 2).contiguous().view(B, N, width)
    ),
    "out.transpose(1, 2).reshape(B, N, H * D)": lambda x, B, N, width: x.transpose(1, 2).reshape(
        B, N, width
    ),
    "out.view(B, N, H * D)": lambda x, B, N, width: x.view(B, N, width),
}


@measured_on("interpreter")
def contiguity(lab):
    """What each way to merge the heads of out [B, H, N, D] gives, or the error it raises."""
    B, H, N, D = 2, 3, 5, 4
    out = torch.arange(B * H * N * D, dtype=torch.float32).view(B, H, N, D)
    right = out.transpose(1, 2).reshape(B, N, H * D)
    for case in lab.each(expression=["out", *ATTEMPTS]):
        row = {**case, "sizes": [B, H, N, D], "raised": None}
        try:
            made = ATTEMPTS.get(case["expression"], lambda x, *_: x)(out, B, N, H * D)
        except RuntimeError as raised:
            yield {**row, "raised": f"{type(raised).__name__}: {raised}"}
            continue
        same_memory = made.untyped_storage().data_ptr() == out.untyped_storage().data_ptr()
        merged = made.shape == right.shape
        yield {
            **row,
            "shape": list(made.shape),
            "stride": list(made.stride()),
            "contiguous": made.is_contiguous(),
            "bytes_copied": 0 if same_memory else made.untyped_storage().nbytes(),
            "right": torch.equal(made, right) if merged else None,
        }


def _conventions(form, visible):
    """name → (call, the mask that says the same as `visible`, 0 or False being hidden)."""
    x = _tokens({"B": 2, "N": len(visible), "E": 16}, dtype=torch.float64, device="cpu")
    ours, sdpa = form["multi_head_attention:vectorized"], form["multi_head_attention:SDPA"]
    theirs = form["multi_head_attention:torch"]
    added = torch.zeros(visible.shape, dtype=x.dtype).masked_fill(~visible, -math.inf)

    def torch_module(mode, **options):
        def call(mask):
            with torch.no_grad():
                return theirs.train(mode == "train")(x, x, x, attn_mask=mask, **options)[0]

        return call

    def fused(mask):
        q, k, v = (sdpa.split(getattr(sdpa, name)(x)) for name in PROJECTIONS)
        return sdpa.W_o(sdpa.merge(sdpa.attend(q, k, v, mask)))

    return {
        "this page": (lambda mask: ours(x, mask), visible),
        "SDPA, bool": (fused, visible),
        "SDPA, float": (fused, added),
        "nn.MultiheadAttention": (torch_module("train"), ~visible),
        "nn.MultiheadAttention, need_weights=False, train()": (
            torch_module("train", need_weights=False),
            ~visible,
        ),
        "nn.MultiheadAttention, need_weights=False, eval()": (
            torch_module("eval", need_weights=False),
            ~visible,
        ),
    }


@measured_on("interpreter")
def masks(lab):
    """One visibility in each convention; a fully hidden row; and this page's mask handed over."""
    visible = torch.tensor([[1, 1, 0, 0]] * 4).bool()  # keys 2 and 3 are padding
    blind = visible.clone()
    blind[1] = False  # query 1 sees no key
    form = _forms(16, 2, dtype=torch.float64, device="cpu")
    right = _conventions(form, visible)["this page"][0](visible)
    bias = form["multi_head_attention:vectorized"].W_o.bias
    for case in lab.each(convention=list(_conventions(form, visible))):
        call, said = _conventions(form, visible)[case["convention"]]
        _, said_blind = _conventions(form, blind)[case["convention"]]
        yield {
            **case,
            "visible": visible[0].int().tolist(),
            "mask": [str(value) for value in said[0].tolist()],
            "difference": (call(said) - right).abs().max().item(),
            "hidden_row": _kind_of(call(said_blind)[:, 1] - bias),
            "given_bool": _handed(call, visible, right),
            "given_float": _handed(call, visible.double(), right),
        }


def _kind_of(rows):
    """zeros, NaN or numbers: what attention gave, the bias of the last projection apart."""
    if rows.isnan().any():
        return "NaN"
    return "numbers" if rows.abs().max() > 0 else "zeros"


def _handed(call, mask, right):
    """What happens to a mask of this page in another convention: the error, or how wrong it is."""
    try:
        out = call(mask)
    except (RuntimeError, TypeError, AssertionError) as raised:
        return {"raised": f"{type(raised).__name__}: {raised}"}
    if out.isnan().any():
        return {"result": "NaN"}
    return {"result": "numbers", "difference": (out - right).abs().max().item()}


MAP = ("interpreter", "attention_weights", "attention_map")  # the result that is read here


@measured_on("interpreter")
def heads(lab):
    """Each head of a real model, from the published weights: how spread, how far, how different."""
    published = store.read(store.path_of(*MAP))
    sentences = {}
    for row in published.rows:
        weights = torch.tensor(row["weights"], dtype=torch.float64)  # [heads, N, N]
        sentences.setdefault(row["sentence"], {})[row["layer"]] = weights
    layers = next(iter(sentences.values()))
    for case in lab.each(layer=sorted(layers), head=list(range(len(layers[0])))):
        found = [_behaviour(s[case["layer"]], case["head"]) for s in sentences.values()]
        mean = {key: sum(f[key] for f in found) / len(found) for key in found[0]}
        yield {**case, **mean, "sentences": list(sentences), "source_hash": published.source_hash}


def _behaviour(layer, head):
    """Averages over the queries of one head; layer [heads, N, N] holds its neighbours too."""
    weights = layer[head] / layer[head].sum(-1, keepdim=True)  # [N, N], published with 4 decimals
    N = len(weights)
    places = torch.arange(N)
    distance = (places[:, None] - places).abs()  # [N, N], in tokens
    others = torch.cat([layer[:head], layer[head + 1 :]])  # [heads - 1, N, N]
    return {
        "entropy_relative": torch.special.entr(weights).sum(-1).mean().item() / math.log(N),
        "distance_mean": (weights * distance).sum(-1).mean().item(),
        "distance_strongest": (places - weights.argmax(-1)).abs().double().mean().item(),
        # Half the sum of differences: the share of attention that goes elsewhere.
        "elsewhere": (others - weights).abs().sum(-1).mean().item() / 2,
        "to_first": weights[:, 0].mean().item(),
        "to_last": weights[:, -1].mean().item(),
        "to_self": weights.diagonal().mean().item(),
        "to_previous": weights.diagonal(-1).mean().item(),  # of queries that have one
        "to_next": weights.diagonal(1).mean().item(),
    }
