"""Small plans for a fake GPU: kernels in Python over rows of float32."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import partial

import numpy as np

import saccade
from saccade.backends.cuda.arrays import CudaArrays
from saccade.backends.cuda.backend import packed_constant
from saccade.backends.cuda.runtime.context import DeviceContext
from saccade.backends.cuda.runtime.program import CudaProgram
from saccade.ir import DType
from saccade.kernels.base import View
from saccade.kernels.bind import Argument, Phase, Ref, Role
from saccade.kernels.machine import Machine
from saccade.plan import Constant, Plan, Port, Slot, Step
from saccade.signature import TensorInfo
from saccade.testing.fake_driver import FakeDriver
from saccade.testing.fake_gpu import fake_gpu, fake_program

SPEEDS = Machine(67e6, 67e6, 4e6, 4e6, 2.0, 50 << 20)
ALIGNED = 16


def at(address, count):
    """Floats that lie there."""
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address)) if count else []


def scale_and_add(programs, given):
    """y = 2 x + w, where w has as many elements as x."""
    del programs
    for name in "xwy":
        assert given[name] % ALIGNED == 0
    n = given["n"]
    at(given["y"], n)[:] = 2 * at(given["x"], n) + at(given["w"], n)


def count_positive(programs, given):
    """The number of positive elements, which come first in y."""
    del programs
    x = at(given["x"], given["n"]).copy()
    found = x[x > 0]
    at(given["y"], given["n"])[: len(found)] = found
    ctypes.c_int64.from_address(given["count"]).value = len(found)


@dataclass(frozen=True)
class PlainConfig:
    """Of a kernel in Python."""

    name: str


def view(n, dtype=DType.F32):
    return View(dtype, (n,), (1,))


def step(name, arguments, integers, inputs, outputs, chunks=3, kernel="pointwise.python"):
    phase = Phase(PlainConfig(name), tuple(arguments), integers, chunks)
    phases = (phase,) if kernel else ()
    return Step(name, None, inputs, outputs, kernel, phases, 1.0, ())


def plan_of(steps, inputs, outputs, constants=(), arena=0, counts=0, cuts=()):
    return Plan(
        {}, 1, "sm_90", inputs, outputs, tuple(constants), tuple(steps), arena, arena, (), SPEEDS,
        counts=counts, cuts=cuts, device="cuda",
    )  # fmt: skip


def chain(n, links=2, arena=0):
    """y = 2 (2 x + w) + w and so on, intermediate values in the arena."""
    nbytes = 4 * n
    last, constant = links - 1, Ref(3, 0, nbytes)
    room = max(256, -(-nbytes // 256) * 256)
    places = [
        Ref(1, 0, nbytes),
        *(Ref(0, room * i, nbytes) for i in range(last)),
        Ref(2, 0, nbytes),
    ]
    steps = [
        step(
            f"link{i}",
            [
                Argument("x", Role.INPUT, places[i]),
                Argument("w", Role.PACKED, constant),
                Argument("y", Role.OUTPUT, places[i + 1]),
            ],
            {"n": n},
            (Slot(places[i], view(n)), Slot(constant, view(n))),
            (Slot(places[i + 1], view(n)),),
            chunks=min(n, 3),
        )
        for i in range(links)
    ]
    port = Port("x", "float32", (n,))
    return plan_of(
        steps, (port,), (Port("y", "float32", (n,)),), [Constant((f"w{n}",), None, nbytes)],
        max(arena, room * last),
    )  # fmt: skip


def chain_program(device, n, links=2, arena=0, identity="model", packed=None):
    driver = device.driver
    plan = chain(n, links, arena)
    code = driver.host_code("xwy", "n", scale_and_add)
    asked = [] if packed is None else packed

    def constant(i):
        asked.append(i)
        return weights(n)

    return CudaProgram(device, plan, [code] * links, constant, identity)


def weights(n):
    return np.arange(n, dtype=np.float32) / 7


def chained(x, links=2):
    for _ in range(links):
        x = 2 * x + weights(len(x))
    return x


def opened(**options):
    device = DeviceContext(FakeDriver(**options))
    return device, CudaArrays(lambda: device)


def info(n="n", dtype="float32"):
    return TensorInfo("x", dtype, (n,))


def held_by_the_reference(path, precision, tolerance, inputs, look=lambda _plan: None):
    """Run a model on a fake GPU, twice for each input, and hold it against the reference device.

    Args:
        path: Its file; it has one input.
        precision: What it is computed in.
        tolerance: The most relative L2 error.
        inputs: Arrays.
        look: Gets each plan.
    """
    made = saccade.compile(path, device="cuda", machine="a100", precision=precision)  # no Gluon
    engine = made._started()
    reference = saccade.compile(path, device="reference")
    driver, device = gpu = fake_gpu()
    arrays = CudaArrays(lambda: device)
    for x in inputs:
        plan = engine.plan([x.shape])
        look(plan)
        program = fake_program(plan, partial(packed_constant, engine.graph, plan), gpu)
        truths = reference.run({engine.signature.inputs[0].name: x}).values()
        for _ in range(2):
            taken = arrays.take(engine.signature.inputs[0], x)
            found = arrays.give(program.run([taken]), [x])
            for result, truth in zip(found, truths, strict=True):
                assert result.dtype == truth.dtype
                assert np.linalg.norm(result - truth) / np.linalg.norm(truth) < tolerance
    driver.memory.check()
