"""Attention over a ring of GPUs, for what one of them cannot hold. docs/posts/ring_attention.md"""

USES = ("hopper_attention",)  # op.py gives its loop what earlier steps of the ring have left
