"""The same plans, step by step with NumPy references: for tests, `compare` and debugging."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.backends.cpu.backend import CpuBackend
from saccade.backends.cpu.store.constants import constants_of
from saccade.backends.host import run_host_step
from saccade.backends.lengths import cut_outputs
from saccade.errors import OutOfMemoryError
from saccade.ir import Array, Graph
from saccade.kernels.machine import Machine
from saccade.plan import Plan, Step

__all__ = ["ReferenceBackend", "ReferenceProgram"]

_POISON = 0xFF  # of each byte: NaN in every float type


class ReferenceProgram:
    """A plan played on its own arena, layouts and offsets, with NumPy doing the arithmetic."""

    def __init__(self, plan: Plan, constants: Sequence[Array]) -> None:
        self.plan = plan
        self._constants = tuple(constants)

    def run(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Results for contiguous inputs that fit the plan; the arena starts poisoned.

        Raises:
            OutOfMemoryError: If the system does not give what it needs.
        """
        try:
            return self._run(inputs)
        except MemoryError as error:
            raise OutOfMemoryError.of(self.plan.arena_bytes, self.plan.output_bytes) from error

    def _run(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        arena = np.full(self.plan.arena_bytes, _POISON, np.uint8)
        outputs = tuple(np.empty(port.shape, port.dtype) for port in self.plan.outputs)
        memory = (arena, *inputs, *outputs, *self._constants)
        for step in self.plan.steps:
            run_host_step(step, memory)
        cuts = [(cut.output, cut.axis, cut.count, cut.factor) for cut in self.plan.cuts]
        return cut_outputs(outputs, self.plan.counts, cuts)

    def asked_again(self) -> None:
        """There is nothing to keep."""

    def profile(self, inputs: Sequence[Array], repeat: int) -> list[tuple[Step, Array]]:
        """Nothing to say: the reference's time means nothing."""
        del inputs, repeat
        return []

    def speeds(self) -> Machine:
        """Those that the plan was made for."""
        return self.plan.speeds


class ReferenceBackend(CpuBackend):
    """Plans exactly as the CPU does; only the program differs."""

    def build(  # type: ignore[override]
        self,
        plan: Plan,
        graph: Graph,
        identity: str,
        bundles: None = None,
        ahead: Sequence[object] = (),
    ) -> ReferenceProgram:
        """A program over the plan's unpacked constants."""
        del bundles, ahead
        used = [constant.packing is None for constant in plan.constants]
        return ReferenceProgram(plan, constants_of(graph, identity, plan.constants, used))
