"""Attention weights with one Triton program for each query: softmax(q kᵀ · scale), row by row.

Run it alone: `python kernel.py` checks it against PyTorch (on a CPU, in Triton's interpreter).
Part of *Attention, Measured*, MIT licence. Needs torch >= 2.11 and triton >= 3.6.
"""

import math
import os

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import triton
import triton.language as tl

INTERPRETED = triton.knobs.runtime.interpret
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
CORNERS = ("bottom_right", "top_left")
MAX_KEYS = 16_384  # a row of scores lives in registers; beyond this it spills
MAX_HEAD_DIM = 1_024
MAX_PROGRAMS = 2**31 - 1  # CUDA's limit for the first grid dimension


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
    largest = tl.where(visible > 0, tl.max(scores, axis=0), 0.0)  # -inf - (-inf) is NaN
    weights = tl.exp(scores - largest)  # [BLOCK_N], between 0 and exp(0) = 1
    total = tl.sum(weights, axis=0)  # at least 1, or 0 for a query that sees no key
    weights = weights / tl.maximum(total, 1.0)
    # --8<-- [end:softmax]

    # --8<-- [start:store]
    out_row = out_ptr + b * stride_ob + h * stride_oh + m * stride_om
    weights = weights.to(out_ptr.dtype.element_ty)
    tl.store(out_row + slots.to(tl.int64) * stride_on, weights, mask=slots < N)
    # --8<-- [end:store]


# --8<-- [start:launcher]
def attention_weights(q, k, *, scale=None, causal=False, align="bottom_right"):
    """softmax(q kᵀ · scale): how much each query attends to each key; rows sum to one.

    Args:
        q: [..., M, D]; leading dimensions are batch and heads (at most two). Any strides.
        k: [..., N, D], with q's leading dimensions, dtype and device.
        scale: factor on the scores; 1/√D if None.
        causal: hide the keys after a query's own place.
        align: the corner of [M, N] where the causal mask's diagonal ends or starts:
            "bottom_right", query m sees keys up to m + N - M, or "top_left", up to m.

    Returns:
        [..., M, N] in q's dtype; scores and softmax are float32. A query that sees no key
        gets a row of zeros.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.

    Source: Vaswani et al. 2017, section 3.2.1, https://arxiv.org/abs/1706.03762
    """
    _check_inputs(q, k)
    scale = _checked_options(q.shape[-1], scale, causal, align)
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
    # --8<-- [end:launcher]


# --8<-- [start:refusals]
def _check_inputs(q, k):
    """Raise for what the kernel cannot do: which argument, what came, what is allowed."""
    for name, x in (("q", q), ("k", k)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}; it must be a torch.Tensor")
        if x.dtype not in DTYPES:
            raise TypeError(f"{name} is {x.dtype}; float16, bfloat16, float32 are allowed")
        if x.dtype != q.dtype:
            raise TypeError(f"{name} is {x.dtype} but q is {q.dtype}; cast one of them")
        if x.device != q.device:
            raise ValueError(f"{name} is on {x.device} but q on {q.device}; move one of them")
        if not 2 <= x.dim() <= 4:
            shape = tuple(x.shape)
            raise ValueError(f"{name} has shape {shape}; 2 to 4 dimensions are allowed")
        if x.numel() == 0:
            raise ValueError(f"{name} has shape {tuple(x.shape)}; no dimension may be 0")
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} requires grad; there is no backward, use torch.no_grad()")
    if q.shape[-1] > MAX_HEAD_DIM:
        raise ValueError(f"q has head dimension {q.shape[-1]}; at most {MAX_HEAD_DIM} works")
    if k.shape != (*q.shape[:-2], k.shape[-2], q.shape[-1]):
        want = (*q.shape[:-2], "N", q.shape[-1])
        raise ValueError(f"k is {tuple(k.shape)}; q {tuple(q.shape)} asks for {want}")
    if k.shape[-2] > MAX_KEYS:
        raise ValueError(f"k has {k.shape[-2]} keys; at most {MAX_KEYS} fit in registers")
    if q.numel() // q.shape[-1] > MAX_PROGRAMS:
        raise ValueError(f"q has shape {tuple(q.shape)}; at most {MAX_PROGRAMS} rows work")
    if q.device.type != "cuda" and not (q.device.type == "cpu" and INTERPRETED):
        on_cpu = q.device.type == "cpu"
        hint = "or TRITON_INTERPRET=1 set before import" if on_cpu else "as cuda"
        raise ValueError(f"q is on {q.device}; the kernel needs a GPU, {hint}")
    # --8<-- [end:refusals]


def _checked_options(D, scale, causal, align):
    """The scale as a float, 1/√D for None; raise for an option that is not allowed."""
    if not isinstance(causal, bool):
        raise TypeError(f"causal is a {type(causal).__name__}; True or False is allowed")
    if align not in CORNERS:
        raise ValueError(f"align is {align!r}; {' and '.join(CORNERS)} are allowed")
    if align == "top_left" and not causal:
        raise ValueError("align is 'top_left' but causal is False; set causal=True")
    if scale is None:
        return 1.0 / math.sqrt(D)
    if isinstance(scale, bool) or not isinstance(scale, (int, float)):
        raise TypeError(f"scale is a {type(scale).__name__}; a number or None is allowed")
    if not math.isfinite(scale):
        raise ValueError(f"scale is {scale}; it must be finite")
    return float(scale)


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
