"""The commit that a result comes from."""

import shutil
import subprocess

from snippets._lab.rooms import ROOT


def commit() -> str:
    """The commit the code came from; "unknown" where there is no git or no repository."""
    git = shutil.which("git")
    if git is None:
        return "unknown"
    done = subprocess.run(
        [git, "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else "unknown"
