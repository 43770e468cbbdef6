"""Made-up measurements that reading believes: for tests of what is done with them."""

from typing import Any

from snippets._lab.results import staleness
from snippets._lab.results.checks import CEILINGS as NAMES
from snippets._lab.results.physics import percentiles
from snippets._lab.results.store import Result, folder_name

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
