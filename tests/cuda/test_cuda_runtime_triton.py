"""Two convolutions as one program, their Triton code played in the interpreter."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
import cuda_programs as made

from saccade.backends.cuda.runtime.program import CudaProgram
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, View
from saccade.kernels.bind import Binder, Ref
from saccade.kernels.cuda import packing
from saccade.kernels.cuda.conv2d.implicit_gemm import CONV2D_IMPLICIT_GEMM
from saccade.opdefs import Conv2d
from saccade.plan import Constant, Port, Slot
from saccade.plan.types import Step
from saccade.signature import TensorInfo
from saccade.testing.triton import H200


@dataclass
class Wired:
    """`Places` of one step: where its operands and its result lie, and its packed constants."""

    inputs: list
    result: Ref
    first_constant: int
    packings: list = field(default_factory=list)

    def input(self, index):
        return self.inputs[index]

    def output(self, index):
        return self.result

    def packed(self, packing):
        self.packings.append(packing)
        return Ref(self.first_constant + len(self.packings) - 1, 0, packing.nbytes)


def images(n, c, h, w):
    return View(DType.F32, (n, c, h, w), (h * w * c, 1, w * c, c))


def test_two_convolutions():
    rng = np.random.default_rng(0)
    n, c, h, w = 2, 8, 5, 6
    weights = [rng.standard_normal((c, c, 3, 3)).astype(np.float32) for _ in range(2)]
    view, kernels = images(n, c, h, w), View(DType.F32, (c, c, 3, 3), (c * 9, 9, 3, 1))
    op = Conv2d(padding=(1, 1, 1, 1), epilogue=parse("relu($0)"))
    call = Call(op, (view, kernels), (view,), (False, True), H200, 1)
    assert CONV2D_IMPLICIT_GEMM.supports(call) is None
    nbytes = view.extent * 4
    places = [Ref(1, 0, nbytes), Ref(0, 0, nbytes), Ref(2, 0, nbytes)]
    steps, constants, arrays = [], [], []
    for i in range(2):
        wired = Wired([places[i]], places[i + 1], 3 + len(constants))
        phases = tuple(
            Binder(1, alignment=256).phase(launch, wired)
            for launch in CONV2D_IMPLICIT_GEMM.launch(call)
        )
        for one in wired.packings:
            constants.append(Constant((f"w{i}",), one, one.nbytes))
            arrays.append(packing.FUNCTIONS[one.function](weights[i], *one.parameters))
        slots = (Slot(places[i], view),), (Slot(places[i + 1], view),)
        steps.append(Step(f"conv{i}", op, *slots, CONV2D_IMPLICIT_GEMM.name, phases, 1.0, ()))
    port = Port("x", "float32", (n, h, w, c))
    plan = made.plan_of(steps, (port,), (port,), constants, nbytes)
    device, own = made.opened()
    codes = [
        device.driver.code(CONV2D_IMPLICIT_GEMM.entry(phase.config))
        for step in steps
        for phase in step.phases
    ]
    program = CudaProgram(device, plan, codes, lambda i: arrays[i], "model")
    x = rng.standard_normal((n, h, w, c)).astype(np.float32)
    taken = own.take(TensorInfo("x", "float32", port.shape), x)
    (y,) = own.give(program.run([taken]), [x])
    expected = torch.from_numpy(x).permute(0, 3, 1, 2)
    for one in weights:
        expected = torch.relu(torch.conv2d(expected, torch.from_numpy(one), padding=1))
    np.testing.assert_allclose(y, expected.permute(0, 2, 3, 1).numpy(), rtol=1e-4, atol=1e-4)
    device.driver.memory.check()
