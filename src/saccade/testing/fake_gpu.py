"""Whole plans for GPUs without one: through the runtime, with kernels in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from saccade.backends.cuda.batches import whole_keys
from saccade.backends.cuda.beside import bodies_of
from saccade.backends.cuda.runtime.context import DeviceContext
from saccade.backends.cuda.runtime.program import CudaProgram
from saccade.kernels.cuda import kernel_named
from saccade.testing.fake_driver import FakeDriver

if TYPE_CHECKING:
    from saccade.ir import Array
    from saccade.plan import Plan

__all__ = ["fake_gpu", "fake_program"]


def fake_gpu(memory: int = 1 << 28) -> tuple[FakeDriver, DeviceContext]:
    """A GPU of so many bytes, whose memory is the host's as far as other libraries know."""
    driver = FakeDriver(memory)
    return driver, DeviceContext(driver)


def fake_program(
    plan: Plan, constant: Callable[[int], Array], gpu: tuple[FakeDriver, DeviceContext]
) -> CudaProgram:
    """The program of a plan that `CudaBackend` made, played phase by phase.

    Args:
        plan: The plan.
        constant: Its constants, packed.
        gpu: What `fake_gpu` gave; for plans of one model.
    """
    driver, device = gpu
    keys = whole_keys(plan)
    codes = {
        key: driver.code(kernel_named(key.kernel).entry(key.config), rows=key.rows)
        for key in set(keys)
    }
    return CudaProgram(device, plan, [codes[key] for key in keys], constant, "model", bodies_of)
