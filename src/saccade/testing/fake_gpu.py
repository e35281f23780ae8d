"""Whole plans for GPUs without one: through the runtime, with kernels in Triton's interpreter."""

from __future__ import annotations

from functools import partial

from saccade.backends.cuda.backend import packed_constant
from saccade.backends.cuda.runtime.context import DeviceContext
from saccade.backends.cuda.runtime.program import CudaProgram
from saccade.ir import Graph
from saccade.kernels.cuda import kernel_named
from saccade.plan import Plan
from saccade.testing.fake_driver import FakeDriver

__all__ = ["fake_gpu", "fake_program"]


def fake_gpu(memory: int = 1 << 28) -> tuple[FakeDriver, DeviceContext]:
    """A GPU of so many bytes, whose memory is the host's as far as other libraries know."""
    driver = FakeDriver(memory)
    return driver, DeviceContext(driver)


def fake_program(
    plan: Plan, graph: Graph, driver: FakeDriver, device: DeviceContext, identity: str = "model"
) -> CudaProgram:
    """The program of a plan that `CudaBackend` made, played phase by phase.

    Args:
        plan: The plan.
        graph: Holds its constants.
        driver: The fake's.
        device: Over it.
        identity: Of the graph's constants.
    """
    codes = [
        driver.code(kernel_named(step.kernel).entry(phase.config))
        for step in plan.steps
        if step.kernel is not None
        for phase in step.phases
    ]
    return CudaProgram(device, plan, codes, partial(packed_constant, graph, plan), identity)
