"""Train the model on this machine: `make train`. It resumes where a run was stopped or killed."""

import argparse
import os
import sys
import time

import torch
from rich.console import Console
from rich.markup import escape

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates a kernel

from snippets._lab.rooms import ROOT

from .data import NoCorpus, corpus
from .module import LanguageModel, cast, parameters, sample
from .op import HOPPER, NAMES, decode_cache, fastest
from .training import TINY, BadCheckpoint, Run, Settings, load, train

FOLDER = ROOT / ".cache" / "language_model"
SECONDS = {"cuda": 80.0, "cpu": 40.0}  # so that with all the rest it takes 90, and a minute
PROMPT, BYTES_MORE = "def ", 200

console = Console(highlight=False, soft_wrap=True)


def main(arguments=None):
    """Train, and print a sample. The exit code is 0, 2 for bad input, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m snippets.language_model.train")
    parser.add_argument("--attention", choices=NAMES, help="what it trains with")
    parser.add_argument("--fresh", action="store_true", help="begin again")
    options = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.attention == HOPPER and fastest(device) != HOPPER:
        parser.error(f"{HOPPER} needs an H100 or H200; use {fastest(device)}")
    settings = Settings() if device == "cuda" else TINY
    settings = settings._replace(attention=options.attention or fastest(device))
    if device == "cpu":
        console.print(
            "There is no GPU that torch can use: a tiny model is trained, its kernels run in "
            "Triton's interpreter."
        )
    place = FOLDER / device
    try:
        run = Run(settings, corpus(), device)
        if not options.fresh and (place / "last.pt").exists():
            run.resume(load(place / "last.pt", device))
            console.print(f"resumed at step {run.step}")
        _train(run, place, SECONDS[device])
        console.print(escape(_spoken(run, place)))
    except KeyboardInterrupt:
        console.print("stopped; make train goes on from the last checkpoint")
        return 130
    except (BadCheckpoint, NoCorpus, OSError) as error:
        console.print(f"[red]error:[/] {escape(str(error))}")
        return 2
    return 0


def _train(run, place, seconds):
    """Train, say how far it is, and print how the held-out loss fell."""
    began, first = time.monotonic(), run.step
    with console.status("training") as status:

        def tell(run):
            loss = f"held-out loss {run.validation[-1][1]:.3f} nats per byte"
            status.update(f"step {run.step} of {run.settings.steps}, {loss}")

        ended = train(run, place, seconds=seconds, tell=tell)
    taken = time.monotonic() - began
    console.print(f"{run.step - first} steps in {taken:.0f} s, then: {ended}")
    if run.step == first and first:
        console.print("There was nothing left to do; FRESH=1 begins again.")
    for at, loss in run.validation:
        console.print(f"  step {at:5}: held-out loss {loss:.4f}")


def _spoken(run, place):
    """A sample of the best weights, byte by byte through decode_attention."""
    best = load(place / "best.pt", run.device)
    model = LanguageModel(run.settings.config, dtype=run.model.dtype).to(run.device)
    model.load_state_dict(best["model"])
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
