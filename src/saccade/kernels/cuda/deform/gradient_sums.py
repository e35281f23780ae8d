"""Sums over the pixels, in parts: gradients of the weights and the bias."""

from __future__ import annotations

from collections.abc import Iterator

from saccade.kernels.base import Launch, Temp
from saccade.kernels.cuda.base import ELEMENTS, element_of
from saccade.kernels.cuda.deform.gradient_config import CudaDeformGradientConfig, GradientTile
from saccade.kernels.cuda.deform.gradient_pieces import GradientPiece, axis_strides
from saccade.kernels.cuda.precision import precision_of

__all__ = ["adding_launches", "sum_launches"]

# Of programs that make no products, and so have no depth.
_BLOCK: GradientTile = (256, 0, 0, 4, 1)
_BIAS: GradientTile = (32, 128, 0, 4, 1)
_MOST_SPLITS = 16  # parts of the weights' sums, each of which is stored and read again


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
    most = max(1, min(_MOST_SPLITS, room, steps))
    return min(range(1, most + 1), key=lambda n: -(-blocks * n // slots) / n + 0.05 * n)


def sum_launches(piece: GradientPiece) -> Iterator[Launch]:
    """Parts of what is summed over pixels: gradients of weights and bias."""
    if piece.sizes.wants("weight"):
        yield _weight_parts(piece)
    if piece.sizes.wants("bias"):
        yield _bias_parts(piece)


def _parts(piece: GradientPiece, name: str, count: int) -> Temp:
    return piece.temp(name, count, piece.sizes.wide.itemsize)


def _weight_parts(piece: GradientPiece) -> Launch:
    sizes, tile, splits = piece.sizes, piece.tiles[1], _splits(piece)
    element, wide = element_of(sizes.x), ELEMENTS[sizes.wide]
    maps, strides = piece.maps()
    config = CudaDeformGradientConfig(
        "weights", (element, element, "i32", *(wide,) * 4), tile, (piece.double,),
        (sizes.weight.shape[2], sizes.weight.shape[3]),
        precision=precision_of(piece.call, sizes.x.dtype),
    )  # fmt: skip
    parts = _parts(piece, "parts", splits * sizes.weight.size)
    blocks = -(-sizes.outputs // tile[0]) * -(-sizes.segment // tile[1])
    programs = blocks * sizes.taps * (sizes.x.shape[1] // sizes.segment) * splits
    return piece.launch(
        config, {**maps, **piece.tables(), "parts": parts}, programs, splits=splits, **strides
    )


def _bias_splits(piece: GradientPiece) -> int:
    return max(1, min(64, -(-max(1, piece.sizes.together) * piece.sizes.pixels // _BIAS[0])))


def _bias_parts(piece: GradientPiece) -> Launch:
    sizes, splits = piece.sizes, _bias_splits(piece)
    outputs = sizes.weight.shape[0]
    maps, strides = piece.maps()
    config = CudaDeformGradientConfig(
        "bias", (element_of(sizes.grad), ELEMENTS[sizes.wide]), _BIAS, (piece.double,)
    )
    parts = _parts(piece, "sums", splits * outputs)
    return piece.launch(
        config, {"grad": maps["grad"], "parts": parts}, splits * -(-outputs // _BIAS[1]),
        splits=splits, **strides,
    )  # fmt: skip


def adding_launches(piece: GradientPiece) -> Iterator[Launch]:
    """The parts' sums."""
    weight = piece.sizes.weight
    for name, parts, splits in (
        ("weight", "parts", _splits(piece)), ("bias", "sums", _bias_splits(piece)),
    ):  # fmt: skip
        if not piece.sizes.wants(name):
            continue
        y, view = piece.result(name)
        strides = view.strides if name == "weight" else (view.strides[0], 0, 0, 0)
        c, columns = (weight.shape[1], weight.shape[3]) if name == "weight" else (1, 1)
        config = CudaDeformGradientConfig(
            "add", (ELEMENTS[piece.sizes.wide], element_of(view)), _BLOCK
        )
        yield piece.launch(
            config, {"parts": _parts(piece, parts, splits * view.size), "y": y},
            -(-view.size // _BLOCK[0]), splits=splits, number=view.size, c=c, columns=columns,
            **axis_strides("y", "kcrs", strides),
        )  # fmt: skip
