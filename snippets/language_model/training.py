"""Training a model: steps, a schedule, validation, and checkpoints that survive a kill."""

import io
import math
import os
import time
from typing import NamedTuple

import torch

from .data import batch
from .module import Config, LanguageModel, loss_of
from .op import OURS, attend_with


class BadCheckpoint(RuntimeError):
    """A checkpoint cannot be read, or is of another run; the message says what to do."""


class Settings(NamedTuple):
    """What decides a run beside the text: two runs with the same settings see the same bytes."""

    config: Config = Config()
    batch: int = 16  # windows of `config.context` bytes a step
    steps: int = 2000
    rate: float = 1e-3  # the highest learning rate
    warmup: int = 100  # steps until it is reached; it then falls to a tenth, by a cosine
    decay: float = 0.1  # of the weights of matrices
    clip: float = 1.0  # the longest gradient
    validate_every: int = 100
    save_every: int = 500  # a multiple of it: a checkpoint is 200 MB
    windows: int = 32  # of held-out text
    seed: int = 0
    attention: str = OURS
    deterministic: bool = False
    dtype: str = "bfloat16"


TINY = Settings(  # for a CPU, where kernels run in Triton's interpreter
    Config(width=32, layers=2, heads=2, heads_kv=1, head_dim=16, hidden=64, context=64),
    batch=2,
    steps=20,
    rate=1e-2,
    warmup=3,
    validate_every=10,
    save_every=10,
    windows=4,
    dtype="float32",
)


def rate_at(settings, step):
    """The learning rate of a step."""
    if step < settings.warmup:
        return settings.rate * (step + 1) / settings.warmup
    along = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    return settings.rate * (0.55 + 0.45 * math.cos(math.pi * min(1.0, along)))


def turned(validation, patience=2):
    """Whether the held-out loss has risen above its lowest so many times in a row."""
    losses = [loss for _, loss in validation]
    lowest = min(range(len(losses)), key=losses.__getitem__, default=0)
    return len(losses) - 1 - lowest >= patience


class Run:
    """A model in training. `advance()` makes one step; `state()` is all that resuming needs."""

    def __init__(self, settings, corpus, device, *, attend=None, compiled=False):
        self.settings, self.corpus, self.device = settings, corpus.to(device), device
        dtype = getattr(torch, settings.dtype)
        self.model = LanguageModel(settings.config, dtype=dtype, seed=settings.seed).to(device)
        deterministic = settings.deterministic
        self.attend = attend or attend_with(settings.attention, deterministic=deterministic)
        self.optimizer = torch.optim.AdamW(
            _groups(self.model, settings.decay), lr=settings.rate, betas=(0.9, 0.95), fused=True
        )
        if compiled:  # one block: all layers share what is compiled for the first
            for block in self.model.blocks:
                block.compile(dynamic=False)
        self.step = 0
        self.validation = []  # (step, loss)
        self._losses = []  # of each step, on the device: reading one waits for the GPU

    def advance(self, tokens=None):
        """One step of the optimizer on the windows of this step, or on those given."""
        settings = self.settings
        if tokens is None:
            size, length = settings.batch, settings.config.context
            where = {"seed": settings.seed, "step": self.step}
            tokens = batch(self.corpus.train, size, length, **where)
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(settings, self.step)
        loss = loss_of(self.model, tokens, self.attend)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._losses.append(loss.detach())
        self.step += 1

    @property
    def losses(self):
        """The loss of each step so far."""
        return torch.stack(self._losses).tolist() if self._losses else []

    @torch.no_grad()
    def validate(self):
        """Note the loss on held-out windows, the same at each step, and return it."""
        settings = self.settings
        size, length = settings.windows, settings.config.context
        tokens = batch(self.corpus.held_out, size, length, seed=0, step=0)
        parts = [loss_of(self.model, part, self.attend) for part in tokens.split(settings.batch)]
        weights = [len(part) for part in tokens.split(settings.batch)]
        total = sum(float(loss) * n for loss, n in zip(parts, weights, strict=True))
        self.validation.append((self.step, total / size))
        return total / size

    def state(self):
        """What a checkpoint holds. Windows follow from seed and step: no random state is kept."""
        return {
            "settings": _plain(self.settings),
            "corpus": self.corpus.manifest["sha256"],
            "step": self.step,
            "losses": self.losses,
            "validation": self.validation,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def resume(self, state):
        """Continue where a state was taken. Raises BadCheckpoint for that of another run."""
        _check_state(state, self.settings, self.corpus)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        losses = torch.tensor(state["losses"], dtype=torch.float32, device=self.device)
        self.step, self._losses = state["step"], list(losses.unbind())
        self.validation = state["validation"]


def _groups(model, decay):
    """Matrices decay, the factors of norms do not."""
    matrices = [weight for weight in model.parameters() if weight.dim() >= 2]
    factors = [weight for weight in model.parameters() if weight.dim() < 2]
    return [{"params": matrices, "weight_decay": decay}, {"params": factors, "weight_decay": 0.0}]


def _plain(settings):
    return {**settings._asdict(), "config": settings.config._asdict()}


def _check_state(state, settings, corpus):
    theirs, ours = state.get("settings", {}), _plain(settings)
    for name in ours:
        if theirs.get(name) != ours[name]:
            raise BadCheckpoint(
                f"the checkpoint was made with {name} {theirs.get(name)}, this run has "
                f"{ours[name]}; begin again with FRESH=1"
            )
    if state["corpus"] != corpus.manifest["sha256"]:
        raise BadCheckpoint(
            "the checkpoint learned from another Python's library; begin again with FRESH=1"
        )


def save(state, path):
    """Replace a checkpoint whole: after a kill there is the old one or the new one.

    Raises OSError where the disk is full or cannot be written to; an old checkpoint is then as it
    was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    torch.save(state, content)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(content.getbuffer())
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def load(path, device="cpu"):
    """A state that was saved. Raises BadCheckpoint for a file that does not hold a whole one."""
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # torch raises many kinds, by where a file is cut
        raise BadCheckpoint(
            f"{path} is damaged, or no checkpoint; begin again with FRESH=1"
        ) from error


def train(run, folder, *, seconds=math.inf, tell=lambda run: None):
    """Advance until the steps are made, the time is up or the held-out loss turns; say which.

    `last.pt` is what a killed run resumes from, `best.pt` the weights of the lowest held-out loss.
    Raises OSError where a checkpoint cannot be stored: the first is, before the first step.
    """
    began, settings = time.monotonic(), run.settings
    ended = "all steps are made"
    while run.step < settings.steps:
        if run.step % settings.validate_every == 0:
            _note_best(run, folder)
        if run.step % settings.save_every == 0:
            save(run.state(), folder / "last.pt")
        if turned(run.validation):
            ended = "the held-out loss has turned"
            break
        if time.monotonic() - began > seconds:
            ended = f"{seconds:g} seconds are up"
            break
        run.advance()
        tell(run)
    _note_best(run, folder)
    save(run.state(), folder / "last.pt")
    return ended


def _note_best(run, folder):
    """Validate, and store the weights if none before had a lower loss."""
    if run.validation and run.validation[-1][0] == run.step:
        return  # a run that was resumed has noted it before
    run.validate()
    if run.validation[-1][1] == min(loss for _, loss in run.validation):
        save({"step": run.step, "model": run.model.state_dict()}, folder / "best.pt")
