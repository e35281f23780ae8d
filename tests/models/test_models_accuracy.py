"""Whole models against onnxruntime with every optimisation off, odd sizes and batches included."""

import numpy as np
import pytest

from saccade.ir import DType
from saccade.testing.compare import FP16_TOLERANCE, FP32_TOLERANCE, compare_outputs

CLASSIFIER = ((1, 3, 65, 97), (2, 3, 64, 64), (3, 3, 96, 80))
UPSCALER = ((1, 3, 33, 47), (2, 3, 16, 24), (3, 3, 7, 5))
SIZES = {
    "subpixel_x4": UPSCALER,
    "subpixel_x4_fp16": UPSCALER,
    "subpixel_x4_dynamo": ((1, 3, 33, 47), (1, 3, 16, 24), (1, 3, 7, 5)),
    "resnet50": CLASSIFIER,
    "resnet50_dynamo": ((1, 3, 224, 224),),  # all that the file allows
    "mobilenet_v3_large": CLASSIFIER,
    "shufflenet_v2_x1_0": CLASSIFIER,
    "efficientnet_b0": CLASSIFIER,
    "densenet121": CLASSIFIER,
    "deeplabv3_mobilenet": CLASSIFIER,
    "dcnv2_small": ((1, 3, 128, 128),),  # all that the file allows
    "vgg16": ((1, 3, 224, 224), (2, 3, 224, 224)),
}
EXACT = ("subpixel_x4", "resnet50", "mobilenet_v3_large", "densenet121", "deeplabv3_mobilenet")
OLDER = ("subpixel_x4", "shufflenet_v2_x1_0", "mobilenet_v3_large", "densenet121")
BFLOAT16 = {
    "resnet50": 1.1e-2,
    "mobilenet_v3_large": 2.7e-2,
    "subpixel_x4": 1.2e-2,
    "shufflenet_v2_x1_0": 1.2e-2,
    "efficientnet_b0": 2.5e-2,
    "densenet121": 8e-3,
    "deeplabv3_mobilenet": 5e-3,
    "dcnv2_small": 3.2e-3,
}
PLAYED = {"subpixel_x4": (1, 3, 12, 10), "shufflenet_v2_x1_0": (1, 3, 33, 40)}


def hold(zoo, name, model, x):
    """Every output, and its outermost ring of pixels, is as close as the tolerance."""
    tolerance = FP16_TOLERANCE if x.dtype == np.float16 else FP32_TOLERANCE
    before = x.copy()
    found = model.run({model.inputs[0].name: x})
    assert np.array_equal(before, x)
    compared = compare_outputs(found, zoo.truth(name, x))
    assert len(compared) == len(model.outputs)
    wrong = [c for c in compared if not c.within(tolerance)]
    assert not wrong, f"{name} {x.shape}: {wrong}"


@pytest.mark.parametrize("name", SIZES)
def test_every_size_agrees_with_onnxruntime(zoo, image, name):
    model = zoo.compiled(name)
    for shape in SIZES[name]:
        hold(zoo, name, model, image(shape, model.inputs[0].dtype))


@pytest.mark.parametrize("name", EXACT)
def test_exact_mode_agrees(zoo, image, name):
    model = zoo.compiled(name, exact=True)
    shape = SIZES[name][0]
    hold(zoo, name, model, image(shape))
    kernels = {step.kernel for step in model.plan(shape).steps}
    assert not {"conv2d.winograd", "conv2d.lattice"} & kernels


@pytest.mark.parametrize("name", OLDER)
def test_avx2_agrees(zoo, image, name):
    model = zoo.compiled(name, isa="avx2")
    hold(zoo, name, model, image(SIZES[name][0]))
    assert model.plan(SIZES[name][0]).isa == "avx2"


@pytest.mark.parametrize("name", PLAYED)
def test_reference_device_agrees(zoo, image, name):
    hold(zoo, name, zoo.compiled(name, device="reference"), image(PLAYED[name]))


@pytest.mark.parametrize("name", ["subpixel_x4", "shufflenet_v2_x1_0"])
def test_checked_mode_agrees(zoo, image, name):
    hold(zoo, name, zoo.compiled(name, checked=True, threads=1), image(SIZES[name][0]))


@pytest.mark.parametrize("name", BFLOAT16)
def test_bfloat16_is_as_close_as_it_can_be(zoo, image, name):
    """The bounds are twice what was measured; OpenVINO's own bfloat16 is off as far."""
    model = zoo.compiled(name, precision="bf16")
    x = image(SIZES[name][:2][-1])
    truth = zoo.truth(name, x)
    compared = compare_outputs(model.run({model.inputs[0].name: x}), truth)
    wrong = [c for c in compared if not c.within(BFLOAT16[name])]
    assert not wrong, f"{name} {x.shape}: {wrong}"
    plan = model.plan(x.shape)
    assert all(step.kernel for step in plan.steps)
    outputs = [s for step in plan.steps for s in step.outputs if s.ref.base == 0]
    narrow = sum(s.view.dtype is DType.BF16 for s in outputs)
    assert narrow > 0.75 * len(outputs)  # offsets of samples stay float32
