"""`Model.assembly`: machine code of steps, for machines that need not be here."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from onnx import TensorProto, helper

import saccade
from saccade.backends.cuda.batches import keys_of
from saccade.backends.cuda.codegen import disassemble
from saccade.errors import CompileError, InputError, OptionError


def model():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], "matmul1"),
        helper.make_node("Softmax", ["product"], ["y"], "softmax1"),
    ]
    graph = helper.make_graph(
        nodes, "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (64, 64))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (64, 64))],
        [helper.make_tensor("w", TensorProto.FLOAT, (64, 64), [0.5] * 4096)],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def test_of_another_cpu():
    found = {
        name: saccade.compile(model(), machine=name, cache=False).assembly("matmul*", (64, 64))
        for name in ("zen4", "desktop-avx2")
    }
    assert {tuple(texts) for texts in found.values()} == {("matmul1",)}
    wide, narrow = ("".join(found[name]["matmul1"]) for name in ("zen4", "desktop-avx2"))
    assert "vfmadd231ps" in wide
    assert "vfmadd231ps" in narrow
    assert "%zmm" in wide
    assert "%zmm" not in narrow


def test_steps_of_one_name_are_one_entry():
    made = saccade.compile(model(), machine="zen4", cache=False)
    plan = made.plan((64, 64))
    twice = replace(plan, steps=(plan.steps[0], replace(plan.steps[1], name=plan.steps[0].name)))
    made.plan = lambda *args, **shapes: twice
    phases = sum(len(step.phases) for step in plan.steps)
    assert [(name, len(texts)) for name, texts in made.assembly("*").items()] == [
        ("matmul1", phases)
    ]


def test_refusals():
    made = saccade.compile(model(), machine="zen4", cache=False)
    with pytest.raises(InputError, match="no step is called 'conv"):
        made.assembly("conv*", (64, 64))
    with pytest.raises(OptionError, match="no machine code"):
        saccade.compile(model(), device="reference").assembly("*", (64, 64))


CODE = """
import sys
import saccade
made = saccade.compile(sys.stdin.buffer.read(), device="cuda", machine="h200", precision="fp16",
                       cache=False)
for name, texts in made.assembly("*", x=(64, 64)).items():
    text = "".join(texts)
    products = "HGMMA." in text or "HMMA." in text
    print(name, "EXIT" in text, "REG:" in text, products, " warps, " in text)
"""


def test_of_a_gpu():
    pytest.importorskip("triton")
    environment = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], input=model(), capture_output=True, check=True, timeout=300,
        env=environment,
    )  # fmt: skip
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    assert lines == [
        ["matmul1", "True", "True", "True", "True"],
        ["softmax1", "True", "True", "False", "True"],
    ]


def test_codes_are_asked_for_once(monkeypatch):
    """Equal code is disassembled once, and each step gets its own phases' in order."""
    made = saccade.compile(model(), device="cuda", machine="h200", cache=False)
    backend, steps = made._started().backend, made.plan((64, 64)).steps
    twice = replace(steps[0], phases=steps[0].phases[:1] * 2)
    chosen = [twice, replace(steps[0], kernel=None, phases=()), steps[-1]]
    count, asked, read = 2 + len(steps[-1].phases), [], []

    def codes(given):
        asked.append(given)
        return [disassemble.Cubin(f"f{i}", bytes([i // 2]), (), 4, 0) for i in range(count)]

    def text(cubin):
        read.append(cubin.code)
        return cubin.code.hex()

    monkeypatch.setattr(backend, "_codes", codes)
    monkeypatch.setattr("saccade.backends.cuda.backend.disassembled", text)
    found = backend.assembly(chosen)
    last = tuple(bytes([i // 2]).hex() for i in range(2, count))
    assert found == [("00", "00"), (), last]
    assert asked == [keys_of(chosen)] and len(read) == len(set(read))


def test_no_disassembler(monkeypatch):
    monkeypatch.setattr(disassemble, "find_spec", lambda name: None)
    monkeypatch.setattr(disassemble.shutil, "which", lambda name: None)
    cubin = disassemble.Cubin("kernel", b"", (), 4, 0)
    with pytest.raises(CompileError, match=r"there is no cuobjdump.*cuda-compile"):
        disassemble.disassembled(cubin)
