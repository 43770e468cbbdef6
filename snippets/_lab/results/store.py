"""Raw results on disk: one JSON file per device, post and result, replaced whole or not at all."""

import hashlib
import json
import math
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from snippets._lab.results.result import SCHEMA, Result
from snippets._lab.results.validate import faults
from snippets._lab.rooms import DATA


class DataError(ValueError):
    """A data file is missing, truncated, tampered with or of another schema; the text says what."""


TYPES = {
    "schema": int,
    "post": str,
    "result": str,
    "place": str,
    "folder": str,
    "device": dict,
    "versions": dict,
    "commit": str,
    "measured_at": str,
    "seed": int,
    "source_hash": str,
    "ceilings": dict,
    "rows": list,
    "code": dict,
    "history": list,
    "seal": str,
}
LATER: dict[str, Any] = {
    "code": {},
    "history": [],
}  # files that are older than these fields lack them
VERSIONS = ("python", "torch", "triton", "cuda", "cudnn")
FORMS = {"measured_at": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "source_hash": "[0-9a-f]{16}"}


def folder_name(device_name: str) -> str:
    """Folder of a device: "NVIDIA GeForce RTX 4090" → "nvidia_geforce_rtx_4090"."""
    return re.sub(r"[^a-z0-9]+", "_", device_name.lower()).strip("_")


def path_of(folder: str, post: str, result: str, data: Path = DATA) -> Path:
    """Where a result lies."""
    return data / folder / post / f"{result}.json"


DEEPEST = 12  # of lists and objects in each other: an attention map has six
LARGEST = 10**100  # of an integer


def _plain(value: object, where: str, depth: int = 0) -> None:
    """Raise DataError for a number that no float holds, and for what is nested too deep to walk."""
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"{where} is {value}; a result holds finite numbers only")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise DataError(f"{where} is an integer of more than 100 digits; nothing is that large")
    if depth > DEEPEST:
        raise DataError(f"{where} is nested deeper than {DEEPEST}; no result is")
    if isinstance(value, dict):
        for key, item in value.items():
            _plain(item, f"{where}.{key}", depth + 1)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _plain(item, f"{where}.{number}", depth + 1)


def write(result: Result, data: Path = DATA) -> Path:
    """Replace the result's file atomically: an interruption leaves the old file as it was.

    Raises DataError for an empty or non-finite result, OSError naming an unwritable folder.
    """
    if not result.rows:
        raise DataError(f"{result.post}/{result.result} has no rows; nothing is written")
    _plain(asdict(result), f"{result.post}/{result.result}")
    path = path_of(result.folder, result.post, result.result, data)
    path.parent.mkdir(parents=True, exist_ok=True)
    value = asdict(result)
    write_whole(path, dumps(value | {"seal": seal(value)}))
    return path


def seal(value: dict[str, Any]) -> str:
    """A digest of a result's fields, the seal itself apart, however the file is laid out."""
    fields = {name: item for name, item in value.items() if name != "seal"}
    text = json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def dumps(value: dict[str, Any]) -> str:
    """JSON with one row a line: small, and readable in a diff."""
    rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in value["rows"])
    head = json.dumps({k: v for k, v in value.items() if k != "rows"}, indent=1, ensure_ascii=False)
    return f'{head[:-2]},\n "rows": [\n  {rows}\n ]\n}}\n'


def write_whole(path: Path, text: str) -> None:
    """Write a file beside its place and move it in: readers see the old one or the new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp makes it private
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read(path: Path, data: Path = DATA) -> Result:
    """Read one result. Raises DataError that names the file and what is wrong with it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except (ValueError, RecursionError) as error:  # 5000 digits, 10,000 brackets
        raise DataError(f"{path} is not whole JSON ({error})") from None
    _plain(value, f"{path}: it")
    if not isinstance(value, dict):
        raise DataError(f"{path} holds a {type(value).__name__}, not an object")
    if value.get("schema") != SCHEMA:
        raise DataError(
            f"{path} has schema {value.get('schema')!r}, this code reads {SCHEMA}: measure it again"
        )
    for name, kind in TYPES.items():
        found = value.get(name, LATER.get(name))
        if type(found) is not kind:  # isinstance would take true for a number
            raise DataError(f"{path}: {name!r} is {found!r}, not a {kind.__name__}")
    if unknown := value.keys() - TYPES.keys():
        raise DataError(f"{path} has unknown fields: {', '.join(sorted(unknown))}")
    if not value["rows"] or not all(isinstance(row, dict) for row in value["rows"]):
        raise DataError(f"{path}: rows must be objects, at least one")
    if not isinstance(value["device"].get("name"), str):
        raise DataError(f"{path}: the device has no name")
    if not all(isinstance(value["versions"].get(name), str) for name in VERSIONS):
        raise DataError(f"{path}: versions must name {', '.join(VERSIONS)}")
    for name, form in FORMS.items():
        if not re.fullmatch(form, value[name]):
            raise DataError(f"{path}: {name!r} is {value[name]!r}, not of the form {form}")
    found = Result(**value)
    if path != (place := path_of(found.folder, found.post, found.result, data)):
        raise DataError(f"{path} says that it belongs at {place}")
    if wrong := next(faults(found, folder_name), None):
        raise DataError(f"{path}: {wrong}")
    if found.seal != seal(value):
        raise DataError(
            f"{path} was changed after it was measured: its seal is {found.seal}, its content's "
            f"{seal(value)}; measure it again"
        )
    return found


def scan(data: Path = DATA) -> Iterator[Result]:
    """All results on disk, by path. Leftovers of interrupted writes (.part) are not results."""
    for path in sorted(data.rglob("*.json")):
        yield read(path, data)


def timed_with(package: str, data: Path = DATA) -> str:
    """The version of a package that most results of GPUs were measured with; "" without any."""
    found = Counter(result.versions[package] for result in scan(data) if result.place == "gpu")
    return max(found, key=found.__getitem__, default="")
