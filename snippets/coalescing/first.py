"""Copy every `step`-th element of an array: a first kernel, and the price of a stride."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # no GPU: the kernel runs in Triton's interpreter

import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, N, step, BLOCK: tl.constexpr):
    pid = tl.program_id(0)  # which piece is mine?
    offs = pid * BLOCK + tl.arange(0, BLOCK)  # [BLOCK], in int32: good for 2^31 elements
    mask = offs < N
    x = tl.load(x_ptr + offs * step, mask=mask)
    tl.store(out_ptr + offs, x, mask=mask)


def copy(x, step):
    N = triton.cdiv(x.numel(), step)
    out = torch.empty(N, dtype=x.dtype, device=x.device)
    copy_kernel[(triton.cdiv(N, 1024),)](x, out, N, step, BLOCK=1024)
    return out


torch.manual_seed(0)
x = torch.randn(10_000, device="cuda" if torch.cuda.is_available() else "cpu")
for step in 1, 8, 64:
    want = x.double()[::step]
    print(f"step {step}: largest difference from float64: {(copy(x, step) - want).abs().max():.1e}")
