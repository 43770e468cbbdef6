"""Train the model on this machine: `make train`. It resumes where a run was stopped or killed."""

import argparse
import math
import os
import signal
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates a kernel

from snippets._lab.rooms import ROOT

from .data import NoCorpus, corpus
from .module import LanguageModel, cast, parameters, sample
from .op import HOPPER, NAMES, OURS, decode_cache, fastest
from .training import (
    TINY,
    BadCheckpoint,
    Run,
    Settings,
    alone,
    load,
    load_weights,
    train,
    try_out,
)

FOLDER = ROOT / ".cache" / "language_model"
SECONDS = {"cuda": 80.0, "cpu": 40.0}  # so that with all the rest it takes 90, and a minute
PROMPT, BYTES_MORE = "def ", 200

console = Console(highlight=False, soft_wrap=True)


def main(arguments=None):
    """Train, and print a sample.

    The exit code is 0, 1 if the end could not be stored, 2 for bad input, 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(prog="python -m snippets.language_model.train")
    parser.add_argument("--attention", choices=NAMES, help="what it trains with")
    parser.add_argument("--fresh", action="store_true", help="begin again")
    parser.add_argument("--deterministic", action="store_true", help="the same bits in each run")
    parser.add_argument("--steps", type=_steps, help="so many at most")
    parser.add_argument("--seconds", type=_seconds, help="so long at most")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where checkpoints lie")
    options = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    attention = options.attention or (OURS if options.deterministic else fastest(device))
    if attention == HOPPER and (options.deterministic or fastest(device) != HOPPER):
        parser.error(f"{HOPPER} needs an H100 or H200 and is not deterministic; use {OURS}")
    settings = Settings() if device == "cuda" else TINY
    settings = settings._replace(
        attention=attention,
        deterministic=options.deterministic,
        steps=options.steps or settings.steps,
    )
    if device == "cpu":
        console.print(
            "There is no GPU that torch can use: a tiny model is trained, its kernels run in "
            "Triton's interpreter."
        )
    if options.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        place = options.folder / device
        with alone(place):
            run = Run(settings, corpus(), device)
            if not options.fresh and (place / "last.pt").exists():
                run.resume(load(place / "last.pt", device))
                console.print(f"resumed at step {run.step}")
            try_out(run.state(), place)
            return _train(run, place, options.seconds or SECONDS[device])
    except (BadCheckpoint, NoCorpus, OSError) as error:
        console.print(f"[red]error:[/] {escape(str(error))}")
        return 2


def _steps(text):
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} came; a whole number from 1 on is allowed")
    return int(text)


def _seconds(text):
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} came; a finite number above 0 is allowed")
    return seconds


def _train(run, place, seconds):
    """Train with a progress bar, then let the best weights speak."""
    settings = run.settings
    stopping = _Stop()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    began, first = time.monotonic(), run.step
    with stopping, bar:
        task = bar.add_task("training", total=settings.steps, completed=run.step)

        def tell(run):
            if run.step % 10 == 0 or run.step == settings.steps:
                held_out = f"{run.validation[-1][1]:.3f}" if run.validation else "unknown"
                text = f"held-out loss {held_out} nats per byte"
                bar.update(task, completed=run.step, description=text)

        ended = train(run, place, seconds=seconds, stop=stopping, tell=tell, note=console.print)
    taken = time.monotonic() - began
    console.print(f"{run.step - first} steps in {taken:.0f} s, then: {ended}")
    stored = _stored(place)
    if stored != run.step:
        console.print(
            "No checkpoint could be stored: make train begins again."
            if stored is None
            else f"The last checkpoint that could be stored is of step {stored}: make train goes "
            "on from there."
        )
    elif ended == "stopped":
        console.print("The checkpoint is whole; make train goes on from it.")
    if ended == "stopped":
        return 130
    if run.step == first and first:
        console.print("There was nothing left to do; FRESH=1 begins again.")
    for at, loss in run.validation:
        console.print(f"  step {at:5}: held-out loss {loss:.4f}")
    console.print(escape(_spoken(run, place)))
    return 0 if stored == run.step else 1


def _stored(place):
    """The step of the checkpoint on disk; None where there is none."""
    last = place / "last.pt"
    return load(last)["step"] if last.exists() else None


class _Stop:
    """Ctrl-C and SIGTERM ask for a stop after the step that is under way; a second one kills."""

    def __init__(self):
        self.asked = False
        self._before = {}

    def __call__(self):
        return self.asked

    def __enter__(self):
        for name in (signal.SIGINT, signal.SIGTERM):
            self._before[name] = signal.signal(name, self._ask)
        return self

    def __exit__(self, *_):
        for name, handler in self._before.items():
            signal.signal(name, handler)

    def _ask(self, *_):
        self.asked = True
        for name, handler in self._before.items():
            signal.signal(name, handler)


def _spoken(run, place):
    """A sample of the best weights, byte by byte through decode_attention."""
    best = run.best or load(place / "best.pt", run.device)  # a full disk left it in memory
    model = LanguageModel(run.settings.config, dtype=run.model.dtype).to(run.device)
    load_weights(model, best)
    cast(model)
    prompt = torch.tensor([list(PROMPT.encode())], device=run.device)
    room = run.settings.config.context
    cache = decode_cache(model, 1, room)
    generator = torch.Generator(run.device).manual_seed(0)
    count = min(BYTES_MORE, room - len(PROMPT))
    made = sample(model, prompt, count, cache=cache, generator=generator)
    text = bytes(made[0].tolist()).decode("utf-8", errors="replace")
    return f"{parameters(model)} parameters; the weights of step {best['step']} say:\n{text}"


if __name__ == "__main__":
    sys.exit(main())
