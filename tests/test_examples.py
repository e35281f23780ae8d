"""Every example has a page with an image, a script, a row in the index and a step of CI."""

import ast
import re
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PHOTOS = EXAMPLES / "photos"
FOLDERS = sorted({page.parent for page in EXAMPLES.glob("*/README.md")} - {PHOTOS})
SCRIPTS = sorted(EXAMPLES.glob("*/*.py"))
IMAGE = re.compile(r"!\[([^\]]+)\]\(([^)]+)\)")
MOST_BYTES = 300_000

named = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def test_all_examples_are_seen():
    assert {path.parent for path in SCRIPTS} == {*FOLDERS, PHOTOS}
    assert len(FOLDERS) >= 8


@named
def test_a_page_shows_an_image_and_describes_it(folder):
    shown = IMAGE.findall((folder / "README.md").read_text())
    assert shown
    for words, file in shown:
        assert len(words.split()) >= 5, words
        assert (folder / file).stat().st_size < MOST_BYTES
        with Image.open(folder / file) as image:
            assert min(image.size) >= 200


@named
def test_the_index_leads_to_each_example(folder):
    assert f"| [{folder.name}]({folder.name}/README.md) |" in (EXAMPLES / "README.md").read_text()


@named
def test_ci_runs_each_example(folder):
    steps = re.findall(r"bin/python (examples/\S+\.py)", (ROOT / ".ci" / "run").read_text())
    assert any(Path(step).parent.name == folder.name for step in steps)
    assert all((ROOT / step).is_file() for step in steps)


@named
def test_a_page_names_scripts_that_exist_with_options_that_they_have(folder):
    fences = re.findall(r"^```\w*\n(.*?)^```$", (folder / "README.md").read_text(), re.M | re.S)
    commands = re.findall(r"python (examples/\S+\.py)((?: \S+)*)", "\n".join(fences))
    assert commands
    for script, arguments in commands:
        source = (ROOT / script).read_text()
        for option in re.findall(r"--[a-z-]+", arguments):
            assert f'"{option}"' in source, (script, option)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_scripts_are_short_typed_and_say_what_they_do(path):
    text = path.read_text()
    assert text.count("\n") <= 250
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert all(function.returns is not None for function in functions)
    if 'if __name__ == "__main__":' in text:
        assert "main" in {function.name for function in functions}
