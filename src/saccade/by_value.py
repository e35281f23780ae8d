"""Models that are others for each value, or for each size, of their inputs: compiled for each."""

from __future__ import annotations

import operator
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from saccade.errors import (
    InputError,
    ModelError,
    OptionError,
    PlanError,
    UnsupportedModelError,
)
from saccade.locks import Lock
from saccade.model import Model
from saccade.signature import Signature, TensorInfo, shape_text

if TYPE_CHECKING:
    from saccade import tuning
    from saccade.ir import Array
    from saccade.plan import Plan
    from saccade.profile import Profile
    from saccade.program import Result
    from saccade.report import Report

__all__ = ["ByValueModel"]

_KEPT, _KEPT_SIZED = 64, 8
"""Models, each with the programs of its own sizes; fewer where there is one for each size of an
image, with weights of its own."""


class ByValueModel(Model):
    """A model that is another one for each value of some of its inputs, or for each size.

    Where the base class asks for shapes, inputs whose values decide are given as arrays.

    Args:
        names: Of these inputs.
        signature: Of the model, with them.
        make: The model for what is known of inputs by name: values, with which they are no inputs,
            or shapes, where None leaves an axis open.
        sized: Whether there is another one for each size of the other inputs, too.

    Attributes:
        values: Names of the inputs whose values decide shapes.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        signature: Signature,
        make: Callable[[Mapping[str, Array | tuple[int | None, ...]]], Model],
        *,
        sized: bool = False,
    ) -> None:
        self.inputs, self.outputs = signature.inputs, signature.outputs
        self.values = names
        self._infos = {info.name: info for info in self.inputs if info.name in names}
        others = [info for info in self.inputs if info.name not in names]
        self._sized = {info.name: info for info in others if not info.held} if sized else {}
        self._make = make
        # Most models are the same for any number of images, if not for any size of them.
        self._counted = bool(self._sized)
        self._models: OrderedDict[tuple[object, ...], Model] = OrderedDict()
        self._lock = Lock()

    def plan(self, *args: object, **shapes: object) -> Plan:
        """See the base class."""
        model, rest = self._part(self._named(args, self._with_held(args, shapes)))
        return model.plan(**rest)

    def assembly(
        self, steps: str, /, *args: object, **shapes: object
    ) -> dict[str, tuple[str, ...]]:
        """See the base class."""
        model, rest = self._part(self._named(args, shapes))
        return model.assembly(steps, **rest)

    def profile(self, *args: object, repeat: int = 20, **kwargs: object) -> Profile:
        """See the base class."""
        model, rest = self._part(self._named(args, kwargs))
        return model.profile(repeat=repeat, **rest)

    def report(
        self,
        *args: object,
        title: str = "MODEL",
        repeat: int = 20,
        seconds: float = 2.0,
        **kwargs: object,
    ) -> Report:
        """See the base class."""
        model, rest = self._part(self._named(args, kwargs))
        return model.report(title=title, repeat=repeat, seconds=seconds, **rest)

    def tune(
        self,
        *args: object,
        seconds: float | None = None,
        report: Callable[[tuning.Progress], None] = lambda _progress: None,
        **kwargs: object,
    ) -> tuning.Outcome:
        """See the base class."""
        model, rest = self._part(self._named(args, kwargs))
        return model.tune(seconds=seconds, report=report, **rest)

    def warm(self, *shapes: Mapping[str, object]) -> None:
        """See the base class; inputs whose values decide are given as arrays."""
        for given in shapes or ({},):
            if not isinstance(given, Mapping):
                raise InputError(f"warm takes shapes by name in mappings, not {given!r}")
            model, rest = self._part(self._named((), self._with_held((), given)))
            model.warm(rest)

    def run_bytes(self, **shapes: object) -> int:
        """See the base class; inputs whose values decide are given as arrays."""
        model, rest = self._part(self._named((), shapes))
        return model.run_bytes(**rest)

    def save(
        self,
        path: str | os.PathLike[str],
        *shapes: Mapping[str, object],
        machines: Sequence[str] = (),
    ) -> int:
        """Refused: a bundle holds programs for shapes.

        Raises:
            OptionError: Always.
        """
        raise OptionError(
            f"no bundle can be made of this model: {self._deciding()} decide what it computes; "
            "make them constants of the file"
        )

    def _deciding(self) -> str:
        kinds = (("values", self._infos), ("sizes", self._sized))
        return " and ".join(f"{kind} of {', '.join(found)}" for kind, found in kinds if found)

    @property
    def algorithms(self) -> tuning.Algorithms:
        """There are none of all values together.

        Raises:
            OptionError: Always.
        """
        raise OptionError(f"{self._deciding()} decide what is computed: choices are those of each")

    @property
    def reach(self) -> Never:
        """There is no graph of all values together.

        Raises:
            OptionError: Always.
        """
        raise OptionError(f"{self._deciding()} decide the graph: there are no tiles")

    @property
    def remarks(self) -> tuple[str, ...]:
        """Those are of each."""
        return ()

    @property
    def stages(self) -> tuple[str, ...]:
        """There is no graph of all values together."""
        return ()

    def graph(self, stage: str) -> str:
        """See `stages`.

        Raises:
            InputError: Always.
        """
        raise InputError(f"there is no stage {stage!r}: {self._deciding()} decide the graph")

    def _run(self, given: Mapping[str, object]) -> tuple[Result, ...]:
        model, rest = self._part(given)
        return model._run(rest)

    def _part(self, given: Mapping[str, object]) -> tuple[Model, dict[str, object]]:
        """The model for these values and sizes, and its inputs.

        Raises:
            InputError: If values or sizes do not fit.
            ModelError: If the file holds for other sizes alone.
        """
        values = {name: self._value(name, given[name]) for name in self._infos}
        sizes = {name: _shape(info, given[name]) for name, info in self._sized.items()}
        rest = {name: value for name, value in given.items() if name not in values}
        known = tuple((array.shape, array.tobytes()) for array in values.values())
        with self._lock:
            if self._counted:
                free = {name: self._uncounted(name, shape) for name, shape in sizes.items()}
                with suppress(ModelError, PlanError):
                    return self._kept((known, *free.values()), {**values, **free}), rest
            try:
                model = self._kept((known, *sizes.values()), {**values, **sizes})
            except UnsupportedModelError:
                raise
            except ModelError as error:
                if not sizes:
                    raise
                told = ", ".join(f"{name}={shape_text(shape)}" for name, shape in sizes.items())
                raise ModelError(f"the file does not hold for {told}: {error}") from error
            self._counted = False
            return model, rest

    def _kept(
        self, key: tuple[object, ...], known: Mapping[str, Array | tuple[int | None, ...]]
    ) -> Model:
        """The model of a key, made if it is not there."""
        if key not in self._models:
            self._models[key] = self._make(known)
            if len(self._models) > (_KEPT_SIZED if self._sized else _KEPT):
                self._models.popitem(last=False)
        self._models.move_to_end(key)
        return self._models[key]

    def _uncounted(self, name: str, shape: tuple[int, ...]) -> tuple[int | None, ...]:
        """A shape whose first axis is open if the file leaves it so."""
        own = self._sized[name].shape
        return (None, *shape[1:]) if len(own) > 1 and isinstance(own[0], str) else shape

    def _value(self, name: str, value: object) -> Array:
        """An array of its own.

        Raises:
            InputError: If it is none, or does not fit the input.
        """
        info = self._infos[name]
        try:
            array = np.array(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"input {name!r} must be an array on the host: {error}") from None
        fits = len(array.shape) == len(info.shape) and all(
            not isinstance(size, int) or size == given
            for size, given in zip(info.shape, array.shape, strict=True)
        )
        if array.dtype.name != info.dtype or not fits:
            raise InputError(
                f"input {name!r}, whose values decide shapes, must be an array of {info.dtype} and "
                f"shape {list(info.shape)}, given is {array.dtype} {list(array.shape)}"
            )
        return array


def _shape(info: TensorInfo, value: object) -> tuple[int, ...]:
    """The shape of an array, or a shape itself.

    Raises:
        InputError: If it is none, or does not fit the input.
    """
    try:
        given: Any = getattr(value, "shape", value)
        shape = tuple(map(operator.index, given))
    except TypeError:
        raise InputError(f"input {info.name!r} must be an array or a shape") from None
    fits = len(shape) == len(info.shape) and all(
        size >= 0 and (not isinstance(wanted, int) or size == wanted)
        for wanted, size in zip(info.shape, shape, strict=True)
    )
    if not fits:
        raise InputError(
            f"input {info.name!r} must be of shape {list(info.shape)}, given is {list(shape)}"
        )
    return shape
