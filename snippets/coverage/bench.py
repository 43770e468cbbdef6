"""What the coverage page measures: every launcher with every kind of input."""

from functools import partial

from snippets._lab.judge.grid import LAYOUTS, SHAPES, cell, rows
from snippets._lab.judge.oracle import eager_attention
from snippets._lab.rooms import measured_on


def check(device):
    """Raise unless a cell can fail: the mean of V is not attention, and eager PyTorch is."""
    case = {
        "shape": SHAPES[3],
        "dtype": "float32",
        "mask": "full",
        "layout": LAYOUTS[0],
        "configuration": None,
    }
    for run, outcome in (
        (partial(eager_attention, scale=0.0), "failed"),
        (eager_attention, "passed"),
    ):
        found = cell(run, case, device)
        if found["outcome"] != outcome:
            raise RuntimeError(f"a cell that must have {outcome} has {found['outcome']}")


@measured_on("gpu", "interpreter", every_launcher=True)
def grid(lab):
    """Error and outcome of every launcher over dtype, shape, mask, layout and configuration."""
    yield from rows(lab.place, lab.each)
