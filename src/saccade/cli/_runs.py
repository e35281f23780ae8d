"""A model run on inputs of the command line, whole or in tiles, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from saccade.cli._files import write_outputs
from saccade.cli._images import WRITTEN_SUFFIXES, ImageInput, write_pixels
from saccade.cli._model import warn_of_refusals
from saccade.cli._print import note
from saccade.cli._shown import OutputFigures, SeenOutputs, TopQuery, figures_of, seen_in
from saccade.cli._types import Arrays, ModelLike
from saccade.errors import InputError
from saccade.vision.tiles import ImageTiles, as_bytes, tiling_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from PIL.Image import Image

__all__ = ["ModelRuns", "RunResult"]


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one run gave.

    Attributes:
        outputs: By name; without the one that tiles made an image of.
        figures: Of all outputs.
        seen: What they mean.
        image: What the model was given; None if that was no image.
        canvas: The image that tiles made.
    """

    outputs: Arrays
    figures: Mapping[str, OutputFigures]
    seen: SeenOutputs
    image: ImageInput | None = None
    canvas: Image | None = None

    @property
    def suffix(self) -> str:
        """Of the file that people expect: an image if it is one, or can be drawn into one."""
        drawn = self.seen.detections is not None or self.seen.classes is not None
        return ".png" if drawn or self.canvas is not None or self._is_image else ".npz"

    @property
    def _is_image(self) -> bool:
        if len(self.outputs) != 1:
            return False
        (output,) = self.outputs.values()
        rank = output.ndim if isinstance(output, np.ndarray) else 0
        alone = rank == 3 or (rank == 4 and len(output) == 1)
        return alone and output.shape[-3] in (1, 3) and output.dtype.kind in "fu"

    def pixels(self) -> NDArray[np.uint8] | Image:
        """The image that it is, or that it is drawn into.

        Raises:
            InputError: If it is none, or holds NaN.
        """
        if self.canvas is not None:
            return self.canvas
        drawn = None if self.image is None else self.seen.drawn(self.image.pixels)
        if drawn is not None:
            return drawn
        if len(self.outputs) != 1:
            raise InputError(f"an image takes one output of {len(self.outputs)}; use an .npz")
        ((name, output),) = self.outputs.items()
        return as_bytes(name, output)

    def write(self, target: Path) -> list[Path]:
        """Write it to a file, or as arrays into a folder; the files written.

        Raises:
            InputError: The file's kind is unknown, or does not take these outputs.
        """
        held = [name for name, output in self.outputs.items() if not _is_numeric(output)]
        if held:
            raise InputError(f"output {held[0]!r} cannot be written: it is no array of numbers")
        drawn = self.seen.detections is not None or self.seen.classes is not None
        image = target.suffix.lower() in WRITTEN_SUFFIXES and not target.is_dir()
        if image and (self.canvas is not None or (drawn and self.image is not None)):
            write_pixels(target, self.pixels())
            return [target]
        return write_outputs(target, self.outputs)


@dataclass(frozen=True, slots=True)
class ModelRuns:
    """A model, and how it is run.

    Attributes:
        model: Compiled.
        query: What is asked of its outputs.
        edge: Of tiles, in pixels; 0 to choose, None for none.
        imported: Whether algorithms were imported; which of them were not taken is told.
        said: What was said of all this so far.
    """

    model: ModelLike
    query: TopQuery
    edge: int | None = 0
    imported: bool = False
    said: set[str] = field(default_factory=set)

    def run(
        self,
        feeds: Arrays,
        images: Mapping[str, ImageInput],
        suffix: str | None,
        report: Callable[[str], None] = lambda _text: None,
    ) -> RunResult:
        """One run.

        Args:
            feeds: All inputs, in order.
            images: Those of them that are images.
            suffix: Of the file that is written; None if the result decides, "" if there is none.
            report: Told how far it is.
        """
        if self.imported and not self.said:
            self.said.add("algorithms")
            plan = self.model.plan(**{name: feed.shape for name, feed in feeds.items()})
            warn_of_refusals(plan)
        image = next(iter(images.values()), None)
        tiling = self._tiling(feeds)
        if tiling is None:
            outputs = self.model.run(feeds)
            figures = {name: figures_of(output) for name, output in outputs.items()}
            result = RunResult(outputs, figures, seen_in(outputs, self.query, image), image)
        else:
            result = self._in_tiles(tiling, feeds, image, suffix, report)
        if self.query.labels and not result.seen.data():
            self._note("--labels: there are no classes to name; --top asks for the most probable")
        return result

    def _tiling(self, feeds: Arrays) -> ImageTiles | None:
        """How the only input is cut, if it is; said, as is why it cannot be where it should."""
        if self.edge is None or len(feeds) != 1:
            if self.edge:
                raise InputError("--tile: the model has several inputs")
            return None
        (feed,) = feeds.values()
        if feed.ndim not in (3, 4) and not self.edge:
            return None
        found = tiling_of(cast("Any", self.model), feed.shape, self.edge or None)
        if isinstance(found, str):
            self._note(f"this image needs much memory, and cannot be run in tiles: {found}")
            return None
        if found is not None and (self.edge or len(found) > 1):
            self._note(f"in {len(found)} tiles of {found.edge} pixels, to need less memory")
        return found

    def _note(self, text: str) -> None:
        """Say it once, however many images there are."""
        if text not in self.said:
            self.said.add(text)
            note(f"saccade: {text}")

    def _in_tiles(
        self,
        tiling: ImageTiles,
        feeds: Arrays,
        image: ImageInput | None,
        suffix: str | None,
        report: Callable[[str], None],
    ) -> RunResult:
        ((_, values),) = feeds.items()
        (out,) = self.model.outputs
        plain = tiling.result_axes == (len(tiling.shape) - 2, len(tiling.shape) - 1)
        is_image = plain and tiling.shape[-3] in (1, 3) and set(tiling.shape[:-3]) <= {1}
        # Of an image that nobody wants to have written, figures suffice.
        kept = not is_image or self.query.top is not None or suffix != ""
        is_image &= self.query.top is None and suffix in (None, *WRITTEN_SUFFIXES)
        sink = _Sink(out.name, tiling, kept, is_image)

        def take(rows: slice, columns: slice) -> NDArray[Any]:
            index = [slice(None)] * values.ndim
            index[tiling.axes[0]], index[tiling.axes[1]] = rows, columns
            part: NDArray[Any] = values[tuple(index)]
            return part

        def told(done: int) -> None:
            report(f"tile {done} of {len(tiling)}")

        for rows, columns, part in tiling.run(cast("Any", self.model), take, told):
            sink.put(rows, columns, part)
        outputs = {} if sink.array is None else {out.name: sink.array}
        seen = (
            seen_in(outputs, self.query, image)
            if outputs
            else SeenOutputs(None, None, None, self.query)
        )
        return RunResult(outputs, {out.name: sink.figures}, seen, image, sink.canvas)


class _Sink:
    """A result that comes in parts: an image of bytes, or an array."""

    def __init__(self, name: str, tiling: ImageTiles, kept: bool, is_image: bool) -> None:
        self._name, self._tiling, self._kept, self._is_image = name, tiling, kept, is_image
        self.array: NDArray[Any] | None = None
        self.canvas: Image | None = None
        self._kind = ""
        self._low, self._sum, self._high = np.inf, 0.0, -np.inf

    @property
    def figures(self) -> OutputFigures:
        """Of the whole."""
        mean = self._sum / max(1, int(np.prod(self._tiling.shape)))
        return OutputFigures(self._kind, self._tiling.shape, (self._low, mean, self._high))

    def put(self, rows: slice, columns: slice, part: NDArray[Any]) -> None:
        """Add a part."""
        self._kind = str(part.dtype)
        self._low, self._high = (
            min(self._low, float(part.min())),
            max(self._high, float(part.max())),
        )
        self._sum += float(part.sum(dtype="float64"))
        if self._is_image:
            self._paste(rows, columns, as_bytes(self._name, part))
        elif self._kept:
            self._place(rows, columns, part)

    def _place(self, rows: slice, columns: slice, part: NDArray[Any]) -> None:
        if self.array is None:
            self.array = np.empty(self._tiling.shape, part.dtype)
        index = [slice(None)] * part.ndim
        for axis, place in zip(self._tiling.result_axes, (rows, columns), strict=True):
            index[axis] = place
        self.array[tuple(index)] = part

    def _paste(self, rows: slice, columns: slice, pixels: NDArray[np.uint8]) -> None:
        """Into Pillow's own memory, so that the whole is there once."""
        from PIL import Image  # noqa: PLC0415

        grey = pixels.shape[2] == 1
        if self.canvas is None:
            high, wide = self._tiling.shape[-2:]
            self.canvas = Image.new("L" if grey else "RGB", (wide, high))
        part = Image.fromarray(pixels[..., 0] if grey else pixels)
        self.canvas.paste(part, (columns.start, rows.start))


def _is_numeric(result: object) -> bool:
    """Not where it is strings, a sequence, or nothing."""
    return getattr(getattr(result, "dtype", None), "kind", "O") in "biufV"
