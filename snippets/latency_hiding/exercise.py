"""The exercise's answer: two walks at once in the same thread."""

import torch
import triton
import triton.language as tl

from .kernel import _refusals


@triton.jit
def _two_walks_kernel(links_ptr, starts_ptr, out_ptr, n, steps, BLOCK: tl.constexpr):
    """One program walks 2 · BLOCK walkers: two loads in flight where there was one."""
    offs = tl.program_id(0) * 2 * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    a = tl.load(starts_ptr + offs, mask=offs < n, other=0)
    b = tl.load(starts_ptr + offs + BLOCK, mask=offs + BLOCK < n, other=0)
    for _ in range(steps):
        a = tl.load(links_ptr + a)  # neither load waits for the other
        b = tl.load(links_ptr + b)
    tl.store(out_ptr + offs, a, mask=offs < n)
    tl.store(out_ptr + offs + BLOCK, b, mask=offs + BLOCK < n)


def latency_hiding(links, starts, *, steps, block=1, num_warps=1):
    """As the post's launcher, with twice as many walkers in a program of the same size."""
    tensors = {"links": links, "starts": starts}
    for error in _refusals(tensors, steps=steps, block=block, num_warps=num_warps):
        raise error
    out, walkers = torch.empty_like(starts), len(starts)
    run = _two_walks_kernel[(triton.cdiv(walkers, 2 * block),)]
    with torch.cuda.device_of(links):
        run(links, starts, out, walkers, steps, BLOCK=block, num_warps=num_warps)
    return out
