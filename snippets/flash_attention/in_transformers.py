"""flash_attention inside the models of Hugging Face's transformers library."""

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import flash_attention_mask

from .kernel import flash_attention

NAME = "attention_measured"  # AutoModel.from_pretrained(path, attn_implementation=NAME)


# --8<-- [start:register]
def attend(module, query, key, value, attention_mask, *, scaling=None, dropout=0.0, **options):
    """What a model calls: query [B, H, M, D] → ([B, M, H, D], None); the mask [B, N] or None."""
    for name in ("sliding_window", "softcap", "s_aux", "position_bias"):
        if options.get(name) is not None:
            raise ValueError(f"{name} is {options[name]!r}; flash_attention has none of it")
    if dropout:
        raise ValueError(f"dropout is {dropout}; flash_attention has none, call model.eval()")
    causal = bool(getattr(module, "is_causal", False))
    if attention_mask is None:
        out = flash_attention(query, key, value, scale=scaling, causal=causal)
    else:
        out = _without_padding(query, key, value, attention_mask, scale=scaling, causal=causal)
    return out.transpose(1, 2), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, flash_attention_mask)  # without it: a mask of None, always
# --8<-- [end:register]


# --8<-- [start:padding]
def _without_padding(query, key, value, attention_mask, **options):
    """One sequence at a time, each cut to its own length; rows of padding are zero."""
    if attention_mask.shape != (len(query), query.shape[2]) or query.shape[2] != key.shape[2]:
        shape = tuple(attention_mask.shape)
        raise ValueError(f"attention_mask has shape {shape}; one entry a query is allowed")
    out = torch.zeros_like(query)
    for b, visible in enumerate(attention_mask.bool()):
        (positions,) = visible.nonzero(as_tuple=True)
        if len(positions) == 0:
            continue  # nothing but padding
        first, last = positions[0].item(), positions[-1].item()
        if last - first + 1 != len(positions):
            raise ValueError(f"attention_mask has a gap in row {b}; padding at the ends is allowed")
        rows = (slice(b, b + 1), slice(None), slice(first, last + 1))
        out[rows] = flash_attention(query[rows], key[rows], value[rows], **options)
    return out
    # --8<-- [end:padding]
