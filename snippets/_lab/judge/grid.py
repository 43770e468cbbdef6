"""What every attention launcher is tried with: dtype, shape, mask, layout and configuration.

A room joins by itself: its launcher is called like the room and takes q and k. What it can be asked
for is read from its signature, and what it can choose among from `CONFIGURATIONS` of its kernel.py:

    CONFIGURATIONS = {"_tiles": TILES}  # the function that chooses → the table it chooses from

The table may be nested; a tuple of numbers in it is a configuration. A key "float32" keeps what is
below it to float32 (and the rest to 16 bits), a number is the widest head that it is for.
"""

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from snippets._lab.judge.oracle import causal_mask, deviation, make_qkv, weights_deviation
from snippets._lab.rooms import attention_rooms, load

DTYPES = ("float16", "bfloat16", "float32")
MASKS = ("full", "causal", "causal, top-left")
LAYOUTS = ("row by row", "heads side by side", "columns apart", "slices", "grouped heads")


class Shape(NamedTuple):
    """Queries, keys, columns."""

    M: int
    N: int
    D: int


# Around the powers of two that tiles have, M ≠ N, columns that fill no tile, one key, one query.
SHAPES = (
    Shape(1, 1, 64),
    Shape(3, 2, 16),
    Shape(2, 63, 40),
    Shape(3, 65, 64),
    Shape(1, 129, 128),
    Shape(65, 3, 24),
)
# Too much for a kernel that goes key by key in the interpreter: that takes a millisecond a key.
LARGE = (Shape(64, 64, 64), Shape(65, 127, 48), Shape(129, 130, 128), Shape(129, 256, 128))
Case = dict[str, Any]


@dataclass(frozen=True)
class Configuration:
    """One way that a launcher may choose to run, and when."""

    name: str
    chooser: str  # the function of kernel.py that would have chosen
    value: tuple[Any, ...]
    dtypes: tuple[str, ...]
    widest: int  # columns


OWN_CHOICE = "the launcher's choice"


def configurations(room: str) -> list[Configuration]:
    """What the launcher can choose among; empty where its kernel has no table."""
    tables: Mapping[str, Any] = getattr(load(room, "kernel"), "CONFIGURATIONS", {})
    found: dict[tuple[Any, ...], Configuration] = {}
    for chooser, table in tables.items():
        leaves = list(_leaves(table, ()))
        by_dtype = any("float32" in path for path, _ in leaves)
        for path, value in leaves:
            dtypes = DTYPES if not by_dtype else ("float32",) if "float32" in path else DTYPES[:2]
            widest = max([key for key in path if isinstance(key, int)], default=256)
            fields = getattr(value, "_fields", None)
            shown = zip(fields, value, strict=True) if fields else [("", x) for x in value]
            text = ", ".join(f"{field} {x}".strip() for field, x in shown)
            where = ", ".join(f"D ≤ {k}" if isinstance(k, int) else str(k) for k in path)
            name = f"{where}: {text}" if where else text
            same = (chooser, tuple(value), dtypes, widest)
            found.setdefault(same, Configuration(name, chooser, value, dtypes, widest))
    return list(found.values())


def _leaves(table: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(table, Mapping):
        for key, inner in table.items():
            yield from _leaves(inner, (*path, key))
    elif any(isinstance(x, tuple | list | Mapping) for x in table):
        for inner in table:
            yield from _leaves(inner, path)
    else:
        yield path, table


def masks(room: str) -> list[str]:
    """The masks that the launcher can be asked for."""
    parameters = inspect.signature(launcher(room)).parameters
    if "causal" not in parameters:
        return list(MASKS[:1])
    return list(MASKS if "align" in parameters else MASKS[:2])


def dtypes(room: str) -> list[str]:
    """The dtypes that the launcher takes: DTYPES of its kernel.py, or all."""
    taken = getattr(load(room, "kernel"), "DTYPES", None)
    return [d for d in DTYPES if taken is None or getattr(torch, d) in taken]


def shapes(room: str, wanted: Sequence[Shape]) -> list[Shape]:
    """The shapes, with the next head dimension that the launcher takes, if VARIANTS lists them."""
    widths = getattr(load(room, "kernel"), "VARIANTS", None)
    if widths is None:
        return list(wanted)
    fitting = {s: min([w for w in widths if w >= s.D], default=max(widths)) for s in wanted}
    return [s._replace(D=D) for s, D in fitting.items()]


def launcher(room: str) -> Callable[..., Tensor]:
    """The function called like its room."""
    found: Callable[..., Tensor] = getattr(load(room, "kernel"), room)
    return found


def pairwise(
    axes: Mapping[str, Sequence[Any]], apart: Sequence[tuple[str, str]] = ()
) -> Iterator[Case]:
    """Few cases in which each value meets each value of every other axis; always the same.

    Axes that are `apart` (pairs, in the order of `axes`) need not meet.
    """
    names = list(axes)
    left = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(names, 2)
        if (a, b) not in apart
        for x, y in itertools.product(axes[a], axes[b])
    }
    every = [dict(zip(names, values, strict=True)) for values in itertools.product(*axes.values())]
    while left:
        best = max(every, key=lambda case: len(left & _pairs(case)))
        left -= _pairs(best)
        yield best


def _pairs(case: Case) -> set[Any]:
    return set(itertools.combinations(case.items(), 2))


def cases(room: str, place: str) -> list[Case]:
    """The cells of a launcher: pairwise with its own choice, then each configuration once.

    A layout that the launcher refuses gets one cell, so that it takes no pair from the others.
    """
    on_gpu = place == "gpu"
    # The interpreter cannot do bfloat16.
    taken = [d for d in dtypes(room) if on_gpu or d != "bfloat16"]
    chosen = [c for c in configurations(room) if set(c.dtypes) & set(taken)]
    small, large = shapes(room, SHAPES), shapes(room, LARGE)
    plain = {"shape": small[1], "dtype": "float16", "mask": MASKS[0], "configuration": None}
    device = "cuda" if on_gpu else "cpu"
    tried = {x: cell(launcher(room), {**plain, "layout": x}, device) for x in LAYOUTS}
    refused = [layout for layout, row in tried.items() if row["outcome"] == "refused"]
    if len(refused) == len(LAYOUTS):
        raise ValueError(f"{room} takes no input here: {tried[LAYOUTS[0]]['reason']}")
    axes: dict[str, Sequence[Any]] = {
        "shape": small + large if on_gpu or chosen else small,
        "dtype": taken,
        "mask": masks(room),
        "layout": [layout for layout in LAYOUTS if layout not in refused],
    }
    found: list[Case] = [{**plain, "layout": layout} for layout in refused]
    found += [{**case, "configuration": None} for case in pairwise(axes, [("shape", "layout")])]
    for i, configuration in enumerate(chosen):
        allowed = [d for d in configuration.dtypes if d in taken]
        fitting = [s for s in large if configuration.widest >= s.D] or [small[1]]
        found.append(
            {
                "shape": fitting[i % len(fitting)],
                "dtype": allowed[i % len(allowed)],
                "mask": axes["mask"][i % len(axes["mask"])],
                "layout": LAYOUTS[0],
                "configuration": configuration,
            }
        )
    return found


def tensors(case: Case, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of a case, laid out as it says: fewer heads where there are many queries."""
    M, N, D = case["shape"]
    dtype, layout = getattr(torch, case["dtype"]), case["layout"]
    heads = (1, 4) if layout == "grouped heads" else (1, 2) if M > 3 else (2, 2)
    q, k, v = make_qkv(*heads, M=M, N=N, D=D, dtype=dtype, device=device, seed=M + N + D)
    if layout == "heads side by side":
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    if layout == "columns apart":
        q, k, v = (x.mT.contiguous().mT for x in (q, k, v))
    if layout == "slices":
        q, k, v = (torch.cat([x, x.flip(-1)], -1)[..., :D] for x in (q, k, v))
    if layout == "grouped heads":
        k, v = (x[:, :2] for x in (k, v))
    return q, k, v


def cell(run: Callable[..., Tensor], case: Case, device: str) -> Case:
    """Run a launcher on a case: its error and what is allowed, or why it did not run.

    "outcome" is "passed", "failed", "refused" (a clear error before the launch) or, for a
    configuration that is not this device's, "does not fit".
    """
    q, k, v = tensors(case, device)
    configuration: Configuration | None = case["configuration"]
    row = {
        "dtype": case["dtype"],
        **case["shape"]._asdict(),
        "mask": case["mask"],
        "layout": case["layout"],
        "configuration": configuration.name if configuration else OWN_CHOICE,
    }
    options: Case = {"causal": True} if case["mask"] != "full" else {}
    if case["mask"] == "causal, top-left":
        options["align"] = "top_left"
    weights = "v" not in inspect.signature(run).parameters
    forced: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if configuration:  # is chosen, whatever the tensors are
        value = configuration.value
        forced = patch.object(inspect.getmodule(run), configuration.chooser, lambda *_, **__: value)
    try:
        with forced:
            out = run(q, k, **options) if weights else run(q, k, v, **options)
            if out.is_cuda:
                torch.cuda.synchronize()
    except (ValueError, TypeError) as error:
        return {**row, "outcome": "refused", "reason": str(error).splitlines()[0]}
    except Exception as error:  # noqa: BLE001 - a cell that fails must not hide the others
        text = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        outcome = "does not fit" if configuration and "OutOfResources" in text else "failed"
        return {**row, "outcome": outcome, "reason": text}
    align = options.get("align", "bottom_right")
    mask = causal_mask(*case["shape"][:2], align=align, device=device) if options else None
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    measured = weights_deviation(out, q, k, mask=mask) if weights else None
    found = measured or deviation(out, q, k, v, mask=mask)
    numbers = {"error_largest": found.largest, "allowed": found.allowed}
    if not found.largest <= found.allowed:  # NaN is not
        text = f"{found.largest:.2e} from float64, allowed {found.allowed:.2e}"
        return {**row, "outcome": "failed", "reason": text}
    return {**row, "outcome": "passed", **numbers}


def rows(
    place: str, each: Callable[..., Iterable[Case]], of: Sequence[str] | None = None
) -> Iterator[Case]:
    """Every cell of every launcher, for the data file."""
    todo = {
        f"{room} {i + 1}": (room, case)
        for room in (attention_rooms(place) if of is None else of)
        for i, case in enumerate(cases(room, place))
    }
    for step in each(cell=list(todo)):
        room, case = todo[step["cell"]]
        device = "cuda" if place == "gpu" else "cpu"
        yield {"launcher": room, **cell(launcher(room), case, device)}
