"""A window and a sink in one small kernel: tiles outside are skipped, and one term is added."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # no GPU: the kernel runs in Triton's interpreter

import triton
import triton.language as tl


@triton.jit
def window_kernel(q_ptr, k_ptr, v_ptr, sinks_ptr, out_ptr, visited_ptr, N, W, scale,
                  D: tl.constexpr, T: tl.constexpr):  # fmt: skip
    head, first = tl.program_id(1), tl.program_id(0) * T
    rows, cols = tl.arange(0, T), tl.arange(0, D)
    base = head * N * D
    tile = rows[:, None] * D + cols[None, :]
    q = tl.load(q_ptr + base + first * D + tile)  # [T, D]: a block of queries
    offs_m = first + rows

    m_i = tl.zeros([T], tl.float32) + tl.load(sinks_ptr + head)  # the sink is seen first
    l_i = tl.full([T], 1.0, tl.float32)  # its exponential, relative to itself
    acc = tl.zeros([T, D], tl.float32)  # its value is zero
    begin = tl.maximum(first - W + 1, 0) // T * T  # the first tile that the first query sees
    visited = 0
    for start in range(begin, first + T, T):  # up to the tile of the queries' own keys
        k = tl.load(k_ptr + base + start * D + tile)
        v = tl.load(v_ptr + base + start * D + tile)
        s = tl.dot(q, k.T) * scale  # [T, T]
        offs_n = start + rows
        own = offs_m[:, None]
        seen = (offs_n[None, :] <= own) & (offs_n[None, :] > own - W)
        s = tl.where(seen, s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, axis=1))
        alpha = tl.exp(m_i - m_new)
        p = tl.exp(s - m_new[:, None])
        l_i = l_i * alpha + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m_i = m_new
        visited += 1
    tl.store(out_ptr + base + first * D + tile, (acc / l_i[:, None]).to(out_ptr.dtype.element_ty))
    tl.store(visited_ptr + head * tl.num_programs(0) + tl.program_id(0), visited)


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
H, N, D, T, W = 2, 512, 64, 32, 100
q, k, v = torch.randn(3, H, N, D, device=device).half()
sinks = torch.randn(H, device=device)
out, visited = torch.empty_like(q), torch.empty(H, N // T, dtype=torch.int32, device=device)
arguments = q, k, v, sinks, out, visited, N, W, D**-0.5
window_kernel[(N // T, H)](*arguments, D=D, T=T)

keys = torch.arange(N, device=device)
hidden = (keys > keys[:, None]) | (keys <= keys[:, None] - W)
scores = (q.double() @ k.double().mT * D**-0.5).masked_fill(hidden, float("-inf"))
scores = torch.cat([scores, sinks.double()[:, None, None].expand(H, N, 1)], dim=-1)
want = scores.softmax(-1)[..., :-1] @ v.double()
causal = sum(range(1, N // T + 1))
print(f"tiles visited in a head: {visited[0].sum()} of {causal} without the window")
print(f"largest difference from float64: {(out - want).abs().max():.1e}")
