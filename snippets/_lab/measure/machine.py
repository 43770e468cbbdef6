"""Where a number comes from: the device, the versions, and the clocks meanwhile."""

import contextlib
import platform
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any


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
    """The current GPU: name, capability, memory (bytes), driver, power limit (W), units on chip.

    "gpus" says how many there are, the current one included.
    """
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    driver, power = smi("driver_version", "power.limit") or ("unknown", None)
    return {
        "name": properties.name,
        "gpus": torch.cuda.device_count(),
        "capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "driver": driver,
        "power_limit_w": _number(power),
    }


def smi(*fields: str) -> list[str] | None:
    """Fields of the current GPU read with nvidia-smi; None where it is missing or refuses."""
    _, told = _asked(*fields)
    return _parts(told) if told else None


def _asked(*fields: str) -> tuple[list[str], str]:
    """A command of nvidia-smi that tells fields of the current GPU, and what it told; or ""."""
    import torch

    tool = shutil.which("nvidia-smi")
    if tool is None:
        return [], ""
    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    command = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    for tried in ([*command, f"--id=GPU-{uuid}"], command):  # a container may not resolve it
        try:
            done = subprocess.run(tried, capture_output=True, text=True, check=False, timeout=20)
        except subprocess.TimeoutExpired:
            break  # a hanging driver costs a field, not the measurement
        if done.returncode == 0 and done.stdout.strip():
            return tried, done.stdout.splitlines()[0]
    return [], ""


def _parts(line: str) -> list[str]:
    return [part.strip() for part in line.split(",")]


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None  # "[N/A]": the driver does not tell


POWER_CAP = 0x04  # a bit of the reasons for which a GPU does not clock higher: its power limit
SLOWDOWNS = {  # bits that are no part of normal work → what happened, in words
    0x08: "a hardware slowdown",
    0x20: "heat",
    0x40: "heat, by the hardware",
    0x80: "the power supply",
}


@dataclass(frozen=True)
class Reading:
    """What the GPU said of itself at a moment (time.monotonic)."""

    at: float
    sm_clock_mhz: float
    power_w: float  # at this moment, not the mean of a second, where the driver tells it
    temperature_c: float
    reasons: int  # bits: why it does not clock higher


NAMES = ("sm_clock_mhz", "power_w", "temperature_c")
ASKED = ("clocks.sm", "power.draw.instant", "temperature.gpu", "clocks_event_reasons.active")


class ClockWatch:
    """Reads SM clock, power, temperature and slowdowns of the current GPU while it is entered.

    One nvidia-smi goes on telling; where there is none, or no answer, there are no readings.
    """

    def __init__(self, every_seconds: float = 0.5) -> None:
        self._every = every_seconds
        self._readings: list[Reading] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "ClockWatch":
        command, told = _asked(*ASKED)
        if told:
            command.append(f"--loop-ms={round(self._every * 1e3)}")
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            thread = threading.Thread(target=self._watch, args=[child.stdout], daemon=True)
            thread.start()
            for end in (child.wait, thread.join, child.terminate):  # the last of them comes first
                self._stack.callback(end)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _watch(self, lines: Iterable[str]) -> None:
        for line in lines:
            if (reading := _reading(line)) is not None:
                self._readings.append(reading)

    def summary(self) -> dict[str, Any]:
        """[lowest, median, highest] of each reading while it ran; None where none was had.

        "slowdowns" says what else than its power limit slowed the GPU, and in which share of the
        readings; it is there only if something did.
        """
        found = self._readings
        if not found:
            return dict.fromkeys(NAMES)
        columns = {name: sorted(getattr(r, name) for r in found) for name in NAMES}
        ends = {name: [c[0], c[len(c) // 2], c[-1]] for name, c in columns.items()}
        return ends | _slowdowns(found)

    def between(self, start: float, end: float) -> dict[str, Any]:
        """Medians of what was read from `start` to `end` (time.monotonic), and how often.

        "power_capped" is the share of readings in which the power limit held the clock down.
        """
        found = [r for r in self._readings if start <= r.at <= end]
        if not found:
            return {"readings": 0}
        return {
            "readings": len(found),
            "power_w": statistics.median(r.power_w for r in found),
            "sm_clock_mhz": statistics.median(r.sm_clock_mhz for r in found),
            "power_capped": _share(found, POWER_CAP),
            **_slowdowns(found),
        }


def _share(readings: list[Reading], bit: int) -> float:
    return round(sum(bool(r.reasons & bit) for r in readings) / len(readings), 3)


def _slowdowns(readings: list[Reading]) -> dict[str, dict[str, float]]:
    found = {word: share for bit, word in SLOWDOWNS.items() if (share := _share(readings, bit))}
    return {"slowdowns": found} if found else {}


def _reading(line: str) -> Reading | None:
    """A line of nvidia-smi; None if a field is missing."""
    *numbers, reasons = _parts(line)
    values = [_number(text) for text in numbers]
    if len(values) != len(NAMES) or None in values or not reasons.startswith("0x"):
        return None
    clock, power, temperature = (value for value in values if value is not None)
    return Reading(time.monotonic(), clock, power, temperature, int(reasons, 16))
