"""Squeeze-and-excite blocks: the gates in one step, from sums that the convolution before took.

    y = conv(x)                  y, s = RowSums(conv)(x)
    m = mean(y)             ->   g = Excite(s)
    g = Conv2d(Conv2d(m))

Left alone: means over other axes, or that anyone else reads; convolutions with more than one tap;
batches whose images had better share one reading of the weights. Where y is not made by a depthwise
convolution or one of narrow groups, or the caller gets it, the mean stays a step of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from saccade.backends.cpu.fusions.excite import Excite, RowSums
from saccade.backends.cpu.fusions.expand import ExpandDepthwise
from saccade.backends.cpu.fusions.match import is_plain_pointwise
from saccade.ir import Dim, DType, Graph, Node, Value
from saccade.ir.derived import derived
from saccade.ir.dim import mul
from saccade.ir.expr import IDENTITY
from saccade.layout import Shapes, Taken
from saccade.opdefs import Conv2d, Reduce

__all__ = ["fuse_excite"]


@dataclass(frozen=True, slots=True)
class _Block:
    """The steps of a block, and what may take their place.

    Attributes:
        mean: The global mean.
        squeeze, excite: The convolutions of one pixel.
        gates: In place of these two.
        maker: The convolution that makes y; None where it gives no sums.
        summed: In place of it.
        gates_of_sums: With it, in place of the mean too.
    """

    mean: Node
    squeeze: Node
    excite: Node
    gates: Node
    maker: Node | None = None
    summed: Node | None = None
    gates_of_sums: Node | None = None


def fuse_excite(graph: Graph, shapes: Shapes, taken: Taken, most_images: int) -> Graph:
    """The graph with every block that a kernel takes in one step.

    Args:
        graph: The model.
        shapes: Of every value.
        taken: Whether a kernel takes a node.
        most_images: In a batch; the blocks of larger ones are left alone.
    """
    chosen = []
    for block in _blocks(graph):
        images, _, rows, columns = shapes[block.mean.inputs[0]]
        if not 1 <= images <= most_images or rows * columns == 0:
            continue
        from_sums = _gives_sums(block, shapes, taken)
        if from_sums or taken(block.gates, shapes):
            chosen.append((block, from_sums))
    return _rewritten(graph, tuple(chosen)) if chosen else graph


def _gives_sums(block: _Block, shapes: Shapes, taken: Taken) -> bool:
    if block.summed is None or block.gates_of_sums is None:
        return False
    y, sums = block.summed.outputs
    known = {**shapes, sums: (*shapes[y][:3], 1)}
    return all(taken(node, known) for node in (block.summed, block.gates_of_sums))


@derived
def _rewritten(graph: Graph, chosen: tuple[tuple[_Block, bool], ...]) -> Graph:
    """The graph with gates in place of the blocks, from sums where there are some."""
    gone: set[Node] = set()
    instead: dict[Value, Node] = {}
    for block, from_sums in chosen:
        gone.add(block.squeeze)
        instead[block.excite.output] = block.gates
        if from_sums:
            assert block.summed is not None and block.gates_of_sums is not None
            gone.add(block.mean)
            instead[block.summed.outputs[0]] = block.summed
            instead[block.excite.output] = block.gates_of_sums
    nodes = (node for node in graph.nodes if node not in gone)
    return replace(graph, nodes=tuple(instead.get(node.outputs[0], node) for node in nodes))


@derived
def _blocks(graph: Graph) -> tuple[_Block, ...]:
    """Blocks whatever their sizes."""
    producers, uses = graph.producers(), graph.uses()

    def pointwise_of(value: Value) -> Node | None:
        """The convolution of one tap that is the only one to read a value."""
        readers = uses[value]
        if len(readers) != 1 or value in graph.outputs or readers[0].inputs[0] is not value:
            return None
        return readers[0] if is_plain_pointwise(readers[0], graph) else None

    found = []
    for mean in filter(_is_mean, graph.nodes):
        squeeze = pointwise_of(mean.output)
        excite = squeeze and pointwise_of(squeeze.output)
        if squeeze and excite:
            maker = producers.get(mean.inputs[0])
            able = maker is not None and _is_grouped(maker, graph)
            found.append(_block(mean, squeeze, excite, maker if able else None))
    return tuple(found)


def _block(mean: Node, squeeze: Node, excite: Node, maker: Node | None) -> _Block:
    """With the nodes that may take the place of others."""
    alone = _gates(squeeze, excite, mean.output, 1)
    if maker is None:
        return _Block(mean, squeeze, excite, alone)
    summed, pixels = _summed(maker), mul(*mean.inputs[0].shape[2:])
    joint = _gates(squeeze, excite, summed.outputs[1], pixels)
    return _Block(mean, squeeze, excite, alone, maker, summed, joint)


def _gates(squeeze: Node, excite: Node, x: Value, count: Dim) -> Node:
    """The gates, from what divided by `count` is the mean."""
    assert isinstance(squeeze.op, Conv2d) and isinstance(excite.op, Conv2d)
    own, others = squeeze.inputs[2:], excite.inputs[2:]
    op = Excite(count, squeeze.op, excite.op, len(own))
    inputs = (x, squeeze.inputs[1], excite.inputs[1], *own, *others)
    return Node(op, inputs, excite.outputs, excite.name)


def _is_mean(node: Node) -> bool:
    op = node.op
    if not isinstance(op, Reduce) or node.inputs[0].rank != 4:
        return False
    return (op.kind, op.axes, op.keepdims, op.epilogue) == ("mean", (2, 3), True, IDENTITY)


def _is_grouped(node: Node, graph: Graph) -> bool:
    """Whether it is a convolution of several groups whose result stays inside the program.

    Which of them have kernels that sum rows, these say.
    """
    op = node.op.depthwise if isinstance(node.op, ExpandDepthwise) else node.op
    if not isinstance(op, Conv2d) or op.store is not None or node.output in graph.outputs:
        return False
    return op.groups > 1


def _summed(maker: Node) -> Node:
    assert isinstance(maker.op, (Conv2d, ExpandDepthwise))
    y = maker.output
    sums = Value(f"{y.name}/sums", DType.F32, (*y.shape[:3], 1))
    return Node(RowSums(maker.op), maker.inputs, (y, sums), maker.name)
