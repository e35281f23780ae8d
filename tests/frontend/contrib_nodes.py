"""Models of one node of another domain than ONNX's, and what ONNX Runtime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from frontend_models import run_onnxruntime
from onnx import helper, numpy_helper

from saccade.frontend import onnx as frontend
from saccade.ir import DType
from saccade.testing.interpret import interpret
from saccade.testing.tolerance import assert_close

__all__ = ["Operands", "close", "draw", "integers", "number", "one_node", "ours"]

Operands = Mapping[str, np.ndarray | None]
"""By name; what begins with an upper-case letter is an input of the model, the rest is known."""


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(seed + sum(shape)).normal(0, scale, shape).astype(np.float32)


def integers(shape: Sequence[int], dtype: type, seed: int = 0) -> np.ndarray:
    """All integers of a type alike."""
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, tuple(shape), dtype)


def number(value: float, dtype: type = np.float32) -> np.ndarray:
    """A tensor without axes."""
    return np.asarray(value, dtype)


def one_node(
    op: str,
    operands: Operands,
    outputs: Sequence[str] = ("y",),
    domain: str = "com.microsoft",
    version: int = 17,
    kind: int = 0,
    free: str = "",
    **attributes: object,
) -> onnx.ModelProto:
    """The model.

    Args:
        op: Operator.
        operands: None is left out.
        outputs: Names of the results.
        domain: Of the operator.
        version: Of ONNX's own operator set.
        free: An input whose first axis has no size.
        kind: Element type of the first result; ONNX Runtime finds it out by itself if it is 0.
        attributes: Those of the node that are not None.
    """
    given = {name: array for name, array in operands.items() if array is not None}
    node = helper.make_node(
        op,
        [name if name in given else "" for name in operands],
        list(outputs),
        domain=domain,
        **{name: value for name, value in attributes.items() if value is not None},
    )
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            ["N", *array.shape[1:]] if name == free else array.shape,
        )
        for name, array in given.items()
        if name[0].isupper()
    ]
    known = [numpy_helper.from_array(a, n) for n, a in given.items() if not n[0].isupper()]
    types = [helper.make_tensor_value_info(n, kind, None) for n in outputs if n]
    if not kind:
        types = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    graph = helper.make_graph([node], "g", inputs, types, known)
    sets = [helper.make_opsetid("", version), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


def fed(operands: Operands) -> dict[str, np.ndarray]:
    """What the model's inputs are given."""
    return {n: a for n, a in operands.items() if a is not None and n[0].isupper()}


def ours(model: onnx.ModelProto, operands: Operands) -> dict[str, np.ndarray]:
    """Results of the imported graph."""
    return interpret(frontend.load(model), fed(operands))


def close(model: onnx.ModelProto, operands: Operands, k: int = 64) -> None:
    """Hold ours against ONNX Runtime's results."""
    expected = run_onnxruntime(model, fed(operands))
    actual = ours(model, operands)
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype
        assert actual[name].shape == array.shape
        if array.dtype.kind == "f":
            kind = DType.of(array.dtype)
            assert_close(actual[name], array.astype(np.float64), dtype=kind, k=k)
        else:
            np.testing.assert_array_equal(actual[name], array, err_msg=name)
