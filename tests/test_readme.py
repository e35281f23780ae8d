"""What the pages say is so: code runs, links lead somewhere, tables are complete."""

import ast
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import saccade
from saccade.cli._app import app
from saccade.options import Options
from saccade.testing.support_table import support_table

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [
    page
    for where in ("*.md", "docs/**/*.md", "examples/**/*.md", "packages/*/*.md")
    for page in ROOT.glob(where)
]
COMMANDS = (ROOT / "docs" / "command-line.md").read_text()
PYTHON = (ROOT / "docs" / "python.md").read_text()
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


RUNS = re.compile(r"<!-- runs in CI -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def command(name):
    """The shell command that the README marks, as one line."""
    (code,) = re.findall(rf"<!-- command:{name} -->\n```bash\n(.*?)```", README, re.DOTALL)
    return " ".join(code.replace("\\\n", " ").split())


def test_the_python_example_runs(tmp_path, monkeypatch, capsys):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    (code,) = RUNS.findall(README)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    with Image.open("examples/upscale/photo.png") as photo, Image.open("photo_2x.png") as upscaled:
        assert upscaled.size == (2 * photo.width, 2 * photo.height)
        plain = np.asarray(photo.convert("RGB").resize(upscaled.size, Image.Resampling.BICUBIC))
        difference = np.abs(np.asarray(upscaled, np.float64) - plain).mean()
    assert 0.5 < difference < 10  # of 255: much like bicubic, and not the same
    assert "floor" in capsys.readouterr().out


def test_the_operators_example_runs():
    pytest.importorskip("torch")
    (code,) = RUNS.findall((ROOT / "docs" / "operators.md").read_text())
    names = {}
    exec(compile(code, "operators.md", "exec"), names)
    assert names["features"].grad.abs().sum() > 0
    assert names["kept"].tolist() == [0, 1]


def test_the_readme_is_one_screen():
    """Text and code, that is: two images and a small table for each machine stand between."""
    lines = [line for line in README.splitlines() if line and not line.startswith(("|", "<!--"))]
    assert len(lines) < 50
    assert len([line for line in README.splitlines() if line.startswith("|")]) < 26
    (code,) = RUNS.findall(README)
    assert len([line for line in code.splitlines() if line and "import" not in line]) <= 10


FIGURE = re.compile(r"\b\d+(?:\.\d+)?(?:x|%| (?:ms|µs|s|MB|GB|GiB|MiB)\b)")


def test_all_figures_of_the_readme_are_generated():
    head, _, rest = README.partition("<!-- headline:begin -->")
    generated, _, tail = rest.partition("<!-- headline:end -->")
    assert FIGURE.search(generated)
    text = FENCE.sub("", head + tail)
    assert not FIGURE.findall(text)


def test_the_commands_set_up_everything_themselves():
    for name in ("upscale", "test"):
        steps = [shlex.split(step) for step in command(name).split("&&")]
        assert steps[0] == ["python3", "-m", "venv", ".venv"]
        assert steps[1][:2] == [".venv/bin/pip", "install"]
        assert all(step[0].startswith(".venv/bin/") for step in steps[1:])


def test_the_upscaling_command_works(tmp_path):
    arguments = shlex.split(command("upscale").split("&&")[-1])[1:]
    target = tmp_path / "photo_2x.png"
    arguments[arguments.index("--output") + 1] = str(target)
    arguments = [str(ROOT / a) if a.startswith("examples/") else a for a in arguments]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    with Image.open(target) as image:
        assert image.size == (512, 512)


def glance():
    """The lines of the page about the command line, comments gone."""
    lines = FENCE.search(COMMANDS).group(2).splitlines()
    return [shlex.split(line, comments=True) for line in lines]


def test_every_command_is_shown():
    shown = {words[1] for words in glance()}
    commands = {info.callback.__name__.replace("_", "-") for info in app.registered_commands}
    assert shown == commands | {group.name for group in app.registered_groups}


def test_every_option_of_compile_is_in_the_table():
    section = PYTHON.partition("## Options")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    taken = {name for name, p in inspect.signature(saccade.compile).parameters.items() if name}
    known = {f for f in Options.__dataclass_fields__ if f != "resolved_threads"}
    assert listed == known
    assert taken - {"source", "unknown"} <= known


def environment_variables():
    """Names of variables that the package reads by a literal name."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from re.findall(r"^SACCADE_\w+$", node.value)


def test_every_environment_variable_is_named():
    found = set(environment_variables())
    assert found == set(re.findall(r"SACCADE_\w+", PYTHON))
    assert len(found) <= 4  # the cache, how much of it, checks, what is said


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def anchors(page):
    """Anchors that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_table_of_operators_is_up_to_date():
    assert (ROOT / "docs" / "support.md").read_text() == support_table()


def test_the_notes_on_performance_list_all_of_their_pages():
    index = (ROOT / "docs" / "performance-notes.md").read_text()
    listed = re.findall(r"\]\(performance/([\w-]+\.md)\)[^|]*\|", index)
    assert {p.name for p in ROOT.glob("docs/performance/*.md")} == set(listed)


def test_ci_runs_the_commands_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "$(readme upscale)" in script
    assert "$(readme test)" in script
    # The README says how the tests are run; the emulated share of them is CI's own.
    # So is a few of them with other Pythons, and what only the packages for the site can run.
    own = ("\\$minor", "tests/test_site.py")
    lines = [
        line
        for line in script.splitlines()
        if "pytest" in line and not any(one in line for one in own)
    ]
    assert all("SACCADE_TEST_ARM" in line for line in lines)


def test_ci_tries_every_python_that_the_metadata_names():
    step = (
        (ROOT / ".ci" / "run").read_text().partition('step "other Pythons')[2].partition('\n"')[0]
    )
    tried = re.search(r"for minor in ([\d ]+);", step)[1].split()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r":: 3\.(\d+)", " ".join(project["classifiers"]))
    assert tried == named and f"3.{named[0]}" in project["requires-python"]
    tests = re.findall(r"tests/[\w/]+\.py", step)
    assert tests and all((ROOT / test).is_file() for test in tests)
    assert "Left out: there is no Python" in step


def executable(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def emulated_step(folder, tools):
    """What CI's step says on a machine that has these commands, its pytest being an echo."""
    executable(folder / "bin" / "python", f'exec "{sys.executable}" "$@"')
    executable(folder / "bin" / "pytest", 'echo "pytest ran, $SACCADE_TEST_ARM: $*"')
    for tool in tools:
        executable(folder / "tools" / tool, "exit 1")
    script = (ROOT / ".ci" / "run").read_text()
    (step,) = re.findall(r'^step "kernels on emulated Arm" ".*?[^\\]"$', script, re.M | re.S)
    bash = shutil.which("bash")
    done = subprocess.run(
        [bash, "-euc", f'bin={folder}/bin\nstep() {{ {bash} -euo pipefail -c "$2"; }}\n{step}'],
        check=False, capture_output=True, text=True,
        env=os.environ | {"PATH": str(folder / "tools")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


TOOLS = [*(f"aarch64-linux-gnu-{tool}" for tool in ("gcc", "ld", "objcopy")), "qemu-aarch64"]


def test_ci_runs_kernels_for_arm_where_there_is_an_emulator(tmp_path):
    assert emulated_step(tmp_path, TOOLS) == "pytest ran, 16: -n 2 tests/kernels\n"


@pytest.mark.parametrize("lacking", [TOOLS, TOOLS[:1], TOOLS[3:]], ids=" ".join)
def test_ci_says_in_one_line_what_the_emulator_lacks(tmp_path, lacking):
    told = emulated_step(tmp_path, [tool for tool in TOOLS if tool not in lacking])
    assert told.startswith(f"Left out: this machine lacks {' '.join(lacking)} (Debian: ")
    assert told.count("\n") == 1


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_files_that_pages_name_exist(page):
    for path in re.findall(
        r"`((?:src|tests|docs|kernels|passes|frontend)/[\w/.]+\.\w+)`", (ROOT / page).read_text()
    ):
        assert any((base / path).exists() for base in (ROOT, ROOT / "src" / "saccade")), path
