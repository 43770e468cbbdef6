"""A process apart that answers, and never outlives its owner.

A *forked* child has everything that this process has imported, so it starts in milliseconds. A
*fresh* child is a new Python: it can have another environment, and what it breaks is its own.
Both get a channel, and both end when the `with` block does.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


class Ended(RuntimeError):
    """The child ended before it answered; the text says how."""


class TooSlow(TimeoutError):
    """The child did not answer in time."""


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
        context: Any = multiprocessing.get_context("spawn" if fresh else "fork")
        todo: tuple[Any, ...]
        if fresh:  # it imports the function only once its environment is its own
            todo = _fresh, theirs, env, said, function.__module__, function.__qualname__, args
        else:  # its copies of these channels would keep others from ending
            todo = _forked, [*_open, self.channel], function, theirs, *args
        self._process = context.Process(target=todo[0], args=todo[1:], daemon=fresh)
        with _forking:
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
        status = self._process.exitcode
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return f"the process ended with {how}"


_open: list[Connection] = []  # this process's ends of the channels to its children
_forking = threading.Lock()  # filelock, which PyTorch imports, lets one thread fork at a time


def _forked(
    inherited: Sequence[Connection],
    function: Callable[..., object],
    channel: Connection,
    *args: Any,
) -> None:
    os.setsid()  # Ctrl-C reaches the owner only, which ends this child and all that it started
    _forking.release()  # the owner's thread held it, and is the only one here
    for connection in inherited:
        connection.close()
    _open.clear()
    function(channel, *args)


def _fresh(
    channel: Connection,
    env: Mapping[str, str] | None,
    said: Path | None,
    module: str,
    name: str,
    args: Sequence[Any],
) -> None:
    os.setsid()
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
        sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    for stream, file in enumerate((os.devnull, said or os.devnull), 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    getattr(importlib.import_module(module), name)(channel, *args)
