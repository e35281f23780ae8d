"""Plans read back by a process that planned nothing."""

import dataclasses
import json
import subprocess
import sys

from layout_graphs import Builder, plan_of

from saccade.backends.cpu.fusions import OPERATORS
from saccade.opdefs import Conv2d
from saccade.plan import Plan

READ = """
import json, sys
from saccade.plan import Plan
plan = Plan.from_json(sys.stdin.read())
print(json.dumps([plan.to_json(), [step.op.family for step in plan.steps]]))
"""


def mobile_plan():
    """One with an operator that only the CPU has."""
    b = Builder((1, 16, 112, 112))
    wide = b.conv(b.conv(b.inputs[0], 16), 64, taps=1)
    image = b.add(Conv2d(padding=(1,) * 4, groups=64), wide, b.constant((64, 1, 3, 3)))
    return plan_of(b.graph(b.conv(image, 8)))


def read_elsewhere(text):
    """What a fresh process reads: as JSON again, and the operators."""
    found = subprocess.run(
        [sys.executable, "-c", READ], input=text, capture_output=True, text=True, check=True,
        timeout=60,
    )  # fmt: skip
    return json.loads(found.stdout)


def test_operators_of_a_device_are_read_back_by_name():
    plan = mobile_plan()
    families = [step.op.family for step in plan.steps]
    assert set(families) & set(OPERATORS)
    assert read_elsewhere(plan.to_json()) == [plan.to_json(), families]
    assert Plan.from_json(plan.to_json()) == plan


def test_a_config_inside_another_is_read_back_or_none():
    """Of convolutions whose weights are computed."""
    b = Builder((1, 16, 12, 12), (24, 16, 3, 3))
    plan = plan_of(b.graph(b.add(Conv2d(padding=(1,) * 4), *b.inputs)))
    (step,) = (step for step in plan.steps if isinstance(step.op, Conv2d))
    assert step.kernel == "conv2d.direct_computed" and len(step.phases) == 2
    assert [slot.view.strides[0] for slot in step.inputs[1:]] == [16 * 3 * 3]  # as the caller has
    assert Plan.from_json(plan.to_json()) == plan


def test_also_where_no_kernel_does_the_step():
    """A kernel's module would bring its operators along."""
    plan = mobile_plan()
    steps = tuple(dataclasses.replace(step, kernel=None, phases=()) for step in plan.steps)
    text = dataclasses.replace(plan, steps=steps).to_json()
    assert read_elsewhere(text) == [text, [step.op.family for step in plan.steps]]
