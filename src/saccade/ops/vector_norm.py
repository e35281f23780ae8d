"""`vector_norm`: any p-norm over any axes, as `torch.linalg.vector_norm`, differentiable twice.

One read of x forward; backward x is read once and the gradient written once, with one factor for
each result (see `kernels.norm`). The gradient of ±∞ needs the number of ties. On a GPU it is found
with the norm (`_KeptNorm`); elsewhere x is read twice, the second time from the cache unless rows
are longer than half of it.

Powers are summed in float32 (float64 for float64) by many partial sums, and rounded once; 16-bit
results come from a norm in float32, and so does their gradient (PyTorch takes the rounded norm).
Nothing is scaled, as in PyTorch: powers overflow to inf and underflow to 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any, cast

import torch
from torch import Tensor

from saccade.errors import OperandError
from saccade.opdefs import TiedNorm, VectorNorm
from saccade.ops._direct import dense, watched
from saccade.ops._execute import Operator
from saccade.ops._norm_gradient import norm_gradient, outermost
from saccade.ops._parts import countable, parts
from saccade.ops._places import offline
from saccade.ops._plan import Described
from saccade.ops._register import Gradient, define
from saccade.ops._tensors import DTYPES, FLOATS, PLAIN, empty_like, fake_like, refuse_type

__all__ = ["vector_norm"]

_NAMES = {"fro": 2.0, "inf": math.inf, "-inf": -math.inf}


def vector_norm(
    x: Tensor,
    ord: float | str = 2,  # noqa: A002 - PyTorch's name
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """`(Σ |x|^ord)^(1/ord)` over `dim`, as `torch.linalg.vector_norm`.

    Args:
        x: Float or complex, of any strides.
        ord: Any number: the count of elements other than 0 for 0, the largest magnitude for inf,
            the smallest for -inf. "fro" is 2, and NaN gives NaN.
        dim: Reduced axes; all of them for None or ().
        keepdim: Whether they stay as axes of 1.
        dtype: What x is taken for before, and the type of the result (the real one of a complex
            type); it may only widen.

    Returns:
        A contiguous tensor of x's dtype, or `dtype`. Its gradient is 0 for `ord` 0, is 0 where a
        norm is 0, and is shared equally between elements that are the largest or smallest alike.

    Raises:
        OperandError: If x is neither float nor complex, `dtype` is narrower or of another kind,
            `dim` repeats or has no such axis, or a norm with ord < 0 or inf goes over no elements.
    """
    if not isinstance(x, Tensor):
        refuse_type("vector_norm", "x", x)
    p = _power(ord)
    if dtype is not None:
        _check_dtype(x.dtype, dtype)
    # Of magnitudes the norm is the same; autograd goes through `abs` by itself.
    if x.is_complex():
        return vector_norm((x if dtype is None else x.to(dtype)).abs(), p, dim, keepdim)
    if x.dtype not in FLOATS:
        raise OperandError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. "
            f"Got {x.dtype}"
        )
    axes = _axes(x, dim)
    if p < 0 or p == math.inf:
        _check_identity(x, axes, p, dim)
    wanted = dtype or x.dtype
    wide = torch.float64 if wanted is torch.float64 else torch.float32
    if wide is torch.float64 and x.dtype in (torch.float16, torch.bfloat16):
        # The gradient's kernel cannot round float64 to 16 bits; autograd rounds behind this cast.
        x = x.to(torch.float32)
    learns = torch.is_grad_enabled() and x.requires_grad
    if _unseen(x) and (math.isinf(p) or wanted is not wide):
        if learns and p != 0 and _on_gpu(x):
            kept: Tensor = _KeptNorm.apply(x, p, tuple(axes), keepdim, wanted, wide)[0]
            return kept
        if not learns and wanted is not wide:
            rounded: Tensor = _NORM(x, p, axes, keepdim, wanted)
            return rounded
    norm: Tensor = _NORM(x, p, axes, keepdim, wide)
    # Rounded out here, so that the gradient is made from the norm before.
    return norm if wanted is wide else norm.to(wanted)


def _unseen(x: Tensor) -> bool:
    """Whether nobody sees what happens between x and the result, and kernels can count x.

    What goes over more elements than are counted is a norm of norms, of which only the last one is
    rounded.
    """
    return type(x) in PLAIN and countable(x) and not (torch.compiler.is_compiling() or watched())


def _on_gpu(x: Tensor) -> bool:
    """Whether it lies in a GPU's memory as it says, or would where code is compiled ahead."""
    return (x.is_cuda and dense([x])) or (x.is_meta and offline() is not None)


def _power(given: float | str) -> float:
    if isinstance(given, str):
        if given not in _NAMES:
            raise OperandError(f"linalg.vector_norm: ord {given!r} is no norm of vectors")
        return _NAMES[given]
    if isinstance(given, complex):
        raise OperandError("linalg.vector_norm: Expected a non-complex scalar as the order of norm")
    return float(given)


def _check_dtype(have: torch.dtype, dtype: torch.dtype) -> None:
    if not isinstance(dtype, torch.dtype):
        raise OperandError(f"linalg.vector_norm: {dtype!r} is no dtype")
    if not (dtype.is_floating_point or dtype.is_complex):
        raise OperandError(
            f"linalg.vector_norm: dtype should be floating point or complex, but got {dtype}"
        )
    if dtype.is_complex != have.is_complex:
        kind = "complex" if have.is_complex else "real"
        raise OperandError(
            f"linalg.vector_norm: dtype should be {kind} for {kind} inputs, but got {dtype}"
        )
    if torch.promote_types(have, dtype) != dtype:
        raise OperandError(
            f"linalg.vector_norm: the dtype of the input ({have}) should be convertible without "
            f"narrowing to the specified dtype ({dtype})"
        )


def _axes(x: Tensor, dim: int | Sequence[int] | None) -> list[int]:
    """Reduced axes, sorted, counted from 0."""
    rank = x.dim()
    if dim is None:
        dims: tuple[int, ...] = ()
    elif isinstance(dim, (tuple, list, range)):
        dims = tuple(index(axis) for axis in dim)  # NumPy's integers as well
    else:
        dims = (index(cast(int, dim)),)
    if not dims:
        return list(range(rank))
    found = set()
    # Scalars count as having one axis, as in PyTorch: dims 0 and -1 are fine.
    for axis in dims:
        if not -max(rank, 1) <= axis < max(rank, 1):
            raise OperandError(
                f"Dimension out of range (expected to be in range of [{-max(rank, 1)}, "
                f"{max(rank, 1) - 1}], but got {axis})"
            )
        at = axis % max(rank, 1)
        if at in found:
            raise OperandError(f"dim {at} appears multiple times in the list of dims")
        found.add(at)
    return sorted(found) if rank else []


def _check_identity(x: Tensor, axes: list[int], p: float, dim: int | Sequence[int] | None) -> None:
    """Refuse extremes of no elements."""
    empty = [axis for axis in axes if x.shape[axis] == 0]
    if dim is None or (isinstance(dim, tuple) and not dim):
        if x.numel() == 0:
            raise OperandError(
                f"linalg.vector_norm cannot compute the {p:g} norm on an empty tensor because the "
                "operation does not have an identity"
            )
    elif empty:
        raise OperandError(
            f"linalg.vector_norm cannot compute the {p:g} norm on the dimension {empty[0]} because "
            "this dimension is empty and the operation does not have an identity"
        )


def _shape(x: Tensor, axes: Sequence[int], keepdim: bool) -> list[int]:
    if keepdim:
        return [1 if i in axes else n for i, n in enumerate(x.shape)]
    return [n for i, n in enumerate(x.shape) if i not in axes]


def _describe(
    operands: Sequence[Tensor], p: float, axes: tuple[int, ...], keepdim: bool, dtype: torch.dtype
) -> Described:
    (x,) = operands
    out = empty_like(x, _shape(x, axes, keepdim), dtype)
    return Described(VectorNorm(p, axes, keepdim, DTYPES[dtype]), [out])


def _describe_tied(
    operands: Sequence[Tensor], p: float, axes: tuple[int, ...], keepdim: bool, dtype: torch.dtype
) -> Described:
    (x,) = operands
    shape = _shape(x, axes, keepdim)
    results = [empty_like(x, shape, dtype), empty_like(x, shape, torch.int32)]
    return Described(TiedNorm(p, axes, keepdim, DTYPES[dtype]), results)


def _norm(x: Tensor, p: float, axes: list[int], keepdim: bool, dtype: torch.dtype) -> Tensor:
    how = (p, tuple(axes), keepdim, dtype)
    if countable(x):
        return _ON_MEMORY([x], how)[0]
    axis = outermost(x, axes)
    if axis in axes:
        return _norm_of_norms(x, axis, *how)
    out = empty_like(x, _shape(x, axes, keepdim), dtype)
    place = axis if keepdim else axis - sum(other < axis for other in axes)
    for part, result in parts((x, axis), (out, place)):
        _ON_MEMORY([part], how, [result])
    return out


def _norm_of_norms(
    x: Tensor, axis: int, p: float, axes: tuple[int, ...], keepdim: bool, dtype: torch.dtype
) -> Tensor:
    """The norm of all elements, from those of parts, which are not rounded to the result's type."""
    wide = torch.promote_types(dtype, torch.float32)
    found = [_ON_MEMORY([part], (p, axes, True, wide))[0] for (part,) in parts((x, axis))]
    # The number of elements that are not zero is the sum of the parts' numbers.
    total = _ON_MEMORY([torch.cat(found, axis)], (p or 1.0, axes, keepdim, wide))[0]
    return total.to(dtype)


class _KeptNorm(torch.autograd.Function):
    """A norm on a GPU, of which the gradient keeps more than the result.

    16-bit results have the float32 norm beside them, so that nothing of their gradient has to be
    cast; the ties of ±∞ are counted with the norm. Both kernels take one read of x then.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - autograd's, which has no public type
        x: Tensor,
        p: float,
        axes: tuple[int, ...],
        keepdim: bool,
        wanted: torch.dtype,
        wide: torch.dtype,
    ) -> tuple[Tensor, ...]:
        """The result; where that is rounded, behind it the norm."""
        ctx.how = p, list(axes), keepdim
        ctx.set_materialize_grads(False)
        if math.isinf(p):
            norm, ties = _TIED_ON_MEMORY([x], (p, axes, keepdim, wide))
        else:
            (norm,), ties = _ON_MEMORY([x], (p, axes, keepdim, wide)), None
        ctx.save_for_backward(x, norm, ties)
        return (norm,) if wanted is wide else (norm.to(wanted), norm)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Of the result; the norm behind it has one where a gradient is differentiated."""
        x, norm, ties = ctx.saved_tensors
        given = [grad for grad in grads if grad is not None]
        if not given:
            return (None,) * 6
        grad = given[0] if len(given) == 1 else given[0].to(norm.dtype) + given[1]
        return norm_gradient(grad, x, norm, ties, *ctx.how), *[None] * 5


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    x, *ctx.how, _ = inputs
    ctx.save_for_backward(x, output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    x, norm = ctx.saved_tensors
    # Autograd takes None for zeros, which it need not add.
    flow = None if ctx.how[0] == 0 else norm_gradient(grad, x, norm, None, *ctx.how)
    return flow, None, None, None, None


def _batched(
    operator: Any,  # noqa: ANN401 - torch.ops carries no types
    _info: object,
    dims: tuple[int | None, ...],
    x: Tensor,
    p: float,
    axes: list[int],
    *rest: object,
) -> tuple[Tensor, int]:
    """The rule for `vmap`: the batch is one more kept axis."""
    # x is the only tensor: without an axis of the batch the rule would not be asked.
    assert dims[0] is not None
    return operator(x.movedim(dims[0], 0), p, [axis + 1 for axis in axes], *rest), 0


_ON_MEMORY = Operator("vector_norm", _describe)
_TIED_ON_MEMORY = Operator("vector_norm", _describe_tied)
_NORM = define(
    "vector_norm(Tensor x, float ord, int[] dim, bool keepdim, ScalarType dtype) -> Tensor",
    _norm,
    lambda x, p, axes, keepdim, dtype: fake_like(x, _shape(x, axes, keepdim), dtype),
    gradient=Gradient(_keep, _backward),
    batched=_batched,
)
