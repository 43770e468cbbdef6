"""The gradients of attention for one head: two kernels, no N × N matrix."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # no GPU: the kernels run in Triton's interpreter

import triton
import triton.language as tl


@triton.jit
def tile(ptr, first, D: tl.constexpr, T: tl.constexpr):
    rows, cols = first + tl.arange(0, T), tl.arange(0, D)
    return ptr + rows[:, None] * D + cols[None, :]  # [T, D]


@triton.jit
def scores_gradient(q, k, v, do, lse, delta, scale):
    """The weights of a tile, from its scores and the logsumexp; and the gradient of the scores."""
    p = tl.exp(tl.dot(q, k.T, input_precision="ieee") * scale - lse[:, None])  # [T, T]
    dp = tl.dot(do, v.T, input_precision="ieee")
    return p, p * (dp - delta[:, None]) * scale


@triton.jit
def keys_kernel(q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr,
                N, scale, D: tl.constexpr, T: tl.constexpr):  # fmt: skip
    first = tl.program_id(0) * T  # this program keeps a tile of keys
    k, v = tl.load(tile(k_ptr, first, D, T)), tl.load(tile(v_ptr, first, D, T))
    dk, dv = tl.zeros([T, D], tl.float32), tl.zeros([T, D], tl.float32)
    for start in range(0, N, T):  # and goes through the queries
        q, do = tl.load(tile(q_ptr, start, D, T)), tl.load(tile(do_ptr, start, D, T))
        rows = start + tl.arange(0, T)
        lse, delta = tl.load(lse_ptr + rows), tl.load(delta_ptr + rows)
        p, ds = scores_gradient(q, k, v, do, lse, delta, scale)
        dv = tl.dot(p.T, do, dv, input_precision="ieee")
        dk = tl.dot(ds.T, q, dk, input_precision="ieee")
    tl.store(tile(dk_ptr, first, D, T), dk)
    tl.store(tile(dv_ptr, first, D, T), dv)


@triton.jit
def queries_kernel(q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr,
                   N, scale, D: tl.constexpr, T: tl.constexpr):  # fmt: skip
    first = tl.program_id(0) * T  # this program keeps a tile of queries
    q, do = tl.load(tile(q_ptr, first, D, T)), tl.load(tile(do_ptr, first, D, T))
    rows = first + tl.arange(0, T)
    lse, delta = tl.load(lse_ptr + rows), tl.load(delta_ptr + rows)
    dq = tl.zeros([T, D], tl.float32)
    for start in range(0, N, T):  # and goes through the keys
        k, v = tl.load(tile(k_ptr, start, D, T)), tl.load(tile(v_ptr, start, D, T))
        _, ds = scores_gradient(q, k, v, do, lse, delta, scale)
        dq = tl.dot(ds, k, dq, input_precision="ieee")
    tl.store(tile(dq_ptr, first, D, T), dq)


torch.manual_seed(0)
N, D, T = 128, 64, 32
q, k, v, do = torch.randn(4, N, D, device="cuda" if torch.cuda.is_available() else "cpu")
x = [t.double().requires_grad_() for t in (q, k, v)]
scores = x[0] @ x[1].T * D**-0.5
out = scores.softmax(-1) @ x[2]
out.backward(do.double())

lse = scores.detach().logsumexp(-1).float()  # what a forward kernel keeps
delta = (do * out.detach().float()).sum(-1)  # one number a row
dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
given = q, k, v, do, lse, delta
keys_kernel[(N // T,)](*given, dk, dv, N, D**-0.5, D, T)
queries_kernel[(N // T,)](*given, dq, N, D**-0.5, D, T)
worst = max((ours - t.grad).abs().max() for ours, t in zip((dq, dk, dv), x, strict=True))
print(f"largest difference from float64: {worst:.1e}")
