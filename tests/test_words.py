"""One name for one class, and one word, the field's, for one thing."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "saccade"
FILES = sorted(SOURCE.rglob("*.py"))

# Words of our own that gave way -> what the field says.
GONE = {
    r"pictures?": "image, or feature map for a value in a network",
    r"second caches?": "L2 cache",
    r"first caches?": "L1 cache",
    r"last caches?": "last-level cache",
    r"turned": "transposed",
    r"nobody's value": "an eliminated intermediate",
    r"axe?i?s that (?:go|goes)": "reduced axes",
    r"axe?i?s that (?:stay|stays)": "kept axes",
    r"(?<!in )flights?": "execution context",
    r"filling": "replay",
    r"nursery|nurseries": "fork server",
    r"(?<!\.)get ready": "preload",
    r"shared? out": "divide, distribute",
    r"spares": "generic configs",
    r"one way\b(?= ?\()": "single_variant",
}


def classes(root):
    """Files that define a class, by its name, wherever in them."""
    found = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path.relative_to(root).as_posix())
    return found


def gone(text):
    """Words that are gone and still in a text, as parts of names as well."""
    text = re.sub(r"\s*\n\s*(?:#\s*)?", " ", text)
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ").lower()
    return {
        found.group(): word
        for old, word in GONE.items()
        for found in re.finditer(rf"(?<![a-z])(?:{old})(?![a-z])", text)
    }


def test_one_name_is_one_class():
    twice = {name: where for name, where in classes(SOURCE).items() if len(where) > 1}
    assert twice == {}


def test_a_name_of_two_classes_is_found(tmp_path):
    (tmp_path / "one.py").write_text("class Plan: ...\nclass Alone: ...")
    (tmp_path / "two.py").write_text("def f():\n    class Plan: ...")
    assert classes(tmp_path) == {"Plan": ["one.py", "two.py"], "Alone": ["one.py"]}


def test_words():
    found = {path.relative_to(SOURCE).as_posix(): gone(path.read_text()) for path in FILES}
    assert len(found) > 100
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "text",
    [
        "class TurnedPlan: ...",
        "_PICTURES = 3",
        "a picture's rows",
        "# half of the second\n    # cache",
        "def test_pictures_beyond(): ...",
        "class _Flight: ...",
        "the axis that goes",
        "is nobody's\n    value",
        "GET_READY = 1",
        "one_way(launch, cost)",
    ],
)
def test_a_word_that_is_gone_is_found(text):
    assert gone(text)


@pytest.mark.parametrize(
    "text", ["returned", "runs in\n# flight", "L2 cache", "the one way to do it"]
)
def test_other_words_stay(text):
    assert not gone(text)
