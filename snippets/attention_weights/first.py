"""The weights of one attention head, one Triton program per query."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # no GPU: the kernel runs in Triton's interpreter

import triton
import triton.language as tl


@triton.jit
def weights_kernel(q_ptr, k_ptr, out_ptr, N, scale, D: tl.constexpr, SLOTS: tl.constexpr):
    m = tl.program_id(0)  # which query is mine?
    cols = tl.arange(0, D)
    q = tl.load(q_ptr + m * D + cols)  # [D]

    slots = tl.arange(0, SLOTS)  # a power of two, at least N
    scores = tl.full([SLOTS], float("-inf"), tl.float32)
    for n in range(N):
        k = tl.load(k_ptr + n * D + cols)  # [D]
        score = tl.sum(q * k, axis=0) * scale  # steps 1 and 2: compare, scale
        scores = tl.where(slots == n, score, scores)  # scores[n] = score

    weights = tl.exp(scores - tl.max(scores, axis=0))  # step 3: softmax
    weights = weights / tl.sum(weights, axis=0)
    tl.store(out_ptr + m * N + slots, weights, mask=slots < N)


torch.manual_seed(0)
N, D = 14, 32  # tokens of a sentence, width of a head
q, k, v = torch.randn(3, N, D, device="cuda" if torch.cuda.is_available() else "cpu")
weights = torch.empty(N, N, device=q.device)
weights_kernel[(N,)](q, k, weights, N, D**-0.5, D=D, SLOTS=triton.next_power_of_2(N))
out = weights @ v  # step 4: average the values

want = torch.softmax(q.double() @ k.double().T * D**-0.5, dim=-1) @ v.double()
print(f"largest difference from float64: {(out - want).abs().max():.1e}")
