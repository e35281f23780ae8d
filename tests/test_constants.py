"""Numbers with a name say what they are: a comment on their line or above, or a text below.

In kernels, what is said of a time says where it comes from too.
"""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "saccade"
KERNELS = ("kernels/cpu", "kernels/cuda")
ROOMS = ("layout", "plan", "tuning", "backends", *KERNELS)
# What the name says whole.
PLAIN = {"_LOG2E", "_LN2", "_HALF_PI", "BASES", "_UNROLL"}

COMMENT = re.compile(r"# (?!fmt: )(.*)")
TIME = re.compile(r"\b(cycles?|microseconds?|µs|(?:share|times?) of the|times over)\b", re.I)
# A machine, or that it was none.
WHERE = re.compile(
    r"Zen [45]|Emerald Rapids|H[12]00|\bestimates?\b|not measured|\bcounted\b|\bby eye\b|\bguess",
    re.I,
)


def files(rooms=ROOMS):
    return sorted(path for name in rooms for path in (SOURCE / name).rglob("*.py"))


def is_number(node):
    """Whether a value is made of numbers alone."""
    inner = [one for one in ast.walk(node) if isinstance(one, ast.Constant)]
    plain = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.operator, ast.unaryop, ast.Load)
    return bool(inner) and all(
        isinstance(one, plain)
        and not (isinstance(one, ast.Constant) and not isinstance(one.value, int | float))
        for one in ast.walk(node)
    )


def comments(lines):
    return " ".join(found.group(1) for found in map(COMMENT.search, lines) if found)


def said(text):
    """Names of the numbers at the top of a module, and what is said of them.

    A comment above speaks for the lines that follow it without a gap.
    """
    lines, body, above, ended = text.splitlines(), ast.parse(text).body, "", -1
    for node, after in pairwise([*body, None]):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        first = node.lineno - 1
        while first and lines[first - 1].startswith("# "):
            first -= 1
        if found := comments(lines[first : node.lineno - 1]):
            above = found
        elif node.lineno != ended + 1:
            above = ""
        if above:
            ended = node.end_lineno
        if not is_number(node.value):
            continue
        below = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            below = str(after.value.value)
        here = comments(lines[node.lineno - 1 : node.end_lineno])
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {one.id for one in ast.walk(targets[0]) if isinstance(one, ast.Name)}
        yield sorted(names), " ".join((above, here, below)).strip()


def unexplained(text):
    """Names of the numbers that nothing is said of."""
    return [name for names, told in said(text) if not told for name in names if name not in PLAIN]


def from_nowhere(text):
    """Names of the times of which nobody says on what machine they were taken, or that on none."""
    return [
        name
        for names, told in said(text)
        if TIME.search(told) and not WHERE.search(told)
        for name in names
    ]


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_numbers_say_what_they_are(path):
    assert unexplained(path.read_text()) == []


@pytest.mark.parametrize("path", files(KERNELS), ids=lambda p: str(p.relative_to(SOURCE)))
def test_times_say_where_they_were_taken(path):
    assert from_nowhere(path.read_text()) == []


def test_the_search_for_silent_numbers_finds_them():
    lines = [
        "A = 1", "# Bytes.", "B = 2", "C = 2", "", "D = 2 << 20", "E, F = 1.5, -2", "G = 3  # µs",
        "H = 4", "'Bytes.'", "I = 'x'", "J = 5", "K: float = 5.0", "L: float = 5.0  # bytes",
        "M: float", "N = (1,", "     2)  # fmt: skip", "# fmt: off", "O = 1",
    ]  # fmt: skip
    assert unexplained("\n".join(lines)) == ["A", "D", "E", "F", "J", "K", "N", "O"]


def test_the_search_for_times_from_nowhere_finds_them():
    lines = [
        "A = 1.5  # cycles of a tile", "B = 2  # cycles of a tile (Zen 4)", "C: float = 3", "'µs.'",
        "# Microseconds of a step, on one H200.", "D = 0.5", "E = 0.5", "", "F, G = 1, 2  # cycle",
        "H = 4  # bytes", "I = 5  # microseconds (an estimate)", "# Share of the peak.", "J = 0.9",
    ]  # fmt: skip
    assert from_nowhere("\n".join(lines)) == ["A", "C", "F", "G", "J"]
