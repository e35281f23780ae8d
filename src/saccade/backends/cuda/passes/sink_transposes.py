"""Products of reordered rows: the product first, where its result is moved anyway.

    MatMul(Move(x), w)  ->  Move(MatMul(x, w))        the movement reorders rows alone

Attention as PyTorch has it goes from batches of tokens to tokens of batches and back, which the two
movements around its products undo: meeting each other, they vanish, and the sum with the shortcut
behind them becomes an epilogue.

Must not touch: products of several matrices; rows that stay in their order, or of which some are
dropped or repeated; epilogues whose operands vary by row; results that something other than a
movement reads, or the caller gets; movements that would copy in the end, such as the windows of
shifted-window attention, which are better copied before a product makes them wider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from saccade.ir import Dim, Factor, IndexMap, Node, Value
from saccade.ir.compose_maps import canonical, compose, is_identity
from saccade.opdefs import MatMul, Move
from saccade.passes import Pass, Rule
from saccade.passes._editor import Editor

__all__ = ["PASS"]


@dataclass(frozen=True, slots=True)
class _MovedProduct:
    """A product, and the movement of its rows.

    Attributes:
        move: In front of it.
        product: The product.
        rows: The movement's factors of rows, outermost first, in the result's order.
    """

    move: Node
    product: Node
    rows: tuple[Factor, ...]


def match(editor: Editor, node: Node) -> _MovedProduct | None:
    """A product whose rows a movement brings in another order."""
    move = editor.producer(node.inputs[0]) if isinstance(node.op, MatMul) else None
    if move is None or not isinstance(move.op, Move):
        return None
    form = canonical(move.op.map)
    rows = form.factors[: len(form.factors) - form.out_groups[-1]]
    sources = [factor.source for factor in rows if factor.source is not None]
    return _MovedProduct(move, node, rows) if sources != sorted(sources) else None


def refuse(editor: Editor, found: _MovedProduct) -> str | None:
    """See the cases above."""
    op, result = found.product.op, found.product.output
    assert isinstance(op, MatMul)
    if op.transpose_a or found.product.inputs[1].rank != 2:
        return "rows are columns" if op.transpose_a else "there are several matrices"
    # Its rows would have to be brought into the stored order as well.
    if any(_varies(operand, len(found.rows) + 1) for operand in found.product.inputs[2:]):
        return "an operand of the epilogue varies by row"
    if not all(map(_whole, _form(found).factors, _sizes(found))):
        return "rows are dropped or repeated"
    maps = [reader.op.map for reader in editor.readers(result) if isinstance(reader.op, Move)]
    if len(maps) < len(editor.readers(result)) or editor.is_output(result):
        return "its result is not moved on"
    then = _then(found, result.shape[-1])
    views = all(_is_strided(compose(then, index_map)) for index_map in maps)
    return None if views else "what moves its result would copy it"


def _form(found: _MovedProduct) -> IndexMap:
    assert isinstance(found.move.op, Move)
    return canonical(found.move.op.map)


def _then(found: _MovedProduct, columns: Dim) -> IndexMap:
    """What moves rows once they are multiplied."""
    form, stored = _form(found), _stored(found)
    factors = tuple(replace(row, source=stored.index(row)) for row in found.rows)
    return IndexMap(
        (*((row.size,) for row in stored), (columns,)),
        (*factors, Factor(columns, len(stored))),
        (*form.out_groups[:-1], 1),
    )


def _stored(found: _MovedProduct) -> list[Factor]:
    """The factors of rows in the order in which they are stored."""
    return sorted(found.rows, key=lambda factor: factor.source or 0)


def _is_strided(index_map: IndexMap | str) -> bool:
    """Whether a movement of dense values is a view: axes that it merges are neighbours."""
    if isinstance(index_map, str):
        return False
    form = canonical(index_map)
    sizes = [size for group in form.in_factors for size in group]
    for axis in form.out_axes:
        for outer, inner in pairwise(axis):
            if outer.source is None or inner.source != outer.source + 1:
                return False
            if not _whole(inner, sizes[inner.source]):
                return False
    return True


def _sizes(found: _MovedProduct) -> Sequence[object]:
    """Sizes of what each factor of the movement reads."""
    form = _form(found)
    sizes = [size for group in form.in_factors for size in group]
    return [None if f.source is None else sizes[f.source] for f in form.factors]


def _whole(factor: Factor, size: object) -> bool:
    return (factor.start, factor.step, factor.size) == (0, 1, size)


def _varies(operand: Value, rank: int) -> bool:
    return operand.rank > rank or any(size != 1 for size in operand.shape[:-1])


def rewrite(editor: Editor, found: _MovedProduct) -> None:
    """Multiply rows in the order in which they are stored, then move them."""
    form, product, stored = _form(found), found.product, _stored(found)
    # What the movement does to columns stays in front of the product, which sums over them.
    last = form.factors[len(stored) :]
    groups = (*((1,) * len(stored)), len(last))
    first = replace(form, factors=(*stored, *last), out_groups=groups)
    x = found.move.inputs[0]
    if not is_identity(first):
        x = editor.emit(product, Move(first), (x,))
    y = editor.emit(product, product.op, (x, *product.inputs[1:]))
    editor.replace(product, Move(_then(found, y.shape[-1])), (y,))


PASS = Pass("sink_transposes", (Rule(match, refuse, rewrite),), after=("compose_moves",))
