"""CONTRIBUTING.md's pass: it matches, refuses, rewrites, and has its place among the others."""

import json

from models import MODELS

STAGES = """
from saccade.frontend import onnx as frontend
from saccade.ir.printer import format_graph
from saccade import passes
source = model(sys.argv[1])
found, said = {}, []
def note(name, graph, notes):
    found[name] = [node.op.family for node in graph.nodes]
    said.extend([name, one.reason] for one in notes)
passes.run(frontend.load(source), trace=note, check=True)
x = image(1, 3, 4, 5)
before, after = (saccade.compile(source, device=d, cache=False)(x) for d in ("reference", "cpu"))
say(stages=found, said=said, same=bool((before == after).all()))
"""
SIGNED = "a = Neg(x) b = org.example.Cube(a) y = Relu(b)"
READ_TWICE = "a = Neg(x) b = org.example.Cube(a) y = Add(a, b)"


def test_a_newcomer_adds_a_pass(tree):
    tree.add("Add an operator")
    tree.walk("Add a pass")
    found = json.loads(tree.python(MODELS + STAGES, SIGNED))
    stages = found["stages"]
    names = list(stages)
    assert names.index("hoist_signs") == names.index("canonicalise") - 1
    assert stages["merge_duplicates"] == ["Pointwise", "Cube", "Pointwise"]
    assert stages["hoist_signs"] == ["Cube", "Pointwise", "Pointwise"]
    assert stages["keep_infinities"] == ["Cube", "Pointwise"], "the sign became part of the Relu"
    assert found["same"] and "hoist_signs" not in dict(found["said"])

    found = json.loads(tree.python(MODELS + STAGES, READ_TWICE))
    assert found["stages"]["hoist_signs"] == ["Pointwise", "Cube", "Pointwise"]
    assert [reason for name, reason in found["said"] if name == "hoist_signs"] == [
        "%a is read elsewhere"
    ]

    tree.python(MODELS + "open('signed.onnx', 'wb').write(model(sys.argv[1]))", SIGNED)
    command = (".venv/bin/saccade", "inspect", "signed.onnx", "--stage", "hoist_signs")
    assert "Cube" in tree.run(*command)
