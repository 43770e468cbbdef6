"""Attention weights with one Triton program for each query: softmax(q kᵀ · scale), row by row.

Run it alone: `python kernel.py` checks it against PyTorch (on a CPU, in Triton's interpreter).
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import math
import numbers
import os

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import triton
import triton.language as tl

INTERPRETED = triton.knobs.runtime.interpret
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_KEYS = 16_384  # a row of scores lives in registers; beyond this it spills
MAX_HEAD_DIM = 1_024
MAX_PROGRAMS = 2**31 - 1  # CUDA's limit for the first grid dimension
MAX_SCALE = 2.0**64  # and at least 1 / MAX_SCALE: scores of float16 stay within float32's range


@triton.jit
def _attention_weights_kernel(
    q_ptr, k_ptr, out_ptr,  # pointers to the first element of each tensor
    stride_qb, stride_qh, stride_qm, stride_qd,  # step to the next batch, head, row, column
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_ob, stride_oh, stride_om, stride_on,
    H, M, N, D,  # heads, queries, keys, head dimension
    first_sees,  # how many keys query 0 sees; each later query sees one more, at most N
    scale,
    BLOCK_N: tl.constexpr,  # slots for scores: a power of two, at least N
    BLOCK_D: tl.constexpr,  # columns of a row: a power of two, at least D
):  # fmt: skip
    """One program computes one row of weights: how much one query attends to each key.

    Reads its query row once and each key row that it sees once; writes one row of N weights.
    The float32 scores stay on chip: memory sees only the finished weights.
    """
    # --8<-- [start:which_query]
    pid = tl.program_id(0)  # 0 … B·H·M - 1
    m = (pid % M).to(tl.int64)  # int64: an offset may pass 2^31 elements
    h = (pid // M % H).to(tl.int64)
    b = (pid // M // H).to(tl.int64)
    # --8<-- [end:which_query]

    # --8<-- [start:load_query]
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # [BLOCK_D]
    mask_d = offs_d < D  # D need not be a power of two; tiles must be
    q_row = q_ptr + b * stride_qb + h * stride_qh + m * stride_qm + offs_d * stride_qd
    q = tl.load(q_row, mask=mask_d, other=0.0).to(tl.float32)  # [BLOCK_D]
    # --8<-- [end:load_query]

    # --8<-- [start:scores]
    visible = tl.minimum(first_sees + m, N)  # keys 0 … visible - 1; none if 0 or less
    slots = tl.arange(0, BLOCK_N)  # [BLOCK_N]
    scores = tl.full([BLOCK_N], float("-inf"), tl.float32)  # not seen: exp(-inf) = 0
    k_row = k_ptr + b * stride_kb + h * stride_kh + offs_d * stride_kd
    for n in range(visible):
        k = tl.load(k_row, mask=mask_d, other=0.0).to(tl.float32)  # [BLOCK_D]
        score = tl.sum(q * k, axis=0) * scale
        scores = tl.where(slots == n, score, scores)  # scores[n] = score
        k_row += stride_kn
    # --8<-- [end:scores]

    # --8<-- [start:softmax]
    largest = tl.max(scores, axis=0)  # -inf where no key is seen or all scores are -inf
    largest = tl.where(largest == float("-inf"), 0.0, largest)  # -inf - (-inf) is NaN
    weights = tl.exp(scores - largest)  # [BLOCK_N], between 0 and exp(0) = 1
    total = tl.sum(weights, axis=0)  # at least 1, or 0 in such a row
    weights = weights / tl.where(total == 0.0, 1.0, total)
    # --8<-- [end:softmax]

    # --8<-- [start:store]
    out_row = out_ptr + b * stride_ob + h * stride_oh + m * stride_om
    weights = weights.to(out_ptr.dtype.element_ty)
    tl.store(out_row + slots.to(tl.int64) * stride_on, weights, mask=slots < N)
    # --8<-- [end:store]


def attention_weights(q, k, *, scale=None, causal=False, align="bottom_right"):
    """softmax(q kᵀ · scale): how much each query attends to each key; rows sum to one.

    Args:
        q: [..., M, D]; leading dimensions are batch and heads (at most two). Any strides.
        k: [..., N, D], with q's leading dimensions, dtype and device.
        scale: factor on the scores, from 2^-64 to 2^64; 1/√D if None.
        causal: hide the keys after a query's own place.
        align: the corner of [M, N] where the causal mask's diagonal ends or starts:
            "bottom_right", query m sees keys up to m + N - M, or "top_left", up to m;
            without causal it has no effect.

    Returns:
        [..., M, N] in q's dtype; scores and softmax are float32. A row without a visible key,
        or whose scores are all -inf, is 0.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.

    Source: Vaswani et al. 2017, section 3.2.1, https://arxiv.org/abs/1706.03762
    """
    _check_inputs(q, k, causal, align)
    scale = _scale_or_default(scale, q.shape[-1])
    out = torch.empty(*q.shape[:-1], k.shape[-2], dtype=q.dtype, device=q.device)
    tensors = [x[(None,) * (4 - x.dim())] for x in (q, k, out)]  # views: [B, H, …, …]
    strides = [step for x in tensors for step in x.stride()]
    B, H, M, D = tensors[0].shape
    N = k.shape[-2]
    first_sees = N if not causal else 1 if align == "top_left" else 1 + N - M
    sizes = {"H": H, "M": M, "N": N, "D": D, "first_sees": first_sees}
    block_n, block_d = triton.next_power_of_2(N), triton.next_power_of_2(D)
    with torch.cuda.device_of(q):  # launch where the tensors are; does nothing for a CPU tensor
        _attention_weights_kernel[(B * H * M,)](
            *tensors, *strides, **sizes, scale=scale, BLOCK_N=block_n, BLOCK_D=block_d
        )
    return out


def _check_inputs(q, k, causal, align):
    """Raise for what the kernel cannot do: which argument, what came, what is allowed."""
    _check_tensors(2, q=q, k=k)
    if q.shape[-1] > MAX_HEAD_DIM:
        raise ValueError(f"q has head dimension {q.shape[-1]}; at most {MAX_HEAD_DIM} is allowed")
    if k.shape != (*q.shape[:-2], k.shape[-2], q.shape[-1]):
        want = _fit(*q.shape[:-2], "N", q.shape[-1])
        raise ValueError(f"k has shape {tuple(k.shape)}; with q {tuple(q.shape)} it must be {want}")
    if k.shape[-2] > MAX_KEYS:
        raise ValueError(f"k has {k.shape[-2]} keys; at most {MAX_KEYS} are allowed")
    programs = q.numel() // q.shape[-1]
    if programs > MAX_PROGRAMS:
        shape = tuple(q.shape)
        raise ValueError(
            f"q has shape {shape}: {programs} programs; at most {MAX_PROGRAMS} are allowed"
        )
    _check_mask(causal, align)
    _check_device("q", q)


def _check_tensors(least, **tensors):
    """Raise for tensors that no kernel here takes; all must match the first."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        raise TypeError(
            "torch.func and forward-mode autograd cannot see into a kernel; instead of vmap use "
            "leading dimensions, and for gradients torch.autograd.grad"
        )
    first, like = next(iter(tensors.items()))
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} has type {_type_name(x)}; it must be a torch.Tensor")
        if x.is_nested or x.layout != torch.strided:
            layout = "nested" if x.is_nested else x.layout
            raise TypeError(f"{name} is {layout}; it must be dense, torch.strided")
        if x.dtype not in DTYPES:
            raise TypeError(f"{name} is {x.dtype}; {', '.join(map(str, DTYPES))} are allowed")
        if x.dtype != like.dtype:
            raise TypeError(
                f"{name} is {x.dtype} but {first} is {like.dtype}; cast them to one dtype"
            )
        if x.device != like.device:
            raise ValueError(
                f"{name} is on {x.device} but {first} is on {like.device}; move one of them"
            )
        shape = tuple(x.shape)
        if not least <= x.dim() <= 4:
            raise ValueError(f"{name} has shape {shape}; {least} to 4 dimensions are allowed")
        if x.numel() == 0:
            raise ValueError(f"{name} has shape {shape}; no dimension may be 0")
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} requires grad and there is no backward; use torch.no_grad()")
        if x.is_neg():  # its memory holds the opposite sign
            raise ValueError(f"{name} is a negated view; use {name}.resolve_neg()")


def _check_mask(causal, align="bottom_right"):
    """Raise for a causal mask that is not among those of the kernel."""
    if not isinstance(causal, bool):
        raise TypeError(f"causal has type {_type_name(causal)}; it must be a bool, True or False")
    if not isinstance(align, str) or align not in ("bottom_right", "top_left"):
        raise ValueError(f"align is {align!r}; it must be 'bottom_right' or 'top_left'")


def _check_device(name, x):
    """Raise unless a kernel can run where x is: on a GPU, or on a CPU in the interpreter."""
    kind = x.device.type
    if kind != "cuda" and not (kind == "cpu" and INTERPRETED):
        hint = ", or TRITON_INTERPRET=1 set before import" if kind == "cpu" else ""
        raise ValueError(f"{name} is on {x.device}; the kernel needs a CUDA device{hint}")


def _scale_or_default(scale, D):
    """The scale as a float, 1/√D for None; raise for what is no number or out of range."""
    if scale is None:
        return 1.0 / math.sqrt(D)
    if isinstance(scale, bool) or not isinstance(scale, numbers.Real):
        raise TypeError(f"scale has type {_type_name(scale)}; it must be a number or None")
    try:
        number = float(scale)
    except OverflowError:  # an integer beyond all floats
        number = math.inf
    if not 1 / MAX_SCALE <= number <= MAX_SCALE:
        raise ValueError(f"scale is {number}; it must lie between 2^-64 and 2^64")
    return number


def _type_name(x):
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")


def _fit(*shape):
    """A shape with names for the sizes that are free, as an error shows it: (2, N, 64)."""
    return str(shape).replace("'", "")


def main():
    """Check the kernel against eager PyTorch in float64, and time both where there is a GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    q = torch.randn(2, 4, 16, 64, device=device)  # [B, H, M, D]
    k = torch.randn(2, 4, 33, 64, device=device)  # [B, H, N, D]; 33 fills no tile
    want = (q.double() @ k.double().mT / math.sqrt(64)).softmax(-1)
    error = (attention_weights(q, k).double() - want).abs()
    torch_error = ((q @ k.mT / math.sqrt(64)).softmax(-1) - want).abs().max()
    # Both round each float32 operation; a right kernel stays within a small multiple of PyTorch.
    allowed = 4 * torch_error + 4 * torch.finfo(q.dtype).eps * want.max()
    print(f"q {tuple(q.shape)}, k {tuple(k.shape)}, {q.dtype} on {device}")
    print(f"difference from float64: largest {error.max():.1e}, mean {error.mean():.1e}")
    print(f"PyTorch's own difference: largest {torch_error:.1e}")
    print("OK" if error.max() <= allowed else f"WRONG: more than {allowed:.1e} is not rounding")
    if device == "cuda":
        for name, weights in (
            ("attention_weights", lambda: attention_weights(q, k)),
            ("PyTorch", lambda: (q @ k.mT / math.sqrt(64)).softmax(-1)),
        ):
            ms = triton.testing.do_bench(weights, return_mode="median")
            print(f"{name}: {ms * 1000:.1f} µs")
    return 0 if error.max() <= allowed else 1


if __name__ == "__main__":
    raise SystemExit(main())
