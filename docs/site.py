"""Hooks of mkdocs: pages lie in the site where they lie in the repository, as their links do.

A page that is added anywhere below docs/, or as the README of an example or a package, is in the
site and in its navigation without being listed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "packages/*/*.md")
BESIDE = (
    "LICENSE", "docs/*.css", "docs/**/*.svg", "docs/**/*.png", "examples/*/*.*", "packages/*/*.py",
)  # fmt: skip
"""What pages show or lead to."""
MOST_BYTES = 4 << 20
LINK = re.compile(r"""<[a-z][^>]*\s(?:href|src)=["']([^"']*)["']""")
FIRST = ("README.md", "docs/python.md", "docs/command-line.md", "docs/gpu.md", "docs/operators.md")
NOTES, EXAMPLES, PROJECT = "Notes on performance", "Examples and packages", "The project"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The repository's pages, and what they show, in place of the folder of documents alone.

    What the theme and plugins add stays.
    """
    kept = [file for file in files if file.src_dir != config.docs_dir]
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


def on_post_build(config: MkDocsConfig) -> None:
    """A warning, which `--strict` fails of, for each file that a page asks for and is not there."""
    for page, link in lost(Path(config.site_dir)):
        logging.getLogger("mkdocs.site").warning("%s leads to %s, which is not there", page, link)


def lost(site: Path) -> Iterator[tuple[str, str]]:
    """Pages of a built site, and what they lead to or show that is no file of it."""
    for page in sorted(site.rglob("*.html")):
        for link in dict.fromkeys(LINK.findall(page.read_text(encoding="utf-8"))):
            place = urlsplit(unescape(link))
            path = unquote(place.path)
            # The page for what is not found lies anywhere: its links begin at the site.
            start = site if path.startswith("/") else page.parent
            elsewhere = place.scheme or place.netloc
            if path and not elsewhere and not (start / path.lstrip("/")).is_file():
                yield page.relative_to(site).as_posix(), link
