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
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any

from snippets._lab.rooms import ROOT

GRACE = 5.0  # seconds between asking a child to end and killing it


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
        self._process: BaseProcess | subprocess.Popen[bytes]
        if fresh:
            self._process = _started_fresh(theirs, env, said)
            theirs.close()
            with contextlib.suppress(BrokenPipeError):  # `receive` says how it ended
                self.channel.send((function.__module__, function.__qualname__, args))
        else:
            inherited = [*_open, self.channel]  # a copy of these would keep the child from ending
            context = multiprocessing.get_context("fork")
            self._process = context.Process(
                target=_forked, args=(inherited, function, theirs, args), daemon=False
            )
            self._process.start()
            theirs.close()
        _open.append(self.channel)

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

    def stop(self, grace: float = 0.0) -> None:
        """End the child and all it has started; with `grace`, ask first and wait so long."""
        if self.channel in _open:
            _open.remove(self.channel)
        self.channel.close()
        if grace and self._running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)
            deadline = time.monotonic() + grace
            while self._running() and time.monotonic() < deadline:
                time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)  # a child leads a group of its own
        if isinstance(self._process, subprocess.Popen):
            self._process.wait()
        else:
            self._process.kill()  # it may not have formed its group yet
            self._process.join()

    @property
    def _pid(self) -> int:
        assert self._process.pid is not None  # it was started
        return self._process.pid

    def _running(self) -> bool:
        if isinstance(self._process, subprocess.Popen):
            return self._process.poll() is None
        return self._process.is_alive()

    def _how_it_ended(self) -> str:
        if isinstance(self._process, subprocess.Popen):
            return f"the process ended with {ending(self._process.wait())}"
        self._process.join()
        return f"the process ended with {ending(self._process.exitcode)}"


_open: list[Connection] = []  # this process's ends of the channels to its children


def _forked(
    inherited: Sequence[Connection],
    function: Callable[..., object],
    channel: Connection,
    args: Sequence[Any],
) -> None:
    os.setsid()  # Ctrl-C reaches the owner only, which ends this child and all that it started
    for connection in inherited:
        connection.close()
    _open.clear()
    function(channel, *args)


def _started_fresh(
    channel: Connection, env: Mapping[str, str] | None, said: Path | None
) -> subprocess.Popen[bytes]:
    environment = dict(os.environ if env is None else env)
    first = environment.get("PYTHONPATH")  # what the caller puts before our own
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [first, *sys.path])])
    stderr: IO[bytes] | int = subprocess.DEVNULL if said is None else said.open("ab")
    try:
        return subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import _fresh; _fresh({channel.fileno()})"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=environment,
            pass_fds=[channel.fileno()],
            start_new_session=True,
        )
    finally:
        if not isinstance(stderr, int):
            stderr.close()


def _fresh(descriptor: int) -> None:
    channel = Connection(descriptor)
    module, name, args = channel.recv()
    getattr(importlib.import_module(module), name)(channel, *args)


def first_to_speak(children: Sequence[Child], seconds: float | None = None) -> Child | None:
    """Wait for the first child that has something to say, or has ended; None if none has in time.

    Without a limit it waits until one has.
    """
    ready = wait_for([child.channel for child in children], seconds)
    return next((child for child in children if child.channel in ready), None)


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
    with subprocess.Popen(
        list(map(str, command)),
        cwd=cwd,
        env=None if env is None else dict(env),
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
            process.wait()
    return subprocess.CompletedProcess(process.args, process.returncode, printed, complaints)
