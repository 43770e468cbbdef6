"""Our forward and backward kernels, each pair as one function with gradients."""

from snippets.flash_backward.op import attention as flash
from snippets.hopper_backward.op import assert_gradients
from snippets.hopper_backward.op import attention as hopper

__all__ = ["WITH_GRADIENTS", "assert_gradients"]

WITH_GRADIENTS = {"flash_backward": flash, "hopper_backward": hopper}  # the last is for Hopper
