"""What `compile` returns: call it, run it, look at its plan, profile it."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, overload

import numpy as np

from saccade import held, logs
from saccade.errors import InputError, OptionError
from saccade.locks import Lock, forkless, preload
from saccade.options import Options, check_repeat, check_seconds, usable_path
from saccade.shapes import as_shape
from saccade.signature import TensorInfo, by_name

if TYPE_CHECKING:
    from saccade import tuning
    from saccade.engine import Engine
    from saccade.plan import Plan
    from saccade.profile import Profile
    from saccade.program import (
        Arrays,
        DeviceBuffer,
        HostArray,
        HostResult,
        Program,
        Result,
        Store,
        T,
        Tensor,
        TensorResult,
    )
    from saccade.report import Report
    from saccade.tiling import Reach

__all__ = ["Model", "TensorInfo"]

PLANS_KEPT = 16

Shapes = tuple[tuple[int, ...], ...]
"""Of the inputs, in order."""


class Model:
    """A compiled model; may be called from several threads at once. Made by `saccade.compile`.

    It pickles by its source, and is compiled, or found in the cache, where it is read back.

    Attributes:
        made_by: Makes an equal one.
    """

    made_by: Callable[..., Model]

    def __init__(
        self,
        start: Callable[[], Engine],
        arrays: Arrays,
        store: Store | None,
        options: Options,
    ) -> None:
        self._start, self._options = start, options
        self._take, self._give = arrays.take, arrays.give
        self._clock, self._queued = arrays.clock, arrays.queued
        self._store = store
        # Two locks: `_program` starts the engine while it holds the first.
        self._lock, self._starting = Lock(), Lock()
        self._engine: Engine | None = None
        self._programs: OrderedDict[Shapes, Program] = OrderedDict()
        # With what an earlier start kept, the engine need not start.
        signature = store.signature() if store is not None else None
        if signature is None:
            signature = self._started().signature
        self.inputs, self.outputs = signature.inputs, signature.outputs
        self._holds = any(info.held for info in (*self.inputs, *self.outputs))

    def __reduce__(self) -> tuple[Callable[[], Model], tuple[()]]:
        return self.made_by, ()

    def __repr__(self) -> str:
        sides = (", ".join(info.text for info in side) for side in (self.inputs, self.outputs))
        return f"<saccade.Model: {' -> '.join(sides)}>"

    # A tuple where the model has several outputs, which no type can tell: the checker shows arrays
    # and lets what it cannot know pass.
    @overload
    def __call__(self, *args: HostArray, **kwargs: HostArray) -> HostResult: ...
    @overload
    def __call__(self, *args: Tensor[T], **kwargs: Tensor[T]) -> TensorResult[T]: ...
    @overload
    def __call__(self, *args: object, **kwargs: object) -> Result: ...
    def __call__(self, *args: object, **kwargs: object) -> Result:
        """Run on inputs by position or by name.

        One output gives an array, several a tuple in the file's order.

        NumPy arrays give NumPy arrays, PyTorch tensors PyTorch tensors. Inputs are never written
        to, outputs belong to the caller.

        Raises:
            InputError: If an input is missing, unknown, or does not fit.
        """
        results = self._run(self._named(args, kwargs))
        return results[0] if len(results) == 1 else results

    @overload
    def run(self, inputs: Mapping[str, HostArray]) -> dict[str, HostResult]: ...
    @overload
    def run(self, inputs: Mapping[str, Tensor[T]]) -> dict[str, TensorResult[T]]: ...
    @overload
    def run(self, inputs: Mapping[str, object]) -> dict[str, Result]: ...
    def run(self, inputs: Mapping[str, object]) -> dict[str, Result]:
        """All outputs by name, for inputs by name.

        Raises:
            InputError: As of a call, or if the inputs are not given by name.
        """
        if not isinstance(inputs, Mapping):
            raise InputError(f"run takes a mapping, inputs by name, not a {type(inputs).__name__}")
        results = self._run(self._named((), inputs))
        return {info.name: result for info, result in zip(self.outputs, results, strict=True)}

    def plan(self, *args: object, **shapes: object) -> Plan:
        """The plan for these input shapes (tuples, by position or name); compiles nothing.

        Raises:
            InputError: If they are no shapes, or do not fit the model.
        """
        return self._started().plan(self._shapes(self._named(args, self._with_held(args, shapes))))

    def assembly(
        self, steps: str, /, *args: object, **shapes: object
    ) -> dict[str, tuple[str, ...]]:
        """Machine code of the steps whose names fit a pattern, as text by name, a text a phase.

        It is made for the machine that is planned for, which need not be this one.

        Args:
            steps: Pattern of names: `"*"` for all, `"conv?"`, `"layer1/*"`.
            *args: Input shapes (tuples) by position.
            **shapes: The same by name.

        Raises:
            InputError: If no step fits, if shapes are none, or do not fit the model.
            OptionError, CompileError: If the device has no code, or a kernel cannot be compiled.
        """
        return self._started().assembly(self.plan(*args, **shapes), steps)

    def profile(self, *args: object, repeat: int = 20, **kwargs: object) -> Profile:
        """Time every step inside the running program, `repeat` times; medians.

        Raises:
            InputError: If an input does not fit.
            OptionError: If `repeat` is not 1 to 2²⁰.
        """
        check_repeat(repeat)
        named = self._named(args, kwargs)
        arrays = self._arrays(named)
        with forkless:
            from saccade.profile import Profile, whole_run  # noqa: PLC0415 - running needs none
        preload("numpy.ma")  # which medians import
        program = self._program(tuple(a.shape for a in arrays))
        with held.given(self.inputs, named):
            readings = program.profile(arrays, repeat)
            whole = whole_run(lambda: program.run(arrays), self._clock, self._queued)
        return Profile.of(program.plan, readings, program.speeds(), program.facts(), whole)

    def report(
        self,
        *args: object,
        title: str = "MODEL",
        repeat: int = 20,
        seconds: float = 2.0,
        **kwargs: object,
    ) -> Report:
        """A profile, the times of whole runs, and all that explains them, to look at in a browser.

        Args:
            *args: Inputs by position.
            title: What it is called, and what its commands name: the model's file.
            repeat: Runs of the profile.
            seconds: How long whole runs are timed for; a few are in any case.
            **kwargs: Inputs by name.

        Raises:
            InputError: If an input does not fit.
            OptionError: If `repeat` is not 1 to 2²⁰, or `seconds` is negative or no number.
        """
        check_seconds(seconds)
        with forkless:
            from saccade.report.collect import clocked, report_of  # noqa: PLC0415 - see `profile`

        profile = self.profile(*args, repeat=repeat, **kwargs)
        named = self._named(args, kwargs)
        arrays = self._arrays(named)
        program = self._program(tuple(a.shape for a in arrays))
        with held.given(self.inputs, named):
            times = clocked(lambda: program.run(arrays), self._clock, self._queued, seconds)
        return report_of(title, profile, times, self._options, self._started)

    def tune(
        self,
        *args: object,
        seconds: float | None = None,
        report: Callable[[tuning.Progress], None] = lambda _progress: None,
        **kwargs: object,
    ) -> tuning.Outcome:
        """Measure other variants for each step on these inputs, and keep those that are faster.

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
            OptionError: If the device cannot be tuned, or `seconds` is negative or no number.
            DeviceError: If there is no GPU, or it was lost; what was measured is kept.
        """
        check_seconds(seconds)
        named = self._named(args, kwargs)
        arrays = self._arrays(named)
        with held.given(self.inputs, named):
            outcome = self._started().tune(arrays, seconds, report)
        # Not while it searches: others go on with the programs of before.
        with self._lock:
            self._store = None  # programs there were built with the choices of before
            self._programs.clear()
        return outcome

    def warm(self, *shapes: Mapping[str, object]) -> None:
        """Have programs ready: in this process, and on disk for later ones if caches are used.

        Args:
            *shapes: For each program the inputs' shapes by name; none for a model whose shapes are
                all fixed.

        Raises:
            InputError: If shapes do not fit the model.
            PlanError: If they fit, but some step cannot work on them.
        """
        for given in shapes or ({},):
            sizes = self._sizes("warm", given)
            self._program(sizes)
            self._program(sizes)  # what is asked for again is kept on disk

    def save(
        self,
        path: str | os.PathLike[str],
        *shapes: Mapping[str, object],
        machines: Sequence[str] = (),
    ) -> int:
        """Write one file from which `saccade.compile` runs the model where no compiler is.

        Args:
            path: The file.
            *shapes: For each program in it the inputs' shapes by name; `{}` where all are fixed.
            machines: CPUs that it is for (`compile`'s `machine`) in place of this one. A processor
                runs the programs of the one that it counts as, or the best that it can.

        Returns:
            Its size in bytes.

        Raises:
            InputError: If shapes do not fit the model.
            OptionError: If there are none, no such file or machine, or the device has no bundles.
            OSError: If it cannot be written.
        """
        if not shapes:
            raise OptionError("save needs the inputs' shapes, once for each program in the file")
        if (target := usable_path(path)) is None:
            raise OptionError(f"{path!r} cannot be the path of a file")
        sizes = [self._sizes("save", given) for given in shapes]
        width = self._options.resolved_threads
        others = [self.made_by(machine=name, threads=width)._started() for name in machines]
        return self._started().bundle(target, sizes, others)

    def run_bytes(self, **shapes: object) -> int:
        """Bytes that a run of these shapes takes beside constants, whatever was compiled before."""
        return self._started().run_bytes(self._shapes(self._named((), shapes)))

    @property
    def algorithms(self) -> tuning.Algorithms:
        """The tuned choices, of all sizes: from a file, or what `tune` kept."""
        return self._started().algorithms

    @property
    def remarks(self) -> tuple[str, ...]:
        """What there is to say of the model, whatever its sizes: what ONNX's reference does."""
        return self._started().graph.remarks

    @property
    def reach(self) -> Reach:
        """What of its image each part of the result depends on (`saccade.vision.tiled` uses it).

        Raises:
            OptionError: If it is no model from one image to one other, or a bundle.
        """
        with forkless:
            from saccade.tiling import Reach  # noqa: PLC0415 - few ask
        return Reach(self._started().graph)

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

    def _shapes(self, given: Mapping[str, object]) -> Shapes:
        """Shapes of all inputs, in order."""
        named = self._named((), given)
        return tuple(() if i.held else as_shape(i, named[i.name]) for i in self.inputs)

    def _sizes(self, caller: str, given: object) -> Shapes:
        """The same by the shapes of those inputs that the file leaves a choice for."""
        if not isinstance(given, Mapping):
            raise InputError(f"{caller} takes shapes by name in mappings, not {given!r}")
        fixed = (one for one in self.inputs if all(isinstance(size, int) for size in one.shape))
        named = {one.name: one.shape for one in fixed} | dict(given)
        return self._shapes(self._with_held((), named))

    def _run(self, given: Mapping[str, object]) -> tuple[Result, ...]:
        arrays = self._arrays(given)
        program = self._program(tuple(a.shape for a in arrays))
        if not self._holds:
            return self._give(program.run(arrays), given.values())
        with held.given(self.inputs, given):
            results = program.run(arrays)
            plain = self._give(results, given.values())
            each = zip(self.outputs, results, plain, strict=True)
            return tuple(
                held.get(int(np.asarray(handle))) if info.held else result
                for info, handle, result in each
            )

    def _with_held(self, args: Sequence[object], shapes: Mapping[str, object]) -> dict[str, object]:
        """Shapes by name; what no memory holds has none, and needs none."""
        rest = (info.name for info in self.inputs[len(args) :] if info.held)
        return {**dict.fromkeys(rest, ()), **shapes}

    def _named(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        return by_name(self.inputs, args, kwargs)

    def _arrays(self, given: Mapping[str, object]) -> list[DeviceBuffer]:
        return [
            np.array(place) if info.held else self._take(info, given[info.name])
            for place, info in enumerate(self.inputs)
        ]

    def _program(self, shapes: Shapes) -> Program:
        # Without the lock: sizes that are known must not wait until another one is built.
        program = self._programs.get(shapes)
        if program is not None:
            with suppress(KeyError):  # another caller may have dropped it meanwhile
                self._programs.move_to_end(shapes)
            # A size that comes again is worth keeping on disk.
            program.asked_again()
            return program
        with self._lock:
            # Another caller may have built it while this one waited.
            if shapes not in self._programs:
                # Of an earlier start, or of our own making, which prefers the code of others.
                left = None if self._store is None else self._store.program(shapes)
                logs.debug("inputs %s: %s", shapes, "left by a start" if left else "to be built")
                made = left or self._started().program(shapes, self._programs.values())
                self._programs[shapes] = made
                if len(self._programs) > PLANS_KEPT:
                    self._programs.popitem(last=False)
            return self._programs[shapes]

    def _started(self) -> Engine:
        """The engine; most warm starts never need it."""
        with self._starting:
            if self._engine is None:
                self._engine = self._start()
            return self._engine
