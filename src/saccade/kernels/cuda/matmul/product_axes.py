"""Matrix products of any rank over two batch axes: [n0, n1, M, K] times [n0, n1, K, N].

Batch axes that b does not vary along are rows: they are divided into blocks together with M.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from saccade.ir import DType
from saccade.kernels.base import In, Operand, Packed, Packing, View, per_call
from saccade.kernels.cuda.base import ELEMENTS, CudaCall, element_of
from saccade.kernels.cuda.epilogue import BlockEpilogue, EpilogueCode, epilogue_of
from saccade.kernels.cuda.precision import dot_precision, product_dtype
from saccade.kernels.product_axes import Axis, merged_product
from saccade.opdefs import MatMul

__all__ = ["AXES_INTEGERS", "AxesCode", "ProductAxes", "axes_for", "merges"]

AXES_INTEGERS = (
    "n1", "m", "rows", "inner", "columns", "width", "depth", "a_0", "a_1", "a_m", "a_k",
    "b_0", "b_1", "b_k", "b_n", "y_0", "y_1", "y_m", "y_n",
)  # fmt: skip
"""Of code for products: sizes, and strides of a, b and the result."""
_PACKED = 16  # elements that packed rows and columns are padded to multiples of


@dataclass(frozen=True, slots=True)
class AxesCode:
    """What code depends on of a product's operands.

    Attributes:
        elements: Of a, b and the result, and what a and b are multiplied as.
        depends: How many of the batch axes b varies along: the first ones.
        flat: Whether rows are those of several matrices.
        units: For a, b and the result the axis along which neighbours lie side by side: `m`, `k`,
            `n`, or `-` if there is none.
        epilogue: See `epilogue.BlockEpilogue.code`.
    """

    elements: tuple[str, str, str, str]
    depends: int
    flat: bool
    units: str
    epilogue: EpilogueCode


@dataclass(frozen=True, slots=True)
class ProductAxes:
    """A call of `MatMul`.

    Attributes:
        batch: Sizes of the batch axes; those that b varies along come first.
        depends: How many these are.
        rows: M.
        inner: K, the summed axis.
        columns: N.
        width, depth: Columns and rows that b has: N and K, or more in packed constants.
        a: Strides (n0, n1, m, k) of a.
        b: Strides (n0, n1, k, n) of b, or of the packed constant.
        y: Strides (n0, n1, m, n) of the result.
        operands: The epilogue's, as [n0, N, n1, M].
        weights: How b is packed, if it is constant.
    """

    batch: tuple[int, int]
    depends: int
    rows: int
    inner: int
    columns: int
    width: int
    depth: int
    a: tuple[int, int, int, int]
    b: tuple[int, int, int, int]
    y: tuple[int, int, int, int]
    operands: tuple[View, ...]
    weights: Packing | None

    @property
    def matrices(self) -> int:
        """How many different b there are."""
        return prod(self.batch[: self.depends])

    @property
    def all_rows(self) -> int:
        """Rows that are multiplied with the same b."""
        return prod(self.batch[self.depends :]) * self.rows

    @classmethod
    def of(cls, call: CudaCall) -> ProductAxes | None:
        """None when the batch axes do not merge into two."""
        op: MatMul = call.op
        found = merged_product(call, (op.transpose_a, op.transpose_b))
        if found is None:
            return None
        found = replace(found, axes=_dependent_first(found.axes))
        (n0, s0), (n1, s1), (rows, sm) = found.axes
        (b_k, b_n), b0, b1 = found.b, s0[1], s1[1]
        columns, width, depth, weights = found.columns, found.columns, found.inner, None
        if call.constant[1]:
            weights, scale = _packing(call, found.inner, columns)
            (b0, b1), width, depth = (scale(b0), scale(b1)), _padded(columns), _padded(found.inner)
            b_k, b_n = (1, depth) if weights.parameters[-1] else (width, 1)
        views = tuple(found.image(view, i) for i, view in enumerate(call.inputs[2:], start=1))
        return cls(
            (n0, n1), (s0[1] != 0) + (s1[1] != 0), rows, found.inner, columns, width, depth,
            (s0[0], s1[0], sm[0], found.a_k), (b0, b1, b_k, b_n),
            (s0[2], s1[2], sm[2], found.along[0]), views, weights,
        )  # fmt: skip

    def epilogue(self, call: CudaCall) -> BlockEpilogue:
        """The call's epilogue: n and p go over the batch, q over rows, k over columns."""
        shape = (self.batch[0], self.columns, self.batch[1], self.rows)
        return epilogue_of(call, call.op.epilogue, 2, shape, views=self.operands)

    def code(self, call: CudaCall, epilogue: EpilogueCode) -> AxesCode:
        """What code for it depends on."""
        a, b, y = call.inputs[0], call.inputs[1], call.outputs[0]
        multiplied = ELEMENTS[product_dtype(call)]
        kind = element_of(b) if self.weights is None else multiplied
        flat = prod(self.batch[self.depends :]) > 1
        units = (
            _unit("mk", self.a[2:], (self.rows, self.inner))
            + _unit("nk", (self.b[3], self.b[2]), (self.columns, self.inner))
            + _unit("n", self.y[3:], (self.columns,))
        )
        elements = (element_of(a), kind, element_of(y), multiplied)
        return AxesCode(elements, self.depends, flat, units, epilogue)

    @property
    def b_operand(self) -> Operand:
        """Where b is read from."""
        return In(1) if self.weights is None else Packed(self.weights)

    @property
    def integers(self) -> dict[str, int]:
        """`AXES_INTEGERS`."""
        sizes = (
            self.batch[1], self.rows, self.all_rows, self.inner, self.columns, self.width,
            self.depth,
        )  # fmt: skip
        return dict(zip(AXES_INTEGERS, (*sizes, *self.a, *self.b, *self.y), strict=True))


@per_call
def _found(call: CudaCall) -> tuple[ProductAxes | None]:
    """The axes: every kernel of the family asks for them, several times."""
    return (ProductAxes.of(call),)


def merges(call: CudaCall) -> bool:
    """Whether the batch axes merge into two."""
    return _found(call)[0] is not None


def axes_for(call: CudaCall) -> ProductAxes:
    """The axes of a call that is supported."""
    axes = _found(call)[0]
    assert axes is not None, "`refuse_product` was not asked"
    return axes


def _unit(names: str, strides: Sequence[int], sizes: Sequence[int]) -> str:
    """The axis of stride 1, the last one of several; one with a single element may count as it."""
    found = "-"
    for name, stride, size in zip(names, strides, sizes, strict=True):
        if stride == 1 and (size > 1 or found == "-"):
            found = name
    return found


def _dependent_first(axes: tuple[Axis, Axis, Axis]) -> tuple[Axis, Axis, Axis]:
    outer, inner, rows = axes
    swap = inner[1][1] != 0 and outer[1][1] == 0
    return (inner, outer, rows) if swap else axes


def _padded(size: int) -> int:
    return -(-size // _PACKED) * _PACKED


def _packing(call: CudaCall, inner: int, columns: int) -> tuple[Packing, _Scale]:
    """How b is packed, and what its batch strides become."""
    b = call.inputs[1]
    panel = _padded(inner) * _padded(columns)
    size = max(1, inner * columns)
    dtype = product_dtype(call)
    nbytes = prod(b.shape[:-2]) * panel * dtype.itemsize
    # Matrix units take float32 only from columns whose elements lie side by side.
    by_column = dtype is DType.F32 and dot_precision(call) != "ieee"
    parameters = (dtype.value, call.op.transpose_b, _padded(inner), _padded(columns), by_column)
    return Packing("cuda.matrix", parameters, (1,), nbytes), _Scale(size, panel)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Strides over dense matrices to those over packed ones."""

    size: int
    panel: int

    def __call__(self, stride: int) -> int:
        return stride // self.size * self.panel
