"""hopper_step on a CPU, where op.py's kernel is played with numbers, and its mutants."""

import contextlib
from pathlib import Path

from snippets._lab.judge.mutants import mutate
from snippets._lab.judge.oracle import NumericalMismatch
from snippets._warps import launch

from . import op
from .checks import HUGE, assert_huge_steps, assert_steps

# Rings in which each mistake shows: tiles that are done in part, keys that end within a tile, many
# steps, so that what is carried is rounded often, and many tiles of queries with few keys each, so
# that the producer runs ahead of the consumers.
RINGS = [
    {"ranks": 2},
    {"ranks": 3, "L": 130, "H": 1, "causal": False},
    {"ranks": 8, "L": 32, "H": 1, "causal": False},
    {"ranks": 2, "L": 64, "H": 6, "causal": False},
]


def _source():
    """hopper_attention's kernel, whose loop the step takes, and then op.py."""
    files = op.HOPPER_KERNEL, op.__file__
    return "\n".join(Path(file).read_text(encoding="utf-8") for file in files)


@contextlib.contextmanager
def played(mutant=None, programs=3):
    """hopper_step and hopper_backward take tensors on a CPU, with which their kernels compute."""
    source = _source() if mutant is None else mutate(_source(), mutant)
    step = launch.played(
        op.hopper_step, source=source, programs=programs, _local=lambda q, k, v: op.HOPPER
    )
    with step, launch.played(op.hopper_backward):
        yield


def judge(mutant=None):
    """What the numbers say to a mutant of the step, or to the step as it is: "" if nothing."""
    with played(mutant, programs=1):  # tiles of queries follow each other in the same buffers
        try:
            for ring in RINGS:
                assert_steps(op.hopper_step, **ring)
            assert_huge_steps(op.hopper_step, 2, scale=HUGE[1])
        except NumericalMismatch as error:
            return str(error)
    return ""
