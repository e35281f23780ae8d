"""Files that commands write, figures as JSON, silence, completion, and memory that is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from saccade import memory
from saccade.cli._outputs import check_outputs, give_json
from saccade.cli._print import note, say, silenced
from saccade.errors import OptionError, OutOfMemoryError

TEXT = (
    '<ir_version: 8, opset_import: ["" : 18], producer_name: "tests", producer_version: "3"> '
    "g (float[1, 3, 8, 8] x) => (float[1, 4, 8, 8] y)"
    "{ a = Conv<pads=[1, 1, 1, 1]>(x, w)  y = Relu(a) }"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    model = onnx.parser.parse_model(TEXT)
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    file = tmp_path_factory.mktemp("outputs") / "m.onnx"
    onnx.save(model, file)
    return file


SHORT = ("--rounds", 1, "--seconds", 0)
COMMANDS = {
    "bench": ("bench", "MODEL", *SHORT),
    "profile": ("profile", "MODEL", "--repeat", 1),
    "inspect": ("inspect", "MODEL"),
    "inspect plan": ("inspect", "MODEL", "--plan"),
    "inspect reasons": ("inspect", "MODEL", "--reasons"),
    "inspect stages": ("inspect", "MODEL", "--stages"),
    "inspect assembly": ("inspect", "MODEL", "--assembly", "*"),
    "compare": ("compare", "MODEL", "--against", "reference"),
    "tune": ("tune", "MODEL", "--seconds", 0),
    "build": ("build", "MODEL", "--output", "BUNDLE"),
    "warm": ("warm", "MODEL"),
    "cache ls": ("cache", "ls"),
    "cache prune": ("cache", "prune", "--to", "1T"),
    "cache verify": ("cache", "verify"),
}
HOLDS = {
    "bench": ("results", "machine"), "profile": ("steps", "total_us"),
    "inspect": ("operators", "parameters", "run", "opsets", "producer"),
    "inspect plan": ("plan",), "inspect reasons": ("steps",), "inspect stages": ("stages",),
    "inspect assembly": ("assembly",), "compare": ("outputs", "ok"), "tune": ("left", "measured"),
    "build": ("bytes", "programs"), "warm": ("programs",), "cache ls": ("entries", "bytes"),
    "cache prune": ("deleted", "left"), "cache verify": ("problems",),
}  # fmt: skip


def words(command, path, tmp_path):
    places = {"MODEL": path, "BUNDLE": tmp_path / "m.saccade"}
    return [places.get(word, word) for word in COMMANDS[command]]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """One for all of these, in which whatever others broke is not found."""
    folder = tmp_path_factory.getbasetemp() / "outputs_cache"
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(folder))


@pytest.mark.parametrize("command", COMMANDS)
def test_figures_go_to_a_file_or_alone_to_standard_output(command, path, saccade_cli, tmp_path):
    arguments = words(command, path, tmp_path)
    printed = saccade_cli(*arguments, "--json", "-")
    assert printed.exit_code == 0, (printed.stderr, printed.exception)
    document = json.loads(printed.stdout)
    assert set(HOLDS[command]) <= document.keys()
    file = tmp_path / "figures.json"
    written = saccade_cli(*arguments, "--json", file)
    assert written.exit_code == 0, written.stderr
    assert written.stdout, "and people are told as always"
    assert json.loads(file.read_text()).keys() == document.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_quiet_says_nothing(command, path, saccade_cli, tmp_path):
    result = saccade_cli(*words(command, path, tmp_path), "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("command", COMMANDS)
def test_lines_fit_the_terminal(command, width, path, saccade_cli, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    result = saccade_cli(*words(command, path, tmp_path))
    assert result.exit_code == 0, result.stderr
    long = [line for line in result.stdout.splitlines() if len(line) > width]
    if command == "inspect assembly":  # code is as it is
        return
    if command == "bench" and width < 80:  # eighty is enough for figures of one engine
        return
    # A path is one word.
    assert [line for line in long if "/" not in line] == []


def test_quiet_leaves_errors_and_what_was_asked_for(path, saccade_cli, refused):
    assert "no such file" in refused("inspect", path.parent / "none.onnx", "-q")
    result = saccade_cli("inspect", path, "-q", "--json", "-")
    assert json.loads(result.stdout)["operators"] == {"Conv": 1, "Relu": 1}


def test_quiet_leaves_out_what_is_assumed(saccade_cli, tmp_path):
    text = TEXT.replace("float[1, 3, 8, 8] x", "float[N, 3, H, W] x")
    model = onnx.parser.parse_model(text.replace("Conv<pads=[1, 1, 1, 1]>(x, w)", "Relu(x)"))
    onnx.save(model, tmp_path / "open.onnx")
    loud = saccade_cli("run", tmp_path / "open.onnx")
    assert "assuming 1x3x224x224" in loud.stderr
    assert saccade_cli("run", tmp_path / "open.onnx", "-q").stderr == ""


def test_a_summary_as_figures(path, saccade_cli):
    document = json.loads(saccade_cli("inspect", path, "--json", "-").stdout)
    assert (document["parameters"], document["parameter_bytes"]) == (108, 432)
    assert document["producer"] == "tests 3" and document["opsets"] == {"ai.onnx": 18}
    assert document["run"]["shapes"] == {"x": [1, 3, 8, 8]}
    # Taps on padding are none: 22 of 24 along each axis. And a comparison for each result.
    assert document["run"]["flops"] == 2 * 3 * 4 * 22 * 22 + 4 * 8 * 8


def test_compare_says_infinity_as_null(path, saccade_cli, monkeypatch):
    from saccade.cli import _reference  # noqa: PLC0415

    wrong = {"reference": lambda *_: {"y": np.zeros((1, 2), np.float32)}}
    monkeypatch.setattr(_reference, "EXPECTATIONS", wrong)
    result = saccade_cli("compare", path, "--against", "reference", "--json", "-")
    assert result.exit_code == 1

    def refuse(name):
        raise AssertionError(name)

    document = json.loads(result.stdout, parse_constant=refuse)
    assert document["ok"] is False and document["outputs"][0]["relative_l2"] is None


OPTIONS = [
    ("bench", "--json"), ("profile", "--json"), ("profile", "--trace"), ("inspect", "--json"),
    ("compare", "--json"), ("tune", "--json"), ("tune", "--export-algorithms"), ("build", "--json"),
    ("warm", "--json"), ("cache ls", "--json"), ("cache prune", "--json"),
    ("cache verify", "--json"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_outputs_are_looked_at_before_any_work(
    command, option, path, refused, tmp_path, monkeypatch
):
    def work(*_arguments, **_options):
        raise AssertionError("it began")

    monkeypatch.setattr("saccade.compile", work)
    monkeypatch.setattr("saccade.cli._bench_session.run_bench", work)
    monkeypatch.setattr("saccade.caches.audit.existing_cache", work)
    arguments = words(command, path, tmp_path)
    missing = tmp_path / "none" / "x.json"
    for target, problem in ((missing, "there is no such folder"), (tmp_path, "this is a folder")):
        line = refused(*arguments, option, target)
        assert f"{option} {target}: " in line and problem in line


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_outputs_take_the_place_of_nothing_that_is_read(
    command, option, path, refused, tmp_path, monkeypatch
):
    if command.startswith("cache"):  # which reads no file
        return
    arguments = words(command, path, tmp_path)
    before = path.read_bytes()
    (tmp_path / "link.onnx").symlink_to(path)
    monkeypatch.chdir(path.parent)
    for target in (path, path.name, tmp_path / "link.onnx"):
        line = refused(*arguments, option, target)
        assert f"{option} {target}: this is the model itself" in line
    if command in ("profile", "compare", "tune"):
        (tmp_path / "x=1.npy").touch()
        for text in (tmp_path / "x=1.npy", f"x={tmp_path / 'x=1.npy'}"):
            line = refused(*arguments, "--input", text, option, tmp_path / "x=1.npy")
            assert "would take the place of what is read" in line
    else:
        (tmp_path / "tuned.json").touch()
        more = ("--import-algorithms", tmp_path / "tuned.json", option, tmp_path / "tuned.json")
        assert "would take the place of what is read" in refused(*arguments, *more)
    assert path.read_bytes() == before


def test_weights_beside_a_model_stay(path, tmp_path):
    model = onnx.load(path)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin",
              size_threshold=0)  # fmt: skip
    with pytest.raises(OptionError, match=r"w\.bin: this file holds the model's weights"):
        check_outputs(tmp_path / "m.onnx", json=tmp_path / "w.bin")
    (tmp_path / "other.bin").touch()
    check_outputs(tmp_path / "m.onnx", json=tmp_path / "other.bin")
    (tmp_path / "m.saccade").write_bytes(b"no ONNX file")
    check_outputs(tmp_path / "m.saccade", json=tmp_path / "other.bin")


def test_choices_may_take_the_place_of_those_before(path, refused, saccade_cli, tmp_path):
    file = tmp_path / "tuned.json"
    short = ("tune", path, "--seconds", 0)
    assert saccade_cli(*short, "--export-algorithms", file).exit_code == 0
    again = ("--import-algorithms", file, "--export-algorithms", file)
    assert saccade_cli(*short, *again).exit_code == 0
    assert "what is read" in refused(*short, "--import-algorithms", file, "--json", file)


@pytest.mark.parametrize("target", ["none/m.saccade", "."])
def test_so_is_the_file_of_a_bundle(target, path, refused, tmp_path):
    line = refused("build", path, "--output", tmp_path / target)
    assert "--output" in line and "folder" in line
    assert "this is the model itself" in refused("build", path, "--output", path)


def test_what_cannot_be_written(tmp_path, monkeypatch):
    check_outputs(json=tmp_path / "new.json", trace=None, output=Path("-"))
    assert list(tmp_path.iterdir()) == [], "trying leaves nothing"
    check_outputs(json=Path(os.devnull))
    with pytest.raises(OptionError, match=r"--b .*: --a is the same file"):
        check_outputs(a=tmp_path / "x", b=tmp_path / "x")
    with pytest.raises(OptionError, match="--json"):
        check_outputs(json=tmp_path / ("x" * 300) / "y")
    (tmp_path / "link").symlink_to(tmp_path / "gone" / "x")
    with pytest.raises(OptionError, match=r"there is no such folder as .*gone"):
        check_outputs(json=tmp_path / "link")

    def read_only(**_arguments):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("saccade.cli._outputs.TemporaryFile", read_only)
    with pytest.raises(OptionError, match="cannot be written to: Read-only file system"):
        check_outputs(export_algorithms=tmp_path / "x.json")


def test_silence_is_over_after_the_command(capsys):
    with silenced(True):
        say("unseen")
        note("unseen")
        give_json(Path("-"), {"seen": 1})
    say("seen")
    note("noted")
    captured = capsys.readouterr()
    assert captured.out == '{\n "seen": 1\n}\nseen\n' and captured.err == "noted\n"


MAIN = "from saccade.cli import main; main()"


def completed(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, errors="replace",
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("saccade in", {"inspect"}), ("saccade cache v", {"verify"}), ("saccade tune --exp", None),
        ("saccade run m.onnx --device c", {"cpu", "cuda"}),
        ("saccade bench m.onnx --precision b", {"bf16"}),
    ],
)  # fmt: skip
def test_completion_knows_commands_and_options(line, found):
    count = str(len(line.split()) - 1)
    result = completed(_SACCADE_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=count)
    assert set(result.stdout.split()) == (found or {"--export-algorithms"}), result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown_for_a_shell(shell):
    # Of shells that cannot be told from the processes around it, by name.
    result = completed("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert result.returncode == 0, result.stderr
    assert "_SACCADE_COMPLETE" in result.stdout


def test_completion_is_installed(tmp_path):
    result = completed(
        "--install-completion", "bash", HOME=str(tmp_path),
        _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    (script,) = (tmp_path / ".bash_completions").iterdir()
    assert script.name == "saccade.sh" and "_SACCADE_COMPLETE" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()


ENCODINGS = [
    {"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]  # fmt: skip


@pytest.mark.parametrize("environment", ENCODINGS, ids=lambda one: " ".join(one.values()))
@pytest.mark.parametrize("command", ["compare", "profile", "inspect reasons"])
def test_what_an_encoding_lacks_is_replaced(command, environment, path, tmp_path):
    result = completed(*map(str, words(command, path, tmp_path)), **environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert "?" in result.stdout or environment == ENCODINGS[0]


@pytest.mark.parametrize("stream", [1, 2])
def test_a_closed_stream_is_not_written_to(stream, path):
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", MAIN, *map(str, arguments)],
            preexec_fn=lambda: os.close(stream), capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert run("inspect", path).returncode == 0
    assert run("inspect", path.with_name("none.onnx")).returncode == 2
    figures = run("inspect", path, "--json", "-")
    if stream == 1:
        assert figures.returncode == 2
        assert figures.stderr == "saccade: error: --json -: standard output is closed\n"
    else:
        assert json.loads(figures.stdout)


LIMITED = """
import resource, sys
from saccade.cli import main
import numpy, saccade.engine, saccade.cli._feeds
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
main()
"""


@pytest.mark.parametrize(
    ("side", "says"), [(2000, "bytes of memory"), (40000, "Unable to allocate")]
)
def test_memory_that_does_not_suffice_is_one_line(side, says, tmp_path):
    """Of the engine's arena, and of the arrays that the command itself makes."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[1, 3, H, W] x) => (float[1, 1, H, W] y)'
        "{ a = Conv(x, w)  y = Conv(a, v) }"
    )
    for name, shape in (("w", (512, 3, 1, 1)), ("v", (1, 512, 1, 1))):
        weights = np.ones(shape, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, name))
    onnx.save(model, tmp_path / "wide.onnx")
    arguments = ["run", str(tmp_path / "wide.onnx"), "--shape", f"1x3x{side}x{side}"]
    result = subprocess.run(
        [sys.executable, "-c", LIMITED, *arguments, "--threads", "1", "--tile", "off"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 2, result.stderr[-2000:]
    (line,) = result.stderr.splitlines()
    assert line.startswith("saccade: error: ") and says in line
    assert " missing" in line or " are free" in line


def test_what_is_missing_is_what_is_not_free(monkeypatch):
    monkeypatch.setattr("saccade.errors.free_bytes", lambda: 3 << 30)
    assert str(OutOfMemoryError.of(4 << 30, 1 << 30)).endswith("; 2.0 GiB are missing")
    assert "missing" not in str(OutOfMemoryError.of(1 << 30, 1 << 30))
    monkeypatch.setattr("saccade.errors.free_bytes", lambda: None)
    assert "missing" not in str(OutOfMemoryError.of(4 << 30, 1 << 30))


def test_what_is_free_is_the_least_of_what_limits_leave(monkeypatch):
    free = memory.free_bytes()
    assert free is None or free >= 0
    monkeypatch.setattr(memory, "_system", lambda: 5 << 30)
    monkeypatch.setattr(memory, "_cgroup", lambda _files: 2 << 30)
    monkeypatch.setattr(memory, "_address_space", lambda: None)
    assert memory.free_bytes() == 2 << 30
    monkeypatch.setattr(memory, "_cgroup", lambda _files: -1)
    assert memory.free_bytes() == 0
