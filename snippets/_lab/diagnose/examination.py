"""Puts a launcher to the test and names its mistake, from its outputs and its memory accesses.

The launcher runs on a handful of probing inputs. Where its output is not attention within
rounding, it is compared with the models of `mistakes`: the mistake whose model gives this output on
every probe is the diagnosis. Several that do are all named; if none does, there is no name.
An output that is NaN throughout gets no name: the run is repeated, and its first NaN located.
"""

import functools
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from snippets._lab.diagnose.first_nan import first_nan
from snippets._lab.diagnose.forms import Form, forms
from snippets._lab.diagnose.probes import LONG, probes
from snippets._lab.diagnose.verdict import Diagnosis
from snippets._lab.judge.bounds import Fault, Line, Memory, line_of, of_reader
from snippets._lab.judge.launcher import Launcher, find_launcher, launcher_of
from snippets._lab.judge.mistakes import MEMORY, MISTAKES
from snippets._lab.judge.models import ANY, Change, Probe, attend, output, visible
from snippets._lab.judge.oracle import deviation, make_qkv
from snippets._lab.judge.refusal import CannotDiagnose

# Of float32, in units of the largest number: scores of 120 carry an error of 4·eps·120 = 6e-5.
CLOSE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
# A model of rounding explains an output if it takes away this much of its error.
EXPLAINED = 0.7
SAME = 40  # times that a kernel fails at one line, at other sizes too: more will not help
CAUSAL_ONLY = re.compile("causal|autoregressive", re.IGNORECASE)
MOST_LOADS = 4_000
MANY_LOADS = 900  # by the interpreter, at about a millisecond each
# How a launcher says that it does not take something; anything else is a fault of its own.
REFUSALS = (ValueError, TypeError, NotImplementedError, AssertionError, RuntimeError)
ALWAYS_MASKED = {
    "bottom_right": "It applies the causal mask always: query m sees keys n ≤ m + N - M.",
    "top_left": "It applies the causal mask always: query m sees keys n ≤ m.",
}
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
    launched: bool

    @functools.cached_property
    def want(self) -> Tensor:
        """Right attention, in float64."""
        return attend(self.probe)

    @property
    def right(self) -> bool:
        return self.largest <= self.allowed  # NaN is not


@dataclass(frozen=True)
class _Run:
    """All probes of one form."""

    form: Form
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
        launcher = launcher_of(launcher)
    first: Diagnosis | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of what a wrong kernel divides by
        for form in _chosen(launcher, device):
            now = _examined(launcher, form, device)
            if now.right or now.names:
                return now
            first = first or now
    assert first is not None  # some form was chosen
    return first


def name_of(module: ModuleType, room: str) -> str:
    """The mistake of a room's module, by its outputs; empty where no model explains them."""
    try:
        return ", ".join(examine(find_launcher(module, room)).names)
    except CannotDiagnose:
        return ""  # a room of another kind, or a mutant that fails on what the tests do not ask


def _examined(launcher: Launcher, form: Form, device: str) -> Diagnosis:
    run = _run(launcher, device, form)
    count, note, left_out = len(run.seen), "", run.left_out
    if not _wrong(run) and form.dtype == "float32":
        try:
            halves = _run(launcher, device, replace(form, dtype="float16"))
        except (CannotDiagnose, _Failed) as refused:
            left_out = (*left_out, f"float16 ({refused})")
        else:
            run, note = halves, ", float16"
            count += len(run.seen)
            left_out = tuple(dict.fromkeys((*left_out, *run.left_out)))
    about = (form.text(), ALWAYS_MASKED.get(form.always, ""))
    made = functools.partial(Diagnosis, probes=count, left_out=left_out)
    return _concluded(launcher, device, run, note, about, made)


def _wrong(run: _Run) -> bool:
    return bool(run.error) or any(s.probe.promised and (s.faults or not s.right) for s in run.seen)


# Running.


class _Failed(Exception):
    """The launcher raised; `where` says how far it came."""

    def __init__(self, error: Exception, form: Form) -> None:
        super().__init__(failure(error))
        self.error, self.depth, self.form = error, _depth(error), form


def _chosen(launcher: Launcher, device: str) -> list[Form]:
    """The form in which the launcher is right on the first probe; or else those that it takes.

    Sizes that are often asked for are tried if it refuses others.

    Raises CannotDiagnose if it takes none.
    """
    failures: list[_Failed] = []
    unlike: list[CannotDiagnose] = []

    def asked(form: Form, name: str = "plain") -> _Seen | None:
        probe = next(p for p in probes(form, launcher.options) if p.name == name)
        try:
            return _asked(launcher, probe, form, device)
        except _Failed as failed:
            failures.append(failed)
        except CannotDiagnose as error:
            unlike.append(error)
        return None

    only = bool(CAUSAL_ONLY.search(launcher.about)) and launcher.causal is None
    for always in ("", "bottom_right") if launcher.causal else ("",):
        for tried in forms(launcher):
            taken: list[Form] = []
            outside: list[Form] = []  # of those, where a tensor is left
            finite = -1  # leading dimensions of what gives numbers: fewer are not meant
            for form in (replace(f, always=always) for f in tried):
                if form.leading < finite or any(
                    (f.layout, f.one) == (form.layout, form.one) for f in taken
                ):
                    continue
                seen = asked(form)
                if seen is None or (form.uneven and asked(form, "257 keys") is None):
                    continue
                taken.append(form)
                outside += [form] * bool(seen.faults)
                if not seen.out.isnan().any():
                    finite = form.leading
                for corner in (always, *(("bottom_right", "top_left") if only else ())):
                    now = replace(form, always=corner)
                    if seen.right if corner == always else (again := asked(now)) and again.right:
                        return [now]
            if taken:
                likely = _likely(launcher, sorted(taken, key=outside.__contains__), device)
                corners = ("bottom_right", "top_left") if only else ()
                return [replace(f, always=c) for c in corners for f in likely] + likely
            if unlike:
                raise unlike[0]
            # The attempt that came furthest says most; of equals the first, with batch and heads.
            furthest = max(
                failures, key=lambda f: (not isinstance(_root(f.error), IndexError), f.depth)
            )
            same = sum(str(f) == str(furthest) for f in failures if f.depth[0])
            if same > SAME or not isinstance(_root(furthest.error), REFUSALS):
                break
    said = CannotDiagnose(f"the launcher takes no input, or fails on it: {furthest}")
    said.form = asdict(furthest.form) if furthest.depth[0] else None
    raise said


def _likely(launcher: Launcher, taken: list[Form], device: str) -> list[Form]:
    """One where heads keep to themselves; without any, all with as many axes as the first.

    What changes with the keys of one head is that head's result, and no other's.
    """
    alike = [form for form in taken if form.leading == taken[0].leading]
    for form in taken if len(taken) > 1 else ():
        size = form.rows if form.rows > 1 else 4
        if size > 64 or not form.leading:
            break
        q, k, v = make_qkv(1, size, M=1 if form.one else size, N=size, D=form.width or 16)
        p = Probe("", *(x.to(getattr(torch, form.dtype)) for x in (q, k, v)))
        if _heads_changed(launcher, form.laid(p), form, device) == {0}:
            return [form]
    return alike


def _heads_changed(launcher: Launcher, p: Probe, form: Form, device: str) -> set[int]:
    """The heads of the first batch whose result changes with the first head's keys and values."""
    k, v = p.k.clone(), p.v.clone()
    k[0, 0], v[0, 0] = -k[0, 0], v[0, 0].flip(0)
    try:
        before, _ = _called(launcher, p, form, device, 0.0)
        after, _ = _called(launcher, replace(p, k=k, v=v), form, device, 0.0)
    except (_Failed, CannotDiagnose):
        return set()
    same = (before == after) | (before.isnan() & after.isnan())
    return {h for h in range(p.q.shape[1]) if not same[0, h].all()}


def _run(launcher: Launcher, device: str, form: Form) -> _Run:
    """What comes of all probes of a form. Raises _Failed if it refuses the first."""
    seen: list[_Seen] = []
    left_out: dict[str, list[str]] = {}  # why → which
    enough: bool | None = None  # asked once, before the first long one
    for probe in probes(form, launcher.options):
        if probe.name in LONG:
            if enough is None:
                enough = _known_to_be_wrong(seen)
            if enough or _takes_long(seen, probe):
                continue
        try:
            found = _asked(launcher, probe, form, device)
        except _Failed as failed:
            if not seen:
                raise
            refused = (*REFUSALS, *(() if probe.promised else (IndexError,)))
            if not isinstance(_root(failed.error), refused):
                said = f'{failed} on the input "{probe.name}".'
                return _Run(form, tuple(seen), _reasons(left_out), said)
            left_out.setdefault(str(failed) if probe.promised else "", []).append(probe.name)
            continue
        if not probe.promised and not found.right:
            # Query heads that share a head of K or V are meant to: what is wrong then is a mistake.
            shared = _heads_changed(launcher, probe, form, device)
            found = replace(found, probe=replace(probe, promised=len(shared) > 1))
        seen.append(found)
    return _Run(form, tuple(seen), _reasons(left_out))


def _reasons(left_out: dict[str, list[str]]) -> tuple[str, ...]:
    return tuple(", ".join(names) + f" ({why})" * bool(why) for why, names in left_out.items())


def _takes_long(seen: Sequence[_Seen], p: Probe) -> bool:
    """A kernel of one key and one query at a time needs no long input: it has no tiles."""
    each = max(s.loads / s.probe.q.shape[:-1].numel() / s.probe.sizes[1] for s in seen)
    return each * p.q.shape[:-1].numel() * p.sizes[1] > MOST_LOADS


def _known_to_be_wrong(seen: Sequence[_Seen]) -> bool:
    """A kernel that takes one key at a time has no tiles: of it the short inputs say enough.

    Unless several mistakes explain what they gave: longer ones may tell those apart.
    """
    slow = any(not s.right for s in seen) and sum(s.loads for s in seen) > MANY_LOADS
    return slow and len(_single(seen)) < 2


def _asked(launcher: Launcher, p: Probe, form: Form, device: str) -> _Seen:
    """What comes of one probe. Raises _Failed, or CannotDiagnose for a result of another shape."""
    out, memory = _called(launcher, p, form, device, torch.nan)
    faults = memory.faults
    if not memory.launched and out.isnan().any():
        # No interpreter ran the kernel, so only this tells: guards of zeros give another output.
        without, _ = _called(launcher, p, form, device, 0.0)
        if not torch.equal(without.isnan(), out.isnan()):
            faults += tuple(_read_outside(launcher, p, form, device, without))
            out = without  # as the interpreter gives it
    k, v = (x[:, p.heads()] for x in (p.k, p.v))
    found = deviation(out, p.q, k, v, scale=p.scale, mask=visible(p))
    products = tuple(memory.short_products.values()) if p.q.dtype == torch.float32 else ()
    return _Seen(
        p, out, found.largest, found.allowed, faults, products, memory.loads, bool(memory.launched)
    )


def _called(
    launcher: Launcher, p: Probe, form: Form, device: str, fill: Any
) -> tuple[Tensor, Memory]:
    """The launcher's output as [B, H, M, D], and what its memory looks like afterwards.

    A launcher that takes no v returns weights: they are multiplied with v here, in float64.
    """
    memory = Memory(form.given(p, launcher, device), fill)
    try:
        with memory:
            out = launcher.call(p, *memory.inputs.values())
    except Exception as error:  # noqa: BLE001 - a refusal, or a kernel that fails
        raise _Failed(error, form) from None
    out = out[0] if isinstance(out, tuple | list) and out else out
    want = p.q.new_empty(*p.q.shape[:-1], p.sizes[1], device="meta") if launcher.weights else p.q
    shape = form.arranged(want).shape
    if not isinstance(out, Tensor) or out.shape != shape:
        came = tuple(out.shape) if isinstance(out, Tensor) else f"a {type(out).__name__}"
        raise CannotDiagnose(f"the launcher returned {came}; {tuple(shape)} was expected")
    out = form.back(out.detach().clone().cpu())
    if launcher.weights:
        out = out.double() @ p.v.double()[:, p.heads()]
    return out, memory


def _read_outside(
    launcher: Launcher, p: Probe, form: Form, device: str, out: Tensor
) -> Iterator[Fault]:
    """Inputs whose guards reach the output: it has more NaN than `out`, where all are zeros."""
    for name in "qkv":
        fill = dict.fromkeys("qkv", 0.0) | {name: torch.nan}
        again, _ = _called(launcher, p, form, device, fill)
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
    launcher: Launcher,
    device: str,
    run: _Run,
    note: str,
    about: tuple[str, ...],
    made: Callable[..., Diagnosis],
) -> Diagnosis:
    seen = run.seen
    form, launched = asdict(run.form), any(s.launched for s in seen)
    products = {line.number: line for s in seen for line in s.products}
    notes = (
        *filter(None, about),
        *(ONLY_A_GPU.format(line=_capital(line)) for line in products.values()),
    )
    made = functools.partial(made, notes=notes, form=form, launched=launched)
    if run.error:
        return made(False, error=run.error)
    promised = [s for s in seen if s.probe.promised]
    wrong = [s for s in promised if not s.right]
    faults = [(f, s) for s in promised for f in s.faults]
    rest = [s for s in seen if not s.probe.promised and not s.right]
    found: tuple[str, ...] = ()
    origin = ""
    if wrong and all(s.out.isnan().all() for s in promised):
        origin = _origin(launcher, device, wrong[0], run.form)
    elif wrong:
        found = _single(seen)
        if not found and len(promised) < len(seen):
            found = _single(promised)
    elif rest and not any(s.faults for s in rest):
        found = _single(seen)
    if wrong and not found and not faults and not origin:
        broken = next((s for s in wrong if s.out.isnan().any()), None)
        origin = _origin(launcher, device, broken, run.form) if broken else ""
    unsupported = () if found or wrong else tuple(s.probe.name for s in rest)
    if not wrong and not faults and not found:
        return made(True, unsupported=unsupported)
    first = (wrong or [s for _, s in faults] or rest)[0]
    return made(
        False,
        names=found,
        sentences=tuple(MISTAKES[name].sentence for name in found),
        memory=tuple(dict.fromkeys(f"{f.kind} {f.tensor}" for f, _ in faults)),
        lines=_sentences(faults),
        origin=origin,
        probe=first.probe.name + note,
        shapes=_shapes(first.probe),
        largest=first.largest,
        allowed=first.allowed,
        unsupported=unsupported,
    )


def _shapes(p: Probe) -> str:
    q, k = (", ".join(map(str, x.shape)) for x in (p.q, p.k))
    return f"q [{q}], k and v [{k}]"


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


def _origin(launcher: Launcher, device: str, s: _Seen, form: Form) -> str:
    """Where the NaN of a result come from."""
    memory = Memory(form.given(s.probe, launcher, device), 0.0)

    def run() -> None:
        with memory:
            launcher.call(s.probe, *memory.inputs.values())

    found = first_nan(run, memory.unwritten)
    if found is not None:
        return found.text()
    if not memory.launched:
        return ""
    if memory.nan_stored:
        return f"{_capital(memory.nan_stored)} stores the first NaN."
    if not memory.stores:
        return "Nothing is written: no store of any program has a lane that is not masked."
    return "The NaN are places of the result that no program writes."


def _in_order(seen: Sequence[_Seen]) -> list[_Seen]:
    """The wrong ones first, and of those the small: they exclude most for least."""
    return sorted(seen, key=lambda s: (s.right, s.probe.sizes[1] * s.probe.sizes[0]))


def _single(seen: Sequence[_Seen]) -> tuple[str, ...]:
    """The mistakes each of which explains what was seen; rounding only if no other does."""
    ran, ordered = {s.probe.name for s in seen}, _in_order(seen)
    square = all(s.probe.sizes[0] == s.probe.sizes[1] for s in seen)
    for rounding in (False, True):
        fits = _explains_rounding if rounding else _explains
        found = tuple(
            name
            for name, mistake in MISTAKES.items()
            if mistake.rounding == rounding
            and (not mistake.needs or mistake.needs in ran)
            and not (square and mistake.unequal)
            and any(fits(model, ordered) for model in mistake.models)
        )
        if "zeros" in found:  # many mistakes leave zeros on few inputs; that they are zeros is sure
            return ("zeros",)
        if found:
            return found
    return ()


def _explains(model: Change, seen: Sequence[_Seen]) -> bool:
    """The model's output is the launcher's on every probe, wrong ones among them."""
    matched = False
    for s in seen:
        want = output(s.probe, model)
        if want is None:
            continue
        if not _close(s.out, want, s.probe.q.dtype):
            return False
        apart = (want - s.want).abs().max().item()  # of rounding alone a model says nothing
        matched = matched or (not s.right and not apart <= s.allowed)
    return matched


def _close(out: Tensor, want: Tensor, dtype: torch.dtype) -> bool:
    out = out.double().where(want != ANY, want)
    want = want.to(dtype).double().where(want != ANY, want)  # beyond its largest it is infinite
    apart = (out - want).abs().nan_to_num(0.0, posinf=0.0).max()
    if apart > CLOSE[dtype] * max(1.0, float(want.nan_to_num(0.0, 0.0, 0.0).abs().max())):
        return False
    finite = want[want.isfinite()]
    size = max(1.0, finite.abs().max().item() if finite.numel() else 0.0)
    return torch.allclose(out, want, rtol=0.0, atol=CLOSE[dtype] * size, equal_nan=True)


def _explains_rounding(model: Change, seen: Sequence[_Seen]) -> bool:
    """The model takes most of the error away, which is too large for float32 and still small.

    Digit for digit it cannot match: a weight at the edge between two roundings falls either way.
    """
    left = error = 0.0
    for s in seen:
        want = output(s.probe, model)
        if want is None or s.right or s.probe.name.startswith("scores of"):
            continue
        left += (s.out.double() - want).square().sum().item()
        error += (s.out.double() - s.want).square().sum().item()
    return error > 0 and left <= (1 - EXPLAINED) ** 2 * error
