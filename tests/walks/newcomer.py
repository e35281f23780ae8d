"""Does what the walks of CONTRIBUTING.md say, in a copy of the tree.

A walk is a section. Its blocks of code are what a newcomer does, in order:

    python   an excerpt of a new file, whose path is the first line; the whole of it is a toy
    diff     lines to add to files that are there
    bash     what to run then, with the virtual environment's commands
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOYS = Path(__file__).parent / "toys"
ELSEWHERE = {"src/saccade/backends/null/device.py": ROOT / "tests" / "backends" / "null_device.py"}
"""Toys that other tests have as well."""
PAGE = ROOT / "CONTRIBUTING.md"
FENCE = re.compile(r"^( *)```(python|diff|bash)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
COPIED = ("src", "tests", "docs", "CONTRIBUTING.md", "README.md", "pyproject.toml")


@dataclass(frozen=True)
class Block:
    """Attributes: language; code, without the indent of the list that it stands in."""

    language: str
    code: str

    @property
    def path(self):
        """The file that its first line names."""
        return self.code.partition("\n")[0].removeprefix("# ").removeprefix("--- ")

    @property
    def body(self):
        return self.code.partition("\n")[2]


def blocks(title):
    """The blocks of a section, in order."""
    _, found, rest = PAGE.read_text().partition(f"\n## {title}\n")
    assert found, f"CONTRIBUTING.md has no section {title!r}"
    section = rest.partition("\n## ")[0]
    return [Block(kind, textwrap.dedent(code)) for _, kind, code in FENCE.findall(section)]


def toy(path):
    """The whole of a file that a walk adds to the tree at this path."""
    return ELSEWHERE.get(path, TOYS / path)


def toys(title):
    """Files that a section's walk adds, by their paths in the tree: those that it quotes."""
    return dict.fromkeys(b.path for b in blocks(title) if b.language == "python")


def patched(text, hunk):
    """A file with the lines that a hunk adds; what stands around them is there once."""
    lines = hunk.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[:1] in " -")
    after = "".join(line[1:] for line in lines if line[:1] in " +")
    places = [m.start() for m in re.finditer(f"^(?={re.escape(before)})", text, re.MULTILINE)]
    assert len(places) == 1, f"not there once:\n{before}"
    return text[: places[0]] + after + text[places[0] + len(before) :]


class Tree:
    """A copy of the tree, to add things to."""

    def __init__(self, folder):
        self.folder, self.cache = folder / "tree", folder / "cache"
        left_out = shutil.ignore_patterns("walks", "__pycache__", "models", "attack")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, self.folder / name, ignore=left_out)
            else:
                shutil.copy2(ROOT / name, self.folder / name)
        self._command("python", "")
        self._command("pytest", "-m pytest -p no:cacheprovider")
        self._command("saccade", '-c "from saccade.cli import main; main()"')

    def _command(self, name, module):
        path = self.folder / ".venv" / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        path.chmod(0o755)

    def walk(self, title):
        """Do all that a section says; what it runs must pass."""
        self.add(title)
        for block in blocks(title):
            if block.language == "bash":
                self.run("bash", "-euc", block.code)

    def add(self, title):
        """Write the files and the lines of a section."""
        for path in toys(title):
            folder = (self.folder / path).parent
            if not folder.exists():
                folder.mkdir()
                if path.startswith("src/"):
                    (folder / "__init__.py").touch()
            shutil.copy(toy(path), self.folder / path)
        for block in blocks(title):
            if block.language == "diff":
                target = self.folder / block.path
                for hunk in re.split(r"^@@\n", block.body, flags=re.MULTILINE):
                    target.write_text(patched(target.read_text(), hunk))

    def run(self, *command):
        """Standard output of a command in the tree; fails as it does."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "SACCADE_"))}
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False,
            env={
                **kept,
                "PYTHONPATH": str(self.folder / "src"),
                "SACCADE_CACHE_DIR": str(self.cache),
            },
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def python(self, code, *arguments):
        return self.run(sys.executable, "-c", code, *arguments)
