"""The gates of squeeze-and-excite blocks, bit by bit against the reference on integers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.backends.cpu.fusions import Excite
from saccade.errors import OutOfBoundsError
from saccade.ir import DType, TensorType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, Variant
from saccade.kernels.cpu.excite import direct
from saccade.kernels.cpu.excite.direct import EXCITE
from saccade.kernels.cpu.excite.pack_gates import pack_gates
from saccade.opdefs import Conv2d
from saccade.testing.kernels import launched_as, mistaken, nhwc_view, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import exact_operands, random_operands

F32, BF16 = DType.F32, DType.BF16
RELU = parse("relu(add($0, $1))")
QUICK = (("avx512", False, 2, (1, 0)), ("avx2", False, 3, (1, 2, 0)))
CASES = [
    # n, channels, hidden, gates, rows, columns
    (1, 40, 7, 40, 5, 1),
    (2, 65, 20, 33, 4, 3),
    (1, 1, 1, 1, 1, 1),
    (1, 96, 300, 150, 3, 1),
    (0, 16, 4, 16, 2, 2),
    (1, 272, 33, 272, 6, 1),
]


def one_phase(call):
    return direct._whole(call)


def two_phases(call):
    return direct._apart(call)


WAYS = [launched_as(EXCITE, one_phase), launched_as(EXCITE, two_phases)]


def setup(case, make=exact_operands, kind=F32, outer=RELU):
    n, channels, hidden, gates, rows, columns = case
    rng = np.random.default_rng(1)
    op = Excite(2, Conv2d(epilogue=RELU), Conv2d(epilogue=outer), 1)
    shapes = [(n, channels, rows, columns), (hidden, channels, 1, 1), (gates, hidden, 1, 1)]
    shapes += [(1, hidden, 1, 1), (1, gates, 1, 1)]
    x, *rest = [make(s, kind if i == 0 else F32, rng) for i, s in enumerate(shapes)]
    if make is exact_operands:
        x = (x * 2).astype(x.dtype)  # so that means of two are whole
    return op, [x, *rest]


def views_of(op, arrays, result=F32):
    (kind,) = op.infer([TensorType(F32, a.shape) for a in arrays])
    x = nhwc_view(DType.of(arrays[0].dtype), arrays[0].shape, arrays[0].shape[1] + 3)
    views = [x, *(row_major(DType.of(a.dtype), a.shape) for a in arrays[1:])]
    return views, [row_major(result, kind.shape)]


def check(hold, op, arrays, kernel=EXCITE, result=F32, **more):
    inputs, outputs = views_of(op, arrays, result)
    constant = [False] + [True] * (len(arrays) - 1)
    more.setdefault("exact", True)
    return hold(kernel, op, arrays, inputs=inputs, outputs=outputs, constant=constant, **more)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_size_in_one_phase_and_two(hold, case):
    more = {} if case in CASES[:2] else {"runs": QUICK}
    results = [check(hold, *setup(case), kernel=way, **more)[0] for way in WAYS]
    assert results[0].tobytes() == results[1].tobytes()


def test_random_operands_round_alike_in_one_phase_and_two(hold):
    op, arrays = setup(CASES[5], random_operands, outer=parse("sigmoid(add($0, $1))"))
    results = [
        check(hold, op, arrays, kernel=way, exact=False, k=272 * 33, runs=QUICK)[0] for way in WAYS
    ]
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize(("kind", "result"), [(BF16, BF16), (BF16, F32), (F32, BF16)])
def test_float32_and_bfloat16(hold, kind, result):
    """Weights are stored like the gates; small integers are exact in both."""
    op, arrays = setup((1, 40, 7, 20, 2, 1), kind=kind)
    arrays[1:3] = [np.clip(a, -2, 2) for a in arrays[1:3]]
    check(hold, op, arrays, result=result, exact=False, k=1, runs=QUICK)


def test_bfloat16_weights_take_half_the_bytes():
    op, arrays = setup(CASES[0])
    packed = []
    for result in (F32, BF16):
        inputs, outputs = views_of(op, arrays, result)
        (launch,) = direct._whole(made(op, inputs, outputs))
        operands = launch.operands.values()
        packed.append(sum(o.packing.nbytes for o in operands if hasattr(o, "packing")))
    assert packed[0] == 2 * packed[1] == 4 * 2 * 7 * 40


def test_blocks_of_filters_are_packed_without_gaps():
    w = np.arange(15, dtype=np.float32).reshape(5, 3, 1, 1)
    found = pack_gates(w, 2, "float32")
    assert found.tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11, 12, 13, 14]


def made(op, inputs, outputs, threads=2):
    constant = (False,) + (True,) * (len(inputs) - 1)
    return Call(op, tuple(inputs), tuple(outputs), constant, ZEN4, threads)


def test_refusals():
    op, arrays = setup(CASES[0])
    inputs, outputs = views_of(op, arrays)
    call = made(op, inputs, outputs)
    assert EXCITE.supports(call) is None
    varying = row_major(F32, (2, 7, 1, 1))
    two = [nhwc_view(F32, (2, 40, 5, 1)), *inputs[1:3], varying, inputs[4]]
    refused = {
        "constant": dataclasses.replace(call, constant=(False, False, True, True, True)),
        "neither": made(op, [nhwc_view(DType.F64, (1, 40, 5, 1)), *inputs[1:]], outputs),
        "channels-last": made(op, [row_major(F32, (1, 40, 5, 1)), *inputs[1:]], outputs),
        "varies": made(op, two, [row_major(F32, (2, 40, 1, 1))]),
        "prologue": made(
            dataclasses.replace(op, squeeze=Conv2d(prologue=RELU, epilogue=RELU)), inputs, outputs
        ),
        "plainly": made(op, inputs, [outputs[0]._replace(strides=(80, 2, 1, 1))]),
    }
    for reason, other in refused.items():
        assert reason in EXCITE.supports(other)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_variants_are_one_phase_and_two(threads):
    op, arrays = setup(CASES[5])
    found = list(EXCITE.variants(made(op, *views_of(op, arrays), threads)))
    assert [v.micros for v in found] == sorted(v.micros for v in found)
    assert sorted(len(v.launches) for v in found) == [1, 2]


def test_parts_do_not_depend_on_the_team():
    op, arrays = setup(CASES[5])
    views = views_of(op, arrays)
    shapes = {direct._shape(made(op, *views, threads)) for threads in (1, 2, 8)}
    assert len(shapes) == 1


FIRST = {
    "channels": -1, "rows": -1, "columns": -1, "x_n": 1, "x_h": 1, "x_w": -1, "count": 1,
    "per_part": 16, "parts": -1, "hidden": -1,
}  # fmt: skip
SECOND = {"images": -1, "parts": -1, "hidden": -1, "gates": -1}


@pytest.mark.parametrize(
    ("name", "phase"), [*((name, 0) for name in FIRST), *((name, 1) for name in SECOND)]
)
def test_a_planted_mistake_is_caught(hold, name, phase):
    def variants(call):
        launches = list(direct._apart(call))
        launches[phase] = mistaken(launches[phase], name, (FIRST, SECOND)[phase][name])
        return (Variant(1.0, lambda: tuple(launches)),)

    mutant = dataclasses.replace(EXCITE, variants=variants)
    case = (2, 272, 33, 271, 6, 2)  # the last block is partial whatever the width of vectors
    with pytest.raises((AssertionError, OutOfBoundsError)):
        check(hold, *setup(case), kernel=mutant, runs=(("avx512", True, 1, None),))
