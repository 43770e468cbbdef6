"""A ring of processes to try things on: one a rank, each does what it is told and answers."""

import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from snippets._lab.child import Child, Ended


class Failure(NamedTuple):
    """What a rank answers where a function raised."""

    rank: int
    kind: str
    text: str


class RankFailed(RuntimeError):
    """A rank raised; the text says which and what."""


class Ranks:
    """`size` processes in one process group, until the `with` block ends.

    On "cpu" they are forks of this process and talk over gloo; on "cuda" each is a new Python with
    a GPU of its own, and they talk over NCCL. A rank that waits for another longer than `timeout`
    seconds raises.
    """

    def __init__(self, size: int, device: str = "cpu", timeout: float = 30.0) -> None:
        self.size = size
        self._folder = tempfile.TemporaryDirectory(prefix="ring_")
        folder = Path(self._folder.name)
        self.said = folder / "said"
        fresh = device == "cuda"
        self.children = [
            Child(_serve, rank, size, device, str(folder), timeout, fresh=fresh, said=self.said)
            if fresh
            else Child(_serve, rank, size, device, str(folder), timeout)
            for rank in range(size)
        ]

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all of them."""
        for child in self.children:
            child.stop()
        self._folder.cleanup()

    def answers(
        self, function: Callable[..., Any], *args: Any, seconds: float = 120.0
    ) -> list[Any]:
        """What `function(*args)` returns on each rank; a Failure where it raised.

        The function stands at the top level of a module. Raises TooSlow where a rank has not
        answered in time, and Ended where one has ended.
        """
        deadline = time.monotonic() + seconds
        try:
            for child in self.children:
                child.send((function, args))
            return [child.receive(max(0.0, deadline - time.monotonic())) for child in self.children]
        except Ended as error:
            raise Ended(f"{error}{self._last_words()}") from None

    def _last_words(self) -> str:
        """What the ranks complained of at the end, where that is kept."""
        lines = self.said.read_text("utf-8", "replace").splitlines() if self.said.exists() else []
        words = [line.strip() for line in lines if "Error" in line or "error" in line]
        return f", having said: {' / '.join(words[-3:])[:600]}" if words else ""

    def run(self, function: Callable[..., Any], *args: Any, seconds: float = 120.0) -> list[Any]:
        """As `answers`, but raises RankFailed where a rank raised."""
        found = self.answers(function, *args, seconds=seconds)
        for answer in found:
            if isinstance(answer, Failure):
                raise RankFailed(f"rank {answer.rank}: {answer.kind}: {answer.text}")
        return found


def _serve(
    channel: Connection, rank: int, size: int, device: str, folder: str, timeout: float
) -> None:
    """A rank: join the others, then do what comes through the channel."""
    torch.set_num_threads(1)
    options: dict[str, Any] = {"timeout": timedelta(seconds=timeout)}
    backend = "gloo"
    if device == "cuda":
        torch.cuda.set_device(rank)
        backend, options["device_id"] = "nccl", torch.device("cuda", rank)
        options["pg_options"] = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    store = f"file://{folder}/store"
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=size, **options)
    while True:
        try:
            function, args = channel.recv()
        except EOFError:  # whoever asked has ended
            return
        channel.send(_answer(rank, function, args))


def _answer(rank: int, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    try:
        return function(*args)
    except Exception as error:  # noqa: BLE001 - whoever asked is told
        return Failure(rank, type(error).__name__, str(error))
