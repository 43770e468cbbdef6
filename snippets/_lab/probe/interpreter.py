"""Makes Triton's interpreter quicker, and teaches it an instruction that it lacks."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any


@functools.cache
def patch_once_a_launch() -> None:
    """Let a launch replace the functions of triton.language once, not at every call inside it.

    Triton 3.6.0 looks through all of the language at each call of a jit function from a kernel,
    tl.sum for one, and finds what it has replaced already: up to half of the time. Which functions
    are looked through depends on the module that the jit function stands in; once for each will do.
    """
    from triton.runtime import interpreter

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
