"""Scores q kᵀ on Hopper in Gluon: TMA fills one buffer while a product reads the other."""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # by version


@gluon.jit
def _copy(desc, row, buffer, barrier):
    """Start a copy by TMA; the barrier's phase ends when all its bytes are there."""
    mbarrier.expect(barrier, desc.block_type.nbytes)
    _load(desc, [row, 0], barrier, buffer)


@gluon.jit
def scores_kernel(q_desc, k_desc, out_ptr, N, M: gl.constexpr, T: gl.constexpr):
    """Four warps: M queries, and all keys, T at a time."""
    q = gl.allocate_shared_memory(q_desc.dtype, q_desc.block_shape, q_desc.layout)
    k = gl.allocate_shared_memory(k_desc.dtype, [2] + k_desc.block_shape, k_desc.layout)  # noqa: RUF005
    barriers = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(3):
        mbarrier.init(barriers.index(i), count=1)
    first = gl.program_id(0) * M

    _copy(q_desc, first, q, barriers.index(2))
    _copy(k_desc, 0, k.index(0), barriers.index(0))
    mbarrier.wait(barriers.index(2), 0)

    # wgmma decides which thread holds which score.
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, T, 16])
    rows = first + gl.arange(0, M, gl.SliceLayout(1, layout))
    columns = gl.arange(0, T, gl.SliceLayout(0, layout))
    zeros = gl.zeros([M, T], gl.float32, layout)
    for tile in range(N // T):
        this, next_ = tile % 2, (tile + 1) % 2
        if (tile + 1) * T < N:  # the product that read this buffer is done
            _copy(k_desc, (tile + 1) * T, k.index(next_), barriers.index(next_))
        mbarrier.wait(barriers.index(this), tile // 2 & 1)  # a buffer's phases: 0, 1, 0, …
        s = warpgroup_mma(q, k.index(this).permute((1, 0)), zeros, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=[s])  # [M, T]
        gl.store(out_ptr + rows[:, None] * N + (tile * T + columns)[None, :], s)


def scores(q, k, M=64, T=128):  # [M, D], [N, D], float16, contiguous; whole tiles, D 64 or 128
    out = torch.empty(len(q), len(k), device=q.device)
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    q, k = (TensorDescriptor.from_tensor(x, [n, x.shape[1]], layout) for x, n in ((q, M), (k, T)))
    scores_kernel[(len(out) // M,)](q, k, out, out.shape[1], M=M, T=T)
    return out


if __name__ == "__main__":  # on an H100 or H200
    torch.manual_seed(0)
    q, k = torch.randn(2, 1024, 64, device="cuda").half()
    apart = (scores(q, k) - q.double() @ k.double().mT).abs().max()
    print(f"largest difference from float64: {apart:.1e}")
