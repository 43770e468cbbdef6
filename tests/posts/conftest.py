"""What tests of posts share: the compiler, which takes a second to start."""

import pytest


@pytest.fixture(scope="module")
def compiler(request):
    """Compiles for GPUs that need not be there, each kernel in 20 s or as its file allows."""
    from snippets._lab.probe.compiled import Compiler  # where there is torch

    with Compiler(getattr(request.module, "COMPILER_SECONDS", 20)) as compiler:
        yield compiler


@pytest.fixture(scope="module")
def compiled(compiler):
    """What each kernel of a call needs on an H100, and its machine code."""
    return lambda launcher, *args, **options: compiler.resources(
        launcher, args, options, target="sm_90"
    )
