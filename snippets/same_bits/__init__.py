"""Attention that gives the same bits in training, prefill and decoding. docs/posts/same_bits.md"""

USES = ("flash_attention", "flash_backward", "decode_attention", "language_model", "ring_attention")
