"""Kernels with what is wrong with each: three that are right, one right too, mistakes.

A case is the kernel of a post, or one of `kernels/`, with pieces of its code replaced. None of it
is taken from the models that a diagnosis compares with; the cases name what was planted.
"""

from pathlib import Path
from typing import NamedTuple

from snippets._lab.judge import patch
from snippets._lab.rooms import load, source_file

ROOMS = {"rows": "basic_attention", "tiled": "tiled_attention"}
FOLDER = Path(__file__).parent / "kernels"
GUARD = "INTERPRETED = triton.knobs.runtime.interpret"
STYLES = {"rows": "one query per program", "tiled": "running softmax", "flash": "tl.dot"}


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


def told(kernel: str, what: str, says: str, *edits: tuple[str, str]) -> Case:
    return Case(kernel, what, edits, says=says)


CASES = [
    # Right: nothing may be found.
    *(right(kernel, style) for kernel, style in STYLES.items()),
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
    one("flash", "K's pointer stands still", "k_ptrs += BLOCK_N * HEAD_DIM", "k_ptrs += 0"),
    one("flash", "hidden row gives NaN", "tl.where(l_i == 0.0, 1.0, l_i)[:, None]", "l_i[:, None]"),
    # Accesses that leave a tensor.
    Case(
        "tiled",
        "no mask for rows of K",
        (
            (
                "tl.load(k_tile, mask=mask_d[:, None] & mask_n[None, :]",
                "tl.load(k_tile, mask=mask_d[:, None]",
            ),
        ),
        memory=("reads outside k",),
    ),
    # Not a number: no name, but where it begins.
    told(
        "tiled",
        "exp(new - old) in the first tile",
        "alpha is inf",
        ("alpha = tl.exp(m_i - m_sub)", "alpha = tl.exp(m_sub - m_i)"),
    ),
    # Errors, with their line.
    told("tiled", "no such function", "has no attribute 'expp'", ("p = tl.exp(", "p = tl.expp(")),
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
