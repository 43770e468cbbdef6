"""Files that are published from where they are: what a reader may copy from each room.

They live in `snippets/`, outside `docs/`, because they are imported and tested. Pages link to them
(`/snippets/<post>/kernel.py`). Nothing is copied into `docs/`, and a strict build knows when such a
link is broken.
"""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

NAMES = ("kernel.py", "module.py", "exercise.py", "in_transformers.py")


def add(files: Files, config: MkDocsConfig) -> None:
    """Add the rooms' files (a room is a folder without a leading underscore) to the site's."""
    snippets = Path(config.config_file_path).parent / "snippets"
    for path in sorted(snippets.glob("[!_]*/*.py")):
        if path.name in NAMES:
            uri = f"snippets/{path.parent.name}/{path.name}"
            files.append(File.generated(config, uri, abs_src_path=str(path)))
