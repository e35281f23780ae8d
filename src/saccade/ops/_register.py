"""How an operator becomes one of PyTorch's: schema, kernel, shapes, gradient, batching.

Everything goes through `torch.library`, so that `torch.compile`, `torch.export` and `torch.func`
see an operator with known shapes rather than Python code to trace into; calls that nothing of it
wants to know of go past it (`_direct`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from saccade.errors import OperandError
from saccade.ops._direct import Function, Gradient, direct
from saccade.ops._places import offline
from saccade.ops._tensors import PLAIN, refuse_type

__all__ = ["Function", "Gradient", "define", "define_gradient", "each_of_batch"]

# Results lie as operands do: compiled code has to hand over what shape functions have seen.
# Older versions of PyTorch have the tag for the order of strides only.
_AS_TRACED = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)

_NESTED = ("NestedTensorCPU", "NestedTensorCUDA")
_AUTOCAST = ("CPU", "CUDA")


class _Library(torch.library.Library):
    """PyTorch's, but that operators with gradients refuse forward mode: it would be zeros."""

    def impl(self, op_name: Any, fn: Function, *rest: Any, **options: Any) -> None:  # noqa: ANN401
        # What `register_autograd` makes comes in here under this key.
        if rest[:1] == ("Autograd",):
            fn = _without_tangents(op_name, fn)
        super().impl(op_name, fn, *rest, **options)


def _without_tangents(name: str, kernel: Function) -> Function:
    """What `register_autograd` makes; where nothing requires a gradient, it drops tangents."""

    def call(keyset: object, *arguments: object) -> object:
        # Tangents exist within a level only, so that usual calls pay for one comparison.
        if forward_ad._current_level >= 0 and any(map(_has_tangent, arguments)):
            raise RuntimeError(f"forward-mode derivatives of saccade::{name} are not supported")
        return kernel(keyset, *arguments)

    return call


def _has_tangent(value: object) -> bool:
    return isinstance(value, Tensor) and forward_ad.unpack_dual(value).tangent is not None


_LIBRARY = _Library("saccade", "FRAGMENT")


def define(
    schema: str,
    run: Function,
    fake: Function,
    *,
    gradient: Gradient | None = None,
    forward_only: Function | None = None,
    batched: Function | None = None,
    autocast: Function | None = None,
) -> Function:
    """Register `saccade::…`.

    Args:
        schema: As PyTorch writes it, without the namespace.
        run: The operator on tensors in memory, of the host or of a GPU. It returns fresh tensors.
        fake: Tensors of the right shape, dtype and strides, without contents.
        gradient: How to differentiate it; None where nothing flows back.
        forward_only: Called in place of `run` where it is known that no gradient will be asked for.
            Results that gradients alone read may be None.
        batched: `batched(operator, info, in_dims, *arguments)`: the rule for `torch.func.vmap`,
            one call for each part of the batch where None.
        autocast: Called in place of the operator where autocast is on for the device, and not
            again from within itself.

    Returns:
        The operator as a function: through PyTorch's dispatcher or past it (`_direct`).
    """
    name = schema.partition("(")[0]
    qualified = f"saccade::{name}"
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag, _AS_TRACED))
    operator = getattr(torch.ops.saccade, name).default
    arguments = operator._schema.arguments
    names = [argument.name for argument in arguments]
    # Types of optional operands print otherwise, so that only those that must be there are found.
    needed = [argument.name for argument in arguments if str(argument.type) == "Tensor"]
    _LIBRARY.impl(name, run, "CPU")
    _LIBRARY.impl(name, _on_one_device(qualified, names, [], run), "CUDA")
    # Nested tensors come in by keys of their own.
    for key in ("CompositeExplicitAutograd", "AutogradNestedTensor", *_NESTED):
        _LIBRARY.impl(name, _refusing(qualified, names), key)
    shapes = _on_one_device(qualified, names, needed, _or_ahead(fake, run, forward_only))
    torch.library.register_fake(qualified, shapes, lib=_LIBRARY)
    if gradient is not None:
        torch.library.register_autograd(
            qualified, gradient.backward, setup_context=gradient.keep, lib=_LIBRARY
        )
    rule = partial(batched or each_of_batch, operator)
    torch.library.register_vmap(qualified, rule, lib=_LIBRARY)
    if autocast is not None:
        for device in _AUTOCAST:
            _LIBRARY.impl(name, _outside_autocast(autocast, device), f"Autocast{device}")
    if gradient is None:  # the dispatcher has nothing of Python's to go through
        return operator  # type: ignore[no-any-return]
    return direct(operator, run, gradient, forward_only or run, autocast=autocast is not None)


def _refusing(name: str, names: Sequence[str]) -> Function:
    """The operator on all devices and storages that have no kernel of their own."""

    def refuse(*arguments: object) -> None:
        tensors = {n: a for n, a in zip(names, arguments, strict=False) if isinstance(a, Tensor)}
        found = ", ".join(f"{n} is {_kind(tensor)}" for n, tensor in tensors.items())
        raise OperandError(
            f"{name}: operands must be dense tensors on the CPU or on a GPU of NVIDIA: "
            f"{found or 'there is none'}"
        )

    return refuse


def _kind(tensor: Tensor) -> str:
    """Where and how a tensor is stored."""
    layout = str(tensor.layout).removeprefix("torch.")
    nested = "nested " if tensor.is_nested else ""
    return f"{nested}{layout} {tensor.dtype} on {tensor.device}"


def _on_one_gpu(arguments: Sequence[object]) -> bool:
    """Whether all tensors are; what is on the CPU or on meta has the number -1."""
    ordinals = {a.get_device() for a in arguments if isinstance(a, Tensor)}
    return len(ordinals) == 1 and -1 not in ordinals


def _on_one_device(
    name: str, names: Sequence[str], needed: Sequence[str], function: Function
) -> Function:
    """A function that refuses operands that are missing or on several devices.

    PyTorch asks a shape function for the result of any call with an operand on `meta`, and would
    take what it gives for a tensor with contents; and a GPU's for any call with one of its tensors.
    """

    def call(*arguments: object) -> object:
        # Each call of a small operator pays for what is looked at.
        if needed or not _on_one_gpu(arguments):
            check(arguments)
        return function(*arguments)

    def check(arguments: Sequence[object]) -> None:
        given = dict(zip(names, arguments, strict=False))
        for operand in needed:
            if given.get(operand) is None:  # which PyTorch lets pass
                refuse_type(name, operand, None)
        places = {n: a.device for n, a in given.items() if isinstance(a, Tensor)}
        if len(set(places.values())) > 1:
            found = ", ".join(f"{n} is on {device}" for n, device in places.items())
            raise OperandError(f"{name}: operands must be on one device: {found}")

    return call


def _or_ahead(fake: Function, run: Function, forward_only: Function | None) -> Function:
    """A shape function; within `compile_ahead` tensors on meta compile what they would run.

    Whether a gradient is wanted does not show here: code is for both.
    """

    def call(*arguments: object) -> object:
        # Tracers' tensors are subclasses.
        if offline() is not None and all(
            type(a) in PLAIN and a.is_meta for a in arguments if isinstance(a, Tensor)
        ):
            if forward_only is not None:
                forward_only(*arguments)
            return run(*arguments)
        return fake(*arguments)

    return call


def define_gradient(schema: str, run: Function, fake: Function) -> Function:
    """Register an operator that computes gradients, and that has none itself.

    Differentiating it raises a RuntimeError that names it.
    """
    name = schema.partition("(")[0].strip("_").removesuffix("_backward")

    def refuse(*_: object) -> None:
        raise RuntimeError(f"double backward of saccade::{name} is not supported")

    # PyTorch passes `ctx`, `inputs` and `output` by keyword.
    def keep(**_: object) -> None:
        pass

    return define(schema, run, fake, gradient=Gradient(keep, refuse))


def _outside_autocast(function: Function, device: str) -> Function:
    """The function with autocast for a kind of device switched off while it runs."""
    without = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device}"))

    def call(*arguments: object) -> object:
        with torch._C._ExcludeDispatchKeyGuard(without):
            return function(*arguments)

    return call


def each_of_batch(
    operator: Function,
    info: Any,  # noqa: ANN401 - torch.func's, which has no public type
    in_dims: Sequence[int | None],
    *arguments: object,
) -> tuple[Any, Any]:
    """The rule for `vmap` that works for anything: call by call."""

    def part(i: int) -> list[Any]:
        return [_select(value, dim, i) for value, dim in zip(arguments, in_dims, strict=True)]

    if info.batch_size == 0:
        shapes = operator(*map(_shape_of_part, arguments, in_dims))
        device = next(value.device for value in arguments if isinstance(value, Tensor))
        if isinstance(shapes, Tensor):
            return _none_of(shapes, device), 0
        return tuple(_none_of(shape, device) for shape in shapes), (0,) * len(shapes)
    results = [operator(*part(i)) for i in range(info.batch_size)]
    if isinstance(results[0], Tensor):
        return torch.stack(results), 0
    stacked = tuple(torch.stack(group) for group in zip(*results, strict=True))
    return stacked, (0,) * len(stacked)


def _shape_of_part(value: Any, dim: Any) -> Any:  # noqa: ANN401 - as below
    """What a part would be, without its elements: no batch has none to select."""
    if isinstance(value, (list, tuple)):
        dims = dim if isinstance(dim, (list, tuple)) else [dim] * len(value)
        return [_shape_of_part(v, d) for v, d in zip(value, dims, strict=True)]
    if not isinstance(value, Tensor):
        return value
    kept = list(value.shape)
    if dim is not None:
        del kept[dim]
    return value.new_empty(kept, device="meta")


def _none_of(shape: Tensor, device: torch.device) -> Tensor:
    """No results of a shape, beside each other."""
    return torch.empty((0, *shape.shape), dtype=shape.dtype, device=device)


def _select(value: Any, dim: Any, i: int) -> Any:  # noqa: ANN401 - whatever a schema may hold
    """Part `i` of an argument; lists of tensors have a dim for each."""
    if isinstance(dim, (list, tuple)):
        return [_select(v, d, i) for v, d in zip(value, dim, strict=True)]
    return value if dim is None else value.select(dim, i)
