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
x = picture(1, 3, 4, 5)
before, after = (saccade.compile(source, device=d, cache=False)(x) for d in ("reference", "cpu"))
say(stages=found, said=said, same=bool((before == after).all()))
"""
SIGNED = "a = Neg(x) b = org.example.Cube(a) y = Relu(b)"
READ_TWICE = "a = Neg(x) b = org.example.Cube(a) y = Add(a, b)"


def test_a_newcomer_adds_a_pass(tree):
    tree.walk("Add an operator")
    tree.walk("Add a pass")
    found = json.loads(tree.python(MODELS + STAGES, SIGNED))
    stages = found["stages"]
    names = list(stages)
    assert names.index("hoist_signs") == names.index("canonicalise") - 1
    assert stages["merge_duplicates"] == ["Pointwise", "Cube", "Pointwise"]
    assert stages["hoist_signs"] == ["Cube", "Pointwise", "Pointwise"]
    assert stages["keep_infinities"] == ["Cube", "Pointwise"], "the sign became part of the Relu"
    assert not found["said"] and found["same"]

    found = json.loads(tree.python(MODELS + STAGES, READ_TWICE))
    assert found["stages"]["hoist_signs"] == ["Pointwise", "Cube", "Pointwise"]
    ((name, reason),) = found["said"]
    assert name == "hoist_signs" and reason.endswith("is read elsewhere")


def test_it_is_printed(tree):
    tree.walk("Add an operator")
    tree.walk("Add a pass")
    (tree.folder / "signed.onnx").write_bytes(b"")
    tree.python(MODELS + f"open('signed.onnx', 'wb').write(model({SIGNED!r}))")
    command = ".venv/bin/saccade", "inspect", "signed.onnx", "--stage", "hoist_signs"
    assert "Cube" in tree.run(*command)
