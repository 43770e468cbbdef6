"""The language model learns with our kernels, resumes bit for bit, and speaks through the cache."""

import errno
import random
import re

import pytest
import torch

from snippets._lab.judge.oracle import NumericalMismatch, causal_mask
from snippets._lab.rooms import ROOT
from snippets.flash_backward.kernel import flash_backward
from snippets.language_model import bench, data, figures, heads, module, op, training
from snippets.language_model import train as command
from snippets.language_model.module import Config, LanguageModel, loss_of
from snippets.language_model.training import BadCheckpoint, Run, Settings
from tests import apart
from tests.floors import some

CONFIG = Config(width=32, layers=2, heads=4, heads_kv=2, head_dim=16, hidden=32, context=24)
TINY = Settings(
    CONFIG,
    batch=2,
    steps=6,
    rate=1e-2,
    warmup=2,
    validate_every=2,
    save_every=2,
    windows=2,
    attention="torch:math",
    dtype="float32",
)
CPU = torch.device("cpu")


def files(count=60):
    """Made-up files, some of them held out."""
    return [
        data.File(f"f{i}.py", f"def f{i}(x):\n    return x + {i}\n".encode()) for i in range(count)
    ]


@pytest.fixture(scope="module")
def corpus():
    return data.corpus(files())


def test_the_bench_checks_gradients_and_sampling_through_our_kernels(device):
    bench.check(device)


def test_the_check_finds_wrong_gradients_and_wrong_logits(device, monkeypatch):
    from snippets._lab.judge.oracle import NumericalMismatch

    other = lambda q, k, v: module.sdpa(q, k, v) * 1.001  # noqa: E731
    monkeypatch.setattr(bench, "attend_with", lambda name: other)
    with pytest.raises(NumericalMismatch, match="the gradient of"):
        bench.check(device)
    monkeypatch.setattr(bench, "attend_with", lambda name: module.sdpa)
    monkeypatch.setattr(bench, "decode_cache", _forgetful)
    with pytest.raises(NumericalMismatch, match="logits"):
        bench.check(device)


def _forgetful(model, batch, capacity):
    """A cache of PyTorch's that does not write what is new."""
    return module.Cache(model, batch, capacity, lambda *_: None, module.sdpa_cached)


# The model.


def test_the_file_alone_checks_itself(capsys):
    assert module.main() == 0
    assert "OK" in capsys.readouterr().out


def test_scores_of_rotated_vectors_depend_on_their_distance_alone():
    q, k = torch.randn(2, 1, 1, 1, 16, dtype=torch.float64)

    def score(at, other):
        turned = [
            module.rotate(x, *module.rotations(torch.tensor([place]), 16))
            for x, place in ((q, at), (k, other))
        ]
        return (turned[0] * turned[1]).sum()

    torch.testing.assert_close(score(9, 4), score(1005, 1000), rtol=1e-4, atol=1e-4)
    assert (score(9, 4) - score(9, 5)).abs() > 1e-3
    torch.testing.assert_close(score(0, 0), (q * k).sum())


def test_neighboring_heads_of_queries_share_a_head_of_keys():
    q, k, v = (torch.randn(1, h, 7, 16) for h in (4, 2, 2))
    out = op.eager(q, k, v)
    assert torch.equal(out[:, 2:], op.eager(q[:, 2:], k[:, 1:], v[:, 1:]))
    torch.testing.assert_close(out, module.sdpa(q, k, v))
    torch.testing.assert_close(op.attend_with("torch:math")(q, k, v), out)


def test_a_byte_sees_no_later_one():
    model = LanguageModel(CONFIG)
    tokens = torch.randint(256, (1, 12))
    other = tokens.clone()
    other[:, 8:] = (other[:, 8:] + 1) % 256
    found, changed = model(tokens), model(other)
    assert torch.equal(found[:, :8], changed[:, :8])
    assert not torch.equal(found[:, 8:], changed[:, 8:])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"heads": 3}, "heads is 3; it must be a multiple of 2"),
        ({"head_dim": 15}, "head_dim is 15"),
        ({"layers": 0}, "layers is 0"),
    ],
)
def test_sizes_that_make_no_model_are_refused(change, said):
    with pytest.raises(ValueError, match=said):
        LanguageModel(CONFIG._replace(**change))


def test_an_attention_of_another_gpu_is_refused_before_training(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    monkeypatch.setattr(command, "fastest", lambda device: op.OURS)
    with pytest.raises(SystemExit):
        command.main(["--attention", "hopper_backward"])
    assert "hopper_backward needs an H100 or H200" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_unknown_attention_is_named():
    with pytest.raises(ValueError, match="attention is 'flash'; one of flash_backward"):
        op.attend_with("flash")


# What the page shows first.

FIRST = (ROOT / "snippets/language_model/first.py").read_text("utf-8")


def printed(code, folder):
    """What it prints, run as a file without a GPU."""
    (folder / "first.py").write_text(code, "utf-8")
    changes = {"TRITON_INTERPRET": 1, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": ROOT}
    return apart.printed("first.py", cwd=folder, **changes)


def numbers(text):
    return [float(number) for number in re.findall(r"(?<=: )[\d.e-]+", text)]


def test_the_lines_of_the_page_put_our_kernel_into_its_first_file(tmp_path):
    page = (ROOT / "docs/posts/language_model.md").read_text("utf-8")
    lines = re.search(r"```python\n(.*?)```", page, re.S)[1]
    (line,) = re.findall(r"^model = .*\n", FIRST, re.M)
    once = FIRST.replace(line, lines).replace("range(61)", "range(1)")
    loss, difference = numbers(printed(once, tmp_path))
    assert loss == pytest.approx(5.7, abs=0.5)
    assert difference < 1e-4
    wrong = lines.replace("causal=True", "causal=False")
    assert numbers(printed(once.replace(lines, wrong), tmp_path))[1] > 1e-2


# Sampling.


def test_sampling_through_our_cache_is_sampling_without_one(device):
    model = LanguageModel(CONFIG).to(device)
    prompt = torch.randint(256, (2, 5), device=device)
    plain = module.sample(model, prompt, 3, temperature=0)
    ours = op.decode_cache(model, 2, 24)
    assert torch.equal(module.sample(model, prompt, 3, temperature=0, cache=ours, chunk=3), plain)
    assert ours.lengths.tolist() == [7, 7]  # the last byte was drawn and not read


def test_draws_follow_the_weights():
    logits = torch.log(torch.tensor([0.5, 0.3, 0.2]))
    drawn = module.draw(logits.expand(20_000, 3), 1.0)
    shares = drawn.flatten().bincount(minlength=3) / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.5, 0.3, 0.2]), atol=0.015, rtol=0)
    assert module.draw(logits[None], 0).item() == 0


@pytest.mark.parametrize(
    ("prompt", "count", "said"),
    [
        ((1, 0), 3, "prompt has shape"),
        ((1, 5), 20, "25 bytes are asked for"),
        ((2, 5), 2, "2 rows"),
    ],
)
def test_a_sample_that_does_not_fit_is_refused(prompt, count, said):
    model = LanguageModel(CONFIG)
    cache = module.Cache(model, 1, 24, module.sdpa_append, module.sdpa_cached)
    with pytest.raises(ValueError, match=said):
        module.sample(model, torch.zeros(prompt, dtype=torch.long), count, cache=cache)


# The text.


def test_the_manifest_changes_with_any_byte_and_any_name():
    before = data.manifest(files())
    changed, renamed = files(), files()
    changed[3] = changed[3]._replace(text=changed[3].text + b" ")
    renamed[3] = renamed[3]._replace(path="g3.py")
    digests = {data.manifest(given)["sha256"] for given in (files(), changed, renamed)}
    assert len(digests) == 3
    assert data.manifest(files()) == before
    assert 0 < before["files_held_out"] < before["files"] == 60
    assert before["bytes"] == sum(len(file.text) for file in files())


def test_nothing_held_out_is_learned(corpus):
    held_out = [file for file in files() if file.held_out]
    learned = bytes(corpus.train.tolist())
    assert held_out
    for file in held_out:
        assert file.text not in learned
        assert file.text in bytes(corpus.held_out.tolist())


def test_the_library_leaves_out_what_nobody_wrote(tmp_path):
    for path in ("a.py", "json/b.py", "test/c.py", "site-packages/d.py", "html/entities.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x = 1\n")
    assert [file.path for file in data.library(tmp_path)] == ["a.py", "json/b.py"]
    with pytest.raises(data.NoCorpus, match="no Python source"):
        data.library(tmp_path / "test" / "none")
    with pytest.raises(data.NoCorpus, match="validate on"):
        data.corpus([file for file in files() if not file.held_out])
    with pytest.raises(data.NoCorpus, match="a window takes 100"):
        data.batch(torch.zeros(50, dtype=torch.uint8), 1, 99, seed=0, step=0)


def test_windows_follow_from_seed_and_step(corpus):
    def windows(seed, step):
        return data.batch(corpus.train, 4, 24, seed=seed, step=step)

    assert torch.equal(windows(0, 5), windows(0, 5))
    assert not torch.equal(windows(0, 5), windows(0, 6))
    assert not torch.equal(windows(0, 5), windows(1, 5))
    assert windows(0, 5).shape == (4, 25)


# Training.


def bits(run):
    return [weight.detach().clone() for weight in run.model.parameters()]


def test_it_learns(corpus):
    run = Run(TINY, corpus, CPU)
    before = run.validate()
    for _ in range(30):
        run.advance()
    assert run.validate() < before - 1.5


@pytest.mark.parametrize("attention", ["torch:math", "flash_backward"])
def test_a_run_that_is_killed_and_resumed_ends_with_the_same_bits(
    attention, corpus, tmp_path, device
):
    settings = TINY._replace(steps=4, attention=attention, deterministic=True)
    whole = Run(settings, corpus, device)
    training.train(whole, tmp_path / "whole")
    killed = Run(settings, corpus, device)
    with pytest.raises(RuntimeError, match="killed"):
        training.train(killed, tmp_path / "killed", tell=_killed_at(3))
    resumed = Run(settings, corpus, device)
    resumed.resume(training.load(tmp_path / "killed" / "last.pt", device))
    assert resumed.step == 2  # the last checkpoint before the kill
    training.train(resumed, tmp_path / "killed")
    for one, other in zip(some(bits(resumed)), bits(whole), strict=True):
        assert torch.equal(one, other)
    assert resumed.losses == whole.losses
    assert resumed.validation == whole.validation


def _killed_at(step):
    def tell(run):
        if run.step == step:
            raise RuntimeError("killed")

    return tell


def test_training_stops_when_the_held_out_loss_has_turned(corpus, tmp_path, monkeypatch):
    losses = iter([3.0, 2.0, 2.5, 2.2, 1.0])

    def validate(run):
        run.validation.append((run.step, next(losses)))

    monkeypatch.setattr(Run, "validate", validate)
    run = Run(TINY._replace(steps=100), corpus, CPU)
    assert training.train(run, tmp_path) == "the held-out loss has turned"
    assert run.step == 6
    assert training.load(tmp_path / "best.pt")["step"] == 2
    assert not training.turned([])


def test_a_checkpoint_that_is_cut_short_or_is_none_is_refused(corpus, tmp_path):
    path = tmp_path / "last.pt"
    training.save(Run(TINY, corpus, CPU).state(), path)
    whole = path.read_bytes()
    for content in (b"", b"nothing", *(whole[:size] for size in (10, len(whole) // 2, -1))):
        path.write_bytes(content)
        with pytest.raises(BadCheckpoint, match=r"last.pt is damaged, or no checkpoint; .*FRESH=1"):
            training.load(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"config": CONFIG._replace(layers=1)}, "made with config"),
        ({"seed": 1}, "made with seed 0, this run has 1"),
        ({"attention": "torch:flash"}, "made with attention torch:math"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(change, said, corpus):
    state = Run(TINY, corpus, CPU).state()
    other = Run(TINY._replace(**change), corpus, CPU)
    with pytest.raises(BadCheckpoint, match=said):
        other.resume(state)
    run = Run(TINY, data.corpus(files(50)), CPU)
    with pytest.raises(BadCheckpoint, match="another Python's library"):
        run.resume(state)
    with pytest.raises(BadCheckpoint, match="made with config None"):
        run.resume({"weights": 1})


def test_a_full_disk_is_told_and_the_old_checkpoint_stays(corpus, tmp_path, monkeypatch):
    run = Run(TINY, corpus, CPU)
    training.train(run, tmp_path)
    before = (tmp_path / "last.pt").read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(training.os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        training.train(Run(TINY, corpus, CPU), tmp_path)
    assert (tmp_path / "last.pt").read_bytes() == before


@pytest.fixture
def of_a_few_bytes(monkeypatch, tmp_path):
    """The command with the tiny model, with a few files of text."""
    monkeypatch.setattr(command, "corpus", lambda: data.corpus(files()))
    monkeypatch.setattr(command, "TINY", TINY)
    monkeypatch.setattr(command, "Settings", lambda: TINY)
    monkeypatch.setattr(command, "BYTES_MORE", 3)
    monkeypatch.setattr(command, "FOLDER", tmp_path)


def test_the_command_trains_resumes_and_refuses(
    tmp_path, of_a_few_bytes, device, monkeypatch, capsys
):
    arguments = ["--attention", "torch:math"]
    assert command.main(arguments) == 0
    assert "all steps are made" in capsys.readouterr().out
    assert command.main(arguments) == 0
    assert f"resumed at step {TINY.steps}" in capsys.readouterr().out
    assert command.main(["--attention", "torch:eager"]) == 2
    assert "made with attention torch:math" in capsys.readouterr().out
    (tmp_path / device / "last.pt").write_bytes(b"nothing")
    assert command.main(arguments) == 2
    assert "is damaged, or no checkpoint" in capsys.readouterr().out.replace("\n", " ")

    def interrupted(run):
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "advance", interrupted)
    assert command.main([*arguments, "--fresh"]) == 130
    assert "make train goes on" in capsys.readouterr().out


def test_a_folder_that_cannot_be_is_told(tmp_path, of_a_few_bytes, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(command, "FOLDER", tmp_path / "file")
    assert command.main(["--attention", "torch:math"]) == 2
    assert "file" in capsys.readouterr().out

    # What heads look at.


def test_targets_are_found_in_a_text():
    text = b"f(a[0],\n  b)\n"
    assert heads.brackets(text) == [(5, [3]), (11, [1])]
    assert heads.brackets(b")(]") == []
    assert heads.indentation(b"    x\n y\n\nz\n") == [(5, [0, 1, 2, 3]), (8, [6])]
    assert heads.previous(b"abc") == [(1, [0]), (2, [1])]


def test_shares_of_a_head_that_looks_one_back_and_of_an_even_one():
    tokens = torch.tensor([list(b"f(a)\n")])
    N = tokens.shape[1]
    back = torch.zeros(N, N)
    back[0, 0] = 1.0
    for at in range(1, N):
        back[at, at - 1] = 1.0
    even = torch.ones(N, N).tril()
    even /= even.sum(-1, keepdim=True)
    found = heads.shares(torch.stack((back, even))[None, None], tokens)
    by_head, expected, count = found["previous byte"]
    assert by_head[0] == pytest.approx([1.0, expected])
    assert count == 4
    by_head, expected, count = found["matching bracket"]
    assert (by_head[0], expected, count) == (pytest.approx([0.0, 0.25]), 0.25, 1)
    assert "indentation" not in found


def test_weights_are_those_that_the_model_uses():
    model = LanguageModel(CONFIG)
    tokens = torch.randint(256, (2, 9))
    found = heads.weights_of(model, tokens)
    assert found.shape == (2, 2, 4, 9, 9)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 2, 4, 9))
    assert not found.triu(1).any()
    used = []

    def attend(q, k, v):
        used.append(module.sdpa(q, k, v))
        mixed = found[len(used) - 1] @ v.repeat_interleave(2, dim=1)
        torch.testing.assert_close(used[-1], mixed)
        return used[-1]

    model(tokens, attend)
    assert len(used) == 2


def test_each_fault_is_found_in_the_gradients(device):
    q, k, v = (torch.randn(1, h, 40, 16, device=device) for h in (4, 2, 2))
    grad_out = torch.randn_like(q)

    def judge(backward):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        found = torch.autograd.grad(op.through(backward)(*leaves), leaves, grad_out)
        op.assert_gradients(found, q, k, v, grad_out, mask=causal_mask(40, 40, device=device))

    judge(flash_backward)
    for name in some(op.FAULTS):
        with pytest.raises(NumericalMismatch):
            judge(bench.planted(name, 16))


# How the page compares runs.


def _by_chance(chance, shift=0.0):
    """Ours and PyTorch's runs from each seed: seeds differ much, runs of a seed by chance alone."""
    names = [(figures.OURS, shift), *((name, 0.0) for name in figures.BACKENDS)]
    for seed in bench.SEEDS:
        level = chance.gauss(1.2, 0.05)
        for name, off in names:
            losses = [level + off + chance.gauss(0, 0.004)] * 5
            yield {"implementation": name, "seed": seed, "losses": losses}


def test_a_comparison_seed_by_seed_is_wrong_one_time_in_twenty_and_finds_a_shift():
    chance = random.Random(0)

    def found(shift):
        rows = list(_by_chance(chance, shift))
        return figures._paired([r for r in rows if r["implementation"] == figures.OURS], rows)

    draws = range(1000)
    false = sum(figures._told_apart(found(0)) for _ in draws) / len(draws)
    assert 0.03 < false < 0.075
    shifted = [found(-0.015) for _ in draws]  # about as far as scale 1.02, to the other side
    assert sum(map(figures._told_apart, shifted)) / len(draws) > 0.98
    covered = sum(abs(mean + 0.015) <= half for mean, half in shifted) / len(draws)
    assert 0.925 < covered < 0.97


def test_a_loss_is_the_cross_entropy_of_the_next_byte():
    model = LanguageModel(CONFIG, dtype=torch.float64).double()
    tokens = torch.randint(256, (1, 5))
    logs = model(tokens[:, :-1]).log_softmax(-1)[0]
    want = -sum(logs[i, tokens[0, i + 1]] for i in range(4)) / 4
    torch.testing.assert_close(loss_of(model, tokens), want)
