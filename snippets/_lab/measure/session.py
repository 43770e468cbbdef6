"""Runs the bench functions of the rooms and stores what they return."""

import contextlib
import functools
import itertools
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from snippets._lab.diagnose.examination import name_of
from snippets._lab.judge import mutants, problems
from snippets._lab.judge.oracle import NumericalMismatch, assert_some_rows, make_qkv
from snippets._lab.measure import ceilings, machine, regimes
from snippets._lab.measure.competitors import (
    Attention,
    Unavailable,
    bind,
    in_a_line,
    is_ours,
    layout_of,
    own_layout,
    resolve,
    version_of,
)
from snippets._lab.measure.timing import Flush, time_interleaved
from snippets._lab.probe import compiled
from snippets._lab.results import history, origin, physics, runs, staleness, store
from snippets._lab.results.result import folder_name
from snippets._lab.results.validate import faults
from snippets._lab.rooms import (
    DATA,
    UnknownName,
    for_scripts,
    interpreted,
    load,
    results,
    room_file,
    rooms,
    source_file,
)

SEED = 0
UP_TO_DATE = "up to date"
REPORT_SECONDS = 300  # for a kernel's own check, compiling included
TARGETS = ("sm_75", "sm_80", "sm_90", "sm_100")
Row = dict[str, Any]
Make = Callable[[], Attention | None]


@dataclass
class Lab:
    """What a bench function is given: where it runs, and the instruments."""

    place: str
    target: str = ""  # of a compiler result, e.g. "sm_90"
    advance: Callable[[str], None] = lambda case: None
    flush: Flush | None = None
    run: int = 0  # the number of a run draws the order of its competitors

    def each(self, **axes: Sequence[Any]) -> Iterator[Row]:
        """Every combination of the axes, last axis fastest; tells which is under way."""
        for values in itertools.product(*axes.values()):
            case = dict(zip(axes, values, strict=True))
            self.advance(", ".join(f"{k} {v}" for k, v in case.items()))
            yield case

    def qkv(self, case: Row, device: str | None = None) -> tuple[torch.Tensor, ...]:
        """q, k, v of a case (N, D, dtype; M, batch, heads and heads_kv where given), on this lab's
        device."""
        lead = tuple(case[name] for name in ("batch", "heads") if name in case)
        q, k, v = make_qkv(
            *lead,
            M=case.get("M", case["N"]),
            N=case["N"],
            D=case["D"],
            dtype=getattr(torch, case["dtype"]),
            device=device or ("cuda" if self.place == "gpu" else "cpu"),
            seed=SEED,
        )
        if "heads_kv" in case:
            k, v = (x[..., : case["heads_kv"], :, :].contiguous() for x in (k, v))
        return q, k, v

    def resources(self, launcher: Callable[..., Any], *tensors: torch.Tensor) -> Iterator[Row]:
        """Registers, spills, stack and shared memory of the kernels that the launcher launches.

        On a GPU those of the loaded kernels, elsewhere those compiled ahead of time for the target.
        """
        yield from (kernel.as_row() for kernel in self.kernels(launcher, *tensors))

    def kernels(
        self, launcher: Callable[..., Any], *tensors: torch.Tensor
    ) -> list[compiled.Resources]:
        """The kernels behind `resources`, with their machine code."""
        if self.place == "gpu":
            return compiled.from_loaded(launcher, *tensors)
        return self.compiler.resources(launcher, tensors, target=self.target)

    def ahead_of_time(self, launcher: Callable[..., Any], *tensors: torch.Tensor) -> Iterator[Row]:
        """As `resources`, but compiled ahead of time on a GPU too, for the GPU at hand.

        So the seconds to compile are known, and a kernel that takes too long is stopped under the
        compiler's cap: its "error" is then "> 20 s", and it must not be launched.
        """
        target = self.target or f"sm_{machine.gpu()['capability'].replace('.', '')}"
        found = self.compiler.resources(launcher, tensors, target=target)
        yield from (kernel.as_row() for kernel in found)

    @functools.cached_property
    def compiler(self) -> compiled.Compiler:
        """One compiling process for all cases of a result; it ends with this object."""
        return compiled.Compiler(keeps=self.place == "gpu")

    def time_attention(
        self,
        case: Row,
        names: Iterable[str],
        variants: Mapping[str, Attention] | None = None,
        within: Sequence[str] = (),
    ) -> Iterator[Row]:
        """Time the named implementations on one case, interleaved; one row for each.

        A name whose room does not exist yet is left out. A competitor that is missing, that fails
        or that is wrong becomes a row that says so, and the others go on; so does what runs out of
        memory. Each gets its tensors in the memory order that its own authors call it with.
        `variants` are further functions of q, k, v, by the name their rows get. Where the case says
        so they are called with causal=True, and the FLOPs are those of the visible scores. Times
        are queued; of the regimes `within` there is a row for each, which names it.
        """
        self._require_gpu()
        q, k, v = self.qkv(case)
        makers: dict[str, Make] = {name: functools.partial(resolve, name) for name in names}
        one_of = {layout_of(name): name for name in makers}
        laid_out = {layout: own_layout(name, q, k, v) for layout, name in one_of.items()}
        shared = q.dim() > 2 and q.shape[-3] != k.shape[-3]
        options = {"causal": True} if case.get("causal") else {}

        def asked(name: str) -> tuple[tuple[torch.Tensor, ...], Row]:
            more = {"enable_gqa": True} if shared and name.startswith("torch:") else {}
            return laid_out.get(layout_of(name), (q, k, v)), options | more

        # Ours have passed the check of their room.
        functions = yield from self._right(case, makers, is_ours, asked)
        functions |= variants or {}
        (M, D), N = q.shape[-2:], k.shape[-2]
        heads = q.numel() // (M * D)
        scores = sum(min(N, max(0, m + 1 + N - M)) for m in range(M)) if options else M * N
        tensors = 2 * q.numel() + k.numel() + v.numel()  # q and the result, k, v
        for regime in within or [""]:
            at = {**case, "regime": regime} if regime else case
            here, calls = functions, dict[str, Callable[[], object]]()
            if regime == regimes.COMPILED:
                torch._dynamo.reset()  # beyond its limit of recompilations it would give up
                makers = {name: functools.partial(regimes.compiled, name) for name in functions}
                here = yield from self._right(at, makers, lambda _: False, asked)
            for name, function in here.items():
                given, said = asked(name)
                if regime == regimes.COMPILED:
                    calls[name] = functools.partial(function, *given, **said)
                else:
                    calls[name] = bind(name, function, *given, **said)
            yield from self.time(
                at, calls, flops=4 * heads * scores * D, bytes_compulsory=tensors * q.element_size()
            )

    def _right(
        self,
        case: Row,
        makers: Mapping[str, Make],
        trusted: Callable[[str], bool],
        asked: Callable[[str], tuple[tuple[torch.Tensor, ...], Row]],
    ) -> Generator[Row, None, dict[str, Attention]]:
        """The functions that are there and give the right result; a row for each other one."""
        right: dict[str, Attention] = {}
        for name, make in makers.items():
            try:
                function = make()
                if function is None:
                    continue
                if not trusted(name):
                    tensors, options = asked(name)
                    causal = options.get("causal", False)
                    assert_some_rows(function(*tensors, **options), *tensors, causal=causal)
                right[name] = function
            except Exception as error:
                if trusted(name) and not isinstance(error, torch.cuda.OutOfMemoryError):
                    raise
                yield {"implementation": name, **case, "error": why_not(error)}
        return right

    def _require_gpu(self) -> Flush:
        if self.flush is None:
            raise RuntimeError("timing needs a GPU; mark the result measured_on('gpu')")
        return self.flush

    def time(
        self,
        case: Row,
        calls: Mapping[str, Callable[[], object]],
        *,
        flops: float,
        bytes_compulsory: int,
    ) -> Iterator[Row]:
        """Time calls that do the same work, interleaved; one row for each.

        The case names the dtype, and the regime if it is not queued. `flops` and `bytes_compulsory`
        (what must move between the chip and its memory) are those of one call. A call that runs out
        of memory gets a row that says so, and the others are timed without it; so does one of
        somebody else that fails, and one of ours that cannot be captured or compiled. The row of a
        competitor says how its tensors lie in memory, and which version was brought along.
        """
        flush = self._require_gpu()
        regime = case.get("regime", regimes.QUEUED)
        prepared = regime in (regimes.IN_A_GRAPH, regimes.COMPILED)
        fits: dict[str, Callable[[], object]] = {}
        for name, call in calls.items():
            try:
                fits[name] = regimes.in_a_graph(call) if regime == regimes.IN_A_GRAPH else call
                fits[name]()
            except Exception as error:
                short = isinstance(error, torch.cuda.OutOfMemoryError)
                if is_ours(name) and not prepared and not short:
                    raise
                fits.pop(name, None)
                yield {"implementation": name, **case, "error": why_not(error)}
        if not fits:
            return
        l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        order = list(fits)
        if self.run:
            random.Random(self.run).shuffle(order)
        fits = {name: fits[name] for name in order}
        if regime == regimes.QUEUED:
            times = time_interleaved(fits, flush)
        elif regime == regimes.CLEAN:
            times = time_interleaved(fits, flush, clean=True)
        elif regime == regimes.SUSTAINED:
            with machine.ClockWatch(regimes.READ_EVERY) as watch:
                times = {name: regimes.sustained(call, watch) for name, call in fits.items()}
        else:
            times = regimes.as_called(fits, flush)
        for name in [name for name in calls if name in times]:
            about = {"layout": layout_of(name), "version": version_of(name)}
            yield {
                "implementation": name,
                **case,
                **times[name].as_row(),
                "flops": flops,
                "bytes_compulsory": bytes_compulsory,
                "fits_l2": bytes_compulsory < l2,
                **{field: told for field, told in about.items() if told},
            }


def why_not(error: Exception) -> str:
    """Why a competitor has no time, as a row says it."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        torch.cuda.empty_cache()
        return "out of memory"
    if isinstance(error, Unavailable):
        return f"{error}"
    if isinstance(error, NumericalMismatch):
        return f"wrong: {error}".splitlines()[0]
    return f"fails: {in_a_line(error)}"


MakeRows = Callable[[Lab], Iterable[Row]]


@dataclass
class Job:
    """One result to measure on one device."""

    post: str
    result: str
    place: str
    folder: str
    device: Row
    make_rows: MakeRows
    code: staleness.Code  # what was imported: the files may be edited while it is measured
    target: str = ""


@dataclass
class Session:
    """One run of bench or bench-cpu: what its results share."""

    data: Path = DATA
    commit: str = ""
    force: bool = False
    runs: int = 1  # in which a GPU's times are to be taken: each `run` adds one
    advance: Callable[[str], None] = lambda case: None
    _flush: Flush | None = None
    compiler: compiled.Compiler = field(default_factory=compiled.Compiler)
    _ceilings: Row = field(default_factory=dict)
    _checked: set[str] = field(default_factory=set)

    def wants(self, job: Job) -> bool:
        """Whether `run` would measure it.

        A result stands if its code, torch and triton are those it was measured with, and if its
        times were taken in as many runs as are asked for.
        """
        old = self._before(job)
        wanted = self.runs if job.place == "gpu" else 1
        return self.force or old is None or runs.taken(old) in range(1, wanted)

    def _before(self, job: Job) -> store.Result | None:
        """What is stored of a job, if it was measured with the same code, torch and triton."""
        path = store.path_of(job.folder, job.post, job.result, self.data)
        try:
            old = store.read(path, self.data)
        except store.DataError:
            return None  # missing, damaged or of an old schema: measure again
        now = self._versions(job.place)
        same = all(old.versions.get(p) == now[p] for p in ("torch", "triton"))
        return old if same and old.code == job.code else None

    def _versions(self, place: str) -> dict[str, str]:
        """What a result is made with; one that was compiled, with the Triton that was timed."""
        timed = self._timed_triton if place == "compiler" else ""
        return machine.versions() | ({"triton": timed} if timed else {})

    @functools.cached_property
    def _timed_triton(self) -> str:
        return store.timed_with("triton", self.data)

    def run(self, job: Job) -> str:
        """Measure and store one result, or one more run of it; the outcome in words.

        A run is added to those before it if code, versions and machine are theirs.
        Raises what the measuring raises.
        """
        if not self.wants(job):
            return UP_TO_DATE
        before = None if self.force or job.place != "gpu" else self._before(job)
        if before and before.versions != machine.versions():
            before = None
        if before and not runs.same_machine(before.device, job.device):
            before = None
        earlier = runs.taken(before) if before else 0
        path = store.path_of(job.folder, job.post, job.result, self.data)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(f"{path.parent} cannot be written to; nothing was measured")
        if job.place == "gpu":
            self._prepare_gpu()
        self._check_room(job)
        flush = self._flush if job.place == "gpu" else None
        lab = Lab(job.place, job.target, self.advance, flush, earlier)
        if job.place == "compiler":  # one process for all of them: starting it takes seconds
            lab.compiler = self.compiler
            self.compiler.version = self._versions(job.place)["triton"]
        watch = machine.ClockWatch() if job.place == "gpu" else contextlib.nullcontext()
        with watch:
            rows = list(job.make_rows(lab))
        if job.place == "gpu":
            for row in rows:
                physics.refuse_impossible(row, self._ceilings)
            job.device.update(watch.summary())  # type: ignore[union-attr]
        result = store.Result(
            post=job.post,
            result=job.result,
            place=job.place,
            folder=job.folder,
            device=job.device,
            versions=self._versions(job.place),
            commit=self.commit or origin.commit(),
            measured_at=origin.now(),
            seed=SEED,
            source_hash=staleness.source_hash(job.code),
            rows=rows,
            ceilings=self._ceilings if job.place == "gpu" else {},
            code=job.code,
        )
        if before and earlier:
            result = runs.added(before, result)
        else:
            with contextlib.suppress(store.DataError):  # nothing that could be read comes before it
                result = history.following(result, store.read(path, self.data))
        if wrong := next(faults(result), None):  # reading would refuse it
            raise store.DataError(f"{result.post}/{result.result}: {wrong}")
        store.write(result, self.data)
        failed = sum(bool(row.get("error")) for row in rows)
        told = f"{len(rows)} rows" + (f", {failed} of them without a value" if failed else "")
        several = self.runs > 1 and runs.taken(result)
        return told + (f", run {earlier + 1} of {self.runs}" if several else "")

    def _prepare_gpu(self) -> None:
        if self._flush is None:
            self.advance("ceilings of the device")
            flush = Flush()
            self._ceilings = ceilings.measure(flush)
            self._flush = flush  # last: without ceilings the next result measures them again

    def _check_room(self, job: Job) -> None:
        """No number from a wrong kernel: the room's check must pass on this device first."""
        if job.place == "compiler" or job.post in self._checked:
            return
        self.advance("correctness")
        load(job.post, "bench").check("cuda" if job.place == "gpu" else "cpu")
        self._checked.add(job.post)


def jobs(place: str, post: str | None = None, result: str | None = None) -> list[Job]:
    """What there is to measure at a place, in the order of rooms and their bench files."""
    if place == "gpu":
        device = machine.gpu()
        folder = folder_name(device["name"])
    else:
        device, folder = {"name": "Triton's interpreter"}, place
    found, compiles = [], place == "compiler"
    for room in rooms() if post is None else [post]:
        wanted: dict[str, tuple[tuple[str, ...], MakeRows]] = {
            name: (function.measured_on, function)  # type: ignore[attr-defined]
            for name, function in results(room).items()
        }
        if source_file(room).exists():
            runs_on = ("gpu", "interpreter") if interpreted(room) else ("gpu",)
            wanted["report"] = runs_on, functools.partial(_report, room)
        if room_file(room, "mutants.py").exists():
            wanted["mutants"] = ("interpreter",), functools.partial(_mutants, room)
        for name in for_scripts(room):  # what the page's own interpreter is given
            wanted[name] = ("interpreter",), functools.partial(_problems, room, name)
        played = place == "interpreter" and source_file(room).exists() and not interpreted(room)
        for name, (places, function) in wanted.items():
            if place not in places or result not in (None, name):
                continue
            try:
                code = staleness.code_of(room, name, place)
            except ValueError as error:
                raise UnknownName(f"{room}/{name} cannot be measured: {error}") from None
            for target in getattr(function, "targets", ()) or TARGETS if compiles else [""]:
                where = f"{folder}/{target}" if target else folder
                about = {"name": f"{target}, compiled ahead of time"} if target else dict(device)
                if played:
                    about = {"name": "plain Python"}  # the room plays its kernel without Triton
                found.append(Job(room, name, place, where, about, function, code, target))
    return found


def _mutants(room: str, lab: Lab) -> Iterator[Row]:
    return mutants.rows(room, lab.each, derive=name_of)


def _problems(room: str, name: str, lab: Lab) -> Iterator[Row]:
    return problems.rows(room, name, lab.each)


def _report(room: str, lab: Lab) -> Iterator[Row]:
    """What `python kernel.py` prints when the file lies alone in an empty folder."""
    for _ in lab.each(command=[f"python {source_file(room).name}"]):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / source_file(room).name
            copy.write_bytes(source_file(room).read_bytes())
            environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
            done = subprocess.run(
                [sys.executable, copy.name],
                capture_output=True,
                text=True,
                timeout=REPORT_SECONDS,
                cwd=folder,
                env=environment,
            )
        if done.returncode != 0:
            raise RuntimeError(f"{copy.name} alone failed:\n{done.stdout}{done.stderr}")
        yield from ({"line": line} for line in done.stdout.splitlines())
