"""Non-maximum suppression of boxes, all of one kind or by classes.

    nms            as `torchvision.ops.nms`
    batched_nms    as `torchvision.ops.batched_nms`, but exact: see there
    nms_padded     both, with as many indices as there are boxes: nobody waits for a GPU

float32, float64, bfloat16 and float16; overlaps are computed in float32, in float64 for float64.
On the CPU the boxes that stay are found one after the other by a single thread (`nms.direct`), on a
GPU strip by strip (`nms.suppress`).
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from saccade.errors import OperandError
from saccade.opdefs import Nms
from saccade.ops._execute import Operator
from saccade.ops._plan import Described
from saccade.ops._register import define
from saccade.ops._tensors import FLOATS, PLAIN, refuse_others, refuse_type

__all__ = ["batched_nms", "nms", "nms_padded"]

_MANY = 8192
"""Boxes from which sorting them by class takes less than comparing all (an estimate: 200 µs)."""


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices of the boxes that no better one overlaps too much, as `torchvision.ops.nms`.

    The box with the highest score stays and drops every other one whose intersection with it over
    their union is above the threshold (not equal to it); then the best of what is left, and so on.
    To the last bit what torchvision's kernel for the CPU gives: equal scores keep the order of
    their boxes, NaN is the highest score, a box with a NaN coordinate or with an infinite area
    stays and drops nothing, and so does one with x2 <= x1 or y2 <= y1 unless the threshold is
    negative.

    Args:
        boxes: [N, 4] as (x1, y1, x2, y2), in any unit and of any strides.
        scores: [N], of any floating-point dtype.
        iou_threshold: What the ratio has to exceed.

    Returns:
        int64, by falling score.

    Raises:
        OperandError: If the shapes or dtypes are other ones.
    """
    refuse_others("nms", boxes=boxes, scores=scores)
    kept: Tensor = _NMS(boxes, scores, iou_threshold)
    return kept


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """`nms` where only boxes of the same class drop each other, as `torchvision.ops.batched_nms`.

    Classes are compared as they are. Torchvision moves the boxes of each class to a place of their
    own instead, unless there are many: that rounds coordinates, so that boxes near the threshold
    may stay or go where they should not, and overflows in float16.

    Args:
        boxes: [N, 4] as (x1, y1, x2, y2), in any unit and of any strides.
        scores: [N], of any floating-point dtype.
        idxs: [N], the class of each box; any numbers.
        iou_threshold: What the ratio has to exceed.

    Returns:
        int64, by falling score, whatever the class.

    Raises:
        OperandError: If the shapes or dtypes are other ones.
    """
    refuse_others("batched_nms", boxes=boxes)
    if boxes.numel() == 0:  # torchvision looks at nothing else then
        return torch.empty((0,), dtype=torch.int64, device=boxes.device)
    refuse_others("batched_nms", scores=scores, idxs=idxs)
    kept: Tensor = _BATCHED_NMS(boxes, scores, idxs, iou_threshold)
    return kept


def nms_padded(
    boxes: Tensor, scores: Tensor, iou_threshold: float, idxs: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`nms` (`batched_nms` with `idxs`) whose result has a size that is known beforehand.

    How many boxes stay is a tensor: on a GPU nothing waits for it, and the call may be part of a
    CUDA graph.

    Args:
        boxes: [N, 4] as (x1, y1, x2, y2), in any unit and of any strides.
        scores: [N], of any floating-point dtype.
        iou_threshold: What the ratio has to exceed.
        idxs: [N], the class of each box, any numbers; None for one class.

    Returns:
        int64 [N], the indices of the boxes that stay, by falling score, then -1; and int64 [], how
        many they are.

    Raises:
        OperandError: If the shapes or dtypes are other ones.
    """
    refuse_others("nms_padded", boxes=boxes, scores=scores)
    if idxs is not None:
        refuse_others("nms_padded", idxs=idxs)
    found: Tensor = _NMS_PADDED(boxes, scores, idxs, iou_threshold)
    return found[:-1], found[-1]


def _check(boxes: Tensor, scores: Tensor) -> None:
    """Torchvision's messages, where it has any."""
    shape, scored = boxes.shape, scores.shape
    if len(shape) != 2:
        raise OperandError(f"nms: boxes should be a 2d tensor, got {len(shape)}D")
    if shape[1] != 4:
        raise OperandError(f"nms: boxes should have 4 elements in dimension 1, got {shape[1]}")
    if len(scored) != 1:
        raise OperandError(f"nms: scores should be a 1d tensor, got {len(scored)}D")
    if shape[0] != scored[0]:
        raise OperandError(
            "nms: boxes and scores should have same number of elements in dimension 0, got "
            f"{shape[0]} and {scored[0]}"
        )
    if boxes.dtype not in FLOATS or scores.dtype not in FLOATS:
        raise OperandError(
            f"nms: boxes and scores should be floating point, are {boxes.dtype} and {scores.dtype}"
        )


def _check_classes(boxes: Tensor, idxs: Tensor) -> None:
    if idxs.shape != boxes.shape[:1]:
        raise OperandError(
            f"batched_nms: idxs should be [{boxes.shape[0]}], are {list(idxs.shape)}"
        )
    if idxs.is_complex():
        raise OperandError("batched_nms: idxs are complex")


def _nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    return _kept([boxes, scores], iou_threshold)


def _batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    if not isinstance(idxs, Tensor):
        refuse_type("batched_nms", "idxs", idxs)
    if idxs.dtype is not torch.int64:
        # Of uint64 large numbers wrap, which keeps them apart.
        idxs = _integers(idxs)
    return _kept([boxes, scores, idxs], iou_threshold)


def _by_class(operands: list[Tensor], iou_threshold: float) -> Tensor:
    """What the operator gives for many boxes on a GPU: the boxes of a class behind each other.

    Each is then compared with those of its class alone. Nothing here waits for the GPU.
    """
    boxes, scores, idxs = operands
    count = boxes.shape[0]
    by_score = torch.sort(scores, descending=True, stable=True).indices
    kinds, by_class = torch.sort(idxs[by_score], stable=True)
    ordered = boxes[by_score[by_class]]
    (found,) = _ORDERED([ordered, ordered[:, 0], kinds], (iou_threshold,))
    places, stay = found[:count], found[count:]
    # Which places of the order by score stay; what is not there goes behind them all.
    stays = torch.zeros(count + 1, dtype=torch.bool, device=boxes.device)
    stays.index_fill_(0, torch.where(places < 0, count, by_class[places.clamp(min=0)]), True)
    first = torch.sort(stays[:count], descending=True, stable=True).indices
    number = torch.arange(count, device=boxes.device)
    return torch.cat((torch.where(number < stay, by_score[first], -1), stay))


def _nms_padded(boxes: Tensor, scores: Tensor, idxs: Tensor | None, iou_threshold: float) -> Tensor:
    _check(boxes, scores)  # or there would be no number of boxes
    operands = [boxes, scores]
    if idxs is not None:
        operands.append(idxs if idxs.dtype is torch.int64 else _integers(idxs))
        _check_classes(boxes, operands[2])
    if _many(operands):
        return _by_class(operands, iou_threshold)
    result = boxes.new_full((boxes.shape[0] + 1,), -1, dtype=torch.int64)
    _ON_MEMORY(operands, (iou_threshold,), [result])
    return result


def _fake_nms_padded(
    boxes: Tensor, scores: Tensor, idxs: Tensor | None, iou_threshold: float
) -> Tensor:
    del iou_threshold
    _check(boxes, scores)
    if idxs is not None:
        _check_classes(boxes, idxs)
    return boxes.new_empty(boxes.shape[0] + 1, dtype=torch.int64)


def _integers(idxs: Tensor) -> Tensor:
    """Equal integers for equal numbers."""
    # Before `_check_classes`: `to` would drop the imaginary parts.
    if idxs.is_complex():
        raise OperandError("batched_nms: idxs are complex")
    if idxs.is_floating_point():
        return (idxs.to(torch.float64) + 0.0).view(torch.int64)  # + 0.0 as 0 and -0 are equal
    return idxs.to(torch.int64)


def _many(operands: list[Tensor]) -> bool:
    """Whether boxes are put in order by class first, which takes some calls of PyTorch's."""
    return len(operands) > 2 and operands[0].shape[0] >= _MANY and not operands[0].is_cpu


def _kept(operands: list[Tensor], iou_threshold: float) -> Tensor:
    if _many(operands):
        _check(operands[0], operands[1])
        _check_classes(operands[0], operands[2])
        result = _by_class(operands, iou_threshold)
    else:
        (result,) = _ON_MEMORY(operands, (iou_threshold,))
    # Behind the last index the kernel leaves how many boxes stay.
    size = result.shape[0] - 1
    if result.is_meta:  # compiled ahead: all of them
        return result.resize_(size)
    if not result.is_cpu:
        return result.resize_(int(result[size]))  # waits for the GPU: the size is a number here
    # Read in place: an index and `item` would each be a call of PyTorch's dispatcher.
    last = ctypes.c_int64.from_address(result.data_ptr() + 8 * size)
    return result.resize_(last.value)  # moves nothing; a view would take twice as long


def _describe_ordered(operands: list[Tensor], iou_threshold: float) -> Described:
    boxes = operands[0]
    result = torch.empty(boxes.shape[0] + 1, dtype=torch.int64, device=boxes.device)
    return Described(Nms(iou_threshold, ordered=True), [result], counted=True)


def _describe(operands: list[Tensor], iou_threshold: float) -> Described:
    boxes, scores, *classes = operands
    _check(boxes, scores)
    for idxs in classes:
        _check_classes(boxes, idxs)
    result = torch.empty(boxes.shape[0] + 1, dtype=torch.int64, device=boxes.device)
    return Described(Nms(iou_threshold), [result], counted=True)


def _fake_nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    del iou_threshold
    _check(boxes, scores)
    # What a tracer has on meta is a subclass, and there a symbol stands for the number.
    if boxes.is_meta and type(boxes) in PLAIN:
        raise OperandError("nms: tensors on meta do not tell how many boxes stay")
    count = torch.library.get_ctx().new_dynamic_size()
    return boxes.new_empty(count, dtype=torch.int64)


def _fake_batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    _check_classes(boxes, idxs)
    return _fake_nms(boxes, scores, iou_threshold)


_ON_MEMORY = Operator("nms", _describe, counted=0)
_ORDERED = Operator("batched_nms", _describe_ordered, counted=0)
_NMS = define("nms(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor", _nms, _fake_nms)
_BATCHED_NMS = define(
    "batched_nms(Tensor boxes, Tensor scores, Tensor idxs, float iou_threshold) -> Tensor",
    _batched_nms,
    _fake_batched_nms,
)
_NMS_PADDED = define(
    "_nms_padded(Tensor boxes, Tensor scores, Tensor? idxs, float iou_threshold) -> Tensor",
    _nms_padded,
    _fake_nms_padded,
)
