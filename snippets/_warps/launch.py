"""A launcher of a Gluon kernel on a CPU: its programs are traced, or played with numbers."""

import contextlib
import itertools
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from snippets._lab.judge.oracle import NumericalMismatch

from .gluon import Pointer, Program, Scalar
from .role_traces import Fault, Trace
from .simulation import Simulation


@contextlib.contextmanager
def played(
    launcher: Any, *, seed: int = 0, programs: int = 3, source: str = "", **assumed: Any
) -> Iterator[None]:
    """The launcher takes tensors on a CPU; each program has an order of events of its own.

    `programs` is how many multiprocessors there are, `source` the kernel's text, if not its file's,
    and `assumed` are other names of its module. Raises NumericalMismatch for a Fault: in some order
    the numbers would be wrong.
    """
    seeds = itertools.count(seed)

    def play(run: Callable[..., Trace], number: int) -> None:
        try:
            Simulation(run(numbers=True)).run(random.Random(f"{next(seeds)} {number}"))
        except Fault as fault:
            raise NumericalMismatch(str(fault)) from fault

    with _launched(launcher, source, play, programs, assumed):
        yield


@contextlib.contextmanager
def traced(
    launcher: Any, *, programs: int = 3, made: Any = Program, **assumed: Any
) -> Iterator[list[Trace]]:
    """The launcher computes nothing and fills a list: the trace of each program it launches."""
    found: list[Trace] = []
    others = {"_prepare_kernel", "_finish_kernel"} & set(launcher.__globals__)
    assumed |= dict.fromkeys(others, _Kernel(lambda *_, **__: None))
    with _launched(launcher, "", lambda run, _: found.append(run(made=made)), programs, assumed):
        yield found


@contextlib.contextmanager
def _launched(
    launcher: Any, source: str, each: Callable[..., Any], programs: int, assumed: dict[str, Any]
) -> Iterator[None]:
    """The launcher hands its programs to `each`, as on a GPU with so many multiprocessors."""
    names = launcher.__globals__
    kernel = f"_{launcher.__name__}_kernel"
    source = source or Path(names["__file__"]).read_text("utf-8")

    def launch(grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
        given = [_argument(x) for x in arguments]
        named = {name: _argument(x) for name, x in options.items()}
        for number in range(grid[0]):

            def run(made: Any = Program, number: int = number, **how: Any) -> Trace:
                program = made(source, number, grid[0], **how)
                program.names[kernel](*given, **named)
                return program.trace

            each(run, number)

    values: dict[str, Any] = {kernel: _Kernel(launch)}
    if "_multiprocessors" in names:
        values["_multiprocessors"] = lambda device: programs
    if refusals := names.get("_refusals"):

        def refused_on_a_gpu(*given: Any) -> Iterator[Exception]:
            with replaced(names, {"_capability": lambda device: (9, 0)}):
                yield from refusals(*map(_on_gpu, given))

        values["_refusals"] = refused_on_a_gpu
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small
    try:
        with replaced(names, values | assumed):
            yield
    finally:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def replaced(names: dict[str, Any], values: dict[str, Any]) -> Iterator[None]:
    """Some names of a module with other values; Triton's interpreter may add names meanwhile."""
    before = {name: names[name] for name in values}
    names.update(values)
    try:
        yield
    finally:
        names.update(before)


class _Kernel:
    """What a launcher calls as kernel[grid](…)."""

    def __init__(self, launch: Callable[..., Any]) -> None:
        self.launch = torch.no_grad()(launch)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        return lambda *arguments, **options: self.launch(grid, *arguments, **options)


def _argument(x: Any) -> Any:
    """An argument of a launch as the kernel's functions take it."""
    if isinstance(x, Tensor):
        return Pointer(x.view(-1))
    if hasattr(x, "block_shape"):  # a descriptor
        size = SimpleNamespace(nbytes=x.base.element_size() * math.prod(x.block_shape))
        block = list(x.block_shape)
        return SimpleNamespace(
            base=x.base, block_shape=block, dtype=x.base.dtype, layout=None, block_type=size
        )
    return Scalar(x) if isinstance(x, int) and not isinstance(x, bool) else x


class OnGpu(Tensor):
    """A tensor that says it is on a GPU: what checks inputs asks for nothing else."""

    __module__, __qualname__ = "torch", "Tensor"  # what an error calls it
    device = property(lambda self: torch.device("cuda", 0))

    def __repr__(self, **_: Any) -> str:
        return repr(self.as_subclass(Tensor))


def _on_gpu(x: Any) -> Any:
    if isinstance(x, tuple | list):
        return type(x)(map(_on_gpu, x))
    if not isinstance(x, Tensor) or x.device.type != "cpu":
        return x
    # A sparse tensor has no memory to be seen as another class; it is refused as it is.
    return x if x.is_nested or x.layout != torch.strided else x.as_subclass(OnGpu)
