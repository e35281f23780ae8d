"""Phases that add up gradients plane by plane: a chunk is one channel of one picture.

The plane is kept in scratch, as float32 or float64; a chunk adds what each box of its picture gives
to it, in the boxes' order, and writes it once, zeros included. So nothing is added by two threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import Kernel, Ptr
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu.floats import lanes_of, store
from saccade.kernels.cpu.roi.box_operands import Order

__all__ = ["Planes", "plane_integers"]


@dataclass(frozen=True, slots=True)
class Planes:
    """Integer parameters of the phase, with the prefix `plane_`.

    Attributes:
        pictures, channels, pixels: How many planes of which size.
        picture_step, channel_step, start: Where they lie in the result, whose planes are dense.
    """

    pictures: Int
    channels: Int
    pixels: Int
    picture_step: Int
    channel_step: Int
    start: Int

    def each(
        self,
        k: Kernel,
        out: Ptr,
        plane: Ptr,
        order: Order,
        add: Callable[[Int, Int], None],
        first: Int | int = 0,
    ) -> None:
        """Emit the phase.

        Args:
            k: Builder.
            out: The result.
            plane: Scratch for a plane and a vector more.
            order: Boxes by picture.
            add: `add(channel, at)` emits what the box at that place gives to the plane.
            first: The first of the pictures.
        """
        with k.chunks(self.pictures * self.channels) as chunk:
            picture, channel = chunk // self.channels, chunk % self.channels
            lanes = lanes_of(k, plane.element)
            zero = k.zero(lanes, plane.element)
            with k.range(0, self.pixels, lanes) as at:
                plane.store(zero, at)
            own = picture + first
            with k.range(order.start(own), order.start(own + 1)) as at:
                add(channel, at)
            to = out + (self.start + picture * self.picture_step + channel * self.channel_step)
            whole = self.pixels // lanes * lanes
            with k.range(0, whole, lanes) as at:
                store(k, to, plane.vec(at, None, lanes), at)
            with k.when(whole < self.pixels):
                rest = plane.vec(whole, None, lanes)
                store(k, to, rest, whole, k.first(self.pixels - whole, lanes))


def plane_integers(
    pictures: int, channels: int, pixels: int, steps: tuple[int, int, int]
) -> dict[str, int]:
    """The values of `Planes`."""
    return {
        "plane_pictures": pictures,
        "plane_channels": channels,
        "plane_pixels": pixels,
        "plane_picture_step": steps[0],
        "plane_channel_step": steps[1],
        "plane_start": steps[2],
    }
