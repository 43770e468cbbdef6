"""Attention that gives the same bits in training, prefill and decoding. docs/posts/same_bits.md"""

USES = ("flash_attention", "decode_attention", "flash_backward", "language_model")
