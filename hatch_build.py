"""Where the project is published, for the package's metadata: no address stands in the tree.

It is `SACCADE_URL`, else what the checkout was cloned from. An unpacked source distribution keeps
the addresses that it was made with: hatchling reads them back, and asks only if there are none.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

HOSTED = re.compile(
    r"(?:https?|(?P<ssh>ssh|git))://(?:[^/]*@)?(?P<host>(?:[a-z0-9-]+\.)+[a-z]{2,})(?P<port>:\d+)?"
    r"/+(?P<path>~?\w[\w.-]*(?:/\w[\w.-]*)+)/*",
    re.ASCII | re.IGNORECASE,
)
PAGES = {
    "Homepage": "",
    "Documentation": "/blob/HEAD/README.md#read-on",
    "Source": "",
    "Issues": "/issues",
    "Changelog": "/blob/HEAD/CHANGELOG.md",
}


def published(remote: str) -> str | None:
    """The page of a hosted repository, from what git calls it; None for a folder."""
    whole = re.sub(r"^([^/:]+):(?!//)", r"ssh://\1/", remote.strip())
    if not (found := HOSTED.fullmatch(whole)):
        return None
    port = "" if found["ssh"] else found["port"] or ""
    return f"https://{found['host'].lower()}{port}/{found['path'].removesuffix('.git')}"


def address(root: Path) -> str | None:
    """That of the project in a folder. Raises ValueError if `SACCADE_URL` is none."""
    if named := os.environ.get("SACCADE_URL"):
        if not (url := published(named)):
            raise ValueError("SACCADE_URL is not the address of a hosted repository")
        return url
    if not (root / ".git").exists():  # git would answer for a repository around it
        return None
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        asked = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError:  # no git
        return None
    return published(asked.stdout)


class ProjectUrls(MetadataHookInterface):
    """Adds the project's addresses, if it has one."""

    def update(self, metadata: dict[str, Any]) -> None:
        if url := address(Path(self.root)):
            metadata["urls"] = {name: url + page for name, page in PAGES.items()}
