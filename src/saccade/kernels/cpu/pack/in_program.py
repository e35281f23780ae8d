"""Kernels that want their weights packed, for weights that a run computes.

A kernel packs what is constant when a model is loaded. What the model computes itself (dynamic
convolutions, hypernetworks, the templates of trackers, weights that come as inputs) is packed in
the program: phases in front of the kernel's own, by the code that packs constants, into temporaries
that stand in for the packed constants.

    w -> phases of `pack.panels` -> Temp -> the kernel's phases

Weights may be stored in any order, in float32 or bfloat16; sums are those of float32 weights. They
may hold infinities and NaN, so the kernel is asked as for weights that are not finite: whether a
tap outside the image is a product must not depend on the team. Refuses: constant weights; what the
kernel refuses for weights that it knows; constants that there is no native packer for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, TypeGuard

from saccade.ir import Array, DType
from saccade.kernels.base import In, Launch, Operand, Packed, Packing, Scratch, Temp, Variant, View
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.pack.pack_tables import panels_in
from saccade.kernels.cpu.pack.panels_config import PackConfig, Panels

__all__ = ["InProgram"]

_WEIGHTS = 1  # the operand that is packed
_FLOATS = (DType.F32, DType.BF16)
# Microseconds that a core packs a byte of the result in: 0.1 ms for a MB where squares of vectors
# are transposed, some times that one by one (as for `pack.panels`, Zen 4).
_BY_ROWS, _BY_ELEMENTS = 1e-4, 4e-4


@dataclass(frozen=True, slots=True)
class InProgram:
    """What a kernel is that packs operand 1 and then does what another does with it.

    Attributes:
        kernel: The other one, whose operators have `finite`.
        config: Makes a config of the new kernel: of a phase that packs, with what `pack.panels`
            depends on and None; or of one of `kernel`, with None and what that depends on.
    """

    kernel: CpuKernel
    config: Callable[[PackConfig | None, Any], Any]

    def supports(self, call: CpuCall) -> str | None:
        """Why neither packing nor the kernel takes the call."""
        if call.constant[_WEIGHTS]:
            return "the weights are constant: they are packed once"
        weights = call.inputs[_WEIGHTS]
        if weights.dtype not in _FLOATS:
            return f"weights are {weights.dtype.value}"
        reason = self.kernel.supports(_known(call))
        if reason is None and next(iter(self.variants(call)), None) is None:
            return "no tile has weights that are packed in the program"
        return reason

    def variants(self, call: CpuCall) -> Iterator[Variant]:
        """The kernel's, each with the time of packing; without those of no native packer."""
        view, share = call.inputs[_WEIGHTS], 0.0
        for variant in self.kernel.variants(_known(call)):
            packings = _packings(variant.launches)
            if all(not one.nbytes or _panels(view, one) for one in packings):
                # The best one's share for all: selection takes it that the kernel's order holds.
                share = share or 1 + _micros(call, packings) / variant.micros
                build = partial(self._launches, view, variant)
                yield Variant(variant.micros * share, build, variant.rounding)

    def aliases(self, call: CpuCall) -> tuple[tuple[int, int], ...]:
        """The kernel's."""
        return self.kernel.aliases(_known(call))

    def _launches(self, weights: View, variant: Variant) -> tuple[Launch, ...]:
        phases = variant.launches
        used = [o.index for one in phases for o in one.operands.values() if isinstance(o, Temp)]
        free = max(used, default=-1) + 1
        temps = {
            packing: Temp(free + i, max(1, packing.nbytes))
            for i, packing in enumerate(_packings(phases))
        }
        before = [self._packing(weights, *pair) for pair in temps.items() if pair[0].nbytes]
        after = [
            replace(
                phase,
                config=self.config(None, phase.config),
                operands={n: _packed_here(o, temps) for n, o in phase.operands.items()},
            )
            for phase in phases
        ]
        return (*before, *after)

    def _packing(self, weights: View, packing: Packing, target: Temp) -> Launch:
        """The phase that fills a temporary with what the constant would hold."""
        (panels,) = _panels(weights, packing)
        assert panels.nbytes == packing.nbytes, packing
        described = _described(weights, packing)
        operands: dict[str, Operand] = {
            "source": In(_WEIGHTS),
            "lanes": _table("panel_lanes", described, panels.lanes),
            "beside": _table("panel_beside", described, panels.beside(range(panels.count))),
            "target": target,
            "tile": Scratch(panels.tile_bytes),
        }
        integers = panels.integers(panels.count, panels.strides(panels.count))
        return Launch(self.config(panels.config, None), operands, integers, panels.count)


def _known(call: CpuCall) -> CpuCall:
    """The call as if its weights were constants: row-major, and not finite.

    Where the input is float32 its products are, too, however the weights are stored; and weights in
    bfloat16 are summed in pairs with an input that is.
    """
    inputs, constant = list(call.inputs), list(call.constant)
    shape = inputs[_WEIGHTS].shape
    inputs[_WEIGHTS] = View(DType.F32, shape, _row_major(shape))
    constant[_WEIGHTS] = True
    op = replace(call.op, finite=False)
    return replace(call, op=op, inputs=tuple(inputs), constant=tuple(constant))


def _micros(call: CpuCall, packings: Sequence[Packing]) -> float:
    """Estimated microseconds of packing."""
    view = call.inputs[_WEIGHTS]
    byte = _BY_ROWS if view.strides == _row_major(view.shape) else _BY_ELEMENTS
    nbytes = sum(one.nbytes for one in packings)
    return machine(call.target).step * len(packings) + nbytes * byte / call.threads


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _packings(launches: Sequence[Launch]) -> tuple[Packing, ...]:
    """What the phases read of the weights, each once."""
    every = (operand for launch in launches for operand in launch.operands.values())
    return tuple(dict.fromkeys(o.packing for o in every if _reads_weights(o)))


def _reads_weights(operand: Operand) -> TypeGuard[Packed]:
    return isinstance(operand, Packed) and _WEIGHTS in operand.packing.inputs


def _packed_here(operand: Operand, temps: Mapping[Packing, Temp]) -> Operand:
    return temps[operand.packing] if _reads_weights(operand) else operand


def _described(weights: View, packing: Packing) -> tuple[Any, ...]:
    """The parameters of `panels_in`."""
    source = (weights.shape, weights.strides, weights.dtype.value)
    return (packing.function, *source, packing.parameters)


def _panels(weights: View, packing: Packing) -> tuple[Panels, ...]:
    return panels_in(*_described(weights, packing))


def _table(function: str, parameters: tuple[Any, ...], array: Array) -> Packed:
    return Packed(Packing(function, parameters, (), array.nbytes))
