"""Names the mistake in a wrong attention kernel from its output alone.

The launcher runs on a handful of probing inputs. Where its output is not attention within
rounding, it is compared with the plain PyTorch models of `mistakes`: the mistake whose model gives
this output on every probe is the diagnosis. Two that do are both named; none is said to be none.

A reader's file is untrusted: `diagnose` runs it in a process of its own, under a time limit.
"""

import contextlib
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from snippets._lab.child import Child, Ended, TooSlow
from snippets._lab.judge.mistakes import MISTAKES, Model, Probe, attend, visible
from snippets._lab.judge.oracle import deviation, make_qkv
from snippets._lab.rooms import load_file

Launcher = Callable[..., Any]
SECONDS = 60.0  # for a reader's file, importing torch included
# Of float32, in units of the largest number: scores of 120 carry an error of 4·eps·120 = 6e-5.
CLOSE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
# A model of rounding explains an output if it takes away this much of its error.
EXPLAINED = 0.7
SCALE = ("scale", "sm_scale", "softmax_scale")
CAUSAL = ("causal", "is_causal")


class CannotDiagnose(ValueError):
    """The file or the launcher cannot be diagnosed; one sentence that says why."""


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a launcher, as far as its outputs say."""

    right: bool
    names: tuple[str, ...] = ()  # of MISTAKES; several fit, or none does
    probe: str = ""  # the first input with a wrong output
    largest: float = 0.0  # there: distance from float64, and what is allowed
    allowed: float = 0.0
    probes: int = 0  # how many inputs the launcher took
    left_out: tuple[str, ...] = ()  # inputs that it refused, or failed on

    def text(self) -> str:
        """For a reader, in sentences."""
        left = f" It does not take: {'; '.join(self.left_out)}." if self.left_out else ""
        if self.right:
            return f"No mistake found: within rounding of float64 on {self.probes} inputs.{left}"
        size = f"{self.largest:.2g} from float64; allowed {self.allowed:.2g}"
        where = f'On the input "{self.probe}" it is {size}'
        sentences = [MISTAKES[name].sentence for name in self.names]
        if not sentences:
            said = "Wrong, but by none of the known mistakes."
        elif len(sentences) == 1:
            said = sentences[0]
        else:
            said = "These inputs cannot tell apart: " + " Or: ".join(sentences)
        return f"{said} {where}.{left}"


def probes(leading: bool, dtype: torch.dtype, device: str) -> Iterator[Probe]:
    """Inputs that tell the mistakes apart; without `leading`, of one head only."""
    B, H = (2, 2) if leading else (1, 1)

    def make(
        name: str, M: int, N: int, D: int = 16, heads: tuple[int, int] = (1, 1), **rest: Any
    ) -> Probe:
        q, k, v = make_qkv(*heads, M=M, N=N, D=D, seed=M + N + D, spread=1.5)
        return Probe(name, *(x.to(dtype) for x in (q, k, v)), **rest)

    yield make("plain", 3, 9, 32, (B, H))
    long = make("many keys", 1, 300)
    order = (long.q @ long.k.mT)[0, 0, 0].argsort()  # rising scores: every tile moves the maximum
    yield Probe(long.name, long.q, long.k[:, :, order].contiguous(), long.v)
    yield make("many queries", 70, 3)
    q, k, v = (x.transpose(-1, -2).contiguous() for x in _tensors(make("", 3, 5)))
    yield Probe("transposed tensors", q.mT, k.mT, v.mT)
    if leading:
        q, k, v = (x.transpose(1, 2).contiguous() for x in _tensors(make("", 2, 5, 16, (2, 3))))
        yield Probe("heads side by side", *(x.transpose(1, 2) for x in (q, k, v)))
    yield make("head dimension 40", 2, 7, 40)
    if dtype == torch.float16:  # asked last: other tiles than above, and a model knows one tile
        wide = make("wide heads, low scores", 1, 150, 128)  # a slot of zeros has the highest score
        yield Probe(wide.name, wide.q.abs(), -wide.k.abs(), wide.v)
    large = make("scores of 120", 3, 17, 32)
    top = (large.q.float() @ large.k.float().mT).amax(-1, keepdim=True) / 32**0.5
    yield Probe(large.name, (large.q.float() * 120 / top).to(dtype), large.k, large.v)
    yield make("a scale of 0.3", 3, 7, scale=0.3)
    for name, M, N in (
        ("as many queries as keys", 7, 7),
        ("fewer queries than keys", 5, 9),
        ("more queries than keys", 9, 5),
    ):
        yield make(f"causal, {name}", M, N, causal=True)
        yield make(f"top-left, {name}", M, N, causal=True, align="top_left")
    if leading:
        wide = make("", 2, 5, 16, (1, 6))
        yield Probe("grouped heads", wide.q, wide.k[:, :2], wide.v[:, :2])


def _tensors(p: Probe) -> tuple[Tensor, Tensor, Tensor]:
    return p.q, p.k, p.v


def call(launcher: Launcher, p: Probe, leading: bool, device: str) -> Tensor | None:
    """The launcher's output as [B, H, M, D]; None if it has no option that the probe asks for.

    A launcher that takes no v returns weights: they are multiplied with v here, in float64.
    """
    parameters = inspect.signature(launcher).parameters
    options: dict[str, Any] = {}
    scale = next((name for name in SCALE if name in parameters), None)
    if scale is None and p.scale is not None:
        return None
    if scale is not None and (p.scale is not None or _required(parameters[scale])):
        options[scale] = p.factor
    causal = next((name for name in CAUSAL if name in parameters), None)
    if p.causal and (causal is None or (p.align == "top_left" and "align" not in parameters)):
        return None
    if causal is not None and (p.causal or _required(parameters[causal])):
        options[causal] = p.causal
    if p.causal and "align" in parameters:
        options["align"] = p.align
    q, k, v = (_on(device, x if leading else x[0, 0]) for x in _tensors(p))
    with poisoned():
        out = launcher(q, k, v, **options) if "v" in parameters else launcher(q, k, **options)
    out = out[0] if isinstance(out, tuple | list) else out
    weights = "v" not in parameters
    shape = (*q.shape[:-1], k.shape[-2]) if weights else q.shape
    if not isinstance(out, Tensor) or out.shape != shape:
        came = tuple(out.shape) if isinstance(out, Tensor) else f"a {type(out).__name__}"
        raise CannotDiagnose(f"the launcher returned {came}; {tuple(shape)} was expected")
    if weights:
        group = p.q.shape[1] // p.k.shape[1]
        out = out.double() @ (v if not leading else v.repeat_interleave(group, 1)).double()
    return out.detach().cpu().reshape(p.q.shape)


def _required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _on(device: str, x: Tensor) -> Tensor:
    """The tensor on a device, with the strides that it has."""
    if device == "cpu":
        return x
    there = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)
    return there.copy_(x)


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Uninitialised tensors are NaN in here: what a kernel does not write is seen."""
    before = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = filled
        torch.use_deterministic_algorithms(before, warn_only=warn)


@dataclass(frozen=True)
class _Seen:
    """A probe with what the launcher made of it."""

    probe: Probe
    out: Tensor
    largest: float
    allowed: float

    @property
    def right(self) -> bool:
        return self.largest <= self.allowed  # NaN is not


def examine(launcher: Launcher, device: str = "cpu") -> Diagnosis:
    """Run the launcher on the probes and name its mistake.

    One that is right in float32 may use other tiles, and another instruction, for 16 bits: it is
    then asked in float16 too, if it takes that.

    Raises CannotDiagnose if it takes none of them, or returns no tensor of the right shape.
    """
    seen, left_out = _outputs(launcher, device)
    count = len(seen)
    note = ""
    if all(s.right for s in seen) and seen[0].probe.q.dtype == torch.float32:
        with contextlib.suppress(CannotDiagnose):
            seen, more = _outputs(launcher, device, (torch.float16,))
            count += len(seen)
            note = ", float16"
            left_out = tuple(dict.fromkeys((*left_out, *more)))
    wrong = [s for s in seen if not s.right]
    if not wrong:
        return Diagnosis(True, probes=count, left_out=left_out)
    first = wrong[0]
    return Diagnosis(
        False, _names(seen), first.probe.name + note, first.largest, first.allowed, count, left_out
    )


def _outputs(
    launcher: Launcher, device: str, dtypes: Sequence[torch.dtype] = (torch.float32, torch.float16)
) -> tuple[list[_Seen], tuple[str, ...]]:
    """In the first dtype, with batch and heads, if the launcher takes it so; or else as it does."""
    refusal = ""
    for leading, dtype in itertools.product((True, False), dtypes):
        seen, left_out = [], []
        for probe in probes(leading, dtype, device):
            try:
                out = call(launcher, probe, leading, device)
            except CannotDiagnose:
                raise
            except Exception as error:  # noqa: BLE001 - a refusal, or a kernel that fails
                if probe.name == "plain":
                    refusal = f"{type(error).__name__}: {error}".splitlines()[0]
                    break
                left_out.append(probe.name)
            else:
                if out is not None:
                    seen.append(_judged(probe, out))
        else:
            return seen, tuple(left_out)
    raise CannotDiagnose(f"the launcher takes no input, or fails on it: {refusal}")


def _judged(p: Probe, out: Tensor) -> _Seen:
    k, v = (x[:, p.heads()] for x in (p.k, p.v))
    found = deviation(out, p.q, k, v, scale=p.scale, mask=visible(p))
    return _Seen(p, out, found.largest, found.allowed)


def _names(seen: Sequence[_Seen]) -> tuple[str, ...]:
    """The mistakes that explain what was seen; those of rounding only if no other does."""
    ran = {s.probe.name for s in seen}
    for rounding in (False, True):
        fits = _explains_rounding if rounding else _explains
        found = tuple(
            name
            for name, mistake in MISTAKES.items()
            if mistake.rounding == rounding
            and (not mistake.needs or mistake.needs in ran)
            and any(fits(model, seen) for model in mistake.models)
        )
        if found:
            return found
    return ()


def _explains(model: Model, seen: Sequence[_Seen]) -> bool:
    """The model's output is the launcher's on every probe, a wrong one among them."""
    matched = False
    for s in seen:
        want = model(s.probe)
        if want is None:
            continue
        if not _close(s.out, want, s.probe.q.dtype):
            return False
        matched |= not s.right
    return matched


def _close(out: Tensor, want: Tensor, dtype: torch.dtype) -> bool:
    out = out.double()
    finite = want[want.isfinite()]
    size = max(1.0, finite.abs().max().item() if finite.numel() else 0.0)
    return torch.allclose(out, want, rtol=0.0, atol=CLOSE[dtype] * size, equal_nan=True)


def _explains_rounding(model: Model, seen: Sequence[_Seen]) -> bool:
    """The model takes most of the error away, which is too large for float32 and still small.

    Digit for digit it cannot match: a weight at the edge between two roundings falls either way.
    """
    left = error = 0.0
    for s in seen:
        want = model(s.probe)
        if want is None or s.right or s.probe.name == "scores of 120":
            continue
        right = attend(s.probe)
        left += (s.out.double() - want).square().sum().item()
        error += (s.out.double() - right).square().sum().item()
    return error > 0 and left <= (1 - EXPLAINED) ** 2 * error


# The reader's file: everything below runs it, in a child, or waits for the child.


def diagnose(file: Path, launcher: str = "", seconds: float = SECONDS) -> Diagnosis:
    """Diagnose the launcher in a file. The file runs in a process of its own, never in this one.

    Raises CannotDiagnose, within `seconds`: there is no such file, it does not import, it has no
    launcher, or it does not come to an end.
    """
    if not file.is_file():
        raise CannotDiagnose(f"{file} is not a file")
    environment = dict(os.environ)
    if not torch.cuda.is_available():
        environment["TRITON_INTERPRET"] = "1"  # before triton decorates the file's kernels
    with Child(_answer, file.resolve(), launcher, fresh=True, env=environment) as child:
        try:
            said: Diagnosis | str = child.receive(seconds)
        except TooSlow:
            raise CannotDiagnose(
                f"{file} gave no answer within {seconds:g} s: it loops, or it is too slow here"
            ) from None
        except Ended as error:
            raise CannotDiagnose(f"{file}: {error}") from None
    if isinstance(said, str):
        raise CannotDiagnose(f"{file}: {said}")
    return said


def find_launcher(module: ModuleType, wanted: str = "") -> Launcher:
    """The public function of a module that takes q, k and v, or q and k and returns weights."""
    functions: Mapping[str, Launcher] = {
        name: f
        for name, f in inspect.getmembers(module, inspect.isfunction)
        if f.__module__ == module.__name__ and not name.startswith("_")
    }
    if wanted and wanted not in functions:
        raise CannotDiagnose(f"it has no public function called {wanted!r}")
    if wanted and list(inspect.signature(functions[wanted]).parameters)[:2] != ["q", "k"]:
        raise CannotDiagnose(f"{wanted} does not take q, k and v")
    if wanted:
        return functions[wanted]
    for arguments in (("q", "k", "v"), ("q", "k")):
        found = [
            name
            for name, f in functions.items()
            if tuple(inspect.signature(f).parameters)[: len(arguments)] == arguments
        ]
        if len(found) > 1:
            raise CannotDiagnose(f"it has several launchers, {', '.join(found)}: say which")
        if found:
            return functions[found[0]]
    raise CannotDiagnose("it has no launcher: no public function takes q, k and v")


def _answer(channel: Connection, file: Path, wanted: str) -> None:
    """In the child: say what comes of the file's launcher."""
    channel.send(_said(file, wanted))


def _said(file: Path, wanted: str) -> Diagnosis | str:
    """Import the file and examine its launcher; or why that cannot be done."""
    sys.path.insert(0, str(file.parent))
    torch.set_num_threads(1)  # for inputs this small threads cost more than they save
    try:
        module = load_file(file)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever importing raises is said
        lines = str(error).splitlines() or [""]
        return f"it cannot be imported: {type(error).__name__}: {lines[0]}"
    try:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return examine(find_launcher(module, wanted), device)
    except CannotDiagnose as error:
        return str(error)
