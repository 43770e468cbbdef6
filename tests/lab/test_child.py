"""Running something apart: it answers, it says how it ended, and it never outlives its owner."""

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import popen_fork
from pathlib import Path

import pytest

from snippets._lab.child import Child, Ended, TooSlow
from tests.floors import some


def doubling(channel, factor):
    with contextlib.suppress(EOFError):
        while True:
            channel.send(channel.recv() * factor)


def ending_with(channel, status):
    os._exit(status)


def crashing(channel):
    faulthandler.disable()  # pytest's would fill the screen
    os.kill(os.getpid(), signal.SIGSEGV)


def sleeping(channel):
    """With a process of its own, as a compiler has its assembler."""
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    channel.send((os.getpid(), grandchild.pid))
    time.sleep(60)


def environment(channel, name):
    channel.send(os.environ.get(name))


def complaining(channel):
    print("something is wrong", file=sys.stderr, flush=True)
    channel.send("said")


def gone(pid):
    """Whether a process has ended; a zombie that nobody has waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def ended(pid):
    deadline = time.monotonic() + 10
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return gone(pid)


FRESH = pytest.mark.parametrize("fresh", [False, True], ids=["forked", "fresh"])


@FRESH
def test_it_answers_again_and_again(fresh):
    with Child(doubling, 2, fresh=fresh) as other:
        for number in (1, 21):
            other.send(number)
            assert other.receive(60) == 2 * number


@FRESH
@pytest.mark.parametrize(
    ("function", "args", "words"),
    [(ending_with, (7,), "exit status 7"), (crashing, (), "signal SIGSEGV")],
)
def test_an_end_without_an_answer_is_said_in_words(fresh, function, args, words):
    with Child(function, *args, fresh=fresh) as other, pytest.raises(Ended, match=words):
        other.receive(60)


@FRESH
def test_who_speaks_to_a_dead_child_is_told(fresh):
    with Child(ending_with, 3, fresh=fresh) as other:
        with pytest.raises(Ended):
            other.receive(60)
        with pytest.raises(Ended, match="exit status 3"):
            other.send("hello")


@FRESH
def test_an_answer_that_does_not_come_is_not_waited_for(fresh):
    with Child(sleeping, fresh=fresh) as other:
        other.receive(60)
        began = time.monotonic()
        with pytest.raises(TooSlow, match=r"within 0\.1 s"):
            other.receive(0.1)
        assert time.monotonic() - began < 5


@FRESH
def test_nothing_outlives_the_block(fresh):
    with Child(sleeping, fresh=fresh) as other:
        pids = other.receive(60)
        assert not any(map(gone, pids))
    assert all(map(ended, some(pids)))


def test_a_forked_child_does_not_keep_another_alive():
    """It has no copy of the other's channel: closed here, that is closed everywhere."""
    with Child(doubling, 2) as first, Child(sleeping) as second:
        second.receive(60)
        pid = first._process.pid
        assert not gone(pid)
        first.channel.close()
        assert ended(pid), "it waits for a message that nobody can send"


def test_threads_fork_one_at_a_time(monkeypatch):
    """filelock, which PyTorch imports, refuses two forks at once: on some machines all are."""
    launch, alone = popen_fork.Popen._launch, threading.Lock()

    def slow(self, process):
        assert alone.acquire(blocking=False), "another thread is forking"
        time.sleep(0.05)
        launch(self, process)
        alone.release()

    def ask(_):
        with Child(doubling, 2) as other:
            other.send(21)
            return other.receive(60)

    monkeypatch.setattr(popen_fork.Popen, "_launch", slow)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [42] * 4


def test_a_fresh_child_has_its_own_environment():
    with Child(environment, "COLOR", fresh=True, env={**os.environ, "COLOR": "red"}) as other:
        assert other.receive(60) == "red"
    assert "COLOR" not in os.environ


def test_what_a_fresh_child_says_is_kept(tmp_path):
    with Child(complaining, fresh=True, said=tmp_path / "said") as other:
        assert other.receive(60) == "said"
    assert "something is wrong" in (tmp_path / "said").read_text()
