"""Norms against PyTorch's own: values, gradients twice, corners, and what PyTorch sees of them."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade import ops
from saccade.errors import OperandError
from saccade.ops.vector_norm import vector_norm

module = sys.modules["saccade.ops.vector_norm"]  # whose name is the function's in its package
INF = math.inf
POWERS = [0, 1, 2, 3, INF, -INF, 2.5, 1.5, 0.5, -1]
DTYPES = {torch.float32: 3e-6, torch.float64: 1e-14, torch.bfloat16: 8e-3, torch.float16: 1e-3}
theirs = torch.linalg.vector_norm


def both(x, *how, **options):
    """Results and gradients of ours, and of PyTorch's in float64."""
    found = []
    for function, leaf in ((vector_norm, x.detach()), (theirs, x.detach().double())):
        leaf.requires_grad_()
        y = function(leaf, *how, **options)
        grad = torch.linspace(0.5, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
        (dx,) = torch.autograd.grad(y, leaf, grad, allow_unused=True)
        found += [y, dx]
    return found


def agree(x, *how, tolerance=3e-6, **options):
    y, dx, true, slope = both(x, *how, **options)
    assert y.shape == true.shape
    torch.testing.assert_close(y.double(), true, rtol=tolerance, atol=tolerance, equal_nan=True)
    if slope is None:
        assert dx is None
        return
    assert dx.dtype == x.dtype
    top = max(1.0, slope.abs().nan_to_num(0).max().item()) if slope.numel() else 1.0
    torch.testing.assert_close(
        dx.double(), slope, rtol=4 * tolerance, atol=4 * tolerance * top, equal_nan=True
    )


@pytest.mark.parametrize("p", POWERS)
def test_powers(p):
    x = torch.randn(7, 33)
    x[0, ::5] = 0
    agree(x.abs() + 0.1 if p < 0 else x, p, 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [2, INF])
def test_dtypes(dtype, p):
    x = torch.randn(7, 33, dtype=dtype)
    agree(x, p, 0, tolerance=DTYPES[dtype])
    assert vector_norm(x, p).dtype == dtype
    assert vector_norm(x, p, 1, dtype=torch.float64).dtype == torch.float64


@settings(max_examples=25)
@given(data=st.data())
def test_any_shape_strides_and_axes(data):
    shape = data.draw(st.lists(st.integers(1, 9), max_size=4))
    rank = len(shape)
    axes = (
        data.draw(st.one_of(st.none(), st.lists(st.integers(0, rank - 1), unique=True)))
        if rank
        else None
    )
    keepdim, p = data.draw(st.booleans()), data.draw(st.sampled_from([2, INF]))
    order = data.draw(st.permutations(range(rank)))
    step = data.draw(st.integers(1, 2))
    count = math.prod(shape) * step
    x = (torch.arange(count) % 7 - 3.0)[::step].reshape(shape).permute(order)
    if rank and data.draw(st.booleans()):
        x = x.narrow(0, 0, 1).expand(x.shape)
    agree(x, p, axes and [a - rank * (a % 2) for a in axes], keepdim)


@pytest.mark.parametrize("p", POWERS)
def test_corners(p):
    """NaN, zeros, ties, infinities, powers out of range; then gradients that are not finite."""
    nan, far = math.nan, 1e30
    rows = [[1.0, nan, -2], [0, 0, 0], [2, -2, 2], [0, 0, 1], [INF, 1, -INF], [far, far, 1]]
    leaf, twin = (torch.tensor(rows, requires_grad=True) for _ in range(2))
    y, true = vector_norm(leaf, p, 1), theirs(twin, p, 1)
    torch.testing.assert_close(y, true, equal_nan=True)
    if p != 0:
        for grad in (torch.arange(6.0) - 2, torch.tensor([nan, nan, INF, -INF, 1, 0])):
            (dx,) = torch.autograd.grad(y, leaf, grad, retain_graph=True)
            (want,) = torch.autograd.grad(true, twin, grad, retain_graph=True)
            torch.testing.assert_close(dx, want, equal_nan=True)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_axes_of_other_integers(axis):
    x = torch.randn(3, 4)
    for dim in (
        np.int64(axis),
        [np.int32(axis)],
        torch.tensor(axis),
        range(axis % 2, axis % 2 + 1),
    ):
        assert torch.equal(vector_norm(x, 2, dim), vector_norm(x, 2, axis))


@pytest.mark.parametrize("p", [2, 0, 3, INF, -1])
def test_no_elements(p):
    for shape, dim in (((0, 3), 1), ((0, 3), 0), ((0, 3), None), ((2, 0), ()), ((0,), 0)):
        x = torch.zeros(shape)
        try:
            want = theirs(x, p, dim)
        except RuntimeError:
            with pytest.raises(OperandError, match="does not have an identity"):
                vector_norm(x, p, dim)
        else:
            assert torch.equal(vector_norm(x, p, dim), want)


@pytest.mark.parametrize("p", [1, 2, 3, INF, -INF, 2.5, 1.5, 0.5, -1])
def test_gradients_twice(p):
    torch.manual_seed(3)
    x = (torch.randn(3, 5, dtype=torch.float64) + 3 * torch.randn(3, 5).sign()).requires_grad_()

    def call(t):
        return vector_norm(t, p, 1, p in (2, INF))

    assert torch.autograd.gradcheck(call, x)
    assert torch.autograd.gradgradcheck(call, x)


def test_a_hessian_with_zeros_is_finite():
    x = torch.tensor([[0.0, 3, 4], [0, 0, 0]], dtype=torch.float64)
    for p in (1.5, 2, 3):
        found = torch.autograd.functional.hessian(lambda t, p=p: vector_norm(t, p, 1).sum(), x)
        assert found.isfinite().all()


@pytest.mark.parametrize("shape", [(300, 250, 3), (4, 70_000)])
def test_threads_change_no_bit(shape):
    x, before = torch.randn(shape), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            leaf = x.clone().requires_grad_()
            for p in (2, INF):
                y = vector_norm(leaf, p, 1)
                found.append((y, torch.autograd.grad(y.sum(), leaf)[0]))
    finally:
        torch.set_num_threads(before)
    for a, b in zip(found[:2], found[2:], strict=True):
        assert all(torch.equal(*pair) for pair in zip(a, b, strict=True))


def test_formats_stay():
    x = torch.randn(2, 5, 4, 3).to(memory_format=torch.channels_last).requires_grad_()
    y = vector_norm(x, 2, 1)
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert y.is_contiguous()
    assert dx.stride() == x.stride()
    torch.testing.assert_close(y, vector_norm(x.contiguous(), 2, 1))


def test_16_bit_gradients_come_from_the_exact_norm():
    x = torch.randn(1, 4000).bfloat16().requires_grad_()
    (dx,) = torch.autograd.grad(vector_norm(x, 10, 1).sum(), x)
    wide = x.detach().double().requires_grad_()
    (want,) = torch.autograd.grad(theirs(wide, 10, 1).sum(), wide)
    torch.testing.assert_close(dx.double(), want, rtol=2**-8, atol=1e-30)


# How axes are gone along does not depend on the power, but on whether it is a sum or a maximum.
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("p", "axis"),
    [*((p, 1) for p in POWERS), *((p, axis) for p in (2, INF) for axis in (0, (0, 1)))],
)
def test_who_asks_for_no_gradient_gets_the_same_bits_from_one_pass(dtype, p, axis, monkeypatch):
    asked = []
    whole = module._NORM
    monkeypatch.setattr(module, "_NORM", lambda *how: (asked.append(how[-1]), whole(*how))[1])
    x = torch.randn(37, 41).to(dtype)
    alone = vector_norm(x, p, axis)
    with torch.no_grad():
        quiet = vector_norm(x.clone().requires_grad_(), p, axis)
    learning = vector_norm(x.clone().requires_grad_(), p, axis)
    transformed = torch.func.vmap(lambda one: vector_norm(one, p, axis))(x[None])[0]
    assert asked == [dtype, dtype, torch.float32, torch.float32]
    assert learning.requires_grad
    for other in (quiet, learning.detach(), transformed):
        assert other.dtype is dtype
        assert torch.equal(alone, other)


def test_sums_of_many_numbers():
    x = torch.rand(3_000_000) + 0.5
    for p in (1, 2, 3):
        torch.testing.assert_close(
            vector_norm(x, p).double(), theirs(x.double(), p), rtol=3e-7, atol=0
        )


def test_complex_is_its_magnitude():
    z = torch.randn(4, 5, dtype=torch.complex64, requires_grad=True)
    y, want = vector_norm(z, 3, 1), theirs(z, 3, 1)
    torch.testing.assert_close(y, want)
    grads = [torch.autograd.grad(v.sum(), z)[0] for v in (y, want)]
    torch.testing.assert_close(*grads)
    assert vector_norm(z, dtype=torch.complex128).dtype == torch.float64


def test_pytorch_sees_an_operator():
    x = torch.randn(3, 4, 5, requires_grad=True)
    for p, dims in ((2.0, [1]), (INF, [0, 2])):
        arguments = (x, p, dims, False, torch.float32)
        torch.library.opcheck(torch.ops.saccade.vector_norm.default, arguments)
    y = vector_norm(x, 3, 1).detach()
    torch.library.opcheck(
        torch.ops.saccade._vector_norm_backward.default,
        (y.clone().requires_grad_(), x, y, None, 3.0, [1], False),
    )
    compiled = torch.compile(
        lambda t: vector_norm(t, "fro", (0, -1)) * 2, fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(x), 2 * theirs(x, 2, (0, 2)))
    torch.testing.assert_close(
        torch.autograd.grad(compiled(x).sum(), x),
        torch.autograd.grad(2 * theirs(x, 2, (0, 2)).sum(), x),
    )


def test_batches():
    x = torch.randn(3, 4, 5)
    y = torch.func.vmap(lambda t: vector_norm(t, 2), 1)(x)
    torch.testing.assert_close(y, theirs(x, 2, (0, 2)))
    backward = torch.ops.saccade._vector_norm_backward.default
    each = torch.func.vmap(
        lambda g, t, n: backward(g, t, n, None, 2.0, [0], False), (None, 1, None)
    )
    g, n = torch.randn(5), torch.rand(5) + 1
    torch.testing.assert_close(each(g, x, n)[2], x[:, 2] * (g / n))


def tied(operands, how):
    """What a GPU's kernel counts with the norm."""
    (x,), (p, axes, keepdim, dtype) = operands, how
    norm = theirs(x.to(dtype), p, axes, keepdim)
    held = theirs(x.to(dtype), p, axes, True)
    return norm, (x.abs() == held).sum(axes, keepdim, dtype=torch.int32)


@pytest.fixture
def kept(monkeypatch):
    """The CPU in a GPU's place."""
    monkeypatch.setattr(module, "_on_gpu", lambda x: x.device.type == "cpu")
    monkeypatch.setattr(module, "_TIED_ON_MEMORY", tied)
    gradient = module.norm_gradient

    def counting(grad, x, norm, ties, *how):
        assert (ties is None) == (not math.isinf(how[0]))
        return gradient(grad.to(norm.dtype), x, norm, None, *how)

    monkeypatch.setattr(module, "norm_gradient", counting)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [1, 2, 2.5, 0, INF, -INF])
@pytest.mark.parametrize("keepdim", [False, True])
def test_what_gpus_keep_for_the_gradient(kept, p, dtype, keepdim):
    x = torch.randn(5, 24).mul(4).round().div(4).to(dtype)
    name = vector_norm(x.clone().requires_grad_(), p, 1).grad_fn.name()
    direct = p != 0 and (math.isinf(p) or dtype in (torch.float16, torch.bfloat16))
    assert ("_KeptNorm" in name) == direct
    agree(x, p, 1, keepdim, tolerance=DTYPES[dtype])


@pytest.mark.parametrize("p", [2, 3, INF])
def test_what_gpus_keep_is_differentiated_twice(kept, p):
    x = torch.randn(4, 6, dtype=torch.float64)
    assert torch.autograd.gradgradcheck(lambda t: vector_norm(t, p, 0), x.requires_grad_())
    half = x.detach().to(torch.float16)
    slopes = []
    for function, leaf in ((vector_norm, half), (theirs, half.double())):
        leaf.requires_grad_()
        (slope,) = torch.autograd.grad(function(leaf, p, 1).pow(2).sum(), leaf, create_graph=True)
        slopes.append(torch.autograd.grad(slope.pow(2).sum(), leaf)[0].double())
    torch.testing.assert_close(*slopes, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("powers", [(2, 3), (INF, -INF)])
def test_many_gradients_at_once(powers, request):
    x = torch.randn(3, 8, requires_grad=True)
    many = torch.randn(4, 3)
    if INF in powers:
        request.getfixturevalue("kept")
    for p in powers:
        ours, true = (
            torch.autograd.grad(norm(x, p, 1), x, many, is_grads_batched=True)[0]
            for norm in (vector_norm, theirs)
        )
        torch.testing.assert_close(ours, true)


def test_autocast_keeps_dtypes():
    with torch.autocast("cpu", torch.bfloat16):
        assert vector_norm(torch.randn(4).bfloat16()).dtype == torch.bfloat16
        assert vector_norm(torch.randn(4)).dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vector_norm(torch.zeros(3, dtype=torch.int32)), "Expected a floating point"),
        (lambda: vector_norm(torch.zeros(3), dtype=torch.bfloat16), "without narrowing"),
        (lambda: vector_norm(torch.zeros(3), dtype=torch.int32), "should be floating point"),
        (lambda: vector_norm(torch.zeros(3), dtype=torch.complex64), "should be real"),
        (lambda: vector_norm(torch.zeros(3, 3), dim=2), "out of range"),
        (lambda: vector_norm(torch.zeros(3, 3), dim=(0, -2)), "appears multiple times"),
        (lambda: vector_norm(torch.zeros(3), "nuc"), "no norm of vectors"),
        (lambda: vector_norm(torch.zeros(3), 1j), "non-complex"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(OperandError, match=message):
        call()


def test_exported():
    assert ops.vector_norm is vector_norm
