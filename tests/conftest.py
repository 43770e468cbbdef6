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
    # Uninitialised memory holds NaN from here on: what a kernel forgets to write is seen.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_num_threads(min(2, torch.get_num_threads()))

from hypothesis import HealthCheck, settings

settings.register_profile(
    "attention",
    deadline=None,  # the interpreter's first call compiles nothing but imports a lot
    derandomize=True,  # the same examples everywhere: a red test stays red
    max_examples=15,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("attention")


@pytest.fixture(autouse=True)
def _seed():
    if torch is not None:
        torch.manual_seed(0)


@pytest.fixture
def device():
    """The device kernels run on: the GPU, or the CPU through Triton's interpreter."""
    return "cuda" if torch.cuda.is_available() else "cpu"


# Files that take long start first, so that at the end no core waits for another.
LONGEST = (
    "test_browser_site.py", "test_browser_map.py", "test_flash_attention.py", "test_browser.py",
    "test_browser_reading.py", "test_lab_figure.py", "test_browser_steps.py",
    "test_browser_memory.py", "test_lab_devices.py", "test_composed_attention.py",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    order = {name: at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


def pytest_collection_finish():
    gc.freeze()  # what was imported is no garbage: looking through it takes a sixth of the time


_browser = {"not run": 0}


def pytest_runtest_logreport(report):
    if report.skipped and "browser" in report.keywords:
        _browser["not run"] += 1


def pytest_terminal_summary(terminalreporter):
    if _browser["not run"]:
        terminalreporter.write_line(
            f"{_browser['not run']} browser checks NOT RUN: install chromium", yellow=True
        )
