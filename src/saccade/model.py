"""What `compile` returns: call it, run it, look at its plan, profile it."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from saccade.errors import InputError
from saccade.locks import Lock
from saccade.signature import TensorInfo

if TYPE_CHECKING:
    from saccade import tuning
    from saccade.engine import Engine
    from saccade.ir import Array
    from saccade.kernels.machine import Machine
    from saccade.plan import Plan
    from saccade.profile import Profile
    from saccade.runtime.bundle import Bundles

__all__ = ["Model", "TensorInfo"]

PLANS_KEPT = 16

Shapes = tuple[tuple[int, ...], ...]
"""Of the inputs, in order."""


class Program(Protocol):
    """A plan ready to run."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    def run(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Results for contiguous inputs."""

    def profile(self, inputs: Sequence[Array], repeat: int) -> Any:  # noqa: ANN401
        """Clock readings."""

    def speeds(self) -> Machine:
        """Of the machine, measured."""


class Model:
    """A compiled model; may be called from several threads at once. Made by `saccade.compile`."""

    def __init__(self, start: Callable[[], Engine], bundles: Bundles | None) -> None:
        self._start = start
        self._bundles = bundles
        self._lock = Lock()
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
        """All outputs by name, for inputs by name."""
        results = self._run(self._named((), inputs))
        return {info.name: result for info, result in zip(self.outputs, results, strict=True)}

    def plan(self, *args: Any, **shapes: Any) -> Plan:  # noqa: ANN401
        """The plan for these input shapes (tuples, by position or name); compiles nothing."""
        given = self._named(args, shapes)
        wanted = tuple(tuple(int(n) for n in given[i.name]) for i in self.inputs)
        return self._started().plan(wanted)

    def profile(self, *args: Any, repeat: int = 20, **kwargs: Any) -> Profile:  # noqa: ANN401
        """Time every step inside the running program, `repeat` times; medians."""
        arrays = self._arrays(self._named(args, kwargs))
        from saccade.profile import Profile  # noqa: PLC0415 - running needs none of it

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
            OptionError: If the device is not the CPU.
        """
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
        """The graph after a stage, as text."""
        stages = self._started().trace()
        if stage not in stages:
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
            return program
        with self._lock:
            if shapes not in self._programs:
                self._programs[shapes] = self._left(shapes) or self._build(shapes)
                if len(self._programs) > PLANS_KEPT:
                    self._programs.popitem(last=False)
            return self._programs[shapes]

    def _left(self, shapes: Shapes) -> Program | None:
        """A program that an earlier start left."""
        return self._bundles.program(shapes) if self._bundles is not None else None

    def _build(self, shapes: Shapes) -> Program:
        """A program of our own making; it prefers the code of those that are there."""
        program: Program = self._started().program(shapes, self._programs.values())
        return program

    def _started(self) -> Engine:
        """The engine; most warm starts never need it."""
        if self._engine is None:
            self._engine = self._start()
        return self._engine


def _as_numpy(info: TensorInfo, value: Any) -> Array:  # noqa: ANN401
    if not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError) as error:  # bfloat16, for one, which NumPy does not have
        given = getattr(value, "dtype", type(value).__name__)
        raise InputError(
            f"input {info.name!r} must be {info.dtype} of shape {_text(info.shape)}, "
            f"given is {given}, which NumPy cannot read: {error}"
        ) from error


def _as_array(info: TensorInfo, value: Any) -> Array:  # noqa: ANN401
    if not isinstance(value, np.ndarray):
        if not hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            raise InputError(f"input {info.name!r} is a {type(value).__name__}, not an array")
        detach = getattr(value, "detach", None)
        value = detach() if detach is not None else value
        device = getattr(value, "device", "cpu")
        if str(getattr(device, "type", device)) != "cpu":
            raise InputError(f"input {info.name!r} is on {device}, the model runs on the CPU")
        value = _as_numpy(info, value)
    if value.dtype != np.dtype(info.dtype):  # which the names of byte-swapped types hide
        raise InputError(
            f"input {info.name!r} must be {info.dtype} of shape {_text(info.shape)}, "
            f"given is {value.dtype if value.dtype.isnative else value.dtype.str} "
            f"of shape {_text(value.shape)}"
        )
    fits = len(value.shape) == len(info.shape) and all(
        isinstance(want, str) or want == have
        for want, have in zip(info.shape, value.shape, strict=True)
    )
    if not fits:
        raise InputError(
            f"input {info.name!r} must have shape {_text(info.shape)}, "
            f"given is {_text(value.shape)}"
        )
    return np.require(value, requirements=["C", "A"])


def _text(shape: Sequence[object]) -> str:
    return "x".join(map(str, shape)) or "scalar"
