"""What gradients of deformable convolution look up: copies, packed weights, samples, cells."""

from __future__ import annotations

from collections.abc import Iterator

from saccade.kernels.base import In, Launch, Operand, Temp
from saccade.kernels.cuda.base import ELEMENTS, element_of
from saccade.kernels.cuda.deform.gradient_config import (
    PREPARING,
    CudaDeformGradientConfig,
    GradientTile,
    clearing_programs,
    copying_programs,
    packing_programs,
)
from saccade.kernels.cuda.deform.gradient_pieces import GradientPiece, axis_strides, plan_strides
from saccade.kernels.cuda.deform.half_products import (
    MASKS,
    OUTPUTS,
    PIXELS,
    WEIGHTS,
    scale_launches,
)

__all__ = ["cell_counts", "packed_weights", "record_lists", "sampling_launches"]

# Of programs that make no products, and so have no depth.
_BLOCK: GradientTile = (256, 0, 0, 4, 1)
_CELLS: GradientTile = (1024, 0, 0, 4, 1)
_RANKS: GradientTile = (128, 8, 0, 4, 1)


def sampling_launches(piece: GradientPiece) -> Iterator[Launch]:
    """Copies with the channels last, packed weights and tables."""
    sizes = piece.sizes
    if sizes.parts and not piece.first:
        yield from _scaled(piece)
    prepared = _prepared(piece)
    if prepared.chunks:
        yield prepared
    if sizes.spread:
        yield _tables(piece)
    if sizes.wants("x"):
        yield from _lists(piece)


def _scaled(piece: GradientPiece) -> Iterator[Launch]:
    """What is largest of the operands of products."""
    sizes, inputs = piece.sizes, piece.call.inputs
    found = {OUTPUTS: 0}
    if sizes.wants("weight"):
        found[PIXELS] = 1
        if sizes.op.mask:
            found[MASKS] = 4
    if sizes.spread:
        found[WEIGHTS] = 2
    views = {slot: (In(at), inputs[at]) for slot, at in found.items()}
    return scale_launches(piece.slots, views)


def packed_weights(piece: GradientPiece) -> Temp:
    return piece.temp("packed", piece.sizes.weight.size, piece.sizes.weight.dtype.itemsize)


def cell_counts(piece: GradientPiece) -> Temp:
    return piece.temp("counts", piece.buckets + 1)


def _prepared(piece: GradientPiece) -> Launch:
    """The first piece's packs the weights, too."""
    sizes, weight = piece.sizes, piece.sizes.weight
    cleared = piece.buckets + 1 if sizes.wants("x") else 0
    packing = packing_programs(weight) if sizes.spread and not piece.first else 0
    read = sizes.wants("offset", "mask", "weight") and sizes.copied("x")
    copying = copying_programs(sizes.x, piece.images) if read else 0
    copied = copying_programs(sizes.grad, piece.images) if sizes.copied("grad") else 0
    element = element_of(weight)
    config = CudaDeformGradientConfig(
        "prepare", (element, sizes.element, "i32", *(element,) * 3, sizes.element, "i32"),
        PREPARING, parts=sizes.parts, taps=(weight.shape[2], weight.shape[3]),
    )  # fmt: skip
    packed = packed_weights(piece)
    operands: dict[str, Operand] = {
        "w": In(2), "packed": packed, "counts": cell_counts(piece), "slots": piece.slots,
        "x": In(1), "x_last": piece.map_of("x")[0] if copying else packed,
        "grad": In(0), "grad_last": piece.map_of("grad")[0] if copied else packed,
    }  # fmt: skip
    clearing = clearing_programs(cleared)
    return piece.launch(
        config, operands, packing + clearing + copying + copied,
        packing=packing, clearing=clearing, copying=copying, cleared=cleared,
        all_channels=sizes.x.shape[1], **axis_strides("w", "kcrs", weight.strides),
        **axis_strides("x", "nchw", sizes.x.strides),
        **axis_strides("s", "nkpq", sizes.grad.strides),
    )  # fmt: skip


def _tables(piece: GradientPiece) -> Launch:
    sizes, op = piece.sizes, piece.sizes.op
    at = 4 if op.mask else 3
    mask = piece.call.inputs[at]
    wide = ELEMENTS[sizes.wide]
    config = CudaDeformGradientConfig(
        "samples",
        (element_of(sizes.offset), element_of(mask), "i32", wide, wide, wide, "i32", "i32"),
        _BLOCK, (op.mask, sizes.wants("x"), piece.double), 0,
        (sizes.weight.shape[2], sizes.weight.shape[3]),
        (*op.stride, *op.dilation, op.padding[0], op.padding[1]),
    )  # fmt: skip
    lists = {"counts": cell_counts(piece), "arrival": piece.temp("arrival", piece.samples)}
    return piece.launch(
        config, {"offset": In(3), "mask": In(at), **piece.tables(), **lists},
        -(-piece.samples // _BLOCK[0]),
        **plan_strides("o", sizes.offset), **plan_strides("m", mask),
    )  # fmt: skip


def _lists(piece: GradientPiece) -> Iterator[Launch]:
    """Each cell's samples, by their numbers."""
    wide, tables, counts = ELEMENTS[piece.sizes.wide], piece.tables(), cell_counts(piece)
    start = piece.temp("start", piece.buckets)
    found, number = piece.temp("found", piece.samples), piece.samples
    yield piece.launch(
        CudaDeformGradientConfig("starts", ("i32", "i32"), _CELLS),
        {"counts": counts, "start": start}, -(-piece.buckets // _CELLS[0]), number=piece.buckets,
    )  # fmt: skip
    yield piece.launch(
        CudaDeformGradientConfig("listed", ("i32",) * 4, _BLOCK),
        {
            "cells": tables["cells"], "arrival": piece.temp("arrival", number), "start": start,
            "found": found,
        }, -(-number // _BLOCK[0]),
    )  # fmt: skip
    elements = ("i32", wide, wide, wide, *("i32",) * 4, wide)
    yield piece.launch(
        CudaDeformGradientConfig("records", elements, _RANKS, (piece.double,)),
        {**tables, "counts": counts, "start": start, "found": found, **record_lists(piece)},
        -(-number // _RANKS[0]),
    )  # fmt: skip


def record_lists(piece: GradientPiece) -> dict[str, Operand]:
    weights = piece.temp("weight", 4 * piece.samples, piece.sizes.wide.itemsize)
    return {"row": piece.temp("row", piece.samples), "weight": weights}
