"""Phases that add up gradients plane by plane: a chunk is one channel of one image.

The plane is kept in scratch, as float32 or float64; a chunk adds what each box of its image gives
to it, in the boxes' order, and writes it once, zeros included. So nothing is added by two threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu.floats import lanes_of, store
from saccade.kernels.cpu.roi.box_operands import Order

__all__ = ["Planes", "plane_integers"]


@dataclass(frozen=True, slots=True)
class Planes:
    """Integer parameters of the phase, with the prefix `plane_`.

    Attributes:
        images, channels, pixels: How many planes of which size.
        image_step, channel_step, start: Where they lie in the result, whose planes are dense.
    """

    images: Int
    channels: Int
    pixels: Int
    image_step: Int
    channel_step: Int
    start: Int

    def each(
        self,
        k: KernelBuilder,
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
            order: Boxes by image.
            add: `add(channel, at)` emits what the box at that place gives to the plane.
            first: The first of the images.
        """
        with k.chunks(self.images * self.channels) as chunk:
            image, channel = chunk // self.channels, chunk % self.channels
            lanes = lanes_of(k, plane.element)
            zero = k.zero(lanes, plane.element)
            with k.range(0, self.pixels, lanes) as at:
                plane.store(zero, at)
            own = image + first
            with k.range(order.start(own), order.start(own + 1)) as at:
                add(channel, at)
            to = out + (self.start + image * self.image_step + channel * self.channel_step)
            whole = self.pixels // lanes * lanes
            with k.range(0, whole, lanes) as at:
                store(k, to, plane.vec(at, None, lanes), at)
            with k.when(whole < self.pixels):
                # Scratch has a vector more than the plane.
                rest = plane.vec(whole, None, lanes)
                store(k, to, rest, whole, k.first(self.pixels - whole, lanes))


def plane_integers(
    images: int, channels: int, pixels: int, steps: tuple[int, int, int]
) -> dict[str, int]:
    """The values of `Planes`."""
    return {
        "plane_images": images,
        "plane_channels": channels,
        "plane_pixels": pixels,
        "plane_image_step": steps[0],
        "plane_channel_step": steps[1],
        "plane_start": steps[2],
    }
