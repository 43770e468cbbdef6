"""Makes Triton's interpreter quicker, and teaches it an instruction that it lacks."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any


def refuse_numpy() -> None:
    """Raise where the interpreter cannot run a loop: NumPy 2.4 makes no number of its bounds."""
    import numpy
    import triton

    version = tuple(map(int, numpy.__version__.split(".")[:2]))
    if triton.__version__.startswith("3.6.") and version >= (2, 4):
        raise RuntimeError(
            f"the interpreter of Triton {triton.__version__} cannot run a loop with NumPy "
            f"{numpy.__version__}: pip install 'numpy<2.4', or Triton 3.7"
        )


@functools.cache
def patch_once_a_launch() -> None:
    """Let a launch replace the functions of triton.language once, not at every call inside it.

    Triton 3.6.0 looks through all of the language at each call of a jit function from a kernel,
    tl.sum for one, and finds what it has replaced already: up to half of the time. Which functions
    are looked through depends on the module that the jit function stands in; once for each will do.
    """
    from triton.runtime import interpreter

    refuse_numpy()
    patch: Callable[[Any], Any] = interpreter._patch_lang  # what a later Triton lacks is an error
    launch = interpreter.GridExecutor.__call__
    launches: list[set[int]] = []  # the modules seen by each launch under way

    def patch_unless_seen(function: Any) -> Any:
        seen = launches[-1] if launches else set()
        if (module := id(function.__globals__)) in seen:
            return None
        seen.add(module)
        return patch(function)

    def launch_anew(*args: Any, **kwargs: Any) -> Any:
        launches.append(set())
        try:
            return launch(*args, **kwargs)
        finally:
            launches.pop()

    interpreter._patch_lang = patch_unless_seen
    interpreter.GridExecutor.__call__ = launch_anew
    interpreter.InterpreterBuilder.create_splat = _as_it_is(
        interpreter.InterpreterBuilder.create_splat
    )


def _as_it_is(splat: Callable[..., Any]) -> Callable[..., Any]:
    """A comparison of numbers stays one when it becomes a tile.

    Triton's interpreter makes integers of it, which its own loads and stores refuse as a mask since
    Triton 3.9.
    """

    def kept(builder: Any, kind: Any, scalar: Any) -> Any:
        handle = splat(builder, kind, scalar)
        if scalar.data.dtype.kind == "b":
            handle.data = handle.data.astype(bool)
        return handle

    return kept


@contextlib.contextmanager
def descriptors_add() -> Iterator[None]:
    """Within it the interpreter knows `descriptor.atomic_add`, which Triton 3.7 leaves out."""
    from triton._C.libtriton import ir
    from triton.runtime.interpreter import InterpreterBuilder

    def reduce(builder: Any, kind: Any, descriptor: Any, value: Any, indices: Any) -> Any:
        pointers, mask = descriptor.materialize_pointers(indices)
        if kind != ir.DESCRIPTOR_REDUCE_KIND.ADD:
            raise NotImplementedError(f"a descriptor's {kind} is not played")
        add, anywhere, relaxed = ir.ATOMIC_OP.FADD, ir.MEM_SYNC_SCOPE.GPU, ir.MEM_SEMANTIC.RELAXED
        return builder.create_atomic_rmw(add, pointers, value, mask, relaxed, anywhere)

    if hasattr(InterpreterBuilder, "create_descriptor_reduce"):
        raise RuntimeError("the interpreter has learned to add: leave this out")
    InterpreterBuilder.create_descriptor_reduce = reduce
    try:
        yield
    finally:
        del InterpreterBuilder.create_descriptor_reduce
