"""Zero padding becomes part of the window that follows.

    Conv2d(Pad(x, zeros))                ->  Conv2d(x) with more padding
    Pool2d(average)(Pad(x, zeros))       ->  Pool2d(x) with padding that counts

Must not touch: padding with other values or on other axes, padding that others read; maxima (where
padding never wins); means that do not count their own padding; windows rounded up; symbolic pads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from saccade.ir import Node
from saccade.ir.expr import IDENTITY
from saccade.opdefs import Conv2d, Pad, Pool2d
from saccade.passes._editor import Editor
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]


@dataclass(frozen=True, slots=True)
class _PaddingMatch:
    pad: Node
    window: Node


def match(editor: Editor, node: Node) -> _PaddingMatch | None:
    """A window operator over a padded feature map."""
    pad = editor.producer(node.inputs[0]) if isinstance(node.op, Conv2d | Pool2d) else None
    return _PaddingMatch(pad, node) if pad is not None and isinstance(pad.op, Pad) else None


def refuse(editor: Editor, found: _PaddingMatch) -> str | None:
    """See the cases above."""
    pad, op = found.pad.op, found.window.op
    assert isinstance(pad, Pad)
    if pad.mode != "constant" or pad.value != 0:
        return f"the padding is not zero but {pad.mode} {pad.value:g}"
    if pad.pads[:2] != ((0, 0), (0, 0)):
        return "the padding is not around the feature map"
    if not all(isinstance(p, int) for pair in pad.pads for p in pair):
        return "the padding is not known yet"
    if not editor.single_use(found.pad.output):
        return "the padded feature map is also read elsewhere"
    if isinstance(op, Pool2d):
        return _refuse_pool(op, _total(found))
    if isinstance(op, Conv2d) and op.prologue != IDENTITY:
        return "the prologue applies to the padding"
    return None


def _refuse_pool(op: Pool2d, padding: tuple[int, int, int, int]) -> str | None:
    if op.kind == "max":
        return "padding must not win a maximum"
    if op.ceil_mode:
        return "windows are rounded up"
    if any(op.padding) and not op.count_include_pad:
        return "the mean does not count its own padding"
    if not all(p < extent for p, extent in zip(padding, op.extent * 2, strict=True)):
        return "whole windows lie in the padding"
    return None


def _total(found: _PaddingMatch) -> tuple[int, int, int, int]:
    pad, op = found.pad.op, found.window.op
    assert isinstance(pad, Pad)
    assert isinstance(op, Conv2d | Pool2d)
    (top, bottom), (left, right) = pad.pads[2:]
    t, le, b, r = (
        own + more
        for own, more in zip(op.padding, (top, left, bottom, right), strict=True)
        if isinstance(more, int)
    )
    return t, le, b, r


def rewrite(editor: Editor, found: _PaddingMatch) -> None:
    """Read the feature map without the padding."""
    op, padding = found.window.op, _total(found)
    inputs = (found.pad.inputs[0], *found.window.inputs[1:])
    if isinstance(op, Pool2d):
        editor.replace(found.window, replace(op, padding=padding, count_include_pad=True), inputs)
    elif isinstance(op, Conv2d):
        editor.replace(found.window, replace(op, padding=padding), inputs)


PASS = Pass("fold_padding", (Rule(match, refuse, rewrite),), after=("canonicalise",))
