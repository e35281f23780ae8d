"""What gradients of deformable convolution look up: copies, packed weights, samples, cells."""

from __future__ import annotations

from collections.abc import Iterator

from saccade.kernels.base import In, Launch, Operand, Temp
from saccade.kernels.cuda.base import ELEMENTS, element_of
from saccade.kernels.cuda.deform.gradient_config import (
    CLEARED,
    PACKING,
    CudaDeformGradientConfig,
    GradientTile,
    packing_programs,
)
from saccade.kernels.cuda.deform.gradient_pieces import GradientPiece, axis_strides, plan_strides

__all__ = ["cell_counts", "packed_weights", "record_lists", "sampling_launches"]

# Of programs that make no products, and so have no depth.
_BLOCK: GradientTile = (256, 0, 0, 4, 1)
_CELLS: GradientTile = (1024, 0, 0, 4, 1)
_RANKS: GradientTile = (128, 8, 0, 4, 1)
_COPY: GradientTile = (32, 64, 0, 4, 1)


def sampling_launches(piece: GradientPiece) -> Iterator[Launch]:
    """Copies with the channels last, packed weights and tables."""
    sizes = piece.sizes
    if sizes.wants("offset", "mask", "weight"):
        yield from _copied(piece, "x", 1)
    yield from _copied(piece, "grad", 0)
    if sizes.spread:
        yield _prepared(piece)
    if sizes.wants("x", "offset", "mask", "weight"):
        yield _tables(piece)
    if sizes.wants("x"):
        yield from _lists(piece)


def _copied(piece: GradientPiece, name: str, at: int) -> Iterator[Launch]:
    view = piece.call.inputs[at]
    if not piece.sizes.copied(view):
        return
    _, channels, rows, columns = view.shape
    operand, _, _ = piece.map_of(name)
    config = CudaDeformGradientConfig("last", (element_of(view),) * 2, _COPY)
    programs = piece.images * -(-rows * columns // _COPY[0]) * -(-channels // _COPY[1])
    yield piece.launch(
        config, {"x": In(at), "y": operand}, programs,
        channels=channels, h=rows, wd=columns, **axis_strides("x", "nchw", view.strides),
    )  # fmt: skip


def packed_weights(piece: GradientPiece) -> Temp:
    return piece.temp("packed", piece.sizes.weight.size, piece.sizes.weight.dtype.itemsize)


def cell_counts(piece: GradientPiece) -> Temp:
    return piece.temp("counts", piece.buckets + 1)


def _prepared(piece: GradientPiece) -> Launch:
    """The first piece's packs the weights, too."""
    weight = piece.sizes.weight
    cleared = piece.buckets + 1 if piece.sizes.wants("x") else 0
    packing = 0 if piece.first else packing_programs(weight)
    element = element_of(weight)
    config = CudaDeformGradientConfig(
        "prepare", (element, element, "i32"), PACKING, (False,), (weight.shape[2], weight.shape[3])
    )
    return piece.launch(
        config, {"w": In(2), "packed": packed_weights(piece), "counts": cell_counts(piece)},
        packing + -(-cleared // CLEARED),
        cleared=cleared, packing=packing,
        **axis_strides("w", "kcrs", weight.strides),
    )  # fmt: skip


def _tables(piece: GradientPiece) -> Launch:
    sizes, op = piece.sizes, piece.sizes.op
    at = 4 if op.mask else 3
    mask = piece.call.inputs[at]
    wide = ELEMENTS[sizes.wide]
    config = CudaDeformGradientConfig(
        "samples",
        (element_of(sizes.offset), element_of(mask), "i32", wide, wide, wide, "i32", "i32"),
        _BLOCK, (op.mask, sizes.wants("x"), piece.double),
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
