"""Finds the attention function of a module, and how to call it whatever its arguments are named."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from snippets._lab.judge.diagnosis import CannotDiagnose
from snippets._lab.judge.models import Probe

Function = Callable[..., Any]
WORDS = {"q": "q|query|queries", "k": "k|key|keys", "v": "v|value|values"}
AROUND = "(?:x_?)?(?:{})(?:_?(?:s|in|input|states?|layer|tensor|mat|matrix|proj|heads?))?"
ROLES = {role: re.compile(AROUND.format(words)) for role, words in WORDS.items()}
SCALE = ("scale", "sm_scale", "softmax_scale", "scaling", "qk_scale")
CAUSAL = ("causal", "is_causal", "use_causal_mask")
RESULT = ("o", "out", "output", "result", "attn_out", "attn_output")
SIZES: Mapping[str, Callable[[Tensor, Tensor], int]] = {
    **dict.fromkeys(("b", "batch", "batch_size", "bs"), lambda q, k: q.shape[0]),
    **dict.fromkeys(("h", "heads", "num_heads", "n_heads"), lambda q, k: q.shape[1]),
    **dict.fromkeys(("m", "n_queries", "num_queries", "q_len"), lambda q, k: q.shape[-2]),
    **dict.fromkeys(("n", "n_keys", "num_keys", "kv_len"), lambda q, k: k.shape[-2]),
    **dict.fromkeys(("d", "d_k", "dim", "head_dim", "d_head"), lambda q, k: q.shape[-1]),
}
KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Launcher:
    """A function, and which of its parameters are what; None where it has none."""

    function: Function
    roles: Mapping[str, str]  # "q", "k" and, unless it returns weights, "v" → the parameter's name
    scale: str | None
    causal: str | None
    align: str | None
    result: str | None
    sizes: tuple[str, ...]
    must: frozenset[str]  # parameters without a default

    @property
    def weights(self) -> bool:
        """Whether it returns the weights of each query, and takes no values."""
        return bool(self.roles) and "v" not in self.roles

    def takes(self, p: Probe) -> bool:
        """Whether it offers the options that a probe asks for."""
        if p.scale is not None and self.scale is None:
            return False
        if p.causal and self.causal is None:
            return False
        return not (p.causal and p.align == "top_left" and self.align is None)

    def call(self, p: Probe, q: Tensor, k: Tensor, v: Tensor) -> Any:
        """What it returns, or what it left in its parameter for the result."""
        options: dict[str, Any] = {}
        if self.scale and (p.scale is not None or self.scale in self.must):
            options[self.scale] = p.factor
        if self.causal and (p.causal or self.causal in self.must):
            options[self.causal] = p.causal
        if self.align and p.causal:
            options[self.align] = p.align
        options |= {name: SIZES[name.lower()](q, k) for name in self.sizes}
        if self.result:
            options[self.result] = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        tensors = {"q": q, "k": k, "v": v}
        if not self.roles:  # they have no names
            return self.function(q, k, v, **options)
        out = self.function(**{name: tensors[role] for role, name in self.roles.items()}, **options)
        return options[self.result] if self.result and out is None else out


def launcher_of(function: Function, named: bool = True) -> Launcher | None:
    """How to call a function; None if it is no attention.

    With `named` its tensors must be called q, k and v in one way or another; otherwise the first
    three arguments are taken for them.

    Raises CannotDiagnose if it asks for something that cannot be guessed.
    """
    parameters = inspect.signature(function).parameters
    roles: dict[str, str] = {}
    for name, parameter in parameters.items():
        for role, word in ROLES.items():
            if role not in roles and parameter.kind in KEYWORDS and word.fullmatch(name.lower()):
                roles[role] = name
                break
    rest = [n for n in parameters if n not in roles.values()]
    if not roles.keys() >= {"q", "k"}:
        if named:
            return None
        first = [n for n, p in parameters.items() if p.kind in _BY_PLACE][:3]
        several = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values())
        if len(first) < 3 and not several:
            return None
        roles, rest = {}, [n for n in parameters if n not in first]
        rest = [n for n in rest if parameters[n].kind in KEYWORDS]
    must = frozenset(n for n in rest if _required(parameters[n]))
    find = lambda names: next((n for n in rest if n.lower() in names), None)  # noqa: E731
    scale, causal, result = find(SCALE), find(CAUSAL), find(RESULT)
    sizes = tuple(n for n in must if n.lower() in SIZES)
    if unknown := must - {scale, causal, result, *sizes}:
        listed = ", ".join(n for n in parameters if n in unknown)
        raise CannotDiagnose(
            f"{function.__name__} asks for {listed}, which is not known here: give it a default"
        )
    result = result if result in must else None
    return Launcher(function, roles, scale, causal, find(("align",)), result, sizes, must)


_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _required(parameter: inspect.Parameter) -> bool:
    empty = parameter.default is inspect.Parameter.empty
    return empty and parameter.kind in (*_BY_PLACE, inspect.Parameter.KEYWORD_ONLY)


def find_launcher(module: ModuleType, wanted: str = "") -> Launcher:
    """The public function of a module that is attention, or the one that is wanted.

    Raises CannotDiagnose if there is none, or if there are several and none is wanted.
    """
    functions: dict[str, Function] = {
        name: f
        for name, f in inspect.getmembers(module, inspect.isfunction)
        if f.__module__ == module.__name__ and not name.startswith("_")
    }
    if wanted:
        if wanted not in functions:
            there = f"; it has {', '.join(functions)}" if functions else ""
            raise CannotDiagnose(f"it has no public function called {wanted!r}{there}")
        f = functions[wanted]
        if found := launcher_of(f) or launcher_of(f, named=False):
            return found
        raise CannotDiagnose(f"{wanted} does not take queries, keys and values")
    named = {name: launcher_of(f) for name, f in functions.items() if _roles(f) >= {"q", "k"}}
    full = [name for name in named if "v" in _roles(functions[name])]
    candidates = full or list(named)
    if not candidates:  # tensors of other names: three arguments will do, if nothing else has them
        unnamed = [name for name, f in functions.items() if _may_be_unnamed(f)]
        if len(unnamed) == 1 and (by_place := launcher_of(functions[unnamed[0]], named=False)):
            return by_place
        candidates = unnamed
    if len(candidates) > 1:
        raise CannotDiagnose(
            f"it has several launchers, {', '.join(candidates)}: choose one with "
            f"LAUNCHER={candidates[0]}"
        )
    if found := (named.get(candidates[0]) if candidates else None):
        return found
    raise CannotDiagnose("it has no launcher: no public function takes queries, keys and values")


def _roles(function: Function) -> set[str]:
    names = [name.lower() for name in inspect.signature(function).parameters]
    return {role for role, word in ROLES.items() if any(word.fullmatch(n) for n in names)}


def _may_be_unnamed(function: Function) -> bool:
    parameters = inspect.signature(function).parameters.values()
    several = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    return several or sum(_required(p) for p in parameters) == 3
