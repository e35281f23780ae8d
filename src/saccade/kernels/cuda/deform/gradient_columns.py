"""Gradients of x, offset and mask: from the columns' gradient, a piece of it at a time."""

from __future__ import annotations

from collections.abc import Iterator

from saccade.kernels.base import Launch, Temp
from saccade.kernels.cuda.base import ELEMENTS, element_of
from saccade.kernels.cuda.deform.gradient_config import CudaDeformGradientConfig
from saccade.kernels.cuda.deform.gradient_pieces import GradientPiece, axis_strides, plan_strides
from saccade.kernels.cuda.deform.gradient_sizes import ChannelPiece
from saccade.kernels.cuda.deform.gradient_tables import cell_counts, packed_weights, record_lists
from saccade.kernels.cuda.precision import precision_of

__all__ = ["column_launches"]

_PIXELS = 16  # for one program of `gather` or `slopes`
_WIDEST = 128  # channels at a time


def column_launches(piece: GradientPiece) -> Iterator[Launch]:
    """Gradients that come from the columns': offset, mask and x."""
    if not piece.sizes.spread:
        return
    channels = list(piece.sizes.channel_pieces())
    for some in channels:
        yield _columns(piece, some)
        if piece.sizes.wants("offset", "mask"):
            yield _slopes(piece, some, len(channels))
        if piece.sizes.wants("x"):
            yield _gathered(piece, some)


def _kept(piece: GradientPiece, channels: int) -> Temp:
    return piece.temp("kept", piece.images * piece.sizes.columns(channels), 1)


def _width(piece: GradientPiece, channels: int) -> int:
    """Channels that one program has at a time: fewer of float64, for the registers."""
    return min(_WIDEST // (4 if piece.double else 1), max(16, 1 << (channels - 1).bit_length()))


def _columns(piece: GradientPiece, part: ChannelPiece) -> Launch:
    sizes, tile = piece.sizes, piece.tiles[0]
    maps, strides = piece.maps()
    config = CudaDeformGradientConfig(
        "columns", (element_of(sizes.x),) * 3, tile, (piece.double,),
        (sizes.weight.shape[2], sizes.weight.shape[3]),
        precision=precision_of(piece.call, sizes.x.dtype),
    )  # fmt: skip
    operands = {
        "grad": maps["grad"],
        "w": packed_weights(piece),
        "kept": _kept(piece, part.channels),
    }
    blocks = -(-part.segment // tile[1]) * (part.channels // part.segment)
    programs = -(-piece.pixels // tile[0]) * sizes.op.offset_groups * sizes.taps * blocks
    return piece.launch(
        config, operands, programs, first_channel=part.first, channels=part.channels,
        **{**strides, "segment": part.segment},
    )  # fmt: skip


def _slopes(piece: GradientPiece, part: ChannelPiece, pieces: int) -> Launch:
    sizes, op = piece.sizes, piece.sizes.op
    (d_offset, offset), (d_mask, mask) = piece.result("offset"), piece.result("mask")
    wide, maps = ELEMENTS[sizes.wide], piece.maps()
    config = CudaDeformGradientConfig(
        "slopes",
        (*(element_of(sizes.x),) * 2, "i32", *(wide,) * 4, element_of(offset), element_of(mask)),
        (_PIXELS, _width(piece, part.channels), 0, 4, 1),
        (sizes.wants("offset"), sizes.wants("mask"), piece.double),
        (sizes.weight.shape[2], sizes.weight.shape[3]),
    )  # fmt: skip
    sums = piece.temp("corners", 4 * piece.samples if pieces > 1 else 0, sizes.wide.itemsize)
    operands = {
        "kept": _kept(piece, part.channels), "x": maps[0]["x"], **piece.tables(), "sums": sums,
        "d_offset": d_offset, "d_mask": d_mask,
    }  # fmt: skip
    return piece.launch(
        config, operands, -(-piece.pixels // _PIXELS) * op.offset_groups * sizes.taps,
        first_channel=part.first, channels=part.channels, pieces=pieces,
        **{**maps[1], "again": int(part.first > 0)},
        **plan_strides("o", offset), **plan_strides("m", mask),
    )  # fmt: skip


def _gathered(piece: GradientPiece, part: ChannelPiece) -> Launch:
    sizes, op = piece.sizes, piece.sizes.op
    y, view = piece.result("x")
    _, _, rows, columns = view.shape
    width = _width(piece, part.channels)
    wide, flat = ELEMENTS[sizes.wide], view.strides[2] == columns * view.strides[3]
    config = CudaDeformGradientConfig(
        "gather", (element_of(sizes.x), "i32", "i32", "i32", wide, element_of(view)),
        (_PIXELS, width, 0, 4, 1), (view.channels_last, flat, piece.double),
    )  # fmt: skip
    operands = {
        "columns": _kept(piece, part.channels), "counts": cell_counts(piece),
        "start": piece.temp("start", piece.buckets), **record_lists(piece), "y": y,
    }  # fmt: skip
    blocks = op.offset_groups * -(-part.channels // width)
    return piece.launch(
        config, operands, piece.images * -(-rows * columns // _PIXELS) * blocks,
        first_channel=part.first, channels=part.channels,
        **axis_strides("y", "nchw", view.strides),
    )  # fmt: skip
