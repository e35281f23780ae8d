"""Inputs and outputs of a model while it is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from saccade.frontend.onnx.check import UNKNOWN
from saccade.frontend.onnx.listed import Result, TensorList
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.symbolic import Symbolic
from saccade.ir import Dim, DType, Value
from saccade.ir.dim import symbols_of
from saccade.ir.expr import IDENTITY
from saccade.opdefs import Pointwise
from saccade.shapes import ANY

if TYPE_CHECKING:
    import onnx_ir

    from saccade.frontend.onnx.builder import Builder
    from saccade.frontend.onnx.probes import Known
    from saccade.frontend.onnx.reference import ReferenceSteps
    from saccade.frontend.onnx.specialise import Own
    from saccade.frontend.onnx.survey import Survey

__all__ = ["Ends"]

_HALVES = (DType.F16, DType.BF16)


class Ends:
    """What a model takes and gives.

    Args:
        build: The graph under construction.
        survey: What cannot be run.
        known: Of inputs by name: values, which become constants, or shapes.
        reference: Makes what no memory holds; None if nothing may.
        own: Sizes of the file that others may come for.
    """

    def __init__(
        self,
        build: Builder,
        survey: Survey,
        known: Known,
        reference: ReferenceSteps | None,
        own: Own,
    ) -> None:
        self._build = build
        self._survey = survey
        self._known = known
        self._reference = reference
        self._own = own
        self._symbols: dict[object, Dim] = {}

    def input(self, source: onnx_ir.Value) -> Value | None:
        """What an input becomes, a constant if its value is known; None if it is refused."""
        name = source.name or ""
        dtype = self._survey.dtype_of(source)
        known = self._known.get(name)
        if isinstance(known, np.ndarray):
            return self._build.constant(known, name)
        if dtype is None or source.shape is None:
            if self._reference is not None:
                return self._reference.input(source)
            kind, reason = "(input)", "inputs must be tensors of a numeric type"
            if dtype is not None:
                kind, reason = "(input rank)", "the file does not say how many axes the input has"
            self._survey.refuse(kind, self._survey.type_name(source), reason, name)
            return None
        shape: tuple[Dim, ...] = tuple(
            self._dim(name, axis, d) for axis, d in enumerate(source.shape)
        )
        if isinstance(known, tuple):
            shape = tuple(
                own if size is None else size for own, size in zip(shape, known, strict=True)
            )
        made = self._build.value(name, dtype, shape)
        self._build.inputs.add(made)
        return made

    def _dim(self, name: str, axis: int, extent: object) -> Dim:
        if isinstance(extent, int) and extent != UNKNOWN:
            return extent
        label = getattr(extent, "value", None)
        unnamed = label in ANY
        # Axes of one name are one symbol: shape rules then see that they are equal. One without a
        # name is no other's, even if that is called as this one is here.
        key = (name, axis) if unnamed else str(label)
        if key not in self._symbols:
            made = self._build.symbol(f"{name}_dim_{axis}" if unnamed else str(label))
            self._symbols[key] = made
            if (name, axis) in self._own:
                self._build.own.update(dict.fromkeys(symbols_of(made), self._own[name, axis]))
        return self._symbols[key]

    def output(self, source: onnx_ir.Value, result: Result) -> Value:
        """An output of the graph; a stand-in, so that all are looked at, if it is refused."""
        name = source.name or ""
        if isinstance(result, TensorList):
            return self._sequence(result, name)
        if isinstance(result, Symbolic):
            size = self._build.found(result, name)
            if size is not None:
                return size
            self._survey.refuse("(output)", result.dtype.name, "returns symbolic sizes", name)
            return self._build.constant(np.zeros(result.shape, result.dtype.numpy))
        declared = self._survey.dtype_of(source)
        wanted = declared if declared in _HALVES else DType.F32
        assert wanted is not None
        if result.dtype is wanted or not {result.dtype, wanted} <= {*_HALVES, DType.F32}:
            return result
        # What bfloat16 would round is computed in float32 up to here, and so is a constant that
        # float16 would round; or the file says nothing of its output's type.
        array = self._build.array(result)
        name = f"{name}.{wanted.value}"
        if array is not None:
            return self._build.constant(array.astype(wanted.numpy), name)
        return self._build.emit(Pointwise(expr=IDENTITY, dtype=wanted), [result], name)[0]

    def _sequence(self, given: TensorList, name: str) -> Value:
        reason = "outputs must be tensors"
        if self._reference is not None:
            try:
                return self._reference.sequence(given, name)
            except Refusal as refusal:
                reason = f"{reason}; {refusal}"
        self._survey.refuse("(sequence)", "-", reason, name)
        return self._build.constant(np.zeros(()))

    def absent(self, source: onnx_ir.Value) -> Value:
        """An output that is an optional value which is not there.

        Raises:
            ModelError: If the file does not say that it may be absent.
        """
        name = source.name or ""
        if self._reference is not None:
            return self._reference.absent(source)
        self._survey.refuse("(sequence)", "-", "outputs must be there, and tensors", name)
        return self._build.constant(np.zeros(()))
