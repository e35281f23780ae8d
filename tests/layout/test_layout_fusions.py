"""Fusions are the device's: layout asks for them, and knows neither operators nor caches."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from layout_graphs import RELU, Builder, backend
from null_device import NullBackend

from saccade import layout
from saccade.backends.cpu.fusions import OPERATORS
from saccade.errors import PlanError
from saccade.ir import DType, Graph, Node, Op, Value
from saccade.ir.dim_parser import parse_dims
from saccade.kernels.base import Launch, Variant
from saccade.kernels.cpu.base import CpuKernel
from saccade.kernels.cpu.movement.copy import CopyConfig
from saccade.layout.formats import formats
from saccade.layout.sizes import fitted
from saccade.opdefs import Concat, Conv2d, Pool2d, Resize
from saccade.testing.targets import ZEN4

SOURCE = Path(layout.__file__).parents[1]


# Rooms without a device


@pytest.mark.parametrize("room", ["layout", "opdefs", "passes"])
def test_rooms_name_no_operator_of_a_device_and_no_cache(room):
    words = re.compile(rf"\b({'|'.join(OPERATORS)})\b|\.l[123]\b|L2 cache|L2|_NOMINAL", re.A)
    for path in (SOURCE / room).rglob("*.py"):
        assert not words.search(path.read_text()), path


def without_fusions():
    device = backend()
    device.fusions = layout.NoFusions()
    return device


def mobile_block(side):
    """What the CPU makes one step of the first two of, gates, and one step of the last two."""
    b = Builder((1, 16, side, side))
    wide = b.conv(b.conv(b.inputs[0], 16), 64, taps=1)
    image = b.add(Conv2d(padding=(1,) * 4, groups=64), wide, b.constant((64, 1, 3, 3)))
    return b.graph(b.conv(b.conv(image, 16, taps=1), 8))


def test_a_device_without_fusions_gets_the_graph_that_it_gave():
    graph = mobile_block(112)
    assert layout.NoFusions().fuse(graph, {}, lambda _node, _shapes: True) is graph
    assert layout.NoFusions().pairs(graph, {}, tuned=True) == layout.Pairs({}, {})
    laid = layout.assign(graph, {}, without_fusions(), threads=1)
    steps = [step for step in laid.steps if not step.note]
    assert [step.name for step in steps] == [node.name for node in graph.nodes]
    assert not any(p.kernel in OPERATORS for step in laid.steps for p in step.choice.passed)
    own = layout.assign(graph, {}, backend(), threads=1)
    assert any(step.op.family in OPERATORS for step in own.steps)


# Fusions of another device


@dataclass(frozen=True)
class Chain(Op):
    """`second(first(x, *a), *b)`: x, the operands a, then b."""

    first: Op
    second: Op
    count: int

    def infer(self, inputs):
        (between,) = self.first.infer(inputs[: 1 + self.count])
        return self.second.infer([between, *inputs[1 + self.count :]])

    def reference(self, *inputs):
        raise NotImplementedError

    def work(self, inputs, outputs):
        raise NotImplementedError


def chain(first, second):
    """The node that does the work of two."""
    op = Chain(first.op, second.op, len(first.inputs) - 1)
    return Node(op, (*first.inputs, *second.inputs[1:]), second.outputs, second.name)


class Chains:
    """Fuses what it is told to: by sizes the nodes of some names, and others by times."""

    def __init__(self, fused=(), paired=(), log=None, alike=None):
        self.fused, self.paired, self.log = fused, paired, [] if log is None else log
        self.alike = alike

    def fuse(self, graph, shapes, taken):
        found = {}
        for name in self.fused:
            first, second = two(graph, name)
            both = chain(first, second)
            self.log.append(taken(both, shapes))
            found |= {first: None, second: both}
        nodes = (found.get(node, node) for node in graph.nodes)
        return replace(graph, nodes=tuple(node for node in nodes if node)) if found else graph

    def pairs(self, graph, shapes, *, tuned):
        self.log.append(tuned)
        pairs = {}
        for name in self.paired:
            first, second = two(graph, name)
            pairs[first] = layout.Pair(first, second, chain(first, second), self.alike)
        apart = {n: layout.Passed("Chain", "told to") for n in graph.nodes if n not in pairs}
        return layout.Pairs(pairs, apart)


def two(graph, name):
    """The node of this name and the one that reads its result."""
    first = next(node for node in graph.nodes if node.name == name)
    return first, next(node for node in graph.nodes if first.output in node.inputs)


class Toy(NullBackend):
    """A device whose kernels take everything, for so many microseconds by operator."""

    target, nominal_threads, reuse_slowdown = ZEN4, 3, 1.4

    def __init__(self, fusions, rounding=None, **micros):
        super().__init__()
        self.fusions, self.rounding, self.micros = fusions, rounding, micros

    def candidates(self, op):
        micros = self.micros.get(op.family, 10.0)
        return (
            CpuKernel(
                f"toy.{op.family}", (type(op),), CopyConfig, lambda _call: None,
                lambda _call: [Variant(
                    micros, lambda: (Launch(CopyConfig("way", 4, 1), {}, {}, 1),), self.rounding,
                )],
                lambda _k, _config: None,
            ),
        ) if micros is not None else ()  # fmt: skip


def three_convolutions():
    b = Builder((1, 8, 6, 6))
    return b.graph(b.conv(b.conv(b.conv(b.inputs[0], 8), 8), 8))


def families(device, timings=None, **words):
    laid = layout.assign(three_convolutions(), {}, device, threads=1, timings=timings, **words)
    return [step.op.family for step in laid.steps if not step.note]


def test_what_sizes_decide_is_fused_before_storage_is_chosen():
    assert families(Toy(Chains(["n0"]), Move=0.1)) == ["Chain", "Conv2d"]
    log = []
    families(Toy(Chains(["n0"], log=log), Chain=None))
    assert log[0] is False, "no kernel takes it, which the device was told"


@pytest.mark.parametrize(("micros", "fused"), [(5.0, True), (19.0, True), (19.2, False)])
def test_pairs_become_one_step_where_that_is_estimated_to_be_faster(micros, fused):
    """Two take 20 µs, and one has to be 5% better."""
    found = families(Toy(Chains(paired=["n0"]), Chain=micros, Move=0.0))
    assert found == (["Chain", "Conv2d"] if fused else ["Conv2d"] * 3)


ALIKE = ("toy.Conv2d", "toy.Conv2d")


@pytest.mark.parametrize(
    ("micros", "alike", "rounding", "lacking", "reuse", "fused"),
    [
        (15.0, ALIKE, None, ["toy.Chain"], True, False),
        (15.0, ALIKE, None, ["toy.Chain"], False, True),
        (15.0, ALIKE, None, [], True, True),  # it has code, too
        (15.0, ALIKE, None, ["toy.Chain", "toy.Conv2d"], True, True),  # none has code
        (15.0, None, None, ["toy.Chain"], True, True),  # other bits
        (15.0, ("toy.Conv2d", "other"), None, ["toy.Chain"], True, True),
        (15.0, ALIKE, "of its own", ["toy.Chain"], True, True),
        (14.0, ALIKE, None, ["toy.Chain"], True, True),  # 20 µs are too slow beside it
    ],
)
def test_two_steps_that_have_code_spare_one_that_has_none(
    micros, alike, rounding, lacking, reuse, fused
):
    device = Toy(Chains(paired=["n0"], alike=alike), rounding, Chain=micros, Move=0.0)
    found = families(device, available=lambda kernel, _config: kernel not in lacking, reuse=reuse)
    assert found == (["Chain", "Conv2d"] if fused else ["Conv2d"] * 3)


def test_steps_say_what_they_are_no_part_of():
    device = Toy(Chains(paired=["n0"]), Chain=90.0, Move=0.0)
    steps = [s for s in layout.assign(three_convolutions(), {}, device, threads=1).steps
             if not s.note]  # fmt: skip
    said = [[(p.kernel, p.reason) for p in step.choice.passed] for step in steps]
    assert said[0] == [("Chain", "90.0 µs estimated, 20.0 as two steps")]
    assert said[2] == [("Chain", "told to")]


class Timings:
    def tuned(self, _call, _kernels):
        return None

    def refusals(self, _steps):
        return ()


def test_the_device_is_told_whether_measured_times_may_decide():
    for timings in (None, Timings()):
        log = []
        families(Toy(Chains(log=log)), timings)
        assert log == [timings is not None]


def test_the_device_says_what_it_prefers():
    graph = three_convolutions()
    assert len(formats(graph, layout.Preferred()).nhwc) == 3
    assert not formats(graph, layout.Preferred(channels_last=(), indifferent=())).nhwc
    last = formats(graph, layout.Preferred(channels_last=(Pool2d,), indifferent=(Conv2d,)))
    assert not last.nhwc


# Guards


def assumes_even():
    """Half the size, twice the size, beside the input: sound for even H only."""
    h, half, even = (parse_dims(text) for text in ("H", "H//2", "2*(H//2)"))
    x = Value("x", DType.F32, (1, 4, h, 8))
    small, large = Value("s", DType.F32, (1, 4, half, 4)), Value("l", DType.F32, (1, 4, even, 8))
    shown, y = Value("r", DType.F32, (1, 4, even, 8)), Value("y", DType.F32, (1, 8, even, 8))
    nodes = (
        Node(Pool2d(kind="max", kernel=(2, 2), stride=(2, 2)), (x,), (small,), "pool"),
        Node(Resize(sizes=large.shape, scales=(1.0, 1.0, 2.0, 2.0)), (small,), (large,), "resize"),
        Node(RELU, (large,), (shown,), "relu"),
        Node(Concat(axis=1), (shown, x), (y,), "beside"),
    )
    return Graph((x,), (y,), nodes, {}, ("y",))


def test_nodes_in_place_of_those_that_fit_are_not_asked_again():
    graph = assumes_even()
    pool, resize, relu, beside = graph.nodes
    assert fitted(graph, graph) == {pool, resize, relu}
    fused = Chains(["pool"]).fuse(graph, {}, lambda *_: True)
    both = fused.nodes[0]
    assert fitted(graph, fused) == {pool, resize, relu, both} and beside in fused.nodes
    risky = Chains(["relu"]).fuse(graph, {}, lambda *_: True)
    assert fitted(graph, risky) == {pool, resize, relu}


def test_a_size_that_breaks_an_assumption_is_refused_in_a_fused_node_too():
    graph, device = assumes_even(), Toy(Chains(["relu"]))
    assert layout.assign(graph, {"H": 6}, device, threads=1).outputs[0].shape == (1, 8, 6, 8)
    with pytest.raises(PlanError, match=r"with H=7, .*'beside'"):
        layout.assign(graph, {"H": 7}, device, threads=1)
