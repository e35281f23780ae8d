"""Some images of a call for gradients of deformable convolution, with their temporaries."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Temp, View
from saccade.kernels.cuda.base import CudaCall
from saccade.kernels.cuda.deform.gradient_config import (
    CudaDeformGradientConfig,
    GradientTile,
    phase_launch,
)
from saccade.kernels.cuda.deform.gradient_sizes import GradientSizes

__all__ = ["GradientPiece", "ProductTiles", "axis_strides", "plan_strides"]

ProductTiles = tuple[GradientTile, GradientTile]
"""Of the columns and of the weights' gradient."""
_TEMPS = (
    "packed", "counts", "start", "cells", "below", "beyond", "factor", "arrival", "found", "row",
    "weight", "kept", "x", "grad", "parts", "sums", "corners", "slots",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GradientPiece:
    """What the phases of some images are planned from.

    Attributes:
        call: The call.
        sizes: Its sizes.
        first: The first image.
        images: How many.
        tiles: Of the products.
    """

    call: CudaCall
    sizes: GradientSizes
    first: int
    images: int
    tiles: ProductTiles

    @property
    def pixels(self) -> int:
        """Of all its images of the result."""
        return self.images * self.sizes.pixels

    @property
    def samples(self) -> int:
        """Of all its images."""
        return self.images * self.sizes.samples

    @property
    def buckets(self) -> int:
        """Cells of all images and offset groups."""
        return self.images * self.sizes.op.offset_groups * self.sizes.cells

    @property
    def double(self) -> bool:
        """Whether sums are float64."""
        return self.sizes.wide is DType.F64

    def temp(self, name: str, count: int, itemsize: int = 4) -> Temp:
        """A temporary of the call."""
        return Temp(_TEMPS.index(name), max(16, count * itemsize))

    @property
    def slots(self) -> Temp:
        """Of what is largest, where products are in parts."""
        return self.temp("slots", 4)

    def tables(self) -> dict[str, Operand]:
        """Where samples are."""
        wide = self.sizes.wide.itemsize
        sizes = {"cells": 4, "below": wide, "beyond": wide, "factor": wide}
        return {name: self.temp(name, self.samples, size) for name, size in sizes.items()}

    def map_of(self, name: str) -> tuple[Operand, View, int]:
        """One of the maps x and grad, channels last: where, how, which image is the first."""
        at, view = (1, self.sizes.x) if name == "x" else (0, self.sizes.grad)
        if not self.sizes.copied(name):
            return In(at), view, self.first
        _, channels, rows, columns = view.shape
        strides = (rows * columns * channels, 1, columns * channels, channels)
        count = self.images * rows * columns * channels
        temp = self.temp(name, count, view.dtype.itemsize)
        return temp, view._replace(strides=strides), 0

    def result(self, name: str) -> tuple[Operand, View]:
        """A result, or what is not written in place of one that is not wanted."""
        wanted = self.sizes.op.wanted
        if name in wanted:
            return Out(wanted.index(name)), self.call.outputs[wanted.index(name)]
        return In(3), self.sizes.offset

    def integers(self) -> dict[str, int]:
        """What several phases are told."""
        sizes, op = self.sizes, self.sizes.op
        return {
            "number": self.samples, "pixels": self.pixels, "first_image": self.first,
            "p": sizes.grad.shape[2], "q": sizes.grad.shape[3],
            "h": sizes.x.shape[2], "wd": sizes.x.shape[3], "offset_groups": op.offset_groups,
            "taps": sizes.taps, "image_cells": sizes.cells, "buckets": self.buckets,
            "shared": sizes.shared, "segment": sizes.segment, "c": sizes.channels,
            "k": sizes.outputs, "outputs": sizes.weight.shape[0], "columns": sizes.weight.shape[3],
            "again": int(self.first > 0),
            "plane": self.images * sizes.pixels * sizes.weight.shape[0],  # of grad
        }  # fmt: skip

    def launch(
        self, config: CudaDeformGradientConfig, operands: dict[str, Operand], chunks: int,
        **integers: int,
    ) -> Launch:  # fmt: skip
        """A phase: its own integers, else those that several have."""
        return phase_launch(config, operands, {**self.integers(), **integers}, chunks)

    def maps(self) -> tuple[dict[str, Operand], dict[str, int]]:
        """The result's gradient and x, as products read them."""
        grad, grad_view, grad_image = self.map_of("grad")
        x, x_view, x_image = self.map_of("x")
        integers = {
            "g_n": grad_view.strides[0], "g_p": grad_view.strides[2], "g_q": grad_view.strides[3],
            "x_n": x_view.strides[0], "x_h": x_view.strides[2], "x_w": x_view.strides[3],
            "g_image": grad_image, "x_image": x_image,
        }  # fmt: skip
        return {"grad": grad, "x": x}, integers


def axis_strides(prefix: str, axes: str, strides: tuple[int, ...]) -> dict[str, int]:
    """Integers `prefix_axis`, an axis being a letter."""
    return {f"{prefix}_{axis}": stride for axis, stride in zip(axes, strides, strict=True)}


def plan_strides(prefix: str, view: View) -> dict[str, int]:
    """Those of offsets, masks and their gradients."""
    return axis_strides(prefix, "ncpq", view.strides)
