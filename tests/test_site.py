"""The site's hooks: which pages it has, and what it says of links that lead nowhere."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install -e '.[docs]'")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def navigated(entry):
    """Names of pages below an entry of the navigation."""
    if isinstance(entry, str):
        return [entry]
    entries = entry.values() if isinstance(entry, dict) else entry
    return [name for one in entries for name in navigated(one)]


def test_every_page_is_in_the_navigation_once(site):
    names = navigated(site.on_config(SimpleNamespace()).nav)
    pages = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert pages <= set(names) and len(names) == len(set(names))


def test_files_of_the_theme_stay_and_those_of_the_folder_are_named_anew(site):
    config = SimpleNamespace(docs_dir="/docs", site_dir="/site", use_directory_urls=False)
    theirs = SimpleNamespace(src_dir="/theme", src_uri="css/theme.css", dest_uri="css/theme.css")
    ours = SimpleNamespace(src_dir="/docs", src_uri="gpu.md", dest_uri="gpu.html")
    kept = [file.src_uri for file in site.on_files([theirs, ours], config)]
    assert "css/theme.css" in kept and "docs/gpu.md" in kept and "gpu.md" not in kept


def test_pages_that_ask_for_what_is_not_there_are_told(site, tmp_path, caplog):
    (tmp_path / "docs").mkdir()
    (tmp_path / "theme.css").touch()
    page = tmp_path / "docs" / "a.html"
    page.write_text(
        '<link rel="stylesheet" href="../theme.css?v=1"><a href="#x">x</a><a href="a.html#x">y</a>'
        '<a href="https://example.org/z">z</a><a class="w" href="/theme.css">w</a>'
    )
    assert list(site.lost(tmp_path)) == []
    page.write_text(
        '<script src="../theme.js"></script><img alt="" src="b&amp;c.png"><a href="/d">'
    )
    with caplog.at_level(logging.WARNING):
        site.on_post_build(SimpleNamespace(site_dir=str(tmp_path)))
    assert caplog.messages == [
        f"docs/a.html leads to {link}, which is not there"
        for link in ("../theme.js", "b&amp;c.png", "/d")
    ]
