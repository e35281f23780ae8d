"""Benchmarks ask for names that Saccade has: some of them are seldom run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_imported_of_saccade_is_there(path):
    tree = ast.parse(path.read_text())
    asked = [
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("saccade")
        for alias in node.names
    ]
    found = [(name, __import__(module, fromlist=[name])) for module, name in asked]
    assert [name for name, module in found if not hasattr(module, name)] == []
