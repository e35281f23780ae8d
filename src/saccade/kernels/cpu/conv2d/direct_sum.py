"""The last phase of a convolution whose sums were made in parts: their sum, and the epilogue.

Parts lie as [pixels, groups, parts, vectors, lanes] in float32 and are added in their order.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu.conv2d.epilogue import Epilogue

__all__ = ["emit_sum_of_parts"]


@dataclass(frozen=True, slots=True)
class _SumSizes:
    """The integer parameters; a chunk is `share` vectors of results."""

    pixels: Int
    rows: Int
    columns: Int
    groups: Int
    parts: Int
    vectors: Int
    share: Int


def emit_sum_of_parts(k: KernelBuilder, code: tuple[str, ...]) -> None:
    """Emit the phase.

    Args:
        k: Builder.
        code: `EpilogueSpec.code` for single vectors.
    """
    sums, epilogue = k.pointer("sums"), Epilogue(k, code)
    g = k.sizes(_SumSizes)
    epilogue.declare_integers()
    per_pixel = g.groups * g.vectors
    total = g.pixels * per_pixel
    with k.chunks((total + (g.share - 1)) // g.share) as chunk:
        first = chunk * g.share
        with k.range(first, k.minimum_int(first + g.share, total)) as number:
            pixel = number // per_pixel
            rest = number - pixel * per_pixel
            group = rest // g.vectors
            vector = rest - group * g.vectors
            start = ((pixel * g.groups + group) * g.parts * g.vectors + vector) * k.lanes
            value = k.var(sums.vec(start))
            with k.range(1, g.parts) as part:
                value.set(value.get() + sums.vec(start + part * g.vectors * k.lanes))
            row = pixel // g.columns
            image = row // g.rows
            at = epilogue.pixel(image, row - image * g.rows, pixel - row * g.columns)
            epilogue.finish(value.get(), at, epilogue.place(vector, group))
