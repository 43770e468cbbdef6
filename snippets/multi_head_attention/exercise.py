"""The exercise's answer: one projection for queries, keys and values together."""

import torch

from .module import PROJECTIONS, MultiHeadAttentionVectorized, _check_inputs


class MultiHeadAttentionFused(MultiHeadAttentionVectorized):
    """MultiHeadAttentionVectorized with W_q, W_k and W_v in one; arguments and results as there."""

    def __init__(self, embed_dim, num_heads, head_dim=None):
        super().__init__(embed_dim, num_heads, head_dim)
        for name in PROJECTIONS:
            delattr(self, name)
        width = self.num_heads * self.head_dim
        self.W_qkv = torch.nn.Linear(embed_dim, 3 * width, bias=False)

    def forward(self, x, mask=None):
        _check_inputs(x, mask, self.W_qkv.weight)
        B, N, _ = x.shape
        qkv = self.W_qkv(x)  # [B, N, E] → [B, N, 3·H·D]
        qkv = qkv.view(B, N, 3, self.num_heads, self.head_dim)  # → [B, N, 3, H, D]
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # → [3, B, H, N, D], then three [B, H, N, D]
        if mask is not None and mask.dim() == 3:
            mask = mask[:, None]  # [B, N, N] → [B, 1, N, N]
        out = self.attend(q, k, v, mask)
        return self.W_o(self.merge(out))  # [B, H, N, D] → [B, N, H·D] → [B, N, E]

    @classmethod
    def from_separate(cls, module):
        """The same as `module`, a MultiHeadAttentionVectorized: its three weights stacked."""
        stacked = torch.cat([getattr(module, name).weight for name in PROJECTIONS])  # [3·H·D, E]
        fused = cls(stacked.shape[1], module.num_heads, module.head_dim).to(stacked)
        with torch.no_grad():
            fused.W_qkv.weight.copy_(stacked)
        fused.W_o.load_state_dict(module.W_o.state_dict())
        return fused
