"""Hooks of mkdocs: pages lie in the site where they lie in the repository, as their links do.

A page that is added anywhere below docs/, or as the README of an example or a package, is in the
site and in its navigation without being listed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "packages/*/*.md")
BESIDE = ("LICENSE", "docs/**/*.svg", "docs/**/*.png", "examples/*/*.*", "packages/*/*.py")
"""What pages show or lead to."""
MOST_BYTES = 4 << 20
FIRST = ("README.md", "docs/python.md", "docs/command-line.md", "docs/gpu.md", "docs/operators.md")
NOTES, EXAMPLES, PROJECT = "Notes on performance", "Examples and packages", "The project"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The repository's pages, and what they show, in place of the folder of documents alone."""
    kept = [file for file in files if file.src_uri.startswith("assets/")]
    paths = {path for pattern in (*PAGES, *BESIDE) for path in ROOT.glob(pattern)}
    for path in sorted(path for path in paths if path.is_file()):
        if path.stat().st_size <= MOST_BYTES and "__pycache__" not in path.parts:
            name = path.relative_to(ROOT).as_posix()
            kept.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return Files(kept)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Navigation: how to use it first, the rest by the names of the pages."""
    found = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    names = sorted(path.relative_to(ROOT).as_posix() for path in found)
    groups: dict[str, list[Any]] = {NOTES: [], EXAMPLES: [], PROJECT: []}
    pages: list[Any] = [*FIRST]
    for name in names:
        if name in FIRST:
            continue
        folder = name.rpartition("/")[0]
        if folder == "docs":
            pages.append(name)
        else:
            known = {"docs/performance": NOTES, "": PROJECT}
            groups[known.get(folder, EXAMPLES)].append(name)
    config.nav = [*pages, *({title: group} for title, group in groups.items() if group)]
    return config
