"""Makes Triton's interpreter quicker; what it computes stays as it is."""

import functools
from collections.abc import Callable
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
