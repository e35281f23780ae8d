"""What Winograd's convolution is made of: transforms, weights, variants, refusals. None is run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scalar_transforms import Builder, Number

from saccade.backends.cpu.target import NOMINAL_THREADS
from saccade.ir import DType, TensorType
from saccade.ir.expr import apply, arg
from saccade.kernels.base import Call
from saccade.kernels.cpu.conv2d import winograd_schedule
from saccade.kernels.cpu.conv2d.pack_winograd import pack_winograd
from saccade.kernels.cpu.conv2d.winograd import CONV2D_WINOGRAD
from saccade.kernels.cpu.conv2d.winograd_points import WinogradTile, accurate, bases, weight_matrix
from saccade.kernels.cpu.conv2d.winograd_schedule import Problem, ranked
from saccade.kernels.cpu.conv2d.winograd_transforms import forward, inverse
from saccade.kernels.cpu.machine import machine
from saccade.opdefs import Conv2d
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import random_operands

F32 = DType.F32


def test_tiles_that_would_round_too_much_are_no_variants():
    target = ZEN4

    def bases(channels):
        return {s.m for s in ranked(Problem(8, 56, 56, channels, 4, 2, target))}

    assert bases(512) == {2, 4, 6}
    assert bases(1024) == {2, 4}
    assert not any(accurate(m, 100_000) for m in (4, 6))


TILES = [
    WinogradTile(base, m, stride)
    for stride in (1, 2)
    for base in bases(stride)
    for m in range(1, base + 1)
]


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_every_tile_shares_the_weights_of_its_base(tile):
    rng = np.random.default_rng(tile.base)
    d, g = rng.standard_normal(tile.count), rng.standard_normal(3)
    weights = weight_matrix(tile.base, tile.stride) @ g
    assert len(weights) == tile.weights
    spectrum = dict(forward(Builder(), tile, lambda i: Number(d[i])))
    assert sorted(spectrum) == list(tile.frequencies)
    products = {f: v * weights[min(f, tile.weights - 1)] for f, v in spectrum.items()}
    found = dict(inverse(Builder(), tile, products.__getitem__))
    truth = [d[i * tile.stride :][:3] @ g for i in range(tile.m)]
    np.testing.assert_allclose([found[i].value for i in range(tile.m)], truth, rtol=0, atol=1e-13)


def call(op, *shapes, constant=(False, True), x=None, y=None, exact=False):
    inputs = [x or nhwc_view(F32, shapes[0]), *(row_major(F32, s) for s in shapes[1:])]
    (kind,) = op.infer([TensorType(F32, v.shape) for v in inputs])
    output = y or nhwc_view(F32, kind.shape)
    known = constant + (True,) * (len(inputs) - 2)
    return Call(op, tuple(inputs), (output,), known, ZEN4, 2, exact)


X, W = (1, 8, 9, 9), (8, 8, 3, 3)
REFUSED = [
    ("float32", lambda: call(Conv2d(), X, W, x=nhwc_view(DType.F16, X))),
    ("rounds", lambda: call(Conv2d(), X, W, exact=True)),
    ("3x3", lambda: call(Conv2d(), X, (8, 8, 1, 1))),
    ("both ways", lambda: call(Conv2d(stride=(2, 1)), X, W)),
    ("both ways", lambda: call(Conv2d(stride=(3, 3)), X, W)),
    ("neighbouring", lambda: call(Conv2d(stride=(2, 2), dilation=(2, 2)), X, W)),
    ("hardly any neighbours", lambda: call(Conv2d(dilation=(1, 4)), X, W)),
    ("3x3", lambda: call(Conv2d(groups=2), X, (8, 4, 3, 3))),
    ("prologue", lambda: call(Conv2d(prologue=apply("relu", arg(0))), X, W)),
    ("known", lambda: call(Conv2d(), X, W, constant=(False, False))),
    ("channels-last", lambda: call(Conv2d(), X, W, x=row_major(F32, X))),
    ("channels-last", lambda: call(Conv2d(), X, W, y=row_major(F32, (1, 8, 7, 7)))),
]


@pytest.mark.parametrize(("reason", "make"), REFUSED)
def test_refuses(reason, make):
    assert reason in CONV2D_WINOGRAD.supports(make())


def test_takes_what_it_does_not_refuse():
    assert CONV2D_WINOGRAD.supports(call(Conv2d(padding=(1, 1, 1, 1)), X, W)) is None


@pytest.mark.parametrize("m", bases(1))
@pytest.mark.parametrize("order", ["natural", "subpixel:CRD:2:16"])
def test_packed_weights_are_the_transformed_ones(m, order):
    weights = random_operands((12, 5, 3, 3), F32, np.random.default_rng(3))
    packed = pack_winograd(weights, m, 32, order)
    swapped = pack_winograd(weights, m, 32, order, True)
    np.testing.assert_array_equal(packed, swapped.swapaxes(0, 1))
    g = weight_matrix(m)
    truth = np.einsum("ai,kcij,bj->abck", g, weights.astype(np.float64), g).reshape(-1, 5, 12)
    if order == "natural":
        have = packed.transpose(1, 2, 0, 3).reshape(-1, 5, packed.shape[0] * 32)
        assert not have[..., 12:].any()
        have = have[..., :12]
    else:  # sub-pixel i holds channels i, i+4, i+8
        have = packed.transpose(1, 2, 0, 3).reshape(-1, 5, 4, 16)
        assert not have[..., 3:].any()
        have = have[..., :3].swapaxes(2, 3).reshape(-1, 5, 12)
    np.testing.assert_allclose(have, truth, rtol=0, atol=3e-7 * np.abs(truth).max())


def test_large_images_go_block_by_block():
    target = ZEN4
    wide = next(ranked(Problem(1, 180, 320, 64, 4, 2, target)))
    assert wide.m > 2
    assert not wide.phased


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("threads", [1, 2, 16])
def test_the_best_tiles_are_found_without_asking_all(monkeypatch, stride, threads):
    """Bounds leave forms out; what is taken is what estimates of all of them would give."""
    asked = []
    real = winograd_schedule._Form.variants
    monkeypatch.setattr(
        winograd_schedule._Form, "variants", lambda form: asked.append(form) or real(form)
    )
    rng, skipped, speed = np.random.default_rng(0), 0, machine(ZEN4)
    for _ in range(60):
        images, rows, columns = (int(n) for n in rng.integers((1, 3, 3), (9, 120, 120)))
        channels, vectors = (int(n) for n in rng.integers((8, 1), (600, 33)))
        p = Problem(images, rows, columns, channels, vectors, threads, ZEN4, stride=stride)
        nominal = replace(p, threads=NOMINAL_THREADS)
        forms = winograd_schedule._forms(nominal)
        times = []
        for form in forms:
            variants = real(winograd_schedule._Form.of(nominal, *form, speed))
            times.append(min(one.micros for one in variants))
            bound = winograd_schedule._least_micros(nominal, *form, speed)
            assert bound * winograd_schedule._ROUNDED_OFF <= times[-1]
        winograd_schedule._best_tiles.cache_clear()
        asked.clear()
        winograd_schedule._best_tiles(nominal)
        skipped += len(forms) - len(asked)
        first, *others = ranked(p)
        best = forms[times.index(min(times))]
        assert (first.m, first.edges) == best
        own = [one for one in (first, *others) if (one.m, one.edges) == best]
        rest = others[len(own) - 1 :]
        assert [first, *others] == own + rest
        for part in (own, rest):
            assert [one.micros for one in part] == sorted(one.micros for one in part)
        whole = [real(winograd_schedule._Form.of(p, *form, speed)) for form in forms]
        assert sorted(own + rest) == sorted(one for variants in whole for one in variants)
    assert skipped > 20


def test_estimates_grow_with_the_work():
    target = ZEN4
    sizes = [(1, 14, 14), (1, 28, 28), (1, 56, 56), (8, 56, 56)]
    costs = [next(ranked(Problem(n, h, w, 64, 4, 2, target))).micros for n, h, w in sizes]
    assert costs == sorted(costs)
    assert len(list(ranked(Problem(1, 56, 56, 64, 4, 2, target)))) >= 3
