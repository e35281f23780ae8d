"""Storage and kernels chosen together: where a reorder pays, where it does not, and never worse."""

from itertools import product

import numpy as np
import pytest
from layout_graphs import ADD, RELU, Builder, backend, plan_of
from null_device import NullBackend

from saccade import layout
from saccade import plan as planner
from saccade.devices import device_named
from saccade.ir import Factor, IndexMap
from saccade.kernels.base import Launch
from saccade.kernels.cpu.base import CpuKernel, single_variant
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.movement.copy_code import CopyConfig
from saccade.layout.elimination import minimise
from saccade.layout.formats import formats
from saccade.opdefs import GridSample, Move, Softmax
from saccade.options import Options
from saccade.plan import Plan
from saccade.processes import Processes
from saccade.testing.targets import ZEN4

PERMUTE = IndexMap(
    ((1,), (8,), (6,), (6,)),
    (Factor(1, 0), Factor(6, 2), Factor(6, 3), Factor(8, 1)),
    (1, 1, 1, 1),
)

DEEP = IndexMap(
    ((1,), (8,), (6,), (6,)), tuple(map(Factor, (1, 8, 6, 6), range(4))), (1, 1, 0, 1, 1)
)
"""[N, C, H, W] as [N, C, 1, H, W]."""
FLAT = IndexMap(
    ((1,), (8,), (), (6,), (6,)), tuple(map(Factor, (1, 8, 6, 6), range(4))), (1, 1, 1, 1)
)
"""And back."""


class Priced(NullBackend):
    """A backend whose kernels cost what a table says, by operator and orders of the operands."""

    target, speeds, nominal_threads = ZEN4, machine(ZEN4), 2

    def __init__(self, prices):
        super().__init__()
        self.prices = prices

    def candidates(self, op):
        return (
            CpuKernel(
                "priced", (type(op),), CopyConfig,
                supports=lambda call: None if self._price(call) is not None else "not in the table",
                variants=single_variant(
                    lambda call: (Launch(CopyConfig(type(call.op).__name__, 4, 1), {}, {}, 1),),
                    self._price,
                ),
                emit=lambda k, config: None,
            ),
        )  # fmt: skip

    def _price(self, call):
        views = (
            *(v for v, c in zip(call.inputs, call.constant, strict=True) if not c),
            *call.outputs,
        )
        orders = "".join("c" if v.channels_last else "r" for v in views)
        return self.prices.get((type(call.op).__name__, orders), self.prices.get("other"))


def searched(graph, prices):
    """What a search finds with given prices, and the graph laid out by it."""
    device = Priced(prices)
    return layout.assign(graph, {}, device, threads=1)


def orders(laid):
    return [
        "".join("c" if s.view.channels_last else "r" for s in (*step.inputs[:1], *step.outputs))
        for step in laid.steps
    ]


COPY = {("Move", "rc"): 5.0, ("Move", "cr"): 5.0, ("Move", "cc"): 4.0, ("Move", "rr"): 4.0}


def total(laid):
    return sum(step.choice.cost for step in laid.steps)


def test_a_reorder_is_made_where_it_pays():
    """The input is row-major; the convolution is much faster with it channels-last."""
    b = Builder((1, 8, 6, 6))
    graph = b.graph(b.conv(b.inputs[0], 8))
    slow = {("Conv2d", "rr"): 30.0, ("Conv2d", "cr"): 10.0, ("Conv2d", "rc"): 30.0} | COPY
    laid = searched(graph, slow | {("Conv2d", "cc"): 10.0})
    assert orders(laid) == ["rc", "cr"] and total(laid) == 15
    assert laid.searched.saved == 15 and laid.searched.gap == 0
    assert "copied to channels-last" in laid.notes[0]
    assert "faster" in laid.steps[0].note

    even = slow | {("Conv2d", "rr"): 14.0, ("Conv2d", "cc"): 8.0}
    laid = searched(graph, even)
    assert orders(laid) == ["rr"] and laid.searched.saved == 0 and not laid.notes


def test_an_image_under_a_grid_is_reordered_where_that_pays_and_its_grid_never():
    b = Builder((1, 8, 6, 6), (1, 6, 6, 2))
    graph = b.graph(b.add(GridSample(), *b.inputs))
    slow = {("GridSample", "rrr"): 30.0, ("GridSample", "rrc"): 30.0} | COPY
    laid = searched(graph, slow | {("GridSample", "crr"): 10.0, ("GridSample", "crc"): 6.0})
    assert [type(step.op) for step in laid.steps] == [Move, GridSample]
    assert orders(laid) == ["rc", "cr"] and total(laid) == 15
    # Copies that take more than they save are not made.
    laid = searched(graph, slow | {("GridSample", "crr"): 26.0, ("GridSample", "crc"): 21.0})
    assert orders(laid) == ["rr"] and laid.searched.saved == 0


@pytest.mark.parametrize("there", [(), ("Move",), ("Conv2d",), ("Conv2d", "Move")])
def test_which_code_exists_does_not_matter(there):
    """A reorder that has to be compiled is as good as any: storage changes how sums are made."""
    b = Builder((1, 8, 6, 6))
    graph = b.graph(b.conv(b.inputs[0], 8))
    prices = COPY | {("Conv2d", "rr"): 30.0, ("Conv2d", "cr"): 10.0, "other": 50.0}
    laid = layout.assign(
        graph, {}, Priced(prices), threads=1,
        available=lambda _kernel, config: config.way in there,
    )  # fmt: skip
    assert orders(laid) == ["rc", "cr"] and laid.searched == searched(graph, prices).searched


def test_a_copy_is_made_once_for_all_its_readers():
    b = Builder((1, 8, 6, 6))
    x = b.inputs[0]
    graph = b.graph(b.conv(b.conv(x, 8), 8), b.conv(x, 8))
    prices = COPY | {("Conv2d", "rr"): 13.0, ("Conv2d", "rc"): 13.0}
    laid = searched(graph, prices | {("Conv2d", "cr"): 10.0, ("Conv2d", "cc"): 10.0})
    assert orders(laid) == ["rc", "cc", "cr", "cr"], "3 µs each would not pay for 5, both do"
    assert laid.searched.saved == 1


def test_a_result_is_made_as_its_producer_likes_and_copied_to_the_caller():
    b = Builder((1, 8, 6, 6))
    graph = b.graph(b.conv(b.conv(b.inputs[0], 8), 8))
    prices = COPY | {("Conv2d", "rc"): 1.0, ("Conv2d", "rr"): 9.0, ("Conv2d", "cc"): 1.0}
    laid = searched(graph, prices | {("Conv2d", "cr"): 20.0})
    assert orders(laid) == ["rc", "cc", "cr"] and total(laid) == 7
    laid = searched(graph, prices | {("Conv2d", "cr"): 3.0})
    assert orders(laid) == ["rc", "cr"] and total(laid) == 4


def test_a_part_of_an_input_is_copied_by_itself_where_that_pays():
    """It is a view of the caller's memory, and open as well as the input is."""
    b = Builder((3, 8, 6, 6))
    one = IndexMap(((3,), (8,), (6,), (6,)), (Factor(1, 0, 1), *map(Factor, (8, 6, 6), (1, 2, 3))),
                   (1, 1, 1, 1))  # fmt: skip
    graph = b.graph(b.conv(b.add(Move(one), b.inputs[0]), 8))
    prices = COPY | {("Conv2d", "rr"): 30.0, ("Conv2d", "cr"): 10.0, "other": 30.0}
    laid = searched(graph, prices)
    assert orders(laid) == ["rc", "cr"] and total(laid) == 15 and laid.searched.saved == 15
    assert laid.steps[0].inputs[0].view.shape[0] == 1
    laid = searched(graph, prices | {("Conv2d", "rr"): 14.0})
    assert orders(laid) == ["rr"] and laid.steps[0].inputs[0].offset == 8 * 36 * 4


def test_an_image_with_other_axes_is_copied_where_that_pays():
    """As it lies it is a view along rows, which costs nothing; the other order is a step."""
    b = Builder((1, 8, 1, 6, 6))
    graph = b.graph(b.conv(b.add(Move(FLAT), b.inputs[0]), 8))
    prices = COPY | {("Conv2d", "rr"): 30.0, ("Conv2d", "cr"): 10.0, "other": 30.0}
    laid = searched(graph, prices)
    assert orders(laid) == ["rc", "cr"] and total(laid) == 15
    laid = searched(graph, prices | {("Conv2d", "rr"): 14.0})
    assert orders(laid) == ["rr"] and total(laid) == 14 and laid.searched.saved == 1
    assert laid.buffers[laid.steps[0].inputs[0].buffer].kind is layout.BufferKind.INPUT


def test_convolutions_over_three_axes_have_the_algorithms_of_images():
    b = Builder((1, 32, 1, 64, 64))
    flat = IndexMap(
        ((1,), (32,), (), (64,), (64,)), tuple(map(Factor, (1, 32, 64, 64), range(4))), (1, 1, 1, 1)
    )
    plan = plan_of(b.graph(b.conv(b.add(Move(flat), b.inputs[0]), 32)))
    assert [step.kernel for step in plan.steps][:2] == ["movement.copy", "conv2d.winograd"]


def test_what_a_movement_makes_of_its_operand_is_part_of_the_price():
    """A permutation of a channels-last value is a dense view; the softmax after it needs that."""
    b = Builder((1, 8, 6, 6))
    y = b.conv(b.inputs[0], 8)
    graph = b.graph(b.add(Softmax(3), b.add(Move(PERMUTE), y)))
    laid = layout.assign(graph, {}, backend(), threads=1)
    assert [s.op.family for s in laid.steps] == ["Conv2d", "Softmax"]
    assert laid.steps[0].outputs[0].view.channels_last
    assert laid.steps[1].inputs[0].view.strides == (288, 48, 8, 1)


def random_graph(rng):
    """Convolutions, additions, permutations and concatenations over feature maps of one size."""
    b = Builder((1, 8, 6, 6))
    values = [b.inputs[0], b.conv(b.inputs[0], 8)]
    for _ in range(int(rng.integers(2, 6))):
        a, c = (values[int(i)] for i in rng.integers(0, len(values), 2))
        kind = int(rng.integers(0, 6))
        if kind == 0:
            values.append(b.conv(a, 8))
        elif kind == 1:
            values.append(b.add(RELU, a))
        elif kind == 2:
            values.append(b.add(ADD, a, c))
        elif kind == 3:
            values.append(b.conv(b.concat(a, c), 8))
        elif kind == 4:
            deep = b.add(RELU, b.add(Move(DEEP), a))
            values.append(b.conv(b.add(Move(FLAT), deep), 8))
        else:
            heads = b.add(Softmax(3), b.add(Move(PERMUTE), a))
            back = IndexMap(
                ((1,), (6,), (6,), (8,)),
                (Factor(1, 0), Factor(8, 3), Factor(6, 1), Factor(6, 2)),
                (1, 1, 1, 1),
            )
            values.append(b.add(Move(back), heads))
    return b.graph(values[-1], *values[1:3])


def random_prices(rng):
    prices = {"other": float(rng.integers(1, 60))}
    for name, count in (("Conv2d", 2), ("Pointwise", 2), ("Pointwise", 3), ("Softmax", 2)):
        for views in product("cr", repeat=count):
            prices[name, "".join(views)] = float(rng.integers(1, 60))
    return prices | {key: float(rng.integers(1, 30)) for key in COPY}


@pytest.mark.parametrize("seed", range(12))
def test_the_search_finds_the_least_over_all_states(seed, monkeypatch):
    """Brute force over the same tables, and no worse than the rule, which comes first."""
    from saccade.layout import search as module  # noqa: PLC0415

    seen = {}

    def spy(sizes, tables, start):
        found = minimise(sizes, tables, start)
        if np.prod(sizes) <= 4096:
            cost = {
                states: sum(t.costs[tuple(states[v] for v in t.scope)] for t in tables)
                for states in product(*map(range, sizes))
            }
            assert found.cost == min(cost.values()) <= cost[tuple(start)]
            seen["brute"] = True
        return found

    monkeypatch.setattr(module, "minimise", spy)
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    laid = searched(graph, random_prices(rng))
    assert laid.searched.saved >= 0 and laid.searched.gap == 0
    assert seen or laid.searched.values > 6


def test_the_rule_stands_where_there_is_nothing_to_choose():
    b = Builder((2, 12))
    laid = layout.assign(b.graph(b.add(RELU, b.inputs[0])), {}, backend(), threads=1)
    assert laid.searched is None
    b = Builder((1, 1, 8, 8))  # one channel: both orders are the same
    laid = layout.assign(b.graph(b.conv(b.inputs[0], 1)), {}, backend(), threads=1)
    assert laid.searched is None


def test_values_that_only_operators_over_images_touch_are_not_searched():
    b = Builder((1, 3, 8, 8))
    y = b.conv(b.inputs[0], 8)
    for _ in range(4):
        y = b.add(ADD, b.conv(b.add(RELU, y), 8), y)
    found = formats(b.graph(b.conv(y, 8)), layout.Preferred())
    assert {v.name for v in found.open} == {"x0", "v13_0"}


def test_too_many_states_keep_the_rule_and_say_how_far_it_may_be(monkeypatch):
    monkeypatch.setattr("saccade.layout.search.MOST_STATES", 3)
    b = Builder((1, 8, 6, 6))
    prices = COPY | {"other": 20.0}
    laid = searched(b.graph(b.conv(b.conv(b.inputs[0], 8), 8)), prices)
    assert laid.searched.saved == 0 and laid.searched.gap >= 20


@pytest.mark.parametrize("seed", range(6))
def test_any_choice_of_storage_computes_the_same(seed):
    """Plans made by random prices, played on their own arena, against those made by the rule."""
    rng = np.random.default_rng(100 + seed)
    graph = random_graph(rng)
    device = device_named("reference").backend(Options.make("reference"), Processes(), None)
    x = rng.integers(-3, 4, (1, 8, 6, 6)).astype(np.float32)
    results = []
    for prices in (random_prices(rng), {"other": 1.0}):
        laid = layout.assign(graph, {}, Priced(prices), threads=1)
        bare = layout.GraphLayout(
            tuple(type(s)(s.name, s.op, s.call, s.inputs, s.outputs,
                          layout.Choice(None, 0.0, ()), (), s.note) for s in laid.steps),
            laid.buffers, laid.inputs, laid.outputs, laid.notes, laid.speeds,
            device=laid.device, alignment=laid.alignment,
            side_by_side=laid.side_by_side, beside=laid.beside,
        )  # fmt: skip
        plan = planner.make(graph, bare, {}, 1, device.target.isa)
        results.append(device.build(plan, graph, f"random{seed}").run([x]))
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_the_plan_says_what_was_searched():
    b = Builder((1, 3, 8, 8))
    plan = plan_of(b.graph(b.conv(b.inputs[0], 4)))
    assert plan.searched.gap == 0 and plan.searched.saved >= 0
    assert "layouts searched for" in str(plan) and "exact" in str(plan)
    assert Plan.from_json(plan.to_json()).searched == plan.searched
    assert plan.estimate == pytest.approx(sum(s.estimate for s in plan.steps))
