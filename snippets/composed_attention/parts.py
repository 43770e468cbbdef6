"""The three kernels on their own: a transpose, a matrix product and a softmax of rows."""

from .kernel import _refusals, _run_matmul, _run_softmax, _run_transpose


def transpose(x):
    """A contiguous copy of x [..., M, N] as [..., N, M]; at most two leading dimensions."""
    for error in _refusals({"x": x}, "MN", "MN"):
        raise error
    *leading, M, N = x.shape
    return into(x.new_empty(*leading, N, M), _run_transpose, x)


def matmul(a, b):
    """a [..., M, K] times b [..., K, N] → [..., M, N] in a's dtype, summed in float32."""
    for error in _refusals({"a": a, "b": b}, "MK KN", "MN"):
        raise error
    return into(a.new_empty(*a.shape[:-1], b.shape[-1]), _run_matmul, a, b)


def softmax(x):
    """softmax of each row of x [..., N], N at most 32,768, in float32, rounded to x's dtype.

    A row of -inf alone gives zeros.
    """
    for error in _refusals({"x": x}, "MN", "MN", row="N"):
        raise error
    return into(x.new_empty(x.shape), _run_softmax, x)


def into(out, run, *tensors):
    """What `run` computes of the tensors, in `out`: all of them seen as [B, H, rows, columns]."""
    run(*(x[(None,) * (4 - x.dim())] for x in (*tensors, out)))
    return out
