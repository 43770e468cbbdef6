"""What a launcher takes: the order of its tensors' axes, their dtype, and what it refuses."""

import itertools
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from snippets._lab.judge.launcher import Launcher
from snippets._lab.judge.models import Probe

# Axes of q, k and v: b batch, h heads, m rows, d columns; "c" is h and d as one, "f" with what is
# packed too; * is where that stands. The first that fits is taken.
LAYOUTS = {
    "v": ("bhmd", "bmhd", "hmd", "mhd", "md"),
    "k": ("bhmd", "hmd", "md"),  # a launcher of weights
    "qkv": ("bm*hd", "*bhmd", "b*hmd", "bhm*d", "m*hd", "*hmd", "h*md", "*md", "m*d"),
    "kv": ("bm*hd", "*bhmd", "b*hmd", "bhm*d"),
}
FLAT = {
    "v": ("bmc",),
    "qkv": ("bm*c", "bm*f"),
    "kv": ("bm*c", "bm*f"),
    "k": (),
}  # asks for the number of heads
HEADS = re.compile("h|hq|.*heads?")
AXES = {"b": "B", "h": "H", "m": "N", "d": "D", "c": "H · D", "f": "3 · H · D"}
USUAL = ("bhmd", "hmd", "md")


@dataclass(frozen=True)
class Form:
    """How a launcher is to be called, and with which sizes."""

    layout: str
    dtype: str
    square: bool = False  # as many queries as keys
    rows: int = 1  # their number is a multiple
    width: int | None = None  # the only D
    one: bool = False  # a single query
    bare: bool = False  # which has no axis of its own: q [B, H, D]
    alone: bool = False  # a single batch
    always: str = ""  # the corner of the causal mask, if there is no call without one

    @property
    def axes(self) -> str:
        return re.sub("[cf]", "hd", self.layout.replace("*", ""))

    @property
    def leading(self) -> int:
        return len(self.axes) - 2

    @property
    def packed(self) -> bool:
        return "*" in self.layout

    @property
    def uneven(self) -> bool:
        """Whether it is not yet clear that it takes more keys than queries."""
        return self.rows > 1 and not self.square and not self.one

    def sizes(self, M: int, N: int, D: int) -> tuple[int, int, int]:
        """The nearest that it takes."""
        M, N = (-(-x // self.rows) * self.rows for x in (M, N))
        M, N = (max(M, N),) * 2 if self.square else (1 if self.one else M, N)
        return M, N, self.width or D

    def text(self) -> str:
        """What a reader is told of it; empty for the usual."""
        said = []
        if self.axes not in USUAL or self.packed or "c" in self.layout:
            axes = [AXES[a] for a in self.layout if a != "*"]
            packed = f", packed along axis {self.layout.index('*')}" if self.packed else ""
            said.append(f"tensors [{', '.join(axes)}]{packed}")
        if self.dtype != "float32":
            said.append(self.dtype)
        if self.one:
            said.append("one query" + " without an axis" * self.bare)
        if self.alone:
            said.append("a batch of one")
        if self.square and not self.packed:
            said.append("as many queries as keys")
        if self.rows > 1:
            said.append(f"lengths that are multiples of {self.rows}")
        if self.width:
            said.append(f"D = {self.width}")
        return f"Judged on what it takes: {'; '.join(said)}." if said else ""

    # Tensors.

    def laid(self, p: Probe) -> Probe:
        """The same numbers; what is contiguous is so in this layout."""
        if self.axes in USUAL and not self.packed:
            return p
        x = {n: getattr(p, n) for n in "qkv"}
        return replace(
            p,
            **{
                n: self.back(self.arranged(t).contiguous(), t)
                if t.is_contiguous() or self.packed or "c" in self.layout
                else t
                for n, t in x.items()
            },
        )

    def arranged(self, x: Tensor) -> Tensor:
        """[B, H, M, D] in the order of this layout, heads apart."""
        there = [a for a in "bhmd" if a in self.axes]
        for _ in range(4 - len(there)):
            x = x[0]
        return x.permute([there.index(a) for a in self.axes])

    def shaped(self, x: Tensor) -> Tensor:
        """The same as the launcher takes it."""
        x = self.arranged(x)
        x = x.flatten(-2) if {*"cf"} & {*self.layout} else x
        return x.squeeze(self.axes.index("m")) if self.bare else x

    def back(self, x: Tensor, like: Tensor) -> Tensor:
        """What has this layout, as [B, H, M, D], the shape of `like`."""
        x = x.reshape(self.arranged(like).shape)  # of heads and columns as one, or without rows
        x = x.permute([self.axes.index(a) for a in "bhmd" if a in self.axes])
        return x[(None,) * (4 - x.dim())]

    def given(self, p: Probe, launcher: Launcher, device: str) -> dict[str, Tensor]:
        """What the launcher takes: role → tensor, with the strides that it has."""
        found = {}
        for role in launcher.tensors:
            if len(role) > 1:
                x = torch.stack(
                    [self.arranged(getattr(p, n)) for n in role], self.layout.index("*")
                )
                x = x.flatten({"c": -2, "f": -3}.get(self.layout[-1], -1))
            elif role == "q":
                x = self.shaped(p.q)
            else:
                x = replace(self, bare=False).shaped(getattr(p, role))
            there = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)
            found[role] = there.copy_(x)
        return found


def forms(launcher: Launcher) -> Iterator[list[Form]]:
    """All that may be tried: first with any sizes, then with some that are often asked for."""
    kind = launcher.tensors[-1]
    asks = any(HEADS.fullmatch(name.lower()) for name in launcher.others)
    layouts = FLAT[kind] + LAYOUTS[kind] if asks else LAYOUTS[kind]
    packed = kind == "qkv"
    usual = [
        Form(layout, dtype, square=packed)
        for layout, dtype in itertools.product(layouts, ("float32", "float16"))
    ]
    bare = Form("bhmd", "float32", one=True, bare=True)
    even = [replace(f, square=True) for f in usual]  # or another layout may only seem to fit
    single = [bare, replace(bare, dtype="float16")] if kind == "v" else []
    yield usual if packed else [*usual, *even, *single]
    fits = itertools.product(
        (False, True), (False, True), (1, 16, 32, 64, 128), (None, 64, 32, 128, 16), (False, True)
    )
    usual_fit = (False, False, 1, None, packed)
    for fit in sorted(fits, key=lambda fit: sum(map(operator.ne, fit, usual_fit))):  # fewest first
        alone, one, rows, width, square = fit
        if (one and square) or (packed and not square):
            continue
        yield [
            replace(f, square=square, rows=rows, width=width, one=one, alone=alone) for f in usual
        ]
