"""Operators of Triton's tensors in its interpreter, from the operand's arrays to the result's.

An operator runs as Triton has it once for the types of its operands. If that came to one function
of NumPy, after casts at most, it is what later ones with operands of these types call at once: the
types of their results are known, and NumPy repeats what is to be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["QUICK", "quicken_casts", "watch"]

QUICK = frozenset(
    f"__{name}__"
    for name in (
        *("add", "sub", "mul", "and", "or", "xor", "lt", "le", "gt", "ge", "eq", "ne"),
        *("radd", "rsub", "rmul", "rand", "ror", "rxor", "getitem"),
    )
)
"""Operators of tensors that are done at once."""

_REVERSED = frozenset(name for name in QUICK if name.startswith("__r"))
_OF_BITS = frozenset(
    {
        *(np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.equal, np.not_equal),
        *(np.less, np.less_equal, np.greater, np.greater_equal),
    }
)
"""Functions that do the same with booleans as with integers of one bit; sums would saturate."""

_CHECKED: list[tuple[Any, Any]] = []  # the operands that an operator came to, while it is watched
_CALLED: list[tuple[Any, Any, Any, Any]] = []  # functions of NumPy, with operands and result


class _QuickPlan(NamedTuple):
    """How an operator is done with operands of two types.

    Attributes:
        function: Of NumPy.
        casts: What the operands' elements become; None for those that stay.
        number: Which operand is a number, or None.
        constant: This number as an array, or None.
        element: What Triton takes for the result's element type if the first one is a number.
        kind: The result's type.
        facts: Its tensors' shape, number of elements and element type.
        shape: Of the result's array.
        width: Bytes by which offsets of a pointer count, or 0.
    """

    function: Any
    casts: tuple[Any, Any]
    number: int | None
    constant: Any
    element: Any
    kind: Any
    facts: Any
    shape: tuple[int, ...]
    width: int


def watch() -> Callable[[str, Callable[..., Any]], Callable[..., Any]]:
    """Let plans be learned from what Triton does; gives what makes an operator quick.

    That takes the operator's name and Triton's own.
    """
    from triton.language.semantic import TritonSemantic  # noqa: PLC0415 - it reads TRITON_INTERPRET
    from triton.runtime.interpreter import (  # noqa: PLC0415 - at its import
        InterpreterBuilder,
        interpreter_semantic,
    )

    check, binary, address = (
        TritonSemantic.binary_op_type_checking_impl,
        InterpreterBuilder.binary_op,
        InterpreterBuilder.create_addptr,
    )

    def seen_check(self: Any, *operands: Any, **how: Any) -> Any:  # noqa: ANN401 - Triton carries no types
        found = check(self, *operands, **how)
        _CHECKED.append(found)
        return found

    def seen_binary(self: Any, left: Any, right: Any, function: Any) -> Any:  # noqa: ANN401
        result = binary(self, left, right, function)
        _CALLED.append((function, left, right, result))
        return result

    def seen_address(self: Any, pointer: Any, offset: Any) -> Any:  # noqa: ANN401
        result = address(self, pointer, offset)
        _CALLED.append((np.add, pointer, offset, result))
        return result

    def learn(own: Callable[..., Any], left: Any, right: Any) -> tuple[Any, _QuickPlan | None]:  # noqa: ANN401
        _CHECKED.clear()
        _CALLED.clear()
        with_changes = (
            (TritonSemantic, "binary_op_type_checking_impl", seen_check, check),
            (InterpreterBuilder, "binary_op", seen_binary, binary),
            (InterpreterBuilder, "create_addptr", seen_address, address),
        )
        for owner, name, seen, _ in with_changes:
            setattr(owner, name, seen)
        try:
            result = own(left, right)
        finally:
            for owner, name, _, before in with_changes:
                setattr(owner, name, before)
        return result, _plan(left, right, result)

    def quick(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        if name == "__getitem__":
            return _indexed(own)
        return _quick(learn, interpreter_semantic, name, own)

    return quick


def _plan(left: Any, right: Any, result: Any) -> _QuickPlan | None:  # noqa: ANN401
    """What was seen, if it was one function of the two operands, cast and repeated at most."""
    if len(_CHECKED) != 1 or len(_CALLED) != 1:
        return None
    operands, (function, first, second, called) = _CHECKED[0], _CALLED[0]
    if operands[0].handle is not first or operands[1].handle is not second:
        return None
    if result.handle is not called:
        return None
    if operands[1].dtype.is_ptr():
        return None
    width = 0
    if operands[0].dtype.is_ptr():
        width = max(1, first.get_element_ty().primitive_bitwidth // 8)
    elif function not in _OF_BITS and any(one.dtype.is_bool() for one in operands):
        return None
    given = [getattr(one, "dtype", None) for one in (left, right)]
    number = next((i for i, one in enumerate(given) if one is None), None)
    constant = None if number is None else operands[number].handle.data.reshape(-1)[:1]
    casts = [
        None if was in (None, one.dtype) else one.dtype
        for was, one in zip(given, operands, strict=True)
    ]
    facts = (result.shape, result.numel, result.dtype)
    return _QuickPlan(
        function, (casts[0], casts[1]), number, constant, first.dtype, result.type, facts,
        called.data.shape, width,
    )  # fmt: skip


def _quick(
    learn: Callable[..., tuple[Any, _QuickPlan | None]],
    language: Any,  # noqa: ANN401
    name: str,
    own: Callable[..., Any],
) -> Callable[..., Any]:
    """The operator of this name, which Triton does by `own`."""
    from triton.language import core  # noqa: PLC0415 - as above

    tensor, constexpr, cast, make = core.tensor, core.constexpr, language.cast, _makes()
    swapped = name in _REVERSED
    plans: dict[Any, _QuickPlan | None] = {}

    def ordered(one: Any, other: Any) -> Any:  # noqa: ANN401
        """Triton's own, of operands in the order in which they stand."""
        return own(other, one) if swapped else own(one, other)

    def operator(self: Any, other: Any) -> Any:  # noqa: ANN401
        kind = type(other)
        if kind is constexpr:
            other = other.value
            kind = type(other)
        if kind is tensor:
            key: Any = (self.type.name, other.type.name)
        elif kind is int or kind is bool:
            key = (self.type.name, kind, other)
        elif kind is float:
            key = (self.type.name, kind, other.hex())  # zeros have signs
        else:
            return own(self, other)
        left, right = (other, self) if swapped else (self, other)
        try:
            plan = plans[key]
        except KeyError:
            result, plans[key] = learn(ordered, left, right)
            return result
        if plan is None:
            return own(self, other)
        function, casts, number, constant, element, made, facts, shape, width = plan
        if number != 0:
            first = (left if casts[0] is None else cast(left, casts[0])).handle
            a, element = first.data, first.dtype
        else:
            a = constant
        if number != 1:
            b = (right if casts[1] is None else cast(right, casts[1])).handle.data
        else:
            b = constant
        data = function(a, width * b.astype(np.uint64)) if width else function(a, b)
        if data.shape != shape or data.itemsize > a.itemsize:
            return own(self, other)
        return make(data, element.scalar, made, facts)

    return operator


def _makes() -> Callable[..., Any]:
    """What makes a tensor of an array, an element type, its type and what that says of it."""
    from triton.language import core  # noqa: PLC0415 - as above
    from triton.runtime.interpreter import TensorHandle  # noqa: PLC0415

    tensor, new = core.tensor, object.__new__

    def make(data: Any, element: Any, kind: Any, facts: Any) -> Any:  # noqa: ANN401
        handle = new(TensorHandle)
        handle.data, handle.dtype, handle.attr = data, element, {}
        found = new(tensor)
        found.handle, found.type = handle, kind
        found.shape, found.numel, found.dtype = facts
        return found

    return make


def _indexed(own: Callable[..., Any]) -> Callable[..., Any]:
    """Axes of size 1 are put in where an index says so: the data stay, in another shape."""
    make, whole = _makes(), slice(None)
    plans: dict[Any, Any] = {}

    def index(self: Any, slices: Any) -> Any:  # noqa: ANN401
        if type(slices) is not tuple or not self.type.is_block():
            return own(self, slices)
        for one in slices:
            if one is not None and (type(one) is not slice or one != whole):
                return own(self, slices)
        key = (self.type.name, *[one is None for one in slices])
        plan = plans.get(key)
        if plan is None:
            found = own(self, slices)
            facts = (found.shape, found.numel, found.dtype)
            plans[key] = (found.handle.data.shape, found.type, facts)
            return found
        shape, kind, facts = plan
        handle = self.handle
        return make(handle.data.reshape(shape), handle.dtype.scalar, kind, facts)

    return index


def quicken_casts() -> None:
    """Casts between two types find out once which function of NumPy they are."""
    from triton.language.semantic import TritonSemantic  # noqa: PLC0415 - as above
    from triton.runtime.interpreter import InterpreterBuilder  # noqa: PLC0415

    make, cast = _makes(), TritonSemantic.cast
    same, other = object(), object()
    plans: dict[Any, Any] = {}

    def learn(self: Any, value: Any, kind: Any, rounding: Any) -> tuple[Any, Any]:  # noqa: ANN401
        seen, implementation = [], InterpreterBuilder.cast_impl

        def see(builder: Any, source: Any, to: Any) -> Any:  # noqa: ANN401
            result = implementation(builder, source, to)
            seen.append((source, result))
            return result

        InterpreterBuilder.cast_impl = see
        try:
            found = cast(self, value, kind, rounding)
        finally:
            InterpreterBuilder.cast_impl = implementation
        if found is value:
            return found, same
        if len(seen) != 1 or seen[0][0] is not value.handle or seen[0][1] is not found.handle:
            return found, other
        if "bf16" in (value.dtype.name, found.dtype.name):
            return found, other
        facts = (found.shape, found.numel, found.dtype)
        return found, (found.handle.data.dtype, found.handle.dtype, found.type, facts)

    def quick_cast(self: Any, value: Any, kind: Any, rounding: Any = None) -> Any:  # noqa: ANN401
        key = (value.type.name, kind.name, rounding)
        plan = plans.get(key)
        if plan is None:
            found, plans[key] = learn(self, value, kind, rounding)
            return found
        if plan is same:
            return value
        if plan is other or value.handle.dtype.name == "bf16":
            return cast(self, value, kind, rounding)
        to, *of = plan
        return make(value.handle.data.astype(to), *of)

    TritonSemantic.cast = quick_cast
