"""The drawing of the page: which question comes first, and what each answer leads to."""

from typing import NamedTuple

from snippets._lab.draw.drawings import INK, MUTED, PHONE, box, group, straight, svg, words
from snippets._lab.draw.identity import SHARED
from snippets._lab.draw.pictures import Picture, picture

ASK = INK
FOUND = SHARED  # calm: a cause is good news
WIDE, GAP, TALL, PITCH = 168, 30, 46, 62  # of a question, to its answer, and from one to the next


class Question(NamedTuple):
    """What one asks, how one finds out, and the cause and remedy if the answer is yes."""

    asked: str
    how: str
    cause: str
    remedy: str


QUESTIONS = [
    Question(
        "Is the CPU slower?", "as called against queued", "launches", "fewer, or a CUDA graph"
    ),
    Question("Near memory's ceiling?", "compulsory bytes over time", "bytes", "fuse, fewer bits"),
    Question("Near the arithmetic?", "FLOPs over time", "arithmetic", "tensor cores, less of it"),
    Question("Does it spill?", "ask the compiler", "registers", "less for each thread"),
    Question("Sectors half used?", "addresses of one warp", "addresses", "another layout"),
    Question("Too few programs?", "programs over slots", "parallelism", "split the work"),
]


@picture
def tree():
    """Six questions, from the cheapest answer to the dearest; what is left needs experiments."""
    drawn = []
    for at, question in enumerate(QUESTIONS):
        y = at * PITCH
        middle = y + TALL / 2
        right = WIDE + GAP
        drawn += [
            _two_lines(0, y, WIDE, question.asked, question.how, ASK, 5),
            straight((WIDE + 3, middle), (right - 3, middle), MUTED),
            words(WIDE + GAP / 2 - 1, middle - 5, "yes", 10, color=MUTED),
            _two_lines(right, y, PHONE - right, question.cause, question.remedy, FOUND, 22),
            straight((WIDE / 2, y + TALL + 2), (WIDE / 2, y + PITCH - 2), MUTED),
            words(WIDE / 2 + 8, y + TALL + 12, "no", 10, color=MUTED, anchor="start"),
        ]
    y = len(QUESTIONS) * PITCH
    drawn.append(
        _two_lines(0, y, PHONE, "It waits inside the loop", "one part out at a time", FOUND, 22)
    )
    about = "A decision tree. " + " ".join(
        f"{q.asked} ({q.how}) If yes: {q.cause}; {q.remedy}." for q in QUESTIONS
    )
    return Picture(
        sees="The cheapest question comes first.",
        caption="Left: a question and where its answer comes from. Right: the cause if the answer "
        "is yes, and what helps. A kernel for which every answer is no waits inside its loop, and "
        "only an experiment can tell what for.",
        svg=svg(PHONE, y + TALL + 2, f"{about} If none: it waits inside the loop.", drawn),
    )


def _two_lines(x, y, wide, head, below, color, percent):
    """A box with a line in bold and a quieter one."""
    middle = wide / 2
    return group(
        [
            box(0, 0, wide, TALL, color, percent, 1),
            words(middle, 19, head, 12, 600),
            words(middle, 35, below, 10.5, color=MUTED),
        ],
        x,
        y + 1,
    )
