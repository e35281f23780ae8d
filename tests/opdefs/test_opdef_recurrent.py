"""Recurrent layers: the reference against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.ir.expr import IDENTITY, apply, arg
from saccade.opdefs import Recurrent

SIGMOID, TANH = apply("sigmoid", arg(0)), apply("tanh", arg(0))
# Where PyTorch has each of our gates.
ORDER = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}
LAYERS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}


def _gates(array, kind, size):
    """Rows of PyTorch's gates in ONNX's order."""
    return np.concatenate([array[g * size : (g + 1) * size] for g in ORDER[kind]])


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("kind", LAYERS)
def test_layers(kind, directions):
    steps, batch, features, size = 4, 3, 5, 6
    torch.manual_seed(0)
    layer = LAYERS[kind](features, size, bidirectional=directions == 2).double()
    x = torch.randn(steps, batch, features, dtype=torch.float64)
    h = torch.randn(directions, batch, size, dtype=torch.float64)
    c = torch.randn(directions, batch, size, dtype=torch.float64)
    with torch.no_grad():
        wanted, last = layer(x, (h, c) if kind == "lstm" else h)
    parts = {n: p.detach().numpy() for n, p in layer.named_parameters()}
    inputs, weights, biases = [], [], []
    for suffix in ("", "_reverse")[:directions]:
        w, r, wb, rb = (
            _gates(parts[f"{name}_l0{suffix}"], kind, size)
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        kept = rb.copy()
        if kind == "gru":
            kept[2 * size :] = 0
        inputs.append(x.numpy() @ w.T + wb + kept)
        weights.append(r)
        biases.append(rb[-size:])
    activations = (IDENTITY, TANH, IDENTITY) if kind == "rnn" else (SIGMOID, TANH, TANH)
    op = Recurrent(kind, activations, linear=kind == "gru", started=True)
    operands = [np.stack(inputs, 2), np.stack(weights), h.numpy()]
    operands += [c.numpy()] * (kind == "lstm") + [np.stack(biases)] * (kind == "gru")
    states, *ends = op.reference(*operands)
    ours = states.transpose(0, 2, 1, 3).reshape(steps, batch, -1)
    np.testing.assert_allclose(ours, wanted.numpy(), atol=1e-12)
    for end, expected in zip(ends, last if kind == "lstm" else (last,), strict=True):
        np.testing.assert_allclose(end, expected.numpy(), atol=1e-12)


def test_steps_behind_the_end_change_nothing():
    generator = np.random.default_rng(0)
    op = Recurrent("gru", (SIGMOID, TANH, IDENTITY), varying=True)
    x, r = generator.normal(size=(5, 2, 2, 9)), generator.normal(size=(2, 9, 3))
    states, last = op.reference(x, r, np.array([3, 5]))
    short, short_last = op.reference(x[:3, :1], r, np.array([3]))
    np.testing.assert_allclose(states[:3, :, :1], short, atol=1e-15)
    np.testing.assert_allclose(last[:, :1], short_last, atol=1e-15)
    assert not states[3:, :, 0].any()


@pytest.mark.parametrize(
    "shapes",
    [
        [(4, 2, 1, 12), (1, 12, 4)], [(4, 2, 3, 16), (3, 16, 4)], [(4, 2, 1, 16), (1, 16, 5)],
        [(4, 2, 1, 16)], [(4, 2, 1, 16), (1, 16, 4), (1, 2, 4)],
    ],
)  # fmt: skip
def test_what_does_not_fit(shapes):
    with pytest.raises(ModelError):
        Recurrent("lstm", (SIGMOID, TANH, TANH)).infer([TensorType(DType.F32, s) for s in shapes])
