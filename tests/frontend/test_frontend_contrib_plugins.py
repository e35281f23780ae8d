# ruff: noqa: E501 - tables with one model a line
"""OpenMMLab's and TensorRT's operators against PyTorch, ONNX Runtime and loops over boxes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from contrib_nodes import draw, fed, integers, one_node, ours
from frontend_models import run_onnxruntime
from onnx import TensorProto
from torch.nn import functional

import saccade
from saccade.errors import ModelError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.ir import DType
from saccade.testing.tolerance import assert_close

FLOAT = TensorProto.FLOAT
DOMAINS = ("mmcv", "mmdeploy")


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("align", [0, 1])
def test_a_grid_sampler(domain, mode, padding, align):
    operands = {"X": draw(2, 3, 5, 7), "G": draw(2, 4, 3, 2)}
    model = one_node(
        "grid_sampler", operands, domain=domain, kind=FLOAT, free="X", interpolation_mode=mode,
        padding_mode=padding, align_corners=align,
    )  # fmt: skip
    truth = functional.grid_sample(
        *(torch.tensor(a, dtype=torch.float64) for a in operands.values()),
        mode=("bilinear", "nearest", "bicubic")[mode],
        padding_mode=("zeros", "border", "reflection")[padding],
        align_corners=bool(align),
    ).numpy()
    assert_close(ours(model, operands)["y"], truth, dtype=DType.F32, k=256)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("ratio", [0, 2])
def test_means_over_boxes(aligned, ratio):
    x = draw(2, 3, 9, 11)
    boxes = np.array([[1, 0, 1, 6, 7], [0, 2.5, 3, 9, 4], [1, -1, 2, 4.5, 12]], np.float32)
    sizes = {"output_height": 3, "output_width": 2, "sampling_ratio": ratio, "spatial_scale": 0.75}
    operands = {"X": x, "B": boxes}
    model = one_node(
        "MMCVRoiAlign", operands, domain="mmcv", kind=FLOAT, aligned=aligned, mode="avg", **sizes
    )
    plain = {"X": x, "B": boxes[:, 1:], "I": boxes[:, 0].astype(np.int64)}
    form = "half_pixel" if aligned else "output_half_pixel"
    standard = one_node(
        "RoiAlign", plain, domain="", coordinate_transformation_mode=form, mode="avg", **sizes
    )
    truth = run_onnxruntime(standard, plain)["y"].astype(np.float64)
    assert_close(ours(model, operands)["y"], truth, dtype=DType.F32, k=64)


def deformed(x, offset, mask, weight, window, groups, shared):
    """The definition: each tap's bilinear sample, one after the other, in float64."""
    n, channels, rows, columns = x.shape
    outputs, _, *taps = weight.shape
    stride, pad, dilation = window["stride"], window["padding"], window["dilation"]
    high, wide = offset.shape[2:]
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    result = np.zeros((n, outputs, high, wide))
    for image, channel, p, q in np.ndindex(n, channels, high, wide):
        own = channel // (channels // shared)
        for tap, (i, j) in enumerate(np.ndindex(*taps)):
            place = own * taps[0] * taps[1] + tap
            down, along = offset[image, 2 * place : 2 * place + 2, p, q].astype(np.float64)
            down += p * stride[0] - pad[0] + i * dilation[0]
            along += q * stride[1] - pad[1] + j * dilation[1]
            if not (-1 < down < rows and -1 < along < columns):
                continue
            top, left = int(np.floor(down)), int(np.floor(along))
            part = x[image, channel, top + 1 : top + 3, left + 1 : left + 3]
            weights = np.outer([1 - (down - top), down - top], [1 - (along - left), along - left])
            sample = (part * weights[: part.shape[0], : part.shape[1]]).sum()
            sample *= 1 if mask is None else mask[image, place, p, q]
            each, inner = outputs // groups, channel % (channels // groups)
            group = channel // (channels // groups)
            chosen = slice(group * each, (group + 1) * each)
            result[image, chosen, p, q] += sample * weight[chosen, inner, i, j]
    return result


WINDOW = {"stride": [2, 1], "padding": [1, 2], "dilation": [1, 2]}


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize(("groups", "shared"), [(1, 1), (2, 2), (1, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_deformable_convolutions(domain, groups, shared, bias):
    x, weight = draw(2, 4, 7, 6), draw(6, 4 // groups, 3, 2)
    offset = draw(2, 2 * shared * 6, 4, 8, scale=1.5)
    mask = np.abs(draw(2, shared * 6, 4, 8))
    attributes = {"domain": domain, "kind": FLOAT, "groups": groups, "deform_groups": shared}
    operands = {"X": x, "O": offset, "M": mask, "w": weight, "b": draw(6) if bias else None}
    model = one_node("MMCVModulatedDeformConv2d", operands, **attributes, **WINDOW)
    truth = deformed(x, offset, mask, weight, WINDOW, groups, shared)
    truth = truth + draw(6).reshape(-1, 1, 1) if bias else truth
    assert_close(ours(model, operands)["y"], truth, dtype=DType.F32, k=64)
    if not bias:
        operands = {"X": x, "O": offset, "w": weight}
        model = one_node("MMCVDeformConv2d", operands, im2col_step=32, **attributes, **WINDOW)
        truth = deformed(x, offset, None, weight, WINDOW, groups, shared)
        assert_close(ours(model, operands)["y"], truth, dtype=DType.F32, k=64)


def attended(value, sizes, places, weights):
    """As OpenMMLab's reference in PyTorch: samples of each level, weighted and added up."""
    batch, _, heads, size = value.shape
    _, queries, _, levels, points, _ = places.shape
    parts = value.split([h * w for h, w in sizes], dim=1)
    grids = 2 * places - 1
    samples = []
    for level, (h, w) in enumerate(sizes):
        image = parts[level].flatten(2).transpose(1, 2).reshape(batch * heads, size, h, w)
        grid = grids[:, :, :, level].transpose(1, 2).flatten(0, 1)
        samples.append(functional.grid_sample(image, grid, align_corners=False))
    weights = weights.transpose(1, 2).reshape(batch * heads, 1, queries, levels * points)
    stacked = torch.stack(samples, dim=-2).flatten(-2)
    return (stacked * weights).sum(-1).view(batch, heads * size, queries).transpose(1, 2)


@pytest.mark.parametrize(
    "name", ["MMCVMultiScaleDeformableAttention", "MSDeformAttn", "MultiScaleDeformableAttn"]
)
def test_attention_to_several_levels(name):
    sizes, batch, queries, heads, points, size = [(5, 7), (3, 4), (2, 1)], 2, 9, 3, 4, 5
    rows = [h * w for h, w in sizes]
    operands = {
        "V": draw(batch, sum(rows), heads, size), "s": np.array(sizes, np.int64),
        "f": np.cumsum([0, *rows[:-1]]).astype(np.int64),
        "P": np.random.default_rng(0).uniform(-0.2, 1.2, (batch, queries, heads, 3, points, 2)).astype(np.float32),
        "W": np.abs(draw(batch, queries, heads, 3, points)),
    }  # fmt: skip
    model = one_node(name, operands, domain="mmdeploy", kind=FLOAT, free="V", im2col_step=64)
    value, places, weights = (torch.tensor(operands[n], dtype=torch.float64) for n in "VPW")
    truth = attended(value, sizes, places, weights).numpy()
    assert_close(ours(model, operands)["y"], truth, dtype=DType.F32, k=256)


# -- suppression ---------------------------------------------------------------------------------


def overlap(one, other, offset=0.0):
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    shared = np.prod(np.maximum(high - low + offset, 0))
    areas = [np.prod(box[2:] - box[:2] + offset) for box in (one, other)]
    return shared / (sum(areas) - shared)


def survivors(boxes, scores, drops):
    """Indices by falling score."""
    kept = []
    for index in np.argsort(-scores, kind="stable"):
        if not any(drops(boxes[index], boxes[other]) for other in kept):
            kept.append(int(index))
    return kept


def crowd(*shape, seed=0):
    """Corners of boxes, many of which overlap."""
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 20, (*shape, 2))
    return np.concatenate([corner, corner + rng.uniform(2, 12, (*shape, 2))], -1).astype(np.float32)


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("limits", [{}, {"score_threshold": 0.4, "max_num": 7}])
def test_suppression_of_one_class(offset, limits):
    operands = {"B": crowd(60), "S": np.random.default_rng(1).random(60).astype(np.float32)}
    model = one_node(
        "NonMaxSuppression", operands, domain="mmcv", kind=TensorProto.INT64, iou_threshold=0.3,
        offset=offset, **limits,
    )  # fmt: skip
    (made,) = saccade.compile(model, threads=1).run(operands).values()
    boxes, scores = operands["B"].astype(np.float64), operands["S"]
    kept = survivors(boxes, scores, lambda a, b: overlap(a, b, offset) > 0.3)
    kept = [k for k in kept if scores[k] > limits.get("score_threshold", 0)]
    assert 3 < len(kept) < 60
    np.testing.assert_array_equal(made, kept[: limits.get("max_num", 60)])


def efficient(boxes, scores, *, agnostic, most, each, least, background):
    """TensorRT's results for one image, by the definition."""
    count, classes = scores.shape
    pairs = [
        (s, c, n) for n in range(count) for c in range(classes) if (s := scores[n, c]) >= least
    ]
    pairs = [pair for pair in pairs if pair[1] != background]
    kept = []
    for score, group, box in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        rivals = [k for k in kept if agnostic or k[1] == group]
        if all(overlap(boxes[box], boxes[k[2]]) < 0.4 for k in rivals):
            kept.append((score, group, box))
    if each > 0:
        kept = [k for i, k in enumerate(kept) if sum(o[1] == k[1] for o in kept[:i]) < each]
    return kept[:most]


CASES = {
    "classes apart": {},
    "classes together": {"class_agnostic": 1},
    "sigmoids": {"score_activation": 1, "score_threshold": 0.6},
    "centres": {"box_coding": 1},
    "a background": {"background_class": 1},
    "few of each": {"max_output_boxes_per_class": 2},
    "few of all": {"max_output_boxes": 5},
    "more than there can be": {"max_output_boxes": 200},
    "one place": {"_axes": 4},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("domain", ["", "TRT"])
def test_tensorrts_suppression(name, domain):
    attributes = {
        "score_threshold": 0.3, "iou_threshold": 0.4, "max_output_boxes": 30, "background_class": -1,
        "plugin_version": "1",
    } | CASES[name]  # fmt: skip
    shaped = attributes.pop("_axes", 3)
    corners = crowd(2, 40)
    raw = np.random.default_rng(3).uniform(0, 1, (2, 40, 3)).astype(np.float32)
    boxes = corners
    if attributes.get("box_coding"):
        middle = (corners[..., :2] + corners[..., 2:]) / 2
        boxes = np.concatenate([middle, corners[..., 2:] - corners[..., :2]], -1)
    operands = {"B": boxes[:, :, None] if shaped == 4 else boxes, "S": raw}
    outputs = ("number", "boxes", "scores", "classes")
    model = one_node("EfficientNMS_TRT", operands, outputs, domain=domain, **attributes)
    for value, kind in zip(model.graph.output, (6, 1, 1, 6), strict=True):
        value.type.tensor_type.elem_type = kind
    made = saccade.compile(model, threads=1).run(fed(operands))
    scores = raw.astype(np.float64)
    scores = 1 / (1 + np.exp(-scores)) if attributes.get("score_activation") else scores
    most = attributes["max_output_boxes"]
    for image in range(2):
        kept = efficient(
            corners[image].astype(np.float64), scores[image], most=most,
            agnostic=attributes.get("class_agnostic"), least=attributes["score_threshold"],
            each=attributes.get("max_output_boxes_per_class", -1),
            background=attributes["background_class"],
        )  # fmt: skip
        count = len(kept)
        assert made["number"][image].tolist() == [count]
        assert count > 4
        np.testing.assert_allclose(made["scores"][image, :count], [k[0] for k in kept], rtol=1e-6)
        np.testing.assert_array_equal(made["classes"][image, :count], [k[1] for k in kept])
        expected = corners[image][[k[2] for k in kept]]
        np.testing.assert_allclose(made["boxes"][image, :count], expected, rtol=1e-5, atol=1e-5)
        assert made["boxes"].shape[1] == made["scores"].shape[1] == most
        assert not any(made[n][image, count:].any() for n in outputs[1:])


X, MASKED = draw(2, 4, 7, 6), {"X": draw(2, 4, 7, 6), "O": draw(2, 12, 5, 5)}
BOXES = {"B": crowd(1, 9), "S": draw(1, 9, 2)}
REFUSED = {
    "the largest sample": ("MMCVRoiAlign", {"X": X, "B": draw(3, 5)}, {"mode": "max"}, "mode 'max'"),
    "a bias of version 1": ("MMCVDeformConv2d", {**MASKED, "w": draw(6, 4, 3, 2)}, {"bias": 1}, "'bias'"),
    "levels that are computed": (
        "MSDeformAttn",
        {"V": draw(1, 6, 2, 3), "S": integers((1, 2), np.int64), "f": np.zeros(1, np.int64), "P": draw(1, 4, 2, 1, 3, 2), "W": draw(1, 4, 2, 1, 3)},
        {}, "sizes of the levels",
    ),
    "soft suppression": ("SoftNonMaxSuppression", {"B": crowd(4), "S": draw(4)}, {}, "no such operator"),
    "boxes of each class": ("EfficientNMS_TRT", {"B": crowd(1, 9, 2), "S": draw(1, 9, 2)}, {"domain": "TRT"}, "of each class"),
    "anchors": ("EfficientNMS_TRT", {**BOXES, "A": crowd(1, 9)}, {"domain": "TRT"}, "its input 2"),
    "images that vary": ("EfficientNMS_TRT", BOXES, {"domain": "TRT", "free": "S"}, "that varies"),
    "no overlap at all": ("EfficientNMS_TRT", BOXES, {"domain": "TRT", "iou_threshold": 0.0}, "iou_threshold 0.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_done_is_named(name):
    op, operands, attributes, reason = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=reason):
        frontend.load(one_node(op, operands, kind=FLOAT, **{"domain": "mmcv", **attributes}))


def test_levels_that_do_not_fit_their_rows():
    operands = {
        "V": draw(1, 7, 2, 3), "s": np.array([[2, 3]]), "f": np.zeros(1, np.int64),
        "P": draw(1, 4, 2, 1, 3, 2), "W": draw(1, 4, 2, 1, 3),
    }  # fmt: skip
    with pytest.raises(ModelError, match="of 7 rows"):
        frontend.load(one_node("MSDeformAttn", operands, domain="mmcv", kind=FLOAT))
