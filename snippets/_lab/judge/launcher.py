"""Finds the attention function of a module, and how to call it whatever its arguments are named."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any, cast

import torch
from torch import Tensor

from snippets._lab.judge.models import Probe
from snippets._lab.judge.refusal import CannotDiagnose

Function = Callable[..., Any]
WORDS = {
    "q": "q|query|queries",
    "k": "k|key|keys",
    "v": "v|value|values",
    "kv": "kv|packed_?kv",
    "qkv": "qkv|packed_?qkv|mixed_?qkv",
}
AROUND = (
    "(?:x_?)?(?:{})(?:_?(?:s|in|input|states?|layer|tensor|mat|matrix|proj|heads?|cache|packed))?"
)
ROLES = {role: re.compile(AROUND.format(words)) for role, words in WORDS.items()}
TENSORS = (("q", "k", "v"), ("qkv",), ("q", "kv"), ("q", "k"))  # a launcher takes all of one
SCALE = ("scale", "sm_scale", "softmax_scale", "scaling", "qk_scale")
CAUSAL = ("causal", "is_causal", "use_causal_mask")
RESULT = ("o", "out", "output", "result", "attn_out", "attn_output")


def _lengths(size: int) -> Callable[[Probe], Tensor]:
    """Of one text that fills its tensor, as packed texts tell where each begins."""
    return lambda p: torch.tensor([0, p.sizes[size]], dtype=torch.int32, device=p.q.device)


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
        "cu_?seq_?lens?_?q": _lengths(0),
        "cu_?seq_?lens?(_?(k|kv))?": _lengths(1),
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
    order: tuple[str, ...] = ()  # of one that takes its arguments by place only
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
        if self.order:
            out = self.function(*(given[name] for name in self.order))
        else:
            out = self.function(**given)
        return given[self.result] if self.result and out is None else out


def launcher_of(function: Function, named: bool = True) -> Launcher | None:
    """How to call a function; None if it is no attention.

    With `named` its tensors must be called q, k and v in one way or another; otherwise the first
    three arguments are taken for them.

    Raises CannotDiagnose if it asks for something that cannot be guessed.
    """
    parameters = _parameters(function)
    found = _roles(parameters)
    roles = next(({r: found[r] for r in some} for some in TENSORS if {*some} <= {*found}), {})
    rest = [n for n in parameters if n not in roles.values()]
    if not roles:
        if named:
            return None
        first = [n for n, p in parameters.items() if p.kind in BY_PLACE][:3]
        several = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values())
        if len(first) < 3 and not several:
            return None
        rest = [n for n, p in parameters.items() if n not in first and p.kind in KEYWORDS]
    by_place = _forward(function) is not None
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
    if by_place:  # what stands before an argument that is given must be given too
        for name in parameters.keys() - {*roles.values(), causal, *must}:
            known[name] = functools.partial(lambda default, p: default, parameters[name].default)
    result = result if result in must else None
    about = f"{_name(function)} {inspect.getdoc(function) or ''}"
    return Launcher(
        _callable(function),
        roles,
        scale,
        causal,
        align,
        result,
        known,
        frozenset(must),
        tuple(parameters) if by_place else (),
        about,
    )


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


# What else than a function can be called: torch's modules, and `apply` of its autograd functions.


def _name(x: Any) -> str:
    return getattr(getattr(x, "__self__", x), "__name__", type(x).__name__)


def _forward(x: Any) -> Function | None:
    """The `forward` of an autograd function that is given by its `apply`."""
    owner: Any = getattr(x, "__self__", None)
    own = inspect.isclass(owner) and issubclass(owner, torch.autograd.Function)
    return cast(Any, owner).forward if own else None


def _parameters(x: Any) -> dict[str, inspect.Parameter]:
    if (of_apply := _forward(x)) is not None:
        found = dict(inspect.signature(of_apply).parameters)
        alone = x.__self__.setup_context is torch.autograd.Function.setup_context
        return dict(list(found.items())[alone:])  # the first is the context
    forward: Any = getattr(x, "forward", x)
    if inspect.isclass(x):  # a module: what it asks for when it is made, and when it is called
        made = {n: p for n, p in inspect.signature(x).parameters.items() if p.kind in KEYWORDS}
        called = list(inspect.signature(forward).parameters.items())[1:]
        return made | dict(called)
    return dict(inspect.signature(forward).parameters)


def _callable(x: Any) -> Function:
    if isinstance(x, torch.nn.Module):
        _without_weights(x)
    if not inspect.isclass(x):
        return cast(Function, x)
    return functools.partial(_made_and_called, x)


def _made_and_called(kind: Any, *args: Any, **given: Any) -> Any:
    made = {n: given.pop(n) for n in inspect.signature(kind).parameters if n in given}
    module = kind(**made)
    _without_weights(module)
    return module(*args, **given)


def _without_weights(module: torch.nn.Module) -> None:
    if any(True for _ in module.parameters()):
        raise CannotDiagnose(
            f"{type(module).__name__} has weights of its own: put the attention alone in a function"
        )


def _public(module: ModuleType) -> dict[str, Any]:
    """What may be a launcher, by its name."""
    found: dict[str, Any] = {}
    for name, x in inspect.getmembers(module):
        x = getattr(x, "_init_fn", x)  # of an operator of torch.library
        own = getattr(getattr(x, "__self__", x), "__module__", "") == module.__name__
        if name.startswith("_") or not own:
            continue
        of_torch = inspect.isclass(x) and issubclass(x, torch.nn.Module | torch.autograd.Function)
        if of_torch and issubclass(x, torch.autograd.Function):
            found.setdefault(name, x.apply)
        elif of_torch or inspect.isfunction(x) or isinstance(x, torch.nn.Module) or _forward(x):
            found[name] = x
    aliases = {x.__self__ for n, x in found.items() if _forward(x) and n != x.__self__.__name__}
    return {
        n: x for n, x in found.items() if not (_forward(x) and n in {a.__name__ for a in aliases})
    }


CHECKS = re.compile(
    "(test|check|bench|verify|compare|ref|naive|torch|eager|sdpa|expected).*|.*_ref"
)


def find_launcher(module: ModuleType, wanted: str = "") -> Launcher:
    """The public function of a module that is attention, or the one that is wanted.

    Of several that call each other it is the outer one; of others, the one that runs a kernel.

    Raises CannotDiagnose if there is none, or if there are several and none is wanted.
    """
    public = _public(module)
    if wanted:
        if wanted not in public:
            there = f"; it has {', '.join(public)}" if public else ""
            raise CannotDiagnose(f"it has no public function called {wanted!r}{there}")
        f = public[wanted]
        if found := launcher_of(f) or launcher_of(f, named=False):
            return found
        raise CannotDiagnose(f"{wanted} does not take queries, keys and values")
    roles = {name: {*_roles(_parameters(f))} for name, f in public.items()}
    named = [n for n, r in roles.items() if any({*some} <= r for some in TENSORS)]
    candidates = [n for n in named if roles[n] - {"q", "k"}] or named
    if not candidates:  # tensors of other names: three arguments will do, if nothing else has them
        candidates = [name for name, f in public.items() if _may_be_unnamed(f)]
    if len(candidates) > 1:
        reached = {n: _reached(module, public[n]) for n in candidates}
        inner = {n for n in candidates if any(n in reached[o] for o in candidates if o != n)}
        for leave in (
            lambda n: not CHECKS.fullmatch(n.lower()),
            lambda n: n not in inner,
            lambda n: any(_is_kernel(getattr(module, r, None)) for r in reached[n]),
        ):
            candidates = list(filter(leave, candidates)) or candidates
    if len(candidates) > 1:
        raise CannotDiagnose(
            f"it has several launchers, {', '.join(candidates)}: choose one with "
            f"LAUNCHER={candidates[0]}"
        )
    for name in candidates:
        if found := launcher_of(public[name], named=bool(named)):
            return found
    raise CannotDiagnose("it has no launcher: no public function takes queries, keys and values")


def _is_kernel(x: Any) -> bool:
    return any(base.__name__ == "KernelInterface" for base in type(x).__mro__)


def _reached(module: ModuleType, x: Any) -> set[str]:
    """The module's names that a function uses, or that what it uses does."""
    found: set[str] = set()
    todo = [x]
    while todo:
        x = todo.pop()
        x = _forward(x) or getattr(x, "forward", x)
        if not isinstance(code := getattr(inspect.unwrap(x), "__code__", None), CodeType):
            continue
        codes = [code]
        while codes:
            code = codes.pop()
            codes += [c for c in code.co_consts if isinstance(c, CodeType)]
            for name in {*code.co_names} & {*vars(module)} - found:
                found.add(name)
                value = vars(module)[name]
                todo.append(
                    value.apply if hasattr(value, "apply") and _forward(value.apply) else value
                )
    return found


def _may_be_unnamed(x: Any) -> bool:
    parameters = _parameters(x).values()
    several = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    return several or sum(_required(p) for p in parameters) == 3
