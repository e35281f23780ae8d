"""Around a vision model: images as people have them to its input, its outputs to what they mean."""

from saccade.vision.decode import DETECTORS, decode, detector_of
from saccade.vision.detections import Detections
from saccade.vision.draw import draw, overlay, segmentation_of
from saccade.vision.images import read
from saccade.vision.prepare import KINDS, PreparedImage, imagenet, letterbox, prepare, unit
from saccade.vision.scores import ScoredClass, read_labels, top
from saccade.vision.tiles import ImageTiles, tiled, tiling_of
from saccade.vision.video import VideoFrame, VideoReader, VideoWriter

__all__ = [
    "DETECTORS",
    "KINDS",
    "Detections",
    "ImageTiles",
    "PreparedImage",
    "ScoredClass",
    "VideoFrame",
    "VideoReader",
    "VideoWriter",
    "decode",
    "detector_of",
    "draw",
    "imagenet",
    "letterbox",
    "overlay",
    "prepare",
    "read",
    "read_labels",
    "segmentation_of",
    "tiled",
    "tiling_of",
    "top",
    "unit",
]
