"""Attention for one head, one Triton program per query: the whole idea in thirty lines."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # no GPU: the kernel runs in Triton's interpreter

import triton
import triton.language as tl


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr, N, scale, D: tl.constexpr, SLOTS: tl.constexpr):
    m = tl.program_id(0)  # which query is mine?
    cols = tl.arange(0, D)
    q = tl.load(q_ptr + m * D + cols)  # [D]

    slots = tl.arange(0, SLOTS)  # a power of two, at least N
    scores = tl.full([SLOTS], float("-inf"), tl.float32)
    for n in range(N):
        k = tl.load(k_ptr + n * D + cols)  # [D]
        score = tl.sum(q * k, axis=0) * scale
        scores = tl.where(slots == n, score, scores)  # scores[n] = score

    weights = tl.exp(scores - tl.max(scores, axis=0))  # unused slots: exp(-inf) = 0
    weights = weights / tl.sum(weights, axis=0)  # [SLOTS]

    out = tl.zeros([D], tl.float32)
    for n in range(N):
        v = tl.load(v_ptr + n * D + cols)  # [D]
        weight = tl.sum(tl.where(slots == n, weights, 0.0), axis=0)  # weights[n]
        out += weight * v
    tl.store(out_ptr + m * D + cols, out)


torch.manual_seed(0)
N, D = 100, 64
q, k, v = torch.randn(3, N, D, device="cuda" if torch.cuda.is_available() else "cpu")
out = torch.empty_like(q)
attention_kernel[(N,)](q, k, v, out, N, D**-0.5, D=D, SLOTS=triton.next_power_of_2(N))

want = torch.softmax(q.double() @ k.double().T * D**-0.5, dim=-1) @ v.double()
print(f"largest difference from float64: {(out - want).abs().max():.1e}")
