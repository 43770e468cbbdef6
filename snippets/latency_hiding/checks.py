"""When these kernels are right: what the bench asks before it measures, and the tests."""

import torch

from snippets._lab.judge.oracle import NumericalMismatch


def assert_walked(out, links, starts, steps):
    """Raise NumericalMismatch unless each walker ends where following its links leads."""
    want = starts
    for _ in range(steps):
        want = links[want.long()]
    if out.shape != want.shape or out.dtype != want.dtype:
        raise NumericalMismatch(f"result is {out.dtype} {tuple(out.shape)}")
    different = (out != want).nonzero()
    if len(different):
        first = different[0].item()
        raise NumericalMismatch(
            f"{len(different)} of {len(want)} walkers end elsewhere, first walker {first}: "
            f"{out[first]}, not {want[first]}"
        )


def assert_worked(out, x, steps):
    """Raise NumericalMismatch unless out is x after `steps` times y ← y / 2 + x, from y = x.

    In exact arithmetic that is x · (2 - 2^-steps). Each step rounds once, by at most half an eps
    of what has at most twice x's size, and halves the error made before: 2 eps in all.
    """
    want = x.double() * (2 - 0.5**steps)
    allowed = 2 * torch.finfo(x.dtype).eps * x.double().abs()
    _assert_close(out, want, allowed)


def assert_held(ends, sums, links, starts, x, steps, work):
    """Raise NumericalMismatch unless walkers end right and x was summed, plus y after its steps."""
    assert_walked(ends, links, starts, 0 if work else steps)
    y = x[:work].double() * 0.5**steps + 2 * (1 - 0.5**steps)  # y ← y / 2 + 1, `steps` times
    want = (x.double().sum() + y.sum()).expand(len(starts))
    # Adding n numbers in float32 rounds by half an eps of at most their sizes, a halving at a time.
    depth = len(x).bit_length() + 32  # a thread adds up to 32 or more in a row, then trees
    sizes = x.double().abs().sum() + y.abs().sum()
    _assert_close(sums, want, depth * torch.finfo(x.dtype).eps * sizes)


def _assert_close(out, want, allowed):
    if out.shape != want.shape or out.dtype != torch.float32:
        raise NumericalMismatch(f"result is {out.dtype} {tuple(out.shape)}")
    error = (out.double() - want).abs()
    share = (error / torch.as_tensor(allowed).clamp(min=1e-300)).max().item()
    if not share <= 1:  # written so that NaN fails
        raise NumericalMismatch(
            f"largest difference {error.max():.2e} from float64, {share:.1e} times what is allowed"
        )
