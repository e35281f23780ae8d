"""What the memory of a plan tells: who made what is read, and how long it lies in the arena."""

from itertools import combinations

import pytest
from layout_graphs import ADD, RELU, Builder, plan_of

from saccade.ir import DType
from saccade.kernels.base import View
from saccade.layout.views import channels_last, padded, part, row_major
from saccade.plan import Ref, Slot
from saccade.report.lifetimes import _bytes, lifetimes
from saccade.report.places import layout_of

F32 = DType.F32


def at_once(a, b):
    return a.first <= b.last and b.first <= a.last


def overlap(a, b):
    return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


def chain():
    b = Builder((1, 8, 16, 16))
    x = b.inputs[0]
    for _ in range(6):
        x = b.conv(x, 16)
    return b.graph(x)


def residual():
    b = Builder((1, 16, 14, 14))
    x = b.conv(b.inputs[0], 16)
    for _ in range(3):
        x = b.add(RELU, b.add(ADD, b.conv(b.conv(x, 16), 16), x))
    return b.graph(x)


def dense():
    b = Builder((1, 16, 14, 14))
    x = b.conv(b.inputs[0], 16)
    for _ in range(4):
        x = b.concat(x, b.conv(b.conv(x, 32, taps=1), 16))
    return b.graph(b.conv(x, 16, taps=1))


def joined():
    b = Builder((1, 16, 14, 14))
    x = b.conv(b.inputs[0], 16)
    parts = [b.conv(b.conv(x, 24, taps=1), 16) for _ in range(4)]
    return b.graph(b.conv(b.concat(*parts), 16, taps=1))


def branches():
    b = Builder((1, 8, 12, 12), (1, 8, 12, 12))
    left, right = b.conv(b.inputs[0], 24, taps=1), b.conv(b.inputs[1], 40, taps=1)
    return b.graph(b.conv(b.concat(left, right), 8), b.add(RELU, left))


GRAPHS = [chain(), residual(), dense(), joined(), branches()]


@pytest.mark.parametrize("graph", GRAPHS, ids=range(len(GRAPHS)))
@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_fill_what_the_planner_reserved(graph, threads):
    plan = plan_of(graph, threads)
    blocks = lifetimes(plan).blocks
    assert not [(a, b) for a, b in combinations(blocks, 2) if at_once(a, b) and overlap(a, b)]
    assert max((b.offset + b.nbytes for b in blocks), default=0) <= plan.arena_bytes
    live = [sum(b.nbytes for b in blocks if b.first <= i <= b.last) for i in range(len(plan.steps))]
    # The planner aligns each of them.
    assert (
        max(live)
        <= plan.live_bytes
        <= max(live) + 64 * max(sum(at_once(a, b) for b in blocks) for a in blocks)
    )


def test_steps_read_what_their_operands_were_made_by():
    plan = plan_of(residual())
    steps = enumerate(zip(plan.steps, lifetimes(plan).reads, strict=True))
    found = {step.name: (i, reads) for i, (step, reads) in steps if not step.is_reorder}
    first, reads = found["n0"]
    assert plan.steps[reads[0]].is_reorder and lifetimes(plan).reads[reads[0]] == (-1,)
    # The sum at the end of a block reads what its convolutions made, and what they began with.
    ends = [reads for _, reads in found.values() if len(reads) == 2]
    assert len(ends) >= 2 and first in ends[0]


def test_a_join_is_read_from_all_that_wrote_side_by_side():
    plan = plan_of(joined())
    found = lifetimes(plan)
    assert max(map(len, found.reads)) == 4
    (joint,) = [block for block in found.blocks if block.values > 1]
    assert joint.values == 4 and joint.label.endswith("and 3 more, side by side")


def test_inputs_are_told_apart():
    plan = plan_of(branches())
    read = {source for reads in lifetimes(plan).reads for source in reads}
    assert {-1, -2} <= read


def slot(view, offset=0):
    return Slot(Ref(0, offset, view.extent * view.dtype.itemsize), view)


def test_channels_beside_each_other_do_not_meet():
    whole = channels_last(F32, (1, 48, 4, 4))
    first, second = part(whole, 1, 0, (1, 16, 4, 4)), part(whole, 1, 16, (1, 32, 4, 4))
    a, b = _bytes(slot(first)), _bytes(slot(second, 16 * 4))
    assert a.overlaps(b) and not a.meets(b) and not b.meets(a)
    assert a.meets(_bytes(slot(whole))) and _bytes(slot(whole)).meets(b)
    assert a.meets(_bytes(slot(first, 8)))
    assert not a.meets(_bytes(slot(whole, 48 * 16 * 4)))


@pytest.mark.parametrize(
    ("view", "told"),
    [
        (row_major(F32, (2, 3)), "row-major"),
        (row_major(F32, ()), "row-major"),
        (row_major(F32, (1, 8, 4, 4)), "NCHW"),
        (channels_last(F32, (1, 8, 4, 4)), "NHWC"),
        (padded(DType.F16, (1, 60, 4, 4), zeros=True), "NHWC, pixels padded to 64"),
        (part(channels_last(F32, (1, 48, 4, 4)), 1, 16, (1, 16, 4, 4)), "NHWC, 16 of 48 channels"),
        (part(row_major(F32, (2, 48, 4, 4)), 1, 16, (2, 16, 4, 4)), "NCHW, in parts"),
        (View(F32, (1, 8, 4, 4), (0, 1, 0, 0)), "broadcast"),
        (View(F32, (3, 4), (1, 3)), "strided"),
    ],
    ids=str,
)
def test_storage_in_a_word(view, told):
    assert layout_of(view) == told
