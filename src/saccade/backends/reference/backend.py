"""The same plans, step by step with NumPy references: for tests, `compare` and debugging."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from saccade.backends.host import run_host_step
from saccade.backends.lengths import cut_outputs
from saccade.errors import OptionError, OutOfMemoryError
from saccade.held import holding
from saccade.ir import Array, DType, Graph
from saccade.kernels.machine import Machine
from saccade.kernels.size_constant import size_constant
from saccade.plan import Constant, Needs, Plan, Step

if TYPE_CHECKING:
    from saccade.backend import Backend
    from saccade.kernels.base import Key
    from saccade.layout import GraphLayout
    from saccade.profile.types import Facts, Reading
    from saccade.program import DeviceBuffer, Program
    from saccade.tuning import Outcome, TuneRequest

__all__ = ["ReferenceBackend", "ReferenceProgram"]

_POISON = 0xFF  # of each byte: NaN in every float type


class ReferenceProgram:
    """A plan played on its own arena, layouts and offsets, with NumPy doing the arithmetic."""

    def __init__(self, plan: Plan, constants: Sequence[Array]) -> None:
        self.plan = plan
        self._constants = tuple(constants)

    def run(self, inputs: Sequence[DeviceBuffer]) -> tuple[Array, ...]:
        """Results for contiguous inputs that fit the plan; the arena starts poisoned.

        Raises:
            OutOfMemoryError: If the system does not give what it needs.
        """
        try:
            return self._run(cast("Sequence[Array]", inputs))  # by `Program`
        except MemoryError as error:
            raise OutOfMemoryError.of(self.plan.arena_bytes, self.plan.output_bytes) from error

    def _run(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        arena = np.full(self.plan.arena_bytes, _POISON, np.uint8)
        outputs = tuple(np.empty(port.shape, DType(port.dtype).numpy) for port in self.plan.outputs)
        memory = (arena, *inputs, *outputs, *self._constants)
        with holding():
            for step in self.plan.steps:
                run_host_step(step, memory)
        cuts = [(cut.output, cut.axis, cut.count, cut.factor) for cut in self.plan.cuts]
        return cut_outputs(outputs, self.plan.counts, cuts)

    def asked_again(self) -> None:
        """There is nothing to keep."""

    def profile(self, inputs: Sequence[DeviceBuffer], repeat: int) -> list[Reading]:
        """Nothing to say: the reference's time means nothing."""
        del inputs, repeat
        return []

    def speeds(self) -> Machine:
        """Those that the plan was made for."""
        return self.plan.speeds

    def facts(self) -> tuple[Facts, ...]:
        """There is no code."""
        return ()


class ReferenceBackend:
    """Plans exactly as another backend does; only the programs differ.

    Args:
        planner: Whose plans it plays.
    """

    def __init__(self, planner: Backend) -> None:
        self.device = planner.device
        self.target = planner.target
        self.speeds = planner.speeds
        self.candidates = planner.candidates
        self.fusions = planner.fusions
        self.preferred = planner.preferred
        self.nominal_threads = planner.nominal_threads
        self.alignment = planner.alignment
        self.side_by_side = planner.side_by_side
        self.dense_bodies = planner.dense_bodies
        self.reuse_slowdown = planner.reuse_slowdown
        self.least_flops = planner.least_flops
        self.identity = planner.identity
        self.idle = True  # and stays so: no code makes one size's plan unlike another's

    def available(self, kernel: str, config: Hashable) -> bool:
        """No code is needed."""
        del kernel, config
        return True

    def generic_configs(self, laid: GraphLayout) -> tuple[Key, ...]:
        """No code is needed."""
        del laid
        return ()

    def adopt(self, plan: Plan) -> None:
        """No code is needed."""

    def build(
        self,
        plan: Plan,
        graph: Graph,
        identity: str,
        ahead: Callable[[], Sequence[Key]] | None = None,
    ) -> ReferenceProgram:
        """A program over the plan's unpacked constants."""
        del identity, ahead
        return ReferenceProgram(plan, _constants(plan, graph))

    def expect(
        self,
        needs: Callable[[], Iterable[Needs]],
        graph: Graph,
        identity: str,
        after: Program,
    ) -> None:
        """Nothing has to be ready."""

    def assembly(self, steps: Sequence[Step]) -> list[tuple[str, ...]]:
        """There is none."""
        del steps
        raise OptionError("the reference has no machine code: it computes in NumPy")

    def bundle(
        self, plans: Sequence[Plan], graph: Graph, identity: str
    ) -> tuple[Mapping[str, str], Mapping[str, bytes]]:
        """There are none."""
        del plans, graph, identity
        raise OptionError("the reference has no bundles")

    def timings(self) -> None:
        """Nothing: its times mean nothing."""

    def tune(self, request: TuneRequest) -> Outcome:
        """Refused: its times mean nothing.

        Raises:
            OptionError: Always.
        """
        del request
        raise OptionError("device reference cannot be tuned: its times mean nothing")


def _constants(plan: Plan, graph: Graph) -> list[Array]:
    """Those of the model and of the plan's sizes; the packed ones, which no step reads, empty."""
    by_name = {value.name: array for value, array in graph.constants.items()}

    def array(one: Constant) -> Array:
        sources = [by_name[name] for name in one.sources]
        if one.packing is None:
            return np.ascontiguousarray(sources[0])
        return (
            size_constant(*sources, *one.packing.parameters)
            if one.of_sizes
            else np.empty(0, np.uint8)
        )

    return [array(one) for one in plan.constants]
