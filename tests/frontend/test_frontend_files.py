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
import onnx_ir
import pytest
from frontend_models import text_model
from onnx import TensorProto

from saccade.errors import ModelError
from saccade.frontend import onnx as frontend
from saccade.frontend.onnx import external, files

CALLS: list[Callable[[Path], object]] = [
    frontend.digest,
    frontend.load,
    lambda path: frontend.load(path, mapped=True),
]
EXTERNAL_CALLS = [
    *CALLS,
    lambda path: frontend.load(onnx_ir.load(path)),
    lambda path: frontend.load(_in_attribute(onnx_ir.load(path))),
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


def _in_attribute(model: onnx_ir.Model) -> onnx_ir.Model:
    """The weights are a constant's instead of the graph's."""
    weights = model.graph.initializers.pop("w")
    node = onnx_ir.node("Constant", [], {"value": weights.const_value})
    weights.replace_all_uses_with(node.outputs[0])
    model.graph.insert_before(model.graph[0], node)
    return model


def _weights(path: Path, value: float = 1.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.full(108, value, np.float32).tobytes())


def _said(path: Path) -> list[str]:
    """What each way to read a model says, in a process that may not get stuck."""
    code = (
        "import sys; from pathlib import Path; from saccade.frontend import onnx as frontend\n"
        "from saccade import compile\n"
        "from saccade.errors import ModelError\n"
        "path = Path(sys.argv[1])\n"
        "mapped = lambda p: frontend.load(p, mapped=True)\n"
        "for call in (frontend.digest, frontend.load, mapped, compile):\n"
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
    assert len(said) == 4 and all(line.endswith("a pipe, not a regular file") for line in said)


def test_a_device_is_no_model() -> None:
    said = _said(Path("/dev/zero"))
    assert said == ["/dev/zero: a device, not a regular file"] * 4


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
    assert len(said) == 4 and all(line.endswith("a pipe, not a regular file") for line in said)


@pytest.mark.parametrize("call", EXTERNAL_CALLS)
def test_a_hard_link_is_no_external_data(call: Callable[[Path], object], tmp_path: Path) -> None:
    path = _model(tmp_path / "model", "weights.bin")
    _weights(tmp_path / "secret")
    os.link(tmp_path / "secret", tmp_path / "model" / "weights.bin")
    with pytest.raises(ModelError, match=r"hard links.*put a copy of it beside the model"):
        call(path)
    (tmp_path / "secret").unlink()  # now it is the only name
    assert call(path)


@pytest.mark.parametrize("call", EXTERNAL_CALLS)
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


OF_IR = """
import sys, onnx_ir
from saccade.frontend import onnx as frontend
from saccade.errors import ModelError
model = onnx_ir.load(sys.argv[1])
try:
    print(len(frontend.load(model).constants))
except ModelError as error:
    print(error)
"""


@pytest.mark.parametrize("found", ["a pipe", "a device", "a folder"])
def test_nor_is_that_of_a_model_in_memory(found: str, tmp_path: Path) -> None:
    """In a process that may not get stuck."""
    location = "null" if found == "a device" else "weights.bin"
    path = _model(tmp_path / "model", location)
    if found == "a pipe":
        os.mkfifo(tmp_path / "model" / location)
    elif found == "a folder":
        (tmp_path / "model" / location).mkdir()
    script = OF_IR
    if found == "a device":
        change = "model.graph.initializers['w'].const_value.base_dir = '/dev'"
        script = OF_IR.replace("try:", f"{change}\ntry:")
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip
    assert done.stdout.endswith(f"{found}, not a regular file\n"), done.stderr


@pytest.mark.parametrize("location", ["../secret", "{folder}/secret"])
@pytest.mark.parametrize("folder", ["{folder}/model", ""])
def test_a_model_in_memory_reads_nothing_elsewhere(
    folder: str, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path / "model")
    _weights(tmp_path / "secret")
    model = onnx_ir.load(_model(tmp_path / "model", location.format(folder=tmp_path)))
    model.graph.initializers["w"].const_value.base_dir = folder.format(folder=tmp_path)
    said = "only files in the model's own folder are read" if folder else "give the model as a path"
    with pytest.raises(ModelError, match=said):
        frontend.load(model)


def test_external_data_of_a_model_in_memory(tmp_path: Path) -> None:
    path = _model(tmp_path, "weights.bin")
    _weights(tmp_path / "weights.bin", 3.0)
    given = onnx_ir.load(path)
    for model in (given, _in_attribute(onnx_ir.load(path))):
        (array,) = (a for a in frontend.load(model).constants.values() if a.ndim == 4)
        np.testing.assert_array_equal(array, 3)
    weights = given.graph.initializers["w"].const_value
    assert isinstance(weights, onnx_ir.ExternalTensor)  # the model is left as it is


def test_external_data_of_a_model_in_memory_is_in_one_folder(tmp_path: Path) -> None:
    model = onnx_ir.load(_model(tmp_path, "weights.bin"))
    _weights(tmp_path / "weights.bin")
    weights = model.graph.initializers["w"].const_value
    other = onnx_ir.ExternalTensor(
        "weights.bin", 0, 432, weights.dtype, shape=weights.shape, name="v", base_dir="/"
    )
    model.graph.initializers["v"] = onnx_ir.val("v", const_value=other)
    with pytest.raises(ModelError, match="in 2 folders; it must be in one"):
        frontend.load(model)


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
    _, raw = external.ExternalData(tmp_path).find(tensor, 432)
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
    store = external.ExternalData(tmp_path)
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
