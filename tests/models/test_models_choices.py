"""Any way to do any layer gives the same answer: plans with choices forced at random."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saccade import layout
from saccade import plan as planner
from saccade.backends.cpu.fusions import SeparableConv2d
from saccade.layout import Tuned
from saccade.opdefs import Conv2d
from saccade.testing.compare import FP32_TOLERANCE, compare_outputs
from saccade.tuning.keys import call_key

SIZES = {
    "subpixel_x4": (1, 3, 17, 23),
    "shufflenet_v2_x1_0": (2, 3, 33, 40),
    "mobilenet_v3_large": (1, 3, 49, 40),
    "resnet50": (1, 3, 65, 40),
}
FORCED = 5  # different calls in a plan: each may need code that nobody has compiled yet


class Forced:
    """Timings that name any legal way to do a call, for a share of the calls."""

    def __init__(self, seed, share):
        self.seed, self.share = seed, share
        self.taken = {}

    def tuned(self, call, kernels):
        key = call_key(call)
        chance = Random(f"{self.seed} {key}")
        if chance.random() > self.share:
            return None
        able = [kernel for kernel in kernels if kernel.supports(call) is None]
        kernel = chance.choice(able)
        variant = chance.choice(list(kernel.variants(call)))
        self.taken[key] = kernel.name
        return Tuned(kernel, variant.launches, variant.micros, 1.0)

    def refusals(self, _steps):
        return ()


class Joined:
    """Timings of a model whose pairs of a depthwise and a 1x1 convolution are all one step."""

    def __init__(self, joined):
        self.joined = joined

    def tuned(self, call, kernels):
        pair = isinstance(call.op, SeparableConv2d)
        alone = isinstance(call.op, Conv2d) and call.op.groups == call.inputs[0].shape[1] > 1
        able = [kernel for kernel in kernels if kernel.supports(call) is None]
        if not able or not (pair if self.joined else alone):
            return None
        best = next(iter(able[0].variants(call)))
        return Tuned(able[0], best.launches, best.micros, 1.0)

    def refusals(self, _steps):
        return ()


def forced_layout(model, shape, seed):
    """A layout with forced choices, which they are, and the sizes."""
    sizes = dict(zip("NHW", (shape[0], *shape[2:]), strict=True))
    graph, backend = model._started().graph, model._started().backend
    calls = {call_key(s.call) for s in layout.assign(graph, sizes, backend, threads=2).steps}
    forced = Forced(seed, FORCED / len(calls))
    laid = layout.assign(graph, sizes, backend, threads=2, timings=forced)
    return laid, forced.taken, sizes


def test_pairs_give_the_same_bits_in_one_step_and_in_two(zoo, image):
    name = "shufflenet_v2_x1_0"
    model = zoo.compiled(name)
    x = image(SIZES[name])
    engine = model._started()
    sizes = dict(zip("NHW", (x.shape[0], *x.shape[2:]), strict=True))
    counts, results = [], []
    for joined in (False, True):
        laid = layout.assign(engine.graph, sizes, engine.backend, threads=2, timings=Joined(joined))
        plan = planner.make(engine.graph, laid, sizes, 2, engine.backend.target.isa)
        program = engine.backend.build(plan, engine.graph, engine.identity)
        counts.append(sum(isinstance(step.op, SeparableConv2d) for step in plan.steps))
        results.append(program.run([x]))
    assert counts == [0, 19]
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("name", SIZES)
@settings(
    max_examples=2,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_choice_gives_the_same_answer(zoo, image, name, seed):
    model = zoo.compiled(name)
    x = image(SIZES[name])
    default = model.run({model.inputs[0].name: x})
    laid, taken, sizes = forced_layout(model, x.shape, seed)
    engine = model._started()
    plan = planner.make(engine.graph, laid, sizes, 2, engine.backend.target.isa)
    program = engine.backend.build(plan, engine.graph, engine.identity)
    names = [info.name for info in model.outputs]
    found = dict(zip(names, program.run([x]), strict=True))
    wrong = [c for c in compare_outputs(found, default) if not c.within(FP32_TOLERANCE)]
    assert not wrong, (wrong, taken)


def test_choices_are_forced(zoo):
    """The test above would find nothing if the defaults were taken."""
    model = zoo.planned("subpixel_x4")
    kernels = set()
    for seed in range(4):
        laid, taken, _ = forced_layout(model, SIZES["subpixel_x4"], seed)
        measured = [s.choice.kernel.name for s in laid.steps if s.choice.measured is not None]
        assert measured
        assert set(measured) <= set(taken.values())
        kernels |= set(measured)
    assert {"conv2d.direct", "conv2d.winograd"} <= kernels
