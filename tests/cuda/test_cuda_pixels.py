"""Pixels padded to 16 bytes: which values are, what of them may be read, and whole networks."""

from dataclasses import replace
from functools import partial

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import saccade
from saccade.backends.cuda.arrays import CudaArrays
from saccade.backends.cuda.backend import packed_constant
from saccade.ir import DType, Factor, IndexMap
from saccade.kernels.base import Call
from saccade.kernels.cuda import kernel_named
from saccade.kernels.cuda.conv2d.window_config import fills_pixels
from saccade.layout.views import channels_last, moved, padded, part
from saccade.opdefs import Conv2d, DepthToSpaceStore, Move
from saccade.plan import Plan
from saccade.testing.fake_gpu import fake_gpu, fake_program
from saccade.testing.triton import H200
from saccade.tuning.keys import call_key

WIDE = padded(DType.F16, (2, 58, 4, 5), zeros=True)


def test_views_of_padded_pixels():
    assert WIDE.strides == (4 * 5 * 64, 1, 5 * 64, 64)
    assert (WIDE.room, WIDE.zeros, WIDE.extent) == (6, True, 2 * 4 * 5 * 64)
    assert padded(DType.F32, (1, 58, 4, 5), zeros=False).strides[3] == 60


@pytest.mark.parametrize("shape", [(1, 64, 4, 5), (1, 12, 4, 5), (1, 58, 1, 1), (0, 58, 4, 5)])
def test_what_is_not_padded(shape):
    assert padded(DType.F16, shape, zeros=True) == channels_last(DType.F16, shape)


def test_parts_of_padded_pixels():
    def kept(at, channels):
        found = part(WIDE, 1, at, (2, channels, 4, 5))
        assert found.strides == WIDE.strides
        return found.room, found.zeros

    assert kept(0, 58) == (6, True)
    assert kept(0, 29) == (3, False), "the next channels are behind it"
    assert kept(16, 42) == (6, True)
    assert kept(16, 16) == (0, False)
    assert kept(29, 29) == (0, False), "it begins between 16 bytes"
    rows = part(WIDE, 2, 1, (2, 58, 2, 5))
    assert (rows.room, rows.zeros) == (6, True)
    dense = channels_last(DType.F16, (2, 58, 4, 5))
    assert part(dense, 1, 0, (2, 29, 4, 5)).room == 0


def slice_map(start, size, step=1):
    factors = tuple(Factor(n, i) for i, n in enumerate((2, 58, 4, 5)))
    factors = (factors[0], Factor(size, 1, start, step), *factors[2:])
    return IndexMap(((2,), (58,), (4,), (5,)), factors, (1, 1, 1, 1))


def test_slices_of_padded_pixels():
    offset, view = moved(WIDE, slice_map(0, 29))
    assert (offset, view.room, view.zeros) == (0, 3, False)
    offset, view = moved(WIDE, slice_map(32, 26))
    assert (offset, view.room, view.zeros) == (32, 6, True)
    for start, size, step in ((29, 29, 1), (0, 29, 2)):
        assert moved(WIDE, slice_map(start, size, step))[1].room == 0
    factors = tuple(Factor(n, i) for i, n in ((0, 2), (2, 4), (3, 5), (1, 58)))
    moved_rows = IndexMap(((2,), (58,), (4,), (5,)), factors, (1, 1, 1, 1))
    assert moved(WIDE, moved_rows)[1].room == 0


def test_who_fills_pixels():
    dense, depthwise, grouped = ((9, 6, 3, 3), (6, 1, 3, 3), (6, 3, 3, 3))
    assert fills_pixels(Conv2d(), [(1, 6, 4, 4), dense])
    assert fills_pixels(Conv2d(groups=6), [(1, 6, 4, 4), depthwise])
    assert not fills_pixels(Conv2d(groups=2), [(1, 6, 4, 4), grouped])
    assert not fills_pixels(Conv2d(store=DepthToSpaceStore(3, "CRD")), [(1, 6, 4, 4), dense])


def test_copies_do_not_fill():
    op = Move(slice_map(0, 58))
    call = Call(op, (WIDE._replace(zeros=False),), (WIDE,), (False,), H200, 1)
    why = kernel_named("movement.copy").supports(call)
    assert why == "a result with zeros behind its channels"
    unfilled = replace(call, outputs=(WIDE._replace(zeros=False),))
    assert kernel_named("movement.copy").supports(unfilled) is None


SHAPE = (1, 3, 9, 10)


def network():
    """29 channels and slices of them, joined at multiples of 16 bytes and between them."""
    rng = np.random.default_rng(0)
    sizes = {"w1": (29, 3, 3, 3), "b1": (29,), "wd": (29, 1, 3, 3), "w2": (16, 16, 1, 1),
             "w3": (29, 13, 3, 3), "w4": (29, 45, 1, 1), "w5": (29, 29, 3, 3),
             "w6": (7, 58, 1, 1)}  # fmt: skip
    constants = [
        numpy_helper.from_array(0.3 * rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in sizes.items()
    ]
    constants += [
        numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in {"parts": (16, 13)}.items()
    ]
    same = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], **same),
        helper.make_node("Sigmoid", ["c1"], ["s1"]),
        helper.make_node("Conv", ["s1", "wd"], ["d1"], group=29, **same),
        helper.make_node("MaxPool", ["d1"], ["p1"], kernel_shape=[3, 3], strides=[1, 1], **same),
        helper.make_node("Add", ["p1", "d1"], ["a1"]),
        helper.make_node("Split", ["d1", "parts"], ["left", "right"], axis=1),
        helper.make_node("Conv", ["left", "w2"], ["c2"]),
        helper.make_node("Conv", ["right", "w3"], ["c3"], **same),
        helper.make_node("Relu", ["c3"], ["r3"]),
        helper.make_node("Concat", ["c2", "r3"], ["j1"], axis=1),
        helper.make_node("Conv", ["j1", "w4"], ["c4"]),
        helper.make_node("Add", ["c4", "a1"], ["a4"]),
        helper.make_node("Conv", ["a4", "w5"], ["c5"], **same),
        helper.make_node("Concat", ["a4", "c5"], ["j2"], axis=1),
        helper.make_node("Conv", ["j2", "w6"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "pixels",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *SHAPE[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("model") / "pixels.onnx"
    onnx.save(network(), found)
    return found


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 5e-3)])
def test_a_network_of_padded_pixels(path, precision, tolerance):
    engine = saccade.compile(path, device="cuda", machine="h200", precision=precision)._started()
    reference = saccade.compile(path, device="reference")
    driver, device = gpu = fake_gpu()
    arrays = CudaArrays(lambda: device)
    x = np.random.default_rng(1).standard_normal((2, *SHAPE[1:])).astype(np.float32)
    plan = engine.plan([x.shape])
    assert sum(view.zeros for step in plan.steps for view in views(step.outputs)) >= 3
    program = fake_program(plan, partial(packed_constant, engine.graph, plan), gpu)
    for _ in range(2):
        found = arrays.give(program.run([arrays.take(engine.signature.inputs[0], x)]), [x])
    truth = reference(x)
    assert np.linalg.norm(found[0] - truth) < tolerance * np.linalg.norm(truth)
    driver.memory.check()


def views(slots):
    return [slot.view for slot in slots]


def test_joined_values_are_filled_by_the_last(path):
    model = saccade.compile(path, device="cuda", machine="h200")
    read = [step.inputs[0].view for step in model.plan(x=(2, *SHAPE[1:])).steps]
    joined = {(v.shape[1], v.strides[3], v.room, v.zeros) for v in read if v.shape[1] > 29}
    # Of 29 and 29 channels, the second begin between 16 bytes: whoever writes them fills nothing.
    assert joined == {(45, 48, 3, True), (58, 60, 2, False)}


def test_a_plan_of_padded_pixels(filled):
    model = saccade.compile(
        filled("shufflenet_v2_x1_0"), device="cuda", machine="h200", precision="fp16", cache=False
    )
    plan = model.plan(**{model.inputs[0].name: (8, 3, 224, 224)})
    wide = [step for step in plan.steps if any(view.zeros for view in views(step.outputs))]
    pitches = {view.shape[1]: view.strides[3] for step in wide for view in views(step.outputs)}
    assert pitches == {58: 64, 116: 120}
    assert len(wide) > 20 and all(step.kernel.startswith("conv2d.") for step in wide)
    assert all(step.outputs[0].ref.offset % 16 == 0 for step in wide)
    assert Plan.from_json(plan.to_json()) == plan
    for step in wide:  # what is behind a last pixel is the value's, too
        slot = step.outputs[0]
        assert slot.ref.nbytes % 16 == 0
        assert slot.ref.offset + slot.ref.nbytes <= plan.arena_bytes
    caller = [v for step in plan.steps for slot in (*step.inputs, *step.outputs)
              if slot.ref.base for v in [slot.view]]  # fmt: skip
    assert not any(view.room for view in caller)


def test_the_cpu_pads_nothing(path):
    plan = saccade.compile(path, threads=1).plan(x=(2, *SHAPE[1:]))
    assert not any(v.room for step in plan.steps for v in views((*step.inputs, *step.outputs)))


def test_measurements_know_what_pads_pixels():
    texts = set()
    for view in (WIDE, WIDE._replace(zeros=False), WIDE._replace(room=0, zeros=False)):
        call = Call(Conv2d(), (view, view), (view,), (False, True), H200, 1)
        texts.add(call_key(call))
    assert len(texts) == 3
