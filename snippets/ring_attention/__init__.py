"""Attention over a ring of GPUs, for what one of them cannot hold. docs/posts/ring_attention.md"""

USES = ("hopper_attention", "hopper_backward")  # op.py makes steps of a ring of them
