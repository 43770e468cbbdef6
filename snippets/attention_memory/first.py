"""The most memory that attention holds at once, counted without allocating it."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def attention(q, k, v):  # [B, H, N, D] each
    scores = (q * q.shape[-1] ** -0.5) @ k.mT  # [B, H, N, N]
    weights = scores.softmax(-1)  # [B, H, N, N], while the scores are still there
    del scores
    return weights @ v  # [B, H, N, D]


class Peak(TorchDispatchMode):
    """Sees every operation: which tensors are alive after it?"""

    def __init__(self, *inputs):
        super().__init__()
        self.alive = weakref.WeakSet(x.untyped_storage() for x in inputs)
        self.bytes = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        self.alive.add(result.untyped_storage())  # a view has the storage of its source
        self.bytes = max(self.bytes, sum(storage.nbytes() for storage in self.alive))
        return result


shape = 32, 32, 4096, 64  # batch, heads, tokens, columns of a head
q, k, v = (torch.empty(shape, device="meta") for _ in range(3))  # shapes without memory
with Peak(q, k, v) as peak:
    attention(q, k, v)
print(f"at its peak it holds {peak.bytes / 1e9:.1f} GB")

torch.manual_seed(0)
q, k, v = torch.randn(3, 1, 2, 100, 64)
want = torch.softmax(q.double() @ k.double().mT / 8, dim=-1) @ v.double()
print(f"largest difference from float64: {(attention(q, k, v) - want).abs().max():.1e}")
