"""A small network from its file to results on a fake GPU, kernels in Triton's interpreter."""

import json
from functools import partial

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import saccade
from saccade.backends.cuda.arrays import CudaArrays
from saccade.backends.cuda.backend import packed_constant
from saccade.model import Model
from saccade.testing.fake_gpu import fake_gpu, fake_program

SHAPE = (1, 3, 12, 10)


def network():
    """Convolutions, a residual, pools, a classifier."""
    rng = np.random.default_rng(0)
    sizes = {"w1": (16, 3, 3, 3), "b1": (16,), "w2": (16, 16, 3, 3), "wd": (16, 1, 3, 3),
             "w3": (16, 5), "b3": (5,)}  # fmt: skip
    constants = [
        numpy_helper.from_array(0.3 * rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in sizes.items()
    ]
    padded = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], **padded),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2"], ["c2"], **padded),
        helper.make_node("Add", ["c2", "p1"], ["a2"]),
        helper.make_node("Conv", ["a2", "wd"], ["d2"], group=16, **padded),
        helper.make_node("Sigmoid", ["d2"], ["s2"]),
        helper.make_node("GlobalAveragePool", ["s2"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *SHAPE[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5]),
         helper.make_tensor_value_info("a2", TensorProto.FLOAT, None)],
        constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(network(), found)
    return found


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 5e-3)])
def test_a_network(path, precision, tolerance):
    engine = saccade.compile(path, device="cuda", machine="h200", precision=precision)._started()
    reference = saccade.compile(path, device="reference")
    driver, device = gpu = fake_gpu()
    arrays = CudaArrays(lambda: device)
    for batch in (1, 2):
        x = np.random.default_rng(batch).standard_normal((batch, *SHAPE[1:])).astype(np.float32)
        plan = engine.plan([x.shape])
        program = fake_program(plan, partial(packed_constant, engine.graph, plan), gpu)
        for _ in range(2):
            taken = arrays.take(engine.signature.inputs[0], x)
            found = arrays.give(program.run([taken]), [x])
        for result, truth in zip(found, reference(x), strict=True):
            assert result.dtype == truth.dtype
            error = np.linalg.norm(result - truth) / np.linalg.norm(truth)
            assert error < tolerance
    driver.memory.check()


def test_its_profile(path):
    """A row for each step with the facts of its code, and what the whole run takes."""
    engine = saccade.compile(path, device="cuda", machine="h200", precision="fp16")._started()
    gpu = fake_gpu()
    arrays = CudaArrays(lambda: gpu[1])
    arrays.queued = 2

    class Kept:
        def signature(self):
            return engine.signature

        def program(self, shapes):
            plan = engine.plan(shapes)
            return fake_program(plan, partial(packed_constant, engine.graph, plan), gpu)

    model = Model(lambda: engine, arrays, Kept())
    x = np.ones(SHAPE, np.float32)
    found = model.profile(x, repeat=2)
    assert [step.name for step in found.steps] == [s.name for s in engine.plan([x.shape]).steps]
    assert found.tera and found.whole > 0
    for step in found.steps:
        assert {facts["registers"] for facts in step.facts} == {96}
    head = found.table().splitlines()[0]
    assert all(name in head for name in ("TFLOP/s", "TB/s", "roofline", "occupancy", "matrix"))
    assert "a run launched at once takes" in found.table()
    events = json.loads(found.to_chrome_trace())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == sum(len(step.facts) for step in found.steps)
    assert all(span["args"]["warps"] >= 1 for span in spans)
