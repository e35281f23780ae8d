"""What detectors found, in the pixels of an image, whatever network it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Detections", "name_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """Things in an image, the best first.

    Attributes:
        boxes: [N, 4] float32, x1, y1, x2, y2 in the image's pixels.
        scores: [N] float32, from 0 to 1.
        labels: [N] int64, the classes.
        masks: [N, H, W] bool, of the image's size; None of networks that give none.
        keypoints: [N, K, 3] float32, x and y in the image's pixels, and how sure; None as above.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    labels: NDArray[np.int64]
    masks: NDArray[np.bool_] | None = None
    keypoints: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.scores)


def name_of(label: int, labels: Sequence[str]) -> str:
    """A class by name; its number where there is no such line."""
    return labels[label] if 0 <= label < len(labels) else str(label)
