"""What Triton's own compiler says of the kernels that a launcher launches; no GPU is needed.

The interpreter runs Python, and takes much that the compiler refuses. So the file runs a second
time, in a process without the interpreter: there each launch goes through Triton's front end, with
the types that it was given, for an H100, and no further.
"""

import contextlib
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TARGET = ("cuda", 90, 32)

NOT_ASKED = "It was not asked: without its interpreter the launcher launches nothing."


def without_a_gpu(tune: Callable[[Any], object] = lambda call: None) -> None:
    """Let what asks for a device, here or at the top of the reader's file, be told of an H100.

    A kernel that is to be tuned gets the first of its configurations; `tune` is called with each.
    """
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    from snippets._lab.judge.bounds import Memory

    Memory.as_on_a_gpu = True
    h100 = {"multiprocessor_count": 132, "max_shared_mem": 232_448, "warpSize": 32}
    driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: GPUTarget(*TARGET),
            get_active_torch_device=lambda: torch.device("cpu"),
            get_current_device=lambda: 0,
            get_current_stream=lambda device: 0,
            get_device_capability=lambda *device: (9, 0),
            get_device_interface=lambda: torch.cuda,
            get_benchmarker=lambda: lambda call, **_: tune(call) or [1.0, 1.0, 1.0],
            utils=SimpleNamespace(get_device_properties=lambda device: h100),
        )
    )
    torch.cuda.device = contextlib.nullcontext
    torch.cuda.synchronize = lambda *device: None
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda *device: (9, 0)
    torch.cuda.get_device_properties = lambda *device: SimpleNamespace(
        multi_processor_count=132, name="NVIDIA H100"
    )


def answer(channel: Connection, file: Path, wanted: str, form: Mapping[str, Any]) -> None:
    """In a child whose environment does not ask for the interpreter: say what is refused.

    Launches on all probes of a form, in float16 too, and compiles each kind of launch once. Sends
    the refusals, and what else there is to say.
    """
    without_a_gpu(tune=lambda call: call())
    from triton.runtime.jit import JITFunction

    from snippets._lab.diagnose.diagnosis import module_of
    from snippets._lab.diagnose.forms import Form
    from snippets._lab.diagnose.probes import LONG, probes
    from snippets._lab.judge.bounds import Memory
    from snippets._lab.judge.launcher import find_launcher

    refused: dict[str, None] = {}
    seen: set[tuple[str, str]] = set()

    def compile_nothing(
        self: Any,
        key: str,
        signature: Any,
        _: Any,
        constexprs: Any,
        options: Any,
        attrs: Any,
        *rest: Any,
    ) -> None:
        if (self._fn_name, key) in seen:
            return
        seen.add((self._fn_name, key))
        try:
            _make_ir(self, signature, constexprs, options, attrs)
        except Exception as error:  # noqa: BLE001 - whatever the front end raises is its answer
            refused[_in_its_words(error, file)] = None

    JITFunction._do_compile = compile_nothing
    sys.path.insert(0, str(file.parent))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        module = module_of(file, always=True)
        launcher = find_launcher(module, wanted)
        for dtype in dict.fromkeys((form["dtype"], "float16")):
            own = Form(**{**form, "dtype": dtype})
            for probe in probes(own, launcher.options):
                if probe.name not in LONG:
                    with (
                        contextlib.suppress(Exception),
                        Memory(own.given(probe, launcher, "cpu")) as m,
                    ):
                        launcher.call(probe, *m.inputs.values())
    if not seen:
        return channel.send(([], [NOT_ASKED]))
    ours = [w for w in warned if Path(w.filename) == file]
    said = dict.fromkeys(f"It warns. {_line(file, w.lineno)} {w.message}" for w in ours)
    return channel.send((list(refused), list(said)))


def _make_ir(function: Any, signature: Any, constexprs: Any, options: Any, attrs: Any) -> None:
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource, make_backend

    target = GPUTarget(*TARGET)
    backend = make_backend(target)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    tools = backend.get_codegen_implementation(options), backend.get_module_map()
    ASTSource(function, signature, constexprs, attrs).make_ir(target, options, *tools, context)


def _in_its_words(error: BaseException, file: Path) -> str:
    """The cause, and the innermost line of the reader's on the way to it."""
    from triton.runtime.jit import _triton_jit_function_registry as functions
    from triton.runtime.jit import get_jit_fn_file_line

    where = None
    while True:
        lineno = getattr(getattr(error, "node", None), "lineno", 0)
        for f in functions.values():
            if (
                lineno
                and f.src == getattr(error, "src", "")
                and Path(f.fn.__code__.co_filename) == file
            ):
                where = get_jit_fn_file_line(f)[1] + lineno - 1
        if error.__cause__ is None:
            break
        error = error.__cause__
    words = " ".join(str(getattr(error, "error_message", None) or error).split())
    if wrapped := re.fullmatch(r"\w+\((['\"])(.*)\1,?\)", words):  # the repr of another exception
        words = wrapped[2]
    return f"{_line(file, where)} {words}" if where else words


def _line(file: Path, number: int) -> str:
    from snippets._lab.judge.bounds import line_of

    return f"Line {number}, `{line_of(str(file), number).text}`:"
