"""Peaks as they are counted, and when a formula is right: for the bench and for the tests."""

import torch

from snippets._lab.judge.oracle import NumericalMismatch

from .module import INSIDE, counted_peak, eager_attention, training_step


def assert_bytes(said, counted):
    """Raise NumericalMismatch unless a formula says what was counted, to the byte."""
    if said != counted:
        raise NumericalMismatch(
            f"difference {abs(said - counted):,} bytes from the {counted:,} counted, allowed 0"
        )


def counted_eager(B, H, N, D, dtype=torch.float32, *, causal=False, backward=False, inside=INSIDE):
    """The peak of eager attention as counted, q, k and v included; no memory is taken.

    With what operations on a GPU make inside themselves, or with what `inside` says.
    """
    options = {"causal": causal, "inside": inside}
    return _counted(eager_attention, (B, H, N, D), dtype, backward, **options)


def counted_fused(B, H, N, D, dtype=torch.float32, *, backward=False):
    """The same of the operation in which PyTorch fuses attention on a CPU."""
    return _counted(_fused, (B, H, N, D), dtype, backward)


def _counted(attention, shape, dtype, backward, **options):
    empty = {"device": "meta", "dtype": dtype, "requires_grad": backward}
    q, k, v = (torch.empty(*shape, **empty) for _ in range(3))
    held = 3 * q.numel() * q.element_size()
    run = (training_step, attention) if backward else (attention,)
    return held + counted_peak(*run, q, k, v, **options)


def _fused(q, k, v):
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[0]
