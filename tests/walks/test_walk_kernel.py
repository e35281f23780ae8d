"""CONTRIBUTING.md's kernel: selection takes it, its results hold, one object serves all sizes."""

import json

from models import MODELS

RUNS = """
from saccade.kernels.cpu.cube.direct import CubeConfig
source = model("a = Relu(x) b = org.example.Cube<scale=0.5>(a) y = Add(a, b)")
shape = tuple(map(int, sys.argv[1:]))
x = image(*shape)
found = {}
for checked in (False, True):
    compiled = saccade.compile(source, checked=checked)
    plan = compiled.plan(shape)
    assert saccade.Plan.from_json(plan.to_json()) == plan
    (step,) = [one for one in plan.steps if one.op.family == "Cube"]
    assert step.kernel == "cube.direct" and not step.reasons
    assert [phase.config for phase in step.phases] == [CubeConfig(4)]
    want = saccade.compile(source, device="reference", cache=False)(x)
    assert (compiled(x) == want).all()
say(hosts=sum(one.kernel is None for one in plan.steps), text=str(plan))
"""


def objects(tree):
    """The toy's code in the cache, by what it depends on."""
    return {path.name for path in tree.cache.rglob("cube_direct_*")}


def test_a_newcomer_adds_a_kernel(tree):
    tree.add("Add an operator")
    tree.walk("Add a kernel")
    found = json.loads(tree.python(MODELS + RUNS, "2", "3", "5", "7"))
    assert found["hosts"] == 0 and "cube.direct" in found["text"]
    kept = objects(tree)
    assert len(kept) == 2, "with bounds checks, and without"
    tree.python(MODELS + RUNS, "1", "3", "37", "129")
    assert objects(tree) == kept
    table = (tree.folder / "docs" / "support.md").read_text()
    assert (
        "| `Cube` | `scale · x³` of every element. Operands: x, floating point. | `cube.direct` |"
        in table
    )
