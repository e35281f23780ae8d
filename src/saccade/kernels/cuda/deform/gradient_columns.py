"""Columns, a piece of them at a time: the weights' gradient from them, the others from theirs."""

from __future__ import annotations

from collections.abc import Iterator

from saccade.kernels.base import In, Launch, Temp
from saccade.kernels.cuda.base import ELEMENTS, element_of
from saccade.kernels.cuda.deform.columns import sample_tile
from saccade.kernels.cuda.deform.gradient_config import CudaDeformGradientConfig
from saccade.kernels.cuda.deform.gradient_pieces import GradientPiece, axis_strides, plan_strides
from saccade.kernels.cuda.deform.gradient_sizes import ChannelPiece
from saccade.kernels.cuda.deform.gradient_sums import weight_parts
from saccade.kernels.cuda.deform.gradient_tables import cell_counts, packed_weights, record_lists
from saccade.kernels.cuda.precision import precision_of

__all__ = ["column_launches"]

# Pixels for one program, channels at a time: the best of nine pairs on one H200.
_SLOPES = (8, 64)
_GATHER = (4, 128)


def column_launches(piece: GradientPiece) -> Iterator[Launch]:
    """Gradients that come from columns: the weights', then offset, mask and x from theirs."""
    if not piece.sizes.columned:
        return
    channels = list(piece.sizes.channel_pieces())
    for some in channels:
        if piece.sizes.wants("weight"):
            yield _sampled(piece, some)
            yield weight_parts(piece, some, _kept(piece, some.channels))
        if not piece.sizes.spread:
            continue
        yield _columns(piece, some)
        if piece.sizes.wants("offset", "mask"):
            yield _slopes(piece, some, len(channels))
        if piece.sizes.wants("x"):
            yield _gathered(piece, some)


def _kept(piece: GradientPiece, channels: int) -> Temp:
    return piece.temp("kept", piece.images * piece.sizes.columns(channels), 1)


def _width(piece: GradientPiece, channels: int, widest: int) -> int:
    """Channels that one program has at a time: fewer of float64, for the registers."""
    return min(widest // (4 if piece.double else 1), max(16, 1 << (channels - 1).bit_length()))


def _sampled(piece: GradientPiece, part: ChannelPiece) -> Launch:
    """The columns of x, for the weights' gradient."""
    sizes, op = piece.sizes, piece.sizes.op
    x, view, image = piece.map_of("x")
    at = 4 if op.mask else 3  # what there is not, is not read
    mask = piece.call.inputs[at]
    block = sample_tile(sizes.x, part.channels)
    config = CudaDeformGradientConfig(
        "sampled",
        (element_of(view), element_of(sizes.offset), element_of(mask), "i32", sizes.element),
        block, (op.mask, piece.double), sizes.parts,
        (sizes.weight.shape[2], sizes.weight.shape[3]),
        (*op.stride, *op.dilation, op.padding[0], op.padding[1]),
    )  # fmt: skip
    operands = {
        "x": x, "offset": In(3), "mask": In(at), "slots": piece.slots,
        "kept": _kept(piece, part.channels),
    }  # fmt: skip
    _, strides = piece.maps()
    known = {**strides, "first_channel": part.first, "channels": part.channels, "x_image": image}
    known["plane"] = piece.samples * part.channels
    return piece.launch(
        config, operands, -(-piece.pixels // block[0]) * sizes.taps * op.offset_groups,
        **known, **plan_strides("o", sizes.offset), **plan_strides("m", mask),
    )  # fmt: skip


def _columns(piece: GradientPiece, part: ChannelPiece) -> Launch:
    sizes, tile = piece.sizes, piece.tiles[0]
    maps, strides = piece.maps()
    config = CudaDeformGradientConfig(
        "columns", (*(sizes.element,) * 2, element_of(sizes.x), "i32"), tile, (piece.double,),
        sizes.parts, (sizes.weight.shape[2], sizes.weight.shape[3]),
        precision=precision_of(piece.call, sizes.x.dtype),
    )  # fmt: skip
    operands = {
        "grad": maps["grad"],
        "w": packed_weights(piece),
        "kept": _kept(piece, part.channels),
        "slots": piece.slots,
    }
    blocks = -(-part.segment // tile[1]) * (part.channels // part.segment)
    blocks *= sizes.op.offset_groups * sizes.taps
    rows = -(-piece.pixels // tile[0])
    slots = piece.call.target.multiprocessors * max(1, 8 // tile[3])
    # As many shares of each row of blocks as keep all multiprocessors at work to the end.
    shares = min(
        range(1, min(blocks, slots) + 1), key=lambda n: (-(-rows * n // slots) * -(-blocks // n), n)
    )
    if sizes.parts == 2:  # nothing of the next block is on its way: one for a program
        shares = blocks
    return piece.launch(
        config, operands, rows * shares, shares=shares,
        first_channel=part.first, channels=part.channels, **{**strides, "segment": part.segment},
    )  # fmt: skip


def _slopes(piece: GradientPiece, part: ChannelPiece, pieces: int) -> Launch:
    sizes, op = piece.sizes, piece.sizes.op
    (d_offset, offset), (d_mask, mask) = piece.result("offset"), piece.result("mask")
    wide, maps = ELEMENTS[sizes.wide], piece.maps()
    config = CudaDeformGradientConfig(
        "slopes",
        (*(element_of(sizes.x),) * 2, "i32", *(wide,) * 4, element_of(offset), element_of(mask)),
        (_SLOPES[0], _width(piece, part.channels, _SLOPES[1]), 0, 4, 1),
        (sizes.wants("offset"), sizes.wants("mask"), piece.double), 0,
        (sizes.weight.shape[2], sizes.weight.shape[3]),
    )  # fmt: skip
    sums = piece.temp("corners", 4 * piece.samples if pieces > 1 else 0, sizes.wide.itemsize)
    operands = {
        "kept": _kept(piece, part.channels), "x": maps[0]["x"], **piece.tables(), "sums": sums,
        "d_offset": d_offset, "d_mask": d_mask,
    }  # fmt: skip
    return piece.launch(
        config, operands, -(-piece.pixels // _SLOPES[0]) * op.offset_groups * sizes.taps,
        first_channel=part.first, channels=part.channels, pieces=pieces,
        **{**maps[1], "again": int(part.first > 0)},
        **plan_strides("o", offset), **plan_strides("m", mask),
    )  # fmt: skip


def _gathered(piece: GradientPiece, part: ChannelPiece) -> Launch:
    sizes, op = piece.sizes, piece.sizes.op
    y, view = piece.result("x")
    _, _, rows, columns = view.shape
    width = _width(piece, part.channels, _GATHER[1])
    wide, flat = ELEMENTS[sizes.wide], view.strides[2] == columns * view.strides[3]
    config = CudaDeformGradientConfig(
        "gather", (element_of(sizes.x), "i32", "i32", "i32", wide, element_of(view)),
        (_GATHER[0], width, 0, 4, 1), (view.channels_last, flat, piece.double),
    )  # fmt: skip
    operands = {
        "columns": _kept(piece, part.channels), "counts": cell_counts(piece),
        "start": piece.temp("start", piece.buckets), **record_lists(piece), "y": y,
    }  # fmt: skip
    blocks = op.offset_groups * -(-part.channels // width)
    return piece.launch(
        config, operands, piece.images * -(-rows * columns // _GATHER[0]) * blocks,
        first_channel=part.first, channels=part.channels,
        **axis_strides("y", "nchw", view.strides),
    )  # fmt: skip
