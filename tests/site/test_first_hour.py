"""A stranger's first hour: begin a post, and read what is said where something is missing."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import snippets
from snippets._lab import cli
from snippets._lab.judge.mutants import mutate
from snippets._lab.rooms import ROOT, load_file, places_of
from snippets._lab.skeleton.write import CannotBegin, new_post
from snippets._site import unmeasured
from tests.site import test_site

NAME, LIKE = "sliding_window", "basic_attention"
LISTS = {"mkdocs.yml", "docs/reference/launchers.md", "snippets/_lab/draw/identity.py"}


def copied(folder):
    """The repository's files without what is large and no text of ours."""
    for path in test_site.files():
        if "vendor" not in path.parts and path.parts[:2] != ("docs", "data"):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, folder / path)
    return folder


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of the repository in which a post has been begun."""
    folder = copied(tmp_path_factory.mktemp("copy") / "house")
    subprocess.run(["git", "init", "-q", folder], check=True)
    written = new_post(NAME, LIKE, folder)
    assert {p.relative_to(folder).as_posix() for p in written} >= LISTS
    return folder


# Begin a post.


# Of these the new post itself is asked; the others are asked of the whole house.
OF_THE_POST = (
    "a_slug_is_words_without_digits",
    "launcher_and_kernel_carry_the_slug",
    "a_room_says_where_its_page_is",
    "the_file_a_reader_copies_needs_torch_and_triton_only",
    "a_room_imports_no_room",
    "figures_need_neither_torch_nor_triton",
    "every_result_has_a_figure_of_the_same_name",
    "the_whole_file_is_one_click_away",
    "a_post_has_date_description_tags_and_what_it_found",
    "a_post_has_its_parts",
)
OF_THE_HOUSE = (
    "nav_lists_every_post_once_and_is_the_only_order",
    "sections_are_closed_unique_and_of_a_size_to_read",
    "code_of_more_than_three_lines_is_included",
    "included_code_is_titled_with_its_file",
    "no_measured_number_is_typed",
)


@pytest.mark.parametrize("rule", [*OF_THE_POST, *OF_THE_HOUSE])
def test_a_new_post_keeps_the_rules_of_the_house(rule, house, monkeypatch):
    monkeypatch.setattr(test_site, "ROOT", house)
    getattr(test_site, f"test_{rule}")(*([NAME] if rule in OF_THE_POST else []))


def test_a_new_post_shows_every_section_and_its_figures_once_they_are_drawn(house, monkeypatch):
    monkeypatch.setattr(test_site, "ROOT", house)
    shown = {section for path, section in test_site.all_includes() if NAME in path}
    kernel = Path(f"snippets/{NAME}/kernel.py")
    assert set(test_site.sections(kernel)) <= shown
    with pytest.raises(AssertionError) as caught:
        test_site.test_a_post_has_everything_under_its_one_name(NAME)
    assert str(caught.value).splitlines()[1:] == [
        f"  - docs/figures/{NAME} is missing",
        f"  - nothing is measured: make bench-cpu figures POST={NAME}",
    ], "what make new does after writing"


def test_a_new_post_is_listed_and_has_a_color_of_its_own(house):
    text = (house / "mkdocs.yml").read_text("utf-8")
    nav = yaml.load(text, test_site.Loader)["nav"]
    assert test_site.nav_pages(nav).count(f"posts/{NAME}.md") == 1
    road = load_file(house / "snippets/_lab/draw/identity.py", "identity_of_the_copy").ROAD
    hues = [rung.hue for name, rung in road.items() if name != NAME]
    assert min(abs((road[NAME].hue - hue + 180) % 360 - 180) for hue in hues) >= 2
    assert NAME in (house / "docs/reference/launchers.md").read_text("utf-8")


def test_a_new_post_is_formatted_and_linted(house):
    ruff = Path(sys.executable).parent / "ruff"
    mine = [f"snippets/{NAME}", f"tests/posts/test_{NAME}.py", "snippets/_lab/draw/identity.py"]
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([ruff, *command, *mine], cwd=house, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_a_new_post_passes_its_tests_and_its_wrong_kernels_apply(house, monkeypatch):
    monkeypatch.setattr(snippets, "__path__", [*snippets.__path__, str(house / "snippets")])
    tests = load_file(house / f"tests/posts/test_{NAME}.py", "tests_of_the_copy")
    tests.test_equals_float64(65, torch.float32)
    source = (house / f"snippets/{NAME}/kernel.py").read_text("utf-8")
    mutants = load_file(house / f"snippets/{NAME}/mutants.py", "mutants_of_the_copy").MUTANTS
    assert len(mutants) == 3
    assert all(mutate(source, mutant) != source for mutant in mutants)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "flash_attention",
            "there is a flash_attention already: snippets/flash_attention/kernel.py, ",
        ),
        ("scoreboard", "there is a scoreboard already"),
        ("flash2", "'flash2' is no name for a post; lower-case words"),
        ("sliding__window", "is no name for a post"),
        ("../x", "is no name for a post"),
        ("import", "is no name for a post"),
        ("", "is no name for a post"),
    ],
)
def test_a_name_that_cannot_be_is_one_sentence_and_nothing_is_written(name, said, capsys):
    before = test_site.files()
    assert cli.main(["new", name]) == 2
    printed = capsys.readouterr().out.replace("\n", " ")
    assert said in " ".join(printed.split())
    assert test_site.files() == before


def test_a_post_begins_with_a_kernel_that_has_wrong_variants(tmp_path):
    with pytest.raises(CannotBegin, match=r"basic_attention.*, not of 'multi_head_attention'"):
        new_post("new_post", "multi_head_attention", tmp_path)
    assert not list(tmp_path.iterdir())


# What waits for a GPU.


@pytest.fixture
def page(house, monkeypatch):
    """What the page of the new post shows, in a house whose rooms include it."""
    monkeypatch.setattr("snippets._lab.rooms.SNIPPETS", house / "snippets")
    (house / f"docs/figures/{NAME}").mkdir(exist_ok=True)
    text = (house / f"docs/posts/{NAME}.md").read_text("utf-8")
    return lambda more="": unmeasured.shown(text + more, house)


def include(figure):
    return f'--8<-- "docs/figures/{NAME}/{figure}"'


def test_a_page_says_what_no_gpu_has_measured(page, house):
    assert places_of(NAME)["forward"] == ("gpu",)
    shown = page(f"\n    {include('forward_more.md')}\n")
    assert "forward_more.md" not in shown
    assert include("forward.md") not in shown
    assert f"`make bench POST={NAME} RESULT=forward`" in shown
    assert shown.count(unmeasured.BADGE) == 1, "the figure, and no piece of it"
    assert f"{{{{ {NAME}.mutants.count }}}}" in shown, "a number that needs no GPU has to be there"
    assert include("report_interpreter.md") in shown
    assert unmeasured.nothing_measured(house / "docs/data", NAME)


def test_a_figure_that_is_measured_and_not_drawn_is_left_to_stop_the_build(page, monkeypatch):
    monkeypatch.setattr(unmeasured, "on_a_gpu", lambda *_: True)
    assert include("forward.md") in page()
