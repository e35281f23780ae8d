"""Plans for GPUs: no step is left to the host, JSON reads back, products count as they are."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import saccade
from saccade.plan import Plan
from saccade.plan.floor import floor, peak

NAMES = (
    "subpixel_x4", "subpixel_x4_fp16", "resnet50", "mobilenet_v3_large", "shufflenet_v2_x1_0",
    "efficientnet_b0", "densenet121", "deeplabv3_mobilenet", "vit_b_16", "dcnv2_small",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_every_step_of_a_model_has_a_kernel(filled, name, precision):
    model = saccade.compile(
        filled(name), device="cuda", machine="h200", precision=precision, cache=False
    )
    shapes = {
        info.name: tuple(size if isinstance(size, int) else (2, 3, 160, 160)[axis]
                         for axis, size in enumerate(info.shape))
        for info in model.inputs
    }  # fmt: skip
    plan = model.plan(**shapes)
    assert (plan.device, plan.isa, plan.threads) == ("cuda", "sm_90", 1)
    assert [step.name for step in plan.steps if step.kernel is None] == []
    assert Plan.from_json(plan.to_json()) == plan
    if precision == "fp16":
        products = [step for step in plan.steps if step.op.contracts]
        assert {peak(step, plan.speeds) for step in products} == {plan.speeds.pair_flops}
    assert 0 < floor(plan).total < plan.estimate


def planned(tmp_path, nodes, weights):
    """The plan of a small network in float16, each of whose convolutions has 3x3 taps."""
    value = helper.make_tensor_value_info
    rng = np.random.default_rng(0)
    constants = [
        numpy_helper.from_array(rng.standard_normal((k, c, 3, 3)).astype(np.float32), name)
        for name, (k, c) in weights.items()
    ]
    constants.append(numpy_helper.from_array(np.array([16, 16], np.int64), "halves"))
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [1, 32, 24, 24])],
        [value("y", TensorProto.FLOAT, None)], constants,
    )  # fmt: skip
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    model = saccade.compile(path, device="cuda", machine="h200", precision="fp16", cache=False)
    return model.plan(x=(1, 32, 24, 24))


def conv(x, w, y):
    return helper.make_node("Conv", [x, w], [y], name=y, pads=[1, 1, 1, 1])


def test_halves_that_are_concatenated_are_not_copied(tmp_path):
    """YOLO's blocks."""
    nodes = [
        conv("x", "w0", "whole"),
        helper.make_node("Split", ["whole", "halves"], ["left", "right"], axis=1),
        conv("right", "w1", "a"),
        conv("a", "w2", "b"),
        helper.make_node("Add", ["b", "right"], ["sum"]),
        helper.make_node("Concat", ["left", "right", "sum"], ["joint"], axis=1),
        conv("joint", "w3", "y"),
    ]
    weights = {"w0": (32, 32), "w1": (16, 16), "w2": (16, 16), "w3": (8, 48)}
    plan = planned(tmp_path, nodes, weights)
    assert [step.op.family for step in plan.steps if step.op.family != "Move"] == ["Conv2d"] * 4
    assert not any(step.name == "joint" for step in plan.steps)


def test_branches_that_are_concatenated_run_side_by_side(tmp_path):
    nodes = [
        conv("x", "w0", "first"),
        conv("first", "w1", "left"),
        conv("first", "w2", "right"),
        helper.make_node("Concat", ["left", "right"], ["joint"], axis=1),
        conv("joint", "w3", "y"),
    ]
    weights = {"w0": (32, 32), "w1": (16, 32), "w2": (24, 32), "w3": (8, 40)}
    plan = planned(tmp_path, nodes, weights)
    launches = [step.name for step in plan.steps for phase in step.phases if phase.chunks]
    last = {name: i for i, name in enumerate(launches)}
    waits = dict(zip(reversed(launches), reversed(plan.launch_waits), strict=True))
    assert waits["left"] == waits["right"] == (last["first"],)
    assert waits["y"] == (last["left"], last["right"])
