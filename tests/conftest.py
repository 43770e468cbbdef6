"""Before any test: Triton's interpreter where there is no GPU, seeds, and poisoned memory."""

import gc
import os

import pytest

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic mode asks for it

try:
    import torch
except ModuleNotFoundError:  # the pages and figures are tested without torch too
    torch = None

if torch is not None:
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates a kernel
        from snippets._lab.probe.interpreter import patch_once_a_launch

        patch_once_a_launch()
    # Uninitialized memory holds NaN from here on: what a kernel forgets to write is seen.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_num_threads(min(2, torch.get_num_threads()))

from hypothesis import HealthCheck, settings

from snippets._site.browser import program

settings.register_profile(
    "attention",
    deadline=None,  # the interpreter's first call compiles nothing but imports a lot
    derandomize=True,  # the same examples everywhere: a red test stays red
    max_examples=15,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("attention")


def pytest_configure(config):
    if torch is None or not torch.cuda.is_available():
        # A green run has no warnings. A GPU has some of its own about what our lines ask of it.
        config.getini("filterwarnings").insert(0, "error")


@pytest.fixture(autouse=True)
def _seed():
    if torch is not None:
        torch.manual_seed(0)


@pytest.fixture
def device():
    """The device kernels run on: the GPU, or the CPU through Triton's interpreter."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def pytest_collection_finish():
    gc.freeze()  # what was imported is no garbage: looking through it takes a sixth of the time


# The browser's checks are a command of their own. Where there is no browser, `make test` says how
# many there are that nobody runs; a hosted run that leaves them out has failed.
_browser_checks = {"left out": 0}


def pytest_deselected(items):
    _browser_checks["left out"] += sum(
        item.get_closest_marker("browser") is not None for item in items
    )


def pytest_runtest_logreport(report):
    _browser_checks["left out"] += report.skipped and "browser" in report.keywords


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    left_out = getattr(node, "workeroutput", {}).get("browser checks", 0)
    _browser_checks["left out"] = max(_browser_checks["left out"], left_out)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # one of several processes: the first one tells
        session.config.workeroutput["browser checks"] = _browser_checks["left out"]
    elif _browser_checks["left out"] and program() is None and os.environ.get("CI") == "true":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())]
    for missing in sorted({text.rpartition("NOT RUN")[2] for text in skipped if "NOT RUN" in text}):
        terminalreporter.write_line(f"checks NOT RUN{missing.rstrip(chr(39) + ')')}", yellow=True)
    if (left_out := _browser_checks["left out"]) and program() is None:
        terminalreporter.write_line(
            f"{left_out} browser checks NOT RUN: install chromium", yellow=True
        )
    elif left_out:
        terminalreporter.write_line(f"{left_out} browser checks run by: make test-browser")
