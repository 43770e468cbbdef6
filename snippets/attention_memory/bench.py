"""What the page of attention_memory measures: one function for each result."""

import itertools

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel

from snippets._lab.judge.oracle import assert_attention, causal_mask, make_qkv
from snippets._lab.measure.competitors import resolve
from snippets._lab.rooms import measured_on

from .checks import assert_bytes, counted_eager, counted_fused
from .module import (
    CARDS,
    GB,
    SIZES,
    attention_memory,
    eager_attention,
    largest_length,
    measured_peak,
    training_step,
)

LAYER = {"B": 32, "H": 32, "N": 4096, "D": 64}  # the layer that the page begins with
CARD = CARDS["A100 80 GB"]  # bytes of the card that it is asked to fit
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def check(device):
    """Raise unless the formulas and the attention that they describe are right."""
    for causal, backward, N in itertools.product((False, True), (False, True), (3, 70)):
        sizes = {"B": 2, "H": 3, "N": N, "D": 20}
        options = {"causal": causal, "backward": backward}
        said = attention_memory(**sizes, **options)["eager"]
        assert_bytes(said, counted_eager(**sizes, **options))
    q, k, v = make_qkv(2, 3, N=70, D=20, device=device)
    for causal in (False, True):
        mask = causal_mask(70, 70, device=device) if causal else None
        assert_attention(eager_attention(q, k, v, causal=causal), q, k, v, mask=mask)


@measured_on("interpreter")
def tensors(lab):
    """Bytes of every tensor of one layer, by formula."""
    for case in lab.each(dtype=list(DTYPES)):
        said = attention_memory(**LAYER, dtype=DTYPES[case["dtype"]])
        yield {**LAYER, **case, **said, "card_bytes": CARD}


@measured_on("interpreter")
def counted(lab):
    """The peaks of the same layer: by formula, counted, and as seen from outside operations."""
    for case in lab.each(dtype=list(DTYPES), backward=[False, True], causal=[False, True]):
        dtype, options = DTYPES[case["dtype"]], {"backward": case["backward"]}
        masked = options | {"causal": case["causal"]}
        said = attention_memory(**LAYER, dtype=dtype, **masked)
        yield {
            **LAYER,
            **case,
            "eager_formula": said["eager"],
            "eager_counted": counted_eager(**LAYER, dtype=dtype, **masked),
            "eager_seen": counted_eager(**LAYER, dtype=dtype, **masked, inside={}),
            "fused_formula": said["fused"],
            "fused_counted": counted_fused(**LAYER, dtype=dtype, **options),
            "inputs": 3 * said["q"],
            "square": said["scores"],
            "card_bytes": CARD,
        }


CASES = [
    (32, 32, 4096, 64),
    (1, 1, 1, 1),
    (1, 1, 2, 3),
    (3, 5, 127, 80),
    (8, 16, 2048, 128),
    (1, 32, 131_072, 128),
    (7, 12, 999, 64),
    (1, 1, 42, 64),  # few keys for the columns: the peak of training comes late
    (1, 1, 43, 64),  # one more: it comes in the softmax's backward
    (1, 1, 63, 64),  # fewer keys than columns
    (1, 1, 1, 10_000),
    (1_000_000, 10_000, 100_000_000, 10_000),  # the largest the calculator takes
]


# Cards that people have at home or rent, which the calculator offers beside those of module.py.
MORE_CARDS = {"RTX 4080": 16, "A10G": 24, "RTX 3090": 24, "RTX 5090": 32, "L40S": 48}  # GB
OFFERED = CARDS | {name: size * GB for name, size in MORE_CARDS.items()}
OFFERED = dict(sorted(OFFERED.items(), key=lambda card: card[1]))  # by memory


@measured_on("interpreter")
def calculator(lab):
    """What the calculator knows, the cards, and the cases that both of its formulas must give."""
    for name, memory in OFFERED.items():
        yield {"kind": "card", "card": name, "memory_bytes": memory}
    for dtype in DTYPES:
        yield {"kind": "dtype", "dtype": dtype, "size": SIZES[DTYPES[dtype]]}
    for case in lab.each(
        sizes=CASES, dtype=list(DTYPES), causal=[False, True], backward=[False, True]
    ):
        B, H, N, D = case.pop("sizes")
        options = {key: case[key] for key in ("causal", "backward")}
        dtype = DTYPES[case["dtype"]]
        longest = {
            f"{card}, {name}": largest_length(
                memory, B, H, D, dtype, implementation=name, **options
            )
            for card, memory in OFFERED.items()
            for name in ("eager", "fused")
        }
        said = attention_memory(B, H, N, D, dtype, **options)
        yield {"kind": "case", "B": B, "H": H, "N": N, "D": D, **case, **said, "largest": longest}


LENGTHS = [256, 512, 1024, 2048, 4096, 8192, 16_384]
TORCH = ["torch:eager", "torch:math", "torch:flash", "torch:cudnn", "torch:efficient"]
KERNELS = [
    "basic_attention",
    "vectorized_attention",
    "composed_attention",
    "tiled_attention",
    "flash_attention",
]
# One query a program is slow with many keys, and a tile of all keys compiles for long.
LONGEST = {"basic_attention": 4096, "vectorized_attention": 512}


@measured_on("gpu")
def peak_memory(lab):
    """Most memory a call, or a training step, holds beside q, k and v."""
    for case in lab.each(dtype=["float16"], heads=[16], D=[64], backward=[False, True], N=LENGTHS):
        names = TORCH if case["backward"] else TORCH + KERNELS
        calls = {name: resolve(name) for name in names if case["N"] <= LONGEST.get(name, case["N"])}
        said = attention_memory(
            1, case["heads"], case["N"], case["D"], DTYPES[case["dtype"]], backward=case["backward"]
        )
        formulas = {f"bytes_{name}": said[name] - 3 * said["q"] for name in ("eager", "fused")}
        for name, attention in calls.items():
            if attention is not None:  # a room that does not exist yet
                yield {"implementation": name, **case, **formulas, **_peak(lab, case, attention)}


def _peak(lab, case, attention):
    """The measured peak as fields of a row, or the reason why there is none."""
    q, k, v = (x[None].requires_grad_(case["backward"]) for x in lab.qkv(case))  # [1, H, N, D]
    run = (training_step, attention) if case["backward"] else (attention,)
    try:
        peak = measured_peak(*run, q, k, v)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        return {"error": "out of memory"}
    except (ValueError, RuntimeError) as error:  # a launcher refuses, or no forced backend can
        return {"error": str(error).splitlines()[0]}
    # What was asked for, without what the allocator rounds up.
    stats = torch.cuda.memory_stats()
    asked = stats["requested_bytes.all.peak"] - stats["requested_bytes.all.current"]
    return {"bytes_peak": peak, "bytes_requested": asked}


@triton.jit
def _walk_kernel(x_ptr, out_ptr, n_tiles, iterations, BLOCK: tl.constexpr):
    """Each program reads `iterations` tiles in turn, and round again; all start apart."""
    tile = tl.program_id(0) * n_tiles // tl.num_programs(0)
    offs = tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], tl.float32)
    for _ in range(iterations):
        acc += tl.load(x_ptr + tl.cast(tile, tl.int64) * BLOCK + offs)
        tile = tl.where(tile + 1 == n_tiles, 0, tile + 1)
    tl.store(out_ptr + tl.program_id(0), tl.sum(acc, axis=0))


@triton.jit
def _turn_kernel(x_ptr, out_ptr, iterations, SIDE: tl.constexpr):
    """x ← xᵀ + y on chip: an iteration writes the tile to shared memory and reads it turned."""
    offs = tl.arange(0, SIDE)[:, None] * SIDE + tl.arange(0, SIDE)[None, :]  # [SIDE, SIDE]
    y = tl.load(x_ptr + offs)
    x = y
    for _ in range(iterations):
        x = tl.trans(x) + y  # neighbours in a column become neighbours in a row: threads trade
    tl.store(out_ptr + tl.program_id(0) * SIDE * SIDE + offs, x)


WALK_ITERATIONS, TURN_ITERATIONS = 1024, 2048
BLOCK, SIDE = 4096, 64  # 16 kB a tile, both
SMALLEST, LARGEST = 2 * BLOCK * 4, 1 << 30  # bytes of a working set: two tiles … 1 GiB


def _walk(x, out, iterations):
    _walk_kernel[(len(out),)](x, out, x.numel() // BLOCK, iterations, BLOCK=BLOCK)
    return out


def _turn(x, out, iterations):
    _turn_kernel[(len(out),)](x, out, iterations, SIDE=SIDE)
    return out


@measured_on("gpu")
def hierarchy(lab):
    """Sizes as the device tells them; bandwidth of reading a working set again and again."""
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    yield {
        "kind": "sizes",
        "multiprocessors": device.multi_processor_count,
        "registers_bytes": 4 * device.regs_per_multiprocessor,
        "shared_bytes": device.shared_memory_per_multiprocessor,
        "shared_bytes_program": device.shared_memory_per_block_optin,
        "l2_bytes": device.L2_cache_size,
        "memory_bytes": device.total_memory,
    }
    sets = [SMALLEST]
    while sets[-1] < min(LARGEST, device.total_memory // 16):
        sets.append(2 * sets[-1])
    out = torch.empty(4 * device.multi_processor_count, device="cuda")
    for case in lab.each(dtype=["float32"], set_bytes=sets):
        x = torch.randn(case["set_bytes"] // 4, device="cuda")
        calls = {"walk": lambda x=x: _walk(x, out, WALK_ITERATIONS)}
        for row in lab.time(case, calls, flops=0, bytes_compulsory=case["set_bytes"]):
            loaded = len(out) * WALK_ITERATIONS * BLOCK * 4
            yield {"kind": "walk", **row, "bytes_loaded": loaded}
    x = torch.randn(SIDE, SIDE, device="cuda")
    out = torch.empty(8 * device.multi_processor_count, SIDE, SIDE, device="cuda")
    calls = {"turn": lambda: _turn(x, out, TURN_ITERATIONS)}
    moved = (
        out.numel() * 4 * 2 * TURN_ITERATIONS
    )  # each element written and read, once an iteration
    for case in lab.each(dtype=["float32"], tile=[SIDE]):
        for row in lab.time(case, calls, flops=0, bytes_compulsory=out.numel() * 4):
            yield {"kind": "turn", **row, "bytes_shared": moved}


def _eager_work(H, N, D):
    """Steps of eager attention in float16: name → (FLOPs, bytes moved if each moves once)."""
    products, square, rows = 2 * H * N * N * D, 2 * H * N * N, 2 * H * N * D
    return {
        "q · kᵀ": (products, 2 * rows + square),
        "softmax": (5 * H * N * N, 2 * square),  # maximum, difference, exp, sum, quotient
        "weights · v": (products, square + 2 * rows),
        # beside the steps: q is read, scaled and written
        "eager": (2 * products + 5 * H * N * N, 4 * square + 6 * rows),
    }


def _fused_work(H, M, N, D):
    """The same of one fused call for M queries and N keys: q, k, v and the result move once."""
    return 4 * H * M * N * D, 2 * H * (2 * M + 2 * N) * D


def _normal(lab, *shape):
    device = "cuda" if lab.place == "gpu" else "cpu"
    return torch.randn(*shape, device=device, dtype=torch.float16)


@measured_on("gpu")
def intensity(lab):
    """Time of attention's steps, of a fused call, and of one query against a long cache."""
    for case in lab.each(dtype=["float16"], heads=[16], D=[64, 128], N=[2048, 4096, 8192]):
        H, N, D = case["heads"], case["N"], case["D"]
        q, k, v = (_normal(lab, 1, H, N, D) for _ in range(3))
        scores = (q * D**-0.5) @ k.mT  # as eager attention has them
        weights = scores.softmax(-1)
        steps = {
            "q · kᵀ": lambda q=q, k=k: q @ k.mT,
            "softmax": lambda scores=scores: scores.softmax(-1),
            "weights · v": lambda weights=weights, v=v: weights @ v,
            "eager": lambda q=q, k=k, v=v: eager_attention(q, k, v),
        }
        work = _eager_work(H, N, D)
        least = _fused_work(H, M=N, N=N, D=D)[1]
        for name, call in steps.items():
            flops, moved = work[name]
            compulsory = least if name == "eager" else moved  # L2 may serve what eager reads again
            about = {"M": N, "work": WORK[name], "product": name != "softmax"}
            for row in lab.time(case, {name: call}, flops=flops, bytes_compulsory=compulsory):
                yield {**row, **about, "bytes_moved": moved}
        del scores, weights, steps
        yield from _time_fused(lab, case | {"M": N}, "SDPA")
    for case in lab.each(dtype=["float16"], heads=[16], D=[64, 128], N=[32_768]):
        yield from _time_fused(lab, case | {"M": case["N"]}, "SDPA")
    for case in lab.each(dtype=["float16"], heads=[64], D=[128], M=[1], N=[2048, 16_384, 131_072]):
        yield from _time_fused(lab, case, "decode")


WORK = {  # a step of eager attention, as a row names it
    "q · kᵀ": "eager: q · kᵀ",
    "softmax": "eager: softmax",
    "weights · v": "eager: weights · v",
    "eager": "eager, all",
}


def _time_fused(lab, case, work):
    """Time of SDPA for M queries and N keys."""
    H, M, N, D = (case[size] for size in ("heads", "M", "N", "D"))
    q = _normal(lab, 1, H, M, D)
    k, v = (_normal(lab, 1, H, N, D) for _ in range(2))
    flops, moved = _fused_work(H, M, N, D)
    call = {"torch:sdpa": lambda: F.scaled_dot_product_attention(q, k, v)}
    for row in lab.time(case, call, flops=flops, bytes_compulsory=moved):
        yield {**row, "work": work, "product": True, "bytes_moved": moved}


OPERATIONS = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "aten::_scaled_dot_product_attention_math": "math",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash, on a CPU",
}


def _backend_of(sdpa, *tensors, **options):
    """Backend that a call of SDPA takes, and the kernel that runs longest: the profiler's words."""
    on_gpu = torch.cuda.is_available()
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if on_gpu else []
    for _ in range(2):  # the first profile of a process may come out empty
        with torch.profiler.profile(activities=activities) as profile:
            sdpa(*tensors, **options)
            if on_gpu:
                torch.cuda.synchronize()
        events = profile.events()
        kernels = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA]
        kernels = [e for e in kernels if not e.name.startswith(("Memcpy", "Memset", "aten::"))]
        if kernels or not on_gpu:
            break
    found = sorted({OPERATIONS[e.name] for e in events if e.name in OPERATIONS})
    longest = max(kernels, key=lambda e: e.time_range.elapsed_us(), default=None)
    return " and ".join(found) or "not seen", longest.name[:160] if longest else ""


BATCH, HEADS, KEYS = 2, 8, 1024
SHAPES = {  # name → (queries, D, heads of k and v, requires_grad)
    "D 64": (1024, 64, 8, False),
    "D 80": (1024, 80, 8, False),
    "D 128": (1024, 128, 8, False),
    "D 256": (1024, 256, 8, False),
    "D 64, one query": (1, 64, 8, False),
    "D 64, 2 heads of k and v": (1024, 64, 2, False),
    "D 64, gradient": (1024, 64, 8, True),
}
MASKS = ["none", "causal", "bool", "float"]


def _sdpa_call(case, device):
    """Arguments of SDPA for a case: q, k, v and the options."""
    M, D, kv_heads, gradient = SHAPES[case["shape"]]
    dtype = DTYPES[case["dtype"]]
    q = torch.randn(BATCH, HEADS, M, D, device=device).to(dtype)
    k, v = torch.randn(2, BATCH, kv_heads, KEYS, D, device=device).to(dtype).unbind(0)
    options = {"is_causal": case["mask"] == "causal", "enable_gqa": kv_heads != HEADS}
    if case["mask"] in ("bool", "float"):
        visible = causal_mask(M, KEYS, device=device)
        hidden = torch.zeros(M, KEYS, device=device).masked_fill(~visible, float("-inf"))
        options["attn_mask"] = visible if case["mask"] == "bool" else hidden.to(dtype)
    return [x.requires_grad_(gradient) for x in (q, k, v)], options


@measured_on("gpu")
def backends(lab):
    """Which backend SDPA takes, which it could take, and what it says to one that it cannot."""
    device = "cuda" if lab.place == "gpu" else "cpu"
    for case in lab.each(dtype=list(DTYPES), mask=MASKS, shape=list(SHAPES)):
        tensors, options = _sdpa_call(case, device)
        try:
            F.scaled_dot_product_attention(*tensors, **options)  # compiles and loads what it needs
        except RuntimeError as error:
            taken, kernel = "refused", str(error).splitlines()[0]
        else:
            taken, kernel = _backend_of(F.scaled_dot_product_attention, *tensors, **options)
        about = {"batch": BATCH, "heads": HEADS, "M": tensors[0].shape[2], "N": KEYS}
        row = {"kind": "chosen", **case, **about, "backend": taken, "kernel": kernel}
        yield row | _possible(tensors, options)
    for case in lab.each(dtype=list(DTYPES), mask=["none"], shape=["D 64"], forced=list(FORCED)):
        tensors, options = _sdpa_call(case, device)
        row = {"kind": "forced", **case}
        try:
            _forced(FORCED[case["forced"]], *tensors, **options)
        except RuntimeError as error:
            yield row | {"refused": str(error).splitlines()[0]}
        else:
            yield row | {"refused": ""}


FORCED = {
    "FLASH_ATTENTION": SDPBackend.FLASH_ATTENTION,
    "CUDNN_ATTENTION": SDPBackend.CUDNN_ATTENTION,
    "EFFICIENT_ATTENTION": SDPBackend.EFFICIENT_ATTENTION,
    "MATH": SDPBackend.MATH,
}


def _forced(backend, q, k, v, **options):
    """Scaled dot-product attention by one backend; RuntimeError where that one cannot."""
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, **options)


def _possible(tensors, options):
    """Which fused backends say that they could: fields of a row."""
    params = torch.backends.cuda.SDPAParams(
        *tensors, options.get("attn_mask"), 0.0, options["is_causal"], options["enable_gqa"]
    )
    cuda = torch.backends.cuda
    asked = {
        "flash": cuda.can_use_flash_attention,
        "cudnn": cuda.can_use_cudnn_attention,
        "efficient": cuda.can_use_efficient_attention,
    }
    return {"possible": [name for name, can in asked.items() if can(params)]}
