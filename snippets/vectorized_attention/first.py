"""Attention for one head: one program per query, all keys in one load."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # no GPU: the kernel runs in Triton's interpreter

import triton
import triton.language as tl


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr, N, scale, D: tl.constexpr, ROWS: tl.constexpr):
    m = tl.program_id(0)  # which query is mine?
    cols = tl.arange(0, D)  # [D]
    rows = tl.arange(0, ROWS)  # [ROWS], a power of two, at least N
    grid = rows[:, None] * D + cols[None, :]  # [ROWS, D]: where each element lies
    mask = rows[:, None] < N

    q = tl.load(q_ptr + m * D + cols)  # [D]
    k = tl.load(k_ptr + grid, mask=mask, other=0.0)  # [ROWS, D]: all keys at once
    scores = tl.sum(q[None, :] * k, axis=1) * scale  # [ROWS]
    scores = tl.where(rows < N, scores, float("-inf"))  # rows that are no keys get no weight

    weights = tl.exp(scores - tl.max(scores, axis=0))
    weights = weights / tl.sum(weights, axis=0)  # [ROWS]

    v = tl.load(v_ptr + grid, mask=mask, other=0.0)  # [ROWS, D]
    out = tl.sum(weights[:, None] * v, axis=0)  # [D]
    tl.store(out_ptr + m * D + cols, out)


torch.manual_seed(0)
N, D = 100, 64
q, k, v = torch.randn(3, N, D, device="cuda" if torch.cuda.is_available() else "cpu")
out = torch.empty_like(q)
attention_kernel[(N,)](q, k, v, out, N, D**-0.5, D=D, ROWS=triton.next_power_of_2(N))

want = torch.softmax(q.double() @ k.double().T * D**-0.5, dim=-1) @ v.double()
print(f"largest difference from float64: {(out - want).abs().max():.1e}")
