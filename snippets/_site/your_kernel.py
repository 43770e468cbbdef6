"""Kernels that hold just what somebody needs: the choices, their files, and how one is made.

A file is folded from a room's complete kernel, which is read and not imported, and from what stands
around it in a file: `host_side`. The build publishes some; `make your-kernel` folds any other.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import itertools
import json
import re
import subprocess
import sys
import textwrap
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from snippets._lab.rooms import UnknownName
from snippets._site import fold, listings
from snippets._site.program import SOME, Choice

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path("snippets/masks_and_packing/kernel.py")
BACKWARD = Path("snippets/masks_and_packing/backward.py")
HOST = Path("snippets/_site/host_side.py")
CACHE = Path(".cache/your_kernel")
GPUS = {  # generation → compute capabilities
    "sm_80": ((8, 0), (8, 7)),
    "sm_89": ((8, 6), (8, 9), (12, 0), (12, 1)),
    "sm_90": ((9, 0),),
    "sm_100": ((10, 0),),
}
MADE_BY = ("fold.py", "program.py", "wording.py", "your_kernel.py", "host_side.py")
WIDTHS = (64, 128, 256)


# What no file holds both of.
EXCLUDED = (
    ("packed", "bias"),
    ("packed", "contiguous"),
    ("bias", "backward"),
    ("packed", "backward"),
)


class UnknownChoice(UnknownName):
    """No such choice, or two that exclude each other."""


@dataclass(frozen=True)
class Ticks:
    """What somebody needs."""

    causal: bool = False  # no query sees a later key
    window: bool = False  # a query sees only so many keys on each side
    sinks: bool = False  # a learned score a head, without a value
    packed: bool = False  # sequences of several lengths in one tensor
    softcap: bool = False  # of scores
    bias: bool = False  # added to scores
    grouped: bool = False  # heads of queries share heads of keys
    lse: bool = False  # the logsumexp of each row is returned, too
    contiguous: bool = False  # all tensors are
    backward: bool = False  # autograd can go through it
    D: int = 128
    gpu: str = "sm_90"

    def __post_init__(self) -> None:
        for one, other in EXCLUDED:
            if getattr(self, one) and getattr(self, other):
                raise UnknownChoice(f"{one} goes without {other}")
        if self.D % 8 or not 16 <= self.D <= 256 or self.gpu not in GPUS:
            known = f"D 16 to 256 in steps of 8; GPU {', '.join(GPUS)}"
            raise UnknownChoice(f"D {self.D} on {self.gpu}; allowed: {known}")

    @property
    def on(self) -> list[str]:
        """The features that are ticked."""
        return [x.name for x in fields(self) if getattr(self, x.name) is True]

    @property
    def tma(self) -> bool:
        """Whether keys and values may come in by TMA."""
        return self.gpu in ("sm_90", "sm_100") and not self.packed

    @property
    def name(self) -> str:
        """The file's name, without its end."""
        return "_".join([*(self.on or ["plain"]), f"d{self.D}", self.gpu])

    @property
    def command(self) -> str:
        """What folds the file."""
        asked = [f"{name.upper()}=1" for name in self.on]
        return " ".join(["make your-kernel", *asked, f"D={self.D}", f"GPU={self.gpu}"])


# What the page calls them.
LABELS = {
    "causal": "causal",
    "window": "sliding window",
    "sinks": "sinks",
    "packed": "packed sequences",
    "softcap": "soft cap",
    "bias": "bias",
    "grouped": "grouped heads",
    "lse": "log-sum-exp",
    "contiguous": "contiguous tensors only",
    "backward": "backward",
}
CARDS = {
    "sm_80": "A100, A30",
    "sm_89": "RTX 30, 40, 50; L4, L40",
    "sm_90": "H100, H200",
    "sm_100": "B200",
}
PLACE = "<!-- popular kernels -->"
FEATURES = [x.name for x in fields(Ticks) if x.type == "bool"]
FLAGS = ("causal", "grouped", "packed", "contiguous", "backward")
# What people ask for, by its name.
POPULAR = {
    "Llama 3, Qwen 3, Mistral: prefill": Ticks(causal=True, grouped=True),
    "the same, all tensors contiguous": Ticks(causal=True, grouped=True, contiguous=True),
    "the shortest: causal, contiguous": Ticks(causal=True, contiguous=True),
    "gpt-oss: window and sinks": Ticks(causal=True, window=True, sinks=True, grouped=True, D=64),
    "Gemma 2: window and soft cap": Ticks(
        causal=True, window=True, softcap=True, grouped=True, D=256
    ),
    "GPT-2: causal, one head of keys each": Ticks(causal=True, D=64),
    "encoders, diffusion: no mask": Ticks(D=64),
    "T5, ALiBi: a bias": Ticks(bias=True, D=64),
    "training: causal": Ticks(causal=True, grouped=True, backward=True),
    "ring attention: causal, with logsumexp": Ticks(causal=True, lse=True),
}


def cover() -> list[Ticks]:
    """Choices in which any two ticks meet in each of their values, where a file can hold both."""
    values: dict[str, tuple[Any, ...]] = {name: (False, True) for name in FEATURES}
    values |= {"D": WIDTHS, "gpu": tuple(GPUS)}
    couples = itertools.combinations([(name, x) for name in values for x in values[name]], 2)
    missing = {frozenset(x) for x in couples if x[0][0] != x[1][0] and _possible(dict(x))}
    found = []
    while missing:
        chosen = dict(min(missing, key=lambda pair: sorted(map(str, pair))))
        for name, options in values.items():
            if name not in chosen:
                more = [chosen | {name: x} for x in options]
                chosen = max(filter(_possible, more), key=lambda x: len(missing & _couples(x)))
        missing -= _couples(chosen)
        found.append(Ticks(**chosen))
    return found


def _couples(chosen: Mapping[str, Any]) -> set[frozenset[tuple[str, Any]]]:
    return {frozenset(x) for x in itertools.combinations(chosen.items(), 2)}


def _possible(chosen: Mapping[str, Any]) -> bool:
    try:
        Ticks(**chosen)
    except UnknownChoice:
        return False
    return True


@functools.cache
def published() -> dict[str, Ticks]:
    """Each file that the build publishes: what is popular, on two generations, and the cover."""
    popular = [replace(x, gpu=gpu) for x in POPULAR.values() for gpu in ("sm_90", "sm_80")]
    return {x.name: x for x in [*popular, *cover()]}


# What a choice says of the file.


def choice(ticks: Ticks, source: str) -> Choice:
    """The ticks, as the partial evaluator takes them."""
    off = {name: not getattr(ticks, name) for name in FEATURES}
    off["logsumexp"] = off["lse"] and off["backward"]
    D, width = ticks.D, 1 << (ticks.D - 1).bit_length()
    known: dict[str, object] = {
        "align": "bottom_right",
        "return_lse": ticks.lse,
        **{name: getattr(ticks, name) for name in FLAGS},
        **{name: None if off[name] else SOME for name in ("window", "sinks", "softcap", "bias")},
        **{f"cu_seqlens_{x}": SOME if ticks.packed else None for x in "qk"},
        "hopper": ticks.tma,
        "hides": ticks.causal or ticks.window,
        "left": SOME if ticks.window else None,
        "specialized": _specialized(ticks),
        "grad_lse": SOME if ticks.lse else None,
        "keep": ticks.backward and _tiles(ticks)[1].KEEP,
        "D": D,
        "BLOCK_D": width,
    }
    words = {
        "window": ("window", "windows"), "sinks": ("sink", "sinks"), "bias": ("bias",),
        "packed": ("packed", "Packed", "packing"), "softcap": ("soft cap", "softcap"),
        "logsumexp": ("logsumexp",), "causal": ("causal",), "grouped": ("groups",),
    }  # fmt: skip
    given = dict.fromkeys(AROUND, known)
    # The backward needs the logsumexp, whether the caller gets it or not.
    given["_forward"] = known | {"return_lse": True}
    return Choice(
        ("attention",),
        given,
        {"D": D, "BLOCK_D": width},
        tuple(_texts(ticks, source)),
        ("gfx942", "7.5", *(word for name in words if off[name] for word in words[name])),
    )


AROUND = ("attention", "_refusals", "main", "_four_dimensions", "_loaded", "_visible", "_gradients")


def _specialized(ticks: Ticks) -> bool:
    """Whether one warp loads while the others compute: where a loop has no branch."""
    return not ({"causal", "window"} & {*ticks.on}) and _tile(ticks).warp_specialize


def _texts(ticks: Ticks, source: str) -> Iterator[tuple[str, str]]:
    """What a file narrows, beyond the complete kernel: old, new."""
    D, gpu = ticks.D, ticks.gpu
    tile = _tile(ticks)
    table = source[source.index("# Queries of a program,") : source.index("@triton.jit")]
    fit = "the fastest on an H200" if gpu == "sm_90" else f"fits {gpu}, not timed"
    yield (
        table,
        "# Queries of a program, keys of an iteration, warps, iterations that load at once.\n"
        "BLOCK_M, BLOCK_N, NUM_WARPS, NUM_STAGES = "
        f"{', '.join(map(str, tile[:4]))}  # {fit}\n{_constants(ticks)}"
        f"GPUS = {GPUS[gpu]}  # compute capabilities that it is for\n\n\n",
    )
    interpreted = source[source.index("INTERPRETED = ") : source.index("LOG2_E = ")]
    upcast = "UPCAST = tl.constexpr(triton.knobs.runtime.interpret)"
    yield interpreted, f"{upcast}  # the interpreter has no bfloat16\n"
    yield (
        "as flash_attention computes it, with the masks and terms that models add",
        f"on tensor cores{', differentiable once' * ticks.backward}; no M × N matrix ever exists",
    )
    yield "from 2^-64 to 2^64", "from 2^-64 to 1"
    yield (
        "float16, bfloat16 or float32 (on CUDA cores); D 16 to 256 in steps of 8;",
        (f"float16 or bfloat16; D {D};"),
    )
    if not _specialized(ticks):
        start = source.index("    # A kernel that makes a descriptor")
        yield source[start : source.index("    with torch.cuda.device_of", start)], ""
        yield "context.run(_attention_kernel", "_attention_kernel"
        yield " * H * B,)],", " * H * B,)]("
    if ticks.backward and not _tiles(ticks)[0].maxnreg:
        yield ", maxnreg=KEYS_REGISTERS", ""
    here, there = "descriptors of [B, Hkv, N, D]", "pointers to the first element"
    if not ticks.tma:
        yield f"k and v: {here}, or {there}", there
        yield "# TMA: descriptor of [B, H, rows, D]; otherwise pointer", "# pointer"
    elif ticks.contiguous:
        yield f"k and v: {here}, or {there}", f"k and v: {here}"
    if ticks.contiguous:
        yield "Any strides, but the D columns of a row lie side by side.", "Contiguous."
    if not ticks.grouped:
        yield "hk = h // G  # the head of keys and values\n\n", "hk = h\n\n"
        yield "k, v: [..., Hkv, N, D], H a multiple of Hkv", "k, v: [..., H, N, D]"


def _constants(ticks: Ticks) -> str:
    """The tiles of the backward, as a file names them."""
    if not ticks.backward:
        return ""
    lines = [
        "KEYS_M, KEYS_N, KEYS_WARPS, KEYS_STAGES = {}, {}, {}, {}  # for dK and dV",
        "QUERIES_M, QUERIES_N, QUERIES_WARPS, QUERIES_STAGES = {}, {}, {}, {}  # for dQ",
        "AT_ONCE = 256  # programs that start at one time, about",
    ]
    keys, queries = _tiles(ticks)
    if keys.maxnreg:
        lines.append(
            f"KEYS_REGISTERS = {keys.maxnreg}  # of a thread at most: more run at one time"
        )
    return "".join(f"{x}\n" for x in lines).format(*keys[:4], *queries[:4])


def _tile(ticks: Ticks) -> Any:
    """The row of the forward's table for these ticks."""
    found = _tables(SOURCE, "Tile", "HOPPER_128", "TILE_CONFIGS", "BIASED")
    if ticks.bias and ticks.gpu in found["BIASED"] and ticks.D <= 128:
        return found["BIASED"][ticks.gpu]
    rows = found["TILE_CONFIGS"][ticks.gpu]
    D = 256 if ticks.bias else ticks.D
    tiles = rows[min(width for width in rows if width >= D)]
    plain = not {*ticks.on} - {"grouped", "lse", "contiguous", "backward"}
    return tiles if isinstance(tiles, found["Tile"]) else tiles[not plain]


def _tiles(ticks: Ticks) -> tuple[Any, Any]:
    """The tile for dK and dV, and that for dQ."""
    rows = _tables(BACKWARD, "Tile", "TILES")["TILES"][ticks.gpu]
    for_keys, *for_queries = rows[min(width for width in rows if width >= ticks.D)]
    return for_keys, for_queries[-1 if ticks.causal or ticks.window else 0]


@functools.cache
def _tables(path: Path, *names: str) -> dict[str, Any]:
    """What a kernel's file calls by these names: numbers, and the tuples that they stand in."""
    found: dict[str, Any] = {"namedtuple": namedtuple, "NamedTuple": NamedTuple}
    for node in ast.parse((ROOT / path).read_text("utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else node
        if {getattr(target, "id", ""), getattr(target, "name", "")} & {*names}:
            exec(ast.unparse(node), found)  # noqa: S102 - ours
    return found


def _docstring(ticks: Ticks) -> str:
    words = {"lse": "with logsumexp", "softcap": "soft cap", "grouped": "grouped heads"}
    what = ", ".join(words.get(x, x) for x in ticks.on if x != "backward") or "no mask"
    both = "forward and backward" if ticks.backward else "forward"
    parts = (
        f"Attention, {both}: {what}.",
        f"For {ticks.D} columns, float16 or bfloat16, on {ticks.gpu}. Run it alone: it checks "
        "itself against PyTorch, on a CPU too. Needs torch >= 2.11 and triton >= 3.6. Made from "
        f"*Attention, Measured*, MIT license, by {ticks.command}",
    )
    return "\n\n".join(textwrap.fill(x, 97, break_on_hyphens=False) for x in parts) + "\n"


# Files.


def source(ticks: Ticks) -> str:
    """The complete kernels, as the files call them, and what stands around them."""
    text = listings.without_markers((ROOT / SOURCE).read_text("utf-8"))
    own = (ROOT / HOST).read_text("utf-8")
    if not ticks.lse:  # autograd hands over what it gives
        own = own.replace("        return out, lse\n\n    @", "        return out\n\n    @")
        own = own.replace("saved_tensors, grad_out, grad_lse", "saved_tensors, grad_out")
        own = own.replace("backward(ctx, grad_out, grad_lse)", "backward(ctx, grad_out)")
    forward = own.index("def _forward(")
    if ticks.backward and not ticks.sinks:
        own = re.sub(r"v, sinks, (?=o|\*)", "v, ", own[:forward]) + own[forward:]
        forward = own.index("def _forward(")
    names = own[own.index("q, k, v, sinks", forward) : own.index("\n):", forward)]
    loop = f"    for error in _refusals({names}):  # fmt: skip\n        raise error\n"
    start = own.index("    ", own.index("\n):  # fmt: skip\n", 0 if ticks.backward else forward))
    kernels = ""
    if ticks.backward:
        tuples = "from collections import namedtuple\n"
        text = text.replace(tuples, f"{tuples}from typing import Any, NamedTuple\n")
        kernels = _backward_kernels()
    launcher = text.index("def masks_and_packing(")
    body = text.index("    for error in _refusals")  # of the launcher, after its docstring
    end = text.index('\n\nif __name__ == "__main__":\n    raise')
    whole = text[:launcher] + kernels + text[launcher:body] + loop + own[start:] + text[end:]
    return whole.replace("masks_and_packing", "attention")


def _backward_kernels() -> str:
    """Those of the backward, beside the forward's: what both have is there once."""
    text = listings.without_markers((ROOT / BACKWARD).read_text("utf-8"))
    text = text[
        text.index("# N, M or G = 1 as a constant") : text.index("def masks_and_packing_ba")
    ]
    start = text.index("@triton.jit\ndef _sequence(")
    text = text[:start] + text[text.index("@triton.jit\ndef _seen_keys(") :]
    return text.replace("_load_rows(", "_load_head(")


def made(ticks: Ticks) -> str:
    """The file that holds these ticks and nothing else, from the cache if it is there."""
    whole = source(ticks)
    code = [(ROOT / "snippets/_site" / name).read_bytes() for name in MADE_BY]
    key = hashlib.sha256(b"".join([*code, whole.encode(), repr(ticks).encode()])).hexdigest()
    path = ROOT / CACHE / f"{key[:32]}.py"
    if not path.exists():
        text = fold.fold(whole, choice(ticks, whole))
        head = f'"""{_docstring(ticks)}"""'
        text = formatted(re.sub(r'^""".*?"""', lambda _: head, text, count=1, flags=re.DOTALL))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".part").write_text(text, "utf-8")
        path.with_suffix(".part").replace(path)
    return path.read_text("utf-8")


def formatted(text: str) -> str:
    """A file as ruff lays it out; what has become short enough stands on one line."""
    text = re.sub(
        r"^( *)([^\n#]*\()\n((?:(?!\n\n)[^#])*?)\n *(\)+:?)  # fmt: skip$",
        _on_one_line,
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(r"^( *for [^#\n]*:)  # fmt: skip$", r"\1", text, flags=re.MULTILINE)
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(SOURCE), "-"]
    ruff += ["--config", "format.skip-magic-trailing-comma=true"]
    done = subprocess.run(ruff, input=text, capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout


def _on_one_line(found: re.Match[str]) -> str:
    indent, head, inside, end = found.groups()
    line = indent + head + re.sub(r"\s+", " ", inside.strip().rstrip(",")) + end
    return line if len(line) <= 100 else found[0]


def asked(words: Sequence[str]) -> Ticks:
    """The ticks that a command names: CAUSAL, D=128, GPU=sm_80."""
    given: dict[str, Any] = {}
    for word in words:
        name, _, value = word.lower().partition("=")
        given["D" if name == "d" else name] = int(value) if name == "d" else value or True
    unknown = given.keys() - {x.name for x in fields(Ticks)}
    if unknown:
        raise UnknownChoice(f"{', '.join(unknown)}: one of {', '.join(FEATURES)}, D, GPU is meant")
    return Ticks(**given)


def code_lines(text: str) -> int:
    """Lines of code: without empty ones, comments and docstrings."""
    said = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(x.strip()) and x.strip()[0] != "#" and at not in said for at, x in lines)


# The site.


def add(files: Files, config: MkDocsConfig) -> None:
    """Publish the files, and the list from which the page's widget chooses."""
    listed = []
    every = published().values()
    with ProcessPoolExecutor() as pool:  # a folded file is kept: only the first build is long
        for ticks, text in zip(every, pool.map(made, every), strict=True):
            row = {"name": ticks.name, "on": ticks.on, "D": ticks.D, "gpu": ticks.gpu}
            listed.append(row | {"lines": code_lines(text)})
            files.append(File.generated(config, f"your_kernel/{ticks.name}.py", content=text))
            pieces = json.dumps(listings.colored(text), ensure_ascii=False)
            files.append(File.generated(config, f"your_kernel/{ticks.name}.json", content=pieces))
    data = {"features": LABELS, "excluded": EXCLUDED, "D": WIDTHS, "gpus": CARDS, "files": listed}
    text = json.dumps(data, ensure_ascii=False)
    files.append(File.generated(config, "your_kernel/files.json", content=text))


def shown(markdown: str) -> str:
    """A page's Markdown with the table of what is popular, where it is asked for."""
    if PLACE not in markdown:
        return markdown
    rows = ["| For | The file | Lines of code | Rate |", "| --- | --- | --: | --- |"]
    for title, ticks in POPULAR.items():
        lines = code_lines(made(ticks))
        link = f"[{ticks.name}.py](your_kernel/{ticks.name}.py){{ download }}"
        rows.append(f"| {title} | {link} | {lines} | not measured |")
    source = "[All files](your_kernel/files.json){ .am-source }"
    return markdown.replace(PLACE, "\n".join([*rows, "", source]))
