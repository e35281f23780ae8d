"""Calls that need nothing of PyTorch's dispatcher, and go past it.

An operator that is written in Python costs the dispatcher 20 µs and more before it begins, with a
gradient 80 (the host of an H200), which is more than a small call takes itself. What the dispatcher
is for shows in a few facts: modes, tracers, `torch.func`, autocast, profilers. Where one of these
may want to know of a call, or an operand is not a dense tensor in memory, it goes through there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from saccade.ops._tensors import PLAIN

__all__ = ["Function", "Gradient", "dense", "direct", "watched"]

Function = Callable[..., Any]

_INTEGERS = frozenset((int,))
_KEPT = 256
"""Combinations of arguments' types of an operator."""

_learns = attrgetter("requires_grad")

try:
    _modes, _functions = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
    _transforms, _traced = torch._C._functorch.maybe_current_level, torch._C._is_tracing
    _profiled, _autocast = torch._C._autograd._profiler_enabled, torch._C._is_any_autocast_enabled
    _included = torch._C._dispatch_tls_is_dispatch_key_included
    _VMAP: Any = torch._C._parse_dispatch_key("VmapMode")
    if _VMAP is None:
        raise AttributeError("VmapMode")
except AttributeError:  # another version of PyTorch: the long way is always right

    def watched() -> bool:
        return True

else:

    def watched() -> bool:
        """Whether anything in this thread but autocast may want to know of calls."""
        return bool(
            _modes()
            or _functions()
            or _traced()
            or _profiled()
            or _transforms() is not None
            or _included(_VMAP)  # of autograd's own batches, which no transform is
            or forward_ad._current_level >= 0
        )


class Gradient(NamedTuple):
    """How an operator is differentiated.

    Attributes:
        keep: `keep(ctx, inputs, output)`: remember what `backward` needs.
        backward: `backward(ctx, *grads)`: a gradient or None for each input of the schema. It looks
            at `ctx.needs_input_grad` and computes what is asked for, no more.
    """

    keep: Function
    backward: Function


class _Kinds(NamedTuple):
    """What arguments of some types mean.

    Attributes:
        tensors: Numbers of those that are tensors, one at least.
        floats: Numbers of integers that stand for floating-point numbers.
        lists: Numbers of lists of integers.
    """

    tensors: tuple[int, ...]
    floats: tuple[int, ...]
    lists: tuple[int, ...]


def direct(
    operator: Any,  # noqa: ANN401
    run: Function,
    gradient: Gradient,
    forward_only: Function,
    *,
    autocast: bool,
) -> Function:
    """The operator as a function that runs by itself where PyTorch would do nothing else.

    Args:
        operator: Of `torch.ops`, which carries no types.
        run: What it does on tensors of one device, the CPU or a GPU. It gets arguments as the
            dispatcher would hand them over.
        gradient: How it is differentiated.
        forward_only: What it does where it is not.
        autocast: Whether it is something else under autocast.
    """
    wanted = [str(argument.real_type) for argument in operator._schema.arguments]
    known: dict[tuple[type, ...], _Kinds | None] = {}
    learn = _learning(operator, run, gradient)

    def call(*arguments: Any) -> Any:  # noqa: ANN401 - as `torch.ops` has it
        # First, so that what `torch.compile` traces is the operator alone.
        if torch.compiler.is_compiling() or watched() or (autocast and _autocast()):
            return operator(*arguments)
        types = (*map(type, arguments),)
        try:
            kinds = known[types]
        except KeyError:
            kinds = _kinds(wanted, types)
            if len(known) < _KEPT:
                known[types] = kinds
        if kinds is None:
            return operator(*arguments)
        tensors = [arguments[i] for i in kinds.tensors]
        if not dense(tensors):
            return operator(*arguments)
        handed: Sequence[Any] = arguments
        if kinds.floats or kinds.lists:
            handed = list(arguments)
            for i in kinds.floats:
                handed[i] = float(handed[i])
            for i in kinds.lists:
                if not _INTEGERS.issuperset(map(type, handed[i])):
                    return operator(*arguments)
                handed[i] = list(handed[i])
        if torch.is_grad_enabled() and any(map(_learns, tensors)):
            return learn(*handed)
        return forward_only(*handed)

    return call


def _learning(operator: Any, run: Function, gradient: Gradient) -> Function:  # noqa: ANN401
    """`run` where a gradient flows to an operand."""

    def forward(ctx: object, *arguments: object) -> object:
        output = run(*arguments)
        # By keyword, as PyTorch itself calls it.
        gradient.keep(ctx=ctx, inputs=arguments, output=output)
        return output

    methods = {"forward": staticmethod(forward), "backward": staticmethod(gradient.backward)}
    name = operator._schema.name.replace("::", "_")  # what a result's `grad_fn` is called by
    made: Any = type(name, (torch.autograd.Function,), methods)
    apply: Function = made.apply
    return apply


def _kinds(wanted: Sequence[str], types: Sequence[type]) -> _Kinds | None:
    """What arguments of these types mean to a schema; None for what the dispatcher shall see."""
    if len(types) != len(wanted):  # defaults are its to add
        return None
    tensors, floats, lists = [], [], []
    for i, (name, kind) in enumerate(zip(wanted, types, strict=True)):
        if name in ("Tensor", "Optional[Tensor]") and kind in PLAIN:
            tensors.append(i)
        elif name == "List[int]" and kind in (list, tuple):
            lists.append(i)
        elif name == "float" and kind is int:
            floats.append(i)
        elif _TYPES.get(name) is not kind:
            return None
    return _Kinds(tuple(tensors), tuple(floats), tuple(lists)) if tensors else None


_TYPES = {
    "Optional[Tensor]": type(None), "ScalarType": torch.dtype, "bool": bool, "float": float,
    "int": int, "str": str,
}  # fmt: skip


def dense(tensors: Sequence[Tensor]) -> bool:
    """Whether they are in memory as they say, on one device."""
    place = tensors[0].get_device()  # -1 of the CPU, and of others
    for one in tensors:
        if one.get_device() != place or not (one.is_cpu or one.is_cuda):
            return False
        if one.layout is not torch.strided or one.is_neg() or one._is_zerotensor():
            return False
        if one.is_nested or one.is_quantized:
            return False
    return True
