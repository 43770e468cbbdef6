"""Files that are published from where they are: what a reader may copy from each room.

They live in `snippets/`, outside `docs/`, because they are imported and tested. Pages link to them
(`/snippets/<post>/kernel.py`), and to all kernels in one archive. Nothing is copied into `docs/`,
and a strict build knows when such a link is broken.
"""

import io
import zipfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from snippets._lab.rooms import load
from snippets._site import listings

NAMES = (
    "kernel.py",
    "module.py",
    "backward.py",
    "one_pass.py",
    "ring.py",
    "cache.py",
    "exercise.py",
    "in_transformers.py",
)
KERNELS = ("kernel.py", "module.py", "backward.py", "ring.py")  # what needs nothing but them
ARCHIVE = "snippets/kernels.zip"
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # so that the same files make the same bytes


def add(files: Files, config: MkDocsConfig) -> None:
    """Add the rooms' files (a room is a folder without a leading underscore) to the site's."""
    snippets = Path(config.config_file_path).parent / "snippets"
    for path in sorted(snippets.glob("[!_]*/*.py")):
        if path.name in NAMES:
            name, text = path.name, path.read_text("utf-8")
        elif path.name in ("wide.py", "in_turn.py"):  # pieces of kernel.py, changed for another
            of = load(path.parent.name, path.stem)
            name, text = of.NAME, of.source()
        else:
            continue
        uri, text = f"snippets/{path.parent.name}/{name}", listings.without_markers(text)
        files.append(File.generated(config, uri, content=text))
    files.append(File.generated(config, ARCHIVE, content=archive(snippets.parent)))


def archive(root: Path) -> bytes:
    """A zip of every room's kernel, each in a folder of its post's name, with the license."""
    kernels = [p for p in sorted(root.glob("snippets/[!_]*/*.py")) if p.name in KERNELS]
    named = {f"{path.parent.name}/{path.name}": path for path in kernels}
    license_ = root / "LICENSE"
    if license_.exists():
        named["LICENSE"] = license_
    texts = {
        name: listings.without_markers(path.read_text("utf-8")) for name, path in named.items()
    }
    return zipped({f"attention_kernels/{name}": text.encode() for name, text in texts.items()})


def zipped(files: dict[str, bytes]) -> bytes:
    """A zip of named files: the same bytes each time."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in files.items():
            made.writestr(zipfile.ZipInfo(name, LONG_AGO), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()
