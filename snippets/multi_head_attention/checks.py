"""When two layers agree: what the bench asks before it measures, and the tests."""

from snippets._lab.judge.oracle import NumericalMismatch


def assert_same(out, want, *, slack):
    """Raise NumericalMismatch unless out is want within `slack`, which says why it is enough."""
    if out.shape != want.shape or out.dtype != want.dtype:
        raise NumericalMismatch(f"result is {out.dtype} {tuple(out.shape)}")
    largest = (out - want).abs().max().item()
    if not largest <= slack:  # written so that NaN fails
        raise NumericalMismatch(
            f"largest difference {largest:.2e} from PyTorch in float64, allowed {slack:.2e} "
            f"at {tuple(out.shape)}"
        )
