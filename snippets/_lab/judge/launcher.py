"""Finds the attention function of a module, and how to call it whatever its arguments are named."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from snippets._lab.judge.models import Probe
from snippets._lab.judge.refusal import CannotDiagnose

Function = Callable[..., Any]
WORDS = {"q": "q|query|queries", "k": "k|key|keys", "v": "v|value|values"}
AROUND = (
    "(?:x_?)?(?:{})(?:_?(?:s|in|input|states?|layer|tensor|mat|matrix|proj|heads?|cache|packed))?"
)
ROLES = {role: re.compile(AROUND.format(words)) for role, words in WORDS.items()}
TENSORS = (("q", "k", "v"), ("q", "k"))  # a launcher takes all of one
SCALE = ("scale", "sm_scale", "softmax_scale", "scaling", "qk_scale")
CAUSAL = ("causal", "is_causal", "use_causal_mask")
RESULT = ("o", "out", "output", "result", "attn_out", "attn_output")


# What else a launcher may ask for, with what it is given: sizes, then what is not wanted.
KNOWN: dict[re.Pattern[str], Callable[[Probe], Any]] = {
    re.compile(names): value
    for names, value in {
        "b|bs|z|batch|batch_size": lambda p: p.q.shape[0],
        "h|hq|heads|((num|n)_?)?(q_?)?(attention_)?heads?": lambda p: p.q.shape[1],
        "hkv|h_?kv|h_?k|((num|n)_?)?(kv|k|key_value)_?heads?": lambda p: p.k.shape[1],
        "m|(n|num)_queries|q_len|(max_)?seq_?len_?q": lambda p: p.sizes[0],
        "n|(n|num)_keys|kv_len|(max_)?seq_?len(_?(k|kv))?|n_ctx|t|l|s": lambda p: p.sizes[1],
        "d|d_k|dim|head_?(dim|size)|d_?head": lambda p: p.sizes[2],
        "dropout(_?p(rob)?)?|p_?drop(out)?": lambda p: 0.0,
        "(attn_?|attention_?)?(mask|bias)": lambda p: None,
        "training|return_.*|deterministic": lambda p: False,
        "(block|tile)_?(m|n|q|k|kv|size.*)": lambda p: 32,
    }.items()
}
KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Launcher:
    """A function, and which of its parameters are what; None where it has none."""

    function: Function
    roles: Mapping[str, str]  # one of TENSORS → the parameters' names; empty: the first three
    scale: str | None
    causal: str | None
    align: str | None
    result: str | None
    others: Mapping[str, Callable[[Probe], Any]]
    must: frozenset[str]  # parameters that are always given
    about: str = ""  # its name, and what it says of itself

    @property
    def tensors(self) -> tuple[str, ...]:
        """Which it takes."""
        return tuple(self.roles) or TENSORS[0]

    @property
    def options(self) -> set[str]:
        """Which of those that may be asked for it offers."""
        return {name for name in ("scale", "causal", "align") if getattr(self, name)}

    @property
    def weights(self) -> bool:
        """Whether it returns the weights of each query, and takes no values."""
        return self.tensors == ("q", "k")

    def call(self, p: Probe, *tensors: Tensor) -> Any:
        """What it returns, or what it left in its parameter for the result."""
        given = {name: value(p) for name, value in self.others.items()}
        if self.scale and (p.scale is not None or self.scale in self.must):
            given[self.scale] = p.factor
        if self.causal:
            given[self.causal] = p.causal
        if self.align and p.causal:
            given[self.align] = p.align
        if self.result:
            q = tensors[0]
            given[self.result] = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if not self.roles:  # they have no names
            return self.function(*tensors, **given)
        given |= dict(zip(self.roles.values(), tensors, strict=False))
        out = self.function(**given)
        return given[self.result] if self.result and out is None else out


def launcher_of(function: Function) -> Launcher:
    """How to call a function.

    Its tensors are called q, k and v in one way or another, or are its first three arguments.
    Raises CannotDiagnose if it has no three, or asks for something that cannot be guessed.
    """
    parameters = inspect.signature(function).parameters
    found = _roles(parameters)
    roles = next(({r: found[r] for r in some} for some in TENSORS if {*some} <= {*found}), {})
    rest = [n for n in parameters if n not in roles.values()]
    if not roles:
        first = [n for n, p in parameters.items() if p.kind in BY_PLACE][:3]
        if len(first) < 3:
            raise CannotDiagnose(f"{_name(function)} does not take queries, keys and values")
        rest = [n for n, p in parameters.items() if n not in first and p.kind in KEYWORDS]
    must = {n for n in rest if _required(parameters[n])}
    find = lambda names: next((n for n in rest if n.lower() in names), None)  # noqa: E731
    scale, causal, result, align = find(SCALE), find(CAUSAL), find(RESULT), find(("align",))
    if scale and isinstance(parameters[scale].default, int | float):
        must.add(scale)  # its default is no 1/√D
    known: dict[str, Callable[[Probe], Any]] = {}
    for name in must - {scale, causal, result}:
        for pattern, value in KNOWN.items():
            if name not in known and pattern.fullmatch(name.lower()):
                known[name] = value
    if unknown := must - {scale, causal, result, *known}:
        listed = ", ".join(n for n in parameters if n in unknown)
        raise CannotDiagnose(
            f"{_name(function)} asks for {listed}, which is not known here: give it a default"
        )
    result = result if result in must else None
    about = f"{_name(function)} {inspect.getdoc(function) or ''}"
    return Launcher(function, roles, scale, causal, align, result, known, frozenset(must), about)


def _required(parameter: inspect.Parameter) -> bool:
    empty = parameter.default is inspect.Parameter.empty
    return empty and parameter.kind in (*BY_PLACE, inspect.Parameter.KEYWORD_ONLY)


def _roles(parameters: Mapping[str, inspect.Parameter]) -> dict[str, str]:
    """Which parameter is which tensor; each the first that is named so."""
    found: dict[str, str] = {}
    for name, parameter in parameters.items():
        for role, word in ROLES.items():
            if role not in found and parameter.kind in KEYWORDS and word.fullmatch(name.lower()):
                found[role] = name
                break
    return found


def _name(x: Any) -> str:
    return getattr(x, "__name__", type(x).__name__)


def _public(module: ModuleType) -> dict[str, Function]:
    """The public functions that a module defines, an operator of torch.library as its function."""
    members = {name: getattr(x, "_init_fn", x) for name, x in inspect.getmembers(module)}
    return {
        name: x
        for name, x in members.items()
        if inspect.isfunction(x) and x.__module__ == module.__name__ and name[0] != "_"
    }


CHECKS = re.compile(
    "(test|check|bench|verify|compare|ref|naive|torch|eager|sdpa|expected).*|.*_ref"
)


def find_launcher(module: ModuleType, wanted: str = "") -> Launcher:
    """The public function of a module that is attention, or the one that is wanted.

    Raises CannotDiagnose if there is none, or if there are several and none is wanted.
    """
    public = _public(module)
    if wanted:
        if wanted not in public:
            there = f"; it has {', '.join(public)}" if public else ""
            raise CannotDiagnose(f"it has no public function called {wanted!r}{there}")
        return launcher_of(public[wanted])
    roles = {name: {*_roles(inspect.signature(f).parameters)} for name, f in public.items()}
    named = [n for n, r in roles.items() if any({*some} <= r for some in TENSORS)]
    candidates = [n for n in named if roles[n] - {"q", "k"}] or named
    if not candidates:  # tensors of other names: three arguments will do, if nothing else has them
        candidates = [name for name, f in public.items() if _asked_for(f) == 3]
    candidates = [n for n in candidates if not CHECKS.fullmatch(n.lower())] or candidates
    if len(candidates) > 1:
        raise CannotDiagnose(
            f"it has several launchers, {', '.join(candidates)}: choose one with "
            f"LAUNCHER={candidates[0]}"
        )
    if not candidates:
        raise CannotDiagnose(
            "it has no launcher: no public function takes queries, keys and values"
        )
    return launcher_of(public[candidates[0]])


def _asked_for(function: Function) -> int:
    """How many arguments a function must be given."""
    return sum(map(_required, inspect.signature(function).parameters.values()))
