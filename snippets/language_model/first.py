"""A GPT of bytes that learns its own source: attention is an argument."""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

E, H, LAYERS, N = 64, 4, 2, 32  # numbers of a token, heads, layers, bytes of a window


def sdpa(q, k, v):  # [B, H, N, D] each; any causal attention of this form will do
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.norms = nn.ModuleList([nn.RMSNorm(E), nn.RMSNorm(E)])
        self.qkv, self.out = nn.Linear(E, 3 * E, bias=False), nn.Linear(E, E, bias=False)
        self.mlp = nn.Sequential(nn.Linear(E, 4 * E), nn.SiLU(), nn.Linear(4 * E, E))

    def forward(self, x):  # [B, N, E]
        heads = self.qkv(self.norms[0](x)).unflatten(-1, (3, H, -1))  # [B, N, 3, H, D]
        out = self.attend(*heads.permute(2, 0, 3, 1, 4))  # [B, H, N, D]
        x = x + self.out(out.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class GPT(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, E), nn.Embedding(N, E)
        self.blocks = nn.Sequential(*(Block(attend) for _ in range(LAYERS)), nn.RMSNorm(E))
        self.head = nn.Linear(E, 256, bias=False)

    def forward(self, x):  # [B, N] bytes → [B, N, 256] scores of the next byte
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.blocks(self.bytes(x) + self.places(places)))


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
text = torch.tensor(list(Path(__file__).read_bytes()), device=device)
windows = text.unfold(0, N + 1, 1)  # [windows, N + 1]
model = GPT(sdpa).to(device)  # or your attention
adam = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(61):
    batch = windows[torch.randint(len(windows), (8,))]
    loss = F.cross_entropy(model(batch[:, :-1]).transpose(1, 2), batch[:, 1:])
    adam.zero_grad()
    loss.backward()
    adam.step()
    if step % 20 == 0:
        print(f"step {step}: {loss:.2f} nats a byte")

exact = GPT(sdpa).to(device)  # the same weights in float64, with PyTorch's attention
exact.load_state_dict(model.state_dict())
want = exact.double()(windows[:4, :-1])
print(f"largest difference from float64: {(model(windows[:4, :-1]) - want).abs().max():.1e}")
