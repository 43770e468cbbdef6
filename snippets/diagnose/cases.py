"""Kernels with what is wrong with each: four that are right, others right too, mistakes.

A case is the kernel of a post, or one of `kernels/`, with pieces of its code replaced. None of it
is taken from the models that a diagnosis compares with; the cases name what was planted.
"""

from pathlib import Path
from typing import NamedTuple

from snippets._lab.judge import patch
from snippets._lab.rooms import load, source_file

ROOMS = {
    "rows": "basic_attention",
    "vectorized": "vectorized_attention",
    "tiled": "tiled_attention",
}
FOLDER = Path(__file__).parent / "kernels"
GUARD = "INTERPRETED = triton.knobs.runtime.interpret"
STYLES = {
    "rows": "one query per program",
    "vectorized": "all keys in one load",
    "tiled": "running softmax",
    "flash": "tl.dot",
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


def right_kernel(style: str) -> str:
    """The text of a right kernel.

    A post's launcher refuses tensors on a CPU outside of the interpreter; here it takes them, so
    that Triton's front end sees what it launches.
    """
    if style not in ROOMS:
        return (FOLDER / f"{style}.py").read_text(encoding="utf-8")
    source = source_file(ROOMS[style]).read_text(encoding="utf-8")
    return patch.replace(source, GUARD, "INTERPRETED = True")


def of_room(kernel: str, name: str, mutant: str = "") -> Case:
    """A wrong variant of the room's own, whose name may differ from the mistake's."""
    return Case(kernel, name, (edit(kernel, mutant or name),), (name,))


def edit(kernel: str, mutant: str) -> tuple[str, str]:
    """What a wrong variant of a room replaces, and by what."""
    (found,) = (m for m in load(ROOMS[kernel], "mutants").MUTANTS if m.name == mutant)
    return found.old, found.new


def two(kernel: str, names: tuple[str, str], *edits: tuple[str, str]) -> Case:
    return Case(kernel, " + ".join(names), edits, names)


def access(kernel: str, memory: str, what: str, *edits: tuple[str, str], also: str = "") -> Case:
    return Case(kernel, what, edits, (also,) if also else (), (memory,))


def told(kernel: str, what: str, says: str, *edits: tuple[str, str]) -> Case:
    return Case(kernel, what, edits, says=says)


OUT = "out = torch.empty(q.shape, dtype=q.dtype, device=q.device)"

CASES = [
    # Right: nothing may be found.
    *(right(kernel, style) for kernel, style in STYLES.items()),
    right(
        "rows",
        "positional arguments a, b, c",
        (
            "def basic_attention(q, k, v, *, scale=None):",
            "def basic_attention(a, b, c, *, scale=None):\n    q, k, v = a, b, c",
        ),
    ),
    right(
        "rows",
        "result in a parameter",
        ("def basic_attention(q, k, v, *,", "def basic_attention(q, k, v, out, *,"),
        (OUT, "assert out.shape == q.shape"),
        ("    return out\n", "    return None\n"),
    ),
    right(
        "tiled",
        "copies made contiguous",
        (OUT, f"q, k, v = (x.contiguous() for x in (q, k, v))\n    {OUT}"),
    ),
    right(
        "tiled",
        "no guard for grouped heads",
        (
            "if x.shape != (*heads, N, D):",
            "if x.shape[-1] != D:",
        ),
        says="does not support grouped heads",
    ),
    right("flash", "other tiles", ("BLOCK_M, BLOCK_N = 64, 32", "BLOCK_M, BLOCK_N = 16, 128")),
    # One mistake: rows.
    of_room("rows", "no scale"),
    of_room("rows", "scale 1/D"),
    of_room("rows", "max not subtracted"),
    of_room("rows", "padding gets weight"),
    of_room("rows", "last value dropped"),
    one(
        "rows",
        "V with K's strides",
        "for x in tensors for step",
        "for x in (*tensors[:2], tensors[1], tensors[3]) for step",
    ),
    of_room("rows", "wrong base"),
    of_room("rows", "first batch for all"),
    one("rows", "N for M", "element_ty), mask=mask_d)", "element_ty), mask=mask_d & (m < N))"),
    one("rows", "V a row ahead", "tl.load(v_row", "tl.load(v_row + stride_vn"),
    # One mistake: all keys at once.
    of_room("vectorized", "not normalized"),
    of_room("vectorized", "keys for values"),
    of_room("vectorized", "strides ignored"),
    of_room("vectorized", "last key dropped"),
    # One mistake: tiles.
    of_room("tiled", "no rescale", "acc not rescaled"),
    of_room("tiled", "sum not rescaled"),
    of_room("tiled", "maximum not updated", "max not updated"),
    one("tiled", "loop to N - 1", "range(0, stop, BLOCK_N)", "range(0, stop - 1, BLOCK_N)"),
    one("tiled", "M for N", "range(0, stop, BLOCK_N)", "range(0, stop - N + M, BLOCK_N)"),
    of_room("tiled", "mask off by one"),
    of_room("tiled", "top-left for bottom-right", "other corner"),
    # One mistake: tl.dot.
    one("flash", "wrong K/V head", "off_kv = off_h // GROUP", "off_kv = off_h % (H // GROUP)"),
    one("flash", "wrong base", "qk_scale *= 1.44269504", "qk_scale *= 1.0"),
    one("flash", "K's pointer stands still", "k_ptrs += BLOCK_N * stride_kn", "k_ptrs += 0"),
    one("flash", "hidden row gives NaN", "tl.where(l_i == 0.0, 1.0, l_i)[:, None]", "l_i[:, None]"),
    # Accesses that leave a tensor.
    access(
        "tiled",
        "reads outside k",
        "no mask for rows of K",
        (
            "tl.load(k_tile, mask=mask_d[:, None] & mask_n[None, :]",
            "tl.load(k_tile, mask=mask_d[:, None]",
        ),
    ),
    access(
        "tiled",
        "writes outside out",
        "store without a mask for rows",
        ("mask = mask_m[:, None] & mask_d[None, :]", "mask = mask_d[None, :]"),
    ),
    # Not a number: no name, but where it begins.
    told(
        "tiled",
        "exp(new - old) in the first tile",
        "alpha is inf",
        ("alpha = tl.exp(m_i - m_sub)", "alpha = tl.exp(m_sub - m_i)"),
    ),
    # Errors, with their line.
    told(
        "flash",
        "undefined name",
        "is not defined",
        ("offs_n[None, :] * stride_kn", "offs_k[None, :] * stride_kn"),
    ),
    told(
        "tiled",
        "no such function",
        "has no attribute 'expp'",
        ("p = tl.exp(", "p = tl.expp("),
    ),
    # No model has it: it must not get a name.
    told(
        "rows",
        "a little of Q in the result",
        "none of the known mistakes",
        ("acc.to(out_ptr.dtype.element_ty)", "(acc + 0.1 * q).to(out_ptr.dtype.element_ty)"),
    ),
    # Two mistakes at once.
    two(
        "tiled",
        ("no scale", "no rescale"),
        edit("tiled", "no scale"),
        edit("tiled", "acc not rescaled"),
    ),
    two(
        "flash",
        ("mask off by one", "wrong base"),
        ("last = offs_m + N_CTX_K - N_CTX_Q", "last = offs_m + N_CTX_K - N_CTX_Q + 1"),
        ("qk_scale *= 1.44269504", "qk_scale *= 1.0"),
    ),
]
