"""Whole detectors are planned for GPUs, without one: no step is left to the host."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import saccade
from saccade.backends.cuda.cubins import code_key

SHAPES = {"ssdlite320_mobilenet": (3, 320, 320), "fasterrcnn_resnet50_fpn": (3, 480, 640)}
FOUND = ("select.", "nms.", "movement.scatter", "roi.")
"""Kernels that only detectors have."""
CODE = """
import sys
from pathlib import Path
import saccade
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.backends.cuda.cubins import code_key
from saccade.kernels.cuda import kernel_named
import json

def main():
    path, shape, arch = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    plan = saccade.compile(Path(path), device="cuda", machine="h200").plan(tuple(shape))
    keys = {code_key(step.kernel, phase): None for step in plan.steps for phase in step.phases
            if step.kernel.startswith(("select.", "movement.scatter"))}
    for key in keys:
        assert compile_entry(kernel_named(key.kernel).entry(key.config), arch, key.aligned).code
    print(len(keys))

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("name", SHAPES)
def test_every_step_has_a_kernel(zoo, name):
    plan = saccade.compile(zoo.path(name), device="cuda", machine="h200").plan(SHAPES[name])
    lacking = [(step.name, step.op.family) for step in plan.steps if step.kernel is None]
    assert lacking == []
    kernels = {step.kernel for step in plan.steps}
    assert {"select.top_k", "select.non_zero", "nms.suppress"} <= kernels
    # What a run finds out are the plan's last outputs, which come back all at once.
    assert plan.counts > 0 and all(cut for cut in plan.cuts)
    # Sizes are integers of the launches: of many steps few have code of their own.
    launched = [
        (step.kernel, phase)
        for step in plan.steps
        for phase in step.phases
        if step.kernel.startswith(FOUND)
    ]
    assert len({code_key(*one) for one in launched}) < len(launched) / 3


@pytest.mark.parametrize("arch", [80, 90])
def test_what_only_detectors_have_compiles(zoo, tmp_path, arch):
    """In a process that never saw the interpreter."""
    name = "fasterrcnn_resnet50_fpn"
    script = tmp_path / "compiles.py"
    script.write_text(CODE)
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, str(script), str(zoo.path(name)), json.dumps(SHAPES[name]), str(arch)],
        capture_output=True, text=True, timeout=600, check=False, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert 5 <= int(done.stdout) <= 20
