"""precision="bf16" from end to end: storage, what stays float32, and every device."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from runtime_models import compiled, convolutions, image, model_of, tensor, weights

import saccade
from saccade.errors import OptionError
from saccade.ir import DType
from saccade.plan import Plan
from saccade.plan.floor import floor
from saccade.testing.compare import relative_l2
from saccade.testing.simulate import simulate

ROUNDED = 8e-3  # two activations rounded to 8 bits on the way


def classifier():
    """x [1, 4, 9, 9] -> a convolution, its mean, a matrix, a softmax; and the indices' halves."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        helper.make_node("Concat", ["a", "x"], ["b"], axis=1),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "m"], ["e"], name="logits"),
        helper.make_node("Softmax", ["e"], ["y"], name="odds"),
    ]
    constants = [weights("w", (24, 4, 3, 3)), weights("m", (28, 10))]
    return model_of(nodes, [tensor("x", [1, 4, 9, 9])], [tensor("y", [1, 10])], constants)


def stored(plan):
    """How the results of the steps are stored, those of the caller aside."""
    slots = [s for step in plan.steps for s in step.outputs if s.ref.base == 0]
    return {s.view.dtype for s in slots}


@pytest.mark.parametrize("options", [{}, {"isa": "avx2"}, {"checked": True}, {"threads": 3}])
def test_it_is_close_to_float32_and_to_its_own_reference(options):
    x = image(2, 3, 17, 19)
    wide = compiled(convolutions())(x)
    model = compiled(convolutions(), precision="bf16", **options)
    found = model(x)
    assert found.dtype == wide.dtype == np.float32
    assert 1e-4 < relative_l2(found, wide) < ROUNDED
    emulated = compiled(convolutions(), precision="bf16", device="reference")(x)
    assert relative_l2(found, emulated) < ROUNDED / 2
    plan = model.plan((2, 3, 17, 19))
    assert DType.BF16 in stored(plan)
    assert all(step.kernel for step in plan.steps)


def test_float32_stays_float32():
    model = compiled(convolutions())
    assert stored(model.plan((1, 3, 9, 9))) == {DType.F32}


def test_results_do_not_depend_on_the_team():
    x = image(1, 3, 33, 35)
    one, two = (compiled(convolutions(), precision="bf16", threads=t)(x) for t in (1, 2))
    assert one.tobytes() == two.tobytes()
    model = compiled(convolutions(), precision="bf16", threads=2)
    (watched,) = simulate(model._program(((1, 3, 33, 35),)), [x])
    assert watched.tobytes() == two.tobytes()


def test_the_plan_says_what_stays_float32_and_why():
    model = compiled(classifier(), precision="bf16")
    plan = model.plan((1, 4, 9, 9))
    text = str(plan)
    assert "note: logits stays float32: errors of an operand of softmax grow" in text
    assert "note: odds stays float32: the model gives it" in text
    assert "stays float32" not in str(compiled(classifier()).plan((1, 4, 9, 9)))
    assert Plan.from_json(plan.to_json()) == plan
    assert "lower_precision" in model.stages
    x = image(1, 4, 9, 9)
    assert relative_l2(model(x), compiled(classifier())(x)) < ROUNDED


def test_the_floor_counts_dot_products_of_pairs():
    def arithmetic(precision, **options):
        model = compiled(convolutions(64), precision=precision, machine="zen4", **options)
        return floor(model.plan((1, 3, 64, 64))).arithmetic

    assert arithmetic("bf16", exact=True) / arithmetic("fp32", exact=True) == pytest.approx(0.5)
    # Winograd's products are fewer still, and float32 either way.
    assert arithmetic("bf16", exact=True) > arithmetic("bf16") > 0.9 * arithmetic("fp32")


def test_precisions_share_no_cache_entry(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))
    x = image(1, 3, 8, 8)
    for _ in range(2):  # cold, then from the cache
        wide, narrow = (compiled(convolutions(), precision=p)(x) for p in ("fp32", "bf16"))
        assert 0 < relative_l2(narrow, wide) < ROUNDED


def test_integers_and_half_precision_files():
    nodes = [
        helper.make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "two"], ["g"]),
        helper.make_node("Cast", ["g"], ["y"], to=TensorProto.INT64),
    ]
    two = helper.make_tensor("two", TensorProto.FLOAT, [1], [2.0])
    ports = [tensor(n, [5], TensorProto.INT64) for n in ("n", "y")]
    model = compiled(model_of(nodes, ports[:1], ports[1:], [two]), precision="bf16")
    n = np.array([1, 257, 1025, 65537, -99999], np.int64)
    np.testing.assert_array_equal(model(n), 2 * n)


def test_unknown_precisions_are_refused():
    with pytest.raises(OptionError, match=r"precision='bf8' is not one of fp32, bf16"):
        saccade.compile("no such file", precision="bf8")
