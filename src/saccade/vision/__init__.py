"""Around a vision model: images as people have them to its input, its scores to names."""

from saccade.vision.images import read
from saccade.vision.prepare import KINDS, PreparedImage, imagenet, letterbox, prepare, unit
from saccade.vision.scores import ScoredClass, read_labels, top

__all__ = [
    "KINDS",
    "PreparedImage",
    "ScoredClass",
    "imagenet",
    "letterbox",
    "prepare",
    "read",
    "read_labels",
    "top",
    "unit",
]
