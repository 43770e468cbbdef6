"""A result: what one bench function measured on one device, and where that comes from."""

import re
from dataclasses import dataclass, field
from typing import Any

Code = dict[str, dict[str, str]]  # file → definition → digest

SCHEMA = 3  # of the files; digests of 2 also counted names and the wording of errors


def folder_name(device_name: str) -> str:
    """Folder of a device: "NVIDIA GeForce RTX 4090" → "nvidia_geforce_rtx_4090"."""
    return re.sub(r"[^a-z0-9]+", "_", device_name.lower()).strip("_")


@dataclass(frozen=True)
class Result:
    """What one bench function returned, and everything needed to believe it."""

    post: str
    result: str
    place: str  # gpu, interpreter, compiler or browser
    folder: str  # below docs/data: "nvidia_h200", "interpreter", "compiler/sm_90", "browser"
    device: dict[str, Any]
    versions: dict[str, str]
    commit: str
    measured_at: str  # UTC, ISO 8601
    seed: int
    source_hash: str
    rows: list[dict[str, Any]]
    ceilings: dict[str, Any] = field(default_factory=dict)
    code: Code = field(default_factory=dict)  # what it depends on, of which source_hash is made
    history: list[dict[str, Any]] = field(default_factory=list)  # what it replaced, oldest first
    schema: int = SCHEMA
    # Of everything above, made when it is written: a file that was edited by hand has another.
    seal: str = field(default="", compare=False)

    @property
    def label(self) -> str:
        """The device as a reader knows it, e.g. "NVIDIA H200"."""
        return str(self.device["name"])

    @property
    def date(self) -> str:
        """Day of the measurement, e.g. "2026-11-21"."""
        return self.measured_at[:10]
