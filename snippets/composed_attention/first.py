"""Attention for one head out of three kernels: a transpose, a product and a softmax."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # no GPU: the kernels run in Triton's interpreter

import triton
import triton.language as tl


@triton.jit
def transpose_kernel(x_ptr, out_ptr, M, N, T: tl.constexpr):
    rows = tl.program_id(0) * T + tl.arange(0, T)  # which tile is mine?
    cols = tl.program_id(1) * T + tl.arange(0, T)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask)  # [T, T], along the rows
    tl.store(out_ptr + cols[:, None] * M + rows[None, :], tl.trans(x), mask=tl.trans(mask))


@triton.jit
def matmul_kernel(a_ptr, b_ptr, out_ptr, M, N, K, scale, T: tl.constexpr):
    rows = tl.program_id(0) * T + tl.arange(0, T)
    cols = tl.program_id(1) * T + tl.arange(0, T)
    acc = tl.zeros([T, T], tl.float32)
    for k in range(0, K, T):
        steps = k + tl.arange(0, T)
        mask_a = (rows[:, None] < M) & (steps[None, :] < K)
        mask_b = (steps[:, None] < K) & (cols[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + steps[None, :], mask=mask_a, other=0.0)
        b = tl.load(b_ptr + steps[:, None] * N + cols[None, :], mask=mask_b, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")  # ieee: float32 is not cut to TF32
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], acc * scale, mask=mask)


@triton.jit
def softmax_kernel(x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    row = x_ptr + tl.program_id(0) * N + cols
    x = tl.load(row, mask=cols < N, other=float("-inf"))  # [BLOCK]: a whole row
    weights = tl.exp(x - tl.max(x, axis=0))
    tl.store(row, weights / tl.sum(weights, axis=0), mask=cols < N)  # over the scores


def attention(q, k, v, T=32):
    (M, D), N = q.shape, k.shape[0]
    kT, scores, out = q.new_empty(D, N), q.new_empty(M, N), q.new_empty(M, D)
    tiles_m, tiles_n, tiles_d = (triton.cdiv(size, T) for size in (M, N, D))
    transpose_kernel[(tiles_n, tiles_d)](k, kT, N, D, T)
    matmul_kernel[(tiles_m, tiles_n)](q, kT, scores, M, N, D, D**-0.5, T)
    softmax_kernel[(M,)](scores, N, triton.next_power_of_2(N))
    matmul_kernel[(tiles_m, tiles_d)](scores, v, out, M, D, N, 1.0, T)
    return out


torch.manual_seed(0)
q, k, v = torch.randn(3, 100, 64, device="cuda" if torch.cuda.is_available() else "cpu")
want = torch.softmax(q.double() @ k.double().T / 8, dim=-1) @ v.double()
print(f"largest difference from float64: {(attention(q, k, v) - want).abs().max():.1e}")
