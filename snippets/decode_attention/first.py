"""One new token against a long cache: the keys are split among programs, then merged."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # no GPU: the kernels run in Triton's interpreter

import triton
import triton.language as tl


@triton.jit
def split_kernel(q_ptr, k_ptr, v_ptr, part_ptr, lse_ptr, N, chunk, scale,
                 G: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    heads, cols = tl.arange(0, G), tl.arange(0, D)  # the query heads that share these keys
    q = tl.load(q_ptr + heads[:, None] * D + cols[None, :])  # [G, D]
    first = tl.program_id(0) * chunk  # which keys are mine?
    m_i = tl.full([G], float("-inf"), tl.float32)
    l_i = tl.zeros([G], tl.float32)
    acc = tl.zeros([G, D], tl.float32)
    for start in range(first, min(first + chunk, N), BLOCK):
        keys = start + tl.arange(0, BLOCK)
        mask = keys < min(first + chunk, N)
        rows = keys[:, None] * D + cols[None, :]
        k = tl.load(k_ptr + rows, mask=mask[:, None], other=0.0)  # [BLOCK, D]
        v = tl.load(v_ptr + rows, mask=mask[:, None], other=0.0)
        s = tl.dot(q, k.T, input_precision="ieee") * scale  # [G, BLOCK]
        s = tl.where(mask[None, :], s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, axis=1))
        alpha, p = tl.exp(m_i - m_new), tl.exp(s - m_new[:, None])
        l_i = l_i * alpha + tl.sum(p, axis=1)
        acc = tl.dot(p, v, acc * alpha[:, None], input_precision="ieee")
        m_i = m_new
    part = tl.program_id(0) * G + heads
    tl.store(part_ptr + part[:, None] * D + cols[None, :], acc / l_i[:, None])
    tl.store(lse_ptr + part, m_i + tl.log(l_i))  # how much this part weighs


@triton.jit
def merge_kernel(part_ptr, lse_ptr, out_ptr, G, SPLITS: tl.constexpr, D: tl.constexpr):
    head, cols = tl.program_id(0), tl.arange(0, D)
    parts = tl.arange(0, SPLITS) * G + head
    lse = tl.load(lse_ptr + parts)  # [SPLITS]
    weights = tl.exp(lse - tl.max(lse, axis=0))  # a softmax over the parts
    weights = weights / tl.sum(weights, axis=0)
    part = tl.load(part_ptr + parts[:, None] * D + cols[None, :])  # [SPLITS, D]
    tl.store(out_ptr + head * D + cols, tl.sum(weights[:, None] * part, axis=0))


torch.manual_seed(0)
N, D, G, splits = 1000, 64, 16, 4
device = "cuda" if torch.cuda.is_available() else "cpu"
q = torch.randn(G, D, device=device)
k, v = torch.randn(2, N, D, device=device)
parts, lse = q.new_empty(splits, G, D), q.new_empty(splits, G)
chunk = triton.cdiv(N, splits)
split_kernel[(splits,)](q, k, v, parts, lse, N, chunk, D**-0.5, G=G, D=D, BLOCK=64)
out = torch.empty_like(q)
merge_kernel[(G,)](parts, lse, out, G, SPLITS=splits, D=D)

want = torch.softmax(q.double() @ k.double().T * D**-0.5, dim=-1) @ v.double()
print(f"largest difference from float64: {(out - want).abs().max():.1e}")
