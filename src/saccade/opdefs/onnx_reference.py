"""A node that ONNX's own reference implementation computes, as nothing here does."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from saccade import held
from saccade.errors import InputError, OptionError
from saccade.ir import storage
from saccade.ir.dim import Dim
from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.locks import forkless
from saccade.opdefs._rules import expect, expect_count, tensor_bytes

if TYPE_CHECKING:
    from onnx.reference import ReferenceEvaluator

__all__ = ["OnnxReference"]

_HELD = TensorType(DType.I64, ())
_RAISED = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What the reference implementation ends in where operands do not fit a node."""


@dataclass(frozen=True)
class OnnxReference(Op):
    """A model of one node of ONNX, by `onnx.reference`.

    Operands: those that the node reads, then the counts of `cuts`. What no memory of a plan holds
    (strings, sequences, tensors of unknown sizes) is the int64 scalar that `saccade.held` knows it
    by. Sizes of the model are operands of the node, too: they are attributes here.

    Attributes:
        operator: For people, with its domain where that is not ONNX's own.
        model: Serialised, in base64; its inputs are the operands, then `sizes`.
        version: Of the package `onnx`: another one may give other answers.
        types: Element types of the operands as the file has them; None for what is held.
        results: Of the results; None for what is held.
        shapes: Of the results; without axes for what is held.
        handles: What results that are held are known by; -1 for the others.
        sizes: Elements of operands that are made of sizes.
        size_types, size_shapes: Of these operands.
        cuts: Operand, axis, operand that holds how many elements of the axis are true, and how many
            there are for each of that number.
        steady: Whether equal operands give equal results; False for random numbers.
        why: Why no kernel does it, for people.
    """

    operator: str
    model: str
    version: str
    types: tuple[DType | None, ...]
    results: tuple[DType | None, ...]
    shapes: tuple[tuple[Dim, ...], ...]
    handles: tuple[int, ...]
    sizes: tuple[tuple[Dim, ...], ...] = ()
    size_types: tuple[DType, ...] = ()
    size_shapes: tuple[tuple[int, ...], ...] = ()
    cuts: tuple[tuple[int, int, int, int], ...] = ()
    steady: bool = True
    why: str = ""

    _dim_fields = frozenset({"shapes", "sizes"})

    @property
    def title(self) -> str:
        """The node's operator."""
        return self.operator

    @property
    def host(self) -> str:
        """Not a reference of ours."""
        return "onnx.reference"

    @property
    def excuses(self) -> tuple[str, ...]:
        """Why there is no operator of ours."""
        return (f"by ONNX's reference implementation: {self.why}",)

    @property
    def pure(self) -> bool:
        """Not where it draws random numbers, or a run has to hold what it gives."""
        return self.steady and all(handle < 0 for handle in self.handles)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        counts = len({cut[2] for cut in self.cuts})
        expect_count(self, inputs, len(self.types) + counts)
        for operand, dtype in zip(inputs, self.types, strict=False):
            wanted = DType.I64 if dtype is None else dtype.arithmetic
            expect(self, operand.dtype is wanted, f"an operand is no {wanted.value}")
        return tuple(
            _HELD if dtype is None else TensorType(dtype.arithmetic, shape)
            for dtype, shape in zip(self.results, self.shapes, strict=True)
        )

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        evaluator = _evaluator(self.model, self.version, self.operator)
        operands = [*self._operands(inputs), *self._sizes()]
        feeds = dict(zip(evaluator.input_names, operands, strict=True))
        try:
            with np.errstate(all="ignore"):
                found = evaluator.run(None, feeds)
        except _RAISED as error:
            raise InputError(
                f"{self.operator}: ONNX's reference implementation cannot compute this: "
                f"{type(error).__name__}: {error}"
            ) from error
        each = zip(found, self.results, self.shapes, self.handles, strict=True)
        return tuple(self._result(*one) for one in each)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        # What it computes is not known here.
        return Work(0, tensor_bytes((*inputs, *outputs)))

    def _operands(self, inputs: Sequence[Array]) -> list[object]:
        """What the node reads, in the file's types and in memory that it may keep."""
        found = list[object]()
        for index, dtype in enumerate(self.types):
            array = inputs[index]
            if dtype is None:
                found.append(held.get(int(array)))
                continue
            for operand, axis, count, factor in self.cuts:
                if operand == index:
                    true = factor * int(inputs[count].item())
                    array = array[(slice(None),) * axis + (slice(true),)]
            # Never a view: what is held outlives the arena's memory of this step.
            found.append(np.array(array, dtype.numpy, order="C"))
        return found

    def _sizes(self) -> list[Array]:
        each = zip(self.sizes, self.size_types, self.size_shapes, strict=True)
        return [np.array(dims, dtype.numpy).reshape(shape) for dims, dtype, shape in each]

    def _result(
        self, found: object, dtype: DType | None, shape: tuple[Dim, ...], handle: int
    ) -> Array:
        if dtype is None:
            held.put(handle, found)
            return np.array(handle, np.int64)
        array = np.asarray(found)
        if array.dtype != dtype.numpy or array.shape != shape:
            raise InputError(
                f"{self.operator}: ONNX's reference implementation gives {array.dtype} "
                f"{list(array.shape)}, where ONNX's shape inference says {dtype.value} "
                f"{list(shape)}"
            )
        return storage.widened(array)


@lru_cache(maxsize=256)
def _evaluator(model: str, version: str, operator: str) -> ReferenceEvaluator:
    """What computes a model.

    Raises:
        OptionError: If the package `onnx` is missing, or another one.
    """
    try:
        with forkless:
            import onnx  # noqa: PLC0415 - warm starts of other models need it not
            from onnx.reference import ReferenceEvaluator  # noqa: PLC0415
    except ImportError as error:
        raise OptionError(
            f"{operator} runs through ONNX's reference implementation: install onnx {version}"
        ) from error
    if onnx.__version__ != version:
        raise OptionError(
            f"{operator} was compiled for the reference implementation of onnx {version}, "
            f"installed is {onnx.__version__}: compile it again"
        )
    return ReferenceEvaluator(onnx.load_model_from_string(base64.b64decode(model)))
