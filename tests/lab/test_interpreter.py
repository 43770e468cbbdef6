"""The interpreter replaces the language once a launch, and the kernel computes what it did."""

import numpy
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="needs the interpreter")


@triton.jit
def _half_sum(x):
    return tl.sum(x, axis=0) * 0.5


@triton.jit
def _sums_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    total = 0.0
    for i in range(4):
        total += _half_sum(tl.load(x_ptr + i * BLOCK + tl.arange(0, BLOCK)))
    tl.store(out_ptr + tl.program_id(0), total)


@triton.jit
def _masked_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = (offs < n) & (n > 2)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs, mask=mask, other=0.0) + 1.0, mask=mask)


def sums(x):
    out = torch.empty(3)
    _sums_kernel[(3,)](x, out, BLOCK=8)
    return out


def test_what_a_kernel_computes_stays():
    x = torch.randn(32)
    torch.testing.assert_close(sums(x), x.sum().expand(3) / 2)


def test_a_tile_of_a_comparison_of_numbers_is_a_mask(monkeypatch):
    masks = []
    store = interpreter.InterpreterBuilder.create_masked_store
    monkeypatch.setattr(
        interpreter.InterpreterBuilder,
        "create_masked_store",
        lambda self, ptr, value, mask, *rest: (
            masks.append(mask) or store(self, ptr, value, mask, *rest)
        ),
    )
    x = torch.zeros(4)
    for n in (2, 3):
        _masked_kernel[(1,)](x, n, BLOCK=4)
    assert x.tolist() == [1.0, 1.0, 1.0, 0.0]
    assert [mask.data.dtype for mask in masks] == [numpy.bool_] * 2
