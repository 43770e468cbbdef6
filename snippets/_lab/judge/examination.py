"""Puts a launcher to the test and names its mistake, from its outputs and its memory accesses.

The launcher runs on a handful of probing inputs. Where its output is not attention within
rounding, it is compared with the models of `mistakes`: the mistake whose model gives this output on
every probe is the diagnosis. Several that do are all named; if none does, two at once are tried.
An output that is NaN throughout gets no name: the run is repeated, and its first NaN located.
"""

import functools
import itertools
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from snippets._lab.judge.bounds import Fault, Line, Memory, line_of, of_reader
from snippets._lab.judge.diagnosis import CannotDiagnose, Diagnosis
from snippets._lab.judge.first_nan import first_nan
from snippets._lab.judge.launcher import Launcher, launcher_of
from snippets._lab.judge.mistakes import MEMORY, MISTAKES
from snippets._lab.judge.models import Change, Probe, attend, output, visible
from snippets._lab.judge.oracle import deviation
from snippets._lab.judge.probes import LONG, probes

# Of float32, in units of the largest number: scores of 120 carry an error of 4·eps·120 = 6e-5.
CLOSE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
# A model of rounding explains an output if it takes away this much of its error.
EXPLAINED = 0.7
PAIRS_FOR = 6.0  # seconds for two mistakes at once: there are thousands of pairs of models
MANY_LOADS = 900  # by the interpreter, at about a millisecond each
SHORT = 64  # keys: longer inputs take their time, and tell little more of a pair
# How a launcher says that it does not take something; anything else is a fault of its own.
REFUSALS = (ValueError, TypeError, NotImplementedError, AssertionError, RuntimeError)
ONLY_A_GPU = (
    "{line} multiplies float32 in TF32 on a GPU, with 10 bits of mantissa: the interpreter does "
    'not show it; input_precision="ieee" avoids it.'
)


@dataclass(frozen=True, eq=False)
class _Seen:
    """A probe with what the launcher made of it."""

    probe: Probe
    out: Tensor
    largest: float
    allowed: float
    faults: tuple[Fault, ...]
    products: tuple[Line, ...]
    loads: int

    @functools.cached_property
    def want(self) -> Tensor:
        """Right attention, in float64."""
        return attend(self.probe)

    @property
    def right(self) -> bool:
        return self.largest <= self.allowed  # NaN is not


@dataclass(frozen=True)
class _Run:
    """All probes of one dtype and rank."""

    leading: int
    seen: tuple[_Seen, ...]
    left_out: tuple[str, ...]
    error: str = ""


def examine(launcher: Launcher | Callable[..., Any], device: str = "cpu") -> Diagnosis:
    """Run the launcher on the probes and name its mistake.

    One that is right in float32 may use other tiles, and another instruction, for 16 bits: it is
    then asked in float16 too, if it takes that.

    Raises CannotDiagnose if it takes none of them, or returns no tensor of the right shape.
    """
    if not isinstance(launcher, Launcher):
        launcher = launcher_of(launcher) or _by_place(launcher)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of what a wrong kernel divides by
        run = _run(launcher, device, (torch.float32, torch.float16))
        count, note, left_out = len(run.seen), "", run.left_out
        if not _wrong(run) and run.seen[0].probe.q.dtype == torch.float32:
            try:
                halves = _run(launcher, device, (torch.float16,), (run.leading,))
            except CannotDiagnose as refused:
                left_out = (*left_out, f"float16 ({refused})")
            else:
                run, note = halves, ", float16"
                count += len(run.seen)
                left_out = tuple(dict.fromkeys((*left_out, *run.left_out)))
        return _concluded(launcher, device, run, count, note, left_out)


def _by_place(function: Callable[..., Any]) -> Launcher:
    found = launcher_of(function, named=False)
    if found is None:
        raise CannotDiagnose("it does not take queries, keys and values")
    return found


def _wrong(run: _Run) -> bool:
    return bool(run.error) or any(s.faults or (s.probe.promised and not s.right) for s in run.seen)


# Running.


class _Failed(Exception):
    """The launcher raised; `where` says how far it came."""

    def __init__(self, error: Exception, said: str, depth: tuple[int, int]) -> None:
        super().__init__(said)
        self.error, self.said, self.depth = error, said, depth


def _run(
    launcher: Launcher,
    device: str,
    dtypes: Sequence[torch.dtype],
    ranks: Sequence[int] = (2, 1, 0),
) -> _Run:
    """With batch and heads, in the first dtype, if the launcher takes it so; or else as it does."""
    failures: list[_Failed] = []
    for leading, dtype in itertools.product(ranks, dtypes):
        options = {n for n in ("scale", "causal", "align") if getattr(launcher, n)}
        seen: list[_Seen] = []
        left_out: list[str] = []
        enough: bool | None = None  # asked once, before the first long one
        for probe in probes(leading, dtype, options):
            if probe.name in LONG:
                if enough is None:
                    enough = _known_to_be_wrong(seen)
                if enough:
                    continue
            try:
                seen.append(_asked(launcher, probe, leading, device))
            except _Failed as failed:
                if not seen:
                    failures.append(failed)
                    break
                if probe.promised and not isinstance(_root(failed.error), REFUSALS):
                    said = f'{failed.said} on the input "{probe.name}".'
                    return _Run(leading, tuple(seen), tuple(left_out), said)
                left_out.append(f"{probe.name} ({failed.said})" if probe.promised else probe.name)
        else:
            return _Run(leading, tuple(seen), tuple(left_out))
    # The attempt that came furthest says most; of equals the first, with batch and heads.
    furthest = max(failures, key=lambda failed: failed.depth)
    raise CannotDiagnose(f"the launcher takes no input, or fails on it: {furthest.said}")


def _known_to_be_wrong(seen: Sequence[_Seen]) -> bool:
    """A kernel that takes one key at a time has no tiles: of it the short inputs say enough.

    Unless several mistakes explain what they gave: longer ones may tell those apart.
    """
    slow = any(not s.right for s in seen) and sum(s.loads for s in seen) > MANY_LOADS
    return slow and len(_single(seen)) < 2


def _asked(launcher: Launcher, p: Probe, leading: int, device: str) -> _Seen:
    """What comes of one probe. Raises _Failed, or CannotDiagnose for a result of another shape."""
    out, memory = _called(launcher, p, leading, device, torch.nan)
    faults = memory.faults
    if not memory.launched and out.isnan().any():
        # No interpreter ran the kernel, so only this tells: guards of zeros give another output.
        without, _ = _called(launcher, p, leading, device, 0.0)
        if not torch.equal(without.isnan(), out.isnan()):
            faults += tuple(_read_outside(launcher, p, leading, device, without))
            out = without  # as the interpreter gives it
    k, v = (x[:, p.heads()] for x in (p.k, p.v))
    found = deviation(out, p.q, k, v, scale=p.scale, mask=visible(p))
    products = tuple(memory.short_products.values()) if p.q.dtype == torch.float32 else ()
    return _Seen(p, out, found.largest, found.allowed, faults, products, memory.loads)


def _tensors(p: Probe, leading: int, device: str) -> dict[str, Tensor]:
    """q, k and v with so many leading dimensions, on a device, with the strides that they have."""
    found = {}
    for name in "qkv":
        x = getattr(p, name)
        x = x[0] if leading == 1 else x[0, 0] if leading == 0 else x
        there = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)
        found[name] = there.copy_(x)
    return found


def _called(
    launcher: Launcher, p: Probe, leading: int, device: str, fill: Any
) -> tuple[Tensor, Memory]:
    """The launcher's output as [B, H, M, D], and what its memory looks like afterwards.

    A launcher that takes no v returns weights: they are multiplied with v here, in float64.
    """
    memory = Memory(_tensors(p, leading, device), fill)
    q, k, v = memory.inputs.values()
    try:
        with memory:
            out = launcher.call(p, q, k, v)
    except Exception as error:  # noqa: BLE001 - a refusal, or a kernel that fails
        raise _Failed(error, failure(error), _depth(error)) from None
    out = out[0] if isinstance(out, tuple | list) and out else out
    shape = (*q.shape[:-1], k.shape[-2]) if launcher.weights else q.shape
    if not isinstance(out, Tensor) or out.shape != shape:
        came = tuple(out.shape) if isinstance(out, Tensor) else f"a {type(out).__name__}"
        raise CannotDiagnose(f"the launcher returned {came}; {tuple(shape)} was expected")
    out = out.detach().clone().cpu()
    if launcher.weights:
        own = p.v.double()[:, p.heads()] if leading else p.v[0, 0].double()
        out = out.double() @ (own[0] if leading == 1 else own)
    return out.reshape(p.q.shape), memory


def _read_outside(
    launcher: Launcher, p: Probe, leading: int, device: str, out: Tensor
) -> Iterator[Fault]:
    """Inputs whose guards reach the output: it has more NaN than `out`, where all are zeros."""
    for name in "qkv":
        fill = dict.fromkeys("qkv", 0.0) | {name: torch.nan}
        again, _ = _called(launcher, p, leading, device, fill)
        if not torch.equal(again.isnan(), out.isnan()):
            yield Fault("reads outside", name)


def _root(error: BaseException) -> BaseException:
    """What Triton's interpreter wraps."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error


def failure(error: BaseException) -> str:
    """An exception in a line: its type, what it says, and the reader's line that raised it."""
    root = _root(error)
    said = " ".join(str(root).split())
    said = f"{type(root).__name__}: {said}" if said else type(root).__name__
    line = _line(root)
    if line is None:
        return said
    refused = line.text.startswith("raise ")  # its message says what the line does
    return f"{said}, line {line.number}" if refused else f"{said}, {str(line).rstrip(',')}"


def _line(error: BaseException) -> Line | None:
    frames = [f for f in traceback.walk_tb(error.__traceback__) if of_reader(f[0])]
    return line_of(frames[-1][0].f_code.co_filename, frames[-1][1]) if frames else None


def _depth(error: BaseException) -> tuple[int, int]:
    """How far the launcher came: functions deep, and the line in the first of them."""
    root = _root(error)
    deep = root is not error  # in a kernel
    for frame, number in traceback.walk_tb(error.__traceback__):
        if of_reader(frame):
            return int(deep), number
    return int(deep), 0


# Naming.


def _concluded(
    launcher: Launcher, device: str, run: _Run, count: int, note: str, left_out: tuple[str, ...]
) -> Diagnosis:
    seen = run.seen
    products = {line.number: line for s in seen for line in s.products}
    notes = tuple(ONLY_A_GPU.format(line=_capital(line)) for line in products.values())
    if run.error:
        return Diagnosis(False, error=run.error, probes=count, left_out=left_out, notes=notes)
    promised = [s for s in seen if s.probe.promised]
    wrong = [s for s in promised if not s.right]
    faults = [(f, s) for s in promised for f in s.faults]
    rest = [s for s in seen if not s.probe.promised and not s.right]
    found = _Names()
    origin = ""
    if wrong and all(s.out.isnan().all() for s in promised):
        origin = _origin(launcher, device, wrong[0], run.leading)
    elif wrong:
        found = _names(seen)
        if not found and len(promised) < len(seen):
            found = _names(promised)
    elif rest and not any(s.faults for s in rest):
        found = _names(seen)
    if wrong and not found.names and not faults and not origin:
        broken = next((s for s in wrong if s.out.isnan().any()), None)
        origin = _origin(launcher, device, broken, run.leading) if broken else ""
    unsupported = () if found.names or wrong else tuple(s.probe.name for s in rest)
    if not wrong and not faults and not found.names:
        return Diagnosis(
            True, probes=count, left_out=left_out, unsupported=unsupported, notes=notes
        )
    first = (wrong or [s for _, s in faults] or rest)[0]
    return Diagnosis(
        False,
        names=found.names,
        together=found.together,
        sentences=tuple(MISTAKES[name].sentence for name in found.names),
        memory=tuple(dict.fromkeys(f"{f.kind} {f.tensor}" for f, _ in faults)),
        lines=_sentences(faults),
        origin=origin,
        probe=first.probe.name + note,
        largest=first.largest,
        allowed=first.allowed,
        probes=count,
        left_out=left_out,
        unsupported=unsupported,
        notes=notes,
    )


def _capital(said: object) -> str:
    text = str(said).rstrip(",")
    return text[:1].upper() + text[1:]


def _sentences(faults: Sequence[tuple[Fault, _Seen]]) -> tuple[str, ...]:
    """One for each line and tensor: what it does, how far, and on which input first."""
    known: dict[tuple[Any, ...], str] = {}
    for fault, seen in faults:
        key = (fault.kind, fault.tensor, fault.line and fault.line.number)
        who = _capital(fault.line) if fault.line else "It"
        does = MEMORY[fault.kind].format(tensor=fault.tensor)
        where = f", {fault.where}" if fault.where else ""
        known.setdefault(key, f'{who} {does}{where}, on the input "{seen.probe.name}".')
    return tuple(known.values())


def _origin(launcher: Launcher, device: str, s: _Seen, leading: int) -> str:
    """Where the NaN of a result come from."""
    memory = Memory(_tensors(s.probe, leading, device), 0.0)

    def run() -> None:
        with memory:
            launcher.call(s.probe, *memory.inputs.values())

    found = first_nan(run, memory.unwritten)
    if found is not None:
        return found.text()
    if not memory.launched:
        return ""
    if not memory.programs:
        return "Nothing is computed: the grid of the launch has no program."
    if not memory.stores:
        return "Nothing is written: no store of any program has a lane that is not masked."
    return "The NaN are places of the result that no program writes."


@dataclass(frozen=True)
class _Names:
    names: tuple[str, ...] = ()
    together: bool = False

    def __bool__(self) -> bool:
        return bool(self.names)


def _names(seen: Sequence[_Seen]) -> _Names:
    """The mistakes that explain what was seen, or a pair of them."""
    if found := _single(seen):
        return _Names(found)
    return _pair(_in_order(seen), {s.probe.name for s in seen})


def _in_order(seen: Sequence[_Seen]) -> list[_Seen]:
    """The wrong ones first, and of those the small: they exclude most for least."""
    return sorted(seen, key=lambda s: (s.right, s.probe.sizes[1] * s.probe.sizes[0]))


def _single(seen: Sequence[_Seen]) -> tuple[str, ...]:
    """The mistakes each of which explains what was seen; rounding only if no other does."""
    ran, ordered = {s.probe.name for s in seen}, _in_order(seen)
    for rounding in (False, True):
        fits = _explains_rounding if rounding else _explains
        found = tuple(
            name
            for name, mistake in MISTAKES.items()
            if mistake.rounding == rounding
            and (not mistake.needs or mistake.needs in ran)
            and any(fits((model,), ordered) for model in mistake.models)
        )
        if "zeros" in found:  # many mistakes leave zeros on few inputs; that they are zeros is sure
            return ("zeros",)
        if found:
            return found
    return ()


def _pair(seen: Sequence[_Seen], ran: set[str]) -> _Names:
    """Two mistakes at once, if one pair of names explains everything and no other does.

    Models of a mistake that do the same to the first wrong input are tried as one there; each is
    tried by itself on the other inputs. One that changes none of the short outputs is left out.
    """
    until = time.process_time() + PAIRS_FOR
    wrong = [s for s in seen if not s.right]
    first, short = wrong[0], [s for s in wrong if s.probe.sizes[1] <= SHORT]
    if len(wrong) < 2 or first not in short:
        return _Names()
    alike: dict[tuple[str, bytes], tuple[dict[str, Any], list[Change]]] = {}
    for name, mistake in MISTAKES.items():
        if mistake.rounding or (mistake.needs and mistake.needs not in ran):
            continue
        for model in mistake.models:
            changed = model(first.probe)
            if changed is not None and any(_changes(model, s) for s in short):
                key = attend(first.probe, **changed).float().numpy().tobytes()
                alike.setdefault((name, key), (changed, []))[1].append(model)
    found: set[tuple[str, str]] = set()
    for ((one, _), (ours, some)), ((two, _), (theirs, others)) in itertools.combinations(
        alike.items(), 2
    ):
        if one == two or (one, two) in found or ours.keys() & theirs.keys():
            continue
        if time.process_time() > until:
            break
        if not _close(first.out, attend(first.probe, **ours, **theirs), first.probe.q.dtype):
            continue
        pairs = itertools.product(some, others)
        if any(_explains(pair, seen, at_least=2) and _both_matter(pair, wrong) for pair in pairs):
            found.add((one, two))
    return _Names(found.pop(), together=True) if len(found) == 1 else _Names()


def _both_matter(pair: Sequence[Change], wrong: Sequence[_Seen]) -> bool:
    """Whether either of two mistakes is seen beside the other, on some wrong output."""
    for alone in pair:
        for s in wrong:
            both, one = output(s.probe, pair), output(s.probe, (alone,))
            if both is not None and one is not None and not _close(one, both, s.probe.q.dtype):
                break
        else:
            return False
    return True


def _changes(model: Change, s: _Seen) -> bool:
    """Whether a model says of a probe that the output is another than that of right attention."""
    want = output(s.probe, (model,))
    return want is not None and not torch.equal(want, s.want)


def _explains(models: Sequence[Change], seen: Sequence[_Seen], at_least: int = 1) -> bool:
    """The models' output is the launcher's on every probe, wrong ones among them."""
    matched = 0
    for s in seen:
        try:
            want = output(s.probe, models)
        except ValueError:
            return False
        if want is None:
            continue
        if not _close(s.out, want, s.probe.q.dtype):
            return False
        matched += not s.right
    return matched >= at_least


def _close(out: Tensor, want: Tensor, dtype: torch.dtype) -> bool:
    out, want = out.double(), want.to(dtype).double()  # beyond its largest number it is infinite
    apart = (out - want).abs().nan_to_num(0.0, posinf=0.0).max()
    if apart > CLOSE[dtype] * max(1.0, float(want.nan_to_num(0.0, 0.0, 0.0).abs().max())):
        return False
    finite = want[want.isfinite()]
    size = max(1.0, finite.abs().max().item() if finite.numel() else 0.0)
    return torch.allclose(out, want, rtol=0.0, atol=CLOSE[dtype] * size, equal_nan=True)


def _explains_rounding(models: Sequence[Change], seen: Sequence[_Seen]) -> bool:
    """The model takes most of the error away, which is too large for float32 and still small.

    Digit for digit it cannot match: a weight at the edge between two roundings falls either way.
    """
    left = error = 0.0
    for s in seen:
        want = output(s.probe, models)
        if want is None or s.right or s.probe.name.startswith("scores of"):
            continue
        left += (s.out.double() - want).square().sum().item()
        error += (s.out.double() - s.want).square().sum().item()
    return error > 0 and left <= (1 - EXPLAINED) ** 2 * error
