"""The rules of the house as assertions, for every room there is or will be.

Files are read, never imported.
"""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from snippets._lab.results import store
from snippets._lab.rooms import FOR_SCRIPTS
from snippets._site import named_numbers
from snippets._site.includes import whole
from tests.floors import perhaps, some

ROOT = Path(__file__).resolve().parents[2]
DRAWN_ONLY = {"claims", "find_the_bottleneck", "what_changed"}  # about what others measured
LAB_PAGES = {*DRAWN_ONLY, "scoreboard", "coverage", "your_gpu", "diagnose"}  # no kernel, no post
EVERY_ROOM = {"report", "mutants", *FOR_SCRIPTS}  # results that no bench.py has to define
SECTION_LINES = range(2, 41)  # of a shown section; most have at least 5
TOP_LEVEL = {
    ".ci",
    ".github",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "constraints.txt",
    "docs",
    "mkdocs.yml",
    "pyproject.toml",
    "snippets",
    "tests",
}

INCLUDE = re.compile(r"^.*-+8<-+.*$", re.MULTILINE)
QUOTED = re.compile(r'^\s*--8<-- "(?P<path>[^":]+)(?::(?P<section>[a-zA-Z_]\w*))?"\s*$')
MARKER = re.compile(r"^\s*(?:#|<!--) --8<-- \[(?P<edge>start|end):(?P<name>[^\]]*)\]", re.MULTILINE)
FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>```+|~~~+)(?P<info>[^\n`]*)\n"
    r"(?P<body>.*?)^(?P=indent)(?P=ticks)\s*$",
    re.MULTILINE | re.DOTALL,
)
NUMBER = r"(?<![\w.])\d[\d.,]*"
MEASURED = re.compile(
    NUMBER + r"\s*(?:"
    r"(?:[nµμum]s|milliseconds?|microseconds?|seconds?)\b"
    r"|[KMGTkP]i?B/s|[GTP]?FLOPS?(?:/s)?\b|tokens/s"
    r"|×(?! [0-9$])|%|x\b"
    r"|times (?:as|faster|slower|more|less|fewer|longer|the time|the speed)"
    r")"
)
MACHINE_PATH = re.compile(
    r"(?<![\w.:/<])/(?:home|root|Users|work|tmp|mnt|media)/\w|[A-Z]:\\\\?Users"
)
# An address of another host, whole or put together, and what fetches a file by a name of its own.
THIRD_PARTY = re.compile(
    r"""(?:https?|wss?|ftp):(?!//www\.w3\.org/)|//(?!www\.w3\.org/)[\w-]+\.[\w.-]+"""
    r"""|["'`(=]\s*//(?=[\w$\[])|@import|importScripts"""
)


def rooms():
    return sorted(p.parent.name for p in (ROOT / "snippets").glob("[!_]*/__init__.py"))


def posts():
    return [room for room in rooms() if room not in LAB_PAGES]


def room_of(page):
    """The room that a post explains: its front matter names it where its own name does not."""
    named = re.search(r"^room: (\w+)$", read(page).split("\n---\n")[0], re.MULTILINE)
    return named[1] if named else page.stem


def source_file(post):
    """The file that a reader copies, as rooms.source_file says it, but of the house at ROOT."""
    path = Path("snippets") / post / "kernel.py"
    return path if (ROOT / path).exists() else path.with_name("module.py")


def parts():
    """The posts that explain a room together with the post of its name, and that room."""
    found = [p.relative_to(ROOT) for p in sorted((ROOT / "docs/posts").glob("*.md"))]
    return {page: room_of(page) for page in found if room_of(page) != page.stem}


def fail_with(faults, what):
    """One failure that lists all that is wrong, so that it can be put right in one go."""
    if faults:
        raise AssertionError("\n  - ".join([f"{what}:", *faults]))


ROOMS, POSTS = rooms(), posts()
BENCHED = [room for room in ROOMS if room not in DRAWN_ONLY]


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def pages():
    """Every page: Markdown below docs/ that is neither generated nor somebody else's licence."""
    found = [p.relative_to(ROOT) for p in sorted((ROOT / "docs").rglob("*.md"))]
    found = [p for p in found if p.parts[1] not in ("figures", "assets")]
    assert len(found) >= 2, "no pages"
    return found


def python_files(*folders):
    found = [p.relative_to(ROOT) for f in folders for p in sorted((ROOT / f).rglob("*.py"))]
    assert found, f"no Python file in {folders}"
    return found


def files():
    """Every file that git tracks: what else lies in a clone is its owner's business."""
    try:
        command = ["git", "-C", ROOT, "ls-files", "-z"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("NOT RUN: without a git repository nobody knows which files are the project's")
    found = sorted({Path(p) for p in listed.split("\0") if p and (ROOT / p).is_file()})
    assert len(found) > 20, "git tracks no files"
    return found


def tree(path):
    return ast.parse(read(path))


def imports(path):
    """(level, module, name) of every import in a file, those inside functions included."""
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found += [(0, alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.level, node.module or "", alias.name) for alias in node.names]
    return found


def packages(path):
    """Top-level packages that a file imports; "." for its own folder."""
    return {"." if level else module.split(".")[0] for level, module, _ in imports(path)}


def functions(path):
    return [n for n in tree(path).body if isinstance(n, ast.FunctionDef)]


def decorators(function):
    return {ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in function.decorator_list}


def includes(page):
    """(path, section or None) of every include of a page."""
    lines = [line.group() for line in INCLUDE.finditer(read(page))]
    parsed = [(line, QUOTED.match(line)) for line in lines]
    wrong = [line for line, match in parsed if match is None]
    assert not wrong, f'{page}: not of the form --8<-- "file:section": {wrong}'
    return [(match["path"], match["section"]) for _, match in parsed]


def all_includes():
    found = {pair for page in pages() for pair in includes(page)}
    assert found, "no page includes anything"
    return found


def sections(path):
    """Section → its lines, markers apart. Fails on sections that do not open and close in pairs."""
    lines, found, open_at = read(path).splitlines(), {}, {}
    for number, line in some(enumerate(lines)):
        if not (match := MARKER.match(line)):
            continue
        name = match["name"]
        if match["edge"] == "start":
            assert name not in open_at, f"{path}: section {name} starts twice"
            assert name not in found, f"{path}: two sections are called {name}"
            open_at[name] = number
        else:
            assert name in open_at, f"{path}: section {name} ends and never started"
            inner = lines[open_at.pop(name) + 1 : number]
            found[name] = [x for x in inner if x.strip() and not MARKER.match(x)]
    assert not open_at, f"{path}: section {', '.join(open_at)} never ends"
    return found


def prose(page):
    """A page without front matter, code, formulas, includes, comments and link targets."""
    text = re.sub(r"\A---\n.*?\n---\n", "", read(page), flags=re.DOTALL)
    text = FENCE.sub("", text)
    text = INCLUDE.sub("", text)
    text = re.sub(r"<!--.*?-->|`[^`\n]*`|\$\$[^$]*\$\$|\$[^$\n]+\$", " ", text, flags=re.DOTALL)
    return re.sub(r"\]\([^()\s]*\)|<[^<>]*>|\{[^{}\n]*\}", " ", text)


def front_matter(page):
    match = re.match(r"---\n(.*?)\n---\n", read(page), re.DOTALL)
    assert match, f"{page} has no front matter"
    return yaml.safe_load(match[1])


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without acting on its tags (!ENV, !relative)."""


Loader.add_multi_constructor("!", lambda loader, tag, node: f"!{tag}")


def mkdocs():
    return yaml.load(read("mkdocs.yml"), Loader)


def nav_names(entries):
    """(name, page) of a navigation, in order; the name of a part has no page."""
    for entry in entries:
        ((name, below),) = entry.items()
        yield name, below if isinstance(below, str) else None
        yield from nav_names([] if isinstance(below, str) else below)


def nav_pages(nav=None):
    """The pages of the navigation, in order."""
    return [page for _, page in nav_names(nav or mkdocs()["nav"]) if page]


def published():
    """The posts in the order of the navigation, by name."""
    return [Path(page).stem for page in nav_pages() if page.startswith("posts/")]


# One slug, one spelling.


@pytest.mark.parametrize("room", ROOMS)
def test_a_slug_is_words_without_digits(room):
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", room)


@pytest.mark.parametrize("post", POSTS)
def test_a_post_has_everything_under_its_one_name(post):
    wanted = {
        f"docs/posts/{post}.md",
        f"docs/figures/{post}",
        f"tests/posts/test_{post}.py",
        *(f"snippets/{post}/{name}" for name in ("bench.py", "figures.py", "tasks.toml")),
    }
    if not (ROOT / f"snippets/{post}/module.py").exists():
        wanted |= {f"snippets/{post}/kernel.py", f"snippets/{post}/mutants.py"}
    missing = [f"{path} is missing" for path in sorted(wanted) if not (ROOT / path).exists()]
    if not list((ROOT / "docs/data").glob(f"**/{post}/*.json")):
        missing.append(f"nothing is measured: make bench-cpu figures POST={post}")
    fail_with(missing, f"{post} lacks files (CONTRIBUTING.md says what each holds)")


def test_nothing_has_a_name_without_a_room():
    tracked = files()

    def below(folder, pattern):
        return [p for p in tracked if p.is_relative_to(folder) and p.match(pattern)]

    named = {
        "page": [room_of(p) for p in below("docs/posts", "*.md")],
        "lab page": [p.stem for p in below("docs/lab", "*.md") if p.stem in LAB_PAGES],
        "notebook": [p.stem for p in below("docs/notebooks", "*.ipynb")],
        "figures": [p.parts[2] for p in below("docs/figures", "*")],
        "data": [p.parent.name for p in below("docs/data", "*.json") if p.parts[2] != "browser"],
    }
    assert all(named[kind] for kind in ("page", "figures", "data"))
    strangers = {kind: sorted(set(names) - set(rooms())) for kind, names in named.items()}
    assert not {kind: names for kind, names in strangers.items() if names}


@pytest.mark.parametrize("post", POSTS)
def test_launcher_and_kernel_carry_the_slug(post):
    path = source_file(post)
    found = {f.name: f for f in functions(path)}
    classes = {n.name for n in tree(path).body if isinstance(n, ast.ClassDef)}
    assert post in found or (path.name == "module.py" and classes), f"{path} has no {post}"
    compiled = re.compile(r"triton\.jit|gluon\.jit\b.*")
    kernels = [n for n, f in found.items() if any(map(compiled.fullmatch, decorators(f)))]
    if path.name == "kernel.py":
        assert kernels, f"{path} has no kernel"
    if len(kernels) == 1:
        assert kernels == [f"_{post}_kernel"]
    assert all(re.fullmatch(r"_\w+", name) for name in kernels), "a kernel is not public"


def test_nav_lists_every_post_once_and_is_the_only_order():
    listed = nav_pages()
    assert sorted(listed) == sorted(set(listed)), "a page is listed twice"
    on_disk = {p.relative_to("docs").as_posix() for p in pages()}
    assert on_disk == {p for p in listed if p.endswith(".md")}
    numbers = {f"posts/{post}.md": n for n, post in enumerate(published(), 1)}
    named = [f"{numbers.get(page, '')} {name}".strip() for name, page in nav_names(mkdocs()["nav"])]
    assert not [name for name in named if len(name) > 28], "one line of the side column"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_where_its_page_is(room):
    module = tree(f"snippets/{room}/__init__.py")
    text = ast.get_docstring(module) or ""
    page = re.search(r"docs/lab/\w+\.md", text)[0] if room in LAB_PAGES else ""
    shown = [path for path, _ in includes(page)] if page else []
    assert page or f"docs/posts/{room}.md" in text
    assert not page or [path for path in shown if path.startswith(f"docs/figures/{room}/")]
    posts_of_it = {page.as_posix() for page, of in parts().items() if of == room}
    assert posts_of_it <= set(re.findall(r"docs/posts/\w+\.md", text))


# What imports what.


@pytest.mark.parametrize("post", POSTS)
def test_the_file_a_reader_copies_needs_torch_and_triton_only(post):
    path = source_file(post)
    allowed = {"torch", "triton"} | sys.stdlib_module_names
    assert packages(path) & {"torch", "triton"}
    assert not packages(path) - allowed
    assert "main" in {f.name for f in functions(path)}, "python kernel.py checks itself"
    assert 'if __name__ == "__main__":' in read(path)


COMPOSES = ("op.py",)  # the files of a room that may import the rooms it says it USES


def uses(room):
    """The rooms that a room says it composes."""
    for node in tree(f"snippets/{room}/__init__.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "USES":
            return ast.literal_eval(node.value)
    return ()


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_no_room(room):
    imported = set()
    for path in python_files(f"snippets/{room}"):
        for level, module, name in perhaps(imports(path), "a module may import nothing"):
            first, owner, *_ = [*module.split("."), name, ""]
            if level == 0 and first == "snippets" and owner[0] != "_" and owner != room:
                assert path.name in COMPOSES, f"{path} imports {module}.{name}"
                imported.add(owner)
            assert level <= len(path.parts) - 2, f"{path} imports from outside its room"
    assert imported == set(uses(room)), "what it imports, and what its __init__.py says it USES"
    assert imported <= set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_figures_need_neither_torch_nor_triton(room):
    path = f"snippets/{room}/figures.py"
    assert not packages(path) & {"torch", "triton", "numpy"}
    own = {name for level, module, name in imports(path) for name in (name, module) if level}
    assert not own & {"kernel", "module", "bench", "exercise"}, "those import torch"


@pytest.mark.parametrize("room", BENCHED)
def test_every_result_has_a_figure_of_the_same_name(room):
    results = {
        f.name for f in functions(f"snippets/{room}/bench.py") if "measured_on" in decorators(f)
    }
    drawn = {
        f.name: "from_all" in decorators(f)  # such a one says what it draws
        for f in functions(f"snippets/{room}/figures.py")
        if f.name[0] != "_"
    }
    assert results
    assert results <= set(drawn)
    assert {name for name, from_all in drawn.items() if not from_all} <= results
    assert "check" in {f.name for f in functions(f"snippets/{room}/bench.py")}


# Code on pages.


def test_sections_are_closed_unique_and_of_a_size_to_read():
    for path in python_files("snippets", "tests/posts", "tests/lab"):
        for name, lines in perhaps(sections(path), "few files have parts with names").items():
            assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name), f"{path}: {name!r} is no name of a step"
            assert len(lines) in SECTION_LINES, f"{path}: {name} has {len(lines)} lines"


def test_every_section_is_shown():
    files = python_files("snippets", "tests/posts", "tests/lab")
    assert not {(p.as_posix(), name) for p in files for name in sections(p)} - all_includes()


def test_a_function_that_is_shown_whole_is_of_a_size_to_read():
    """That there is one of this name is for the build to say."""
    for path, name in all_includes():
        if (
            path.endswith(".py")
            and name not in sections(path)
            and (lines := whole(read(path), name))
        ):
            inside = read(path).splitlines()[lines[0] - 1 : lines[1]]
            assert len([x for x in inside if x.strip()]) in SECTION_LINES, f"{path}:{name}"


def fences():
    found = [(page, match) for page in pages() for match in FENCE.finditer(read(page))]
    assert found, "no code on any page"
    return found


def test_code_of_more_than_three_lines_is_included():
    for page, fence in fences():
        lines = [x for x in fence["body"].splitlines() if x.strip()]
        typed = [x for x in lines if not INCLUDE.match(x)]
        assert len(typed) <= 3, f"{page}: typed code: {typed}"
        assert not typed or len(typed) == len(lines), f"{page}: typed lines around an include"
    for page in pages():
        assert "<pre" not in read(page), f"{page}: code in HTML"
        assert read(page).count("\n```") % 2 == 0, f"{page}: a fence is not closed"


def test_included_code_is_titled_with_its_file():
    titled = set()
    for page, fence in fences():
        for line in filter(INCLUDE.match, fence["body"].splitlines()):
            path = QUOTED.match(line)["path"]
            assert fence["info"].strip() == f'python title="{path}"', f"{page}: {line}"
            titled.add(path)
    shown = {path for path, _ in all_includes() if not path.startswith("docs/figures/")}
    assert some(shown) == titled, "code is included outside a code block"


@pytest.mark.parametrize("post", POSTS)
def test_the_whole_file_is_one_click_away(post):
    text = read(f"docs/posts/{post}.md")
    path = source_file(post)
    for label, mark in {"View": "", "Copy": "{ .am-copy }", "Download": "{ download }"}.items():
        assert f"[{label}](/{path}){mark}" in text, f"no {label} link"


# Figures and numbers.


def test_every_figure_is_on_a_page():
    """Or has numbers that a page names. A .json belongs to the figure that links to it.

    Reports and wrong kernels, which every room has, need not be shown.
    """
    shown = {path for path, _ in all_includes() if path.startswith("docs/figures/")}
    figures = [p for p in files() if p.parts[:2] == ("docs", "figures")]
    assert figures, "no figures"
    for path in figures:
        assert path.suffix in (".md", ".json"), f"{path} is no figure"
        if path.name == "numbers.json":
            continue
        if path.suffix == ".json":
            beside = [p for p in figures if p.parent == path.parent and p.suffix == ".md"]
            link = f"/figures/{path.parent.name}/{path.name}"
            assert any(link in read(p) for p in beside), f"{path} belongs to no figure"
        elif path.stem.endswith("_data"):
            name = path.stem.removesuffix("_data")
            numbers = path.with_name("numbers.json")
            told = json.loads(read(numbers)).get(name) if (ROOT / numbers).is_file() else None
            assert told or (ROOT / path.parent / f"{name}.md").is_file(), path
        elif not re.match("report|(.*_)?mutants", path.stem):
            assert path.as_posix() in shown, f"{path} is on no page"


def draws_a_shape(path):
    """Whether a picture holds no result: what its function says, or none measured yet."""
    room = ROOT / f"snippets/{path.parent.name}/drawings.py"
    numbers = path.with_name(f"{path.stem}_data.md").is_file()
    return room.exists() and any(
        f.name == path.stem and not (f.args.args and numbers)
        for f in functions(f"snippets/{path.parent.name}/drawings.py")
        if "picture" in decorators(f)
    )


def test_every_figure_names_its_data():
    figures = [p for p in (ROOT / "docs/figures").rglob("*.md") if 'id="figure-' in p.read_text()]
    assert figures, "no figures"
    for path in figures:
        if draws_a_shape(path):
            continue
        data = path.with_name(f"{path.stem}_data.md").read_text("utf-8")
        links = re.findall(r"\]\(/(data/[^)]+\.json)\)", data)
        assert links, f"{path} does not say what it was drawn from"
        assert all((ROOT / "docs" / link).is_file() for link in links), path


def test_no_measured_number_is_typed():
    for page in [*pages(), Path("README.md")]:
        others = r"\*\*“[^”]*”\*\*|^ +- \*[^*\n]+\*"  # what others say
        typed = MEASURED.findall(re.sub(others, " ", prose(page), flags=re.MULTILINE))
        assert not typed, f"{page}: measured numbers come from docs/figures: {typed}"


@pytest.mark.parametrize("text", ["12.7 µs", "4.4 TB/s", "750 TFLOP/s", "7.6× faster", "93 % of"])
def test_what_counts_as_a_measured_number(text):
    assert MEASURED.search(text)
    assert not MEASURED.search("2048 bytes of sm_90 at N 1024, section 3.2.1, four times in 65,535")


def test_every_result_on_disk_is_valid_and_belongs_to_a_room():
    results = list(store.scan(ROOT / "docs/data"))
    assert results, "no data"
    wrong = []
    for result in results:
        kind = result.folder.split("/")[0]
        place = kind if kind in ("interpreter", "compiler", "browser") else "gpu"
        own = f"_site/{result.result}" if place == "browser" else f"{result.post}/bench"
        bench = {f.name for f in functions(f"snippets/{own}.py")}
        timed = any(key.startswith("ms") for row in result.rows for key in row)
        faults = {
            "no such result": result.result not in bench | EVERY_ROOM,
            f"commit {result.commit}": not re.fullmatch(r"[0-9a-f]{7,40}|unknown", result.commit),
            f"measured at {result.place}": result.place != place,
            "ceilings": (place == "gpu") != bool(result.ceilings),
            "a time without a GPU": timed and place != "gpu",
        }
        where = f"{result.folder}/{result.post}/{result.result}"
        wrong += [f"{where}: {fault}" for fault, found in faults.items() if found]
    assert not wrong, "; ".join(wrong)


# What a post consists of.


def disturbed(row):
    """Whether a time of the GPU alone spreads as it does when something else uses the GPU."""
    waits = row.get("clock") == "host" or row.get("regime", "queued") != "queued"
    return not waits and row.get("ms_p80", 0) > 2 * row.get("ms_p20", 0)


def test_no_stored_time_of_a_gpu_was_disturbed():
    results = [r for r in store.scan(ROOT / "docs/data") if r.place == "gpu"]
    rows = some([(r.post, r.result, x) for r in results for x in r.rows if "ms_p80" in x])
    assert not [(post, result) for post, result, row in rows if disturbed(row)]
    assert disturbed({"ms_p20": 2.9, "ms_p50": 5.6, "ms_p80": 7.4}), "the check can fail"


@pytest.mark.parametrize("post", [*POSTS, *(page.stem for page in parts())])
def test_a_post_has_date_description_tags_and_what_it_found(post):
    found = front_matter(f"docs/posts/{post}.md")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", str(found.get("date")))
    assert len(found.get("description") or "") > 20
    assert found.get("tags")
    assert found.get("title")
    assert named_numbers.NAMED.search(found["found"]), "a number of its own"


@pytest.mark.parametrize("post", POSTS)
def test_a_post_has_its_parts(post):
    page = f"docs/posts/{post}.md"
    text, shown = read(page), includes(page)
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    costs = [p for p, _ in shown if p.startswith(f"docs/figures/{post}/")]
    remember = re.search(r"^!!! summary.*\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    lines = re.findall(r"^    - ", remember[1], re.MULTILINE) if remember else []
    test = f"tests/posts/test_{post}.py"

    def begins(heading):
        return any(h.startswith(heading) for h in headings)

    parts = {
        f"how many wrong kernels its tests reject: {post}.mutants.count": (
            f"{{{{ {post}.mutants.count }}}}" in text
            or not (ROOT / f"snippets/{post}/mutants.py").exists()
        ),
        f"what it costs: an include of a figure from docs/figures/{post}": costs,
        "three to five lines to remember: a box that begins with `!!! summary`": 3
        <= len(lines)
        <= 5,
        "an exercise: a heading that begins with `## Exercise`": begins("Exercise"),
        "an exercise that is graded: an element with `data-exercise`": "data-exercise=" in text,
        f"an answer that is tested: {test} imports `exercise`": (
            not (ROOT / f"snippets/{post}/exercise.py").exists()
            or "exercise" in {name for _, _, name in imports(test)}
        ),
        "what comes next: a heading that begins with `## Next` or `## What comes next`": (
            begins("Next") or begins("What comes")
        ),
    }
    fail_with([part for part, there in parts.items() if not there], f"{page} lacks parts")


# What must not exist.


def test_the_top_level_holds_only_what_it_should():
    strangers = {path.parts[0] for path in files()} - TOP_LEVEL
    assert not strangers, f"git tracks {strangers} beside the project's {sorted(TOP_LEVEL)}"


def test_notebooks_are_stored_without_outputs():
    """There may be none yet; the faults below show that one with outputs is seen."""
    for path in files():
        if path.suffix == ".ipynb":
            for cell in some(json.loads(read(path))["cells"]):
                assert not cell.get("outputs"), f"{path} holds outputs"
                assert cell.get("execution_count") is None, f"{path} holds an execution count"


def test_no_path_of_somebodys_machine():
    for path in files():
        if "vendor" in path.parts or path.suffix in (".png", ".ico", ".woff2"):
            continue
        found = MACHINE_PATH.search(read(path))
        assert not found, f"{path}: {found.group()}"


def test_inputs_are_refused_by_errors_and_not_by_assertions():
    """`python -O` drops assertions, and their messages name no argument."""
    checked = [
        p for p in python_files("snippets") if p.name in ("kernel.py", "module.py", "exercise.py")
    ]
    assert checked
    for path in checked:
        lines = [n.lineno for n in ast.walk(tree(path)) if isinstance(n, ast.Assert)]
        assert not lines, f"{path}: assert in line {lines}"


def own_files_of_the_look():
    """Scripts, styles, pictures and templates of ours."""
    suffixes = (".js", ".css", ".svg", ".html")
    places = (("docs", "assets"), ("snippets", "_site", "theme"))
    found = [
        p
        for p in files()
        if any(p.parts[: len(place)] == place for place in places)
        and "vendor" not in p.parts
        and p.suffix in suffixes
    ]
    return found


def test_nothing_is_asked_of_a_third_party():
    config = mkdocs()
    assert config["theme"]["font"] is False, "Material would fetch fonts"
    for entry in some((*config.get("extra_css", ()), *config.get("extra_javascript", ()))):
        name = entry if isinstance(entry, str) else entry["path"]
        assert (ROOT / "docs" / name).is_file(), f"{name} is not served by the site"
    for path in some(own_files_of_the_look()):
        assert not THIRD_PARTY.findall(read(path)), path
    figures = [p for p in files() if p.parts[:2] == ("docs", "figures")]
    assert len(figures) > 100
    for path in figures:
        assert not re.search(r"<script|<iframe|src=", read(path)), path
    for page in pages():
        assert not re.search(r"<(script|iframe|link|img)\b", read(page)), page
        assert not re.search(r"!\[[^\]]*\]\((https?:)?//", read(page)), page


def test_a_missing_include_stops_the_build():
    extensions = {
        name: options
        for entry in mkdocs()["markdown_extensions"]
        for name, options in (entry.items() if isinstance(entry, dict) else [(entry, {})])
    }
    assert extensions["snippets._site.includes"]["check_paths"] is True
    assert extensions["snippets._site.includes"]["base_path"] == ["!relative"]
    assert not extensions["snippets._site.includes"].get("url_download")


def test_what_ties_the_site_to_mkdocs_and_material_is_listed():
    page = read("CONTRIBUTING.md").partition("## What ties the site to MkDocs and Material\n")[2]
    listed = set(re.findall(r"`([^`\n]+)`", page.partition("\n## ")[0]))
    plugins = {p if isinstance(p, str) else next(iter(p)) for p in some(mkdocs()["plugins"])}
    events = {f.name for f in functions("snippets/_site/hook.py") if f.name.startswith("on_")}
    theme = ROOT / "snippets/_site/theme"
    templates = {p.relative_to(theme).as_posix() for p in theme.rglob("*.html")}
    ties = plugins | some(events) | some(templates) | {*mkdocs()["theme"]["features"]}
    assert ties <= listed, "unlisted"
    kinds = r"(?:on_\w+|[\w/]+\.html|(?:content|navigation|toc)\.\w+)"
    assert {name for name in listed if re.fullmatch(kinds, name)} <= ties, "gone"


def test_what_readers_install_is_what_was_tried():
    project = read("pyproject.toml").partition("dependencies = [")[2].partition("\n]")[0]
    tried = re.findall(r'"((?:torch|triton)[\d.<>=,]+)', project)
    typed = re.findall(r'"([^"\n]*\d)"', read("docs/reference/install.md"))
    assert len(tried) == 2
    assert sorted(typed) == sorted(2 * tried)


def test_addresses_come_from_the_environment():
    config = mkdocs()
    assert (config["site_url"], config["repo_url"]) == ("!ENV", "!ENV")
