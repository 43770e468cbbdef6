"""The experiments behind each "because": products and sums alone, and one change at a time."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["shift"])
def _rows_kernel(
    x_ptr, y_ptr, s_ptr, sum_ptr, ones_ptr,  # [M, K], [K, N], [M, N], [M], [M]
    M, shift,  # which row comes first in the first tile
    K: tl.constexpr, N: tl.constexpr,
    COMPUTED: tl.constexpr,  # x is not as it was loaded: a product then takes it from registers
    BLOCK_M: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_M rows of x y, and the sums of their weights in two ways."""
    row = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M) + shift) % M  # [BLOCK_M]
    offs_k, offs_n = tl.arange(0, K), tl.arange(0, N)
    x = tl.load(x_ptr + row[:, None] * K + offs_k[None, :])
    y = tl.load(y_ptr + offs_k[:, None] * N + offs_n[None, :])
    if COMPUTED:
        x = tl.exp2(x.to(tl.float32)).to(y.dtype)
    s = tl.dot(x, y, input_precision="ieee")
    p = tl.exp2(s * 0.01)
    ones = tl.dot(p.to(y.dtype), tl.full([N, 8], 1.0, y_ptr.dtype.element_ty))
    tl.store(s_ptr + row[:, None] * N + offs_n[None, :], s)
    tl.store(sum_ptr + row, tl.sum(p, axis=1))
    tl.store(ones_ptr + row, tl.max(ones, axis=1))


def rows(x, y, BLOCK_M, num_warps, *, shift=0, computed=False):
    """x y, and two sums of each row; the instruction that computed it, "" where none is known."""
    (M, K), N = x.shape, y.shape[1]
    s, one, two = (x.new_empty(shape, dtype=torch.float32) for shape in ((M, N), (M,), (M,)))
    kernel = _rows_kernel[(M // BLOCK_M,)](
        x, y, s, one, two, M, shift, K=K, N=N, COMPUTED=computed, BLOCK_M=BLOCK_M,
        num_warps=num_warps, enable_fp_fusion=False,
    )  # fmt: skip
    ptx = kernel.asm["ptx"] if kernel is not None else ""
    unit = "wgmma" if "wgmma.mma" in ptx else "mma.sync" if ptx else ""
    return {"product": s, "tl.sum": one, "ones": two}, unit


_FMA = (
    "tl.exp2(tl.fma(s, scale_log2, -m_sub[:, None]))",
    "tl.exp2(s * scale_log2 - m_sub[:, None])",
)
_FROM_THE_END = "tl.cdiv(seen, CHUNK) - 1 - j"
# What is changed → the pieces of kernel.py that it replaces.
CHANGES = {
    "nothing": [],
    "tiles of 128 keys": [("TILE = tl.constexpr(64)", "TILE = tl.constexpr(128)")],
    "chunks of 1,024 keys": [("CHUNK = tl.constexpr(512)", "CHUNK = tl.constexpr(1024)")],
    "the last chunk first": [
        ("row * chunks + j + one)", f"row * chunks + {_FROM_THE_END} + one)"),
        ("row) * chunks + j + ones)", f"row) * chunks + {_FROM_THE_END} + ones)"),
        ("(row * chunks + j) * D", f"(row * chunks + {_FROM_THE_END}) * D"),
    ],
    "multiply, round, subtract": [_FMA],
    "acc / l": [("acc * tl.div_rn(1.0, l_i)[:, None]", "acc / l_i[:, None]")],
    "row sums by tl.sum": [
        ("p = tl.exp2(tl.fma(s, scale_log2, -m_sub[:, None])).to(v_tile.dtype)",
         "p = tl.exp2(tl.fma(s, scale_log2, -m_sub[:, None]))"),
        ("l_i = tl.dot(p, tl.full([TILE, COLUMNS], 1.0, p.dtype), l_i * alpha[:, None], "
         'input_precision="ieee")',
         "l_i = tl.fma(l_i, alpha[:, None], tl.sum(p, axis=1)[:, None])"),
        ("acc = tl.dot(p, v_tile,", "acc = tl.dot(p.to(v_tile.dtype), v_tile,"),
    ],
    "fusing left to the compiler": [
        _FMA,
        ("l_i = tl.fma(l_i, old[:, None], l_j * new[:, None])",
         "l_i = l_i * old[:, None] + l_j * new[:, None]"),
        ("acc = tl.fma(acc, old[:, None], acc_j * new[:, None])",
         "acc = acc * old[:, None] + acc_j * new[:, None]"),
        ("num_stages=num_stages, enable_fp_fusion=False", "num_stages=num_stages"),
    ],
}  # fmt: skip


def difference(found, want):
    """How often two results differ, and how far at most."""
    apart = (found.double() - want.double()).abs()
    differing = found != want
    return {
        "numbers": found.numel(),
        "differ": int(differing.sum()),
        "largest": float(f"{apart.max().item():.3g}"),
    }
