"""Gradients of attention without the M × N matrix. docs/posts/flash_backward.md"""

USES = ("flash_attention", "hopper_attention")  # op.py makes them differentiable
