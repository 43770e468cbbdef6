"""What the scoreboard measures: all kernels on the same work, and where errors come from."""

import functools
import itertools
import math
import random

import torch

from snippets._lab.judge.oracle import assert_attention, deviation, eager_attention, make_qkv
from snippets._lab.measure.competitors import Unavailable, is_ours, own_layout, resolve, same_work
from snippets._lab.measure.regimes import AS_CALLED, COMPILED, IN_A_GRAPH, QUEUED, SUSTAINED
from snippets._lab.rooms import measured_on

from .op import WITH_GRADIENTS, assert_gradients

# Kernel → what it is, in the order of the series: each answers what was slow about the one before.
OURS = {
    "basic_attention": "one key at a time",
    "vectorized_attention": "all keys in one load",
    "composed_attention": "three kernels",
    "tiled_attention": "running softmax",
    "flash_attention": "… on tensor cores",
    "hopper_attention": "warps with roles",
}
*KERNELS, LAST = OURS  # the last is for one architecture, and 16 bits
TORCH = ["torch:eager", "torch:math", "torch:efficient", "torch:flash", "torch:cudnn", "torch:sdpa"]
LABELS = OURS | {"torch:eager": "eager PyTorch", "torch:sdpa": "PyTorch SDPA"}
SIXTEEN_BITS_ONLY = ("torch:flash", "torch:cudnn")
NOT_HERE = "it is for Hopper"
LONGEST = {"vectorized_attention": 1024}  # a tile of more keys compiles for minutes, and spills


def on_hopper():
    """Whether this machine has the GPU that the last kernel is for."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def kernels_here(dtype):
    """The kernels that this machine can run in a dtype, in the order of the series."""
    return [*KERNELS, LAST] if on_hopper() and dtype != torch.float32 else KERNELS


def trained_here():
    """Those of our pairs of forward and backward that this machine can run."""
    return [name for name in WITH_GRADIENTS if name != "hopper_backward" or on_hopper()]


def check(device):
    """Raise unless every kernel is right on this device; no result is stored before it passed."""
    for dtype in (torch.float16, torch.float32):
        q, k, v = make_qkv(2, M=3, N=65, D=64, dtype=dtype, device=device)
        for name in kernels_here(dtype):
            assert_attention(resolve(name)(q, k, v), q, k, v)
    q, k, v = make_qkv(2, N=65, D=64, dtype=torch.float16, device=device)
    grad_out = torch.randn_like(q)
    for name in trained_here():
        found = there_and_back(WITH_GRADIENTS[name], as_leaves((q, k, v)), grad_out)
        assert_gradients(found, q, k, v, grad_out)


@measured_on("gpu")
def kernels(lab):
    """Time, error and memory of every kernel and of PyTorch's own, all on the same tensors."""
    for case in lab.each(dtype=["float16"], heads=[8], D=[64], N=[1024, 4096]):
        tensors = lab.qkv(case)
        every = kernels_here(tensors[0].dtype)
        fits = [name for name in every if case["N"] <= LONGEST.get(name, case["N"])]
        beside = {name: error_and_memory(resolve(name), tensors) for name in fits + TORCH}
        for row in lab.time_attention(case, fits + TORCH):
            yield row | about(row["implementation"]) | beside[row["implementation"]]
        for name in OURS:
            if name not in fits:
                reason = "too many keys for one load" if name in every else NOT_HERE
                yield {"implementation": name, **case, **about(name), "error": reason}


CUDNN = "torch:cudnn"
OTHERS = [CUDNN, "flash_attention_4", "flash_attention_3", "flash_attention_2"]
BEST = ["flash_attention", "hopper_attention"]  # the last is for one architecture
LENGTHS = [1024, 4096, 16_384]
SUSTAINED_AT = [16_384]  # three seconds for each implementation; where power matters most
COMPILED_AT = [1024]  # a second of compilation for each, and longer calls hide the host anyway


@measured_on("gpu")
def regimes(lab):
    """Our two fastest beside cuDNN and each FlashAttention, the same work in every regime."""
    for case in lab.each(dtype=["bfloat16"], causal=[False, True], D=[64, 128], N=LENGTHS):
        within = [QUEUED, AS_CALLED, IN_A_GRAPH]
        within += [COMPILED] * (case["N"] in COMPILED_AT)
        within += [SUSTAINED] * (case["N"] in SUSTAINED_AT)  # last: the GPU is warm after it
        yield from best_beside_others(lab, same_work(case), within)


def best_beside_others(lab, case, within):
    """Rows of our two fastest and of others; one that is for another GPU says so."""
    here = BEST if on_hopper() else BEST[:-1]
    yield from lab.time_attention(case, [*OTHERS, *here], within=within)
    if here != BEST:
        yield {"implementation": BEST[-1], **case, "error": NOT_HERE}


@measured_on("gpu")
def launchers(lab):
    """Every kernel of the series in every regime, on work so small that the host counts."""
    for case in lab.each(dtype=["float16"], heads=[8], D=[64], N=[1024]):
        here = kernels_here(torch.float16)
        yield from lab.time_attention(
            case, [CUDNN, *here], within=[QUEUED, AS_CALLED, IN_A_GRAPH, SUSTAINED]
        )
        for name in OURS:
            if name not in here:
                yield {"implementation": name, **case, "error": NOT_HERE}


# --8<-- [start:grids]
DRAWN = 12  # shapes, with one seed for good: nobody chose them, and no tile was tuned on them
TILE = 128  # queries of a tile at D 128


def drawn():
    """Odd numbers of heads in groups, and lengths that fill no tile: as many of each D and mask."""
    draw = random.Random(2026)
    for D, causal in itertools.islice(
        itertools.cycle(itertools.product([64, 128], [False, True])), DRAWN
    ):
        heads_kv = draw.choice([1, 3, 5, 7, 9])
        yield {
            "dtype": "bfloat16",
            "causal": causal,
            "D": D,
            "batch": draw.randint(1, 4),
            "heads": heads_kv * draw.choice([1, 2, 3, 5]),
            "heads_kv": heads_kv,
            "N": draw.randint(500, 12_000),
        }


@measured_on("gpu")
def grids(lab):
    """Shapes drawn at random, and one tile more or less than the GPU has multiprocessors."""
    sms = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    a_wave = {"dtype": "bfloat16", "causal": False, "D": 128, "heads": 1}
    around = [{**a_wave, "tiles": n, "N": TILE * n} for n in (sms - 1, sms, sms + 1)]
    for shape in lab.each(shape=[*drawn(), *around]):
        yield from best_beside_others(lab, shape["shape"], [QUEUED])
        # --8<-- [end:grids]


# --8<-- [start:training]
TRAINED = ["torch:cudnn", "torch:flash", "flash_attention_4"]


def as_leaves(tensors):
    """The tensors as ones whose gradients autograd is asked for."""
    return [x.detach().requires_grad_() for x in tensors]


def there_and_back(attention, leaves, grad_out, **options):
    """One layer's forward, and through autograd the gradients of q, k and v."""
    return torch.autograd.grad(attention(*leaves, **options), leaves, grad_out)


@measured_on("gpu")
def training(lab):
    """Forward and backward of one layer, every launch of both counted, on work that fills a GPU."""
    here = trained_here()
    for case in lab.each(dtype=["bfloat16"], causal=[False, True], D=[64, 128], N=LENGTHS):
        case = same_work(case)
        leaves = as_leaves(lab.qkv(case))
        grad_out = torch.randn_like(leaves[0])
        calls = {}
        for name in [*TRAINED, *here]:
            try:
                attention = WITH_GRADIENTS[name] if is_ours(name) else resolve(name)
            except Unavailable as missing:
                yield {"implementation": name, **case, "error": str(missing)}
                continue
            *own, given = own_layout(name, *leaves, grad_out)
            calls[name] = functools.partial(
                there_and_back, attention, as_leaves(own), given, causal=case["causal"]
            )
        yield from lab.time(case, calls, **cost_of_training(case))
        for name in WITH_GRADIENTS.keys() - here:
            yield {"implementation": name, **case, "error": NOT_HERE}


def cost_of_training(case):
    """FLOPs of two products and of five, and the bytes that both must move: twelve tensors."""
    B, H, N, D = case["batch"], case["heads"], case["N"], case["D"]
    pairs = N * (N + 1) // 2 if case["causal"] else N * N
    return {"flops": (4 + 10) * B * H * pairs * D, "bytes_compulsory": 12 * B * H * N * D * 2}
    # --8<-- [end:training]


def about(name):
    """What a row says of its implementation: a few words, and which step of the series it is."""
    step = [*OURS].index(name) + 1 if name in OURS else None
    return {"label": LABELS.get(name), "step": step}


def error_and_memory(attention, tensors):
    """Distance from float64, and the most bytes that a call holds beside its inputs."""
    found = deviation(attention(*tensors), *tensors)  # compiles, and takes its workspace
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attention(*tensors)
    torch.cuda.synchronize()
    q = tensors[0]
    return {
        "error_largest": found.largest,
        "error_mean": found.mean,
        "bytes_peak": torch.cuda.max_memory_allocated() - before,
        "bytes_result": q.numel() * q.element_size(),
    }


@measured_on("interpreter")
def race(lab):
    """What each kernel of a single launch is given for a case of `kernels`. It is not run."""
    from snippets._lab.probe.launches import recorded

    names = [name for name in KERNELS if name != "composed_attention"]
    for case in lab.each(implementation=names, dtype=["float16"], heads=[8], D=[64], N=[1024]):
        q, k, v = lab.qkv(case)
        with recorded({}, run=False) as launches:
            resolve(case["implementation"])(q, k, v)
        yield case | {"launch": launches.rows[0]}


def tf32(x):
    """x rounded to the ten bits of mantissa that tensor cores keep of a float32; as float64."""
    bits = x.float().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32).double()


EFFECTS = {
    "stored": "the result is stored",
    "exp": "exp in float32",
    "exp2": "exp2 in float32",
    "weights": "P in 16 bits",
    "tf32": "products in TF32",
}


def effects(q, k, v):
    """Attention in float64 with one effect at a time: name → result in float64."""
    scale = q.shape[-1] ** -0.5
    products, values = q.double() @ k.double().mT, v.double()  # [..., M, N], [..., N, D]
    p = (products * scale - (products * scale).amax(-1, keepdim=True)).exp()
    total = p.sum(-1, keepdim=True)

    def weighted(p):
        return p @ values / p.sum(-1, keepdim=True)

    def in_float32(exponential, factor):
        t = products.float() * factor  # as a kernel does: one multiplication, then the difference
        return weighted(exponential(t - t.amax(-1, keepdim=True)).double())

    yield "stored", (p @ values / total).to(q.dtype).double()
    yield "exp", in_float32(torch.exp, scale)
    yield "exp2", in_float32(torch.exp2, scale * math.log2(math.e))
    if q.dtype == torch.float32:
        s = tf32(q) @ tf32(k).mT * scale
        rounded = (s - s.amax(-1, keepdim=True)).exp()
        yield "tf32", tf32(rounded) @ tf32(v) / rounded.sum(-1, keepdim=True)
    else:
        yield "weights", p.to(q.dtype).double() @ values / total


def with_tf32(q, k, v):
    """Eager attention whose float32 products may run on tensor cores."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return eager_attention(q, k, v)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


SMALL, LARGE = 256, 4096  # keys: every kernel takes the first, PyTorch and the models both


@measured_on("gpu", "interpreter")
def budget(lab):
    """Distance from float64 of every kernel, of PyTorch, and of each effect by itself."""
    gpu = lab.place == "gpu"
    # In the interpreter few queries, and no bfloat16: it computes that wrongly.
    dtypes = ["float16", "bfloat16", "float32"] if gpu else ["float16", "float32"]
    sizes = {"N": [SMALL, LARGE]} if gpu else {"M": [4], "N": [SMALL]}
    for case in lab.each(dtype=dtypes, heads=[4 if gpu else 1], D=[64], **sizes):
        q, k, v = lab.qkv(case)
        want = eager_attention(q.double(), k.double(), v.double())
        for kind, name, out in results_of(case, gpu, q, k, v):
            error = (out.double() - want).abs()
            yield {
                "kind": kind,
                "implementation": name,
                "label": EFFECTS.get(name),
                **case,
                "error_largest": error.max().item(),
                "error_mean": error.mean().item(),
            }


def results_of(case, gpu, q, k, v):
    """(kind, name, result) of all that can be asked about a case."""
    yield from (("effect", name, out) for name, out in effects(q, k, v))
    for name in kernels_here(q.dtype) if case["N"] == SMALL else []:
        yield "kernel", name, resolve(name)(q, k, v)
    for name in TORCH if gpu else ["torch:eager", "torch:sdpa"]:
        if case["dtype"] != "float32" or name not in SIXTEEN_BITS_ONLY:
            yield "PyTorch", name, resolve(name)(q, k, v)
    if gpu and case["dtype"] == "float32":
        yield "PyTorch", "torch:eager, TF32", with_tf32(q, k, v)
