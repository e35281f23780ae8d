"""The model files, with their weights drawn, for the whole session."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import helper

SHARED = Path(__file__).parents[2].parent / "shared" / "models"


def _folder() -> Path:
    folder = Path(os.environ.get("SACCADE_MODELS", SHARED))
    if not (folder / "fill.py").exists():
        pytest.skip(f"no model files in {folder}; set SACCADE_MODELS")
    return folder


@pytest.fixture
def model_of_zeros() -> Callable[[str], onnx.ModelProto]:
    """A model by name with all large weights zero: quick even for the largest."""

    def get(name: str) -> onnx.ModelProto:
        model = onnx.load(_folder() / f"{name}.onnx")
        for tensor in model.graph.initializer:
            if tensor.doc_string.startswith("fill"):
                dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
                tensor.raw_data = bytes(math.prod(tensor.dims) * dtype.itemsize)
        return model

    return get


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Path of a model with weights, by name; skips where the files are not there.

    `SACCADE_MODELS` names the folder of the weightless files and of their `fill.py`.
    """
    out = tmp_path_factory.mktemp("models")

    def get(name: str) -> Path:
        folder = _folder()
        if not (out / name).exists():
            spec = importlib.util.spec_from_file_location("fill", folder / "fill.py")
            assert spec is not None and spec.loader is not None
            fill = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(fill)
            onnx.save(fill.fill(folder / f"{name}.onnx"), out / name)
        return out / name

    return get
