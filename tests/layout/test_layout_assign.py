"""Where values live: concatenations made by their producers, views, the caller's memory."""

import pytest
from layout_graphs import RELU, Builder, backend, laid_out

from saccade.errors import PlanError
from saccade.ir import DType, Factor, Graph, IndexMap, Node, Value
from saccade.ir.dim import sub, symbol
from saccade.ir.expr import apply, arg
from saccade.layout import BufferKind, assign
from saccade.layout.formats import Preferred, formats
from saccade.layout.storage import place
from saccade.opdefs import Concat, Move, Pointwise, Recurrent, Resize, Softmax


def names(laid):
    return [step.op.family for step in laid.steps]


def kinds(laid):
    return [laid.buffers[step.outputs[0].buffer].kind for step in laid.steps]


def test_producers_write_side_by_side():
    b = Builder((1, 3, 8, 8))
    left, right = b.conv(b.inputs[0], 16), b.conv(b.inputs[0], 24)
    joined = b.concat(left, right)
    laid = laid_out(b.graph(b.conv(joined, 8)))
    assert names(laid) == ["Conv2d"] * 3
    first, second, reader = laid.steps
    assert first.outputs[0].buffer == second.outputs[0].buffer == reader.inputs[0].buffer
    assert (first.outputs[0].offset, second.outputs[0].offset) == (0, 16 * 4)
    assert (
        first.outputs[0].view.strides == second.outputs[0].view.strides == (8 * 8 * 40, 1, 320, 40)
    )


def test_a_value_stands_in_the_concat_that_parts_of_it_take_another_way_to():
    b = Builder((1, 3, 8, 8))
    whole = b.conv(b.inputs[0], 32)
    half = IndexMap(
        ((), (32,), (8,), (8,)), (Factor(16, 0, 16), Factor(8, 1), Factor(8, 2)), (0, 1, 1, 1)
    )
    branch = b.conv(b.add(Move(half), whole), 16)
    laid = laid_out(b.graph(b.conv(b.concat(whole, branch), 8)))
    assert names(laid) == ["Conv2d"] * 3
    first, second, *_ = laid.steps
    assert first.outputs[0].buffer == second.inputs[0].buffer == second.outputs[0].buffer
    assert (second.inputs[0].offset, second.outputs[0].offset) == (16 * 4, 32 * 4)


def test_a_concat_stands_in_its_part_of_another_one():
    b = Builder((2, 3, 4), (2, 5, 2))
    first, *halves = (b.add(RELU, b.inputs[i]) for i in (0, 1, 1))
    whole = b.concat(first, b.concat(*halves, axis=2), axis=1)
    laid = laid_out(b.graph(b.add(Softmax(1), whole)))
    assert names(laid) == [*["Pointwise"] * 3, "Softmax"]
    outputs = [step.outputs[0] for step in laid.steps[:3]]
    assert {one.buffer for one in outputs} == {laid.steps[-1].inputs[0].buffer}
    assert {one.offset for one in outputs} == {0, 3 * 4 * 4, (3 * 4 + 2) * 4}
    assert {one.view.strides for one in outputs} == {(32, 4, 1)}


def _stack(b):
    """What makes places of [N, Q]: each computed by itself, then put beside the others."""
    unit = Move(IndexMap(((2,), (5,)), (Factor(2, 0), Factor(5, 1)), (1, 1, 0)))
    return b.concat(*(b.add(unit, b.add(RELU, x)) for x in b.inputs), axis=2)


def test_what_is_stacked_is_written_in_place_where_the_device_likes_it():
    b = Builder((2, 5), (2, 5), (2, 5))
    graph = b.graph(b.add(RELU, _stack(b)))
    shapes = {value: value.shape for value in graph.values()}
    ops = {node: node.op for node in graph.nodes}
    preferred = Preferred(apart=(Pointwise,))
    places = place(graph, shapes, ops, frozenset(), preferred)
    makers = [node for node in graph.nodes if node.op is RELU][:3]
    stored = [places.stored[node.output] for node in makers]
    assert [s.offset for s in stored] == [0, 4, 8]
    assert {s.view.strides for s in stored} == {(15, 3)}
    joint = next(node for node in graph.nodes if isinstance(node.op, Concat))
    assert {s.buffer for s in stored} == {places.stored[joint.output].buffer}
    assert not places.notes


def test_other_devices_store_a_stack_operand_by_operand():
    b = Builder((2, 5), (2, 5), (2, 5))
    laid = laid_out(b.graph(b.add(RELU, b.add(RELU, _stack(b)))))
    assert names(laid) == ["Pointwise"] * 5  # each writes elements that lie side by side
    stored = [step.outputs[0] for step in laid.steps[:3]]
    assert len({one.buffer for one in stored}) == 1
    assert [one.offset for one in stored] == [0, 40, 80]
    assert {one.view.strides for one in stored} == {(5, 1)}
    assert laid.steps[3].inputs[0].view.strides == (5, 1, 10)


@pytest.mark.parametrize("case", ["read first", "merged", "twice"])
def test_other_stacks_are_copied(case):
    b = Builder((2, 5), (2, 5))
    joint = _stack(b)
    if case == "merged":  # no axis of one element, but another shape
        b = Builder((2, 6))
        x = b.add(RELU, b.inputs[0])
        apart = IndexMap(((2,), (2, 3)), (Factor(2, 0), Factor(2, 1), Factor(3, 2)), (1, 1, 1))
        joint = b.concat(b.add(Move(apart), x), b.add(Move(apart), b.add(RELU, x)), axis=2)
    if case == "twice":
        b = Builder((2, 5))
        unit = Move(IndexMap(((2,), (5,)), (Factor(2, 0), Factor(5, 1)), (1, 1, 0)))
        one = b.add(unit, b.add(RELU, b.inputs[0]))
        joint = b.concat(one, one, axis=2)
    outputs = (b.nodes[0].output,) if case == "read first" else ()
    graph = b.graph(b.add(RELU, joint), *outputs)
    shapes = {value: value.shape for value in graph.values()}
    ops = {node: node.op for node in graph.nodes}
    for apart in ((), (Pointwise,)):
        places = place(graph, shapes, ops, frozenset(), Preferred(apart=apart))
        copied = {"read first": 1 if apart else 2, "merged": 2, "twice": 1 if apart else 2}
        assert len(places.notes) == copied[case]


@pytest.mark.parametrize("images", [1, 2])
def test_heads_of_several_levels_stand_one_behind_the_other(images):
    """What detectors do: pixels of each level as rows, those of all levels in one list."""
    b = Builder((images, 8, 6, 4), (images, 8, 3, 2))
    rows = []
    for x, size in zip(b.inputs, ((6, 4), (3, 2)), strict=True):
        head = b.conv(x, 10)
        sizes = ((images,), (2, 5), (size[0],), (size[1],))
        pixels = (Factor(images, 0), *(Factor(n, 3 + i) for i, n in enumerate(size)))
        rows.append(
            b.add(Move(IndexMap(sizes, (*pixels, Factor(2, 1), Factor(5, 2)), (1, 3, 1))), head)
        )
    laid = laid_out(b.graph(b.add(RELU, b.add(Softmax(2), b.concat(*rows, axis=1)))))
    assert names(laid) == ["Conv2d", "Conv2d", "Softmax", "Pointwise"]
    first, second = (step.outputs[0] for step in laid.steps[:2])
    assert first.buffer == second.buffer == laid.steps[2].inputs[0].buffer
    assert (first.offset, second.offset) == (0, 4 * 24 * 10)
    assert [one.view.strides[1:] for one in (first, second)] == [(1, 40, 10), (1, 20, 10)]
    assert images == 1 or first.view.strides[0] == second.view.strides[0] == 300


def test_what_has_to_be_moved_is_moved_to_its_place():
    """Columns of a grid: one number for each row of it, and for each column."""
    b = Builder((1, 6), (1, 4))
    rows, columns = (b.add(RELU, x) for x in b.inputs)
    across = IndexMap(((), (6,)), (Factor(6, 1 - 1), Factor(4, None)), (2, 0))
    down = IndexMap(((), (4,)), (Factor(6, None), Factor(4, 0)), (2, 0))
    joint = b.concat(b.add(Move(across), rows), b.add(Move(down), columns), axis=1)
    laid = laid_out(b.graph(b.add(RELU, b.add(Softmax(0), joint))))
    moves = [step for step in laid.steps if step.op.family == "Move"]
    assert len(moves) == 2
    assert len({step.outputs[0].buffer for step in moves}) == 1


def test_nested_prefixes_are_views_of_one_buffer():
    """DenseNet: Concat(a), Concat(a, b), Concat(a, b, c)."""
    b = Builder((1, 3, 8, 8))
    parts = [b.conv(b.inputs[0], 16)]
    for _ in range(3):
        whole = b.concat(*parts) if len(parts) > 1 else parts[0]
        parts.append(b.conv(whole, 8))
    laid = laid_out(b.graph(b.conv(b.concat(*parts), 4)))
    assert names(laid) == ["Conv2d"] * 5
    buffers = {step.outputs[0].buffer for step in laid.steps[:4]}
    assert len(buffers) == 1
    assert [s.outputs[0].offset for s in laid.steps[:4]] == [0, 64, 96, 128]
    assert [s.inputs[0].view.shape[1] for s in laid.steps[1:]] == [16, 24, 32, 40]
    assert {s.inputs[0].view.strides[3] for s in laid.steps[1:]} == {40}


@pytest.mark.parametrize(
    ("case", "reasons"),
    [
        ("twice", ["n1: %v0_0 is copied: it already lives elsewhere"]),
        ("input", ["n1: %x0 is copied: it is an input or a constant"]),
        ("constant", ["n1: %c1 is copied: it is an input or a constant"]),
        (
            "two results",
            [f"n2: %{name} is copied: it already lives elsewhere" for name in ("v1_0", "v0_0")],
        ),
    ],
)
def test_what_cannot_be_written_in_place_is_copied_with_a_reason(case, reasons):
    b = Builder((1, 8, 4, 4))
    a = b.conv(b.inputs[0], 8)
    other = {"twice": a, "input": b.inputs[0], "constant": b.constant((1, 8, 4, 4))}.get(case)
    if other is None:
        other = b.conv(b.inputs[0], 8)
        second = b.concat(other, a)
        graph = b.graph(b.conv(b.concat(a, other), 4), b.conv(second, 4))
    else:
        graph = b.graph(b.conv(b.concat(a, other), 4))
    laid = laid_out(graph)
    moves = [s for s in laid.steps if isinstance(s.op, Move)]
    assert [s.note for s in moves] == ["copy: its operand lives elsewhere"] * len(reasons)
    assert [note for note in laid.notes if "is copied" in note] == reasons


def test_a_movement_that_is_a_view_is_no_step():
    b = Builder((2, 12))
    shifted = b.add(RELU, b.inputs[0])
    cut = b.add(Move(IndexMap(((2,), (12,)), (Factor(2, 0), Factor(4, 1, 3)), (1, 1))), shifted)
    laid = laid_out(b.graph(b.add(RELU, cut)))
    assert names(laid) == ["Pointwise", "Pointwise"]
    stored = laid.steps[1].inputs[0]
    assert stored.buffer == laid.steps[0].outputs[0].buffer
    assert stored.offset == 12 and stored.view.strides == (12, 1)


def test_results_live_in_the_caller_s_memory():
    b = Builder((1, 3, 8, 8))
    laid = laid_out(b.graph(b.conv(b.inputs[0], 4)))
    assert kinds(laid) == [BufferKind.OUTPUT]
    assert laid.steps[0].outputs[0].view.strides == (256, 64, 8, 1)


def transposed(b, value, order):
    groups = tuple((n,) for n in value.shape)
    factors = tuple(Factor(value.shape[p], p) for p in order)
    return b.add(Move(IndexMap(groups, factors, (1,) * len(order))), value)


def test_what_a_result_is_a_view_of_lives_in_the_caller_s_memory():
    """Channels-last to the caller and a reshape; with another reader as well."""
    b = Builder((1, 3, 8, 8))
    image = b.conv(b.inputs[0], 4)
    last = transposed(b, image, (0, 2, 3, 1))
    laid = laid_out(b.graph(last, b.conv(image, 4)))
    assert names(laid) == ["Conv2d", "Conv2d"]
    assert laid.steps[0].outputs[0].view.strides == (256, 1, 32, 4)
    assert laid.steps[0].outputs[0] == laid.steps[1].inputs[0]
    assert kinds(laid) == [BufferKind.OUTPUT] * 2
    b = Builder((2, 12))
    flat = IndexMap(((2,), (12,)), (Factor(2, 0), Factor(12, 1)), (2,))
    laid = laid_out(b.graph(b.add(Move(flat), b.add(RELU, b.inputs[0]))))
    assert kinds(laid) == [BufferKind.OUTPUT]


def test_views_that_are_no_whole_result_are_copied_out():
    """A part of a value, one that two results view, an input, a value in another order."""
    b = Builder((2, 12), (1, 3, 8, 8))
    part = Move(IndexMap(((2,), (12,)), (Factor(2, 0), Factor(4, 1, 3)), (1, 1)))
    swapped = Move(IndexMap(((2,), (12,)), (Factor(12, 1), Factor(2, 0)), (1, 1)))
    flat = Move(IndexMap(((2,), (12,)), (Factor(2, 0), Factor(12, 1)), (2,)))
    value = b.add(RELU, b.inputs[0])
    for op in (part, swapped):
        laid = laid_out(b.graph(b.add(op, value)))
        assert kinds(laid) == [BufferKind.ARENA, BufferKind.OUTPUT]
    whole = b.add(flat, value)
    laid = laid_out(b.graph(whole, b.add(flat, value), b.add(flat, b.inputs[0])))
    assert names(laid) == ["Pointwise", "Move", "Move"]
    assert kinds(laid) == [BufferKind.OUTPUT] * 3
    image = b.conv(b.inputs[1], 4)
    laid = laid_out(b.graph(transposed(b, image, (0, 1, 3, 2))))
    assert kinds(laid)[-2:] == [BufferKind.ARENA, BufferKind.OUTPUT]


def test_repeated_results_and_inputs_are_copied_out():
    b = Builder((1, 3, 8, 8))
    middle = b.conv(b.inputs[0], 4)
    last = b.conv(middle, 4)
    laid = laid_out(b.graph(middle, last, last, b.inputs[0]))
    outputs = [laid.buffers[s.outputs[0].buffer] for s in laid.steps]
    assert sorted(o.index for o in outputs if o.kind is BufferKind.OUTPUT) == [0, 1, 2, 3]
    copies = [s for s in laid.steps if s.note.startswith("copy")]
    assert {laid.buffers[s.outputs[0].buffer].index for s in copies} >= {2, 3}


def test_images_are_channels_last_and_attention_is_not():
    b = Builder((1, 3, 8, 8), (1, 2, 4, 4))
    image = b.conv(b.inputs[0], 4)
    heads = b.add(Softmax(3), b.inputs[1])
    graph = b.graph(b.add(RELU, image), heads)
    chosen = formats(graph, Preferred()).nhwc
    assert image in chosen and heads not in chosen
    assert not chosen & set(graph.outputs), "these are written to the caller's memory"
    assert not chosen & set(graph.constants)


def test_a_constant_is_reordered_where_no_kernel_takes_it_as_it_is():
    """Embeddings of positions, resampled for the size of an image."""
    b = Builder()
    resized = b.add(Resize(sizes=(1, 8, 9, 7), mode="cubic"), b.constant((1, 8, 5, 6)))
    laid = laid_out(b.graph(resized))
    assert all(step.choice.kernel is not None for step in laid.steps)
    (step,) = (step for step in laid.steps if isinstance(step.op, Resize))
    assert step.inputs[0].view.channels_last and step.call.constant == (False,)


def test_a_spread_operand_is_copied_where_a_kernel_takes_no_gaps():
    """First states that an exporter expands to the batch: rank 4 beside them stays as it is."""
    b = Builder((9, 5, 1, 8), (1, 8))
    spread = IndexMap(((), (8,)), (Factor(5, None), Factor(8, 0)), (0, 1, 1))
    state = b.add(Move(spread), b.inputs[1])
    tanh = apply("tanh", arg(0))
    op = Recurrent("rnn", (arg(0), tanh, tanh), started=True)
    laid = laid_out(b.graph(b.add(op, b.inputs[0], b.constant((1, 8, 8)), state)))
    (step,) = (step for step in laid.steps if isinstance(step.op, Recurrent))
    assert step.choice.kernel.name == "recurrent.walk"
    assert step.inputs[2].view.strides == (40, 8, 1)
    assert not step.inputs[0].view.channels_last


def test_sizes_that_leave_nothing_are_refused():
    n = symbol("N")
    x = Value("x", DType.F32, (n,))
    cut = Move(IndexMap(((n,),), (Factor(sub(n, 5), 0, 5),), (1,)))
    y = Value("y", DType.F32, (sub(n, 5),))
    graph = Graph((x,), (y,), (Node(cut, (x,), (y,)),))
    with pytest.raises(PlanError, match="too small"):
        assign(graph, {"N": 3}, backend(), threads=1)
    assert assign(graph, {"N": 7}, backend(), threads=1).outputs[0].shape == (2,)
