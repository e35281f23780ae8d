"""Einsum against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import text_model

import saccade
from saccade.errors import ModelError

SIZES = {"b": 2, "h": 3, "i": 4, "j": 5, "k": 6, "l": 1}
EQUATIONS = (
    "ij->ji", "ij->", "ij->i", "ii->i", "bii->bi", "ii->", "ij,jk->ik", "ij,jk", "bij,bjk->bik",
    "bhik,bhjk->bhij", "bhij,bjhk->bihk", "i,j->ij", "i,i->", "ij,ij->ij", "ij,ij->i", "bij,j->bi",
    "ij,jk,kh->ih", "bi,bj,bk->bijk", "il,jl->ij", "bij,kj->bki", "ij , jk -> ik",
)  # fmt: skip


def _compiled(equation, shapes):
    names = "xyz"[: len(shapes)]
    inputs = ", ".join(
        f"float{list(s) if s else '[]'} {n}" for n, s in zip(names, shapes, strict=True)
    )
    body = f'r = Einsum<equation="{equation}">({", ".join(names)})'
    return saccade.compile(text_model(body, inputs, "float r"), cache=False), names


def _hold(equation, shapes):
    compiled, names = _compiled(equation, shapes)
    generator = np.random.default_rng(len(equation))
    arrays = [generator.normal(size=s).astype(np.float32) for s in shapes]
    (result,) = compiled.run(dict(zip(names, arrays, strict=True))).values()
    expected = np.einsum(equation.replace(" ", ""), *(a.astype(np.float64) for a in arrays))
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("equation", EQUATIONS)
def test_letters(equation):
    sides = equation.replace(" ", "").split("->")[0].split(",")
    _hold(equation, [tuple(SIZES[c] for c in side) for side in sides])


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij->...ji", [(2, 3, 4, 5)]), ("...ij,...jk->...ik", [(3, 4, 5), (3, 5, 6)]),
        ("...ij,jk->...ik", [(2, 3, 4, 5), (5, 6)]), ("...i,...i", [(2, 4), (3, 2, 4)]),
        ("b...j,j->b...", [(2, 3, 4, 5), (5,)]), ("ij,jk->ik", [(4, 1), (1, 6)]),
    ],
)  # fmt: skip
def test_ellipses(equation, shapes):
    _hold(equation, shapes)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij->ik", [(2, 3)]), ("ij,jk->ik", [(2, 3)]), ("ijk->i", [(2, 3)]), ("ij->ii", [(2, 3)]),
        ("i.j->i", [(2, 3)]), ("ij,jk->ik", [(2, 3), (4, 5)]),
    ],
)  # fmt: skip
def test_what_does_not_fit(equation, shapes):
    with pytest.raises(ModelError):
        _compiled(equation, shapes)
