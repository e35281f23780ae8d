"""Detections out of the outputs of networks that we know, by their names and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.errors import InputError
from saccade.vision._families import FAMILIES, Family, FoundRows
from saccade.vision._outputs import Outputs, named_outputs
from saccade.vision.detections import Detections
from saccade.vision.prepare import PreparedImage

__all__ = ["DETECTORS", "decode", "detector_of"]

DETECTORS = tuple(FAMILIES)
"""What `decode` knows by name."""
_MOST_COMPARED = 4096  # boxes of an image, the best, of which those that overlap are dropped
_INSIDE = 0.5  # what a mask's values exceed where the thing is


def detector_of(outputs: Outputs, prepared: PreparedImage) -> str | None:
    """Which of `DETECTORS` these are the outputs of, by names, shapes and types; None for none.

    Args:
        outputs: All of a model's, for one image: by name, which tells more, or as a call gives
            them.
        prepared: What the model was given.
    """
    named, size = named_outputs(outputs), prepared.values.shape[-2:]
    return next((name for name, one in FAMILIES.items() if one.fits(named, size)), None)


def decode(
    outputs: Outputs,
    prepared: PreparedImage,
    kind: str | None = None,
    *,
    threshold: float = 0.5,
    overlap: float = 0.5,
    most: int = 100,
) -> Detections:
    """The detections in a model's outputs, for one image.

    What each kind is, and which outputs it has:

    - `torchvision`: Faster, Mask and Keypoint R-CNN, SSD, RetinaNet, FCOS. Boxes `[N, 4]`, labels
      `[N]` and scores `[N]`, in any order; masks `[N, 1, H, W]`; keypoints `[N, K, 3]`.
    - `yolov5`: YOLO v3, v5, v7. `[1, M, 5 + classes]`, M = 3 for each point.
    - `yolov8`: YOLO v8, v9, v11, segmentation. `[1, 4 + classes, M]` or `[1, M, 4 + classes]`; with
      `[1, K, h, w]` of which masks are made.
    - `yolov10`: YOLO v10 and others without suppression. `[1, N, 6]`: box, score, class.
    - `detr`: DETR. `logits [1, N, classes + 1]`, `pred_boxes [1, N, 4]`.
    - `rtdetr`: RT-DETR, Deformable DETR. `logits [1, N, classes]`, `pred_boxes [1, N, 4]`.
    - `tf`: TensorFlow's detection models. `detection_boxes`, `detection_scores`,
      `detection_classes`.
    - `nms`: EfficientNMS_TRT. `num_dets`, `det_boxes`, `det_scores`, `det_classes`.
    - `yunet`: YuNet, faces, eyes, nose, mouth. `cls_8`, `obj_8`, `bbox_8`, `kps_8`, and so for 16
      and 32.

    Args:
        outputs: All of a model's: by name, as `Model.run` gives them, or as a call of the model or
            a session's `run` does. The last three kinds are told by names.
        prepared: What the model was given: boxes come back in the pixels of its image.
        kind: One of `DETECTORS`; None to tell by names and shapes.
        threshold: The least score.
        overlap: Of boxes of one class that overlap by more, over their union, only the best stays.
            Networks that see to that themselves are left alone.
        most: How many there may be.

    Raises:
        InputError: If the outputs are of no network that is known, do not fit the kind, or are no
            probabilities where they should be.
    """
    named = named_outputs(outputs)
    if kind is None:
        kind = detector_of(named, prepared)
        if kind is None:
            raise InputError(
                f"the outputs are of no detector that is known ({_told(named)}): give a kind, "
                f"one of {', '.join(DETECTORS)}"
            )
    if kind not in FAMILIES:
        raise InputError(f"no detector {kind!r}; there is {', '.join(DETECTORS)}")
    family, size = FAMILIES[kind], prepared.values.shape[-2:]
    if not family.takes(named):
        raise InputError(f"the outputs are not those of {kind}: {_told(named)}")
    # What is infinite, or no number, is left out below.
    with np.errstate(all="ignore"):
        rows = family.read(named, size)
        kept = _best(family, rows, threshold, overlap)[:most]
        return Detections(
            prepared.boxes(rows.boxes[kept].astype(np.float32)),
            rows.scores[kept].astype(np.float32),
            rows.labels[kept],
            _masks(rows, kept, prepared),
            _keypoints(rows, kept, prepared),
        )


def _told(outputs: Mapping[str, NDArray[Any]]) -> str:
    shapes = (f"{name} {'x'.join(map(str, array.shape))}" for name, array in outputs.items())
    return ", ".join(shapes)


def _best(family: Family, rows: FoundRows, threshold: float, overlap: float) -> NDArray[np.intp]:
    """Rows that count, the best first."""
    scores = rows.scores.astype(np.float32)
    finite = np.isfinite(rows.boxes).all(axis=1)
    taken = np.flatnonzero((scores >= threshold) & finite)  # a NaN is not
    if len(taken) and scores[taken].max() > 1 + 1e-3:
        raise InputError(
            f"a score of {scores[taken].max():.4g} is no probability: these are other outputs"
        )
    taken = taken[np.argsort(-scores[taken], kind="stable")]
    if not family.overlapping or not len(taken):
        return taken
    from saccade.opdefs.nms import Nms  # noqa: PLC0415 - networks that suppress need none of it

    taken = taken[:_MOST_COMPARED]
    boxes = rows.boxes[taken].astype(np.float32)
    (found,) = Nms(overlap).reference(boxes, scores[taken], rows.labels[taken])
    return taken[found[: found[-1]]]


def _masks(
    rows: FoundRows, kept: NDArray[np.intp], prepared: PreparedImage
) -> NDArray[np.bool_] | None:
    if rows.masks is None:
        return None
    wide, high = prepared.size
    masks = np.zeros((len(kept), high, wide), np.bool_)
    for mask, row in zip(masks, kept, strict=True):
        mask[:] = prepared.plane(rows.masks(int(row))) > _INSIDE
    return masks


def _keypoints(
    rows: FoundRows, kept: NDArray[np.intp], prepared: PreparedImage
) -> NDArray[np.float32] | None:
    if rows.keypoints is None:
        return None
    found = rows.keypoints[kept].astype(np.float32)
    return np.concatenate([prepared.points(found[..., :2]), found[..., 2:]], axis=-1)
