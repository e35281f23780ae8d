"""Holds a reference against onnxruntime: a second implementation by other people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from saccade.ir import Array, DType, Op, TensorType
from saccade.ir.dim import evaluate, symbol
from saccade.opdefs import Pointwise
from saccade.testing.tolerance import assert_close, assert_exact

OPSET = 21


def onnx_run(op_type: str, inputs: Sequence[Array | None], **attributes: Any) -> Array:
    """First output of a single ONNX node; None leaves an input out."""
    names = [f"i{n}" if a is not None else "" for n, a in enumerate(inputs)]
    node = onnx.helper.make_node(op_type, names, ["out"], **attributes)
    given = {n: np.asarray(a, order="C") for n, a in zip(names, inputs, strict=True) if n}
    types = [
        onnx.helper.make_tensor_value_info(
            n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape)
        )
        for n, a in given.items()
    ]
    graph = onnx.helper.make_graph([node], "one", types, [onnx.ValueInfoProto(name="out")])
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return np.asarray(session.run(None, given)[0])


def types_of(arrays: Sequence[Array]) -> list[TensorType]:
    return [TensorType(DType.of(a.dtype), a.shape) for a in arrays]


def check_shape_rule(op: Op, arrays: Sequence[Array], result: Array) -> None:
    """The rule gives the result's type, also when every dim of the first operand is a symbol."""
    static = types_of(arrays)
    assert op.infer(static) == (TensorType(DType.of(result.dtype), result.shape),)
    names = [f"d{axis}" for axis in range(arrays[0].ndim)]
    open_type = TensorType(static[0].dtype, tuple(map(symbol, names)))
    (inferred,) = op.infer([open_type, *static[1:]])
    sizes = dict(zip(names, arrays[0].shape, strict=True))
    assert tuple(evaluate(d, sizes) for d in inferred.shape) == result.shape


def check_float(op: Op, arrays: Sequence[Array], peer: Array, *, k: int) -> None:
    """Reference in float64 against the peer's float32, and against itself in float32."""
    wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
    exact = replace(op, dtype=DType.F64) if isinstance(op, Pointwise) else op
    (truth,) = exact.reference(*wide)
    assert truth.dtype == np.float64
    assert_close(peer, truth, dtype=DType.F32, k=k)
    (narrow,) = op.reference(*arrays)
    assert_close(narrow, truth, dtype=DType.F32, k=k)
    check_shape_rule(op, arrays, narrow)


def check_exact(op: Op, arrays: Sequence[Array], peer: Array) -> None:
    (result,) = op.reference(*arrays)
    assert_exact(result, peer)
    check_shape_rule(op, arrays, result)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)


@pytest.fixture
def peer() -> Callable[..., Array]:
    return onnx_run


@pytest.fixture
def agrees() -> Callable[..., None]:
    return check_float


@pytest.fixture
def agrees_exactly() -> Callable[..., None]:
    return check_exact
