"""Multi-head attention in PyTorch: one head, a loop over heads, and all heads at once.

Copy this file; it needs torch and nothing else. `python module.py` checks it against PyTorch.
B is the batch, N tokens, E the width of a token, H heads, D the width of a head.
"""

import numbers

import torch
from torch import nn

PROJECTIONS = ("W_q", "W_k", "W_v")


class AttentionHead(nn.Module):
    """One head: x [B, N, E] → [B, N, D], its own projections, no bias.

    forward(x, mask=None): where mask is 0 a key is hidden from a query. Its shape is [N, N], or
    [B, N, N] with 1 allowed for B and for the queries; its dtype bool or an integer. A query that
    sees no key gets zeros. Raises TypeError or ValueError for anything else.
    """

    def __init__(self, embed_dim, head_dim):
        super().__init__()
        _check_sizes(embed_dim=embed_dim, head_dim=head_dim)
        self.W_q = nn.Linear(embed_dim, head_dim, bias=False)
        self.W_k = nn.Linear(embed_dim, head_dim, bias=False)
        self.W_v = nn.Linear(embed_dim, head_dim, bias=False)
        self.scale = head_dim**-0.5

    def forward(self, x, mask=None):
        _check_inputs(x, mask, self.W_q.weight)
        q = self.W_q(x)  # [B, N, E] → [B, N, D]
        k = self.W_k(x)  # [B, N, E] → [B, N, D]
        v = self.W_v(x)  # [B, N, E] → [B, N, D]
        scores = q @ k.mT * self.scale  # [B, N, D] · [B, D, N] → [B, N, N]
        weights = masked_softmax(scores, mask)
        return weights @ v  # [B, N, N] · [B, N, D] → [B, N, D]


def masked_softmax(scores, mask=None):
    """Softmax of each row; hidden keys get 0, and a row without a visible key is all zeros."""
    if mask is None:
        return scores.softmax(-1)
    hidden = mask == 0
    # The lowest finite number and not -inf: a row of nothing but -inf is NaN after softmax.
    scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    return scores.softmax(-1).masked_fill(hidden, 0.0)


class MultiHeadAttention(nn.Module):
    """Several heads, one after the other: x [B, N, E] → [B, N, E].

    head_dim is embed_dim / num_heads if it is not given. The last projection has a bias, so a
    query that sees no key gets that bias. mask and errors are those of AttentionHead.
    Source: Vaswani et al. 2017, section 3.2.2, https://arxiv.org/abs/1706.03762
    """

    def __init__(self, embed_dim, num_heads, head_dim=None):
        super().__init__()
        head_dim = _head_dim(embed_dim, num_heads, head_dim)
        self.heads = nn.ModuleList(AttentionHead(embed_dim, head_dim) for _ in range(num_heads))
        self.W_o = nn.Linear(num_heads * head_dim, embed_dim)

    def forward(self, x, mask=None):
        outs = [head(x, mask) for head in self.heads]  # H times [B, N, E] → [B, N, D]
        return self.W_o(torch.cat(outs, dim=-1))  # [B, N, H·D] → [B, N, E]


class MultiHeadAttentionVectorized(nn.Module):
    """All heads at once: x [B, N, E] → [B, N, E]. Arguments as in MultiHeadAttention."""

    def __init__(self, embed_dim, num_heads, head_dim=None):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = _head_dim(embed_dim, num_heads, head_dim)
        width = num_heads * self.head_dim  # H·D: the heads side by side
        self.W_q = nn.Linear(embed_dim, width, bias=False)
        self.W_k = nn.Linear(embed_dim, width, bias=False)
        self.W_v = nn.Linear(embed_dim, width, bias=False)
        self.W_o = nn.Linear(width, embed_dim)
        self.scale = self.head_dim**-0.5

    def forward(self, x, mask=None):
        _check_inputs(x, mask, self.W_q.weight)
        q = self.split(self.W_q(x))  # [B, N, E] → [B, N, H·D] → [B, H, N, D]
        k = self.split(self.W_k(x))  # [B, N, E] → [B, N, H·D] → [B, H, N, D]
        v = self.split(self.W_v(x))  # [B, N, E] → [B, N, H·D] → [B, H, N, D]
        if mask is not None and mask.dim() == 3:
            mask = mask[:, None]  # [B, N, N] → [B, 1, N, N], the same for every head
        out = self.attend(q, k, v, mask)
        return self.W_o(self.merge(out))  # [B, H, N, D] → [B, N, H·D] → [B, N, E]

    def split(self, x):
        B, N, _ = x.shape
        x = x.view(B, N, self.num_heads, self.head_dim)  # [B, N, H·D] → [B, N, H, D]
        return x.transpose(1, 2)  # [B, N, H, D] → [B, H, N, D]

    def attend(self, q, k, v, mask=None):
        scores = q @ k.mT * self.scale  # [B, H, N, D] · [B, H, D, N] → [B, H, N, N]
        weights = masked_softmax(scores, mask)
        return weights @ v  # [B, H, N, N] · [B, H, N, D] → [B, H, N, D]

    def merge(self, x):
        B, H, N, D = x.shape
        x = x.transpose(1, 2)  # [B, H, N, D] → [B, N, H, D]
        return x.contiguous().view(B, N, H * D)  # [B, N, H, D] → [B, N, H·D]

    @classmethod
    def from_heads(cls, module):
        """The MultiHeadAttention `module` with its heads' weights stacked; same dtype, device."""
        first = module.heads[0].W_q.weight  # [D, E]
        wide = cls(first.shape[1], len(module.heads), first.shape[0]).to(first)
        with torch.no_grad():
            for name in PROJECTIONS:
                weights = [getattr(head, name).weight for head in module.heads]
                getattr(wide, name).weight.copy_(torch.cat(weights))  # H times [D, E] → [H·D, E]
        wide.W_o.load_state_dict(module.W_o.state_dict())
        return wide

    def as_torch(self):
        """torch.nn.MultiheadAttention with these weights; ValueError unless H·D is E."""
        width, E = self.W_q.weight.shape  # [H·D, E]
        if width != E:
            raise ValueError(
                f"head_dim is {self.head_dim}: torch.nn.MultiheadAttention has none, so "
                f"num_heads * head_dim must be embed_dim, {self.num_heads} * {self.head_dim} "
                f"is not {E}"
            )
        theirs = nn.MultiheadAttention(E, self.num_heads, batch_first=True).to(self.W_q.weight)
        with torch.no_grad():
            stacked = torch.cat([getattr(self, name).weight for name in PROJECTIONS])
            theirs.in_proj_weight.copy_(stacked)  # 3 times [E, E] → [3·E, E]
            theirs.in_proj_bias.zero_()
        theirs.out_proj.load_state_dict(self.W_o.state_dict())
        return theirs


def _check_inputs(x, mask, weight):
    """Raise for a wrong x or mask: which argument, what came, what is allowed."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x has type {_type_name(x)}; it must be a torch.Tensor")
    if x.is_nested or x.layout != torch.strided:
        raise TypeError(f"x is {'nested' if x.is_nested else x.layout}; it must be dense")
    E = weight.shape[1]
    if x.dim() != 3 or x.shape[2] != E:
        raise ValueError(f"x has shape {tuple(x.shape)}; [B, N, {E}] is allowed")
    if x.numel() == 0:
        raise ValueError(f"x has shape {tuple(x.shape)}; no dimension may be 0")
    if x.dtype != weight.dtype:
        raise TypeError(f"x is {x.dtype} but the weights are {weight.dtype}; cast one of them")
    if x.device != weight.device:
        raise ValueError(f"x is on {x.device} but the weights are on {weight.device}; move one")
    if mask is None:
        return
    if not isinstance(mask, torch.Tensor):
        raise TypeError(f"mask has type {_type_name(mask)}; it must be a torch.Tensor or None")
    if mask.is_nested or mask.layout != torch.strided:
        raise TypeError(f"mask is {'nested' if mask.is_nested else mask.layout}; it must be dense")
    if mask.is_floating_point() or mask.is_complex() or mask.is_quantized:
        raise TypeError(
            f"mask is {mask.dtype}; bool and integers are allowed, 0 hides. (PyTorch adds a "
            "float mask to the scores, where 0 hides nothing)"
        )
    if mask.device != x.device:
        raise ValueError(f"mask is on {mask.device} but x is on {x.device}; move one of them")
    B, N, _ = x.shape
    shape = tuple(mask.shape)
    fits = len(shape) == 3 and shape[0] in (1, B) and shape[1] in (1, N) and shape[2] == N
    if shape != (N, N) and not fits:
        raise ValueError(
            f"mask has shape {shape}; allowed are {(N, N)}, {(B, N, N)} and, for padding, "
            f"{(B, 1, N)}"
        )


def _check_sizes(**sizes):
    """Raise unless every size is a whole number above 0."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, numbers.Integral):
            raise TypeError(f"{name} has type {_type_name(size)}; it must be an integer")
        if size < 1:
            raise ValueError(f"{name} is {size}; it must be at least 1")


def _type_name(x):
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")


def _head_dim(embed_dim, num_heads, head_dim):
    """The width of a head; ValueError if it is not given and the heads cannot share embed_dim."""
    _check_sizes(embed_dim=embed_dim, num_heads=num_heads)
    if head_dim is None:
        if embed_dim % num_heads:
            raise ValueError(
                f"embed_dim is {embed_dim}, which {num_heads} heads cannot share equally: choose "
                "num_heads that divides it, or give head_dim"
            )
        return embed_dim // num_heads
    _check_sizes(head_dim=head_dim)
    return head_dim


def main():
    """Check both forms against torch.nn.MultiheadAttention in float64, and time them on a GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    loop = MultiHeadAttention(embed_dim=256, num_heads=8).to(device).eval()
    vectorized = MultiHeadAttentionVectorized.from_heads(loop).eval()
    theirs = vectorized.as_torch().eval()
    x = 3 * torch.randn(4, 100, 256, device=device)  # [B, N, E]; 3 keeps the softmax from flat
    mask = torch.ones(100, 100, device=device).tril().bool()  # [N, N], causal

    def pytorch(module, x):
        return module(x, x, x, attn_mask=~mask, need_weights=False)[0]  # there True hides

    print(f"x {tuple(x.shape)}, 8 heads, causal, {x.dtype} on {device}")
    calls = {
        "loop": lambda: loop(x, mask),
        "vectorized": lambda: vectorized(x, mask),
        "PyTorch": lambda: pytorch(theirs, x),
    }
    with torch.no_grad():
        outs = {name: call().double() for name, call in calls.items()}
        want = pytorch(vectorized.as_torch().double().train(), x.double())
    errors = {name: (out - want).abs() for name, out in outs.items()}
    for name, error in errors.items():
        print(f"{name}: difference from float64 largest {error.max():.1e}, mean {error.mean():.1e}")
    # All three round each float32 operation; right ones stay within a small multiple of PyTorch.
    allowed = 4 * errors["PyTorch"].max() + 4 * torch.finfo(x.dtype).eps * want.abs().max()
    right = all(error.max() <= allowed for error in errors.values())
    print("OK" if right else f"WRONG: more than {allowed:.1e} is not rounding")
    if device == "cuda":
        from torch.utils.benchmark import Timer

        with torch.no_grad():
            for name, call in calls.items():
                seconds = Timer("call()", globals={"call": call}).blocked_autorange().median
                print(f"{name}: {seconds * 1e6:.1f} µs a call, launches included")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
