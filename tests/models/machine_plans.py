"""Layouts and plans of real models as described machines would make them."""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache

import saccade
from saccade import layout
from saccade import plan as planner
from saccade.backends.cpu.backend import CpuBackend
from saccade.backends.cpu.machines import MACHINES
from saccade.engine import sizes_of
from saccade.options import Options
from saccade.processes import Processes


@lru_cache(maxsize=2)
def graph_of(path, precision="fp32"):
    """The graph after every pass; it is the same for all machines."""
    return saccade.compile(path, precision=precision, threads=1)._started().graph


def laid_out(graph, shape, machine, threads=None):
    """The layout on as many threads as the machine has cores, or on so many, and the sizes."""
    options = Options.make(machine=machine, threads=threads)
    backend, sizes = CpuBackend(options, Processes()), sizes_of(graph, [shape])
    laid = layout.assign(
        graph, sizes, backend, threads=options.resolved_threads, available=backend.available
    )
    assert backend.objects.compiled == 0
    return laid, sizes


def plan_of(graph, shape, machine, threads=None):
    options = Options.make(machine=machine, threads=threads)
    laid, sizes = laid_out(graph, shape, machine, threads)
    isa = MACHINES[machine].isa
    return planner.make(graph, laid, sizes, options.resolved_threads, isa)


def compiled_by_size(path, shapes, machine, threads=None):
    """How many kernels each size would compile, one after the other, where no cache helps."""
    options = {"machine": machine, "threads": threads, "cache": False}
    engine = saccade.compile(path, **options)._started()
    known, counts = engine.backend.objects._known, []

    def build(plan, _graph, _identity, ahead):
        taken = {(step.kernel, one.config) for step in plan.steps for one in step.phases}
        missing = (taken | set(ahead() if ahead else ())) - set(known)
        counts.append(len(missing))
        known.update(dict.fromkeys(missing))

    engine.backend.build = build
    for shape in shapes:
        engine.program((shape,), ())
    assert engine.backend.objects.compiled == 0
    return counts


def digests(path, shape):
    """Of each machine's plan."""
    graph = graph_of(path)
    plans = [plan_of(graph, shape, machine).to_json() for machine in MACHINES]
    return [hashlib.sha256(text.encode()).hexdigest() for text in plans]


if __name__ == "__main__":
    print(*digests(sys.argv[1], tuple(map(int, sys.argv[2:]))), sep="\n")
