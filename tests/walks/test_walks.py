"""The walks of CONTRIBUTING.md quote their toys, and do what they say."""

import pytest
from newcomer import ROOT, TOYS, blocks, patched, toy, toys

WALKS = ["Add an operator", "Add a pass", "Add a kernel", "Add a device"]


@pytest.mark.parametrize("title", WALKS)
def test_what_is_quoted_stands_in_the_toys(title):
    quoted = [block for block in blocks(title) if block.language == "python"]
    assert quoted
    for block in quoted:
        assert f"\n{block.body}" in f"\n{toy(block.path).read_text()}", block.path


def test_every_toy_is_quoted():
    named = {path for title in WALKS for path in toys(title)}
    there = {str(p.relative_to(TOYS)) for p in TOYS.rglob("*.py")}
    assert there <= named
    assert not [path for path in named if (ROOT / path).exists()]


@pytest.mark.parametrize("title", WALKS)
def test_every_walk_registers_something_and_runs_something(title):
    assert {"python", "diff", "bash"} == {block.language for block in blocks(title)}


def test_lines_are_added_where_the_page_says():
    assert patched("a\nb\nc\n", " b\n+d\n") == "a\nb\nd\nc\n"
    assert patched("a\nb\nc\n", "+d\n a\n-b\n") == "d\na\nc\n"
    for text, hunk in (("a\nb\n", " c\n+d\n"), ("a\na\n", " a\n+d\n"), ("ba\n", " a\n+d\n")):
        with pytest.raises(AssertionError, match="not there once"):
            patched(text, hunk)
