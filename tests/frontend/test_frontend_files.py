"""Only regular files are read, nothing blocks, and what was checked is what is mapped."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from frontend_models import text_model
from onnx import TensorProto

from saccade import frontend
from saccade.errors import ModelError
from saccade.frontend import external, files

CALLS: list[Callable[[Path], object]] = [
    frontend.digest,
    frontend.load,
    lambda path: frontend.load(path, mapped=True),
]
WITHIN = 60  # seconds, after which a process counts as stuck


def _model(folder: Path, location: str) -> Path:
    """A model whose weights, 432 bytes of ones, are to lie there."""
    model = text_model("a = Conv(x, w) y = Relu(a)", weights={"w": np.ones((4, 3, 3, 3), "f4")})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    onnx.save_model(model, path)
    return path


def _weights(path: Path, value: float = 1.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.full(108, value, np.float32).tobytes())


def _said(path: Path) -> list[str]:
    """What each way to read a model says, in a process that may not get stuck."""
    code = (
        "import sys; from pathlib import Path; from saccade import frontend\n"
        "from saccade.errors import ModelError\n"
        "path = Path(sys.argv[1])\n"
        "for call in (frontend.digest, frontend.load, lambda p: frontend.load(p, mapped=True)):\n"
        "    try:\n        call(path)\n        print('read')\n"
        "    except ModelError as error:\n        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.onnx")
    said = _said(tmp_path / "model.onnx")
    assert len(said) == 3 and all(line.endswith("a pipe, not a regular file") for line in said)


def test_a_device_is_no_model() -> None:
    said = _said(Path("/dev/zero"))
    assert said == ["/dev/zero: a device, not a regular file"] * 3


@pytest.mark.parametrize("call", CALLS)
def test_a_folder_is_no_model(call: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a folder, not a regular file"):
        call(tmp_path)


@pytest.mark.parametrize("call", CALLS)
def test_a_missing_file_is_no_model(call: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name in ("missing.onnx", "file/inside.onnx", "no/folder.onnx"):
        with pytest.raises(ModelError, match="there is no such file"):
            call(tmp_path / name)


@pytest.mark.parametrize("call", CALLS)
def test_a_socket_is_no_model(call: Callable[[Path], object], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(tmp_path / "s"))
        with pytest.raises(ModelError):
            call(tmp_path / "s")


def test_a_linked_model_is_followed(tmp_path: Path) -> None:
    path = _model(tmp_path / "own", "weights.bin")
    _weights(tmp_path / "own" / "weights.bin")
    (tmp_path / "own" / "link.onnx").symlink_to(path)
    assert frontend.load(tmp_path / "own" / "link.onnx").constants


def test_a_pipe_is_no_external_data(tmp_path: Path) -> None:
    path = _model(tmp_path, "weights.bin")
    os.mkfifo(tmp_path / "weights.bin")
    said = _said(path)
    assert len(said) == 3 and all(line.endswith("a pipe, not a regular file") for line in said)


@pytest.mark.parametrize("call", CALLS)
def test_a_hard_link_is_no_external_data(call: Callable[[Path], object], tmp_path: Path) -> None:
    path = _model(tmp_path / "model", "weights.bin")
    _weights(tmp_path / "secret")
    os.link(tmp_path / "secret", tmp_path / "model" / "weights.bin")
    with pytest.raises(ModelError, match=r"hard links.*put a copy of it beside the model"):
        call(path)
    (tmp_path / "secret").unlink()  # now it is the only name
    assert call(path)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("linked", ["file", "folder", "dangling"])
def test_a_symbolic_link_is_no_external_data(
    linked: str, call: Callable[[Path], object], tmp_path: Path
) -> None:
    _weights(tmp_path / "secret" / "weights.bin")
    path = _model(tmp_path / "model", "inner/weights.bin")
    inner = tmp_path / "model" / "inner"
    if linked == "folder":
        inner.symlink_to(tmp_path / "secret")
    else:
        inner.mkdir()
        target = "weights.bin" if linked == "file" else "missing"
        (inner / "weights.bin").symlink_to(tmp_path / "secret" / target)
    with pytest.raises(ModelError, match="links are not followed; put a copy"):
        call(path)


@pytest.mark.parametrize("location", ["weights.bin", "./weights.bin", "a/b/weights.bin"])
def test_files_in_the_folder_are_read(location: str, tmp_path: Path) -> None:
    path = _model(tmp_path, location)
    _weights(tmp_path / location, 3.0)
    assert frontend.digest(path)
    graph = frontend.load(path)
    (array,) = (a for a in graph.constants.values() if a.ndim == 4)
    np.testing.assert_array_equal(array, 3)


def test_a_folder_that_is_a_link_itself_is_the_models_own(tmp_path: Path) -> None:
    _model(tmp_path / "real", "weights.bin")
    _weights(tmp_path / "real" / "weights.bin")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert frontend.load(tmp_path / "link" / "model.onnx").constants


def test_what_was_checked_is_what_is_mapped(tmp_path: Path) -> None:
    """A file that takes the name of the checked one is not looked at."""
    path = _model(tmp_path, "weights.bin")
    _weights(tmp_path / "weights.bin", 1.0)
    tensor = onnx.load(path, load_external_data=False).graph.initializer[0]
    _, raw = external.Store(tmp_path).find(tensor, 432)
    _weights(tmp_path / "other.bin", 2.0)
    (tmp_path / "other.bin").replace(tmp_path / "weights.bin")
    np.testing.assert_array_equal(raw.view(np.float32), 1.0)


def test_each_file_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _weights(tmp_path / "weights.bin")
    tensor = onnx.load(_model(tmp_path, "weights.bin"), load_external_data=False).graph.initializer[
        0
    ]
    opened = []
    inside = files.open_inside
    monkeypatch.setattr(external, "open_inside", lambda *args: opened.append(args) or inside(*args))
    store = external.Store(tmp_path)
    for _ in range(3):
        store.find(tensor, 432)
    assert len(opened) == 1


def test_descriptors_are_closed(tmp_path: Path) -> None:
    path = _model(tmp_path / "model", "a/weights.bin")
    _weights(tmp_path / "model" / "a" / "weights.bin")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for location in ("a/weights.bin", "a", "a/missing", "missing/a", "../secret"):
        path = _model(tmp_path / "model", location)
        for call in CALLS:
            try:
                call(path)
            except ModelError:
                assert location != "a/weights.bin"
    assert len(list(Path("/proc/self/fd").iterdir())) == before
