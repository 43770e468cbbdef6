"""The exercise's answer: eager attention within a budget, a block of queries at a time."""

import torch

from .module import SIZES, eager_attention


def attention_in_blocks(q, k, v, *, budget):
    """softmax(q kᵀ / √D) v; q, k, v and the result are [B, H, N, D].

    Holds at most `budget` bytes beside them. Raises ValueError if not even one query fits in.
    """
    B, H, N, D = q.shape
    at_a_time = budget // block_bytes(B, H, N, D, q.dtype)
    if at_a_time < 1:
        least = block_bytes(B, H, N, D, q.dtype)
        raise ValueError(f"budget is {budget} bytes; one query needs {least}")
    out = torch.empty_like(q)
    for start in range(0, N, at_a_time):
        block = slice(start, start + at_a_time)  # beyond N a slice just ends
        out[:, :, block] = eager_attention(q[:, :, block], k, v)
    return out


def block_bytes(B, H, N, D, dtype):
    """Most bytes for one query of each head: its weights, beside its scores or its result."""
    return B * H * (N + max(N, D)) * SIZES[dtype]
