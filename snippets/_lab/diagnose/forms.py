"""What a launcher takes: the order of its tensors' axes, their dtype, and what it refuses."""

import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from snippets._lab.judge.launcher import Launcher
from snippets._lab.judge.models import Probe

# Axes of q, k and v: b batch, h heads, m rows, d columns. The first that fits is taken.
LAYOUTS = {
    "v": ("bhmd", "bmhd", "hmd", "mhd", "md"),
    "k": ("bhmd", "hmd", "md"),  # a launcher of weights
}
AXES = {"b": "B", "h": "H", "m": "N", "d": "D"}
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
    always: str = ""  # the corner of the causal mask, if there is no call without one

    @property
    def leading(self) -> int:
        return len(self.layout) - 2

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
        if self.layout not in USUAL:
            said.append(f"tensors [{', '.join(map(AXES.__getitem__, self.layout))}]")
        if self.dtype != "float32":
            said.append(self.dtype)
        if self.one:
            said.append("one query")
        if self.square:
            said.append("as many queries as keys")
        if self.rows > 1:
            said.append(f"lengths that are multiples of {self.rows}")
        if self.width:
            said.append(f"D = {self.width}")
        return f"Judged on what it takes: {'; '.join(said)}." if said else ""

    # Tensors.

    def laid(self, p: Probe) -> Probe:
        """The same numbers; what is contiguous is so in this layout."""
        if self.layout in USUAL:
            return p
        alike = {n: x for n in "qkv" if (x := getattr(p, n)).is_contiguous()}
        return replace(p, **{n: self.back(self.arranged(x).contiguous()) for n, x in alike.items()})

    def arranged(self, x: Tensor) -> Tensor:
        """[B, H, M, D] in the order of this layout."""
        there = [a for a in "bhmd" if a in self.layout]
        for _ in range(4 - len(there)):
            x = x[0]
        return x.permute([there.index(a) for a in self.layout])

    def back(self, x: Tensor) -> Tensor:
        """What has this layout, as [B, H, M, D]."""
        x = x.permute([self.layout.index(a) for a in "bhmd" if a in self.layout])
        return x[(None,) * (4 - x.dim())]

    def given(self, p: Probe, launcher: Launcher, device: str) -> dict[str, Tensor]:
        """What the launcher takes: role → tensor, with the strides that it has."""
        found = {}
        for role in launcher.tensors:
            x = self.arranged(getattr(p, role))
            there = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)
            found[role] = there.copy_(x)
        return found


def forms(launcher: Launcher) -> Iterator[list[Form]]:
    """All that may be tried: first with any sizes, then with some that are often asked for."""
    kind = launcher.tensors[-1]
    usual = [
        Form(layout, dtype)
        for layout, dtype in itertools.product(LAYOUTS[kind], ("float32", "float16"))
    ]
    even = [replace(f, square=True) for f in usual]  # or another layout may only seem to fit
    yield [*usual, *even]
    fits = itertools.product(
        (False, True), (1, 16, 32, 64, 128), (None, 64, 32, 128, 16), (False, True)
    )
    usual_fit = (False, 1, None, False)
    for fit in sorted(fits, key=lambda fit: sum(map(operator.ne, fit, usual_fit))):  # fewest first
        one, rows, width, square = fit
        if one and square:
            continue
        yield [replace(f, square=square, rows=rows, width=width, one=one) for f in usual]
