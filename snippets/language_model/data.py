"""The text that the model learns: Python's own standard library, fixed by a manifest.

It is on every machine that can run this, a reader can judge a sample of it by eye, and nothing is
downloaded. Another Python has another library; its losses are not comparable, so every result names
the version and a digest of all files.
"""

import hashlib
import platform
import sysconfig
from pathlib import Path
from typing import NamedTuple

import torch

# Not of the library, tests, or tables that a program wrote.
LEFT_OUT = {
    *("site-packages", "dist-packages", "__pycache__", "lib-dynload", "ensurepip"),
    *("test", "tests", "idle_test", "encodings", "pydoc_data", "turtledemo"),
}
TABLES = {"entities.py", "token.py", "keyword.py", "_opcode_metadata.py", "stringprep.py"}
HELD_OUT = 20  # one file of so many, chosen by a digest of its name
END = b"\0"  # behind each file


class NoCorpus(RuntimeError):
    """The library's sources are not there, or hold too little text; the message says which."""


class File(NamedTuple):
    """One file of the library."""

    path: str  # below the library's folder
    text: bytes

    @property
    def digest(self):
        return hashlib.sha256(self.text).hexdigest()

    @property
    def held_out(self):
        """Whether it is kept for validation: a matter of its name, so the same in each version."""
        return int(hashlib.sha256(self.path.encode()).hexdigest(), 16) % HELD_OUT == 0


def library(folder=None):
    """The files of the standard library in the order of their names."""
    folder = Path(folder or sysconfig.get_paths()["stdlib"])
    found = []
    for path in sorted(folder.rglob("*.py")):
        below = path.relative_to(folder)
        if LEFT_OUT & set(below.parts) or below.parts[0].startswith("config-"):
            continue
        if path.name in TABLES or path.name.startswith("_sysconfigdata"):
            continue
        found.append(File(below.as_posix(), path.read_bytes()))
    if not found:
        raise NoCorpus(f"there is no Python source in {folder.name}; the model learns from it")
    return found


def manifest(files):
    """What a result says of its text: version, counts, and one digest of all names and contents."""
    every = "".join(f"{file.digest}  {file.path}\n" for file in files)
    return {
        "python": platform.python_version(),
        "files": len(files),
        "bytes": sum(len(file.text) for file in files),
        "files_held_out": sum(file.held_out for file in files),
        "bytes_held_out": sum(len(file.text) for file in files if file.held_out),
        "sha256": hashlib.sha256(every.encode()).hexdigest(),
    }


class Corpus(NamedTuple):
    """Bytes to learn from and to validate on, and where they come from."""

    train: torch.Tensor  # uint8 [bytes]
    held_out: torch.Tensor
    manifest: dict

    def to(self, device):
        return self._replace(train=self.train.to(device), held_out=self.held_out.to(device))


def corpus(files=None):
    """The Corpus of these files, by default the library's."""
    files = library() if files is None else files
    parts = []
    for held_out in (False, True):
        text = b"".join(file.text + END for file in files if file.held_out == held_out)
        if len(text) < 2:
            raise NoCorpus(f"{len(files)} files leave nothing to {_purpose(held_out)}")
        parts.append(torch.frombuffer(bytearray(text), dtype=torch.uint8))
    return Corpus(*parts, manifest(files))


def _purpose(held_out):
    return "validate on" if held_out else "learn from"


def batch(text, size, length, *, seed, step):
    """`size` windows of length + 1 bytes, int64, that depend on the seed and the step alone.

    So a run that is resumed needs no record of which windows have been used.
    """
    if len(text) <= length:
        raise NoCorpus(f"there are {len(text)} bytes; a window takes {length + 1}")
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(len(text) - length, (size, 1), generator=generator)
    # Few numbers are sent, so that the host need not wait for the GPU.
    places = starts.to(text.device) + torch.arange(length + 1, device=text.device)
    return text[places].long()
