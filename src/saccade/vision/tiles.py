"""Images larger than memory lets a network take whole: in tiles, whose seams cannot be seen.

Tiles overlap by exactly what the network looks at around each pixel, which its graph says
(`saccade.tiling`), and the borders of the image keep their padding. The result is that of the whole
image: to the bit where the same algorithms are chosen for both sizes (`exact=True`), and up to
their rounding elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from saccade.errors import InputError, OptionError, PlanError
from saccade.vision.images import ImageLike, pixels_of
from saccade.vision.prepare import unit

if TYPE_CHECKING:
    from saccade.model import Model
    from saccade.tiling import Reach, Tile

__all__ = ["ImageTiles", "as_bytes", "tiled", "tiling_of"]

MOST_BYTES = 1 << 30
"""What a run may need before images are cut. Not what is free: tiles may round otherwise, and what
comes out must not depend on the moment."""
_TILE_BYTES = 256 << 20  # what a run needs of tiles that are chosen
# Pixels of all such tiles for one of the image; else they may be as large as what is left whole.
_MOST_OVERLAP = 1.5
# Of an input, a megapixel in three channels: below, no plan is made, which a warm start would wait
# for, to find out what a run needs.
_LEAST_ELEMENTS = 3 << 20
_CHANNELS = (1, 3)
_EDGE_STEP = 32  # pixels, of the edges that are tried
_LARGEST_EDGE = 1 << 14  # pixels


@dataclass(frozen=True, slots=True)
class ImageTiles:
    """How an image is cut.

    Attributes:
        rows, columns: The tiles along each axis; each with each.
        axes: Of the input, rows and columns.
        result_axes: The same of the result.
        shape: Of the result.
        edge: Pixels of a tile along each axis, or fewer.
    """

    rows: tuple[Tile, ...]
    columns: tuple[Tile, ...]
    axes: tuple[int, int]
    result_axes: tuple[int, int]
    shape: tuple[int, ...]
    edge: int

    def __len__(self) -> int:
        return len(self.rows) * len(self.columns)

    @property
    def pixels(self) -> int:
        """Of all tiles together: more than the image has, as they overlap."""
        sides = (self.rows, self.columns)
        return prod(sum(one.stop - one.first for one in side) for side in sides)

    def run(
        self,
        model: Model,
        take: Callable[[slice, slice], NDArray[Any]],
        report: Callable[[int], None] = lambda _done: None,
    ) -> Iterator[tuple[slice, slice, NDArray[Any]]]:
        """Parts of the result, each with its rows and columns.

        Args:
            model: Of one input.
            take: The model's input for rows and columns of the image.
            report: Told how many tiles are done.
        """
        (info,), (out,) = model.inputs, model.outputs
        for done, (row, column) in enumerate(product(self.rows, self.columns), 1):
            part = take(slice(row.first, row.stop), slice(column.first, column.stop))
            result = model.run({info.name: np.ascontiguousarray(part)})[out.name]
            inner = _region(result.ndim, self.result_axes, (row.inner, column.inner))
            places = (slice(one.out_first, one.out_stop) for one in (row, column))
            report(done)
            yield (*places, result[inner])


def tiling_of(
    model: Model, shape: Sequence[int], edge: int | None = None
) -> ImageTiles | str | None:
    """How an image is cut for a model, if it is.

    Args:
        model: Of one image.
        shape: Of its input.
        edge: Pixels of a tile along each axis. If None, an image is cut only if a run of the whole
            would need more than 1 GiB, into tiles that need 256 MiB.

    Returns:
        None if the whole fits; why it cannot be cut, as text, if it does not and no edge is given.

    Raises:
        OptionError: If an edge is given and the model cannot run in tiles, with the reason.
    """
    if edge is not None:
        try:
            return _cut(model.reach, shape, edge)
        except OptionError as error:
            raise OptionError(f"the image cannot be cut into tiles: {error}") from error
    if len(model.inputs) != 1 or prod(shape) < _LEAST_ELEMENTS:
        return None
    try:
        return None if _needed(model, shape) <= MOST_BYTES else _chosen(model, shape)
    except OptionError as error:
        return str(error)


def tiled(
    model: Model,
    image: NDArray[Any] | ImageLike,
    edge: int | None = None,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    report: Callable[[int], None] = lambda _done: None,
) -> NDArray[Any]:
    """What a network makes of an image, in tiles where the whole would need too much memory.

    Args:
        model: From one image of any size to one other, each pixel of which depends on a part of the
            image: one that looks at all of it (means, attention) cannot be cut.
        image: [H, W, C] bytes, which become values from 0 to 1 tile by tile; or the model's input,
            [1, C, H, W] or as it takes it.
        edge: Pixels of a tile along each axis; None to choose, and to leave whole what fits.
        mean: Subtracted from each channel of bytes, of values from 0 to 1.
        std: What is divided by then.
        report: Told how many tiles are done.

    Returns:
        [H', W', C'] bytes for bytes, where the values 0 to 1 become 0 to 255; else the model's
        output.

    Raises:
        InputError: If the image does not fit the model.
        OptionError: If an edge is given and the model cannot run in tiles, with the reason.
    """
    if not isinstance(image, np.ndarray):
        image = pixels_of(image)
    if image.dtype == np.uint8 and image.ndim == 3:
        return _tiled_bytes(model, image, edge, report, mean, std)
    (info,) = model.inputs
    tiling = tiling_of(model, image.shape, edge)
    if not isinstance(tiling, ImageTiles):
        whole: NDArray[Any] = model.run({info.name: image})[model.outputs[0].name]
        return whole
    found: NDArray[Any] | None = None
    for rows, columns, part in tiling.run(model, _taken_of(image, tiling.axes), report):
        found = np.empty(tiling.shape, part.dtype) if found is None else found
        found[_region(found.ndim, tiling.result_axes, (rows, columns))] = part
    assert found is not None
    return found


def _tiled_bytes(
    model: Model,
    image: NDArray[np.uint8],
    edge: int | None,
    report: Callable[[int], None],
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> NDArray[np.uint8]:
    """The same for bytes, of which never more than a tile are floats."""
    (info,), (out,) = model.inputs, model.outputs
    last = _channels_last(info.shape)
    if info.dtype == "uint8" and (mean is not None or std is not None):
        raise InputError(f"input {info.name!r} takes bytes, which have no mean or std")

    def take(rows: slice, columns: slice) -> NDArray[Any]:
        part = image[rows, columns]
        values: NDArray[Any] = part.transpose(2, 0, 1)[None]
        if info.dtype != "uint8":
            values = unit(part, mean=mean, std=std).values
        values = values.transpose(0, 2, 3, 1) if last else values
        shaped = values[0] if len(info.shape) == 3 else values
        return np.ascontiguousarray(shaped, dtype=info.dtype)

    high, wide, channels = image.shape
    shape = (high, wide, channels) if last else (channels, high, wide)
    tiling = tiling_of(model, (1, *shape)[-len(info.shape) :], edge)
    if not isinstance(tiling, ImageTiles):
        whole = model.run({info.name: take(slice(high), slice(wide))})[out.name]
        return as_bytes(out.name, _channels_first(whole, out.shape))
    found: NDArray[np.uint8] | None = None
    for rows, columns, part in tiling.run(model, take, report):
        pixels = as_bytes(out.name, _channels_first(part, out.shape))
        if found is None:
            sizes = (tiling.shape[axis] for axis in tiling.result_axes)
            found = np.empty((*sizes, pixels.shape[2]), np.uint8)
        found[rows, columns] = pixels
    assert found is not None
    return found


def _channels_last(shape: Sequence[int | str]) -> bool:
    """Whether an input or output of this shape has an image's channels behind its pixels."""
    return len(shape) >= 3 and shape[-1] in _CHANNELS and shape[-3] not in _CHANNELS


def _channels_first(output: NDArray[Any], shape: Sequence[int | str]) -> NDArray[Any]:
    return np.moveaxis(output, -1, -3) if _channels_last(shape) else output


def as_bytes(name: str, output: NDArray[Any]) -> NDArray[np.uint8]:
    """[H, W, C] bytes of an output [1, C, H, W] or [C, H, W]; its values 0 to 1 become 0 to 255.

    Args:
        name: Of the output.
        output: With one channel or three; bytes stay as they are.

    Raises:
        InputError: If it has another shape, or holds NaN.
    """
    planes = output[0] if output.ndim == 4 and output.shape[0] == 1 else output
    if planes.ndim != 3 or planes.shape[0] not in _CHANNELS:
        raise InputError(f"output {name!r} of shape {output.shape} is not one image; use .npy")
    if np.isnan(planes).any():
        raise InputError(f"output {name!r} holds NaN and makes no image; use .npy")
    if planes.dtype != np.uint8:
        # In place, as there may be many.
        scaled = np.clip(planes.astype(np.float32), 0.0, 1.0)
        scaled *= np.float32(255)
        planes = np.rint(scaled, out=scaled).astype(np.uint8)
    return np.ascontiguousarray(planes.transpose(1, 2, 0))


def _cut(reach: Reach, shape: Sequence[int], edge: int) -> ImageTiles:
    rows, columns = (reach.tiles(shape, axis, edge) for axis in (0, 1))
    axes = (reach.axes[0], reach.axes[1])
    return ImageTiles(
        rows, columns, axes, reach.result_axes(shape), reach.result_shape(shape), edge
    )


def _chosen(model: Model, shape: Sequence[int]) -> ImageTiles | str:
    """Small tiles, or larger ones where the small are mostly overlap; why there are none."""
    reach, found, reason = model.reach, None, ""
    for most in (_TILE_BYTES, MOST_BYTES):
        try:
            found = _cut(reach, shape, _edge_for(model, reach, shape, most))
        except OptionError as error:
            reason = str(error)
            continue
        if found.pixels <= _MOST_OVERLAP * prod(shape[axis] for axis in reach.axes):
            break
    return reason if found is None else found


def _needed(model: Model, shape: Sequence[int]) -> int:
    """Bytes that a run at this size needs: without bound if it has no plan, 0 if nobody knows."""
    try:
        return model.run_bytes(**{model.inputs[0].name: tuple(shape)})
    except PlanError:
        return 1 << 62
    except OptionError:  # a bundle has programs, and makes no plans
        return 0


def _edge_for(model: Model, reach: Reach, shape: Sequence[int], most: int) -> int:
    """The largest edge for which a tile's run needs no more bytes than it may."""
    low, high = 1, _LARGEST_EDGE // _EDGE_STEP
    while low < high:
        middle = (low + high + 1) // 2
        sizes = list(shape)
        for axis in reach.axes:
            sizes[axis] = min(sizes[axis], middle * _EDGE_STEP)
        fits = _needed(model, sizes) <= most
        low, high = (middle, high) if fits else (low, middle - 1)
    return low * _EDGE_STEP


def _taken_of(
    values: NDArray[Any], axes: tuple[int, int]
) -> Callable[[slice, slice], NDArray[Any]]:
    return lambda rows, columns: values[_region(values.ndim, axes, (rows, columns))]


def _region(rank: int, axes: tuple[int, int], places: tuple[slice, slice]) -> tuple[slice, ...]:
    """All of an array but along two axes."""
    found = [slice(None)] * rank
    for axis, place in zip(axes, places, strict=True):
        found[axis] = place
    return tuple(found)
