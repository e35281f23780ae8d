"""Attention by rows: sizes, storage, masks, rows that come in parts, variants, what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from saccade.backends.cpu.target import described_target
from saccade.backends.fusions import Attention
from saccade.backends.fusions.cases import ATTENTIONS
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, Scratch, View
from saccade.kernels.cpu.attention.rows import ATTENTION_ROWS
from saccade.testing.cases import inputs_of, outputs_of
from saccade.testing.kernels import launched_as, row_major, run_kernel
from saccade.testing.targets import ZEN4, runnable_target
from saccade.testing.tolerance import assert_close

RNG = np.random.default_rng(21)
F32 = DType.F32
FEW = (("avx512", False, 2, (1, 0)), ("avx2", True, 1, None))


def operands(*shapes):
    return [RNG.standard_normal(shape, dtype=np.float32) for shape in shapes]


def call_of(case, target=ZEN4):
    known = tuple(operand.constant for operand in case.operands)
    return Call(case.op, inputs_of(case), outputs_of(case), known, target, 2)


def plain(batch, rows, keys, head, width, target=ZEN4, threads=2):
    shapes = ((*batch, rows, head), (*batch, keys, head), (*batch, keys, width))
    views = tuple(row_major(F32, shape) for shape in shapes)
    out = row_major(F32, (*batch, rows, width))
    return Call(Attention(0.3), views, (out,), (False,) * 3, target, threads)


def config_of(call):
    return ATTENTION_ROWS.launch(call)[-1].config


@pytest.mark.parametrize(
    ("rows", "keys", "head", "width"),
    [
        (1, 1, 1, 1),
        (7, 15, 3, 5),
        (6, 16, 16, 16),
        (50, 17, 32, 64),
        (49, 49, 32, 32),
        (197, 197, 64, 64),
        (3, 80, 65, 100),
        (130, 33, 7, 129),
        (100, 100, 32, 32),
    ],
)
def test_sizes(hold, rows, keys, head, width):
    arrays = operands((2, rows, head), (2, keys, head), (2, keys, width))
    hold(ATTENTION_ROWS, Attention(head**-0.5), arrays, k=keys + head)


@pytest.mark.parametrize("case", ATTENTIONS, ids=lambda case: case.name)
def test_every_case_is_taken(case):
    assert ATTENTION_ROWS.supports(call_of(case)) is None


@pytest.mark.parametrize("text", ["relu($0)", "hardswish($0)", "mul($0, sigmoid($0))"])
def test_epilogue(hold, text):
    op = Attention(0.25, epilogue=parse(text))
    hold(ATTENTION_ROWS, op, operands((21, 16), (35, 16), (35, 24)), k=64, runs=FEW)


@pytest.mark.parametrize("mask", [(45, 70), (1, 70), (45, 1), (1, 1)])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_masks(hold, mask, scale):
    arrays = operands((3, 45, 8), (3, 70, 8), (3, 70, 8), mask)
    hold(ATTENTION_ROWS, Attention(scale), arrays, k=80, runs=FEW)


def test_scores_that_no_power_of_float32_holds(hold):
    arrays = operands((9, 16), (40, 16), (40, 8))
    hold(ATTENTION_ROWS, Attention(40.0), arrays, k=4096, runs=FEW)


# Rows in parts


def far_keys(keys):
    """Operands whose largest scores come in the last part, and a mask that hides the first one."""
    q, k, v = operands((20, 8), (keys, 8), (keys, 12))
    k[-3:] *= 8
    mask = np.zeros((20, keys), np.float32)
    mask[1::2, :700] = -np.inf
    return [q, k, v, mask]


@pytest.mark.parametrize("keys", [1281, 1729, 2000])
def test_many_keys_come_in_parts(hold, keys):
    assert config_of(plain((), 20, keys, 8, 12)).part == 576
    hold(ATTENTION_ROWS, Attention(0.5), far_keys(keys), k=keys, runs=FEW)


def test_rows_come_whole_up_to_a_number_of_keys():
    assert config_of(plain((), 20, 1280, 8, 12)).part == 0


@pytest.mark.parametrize("keys", [40, 1300])
@pytest.mark.parametrize("hidden", [True, False])
def test_rows_without_keys(hold, keys, hidden):
    q, k, v, mask = (*operands((6, 8), (keys, 8), (keys, 12)), np.zeros((6, keys), np.float32))
    mask[2] = -np.inf
    op = Attention(0.5, hidden=hidden)
    (expected,) = op.reference(q, k, v, mask)
    assert np.isnan(expected[2]).all() != hidden and np.isfinite(expected[3]).all()
    hold(ATTENTION_ROWS, op, [q, k, v, mask], k=keys, runs=FEW)


@pytest.mark.parametrize("keys", [40, 1300])
def test_a_score_that_is_no_number_spoils_its_row_alone(hold, keys):
    arrays = operands((6, 8), (keys, 8), (keys, 12))
    arrays[0][2, 3] = np.nan
    hold(ATTENTION_ROWS, Attention(0.5), arrays, k=keys, runs=FEW)


# Cuts and variants


def test_scores_of_a_chunk_stay_in_a_part_of_the_l2_cache():
    for keys in (50, 1000, 1280, 5000):
        launch = ATTENTION_ROWS.launch(plain((2,), 3000, keys, 64, 64))[-1]
        scores = launch.operands["scores"]
        assert isinstance(scores, Scratch)
        assert scores.nbytes <= ZEN4.l2 // 2, keys


def test_few_rows_are_shared_by_all_threads():
    (*_, launch) = ATTENTION_ROWS.launch(plain((), 60, 50, 64, 64))
    assert launch.chunks >= 4


def test_keys_of_the_last_block_are_no_more_than_there_are():
    whole = config_of(plain((4,), 300, 256, 64, 64))
    assert (whole.last_vectors, whole.last_rows) == (whole.vectors, whole.rows)
    one = config_of(plain((4,), 300, 257, 64, 64))
    assert one.last_vectors == 17 % one.vectors


@pytest.mark.parametrize("machine", [ZEN4, described_target("zen4", "avx2")])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_every_number_of_keys_has_variants(machine, rows):
    for keys in (*range(1, 150), *range(1275, 1300)):
        for head in (1, 8, 32, 300):
            call = plain((), rows, keys, head, 16, machine)
            for variant in ATTENTION_ROWS.variants(call):
                config = variant.launches[-1].config
                assert 1 <= config.last_vectors <= config.vectors and config.last_rows >= 1


def test_values_that_lie_apart_are_gathered_first():
    near = plain((), 300, 200, 64, 64)
    assert not config_of(near).values_packed
    q, k, v = near.inputs
    apart = replace(near, inputs=(q, k, View(F32, v.shape, (192, 1))))
    assert config_of(apart).values_packed
    few = plain((), 20, 200, 64, 64)
    assert not config_of(replace(few, inputs=(*few.inputs[:2], apart.inputs[2]))).values_packed


@pytest.mark.parametrize("keys", [70, 1300])
def test_variants_give_equal_bits_whatever_the_team(keys):
    arrays = operands((33, 24), (keys, 24), (keys, 40))
    (truth,) = Attention(0.3).reference(*(a.astype(np.float64) for a in arrays))
    chosen, results = [], []
    kernel = launched_as(ATTENTION_ROWS, lambda _call: chosen[-1].launches)
    for threads in (1, 2, 7):
        call = plain((), 33, keys, 24, 40, runnable_target(), threads)
        for variant in ATTENTION_ROWS.variants(call):
            chosen.append(variant)
            (result,) = run_kernel(
                kernel, call.op, arrays, call.outputs, inputs=call.inputs,
                constant=call.constant, isa=call.target, threads=threads,
            )  # fmt: skip
            results.append(result)
    assert_close(results[0], truth, k=keys, dtype=F32)
    assert len(results) > 6 and {result.tobytes() for result in results} == {results[0].tobytes()}


def test_what_it_refuses():
    call = plain((), 5, 7, 8, 8)
    narrow = tuple(View(DType.BF16, v.shape, v.strides) for v in call.inputs)
    refused = ATTENTION_ROWS.supports(replace(call, inputs=narrow))
    assert refused == "elements are bfloat16"
    mask = View(F32, (5, 7), (14, 2))
    refused = ATTENTION_ROWS.supports(replace(call, inputs=(*call.inputs, mask)))
    assert refused == "keys of the mask are no neighbours"
    assert ATTENTION_ROWS.supports(plain((), 5, 0, 8, 8)) == "no keys"
    many = [(2, 1, 2, 5, 8), (1, 3, 2, 5, 8), (1, 1, 2, 5, 8)]
    views = tuple(row_major(F32, shape) for shape in many)
    apart = replace(call, inputs=views, outputs=(row_major(F32, (2, 3, 2, 5, 8)),))
    assert ATTENTION_ROWS.supports(apart) == "the batch axes do not merge into two"
