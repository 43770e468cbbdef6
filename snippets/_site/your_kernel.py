"""Kernels that hold just what somebody needs: the choices, their files, and how one is made.

A file is folded from a room's complete kernel, which is read and not imported, and from what stands
around it in a file: `host_side`. The build publishes some; `make your-kernel` folds any other.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import itertools
import json
import random
import re
import subprocess
import sys
import textwrap
from collections import namedtuple
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from snippets._lab.draw import units
from snippets._lab.draw.rows import moved, pick
from snippets._lab.draw.rows import rate as flops_of
from snippets._lab.results import store
from snippets._lab.rooms import UnknownName
from snippets._site import fold, listings
from snippets._site.fold import SOME, Choice

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path("snippets/masks_and_packing/kernel.py")
BACKWARD = Path("snippets/masks_and_packing/backward.py")
DECODE = Path("snippets/decode_attention/kernel.py")
HOST = Path("snippets/_site/host_side.py")
CACHE = Path(".cache/your_kernel")
GPUS = {  # generation → compute capabilities
    "sm_80": ((8, 0), (8, 7)),
    "sm_89": ((8, 6), (8, 9), (12, 0), (12, 1)),
    "sm_90": ((9, 0),),
    "sm_100": ((10, 0),),
}
CARDS = ("A100, A30", "RTX 30, 40, 50; L4, L40", "H100, H200", "B200")
TMA = ("sm_90", "sm_100")  # keys and values may come in by it
MADE_BY = ("fold.py", "fold_words.py", "your_kernel.py", "host_side.py")
WIDTHS = (64, 128, 256)


# What a file for training and prefill can hold, one for decoding, and what none holds both of.
USES = (
    ("causal", "window", "sinks", "packed", "softcap", "bias", "grouped", "lse", "contiguous",
     "backward"),
    ("window", "sinks", "grouped", "lse", "paged", "float8", "same_bits"),
)  # fmt: skip
EXCLUDED = (("packed", "bias"), ("packed", "contiguous"), ("bias", "backward"), ("float8", "sm_80"))


# Tick → what the page calls it, what comments call it.
FEATURES = {
    "causal": ("causal", "causal"),  # no query sees a later key
    "window": ("sliding window", "window windows"),  # so many keys on each side
    "sinks": ("sinks", "sink sinks"),  # a learned score a head, without a value
    "packed": ("packed sequences", "packed Packed packing"),  # of several lengths, in one tensor
    "softcap": ("soft cap", "softcap cap"),  # of scores
    "bias": ("bias", "bias"),  # added to scores
    "grouped": ("grouped heads", "groups"),  # heads of queries share heads of keys
    "lse": ("log-sum-exp", ""),  # that of each row is returned, too
    "contiguous": ("contiguous tensors only", ""),
    "backward": ("backward", ""),  # autograd can go through it
    "decode": ("decoding", ""),  # few new tokens over a cache, each after all keys that it sees
    "paged": ("paged cache", "page pages paged page_table"),
    "float8": ("float8 cache", "float8 float8_e4m3fn"),  # float8_e4m3fn, with scales
    "same_bits": ("same bits in every batch", "batch-invariant"),
}


@dataclass(frozen=True)
class Ticks:
    """What somebody needs. Each feature is an attribute, too: whether it is ticked."""

    on: tuple[str, ...] = ()  # in the order of FEATURES
    D: int = 128
    gpu: str = "sm_90"

    def __post_init__(self) -> None:
        for names in EXCLUDED:
            if {*names} <= {*self.on, self.gpu}:
                raise UnknownName(f"{names[0]} goes without {names[1]}")
        if other := {*self.on} - {*USES[self.decode], "decode"}:
            with_it = "without" if self.decode else "with"
            raise UnknownName(f"{', '.join(sorted(other))}: {with_it} decode only")
        if self.D % 8 or not 16 <= self.D <= 256 or self.gpu not in GPUS:
            known = f"D 16 to 256 in steps of 8; GPU {', '.join(GPUS)}"
            raise UnknownName(f"D {self.D}, GPU {self.gpu!r}; allowed: {known}")

    def __getattr__(self, name: str) -> bool:
        if name not in FEATURES:
            raise AttributeError(name)
        return name in self.on

    @property
    def name(self) -> str:
        """The file's name, without its end."""
        return "_".join([*(self.on or ["plain"]), f"d{self.D}", self.gpu])


PLACE = "<!-- popular kernels -->"
# What people ask for, by its name.
POPULAR = {
    "Llama 3, Qwen 3: prefill": "causal grouped",
    "the same, all tensors contiguous": "causal grouped contiguous",
    "the shortest: causal, contiguous": "causal contiguous",
    "gpt-oss, windowed layers: window and sinks": "causal window sinks grouped D=64",
    "Gemma 2 9B, windowed layers: window and soft cap": "causal window softcap grouped D=256",
    "GPT-2: causal, one head of keys each": "causal D=64",
    "encoders, diffusion: no mask": "D=64",
    "T5 encoder: a bias": "bias D=64",
    "training: causal": "causal grouped backward",
    "training: packed sequences": "causal packed grouped backward",
    "ring attention: causal, with logsumexp": "causal lse",
    "Llama 3, Qwen 3: decoding": "decode grouped",
    "the same, from a paged cache": "decode grouped paged",
    "gpt-oss, windowed layers: decoding": "decode window sinks grouped paged D=64",
    "decoding from a float8 cache": "decode grouped paged float8",
    "decoding, same bits in every batch": "decode grouped paged same_bits",
}


def cover(decode: bool) -> Iterator[Ticks]:
    """Choices in which any two ticks meet in each of their values, where a file can hold both."""
    values: dict[str, Sequence[Any]] = {name: (False, True) for name in USES[decode]}
    values |= {"D": WIDTHS, "gpu": tuple(GPUS)}
    every = []
    for *chosen, D, gpu in itertools.product(*values.values()):
        named = {*itertools.compress(values, chosen), *["decode"] * decode}
        with contextlib.suppress(UnknownName):
            every.append(Ticks(tuple(x for x in FEATURES if x in named), D, gpu))
    some = random.Random(0).sample(every, min(500, len(every)))
    pairs = {x: {*itertools.combinations([(y, getattr(x, y)) for y in values], 2)} for x in some}
    missing = set().union(*pairs.values())
    while missing:
        best = max(pairs, key=lambda x: len(pairs[x] & missing))
        missing -= pairs[best]
        yield best


@functools.cache
def popular() -> dict[str, Ticks]:
    """What people ask for, by its name."""
    return {title: asked(words.split()) for title, words in POPULAR.items()}


@functools.cache
def published() -> dict[str, Ticks]:
    """Each file that the build publishes: what is popular, on two generations, and the cover.

    And what most people ask for first, in every width and on every generation.
    """
    files = [
        replace(x, gpu=gpu)
        for x in popular().values()
        for gpu in ("sm_90", "sm_89" if x.float8 else "sm_80")
    ]
    first = [Ticks(("causal", "grouped"), D, gpu) for D in WIDTHS for gpu in GPUS]
    return {x.name: x for x in [*files, *first, *cover(False), *cover(True)]}


# What a choice says of the file.


def choice(ticks: Ticks, source: str) -> Choice:
    """The ticks, as the partial evaluator takes them."""
    options = {
        "window": ticks.window, "sinks": ticks.sinks, "softcap": ticks.softcap, "bias": ticks.bias,
        "cu_seqlens_q": ticks.packed, "cu_seqlens_k": ticks.packed,
        "left": ticks.window, "grad_lse": ticks.lse, "cache_seqlens": ticks.decode,
        "page_table": ticks.paged, "page": ticks.paged,
        "k_scale": ticks.float8, "v_scale": ticks.float8,
    }  # fmt: skip
    known: dict[str, object] = {x: x in ticks.on for x in FEATURES if x != "lse"}
    known |= {name: SOME if there else None for name, there in options.items()}
    known |= {"max_seqlen": None} if not ticks.decode else {}
    known |= {
        "align": "bottom_right", "return_lse": ticks.lse, "keep_lse": ticks.lse or ticks.backward,
        "hopper": ticks.gpu in TMA, "hides": ticks.causal or ticks.window,
        "specialized": not ticks.decode and _specialized(ticks),
        "keep": ticks.backward and _tiles(ticks)[1].KEEP,
        "batch_invariant": ticks.same_bits, "invariant": ticks.same_bits,
        "fp8": ticks.float8, "num_splits": 0,
    }  # fmt: skip
    off = [words for name, (_, words) in FEATURES.items() if not getattr(ticks, name)]
    gone = " ".join(off).split()
    if not (ticks.lse or ticks.backward or ticks.decode):
        gone.append("logsumexp")
    texts_of = _decode_texts if ticks.decode else _texts
    facts = {"D": ticks.D, "BLOCK_D": 1 << (ticks.D - 1).bit_length()}
    texts = ("from 2^-64 to 2^64", "from 2^-64 to 1"), *texts_of(ticks, source)
    return Choice("attention", known, facts, texts, ("gfx942", "7.5", "`invariant`", *gone))


def _specialized(ticks: Ticks) -> bool:
    """Whether one warp loads while the others compute: where a loop has no branch."""
    return not ({"causal", "window"} & {*ticks.on}) and _tile(ticks).warp_specialize


def _decode_texts(ticks: Ticks, source: str) -> Iterator[tuple[str, str]]:
    """Those of a file for decoding."""
    found = _tables(DECODE, "Tile", "TILES", "FEW_TILES")
    of_few = "float8" if ticks.float8 else "16 bits"
    tile, few_tile = (
        next(str(tile) for width, tile in tiles.items() if width >= ticks.D)
        for tiles in (found["TILES"]["16 bits"], found["FEW_TILES"][of_few])
    )
    wide = 64 < ticks.D <= 128
    table = _between(source, "# Largest D that a row", "# Instead, with 65")
    head = f"D = {ticks.D}  # columns\nGPUS = {GPUS[ticks.gpu]}  # compute capabilities\n"
    other = few_tile != tile
    few = f"FEW_TILE = {few_tile}  # with a few rows of q\n" * other
    yield table, f"{head}TILE = {tile}\n{few}"
    old = _between(source, "    tiles = FEW_TILES[", "    many = programs")
    yield old, f"    tile = {'FEW_TILE if few else ' * other}TILE\n"
    if not other:
        yield "    few = rows <= FEW_ROWS.value\n", ""
    yield 'ROWS = {"16 bits": 64, "float32": 16}', "ROWS = 64"
    yield '    kind = "float32" if dtype == torch.float32 else "16 bits"\n', ""
    yield "ROWS[kind]", "ROWS"
    old = 'kind == "16 bits" and BLOCK_D == 128 and (many or 0 < page < tile.BLOCK_N):'
    new = f"{wide} and ((paged and page < tile.BLOCK_N) or many):"
    yield old, new
    yield "elif page:  # two", "elif paged:  # two"
    H, many = _heads_of_keys(ticks)
    shape = _between(source, "[B, Hkv, N, D], H a", "Any strides. In q's dtype")
    pages = f"[pages, {H}, page, D]{many};\n            a page is a power of two of keys. "
    yield shape, pages if ticks.paged else f"[B, {H}, N, D]{many}. "
    if ticks.lse:
        yield "; with return_lse also [B, H, M] in", ", and the logsumexp [B, H, M] in"
    yield "; `check_cache` in\n        cache.py tells of them.", "."
    yield " Without it every sequence fills its cache.", ""
    yield "v.ptr.dtype.element_ty == tl.uint16", str(ticks.float8)
    if not ticks.float8:
        yield "D=D * WIDTH // BLOCK_D", "D=D"
        yield _between(source, "    if tile.dtype == tl.uint16:", "    return numbers\n"), ""
        yield "    return numbers\n", "    return tile.to(dtype)\n"
    yield "float16, bfloat16 or float32; D at most 256.", f"float16 or bfloat16; D {ticks.D}."


def _texts(ticks: Ticks, source: str) -> Iterator[tuple[str, str]]:
    """Those of a file for training and prefill."""
    D, gpu = ticks.D, ticks.gpu
    tile = _tile(ticks)
    table = _between(source, "# Queries of a program,", "@triton.jit")
    timed = gpu == "sm_90" and D <= 128
    fit = "the fastest that we timed on an H200" if timed else f"fits {gpu}, not compared"
    yield (
        table,
        "# Queries of a program, keys of an iteration, warps, iterations that load at once.\n"
        "BLOCK_M, BLOCK_N, NUM_WARPS, NUM_STAGES = "
        f"{_sizes(tile)}  # {fit}\n{_constants(ticks) if ticks.backward else ''}"
        "# Columns, the next power of two, compute capabilities that it is for.\n"
        f"D, BLOCK_D, GPUS = {D}, {1 << (D - 1).bit_length()}, {GPUS[gpu]}\n\n\n",
    )
    yield (
        "as flash_attention computes it, with the masks and terms that models add",
        f"on tensor cores{', differentiable once' * ticks.backward}; no M × N matrix ever exists",
    )
    kinds = "float16, bfloat16 or float32 (on CUDA cores)"
    yield f"{kinds}; D 16 to 256 in steps of 8;", f"float16 or bfloat16, with D = {D}."
    if not _specialized(ticks):
        yield _between(source, "    # A kernel that makes", "    with torch.cuda.device_of"), ""
        yield "context.run(_attention_kernel", "_attention_kernel"
        yield " * H * B,)],", " * H * B,)]("
    if ticks.backward and not _tiles(ticks)[0].maxnreg:
        yield ", maxnreg=KEYS_REGISTERS", ""
    H, many = _heads_of_keys(ticks)
    here, there = "k and v: descriptors of [B, Hkv, N, D]", "pointers to the first element"
    tma = ticks.gpu in TMA
    both = [here.replace("Hkv", H)] * tma + [there] * (not tma or not ticks.contiguous)
    yield f"{here}, or {there}", ", or ".join(both)
    if not tma:
        yield "# TMA: descriptor of [B, H, rows, D]; otherwise pointer", "# pointer"
    if ticks.contiguous:
        yield "Any strides, but the D columns of a row lie side by side.", "Contiguous."
    if not ticks.grouped:
        yield "hk = h // G  # the head of keys and values\n\n", "hk = h\n\n"
    one, two, rows = "[..., H, M, D]", f"[..., {H}, N, D]", "[..., H, M]"
    if ticks.packed:
        one, two, rows = "[total, H, D]", f"[total, {H}, D]", "[H, total]"
        yield "H and a batch may be left out. Any", "Any"
        yield f"Packed: {one}, the rows of all sequences one", "The rows of all sequences stand one"
    yield "q: [..., H, M, D], float16", f"q: {one}, float16"
    yield "[..., Hkv, N, D], H a multiple of Hkv; packed: [total, Hkv, D]", two + many
    if ticks.lse:
        old = "; with return_lse also [..., H, M], packed [H, total], in"
        yield old, f", and the logsumexp {rows} in"
    if ticks.backward:
        grads = ("[N, {}, D]", "[M, H, D]") if ticks.packed else ("[B, {}, N, D]", "[B, H, M, D]")
        yield "[B, Hkv, N, D], packed [N, Hkv, D]", grads[0].format(H)
        yield "[B, H, M, D], packed [M, H, D]", grads[1]


def _between(text: str, first: str, after: str) -> str:
    """The part of a text that begins with `first`, up to `after`."""
    start = text.index(first)
    return text[start : text.index(after, start)]


def _heads_of_keys(ticks: Ticks) -> tuple[str, str]:
    """What a docstring calls their number, and what it says of it."""
    return ("Hkv", ", H a multiple of Hkv") if ticks.grouped else ("H", "")


def _constants(ticks: Ticks) -> str:
    """The tiles of the backward, as a file names them."""
    keys, queries = _tiles(ticks)
    registers = f"KEYS_REGISTERS = {keys.maxnreg}  # of a thread at most: more run at one time\n"
    return (
        f"KEYS_M, KEYS_N, KEYS_WARPS, KEYS_STAGES = {_sizes(keys)}  # for dK and dV\n"
        f"QUERIES_M, QUERIES_N, QUERIES_WARPS, QUERIES_STAGES = {_sizes(queries)}  # for dQ\n"
        f"{registers * bool(keys.maxnreg)}"
    )


def _sizes(tile: Any) -> str:
    """Queries, keys, warps and stages of a tile, as a file lists them."""
    return ", ".join(map(str, tile[:4]))


def _tile(ticks: Ticks) -> Any:
    """The tile of the forward, as its kernel chooses it."""
    found = _tables(SOURCE, "Tile", "HOPPER_128", "TILE_CONFIGS", "BIASED", "_tile_config")
    branches = bool({*ticks.on} - {"grouped", "lse", "contiguous", "backward"})
    return found["_tile_config"](ticks.gpu, "float16", ticks.D, branches, ticks.bias)


def _tiles(ticks: Ticks) -> tuple[Any, Any]:
    """The tile for dK and dV, and that for dQ."""
    choose = _tables(BACKWARD, "Tile", "TILES", "_tiles")["_tiles"]
    for_keys, for_queries = choose(ticks.gpu, "float16", ticks.D, ticks.causal or ticks.window)
    if ticks.packed:  # all registers: a search comes first
        for_keys = for_keys._replace(maxnreg=None)
    return for_keys, for_queries


@functools.cache
def _tables(path: Path, *names: str) -> dict[str, Any]:
    """What a kernel's file calls by these names: numbers, their tuples, and who chooses them."""
    found: dict[str, Any] = {"namedtuple": namedtuple, "NamedTuple": NamedTuple}
    found["torch"] = SimpleNamespace(float32="float32")  # which a page's build does not need
    for node in ast.parse((ROOT / path).read_text("utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else node
        if {getattr(target, "id", ""), getattr(target, "name", "")} & {*names}:
            exec(ast.unparse(node), found)  # noqa: S102 - ours
    return found


def _docstring(ticks: Ticks) -> str:
    both = "forward and backward" if ticks.backward else "forward"
    named = [FEATURES[x][0] for x in ticks.on if x not in ("backward", "decode")]
    what = ", ".join(named) or ("" if ticks.decode else "no mask")
    asked = [f"{name.upper()}=1" for name in ticks.on] + [f"D={ticks.D}", f"GPU={ticks.gpu}"]
    parts = (
        f"Attention, {'decoding' if ticks.decode else both}{f': {what}' * bool(what)}.",
        f"For {ticks.D} columns, float16 or bfloat16, on {ticks.gpu}. Run it alone: it checks "
        "itself against PyTorch, on a CPU too. Needs torch >= 2.11 and triton >= 3.6. Made from "
        f"*Attention, Measured*, MIT license, by make your-kernel {' '.join(asked)}",
    )
    return "\n\n".join(textwrap.fill(x, 97, break_on_hyphens=False) for x in parts) + "\n"


# Files.


def source(ticks: Ticks) -> str:
    """The complete kernels, as the files call them, and what stands around them."""
    path = ROOT / (DECODE if ticks.decode else SOURCE)
    text = listings.without_markers(path.read_text("utf-8"))
    own = (ROOT / HOST).read_text("utf-8")
    name = "decode_attention" if ticks.decode else "masks_and_packing"
    inside = "_decode" if ticks.decode else "_differentiable" if ticks.backward else "_forward"
    names = own.partition("def _refusals(")[2].partition(",\n):")[0]
    names = " ".join(names.split())
    start = own.index("\n    ", own.index("):", own.index(f"def {inside}("))) + 1
    if ticks.decode:
        text = text.replace("PAGE > 0", str(ticks.paged))
        names = names.replace("k, v,", "k_cache, v_cache,")
        middle = _between(text, "START_TILES = 1", "def _layout(")
    else:
        middle = _between(text, "def _descriptor(", "def _strides(")
    if ticks.contiguous and ticks.gpu in TMA:  # q by pointers, k and v by TMA: two functions
        rows = _between(text, "@triton.jit\ndef _load_rows(", "@triton.jit\ndef _load_b")
        bare = re.sub("    x,  # .*", "    x,", rows)
        text = text.replace(rows, bare.replace("_rows(", "_queries(") + bare)
        text = text.replace("q_tile = _load_rows(", "q_tile = _load_queries(")
    if ticks.backward:
        tuples = "from collections import namedtuple\n"
        text = text.replace(tuples, f"{tuples}from typing import Any, NamedTuple\n")
        middle += _backward_kernels()
    launcher = text.index(f"def {name}(")
    body = text.index('    """\n', text.index("    Raises:", launcher)) + 8
    end = text.index('\n\nif __name__ == "__main__":\n    raise')
    loop = f"    for error in _refusals({names}):  # fmt: skip\n        raise error\n"
    whole = text[:launcher] + middle + text[launcher:body] + loop + own[start:] + text[end:]
    return whole.replace(name, "attention")


def _backward_kernels() -> str:
    """Those of the backward, beside the forward's: what both have is there once."""
    text = listings.without_markers((ROOT / BACKWARD).read_text("utf-8"))
    text = _between(text, "# N, M or G = 1 as a constant", "def masks_and_packing_ba")
    text = text.replace("_load_rows(", "_load_head(").replace("_load_bias(", "_load_biases(")
    return text.replace("_sequence(", "_sequence_of(")


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
        store.write_whole(path, text)
    return path.read_text("utf-8")


def formatted(text: str) -> str:
    """A file as ruff lays it out; what has become short enough stands on one line."""
    text = re.sub(r"^( *for [^#\n]*:)  # fmt: skip$", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r"\s*\):  # fmt: skip$", "\n):  # fmt: skip", text, flags=re.MULTILINE)
    listed = r"^( *)([^\n#]*\()\n((?:.*,(?:  # .*)?\n)*?.*,(?:  # .*)?)\s*(\)+:?)  # fmt: skip$"
    text = re.sub(listed, _filled, text, flags=re.MULTILINE)
    text = ruff(text, "check", "--fix", "--select=F401")  # imports that nobody needs
    return ruff(text, "format", "--config=format.skip-magic-trailing-comma=true")


def ruff(text: str, *options: str) -> str:
    """What ruff makes of a text."""
    command = [sys.executable, "-m", "ruff", *options, "--stdin-filename", str(SOURCE), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout


def _filled(found: re.Match[str]) -> str:
    """What stands in parentheses, on as few lines as it needs."""
    indent, head, inside, end = found.groups()
    items = " ".join(inside.split()).rstrip(",")
    if "#" not in inside and len(line := indent + head + items + end) <= 100:
        return line
    rows: list[str] = []
    for row in inside.splitlines():
        if rows and "#" not in rows[-1] + row and len(rows[-1]) + len(row.strip()) < 100:
            rows[-1] += f" {row.strip()}"
        else:
            rows.append(row)
    return "\n".join([indent + head, *rows, f"{indent}{end}  # fmt: skip"])


def asked(words: Sequence[str]) -> Ticks:
    """The ticks that a command names: CAUSAL or CAUSAL=1, D=128, GPU=sm_80."""
    given = {name: value for name, _, value in (x.lower().partition("=") for x in words)}
    D, gpu = given.pop("d", "128"), given.pop("gpu", "sm_90")
    wrong = [x for x, value in given.items() if x not in FEATURES or value not in ("", "0", "1")]
    if wrong := [*wrong, *["D"] * (not D.isdigit())]:
        known = f"{'=1, '.join(FEATURES)}=1, D=128, GPU=sm_90"
        raise UnknownName(f"{', '.join(wrong)}; allowed: {known}")
    return Ticks(tuple(x for x in FEATURES if given.get(x, "0") != "0"), int(D), gpu)


def code_lines(text: str) -> int:
    """Lines of code: without empty ones, comments and docstrings."""
    code = re.sub(r'^ *""".*?"""$', "", text, flags=re.MULTILINE | re.DOTALL)
    return sum(line.strip()[:1] not in ("", "#") for line in code.splitlines())


@functools.cache
def rates() -> dict[str, tuple[str, str]]:
    """A choice as `popular` of a room names it → that room, and the rate on an H200 in words."""
    found = {}
    for post in ("masks_and_packing", "decode_attention"):
        file = store.path_of("nvidia_h200", post, "popular")
        for row in pick(store.read(file).rows) if file.is_file() else ():
            read = "decode" in row["choice"]
            speed = units.bandwidth(moved(row)) if read else units.flops(flops_of(row))
            found[row["choice"]] = post, f"{speed} on an H200"
    return found


def rate(ticks: Ticks) -> tuple[str, str]:
    """The rate of a file in words, and with a link to the numbers of the same program."""
    choice = " ".join([*(x for x in ticks.on if x != "contiguous"), f"D={ticks.D}"])
    if ticks.gpu != "sm_90" or choice not in rates():
        return "rate not measured", "not measured"
    post, text = rates()[choice]
    return text, f"[{text}](posts/{post}/numbers.md#{post}-popular)"


# The site.


def add(files: Files, config: MkDocsConfig) -> None:
    """Publish the files, and the list from which the page's widget chooses."""
    listed = []
    every = published().values()
    with ProcessPoolExecutor() as pool:  # a folded file is kept: only the first build is long
        for ticks, text in zip(every, pool.map(made, every), strict=True):
            row = {"name": ticks.name, "on": ticks.on, "D": ticks.D, "gpu": ticks.gpu}
            listed.append(row | {"lines": code_lines(text), "rate": rate(ticks)[0]})
            files.append(File.generated(config, f"your_kernel/{ticks.name}.py", content=text))
            pieces = json.dumps(listings.colored(text), ensure_ascii=False)
            files.append(File.generated(config, f"your_kernel/{ticks.name}.json", content=pieces))
    labels, cards = {x: label for x, (label, _) in FEATURES.items()}, zip(GPUS, CARDS, strict=True)
    data: dict[str, object] = {"features": labels, "uses": USES, "excluded": EXCLUDED, "D": WIDTHS}
    data |= {"gpus": dict(cards), "files": listed}
    text = json.dumps(data, ensure_ascii=False)
    files.append(File.generated(config, "your_kernel/files.json", content=text))


def shown(markdown: str) -> str:
    """A page's Markdown with the table of what is popular, where it is asked for."""
    if PLACE not in markdown:
        return markdown
    rows = ["| For | The file | Lines of code | Rate |", "| --- | --- | --: | --- |"]
    for title, ticks in popular().items():
        lines = code_lines(made(ticks))
        link = f"[{ticks.name}.py](your_kernel/{ticks.name}.py){{ download }}"
        rows.append(f"| {title} | {link} | {lines} | {rate(ticks)[1]} |")
    source = "[All files](your_kernel/files.json){ .am-source }"
    return markdown.replace(PLACE, "\n".join([*rows, "", source]))
