"""New sizes on GPUs: what stands in tables is what the formulas say, and plans have no history."""

import os
import subprocess
import sys
from itertools import product
from math import ceil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import saccade
from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.cubins import Cubins, code_key
from saccade.backends.cuda.gpus import gpu
from saccade.backends.cuda.target import GpuTarget
from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.kernels.bind import Argument, Phase, Ref, Role
from saccade.kernels.cuda import kernel_named
from saccade.kernels.cuda.conv2d.hopper_tiles import hopper_tiles, layer_of, persistent, resident
from saccade.kernels.cuda.conv2d.hopper_times import hopper_times
from saccade.kernels.cuda.conv2d.implicit_gemm_config import tiles_of
from saccade.kernels.cuda.conv2d.implicit_gemm_times import Products, tile_times
from saccade.kernels.cuda.conv2d.window_config import sums_of
from saccade.kernels.cuda.machine import LAUNCH
from saccade.opdefs import Conv2d
from saccade.plan.json import dump

SIZES = [(1, 3, 64, 64), (2, 3, 37, 51), (1, 3, 91, 33), (5, 3, 40, 40)]
PLANNER = """
import sys, saccade
from saccade.plan.json import dump
path, machine, precision, *sizes = sys.argv[1:]
model = saccade.compile(path, device="cuda", machine=machine, precision=precision, cache=False)
for size in sizes:
    text = dump(model.plan(tuple(map(int, size.split("x")))))
print(text)
"""


def network():
    """A stem, a residual block with a projection, a depthwise layer, a classifier."""
    rng = np.random.default_rng(0)
    sizes = {"w0": (32, 3, 7, 7), "w1": (64, 32, 3, 3), "w2": (64, 32, 1, 1), "w3": (64, 1, 5, 5),
             "w4": (128, 64, 1, 1), "w5": (128, 10)}  # fmt: skip
    constants = [
        numpy_helper.from_array(0.1 * rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in sizes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], strides=[2, 2], pads=[3, 3, 3, 3]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["r0", "w2"], ["c2"]),
        helper.make_node("Add", ["c1", "c2"], ["a1"]),
        helper.make_node("Relu", ["a1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w3"], ["c3"], group=64, pads=[2, 2, 2, 2]),
        helper.make_node("HardSwish", ["c3"], ["h3"]),
        helper.make_node("Conv", ["h3", "w4"], ["c4"]),
        helper.make_node("GlobalAveragePool", ["c4"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w5"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])], constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize(
    ("machine", "precision"), [("h200", "fp16"), ("h200", "fp32"), ("a100", "fp16")]
)
def test_a_plan_is_that_of_a_process_that_made_no_other(tmp_path, machine, precision):
    path = tmp_path / "small.onnx"
    onnx.save(network(), path)
    model = saccade.compile(path, device="cuda", machine=machine, precision=precision, cache=False)
    made = [dump(model.plan(size)) for size in SIZES]
    assert len(set(made)) == len(SIZES)
    assert [dump(model.plan(size)) for size in reversed(SIZES)] == made[::-1]
    # Tables are empty in a new process; and they are filled by other sizes in another order.
    for size, *before in ((SIZES[1],), (SIZES[3], SIZES[2], SIZES[1])):
        words = ["x".join(map(str, one)) for one in (*before, size)]
        done = subprocess.run(
            [sys.executable, "-c", PLANNER, str(path), machine, precision, *words],
            check=True, capture_output=True, text=True, env=os.environ,
        )  # fmt: skip
        assert done.stdout.strip() == made[SIZES.index(size)]


def nhwc(shape, dtype=DType.F16):
    _, c, h, w = shape
    return View(dtype, shape, (h * w * c, 1, w * c, c))


def call(n, c, h, w, k, taps, dtype=DType.F16, machine="h200", **op):
    op = Conv2d(padding=(taps // 2,) * 4, **op)
    weights = View(dtype, (k, c, taps, taps), (c * taps * taps, taps * taps, taps, 1))
    shape = op.sum_shape((n, c, h, w), weights.shape)
    known = gpu(machine)
    target = GpuTarget(known.arch, known.multiprocessors, known.shared, machine=machine)
    return Call(
        op, (nhwc((n, c, h, w), dtype), weights), (nhwc(shape, dtype),), (False, True), target
    )  # fmt: skip


CALLS = [
    call(*sizes, taps, dtype, machine)
    for sizes, taps, dtype, machine in product(
        [(1, 64, 56, 56, 64), (1, 64, 57, 43, 64), (32, 256, 14, 14, 128), (3, 2048, 5, 9, 512)],
        (1, 3), (DType.F16, DType.F32), ("h200", "a100"),
    )
]  # fmt: skip


@pytest.mark.parametrize("asked", CALLS)
@pytest.mark.parametrize("splits", [1, 4])
def test_tables_of_blocks_say_what_the_formula_says(asked, splits):
    n, k, p, q = sums_of(asked)
    c, r, s = asked.inputs[1].shape[1:]
    tiles = tiles_of(asked, c, k)
    for _ in range(2):
        times = tile_times(
            asked, tiles, Products(1, k, r * s, c), n * p * q, (splits,) * len(tiles)
        )
        assert len(times) == len(tiles) > 5
        for (micros, waves), tile in zip(times, tiles, strict=True):
            depth = r * s * ceil(c / tile[2]) * tile[2]
            expected = block_micros(asked, tile, (n * p * q, k, depth), splits)
            assert micros == pytest.approx(expected, rel=1e-12)
            blocks = splits * ceil(n * p * q / tile[0]) * ceil(k / tile[1])
            assert waves == ceil(blocks / asked.target.multiprocessors)


def block_micros(asked, tile, product_sizes, splits):
    """As `implicit_gemm_times` describes it, in one piece."""
    rows, columns, depth = product_sizes
    machine, size = gpu(asked.target.machine), asked.inputs[0].dtype.itemsize
    bm, bn, bk, _, stages = tile
    blocks = splits * ceil(rows / bm) * ceil(columns / bn)
    steps = ceil(depth / (bk * splits))
    operations = machine.matrix_flops / (1 if size == 2 else 6)
    three = {(128, 128): 2.2, (128, 64): 1.45, (64, 128): 4.0, (64, 64): 1.45, (256, 64): 1.15,
             (128, 32): 0.95, (64, 32): 0.9}  # fmt: skip
    part = min(1.0, bm * bn / 16384) ** 0.35 / (1 if size == 2 else three.get((bm, bn), 1.5))
    rate = 0.75 * part * operations / machine.multiprocessors
    busy = ceil(blocks / machine.multiprocessors) * steps * 2.0 * bm * bn * bk / rate
    room = max(1, min(8, machine.shared // (stages * (bm + bn) * bk * size)))
    waited = ceil(blocks / (machine.multiprocessors * room)) * steps * 0.7 / max(1, stages - 1)
    fill = max(1e-3, min(1.0, blocks / machine.multiprocessors))
    cached = blocks * steps * bk * (bm + bn) * size / (0.535 * machine.cached * fill)
    moved = sum(view.nbytes for view in (*asked.inputs, *asked.outputs))
    moved /= 0.8 * machine.bandwidth
    return LAUNCH + max(busy, waited, cached, moved) + 0.05 * (busy + cached)


@pytest.mark.parametrize("batch", [1, 40])
def test_programs_that_take_several_tiles_are_looked_at_where_there_are_more(batch):
    asked = call(batch, 64, 30, 41, 64, 3)
    layer = layer_of(asked)
    n, k, p, q = sums_of(asked)
    expected = set(hopper_tiles(layer))
    for tile in hopper_tiles(layer):
        lasting = persistent(layer, tile)
        tiles = ceil(n * p * q / tile.rows) * ceil(k / tile.columns)
        if lasting is not None and tiles > resident(layer, lasting) * 132:
            expected.add(lasting)
    found = hopper_times(asked)
    assert {tile for _, _, tile in found} == expected
    assert found == sorted(found)
    assert any(tile.persistent for _, _, tile in found) == (batch == 40)
    # What is moved besides takes longer; further channels are further steps.
    more = hopper_times(asked, nhwc((batch, 256, 30, 41)))
    assert more[0][0] > found[0][0]


def test_a_tile_alone_takes_its_bytes_and_steps():
    near, far = (hopper_times(call(1, 64, h, 64, 64, 3))[0][0] for h in (8, 8000))
    asked = call(1, 64, 8000, 64, 64, 3)
    nbytes = sum(view.nbytes for view in (*asked.inputs, *asked.outputs))
    operations = 2 * 9 * 64 * 64 * 8000 * 64
    machine = gpu("h200")
    assert LAUNCH < near < 10
    assert far > max(nbytes / (1.7 * machine.bandwidth), operations / machine.matrix_flops)


def test_code_is_there_for_a_config_whatever_the_alignment():
    asked = call(1, 64, 30, 41, 64, 3)
    kernel = kernel_named("conv2d.implicit_gemm")
    launches = [next(iter(kernel.variants(one))).launches[0] for one in (asked, CALLS[3])]
    code = Cubin("k", b"code", ("x",), 4, 0)

    class Compiled(Cubins):
        def _compiled(self, keys, processes):
            return [code for _ in keys]

    cubins = Compiled(90, disk=False)
    assert cubins.empty and not cubins.has(kernel.name, launches[0].config)
    keys = [code_key(kernel.name, phase_of(launches[0], offset)) for offset in (0, 8)]
    assert keys[0] != keys[1]
    assert cubins.each(keys[:1], None) == [code]
    assert cubins.has(kernel.name, launches[0].config)
    assert not cubins.has(kernel.name, launches[1].config)
    assert not cubins.has("conv2d.split_k", launches[0].config)
    assert cubins.compiled == 1
    assert cubins.each([*keys, keys[0]], None) == [code] * 3
    assert cubins.compiled == 2


def phase_of(launch, offset):
    """The phase of a launch whose operands lie so many bytes behind a base."""
    arguments = tuple(Argument(name, Role.INPUT, Ref(0, offset, 64)) for name in launch.operands)
    return Phase(launch.config, arguments, launch.integers, launch.chunks)
