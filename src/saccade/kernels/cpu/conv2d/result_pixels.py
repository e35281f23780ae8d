"""The pixels of a convolution's result that rows of stored sums belong to."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.tile_products import BlockSums

__all__ = ["ResultPixels"]


@dataclass(frozen=True, slots=True)
class ResultPixels:
    """Where rows of sums go.

    Attributes:
        epilogue: What is done with them.
        out_height: Rows of an image of the result.
        out_width: Pixels of a row.
        across: Sums of such a row, some of them of no pixel.
        flat: Whether pixels are evenly apart in the result and in every operand.
        filled: Whether rows may have more sums than pixels.
    """

    epilogue: Epilogue
    out_height: Int
    out_width: Int
    across: Int
    flat: bool
    filled: bool

    def finish(
        self, sums: BlockSums, group: Int, tile: Int, block: Int, counted: tuple[Int, Int]
    ) -> None:
        """The epilogue of a tile of sums and a block of channels.

        Args:
            sums: The tile's.
            group: Of channels.
            tile: Its number.
            block: Of channels.
            counted: The image that rows of sums are counted from, and how many there are.
        """
        k, height, (image, total) = sums.k, sums.height, counted
        places = self.epilogue.places(block, [k.lanes] * (sums.width // k.lanes), group)
        first = tile * height
        count = k.minimum_int(total - first, height)
        if self.flat and not self.filled:
            number = image * self.out_height * self.out_width + first
            pixel = self.epilogue.pixel(0, 0, number)
            sums.finish(self.epilogue, k.int(0), count, pixel, places)
            return
        # Line by line: a row of the result, and what lies between it and the next one.
        row = k.var(0)
        with k.repeat_while(lambda: row.get() < count):
            at = row.get()
            line = (first + at) // self.across
            j = first + at - line * self.across
            below = line // self.out_height
            n, i = image + below, line - below * self.out_height
            if self.flat:
                number = (image * self.out_height + line) * self.out_width + j
                pixel = self.epilogue.pixel(0, 0, number)
            else:
                pixel = self.epilogue.pixel(n, i, j)
            inside = k.minimum_int(self.out_width - j, count - at)
            sums.finish(self.epilogue, at, k.maximum_int(inside, 0), pixel, places)
            row.set(at + (self.across - j))
