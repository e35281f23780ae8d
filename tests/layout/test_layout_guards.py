"""Equalities of dims that a graph only assumes are checked once sizes are known."""

from __future__ import annotations

import numpy as np
import pytest

import saccade
from saccade.errors import PlanError
from saccade.ir import DType, Graph, Node, Value
from saccade.ir.dim_parser import parse_dims
from saccade.opdefs import Concat, Conv2d, Pool2d, Resize


def _skip_connection() -> Graph:
    """Half the size, twice the size, beside the input: sound for even H only."""
    h, half = parse_dims("H"), parse_dims("H//2")
    x = Value("x", DType.F32, (1, 4, h, 8))
    small = Value("small", DType.F32, (1, 4, half, 4))
    large = Value("large", DType.F32, (1, 4, parse_dims("2*(H//2)"), 8))
    y = Value("y", DType.F32, (1, 8, parse_dims("2*(H//2)"), 8))
    nodes = (
        Node(Pool2d(kind="max", kernel=(2, 2), stride=(2, 2)), (x,), (small,)),
        Node(Resize(sizes=large.shape, scales=(1.0, 1.0, 2.0, 2.0)), (small,), (large,)),
        Node(Concat(axis=1), (large, x), (y,), "beside"),
    )
    return Graph((x,), (y,), nodes, {}, ("y",))


def test_a_size_that_breaks_an_assumption_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.frontend.onnx.load", lambda *_, **_options: _skip_connection())
    model = saccade.compile(object(), threads=1)
    assert model(np.ones((1, 4, 6, 8), np.float32)).shape == (1, 8, 6, 8)
    with pytest.raises(PlanError, match=r"with H=7, .*'beside'.* 6 on one side and 7"):
        model(np.ones((1, 4, 7, 8), np.float32))


def test_a_image_smaller_than_a_window_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    h = parse_dims("H")
    x, y = Value("x", DType.F32, (1, 3, h, 8)), Value("y", DType.F32, (1, 4, h, 8))
    w = Value("w", DType.F32, (4, 3, 3, 3))
    node = Node(Conv2d(padding=(1, 1, 1, 1)), (x, w), (y,), "small")
    graph = Graph((x,), (y,), (node,), {w: np.ones((4, 3, 3, 3), np.float32)}, ("y",))
    monkeypatch.setattr("saccade.frontend.onnx.load", lambda *_, **_options: graph)
    model = saccade.compile(object(), threads=1)
    assert model(np.ones((1, 3, 1, 8), np.float32)).shape == (1, 4, 1, 8)
    with pytest.raises(PlanError, match=r"with H=0, .*'small'.* 0 rows and padding are less than"):
        model(np.ones((1, 3, 0, 8), np.float32))
