"""Sums of a convolution's rows, taken where the rows are made, before they leave the registers.

A row is summed by whoever computes it, pixel by pixel in order, so sums do not depend on how the
image is cut into chunks.
"""

from __future__ import annotations

from dataclasses import replace

from saccade.backends.cpu.codegen.language import KernelBuilder, Var
from saccade.backends.cpu.codegen.values import Int
from saccade.backends.cpu.fusions import RowSums
from saccade.kernels.base import Operand, Out, per_call
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.conv2d.epilogue import VectorPlace
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS

__all__ = ["RowTotals", "SumsSpec", "conv_call"]


def conv_call(call: CpuCall) -> CpuCall:
    """The convolution alone, without the sums of its rows."""
    return _alone(call) if isinstance(call.op, RowSums) else call


@per_call
def _alone(call: CpuCall) -> CpuCall:
    return replace(call, op=call.op.conv, outputs=call.outputs[:1])


class SumsSpec:
    """Where the sums of a call go, if it has any.

    Args:
        call: Of the convolution or of `RowSums`.
    """

    def __init__(self, call: CpuCall) -> None:
        self._view = call.outputs[1] if isinstance(call.op, RowSums) else None

    def refuse(self) -> str | None:
        """Why they cannot be stored, or None."""
        view = self._view
        if view is None or (view.dtype in FLOATS and (view.strides[1] == 1 or view.shape[1] == 1)):
            return None
        return "sums of rows are not float32 or bfloat16 with neighbouring channels"

    @property
    def code(self) -> str:
        """What the code depends on: the type of the sums, empty without any."""
        return "" if self._view is None else self._view.dtype.value

    def pointers(self) -> dict[str, Operand]:
        """Operands of the pointers that `RowTotals` declares."""
        return {} if self._view is None else {"sums": Out(1)}

    def integers(self) -> dict[str, int]:
        """Values of the integers that it declares."""
        if self._view is None:
            return {}
        return {"sums_n": self._view.strides[0], "sums_h": self._view.strides[2]}


class RowTotals:
    """Emits the sums.

    Args:
        k: Builder.
        code: `SumsSpec.code`.
    """

    def __init__(self, k: KernelBuilder, code: str) -> None:
        self.k = k
        self._out = k.pointer("sums", code) if code else None

    def declare_integers(self) -> None:
        """Declare the integer parameters of `SumsSpec.integers`."""
        if self._out is not None:
            self._n, self._h = self.k.integers("sums_n sums_h")

    def begin(self, lanes: int | None = None) -> Var | None:
        """The sum of a row of a vector of so many lanes, so far of none of its pixels."""
        return None if self._out is None else self.k.var(self.k.zero(lanes))

    def end(self, total: Var | None, image: Int, row: Int, place: VectorPlace) -> None:
        """Store the sum of a row for one vector of channels."""
        if total is not None:
            assert self._out is not None
            at = self._n * image + self._h * row + place.channel
            self._out.store(total.get(), at, place.mask)
