"""Python instead of Gluon: what the GPU functions of kernel.py find under Gluon's names.

Integers and the flow of control are computed here, for both back ends. What lies in registers and
in shared memory, and what barriers, TMA and the tensor cores do, each back end says for itself.
"""

import ast
import functools
import math
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

KERNEL = Path(__file__).parents[1] / "kernel.py"
LAYOUTS = (
    "DistributedLinearLayout",
    "DotOperandLayout",
    "NVMMADistributedLayout",
    "SliceLayout",
)
# Functions of tensors, which a back end gives: minimum, maximum and where take integers too.
OF_TENSORS = (
    *("arange", "exp2", "full", "inline_asm_elementwise", "log2", "max", "store", "sum", "zeros"),
)
OF_BOTH = ("maximum", "minimum", "where")


class Scalar(int):
    """An integer of a program, which Gluon gives methods of a tensor."""

    def to(self, dtype: object) -> "Scalar":
        return self


def _scalar(of: Any) -> Any:
    def operator(self: Scalar, other: Any) -> Any:
        found = of(self, other)
        return found if found is NotImplemented else Scalar(found)

    return operator


for _name in ("add", "sub", "mul", "floordiv", "mod", "and", "xor", "radd", "rsub", "rmul"):
    setattr(Scalar, f"__{_name}__", _scalar(getattr(int, f"__{_name}__")))


class Gluon(ABC):
    """One program of kernel.py. A name of Gluon that is not here is an error."""

    int64: Any = "int64"
    int32: Any = "int32"
    float32: Any = "float32"

    def __init__(self, source: str, program: int, programs: int) -> None:
        self.program, self.programs = program, programs
        self.names = self._names()
        exec(gpu_code(source), self.names)  # noqa: S102 - the kernel's own text

    def _names(self) -> dict[str, Any]:
        gl = SimpleNamespace(
            **dict.fromkeys(LAYOUTS, lambda *_, **__: None),
            **{name: self.of_tensors(name) for name in OF_TENSORS},
            **{name: functools.partial(self._of_both, name) for name in OF_BOTH},
            int64=self.int64,
            int32=self.int32,
            float32=self.float32,
            constexpr=lambda value: value,
            static_range=range,
            cdiv=lambda a, b: Scalar(-(-a // b)),
            convert_layout=lambda value, layout: value,
            program_id=lambda axis: Scalar(self.program),
            num_programs=lambda axis: Scalar(self.programs),
            allocate_shared_memory=self.allocate,
            warp_specialize=self.partitions,
            thread_barrier=lambda: None,  # a part is one thread here
        )
        return {
            "Any": Any,
            "NamedTuple": typing.NamedTuple,
            "math": math,
            "gluon": SimpleNamespace(jit=_undecorated, constexpr_function=_undecorated),
            "gl": gl,
            "mbarrier": SimpleNamespace(
                MBarrierLayout=lambda: None,
                init=self.init,
                wait=self.wait,
                expect=self.expect,
                arrive=self.arrive,
            ),
            "tma": SimpleNamespace(
                async_load=self.fetch,
                async_store=self.put,
                store_wait=self.store_wait,
            ),
            "fence_async_shared": self.fence,
            "warpgroup_mma": self.product,
            "warpgroup_mma_wait": self.finish,
        }

    def _of_both(self, name: str, *given: Any) -> Any:
        """Of integers as Python computes it; else the back end's."""
        if not all(isinstance(x, int) for x in (given[:1] if name == "where" else given)):
            return self.of_tensors(name)(*given)
        if name == "where":
            return given[1] if given[0] else given[2]
        return Scalar(min(given) if name == "minimum" else max(given))

    @abstractmethod
    def of_tensors(self, name: str) -> Callable[..., Any]: ...

    # Shared memory, and who runs beside whom.
    @abstractmethod
    def allocate(self, dtype: Any, shape: Sequence[int], layout: object) -> Any: ...

    @abstractmethod
    def partitions(self, parts: Sequence[Any], warps: object, registers: object) -> None: ...

    # An mbarrier.
    @abstractmethod
    def init(self, barrier: Any, count: int) -> None: ...

    @abstractmethod
    def wait(self, barrier: Any, phase: int) -> None: ...

    @abstractmethod
    def expect(self, barrier: Any, size: int) -> None: ...

    @abstractmethod
    def arrive(self, barrier: Any, count: int) -> None: ...

    # TMA.
    @abstractmethod
    def fetch(self, desc: Any, at: Sequence[int], barrier: Any, buffer: Any) -> None: ...

    @abstractmethod
    def put(self, desc: Any, at: Sequence[int], buffer: Any) -> None: ...

    @abstractmethod
    def store_wait(self, left: int) -> None: ...

    @abstractmethod
    def fence(self) -> None: ...

    # The tensor cores.
    @abstractmethod
    def product(
        self, a: Any, b: Any, acc: Any, use_acc: bool = True, is_async: bool = False
    ) -> Any: ...

    @abstractmethod
    def finish(self, left: int, deps: Sequence[Any]) -> Any: ...


def _undecorated(function: Any = None, **_: Any) -> Any:
    return function or _undecorated


@functools.lru_cache(16)
def gpu_code(source: str) -> CodeType:
    """What of a kernel.py runs on the GPU, with the named tuples and constants that it needs.

    VARIANTS is kept too: the launcher chooses from it.
    """
    body = ast.parse(source).body
    kept = [s for s in body if _is_a_tuple(s) or _runs_on_gpu(s)]
    used = {n.id for s in kept for n in ast.walk(s) if isinstance(n, ast.Name)} | {"VARIANTS"}
    constants = [
        s
        for s in body
        if isinstance(s, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id in used for target in s.targets)
    ]
    chosen = [s for s in body if s in kept or s in constants]
    return compile(ast.Module(chosen, []), KERNEL.name, "exec")


def _is_a_tuple(statement: ast.stmt) -> bool:
    """Whether it is a class of values that functions on the GPU hand to each other."""
    return isinstance(statement, ast.ClassDef) and any(
        isinstance(base, ast.Name) and base.id == "NamedTuple" for base in statement.bases
    )


def _runs_on_gpu(statement: ast.stmt) -> bool:
    """Whether it is a function under one of gluon's decorators."""
    return isinstance(statement, ast.FunctionDef) and any(
        isinstance(node, ast.Name) and node.id == "gluon"
        for decorator in statement.decorator_list
        for node in ast.walk(decorator)
    )
