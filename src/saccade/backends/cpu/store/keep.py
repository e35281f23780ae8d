"""A program that was built is left on disk for later starts, as far as its model has space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from saccade.backends.cpu.runtime.linker import image_of
from saccade.backends.cpu.store.constants import keep_constants, used_constants
from saccade.backends.cpu.store.keeping import KeptConstants, choose_kept
from saccade.backends.cpu.store.saved import save_program

if TYPE_CHECKING:
    from saccade.backends.cpu.runtime.program import CpuProgram
    from saccade.backends.cpu.store.bundle import Bundles
    from saccade.backends.cpu.store.packers import Packers
    from saccade.ir import Graph
    from saccade.plan import Constant, Plan
    from saccade.processes import Processes

__all__ = ["keep_program", "share_of"]


def share_of(bundles: Bundles, graph: Graph, plan: Plan) -> KeptConstants | None:
    """What becomes on disk of a plan's constants that are not there; None if they have no space."""
    used: dict[str, Constant] = {}
    for part in plan.whole():
        used |= used_constants(part.constants, part.constants_read)
    held = bundles.held()
    return choose_kept(bundles, graph, {n: one for n, one in used.items() if n not in held})


def keep_program(
    bundles: Bundles,
    graph: Graph,
    objects: Sequence[bytes],
    packers: Packers,
    processes: Processes,
    program: CpuProgram,
) -> None:
    """Keep a program and its constants, or neither.

    Args:
        bundles: Of the model.
        graph: Holds the sources of the constants.
        objects: The program's code, and the driver's.
        packers: Packers of the backend; those that starts will need are compiled if need be.
        processes: The backend's.
        program: What to keep.
    """
    share = share_of(bundles, graph, program.plan)
    if share is None:
        return
    files = packers.files(share.configs, processes)
    image = image_of([*objects, *(file.code for file in files.values())])
    arrays = dict(zip(program.tables.all_constants, program.all_constants, strict=True))
    if image is not None and keep_constants(bundles, share, arrays):
        symbols = {config: file.symbol for config, file in files.items()}
        save_program(bundles, program, image, share.derived, symbols)
