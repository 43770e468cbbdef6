"""Sixty kernels with what is wrong with each: five that are right, others right too, mistakes.

A case is a kernel of `kernels/` with pieces of its code replaced. None of it is taken from the
models that a diagnosis compares with; the cases came after them, and name what was planted.
"""

from pathlib import Path
from typing import NamedTuple

KERNELS = Path(__file__).parent / "kernels"
STYLES = {
    "rows": "one query per program",
    "vectorized": "all keys in one load",
    "tiled": "running softmax",
    "flash": "tl.dot",
    "pytorch": "PyTorch only",
}


class Case(NamedTuple):
    """A kernel and the verdict that it should get."""

    kernel: str
    planted: str  # for a reader
    edits: tuple[tuple[str, str], ...] = ()
    names: tuple[str, ...] = ()  # mistakes that are there: all should be named, and no other
    memory: tuple[str, ...] = ()  # "reads outside k": should be seen
    says: str = ""  # what the answer should contain, where nothing has a name: a line, a reason


def right(kernel: str, what: str, *edits: tuple[str, str], says: str = "") -> Case:
    return Case(kernel, what, edits, says=says or "No mistake found")


def one(kernel: str, name: str, old: str, new: str) -> Case:
    return Case(kernel, name, ((old, new),), (name,))


def two(kernel: str, names: tuple[str, str], *edits: tuple[str, str]) -> Case:
    return Case(kernel, " + ".join(names), edits, names)


def access(kernel: str, memory: str, what: str, *edits: tuple[str, str], also: str = "") -> Case:
    return Case(kernel, what, edits, (also,) if also else (), (memory,))


def told(kernel: str, what: str, says: str, *edits: tuple[str, str]) -> Case:
    return Case(kernel, what, edits, says=says)


# Pieces that several cases replace.
MASKED = "tl.load(k_tile, mask=k_mask, other=0.0)"
EXP = "p = tl.exp(s - anchor[:, None])"
SLOTS = 's = tl.full((NP,), float("-inf"), tl.float32)'

CASES = [
    # Right: nothing may be found.
    *(right(kernel, style) for kernel, style in STYLES.items()),
    right(
        "rows",
        "positional arguments a, b, c",
        ("def attention(Q, K, V):", "def attention(a, b, c):\n    Q, K, V = a, b, c"),
    ),
    right(
        "rows",
        "result in a parameter",
        ("def attention(Q, K, V):", "def attention(Q, K, V, Out):"),
        (
            "Out = torch.empty((B, H, M, D), dtype=Q.dtype, device=Q.device)",
            "assert Out.shape == Q.shape",
        ),
        ("return Out", "return None"),
    ),
    right(
        "tiled",
        "copies made contiguous",
        (
            "out = torch.empty_like(q)",
            "q, k, v = (x.contiguous() for x in (q, k, v))\n    out = torch.empty_like(q)",
        ),
    ),
    right(
        "tiled",
        "no guard for grouped heads",
        (
            "if k.shape[1] != heads:",
            "if k.shape[1] > heads:",
        ),
        says="does not support grouped heads",
    ),
    right("flash", "other tiles", ("BLOCK_M, BLOCK_N = 64, 32", "BLOCK_M, BLOCK_N = 16, 128")),
    right(
        "pytorch",
        "softmax of the library",
        (
            "columns = k.shape[0]",
            "columns = k.shape[0]\n"
            "    if not causal and scale is None:\n"
            "        return (q.float() @ k.float().T * width**-0.5).softmax(1).to(q.dtype) @ v",
        ),
    ),
    # One mistake: rows.
    one("rows", "no scale", "dot * scale", "dot"),
    one("rows", "scale 1/D", "D**-0.5", "1 / D"),
    one("rows", "max not subtracted", "s = s - tl.max(s, 0)", "s = s * 1.0"),
    one("rows", "padding gets weight", SLOTS, "s = tl.zeros((NP,), tl.float32)"),
    one(
        "rows",
        "last value dropped",
        "for n in range(0, N):\n        v =",
        "for n in range(0, N - 1):\n        v =",
    ),
    one("rows", "V with K's strides", "*V.stride()", "*K.stride()"),
    one("rows", "wrong base", "e = tl.exp(s)", "e = tl.exp2(s)"),
    one("rows", "first batch for all", "Vh = V + b * svb + h * svh", "Vh = V + h * svh"),
    one("rows", "N for M", "grid = (M, B * H)", "grid = (min(M, N), B * H)"),
    one("rows", "V a row ahead", "tl.load(Vh + n * svn", "tl.load(Vh + (n + 1) * svn"),
    # One mistake: all keys at once.
    one("vectorized", "not normalized", "axis=0) / total", "axis=0)"),
    one(
        "vectorized",
        "scale ignored",
        "if softmax_scale is None:",
        "if softmax_scale is None or True:",
    ),
    one("vectorized", "keys for values", "v_at = value_ptr", "v_at = key_ptr"),
    one("vectorized", "strides ignored", "columns[None, :] * v_col", "columns[None, :]"),
    one("vectorized", "last key dropped", "real = keys < n_keys", "real = keys < n_keys - 1"),
    one("vectorized", "normalized twice", "axis=0) / total", "axis=0) / total / total"),
    # One mistake: tiles.
    one("tiled", "no rescale", "acc = acc * decay[:, None]", "acc = acc * 1.0"),
    one(
        "tiled",
        "sum not rescaled",
        "total * decay + tl.sum(p, axis=1)",
        "total + tl.sum(p, axis=1)",
    ),
    one("tiled", "maximum not updated", "biggest = higher", "biggest = biggest * 1.0"),
    one("tiled", "loop to N - 1", "range(0, N, BN)", "range(0, N - 1, BN)"),
    one("tiled", "M for N", "range(0, N, BN)", "range(0, M, BN)"),
    one("tiled", "always masked", "if CAUSAL:", "if True:"),
    one("tiled", "mask off by one", "rows[:, None] + (N - M)", "rows[:, None] + (N - M) + 1"),
    one("tiled", "top-left for bottom-right", "rows[:, None] + (N - M)", "rows[:, None]"),
    one("tiled", "sum over the queries", "tl.sum(p, axis=1)", "tl.sum(p, axis=0)"),
    one("tiled", "last queries not written", "triton.cdiv(M, BM)", "M // BM"),
    # One mistake: tl.dot.
    one("flash", "wrong K/V head", "off_kv = off_h // GROUP", "off_kv = off_h % (H // GROUP)"),
    one("flash", "wrong base", "qk_scale *= 1.44269504", "qk_scale *= 1.0"),
    one("flash", "K's pointer stands still", "k_ptrs += BLOCK_N * stride_kn", "k_ptrs += 0"),
    one(
        "flash",
        "values of the last tile only",
        'acc = tl.dot(p.to(v_tile.dtype), v_tile, acc, input_precision="ieee")',
        'acc = tl.dot(p.to(v_tile.dtype), v_tile, input_precision="ieee")',
    ),
    one("flash", "hidden row gives NaN", "tl.where(l_i == 0.0, 1.0, l_i)[:, None]", "l_i[:, None]"),
    one(
        "flash",
        "Q and K rounded to 16 bits",
        'tl.dot(q_tile, k_tile, input_precision="ieee")',
        'tl.dot(q_tile.to(tl.float16), k_tile.to(tl.float16), input_precision="ieee")',
    ),
    # One mistake: PyTorch.
    one("pytorch", "no mask", "if causal:", "if causal and rows < 0:"),
    one(
        "pytorch",
        "rescaled the wrong way",
        "alpha = torch.exp(m - base)",
        "alpha = torch.exp(base - m).nan_to_num(0.0, posinf=0.0)",
    ),
    one(
        "pytorch",
        "scores rounded to 16 bits",
        "p = torch.exp(scores - base)",
        "p = torch.exp(scores.half().float() - base)",
    ),
    # Accesses that leave a tensor.
    access(
        "tiled",
        "reads outside k",
        "no mask for rows of K",
        (MASKED, "tl.load(k_tile, mask=(dims < D)[None, :], other=0.0)"),
    ),
    access(
        "tiled",
        "writes outside o",
        "store without a mask for rows",
        (
            "o_mask = (rows < M)[:, None] & (dims < D)[None, :]",
            "o_mask = (rows >= 0)[:, None] & (dims < D)[None, :]",
        ),
    ),
    access(
        "flash",
        "reads outside q",
        "no mask for rows of Q",
        (
            "mask=m_ok[:, None] & d_ok[None, :], other=0.0)\n    k_ptrs",
            "mask=d_ok[None, :], other=0.0)\n    k_ptrs",
        ),
    ),
    access(
        "pytorch",
        "overwrites k",
        "K scaled in place",
        ("m = torch.full((rows, 1)", "k.mul_(scale)\n    m = torch.full((rows, 1)"),
        ("k[start:stop].float().T * scale", "k[start:stop].float().T"),
    ),
    # Not a number: no name, but where it begins.
    told(
        "tiled",
        "exp(new - old) in the first tile",
        "decay is inf",
        ("decay = tl.exp(biggest - anchor)", "decay = tl.exp(anchor - biggest)"),
    ),
    told(
        "pytorch",
        "-inf minus -inf",
        "alpha = torch.exp(m - m)",
        ("alpha = torch.exp(m - base)", "alpha = torch.exp(m - m)"),
    ),
    # Errors, with their line.
    told(
        "flash",
        "undefined name",
        "NameError: name 'offs_k' is not defined",
        ("offs_n[None, :] * stride_kn", "offs_k[None, :] * stride_kn"),
    ),
    told(
        "tiled",
        "no such function",
        "has no attribute 'expp'",
        (EXP, "p = tl.expp(s - anchor[:, None])"),
    ),
    # No model has it: it must not get a name.
    told(
        "rows",
        "a little of Q in the result",
        "none of the known mistakes",
        ("o.to(Out.dtype.element_ty)", "(o + 0.1 * q).to(Out.dtype.element_ty)"),
    ),
    # Two mistakes at once.
    two(
        "rows",
        ("no scale", "keys for values"),
        ("dot * scale", "dot"),
        ("Vh = V + b", "Vh = K + b"),
    ),
    two(
        "tiled",
        ("no scale", "no rescale"),
        ("1 / math.sqrt(D)", "1.0"),
        ("acc = acc * decay[:, None]", "acc = acc * 1.0"),
    ),
    two(
        "flash",
        ("mask off by one", "wrong base"),
        ("last = offs_m + N_CTX_K - N_CTX_Q", "last = offs_m + N_CTX_K - N_CTX_Q + 1"),
        ("qk_scale *= 1.44269504", "qk_scale *= 1.0"),
    ),
    two(
        "vectorized",
        ("last key dropped", "scale 1/D"),
        ("real = keys < n_keys", "real = keys < n_keys - 1"),
        ("1.0 / width**0.5", "1.0 / width"),
    ),
    two(
        "pytorch",
        ("top-left for bottom-right", "scale 1/D"),
        ("torch.arange(rows)[:, None] + columns - rows", "torch.arange(rows)[:, None]"),
        ("width**-0.5", "1 / width"),
    ),
]
