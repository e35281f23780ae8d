"""The project's model files: they import, without shape arithmetic left, and compute the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from frontend_models import run_onnxruntime

from saccade.frontend import onnx as frontend
from saccade.ir import DType
from saccade.testing.compare import FP16_TOLERANCE, FP32_TOLERANCE, relative_l2
from saccade.testing.interpret import interpret

ModelFile = Callable[[str], Path]

COUNTS = {
    "resnet50": {"Conv2d": 53, "MatMul": 1, "Pool2d": 1, "Reduce": 1, "Move": 1, "Pointwise": 65},
    "resnet50_dynamo": {"Conv2d": 53, "MatMul": 1, "Pool2d": 1, "Reduce": 1, "Move": 1},
    "mobilenet_v3_large": {"Conv2d": 62, "MatMul": 2, "Reduce": 9, "Move": 1},
    "shufflenet_v2_x1_0": {"Conv2d": 56, "MatMul": 1, "Concat": 16, "Reduce": 1, "Move": 74},
    "efficientnet_b0": {"Conv2d": 81, "MatMul": 1, "Reduce": 17, "Move": 1},
    "densenet121": {"Conv2d": 120, "MatMul": 1, "Concat": 58, "Pool2d": 4, "Move": 1},
    "deeplabv3_mobilenet": {"Conv2d": 70, "Resize": 2, "Concat": 1},
    "subpixel_x4": {"Conv2d": 9, "Move": 2, "Pointwise": 5},
    "subpixel_x4_dynamo": {"Conv2d": 9, "Move": 2, "Pointwise": 5},
    "subpixel_x4_fp16": {"Conv2d": 9, "Move": 2, "Pointwise": 5},
    "vgg16": {"Conv2d": 13, "MatMul": 3, "Pool2d": 6, "Move": 1},
    "dcnv2_small": {"Conv2d": 5, "DeformConv": 3, "Reduce": 1, "Move": 6},
    "vit_b_16": {"Conv2d": 1, "MatMul": 73, "LayerNorm": 25, "Softmax": 12, "Concat": 1},
}
FREE = {"vgg16", "vit_b_16", "resnet50_dynamo"}
"""Too large to interpret here: their operators are all in the others."""


@pytest.mark.parametrize("name", COUNTS)
def test_imports_to_the_families_it_is_made_of(
    name: str, model_of_zeros: Callable[[str], onnx.ModelProto]
) -> None:
    graph = frontend.load(model_of_zeros(name))
    counts = Counter(node.op.family for node in graph.nodes)
    assert {family: counts[family] for family in COUNTS[name]} == COUNTS[name]
    known = {*COUNTS[name], "Pointwise", "Pool2d", "Reduce", "Concat", "Move"}
    assert set(counts) <= known
    assert all(value.dtype in (DType.F32, DType.F16) for value in graph.values())


@pytest.mark.parametrize("name", sorted(COUNTS.keys() - FREE))
def test_computes_what_onnxruntime_computes(name: str, filled: ModelFile) -> None:
    path = filled(name)
    graph = frontend.load(path)
    (value,) = graph.inputs
    sizes = {"N": 1, "H": 40, "W": 56}
    shape = [sizes.get(str(dim), dim) for dim in value.shape]
    x = np.random.default_rng(1).normal(size=shape).astype(value.dtype.numpy)
    expected = run_onnxruntime(str(path), {value.name: x})
    actual = interpret(graph, {value.name: x})
    assert list(actual) == list(expected)
    tolerance = FP16_TOLERANCE if value.dtype is DType.F16 else FP32_TOLERANCE
    for output, wanted in expected.items():
        assert actual[output].shape == wanted.shape
        assert actual[output].dtype == wanted.dtype
        assert relative_l2(actual[output], wanted) < tolerance


def test_output_sizes_are_expressions_of_the_input(filled: ModelFile) -> None:
    graph = frontend.load(filled("subpixel_x4"))
    assert [str(dim) for dim in graph.outputs[0].shape] == ["N", "3", "4*H", "4*W"]
    assert graph.output_names == ("34",)
    graph = frontend.load(filled("deeplabv3_mobilenet"))
    assert [str(dim) for dim in graph.outputs[0].shape] == ["N", "21", "H", "W"]


def test_a_detector_of_one_size_is_one_graph(
    model_of_zeros: Callable[[str], onnx.ModelProto],
) -> None:
    graph = frontend.load(model_of_zeros("ssdlite320_mobilenet"))
    counts = Counter(node.op.family for node in graph.nodes)
    # Candidates of each class, packed, and what stays of them.
    assert counts["NonMaxSuppression"] == counts["PackedPlaces"] == 1
    assert counts["TopK"] == 90
    assert [str(d) for d in graph.outputs[0].shape] == ["min(300, chosen)", "4"]


def test_a_detector_that_scales_pictures_is_one_graph_for_all_sizes(
    model_of_zeros: Callable[[str], onnx.ModelProto],
) -> None:
    graph = frontend.load(model_of_zeros("fasterrcnn_resnet50_fpn"))
    # The shorter edge becomes 800 unless the longer one would exceed 1333.
    for size, scaled in (((480, 640), (800, 1066)), ((333, 1000), (443, 1333))):
        sizes = graph.with_bounds(dict(zip(("H", "W"), size, strict=True)))
        assert tuple(sizes[one.symbol] for one in graph.computed) == scaled
    assert Counter(node.op.family for node in graph.nodes)["RoiAlign"] == 4


def test_loading_twice_gives_the_same_digest_and_a_changed_file_another(
    filled: ModelFile, tmp_path: Path
) -> None:
    path = filled("subpixel_x4")
    digest = frontend.digest(path)
    assert digest is not None and digest == frontend.digest(str(path))
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    (tmp_path / "changed.onnx").write_bytes(changed)
    assert frontend.digest(tmp_path / "changed.onnx") != digest
