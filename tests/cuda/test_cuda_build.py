"""Models for GPUs are built where there is none, for each architecture."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import saccade
from saccade.backends.cuda.gpus import GPUS, machine_for, nearest_gpu
from saccade.bundlefile import open_bundle

RUNTIME = str(Path(__file__).parents[1] / "runtime")
BUILD = f"""
import json, sys
sys.path.append({RUNTIME!r})
if __name__ == "__main__":
    import saccade
    from runtime_models import convolutions
    path, machine, precision = sys.argv[1:]
    source = convolutions(16).SerializeToString()
    model = saccade.compile(source, device="cuda", machine=machine, precision=precision)
    plan = model.plan((1, 3, 20, 18))
    size = model.save(path, {{"x": (1, 3, 20, 18)}}, {{"x": (2, 3, 9, 7)}})
    print(json.dumps([size, plan.isa, [step.kernel for step in plan.steps],
                      [name for name in ("torch", "cuda") if name in sys.modules]]))
"""


def built(tmp_path, machine, precision="fp16"):
    """A small network's bundle, compiled in processes that never saw the interpreter."""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    path, script = tmp_path / f"{machine}.saccade", tmp_path / "build.py"
    script.write_text(BUILD)
    done = subprocess.run(
        [sys.executable, str(script), str(path), machine, precision],
        capture_output=True, text=True, timeout=300, check=False, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return path, json.loads(done.stdout)


@pytest.mark.parametrize("machine", ["a100", "a10", "l4", "h200", "b200"])
def test_a_network_is_built_for_each_architecture(tmp_path, machine):
    path, (size, isa, kernels, imported) = built(tmp_path, machine)
    assert size == path.stat().st_size and isa == f"sm_{GPUS[machine].arch}"
    assert len(kernels) >= 3 and None not in kernels
    assert imported == []  # neither PyTorch nor the driver's bindings
    head = open_bundle(path).head
    assert (head.device, head.precision, len(head.shapes)) == ("cuda", "fp16", 2)
    model = saccade.compile(path)  # what it takes is known without a GPU
    assert [info.shape for info in model.inputs] == [("N", 3, "H", "W")]
    with pytest.raises(saccade.SaccadeError, match="cuda"):
        model.run({"x": np.zeros((1, 3, 20, 18), np.float32)})
    content = bytearray(path.read_bytes())
    content[content.index(b"\x7fELF") + 100] ^= 1  # in the first cubin
    path.write_bytes(content)
    file = open_bundle(path)
    codes = json.loads(bytes(file.read("0/plan/0")))["code"]
    with pytest.raises(saccade.ModelError, match="is damaged"):
        for name in codes:
            file.read(f"0/{name}")


def test_without_a_gpu_one_error_says_what_is_missing():
    code = f"""
import sys
sys.path.append({RUNTIME!r})
sys.modules["cuda"] = None  # importing it is an error
import saccade
from runtime_models import convolutions
try:
    saccade.compile(convolutions().SerializeToString(), device="cuda", cache=False)
except saccade.SaccadeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    needs = "device cuda needs the package cuda-bindings: pip install 'saccade[cuda]'\n"
    assert done.stdout == needs, done.stderr


def test_gpus_by_what_the_driver_says():
    assert nearest_gpu("NVIDIA H200", 90, 132).name == "h200"
    assert nearest_gpu("NVIDIA H100 80GB HBM3", 90, 132).name == "h100"
    assert nearest_gpu("NVIDIA L40S", 89, 142).name == "rtx4090"
    assert nearest_gpu("NVIDIA GeForce RTX 5090", 120, 170).name == "b200"
    with pytest.raises(saccade.OptionError, match="older than sm_80"):
        nearest_gpu("Tesla T4", 75, 40)


def test_what_to_build_for():
    assert machine_for("sm_90", None) == "h200" and machine_for(None, "l4") == "l4"
    for arch, machine, says in (
        (None, None, "say which GPU"), ("sm_70", None, "is not one of sm_80, sm_86"),
        ("sm_80", "h200", "h200 is sm_90, not sm_80"), (None, "k80", "is not one of h200"),
    ):  # fmt: skip
        with pytest.raises(saccade.OptionError, match=says):
            machine_for(arch, machine)


def test_models_have_no_checked_mode():
    sys.path.append(RUNTIME)
    from runtime_models import convolutions  # noqa: PLC0415

    source = convolutions().SerializeToString()
    with pytest.raises(saccade.OptionError, match=r"checked=True is for CPUs: .* pytest -m gpu"):
        saccade.compile(source, device="cuda", machine="h200", checked=True).plan((1, 3, 9, 9))


def test_narrow_inputs_are_refused(tmp_path):
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)]
    graph = helper.make_graph(
        nodes, "narrow",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT8E4M3FN, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
    )  # fmt: skip
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    model = saccade.compile(source.SerializeToString(), device="cuda", machine="h200")
    with pytest.raises(saccade.SaccadeError, match=r"'x' is of type float8.*for the CPU alone"):
        model.save(tmp_path / "narrow.saccade", {})
