"""Plans of small graphs: memory that is shared only where nobody reads it any more."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from layout_graphs import ADD, RELU, SUB, Builder, laid_out, plan_of

from saccade.errors import PlanError
from saccade.ir import DType, Factor, IndexMap
from saccade.ir.expr import apply, arg
from saccade.kernels.base import Scratch
from saccade.layout import BufferKind
from saccade.limits import Limits
from saccade.opdefs import Conv2d, Move, Pointwise
from saccade.plan import Plan, Role, make
from saccade.plan.floor import floor
from saccade.testing.simulate import PlayError, live_masks


def slots(step):
    return [s.ref for s in step.inputs if s.ref.base == 0], [s.ref for s in step.outputs]


def overlap(a, b):
    return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


def chain(n):
    b = Builder((1, 8, 16, 16))
    x = b.conv(b.inputs[0], 8)
    for _ in range(n):
        x = b.conv(x, 8, taps=1)
    return b.graph(b.add(RELU, b.conv(x, 8)))


def test_a_chain_plays_ping_pong():
    short, long = plan_of(chain(2)), plan_of(chain(9))
    assert short.live_bytes == long.live_bytes == 2 * 8 * 16 * 16 * 4


def arena_results(plan):
    """Where the steps' results in the arena lie, by step."""
    return [slots(step)[1][0] for step in plan.steps if slots(step)[1][0].base == 0]


def branches(length, side=16):
    """Two chains of one value, one behind the other, and their sum."""
    b = Builder((1, 8, side, side))
    x = b.conv(b.inputs[0], 8)
    ends = []
    for _ in range(2):
        y = x
        for _ in range(length):
            y = b.conv(y, 8, taps=1)
        ends.append(y)
    return b.graph(b.add(RELU, b.conv(b.add(ADD, *ends), 8)))


def side_by_side(graph):
    """Its layout with the steps in the graph's order, where a device may run them at once."""
    before = [node.name for node in graph.nodes]
    laid = laid_out(graph, 3)
    steps = sorted(laid.steps, key=lambda step: before.index(step.name))
    return replace(
        laid, steps=tuple(steps), beside=tuple(range(len(steps))), side_by_side=True
    )  # fmt: skip


def waits_for(plan):
    """By name, the steps that each waits for."""
    names = [step.name for step in plan.steps for phase in step.phases if phase.chunks]
    return {
        name: {names[i] for i in earlier}
        for name, earlier in zip(names, plan.launch_waits, strict=True)
    }


def test_a_chain_plays_ping_pong_where_steps_run_side_by_side():
    graph = chain(9)
    plan = make(graph, side_by_side(graph), {}, 3, "avx512")
    assert plan.arena_bytes == plan_of(graph, 3).arena_bytes
    assert waits_for(plan) == waits_for(plan_of(graph, 3))


def test_branches_do_not_wait_for_each_other_s_memory():
    graph = branches(4)
    laid = side_by_side(graph)
    plan = make(graph, laid, {}, 3, "avx512")
    plain = make(graph, replace(laid, side_by_side=False), {}, 3, "avx512")
    first, second = ([node.name for node in graph.nodes][1 + 4 * i :][:4] for i in range(2))
    waits = waits_for(plan)
    # Each waits for the one before it alone: memory of the other branch is not taken.
    assert all(waits[name] == {before} for name, before in zip(second[1:], second, strict=False))
    assert any(waits_for(plain)[name] & set(first) for name in second)
    assert plain.arena_bytes < plan.arena_bytes and plan.live_bytes == plain.live_bytes
    live_masks(plan)


@pytest.mark.parametrize(("name", "value"), [("_MORE", 0), ("_LATER", 0), ("_UP_TO", (0,))])
def test_memory_is_not_spent_on_it_without_end(monkeypatch, name, value):
    graph = branches(4)
    laid = side_by_side(graph)
    monkeypatch.setattr(sys.modules["saccade.plan.make"], name, value)
    plain = make(graph, replace(laid, side_by_side=False), {}, 3, "avx512")
    assert make(graph, laid, {}, 3, "avx512").arena_bytes == plain.arena_bytes


def test_large_values_share_memory_where_there_is_no_room(monkeypatch):
    """Work memory and smaller ones do not."""
    module, graph = sys.modules["saccade.plan.make"], branches(4)
    laid = side_by_side(graph)
    asked = []
    placed = module.assign_offsets

    def counted(blocks, deadline, apart=()):
        asked.append(sum(map(int.bit_count, apart)))
        return placed(blocks, deadline, apart)

    monkeypatch.setattr(module, "assign_offsets", counted)
    monkeypatch.setattr(module, "_MORE", 0)
    monkeypatch.setattr(module, "_UP_TO", (1 << 62, 8 * 16 * 16 * 4, 8 * 16 * 16 * 4 - 1))
    make(graph, laid, {}, 3, "avx512")
    every, same, plain = asked
    assert every == same > plain == 0


def test_results_never_overlap_what_the_step_reads_unless_they_are_it():
    b = Builder((1, 8, 16, 16))
    x = b.conv(b.inputs[0], 8)
    y = b.add(RELU, x)
    plan = plan_of(b.graph(b.conv(y, 8)))
    for step in plan.steps:
        reads, writes = slots(step)
        for write in writes:
            if write.base == 0:
                assert all(r == write or not overlap(r, write) for r in reads)
    relu = next(s for s in plan.steps if s.op == RELU)
    assert relu.inputs[0].ref == relu.outputs[0].ref, "in place: nobody else reads the operand"


def test_an_operand_that_is_read_later_keeps_its_memory():
    b = Builder((1, 8, 16, 16))
    x = b.conv(b.inputs[0], 8)
    y = b.add(RELU, x)
    plan = plan_of(b.graph(b.add(ADD, b.conv(y, 8), x)))
    relu = next(s for s in plan.steps if s.op == RELU)
    assert not overlap(relu.inputs[0].ref, relu.outputs[0].ref)


def test_an_operand_that_is_read_twice_in_the_step_keeps_its_memory():
    """`x - x[:, :1]` in place would overwrite the slice before others have read it."""
    b = Builder((1, 8, 16, 16))
    x = b.conv(b.inputs[0], 8)
    factors = (Factor(1, 0), Factor(1, 1), Factor(16, 2), Factor(16, 3))
    first = b.add(Move(IndexMap(((1,), (8,), (16,), (16,)), factors, (1,) * 4)), x)
    plan = plan_of(b.graph(b.conv(b.add(SUB, x, first), 4)))
    sub = next(s for s in plan.steps if s.op == SUB)
    assert len({r.offset for r in slots(sub)[0]}) == 1, "both operands live in one buffer"
    assert not overlap(sub.inputs[0].ref, sub.outputs[0].ref)


def test_a_residual_that_is_also_convolved_keeps_its_memory():
    b = Builder((1, 16, 12, 12))
    x = b.conv(b.inputs[0], 16)
    weights = b.constant((16, 16, 3, 3))
    residual = Conv2d(padding=(1,) * 4, epilogue=apply("add", arg(0), arg(1)))
    plan = plan_of(b.graph(b.conv(b.add(residual, x, weights, x), 4)))
    step = next(s for s in plan.steps if s.op == residual)
    assert not overlap(step.inputs[0].ref, step.outputs[0].ref)


def test_everything_read_was_written():
    plan = plan_of(chain(4), threads=3)
    masks = live_masks(plan)
    assert not masks[0].any() and all(mask.any() for mask in masks[1:])
    first, second, *rest = plan.steps
    with pytest.raises(PlayError, match="never written"):
        live_masks(replace(plan, steps=(second, first, *rest)))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_refs_stay_inside_their_memory(threads):
    plan = plan_of(chain(3), threads)
    sizes = [plan.arena_bytes]
    for port in (*plan.inputs, *plan.outputs):
        nbytes = 4
        for n in port.shape:
            nbytes *= n
        sizes.append(nbytes)
    sizes += [c.nbytes for c in plan.constants]
    refs = [r for s in plan.steps for r in (*slots(s)[0], *slots(s)[1])]
    refs += [a.ref for s in plan.steps for p in s.phases for a in p.arguments]
    assert all(r.offset >= 0 and r.offset + r.nbytes <= sizes[r.base] for r in refs)
    assert all(r.offset % 64 == 0 for s in plan.steps for r in slots(s)[1])


def wanting_scratch(step, *sizes):
    """The step with more scratch in each of its phases."""
    extra = {f"extra_{i}": Scratch(nbytes) for i, nbytes in enumerate(sizes)}
    launches = [replace(one, operands={**one.operands, **extra}) for one in step.launches]
    return step._replace(launches=tuple(launches))


@pytest.mark.parametrize("alignment", [64, 256])
@pytest.mark.parametrize("threads", [1, 7])
def test_every_thread_has_scratch_of_its_own(threads, alignment):
    """As the device aligns it, inside the arena, apart from all that is in use meanwhile."""
    graph = chain(3)
    laid = laid_out(graph, threads)
    steps = tuple(wanting_scratch(step, 100, 3) for step in laid.steps)
    laid = replace(laid, steps=steps, alignment=alignment)
    plan = make(graph, laid, {}, threads, "avx512")
    needed_after = [*live_masks(plan)[1:], np.zeros(plan.arena_bytes, bool)]
    for wanted, step, needed in zip(steps, plan.steps, needed_after, strict=True):
        for launch, phase in zip(wanted.launches, step.phases, strict=True):
            taken = needed.copy()
            assert sum(isinstance(o, Scratch) for o in launch.operands.values()) >= 2
            places = [(a.role is Role.SCRATCH, a.ref) for a in phase.arguments]
            for own, ref in sorted(places, key=lambda pair: pair[0]):
                nbytes = ref.nbytes * threads if own else ref.nbytes
                place = slice(ref.offset, ref.offset + nbytes)
                if ref.base == 0:
                    assert place.stop <= plan.arena_bytes
                    assert not own or (ref.offset % alignment == 0 and not taken[place].any())
                    taken[place] = True


def test_a_plan_and_its_text_name_arguments_and_roles():
    plan = plan_of(chain(1), 3)
    found = {
        (argument.name, argument.role)
        for again in (plan, Plan.from_json(plan.to_json()))
        for step in again.steps
        for phase in step.phases
        for argument in phase.arguments
    }
    assert {("w", Role.PACKED), ("x", Role.INPUT), ("y", Role.OUTPUT)} <= found
    assert Plan.from_json(plan.to_json()) == plan
    (phase,) = plan.steps[1].phases
    assert phase.integers["taps_r"] == 1
    assert json.loads(plan.to_json())["steps"][1]["phases"][0]["arguments"][0][:2] == ["x", "input"]


def test_a_host_step_stands_where_no_kernel_takes_the_operator():
    b = Builder((4, 6))
    odd = Pointwise(apply("sin", arg(0)), DType.F64)
    wide = b.add(Pointwise(arg(0), DType.F64), b.inputs[0])
    plan = plan_of(b.graph(b.add(odd, wide)))
    first, step = plan.steps
    assert step.kernel is None and step.phases == () and step.reasons
    assert list(plan.segments()) == [(False, (first,)), (True, (step,))]
    assert "reference (host)" in str(plan) and step.reasons[0] in str(plan)


def test_constants_that_were_packed_are_not_read():
    plan = plan_of(chain(1))
    weights = [(c.sources, c.packing is not None) for c in plan.constants if c.sources]
    assert weights == [((f"c{i}",), packed) for i in range(3) for packed in (False, True)]
    for constant, read in zip(plan.constants, plan.constants_read, strict=True):
        assert read == (constant.packing is not None)


def test_floor_counts_what_has_to_happen():
    one, four = (plan_of(chain(2), threads) for threads in (1, 4))
    least = floor(one)
    assert least.arithmetic == pytest.approx(4 * floor(four).arithmetic, rel=1e-12)
    assert least.memory == floor(four).memory > 0
    assert least.total == max(least.arithmetic, least.memory) + least.barriers


@pytest.mark.parametrize(
    ("size", "along"),
    [
        (12, 8 + 8),  # two tiles of 6 results
        (14, 8 + 8 + 4),  # what is left over takes a shorter one
        (7, 8 + 3),
    ],
)
def test_floor_counts_the_products_of_winograd_where_it_may_be_used(size, along):
    b = Builder((2, 64, size, size))
    graph = b.graph(b.conv(b.inputs[0], 32))
    plan = plan_of(graph)
    (step,) = (s for s in plan.steps if isinstance(s.op, Conv2d))
    direct = step.work.flops
    valid = 3 * size - 2
    assert direct == 2 * 2 * 64 * 32 * valid**2, "taps outside the image are no work"
    products = 2 * 2 * 64 * 32 * along**2
    assert floor(plan).arithmetic == pytest.approx(products / plan.speeds.flops)
    exact = replace(plan, exact=True)
    assert floor(exact).arithmetic == pytest.approx(direct / plan.speeds.flops)


@pytest.mark.parametrize(
    ("size", "products"),
    [
        (12, 13 * 13),  # one tile of 6x6 results
        (28, 4 * 15 * 15),  # four of 7x7
        (32, (15 + 15 + 5) ** 2),  # two of 7 and one of 2 along each axis
    ],
)
def test_floor_counts_the_products_of_winograd_with_stride_2(size, products):
    b = Builder((1, 64, size, size))
    plan = plan_of(b.graph(b.conv(b.inputs[0], 32, stride=(2, 2))))
    assert floor(plan).arithmetic == pytest.approx(2 * 64 * 32 * products / plan.speeds.flops)


@pytest.mark.parametrize(
    ("apart", "products"),
    [
        (2, 4 * 64),  # lattices of 6x6: one tile of 8x8 products each
        (5, (2 * 4 + 3 * 3) ** 2),  # of 3 and of 2: between zeros 4 and 3 products an axis
        (8, (4 * 3 + 4 * 1) ** 2),  # of 2 and of 1: 3 and 1 products
    ],
)
def test_floor_counts_the_products_of_lattices(apart, products):
    b = Builder((1, 64, 12, 12))
    far = Conv2d(padding=(apart,) * 4, dilation=(apart, apart))
    plan = plan_of(b.graph(b.add(far, b.inputs[0], b.constant((32, 64, 3, 3)))))
    assert floor(plan).arithmetic == pytest.approx(2 * 64 * 32 * products / plan.speeds.flops)


@pytest.mark.parametrize("change", [{"stride": (3, 3)}, {"taps": 1}])
def test_floor_counts_the_sums_where_winograd_may_not_be_used(change):
    b = Builder((1, 16, 12, 12))
    plan = plan_of(b.graph(b.conv(b.inputs[0], 16, **change)))
    flops = sum(step.work.flops for step in plan.steps)
    assert floor(plan).arithmetic == pytest.approx(flops / plan.speeds.flops)


def test_json_round_trip_of_every_kind_of_step():
    b = Builder((1, 8, 16, 16))
    x = b.conv(b.inputs[0], 8)
    y = b.concat(b.add(RELU, x), b.conv(x, 24, taps=1))
    z = b.add(Pointwise(apply("min", arg(0), apply("max", arg(0), arg(0))), DType.F32), y)
    plan = plan_of(b.graph(b.conv(z, 3), b.inputs[0]), threads=2)
    again = Plan.from_json(plan.to_json())
    assert again == plan and repr(again) == repr(plan)
    assert type(again.steps[0].phases[0].config) is type(plan.steps[0].phases[0].config)


VERSION = 8  # of what `Plan.to_json` writes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a plan: JSONDecodeError"),
        ("nan", "not a plan: JSONDecodeError"),
        ("[]", "not a plan: TypeError"),
        ("{}", r"not a plan: KeyError\('version'\)"),
        ('{"version": 2}', "of version 2, this is version"),
        (f'{{"version": {VERSION}}}', r"not a plan: KeyError\('(?!version)"),
    ],
)
def test_what_is_no_plan_is_refused(text, reason):
    with pytest.raises(PlanError, match=reason):
        Plan.from_json(text)


def test_only_the_arena_has_lifetimes():
    laid = laid_out(chain(1))
    kinds = {buffer.kind for buffer in laid.buffers}
    assert kinds == {
        BufferKind.ARENA, BufferKind.INPUT, BufferKind.OUTPUT, BufferKind.CONSTANT
    }  # fmt: skip


def test_memory_is_planned_within_the_deadline():
    graph = chain(3)
    laid = laid_out(graph)
    with pytest.raises(PlanError, match="planning memory takes longer than 1e-09 seconds"):
        make(graph, laid, {}, 1, "avx512", Limits(seconds=1e-9))
