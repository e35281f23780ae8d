"""Weighted sums of samples of several images: multi-scale deformable attention behind its products.

Zhu et al., Deformable DETR: Deformable Transformers for End-to-End Object Detection (2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.dim import Dim, add, floordiv, mul
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import (
    expect,
    expect_float,
    expect_same_dtype,
    static_count,
    tensor_bytes,
    text,
    unify,
)
from saccade.opdefs.expr_numpy import accumulator
from saccade.opdefs.grid_sample import GridSample

__all__ = ["WeightedSamples"]


@dataclass(frozen=True)
class WeightedSamples(Op):
    """Interpolates images at the places of each query, and adds up what is there by weights.

    Operands: `levels` images x [N, heads·C, H, W], each of a size of its own; a grid for each of
    them [N, Q, heads, P, 2], floating-point places from -1 to 1, columns first, zeros outside of
    the image; weights [N, Q, heads, S], S places of all images, one image after the other. Images
    and weights have one type. The result is [N, Q, heads·C].

    Attributes:
        levels: How many images.
        heads: Parts of the channels, each with places and weights of its own.
        aligned: Whether -1 and 1 are the middles of the first and the last pixel, not their ends.
    """

    levels: int = 1
    heads: int = 1
    aligned: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        n = self.levels
        expect(self, n >= 1 and self.heads >= 1, f"{n} images, {self.heads} heads")
        expect(self, len(inputs) == 2 * n + 1, f"{len(inputs)} operands for {n} images")
        images, grids, weights = inputs[:n], inputs[n:-1], inputs[-1]
        expect_same_dtype(self, (*images, weights))
        fits = len(weights.shape) == 4 and weights.shape[2] == self.heads
        expect(self, fits, f"weights {text(weights.shape)} of {self.heads} heads")
        batch, queries, _, places = weights.shape
        channels = images[0].shape[1] if len(images[0].shape) == 4 else 0
        count: Dim = 0
        for x, grid in zip(images, grids, strict=True):
            expect_float(self, x, "x")
            expect_float(self, grid, "the grid")
            fits = len(grid.shape) == 5 and grid.shape[-1] == 2 and grid.shape[2] == self.heads
            expect(
                self, fits and len(x.shape) == 4, f"a grid {text(grid.shape)} over {text(x.shape)}"
            )
            batch = unify(self, unify(self, batch, x.shape[0], "images"), grid.shape[0], "images")
            queries = unify(self, queries, grid.shape[1], "the number of queries")
            channels = unify(self, channels, x.shape[1], "the number of channels")
            empty = any(d == 0 for d in x.shape[2:])
            expect(self, not empty, f"samples an image without pixels: {text(x.shape)}")
            count = add(count, grid.shape[3])
        unify(self, places, count, "the number of places")
        whole = mul(floordiv(channels, self.heads), self.heads) == channels
        expect(self, whole, f"{channels} channels for {self.heads} heads")
        return (TensorType(weights.dtype, (batch, queries, channels)),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        n, h = self.levels, self.heads
        weights = inputs[-1].astype(accumulator(inputs[-1].dtype), copy=False)
        batch, queries, *_ = weights.shape
        channels = inputs[0].shape[1]
        result = np.zeros((batch, queries, h, channels // h), weights.dtype)
        at = 0
        for x, grid in zip(inputs[:n], inputs[n:-1], strict=True):
            p = grid.shape[3]
            wide = x.astype(weights.dtype, copy=False)
            image = wide.reshape(batch * h, channels // h, *x.shape[2:])
            places = grid.transpose(0, 2, 1, 3, 4).reshape(batch * h, queries, p, 2)
            (found,) = GridSample(aligned=self.aligned).reference(image, places)
            samples = found.reshape(batch, h, channels // h, queries, p)
            with np.errstate(all="ignore"):
                result += np.einsum("nhcqp,nqhp->nqhc", samples, weights[..., at : at + p])
            at += p
        return (np.ascontiguousarray(result.reshape(batch, queries, channels), inputs[0].dtype),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        places = static_count(inputs[-1].shape)
        each = static_count(inputs[0].shape[1:2]) // self.heads
        return Work(2 * 5 * places * each, tensor_bytes((*inputs, *outputs)))
