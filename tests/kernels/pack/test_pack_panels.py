"""Native packers give the bits of the NumPy functions, on every instruction set."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.parameters import Parameters
from saccade.backends.cpu.runtime.objects import Objects
from saccade.backends.cpu.store.packers import Packers
from saccade.errors import OutOfBoundsError
from saccade.ir import DType
from saccade.kernels.cpu import packing
from saccade.kernels.cpu.conv2d.winograd_points import bases, weight_matrix
from saccade.kernels.cpu.pack.panels import PACK
from saccade.kernels.cpu.pack.panels_config import PackConfig, Panels
from saccade.processes import Processes
from saccade.testing.targets import ZEN4, runnable_target

CONFIGS = [
    PackConfig("rows", "float32"),
    PackConfig("rows", "pairs"),
    PackConfig("rows", "spectra"),
    PackConfig("columns", "float32"),
    PackConfig("columns", "pairs"),
    PackConfig("elements", "float32"),
    PackConfig("elements", "pairs"),
]
MACHINES = (("native", False), ("native", True), ("avx2", False), ("avx2", True))
GUARD = 0xA5

SUBPIXEL = "subpixel:CRD:2:16"
CASES = [
    ("pack_conv_weights", (1, "natural", 64, False), (128, 32, 1, 1)),
    ("pack_conv_weights", (1, "natural", 32, False), (37, 13, 1, 1)),
    ("pack_conv_weights", (1, "natural", 32, False), (64, 96, 3, 3)),
    ("pack_conv_weights", (1, "natural", 48, False), (50, 7, 3, 2)),
    ("pack_conv_weights", (1, "natural", 128, False), (130, 3, 7, 7)),
    ("pack_conv_weights", (1, "natural", 16, False), (1, 1, 1, 1)),
    ("pack_conv_weights", (1, "natural", 24, False), (25, 400, 1, 1)),
    ("pack_conv_weights", (3, "natural", 16, False), (60, 5, 3, 3)),
    ("pack_conv_weights", (1, SUBPIXEL, 32, False), (12, 5, 3, 3)),
    ("pack_conv_weights", (2, "rows:DCR:2", 16, False), (24, 5, 1, 3)),
    ("pack_conv_weights", (1, "natural", 32, True), (64, 33, 3, 3)),
    ("pack_conv_weights", (1, "natural", 64, True), (70, 1, 1, 1)),
    ("pack_conv_weights", (2, "natural", 16, True), (20, 300, 1, 1)),
    ("pack_parts_of_channels", (1, 3, "natural", 32), (40, 12, 3, 3)),
    ("pack_parts_of_channels", (2, 2, SUBPIXEL, 32, True), (24, 6, 1, 1)),
    ("pack_matrix", (True, 64), (100, 77)),
    ("pack_matrix", (False, 64), (77, 100)),
    ("pack_matrix", (False, 32), (2, 3, 500, 5)),
    ("pack_matrix", (True, 32), (2, 3, 33, 5)),
    ("pack_matrix", (False, 64, True), (77, 100)),
    ("pack_matrix", (True, 64, True), (3, 65, 31)),
    ("pack_transposed", (1, (0, 1), (2, 2), "natural", 32), (13, 20, 4, 4)),
    ("pack_transposed", (2, (1, 0), (2, 3), SUBPIXEL, 16), (6, 12, 5, 4)),
    ("pack_transposed", (1, (0, 0), (1, 1), "natural", 32, True), (3, 20, 2, 2)),
    ("pack_depthwise", (16,), (40, 1, 3, 3)),
    ("pack_depthwise", (64,), (7, 1, 5, 5)),
    ("pack_gates", (32, "float32"), (64, 9, 1, 1)),
    ("pack_gates", (48, "float32"), (101, 24, 1, 1)),
    ("pack_gates", (48, "float32"), (5, 24, 1, 1)),
    *[("pack_winograd", (m, 32, "natural", m % 4 > 0, 1), (70, 19, 3, 3)) for m in bases(1)],
    *[("pack_winograd", (m, 16, "natural", m % 3 > 0, 2), (33, 64, 3, 3)) for m in bases(2)],
    ("pack_winograd", (4, 32, SUBPIXEL, True, 1), (12, 5, 3, 3)),
    ("pack_winograd", (6, 24, "natural", False, 1), (25, 1, 3, 3)),
    ("pack_lattice", ((3, 2), 16), (20, 9, 3, 3)),
    ("pack_lattice", ((1, 3), 32, SUBPIXEL), (12, 20, 3, 3)),
]


@pytest.fixture(scope="module")
def packers():
    processes = Processes()

    @cache
    def of(isa, checked):
        objects = Objects(runnable_target(isa), checked=checked, disk=False)
        found = Packers(objects)
        found.take(objects.get([("pack.panels", config) for config in CONFIGS], processes))
        return found

    yield of
    processes.close()


def source_of(shape, seed=0):
    """Floats of all sizes, subnormal ones among them."""
    rng = np.random.default_rng(seed)
    scale = np.exp2(rng.integers(-10, 10, shape))
    scale.reshape(-1)[::7] = 2.0**-130
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def expected(function, parameters, source):
    packed = np.ascontiguousarray(packing.FUNCTIONS[function](source, *parameters))
    return packed.reshape(-1).view(np.uint8)


def native(packers, panels, source, step=None):
    """What packing so many panels at a time leaves, between guards that must hold."""
    size = sum(p.nbytes for p in panels)
    memory = np.full(size + 256, GUARD, np.uint8)
    start = 64 + -memory.ctypes.data % 64
    for p in panels:
        strides = p.strides(p.count)
        for at in range(0, p.count, step or p.count):
            part = range(at, min(at + (step or p.count), p.count))
            to = memory.ctypes.data + start + p.start + at * strides[0]
            packers.pack(p, source, part, to, strides)
    assert (memory[:start] == GUARD).all() and (memory[start + size :] == GUARD).all()
    return memory[start : start + size]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, (c[0], *c[1], c[2]))))
def test_the_bits_of_the_function(packers, case):
    function, parameters, shape = case
    source = source_of(shape)
    panels = packing.panels_of(function, parameters, [source])
    assert panels
    truth = expected(function, parameters, source)
    for machine in MACHINES:
        assert native(packers(*machine), panels, source).tobytes() == truth.tobytes()
        by_one = native(packers(*machine), panels, source, step=1)
        assert by_one.tobytes() == truth.tobytes()


def test_every_description_has_a_case():
    assert {function for function, _, _ in CASES} == set(packing.PANELS)
    made = {p.config for f, how, s in CASES for p in packing.panels_of(f, how, [source_of(s)])}
    assert made == set(CONFIGS)


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
def test_arguments_lie_as_the_config_says(config):
    k = KernelBuilder("pack", ZEN4)
    PACK.emit(k, config)
    integers = tuple((name, None) for name in config.integers)
    assert k.parameters == Parameters(config.pointers, integers)


def test_arguments_go_by_their_names(packers, monkeypatch):
    """Panels may give them in any order."""
    function, parameters, shape = next(case for case in CASES if case[0] == "pack_winograd")
    source = source_of(shape)
    panels = packing.panels_of(function, parameters, [source])
    given = Panels.integers
    monkeypatch.setattr(Panels, "integers", lambda *a: dict(reversed(given(*a).items())))
    have = native(packers("native", True), panels, source)
    assert have.tobytes() == expected(function, parameters, source).tobytes()


def test_infinities_and_nans_arrive(packers):
    source = source_of((32, 20, 3, 3))
    source.reshape(-1)[[3, 500, 900]] = np.inf, -np.inf, np.nan
    for pairs in (False, True):
        how = 1, "natural", 32, pairs
        truth = expected("pack_conv_weights", how, source)
        kind = DType.BF16.numpy if pairs else np.float32
        have = native(
            packers("native", False), packing.panels_of("pack_conv_weights", how, [source]), source
        )
        np.testing.assert_array_equal(
            have.view(kind).astype(np.float32), truth.view(kind).astype(np.float32)
        )


@pytest.mark.parametrize(
    ("function", "parameters", "source"),
    [
        ("pack_conv_weights", (1, "natural", 32, False), np.ones((8, 8, 1, 1), DType.BF16.numpy)),
        (
            "pack_conv_weights",
            (1, "natural", 32, False),
            np.ones((8, 8, 3, 3), np.float32).swapaxes(2, 3),
        ),
        ("pack_conv_weights", (1, "natural", 8, True), np.ones((8, 8, 1, 1), np.float32)),
        ("pack_gates", (32, "bfloat16"), np.ones((64, 8, 1, 1), np.float32)),
        ("pack_matrix", (True, 32), np.ones((0, 8), np.float32)),
        ("pack_channels", ("natural",), np.ones(8, np.float32)),
    ],
)
def test_what_is_unusual_is_left_to_the_functions(function, parameters, source):
    assert packing.panels_of(function, parameters, [source]) == ()


@pytest.mark.parametrize("stride", [1, 2])
def test_spectra_are_the_transformed_filters(packers, stride):
    source = np.random.default_rng(1).standard_normal((64, 40, 3, 3)).astype(np.float32)
    for m in bases(stride):
        how = m, 32, "natural", True, stride
        panels = packing.panels_of("pack_winograd", how, [source])
        have = native(packers("native", False), panels, source).view(np.float32)
        g = weight_matrix(m, stride)
        truth = np.einsum("ai,kcij,bj->abck", g, source.astype(np.float64), g)
        have = have.reshape(len(g) ** 2, 2, 40, 32).swapaxes(1, 2).reshape(truth.shape)
        # Two sums of three products whose factors are rounded: eight roundings.
        bound = np.einsum("ai,kcij,bj->abck", abs(g), abs(source.astype(np.float64)), abs(g))
        assert (abs(have - truth) <= 8 * 2.0**-24 * bound).all()


MISTAKES = [
    lambda p: replace(p, by_channel=p.by_channel + 1),
    lambda p: replace(p, places=p.places[::-1].copy()),
    lambda p: replace(p, lanes=np.where(p.lanes > 0, p.lanes - 1, p.lanes)),
    lambda p: replace(p, lanes=np.where(p.lanes < 0, 0, p.lanes)),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_caught(packers, mistake):
    function, parameters, shape = next(case for case in CASES if case[0] == "pack_transposed")
    source = source_of(shape)
    (panels,) = packing.panels_of(function, parameters, [source])
    truth = expected(function, parameters, source)
    try:
        have = native(packers("native", True), (mistake(panels),), source)
    except OutOfBoundsError:
        return
    assert have.tobytes() != truth.tobytes()


@pytest.mark.parametrize(
    ("function", "parameters", "shape"),
    [
        ("pack_conv_weights", (1, "natural", 32, False), (64, 8, 1, 1)),
        ("pack_matrix", (False, 64), (77, 128)),
        ("pack_transposed", (1, (0, 0), (1, 1), "natural", 32), (3, 32, 2, 2)),
    ],
)
def test_checked_code_reads_no_further_than_the_source(packers, function, parameters, shape):
    source = source_of(shape)
    (panels,) = packing.panels_of(function, parameters, [source])
    with pytest.raises(OutOfBoundsError, match="a packer's access"):
        native(packers("native", True), (panels,), source.reshape(-1)[:-1])
