"""The one way to run something apart: a process that answers, and never outlives its owner.

A *forked* child has everything that this process has imported, so it starts in milliseconds. A
*fresh* child is a new Python: it can have another environment, and what it breaks is its own.
Both get a channel, and both end when the `with` block does.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from snippets._lab.rooms import ROOT


class Ended(RuntimeError):
    """The child ended before it answered; the text says how."""


class TooSlow(TimeoutError):
    """The child did not answer in time."""


def ending(status: int | None) -> str:
    """How a process ended, in words: "exit status 1", "signal SIGSEGV"."""
    if status is not None and status < 0:
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-status).name}"
    return f"exit status {status}"


class Child:
    """A process that runs `function(channel, *args)`; talk to it with `send` and `receive`.

    Args:
        function: at the top level of a module if `fresh`, so that the new Python can import it.
        fresh: start a new Python instead of a fork of this one.
        env: environment of a fresh child, None for this one's.
        said: file that a fresh child's stderr is appended to, None for nowhere.
    """

    def __init__(
        self,
        function: Callable[..., object],
        *args: Any,
        fresh: bool = False,
        env: Mapping[str, str] | None = None,
        said: Path | None = None,
    ) -> None:
        self.channel, theirs = Pipe()
        inherited = [*_open, self.channel]  # a copy of these would keep the child from ending
        todo = (_become_fresh, theirs, env, said) if fresh else (function, theirs, *args)
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_forked, args=(inherited, *todo), daemon=fresh)
        self._process.start()
        theirs.close()
        _open.append(self.channel)
        if fresh:
            with contextlib.suppress(BrokenPipeError):  # `receive` says how it ended
                self.channel.send((function.__module__, function.__qualname__, args))

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def send(self, message: Any) -> None:
        """Give the child something to work on. Raises Ended if it has gone."""
        try:
            self.channel.send(message)
        except BrokenPipeError:
            raise Ended(self._how_it_ended()) from None

    def receive(self, seconds: float | None = None) -> Any:
        """The next thing that the child says.

        Raises TooSlow after so many seconds (None: waits), Ended if the child ends first.
        """
        if not self.channel.poll(seconds):
            raise TooSlow(f"no answer within {seconds:g} s")
        try:
            return self.channel.recv()
        except (EOFError, ConnectionResetError):
            raise Ended(self._how_it_ended()) from None

    def stop(self) -> None:
        """End the child and all it has started."""
        if self.channel in _open:
            _open.remove(self.channel)
        self.channel.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)  # a child leads a group of its own
        self._process.kill()  # it may not have formed its group yet
        self._process.join()

    def _how_it_ended(self) -> str:
        self._process.join()
        return f"the process ended with {ending(self._process.exitcode)}"


_open: list[Connection] = []  # this process's ends of the channels to its children


def _forked(
    inherited: Sequence[Connection],
    function: Callable[..., object],
    channel: Connection,
    *args: Any,
) -> None:
    os.setsid()  # Ctrl-C reaches the owner only, which ends this child and all that it started
    for connection in inherited:
        connection.close()
    _open.clear()
    function(channel, *args)


def _become_fresh(channel: Connection, env: Mapping[str, str] | None, said: Path | None) -> None:
    environment = dict(os.environ if env is None else env)
    first = environment.get("PYTHONPATH")  # what the caller puts before our own
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [first, *sys.path])])
    nothing = os.open(os.devnull, os.O_RDWR)
    kept = nothing if said is None else os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for theirs, ours in enumerate((nothing, nothing, kept)):
        os.dup2(ours, theirs)
    os.set_inheritable(channel.fileno(), True)
    code = f"from {__name__} import _fresh; _fresh({channel.fileno()})"
    os.execve(sys.executable, [sys.executable, "-c", code], environment)


def _fresh(descriptor: int) -> None:
    channel = Connection(descriptor)
    module, name, args = channel.recv()
    getattr(importlib.import_module(module), name)(channel, *args)


def run(
    command: Sequence[str | Path],
    *,
    seconds: float,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return what it printed, and apart from it what it complained of.

    Raises TooSlow after so many seconds; the program and all it started are ended then.
    """
    words = [*map(str, command)]
    with subprocess.Popen(
        words,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, complaints = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise TooSlow(f"{Path(command[0]).name} did not end within {seconds:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(words, process.returncode, printed, complaints)
