"""What the page of language_model measures: one function for each result.

Each trains what it needs by itself, so that none waits for another, and a run that fails becomes a
row that says why.
"""

import base64
import functools
import itertools
import time

import torch

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import NumericalMismatch, causal_mask, make_qkv
from snippets._lab.measure.competitors import in_a_line
from snippets._lab.measure.timing import Times
from snippets._lab.rooms import measured_on

from .data import batch, corpus, library
from .heads import shares, weights_of
from .module import (
    Cache,
    Config,
    LanguageModel,
    cast,
    draw,
    loss_of,
    parameters,
    sample,
    sdpa_append,
    sdpa_cached,
    step,
)
from .op import (
    BACKENDS,
    FAULTS,
    OURS,
    assert_gradients,
    attend_with,
    changed,
    decode_cache,
    fastest,
    through,
)
from .training import Run, Settings, turned

DEVICE = "cuda"
CONFIG = Config()
SHORT = Settings(CONFIG, steps=300)  # of a loss curve: about two thirds of a pass through the text
SEEDS = [0, 1, 2, 3, 4]
PAIRED = [*range(10)]  # seeds of ours and of those that they are compared with
THEIRS = ["torch:flash", "torch:cudnn"]  # of PyTorch's; math takes four times as long
FIRST = 200  # steps of the curve in float32
TOKENS = 16_384  # of a step, at every length
KEPT = [0, 200, 1000]  # steps whose weights are looked at; the last step is one more
PROMPTS = ["def ", "class Queue:\n    ", "for key, value in "]
SAMPLED = 240  # bytes of a sample
WINDOW = 96  # bytes of the text whose weights are stored
TEXT = """\
def first(items, default=None):
    for item in items:
        return item
    return default
"""


def check(device):
    """Raise unless the model trains and samples as it should on this device."""
    config = (
        Config(64, 2, 4, 2, 16, 64, 96) if device == "cuda" else Config(32, 2, 2, 1, 16, 32, 40)
    )
    length = 70 if device == "cuda" else 20
    tokens = torch.randint(256, (2, length + 1), device=device)
    exact = LanguageModel(config, dtype=torch.float64).double().to(device)
    loss_of(exact, tokens).backward()
    model = LanguageModel(config).to(device)
    loss_of(model, tokens, attend_with(OURS)).backward()
    for (name, found), right in zip(model.named_parameters(), exact.parameters(), strict=True):
        error = (found.grad.double() - right.grad).norm() / right.grad.norm()
        if not error < 1e-4:  # float32 products, thousands of terms; written so that NaN fails
            raise NumericalMismatch(f"the gradient of {name} is off by {error:.1e} of its length")
    with torch.no_grad():
        want = model(tokens)[:, -1]
        cache = decode_cache(model, 2, config.context)
        for part in tokens.split(17, dim=1):
            found = step(model, part, cache)
    if not (found - want).norm() < 1e-4 * want.norm():
        raise NumericalMismatch("logits through decode_attention are not those without a cache")
    for name in _ours(device)[1:]:
        _check_gradients(attend_with(name), device)


def _check_gradients(attend, device):
    """Raise unless an attention for bfloat16 has the gradients of ours: groups of two heads."""
    q, _, grad_out = make_qkv(2, 4, N=200, D=64, dtype=torch.bfloat16, device=device)
    _, k, v = make_qkv(2, 2, N=200, D=64, dtype=torch.bfloat16, device=device, seed=1)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    found = torch.autograd.grad(attend(*leaves), leaves, grad_out)
    mask = causal_mask(200, 200, device=device)
    assert_gradients(found, *(x.detach() for x in leaves), grad_out, mask=mask)


def _ours(device=DEVICE):
    """Our attentions that run on this device."""
    return list(dict.fromkeys((OURS, fastest(device))))


@functools.cache
def _text():
    """The Corpus on the GPU, and the names and sizes of its files."""
    files = library()
    listed = [f"{file.path} {len(file.text)} {file.digest[:16]}" for file in files]
    return corpus(files).to(DEVICE), listed


def _about(whole=False):
    """The row that says which text was learned."""
    text, listed = _text()
    return {"about": "text", **text.manifest, **({"listed": listed} if whole else {})}


def _model_row(settings):
    """The row that says which model was trained, and how."""
    model = LanguageModel(settings.config)
    config = settings.config._asdict()
    rest = {key: value for key, value in settings._asdict().items() if key != "config"}
    return {"about": "model", "parameters": parameters(model), **config, "settings": rest}


def _five(values):
    return [float(f"{value:.5g}") for value in values]


def _curve(settings, steps, attend=None):
    """Train for so many steps; the losses, the seconds, and the held-out loss at the end."""
    run = Run(settings, _text()[0], DEVICE, attend=attend)
    began = time.perf_counter()
    for _ in range(steps):
        run.advance()
    losses = run.losses  # waits for the GPU
    seconds = time.perf_counter() - began
    return {
        "losses": _five(losses),
        "seconds_in_all": round(seconds, 3),
        "held_out": float(f"{run.validate():.5g}"),
    }


def _row(case, make):
    """What `make` returns, or why it failed: the rows that are there already are not lost."""
    try:
        return {**case, **make()}
    except Exception as error:  # noqa: BLE001 - whatever it is, its row says so
        torch.cuda.empty_cache()
        return {**case, "error": in_a_line(error)}


@measured_on("gpu")
def losses(lab):
    """The same bytes in the same order through each attention: the loss of each step."""
    yield _about(whole=True)
    yield _model_row(SHORT)
    for case in lab.each(seed=PAIRED, implementation=[*_ours(), *THEIRS]):
        yield _row(case, functools.partial(_curve, _short(**case), SHORT.steps))
    exact = {"seed": 0, "implementation": "torch:eager", "dtype": "float32"}
    settings = SHORT._replace(attention="torch:eager", dtype="float32")
    yield _row(exact, functools.partial(_curve, settings, FIRST))


def _short(seed, implementation):
    return SHORT._replace(attention=implementation, seed=seed)


@measured_on("gpu")
def faults(lab):
    """The same with backwards that are wrong: a curve that cannot tell them proves nothing."""
    yield _about()
    for case in lab.each(seed=SEEDS, fault=["none", *FAULTS]):
        yield _row({"implementation": OURS, **case}, functools.partial(_wrong_curve, **case))


def _wrong_curve(seed, fault):
    settings = SHORT._replace(seed=seed)
    if fault == "none":
        return _curve(settings, SHORT.steps)
    return _curve(settings, SHORT.steps, through(planted(fault, CONFIG.head_dim)))


def planted(fault, D):
    """flash_backward with one of the FAULTS, for heads of D columns."""
    backward = variant(OURS, changed(fault))

    def with_another_scale(*given, **options):
        return backward(*given, **{**options, "scale": 1.02 * D**-0.5})

    return with_another_scale if fault == "scale 1.02" else backward


def _work(config, batch_size, length):
    """FLOPs of a step, and bytes that must move: weights, their gradients and AdamW's two means."""
    numbers, tokens = parameters(LanguageModel(config)), batch_size * length
    pairs = batch_size * config.heads * length * (length + 1) // 2
    attention = 14 * pairs * config.head_dim * config.layers  # two products forward, five backward
    return {"flops": 6 * numbers * tokens + attention, "bytes_compulsory": 7 * 4 * numbers}


def _attention_work(config, batch_size, length):
    """The same for the attention of all layers alone: q, k, v, out and their gradients."""
    pairs = batch_size * config.heads * length * (length + 1) // 2
    numbers = 4 * batch_size * length * config.head_dim * (config.heads + config.heads_kv)
    return {
        "flops": 14 * pairs * config.head_dim * config.layers,
        "bytes_compulsory": 2 * numbers * config.layers,
    }


@measured_on("gpu")
def steps(lab):
    """Time and memory of a training step over the length, and of its attention alone."""
    yield _about()
    yield _model_row(SHORT)
    for case in lab.each(N=[512, 1024, 2048, 4096, 8192], compiled=[False, True]):
        if case["compiled"] and case["N"] not in (1024, 4096):
            continue  # compiling takes longer than all of the rest
        size = TOKENS // case["N"]
        case |= {"dtype": "bfloat16", "batch": size}
        config = CONFIG._replace(context=case["N"])
        names = [*_ours(), *BACKENDS]
        names = [name for name in names if not (case["compiled"] and "math" in name)]
        yield from _timed_steps(lab, case, config, names)
        if not case["compiled"]:
            yield from _timed_attention(lab, case, config, names)


def _timed_steps(lab, case, config, names):
    calls, memory = {}, {}
    torch._dynamo.reset()
    settings = SHORT._replace(config=config, batch=case["batch"])
    for name in names:
        try:
            run = Run(
                settings._replace(attention=name), _text()[0], DEVICE, compiled=case["compiled"]
            )
            tokens = batch(run.corpus.train, case["batch"], case["N"], seed=0, step=0)
            call = functools.partial(run.advance, tokens)
            for _ in range(2):
                call()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call()
            torch.cuda.synchronize()
            kept = _bytes_of(run)
            memory[name] = torch.cuda.max_memory_allocated() - before + kept
            calls[name] = call
        except Exception as error:  # noqa: BLE001 - whatever it is, its row says so
            run = call = None
            torch.cuda.empty_cache()
            yield {"part": "step", "implementation": name, **case, "error": in_a_line(error)}
    work = _work(config, case["batch"], case["N"])
    for row in lab.time({"part": "step", **case}, calls, **work):
        yield row | {"peak_bytes": memory[row["implementation"]]}
    calls.clear()
    torch.cuda.empty_cache()


def _bytes_of(run):
    """Bytes of the weights and the optimizer's state, which stay from step to step."""
    state = [x for one in run.optimizer.state.values() for x in one.values() if x.is_cuda]
    return sum(x.numel() * x.element_size() for x in [*run.model.parameters(), *state])


def _timed_attention(lab, case, config, names):
    """Forward and backward of all layers' attention, on random q, k and v."""
    shape = case["batch"], case["N"], config.heads + 2 * config.heads_kv, config.head_dim
    calls = {}
    for name in names:
        try:
            every = torch.randn(shape, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
            call = functools.partial(_layers, attend_with(name), every, config)
            call()
            calls[name] = call
        except Exception as error:  # noqa: BLE001 - whatever it is, its row says so
            torch.cuda.empty_cache()
            yield {"part": "attention", "implementation": name, **case, "error": in_a_line(error)}
    work = _attention_work(config, case["batch"], case["N"])
    yield from lab.time({"part": "attention", **case}, calls, **work)
    calls.clear()
    torch.cuda.empty_cache()


def _layers(attend, every, config):
    split = config.heads, config.heads_kv, config.heads_kv
    q, k, v = (x.transpose(1, 2) for x in every.split(split, dim=2))
    for _ in range(config.layers):
        out = attend(q, k, v)
        every.grad = None
        out.backward(q.detach())
    return every.grad


class Trained:
    """One run to its end through our kernels, and its weights at the steps that are looked at."""

    def __init__(self):
        self.settings = Settings(CONFIG, attention=fastest(DEVICE))
        run = Run(self.settings, _text()[0], DEVICE)
        began = time.perf_counter()
        self.weights = {}
        while run.step < self.settings.steps:
            if run.step % self.settings.validate_every == 0:
                run.validate()
                if turned(run.validation):
                    break
            if run.step in KEPT:
                self.weights[run.step] = _copied(run.model)
            run.advance()
        if run.validation[-1][0] != run.step:
            run.validate()
        self.weights[run.step] = _copied(run.model)
        self.losses, self.validation = run.losses, run.validation
        self.seconds = time.perf_counter() - began

    def model(self, at):
        """The model of a step, in the dtype it computes in: for sampling."""
        model = LanguageModel(CONFIG, dtype=torch.bfloat16)
        model.load_state_dict(self.weights[at])
        return cast(model.to(DEVICE))


def _copied(model):
    return {name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()}


_trained = functools.cache(Trained)


@measured_on("gpu")
def training(lab):
    """One run to its end: losses, and the held-out loss, whose lowest place says when to stop."""
    yield _about()
    yield _model_row(Settings(CONFIG))
    for case in lab.each(implementation=[fastest(DEVICE)]):
        found = _trained()
        yield {
            **case,
            "losses": _five(found.losses),
            "validation": [[at, float(f"{loss:.5g}")] for at, loss in found.validation],
            "seconds_in_all": round(found.seconds, 3),
        }


@measured_on("gpu")
def samples(lab):
    """What the model says at some steps, through decode_attention and its cache."""
    yield _about()
    weights, held_out = _trained().weights, dict(_trained().validation)
    for case in lab.each(step=sorted(weights), prompt=PROMPTS):
        model = _trained().model(case["step"])
        prompt = torch.tensor([list(case["prompt"].encode())], device=DEVICE)
        cache = decode_cache(model, 1, CONFIG.context)
        generator = torch.Generator(DEVICE).manual_seed(0)
        made = sample(model, prompt, SAMPLED, cache=cache, generator=generator)
        text = bytes(made[0].tolist()).decode("utf-8", errors="replace")
        loss = float(f"{held_out[case['step']]:.5g}")
        text = text.replace("\0", "\ufffd")
        yield {**case, "temperature": 0.8, "held_out": loss, "text": text}


@measured_on("gpu")
def looked_at(lab):
    """Shares of each head's weight at some steps, and a few heads' whole maps of a short text."""
    yield _about()
    weights = _trained().weights
    text = batch(_text()[0].held_out, 8, 512, seed=0, step=0)[:, :-1]
    short = torch.tensor([list(TEXT.encode())[:WINDOW]], device=DEVICE)
    chosen = {}
    for case in lab.each(step=sorted(weights, reverse=True)):  # the last step chooses the heads
        model = _trained().model(case["step"])
        found = shares(weights_of(model, text), text)
        for kind, (by_head, even, count) in found.items():
            yield {
                **case,
                "kind": kind,
                "shares": [_five(row) for row in by_head],
                "even": even,
                "positions": count,
            }
            chosen.setdefault(kind, _largest(by_head))
        maps = weights_of(model, short)[:, 0]  # [layers, H, N, N]
        for kind, (layer, head) in chosen.items():
            named = {**case, "map": kind, "layer": layer, "head": head}
            yield {**named, "text": TEXT[:WINDOW], "weights": packed(maps[layer, head])}


def _largest(by_head):
    """Layer and head of the largest share."""
    places = itertools.product(range(len(by_head)), range(len(by_head[0])))
    return max(places, key=lambda at: by_head[at[0]][at[1]])


def packed(weights):
    """Rows of a map [N, N] up to the diagonal, a byte a weight (255 is all), in base64."""
    rows, columns = torch.tril_indices(*weights.shape)
    values = (weights.cpu()[rows, columns] * 255).round().to(torch.uint8)
    return base64.b64encode(bytes(values.tolist())).decode()


NEW = 64  # bytes that a timed call samples


@measured_on("gpu")
def sampling(lab):
    """Time of one more byte: ours and PyTorch's, with a cache and without, eager and in a graph."""
    yield _about()
    model = cast(LanguageModel(CONFIG, dtype=torch.bfloat16).to(DEVICE))
    ways = ["ours, in a graph", "ours, eager", "SDPA, in a graph", "SDPA, eager", "no cache"]
    for case in lab.each(batch=[1, 16], N=[256, 960], way=ways):
        case |= {"implementation": _implementation(case["way"]), "dtype": "bfloat16"}
        yield _row(case, functools.partial(_per_byte, model, case))


def _implementation(way):
    return "decode_attention" if way.startswith("ours") else "torch:sdpa"


@torch.no_grad()
def _per_byte(model, case):
    """Milliseconds per step of sampling, several times NEW steps from the same length."""
    B, N = case["batch"], case["N"]
    tokens = torch.randint(32, 127, (B, N), device=DEVICE)
    if case["way"] == "no cache":
        one = functools.partial(_without_cache, model, tokens)
        rounds, restart = 8, lambda: None
    else:
        ours = case["way"].startswith("ours")
        functions = () if ours else (sdpa_append, sdpa_cached)
        make = decode_cache if ours else Cache
        cache = make(model, B, CONFIG.context, *functions)
        for part in tokens.split(64, dim=1):
            logits = step(model, part, cache)
        newest = draw(logits, 0.8)
        one = functools.partial(_one_more, model, newest, cache)
        rounds, restart = NEW, functools.partial(cache.lengths.fill_, N)
        one()
        if "graph" in case["way"]:
            one = _captured(one)
    taken = []
    for turn in range(-1, 9):
        restart()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(rounds):
            one()
        torch.cuda.synchronize()
        if turn >= 0:
            taken.append((time.perf_counter() - began) * 1e3 / rounds)
    numbers = parameters(model)
    kept = 2 * B * N * CONFIG.layers * CONFIG.heads_kv * CONFIG.head_dim
    amounts = {"flops": 2 * B * numbers, "bytes_compulsory": 2 * numbers + 2 * kept}
    return {"steps": rounds, **Times(taken).as_row(), **amounts, "fits_l2": True}


def _one_more(model, newest, cache):
    newest.copy_(draw(step(model, newest, cache), 0.8))


def _without_cache(model, tokens):
    return draw(model(tokens)[:, -1], 0.8)


def _captured(call):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay
