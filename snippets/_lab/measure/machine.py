"""Where a number comes from: the device, the versions, the commit, and the code behind it."""

import platform
import shutil
import subprocess
import threading
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from snippets._lab.rooms import ROOT


def now() -> str:
    """UTC time to the second, ISO 8601."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def commit() -> str:
    """The commit the code came from; "unknown" where there is no git or no repository."""
    git = shutil.which("git")
    if git is None:
        return "unknown"
    done = subprocess.run(
        [git, "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def versions() -> dict[str, str]:
    """Versions of what can change a number."""
    import torch

    def installed(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "absent"

    cudnn = torch.backends.cudnn.version() if torch.cuda.is_available() else None
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": installed("triton"),
        "cuda": torch.version.cuda or "none",
        "cudnn": str(cudnn) if cudnn else "none",
    }


def gpu() -> dict[str, Any]:
    """The current GPU: name, capability, memory (bytes), driver, power limit (W), units on chip."""
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    driver, power = smi("driver_version", "power.limit") or ("unknown", None)
    return {
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "driver": driver,
        "power_limit_w": _number(power),
    }


def smi(*fields: str) -> list[str] | None:
    """Fields of the current GPU read with nvidia-smi; None where it is missing or refuses."""
    import torch

    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    command = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    for selection in ([f"--id=GPU-{uuid}"], []):  # a container may not resolve the identifier
        try:
            done = subprocess.run(
                command + selection, capture_output=True, text=True, check=False, timeout=20
            )
        except subprocess.TimeoutExpired:
            return None  # a hanging driver costs a field, not the measurement
        if done.returncode == 0 and done.stdout.strip():
            return [part.strip() for part in done.stdout.splitlines()[0].split(",")]
    return None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None  # "[N/A]": the driver does not tell


class ClockWatch:
    """Reads SM clock (MHz), power (W) and temperature (°C) while a result is being measured."""

    FIELDS = ("clocks.sm", "power.draw", "temperature.gpu")
    NAMES = ("sm_clock_mhz", "power_w", "temperature_c")

    def __init__(self, every_seconds: float = 0.5) -> None:
        self._every = every_seconds
        self._stop = threading.Event()
        self._readings: list[list[float]] = []
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "ClockWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            values = [_number(text) for text in smi(*self.FIELDS) or []]
            if len(values) == len(self.FIELDS) and all(v is not None for v in values):
                self._readings.append([v for v in values if v is not None])
            self._stop.wait(self._every)

    def summary(self) -> dict[str, list[float] | None]:
        """[lowest, median, highest] of each reading while it ran; None where none was had."""
        if not self._readings:
            return dict.fromkeys(self.NAMES)
        columns = [sorted(column) for column in zip(*self._readings, strict=True)]
        return {
            name: [c[0], c[len(c) // 2], c[-1]] for name, c in zip(self.NAMES, columns, strict=True)
        }
