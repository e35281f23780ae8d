"""Families of detectors: how their outputs are told, and what rows of them say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["FAMILIES", "Family", "FoundRows"]

_Floats = NDArray[np.float32]
_Outputs = Mapping[str, NDArray[Any]]
_Size = tuple[int, ...]

_STRIDES = ((8, 16, 32), (8, 16, 32, 64), (16, 32))
"""Pixels of the input between the points of each map; a point at least for each begun stride."""
_ANCHORS = 3  # boxes for each point
_MOST_ROWS = 1000  # of what is suppressed, or found by queries
# Numbers of queries and of logits, classes and none, that are told apart.
_SOFTMAX_QUERIES, _SIGMOID_QUERIES, _SOFTMAX_LOGITS = (100,), (300, 900), (92, 251)


class FoundRows(NamedTuple):
    """Candidates in the pixels of a network's input.

    Attributes:
        boxes: [N, 4], x1, y1, x2, y2.
        scores: [N].
        labels: [N] int64.
        masks: Of a row, as [h, w] that covers the input, from 0 to 1.
        keypoints: [N, K, 3].
    """

    boxes: NDArray[Any]
    scores: NDArray[Any]
    labels: NDArray[np.int64]
    masks: Callable[[int], _Floats] | None = None
    keypoints: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """Detectors whose outputs are alike.

    Attributes:
        takes: Whether outputs have its form.
        tells: Whether they are surely none of another, for an input of this height and width.
        read: All candidates.
        overlapping: Whether several boxes of one thing are among them.
    """

    takes: Callable[[_Outputs], bool]
    tells: Callable[[_Outputs, _Size], bool]
    read: Callable[[_Outputs, _Size], FoundRows]
    overlapping: bool = False

    def fits(self, outputs: _Outputs, size: _Size) -> bool:
        """Whether outputs have its form, and surely no other's."""
        return self.takes(outputs) and self.tells(outputs, size)


def _always(_outputs: _Outputs, _size: _Size) -> bool:
    return True


def _corners(boxes: NDArray[Any]) -> NDArray[Any]:
    """Boxes given by middle, width and height, by their edges."""
    half = boxes[..., 2:] / 2
    return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], axis=-1)


def _sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    # Half of a tangent cannot overflow.
    found: NDArray[Any] = (1 + np.tanh(x / 2)) / 2
    return found


def _best_class(scores: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The largest of each row's scores, and whose it is."""
    labels = scores.argmax(axis=1).astype(np.int64)
    return np.take_along_axis(scores, labels[:, None], axis=1)[:, 0], labels


class _Torchvision(NamedTuple):
    boxes: NDArray[Any]
    scores: NDArray[Any]
    labels: NDArray[Any]
    masks: NDArray[Any] | None
    keypoints: NDArray[Any] | None


def _torchvision_parts(outputs: _Outputs) -> _Torchvision | None:
    """The outputs by what they must be; None unless each is one of these, and all are there."""
    found: dict[str, NDArray[Any]] = {}
    for array in outputs.values():
        kind = _torchvision_part(array)
        # A second output of rank 2 holds the keypoints' scores, of which `keypoints` has enough.
        if kind is None or (kind in found and kind != "more"):
            return None
        found[kind] = array
    if not {"boxes", "scores", "labels"} <= set(found):
        return None
    if len({len(array) for array in found.values()}) != 1:
        return None
    rest = (found.get("masks"), found.get("keypoints"))
    if "more" in found and rest[1] is None:
        return None
    return _Torchvision(found["boxes"], found["scores"], found["labels"], *rest)


def _torchvision_part(array: NDArray[Any]) -> str | None:
    floats, shape = array.dtype.kind == "f", array.shape
    match len(shape):
        case 1:
            return "scores" if floats else "labels" if array.dtype.kind in "iu" else None
        case 2 if floats:
            return "boxes" if shape[1] == 4 else "more"
        case 3 if floats and shape[2] == 3:
            return "keypoints"
        case 4 if floats and shape[1] == 1:
            return "masks"
        case _:
            return None


def _torchvision(outputs: _Outputs, _size: _Size) -> FoundRows:
    parts = _torchvision_parts(outputs)
    assert parts is not None
    planes = parts.masks
    masks = None if planes is None else lambda row: planes[row, 0].astype(np.float32)
    labels = parts.labels.astype(np.int64)
    return FoundRows(parts.boxes, parts.scores, labels, masks, parts.keypoints)


def _points(size: _Size) -> set[int]:
    """How many points the maps of a YOLO may have together, for an input of a size."""
    high, wide = size
    return {sum(-(-high // s) * -(-wide // s) for s in strides) for strides in _STRIDES}


def _rows_of(outputs: _Outputs) -> list[NDArray[Any]]:
    """Outputs that are rows of numbers for one image."""
    return [a for a in outputs.values() if a.ndim == 3 and len(a) == 1 and a.dtype.kind == "f"]


def _one_of_rows(outputs: _Outputs, least: int) -> bool:
    """Whether one output is rows of numbers, and all others are maps that it was made of."""
    rows = _rows_of(outputs)
    others = [array for array in outputs.values() if array.ndim not in (3, 5)]
    return len(rows) == 1 and not others and int(rows[0].shape[2]) >= least


def _tells_anchors(outputs: _Outputs, size: _Size) -> bool:
    (rows,) = _rows_of(outputs)
    return rows.shape[1] in {_ANCHORS * count for count in _points(size)}


def _anchors(outputs: _Outputs, _size: _Size) -> FoundRows:
    ((rows,),) = _rows_of(outputs)
    scores, labels = _best_class(rows[:, 5:] * rows[:, 4:5])
    return FoundRows(_corners(rows[:, :4]), scores, labels)


def _prototypes(outputs: _Outputs) -> NDArray[Any] | None:
    """[K, h, w] that masks are sums of."""
    found = [a for a in outputs.values() if a.ndim == 4 and len(a) == 1 and a.dtype.kind == "f"]
    return found[0][0] if len(found) == 1 else None


def _takes_points(outputs: _Outputs) -> bool:
    rows, prototypes = _rows_of(outputs), _prototypes(outputs)
    if len(rows) != 1 or len(outputs) != 1 + (prototypes is not None):
        return False
    least = 5 + (0 if prototypes is None else len(prototypes))
    return bool(min(rows[0].shape[1:]) >= least)


def _tells_points(outputs: _Outputs, size: _Size) -> bool:
    (rows,) = _rows_of(outputs)
    return bool(_points(size) & set(rows.shape[1:]))


def _by_points(outputs: _Outputs, size: _Size) -> FoundRows:
    ((rows,),) = _rows_of(outputs)
    # Rows are either axis; points are many more than classes where nothing else tells.
    known = [axis for axis in (1, 0) if rows.shape[axis] in _points(size)]
    along = known[0] if known else int(rows.shape[1] > rows.shape[0])
    rows = rows.T if along else rows
    prototypes = _prototypes(outputs)
    end = rows.shape[1] - (0 if prototypes is None else len(prototypes))
    scores, labels = _best_class(rows[:, 4:end])
    boxes = _corners(rows[:, :4])
    if prototypes is None:
        return FoundRows(boxes, scores, labels)
    made = _MadeMasks(prototypes, rows[:, end:], boxes, size)
    return FoundRows(boxes, scores, labels, made.of)


@dataclass(frozen=True, slots=True)
class _MadeMasks:
    """Masks as sums of prototypes, cut off around their boxes."""

    prototypes: NDArray[Any]
    shares: NDArray[Any]
    boxes: NDArray[Any]
    size: _Size

    def of(self, row: int) -> _Floats:
        """The mask of a row, [h, w]."""
        count, high, wide = self.prototypes.shape
        plane = self.shares[row] @ self.prototypes.reshape(count, -1)
        mask = _sigmoid(plane.astype(np.float32)).reshape(high, wide)
        steps = np.array([wide / self.size[1], high / self.size[0]] * 2)
        left, top, right, bottom = self.boxes[row] * steps
        down, across = np.arange(high)[:, None] + 0.5, np.arange(wide)[None] + 0.5
        inside = (down > top) & (down < bottom) & (across > left) & (across < right)
        found: _Floats = np.where(inside, mask, 0).astype(np.float32)
        return found


def _tells_suppressed(outputs: _Outputs, size: _Size) -> bool:
    (rows,) = _rows_of(outputs)
    return rows.shape[1] <= _MOST_ROWS and not _tells_anchors(outputs, size)


def _suppressed(outputs: _Outputs, _size: _Size) -> FoundRows:
    ((rows,),) = _rows_of(outputs)
    return FoundRows(rows[:, :4], rows[:, 4], _whole(rows[:, 5]))


def _whole(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Classes that come as floats; -1 for what is none."""
    plain = np.nan_to_num(labels, nan=-1, posinf=-1, neginf=-1)
    found: NDArray[np.int64] = np.rint(plain).astype(np.int64)
    return found


def _queries(outputs: _Outputs) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Logits [Q, C] and boxes [Q, 4] by name, or by shape where there are only these two."""
    logits, boxes = outputs.get("logits"), outputs.get("pred_boxes")
    if boxes is None or logits is None:
        rows = _rows_of(outputs)
        if len(outputs) != 2 or len(rows) != 2:
            return None
        four = [array.shape[2] == 4 for array in rows]
        if sum(four) != 1:
            return None
        boxes, logits = (rows if four[0] else rows[::-1])[:2]
    fits = logits.ndim == boxes.ndim == 3 and logits.shape[:2] == boxes.shape[:2]
    if not fits or len(boxes) != 1 or boxes.shape[2] != 4 or logits.shape[2] < 2:
        return None
    return logits[0], boxes[0]


def _tells_softmax(outputs: _Outputs, _size: _Size) -> bool:
    found = _queries(outputs)
    assert found is not None
    queries, classes = found[0].shape
    return queries in _SOFTMAX_QUERIES or classes in _SOFTMAX_LOGITS


def _tells_sigmoid(outputs: _Outputs, size: _Size) -> bool:
    found = _queries(outputs)
    assert found is not None
    return len(found[0]) in _SIGMOID_QUERIES and not _tells_softmax(outputs, size)


def _relative(boxes: NDArray[Any], size: _Size) -> NDArray[Any]:
    """Boxes in parts of the input, in its pixels."""
    found: NDArray[Any] = boxes * np.array([size[1], size[0]] * 2, boxes.dtype)
    return found


def _softmaxed(outputs: _Outputs, size: _Size) -> FoundRows:
    found = _queries(outputs)
    assert found is not None
    logits, boxes = found
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    # The last class is none.
    scores, labels = _best_class((powers / powers.sum(axis=1, keepdims=True))[:, :-1])
    return FoundRows(_relative(_corners(boxes), size), scores, labels)


def _sigmoided(outputs: _Outputs, size: _Size) -> FoundRows:
    found = _queries(outputs)
    assert found is not None
    logits, boxes = found
    scores, labels = _best_class(_sigmoid(logits))
    return FoundRows(_relative(_corners(boxes), size), scores, labels)


def _listed(outputs: _Outputs, prefix: str) -> tuple[NDArray[Any], ...] | None:
    """Boxes [N, 4], scores [N] and classes [N] by their names, which TensorFlow ends in `:0`."""
    named = {name.partition(":")[0]: array for name, array in outputs.items()}
    found = [named.get(prefix + part) for part in ("boxes", "scores", "classes")]
    arrays = [array for array in found if array is not None]
    if len(arrays) != 3 or any(a.ndim != (3, 2, 2)[i] or len(a) != 1 for i, a in enumerate(arrays)):
        return None
    boxes, scores, classes = (array[0] for array in arrays)
    alike = len(boxes) == len(scores) == len(classes)
    return (boxes, scores, classes) if alike and boxes.shape[1] == 4 else None


def _tf(outputs: _Outputs, size: _Size) -> FoundRows:
    found = _listed(outputs, "detection_")
    assert found is not None
    boxes, scores, classes = found
    return FoundRows(_relative(boxes[:, [1, 0, 3, 2]], size), scores, _whole(classes))


def _counted(outputs: _Outputs) -> int | None:
    """How many of the rows count."""
    count = outputs.get("num_dets")
    if count is None or count.size != 1 or count.dtype.kind not in "iu":
        return None
    return int(count.reshape(()))


def _nms(outputs: _Outputs, _size: _Size) -> FoundRows:
    found, count = _listed(outputs, "det_"), _counted(outputs)
    assert found is not None and count is not None
    boxes, scores, classes = (array[: max(count, 0)] for array in found)
    return FoundRows(boxes, scores, _whole(classes))


def _yunet_parts(outputs: _Outputs) -> dict[int, tuple[NDArray[Any], ...]] | None:
    """By stride: faces [P], whether there is anything [P], boxes [P, 4], key points [P, 10]."""
    found: dict[int, tuple[NDArray[Any], ...]] = {}
    names = ("cls", "obj", "bbox", "kps")
    for stride in _STRIDES[0]:
        arrays = [outputs.get(f"{name}_{stride}") for name in names]
        there = [a for a in arrays if a is not None and a.ndim == 3 and len(a) == 1]
        if [a.shape[2] for a in there] != [1, 1, 4, 10] or len({a.shape[1] for a in there}) != 1:
            return None
        face, there_is, *rest = (array[0] for array in there)
        found[stride] = (face[:, 0], there_is[:, 0], *rest)
    return found if len(outputs) == len(names) * len(found) else None


def _takes_yunet(outputs: _Outputs, size: _Size) -> bool:
    parts = _yunet_parts(outputs) or {}
    return all(len(one[0]) == (size[0] // s) * (size[1] // s) for s, one in parts.items())


def _yunet(outputs: _Outputs, size: _Size) -> FoundRows:
    rows: list[NDArray[Any]] = []
    for stride, (face, there, box, marks) in (_yunet_parts(outputs) or {}).items():
        row, column = np.divmod(np.arange(len(face)), max(size[1] // stride, 1))
        grid = np.stack([column, row], 1).astype(np.float32)
        boxes = _corners(np.concatenate([grid + box[:, :2], np.exp(box[:, 2:])], 1))
        points = (grid[:, None] + marks.reshape(-1, 5, 2)).reshape(-1, 10)
        score = np.sqrt(np.clip(face, 0, 1) * np.clip(there, 0, 1))
        rows.append(np.concatenate([boxes * stride, points * stride, score[:, None]], 1))
    whole = np.concatenate(rows)
    points = whole[:, 4:14].reshape(-1, 5, 2)
    seen = np.ones((len(whole), 5, 1), whole.dtype)
    return FoundRows(
        whole[:, :4],
        whole[:, 14],
        np.zeros(len(whole), np.int64),
        keypoints=np.concatenate([points, seen], -1),
    )


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "torchvision": Family(lambda o: _torchvision_parts(o) is not None, _always, _torchvision),
        "tf": Family(lambda o: _listed(o, "detection_") is not None, _always, _tf),
        "nms": Family(
            lambda o: _listed(o, "det_") is not None and _counted(o) is not None, _always, _nms
        ),
        "yunet": Family(lambda o: _yunet_parts(o) is not None, _takes_yunet, _yunet, True),
        "detr": Family(lambda o: _queries(o) is not None, _tells_softmax, _softmaxed),
        "rtdetr": Family(lambda o: _queries(o) is not None, _tells_sigmoid, _sigmoided),
        "yolov5": Family(lambda o: _one_of_rows(o, 6), _tells_anchors, _anchors, True),
        "yolov8": Family(_takes_points, _tells_points, _by_points, True),
        "yolov10": Family(
            lambda o: _one_of_rows(o, 6) and _rows_of(o)[0].shape[2] == 6,
            _tells_suppressed,
            _suppressed,
        ),
    }
)
"""By name, in the order in which outputs are held against them."""
