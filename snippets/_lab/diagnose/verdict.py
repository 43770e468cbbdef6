"""What is told of a launcher: a Diagnosis, and its words for a reader."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a launcher, as far as its outputs and its memory accesses say."""

    right: bool
    names: tuple[str, ...] = ()  # of mistakes.MISTAKES
    sentences: tuple[str, ...] = ()  # of the names
    memory: tuple[str, ...] = ()  # "reads outside of k": kind and tensor
    lines: tuple[str, ...] = ()  # the same, with the line, as sentences
    error: str = ""  # an exception that is no refusal, with its line
    origin: str = ""  # where the first NaN comes from
    refused: tuple[str, ...] = ()  # kernels that Triton does not compile: the line, its words
    probe: str = ""  # the first input with a wrong output
    shapes: str = ""  # of its tensors
    largest: float = 0.0  # there: distance from float64, and what is allowed
    allowed: float = 0.0
    probes: int = 0  # how many inputs the launcher took
    left_out: tuple[str, ...] = ()  # inputs that it refused, or failed on, and why
    unsupported: tuple[str, ...] = ()  # inputs that it never promised to take, and gets wrong
    notes: tuple[str, ...] = ()  # what was asked, and what could not be
    form: Mapping[str, Any] | None = None  # fields of forms.Form, in which it was asked
    launched: bool = False  # whether Triton's interpreter ran a kernel
    cannot: str = ""  # why there is no diagnosis

    def text(self) -> str:
        """For a reader: what is wrong first, then where, then what was not asked."""
        return "\n".join((*self._verdict(), *self._rest()))

    def _verdict(self) -> tuple[str, ...]:
        if self.right:
            return (f"No mistake found: within rounding of float64 on {self.probes} inputs.",)
        first = [f"Triton does not compile it. {said}" for said in self.refused]
        if self.error:
            first.append(f"It fails: {self.error}")
        if self.sentences:
            several = "These inputs cannot tell apart: " * (len(self.sentences) > 1)
            first.append(several + " Or: ".join(self.sentences))
        first += self.lines
        if self.origin:
            first.append(self.origin)
        if first and self.probes and not (self.error or self.probe):
            first.append("Its interpreter runs it all the same, and the results are right.")
        if not first:
            first.append(
                "Wrong, but by none of the known mistakes: more than one mistake, or one that has "
                "no name here."
            )
        return (*first, *self._size())

    def _size(self) -> tuple[str, ...]:
        if not self.probe:
            return ()
        if self.largest <= self.allowed:
            return ("The results are right all the same: what lies there is not used, here.",)
        size = (
            f"{self.largest:.2g} from float64; allowed {self.allowed:.2g}"
            if self.largest == self.largest
            else "NaN"
        )
        return (f'On the input "{self.probe}", {self.shapes}, the result is {size}.',)

    def _rest(self) -> tuple[str, ...]:
        does_not = f"It does not support {', '.join(self.unsupported)}." if self.unsupported else ""
        left = f"It does not take: {'; '.join(self.left_out)}." if self.left_out else ""
        return tuple(filter(None, (does_not, left, *self.notes)))
