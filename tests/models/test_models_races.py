"""Whole programs on logical threads under watch: races, lifetimes, bounds, untouched inputs."""

import numpy as np
import pytest

from saccade.testing.simulate import simulate

SIZES = {
    "subpixel_x4": (1, 3, 17, 23),
    "subpixel_x4_fp16": (1, 3, 17, 23),
    "shufflenet_v2_x1_0": (2, 3, 33, 40),
    "mobilenet_v3_large": (1, 3, 49, 40),
    "efficientnet_b0": (1, 3, 33, 40),
    "densenet121": (1, 3, 33, 40),
    "deeplabv3_mobilenet": (1, 3, 33, 40),
    "resnet50": (1, 3, 33, 40),
    "subpixel_x4_dynamo": (1, 3, 17, 23),
    "resnet50_dynamo": (1, 3, 224, 224),
    "vgg16": (1, 3, 224, 224),
}
LARGE = ("vgg16", "resnet50_dynamo")
"""With the most threads alone, as a turn takes seconds: its kernels are those of the others."""
ORDERS = ((0,), (1, 0), (1, 2, 0), (6, 2, 4, 0, 1, 5, 3))


@pytest.mark.parametrize("name", SIZES)
def test_any_team_gives_the_same_bits(zoo, image, name):
    """A plan for seven threads: the real team, and one, two, three and seven logical threads."""
    program = zoo.program(name, SIZES[name], threads=7)
    x = image(SIZES[name], program.plan.inputs[0].dtype)
    wanted = program.run([x])
    assert not any(np.isnan(array).any() for array in wanted)
    for order in ORDERS[-1:] if name in LARGE else ORDERS:
        found = simulate(program, [x], order)
        for a, b in zip(wanted, found, strict=True):
            assert a.tobytes() == b.tobytes(), f"{name} with logical threads {order}"


@pytest.mark.parametrize("name", ["subpixel_x4", "shufflenet_v2_x1_0"])
@pytest.mark.parametrize("order", ORDERS[:-1])
def test_plans_of_any_width_keep_to_their_memory(zoo, image, name, order):
    program = zoo.program(name, SIZES[name], threads=len(order))
    x = image(SIZES[name])
    wanted = program.run([x])
    found = simulate(program, [x], order)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(wanted, found, strict=True))


@pytest.mark.parametrize("name", ["resnet50", "densenet121", "shufflenet_v2_x1_0"])
def test_plans_of_any_width_give_the_same_bits(zoo, image, name):
    """Algorithms round differently: which one is taken must not depend on the team."""
    x = image((1, 3, 64, 64))
    one, two, three = (zoo.program(name, x.shape, threads=n).run([x]) for n in (1, 2, 3))
    for a, b, c in zip(one, two, three, strict=True):
        assert a.tobytes() == b.tobytes() == c.tobytes()
