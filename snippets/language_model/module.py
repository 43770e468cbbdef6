"""A small GPT on bytes: rotary positions, grouped-query attention, RMSNorm, SwiGLU.

Copy this file; it needs torch and nothing else. `python module.py` checks it. Attention is an
argument: by default PyTorch's, and the page trains with its own. B is the batch, N tokens, E the
width of a token, H heads of queries, Hkv heads of keys, D the width of a head.
"""

import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

BYTES = 256  # what a token can be
ROTATION_BASE = 10_000.0


class Config(NamedTuple):
    """The sizes of a model; the default has 17 million parameters."""

    width: int = 512
    layers: int = 6
    heads: int = 8
    heads_kv: int = 2
    head_dim: int = 64
    hidden: int = 1408  # inside the feed-forward layer
    context: int = 1024  # tokens it is trained on at once


def check_config(config):
    """Raise for sizes that make no model."""
    for name, size in config._asdict().items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{name} is {size!r}; it must be an integer of at least 1")
    if config.heads % config.heads_kv:
        raise ValueError(f"heads is {config.heads}; it must be a multiple of {config.heads_kv}")
    if config.head_dim % 2:
        raise ValueError(f"head_dim is {config.head_dim}; rotary positions need an even number")


def sdpa(q, k, v):
    """Causal attention by PyTorch: q [B, H, N, D], k and v [B, Hkv, N, D]."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


class Linear(nn.Linear):
    """x @ Wᵀ in x's dtype: W is float32, so that small updates are not rounded away."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))


def rotations(positions, head_dim):
    """Cosines and sines [..., N, 1, D / 2] of positions [..., N], in float32.

    Source: Su et al. 2021, https://arxiv.org/abs/2104.09864, section 3.4
    """
    pairs = torch.arange(head_dim // 2, device=positions.device)
    speeds = torch.exp(pairs * (-2 * math.log(ROTATION_BASE) / head_dim))  # [D / 2], per token
    angles = positions[..., None, None].float() * speeds  # [..., N, 1, D / 2]
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """Turn each pair of columns of x [B, N, heads, D] by its angle: scores see distances only."""
    first, second = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
    return turned.to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention: x [B, N, E] → [B, N, E]."""

    def __init__(self, config):
        super().__init__()
        self.heads, self.heads_kv = config.heads, config.heads_kv
        self.split = config.heads, config.heads_kv, config.heads_kv
        self.head_dim = config.head_dim
        self.qkv = Linear(config.width, sum(self.split) * config.head_dim)
        self.out = Linear(config.heads * config.head_dim, config.width)

    def forward(self, x, cos, sin, attend):
        B, N, _ = x.shape
        every = self.qkv(x).view(B, N, sum(self.split), self.head_dim)
        q, k, v = every.split(self.split, dim=2)  # [B, N, heads, D] each
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mixed = attend(*(x.transpose(1, 2) for x in (q, k, v)))  # [B, H, N, D]
        return self.out(mixed.transpose(1, 2).reshape(B, N, -1))


class Block(nn.Module):
    """One layer: attention, then a feed-forward layer, each added to what went in."""

    def __init__(self, config, dtype):
        super().__init__()
        self.dtype = dtype
        self.before_attention = nn.RMSNorm(config.width, eps=1e-6)
        self.attention = Attention(config)
        self.before_forward = nn.RMSNorm(config.width, eps=1e-6)
        self.up = Linear(config.width, 2 * config.hidden)
        self.down = Linear(config.hidden, config.width)

    def forward(self, x, cos, sin, attend):
        # x stays float32: a sum over layers loses small terms in 16 bits. Products are in dtype.
        x = x + self.attention(self.before_attention(x).to(self.dtype), cos, sin, attend)
        gate, up = self.up(self.before_forward(x).to(self.dtype)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class LanguageModel(nn.Module):
    """Bytes [B, N] → logits of the next byte [B, N, 256]. Weights are float32, products dtype.

    forward(tokens, attend=sdpa, positions=None): `attend` takes q, k, v and returns [B, H, N, D];
    a list of functions has one for each layer. positions [N] or [B, N]; 0 … N - 1 if None.
    """

    def __init__(self, config=None, *, dtype=torch.float32, seed=0):
        super().__init__()
        self.config = config or Config()
        check_config(self.config)
        self.dtype = dtype
        self.embedding = nn.Embedding(BYTES, self.config.width)
        self.blocks = nn.ModuleList(Block(self.config, dtype) for _ in range(self.config.layers))
        self.norm = nn.RMSNorm(self.config.width, eps=1e-6)
        self._begin(seed)

    def forward(self, tokens, attend=sdpa, positions=None):
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        cos, sin = rotations(positions, self.config.head_dim)
        x = self.embedding(tokens)  # [B, N, E]
        each = attend if isinstance(attend, list) else [attend] * len(self.blocks)
        for block, one in zip(self.blocks, each, strict=True):
            x = block(x, cos, sin, one)
        x = self.norm(x).to(self.dtype)
        return F.linear(x, self.embedding.weight.to(self.dtype)).float()

    def _begin(self, seed):
        """The same weights for a seed on every machine: drawn on the CPU, in one order."""
        generator = torch.Generator().manual_seed(seed)
        last = {"attention.out.weight", "down.weight"}  # they add to x, once a layer
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if weight.dim() < 2:
                    continue  # a norm begins with ones
                ends = any(name.endswith(suffix) for suffix in last)
                scale = 0.02 / (math.sqrt(2 * self.config.layers) if ends else 1)
                weight.copy_(torch.randn(weight.shape, generator=generator) * scale)


def parameters(model):
    """How many numbers are trained."""
    return sum(weight.numel() for weight in model.parameters())


def cast(model):
    """Cast the weights of products once, for sampling: training casts them at each use."""
    for part in model.modules():
        if isinstance(part, Linear):
            part.weight.data = part.weight.data.to(model.dtype)
    return model


def loss_of(model, tokens, attend=sdpa):
    """Mean cross-entropy in nats per byte of tokens [B, N + 1], each from those before."""
    logits = model(tokens[:, :-1], attend)
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Cache:
    """Keys and values of all layers, and the functions that write and read them.

    append(k, v, k_cache, v_cache, lengths) and attend(q, k_cache, v_cache, cache_seqlens=lengths)
    are those of decode_attention, or `sdpa_append` and `sdpa_cached`. The model calls `layers`.
    """

    def __init__(self, model, batch, capacity, append, attend):
        config, device = model.config, model.embedding.weight.device
        shape = (2, batch, config.heads_kv, capacity, config.head_dim)
        self.capacity = capacity
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=device)
        self.layers = [
            _layer(torch.zeros(shape, dtype=model.dtype, device=device), self, append, attend)
            for _ in range(config.layers)
        ]


def _layer(memory, cache, append, attend):
    def attend_cached(q, k, v):
        append(k, v, *memory, cache.lengths)
        return attend(q, *memory, cache_seqlens=cache.lengths)

    return attend_cached


def sdpa_append(k, v, k_cache, v_cache, lengths):
    """Write M new keys and values [B, Hkv, M, D] where the sequences end; no wait for the GPU."""
    M = k.shape[2]
    places = lengths[:, None] - M + torch.arange(M, device=k.device)  # [B, M]
    places = places[:, None, :, None].expand(k.shape).long()
    k_cache.scatter_(2, places, k)
    v_cache.scatter_(2, places, v)


def sdpa_cached(q, k_cache, v_cache, *, cache_seqlens):
    """Attention by PyTorch over whole caches, with a mask where a sequence has no key yet."""
    M, capacity = q.shape[2], k_cache.shape[2]
    last = cache_seqlens[:, None] - M + torch.arange(M, device=q.device)  # [B, M]
    seen = torch.arange(capacity, device=q.device) <= last[..., None]  # [B, M, capacity]
    options = {"attn_mask": seen[:, None], "enable_gqa": True}
    return F.scaled_dot_product_attention(q, k_cache, v_cache, **options)


def step(model, tokens, cache):
    """Logits [B, 256] after M more tokens [B, M], which join the cache."""
    M = tokens.shape[1]
    cache.lengths += M
    before = cache.lengths[:, None] - M
    positions = before + torch.arange(M, device=tokens.device)  # [B, M]
    return model(tokens, cache.layers, positions)[:, -1]


def draw(logits, temperature, generator=None):
    """The next bytes [B, 1] at random; the likeliest at temperature 0."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    weights = (logits / temperature).softmax(-1)
    # Who arrives first of clocks that run at these rates; torch.multinomial waits for the GPU.
    arrivals = torch.empty_like(weights).exponential_(generator=generator) / weights
    return arrivals.argmin(-1, keepdim=True)


@torch.no_grad()
def sample(model, prompt, count, *, cache=None, temperature=0.8, generator=None, chunk=64):
    """prompt [B, N] and `count` bytes more. Without a cache each byte costs a whole forward."""
    _check_sample(model, prompt, count, cache)
    tokens = prompt
    if cache is not None:
        for part in prompt.split(chunk, dim=1):  # decode_attention takes 64 new tokens at once
            logits = step(model, part, cache)
    for made in range(count):
        if cache is None:
            logits = model(tokens)[:, -1]
        elif made:
            logits = step(model, tokens[:, -1:], cache)
        tokens = torch.cat((tokens, draw(logits, temperature, generator)), dim=1)
    return tokens


def _check_sample(model, prompt, count, cache):
    if prompt.dim() != 2 or prompt.numel() == 0:
        raise ValueError(f"prompt has shape {tuple(prompt.shape)}; [B, N] of at least one byte")
    needed = prompt.shape[1] + count
    room = model.config.context if cache is None else min(cache.capacity, model.config.context)
    if needed > room:
        raise ValueError(f"{needed} bytes are asked for; prompt and sample may have {room} here")
    if cache is not None and len(cache.lengths) != len(prompt):
        raise ValueError(f"prompt has {len(prompt)} rows, the cache {len(cache.lengths)}")


def main():
    """Check the gradients beside float64, and sampling with a cache beside sampling without."""
    config = Config(32, 2, 4, 2, 16, 48, 64)
    tokens = torch.randint(BYTES, (2, 33), generator=torch.Generator().manual_seed(0))
    exact = LanguageModel(config, dtype=torch.float64).double()
    loss_of(exact, tokens).backward()
    model = LanguageModel(config)
    loss = loss_of(model, tokens)
    loss.backward()
    pairs = list(zip(model.parameters(), exact.parameters(), strict=True))
    error = max(((a.grad - b.grad).norm() / b.grad.norm()).item() for a, b in pairs)
    print(f"{parameters(model)} parameters, loss {loss.item():.4f} nats per byte")
    print(f"gradients: largest relative difference from float64 {error:.1e}, allowed 1e-04")
    cache = Cache(model, 2, 64, sdpa_append, sdpa_cached)
    plain = sample(model, tokens[:, :8], 24, temperature=0)
    cached = sample(model, tokens[:, :8], 24, temperature=0, cache=cache)
    same = torch.equal(plain, cached)
    print(f"24 bytes sampled with a cache: {'the same' if same else 'other'} bytes as without")
    right = error < 1e-4 and same
    print("OK" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
