"""What a type checker and `help` say of the public names."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

import saccade
from saccade.backends.cpu.target import host_target
from saccade.devices import DEVICES
from saccade.errors import OptionError

SOURCE = Path(__file__).parents[1] / "src"
SCRIPT = """
import numpy as np
import saccade

x = np.zeros((1, 3, 8, 8), np.float32)
model = saccade.compile("m.onnx", shapes={"x": (1, 3, "H", None)}, threads=2, cache=False)
reveal_type(model)
reveal_type(model(x))
reveal_type(model.run({"x": x}))
first, second = model(x)
saccade.compile(b"", thread=1)
saccade.compile(3)
saccade.compile("m.onnx", threads="2")
saccade.compile("m.onnx", shapes={"x": 1.5})
saccade.compile("m.onnx", precision="bf17")
saccade.compile("m.onnx", device="gpu")
saccade.compile("m.onnx", precision=saccade.Precision.BF16, device="cuda")
saccade.vision.read(3)
saccade.onnxruntime.SessionOptions().intra_op_num_threads = "2"


class Tensor:  # as PyTorch's stubs have it
    def detach(self) -> "Tensor":
        return self


class Parameter(Tensor):
    pass


reveal_type(model(Tensor()))
reveal_type(model(image=Parameter()))
reveal_type(model.run({"x": Tensor()}))
reveal_type(model(x, Tensor()))
saccade.compile("m.onnx", isa="avx1024")
"""
SAID = {
    7: 'Revealed type is "saccade.model.Model"',
    8: 'Revealed type is "numpy.ndarray[Any, numpy.dtype[Any]] | Any"',
    9: 'Revealed type is "dict[str, numpy.ndarray[Any, numpy.dtype[Any]] | Any]"',
    11: 'Argument "thread" to "compile" has incompatible type "int"; expected "Never"',
    12: 'Argument 1 to "compile" has incompatible type "int"',
    13: 'Argument "threads" to "compile" has incompatible type "str"',
    14: 'Dict entry 0 has incompatible type "str": "float"',
    15: 'Argument "precision" to "compile" has incompatible type',
    16: 'Argument "device" to "compile" has incompatible type',
    18: 'Argument 1 to "read" has incompatible type "int"',
    19: 'Incompatible types in assignment (expression has type "str", variable has type "int")',
    31: 'Revealed type is "user.Tensor | Any"',
    32: 'Revealed type is "user.Tensor | Any"',
    33: 'Revealed type is "dict[str, user.Tensor | Any]"',
    34: 'Revealed type is "Any"',
    35: 'Argument "isa" to "compile" has incompatible type',
}
"""By line; every other one is right."""


def test_mypy_knows_options_and_results(tmp_path):
    script = tmp_path / "user.py"
    script.write_text(SCRIPT)
    # As the project is checked, strictly, so that either finds what the other left in the cache.
    found = subprocess.run(
        [sys.executable, "-m", "mypy", str(script)],
        cwd=SOURCE.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = dict(re.findall(r"/user\.py:(\d+): \w+: (.*)$", found.stdout, re.MULTILINE))
    assert sorted(map(int, said)) == sorted(SAID), found.stdout
    for line, text in SAID.items():
        # Older versions spell unions and builtins in other words.
        told = said[str(line)].replace("builtins.", "")
        assert told.startswith(text), told


def test_names_that_checkers_know_are_those_that_there_are():
    names = import_module("saccade.compile")
    assert set(get_args(names.DeviceName)) == set(DEVICES)
    assert {*get_args(names.PrecisionName)} == {one.value for one in saccade.Precision}
    with pytest.raises(OptionError, match=f"not one of {', '.join(get_args(names.IsaName))}$"):
        host_target("sse")


def test_every_option_is_a_keyword_of_compile():
    """The nearest is named at run time: see test_options."""
    keywords = inspect.signature(saccade.compile).parameters
    options = {one.name for one in fields(saccade.Options) if one.init}
    assert set(keywords) == options | {"source", "unknown"}
    for name, parameter in keywords.items():
        assert f"        {name}: " in inspect.getdoc(saccade.compile).replace(
            "\n    ", "\n        "
        )
        assert parameter.annotation is not inspect.Parameter.empty


def test_rooms_are_attributes(monkeypatch):
    public = {name for name in dir(saccade) if not name.startswith("_")}
    assert public == {*saccade.__all__, "vision", "ops", "onnxruntime"} - {"__version__"}
    assert saccade.vision.read and saccade.onnxruntime.InferenceSession is saccade.InferenceSession
    with pytest.raises(AttributeError, match="no attribute 'visoin'"):
        saccade.visoin  # noqa: B018
    # Without PyTorch, whoever asks is told, and whoever only looks around goes on.
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [one for one in sys.modules if one.startswith("saccade.ops")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(saccade, "ops", raising=False)
    with pytest.raises(AttributeError, match=r"needs PyTorch: pip install 'saccade\[torch\]'"):
        saccade.ops  # noqa: B018
    assert not hasattr(saccade, "ops")
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        import_module("saccade.ops")


def test_help_reads_well():
    text = pydoc.plain(pydoc.render_doc(saccade.compile))
    assert "shapes: 'ShapesArgument | None' = None" in text
    assert "-> 'Model'" in text
    whole = pydoc.plain(pydoc.render_doc(saccade))
    for name in (
        "saccade.compile(",
        "class Model(",
        "class TensorInfo(",
        "class InferenceSession(",
    ):
        assert name in whole, name
    assert max(map(len, inspect.getdoc(saccade).splitlines())) <= 100
