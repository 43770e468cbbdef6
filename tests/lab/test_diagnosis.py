"""A wrong output gets the right name: models name themselves, and so do mistakes written otherwise.

The second half: a reader's file that does not import, has no launcher or never ends. All models and
all planted mistakes take minutes: they are marked `diagnosis`, and `make test` takes a sample.
"""

import inspect
import math
import os
import re
import sys
import time
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from snippets._lab import cli
from snippets._lab.diagnose import diagnosis
from snippets._lab.diagnose.diagnosis import diagnosis_of
from snippets._lab.diagnose.examination import examine
from snippets._lab.judge.grid import attention_rooms
from snippets._lab.judge.launcher import find_launcher
from snippets._lab.judge.mistakes import MISTAKES
from snippets._lab.judge.models import Probe, attend, output
from snippets._lab.judge.mutants import Mutant, mutate, variant
from snippets._lab.judge.oracle import eager_attention
from snippets._lab.judge.patch import occurs
from snippets._lab.judge.refusal import CannotDiagnose
from snippets._lab.results import store
from snippets._lab.rooms import ROOT, interpreted, load, load_file, room_file, rooms, source_file
from tests.floors import some


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # inputs are tiny: more threads cost more than they save
    yield
    torch.set_num_threads(threads)


def launcher_of(model):
    """The model as a launcher; right where the model does not say."""

    def launcher(q, k, v, *, scale=None, causal=False, align="bottom_right"):
        probe = Probe("", q, k, v, scale, causal, align)
        out = output(probe, model) if model else None
        return (attend(probe) if out is None else out).to(q.dtype)

    return launcher


def test_right_attention_has_no_mistake():
    found = examine(launcher_of(None))
    assert found.right
    assert found.probes == 23 + 23, "in float32 and in float16"
    assert "No mistake found" in found.text()


# Of the largest tile nothing can be said: it holds all queries of every input, or all of one tile.
SAID_OTHERWISE = {("last queries not written", 5), ("maximum not updated", 26)}


def some_models(names):
    """(mistake, number of its model): the first, one in the middle, the last."""
    for name in names:
        last = len(MISTAKES[name].models) - 1
        if last < 0:  # it is told by a sign, and planted below
            continue
        for at in sorted({0, (last + 1) // 2, last}):
            if (name, at) not in SAID_OTHERWISE:
                yield name, at


def sampled(cases, sample):
    """All of these cases; what `make test` leaves to `make diagnosis` is marked so."""
    marks = {True: (), False: pytest.mark.diagnosis}
    return [pytest.param(*case, marks=marks[case in sample]) for case in cases]


MODELS = list(some_models(MISTAKES))


@pytest.mark.parametrize(("name", "at"), sampled(MODELS, [m for m in MODELS if not m[1]][::9]))
def test_a_model_is_told_from_all_others(name, at):
    found = examine(launcher_of(MISTAKES[name].models[at]))
    assert found.names == (name,), f"{name}: {found}"
    assert MISTAKES[name].sentence in found.text()


# The same mistakes, written as people write them: nothing here is taken from the models. What a
# room's kill table has is not here: its names are derived from kernels (see below).


RIGHT = dict(divide=math.sqrt, first=0, last=len, reach=0, hide=-math.inf, power=torch.exp)
RIGHT |= dict(group=lambda h, G, Hkv: h // G, corner=None)


def by_hand(q, k, v, *, scale=None, causal=False, align="bottom_right", **mistake):
    """Row by row, with a place for each mistake."""
    its = SimpleNamespace(**RIGHT | mistake)
    out = torch.zeros_like(q)
    M, D = q.shape[-2:]
    N = k.shape[-2]
    G = q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            kv = its.group(h, G, k.shape[1])
            for m in range(M):
                s = (k[b, kv] * q[b, h, m]).sum(-1) * (scale or 1 / its.divide(D))
                if causal:
                    corner = N - M if (its.corner or align) == "bottom_right" else 0
                    s[max(m + 1 + its.reach + corner, 0) :] = its.hide
                s[its.last(s) :] = -math.inf
                s[: its.first] = -math.inf
                if (s > -math.inf).any():
                    e = its.power(s - s.max())
                    out[b, h, m] = (e / e.sum()) @ v[b, kv]
    return out


def tiles(
    q, k, v, *, scale=None, B=32, rescale=True, end=0, half=False, running=True, weights=lambda p: p
):
    """The loop of an online softmax in tiles of B keys."""
    D, N = q.shape[-1], k.shape[-2]
    qs = q * (1 / math.sqrt(D) if scale is None else scale)
    m = torch.full(q.shape[:-1], -math.inf)
    total = torch.zeros(q.shape[:-1])
    acc = torch.zeros_like(q, dtype=torch.float16 if half else torch.float32)
    for start in range(0, N - end, B):
        s = torch.einsum("...md,...nd->...mn", qs, k[..., start : start + B, :])
        before, m = m, torch.maximum(m, s.max(-1).values) if running else s.max(-1).values
        p = torch.exp(s - m[..., None])
        alpha = torch.exp(before - m)
        total = total * alpha + p.sum(-1)
        if rescale:
            acc = (acc * alpha[..., None]).to(acc.dtype)
        acc = (acc + weights(p) @ v[..., start : start + B, :]).to(acc.dtype)
    return acc / total[..., None]


def from_memory(x):
    """What a kernel reads that takes every tensor for contiguous."""
    flat = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    return flat[x.storage_offset() :][: x.numel()].view(x.shape)


def grouped(x, q):
    return x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def rounded_down(q, k, v):
    out = torch.full_like(q, math.nan)
    for block in range(q.shape[-2] // 16):
        rows = slice(16 * block, 16 * (block + 1))
        out[..., rows, :] = eager_attention(q[..., rows, :], k, v)
    return out


def value_by_query_head(q, k, v):
    """Where heads share, V is read as if they did not: past its end lie zeros, here."""
    if k.shape[1] < q.shape[1]:
        v = torch.cat([v.flatten(), torch.zeros(q.shape[:2].numel() * v.shape[-2:].numel())])
        shape = (*q.shape[:2], *k.shape[-2:])
        v = v.as_strided(shape, k.stride())
    return eager_attention(q, grouped(k, q), v)


PLANTED = {
    "maximum of each tile": partial(tiles, running=False),
    "K and V exchanged": lambda q, k, v: eager_attention(q, v, k),
    "K/V by the query head": value_by_query_head,
    "Q by the K/V head": lambda q, k, v: eager_attention(
        grouped(q[:, : k.shape[1]], q) if k.shape[1] < q.shape[1] else q,
        grouped(k, q),
        grouped(v, q),
    ),
    "zeros": lambda q, k, v: torch.empty_like(q).zero_(),
    "mean of V": lambda q, k, v: v.mean(-2, keepdim=True).expand_as(q).clone(),
    "no scale": lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v,
    "multiplied by √D": partial(by_hand, divide=lambda D: 1 / math.sqrt(D)),
    "scale of the padded head": partial(by_hand, divide=lambda D: 8 if D == 40 else math.sqrt(D)),
    "mask off by one": partial(by_hand, reach=1),
    "bottom-right for top-left": partial(by_hand, corner="bottom_right"),
    "no mask": lambda q, k, v, causal=False: eager_attention(q, grouped(k, q), grouped(v, q)),
    "hidden keys score zero": partial(by_hand, hide=0.0),
    "first key dropped": partial(by_hand, first=1),
    "last queries not written": rounded_down,
    "no rescale": partial(tiles, rescale=False),
    "wrong axis": lambda q, k, v: torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), 2) @ v,
    "strides ignored": lambda q, k, v: eager_attention(*map(from_memory, (q, k, v))),
    "float16 accumulator": partial(tiles, B=16, half=True),
    "weights rounded to 16 bits": partial(tiles, B=64, weights=lambda p: p.bfloat16().float()),
    "inputs rounded to 16 bits": lambda q, k, v: eager_attention(
        *(x.half().float() for x in (q, k, v))
    ),
}


SAMPLE = ["no scale", "mask off by one", "no rescale", "strides ignored", "maximum of each tile"]
SAMPLE += ["K and V exchanged", "K/V by the query head"]


@pytest.mark.parametrize("name", sampled([(x,) for x in PLANTED], [(x,) for x in SAMPLE]))
def test_a_mistake_written_otherwise_gets_the_same_name(name):
    found = examine(PLANTED[name])
    assert found.names == (name,), found.text()


def test_an_unknown_mistake_is_said_to_be_unknown():
    found = examine(lambda q, k, v: eager_attention(q, k, v) + 0.1 * q)
    assert (found.right, found.names) == (False, ())
    assert found.text().startswith("Wrong, but by none of the known mistakes")
    assert f"{found.largest:.2g} from float64" in found.text()


def test_two_mistakes_at_once_get_no_name():
    found = examine(lambda q, k, v: torch.softmax(q @ k.mT, -1) @ k)
    assert (found.right, found.names) == (False, ())
    assert "more than one mistake, or one that has no name here" in found.text()


def test_two_mistakes_that_fit_are_both_named(monkeypatch):
    monkeypatch.setitem(MISTAKES, "average", MISTAKES["mean of V"])
    found = examine(PLANTED["mean of V"])
    assert found.names == ("mean of V", "average")
    assert "cannot tell apart" in found.text()


def test_zeros_need_no_other_name(monkeypatch):
    monkeypatch.setitem(MISTAKES, "nought", MISTAKES["zeros"])
    assert examine(PLANTED["zeros"]).names == ("zeros",)


def test_a_mistake_counts_only_where_it_shows():
    """A right launcher without a mask is not accused of a mask that is off by one."""
    assert examine(lambda q, k, v: eager_attention(q, k, v)).right


def test_a_mistake_in_16_bits_only_is_found():
    def half_wrong(q, k, v):
        out = eager_attention(q, k, v)
        return torch.zeros_like(out) if q.dtype == torch.float16 else out

    found = examine(half_wrong)
    assert found.names == ("zeros",)
    assert '"plain, float16"' in found.text()


def test_a_mistake_in_the_tiles_of_wide_heads_is_found(device):
    mutants = {m.name: m for m in load("flash_attention", "mutants").MUTANTS}
    beyond = mutants["key beyond the end"]
    found = examine(variant("flash_attention", [(beyond.old, beyond.new)]), device)
    assert not found.right
    assert found.probe == "wide heads, low scores, float16"


def test_launchers_of_one_head_and_of_weights_are_examined_too():
    def one_head(q, k, v):
        (_, D) = q.shape
        return eager_attention(q, k, v, scale=1 / D)

    assert examine(one_head).names == ("scale 1/D",)
    assert examine(lambda q, k, scale=None: (q @ k.mT).softmax(-1)).names == ("no scale",)


@pytest.mark.parametrize(
    ("launcher", "message"),
    [
        (lambda q, k, v: None, "returned a NoneType"),
        (lambda q, k, v: q[..., :1], "was expected"),
        (lambda q, k, v: 1 // 0, r"or fails on it: ZeroDivisionError: .*, line \d+, `"),
        (lambda q, k, v: refuse(), r"takes no input, or fails on it: ValueError: never, line \d+"),
        (lambda q, k, v, secret: q, "asks for secret, which is not known here: give it a default"),
    ],
)
def test_a_launcher_that_cannot_be_diagnosed_is_told_why(launcher, message):
    with pytest.raises(CannotDiagnose, match=message):
        examine(launcher)


def refuse():
    raise ValueError("never")


# What a launcher takes.


def flash_layout(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, **how):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return by_hand(q, k, v, causal=causal, scale=softmax_scale, **how).transpose(1, 2)


def causal_attention(q, k, v, **how):
    return by_hand(q, k, v, causal=True, **how)


def causal_off_by_one(q, k, v):
    return causal_attention(q, k, v, reach=1)


def of_one_class(q, k, v):
    assert q.shape == k.shape
    assert (q.shape[-1], q.dtype) == (64, torch.float16)
    assert q.shape[-2] % 16 == 0
    return eager_attention(q.float(), k.float(), v.float()).half()


def of_one_text(q, k, v, max_seqlen):
    """[N, H, D]"""
    assert max_seqlen == len(q) == len(k)
    return eager_attention(*(x.transpose(0, 1) for x in (q, k, v))).transpose(0, 1)


def of_one_length(q, k, v):
    """In [B, N, H, D] it finds as many heads, and runs."""
    assert q.shape[2] == k.shape[2]
    return eager_attention(q, k[:, : q.shape[1]], v[:, : q.shape[1]])


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        (flash_layout, "tensors [B, N, H, D]"),
        (of_one_text, "tensors [N, H, D]; as many queries as keys"),
        (of_one_class, "float16; as many queries as keys; lengths that are multiples of 16; D"),
        (causal_attention, "It applies the causal mask always: query m sees keys n ≤ m + N - M."),
        (of_one_length, "Judged on what it takes: as many queries as keys."),
    ],
)
def test_what_is_right_in_a_form_of_its_own_is_right(launcher, said):
    found = examine(launcher)
    assert found.right, found.text()
    assert said in found.text()


@pytest.mark.parametrize(
    ("launcher", "name"),
    [
        (partial(flash_layout, divide=lambda D: D), "scale 1/D"),
        (partial(flash_layout, group=lambda h, G, Hkv: 0), "first head for all"),
        (lambda q, k, v: of_one_class(q * 8, k, v), "no scale"),
        (causal_off_by_one, "mask off by one"),
    ],
)
def test_what_is_wrong_in_a_form_of_its_own_is_named(launcher, name):
    assert examine(launcher).names == (name,)


def test_a_mask_that_nobody_asks_for_is_a_mistake_still():
    assert examine(partial(lambda q, k, v: causal_attention(q, k, v))).names == ("always masked",)


def test_grouped_heads_that_are_not_offered_are_no_mistake():
    def with_zeros(q, k, v):
        more = k.new_zeros(len(k), q.shape[1] - k.shape[1], *k.shape[2:])
        return eager_attention(q, *(torch.cat([x, more], 1) for x in (k, v)))

    found = examine(with_zeros)
    assert found.right
    assert "does not support grouped heads" in found.text()


# Kernels of the rooms.


def test_stored_kill_tables_and_derived_names_agree():
    """A mutant that carries a model's name is one that the model explains."""
    derived = 0
    for result in some(store.scan()):
        if result.result == "mutants" and result.post in attention_rooms("interpreter"):
            for row in some(result.rows):
                if row["mutant"] in MISTAKES and "derived" in row:
                    assert row["derived"] == row["mutant"], f"{result.post}: {row['mutant']}"
                    derived += 1
    assert derived >= 30, "no kill table was derived"


OPTIONS = ("causal", "align")  # of a launcher
WANTED = {  # such an option, or what the source has with a feature → what its kill table must have
    "causal": {"mask off by one"},
    "align": {"corners swapped"},
    "alpha": {"no rescale", "last tile dropped"},
    "Hkv": {"wrong K/V head"},
}


@pytest.mark.parametrize("room", [r for r in rooms() if room_file(r, "mutants.py").exists()])
def test_a_kill_table_has_the_mistakes_that_its_kernel_can_make(room):
    """Under whatever name, as long as the output says which it is."""
    if room not in attention_rooms():
        pytest.skip("no attention launcher")
    source = source_file(room).read_text("utf-8")
    mutants = {m.name for m in load(room, "mutants").MUTANTS}
    stored = [r for r in store.scan() if (r.post, r.result) == (room, "mutants")]
    if not stored:
        pytest.skip("its mutants have not been run yet: make bench-cpu")
    names = mutants | {row.get("derived") for r in stored for row in r.rows}
    wanted = {"zeros", "mean of V", "no scale", "max not subtracted"}
    if not interpreted(room):
        # Not derived: its mutants run in stand-ins, and carry names of their own.
        assert len(mutants) >= 20
        return
    options = inspect.signature(getattr(load(room, "kernel"), room)).parameters
    for feature, found in WANTED.items():
        if feature in options or (feature not in OPTIONS and occurs(source, feature)):
            wanted |= found
    assert not wanted - names
    assert len(mutants) >= 8


# A reader's file.

GOOD = """
import math
import torch

def my_attention(q, k, v, *, scale=None, causal=False):
    s = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], device=s.device).tril() == 0, -math.inf)
    return s.softmax(-1) @ v

def helper(x):
    return x
"""


def write(tmp_path, text, name="my_kernel.py"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def said(file):
    """What the child answers, asked in this process."""
    answer = diagnosis.said(file).cannot
    sys.path.remove(str(file.parent))
    sys.modules.pop(file.stem, None)
    return answer


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", "it cannot be imported: SyntaxError: invalid syntax, line 1"),
        ("import nothing_of_the_sort\n", "it cannot be imported: ModuleNotFoundError"),
        ("exit(3)\n", "it cannot be imported: SystemExit"),
        ("x = nought\n", "NameError: name 'nought' is not defined, line 1, `x = nought`"),
        ("x = 1\n", "it has no launcher: no public function takes queries, keys and values"),
        ("def _hidden(q, k, v):\n    return q\n", "it has no launcher"),
        ("from torch.nn.functional import scaled_dot_product_attention\n", "it has no launcher"),
        (
            "def f(q, k, v):\n    return q\ndef g(q, k, v):\n    return q\n",
            "f, g: choose one with LAUNCHER=f",
        ),
    ],
)
def test_a_file_that_cannot_be_diagnosed_is_told_why(text, message, tmp_path):
    assert message in said(write(tmp_path, text))


def test_a_launcher_can_be_chosen(tmp_path):
    file = write(tmp_path, GOOD + "def other(q, k, v):\n    return q * 0\n")
    module = load_file(file, "chosen")
    assert find_launcher(module, "other").function.__name__ == "other"
    said = "no public function called 'third'; it has helper, my_attention, other"
    with pytest.raises(CannotDiagnose, match=said):
        find_launcher(module, "third")
    with pytest.raises(CannotDiagnose, match="helper does not take queries, keys and values"):
        find_launcher(module, "helper")


def test_the_command_names_the_mistake_of_a_file(tmp_path, capsys):
    """Its causal mask starts in the top left corner, and the file leaves a trace where it ran."""
    trace = f"import os\nos.environ['RAN'] = '1'\nopen({str(tmp_path / 'ran')!r}, 'w').close()\n"
    file = write(tmp_path, trace + GOOD, "a[b]c.py")
    assert cli.main(["diagnose", str(file)]) == 0, "an answer is no failure"
    text = capsys.readouterr().out
    assert "Your mask is top-left; the spec is bottom-right" in text
    assert (tmp_path / "ran").exists()
    assert "RAN" not in os.environ, "the file ran in this process"
    assert "my_kernel" not in sys.modules


FLASH = (ROOT / "snippets/diagnose/kernels/flash.py").read_text("utf-8")
AS_TRITON = [  # piece of the kernel, what stands there instead, what Triton says of it
    ("n_ok = start_n", "n_ok = 0 <= start_n", "simultaneous multiple comparison"),
    ("BLOCK_N = 64, 32", "BLOCK_N = 64, 8", "K >= 16"),
    ("l_i = tl.zeros([BLOCK_M], dtype=tl.float32)", "l_i = 0.0", "Loop-carried variable l_i"),
    ("m_i = m_ij\n", "m_i = m_ij\n        if start_n > N_CTX_K:\n            break\n", "Break"),
    ("m_ij = tl.maximum(m_i, tl.max(qk, 1))", "m_ij = max(m_i, tl.max(qk, 1))", ""),
    ("n_ok = start_n", "start_n = start_n.to(tl.int64)\n        n_ok = start_n", ""),
    ("mask=m_ok[:, None] & d_ok[None, :]", "mask=m_ok[:, None] and not d_ok[None, :] == 0", ""),
    (
        "mask=m_ok[:, None] & d_ok[None, :]",
        "mask=not (m_ok[:, None] == 0 or offs_d >= HEAD_DIM)",
        "",
    ),
]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU compiles what it runs")
@pytest.mark.parametrize(("old", "new", "refused"), AS_TRITON)
def test_a_kernel_is_judged_as_triton_compiles_it(old, new, refused, tmp_path):
    assert old in FLASH
    found = diagnosis_of(write(tmp_path, FLASH.replace(old, new)), fresh=False)
    assert found.right == (not refused), found.text()
    assert not found.names + found.lines
    assert refused in found.text()
    where = re.search(r"Line (\d+), `(.*)`: ", found.text())
    assert bool(where) == bool(refused or re.search(" and | or ", new))  # Triton warns
    if where:
        assert FLASH.replace(old, new).splitlines()[int(where[1]) - 1].strip() in where[2]


def test_a_wrong_triton_kernel_in_a_file_is_named(tmp_path, capsys):
    source = source_file("vectorized_attention").read_text("utf-8")
    wrong = mutate(source, Mutant("", "weights = tl.exp(", "weights = tl.exp2(", ""))
    assert cli.main(["diagnose", str(write(tmp_path, wrong))]) == 0
    assert MISTAKES["wrong base"].sentence in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU compiles what it runs")
def test_triton_is_not_said_to_accept_what_it_was_not_asked(tmp_path):
    """This launcher refuses tensors on a CPU where Triton's own front end would see them."""
    source = source_file("vectorized_attention").read_text("utf-8")
    wrong = mutate(source, Mutant("", "weights = tl.exp(", "weights = tl.expp(", ""))
    with pytest.raises(CannotDiagnose, match="no attribute 'expp'") as found:
        diagnosis_of(write(tmp_path, wrong))
    assert "accepts" not in str(found.value)


@pytest.mark.parametrize(
    "when", ["while True:\n    pass\n", GOOD.replace("s = q", "while 1: q = q\n    s = q")]
)
def test_a_file_that_never_ends_is_stopped(when, tmp_path, monkeypatch):
    began = time.monotonic()
    trace = f"import os\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    with pytest.raises(CannotDiagnose, match="gave no answer within 10 s: it loops"):
        diagnosis_of(write(tmp_path, trace + when), seconds=10)
    assert time.monotonic() - began < 30
    with pytest.raises(ProcessLookupError):  # else it is still there
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize(
    ("end", "said"),
    [("_exit(7)", "exit status 7"), ("kill(os.getpid(), signal.SIGSEGV)", "signal SIGSEGV")],
)
def test_a_file_that_ends_its_process_is_told_so(end, said, tmp_path, capsys):
    assert cli.main(["diagnose", str(write(tmp_path, f"import os, signal\nos.{end}\n"))]) == 2
    assert f"the process ended with {said}" in capsys.readouterr().out


def test_a_file_that_is_not_there(tmp_path, capsys):
    assert cli.main(["diagnose", str(tmp_path / "x.py")]) == 2
    assert "is not a file" in capsys.readouterr().out
