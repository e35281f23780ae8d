# ruff: noqa: E501 - tables with one model a line
"""ONNX Runtime's attention, against itself; packed forms, which its CPUs lack, against others."""

from __future__ import annotations

import numpy as np
import pytest
from contrib_nodes import close, draw, one_node, ours

from saccade.backends.fusions.fuse_attention import refuse
from saccade.errors import ModelError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.passes import run

B, S, T, H, N = 2, 5, 7, 12, 3
SELF = {"X": draw(B, S, H), "w": draw(H, 3 * H, scale=0.3), "b": draw(3 * H)}
CROSS = {"Q": draw(B, S, H), "K": draw(B, T, H, seed=3), "V": draw(B, T, 9, seed=4), "b": None}
HIDDEN = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)


def hidden(*shape):
    mask = (np.random.default_rng(0).random(shape) > 0.4).astype(np.int32)
    mask[..., 0] = 1
    return mask


ATTENTION = {
    "plain": (SELF, {}),
    "scaled": (SELF, {"scale": 0.2}),
    "without a bias": ({**SELF, "b": None}, {}),
    "causal": (SELF, {"unidirectional": 1}),
    "values of another size": (
        {"X": SELF["X"], "w": draw(H, 33, scale=0.3), "b": draw(33)}, {"qkv_hidden_sizes": [12, 12, 9]},
    ),
    "a mask of keys": ({**SELF, "m": HIDDEN}, {}),
    "a mask of keys, causal": ({**SELF, "M": HIDDEN}, {"unidirectional": 1}),
    "a weak mask": ({**SELF, "m": HIDDEN}, {"mask_filter_value": -3.0}),
    "a mask of pairs": ({**SELF, "M": hidden(B, S, S)}, {}),
    "a bias of scores": ({**SELF, "m": None, "p": None, "A": draw(B, N, S, S)}, {}),
    "a mask and a bias": ({**SELF, "m": HIDDEN, "p": None, "a": draw(1, 1, S, S)}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_of_a_sequence_with_itself(name):
    operands, attributes = ATTENTION[name]
    close(one_node("Attention", operands, num_heads=N, **attributes), operands)


HEADS = {
    "plain": (CROSS, {}),
    "biases and a scale": ({**CROSS, "b": draw(H + H + 9)}, {"scale": 0.3}),
    "a mask of keys": ({**CROSS, "m": hidden(B, T)}, {}),
    "a mask of pairs": ({**CROSS, "M": hidden(B, S, T)}, {}),
    "a bias of scores": ({**CROSS, "m": None, "A": draw(B, N, S, T)}, {}),
    "everything": ({**CROSS, "b": draw(33), "m": hidden(B, T), "a": draw(1, N, S, T)}, {}),
    "an encoder's heads": (
        {"Q": CROSS["Q"], "K": draw(B, N, T, 4), "V": draw(B, N, T, 4, seed=1)}, {},
    ),
    "causal": ({"Q": CROSS["Q"], "K": draw(B, S, H, seed=3), "V": draw(B, S, H, seed=8)}, {"unidirectional": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_attention_of_queries_and_keys(name):
    operands, attributes = HEADS[name]
    close(one_node("MultiHeadAttention", operands, num_heads=N, **attributes), operands)


def test_packed_operands_are_those_apart():
    q, k, v = (draw(B, S, N, 4, seed=i) for i in range(3))
    flat = [x.reshape(B, S, H) for x in (q, k, v)]
    apart = dict(zip("QKV", flat, strict=True))
    expected = ours(one_node("MultiHeadAttention", apart, kind=1, num_heads=N), apart)["y"]
    for operands in (
        {"Q": np.stack([q, k, v], axis=3), "K": None, "V": None},
        {"Q": flat[0], "K": np.stack([k, v], axis=3), "V": None},
    ):
        model = one_node("MultiHeadAttention", operands, kind=1, num_heads=N)
        np.testing.assert_allclose(ours(model, operands)["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["causal", "a mask and a bias", "a mask of keys, causal"])
def test_attention_in_16_bits(name):
    operands, attributes = ATTENTION[name]
    floats = {n: a for n, a in operands.items() if a is not None and a.dtype == np.float32}
    halves = operands | {n: a.astype(np.float16) for n, a in floats.items()}
    same = operands | {n: a.astype(np.float16).astype(np.float32) for n, a in floats.items()}
    made = ours(one_node("Attention", halves, kind=10, num_heads=N, **attributes), halves)["y"]
    truth = ours(one_node("Attention", same, kind=1, num_heads=N, **attributes), same)["y"]
    assert made.dtype == np.float16
    np.testing.assert_allclose(made.astype(np.float32), truth, atol=4e-3)


def test_lengths_of_sequences_may_vary():
    model = one_node("Attention", SELF, kind=1, free="X", num_heads=N)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "L"
    close(model, SELF)


def test_the_usual_steps_of_an_attention_are_left_to_fuse():
    operands = {**SELF, "m": HIDDEN}
    graph = run(frontend.load(one_node("Attention", operands, kind=1, num_heads=N)), check=True)
    steps = [node.op.family for node in graph.nodes if node.op.family != "Move"]
    assert steps == ["MatMul", "MatMul", "Softmax", "MatMul"]
    (softmax,) = (node for node in graph.nodes if node.op.family == "Softmax")
    assert refuse(graph, softmax) is None


REFUSED = {
    "a past": ("Attention", {**SELF, "m": None, "P": draw(2, B, N, 3, 4)}, {}, "past keys"),
    "lengths": ("Attention", {**SELF, "m": np.array([3, 4], np.int32)}, {}, "lengths of sequences"),
    "rotary": ("Attention", SELF, {"do_rotary": 1}, "'do_rotary'"),
    "four axes": ("Attention", {**SELF, "m": np.ones((B, 1, S, S), np.int32)}, {}, "4 axes"),
    "another past": ("MultiHeadAttention", {**CROSS, "m": None, "a": None, "P": draw(B, N, 2, 4)}, {}, "its input 6"),
    "causal queries of another length": ("MultiHeadAttention", CROSS, {"unidirectional": 1}, "'unidirectional'"),
    "present keys": ("MultiHeadAttention", CROSS, {"outputs": ("y", "k")}, "its output 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_done_is_named(name):
    op, operands, attributes, reason = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=reason):
        frontend.load(one_node(op, operands, kind=1, num_heads=N, **attributes))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"num_heads": 0}, "0 heads"), ({"num_heads": 5}, "in 5 heads"),
        ({"num_heads": N, "qkv_hidden_sizes": [12, 12, 13]}, "qkv_hidden_sizes"),
    ],
)  # fmt: skip
def test_what_contradicts_itself(attributes, message):
    with pytest.raises(ModelError, match=message):
        frontend.load(one_node("Attention", SELF, kind=1, **attributes))
