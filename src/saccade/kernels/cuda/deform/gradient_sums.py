"""Sums over the pixels, in parts: gradients of the weights and the bias."""

from __future__ import annotations

from collections.abc import Iterator

from saccade.kernels.base import Launch, Temp
from saccade.kernels.cuda.base import ELEMENTS, element_of
from saccade.kernels.cuda.deform.gradient_config import CudaDeformGradientConfig, GradientTile
from saccade.kernels.cuda.deform.gradient_pieces import GradientPiece, axis_strides
from saccade.kernels.cuda.deform.gradient_sizes import ChannelPiece
from saccade.kernels.cuda.precision import precision_of

__all__ = ["MOST_SPLITS", "adding_launches", "sum_launches", "weight_parts"]

# Of programs that make no products, and so have no depth.
_BLOCK: GradientTile = (128, 0, 0, 4, 1)
_BIAS: GradientTile = (32, 128, 0, 4, 1)
MOST_SPLITS = 16
"""Parts of the weights' sums, each of which is stored and read again."""


def _splits(piece: GradientPiece) -> int:
    """Parts of the pixels for the weights' gradient, the same for all pieces of a call.

    As few as leave few multiprocessors idle at the end, each of which is 5% of a wave to write.
    """
    sizes, tile = piece.sizes, piece.tiles[1]
    blocks = -(-sizes.outputs // tile[0]) * sizes.taps * -(-sizes.segment // tile[1])
    blocks *= sizes.x.shape[1] // sizes.segment
    slots = piece.call.target.multiprocessors * max(1, 8 // tile[3])
    room = sizes.room // max(1, sizes.weight.size * sizes.wide.itemsize)
    steps = -(-max(1, sizes.together) * sizes.pixels // (4 * tile[2]))
    most = max(1, min(MOST_SPLITS, room, steps))
    return min(range(1, most + 1), key=lambda n: -(-blocks * n // slots) / n + 0.05 * n)


def sum_launches(piece: GradientPiece) -> Iterator[Launch]:
    """Parts of the bias's gradient, where it is wanted."""
    if piece.sizes.wants("bias"):
        yield _bias_parts(piece)


def _parts(piece: GradientPiece, name: str, count: int) -> Temp:
    return piece.temp(name, count, piece.sizes.wide.itemsize)


def weight_parts(piece: GradientPiece, part: ChannelPiece, kept: Temp) -> Launch:
    """Parts of the weights' gradient, from the columns of some channels."""
    sizes, tile, splits = piece.sizes, piece.tiles[1], _splits(piece)
    maps, strides = piece.maps()
    config = CudaDeformGradientConfig(
        "weights", (*(sizes.element,) * 2, ELEMENTS[sizes.wide], "i32"), tile,
        (piece.double, sizes.op.mask), sizes.parts,
        (sizes.weight.shape[2], sizes.weight.shape[3]),
        precision=precision_of(piece.call, sizes.x.dtype),
    )  # fmt: skip
    operands = {
        "grad": maps["grad"], "kept": kept, "slots": piece.slots,
        "parts": _parts(piece, "parts", splits * sizes.weight.size),
    }  # fmt: skip
    blocks = -(-sizes.outputs // tile[0]) * -(-part.segment // tile[1])
    blocks *= part.channels // part.segment * sizes.op.offset_groups
    return piece.launch(
        config, operands, blocks * sizes.taps * splits, splits=splits,
        first_channel=part.first, channels=part.channels,
        kept_plane=piece.samples * part.channels, **{**strides, "segment": part.segment},
    )  # fmt: skip


def _bias_splits(piece: GradientPiece) -> int:
    return max(1, min(64, -(-max(1, piece.sizes.together) * piece.sizes.pixels // _BIAS[0])))


def _bias_parts(piece: GradientPiece) -> Launch:
    sizes, splits = piece.sizes, _bias_splits(piece)
    outputs = sizes.weight.shape[0]
    maps, strides = piece.maps()
    config = CudaDeformGradientConfig(
        "bias", (sizes.element, ELEMENTS[sizes.wide], "i32"), _BIAS, (piece.double,), sizes.parts
    )
    parts = _parts(piece, "sums", splits * outputs)
    operands = {"grad": maps["grad"], "parts": parts, "slots": piece.slots}
    return piece.launch(
        config, operands, splits * -(-outputs // _BIAS[1]),
        splits=splits, **strides,
    )  # fmt: skip


def adding_launches(piece: GradientPiece) -> Iterator[Launch]:
    """The parts' sums."""
    weight = piece.sizes.weight
    k, c, r, s = weight.shape
    # Outputs, channels and taps; the bias has its outputs where weights have channels.
    for name, parts, splits, (outputs, channels, taps) in (
        ("weight", "parts", _splits(piece), (k, c, (r, s))),
        ("bias", "sums", _bias_splits(piece), (1, k, (1, 1))),
    ):
        if not piece.sizes.wants(name):
            continue
        y, view = piece.result(name)
        strides = view.strides if name == "weight" else (0, view.strides[0], 0, 0)
        elements = (ELEMENTS[piece.sizes.wide], element_of(view))
        config = CudaDeformGradientConfig("add", elements, _BLOCK, taps=taps)
        yield piece.launch(
            config, {"parts": _parts(piece, parts, splits * view.size), "y": y},
            outputs * -(-channels // _BLOCK[0]), splits=splits, outputs=outputs, c=channels,
            columns=taps[1], **axis_strides("y", "kcrs", strides),
        )  # fmt: skip
