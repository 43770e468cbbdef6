"""A layer with eight attention heads, in a loop and all at once: the same numbers twice."""

import torch
from torch import nn


class Loop(nn.Module):
    def __init__(self, E, H):
        super().__init__()
        self.D = E // H  # columns of a head
        self.heads = nn.ModuleList(nn.Linear(E, 3 * self.D, bias=False) for _ in range(H))
        self.W_o = nn.Linear(E, E)

    def forward(self, x):  # [B, N, E]
        outs = []
        for head in self.heads:
            q, k, v = head(x).split(self.D, dim=-1)  # [B, N, D] each
            weights = (q @ k.mT * self.D**-0.5).softmax(-1)  # [B, N, N]
            outs.append(weights @ v)  # [B, N, D]
        return self.W_o(torch.cat(outs, dim=-1))  # side by side: [B, N, E]


class Batched(nn.Module):
    def __init__(self, loop):
        super().__init__()
        self.H, self.D, self.W_o = len(loop.heads), loop.D, loop.W_o
        stacked = [head.weight.view(3, self.D, -1) for head in loop.heads]  # H times [3, D, E]
        self.W = nn.Parameter(torch.stack(stacked, 1).flatten(0, 2))  # [3·H·D, E]

    def forward(self, x):  # [B, N, E]
        B, N, E = x.shape
        qkv = (x @ self.W.T).view(B, N, 3, self.H, self.D)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, H, N, D] each: heads are a batch dimension
        weights = (q @ k.mT * self.D**-0.5).softmax(-1)  # [B, H, N, N]
        out = weights @ v  # [B, H, N, D]
        return self.W_o(out.transpose(1, 2).contiguous().view(B, N, E))


torch.manual_seed(0)
x = torch.randn(8, 128, 512)
loop = Loop(E=512, H=8)
batched = Batched(loop)
with torch.no_grad():
    out = batched(x)
    want = loop.double()(x.double())
print(f"largest difference from float64: {(out - want).abs().max():.1e}")
