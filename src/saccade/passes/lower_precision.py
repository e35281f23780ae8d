"""Activations are stored in bfloat16 or float16: half the memory to move, and faster products.

    %y: float32 = f(…)  ->  %y: bfloat16 = f(…)

Arithmetic stays in float32 registers; a result is rounded once, where it is stored. Constants stay
float32 in the graph: kernels round those that they pack for dot products. What only moves (Move,
Concat, Pad, gathering) takes and gives one type, so what it moves is rounded first.

Must not touch: what the model takes and gives; what these only move; operands of a softmax and of
other exponentials and logarithms, whose errors grow; what is compared, ranked or rounded, where a
small difference decides; periodic functions; running sums; offsets of samples, and boxes; floats
that hold integers, of which bfloat16 has those up to 256; what bodies of loops and branches take
and give, as these are graphs of their own.
"""

from __future__ import annotations

from functools import partial

from saccade.ir import DType, Node, Value
from saccade.ir.expr import IDENTITY, Expr, subtrees
from saccade.opdefs import (
    ArgReduce,
    Branch,
    Concat,
    CumSum,
    DeformConv,
    Gather,
    GatherNd,
    GridSample,
    Loop,
    Move,
    NonMaxSuppression,
    Pad,
    Pointwise,
    RoiAlign,
    RoiPool,
    ScatterRows,
    SizeConstant,
    Softmax,
    TopK,
    WeightedSamples,
)
from saccade.passes._editor import Editor
from saccade.passes._pass import Pass, Rule
from saccade.passes.canonicalise import NOTHING

__all__ = ["FLOAT16", "PASS"]

_MOVES = (Move, Concat, Pad, Gather, GatherNd, ScatterRows)
_BODIES = (Loop, Branch)
_BITS = "its bits are read"
# x ** p multiplies a relative error by p.
_STEEPEST_POWER = 4.0
_SENSITIVE = {
    **dict.fromkeys(("exp", "log", "pow"), "errors of an operand of {} grow"),
    **dict.fromkeys(("sin", "cos", "mod", "fmod"), "errors of an operand of {} exceed its period"),
    **dict.fromkeys(("floor", "ceil", "round", "sign"), "a small error decides in {}"),
    **dict.fromkeys(
        ("equal", "less", "less_equal", "greater", "greater_equal"), "a small error decides in {}"
    ),
}


def match(_editor: Editor, node: Node) -> Node | None:
    """Whatever gives float32."""
    return node if any(value.dtype is DType.F32 for value in node.outputs) else None


def refuse(editor: Editor, node: Node) -> str | None:
    """Why the results stay float32."""
    if node.op.bitwise:
        return _BITS
    if isinstance(node.op, _BODIES):
        return "a body gives it"
    if isinstance(node.op, TopK):
        return "it gives numbers of what it ranks"
    if isinstance(node.op, CumSum):
        return "running sums round at every element"
    if isinstance(node.op, ScatterRows) and node.op.reduction in ("add", "mul"):
        return "what is added to rows is rounded each time"
    if isinstance(node.op, Pointwise):
        reason = _sensitive(node)
        if reason:
            return reason
    if isinstance(node.op, Move) and _moves_on(editor, node):
        return "what it moves stays float32"
    if isinstance(node.op, Gather) and node.inputs[1].rank == 0 and _stays(editor, node.inputs[0]):
        return "what it takes one of stays float32"
    if isinstance(node.op, SizeConstant):
        moved = any(v.dtype is DType.F32 and not _wanted_of_sizes(editor, v) for v in node.outputs)
        return None if moved else "it is held, as constants are"
    return next(filter(None, (_wanted(editor, value) for value in node.outputs)), None)


def _wanted_of_sizes(editor: Editor, value: Value) -> bool:
    """Whether what follows from sizes stays as it is: it is read like the model's constants.

    Only what is moved has to be of the type of its result.
    """
    moved = any(isinstance(r.op, _MOVES) and value in _moved(r) for r in editor.readers(value))
    return not moved or _wanted(editor, value) is not None


def _moves_on(editor: Editor, node: Node) -> bool:
    """Whether rounding in front of a movement would be a step of its own, and serve no product."""
    readers = editor.readers(node.output)
    return _stays(editor, node.inputs[0]) and all(
        isinstance(reader.op, Pointwise) for reader in readers
    )


def _stays(editor: Editor, value: Value) -> bool:
    """Whether a value stays float32, so that who wants it rounded has to round it."""
    maker = editor.producer(value)
    return value.dtype is DType.F32 and (maker is None or refuse(editor, maker) is not None)


def _wanted(editor: Editor, value: Value) -> str | None:
    """Why someone wants the value in float32."""
    if editor.is_output(value):
        return "the model gives it"
    for reader in editor.readers(value):
        reason = _wanted_by(editor, reader, value)
        if reason:
            return reason
    return None


def _wanted_by(editor: Editor, reader: Node, value: Value) -> str | None:
    if reader.op.bitwise:
        return _BITS
    if isinstance(reader.op, _BODIES):
        return "a body takes it"
    if isinstance(reader.op, Softmax):
        return "errors of an operand of softmax grow"
    if isinstance(reader.op, (ArgReduce, TopK)):
        return "a small error decides in a ranking"
    if isinstance(reader.op, NonMaxSuppression):
        return "a small error decides which boxes stay"
    if isinstance(reader.op, CumSum):
        return "errors add up in running sums"
    if value in _places(reader):
        return "a small error moves samples"
    if isinstance(reader.op, (RoiAlign, RoiPool)) and value is reader.inputs[1]:
        return "a small error moves boxes"
    if isinstance(reader.op, Pointwise):
        return _sensitive(reader)
    # What moves has one type before and after, so what its readers want is wanted here, too.
    if isinstance(reader.op, _MOVES) and value in _moved(reader):
        return _wanted(editor, reader.output)
    return None


def _places(node: Node) -> tuple[Value, ...]:
    """The operands that say where samples are taken, or by how much they are moved."""
    if isinstance(node.op, DeformConv):
        return node.inputs[2:3]
    if isinstance(node.op, GridSample):
        return node.inputs[1:]
    return node.inputs[node.op.levels : -1] if isinstance(node.op, WeightedSamples) else ()


def _sensitive(node: Node) -> str | None:
    """Why the operands and the result of a Pointwise stay float32."""
    assert isinstance(node.op, Pointwise)
    # Floats made of integers, or made into them, have to hold each one exactly.
    if any(not v.dtype.is_float and v.dtype is not DType.BOOL for v in (*node.inputs, node.output)):
        return "it holds integers"
    return next(filter(None, map(_reason, subtrees(node.op.expr))), None)


def _reason(e: Expr) -> str | None:
    if e.op == "pow" and e.args[1].op == "const" and abs(e.args[1].value) <= _STEEPEST_POWER:
        return None
    found = _SENSITIVE.get(e.op)
    return found and found.format(e.op)


def _moved(node: Node) -> tuple[Value, ...]:
    """The operands that a move takes elements from."""
    if isinstance(node.op, ScatterRows):
        return node.inputs[::2]
    return node.inputs if isinstance(node.op, Concat) else node.inputs[:1]


def _rewrite(editor: Editor, node: Node, dtype: DType) -> None:
    """Store the results in `dtype`."""
    inputs = list(node.inputs)
    if isinstance(node.op, _MOVES):
        moved = _moved(node)
        inputs = [_rounded(editor, node, v, dtype) if v in moved else v for v in inputs]
    own = isinstance(node.op, SizeConstant)
    keep = {v for v in node.outputs if own and _wanted_of_sizes(editor, v)}
    editor.retype(node, inputs, dtype, keep)


def _rounded(editor: Editor, node: Node, value: Value, dtype: DType) -> Value:
    """The value in `dtype`."""
    if value.dtype is not DType.F32:
        return value
    array = editor.constant(value)
    if array is not None:
        return editor.add_constant(array.astype(dtype.numpy), value.name)
    return editor.emit(node, Pointwise(IDENTITY, DType.F32), [value], value.name, dtype)


def _pass(dtype: DType) -> Pass:
    rule = Rule(match, refuse, partial(_rewrite, dtype=dtype))
    # A Concat rounds operands whose turn is yet to come: then they have the type already.
    return Pass("lower_precision", (rule, NOTHING), remarks="stays float32")


PASS = _pass(DType.BF16)
FLOAT16 = _pass(DType.F16)
