"""Triton's interpreter with less work around each operation, and the same results and errors.

It spends most of its time on types: each operation finds out anew what its operands become, and
makes the types of its results. Here that is done once for the types of the operands. Sums of
integers it does again in 64 bits, in six more operations, to see whether they overflow, which it
then tells only those who ask for debugging; here nobody does.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from saccade.testing.quick_operators import QUICK, quicken_casts, watch

__all__ = ["quicken"]

_NUMBERS = (int, float, bool)


@cache
def quicken() -> None:
    """Replace the parts of Triton's interpreter that take most of its time, in this process."""
    _keep_types()
    _keep_plain_values()
    quicken_casts()
    _agree_once()
    _call_at_once()
    _leave_overflows()


def _keep_types() -> None:
    """Blocks of one shape and element type have one type, which knows its tensors' shape."""
    from triton.language import core  # noqa: PLC0415 - it reads TRITON_INTERPRET at its import

    known: dict[Any, Any] = {}
    block, number = core.block_type, core.constexpr
    make, to_ir = block.__init__, block.to_ir

    def find(_class: type, element: Any, shape: Any) -> Any:  # noqa: ANN401 - Triton carries no types
        sizes = tuple([size.value if type(size) is number else size for size in shape])
        key = (element.name, getattr(element, "address_space", None), sizes)
        found = known.get(key)
        if found is None:
            found = object.__new__(block)
            make(found, element, shape)
            known[key] = found
        return found

    def tensor_init(self: Any, handle: Any, kind: Any) -> None:  # noqa: ANN401
        facts = kind.__dict__.get("saccade_facts")
        if facts is None:
            sizes = tuple(kind.shape) if kind.is_block() else ()
            count = number(int(np.prod(sizes, dtype=np.int64)))
            shape = core.tuple([number(size) for size in sizes])
            facts = kind.saccade_facts = (shape, count, kind.scalar)
        self.handle, self.type = handle, kind
        self.shape, self.numel, self.dtype = facts

    def quick_ir(self: Any, builder: Any) -> Any:  # noqa: ANN401
        found = self.__dict__.get("saccade_ir")
        if found is None:
            found = self.saccade_ir = to_ir(self, builder)
        return found

    block.__new__ = find
    block.to_ir = quick_ir
    block.__init__ = lambda *_: None
    core.tensor.__init__ = tensor_init


def _keep_plain_values() -> None:
    """What is no constant of Triton's is told by its class alone, and NumPy's types are kept."""
    from triton.language import core  # noqa: PLC0415 - as above
    from triton.runtime import interpreter  # noqa: PLC0415

    unwrap, equal, numpy_type = (
        core._unwrap_if_constexpr, core.dtype.__eq__, interpreter._get_np_dtype,
    )  # fmt: skip
    plain = {core.tensor, core.dtype, core.block_type, core.pointer_type, *_NUMBERS}
    kinds: dict[str, Any] = {}

    def quick_unwrap(value: Any) -> Any:  # noqa: ANN401
        if type(value) in plain:
            return value
        return value.value if type(value) is core.constexpr else unwrap(value)

    def quick_equal(self: Any, other: Any) -> bool:  # noqa: ANN401
        return self is other or equal(self, other)

    def quick_numpy_type(kind: Any) -> Any:  # noqa: ANN401
        found = kinds.get(kind.name)
        if found is None:
            found = kinds[kind.name] = numpy_type(kind)
        return found

    core._unwrap_if_constexpr = quick_unwrap
    core.dtype.__eq__ = quick_equal
    interpreter._get_np_dtype = quick_numpy_type


def _call_at_once() -> None:
    """Functions of the language are called with what they need, not by way of two others."""
    from triton.language import core  # noqa: PLC0415 - as above
    from triton.runtime import interpreter  # noqa: PLC0415

    quick = watch()

    def patch(owner: Any, name: str, member: Any, _builder: Any, scope: Any) -> None:  # noqa: ANN401
        inner = getattr(member, "__wrapped__", member)

        def call(*args: Any, **named: Any) -> Any:  # noqa: ANN401
            named["_semantic"] = interpreter.interpreter_semantic
            return inner(*args, **named)

        at_once = owner is core.tensor and name in QUICK
        scope.set_attr(owner, name, quick(name, call) if at_once else call)

    interpreter._patch_attr = patch


def _agree_once() -> None:
    """How two operands become of one type and shape is found out once for their types."""
    from triton.language.semantic import TritonSemantic  # noqa: PLC0415 - as above
    from triton.runtime.interpreter import TensorHandle  # noqa: PLC0415

    check, alike = TritonSemantic.binary_op_type_checking_impl, TritonSemantic.broadcast_impl_value
    agreed: dict[Any, Any] = {}  # element types that operands are cast to
    shaped: dict[Any, Any] = {}  # types of what operands become; None for those that stay
    constants: dict[Any, Any] = {}  # numbers as tensors, beside a tensor of a type

    def quick_check(self: Any, lhs: Any, rhs: Any, *how: bool, **named: bool) -> Any:  # noqa: ANN401
        if named or type(lhs) is not self.tensor:
            return check(self, lhs, rhs, *how, **named)
        if type(rhs) is not self.tensor:
            return beside_number(self, lhs, rhs, how)
        key = (lhs.type.name, rhs.type.name, how)
        plan = agreed.get(key)
        if plan is None:
            found = check(self, lhs, rhs, *how)
            agreed[key] = tuple([one.dtype for one in found])
            return found
        left, right = plan
        lhs = lhs if lhs.dtype is left else self.cast(lhs, left)
        rhs = rhs if rhs.dtype is right else self.cast(rhs, right)
        return quick_alike(self, lhs, rhs)

    def beside_number(self: Any, lhs: Any, rhs: Any, how: tuple[bool, ...]) -> Any:  # noqa: ANN401
        if type(rhs) not in _NUMBERS:
            return check(self, lhs, rhs, *how)
        # Zeros of either sign, and numbers of several types, are equal as keys.
        sign = rhs.hex() if type(rhs) is float else rhs
        key = (sign, type(rhs), lhs.type.name, how)
        known = constants.get(key)
        if known is not None:
            return lhs, known
        found = check(self, lhs, rhs, *how)
        if found[0] is lhs:
            found[1].handle.data.flags.writeable = False
            constants[key] = found[1]
        return found

    def quick_alike(self: Any, lhs: Any, rhs: Any) -> Any:  # noqa: ANN401
        if lhs.type is rhs.type:
            return lhs, rhs
        key = (lhs.type.name, rhs.type.name)
        plan = shaped.get(key)
        if plan is None:
            found = alike(self, lhs, rhs)
            pairs = zip((lhs, rhs), found, strict=True)
            shaped[key] = tuple([None if new is old else new.type for old, new in pairs])
            return found
        return tuple([spread(self, *pair) for pair in zip((lhs, rhs), plan, strict=True)])

    def spread(self: Any, value: Any, kind: Any) -> Any:  # noqa: ANN401
        if kind is None:
            return value
        data = value.handle.data
        filled = np.empty(tuple(kind.shape), data.dtype)
        filled[...] = data
        return self.tensor(TensorHandle(filled, value.handle.dtype.scalar), kind)

    TritonSemantic.binary_op_type_checking_impl = quick_check
    TritonSemantic.broadcast_impl_value = quick_alike


def _leave_overflows() -> None:
    """Integers wrap around, as they do on GPUs, and nobody looks for it in vain."""
    from triton.runtime import interpreter  # noqa: PLC0415 - as above

    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)
