"""The fixed problems on which a reader's changed kernel is tried on its page.

A room's problems.py lists them. For each, the real launcher runs in Triton's interpreter and what
it launches is recorded, with the right result; and for each mistake that has a model, and each
wrong variant of the room, what its result looks like there. So the page holds no launcher and no
model.
"""

import ast
import functools
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from snippets._lab.judge.bounds import Memory
from snippets._lab.judge.launcher import Launcher, find_launcher
from snippets._lab.judge.mistakes import MISTAKES
from snippets._lab.judge.models import Change, Probe, attend, output, visible
from snippets._lab.judge.mutants import Mutant, mutate
from snippets._lab.judge.oracle import beside, deviation, transposed, weights_deviation, with_gaps
from snippets._lab.probe import launches
from snippets._lab.probe.launches import on_the_lattice
from snippets._lab.rooms import load, load_file, room_file

Row = dict[str, Any]
Call = Callable[[ModuleType, Mapping[str, Tensor]], Any]
MOST_IN_FULL = 600  # numbers of a result that are kept in float32
REFUSALS = (ValueError, TypeError)


@dataclass(frozen=True)
class Problem:
    """One input of a launcher, and what must come out."""

    name: str
    title: str  # for a reader: what is special about it
    inputs: Mapping[str, Tensor]
    call: Call  # the launcher of a module, on inputs of these names
    expected: Sequence[Tensor]  # float64, one for each tensor that it returns
    allowed: Sequence[float]  # how far from it a right kernel may be
    file: str = "kernel"  # of the room
    group: str = ""  # the launcher's name
    probe: Probe | None = field(default=None, compare=False)


def launched(
    group: str,
    name: str,
    title: str,
    inputs: Mapping[str, Tensor],
    expected: Sequence[Tensor],
    allowed: Sequence[float],
    file: str = "kernel",
    **options: Any,
) -> Problem:
    """A problem of the launcher `group`, which takes the inputs in their order, and options."""

    def call(module: ModuleType, given: Mapping[str, Tensor]) -> Any:
        return getattr(module, group)(*given.values(), **options)

    exact = [x.double() for x in expected]
    return Problem(name, title, inputs, call, exact, allowed, file, group)


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Random numbers that take a byte each."""
    generator = torch.Generator().manual_seed(sum(shape) + seed)
    return on_the_lattice(torch.randn(*shape, generator=generator))


Also = Callable[[Tensor, Tensor], Tensor]  # weights and scores → what else a launcher returns


def attention(
    room: str,
    file: str = "kernel",
    group: str = "",
    *,
    also: Also | None = None,
    options: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
    without: Sequence[str] = (),
    ending: str = "",
    probes: Iterable[tuple[str, Probe]] | None = None,
) -> Iterator[Problem]:
    """Problems of a launcher of q, k and v, or of q and k: those that it takes.

    Args:
        group: its name, if it is not called like its room.
        also: its second result, in float64.
        options: how to ask for that.
        only, without: names of problems.
        ending: of their names, where the same ones come twice.
        probes: (title, probe), of a launcher that takes no other sizes.
    """
    module = load(room, file)
    for title, p in probes or _probes(find_launcher(module, group or room)):
        if p.name in without or (only and p.name not in only):
            continue
        problem = _problem(module, p, group or room, options or {})
        if also is not None:
            problem = _with_second(problem, also)
        try:
            with torch.no_grad():
                problem.call(module, problem.inputs)
        except REFUSALS:
            continue
        yield replace(problem, name=p.name + ending, title=title, file=file)


def _problem(module: ModuleType, p: Probe, name: str, options: Mapping[str, Any]) -> Problem:
    launcher = find_launcher(module, name)
    inputs = {"q": p.q, "k": p.k} | ({} if launcher.weights else {"v": p.v})

    def call(module: ModuleType, given: Mapping[str, Tensor]) -> Any:
        found = find_launcher(module, name)
        found = replace(found, function=functools.partial(found.function, **options))
        return found.call(p, given["q"], given["k"], given.get("v", p.v))

    want = attend(_as_weights(p)) if launcher.weights else attend(p)
    k, v = (x[:, p.heads()] for x in (p.k, p.v))
    right = want.to(p.q.dtype)
    if launcher.weights:
        found = weights_deviation(right, p.q, k, scale=p.scale, mask=visible(p))
    else:
        found = deviation(right, p.q, k, v, scale=p.scale, mask=visible(p))
    return Problem(p.name, "", inputs, call, [want], [found.allowed], group=name, probe=p)


def _with_second(problem: Problem, also: Also) -> Problem:
    p = problem.probe
    assert p is not None
    q, k, _ = p.in_float64
    scores = (q @ k[:, p.heads()].mT * p.factor).masked_fill(~visible(p), float("-inf"))
    finite = scores[scores.isfinite()].abs()
    # Of the scores, as for attention; their logarithms and sums move by no more.
    rounding = 4 * torch.finfo(torch.float32).eps * (float(finite.max()) + 1)
    return replace(
        problem,
        expected=[*problem.expected, also(attend(_as_weights(p)), scores)],
        allowed=[*problem.allowed, rounding],
    )


def logsumexp(weights: Tensor, scores: Tensor) -> Tensor:
    """Of each row of scores; -inf for one without keys."""
    return scores.logsumexp(-1)


def _as_weights(p: Probe) -> Probe:
    """The same with values that make the weights the result."""
    N = p.k.shape[-2]
    eye = torch.eye(N, dtype=p.k.dtype).expand(*p.k.shape[:2], N, N)
    return Probe(p.name, p.q, p.k, eye, p.scale, p.causal, p.align)


def make(
    name: str, M: int, N: int, D: int = 16, heads: tuple[int, int] = (1, 1), **rest: Any
) -> Probe:
    """A probe of random numbers that take a byte each."""
    generator = torch.Generator().manual_seed(M + 10 * N + D)

    def draw(rows: int, spread: float) -> Tensor:
        return on_the_lattice(torch.randn(*heads, rows, D, generator=generator) * spread)

    return Probe(name, draw(M, 1.5), draw(N, 1.0), draw(N, 1.0), **rest)


def rising(p: Probe) -> Probe:
    """With scores that rise for one query, so that every tile moves its maximum.

    Where a second query is the first one's opposite, they fall for that one.
    """
    order = (p.q @ p.k.mT)[0, 0, 0].argsort()
    return Probe(p.name, p.q, p.k[:, :, order].contiguous(), p.v)


def _probes(launcher: Launcher) -> Iterator[tuple[str, Probe]]:
    """(title, probe): few and small, so that a page runs them all within a second."""
    yield "8 queries, 8 keys, 16 columns", make("plain", 8, 8)
    yield "sizes that fill no tile", make("ragged", 3, 13, 24)
    yield "two batches of two heads", make("heads", 2, 5, heads=(2, 2))
    p = make("gaps", 3, 6)
    gaps = Probe(p.name, with_gaps(p.q), with_gaps(p.k), with_gaps(p.v))
    yield "rows with gaps between them", gaps
    p = make("transposed", 3, 6)
    yield "k stored by columns", Probe(p.name, p.q, transposed(p.k), p.v)
    p = make("beside", 2, 5, heads=(1, 3))
    yield "heads beside each other", Probe(p.name, beside(p.q), beside(p.k), beside(p.v))
    p = make("large", 1, 70)
    order = (p.q @ p.k.mT)[0, 0, 0].argsort(descending=True)  # so a tile's maximum may be far below
    k = p.k[:, :, order].contiguous()
    yield "scores beyond what exp can hold", Probe(p.name, p.q * 64, k, p.v)
    if launcher.scale:
        yield "a scale of its own, 0.3", make("scale", 3, 7, scale=0.3)
    p = make("tiles", 2, 70)
    q = torch.cat([p.q[..., :1, :], -p.q[..., :1, :]], -2)
    yield "70 keys: several tiles", rising(Probe(p.name, q, p.k, p.v))
    yield "66 queries: several programs", make("queries", 66, 3)
    if launcher.causal:
        for title, name, M, N in (
            ("causal, fewer queries than keys", "causal_fewer", 5, 9),
            ("causal, more queries than keys", "causal_more", 9, 5),
            ("causal, several tiles", "causal_tiles", 12, 40),
        ):
            yield title, make(name, M, N, causal=True)
    if launcher.causal and launcher.align:
        p = make("causal_top_left", 5, 9, causal=True, align="top_left")
        yield "causal, the mask's corner at the top left", p
    p = make("grouped", 2, 5, heads=(1, 4))
    yield "two heads of queries for each head of keys", Probe(p.name, p.q, p.k[:, :2], p.v[:, :2])
    p = make("half", 4, 9)
    yield "float16", Probe(p.name, p.q.half(), p.k.half(), p.v.half())


# What is recorded.


def rows(room: str, result: str, each: Callable[..., Iterator[Row]]) -> Iterator[Row]:
    """A row for each problem and then one for each mistake, for the data file.

    `result`: the function of problems.py that yields the problems.
    """
    problems: list[Problem] = list(getattr(load(room, "problems"), result)())
    names = list(dict.fromkeys(p.name for p in problems))
    problems.sort(key=lambda p: names.index(p.name))  # equal numbers side by side pack well
    if len({(p.file, p.group, p.name) for p in problems}) != len(problems):
        raise ValueError(f"{room}: two problems have the same name")
    files = {p.file for p in problems}
    wrong = {mutant.name: (file, mutant, module) for file, mutant, module in _wrong(room, files)}
    tables: list[dict[str, int]] = [{} for _ in problems]  # fingerprint → its number
    recorded = [_recorded(load(room, p.file), p) for p in problems]
    mistakes: list[Row] = list(_modeled(problems, tables))
    for step in each(variant=list(wrong)):
        file, mutant, module = wrong[step["variant"]]
        # A variant of the kernel says nothing of the exercise, which has the same problems.
        numbers = [
            _of_variant(module, p, table) if (p.file == "exercise") == (file == "exercise") else -1
            for p, table in zip(problems, tables, strict=True)
        ]
        row = {"mistake": mutant.name, "source": "variant"}
        mistakes.append(row | {"sentence": mutant.diagnosis, "prints": [numbers]})
    for row, table in zip(recorded, tables, strict=True):
        yield row | {"prints": list(table)}
    yield from mistakes


def _recorded(module: ModuleType, p: Problem) -> Row:
    """What the launcher launches on a problem, and the right result."""
    with launches.recorded(p.inputs) as seen:
        out = p.call(module, p.inputs)
    results = list(out) if isinstance(out, tuple | list) else [out]
    places = [seen.place(x, f"out{i or ''}") for i, x in enumerate(results)]
    for x, want, allowed in zip(results, p.expected, p.allowed, strict=True):
        same = x.double() == want  # an infinity equals itself
        apart = (x.double() - want).abs().masked_fill(same, 0.0).max().item()
        if not apart <= allowed:
            raise ValueError(f"{p.group}, {p.name}: the launcher is wrong by {apart:.1e}")
    return {
        "problem": p.name,
        "group": p.group,
        "file": p.file,
        "title": p.title,
        "launches": seen.rows,
        "storages": seen.memory(),
        "outputs": [
            place | _expected(want, allowed)
            for place, want, allowed in zip(places, p.expected, p.allowed, strict=True)
        ],
    }


def _expected(want: Tensor, allowed: float) -> Row:
    """The right result in 32 bits, or where that takes much room in 16 and with as wide a bound."""
    if want.numel() <= MOST_IN_FULL:
        return {"float32": launches.float32(want), "allowed": allowed}
    rounding = torch.finfo(torch.float16).eps * want.abs().max().item()
    text = launches.float16(want.flatten().tolist())
    return {"float16": text, "allowed": allowed + rounding}


def _number(table: dict[str, int], text: str) -> int:
    return table.setdefault(text, len(table))


def _prints(results: Sequence[Tensor]) -> str:
    return launches.float16([x for out in results for x in launches.prints(out)])


def _modeled(problems: Sequence[Problem], tables: Sequence[dict[str, int]]) -> Iterator[Row]:
    """What each model of a mistake would return; -1 where it does not say."""
    if not any(p.probe for p in problems):
        return
    right = [_number(t, _prints(_rounded(p))) for p, t in zip(problems, tables, strict=True)]
    for name, mistake in MISTAKES.items():
        if mistake.rounding:
            continue  # no fingerprint is fine enough to tell roundings apart
        ways = []
        for model in mistake.models:
            numbers = []
            for p, table in zip(problems, tables, strict=True):
                wrong = _by_model(p, model)
                numbers.append(-1 if wrong is None else _number(table, _prints([wrong])))
            differs = any(a not in (-1, b) for a, b in zip(numbers, right, strict=True))
            if differs and numbers not in ways:
                ways.append(numbers)
        if ways:
            yield {"mistake": name, "source": "model", "sentence": mistake.sentence, "prints": ways}


def _by_model(p: Problem, model: Change) -> Tensor | None:
    """What a kernel with a mistake would return; None where its model does not say."""
    if p.probe is None or len(p.expected) > 1:  # a model knows one result
        return None
    if "v" in p.inputs:
        found = output(p.probe, model)
    else:
        probe = _as_weights(p.probe)
        changed = model(probe)
        if changed is None or changed.keys() & {"v", "of_v"}:
            return None  # a mistake with values, which this launcher does not take
        try:
            found = attend(probe, **changed)
        except (RuntimeError, IndexError):
            return None  # values instead of keys have another shape
    return None if found is None else found.to(p.probe.q.dtype)


def _rounded(p: Problem) -> list[Tensor]:
    """The right results as a launcher would return them."""
    dtype = next(iter(p.inputs.values())).dtype
    return [want.to(dtype) for want in p.expected]


def _of_variant(module: ModuleType, p: Problem, table: dict[str, int]) -> int:
    """The number of what a wrong variant returns on a problem; -1 if it fails there."""
    memory = Memory(p.inputs)  # outside of tensors lies 0, and what nobody wrote is NaN
    try:
        with memory:
            out = p.call(module, memory.inputs)
    except Exception:  # noqa: BLE001 - a wrong kernel may fail in any way
        return -1
    results = list(out) if isinstance(out, tuple | list) else [out]
    return _number(table, _prints(results))


def _wrong(room: str, files: Container[str]) -> Iterator[tuple[str, Mutant, ModuleType]]:
    """(file, mutant, module) of each wrong variant of the room's files whose kernels are changed.

    `EXERCISE` of mutants.py lists wrong answers to exercise.py.
    """
    if not room_file(room, "mutants.py").exists():
        return
    listed = load(room, "mutants")
    with tempfile.TemporaryDirectory() as folder:
        for file, name in (("kernel", "MUTANTS"), ("exercise", "EXERCISE")):
            mutants: list[Mutant] = getattr(listed, name, []) if file in files else []
            mutants = [x for x in mutants if not x.file]  # those of other files have no problems
            source = room_file(room, f"{file}.py").read_text("utf-8") if mutants else ""
            source = source.replace("from .", f"from snippets.{room}.")
            for number, mutant in enumerate(mutants):
                changed = mutate(source, mutant)
                if kernels_of(changed) == kernels_of(source):
                    continue  # a mistake of the launcher, which no reader of the page can make
                path = Path(folder) / f"variant_{file}_{number}.py"
                path.write_text(changed, "utf-8")
                module = load_file(path, f"problems_{room}_{file}_{number}")
                yield file, mutant, module


def kernels_of(source: str) -> list[str]:
    """The jit functions of a file, as text without comments."""
    return [
        ast.unparse(node)
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
        and any("jit" in ast.unparse(d).partition("(")[0] for d in node.decorator_list)
    ]
