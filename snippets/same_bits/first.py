"""One query over many keys: how they are cut decides the bits, who computes a piece does not."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # no GPU: the kernel runs in Triton's interpreter

import triton
import triton.language as tl


@triton.jit
def pieces_kernel(q_ptr, k_ptr, v_ptr, m_ptr, l_ptr, acc_ptr, N, keys, pieces, own, scale,
                  D: tl.constexpr, T: tl.constexpr):  # fmt: skip
    head, cols, rows = tl.program_id(0), tl.arange(0, D), tl.arange(0, T)
    q = tl.load(q_ptr + head * D + cols)  # [D]: the only query
    first = tl.program_id(1) * own
    for piece in range(first, min(first + own, pieces)):
        m_i, l_i, acc = float("-inf"), 0.0, tl.zeros([D], tl.float32)  # each piece starts anew
        for start in range(piece * keys, min(piece * keys + keys, N), T):
            offs_n = start + rows
            tile = (head * N + offs_n[:, None]) * D + cols[None, :]
            seen = offs_n < min(piece * keys + keys, N)
            k = tl.load(k_ptr + tile, mask=seen[:, None], other=0.0)  # [T, D]
            v = tl.load(v_ptr + tile, mask=seen[:, None], other=0.0)
            s = tl.where(seen, tl.sum(q[None, :] * k, axis=1) * scale, float("-inf"))  # [T]
            m_new = tl.maximum(m_i, tl.max(s, axis=0))
            alpha, p = tl.exp(m_i - m_new), tl.exp(s - m_new)
            l_i = l_i * alpha + tl.sum(p, axis=0)
            acc = acc * alpha + tl.sum(p[:, None] * v, axis=0)
            m_i = m_new
        at = head * pieces + piece
        tl.store(m_ptr + at, m_i)
        tl.store(l_ptr + at, l_i)
        tl.store(acc_ptr + at * D + cols, acc)


def attend(q, k, v, keys, own=1):
    """Pieces of so many keys, `own` of them to a program, merged from the first to the last."""
    H, N, D = k.shape
    pieces = -(-N // keys)
    m, sums, acc = (q.new_empty(H, pieces, *more) for more in ((), (), (D,)))
    grid = (H, -(-pieces // own))
    pieces_kernel[grid](q, k, v, m, sums, acc, N, keys, pieces, own, D**-0.5, D=D, T=32)
    top, total, out = m[:, 0], sums[:, 0], acc[:, 0]
    for j in range(1, pieces):
        new = torch.maximum(top, m[:, j])
        a, b = (top - new).exp(), (m[:, j] - new).exp()
        total = total * a + sums[:, j] * b
        out = out * a[:, None] + acc[:, j] * b[:, None]
        top = new
    return out / total[:, None]


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
H, N, D = 4, 1000, 64
q = 3 * torch.randn(H, D, device=device)
k, v = torch.randn(2, H, N, D, device=device)

one = attend(q, k, v, N)
for splits in (2, 4, 8):
    other = attend(q, k, v, -(-N // splits))
    print(f"{splits} pieces: {(other != one).sum()} of {one.numel()} numbers differ from one piece")
chunks = attend(q, k, v, 128)
for own in (2, 4, 8):
    same = torch.equal(attend(q, k, v, 128, own), chunks)
    print(f"pieces of 128 keys, {own} to a program: the same bits is {same}")

scores = (k.double() @ q.double()[..., None])[..., 0] * D**-0.5
want = (scores.softmax(-1)[:, None] @ v.double())[:, 0]
print(f"largest difference from float64: {(chunks - want).abs().max():.1e}")
