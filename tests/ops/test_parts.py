"""What kernels of GPUs cannot count is done in parts: a small most, on the CPU's kernels."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch

from saccade import ops

PARTS = import_module("saccade.ops._parts")
NORM, REARRANGE = map(import_module, ("saccade.ops.vector_norm", "saccade.ops.rearrange"))


@pytest.fixture
def few(monkeypatch):
    """No more than a hundred elements are counted; how often a call was cut."""
    cuts = []
    monkeypatch.setattr(PARTS, "_MOST", 100)
    for module in (PARTS, NORM, REARRANGE):
        monkeypatch.setattr(module, "countable", lambda tensor: tensor.numel() <= 100)
    narrow = torch.Tensor.narrow
    monkeypatch.setattr(
        torch.Tensor, "narrow", lambda *given: cuts.append(given[1:]) or narrow(*given)
    )
    return cuts


def test_parts_are_as_few_as_can_be_counted(few):
    x, y, z = torch.arange(7 * 30).view(7, 30), torch.arange(7.0), torch.ones(2)
    found = list(PARTS.parts((x, 0), (y, 0), (z, None)))
    assert [len(part) for part, _, _ in found] == [3, 3, 1]
    assert torch.equal(torch.cat([part for part, _, _ in found]), x)
    assert torch.equal(torch.cat([part for _, part, _ in found]), y)
    assert all(part is z for _, _, part in found)
    (one,) = PARTS.parts((x[:3], 0), (y[:3], 0))
    assert one[0].shape == (3, 30)
    # What cannot be cut any smaller is left to the kernels, which refuse it.
    assert len(list(PARTS.parts((x.view(1, -1), 0)))) == 1
    assert len(list(PARTS.parts((torch.empty(2, 400), 0)))) == 2


@pytest.mark.parametrize("last", [False, True])
def test_rearrangement(few, last):
    layout = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(5, 8, 4, 3).contiguous(memory_format=layout)
    y = torch.nn.functional.pixel_shuffle(x, 2)
    assert torch.equal(ops.pixel_shuffle(x, 2), y)
    assert torch.equal(ops.pixel_unshuffle(y, 2), x)
    assert len(few) >= 4


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1, (1, 2), (0, 2), None, (0, 1, 2)], ids=str)
@pytest.mark.parametrize("p", [2.0, 1.0, 0.0, 3.0, float("inf"), float("-inf"), -1.5])
def test_norms_and_gradients(few, p, dim, keepdim):
    x = torch.randn(5, 6, 14, dtype=torch.float64)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    found = ops.vector_norm(ours, p, dim, keepdim)
    wanted = torch.linalg.vector_norm(theirs, p, dim, keepdim)
    assert few
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    slope = torch.randn_like(wanted)
    if p:
        found.backward(slope)
        wanted.backward(slope)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-12)


def test_norms_of_half_precision_are_rounded_once(few):
    x = torch.rand(900).half()
    wanted = torch.linalg.vector_norm(x.double(), 3.0).half()
    assert torch.equal(ops.vector_norm(x, 3.0), wanted)


@pytest.mark.parametrize("p", [2.0, 1.5, float("inf")])
def test_gradients_of_all_elements_know_the_whole_norm(few, p):
    """Ties in several parts; half precision, whose kernels find the norm themselves."""
    x = torch.rand(5, 70).half()
    x[0, 3] = x[1, 7] = x[1, 9] = -2.0
    ours, theirs = x.clone().requires_grad_(), x.double().requires_grad_()
    ops.vector_norm(ours, p).backward()
    torch.linalg.vector_norm(theirs, p).backward()
    assert few
    torch.testing.assert_close(ours.grad, theirs.grad.half(), rtol=2e-3, atol=1e-5)
