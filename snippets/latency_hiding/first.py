"""A pointer chase: how long does one load take, and how long do many?"""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # no GPU: the kernel runs in Triton's interpreter

import triton
import triton.language as tl


@triton.jit
def walk_kernel(links_ptr, starts_ptr, out_ptr, steps):
    pid = tl.program_id(0)  # one walker a program
    at = tl.load(starts_ptr + pid)
    for _ in range(steps):
        at = tl.load(links_ptr + at)  # the value just loaded is the next address
    tl.store(out_ptr + pid, at)


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
elements, steps = (2**28, 1024) if device == "cuda" else (2**16, 16)

# One random cycle through every 128-byte line (32 elements): no prefetcher can guess the next.
order = torch.randperm(elements // 32, device=device) * 32
links = torch.zeros(elements, dtype=torch.int32, device=device)
links[order] = order.roll(-1).int()


def walk(walkers):
    starts = order[:walkers].int()
    out = torch.empty_like(starts)
    walk_kernel[(walkers,)](links, starts, out, steps, num_warps=1)
    return out


if device == "cuda":
    for walkers in 1, 132, 4224:
        ms = triton.testing.do_bench(lambda n=walkers: walk(n))
        print(f"{walkers} walkers: {ms / steps * 1e6:.0f} ns a step")

want = order[steps : steps + 132]  # `steps` links further along the cycle
print(f"largest difference from float64: {(walk(132) - want.double()).abs().max():.1e}")
