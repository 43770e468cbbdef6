"""Triton's interpreter with the fused multiply-add that a GPU compiles a * b - c to."""

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


@contextmanager
def multiply_add():
    """Within: a product that is added to or subtracted from something is not rounded before.

    A product of two float32 numbers is exact in float64. The kept product is that of the same
    handle: what is reshaped or stored in between is rounded, as a GPU may do it or not.
    """
    exact = {}  # id of a handle → the handle, which keeps its id alive, and its product unrounded

    def multiply(self, lhs, rhs):
        with np.errstate(all="ignore"):
            out = TensorHandle(lhs.data * rhs.data, lhs.dtype.scalar)
            if out.data.dtype == np.float32:
                exact[id(out)] = out, lhs.data.astype(np.float64) * rhs.data
        return out

    def fused(operation):
        def combine(self, lhs, rhs):
            a, b = (exact[id(x)][1] if id(x) in exact else x.data for x in (lhs, rhs))
            with np.errstate(all="ignore"):
                return TensorHandle(operation(a, b).astype(lhs.data.dtype), lhs.dtype.scalar)

        return combine

    with patch.multiple(
        InterpreterBuilder,
        create_fmul=multiply,
        create_fadd=fused(np.add),
        create_fsub=fused(np.subtract),
    ):
        yield
