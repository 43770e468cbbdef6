"""Made-up measurements that reading believes: for tests of what is done with them."""

import contextlib
import functools
import json
import operator
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import snippets
from snippets._lab import rooms
from snippets._lab.results import staleness
from snippets._lab.results.physics import percentiles
from snippets._lab.results.result import Result, folder_name
from snippets._lab.results.validate import CEILINGS as NAMES

CEILINGS = {
    name: {"per_s_p20": 0.99e15, "per_s_p50": 1e15, "per_s_p80": 1.01e15} for name in sorted(NAMES)
}
VERSIONS = {"python": "3.12", "torch": "2", "triton": "3", "cuda": "none", "cudnn": "none"}


def timed(ms: float = 0.25, spread: float = 0.02, **case: Any) -> dict[str, Any]:
    """A timed row around so many milliseconds; the case names what was timed."""
    samples = [round(ms * (1 + spread * (i - 5) / 5), 9) for i in range(11)]
    work = {"dtype": "float16", "flops": 1e6, "bytes_compulsory": 1e6, "fits_l2": True}
    return work | case | percentiles(samples) | {"ms_samples": samples}


def code_as_it_is(post: str, name: str, place: str = "gpu") -> dict[str, Any]:
    """The fields of a result that say which code it was measured with: the code as it is now."""
    code = staleness.code_of(post, name, place)
    return {"code": code, "source_hash": staleness.source_hash(code)}


def result(post: str, name: str, rows: list[dict[str, Any]], **fields: Any) -> Result:
    """A result of a made-up GPU, or with `place` of the interpreter or a compiler."""
    place = fields.get("place", "gpu")
    device = {
        "gpu": "Some GPU",
        "interpreter": "Triton's interpreter",
        "browser": "a CPU",
        "compiler": "sm_90, compiled ahead of time",
    }[place]
    about = fields.get("device", {"name": device, "power_limit_w": 700.0})
    folders = {"gpu": folder_name(about["name"]), "compiler": "compiler/sm_90"}
    return Result(
        **{
            "post": post,
            "result": name,
            "place": place,
            "folder": folders.get(place, place),
            "device": about,
            "versions": VERSIONS,
            "commit": "unknown",
            "measured_at": "2026-11-21T10:00:00Z",
            "seed": 0,
            "source_hash": "0123456789abcdef",
            "rows": rows,
            "ceilings": CEILINGS if place == "gpu" else {},
        }
        | fields
    )


@contextlib.contextmanager
def room(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str = "fake_attention", **files: str
) -> Iterator[Path]:
    """The folder of a room of these files, without ".py"; it is the only room there is."""
    folder = root / "snippets" / name
    folder.mkdir(parents=True)
    for file, text in ({"__init__": ""} | files).items():
        (folder / f"{file}.py").write_text(text)
    monkeypatch.setattr(rooms, "SNIPPETS", root / "snippets")
    monkeypatch.setattr(snippets, "__path__", [*snippets.__path__, str(root / "snippets")])
    yield folder
    for module in [m for m in sys.modules if m.startswith(f"snippets.{name}")]:
        del sys.modules[module]


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text that the file has once."""
    text = path.read_text("utf-8")
    assert text.count(old) == 1, f"{old!r} is not in {path.name} exactly once"
    path.write_text(text.replace(old, new), encoding="utf-8")


# Every edit of every field of a JSON value: by a number, a word or nothing.


def places_in(value, path=()):
    """The path of everything in a JSON value, the value itself apart."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places_in(item, (*path, key))


def edited(value, path, new):
    """A copy of a JSON value in which something else stands at a path, or nothing at all."""
    copy = json.loads(json.dumps(value))
    *way, last = path
    inside = functools.reduce(operator.getitem, way, copy)
    if new is GONE:
        del inside[last]
    else:
        inside[last] = new(inside[last])
    return copy


GONE = object()
EDITS = {
    "gone": GONE,
    "nothing": lambda old: None if old is not None else 0,
    "a little more": lambda old: old * 1.001 + 1e-9 if isinstance(old, float) else [old],
    "one more": lambda old: old + 1 if isinstance(old, int) else {"was": old},
    "true": lambda old: True if old is not True else 1,
    "text": lambda old: f"{old} " if isinstance(old, str) else str(old),
    "empty": lambda old: type(old)() if old else "x",
}


def edits(value):
    """Copies of a JSON value with one edit each, all that there are."""
    for path in places_in(value):
        for new in EDITS.values():
            yield edited(value, path, new)
