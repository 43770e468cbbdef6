"""Registers, spills, stack and shared memory of the kernels that a launcher launches.

Two ways to the same `Resources`:

- a `Compiler` needs no GPU. It runs the launcher with every launch intercepted, then compiles what
  would have been launched, for any target, in a process of its own where Triton's interpreter is
  off. A compilation that takes longer than the cap is stopped and says so.
- `from_loaded` runs the launcher on the GPU and asks the kernels that were loaded.

Where the numbers come from: registers, stack and spills are what `ptxas -v` says when Triton runs
it, with Triton's own flags (from_loaded takes registers from the driver); shared memory is
Triton's metadata, because Triton asks for it at launch and ptxas never sees it; the tensor-core
instruction is read from the PTX. All counts are per thread except shared memory (per program).
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDAOptions
from triton.compiler.compiler import make_backend
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonTensorDescriptor
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from snippets._lab.child import Child, Ended, TooSlow
from snippets._lab.probe.gpus import ARCHITECTURES
from snippets._lab.rooms import ROOT, load_file

SHARED_LIMIT = {target: limits.shared_block for target, limits in ARCHITECTURES.items()}
TENSOR_MEMORY_COLUMNS = 512  # sm_100; Triton refuses to load a kernel that asks for more
START_SECONDS = 120.0  # for the compiling process to import torch and triton

# What PTX calls a matrix product on tensor cores: name for a table, text to look for.
TENSOR_CORE = (
    ("tcgen05", "tcgen05.mma"),
    ("wgmma", "wgmma.mma_async"),
    ("mma", "mma.sync"),
    ("mfma", "v_mfma_"),  # AMD's, in its assembly
)


@dataclass(frozen=True)
class Resources:
    """What one kernel of one launch needs. A number that is not known is None, never 0."""

    kernel: str
    target: str  # "sm_90"
    num_warps: int
    num_stages: int
    registers: int | None = None  # 32-bit registers a thread
    spill_store_bytes: int | None = None  # a thread
    spill_load_bytes: int | None = None  # a thread
    stack_bytes: int | None = None  # a thread; spills live here
    shared_bytes: int | None = None  # a program
    tensor_core: str | None = None  # "none", "mma", "wgmma", "tcgen05" or "mfma"
    compile_seconds: float | None = None  # wall time, nothing cached; None for a loaded kernel
    local_words: int | None = None  # Triton's n_spills: 4-byte words of local memory, loaded only
    error: str | None = None  # why the kernel cannot run on the target, or "> 20 s"
    ptx: str = field(default="", repr=False)  # for an AMD target its assembly
    cubin: bytes = field(default=b"", repr=False)
    said: str = field(default="", repr=False)  # by ptxas, its warnings among it

    def as_row(self) -> dict[str, Any]:
        """The fields but ptx, cubin and said, for JSON."""
        row = dataclasses.asdict(self)
        del row["ptx"], row["cubin"], row["said"]
        return row

    def sass(self, option: str = "-sass") -> str:
        """The machine code as text, from the wheel's `cuobjdump`, or what another option tells."""
        if not self.cubin:
            raise ValueError(f"{self.kernel} has no cubin for {self.target}: {self.error}")
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(self.cubin)
            file.flush()
            command = [triton.knobs.nvidia.cuobjdump.path, option, file.name]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def from_loaded(launcher: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Resources]:
    """Run the launcher once on the GPU: the resources of each kernel it launched, in order.

    ptxas runs once more on the loaded kernel's PTX, with Triton's flags, for its words on stack
    and spills: a kernel from Triton's cache comes without them.

    Raises:
        RuntimeError: no compiled kernel was launched (the interpreter is on, or no GPU).
    """
    launched: list[Any] = []
    original = JITFunction.run

    def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        compiled = original(kernel, *args, **kwargs)
        if compiled is not None and not any(compiled is other for other in launched):
            launched.append(compiled)
        return compiled

    with patch.object(JITFunction, "run", run):
        launcher(*args, **kwargs)
    if not launched:
        raise RuntimeError(
            "no compiled kernel was launched; from_loaded needs a GPU, and TRITON_INTERPRET unset "
            "before the kernel's module is imported"
        )
    found = []
    for compiled in launched:
        backend = make_backend(compiled.metadata.target)
        options = backend.parse_options(compiled.metadata._asdict())
        with _ptxas_log() as log:
            backend.make_cubin(compiled.asm["ptx"], {}, options, compiled.metadata.target.arch)
        resources = _described(compiled, log.getvalue())
        found.append(
            dataclasses.replace(resources, registers=compiled.n_regs, local_words=compiled.n_spills)
        )
    return found


class Compiler:
    """A process that compiles what launchers would launch. A context manager.

        with Compiler() as compiler:
            compiler.resources(basic_attention, (q, k, v), target="sm_90")

    cap_seconds bounds each kernel (importing its file included), not the whole; the process is
    replaced after a capped one. With `keeps` a kernel goes to Triton's own cache, where a launch
    finds it: on the GPU that it was compiled for nobody compiles it a second time. `version` may
    be another Triton's than the one installed, which `make .cache/triton-3.6.0` has put there.
    """

    version = triton.__version__

    def __init__(self, cap_seconds: float = 20.0, *, keeps: bool = False) -> None:
        self._cap_seconds = cap_seconds
        self._keeps = keeps
        self._child: Child | None = None

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def resources(
        self,
        launcher: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        *,
        target: str,
    ) -> list[Resources]:
        """The resources of each kernel that `launcher(*args, **kwargs)` launches, in order.

        The launcher runs here, on tensors it accepts here, and its kernels do not: a launcher that
        branches on a kernel's result cannot be described.

        Raises:
            ValueError: the target is unknown, or the kernel is not at the top level of a file.
            RuntimeError: the launcher launched nothing, or the compiling process does not start.
            Whatever the launcher raises: a refusal is its caller's business.
        """
        return [self.compiled(x) for x in self.launches(launcher, args, kwargs, target=target)]

    def launches(
        self,
        launcher: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        *,
        target: str,
    ) -> list[Launch]:
        """What `launcher(*args, **kwargs)` would launch, in order; nothing is compiled yet.

        Raises what `resources` raises.
        """
        if target not in SHARED_LIMIT:
            raise ValueError(f"target is {target!r}; one of {', '.join(SHARED_LIMIT)} is allowed")
        return [
            Launch.of(kernel, a, k, target) for kernel, a, k in _launches(launcher, args, kwargs)
        ]

    def compiled(self, cell: Launch) -> Resources:
        """The resources of one launch."""
        child = self._started()
        said_before = self._messages.stat().st_size
        child.send(cell)
        try:
            answer: Resources = child.receive(self._cap_seconds)
        except TooSlow:
            self._stop()
            return cell.failed(f"> {self._cap_seconds:g} s")
        except Ended as error:
            self._stop()
            return cell.failed(f"the compiler has no answer: {error}")
        if answer.error and not answer.ptx:  # Triton's passes print the reason, and raise less
            said = self._messages.read_bytes()[said_before:].decode(errors="replace")
            reasons = re.findall(r"error: (.*)", said)
            if reasons and reasons[0] not in answer.error:
                return dataclasses.replace(answer, error=f"{answer.error} ({reasons[0]})")
        return answer

    def _started(self) -> Child:
        if self._child is not None:
            return self._child
        # Triton's cache and ptxas's temporary files; a stopped compilation leaves some behind.
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._messages = Path(self._folder.name, "messages")
        environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
        environment |= {"TRITON_ALWAYS_COMPILE": "1", "TMPDIR": self._folder.name}
        if not self._keeps:
            environment["TRITON_CACHE_DIR"] = self._folder.name
        if self.version != triton.__version__:
            folder = f".cache/triton-{self.version}"
            if not (ROOT / folder).is_dir():
                raise RuntimeError(f"Triton {self.version} is not there to compile: make {folder}")
            paths = [f"{ROOT / folder}", environment.get("PYTHONPATH")]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        self._child = Child(serve, fresh=True, env=environment, said=self._messages)
        try:
            found = self._child.receive(START_SECONDS)
        except (Ended, TooSlow):
            said = self._messages.read_text(errors="replace").strip().splitlines()[-1:]
            self._stop()
            raise RuntimeError(f"the compiling process did not start: {said}") from None
        if found != self.version:
            self._stop()
            raise RuntimeError(f"Triton {found} would compile, and not {self.version}")
        return self._child

    def _stop(self) -> None:
        if self._child is not None:
            self._child.stop()  # its ptxas too
            self._folder.cleanup()
        self._child = None


@dataclass(frozen=True)
class _Pointer:
    """Stands for a tensor: Triton specializes on its dtype and its 16-byte alignment only."""

    dtype: torch.dtype
    misalignment: int

    def data_ptr(self) -> int:
        return self.misalignment

    def ptr_range(self) -> int:
        return 0


@dataclass(frozen=True)
class Launch:
    """One launch, as another process can repeat it."""

    kernel: str
    module: str
    file: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    target: str

    @classmethod
    def of(cls, kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any], target: str) -> Launch:
        function = kernel.fn
        file = Path(function.__code__.co_filename)
        if "<locals>" in function.__qualname__ or not file.is_file():
            raise ValueError(
                f"kernel {function.__qualname__} is not at the top level of a file, so it cannot "
                "be found again by the process that compiles it"
            )
        return cls(
            function.__qualname__,
            function.__module__,
            str(file.resolve()),
            tuple(map(_portable, args)),
            {name: _portable(value) for name, value in kwargs.items()},
            target,
        )

    def failed(self, error: str) -> Resources:
        return Resources(
            self.kernel,
            self.target,
            self.kwargs.get("num_warps", CUDAOptions.num_warps),
            self.kwargs.get("num_stages", CUDAOptions.num_stages),
            error=error,
        )

    def found(self) -> Any:
        """The kernel, from its file as it is now: a mutant may have changed it."""
        version = (self.file, Path(self.file).stat().st_mtime_ns)
        if version not in _modules:
            _modules[version] = load_file(Path(self.file), self.module)
        kernel = getattr(_modules[version], self.kernel)
        while not isinstance(kernel, JITFunction):
            kernel = kernel.fn  # under autotune or heuristics
        return kernel


_modules: dict[tuple[str, int], ModuleType] = {}  # of the compiling process: file and its time


def _portable(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _Pointer(value.dtype, value.data_ptr() % 16)
    for descriptor in (TensorDescriptor, GluonTensorDescriptor):
        if isinstance(value, descriptor):  # or a class of a kernel.py that stands on it
            fields = {x.name: getattr(value, x.name) for x in dataclasses.fields(descriptor)}
            return descriptor(**fields | {"base": _portable(value.base)})
    return value


def _launches(
    launcher: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """(kernel, args, kwargs) of each launch, none of which happens."""
    launches = []

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        launches.append((kernel, args, kwargs))

    # Imported here: it needs NumPy, and measuring on a GPU must not.
    from triton.runtime.interpreter import InterpretedFunction

    with (
        patch.object(InterpretedFunction, "run", run),
        patch.object(JITFunction, "run", run),
        # What a launcher keeps once compiled is kept for another mode: it asks Triton again.
        patch.object(triton.knobs.compilation, "instrumentation_mode", "recorded"),
    ):
        launcher(*args, **(kwargs or {}))
    if not launches:
        raise RuntimeError(f"{getattr(launcher, '__name__', launcher)} launched no kernel")
    return launches


@contextlib.contextmanager
def _ptxas_log() -> Iterator[io.StringIO]:
    """What Triton's own run of `ptxas -v` says: Triton prints it when this knob is on."""
    log = io.StringIO()
    with triton.knobs.nvidia.scope(), contextlib.redirect_stdout(log):
        triton.knobs.nvidia.dump_ptxas_log = True
        yield log


def _described(compiled: Any, log: str) -> Resources:
    """Resources of a CompiledKernel from its metadata, its assembly and ptxas's words.

    The assembly of an AMD kernel says all of it about itself.
    """
    metadata = compiled.metadata
    amd = metadata.target.backend == "hip"
    assembly = compiled.asm["amdgcn" if amd else "ptx"]
    target = metadata.target.arch if amd else f"sm_{metadata.target.arch}"

    def said(nvidia: str, name: str) -> list[int]:  # one for each function: device functions too
        pattern = rf"(?m)^\s*\.{name}:\s*(\d+)" if amd else nvidia
        numbers = [int(number) for number in re.findall(pattern, assembly if amd else log)]
        if not numbers:
            raise RuntimeError(f"the compiler did not say {pattern!r}: {log!r}")
        return numbers

    error = None
    limit = SHARED_LIMIT.get(target)
    if limit is not None and metadata.shared > limit:
        error = f"needs {metadata.shared} bytes of shared memory; {target} allows {limit}"
    elif (getattr(metadata, "tmem_size", None) or 0) > TENSOR_MEMORY_COLUMNS:
        error = (
            f"needs {metadata.tmem_size} columns of tensor memory; {target} has "
            f"{TENSOR_MEMORY_COLUMNS}"
        )
    spilled = 4 if amd else 1  # bytes of what is counted
    return Resources(
        kernel=metadata.name,
        target=target,
        num_warps=metadata.num_warps,
        num_stages=metadata.num_stages,
        registers=max(said(r"Used (\d+) registers", "vgpr_count")),
        spill_store_bytes=spilled * sum(said(r"(\d+) bytes spill stores", "vgpr_spill_count")),
        spill_load_bytes=spilled * sum(said(r"(\d+) bytes spill loads", "vgpr_spill_count")),
        stack_bytes=max(said(r"(\d+) bytes stack frame", "private_segment_fixed_size")),
        shared_bytes=metadata.shared,
        tensor_core=next((name for name, text in TENSOR_CORE if text in assembly), "none"),
        error=error,
        ptx=assembly,
        cubin=compiled.asm["hsaco" if amd else "cubin"],
        said=log,
    )


def no_device(target: str) -> SimpleNamespace:
    """What Triton asks of a driver when it only compiles."""
    if target.startswith("gfx"):
        there = GPUTarget("hip", target, 64)
    else:
        there = GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    return SimpleNamespace(
        get_current_target=lambda: there,
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 0,
    )


@triton.jit
def _first_kernel(x_ptr):  # type: ignore[no-untyped-def]
    tl.store(x_ptr, 1.0)


def serve(connection: Connection) -> None:
    """The compiling process: answer each Launch that comes with Resources, until told to end."""
    # The first compilation also hashes Triton's library: no kernel's time.
    _compiled(_first_kernel, Launch("", "", "", (_Pointer(torch.float32, 0),), {}, "sm_90"))
    connection.send(triton.__version__)
    with contextlib.suppress(EOFError):
        while True:
            cell: Launch = connection.recv()
            try:
                answer = _compiled(cell.found(), cell)
            except Exception as error:  # noqa: BLE001 - whatever a compiler raises is the answer
                answer = cell.failed(_reason(error))
            connection.send(answer)


def _compiled(kernel: Any, cell: Launch) -> Resources:
    driver.set_active(no_device(cell.target))
    kernel.device_caches.clear()  # holds the last target, and kernels already compiled
    with _ptxas_log() as log:
        start = time.perf_counter()
        compiled = kernel.warmup(*cell.args, grid=(1,), **cell.kwargs)
        seconds = time.perf_counter() - start
    return dataclasses.replace(_described(compiled, log.getvalue()), compile_seconds=seconds)


def _reason(error: Exception) -> str:
    """One line: the innermost cause, without paths."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    complaints = [match[1] for line in lines if (match := re.search(r"error\s*: (.*)", line))]
    return f"{type(error).__name__}: {(complaints or lines[-1:] or [''])[0]}"
