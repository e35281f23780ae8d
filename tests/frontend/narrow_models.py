"""Models over elements of at most 8 bits, and the ONNX reference evaluator beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import saccade
from saccade.frontend.onnx.importers._elementwise import ONNX_DTYPES
from saccade.ir import DType

__all__ = ["CODES", "NARROW", "alike", "bits", "model", "patterns", "same_bits"]

CODES = {dtype: code for code, dtype in ONNX_DTYPES.items()}
"""What `TensorProto` calls element types."""
NARROW = sorted((d for d in DType if d.is_narrow), key=lambda d: d.value)


def patterns(dtype: DType) -> np.ndarray:
    """Every element, once."""
    return np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[DType, Sequence[int | str]]],
    outputs: Mapping[str, DType],
    initializers: Sequence[TensorProto] = (),
    opset: int = 25,
) -> onnx.ModelProto:
    """A model of these nodes."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, CODES[d], s) for n, (d, s) in inputs.items()],
        [helper.make_tensor_value_info(n, CODES[d], None) for n, d in outputs.items()],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def bits(array: np.ndarray) -> np.ndarray:
    """An array's bits, as integers."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def alike(found: np.ndarray, wanted: np.ndarray, name: str = "") -> None:
    """Raise unless both have one type, one shape and the same bits; NaN has any."""
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
    numbers = np.ones(found.shape, bool)
    if DType.of(found.dtype).is_float:
        numbers = ~np.isnan(wanted.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(found.astype(np.float64)), ~numbers, err_msg=name)
    np.testing.assert_array_equal(bits(found)[numbers], bits(wanted)[numbers], err_msg=name)


def same_bits(
    proto: onnx.ModelProto, given: Mapping[str, np.ndarray], *, host: bool = False
) -> dict[str, np.ndarray]:
    """Our outputs, which are those of the reference evaluator, made by kernels alone."""
    ours = saccade.compile(proto, threads=1)
    with np.errstate(all="ignore"):
        results = ours.run(dict(given))
        wanted = ReferenceEvaluator(proto).run(None, dict(given))
    for (name, found), theirs in zip(results.items(), wanted, strict=True):
        alike(found, np.asarray(theirs), name)
    lacking = [step.name for step in ours.plan(**_shapes(given)).steps if step.kernel is None]
    assert host or not lacking, lacking
    return results


def _shapes(given: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in given.items()}
