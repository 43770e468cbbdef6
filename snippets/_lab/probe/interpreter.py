"""Makes Triton's interpreter quicker, and nearer to what Triton compiles."""

import ast
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch


@functools.cache
def patch_once_a_launch() -> None:
    """Let a launch replace the functions of triton.language once, not at every call inside it.

    Triton 3.6.0 looks through all of the language at each call of a jit function from a kernel,
    tl.sum for one, and finds what it has replaced already: up to half of the time. Which functions
    are looked through depends on the module that the jit function stands in; once for each will do.
    """
    from triton.runtime import interpreter

    once: Callable[[Any], Any] = interpreter._patch_lang  # what a later Triton lacks is an error
    launch = interpreter.GridExecutor.__call__
    launches: list[set[int]] = []  # the modules seen by each launch under way

    def patch_unless_seen(function: Any) -> Any:
        seen = launches[-1] if launches else set()
        if (module := id(function.__globals__)) in seen:
            return None
        seen.add(module)
        return once(function)

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
def looking(*looks: tuple[type, str, Callable[..., tuple[Any, ...] | None]]) -> Iterator[None]:
    """Within it (class, method, look) is told of each call, before it happens.

    What a look returns, if anything, stands for the arguments by place.
    """

    def watched(original: Callable[..., Any], look: Callable[..., tuple[Any, ...] | None]) -> Any:
        @functools.wraps(original)
        def wrapper(self: Any, *args: Any, **named: Any) -> Any:
            return original(self, *(look(self, *args, **named) or args), **named)

        return wrapper

    with contextlib.ExitStack() as stack:
        for owner, method, look in looks:
            wrapper = watched(getattr(owner, method), look)
            stack.enter_context(patch.object(owner, method, wrapper))
        yield


@functools.cache
def patch_as_compiled() -> None:
    """Let `and`, `or`, `not`, `min`, `max` and loop variables mean in a kernel what is compiled.

    Triton compiles the first five element by element for tiles, and a loop's variable is a tensor
    of one number. Its interpreter leaves all of them to Python, where `a and b` is b.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    def value(x: Any) -> Any:
        return x.value if isinstance(x, tl.constexpr) else x

    def boolean(decides: bool, parts: tuple[Callable[[], Any], ...]) -> Any:
        found, last = None, None
        for part in parts:
            last = value(part())
            if not isinstance(last, tl.tensor):
                if bool(last) is decides:
                    return last  # a constant decides: what follows is not compiled
                continue
            last = last if last.dtype.is_int1() else last != 0
            found = last if found is None else found | last if decides else found & last
        return last if found is None else found

    def negated(x: Any) -> Any:
        x = value(x)
        return x == 0 if isinstance(x, tl.tensor) else not x

    def chosen(function: Any) -> Any:
        ours = {max: tl.maximum, min: tl.minimum}.get(function)

        def of_tiles(*parts: Any, **named: Any) -> Any:
            parts = tuple(map(value, parts))
            tiles = any(isinstance(x, tl.tensor) for x in parts)
            return functools.reduce(ours, parts) if tiles and ours else function(*parts, **named)

        return of_tiles

    def looped(x: Any) -> Any:
        return interpreter.interpreter_semantic.to_tensor(x, False) if type(x) is int else x

    class AsCompiled(interpreter.ASTTransformer):
        def visit_Assign(self, node: ast.Assign) -> ast.AST:
            node.value = self.visit(node.value)
            return super().visit_Assign(node)

        def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
            self.generic_visit(node)
            last = ast.Constant(isinstance(node.op, ast.Or))
            none = ast.arguments([], [], None, [], [], None, [])
            parts = ast.Tuple([ast.Lambda(none, x) for x in node.values], ast.Load())
            return _call("_compiled_boolean", node, last, parts)

        def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
            self.generic_visit(node)
            if isinstance(node.op, ast.Not):
                return _call("_compiled_not", node, node.operand)
            return node

        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
                node.func = _call("_compiled_choice", node, node.func)
            return node

        def visit_For(self, node: ast.For) -> ast.AST:
            self.generic_visit(node)
            if isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Call):
                name = ast.unparse(node.iter.func).rpartition(".")[2]
                if name == "range":
                    read = _call("_compiled_loop", node, ast.Name(node.target.id, ast.Load()))
                    write = ast.Assign([ast.Name(node.target.id, ast.Store())], read)
                    node.body.insert(0, ast.copy_location(write, node))
            return node

    helpers = {"boolean": boolean, "not": negated, "choice": chosen, "loop": looped}
    for name, helper in helpers.items():  # a kernel's globals get all that stands in this module
        setattr(interpreter, f"_compiled_{name}", helper)
    interpreter.FunctionRewriter.ast_transformer = AsCompiled()


def _call(name: str, where: ast.expr | ast.stmt, *arguments: ast.expr) -> ast.Call:
    call = ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
    return ast.copy_location(call, where)  # an error in it carries the reader's line
