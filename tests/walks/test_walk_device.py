"""CONTRIBUTING.md's device: one line names it, and it plans and runs models."""

import json

from models import MODELS

RUNS = """
from saccade.options import Options
from saccade.backends.null.device import NullConfig
source = model("a = Relu(x) b = MaxPool<kernel_shape=[2, 2]>(a) y = Exp(b)")
x = image(2, 3, 5, 7)
compiled = saccade.compile(source, device="null", cache=False)
plan = compiled.plan(x.shape)
assert saccade.Plan.from_json(plan.to_json()) == plan
configs = [phase.config for step in plan.steps for phase in step.phases]
assert configs == [NullConfig(step.op.family) for step in plan.steps]
result = compiled(x)
try:
    compiled.tune(x)
except saccade.OptionError as error:
    refused = str(error)
foreign = ("saccade.backends.cpu", "saccade.kernels.cpu", "llvmlite")
modules = [name for name in sys.modules if name.startswith(foreign)]
want = saccade.compile(source, device="cpu", cache=False)(x)
say(device=json.loads(plan.to_json())["device"], kernels=sorted({s.kernel for s in plan.steps}),
    refused=refused, modules=modules, difference=float(abs(result - want).max()))
"""
UNKNOWN = """
try:
    saccade.compile(b"", device="nil")
except saccade.OptionError as error:
    say(told=str(error))
"""


def test_a_newcomer_adds_a_device(tree):
    told = json.loads(tree.python(MODELS + UNKNOWN))["told"]
    tree.walk("Add a device")
    found = json.loads(tree.python(MODELS + RUNS))
    assert found["device"] == "null" and found["kernels"] == ["null.any"]
    assert found["refused"] == "the null device cannot be tuned"
    assert found["modules"] == []
    assert found["difference"] < 1e-5
    assert json.loads(tree.python(MODELS + UNKNOWN))["told"] == f"{told}, null"
