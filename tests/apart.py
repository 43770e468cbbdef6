"""Python in a process of its own, started in the repository unless a test says otherwise."""

import os
import subprocess
import sys
from typing import Any

from snippets._lab.rooms import ROOT


def python(
    *arguments: Any, cwd: Any = ROOT, seconds: float = 300, **changes: Any
) -> subprocess.CompletedProcess[str]:
    """How Python ends, at the latest after so many seconds, which is an error.

    `changes` are those of the environment, where None takes a variable away.
    """
    env = {name: str(value) for name, value in (os.environ | changes).items() if value is not None}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=seconds, check=False
    )


def printed(*arguments: Any, **how: Any) -> str:
    """What Python prints; it must end well."""
    done = python(*arguments, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout
