"""Attention over a ring of GPUs, for what one of them cannot hold. docs/posts/ring_attention.md"""
