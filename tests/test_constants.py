"""Numbers with a name say what they are: a comment on their line or above, or a text below."""

import ast
from itertools import pairwise
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "saccade"
ROOMS = ("layout", "plan", "tuning", "backends")
# What the name says whole.
PLAIN = {"_LOG2E", "_LN2", "_HALF_PI", "BASES"}


def files():
    return sorted(path for name in ROOMS for path in (SOURCE / name).rglob("*.py"))


def is_number(node):
    """Whether a value is made of numbers alone."""
    inner = [one for one in ast.walk(node) if isinstance(one, ast.Constant)]
    plain = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.operator, ast.unaryop, ast.Load)
    return bool(inner) and all(
        isinstance(one, plain)
        and not (isinstance(one, ast.Constant) and not isinstance(one.value, int | float))
        for one in ast.walk(node)
    )


def unexplained(text):
    """Names of the numbers at the top of a module that nothing is said of.

    A comment above speaks for the lines that follow it without a gap.
    """
    lines, body, found, above = text.splitlines(), ast.parse(text).body, [], -1
    for node, after in pairwise([*body, None]):
        if not isinstance(node, ast.Assign):
            continue
        first = lines[node.lineno - 2] if node.lineno > 1 else ""
        if first.startswith("#") or node.lineno == above + 1:
            above = node.end_lineno
            continue
        if not is_number(node.value):
            continue
        names = {one.id for one in ast.walk(node.targets[0]) if isinstance(one, ast.Name)}
        told = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        here = lines[node.lineno - 1 : node.end_lineno]
        if not (told or names & PLAIN or any("# " in line for line in here)):
            found += sorted(names)
    return found


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_numbers_say_what_they_are(path):
    assert unexplained(path.read_text()) == []


def test_the_search_for_silent_numbers_finds_them():
    lines = [
        "A = 1", "# Bytes.", "B = 2", "C = 2", "", "D = 2 << 20", "E, F = 1.5, -2", "G = 3  # µs",
        "H = 4", "'Bytes.'", "I = 'x'", "J = 5",
    ]  # fmt: skip
    assert unexplained("\n".join(lines)) == ["A", "D", "E", "F", "J"]
