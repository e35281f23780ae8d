"""Models whose weights are computed, as whole programs: against onnxruntime, and a second start."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper
from runtime_models import compiled, image, model_of, tensor

from saccade.backends.cpu.store.identity import machine_identity


def dynamic():
    """Filters that are transposed, scaled and used twice; the templates of a tracker."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[3, 2, 0, 1]),
        helper.make_node("Conv", ["x", "t"], ["a"], pads=[1] * 4, strides=[2, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("ConvTranspose", ["b", "v"], ["y"], strides=[2, 2], pads=[1] * 4),
        helper.make_node("Conv", ["b", "k"], ["z"], group=19),
    ]
    return model_of(
        nodes,
        [
            tensor("x", ["N", 5, "H", "W"]),
            tensor("w", [3, 3, 5, 19]),
            tensor("v", [19, 4, 4, 4]),
            tensor("k", [19, 1, 3, 3]),
        ],
        [tensor("y", ["N", 4, "P", "Q"]), tensor("z", ["N", 19, "R", "S"])],
    )


GIVEN = {
    "x": image(2, 5, 9, 11),
    "w": image(3, 3, 5, 19),
    "v": image(19, 4, 4, 4),
    "k": image(19, 1, 3, 3),
}


def peers(given):
    session = ort.InferenceSession(dynamic().SerializeToString())
    return session.run(None, given)


def agree(results, expected):
    for result, wanted in zip(results.values(), expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_no_step_goes_to_numpy_and_other_weights_give_other_results(cache):
    model = compiled(dynamic(), threads=2)
    agree(model.run(GIVEN), peers(GIVEN))
    kernels = [step.kernel for step in model.plan(**{n: a.shape for n, a in GIVEN.items()}).steps]
    assert None not in kernels
    named = {kernel for kernel in kernels if "computed" in str(kernel)}
    assert "conv2d.direct_computed" in named and "conv_transpose2d.direct_computed" in named
    other = {**GIVEN, "w": GIVEN["w"][::-1].copy(), "k": GIVEN["k"] * 2}
    agree(model.run(other), peers(other))


@pytest.mark.skipif(machine_identity() is None, reason="no bundles on this machine")
def test_a_second_start_packs_with_the_code_that_is_there(cache):
    first = compiled(dynamic(), threads=2).run(GIVEN)
    model = compiled(dynamic(), threads=2)
    again = model.run(GIVEN)
    assert model._engine is None
    for name, result in first.items():
        assert result.tobytes() == again[name].tobytes()
