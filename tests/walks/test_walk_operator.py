"""CONTRIBUTING.md's operator: what it means and where it comes from are enough to run it."""

import json

from models import MODELS

RUNS = """
source = model("a = Relu(x) b = org.example.Cube<scale=0.5>(a) y = Add(a, b)")
x = image(2, 3, 5, 7)
a = np.maximum(x, 0)
want = a + np.float32(0.5) * a * a * a
found = {}
for device in ("reference", "cpu"):
    compiled = saccade.compile(source, device=device)
    plan = compiled.plan(x.shape)
    assert saccade.Plan.from_json(plan.to_json()) == plan
    (step,) = [one for one in plan.steps if one.op.family == "Cube"]
    found[device] = [float(abs(compiled(x) - want).max()), step.kernel]
say(**found, text=str(plan), work=[step.work.flops, step.work.bytes], scale=step.op.scale)
"""
REFUSED = """
try:
    saccade.compile(model("y = org.example.Cube<scale=1>(x)"))
except saccade.ModelError as error:
    say(broken=str(error))
"""


def test_a_newcomer_adds_an_operator(tree):
    tree.walk("Add an operator")
    found = json.loads(tree.python(MODELS + RUNS))
    size = 2 * 3 * 5 * 7
    assert found["work"] == [3 * size, 8 * size]
    assert found["scale"] == 0.5
    for device in ("reference", "cpu"):
        difference, kernel = found[device]
        assert difference < 1e-6 and kernel is None
    assert "1 on the host" in found["text"]
    assert "  on the host: b: cpu has no kernel for Cube" in found["text"]
    assert "`org.example.Cube`" in (tree.folder / "docs" / "support.md").read_text()
    assert "scale" in json.loads(tree.python(MODELS + REFUSED))["broken"]
