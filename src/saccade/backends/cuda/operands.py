"""What the launches of one step are given when they are timed apart from the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from saccade.backends.cuda.cubins import CodeKey, code_key
from saccade.backends.cuda.runtime.gauge import Region
from saccade.ir import Array, DType
from saccade.kernels.base import Launch, Out, Packing, Temp
from saccade.kernels.bind import Binder, Phase, Ref
from saccade.kernels.cuda.packing import FUNCTIONS
from saccade.layout import BufferKind, GraphLayout, StepLayout, Stored

__all__ = ["BoundVariant", "StepOperands", "TypesOfPacked"]

_ALIGNMENT = 256  # bytes, as of arenas
_KEPT = 64 << 10  # bytes of a constant of floats up to which it is what it is


class BoundVariant(NamedTuple):
    """A variant over regions of memory (`runtime.gauge`), and what code it needs."""

    phases: tuple[Phase, ...]
    keys: tuple[CodeKey, ...]


class TypesOfPacked:
    """Element types of packed constants, found out by packing one of each kind.

    Args:
        constants: Of the model, by name.
    """

    def __init__(self, constants: Mapping[str, Array]) -> None:
        self._constants = constants
        self._known: dict[object, DType] = {}

    def of(self, packing: Packing, names: Sequence[str]) -> DType:
        """That of a packing of these constants."""
        sources = [self._constants[name] for name in names]
        # The type hangs on names and types alone, not on sizes: one of each kind speaks for all.
        words = tuple(p for p in packing.parameters if isinstance(p, str))
        kind = packing.function, words, tuple(array.dtype for array in sources)
        if kind not in self._known:
            self._known[kind] = DType.of(self.packed(packing, names).dtype)
        return self._known[kind]

    def packed(self, packing: Packing, names: Sequence[str]) -> Array:
        """The packed constant."""
        sources = [self._constants[name] for name in names]
        return FUNCTIONS[packing.function](*sources, *packing.parameters)


@dataclass
class StepOperands:
    """`saccade.kernels.bind.Places` for the variants for one step, which share its operands.

    Operands begin as many bytes behind a multiple of 256 as in the program. Weights are random
    floats like other operands; constants that are small, or no floats, are what they are.

    Attributes:
        laid: Says where the step's operands lie.
        step: Whose.
        constants: Of the model, by name.
        types: Of what is packed.
        regions: So far.
    """

    laid: GraphLayout
    step: StepLayout
    constants: Mapping[str, Array]
    types: TypesOfPacked
    regions: list[Region] = field(default_factory=list)
    _known: dict[object, int] = field(default_factory=dict)
    _temps: Mapping[int, int] = field(default_factory=dict)
    _variant: int = -1

    def bind(self, kernel: str, launches: Sequence[Launch]) -> BoundVariant:
        """A variant over regions; those of earlier ones stay."""
        binder = Binder(1, alignment=_ALIGNMENT)
        self._variant += 1
        self._temps = binder.workspace(launches).temps
        phases = tuple(binder.phase(launch, self) for launch in launches)
        return BoundVariant(phases, tuple(code_key(kernel, phase) for phase in phases))

    def input(self, index: int) -> Ref:
        """An operand; equal ones are one."""
        stored = self.step.inputs[index]
        buffer = self.laid.buffers[stored.buffer]
        if buffer.kind is not BufferKind.CONSTANT:
            return self._view(stored, stored, read=True)
        nbytes = stored.view.extent * stored.view.dtype.itemsize
        if buffer.name not in self._known:
            array = (
                self.constants[buffer.name]
                if buffer.made is None
                else self.types.packed(*buffer.made)
            )
            self._add(buffer.name, _constant_region(array))
        return Ref(self._known[buffer.name], stored.offset, nbytes)

    def output(self, index: int) -> Ref:
        """A result."""
        return self._view(Out(index), self.step.outputs[index], read=False)

    def packed(self, packing: Packing) -> Ref:
        """A packed constant."""
        if packing not in self._known:
            names = [self._constant_name(index) for index in packing.inputs]
            kind = self.types.of(packing, names)
            # Random floats take as long as the packed ones, which are not worth making.
            if kind.is_float:
                self._add(packing, Region(packing.nbytes, noise=kind.value))
            else:
                content = np.ascontiguousarray(self.types.packed(packing, names)).tobytes()
                self._add(packing, Region(packing.nbytes, content))
        return Ref(self._known[packing], 0, packing.nbytes)

    def temp(self, operand: Temp) -> Ref:
        """A temporary of this variant."""
        key = self._variant, operand.index
        if key not in self._known:
            self._add(key, Region(self._temps[operand.index], read=False))
        return Ref(self._known[key], 0, operand.nbytes)

    def scratch(self, before: int, nbytes: int) -> Ref:
        """Memory of threads, which programs of a grid have not."""
        raise NotImplementedError(f"{nbytes} bytes of scratch behind {before}")

    def _constant_name(self, index: int) -> str:
        return self.laid.buffers[self.step.inputs[index].buffer].name

    def _view(self, key: object, stored: Stored, *, read: bool) -> Ref:
        """Memory of a view, which may reach to before its first element."""
        view, size = stored.view, stored.view.dtype.itemsize
        before = sum(-(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True) if s < 0)
        offset, nbytes = stored.offset % _ALIGNMENT + before * size, view.extent * size
        if key not in self._known:
            noise = view.dtype.value if read and view.dtype.is_float else ""
            self._add(key, Region(stored.offset % _ALIGNMENT + nbytes, noise=noise, read=read))
        return Ref(self._known[key], offset, nbytes)

    def _add(self, key: object, region: Region) -> None:
        self._known[key] = len(self.regions)
        self.regions.append(region)


def _constant_region(array: Array) -> Region:
    """A constant as it is in the model; a large one of floats as random ones."""
    if DType.of(array.dtype).is_float and array.nbytes > _KEPT:
        return Region(array.nbytes, noise=DType.of(array.dtype).value)
    return Region(array.nbytes, np.ascontiguousarray(array).tobytes())
