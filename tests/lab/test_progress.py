"""The line that tells how far the tests are: right about what ran, and nothing else is lost."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests import progress

pytest_plugins = ["pytester"]
TESTS = """
import pytest

@pytest.mark.parametrize("i", range(3))
def test_right(i):
    pass

def test_wrong():
    assert 1 == 2

@pytest.fixture
def broken():
    raise ValueError("no")

def test_of_a_broken_fixture(broken):
    pass

@pytest.mark.skip
def test_left_out():
    pass
"""


@pytest.mark.parametrize("options", [[], ["-n", "1"]], ids=["here", "in another process"])
def test_every_test_is_counted_and_a_failure_is_named_at_once(pytester, options):
    told = io.StringIO()
    line = progress.Line(Console(file=told, force_terminal=True, width=200))
    pytester.makepyfile(test_some=TESTS)
    arguments = ["-q", "-p", "no:cacheprovider", *options]
    result = pytester.inline_run(*arguments, plugins=[line], no_reraise_ctrlc=True)
    (task,) = line.progress.tasks
    assert (task.completed, task.total) == (6, 6)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    said = told.getvalue()
    assert "test_some.py::test_wrong" in said
    assert "test_some.py::test_of_a_broken_fixture" in said
    assert "test_right" not in said


def test_the_summary_still_counts_and_shows_failures(pytester, capsys):
    pytester.makepyfile(test_some=TESTS)
    line = progress.Line(Console(file=io.StringIO()))
    pytester.inline_run("-p", "no:cacheprovider", plugins=[line])
    out = capsys.readouterr().out
    assert "1 failed, 3 passed, 1 skipped, 1 error" in out
    assert "assert 1 == 2" in out
    assert "..." not in out, "no dots beside the line"


@pytest.mark.parametrize(
    ("terminal", "verbosity", "worker", "wanted"),
    [
        (True, 0, False, True),
        (True, -1, False, True),
        (False, 0, False, False),
        (True, 1, False, False),
        (True, 0, True, False),
    ],
)
def test_it_is_for_terminals(terminal, verbosity, worker, wanted, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal, raising=False)
    config = SimpleNamespace(get_verbosity=lambda: verbosity)
    if worker:
        config.workerinput = {}
    assert progress.wanted(config) is wanted


def test_a_warning_of_ours_is_an_error():
    import warnings

    with pytest.raises(UserWarning, match="of ours"):
        warnings.warn("of ours", stacklevel=1)
