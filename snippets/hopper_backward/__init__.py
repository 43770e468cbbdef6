"""Gradients of attention on Hopper, where a warp adds up dQ. docs/posts/hopper_backward.md"""

USES = ("flash_backward", "hopper_attention")  # op.py joins it to a forward and judges gradients
