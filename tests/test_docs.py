"""What the pages of docs/ say is so: blocks run, or are looked at; the site is whole."""

import contextlib
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from saccade.cli._app import app

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BESIDE = sorted([*(ROOT / "examples").rglob("*.md"), *(ROOT / "packages").glob("*/*.md")])
FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"<!-- (runs|parsed) in CI -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNING = [page for page in PAGES if "<!-- runs in CI -->" in page.read_text()]
PARSED = [page for page in PAGES if "<!-- parsed in CI -->" in page.read_text()]
INSTRUCTIONS = (
    "ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL RUN USER VOLUME WORKDIR"
)


def blocks(page, how):
    return [(kind, code) for mark, kind, code in BLOCK.findall(page.read_text()) if mark == how]


def name(page):
    return str(page.relative_to(ROOT))


def script(page):
    """All blocks of a page as one program: Python's share their names, as a reader's do."""
    parts = ["import subprocess"]
    for kind, code in blocks(page, "runs"):
        assert kind in ("python", "bash"), kind
        shell = f"subprocess.run(['bash', '-euo', 'pipefail', '-c', {code!r}], check=True)"
        parts.append(shell if kind == "bash" else code)
    return "\n".join(parts)


@pytest.fixture
def reader(tmp_path):
    """A folder with the examples, and an environment with `saccade` and `python` as installed."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = tmp_path / "bin"
    commands.mkdir()
    start = "from saccade.cli import main; main()"
    for command, more in (("saccade", ["-c", start]), ("python", [])):
        line = shlex.join([sys.executable, *more])
        (commands / command).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        (commands / command).chmod(0o755)
    path = os.pathsep.join((str(commands), os.environ["PATH"]))
    source = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    cache = str(tmp_path / "cache")
    return {**os.environ, "PATH": path, "PYTHONPATH": source, "SACCADE_CACHE_DIR": cache}


@pytest.mark.parametrize("page", RUNNING, ids=name)
def test_blocks_run(page, reader, tmp_path):
    if "import torch" in script(page):
        pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script(page)], cwd=tmp_path, env=reader,
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_block_that_fails_is_seen(reader, tmp_path):
    page = tmp_path / "page.md"
    for kind, code in (("bash", "false\ntrue"), ("python", "raise SystemExit(3)")):
        page.write_text(f"<!-- runs in CI -->\n```{kind}\n{code}\n```\n")
        done = subprocess.run([sys.executable, "-c", script(page)], env=reader, check=False,
                              capture_output=True)  # fmt: skip
        assert done.returncode != 0


def test_blocks_about_docker_are_well_formed():
    assert PARSED
    for page in PARSED:
        for kind, code in blocks(page, "parsed"):
            assert kind in ("dockerfile", "bash"), kind
            for line in filter(None, code.splitlines() if kind == "dockerfile" else ()):
                assert line.split()[0] in INSTRUCTIONS, line


def command_lines():
    """`saccade …` as pages have it: lines of their blocks, and words within their text."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES, *BESIDE):
        text = page.read_text()
        blocks = "".join(FENCE.findall(text)).replace("\\\n", " ")
        found = re.findall(
            r"(?:^|&&|;|RUN) *(?:\.venv/bin/)?(saccade [^&;\n]*)", blocks, re.MULTILINE
        )
        for list_ in re.findall(r'CMD \["(saccade".*)\]', blocks):
            found.append(" ".join(re.findall(r'([^", ]+)"', list_)))
        yield from found
        yield from re.findall(r"`(saccade [^`\n]*)`", FENCE.sub("", text))


LINES = sorted(set(command_lines()))
COMMANDS = get_command(app)


def command_of(words):
    """The command that a line is about, and the words behind it."""
    command, rest = COMMANDS, words[1:]
    while rest and rest[0] in getattr(command, "commands", ()):
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


def unknown_options(line):
    """Those of a line, its comment too, that its command does not have."""
    command, _ = command_of(shlex.split(line, comments=True))
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    named = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", line))
    return named - known - {"--help", "-h"}


@pytest.mark.parametrize("line", LINES)
def test_options_of_commands_exist(line):
    words = shlex.split(line, comments=True)
    command, rest = command_of(words)
    assert command is not COMMANDS or rest[0] == "COMMAND" or rest[0].startswith("--"), line
    assert unknown_options(line) == set()


def refused(line):
    """What a command says in a folder without the file, at which it ends: no error, if that."""
    words = shlex.split(line.replace("…", "1x3x224x224"), comments=True)
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 2, result.output
    return result.output.removeprefix(f"saccade: error: {command_of(words)[1][0]}: no such file\n")


def names_a_model(line):
    command, rest = command_of(shlex.split(line, comments=True))
    return (
        bool(rest) and not rest[0].startswith("-") and "model" in {p.name for p in command.params}
    )


@pytest.mark.parametrize("line", list(filter(names_a_model, LINES)))
def test_commands_are_refused_for_nothing_but_the_model_that_is_not_there(
    line, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert refused(line) == ""


def test_commands_that_would_be_refused_are_seen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert unknown_options("saccade run MODEL --shapes 1x3  # or --tiles") == {
        "--shapes",
        "--tiles",
    }
    assert "choose one of" in refused("saccade inspect MODEL --plan --shape … --reasons")
    assert "not one of" in refused("saccade run MODEL --preprocess imagenets")


def documented(path):
    """What a directive of the page about the API shows: a module's public names, or one thing."""
    with contextlib.suppress(ModuleNotFoundError):
        module = importlib.import_module(path)
        return [getattr(module, name) for name in module.__all__]
    where, _, name = path.rpartition(".")
    return [getattr(importlib.import_module(where), name)]


@pytest.mark.parametrize("package", ["saccade", "saccade.ops", "saccade.vision"])
def test_the_api_has_every_public_name(package):
    if package == "saccade.ops":
        pytest.importorskip("torch")
    module = importlib.import_module(package)
    text = (ROOT / "docs" / "api.md").read_text()
    shown = []
    for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE):
        within = [p for p in ("saccade.ops", "saccade.vision") if path.startswith(f"{p}.")]
        if (within or ["saccade"]) == [package]:
            shown += documented(path)
    missing = [name for name in module.__all__ if getattr(module, name) not in shown]
    assert set(missing) <= {"__version__"}


def test_what_looks_like_a_mark_is_one():
    for page in PAGES:
        text = page.read_text()
        marks = re.findall(r"^<!-- (?:runs|parsed) in CI.*$", text, re.MULTILINE)
        assert len(marks) == len(BLOCK.findall(text)), page
