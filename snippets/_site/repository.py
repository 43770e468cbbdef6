"""Where a page's source lies, can be edited and complained about: known where REPO_URL is set."""

import re
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

BRANCH = "main"  # which the workflow publishes


@dataclass(frozen=True)
class Links:
    """Addresses of one page at the host of the repository; "" where the host has no such page."""

    source: str
    edit: str
    report: str


def links(repository: str, path: str, title: str) -> Links | None:
    """Addresses for the file at `path` of the repository; None where the repository is unknown.

    GitHub and its kind, and GitLab, are known by how they spell addresses. Any other host gets a
    link to the repository alone.
    """
    root = re.sub(r"(\.git)?/*$", "", repository.strip())
    if not root:
        return None
    host = urlsplit(root).hostname or ""
    report = f"Mistake on the page: {title}"
    if "gitlab" in host:
        asked = urlencode({"issue[title]": report})
        return Links(
            f"{root}/-/blob/{BRANCH}/{path}",
            f"{root}/-/edit/{BRANCH}/{path}",
            f"{root}/-/issues/new?{asked}",
        )
    if "github" in host or "gitea" in host or "codeberg" in host:
        view, edit = ("blob", "edit") if "github" in host else ("src/branch", "_edit")
        return Links(
            f"{root}/{view}/{BRANCH}/{path}",
            f"{root}/{edit}/{BRANCH}/{path}",
            f"{root}/issues/new?{urlencode({'title': report})}",
        )
    return Links(root, "", "")


def shown(markdown: str, repository: str) -> str:
    """A page's Markdown with the commands where it asks for them by an empty element."""
    lines = "\n".join(f"$ {line}" for line in commands(repository))
    return markdown.replace('<div class="am-commands"></div>', f"```console\n{lines}\n```")


def commands(repository: str) -> list[str]:
    """The site at home and a card measured: with a clone first where the repository is known."""
    root = repository.strip().rstrip("/")
    name = re.sub(r"\.git$", "", root).rpartition("/")[2]
    clone = [f"git clone {root}", f"cd {name}"] if root else []
    return [*clone, "make serve", "make bench figures"]
