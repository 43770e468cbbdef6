"""When a copy and a sum are right: what the bench asks before it measures, and the tests."""

import math

import torch

from snippets._lab.judge.oracle import NumericalMismatch

from .kernel import BLOCK


def assert_copied(out, want):
    """Raise NumericalMismatch unless `out` equals `want`: a copy rounds nothing."""
    if out.shape != want.shape or out.dtype != want.dtype:
        is_, should = (f"{x.dtype} {tuple(x.shape)}" for x in (out, want))
        raise NumericalMismatch(f"result is {is_}, not {should}")
    different = (out != want).nonzero()  # NaN differs from everything, itself included
    if len(different):
        first = different[0].tolist()
        raise NumericalMismatch(
            f"{len(different)} of {want.numel()} elements differ, first {first}"
        )


def assert_sums(out, x, *, dim, block=BLOCK):
    """Raise NumericalMismatch unless `out` holds the sums of x along `dim` within rounding.

    Allowed is twice the error of PyTorch's own sums in the same dtype, one unit in the last
    place for storing, and what adding in float32 must cost: each addition rounds by half an
    eps of what is summed so far, at most Σ|x|, and the longest chain of additions has one for
    each iteration of the loop and one for each halving of the block.
    """
    want = x.double().sum(dim)
    if out.shape != want.shape or out.dtype != x.dtype:
        should = f"{x.dtype} {tuple(want.shape)}"
        raise NumericalMismatch(f"result is {out.dtype} {tuple(out.shape)}, not {should}")
    chain = math.ceil(x.shape[dim] / block) + math.log2(block)
    adding = chain * torch.finfo(torch.float32).eps / 2 * x.double().abs().sum(dim)
    pytorch = (x.sum(dim).double() - want).abs()
    allowed = 2 * pytorch + torch.finfo(x.dtype).eps * want.abs() + adding
    error = (out.double() - want).abs()
    share = (error / allowed.clamp(min=1e-300)).max().item()
    if not share <= 1:  # written so that NaN fails
        raise NumericalMismatch(
            f"largest difference {error.max():.2e} from float64, {share:.1e} times what is "
            f"allowed, at x {tuple(x.shape)}, dim {dim}, {x.dtype}"
        )
