"""What is said of a run's outputs: figures, the most probable classes, detections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from saccade.cli._print import say, say_fitted
from saccade.vision.detections import name_of

if TYPE_CHECKING:
    from saccade.cli._images import ImageInput
    from saccade.vision import Detections

__all__ = ["OutputFigures", "SeenOutputs", "TopQuery", "figures_of", "seen_in"]

_MOST_LINES = 20  # of detections, or classes, of one image


@dataclass(frozen=True, slots=True)
class OutputFigures:
    """An output in numbers.

    Attributes:
        kind: Element type, or the type of what is no array.
        shape: None of what is no array.
        ends: The least, the mean and the largest value; None of what has none.
        count: Elements of what is no array, if it has any.
    """

    kind: str
    shape: tuple[int, ...] | None = None
    ends: tuple[float, float, float] | None = None
    count: int | None = None

    def line(self, name: str) -> str:
        """One line: name, dtype, shape, and the range of the values; of what is no array its type.

        Args:
            name: Of the output.
        """
        if self.shape is None:
            return f"{name}: {self.kind}" + (f" of {self.count}" if self.count is not None else "")
        line = f"{name}: {self.kind} {'x'.join(map(str, self.shape)) or 'scalar'}"
        if self.ends is not None:
            low, mean, high = self.ends
            line += f", min {low:.6g}, mean {mean:.6g}, max {high:.6g}"
        return line

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        if self.shape is None:
            return {"type": self.kind}
        found: dict[str, Any] = {"dtype": self.kind, "shape": list(self.shape)}
        if self.ends is not None:
            # JSON has no word for what is not finite.
            plain = [float(v) if isfinite(v) else str(v) for v in self.ends]
            found |= dict(zip(("min", "mean", "max"), plain, strict=True))
        return found


def figures_of(output: NDArray[Any] | object) -> OutputFigures:
    """An output in numbers."""
    if not isinstance(output, np.ndarray):
        count = len(output) if isinstance(output, list) else None
        return OutputFigures(type(output).__name__, count=count)
    ends = None
    if output.size and output.dtype.kind in "fiu":
        ends = (output.min(), output.mean(dtype="float64"), output.max())
    return OutputFigures(str(output.dtype), output.shape, ends)


@dataclass(frozen=True, slots=True)
class TopQuery:
    """What is asked of outputs.

    Attributes:
        top: Print so many of the most probable classes; None for none.
        labels: Names of classes.
        threshold: Least score of a detection.
    """

    top: int | None = None
    labels: Sequence[str] = ()
    threshold: float = 0.5


@dataclass(frozen=True, slots=True)
class SeenOutputs:
    """What outputs mean, as far as that is known.

    Attributes:
        best: Of each image of a batch the most probable classes, as data; None if not asked for.
        detections: None if the outputs are those of no detector that is known.
        classes: Of each pixel; None if the outputs are no scores of that.
        query: What was asked.
    """

    best: list[list[dict[str, Any]]] | None
    detections: Detections | None
    classes: NDArray[np.int64] | None
    query: TopQuery

    def say(self) -> None:
        """Print it."""
        for number, best in enumerate(self.best or ()):
            if self.best is not None and len(self.best) > 1:
                say(f"image {number}:")
            say_fitted(f"  {one['probability']:7.2%}  {one['label']}" for one in best)
        found = self.found()
        if self.detections is not None and not found:
            least = f"{self.query.threshold:g}"
            say(f"  nothing was found with a score of {least} or more (--threshold)")
        _say_some([_found_line(one) for one in found])
        _say_some([f"  {share:7.2%}  {name}" for name, share in self.shares().items()])

    def data(self) -> dict[str, Any]:
        """The same as plain data, what there is of it."""
        found: dict[str, Any] = {} if self.best is None else {"top": self.best}
        if self.detections is not None:
            found["detections"] = self.found()
        if self.classes is not None:
            found["classes"] = self.shares()
        return found

    def found(self) -> list[dict[str, Any]]:
        """Detections as data: label, name, score, box in pixels."""
        if self.detections is None:
            return []
        one = self.detections
        rows = zip(one.labels.tolist(), one.scores.tolist(), one.boxes.tolist(), strict=True)
        return [
            {"label": label, "name": name_of(label, self.query.labels), "score": score, "box": box}
            for label, score, box in rows
        ]

    def shares(self) -> dict[str, float]:
        """How much of the image each class has, the most first."""
        if self.classes is None:
            return {}
        labels, counts = np.unique(self.classes, return_counts=True)
        return {
            name_of(int(labels[i]), self.query.labels): float(counts[i] / self.classes.size)
            for i in np.argsort(-counts, kind="stable")
        }

    def drawn(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        """The image with what was found in it; None if it is not known what that is."""
        from saccade import vision  # noqa: PLC0415

        if self.detections is not None:
            return vision.draw(pixels, self.detections, self.query.labels)
        return None if self.classes is None else vision.overlay(pixels, self.classes)


def seen_in(
    outputs: Mapping[str, NDArray[Any]], query: TopQuery, image: ImageInput | None
) -> SeenOutputs:
    """What outputs mean.

    Args:
        outputs: All, by name.
        query: What is asked.
        image: What the model was given; None if that was no image.

    Raises:
        InputError: If they are not what is asked for.
    """
    from saccade import vision  # noqa: PLC0415

    best = None
    if query.top is not None:
        found = vision.top(next(iter(outputs.values())), query.top, query.labels)
        best = [[one._asdict() for one in one_image] for one_image in found]
    arrays = all(isinstance(output, np.ndarray) for output in outputs.values())
    detections = classes = None
    if image is not None and arrays:
        kind = vision.detector_of(outputs, image.prepared)
        if kind is None:
            classes = vision.segmentation_of(outputs, image.prepared)
        else:
            detections = vision.decode(outputs, image.prepared, kind, threshold=query.threshold)
    return SeenOutputs(best, detections, classes, query)


def _found_line(one: Mapping[str, Any]) -> str:
    left, top, right, bottom = (round(edge) for edge in one["box"])
    return f"  {one['score']:7.2%}  {one['name']}  {left},{top} to {right},{bottom}"


def _say_some(lines: Sequence[str]) -> None:
    say_fitted(lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        say(f"  and {len(lines) - _MOST_LINES} more")
