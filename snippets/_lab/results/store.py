"""Raw results on disk: one JSON file per device, post and result, replaced whole or not at all."""

import hashlib
import json
import os
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


VERSIONS = ("python", "torch", "triton", "cuda", "cudnn")


def path_of(folder: str, post: str, result: str, data: Path = DATA) -> Path:
    """Where a result lies."""
    return data / folder / post / f"{result}.json"


def write(result: Result, data: Path = DATA) -> Path:
    """Replace the result's file atomically: an interruption leaves the old file as it was.

    Raises DataError for an empty or non-finite result, OSError naming an unwritable folder.
    """
    if not result.rows:
        raise DataError(f"{result.post}/{result.result} has no rows; nothing is written")
    value = asdict(result)
    try:
        text = dumps(value | {"seal": seal(value)})
    except ValueError as error:  # a number that is not finite
        raise DataError(f"{result.post}/{result.result}: {error}") from None
    path = path_of(result.folder, result.post, result.result, data)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
    return path


def seal(value: dict[str, Any]) -> str:
    """A digest of a result's fields, the seal itself apart, however the file is laid out."""
    fields = {name: item for name, item in value.items() if name != "seal"}
    text = json.dumps(
        fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
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
        made = seal(value) if isinstance(value, dict) else ""
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except (ValueError, RecursionError) as error:  # 5000 digits, 10,000 brackets
        raise DataError(f"{path} is not whole JSON ({error})") from None
    if not made:
        raise DataError(f"{path} holds a {type(value).__name__}, not an object")
    if value.get("schema") != SCHEMA:
        raise DataError(
            f"{path} has schema {value.get('schema')!r}, this code reads {SCHEMA}: measure it again"
        )
    if value.get("seal") != made:
        raise DataError(
            f"{path} was changed after it was measured: its seal is {value.get('seal')}, its "
            f"content's {made}; measure it again"
        )
    found = Result(**value)
    if path != (place := path_of(found.folder, found.post, found.result, data)):
        raise DataError(f"{path} says that it belongs at {place}")
    if wrong := next(faults(found), None):
        raise DataError(f"{path}: {wrong}")
    return found


def scan(data: Path = DATA) -> Iterator[Result]:
    """All results on disk, by path. Leftovers of interrupted writes (.part) are not results."""
    for path in sorted(data.rglob("*.json")):
        yield read(path, data)


def timed_with(package: str, data: Path = DATA) -> str:
    """The version of a package that most results of GPUs were measured with; "" without any."""
    found = Counter(result.versions[package] for result in scan(data) if result.place == "gpu")
    return max(found, key=found.__getitem__, default="")
