"""Small graphs over the IR, and their layouts and plans."""

from __future__ import annotations

import numpy as np

from saccade import layout
from saccade import plan as planner
from saccade.backends.cpu.backend import CpuBackend
from saccade.ir import DType, Graph, Node, Value
from saccade.ir.expr import apply, arg
from saccade.opdefs import Concat, Conv2d, Pointwise
from saccade.options import Options
from saccade.processes import Processes

RELU = Pointwise(apply("relu", arg(0)), DType.F32)
ADD = Pointwise(apply("add", arg(0), arg(1)), DType.F32)
SUB = Pointwise(apply("sub", arg(0), arg(1)), DType.F32)


class Builder:
    """Builds a graph of static shapes node by node."""

    def __init__(self, *shapes):
        self.inputs = tuple(
            Value(f"x{i}", DType.F32, tuple(shape)) for i, shape in enumerate(shapes)
        )
        self.nodes = []
        self.constants = {}

    def add(self, op, *operands):
        types = op.infer([v.type for v in operands])
        outputs = tuple(
            Value(f"v{len(self.nodes)}_{i}", t.dtype, t.shape) for i, t in enumerate(types)
        )
        self.nodes.append(Node(op, operands, outputs, f"n{len(self.nodes)}"))
        return outputs[0]

    def constant(self, shape):
        value = Value(f"c{len(self.constants)}", DType.F32, tuple(shape))
        rng = np.random.default_rng(len(self.constants))
        self.constants[value] = rng.standard_normal(shape).astype(np.float32)
        return value

    def conv(self, x, channels, taps=3, **attributes):
        weights = self.constant((channels, x.shape[1], taps, taps))
        side = taps // 2
        return self.add(Conv2d(padding=(side,) * 4, **attributes), x, weights)

    def concat(self, *operands, axis=1):
        return self.add(Concat(axis), *operands)

    def graph(self, *outputs):
        names = tuple(f"y{i}" for i in range(len(outputs)))
        return Graph(self.inputs, outputs, tuple(self.nodes), self.constants, names)


def backend(threads=1, machine="zen4"):
    """Plans for a described machine; None: for this one, to run."""
    options = Options.make(threads=threads, machine=machine)
    return CpuBackend(options, Processes())


def laid_out(graph, threads=1, machine="zen4"):
    return layout.assign(graph, {}, backend(threads, machine), threads=threads)


def plan_of(graph, threads=1, machine="zen4"):
    laid, isa = laid_out(graph, threads, machine), backend(threads, machine).target.isa
    return planner.make(graph, laid, {}, threads, isa)
