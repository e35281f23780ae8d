"""What `compile` returns: call it, run it, look at its plan, profile it."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from saccade.errors import InputError, OptionError, OutOfMemoryError
from saccade.locks import Lock, forkless, preload
from saccade.signature import TensorInfo

if TYPE_CHECKING:
    from saccade import tuning
    from saccade.backends.cpu.store.bundle import Bundles
    from saccade.engine import Engine
    from saccade.ir import Array
    from saccade.kernels.machine import Machine
    from saccade.plan import Plan
    from saccade.profile import Profile

__all__ = ["Model", "TensorInfo"]

PLANS_KEPT = 16
_MOST_RUNS = 1 << 20  # of a profile, which keeps the times of all of them
_MOST_ELEMENTS = 1 << 47  # of an input: a process has no more addresses
_UNREADABLE = (BufferError, RuntimeError, TypeError, ValueError, AttributeError)

Shapes = tuple[tuple[int, ...], ...]
"""Of the inputs, in order."""


class Program(Protocol):
    """A plan ready to run."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    def run(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Results for contiguous inputs."""

    def asked_again(self) -> None:
        """Told whenever the program is taken once more."""

    def profile(self, inputs: Sequence[Array], repeat: int) -> Any:  # noqa: ANN401
        """Clock readings."""

    def speeds(self) -> Machine:
        """Of the machine, measured."""


class Model:
    """A compiled model; may be called from several threads at once. Made by `saccade.compile`."""

    def __init__(self, start: Callable[[], Engine], bundles: Bundles | None) -> None:
        self._start = start
        self._bundles = bundles
        self._lock, self._starting = Lock(), Lock()
        self._engine: Engine | None = None
        self._programs: OrderedDict[Shapes, Program] = OrderedDict()
        signature = bundles.signature() if bundles is not None else None
        if signature is None:
            signature = self._started().signature
        self.inputs, self.outputs = signature.inputs, signature.outputs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - arrays of any library
        """Run on inputs by position or by name.

        One output gives an array, several a tuple in the file's order.

        NumPy arrays give NumPy arrays, PyTorch tensors PyTorch tensors. Inputs are never written
        to, outputs belong to the caller.

        Raises:
            InputError: If an input is missing, unknown, or does not fit.
        """
        results = self._run(self._named(args, kwargs))
        return results[0] if len(results) == 1 else results

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """All outputs by name, for inputs by name.

        Raises:
            InputError: As of a call, or if the inputs are not given by name.
        """
        if not isinstance(inputs, Mapping):
            raise InputError(
                f"run takes inputs by name in a mapping, not a {type(inputs).__name__}"
            )
        results = self._run(self._named((), inputs))
        return {info.name: result for info, result in zip(self.outputs, results, strict=True)}

    def plan(self, *args: Any, **shapes: Any) -> Plan:  # noqa: ANN401
        """The plan for these input shapes (tuples, by position or name); compiles nothing.

        Raises:
            InputError: If they are no shapes, or do not fit the model.
        """
        given = self._named(args, shapes)
        wanted = tuple(_as_shape(info, given[info.name]) for info in self.inputs)
        return self._started().plan(wanted)

    def profile(self, *args: Any, repeat: int = 20, **kwargs: Any) -> Profile:  # noqa: ANN401
        """Time every step inside the running program, `repeat` times; medians.

        Raises:
            InputError: If an input does not fit.
            OptionError: If `repeat` is not 1 to 2²⁰.
        """
        _check_repeat(repeat)
        arrays = self._arrays(self._named(args, kwargs))
        with forkless:
            from saccade.profile import Profile  # noqa: PLC0415 - running needs none of it
        preload("numpy.ma")  # which medians import

        program = self._program(tuple(a.shape for a in arrays))
        return Profile.of(program.plan, program.profile(arrays, repeat), program.speeds())

    def tune(
        self,
        *args: Any,  # noqa: ANN401
        seconds: float | None = None,
        report: Callable[[tuning.Progress], None] = lambda _progress: None,
        **kwargs: Any,  # noqa: ANN401
    ) -> tuning.Outcome:
        """Measure other ways to do each step on these inputs, and keep those that are faster.

        Later programs for these input shapes use them, in this process and in others. The model
        never becomes slower: what is kept was faster as a whole, beyond the noise.

        Args:
            *args: Inputs by position.
            **kwargs: Inputs by name.
            seconds: How long it may take; unlimited unless given. What was measured is kept, so
                that the next call goes on from there.
            report: Told how far it is, several times a second.

        Raises:
            InputError: If an input does not fit.
            OptionError: If the device is not the CPU, or `seconds` is negative or no number.
        """
        _check_seconds(seconds)
        arrays = self._arrays(self._named(args, kwargs))
        outcome = self._started().tune(arrays, seconds, report)
        with self._lock:
            self._bundles = None  # programs there were built with the choices of before
            self._programs.clear()
        return outcome

    @property
    def algorithms(self) -> tuning.Algorithms:
        """The tuned choices, of all sizes: from a file, or what `tune` kept."""
        return self._started().algorithms

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the states of the graph that `graph` can show."""
        return tuple(self._started().trace())

    def graph(self, stage: str) -> str:
        """The graph after a stage, as text.

        Raises:
            InputError: If there is no such stage.
        """
        stages = self._started().trace()
        if not isinstance(stage, str) or stage not in stages:
            raise InputError(f"there is no stage {stage!r}; there are {', '.join(stages)}")
        return stages[stage]

    def _run(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
        arrays = self._arrays(given)
        results: tuple[Any, ...] = self._program(tuple(a.shape for a in arrays)).run(arrays)
        torch = sys.modules.get("torch")
        if torch is not None and any(isinstance(v, torch.Tensor) for v in given.values()):
            return tuple(torch.from_numpy(r) for r in results)
        return results

    def _named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        names = [info.name for info in self.inputs]
        if len(args) > len(names):
            raise InputError(
                f"{len(args)} inputs given, the model has {len(names)}: {', '.join(names)}"
            )
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise InputError(f"there is no input {name!r}; the model has {', '.join(names)}")
            if name in given:
                raise InputError(f"input {name!r} is given twice")
            given[name] = value
        missing = [name for name in names if name not in given]
        if missing:
            raise InputError(f"missing input(s): {', '.join(missing)}")
        return given

    def _arrays(self, given: Mapping[str, Any]) -> list[Array]:
        return [_as_array(info, given[info.name]) for info in self.inputs]

    def _program(self, shapes: Shapes) -> Program:
        program = self._programs.get(shapes)
        if program is not None:
            with suppress(KeyError):  # another caller may have dropped it meanwhile
                self._programs.move_to_end(shapes)
            program.asked_again()
            return program
        with self._lock:
            if shapes not in self._programs:
                self._programs[shapes] = self._left(shapes) or self._build(shapes)
                if len(self._programs) > PLANS_KEPT:
                    self._programs.popitem(last=False)
            return self._programs[shapes]

    def _left(self, shapes: Shapes) -> Program | None:
        """A program that an earlier start left."""
        if self._bundles is None:
            return None
        preload("saccade.backends.cpu.store.saved")
        return self._bundles.program(shapes)

    def _build(self, shapes: Shapes) -> Program:
        """A program of our own making; it prefers the code of those that are there."""
        program: Program = self._started().program(shapes, self._programs.values())
        return program

    def _started(self) -> Engine:
        """The engine; most warm starts never need it."""
        with self._starting:
            if self._engine is None:
                self._engine = self._start()
            return self._engine


def _as_array(info: TensorInfo, value: Any) -> Array:  # noqa: ANN401
    """Elements of the input's type and shape, one after the other in memory."""
    array: Array = value if type(value) is np.ndarray else _as_numpy(info, value)
    if array.dtype != np.dtype(info.dtype):  # which the names of byte-swapped types hide
        raise InputError(
            f"input {info.name!r} must be {info.dtype} of shape {_text(info.shape)}, "
            f"given is {array.dtype if array.dtype.isnative else array.dtype.str} "
            f"of shape {_text(array.shape)}"
        )
    fits = len(array.shape) == len(info.shape) and all(
        isinstance(want, str) or want == have
        for want, have in zip(info.shape, array.shape, strict=True)
    )
    if not fits:
        raise InputError(
            f"input {info.name!r} must have shape {_text(info.shape)}, "
            f"given is {_text(array.shape)}"
        )
    try:
        return np.require(array, requirements=["C", "A"])
    except MemoryError as error:  # of a broadcast view, for one
        raise OutOfMemoryError(
            f"input {info.name!r} has to be copied to {array.nbytes} contiguous bytes, which the "
            "system does not give: use a smaller one"
        ) from error


def _as_numpy(info: TensorInfo, value: Any) -> Array:  # noqa: ANN401
    """Another library's array, or a kind of NumPy's, as one whose sizes are true."""
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(value, masked.MaskedArray):
        raise InputError(
            f"input {info.name!r} is a masked array, give what stands for masked elements: "
            ".filled(value)"
        )
    if isinstance(value, np.ndarray):
        return np.asarray(value)  # subclasses may say anything of themselves
    if not hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        raise InputError(f"input {info.name!r} is a {type(value).__name__}, not an array")
    device = getattr(value, "device", "cpu")
    if str(getattr(device, "type", device)) != "cpu":
        raise InputError(f"input {info.name!r} is on {device}, the model runs on the CPU")
    value = _detached(info, value)
    exchanged = hasattr(value, "__dlpack__")
    try:
        array: Array = np.from_dlpack(value) if exchanged else np.asarray(value)
    except _UNREADABLE as error:  # bfloat16, for one, which NumPy does not have
        given = getattr(value, "dtype", type(value).__name__)
        raise InputError(
            f"input {info.name!r} must be {info.dtype} of shape {_text(info.shape)}, "
            f"given is {given}, which NumPy cannot read: {error}"
        ) from error
    if exchanged and array.size and array.flags.owndata:  # NumPy's own, as there was none
        raise InputError(f"input {info.name!r} is a {type(value).__name__} without memory")
    return array


def _detached(info: TensorInfo, value: Any) -> Any:  # noqa: ANN401
    """Another library's array without its gradient; of PyTorch's the elements as they count."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        detach = getattr(value, "detach", None)
        return detach() if detach is not None else value
    kind = type(value)
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:  # `FakeTensor`, for one
        raise InputError(f"input {info.name!r} is a {kind.__name__}, not a tensor with elements")
    if value.layout is not torch.strided:
        raise InputError(f"input {info.name!r} is a {value.layout} tensor, not a dense one")
    with torch._C.DisableTorchFunctionSubclass():
        plain = torch.Tensor.as_subclass(value, torch.Tensor).detach()
    # DLPack knows of addresses and strides only.
    return torch.zeros_like(plain) if plain._is_zerotensor() else plain.resolve_conj().resolve_neg()


def _as_shape(info: TensorInfo, value: Any) -> tuple[int, ...]:  # noqa: ANN401
    try:
        shape = tuple(index(size) for size in value)
    except TypeError:
        short = isinstance(value, (tuple, list, str, int, float))
        given = repr(value) if short else f"a {type(value).__name__}"
        raise InputError(
            f"input {info.name!r} needs a shape, a tuple of integers, given is {given}"
        ) from None
    if min(shape, default=0) < 0 or prod(max(size, 1) for size in shape) > _MOST_ELEMENTS:
        raise InputError(f"input {info.name!r} cannot have shape {_text(shape)}")
    return shape


def _check_repeat(repeat: Any) -> None:  # noqa: ANN401
    whole = isinstance(repeat, (int, np.integer)) and not isinstance(repeat, bool)
    if not whole or not 1 <= repeat <= _MOST_RUNS:
        raise OptionError(f"repeat must be an integer from 1 to {_MOST_RUNS}, is {repeat!r}")


def _check_seconds(seconds: Any) -> None:  # noqa: ANN401
    if seconds is None:
        return
    number = isinstance(seconds, (int, float, np.integer, np.floating))
    if not number or isinstance(seconds, bool) or not seconds >= 0:  # NaN is not
        raise OptionError(f"seconds must be a number, 0 or more, is {seconds!r}")


def _text(shape: Sequence[object]) -> str:
    return "x".join(map(str, shape)) or "scalar"
