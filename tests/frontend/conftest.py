"""Real models without their weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import helper


@pytest.fixture
def model_of_zeros(weightless: Callable[[str], Path]) -> Callable[[str], onnx.ModelProto]:
    """A model by name with all large weights zero: quick even for the largest."""

    def get(name: str) -> onnx.ModelProto:
        model = onnx.load(weightless(name))
        for tensor in model.graph.initializer:
            if tensor.doc_string.startswith("fill"):
                dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
                tensor.raw_data = bytes(math.prod(tensor.dims) * dtype.itemsize)
        return model

    return get
