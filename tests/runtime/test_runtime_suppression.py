"""Models whose results are as long as the run finds out: exports with NonMaxSuppression."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from runtime_models import model_of, tensor, weights

import saccade
from saccade.backends.cpu.store.identity import machine_identity
from saccade.plan import Plan
from saccade.testing.simulate import simulate

INT64 = TensorProto.INT64
LIMITS = {
    "most": np.array([40]), "all": np.array([2**63 - 1]), "iou": np.array([0.45], np.float32),
    "score": np.array([0.6], np.float32), "v0": np.array([0]), "v1": np.array([1]),
    "v2": np.array([2]), "v02": np.array([0, 2]),
}  # fmt: skip
CONSTANTS = [numpy_helper.from_array(np.asarray(array), name) for name, array in LIMITS.items()]


def node(kind, inputs, output, **attributes):
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def detector():
    """A head as YOLO's: images to boxes and scores of every pixel, and what stays of them."""
    nodes = [
        node("Conv", "x w0", "features", pads=[1] * 4, strides=[2, 2]),
        node("Relu", "features", "active"),
        node("Conv", "active w1", "head"),
        node("Reshape", "head flat", "rows"),
        helper.make_node("Split", ["rows", "sizes"], ["bt", "st"], axis=1),
        node("Sigmoid", "st", "scores"),
        node("Transpose", "bt", "boxes", perm=[0, 2, 1]),
        node("NonMaxSuppression", "boxes scores most iou score", "selected", center_point_box=1),
        node("GatherND", "scores selected", "best"),
        node("Gather", "selected v02", "where", axis=1),
        node("GatherND", "boxes where", "kept"),
        node("Cast", "selected", "labels", to=1),
        node("Unsqueeze", "best v1", "column"),
        node("Concat", "labels kept column", "table", axis=1),
    ]
    constants = [
        weights("w0", (12, 3, 3, 3)), weights("w1", (9, 12, 1, 1)),
        numpy_helper.from_array(np.array([0, 9, -1]), "flat"),
        numpy_helper.from_array(np.array([4, 5]), "sizes"), *CONSTANTS,
    ]  # fmt: skip
    outputs = [
        tensor("selected", ["n", 3], INT64),
        tensor("table", ["n", 8]),
        tensor("scores", None),
    ]
    return model_of(nodes, [tensor("x", ["B", 3, "H", "W"])], outputs, constants)


def exported_nms():
    """`torchvision.ops.nms`, and the boxes and scores that it keeps."""
    nodes = [
        node("Unsqueeze", "b v0", "boxes"),
        node("Unsqueeze", "p v0", "p1"),
        node("Unsqueeze", "p1 v0", "scores"),
        node("NonMaxSuppression", "boxes scores all iou", "selected"),
        node("Gather", "selected v2", "column", axis=1),
        node("Squeeze", "column v1", "kept"),
        node("Gather", "b kept", "best", axis=0),
        node("Gather", "p kept", "high", axis=0),
    ]
    outputs = [tensor("kept", ["n"], INT64), tensor("best", ["n", 4]), tensor("high", ["n"])]
    return model_of(nodes, [tensor("b", ["N", 4]), tensor("p", ["N"])], outputs, CONSTANTS)


def plain():
    """Nothing but the suppression."""
    nodes = [node("NonMaxSuppression", "b p most iou score", "y")]
    inputs = [tensor("b", ["B", "N", 4]), tensor("p", ["B", "C", "N"])]
    return model_of(nodes, inputs, [tensor("y", ["n", 3], INT64)], CONSTANTS)


def boxes(*shape, seed=0):
    rng = np.random.default_rng(seed)
    corner = rng.random((*shape, 2)) * 50
    return np.concatenate([corner, corner + rng.random((*shape, 2)) * 30], -1).astype(np.float32)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed + 100).random(shape, np.float32)


def truth(model, feeds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def same(results, wanted, exact=True):
    assert results.keys() == wanted.keys()
    for name, array in wanted.items():
        assert results[name].shape == array.shape and results[name].dtype == array.dtype, name
        if exact:
            np.testing.assert_array_equal(results[name], array)
        else:
            np.testing.assert_allclose(results[name], array, rtol=1e-4, atol=1e-5)
    return True


@pytest.mark.parametrize(
    "options", [{"threads": 1}, {"threads": 3, "checked": True}, {"device": "reference"}], ids=str
)
def test_rows_of_any_sizes(options):
    model = plain()
    compiled = saccade.compile(model, **options)
    assert compiled.outputs[0].shape[0].startswith("n<=")
    for shape in [(1, 1, 1), (2, 3, 40), (1, 80, 5), (3, 1, 0), (0, 2, 9)]:
        images, _, count = shape
        feeds = {"b": boxes(images, count), "p": numbers(*shape)}
        result = compiled.run(feeds)
        same(result, truth(model, feeds))
        assert result["y"].flags.owndata
    none = compiled(boxes(2, 30), np.zeros((2, 4, 30), np.float32))
    assert none.shape == (0, 3) and none.dtype == np.int64


@pytest.mark.parametrize("threads", [1, 2])
def test_what_torchvision_exports(threads):
    model = exported_nms()
    compiled = saccade.compile(model, threads=threads)
    for count in (1, 37, 500):
        feeds = {"b": boxes(count, seed=count), "p": np.round(numbers(count), 1)}
        same(compiled.run(feeds), truth(model, feeds))


@pytest.fixture(scope="module")
def compiled():
    return saccade.compile(detector(), threads=2)


def image(height=18, width=20, seed=0, images=2):
    return np.random.default_rng(seed).normal(size=(images, 3, height, width)).astype(np.float32)


def test_a_detector(compiled):
    for size in [(18, 20), (9, 31)]:
        feeds = {"x": image(*size)}
        wanted = truth(detector(), feeds)
        assert 0 < len(wanted["selected"]) < 400
        same(compiled.run(feeds), wanted, exact=False)


def test_its_plan(compiled):
    x = image()
    plan = compiled.plan(x.shape)
    assert Plan.from_json(plan.to_json()) == plan
    assert all(step.kernel is not None for step in plan.steps)
    assert plan.sizes["n"] == 400 and "n=400" in str(plan)
    assert [port.shape for port in plan.outputs] == [(400, 3), (400, 8), (2, 5, 90), (1,)]
    assert compiled.profile(x, repeat=2).total > 0


def test_its_program_under_watch(compiled):
    x = image(seed=3)
    program = compiled._program((x.shape,))
    watched = simulate(program, [x], order=(1, 0))
    for result, wanted in zip(watched, compiled(x), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_callers_at_once_have_lengths_of_their_own(compiled):
    inputs = [image(seed=i) for i in range(8)]
    wanted = [compiled(x) for x in inputs]
    assert len({len(rows) for rows, *_ in wanted}) > 2

    def call(i):
        return all(
            np.array_equal(a, b)
            for _ in range(40)
            for a, b in zip(compiled(inputs[i]), wanted[i], strict=True)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(8), timeout=60))


def test_the_number_of_threads_changes_nothing(compiled):
    x = image(seed=5)
    for threads in (1, 3):
        other = saccade.compile(detector(), threads=threads)
        for a, b in zip(other(x), compiled(x), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(machine_identity() is None, reason="no bundles on this machine")
def test_a_warm_start(tmp_path, monkeypatch, compiled):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))
    x = image(seed=7)
    wanted = compiled(x)
    cold = saccade.compile(detector().SerializeToString(), threads=2)
    cold(x)
    warm = saccade.compile(detector().SerializeToString(), threads=2)
    for a, b in zip(warm(x), wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    assert warm._engine is None
    assert warm.outputs == cold.outputs == compiled.outputs
    assert warm.plan(x.shape) == cold.plan(x.shape)


def test_bfloat16_decides_on_float32():
    model = saccade.compile(detector(), precision="bf16", threads=2)
    x = image(seed=2)
    plan = model.plan(x.shape)
    (step,) = (s for s in plan.steps if s.op.family == "NonMaxSuppression")
    assert {slot.view.dtype.value for slot in step.inputs} == {"float32"}
    assert any(slot.view.dtype.value == "bfloat16" for s in plan.steps for slot in s.outputs)
    assert any("decides which boxes stay" in note for note in plan.notes)
    selected, table, scores = model(x)
    assert len(selected) == len(table) and (table[:, -1] == scores[tuple(selected.T)]).all()


def test_tuning_goes_by(compiled):
    x = image(seed=4)
    model = saccade.compile(detector(), threads=1)
    before = model(x)
    model.tune(x, seconds=0.5)
    for a, b in zip(model(x), before, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_tensors_in_tensors_out():
    torch = pytest.importorskip("torch")
    y = saccade.compile(plain(), threads=1)(
        torch.from_numpy(boxes(1, 9)), torch.from_numpy(numbers(1, 2, 9))
    )
    assert isinstance(y, torch.Tensor) and y.shape[1] == 3 and len(y) < 14
