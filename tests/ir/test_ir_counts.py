"""Sizes that steps find out: how much of an axis is true, and that graphs keep them."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.ir import Count, DType, Graph, Node, Value, serialize
from saccade.ir.counts import depends, multiple_of
from saccade.ir.dim import evaluate, minimum, mul, symbol
from saccade.ir.dim_parser import parse_dims
from saccade.ir.printer import format_graph
from saccade.ir.verify import VerifyError, verify
from saccade.opdefs import NonMaxSuppression

COUNTED = ("n", "m")


@pytest.mark.parametrize(
    ("text", "factor"),
    [("n", 1), ("3*n", 3), ("min(n, 100)", 1), ("2*min(n, H)", 2), ("min(2*n, 7)", 2),
     ("(n*H)", "H"), ("4*(n*H)", "4*H"), ("min((n*H), 5)", "H")],
)  # fmt: skip
def test_multiples(text, factor):
    wanted = parse_dims(factor) if isinstance(factor, str) else factor
    assert multiple_of(parse_dims(text), COUNTED) == ("n", wanted)


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "H",
        "n+1",
        "n-1",
        "n+m",
        "n//2",
        "(n*m)",
        "min(n, m)",
        "max(n, 4)",
        "n%2",
        "n+H",
        "-2*n",
    ],
)
def test_what_is_none(text):
    assert multiple_of(parse_dims(text), COUNTED) is None


def save(graph, path):
    with path.open("wb") as file:
        serialize.save(graph, file.fileno())


def load(path):
    with path.open("rb") as file:
        return serialize.load(file.fileno(), str(path))


def test_dependence():
    assert depends(parse_dims("min(H, 2*m)"), COUNTED)
    assert not depends(parse_dims("H"), COUNTED) and not depends(5, COUNTED)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 3), st.integers(1, 30))
def test_the_true_part_is_what_the_expression_says(count, more, factor, limit):
    """Of an axis planned for the bound, `factor · count` elements, as far as there are any."""
    bound = count + more
    for dim in (mul(symbol("n"), factor), minimum(mul(symbol("n"), factor), limit)):
        found = multiple_of(dim, COUNTED)
        planned, true = (evaluate(dim, {"n": size}) for size in (bound, count))
        assert found is not None and min(evaluate(found[1], {}) * count, planned) == true


def graph():
    n, boxes = symbol("kept"), symbol("N")
    b, p = Value("b", DType.F32, (1, boxes, 4)), Value("p", DType.F32, (1, 2, boxes))
    rows, found = Value("s", DType.I64, (n, 3)), Value("found", DType.I64, (1,))
    node = Node(NonMaxSuppression(n, 5), (b, p), (rows, found), "nms")
    return Graph(
        (b, p), (rows, found), (node,), MappingProxyType({}), ("s", "kept"),
        counts=(Count("kept", parse_dims("2*min(5, N)")),),
    )  # fmt: skip


def test_graphs_keep_them(tmp_path):
    before = graph()
    verify(before)
    save(before, tmp_path / "g")
    after = load(tmp_path / "g")
    assert after.counts == before.counts and [v.name for v in after.results] == ["s"]
    assert format_graph(after) == format_graph(before)
    assert "kept <= 2*min(5, N)" in format_graph(after)
    assert after.with_nodes(after.nodes).counts == before.counts
    assert after.with_bounds({"N": 3}) == {"N": 3, "kept": 6}


def test_what_verify_says():
    whole = graph()
    wrong = replace(whole, outputs=(whole.outputs[1], whole.outputs[0]))
    with pytest.raises(VerifyError, match="the size of 'kept'"):
        verify(wrong)
