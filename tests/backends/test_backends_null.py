"""The seam between devices: one that knows nothing of the CPU plans every model, and runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SIZES = {"deeplabv3_mobilenet": 520, "subpixel_x4": 90, "subpixel_x4_fp16": 90}
NAMES = (
    "subpixel_x4", "subpixel_x4_fp16", "resnet50", "mobilenet_v3_large", "shufflenet_v2_x1_0",
    "efficientnet_b0", "densenet121", "deeplabv3_mobilenet", "vit_b_16",
)  # fmt: skip
"""Not VGG-16, which has no operator that ResNet-50 does not have, and half a gigabyte to read."""
START = f"""
import json, sys
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[1] / "runtime")!r}]
import numpy as np
import saccade
from saccade.devices import DEVICES
from saccade.plan import Plan
DEVICES["null"] = "null_device:NULL"
"""
PLAN = """
model = saccade.compile(sys.argv[1], device="null", threads=3, cache=False)
n = int(sys.argv[2])
shape = tuple(size if isinstance(size, int) else n if i > 1 else 1
              for i, size in enumerate(model.inputs[0].shape))
plan = model.plan(shape)
assert Plan.from_json(plan.to_json()) == plan
kernels = sorted({step.kernel or "" for step in plan.steps})
print(json.dumps([plan.device, plan.isa, len(plan.steps), kernels, plan.arena_bytes,
                  "null" in str(plan), sorted(sys.modules)]))
"""
RUN = """
from runtime_models import convolutions
source = convolutions().SerializeToString()
model = saccade.compile(source, device="null", cache=False)
x = np.random.default_rng(0).standard_normal((1, 3, 9, 7)).astype(np.float32)
y = model(x)
assert model(np.zeros((2, 3, 12, 5), np.float32)).shape[0] == 2
try:
    model.tune(x)
except saccade.OptionError as error:
    refused = str(error)
profile = model.profile(x, repeat=1)
modules = sorted(sys.modules)
want = saccade.compile(source, device="cpu")(x)
print(json.dumps([float(abs(y - want).max()), refused, profile.total, modules]))
"""
FOREIGN = {"llvmlite", "triton", "torch", "saccade.backends.cpu", "saccade.kernels.cpu"}


def said(code, *args):
    done = subprocess.run(
        [sys.executable, "-c", START + code, *args],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_a_made_up_device_plans_every_model(filled, name):
    device, isa, steps, kernels, arena, printed, modules = said(
        PLAN, str(filled(name)), str(SIZES.get(name, 224))
    )
    assert (device, isa, printed) == ("null", "null", True)
    assert steps > 5 and kernels == ["null.any"] and arena > 0 and arena % 256 == 0
    assert not FOREIGN & set(modules)


def test_a_made_up_device_runs():
    difference, refused, total, modules = said(RUN)
    assert difference < 1e-4 and total == 0.0
    assert refused == "the null device cannot be tuned"
    assert not FOREIGN & set(modules)
