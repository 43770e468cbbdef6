"""How far the tests are, on one line of a terminal: how many have run, and how long it will take.

A failed test is named as soon as it has failed. Where nobody looks (a file, a pipe, `-v`) pytest's
own dots and percentages stay.
"""

import sys

import pytest
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


def wanted(config: pytest.Config) -> bool:
    """Whether this process tells a terminal what it does."""
    worker = hasattr(config, "workerinput")
    return not worker and sys.stdout.isatty() and config.get_verbosity() <= 0


class Line:
    """The pytest plugin: one task of a rich progress bar."""

    def __init__(self, console: Console | None = None) -> None:
        self.progress = Progress(
            TextColumn("{task.percentage:3.0f} %"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("tests,"),
            TimeElapsedColumn(),
            TextColumn("gone,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=True,
            speed_estimate_period=60,
        )
        self.task = self.progress.add_task("tests", total=None)

    def begin(self, tests: int) -> None:
        """Show the line; further processes that have collected the same tests change nothing."""
        self.progress.update(self.task, total=tests)
        self.progress.start()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.begin(len(ids))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:  # this process runs them itself
            self.begin(len(session.items))

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report):
        category, _letter, _word = yield
        return category, "", ""  # counted, and not printed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.progress.console.print(
                f"[red]failed[/] {escape(report.nodeid)}", highlight=False, soft_wrap=True
            )
        if report.when == "teardown":
            self.progress.advance(self.task)

    def pytest_sessionfinish(self) -> None:
        self.progress.stop()
